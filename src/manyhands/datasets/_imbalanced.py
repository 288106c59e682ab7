"""Heavily imbalanced binary tasks, with real or simulated crowds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from manyhands.annotations import AnnotationTable
from manyhands.datasets._base import CrowdDataset, PathLike
from manyhands.datasets._colposcopy import load_colposcopy
from manyhands.datasets._crowd import make_crowd
from manyhands.datasets._product import load_product
from manyhands.datasets._reports import load_reports
from manyhands.datasets._synthetic import SimulatedCrowdDataset
from manyhands.datasets._usps import load_usps
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray

__all__ = ["IMBALANCED_TASKS", "make_imbalanced_binary"]

Rng = np.random.RandomState


@dataclass(frozen=True)
class _Crowd:
    """A crowd to simulate: what Table 3 prints of it.

    Attributes
    ----------
    per_annotator : float
        Mean number of annotations of an annotator.
    spread : float
        Standard deviation of the annotators' accuracies.
    imbalance : float
        R, of annotations.
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
        Of Table 3.
    n_train, imbalance, n_test_per_class
        Of that row; fewer where the set has too few.
    thinned_to : int or None
        Annotations left to an instance; None: all.
    crowd : _Crowd or None
        None: the set's own annotators.
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
"""Names that `make_imbalanced_binary` knows."""


def make_imbalanced_binary(
    task: str,
    *,
    n_test_per_class: int | None = None,
    data_home: PathLike | None = None,
    random_state: Any = 0,
) -> CrowdDataset:
    """Make one of six heavily imbalanced binary tasks, in the manner of Table 3 of [1]_.

    The paper's Data1 and Data2 are not available. These are the nearest of the sets at hand, each
    cut to the size and the gold imbalance of one row of the table where it has enough.

    Parameters
    ----------
    task : one of `IMBALANCED_TASKS`
        ``"product"``, ``"colposcopy"``, ``"reports_1"``, ``"reports_2"``: real annotators.
        ``"usps_5"``, ``"usps_8"``: a **simulated** crowd on real digits.
    n_test_per_class : int, optional
        Default: 100 (``"colposcopy"``: 150), or fewer: half of the rare class at most is for
        testing.
    data_home : str or Path, optional
        Folder of data sets; default: the environment variable MANYHANDS_DATA, else the user's
        cache.
    random_state : int, RandomState or None
        Of the choice of instances and annotations, and of a simulated crowd.

    Returns
    -------
    CrowdDataset
        Class 1 is the rare one, class 0 the rest, of annotations, too. The test part is balanced;
        there is no validation part. Annotators without an annotation in the training part are not
        in the table. ``"usps_5"`` and ``"usps_8"`` give a `SimulatedCrowdDataset`.

    Raises
    ------
    AnnotationError
        If the task is unknown, or half of the rare class is less than ``n_test_per_class``.
    DataNotFoundError
        If the set is not found.

    Notes
    -----
    * **Test part**: the same number of both classes, drawn first from what the set's own test (and
      validation) part holds, which has no annotations here, then from the training part.
    * **Training part**: of the set's own, the rare class and the rest are drawn in the row's number
      and ratio; where there are too few of the rare class, all of them and the rest in the row's
      ratio; where there are too few of the rest, all.
    * **Repetitions**: the reports hold some equal rows of features, as instances of their own (in
      the set's own split, too); 15 or so of 200 test instances equal one for training.
    * **Annotations**: every annotator of ``"colposcopy"`` and of the reports judged everything, so
      that self-training would find no cell to fill; 2 random annotations of every instance are
      left. ``"product"`` keeps its 3.
    * **One against the rest**: an annotation of another class counts as "rest", so that confusing
      two classes of the rest is no mistake: ``"reports_1"`` is of the class 1 of `load_reports`.
    * **Simulated crowds** have the row's number of annotators and of annotations, with confusions
      solved such that the annotations have, in expectation, the row's accuracy *and* its imbalance
      R. (Mistakes that fall alike on both classes would lower R far more.) Annotators' error rates
      are normal, with what the row's spread leaves after the chance of counting.

    References
    ----------
    .. [1] Y. Shi, S.-Y. Li, S.-J. Huang. Learning from Crowds with Sparse and Imbalanced
       Annotations. Machine Learning 112, 2023, Section 4.5.

    Examples
    --------
    >>> from manyhands.datasets import make_imbalanced_binary
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
        table = _against_rest(data.annotations[train], chosen.rare)
        if chosen.thinned_to is not None:
            table = _thinned(table, chosen.thinned_to, rng)
        table = table.select(annotators=table.annotations_per_annotator() > 0)
    else:
        confusion = _confusions(chosen.crowd, float(y[train].mean()), rng)
        table, simulated["truth"] = make_crowd(
            y[train],
            n_annotators=chosen.crowd.n_annotators,
            annotations_per_instance=(
                chosen.crowd.per_annotator * chosen.crowd.n_annotators / len(train)
            ),
            noise=confusion,
            classes=[0, 1],
            random_state=rng,
            return_truth=True,
        )
    made = SimulatedCrowdDataset if simulated else CrowdDataset
    return made(
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


# -- instances --------------------------------------------------------------------------------


def _pooled(data: CrowdDataset, rare: int | str) -> tuple[AnyArray, BoolArray]:
    """Features of all parts, the training part first, and where the rare class is."""
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
            f"n_test_per_class={wanted!r} must be a whole number, 1 to {most}: the rare class has "
            f"{n_rare} instances, of which half at least is for training"
        )
    return int(wanted)


def _test_rows(rare: BoolArray, own: BoolArray, size: int, rng: Rng) -> IntArray:
    """Draw the same number of both classes, of rows without annotations first."""
    rows = []
    for of_class in (~rare, rare):
        order = rng.permutation(np.flatnonzero(of_class))
        rows.append(order[np.argsort(own[order], kind="stable")][:size])
    return np.sort(np.concatenate(rows))


def _train_rows(rare: BoolArray, free: BoolArray, task: _Task, rng: Rng) -> IntArray:
    """Draw both classes in the number and ratio of the task, as far as there are enough."""
    n_rare = min(round(task.n_train / (1 + task.imbalance)), int((free & rare).sum()))
    n_rest = round(n_rare * task.imbalance)
    rows = [
        rng.permutation(np.flatnonzero(free & of_class))[:size]
        for of_class, size in ((~rare, n_rest), (rare, n_rare))
    ]
    return np.sort(np.concatenate(rows))


# -- annotations ------------------------------------------------------------------------------


def _against_rest(table: AnnotationTable, rare: int | str) -> AnnotationTable:
    """Make annotations of the rare class 1, and all others 0."""
    return AnnotationTable(
        table.instance,
        table.annotator,
        (table.classes == rare)[table.label].astype(np.int64),
        table.instances,
        table.annotators,
        np.array([0, 1]),
    )


def _thinned(table: AnnotationTable, per_instance: int, rng: Rng) -> AnnotationTable:
    """Keep some random annotations of every instance."""
    order = rng.permutation(table.n_annotations)
    order = order[np.argsort(table.instance[order], kind="stable")]
    instance = table.instance[order]
    place = np.arange(len(order)) - np.searchsorted(instance, instance)
    return table.take(np.sort(order[place < per_instance]))


def _confusions(crowd: _Crowd, rare: float, rng: Rng) -> FloatArray:
    """Confusions [annotator, true, given] with the accuracy and imbalance of the row.

    With e the share of mistakes, p the rare class's share of the truth and s that of the
    annotations, mistakes on the rest minus those on the rare class are s - p, and their sum is e.
    """
    error, share = 1 - crowd.accuracy, 1 / (1 + crowd.imbalance)
    on_rest = (error + share - rare) / 2 / (1 - rare)
    on_rare = (error - share + rare) / 2 / rare
    chance = error * crowd.accuracy / crowd.per_annotator
    spread = np.sqrt(max(crowd.spread**2 - chance, 0.0))
    scale = 1 + spread / error * rng.standard_normal(crowd.n_annotators)
    # A bound on both sides keeps probabilities in [0, 1], and the mean where it is.
    scale = np.clip(scale, 0.0, 2.0)[:, None]
    mistakes = scale * np.array([on_rest, on_rare])
    confusion = np.empty((crowd.n_annotators, 2, 2))
    confusion[:, [0, 1], [1, 0]] = mistakes
    confusion[:, [0, 1], [0, 1]] = 1 - mistakes
    return confusion
