"""Planning of annotation: what to ask next, when to stop, what to review, whom to teach (no torch).

`AnnotationPlanner` chooses pairs of instance and annotator; `replay` tries it on a pilot.
"""

from manyhands.planning.choosing import Suggestion
from manyhands.planning.planner import AnnotationPlanner, Stopping, next_annotations
from manyhands.planning.replay import Curves, Replay, forecast, replay

__all__ = [
    "AnnotationPlanner",
    "Curves",
    "Replay",
    "Stopping",
    "Suggestion",
    "forecast",
    "next_annotations",
    "replay",
]
