"""Shared mistakes: tests of whether sets of annotators share mistakes, and the warnings of a fit.

Sets are the declared families, or clusters found in the annotations. Each is tested by a pooled
tetrad [1]_.

If one truth and independent skills explain the annotations of two classes, the covariance of two
annotators is the product of their skills. Then the mean product of centred annotations within a set
A, times that within the rest B, equals the square of that across A and B. (With more classes, this
holds if annotators distribute their mistakes in the same way.) Hence

    excess = Q_AA Q_BB - Q_AB^2 = 0.

.. [1] C. Spearman. The Abilities of Man. Macmillan, 1927 (tetrad differences).
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from manyhands.agreement.pairs import cohen_kappa
from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import resolve
from manyhands.annotations.groups import (
    ALONE,
    can_be_judged,
    in_families,
    in_one_family,
    undeclared_models,
)
from manyhands.annotations.target import Sharded, is_sharded
from manyhands.exceptions import (
    AnnotationError,
    NotIdentifiableWarning,
    SharedMistakesWarning,
    warn_caller,
)
from manyhands.inference.families import family_codes
from manyhands.inference.gold_samples import least_gold
from manyhands.inference.identifiability import isolated_families
from manyhands.inference.votes import make_votes
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

_LOG = logging.getLogger("manyhands")

DENSE = 0.3
"""Only annotators of at least this share of the instances are searched for families, because models
usually annotate most of them."""

LEAST_Z = 4.0
"""Least z of the excess for a warning. Random sets of human annotators exceed it in 2 % of cases,
sets found by a search more often."""

LEAST_DECLARED_Z = 2.0
"""A declared family with a smaller z shows no shared mistakes."""

MOST_COLUMNS = 256
"""Number of columns of the indicators of annotations; if there are more classes, they share
columns."""

MOST_ANNOTATORS, MOST_INSTANCES = 30, 2000
"""Largest numbers of annotators and instances in the search, so that it costs less than a fit."""

LEAST_PAIRS = 30
"""Least number of instances with two annotations by the same side for a test."""

LEAST_SEARCHED = 3
"""Size of the smallest set in the search: among many pairs of people, some agree by chance or by
habit."""

MOST_CUT = 15
"""Largest number of annotators among whom gold can detect families."""

N_RESAMPLES = 100
"""Number of bootstrap samples for the standard error of the excess."""

UNKNOWN_WHO = "share mistakes, or the others do: annotations cannot tell which."
"""What stays open without gold, after the word "They"."""

ROUNDING = 1e-9
"""Standard errors of the excess up to this value are rounding errors."""


@dataclass(frozen=True)
class SharedMistakes:
    """Test of whether a set of annotators agrees more than one truth and their skills explain.

    Attributes
    ----------
    members : tuple
        Ids of the annotators of the set.
    excess : float
        Pooled tetrad Q_AA Q_BB - Q_AB^2; 0 if mistakes are independent, nan if not measurable.
    se : float
        Its standard error (bootstrap over instances); nan if not measurable.
    searched : bool
        Whether the set was found in the same annotations, which biases ``z`` upwards.
    n_shared : tuple of int, or None
        Numbers of instances with two annotations by the set, with two by the others, and with one
        of each, if they are too few for a test.
    """

    members: tuple[Any, ...]
    excess: float
    se: float
    searched: bool = False
    n_shared: tuple[int, int, int] | None = None

    @property
    def measurable(self) -> bool:
        """Whether both sides have enough instances with two annotations."""
        return bool(np.isfinite(self.excess))

    @property
    def z(self) -> float:
        """Excess in standard errors; nan if not measurable."""
        if not self.measurable or self.se > ROUNDING:
            return self.excess / self.se
        return 0.0  # There are no mistakes, or everybody always gives the same class.

    def __str__(self) -> str:
        names = _listed(self.members)
        if not self.measurable:
            return (
                f"Whether {names} share mistakes cannot be measured. It takes {LEAST_PAIRS} "
                f"instances with {self._lacking}."
            )
        if self.z > LEAST_Z:
            return (
                f"Annotators {names} agree with one another more than with the others, beyond "
                f"what their skills explain (z = {self.z:.0f}). They {UNKNOWN_WHO}"
            )
        if self.z < LEAST_DECLARED_Z:
            return (
                f"This family shows no shared mistakes: {names} (z = {self.z:.1f}, below "
                f"{LEAST_DECLARED_Z:g})."
            )
        return f"Whether {names} share mistakes is open (z = {self.z:.1f})."

    @property
    def _lacking(self) -> str:
        """Text that says which annotations too few instances have, and how many have them."""
        kinds = (
            "two annotations by them",
            "two annotations by the others",
            "an annotation of either",
        )
        short = [
            f"{kind} (there {'is' if n == 1 else 'are'} {n})"
            for kind, n in zip(kinds, self.n_shared or (), strict=False)
            if n < LEAST_PAIRS
        ]
        return " and as many with ".join(short) or "two annotations by each side"


def shared_mistakes(
    table: AnnotationTable, members: Any = None, *, random_state: int = 0
) -> list[SharedMistakes]:
    """Test whether sets of annotators share mistakes, without gold.

    Parameters
    ----------
    table : AnnotationTable
    members : sequence of annotator ids, or of such sequences, optional
        The set or sets. Default: the families of the table (`AnnotationTable.with_groups`) with at
        least two members; without families, sets are searched among annotators who annotated at
        least 30 % of the instances (clusters of three or more, average linkage by Cohen's kappa).
    random_state : int, default=0
        Seed of the bootstrap, and of the choice of 2,000 instances if there are more.

    Returns
    -------
    list of SharedMistakes
        In the given order, or in that of the families' names; searched sets by decreasing z. A
        printed result explains itself.

    Raises
    ------
    AnnotationError
        If an annotator is unknown, or a set has fewer than two members or leaves out nobody.

    Notes
    -----
    The test is symmetric: the excess is the same if A shares mistakes and B does not, or if B does
    and A's common factor is the truth. Mistakes that *all* annotators share cannot be detected.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import AnnotationTable
    >>> rng = np.random.default_rng(0)
    >>> truth, copied = rng.integers(0, 2, (2, 1000))
    >>> noisy = [np.where(rng.random(1000) < 0.8, truth, 1 - truth) for _ in range(4)]
    >>> machines = [np.where(rng.random(1000) < 0.6, copied, truth) for _ in range(3)]
    >>> table = AnnotationTable.from_matrix(np.stack([*noisy, *machines], axis=1))
    >>> found = shared_mistakes(table)[0]
    >>> found.members, found.z > 4
    ((4, 5, 6), True)
    """
    centred = Centred.of(table, np.random.default_rng(random_state))
    if members is not None:
        sets = [_codes(table, given) for given in _as_sets(members)]
        return [_measure(table, centred, codes) for codes in sets]
    if table.groups is not None and table.groups.any():
        return declared_sets(table, centred)
    return searched_sets(table, centred)


def declared_sets(table: AnnotationTable, centred: Centred) -> list[SharedMistakes]:
    """Test the families of the table with at least two members, in the order of their names."""
    return [_measure(table, centred, codes) for codes in _families(table)]


def searched_sets(table: AnnotationTable | Sharded, centred: Centred) -> list[SharedMistakes]:
    """Test the clusters of annotators of many instances; return them by decreasing z.

    Clusters that cannot be tested come last.
    """
    found = [_measure(table, centred, codes, searched=True) for codes in _clusters(centred)]
    return sorted(found, key=lambda one: -one.z if one.measurable else np.inf)


def not_measured(table: AnnotationTable | Sharded, centred: Centred) -> SharedMistakes | None:
    """Return the annotators of many instances if the others annotated too little for a test.

    None also if they agree with one another no more than with the others.
    """
    dense = np.flatnonzero(dense_annotators(centred.table))
    six = _six_sums(centred, dense)
    n_within, n_others, n_across = (six[3:] > 0).sum(axis=1)
    if n_others >= LEAST_PAIRS or min(n_within, n_across) < LEAST_PAIRS:
        return None
    resampled = centred.draws @ six.T
    gap = resampled[:, 0] / resampled[:, 3] - resampled[:, 2] / resampled[:, 5]
    if gap.mean() < LEAST_Z * gap.std():
        return None
    members = tuple(table.annotators[dense].tolist())
    n_shared = (int(n_within), int(n_others), int(n_across))
    return SharedMistakes(members, np.nan, np.nan, n_shared=n_shared)


# -- the tetrad -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Centred:
    """Annotations as centred indicators: e = onehot(label) - the annotator's shares of classes.

    Attributes
    ----------
    table : AnnotationTable
        At most `MOST_INSTANCES` instances, one annotation of each pair.
    values : array of shape (m, C)
        With many classes, a sketch of `MOST_COLUMNS` columns.
    draws : array of shape (B, n)
        Number of times that each bootstrap sample contains each instance.
    """

    table: AnnotationTable
    values: FloatArray
    draws: FloatArray

    @classmethod
    def of(cls, table: AnnotationTable | Sharded, rng: np.random.Generator) -> Centred:
        """Centre the annotations of instances with at least two annotations."""
        annotated = np.flatnonzero(table.annotations_per_instance() > 1)
        if len(annotated) > MOST_INSTANCES:
            annotated = np.sort(rng.choice(annotated, MOST_INSTANCES, replace=False))
        part = table[annotated]
        pairs = part.instance.astype(np.int64) * part.n_annotators + part.annotator
        rows = np.flatnonzero(part.weight > 0)
        part = part.take(rows[np.unique(pairs[rows], return_index=True)[1]])
        bucket, sign, width = _sketch(part.n_classes)
        cells = part.annotator * np.int64(width) + bucket[part.label]
        counts = np.bincount(cells, sign[part.label], minlength=part.n_annotators * width)
        counts = counts.reshape(part.n_annotators, width)
        given = part.annotations_per_annotator()[:, None]
        own = counts / np.maximum(given, 1)
        values = -own[part.annotator]
        values[np.arange(len(values)), bucket[part.label]] += sign[part.label]
        draws = rng.poisson(1.0, (N_RESAMPLES, part.n_instances)).astype(np.float64)
        return cls(part, values, draws)

    def sums(self, rows: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the sums of e (n, C) and |e|^2 (n,), and the counts, over some annotations."""
        n, instance = self.table.n_instances, self.table.instance[rows]
        values = self.values[rows]
        columns = [*values.T, (values**2).sum(axis=1), np.ones(len(instance))]
        sums: FloatArray = np.stack([np.bincount(instance, v, n) for v in columns], axis=1).astype(
            np.float64
        )
        return sums[:, :-2], sums[:, -2], sums[:, -1]


def _sketch(n_classes: int) -> tuple[IntArray, FloatArray, int]:
    """Return the column and the sign of each class, and the number of columns.

    Few classes have a column each. Many classes share columns at random, with random signs, so that
    products of indicators keep their expectation (count sketch: Charikar, Chen & Farach-Colton,
    ICALP 2002).
    """
    if n_classes <= MOST_COLUMNS:
        return np.arange(n_classes), np.ones(n_classes), n_classes
    rng = np.random.default_rng(0)
    signs = rng.choice(np.array([-1.0, 1.0]), n_classes)
    return rng.integers(MOST_COLUMNS, size=n_classes), signs, MOST_COLUMNS


def _measure(
    table: AnnotationTable | Sharded,
    centred: Centred,
    codes: IntArray,
    *,
    searched: bool = False,
) -> SharedMistakes:
    """Test a set of annotator codes: compute the excess and its standard error."""
    members = tuple(table.annotators[codes].tolist())
    six = _six_sums(centred, codes)
    n_within, n_others, n_across = (six[3:] > 0).sum(axis=1).tolist()
    if min(n_within, n_others, n_across) < LEAST_PAIRS:
        return SharedMistakes(members, np.nan, np.nan, searched, (n_within, n_others, n_across))
    resampled = _excess(centred.draws @ six.T)
    return SharedMistakes(
        members, float(_excess(six.sum(axis=1))), float(np.std(resampled)), searched
    )


def _six_sums(centred: Centred, codes: IntArray) -> FloatArray:
    """Return products and numbers of pairs within A, within B and across, by instance, (6, n)."""
    within = np.isin(centred.table.annotator, codes)
    sums, squares, given = zip(centred.sums(within), centred.sums(~within), strict=True)
    products = [((s**2).sum(axis=1) - q) / 2 for s, q in zip(sums, squares, strict=True)]
    pairs = [k * (k - 1) / 2 for k in given]
    return np.stack([*products, (sums[0] * sums[1]).sum(axis=1), *pairs, given[0] * given[1]])


def _excess(six: FloatArray) -> FloatArray:
    """Return Q_AA Q_BB - Q_AB^2 from sums of products and numbers of pairs, shape (..., 6)."""
    q = six[..., :3] / np.maximum(six[..., 3:], 1.0)
    excess: FloatArray = q[..., 0] * q[..., 1] - q[..., 2] ** 2
    return excess


# -- sets -----------------------------------------------------------------------------------------


def dense_annotators(table: AnnotationTable | Sharded) -> BoolArray:
    """Return a mask of annotators of many instances; none if more than `MOST_ANNOTATORS`."""
    n_annotated = int((table.annotations_per_instance() > 0).sum())
    given = table.annotations_per_annotator()
    dense = given >= max(DENSE * n_annotated, LEAST_PAIRS)
    if dense.sum() > MOST_ANNOTATORS:
        dense[np.argsort(-given, kind="stable")[MOST_ANNOTATORS:]] = False
    return dense if dense.sum() > 1 else np.zeros_like(dense)


def _clusters(centred: Centred) -> Iterator[IntArray]:
    """Yield the clusters of three or more annotators of many instances, as annotator codes."""
    dense = np.flatnonzero(dense_annotators(centred.table))
    n_active = int((centred.table.annotations_per_annotator() > 0).sum())
    for cluster in clusters(centred.table, dense):
        if LEAST_SEARCHED <= len(cluster) < n_active:
            yield cluster


def clusters(table: AnnotationTable, annotators: IntArray) -> list[IntArray]:
    """Return clusters of two or more annotators by average linkage of kappa, in merge order."""
    if len(annotators) < 2:
        return []
    found = [np.array([code]) for code in annotators]
    for one, other, _, _ in linkage(squareform(distances(table, annotators)), "average"):
        found.append(np.sort(np.concatenate([found[int(one)], found[int(other)]])))
    return found[len(annotators) :]


def gold_can_choose(table: AnnotationTable | Sharded) -> bool:
    """Return whether gold can detect families: few annotators with many instances each."""
    n_active = np.count_nonzero(table.annotations_per_annotator())
    return bool(3 <= n_active <= min(MOST_CUT, dense_annotators(table).sum()))


def partitions(table: AnnotationTable) -> list[IntArray]:
    """Return likely partitions of the annotators into families, each of shape (R,).

    These are the cuts of the dendrogram into 2 to 6 clusters, and each cluster of three or more
    with all other annotators single. There are none for more than 15 annotators, or if one
    annotated less than 30 % of the instances.
    """
    if not gold_can_choose(table):
        return []
    active = np.flatnonzero(table.annotations_per_annotator())
    tree = linkage(squareform(distances(table, active)), "average")
    cuts = [fcluster(tree, k, "maxclust") for k in range(2, min(6, len(active) - 1) + 1)]
    cuts += [
        np.where(np.isin(active, members), 0, np.arange(1, len(active) + 1))
        for members in clusters(table, active)
        if LEAST_SEARCHED <= len(members) < len(active)
    ]
    found: dict[tuple[int, ...], IntArray] = {}
    for cut in cuts:
        _, first, code = np.unique(cut, return_index=True, return_inverse=True)
        family = np.arange(table.n_annotators) + table.n_annotators
        family[active] = np.argsort(np.argsort(first))[code]  # Number families by first members.
        found[tuple(family.tolist())] = family
    return list(found.values())


def distances(table: AnnotationTable, annotators: IntArray) -> FloatArray:
    """Return 1 - Cohen's kappa of each pair of annotators, (k, k); 1 if it is undefined."""
    mine = table.select(annotators=table.annotators[annotators])
    pairs = cohen_kappa(mine)
    apart = 1.0 - np.eye(len(annotators))
    apart[pairs.first, pairs.second] = 1.0 - np.nan_to_num(pairs.kappa, nan=0.0)
    apart[pairs.second, pairs.first] = apart[pairs.first, pairs.second]
    return np.maximum(apart, 0.0)


def _families(table: AnnotationTable) -> list[IntArray]:
    """Return the annotator codes of each declared family of two or more."""
    codes = np.zeros(0, dtype=np.int64) if table.groups is None else family_codes(table.groups)
    families = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    return [members for members in families if len(members) > 1]


def _as_sets(members: Any) -> list[Any]:
    """Return a list of sets, from one set or several."""
    listed = list(members)
    nested = [one for one in listed if not isinstance(one, str) and np.ndim(one) > 0]
    return listed if listed and len(nested) == len(listed) else [listed]


def _codes(table: AnnotationTable, members: Any) -> AnyArray:
    codes = np.unique(
        resolve(
            np.asarray(members),
            table.annotators,
            argument="members",
            vocabulary_name="the annotators",
        )
    )
    if not 2 <= len(codes) < table.n_annotators:
        raise AnnotationError(
            f"members={list(members)!r} must name at least two annotators, and leave out some"
        )
    return codes


def _listed(members: tuple[Any, ...]) -> str:
    shown = ", ".join(str(name) for name in members[:6])
    return shown + (f" and {len(members) - 6} more" if len(members) > 6 else "")


BETTER = (
    "A family that is simply better than the others would look the same, so this is a hint and no "
    "proof."
)
COST = "If it is no family, its weights cost accuracy"

# -- warnings of a fit -----------------------------------------------------------------------------


def warn_of_shared_mistakes(table: Any, *, n_gold: int = 0) -> None:
    """Warn if annotators of many instances seem to share mistakes and no families are declared.

    If families are declared, the warnings say what the annotations show about them. A search for
    undeclared families also runs if no declared family is found to share mistakes.

    Parameters
    ----------
    table : AnnotationTable or store
    n_gold : int
        Number of annotated instances with gold; the advice asks only for what helps beyond them.
    """
    if table.groups is not None and (table.groups == ALONE).all():
        return  # The user has declared that there are no families.
    declared = in_families(table.groups, table.n_annotators)
    models = undeclared_models(table.groups, table.annotators)
    if models.any():
        warn_caller(_of_models(table.annotators[models].tolist()), SharedMistakesWarning)
    is_searched = not models.any() and dense_annotators(table).any()
    if not (declared.any() or is_searched):
        return
    centred = Centred.of(table, np.random.default_rng(0))
    families = declared_sets(table, centred) if declared.any() else []
    wider = None
    if is_searched and not any(one.z >= LEAST_DECLARED_Z for one in families):
        wider = _undeclared(table, centred, set(table.annotators[declared].tolist()))
    if declared.any():
        _tell_of_declared(table, families, wider, n_gold)
    if wider is not None:
        _warn_of_undeclared(table, wider, families, n_gold)


def suspected(table: Any) -> BoolArray:
    """Return a mask of annotators without a family who may share mistakes or are models, (R,).

    They count as one annotator when the question is whether somebody else gave the same label.
    """
    found = undeclared_models(table.groups, table.annotators)
    if found.any() or (table.groups is not None and (table.groups == ALONE).all()):
        return found
    is_read = is_sharded(table) or not table.annotators_known
    if is_read or not dense_annotators(table).any():
        return found  # No search: it would read a whole store, or votes are anonymous.
    declared = in_families(table.groups, table.n_annotators)
    wider = _undeclared(
        table,
        Centred.of(table, np.random.default_rng(0)),
        set(table.annotators[declared].tolist()),
    )
    return found if wider is None else np.isin(table.annotators, wider.members) & ~declared


def annotators_are_judged(table: Any, known: BoolArray | None = None) -> bool:
    """Return whether the accuracy of annotators is identifiable if suspected ones count as one.

    If not, no accuracy, interval or flag that rests on inferred labels is reported.

    Parameters
    ----------
    table : AnnotationTable
    known : boolean array of shape (n_instances,), optional
        Mask of the instances with gold.
    """
    alike = suspected(table)
    return can_be_judged(in_one_family(table, alike) if alike.any() else table, known)


def _of_models(names: list[Any]) -> str:
    """Return a warning that annotators are named like language models, and how to declare them."""
    shown = ", ".join(map(str, names[:3])) + (f" and {len(names) - 3} more" * (len(names) > 3))
    return (
        f"annotators {shown} are named like language models. Language models often make the same "
        "mistakes, so their agreement proves little. No label is accepted that they alone gave. "
        f"Declare them as one family: groups=dict.fromkeys({names!r}, 'llm'), on the command line "
        f"{declaring(names)}. If they have no reason to share mistakes: "
        "groups={}, on the command line --groups none"
    )


def declaring(names: list[Any]) -> str:
    """Write the option of the command line that declares these annotators as one family."""
    if any({*str(name)} & {*",;="} for name in names):
        return "--groups FILE, a table of annotators and their families"
    are_models = undeclared_models(None, np.array(names, dtype=object)).all()
    family = "llm" if are_models else "family"
    members = ",".join(map(str, names))
    return f"--groups {shlex.quote(f'{family}={members}')}"


# -- what helps -----------------------------------------------------------------------------------


def _gold(table: Any, n_gold: int) -> str:
    """Return advice on how much gold would help, as the end of a sentence."""
    least = _least_gold(table)
    if n_gold >= least:
        return f"fit GoldCorrected with the {n_gold} gold labels if they were drawn at random."
    if n_gold:
        return (
            f"fit GoldCorrected with more gold labels: {least} or more instances drawn at "
            f"random in all ({n_gold} so far)."
        )
    return f"fit GoldCorrected with gold labels of {least} or more instances drawn at random."


def _least_gold(table: Any) -> int:
    """Return the least number of gold labels for `GoldCorrected`, with or without families."""
    declared = bool(in_families(table.groups, table.n_annotators).any())
    ignored = declared and isolated_families(make_votes(table), table.groups).are_most
    return least_gold(table.n_classes, families=declared and not ignored)


GROUPS = "groups=, on the command line --groups; groups={} or --groups none"
"""Text on how to declare families, in Python and on the command line, since reports show both."""


def _declaration(table: Any, n_gold: int) -> str:
    """Return advice against undeclared families; it mentions gold only if gold can detect them."""
    if is_sharded(table):
        return "A store carries no families: fit a table, and say there who belongs together."
    ask = f"Say who belongs together ({GROUPS} if nobody does)"
    return f"{ask}, or {_gold(table, n_gold)}" if gold_can_choose(table) else f"{ask}."


# -- declared families ----------------------------------------------------------------------------


def _tell_of_declared(
    table: Any, found: list[SharedMistakes], wider: SharedMistakes | None, n_gold: int
) -> None:
    """Warn of what the annotations show about declared families, except parts of a wider set."""
    told = set() if wider is None else set(wider.members)
    innocent = [
        one for one in found if one.z < LEAST_DECLARED_Z and not told.issuperset(one.members)
    ]
    supported = [one for one in found if one.z >= LEAST_DECLARED_Z]
    unknown = [one for one in found if not one.measurable]
    names = np.unique(table.groups[table.annotator])
    only = len(names) < 3 and ALONE not in names and n_gold < _least_gold(table)
    if innocent and not only:
        warn_caller(
            f"{_first(innocent)} {BETTER} {COST}: declare only annotators who have a reason to "
            f"share mistakes, or {_gold(table, n_gold)}",
            SharedMistakesWarning,
        )
    if not n_gold:
        for said in (*map(str, supported), _first(unknown)):
            if said:
                _LOG.info("%s", said)
        _LOG.info(
            "families are declared and the fit has no known labels: it estimates accuracies from "
            "agreement, and mistakes that all groups share would make them too high"
        )
    if only and len(names) == 2:
        warn_caller(_of_two(table, names, innocent, n_gold), NotIdentifiableWarning)
    elif only:
        warn_caller(_of_one(table, names[0], n_gold), NotIdentifiableWarning)


def _first(found: list[SharedMistakes]) -> str:
    """Return the result of the first of several families, and how many have the same result."""
    more = f" The same holds for {len(found) - 1} more." if len(found) > 1 else ""
    return f"{found[0]}{more}" if found else ""


def _of_one(table: Any, name: str, n_gold: int) -> str:
    """Return a warning that all annotators belong to one family."""
    return (
        f"All annotators belong to one family, {name}. Nobody outside it could show the mistakes "
        "that its members share, so the labels are its vote shares. Leave the declaration out, "
        f"add annotators outside the family, or {_gold(table, n_gold)}"
    )


def _of_two(table: Any, names: AnyArray, innocent: list[SharedMistakes], n_gold: int) -> str:
    """Return a warning that all annotators belong to two families, so differences stay undecided.

    The tetrad tests both families together. If it is small, there may be no families at all.
    """
    there_are = f"There are only two groups of annotators, {names[0]} and {names[1]}"
    family = table.groups[table.annotator]
    counts = np.stack([table.take(np.flatnonzero(family == n)).vote_counts() for n in names])
    both = counts.any(axis=2).all(axis=0)
    if not both.any():
        return (
            f"{there_are}, and no instance has annotations of both, so the groups cannot be "
            "compared, and the labels are the vote shares of the one that annotated. To tell which "
            f"is right, {_gold(table, n_gold)}"
        )
    one, other = counts[:, both].argmax(axis=2)
    share = f"{100 * (one != other).mean():.0f} % of the instances that both annotated"
    if innocent:
        return (
            f"{there_are}, and they show no shared mistakes (z = {innocent[0].z:.1f}). {BETTER} "
            f"{COST}: if these have no reason to share mistakes, declare none "
            "(groups={}, on the command line --groups none), and the annotations decide. If they "
            "have one, the labels follow the prior, not the data, "
            f"on the {share} where they differ; to tell which is right, {_gold(table, n_gold)}"
        )
    return (
        f"{there_are}. On {share}, they differ; there the labels follow the prior, not the data. "
        f"To tell which is right, {_gold(table, n_gold)}"
    )


# -- undeclared families --------------------------------------------------------------------------


def _undeclared(table: Any, centred: Centred, declared: set[Any]) -> SharedMistakes | None:
    """Return the set with the highest z that has members outside declared families, or None."""
    found = [one for one in searched_sets(table, centred) if not declared.issuperset(one.members)]
    if found and found[0].measurable and found[0].z > LEAST_Z:
        return found[0]
    one = not_measured(table, centred)
    return None if one is None or declared.issuperset(one.members) else one


def _warn_of_undeclared(
    table: Any, found: SharedMistakes, families: list[SharedMistakes], n_gold: int
) -> None:
    parts = [one.members for one in families if set(found.members).issuperset(one.members)]
    part = ""
    if parts:
        part = f" The declared family {', '.join(map(str, parts[0]))} is only a part of these."
    agree = "" if found.measurable else " They agree with one another more than with the others."
    warn_caller(
        f"{found}{agree}{part} {_declaration(table, n_gold)}",
        SharedMistakesWarning if found.measurable else NotIdentifiableWarning,
    )
