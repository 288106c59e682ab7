"""Planning annotation: what to ask next, when to stop, what to review, whom to teach (no torch).

`AnnotationPlanner` chooses pairs of instance and annotator; `replay` tries it on a pilot.
"""

from manyhands.planning.choosing import Suggestion
from manyhands.planning.planner import AnnotationPlanner, Stopping, next_annotations
from manyhands.planning.replay import Curves, Replay, forecast, replay
from manyhands.planning.review import (
    ReviewQueue,
    TeachingPair,
    TeachingSheet,
    review_queue,
    teaching_sheet,
)
from manyhands.planning.screening import AnnotatorScreen, Screening, screen_annotators

__all__ = [
    "AnnotationPlanner",
    "AnnotatorScreen",
    "Curves",
    "Replay",
    "ReviewQueue",
    "Screening",
    "Stopping",
    "Suggestion",
    "TeachingPair",
    "TeachingSheet",
    "forecast",
    "next_annotations",
    "replay",
    "review_queue",
    "screen_annotators",
    "teaching_sheet",
]
