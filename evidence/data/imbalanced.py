"""Heavily imbalanced binary tasks, with real or simulated crowds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from evidence.data.sets import SimulatedCrowdDataset
from manyhands.annotations import AnnotationTable
from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.colposcopy import load_colposcopy
from manyhands.datasets.product import load_product
from manyhands.datasets.reports import load_reports
from manyhands.datasets.simulated_crowd import CrowdTruth, make_crowd
from manyhands.datasets.usps import load_usps
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

Rng = np.random.RandomState


@dataclass(frozen=True)
class _Crowd:
    """Statistics in Table 3 of a crowd to simulate.

    Attributes
    ----------
    per_annotator : float
        Mean number of annotations per annotator.
    spread : float
        Standard deviation of the annotators' accuracies.
    imbalance : float
        Imbalance R of the annotations.
    """

    n_annotators: int
    per_annotator: float
    accuracy: float
    spread: float
    imbalance: float


@dataclass(frozen=True)
class _Task:
    """A class against the rest, and the row of Table 3 that it follows.

    Attributes
    ----------
    rare
        Class that becomes 1; all others become 0.
    row : str
        Row of Table 3.
    n_train, imbalance, n_test_per_class
        Values in that row; smaller if the set has too few instances.
    thinned_to : int or None
        Number of annotations kept per instance; None: all.
    crowd : _Crowd or None
        Crowd to simulate; None: the set's own annotators.
    """

    load: Callable[[PathLike | None], CrowdDataset]
    rare: int | str
    row: str
    n_train: int
    imbalance: float
    n_test_per_class: int
    thinned_to: int | None = None
    crowd: _Crowd | None = None


TASKS = {
    "usps_5": _Task(
        load_usps,
        rare=5,
        row="Data1-label 2",
        n_train=1258,
        imbalance=5.989,
        n_test_per_class=100,
        crowd=_Crowd(15, 347.8, accuracy=0.927, spread=0.025, imbalance=6.530),
    ),
    "usps_8": _Task(
        load_usps,
        rare=8,
        row="Data1-label 4",
        n_train=1258,
        imbalance=10.541,
        n_test_per_class=100,
        crowd=_Crowd(15, 348.1, accuracy=0.925, spread=0.023, imbalance=8.003),
    ),
    "product": _Task(
        load_product,
        rare="same",
        row="Data1-label 9",
        n_train=1258,
        imbalance=7.169,
        n_test_per_class=100,
    ),
    "colposcopy": _Task(
        load_colposcopy,
        rare=0,
        row="Data1-label 12",
        n_train=1158,
        imbalance=4.732,
        n_test_per_class=150,
        thinned_to=2,
    ),
    "reports_2": _Task(
        load_reports,
        rare=2,
        row="Data2-label 3",
        n_train=500,
        imbalance=3.587,
        n_test_per_class=100,
        thinned_to=2,
    ),
    "reports_1": _Task(
        load_reports,
        rare=1,
        row="Data2-label 4",
        n_train=500,
        imbalance=5.024,
        n_test_per_class=100,
        thinned_to=2,
    ),
}

IMBALANCED_TASKS = tuple(TASKS)
"""Names of the tasks of `make_imbalanced_binary`."""


def make_imbalanced_binary(
    task: str,
    *,
    n_test_per_class: int | None = None,
    data_home: PathLike | None = None,
    random_state: Any = 0,
) -> CrowdDataset:
    """Make one of six heavily imbalanced binary tasks, modelled on Table 3 of [1]_.

    The paper's Data1 and Data2 are not available. These tasks use the most similar sets that are,
    each cut to the size and gold imbalance of one row of the table if it has enough instances.

    Parameters
    ----------
    task : one of `IMBALANCED_TASKS`
        ``"product"``, ``"colposcopy"``, ``"reports_1"``, ``"reports_2"``: real annotators.
        ``"usps_5"``, ``"usps_8"``: a **simulated** crowd on real digits.
    n_test_per_class : int, optional
        Default: 100 (``"colposcopy"``: 150), but at most half of the rare class.
    data_home : str or Path, optional
        Folder of data sets; default: the environment variable MANYHANDS_DATA, else the user's
        cache.
    random_state : int, RandomState or None
        Seed of the choice of instances and annotations, and of a simulated crowd.

    Returns
    -------
    CrowdDataset
        Class 1 is the rare one, class 0 the rest, also in the annotations. The test part is
        balanced; there is no validation part. Annotators without annotations in the training part
        are left out of the table. ``"usps_5"`` and ``"usps_8"`` give a `SimulatedCrowdDataset`.

    Raises
    ------
    AnnotationError
        If the task is unknown, or ``n_test_per_class`` exceeds half of the rare class.
    DataNotFoundError
        If the set is not found.

    Notes
    -----
    * **Test part**: the same number of instances from both classes. They are drawn first from the
      set's own test (and validation) part, which has no annotations here, then from the training
      part.
    * **Training part**: drawn from the set's own training part with the row's size and ratio of the
      rare class to the rest. If there are too few rare instances, all of them are used, and the
      rest in the row's ratio; if the rest has too few, all of it is used.
    * **Repetitions**: the reports contain some identical rows of features as separate instances
      (also across the set's own split); about 15 of 200 test instances equal a training instance.
    * **Annotations**: in ``"colposcopy"`` and the reports every annotator judged everything, so
      self-training would have no cell to fill. Therefore only 2 random annotations per instance
      are kept. ``"product"`` keeps its 3.
    * **One against the rest**: an annotation with any other class counts as "rest", so confusing
      two classes of the rest is not a mistake. ``"reports_1"`` uses class 1 of `load_reports`.
    * **Simulated crowds** have the row's numbers of annotators and annotations. Their confusions
      are solved for such that the annotations have, in expectation, the row's accuracy *and* its
      imbalance R. (Mistakes equally likely on both classes would lower R far more.) The annotators'
      error rates are normal; their variance is the row's minus that of counting.

    References
    ----------
    .. [1] Y. Shi, S.-Y. Li, S.-J. Huang. Learning from Crowds with Sparse and Imbalanced
       Annotations. Machine Learning 112, 2023, Section 4.5.

    Examples
    --------
    >>> from evidence.data import make_imbalanced_binary
    >>> data = make_imbalanced_binary("reports_2")                      # doctest: +SKIP
    >>> data.annotations                                                # doctest: +SKIP
    AnnotationTable(1000 annotations: 500 instances x 5 annotators, 2 classes)
    """
    if not isinstance(task, str) or task not in TASKS:
        raise AnnotationError(f"task={task!r} is unknown; use one of {', '.join(map(repr, TASKS))}")
    chosen = TASKS[task]
    data = chosen.load(data_home)
    X, rare = _pooled(data, chosen.rare)
    # The first rows are the set's training part, which alone has annotations.
    own = np.arange(len(rare)) < len(data.y_train)
    rng = check_random_state(random_state)
    test = _test_rows(rare, own, _test_size(chosen, int(rare.sum()), n_test_per_class), rng)
    train = _train_rows(rare, own & ~np.isin(np.arange(len(rare)), test), chosen, rng)
    y = rare.astype(np.int64)
    simulated = {}
    if chosen.crowd is None:
        table = _real_annotations(data.annotations[train], chosen, rng)
    else:
        table, simulated["truth"] = _simulated_annotations(y[train], chosen.crowd, rng)
    dataset_class = SimulatedCrowdDataset if simulated else CrowdDataset
    return dataset_class(
        X_train=X[train],
        annotations=table,
        y_train=y[train],
        X_valid=None,
        y_valid=None,
        X_test=X[test],
        y_test=y[test],
        classes=np.array([0, 1]),
        description=_description(chosen, data),
        licence=data.licence + ("; annotations are simulated" if simulated else ""),
        name=f"imbalanced_{task}",
        **simulated,
    )


def _description(task: _Task, data: CrowdDataset) -> str:
    crowd = "real" if task.crowd is None else "SIMULATED"
    return (
        f"Class {task.rare} of {data.name} (1) against the rest (0), after {task.row} of Table 3 "
        "of Y. Shi, S.-Y. Li, S.-J. Huang, Learning from Crowds with Sparse and Imbalanced "
        f"Annotations, Machine Learning 112, 2023. The annotators are {crowd}.\n\n"
        f"{data.description}"
    )


def _real_annotations(table: AnnotationTable, task: _Task, rng: Rng) -> AnnotationTable:
    """Annotations of the rare class against the rest, thinned where the task says so."""
    table = _against_rest(table, task.rare)
    if task.thinned_to is not None:
        table = _thinned(table, task.thinned_to, rng)
    return table.select(annotators=table.annotations_per_annotator() > 0)


def _simulated_annotations(
    y: IntArray, crowd: _Crowd, rng: Rng
) -> tuple[AnnotationTable, CrowdTruth]:
    """Annotations of a simulated crowd, and what is true of it."""
    return make_crowd(
        y,
        n_annotators=crowd.n_annotators,
        annotations_per_instance=crowd.per_annotator * crowd.n_annotators / len(y),
        noise=_confusions(crowd, float(y.mean()), rng),
        classes=[0, 1],
        random_state=rng,
        return_truth=True,
    )


# -- instances --------------------------------------------------------------------------------


def _pooled(data: CrowdDataset, rare: int | str) -> tuple[AnyArray, BoolArray]:
    """Features of all parts, training part first, and the mask of the rare class."""
    X: list[Any] = [data.X_train, data.X_valid, data.X_test]
    y = [data.y_train, data.y_valid, data.y_test]
    return (
        np.concatenate([part for part in X if part is not None]),
        np.concatenate([part for part in y if part is not None]) == rare,
    )


def _test_size(task: _Task, n_rare: int, wanted: int | None) -> int:
    most = n_rare // 2
    if wanted is None:
        return min(task.n_test_per_class, most)
    if not isinstance(wanted, int | np.integer) or not 1 <= wanted <= most:
        raise AnnotationError(
            f"n_test_per_class={wanted!r} must be a whole number from 1 to {most}: the rare class "
            f"has {n_rare} instances, at least half of which are for training"
        )
    return int(wanted)


def _test_rows(rare: BoolArray, own: BoolArray, size: int, rng: Rng) -> IntArray:
    """Draw the same number of rows from both classes, rows without annotations first."""
    rows = []
    for of_class in (~rare, rare):
        order = rng.permutation(np.flatnonzero(of_class))
        rows.append(order[np.argsort(own[order], kind="stable")][:size])
    return np.sort(np.concatenate(rows))


def _train_rows(rare: BoolArray, free: BoolArray, task: _Task, rng: Rng) -> IntArray:
    """Draw both classes with the task's size and ratio, as far as there are enough instances."""
    n_rare = min(round(task.n_train / (1 + task.imbalance)), int((free & rare).sum()))
    n_rest = round(n_rare * task.imbalance)
    rows = [
        rng.permutation(np.flatnonzero(free & of_class))[:size]
        for of_class, size in ((~rare, n_rest), (rare, n_rare))
    ]
    return np.sort(np.concatenate(rows))


# -- annotations ------------------------------------------------------------------------------


def _against_rest(table: AnnotationTable, rare: int | str) -> AnnotationTable:
    """Recode annotations of the rare class as 1 and all others as 0."""
    return AnnotationTable(
        table.instance,
        table.annotator,
        (table.classes == rare)[table.label].astype(np.int64),
        table.instances,
        table.annotators,
        np.array([0, 1]),
    )


def _thinned(table: AnnotationTable, per_instance: int, rng: Rng) -> AnnotationTable:
    """Keep ``per_instance`` random annotations of each instance."""
    order = rng.permutation(table.n_annotations)
    order = order[np.argsort(table.instance[order], kind="stable")]
    instance = table.instance[order]
    place = np.arange(len(order)) - np.searchsorted(instance, instance)
    return table.take(np.sort(order[place < per_instance]))


def _confusions(crowd: _Crowd, rare: float, rng: Rng) -> FloatArray:
    """Confusion matrices [annotator, true, given] with the accuracy and imbalance of the row.

    Let e be the share of mistakes, p the rare class's share of the true classes and s its share of
    the annotations. Mistakes on the rest and on the rare class then sum to e and differ by s - p.
    """
    error, share = 1 - crowd.accuracy, 1 / (1 + crowd.imbalance)
    on_rest = (error + share - rare) / 2 / (1 - rare)
    on_rare = (error - share + rare) / 2 / rare
    chance = error * crowd.accuracy / crowd.per_annotator
    spread = np.sqrt(max(crowd.spread**2 - chance, 0.0))
    scale = 1 + spread / error * rng.standard_normal(crowd.n_annotators)
    # Symmetric bounds keep probabilities in [0, 1] without changing the mean.
    scale = np.clip(scale, 0.0, 2.0)[:, None]
    mistakes = scale * np.array([on_rest, on_rare])
    confusion = np.empty((crowd.n_annotators, 2, 2))
    confusion[:, [0, 1], [1, 0]] = mistakes
    confusion[:, [0, 1], [0, 1]] = 1 - mistakes
    return confusion
