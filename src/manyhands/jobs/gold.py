"""Gold labels matched to a table, for evaluation and to keep test rows out of training."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode, missing_mask
from manyhands.annotations.ids import as_frame, first_and_last
from manyhands.annotations.target import Sharded
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.fitting.reading import equals_class
from manyhands.io import Export, GoldFile
from manyhands.io.gold import nearest
from manyhands.report.gold import note_unused
from manyhands.typing import AnyArray, BoolArray, IntArray
from manyhands.wording import DECLARE_RANDOM

_LOG = logging.getLogger("manyhands")

TRAIN = ["train", "all", ""]
"""Names of splits to train on; "" is the split of rows that are not in the gold file."""


@dataclass(frozen=True, eq=False)
class GoldRows:
    """Gold labels matched to the rows of a table.

    Attributes
    ----------
    codes : integer array of shape (n_instances,)
        Class codes, -1 where unknown.
    splits : array of str of shape (n_instances,)
        Split of each row, "" where unknown ("all" if the gold file has no split column).
    random : boolean array of shape (n_instances,) or None
        True for rows that were drawn at random to be labelled; None if the file does not say it.
    queued : boolean array of shape (n_instances,) or None
        True for rows that a review queue chose to be labelled; None if the file names none.
    """

    codes: IntArray
    splits: AnyArray
    random: BoolArray | None = None
    queued: BoolArray | None = None

    @classmethod
    def none(cls, table: AnnotationTable | Sharded) -> GoldRows:
        """Return the rows of a table without gold labels."""
        n = table.n_instances
        return cls(np.full(n, -1), np.full(n, "", dtype=object))

    @property
    def measuring(self) -> IntArray:
        """Codes of labels that no review queue chose: they measure how many labels are right."""
        return self.codes if self.queued is None else np.where(self.queued, -1, self.codes)

    def note_queue(self) -> None:
        """Log that gold labels of a review queue do not measure the share of right labels."""
        if self.queued is None:
            return
        n = int(self.queued.sum())
        _LOG.info(
            "a review queue chose %s of the %s gold labels because they are doubtful (column "
            "'chosen'). They are left out of the share of right labels, because wrong labels are "
            "more frequent among them; to measure it, give labels drawn at random",
            f"{n:,}",
            f"{int((self.codes >= 0).sum()):,}",
        )

    def parts(self, annotated: AnyArray) -> dict[str, IntArray]:
        """Return the rows with gold, by split, else by whether they have annotations."""
        known = self.codes >= 0
        names = self.splits
        if not self.has_splits:
            names = np.where(annotated, "annotated rows", "other rows")
        return {
            str(name): np.flatnonzero(known & (names == name))
            for name in sorted(np.unique(names[known]), key=_split_order)
        }

    @property
    def has_splits(self) -> bool:
        """Whether the gold file assigns rows to splits."""
        return not set(self.splits) <= {"all", ""}


def _split_order(name: str) -> tuple[int, str]:
    usual = ["train", "valid", "test"]
    return (usual.index(name) if name in usual else len(usual), name)


def match_gold(gold: GoldFile, table: AnnotationTable | Sharded) -> GoldRows:
    """Match gold labels to the instances of a table.

    Raises
    ------
    AnnotationError
        If no gold instance is in the table, or a gold label is not one of its classes.
    """
    mine, theirs = table.instances, gold.tasks
    if mine.dtype.kind != theirs.dtype.kind:
        mine, theirs = mine.astype(str), theirs.astype(str)
    if not len(theirs):
        return GoldRows.none(table)
    known = np.isin(theirs, mine)
    if not known.any():
        raise AnnotationError(
            f"none of the {len(theirs)} tasks with gold (such as {theirs[0].item()!r}) is among "
            f"the {len(mine)} instances (such as {mine[0].item()!r}); use the same ids in both"
        )
    if not known.all():
        unknown = np.flatnonzero(~known)
        shown = [gold.named(i) + nearest(theirs[i], mine.tolist()) for i in unknown[:3].tolist()]
        shown += [f"and {len(unknown) - 3:,} more"] * (len(unknown) > 3)
        warn_caller(
            f"{len(unknown)} of {len(theirs)} tasks with gold are not among the {len(mine)} "
            f"instances ({first_and_last(mine)}), so their labels are not used ({'. '.join(shown)})"
            ". Correct the ids, or delete the rows"
        )
    place, _ = encode(theirs[known], mine, argument="task of gold", vocabulary_name="instances")
    codes = np.full(table.n_instances, -1)
    splits = np.full(table.n_instances, "", dtype=object)
    used = None if gold.at is None else tuple(compress(gold.at, known))
    GoldFile(gold.tasks[known], gold.labels[known], at=used).check_classes(table.classes)
    codes[place] = _gold_codes(gold.labels[known], table.classes)
    splits[place] = "all" if gold.splits is None else gold.splits[known]
    drawn = queued = None
    if gold.random is not None:
        drawn = np.zeros(table.n_instances, dtype=bool)
        drawn[place] = gold.random[known]
    if gold.chosen is not None:
        queued = np.zeros(table.n_instances, dtype=bool)
        queued[place] = gold.chosen[known] == "queue"
        queued &= codes >= 0
    return GoldRows(codes, splits, drawn, queued if queued is not None and queued.any() else None)


def _gold_codes(labels: AnyArray, classes: AnyArray) -> IntArray:
    codes = np.full(len(labels), -1)
    given = ~missing_mask(labels)
    if given.any():
        values = np.array(labels[given].tolist())
        codes[given], _ = encode(
            values, classes, argument="label of gold", vocabulary_name="classes"
        )
    return codes


def warn_of_gold_that_is_known(truth: IntArray, is_known: BoolArray) -> None:
    """Warn if the method was given all gold labels, so that they measure nothing.

    Parameters
    ----------
    truth : integer array of shape (n_instances,)
        Gold labels, -1 where unknown.
    is_known : boolean array of shape (n_instances,)
        Whether the method was given the label.
    """
    has = truth >= 0
    if has.any() and is_known[has].all():
        warn_caller(
            f"all {int(has.sum()):,} gold labels are also given as known labels. A known label is "
            "right in any case, so that it measures nothing. If the known labels were drawn at "
            f"random, {DECLARE_RANDOM}; then they also measure how many of the other "
            "labels are right, without gold labels"
        )


def warn_of_columns_of_gold(X: Any, table: AnnotationTable, gold: GoldRows) -> None:
    """Warn of columns of a frame that equal the gold labels."""
    frame, known = as_frame(X), np.flatnonzero(gold.codes >= 0)
    if frame is None:
        return
    votes = np.zeros((table.n_instances, table.n_classes))
    votes[known, gold.codes[known]] = 1
    columns = zip(frame.columns, frame.iter_columns(), strict=True)
    equal = [n for n, values in columns if equals_class(values.to_numpy(), table.classes, votes)]
    if equal:
        warn_caller(
            f"columns {', '.join(map(repr, equal))} of the features equal the gold labels, so the "
            "model learns the labels that it is evaluated on (leakage). Drop the columns"
        )


def warn_of_unannotated_rows(table: AnnotationTable, gold: GoldRows | None) -> None:
    """Warn of rows of the features that have neither annotations nor gold."""
    idle = table.annotations_per_instance() == 0
    if gold is not None:
        idle &= gold.codes < 0
    if idle.any():
        warn_caller(
            f"{idle.sum():,} of {len(idle):,} rows of the features "
            f"({first_and_last(table.instances[idle])}) have no annotations: their labels are "
            "predicted, but the model does not learn from them. If they should have annotations, "
            "compare their ids with those of the annotations"
        )


def training_part(table: AnnotationTable, gold: GoldRows | None) -> AnnotationTable:
    """Leave out annotations of rows that the gold file assigns to a split other than train.

    Raises
    ------
    AnnotationError
        If no annotation is left.
    """
    if gold is None or not gold.has_splits:
        return table
    train = table.take(np.isin(gold.splits, TRAIN)[table.instance])
    if not train.n_annotations:
        found = ", ".join(map(repr, sorted(set(gold.splits) - {""})))
        raise AnnotationError(
            f"no annotation belongs to a row in split 'train'; the splits in gold are {found}. "
            "Assign the rows to train on to 'train', or leave out the split column"
        )
    return train


def training_codes(known: GoldRows, gold: GoldRows | None) -> IntArray:
    """Return the known codes of the rows to train on, -1 elsewhere; see `training_part`."""
    if gold is None or not gold.has_splits:
        return known.codes
    return np.where(np.isin(gold.splits, TRAIN), known.codes, -1)


def note_unused_gold(summary: dict[str, Any], export: Export | None) -> None:
    """Write into a summary without gold how many gold labels the annotations' export holds."""
    if export is not None and len(export.gold):
        note_unused(summary, len(export.gold))
