"""Conversion of annotation tables from and to long pandas, polars and pyarrow data frames."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, TypeVar

import narwhals as nw
import numpy as np

from manyhands.annotations.arrays import from_arrays
from manyhands.annotations.columns import SOURCES, Columns, read_sources
from manyhands.annotations.duplicates import Duplicates, ages_of, without_duplicates
from manyhands.annotations.encoding import (
    declare_order,
    declared_classes,
    encode,
    is_text,
    make_vocabulary,
    missing_mask,
    texts_of,
)
from manyhands.annotations.groups import ALONE, groups_of_rows
from manyhands.annotations.ids import (
    GIVEN,
    NUMBERED,
    InstanceOrder,
    as_frame,
    given_order,
    in_natural_order,
    one_level,
    row_ids,
    sorted_order,
)
from manyhands.annotations.label_sets import Multilabel, one_label_per_row
from manyhands.annotations.nested import how_to_flatten, keys_of, refuse_nested
from manyhands.annotations.passes import PASSES, check_marks, pass_kinds, read_marks
from manyhands.annotations.scales import (
    MEANT,
    Scale,
    numbers_or_refuse,
    read_classes,
    read_scale,
    warn_of_scale,
)
from manyhands.annotations.suspicious import refuse_copies, warn_of_alike
from manyhands.annotations.wide import (
    HEAD_OF_LONG,
    MISSING_CELLS,
    cells_of_frame,
    missing_columns,
    with_joined_task,
)
from manyhands.exceptions import (
    AnnotationError,
    MissingExtraError,
    raise_missing_extra,
    warn_caller,
)
from manyhands.typing import AnyArray, BoolArray, IntArray

_LOG = logging.getLogger("manyhands")

TEXTS = (nw.String, nw.Object, nw.Categorical)
"""Data types of narwhals in which a column's cells may be texts."""

SHEET_ROWS = "row of the spreadsheet"
"""Name of a pandas index that numbers rows as a spreadsheet does."""

Backend = Literal["pandas", "polars", "pyarrow"]
Table = TypeVar("Table")


def from_frame(
    cls: Callable[..., Table],
    df: Any,
    *,
    task: str | Sequence[str] = "task",
    worker: str = "worker",
    label: str = "label",
    weight: str | None = None,
    source: str | None = None,
    group: str | None = None,
    classes: Any = None,
    tasks: Any = None,
    workers: Any = None,
    abstain: Any = None,
    skip: Any = None,
    passes: str | None = None,
    duplicates: Duplicates = "error",
    multilabel: Multilabel = "error",
    option: str | None = None,
    scale: Scale | None = None,
    ordered: bool | None = None,
) -> Table:
    """Make a table from a long data frame: one row per annotation.

    Parameters
    ----------
    df : pandas, polars or pyarrow data frame
    task, worker, label, weight, source, group, passes : str
        Names of the columns with the instance, the annotator, the class and, optionally, the
        weight, the source, the annotator's family (empty: none; see `AnnotationTable.with_groups`)
        and the pass (one of `PASSES`, in rows without a label). If several columns together are
        the id of an instance, give them as a list, ``task=["system", "doc", "seg"]``; the ids are
        then the values of these columns, joined by "|".
    classes : sequence, optional
        All classes, in the desired order. Default: the categories of a categorical column, in
        their order; else the distinct labels. Numbers, and texts that begin with one, are sorted
        by size; labels of a known scale, such as low < medium < high, by that scale; others as
        text. By default, labels that are probably no classes (ids, "n/a", -7, " yes" beside
        "Yes") are refused, or cause a warning; classes that are named here are not judged.
    tasks : sequence, optional
        All instance ids, **in the order of the rows of X**; default: the ids in natural order
        (numbers by size, "img2" before "img10"). If X has an index, it is matched with the ids.
    workers : sequence, optional
        All annotator ids; default: the ids in natural order.
    abstain, skip : str, int or sequence of these, optional
        Values in the label column that are not classes. They mean that the annotator looked and
        declined to choose ("unsure"), or passed on ("broken image").
    duplicates : {"error", "last", "keep"}
        What to do with repeated (instance, annotator) pairs, whether annotated or passed: refuse
        them, keep the last, or keep all.
    multilabel : {"error", "join", "split", "none"}
        What to do with answers of several labels: cells such as "policy;safety" (also with ``|``,
        ``,``, ``+`` or ``/``), lists, or one row per ticked label. The order in a set never
        matters. "error": refuse them. "join": each set is one class, such as "policy + safety".
        "split": the table of the question whether ``option`` was ticked, with the classes "no" and
        "yes". "none": each text is one class, whatever it contains.
    option : str, optional
        The label to split by.
    scale : {"nominal", "ordinal", "interval"}, optional
        What the labels are: names, grades in their order, or numbers, which may have fractions.
        By default they are grades if the column is an ordered Categorical (pandas) or dictionary
        (pyarrow), or if they belong to a known scale, such as low < medium < high, and no label
        makes up more than two thirds of all (a log message says so). More than 12 different
        numbers that look like ratings are read as numbers, with a warning. Everything else is
        read as names, with a warning if it looks like free text. Agreement can be measured on all
        three scales.
    ordered : bool, optional
        True is short for ``scale="ordinal"``, False for ``scale="nominal"``.

    Returns
    -------
    AnnotationTable
        A row without a label adds no annotation, but its instance and annotator stay in the
        vocabularies (a warning gives the number of such rows). Passes go to ``passes``; they have
        neither weight nor source.

    Raises
    ------
    AnnotationError
        If df is not a data frame, or a column is unknown; if labels cannot be classes, or are or
        may be sets of labels, or ``option`` is unknown; if an id is missing, a label is outside
        ``classes``, an id is outside ``tasks`` or ``workers``, or a pair is repeated; if an
        annotator has two families; if a value of ``abstain`` or ``skip`` is in both, is a class, or
        differs in type from the labels; if a row has both a label and a pass; or if the labels have
        no order, or are not numbers, although ``scale`` needs that.
    """
    data, task = with_joined_task(read_data_frame(df), text_name(task))
    named = {"task": task, "worker": text_name(worker), "label": text_name(label)}
    optional = {"weight": weight, "source": source, "group": group, "passes": passes}
    optional = {argument: text_name(name) for argument, name in optional.items()}
    for argument, name, known in (("tasks", task, tasks), ("workers", named["worker"], workers)):
        if name in data.columns:
            cells = data[name]
            check_blank(
                _distinct_texts(cells),
                argument,
                name,
                known,
                lambda id_, cells=cells: rows_of(data, np.flatnonzero(cells.to_numpy() == id_)),
            )
    named |= {argument: name for argument, name in optional.items() if name is not None}
    columns = columns_of_frame(
        data,
        named,
        classes=classes,
        tasks=tasks,
        workers=workers,
        abstain=abstain,
        skip=skip,
        duplicates=duplicates,
        multilabel=multilabel,
        option=option,
        scale=read_scale(scale, ordered),
    )
    return cls(*columns)


def columns_of_frame(
    df: Any,
    names: dict[str, str],
    *,
    classes: Any = None,
    tasks: Any = None,
    workers: Any = None,
    abstain: Any = None,
    skip: Any = None,
    duplicates: Duplicates = "error",
    multilabel: Multilabel = "error",
    option: str | None = None,
    scale: Scale | None = None,
    asks: bool = False,
) -> Columns:
    """Read the columns of a long data frame; see `from_frame`.

    ``names`` maps what a column holds to its name. With ``asks``, labels that are hardly names of
    classes are an error that asks for ``scale``.
    """
    read_scale(scale)
    task, worker, label = (names[argument] for argument in ("task", "worker", "label"))
    weight, source, group, passes = (
        names.get(argument) for argument in ("weight", "source", "group", "passes")
    )
    data = read_data_frame(df)
    check_columns(data, names)
    data, classes = one_label_per_row(
        data,
        label,
        pair=(task, worker),
        alike=[name for name in (weight, source, group, passes) if name is not None],
        multilabel=multilabel,
        option=option,
        classes=classes,
        marks=read_marks(abstain, skip, None),
        merged=duplicates == "error",
    )
    vocabulary = None if classes is None else make_vocabulary(classes, "classes")
    marks = read_marks(abstain, skip, vocabulary)
    labels, given, kinds = _read_responses(data, label, passes, marks)
    passed = kinds >= 0
    _warn_of_missing_labels(int((~given & ~passed).sum()), len(data), label)
    instance, instances = encode_ids(data, task, tasks, "tasks")
    annotator, annotators = encode_ids(data, worker, workers, "workers")
    if workers is None:
        warn_of_alike(annotators, annotator, f"column {worker!r}", "annotators")
    argument, declared = f"column {label!r}", None
    own = data[label].to_native()
    if classes is None:
        declared = declared_classes([own], marks, argument)
    rows = slice(None) if given.all() else given  # A slice copies nothing.
    weights = None if weight is None else np.asarray(data[weight].to_numpy()[rows])
    codes, vocabulary, order, found_scale = read_classes(
        labels,
        vocabulary,
        declared,
        argument=argument,
        scale=scale,
        ordered=declare_order([own]),
        instance=instance[rows],
        annotator=annotator[rows],
        asks=asks,
        sets=multilabel == "error",
        weight=weights,
    )
    if classes is None:
        for column, ids, own in ((task, instances, instance), (worker, annotators, annotator)):
            refuse_copies(vocabulary, codes, ids, own[rows], label, column)
    columns = Columns(
        instance[rows],
        annotator[rows],
        codes,
        instances,
        annotators,
        vocabulary,
        weights,
        None if source is None else read_sources(data[source].to_numpy()[rows], len(codes)),
        np.column_stack([instance[passed], annotator[passed], kinds[passed]]),
        sorted_order(instances) if tasks is None else GIVEN,
        None if group is None else groups_of_rows(data[group].to_numpy(), annotator, annotators),
        scale=found_scale,
        class_order=order,
    )
    return without_duplicates(columns, duplicates, ages_of(given, passed))


def from_lists(
    cls: Callable[..., Table],
    df: Any,
    *,
    annotators: str | None = "annotators",
    labels: str = "annotations",
    task: str | None = None,
    annotators_known: bool = True,
    classes: Any = None,
    abstain: Any = None,
    skip: Any = None,
    duplicates: Duplicates = "error",
    scale: Scale | None = None,
    ordered: bool | None = None,
) -> Table:
    """Make a table from a frame: one row per instance, two columns of parallel lists.

    Parameters
    ----------
    df : pandas, polars or pyarrow data frame, Hugging Face Dataset, or dict of columns
    annotators : str or None
        Name of the column with the lists of annotators. None: the position in the list of labels
        is the annotator, for lists in which the same people answer in the same order.
    labels : str
        Name of the column with the lists of labels; a missing label is a missing annotation.
    task : str, optional
        Name of the column with the ids; default: a pandas index other than the default, else the
        numbers of the rows, 0..n-1. In any case, instance i of the table is row i.
    annotators_known : bool, default=True
        False, with ``annotators=None``, says that a position in the lists is not the same person
        in every row. Agreement and the majority vote need no names.
    classes, abstain, skip, duplicates, scale, ordered
        As in `from_frame`.

    Returns
    -------
    AnnotationTable

    Raises
    ------
    AnnotationError
        If a column is unknown or holds no lists, the two lists of a row differ in length, an id is
        repeated, ``annotators`` is given with ``annotators_known=False``, or for the reasons of
        `from_frame`.

    Examples
    --------
    >>> from manyhands import AnnotationTable
    >>> rows = {"annotators": [["a", "b"], ["b"]], "annotations": [["yes", "no"], ["yes"]]}
    >>> AnnotationTable.from_lists(rows)
    AnnotationTable(3 annotations: 2 instances x 2 annotators, 2 classes)
    """
    if annotators is not None and not annotators_known:
        raise AnnotationError(
            f"annotators={annotators!r} names the annotators, but annotators_known=False says that "
            "they are unknown; give annotators=None, or leave annotators_known out"
        )
    given = _lists(df, labels, "labels", task)
    named = [list(range(len(row))) for row in given]
    if annotators is not None:
        named = _lists(df, annotators, "annotators")
    for i, (who, what) in enumerate(zip(named, given, strict=True)):
        if len(who) != len(what):
            raise AnnotationError(
                f"row {i} has {len(who)} annotators (column {annotators!r}) but {len(what)} labels "
                f"(column {labels!r}); the two lists must be equally long"
            )
    rows = np.repeat(np.arange(len(given)), [len(row) for row in given])
    workers = np.array([name for row in named for name in row], dtype=object)
    values = np.array([label for row in given for label in row] + [None], dtype=object)[:-1]
    gaps = missing_mask(values)
    _warn_of_missing_labels(int(gaps.sum()), len(values), labels)
    found = encode(workers, None, argument="annotators", vocabulary_name="annotators")
    if annotators is not None:
        check_blank(
            found[1].tolist(),
            "",
            text_name(annotators),
            None,
            lambda name: row_numbers(np.unique(rows[workers == name]).tolist()),
        )
    codes, people = in_natural_order(*found)
    ids, order = (
        _ids_of_rows(df, len(given)) if task is None else (_column_of(df, task, "task"), GIVEN)
    )

    def make(*columns: Any) -> Table:
        read = Columns(*columns)._replace(annotators_known=annotators_known, instance_order=order)
        return cls(*read)

    table = from_arrays(
        make,
        rows[~gaps],
        codes[~gaps],
        np.array(values[~gaps].tolist()),
        classes=classes,
        instances=ids,
        annotators=people,
        abstain=abstain,
        skip=skip,
        duplicates=duplicates,
        scale=read_scale(scale, ordered),
    )
    if classes is None and scale is None and ordered is None:
        made: Any = table
        read = warn_of_scale(made.classes, made.label, made.instance, f"column {labels!r}")
        if read != "nominal":
            return made.with_scale(read)
    return table


def _ids_of_rows(df: Any, n: int) -> tuple[Any, InstanceOrder]:
    """Return the ids of the rows of a frame of lists: its pandas index if that holds ids."""
    index = row_ids(df, "df") if hasattr(df, "iloc") else None
    if index is None or index.default:
        return range(n), NUMBERED
    distinct, counts = np.unique(index.values, return_counts=True)
    if len(distinct) < n:
        raise AnnotationError(
            f"the index of df holds {distinct[counts > 1][0].item()!r} twice, so that it cannot "
            "hold the ids of the instances; name the column of the ids in task=, or drop the index "
            "with df.reset_index(drop=True)"
        )
    return index.values, given_order(index.values, False)


def _column_of(df: Any, name: str, argument: str) -> list[Any]:
    """Return the values of a column of a data frame, of a Hugging Face Dataset, or of a dict."""
    names: list[str]
    values: Callable[[str], Any]
    if isinstance(df, Mapping):
        names, values = list(df), df.__getitem__
    elif hasattr(df, "column_names") and not hasattr(df, "schema"):
        names, values = df.column_names, df.__getitem__
    else:
        data, name = read_data_frame(df), text_name(name)
        names, values = data.columns, lambda column: data[column].to_list()
    if name not in names:
        raise AnnotationError(
            f"{argument}={name!r} is not a column; the columns are {', '.join(map(repr, names))}. "
            f"Pass {argument}=<name of the column>"
        )
    return list(values(name))


def _lists(df: Any, name: str, argument: str, task: Any = None) -> list[list[Any]]:
    found = []
    for i, value in enumerate(_column_of(df, name, argument)):
        cells = value.tolist() if hasattr(value, "tolist") else value
        if cells is None or (isinstance(cells, float) and np.isnan(cells)):
            cells = []
        if any(map(keys_of, cells if isinstance(cells, list | tuple) else [cells])):
            key, *_ = [name for name in (task, "id") if name is not None]
            raise AnnotationError(
                f"column {name!r} ({argument}) holds dicts in row {i}. Flatten the rows, as a list "
                f'of dicts, by pandas.json_normalize(rows, "{name}", ["{key}"]), read the result '
                f"with from_frame, and name its columns in task=, worker= and label="
            )
        if not isinstance(cells, list | tuple):
            raise AnnotationError(
                f"column {name!r} ({argument}) holds {str(value)[:40]!r} in row {i}, which is not "
                "a list; use AnnotationTable.from_frame if each row holds one label"
            )
        found.append(list(cells))
    return found


def read_data_frame(df: Any) -> Any:
    """Read a data frame of pandas, polars or pyarrow as one of narwhals, with text as names.

    Raises
    ------
    AnnotationError
        If it is not a data frame, or a lazy one.
    """
    if isinstance(df, nw.DataFrame):
        return df
    if hasattr(df, "collect"):
        raise AnnotationError(
            f"df is a {type(df).__name__}, which is not computed yet; give df.collect()"
        )
    one_level(df, "df")
    frame = as_frame(df, "df")
    if frame is not None:
        return _with_text_names(frame)
    how = "pandas.DataFrame({'task': ..., 'worker': ..., 'label': ...})"
    if hasattr(df, "reset_index"):
        how = "df.reset_index(), whose columns are the levels of the index and the labels"
    if isinstance(df, list | tuple) and all(isinstance(row, Mapping) for row in df):
        how = how_to_flatten(df, "df") or "pandas.DataFrame(df)"
    elif isinstance(df, list | tuple | np.ndarray):
        how = (
            "pandas.DataFrame(df, columns=['task', 'worker', 'label']) if each row is one "
            "annotation; AnnotationTable.from_matrix(df) if each row is one instance and each "
            "column one annotator; or from_lists({'annotations': df}, annotators=None) if each row "
            "is a list of labels"
        )
    raise AnnotationError(
        f"df is a {type(df).__name__}, not a data frame of pandas, polars or pyarrow; give {how}"
    )


def _with_text_names(frame: Any) -> Any:
    """Convert the names of pandas columns to text, because narwhals takes no numbers."""
    if all(isinstance(name, str) for name in frame.columns):
        return frame
    native = frame.to_native().copy(deep=False)
    native.columns = [str(name) for name in native.columns]
    return as_frame(native, "df")


def text_name(name: Any) -> Any:
    """Return the name of a column, or several names, with numbers as text."""
    if isinstance(name, list | tuple):
        return [text_name(each) for each in name]
    return str(name) if isinstance(name, int | np.integer) else name


def to_frame(columns: Columns, backend: Backend) -> Any:
    """Return a long data frame; see `AnnotationTable.to_frame`."""
    if not columns.annotators_known:  # The positions of votes are not names of annotators.
        columns = columns._replace(annotators=np.full(len(columns.annotators), None))
    values: dict[str, AnyArray] = {
        "task": columns.instances[columns.instance],
        "worker": columns.annotators[columns.annotator],
        "label": _labels_of_frame(columns)[columns.label],
        "weight": np.array(columns.weight),
        "source": np.array(SOURCES)[columns.source_codes],
    }
    if columns.groups is not None:
        values["group"] = _named_groups(columns.groups[columns.annotator])
    if columns.passes is not None:
        values = _with_pass_rows(values, columns, columns.passes)
    try:
        # polars infers types from lists, not from object arrays.
        frame = nw.from_dict(
            {
                name: column.tolist() if backend == "polars" and column.dtype == "O" else column
                for name, column in values.items()
            },
            backend=backend,
        )
    except ImportError as error:
        raise MissingExtraError(
            f"to_frame(backend={backend!r}) needs {backend}: pip install {backend}"
        ) from error
    _tell_of_scale(columns, backend)
    if columns.scale != "ordinal":
        return frame.to_native()
    return _with_grades(frame.to_native(), columns, backend)


def _labels_of_frame(columns: Columns) -> AnyArray:
    """Return the label to write for each class: the class itself, or its number."""
    if columns.scale != "interval":
        return columns.classes
    numbers = numbers_or_refuse(columns.classes)
    is_whole = columns.passes is None and (np.abs(numbers) < 2**53).all()
    return numbers.astype(np.int64) if is_whole and not (numbers % 1).any() else numbers


def _tell_of_scale(columns: Columns, backend: Backend) -> None:
    """Log how to read a frame again, if its type of labels does not say the scale."""
    how = f"scale={columns.scale!r}"
    if columns.scale == "ordinal" and not is_text(columns.classes):
        how += f", classes={columns.classes.tolist()}"
    if columns.scale == "interval" or (columns.scale == "ordinal" and backend == "polars"):
        _LOG.info(
            "a frame of %s cannot say that its labels are %s; to read it again, use "
            "from_frame(..., %s)",
            backend, MEANT[columns.scale], how,
        )  # fmt: skip


def _with_grades(frame: Any, columns: Columns, backend: Backend) -> Any:
    """Replace the labels by categories in their order."""
    n_passes = len(columns.pass_rows)
    codes = np.concatenate([columns.label, np.full(n_passes, -1, columns.label.dtype)])
    grades = columns.classes.tolist()
    if backend == "pandas":
        import pandas as pd

        frame["label"] = pd.Categorical.from_codes(codes, grades, ordered=True)
        return frame
    if backend == "polars":
        import polars as pl

        if not is_text(columns.classes):
            return frame  # An Enum holds texts only.
        return frame.with_columns(pl.col("label").cast(pl.Enum(grades)))
    labels = grades_of_arrow(columns)
    return frame.set_column(frame.column_names.index("label"), "label", labels)


def grades_of_arrow(columns: Any) -> Any:
    """Return labels that are grades as an ordered dictionary of pyarrow, null for passes.

    Parameters
    ----------
    columns : Columns or AnnotationTable

    Returns
    -------
    pyarrow.DictionaryArray of length n_annotations + n_passes

    Raises
    ------
    MissingExtraError
        If the extra 'io' is not installed.
    """
    try:
        pa: Any = import_module("pyarrow")
    except ImportError as error:
        raise_missing_extra("A column of grades in Parquet", "io", error)
    n_passes = 0 if columns.passes is None else len(columns.passes)
    codes = np.concatenate([columns.label, np.full(n_passes, -1, columns.label.dtype)])
    grades = pa.array(columns.classes.tolist())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), grades, ordered=True)


def _with_pass_rows(
    values: dict[str, AnyArray], columns: Columns, passes: IntArray
) -> dict[str, AnyArray]:
    """Append the passes to the values of the annotations."""
    k = len(passes)
    more = {
        "task": columns.instances[passes[:, 0]],
        "worker": columns.annotators[passes[:, 1]],
        "label": np.full(k, None if columns.scale != "interval" else np.nan),
        "weight": np.full(k, np.nan, dtype=np.float32),
        "source": np.full(k, SOURCES[0]),
    }
    if columns.groups is not None:
        more["group"] = _named_groups(columns.groups[passes[:, 1]])
    joined = {name: np.concatenate([values[name], more[name]]) for name in more}
    names = np.array(PASSES, dtype=object)[passes[:, 2]]
    kinds = np.concatenate([np.full(len(columns.instance), None), names])
    return joined | {"pass": kinds}


def _named_groups(groups: AnyArray) -> AnyArray:
    """Return the names of families, with None for annotators without one."""
    names = groups.astype(object)
    names[groups == ALONE] = None
    return names


def rows_of(data: Any, positions: AnyArray) -> str:
    """Name rows by their numbers in the spreadsheet they come from, else by position from 0."""
    index = nw.maybe_get_index(data)
    if index is None or index.name != SHEET_ROWS:
        return row_numbers(positions.tolist())
    return row_numbers(index[positions].tolist())


def row_numbers(numbers: Sequence[int]) -> str:
    """Write the numbers of rows; of many, the first two.

    Examples
    --------
    >>> row_numbers([7]), row_numbers([7, 9]), row_numbers([102, 118, 130])
    ('row 7', 'rows 7 and 9', 'rows 102, 118 and 1 more')
    """
    if len(numbers) == 1:
        return f"row {numbers[0]}"
    if len(numbers) == 2:
        return f"rows {numbers[0]} and {numbers[1]}"
    return f"rows {numbers[0]}, {numbers[1]} and {len(numbers) - 2} more"


def check_columns(data: Any, names: dict[str, str]) -> None:
    """Refuse names that are not columns, reporting all of them at once, and missing ids."""
    absent = {argument: name for argument, name in names.items() if name not in data.columns}
    index = getattr(getattr(nw.to_native(data), "index", None), "names", None) or []
    if indexed := [name for name in absent.values() if name in index]:
        raise AnnotationError(
            f"{indexed[0]!r} is the index of df, not one of its columns; give df.reset_index()"
        )
    found = [name for argument, name in names.items() if argument not in absent]
    refuse_nested(data, found, "df")
    if absent:
        refuse_nested(data, data.columns, "df")
        present = {argument: name for argument, name in names.items() if argument not in absent}
        raise missing_columns(absent, present, cells_of_frame(data, HEAD_OF_LONG))
    if "source" not in names and "source" in data.columns:
        _warn_of_marks(data["source"].to_numpy())
    for argument in ("task", "worker"):
        cells = data[names[argument]]
        if cells.dtype == nw.String and not cells.is_null().any():
            continue
        gaps = missing_mask(cells.to_numpy())
        if gaps.any():
            raise AnnotationError(
                f"column {names[argument]!r} ({argument}) is empty in "
                f"{rows_of(data, np.flatnonzero(gaps))}; fill or drop these rows"
            )


def _distinct_texts(cells: nw.Series[Any]) -> Iterable[Any]:
    """Return the distinct texts of a column."""
    texts = texts_of(cells)
    if texts is not None:
        return texts.values
    if cells.dtype not in TEXTS:
        return ()
    return dict.fromkeys(v for v in cells.to_list() if isinstance(v, str))


def check_blank(ids: Iterable[Any], argument: str, column: str, known: Any, rows: Any) -> None:
    """Refuse blank ids, and warn of ids such as "nan", which a missing value leaves as text.

    ``rows`` gives the rows of an id, for the message. Ids that the caller names are not judged.
    """
    if known is not None:
        return
    texts = (name for name in ids if isinstance(name, str))
    for name in [name for name in texts if name in MISSING_CELLS or not name.strip()]:
        mend = f"drop these rows, or name all ids in {argument}=" if argument else "drop them"
        if not name.strip():
            raise AnnotationError(
                f"column {column!r} holds {name!r} in {rows(name)}, which is blank rather than an "
                f"id; fill in these ids, or {mend}"
            )
        warn_caller(
            f"column {column!r} holds {name!r} in {rows(name)}, as text; it counts as an id. If it "
            f"is a missing value, fill in these ids, or {mend}"
        )


def encode_ids(data: Any, column: str, known: Any, argument: str) -> tuple[IntArray, AnyArray]:
    """Encode a column of ids; return the codes and the vocabulary, by default in natural order."""
    texts = texts_of(data[column])
    codes, ids = encode(
        data[column].to_numpy() if texts is None else texts,
        None if known is None else make_vocabulary(known, argument),
        argument=f"column {column!r}",
        vocabulary_name=argument,
    )
    return in_natural_order(codes, ids) if known is None else (codes, ids)


def _warn_of_missing_labels(n_missing: int, n: int, column: str) -> None:
    if n_missing:
        warn_caller(
            f"{n_missing:,} of {n:,} rows have no label in column {column!r}: they count "
            "as missing annotations (their instances and annotators are kept)",
        )


def _read_responses(
    data: Any, label: str, passes: str | None, marks: dict[Any, int]
) -> tuple[AnyArray, BoolArray, IntArray]:
    """Return the labels, the mask of their rows, and each row's kind of pass (-1: none)."""
    labels, gaps = _labels_and_gaps(data[label])
    check_marks(marks, labels, f"column {label!r}")
    kinds = np.full(len(gaps), -1, dtype=np.int8)
    kinds[~gaps] = pass_kinds(labels, marks)
    labels, given = labels[kinds[~gaps] < 0], ~gaps & (kinds < 0)
    if passes is None:
        return labels, given, kinds
    named = named_kinds(data[passes].to_numpy(), passes)
    both = np.flatnonzero(~gaps & (named >= 0))
    if len(both):
        raise AnnotationError(
            f"both a label (column {label!r}) and a pass (column {passes!r}) stand in "
            f"{rows_of(data, both)}; empty one of the two"
        )
    return labels, given, np.maximum(kinds, named)


def _labels_and_gaps(column: Any) -> tuple[AnyArray, BoolArray]:
    """Return the labels, and a mask of the rows without one.

    Nulls are removed before the conversion, because they would turn large integers into inexact
    floats.
    """
    texts = texts_of(column)
    if texts is not None:
        gaps = texts.rows < 0
        return np.array(texts.values, dtype=object)[texts.rows[~gaps]], gaps
    gaps = np.array(column.is_null().to_numpy(), dtype=bool)
    labels = column.filter(~column.is_null()).to_numpy()
    nan = missing_mask(labels)
    gaps[np.flatnonzero(~gaps)[nan]] = True
    return labels[~nan], gaps


def named_kinds(values: AnyArray, column: str) -> IntArray:
    """Return the code of the pass named in each row; -1 for none."""
    gaps = missing_mask(values)
    unknown = [value for value in values[~gaps].tolist() if value not in PASSES]
    if unknown:
        raise AnnotationError(
            f"column {column!r} (passes) holds {unknown[0]!r}; use one of {PASSES}, and leave the "
            "cell empty where there is an annotation"
        )
    kinds = np.full(len(values), -1, dtype=np.int8)
    kinds[~gaps] = pass_kinds(values[~gaps], {name: kind for kind, name in enumerate(PASSES)})
    return kinds


def _warn_of_marks(values: AnyArray) -> None:
    """Warn that marks of unobserved annotations, such as `to_frame` writes, are ignored."""
    n_unobserved = np.isin(values.astype(str), SOURCES[1:]).sum()
    if n_unobserved:
        warn_caller(
            f"column 'source' marks {n_unobserved} rows as not observed (pseudo, ...), but they "
            "are read as observed annotations; pass source='source' to keep the marks",
        )
