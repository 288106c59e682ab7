"""Weights of families of annotators, so that shared mistakes do not count as independent ones.

Members of a family make the same mistakes, so n of them carry little more information than one.
Their annotations of an instance get the weight

    w = 1 / (1 + (n - 1) rho)

from Kish's design effect [1]_: n annotations whose mistakes are correlated by rho count as much as
n w independent ones. Every method uses the weights in all its steps, so EM still has an objective:
the likelihood with every annotation raised to the power of its weight.

.. [1] L. Kish. Survey Sampling. Wiley, 1965, section 5.4.
"""

from __future__ import annotations

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.groups import ALONE, check_rho
from manyhands.typing import AnyArray, FloatArray, IntArray


def family_weights(table: AnnotationTable, rho: float | None = None) -> FloatArray:
    """Return the weight of each annotation from the families that the table declares, shape (m,).

    Parameters
    ----------
    table : AnnotationTable
        A table of m annotations with families (`AnnotationTable.with_groups`).
    rho : float in [0, 1], optional
        Correlation of mistakes within a family; default: ``table.group_rho``.

    Returns
    -------
    array of shape (n_annotations,)
        In (0, 1]; 1 for annotators without a family. Multiply them with ``table.weight``. n is the
        number of members who annotated the instance with a positive weight. Abstentions do not
        count; if a method models them, they are weighted by the number of members who abstained.

    Raises
    ------
    AnnotationError
        If ``rho`` is outside [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import AnnotationTable
    >>> table = AnnotationTable.from_matrix(np.array([[0, 0, 1], [1, -1, 1]]))
    >>> table = table.with_groups({0: "llm", 1: "llm"})
    >>> family_weights(table).round(3)
    array([0.556, 0.556, 1.   , 1.   , 1.   ])
    """
    if table.groups is None:
        return np.ones(table.n_annotations)
    rho = table.group_rho if rho is None else check_rho(rho)
    weights = np.ones(table.n_annotations)
    counted = table.weight > 0
    weights[counted] = member_weights(
        table.instance[counted], table.annotator[counted], family_codes(table.groups), rho
    )
    return weights


def abstention_weights(table: AnnotationTable) -> FloatArray:
    """Return the weight of each abstention, by the members who abstained, (n_abstentions,)."""
    pairs = table.abstentions
    if table.groups is None:
        return np.ones(len(pairs))
    return member_weights(pairs[:, 0], pairs[:, 1], family_codes(table.groups), table.group_rho)


def family_codes(groups: AnyArray) -> IntArray:
    """Return the code of each annotator's family, (R,); without one, a code of their own."""
    names, codes = np.unique(groups, return_inverse=True)
    alone = groups == ALONE
    codes[alone] = len(names) + np.arange(alone.sum())
    return codes


def member_weights(
    instance: IntArray, annotator: IntArray, family: IntArray, rho: float
) -> FloatArray:
    """Return the weights of m annotations; repeated annotations by one member count as one."""
    weights = np.ones(len(instance))
    rows = np.flatnonzero(np.bincount(family)[family][annotator] > 1)
    if not len(rows):
        return weights
    instance, annotator = instance[rows].astype(np.int64), annotator[rows]
    members, row = np.unique(instance * len(family) + annotator, return_inverse=True)
    cells = members // len(family) * (family.max() + 1) + family[members % len(family)]
    _, cell, n_members = np.unique(cells, return_inverse=True, return_counts=True)
    weights[rows] = 1.0 / (1.0 + (n_members[cell[row]] - 1.0) * rho)
    return weights
