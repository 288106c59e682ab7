from .classifier import BaseCrowdClassifier as BaseCrowdClassifier
from .context import Followed as Followed
from .context import Watch as Watch
from .method_protocol import MethodProtocol as MethodProtocol
from .protocols import PROTOCOLS as PROTOCOLS
from .protocols import training_protocol as training_protocol
from .protocols import with_protocol as with_protocol
