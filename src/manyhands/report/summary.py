"""`summarize`: the content of a report as one dict of plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manyhands._version import __version__
from manyhands.annotations import AnnotationTable
from manyhands.annotations.columns import require_annotators
from manyhands.annotations.target import Sharded, is_sharded
from manyhands.exceptions import AnnotationError
from manyhands.inference.rating_mean import RatingMean
from manyhands.inference.votes import HARMLESS_CLASSES, check_size
from manyhands.io.consensus_labels import Consensus
from manyhands.metrics import Level
from manyhands.report.annotators import annotator_columns, find_profiles
from manyhands.report.counts import classes_section, data_section, store_sections
from manyhands.report.headline import find_levels
from manyhands.report.inputs import Inputs, majority_of, read_inputs
from manyhands.report.label_sets import SET_SECTIONS, SetFindings
from manyhands.report.limits import LIMITS
from manyhands.report.ratings import RATING_SECTIONS, RatingFindings
from manyhands.report.section import Findings, Once, Section
from manyhands.report.sections import RATINGS, SECTIONS, SETS
from manyhands.report.warnings import find_store_warnings, find_warnings

VERSION = 1
"""Version of the dict's layout; increased when a key changes its meaning or is removed."""

GENERATOR = f"manyhands {__version__}"
"""What made a summary."""

UNTITLED = "Annotation report"
"""Title of a report that was given none."""

Summary: TypeAlias = dict[str, Any]


def summarize(
    table: Any,
    *,
    aggregator: Any = None,
    classifier: Any = None,
    X: Any = None,
    labels: Any = None,
    posterior: Any = None,
    gold: Any = None,
    selection: Any = None,
    new_items: Level | None = None,
    seconds: Any = None,
    ended: Any = None,
    title: str | None = None,
    sections: Sequence[Section] = SECTIONS,
) -> Summary:
    """Summarise annotations, inferred labels and annotators in one dict.

    Parameters
    ----------
    table : AnnotationTable, or anything that ``fit`` accepts in its place
        Of an AnnotationStore, and of votes whose annotators are unknown, there are the sections on
        data and classes only, and no other argument. Only observed annotations are counted, each
        once, whatever its weight.
    aggregator : fitted truth-inference method, optional
        Must have ``posterior_``; may have ``labels_`` and ``confusion_``.
    classifier : fitted crowd classifier, optional
        Must have ``classes_``; may have ``predict_proba``, ``predict_observed_proba`` or
        ``predict_annotation_proba``, ``confusion_``, ``common_confusion_``,
        ``common_proportion_`` and ``history_``.
    X : array-like, optional
        Features, one row per instance of the table, for the classifier's predictions of classes
        and of annotations.
    labels : array-like of shape (n_instances,), optional
        Inferred class values; may be missing only for instances without annotations.
    posterior : array-like of shape (n_instances, n_classes), or fitted model, optional
        Class probabilities in the order of the table's instances, or the model that was fitted on
        the table, whose ``posterior_`` is matched by its ``instances_``.
    gold : array-like of shape (n_instances,), pandas Series or dict {instance id: class}, optional
        Gold class values; None, NaN or -1 where unknown, which a Series or a dict may leave out.
        The sections that use them say so.
    selection : Selection or its ``to_dict()``, optional
        Result of `manyhands.select`, for the comparison of methods.
    new_items : Level, optional
        How often the classifier is right on new items, as `manyhands.metrics.accuracy_on_new_items`
        returns it; the report has no other figure of it.
    seconds, ended : arrays of shape (n_annotations,), optional
        How long each annotation took, and when it was given (seconds since 1970), as an export's
        ``seconds`` and ``ended``; NaN where unknown.
    title : str, optional
        Heading of the report.
    sections : sequence of Section, optional
        Sections of the report, in page order: those of `manyhands.report.SECTIONS`, and your own.

    Returns
    -------
    dict
        Plain values (``json.dumps(summary, allow_nan=False)`` works; NaN becomes None), with
        ``"version": 1``. A section without content is None. Lists of a large table are cut to
        ``summary["limits"]`` and state the total.

    Raises
    ------
    AnnotationError
        If an argument does not fit the table.
    sklearn.exceptions.NotFittedError
        If the aggregator or the classifier is not fitted.

    Notes
    -----
    Inferred labels are the first available of: ``labels`` and ``posterior``, the aggregator's
    labels, the classifier's ``posterior_`` if the table is what it was fitted on, its predictions
    for ``X``, the majority vote.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import DawidSkene, summarize
    >>> A = np.array([[0, 0, 1], [1, 1, 1], [0, -1, 0]])
    >>> summary = summarize(A, aggregator=DawidSkene().fit(A))
    >>> summary["data"]["n_annotations"], summary["labels"]["source"]
    (8, 'DawidSkene')
    """
    others = (aggregator, classifier, X, labels, posterior, gold)
    if is_sharded(table):
        return _of_store(table, (*others, selection, seconds, ended))
    if not getattr(table, "annotators_known", True):
        return _of_votes(table, (*others, selection, seconds, ended))
    if isinstance(table, AnnotationTable):
        shown = "the command describe counts the annotations of each class"
        check_size(table, "a report", confusions=True, alternative=shown)
    inputs = read_inputs(table, *others, seconds, ended)
    return summarize_inputs(inputs, selection, title, new_items, sections=sections)[0]


def summarize_inputs(
    inputs: Inputs,
    selection: Any = None,
    title: str | None = None,
    new_items: Level | None = None,
    labels: Consensus | None = None,
    *,
    sections: Sequence[Section] = SECTIONS,
) -> tuple[Summary, dict[str, list[Any]]]:
    """Return the summary of checked inputs, and the columns of ``annotators.csv``.

    The summary lists the first annotators, and the columns have all of them. ``labels`` are those
    with their recommended actions, if they are at hand.
    """
    found = Findings(inputs, selection, new_items, labels, tuple(sections))
    summary = {
        "version": VERSION,
        "generator": GENERATOR,
        "title": UNTITLED if title is None else str(title),
        "limits": dict(LIMITS),
        "levels": found.once(find_levels),
        **{each.key: found.once(each.summarise) for each in sections if each.summarise},
        "warnings": find_warnings(found),
    }
    columns = annotator_columns(found.once(find_profiles))
    return plain_values(summary), plain_values(columns)


def summarize_ratings(
    model: RatingMean, measured: Mapping[str, Any] | None = None, *, title: str | None = None
) -> Summary:
    """Summarise means of ratings in one dict, as `summarize` does labels that are classes.

    Parameters
    ----------
    model : RatingMean, fitted
    measured : dict {name: value}, optional
        Errors against gold.
    title : str, optional
        Heading of the report.

    Returns
    -------
    dict
        Plain values, with ``"kind": "ratings"``, which `render_report` takes.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the model is not fitted.
    """
    check_is_fitted(model, "values_")
    return _of_kind(RATINGS, RATING_SECTIONS, RatingFindings(model, measured), title)


def summarize_sets(found: SetFindings, *, title: str | None = None) -> Summary:
    """Summarise sets of labels in one dict, as `summarize` does labels that are classes.

    Parameters
    ----------
    found : SetFindings
    title : str, optional
        Heading of the report.

    Returns
    -------
    dict
        Plain values, with ``"kind": "label sets"``, which `render_report` takes.
    """
    return _of_kind(SETS, SET_SECTIONS, found, title)


def _of_kind(kind: str, sections: Sequence[Section], found: Once, title: str | None) -> Summary:
    """Summarise with sections of another kind of labels."""
    summary: Summary = plain_values(
        {
            "version": VERSION,
            "kind": kind,
            "generator": GENERATOR,
            "title": UNTITLED if title is None else str(title),
            "limits": dict(LIMITS),
            **{each.key: found.once(each.summarise) for each in sections if each.summarise},
        }
    )
    return summary


def summarize_annotators(inputs: Inputs, *, joined: bool = True) -> dict[str, list[Any]]:
    """Return the columns of ``annotators.csv`` alone; see `annotator_columns`."""
    profiles = Findings(inputs).once(find_profiles)
    columns: dict[str, list[Any]] = plain_values(annotator_columns(profiles, joined=joined))
    return columns


def has_many_classes(table: Any) -> bool:
    """Return whether a table has so many classes that `overview` is all that can be shown."""
    return isinstance(table, AnnotationTable) and table.n_classes > HARMLESS_CLASSES


def overview(table: AnnotationTable) -> Summary:
    """Summarise data and classes only, in O(annotations), whatever the number of classes.

    Returns
    -------
    dict
        ``data``, ``classes`` and ``warnings`` of `summarize`; the warnings are those that judge no
        single annotator.
    """
    observed = replace(table.observed, weights=None)
    inferred = majority_of(observed) if observed.n_annotations else None
    known = observed if table.annotators_known else None
    return _counts(Inputs(table, observed, inferred), known)


def _counts(inputs: Inputs, known: AnnotationTable | None) -> Summary:
    """Data, classes, and warnings that judge no single annotator.

    ``known`` is the table in which to look for those who may share mistakes, if there is one.
    """
    found = Findings(inputs)
    data, classes = found.once(data_section), found.once(classes_section) or {}
    warnings = find_store_warnings(known, data, classes)
    counts = {"data": data, "classes": found.once(classes_section), "warnings": warnings}
    summary: Summary = plain_values(counts)
    return summary


def _of_store(store: Sharded, others: tuple[Any, ...]) -> Summary:
    if any(other is not None for other in others):
        raise AnnotationError(
            "of a store, summarize counts data and classes, and takes no other argument; give a "
            "table of some of its instances, such as store[:10000]"
        )
    counts = store_sections(store)
    warnings = find_store_warnings(store, counts["data"], counts["classes"])
    frame = {"version": VERSION, "generator": GENERATOR}
    summary: Summary = plain_values({**frame, **counts, "warnings": warnings})
    return summary


def _of_votes(table: AnnotationTable, others: tuple[Any, ...]) -> Summary:
    """Return what can be said of votes of unknown annotators."""
    if any(other is not None for other in others):
        require_annotators(table, "a report")
    counts = _counts(read_inputs(table, *[None] * 6), None)
    return {"version": VERSION, "generator": GENERATOR, **counts}


def plain_values(value: Any) -> Any:
    """Convert arrays, NumPy scalars and tuples to JSON types; NaN and infinity to None."""
    if isinstance(value, dict):
        return {str(key): plain_values(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return plain_values(value.tolist())
    if isinstance(value, list | tuple):
        return [plain_values(entry) for entry in value]
    if isinstance(value, np.generic):
        return plain_values(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
