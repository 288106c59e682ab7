"""`ComparisonTable`: an immutable table of pairwise comparisons, 13 bytes per comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import narwhals as nw
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from manyhands.annotations.columns import frozen
from manyhands.annotations.encoding import (
    encode,
    make_vocabulary,
    merge_vocabularies,
    missing_mask,
    of_one_kind,
)
from manyhands.annotations.frames import Backend, rows_of
from manyhands.annotations.ids import as_frame, in_natural_order
from manyhands.annotations.table import AnnotationTable
from manyhands.comparisons.layouts import (
    LEFT,
    ONE_EACH,
    RIGHT,
    TIE,
    WINNERS,
    find_columns,
    has_one_each,
    itself,
    marked,
    neither_side,
    one_winner,
    outcomes_of,
)
from manyhands.exceptions import AnnotationError, MissingExtraError, warn_caller
from manyhands.records import record
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

OUTCOMES = ("left", "tie", "right")
"""Names of the outcomes, by code."""

ALWAYS_WRITTEN, IF_KNOWN = ("left", "right", "winner"), ("worker", "question", "weight")
"""Columns of `ComparisonTable.to_frame`: those that every frame has, and those written if known."""

MOST_PAIRS = 50_000_000
"""Largest number of pairs that `from_scores` makes; more would not fit in a laptop's memory."""


@record("ComparisonTable")
@dataclass(frozen=True, eq=False, repr=False)
class ComparisonTable:
    """A table of pairwise comparisons: one row per comparison, integer codes, vocabularies of ids.

    Build one with `from_frame`, `from_scores` or `from_arrays`. Methods return new tables.

    Attributes
    ----------
    left, right : int32 arrays of shape (n_comparisons,)
        Codes of the two items, into ``items``.
    annotator : int32 array of shape (n_comparisons,)
        Code of the annotator who compared them, into ``annotators``.
    outcome : int8 array of shape (n_comparisons,)
        0 where the left item is better, 1 for a tie, 2 where the right one is (see
        `manyhands.comparisons.OUTCOMES`).
    items, annotators : arrays
        The original ids, including items that were not compared.
    question : int32 array of shape (n_comparisons,) or None
        Code of the question (a prompt, an article) on which the items were compared, into
        ``questions``.
    questions : array or None
        The original ids of the questions.
    weights : float32 array of shape (n_comparisons,) or None
        Number of comparisons that each row counts as; None means all 1.
    has_sides : bool
        Whether left and right are the sides that the annotator saw. If not, as with pairs made from
        scores, no preference for a side is estimated.
    has_annotators : bool
        False if the annotators are unknown; all comparisons then count as those of one judge.
    """

    left: IntArray
    right: IntArray
    annotator: IntArray
    outcome: IntArray
    items: AnyArray
    annotators: AnyArray
    question: IntArray | None = None
    questions: AnyArray | None = None
    weights: FloatArray | None = None
    has_sides: bool = True
    has_annotators: bool = True

    def __post_init__(self) -> None:
        m = len(np.atleast_1d(np.asarray(self.left)))
        limits = {
            "left": (len(self.items), np.int32),
            "right": (len(self.items), np.int32),
            "annotator": (len(self.annotators), np.int32),
            "outcome": (len(OUTCOMES), np.int8),
            "question": (0 if self.questions is None else len(self.questions), np.int32),
        }
        for name, (limit, dtype) in limits.items():
            if getattr(self, name) is None:
                continue
            codes = np.asarray(getattr(self, name))
            if codes.shape != (m,):
                raise AnnotationError(
                    f"{name} has shape {codes.shape}; all columns must be one-dimensional and "
                    f"equally long ({m})"
                )
            if m and (codes.min() < 0 or codes.max() >= limit):
                bad = codes[(codes < 0) | (codes >= limit)][0]
                raise AnnotationError(f"{name} holds the code {bad}, outside 0..{limit - 1}")
            object.__setattr__(self, name, frozen(codes, dtype))
        for name in ("items", "annotators", "questions"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, frozen(np.asarray(getattr(self, name)), None))
        same = np.flatnonzero(self.left == self.right)
        if len(same):
            item = self.items[self.left[same[0]]].item()
            raise itself(f"row {same[0]}", item, len(same))
        object.__setattr__(self, "weights", _read_weights(self.weights, m))

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # Pickle and deepcopy return writeable arrays.
            own = frozen(value, None) if isinstance(value, np.ndarray) else value
            object.__setattr__(self, name, own)

    # -- makers -----------------------------------------------------------------------------------

    @classmethod
    def from_frame(
        cls,
        df: Any,
        left: str = "left",
        right: str = "right",
        winner: str = "winner",
        worker: str | None = "worker",
        question: str | None = None,
        *,
        weight: str | None = None,
        abstain: Any = None,
        items: Any = None,
        workers: Any = None,
        time: str | None = None,
    ) -> Self:
        """Read a data frame with one row per comparison.

        Parameters
        ----------
        df : pandas, polars or pyarrow data frame
        left, right : str
            Columns of the ids of the two items. If there are no such columns, the names that other
            tools use are tried, such as ``model_a`` and ``model_b`` of the Arena.
        winner : str
            Column of the winner: the id of one of the two items; or ``left``, ``right``;
            ``model_a``, ``model_b``; ``a``, ``b``; or ``tie``, ``tie (bothbad)`` and the like.
            Crowd-kit's name of the column, ``label``, is also found.
        worker : str or None
            Column of the annotators. None: they are unknown, and all comparisons count as those of
            one judge.
        question : str, optional
            Column of the questions, such as prompts, on which items were compared. Answers to the
            same question depend on each other, and intervals allow for it. Logs of the Arena call
            it ``question_id``.
        weight : str, optional
            Column with how many comparisons each row counts as. In a frame of `to_frame`, its
            columns ``question`` and ``weight`` are read without being named.
        abstain : str or sequence, optional
            Values in the column of winners that mean that nobody answered. Such rows, and those
            without a winner, are left out.
        items, workers : sequence, optional
            All ids, in the desired order; default: those that occur, in natural order.
        time : None
            Not supported: strengths are taken as constant in time. A name of a column is refused.

        Returns
        -------
        ComparisonTable

        Raises
        ------
        AnnotationError
            If ``df`` is not a data frame, a column is missing, an id is empty or unknown, an item
            is compared with itself, a winner is neither side, a weight is negative or not finite,
            or ``time`` is given.

        Warns
        -----
        UserWarning
            If no column of annotators is found, or rows have no winner.

        Examples
        --------
        >>> import pandas as pd
        >>> from manyhands import ComparisonTable
        >>> df = pd.DataFrame({
        ...     "model_a": ["m1", "m2", "m1"], "model_b": ["m2", "m3", "m3"],
        ...     "winner": ["model_a", "tie", "m3"], "judge": ["ann", "ann", "bob"],
        ... })
        >>> ComparisonTable.from_frame(df)
        ComparisonTable(3 comparisons, 1 tie: 3 items, 2 annotators)
        """
        refuse_times(time)
        frame = as_frame(df, "df")
        if frame is None:
            raise AnnotationError(
                f"df is a {type(df).__name__}, not a data frame of pandas, polars or pyarrow; give "
                "pandas.DataFrame({'left': ..., 'right': ..., 'winner': ..., 'worker': ...})"
            )
        if set(ALWAYS_WRITTEN) <= set(frame.columns) <= {*ALWAYS_WRITTEN, *IF_KNOWN}:
            question, weight = (
                name if asked is None and name in frame.columns else asked
                for name, asked in (("question", question), ("weight", weight))
            )
        if winner == WINNERS[0] and has_one_each(frame.columns):
            cells = zip(*(frame[name].to_list() for name in ONE_EACH), strict=True)
            won = [
                one_winner(row, rows_of(frame, np.array([i]))) or None
                for i, row in enumerate(cells)
            ]
            frame = frame.with_columns(
                nw.new_series(winner, won, nw.String, backend=frame.implementation)
            )
        found = find_columns(
            list(frame.columns),
            left=left,
            right=right,
            winner=winner,
            worker=worker,
            question=question,
            weight=weight,
        )
        values = {key: frame[name].to_numpy() for key, name in found.items() if key != "weight"}
        for key in ("left", "right", "worker", "question"):
            gaps = missing_mask(values[key]) if key in values else np.zeros(0, dtype=bool)
            if gaps.any():
                raise AnnotationError(
                    f"column {found[key]!r} ({key}) is empty in "
                    f"{rows_of(frame, np.flatnonzero(gaps))}; fill or drop these rows"
                )
        return cls.from_arrays(
            values["left"],
            values["right"],
            values["winner"],
            values.get("worker"),
            question=values.get("question"),
            weight=None if weight is None else frame[weight].to_numpy(),
            abstain=abstain,
            items=items,
            workers=workers,
            rows=lambda at: rows_of(frame, at),
        )

    @classmethod
    def from_arrays(
        cls,
        left: Any,
        right: Any,
        winner: Any,
        worker: Any = None,
        *,
        question: Any = None,
        weight: Any = None,
        abstain: Any = None,
        items: Any = None,
        workers: Any = None,
        rows: Any = None,
    ) -> Self:
        """Make a table from parallel sequences of ids and winners, each of shape (n_comparisons,).

        Parameters
        ----------
        left, right, winner : array-like
            Ids of the items, and winners as in `from_frame`.
        worker, question, weight : array-like, optional
        abstain, items, workers
            As in `from_frame`.
        rows : callable, optional
            Function from positions to a text that names these rows in messages.

        Returns
        -------
        ComparisonTable

        Raises
        ------
        AnnotationError
            As in `from_frame`, or if the sequences differ in length.
        """
        given = {"left": left, "right": right, "winner": winner, "worker": worker}
        given |= {"question": question, "weight": weight}
        sides = [np.asarray(side) for side in (left, right)]
        lengths = {name: len(part) for name, part in given.items() if part is not None}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} {n}" for name, n in lengths.items())
            raise AnnotationError(f"the columns differ in length: {shown}; each row is one answer")
        m = lengths["left"]
        known = None if items is None else make_vocabulary(items, "items")
        # As objects, because NumPy would silently turn integers into texts if one side holds texts.
        kinds = {side.dtype.kind in "iufb" for side in sides if side.size}
        both = (
            np.concatenate(sides)
            if len(kinds) < 2
            else np.concatenate([side.astype(object) for side in sides])
        )
        codes, ids = encode(both, known, argument="left and right", vocabulary_name="items")
        if items is None:
            codes, ids = in_natural_order(codes, ids)
        l_code, r_code = np.split(codes, [m])
        if worker is None:
            who: IntArray = np.zeros(m, dtype=np.int32)
            people: AnyArray = np.array(["all"])
        else:
            listed = None if workers is None else make_vocabulary(workers, "workers")
            who, people = encode(worker, listed, argument="worker", vocabulary_name="workers")
            if workers is None:
                who, people = in_natural_order(who, people)
        asked: IntArray | None = None
        questions: AnyArray | None = None
        if question is not None:
            asked, questions = encode(
                question, None, argument="question", vocabulary_name="questions"
            )
        w_values, w_code, gaps = _distinct(np.asarray(winner))
        return cls.from_codes(
            l_code,
            r_code,
            who,
            w_code,
            winners=w_values,
            gaps=gaps,
            items=ids,
            annotators=people,
            question=asked,
            questions=questions,
            weights=None if weight is None else np.asarray(weight),
            has_annotators=worker is not None,
            abstain=abstain,
            rows=rows,
        )

    @classmethod
    def from_codes(
        cls,
        left: IntArray,
        right: IntArray,
        annotator: IntArray,
        winner: IntArray,
        *,
        winners: Sequence[Any],
        gaps: BoolArray,
        items: AnyArray,
        annotators: AnyArray,
        question: IntArray | None = None,
        questions: AnyArray | None = None,
        weights: Any = None,
        has_annotators: bool = True,
        abstain: Any = None,
        rows: Any = None,
    ) -> Self:
        """Make a table from integer codes, and from winners that are ids or names of sides.

        Parameters
        ----------
        left, right, annotator, winner : integer arrays of shape (n_comparisons,)
        winners : sequence
            Distinct values of the column of winners; ``winner`` holds positions in it.
        gaps : bool array of shape (n_comparisons,)
            Mask of the rows without a winner.
        items, annotators, question, questions, weights, has_annotators
            As the attributes.
        abstain, rows
            As in `from_arrays`.

        Returns
        -------
        ComparisonTable

        Raises
        ------
        AnnotationError
            If an item is compared with itself, or a winner is neither side.
        """
        named = rows or (lambda at: f"row {int(at[0])}")
        same = np.flatnonzero(left == right)
        if len(same):
            raise itself(named(same[:1]), items[left[same[0]]].item(), len(same))
        positions: dict[Any, int] = {item: i for i, item in enumerate(items.tolist())}
        if not set(map(type, winners)) <= set(map(type, positions)):  # 7 and "7" are the same id.
            positions |= {str(item): i for item, i in list(positions.items())}
        outcome = outcomes_of(left, right, winner, winners, positions)
        passed = marked(winners, abstain)
        away = gaps | (passed[winner] if len(winners) else gaps)
        wrong = np.flatnonzero((outcome < 0) & ~away)
        if len(wrong):
            at = wrong[0]
            raise neither_side(
                named(wrong[:1]),
                items[left[at]].item(),
                items[right[at]].item(),
                winners[winner[at]],
                len(wrong),
                len(left),
            )
        if gaps.any():
            warn_caller(
                f"{int(gaps.sum()):,} of {len(gaps):,} rows have no winner and are left out"
            )
        kept: Any = slice(None) if not away.any() else ~away
        return cls(
            left[kept],
            right[kept],
            annotator[kept],
            outcome[kept],
            items,
            annotators,
            None if question is None else question[kept],
            questions,
            None if weights is None else np.asarray(weights)[kept],
            has_annotators=has_annotators,
        )

    @classmethod
    def from_scores(
        cls,
        scores: Any,
        *,
        item: Any = "item",
        score: str = "score",
        worker: str | None = "worker",
        question: Any = None,
        margin: float = 0.0,
    ) -> Self:
        """Make a comparison of every two items that one annotator scored on one question.

        The higher score wins; equal scores are a tie. Left and right have no meaning here, so no
        position bias is estimated.

        Parameters
        ----------
        scores : data frame, or AnnotationTable of numbers or ordered classes
            A data frame has one row per score. The items of an `AnnotationTable` are its instances,
            unless ``item`` is given.
        item : str, or sequence of shape (n_instances,)
            Column of the items; for an `AnnotationTable`, the item of each instance.
        score, worker : str
            Columns of the scores and of the annotators; not used for an `AnnotationTable`.
        question : str, or sequence of shape (n_instances,), optional
            Column of the questions, such as the article that several systems summarise; for an
            `AnnotationTable`, the question of each instance. Only scores on the same question are
            compared. None: all scores of an annotator are compared.
        margin : float, default=0
            Scores that differ by no more than this are a tie.

        Returns
        -------
        ComparisonTable

        Raises
        ------
        AnnotationError
            If scores are not numbers, ``margin`` is negative, nobody scored two items of one
            question, or there would be too many pairs.

        Examples
        --------
        >>> import pandas as pd
        >>> from manyhands import ComparisonTable
        >>> df = pd.DataFrame({
        ...     "system": ["s1", "s2", "s3"], "article": ["x"] * 3, "worker": ["ann"] * 3,
        ...     "score": [4, 2, 4],
        ... })
        >>> table = ComparisonTable.from_scores(df, item="system", question="article")
        >>> table.to_frame()[["left", "right", "winner"]].values.tolist()
        [['s1', 's2', 'left'], ['s1', 's3', 'tie'], ['s2', 's3', 'right']]
        """
        if not margin >= 0:
            raise AnnotationError(
                f"margin={margin!r} must not be negative: scores that differ by no more are a tie"
            )
        if isinstance(scores, AnnotationTable):
            columns = _scores_of_table(scores, item, question)
        else:
            columns = _scores_of_frame(scores, item, score, worker, question)
        who, asked, thing, value = columns
        codes, ids = in_natural_order(
            *encode(thing, None, argument="item", vocabulary_name="items")
        )
        person, people = in_natural_order(
            *encode(who, None, argument="worker", vocabulary_name="workers")
        )
        place, places = encode(asked, None, argument="question", vocabulary_name="questions")
        order = np.lexsort((codes, place, person))
        first, second = _pairs_within(place[order], person[order])
        one, other = order[first], order[second]
        apart = codes[one] != codes[other]
        one, other = one[apart], other[apart]
        if not len(one):
            raise AnnotationError(
                "no annotator scored two items on the same question, so there is nothing to "
                "compare; check question=, which must name what the scored items have in common"
            )
        difference = value[one] - value[other]
        outcome = np.where(difference > margin, LEFT, np.where(difference < -margin, RIGHT, TIE))
        return cls(
            codes[one],
            codes[other],
            person[one],
            outcome,
            ids,
            people,
            None if question is None else place[one],
            None if question is None else places,
            has_sides=False,
            has_annotators=worker is not None,
        )

    # -- size and content -------------------------------------------------------------------------

    @property
    def n_comparisons(self) -> int:
        """Number of comparisons (rows), regardless of weights; see `n_answers`."""
        return len(self)

    @property
    def n_answers(self) -> float:
        """Sum of the weights; an integer if it is whole."""
        total = float(self.weight.sum(dtype=np.float64))
        return int(total) if total.is_integer() else total

    @property
    def n_items(self) -> int:
        """Number of items, including those that were not compared."""
        return len(self.items)

    @property
    def n_annotators(self) -> int:
        """Number of annotators."""
        return len(self.annotators)

    @property
    def weight(self) -> FloatArray:
        """Weight of each row, shape (n_comparisons,): the number of comparisons it counts as."""
        if self.weights is not None:
            return self.weights
        return np.broadcast_to(np.float32(1.0), self.left.shape)

    @property
    def tie_share(self) -> float:
        """Share of ties, by weight; NaN without comparisons."""
        total = float(self.weight.sum(dtype=np.float64))
        tied = float(self.weight[self.outcome == TIE].sum(dtype=np.float64))
        return tied / total if total else float("nan")

    def __len__(self) -> int:
        return len(self.left)

    def __repr__(self) -> str:
        n, ties = (
            f"{float(self.weight[which].sum(dtype=np.float64)):,.12g}"
            for which in (slice(None), self.outcome == TIE)
        )
        rows = "" if self.weights is None else f" in {len(self):,} row{'s'[: len(self) != 1]}"
        parts = [
            f"{self.n_items:,} item{'' if self.n_items == 1 else 's'}",
            f"{self.n_annotators:,} annotator{'' if self.n_annotators == 1 else 's'}"
            if self.has_annotators
            else "annotators unknown",
        ]
        if self.questions is not None:
            parts.append(f"{len(self.questions):,} questions")
        return (
            f"ComparisonTable({n} comparison{'' if n == '1' else 's'}{rows}, {ties} "
            f"tie{'' if ties == '1' else 's'}: {', '.join(parts)})"
        )

    def components(self) -> IntArray:
        """Return the group of each item: its connected component in the graph of comparisons.

        Returns
        -------
        integer array of shape (n_items,)
            Groups are numbered from 0 in the order of their first items; -1 for items without
            comparisons.
        """
        counted = self.weight > 0
        links = coo_array(
            (np.ones(counted.sum(), dtype=np.int8), (self.left[counted], self.right[counted])),
            shape=(self.n_items, self.n_items),
        )
        group = connected_components(links, directed=False)[1]
        alone = np.bincount(group)[group] == 1
        numbers = np.unique(group[~alone], return_inverse=True)[1]
        found = np.full(self.n_items, -1, dtype=np.int64)
        found[~alone] = numbers
        return found

    def counts(self) -> AnyArray:
        """Return the sum of weights of each item's comparisons.

        Returns
        -------
        array of shape (n_items,)
            Integers if all are whole.
        """
        weight = None if self.weights is None else self.weights.astype(np.float64)
        both: AnyArray = np.bincount(self.left, weight, self.n_items)
        both = both + np.bincount(self.right, weight, self.n_items)
        return both.astype(np.int64) if (both == np.floor(both)).all() else both

    # -- other tables -----------------------------------------------------------------------------

    def take(self, rows: Any) -> Self:
        """Return a table of the comparisons at some positions or in a mask; all ids are kept."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("left", "right", "annotator", "outcome", "question", "weights"):
            if own[name] is not None:
                own[name] = own[name][rows]
        return type(self)(**own)

    def select(self, *, items: Any = None, annotators: Any = None) -> Self:
        """Return a table of the comparisons among some items and by some annotators.

        Parameters
        ----------
        items, annotators : sequence of ids, optional
            Ids to keep; None keeps all.

        Returns
        -------
        ComparisonTable
            Its vocabularies hold these ids in the given order.

        Raises
        ------
        AnnotationError
            If an id is unknown or given twice.
        """
        table, rows = self, np.full(len(self), True)
        places: dict[str, IntArray] = {}
        for name, key, ids in (
            ("items", items, self.items),
            ("annotators", annotators, self.annotators),
        ):
            if key is not None:
                places[name] = ids_of(key, ids, name)
                _refuse_twice(places[name], ids, name)
        if "items" in places:
            kept = np.isin(np.arange(self.n_items), places["items"])
            rows &= kept[self.left] & kept[self.right]
        if "annotators" in places:
            rows &= np.isin(self.annotator, places["annotators"])
        table = self.take(rows)
        own = {field.name: getattr(table, field.name) for field in fields(table)}
        for name, columns in (("items", ("left", "right")), ("annotators", ("annotator",))):
            if name not in places:
                continue
            new = np.full(len(own[name]), -1)
            new[places[name]] = np.arange(len(places[name]))
            own |= {column: new[own[column]] for column in columns}
            own[name] = own[name][places[name]]
        return type(self)(**own)

    def with_added(self, other: ComparisonTable) -> Self:
        """Return a table of these comparisons and those of ``other``.

        Parameters
        ----------
        other : ComparisonTable
            May hold items and annotators that this table has not.

        Returns
        -------
        ComparisonTable
            The rows of ``other`` come last, and new ids after the old ones.

        Raises
        ------
        AnnotationError
            If the ids of one table are texts and those of the other numbers, or if only one has
            questions.
        """
        if (self.question is None) != (other.question is None):
            raise AnnotationError(
                "one table has questions and the other has none; give question= for both, or none"
            )
        items, all_items = merge_vocabularies(self.items, other.items)
        people, everyone = merge_vocabularies(self.annotators, other.annotators)
        question: IntArray | None = None
        questions: AnyArray | None = None
        if self.question is not None and other.question is not None:
            codes, questions = merge_vocabularies(
                np.asarray(self.questions), np.asarray(other.questions)
            )
            question = np.concatenate([self.question, codes[other.question]])
        bare = self.weights is None and other.weights is None
        return type(self)(
            np.concatenate([self.left, items[other.left]]),
            np.concatenate([self.right, items[other.right]]),
            np.concatenate([self.annotator, people[other.annotator]]),
            np.concatenate([self.outcome, other.outcome]),
            all_items,
            everyone,
            question,
            questions,
            None if bare else np.concatenate([self.weight, other.weight]),
            self.has_sides and other.has_sides,
            self.has_annotators or other.has_annotators,
        )

    def swapped(self) -> Self:
        """Return the same comparisons with left and right exchanged."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        own |= {"left": self.right, "right": self.left, "outcome": 2 - self.outcome}
        return type(self)(**own)

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Return a data frame that `from_frame` reads.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}

        Returns
        -------
        data frame
            Columns left, right, winner ("left", "right" or "tie"), worker and, where there are
            some, question and weight.
        """
        values: dict[str, AnyArray] = {
            "left": self.items[self.left],
            "right": self.items[self.right],
            "winner": np.array(OUTCOMES)[self.outcome],
        }
        if self.has_annotators:
            values["worker"] = self.annotators[self.annotator]
        if self.question is not None and self.questions is not None:
            values["question"] = self.questions[self.question]
        if self.weights is not None:
            values["weight"] = np.array(self.weights)
        try:
            return nw.from_dict(values, backend=backend).to_native()
        except ImportError as error:
            raise MissingExtraError(
                f"to_frame(backend={backend!r}) needs {backend}: pip install {backend}"
            ) from error


# -- parts ----------------------------------------------------------------------------------------


def ids_of(key: Any, ids: AnyArray, name: str) -> IntArray:
    """Return the positions of the ids ``key`` in ``ids``; integers are read as ids, not positions.

    Raises
    ------
    AnnotationError
        If one is unknown.
    """
    values, known = of_one_kind(np.atleast_1d(np.asarray(key)), ids, name)
    return encode(values, known, argument=name, vocabulary_name=f"the {name} of the table")[0]


def _refuse_twice(places: IntArray, ids: AnyArray, name: str) -> None:
    known, times = np.unique(places, return_counts=True)
    if (times > 1).any():
        raise AnnotationError(
            f"{name} holds {ids[known[times > 1][0]].item()!r} twice; give each id once"
        )


def refuse_times(time: Any, argument: str = "time") -> None:
    """Raise an error if times are given: strengths that change in time are not modelled.

    Raises
    ------
    AnnotationError
        If times are given.
    """
    if time is not None:
        raise AnnotationError(
            f"{argument}={time!r}: strengths that change in time are not modelled. Leave it "
            "out to rank over the whole time, or rank each period by itself, such as "
            "ComparisonTable.from_frame(df[df.month == '2026-10'])"
        )


def _read_weights(weights: Any, m: int) -> FloatArray | None:
    if weights is None:
        return None
    try:
        found = np.asarray(weights, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise AnnotationError(f"weight holds something that is no number ({error})") from error
    if found.shape != (m,):
        raise AnnotationError(f"weight has shape {found.shape}; one per comparison ({m}) is needed")
    bad = ~np.isfinite(found) | (found < 0)
    if bad.any():
        raise AnnotationError(
            f"weight holds {found[bad][0].item()!r}; weights are finite and not negative"
        )
    return None if (found == 1).all() else frozen(found, np.float32)


def _distinct(winner: AnyArray) -> tuple[list[Any], IntArray, BoolArray]:
    """Return the distinct winners, the position of each row's, and the mask of rows without one."""
    gaps = missing_mask(winner)
    if winner.dtype.kind == "f" and (winner[~gaps] == np.floor(winner[~gaps])).all():
        # pandas stores integer ids with gaps as floats.
        winner = np.where(gaps, 0, winner).astype(np.int64)
    rows = winner.tolist()
    blank = np.array([isinstance(value, str) and not value.strip() for value in rows], dtype=bool)
    gaps = gaps | blank
    position: dict[Any, int] = {}
    codes = np.fromiter(
        (
            0 if gap else position.setdefault(value, len(position))
            for value, gap in zip(rows, gaps.tolist(), strict=True)
        ),
        dtype=np.int64,
        count=len(rows),
    )
    return list(position) or [None], codes, gaps


def _scores_of_table(
    table: AnnotationTable, item: Any, question: Any
) -> tuple[AnyArray, AnyArray, AnyArray, FloatArray]:
    if table.scale == "nominal":
        raise AnnotationError(
            "scores are names of classes (scale='nominal'), which have no order; read the table "
            "with scale='interval' or scale='ordinal'"
        )
    values = (
        table.values
        if table.scale == "interval"
        else np.asarray(table.label, dtype=np.float64)  # Codes of ordered classes.
    )
    parts = []
    for name, given, default in (
        ("item", None if isinstance(item, str) else item, table.instances),
        ("question", question, np.zeros(table.n_instances, dtype=np.int64)),
    ):
        own = default if given is None else np.asarray(given)
        if own.shape != (table.n_instances,):
            raise AnnotationError(
                f"{name}={given!r}: for an AnnotationTable, give the {name} of each of its "
                f"{table.n_instances} instances, in the order of table.instances"
            )
        parts.append(own[table.instance])
    return table.annotators[table.annotator], parts[1], parts[0], values


def _scores_of_frame(
    df: Any, item: Any, score: str, worker: str | None, question: Any
) -> tuple[AnyArray, AnyArray, AnyArray, FloatArray]:
    frame = as_frame(df, "scores")
    if frame is None:
        raise AnnotationError(
            f"scores is a {type(df).__name__}; give a data frame of pandas, polars or pyarrow with "
            "one row per score, or an AnnotationTable"
        )
    names = {"item": item, "score": score, "worker": worker, "question": question}
    for argument, name in names.items():
        if name is not None and name not in frame.columns:
            raise AnnotationError(
                f"{argument}={name!r} is not a column; the columns are "
                f"{', '.join(map(repr, frame.columns))}. Pass {argument}=<name of the column>"
            )
    try:
        values = frame[score].to_numpy().astype(np.float64)
    except (TypeError, ValueError) as error:
        raise AnnotationError(
            f"column {score!r} (score) holds something that is no number ({error})"
        ) from error
    n = len(values)
    who = np.full(n, "all") if worker is None else frame[worker].to_numpy()
    asked = np.zeros(n, dtype=np.int64) if question is None else frame[question].to_numpy()
    thing, given = frame[item].to_numpy(), ~np.isnan(values)
    if not given.all():
        warn_caller(f"{int((~given).sum()):,} of {n:,} rows have no score and are left out")
    return who[given], asked[given], thing[given], values[given]


def _pairs_within(place: IntArray, person: IntArray) -> tuple[IntArray, IntArray]:
    """Return all pairs of rows within runs of equal question and annotator."""
    n = len(place)
    if not n:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    starts = np.flatnonzero(np.r_[True, (place[1:] != place[:-1]) | (person[1:] != person[:-1])])
    sizes = np.diff(np.r_[starts, n])
    total = int((sizes * (sizes - 1) // 2).sum())
    if total > MOST_PAIRS:
        raise AnnotationError(
            f"the scores make {total:,} pairs, more than {MOST_PAIRS:,}; say by question= which "
            "scores are to be compared, or average them with RatingMean"
        )
    later = np.repeat(starts + sizes, sizes) - np.arange(n) - 1  # Rows after each in its run.
    first = np.repeat(np.arange(n), later)
    begin = np.repeat(np.cumsum(later) - later, later)
    second = first + 1 + np.arange(total) - begin
    return first, second
