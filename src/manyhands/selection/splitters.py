"""Folds of instances: for `cross_predict` and `select`, and as a splitter for scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import BaseCrossValidator

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode
from manyhands.exceptions import AnnotationError
from manyhands.fitting.folds import deal_instances, instance_units
from manyhands.fitting.reading import check_rows, table_of
from manyhands.metrics.scorers import LabelsById
from manyhands.training.seeding import draw_seed
from manyhands.typing import MISSING, IntArray

__all__ = ["InstanceKFold", "read_folds"]


class InstanceKFold(BaseCrossValidator):
    """Split instances into folds with about the same share of each class, if y is annotations.

    Use it in `cross_validate`, `GridSearchCV`, `cross_predict` and `select` instead of
    scikit-learn's ``StratifiedKFold``, which needs one label per row. Instances with the same id
    (or group) stay together, and where possible no annotator has all annotations in one fold.

    Parameters
    ----------
    n_splits : int, default=5
    labels : None, aggregator, dict of id to label, pandas Series indexed by id, or array
        The labels to stratify by, gold or inferred. None: the majority votes. An aggregator such as
        ``DawidSkene()`` infers them from the annotations that are split. An array has one label per
        row; in a nested search, where parts of the data are split, give labels by id. Instances
        without a label are spread evenly, too.
    random_state : int, RandomState or None, default=0

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import load_demo
    >>> demo = load_demo()
    >>> table, gold = demo.annotations[:200], demo.y_train[:200]
    >>> for train, test in InstanceKFold(2, labels=gold).split(demo.X_train[:200], table):
    ...     print(np.bincount(gold[test]))
    [ 8 10 10  5 14 14 10  8  8 13]
    [ 8  9 10  6 14 13 11  7  9 13]
    """

    def __init__(self, n_splits: int = 5, *, labels: Any = None, random_state: Any = 0) -> None:
        self.n_splits = n_splits
        self.labels = labels
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds; the arguments are ignored."""
        return self.n_splits

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the training rows and the test rows of each fold.

        Parameters
        ----------
        X : as in ``fit``
        y : AnnotationTable (matched with X by id), array of shape (n_samples, n_annotators), or
            (n_samples,): a crowd of one
        groups : None, "equal_rows" or sequence of shape (n_samples,), default=None
            Groups of instances that stay together; those with the same id always do. See
            `instance_units`.

        Raises
        ------
        AnnotationError
            If there are fewer annotated units of instances than folds, or labels do not match.
        """
        table = table_of(X, y)
        check_rows(X, table)
        folds = self.folds_of(X, table, groups)
        for fold in range(self.n_splits):
            yield np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)

    def folds_of(self, X: Any, table: AnnotationTable, groups: Any = None) -> IntArray:
        """Return the fold of every instance, from 0, shape (n_instances,)."""
        if not isinstance(self.n_splits, Integral) or self.n_splits < 2:
            raise AnnotationError(
                f"n_splits={self.n_splits!r} must be a whole number of at least 2"
            )
        units = instance_units(X, table, groups)
        rng = np.random.default_rng(draw_seed(self.random_state))
        return deal_instances(table, int(self.n_splits), units, rng, self._codes(table))

    def _codes(self, table: AnnotationTable) -> IntArray | None:
        """Return the labels of the instances as codes, -1 for none; None for majority votes."""
        labels = self.labels
        if labels is None:
            return None
        if hasattr(labels, "fit_predict"):
            labels = clone(labels).fit_predict(table)
        rows, values = LabelsById.read(labels, table, "labels").of(table.instances)
        if not len(rows):
            raise AnnotationError(f"labels names none of these {len(table):,} instances")
        codes = np.full(len(table), MISSING)
        codes[rows], _ = encode(values, None, argument="labels", vocabulary_name="labels")
        return codes


def read_folds(cv: Any, X: Any, table: AnnotationTable, groups: Any, seed: int) -> IntArray:
    """Assign instances to folds, or check the given folds; see `cross_predict`."""
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        if cv < 2:
            raise AnnotationError(f"cv={cv} leaves nothing to train on; use 2 folds or more")
        units = instance_units(X, table, groups)
        return deal_instances(table, int(cv), units, np.random.default_rng(seed))
    if isinstance(cv, InstanceKFold):
        return cv.folds_of(X, table, groups)
    if hasattr(cv, "get_n_splits"):
        together = None if groups is None else instance_units(X, table, groups)
        most_voted = table.observed.vote_counts().argmax(axis=1)
        splits = cv.split(np.zeros((len(table), 1)), most_voted, together)
        try:
            return _folds_of_splits(splits, len(table))
        except ValueError as error:
            if together is None and "groups" in str(error):
                raise AnnotationError(
                    f"cv={cv!r} splits groups; give groups=, one per instance"
                ) from error
            raise
    if groups is not None:
        raise AnnotationError("cv already holds the folds; leave groups out, or give their number")
    if _holds_splits(cv):
        return _folds_of_splits(cv, len(table))
    return _checked_folds(cv, table)


def _holds_splits(cv: Any) -> bool:
    """Return whether cv is an iterable of pairs (train, test), as scikit-learn takes it."""
    if isinstance(cv, Iterator):
        return True
    first = cv[0] if isinstance(cv, list | tuple) and cv else None
    return isinstance(first, tuple | list) and len(first) == 2 and np.ndim(first[1]) == 1


def _folds_of_splits(splits: Iterable[Any], n: int) -> IntArray:
    """Return the fold of every instance, from pairs (train, test) of a splitter."""
    folds = np.full(n, MISSING)
    for fold, (train, test) in enumerate(splits):
        train, test = (np.asarray(rows) for rows in (train, test))
        train, test = (
            np.flatnonzero(rows) if rows.dtype.kind == "b" else rows for rows in (train, test)
        )
        again = test[folds[test] != MISSING]
        if len(again) or len(np.union1d(train, test)) < n or len(np.intersect1d(train, test)):
            raise AnnotationError(
                f"fold {fold} of cv leaves out {len(test)} instances, {len(again)} of them for the "
                f"second time, and trains on {len(train)} of {n}; every instance must be left out "
                "once, and trained on in all other folds"
            )
        folds[test] = fold
    if (folds == MISSING).any():
        raise AnnotationError(
            f"cv never leaves out instance {int(np.argmin(folds))}; every instance must be left "
            "out once"
        )
    return folds


def _checked_folds(cv: Any, table: AnnotationTable) -> IntArray:
    folds = as_values(cv)
    if folds.ndim != 1 or folds.dtype.kind not in "iu":
        raise AnnotationError(
            f"cv is a {type(cv).__name__}; give a number of folds, an integer array with the "
            "fold of every instance, or a splitter such as InstanceKFold"
        )
    if len(folds) != table.n_instances:
        raise AnnotationError(f"cv has {len(folds)} entries for {table.n_instances} instances")
    found = np.unique(folds)
    if len(found) < 2 or not np.array_equal(found, np.arange(len(found))):
        raise AnnotationError(
            f"cv holds the folds {found[:10].tolist()}; number them 0, 1, ... without gaps, two or "
            "more"
        )
    return folds.astype(np.int64)
