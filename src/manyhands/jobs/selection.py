"""The selection job: choose among methods without gold, save the chosen model, and evaluate it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from manyhands.annotations import AnnotationTable
from manyhands.fitting.folders import publish
from manyhands.jobs.fit import count_data, encode_rows, judge_new_items, measure_splits
from manyhands.jobs.gold import (
    GoldRows,
    training_part,
    warn_of_columns_of_gold,
    warn_of_unannotated_rows,
)
from manyhands.jobs.outputs import NewItems, job_folder, keep_model, labels_rest_on
from manyhands.metrics import Level
from manyhands.report.headline import headline, headline_of_new_items
from manyhands.report.review import half_of_wrong
from manyhands.selection import Selection, select

FOLDS = "folds"
"""Subfolder with the finished folds, from which an interrupted job resumes."""


def run_selection(
    candidates: Mapping[str, Any] | Iterable[Any] | None,
    X: Any,
    table: AnnotationTable,
    folder: str | Path,
    *,
    gold: GoldRows | None = None,
    keep_formulas: bool = False,
    encoder: Any = None,
    export: Any = None,
    shown: Any = None,
    files: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Choose among candidates with `manyhands.select`, and save the chosen model in a folder.

    Parameters
    ----------
    candidates, **options : as in `manyhands.select`
    X, table, folder, gold, keep_formulas, encoder, export, shown, files : as in `run_job`
        An interrupted job goes on from its finished folds when it is run again.

    Returns
    -------
    dict
        ``data``, ``actions``, ``half_of_wrong``, ``labels_rest_on``, ``left_out``, ``levels`` and
        ``headline`` as `run_job` returns them, ``selection`` (`Selection.to_dict`), and ``splits``
        (split -> metrics of the chosen model; empty without gold).

    Raises
    ------
    AnnotationError
        For the reasons of `manyhands.select`.
    WriteError
        For the reasons of `run_job`.
    """
    train = training_part(table, gold)
    warn_of_unannotated_rows(table, gold)
    if gold is not None:
        warn_of_columns_of_gold(X, table, gold)
    X = encode_rows(encoder, X, train)
    with job_folder(folder) as place:
        found = select(candidates, X, train, folder=place / FOLDS, **options)
        chosen = found.to_dict()
        measured = judge_new_items(found.estimator_, X, table, train, gold, 0)
        summary, labels = keep_model(
            found.estimator_,
            X,
            train,
            place,
            gold=gold,
            keep_formulas=keep_formulas,
            selection=chosen,
            encoder=encoder,
            export=export,
            shown=shown,
            files=files,
            new_items=measured or _estimated(found, train),
        )
        publish(place)
        shutil.rmtree(place / FOLDS, ignore_errors=True)
    lines = (headline(summary), headline_of_new_items(summary))
    return {
        "data": count_data(train),
        "levels": summary.get("levels"),
        "headline": [line for line in lines if line],
        "actions": labels.count_actions(),
        "half_of_wrong": half_of_wrong(summary),
        "rule": labels.rule,
        "labels_rest_on": labels_rest_on(found.estimator_),
        "left_out": table.n_annotations - train.n_annotations,
        "selection": chosen,
        "splits": measure_splits(found.estimator_, X, table, gold, train),
    }


def _estimated(found: Selection, train: AnnotationTable) -> NewItems | None:
    """Return how often the choice is right on new items, as the comparison estimated it."""
    row = next(each for each in found.table_ if each.candidate == found.best_)
    if row.estimate is None or row.low is None or row.high is None:
        return None
    n = int((train.annotations_per_instance() > 0).sum())
    level = Level(row.estimate, row.low, row.high, "cross-validation", n)
    return NewItems.of(level, found.oof_proba_.max(axis=1), train.n_classes)
