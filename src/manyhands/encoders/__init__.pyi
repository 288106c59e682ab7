from .adapters import SentenceTransformerEncoder as SentenceTransformerEncoder
from .adapters import TimmEncoder as TimmEncoder
from .adapters import TorchEncoder as TorchEncoder
from .adapters import TransformersEncoder as TransformersEncoder
from .frozen import EmbeddingCache as EmbeddingCache
from .frozen import FunctionEncoder as FunctionEncoder
from .images import ImageEncoder as ImageEncoder
from .texts import TextEncoder as TextEncoder
