"""Answers that are sets of labels ("tick all that apply"), in long form.

Each distinct set is a class of an `AnnotationTable`; the options that it holds are stored once. So
ids, weights, families and passes are those of that table, and memory grows with the number of
answers and distinct sets, not with answers times options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Concatenate, ParamSpec

import numpy as np
from scipy.sparse import csr_array, vstack

from manyhands.annotations import frames, html, label_set_frames
from manyhands.annotations.columns import frozen
from manyhands.annotations.duplicates import Duplicates
from manyhands.annotations.encoding import make_vocabulary
from manyhands.annotations.groups import RHO
from manyhands.annotations.ids import InstanceOrder
from manyhands.annotations.label_set_frames import check_options, number_sets, with_sets
from manyhands.annotations.label_sets import NO_YES, check_option, name_of
from manyhands.annotations.table import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.records import record
from manyhands.typing import AnyArray, FloatArray, IntArray

Options = ParamSpec("Options")


def _maker(
    make: Callable[Concatenate[Callable[..., LabelSetTable], Options], LabelSetTable],
) -> classmethod[LabelSetTable, Options, LabelSetTable]:
    """Turn a function that makes tables into a class method of the same signature."""
    return classmethod(make)


@record("LabelSetTable")
@dataclass(frozen=True, eq=False, repr=False)
class LabelSetTable:
    """Answers that are sets of labels: one row per answer, which ticks some of the options.

    Build one with `from_frame` or `from_arrays`, or read a file with
    `manyhands.io.read_label_sets`; methods return new tables. An answer without a tick is an
    answer: it says that no option applies.

    Attributes
    ----------
    answers : AnnotationTable
        The answers; their classes are the numbers of the sets, 0..K-1.
    options : array of shape (n_options,)
        Names of the options, as text.
    set_start : integer array of shape (K + 1,)
        Where the options of each set begin in ``set_options``.
    set_options : integer array of shape (set_start[-1],)
        Codes of the options of all sets, one set after another, rising within each.

    Examples
    --------
    >>> import pandas as pd
    >>> from manyhands import LabelSetTable
    >>> rows = [("a", "ann", "joy;surprise"), ("a", "bob", "surprise"), ("b", "ann", "fear")]
    >>> table = LabelSetTable.from_frame(pd.DataFrame(rows, columns=["task", "worker", "labels"]))
    >>> table
    LabelSetTable(3 answers: 2 instances x 2 annotators, 3 options, 4 ticks)
    >>> table.options
    array(['fear', 'joy', 'surprise'], dtype='<U8')
    >>> table.option("surprise").to_matrix()
    array([['yes', 'yes'],
           ['no', None]], dtype=object)
    """

    answers: AnnotationTable
    options: AnyArray
    set_start: IntArray
    set_options: IntArray

    def __post_init__(self) -> None:
        options, sets = check_options(self.options, "options"), self._sets
        n_sets = self.answers.n_classes
        is_coded = not self.set_options.size or (
            self.set_options.min() >= 0 and self.set_options.max() < len(options)
        )
        rises = np.diff(self.set_options) > 0
        start = np.asarray(self.set_start)
        rises[start[(start > 0) & (start < len(self.set_options))] - 1] = True
        ends = (self.set_start[0], self.set_start[-1]) == (0, len(self.set_options))
        if sets.shape[0] != n_sets or not (is_coded and ends and rises.all()):
            raise AnnotationError(
                f"set_start and set_options do not describe the {n_sets} sets of the answers over "
                f"{len(options)} options; build the table with from_frame or from_arrays"
            )
        for name, values in (
            ("options", frozen(options, None)),
            ("set_start", frozen(np.asarray(self.set_start), np.int32)),
            ("set_options", frozen(np.asarray(self.set_options), np.int16)),
        ):
            object.__setattr__(self, name, values)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Pickle and deepcopy make arrays writeable again.
        for name, value in state.items():
            kept = frozen(value, None) if isinstance(value, np.ndarray) else value
            object.__setattr__(self, name, kept)

    # -- makers ---------------------------------------------------------------------------------

    from_frame = _maker(label_set_frames.from_frame)
    from_arrays = _maker(label_set_frames.from_arrays)
    from_tables = _maker(label_set_frames.from_tables)

    # -- size and shape -------------------------------------------------------------------------

    @property
    def n_instances(self) -> int:
        """Number of instances, including those without answers."""
        return self.answers.n_instances

    @property
    def n_annotators(self) -> int:
        """Number of annotators, including those without answers."""
        return self.answers.n_annotators

    @property
    def n_options(self) -> int:
        """Number of options."""
        return len(self.options)

    @property
    def n_annotations(self) -> int:
        """Number of answers (rows), whatever they tick."""
        return self.answers.n_annotations

    @property
    def n_ticks(self) -> int:
        """Number of ticks in all answers."""
        return int(np.diff(self.set_start)[self.answers.label].sum())

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n_instances, n_annotators)."""
        return self.answers.shape

    ndim = 2

    def __len__(self) -> int:
        return self.n_instances

    @property
    def nbytes(self) -> int:
        """Memory of the columns and of the different sets in bytes, without the vocabularies."""
        return self.answers.nbytes + self.set_start.nbytes + self.set_options.nbytes

    def __repr__(self) -> str:
        # Passes and families are those of the table of answers, which writes them.
        told = repr(self.answers).partition("(")[2].rpartition(", ")[0]
        told = told.replace(" annotations", " answers", 1)
        return f"LabelSetTable({told}, {self.n_options} options, {self.n_ticks} ticks)"

    def _repr_html_(self) -> str:
        sets = self.labels_of_sets()
        first = [sets[code] for code in self.answers.label[: html.MOST_ROWS].tolist()]
        return html.summary_of_sets(
            self.answers._columns, self.options, self.ticks_per_option(), first
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """Refuse to become an array.

        Raises
        ------
        AnnotationError
            Always, because a set does not fit into a cell of a matrix.
        """
        raise AnnotationError(
            "a LabelSetTable cannot become an array, because each answer is a set of options. Use "
            "table.option(name), an AnnotationTable of no and yes for one option, or table.ticks, "
            "a sparse array (n_annotations, n_options). In cross-validation, give the splitter "
            "itself, such as cv=KFold(5)"
        )

    # -- columns --------------------------------------------------------------------------------

    @property
    def instance(self) -> IntArray:
        """Code of each answer's instance, shape (n_annotations,)."""
        return self.answers.instance

    @property
    def annotator(self) -> IntArray:
        """Code of each answer's annotator, shape (n_annotations,)."""
        return self.answers.annotator

    @property
    def instances(self) -> AnyArray:
        """Ids of the instances, shape (n_instances,)."""
        return self.answers.instances

    @property
    def annotators(self) -> AnyArray:
        """Ids of the annotators, shape (n_annotators,)."""
        return self.answers.annotators

    @property
    def instance_order(self) -> InstanceOrder:
        """Whether the order of the instances was given, or chosen by the table."""
        return self.answers.instance_order

    @property
    def weights(self) -> FloatArray | None:
        """Weight of each answer, shape (n_annotations,); None means all 1."""
        return self.answers.weights

    @property
    def weight(self) -> FloatArray:
        """Weight of each answer, shape (n_annotations,); 1 if none were given."""
        return self.answers.weight

    @property
    def groups(self) -> AnyArray | None:
        """Family of each annotator, shape (n_annotators,); None means never declared."""
        return self.answers.groups

    @property
    def group_rho(self) -> float:
        """Correlation of mistakes within a family."""
        return self.answers.group_rho

    @property
    def annotators_known(self) -> bool:
        """Whether the answers say who gave them."""
        return self.answers.annotators_known

    @property
    def passes(self) -> IntArray | None:
        """Abstentions and skips, (n_passes, 3); see `AnnotationTable`."""
        return self.answers.passes

    @property
    def abstentions(self) -> IntArray:
        """Codes [instance, annotator] of the abstentions ("unsure"), shape (n_abstentions, 2)."""
        return self.answers.abstentions

    @property
    def skips(self) -> IntArray:
        """Codes [instance, annotator] of the skips, shape (n_skips, 2)."""
        return self.answers.skips

    @property
    def _sets(self) -> Any:
        """Options of each set, a sparse array (K, n_options)."""
        start, codes = np.asarray(self.set_start), np.asarray(self.set_options)
        shape = (len(start) - 1, len(np.atleast_1d(self.options)))
        return csr_array((np.ones(len(codes), dtype=bool), codes, start), shape=shape)

    @property
    def ticks(self) -> Any:
        """What each answer ticks, a sparse boolean array (n_annotations, n_options), CSR."""
        return self._sets[self.answers.label]

    def annotations_per_instance(self) -> IntArray:
        """Count the answers about each instance, shape (n_instances,)."""
        return self.answers.annotations_per_instance()

    def annotations_per_annotator(self) -> IntArray:
        """Count the answers of each annotator, shape (n_annotators,)."""
        return self.answers.annotations_per_annotator()

    def ticks_per_option(self) -> IntArray:
        """Count the ticks of each option, shape (n_options,)."""
        given = np.bincount(self.answers.label, minlength=self.answers.n_classes)
        times = np.repeat(given, np.diff(self.set_start))
        return np.bincount(self.set_options, times, self.n_options).astype(np.int64)

    def ticks_per_answer(self) -> IntArray:
        """Count the ticks of each answer, shape (n_annotations,)."""
        counts: IntArray = np.diff(self.set_start)[self.answers.label]
        return counts

    # -- tables of single labels ----------------------------------------------------------------

    def option(self, name: Any) -> AnnotationTable:
        """Return the table of the question whether an option was ticked: classes "no" and "yes".

        Parameters
        ----------
        name : str
            One of ``options``.

        Raises
        ------
        AnnotationError
            If there is no such option.
        """
        known = self.options.tolist()
        return self._of_code(known.index(check_option(str(name), known)))

    def _of_code(self, code: int) -> AnnotationTable:
        holds = np.zeros(self.answers.n_classes, dtype=np.int16)
        holds[
            np.repeat(np.arange(len(holds)), np.diff(self.set_start))[self.set_options == code]
        ] = 1
        columns = self.answers._columns
        return AnnotationTable(
            *columns._replace(label=holds[columns.label], classes=np.array(NO_YES))
        )

    @property
    def tables(self) -> Mapping[str, AnnotationTable]:
        """Table of each option by its name, made when it is asked for (see `option`)."""
        return _TablesByOption(self)

    def joined(self) -> AnnotationTable:
        """Return the table in which each set is one class, such as "joy + surprise".

        Raises
        ------
        AnnotationError
            If two sets get the same name, because an option contains " + ".
        """
        names = np.array([name_of(labels) for labels in self.labels_of_sets()], dtype=str)
        used, codes = np.unique(self.answers.label, return_inverse=True)
        try:
            classes = make_vocabulary(names[used], "the names of the sets")
        except AnnotationError as error:
            raise AnnotationError(f"{error}: rename the options that contain ' + '") from error
        order = np.argsort(classes, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        columns = self.answers._columns._replace(label=rank[codes], classes=classes[order])
        return AnnotationTable(*columns._replace(class_order="sorted"))

    def labels_of_sets(self) -> list[list[str]]:
        """Return the names of the options that each set holds."""
        names = self.options[self.set_options].tolist()
        return [names[first:last] for first, last in pairwise(self.set_start.tolist())]

    # -- views and copies -----------------------------------------------------------------------

    def to_frame(self, *, separator: str | None = ";", backend: frames.Backend = "pandas") -> Any:
        """Return a long data frame: task, worker, labels, weight, and pass and group if there are.

        Parameters
        ----------
        separator : str or None, default=";"
            What stands between the labels of a set. None: cells are lists.
        backend : {"pandas", "polars", "pyarrow"}

        Returns
        -------
        data frame
            ``from_frame(frame, weight="weight", none="empty")`` reads it back, with
            ``passes="pass"`` and ``group="group"`` where there are such columns.

        Raises
        ------
        AnnotationError
            If the name of an option contains the separator.
        """
        return label_set_frames.to_frame(self, separator, backend)

    def take(self, rows: Any) -> LabelSetTable:
        """Keep the answers at the given positions (or under a mask), and all vocabularies."""
        return replace(self, answers=self.answers.take(rows))

    def select(
        self, instances: Any = None, annotators: Any = None, options: Any = None
    ) -> LabelSetTable:
        """Keep some instances, annotators and options, in the order given.

        Parameters
        ----------
        instances, annotators : ids, mask or slice, optional
            As in `AnnotationTable.select`.
        options : sequence of str, optional
            Names. Answers that ticked none of them remain, as answers without a tick.

        Raises
        ------
        AnnotationError
            If an id or an option is unknown, or is named twice where it may not be.
        """
        answers = self.answers.select(instances=instances, annotators=annotators)
        if options is None:
            return replace(self, answers=answers)
        names = check_options(options, "options")
        known = self.options.tolist()
        places = [known.index(check_option(name, known)) for name in names.tolist()]
        sets, codes = number_sets(csr_array(self._sets[:, places]))
        answers = with_sets(answers, codes[answers.label], sets.shape[0])
        return LabelSetTable(answers, names, sets.indptr, sets.indices)

    def with_options(self, options: Any) -> LabelSetTable:
        """Return the table over the given options, in that order; nobody ticked the new ones.

        Parameters
        ----------
        options : sequence of str

        Raises
        ------
        AnnotationError
            If an option of the table is not among them.
        """
        names = check_options(options, "options")
        strange = [name for name in self.options.tolist() if name not in set(names.tolist())]
        if strange:
            known = ", ".join(map(repr, names[:6].tolist())) + (" ..." if len(names) > 6 else "")
            raise AnnotationError(
                f"the table has the option {strange[0]!r}, which is not among {known}; add it to "
                "the options, or first leave it out by select(options=...)"
            )
        place = {name: i for i, name in enumerate(names.tolist())}
        codes = np.array([place[name] for name in self.options.tolist()])
        shape = (self.answers.n_classes, len(names))
        sets = self._sets
        moved = csr_array((sets.data, codes[sets.indices], sets.indptr), shape=shape)
        moved.sort_indices()
        return LabelSetTable(self.answers, names, moved.indptr, moved.indices)

    def __getitem__(self, key: Any) -> LabelSetTable:
        """Return instances by position: integer, slice, mask or array (repetition allowed)."""
        return replace(self, answers=self.answers[key])

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a LabelSetTable is not iterable; iterate over .tables, or .to_frame()")

    def with_added(
        self, other: LabelSetTable, *, duplicates: Duplicates = "error"
    ) -> LabelSetTable:
        """Append the answers of another table over the same options.

        Parameters
        ----------
        other : LabelSetTable
        duplicates : {"error", "last", "keep"}
            As in `AnnotationTable.with_added`.

        Raises
        ------
        AnnotationError
            If the options differ, or a pair is in both tables (see ``duplicates``).
        """
        mine, theirs = self.over_the_same_sets(other)
        answers = mine.answers.with_added(theirs.answers, duplicates=duplicates)
        return replace(mine, answers=answers)

    def over_the_same_sets(self, other: LabelSetTable) -> tuple[LabelSetTable, LabelSetTable]:
        """Return both tables with one common code for each set of labels.

        Raises
        ------
        AnnotationError
            If the options differ; their order does not matter.
        """
        mine, theirs = self.options.tolist(), other.options.tolist()
        strange = [name for name in theirs if name not in set(mine)]
        strange += [name for name in mine if name not in set(theirs)]
        if strange:
            raise AnnotationError(
                f"the added table has other options: {strange[0]!r} is in one of the tables only; "
                "build both with the same options="
            )
        other = other.select(options=self.options)
        sets, codes = number_sets(vstack([self._sets, other._sets], format="csr"))
        parts = np.split(codes, [self.answers.n_classes])
        one, two = (
            LabelSetTable(
                with_sets(table.answers, part[table.answers.label], sets.shape[0]),
                self.options,
                sets.indptr,
                sets.indices,
            )
            for table, part in zip((self, other), parts, strict=True)
        )
        return one, two

    def with_groups(self, groups: Any, rho: float = RHO) -> LabelSetTable:
        """Declare families of annotators; see `AnnotationTable.with_groups`."""
        return replace(self, answers=self.answers.with_groups(groups, rho))

    def equals(self, other: LabelSetTable) -> bool:
        """Return whether both hold the same answers in the same order, over the same ids."""
        if not np.array_equal(self.options, other.options):
            return False
        one, two = self.over_the_same_sets(other)
        return one.answers.equals(two.answers)


class _TablesByOption(Mapping[str, AnnotationTable]):
    """Tables of no and yes, each made when it is asked for."""

    def __init__(self, table: LabelSetTable) -> None:
        self._table = table

    def __getitem__(self, name: str) -> AnnotationTable:
        if name not in self._table.options.tolist():
            raise KeyError(name)
        return self._table.option(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._table.options.tolist())

    def __len__(self) -> int:
        return self._table.n_options
