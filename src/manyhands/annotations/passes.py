"""Passes: an annotator looked and declined to choose ("abstain"), or passed on ("skip").

Passes are integer rows [instance code, annotator code, kind]; the kind is a position in `PASSES`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

import numpy as np

from manyhands.annotations.encoding import is_text, make_vocabulary
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, IntArray

PASSES = ("abstain", "skip")
"""Kinds of passes in the order of their codes: looked and declined to choose, or passed on."""


def read_marks(abstain: Any, skip: Any, classes: AnyArray | None = None) -> dict[Any, int]:
    """Read the label values that mean a pass, each with the code of its kind in `PASSES`.

    Parameters
    ----------
    abstain, skip : str, int, sequence of these, or None
    classes : array, optional
        All classes, if known.

    Raises
    ------
    AnnotationError
        If a value is repeated or missing, or is a class.
    """
    marks: dict[Any, int] = {}
    for kind, given in enumerate((abstain, skip)):
        single = isinstance(given, str) or not isinstance(given, Iterable)
        listed = [] if given is None else [given] if single else list(given)
        for value in make_vocabulary(listed, PASSES[kind]).tolist():
            if value in marks:
                raise AnnotationError(
                    f"{value!r} stands in abstain and in skip; name it in one of them"
                )
            marks[value] = kind
    check_no_class(marks, () if classes is None else classes.tolist())
    return marks


def check_no_class(marks: Mapping[Any, int], classes: Container[Any]) -> None:
    """Refuse marks that are classes."""
    for value, kind in marks.items():
        if value in classes:
            raise AnnotationError(
                f"{PASSES[kind]} holds {value!r}, which is also among classes; leave it out of one"
            )


def check_marks(marks: Mapping[Any, int], labels: AnyArray, argument: str) -> None:
    """Refuse a mark whose type no label has, because it would never match."""
    if not labels.size:
        return
    objects = labels.dtype.kind == "O"
    kinds = {isinstance(v, str) for v in labels.ravel()} if objects else {is_text(labels)}
    for value, kind in marks.items():
        if isinstance(value, str) not in kinds:
            names = {True: "strings", False: "numbers"}
            raise AnnotationError(
                f"{argument} holds {names[True in kinds]} (such as {labels.ravel()[0]!r}) but "
                f"{PASSES[kind]} holds {value!r}; write it as {argument} has it"
            )


def pass_kinds(labels: AnyArray, marks: Mapping[Any, int]) -> IntArray:
    """Code in `PASSES` of each label that means a pass; -1 for other labels."""
    kinds = np.full(labels.shape, -1, dtype=np.int8)
    for value, kind in marks.items():
        kinds[labels == value] = kind
    return kinds


def recode_passes(
    passes: IntArray,
    *,
    instance: IntArray | None = None,
    annotator: IntArray | None = None,
) -> IntArray:
    """Give passes new codes ``instance[old]`` and ``annotator[old]``; drop those with a code of -1.

    Parameters
    ----------
    passes : integer array of shape (k, 3)
        Instance code, annotator code, kind.
    instance, annotator : integer arrays, optional
        New code of each old one; default: unchanged.

    Returns
    -------
    integer array of shape (at most k, 3)
    """
    new = np.array(passes)
    for column, codes in enumerate((instance, annotator)):
        if codes is not None:
            new[:, column] = codes[new[:, column]]
    return new[(new >= 0).all(axis=1)]
