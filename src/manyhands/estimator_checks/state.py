"""Checks of an estimator's state: saved models, checkpoints, failed fits, attributes."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from manyhands.annotations import AnnotationTable
from manyhands.estimator_checks.problem import (
    expect_error,
    expect_same_fit,
    make_crowd_problem,
    quick_clone,
    quick_fit,
)
from manyhands.fitting import BaseCrowdClassifier
from manyhands.fitting.crowd_classifier import CrowdClassifier
from manyhands.fitting.fitted import fitted_attributes
from manyhands.fitting.traits import UNSAVED
from manyhands.models import load
from manyhands.training import Callback
from manyhands.typing import FloatArray


def check_protocol(estimator: BaseCrowdClassifier) -> None:
    """Check that a fitted classifier is a `CrowdClassifier` with true traits."""
    X, A, _ = make_crowd_problem()
    fitted = quick_fit(estimator, X, A)
    assert isinstance(fitted, CrowdClassifier)
    assert hasattr(fitted, "partial_fit") == (fitted._traits.continue_refusal is None)


def check_pickle(estimator: BaseCrowdClassifier) -> None:
    """Check that a fitted estimator survives pickling."""
    X, A, _ = make_crowd_problem()
    fitted = quick_fit(estimator, X, A)
    expect_same_fit(fitted, pickle.loads(pickle.dumps(fitted)), X)


def check_save_and_load(estimator: BaseCrowdClassifier) -> None:
    """Check that a saved model makes the same predictions after loading.

    It has all fitted attributes but those that the traits declare as ``unsaved``.
    """
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2], annotators=list("vwxyz"))
    fitted = quick_clone(estimator).fit(X, table)
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(folder)
        loaded = load(folder, device="cpu")
    expect_same_fit(fitted, loaded, X)
    assert type(loaded) is type(fitted)
    spared = {*UNSAVED, *fitted._traits.unsaved}
    lost = sorted(fitted_attributes(fitted).keys() - fitted_attributes(loaded).keys() - spared)
    assert not lost, f"{lost} are lost on saving; list them as `saved` (or `unsaved`) in `_traits`"
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    assert loaded.annotators_.tolist() == list("vwxyz")
    assert loaded.history_ == fitted.history_
    if hasattr(fitted, "predict_annotation_proba"):
        np.testing.assert_array_equal(
            fitted.predict_annotation_proba(X, ["y"]), loaded.predict_annotation_proba(X, ["y"])
        )
    if hasattr(fitted, "confusion_"):
        np.testing.assert_array_equal(fitted.confusion_, loaded.confusion_)


class _Stop(Callback):
    """Record the stage of every epoch, and interrupt the fit after one, before its checkpoint.

    Parameters
    ----------
    at : int or None
        Number of the epoch, from 1; None interrupts nothing.
    """

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.stages: list[Any] = []

    def on_epoch_end(self, epoch: int, row: dict[str, Any]) -> None:
        self.stages.append(row["stage"])
        if len(self.stages) == self.at:
            raise KeyboardInterrupt


def check_resume_from_checkpoint(estimator: BaseCrowdClassifier) -> None:
    """Check that an interrupted fit resumes from its checkpoint, with the same final result.

    It is interrupted in the last epoch of every stage. All that this epoch needs must be in the
    checkpoint. Classifiers without ``checkpoint`` or ``callbacks`` are not checked.
    """
    if not {"checkpoint", "callbacks"} <= estimator.get_params(deep=False).keys():
        return
    X, A, _ = make_crowd_problem()
    counting = _Stop()
    whole = quick_clone(estimator, callbacks=[counting]).fit(X, A)
    stages = counting.stages
    assert stages, "callbacks are called for no epoch, so nothing can be interrupted"
    ends = [k for k in range(2, len(stages) + 1) if stages[k - 1 : k + 1] != stages[k - 1 : k] * 2]
    for at in ends:  # Nothing is written before the end of the first epoch.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "run.safetensors")
            try:
                quick_clone(estimator, checkpoint=path, callbacks=[_Stop(at)]).fit(X, A)
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError("a callback's KeyboardInterrupt did not end the fit")
            rest = _Stop()
            resumed = quick_clone(estimator, checkpoint=path, callbacks=[rest]).fit(X, A)
        assert rest.stages == stages[at - 1 :], f"after epoch {at - 1}: {rest.stages} were trained"
        expect_same_fit(whole, resumed, X)
        for ours, theirs in zip(resumed.history_, whole.history_, strict=True):
            assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}, "the history differs"


def check_partial_fit_saved(estimator: BaseCrowdClassifier) -> None:
    """Check that a saved model goes on if it is given everything again; so does a fitted one."""
    if not hasattr(estimator, "partial_fit"):
        return
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2], annotators=list("vwxyz"))
    fitted = quick_clone(estimator).fit(X[:24], table[:24])
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(folder)
        loaded: Any = load(folder, device="cpu")
    for model in (fitted, loaded):
        model.partial_fit(X, table)
        assert model.annotators_.tolist() == list("vwxyz")
        assert np.isfinite(model.predict_proba(X)).all()


def check_failed_partial_fit_changes_nothing(estimator: BaseCrowdClassifier) -> None:
    """Check that other features, a new class or repeated pairs leave the model unchanged."""
    if not hasattr(estimator, "partial_fit"):
        return
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2])
    model = quick_clone(estimator).partial_fit(X[:24], table[:24])
    before = dict(vars(model))
    new_class = AnnotationTable.from_matrix(A[24:] + (A[24:] >= 0), instances=range(24, 48))
    expect_error("features", model.partial_fit, X[24:, :3], table[24:])
    expect_error("classes are fixed", model.partial_fit, X[24:], new_class)
    expect_error("repeated", model.partial_fit, X[20:], table[20:])
    assert set(before) == set(vars(model))
    assert all(before[name] is value for name, value in vars(model).items())


class _Interrupting(torch.utils.data.TensorDataset):
    """A Dataset that simulates Ctrl-C after some items."""

    def __init__(self, X: FloatArray, n_items: int) -> None:
        super().__init__(torch.from_numpy(X.astype(np.float32)))
        self.n_items = n_items

    def __getitem__(self, index: int) -> Any:
        self.n_items -= 1
        if self.n_items < 0:
            raise KeyboardInterrupt
        return tuple(tensor[index] for tensor in self.tensors)


def check_failed_fit_changes_nothing(estimator: BaseCrowdClassifier) -> None:
    """Check that a fit that fails or is interrupted leaves all attributes unchanged."""
    X, A, _ = make_crowd_problem()
    broken = X.copy()
    broken[3, 1] = np.nan
    failures: list[tuple[Any, type[BaseException]]] = [
        (X[:-1], ValueError),
        (broken, ValueError),
        *((_Interrupting(X, n_items), KeyboardInterrupt) for n_items in (1, 40, 90)),
    ]
    for tried in (quick_clone(estimator), quick_fit(estimator, X, A)):
        before = dict(vars(tried))
        for bad_X, kind in failures:
            try:
                tried.fit(bad_X, A[:, :4])
            except kind:
                after = vars(tried)
                assert set(before) == set(after), f"a failed fit: {set(before) ^ set(after)}"
                changed = [name for name in before if before[name] is not after[name]]
                assert not changed, f"a failed fit changed {changed}"
            else:
                raise AssertionError(f"a fit did not raise {kind.__name__}")


def check_fit_leaves_public_attributes_only(estimator: BaseCrowdClassifier) -> None:
    """Check that a fit leaves only parameters and public attributes that end with "_"."""
    X, A, _ = make_crowd_problem()
    for validation in (None, 0.2):
        fitted = quick_fit(estimator, X, A, validation=validation)
        others = set(vars(fitted)) - set(fitted.get_params(deep=False))
        wrong = sorted(name for name in others if name.startswith("_") or name[-1] != "_")
        assert not wrong, f"fit left {wrong}"
