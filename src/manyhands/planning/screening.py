"""Screening annotators: who needs a closer look, and why.

.. [1] V. C. Raykar and S. Yu. Eliminating spammers and ranking annotators for crowdsourced labeling
   tasks. JMLR 13, 2012: a spammer's answers do not depend on the class.
.. [2] D. M. W. Powers. Evaluation: from precision, recall and F-measure to ROC, informedness,
   markedness and correlation. Journal of Machine Learning Technologies 2(1), 2011.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from manyhands.annotations import AnnotationTable, as_table
from manyhands.annotations.frames import Backend
from manyhands.codes import Flag
from manyhands.decision.labels import is_scale_of_grades
from manyhands.exceptions import AnnotationError
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.inference.inputs import gold_codes
from manyhands.inference.shared_mistakes import annotators_are_judged
from manyhands.metrics import AnnotatorReliability
from manyhands.metrics.annotators import RightSums, reliability_of
from manyhands.metrics.intervals import share_interval
from manyhands.planning.beliefs import LEAST_ANNOTATIONS, Beliefs, beliefs_of
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray
from manyhands.wording import SAMPLE_TELLS, percent

LEVEL = 0.95
"""Level of the annotators' intervals, whose upper ends are compared with the crowd's median."""

LEAST_TESTED = 10
"""Number of annotations that an annotator must have to have answers, times and annotations of known
class tested."""

HURRIED = 1 / 3
"""An annotation counts as fast if it took less than this share of the crowd's median time."""

LEAST_EXPECTED = 3.0
"""Expected number of annotations that a class needs to enter an annotator's informedness."""

GUESSING, OF_MEDIAN = 0.25, 0.5
"""An annotator counts as guessing if the upper end of the informedness lies below both the first
value and the second value times the crowd's median."""

UNEVEN = 1.2
"""By which factor the most frequent class must exceed an equal share for guesses of it to be told
of."""

MOSTLY = 0.95
"""Share of one label among an annotator's answers from which the flag "one label" is raised."""

LAGS = 8
"""Longest period of repeating patterns that are looked for."""

LEAST_CONFUSED, CONFUSED_BY_CHANCE = 5.0, 0.01
"""Expected annotations of a class that an annotator needs for a habit to be told of, and how often
one of an annotator's confusions may seem to be a habit by chance."""

SURPRISE = 1e-4
"""p-value below which answers are flagged: their probability for an honest annotator."""


@dataclass(frozen=True)
class AnnotatorScreen:
    """Result of the screening of one annotator.

    Attributes
    ----------
    annotator : id
    n_annotations : int
    accuracy, low, high : float or None
        Expected accuracy with a 95 % interval; None without annotations, or if the annotations
        cannot show how good the annotators are (identifiability).
    flags : tuple of str
        Flags among those of `ADVICE`, the most serious first.
    evidence : tuple of str
        What each flag rests on, in one sentence.
    advice : str
        What to do, and what not.
    """

    annotator: Any
    n_annotations: int
    accuracy: float | None
    low: float | None
    high: float | None
    flags: tuple[str, ...]
    evidence: tuple[str, ...]
    advice: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self) | {"flags": list(self.flags), "evidence": list(self.evidence)}


ADVICE = {
    Flag.BELOW_MEDIAN_ON_GOLD: "go through their wrong answers with them",
    Flag.BELOW_CHANCE: "ask whether they understood the task or swapped two classes. Their "
    "annotations still count, because the model allows for their confusions",
    Flag.GUESSING: "read some of their annotations, and give them no new work until they pass a "
    "check, such as gold questions. Their annotations can stay, because they count for little. Do "
    "not withhold pay because of these figures alone: they do not show why somebody guesses",
    Flag.ONE_LABEL: "ask whether they understood the task. Models with confusion matrices "
    "give such annotations almost no weight",
    Flag.PATTERN: "find out whether they rushed, for instance from the times of their "
    "annotations. A pattern proves nothing if the items were sorted by class",
    Flag.TOO_FAST: "read some of their annotations before you judge: some tasks are easy",
    Flag.DRIFT: "compare early and late annotations of one class. Ask about fatigue or new "
    "instructions",
    Flag.BELOW_MEDIAN: "read some of their annotations, and show them examples of what they "
    "confuse. Do not dismiss anybody for this reason alone: on real data sets, only about half "
    "of the annotators with this flag were among the least accurate 10\u202f%",
}
"""What to do about each flag, the most serious first."""

NOTHING = "no reason to act"

SHOW_GRADES = "show them examples of the grades, because they grade too high or too low"
"""Advice about annotators of grades who surely grade too high or too low."""

TOO_FEW = "there are too few annotations to judge or rank this annotator"
UNJUDGED = f"nothing shows how good the annotators are; {SAMPLE_TELLS[0].lower()}{SAMPLE_TELLS[1:]}"

OF_LABELS = frozenset({Flag.BELOW_CHANCE, Flag.GUESSING, Flag.DRIFT, Flag.BELOW_MEDIAN})
"""Flags that compare annotations with the inferred labels, and so mean nothing if annotators cannot
be judged."""


class Screening(tuple[AnnotatorScreen, ...]):
    """Annotators, those with flags and the least accurate first."""

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Return a data frame; flags and evidence are joined by "; "."""
        import narwhals as nw

        rows = [
            each.to_dict() | {"flags": "; ".join(each.flags), "evidence": "; ".join(each.evidence)}
            for each in self
        ]
        columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
        return nw.from_dict(columns, backend=backend).to_native()


def screen_annotators(
    table: Any, model: Any = None, *, times: Any = None, seconds: Any = None, gold: Any = None
) -> Screening:
    """Return how accurate each annotator is, and who needs a closer look and why.

    The report, the explorer, the command line and every ``annotators.csv`` take their flags from
    here. A flag is a reason to look, not to dismiss: of the annotators whose interval ends below
    the crowd's median, about half are among the worst tenth.

    If the annotations cannot show how good annotators are, because there are only two, say, or only
    models that may share mistakes, there is no accuracy and no flag that rests on inferred labels.

    Parameters
    ----------
    table : AnnotationTable or matrix
        Rows are in the order in which they were given, unless ``times`` tells the order.
    model : fitted estimator with ``posterior_``, or array of shape (n, C), optional
        Default: ``DawidSkene().fit(table)``.
    times : array of shape (n_annotations,), optional
        When each annotation was given, such as an export's ``ended``; NaN where unknown. Without
        times, drift is not tested.
    seconds : array of shape (n_annotations,), optional
        How long each annotation took, such as an export's ``seconds``; NaN where unknown. Without
        it, nobody is flagged as too fast.
    gold : dict {instance id: class}, or array-like of shape (n_instances,), optional
        Known classes, as in `DawidSkene.fit`, by which annotators are measured.

    Returns
    -------
    Screening
        A tuple of `AnnotatorScreen`, annotators with flags and the least accurate first.

    Raises
    ------
    AnnotationError
        If the model, ``times``, ``seconds`` or ``gold`` does not fit the table.
    """
    return screened(table, model, times=times, seconds=seconds, gold=gold)


def screened(
    table: Any,
    model: Any = None,
    *,
    times: Any = None,
    seconds: Any = None,
    gold: Any = None,
    judged: bool | None = None,
) -> Screening:
    """Screen the annotators as `screen_annotators` does.

    ``judged`` says whether the annotations show how good the annotators are; None: it is found out,
    which needs a model that knows which labels were given to it.
    """
    table = as_table(table, argument="table")
    when, spent = (_times(each, table, name) for each, name in ((times, "times"),
                                                                (seconds, "seconds")))  # fmt: skip
    measured = None if gold is None else right_by_gold(table, gold_codes(gold, table))
    model = DawidSkene().fit(table) if model is None else model
    found, _ = beliefs_of(model, table)
    if judged is None:
        known = getattr(model, "is_known_", None)
        aligned = known is not None and len(known) == table.n_instances
        judged = annotators_are_judged(table, known if aligned else None)
    answers = AnswerCounts.of(table, found.posterior)
    paces = None if spent is None else paces_of(table, spent)
    marks = answers.marks(found.pooled, table.classes, measured)
    for r, own in enumerate(_of_annotators(table)):
        if when is not None:
            own = own[np.argsort(when[own], kind="stable")]
        marks[r] |= _marks(table, found, own, when, is_one_label=Flag.ONE_LABEL in marks[r])
        if paces is not None and spent is not None and paces.too_fast[r]:
            text = (
                f"takes {paces.median[r]:.1f} s per annotation (median), the crowd "
                f"{np.nanmedian(spent):.1f} s"
            )
            marks[r][Flag.TOO_FAST] = text
    names = None if is_scale_of_grades(table) else table.classes
    return answers.screening(table.annotators, marks, judged=judged, measured=measured, names=names)


@dataclass(frozen=True)
class AnswerCounts:
    """Sums over instances by which annotators are judged, which can be added over parts of a table.

    Attributes
    ----------
    right : RightSums
    counts : array of shape (R, C, C)
        Expected annotations by [annotator, true, given].
    squares : array of shape (R, C)
        Sums of the squared probabilities of each class, over an annotator's annotations.
    """

    right: RightSums
    counts: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, table: AnnotationTable, posterior: FloatArray) -> AnswerCounts:
        """Sum over the observed annotations of a table."""
        observed = table.observed
        c, r = table.n_classes, table.n_annotators
        cell = observed.annotator * np.int64(c) + observed.label
        counts, squares = np.empty((r, c, c)), np.empty((r, c))
        for true in range(c):
            q = posterior[observed.instance, true]
            counts[:, true] = np.bincount(cell, q, r * c).reshape(r, c)
            squares[:, true] = np.bincount(observed.annotator, q * q, r)
        return cls(RightSums.of(table, posterior), counts, squares)

    def __add__(self, other: AnswerCounts) -> AnswerCounts:
        """Return the sums of both."""
        return AnswerCounts(
            self.right + other.right, self.counts + other.counts, self.squares + other.squares
        )

    @cached_property
    def reliability(self) -> AnnotatorReliability:
        """Expected accuracy of each annotator."""
        return reliability_of(self.right, level=LEVEL)

    def marks(
        self, pooled: FloatArray, classes: AnyArray, measured: RightByGold | None = None
    ) -> list[dict[Flag, str]]:
        """Return each annotator's flags that need neither order nor times, with their evidence.

        Parameters
        ----------
        pooled : array of shape (C, C)
            The crowd's confusion matrix.
        classes : array of shape (C,)
        measured : RightByGold, optional
        """
        accuracy = self.reliability
        active = accuracy.n_annotations > 0
        median = float(np.median(accuracy.accuracy[active])) if active.any() else 0.0
        guessing = self._guessing(classes)
        found = []
        for r in range(len(active)):
            marks = self._one_label(r, pooled, classes) | guessing.get(r, {})
            marks |= _by_accuracy(accuracy, r, median, 1.0 / len(classes))
            if measured is not None:
                marks |= _by_gold(measured, r)
            found.append(marks)
        return found

    def screening(
        self,
        annotators: AnyArray,
        marks: list[dict[Flag, str]],
        *,
        judged: bool,
        measured: RightByGold | None = None,
        names: AnyArray | None = None,
    ) -> Screening:
        """Screen the annotators with these ids by their flags.

        ``judged`` says whether the annotations show how good the annotators are. Annotators who are
        ``measured`` on enough gold need no advice other than that of their flags. Where the classes
        are ``names``, not grades, who has no flag is advised on a habit, if there is one.
        """
        found, n = self.reliability, np.zeros(len(marks)) if measured is None else measured.n
        habits = [""] * len(marks) if names is None or not judged else self._habits(names)
        rows = [
            _screened(
                annotators,
                found,
                r,
                own,
                judged,
                unknown=not judged and n[r] < LEAST_TESTED,
                habit=habits[r],
            )
            for r, own in enumerate(marks)
        ]
        return Screening(
            sorted(rows, key=lambda row: (not row.flags, 2.0 if row.high is None else row.high))
        )

    def _habits(self, classes: AnyArray) -> list[str]:
        """Say of each annotator which class they mostly call another, or "" of those who do not.

        It must be clearly more frequent than in the crowd, and than this annotator gives the same
        answer to the other classes.
        """
        mass = self.counts.sum(axis=2)
        crowd = self.counts.sum(axis=0)
        crowd = crowd / np.maximum(crowd.sum(axis=1, keepdims=True), 1e-12)
        elsewhere = self.counts.sum(axis=1)[:, None] - self.counts
        elsewhere /= np.maximum(mass.sum(axis=1)[:, None] - mass, 1e-12)[:, :, None]
        shares = self.counts / np.maximum(mass, 1e-12)[:, :, None]
        shares[mass < LEAST_CONFUSED] = 0.0
        shares[:, np.arange(len(classes)), np.arange(len(classes))] = 0.0
        n_pairs, told = len(classes) * (len(classes) - 1), [""] * len(mass)
        for r, true, label in np.argwhere(shares > 0.5).tolist():
            by_chance = min(max(crowd[true, label], elsewhere[r, true, label]), 1.0)
            n, k = round(mass[r, true]), round(self.counts[r, true, label])
            if binom.sf(k - 1, n, by_chance) < CONFUSED_BY_CHANCE / n_pairs:
                one, other = (repr(classes[c].item()) for c in (true, label))
                told[r] = f"labels most items of the class {one} as {other}"
        return told

    def _one_label(self, r: int, pooled: FloatArray, classes: AnyArray) -> dict[Flag, str]:
        n = int(self.right.n[r])
        if n < LEAST_TESTED:
            return {}
        given = np.rint(self.counts[r].sum(axis=0))
        top = int(given.argmax())
        # How often another annotator would give this label to the same instances.
        crowd = float(self.counts[r].sum(axis=1) @ pooled[:, top]) / n
        share = given[top] / n
        if share < MOSTLY or binom.sf(given[top] - 1, n, crowd) >= SURPRISE:
            return {}
        text = (
            f"{percent(share)} of the answers are {classes[top].item()!r}; others would give this "
            f"label to {percent(crowd)} of these items"
        )
        return {Flag.ONE_LABEL: text}

    def _guessing(self, classes: AnyArray) -> dict[int, dict[Flag, str]]:
        """Flag annotators whose answers hardly depend on the class, by their informedness."""
        found = {
            r: _informedness(self.counts[r], self.squares[r])
            for r in np.flatnonzero(self.right.n >= LEAST_TESTED).tolist()
        }
        known = {r: of for r, of in found.items() if of is not None}
        if not known:
            return {}
        median = float(np.median([of.value for of in known.values()]))
        return {
            r: {Flag.GUESSING: _told_of_guessing(of.upper, median) + self._of_one_class(r, classes)}
            for r, of in known.items()
            if of.upper < min(GUESSING, OF_MEDIAN * median)
        }

    def _of_one_class(self, r: int, classes: AnyArray) -> str:
        """Say why a guessing annotator may still be right often; "" if classes are about even."""
        of_true = self.counts[r].sum(axis=1)
        top = int(of_true.argmax())
        most = float(of_true[top] / of_true.sum())
        if most * len(of_true) < UNEVEN:
            return ""
        return (
            f". Always answering {classes[top].item()!r} would be right in {percent(most)} of "
            "these items, with a skill of 0\u202f%"
        )


def _told_of_guessing(upper: float, median: float) -> str:
    """Say how far an annotator is from guessing, and how far the typical annotator is."""
    return (
        f"has a skill of at most {percent(max(upper, 0.0))}, on a scale from 0\u202f% (guessing) "
        f"to 100\u202f% (never wrong); the typical annotator has {percent(median)}. In this skill, "
        "all classes count equally"
    )


class RightByGold(NamedTuple):
    """Right annotations of each annotator where the class is known; arrays of shape (R,).

    ``low`` and ``high`` are the interval of level `LEVEL` (`share_interval`).
    """

    n: IntArray
    right: IntArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, n: IntArray, right: IntArray) -> RightByGold:
        """Add the intervals."""
        return cls(n, right, *share_interval(right, n, level=LEVEL))

    @property
    def accuracy(self) -> FloatArray:
        """Share of right annotations; NaN for annotators without annotations of known class."""
        shares = np.full(len(self.n), np.nan)
        return np.divide(self.right, self.n, out=shares, where=self.n > 0)

    @property
    def median(self) -> float | None:
        """Median accuracy of annotators with enough annotations of known class, or None."""
        enough = self.n >= LEAST_TESTED
        return float(np.median(self.accuracy[enough])) if enough.any() else None


def right_by_gold(table: AnnotationTable, codes: IntArray) -> RightByGold:
    """Count right annotations by known classes (codes, -1 unknown), for every annotator."""
    rows = np.flatnonzero(codes[table.instance] >= 0)
    who, right = table.annotator[rows], table.label[rows] == codes[table.instance[rows]]
    n = np.bincount(who, minlength=table.n_annotators)
    k = np.bincount(who[right], minlength=table.n_annotators)
    return RightByGold.of(n, k)


class Paces(NamedTuple):
    """Annotations with a time, their median seconds, and the share of fast ones, shape (R,)."""

    n: IntArray
    median: FloatArray
    fast: FloatArray
    too_fast: BoolArray


def paces_of(table: AnnotationTable, seconds: FloatArray) -> Paces:
    """Return how fast every annotator is; NaN without times."""
    limit = HURRIED * float(np.nanmedian(seconds))
    known = np.flatnonzero(~np.isnan(seconds))
    rows = known[np.argsort(table.annotator[known], kind="stable")]
    n = np.bincount(table.annotator[known], minlength=table.n_annotators)
    parts = np.split(seconds[rows], n.cumsum()[:-1])
    median = np.array([np.median(own) if len(own) else np.nan for own in parts])
    fast = np.array([(own < limit).mean() if len(own) else np.nan for own in parts])
    return Paces(n, median, fast, (n >= LEAST_TESTED) & (median < limit))


def _by_accuracy(
    found: AnnotatorReliability, r: int, median: float, chance: float
) -> dict[Flag, str]:
    """Return the flags that follow from the expected accuracy alone."""
    if found.n_annotations[r] < LEAST_ANNOTATIONS:
        return {}
    marks: dict[Flag, str] = {}
    # Near 1 the interval may end slightly below the accuracy itself; then the accuracy counts.
    at_most = max(found.upper[r], found.accuracy[r])
    if at_most < chance:
        marks[Flag.BELOW_CHANCE] = (
            f"right in at most {percent(at_most)} of cases, where guessing would be right in "
            f"{percent(chance)}"
        )
    if round(at_most, 2) < round(median, 2):
        marks[Flag.BELOW_MEDIAN] = (
            f"right in at most {percent(at_most)} of cases, and the typical annotator in "
            f"{percent(median)}"
        )
    return marks


def _by_gold(found: RightByGold, r: int) -> dict[Flag, str]:
    median = found.median
    if median is None or found.n[r] < LEAST_TESTED or found.high[r] >= median:
        return {}
    text = f"right in {found.right[r]:,} of {found.n[r]:,} annotations with gold labels; the "
    return {Flag.BELOW_MEDIAN_ON_GOLD: f"{text}typical annotator is right in {percent(median)}"}


def _screened(
    annotators: AnyArray,
    found: AnnotatorReliability,
    r: int,
    marks: dict[Flag, str],
    judged: bool,
    *,
    unknown: bool,
    habit: str = "",
) -> AnnotatorScreen:
    n = int(found.n_annotations[r])
    flags = tuple(name for name in ADVICE if name in marks and (judged or name not in OF_LABELS))
    calm = TOO_FEW if n < LEAST_ANNOTATIONS else UNJUDGED if unknown else NOTHING
    if habit and calm == NOTHING:
        calm = f"{habit}: {_show_examples(annotators[r].item())}"
    accuracy = low = high = None
    if n and judged:
        accuracy, low, high = (float(x[r]) for x in (found.accuracy, found.lower, found.upper))
    advice = ADVICE[flags[0]] if flags else calm
    evidence = tuple(marks[name] for name in flags)
    annotator = annotators[r].item()
    return AnnotatorScreen(annotator, n, accuracy, low, high, flags, evidence, advice)


def _show_examples(annotator: Any) -> str:
    command = f"manyhands annotators ANNOTATIONS --teach {shlex.quote(str(annotator))}"
    return f"show them examples of both (`{command}` lists some)"


def _times(times: Any, table: AnnotationTable, argument: str) -> FloatArray | None:
    """Return one number per annotation; None if no number is known."""
    if times is None:
        return None
    when = np.asarray(times, dtype=np.float64)
    if when.shape != (table.n_annotations,):
        raise AnnotationError(
            f"{argument} has shape {when.shape}; give one time per annotation, shape "
            f"({table.n_annotations},), with NaN where unknown"
        )
    return None if np.isnan(when).all() else when


def _marks(
    table: AnnotationTable,
    found: Beliefs,
    own: IntArray,
    times: FloatArray | None,
    *,
    is_one_label: bool,
) -> dict[Flag, str]:
    """Test one annotator's answers, in the order in which they were given."""
    if len(own) < LEAST_TESTED:
        return {}
    label, q = table.label[own], found.posterior[table.instance[own]]
    marks: dict[Flag, str] = {}
    pattern = None if is_one_label else _pattern(label, q @ found.pooled)
    given = np.bincount(label)
    top = int(given.argmax())
    if pattern is not None and given[top] >= MOSTLY * len(own):  # The pattern is a single label.
        share = percent(given[top] / len(own))
        name = table.classes[top].item()
        marks[Flag.ONE_LABEL] = f"{share} of the {len(own):,} answers are {name!r}"
    elif pattern is not None:
        marks[Flag.PATTERN] = pattern
    when = None if times is None else times[own]
    known = np.zeros(0) if when is None else q[np.arange(len(q)), label][~np.isnan(when)]
    if len(known) >= 2 * LEAST_TESTED:
        early, late = np.array_split(known, 2)
        error = np.sqrt(early.var(ddof=1) / len(early) + late.var(ddof=1) / len(late))
        if abs(late.mean() - early.mean()) > max(3 * error, 0.05):
            marks[Flag.DRIFT] = (
                f"right in {percent(early.mean())} of the earlier half of their annotations, and "
                f"in {percent(late.mean())} of the later half"
            )
    return marks


def _of_annotators(table: AnnotationTable) -> list[IntArray]:
    """Return the rows of each annotator's annotations, in their order."""
    order = np.argsort(table.annotator, kind="stable")
    return np.split(order, np.cumsum(table.annotations_per_annotator())[:-1])


class Informedness(NamedTuple):
    """Informedness of an annotator, its standard error, and the upper end of a 90 % interval."""

    value: float
    error: float

    @property
    def upper(self) -> float:
        """Upper end of the interval; 5 % of such intervals end below the true value."""
        return self.value + 1.64 * self.error


def informedness(label: IntArray, q: FloatArray) -> Informedness | None:
    r"""Return one annotator's informedness: how much better than guessing, classes equal.

    Let K be the number of classes with at least three expected annotations, P the distribution of
    the answers in each of them, and h the sum of the mean row of P over these classes. Then

    .. math:: J = (\sum_c P_{cc} - h) / (K - h).

    It is 1 for an annotator who is never wrong, and 0 for answers that do not depend on the class,
    whatever the shares of the classes [2]_.

    Parameters
    ----------
    label : integer array of shape (n,)
    q : array of shape (n, n_classes)
        Class probabilities of the annotated instances.

    Returns
    -------
    Informedness, or None with fewer than two such classes
    """
    n_classes = q.shape[1]
    counts = np.array([np.bincount(label, own, n_classes) for own in q.T], dtype=np.float64)
    return _informedness(counts, (q * q).sum(axis=0))


def _informedness(counts: FloatArray, squares: FloatArray) -> Informedness | None:
    """Return informedness from expected counts (C, C) [true, given] and sums of squares (C,)."""
    mass = counts.sum(axis=1)
    seen = np.flatnonzero(mass >= LEAST_EXPECTED)
    if len(seen) < 2:
        return None
    shares = counts[np.ix_(seen, seen)] / mass[seen, None]
    right = np.diag(shares)
    by_chance = float(shares.sum()) / len(seen)
    n = mass[seen] ** 2 / squares[seen]
    rate = (right * n + 0.5) / (n + 1.0)
    scale = len(seen) - by_chance
    error = np.sqrt((rate * (1.0 - rate) / (n + 1.0)).sum()) / scale
    return Informedness(float((right.sum() - by_chance) / scale), float(error))


def _pattern(label: IntArray, crowd: FloatArray) -> str | None:
    """Return the evidence that answers repeat with some period; None if they do not."""
    for lag in range(1, min(LAGS, len(label) // 3) + 1):
        same = int((label[lag:] == label[:-lag]).sum())
        expected = float((crowd[lag:] * crowd[:-lag]).sum(axis=1).mean())
        n = len(label) - lag
        if same / n > 0.8 and binom.sf(same - 1, n, expected) < SURPRISE / LAGS:
            earlier = "the previous answer" if lag == 1 else f"the answer {lag} items earlier"
            return (
                f"{percent(same / n)} of the answers are the same as {earlier}; if others had "
                f"answered these items in this order, it would be {percent(expected)}"
            )
    return None
