"""Families of annotators, whose members have a reason to share mistakes, and independent units.

A unit is a family, or an annotator without one: units make their mistakes independently.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyhands.annotations.encoding import encode, missing_mask
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, BoolArray, IntArray

_LOG = logging.getLogger("manyhands")

RHO = 0.8
"""Default correlation of mistakes within a family."""

ALONE = ""
"""Name that stands for the family of an annotator without one."""

LEAST_SHARED = 30
"""Instances needed with two units besides the busiest one, to judge these units (`Overlap`)."""

AS_ONE = "annotators who may share mistakes"
"""Name of the family that `in_one_family` makes of annotators nobody declared as one."""

MODELS = (
    *("gpt", "chatgpt", "openai", "o1-mini", "o3-mini", "claude", "anthropic", "gemini", "gemma"),
    *("palm", "llama", "mistral", "mixtral", "qwen", "deepseek", "grok", "phi", "command-r"),
    *("cohere", "falcon", "vicuna", "olmo", "nemotron", "kimi", "glm", "llm"),
)
"""Words of the names of language models, in lower case."""

PEOPLE = frozenset({"person", "persons", "people", "human", "humans"})
"""Values of a column of groups, in lower case, that mean people, who are not a family."""

_MODEL = re.compile(rf"(?<![a-z\d])({'|'.join(map(re.escape, MODELS))})(?![a-z])")


def read_groups(groups: Any, annotators: AnyArray) -> AnyArray:
    """Read the family of each annotator, as text of shape (R,); "" for an annotator without one.

    Parameters
    ----------
    groups : dict {annotator id: family}, or sequence of shape (R,)
        None, NaN, "" and absence from a dict mean that the annotator belongs to no family.
    annotators : array of shape (R,)

    Raises
    ------
    AnnotationError
        If a dict names an unknown annotator, or a sequence has another length.
    """
    if not isinstance(groups, Mapping):
        if isinstance(groups, str) or np.shape(groups)[:1] != (len(annotators),):
            raise AnnotationError(
                f"groups={groups!r} must be a dict {{annotator: family}} or hold one family per "
                f"annotator, shape ({len(annotators)},), with None for annotators without a family"
            )
        return names_of(groups)
    names = np.full(len(annotators), ALONE, dtype=object)
    if groups:
        codes, _ = encode(
            list(groups), annotators, argument="groups", vocabulary_name="the annotators"
        )
        names[codes] = names_of(list(groups.values()))
    return names.astype(str)


def names_of(values: Any) -> AnyArray:
    """Return names of families as text, "" where missing; 3 and "3" are the same family."""
    given = np.empty(len(values), dtype=object)
    given[:] = values.tolist() if isinstance(values, np.ndarray) else list(values)
    given[missing_mask(given)] = ALONE
    return given.astype(str)


def is_person(name: Any) -> bool:
    """Return whether the name of a group says that its members are people.

    Examples
    --------
    >>> is_person("Human"), is_person("llm")
    (True, False)
    """
    return str(name).strip().lower() in PEOPLE


def in_families(groups: AnyArray | None, n_annotators: int) -> BoolArray:
    """Return whether each annotator belongs to a family of two or more, shape (R,).

    A family of one annotator has no effect: there is nobody to share mistakes with.
    """
    if groups is None:
        return np.zeros(n_annotators, dtype=bool)
    _, code, n_members = np.unique(groups, return_inverse=True, return_counts=True)
    found: BoolArray = (groups != ALONE) & (n_members[code] > 1)
    return found


def groups_of_rows(values: Any, annotator: IntArray, annotators: AnyArray) -> AnyArray:
    """Return the family of each annotator, shape (R,), from a column with one per row.

    In a column that tells people from models, values such as "person" or "human" are no family,
    because people make mistakes of their own. A log message says so.

    Raises
    ------
    AnnotationError
        If an annotator has two families.
    """
    if np.shape(values) != annotator.shape:
        raise AnnotationError(
            f"group has shape {np.shape(values)}; one family per row, {annotator.shape}, is needed"
        )
    names = names_of(values)
    found, code = np.unique(names, return_inverse=True)
    are_people = np.array([is_person(name) for name in found], dtype=bool)
    if are_people.any():
        _LOG.info(
            "annotators of the group %s are people, who make their own mistakes: read as no family",
            " or ".join(map(repr, found[are_people].tolist())),
        )
        found[are_people] = ALONE
        names = found[code]
    pairs = np.unique(np.column_stack([annotator, code])[names != ALONE], axis=0)
    twice = np.flatnonzero(pairs[1:, 0] == pairs[:-1, 0])
    if len(twice):
        (who, one), (_, other) = pairs[twice[0] : twice[0] + 2]
        raise AnnotationError(
            f"group gives annotator {annotators[who].item()!r} two families, {str(found[one])!r} "
            f"and {str(found[other])!r}; give each annotator one (if one family is part of the "
            "other, the larger)"
        )
    groups = np.full(len(annotators), ALONE, dtype=found.dtype)
    groups[pairs[:, 0]] = found[pairs[:, 1]]
    return groups


def merged_groups(
    mine: AnyArray | None, theirs: AnyArray | None, codes: IntArray, annotators: AnyArray
) -> AnyArray | None:
    """Return the families of the annotators of two tables, shape (R,); None if none is known.

    Parameters
    ----------
    mine, theirs : text arrays of shape (R1,) and (R2,), or None
        ``mine`` belongs to the first R1 of the merged annotators.
    codes : integer array of shape (R2,)
        Place of each annotator of the other table among the merged ones.
    annotators : array of shape (R,)

    Raises
    ------
    AnnotationError
        If the tables put an annotator into different families.
    """
    if mine is None and theirs is None:
        return None
    merged = np.full(len(annotators), ALONE, dtype=object)
    if mine is not None:
        merged[: len(mine)] = mine
    if theirs is not None:
        told = theirs != ALONE
        before, new = merged[codes[told]], theirs[told]
        clash = np.flatnonzero((before != ALONE) & (before != new))
        if len(clash):
            who = annotators[codes[told][clash[0]]].item()
            raise AnnotationError(
                f"the added table has annotator {who!r} in the family {new[clash[0]].item()!r}, "
                f"this one in {before[clash[0]]!r}; give both the same groups (with_groups)"
            )
        merged[codes[told]] = new
    return merged.astype(str)


def check_rho(rho: Any) -> float:
    """Check a correlation within families.

    Raises
    ------
    AnnotationError
        If it is outside [0, 1].
    """
    if not 0 <= rho <= 1:
        raise AnnotationError(
            f"rho={rho!r} must be from 0 (members are independent) to 1 (a family has one vote)"
        )
    return float(rho)


def undeclared_models(groups: AnyArray | None, annotators: AnyArray) -> BoolArray:
    """Mask the annotators named like language models that are in no family, shape (R,).

    The mask is empty if there is only one such annotator, or if ``groups`` was given and declares
    no family.

    Examples
    --------
    >>> undeclared_models(None, np.array(["gpt-4o", "Llama3 (8b)", "Philip", "w1"])).tolist()
    [True, True, False, False]
    """
    found = np.zeros(len(annotators), dtype=bool)
    if annotators.dtype.kind not in "OUT" or (groups is not None and (groups == ALONE).all()):
        return found
    alone = ~in_families(groups, len(annotators))
    names = annotators.tolist()
    for r in np.flatnonzero(alone).tolist():
        found[r] = _MODEL.search(str(names[r]).lower()) is not None
    return found if found.sum() > 1 else np.zeros_like(found)


# -- units -----------------------------------------------------------------------------------------


def unit_of(table: Any, alike: BoolArray | None = None) -> IntArray:
    """Number the unit of each annotator, shape (R,).

    Parameters
    ----------
    table : AnnotationTable
    alike : boolean array of shape (R,), optional
        Annotators without a family who together count as one unit.
    """
    n = table.n_annotators
    unit = np.arange(n)
    members = in_families(table.groups, n)
    if members.any():
        unit[members] = n + np.unique(table.groups, return_inverse=True)[1][members]
    if alike is not None:
        unit[alike] = -1
    return np.unique(unit, return_inverse=True)[1].astype(np.int64)


def in_one_family(table: Any, alike: BoolArray) -> Any:
    """Return the table with these annotators declared as one more family."""
    groups = np.full(table.n_annotators, ALONE, dtype=object)
    if table.groups is not None:
        groups[:] = table.groups
    groups[alike] = AS_ONE
    return table.with_groups(groups.tolist(), table.group_rho)


def units_per_instance(table: Any) -> IntArray:
    """Count the units that annotated each instance, shape (n,); unknown annotators count singly."""
    table = table.observed
    if not getattr(table, "annotators_known", True):
        return np.asarray(table.annotations_per_instance())
    return np.bincount(_pairs(table, unit_of(table))[:, 0], minlength=table.n_instances)


def can_be_judged(table: Any, known: BoolArray | None = None) -> bool:
    """Return whether the annotations overlap enough to show how good the annotators are.

    This is a question of identifiability. Two units give one rate of agreement, which cannot
    determine two accuracies, so a third unit is needed. One unit that annotated nearly everything,
    beside others that share no instance with each other, is no better: the others may all be more
    accurate and that one less, or the other way round.

    Parameters
    ----------
    table : AnnotationTable
        Votes of unknown annotators are taken to be those of many.
    known : boolean array of shape (n,), optional
        Instances with known labels, which count as the annotations of one more unit.
    """
    if not getattr(table, "annotators_known", True):
        return True
    return Overlap.of(table, known).judges


@dataclass(frozen=True)
class Overlap:
    """Counts of the instances that units share, which can be added over parts of a table.

    Attributes
    ----------
    n_annotated, n_by_two, n_by_more : int
        Instances with any unit, with exactly two, and with more.
    of_unit, of_unit_by_two : integer arrays of shape (n_units + 1,)
        Instances of each unit, and those that exactly one other unit shares; known labels are the
        last unit.
    """

    n_annotated: int
    n_by_two: int
    n_by_more: int
    of_unit: IntArray
    of_unit_by_two: IntArray

    @classmethod
    def of(cls, table: Any, known: BoolArray | None = None) -> Overlap:
        """Count the units of a table's instances; for ``known`` see `can_be_judged`."""
        table = table.observed
        unit = unit_of(table)
        n_units = int(unit.max(initial=-1)) + 1
        pairs = _pairs(table, unit)
        if known is not None and known.any():
            rows = np.intersect1d(np.flatnonzero(known), pairs[:, 0])
            more = np.full(len(rows), n_units)
            pairs = np.concatenate([pairs, np.column_stack([rows, more])])
        n = np.bincount(pairs[:, 0], minlength=table.n_instances)
        by_two = pairs[n[pairs[:, 0]] == 2, 1]
        return cls(
            int((n > 0).sum()),
            int((n == 2).sum()),
            int((n > 2).sum()),
            np.bincount(pairs[:, 1], minlength=n_units + 1),
            np.bincount(by_two, minlength=n_units + 1),
        )

    def __add__(self, other: Overlap) -> Overlap:
        """Return the counts of both."""
        return Overlap(
            self.n_annotated + other.n_annotated,
            self.n_by_two + other.n_by_two,
            self.n_by_more + other.n_by_more,
            self.of_unit + other.of_unit,
            self.of_unit_by_two + other.of_unit_by_two,
        )

    @property
    def judges(self) -> bool:
        """Whether enough instances have two units besides the busiest one (`can_be_judged`)."""
        busiest = self.of_unit.argmax()
        n_shared = self.n_by_more + self.n_by_two - self.of_unit_by_two[busiest]
        return bool(n_shared >= min(LEAST_SHARED, 0.5 * self.n_annotated))


def _pairs(table: Any, unit: IntArray) -> IntArray:
    """Return the distinct pairs of instance and unit, shape (m, 2); see `unit_of`."""
    n_units = int(unit.max(initial=0)) + 1
    # To sort one number per pair takes a sixth of the time of numpy's unique, of rows or numbers.
    cells = np.sort(table.instance * np.int64(n_units) + unit[table.annotator])
    is_first = np.ones(len(cells), dtype=bool)
    is_first[1:] = cells[1:] != cells[:-1]
    return np.column_stack(np.divmod(cells[is_first], n_units))
