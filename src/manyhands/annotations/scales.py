"""The scale of labels: names, grades or numbers; and the question to the caller if it is unclear.

In most files small whole numbers are codes of classes, and are read as such. Many different
numbers, fractions and free text are hardly names of classes: inference that chose among them would
give labels that nobody meant.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from manyhands.annotations.class_order import (
    are_grades,
    check_order,
    in_class_order,
    number_of,
    numbers_of,
    order_of,
    shown_order,
)
from manyhands.annotations.encoding import (
    as_values,
    check_no_mixture,
    encode,
    is_text,
    missing_mask,
    tidy,
    written,
)
from manyhands.annotations.label_sets import refuse_sets
from manyhands.annotations.suspicious import MARKS, check_classes
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray
from manyhands.wording import counted

_LOG = logging.getLogger("manyhands")

Scale = Literal["nominal", "ordinal", "interval"]

SCALES: Final = ("nominal", "ordinal", "interval")

MEANT: Final = {"nominal": "names of classes", "ordinal": "grades", "interval": "numbers"}
"""What the labels are on each scale, for messages."""

MANY_NUMBERS = 12
"""Up to so many different whole numbers are taken for codes of classes without a question."""

MANY_TEXTS = 25
"""Up to so many different texts are taken for names of classes, however few instances there are."""

NUMERIC = 0.9
"""Share of numbers among the annotations from which the other labels count as slips."""

AGREE_EXACTLY, DIFFER_FAR, ENOUGH_PAIRS = 0.3, 0.7, 20
"""Thresholds that tell codes of classes from ratings.

On codes, annotators agree exactly in at least ``AGREE_EXACTLY`` of the pairs beyond chance, and
where they disagree, their mean distance is at least ``DIFFER_FAR`` times that of random pairs, as
seen in ``ENOUGH_PAIRS`` pairs. On ratings they are nearer to each other.
"""

MOST_COMPARED = 100_000
"""So many annotations are compared to see by how much annotators differ."""

WAYS = (
    "Say what they are: scale='nominal' (names of classes), scale='ordinal' (grades, in their "
    "order) or scale='interval' (numbers)"
)
"""How to answer the question about numbers that look like ratings."""

NAMES = "Give the column of the labels; if these are names of classes, pass scale='nominal'"
"""How to answer the question about texts that look like free text."""

NO_METHOD = (
    "the labels are numbers (scale='interval'), and this method chooses among classes. RatingMean "
    "(`manyhands aggregate ANNOTATIONS --out values`) averages numbers, and its report says which "
    "items to have rated again and which annotators rate too high; "
    "`manyhands agreement ANNOTATIONS` measures how far annotators agree. If the numbers are a few "
    "grades, read them by scale='ordinal'; if they are names of classes, by scale='nominal'"
)
"""Refusal of labels that are numbers by methods that infer classes."""

SKEWED, ENOUGH_LABELS = 2 / 3, 30
"""Share of the commonest grade, among ``ENOUGH_LABELS`` or more, above which grades are skewed.

On skewed grades, reading labels as names gave more right labels in all simulated crowds
(``docs/results/ordinal.md``, the table of the commonest grade), because mistakes into the next
grade look like severity.
"""

SKEWED_ARE_NAMES = "more labels are right if they are read as names of classes"
"""Advice where one grade has nearly all labels."""

NOT_FINITE = frozenset({"inf", "infinity", "nan"})
"""Texts that programs write for values that are not finite numbers."""

NO_EFFECT = (
    "the order of two classes ({low} < {high}) makes no difference: labels and agreement are the "
    "same as for names"
)
"""Note on an order that is declared for two classes."""


class Coded(NamedTuple):
    """Codes of labels, the classes, what the order of the classes rests on, and their scale."""

    codes: IntArray
    classes: AnyArray
    order: str
    scale: Scale


OTHERWISE = (
    "scale='ordinal' reads them as grades, in their order, and scale='nominal' as names of classes"
)
"""Other ways to read labels that were read as numbers."""


class Question(NamedTuple):
    """Question to the caller about labels that are hardly names of classes.

    Attributes
    ----------
    seen, mend : str
        What was found in the labels, and how to answer the question.
    are_numbers : bool
        Whether the answer is clear: the labels are numbers.
    """

    seen: str
    mend: str
    are_numbers: bool = False


def read_scale(scale: Any, ordered: bool | None = None) -> Scale | None:
    """Return the scale that a caller chose, checked; None if no scale was chosen.

    Parameters
    ----------
    scale : {"nominal", "ordinal", "interval"} or None
    ordered : bool or None
        True is short for "ordinal", and False for "nominal".

    Raises
    ------
    AnnotationError
        If the scale is neither None nor one of `SCALES`, or contradicts ``ordered``.
    """
    if ordered is not None:
        short: Scale = "ordinal" if ordered else "nominal"
        if scale not in (None, short):
            raise AnnotationError(
                f"ordered={ordered} is short for scale={short!r}, but scale={scale!r} is given, "
                "too; leave one of them out"
            )
        return short
    if scale is not None and scale not in SCALES:
        raise AnnotationError(
            f"scale={scale!r} is unknown; use one of {', '.join(map(repr, SCALES))}"
        )
    return scale


def as_labels(values: Any, scale: Scale | None, argument: str = "label") -> AnyArray:
    """Read labels as an array; on a scale that is given, fractions are labels, as text.

    On an ordinal or interval scale each number has one form: "0.50" and "0,5" are "0.5".

    Raises
    ------
    AnnotationError
        If a number is infinite.
    """
    labels = as_values(values)
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        rows = counted(int(np.isinf(labels).sum()), "row")
        raise AnnotationError(
            f"{argument} holds {labels[np.isinf(labels)][0]} ({rows}), "
            "but numbers must be finite; correct them, or leave these rows out"
        )
    if scale is None or not labels.size:
        return labels
    gaps = missing_mask(labels)
    given = labels[~gaps].tolist()
    if is_text(labels) and scale != "nominal":
        different = {text: number_of(text) for text in dict.fromkeys(given)}
        if all(number is not None and np.isfinite(number) for number in different.values()):
            forms = {text: written(number) for text, number in different.items()}
            return _replaced(labels, gaps, [forms[text] for text in given])
    floats = all(isinstance(v, float) and np.isfinite(v) for v in given)
    if floats and not all(v.is_integer() for v in given):
        return _replaced(labels, gaps, [written(v) for v in given])
    return labels


def _as_text(labels: AnyArray) -> AnyArray:
    """Write numbers as text, as the categories of a column with fractions are."""
    if labels.dtype.kind not in "iuf":
        return labels
    return np.array([written(v) for v in labels.tolist()], dtype=object)


def _replaced(labels: AnyArray, gaps: AnyArray, given: list[str]) -> AnyArray:
    found = np.full(labels.shape, None, dtype=object)
    found[~gaps] = given
    return found


def read_classes(
    labels: Any,
    given: AnyArray | None,
    declared: AnyArray | None = None,
    *,
    argument: str,
    scale: Scale | None = None,
    ordered: bool = False,
    matrix: bool = False,
    instance: IntArray | None = None,
    annotator: IntArray | None = None,
    asks: bool = False,
    sets: bool = True,
    weight: FloatArray | None = None,
) -> Coded:
    """Encode labels by the classes that a caller names, or by those that are found.

    Classes that are found are sorted, and refused, or warned of, if they are probably not classes.

    Parameters
    ----------
    labels : array
        One label per annotation, none missing.
    given, declared : array, optional
        Classes that the caller names; or that a categorical column declares.
    argument : str
        Where the labels come from, for messages.
    scale : {"nominal", "ordinal", "interval"}, optional
        Scale that the caller chose. Default: grades if the columns declare that, or if the classes
        that are found are a known scale (this is logged); else names.
    ordered : bool
        Whether the columns of the labels declare that their categories are grades.
    matrix : bool
        As in `check_classes`.
    instance : integer array, optional
        Code of each label's instance, used to tell codes of classes from ratings. None: whole
        numbers are codes of classes.
    annotator : integer array, optional
        Code of each label's annotator, so that grades of a strict annotator are recognised.
    asks : bool
        Whether labels that are hardly names of classes cause an error that asks for ``scale``. If
        False, they are read as names, with a warning.
    sets : bool
        Whether to check if texts hold several labels. False if the caller said that each text is a
        class, such as a joined set.
    weight : array, optional
        How often each label was given; default: once.

    Raises
    ------
    AnnotationError
        If a label is not among the classes, if the labels cannot be classes, or, with ``asks``, if
        their scale is unclear.
    """
    stated = scale
    if scale is None and ordered:
        scale = "ordinal"
    is_open = given is None and declared is None and scale is None and sets
    if is_open and instance is not None and _are_many_fractions(labels):
        scale = "interval"
        warn_caller(f"{_fractions_of(labels, argument)}. {OTHERWISE}")
    labels = as_labels(labels, scale, argument)
    if declared is not None and is_text(declared) and scale is not None:
        labels = _as_text(labels)
    if given is not None:
        codes, classes = encode(labels, given, argument=argument, vocabulary_name="classes")
        order = "given"
    else:
        check_no_mixture(labels, argument)
        _refuse_fractions(labels, argument)
        codes, classes = encode(labels, declared, argument=argument, vocabulary_name="classes")
        order = "given"
        if declared is None:
            codes, classes, order = in_class_order(codes, classes)
        elif not ordered and is_text(classes) and classes.tolist() == sorted(classes.tolist()):
            # Categories that are merely sorted: pandas makes them of any texts.
            order = "sorted" if order_of(classes) == "given" else order_of(classes)
        if sets and is_text(classes):  # Before the check for free text: there may be many sets.
            counts = np.bincount(codes, minlength=len(classes))
            pairs = zip(classes.tolist(), counts.tolist(), strict=True)
            sets = not refuse_sets({name: n for name, n in pairs if n}, argument)
        question = None
        if scale is None and sets and instance is not None:
            question = scale_question(
                classes, codes, instance, argument, untyped=asks, annotator=annotator
            )
        if question is not None and question.are_numbers and declared is None:
            warn_caller(f"{question.seen}, and are read as numbers. {OTHERWISE}")
            return read_classes(labels, None, argument=argument, scale="interval", matrix=matrix)
        if question is not None and asks:
            raise AnnotationError(f"{question.seen}. {question.mend}")
        named = scale is not None or not sets
        if scale != "interval":  # On an interval scale, any number is plausible.
            check_classes(classes, codes, argument, matrix=matrix, named=named)
        if question is not None:
            _warn(question)
        check_scale(classes, order, scale or "nominal")
        if declared is None:
            scale = scale_of_found(classes, order, scale, _counts(codes, classes, weight))
    check_scale(classes, order, scale or "nominal")
    if stated == "ordinal" or (scale == "ordinal" and ordered):
        warn_of_skew(classes, _counts(codes, classes, weight), argument)
    if scale == "ordinal" and len(classes) == 2:
        text = NO_EFFECT.format(low=repr(classes[0].item()), high=repr(classes[1].item()))
        if stated is None:
            _LOG.info("%s: %s", argument, text)
        else:
            warn_caller(f"{argument}: scale='ordinal', but {text}")
    return Coded(codes, classes, order, scale or "nominal")


def scale_of_found(
    classes: AnyArray, order: str, scale: Scale | None, counts: AnyArray
) -> Scale | None:
    """Return the scale of classes found in the data: grades if they are a known scale.

    Classes of a known scale are still read as names if one of them has nearly all labels, because
    inference on grades is less accurate there.

    Parameters
    ----------
    classes : array of shape (C,)
    order : str
        What their order rests on; see `AnnotationTable.class_order`.
    scale : {"nominal", "ordinal", "interval"} or None
        Scale that the caller chose.
    counts : array of shape (C,)
        How often each class was given.
    """
    if order != "known":
        return scale
    shown = shown_order(classes)
    if scale is None and are_grades(classes, order):
        if (most := _skew(classes, counts)) is not None:
            _LOG.info(
                "%s, so the labels are read as names of classes, which gives more accurate labels; "
                "scale='ordinal' reads them as grades, in the order %s",
                most,
                shown,
            )
            return None
        _LOG.info(
            "the labels are read as grades, in the order %s; scale='nominal' reads them as names "
            "of classes",
            shown,
        )
        return "ordinal"
    if classes.tolist() != sorted(classes.tolist()):
        _LOG.info("the classes are read in the order %s", shown)
    return scale


def warn_of_skew(classes: AnyArray, counts: AnyArray, argument: str) -> None:
    """Warn if one of the grades that a caller declares has nearly all labels.

    Parameters
    ----------
    classes : array of shape (C,)
    counts : array of shape (C,)
        How often each class was given.
    argument : str
        Where they come from.
    """
    most = _skew(classes, counts)
    if most is not None:
        warn_caller(
            f"{argument}: {most}, and the labels are read as grades. With one grade so common, "
            "mistakes into the next grade look like severity, and "
            f"{SKEWED_ARE_NAMES}: scale='nominal'. Use the labels of that reading; keep the order "
            "only to measure how far annotators agree"
        )


def _skew(classes: AnyArray, counts: AnyArray) -> str | None:
    """Say which of three or more classes has nearly all labels; None if no class has."""
    total = float(counts.sum())
    if len(classes) < 3 or total < ENOUGH_LABELS or counts.max() <= SKEWED * total:
        return None
    name = classes[int(counts.argmax())].item()
    return f"{100 * counts.max() / total:.0f} % of the labels are {name!r}"


def _counts(codes: IntArray, classes: AnyArray, weight: FloatArray | None) -> FloatArray:
    is_number = weight is not None and weight.dtype.kind in "biuf"  # Others are refused later.
    return np.bincount(codes, weight if is_number else None, len(classes)).astype(float)


def warn_of_scale(classes: AnyArray, codes: IntArray, instance: IntArray, argument: str) -> Scale:
    """Warn of labels that are hardly names of classes; return the scale on which they are read."""
    question = scale_question(classes, codes, instance, argument)
    if question is not None and question.are_numbers:
        warn_caller(f"{question.seen}, and are read as numbers. {OTHERWISE}")
        return "interval"
    if question is not None:
        _warn(question)
    return "nominal"


def _warn(question: Question) -> None:
    warn_caller(f"{question.seen}; they are read as names of classes. {question.mend}")


def _refuse_fractions(labels: AnyArray, argument: str) -> None:
    """Refuse fractions, which are no codes of classes, and ask for their scale."""
    values = as_values(labels)
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return
    try:
        tidy(values, argument)
    except AnnotationError as error:
        raise AnnotationError(f"{error}. {WAYS}") from error


def check_scale(classes: AnyArray, order: str, scale: str) -> None:
    """Refuse classes that do not fit their scale.

    Raises
    ------
    AnnotationError
        If the scale is ordinal and the classes have no order, or it is interval and they are not
        finite numbers.
    """
    if scale == "nominal":
        return
    if scale == "interval":
        numbers_or_refuse(classes)
    else:
        check_order(classes, order, f"scale={scale!r}")


LARGEST: Final = 1e150
"""Largest number on an interval scale."""


def numbers_or_refuse(classes: AnyArray) -> FloatArray:
    """Return the numbers that all classes are, shape (C,).

    Raises
    ------
    AnnotationError
        If a class is not a number, or not a finite one.
    """
    numbers = numbers_of(classes)
    if numbers is None:
        odd = next(v for v in classes.tolist() if number_of(v) is None)
        if str(odd).strip().lstrip("+-").casefold() in NOT_FINITE:
            raise AnnotationError(
                f"scale='interval' needs finite numbers, but one label is {odd!r}; correct it, or "
                "leave the cell empty if the annotation is missing"
            )
        raise AnnotationError(
            f"scale='interval' needs labels that are numbers, but one is {odd!r}; pass "
            f"abstain={odd!r} if it means that an annotator could not tell, or scale='ordinal' if "
            "the labels are grades"
        )
    if not np.isfinite(numbers).all():
        odd = classes.tolist()[int(np.argmin(np.isfinite(numbers)))]
        raise AnnotationError(
            f"scale='interval' needs finite numbers, but one label is {odd!r}; correct it, or "
            "leave it out"
        )
    if numbers.size and np.abs(numbers).max() > LARGEST:
        odd = classes.tolist()[int(np.abs(numbers).argmax())]
        raise AnnotationError(
            f"scale='interval' needs numbers up to {LARGEST:.0e}, as their squares are added, but "
            f"one label is {odd!r}; correct it, or give the numbers in another unit"
        )
    return numbers


# -- the question ---------------------------------------------------------------------------------


def scale_question(
    classes: AnyArray,
    codes: IntArray,
    instance: IntArray,
    argument: str,
    *,
    untyped: bool = False,
    annotator: IntArray | None = None,
) -> Question | None:
    """Return the question to ask if labels are hardly names of classes; else None.

    Parameters
    ----------
    classes : array of shape (C,)
        In their order.
    codes, instance : integer arrays of shape (n_annotations,)
    argument : str
        Where they come from.
    untyped : bool
        Whether they are from a file, in which a few fractions are numbers. In a data frame, a few
        fractions written as text are names.
    annotator : integer array of shape (n_annotations,), optional
    """
    counts = np.bincount(codes, minlength=len(classes))
    seen = np.flatnonzero(counts)
    if not len(seen):
        return None
    names = classes[seen].tolist()
    numbers = [number_of(name) for name in names]
    marks = np.array([str(name).strip().casefold() in MARKS for name in names])
    are = np.array([number is not None for number in numbers])
    share = counts[seen][are].sum() / max(counts[seen][~marks].sum(), 1)
    if share >= NUMERIC and are.any():
        values = np.full(len(classes), np.nan)
        values[seen] = [np.nan if v is None else v for v in numbers]
        return _question_of_numbers(
            values,
            codes,
            instance,
            argument,
            untyped=untyped,
            are_all=bool(are.all()),
            annotator=annotator,
        )
    if len(seen) > MANY_TEXTS and len(seen) > (items := len(np.unique(instance))) / 2:
        n = int(counts.sum())
        shown = ", ".join(repr(_short(name)) for name in names[:3])
        return Question(
            f"{argument} holds {len(seen):,} different texts in {n:,} annotations of {items:,} "
            f"instances ({shown}, ...), which look like free text",
            NAMES,
        )
    return None


def _question_of_numbers(
    values: FloatArray,
    codes: IntArray,
    instance: IntArray,
    argument: str,
    *,
    untyped: bool,
    are_all: bool,
    annotator: IntArray | None,
) -> Question | None:
    """Ask about fractions, and about whole numbers that are many or far apart."""
    found = np.unique(values[~np.isnan(values)])
    listed = f"{written(found[0])} to {written(found[-1])}"
    fractions = found[found != np.floor(found)]
    few = len(found) <= MANY_NUMBERS
    if few and not (untyped and (len(fractions) or _are_scattered(found, len(codes)))):
        if not len(fractions) and are_all and _differ_by_little(values[codes], instance, annotator):
            _LOG.info(
                "%s: %s, %s, are read as names of classes, but annotators who disagree differ by "
                "little, as on grades; scale='ordinal' reads them as grades in their order, and "
                "shows who rates too high",
                argument, _numbers(len(found)), listed,
            )  # fmt: skip
        return None
    if len(fractions):
        return Question(
            f"{argument} holds {_numbers(len(found))}, {listed}, with fractions such as "
            f"{written(fractions[0])}, which look like scores",
            WAYS,
            not few and are_all,
        )
    if not few and len(found) == len(codes):
        return None  # Numbers that never repeat are ids, which `check_classes` refuses.
    are_codes = None if few else _are_codes(values[codes], instance)
    if are_codes:
        _LOG.info(
            "%s: %s, %s, are read as names of classes, because annotators who disagree differ by "
            "any amount; scale='ordinal' or scale='interval' reads them otherwise",
            argument, _numbers(len(found)), listed,
        )  # fmt: skip
        return None
    return Question(
        f"{argument} holds {_numbers(len(found), 'whole ')}, {listed}, which look like ratings",
        WAYS,
        are_codes is False and are_all,
    )


def _are_many_fractions(labels: Any) -> bool:
    """Return whether labels are many different finite numbers, some of them fractions."""
    values = as_values(labels)
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return False
    return bool((values != np.floor(values)).any() and len(np.unique(values)) > MANY_NUMBERS)


def _fractions_of(labels: Any, argument: str) -> str:
    found = np.unique(as_values(labels))
    return (
        f"{argument} holds {_numbers(len(found))}, {written(found[0])} to {written(found[-1])}, "
        "with fractions, and they are read as numbers"
    )


def _are_scattered(found: FloatArray, n: int) -> bool:
    """Return whether whole numbers lie far apart and seldom repeat, as measurements do."""
    apart = found[-1] - found[0] > MANY_NUMBERS and (np.diff(found) > 1).mean() > 0.5
    return bool(apart and len(found) > 4 and len(found) > n / 2)


def _numbers(n: int, kind: str = "") -> str:
    return f"{n:,} different {kind}numbers"


def _short(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _are_codes(given: FloatArray, instance: IntArray) -> bool | None:
    """Return whether annotators agree on whole numbers exactly or not at all, as on codes.

    None if too few annotations share an instance.
    """
    distance, shuffled = _distances(given, instance)
    if not len(distance):
        return None
    by_chance = (shuffled == 0).mean()
    exact = ((distance == 0).mean() - by_chance) / max(1 - by_chance, 1e-9)
    if exact < AGREE_EXACTLY and len(distance) >= ENOUGH_PAIRS / 2:
        return False
    near = _are_near(distance, shuffled)
    return None if near is None else not near


def look_like_grades(classes: AnyArray, codes: IntArray, instance: IntArray) -> bool:
    """Return whether classes are whole numbers on which annotators differ by little.

    Parameters
    ----------
    classes : array of shape (C,)
    codes, instance : integer arrays of shape (n_annotations,)
    """
    numbers = [number_of(name) for name in classes[np.unique(codes)].tolist()]
    if not 2 < len(numbers) <= MANY_NUMBERS:
        return False
    if any(number is None or number != np.floor(number) for number in numbers):
        return False
    values = np.array([number_of(name) for name in classes.tolist()], dtype=np.float64)
    return _differ_by_little(values[codes], instance)


def _differ_by_little(
    given: FloatArray, instance: IntArray, annotator: IntArray | None = None
) -> bool:
    """Return whether annotators who disagree are surely nearer than chance would have them.

    If their annotators are known, those who are strict or lenient throughout are compared without
    that, in whole grades, as a single one would hide that the others are near.
    """
    near = _are_near(*_distances(given, instance))
    if near is None or near or annotator is None:
        return bool(near)
    return bool(_are_near(*_distances(given, instance, _leniency(given, instance, annotator))))


def _leniency(given: FloatArray, instance: IntArray, annotator: IntArray) -> FloatArray:
    """Return how many whole grades the annotator of each number is above a typical one.

    The model is additive: a number is a mean of its instance plus an offset of its annotator.
    """
    known = _compared(given, instance)
    number, row, column = given[known], instance[known], annotator[known]
    n, counts = np.bincount(row), np.bincount(column, minlength=int(annotator.max()) + 1)
    offset = np.zeros(len(counts))
    for _ in range(20):
        centre = np.bincount(row, number - offset[column]) / np.maximum(n, 1)
        total = np.bincount(column, number - centre[row], len(counts))
        offset = np.where(counts < ENOUGH_PAIRS, 0, total / np.maximum(counts, 1))
        offset -= np.median(offset[counts > 0])
    return np.round(offset)[annotator]


def _compared(given: FloatArray, instance: IntArray) -> BoolArray:
    """Return a mask of the numbers that are compared: in a large table, of some instances only."""
    kept = ~np.isnan(given)
    if (step := len(given) // MOST_COMPARED) > 1:
        kept &= instance % step == 0
    return kept


def _distances(
    given: FloatArray, instance: IntArray, leniency: FloatArray | float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Return the distances of numbers given to the same instances, and of any two numbers.

    In a large table, only about `MOST_COMPARED` annotations are compared. Where the numbers differ,
    their distance is taken without the ``leniency`` of the annotators.
    """
    fair = given - leniency
    kept = _compared(given, instance)
    given, fair, instance = given[kept], fair[kept], instance[kept]
    order = np.lexsort((np.random.default_rng(0).permutation(len(given)), instance))
    row = instance[order]
    same = row[1:] == row[:-1]  # Neighbours alone, for a cost of O(annotations).
    differ = np.diff(given[order])[same] != 0
    distance = np.where(differ, np.maximum(np.abs(np.diff(fair[order]))[same], 1e-9), 0.0)
    return distance, np.abs(given - np.random.default_rng(1).permutation(given))


def _are_near(distance: FloatArray, shuffled: FloatArray) -> bool | None:
    """Return whether positive distances are smaller than by chance; None if there are too few."""
    unequal, apart = distance[distance > 0], shuffled[shuffled > 0]
    if len(unequal) < ENOUGH_PAIRS or not len(apart):
        return None
    return bool(unequal.mean() < DIFFER_FAR * apart.mean())
