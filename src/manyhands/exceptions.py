"""Exceptions and warnings that manyhands raises on purpose, and the rollback of a failed fit."""

import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = [
    "AnnotationError",
    "ChosenGoldWarning",
    "ClassCollapseWarning",
    "DataNotFoundError",
    "DivergenceError",
    "MissingExtraError",
    "ModelChoiceWarning",
    "ModelFolderError",
    "NoGoldError",
    "NotIdentifiableWarning",
    "SharedMistakesWarning",
    "WriteError",
    "all_or_nothing",
    "raise_missing_extra",
    "silenced",
    "warn_caller",
]


class AnnotationError(ValueError):
    """Annotations, or data that belong to them, cannot be used as given.

    The message names the argument, the offending value and the fix.
    """


class ModelFolderError(ValueError):
    """A model folder or checkpoint is missing, truncated, foreign or from another version."""


class WriteError(OSError):
    """A file could not be written; an existing file at that path is untouched."""


class DataNotFoundError(FileNotFoundError):
    """A data set is not in the data home and cannot be fetched; the message says how to get it."""


class DivergenceError(ArithmeticError):
    """The training loss is no longer finite; the message says what to change."""


class MissingExtraError(ImportError):
    """A feature needs an optional dependency; the message says which extra to install."""


class NoGoldError(BaseException):
    """A measure of scikit-learn that needs gold labels was given an `AnnotationTable`.

    It does not derive from `Exception`, because scikit-learn's searches turn every `Exception` of a
    scorer into a score of NaN, and then choose among NaN.
    """


class NotIdentifiableWarning(UserWarning):
    """The annotations do not identify the result (one annotator, no overlap, ...)."""


class SharedMistakesWarning(UserWarning):
    """Annotators agree beyond what their skills explain, so their mistakes are not independent."""


class ChosenGoldWarning(UserWarning):
    """Gold labels were chosen by their doubt, so they do not measure the share of right labels."""


class ModelChoiceWarning(UserWarning):
    """There is a reason to doubt a choice among models that was made without gold labels."""


class ClassCollapseWarning(UserWarning):
    """A fitted classifier predicts a class that has annotations for no training instance."""


_FORMER_NAMES = {"LostClassWarning": "ClassCollapseWarning"}
"""Names before version 0.1.0, and the present ones."""


if not TYPE_CHECKING:  # Checkers of types would accept any name of this module.

    def __getattr__(name: str) -> Any:
        """Return an exception by its former name, with a warning that names the present one."""
        if name not in _FORMER_NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        present = _FORMER_NAMES[name]
        warn_caller(
            f"{__name__}.{name} is now called {present}, and the former name will be removed; "
            f"write {__name__}.{present}",
            FutureWarning,
        )
        return globals()[present]


def raise_missing_extra(feature: str, extra: str, error: ImportError | None = None) -> NoReturn:
    """Raise a `MissingExtraError` that names the extra that ``feature`` needs."""
    raise MissingExtraError(
        f"{feature} needs the optional dependencies of the extra '{extra}': "
        f"pip install 'manyhands[{extra}]'"
    ) from error


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the user's line: the innermost caller outside manyhands."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "manyhands":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def silenced(*logs: str) -> Iterator[None]:
    """Suppress all warnings, and the logs with the given names, inside the block."""
    loggers = [logging.getLogger(log) for log in logs]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


@contextmanager
def warned_once() -> Iterator[None]:
    """Give a warning that several folds give, with other figures, once, also if a fold fails."""
    first: dict[tuple[type[Warning], str], warnings.WarningMessage] = {}
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for each in caught:
            first.setdefault((each.category, re.sub(r"[\d.]+", "", str(each.message))), each)
        for each in first.values():
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Restore an estimator exactly as it was if the block fails or is interrupted.

    Attributes that the block replaces are restored. Objects changed in place are not, so a fit
    must replace what it sets.
    """
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        estimator.__dict__ = before
        raise
