"""Tables of a fitted ranking: ranks and tiers, annotators, pairs that fit badly."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, ndtri

from manyhands.annotations.groups import undeclared_models
from manyhands.exceptions import AnnotationError
from manyhands.ranking.bradley_terry import LEVEL, BradleyTerry
from manyhands.ranking.davidson import probabilities
from manyhands.ranking.next_pairs import NextPairs
from manyhands.typing import BoolArray, FloatArray, IntArray

Columns = dict[str, list[Any]]

CLEARLY_STRONGER = (1 + LEVEL) / 2
"""Probability from which an item counts as stronger than another: a two-sided test at 95 %."""


def in_order(model: BradleyTerry) -> IntArray:
    """Return the positions of the items, each group's strongest first, uncompared items last."""
    order: IntArray = np.lexsort((model.ranks_, model.component_, model.component_ < 0))
    return order


def tiers(model: BradleyTerry) -> IntArray:
    """Return the tier of each item, from 1 in each group of `component_`; 0 without an interval.

    A tier begins with its strongest item and holds the following items that are not clearly weaker:
    the probability that the first item is stronger is below 97.5 %. Tiers help to read a ranking;
    items at the ends of two neighbouring tiers need not differ.

    Returns
    -------
    integer array of shape (n_items,)
    """
    found = np.zeros(len(model.items_), dtype=np.int64)
    if model.covariance_ is None:
        return found
    better = model.better()
    first, tier, group = -1, 0, -1
    for i in in_order(model):
        if model.component_[i] < 0:
            break  # Items without comparisons come last.
        if model.component_[i] != group:
            group, first, tier = model.component_[i], int(i), 1
        elif better[first, i] >= CLEARLY_STRONGER:
            first, tier = int(i), tier + 1
        found[i] = tier
    return found


def not_told_apart(model: BradleyTerry, item: int) -> IntArray:
    """Return the positions of the other items that do not clearly differ from ``item``."""
    if model.covariance_ is None:
        return np.zeros(0, dtype=np.int64)
    better = model.better()[item]
    near = (better > 1 - CLEARLY_STRONGER) & (better < CLEARLY_STRONGER)
    near[item] = False
    return np.flatnonzero(near)


def ranking_columns(model: BradleyTerry) -> Columns:
    """Return the columns of the ranking, one row per item, the strongest first."""
    order = in_order(model)
    low, high = model.interval(LEVEL).T
    counts = model.table_.counts()
    columns: dict[str, Any] = {
        "item": model.items_,
        "rank": model.ranks_,
        "rank_low": model.rank_low_,
        "rank_high": model.rank_high_,
        "tier": np.where(model.component_ < 0, np.nan, tiers(model)),
        "strength": model.strengths_,
        "low": low,
        "high": high,
        "p_beats_average": _beats_average(model),
        "n_comparisons": counts,
    }
    if model.n_components_ > 1:
        columns["component"] = model.component_
    if model.covariance_ is None:
        del columns["tier"]
    return {name: plain(np.asarray(values)[order]) for name, values in columns.items()}


def _beats_average(model: BradleyTerry) -> FloatArray:
    """Return how often a typical annotator prefers each item to an average one, ties as half."""
    left, tie, _ = probabilities(np.nan_to_num(model.strengths_), np.array(model.ties_))
    found: FloatArray = left + tie / 2
    return np.where(np.isnan(model.strengths_), np.nan, found)


def annotator_columns(model: BradleyTerry, models: Any = None) -> Columns:
    """Return the columns of the annotators, one row each.

    ``left_between_equals`` is the probability of "left" between two equal items, ties left out,
    with its 95 % interval. ``ties`` is the share of ties, and ``ties_expected`` the share that a
    typical annotator would give on the same pairs. ``kind`` is "model" or "person". ``look`` says
    why somebody should look at the annotator's answers, if there is a reason (`reasons`).

    Parameters
    ----------
    model : fitted BradleyTerry
    models : sequence of ids, optional
        The annotators that are language models; default: those named like one.
    """
    table = model.table_
    if not table.has_annotators:
        return {}
    n = table.n_annotators
    weight = np.asarray(table.weight, dtype=np.float64)
    counts = np.bincount(table.annotator, weight, n)
    tied = np.bincount(table.annotator, weight * (table.outcome == 1), n)
    gap = np.nan_to_num(model.strengths_)[table.left] - np.nan_to_num(model.strengths_)[table.right]
    _, tie, _ = probabilities(gap + model.position_, np.array(model.ties_))
    total = np.maximum(counts, 1e-12)
    width = ndtri(CLEARLY_STRONGER)
    bias, error = model.position_bias_, model.position_bias_se_
    columns: dict[str, Any] = {
        "annotator": table.annotators,
        "kind": np.where(are_models(model, models), "model", "person"),
        "n_comparisons": counts,
        "reliability": model.reliability_,
        "reliability_low": model.reliability_ - width * model.reliability_se_,
        "reliability_high": model.reliability_ + width * model.reliability_se_,
        "left_between_equals": expit(bias),
        "left_low": expit(bias - width * error),
        "left_high": expit(bias + width * error),
        "ties": tied / total,
        "ties_expected": np.bincount(table.annotator, weight * tie, n) / total,
    }
    columns["look"] = np.array(
        [", ".join(each) or None for each in reasons(columns, bool(model.reliability_variance_))],
        dtype=object,
    )
    kept = np.flatnonzero(counts > 0)
    kept = kept[np.argsort(-counts[kept], kind="stable")]
    return {name: plain(np.asarray(values)[kept]) for name, values in columns.items()}


WEAKER, RANDOM, LEFT, RIGHT = (
    "prefers the weaker item",
    "near random",
    "prefers left",
    "prefers right",
)
"""Reasons to look at the answers of an annotator."""

LOW_RELIABILITY = 0.5
"""An annotator is "near random" if the 95 % interval of the reliability includes 0 and ends below
this value."""


def reasons(columns: Columns, differ: bool) -> list[list[str]]:
    """Return, for each annotator, the reasons to look at the answers, from 95 % intervals.

    Parameters
    ----------
    columns : dict
        Those of `annotator_columns`.
    differ : bool
        Whether annotators have reliabilities of their own.

    Returns
    -------
    list of list of str
        For each annotator, some of the four reasons above; often none.
    """
    found = []
    names = ("reliability_low", "reliability_high", "left_low", "left_high")
    for low, high, left_low, left_high in zip(*(columns[name] for name in names), strict=True):
        mine = []
        if differ and high < 0:
            mine.append(WEAKER)
        elif differ and low < 0 and high < LOW_RELIABILITY:
            mine.append(RANDOM)
        if left_low > 0.5:
            mine.append(LEFT)
        elif left_high < 0.5:
            mine.append(RIGHT)
        found.append(mine)
    return found


def are_models(model: BradleyTerry, models: Any = None) -> BoolArray:
    """Return the mask of the annotators that are language models.

    Raises
    ------
    AnnotationError
        If ``models`` names somebody who compared nothing.
    """
    people = model.annotators_
    if models is None:
        return undeclared_models(None, people)
    names = {str(name) for name in models}
    strangers = sorted(names - {str(each) for each in people.tolist()})
    if strangers:
        raise AnnotationError(
            f"models holds {strangers[0]!r}, who compared nothing; the annotators are "
            f"{', '.join(map(repr, people[:6].tolist()))}{' ...' if len(people) > 6 else ''}"
        )
    return np.array([str(each) in names for each in people.tolist()], dtype=bool)


def pair_columns(model: BradleyTerry, most: int = 10) -> Columns:
    """Return the columns of the pairs whose answers fit the ranking worst, the worst first.

    ``won`` counts the wins of ``item`` over ``other``, ties as half. ``expected`` is the number
    that the model expects from the annotators who answered, and ``z`` the difference in standard
    errors.
    """
    table = model.table_.take(model.table_.weight > 0)
    a = model.reliability_[table.annotator]
    strengths = np.nan_to_num(model.strengths_)
    eta = a * (strengths[table.left] - strengths[table.right])
    eta = eta + model.position_bias_[table.annotator]
    left, tie, right = probabilities(eta, model.tie_tendency_[table.annotator])
    weight = np.asarray(table.weight, dtype=np.float64)
    n = table.n_items
    low, high = np.minimum(table.left, table.right), np.maximum(table.left, table.right)
    keys, pair = np.unique(low.astype(np.int64) * n + high, return_inverse=True)
    toward = table.left == low
    won = np.where(table.outcome == 1, 0.5, (table.outcome == 0) == toward)
    hoped = np.where(toward, left, right) + tie / 2
    variance = (left + right - (left - right) ** 2) / 4
    k = len(keys)
    sums = [np.bincount(pair, weight * values, k) for values in (won, hoped, variance)]
    z = (sums[0] - sums[1]) / np.sqrt(np.maximum(sums[2], 1e-9))
    answers = np.bincount(pair, weight, k)
    worst = np.argsort(-np.abs(z), kind="stable")[:most]
    more = z[worst] > 0  # "item" is the one that won more often than expected.
    first, second = keys[worst] // n, keys[worst] % n
    columns: dict[str, Any] = {
        "item": table.items[np.where(more, first, second)],
        "other": table.items[np.where(more, second, first)],
        "n_comparisons": answers[worst],
        "won": np.where(more, sums[0][worst], answers[worst] - sums[0][worst]),
        "expected": np.where(more, sums[1][worst], answers[worst] - sums[1][worst]),
        "z": np.abs(z[worst]),
    }
    return {name: plain(values) for name, values in columns.items()}


def next_columns(pairs: NextPairs) -> Columns:
    """Return the columns of the distinct pairs to compare next, the most informative first.

    ``times`` is how often to ask about each pair, and ``gain`` the information of all its answers.
    """
    seen: dict[frozenset[Any], int] = {}
    rows: list[list[Any]] = []
    for k, (left, right) in enumerate(pairs):
        place = seen.setdefault(frozenset((left, right)), len(rows))
        if place == len(rows):
            chances = (pairs.p_left[k], pairs.p_tie[k], pairs.p_right[k])
            rows.append([left, right, 0, 0.0, *map(float, chances)])
        rows[place][2] += 1
        rows[place][3] += float(pairs.gain[k])
    rows.sort(key=lambda row: -row[3])
    names = ("left", "right", "times", "gain", "p_left", "p_tie", "p_right")
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return {name: plain(values) for name, values in columns}


def better_columns(model: BradleyTerry) -> Columns:
    """Return the matrix of `BradleyTerry.better` as columns, strongest first; {} if it has none."""
    if model.covariance_ is None:
        return {}
    order = in_order(model)
    names = [str(item) for item in model.items_[order].tolist()]
    better = model.better()[np.ix_(order, order)]
    np.fill_diagonal(better, np.nan)
    return {"item": list(names)} | {name: plain(better[:, j]) for j, name in enumerate(names)}


def plain(values: Any) -> list[Any]:
    """Return values as a file holds them: None for NaN, whole numbers as integers, seven digits."""
    found: list[Any] = []
    for value in np.asarray(values).tolist():
        if isinstance(value, float):
            if not np.isfinite(value):
                found.append(None)
                continue
            value = (
                int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.7g}")
            )
        found.append(value)
    return found
