"""`summarize`: the content of a report as one dict of plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from manyhands._version import __version__
from manyhands.annotations import AnnotationTable
from manyhands.annotations.columns import require_annotators
from manyhands.annotations.sharded import Sharded, is_sharded
from manyhands.exceptions import AnnotationError
from manyhands.inference.many_classes import HARMLESS_CLASSES, check_size
from manyhands.metrics import Level
from manyhands.report.actions import find_actions
from manyhands.report.agreement import agreement_section
from manyhands.report.annotators import (
    annotator_columns,
    annotator_profiles,
    annotators_section,
)
from manyhands.report.confusions import common_section, confusions_section, learnt_section
from manyhands.report.counts import classes_section, data_section, store_sections
from manyhands.report.gold import gold_section
from manyhands.report.headline import levels_section
from manyhands.report.inputs import Inputs, describe_estimator, majority_of, read_inputs
from manyhands.report.items import items_section
from manyhands.report.labels import count_actions, labels_section
from manyhands.report.limits import LIMITS
from manyhands.report.planning import (
    Basis,
    basis_of,
    plan_section,
    review_section,
    screening_of,
)
from manyhands.report.timing import time_section
from manyhands.report.training import training_section
from manyhands.report.unexpected import unexpected_section
from manyhands.report.warnings import find_store_warnings, find_warnings

VERSION = 1
"""Version of the dict's layout; increased when a key changes its meaning or is removed."""

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
        shown = "manyhands describe counts the annotations of each class"
        check_size(table, "a report", confusions=True, alternative=shown)
    inputs = read_inputs(table, *others, seconds, ended)
    return summarize_inputs(inputs, selection, title, new_items)[0]


def summarize_inputs(
    inputs: Inputs,
    selection: Any = None,
    title: str | None = None,
    new_items: Level | None = None,
    actions: Mapping[str, int] | None = None,
) -> tuple[Summary, dict[str, list[Any]]]:
    """Return the summary of checked inputs, and the columns of ``annotators.csv``.

    The summary lists the first annotators, and the columns have all of them. ``actions`` counts
    the labels of every recommended action, if they are at hand.
    """
    basis = basis_of(inputs)
    screening = None if basis is None else screening_of(inputs, basis)
    profiles = annotator_profiles(inputs, screening)
    columns = plain_values(annotator_columns(profiles))
    levels = levels_section(inputs, new_items)
    people = annotators_section(inputs, profiles, screening)
    actions = count_actions(inputs) if actions is None else actions
    summary = {
        "version": VERSION,
        "generator": f"manyhands {__version__}",
        "title": UNTITLED if title is None else str(title),
        "limits": dict(LIMITS),
        "levels": levels,
        **_sections(inputs, basis, people, levels, actions),
        "selection": _selection_section(selection),
    }
    summary["items"] = items_section(inputs, summary)
    summary["warnings"] = find_warnings(inputs, summary)
    summary["actions"] = find_actions(summary)
    return plain_values(summary), columns


def summarize_annotators(inputs: Inputs, *, joined: bool = True) -> dict[str, list[Any]]:
    """Return the columns of ``annotators.csv`` alone; see `annotator_columns`."""
    basis = basis_of(inputs)
    screening = None if basis is None else screening_of(inputs, basis)
    profiles = annotator_profiles(inputs, screening)
    columns: dict[str, list[Any]] = plain_values(annotator_columns(profiles, joined=joined))
    return columns


def has_many_classes(table: Any) -> bool:
    """Whether a table has so many classes that `overview` says all that can be said of it."""
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
    inputs = Inputs(table, observed, inferred)
    sections = {"data": data_section(inputs), "classes": classes_section(inputs)}
    known = observed if table.annotators_known else None
    warnings = find_store_warnings(known, sections)
    summary: Summary = plain_values(sections | {"warnings": warnings})
    return summary


def _of_store(store: Sharded, others: tuple[Any, ...]) -> Summary:
    if any(other is not None for other in others):
        raise AnnotationError(
            "of a store, summarize counts data and classes, and takes no other argument; give a "
            "table of some of its instances, such as store[:10000]"
        )
    sections = store_sections(store)
    summary: Summary = plain_values(
        {
            "version": VERSION,
            "generator": f"manyhands {__version__}",
            **sections,
            "warnings": find_store_warnings(store, sections),
        }
    )
    return summary


def _of_votes(table: AnnotationTable, others: tuple[Any, ...]) -> Summary:
    """What can be said of votes of unknown annotators."""
    if any(other is not None for other in others):
        require_annotators(table, "a report")
    inputs = read_inputs(table, *[None] * 6)
    sections = {"data": data_section(inputs), "classes": classes_section(inputs)}
    summary: Summary = plain_values(
        {
            "version": VERSION,
            "generator": f"manyhands {__version__}",
            **sections,
            "warnings": find_store_warnings(None, sections),
        }
    )
    return summary


def _sections(
    inputs: Inputs,
    basis: Basis | None,
    annotators: dict[str, Any] | None,
    levels: dict[str, Any] | None,
    actions: Mapping[str, int] | None,
) -> Summary:
    level = None if levels is None else levels["labels"]
    return {
        "methods": {
            "inferred": None if inputs.inferred is None else inputs.inferred.name,
            "aggregator": describe_estimator(inputs.aggregator),
            "classifier": describe_estimator(inputs.classifier),
        },
        "data": data_section(inputs),
        "agreement": agreement_section(inputs),
        "classes": classes_section(inputs),
        "confusions": confusions_section(inputs),
        "labels": labels_section(inputs, actions),
        "review": review_section(inputs, basis, actions),
        "annotators": annotators,
        "time": time_section(inputs, annotators),
        "plan": plan_section(inputs, basis, level=level),
        "unexpected": unexpected_section(inputs),
        "common_confusions": common_section(inputs),
        "learnt_confusion": learnt_section(inputs),
        "training": training_section(inputs.classifier),
        "gold": gold_section(inputs),
    }


def _selection_section(selection: Any) -> dict[str, Any] | None:
    """The comparison of candidates as `manyhands.select` describes it."""
    if selection is None:
        return None
    described = (
        selection if isinstance(selection, Mapping) else getattr(selection, "to_dict", dict)()
    )
    if not {"best", "criterion", "tied", "warnings", "candidates"} <= {*described}:
        raise AnnotationError(
            f"selection is a {type(selection).__name__}; give the result of manyhands.select(...)"
        )
    return dict(described)


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
