"""Base class of truth inference for sets of labels: a posterior for each option."""

from __future__ import annotations

import logging
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from time import monotonic
from typing import Any, ClassVar, Self, TypeAlias, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from manyhands.annotations import AnnotationTable, LabelSetTable
from manyhands.annotations.columns import require_annotators
from manyhands.annotations.duplicates import Duplicates
from manyhands.annotations.encoding import encode, missing_mask, of_one_kind
from manyhands.annotations.ids import as_frame
from manyhands.annotations.target import check_annotations, is_sharded, refuse_swapped
from manyhands.exceptions import AnnotationError, all_or_nothing, warn_caller
from manyhands.inference.base import AggregatorTraits
from manyhands.inference.inputs import holds_nothing, only_new
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray

_PROGRESS = logging.getLogger("manyhands.progress")

LOG_INTERVAL = 5.0
"""Seconds between two lines of progress in the log."""

REFUSED = {
    "start": "the fit starts from the vote shares of each option; leave start= out",
    "random_gold": "how gold was chosen is said for all options by gold_sample=; leave it out",
    "history": "annotators' earlier work is read for single labels only; add the earlier answers "
    "to the table (with_added) and give their labels as gold=",
    "checkpoint": "a fit of some options takes seconds and saves no checkpoints; leave it out",
    "engine": "a table of label sets is counted in this process; leave engine= out, or write one "
    "option, table.option(name), as an AnnotationStore, and fit DawidSkene to it",
}
"""Options of `BaseAggregator.fit` that are not supported for sets, and what to do instead."""

IN_THE_TABLE = (
    "what is known is given as gold=; weights (weight=) and families (with_groups) belong to the "
    "LabelSetTable, and parameters to the constructor"
)
"""Where the rest belongs that a fit of sets takes."""


class OfSingleLabels(TypedDict, total=False):
    """Options of `BaseAggregator.fit` that `BaseSetAggregator.fit` refuses, each with its mend."""

    start: None
    random_gold: None
    history: None
    checkpoint: None
    engine: None


GoldCells: TypeAlias = Mapping[Any, Sequence[str] | Mapping[str, Any]] | ArrayLike
"""Gold for sets: {instance: options, or {option: 0 or 1}}, or an array or a frame."""

SHOWN = 3
"""Number of warnings about single options that are shown; the others are only counted."""


class BaseSetAggregator(BaseEstimator):
    """Base class of truth inference for sets: ``fit(table)`` infers a posterior for each option.

    A subclass implements `_infer`, which sets ``posterior_`` and the method's other attributes,
    and `_posterior`, which applies the fitted model to other instances.

    Attributes
    ----------
    options_ : array of shape (n_options,)
        Names of the options.
    instances_, annotators_ : arrays
        Ids of the rows of ``posterior_``, and of the annotators.
    n_annotators_ : int
        Number of annotators.
    posterior_ : array of shape (n_instances, n_options)
        Probability that each option applies; rows do not sum to 1.
    labels_ : boolean array of shape (n_instances, n_options)
        Whether the option applies: it is more probable than not. For other rules see
        `manyhands.decide`.
    prevalence_ : array of shape (n_options,)
        Share of the instances that each option applies to.
    identified_ : boolean array of shape (n_instances, n_options)
        Whether the answers or gold identify the label.
    table_ : LabelSetTable
        All answers seen so far; `partial_fit` adds to them.
    """

    _parameter_constraints: dict[str, list[Any]] = {}

    traits: ClassVar[AggregatorTraits] = AggregatorTraits(takes_sets=True)
    _saved_whole: ClassVar[bool] = True
    _knows_its_accuracy: ClassVar[bool] = False

    table_: LabelSetTable
    posterior_: FloatArray
    labels_: BoolArray
    identified_: BoolArray
    prevalence_: FloatArray
    _gold: IntArray | None

    def fit(
        self,
        table: LabelSetTable,
        y: Any = None,
        *,
        gold: GoldCells | None = None,
        groups: Any = None,
        **others: Unpack[OfSingleLabels],
    ) -> Self:
        """Infer which options apply. A fit that fails leaves the aggregator as it was.

        Parameters
        ----------
        table : LabelSetTable
        y : ignored
        gold : optional
            Known labels: a dict {instance id: value}, where a value is a sequence of the options
            that apply (the others do not apply) or a dict {option: 0 or 1} (the others are
            unknown); or an array of shape (n_instances, n_options) with 0, 1, and NaN where
            unknown; or a data frame of such values with the ids as its index and the options as its
            columns.
        groups : dict {annotator id: family}, or sequence of shape (n_annotators,), optional
            Families of annotators; see `AnnotationTable.with_groups`.
        **others
            Further options of `BaseAggregator.fit`. None is supported; the error says what to do
            instead.

        Returns
        -------
        BaseSetAggregator
            The aggregator itself.

        Raises
        ------
        AnnotationError
            If the table holds no answers or is no `LabelSetTable`, ``gold`` names an unknown
            instance or option, ``groups`` names an unknown annotator, or another option of
            `BaseAggregator.fit` is given.
        TypeError
            If an option is unknown.
        """
        self._validate_params()
        self._refuse(others)
        refuse_swapped(table, y, takes="annotations")
        table = self._read(table)
        if groups is not None:
            table = table.with_groups(groups, table.group_rho)
        check_annotations(table._of_code(0), argument="table")
        return self._fit(table, None if gold is None else gold_cells(gold, table))

    def partial_fit(
        self,
        table: LabelSetTable,
        y: Any = None,
        *,
        gold: GoldCells | None = None,
        duplicates: Duplicates = "error",
        **others: Unpack[OfSingleLabels],
    ) -> Self:
        """Add answers (about old and new instances, by old and new annotators) and fit again.

        Parameters
        ----------
        table : LabelSetTable
            New answers over the same options, some of which nobody may have ticked.
        y : ignored
        gold : as in `fit`, for the instances of ``table``
            Earlier gold stays known.
        duplicates : {"error", "last", "keep"}
            How to treat an (instance, annotator) pair that was already answered.

        Returns
        -------
        BaseSetAggregator
            The aggregator itself.

        Raises
        ------
        AnnotationError
            If an option is unknown, a known annotator has another family, or a pair was already
            answered and ``duplicates="error"``.
        """
        refuse_swapped(table, y, takes="annotations")
        self._refuse(others)
        if not hasattr(self, "table_"):
            return self.fit(table, gold=gold)
        self._validate_params()
        new = self._read(table).with_options(self.options_)
        mine, theirs = self.table_.over_the_same_sets(new)
        fresh = only_new(theirs.answers, mine.answers, duplicates)
        if gold is None and holds_nothing(fresh, theirs.answers):
            return self
        known = None if gold is None else gold_cells(gold, new)
        added = LabelSetTable(fresh, theirs.options, theirs.set_start, theirs.set_options)
        whole = mine.with_added(added, duplicates=duplicates)
        cells = None
        if self._gold is not None or known is not None:
            cells = np.full((whole.n_instances, whole.n_options), MISSING, dtype=np.int8)
            if self._gold is not None:
                cells[: len(self._gold)] = self._gold
            if known is not None:
                place, _ = encode(
                    new.instances, whole.instances, argument="gold", vocabulary_name="instances"
                )
                cells[place] = np.where(known == MISSING, cells[place], known)
        return self._fit(whole, cells)

    def _fit(self, table: LabelSetTable, gold: IntArray | None) -> Self:
        with all_or_nothing(self):
            self.table_, self._gold = table, gold
            self.options_, self.instances_ = table.options, table.instances
            self.annotators_, self.n_annotators_ = table.annotators, table.n_annotators
            self._infer(table)
            self.labels_ = self.posterior_ > 0.5
        return self

    def _refuse(self, others: Mapping[str, Any]) -> None:
        for name, value in others.items():
            if name in REFUSED and value is None:
                continue
            if name not in REFUSED:
                raise TypeError(
                    f"{type(self).__name__} has no option {name!r} in fit; {IN_THE_TABLE}"
                )
            raise AnnotationError(f"{name}= is not for sets of labels: {REFUSED[name]}")

    def _read(self, table: Any) -> LabelSetTable:
        """Raise an error unless the table is a `LabelSetTable`."""
        name = type(self).__name__
        if isinstance(table, LabelSetTable):
            require_annotators(table.answers, name)
            return table
        if is_sharded(table):
            raise AnnotationError(
                f"{name} reads a LabelSetTable in memory, and this is a store; a store holds "
                "single labels, such as one option, which DawidSkene takes"
            )
        mend = "LabelSetTable.from_frame(df)"
        if isinstance(table, str | PathLike):
            mend = f"manyhands.io.read_label_sets({str(table)!r})"
        elif isinstance(table, AnnotationTable):
            mend += ", or use DawidSkene if each answer is one label"
        elif as_frame(table) is not None:
            mend = "LabelSetTable.from_frame(table)"
        kind = type(table).__name__
        article = "an" if kind[:1] in "AEIO" else "a"
        raise AnnotationError(f"table is {article} {kind}, not a LabelSetTable; give {mend}")

    def _gold_of(self, code: int) -> IntArray | None:
        """Return the gold of one option, (n_instances,), -1 where unknown; None without gold."""
        if self._gold is None or (self._gold[:, code] == MISSING).all():
            return None
        return self._gold[:, code].astype(np.int64)

    @abstractmethod
    def _infer(self, table: LabelSetTable) -> None:
        """Set ``posterior_``, ``prevalence_``, ``identified_`` and the method's own attributes."""

    @abstractmethod
    def _posterior(self, table: LabelSetTable) -> FloatArray:
        """Return the posterior of other instances, by the fitted parameters, shape (n, M)."""

    def predict_proba(self, table: LabelSetTable) -> FloatArray:
        """Return the posterior of new or old instances, by the fitted annotators' parameters.

        Parameters
        ----------
        table : LabelSetTable
            Annotators and options are matched by id.

        Returns
        -------
        array of shape (n_instances, n_options)
            An instance without answers gets ``prevalence_``.

        Raises
        ------
        AnnotationError
            If ``table`` holds an annotator or an option that `fit` did not see.
        """
        check_is_fitted(self, "posterior_")
        return self._posterior(self._read(table).with_options(self.options_))

    def predict(self, table: LabelSetTable) -> BoolArray:
        """Return whether each option applies to (new) instances, shape (n_instances, n_options)."""
        return self.predict_proba(table) > 0.5

    def fit_predict(
        self,
        table: LabelSetTable,
        y: Any = None,
        *,
        gold: GoldCells | None = None,
        groups: Any = None,
        **others: Unpack[OfSingleLabels],
    ) -> BoolArray:
        """Fit (options as in `fit`) and return ``labels_``, shape (n_instances, n_options)."""
        return self.fit(table, y, gold=gold, groups=groups, **others).labels_

    def fit_predict_proba(
        self,
        table: LabelSetTable,
        y: Any = None,
        *,
        gold: GoldCells | None = None,
        groups: Any = None,
        **others: Unpack[OfSingleLabels],
    ) -> FloatArray:
        """Fit (options as in `fit`) and return ``posterior_``, shape (n_instances, n_options)."""
        return self.fit(table, y, gold=gold, groups=groups, **others).posterior_

    @property
    def is_known_(self) -> BoolArray:
        """Whether each label was given as gold, shape (n_instances, n_options)."""
        check_is_fitted(self, "posterior_")
        if self._gold is None:
            return np.zeros(self.posterior_.shape, dtype=bool)
        return np.asarray(self._gold != MISSING)


# -- gold -----------------------------------------------------------------------------------------


def gold_cells(gold: Any, table: LabelSetTable) -> IntArray:
    """Return gold as an array (n_instances, n_options) of 0, 1, and -1 where unknown.

    Raises
    ------
    AnnotationError
        If an instance or an option is unknown, a value is neither 0 nor 1, or a shape differs.
    """
    cells = np.full((table.n_instances, table.n_options), MISSING, dtype=np.int8)
    if isinstance(gold, Mapping):
        rows = _places(list(gold), table.instances, "instances")
        for row, (name, value) in zip(rows.tolist(), gold.items(), strict=True):
            _fill(cells[row], name, value, table.options)
        return cells
    frame = as_frame(gold)
    if frame is not None:
        if not hasattr(gold, "iloc"):
            raise AnnotationError(
                f"gold is a {type(gold).__module__.split('.')[0]} frame, which has no index of "
                "ids; give a pandas frame with the instances as its index and the options as its "
                "columns, or a dict {instance id: options}"
            )
        rows = _places(gold.index.tolist(), table.instances, "instances")
        columns = _places([str(name) for name in gold.columns], table.options, "options")
        cells[np.ix_(rows, columns)] = _checked(gold.to_numpy(dtype=object))
        return cells
    values = np.asarray(gold, dtype=object)
    if values.shape != cells.shape:
        raise AnnotationError(
            f"gold has shape {values.shape}; it must have one row per instance and one column per "
            f"option, {cells.shape}, with NaN where unknown, or be a dict {{instance id: options}}"
        )
    return _checked(values)


def _places(names: list[Any], known: AnyArray, what: str) -> IntArray:
    if not names:
        return np.zeros(0, dtype=np.int64)
    return encode(
        *of_one_kind(names, known, "gold"), argument="gold", vocabulary_name=f"the table's {what}"
    )[0]


def _fill(row: IntArray, name: Any, value: Any, options: AnyArray) -> None:
    """Write the gold of one instance into its row."""
    if isinstance(value, Mapping):
        places = _places([str(option) for option in value], options, "options")
        row[places] = _checked(np.array(list(value.values()), dtype=object))
        return
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise AnnotationError(
            f"gold[{name!r}] is {value!r}; give the options that apply as a list, such as "
            f"[{options[0].item()!r}], [] if none does, or a dict {{option: 0 or 1}}"
        )
    row[:] = 0
    row[_places([str(option) for option in value], options, "options")] = 1


def _checked(values: AnyArray) -> IntArray:
    """Return the known cells as 0 and 1, -1 where unknown."""
    cells = np.full(values.shape, MISSING, dtype=np.int8)
    known = ~missing_mask(values)
    given = values[known]
    is_tick = np.array([value in (0, 1) for value in given.tolist()], dtype=bool)
    if not is_tick.all():
        raise AnnotationError(
            f"gold holds {given[~is_tick][0]!r}; a label is 1 where the option applies, 0 where it "
            "does not, and NaN where that is unknown"
        )
    cells[known] = given.astype(np.int8)
    return cells


# -- progress -------------------------------------------------------------------------------------


def with_progress(n_options: int, what: str) -> Iterator[int]:
    """Yield the codes of the options; a fit of more than some seconds says how far it is.

    Parameters
    ----------
    n_options : int
    what : str
        What is fitted, for the line of the logger "manyhands.progress".
    """
    told = monotonic()
    for m in range(n_options):
        yield m
        if monotonic() - told >= LOG_INTERVAL and m + 1 < n_options:
            told = monotonic()
            _PROGRESS.info("%s: %d of %d fitted", what, m + 1, n_options)


# -- warnings -------------------------------------------------------------------------------------


class ByOption:
    """Collects the warnings of the fits of all options, to give each once with its options."""

    def __init__(self, options: AnyArray) -> None:
        self.options = options.tolist()
        self.found: dict[tuple[type[Warning], str], list[str]] = {}

    @contextmanager
    def of(self, code: int) -> Iterator[None]:
        """Collect the warnings of a fit of an option."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for each in caught:
            names = self.found.setdefault((each.category, str(each.message)), [])
            names.append(self.options[code])

    def warn(self) -> None:
        """Give the warnings."""
        own = 0
        for (category, text), names in self.found.items():
            if len(names) == len(self.options):
                warn_caller(text, category)
                continue
            own += 1
            if own <= SHOWN:
                warn_caller(f"{named(names)}: {text}", category)
        if own > SHOWN:
            warn_caller(
                f"{own - SHOWN} more warnings are about single options; fit these one by one"
            )


def named(names: list[str]) -> str:
    """Name some options.

    Examples
    --------
    >>> named(["joy"]), named(["joy", "fear", "anger", "awe"])
    ("option 'joy'", "options 'joy', 'fear', 'anger' and 1 more")
    """
    shown = ", ".join(map(repr, names[:3]))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"option{'s' if len(names) > 1 else ''} {shown}{more}"
