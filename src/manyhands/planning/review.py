"""Queues of doubtful labels to review, and sheets of an annotator's confusions to teach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from manyhands.annotations import AnnotationTable, as_table
from manyhands.annotations.encoding import resolve
from manyhands.annotations.frames import Backend
from manyhands.decision.labels import best, best_of, generator
from manyhands.decision.losses import expected_loss
from manyhands.exceptions import AnnotationError
from manyhands.inference.base import BaseAggregator
from manyhands.inference.inputs import series_in_order
from manyhands.metrics.certainty import Certainty
from manyhands.planning.beliefs import beliefs_of
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray
from manyhands.wording import counted

SURE_EXAMPLE = 0.95
"""Smallest posterior of an example for teaching, without the annotator's own annotation."""


@dataclass(frozen=True, eq=False)
class ReviewQueue:
    """Labels or annotations to check, the most doubtful first.

    Attributes
    ----------
    instances, labels : arrays of shape (m,)
        Ids and the labels in doubt.
    scores : array of shape (m,)
        Probability that the label is wrong; NaN if it is unknown how many labels are right.
    suggestions : array of shape (m,)
        The most probable other class. It may be more probable than the label, if this is an
        annotation or was chosen by a rule such as the median of grades.
    annotators : array of shape (m,) or None
        Ids of the annotators who gave the annotations; None for labels.
    classifier_weight : float
        Power of the classifier's probabilities; 0 without a classifier.
    chosen : array of shape (m,) or None
        "random" for labels that were drawn at random, which come first, else "queue". None: none
        was drawn at random.
    grades_off : array of shape (m,) or None
        For grades, the expected distance of the label from the truth, by which the queue is sorted;
        NaN if unknown.
    suggestion_probability : array of shape (m,) or None
        Probability of the suggestion, as that of the label is ``1 - scores``; NaN if unknown.
    is_middle : boolean array of shape (m,) or None
        For grades, whether the label is the median grade.
    """

    instances: AnyArray
    labels: AnyArray
    scores: FloatArray
    suggestions: AnyArray
    annotators: AnyArray | None = None
    classifier_weight: float = 0.0
    chosen: AnyArray | None = None
    grades_off: FloatArray | None = None
    suggestion_probability: FloatArray | None = None
    is_middle: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.instances)

    @property
    def n_less_probable(self) -> int:
        """Number of labels that are less probable than the suggestion, as far as that is known."""
        if self.suggestion_probability is None:
            return 0
        equal = 1e-9  # Two halves of a tie differ by rounding.
        return int((self.suggestion_probability > 1 - self.scores + equal).sum())

    def __repr__(self) -> str:
        what = counted(len(self), "label" if self.annotators is None else "annotation")
        wrong = self.scores.sum()
        told = (
            "unknown how many are wrong" if wrong != wrong else f"{wrong:.1f} expected to be wrong"
        )
        return f"ReviewQueue({what}, {told})"

    def to_columns(self) -> dict[str, list[Any]]:
        """Return the columns task, (worker,) label, suggestion and score.

        ``score`` is the probability that the label is wrong; None if unknown. For grades,
        ``grades_off`` follows it.
        """
        columns = {
            "task": self.instances,
            "worker": self.annotators,
            "label": self.labels,
            "suggestion": self.suggestions,
        }
        found = {name: values.tolist() for name, values in columns.items() if values is not None}
        found |= {"score": _known(self.scores)}
        return found if self.grades_off is None else found | {"grades_off": _known(self.grades_off)}

    def to_sheet(self) -> dict[str, list[Any]]:
        """Return the columns of ``review.csv``, a table for a person to fill in.

        Returns
        -------
        dict {column: list}
            ``task``; for annotations ``worker``; ``label``, to be corrected; ``was``, the label
            before any correction; ``suggestion``; ``probability_wrong``; for grades ``grades_off``;
            ``chosen`` ("queue" or "random"); and ``reviewed``, which is empty.
            `manyhands.io.read_gold` takes a row as known if ``reviewed`` is filled in, or if
            ``label`` was changed.
        """
        columns = self.to_columns()
        last = {"was": columns["label"], "suggestion": columns.pop("suggestion")}
        last["probability_wrong"] = columns.pop("score")
        if self.grades_off is not None:
            last["grades_off"] = columns.pop("grades_off")
        chosen = ["queue"] * len(self) if self.chosen is None else self.chosen.tolist()
        return columns | last | {"chosen": chosen, "reviewed": [""] * len(self)}

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Return a data frame of `to_columns`; backend "pandas", "polars" or "pyarrow"."""
        import narwhals as nw

        return nw.from_dict(self.to_columns(), backend=backend).to_native()


def review_queue(
    model: Any,
    table: Any,
    proba: Any = None,
    *,
    by: str = "label",
    n: int | None = None,
    random: int = 0,
    labels: Any = None,
    certainty: Certainty | None = None,
    last: Any = None,
    random_state: Any = None,
) -> ReviewQueue:
    """Rank labels, or single annotations, by the probability (for grades, distance) of an error.

    Mistakes that most annotators share do not stand out, and come last. Therefore also check some
    labels at random: only these show how many of the other labels are right. Random labels are
    drawn from the labels that are neither known nor in the queue, and come first.

    Parameters
    ----------
    model : fitted estimator with ``posterior_``, or array or frame (n_instances, n_classes)
        For example a `DawidSkene` fitted to the table. A frame is matched by id, as ``proba`` is.
    table : AnnotationTable or matrix
    proba : result of `manyhands.cross_predict`, or array-like or frame of shape \
(n_instances, n_classes), optional
        A classifier's probabilities **out of fold**, joined as in `AnnotationPlanner.fit`.
    by : {"label", "annotation"}, default="label"
        "label": the label of each annotated instance, which is the most probable class under the
        model, or the median grade. "annotation": every single annotation.
    n : int, optional
        Length of the queue; default: all.
    random : int, default=0
        Number of labels outside the queue to draw at random; with ``n=0``, of all labels.
    labels : integer array of shape (n_instances,), optional
        Codes of the labels to check, if these are not the most probable classes; -1 is not checked.
        A pandas Series is matched with the instances by its index.
    certainty : Certainty, optional
        Map from the model's probabilities to the reported ones (`manyhands.metrics.certainty`),
        which are then the scores; for names of classes the order stays that of the model. Default:
        the model's own probabilities.
    last : bool array of shape (n_instances,), optional
        Instances that come after all others, such as those whose label is accepted.
    random_state : int, RandomState or None
        Seed of the random labels.

    Returns
    -------
    ReviewQueue

    Raises
    ------
    AnnotationError
        If ``by`` is unknown, ``random`` is not a number of labels or is given for annotations, or
        the model, ``proba`` or ``labels`` does not fit the table.

    Examples
    --------
    >>> from manyhands import DawidSkene, make_crowd, review_queue
    >>> table = make_crowd([0, 1] * 30, annotations_per_instance=3, random_state=0)
    >>> len(review_queue(DawidSkene().fit(table), table, n=5))
    5
    """
    if by not in ("label", "annotation"):
        raise AnnotationError(f"by={by!r} must be 'label' or 'annotation'")
    if isinstance(random, bool) or not isinstance(random, Integral) or random < 0:
        raise AnnotationError(f"random={random!r} must be a number of labels, 0 or more")
    if random and by == "annotation":
        raise AnnotationError(
            f"random={random} draws labels, not single annotations; leave by='annotation' or "
            "random= out"
        )
    table = as_table(table, argument="table")
    found, weight = beliefs_of(model, table, proba)
    if by == "label":
        if labels is None:
            labels = best_of(beliefs_of(model, table)[0].posterior, table)
        codes = _label_codes(labels, table)
        instance = np.flatnonzero((found.n_annotators_of > 0) & (codes >= 0))
        label, annotator = codes[instance], None
    else:
        observed = table.observed
        instance, label, annotator = observed.instance, observed.label, observed.annotator
    rows = found.posterior[instance].copy()
    score = expected_loss(rows, label)
    told = score if certainty is None else 1.0 - certainty(1.0 - score)
    loss, off, middle = score, None, None
    if found.ordered:
        middle = best(rows, "first", generator(0), ordered=True) == label
        loss = off = expected_loss(rows, label, ordered=True)
        if certainty is not None:
            off = expected_loss(certainty.of_classes(rows, label), label, ordered=True)
            loss = np.where(np.isnan(off), loss, off)
    is_last = np.zeros(len(rows), dtype=bool) if last is None else np.asarray(last)[instance]
    order = np.lexsort((-np.round(loss, 12), is_last))[:n]
    drawn = np.zeros(0, dtype=np.int64)
    if random:
        known = np.asarray(getattr(model, "is_known_", np.zeros(table.n_instances, dtype=bool)))
        rest = np.setdiff1d(np.flatnonzero(~known[instance]), order)
        drawn = generator(random_state).permutation(rest)[:random]
    order = np.concatenate([drawn, order])
    rows, label, instance = rows[order], label[order], instance[order]
    shares = rows if certainty is None else certainty.of_classes(rows, label)
    rows[np.arange(len(rows)), label] = -1.0
    other = rows.argmax(axis=1)
    return ReviewQueue(
        table.instances[instance],
        table.classes[label],
        told[order],
        table.classes[other],
        None if annotator is None else table.annotators[annotator[order]],
        weight,
        np.repeat(["random", "queue"], [len(drawn), len(order) - len(drawn)]) if random else None,
        None if off is None else off[order],
        shares[np.arange(len(rows)), other],
        None if middle is None else middle[order],
    )


def _known(values: FloatArray) -> list[float | None]:
    """Return plain values, with None for NaN."""
    return [None if value != value else value for value in values.tolist()]


def _label_codes(labels: Any, table: AnnotationTable) -> IntArray:
    codes = np.asarray(series_in_order(table, labels, "labels"))
    if codes.shape != (table.n_instances,):
        raise AnnotationError(
            f"labels has shape {codes.shape}; it must have one code per instance of the table, "
            f"({table.n_instances},), and -1 for instances that are not to be checked"
        )
    return codes


# -- teaching --------------------------------------------------------------------------------------


class TeachingPair(NamedTuple):
    """Two classes that an annotator confuses.

    Attributes
    ----------
    true, given : class values
    rate : float
        Share that is ``given`` of the annotator's annotations where the class is ``true``, as in
        the model's confusion matrix. Where nobody knows the labels, it is uncertain which of the
        two classes stands for the other.
    mistaken : list of ids
        Instances that the annotator probably got wrong in this way.
    examples, contrast : lists of ids
        Instances that surely are of the class ``true``, and of the class ``given``.
    reverse_rate : float
        Share that is ``true`` where the class is ``given``; it happened less often.
    """

    true: Any
    given: Any
    rate: float
    mistaken: list[Any]
    examples: list[Any]
    contrast: list[Any]
    reverse_rate: float


@dataclass(frozen=True)
class TeachingSheet:
    """Confusions to show an annotator, the most frequent first.

    Attributes
    ----------
    annotator : id
    pairs : list of TeachingPair
    needs_expert : bool
        Always True, because some example labels may be wrong: an expert must look at the examples
        before they are shown.
    """

    annotator: Any
    pairs: list[TeachingPair]
    needs_expert: bool = True

    def __iter__(self) -> Iterator[TeachingPair]:
        return iter(self.pairs)


def teaching_sheet(
    model: BaseAggregator, table: Any, annotator: Any, n_pairs: int = 3, n_examples: int = 3
) -> TeachingSheet:
    """List the pairs of classes that an annotator confuses most often, with instances to show.

    Annotators tend to repeat their confusions; whether such a sheet helps was not measured.

    Parameters
    ----------
    model : fitted aggregator, such as ``DawidSkene().fit(table)``
    table : AnnotationTable or matrix
        The table that the model was fitted to.
    annotator : id
    n_pairs, n_examples : int
        Pairs of classes, and instances of each kind per pair.

    Returns
    -------
    TeachingSheet
        Fewer pairs and examples if there are no more.

    Raises
    ------
    AnnotationError
        If the annotator is unknown, or the model is not an aggregator fitted to the table.
    """
    table = as_table(table, argument="table")
    if not isinstance(model, BaseAggregator):
        raise AnnotationError(
            f"model is a {type(model).__name__}; give a fitted aggregator, such as "
            "DawidSkene().fit(table)"
        )
    found, _ = beliefs_of(model, table)
    (r,) = resolve(
        [annotator], table.annotators, argument="annotator", vocabulary_name="annotators"
    )
    shares = found.confusion[r]
    how_often = found.prior[:, None] * shares * (1 - np.eye(table.n_classes))
    clear = _clear(model, table, int(r)) & (found.posterior > 0.5)  # Known classes may differ.
    own = table.annotator == r
    pairs = []
    both = np.triu(how_often + how_often.T)
    for cell in np.argsort(-both, axis=None, kind="stable")[:n_pairs].tolist():
        true, given = divmod(cell, table.n_classes)
        if both[true, given] <= 0:
            break
        if how_often[given, true] > how_often[true, given]:
            true, given = given, true
        answered = table.instance[own & (table.label == given)]
        doubt = found.posterior[answered, true]
        wrong = answered[np.argsort(-doubt, kind="stable")][: (doubt > 0.5).sum()]
        ids = (wrong, *(np.flatnonzero(clear[:, c]) for c in (true, given)))
        mistaken, examples, contrast = (table.instances[rows[:n_examples]].tolist() for rows in ids)
        first, second = table.classes[[true, given]].tolist()
        one, other = float(shares[true, given]), float(shares[given, true])
        pairs.append(TeachingPair(first, second, one, mistaken, examples, contrast, other))
    return TeachingSheet(table.annotators[r].item(), pairs)


def _clear(model: BaseAggregator, table: AnnotationTable, r: int) -> BoolArray:
    """Mask instances on which two others agree and the model is sure, shape (n, C)."""
    others = table.take(table.annotator != r)
    counts = others.vote_counts()
    unanimous = (counts > 0).sum(axis=1) == 1
    enough = (others.annotations_per_instance() >= 2) & unanimous
    sure = model.predict_proba(others) > SURE_EXAMPLE
    return np.asarray(enough[:, None] & sure & (counts > 0))
