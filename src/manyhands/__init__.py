"""manyhands: learning from crowds.

From the annotations of many fallible annotators it infers labels with their uncertainty and a
profile of every annotator, and it trains classifiers. Names are imported on first use, so that
aggregating labels needs no deep-learning stack.
"""

from manyhands import classifiers, inference, ranking
from manyhands._lazy import attach
from manyhands._version import __version__ as __version__

# Type checkers read the same names in __init__.pyi.
__getattr__, __dir__, __all__ = attach(
    __name__,
    modules=[
        "agreement",
        "classifiers",
        "datasets",
        "encoders",
        "inference",
        "io",
        "metrics",
        "planning",
    ],
    names={
        "annotations": ["AnnotationTable", "LabelSetTable"],
        "classifiers": classifiers.__all__,
        "comparisons": ["ComparisonTable"],
        "datasets": ["load_demo", "make_crowd"],
        "decision": ["decide", "decide_sets"],
        "inference": inference.__all__,
        "inference.comparison": ["compare_aggregators"],
        "scale.store": ["AnnotationStore"],
        "models": ["load", "save"],
        "planning": ["AnnotationPlanner", "next_annotations", "review_queue"],
        "ranking": ranking.__all__,
        "registry": ["all_aggregators", "all_classifiers"],
        "report": ["render_report", "summarize"],
        "selection": ["cross_predict", "select"],
    },
)
