"""Checking the target of `fit` (a table, a matrix, or labels), and matching it with X by id."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from manyhands.annotations.columns import require_annotators
from manyhands.annotations.encoding import (
    as_values,
    encode,
    missing_mask,
)
from manyhands.annotations.ids import (
    GIVEN,
    are_shuffled,
    as_frame,
    first_and_last,
    id_column_of,
    is_default_index,
    row_ids,
)
from manyhands.annotations.label_set_table import LabelSetTable
from manyhands.annotations.passes import recode_passes
from manyhands.annotations.scales import NO_METHOD
from manyhands.annotations.table import AnnotationTable
from manyhands.annotations.wide import how_to_read
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.typing import AnyArray, IntArray

Target: TypeAlias = AnnotationTable | ArrayLike
"""Type of a classifier's ``y``: a table, an array (n, n_annotators), or one label per row."""


SETS = (
    "each answer is a set of labels, but one label is needed. To infer sets, use "
    "MultiLabelDawidSkene or MultiLabelMajorityVote; or take one option, table.option(name); or "
    "make each set one class, table.joined()"
)
"""What to do with a `LabelSetTable` where single labels are needed."""

SETS_TO_LEARN = (
    "each answer is a set of labels, but {name} learns one label per instance. To learn sets, use "
    "AggregatedClassifier(MultiLabelDawidSkene(), backbone), which trains one classifier per "
    "option; or take one option, table.option(name); or make each set one class, table.joined()"
)
"""The same where a classifier is trained."""


class Sharded(Protocol):
    """Annotations in shards of whole instances, one of which is in memory at a time.

    It has the interface of an `AnnotationTable`, without families.
    """

    in_memory: Literal[False]
    instances: AnyArray
    annotators: AnyArray
    classes: AnyArray
    n_annotations: int
    n_abstentions: int
    n_skips: int
    n_shards: int
    weighted: bool
    scale: str
    class_order: str
    annotators_known: bool

    @property
    def ordered(self) -> bool:
        """Whether the classes are grades in their order."""

    @property
    def digest(self) -> str:
        """Digest of the whole content."""

    @property
    def n_instances(self) -> int:
        """Number of instances."""

    @property
    def n_annotators(self) -> int:
        """Number of annotators."""

    @property
    def n_classes(self) -> int:
        """Number of classes."""

    def shard(self, number: int) -> Any:
        """Return a shard: ``start`` of its instances, ``annotator`` and ``label``."""

    def table(self, number: int) -> AnnotationTable:
        """Return a shard as a table."""

    def votes(self, gold: IntArray | None = None, *, abstentions: bool = False) -> Any:
        """Return what inference reads: the `manyhands.inference.votes.AllVotes` of a fit."""

    def annotations_per_annotator(self) -> IntArray:
        """Count the annotations of each annotator."""

    def annotations_per_instance(self) -> IntArray:
        """Count the annotations of each instance."""

    def __getitem__(self, key: Any) -> AnnotationTable:
        """Return some instances as a table."""


def is_sharded(table: Any) -> TypeGuard[Sharded]:
    """Return whether annotations come in shards, rather than as a table, a matrix or a frame."""
    return getattr(table, "in_memory", True) is False


def as_table(
    y: Any, *, argument: str = "y", what: str | None = "learning about annotators"
) -> AnnotationTable:
    """Read the target of ``fit``: a table, a matrix (n, R), or labels (n,) of a single annotator.

    In one dimension each value, including -1, is a class (scikit-learn's convention).

    Parameters
    ----------
    y : any
    argument : str
        Its name, for messages.
    what : str or None
        Name of what needs to know the annotators, for the message that rejects a table without
        annotators. None: such a table is accepted.

    Raises
    ------
    AnnotationError
        If ``y`` is nothing of the three, holds NaN, None or infinity in one dimension, or holds
        votes of unknown annotators while ``what`` is given.
    """
    if isinstance(y, AnnotationTable):
        if what is not None:
            require_annotators(y, what)
        return y
    if isinstance(y, LabelSetTable):
        raise AnnotationError(f"{argument} is a LabelSetTable; {SETS}")
    if hasattr(y, "toarray"):
        raise AnnotationError(
            f"{argument} is a scipy.sparse matrix, in which a stored 0 cannot be told from a "
            "missing annotation; use AnnotationTable.from_arrays(row, column, data)"
        )
    if as_frame(y) is not None:
        raise AnnotationError(f"{argument} is a data frame; give {how_to_read(y, argument)}")
    if isinstance(y, str | PathLike):
        raise AnnotationError(
            f"{argument}={str(y)!r} is the name of a file; give "
            f"manyhands.io.read_annotations({str(y)!r})"
        )
    values = as_values(y)
    if values.ndim == 2:
        return AnnotationTable.from_matrix(values)
    if values.ndim != 1:
        raise AnnotationError(
            f"{argument} must be an AnnotationTable, an (n_samples, n_annotators) array or one "
            f"label per instance, got shape {values.shape}"
        )
    if missing_mask(values).any():
        raise AnnotationError(f"Input {argument} contains NaN or None; leave such rows out")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise AnnotationError(f"Input {argument} contains infinity; leave such rows out")
    codes, classes = encode(values, None, argument=argument, vocabulary_name="classes")
    n = len(values)
    ids = np.arange(n)
    return AnnotationTable(ids, np.zeros(n, dtype=np.int64), codes, ids, np.arange(1), classes)


def require_table(value: Any, argument: str = "table") -> None:
    """Refuse anything but a table of annotations, and say how to make one of it.

    Raises
    ------
    AnnotationError
        If it is neither an `AnnotationTable` nor a store of annotations.
    """
    if isinstance(value, AnnotationTable) or is_sharded(value):
        return
    kind, mend = type(value).__name__, ""
    if isinstance(value, str | PathLike):
        mend = f"manyhands.io.read_annotations({str(value)!r})"
    elif as_frame(value) is not None:
        mend = how_to_read(value, argument)
    elif isinstance(value, list | tuple | np.ndarray):
        mend = f"AnnotationTable.from_matrix({argument}) if each annotator has a column"
    elif isinstance(value, LabelSetTable):
        mend = f"single labels: {SETS}"
    elif hasattr(value, "fit"):
        mend = "the table that it was fitted on"
    raise AnnotationError(
        f"{argument} is a {kind}, not an AnnotationTable; give "
        + (mend or "a table, such as AnnotationTable.from_frame(df)")
    )


def check_annotations(table: Any, *, argument: str) -> Any:
    """Refuse a table from which nothing can be learnt.

    Raises
    ------
    AnnotationError
        If the table is empty, all its weights are 0, it has only one class, or its labels are
        numbers (an interval scale).
    """
    if table.scale == "interval":
        raise AnnotationError(NO_METHOD)
    if not table.n_annotations:
        raise AnnotationError(
            f"{argument} is empty: no annotation in {table.n_instances} instances x "
            f"{table.n_annotators} annotators (-1 and NaN count as missing; if one of them is a "
            "class, name all classes in classes=)"
        )
    if isinstance(table, AnnotationTable) and table.weights is not None and not table.weights.any():
        raise AnnotationError(
            f"all weights of {argument} are 0, so that no annotation counts; give some annotations "
            "a positive weight"
        )
    if table.n_classes < 2:
        raise AnnotationError(
            f"{argument} holds one class only, {table.classes[0].item()!r} "
            f"({table.n_annotations} annotations); at least two are needed. If other classes "
            "exist, name all of them in classes="
        )
    return table


def refuse_swapped(first: Any, second: Any = None, *, takes: str = "features") -> None:
    """Refuse arguments in the wrong order, which would otherwise be read as something else.

    Parameters
    ----------
    first, second : any
        The first and the second argument of ``fit`` and the like.
    takes : {"features", "annotations", "new features"}
        What the first argument must be. "new features" are those of `predict`, which takes no
        second argument.

    Raises
    ------
    AnnotationError
        If annotations stand where features belong, or features before annotations where only
        annotations are taken.
    """
    tables = (AnnotationTable, LabelSetTable)
    is_table, then_table = (isinstance(each, tables) for each in (first, second))
    if takes == "new features" and is_table:
        raise AnnotationError(
            f"X is {_a(first)}, but predictions are made from the features of items, as in "
            "predict(X) with the columns of fit. For labels of annotated items without features, "
            "use an aggregator, such as DawidSkene().fit(table).labels_"
        )
    if takes == "features" and is_table:
        raise AnnotationError(
            f"X is {_a(first)}, so the arguments are swapped: features come first, annotations "
            "second, as in fit(X, table)"
        )
    if takes == "annotations" and then_table and not is_table:
        raise AnnotationError(
            f"the second argument is {_a(second)} and the first is not, but this method learns "
            "from annotations alone, as in fit(table). With features, use a classifier, such as "
            "CrowdStackingClassifier().fit(X, table)"
        )


def _a(table: AnnotationTable | LabelSetTable) -> str:
    return "an AnnotationTable" if isinstance(table, AnnotationTable) else "a LabelSetTable"


# -- matching with X ------------------------------------------------------------------------------


def matched(
    table: AnnotationTable, X: Any, *, argument: str = "y", rows_argument: str = "X"
) -> AnnotationTable:
    """Put the instances of a table into the order of the rows of X, by their ids.

    Annotations stay in their order. If X has no ids, the table stays as it is; a warning shows the
    order of its instances if the table chose it itself. pandas' default index does not count as
    ids, nor does what remains of it after the same rows were selected from X and the table.

    Parameters
    ----------
    table : AnnotationTable
    X : any
        See `row_ids`.
    argument, rows_argument : str
        The names of the table and of X, for messages.

    Raises
    ------
    AnnotationError
        If ids of X are not among the table's instances, or the other way round; or if both hold
        the same numbers in another order, and on one side they merely number the rows.
    """
    refuse_swapped(X)
    ids, order = row_ids(X, rows_argument), table.instance_order
    if ids is None:
        return _in_assumed_order(table, argument, rows_argument)
    if same_ids(ids.values, table.instances):
        return replace(table, instance_order=GIVEN)
    if order.numbers(ids.values):
        return _in_assumed_order(table, argument, rows_argument)
    rows = rows_of(table.instances, ids.values)
    if rows is None:
        if ids.default:
            return _in_assumed_order(table, argument, rows_argument)
        raise _not_matching(ids.values, table, argument, rows_argument)
    if ids.default and order.kind == "given":
        return _in_assumed_order(table, argument, rows_argument) if order.assumed else table
    if ids.default or order.kind == "numbered":
        raise AnnotationError(
            f"{rows_argument} has the index {first_and_last(ids.values)}, {argument} the instances "
            f"{first_and_last(table.instances)}: the same numbers in another order, and on one "
            f"side they merely number the rows. If row i of {rows_argument} is instance i, pass "
            f"{rows_argument}.to_numpy(); otherwise name the instances by from_frame(tasks=), "
            "from_lists(task=), from_matrix(instances=) or "
            f"{argument}.select(instances=ids)"
        )
    return over(table, ids.values, rows)


def in_order_of_rows(X: Any, y: Any, *, argument: str = "", name: str = "y") -> Any:
    """Return y, which is no table but perhaps has an index, in the order of the rows of X.

    Parameters
    ----------
    X : any
        A pandas frame or Series has an index, a polars or pyarrow frame perhaps a column of ids.
    y : array-like, or pandas Series
        If both have ids of their own, y is put into the order of X by them. Otherwise row i of
        y belongs to row i of X, as in scikit-learn; a warning says so if one of them is visibly
        shuffled.
    argument, name : str
        The names of the pair (X, y) and of y, for messages.

    Raises
    ------
    AnnotationError
        If both have ids, and these differ in more than their order.
    """
    refuse_swapped(X)
    own = y.index if hasattr(y, "iloc") and not is_default_index(y.index) else None
    if own is None or not len(own):
        warn_of_shuffled_rows(X, y, argument=argument, name=name)
    elif hasattr(X, "iloc"):
        if len(X.index) and not is_default_index(X.index):
            return _by_index(X.index, y, argument, name)
    else:
        ids = row_ids(X)
        if ids is not None:
            return _by_column(ids.values, y, argument, name)
        if are_shuffled(np.asarray(own)):
            warn_caller(
                f"{_prefix(argument)}{name} is shuffled (index {first_and_last(np.asarray(own))}) "
                f"and X has no ids, so row i of {name} is taken to belong to row i of X. If X was "
                f"shuffled in the same way, pass {name}.to_numpy(); if not, give X as a frame with "
                "the ids as its index"
            )
    return y


def warn_of_shuffled_rows(X: Any, y: Any, *, argument: str = "", name: str = "y") -> None:
    """Warn that y, which has no ids, is read in the order of X, if X is visibly shuffled."""
    if hasattr(X, "iloc"):
        ids = None if is_default_index(X.index) else np.asarray(X.index)
        where, drop = "index", "X.reset_index(drop=True)"
    else:
        ids, column = _column_of_ids(X)
        where, drop = f"column {column!r}", f"leaving out the column {column!r}"
    if ids is not None and len(ids) == len(y) and are_shuffled(ids):
        warn_caller(
            f"{_prefix(argument)}the rows of X are shuffled ({where} {first_and_last(ids)}) and "
            f"{name} has no ids, so row i of {name} is taken to belong to row i of X. If {name} "
            f"was shuffled in the same way, confirm it by {drop}; if not, give {name} with its "
            "ids: labels as a pandas Series with the ids as its index, annotations as an "
            "AnnotationTable"
        )


def _column_of_ids(X: Any) -> tuple[AnyArray | None, str | None]:
    """Return the ids in a column of a frame, and its name; None unless exactly one has ids."""
    try:
        name, ids = id_column_of(X), row_ids(X)
    except AnnotationError:  # The ids are only needed for a warning here.
        return None, None
    return None if ids is None else ids.values, name


def _prefix(argument: str) -> str:
    return f"{argument}: " if argument else ""


def _by_index(index: Any, y: Any, argument: str, name: str) -> Any:
    """Put a Series into the order of an index, if both have the same entries."""
    own = y.index
    if index.equals(own):
        return y
    unique = index.is_unique and own.is_unique
    if not unique or len(index) != len(own) or not index.isin(own).all():
        missing = index[~index.isin(own)].tolist()[:3], own[~own.isin(index)].tolist()[:3]
        raise AnnotationError(
            f"{_prefix(argument)}the indices of X ({len(index)} rows) and {name} ({len(own)} rows) "
            f"differ: for example, {missing[0]} are in X only, and {missing[1]} in {name} only. "
            f"Select {name}.loc[X.index], or give {name}.to_numpy() if row i of {name} belongs to "
            "row i of X"
        )
    return y.loc[index]


def _by_column(ids: AnyArray, y: Any, argument: str, name: str) -> Any:
    """Put a Series into the order of ids, if its index has the same."""
    found = row_ids(y, name)
    own = ids[:0] if found is None else found.values
    if same_ids(ids, own):
        return y
    rows = rows_of(ids, own)
    if rows is None:
        mine, theirs = as_one_kind(ids, own)
        missing = ids[~np.isin(mine, theirs)], own[~np.isin(theirs, mine)]
        raise AnnotationError(
            f"{_prefix(argument)}the ids of X ({len(ids)} rows) and the index of {name} "
            f"({len(own)} rows) differ: for example, {missing[0].tolist()[:3]} are in X only, and "
            f"{missing[1].tolist()[:3]} in {name} only. Give {name}.to_numpy() if row i of {name} "
            "belongs to row i of X"
        )
    return y.iloc[rows]


def over(table: AnnotationTable, ids: AnyArray, rows: IntArray) -> AnnotationTable:
    """Index a table by other instances: ``rows[i]`` is the position of its i-th one in ``ids``."""
    passes = table.passes
    return replace(
        table,
        instance=rows[table.instance],
        instances=ids,
        passes=None if passes is None else recode_passes(passes, instance=rows),
        instance_order=GIVEN,
    )


def as_one_kind(mine: AnyArray, theirs: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Convert ids to one type: an integer is the same id as the string that it is written as."""
    if (mine.dtype.kind in "UT") != (theirs.dtype.kind in "UT"):
        return mine.astype(str), theirs.astype(str)
    return mine, theirs


def same_ids(mine: AnyArray, theirs: AnyArray) -> bool:
    """Return whether ids are the same in the same order."""
    return len(mine) == len(theirs) and np.array_equal(*as_one_kind(mine, theirs))


def rows_of(ids: AnyArray, among: AnyArray) -> IntArray | None:
    """Return the positions of ids among others; None unless both hold the same distinct ids."""
    mine, theirs = as_one_kind(ids, among)
    order_of_mine, order = np.argsort(mine, kind="stable"), np.argsort(theirs, kind="stable")
    sorted_ids = theirs[order]
    repeated = len(sorted_ids) > 1 and (sorted_ids[1:] == sorted_ids[:-1]).any()
    if len(mine) != len(theirs) or repeated or (mine[order_of_mine] != sorted_ids).any():
        return None
    rows = np.empty(len(mine), dtype=np.int64)
    rows[order_of_mine] = order
    return rows


def _in_assumed_order(table: AnnotationTable, argument: str, rows_argument: str) -> AnnotationTable:
    """Warn if nobody stated the order of the instances, and take it for that of the rows of X."""
    order = table.instance_order
    if order.assumed:
        is_sorted = order.kind == "sorted"
        source = "sorted its instances itself" if is_sorted else "has those of its matrix's index"
        mend = "table with tasks=" if is_sorted else "table by from_matrix(instances=)"
        # The ids may have been there until a transformer returned an array.
        pipeline = (
            ". In a pipeline, scikit-learn's transformers drop the index; "
            'make_pipeline(...).set_output(transform="pandas") keeps it'
        )
        warn_caller(
            f"{rows_argument} has no ids, and {argument} {source}, so the rows of {rows_argument} "
            f"are taken to be in this order: {order.assumed}. Give {rows_argument} an index with "
            f"the ids, or build the {mend} in the order of the rows of {rows_argument}"
            f"{pipeline if rows_argument == 'X' else ''}"
        )
    return replace(table, instance_order=GIVEN)


def _not_matching(ids: AnyArray, table: AnnotationTable, argument: str, X: str) -> AnnotationError:
    instances = table.instances
    mine, theirs = as_one_kind(ids, instances)
    distinct = len(np.unique(mine)) == len(mine)
    if distinct and table.instance_order.rows is not None and len(ids) == len(instances):
        return AnnotationError(
            f"the instances of {argument} were selected by position, and are not those of the rows "
            f"of {X}. Put the table into the order of {X} before cross-validation or "
            f"train_test_split: table.select(instances={X}.index)"
        )
    parts = [
        f"{len(ids)} rows of {X} ({first_and_last(ids)}) and {len(instances)} instances of "
        f"{argument} ({first_and_last(instances)}) do not match by id"
    ]
    for missing, text in (
        (ids[~np.isin(mine, theirs)], f"rows of {X} are not among {argument}'s instances"),
        (instances[~np.isin(theirs, mine)], f"instances of {argument} have no row in {X}"),
    ):
        if len(missing):
            parts.append(f"{len(missing)} {text} ({first_and_last(missing)})")
    for name, values in ((X, ids), (argument, instances)):
        found, counts = np.unique(values, return_counts=True)
        if len(found) < len(values):
            parts.append(f"{name} holds {found[counts > 1][0].item()!r} twice")
    if not distinct:
        return AnnotationError(
            f"{'; '.join(parts)}. Give one row of {X} per instance, such as "
            f"{X}[~{X}.index.duplicated()], or ids that differ"
        )
    return AnnotationError(
        f"{'; '.join(parts)}. Select rows of {X} with {X}.loc[{argument}.instances], or instances "
        f"with {argument}.select(instances=ids); from_frame(tasks={X}.index) and "
        f"from_matrix(instances={X}.index) name the instances by the index, "
        f"{X}.reset_index(drop=True) drops an index that holds no ids"
    )
