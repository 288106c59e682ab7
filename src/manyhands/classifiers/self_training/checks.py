"""Parameters and gold labels that no self-training can run with, refused before any training."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import as_values, encode, missing_mask
from manyhands.exceptions import AnnotationError
from manyhands.fitting.reading import n_rows


def check_parameters(model: Any) -> None:
    """Refuse parameters of a self-training classifier that contradict one another.

    Raises
    ------
    AnnotationError
        The message names the parameter.
    """
    if isinstance(model.n_select, bool):
        raise AnnotationError(
            f"n_select={model.n_select} is neither a number of annotations nor a multiple of "
            "those observed; give 1000 or 1.0, for instance"
        )
    _check_validation(model)
    _check_checkpoints(model)
    if model.annotator is not None:
        _check_annotator(model)


def _check_validation(model: Any) -> None:
    if model.patience is not None and model.validation is None:
        raise AnnotationError(
            f"patience={model.patience} needs something to watch; give validation= a fraction "
            "of the annotations or (X, y_gold)"
        )
    if isinstance(model.validation, tuple | list) and len(model.validation) != 2:
        raise AnnotationError(
            f"validation has {len(model.validation)} parts; give (X, y_gold), a fraction of "
            "the annotations, or None"
        )
    estimator = type(model.estimator)
    if isinstance(model.validation, Real) and not (
        model.estimator is None or hasattr(estimator, "annotation_log_likelihood")
    ):
        raise AnnotationError(
            f"validation={model.validation} holds out annotations, and {estimator.__name__} has no "
            "annotation_log_likelihood(X, y) to measure them by; give (X, y_gold) or None"
        )


def _check_checkpoints(model: Any) -> None:
    if model.checkpoint is not None and not isinstance(model.random_state, Integral):
        raise AnnotationError(
            f"checkpoint needs an integer random_state, got {model.random_state!r}: a resumed "
            "run must draw what the first one drew"
        )
    for name in ("estimator", "annotator"):
        path = getattr(getattr(model, name), "checkpoint", None)
        if path is not None:
            raise AnnotationError(
                f"{name} has checkpoint={str(path)!r}, one file for the trainings of all "
                f"rounds; give checkpoint= to {type(model).__name__} instead"
            )


def _check_annotator(model: Any) -> None:
    if not model.n_rounds:
        raise AnnotationError(
            "n_rounds=0 ends after the annotator's round, before the estimator is trained; "
            "give n_rounds=1, or no annotator"
        )
    if model.warm_start:
        raise AnnotationError(
            "warm_start=True continues from the weights of the previous round, but those of the "
            "annotator belong to another model; use warm_start=False"
        )


def check_validation_gold(validation: Any, table: AnnotationTable) -> None:
    """Refuse gold labels for validation that no round could be measured by.

    Parameters
    ----------
    validation : None, float or (X, y_gold)
        Only the last is checked.
    table : AnnotationTable
        The annotations to train on.

    Raises
    ------
    AnnotationError
        If gold labels are annotations, missing, of unknown classes, or not one per row of X.
    """
    if not isinstance(validation, tuple | list):
        return
    X, y_gold = validation
    if isinstance(y_gold, AnnotationTable):
        raise AnnotationError(
            "validation's y_gold is a table of annotations; give gold labels, or a fraction"
        )
    gold = as_values(y_gold)
    n = n_rows(X)
    if gold.shape != (n,) or missing_mask(gold).any():
        raise AnnotationError(
            f"validation has {n} rows of X but gold labels of shape {gold.shape}, "
            f"{int(missing_mask(gold).sum())} of them missing; give one label per row"
        )
    encode(gold, table.classes, argument="validation's y_gold", vocabulary_name="y's classes")
