"""The set of labels of every instance: how sure each option is, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from scipy.sparse import csr_array

from manyhands.annotations import LabelSetTable
from manyhands.annotations.encoding import encode, make_vocabulary, missing_mask
from manyhands.annotations.groups import can_be_judged, in_one_family, undeclared_models, unit_of
from manyhands.annotations.label_set_frames import word_of_nothing
from manyhands.annotations.target import as_one_kind, over
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import with_types
from manyhands.io.consensus_labels import ACCEPT, ACTIONS, ENOUGH, FEWEST, others_need
from manyhands.io.files import PathLike, existing_file, naming
from manyhands.io.frames import read_frame
from manyhands.io.gold import REVIEWED, read_marks
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

RULE: Final = (
    "Sets that you gave as known are accepted. Other sets are accepted if every option, ticked or "
    f"not, is at least {100 * ACCEPT:g} % certain, and at least two annotators agree on every "
    "option. Annotators who may share mistakes count as one. "
    f"{others_need('set', 'answer', 'answered')}"
)
"""Rule of all actions, in words, shown wherever their numbers are given."""


@dataclass(frozen=True, eq=False)
class SetConsensus:
    """Sets of labels of all instances of a table.

    Attributes
    ----------
    tasks : array of shape (n_instances,)
        Ids.
    options : array of shape (n_options,)
        Names.
    ticks : boolean array of shape (n_instances, n_options)
    posterior : array of shape (n_instances, n_options)
        The method's own probability that each option applies.
    probability : array of shape (n_instances, n_options)
        Reported probability that each cell is right, ticked or not
        (`manyhands.metrics.set_levels`); NaN if unknown.
    n_annotations : integer array of shape (n_instances,)
        Number of answers.
    agreement : array of shape (n_instances,)
        Share of the cells of the instance's answers that agree with the set; NaN without answers.
    actions : array of str of shape (n_instances,)
        One of `manyhands.io.consensus_labels.ACTIONS` each.
    known : boolean array of shape (n_instances, n_options)
    """

    tasks: AnyArray
    options: AnyArray
    ticks: BoolArray
    posterior: FloatArray
    probability: FloatArray
    n_annotations: IntArray
    agreement: FloatArray
    actions: AnyArray
    known: BoolArray

    @property
    def classes(self) -> AnyArray:
        """Names of the options, which are the classes of a tool's question."""
        return self.options

    @cached_property
    def labels(self) -> list[list[str]]:
        """Names of the options in each set."""
        return [self.options[row].tolist() for row in self.ticks]

    @cached_property
    def certainty(self) -> FloatArray:
        """Reported probability that each cell is right, or the method's own if none is reported."""
        own = np.where(self.ticks, self.posterior, 1 - self.posterior)
        return np.where(np.isnan(self.probability), own, self.probability)

    @property
    def expected_errors(self) -> FloatArray:
        """Expected number of wrong cells of each set; NaN if unknown."""
        return np.asarray((1 - self.probability).sum(axis=1))

    @cached_property
    def doubtful(self) -> IntArray:
        """Code of the least sure option of each instance."""
        return np.asarray(self.certainty.argmin(axis=1))

    def by_doubt(self) -> IntArray:
        """Return the positions of all instances, the most wrong cells expected first."""
        errors = (1 - self.certainty).sum(axis=1)
        return np.lexsort((np.arange(len(errors)), -np.round(errors, 9)))

    def least_certain_first(self) -> IntArray:
        """Return the positions of all instances in the order of review."""
        return self.by_doubt()

    def take(self, mask: BoolArray) -> SetConsensus:
        """Return the sets of some instances."""
        arrays = ("tasks", "ticks", "posterior", "probability", "n_annotations", "agreement")
        own = (*arrays, "actions", "known")
        return replace(self, **{name: getattr(self, name)[mask] for name in own})

    def count_actions(self) -> dict[str, int]:
        """Count the instances per recommended action."""
        return {action: int((self.actions == action).sum()) for action in ACTIONS}

    def arrays(
        self, separator: str, none: str | Sequence[str] | None = None
    ) -> dict[str, AnyArray]:
        """Return the columns of ``labels.csv`` as arrays.

        Parameters
        ----------
        separator : str
            What is written between the labels of a set.
        none : str or sequence of str, optional
            As in `manyhands.io.read_label_sets`: its first word other than "empty" is written of a
            set without labels. Default: an empty cell.

        Returns
        -------
        dict {column: array of shape (n_instances,)}
            ``task``; ``labels``, the set; ``expected_errors``; ``least_sure``, the option that is
            most probably wrong, and ``probability``, the probability that it is right (NaN if
            unknown); ``n_annotations``; ``agreement``; ``action``; the method's own probability of
            every option; and ``reviewed``, "yes" if all of the set is known.
        """
        rows, nothing = np.arange(len(self.tasks)), word_of_nothing(none)
        shares = {
            f"p({name})": self.posterior[:, m] for m, name in enumerate(self.options.tolist())
        }
        return {
            "task": self.tasks,
            "labels": np.array(
                [separator.join(names) or nothing for names in self.labels], dtype=object
            ),
            "expected_errors": self.expected_errors,
            "least_sure": self.options[self.doubtful],
            "probability": self.probability[rows, self.doubtful],
            "n_annotations": self.n_annotations,
            "agreement": self.agreement,
            "action": self.actions,
            **shares,
            REVIEWED: np.where(self.known.all(axis=1), "yes", ""),
        }

    def columns(
        self, separator: str, none: str | Sequence[str] | None = None
    ) -> dict[str, list[Any]]:
        """Return the columns of ``labels.csv`` as lists of plain values, None where missing."""
        return {
            name: [None if v != v else v for v in values.tolist()]
            for name, values in self.arrays(separator, none).items()
        }


def set_consensus(
    table: LabelSetTable, model: Any, ticks: BoolArray, probability: FloatArray
) -> SetConsensus:
    """Return every instance's set with its probabilities and a recommended action.

    Parameters
    ----------
    table : LabelSetTable
    model : BaseSetAggregator, fitted to the table
    ticks : boolean array of shape (n_instances, n_options)
        The sets, as decided.
    probability : array of shape (n_instances, n_options)
        Reported probability that each cell is right; NaN if unknown.

    Returns
    -------
    SetConsensus

    Notes
    -----
    The recommended action is

    - "accept": every option of the instance, ticked or not, is known, or is right with a
      probability of at least 95 % and at least two annotators agree with it. Members of a family
      count as one unit, and so do annotators named like language models. With fewer than three
      units, agreement does not show who is right, and only known sets are accepted;
    - "review": otherwise, if the instance has at least five answers, or if at least two annotators
      abstained and at least as many as answered;
    - "collect more": all others.
    """
    answers, known = table.answers, model.is_known_
    n = table.annotations_per_instance()
    said, answered = _said(table, ticks)
    share = np.divide(_mean_agreement(table, ticks), n, out=np.full(len(n), np.nan), where=n > 0)
    alike = undeclared_models(answers.groups, answers.annotators)
    sure = known | ((probability >= ACCEPT) & (said >= FEWEST) & model.identified_)
    accepted = sure.all(axis=1) & (answered > 0)
    if (alike.any() or answers.groups is not None) and not can_be_judged(
        in_one_family(answers, alike), known.all(axis=1)
    ):
        accepted[:] = False
    accepted |= known.all(axis=1)
    declined = np.bincount(table.abstentions[:, 0], minlength=table.n_instances)
    open_ = (n >= ENOUGH) | ((declined >= FEWEST) & (declined >= n))
    actions = np.where(accepted, ACTIONS[0], np.where(open_, ACTIONS[2], ACTIONS[1]))
    return SetConsensus(
        table.instances, table.options, ticks, model.posterior_, probability, n, share, actions,
        known,
    )  # fmt: skip


def read_set_consensus(
    path: PathLike,
    table: LabelSetTable,
    *,
    separator: str = ";",
    none: str | Sequence[str] | None = None,
) -> tuple[SetConsensus, LabelSetTable]:
    """Read sets that manyhands wrote, and join them with the answers behind them.

    Parameters
    ----------
    path : str or Path
        ``labels.csv`` of ``manyhands fit`` or ``aggregate``.
    table : LabelSetTable
    separator : str
        What stands between the labels of a set.
    none : str or sequence of str, optional
        As in `manyhands.io.read_label_sets`; an empty cell is a set without labels anyway.

    Returns
    -------
    found : SetConsensus
        Its ``probability`` is 1 for known sets, else NaN: the file tells it of one option each.
    table : LabelSetTable
        With the instances of the file, in its order, and its options.

    Raises
    ------
    FileNotFoundError, AnnotationError
        If the file does not exist or is of another form, or lacks an instance of the table.
    """
    path = existing_file(path)
    with naming(path):
        frame = with_types(read_frame(path), {"task": "task"}, path)
        names = [name[2:-1] for name in frame.columns if name[:2] == "p(" and name[-1] == ")"]
        if not {"task", "labels", "action"} <= set(frame.columns) or not names:
            raise AnnotationError(
                "these are not sets that manyhands wrote: 'task', 'labels', 'action' or "
                f"'p(<option>)' is missing among the columns, {', '.join(frame.columns)}"
            )
        tasks = make_vocabulary(frame["task"].to_numpy(), "column 'task'")
        mine, theirs = as_one_kind(table.instances, tasks)
        lost = mine[~np.isin(mine, theirs)]
        if len(lost):
            raise AnnotationError(
                f"{len(lost):,} instances of the answers (such as {str(lost[0])!r}) have no set in "
                "this file; it belongs to other answers"
            )
        rows, _ = encode(mine, theirs, argument="tasks", vocabulary_name="tasks")
        table = replace(table, answers=over(table.answers, tasks, rows)).with_options(names)
        nothing = word_of_nothing(none)
        code_of = {name: code for code, name in enumerate(names)}
        ticks = np.zeros((len(tasks), len(names)), dtype=bool)
        cells, blank = frame["labels"].to_list(), missing_mask(frame["labels"].to_numpy())
        for row in np.flatnonzero(~blank).tolist():
            held = [name.strip() for name in str(cells[row]).split(separator) if name.strip()]
            held = [] if held == [nothing] else held
            strange = [name for name in held if name not in code_of]
            if strange:
                raise AnnotationError(
                    f"column 'labels' holds {strange[0]!r}, which is none of the options "
                    f"({', '.join(names)})"
                )
            ticks[row, [code_of[name] for name in held]] = True
        posterior = np.column_stack([frame[f"p({name})"].to_numpy() for name in names])
        known = np.zeros(ticks.shape, dtype=bool)
        if REVIEWED in frame.columns:
            known[read_marks(frame, REVIEWED)] = True
        n = table.annotations_per_instance()
        share = np.divide(
            _mean_agreement(table, ticks), n, out=np.full(len(n), np.nan), where=n > 0
        )
        actions = np.asarray(frame["action"].to_numpy(), dtype=str)
        own = (ticks, posterior.astype(np.float64), np.where(known, 1.0, np.nan))
        return SetConsensus(table.instances, table.options, *own, n, share, actions, known), table


def _said(table: LabelSetTable, ticks: BoolArray) -> tuple[IntArray, IntArray]:
    """Count the units that agree with each cell of the sets, (n, M), and that answered, (n,)."""
    answers = table.answers
    unit = unit_of(answers, undeclared_models(answers.groups, answers.annotators))
    n_units = int(unit.max(initial=-1)) + 1
    pair, place = np.unique(
        answers.instance.astype(np.int64) * n_units + unit[answers.annotator], return_inverse=True
    )
    rows = np.arange(len(place))
    joins = csr_array(
        (np.ones(len(rows), dtype=np.int32), (place.ravel(), rows)), shape=(len(pair), len(rows))
    )
    ticked = joins @ table.ticks.astype(np.int32)  # How many of a unit tick, (pairs, M).
    size = np.asarray(joins.sum(axis=1)).ravel()
    instance = pair // max(n_units, 1)
    of_pair = csr_array(
        (np.ones(len(pair), dtype=np.int32), (instance, np.arange(len(pair)))),
        shape=(table.n_instances, len(pair)),
    )
    some, every = ticked.copy(), ticked.copy()
    some.data = (ticked.data > 0).astype(np.int32)
    entries = ticked.tocoo()
    every = csr_array(
        ((entries.data == size[entries.row]).astype(np.int32), (entries.row, entries.col)),
        shape=ticked.shape,
    )
    answered = np.asarray(of_pair.sum(axis=1)).ravel()
    yes = (of_pair @ some).toarray()
    no = answered[:, None] - (of_pair @ every).toarray()
    return np.where(ticks, yes, no), answered


def _mean_agreement(table: LabelSetTable, ticks: BoolArray) -> FloatArray:
    """Sum over an instance's answers of the share of cells that say what its set says, (n,)."""
    given = table.ticks.astype(np.int32)
    both = np.asarray(given.multiply(csr_array(ticks[table.instance])).sum(axis=1)).ravel()
    either = table.ticks_per_answer() + ticks.sum(axis=1)[table.instance] - both
    wrong = either - both
    share = 1 - wrong / table.n_options
    return np.asarray(np.bincount(table.instance, share, table.n_instances), dtype=np.float64)
