"""Posteriors that allow for dependence between annotators: constants, simulations, what n counts.

The constants of `manyhands.inference.dependence` are tried on the 21 real tables of
``benchmarks/aggregation.py``. For "left out", they are chosen anew (lowest mean log loss) without
the tables of a family, and used on these. All parts take a few CPU minutes; the record of a part
holds its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from scipy.special import log_softmax

from benchmarks.bars import Bar, bars
from benchmarks.real_tables import LOADERS, TABLES, Task, load
from evidence.pages.quoted import read_rows
from evidence.scores import codes_of
from evidence.scores import scores as scores_of
from evidence.study import of_tables
from evidence.tables import chosen_without, constant_cells, left_out_table, listing, spread
from evidence.tables import table as lines_of
from manyhands import AnnotationTable, DawidSkene, MajorityVote
from manyhands.inference import dawid_skene, dependence, em, identifiability
from manyhands.inference.confusion_em import ConfusionRun, OwnRemoved
from manyhands.inference.confusions import normalise_joint
from manyhands.inference.dependence import (
    DEFAULT_EM,
    LARGEST_RHO,
    PRIOR_MEAN,
    PRIOR_SD,
    Dependence,
    exponents,
    residual_correlation,
)
from manyhands.inference.dependence import measure as measured_rho
from manyhands.inference.identifiability import LEAST_COMPARED, comparisons
from manyhands.inference.probability import normalise_rows
from manyhands.inference.votes import Votes, by_instance, make_votes, vote_shares, weight_of_pairs
from manyhands.metrics import annotator_reliability

FAMILIES = {
    "ms": "music",
    "sp": "sentiment",
    "sp_amt": "sentiment",
    "cf_amt": "cf",
    "zencrowd_us": "zencrowd",
    "zencrowd_in": "zencrowd",
    "trec": "relevance",
}
"""Tables that are left out together, if that is not the table alone."""

Figures = tuple[float, float, float]
"""Accuracy, log loss and calibration error."""


class Case(NamedTuple):
    """A table, with all that is needed to read a posterior with any rho.

    ``rho`` and ``se`` are as measured (0 and infinite if the library does not measure them),
    ``used`` is the rho of `DawidSkene`, ``cap`` that of `capped`. ``joint`` is without the
    instances' own annotations in the confusion matrices, ``kept`` with them.
    """

    name: str
    task: Task
    joint: np.ndarray
    kept: np.ndarray
    exponents: Callable[[float], np.ndarray]
    n: np.ndarray
    rho: float
    se: float
    used: float
    cap: float

    @property
    def table(self) -> AnnotationTable:
        """The table."""
        return self.task.table

    def right(self, labels: np.ndarray) -> float:
        """Share of right labels among those with gold."""
        return float((labels[self.task.known] == self.task.gold).mean())

    def figures(self, posterior: np.ndarray, known: Any = slice(None)) -> Figures:
        """Figures of a posterior of all instances, or of some of those with gold."""
        rows = self.task.known[known]
        return figures(posterior[rows], self.task.gold[known], self.table.classes)

    def scores(self, exponent: np.ndarray) -> Figures:
        """Figures of a read-out."""
        return self.figures(np.exp(log_softmax(exponent[:, None] * self.joint, axis=1)))


def family_of(name: str) -> str:
    """Return the tables that are left out together with a table."""
    return FAMILIES.get(name, name)


def real_case(name: str) -> Case:
    """Fit a real table; the read-out uses the number of subtypes that `DawidSkene` chooses."""
    task = load(name)
    votes = make_votes(task.table, abstentions=True)
    start = vote_shares(votes.answers)
    one = DEFAULT_EM.run(votes, votes.shards(), start)
    is_measured = dependence._is_measurable(votes)
    rho, se = measured_rho(votes, one, DEFAULT_EM) if is_measured else (0.0, np.inf)
    model = DawidSkene().fit(task.table)
    n_subtypes = model.n_subtypes_
    run = one if n_subtypes == 1 else DEFAULT_EM.run(votes, votes.shards(), start, n_subtypes)
    joint = OwnRemoved(run)(votes)
    kept = run.parameters.log_joint(votes, np.ones(votes.n_instances))
    n = by_instance(votes.answers)
    of, cap = partial(exponents, votes), capped(votes, one)
    return Case(name, task, joint, kept, of, n, rho, se, model.dependence_, cap)


def capped(votes: Votes, run: ConfusionRun) -> float:
    """The rule that the measured rho replaces: min(.3, 12 m), with the moment m of the fit itself.

    m is taken over instances with five annotations or more; with fewer than 30 of them, rho is .3.
    """
    answers = votes.answers
    several = answers.select(np.flatnonzero(np.diff(answers.start) >= 5))
    sample = dependence._sample(several, np.random.RandomState(0))
    if sample.n_instances < 30:
        return 0.3
    responses = normalise_rows(run.parameters.responses[:, :, : votes.n_classes])
    posterior = dependence.ConfusionParams(run.parameters.prior, responses).posterior(sample)
    m, _ = residual_correlation(sample, posterior, responses)
    return float(np.clip(12.0 * m, 0.0, 0.3))


def figures(proba: np.ndarray, gold: np.ndarray, classes: Any) -> Figures:
    """Figures of a posterior, as of `manyhands.metrics.calibration`."""
    accuracy, loss, error, _ = scores_of(proba, codes_of(gold, classes)).values()
    return accuracy, loss, error


# -- The other constants of the read-out: half and twice each, and chosen with a family left


Fits = dict[str, Figures]
"""By the name of the table."""

HALVES = {
    "REFERENCE": 0.15, "NEGLIGIBLE": 0.025, "EM_STEPS": 1, "N_SIMULATED": 500, "N_TABLES": 1,
    "N_INSTANCES": 2500, "N_CELLS": 1_000_000, "LEAST_INSTANCES": 5,
}  # fmt: skip
"""The other constants of `manyhands.inference.dependence`, and half of each (rounded down)."""

STANDARD_ERRORS = 2.0
"""Of rho, from which on mistakes may be correlated, so that subtypes are tried."""


def sensitivity(cases: list[Case]) -> Iterator[str]:
    """Yield figures with half and twice each of the other constants; fits are anew."""
    as_is = fit(cases)
    rows = []
    for name, value, half, twice in changes(cases):
        runs = {"as is": as_is, "half": half(), "twice": twice()}
        rows.append([name, value, *constant_cells(runs, family_of)])
    heads = ["constant", "value", "as is", "half", "twice", "family left out", "chosen there"]
    yield from lines_of(heads, rows)
    tables = {case.name: case.table for case in cases}
    entries = {name: table.n_annotators * table.n_classes**2 for name, table in tables.items()}
    most = max(entries, key=lambda name: entries[name])
    yield (
        f"`N_PARAMETERS` ({dependence.N_PARAMETERS:,}) is no statistical constant but a limit of "
        "cost: confusion matrices with more entries (annotators × classes²) are not held in memory "
        "to measure rho, and the mean of its prior is used. It cannot matter on these tables, of "
        f"which {most} has the most entries, {entries[most]:,}."
    )


def changes(cases: list[Case]) -> Iterator[tuple[str, str, Callable[[], Fits], Callable[[], Fits]]]:
    """Yield each constant, its value, and the fits with half and with twice as much."""

    def patched(module: Any, name: str, value: Any) -> Callable[[], Fits]:
        def run() -> Fits:
            with mock.patch.object(module, name, value):
                return fit(cases)

        return run

    for name, half in HALVES.items():
        value = getattr(dependence, name)
        pair = (patched(dependence, name, each) for each in (half, 2 * value))
        yield name, f"{value:,}", *pair
    pair = (patched(dawid_skene, "estimate", judged_by(STANDARD_ERRORS * k)) for k in (0.5, 2))
    yield "standard errors", f"{STANDARD_ERRORS:g}", *pair
    tol = DEFAULT_EM.tol
    yield "EM's tol", f"{tol:g}", lambda: fit(cases, tol=tol / 2), lambda: fit(cases, tol=2 * tol)
    growth, most = em.STEP_GROWTH, em.GREATEST_STEP
    more = (1 + (growth - 1) * k for k in (0.5, 2))
    yield "STEP_GROWTH", f"{growth:g}", *(patched(em, "STEP_GROWTH", g) for g in more)
    steps = (patched(em, "GREATEST_STEP", most * k) for k in (0.5, 2))
    yield "GREATEST_STEP", f"{most:g}", *steps
    shares = (patched(dependence, "LIKELY", dependence.LIKELY * k) for k in (0.5, 2))
    yield "LIKELY", f"{dependence.LIKELY:g}", *shares


def judged_by(n_errors: float) -> Callable[..., Dependence]:
    """`dependence.estimate`, in which rho is plausible from so many standard errors on."""

    def estimate(votes: Any, run: Any, em: Any) -> Dependence:
        found = dependence.estimate(votes, run, em)
        if not dependence._is_measurable(votes):
            return found
        rho, se = dependence.measure(votes, run, em)
        is_plausible = rho > max(n_errors * se, dependence.NEGLIGIBLE) or not np.isfinite(se)
        return replace(found, is_plausible=is_plausible)

    return estimate


def fit(cases: list[Case], **parameters: Any) -> Fits:
    """Figures of `DawidSkene` on each table."""
    models = ((case, DawidSkene(**parameters).fit(case.table)) for case in cases)
    return {case.name: case.figures(model.posterior_) for case, model in models}


# -- Lone annotators: from which share of compared instances on their labels are estimated


COMPARED = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4)
"""Values of `LEAST_COMPARED` that are tried."""
SHARES = (0.01, 0.035, 0.07, 0.15, 0.3)
"""Shares of instances that keep all annotations; between the values that are tried."""
THINNINGS = range(3)
COLLAPSED = 0.2
"""A class has so much more than its share of the instances."""


def lone(cases: list[Case]) -> Iterator[str]:
    """Yield log loss by `LEAST_COMPARED`, of tables where most instances have one annotation."""
    losses: dict[float, dict[str, float]] = {least: {} for least in COMPARED}
    by_share: dict[float, list[list[tuple[float, ...]]]] = {s: [] for s in SHARES}
    for case in cases:
        found = []
        for share in SHARES:
            for seed in THINNINGS:
                compared, fits = known_or_not(case, share, seed)
                found.append([fits[compared < least][1] for least in COMPARED])
                by_share[share].append(fits)
        for least, values in zip(COMPARED, np.transpose(found), strict=True):
            losses[least][case.name] = float(values.mean())
    yield from left_out_table(losses, LEAST_COMPARED, family_of)
    yield (
        "The next table has accuracy / log loss / ECE, means over the tables, by the share of "
        "instances that keep all annotations. The labels of lone annotators are estimated like "
        "all others, or taken as known. A fit *collapses* if a class gets more than "
        f"{100 * COLLAPSED:.0f} % of the instances above its share by gold; the last columns count "
        "the draws in which this happens.\n"
    )
    rows = []
    for share, fits_of in by_share.items():
        means = np.mean(fits_of, axis=0)
        shown = [" / ".join(f"{x:.3f}" for x in mean[:3]) for mean in means]
        counts = (np.array(fits_of)[:, :, 3] > COLLAPSED).sum(axis=0)
        rows.append([f"{share:g}", *shown, *(f"{n} of {len(fits_of)}" for n in counts)])
    heads = ["estimated", "taken as known", "collapsed, estimated", "collapsed, taken as known"]
    yield from lines_of(["share", *heads], rows)
    shares = {case.name: share_compared(case.table) for case in cases}
    least = min(shares, key=lambda name: shares[name])
    yield (
        "On the tables as they are, the constant cannot matter: the lowest share of compared "
        f"instances is {shares[least]:.2f} ({least})."
    )


def known_or_not(case: Case, share: float, seed: int) -> tuple[float, list[tuple[float, ...]]]:
    """Return the share of compared instances, and figures with isolated labels known or not.

    The last figure is the greatest excess of a class over its share by gold.
    """
    table = mostly_alone(case.table, share, seed)
    fits = []
    for least in (0.0, 1.0):
        with mock.patch.object(identifiability, "LEAST_COMPARED", least):
            posterior = DawidSkene().fit(table).posterior_
        named, gold = table.classes[posterior[case.task.known].argmax(axis=1)], case.task.gold
        excess = max((named == c).mean() - (gold == c).mean() for c in table.classes)
        fits.append((*case.figures(posterior), float(excess)))
    return share_compared(table), fits


def mostly_alone(table: AnnotationTable, share: float, seed: int) -> AnnotationTable:
    """Keep all annotations of a share of the instances, and one of each other."""
    rng = np.random.default_rng(seed)
    kept = rng.random(table.n_instances) < share
    order = rng.permutation(table.n_annotations)
    _, first = np.unique(table.instance[order], return_index=True)
    stays = kept[table.instance]
    stays[order[first]] = True
    return table.take(np.flatnonzero(stays))


def share_compared(table: AnnotationTable) -> float:
    """Share of the annotated instances that two annotators annotated."""
    found = comparisons(make_votes(table))
    return found.compared / found.annotated


# -- How near the inferred accuracy of annotators is to their accuracy by gold


MODELS = {"default": {}, "plain": {"dependence": 0}}


def annotators(cases: list[Case]) -> Iterator[str]:
    """Yield error, bias and coverage, table by table; annotations weigh the same."""
    rows, found = [], []
    for case in cases:
        table, known = case.table[case.task.known], case.task.y[case.task.known]
        gold = np.eye(table.n_classes)[known]
        right = annotator_reliability(table, gold).accuracy
        cells = []
        for options in MODELS.values():
            posterior = DawidSkene(**options).fit(case.table).posterior_[case.task.known]
            n, accuracy, lower, upper = annotator_reliability(table, posterior)
            seen = n > 0
            apart = accuracy[seen] - right[seen]
            covers = (lower[seen] <= right[seen]) & (right[seen] <= upper[seen])
            each = (np.abs(apart), apart, covers)
            cells.append([np.average(values, weights=n[seen]) for values in each])
        found.append(cells)
        rows.append([case.name, f"{seen.sum():,}", f"{n.sum():,}", *shown(cells)])
    rows.append(["mean", "", "", *shown(np.mean(found, axis=0))])
    heads = [f"{m}: {what}" for m in MODELS for what in ("error", "bias", "coverage")]
    yield from lines_of(["table", "annotators", "annotations", *heads], rows)


def shown(cells: list[list[float]]) -> list[str]:
    """Format the figures of the models."""
    return [text for e, b, covers in cells for text in (f"{e:.3f}", f"{b:+.3f}", f"{covers:.2f}")]


# -- Simulated crowds of `posteriors.py`, and what counts as an annotation


SEEDS = range(5)


class Crowd(NamedTuple):
    """A simulated table and its true classes."""

    table: AnnotationTable
    y: np.ndarray


def crowd(
    seed: int,
    *,
    n_classes: int,
    per_instance: int,
    n: int = 1000,
    n_annotators: int = 40,
    kind: str = "independent",
    skew: float | None = None,
) -> Crowd:
    """Simulate annotators with their own confusion matrices, accuracy Beta(6, 2.5).

    Kinds: "independent"; "spam" (40 % guess) and "adversaries" (20 % are right in 15 %); "bias"
    (class 0 is taken for class 1 in 45 %); "difficult" (25 % of the instances are little better
    than guessed); "asymmetric" (40 % of the instances of class 1 are taken for class 0 in 55 %);
    "decoy" (on 25 % of the instances, 60 % of the annotations name the same wrong class).
    """
    rng = np.random.default_rng(seed)
    prior = np.full(n_classes, 1 / n_classes) if skew is None else np.array([skew, 1 - skew])
    y = rng.choice(n_classes, size=n, p=prior)
    accuracy = rng.beta(6, 2.5, n_annotators)
    if kind == "spam":
        accuracy[: int(0.4 * n_annotators)] = 1 / n_classes
    if kind == "adversaries":
        accuracy[: int(0.2 * n_annotators)] = 0.15
    confusion = rng.dirichlet(np.ones(n_classes - 1), size=(n_annotators, n_classes))
    full = np.zeros((n_annotators, n_classes, n_classes))
    for c in range(n_classes):
        full[:, c, np.arange(n_classes) != c] = (1 - accuracy)[:, None] * confusion[:, c]
        full[:, c, c] = accuracy
    if kind == "bias":
        full[:, 0] = [0.55, 0.45, *[0.0] * (n_classes - 2)]
    who = np.argsort(rng.random((n, n_annotators)), axis=1)[:, :per_instance]
    rows = full[who, y[:, None]]
    hard = rng.random(n) < 0.25
    if kind == "difficult":
        rows[hard] = (1 - 0.1) / n_classes + 0.1 * np.eye(n_classes)[y[hard]][:, None, :]
    if kind == "asymmetric":
        rows[(y == 1) & (rng.random(n) < 0.4)] = [0.55, 0.45, *[0.0] * (n_classes - 2)]
    labels = (rows.cumsum(axis=2) < rng.random((n, per_instance, 1))).sum(axis=2)
    labels = np.minimum(labels, n_classes - 1)
    if kind == "decoy":
        misled = hard[:, None] & (rng.random(labels.shape) < 0.6)
        labels = np.where(misled, ((y + 1) % n_classes)[:, None], labels)
    instance = np.repeat(np.arange(n), per_instance)
    sizes = {"n_instances": n, "n_annotators": n_annotators}
    return Crowd(_table(instance, who, labels, n_classes, **sizes), y)


def _table(instance: Any, annotator: Any, label: Any, n_classes: int, **more: Any) -> Any:
    return AnnotationTable.from_arrays(
        np.ravel(instance), np.ravel(annotator), np.ravel(label), classes=range(n_classes), **more
    )


CROWDS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "4 classes × 5 annotations": (4, 5, {}),
    "2 × 10": (2, 10, {}),
    "2 × 20": (2, 20, {}),
    "2 × 3": (2, 3, {}),
    "2 × 2": (2, 2, {}),
    "10 × 4": (10, 4, {}),
    "10 × 3": (10, 3, {}),
    "10 × 4, 200 annotators": (10, 4, {"n_annotators": 200}),
    "50 × 5": (50, 5, {"n_annotators": 20}),
    "100 × 5": (100, 5, {"n_annotators": 20}),
    "2 × 5, 99:1": (2, 5, {"skew": 0.99}),
    "4 × 8, 40 % spammers": (4, 8, {"kind": "spam"}),
    "3 × 8, 20 % adversaries": (3, 8, {"kind": "adversaries"}),
    "3 × 6, one class misread by all": (3, 6, {"kind": "bias"}),
    "*3 × 6, difficult instances*": (3, 6, {"kind": "difficult"}),
    "*2 × 6, difficult instances of one class*": (2, 6, {"kind": "asymmetric", "skew": 0.6}),
    "*4 × 6, shared decoys*": (4, 6, {"kind": "decoy"}),
    "*2 × 20, shared decoys*": (2, 20, {"kind": "decoy"}),
    "*10 × 3, shared decoys*": (10, 3, {"kind": "decoy"}),
}
"""Classes, annotations per instance, and what else differs."""


def cap_of(table: AnnotationTable) -> float:
    """Rho by `capped`."""
    votes = make_votes(table)
    return capped(votes, DEFAULT_EM.run(votes, votes.shards(), vote_shares(votes)))


def simulations() -> Iterator[str]:
    """Yield one row per simulated crowd."""
    rows = []
    for name, (classes, votes, more) in CROWDS.items():
        cells = []
        for seed in SEEDS:
            table, y = crowd(seed, n_classes=classes, per_instance=votes, **more)
            shares = MajorityVote(soft=False, ties="distribute").fit(table).posterior_
            after = DawidSkene().fit(table)
            before = DawidSkene(dependence=0).fit(table)
            others = [
                DawidSkene(dependence=rho, n_subtypes=after.n_subtypes_).fit(table)
                for rho in (cap_of(table), 0.25)
            ]
            found = [
                figures(m.posterior_, y, np.arange(table.n_classes))
                for m in (before, after, *others)
            ]
            accuracies, losses, errors = np.transpose(found)
            majority = shares[np.arange(len(y)), y].mean()
            cells.append([after.dependence_, majority, *accuracies[:2], *losses, *errors])
        rows.append([name, *(spread(values, 3) for values in np.transpose(cells))])
    rules = ("independent", "default", "min(.3, 12 m)", "0.25")
    # One table for each kind of figure: all in one would be wider than the page.
    heads = ["crowd", "rho", *(f"accuracy: {rule}" for rule in ("majority", *rules[:2]))]
    yield from lines_of(heads, [row[:5] for row in rows])
    for what, first in (("log loss", 5), ("ECE", 9)):
        heads = ["crowd", *(f"{what}: {rule}" for rule in rules)]
        yield from lines_of(heads, [[row[0], *row[first : first + 4]] for row in rows])


# -- what n counts ---------------------------------------------------------------------------------


def repeated(seed: int, same: float) -> Crowd:
    """Everyone is asked twice, and repeats the first answer with probability ``same``."""
    settings = {"n_classes": 3, "per_instance": 5}
    first, y = crowd(seed, **settings)
    second, _ = crowd(seed, **settings)
    rng = np.random.default_rng(seed + 100)
    accuracy = np.random.default_rng(seed).beta(6, 2.5, 40)
    wrong = (y[second.instance] + rng.integers(1, 3, second.n_annotations)) % 3
    is_right = rng.random(second.n_annotations) < accuracy[second.annotator]
    fresh = np.where(is_right, y[second.instance], wrong)
    again = np.where(rng.random(len(fresh)) < same, first.label, fresh)
    twice = np.tile([first.instance, first.annotator], 2)
    sizes = {"n_instances": len(y), "n_annotators": 40, "duplicates": "keep"}
    return Crowd(_table(*twice, np.concatenate([first.label, again]), 3, **sizes), y)


def weighted(seed: int, weight: float) -> Crowd:
    """Every annotation has the same weight."""
    table, y = crowd(seed, n_classes=3, per_instance=5)
    weights = np.full(table.n_annotations, weight)
    sizes = {"n_instances": table.n_instances, "n_annotators": table.n_annotators}
    made = _table(table.instance, table.annotator, table.label, 3, **sizes, weight=weights)
    return Crowd(made, y)


def family(seed: int) -> Crowd:
    """Beside five annotators, a family of five copies one another in 80 %, and is declared."""
    table, y = crowd(seed, n_classes=3, per_instance=5)
    rng = np.random.default_rng(seed + 100)
    common = np.where(rng.random(len(y)) < 0.65, y, (y + rng.integers(1, 3, len(y))) % 3)
    own = np.where(rng.random((len(y), 5)) < 0.65, y[:, None], (y[:, None] + 1) % 3)
    machine = np.where(rng.random(own.shape) < 0.8**0.5, common[:, None], own)
    instance = np.concatenate([table.instance, np.repeat(np.arange(len(y)), 5)])
    annotator = np.concatenate([table.annotator, np.tile(np.arange(40, 45), len(y))])
    label = np.concatenate([table.label, machine.ravel()])
    mixed = _table(instance, annotator, label, 3, n_instances=len(y), n_annotators=45)
    return Crowd(mixed.with_groups(dict.fromkeys(range(40, 45), "machines")), y)


def abstaining(seed: int, *, informative: bool) -> Crowd:
    """Many abstain: 40 % anywhere, or 90 % on instances of class 0 and 15 % on the others."""
    table, y = crowd(seed, n_classes=3, per_instance=8)
    rng = np.random.default_rng(seed + 100)
    rate = np.where(y[table.instance] == 0, 0.9, 0.15) if informative else 0.4
    cells = table.to_matrix().astype(object)
    silent = rng.random(table.n_annotations) < rate
    cells[table.instance[silent], table.annotator[silent]] = "unsure"
    cells[cells == -1] = None
    return Crowd(AnnotationTable.from_matrix(cells, classes=range(3), abstain="unsure"), y)


COUNTED: dict[str, Callable[[int], Crowd]] = {
    "asked twice, answers independent": partial(repeated, same=0.0),
    "asked twice, half the answers repeated": partial(repeated, same=0.5),
    "asked twice, all answers repeated": partial(repeated, same=1.0),
    "all weights 2": partial(weighted, weight=2.0),
    "all weights .5": partial(weighted, weight=0.5),
    "a declared family of five": family,
    "abstentions that tell nothing": partial(abstaining, informative=False),
    "abstentions that tell the class": partial(abstaining, informative=True),
}


def self_agreement(votes: Votes, run: ConfusionRun) -> float:
    """Share of the second answers of a pair that repeat the first, beyond agreement by chance.

    By chance, two answers agree as often as the confusion matrices expect. Five repeated answers
    stand for what is expected of people.
    """
    pairs = votes.instance.astype(np.int64) * votes.n_annotators + votes.annotator
    order = np.argsort(pairs, kind="stable")
    again = np.flatnonzero(np.diff(pairs[order]) == 0)
    one, other = order[again], order[again + 1]
    power = (run.parameters.responses**2).sum(axis=2)[votes.annotator[one]]
    chance = (run.parameters.posterior(votes)[votes.instance[one]] * power).sum(axis=1)
    same = votes.response[one] == votes.response[other]
    share = ((same - chance).sum() + 5.0) / ((1.0 - chance).sum() + 5.0)
    return float(np.clip(share, 0.0, 1.0))


def by_self_agreement(votes: Votes, rho: float, share: float) -> np.ndarray:
    """Exponents that count w answers of a pair w / (1 + (w - 1) share) times, not once."""
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    pairs = weight_of_pairs(votes)
    counts = np.where(pairs > 1.0, pairs / (1.0 + (pairs - 1.0) * share), pairs)
    independent = by_instance(replace(votes, weight=None), weight / pairs * counts)
    n = np.maximum(by_instance(votes), 1e-12)
    return independent / n / (1.0 + np.maximum(independent - 1.0, 0.0) * rho)


def repeats_of(cases: list[Case]) -> Iterator[str]:
    """Yield the same rules on the real tables where annotators were asked twice."""
    rows = []
    for case in cases:
        votes = make_votes(case.table)
        n_pairs = len(np.unique(votes.instance * np.int64(votes.n_annotators) + votes.annotator))
        if n_pairs == votes.n_annotations:
            continue
        share = self_agreement(votes, DEFAULT_EM.run(votes, votes.shards(), vote_shares(votes)))
        rho = case.used
        cells = [case.scores(by_self_agreement(votes, rho, s)) for s in (1.0, share, 0.0)]
        shown = [f"{loss:.4f} / {ece:.4f}" for _, loss, ece in cells]
        rows.append([case.name, f"{votes.n_annotations - n_pairs:,}", f"{share:.2f}", *shown])
    heads = ["table", "repeated annotations", "repeating themselves", "once (ours)"]
    yield from lines_of([*heads, "by how far they repeat themselves", "fully"], rows)


def counted() -> Iterator[str]:
    """Yield log loss and calibration error of rules for n; rho is that of the default."""
    rows = []
    for name, make in COUNTED.items():
        cells = []
        for seed in SEEDS:
            table, y = make(seed)
            votes = make_votes(table, abstentions=True)
            run = DEFAULT_EM.run(votes, votes.shards(), vote_shares(votes.answers))
            rho = DawidSkene(n_subtypes=1).fit(table).dependence_
            totals = by_instance(votes.answers), by_instance(votes)
            by_weight = [1.0 / (1.0 + np.maximum(n - 1.0, 0.0) * rho) for n in totals]
            rules = [exponents(votes, rho), *by_weight, exponents(votes, rho)]
            if "asked twice" in name:
                rules[-1] = by_self_agreement(votes, rho, self_agreement(votes, run))
            joint = OwnRemoved(run)(votes)
            found = [
                figures(normalise_joint(votes, joint.copy(), rule)[0], y, np.arange(3))
                for rule in rules
            ]
            cells.append([rho, *(x for cell in found for x in cell[1:])])
        rho, *values = np.mean(cells, axis=0)
        pairs = zip(values[::2], values[1::2], strict=True)
        rows.append([name, f"{rho:.2f}", *(f"{loss:.3f} / {ece:.3f}" for loss, ece in pairs)])
    heads = ["crowd", "rho", "annotators (ours)", "total weight", "total weight, abstentions too"]
    yield from lines_of([*heads, "by how far they repeat themselves"], rows)


GRID = list(product((0.15, 0.2, 0.25, 0.3), (0.1, 0.15, 0.2), (0.3, 0.4, 0.5)))
"""Mean and standard deviation of the prior on rho, and its upper limit."""
N_ORDERS = 20


def shrunk(case: Case, mean: float, sd: float, upper: float) -> float:
    """Estimate rho with other constants."""
    weight = 1.0 / max(case.se, 1e-6) ** 2
    value = (weight * case.rho + mean / sd**2) / (weight + 1.0 / sd**2)
    return float(np.clip(value, 0.0, upper))


def constants(cases: list[Case]) -> Iterator[str]:
    """Yield the table of rules on the real tables."""
    ours = mean, sd, most = (PRIOR_MEAN, PRIOR_SD, LARGEST_RHO)
    everywhere = {f"{rho} for all tables": (lambda c, rho=rho: rho) for rho in (0.2, 0.25, 0.3)}
    rules: dict[str, Callable[[Case], float]] = {
        "0 (independent; own annotations removed)": lambda c: 0.0,
        **everywhere,
        "none: exponent n^-1/2": lambda c: np.nan,
        "min(.3, 12 m), which the measured rho replaced": lambda c: c.cap,
        "measured, no prior, at most .5": lambda c: (
            float(np.clip(c.rho, 0, 0.5)) if np.isfinite(c.se) else PRIOR_MEAN
        ),
        f"**measured, prior N({mean}, {sd}²), at most {most}**": lambda c: shrunk(c, *ours),
    }

    def read(case: Case, rho: float) -> Figures:
        exponent = np.maximum(case.n, 1.0) ** -0.5 if np.isnan(rho) else case.exponents(rho)
        return case.scores(exponent)

    found = {name: [read(case, rule(case)) for case in cases] for name, rule in rules.items()}
    found["measured, own annotations kept"] = [
        read(case._replace(joint=case.kept), shrunk(case, *ours)) for case in cases
    ]
    tried = {setting: [read(case, shrunk(case, *setting)) for case in cases] for setting in GRID}
    by_name = {s: dict(zip([c.name for c in cases], own, strict=True)) for s, own in tried.items()}
    chosen = chosen_without(
        by_name, family_of, lambda own, s: np.mean([figures[1] for figures in own.values()])
    )
    found["measured, constants chosen with the family left out"] = [
        by_name[setting][name] for name, setting in chosen.items()
    ]
    worst = max(GRID, key=lambda s: np.mean(np.array(tried[s])[:, 1]))
    found[f"measured, worst constants of the grid {worst}"] = tried[worst]
    found["best for each table (oracle)"] = [
        min((read(case, rho) for rho in np.linspace(0, 1, 21)), key=lambda s: s[1])
        for case in cases
    ]
    means = {name: np.mean(cells, axis=0) for name, cells in found.items()}
    rows = [[name, f"{m[0]:.4f}", f"{m[1]:.3f}", f"{m[2]:.3f}"] for name, m in means.items()]
    yield from lines_of(["rule for rho", "accuracy", "log loss", "ECE"], rows)
    settings = ", ".join(map(str, sorted({*chosen.values()})))
    yield f"Chosen with a family left out (mean, sd, limit): {settings}."


def by_table(cases: list[Case]) -> list[str]:
    """Measured and best rho, table by table."""

    def best(case: Case) -> float:
        return min(np.linspace(0, 1, 21), key=lambda rho: case.scores(case.exponents(rho))[1])

    return listing(cases, {
        "table": lambda c: c.name,
        "classes": lambda c: c.table.n_classes,
        "annotations per instance": lambda c: f"{c.n.mean():.1f}",
        "measured rho ± se": lambda c: (
            f"{c.rho:.2f} ± {c.se:.2f}" if np.isfinite(c.se) else "not measured"
        ),
        "used": lambda c: f"{c.used:.2f}",
        "best by gold (oracle)": lambda c: f"{best(c):.2f}",
    })  # fmt: skip


def with_gold(cases: list[Case]) -> Iterator[str]:
    """Yield log loss and ECE of the instances without gold, by how rho is found."""
    heads = [
        "gold labels", "tables", "no gold", "gold, rho without it", "gold, rho from it",
        "log loss lower than with rho without it",
    ]  # fmt: skip
    rows = []
    for g in (20, 50, 100):
        cells = []
        for case in cases:
            task, table = case.task, case.table
            if len(task.gold) < 2 * g:
                continue
            plain = DawidSkene().fit(table)
            settings = {"dependence": plain.dependence_, "n_subtypes": plain.n_subtypes_}
            drawn = []
            for seed in range(3):
                chosen = np.random.default_rng(seed).permutation(len(task.gold))
                known, rest = chosen[:g], np.sort(chosen[g:])
                ids = table.instances[task.known[known]].tolist()
                gold = dict(zip(ids, task.gold[known].tolist(), strict=True))
                fits = [DawidSkene(**own).fit(table, gold=gold) for own in (settings, {})]
                drawn.append([case.figures(m.posterior_, rest) for m in (plain, *fits)])
            cells.append(np.mean(drawn, axis=0))
        mean = np.mean(cells, axis=0)
        shown = [f"{loss:.3f} / {ece:.3f}" for _, loss, ece in mean]
        better = sum(cell[2, 1] < cell[1, 1] for cell in cells)
        rows.append([str(g), str(len(cells)), *shown, f"{better} of {len(cells)}"])
    yield from lines_of(heads, rows)


def modes(cases: list[Case]) -> Iterator[str]:
    """Yield accuracy, and the share of labels that differ, of plain EM with a small tolerance."""
    kinds: dict[str, dict[str, Any]] = {
        "1 subtype": {"n_subtypes": 1},
        "2 subtypes": {"n_subtypes": 2},
        "chosen": {},
    }
    what = ("accuracy", "differ", "at 1e-6")
    rows, all_shares = [], []
    for case in cases:
        row, shares = [case.name], []
        for kind, options in kinds.items():
            long = {"max_iter": 5000, "tol": 1e-6, **options}
            slow, ours, fast = (
                DawidSkene(**chosen).fit(case.table)
                for chosen in ({**long, "accelerate": False}, options, long)
            )
            accuracies = [
                (m.labels_[case.task.known] == case.task.gold).mean() for m in (slow, ours)
            ]
            pair = [(slow.labels_ != m.labels_).mean() for m in (ours, fast)]
            of = f" ({slow.n_subtypes_} → {ours.n_subtypes_})" if kind == "chosen" else ""
            row += [f"{accuracies[0]:.4f} → {accuracies[1]:.4f}{of}", *(f"{s:.2%}" for s in pair)]
            shares += [abs(accuracies[1] - accuracies[0]), *pair]
        rows.append(row)
        all_shares.append(shares)
    greatest = np.max(all_shares, axis=0)
    shown = [f"{x:.2%}" if k % 3 else f"{x:.4f}" for k, x in enumerate(greatest)]
    heads = ["table", *(f"{kind}: {name}" for kind in kinds for name in what)]
    yield from lines_of(heads, [*rows, ["greatest difference", *shown]])


def orders(cases: list[Case]) -> Iterator[str]:
    """Yield rho, subtypes, probabilities and labels of the same tables in other orders."""
    rows, all_moves, n_same, n_changed = [], [], 0, 0
    for case in cases:
        table = case.table
        plain = DawidSkene().fit(table)
        rho, subtypes, moves = [], [], []
        for seed in range(N_ORDERS):
            order = np.random.default_rng(seed).permutation(table.n_instances)
            model = DawidSkene().fit(table[order])
            rho.append(model.dependence_)
            subtypes.append(model.n_subtypes_)
            back = np.argsort(order)
            move = np.abs(model.posterior_[back] - plain.posterior_).max()
            labels = model.labels_[back]
            if model.n_subtypes_ == plain.n_subtypes_:
                n_same, n_changed = n_same + 1, n_changed + int((labels != plain.labels_).any())
            right = [
                (found[case.task.known] == case.task.gold).mean()
                for found in (labels, plain.labels_)
            ]
            moves.append([move, (labels != plain.labels_).mean(), abs(right[0] - right[1])])
        greatest = np.max(moves, axis=0)
        spread = np.std(rho, ddof=1)
        all_moves.append([spread, *greatest])
        rows.append([
            case.name, f"{plain.dependence_:.3f}", f"{np.mean(rho):.3f} ± {spread:.3f}",
            f"{min(rho):.3f} to {max(rho):.3f}", str(plain.n_subtypes_),
            f"{subtypes.count(2)} of {N_ORDERS}", *_moves(greatest),
        ])  # fmt: skip
    most = np.max(all_moves, axis=0)
    rows.append(["greatest", "", f"± {most[0]:.3f}", "", "", "", *_moves(most[1:])])
    heads = [
        "table", "rho as loaded", "rho, other orders", "range", "subtypes as loaded",
        "two subtypes", "a probability moves by", "labels differ", "accuracy differs by",
    ]  # fmt: skip
    yield from lines_of(heads, rows)
    yield (
        f"In {n_same} fits as many subtypes are chosen as in the order as loaded; in {n_changed} "
        "of these a label differs."
    )


def _moves(greatest: Any) -> list[str]:
    probability, labels, accuracy = greatest
    return [f"{probability:.3f}", f"{labels:.2%}", f"{accuracy:.4f}"]


@cache
def all_cases() -> list[Case]:
    """The real tables, fitted."""
    return [real_case(name) for name in TABLES]


OF_CASES: dict[str, Callable[[list[Case]], Iterator[str]]] = {
    "rule": constants,
    "by-table": by_table,
    "constants": sensitivity,
    "lone": lone,
    "gold": with_gold,
    "annotators": annotators,
    "modes": modes,
    "orders": orders,
    "repeats": repeats_of,
}
ALONE = {"simulations": simulations, "counts": counted}
"""Parts that need no real tables."""


def drawing(page: str) -> str:
    """Draw the log loss with and without an allowance for dependence."""
    loss = {row["rule for rho"]: row["log loss"] for row in read_rows(page, "The rule")}
    shown = {
        "independent annotators": "0 (independent; own annotations removed)",
        "one correlation for all tables": "0.25 for all tables",
        "measured on each table (default)": "measured, prior N(0.25, 0.15²), at most 0.5",
        "best for each table, by gold": "best for each table (oracle)",
    }
    rows = [Bar(k, float(loss[v]), loss[v], "default" in k) for k, v in shown.items()]
    return bars("Log loss of labels, mean over 21 real tables", rows)


STUDY = of_tables(
    __file__,
    {name: partial(lambda make: make(all_cases()), make) for name, make in OF_CASES.items()}
    | ALONE,
    data=lambda cell: [] if cell["part"] in ALONE else ["aggregation", *LOADERS],
    page_drawings=lambda page: {"posteriors-log_loss.svg": drawing(page)},
)


if __name__ == "__main__":
    STUDY.main()
