"""The label of every instance: how sure it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final, Literal

import numpy as np
from scipy.sparse import issparse

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode, make_vocabulary, missing_mask
from manyhands.annotations.groups import can_be_judged, in_one_family, unit_of
from manyhands.annotations.target import as_one_kind, over
from manyhands.decision.labels import (
    as_posterior,
    best_of,
    generator,
    is_scale_of_grades,
    pick,
)
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.inference.inputs import (
    frame_in_order,
    posterior_of_fitted,
    rows_of_fitted,
    series_in_order,
)
from manyhands.io.columns import Frame, as_numbers, preview, with_types
from manyhands.io.files import PathLike, existing_file, naming
from manyhands.io.frames import read_frame
from manyhands.io.gold import CHOSEN_COLUMN, REVIEWED, how_chosen, read_marks
from manyhands.io.sheets import UNSTATED, Stated
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray

ACTIONS: Final = ("accept", "collect more", "review")
"""Recommended actions for a label; see `consensus`."""

ACCEPT: Final = 0.95
"""Smallest probability of a label that is accepted."""

ENOUGH: Final = 5
"""Number of annotations after which another seldom settles a doubt, so that review is advised."""

FEWEST: Final = 2
"""Number of annotators who must have given a label for it to be accepted.

A method cannot doubt a single annotation that nobody contradicts, and with few annotations it is
overconfident about which annotators are right.
"""


def rule_in_words(
    *, known: bool, alike: bool, trusted: Literal["all", "some", "none"], accept: float = ACCEPT
) -> str:
    """Say by which rule labels are accepted, leaving out what applies to none of them.

    Parameters
    ----------
    known : bool
        Whether some labels are known.
    alike : bool
        Whether some annotators may share mistakes.
    trusted : {"all", "some", "none"}
        For how many instances the annotations show whom to trust.
    accept : float
        See `consensus`.

    Examples
    --------
    >>> rule_in_words(known=False, alike=False, trusted="all")
    'A label is accepted if it is at least 95 % certain and at least two annotators gave it.'
    """
    if trusted == "none":
        return (
            "The annotations do not show which annotators are reliable, so only labels that you "
            "gave as known are accepted."
        )
    units = " Annotators who may share mistakes count as one." * alike
    some = (
        " If the annotations do not show which annotators are reliable, only labels that you gave "
        "as known are accepted."
    )
    rule = (
        f"Labels that you gave as known are accepted. Others must be at least {100 * accept:g} % "
        "certain and given by at least two annotators."
        if known
        else f"A label is accepted if it is at least {100 * accept:g} % certain and at least two "
        "annotators gave it."
    )
    return f"{rule}{units}{some * (trusted == 'some')}"


def whole_rule(accept: float = ACCEPT) -> str:
    """Say by which rule labels are accepted, whatever the annotations are."""
    return rule_in_words(known=True, alike=True, trusted="some", accept=accept)


RULE: Final = whole_rule()


def others_need(answer: str, annotation: str, gave: str) -> str:
    """Say what is recommended for answers that are not accepted; see `consensus`."""
    return (
        f"A {answer} that is not accepted needs review if its item has {ENOUGH} {annotation}s or "
        f"more, because another {annotation} rarely makes it certain enough to accept. It also "
        "needs review if at least two annotators abstained, and at least as many abstained as "
        f"{gave}. "
        f"Otherwise it needs more {annotation}s (action: collect more)."
    )


REVIEW_RULE: Final = others_need("label", "annotation", "gave a label")
"""Rule by which labels need review, in words, shown wherever their number is given."""


@dataclass(frozen=True, eq=False)
class Consensus:
    """Labels of all instances of a table; every array has shape (n_instances,).

    Attributes
    ----------
    tasks, classes : arrays
        Ids of the instances; class values.
    codes : integer array
        Class codes; -1 where the label was left open.
    posterior : array of shape (n_instances, n_classes), sparse where classes are many
        The method's class probabilities.
    probability : array
        Reported probability of the label; the mean is the share of right labels
        (`manyhands.metrics.certainty`). NaN if that share is unknown. For a label that was left
        open, the probability of the most probable class.
    n_annotations : integer array
    agreement : array
        Share of the instance's annotations that name its label; NaN without label or annotation.
    actions : array of str
        One of `ACTIONS` each.
    known : boolean array
        Whether the label is known, because somebody reviewed it or it is gold.
    random : boolean array or None
        Whether a known label was drawn at random; None if unknown.
    rule : str
        The rule by which labels were accepted, as far as it applies to these; see `rule_in_words`.
    accept : float
        Smallest probability of a label that is accepted.
    """

    tasks: AnyArray
    classes: AnyArray
    codes: IntArray
    posterior: FloatArray
    probability: FloatArray
    n_annotations: IntArray
    agreement: FloatArray
    actions: AnyArray
    known: BoolArray
    random: BoolArray | None = None
    rule: str = RULE
    accept: float = ACCEPT

    @cached_property
    def labels(self) -> list[Any]:
        """Class values; None where the label was left open."""
        values = [*self.classes.tolist(), None]
        return [values[code] for code in self.codes]

    def least_certain_first(self) -> IntArray:
        """Return the positions of all instances, the least certain label first."""
        from manyhands.metrics.certainty import label_probability  # Metrics need inference.

        return np.argsort(label_probability(self.posterior, self.codes), kind="stable")

    def arrays(self) -> dict[str, AnyArray]:
        """Return the columns of ``labels.csv`` as arrays, the form in which all labels are written.

        Returns
        -------
        dict {column: array of shape (n_instances,)}
            ``task``, ``label`` (None where it was left open), ``probability`` (NaN if unknown),
            ``n_annotations``, ``agreement`` (NaN where there is none), ``action``, the method's own
            probability of every class (unless `posterior` is sparse), ``chosen`` ("random" or
            "queue" for a known label; only if that is known), and ``reviewed`` ("yes" for a known
            label, else empty; see `manyhands.io.read_gold`).
        """
        values = np.array([*self.classes.tolist(), None], dtype=object)
        shares = {}
        if not issparse(self.posterior):  # A sparse one would make thousands of columns.
            names = enumerate(self.classes.tolist())
            shares = {f"p({name})": self.posterior[:, c] for c, name in names}
        how = {}
        if self.random is not None and self.known.any():
            told = np.where(self.random, "random", "queue")
            how = {CHOSEN_COLUMN: np.where(self.known, told, "")}
        return {
            "task": self.tasks,
            "label": values[self.codes],
            "probability": self.probability,
            "n_annotations": self.n_annotations,
            "agreement": self.agreement,
            "action": self.actions,
            **shares,
            **how,
            REVIEWED: np.where(self.known, "yes", ""),
        }

    def columns(self) -> dict[str, list[Any]]:
        """Return `arrays` as lists, with None where a number is missing."""
        found = {name: values.tolist() for name, values in self.arrays().items()}
        for name in ("agreement", "probability"):
            found[name] = [None if np.isnan(share) else share for share in found[name]]
        return found

    def take(self, mask: BoolArray) -> Consensus:
        """Return the labels of some instances."""
        arrays = ("tasks", "codes", "posterior", "probability", "n_annotations", "agreement")
        own = (*arrays, "actions", "known", *(() if self.random is None else ("random",)))
        return replace(self, **{name: getattr(self, name)[mask] for name in own})

    @property
    def n_unconfirmed(self) -> int:
        """Number of labels that are certain enough, but not accepted by the rest of the rule."""
        sure = (self.codes >= 0) & ~self.known & (self.probability >= self.accept)
        return int((sure & (self.actions != ACTIONS[0])).sum())

    def count_actions(self) -> dict[str, int]:
        """Count the instances of every action."""
        return {action: int((self.actions == action).sum()) for action in ACTIONS}


def consensus(
    table: AnnotationTable,
    posterior: Any,
    labels: Any = None,
    *,
    known: Any = None,
    identified: Any = None,
    alike: Any = None,
    probability: Any = None,
    accept: float = ACCEPT,
    enough: int = ENOUGH,
) -> Consensus:
    """Join inferred labels with the annotations behind them, and recommend an action for each.

    Parameters
    ----------
    table : AnnotationTable
    posterior : fitted model, or array-like, sparse array or frame of shape (n_instances, n_classes)
        A model that was fitted on the table. Its ``posterior_`` is matched with the instances by
        its ``instances_``, and it provides ``labels``, ``known`` and ``identified`` if they are not
        given. Or class probabilities **in the order of the table's instances**, such as an
        aggregator's ``posterior_`` (a classifier's is in the order of X). Rows of a frame are
        matched by id, and its columns with the classes by name.
    labels : array-like of shape (n_instances,), optional
        Class values, None where a label was left open; default: the most probable class, or,
        of three or more grades, the median. A pandas Series is matched by its index, here and for
        ``known``.
    known : boolean array of shape (n_instances,), optional
        Instances whose label is known, such as gold questions; they are accepted.
    identified : boolean array of shape (n_instances,), optional
        Instances whose label is identifiable from the annotations, such as an aggregator's
        ``identified_``; others are not accepted. Default: see
        `manyhands.inference.identifiability`.
    alike : boolean array of shape (n_annotators,), optional
        Annotators in no family who may share mistakes. Default: language models, by their names,
        and annotators who agree as if they shared mistakes (`manyhands.inference.shared_mistakes`).
    probability : array-like of shape (n_instances,), optional
        Probability to report for each label, NaN if unknown. Default: for a model, calibrated so
        that the mean is the share of right labels, or NaN if that is unknown
        (`manyhands.metrics.certainty`); for given probabilities, that of the label.
    accept : float in (0, 1], default=0.95
        Smallest probability of a label that is accepted.
    enough : int, default=5
        Number of annotations from which review is advised rather than more annotations.

    Returns
    -------
    Consensus

    Raises
    ------
    AnnotationError
        If an argument does not fit the table, its ids or names of columns do not match, a row of
        ``posterior`` is not a distribution, or ``accept`` is not a probability.

    Notes
    -----
    The recommended action is

    - "accept": the label is known; or it has a probability of at least ``accept``, at least two
      annotators gave it (no method doubts a single annotation), and it is identifiable. Annotators
      who share mistakes, as a family or as ``alike``, count as one unit. With fewer than three
      units on the same instances, of which known labels are one, agreement does not show who is
      right, and only known labels are accepted;
    - "review": otherwise, if the instance has at least ``enough`` annotations, or if two or more
      annotators abstained and they are at least as many as those who annotated it. One more
      annotation will hardly settle it, so a person who knows the subject should decide;
    - "collect more": all others.

    Mistakes that all annotators share look certain, so also check a sample of the accepted labels.

    Examples
    --------
    >>> table = AnnotationTable.from_matrix(np.array([[0, 0, 0], [0, 1, -1]]))
    >>> found = consensus(table, [[0.99, 0.01], [0.6, 0.4]])
    >>> found.agreement.tolist(), found.actions.tolist()
    ([1.0, 0.5], ['accept', 'collect more'])
    """
    if not 0 < accept <= 1:
        raise AnnotationError(f"accept={accept!r} is not a probability; give one in (0, 1]")
    if hasattr(posterior, "fit"):
        model, posterior = posterior, posterior_of_fitted(posterior, table, "posterior")
        own = _of_fitted(model, table)
        labels = own["labels"] if labels is None else labels
        known = own["known"] if known is None else known
        identified = own["identified"] if identified is None else identified
    else:
        model = None
    _refuse_labels(posterior)
    if not issparse(posterior):
        posterior = frame_in_order(table, posterior, "posterior")
    posterior = as_posterior(posterior)
    if posterior.shape != (table.n_instances, table.n_classes):
        raise AnnotationError(
            f"posterior has shape {posterior.shape}; it must have one row per instance and one "
            f"column per class of the table, {(table.n_instances, table.n_classes)}"
        )
    if alike is not None:
        alike = _mask_of_annotators(alike, table)
    codes = _codes(labels, table) if labels is not None else _most_probable(posterior, table)
    observed = table.observed
    n = observed.annotations_per_instance()
    same = codes[observed.instance] == observed.label
    named = np.bincount(observed.instance[same], minlength=table.n_instances)
    share = np.divide(named, n, out=np.full(len(n), np.nan), where=(n > 0) & (codes >= 0))
    certain = np.zeros(len(n), dtype=bool)
    if known is not None:
        certain = np.asarray(series_in_order(table, known, "known"), dtype=bool)
    told = _told(table, model, posterior, codes, certain, probability, alike)
    sure = (codes >= 0) & (told >= accept) & (named >= FEWEST)
    may_be_alike = False
    if identified is None and sure.any():
        # Imported here, because inference itself reads files through this package.
        from manyhands.inference import identifiability

        identified = identifiability.identified(table, posterior, certain)
    if identified is not None:
        sure &= np.asarray(identified, dtype=bool)
    if sure.any():
        from manyhands.inference.shared_mistakes import suspected

        alike = suspected(observed) if alike is None else alike
        sure &= _n_units(observed, same, alike) >= FEWEST
        if may_be_alike := bool(alike.any() or observed.groups is not None):
            # If one person agrees with some models, that does not show which models are right.
            sure &= can_be_judged(in_one_family(observed, alike), certain)
    declined = np.bincount(table.abstentions[:, 0], minlength=table.n_instances)
    open_ = (n >= enough) | ((declined >= FEWEST) & (declined >= n))
    actions = np.where(sure | certain, ACTIONS[0], np.where(open_, ACTIONS[2], ACTIONS[1]))
    rule = rule_in_words(
        known=bool(certain.any()),
        alike=may_be_alike,
        trusted=_trusted(identified, told, (n > 0) & ~certain),
        accept=accept,
    )
    return Consensus(
        tasks=table.instances,
        classes=table.classes,
        codes=codes,
        posterior=posterior,
        probability=told,
        n_annotations=n,
        agreement=share,
        actions=actions,
        known=certain,
        rule=rule,
        accept=accept,
    )


def _trusted(identified: Any, told: FloatArray, open_: BoolArray) -> Literal["all", "some", "none"]:
    """Say for how many annotated, unknown labels the annotations show whom to trust."""
    shows = ~np.isnan(told[open_])
    if identified is not None:
        shows &= np.asarray(identified, dtype=bool)[open_]
    return "all" if shows.all() else "some" if shows.any() else "none"


def _mask_of_annotators(alike: Any, table: AnnotationTable) -> BoolArray:
    """Check the annotators who may share mistakes, shape (R,)."""
    alike = np.asarray(alike, dtype=bool)
    if alike.shape != (table.n_annotators,):
        raise AnnotationError(
            f"alike has shape {alike.shape}; it must have one value per annotator of the table, "
            f"{(table.n_annotators,)}, in the order of table.annotators"
        )
    return alike


def _n_units(observed: AnnotationTable, same: BoolArray, alike: BoolArray) -> IntArray:
    """Count the units that gave each label, shape (n,): annotators who share mistakes are one."""
    unit = unit_of(observed, alike)
    pairs = np.column_stack([observed.instance[same], unit[observed.annotator[same]]])
    return np.bincount(np.unique(pairs, axis=0)[:, 0], minlength=observed.n_instances)


def _of_fitted(model: Any, table: AnnotationTable) -> dict[str, Any]:
    """Return what a fitted estimator says of a table's instances beside their labels."""
    if hasattr(model, "steps"):
        model = model.steps[-1][1]
    rows = rows_of_fitted(model, table, "posterior")
    names = {"labels": "labels_", "known": "is_known_", "identified": "identified_"}
    found = {argument: getattr(model, name, None) for argument, name in names.items()}
    if getattr(model, "sample_note_", None) is not None:
        found["identified"] = found["known"]  # A random sample contradicts the other labels.
    return {name: None if values is None else values[rows] for name, values in found.items()}


def _refuse_labels(posterior: Any) -> None:
    """Refuse a vector of labels in place of probabilities."""
    shape = np.shape(posterior)
    if len(shape) == 1 and shape[0] and not issparse(posterior):
        first = np.asarray(posterior, dtype=object)[0]
        raise AnnotationError(
            f"posterior has shape {shape} and holds {first!r}, so it seems to hold labels; give "
            "the fitted model itself, as in write_labels('labels.csv', table, model), or its "
            "probabilities, and the labels in labels="
        )


def _most_probable(posterior: Any, table: AnnotationTable) -> IntArray:
    if is_scale_of_grades(table):
        return best_of(posterior, table)
    if not issparse(posterior):
        return np.asarray(posterior.argmax(axis=1))
    shares: Any = posterior
    return pick(shares, "first", generator(0))


def _told(
    table: AnnotationTable,
    model: Any,
    posterior: Any,
    codes: IntArray,
    known: BoolArray,
    probability: Any,
    alike: BoolArray | None,
) -> FloatArray:
    """Return how probable each label is said to be, shape (n,); NaN where unknown."""
    # Imported here, because metrics need inference, which reads files through this package.
    from manyhands.metrics.certainty import certainty_of, label_probability
    from manyhands.metrics.inferred_labels import level_of_labels

    own = label_probability(posterior, codes)
    if probability is not None:
        told = np.asarray(series_in_order(table, probability, "probability"), dtype=np.float64)
        if told.shape != own.shape:
            raise AnnotationError(
                f"probability has shape {told.shape}; it must have one value per instance of the "
                f"table, ({table.n_instances},), with NaN where it is unknown"
            )
        return np.where(known, own, told)
    if model is None:
        return own
    fitted = _in_order(model, table)
    given: dict[str, Any] = {"identified": getattr(fitted, "identified_", None), "alike": alike}
    level = level_of_labels(table, fitted, codes, posterior, **given)
    return certainty_of(table, level, posterior, codes, known).of_labels(posterior, codes, known)


def _in_order(model: Any, table: AnnotationTable) -> Any:
    """Return what a level needs of a fitted model, in the order of the table's instances."""
    model = model.steps[-1][1] if hasattr(model, "steps") else model
    rows = rows_of_fitted(model, table, "posterior")
    given = getattr(model, "classes_", table.classes)
    same = len(given) == table.n_classes and bool(np.all(np.asarray(given) == table.classes))
    if isinstance(rows, slice) and same:
        return model
    names = ("_knows_its_accuracy", "sample_note_")
    kept = {name: getattr(model, name) for name in names if hasattr(model, name)}
    own = ("is_known_", "identified_")
    kept |= {name: getattr(model, name)[rows] for name in own if hasattr(model, name)}
    if same and hasattr(model, "sampled_posterior_") and len(model.sampled_posterior_):
        place = np.full(len(model.posterior_), -1)
        place[rows] = np.arange(table.n_instances)
        drawn = place[model.sampled_rows_]
        kept["sampled_rows_"] = drawn[drawn >= 0]
        kept["sampled_posterior_"] = model.sampled_posterior_[drawn >= 0]
        kept["posterior_"] = model.posterior_[rows]
    return SimpleNamespace(**kept)


def _codes(labels: Any, table: AnnotationTable) -> IntArray:
    values = np.asarray(series_in_order(table, labels, "labels"), dtype=object)
    if values.shape != (table.n_instances,):
        raise AnnotationError(
            f"labels has shape {values.shape}; it must have one value per instance of the table, "
            f"({table.n_instances},), with None where a label is left open"
        )
    given = ~missing_mask(values)
    codes = np.full(len(values), MISSING, dtype=np.int64)
    if given.any():
        codes[given], _ = encode(
            np.array(values[given].tolist()),
            table.classes,
            argument="labels",
            vocabulary_name="classes",
        )
    return codes


def read_consensus(
    path: PathLike, table: AnnotationTable, *, stated: Stated = UNSTATED, **options: Any
) -> Consensus:
    """Read labels that manyhands wrote, and join them with the annotations behind them.

    Parameters
    ----------
    path : str or Path
        ``labels.csv`` of ``manyhands fit`` or ``aggregate``, or what ``predict`` wrote: .csv, .tsv,
        .xlsx or .parquet, with the columns ``task``, ``label`` and ``p(<class>)``.
    table : AnnotationTable
        Instances of the file that have no annotations are added. A class without a column gets the
        probability 0, with a warning.
    stated : Stated
        Encoding and separator, if the file's content does not show them.
    **options
        ``accept`` and ``enough`` of `consensus`.

    Raises
    ------
    FileNotFoundError, AnnotationError
        If the file does not exist or is of another form, or its classes or tasks do not fit.
    """
    path = existing_file(path)
    with naming(path):
        frame = with_types(read_frame(path, stated), {"task": "task"}, path)
        posterior = _read_posterior(frame, table.classes)
        tasks = make_vocabulary(frame["task"].to_numpy(), "column 'task'")
        known, wanted = as_one_kind(table.instances, tasks)
        lost = known[~np.isin(known, wanted)]
        if len(lost):
            raise AnnotationError(
                f"{len(lost)} of {len(known)} tasks of the annotations have no label in this file: "
                f"{preview(lost)}; give the annotations from which these labels were made"
            )
        rows, _ = encode(known, wanted, argument="tasks", vocabulary_name="tasks")
        given = np.array(frame["label"].to_list(), dtype=object)
        codes = np.full(len(given), MISSING, dtype=np.int64)
        named, classes = ~missing_mask(given), table.classes.astype(str)
        codes[named], _ = encode(
            given[named].astype(str), classes, argument="label", vocabulary_name="classes"
        )
        values = np.array([*table.classes.tolist(), None], dtype=object)
        known = np.zeros(len(frame), dtype=bool)
        if REVIEWED in frame.columns:
            known = read_marks(frame, REVIEWED)
        chosen = how_chosen(frame)
        drawn = None if chosen is None else known & (chosen == "random")
        table = over(table, tasks, rows)
        told = None
        if "probability" in frame.columns:
            told = _shares(frame["probability"].to_numpy(), "probability")
        more = {"known": known, "probability": told, **options}
        return replace(consensus(table, posterior, values[codes], **more), random=drawn)


def _read_posterior(frame: Frame, classes: AnyArray) -> FloatArray:
    """Read the columns "p(<class>)"; a class without one gets the probability 0."""
    shares = {name[2:-1]: name for name in frame.columns if name[:2] == "p(" and name[-1] == ")"}
    if not {"task", "label"} <= set(frame.columns) or not shares:
        raise AnnotationError(
            "these are not labels that manyhands wrote, because 'task', 'label' or 'p(<class>)' is "
            f"missing among the columns, {', '.join(map(repr, frame.columns))}; give the file that "
            "fit, aggregate or predict wrote"
        )
    names = classes.astype(str).tolist()
    unknown = sorted(set(shares) - set(names))
    if unknown:
        raise AnnotationError(
            f"class {unknown[0]!r} of the labels is not among the classes of the annotations, "
            f"{preview(names)}; read the annotations with the same classes="
        )
    new = [name for name in names if name not in shares]
    if new:
        warn_caller(
            f"class {new[0]!r} of the annotations has no probability in the labels; if it means "
            "that an annotator abstained or skipped, give the same abstain= or skip= as when the "
            "labels were made"
        )
    posterior = np.zeros((len(frame), len(names)))
    for name, column in shares.items():
        posterior[:, names.index(name)] = _shares(frame[column].to_numpy(), column)
    return posterior


def _shares(values: AnyArray, column: str) -> FloatArray:
    """Return the probabilities of a column, written with points or commas; NaN if blank."""
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    cells = [
        "" if blank else str(cell) for cell, blank in zip(values, missing_mask(values), strict=True)
    ]
    found = np.full(len(cells), np.nan)
    given = np.array([bool(cell.strip()) for cell in cells], dtype=bool)
    try:
        found[given] = as_numbers([cell for cell in cells if cell.strip()])
        return found
    except ValueError as error:
        raise AnnotationError(f"column {column!r} must hold probabilities: {error}") from error
