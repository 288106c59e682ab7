"""What to ask next, and what to show an annotator: computed when a page asks for it."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

from manyhands.exceptions import AnnotationError
from manyhands.explore.class_answers import ClassAnswers
from manyhands.explore.desk import Desk
from manyhands.explore.figures import Figures
from manyhands.inference.base import BaseAggregator
from manyhands.planning import TeachingSheet, teaching_sheet
from manyhands.report.commands import fill_command
from manyhands.report.planning import (
    MOST,
    enough,
    gain_words,
    limit,
    minutes_of_forecast,
    plan_of,
    told_of_rounds,
)
from manyhands.wording import GainWords


@dataclass(frozen=True)
class Pair:
    """An annotation to ask for.

    Attributes
    ----------
    row : int
        Of the item.
    annotator : int or None
        Code; None for a newcomer.
    gain : float or None
        What it is expected to add; None if it is not known.
    """

    row: int
    annotator: int | None
    gain: float | None


@dataclass(frozen=True)
class ForecastRound:
    """A round of the forecast: further annotations until then, and the share of labels gained.

    Attributes
    ----------
    annotations : int
    gain, low, high : float
        Mean, lowest and highest of the simulated runs, as planned.
    random : float
        Mean at random.
    per_right_label : float or None
        Annotations of this round per label that becomes right.
    """

    annotations: int
    gain: float
    low: float
    high: float
    random: float
    per_right_label: float | None


@dataclass(frozen=True)
class Plan:
    """The next annotations, and what they are worth.

    Attributes
    ----------
    source : str
        The model behind all figures.
    enough : str
        Whether more annotations are needed.
    limit : str
        Below which gain we suggest stopping; "" without a limit.
    words : GainWords or None
        How gains are called; None if they are not known.
    newcomer : bool
        Whether nobody here is left to ask.
    whom : str
        Who is not asked, and why; "" if everybody may be.
    judged : bool
        Whether anything shows how good the annotators are.
    n, n_warm_up : int
        Annotations of the batch, and of those the first that only spread over the items.
    pairs : tuple of Pair
        The whole batch, the most informative first.
    asked : dict {annotator: int}
        How many of them each is asked, the most first.
    rounds : tuple of ForecastRound
        Empty without a forecast.
    stop_of_rounds : tuple of (int, str)
        How many of them are worth buying, and where to stop in words; "" if all are.
    runs : int
        Simulated runs behind them.
    minutes : int
        About how many minutes a forecast on the command line takes.
    command : str
        Plans the same batch on the command line.
    """

    source: str
    enough: str
    limit: str
    words: GainWords | None
    newcomer: bool
    whom: str
    judged: bool
    n: int
    n_warm_up: int
    pairs: tuple[Pair, ...]
    asked: dict[int, int]
    rounds: tuple[ForecastRound, ...]
    stop_of_rounds: tuple[int, str]
    runs: int
    minutes: int
    command: str


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
        self._kept: dict[bool, Plan | None] = {}

    def next(self, *, ahead: bool) -> Plan | None:
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
                self._kept[ahead] = self._plan(figures, ahead)
            return self._kept[ahead]

    def _plan(self, figures: Figures, ahead: bool) -> Plan | None:
        level = figures.told.level
        of = None if level is None else level.to_dict()
        try:
            given: Any = {"known": figures.gold, "ahead": ahead, "level": of, "most": None}
            found = plan_of(figures.inputs, figures.basis, **given)
        except AnnotationError:  # Every label is known.
            return None
        if found is None:
            return None
        code_of = {name: r for r, name in enumerate(self._answers.table.annotators.tolist())}
        row_of = self._desk.row_of
        pairs = tuple(
            Pair(row_of[row["id"]], code_of.get(row["annotator"]), row["gain"])
            for row in found["next"]["rows"]
        )
        asked = Counter(pair.annotator for pair in pairs if pair.annotator is not None)
        rounds = found["rounds"] or {"runs": 0, "rows": ()}
        return Plan(
            source=found["source"],
            enough=enough(found),
            limit=limit(found),
            words=None if found["gain"] is None else gain_words(found),
            newcomer=bool(found["newcomer"]),
            whom=found["whom"],
            judged=bool(found["judged"]),
            n=int(found["n"]),
            n_warm_up=int(found["n_warm_up"]),
            pairs=pairs,
            asked=dict(asked.most_common()),
            rounds=tuple(ForecastRound(**row) for row in rounds["rows"]),
            stop_of_rounds=told_of_rounds(rounds["rows"]),
            runs=rounds["runs"],
            minutes=minutes_of_forecast(self._answers.table),
            command=self._command(len(pairs), of_annotations=found["of_annotations"]),
        )

    def _command(self, n: int, *, of_annotations: bool) -> str:
        """Write the command that plans the next n annotations from the same files."""
        folder = "" if of_annotations else " --model FOLDER"
        command = f"manyhands next ANNOTATIONS{folder} -n {n} --load {MOST:g} --out batch.csv"
        return fill_command(command, self._desk.files)

    def sheet(self, r: int) -> TeachingSheet:
        """Teaching sheet of the annotator with this code."""
        figures, table = self._answers.figures, self._answers.table
        model: Any = None if figures.basis is None else figures.basis.model
        if not isinstance(model, BaseAggregator):  # The labels are a classifier's.
            model = figures.aggregator
        return teaching_sheet(model, table, table.annotators[r].item())
