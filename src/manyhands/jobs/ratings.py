"""Jobs on ratings and scores: the mean of every instance, in files and as a summary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.agreement import krippendorff_alpha
from manyhands.annotations import AnnotationTable
from manyhands.annotations.class_order import number_of
from manyhands.annotations.duplicates import Duplicates
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning, warn_caller
from manyhands.inference.identifiability import unidentified_numbers
from manyhands.inference.rating_mean import RatingMean
from manyhands.io import GoldFile
from manyhands.io.frames import check_table_path, write_table
from manyhands.io.shown import Shown, with_shown
from manyhands.jobs.outputs import (
    ANNOTATORS,
    LABELS,
    files_with_more,
    keep_aggregator,
)
from manyhands.models import load
from manyhands.report import summarize_ratings
from manyhands.report.ratings import GOLD_WITHIN, LEAST_GOLD, condition_of, scale_of, told_of_values
from manyhands.typing import FloatArray
from manyhands.wording import outside_ratings

LEVEL = 0.95
"""Level of all intervals: they contain the true value in 95 % of cases."""


def aggregate_ratings(
    table: AnnotationTable,
    model: RatingMean,
    gold: GoldFile | None = None,
    out: str | Path | None = None,
    *,
    known: GoldFile | None = None,
    reference: list[Any] | None = None,
    shown: Shown | None = None,
    title: str | None = None,
    keep_formulas: bool = False,
    files: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Average the ratings of a table, and write all values if ``out`` is given.

    Parameters
    ----------
    table : AnnotationTable of numbers
    model : RatingMean
    gold : GoldFile, optional
        True values, used for evaluation only.
    out : str or Path, optional
        File for the values; or a folder (a name without a suffix) for the model, ``labels.csv``,
        ``annotators.csv``, ``summary.json`` and ``report.html``.
    known : GoldFile, optional
        Known values, which the severities are estimated with.
    reference : list of annotator ids, optional
        Annotators on whose scale the values are; see `RatingMean.fit`.
    shown : Shown, optional
        What the table of values says of the items.
    title : str, optional
        Heading of the report.
    keep_formulas : bool
        As in `manyhands.io.write_labels`.
    files : dict, optional
        Names of files for the commands in the report; see `manyhands.report.commands`.

    Returns
    -------
    dict
        ``method``, ``n_instances``, ``n_annotators``, ``n_annotations``, ``values`` (task, label,
        low, high, mean, median), ``annotators`` (annotator, n_annotations, severity, low, high,
        sd), ``agreement`` (Krippendorff's alpha at interval level), ``value_sd``, ``severity_sd``
        and ``noise_sd``; in words, ``scale`` (on whose the values are), ``headline`` (how sure they
        are) and ``condition`` (under which their intervals hold); ``files``, and ``gold``: errors
        on the instances that have gold and are not in ``known``, or None.

    Raises
    ------
    AnnotationError
        If labels or gold are not numbers, or no task with gold is among the instances.
    WriteError
        If the output cannot be written.
    """
    if out is not None and Path(out).suffix:
        check_table_path(out)
    return _concluded(
        model.fit(table, **_known(known, table), reference=reference),
        gold,
        out,
        shown,
        title,
        keep_formulas,
        files,
    )


def continue_ratings(
    folder: str | Path,
    new: AnnotationTable,
    gold: GoldFile | None = None,
    out: str | Path | None = None,
    *,
    duplicates: Duplicates = "last",
    known: GoldFile | None = None,
    shown: Shown | None = None,
    title: str | None = None,
    keep_formulas: bool = False,
    files: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Add ratings to the model of a folder, and write the values of all instances.

    Parameters
    ----------
    folder : str or Path
        What `aggregate_ratings` wrote into a folder.
    new : AnnotationTable of numbers
    gold, out, duplicates, known, shown, title, keep_formulas, files
        As in `aggregate_ratings` and `RatingMean.partial_fit`.

    Returns
    -------
    dict
        As of `aggregate_ratings`.
    """
    if out is not None and Path(out).suffix:
        check_table_path(out)
    model: Any = load(folder)
    model.partial_fit(new, duplicates=duplicates, **_known(known, new))
    named = files_with_more(folder, files)
    return _concluded(model, gold, out, shown, title, keep_formulas, named)


def _known(known: GoldFile | None, table: AnnotationTable) -> dict[str, Any]:
    """Return the arguments of ``fit``: known values, and which were drawn at random."""
    if known is None:
        return {}
    found: dict[str, Any] = {"gold": _numbers_of(known, table)}
    if known.random is not None:
        drawn = {str(task) for task in known.tasks[known.random].tolist()}
        found["random_gold"] = np.array([str(i) in drawn for i in table.instances.tolist()])
    return found


def _concluded(
    model: RatingMean,
    gold: GoldFile | None,
    out: str | Path | None,
    shown: Shown | None,
    title: str | None,
    keep_formulas: bool,
    named: Mapping[str, Any] | None,
) -> dict[str, Any]:
    table = model.table_
    measured = None if gold is None else _measured(model, _numbers_of(gold, table))
    alpha = float(krippendorff_alpha(table, level="interval"))
    doubt = None if model.is_known_.any() else unidentified_numbers(table)
    if doubt is not None:
        warn_caller(doubt, NotIdentifiableWarning)
    values, annotators = value_columns(model), annotator_columns(model)
    lowest, highest = float(table.values.min()), float(table.values.max())
    summary: dict[str, Any] = {
        "method": type(model).__name__,
        "n_instances": table.n_instances,
        "n_annotators": table.n_annotators,
        "n_annotations": table.n_annotations,
        "agreement": None if np.isnan(alpha) else alpha,
        "value_sd": model.value_sd_,
        "severity_sd": model.severity_sd_,
        "noise_sd": model.noise_sd_,
        "scale": scale_of(model),
        "headline": told_of_values(model, measured, doubt),
        "condition": condition_of(model.n_measured_),
        "outside": outside_ratings(
            int((~model.is_known_ & ((model.values_ < lowest) | (model.values_ > highest))).sum()),
            *(lowest, highest),
        ),
        "gold": measured,
    }
    files: list[Path] = []
    columns = with_shown(values, shown)
    if out is not None and Path(out).suffix:
        files = [write_table(Path(out), columns, keep_formulas=keep_formulas)]
    elif out is not None:
        whole = summarize_ratings(model, measured, title=title) | summary
        files = _write_folder(
            Path(out), model, columns, annotators, whole, shown, keep_formulas, named
        )
    return {
        **summary,
        "values": _rows(values),
        "annotators": _rows(annotators),
        "files": [str(path) for path in files],
    }


def value_columns(model: RatingMean) -> dict[str, list[Any]]:
    """Return the columns of ``labels.csv``: values, their intervals, and plain averages."""
    low, high = model.interval(LEVEL).T
    table = model.table_
    columns: dict[str, Any] = {
        "task": model.instances_,
        "label": model.values_,
        "low_95": low,
        "high_95": high,
        "mean": model.mean_,
        "median": model.median_,
        "n_annotations": table.annotations_per_instance(),
    }
    if model.is_known_.any():
        columns["known"] = model.is_known_
    return {name: _plain(values) for name, values in columns.items()}


def annotator_columns(model: RatingMean) -> dict[str, list[Any]]:
    """Return the columns of ``annotators.csv``: severity, and standard deviation of the ratings."""
    width = 1.959963984540054 * model.severity_se_
    columns: dict[str, Any] = {
        "annotator": model.annotators_,
        "n_annotations": model.table_.annotations_per_annotator(),
        "severity": model.severity_,
        "severity_low_95": model.severity_ - width,
        "severity_high_95": model.severity_ + width,
        "sd": model.annotator_sd_,
    }
    return {name: _plain(values) for name, values in columns.items()}


def _plain(values: Any) -> list[Any]:
    """Return plain values; None for NaN, and floats to six significant digits."""
    return [
        (None if np.isnan(value) else float(f"{value:.6g}")) if isinstance(value, float) else value
        for value in np.asarray(values).tolist()
    ]


def _rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _write_folder(
    folder: Path,
    model: RatingMean,
    values: dict[str, list[Any]],
    annotators: dict[str, list[Any]],
    summary: dict[str, Any],
    shown: Shown | None,
    keep_formulas: bool,
    named: Mapping[str, Any] | None,
) -> list[Path]:
    def write(staged: Path) -> None:
        write_table(staged / LABELS, values, keep_formulas=keep_formulas)
        write_table(staged / ANNOTATORS, annotators, keep_formulas=keep_formulas)

    return keep_aggregator(folder, model, summary, write, shown, files=named)


def _numbers_of(gold: GoldFile, table: AnnotationTable) -> FloatArray:
    """Return the true values of a table's instances, shape (n_instances,); NaN if unknown.

    Raises
    ------
    AnnotationError
        If a label is not a finite number, or no task is among the instances.
    """
    places = {str(task): i for i, task in enumerate(table.instances.tolist())}
    found, unknown = np.full(table.n_instances, np.nan), []
    for i in np.flatnonzero(gold.known).tolist():
        value = number_of(np.asarray(gold.labels[i]).item())
        if value is None or not np.isfinite(value):
            raise AnnotationError(
                f"{gold.named(i)} has the gold label {str(gold.labels[i])!r}, but the annotations "
                "are numbers; correct the label, or empty the cell"
            )
        place = places.get(str(gold.tasks[i]))
        if place is None:
            unknown.append(gold.named(i))
        else:
            found[place] = value
    if np.isnan(found).all() and unknown:
        raise AnnotationError(
            f"none of the {len(unknown)} tasks with gold (such as {unknown[0]}) is among the "
            f"{table.n_instances} instances (such as {table.instances[0].item()!r}); use the same "
            "ids in both"
        )
    if unknown:
        warn_caller(
            f"{len(unknown)} tasks with gold are not among the instances, so their labels are not "
            f"used ({unknown[0]}). Correct the ids, or delete the rows"
        )
    return found


def _measured(model: RatingMean, truth: FloatArray) -> dict[str, Any]:
    """Return the errors of the values against gold, beside those of plain mean and median."""
    rated = model.table_.annotations_per_instance() > 0
    rows = np.flatnonzero(~np.isnan(truth) & rated & ~model.is_known_)
    found: dict[str, Any] = {"instances with gold": len(rows)}
    if not len(rows):
        return found
    off = {"": model.values_, " of the plain mean": model.mean_, " of the median": model.median_}
    for name, values in off.items():
        found[f"mean absolute error{name}"] = float(np.abs(values - truth)[rows].mean())
    low, high = model.interval(LEVEL)[rows].T
    found["share of the 95 % intervals that hold the gold value"] = float(
        ((low <= truth[rows]) & (truth[rows] <= high)).mean()
    )
    if len(rows) >= LEAST_GOLD:
        found[GOLD_WITHIN] = float(np.quantile(np.abs(model.values_ - truth)[rows], LEVEL))
    if len(rows) > 2 and truth[rows].std() > 0 and model.values_[rows].std() > 0:
        found["correlation"] = float(np.corrcoef(model.values_[rows], truth[rows])[0, 1])
    return found
