"""What tells annotators apart, and how the labels of lone annotators count where little does.

Annotators are compared on the instances that two of them annotated. Where there are (nearly) none,
the labels of lone annotators are believed, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from manyhands.exceptions import NotIdentifiableWarning, warn_caller
from manyhands.inference.vote_sums import vote_shares
from manyhands.inference.votes import AllVotes, Votes, fill_rows
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray

LEAST_COMPARED = 0.1
"""Share of instances by two annotators below which annotations of one alone are trusted. Models
that learn annotators and class shares from so few put all instances into one class otherwise. The
price is a posterior that is too sure (docs/results/posteriors.md, "Lone annotators")."""


@dataclass(frozen=True)
class Comparisons:
    """What tells annotators apart; numbers of instances with annotations.

    Attributes
    ----------
    annotated : int
    compared : int
        By two annotators, or by one with a history.
    known : int
        With gold.
    """

    annotated: int
    compared: int
    known: int

    def __add__(self, other: Comparisons) -> Comparisons:
        """Return the numbers of both."""
        return Comparisons(
            self.annotated + other.annotated,
            self.compared + other.compared,
            self.known + other.known,
        )

    @property
    def are_none(self) -> bool:
        """Whether nothing tells annotators apart."""
        return not self.compared + self.known

    @property
    def are_few(self) -> bool:
        """Whether nearly all instances have one annotator alone."""
        return self.compared < LEAST_COMPARED * self.annotated


def comparisons(votes: AllVotes) -> Comparisons:
    """Count what tells annotators apart."""
    known = None if votes.history is None else votes.history.sum(axis=(1, 2)) > 0
    answers: Any = votes.answers
    return cast(Comparisons, answers.unweighted.total(_compared, known))


def _compared(shard: Votes, known: Any) -> Comparisons:
    given = np.diff(shard.start) > 0
    is_compared = ~_by_one(shard) & given
    if known is not None:
        is_compared[shard.instance[known[shard.annotator]]] = True
    n_known = 0 if shard.gold is None else np.count_nonzero(given & (shard.gold >= 0))
    return Comparisons(int(given.sum()), int(is_compared.sum()), int(n_known))


def _by_one(shard: Votes) -> BoolArray:
    """Whether the annotations of an instance are by one annotator, shape (n,); True without any."""
    start, n = shard.start, np.diff(shard.start)
    given = n > 0
    first = np.repeat(shard.annotator[start[:-1][given]], n[given])
    by_one = np.ones(len(n), dtype=bool)
    by_one[shard.instance[shard.annotator != first]] = False
    return by_one


def warn_of_lone_annotators(found: Comparisons) -> None:
    """Warn if annotators cannot be compared, or hardly."""
    if found.are_none:
        warn_caller(
            "no instance has annotations by two annotators, so annotators cannot be compared: "
            "the labels are the annotations, and estimates of annotators come from the prior",
            NotIdentifiableWarning,
        )
    elif found.are_few:
        warn_caller(
            f"only {found.compared:,} of {found.annotated:,} annotated instances have "
            "annotations by two annotators; where annotators are estimated, the labels of "
            "lone annotators without gold count as right, which flatters them. Have more "
            "instances annotated twice",
            NotIdentifiableWarning,
        )


def believed(votes: Any) -> Any:
    """Treat the labels of lone annotators as known, so that skewed classes cannot outvote them."""
    gold = np.empty(votes.n_instances, dtype=np.int64 if isinstance(votes, Votes) else np.int32)
    fill_rows(gold, _here(votes), _with_lone_labels)
    return replace(votes, gold=gold)


def read_out_lone(votes: Any, posterior: FloatArray, model: Callable[[Votes], FloatArray]) -> None:
    """Replace the rows of ``posterior`` (n, C) that `believed` has made certain.

    Parameters
    ----------
    votes : Votes or StoredVotes
        As they were.
    model : callable
        From votes to their posterior.
    """

    def rows(shard: Votes, found: FloatArray) -> FloatArray:
        lone = _lone_labels(shard) >= 0
        if lone.any():
            found = found.copy()
            found[lone] = model(shard.select(np.flatnonzero(lone)))
        return found

    fill_rows(posterior, _here(votes), rows, rows=(posterior,))


def _here(votes: Any) -> Any:
    """Shards of the votes, in this process."""
    return [votes] if isinstance(votes, Votes) else replace(votes, engine=None).shards()


def _with_lone_labels(shard: Votes) -> AnyArray:
    codes = _lone_labels(shard)
    return codes if shard.gold is None else np.where(shard.gold >= 0, shard.gold, codes)


def _lone_labels(shard: Votes) -> AnyArray:
    """Class code of each instance that a lone annotator gave one label and no gold, else -1."""
    answers = shard.answers
    shares = vote_shares(replace(answers, gold=None), empty=np.zeros(shard.n_classes))
    is_lone = (shares.max(axis=1) > 1 - 1e-9) & _by_one(answers)
    if shard.gold is not None:
        is_lone &= shard.gold < 0
    return np.where(is_lone, shares.argmax(axis=1), MISSING)
