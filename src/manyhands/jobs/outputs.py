"""Output files of a job (model, labels, summary, report), and jobs that read them."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import MissingExtraError, ModelFolderError, WriteError
from manyhands.fitting import BaseCrowdClassifier
from manyhands.io import read_features, write_atomically
from manyhands.io.files import check_writable
from manyhands.jobs.gold import GoldRows
from manyhands.jobs.labels import label_rows, labels_csv
from manyhands.models import load
from manyhands.report import summarize, write_report

LABELS, SUMMARY = "labels.csv", "summary.json"
OUTPUTS = ("model.json", LABELS, SUMMARY, "report.html")
"""Files in a job's folder, besides the weights (named by their content)."""


@contextmanager
def job_folder(folder: str | Path) -> Iterator[Path]:
    """Create a folder to write into; a failure leaves no empty folder behind.

    Raises
    ------
    WriteError
        If it cannot be written, or holds a ``labels.csv`` that is not from manyhands (such as gold
        labels).
    """
    folder = Path(folder)
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        check_writable(folder)
        if (folder / LABELS).exists() and not any(
            (folder / name).exists() for name in ("model.json", SUMMARY)
        ):
            raise WriteError(
                errno.EEXIST,
                f"{str(folder / LABELS)!r} exists and is not from manyhands (there is no model "
                "beside it); it would be overwritten. Choose another folder",
            )
        yield folder
    except BaseException:
        for path in created:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise


def keep_model(
    model: BaseCrowdClassifier,
    X: Any,
    train: AnnotationTable,
    folder: Path,
    *,
    gold: GoldRows | None = None,
    title: str | None = None,
) -> None:
    """Write model, inferred labels and summary; all are computed before the first is written."""
    # posterior_ combines annotations and features, if the method infers it.
    proba = model.posterior_ if hasattr(model, "posterior_") else model.predict_proba(X)
    codes = proba.argmax(axis=1)
    if not hasattr(model, "posterior_") and hasattr(model, "_decide"):
        codes = model._decide(proba)
    content = labels_csv(codes, proba, train.instances, model.classes_)
    gold_values = None
    if gold is not None:
        # The report covers annotated rows only, so gold of test rows is left out.
        annotated = train.annotations_per_instance() > 0
        codes = np.where(annotated, gold.codes, -1)
        values = np.array([*train.classes.tolist(), None], dtype=object)
        gold_values = values[codes]
    summary = summarize(train, classifier=model, X=X, gold=gold_values, title=title)
    described = json.dumps(summary, indent=1, allow_nan=False)
    if hasattr(model, "module_"):
        model.save(folder)
    write_atomically(folder / LABELS, content)
    write_atomically(folder / SUMMARY, described)


def predict_file(
    folder: str | Path, features: str | Path, out: str | Path | None = None
) -> dict[str, Any]:
    """Predict the rows of a feature file with a saved model, and write CSV if ``out`` is given."""
    model = load(folder)
    data = read_features(features)
    tasks = np.arange(len(data)) if data.tasks is None else data.tasks
    proba = model.predict_proba(data.X)
    codes = model._decide(proba)
    if out is not None:
        write_atomically(out, labels_csv(codes, proba, tasks, model.classes_))
    return {"n_instances": len(data), "labels": label_rows(codes, proba, tasks, model.classes_)}


def report_folder(folder: str | Path, out: str | Path | None = None) -> Path:
    """Write the HTML report on a job's folder, by default into that folder.

    Raises
    ------
    ModelFolderError
        If the folder has no summary, or the summary cannot be rendered.
    WriteError
        If the page cannot be written.
    """
    path = Path(folder) / SUMMARY
    if not path.is_file():
        raise ModelFolderError(
            f"{str(folder)!r} has no {SUMMARY}; give the folder that 'manyhands fit --out' wrote"
        )
    try:
        return write_report(path, out or Path(folder) / "report.html")
    except (WriteError, MissingExtraError):
        raise
    except Exception as error:
        # A summary edited by hand can make a template fail in any way.
        raise ModelFolderError(
            f"{str(path)!r} cannot be rendered ({error}); it was truncated or edited, or another "
            "version of manyhands wrote it: run fit again"
        ) from error
