"""Comparison of methods on one table, against gold or held-out annotations."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

import narwhals as nw
import numpy as np
from scipy.sparse import issparse
from scipy.stats import binom
from sklearn.base import clone

from manyhands import inference
from manyhands.annotations import AnnotationTable, as_table
from manyhands.annotations.encoding import encode
from manyhands.annotations.frames import Backend
from manyhands.annotations.html import block, html_table
from manyhands.annotations.target import check_annotations
from manyhands.decision.labels import generator, is_scale_of_grades, share_ties
from manyhands.exceptions import AnnotationError, MissingExtraError
from manyhands.inference.base import BaseAggregator
from manyhands.inference.confusions import total_em_counts
from manyhands.inference.inputs import gold_codes
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import make_votes
from manyhands.metrics import accuracy, expected_calibration_error, macro_f1, minority_recall
from manyhands.metrics.grades import score_grades
from manyhands.metrics.intervals import share_interval
from manyhands.typing import FloatArray, IntArray
from manyhands.wording import SCORES

SHOWN = (
    *("accuracy", "accuracy_ties_shared", "within_one", "mae", "qwk", "rps"),
    *("macro_f1", "minority_recall", "ece", "held_out_log_likelihood", "seconds"),
)

HEADINGS = {name: SCORES[name].short for name in SHOWN}
"""Scores of a `MethodScore` in the order of a table's columns, and the columns' headings."""


@dataclass(frozen=True)
class MethodScore:
    """Scores of one method.

    Attributes
    ----------
    method : str
    held_out_log_likelihood : float or None
        Mean log probability (nats) of the held-out annotations; None if none could be held out.
    accuracy, macro_f1, minority_recall, ece : float or None
        Scores against gold; None without gold.
    seconds : float
        CPU seconds of one fit on the whole table.
    error : str or None
        Why the method has no scores, if it failed.
    accuracy_ties_shared : float or None
        Expected accuracy of the most probable class, if each tie between such classes is broken
        evenly at random; None without gold.
    within_one, mae, qwk, rps : float or None
        For ordered classes, against gold: share of labels at most one grade off, mean absolute
        error in grades, Cohen's kappa with quadratic weights, and `ranked_probability_score`.
    low, high : float or None
        95 % interval of the accuracy; None without gold.
    p_value : float or None
        Of the claim that the best method is better than this one, by gold: an exact one-sided sign
        test of the instances whose labels one of the two has nearer to gold, multiplied by the
        number of ordered pairs of methods (twice the pairs, because the best was chosen). None for
        the best method, and without gold.
    """

    method: str
    held_out_log_likelihood: float | None = None
    accuracy: float | None = None
    macro_f1: float | None = None
    minority_recall: float | None = None
    ece: float | None = None
    seconds: float = 0.0
    error: str | None = None
    accuracy_ties_shared: float | None = None
    within_one: float | None = None
    mae: float | None = None
    qwk: float | None = None
    rps: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None


Row = TypeVar("Row", bound=Any)


@dataclass(frozen=True, repr=False)
class BaseScoreTable(Generic[Row]):
    """Rows of scores, best first. A subclass names its columns.

    Iterating and indexing give the rows. When printed, or shown in a notebook, the table omits
    scores that no row has and lists what failed below it.

    Attributes
    ----------
    rows : tuple
        Dataclasses with a name as first field, and ``error``, the reason if there are no scores.
    """

    rows: tuple[Row, ...]

    _row: ClassVar[type]
    _headings: ClassVar[Mapping[str, str]]
    _title: ClassVar[str]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, position: int) -> Row:
        return self.rows[position]

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Return a data frame with one row per method and one column per field of a row.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}

        Raises
        ------
        MissingExtraError
            If the backend is not installed.
        """
        rows = [asdict(row) for row in self.rows]
        names = [field.name for field in fields(self._row)]
        columns = {name: [row[name] for row in rows] for name in names}
        try:
            return nw.from_dict(columns, backend=backend).to_native()
        except ImportError as error:
            raise MissingExtraError(
                f"to_frame(backend={backend!r}) needs {backend}: pip install {backend}"
            ) from error

    def _name(self, row: Row) -> str:
        return str(getattr(row, fields(self._row)[0].name))

    def _figures(self) -> tuple[list[str], list[list[Any]]]:
        """Return the header and the rows, without columns that are empty in all rows."""
        shown = [
            key for key in self._headings if any(getattr(row, key) is not None for row in self.rows)
        ]
        header = [fields(self._row)[0].name, *(self._headings[key] for key in shown)]
        scored = [row for row in self.rows if row.error is None]
        return header, [[self._name(row), *(getattr(row, key) for key in shown)] for row in scored]

    def __repr__(self) -> str:
        header, rows = self._figures()
        lines = [header, *([name, *map(_figure, values)] for name, *values in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join([name.ljust(widths[0]), *map(str.rjust, figures, widths[1:])])
            for name, *figures in lines
        ]
        return "\n".join([*text, *self._errors()])

    def _repr_html_(self) -> str:
        table = html_table("", *self._figures())
        errors = [[error] for error in self._errors()]
        return block(self._title, table, html_table("", [""], errors) if errors else "")

    def _errors(self) -> list[str]:
        return [f"! {self._name(row)}: {row.error}" for row in self.rows if row.error is not None]


class ScoreTable(BaseScoreTable[MethodScore]):
    """Scores of several methods on one annotation table; methods without scores are last."""

    _row = MethodScore
    _headings = HEADINGS
    _title = "Methods compared"


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return "" if value is None else str(value)


SHRINKAGE = 5.0
"""Pseudo-annotations, distributed like the crowd's, added to each annotator's counts."""


def compare_aggregators(
    table: Any,
    methods: Mapping[str, BaseAggregator] | Iterable[BaseAggregator] | None = None,
    *,
    gold: Any = None,
    fraction: float = 0.1,
    random_state: Any = 0,
) -> ScoreTable:
    """Fit methods to one table and score them.

    Parameters
    ----------
    table : AnnotationTable or matrix
    methods : dict of name to aggregator, or aggregators, optional
        Default: every method with its default parameters, except `GoldCorrected`, which needs gold.
        They are cloned. `EBCC` takes minutes on more than 200,000 annotations.
    gold : as in `BaseAggregator.fit`, optional
        Used for scoring only, never for fitting.
    fraction : float in (0, 1), default=0.1
        Share of the annotations to hold out for the likelihood.
    random_state : int, RandomState or None
        Seed of the held-out annotations, which are the same for all methods.

    Returns
    -------
    ScoreTable
        Best first: with gold by accuracy, or for ordered classes by the mean absolute error;
        without gold by held-out log likelihood. Methods that fail on this table come last, with
        their errors.

    Raises
    ------
    AnnotationError
        If ``gold`` names no annotated instance, or ``fraction`` is not within (0, 1).

    Notes
    -----
    If classes tie, ``labels_`` names the first of them, which favours `MajorityVote` if the first
    class is the most common. ``accuracy_ties_shared`` does not depend on the order.

    The held-out likelihood detects gross failures but ranks similar methods poorly. A method that
    takes correlated mistakes of annotators for the true class can have a higher likelihood.

    With a few gold labels, the best method is often best by chance. ``p_value`` allows for this:
    the best was chosen among all, so it counts the comparisons of all pairs (Bonferroni).
    """
    table = check_annotations(as_table(table, argument="table"), argument="table")
    codes = None if gold is None else gold_codes(gold, table)
    parts = hold_out(table, fraction, random_state)
    found = [_score(name, method, table, parts, codes) for name, method in _named(methods).items()]

    def rank(each: tuple[MethodScore, IntArray | None]) -> tuple[bool, float]:
        score, _ = each
        if score.mae is not None:
            return False, score.mae
        value = score.held_out_log_likelihood if codes is None else score.accuracy
        return value is None, -(value or 0.0)

    found.sort(key=rank)
    off = [each for _, each in found if each is not None]
    p_values = [None, *p_values_against_first(off), *[None] * len(found)]
    return ScoreTable(
        tuple(
            replace(score, p_value=p_value)
            for (score, _), p_value in zip(found, p_values, strict=False)
        )
    )


def p_values_against_first(off: list[IntArray]) -> list[float]:
    """Return, for each method but the first, the p-value that the first is nearer to gold.

    Parameters
    ----------
    off : list of arrays of shape (n,)
        How far the labels of each method are from gold: 0 or 1, or a number of grades.

    Returns
    -------
    list of float
        Of exact one-sided sign tests, multiplied by the number of ordered pairs of methods, one of
        which the data have chosen.
    """
    n_pairs = len(off) * (len(off) - 1)
    found = []
    for each in off[1:]:
        better, worse = int((off[0] < each).sum()), int((off[0] > each).sum())
        found.append(min(1.0, n_pairs * float(binom.sf(better - 1, better + worse, 0.5))))
    return found


def _named(
    methods: Mapping[str, BaseAggregator] | Iterable[BaseAggregator] | None,
) -> dict[str, BaseAggregator]:
    if methods is None:
        known = {name: getattr(inference, name) for name in dir(inference)}
        chosen = {n: cls for n, cls in known.items() if issubclass(cls, BaseAggregator)}
        return {name: cls() for name, cls in chosen.items() if not cls.traits.needs_gold}
    if isinstance(methods, Mapping):
        return dict(methods)
    return {str(method): method for method in methods}


def _score(
    name: str,
    method: BaseAggregator,
    table: AnnotationTable,
    parts: tuple[AnnotationTable, AnnotationTable] | None,
    codes: Any,
) -> tuple[MethodScore, IntArray | None]:
    """Score a method; return also how far each of its labels is from gold, if there is gold."""
    started = time.process_time()
    try:
        fitted = clone(method).fit(table)
        seconds = time.process_time() - started
        held_out = None if parts is None else held_out_log_likelihood(method, *parts)
    except AnnotationError as error:
        return MethodScore(name, error=str(error)), None
    except MemoryError:
        return MethodScore(name, error="not enough memory for this table"), None
    if codes is None:
        return MethodScore(name, held_out, seconds=seconds), None
    # Only annotated instances can show how good a method is.
    known = np.flatnonzero((codes >= 0) & (table.annotations_per_instance() > 0))
    if not len(known):
        raise AnnotationError(
            "gold names no instance that has annotations, so nothing can be scored; give gold for "
            "annotated instances"
        )
    labels, _ = encode(
        fitted.labels_[known], table.classes, argument="labels_", vocabulary_name="classes"
    )
    figures = against_gold(table, codes[known], labels, fitted.posterior_[known])
    shares = share_ties(fitted.posterior_[known])[np.arange(len(known)), codes[known]]
    figures["accuracy_ties_shared"] = float(shares.mean())
    off = np.abs(labels - codes[known])
    ends = share_interval((off == 0).sum(), len(known), level=0.95)
    figures["low"], figures["high"] = map(float, ends)
    score = replace(MethodScore(name, held_out, seconds=seconds), **figures)
    return score, off if is_scale_of_grades(table) else np.minimum(off, 1)


def against_gold(
    table: Any, gold: IntArray, labels: IntArray, posterior: FloatArray
) -> dict[str, Any]:
    """Score labels and probabilities of n instances against gold.

    Parameters
    ----------
    table : AnnotationTable or AnnotationStore
        Provides the classes and whether they are ordered.
    gold, labels : integer arrays of shape (n,)
        Codes of classes.
    posterior : array or CSR array of shape (n, n_classes)

    Returns
    -------
    dict
        ``accuracy``, ``macro_f1``, ``minority_recall`` (None if gold has only one class), ``ece``
        (None for a sparse posterior); for ordered classes also those of `GradeScores`.
    """
    classes = table.classes
    y, named = classes[gold], classes[labels]
    graded: dict[str, Any] = {}
    if is_scale_of_grades(table):
        shares = None if issparse(posterior) else posterior
        graded = score_grades(gold, labels, shares)._asdict()
    return {
        **graded,
        "accuracy": accuracy(y, named),
        "macro_f1": macro_f1(y, named),
        "minority_recall": minority_recall(y, named) if len(np.unique(y)) > 1 else None,
        "ece": None
        if issparse(posterior)
        else expected_calibration_error(posterior, y, classes=classes),
    }


def hold_out(
    table: AnnotationTable, fraction: float, random_state: Any
) -> tuple[AnnotationTable, AnnotationTable] | None:
    """Split off annotations of instances with several annotators, at most one per instance.

    Only observed annotations with a positive weight are split off. If an annotator annotated an
    instance repeatedly, the remaining annotations may reveal the one that was split off.

    Returns
    -------
    (kept, held_out) : AnnotationTables, or None
        None if no instance has two annotators.

    Raises
    ------
    AnnotationError
        If ``fraction`` is not within (0, 1).
    """
    if not 0 < fraction < 1:
        raise AnnotationError(f"fraction={fraction!r} must lie between 0 and 1, such as 0.1")
    rng = generator(random_state)
    observed = True if table.sources is None else table.sources == 0
    usable = np.flatnonzero(observed & (table.weight > 0))
    pairs = np.unique(np.column_stack([table.instance[usable], table.annotator[usable]]), axis=0)
    n_annotators = np.bincount(pairs[:, 0], minlength=table.n_instances)
    order = rng.permutation(usable)
    # The first annotation of each instance in random order.
    _, first = np.unique(table.instance[order], return_index=True)
    candidates = order[first][n_annotators[table.instance[order[first]]] > 1]
    if not len(candidates):
        return None
    n = min(len(candidates), max(1, round(fraction * table.n_annotations)))
    out = np.zeros(table.n_annotations, dtype=bool)
    out[rng.choice(candidates, n, replace=False)] = True
    return table.take(~out), table.take(out)


def held_out_log_likelihood(
    method: BaseAggregator, kept: AnnotationTable, held_out: AnnotationTable
) -> float:
    """Return the mean log probability (nats) of annotations that the method did not see.

    The method infers the classes from ``kept``. For every method the annotators' confusions are
    counted against its posterior in the same way (with five pseudo-annotations distributed like the
    crowd's), so only the inferred classes are compared.
    """
    posterior = clone(method).fit(kept).posterior_
    counts = total_em_counts(make_votes(kept).shards(), posterior).confusion
    pooled = normalise_rows(counts.sum(axis=0) + 1.0 / kept.n_classes)
    confusion = normalise_rows(counts + SHRINKAGE * pooled)
    by_class: FloatArray = confusion[held_out.annotator, :, held_out.label]
    probability = (posterior[held_out.instance] * by_class).sum(axis=1)
    return float(np.average(floored_log(probability), weights=held_out.weight))


__all__ = [
    "MethodScore",
    "ScoreTable",
    "compare_aggregators",
    "held_out_log_likelihood",
    "hold_out",
]
