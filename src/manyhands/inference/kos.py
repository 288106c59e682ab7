"""KOS (Karger, Oh & Shah, 2011): messages between instances and annotators.

.. [1] D. R. Karger, S. Oh and D. Shah. Iterative learning for reliable crowdsourcing systems.
   NIPS 2011. Long version: Budget-optimal task allocation for reliable crowdsourcing systems.
   Operations Research 62(1), 2014.
.. [2] D. R. Karger, S. Oh and D. Shah. Efficient crowdsourcing for multi-class labeling.
   SIGMETRICS 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils._param_validation import StrOptions

from manyhands.inference.base import (
    COUNT,
    NON_NEGATIVE,
    AggregatorTraits,
    BaseAggregator,
    known_prior,
)
from manyhands.inference.votes import (
    Votes,
    by_annotator,
    by_instance,
    concatenate_rows,
    probability_correct,
    weighted_votes,
)
from manyhands.inference.weighted_majority_vote import decide_by_weight, weighted_shares
from manyhands.typing import BoolArray, FloatArray, IntArray


class KOS(BaseAggregator):
    """Infer true classes by passing messages between instances and annotators.

    An instance's message to an annotator sums the annotations by its other annotators. An
    annotator's message to an instance measures their agreement with others on all other instances.
    No message depends on the receiver's own messages.

    Parameters
    ----------
    max_iter : int, default=100
    tol : float, default=1e-6
        Stop when no message (the largest is 1) changes by more.
    initial_messages : {"ones", "normal"}, default="ones"
        First messages of the annotators: the paper's N(1, 1), drawn in the order of the
        annotations, or all equal to its mean, 1.
    ties : {"first", "random", "distribute"}, default="first"
        Which of several equal maxima ``labels_`` names; "distribute" means "first" here.
    random_state : int, RandomState or None
        Seed for ``initial_messages="normal"`` and ``ties="random"``.

    Attributes
    ----------
    posterior_ : array of shape (n_instances, n_classes)
        Shares of the votes weighted by the annotators' last messages (a negative one votes for the
        other classes): scores, not calibrated probabilities. Plain vote shares where all messages
        are 0.
    reliability_ : array of shape (n_annotators,)
        An annotator's message to a new instance, divided by the largest such message: their
        agreement with the others, summed over their annotations. Negative values mean wrong more
        often than by guessing. An annotator without annotations gets the mean of the others.

    Notes
    -----
    With more than two classes, an annotation of class a counts ``n_classes - 1`` for a and -1 for
    each other class; with two classes this is the paper's +1 and -1.

    The annotators send the first messages, so `fit` has no use for ``start`` and refuses it. If
    ``n_iter_`` equals ``max_iter``, the messages have not converged.

    References
    ----------
    Karger, Oh & Shah (2011), NIPS, "Iterative Algorithm"; (2014), Operations Research 62(1).

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import KOS
    >>> A = np.array([[0, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, -1]])
    >>> model = KOS().fit(A)
    >>> model.labels_
    array([0, 1, 0, 1])
    >>> bool(model.reliability_[2] < 0)
    True
    """

    traits = AggregatorTraits(uses_start=False, learns_instances=True)

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "initial_messages": [StrOptions({"ones", "normal"})],
    }

    def __init__(
        self,
        max_iter: int = 100,
        tol: float = 1e-6,
        *,
        initial_messages: str = "ones",
        ties: str = "first",
        random_state: Any = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.initial_messages = initial_messages
        self.ties = ties
        self.random_state = random_state

    def _infer(self, votes: Votes, start: FloatArray, rng: np.random.RandomState) -> None:
        graph = [_edges(shard) for shard in votes.shards()]
        first = [np.ones(edges.votes.n_annotations) for edges in graph]
        agreement = _instance_messages(graph, first)[1]
        if self.initial_messages == "normal":
            first = [_draw_messages(edges, rng) for edges in graph]
        messages = Messages(first, np.ones(votes.n_annotators))
        for n_iter in range(1, self.max_iter + 1):
            self.n_iter_ = n_iter
            before, messages = messages, _iterate(graph, messages, agreement)
            if _change(before, messages) <= self.tol:
                break
        self.reliability_ = _reliability(messages.sums, by_annotator(votes) > 0)
        parts = zip(graph, messages.on_edges, strict=True)
        self.posterior_ = concatenate_rows(weighted_shares(edges.votes, y) for edges, y in parts)
        self.class_prior_ = known_prior(votes, self.posterior_)
        self.posterior_[~votes.voted] = self.class_prior_

    def _posterior(self, votes: Votes) -> FloatArray:
        return decide_by_weight(votes, self.reliability_, self.class_prior_)[0]


def posterior_by_messages(votes: Votes) -> FloatArray:
    """Return the posterior of `KOS` with its default parameters, shape (n, C)."""
    model = KOS()
    no_start = np.empty((0, votes.n_classes))  # KOS ignores the start.
    model._infer(votes, no_start, model._generator())
    return model.posterior_


@dataclass(frozen=True)
class Messages:
    """Messages of the annotators.

    Attributes
    ----------
    on_edges : list of arrays of shape (n_annotations,)
        Messages from annotators to instances, one per annotation, by shard.
    sums : array of shape (R,)
        Message of each annotator to an instance they have not seen.
    """

    on_edges: list[FloatArray]
    sums: FloatArray


@dataclass(frozen=True)
class Edges:
    """Annotations of a shard, as edges between instances and annotators.

    Attributes
    ----------
    votes : Votes
    pair : integer array of shape (n_annotations,) or None
        Code of the (instance, annotator) pair of each edge; None if no pair is repeated.
    echo : array of shape (n_annotations,)
        How much a message of 1 from the annotator adds to the score of the class given.
    """

    votes: Votes
    pair: IntArray | None
    echo: FloatArray


def _edges(votes: Votes) -> Edges:
    codes = votes.instance * np.int64(votes.n_annotators) + votes.annotator
    distinct, pair = np.unique(codes, return_inverse=True)
    repeated = len(distinct) < len(pair)
    weight = np.ones(len(pair)) if votes.weight is None else votes.weight
    if repeated:
        _, same = np.unique(pair * votes.n_classes + votes.response, return_inverse=True)
        echo = votes.n_classes * _sum_by_code(same, weight) - _sum_by_code(pair, weight)
    else:
        echo = (votes.n_classes - 1) * weight
    if votes.gold is not None:  # Known classes do not depend on messages.
        echo = np.where(votes.gold[votes.instance] >= 0, 0.0, echo)
    return Edges(votes, pair if repeated else None, echo)


def _sum_by_code(code: IntArray | None, value: FloatArray) -> FloatArray:
    """Return, for each edge, the sum of ``value`` over the edges with the same code."""
    return value if code is None else np.bincount(code, value)[code].astype(np.float64, copy=False)


def _draw_messages(edges: Edges, rng: np.random.RandomState) -> FloatArray:
    """Draw the paper's first messages, N(1, 1), one per (instance, annotator) pair."""
    messages = rng.normal(1.0, 1.0, edges.votes.n_annotations)
    return messages if edges.pair is None else messages[edges.pair]


def _iterate(graph: list[Edges], messages: Messages, agreement: FloatArray) -> Messages:
    """Run one iteration, scaling the largest message to 1; no change if all are 0.

    The equations do not determine the sign of all messages. It is chosen to match ``agreement``,
    (R,).
    """
    received, sums = _instance_messages(graph, messages.on_edges)
    parts = zip(graph, received, strict=True)
    sent = [sums[edges.votes.annotator] - _sum_by_code(edges.pair, x) for edges, x in parts]
    scale = max(float(np.abs(y).max(initial=0.0)) for y in sent)
    if scale == 0:
        return messages
    if sums @ agreement < 0:
        scale = -scale
    return Messages([_rounded(y / scale) for y in sent], sums / scale)


def _rounded(y: FloatArray) -> FloatArray:
    """Round to float32, which makes sums in float64 exact and independent of their order.

    Otherwise terms that should cancel leave rounding errors, which a hundred iterations amplify.
    """
    return y.astype(np.float32).astype(np.float64)


def _instance_messages(
    graph: list[Edges], on_edges: list[FloatArray]
) -> tuple[list[FloatArray], FloatArray]:
    """Return the messages from the instances, by shard, and their sums by annotator, shape (R,)."""
    messages = [_shard_messages(edges, y) for edges, y in zip(graph, on_edges, strict=True)]
    parts = zip(graph, messages, strict=True)
    n_annotators = graph[0].votes.n_annotators
    by_shard = [np.bincount(edges.votes.annotator, x, n_annotators) for edges, x in parts]
    return messages, np.sum(by_shard, axis=0)


def _shard_messages(edges: Edges, y: FloatArray) -> FloatArray:
    """Score by the others (or gold) of the class an annotator gave, times the edge's weight."""
    votes = edges.votes
    scores = weighted_votes(votes, y)
    if votes.gold is not None:
        known = np.flatnonzero(votes.gold >= 0)
        scores[known] = 0.0
        scores[known, votes.gold[known]] = by_instance(votes)[known]
    total = scores @ np.ones(votes.n_classes)
    scores *= votes.n_classes
    scores -= total[:, None]
    x = probability_correct(votes, scores) - edges.echo * y
    return x if votes.weight is None else votes.weight * x


def _change(before: Messages, after: Messages) -> float:
    """Return the largest change of a message."""
    pairs = zip(before.on_edges, after.on_edges, strict=True)
    return max(float(np.abs(b - a).max(initial=0.0)) for a, b in pairs)


def _reliability(sums: FloatArray, active: BoolArray) -> FloatArray:
    """Scale the largest to 1; inactive annotators get the mean of the others, shape (R,)."""
    largest = np.abs(sums[active]).max()
    scaled = sums / largest if largest > 0 else sums
    return np.where(active, scaled, scaled[active].mean())
