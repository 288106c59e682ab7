"""Everything manyhands raises or warns about on purpose."""

from typing import NoReturn

__all__ = [
    "AnnotationError",
    "DataNotFoundError",
    "DivergenceError",
    "MissingExtraError",
    "ModelFolderError",
    "NotIdentifiableWarning",
    "WriteError",
    "raise_missing_extra",
]


class AnnotationError(ValueError):
    """Annotations (or what belongs to them) are not usable as given.

    The message names the argument, the offending value and the mend.
    """


class ModelFolderError(ValueError):
    """A model folder or checkpoint is missing, truncated, foreign or of another version."""


class WriteError(OSError):
    """A file could not be written; whatever stood there before is untouched."""


class DataNotFoundError(FileNotFoundError):
    """A data set is neither in the data home nor to be fetched; the message says how to get it."""


class DivergenceError(ArithmeticError):
    """Training ran into a loss that is not finite; the message says what to change."""


class MissingExtraError(ImportError):
    """A feature needs an optional dependency; the message says which extra to install."""


class NotIdentifiableWarning(UserWarning):
    """The annotations cannot determine what was asked for (one annotator, no overlap, ...)."""


def raise_missing_extra(feature: str, extra: str, error: ImportError | None = None) -> NoReturn:
    """Raise `MissingExtraError` saying which extra brings ``feature``."""
    raise MissingExtraError(
        f"{feature} needs the optional dependencies of the extra '{extra}': "
        f"pip install 'manyhands[{extra}]'"
    ) from error
