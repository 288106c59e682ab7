"""Data sets with a thinned rare class or a balanced test part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.utils import check_random_state

from manyhands.annotations import AnnotationTable
from manyhands.datasets.simulated_crowd import CrowdTruth
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, IntArray

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
