"""All formats and tools, and how the format of a document is recognised by its content."""

from __future__ import annotations

import json
from typing import NamedTuple

from manyhands.annotations.wide import (
    OTHER_VALUES,
    UnclearColumnsError,
    another_layout,
    distinct,
    find_roles,
    guess_long,
    guess_own,
    header_of_data,
    own_work,
    task_columns,
)
from manyhands.exceptions import AnnotationError
from manyhands.io.columns import find_name
from manyhands.io.exports import (
    appen,
    argilla,
    brat,
    counts,
    cvat,
    doccano,
    get_another_label,
    goemotions,
    ground_truth,
    inception,
    label_lists,
    label_studio,
    labelbox,
    lewidi,
    lists,
    long,
    mace,
    mturk,
    peerannot,
    potato,
    prodigy,
    snow,
    superannotate,
    toloka,
    wide,
    zooniverse,
)
from manyhands.io.exports.contract import ANY, JSON, TABLE, Format
from manyhands.io.exports.parsing import Document, columns_as_text
from manyhands.io.exports.records import Asked

FORMATS = (
    label_studio.FORMAT,
    label_studio.MINIMAL_FORMAT,
    prodigy.FORMAT,
    labelbox.FORMAT,
    argilla.FORMAT,
    ground_truth.FORMAT,
    ground_truth.MANIFEST_FORMAT,
    superannotate.FORMAT,
    cvat.FORMAT,
    brat.FORMAT,
    inception.FORMAT,
    lewidi.FORMAT,
    peerannot.FORMAT,
    potato.FORMAT,
    doccano.FORMAT,
    doccano.OLD_FORMAT,
    lists.FORMAT,
    mturk.FORMAT,
    appen.FORMAT,
    appen.AGGREGATED_FORMAT,
    toloka.FORMAT,
    zooniverse.FORMAT,
    goemotions.FORMAT,
    snow.FORMAT,
    label_studio.TABLE_FORMAT,
    long.FORMAT,
    get_another_label.FORMAT,
    counts.FORMAT,
    label_lists.FORMAT,
    mace.FORMAT,
    wide.FORMAT,
)
"""All formats, in the order in which they are tried: the first that matches is taken."""

WRITERS = {
    writer.name: writer
    for writer in (label_studio.WRITER, prodigy.WRITER, argilla.WRITER, doccano.WRITER)
}
"""Tools that labels can be written for, by name."""

BY_NAME = {form.name: form for form in FORMATS}


class Recognised(NamedTuple):
    """A recognised format, other formats that match, and the documents with and without it."""

    form: Format
    alternatives: tuple[Format, ...]
    documents: list[Document]
    others: list[Document]


def named(name: str) -> Format:
    """Return the format of a name.

    Raises
    ------
    AnnotationError
        If it is unknown.
    """
    if name not in BY_NAME:
        raise AnnotationError(f"format={name!r} is unknown; use 'auto' or {', '.join(BY_NAME)}")
    return BY_NAME[name]


def matching(document: Document) -> list[Format]:
    """List the formats that a document may have, the most probable first."""
    kind = TABLE if document.kind == "table" else JSON if document.kind != "other" else None
    if kind is None:
        return []
    found = [form for form in FORMATS if form.kind in (kind, ANY) and form.matches(document)]
    if kind == JSON and long.is_long(document):
        found.append(long.FORMAT)
    if kind == JSON and not found and wide.is_wide(document):
        found.append(wide.FORMAT)
    return found


def recognise(
    documents: list[Document], name: str = "auto", asked: Asked | None = None
) -> Recognised:
    """Find the common format of documents, some of which may hold no annotations.

    Columns that the user names make a table a wide or a long one.

    Raises
    ------
    AnnotationError
        If no format is recognised, the documents have several formats, or the format is unclear.
    """
    asked = asked or Asked()
    name = _as_named(documents, name, asked)
    if name != "auto":
        form = named(name)
        fitting = [d for d in documents if d.kind != "other"]
        if len(fitting) > 1:  # Other files in the folder of an export are left out.
            fitting = [d for d in fitting if form in matching(d)] or fitting
        others = [d for d in documents if not any(d is f for f in fitting)]
        if not fitting:
            raise _unknown(documents, asked)
        return Recognised(form, (), fitting, others)
    found = [(document, matching(document)) for document in documents]
    known = [(document, forms) for document, forms in found if forms]
    sure = [(d, forms) for d, forms in known if forms[0].is_sure(d)] or known
    if not sure:
        raise _unknown(documents, asked)
    firsts = {forms[0].name: document for document, forms in sure}
    if len(firsts) > 1:
        shown = "; ".join(f"{document.name} is {name}" for name, document in firsts.items())
        raise AnnotationError(
            f"the files have several formats: {shown}. Read them one by one, or choose one with "
            f"format={next(iter(firsts))!r}"
        )
    form, *alternatives = sure[0][1]
    if not form.is_sure(sure[0][0]):
        raise _unsure(sure[0][0], form)
    kept = [document for document, _ in sure]
    others = [document for document in documents if not any(document is k for k in kept)]
    return Recognised(form, tuple(alternatives), kept, others)


def _as_named(documents: list[Document], name: str, asked: Asked) -> str:
    """Return the format to which the named columns belong; ``name`` if none were named."""
    if asked.annotators is not None or is_paired(asked.worker, asked.label):
        if name not in ("auto", "wide"):
            raise AnnotationError(
                f"annotators= names columns of a table with one column per annotator, but "
                f"format={name!r} has no such columns; leave one of the two out"
            )
        return "wide"
    if name == "auto" and asked.annotator_from is not None:
        tables = [d for d in documents if d.kind in ("table", "records")]
        if tables and not any(form.is_sure(d) for d in tables for form in matching(d)):
            return "long"  # The work of one annotator, whom no column names.
    if name == "auto" and not any(map(matching, documents)):
        headers = (document.header or list(document.first) for document in documents)
        if any(_are_named(header, asked) for header in headers):
            return "long"
    return name


def _are_named(header: list[str], asked: Asked) -> bool:
    """Return whether the columns that were named make a table a long one."""
    if {asked.worker, asked.label} <= set(header):
        return True
    if asked.task is None or not set(task_columns(asked.task, header)) <= set(header):
        return False
    return find_name(header, "worker", asked.worker or "worker") in header


def is_paired(worker: str | None, label: str | None) -> bool:
    """Return whether columns are named by paired patterns, ``TurkId*`` and ``Score*``."""
    return "*" in (worker or "") and "*" in (label or "")


def _unsure(document: Document, form: Format) -> AnnotationError:
    """Return the error that asks whether a table is what it looks like."""
    or_else = form.or_else and f", {form.or_else}"
    problem = f"{document.name}: this looks like {form.title}, but could be something else"
    mend = (
        f"pass format={form.name!r} if it is{or_else}, or name the columns (task=, worker=, "
        "label=) of a table with one row per annotation"
    )
    try:
        columns = columns_as_text(document, wide.HEAD)
    except AnnotationError:
        return AnnotationError(f"{problem}; {mend}")
    if form.name != "wide":
        return UnclearColumnsError(problem, columns, {"format": form.name}, mend)
    if other := another_layout(columns):
        return AnnotationError(f"{document.name}: {other}")
    roles = find_roles(columns)
    named = roles.named
    odd = [name for name, reason in roles.others.items() if reason == OTHER_VALUES]
    if odd:
        values = ", ".join(map(repr, distinct(columns[odd[0]])[:3]))
        problem += (
            f", and {odd[0]!r} would be left out, because {OTHER_VALUES} ({values}); if these "
            "values mean the same, write them in the same way, or list them in mapping="
        )
    return UnclearColumnsError(problem, columns, {"format": form.name} | named, mend)


def _unknown(documents: list[Document], asked: Asked) -> AnnotationError:
    first = next((d for d in documents if d.kind != "other"), documents[0])
    names = first.header or list(first.first)
    problem = f"{first.name}: no format is recognised"
    try:
        columns = columns_as_text(first, wide.HEAD)
    except AnnotationError:
        columns = {}
    if other := header_of_data(columns) or another_layout(columns):
        return AnnotationError(f"{first.name}: {other}")
    if guess := guess_long(columns):
        looks = f"{problem} by the names of the columns, but each row looks like one annotation"
        return UnclearColumnsError(looks, columns, guess, "")
    if (len(columns) == 2 or len(documents) > 1) and (own := guess_own(columns)):
        source = "sheet" if first.sheet else "file"
        options = own | {"annotator_from": source} if len(documents) > 1 else {}
        return UnclearColumnsError(problem, columns, options, own_work(source))
    try:
        if len(columns) > 2:
            find_roles(columns, task=asked.task and task_columns(asked.task, names))
    except UnclearColumnsError as error:
        return UnclearColumnsError(
            f"{problem}, and it is unclear which columns are annotators ({error.problem})",
            columns,
            error.options,
        )
    except AnnotationError:
        pass
    holds = f"; it holds {json.dumps(names[:8], ensure_ascii=False)[:200]}" if names else ""
    return AnnotationError(
        f"{problem}{holds}. Pass format=NAME (one of {', '.join(BY_NAME)}), or name the columns of "
        "a table with task=, worker= and label="
    )
