"""Out-of-fold prediction of every instance by a model that was not trained on it."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from numbers import Integral
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import joblib
import numpy as np
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import has_fit_parameter

from manyhands._version import __version__
from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode
from manyhands.exceptions import AnnotationError, ModelFolderError, warned_once
from manyhands.files import check_writable, remove_partial
from manyhands.fitting.context import Followed, Watch
from manyhands.fitting.parameters import UNCOMPARED
from manyhands.fitting.reading import check_learnable, table_of, take_rows
from manyhands.io import write_atomically
from manyhands.models import load
from manyhands.selection.splitters import read_folds
from manyhands.training.progress import ProgressBar
from manyhands.training.seeding import draw_seed, joined_if_any, set_random_states
from manyhands.typing import AnyArray, FloatArray, IntArray


class CrossPrediction(NamedTuple):
    """Out-of-fold predictions, the result of `cross_predict`.

    Functions that compare predictions with a table take it as it is, and match its rows with the
    table's instances by id: `manyhands.metrics.vote_agreement`, `estimate_accuracy`,
    `accuracy_on_new_items`, `manyhands.review_queue` and others.

    ``np.asarray`` of the result is ``proba``, which has no ids.

    Attributes
    ----------
    proba : array of shape (n_instances, n_classes)
        Class probabilities in the order of the rows of X and of ``classes`` of the table.
    folds : integer array of shape (n_instances,)
        Fold of each instance, from 0: model k was not trained on the instances of fold k.
    estimators : list of n_folds fitted estimators, or None
        The models of the folds, if ``return_estimators`` is set.
    epochs : integer array of shape (n_epochs, n_instances), or None
        The most probable classes (codes of the table's classes) after every epoch, if
        ``return_epochs`` is set and the estimator is one network trained in one stage. There are as
        many epochs as in the fold with the fewest.
    seconds : float
        Seconds of training and prediction, summed over the folds, including those of an earlier
        call.
    instances : array of shape (n_instances,)
        Ids of the rows: the table's instances, in the order of the rows of X.
    classes : array of shape (n_classes,)
        Classes of the columns of ``proba``.
    """

    proba: FloatArray
    folds: IntArray
    estimators: list[Any] | None
    epochs: IntArray | None = None
    seconds: float = 0.0
    instances: AnyArray = np.empty(0)
    classes: AnyArray = np.empty(0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        """Return ``proba``, as NumPy asks for it."""
        return self.proba.astype(self.proba.dtype if dtype is None else dtype, copy=bool(copy))

    def to_frame(self) -> Any:
        """Return the probabilities as a pandas frame, with ids as index and classes as columns."""
        import pandas as pd

        return pd.DataFrame(self.proba, index=self.instances, columns=self.classes)


def cross_predict(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    cv: Any = 5,
    groups: Any = None,
    random_state: Any = 0,
    n_jobs: int | None = None,
    folder: str | Path | None = None,
    return_estimators: bool = False,
    return_epochs: bool = False,
    verbose: int = 0,
) -> CrossPrediction:
    """Predict every instance by a model trained on the other folds of instances.

    A left-out instance is left out with its features and all its annotations. Compare the result
    with the annotations by `manyhands.metrics.vote_agreement` and similar functions: give them the
    result itself, whose rows they match with the table by id. The array ``proba`` alone has no ids,
    and is in the order of X.

    Parameters
    ----------
    estimator : classifier
        An estimator with ``fit(X, table)`` and ``predict_proba``, or a pipeline that ends in one.
        It is cloned, never fitted in place.
    X : as in ``fit``
    y : AnnotationTable (matched with X by id), or array of shape (n_samples, n_annotators)
        Instances without annotations are predicted like the others.
    cv : int >= 2, integer array of shape (n_samples,), or splitter, default=5
        Number of folds, or the fold of every instance, from 0. Folds have about the same share of
        each class by majority vote, and where possible no annotator has all annotations in one
        fold. They depend on the data, ``groups`` and ``random_state``, not on the estimator, so
        that candidates can be compared instance by instance. `InstanceKFold` stratifies by other
        labels. A splitter of scikit-learn gets the majority votes as y.
    groups : None, "equal_rows" or sequence of shape (n_samples,), default=None
        Groups of instances that stay together; those with the same id always do. See
        `instance_units`.
    random_state : int, RandomState or None, default=0
        Seeds the folds and every unset ``random_state`` within the estimator, differently in each
        fold.
    n_jobs : int or None, default=None
        Number of folds that are trained at the same time, in processes of joblib; None is 1 unless
        a ``joblib`` context sets another number, -1 is all cores.
    folder : str, Path or None, default=None
        Folder for the probabilities of each finished fold. The file's name holds a digest of
        everything that determines them: the estimator's parameters (except ``device`` and
        ``verbose``), X, y, the folds and the seed. A later call with the same inputs reads the file
        instead of training. Several calls may share a folder.
    return_estimators : bool, default=False
        Keep the models of the folds, such as for `AveragedCrowdClassifier.of_fitted`. With
        ``folder``, they are saved there and loaded again, so they need ``save``.
    return_epochs : bool, default=False
        Also predict the left-out instances after every epoch. This does not affect the training.
    verbose : int, default=0
        1 shows a progress bar of folds.

    Returns
    -------
    CrossPrediction
        With ``proba``, ``instances``, ``folds`` and more.

    Raises
    ------
    AnnotationError
        If X and y do not match or cannot be learnt from, ``cv``, ``groups`` or ``n_jobs`` is
        unusable, the estimator lacks a method or has a ``checkpoint`` (all folds would write one
        file), or ``folder`` is given without an integer ``random_state``.
    ModelFolderError
        If a file of the folder cannot be read.
    WriteError
        If the folder cannot be written.

    Examples
    --------
    >>> from manyhands import CrowdLayerClassifier, cross_predict, load_demo
    >>> from manyhands.metrics import vote_agreement
    >>> demo = load_demo()
    >>> X, table = demo.X_train[:100], demo.annotations[:100]
    >>> model = CrowdLayerClassifier(max_epochs=2, backbone="linear")
    >>> found = cross_predict(model, X, table, cv=2)
    >>> found.proba.shape
    (100, 10)
    >>> 0 < vote_agreement(found, table) < 1
    True
    """
    _check_estimator(estimator, random_state, folder, return_estimators)
    if n_jobs == 0:
        raise AnnotationError("n_jobs=0 trains nothing; give a number of processes, or -1 for all")
    table = table_of(X, y)
    check_learnable(X, table)
    with joined_if_any(estimator), warned_once():
        seed = draw_seed(random_state)
        folds = read_folds(cv, X, table, groups, seed)
        wanted = _Wanted(return_estimators, return_epochs)
        tasks = list(_tasks(estimator, X, table, folds, seed, folder, wanted))
        results = sorted(_run(tasks, n_jobs, verbose), key=lambda done: done.fold)
    proba = np.empty((table.n_instances, table.n_classes))
    for done in results:
        proba[folds == done.fold] = done.proba
    estimators = [done.model for done in results] if return_estimators else None
    seconds = sum(done.seconds for done in results)
    epochs = _all_epochs(results, folds)
    named = {"instances": np.array(table.instances), "classes": np.array(table.classes)}
    return CrossPrediction(proba, folds, estimators, epochs, seconds, **named)


def _all_epochs(results: list[_Done], folds: IntArray) -> IntArray | None:
    """Join the folds' predictions after every epoch; None if a fold has none."""
    n_epochs = min(0 if done.epochs is None else len(done.epochs) for done in results)
    if not n_epochs:
        return None
    codes = np.empty((n_epochs, len(folds)), dtype=np.int64)
    for done in results:
        if done.epochs is not None:
            codes[:, folds == done.fold] = done.epochs[:n_epochs]
    return codes


def _check_estimator(estimator: Any, random_state: Any, folder: Any, keep: bool) -> None:
    name = type(estimator).__name__
    if isinstance(estimator, type):
        raise AnnotationError(
            f"estimator={estimator.__name__} is a class; give an object, {estimator.__name__}()"
        )
    for method in ("fit", "predict_proba", *(["save"] if keep and folder is not None else [])):
        if not hasattr(estimator, method):
            raise AnnotationError(f"estimator {name} has no method {method!r}, which is needed")
    for parameter, value in estimator.get_params().items():
        if parameter.rpartition("__")[2] == "checkpoint" and value is not None:
            raise AnnotationError(
                f"estimator has {parameter}={str(value)!r}, which all folds would write; leave it "
                "out and give folder=, from which finished folds are read again"
            )
    if folder is not None:
        check_seed(random_state)


def check_seed(random_state: Any) -> None:
    """Raise an error unless the seed is an integer, so that a resumed run repeats its draws."""
    if not isinstance(random_state, Integral):
        raise AnnotationError(
            f"folder needs an integer random_state, got {random_state!r}: a resumed run must "
            "repeat the random draws of the first"
        )


# -- training of the folds ------------------------------------------------------------------------


class _Wanted(NamedTuple):
    """Results to return besides the probabilities."""

    models: bool
    epochs: bool


@dataclass(frozen=True)
class _Task:
    """The training of one fold: the estimator, the data, and the file of the result."""

    fold: int
    estimator: Any
    X: Any
    table: AnnotationTable
    folds: IntArray
    path: Path | None
    wanted: _Wanted


class _Done(NamedTuple):
    fold: int
    proba: FloatArray
    model: Any
    epochs: IntArray | None
    seconds: float


def _tasks(
    estimator: Any,
    X: Any,
    table: AnnotationTable,
    folds: IntArray,
    seed: int,
    folder: str | Path | None,
    wanted: _Wanted,
) -> Iterator[_Task]:
    key = ""
    if folder is not None:
        folder = check_writable(folder)
        key = _digest(estimator, X, table, folds, seed)
    for fold in range(int(folds.max()) + 1):
        copy = set_random_states(clone(estimator), np.random.default_rng([seed, fold]))
        path = None if folder is None else Path(folder) / f"fold{fold}-{key[:16]}.npz"
        yield _Task(fold, copy, X, table, folds, path, wanted)


def _digest(estimator: Any, X: Any, table: AnnotationTable, folds: IntArray, seed: int) -> str:
    """Return a digest of everything that determines the probabilities."""
    parameters = {
        name: type(value).__qualname__ if hasattr(value, "get_params") else value
        for name, value in estimator.get_params().items()
        if name.rpartition("__")[2] not in UNCOMPARED
    }
    columns = {
        field.name: getattr(table, field.name)
        for field in fields(table)
        if field.name not in ("instance_order", "class_order")
    }
    kind = f"{type(estimator).__module__}.{type(estimator).__qualname__}"
    try:
        return str(joblib.hash((__version__, kind, parameters, X, columns, folds, seed)))
    except Exception as error:
        raise AnnotationError(
            f"folder needs an estimator and an X that can be pickled, to recognise them again "
            f"({error}); leave folder out"
        ) from error


def _run(tasks: list[_Task], n_jobs: int | None, verbose: int) -> Iterator[_Done]:
    """Yield finished folds, first those that an earlier call has finished."""
    bar = ProgressBar(type(tasks[0].estimator).__name__) if verbose else None
    kept = [done for done in map(_read, tasks) if done is not None]
    missing = [task for task in tasks if task.fold not in {done.fold for done in kept}]
    if bar is not None:
        bar.on_stage_begin("train", len(tasks), len(kept))
    try:
        yield from kept
        parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
        for number, done in enumerate(parallel(map(delayed(_train), missing)), len(kept) + 1):
            if bar is not None:
                bar.on_epoch_end(number, {"epoch": number})
            yield done
    finally:
        if bar is not None:
            bar.on_training_end()


def _train(task: _Task) -> _Done:
    """Train on the other folds, predict this one, and write the result."""
    started = perf_counter()
    train, left = (
        np.flatnonzero(rows) for rows in (task.folds != task.fold, task.folds == task.fold)
    )
    unseen = take_rows(task.X, left)
    followed = Followed(unseen)
    options = {"watch": Watch(followed=followed)} if _can_follow(task) else {}
    model = task.estimator.fit(take_rows(task.X, train), task.table[train], **options)
    proba = _in_order(model, model.predict_proba(unseen), task.table)
    epochs = _epochs(model, followed, task.table)
    seconds = perf_counter() - started
    if task.path is not None:
        path = task.path
        if task.wanted.models:
            model.save(path.with_suffix(""))
        remove_partial(path)
        content: dict[str, Any] = {"proba": proba, "seconds": seconds}
        if task.wanted.epochs:
            content["epochs"] = np.empty((0, len(left))) if epochs is None else epochs
        write_atomically(path, lambda file: np.savez_compressed(file, **content))
    return _Done(task.fold, proba, model if task.wanted.models else None, epochs, seconds)


def _can_follow(task: _Task) -> bool:
    return task.wanted.epochs and has_fit_parameter(task.estimator, "watch")


def _epochs(model: Any, followed: Followed, table: AnnotationTable) -> IntArray | None:
    """Return the predictions after every epoch, (n_epochs, n); None if there are several stages."""
    history = getattr(model, "history_", None) or []
    stages = {row.get("stage") for row in history}
    if not followed.codes or len(followed.codes) != len(history) or len(stages) != 1:
        return None
    return _class_codes(model, table)[np.stack(followed.codes)].astype(np.int16)


def _in_order(model: Any, given: Any, table: AnnotationTable) -> FloatArray:
    """Return probabilities with a column for each class of the table; an unknown class gets 0."""
    proba = np.zeros((len(given), table.n_classes))
    proba[:, _class_codes(model, table)] = given
    return proba


def _class_codes(model: Any, table: AnnotationTable) -> IntArray:
    """Return the codes of the model's classes among the table's."""
    values = as_values(model.classes_)
    return encode(values, table.classes, argument="classes_", vocabulary_name="y's classes")[0]


def _read(task: _Task) -> _Done | None:
    """Read the result of an earlier call for this fold; None unless it is there and complete."""
    path = task.path
    if path is None or not path.exists():
        return None
    folder = path.with_suffix("")
    if task.wanted.models and not (folder / "model.json").exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as content:
            proba = content["proba"]
            epochs = content.get("epochs")
            seconds = float(content["seconds"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ModelFolderError(
            f"{str(path)!r} cannot be read ({error}); remove it to train the fold again"
        ) from error
    if task.wanted.epochs and epochs is None:
        return None
    expected = (int((task.folds == task.fold).sum()), task.table.n_classes)
    if proba.shape != expected:
        raise ModelFolderError(
            f"{str(path)!r} holds probabilities of shape {proba.shape} where {expected} was "
            "expected; remove it to train the fold again"
        )
    if epochs is not None and not (task.wanted.epochs and len(epochs)):
        epochs = None
    if not task.wanted.models:
        return _Done(task.fold, proba, None, epochs, seconds)
    own = getattr(task.estimator, "backbone", None)  # Read only if it is the user's own network.
    return _Done(task.fold, proba, load(folder, backbone=own), epochs, seconds)
