"""The order of classes: by their numbers, by a known scale such as low < medium < high, or as text.

A file does not say whether its labels are names or grades. Only statistics of grades depend on the
order of the classes, and they refuse classes that were merely sorted as text (`check_order`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from manyhands.annotations.encoding import is_text
from manyhands.annotations.ids import natural_keys
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray, IntArray

Order = Literal["given", "numbers", "known", "sorted"]

# -- numbers --------------------------------------------------------------------------------------

_NUMBER = r"[+-]?(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:[.,][0-9]+)?|\.[0-9]+)"
_WHOLE_NUMBER = re.compile(rf"\s*({_NUMBER})(?:[eE]([+-]?[0-9]+))?\s*")
_BEGINS = re.compile(
    r"\s*(?:(<=?|≤|under|below|less than|fewer than|up to|at most)"
    r"|(>=?|≥|over|above|more than|at least))?"
    rf"\s*[$€£]?\s*({_NUMBER})(?![0-9])",
    re.IGNORECASE,
)
_ANY = re.compile(r"[0-9]+")


_UNIT = re.compile(rf"\s*({_NUMBER})\s*([^\W\d_]+)?\s*")


def unit_of_grades(classes: AnyArray | Sequence[Any]) -> tuple[float, str]:
    """Return how far each grade is from the next, and what is counted.

    Parameters
    ----------
    classes : array-like of shape (n_classes,)
        Grades in their order.

    Returns
    -------
    step : float
        1 where grades are no numbers at equal distances.
    unit : str
        The word behind the numbers, such as "stars"; "grades" where there is none and the step is
        1, and "" where grades are, say, halves.

    Examples
    --------
    >>> unit_of_grades(["1 star", "1.5 stars", "2 stars"]), unit_of_grades(["low", "high"])
    ((0.5, 'stars'), (1.0, 'grades'))
    >>> unit_of_grades([1, 1.5, 2]), unit_of_grades(["1", "2", "3"])
    ((0.5, ''), (1.0, 'grades'))
    """
    found = [_UNIT.fullmatch(str(label)) for label in classes]
    numbers = [None if each is None else number_of(each[1]) for each in found]
    values = np.array([np.nan if number is None else number for number in numbers])
    steps = np.diff(values)
    if len(steps) == 0 or not (steps > 0).all() or not np.allclose(steps, steps[0]):
        return 1.0, "grades"
    words = [each[2] or "" for each in found if each is not None]
    if len({word.lower().removesuffix("s") for word in words}) > 1:
        return 1.0, "grades"
    unit = max(words, key=len).lower()
    return float(steps[0]), unit or ("grades" if np.isclose(steps[0], 1) else "")


def number_of(text: Any) -> float | None:
    """Return the number that a class stands for, such as 3, "-1" or "0,5"; else None."""
    if isinstance(text, int | float | np.number) and not isinstance(text, bool | np.bool_):
        return float(text)
    found = _WHOLE_NUMBER.fullmatch(str(text))
    if found is None:
        return None
    number = float(f"{_with_point(found[1])}e{found[2] or 0}")
    return number if np.isfinite(number) else None  # A text such as 1e400 is a name.


def numbers_of(classes: AnyArray) -> FloatArray | None:
    """Return the numbers that classes stand for, shape (C,); None unless all are numbers."""
    if not is_text(classes):
        return classes.astype(np.float64) if classes.dtype.kind in "iu" else None
    found = [number_of(text) for text in classes.tolist()]
    return None if any(v is None for v in found) else np.array(found, dtype=np.float64)


def _value(text: str) -> float:
    return float(_with_point(text))


def _with_point(text: str) -> str:
    """Write a number without separators of thousands, with a decimal point."""
    whole = text.replace(",", "")
    if re.fullmatch(r"[+-]?[0-9]+,[0-9]+", text) and not re.fullmatch(
        r"[+-]?[1-9].*,[0-9]{3}", text
    ):
        whole = text.replace(",", ".")
    return whole


def _first_number(text: str) -> tuple[float, int] | None:
    """Return the number that a class begins with ("2 - low", "5%", "<18", "$10"); else None."""
    found = _BEGINS.match(text)
    if found is None:
        return None
    return _value(found[3]), (found[2] is not None) - (found[1] is not None)


def _are_numbered(texts: list[str]) -> bool:
    """Return whether texts differ in one number only, as "grade 2" and "grade 10" do."""
    return len({_ANY.sub("#", text) for text in texts}) == 1 and "#" in _ANY.sub("#", texts[0])


# -- known scales ---------------------------------------------------------------------------------

_DEGREES = (
    ("not at all",),
    ("not",),
    ("hardly", "barely", "minimally"),
    ("slightly", "a little", "a bit", "a little bit", "mildly", "weakly", "slight"),
    ("somewhat", "partially", "partly", "kind of"),
    ("moderately", "fairly", "rather", "reasonably"),
    ("mostly", "generally", "quite", "considerably"),
    ("",),
    ("very", "strongly", "highly", "definitely", "very much", "much"),
    ("extremely", "completely", "totally", "absolutely", "entirely", "fully"),
)
"""Words before an adjective, by rising degree; the adjective alone is among them."""

_PLAIN = next(rank for rank, words in enumerate(_DEGREES) if "" in words)

_POLES = (
    ("disagree", "agree"),
    ("dissatisfied", "satisfied"),
    ("unsatisfied", "satisfied"),
    ("unlikely", "likely"),
    ("improbable", "probable"),
    ("unimportant", "important"),
    ("unhappy", "happy"),
    ("negative", "positive"),
    ("low", "high"),
    ("bad", "good"),
    ("poor", "good"),
    ("weak", "strong"),
    ("small", "large"),
    ("small", "big"),
    ("short", "long"),
    ("slow", "fast"),
    ("cold", "hot"),
    ("light", "heavy"),
    ("easy", "hard"),
    ("easy", "difficult"),
    ("worse", "better"),
    ("decrease", "increase"),
)
"""Adjectives at both ends of scales with a middle."""

_MIDDLE = frozenset(
    {"neutral", "neither", "undecided", "medium", "middle", "mid", "moderate", "average", "normal"}
    | {"mixed", "so so", "equal", "same", "the same", "about the same", "no change", "unchanged"}
    | {"intermediate", "fair", "ok", "okay", "acceptable"}
)

_LISTED = (
    ("none no absent", "negligible", "minimal", "mild slight minor", "moderate medium",
     "severe major", "very_severe", "extreme critical"),
    ("none no", "very_low", "low", "medium moderate mid average", "high", "very_high",
     "extreme critical"),
    ("never", "almost_never hardly_ever very_rarely", "rarely seldom", "occasionally",
     "sometimes", "often frequently", "very_often very_frequently",
     "usually mostly most_of_the_time", "almost_always nearly_always", "always"),
    ("terrible awful", "very_poor very_bad unacceptable", "poor bad", "below_average",
     "fair average acceptable adequate ok okay mediocre", "above_average", "good",
     "very_good", "excellent great", "outstanding perfect"),
    ("not_at_all", "slightly a_little a_bit", "somewhat", "moderately", "quite_a_bit mostly",
     "very very_much a_lot", "extremely completely"),
    ("none nothing", "a_little little few", "some", "much many a_lot most", "all everything"),
    ("tiny", "small", "medium", "large big", "huge"),
    ("xxs", "xs", "s", "m", "l", "xl", "xxl", "xxxl"),
    ("novice", "beginner", "intermediate", "advanced", "expert"),
    ("insignificant negligible", "trivial", "minor low", "major", "critical", "blocker"),
    ("pants_on_fire pants_fire", "false", "barely_true mostly_false", "half_true",
     "mostly_true", "true"),
    ("zero none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth"),
    ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"),
    ("daily", "weekly", "monthly", "quarterly", "yearly annually"),
    ("irrelevant not_relevant", "partially_relevant somewhat_relevant marginally_relevant",
     "relevant", "highly_relevant very_relevant", "perfectly_relevant"),
    tuple("abcdefghijklmnopqrstuvwxyz"),
)  # fmt: skip
"""Scales from their lowest grade up; words that may stand for one grade are beside each other."""

LONGEST_SCALE = 30
"""Number of grades of the longest known scale: more classes are not compared with any."""


@cache
def _scales() -> list[dict[str, int]]:
    return [
        {word.replace("_", " "): rank for rank, grade in enumerate(scale) for word in grade.split()}
        for scale in _LISTED
    ]


def _plain(text: str) -> str:
    """Lower case, single spaces and no punctuation around: "Half-True." is "half true"."""
    return " ".join(re.sub(r"[-_/,.:;!()\s]+", " ", str(text).casefold()).split())


def _bare(texts: list[str]) -> list[str]:
    """Remove the words that all texts begin or end with ("low risk", "high risk")."""
    words = [text.split() for text in texts]
    while all(len(each) > 1 for each in words) and len({each[-1] for each in words}) == 1:
        words = [each[:-1] for each in words]
    while all(len(each) > 1 for each in words) and len({each[0] for each in words}) == 1:
        words = [each[1:] for each in words]
    return [" ".join(each) for each in words]


def _ranks(texts: list[str]) -> Iterator[list[float | None]]:
    """Yield the ranks of texts in every known scale, None where a text is not on the scale."""
    plain = [_plain(text) for text in texts]
    forms = [plain] if (bare := _bare(plain)) == plain else [plain, bare]
    for form in forms:
        for scale in _scales():
            yield [scale.get(text) for text in form]
        for low, high in _POLES:
            yield [_between(text, low, high) for text in form]
    adjectives = {text.rsplit(" ", 1)[-1] for text in plain}
    if len(texts) > 2 and len(adjectives) == 1:
        yield [_degree(text, adjectives.copy().pop()) for text in plain]


def _degree(text: str, adjective: str) -> int | None:
    """Return the degree of "very useful" for "useful"; None for another text."""
    if text != adjective and not text.endswith(" " + adjective):
        return None
    word = text.removesuffix(adjective).strip()
    return next((rank for rank, words in enumerate(_DEGREES) if word in words), None)


def _between(text: str, low: str, high: str) -> float | None:
    """Return the place of a text between two opposites, 0 in the middle; None if unrelated."""
    if text in _MIDDLE or re.fullmatch(
        rf"neither {low} n?or {high}|neither {high} n?or {low}", text
    ):
        return 0.0
    for pole, sign in ((low, -1.0), (high, 1.0)):
        swapped = " ".join(reversed(text.split())) if text.startswith(pole + " ") else text
        degree = _degree(swapped, pole)
        if degree is not None and degree >= 2:  # "Not good" may mean any lower grade.
            return sign * degree
    return None


# -- the order of classes -------------------------------------------------------------------------


class Places(NamedTuple):
    """Where each class belongs in their order.

    Attributes
    ----------
    order : {"numbers", "known", "sorted"}
    keys : list
        Sort key of each class.
    odd : list of int
        Positions of the few classes without which the others have an order, such as one "N/A"
        among numbers.
    """

    order: Order
    keys: list[Any]
    odd: list[int]


def places_of(texts: Sequence[str]) -> Places:
    """Find the order of classes that are text."""
    texts = [str(text) for text in texts]
    natural = natural_keys(texts)
    found = _ordered(texts, natural)
    if found is not None:
        return Places(*found, [])
    odd = _odd(texts)
    return Places("sorted", natural, odd)


_CODES = (
    frozenset("abcdefghijklmnopqrstuvwxyz"),
    frozenset({"i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x"}),
    frozenset({"zero", "one", "two", "three", "four", "five", "six", "seven", "eight"})
    | {"none", "nine", "ten"},
    frozenset({"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"})
    | {"ninth"},
)
"""Ordered words that number mere names as often as grades: options A to D, type II."""


def are_grades(classes: AnyArray, order: str) -> bool:
    """Return whether classes are grades: three or more in a known order, and not A, B, C.

    Parameters
    ----------
    classes : array of shape (C,)
    order : str
        What their order rests on; see `AnnotationTable.class_order`.
    """
    if order != "known" or len(classes) < 3:
        return False
    plain = [_plain(text) for text in classes.tolist()]
    return not any(set(form) <= codes for form in (plain, _bare(plain)) for codes in _CODES)


def _ordered(texts: list[str], natural: list[str]) -> tuple[Order, list[Any]] | None:
    if not texts:
        return None
    whole = [number_of(text) for text in texts]  # Also 1e-05.
    if all(number is not None for number in whole):
        return "numbers", list(zip(whole, natural, strict=True))
    first = [_first_number(text) for text in texts]
    if all(number is not None for number in first):
        return "numbers", list(zip(first, natural, strict=True))
    if _are_numbered(texts):
        return "numbers", list(natural)
    if 1 < len(texts) <= LONGEST_SCALE:
        for ranks in _ranks(texts):
            if None not in ranks and len(set(ranks)) == len(ranks):
                return "known", list(ranks)
    return None


def _odd(texts: list[str]) -> list[int]:
    """Return the fewest texts to leave out so that the others are numbers or a known scale."""
    if len(texts) < 3:
        return []
    best: list[int] = []
    candidates: list[list[Any]] = [[_first_number(text) for text in texts]]
    if len(texts) <= LONGEST_SCALE:
        candidates += _ranks(texts)
    for found in candidates:
        odd = [i for i, place in enumerate(found) if place is None]
        kept = [place for place in found if place is not None]
        few = 0 < len(odd) <= max(1, len(texts) // 4) and len(kept) > 1
        if few and len(set(kept)) == len(kept) and (not best or len(odd) < len(best)):
            best = odd
    return best


def in_class_order(codes: IntArray, classes: AnyArray) -> tuple[IntArray, AnyArray, Order]:
    """Put classes that were found, and sorted as text, into their order.

    Parameters
    ----------
    codes : integer array
        Positions in ``classes``.
    classes : array of distinct values, sorted

    Returns
    -------
    codes, classes : arrays
    order : {"numbers", "known", "sorted"}
        What the order rests on.
    """
    if not is_text(classes):
        return codes, classes, "numbers"
    places = places_of(classes.tolist())
    order = np.array(sorted(range(len(classes)), key=places.keys.__getitem__), dtype=np.int64)
    if np.array_equal(order, np.arange(len(order))):
        return codes, classes, places.order
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[codes], classes[order], places.order


def order_of(classes: AnyArray) -> Order:
    """Return what the order of the classes rests on.

    "numbers", "known" or "sorted", if the classes are in the order that `places_of` finds, or in
    its reverse; else "given".
    """
    if not is_text(classes):
        return "numbers"
    places = places_of(classes.tolist())
    ordered = sorted(places.keys)
    return places.order if places.keys in (ordered, ordered[::-1]) else "given"


def shown_order(classes: AnyArray, limit: int = 12) -> str:
    """Write classes in their order, the lowest first; of many, the first and the last."""
    names = [str(value) for value in classes.tolist()]
    if len(names) > limit:
        names = [*names[: limit - 3], "...", *names[-2:]]
    return " < ".join(names)


def check_order(classes: AnyArray, order: str, statistic: str) -> None:
    """Refuse a statistic of grades whose order is unknown.

    Parameters
    ----------
    classes : array of shape (C,)
    order : str
        What their order rests on; see `AnnotationTable.class_order`.
    statistic : str
        What needs the order, for the message.

    Raises
    ------
    AnnotationError
        If there are more than two classes and they are merely sorted as text.
    """
    if order != "sorted" or len(classes) < 3:
        return
    names = classes.tolist()
    odd = [names[i] for i in places_of(names).odd]
    if odd:
        listed = ", ".join(map(repr, odd))
        raise AnnotationError(
            f"{statistic} needs the order of the classes, but {listed} has no place in the order "
            f"of the others ({shown_order(np.array([n for n in names if n not in odd]))}). If it "
            f"means that an annotator could not tell, pass abstain={odd[0]!r}; if it is a grade, "
            "name all classes in classes=, the lowest first"
        )
    raise AnnotationError(
        f"{statistic} needs the order of the classes, which is unknown: they are merely sorted as "
        f"text, {shown_order(classes)}. Name all of them in classes=, the lowest first"
    )


def close_to(value: Any, among: Sequence[Any]) -> list[Any]:
    """Return values that may be meant by another one: other case, other form, or misspelt."""
    text, known = str(value), {str(each): each for each in among}
    number = number_of(text)
    same = [
        each for name, each in known.items()
        if _plain(name) == _plain(text) or (number is not None and number_of(name) == number)
    ]  # fmt: skip
    return same or [known[name] for name in get_close_matches(text, known, n=3, cutoff=0.75)]
