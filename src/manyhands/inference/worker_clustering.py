"""Worker clustering: the annotators in a cluster share one confusion matrix.

.. [1] H. Imamura, I. Sato and M. Sugiyama. Analysis of minimax error rate for crowdsourcing and
   its application to worker clustering model. ICML 2018 (PMLR 80).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
from scipy.special import softmax, xlogy
from scipy.stats import rankdata

from manyhands.inference.base import COUNT, NON_NEGATIVE, AggregatorTraits, BaseAggregator
from manyhands.inference.confusions import (
    EMCounts,
    expect_and_count,
    log_likelihoods,
    normalise_joint,
    total_em_counts,
)
from manyhands.inference.em import CLOSE_BOUNDS, EMModel, EMResult, best_run
from manyhands.inference.em_aggregator import EMAggregator
from manyhands.inference.kos import posterior_by_messages
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.inference.votes import AllVotes, Votes
from manyhands.typing import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class ClusterParams:
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
        Contribution of the annotators' clusters to the lower bound.
    """

    prior: FloatArray
    weight: FloatArray
    members: FloatArray
    clusters: FloatArray
    bound: float

    @property
    def sent(self) -> tuple[FloatArray, FloatArray]:
        """Arguments of the E-step; see `_logs`."""
        return _logs(self.prior, self.members, self.clusters)


@dataclass(frozen=True, eq=False)
class ClusteringModel(EMModel[ClusterParams, EMCounts]):
    """The model on the votes of one fit.

    Attributes
    ----------
    shards : iterable of Votes
    n_clusters : int
    active : boolean array of shape (R,)
        Annotators with annotations.
    """

    shards: Iterable[Votes]
    n_clusters: int
    active: BoolArray

    parameters = ClusterParams

    @classmethod
    def of(
        cls, settings: WorkerClustering, votes: Votes, shards: Iterable[Votes]
    ) -> ClusteringModel:
        """Make the model of some votes."""
        active = np.bincount(votes.annotator, minlength=votes.n_annotators) > 0
        return cls(shards, settings.n_clusters, active)

    def start(self, posterior: Any) -> ClusterParams:
        """Implement `EMModel.start`."""
        counts = total_em_counts(self.shards, posterior)
        return self.fitted(counts, first_clusters(counts.confusion, self.active, self.n_clusters))

    @staticmethod
    def expect(shard: Votes, log_classes: FloatArray, log_confusion: FloatArray) -> EMCounts:
        """Run the E-step on a shard (`manyhands.inference.confusions.expect_and_count`)."""
        return expect_and_count(shard, log_classes, log_confusion)

    def fitted(self, counts: EMCounts, members: FloatArray) -> ClusterParams:
        """Return the parameters given the counts and the cluster memberships (R, L)."""
        prior = normalise_rows(counts.prior)
        weight = normalise_rows(members[self.active].sum(axis=0))
        clusters = normalise_rows(np.tensordot(members.T, counts.confusion, axes=1))
        members, bound = cluster_step(counts.confusion, weight, clusters)
        return ClusterParams(prior, weight, members, clusters, bound)

    def maximise(self, counts: EMCounts, parameters: ClusterParams) -> ClusterParams:
        """Implement `EMModel.maximise`."""
        return self.fitted(counts, parameters.members)

    def objective(self, counts: EMCounts, parameters: ClusterParams) -> float:
        """Lower bound on the likelihood."""
        return counts.log_likelihood + parameters.bound

    @staticmethod
    def posterior(
        shard: Votes,
        log_classes: FloatArray,
        log_confusion: FloatArray,
        exponent: FloatArray | None = None,
    ) -> FloatArray:
        """Implement `EMModel.posterior`."""
        joint = log_likelihoods(shard, log_confusion) + log_classes
        return normalise_joint(shard, joint, exponent)[0]


def first_clusters(counts: FloatArray, active: BoolArray, n_clusters: int) -> FloatArray:
    """Divide the annotators into clusters of equal size by the informedness of their annotations.

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
    # Annotators who are equal up to rounding share a rank, and hence a cluster.
    keys = -np.round(np.column_stack([norms, traces]), 9)
    ranks = rankdata(np.unique(keys, axis=0, return_inverse=True)[1].ravel())
    members = np.full((len(counts), n_clusters), 1.0 / n_clusters)
    members[active] = np.eye(n_clusters)[((ranks - 0.5) * n_clusters / len(ranks)).astype(int)]
    return members


def cluster_step(
    counts: FloatArray, weight: FloatArray, clusters: FloatArray
) -> tuple[FloatArray, float]:
    """Return the posterior over each annotator's cluster, and its part of the lower bound.

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


def _logs(
    prior: FloatArray, members: FloatArray, clusters: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the log class prior (C,) and expected log confusion matrices (R, C, C)."""
    return floored_log(prior), np.tensordot(members, floored_log(clusters), axes=1)


class WorkerClustering(EMAggregator):
    """Infer true classes, clusters of annotators, and one confusion matrix per cluster.

    The model lies between one confusion matrix for all annotators and one per annotator
    (`DawidSkene`). Annotators with few annotations borrow strength from those with similar answers.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-5
        Stop when the lower bound per annotation grows by less.
    n_clusters : int, default=2
        Number of clusters; clusters that are not needed may end up empty. With two, careful
        annotators are separated from careless ones; a larger crowd supports more clusters.
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
    matrix and divided into clusters of equal size. Equal annotators start in the same cluster. A
    second run starts from the posterior of `KOS`. It replaces the first in two cases: its bound is
    greater by more than 0.1 nats per annotation (if adversaries make the vote shares uninformative,
    the first run may learn nothing); or the first has swapped classes (it trusts annotators with
    whom the others disagree), the second has not, and its bound is at most 0.1 nats per annotation
    lower.

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

    traits = AggregatorTraits(counts_confusions=True, has_several_maxima=True)
    model = ClusteringModel

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

    def _runs(
        self, model: ClusteringModel, votes: AllVotes, start: Any, rng: np.random.RandomState
    ) -> EMResult[ClusterParams, EMCounts]:
        starts = (lambda: start, lambda: posterior_by_messages(cast(Votes, votes)))
        return best_run(
            (self._run(model, votes, partial(model.start, posterior())) for posterior in starts),
            lambda run: votes.rows_of(model.posterior, *run.parameters.sent),
            votes,
            margin=CLOSE_BOUNDS,
        )

    def _set_fitted(self, parameters: ClusterParams, votes: AllVotes) -> None:
        self.class_prior_, self.cluster_weight_ = parameters.prior, parameters.weight
        self.cluster_posterior_, self.cluster_confusion_ = parameters.members, parameters.clusters
        self.clusters_: IntArray = parameters.members.argmax(axis=1)
        self.confusion_ = np.tensordot(parameters.members, parameters.clusters, axes=1)

    @property
    def _sent(self) -> tuple[FloatArray, FloatArray]:
        return _logs(self.class_prior_, self.cluster_posterior_, self.cluster_confusion_)
