"""What a declared family counts in the design effect of the read-out: members, weights, or one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from families_tables import BESIDE, PEOPLE, Problem, family, figures, judgebench, noisy

from manyhands import AnnotationTable, DawidSkene
from manyhands.inference.confusion_em import OwnRemoved
from manyhands.inference.dependence import DEFAULT_EM
from manyhands.inference.em import normalise_joint
from manyhands.inference.families import family_codes
from manyhands.inference.vote_sums import by_instance, vote_shares
from manyhands.inference.votes import make_votes

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


def counted_cell(problem: Problem) -> dict[str, list[float]]:
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
    everything, found = np.arange(len(problem.y)), {"rho": [float(model.dependence_)]}
    for name, n in counts.items():
        exponent = 1.0 / (1.0 + np.maximum(n - 1.0, 0.0) * model.dependence_)
        posterior, _ = normalise_joint(votes, joint.copy(), exponent)
        found[name] = figures(posterior, problem.y, everything)
    return found
