"""Other rules for annotators that share mistakes, to compare the library's with.

Without gold they differ in where the families' weights go, in what a family's vote is, and in how
the families or their correlation are found. With gold they are parts of `GoldCorrected`, and the
confusion matrices of the gold alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from families_cells import drawn_gold, vote_shares
from families_tables import Problem, figures
from scipy.special import log_softmax, logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from manyhands import AnnotationTable, DawidSkene, GoldCorrected
from manyhands.inference import gold_corrected
from manyhands.inference.dependence import DEFAULT_EM
from manyhands.inference.families import family_codes
from manyhands.inference.residuals import residual_correlation
from manyhands.inference.shared_mistakes import partitions
from manyhands.inference.votes import make_votes
from manyhands.typing import FloatArray, IntArray

PSEUDO = 0.7
"""Share of a confusion row's pseudo-count that lies on the diagonal in `two_level`."""


def rules_cell(problem: Problem) -> dict[str, list[float]]:
    """Figures of the rules without gold."""
    plain, declared = problem.table.with_groups({}), problem.declared
    votes = make_votes(plain)
    run = DEFAULT_EM.run(votes, votes.shards(), vote_shares(plain))
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
    everything = np.arange(len(problem.y))
    return {name: figures(p, problem.y, everything) for name, p in found.items() if p is not None}


def gold_rules_cell(
    problem: Problem, g: int, seed: int, *, has_families: bool
) -> dict[str, list[float]]:
    """Figures of the rules with g gold labels; two-level only for families with a reason."""
    gold, known, rest = drawn_gold(problem, g, seed)
    plain = problem.table.with_groups({})
    counted = DawidSkene(dependence=0, n_subtypes=1).fit(plain[known], gold=gold[known])
    with bases_once():
        found = {
            "gold alone": counted.predict_proba(plain),
            "regression on the votes": regression(plain, gold, 2),
            "regression on Dawid-Skene, rho .3": regression(plain, gold, 1),
            "GoldCorrected without cuts": without_cuts(plain, gold),
        }
    if has_families:
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
    plain, declared = problem.table.with_groups({}), problem.declared
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
