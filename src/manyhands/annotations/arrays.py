"""Conversion of annotation tables from and to arrays and matrices."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from manyhands.annotations.class_order import in_class_order
from manyhands.annotations.columns import Columns, read_sources
from manyhands.annotations.duplicates import (
    Duplicates,
    ages_of,
    has_repeats,
    pairs_of,
    without_duplicates,
)
from manyhands.annotations.encoding import (
    as_values,
    check_no_mixture,
    declare_order,
    declared_classes,
    encode,
    equal_mask,
    is_text,
    make_vocabulary,
    missing_mask,
    tidy,
)
from manyhands.annotations.groups import groups_of_rows
from manyhands.annotations.ids import (
    GIVEN,
    NUMBERED,
    as_frame,
    given_order,
    id_column,
    in_natural_order,
    one_level,
    read_wide,
    sorted_order,
)
from manyhands.annotations.nested import how_to_flatten
from manyhands.annotations.passes import check_marks, pass_kinds, read_marks
from manyhands.annotations.scales import (
    Scale,
    check_scale,
    read_classes,
    read_scale,
    scale_of_found,
    warn_of_skew,
)
from manyhands.annotations.wide import (
    ANNOTATOR_WORDS,
    HEAD,
    annotators_of_frame,
    cells_of_frame,
    counts_of_frame,
    ticked_options,
    words_of_total,
)
from manyhands.exceptions import AnnotationError, NoGoldError, warn_caller
from manyhands.typing import MISSING, AnyArray, BoolArray, IntArray

Table = TypeVar("Table")

MOST_VOTES = 10**9
"""Largest total of counts that is read; a vote takes ten bytes, so more is surely a mistake."""

MEASURES = ("sklearn.metrics._classification", "sklearn.metrics._ranking")
"""Modules of scikit-learn whose functions compare predictions with gold labels."""

BETWEEN = ("manyhands", "numpy", "sklearn.base", "sklearn.preprocessing", "sklearn.utils")
"""Packages through which those functions ask a table for its array."""


def from_matrix(
    cls: Callable[..., Table],
    A: Any,
    classes: Any = None,
    *,
    instances: Any = None,
    annotators: Any = None,
    abstain: Any = None,
    skip: Any = None,
    scale: Scale | None = None,
    ordered: bool | None = None,
) -> Table:
    """Make a table from a dense (n_instances, n_annotators) matrix of class values.

    Parameters
    ----------
    A : array-like or data frame of shape (n, R)
        Missing: NaN or None, masked cells, and -1 unless ``classes``, ``abstain`` or ``skip`` names
        it; a matrix of -1 and one other value alone is refused until ``classes`` says what -1 is.
        The columns of a frame (pandas, polars, pyarrow) are the annotators. Columns whose names or
        values say that they hold something else (gold labels, confidences, texts, ...) are left
        out, with a warning. The ids of the instances are a pandas index other than the default,
        or else a column called "task", "instance", "id" or the like.
    classes : sequence, optional
        All classes, in the desired order; default: the categories of categorical columns, in
        their order, else the values, ordered as in `from_frame`. By default, values that are
        probably no classes (ids, -7, 255 in an unsigned type) are refused, or cause a warning;
        classes that are named here are not judged.
    instances, annotators : sequence, optional
        Ids of the rows and columns; default: those of the frame, or their numbers. For a frame,
        ``annotators`` may also be names of its columns, or patterns such as "worker_*": the other
        columns are then left out.
    abstain, skip : str, int or sequence of these, optional
        Values that mean a pass, as in `from_frame`.
    scale : {"nominal", "ordinal", "interval"}, optional
        As in `from_frame`; whole numbers in an array are taken for codes of classes.
    ordered : bool, optional
        As in `from_frame`.

    Returns
    -------
    AnnotationTable
        With n instances and R annotators, also where a row or column is empty.

    Raises
    ------
    AnnotationError
        If A is not two-dimensional or is sparse; if it holds a value outside ``classes``, or
        values that cannot be classes; if a column of a frame looks like ids but is not called so,
        or it cannot be told which columns are the annotators; or if ``abstain`` or ``skip`` is
        invalid, as in `from_frame`.
    """
    scale = read_scale(scale, ordered)
    _refuse_sparse(
        A,
        "A",
        "AnnotationTable.from_arrays(row, column, data), or from_matrix(A.toarray()) if every 0 is "
        "a class",
    )
    one_level(A, "A")
    if isinstance(A, list | tuple) and A and all(isinstance(row, Mapping) for row in A):
        mend = how_to_flatten(A, "A") or "pandas.DataFrame(A)"
        raise AnnotationError(f"A is a list of dicts, not a matrix; give {mend}")
    given_A, are_named = A, instances is not None
    A, annotators = annotators_of_frame(A, annotators)
    if classes is None:
        _refuse_ticks(A)
    A, instances, annotators = read_wide(A, instances, annotators)
    A = as_values(A)
    if A.ndim != 2:
        raise AnnotationError(
            f"A must have two dimensions (n, R), got shape {A.shape}; give one row per instance "
            "and one column per annotator, such as A.reshape(-1, 1) for one annotator"
        )
    vocabulary = None if classes is None else make_vocabulary(classes, "classes")
    marks = read_marks(abstain, skip, vocabulary)
    gaps = missing_mask(A)
    minus_one_is_class = vocabulary is not None and bool((vocabulary == MISSING).any())
    if A.dtype.kind != "U" and not minus_one_is_class and MISSING not in marks:
        minus_one = equal_mask(A, MISSING)
        if minus_one.any() and gaps.any():
            warn_caller(
                f"A holds -1 in {minus_one.sum():,} cells beside {gaps.sum():,} empty ones, and "
                "both are read as no annotation. If -1 is a class, name all classes in classes=; "
                "if it means that the annotator could not tell, pass abstain=-1"
            )
        elif minus_one.any() and vocabulary is None:
            _doubt_minus_one(A, minus_one)
        gaps = gaps | minus_one
    rows, columns = np.nonzero(~gaps)
    labels = A[rows, columns]
    check_marks(marks, labels, "A")
    kinds = pass_kinds(labels, marks)
    given, passed = kinds < 0, kinds >= 0
    declared = None
    if classes is None:
        declared = declared_classes(_columns_of(given_A), {*marks, MISSING}, "A")
    codes, vocabulary, order, scale = read_classes(
        labels[given],
        vocabulary,
        declared,
        argument="A",
        scale=scale,
        ordered=declare_order(_columns_of(given_A)),
        matrix=True,
        instance=None if as_frame(given_A) is None else rows[given],
        annotator=columns[given],
    )
    n, r = A.shape
    return cls(
        rows[given],
        columns[given],
        codes,
        _ids(instances, n, "instances"),
        _ids(annotators, r, "annotators"),
        vocabulary,
        passes=np.column_stack([rows[passed], columns[passed], kinds[passed]]),
        instance_order=NUMBERED if instances is None else given_order(instances, are_named),
        scale=scale,
        class_order=order,
    )


def _refuse_ticks(A: Any) -> None:
    """Refuse a frame whose columns hold ticks of options, beside empty cells."""
    frame = as_frame(A)
    if frame is None or not ticked_options(cells_of_frame(frame, HEAD)):
        return
    if ticks := ticked_options(cells_of_frame(frame)):
        raise AnnotationError(f"A: {ticks}, or name all classes in classes=")


def _refuse_sparse(values: Any, argument: str, mend: str) -> None:
    """Refuse a sparse matrix, in which a stored 0 cannot be told from a missing annotation."""
    if hasattr(values, "toarray"):
        raise AnnotationError(
            f"{argument} is a scipy.sparse matrix, in which a stored 0 cannot be told from a "
            f"missing annotation; use {mend}"
        )


MINUS_ONE_AGREES = 0.1
"""Kappa of "is -1" above which -1 is probably a class: annotators agree on classes, not on gaps."""


def _doubt_minus_one(A: AnyArray, minus_one: BoolArray) -> None:
    """Refuse, or warn of, a matrix without empty cells in which -1 may be a class.

    Beside 0 and 1, -1 may be the lowest of three grades. Annotators agree about grades, but hardly
    about what they leave out. So a warning is given where -1 is about as frequent as 0 and 1, and
    where several annotators give it to the same instance more often than by chance.

    Raises
    ------
    AnnotationError
        If -1 and another value are all that there is, as in votes of -1 and +1.
    """
    values, counts = np.unique(A[~minus_one].astype(str), return_counts=True)
    n, n_annotators = A.shape
    k, in_row = int(minus_one.sum()), minus_one.sum(axis=1)
    # Codes begin with 0, so a lone 1 beside -1 is suspicious. An equal number of annotations per
    # instance is a design, so there -1 does mean a missing annotation.
    if len(values) == 1 and values[0] != "0" and len(np.unique(in_row)) > 1:
        raise AnnotationError(
            f"A holds one class only, {values[0]}, because -1 means no annotation unless it is "
            f"named as a class. {k:,} of {A.size:,} cells hold -1, and no cell is empty. If -1 is "
            f"a class, pass classes=[-1, {values[0]}]; if not, name all classes, such as "
            "classes=[0, 1]"
        )
    some = in_row < n_annotators
    n, in_row = int(some.sum()), in_row[some]
    k = int(in_row.sum())
    if values.tolist() != ["0", "1"] or n_annotators < 2:
        return
    if not counts.min() / 10 < k <= counts.max():
        return
    share = k / (n * n_annotators)
    both = (in_row * (in_row - 1)).sum() / (n * n_annotators * (n_annotators - 1))
    beyond = (both - share**2) / (share - share**2)
    error = np.sqrt(2 / (n * n_annotators * (n_annotators - 1)))
    if beyond > max(MINUS_ONE_AGREES, 3 * error):
        warn_caller(
            f"A has no empty cell, and {minus_one.sum():,} cells with -1 were read as no "
            "annotation. They often stand in the same row, as votes for a grade below 0 would. If "
            "-1 is a class, pass classes=[-1, 0, 1]; if not, pass classes=[0, 1]"
        )


def from_arrays(
    cls: Callable[..., Table],
    instance: Any,
    annotator: Any,
    label: Any,
    *,
    classes: Any = None,
    instances: Any = None,
    annotators: Any = None,
    n_instances: int | None = None,
    n_annotators: int | None = None,
    weight: Any = None,
    source: Any = None,
    group: Any = None,
    abstain: Any = None,
    skip: Any = None,
    duplicates: Duplicates = "error",
    scale: Scale | None = None,
    ordered: bool | None = None,
) -> Table:
    """Make a table from three arrays of equal length.

    Parameters
    ----------
    instance, annotator : array-like of shape (m,)
        Integers are positions (0-based); strings are ids, coded in natural order ("img2" before
        "img10") or by ``instances`` / ``annotators``.
    label : array-like of shape (m,)
        Class values.
    classes, instances, annotators : sequence, optional
        Vocabularies; default: the categories of a categorical column, else the labels, ordered as
        in `from_frame`, and the positions or the ids in natural order.
    n_instances, n_annotators : int, optional
        Lengths of the axes without a vocabulary; default: the largest position + 1.
    weight : array-like of shape (m,), optional
        Finite and not negative; default: 1.
    source : str, array of str, or array of codes, optional
        See `manyhands.annotations.SOURCES`; default: observed.
    group : array-like of shape (m,), optional
        Family of each row's annotator (missing: none); see `AnnotationTable.with_groups`.
    abstain, skip : str, int or sequence of these, optional
        Values of ``label`` that mean a pass, as in `from_frame`.
    duplicates : {"error", "last", "keep"}
        What to do with repeated (instance, annotator) pairs: refuse them, keep the last, or keep
        all.
    scale : {"nominal", "ordinal", "interval"}, optional
        As in `from_frame`; whole numbers are taken for codes of classes.
    ordered : bool, optional
        As in `from_frame`.

    Returns
    -------
    AnnotationTable
        With one annotation per row that holds no pass.

    Raises
    ------
    AnnotationError
        If lengths differ, an id or a label is missing, a value is outside its vocabulary, integers
        look like ids rather than positions, a pair is repeated, an annotator has two families, or
        ``abstain`` or ``skip`` is invalid, as in `from_frame`.
    """
    scale = read_scale(scale, ordered)
    labels = as_values(label)
    _check_lengths(instance, annotator, labels, weight)
    order = None if instances is None else GIVEN
    rows, instances = _axis(instance, instances, n_instances, "instance")
    if order is None:
        order = sorted_order(instances) if is_text(instances) else NUMBERED
    columns, annotators = _axis(annotator, annotators, n_annotators, "annotator")
    vocabulary = None if classes is None else make_vocabulary(classes, "classes")
    marks = read_marks(abstain, skip, vocabulary)
    check_marks(marks, labels, "label")
    kinds = pass_kinds(labels, marks)
    given, passed = kinds < 0, kinds >= 0
    codes, vocabulary, class_order, scale = read_classes(
        labels[given],
        vocabulary,
        declared_classes([label], marks, "label") if classes is None else None,
        argument="label",
        scale=scale,
        ordered=declare_order([label]),
    )
    table_columns = Columns(
        rows[given],
        columns[given],
        codes,
        instances,
        annotators,
        vocabulary,
        None if weight is None else np.asarray(weight)[given],
        None if source is None else read_sources(source, len(labels))[given],
        np.column_stack([rows[passed], columns[passed], kinds[passed]]),
        order,
        None if group is None else groups_of_rows(group, columns, annotators),
        scale=scale,
        class_order=class_order,
    )
    return cls(*without_duplicates(table_columns, duplicates, ages_of(given, passed)))


def from_counts(
    cls: Callable[..., Table],
    counts: Any,
    classes: Any = None,
    *,
    instances: Any = None,
    abstain: Any = None,
    skip: Any = None,
    scale: Scale | None = None,
    ordered: bool | None = None,
) -> Table:
    """Make a table from the number of votes for each class, if nobody knows who gave them.

    This is the input of Fleiss' kappa [1]_. The table has ``annotators_known=False``: agreement,
    `MajorityVote` and the shares of the votes can use it, but methods that compare annotators
    refuse it.

    Parameters
    ----------
    counts : array-like or data frame of shape (n, C)
        Whole numbers from 0; missing: 0. The columns of a frame are the classes. Columns whose
        names say that they hold something else (gold labels, lengths, years, ...) are left out,
        with a warning; ids are found as in `from_matrix`.
    classes : sequence of shape (C,), optional
        The class of each column. If they are the names of a frame's columns, in any order, columns
        are found by name, and this is the order of the classes. Default: the names of the columns,
        ordered as in `from_frame`, or 0..C-1.
    instances : sequence of shape (n,), optional
        Ids of the rows; default: those of the frame, or their numbers.
    abstain, skip : str, int or sequence of these, optional
        Classes that mean a pass, as in `from_frame`.
    scale : {"nominal", "ordinal", "interval"}, optional
        As in `from_frame`.
    ordered : bool, optional
        As in `from_frame`.

    Returns
    -------
    AnnotationTable
        With n instances, and one place for each vote of the instance with the most votes.

    Raises
    ------
    AnnotationError
        If counts are negative, not whole, not two-dimensional or sparse; if there are more than
        `MOST_VOTES` in all; if a column is called a total and is the sum of the others; or if some
        classes are names of columns and others are not.

    References
    ----------
    .. [1] J. L. Fleiss. Measuring nominal scale agreement among many raters. Psychological
       Bulletin 76(5), 1971.

    Examples
    --------
    >>> from manyhands import AnnotationTable, MajorityVote
    >>> table = AnnotationTable.from_counts([[3, 0], [1, 2]], classes=["cat", "dog"])
    >>> table
    AnnotationTable(6 annotations: 2 instances x up to 3 votes of unknown annotators, 2 classes)
    >>> MajorityVote().fit(table).posterior_.round(2).tolist()
    [[1.0, 0.0], [0.33, 0.67]]
    """
    scale = stated = read_scale(scale, ordered)
    named, basis = instances is not None, "given"
    _refuse_sparse(counts, "counts", "AnnotationTable.from_counts(counts.toarray())")
    one_level(counts, "counts")
    if classes is None:
        counts = counts_of_frame(counts)
    values, instances, names = read_wide(counts, instances, None)
    found = _whole_counts(values)
    found, names = _classes_of_counts(found, names, classes)
    n, c = found.shape
    vocabulary = _ids(names, c, "classes")
    if classes is None:
        codes, sorted_names = encode(
            vocabulary, None, argument="counts", vocabulary_name="the columns"
        )
        codes, vocabulary, basis = in_class_order(codes, sorted_names)
        found = found[:, np.argsort(codes)]
        scale = scale_of_found(vocabulary, basis, scale, found.sum(axis=0))
    check_scale(vocabulary, basis, scale or "nominal")
    if stated == "ordinal":
        warn_of_skew(vocabulary, found.sum(axis=0), "counts")
    kinds = pass_kinds(vocabulary, read_marks(abstain, skip))
    label = np.repeat(np.tile(np.arange(c, dtype=np.int32), n), found.ravel())
    total = found.sum(axis=1)
    instance = np.repeat(np.arange(n, dtype=np.int32), total)
    place = np.arange(len(instance), dtype=np.int32)
    place -= np.repeat((np.cumsum(total) - total).astype(np.int32), total)
    passed = kinds[label] >= 0
    code = np.cumsum(kinds < 0) - 1
    order = NUMBERED if instances is None else given_order(instances, named)
    return cls(
        instance[~passed],
        place[~passed],
        code[label[~passed]],
        _ids(instances, n, "instances"),
        np.arange(total.max(initial=0)),
        vocabulary[kinds < 0],
        passes=np.column_stack([instance, place, kinds[label]])[passed],
        instance_order=order,
        scale=scale or "nominal",
        class_order=basis,
        annotators_known=False,
    )


def is_total(name: str, counts: IntArray, others: IntArray) -> bool:
    """Return whether a column of counts is a total of votes or of annotators, not a class.

    Parameters
    ----------
    name : str
    counts : integer array of shape (n,)
    others : integer array of shape (n,)
        Sum of the columns that count votes.
    """
    words = words_of_total(name)
    if words & ANNOTATOR_WORDS:  # Some annotators may not have voted, so the count may be larger.
        return bool((counts >= others).all())
    return bool(words) and bool((counts == others).all())


def _classes_of_counts(found: IntArray, names: Any, classes: Any) -> tuple[IntArray, Any]:
    """Return the columns of counts in the order of the classes, and the class of each."""
    if names is None:
        return found, classes
    own = [str(name) for name in names]
    for place, name in enumerate(own):
        rest = np.delete(found, place, axis=1).sum(axis=1)
        if is_total(name, found[:, place], rest):
            raise AnnotationError(
                f"column {name!r} is a total of the other columns rather than a class; drop it: "
                f"counts.drop(columns={name!r})"
            )
    if classes is None:
        return found, names
    wanted = [str(value) for value in classes]
    if sorted(wanted) == sorted(own):
        return found[:, [own.index(value) for value in wanted]], classes
    if len(wanted) != len(own) or {*wanted} & {*own}:
        raise AnnotationError(
            f"classes={list(classes)!r} do not name the columns of counts, which are {own!r}; give "
            "the names of all columns in the order of the classes, or drop the columns that are "
            "not classes"
        )
    return found, classes


def _whole_counts(values: Any) -> IntArray:
    """Return counts as integers of shape (n, C), with 0 for missing ones."""
    given = as_values(values)
    if given.ndim != 2:
        raise AnnotationError(f"counts must have two dimensions (n, C), got shape {given.shape}")
    gaps = missing_mask(given)
    filled = np.where(gaps, 0, given)
    try:
        numbers = filled.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise AnnotationError(
            f"counts hold something that is not a number ({error}); drop the columns that do not "
            "count votes"
        ) from error
    odd = (numbers < 0) | (numbers != np.floor(numbers))
    if odd.any():
        raise AnnotationError(
            f"counts hold {numbers[odd][0].item()!r}, which is not a number of votes; give whole "
            "numbers from 0 (shares of votes do not say how many votes there were)"
        )
    if numbers.sum() > MOST_VOTES:
        raise AnnotationError(
            f"counts sum to {numbers.sum():,.0f} votes, more than {MOST_VOTES:,}; is each column "
            "the number of votes for a class?"
        )
    return numbers.astype(np.int64)


def to_matrix(columns: Columns, *, codes: bool) -> AnyArray:
    """Return the dense (n_instances, n_annotators) matrix; see `AnnotationTable.to_matrix`."""
    if has_repeats(pairs_of(columns)):
        raise AnnotationError(
            "this table keeps repeated (instance, annotator) pairs, which a matrix cannot "
            'hold; build it with duplicates="last"'
        )
    shape = len(columns.instances), len(columns.annotators)
    dense = np.full(shape, MISSING, dtype=columns.label.dtype)
    dense[columns.instance, columns.annotator] = columns.label
    classes = columns.classes
    if codes:
        return dense
    if classes.dtype.kind not in "iub":
        values = np.array([*classes.tolist(), None], dtype=object)
    elif (classes == MISSING).any():
        values = np.append(classes.astype(np.float64), np.nan)
    else:
        values = np.append(classes.astype(np.int64), MISSING)
    return values[dense]


def _columns_of(A: Any) -> list[Any]:
    """Return the annotators' columns of a wide frame; none for anything else."""
    frame = as_frame(A)
    if frame is None:
        return []
    ids = id_column(frame.columns)
    named = zip(frame.columns, frame.iter_columns(), strict=True)
    return [column.to_native() for name, column in named if name != ids]


def refuse_measures() -> None:
    """Raise a `NoGoldError` if a measure of scikit-learn asks for a table's array.

    Codes of annotations are no gold labels. Without this, ``scoring="accuracy"`` gives NaN.
    """
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(BETWEEN):
        frame = frame.f_back
    if frame.f_globals.get("__name__") in MEASURES:
        raise NoGoldError(
            "scikit-learn's measures compare predictions with gold labels, but y is an "
            "AnnotationTable, which holds annotations. With gold labels, give "
            "scoring=manyhands.metrics.gold_scorer('accuracy', y_true, table). Without them, leave "
            "scoring out, which measures agreement with the annotations, or give "
            "scoring=manyhands.metrics.VOTE_SCORERS"
        )


def _check_lengths(instance: Any, annotator: Any, labels: AnyArray, weight: Any) -> None:
    """Refuse columns of different lengths, and missing labels."""
    shapes = [np.shape(v) for v in (instance, annotator, labels)]
    if len(set(shapes)) != 1 or labels.ndim != 1:
        raise AnnotationError(
            "instance, annotator and label must be one-dimensional and equally long, got "
            f"shapes {', '.join(map(str, shapes))}"
        )
    if weight is not None and np.shape(weight) != labels.shape:
        raise AnnotationError(
            f"weight has shape {np.shape(weight)}; one weight per label, {labels.shape}, is needed"
        )
    gaps = missing_mask(labels)
    if gaps.any():
        raise AnnotationError(
            f"label is missing in row {np.flatnonzero(gaps)[0]} and {gaps.sum() - 1} more; "
            "leave these rows out (n_instances= keeps instances without annotations)"
        )


def _axis(
    values: Any, vocabulary: Any, length: int | None, argument: str
) -> tuple[IntArray, AnyArray]:
    values = as_values(values)
    if missing_mask(values).any():
        raise AnnotationError(f"{argument} holds a missing value; leave such rows out")
    check_no_mixture(values, argument)
    plural = f"{argument}s"
    if values.size and is_text(values):
        ids = None if vocabulary is None else make_vocabulary(vocabulary, plural)
        codes, known = encode(values, ids, argument=argument, vocabulary_name=plural)
        return in_natural_order(codes, known) if ids is None else (codes, known)
    values = tidy(values, argument) if values.size else values.astype(np.int64)
    if vocabulary is not None:
        length = len(vocabulary)
    elif length is None:
        length = int(values.max()) + 1 if values.size else 0
        if length > 1_000_000 + 100 * len(values):
            raise AnnotationError(
                f"{argument} holds {length - 1} for {len(values)} annotations. Integers are "
                "positions here, but these look like ids: pass them as strings, or give "
                f"n_{plural}="
            )
    outside = (values < 0) | (values >= length)
    if outside.any():
        raise AnnotationError(
            f"{argument} holds the position {values[outside][0]}, outside 0..{length - 1}; "
            f"give a larger n_{plural}=, or correct the rows"
        )
    return values, _ids(vocabulary, length, plural)


def _ids(given: Any, n: int, argument: str) -> AnyArray:
    if given is None:
        return np.arange(n)
    ids = make_vocabulary(given, argument)
    if len(ids) != n:
        raise AnnotationError(f"{argument} has {len(ids)} ids for an axis of length {n}")
    return ids
