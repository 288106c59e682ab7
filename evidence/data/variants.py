"""Variants of a data set: fewer instances, thinned or balanced classes, fewer annotations.

The first functions load another row's ``data`` and change it: with gold labels as annotations (the
ceiling), several copies of every training instance, a few hundred instances, a rare class thinned,
a balanced test part, or annotations removed. The others change any data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from evidence.data.sets import Data, load_data
from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values
from manyhands.datasets.simulated_crowd import CrowdTruth
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, BoolArray, IntArray


def labelled_by_gold(of: Mapping[str, Any]) -> Data:
    """Load a data set and replace its annotators by one who gives the gold labels.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.

    Returns
    -------
    Data

    Raises
    ------
    AnnotationError
        If the true classes of the training instances are unknown.
    """
    data = load_data(of)
    if data.y_train is None:
        raise AnnotationError(
            f"of={dict(of)!r} has no true classes to train on; name data with y_train"
        )
    n = len(data.y_train)
    table = AnnotationTable.from_arrays(
        np.arange(n),
        np.zeros(n, dtype=np.int64),
        data.y_train,
        classes=data.annotations.classes,
        instances=np.arange(n),
    )
    return replace(data, annotations=table, truth=None)


def with_instances_repeated(of: Mapping[str, Any], copies: int) -> Data:
    """Load a data set and repeat its training instances, each copy with the same annotations.

    A paper that trains on several augmented images of each original one makes as many steps an
    epoch with the same batches. A row says ``data: {factory: with_instances_repeated, of: {name:
    labelme}, copies: 10}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    copies : int
        How often every training instance occurs, at least 1.

    Returns
    -------
    Data
        Copies are instances of their own, numbered from 0: all instances once in their order, then
        once more. Annotators and classes are unchanged, as are the validation and the test part.
        ``truth`` is None, as it would describe the annotations of one copy.

    Raises
    ------
    AnnotationError
        If ``copies`` is no whole number from 1 up.
    """
    if not isinstance(copies, int) or isinstance(copies, bool) or copies < 1:
        raise AnnotationError(f"copies={copies!r}; write a whole number from 1 up")
    data = load_data(of)
    rows = np.tile(np.arange(data.annotations.n_instances), copies)
    return replace(
        data,
        X_train=data.X_train[rows],
        annotations=replace(data.annotations[rows], instances=np.arange(len(rows))),
        y_train=None if data.y_train is None else as_values(data.y_train)[rows],
        truth=None,
    )


def with_fewer_instances(of: Mapping[str, Any], n_train: int, random_state: Any = 0) -> Data:
    """Load a data set, train on some of its training instances, and test on its other parts.

    A row says ``data: {factory: "evidence.data.variants:with_fewer_instances", of: {name:
    hotel}, n_train: 200, random_state: seed}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    n_train : int
        Instances to train on, drawn from those of the training part that have annotations.
    random_state : int, RandomState or None

    Returns
    -------
    Data
        The test part is the original validation and test part together, the same for every draw. It
        has no instance of the original training part, where constants may have been chosen. There
        is no validation part. ``truth`` is None, as it would describe instances that are gone.

    Raises
    ------
    AnnotationError
        If there are too few such instances, or neither a validation nor a test part.
    """
    data = load_data(of)
    annotated = np.flatnonzero(data.annotations.annotations_per_instance())
    if not 1 <= n_train <= len(annotated):
        raise AnnotationError(
            f"n_train={n_train!r} of {len(annotated)} annotated instances; write a number from 1 "
            f"to {len(annotated)}"
        )
    drawn = np.sort(check_random_state(random_state).choice(annotated, n_train, replace=False))
    parts = [
        (X, as_values(y))
        for X, y in ((data.X_valid, data.y_valid), (data.X_test, data.y_test))
        if y is not None
    ]
    if not parts:
        raise AnnotationError(
            f"of={dict(of)!r} has neither a validation nor a test part; name data with one of them"
        )
    return replace(
        data,
        X_train=data.X_train[drawn],
        annotations=data.annotations[drawn],
        y_train=None if data.y_train is None else as_values(data.y_train)[drawn],
        X_valid=None,
        y_valid=None,
        X_test=_stacked([X for X, _ in parts]),
        y_test=np.concatenate([y for _, y in parts]),
        truth=None,
    )


def _stacked(parts: list[Any]) -> Any:
    if sparse.issparse(parts[0]):
        return sparse.vstack(parts).tocsr()
    return np.concatenate(parts)


def with_rare_class_thinned(
    of: Mapping[str, Any],
    ratio: float,
    rare: Any = None,
    parts: Sequence[str] = ("train",),
    random_state: Any = 0,
) -> Data:
    """Load a data set and thin one of its classes.

    A row says ``data: {factory: "evidence.data.variants:with_rare_class_thinned", of:
    {name: sentiment}, ratio: 10, random_state: seed}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    ratio, rare, parts, random_state
        As in `evidence.data.thin_to_imbalance`.

    Returns
    -------
    Data

    Raises
    ------
    AnnotationError
        If a parameter is out of its range, or the class is already rarer.
    """
    return thin_to_imbalance(
        load_data(of), ratio, rare=rare, parts=parts, random_state=random_state
    )


def with_test_balanced(of: Mapping[str, Any], random_state: Any = 0) -> Data:
    """Load a data set and balance its test part.

    A row says ``data: {factory: "evidence.data.variants:with_test_balanced", of: {name:
    product}, random_state: seed}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    random_state
        As in `evidence.data.with_balanced_test`.

    Returns
    -------
    Data

    Raises
    ------
    AnnotationError
        If there is no test part with true classes, or a class is absent from it.
    """
    return with_balanced_test(load_data(of), random_state=random_state)


def with_annotations_removed(
    of: Mapping[str, Any], fraction: float, random_state: Any = 0, keep_one: bool = False
) -> Data:
    """Load a data set and remove a random part of its annotations.

    A row says ``data: {factory: "evidence.data.variants:with_annotations_removed", of:
    {name: labelme}, fraction: 0.2, random_state: seed}``.

    Parameters
    ----------
    of : mapping
        Field ``data`` of a row; see `load_data`.
    fraction, random_state, keep_one
        As in `evidence.data.remove_annotations`.

    Returns
    -------
    Data

    Raises
    ------
    AnnotationError
        If ``fraction`` is out of its range, or greater than ``keep_one`` allows.
    """
    return remove_annotations(load_data(of), fraction, random_state=random_state, keep_one=keep_one)


# -- classes thinned or balanced -------------------------------------------------------------------


AnyData = TypeVar("AnyData")

_PARTS = ("train", "valid", "test")


def thin_to_imbalance(
    data: AnyData,
    ratio: float,
    *,
    rare: Any = None,
    parts: Sequence[str] = ("train",),
    random_state: Any = 0,
) -> AnyData:
    """Remove instances of one class until the largest class has ``ratio`` times as many.

    Parameters
    ----------
    data : CrowdDataset, or another dataclass with its attributes
        Not modified. Its true classes (``y_train``) decide what is removed.
    ratio : float
        At least 1; ``round(n / ratio)`` instances of the rare class remain, where n is the size of
        the largest other class.
    rare : class value, optional
        Default: the smallest class of the training part (the first one on ties). To thin several
        classes, call the function once for each.
    parts : sequence of {"train", "valid", "test"}
        Parts to thin, each relative to its own largest class; parts that the data lack are skipped.
        By default the test part is unchanged.
    random_state : int, RandomState or None
        A seed fixes the order of removal: a larger ratio also removes all training instances that
        a smaller one removes.

    Returns
    -------
    data : like ``data``
        The remaining instances keep their order and all their annotations. Annotators and classes
        are unchanged, though an annotator may have no annotations left. The truth of a simulated
        data set is reduced accordingly.

    Raises
    ------
    AnnotationError
        If a parameter is out of range, there are no true classes, or the class is already rarer.

    Examples
    --------
    >>> import numpy as np
    >>> from evidence.data import thin_to_imbalance
    >>> from manyhands.datasets import load_demo
    >>> data = thin_to_imbalance(load_demo(), 10, rare=3)
    >>> np.bincount(data.y_train).tolist()
    [99, 101, 99, 10, 101, 101, 101, 99, 97, 100]
    >>> data.annotations.n_instances
    908
    """
    if not isinstance(ratio, int | float | np.number) or not 1 <= ratio < np.inf:
        raise AnnotationError(f"ratio={ratio!r} must be finite and at least 1")
    unknown = [part for part in parts if part not in _PARTS]
    if isinstance(parts, str) or unknown:
        raise AnnotationError(f"parts={parts!r} must be a list of {', '.join(map(repr, _PARTS))}")
    rng = check_random_state(random_state)
    rare = _rare_class(data, rare)
    changed: dict[str, Any] = {}
    for part in _PARTS:
        if part in parts and (part == "train" or _gold(data, part) is not None):
            changed |= _rows_of(data, part, _thinned(data, part, rare, float(ratio), rng))
    return cast(AnyData, replace(cast(Any, data), **changed))


def with_balanced_test(data: AnyData, *, random_state: Any = 0) -> AnyData:
    """Draw as many test instances from each class as the smallest class has.

    The accuracy on the result is, in expectation, the balanced accuracy (mean recall of the
    classes) on the whole test part. The latter varies less: see `manyhands.metrics`.

    Parameters
    ----------
    data : CrowdDataset, or another dataclass with its attributes
        Not modified.
    random_state : int, RandomState or None

    Returns
    -------
    data : like ``data``
        With a smaller test part, whose instances keep their order; the rest is unchanged.

    Raises
    ------
    AnnotationError
        If there is no test part with true classes, or a class is absent from it.

    Examples
    --------
    >>> import numpy as np
    >>> from evidence.data import with_balanced_test
    >>> from manyhands.datasets import load_demo
    >>> data = load_demo()
    >>> np.bincount(data.y_test).tolist()
    [50, 51, 49, 51, 50, 51, 50, 50, 48, 50]
    >>> np.bincount(with_balanced_test(data).y_test).tolist()
    [48, 48, 48, 48, 48, 48, 48, 48, 48, 48]
    """
    rng = check_random_state(random_state)
    y = _known_gold(data, "test")
    sizes = _sizes(data, y)
    size = min(sizes.values())
    if not size:
        absent = next(name for name, found in sizes.items() if not found)
        raise AnnotationError(
            f"the test part has no instance of class {absent!r} and cannot be balanced; leave "
            "the class out of the data"
        )
    rows = [rng.permutation(np.flatnonzero(y == name))[:size] for name in sizes]
    changed = _rows_of(data, "test", np.sort(np.concatenate(rows)))
    return cast(AnyData, replace(cast(Any, data), **changed))


def _thinned(data: Any, part: str, rare: Any, ratio: float, rng: np.random.RandomState) -> IntArray:
    """Rows of a part that remain."""
    y = _known_gold(data, part)
    sizes = _sizes(data, y)
    has = sizes.pop(rare)
    wanted = max(1, round(max(sizes.values()) / ratio))
    if has < wanted:
        raise AnnotationError(
            f"the {part} part has {has} instances of class {rare!r}, fewer than the {wanted} that "
            f"ratio={ratio:g} would leave; use a larger ratio"
        )
    gone = rng.permutation(np.flatnonzero(y == rare))[wanted:]
    return np.delete(np.arange(len(y)), gone)


def _rare_class(data: Any, rare: Any) -> Any:
    sizes = _sizes(data, _known_gold(data, "train"))
    if rare is None:
        return min(sizes, key=lambda name: sizes[name])
    if rare not in sizes:
        raise AnnotationError(f"rare={rare!r} is not a class of the data; use one of {list(sizes)}")
    return rare


def _sizes(data: Any, y: AnyArray) -> dict[Any, int]:
    """Number of instances per class; those without gold do not count."""
    return {name: int((y == name).sum()) for name in data.annotations.classes.tolist()}


def _gold(data: Any, part: str) -> AnyArray | None:
    return getattr(data, f"y_{part}", None)


def _known_gold(data: Any, part: str) -> AnyArray:
    y = _gold(data, part)
    if y is None:
        raise AnnotationError(
            f"the data have no true classes for the {part} part (y_{part} is None); use data "
            "that have them"
        )
    return np.asarray(y)


def _rows_of(data: Any, part: str, rows: IntArray) -> dict[str, Any]:
    """Fields of the data set for some rows of a part."""
    X = getattr(data, f"X_{part}")
    if X is not None and not hasattr(X, "shape"):
        raise AnnotationError(
            f"X_{part} is a {type(X).__name__}, whose rows cannot be selected; give an array"
        )
    changed: dict[str, Any] = {f"y_{part}": np.asarray(_gold(data, part))[rows]}
    changed[f"X_{part}"] = None if X is None else X[rows]
    if part == "train":
        table: AnnotationTable = data.annotations
        changed["annotations"] = table[rows]
        truth = getattr(data, "truth", None)
        if isinstance(truth, CrowdTruth):
            changed["truth"] = truth.take(_annotations_of(table, rows))
    return changed


def _annotations_of(table: AnnotationTable, rows: IntArray) -> IntArray:
    """Positions of the annotations of ascending rows, in the order of ``table[rows]``."""
    order = np.argsort(table.instance, kind="stable")
    return order[np.isin(table.instance[order], rows)]


# -- annotations removed ---------------------------------------------------------------------------


def remove_annotations(
    data: AnyData, fraction: float, *, random_state: Any = 0, keep_one: bool = False
) -> AnyData:
    """Remove a uniformly random subset of the annotations [1]_.

    Parameters
    ----------
    data : CrowdDataset, or another dataclass with ``annotations``
        Not modified.
    fraction : float in [0, 1)
        Share of annotations to remove, ``round(fraction * n_annotations)`` in number.
    random_state : int, RandomState or None
        A seed fixes the order of removal: a larger fraction also removes everything that a smaller
        one removes, so the points of a curve over fractions are comparable.
    keep_one : bool
        Whether to keep at least one annotation of every annotated instance. By default an instance
        may lose all its annotations; it then remains as an instance without annotations.

    Returns
    -------
    data : like ``data``
        With fewer ``annotations``. The table's vocabularies are unchanged (an annotator may have
        nothing left), as is the order of the remaining annotations. The truth of a simulated set,
        which describes each annotation, is reduced accordingly.

    Raises
    ------
    AnnotationError
        If ``fraction`` is out of range, or larger than ``keep_one`` allows.

    References
    ----------
    .. [1] Y. Shi, S.-Y. Li, S.-J. Huang. Learning from Crowds with Sparse and Imbalanced
       Annotations. Machine Learning 112, 2023, Section 4.3.

    Examples
    --------
    >>> from evidence.data import remove_annotations
    >>> from manyhands.datasets import load_demo
    >>> data = load_demo()
    >>> data.annotations.n_annotations
    3086
    >>> remove_annotations(data, 0.8).annotations
    AnnotationTable(617 annotations: 1000 instances x 30 annotators, 10 classes)
    """
    if not hasattr(data, "annotations"):
        raise AnnotationError(
            f"data is a {type(data).__name__} without annotations; pass a data set"
        )
    table = cast(Any, data).annotations
    kept = _kept(table, fraction, keep_one, check_random_state(random_state))
    changed: dict[str, Any] = {"annotations": table.take(kept)}
    truth = getattr(data, "truth", None)
    if isinstance(truth, CrowdTruth):
        changed["truth"] = truth.take(kept)
    return cast(AnyData, replace(cast(Any, data), **changed))


def _kept(
    table: AnnotationTable, fraction: Any, keep_one: bool, rng: np.random.RandomState
) -> BoolArray:
    """Mask of the annotations to keep."""
    if not isinstance(fraction, int | float | np.number) or not 0 <= fraction < 1:
        raise AnnotationError(f"fraction={fraction!r} must lie in [0, 1)")
    n = table.n_annotations
    wanted = round(float(fraction) * n)
    order: IntArray = rng.permutation(n)
    if keep_one:
        order = _without_last(order, table.instance)
        if wanted > len(order):
            raise AnnotationError(
                f"fraction={fraction} removes {wanted} of {n} annotations, but keep_one=True keeps "
                f"one for each of {n - len(order)} instances, so at most {len(order)} can be "
                f"removed; use a fraction up to {_floor(len(order) / n)}, or keep_one=False"
            )
    kept = np.ones(n, dtype=bool)
    kept[order[:wanted]] = False
    return kept


def _without_last(order: IntArray, instance: IntArray) -> IntArray:
    """Drop each instance's last annotation from an order of removal.

    Which annotation an instance keeps does not depend on the fraction, so removals are nested.
    """
    _, last = np.unique(instance[order[::-1]], return_index=True)
    kept: IntArray = np.delete(order, len(order) - 1 - last)
    return kept


def _floor(share: float) -> float:
    """Share rounded down to three digits."""
    return int(share * 1000) / 1000
