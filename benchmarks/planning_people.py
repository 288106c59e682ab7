"""Parts of the benchmark of planning about people: audits, screening and teaching."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.planning_parts import TABLES, table_of
from evidence.study import Part, Record, grid
from manyhands import AnnotationTable, DawidSkene
from manyhands.datasets import load_cifar10n, load_labelme, load_music
from manyhands.inference.inputs import gold_codes
from manyhands.metrics import annotator_reliability
from manyhands.metrics.intervals import beta_interval
from manyhands.planning import screen_annotators
from manyhands.planning.beliefs import beliefs_of
from manyhands.planning.pool import Recorded, generator_of
from manyhands.planning.review import _clear

SCREENED = (*TABLES, "adult_content", "relevance", "trec", "web", "zencrowd_us", "sp")
FIRST = {"5": 5, "10": 10, "20": 20, "all": None}
LOADED = {"music": load_music, "labelme": load_labelme, "cifar10n": load_cifar10n}
TAUGHT = ("cf_amt", "dog", "face_sentiment", "web", "adult_content", "relevance", *LOADED)
BINS = (3, 8, 20, 50)
"""Expected errors in the past that part annotators into groups."""


def with_rows(table: AnnotationTable, instance: Any, annotator: Any, label: Any) -> AnnotationTable:
    """The table with other annotations, and all its instances and annotators."""
    columns = {"instance": instance, "annotator": annotator, "label": label}
    return replace(table, **columns, weights=None, sources=None, passes=None)


def some_of(table: AnnotationTable, rows: Any) -> AnnotationTable:
    """Keep some annotations."""
    return with_rows(table, table.instance[rows], table.annotator[rows], table.label[rows])


# -- audits ----------------------------------------------------------------------------------------


def audited(set: str, policy: str, run: int, size: int = 50, draws: int = 200) -> Record:
    """Return how far 50 audited labels are from the truth, and how often the interval holds it.

    There are five annotations per instance.
    """
    table, y = table_of(set)
    rng = np.random.default_rng(run)
    bought, _ = Recorded.of(table, y, 5).begin(generator_of(0, run))
    model = DawidSkene().fit(with_rows(table, *bought[:3]))
    right = (model.labels_ == y)[y >= 0]
    sure = model.posterior_.max(axis=1)[y >= 0]
    shares = np.array([rng.choice(right, size, replace=False).mean() for _ in range(draws)])
    low, high = beta_interval(size * shares + 0.5, size * (1 - shares) + 0.5, level=0.95)
    surest = np.argsort(-sure, kind="stable")[: len(sure) // 2]
    return {
        "accuracy": float(right.mean()),
        "level": float(sure.mean()),
        "error": float(abs(shares - right.mean()).mean()),
        "covers": float(((low <= right.mean()) & (right.mean() <= high)).mean()),
        "wrong_and_sure": float((~right[surest]).sum() / max((~right).sum(), 1)),
    }


# -- screening -------------------------------------------------------------------------------------


def of_screening(runs: range) -> Iterator[Record]:
    """All annotations of everybody once."""
    for run in runs:
        yield from grid(run=[run], set=SCREENED, policy=list(FIRST)[: None if run == 0 else -1])


def screened(set: str, policy: str, run: int) -> Record:
    """Compare what screening says of newcomers with their accuracy on gold.

    A random half of the annotators are newcomers, of whom few annotations are known.
    """
    table, y = table_of(set)
    rng = np.random.default_rng(run)
    scored = y[table.instance] >= 0
    right = (table.label == y[table.instance]) & scored
    n_scored, n_right = (
        np.bincount(table.annotator, each, table.n_annotators) for each in (scored, right)
    )
    known = np.flatnonzero(n_scored >= 30)
    truth = n_right[known] / n_scored[known]
    median = float(np.median(truth))
    if policy != "all":
        new = np.sort(rng.permutation(len(known))[: len(known) // 2])
        known, truth = known[new], truth[new]
        order = rng.permutation(table.n_annotations)
        order = order[np.argsort(table.annotator[order], kind="stable")]
        ends = np.cumsum(table.annotations_per_annotator())
        dropped = [ends_of[FIRST[policy] :] for ends_of in np.split(order, ends[:-1])]
        rows = np.ones(table.n_annotations, dtype=bool)
        rows[np.concatenate([dropped[r] for r in known.tolist()])] = False
        table = some_of(table, rows)
    model = DawidSkene().fit(table)
    found = {row.annotator: row for row in screen_annotators(table, model)}
    rows = [found[table.annotators[r].item()] for r in known.tolist()]
    estimate = np.array([row.accuracy for row in rows])
    agreement = agreement_with_others(table)[known]
    few = max(round(0.1 * len(known)), 1)
    worst = np.argsort(truth, kind="stable")[:few]
    is_worst = np.isin(np.arange(len(known)), worst)
    flagged = np.array(["below the median" in row.flags for row in rows])
    return {
        "n": len(known),
        "by_model": share_of(worst, estimate),
        "by_majority": share_of(worst, agreement),
        "covers": float(np.mean([a.low <= t <= a.high for a, t in zip(rows, truth, strict=True)])),
        "flagged": int(flagged.sum()),
        "flagged_below": int((truth[flagged] < median).sum()),
        "flagged_worst": int((flagged & is_worst).sum()),
        "worst": int(is_worst.sum()),
        "below": int((truth < median).sum()),
        "flags": {
            flag: [round(float(t - median), 3) for row, t in zip(rows, truth, strict=True)
                   if flag in row.flags]
            for flag in ("no better than guessing", "one label", "repeating pattern")
        },
    }  # fmt: skip


def share_of(worst: Any, score: Any) -> float:
    """Share of the worst annotators among as many with the least score."""
    return float(np.isin(np.argsort(score, kind="stable")[: len(worst)], worst).mean())


def agreement_with_others(table: AnnotationTable) -> Any:
    """Share of each annotator's annotations that are the majority's of the others (ties: half)."""
    counts = table.vote_counts()[table.instance].astype(float)
    rows = np.arange(len(counts))
    counts[rows, table.label] -= 1
    leads = counts == counts.max(axis=1, keepdims=True)
    agrees = np.where(counts.sum(axis=1) > 0, leads[rows, table.label] / leads.sum(axis=1), np.nan)
    seen = ~np.isnan(agrees)
    total = np.bincount(table.annotator[seen], agrees[seen], table.n_annotators)
    return total / np.maximum(np.bincount(table.annotator[seen], minlength=table.n_annotators), 1)


# -- annotators with few annotations ---------------------------------------------------------------

FEW = ("duck", "d_sentiment", "sp_amt", "dog", "rte", "temp", "adult_content", "relevance", "trec",
       "web", "sp")  # fmt: skip
"""Those of `SCREENED` in which ten or more annotators have five to nine annotations."""


def few(set: str, policy: str, run: int) -> Record:
    """Compare what is expected of annotators with five to nine annotations with their later ones.

    Three annotations of some instances are on file; the later ones are of all other instances.
    """
    table, y = table_of(set)
    rng = np.random.default_rng(run)
    order = rng.permutation(table.n_annotations)
    order = order[np.argsort(table.instance[order], kind="stable")]
    of_instances = np.split(order, np.cumsum(table.annotations_per_instance())[:-1])
    seen = rng.permutation(table.n_instances)[: round(7 * table.n_annotators / 3)]
    pilot = table.take(np.sort(np.concatenate([of_instances[i][:3] for i in seen])))
    other = ~np.isin(table.instance, seen) & (y[table.instance] >= 0)
    right = other & (table.label == y[table.instance])
    n, n_right = (np.bincount(table.annotator, each, table.n_annotators) for each in (other, right))
    who = np.flatnonzero(np.isin(table.annotators, pilot.annotators))
    model = DawidSkene().fit(pilot)
    profile = annotator_reliability(pilot, model.posterior_)
    found, _ = beliefs_of(model, pilot)
    plan = np.einsum("c,rcc->r", found.prior, found.confusion)
    kept = (profile.n_annotations >= 5) & (profile.n_annotations <= 9) & (n[who] >= 10)
    true = (n_right[who] / np.maximum(n[who], 1))[kept]
    low, high = profile.lower[kept], profile.upper[kept]
    said = {"profile": profile.accuracy[kept], "plan": plan[kept]}
    tied, tenth = rng.permutation(len(true)), max(round(0.1 * len(true)), 1)
    best = {s: tied[np.argsort(-v[tied], kind="stable")][:tenth] for s, v in said.items()}
    return {
        "n": len(true),
        "all": {s: [float(v.mean()), float(true.mean())] for s, v in said.items()},
        "best": {
            s: [float(v[best[s]].mean()), float(true[best[s]].mean())] for s, v in said.items()
        },
        "covers": float(((low <= true) & (true <= high)).mean()),
    }


# -- teaching --------------------------------------------------------------------------------------


def taught(set: str, policy: str, run: int, n_pairs: int = 3) -> Record:
    """Share of later errors that three pairs of classes, known from the past, cover.

    The past is a random half of each annotator's annotations.
    """
    if set in LOADED:
        data = LOADED[set]()
        table = data.annotations
        y = gold_codes(data.y_train, table)
    else:
        table, y = table_of(set)
    rng = np.random.default_rng(run)
    past = rng.random(table.n_annotations) < 0.5
    before, later = some_of(table, past), some_of(table, ~past)
    model = DawidSkene().fit(before)
    found, _ = beliefs_of(model, before)
    off = 1 - np.eye(table.n_classes)
    doubt = 1 - found.posterior[before.instance, before.label]
    errors = np.bincount(before.annotator, doubt, table.n_annotators)
    groups: dict[str, list[list[float]]] = {}
    for r in range(table.n_annotators):
        rows = (later.annotator == r) & (y[later.instance] >= 0)
        made = np.zeros((table.n_classes, table.n_classes))
        np.add.at(made, (y[later.instance[rows]], later.label[rows]), 1)
        made *= off
        if made.sum() < 3:
            continue
        own, common = (
            found.prior[:, None] * each * off for each in (found.confusion[r], found.pooled)
        )
        chance = off * (1 + 0.01 * rng.random(off.shape))
        covered = [
            made.ravel()[np.argsort(-each, axis=None, kind="stable")[:n_pairs]].sum() / made.sum()
            for each in (own, common, chance, made)
        ]
        group = str(int(np.searchsorted(BINS, errors[r], side="right")))
        groups.setdefault(group, []).append(covered)
    active = np.argsort(-before.annotations_per_annotator(), kind="stable")[:10]
    shown = [_clear(model, before, int(r)) & (y >= 0)[:, None] for r in active]
    good = [(np.flatnonzero(c) == y[i]) for each in shown for i, c in enumerate(each) if c.any()]
    return {
        "groups": {k: [len(v), *np.mean(v, axis=0).round(4)] for k, v in groups.items()},
        "examples": float(np.mean(good)) if good else None,
        "classes": table.n_classes,
    }


PARTS = {
    "audit": Part(audited, cells=lambda runs: grid(run=runs, set=TABLES, policy=["50 labels"])),
    "screening": Part(screened, cells=of_screening),
    "few": Part(few, cells=lambda runs: grid(run=runs, set=FEW, policy=["5 to 9"])),
    "teaching": Part(taught, cells=lambda runs: grid(run=runs, set=TAUGHT, policy=["3 pairs"])),
}
