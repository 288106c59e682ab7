"""Labels that are one class or grade per item; what a person decides renews their figures."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.decision.labels import best_of, is_scale_of_grades
from manyhands.explore.answers import Answers, Vote, Words
from manyhands.explore.figures import Figures, Model, compute
from manyhands.io.consensus_labels import (
    ACCEPT,
    REVIEW_RULE,
    Consensus,
    consensus,
    whole_rule,
)
from manyhands.io.corrections import Correction, matched
from manyhands.io.writers import write_consensus
from manyhands.jobs.gold import GoldRows
from manyhands.metrics.certainty import with_open
from manyhands.typing import BoolArray, FloatArray, IntArray


class ClassAnswers(Answers[int]):
    """The labels of a folder of classes or grades; an answer is a code.

    Parameters
    ----------
    table : AnnotationTable
    model : Model
    given : GoldRows, optional
        Labels that were known before anybody decided here. What is decided replaces them, and they
        stand again when it is undone.
    """

    is_set = False
    words = Words("label", "class", "annotation", "gave", "Label")
    table: AnnotationTable

    def __init__(self, table: AnnotationTable, model: Model, given: GoldRows | None = None) -> None:
        self.table, self.model, self.options = table, model, table.classes
        self.method, self.command = model.name, model.command
        self.rule = f"{whole_rule(model.threshold or ACCEPT)} {REVIEW_RULE}"
        self.notes = list(model.notes)
        self._observed = table.observed
        super().__init__(self._observed.instance)
        self._given = GoldRows.none(table) if given is None else given
        self._known, self._random = self._given.codes, self._given.random
        self.figures: Figures

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def headline(self) -> str:
        """How many of the labels are right."""
        return self.figures.told.headline

    @property
    def order(self) -> IntArray:
        """Rows, the most doubtful label first; items without annotations come last."""
        return self.figures.order

    @property
    def inferred(self) -> Consensus:
        """Labels of the last figures."""
        return self.figures.found

    @property
    def judged(self) -> bool:  # type: ignore[override]
        """Whether anything shows how good the annotators are."""
        return self.figures.inputs.judged

    @property
    def codes(self) -> IntArray:
        """Label of every instance now, corrections included, shape (n,)."""
        return np.where(self._known >= 0, self._known, self.figures.codes)

    @property
    def known(self) -> BoolArray:
        """Mask of the instances whose label a person gave or confirmed, shape (n,)."""
        return self._known >= 0

    @property
    def random(self) -> BoolArray | None:
        """Mask of the known labels that were drawn at random, shape (n,); None if nothing says."""
        return None if self._random is None else self._random & self.known

    @property
    def posterior(self) -> FloatArray:
        """Class probabilities, 1 for the class of a known label, shape (n, C)."""
        found = self.figures.posterior.copy()
        found[self.known] = np.eye(len(self.options))[self._known[self.known]]
        return found

    def of(self, row: int) -> int:
        """Return the label of an item now."""
        code = int(self._known[row])
        return int(self.figures.codes[row]) if code < 0 else code

    def told(self, row: int) -> list[float | None]:
        """Return how probable each class is; None where nothing tells."""
        if self._known[row] >= 0:
            return [float(code == self._known[row]) for code in range(len(self.options))]
        certainty, posterior = self.figures.certainty, self.figures.posterior[row]
        if not certainty.is_known:
            return [None] * len(posterior)
        told = certainty.of_classes(posterior[None], np.array([self.of(row)]))
        found: list[float | None] = told[0].tolist()
        return found

    def more_probable(self, row: int, answer: int, told: Sequence[float | None]) -> list[int]:
        """Return the classes that are more probable than a label, the most probable first.

        There are some if a rule chose the label, such as the median of grades. Where nothing is
        told, they are more probable by the method.
        """
        own = self.posterior[row].tolist()
        shares = [p if share is None else share for p, share in zip(own, told, strict=True)]
        found = [code for code, share in enumerate(shares) if share > shares[answer]]
        return sorted(found, key=lambda code: -shares[code])

    @property
    def graded(self) -> bool:
        """Whether the labels are grades, of which the middle one is the label."""
        return is_scale_of_grades(self.table)

    def is_middle(self, row: int, answer: int) -> bool:
        """Return whether a label is the median of grades."""
        return self.graded and bool(best_of(self.posterior[[row]], self.table)[0] == answer)

    def certainty(self, row: int, answer: int, told: Sequence[float | None]) -> float | None:
        """Return how probable a class is."""
        return told[answer]

    def votes(self, row: int) -> list[Vote[int]]:
        """Return the annotations of an item, those of the most trusted first."""
        own, figures = self._own(row), self.figures
        votes = [
            Vote(
                r,
                label,
                float(figures.accuracy[r]),
                float(figures.low[r]),
                float(figures.high[r]),
                int(figures.n_annotations[r]),
                int(figures.n_checked[r]),
                int(figures.n_right[r]),
            )
            for r, label in zip(
                self._observed.annotator[own].tolist(),
                self._observed.label[own].tolist(),
                strict=True,
            )
        ]
        return sorted(votes, key=lambda vote: -vote.accuracy)

    def having(self, code: int) -> BoolArray:
        """Mask of the items with a label, shape (n,)."""
        return np.asarray(self.codes == code)

    def given(self, code: int | None, annotator: int | None) -> BoolArray:
        """Mask of the items to which an annotator (None: any) gave a class (None: any)."""
        observed = self._observed
        votes = np.ones(observed.n_annotations, dtype=bool)
        if code is not None:
            votes &= observed.label == code
        if annotator is not None:
            votes &= observed.annotator == annotator
        return self._met(observed.instance[votes])

    def codes_of(self, answer: int) -> tuple[int, ...]:
        """Return the one code of a label."""
        return (answer,)

    # -- what a person decides ---------------------------------------------------------------------

    def read(self, form: Mapping[str, Sequence[str]]) -> tuple[int, int | None]:
        """Return the class that was chosen, by default the one shown, and the one shown."""
        now = self.code_in(form.get("now", [""])[-1])
        return self.code_in(form["code"][-1]) if "code" in form else now, now

    def value(self, answer: int) -> Any:
        """Return the class value of a code."""
        return self.options[answer].item()

    def matched(self, records: Sequence[Correction]) -> list[Correction]:
        """Give records the ids and classes of the table where these read the same."""
        return matched(records, self.table.instances.tolist(), [*self._code_of])

    def fits(self, value: Any) -> bool:
        """Return whether a value is a class here."""
        return not isinstance(value, list) and value in self._code_of

    def take(self, row: int, decided: Correction | None) -> None:
        """Take the label of an item as known, or as it was given before."""
        known = self._known.copy()  # Figures may be computed from the old array.
        known[row] = self._given.codes[row] if decided is None else self._code_of[decided.label]
        self._known = known
        how = None if decided is None else decided.chosen
        if self._random is not None or how is not None:
            nobody = np.zeros(len(known), dtype=bool)
            drawn = nobody if self._random is None else self._random.copy()
            given = self._given.random  # What was drawn at random once remains so.
            drawn[row] = how == "random" or (given is not None and given[row])
            self._random = drawn

    def renewal(self, n_records: int) -> Callable[[], Figures]:
        """Return what computes the figures, of the labels that are known now."""
        known, drawn, is_first = self._known, self._random, self.n_records is None

        def figures() -> Figures:
            if is_first:
                return compute(self.table, self.model, known, n_records, drawn)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # They were shown at the first fit.
                return compute(self.table, self.model, known, n_records, drawn)

        return figures

    def renew(self, found: Figures) -> None:
        """Take up figures."""
        self.figures, self.n_records = found, found.n_records

    # -- what is written ---------------------------------------------------------------------------

    def reviewed(self) -> Consensus:
        """Return the labels as they stand, corrections included; open where the folder's are."""
        codes, known, posterior = self.codes, self.known, self.posterior
        least = self.model.threshold
        told = self.figures.certainty.of_labels(posterior, codes, known)
        codes = with_open(codes, told, posterior, least)
        labels = np.array([*self.options.tolist(), None], dtype=object)[codes]
        given: dict[str, Any] = {"known": known, "probability": told, "accept": least or ACCEPT}
        return replace(consensus(self.table, posterior, labels, **given), random=self.random)

    def write(self, path: Path, found: Any, **options: Any) -> Path:
        """Write labels; see `manyhands.io.writers.write_consensus`."""
        return write_consensus(path, found, method=self.method, **options)

    def cell(self, value: Any) -> Any:
        """Return a class value as it is."""
        return value
