from . import agreement as agreement
from . import annotations as annotations
from . import classifiers as classifiers
from . import datasets as datasets
from . import estimator_checks as estimator_checks
from . import inference as inference
from . import io as io
from . import linear as linear
from . import metrics as metrics
from . import planning as planning
from . import sampling as sampling
from ._version import __version__ as __version__
from .annotations import AnnotationTable as AnnotationTable
from .classifiers import *
from .datasets import load_demo as load_demo
from .datasets import make_crowd as make_crowd
from .decision import decide as decide
from .inference import *
from .inference.comparison import compare_aggregators as compare_aggregators
from .models import load as load
from .planning import AnnotationPlanner as AnnotationPlanner
from .planning import next_annotations as next_annotations
from .registry import all_classifiers as all_classifiers
from .report import render_report as render_report
from .report import summarize as summarize
from .selection import cross_predict as cross_predict
from .selection import select as select
