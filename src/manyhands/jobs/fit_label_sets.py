"""The fit job on sets of labels: a classifier per option, the labels, and scores on new items.

Instances with answers get the labels of the aggregator, because answers tell more of an instance
than its features. The others get the classifier's predictions.
"""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline

from manyhands.annotations import LabelSetTable
from manyhands.annotations.label_set_frames import word_of_nothing
from manyhands.classifiers.aggregated_sets import decided
from manyhands.decision import SetDecision, decide_sets
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.files import write_atomically
from manyhands.fitting.folders import STAGING, publish
from manyhands.fitting.reading import take_rows
from manyhands.io import read_features, read_gold_sets, read_images, read_texts
from manyhands.io.aligned import read_aligned_sets
from manyhands.io.consensus_sets import set_consensus
from manyhands.io.frames import check_table_path, write_table
from manyhands.io.shown import Shown
from manyhands.io.writers import check_separator, write_sets
from manyhands.jobs.label_sets import (
    OPTIONS,
    annotator_columns,
    measured_cells,
    option_columns,
    plain,
    rows_of,
)
from manyhands.jobs.outputs import (
    ANNOTATORS,
    LABELS,
    SUMMARY,
    check_kind,
    job_folder,
    load_classifier,
)
from manyhands.metrics.set_levels import levels_of_sets
from manyhands.models import save
from manyhands.report import summarize_sets
from manyhands.report.label_sets import (
    SetFindings,
    flagged_annotators,
    told_of_decision,
    told_of_sets,
)
from manyhands.typing import FloatArray, IntArray
from manyhands.wording import percent

QUICK, FOLDS = 60.0, 3
"""A fit of up to 60 s is cross-validated by default, in 3 folds, which about triples its time."""


def fit_label_sets(
    estimator: Any,
    X: Any,
    table: LabelSetTable,
    folder: str | Path,
    *,
    gold: IntArray | None = None,
    known: IntArray | None = None,
    encoder: Any = None,
    shown: Shown | None = None,
    folds: int | None = None,
    seed: int = 0,
    separator: str = ";",
    none: str | Sequence[str] | None = None,
    title: str | None = None,
    keep_formulas: bool = False,
    files: Sequence[str] = (),
    reading: Sequence[str] = (),
    given: Sequence[str] = (),
) -> dict[str, Any]:
    """Fit a classifier to sets of labels, save it in a folder, and write the labels beside it.

    Parameters
    ----------
    estimator : AggregatedClassifier
        Cloned; its ``random_state`` is set to the seed.
    X : array of shape (n_instances, ...)
    table : LabelSetTable
    folder : str or Path
        Receives the model, ``labels.csv``, ``annotators.csv``, ``options.csv`` and
        ``summary.json``. If the backbone cannot be saved, there is no model.
    gold : integer array of shape (n_instances, n_options), optional
        True labels, used for evaluation only: 0, 1, and -1 where unknown.
    known : integer array of shape (n_instances, n_options), optional
        Known labels, which the fit uses.
    encoder : TextEncoder or ImageEncoder, optional
        X holds texts or images, which it encodes; it is fitted to the rows with answers, and saved
        in front of the model.
    shown : Shown, optional
        What ``labels.csv`` says of the items.
    folds : int, optional
        Folds of the cross-validation that measures the classifier on new items, unless gold of
        instances without answers does; 0 for none. Default: 3, or 0 after a fit of more than a
        minute.
    seed : int
    separator : str
        What is written between the labels of a set.
    none : str or sequence of str, optional
        As in `aggregate_label_sets`.
    title : str, optional
        Of the report.
    keep_formulas : bool
        As in `manyhands.io.write_labels`.
    files, reading, given : sequence of str
        As in `aggregate_label_sets`.

    Returns
    -------
    dict
        As of `aggregate_label_sets`, and ``aggregator``, ``seconds``, ``saved`` (whether there is a
        model) and ``new_items``: scores of predictions of instances without answers, or out of
        fold, with their ``source``; None if nothing was measured.

    Raises
    ------
    AnnotationError
        As of the classifier.
    WriteError
        If the folder cannot be written.
    """
    annotated = np.flatnonzero(table.annotations_per_instance() > 0)
    if encoder is not None:
        X = encoder.fit(take_rows(X, annotated)).transform(X)
    cells = None if known is None else np.where(known < 0, np.nan, known)
    model = clone(estimator).set_params(random_state=seed)
    with job_folder(folder) as place:
        started = perf_counter()
        model.fit(X, table, gold=cells)
        seconds = perf_counter() - started
        aggregator = copy.copy(model.aggregator_)
        found = _decided(model, aggregator, annotated, X)
        rule = _rule(model)
        levels = levels_of_sets(aggregator, found.ticks, gold)
        sets = set_consensus(table, aggregator, found.ticks, levels.probability)
        is_saved = model._traits.save_refusal is None
        n_folds = folds if folds is not None else FOLDS * (seconds < QUICK)
        told = _told(rule, found)
        scores = None
        if gold is not None:
            fresh = np.where(aggregator.is_known_, -1, gold)
            scores = measured_cells(
                aggregator.posterior_[annotated], found.ticks[annotated], fresh[annotated]
            )
        inputs = SetFindings(
            aggregator, sets, levels, found, told, gold, scores, separator, files, reading, given
        )
        summary: dict[str, Any] = {
            "method": type(model).__name__,
            "aggregator": type(aggregator).__name__,
            "n_instances": table.n_instances,
            "n_annotators": table.n_annotators,
            "n_annotations": table.n_annotations,
            "n_options": table.n_options,
            "seconds": round(seconds, 3),
            "saved": is_saved,
            "shared": getattr(aggregator, "shared_", None),
            "why": getattr(aggregator, "why_", None),
            "rule": rule,
            "levels": levels.to_dict(),
            "headline": told_of_sets(inputs),
            "decided": told,
            "flagged": flagged_annotators(inputs),
            "actions": sets.count_actions(),
            "gold": scores,
            "new_items": _on_new_items(model, X, table, cells, gold, annotated, n_folds),
        }
        whole = summarize_sets(inputs, title=title) | summary
        tables = {
            ANNOTATORS: annotator_columns(aggregator),
            OPTIONS: option_columns(aggregator, found),
        }
        staged = place / STAGING
        staged.mkdir(exist_ok=True)
        if is_saved:
            save(model if encoder is None else make_pipeline(encoder, model), staged)
        own: dict[str, Any] = {"keep_formulas": keep_formulas}
        write_sets(staged / LABELS, sets, separator=separator, none=none, shown=shown, **own)
        for name, columns in tables.items():
            write_table(staged / name, columns, **own)
        write_atomically(staged / SUMMARY, json.dumps(whole, indent=1, allow_nan=False))
        written = sorted(path.name for path in staged.iterdir() if path.suffix != ".safetensors")
        publish(place)
        (place / "report.html").unlink(missing_ok=True)  # Of an earlier job.
    if not is_saved:
        warn_caller(f"{folder} has no model: {model._traits.save_refusal}")
    return {
        **summary,
        "labels": rows_of({name: plain(v) for name, v in sets.arrays(separator, none).items()}),
        "annotators": rows_of(tables[ANNOTATORS]),
        "options": rows_of(tables[OPTIONS]),
        "files": [str(Path(folder) / name) for name in written],
    }


def _told(rule: str, found: SetDecision) -> str:
    """Say how sets were decided, with the options of a fit."""
    text = told_of_decision(rule, None, found)
    if rule in ("costs", "balanced"):
        low, high = found.threshold.min(), found.threshold.max()
        return (
            f"An option is ticked by decision={rule!r}, from probabilities of {percent(low)} to "
            f"{percent(high)} on."
        )
    return text.replace(
        "--rule f1, or a --threshold below 0.5", "--set decision=f1 or --set decision=[[0,1],[5,0]]"
    )


def _rule(model: Any) -> str:
    """Return the name of a classifier's rule of decision, as in `decide_sets`."""
    if not isinstance(model.decision, str):
        return "costs"
    return "probable" if model.decision in ("auto", "posterior") else str(model.decision)


def _decided(model: Any, aggregator: Any, annotated: IntArray, X: Any) -> SetDecision:
    """Decide the labels of all instances; those without answers get what the classifier predicts.

    Their probabilities replace the prevalence in the aggregator's ``posterior_``.
    """
    own = aggregator.posterior_[annotated]
    inferred = decide_sets(own, "f1") if _rule(model) == "f1" else decided(model, own)
    posterior = np.array(aggregator.posterior_)
    others = np.setdiff1d(np.arange(len(posterior)), annotated)
    ticks = np.zeros(posterior.shape, dtype=bool)
    ticks[annotated] = inferred.ticks
    if len(others):
        told = aggregator.is_known_[others]
        proba = np.where(told, posterior[others], model.predict_proba(take_rows(X, others)))
        posterior[others], ticks[others] = proba, decided(model, proba).ticks
    aggregator.posterior_, aggregator.labels_ = posterior, posterior > 0.5
    return inferred._replace(ticks=ticks, n_ticked=ticks.sum(axis=0))


def _on_new_items(
    model: Any,
    X: Any,
    table: LabelSetTable,
    cells: FloatArray | None,
    gold: IntArray | None,
    annotated: IntArray,
    folds: int,
) -> dict[str, Any] | None:
    """Measure predictions of instances that the classifier was not trained on."""
    others = np.setdiff1d(np.arange(table.n_instances), annotated)
    if gold is not None and (gold[others] >= 0).any():
        proba = model.predict_proba(take_rows(X, others))
        found = measured_cells(proba, decided(model, proba).ticks, gold[others])
        return {"source": "the gold of items without answers"} | found
    if folds < 2 or len(annotated) < 10 * folds:
        return None
    proba, ticks = (np.zeros((len(annotated), table.n_options), dtype=t) for t in (float, bool))
    parts = KFold(folds, shuffle=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # They were shown when the model was fitted.
        for train, left in parts.split(annotated):
            fresh = clone(model)
            for name, value in (("verbose", 0), ("checkpoint", None)):
                fresh.set_params(**{name: value})
            rows = annotated[train]
            try:
                own = None if cells is None else cells[rows]
                fresh.fit(take_rows(X, rows), table[rows], gold=own)
            except AnnotationError:
                return None  # For example, because nobody ticked an option in a fold.
            proba[left] = fresh.predict_proba(take_rows(X, annotated[left]))
            ticks[left] = decided(fresh, proba[left]).ticks
    if gold is not None and (gold[annotated] >= 0).any():
        return {"source": f"gold, in {folds} folds"} | measured_cells(proba, ticks, gold[annotated])
    inferred = decided(model, model.aggregator_.posterior_[annotated]).ticks
    found = measured_cells(proba, ticks, inferred.astype(int))
    return {"source": f"the labels inferred from the answers, in {folds} folds"} | found


def read_as(folder: str | Path) -> dict[str, Any]:
    """Return how the answers of a folder's model were read: ``multilabel`` and ``none``.

    Parameters
    ----------
    folder : str or Path
        What `fit_label_sets` wrote; of one without a summary, the defaults are returned.

    Returns
    -------
    dict
        Options of `manyhands.io.read_label_sets`.
    """
    try:
        data = json.loads(Path(folder, SUMMARY).read_text(encoding="utf-8"))["set_data"]
    except (OSError, ValueError, KeyError, TypeError):  # Saved by itself, or moved.
        return {"multilabel": ";", "none": None}
    words = data.get("reading", [])
    none = [value for word, value in pairwise(words) if word == "--none"]
    return {"multilabel": data["separator"], "none": none or None}


def words_of_sets(folder: str | Path) -> list[str] | None:
    """Return the options with which the answers of a folder of sets were read.

    Parameters
    ----------
    folder : str or Path

    Returns
    -------
    list of str, or None
        Such as ``["--multilabel", ";"]``; None if the folder's labels are no sets.
    """
    try:
        summary = json.loads(Path(folder, SUMMARY).read_text(encoding="utf-8"))
        words = summary["set_data"].get("reading", [])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return [str(word) for word in words] or ["--multilabel", str(summary["set_data"]["separator"])]


# -- prediction -----------------------------------------------------------------------------------


def predict_label_sets(
    folder: str | Path,
    features: str | Path | None = None,
    out: str | Path | None = None,
    *,
    texts: str | Path | None = None,
    images: str | Path | None = None,
    annotations: Path | list[Path] | None = None,
    reading: dict[str, Any] | None = None,
    gold: Path | None = None,
    keep_formulas: bool = False,
) -> dict[str, Any]:
    """Predict the sets of the rows of a file with a saved model; write them if ``out`` is given.

    Parameters
    ----------
    folder : str or Path
        Of a model that `fit_label_sets` wrote.
    features, out, texts, images, annotations
        As in `manyhands.jobs.predict_file`.
    reading : dict, optional
        Options of `manyhands.io.read_label_sets`; ``multilabel`` and ``none`` are by default those
        with which the answers of the model were read.
    gold : Path, optional
        Table of true sets of some rows; see `manyhands.io.read_gold_sets`.
    keep_formulas : bool

    Returns
    -------
    dict
        ``n_instances``, ``rule``, ``labels`` (task, labels, least_sure, and the probability of each
        option), and ``gold``: scores on known cells, if gold is given.
    """
    if out is not None:
        check_table_path(out)
    model = load_classifier(folder)
    check_kind(model, {"--features": features, "--texts": texts, "--images": images})
    options = {**read_as(folder), **(reading or {})}
    own: dict[str, Any] = {name: options.get(name) for name in ("encoding", "separator")}
    if annotations is not None and features is None:
        kind: Any = "images" if texts is None else "texts"
        data = read_aligned_sets(kind, str(images or texts), annotations, **options)[0]
    elif texts is not None:
        data = read_texts(texts, task=options.get("task"), **own)
    elif images is not None:
        data = read_images(images)
    elif features is not None:
        data = read_features(features, known=getattr(model, "feature_names_in_", ()), **own)
    tasks = np.arange(len(data)) if data.tasks is None else data.tasks
    proba = model.predict_proba(data.frame)
    last = model[-1] if isinstance(model, Pipeline) else model
    found, separator = decided(last, proba), options["multilabel"]
    check_separator(last.options_, separator)
    names, nothing = last.options_, word_of_nothing(options.get("none"))
    columns: dict[str, list[Any]] = {
        "task": plain(tasks),
        "labels": [separator.join(names[row].tolist()) or nothing for row in found.ticks],
        "least_sure": plain(names[np.abs(proba - 0.5).argmin(axis=1)]),
    }
    columns |= {f"p({name})": plain(proba[:, m]) for m, name in enumerate(names.tolist())}
    if out is not None:
        write_table(out, columns, keep_formulas=keep_formulas)
    result = {"n_instances": len(data), "rule": _rule(last), "labels": rows_of(columns)}
    if gold is not None:
        # A table without answers, whose instances are the rows.
        nobody = np.zeros((0, len(names)))
        empty = LabelSetTable.from_arrays([], [], nobody, options=names, instances=tasks)
        truth = read_gold_sets(gold, empty, separator, none=options.get("none"), **own)
        result["gold"] = measured_cells(proba, found.ticks, truth)
    return result
