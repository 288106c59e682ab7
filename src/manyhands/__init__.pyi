from . import agreement as agreement
from . import classifiers as classifiers
from . import datasets as datasets
from . import encoders as encoders
from . import inference as inference
from . import io as io
from . import metrics as metrics
from . import planning as planning
from ._version import __version__ as __version__
from .annotations import AnnotationTable as AnnotationTable
from .annotations import LabelSetTable as LabelSetTable
from .classifiers import *
from .comparisons import ComparisonTable as ComparisonTable
from .datasets import load_demo as load_demo
from .datasets import make_crowd as make_crowd
from .decision import decide as decide
from .decision import decide_sets as decide_sets
from .inference import *
from .inference.comparison import compare_aggregators as compare_aggregators
from .models import load as load
from .models import save as save
from .planning import AnnotationPlanner as AnnotationPlanner
from .planning import next_annotations as next_annotations
from .planning import review_queue as review_queue
from .ranking import *
from .registry import all_aggregators as all_aggregators
from .registry import all_classifiers as all_classifiers
from .report import render_report as render_report
from .report import summarize as summarize
from .scale.store import AnnotationStore as AnnotationStore
from .selection import cross_predict as cross_predict
from .selection import select as select
