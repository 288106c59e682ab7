"""Checks of the parameter ``members``, before anything is fitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sklearn.compose import ColumnTransformer

from manyhands.classifiers.stacking.members import as_member
from manyhands.classifiers.stacking.saved_members import refuse_unsaved
from manyhands.exceptions import AnnotationError


def check_members(members: Any) -> None:
    """Refuse members that are no tuples, share a name, or cannot learn soft targets."""
    names = []
    for entry in members:
        if not isinstance(entry, tuple | list) or len(entry) not in (2, 3):
            raise AnnotationError(
                f"members holds {entry!r}; give tuples (name, estimator) or (name, estimator, view)"
            )
        name, estimator, view = (*entry, None)[:3]
        refuse_unsaved(name, estimator)
        as_member(name, estimator)
        _refuse_class_weights(name, estimator)
        if view is not None:
            _check_view(name, view)
        for part in (estimator, view):
            _refuse_columns_by_name(name, part)
        names.append(name)
    if not names or len(set(names)) < len(names):
        raise AnnotationError(
            f"members has the names {names}; give at least one member, each with its own name"
        )


def _check_view(name: str, view: Any) -> None:
    if isinstance(view, type) or not hasattr(view, "transform"):
        raise AnnotationError(
            f"the view of member {name!r} is {view!r}, which is no transformer; give an "
            "object with fit and transform, such as StandardScaler(), or None"
        )
    if not hasattr(view, "get_params"):
        raise AnnotationError(
            f"the view of member {name!r} is a {type(view).__name__} without get_params, so it "
            "cannot be cloned; derive its class from sklearn.base.BaseEstimator"
        )


def _parameters(estimator: Any) -> dict[str, Any]:
    """All parameters within an estimator, such as those of a pipeline's steps."""
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        return {}
    return dict(estimator.get_params())


def _refuse_class_weights(name: str, estimator: Any) -> None:
    """Refuse weights by class: members are given codes, which the weights would not match."""
    for parameter, value in _parameters(estimator).items():
        if parameter.rpartition("__")[2] == "class_weight" and isinstance(value, dict | list):
            raise AnnotationError(
                f"member {name!r} has {parameter}={value!r}, but members get the codes 0 to C - 1 "
                "of the classes, not your labels; leave it out or give 'balanced', and give the "
                "stack decision='balanced' or a matrix of costs"
            )


def _refuse_columns_by_name(name: str, estimator: Any) -> None:
    """Refuse a ColumnTransformer that picks columns by name, as members get arrays."""
    for part in (estimator, *_parameters(estimator).values()):
        for columns in _choices_of_columns(part):
            texts = [columns] if isinstance(columns, str) else columns
            if callable(columns) or any(isinstance(each, str) for each in texts):
                raise AnnotationError(
                    f"member {name!r} picks the columns {columns!r} of a frame, but members get "
                    "an array; give their places (0, 1, ...), or put the ColumnTransformer in "
                    "front of the stack: make_pipeline(ColumnTransformer(...), "
                    "CrowdStackingClassifier(members))"
                )


def _choices_of_columns(part: Any) -> Iterator[Any]:
    """Columns that a ColumnTransformer picks: places, names, a slice, a mask or a function."""
    for *_, columns in part.transformers if isinstance(part, ColumnTransformer) else ():
        if isinstance(columns, slice):
            yield [columns.start, columns.stop]
        else:
            yield columns if callable(columns) or hasattr(columns, "__iter__") else [columns]
