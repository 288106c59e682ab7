"""Layouts of files of comparisons: names of columns, and words in the column of winners."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.typing import BoolArray, IntArray

LEFT, TIE, RIGHT = 0, 1, 2
"""Codes of the outcomes, in the order in which probabilities are given."""

SIDES = (
    ("left", "right"),
    ("model_a", "model_b"),
    ("item_a", "item_b"),
    ("system_a", "system_b"),
    ("option_a", "option_b"),
    ("item_1", "item_2"),
    ("model_1", "model_2"),
    ("a", "b"),
)
"""Known names of the columns of the two items: ours and crowd-kit's, the Arena's, and others."""

WINNERS = ("winner", "label", "preference", "verdict", "outcome", "choice")
WORKERS = (
    "worker",
    "annotator",
    "judge",
    "performer",
    "rater",
    "user",
    "worker_id",
    "annotator_id",
)

ARENA_QUESTION = "question_id"
"""Column of the questions in logs of the Arena, which have columns model_a and model_b."""

WORDS: dict[str, int] = {
    **dict.fromkeys(
        ("left", "model_a", "a", "item_a", "system_a", "option_a", "model_1", "item_1"), LEFT
    ),
    **dict.fromkeys(
        ("right", "model_b", "b", "item_b", "system_b", "option_b", "model_2", "item_2"), RIGHT
    ),
    **dict.fromkeys(
        (
            "tie",
            "tied",
            "draw",
            "equal",
            "same",
            "both",
            "neither",
            "tie (bothbad)",
            "tie (both bad)",
            "bothbad",
            "both bad",
            "both_bad",
            "both good",
            "both_good",
        ),
        TIE,
    ),
}
"""Words for an outcome: names of the left side, of the right side, and of a tie."""

LETTERS = {"a": LEFT, "b": RIGHT, "c": TIE}
"""Verdicts of language models, also in brackets: [[A]]. C may be another word (see `words_of`)."""

ORDERS = {">": LEFT, "=": TIE, "<": RIGHT}
"""Signs between the sides in a verdict such as A>B, or A>>B where one is much better."""

ONE_EACH = {"winner_model_a": "model_a", "winner_tie": "tie", "winner_model_b": "model_b"}
"""Columns of 0 and 1 for each outcome, as in Kaggle's Arena data, and the winner that a 1 means."""

ONE_EACH_ITEMS = ("model_a", "model_b")

TIMES = ("tstamp", "timestamp", "time", "date", "datetime", "created_at", "created", "updated_at")
"""Known names of columns of times. They are not used; a message says so."""

_LOG = logging.getLogger("manyhands")


def has_one_each(names: Collection[str]) -> bool:
    """Return whether the winner is in three columns of 0 and 1, one for each outcome."""
    return {*ONE_EACH, *ONE_EACH_ITEMS} <= {*names} and not {*WINNERS} & {*names}


def one_winner(cells: Sequence[Any], row: str) -> str:
    """Return the winner that the three columns of `ONE_EACH` name; "" if all are empty.

    Raises
    ------
    AnnotationError
        If not exactly one cell is 1, or a cell holds something else than 0 and 1.
    """
    texts = ["" if cell is None or cell != cell else str(cell).strip().lower() for cell in cells]
    if not any(texts):
        return ""
    ones = [text in ("1", "1.0", "true") for text in texts]
    if sum(ones) != 1 or not all(
        one or text in ("", "0", "0.0", "false") for one, text in zip(ones, texts, strict=True)
    ):
        shown = ", ".join(f"{name} {text!r}" for name, text in zip(ONE_EACH, texts, strict=True))
        raise AnnotationError(f"{row} has {shown}; give 1 in one of the three, and 0 in the others")
    return [*ONE_EACH.values()][ones.index(True)]


def find_columns(
    names: Sequence[str],
    *,
    left: str,
    right: str,
    winner: str,
    worker: str | None,
    question: str | None,
    weight: str | None,
) -> dict[str, str]:
    """Find the columns of comparisons: the ones the caller names, or those of a known layout.

    Parameters
    ----------
    names : sequence of str
        Columns of the frame or file.
    left, right, winner, worker, question, weight : str or None
        As in `ComparisonTable.from_frame`.

    Returns
    -------
    dict {argument: column}
        Without ``worker`` if the file does not say who compared.

    Raises
    ------
    AnnotationError
        If a column is missing, if one column is named twice, or if the two sides are exchanged. The
        message lists the columns that exist.

    Warns
    -----
    UserWarning
        If there is no column of annotators, and ``worker`` is not None.
    """
    found: dict[str, str] = {}
    asked = {"left": left, "right": right, "winner": winner, "worker": worker}
    asked |= {"question": question, "weight": weight}
    if (left, right) == SIDES[0]:
        sides = next((pair for pair in SIDES if set(pair) <= set(names)), SIDES[0])
        asked |= {"left": sides[0], "right": sides[1]}
    if winner == WINNERS[0]:
        asked["winner"] = next((name for name in WINNERS if name in names), winner)
    if worker == WORKERS[0]:
        asked["worker"] = next((name for name in WORKERS if name in names), None)
        if asked["worker"] is None:
            warn_caller(
                "no column of annotators is found, so all comparisons count as those of one judge, "
                "and there are no profiles of annotators. Name the column by worker=, or give "
                "worker=None if there is none"
            )
    is_arena = (asked["left"], asked["right"]) == ("model_a", "model_b")
    if question is None and is_arena and ARENA_QUESTION in names:
        asked["question"] = ARENA_QUESTION
    for argument, name in asked.items():
        if name is None:
            continue
        if name not in names:
            raise AnnotationError(
                f"{argument}={name!r} is not a column; the columns are "
                f"{', '.join(map(repr, names))}. A comparison has the columns left, right and "
                f"winner, and worker if several people or models judged: name yours by {argument}="
            )
        found[argument] = name
    if [WORDS.get(str(found[side]).lower()) for side in ("left", "right")] == [RIGHT, LEFT]:
        raise AnnotationError(
            f"left={found['left']!r} and right={found['right']!r} are exchanged, so a winner given "
            "as a side would be the wrong item; swap left= and right="
        )
    given = {"left": left, "right": right, "winner": winner, "worker": worker}
    others = {key: name for key, name in found.items() if name != given.get(key, question)}
    if others and others != {"weight": weight}:
        read = ", ".join(f"{name!r} as {key}" for key, name in others.items() if key != "weight")
        _LOG.info("read column %s", read)
    times = [name for name in names if name.lower() in TIMES and name not in found.values()]
    if times:
        _LOG.info(
            "column %s holds times and is not used: strengths are taken as constant. If they "
            "change, rank each period by itself",
            repr(times[0]),
        )
    twice = [name for name in found.values() if list(found.values()).count(name) > 1]
    if twice:
        both = [argument for argument, name in found.items() if name == twice[0]]
        raise AnnotationError(
            f"column {twice[0]!r} is named as {' and as '.join(both)}; name one column for each"
        )
    return found


def word_of(value: Any) -> int:
    """Return the code of an outcome such as "left", "model_b", "tie (bothbad)", "A>B"; else -1."""
    text = " ".join(str(value).split()).lower()
    if text in WORDS:
        return WORDS[text]
    bare = text.removeprefix("[[").removesuffix("]]")
    if bare != text and bare in LETTERS and text == f"[[{bare}]]":
        return LETTERS[bare]
    verdict = re.fullmatch(r"(a|b) ?(>|<|=)\2? ?(a|b)", bare)
    if verdict is None or verdict[1] == verdict[3]:
        return -1
    outcome = ORDERS[verdict[2]]
    return outcome if verdict[1] == "a" else RIGHT - outcome


def words_of(values: Sequence[Any], is_id: Sequence[bool]) -> list[int]:
    """Return the code of the outcome that each distinct winner names; -1 if it names none.

    "C" is a tie if "A" or "B" also occurs as a side, and none of the letters is the id of an item.
    """
    letters = [str(value).strip().lower() for value in values]
    named = [letter for letter, own in zip(letters, is_id, strict=True) if own]
    is_verdict = bool({"a", "b"} & {*letters}) and not {*LETTERS} & {*named}
    return [
        LETTERS["c"] if is_verdict and letter == "c" else word_of(value)
        for value, letter in zip(values, letters, strict=True)
    ]


def outcomes_of(
    left: IntArray,
    right: IntArray,
    winner: IntArray,
    winners: Sequence[Any],
    positions: Mapping[Any, int],
) -> IntArray:
    """Return the outcome of each comparison; the winner is an id or the name of a side.

    Parameters
    ----------
    left, right : integer arrays of shape (m,)
        Codes of the items.
    winner : integer array of shape (m,)
        Position in ``winners`` of the value in the column.
    winners : sequence
        The distinct values of the column.
    positions : mapping {item id: code}
        Code of each item.

    Returns
    -------
    int8 array of shape (m,)
        0 left, 1 tie, 2 right, and -1 where the winner is neither side.
    """
    codes = np.array([positions.get(value, -1) for value in winners] or [0], dtype=np.int64)
    words = np.array(
        words_of(winners, (codes >= 0).tolist()) if len(winners) else [0], dtype=np.int8
    )
    by_id = np.full(len(winner), -1, dtype=np.int8)
    named = codes[winner]
    by_id[named == left] = LEFT
    by_id[(named == right) & (named >= 0)] = RIGHT
    by_id[named < 0] = -1
    # An id may also be a word: items "a" and "b". It is read as an id only if the item with this id
    # is one of the two in every row.
    known = by_id >= 0
    strange = np.bincount(winner[~known], minlength=len(winners)) > 0
    is_id = (codes >= 0) & (~strange | (words < 0))
    return np.where(is_id[winner], by_id, words[winner]).astype(np.int8)


def neither_side(
    rows: str, left: Any, right: Any, winner: Any, n_bad: int, n: int
) -> AnnotationError:
    """Return the error for winners that are neither side; it shows the first of them."""
    return AnnotationError(
        f"the winner in {rows} is {winner!r}, but the comparison is of {left!r} with {right!r} "
        f"({n_bad:,} of {n:,} comparisons are like that). A winner is the id of one of the two, or "
        "'left', 'right', 'tie', 'model_a', 'model_b', 'tie (bothbad)', 'A', 'B', 'A>B', '[[A]]'; "
        "'C' is a tie beside 'A' and 'B'. If it is another word for one of these, replace it in "
        f"the column of winners; if it means that nobody answered, name it in abstain=[{winner!r}]"
    )


def itself(rows: str, item: Any, n_bad: int) -> AnnotationError:
    """Return the error for comparisons of an item with itself."""
    several = f" ({n_bad:,} rows compare an item with itself)" if n_bad > 1 else ""
    return AnnotationError(
        f"{rows}: item {item!r} is compared with itself{several}, which says nothing about items; "
        "leave these rows out"
    )


def marked(values: Sequence[Any], marks: Any) -> BoolArray:
    """Return a mask of the values that mean that nobody answered."""
    listed = [marks] if isinstance(marks, str) or not hasattr(marks, "__iter__") else list(marks)
    unused = [] if marks is None else [mark for mark in listed if mark not in values]
    if unused:
        warn_caller(f"abstain={unused[0]!r} is not in the column of winners")
    return np.array([marks is not None and value in listed for value in values], dtype=bool)
