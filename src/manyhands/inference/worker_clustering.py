"""Worker clustering: the annotators in a cluster share one confusion matrix.

.. [1] H. Imamura, I. Sato and M. Sugiyama. Analysis of minimax error rate for crowdsourcing and
   its application to worker clustering model. ICML 2018 (PMLR 80).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax, xlogy
from scipy.stats import rankdata

from manyhands.inference.base import COUNT, NON_NEGATIVE, BaseAggregator, Traits
from manyhands.inference.confusions import EMCounts, e_step, expect_and_count, total_em_counts
from manyhands.inference.em import CLOSE, EMResult, Model, best_run, run_em
from manyhands.inference.kos import posterior_by_messages
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import Votes, fill_rows, sum_over_shards
from manyhands.typing import BoolArray, FloatArray, IntArray


class WorkerClustering(BaseAggregator):
    """Infer true classes, clusters of annotators, and one confusion matrix per cluster.

    This lies between one confusion matrix for all annotators and one per annotator (`DawidSkene`).
    Annotators with few annotations borrow strength from those who answer alike.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when the lower bound per annotation grows by less.
    n_clusters : int, default=2
        Number of clusters; those not needed may end up empty. Two separate careful from careless
        annotators; a larger crowd supports more clusters.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several most probable classes ``labels_`` names; "distribute" means "first" here,
        because the posterior is already distributed.
    random_state : int, RandomState or None
        Seed for ``ties="random"``.

    Attributes
    ----------
    clusters_ : integer array of shape (n_annotators,)
        Most probable cluster of each annotator. The initial clusters are in the order of quality,
        best first.
    cluster_posterior_ : array of shape (n_annotators, n_clusters)
        Probability of each cluster; for an annotator without annotations, ``cluster_weight_``.
    cluster_weight_ : array of shape (n_clusters,)
        Share of the annotators in each cluster.
    cluster_confusion_ : array of shape (n_clusters, n_classes, n_classes)
        Indexed [cluster, true, given]; rows sum to 1. Uniform for an empty cluster.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Mean of the clusters' matrices, weighted by the annotator's cluster probabilities.
    log_likelihood_ : array of shape (n_iter_,)
        Evidence lower bound of the kept run after each E-step; it never decreases.

    Notes
    -----
    The posterior is approximated by a product of one factor for the true classes (theta) and one
    for the clusters of the annotators (phi). Confusion matrices and shares are point estimates. The
    lower bound is maximised over phi, the point estimates and theta in turn.

    Initially theta is the vote shares. Annotators are sorted by the nuclear norm of their confusion
    matrix and cut into clusters of equal size. Those that cannot be told apart start in the same
    cluster. A second run starts from the posterior of `KOS`. It replaces the first only if its
    bound is greater by more than 0.1 nats per annotation (where adversaries leave the vote shares
    without information, the first run may learn nothing), or if the first is upside down (it
    trusts those with whom the others disagree), the second is not, and its bound is at most 0.1
    nats per annotation lower.

    References
    ----------
    Imamura, Sato & Sugiyama (ICML 2018): the worker clustering model and its variational inference.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import WorkerClustering
    >>> truth = np.array([0, 1, 0, 1, 0, 1])
    >>> A = np.column_stack([truth, truth, truth, [0, 0, 1, 1, 1, 0], [1, 1, 0, 0, 1, 0]])
    >>> model = WorkerClustering().fit(A)
    >>> model.labels_, model.clusters_
    (array([0, 1, 0, 1, 0, 1]), array([0, 0, 0, 1, 1]))
    """

    traits = Traits(counts_confusions=True, has_several_maxima=True)

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "n_clusters": [COUNT],
    }

    def __init__(
        self,
        max_iter: int = 100,
        tol: float = 1e-5,
        *,
        n_clusters: int = 2,
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.n_clusters = n_clusters
        self.ties = ties
        self.random_state = random_state

    def _infer(self, votes: Votes, start: FloatArray, rng: np.random.RandomState) -> None:
        shards = votes.shards()

        def runs() -> Iterator[EMResult[Clustering, EMCounts]]:
            yield self._run(votes, shards, start)
            yield self._run(votes, shards, posterior_by_messages(votes))

        posterior = np.empty_like(start)
        kept = best_run(
            runs(),
            lambda run: _fill(posterior, shards, *run.parameters.fitted),
            votes,
            margin=CLOSE,
        )
        found = kept.parameters
        self.class_prior_, self.cluster_weight_ = found.prior, found.weight
        self.cluster_posterior_, self.cluster_confusion_ = found.members, found.clusters
        self.clusters_: IntArray = found.members.argmax(axis=1)
        self.confusion_ = np.tensordot(found.members, found.clusters, axes=1)
        self.posterior_ = self._posterior(votes)
        self._set_history(kept.history)

    def _run(
        self, votes: Votes, shards: list[Votes], start: FloatArray
    ) -> EMResult[Clustering, EMCounts]:
        """Iterate from a posterior over the classes, shape (n, C)."""
        counts = total_em_counts(shards, start)
        active = np.bincount(votes.annotator, minlength=votes.n_annotators) > 0
        model = ClusteringModel(shards, active)
        members = first_clusters(counts.confusion, active, self.n_clusters)
        enough = self.tol * votes.total_weight
        first = partial(model.fitted, counts, members)
        return run_em(model, first, max_iter=self.max_iter, enough=enough)

    def _posterior(self, votes: Votes) -> FloatArray:
        out = np.empty((votes.n_instances, votes.n_classes))
        fitted = self.class_prior_, self.cluster_posterior_, self.cluster_confusion_
        return _fill(out, votes.shards(), *fitted)


def _fill(
    out: FloatArray,
    shards: list[Votes],
    prior: FloatArray,
    members: FloatArray,
    clusters: FloatArray,
) -> FloatArray:
    """Write the posterior of each instance into ``out``."""
    parameters = _log_parameters(prior, members, clusters)
    fill_rows(out, shards, lambda shard: e_step(shard, *parameters)[0])
    return out


@dataclass(frozen=True, eq=False)
class Clustering:
    """Parameters of the model.

    Attributes
    ----------
    prior : array of shape (C,)
    weight : array of shape (L,)
        Shares of the clusters.
    members : array of shape (R, L)
        Probability that each annotator belongs to each cluster.
    clusters : array of shape (L, C, C)
        Confusion matrix of each cluster.
    bound : float
        What the annotators' clusters add to the lower bound.
    """

    prior: FloatArray
    weight: FloatArray
    members: FloatArray
    clusters: FloatArray
    bound: float

    @property
    def fitted(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What the posterior needs: prior, members and clusters."""
        return self.prior, self.members, self.clusters


@dataclass(frozen=True, eq=False)
class ClusteringModel(Model[Clustering, EMCounts]):
    """The model on the votes of one fit.

    Attributes
    ----------
    shards : list of Votes
    active : boolean array of shape (R,)
        Annotators with annotations.
    """

    shards: list[Votes]
    active: BoolArray

    def expected(self, parameters: Clustering) -> EMCounts:
        """See `Model.expect`."""
        return sum_over_shards(expect_and_count, self.shards, *_log_parameters(*parameters.fitted))

    def objective(self, counts: EMCounts, parameters: Clustering) -> float:
        """Lower bound on the likelihood."""
        return counts.log_likelihood + parameters.bound

    def fitted(self, counts: EMCounts, members: FloatArray) -> Clustering:
        """Parameters that fit the counts, with annotators in clusters by ``members`` (R, L)."""
        prior = normalise_rows(counts.prior)
        weight = normalise_rows(members[self.active].sum(axis=0))
        clusters = normalise_rows(np.tensordot(members.T, counts.confusion, axes=1))
        members, bound = cluster_step(counts.confusion, weight, clusters)
        return Clustering(prior, weight, members, clusters, bound)

    def maximise(self, counts: EMCounts, parameters: Clustering) -> Clustering:
        """See `Model.maximise`."""
        return self.fitted(counts, parameters.members)


def first_clusters(counts: FloatArray, active: BoolArray, n_clusters: int) -> FloatArray:
    """Cut the annotators into clusters of equal size by how informative their annotations are.

    Parameters
    ----------
    counts : array of shape (R, C, C)
        Expected responses, indexed [annotator, true, response].
    active : boolean array of shape (R,)
        Annotators with annotations.

    Returns
    -------
    array of shape (R, n_clusters)
        1 in each annotator's cluster. The first cluster has the largest nuclear norms of the
        confusion matrix. An adversary may have the same norm as an honest annotator; the trace
        breaks such ties.
    """
    confusion = normalise_rows(counts[active])
    norms = np.linalg.svd(confusion, compute_uv=False).sum(axis=1)
    traces = np.trace(confusion, axis1=1, axis2=2)
    # Annotators equal up to rounding share a rank, and hence a cluster, whatever their order.
    keys = -np.round(np.column_stack([norms, traces]), 9)
    ranks = rankdata(np.unique(keys, axis=0, return_inverse=True)[1].ravel())
    members = np.full((len(counts), n_clusters), 1.0 / n_clusters)
    members[active] = np.eye(n_clusters)[((ranks - 0.5) * n_clusters / len(ranks)).astype(int)]
    return members


def cluster_step(
    counts: FloatArray, weight: FloatArray, clusters: FloatArray
) -> tuple[FloatArray, float]:
    """Posterior over each annotator's cluster, and its part of the lower bound.

    Parameters
    ----------
    counts : array of shape (R, C, C)
        Expected responses, indexed [annotator, true, response].
    weight : array of shape (L,)
    clusters : array of shape (L, C, C)

    Returns
    -------
    members : array of shape (R, L)
    bound : float
        E log p(clusters) + entropy; the annotations' part of the bound is in the E-step.
    """
    log_weight = floored_log(weight)
    axes = ([1, 2], [1, 2])
    joint = np.tensordot(counts, floored_log(clusters), axes=axes) + log_weight
    members: FloatArray = softmax(joint, axis=1)
    return members, float((members @ log_weight).sum() - xlogy(members, members).sum())


def _log_parameters(
    prior: FloatArray, members: FloatArray, clusters: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Log class prior (C,) and expected log confusion matrices (R, C, C) of the annotators."""
    return floored_log(prior), np.tensordot(members, floored_log(clusters), axes=1)
