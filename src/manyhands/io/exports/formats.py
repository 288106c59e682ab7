"""One table of formats: how each is recognised by content, and which function reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
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
from manyhands.io.exports import folders, json_tools, label_studio, layouts, platforms, votes
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered

JSON, TABLE, ANY = "JSON", "table", "any"


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes
    ----------
    name, title : str
        For arguments, and for people.
    kind : {"JSON", "table", "any"}
    matches : function of a document
        Whether the content is of this format; its docstring is the rule in words.
    read : function
    sure : bool
        If False, the content may mean something else, and the format must be named.
    certain : function of a document, optional
        Whether this document is sure to be of the format, though others that match are not.
    or_else : str
        What else to pass if the content means something else.
    """

    name: str
    title: str
    kind: str
    matches: Callable[[Document], bool]
    read: Callable[[Document, Gathered, Asked], None]
    sure: bool = True
    certain: Callable[[Document], bool] | None = None
    or_else: str = ""

    def is_sure(self, document: Document) -> bool:
        """Whether the content of a document that matches means nothing else."""
        return self.sure or (self.certain is not None and self.certain(document))

    @property
    def rule(self) -> str:
        """How it is recognised, in words."""
        return " ".join((self.matches.__doc__ or "").split()).rstrip(".")


FORMATS = (
    Format(
        "label-studio",
        "Label Studio, JSON",
        JSON,
        label_studio.is_full,
        label_studio.read_full,
    ),
    Format(
        "label-studio-min",
        "Label Studio, JSON-MIN",
        JSON,
        label_studio.is_minimal,
        label_studio.read_minimal,
    ),
    Format("prodigy", "Prodigy, db-out", JSON, json_tools.is_prodigy, json_tools.read_prodigy),
    Format("labelbox", "Labelbox, NDJSON", JSON, json_tools.is_labelbox, json_tools.read_labelbox),
    Format("argilla", "Argilla 2", JSON, json_tools.is_argilla, json_tools.read_argilla),
    Format(
        "ground-truth",
        "SageMaker Ground Truth, worker responses",
        JSON,
        folders.is_ground_truth,
        folders.read_ground_truth,
    ),
    Format(
        "ground-truth-manifest",
        "SageMaker Ground Truth, output manifest",
        JSON,
        folders.is_manifest,
        folders.read_manifest,
    ),
    Format(
        "superannotate",
        "SuperAnnotate",
        JSON,
        folders.is_superannotate,
        folders.read_superannotate,
    ),
    Format("cvat", "CVAT, XML 1.1 or REST", JSON, folders.is_cvat, folders.read_cvat),
    Format("brat", "brat, standoff", JSON, folders.is_brat, folders.read_brat),
    Format("inception", "INCEpTION, UIMA CAS", JSON, folders.is_inception, folders.read_inception),
    Format("lewidi", "LeWiDi", JSON, layouts.is_lewidi, layouts.read_lewidi),
    Format("peerannot", "peerannot", JSON, layouts.is_peerannot, layouts.read_peerannot),
    Format("potato", "Potato, user_state.json", JSON, layouts.is_potato, layouts.read_potato),
    Format("doccano", "doccano since 1.4", JSON, json_tools.is_doccano, json_tools.read_doccano),
    Format(
        "doccano-old",
        "doccano before 1.4",
        JSON,
        json_tools.is_old_doccano,
        json_tools.read_old_doccano,
    ),
    Format("lists", "lists of annotators and labels", JSON, layouts.is_lists, layouts.read_lists),
    Format("mturk", "MTurk, batch results", TABLE, platforms.is_mturk, platforms.read_mturk),
    Format("appen", "Appen, full report", TABLE, platforms.is_appen, platforms.read_appen),
    Format(
        "appen-aggregated",
        "Appen, aggregated report",
        TABLE,
        platforms.is_aggregated_appen,
        platforms.read_aggregated_appen,
    ),
    Format("toloka", "Toloka", TABLE, platforms.is_toloka, platforms.read_toloka),
    Format(
        "zooniverse",
        "Zooniverse, classifications",
        TABLE,
        platforms.is_zooniverse,
        platforms.read_zooniverse,
    ),
    Format(
        "goemotions",
        "GoEmotions, raw",
        TABLE,
        platforms.is_goemotions,
        platforms.read_goemotions,
    ),
    Format("snow", "Snow et al. 2008", TABLE, platforms.is_snow, platforms.read_snow),
    Format(
        "label-studio-csv",
        "Label Studio, CSV or TSV",
        TABLE,
        label_studio.is_table,
        label_studio.read_minimal,
    ),
    Format("long", "one row per annotation", TABLE, layouts.is_long, layouts.read_long),
    Format(
        "get-another-label",
        "Get-Another-Label, without a header",
        TABLE,
        layouts.is_triples,
        layouts.read_triples,
    ),
    Format(
        "counts",
        "numbers of votes per class, without annotators",
        ANY,
        votes.is_counts,
        votes.read_counts,
        sure=False,
        certain=votes.certainly_counts,
        or_else="or format='wide' if every column is an annotator",
    ),
    Format(
        "label-lists",
        "labels of each task, without annotators",
        ANY,
        votes.is_label_lists,
        votes.read_label_lists,
        sure=False,
        certain=votes.certainly_label_lists,
        or_else="or format='wide' if every column is an annotator",
    ),
    Format("mace", "MACE, without a header", TABLE, layouts.is_mace, layouts.read_mace),
    Format(
        "wide",
        "one row per task and one column per annotator",
        TABLE,
        layouts.is_wide,
        layouts.read_wide,
        sure=False,
    ),
)
"""The first that matches wins."""

SIMPLE = frozenset(
    {
        *("long", "lists", "wide", "mace", "get-another-label", "peerannot"),
        *("counts", "label-lists"),
    }
)
"""Layouts without times, in which a repeated pair is probably a mistake."""

BY_NAME = {form.name: form for form in FORMATS}


class Recognised(NamedTuple):
    """A format, the others that match, too, and the documents that hold it or do not."""

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
    if kind == JSON and layouts.is_long(document):
        found.append(BY_NAME["long"])
    if kind == JSON and not found and layouts.is_wide(document):
        found.append(BY_NAME["wide"])
    return found


def recognise(
    documents: list[Document], name: str = "auto", asked: Asked | None = None
) -> Recognised:
    """Find the one format of all documents, among which some may hold no annotations.

    Columns that are named make a table a wide or a long one.

    Raises
    ------
    AnnotationError
        If none is known, the documents have several formats, or the content may mean two things.
    """
    asked = asked or Asked()
    name = _as_named(documents, name, asked)
    if name != "auto":
        form = named(name)
        fitting = [d for d in documents if d.kind != "other"]
        if len(fitting) > 1:  # In a folder, what lies beside the export is left out.
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
            f"these are several formats: {shown}. Read them one by one, or say which with "
            f"format={next(iter(firsts))!r}"
        )
    form, *alternatives = sure[0][1]
    if not form.is_sure(sure[0][0]):
        raise _unsure(sure[0][0], form)
    kept = [document for document, _ in sure]
    others = [document for document in documents if not any(document is k for k in kept)]
    return Recognised(form, tuple(alternatives), kept, others)


def _as_named(documents: list[Document], name: str, asked: Asked) -> str:
    """Format that the columns which were named belong to; ``name`` if none were."""
    if asked.annotators is not None or is_paired(asked.worker, asked.label):
        if name not in ("auto", "wide"):
            raise AnnotationError(
                f"annotators= names columns of a table with one column per annotator, and "
                f"format={name!r} has none; leave one of them out"
            )
        return "wide"
    if name == "auto" and asked.annotator_from is not None:
        tables = [d for d in documents if d.kind == "table"]
        if tables and not any(form.is_sure(d) for d in tables for form in matching(d)):
            return "long"  # Of one annotator, whom no column names.
    if name == "auto" and not any(map(matching, documents)):
        headers = (document.header or list(document.first) for document in documents)
        if any(_are_named(header, asked) for header in headers):
            return "long"
    return name


def _are_named(header: list[str], asked: Asked) -> bool:
    """Whether the columns that were named make a table a long one, with what its names say."""
    if {asked.worker, asked.label} <= set(header):
        return True
    if asked.task is None or not set(task_columns(asked.task, header)) <= set(header):
        return False
    return find_name(header, "worker", asked.worker or "worker") in header


def is_paired(worker: str | None, label: str | None) -> bool:
    """Whether columns are named by patterns of a paired layout, ``TurkId*`` and ``Score*``."""
    return "*" in (worker or "") and "*" in (label or "")


def _unsure(document: Document, form: Format) -> AnnotationError:
    """Ask whether a table is what it looks like, and show what it would be read as."""
    or_else = form.or_else and f", {form.or_else}"
    problem = f"{document.name}: this looks like {form.title}, but could be something else"
    mend = (
        f"pass format={form.name!r} if it is{or_else}, or name the columns (task=, worker=, "
        "label=) of a table with one row per annotation"
    )
    try:
        columns = layouts.wide_columns(document, layouts.HEAD)
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
            f", and {odd[0]!r} would be left out, because {OTHER_VALUES} ({values}); if they mean "
            "the same, write them in the same way, or list them in mapping="
        )
    return UnclearColumnsError(problem, columns, {"format": form.name} | named, mend)


def _unknown(documents: list[Document], asked: Asked) -> AnnotationError:
    first = next((d for d in documents if d.kind != "other"), documents[0])
    names = first.header or list(first.first)
    problem = f"{first.name}: no format is recognised"
    try:
        columns = layouts.wide_columns(first, layouts.HEAD)
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
            f"{problem}, and it cannot be told which columns are annotators ({error.problem})",
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
