"""Other rules for annotators that share mistakes, to compare the library's with.

Without gold they differ in where the families' weights go, in what a family's vote is, and in how
the families or their correlation are found. With gold they are parts of `GoldCorrected`, and the
confusion matrices of the gold alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from scipy.special import log_softmax, logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from benchmarks.families_tables import (
    BESIDE,
    HAS_FAMILIES,
    PEOPLE,
    Problem,
    by_rho,
    drawn_gold,
    family,
    figures,
    judgebench,
    left_out_with,
    noisy,
    shares_of_votes,
)
from benchmarks.real_tables import load
from evidence.tables import chosen_without, constant_cells, counted, left_out_table
from manyhands import AnnotationTable, DawidSkene, GoldCorrected
from manyhands.annotations.groups import RHO
from manyhands.inference import gold_corrected, gold_samples, shared_mistakes
from manyhands.inference.confusion_em import OwnRemoved
from manyhands.inference.confusions import normalise_joint
from manyhands.inference.dependence import DEFAULT_EM, residual_correlation
from manyhands.inference.families import family_codes
from manyhands.inference.gold_corrected import Design, priors
from manyhands.inference.shared_mistakes import (
    DENSE,
    LEAST_DECLARED_Z,
    LEAST_PAIRS,
    LEAST_SEARCHED,
    LEAST_Z,
    MOST_ANNOTATORS,
    MOST_CUT,
    MOST_INSTANCES,
    N_RESAMPLES,
    dense_annotators,
    partitions,
)
from manyhands.inference.votes import by_instance, make_votes, vote_shares
from manyhands.typing import FloatArray, IntArray

PSEUDO = 0.7
"""Share of a confusion row's pseudo-count that lies on the diagonal in `two_level`."""


def rules_cell(problem: Problem, *_: int) -> dict[str, list[float]]:
    """Figures of the rules without gold."""
    plain, declared = problem.plain, problem.declared
    votes = make_votes(plain)
    run = DEFAULT_EM.run(votes, votes.shards(), shares_of_votes(plain))
    found = {
        "Dawid-Skene": DawidSkene().fit(plain).posterior_,
        "Dawid-Skene, families": DawidSkene().fit(declared).posterior_,
        "read-out only, rho = 1": DawidSkene(dependence=1.0).fit(plain).posterior_,
        "read-out only, weights": run.parameters.posterior(make_votes(declared)),
        "mean of vote shares": mean_of_families(declared),
        "one label": DawidSkene().fit(one_label(declared)).posterior_,
        "two-level": two_level(declared),
        "rho by moments": rho_by_moments(problem),
        "mean over cuts": mean_over_cuts(plain),
        "all gold (oracle)": by_all_gold(problem),
    }
    return {name: figures(p, problem.y) for name, p in found.items() if p is not None}


def gold_rules_cell(problem: Problem, g: int, seed: int) -> dict[str, list[float]]:
    """Figures of the rules with g gold labels; two-level only for families with a reason."""
    gold, known, rest = drawn_gold(problem, g, seed)
    plain = problem.plain
    counted = DawidSkene(dependence=0, n_subtypes=1).fit(plain[known], gold=gold[known])
    with bases_once():
        found = {
            "gold alone": counted.predict_proba(plain),
            "regression on the votes": regression(plain, gold, 2),
            "regression on Dawid-Skene, rho .3": regression(plain, gold, 1),
            "GoldCorrected without cuts": without_cuts(plain, gold),
        }
    if problem.reason:
        found["two-level Dawid-Skene, families"] = two_level(problem.declared, known, problem.y)
    return {rule: figures(p, problem.y, rest) for rule, p in found.items()}


# -- without gold ---------------------------------------------------------------------------------


def mean_of_families(table: AnnotationTable) -> FloatArray:
    """Mean of the vote shares of the families that annotated an instance."""
    family = family_codes(table.groups)[table.annotator]
    cells = table.instance.astype(np.int64) * (family.max() + 1) + family
    _, where, n_members = np.unique(cells, return_inverse=True, return_counts=True)
    sums = np.full((table.n_instances, table.n_classes), 1e-9)
    np.add.at(sums, (table.instance, table.label), 1.0 / n_members[where])
    return sums / sums.sum(axis=1, keepdims=True)


def one_label(table: AnnotationTable) -> AnnotationTable:
    """The table in which each family gives its most frequent label (ties at random)."""
    codes = family_codes(table.groups)
    columns = []
    for code in np.unique(codes):
        own = table.select(annotators=table.annotators[codes == code])
        counts = own.vote_counts() + 0.0
        order = counts + np.random.default_rng(0).random(counts.shape) / 2
        columns.append(np.where(counts.sum(axis=1) > 0, order.argmax(axis=1), -1))
    return AnnotationTable.from_matrix(np.stack(columns, axis=1), range(table.n_classes))


def two_level(
    table: AnnotationTable, known: IntArray | None = None, y: IntArray | None = None
) -> FloatArray:
    """Posterior if a family has a label of its own, which depends on the class, per instance.

    Members have confusion matrices for their family's label, and are independent given it. EM with
    one pseudo-count per row, 50 iterations. ``y`` is given for the instances ``known``.
    """
    codes = family_codes(table.groups)
    of_row = np.where(np.bincount(codes)[codes] > 1, codes, -1)[table.annotator]
    rows_of = {g: np.flatnonzero(of_row == g) for g in np.unique(of_row)}
    n, c = table.n_instances, table.n_classes
    pseudo = np.where(np.eye(c, dtype=bool), PSEUDO, (1 - PSEUDO) / (c - 1))

    def spread(rows: IntArray, values: FloatArray) -> FloatArray:
        return np.stack([np.bincount(table.instance[rows], v, n) for v in values.T], axis=1)

    def log_likelihoods(rows: IntArray, label: FloatArray) -> FloatArray:
        counts = np.tile(pseudo, (table.n_annotators, 1, 1))
        where = table.annotator[rows], table.label[rows]
        np.add.at(counts.swapaxes(1, 2), where, label[table.instance[rows]])
        rates = np.log(counts / counts.sum(axis=2, keepdims=True))
        return spread(rows, rates.swapaxes(1, 2)[where])

    q = mean_of_families(table)
    labels = {g: spread(rows, np.eye(c)[table.label[rows]]) + q for g, rows in rows_of.items()}
    labels = {g: one / one.sum(axis=1, keepdims=True) for g, one in labels.items()}
    transfer = {g: np.log(pseudo) for g in labels}
    for _ in range(50):
        joint = np.tile(np.log(q.mean(axis=0) + 1e-12), (n, 1))
        parts = {}
        for g, rows in rows_of.items():
            own = log_likelihoods(rows, labels[g])
            if g >= 0:
                parts[g] = transfer[g] + own[:, None, :]  # [instance, class, family's label]
                own = logsumexp(parts[g], axis=2)
            joint += own
        q = np.exp(log_softmax(joint, axis=1))
        if known is not None:
            q[known] = np.eye(c)[y[known]]
        labels[-1] = q  # Of annotators who stand alone.
        for g, both in parts.items():
            share = q[:, :, None] * np.exp(both - logsumexp(both, axis=2, keepdims=True))
            labels[g] = share.sum(axis=1)
            counts = share[np.unique(table.instance[rows_of[g]])].sum(axis=0) + pseudo
            transfer[g] = np.log(counts / counts.sum(axis=1, keepdims=True))
    return q


def rho_by_moments(problem: Problem) -> FloatArray:
    """Weights whose rho is the members' correlation under the posterior without families."""
    plain, declared = problem.plain, problem.declared
    model = DawidSkene(n_subtypes=1).fit(plain)
    codes = family_codes(declared.groups)
    found = []
    for code in np.flatnonzero(np.bincount(codes) > 1):
        own = plain.select(annotators=plain.annotators[codes == code])
        responses = model.confusion_[codes == code]
        found.append(residual_correlation(make_votes(own), model.posterior_, responses)[0])
    rho = float(np.clip(np.mean(found), 0.0, 1.0))
    return DawidSkene().fit(plain.with_groups(problem.groups, rho)).posterior_


def mean_over_cuts(plain: AnnotationTable) -> FloatArray | None:
    """Mean posterior over the cuts that `GoldCorrected` lets gold choose from; None without any."""
    fits = [
        DawidSkene().fit(plain.with_groups([str(code) for code in family])).posterior_
        for family in partitions(plain)
    ]
    return np.mean(fits, axis=0) if fits else None


def by_all_gold(problem: Problem) -> FloatArray | None:
    """Logistic regression on everybody's labels, ten folds; None if annotators are sparse."""
    table = problem.table
    if (table.annotations_per_annotator() < 0.9 * table.n_instances).any():
        return None
    dense = table.to_matrix(codes=True)
    features = (dense[:, :, None] == np.arange(table.n_classes)).reshape(len(dense), -1)
    model = LogisticRegression(C=1.0, max_iter=1000)
    return cross_val_predict(model, features * 1.0, problem.y, cv=10, method="predict_proba")


# -- with gold ------------------------------------------------------------------------------------


@contextmanager
def bases_once() -> Iterator[None]:
    """Fit the bases of `GoldCorrected` once, while the annotations and their gold are the same."""
    fit, made = gold_corrected._dawid_skene_base, {}

    def base(name: str, *rest: Any) -> Any:
        if name not in made:
            made[name] = fit(name, *rest)
        return replace(made[name])  # A fit empties its bases.

    with mock.patch.object(gold_corrected, "_dawid_skene_base", base):
        yield


def regression(plain: AnnotationTable, gold: Any, base: int) -> FloatArray:
    """`GoldCorrected` with one base (0 Dawid-Skene, 1 tempered, 2 votes) and the middle scale."""
    bases = gold_corrected._bases
    changed = {
        "_bases": lambda votes, start: [bases(votes, start)[base]],
        "SCALES": gold_corrected.SCALES[1:2],
    }
    with mock.patch.multiple(gold_corrected, **changed):
        return without_cuts(plain, gold)


def without_cuts(plain: AnnotationTable, gold: Any) -> FloatArray:
    """`GoldCorrected` that lets gold choose no families."""
    with mock.patch.object(gold_corrected, "partitions", return_value=[]):
        return GoldCorrected().fit(plain, gold=gold).posterior_


# -- What a declared family counts in the design effect of the read-out: members, weights, or


COUNTS = ("members", "weights", "families")


def beside(size: int, share: float, decoys: bool, seed: int, n_families: int = 1) -> Problem:
    """600 instances, families of machines beside four people.

    Members copy one draw of their family in ``share`` of the instances. With decoys, 60 % of all
    annotators, people too, take the same wrong class on 25 % of the instances.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 600)
    columns = [noisy(rng, y, 0.75) for _ in range(4)]
    for _ in range(n_families):
        columns += family(rng, y, size, 0.7, share)
    A = np.stack(columns, axis=1)
    if decoys:
        misled = (rng.random(len(y)) < 0.25)[:, None] & (rng.random(A.shape) < 0.6)
        A = np.where(misled, 1 - y[:, None], A)
    groups = {4 + k: f"family {k // size}" for k in range(n_families * size)}
    return Problem(AnnotationTable.from_matrix(A), y, groups)


def _name(size: int, share: float, decoys: bool, n_families: int = 1) -> str:
    families = "a family" if n_families == 1 else f"{n_families} families"
    kind = "that copy" if share else "that do not copy"
    return f"{families} of {size} {kind}{', decoys' if decoys else ''}"


_SETTINGS = [
    (size, share, decoys) for decoys in (False, True) for share in (0.8, 0.0) for size in (2, 4, 6)
]
SIMULATED: dict[str, Callable[[int], Problem]] = {
    _name(*setting): partial(beside, *setting) for setting in _SETTINGS
} | {
    _name(3, 0.8, decoys, 3): partial(beside, 3, 0.8, decoys, n_families=3)
    for decoys in (False, True)
}
TABLES = {**SIMULATED, "judgebench": judgebench, **BESIDE, **PEOPLE}


def counted_cell(problem: Problem, *_: int) -> dict[str, list[float]]:
    """Figures of the default fit, read out with each count; and the rho that was found."""
    table = problem.declared
    model = DawidSkene().fit(table)
    votes = make_votes(table)
    run = DEFAULT_EM.run(votes, votes.shards(), vote_shares(votes), model.n_subtypes_)
    joint = OwnRemoved(run)(votes)
    family = family_codes(table.groups)[votes.annotator]
    pairs = np.unique(votes.instance * np.int64(family.max() + 1) + family)
    counts = {
        "members": np.diff(votes.start),
        "weights": by_instance(votes),
        "families": np.bincount(pairs // (family.max() + 1), minlength=votes.n_instances),
    }
    found = {"rho": [float(model.dependence_)]}
    for name, n in counts.items():
        exponent = 1.0 / (1.0 + np.maximum(n - 1.0, 0.0) * model.dependence_)
        posterior, _ = normalise_joint(votes, joint.copy(), exponent)
        found[name] = figures(posterior, problem.y)
    return found


# -- The constants of families, half and twice, and chosen with a family of tables left out


STEPS = ("as is", "half", "twice")


def steps_of(value: float) -> tuple[float, ...]:
    """A constant as it is, half and twice."""
    return tuple(value * k for k in (1, 0.5, 2))


SCALES = tuple(
    tuple((own * k, common * k) for own, common in gold_corrected.SCALES) for k in (1, 0.5, 2)
)
Constants = dict[str, tuple[Any, str, tuple[Any, ...]]]
"""Name of a constant -> its module, its name there, and its values by `STEPS`."""

GOLD_CONSTANTS: Constants = {
    "SCALES": (gold_corrected, "SCALES", SCALES),
    # The records name this constant as it was called when they were made.
    "CUT_MASS": (gold_corrected, "FAMILIES_PRIOR", steps_of(gold_corrected.FAMILIES_PRIOR)),
    "TEMPERED_RHO": (gold_corrected, "TEMPERED_RHO", steps_of(gold_corrected.TEMPERED_RHO)),
    "DENSE": (shared_mistakes, "DENSE", steps_of(DENSE)),
}
GOLD = (20, 50)
SHARES = steps_of(DENSE)
LEAST_SIZES = (LEAST_SEARCHED, -(-LEAST_SEARCHED // 2), 2 * LEAST_SEARCHED)
SET_SIZES: Constants = {
    "LEAST_SEARCHED": (shared_mistakes, "LEAST_SEARCHED", LEAST_SIZES),
    "MOST_CUT": (shared_mistakes, "MOST_CUT", (MOST_CUT, MOST_CUT // 2, 2 * MOST_CUT)),
}
"""How many annotators a searched set has at least, and a table at most that gold cuts."""
PRIORS = ("sd of v", "mean of v, votes", "sd of v, votes")
FAMILY_PRIOR = "sd of e / s"
FAMILY_GOLD = (50, 100)


def prior_values() -> dict[str, float]:
    """Return the values that `gold_corrected.priors` has beside `SCALES`."""
    none = np.zeros(0, dtype=np.int64)
    design = Design(none, none, None, 0)
    (_, sd), (mean, of_votes) = (
        priors(design, (1.0, 1.0), 2, 5, votes_only=votes_only) for votes_only in (False, True)
    )
    values = (sd[3], mean[3], of_votes[3], sd[4])
    return dict(zip((*PRIORS, FAMILY_PRIOR), map(float, values), strict=True))


def other_priors(name: str) -> tuple[Any, str, tuple[Any, ...]]:
    """`gold_corrected.priors`, and with half and twice one of its values."""

    def changed(factor: float) -> Callable[..., tuple[FloatArray, FloatArray]]:
        def with_other(
            design: Design, scale: tuple[float, float], c: int, size: int, *, votes_only: bool
        ) -> tuple[FloatArray, FloatArray]:
            mean, sd = priors(design, scale, c, size, votes_only=votes_only)
            if name == FAMILY_PRIOR:
                sd[c + 2 + design.n_annotators :] *= factor
            elif votes_only == name.endswith("votes"):
                (mean if name.startswith("mean") else sd)[c + 1] *= factor
            return mean, sd

        return with_other

    return gold_corrected, "priors", (priors, changed(0.5), changed(2.0))


FIXED: dict[str, Constants] = {
    "gold constants": GOLD_CONSTANTS,
    "gold priors": {name: other_priors(name) for name in PRIORS} | SET_SIZES,
    "family prior": {FAMILY_PRIOR: other_priors(FAMILY_PRIOR)},
}
"""Kind of cell -> what is changed; the last is of declared families, the others of none."""


def constants_cell(kind: str, problem: Problem, g: int, seed: int) -> dict[str, list[float]]:
    """Figures of `GoldCorrected` with each constant as it is, half and twice."""
    gold, _, rest = drawn_gold(problem, g, seed)
    table = problem.declared if kind == "family prior" else problem.plain
    found: dict[str, list[float]] = {}
    with bases_once():
        as_is = figures(GoldCorrected().fit(table, gold=gold).posterior_, problem.y, rest)
        for name, (module, attribute, values) in FIXED[kind].items():
            found[f"{name} as is"] = as_is
            for step, value in zip(STEPS[1:], values[1:], strict=True):
                with mock.patch.object(module, attribute, value):
                    posterior = GoldCorrected().fit(table, gold=gold).posterior_
                found[f"{name} {step}"] = figures(posterior, problem.y, rest)
    return found


def rho_cell(problem: Problem, *_: int) -> dict[str, list[float]]:
    """Figures with the default correlation within families, half of it, and the greatest (1)."""
    names = [f"RHO {step}" for step in STEPS]
    return by_rho(problem, dict(zip(names, (RHO, RHO / 2, 1.0), strict=True)))


def highest_z(plain: AnnotationTable, name: str, values: Sequence[float]) -> dict[str, list[Any]]:
    """The highest z of a searched set, by the value of a constant."""
    found: dict[str, list[Any]] = {}
    for step, value in zip(STEPS, values, strict=True):
        with mock.patch.object(shared_mistakes, name, value):
            sets = shared_mistakes.shared_mistakes(plain)
        found[step] = [float(sets[0].z if sets and sets[0].measurable else "nan")]
    return found


def smallest_set_cell(problem: Problem, *_: int) -> dict[str, list[Any]]:
    """The highest z by `LEAST_SEARCHED`; and the size of what is searched.

    That is the number of instances with two annotations, and of annotators of many instances.
    """
    plain = problem.plain
    found = highest_z(plain, "LEAST_SEARCHED", LEAST_SIZES)
    with mock.patch.object(shared_mistakes, "MOST_ANNOTATORS", plain.n_annotators):
        dense = dense_annotators(plain).sum()
    searched = [int((plain.annotations_per_instance() > 1).sum()), int(dense)]
    return found | {"searched": searched}


def warning_cell(problem: Problem, *_: int) -> dict[str, list[Any]]:
    """The highest z by the share of instances that the annotators of a searched set must have."""
    return highest_z(problem.plain, "DENSE", SHARES)


# -- page -----------------------------------------------------------------------------------------


def figure_rows(found: Any, kind: str, name: str) -> list[str]:
    """Cells of a constant's row: log loss / calibration error, means over the tables."""
    golds = {"rho constant": (0,), "family prior": FAMILY_GOLD}.get(kind, GOLD)
    tables = HAS_FAMILIES if kind in ("rho constant", "family prior") else found.tables(kind)
    values: dict[str, dict[str, Any]] = {
        step: {
            t: np.mean([found.values(kind, t, f"{name} {step}", g).mean(axis=0) for g in golds], 0)
            for t in tables
        }
        for step in STEPS
    }
    return constant_cells(values, left_out_with)


def warning_rows(found: Any, name: str) -> list[str]:
    """Cells of a threshold's row: share of tables warned of, with and without shared mistakes."""
    kind = "smallest set" if name == "LEAST_SEARCHED" else "warning"
    tables = found.tables(kind)
    values: dict[str, dict[str, float]] = {}
    for step, z in zip(STEPS, steps_of(LEAST_Z), strict=True):
        least, rule = (z, "as is") if name == "LEAST_Z" else (LEAST_Z, step)
        values[step] = {t: (found.values(kind, t, rule) > least).mean() for t in tables}

    def shares(found: dict[str, float]) -> tuple[float, float]:
        """Return shares of the tables with a reason, and of the others."""
        kinds = [
            [v for t, v in found.items() if (t in HAS_FAMILIES) == has] for has in (True, False)
        ]
        return float(np.mean(kinds[0])), float(np.mean(kinds[1]))

    def missed(found: dict[str, float], step: str) -> float:
        return shares(found)[1] - shares(found)[0]

    chosen = chosen_without(values, left_out_with, missed)
    got = {t: values[step][t] for t, step in chosen.items()}
    cells = [f"{right:.2f} / {false:.2f}" for right, false in map(shares, (*values.values(), got))]
    return [*cells, counted(chosen, STEPS)]


def prior_rows(found: Any) -> Iterator[list[str]]:
    """Rows of the priors that `SCALES` does not hold, and of the sizes of sets."""
    for name, value in prior_values().items():
        kind = "family prior" if name == FAMILY_PRIOR else "gold priors"
        yield [name, f"{value:g}", *figure_rows(found, kind, name)]
    for name, (*_, values) in SET_SIZES.items():
        yield [name, str(values[0]), *figure_rows(found, "gold priors", name)]


def limits_of_cost(found: Any) -> dict[str, Any]:
    """Write what is limited, and which of these tables reach the limits."""
    names = found.tables("smallest set")
    reached = []
    for k, (what, most) in enumerate(
        {"instances": MOST_INSTANCES, "annotators": MOST_ANNOTATORS}.items()
    ):
        sizes = {t: found.values("smallest set", t, "searched")[:, k].max() for t in names}
        above, largest = sum(size > most for size in sizes.values()), max(sizes, key=sizes.get)
        reached.append(
            f"{above} of {len(sizes)} tables have more such {what} (the most: "
            f"{sizes[largest]:,.0f}, {largest})"
        )
    uncertain = 100 * (2 * N_RESAMPLES) ** -0.5
    limits = {"instances": MOST_INSTANCES, "annotators": MOST_ANNOTATORS, "resamples": N_RESAMPLES}
    return {**limits, "uncertain": uncertain, "reached": "; ".join(reached)}


# -- Constants that are least values: each tried, and chosen with a family of tables left out


LEAST_GOLD = {"LEAST_GOLD": (5, 10, 20, 50), "LEAST_GOLD_WITH_FAMILIES": (10, 20, 50, 100)}
"""Values that are tried; the greatest corrects in no cell of `FEW_GOLD`, or only in the last."""
FEW_GOLD = (5, 10, 20, 50)
DECLARED_Z = (0.5, 1.0, 2.0, 3.0, 4.0)
SEARCHED_Z = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
PAIRS = (10, 15, 30, 60, 120)
SIZES = (0, 120, 60, 40)
"""Instances that are drawn to measure sets of annotators; 0 for all."""


def least_gold_cell(problem: Problem, g: int, seed: int) -> dict[str, list[float]]:
    """Figures with g gold labels, corrected however few they are, or not at all."""
    gold, _, rest = drawn_gold(problem, g, seed)
    tables = {"": problem.plain}
    if problem.reason:
        tables[", families"] = problem.declared
    always = dict.fromkeys([*LEAST_GOLD, "LEAST_GOLD_PER_CLASS"], 0)
    found = {}
    for mark, table in tables.items():
        plain = DawidSkene().fit(table, gold=gold).posterior_
        with mock.patch.multiple(gold_samples, **always):
            corrected = GoldCorrected().fit(table, gold=gold).posterior_
        found[f"plain{mark}"] = figures(plain, problem.y, rest)
        found[f"corrected{mark}"] = figures(corrected, problem.y, rest)
    return found


def sets_cell(problem: Problem, g: int, seed: int) -> dict[str, list[float]]:
    """Z of the declared families (the lowest) and of searched sets (the highest), nan without.

    By the number of instances and `LEAST_PAIRS`. Beside z, the number of declared families, or
    whether sets are searched at all, and the number of sets that are measured.
    """
    found = {}
    for size in SIZES:
        rows = np.arange(len(problem.y))
        if size and size < len(rows):
            rows = np.sort(np.random.default_rng(seed).choice(rows, size, replace=False))
        declared = problem.declared[rows]
        for least in PAIRS:
            with mock.patch.object(shared_mistakes, "LEAST_PAIRS", least):
                families = shared_mistakes.shared_mistakes(declared)
                searched = shared_mistakes.shared_mistakes(declared.with_groups({}))
            for name, sets, pick in (("declared", families, min), ("searched", searched, max)):
                z = [one.z for one in sets if one.measurable]
                key = f"{name} {size} {least}"
                found[key] = [float(pick(z)) if z else float("nan"), len(sets), len(z)]
    return found


def search_cell(name: str, seed: int) -> dict[str, list[Any]]:
    """Measure what `fit` finds on a table of people, unchanged."""
    table = load(name).table.with_groups({})
    sets = shared_mistakes.shared_mistakes(table)
    found: dict[str, list[Any]] = {"dense": [int(dense_annotators(table).sum())]}
    if sets:
        found |= {"z": [float(sets[0].z)], "members": [str(m) for m in sets[0].members]}
    return found


def gold_values(found: Any, name: str) -> dict[float, dict[str, float]]:
    """Log loss by the least gold that is corrected, means over `FEW_GOLD`."""
    mark, tables = ("", found.tables("least gold"))
    if name == "LEAST_GOLD_WITH_FAMILIES":
        mark, tables = (", families", HAS_FAMILIES)

    def loss(table: str, g: int, least: float) -> float:
        rule = "corrected" if g >= least else "plain"
        return float(found.values("least gold", table, rule + mark, g)[:, 1].mean())

    def mean(table: str, least: float) -> float:
        drawn = [g for g in FEW_GOLD if ("least gold", table, g) in found.found]
        return float(np.mean([loss(table, g, least) for g in drawn]))

    return {least: {t: mean(t, least) for t in tables} for least in LEAST_GOLD[name]}


def z_values(
    found: Any, name: str, least_z: float, pairs: int, sizes: Sequence[int]
) -> dict[str, float]:
    """Return the share of wrong answers: sets with a reason that are not told from the others.

    A searched set is told if its z is above ``least_z``. A declared family is told from those
    with a reason if its z is below.
    """
    shares = {}
    for table in found.tables("sets"):
        wrong = []
        for size in sizes:
            z = found.values("sets", table, f"{name} {size} {pairs}")[:, 0]
            says = z > least_z if name == "searched" else z < least_z
            wrong.append(says == ((table in HAS_FAMILIES) == (name == "declared")))
        shares[table] = float(np.mean(wrong))
    return shares


def balanced(shares: Any) -> float:
    """Mean of two means: over the tables whose families have a reason, and over the others."""
    kinds = [[x for t, x in shares.items() if (t in HAS_FAMILIES) == has] for has in (True, False)]
    return float(np.mean([np.mean(kind) for kind in kinds if kind]))


def measured(found: Any, name: str, size: int) -> str:
    """Return how many sets are measured, by `LEAST_PAIRS`."""
    each = [
        np.concatenate(
            [found.values("sets", t, f"{name} {size} {p}") for t in found.tables("sets")]
        )
        for p in PAIRS
    ]
    counts = ", ".join(f"{p}: {rows[:, 2].sum():.0f}" for p, rows in zip(PAIRS, each, strict=True))
    most = max(rows[:, 1].sum() for rows in each)
    return f"of {most:.0f} {name} sets, {counts}"


def least_values(found: Any) -> Iterator[str]:
    """Yield the tables of the constants that are least values."""

    def lines(values: dict[float, dict[str, float]], ours: float, score: Any = None) -> list[str]:
        options = {} if score is None else {"score": score}
        return left_out_table(values, ours, left_out_with, **options)

    for name in LEAST_GOLD:
        yield f"**`{name}`**: log loss, means over {', '.join(map(str, FEW_GOLD))} gold labels.\n"
        yield from lines(gold_values(found, name), getattr(gold_samples, name))
    yield (
        "Thresholds: share of wrong answers. Where families have a reason, a wrong answer is that "
        "no searched set is warned of, or that a declared family is said to show no shared "
        'mistakes; on the human tables and independent annotators, the opposite. "All" is the '
        "mean of the two kinds, which the choice makes least.\n"
    )
    tried = {z: z_values(found, "searched", z, LEAST_PAIRS, (0,)) for z in SEARCHED_Z}
    yield "**`LEAST_Z`**, of a searched set:\n"
    yield from lines(tried, LEAST_Z, balanced)
    tried = {z: z_values(found, "declared", z, LEAST_PAIRS, (0,)) for z in DECLARED_Z}
    yield "**`LEAST_DECLARED_Z`**, of the declared family with the lowest z:\n"
    yield from lines(tried, LEAST_DECLARED_Z, balanced)
    small = ", ".join(map(str, SIZES[1:]))
    for name, least_z in (("searched", LEAST_Z), ("declared", LEAST_DECLARED_Z)):
        tried = {p: z_values(found, name, least_z, p, SIZES[1:]) for p in PAIRS}
        yield (
            f"**`LEAST_PAIRS`**, {name} sets, with {small} instances alone. Sets that are "
            f"measured on the whole tables, by `LEAST_PAIRS`: {measured(found, name, 0)}; with "
            f"{SIZES[-1]} instances: {measured(found, name, SIZES[-1])}.\n"
        )
        yield from lines(tried, LEAST_PAIRS, balanced)
