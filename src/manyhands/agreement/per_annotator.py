"""Agreement of each annotator with the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from manyhands.agreement.pairs import SharedAnnotations, shared_annotations
from manyhands.agreement.weighted import (
    Weighted,
    per_entry,
    ratio,
    sparse,
    with_data,
)
from manyhands.annotations import AnnotationTable
from manyhands.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class AnnotatorAgreement:
    """Agreement of each annotator with the others; arrays of shape (n_annotators,).

    Attributes
    ----------
    n_pairs : integer array
        Pairs of one annotation by the annotator and one by another on the same instance.
    agreement : array
        Share of these pairs that agree.
    kappa : array
        ``agreement`` beyond chance.
    """

    n_pairs: IntArray
    agreement: FloatArray
    kappa: FloatArray


def annotator_agreement(table: AnnotationTable) -> AnnotatorAgreement:
    """Return each annotator's agreement with the others on the instances they share.

    Parameters
    ----------
    table : AnnotationTable
        Observed annotations only.

    Returns
    -------
    AnnotatorAgreement
        NaN for an annotator who shares no instance; ``kappa`` is also NaN if the annotator and the
        others always gave one and the same class.

    Raises
    ------
    AnnotationError
        If the annotators are unknown.

    Notes
    -----
    ``kappa`` is Cohen's kappa [1]_ between the annotator and the pool of the others. Each pair of
    annotations on the same instance is one comparison; chance agreement follows from the classes
    that the annotator and the others gave in these pairs. Repeated annotations of an instance by
    the same annotator are never compared with one another.

    Agreement is not accuracy: an annotator who shares the others' mistakes agrees with them.

    References
    ----------
    .. [1] J. Cohen. A coefficient of agreement for nominal scales. Educational and Psychological
       Measurement 20(1), 1960.

    Examples
    --------
    >>> from manyhands import AnnotationTable
    >>> found = annotator_agreement(AnnotationTable.from_matrix([[0, 0, 1], [1, 1, 0], [1, 1, -1]]))
    >>> found.n_pairs, found.agreement, found.kappa.round(2)
    (array([5, 5, 4]), array([0.6, 0.6, 0. ]), array([ 0.17,  0.17, -1.  ]))
    """
    return weighted_annotators(table).value()


def weighted_annotators(table: AnnotationTable) -> Weighted[AnnotatorAgreement]:
    """Return `annotator_agreement` as a function of instance weights."""
    shared = shared_annotations(table)
    votes, n_groups = shared.by_instance, len(shared.group_label)
    # An entry of votes is how often an annotator gave a class to an instance.
    instance = per_entry(votes, np.arange(shared.n))
    own, size = votes.data, per_entry(votes, np.bincount(shared.instance, minlength=shared.n))
    visits = _totals(instance, shared.group_annotator[votes.indices], own)
    same_class = _totals(instance, shared.group_label[votes.indices], own)
    compared = with_data(votes, own * (size - visits)).T
    agreeing = with_data(votes, own * (same_class - own)).T
    with_itself = with_data(votes, own * visits).T
    by_annotator = sparse(
        None, shared.group_annotator, np.arange(n_groups), (table.n_annotators, n_groups)
    )
    crowd = _crowd_margins(shared, (table.n_annotators, table.n_classes))

    def at(w: FloatArray) -> FloatArray:
        margin = compared @ w
        n, agree = by_annotator @ margin, by_annotator @ (agreeing @ w)
        of_others = crowd(w) - with_itself @ w
        by_chance = by_annotator @ (margin * of_others)
        return np.stack([ratio(agree, n), 1 - ratio(n * (n - agree), n**2 - by_chance)])

    n_pairs = (by_annotator @ (compared @ np.ones(shared.n))).astype(np.int64)
    least = np.array([[0.0], [-1.0]])
    return Weighted(shared.n, at, lambda found: AnnotatorAgreement(n_pairs, *found), least=least)


def _totals(instance: IntArray, key: IntArray, counts: FloatArray) -> FloatArray:
    """Return, for each entry, the total count of the entries with its instance and key."""
    _, place = np.unique(instance * (key.max(initial=0) + 1) + key, return_inverse=True)
    return np.bincount(place, counts)[place].astype(np.float64, copy=False)


def _crowd_margins(
    shared: SharedAnnotations, shape: tuple[int, int]
) -> Callable[[FloatArray], FloatArray]:
    """Map weights to counts of each group's class on its annotator's instances, (n_groups, B).

    There is one sparse product per column of weights. For all columns at once, every annotation
    would take as many entries as its instance has classes.
    """
    annotator, label = shared.group_annotator[shared.group], shared.group_label[shared.group]
    visits = sparse(None, annotator, shared.instance, (shape[0], shared.n))
    given = sparse(None, shared.instance, label, (shared.n, shape[1]))

    def margins(w: FloatArray) -> FloatArray:
        found = np.empty((len(shared.group_label), w.shape[1]))
        for b, weights in enumerate(w.T):
            crowd = with_data(visits, visits.data * weights[visits.indices]) @ given
            crowd.sort_indices()
            found[:, b] = np.asarray(crowd[shared.group_annotator, shared.group_label]).ravel()
        return found

    return margins
