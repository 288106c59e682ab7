"""What labels are: names, grades or numbers; and the question to a caller where that is open.

Small whole numbers are codes of classes in most files, and are read as such. Many numbers,
fractions and free text are not: whoever reads them as names gets labels that nobody gave.
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
from manyhands.typing import AnyArray, FloatArray, IntArray
from manyhands.wording import counted

_LOG = logging.getLogger("manyhands")

Scale = Literal["nominal", "ordinal", "interval"]

SCALES: Final = ("nominal", "ordinal", "interval")

MEANT: Final = {"nominal": "names of classes", "ordinal": "grades", "interval": "numbers"}
"""What labels are on each scale."""

MANY_NUMBERS = 12
"""So many different whole numbers are taken for codes of classes without a question."""

MANY_TEXTS = 25
"""So many different texts are taken for names of classes, however few instances there are."""

NUMERIC = 0.9
"""Share of the annotations from which labels are numbers, and the others are slips."""

AGREE_EXACTLY, DIFFER_FAR, ENOUGH_PAIRS = 0.3, 0.7, 20
"""Annotators of codes agree exactly in at least this share of pairs, beyond chance; and where they
differ, by at least this share of what chance gives, in so many pairs. Annotators of grades differ
by little."""

MOST_COMPARED = 100_000
"""So many annotations are compared to see by how much annotators differ."""

WAYS = (
    "Say what they are: scale='nominal' (names of classes), scale='ordinal' (grades, in their "
    "order) or scale='interval' (numbers)"
)
"""What to do about numbers that look like ratings."""

NAMES = "Give the labels instead; if these are names of classes, say so: scale='nominal'"
"""What to do about texts that look like free text."""

NO_METHOD = (
    "the labels are numbers (scale='interval'), and this method chooses among classes: it would "
    "choose numbers that nobody gave. RatingMean (manyhands aggregate) averages them, its report "
    "says what to have rated again and who gives too much, and manyhands agreement measures how "
    "far annotators agree; read them by scale='ordinal' if they "
    "are a few grades, by scale='nominal' if they are names of classes"
)
"""What inference of classes says of labels that are numbers."""

SKEWED, ENOUGH_LABELS = 2 / 3, 30
"""Share of the labels, of so many at least, from which one grade has nearly all of them.

Beyond it, labels that are read as names were more often right in all simulated crowds
(``docs/results/ordinal.md``, the table of the commonest grade), because mistakes into the next
grade look like severity.
"""

SKEWED_ARE_NAMES = "more labels are right if they are read as names of classes"
"""What is said of grades of which one has nearly all labels."""

NOT_FINITE = frozenset({"inf", "infinity", "nan"})
"""What programs write for numbers that are none."""

NO_EFFECT = (
    "two classes have no order that could make a difference: {low} < {high} is read, and labels "
    "and agreement are those of names"
)
"""What is said of an order that is declared for two classes."""


class Coded(NamedTuple):
    """Codes of labels, the classes, what the order of these rests on, and what they are."""

    codes: IntArray
    classes: AnyArray
    order: str
    scale: Scale


OTHERWISE = (
    "scale='ordinal' reads them as grades, in their order, and scale='nominal' as names of classes"
)
"""What else may be done about many numbers, which are read as such."""


class Question(NamedTuple):
    """What was seen that makes labels hardly names of classes, and what to say about it.

    Attributes
    ----------
    seen, mend : str
    are_numbers : bool
        Whether the answer is clear: the labels are numbers.
    """

    seen: str
    mend: str
    are_numbers: bool = False


def read_scale(scale: Any, ordered: bool | None = None) -> Scale | None:
    """Check a scale.

    Parameters
    ----------
    scale : {"nominal", "ordinal", "interval"} or None
    ordered : bool or None
        True is short for "ordinal", and False for "nominal".

    Raises
    ------
    AnnotationError
        If the scale is neither None nor one of `SCALES`, or is another than ``ordered`` says.
    """
    if ordered is not None:
        short: Scale = "ordinal" if ordered else "nominal"
        if scale not in (None, short):
            raise AnnotationError(
                f"ordered={ordered} is short for scale={short!r}, and scale={scale!r} is given, "
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
            "and scores are finite; correct them, or leave these rows out"
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
    """Write labels that are numbers, whose categories are text, as some are fractions."""
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
    asks: bool = False,
    sets: bool = True,
    weight: FloatArray | None = None,
) -> Coded:
    """Encode labels by the classes that a caller names, or by those that are found.

    Classes that are found come in their order, and are refused or warned about where they may be
    none.

    Parameters
    ----------
    labels : array
        One label per annotation, none missing.
    given, declared : array, optional
        Classes that the caller names; or that a categorical column declares.
    argument : str
        Where they come from, for messages.
    scale : {"nominal", "ordinal", "interval"}, optional
        What they are said to be. Default: grades if the columns declare that, or if the classes
        that are found are those of a known scale, which is logged; else names.
    ordered : bool
        Whether the columns of the labels declare that their categories are grades.
    matrix : bool
        As in `check_classes`.
    instance : integer array, optional
        Code of each label's instance, by which codes of classes are told from ratings. None: whole
        numbers are codes of classes.
    asks : bool
        Whether labels that are hardly names of classes are an error, which asks for ``scale``. If
        not, they are read as names, with a warning.
    sets : bool
        Whether texts may hold several labels each, and are judged. If not, the caller said that
        each text is a class, such as a joined set.
    weight : array, optional
        How often each label was given; default: once.

    Raises
    ------
    AnnotationError
        If a label is not among the classes, the labels cannot be classes, or to ask for ``scale``.
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
            # As pandas makes categories of any texts.
            order = "sorted" if order_of(classes) == "given" else order_of(classes)
        if sets and is_text(classes):  # Sets may be many, and are no free text.
            counts = np.bincount(codes, minlength=len(classes))
            pairs = zip(classes.tolist(), counts.tolist(), strict=True)
            sets = not refuse_sets({name: n for name, n in pairs if n}, argument)
        question = None
        if scale is None and sets and instance is not None:
            question = scale_question(classes, codes, instance, argument, untyped=asks)
        if question is not None and question.are_numbers and declared is None:
            warn_caller(f"{question.seen}, and are read as numbers. {OTHERWISE}")
            return read_classes(labels, None, argument=argument, scale="interval", matrix=matrix)
        if question is not None and asks:
            raise AnnotationError(f"{question.seen}. {question.mend}")
        named = scale is not None or not sets
        if scale != "interval":  # Any number may be a score.
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
    """Scale of classes that were found, which are grades if they are those of a known scale.

    Classes of a known scale are still names where one of them has nearly all labels, because a fit
    to grades is less accurate there.

    Parameters
    ----------
    classes : array of shape (C,)
    order : str
        What their order rests on; see `AnnotationTable.class_order`.
    scale : {"nominal", "ordinal", "interval"} or None
        What they are said to be.
    counts : array of shape (C,)
        How often each class was given.
    """
    if order != "known":
        return scale
    shown = shown_order(classes)
    if scale is None and are_grades(classes, order):
        if (most := _skew(classes, counts)) is not None:
            _LOG.info(
                "%s, so the labels are read as names of classes, which is more accurate there; "
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
    """Warn of grades that a caller declares, and of which one has nearly all labels.

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
            f"{argument}: {most}, and the labels are read as grades. There, mistakes into the next "
            f"grade look like severity, and {SKEWED_ARE_NAMES}: scale='nominal'"
        )


def _skew(classes: AnyArray, counts: AnyArray) -> str | None:
    """Say which of three or more classes has nearly all labels; None if none has."""
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
    """Ask what fractions are, which no code of a class is."""
    values = as_values(labels)
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return
    try:
        tidy(values, argument)
    except AnnotationError as error:
        raise AnnotationError(f"{error}. {WAYS}") from error


def check_scale(classes: AnyArray, order: str, scale: str) -> None:
    """Refuse classes that have no order, or are no numbers, if they are said to.

    Raises
    ------
    AnnotationError
    """
    if scale == "nominal":
        return
    if scale == "interval":
        numbers_or_refuse(classes)
    else:
        check_order(classes, order, f"scale={scale!r}")


def numbers_or_refuse(classes: AnyArray) -> FloatArray:
    """Return the numbers that all classes are, shape (C,).

    Raises
    ------
    AnnotationError
        If one of them is none, or is not finite.
    """
    numbers = numbers_of(classes)
    if numbers is None:
        odd = next(v for v in classes.tolist() if number_of(v) is None)
        if str(odd).strip().lstrip("+-").casefold() in NOT_FINITE:
            raise AnnotationError(
                f"scale='interval' needs finite numbers, and {odd!r} is none; correct it, or leave "
                "these rows out: an empty cell is a missing annotation"
            )
        raise AnnotationError(
            f"scale='interval' needs labels that are numbers, and {odd!r} is none; use "
            f"scale='ordinal' if they are grades in an order, and abstain={odd!r} if an annotator "
            "could not tell"
        )
    if not np.isfinite(numbers).all():
        odd = classes.tolist()[int(np.argmin(np.isfinite(numbers)))]
        raise AnnotationError(
            f"scale='interval' needs finite numbers, and {odd!r} is none; correct it, or leave it "
            "out"
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
) -> Question | None:
    """Say why labels are hardly names of classes; None if they may well be.

    Parameters
    ----------
    classes : array of shape (C,)
        In their order.
    codes, instance : integer arrays of shape (n_annotations,)
    argument : str
        Where they come from.
    untyped : bool
        Whether they are from a file, in which a few fractions are numbers. In a data frame, a few
        that are text are names.
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
            values, codes, instance, argument, untyped=untyped, are_all=bool(are.all())
        )
    n, items = int(counts.sum()), len(np.unique(instance))
    if len(seen) > MANY_TEXTS and len(seen) > items / 2:
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
) -> Question | None:
    """Ask about fractions, and about whole numbers that are many or far apart."""
    given = values[codes]
    found = np.unique(given[~np.isnan(given)])
    listed = f"{written(found[0])} to {written(found[-1])}"
    fractions = found[found != np.floor(found)]
    few = len(found) <= MANY_NUMBERS
    if few and not (untyped and (len(fractions) or _are_scattered(found, len(given)))):
        if not len(fractions) and are_all and _differ_by_little(given, instance):
            _LOG.info(
                "%s: %s, %s, are read as names of classes, but annotators who differ do so by "
                "little, as with grades; scale='ordinal' reads them as grades in their order, and "
                "tells who gives too much",
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
    if not few and len(found) == len(given):
        return None  # These are ids (`check_classes`).
    are_codes = None if few else _are_codes(given, instance)
    if are_codes:
        _LOG.info(
            "%s: %s, %s, are read as names of classes, because annotators who differ do so "
            "whatever the numbers; scale='ordinal' or scale='interval' reads them otherwise",
            argument, _numbers(len(found)), listed,
        )  # fmt: skip
        return None
    return Question(
        f"{argument} holds {_numbers(len(found), 'whole ')}, {listed}, which look like ratings",
        WAYS,
        are_codes is False and are_all,
    )


def _are_many_fractions(labels: Any) -> bool:
    """Whether labels are more than a few finite numbers, with fractions."""
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
    """Whether a few whole numbers are so far apart, and so seldom repeated, that they count."""
    apart = found[-1] - found[0] > MANY_NUMBERS and (np.diff(found) > 1).mean() > 0.5
    return bool(apart and len(found) > 4 and len(found) > n / 2)


def _numbers(n: int, kind: str = "") -> str:
    return f"{n:,} different {kind}numbers"


def _short(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _are_codes(given: FloatArray, instance: IntArray) -> bool | None:
    """Whether annotators agree exactly or by chance, rather than nearly, on whole numbers.

    None if too few annotations of the same instances tell it.
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
    """Whether names of classes are a few whole numbers on which annotators differ by little.

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


def _differ_by_little(given: FloatArray, instance: IntArray) -> bool:
    """Whether annotators who differ on whole numbers surely do so by less than chance gives."""
    return bool(_are_near(*_distances(given, instance)))


def _distances(given: FloatArray, instance: IntArray) -> tuple[FloatArray, FloatArray]:
    """How far apart numbers of the same instances are, and any two numbers.

    Of a large table, instances with about `MOST_COMPARED` annotations tell it.
    """
    kept = ~np.isnan(given)
    if (step := len(given) // MOST_COMPARED) > 1:
        kept &= instance % step == 0
    given, instance = given[kept], instance[kept]
    order = np.lexsort((np.random.default_rng(0).permutation(len(given)), instance))
    row, value = instance[order], given[order]
    same = row[1:] == row[:-1]  # Neighbours on an instance are pairs, in O(annotations).
    distance = np.abs(np.diff(value))[same]
    return distance, np.abs(given - np.random.default_rng(1).permutation(given))


def _are_near(distance: FloatArray, shuffled: FloatArray) -> bool | None:
    """Whether distances, where there are any, are less than chance gives; None if too few."""
    unequal, apart = distance[distance > 0], shuffled[shuffled > 0]
    if len(unequal) < ENOUGH_PAIRS or not len(apart):
        return None
    return bool(unequal.mean() < DIFFER_FAR * apart.mean())
