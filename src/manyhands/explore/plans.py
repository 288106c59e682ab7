"""What to ask next, and what to show an annotator: computed when a page asks for it."""

from __future__ import annotations

import shlex
import threading
from typing import Any

from manyhands.exceptions import AnnotationError
from manyhands.explore.class_answers import ClassAnswers
from manyhands.explore.desk import Desk
from manyhands.explore.figures import Figures
from manyhands.inference.base import BaseAggregator
from manyhands.planning import TeachingSheet, teaching_sheet
from manyhands.report.planning import MOST, plan_of


class Plans:
    """Plans of a desk's latest figures; each is computed once. Several threads may ask.

    Parameters
    ----------
    desk : Desk
        Of labels that are one class each.
    """

    def __init__(self, desk: Desk) -> None:
        answers = desk.answers
        assert isinstance(answers, ClassAnswers)
        self._desk, self._answers, self._lock = desk, answers, threading.Lock()
        self._of: Figures | None = None
        self._kept: dict[bool, dict[str, Any] | None] = {}

    def next(self, *, ahead: bool) -> dict[str, Any] | None:
        """Plan the next annotations, as the report does; None if there is nothing to ask.

        Parameters
        ----------
        ahead : bool
            Whether to forecast several rounds, too, which takes seconds.
        """
        with self._lock:
            figures = self._answers.figures
            if figures is not self._of:
                self._of, self._kept = figures, {}
            if ahead not in self._kept:
                try:
                    level = figures.told.level
                    told = {"level": None if level is None else level.to_dict()}
                    known = figures.gold
                    found = plan_of(figures.inputs, figures.basis, known, ahead=ahead, **told)
                except AnnotationError:  # Every label is known.
                    found = None
                self._kept[ahead] = found
            return self._kept[ahead]

    def command(self, n: int) -> str:
        """Write the command that plans the next n annotations from the same files."""
        desk = self._desk
        known = [word for path in desk.known_files for word in ("--known", str(path))]
        files = [str(path) for path in desk.contents.annotations]
        options = ["-n", str(n), "--load", f"{MOST:g}", *known, "--out", "batch.csv"]
        return shlex.join(["manyhands", "next", *files, *options])

    def sheet(self, r: int) -> TeachingSheet:
        """Teaching sheet of the annotator with this code."""
        figures, table = self._answers.figures, self._answers.table
        model = None if figures.basis is None else figures.basis.model
        if not isinstance(model, BaseAggregator):  # The labels are a classifier's.
            model = figures.aggregator
        return teaching_sheet(model, table, table.annotators[r].item())
