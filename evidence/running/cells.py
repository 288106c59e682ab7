"""One cell of an experiment: a row with one seed, trained, measured, and turned into a record."""

from __future__ import annotations

import random
import subprocess
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import machine, python_version
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.utils.validation import has_fit_parameter

import manyhands
from evidence.data.sets import Data, checksum, load_data
from evidence.experiments.papers import paper_of
from evidence.experiments.rows import Row
from evidence.measures import held_out_likelihood
from evidence.objects import find_measure
from evidence.records import (
    GOLD,
    HELD_OUT,
    LAST,
    ORACLE,
    Record,
)
from manyhands.annotations.encoding import as_values, missing_mask
from manyhands.exceptions import AnnotationError, DataNotFoundError
from manyhands.metrics import accuracy, macro_f1

NO_EPOCHS = "the estimator has no epochs to choose from"

_COMPUTE = ("numpy", "scipy", "scikit-learn", "torch")


def run_cell(row: Row, seed: int, data: Data | None = None) -> Record:
    """Fit a row with one seed, measure it for every way to choose the epoch, and record the run.

    Python's, numpy's and torch's global generators are seeded for estimators that use them.

    Parameters
    ----------
    row : Row
    seed : int
    data : Data, optional
        The result of ``load_data(row.data_of(seed), row.folder)``, if it is already loaded.

    Returns
    -------
    Record
        ``status`` is "skipped" if the GPU or the data that the row needs are missing. It is
        "failed", with a traceback, if anything raised an exception. The checksum is "" if the data
        were not loaded.
    """
    started, clock = datetime.now(UTC), perf_counter()
    _forget_peak_memory()
    outcome: dict[str, Any] = {"status": "done"}
    checked = ""
    try:
        lacking = absent_device(row)
        if lacking is not None:
            outcome = {"status": "skipped", "reason": lacking}
        else:
            data = load_data(row.data_of(seed), row.folder) if data is None else data
            checked = checksum(data)
            outcome |= _measure(row, seed, data)
    except DataNotFoundError as error:
        outcome = {"status": "skipped", "reason": str(error)}
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        outcome = {"status": "failed", "reason": reason, "trace": traceback.format_exc()}
    return Record(
        paper=paper_of(row),
        row=row.id,
        seed=seed,
        specification=row.specification(),
        data_checksum=checked,
        versions=versions(),
        commit=commit(),
        started=started.isoformat(timespec="seconds"),
        seconds=perf_counter() - clock,
        peak_memory_mb=_peak_memory(),
        **outcome,
    )


def absent_device(row: Row) -> str | None:
    """Return why the row's device is missing here, or None if it is present."""
    if row.device != "gpu":
        return None
    import torch

    return None if torch.cuda.is_available() else "the row needs a GPU, and there is none here"


def _measure(row: Row, seed: int, data: Data) -> dict[str, Any]:
    """Fit once for the last epoch and the curves, and again with annotations held out."""
    model = row.make_estimator(seed)
    history = _fit(model, data, seed, row.watch)
    metrics = {
        LAST: _metrics(model, data, max(1, len(history))),
        HELD_OUT: _held_out(row, seed, data, model),
        GOLD: _chosen(history, "valid", data),
        ORACLE: _chosen(history, "test", data),
    }
    extra: dict[str, Any] = {}
    for name in row.extra:
        extra |= _measured(name, find_measure(name, row.folder)(model, data))
    return {"metrics": metrics, "extra": extra, "history": _columns(history)}


def _fit(model: Any, data: Data, seed: int, watch: tuple[str, ...]) -> list[dict[str, Any]]:
    """Fit with a `Watch`; return the history, empty if the estimator keeps none."""
    from manyhands.fitting import Watch

    parts = {"valid": (data.X_valid, data.y_valid), "test": (data.X_test, data.y_test)}
    _seed_everything(seed)
    watched: dict[str, Any] = {name: part for name, part in parts.items() if part[1] is not None}
    if "train" in watch:
        watched["train"] = _training_gold(data)
    options: dict[str, Any] = {}
    if has_fit_parameter(model, "watch"):
        options["watch"] = Watch(y_train=data.y_train, **watched)
    model.fit(data.X_train, data.annotations, **options)
    return list(getattr(model, "history_", []))


def _training_gold(data: Data) -> tuple[Any, Any]:
    """Return the training instances whose true class is known, and their classes."""
    if data.y_train is None:
        raise AnnotationError(
            "y_train is None, so training accuracy is unknown; take train out of watch"
        )
    gold = as_values(data.y_train)
    known = ~missing_mask(gold)
    return (data.X_train, gold) if known.all() else (data.X_train[known], gold[known])


def _seed_everything(seed: int) -> None:
    """Seed the global generators: our estimators do not use them, but a user's may."""
    import torch

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def _held_out(row: Row, seed: int, data: Data, trained: Any) -> dict[str, Any]:
    """Fit again; measure the epoch with the best likelihood of held-out annotations (no gold)."""
    if row.holdout is None:
        return {"absent": "the row holds no annotations out"}
    model = row.make_estimator(seed)
    epochs: list[dict[str, Any]] = []
    if getattr(trained, "history_", None) and "validation" in trained.get_params():
        _seed_everything(seed)
        held_out_likelihood(model, row.holdout).fit(data.X_train, data.annotations)
        epochs = model.history_
    likelihood = np.array([epoch.get("validation_nll", np.nan) for epoch in epochs])
    if not np.isfinite(likelihood).any():
        return {"absent": NO_EPOCHS}
    return _metrics(model, data, _kept(model, int(np.nanargmin(likelihood)) + 1))


def _kept(model: Any, otherwise: int) -> int:
    """Return the row of the history that the model kept, from 1; ``otherwise`` if it names none."""
    for columns in (("round",), ("stage", "epoch")):
        best = tuple(getattr(model, f"best_{column}_", None) for column in columns)
        rows = [tuple(row.get(column) for column in columns) for row in model.history_]
        if None not in best and best in rows:
            return rows.index(best) + 1
    return otherwise


def _metrics(model: Any, data: Data, epoch: int) -> dict[str, Any]:
    """Return accuracy and macro-F1 of the fitted model on the test part."""
    if data.y_test is None:
        return {"absent": "the data set has no test part"}
    predicted = model.predict(data.X_test)
    return {
        "epoch": epoch,
        "accuracy": accuracy(data.y_test, predicted),
        "macro_f1": macro_f1(data.y_test, predicted),
        "n_test": len(data.y_test),
    }


def _chosen(history: list[dict[str, Any]], part: str, data: Data) -> dict[str, Any]:
    """Return the test figures of the first epoch with the highest accuracy on a part."""
    if data.y_test is None:
        return {"absent": "the data set has no test part"}
    if part == "valid" and data.y_valid is None:
        return {"absent": "the data set has no validation part"}
    if not history or f"{part}_accuracy" not in history[-1]:
        return {"absent": NO_EPOCHS}
    # Epochs of stage "start" belong to the method that this one starts from; the rows that follow
    # begin with where it ended.
    own = [{} if epoch.get("stage") == "start" else epoch for epoch in history]
    best = int(np.nanargmax([epoch.get(f"{part}_accuracy", np.nan) for epoch in own]))
    return {
        "epoch": best + 1,
        "accuracy": history[best]["test_accuracy"],
        "macro_f1": history[best]["test_macro_f1"],
        "n_test": len(data.y_test),
    }


def _measured(name: str, found: Any) -> dict[str, Any]:
    """Turn the result of a further measure (numbers, vectors, matrices) into plain numbers."""
    if not isinstance(found, dict):
        raise AnnotationError(f"{name} returns {found!r}; return a dict of name to number or array")
    values = {key: np.asarray(value, dtype=np.float64) for key, value in found.items()}
    for key, value in values.items():
        if not np.isfinite(value).all():
            raise AnnotationError(f"{name} returns {key}={value!r}; return finite numbers")
    return {str(key): value.tolist() for key, value in values.items()}


def _columns(history: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the history by columns, without times, which differ from run to run."""
    names = dict.fromkeys(name for epoch in history for name in epoch)
    return {
        name: [_number(epoch.get(name)) for epoch in history] for name in names if name != "seconds"
    }


def _number(value: Any) -> Any:
    """Return a text or finite number as it is, anything else as None, which JSON can store."""
    if isinstance(value, str) or value is None:
        return value
    return value if np.isfinite(value) else None


# -- where it ran -----------------------------------------------------------------------------


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python, the platform and the numerical packages."""
    found = {"manyhands": manyhands.__version__, "python": python_version()}
    for package in _COMPUTE:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return {**found, "platform": f"{sys.platform}-{machine()}"}


@cache
def commit() -> str | None:
    """Return the last commit that touched manyhands or this package, None outside a checkout.

    "+" is appended if files of the two packages differ from that commit.
    """
    packages = [str(Path(manyhands.__file__).parent), str(Path(__file__).parents[1])]
    found = _git("log", "-1", "--format=%H", "--", *packages)
    changed = found and _git("status", "--porcelain", "--", *packages)
    return f"{found}+" if changed else found or None


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _forget_peak_memory() -> None:
    """Reset the peak of resident memory, which only Linux supports."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_memory() -> float | None:
    """Peak resident memory since `_forget_peak_memory` (else since the start), in MiB."""
    with suppress(OSError, ValueError):
        # getrusage cannot be reset.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:
        return None
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return getrusage(RUSAGE_SELF).ru_maxrss * unit / (1 << 20)
