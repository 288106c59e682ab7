"""E- and M-step as pure functions on one sparse matrix; nothing of size instances x annotators.

The annotations are a CSR matrix ``votes`` of shape (n, R * C): row = instance, column =
``annotator * C + given``, value = weight. Both steps are then a product of it with a thin dense
matrix, in float64 (float32 was off by 1e-3 at ten million annotations).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import logsumexp, xlogy

from manyhands.annotations import AnnotationTable
from manyhands.typing import FloatArray, IntArray

LOG_FLOOR = float(np.log(1e-100))
"""Stands for log 0 in a confusion matrix: one impossible annotation must not erase all classes."""

Votes: TypeAlias = "csr_matrix[np.float64]"


def vote_matrix(table: AnnotationTable) -> Votes:
    """One-hot annotations as a CSR matrix of shape (n, R * C), weights as values."""
    order, start = table.by_instance()
    column = table.annotator.astype(np.int64) * table.n_classes + table.label
    weight = table.weight.astype(np.float64)
    if order is not None:
        column, weight = column[order], weight[order]
    votes = csr_matrix(
        (weight, column, start),
        shape=(table.n_instances, table.n_annotators * table.n_classes),
    )
    # A stored zero weight times a log of zero would be NaN.
    votes.eliminate_zeros()
    return votes


def vote_shares(table: AnnotationTable, *, empty: FloatArray | None = None) -> FloatArray:
    """Share of the votes each class received, shape (n, C).

    An instance without votes gets ``empty``, by default the mean of all shares.
    """
    counts = table.vote_counts()
    total = counts.sum(axis=1, keepdims=True)
    shares: FloatArray = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
    unvoted = total[:, 0] == 0
    if unvoted.any():
        shares[unvoted] = shares[~unvoted].mean(axis=0) if empty is None else empty
    return shares


def log_joint(votes: Votes, log_prior: FloatArray, log_confusion: FloatArray) -> FloatArray:
    """Log p(c) + sum of log p(annotation | c) over an instance's annotations, shape (n, C).

    Parameters
    ----------
    votes : CSR matrix of shape (n, R * C)
    log_prior : array of shape (C,) or, one row an instance, (n, C)
    log_confusion : array of shape (R, C, C), [annotator, true, given]
    """
    n_annotators, n_classes, _ = log_confusion.shape
    given_by_true = log_confusion.transpose(0, 2, 1).reshape(n_annotators * n_classes, n_classes)
    joint: FloatArray = votes @ np.ascontiguousarray(given_by_true) + log_prior
    return joint


def e_step(
    votes: Votes, log_prior: FloatArray, log_confusion: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Posterior over classes (n, C) and the log likelihood of every instance (n,).

    Dawid & Skene (1979), Eq. 2.5, in log space: a product of 200 annotations underflows.
    """
    joint = log_joint(votes, log_prior, log_confusion)
    evidence = logsumexp(joint, axis=1, keepdims=True)
    return np.exp(joint - evidence), evidence[:, 0]


def confusion_counts(votes: Votes, posterior: FloatArray) -> FloatArray:
    """Expected counts, shape (R, C, C), [annotator, true, given] (Dawid & Skene 1979, Eq. 2.3)."""
    n_classes = posterior.shape[1]
    counts = np.asarray(votes.T @ posterior)
    return counts.reshape(-1, n_classes, n_classes).transpose(0, 2, 1)


def normalise_rows(counts: FloatArray) -> FloatArray:
    """Divide by the sum over the last axis; an empty row becomes uniform."""
    total = counts.sum(axis=-1, keepdims=True)
    uniform = np.full_like(counts, 1.0 / counts.shape[-1])
    return np.divide(counts, total, out=uniform, where=total > 0)


def floored_log(p: FloatArray) -> FloatArray:
    """Log p, with `LOG_FLOOR` in place of log 0."""
    return np.log(p, out=np.full_like(p, LOG_FLOOR), where=p > 0)


def log_dirichlet(pseudo_counts: FloatArray, p: FloatArray) -> float:
    """Log density of a Dirichlet prior up to a constant: sum of pseudo_counts * log p."""
    return float(xlogy(pseudo_counts, np.maximum(p, np.exp(LOG_FLOOR))).sum())


def expected_accuracy(table: AnnotationTable, posterior: FloatArray) -> FloatArray:
    """Expected share of right annotations of every annotator under the posterior, shape (R,).

    A silent annotator gets the share over all annotations.
    """
    right = posterior[table.instance, table.label] * table.weight
    total = np.bincount(table.annotator, weights=table.weight, minlength=table.n_annotators)
    share = np.bincount(table.annotator, weights=right, minlength=table.n_annotators)
    overall = float(right.sum() / max(total.sum(), np.finfo(float).tiny))
    return np.divide(share, total, out=np.full(table.n_annotators, overall), where=total > 0)


def pick(posterior: FloatArray, ties: str, rng: np.random.RandomState) -> IntArray:
    """Most probable class of every instance; equal maxima as ``ties`` says, shape (n,)."""
    top = posterior.max(axis=1, keepdims=True)
    tied = np.isclose(posterior, top, rtol=1e-9, atol=1e-12)
    if ties != "random":
        return np.argmax(tied, axis=1)
    return np.argmax(tied * rng.uniform(0.5, 1.0, size=tied.shape), axis=1)
