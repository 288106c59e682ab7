"""Planning of annotation: what to ask next, when to stop, what to review, whom to teach (no torch).

`AnnotationPlanner` chooses pairs of instance and annotator.
"""

from manyhands.planning.choosing import Suggestion
from manyhands.planning.planner import AnnotationPlanner, Stopping, next_annotations

__all__ = [
    "AnnotationPlanner",
    "Stopping",
    "Suggestion",
    "next_annotations",
]
