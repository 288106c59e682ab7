r"""Comparing judges with people: agreement with people, relative to that among people.

People who label the same items disagree, so a judge that is as good as one of them disagrees with
them, too. The yardstick is therefore how well people agree with one another. Let a be the mean
agreement of a judge with each of an item's people, and b that of pairs of these people. With both
corrected for chance,

.. math:: r = \frac{(a - c_a) / (1 - c_a)}{(b - c_b) / (1 - c_b)},

which is 1 for a judge that agrees with people as well as a person does, and 0 for one that agrees
no better than answers to *different* items of the same question do. Chance agreement is computed
within questions, so that merely recognising the question earns nothing. If each annotator knows a
share s of the items and guesses the others, r is the ratio of the shares.

Fieller's interval [1]_ of the ratio rests on the covariance of the two coefficients, by the
jackknife that leaves out clusters of items [2]_.

References
----------
.. [1] E. C. Fieller. Some problems in interval estimation. Journal of the Royal Statistical Society
   B 16(2), 1954.
.. [2] B. Efron and R. J. Tibshirani. An Introduction to the Bootstrap. Chapman & Hall, 1993,
   chapter 11 (the jackknife).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.stats import t as student

from manyhands.agreement.weighted import Sparse, check_graded, sparse
from manyhands.annotations import AnnotationTable
from manyhands.annotations.class_order import numbers_of
from manyhands.annotations.columns import require_annotators
from manyhands.annotations.encoding import as_values, missing_mask, resolve
from manyhands.annotations.frames import Backend
from manyhands.annotations.groups import ALONE, is_person
from manyhands.annotations.target import is_sharded, require_table
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning, warn_caller
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

__all__ = [
    "CAN",
    "CANNOT",
    "OPEN",
    "ClassUse",
    "InQuestion",
    "Judge",
    "JudgeComparison",
    "compare_judges",
]

Verdict = Literal["can stand in", "cannot stand in", "open"]

CAN: Verdict = "can stand in"
CANNOT: Verdict = "cannot stand in"
OPEN: Verdict = "open"

N_GROUPS = 200
"""Number of groups of clusters that the jackknife leaves out in turn."""

LEAST_SHARED = 30
"""Items that a person must share with others before the person may be left out."""

FEW_ITEMS, FEW_PER_QUESTION = 50, 10
"""Number of items below which a note says that they are few, and a question gets no verdict."""

LEAST_OF_JUDGE = 10
"""Number of items that a judge must share with people before it gets a verdict."""

LEAST_OF_VALUE = 10
"""Number of items that a value of ``by`` must have before the use of classes is compared."""


class ClassUse(NamedTuple):
    """How often a judge gives a class, compared with people on the same items.

    Attributes
    ----------
    label : object
        The class.
    judge, people : float
        Share of items to which the judge gives the class, and mean share of people who do.
    difference, low, high : float
        ``judge - people`` and its interval, which is simultaneous over all classes and values.
    by : object or None
        Value of the column ``by`` of the items compared; None: all items.
    n_items : int
    """

    label: Any
    judge: float
    people: float
    difference: float
    low: float
    high: float
    by: Any
    n_items: int

    @property
    def is_certain(self) -> bool:
        """Whether the interval lies on one side of 0."""
        return bool(self.low > 0 or self.high < 0)


class InQuestion(NamedTuple):
    """A judge compared with people on the items of one question; fields as those of `Judge`.

    Attributes
    ----------
    question : object
    n_items : int
    r, low, high : float
    verdict : {"can stand in", "cannot stand in", "open"}
    bias, bias_low, bias_high : float
    """

    question: Any
    n_items: int
    r: float
    low: float
    high: float
    verdict: Verdict
    bias: float
    bias_low: float
    bias_high: float


@dataclass(frozen=True)
class Judge:
    """A judge compared with people.

    Attributes
    ----------
    name : object
        Id of the annotator.
    r : float
        Agreement with people beyond chance, divided by that among people; NaN if people agree no
        better than by chance.
    low, high : float
        Interval of ``r``; unbounded (infinite) unless people surely agree better than by chance.
    verdict : {"can stand in", "cannot stand in", "open"}
        "can stand in" if the whole interval lies above ``1 - margin``, "cannot stand in" if it lies
        below; else, and for a judge with fewer than 10 items, "open".
    kappa : float
        Agreement with people beyond chance.
    people_kappa : float
        Agreement among people beyond chance, on the same items.
    n_items : int
        Number of items labelled by this judge and by at least two people.
    may_be_best : bool
        Whether no other judge with at least 10 items is surely better.
    more_items : float
        Rough factor by which the number of items would have to grow for a verdict; 1 if there is a
        verdict, NaN if unknown.
    bias, bias_low, bias_high : float
        Mean of the judge's grades minus the mean of people's on the same items, in the numbers of
        the classes, and its interval; NaN where labels are names.
    classes : tuple of ClassUse
        How often the judge gives each class, compared with people; none on an interval scale.
    questions : tuple of InQuestion
        The comparison within each question, if there are several, on those with 50 items or more.
    """

    name: Any
    r: float
    low: float
    high: float
    verdict: Verdict
    kappa: float
    people_kappa: float
    n_items: int
    may_be_best: bool
    more_items: float
    bias: float
    bias_low: float
    bias_high: float
    classes: tuple[ClassUse, ...]
    questions: tuple[InQuestion, ...]


class Person(NamedTuple):
    """How a person agrees with the others.

    Attributes
    ----------
    name : object
    kappa, high : float
        Agreement with the other people beyond chance, and the upper end of its interval.
    n_items : int
        Items shared with others.
    """

    name: Any
    kappa: float
    high: float
    n_items: int


@dataclass(frozen=True)
class JudgeComparison:
    """Result of `compare_judges`.

    Attributes
    ----------
    judges : tuple of Judge
        The best first; those with fewer than 10 items last.
    people : array
        Ids of the people with whom judges are compared.
    left_out : tuple of Person
        People who were left out because they agree too little with the others.
    kappa, low, high : float
        Agreement among people beyond chance, and its interval.
    n_items : int
        Items with labels of two or more people.
    n_questions, n_clusters : int
        Numbers of questions, and of independent clusters of items.
    notes : tuple of str
        What to keep in mind about the result.
    margin, level : float
        As given.
    """

    judges: tuple[Judge, ...]
    people: AnyArray
    left_out: tuple[Person, ...]
    kappa: float
    low: float
    high: float
    n_items: int
    n_questions: int
    n_clusters: int
    notes: tuple[str, ...]
    margin: float
    level: float

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the judges as columns, without their use of classes and single questions."""
        names = [each.name for each in fields(Judge) if each.name not in ("classes", "questions")]
        return {name: [getattr(judge, name) for judge in self.judges] for name in names}

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Return a data frame of `to_columns`; backend "pandas", "polars" or "pyarrow"."""
        import narwhals as nw

        return nw.from_dict(self.to_columns(), backend=backend).to_native()

    def __str__(self) -> str:
        judges = (
            f"{judge.name}: {judge.r:.2f} of a person [{judge.low:.2f}, {judge.high:.2f}], "
            f"{judge.verdict}" + (" *" if judge.may_be_best else "")
            for judge in self.judges
        )
        return "\n".join([*judges, "(* may be the best)", *self.notes])


def compare_judges(
    table: Any,
    people: Any = None,
    *,
    question: Any = None,
    cluster: Any = None,
    values: Any = None,
    by: Any = None,
    margin: float = 0.2,
    level: float = 0.95,
) -> JudgeComparison:
    """Compare judges, such as language models, with people on the items that people labelled.

    Each judge gets r, its agreement with people beyond chance divided by the agreement of people
    with one another. It also gets a verdict: it can stand in for a person if r is surely above
    ``1 - margin``, and cannot if r is surely below.

    Parameters
    ----------
    table : AnnotationTable or AnnotationStore
        Labels of people and judges; a store is read into memory. Only observed annotations count,
        each once whatever its weight; abstentions and skips are not labels.
    people : sequence of annotator ids, or boolean array of shape (n_annotators,), optional
        Annotators who are people; all others are judges. Default: the annotators who are in no
        family of the table (`AnnotationTable.with_groups`).
    question : array-like of shape (n_instances,), optional
        The question that each instance answers, in the order of ``table.instances``. Chance
        agreement is computed within questions; otherwise merely recognising the question would
        count as agreement.
    cluster : array-like of shape (n_instances,), optional
        Groups of instances that are not independent, such as those of one document. Default: all
        instances are independent.
    values : sequence of n_classes numbers, optional
        The number that each class stands for: labels agree by 1 - (difference / range)². Default:
        on an ordinal or interval scale, the numbers of the classes if they are numbers, else their
        positions; on a nominal scale labels are equal or not. So whole numbers agree alike on an
        ordinal and on an interval scale.
    by : array-like of shape (n_instances,), optional
        A property of instances, such as the author of a text or its length in bins, for each value
        of which the use of classes is also compared.
    margin : float in (0, 1), default=0.2
        A judge can stand in for a person if r is surely above ``1 - margin``.
    level : float in (0, 1), default=0.95
        Confidence level of the intervals.

    Returns
    -------
    JudgeComparison
        ``.judges``, the best first, with ``name``, ``r``, ``low``, ``high`` and ``verdict`` each,
        ``bias``, by how much they grade higher than people, and ``questions``, the same within each
        question; ``.people``, ``.left_out`` and ``.notes``.

    Raises
    ------
    AnnotationError
        If there are no people or no judges, no item has labels of two people, every question has
        one item only, an array has another length, or ``values`` are not one number per class.

    Warns
    -----
    UserWarning
        If a person is left out, because on 30 or more shared items they surely agree with the
        others less than half as well as the median person. Such people would make judges look
        better.
    NotIdentifiableWarning
        If people do not surely agree better than by chance, so that judges cannot be compared.

    Notes
    -----
    With mean agreements a_i of judge and people and b_i among people of item i, and class shares p
    and q of judge and people summed to P and Q over the n_s items of question s, chance is the
    agreement on different items of the same question, c_s = (P' W Q - sum a_i) / (n_s (n_s - 1)),
    averaged over items. The squared errors are those of the jackknife that leaves out one cluster
    at a time, or one of 200 groups of clusters; t has one degree of freedom less than there are
    groups. A judge may be the best unless another is better with t(1 - .05 / (M - 1)) standard
    errors of the difference.

    **Do not use it** on items that a review queue chose, with people who saw the judge's label, for
    free text, or for classes that hardly any item has. **People are the yardstick**: mistakes that
    they share count as truth, and a judge that avoids them looks worse than it is.

    Coverage was measured: docs/results/judges.md. Cost grows with the annotations.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import AnnotationTable
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(0, 2, 400)
    >>> def skilled(share):
    ...     return np.where(rng.random(400) < share, truth, rng.integers(0, 2, 400))
    >>> A = np.stack([skilled(s) for s in (0.8, 0.8, 0.8, 0.9, 0.2)], axis=1)
    >>> found = compare_judges(AnnotationTable.from_matrix(A), people=[0, 1, 2])
    >>> [(judge.name, judge.verdict) for judge in found.judges]
    [(3, 'can stand in'), (4, 'cannot stand in')]
    """
    if not 0 < level < 1:
        raise AnnotationError(f"level={level!r} must lie between 0 and 1, such as 0.95")
    if not 0 < margin < 1:
        raise AnnotationError(f"margin={margin!r} must lie between 0 and 1, such as 0.2")
    require_table(table)
    whole: AnnotationTable = table[:] if is_sharded(table) else table
    require_annotators(whole, "comparing judges with people")
    observed = whole.observed
    is_human = _people_of(observed, people)
    given = observed.annotations_per_annotator() > 0
    if not (given & ~is_human).any():
        if not is_human.all():
            idle = observed.annotators[~is_human][0].item()
            raise AnnotationError(
                f"{idle!r} is a judge without labels (abstentions do not count), and all others "
                "are people, so there is no judge to compare; give its labels"
            )
        raise AnnotationError(
            "every annotator counts as a person, so there is no judge to compare; name the people "
            "in people=, or declare the judges as a family (groups=)"
        )
    columns = {
        name: _column(values_, observed, name)
        for name, values_ in (("question", question), ("cluster", cluster), ("by", by))
    }
    labels = _Labels(observed, values_of_classes(observed, values))
    left_out: tuple[Person, ...] = ()
    humans = np.flatnonzero(is_human & given)
    if len(humans) > 2:
        everybody = _Comparison(labels, humans, **columns)
        left_out = everybody.poor_people(level)
        gone = {str(person.name) for person in left_out}
        humans = np.array(
            [r for r in humans if str(observed.annotators[r].item()) not in gone], dtype=np.int64
        )
    compared = _Comparison(labels, humans, **columns)
    found = compared.result(np.flatnonzero(given & ~is_human), left_out, margin, level)
    if left_out:
        warn_caller(_of_left_out(left_out))
    if not found.low > 0:
        warn_caller(NO_YARDSTICK, NotIdentifiableWarning)
    return found


# -- arguments ------------------------------------------------------------------------------------


def _people_of(table: AnnotationTable, people: Any) -> BoolArray:
    """Mask the annotators who are people, shape (R,)."""
    given = table.annotations_per_annotator() > 0
    if people is None:
        if table.groups is None or (table.groups == ALONE).all():
            raise AnnotationError(
                "it is unknown who is a person; name the people in people=, or declare the judges "
                "as a family (groups=)"
            )
        found = (table.groups == ALONE) | np.array([is_person(name) for name in table.groups])
        why = "every annotator is in a family"
    else:
        one = isinstance(people, str)
        found = np.zeros(table.n_annotators, dtype=bool)
        found[
            resolve(
                [people] if one else people,
                table.annotators,
                argument="people",
                vocabulary_name="the annotators",
            )
        ] = True
        why = "none of those named in people= labelled an item"
    if not (found & given).any():
        raise AnnotationError(
            f"{why}, so there are no people to compare with. Name the people in people=; if nobody "
            "labelled a part of the items by hand, have people label some first"
        )
    if (found & given).sum() == 1:
        who = table.annotators[found & given][0].item()
        raise AnnotationError(
            f"{who!r} is the only person, so it is unknown how well people agree. Have a second "
            "person label 100 to 200 of the same items, drawn at random"
        )
    return np.asarray(found)


def _column(values: Any, table: AnnotationTable, argument: str) -> AnyArray | None:
    """Return one value per instance, or None."""
    if values is None:
        return None
    found = as_values(values)
    if found.shape != (table.n_instances,):
        raise AnnotationError(
            f"{argument} has shape {found.shape}; give one value per instance, in the order of "
            f"table.instances, shape ({table.n_instances},)"
        )
    missing = missing_mask(found)
    if missing.any():
        who = table.instances[missing][0].item()
        raise AnnotationError(
            f"{argument} is missing for {int(missing.sum()):,} instances, such as {who!r}; give "
            "each of them a value"
        )
    return found


def values_of_classes(table: AnnotationTable, values: Any = None) -> FloatArray | None:
    """Return the number that each class stands for, shape (C,); None on a nominal scale.

    Parameters
    ----------
    table : AnnotationTable
    values : array-like of shape (C,), optional
        See `compare_judges`.

    Raises
    ------
    AnnotationError
        If ``values`` are not one finite number per class or are all equal, or the order of the
        grades is unknown.
    """
    if values is None:
        if table.scale == "nominal":
            return None
        check_graded(table, "agreement by the distance of labels")
        numbers = numbers_of(table.classes)
        found = np.arange(table.n_classes, dtype=np.float64) if numbers is None else numbers
    else:
        found = np.asarray(values, dtype=np.float64)
        if found.shape != (table.n_classes,) or not np.isfinite(found).all():
            raise AnnotationError(
                f"values has shape {found.shape}; give one finite number per class, in the order "
                f"{', '.join(map(str, table.classes.tolist()))}"
            )
    if np.ptp(found) == 0:
        raise AnnotationError(
            f"values={found.tolist()} are all equal, so that no labels would disagree; give each "
            "class its own number"
        )
    return found


# -- labels ---------------------------------------------------------------------------------------


class _Labels:
    """Labels as features whose products are agreements: x' W y = left(x) . right(y).

    W is the identity on a nominal scale, and 1 - (x - y)² / range² of numbers.
    """

    def __init__(self, table: AnnotationTable, values: FloatArray | None) -> None:
        self.table, self.values = table, values
        n, r = table.n_instances, max(table.n_annotators, 1)
        # If an annotator labelled an instance repeatedly, each of the labels counts by its share.
        cells, pair, times = np.unique(
            table.instance.astype(np.int64) * r + table.annotator,
            return_inverse=True,
            return_counts=True,
        )
        self.item, self.who = cells // r, cells % r
        self.share = sparse(1.0 / times[pair], pair, table.label, (len(cells), table.n_classes))
        self.n = n
        self.maps: tuple[FloatArray, FloatArray] | None = None
        if values is not None:
            x = (values - values.min()) / np.ptp(values)
            ones = np.ones_like(x)
            self.maps = (
                np.stack([ones, x, x**2], axis=1),
                np.stack([1 - x**2, 2 * x, -ones], axis=1),
            )

    def left(self, shares: Sparse) -> Sparse:
        """Return features of shares of classes, shape (k, D), to multiply with `right`."""
        return shares if self.maps is None else _as_sparse(shares @ self.maps[0])

    def right(self, shares: Sparse) -> Sparse:
        """Return the features of the others' shares, shape (k, D), to multiply with `left`."""
        return shares if self.maps is None else _as_sparse(shares @ self.maps[1])

    def agreement(self, one: Sparse, other: Sparse) -> FloatArray:
        """Return the agreement of the shares of each row, shape (k,)."""
        return _row_sums(self.left(one).multiply(self.right(other)))


def _as_sparse(dense: FloatArray) -> Sparse:
    from scipy.sparse import csr_matrix

    return csr_matrix(dense)


def _row_sums(matrix: Sparse) -> FloatArray:
    return np.asarray(matrix.sum(axis=1), dtype=np.float64).ravel()


def _scaled(matrix: Sparse, factor: FloatArray) -> Sparse:
    from scipy.sparse import diags

    return (diags(factor) @ matrix).tocsr()


class Coefficient(NamedTuple):
    """Agreement beyond chance: its value, and the value without each group of clusters.

    ``is_there`` marks groups that have items; groups without items do not change the value.
    """

    value: float
    without: FloatArray
    is_there: BoolArray

    @property
    def degrees(self) -> int:
        """Degrees of freedom."""
        return int(self.is_there.sum()) - 1

    def variance(self, other: Coefficient | None = None) -> float:
        """Return the jackknife's variance, or the covariance with another coefficient."""
        other = self if other is None else other
        both = self.is_there | other.is_there
        x, y = self.without[both], other.without[both]
        n = len(x)
        return float((n - 1) / n * ((x - x.mean()) * (y - y.mean())).sum()) if n > 1 else np.nan

    def reach(self, level: float) -> float:
        """Return half the width of the interval."""
        if self.degrees < 1:
            return np.nan
        return float(student.ppf((1 + level) / 2, self.degrees) * np.sqrt(self.variance()))


class _Comparison:
    """Comparison of judges with people, on the items that at least two people labelled."""

    def __init__(
        self,
        labels: _Labels,
        people: IntArray,
        *,
        question: AnyArray | None,
        cluster: AnyArray | None,
        by: AnyArray | None,
    ) -> None:
        self.labels, self.people = labels, people
        self.has_questions = question is not None
        table = labels.table
        n = table.n_instances
        is_human = np.zeros(table.n_annotators, dtype=bool)
        is_human[people] = True
        rows = np.flatnonzero(is_human[labels.who])
        count = np.bincount(labels.item[rows], minlength=n)
        kept = count > 1
        self.n_single = int((count == 1).sum())
        if not kept.any():
            raise AnnotationError(
                "no item has labels of two people, so it is unknown how well people agree. Have a "
                "second person label 100 to 200 of the same items, drawn at random"
            )
        codes = np.zeros(n, dtype=np.int64)
        if question is not None:
            codes = np.unique(question, return_inverse=True)[1]
            several = np.bincount(codes[kept]) > 1
            alone = kept & ~several[codes * (codes < len(several))]
            self.n_alone = int(alone.sum())
            kept &= ~alone
            if not kept.any():
                raise AnnotationError(
                    "question has a different value for every item that two people labelled, but "
                    "chance agreement is computed from different items of the same question; leave "
                    "question= out, or name the column with the question that was asked"
                )
        else:
            self.n_alone = 0
            if kept.sum() < 2:
                raise AnnotationError(
                    "only one item has labels of two people; have two people label 100 to 200 "
                    "items, drawn at random"
                )
        self.items = np.flatnonzero(kept)
        place = np.full(n, -1)
        place[self.items] = np.arange(len(self.items))
        rows = rows[place[labels.item[rows]] >= 0]
        self.row, self.row_who = place[labels.item[rows]], labels.who[rows]
        self.place, self.mine = place, labels.share[rows]
        self.count = count[self.items].astype(np.float64)
        first, code = np.unique(codes[self.items], return_index=True, return_inverse=True)[1:]
        order = np.argsort(first)  # As the questions first appear.
        first, self.question = first[order], np.argsort(order)[code]
        self.n_questions = len(first)
        self.asked = None if question is None else question[self.items[first]]
        clusters = np.arange(n) if cluster is None else np.unique(cluster, return_inverse=True)[1]
        found, where = np.unique(clusters[self.items], return_inverse=True)
        self.n_clusters = len(found)
        group = np.arange(len(found))
        if len(found) > N_GROUPS:
            group = np.random.default_rng(0).permutation(group % N_GROUPS)
        self.group = group[where]
        self.by = None if by is None else by[self.items]
        k = len(self.items)
        adds = sparse(None, self.row, np.arange(len(rows)), (k, len(rows)))
        self.sums = (adds @ self.mine).tocsr()
        self.share = _scaled(self.sums, 1.0 / self.count)
        self.selves = labels.agreement(self.mine, self.mine)
        pairs = labels.agreement(self.sums, self.sums) - np.bincount(self.row, self.selves, k)
        self.among = pairs / (self.count * (self.count - 1))

    # -- agreement beyond chance --

    def coefficient(
        self, rows: IntArray, a: FloatArray, one: Sparse, other: Sparse, same: FloatArray
    ) -> Coefficient:
        """Return agreement beyond chance over some rows of ``items``.

        Parameters
        ----------
        rows : integer array of shape (k,)
        a : array of shape (k,)
            Agreement on each of them.
        one, other : sparse matrices of shape (k, C)
            Shares of classes; their agreement on different items is the chance agreement.
        same : array of shape (k,)
            Agreement of these shares on the same item.
        """
        question = self.question[rows]
        enough = np.bincount(question, minlength=self.n_questions) > 1
        kept = enough[question]
        if kept.sum() < 2:
            n_groups = int(self.group.max()) + 1
            return Coefficient(np.nan, np.full(n_groups, np.nan), np.zeros(n_groups, dtype=bool))
        if not kept.all():
            rows, a, one, other, same = rows[kept], a[kept], one[kept], other[kept], same[kept]
            question = question[kept]
        s = np.unique(question, return_inverse=True)[1]
        n_s, n_g = int(s.max()) + 1, int(self.group.max()) + 1
        cell = self.group[rows] * n_s + s
        add = sparse(None, cell, np.arange(len(rows)), (n_g * n_s, len(rows)))
        left = (add @ self.labels.left(one)).tocsr()
        right = (add @ self.labels.right(other)).tocsr()
        by_question = sparse(
            None, np.arange(n_g * n_s) % n_s, np.arange(n_g * n_s), (n_s, n_g * n_s)
        )
        all_left = np.asarray((by_question @ left).todense())
        all_right = np.asarray((by_question @ right).todense())
        own = _row_sums(left.multiply(right))
        # Without a group g, the product is (P - P_g)' W (Q - Q_g); it follows from four others.
        crossed = _products(left, all_right) + _products(right, all_left)
        products = ((all_left * all_right).sum(axis=1) + (own - crossed).reshape(n_g, n_s)).T
        n, agree, self_agree = (
            np.bincount(cell, each, n_g * n_s).reshape(n_g, n_s).T
            for each in (np.ones(len(rows)), a, same)
        )

        def beyond_chance(
            products: FloatArray, n: FloatArray, agree: FloatArray, same: FloatArray
        ) -> FloatArray:
            pairs = n * (n - 1)
            chance = np.divide(products - same, pairs, out=np.zeros_like(pairs), where=pairs > 0)
            n = np.where(pairs > 0, n, 0.0)
            total = n.sum(axis=0)
            c = (n * chance).sum(axis=0) / total
            observed = np.where(pairs > 0, agree, 0.0).sum(axis=0) / total
            return (observed - c) / (1 - c)

        full = [each.sum(axis=1, keepdims=True) for each in (n, agree, self_agree)]
        whole_products = (all_left * all_right).sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = float(beyond_chance(whole_products, *full)[0])
            rest = [each - part for each, part in zip(full, (n, agree, self_agree), strict=True)]
            without = beyond_chance(products, *rest)
        is_there = n.sum(axis=0) > 0
        without = np.where(is_there, without, value)
        return Coefficient(value, without, is_there)

    def of_judge(
        self, judge: int, question: int | None = None
    ) -> tuple[Coefficient, Coefficient, IntArray, Sparse]:
        """Return the coefficients of a judge and of people, and the rows that they rest on."""
        labels = self.labels
        mine = np.flatnonzero(labels.who == judge)
        mine = mine[self.place[labels.item[mine]] >= 0]
        if question is not None:
            mine = mine[self.question[self.place[labels.item[mine]]] == question]
        rows, share = self.place[labels.item[mine]], labels.share[mine]
        if not len(rows):
            n_g = int(self.group.max()) + 1
            nothing = Coefficient(np.nan, np.full(n_g, np.nan), np.zeros(n_g, dtype=bool))
            return nothing, nothing, rows, share
        theirs = self.share[rows]
        a = labels.agreement(share, theirs)
        return self.coefficient(rows, a, share, theirs, a), self.of_people(rows), rows, share

    def of_people(self, rows: IntArray) -> Coefficient:
        """Return the coefficient of people on some of the items."""
        if len(rows) == len(self.items):
            return self._of_all_people
        return self._people_at(rows)

    @cached_property
    def _of_all_people(self) -> Coefficient:
        return self._people_at(np.arange(len(self.items)))

    def _people_at(self, rows: IntArray) -> Coefficient:
        share = self.share[rows]
        same = self.labels.agreement(share, share)
        return self.coefficient(rows, self.among[rows], share, share, same)

    def poor_people(self, level: float) -> tuple[Person, ...]:
        """Return people who surely agree with the others less than half as well as the median."""
        shared = np.bincount(self.row_who, minlength=self.labels.table.n_annotators)
        judged = []
        order = np.argsort(self.row_who, kind="stable")
        start = np.searchsorted(self.row_who[order], self.people)
        stop = np.searchsorted(self.row_who[order], self.people, side="right")
        for who, first, last in zip(self.people, start, stop, strict=True):
            if shared[who] < LEAST_SHARED:
                continue
            mine = order[first:last]
            rows, share = self.row[mine], self.mine[mine]
            others = _scaled(self.sums[rows] - share, 1.0 / (self.count[rows] - 1))
            a = self.labels.agreement(share, others)
            found = self.coefficient(rows, a, share, others, a)
            high = found.value + found.reach(level)
            name = self.labels.table.annotators[who].item()
            judged.append(Person(name, found.value, high, len(rows)))
        known = [person for person in judged if np.isfinite(person.kappa)]
        if not known:
            return ()
        median = float(np.median([person.kappa for person in known]))
        return tuple(person for person in known if person.high < median / 2)

    # -- verdicts --

    def result(
        self, judges: IntArray, left_out: tuple[Person, ...], margin: float, level: float
    ) -> JudgeComparison:
        """Compare the judges with people."""
        found = {int(judge): self.of_judge(int(judge)) for judge in judges}
        best = _may_be_best(
            {judge: one[0] for judge, one in found.items() if len(one[2]) >= LEAST_OF_JUDGE}, level
        )
        names = self.labels.table.annotators
        made = []
        for judge, (mine, people, rows, share) in found.items():
            r, low, high, verdict = _verdict(mine, people, margin, level)
            more = 1.0
            if len(rows) < LEAST_OF_JUDGE:
                verdict, more = OPEN, np.nan
            elif verdict == OPEN:
                half, away = (high - low) / 2, abs(r - (1 - margin))
                more = (half / away) ** 2 if np.isfinite(half) and away > 0 else np.nan
            made.append(
                Judge(
                    names[judge].item(),
                    r,
                    low,
                    high,
                    verdict,
                    mine.value,
                    people.value,
                    len(rows),
                    judge in best,
                    float(more),
                    *self._bias(rows, share, level),
                    tuple(self._use_of_classes(rows, share, level)),
                    tuple(self._in_questions(judge, rows, margin, level)),
                )
            )
        made.sort(key=_place)
        people = self._of_all_people
        reach = people.reach(level)
        return JudgeComparison(
            tuple(made),
            names[self.people],
            left_out,
            people.value,
            people.value - reach,
            people.value + reach,
            len(self.items),
            self.n_questions,
            self.n_clusters,
            tuple(self._notes(made, left_out, people.value - reach > 0)),
            margin,
            level,
        )

    def _in_questions(
        self, judge: int, rows: IntArray, margin: float, level: float
    ) -> Iterator[InQuestion]:
        """Compare a judge with people within each question that has enough items."""
        if self.asked is None or self.n_questions < 2:
            return
        n = np.bincount(self.question[rows], minlength=self.n_questions)
        for k in np.flatnonzero(n >= FEW_ITEMS):
            mine, people, at, share = self.of_judge(judge, int(k))
            yield InQuestion(
                self.asked[k : k + 1].tolist()[0],
                len(at),
                *_verdict(mine, people, margin, level),
                *self._bias(at, share, level),
            )

    def _bias(self, rows: IntArray, share: Sparse, level: float) -> tuple[float, float, float]:
        """Return by how much a judge grades higher than people, and the interval of this."""
        values = self.labels.values
        if values is None or not len(rows):
            return np.nan, np.nan, np.nan
        higher = np.asarray((share - self.share[rows]) @ values)[:, None]
        (mean,), (reach,) = self._mean_with_reach(rows, higher, level, tests=1)
        return float(mean), float(mean - reach), float(mean + reach)

    def _use_of_classes(self, rows: IntArray, share: Sparse, level: float) -> Iterator[ClassUse]:
        """Compare shares of classes, over all items and over those of each value of ``by``."""
        if not len(rows) or self.labels.table.scale == "interval":
            return
        classes = self.labels.table.classes
        judge, people = share, self.share[rows]
        parts: list[tuple[Any, IntArray]] = [(None, np.arange(len(rows)))]
        split: list[tuple[Any, IntArray]] = []
        if self.by is not None:
            known, code = np.unique(self.by[rows], return_inverse=True)
            for k, value in enumerate(known.tolist()):
                members: IntArray = np.flatnonzero(code == k)
                if len(members) >= LEAST_OF_VALUE:
                    split.append((value, members))
        seen = np.flatnonzero(np.asarray((judge + people).sum(axis=0)).ravel() > 0)
        for among in (parts, split):
            tests = max(len(among) * len(seen), 1)
            for value, at in among:
                one, other = (np.asarray(each[at][:, seen].todense()) for each in (judge, people))
                d, reach = self._mean_with_reach(rows[at], one - other, level, tests)
                for k, c in enumerate(seen):
                    yield ClassUse(
                        classes[c].item(),
                        float(one[:, k].mean()),
                        float(other[:, k].mean()),
                        float(d[k]),
                        float(d[k] - reach[k]),
                        float(d[k] + reach[k]),
                        value,
                        len(at),
                    )

    def _mean_with_reach(
        self, rows: IntArray, values: FloatArray, level: float, tests: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return the means of columns and half widths of their simultaneous intervals."""
        groups, code = np.unique(self.group[rows], return_inverse=True)
        g = len(groups)
        if g < 2:
            return values.mean(axis=0), np.full(values.shape[1], np.inf)
        add = sparse(None, code, np.arange(len(rows)), (g, len(rows)))
        sums, n = np.asarray(add @ values), np.bincount(code, minlength=g)[:, None]
        without = (sums.sum(axis=0) - sums) / (len(rows) - n)
        se = np.sqrt((g - 1) / g * ((without - without.mean(axis=0)) ** 2).sum(axis=0))
        return values.mean(axis=0), student.ppf(1 - (1 - level) / (2 * tests), g - 1) * se

    def _notes(
        self, judges: list[Judge], left_out: tuple[Person, ...], is_yardstick: bool
    ) -> Iterator[str]:
        if left_out:
            yield _of_left_out(left_out)
        if not is_yardstick:
            yield NO_YARDSTICK
        if self.labels.values is not None:
            yield from _far_from_the_others(self.labels.table, self.labels.values)
        n = len(self.items)
        if n < FEW_ITEMS:
            yield (
                f"Only {n} items have labels of two people or more. With fewer than {FEW_ITEMS}, "
                "most verdicts stay open; 100 to 200 items decide clear cases."
            )
        sizes = np.bincount(self.question)
        if self.has_questions and (few := sizes < FEW_PER_QUESTION).sum() * 2 >= len(sizes):
            yield (
                f"{int(few.sum())} of {len(sizes)} questions have fewer than {FEW_PER_QUESTION} "
                "items, so chance agreement is uncertain there."
            )
        if self.n_alone:
            yield (
                f"{_items(self.n_alone)} the only one of {'its' if self.n_alone == 1 else 'their'} "
                "question, and therefore left out."
            )
        if self.n_single:
            one = self.n_single == 1
            yield (
                f"{self.n_single:,} {'item has' if one else 'items have'} labels of one person "
                f"only, and {'is' if one else 'are'} left out."
            )
        if self.by is not None:
            values, sizes = np.unique(self.by, return_counts=True)
            if (few := sizes < LEAST_OF_VALUE).any():
                shown = ", ".join(map(str, values[few][:5])) + (", ..." if few.sum() > 5 else "")
                yield (
                    f"{int(few.sum())} of {len(values)} values of by= have fewer than "
                    f"{LEAST_OF_VALUE} items with labels of two people ({shown}), so how often "
                    "labels are given is not compared there."
                )
        if not self.has_questions:
            yield (
                "If the items belong to several questions, name the column of the questions "
                "(question=). Otherwise, agreement looks too high, because labels differ between "
                "questions."
            )
        yield (
            f"The result holds for these {len(self.people)} people, not for people in general. "
            "Mistakes that these people share count as truth."
        )


def _place(judge: Judge) -> tuple[bool, float, str]:
    """Return the sort key of a judge: the best first, those with too few items last."""
    is_little = judge.n_items < LEAST_OF_JUDGE
    return is_little, -np.nan_to_num(judge.kappa, nan=-np.inf), str(judge.name)


NO_YARDSTICK = (
    "It is not certain that people agree better than by chance, so judges cannot be compared with "
    "them, and every verdict is open. Check that they understood the task, or have more items "
    "labelled by two of "
    "them"
)


STRAY = 0.01
"""Share of the labels below which a grade far from all others may be a slip."""


def _far_from_the_others(table: AnnotationTable, values: FloatArray) -> Iterator[str]:
    """Yield a note on a rare grade that is farther from the others than these from one another.

    Agreement is relative to the range, so that one slip makes all other labels look alike.
    """
    given = np.bincount(table.label, minlength=table.n_classes)
    used = np.flatnonzero(given > 0)
    order = used[np.argsort(values[used])]
    for end, others in ((order[0], order[1:]), (order[-1], order[:-1])):
        away = np.abs(values[others] - values[end]).min() if len(others) > 1 else 0.0
        if away > np.ptp(values[others]) and given[end] < STRAY * given.sum():
            n = int(given[end])
            yield (
                f"The grade {table.classes[end].item()!r} ({n:,} label{'' if n == 1 else 's'}) is "
                "far from all others. Agreement is relative to the whole range, so all other "
                "labels look alike. If the grade is a slip, correct it; if not, name all grades "
                "(classes=)."
            )


def _items(n: int) -> str:
    return f"{n:,} item is" if n == 1 else f"{n:,} items are each"


def _of_left_out(people: tuple[Person, ...]) -> str:
    shown = ", ".join(
        f"{person.name} (agreement beyond chance {person.kappa:.2f} on {person.n_items:,} items)"
        for person in people[:5]
    )
    more = f" and {len(people) - 5} more" if len(people) > 5 else ""
    one = len(people) == 1
    return (
        f"Left out {'this person' if one else 'these people'}: {shown}{more}, who "
        f"{'agrees' if one else 'agree'} with the others less than half as well as the median "
        "person does, and would make every judge look better"
    )


def _products(cells: Sparse, totals: FloatArray) -> FloatArray:
    """Return the product of each row, (n_g * n_s, D), with its question's total, (n_s, D)."""
    n_s = len(totals)
    row = np.repeat(np.arange(cells.shape[0]), np.diff(cells.indptr))
    found = np.bincount(
        row, cells.data * totals[row % n_s, cells.indices], minlength=cells.shape[0]
    )
    return np.asarray(found, dtype=np.float64)


def _ratio(mine: Coefficient, people: Coefficient, level: float) -> tuple[float, float, float]:
    """Return the ratio of two coefficients and Fieller's interval, which may be unbounded."""
    if not (np.isfinite(mine.value) and people.value > 0) or people.degrees < 1:
        return np.nan, -np.inf, np.inf
    r = mine.value / people.value
    t = student.ppf((1 + level) / 2, people.degrees)
    v_mine, v_people, v_both = mine.variance(), people.variance(), mine.variance(people)
    a = people.value**2 - t**2 * v_people
    b = mine.value * people.value - t**2 * v_both
    c = mine.value**2 - t**2 * v_mine
    if not a > 0:
        return float(r), -np.inf, np.inf
    root = np.sqrt(max(b**2 - a * c, 0.0))
    return float(r), float((b - root) / a), float((b + root) / a)


def _verdict(
    mine: Coefficient, people: Coefficient, margin: float, level: float
) -> tuple[float, float, float, Verdict]:
    """Return r, its interval, and what follows from it."""
    r, low, high = _ratio(mine, people, level)
    return r, low, high, CAN if low > 1 - margin else CANNOT if high < 1 - margin else OPEN


def _may_be_best(judges: dict[int, Coefficient], level: float) -> set[int]:
    """Return the judges that no other judge surely surpasses."""
    known = {judge: one for judge, one in judges.items() if np.isfinite(one.value)}
    found = set(known)
    tests = max(len(known) - 1, 1)
    for j, mine in known.items():
        for other, theirs in known.items():
            if other == j:
                continue
            gain = theirs.value - mine.value
            variance = theirs.variance() + mine.variance() - 2 * theirs.variance(mine)
            degrees = max(min(mine.degrees, theirs.degrees), 1)
            if gain > student.ppf(1 - (1 - level) / tests, degrees) * np.sqrt(max(variance, 0.0)):
                found.discard(j)
                break
    return found
