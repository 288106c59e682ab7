"""Passes: an annotator looked but could not tell ("abstain"), or skipped the instance ("skip").

Passes are integer rows [instance code, annotator code, kind]; the kind is a position in `PASSES`.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from manyhands.annotations.class_order import close_to
from manyhands.annotations.encoding import is_text, make_vocabulary, types_in
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.typing import AnyArray, IntArray

_LOG = logging.getLogger("manyhands")

PASSES = ("abstain", "skip")
"""Kinds of passes in the order of their codes: looked but could not tell, or skipped."""


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
        if given is None:
            continue
        single = isinstance(given, str) or not isinstance(given, Iterable)
        listed = [given] if single else list(given)
        for value in make_vocabulary(listed, PASSES[kind]).tolist():
            if value in marks:
                raise AnnotationError(
                    f"{value!r} stands in abstain and in skip; name it in one of them only"
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
    """Refuse a mark of another type than the labels; warn of one that is spelt differently."""
    if not labels.size or not marks:
        return
    objects = labels.dtype.kind == "O"
    kinds = {issubclass(each, str) for each in types_in(labels)} if objects else {is_text(labels)}
    for value, kind in marks.items():
        if isinstance(value, str) not in kinds:
            names = {True: "strings", False: "numbers"}
            raise AnnotationError(
                f"{argument} holds {names[True in kinds]} (such as {labels.ravel()[0]!r}) but "
                f"{PASSES[kind]} holds {value!r}; write it with the same type as in {argument}"
            )
    warn_of_unused(marks, marks, labels, argument)


def warn_of_unused(
    marks: Mapping[Any, int],
    forms: Mapping[Any, Any],
    labels: AnyArray,
    argument: str,
) -> None:
    """Report values that mean a pass but do not occur: as a warning if a label is similar.

    Without a similar label it is only logged, because the same values may be given for many tables.

    Parameters
    ----------
    marks : dict {value: kind}
    forms : dict
        Each form in which a value may occur among the labels, with that value; or ``marks``.
    labels : array
    argument : str
        Where the labels come from.
    """
    if not labels.size or not marks:
        return
    texts = labels.ravel().tolist() if labels.dtype.kind == "O" else np.unique(labels).tolist()
    found = {value for value in texts if isinstance(value, Hashable) and value is not None}
    used = {forms[value] if forms is not marks else value for value in found if value in forms}
    for value, kind in marks.items():
        if value in used:
            continue
        known = sorted(found, key=str)
        near = close_to(value, known)
        said = f"no label of {argument} is {value!r}, which {PASSES[kind]} names"
        if near:
            warn_caller(f"{said}; did you mean {', '.join(map(repr, near[:3]))}?")
        else:
            _LOG.info("%s; the labels are %s", said, _shown(known))


def _shown(values: list[Any]) -> str:
    return ", ".join(map(repr, values[:5])) + (" ..." if len(values) > 5 else "")


def pass_kinds(labels: AnyArray, marks: Mapping[Any, int]) -> IntArray:
    """Return the code in `PASSES` of each label that means a pass; -1 for other labels."""
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
