"""Making an annotation table of what a format's reader found; the same for all formats."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import PASSES, AnnotationTable
from manyhands.annotations.class_order import in_class_order, order_of
from manyhands.annotations.encoding import encode, make_vocabulary
from manyhands.annotations.ids import in_natural_order, sorted_order
from manyhands.annotations.label_sets import NO_YES, Multilabel, check_choice, check_option
from manyhands.annotations.passes import warn_of_unused
from manyhands.annotations.scales import (
    Coded,
    Scale,
    check_scale,
    read_classes,
    read_scale,
    scale_of_found,
)
from manyhands.annotations.suspicious import warn_of_alike
from manyhands.annotations.wide import task_columns
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.io.annotator_names import AnnotatorNames
from manyhands.io.columns import canonical, preview, with_missing
from manyhands.io.exports import long
from manyhands.io.exports.contract import Format
from manyhands.io.exports.documents import open_documents
from manyhands.io.exports.formats import Recognised, named, recognise
from manyhands.io.exports.label_studio import read_config
from manyhands.io.exports.parsing import Document, with_same_columns
from manyhands.io.exports.policy import (
    NoAnswers,
    Repeats,
    accepted,
    anonymised,
    choose_question,
    cut_answers,
    of_option,
    once,
    own_ids,
    short,
    single,
    yes_no,
)
from manyhands.io.exports.records import (
    UNREADABLE,
    AnnotatorFrom,
    Answer,
    Asked,
    Export,
    Gathered,
    Gold,
    Items,
    LeftOut,
    Origin,
    VoteCounts,
)
from manyhands.io.files import PathLike
from manyhands.io.gold import GoldFile
from manyhands.io.label_values import Spellings, check_codes, written_marks
from manyhands.typing import AnyArray, FloatArray, IntArray

_LOG = logging.getLogger("manyhands")

MODELS = "models"
"""Family of the models whose predictions are read as annotations."""


@dataclass(frozen=True)
class Choices:
    """The options of `read_export` that apply after reading, whatever the format.

    A `piece` of a file may hold passes without answers, because other pieces hold the answers.
    """

    task: str | Sequence[str] | None = None
    classes: Any = None
    abstain: Any = None
    skip: Any = None
    duplicates: Repeats = "auto"
    multilabel: Multilabel = "error"
    option: str | None = None
    empty: bool = False
    drop_rejected: bool = False
    annotator_from: AnnotatorFrom | None = None
    anonymise: bool = False
    label_config: PathLike | None = None
    scale: Scale | None = None
    mapping: Any = None
    lowercase: bool = False
    annotator_mapping: Any = None
    piece: bool = False


def read_documents(
    paths: PathLike | Sequence[PathLike], form: str, asked: Asked, choices: Choices
) -> Export:
    """Open, recognise, read and tabulate; see `manyhands.io.read_export`."""
    check_choice(choices.multilabel, choices.option)
    listed: list[PathLike] = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not listed:
        raise AnnotationError("no paths are given; name a file or a folder")
    if form != "auto":
        named(form)
    documents = [d for path in listed for d in open_documents(path, stated=asked.stated)]
    name = str(listed[0]) if len(listed) == 1 else f"{len(listed)} files"
    return read_opened(documents, name, form, asked, choices)


def read_opened(
    documents: list[Document], name: str, form: str, asked: Asked, choices: Choices
) -> Export:
    """Recognise, read and tabulate documents, which errors call ``name``."""
    found = recognise(documents, form, asked)
    gathered = _gather(found, asked, choices, several=len(documents) > 1)
    if choices.label_config is not None:
        gathered.classes |= read_config(choices.label_config)
    try:
        return _export(gathered, found, asked, choices)
    except NoAnswers as error:
        raise error.of(name) from error
    except AnnotationError as error:
        raise AnnotationError(f"{name}: {error}") from error


def items_of_table(path: PathLike, asked: Asked, instances: AnyArray) -> Export:
    """Read the items' own data from a long table, whose annotations are read already."""
    found = Recognised(long.FORMAT, (), open_documents(path, stated=asked.stated), [])
    gathered = _gather(found, asked, Choices(), several=False)
    for note in gathered.notes:
        _LOG.info("%s: %s", path, note)
    return Export(
        None,
        _gold_file(gathered, [], instances),
        _items(gathered.items, instances),
        (),
        tuple(gathered.notes),
        _times([], "seconds"),
        _times([], "ended"),
        found.form.name,
        gathered.answers[0].question or "label",
    )


def _gather(found: Recognised, asked: Asked, choices: Choices, *, several: bool) -> Gathered:
    gathered = Gathered(keep_first=found.form.keeps_first, keep_empty=choices.empty)
    owners: dict[tuple[str, Any], str] = {}
    if choices.annotator_from is not None and found.form is long.FORMAT:
        tables = [d for d in found.documents if d.kind == "table"]
        names = [name for d in tables for name in d.header]
        tasks = [] if asked.task is None else task_columns(asked.task, names)
        labels = filter(None, [asked.question, asked.label])
        with_same_columns(tables, [*asked.fields, *tasks, *labels])
    for document in found.documents:
        start, gold = len(gathered.answers), len(gathered.gold)
        lost = {reason: len(where) for reason, where in gathered.lost.items()}
        try:
            found.form.read(document, gathered, asked)
        except KeyError as error:
            raise AnnotationError(
                f"{document.name}: {found.form.title} needs {error}, which is missing; choose "
                "another format="
            ) from error
        for at, reason in document.broken:
            gathered.lose(f"{UNREADABLE}: {reason}", at)
        for note in document.notes:
            gathered.note(f"{document.path}: {note}" if several else note)
        made = gathered.answers[start:]
        if choices.annotator_from is not None:
            _name_annotator(document, made, choices.annotator_from, owners)
        elif any(answer.worker in (None, "") for answer in made):
            made = _without_unnamed(gathered, start, found.form, document)
        if several:
            name = f"{document.path}, sheet {document.sheet!r}" if document.sheet else document.path
            for answer in made:
                answer.at = f"{name}, {answer.at}"
            for known in gathered.gold[gold:]:
                known.at = f"{name}, {known.at}"
            for reason, where in gathered.lost.items():
                after = lost.get(reason, 0)
                where[after:] = [f"{name}, {at}" for at in where[after:]]
    for document in found.others:
        gathered.lose("the file holds no annotations of this format", document.name)
    return gathered


def _name_annotator(
    document: Document, made: list[Answer], source: str, owners: dict[tuple[str, Any], str]
) -> None:
    """Name the annotator after a file, its folder or archive, or a sheet.

    Two files of the same name that answer the same task are refused, as two annotators' work.
    """
    if source == "sheet" and not document.sheet:
        raise AnnotationError(
            f"annotator_from='sheet': {document.name} is not a workbook with sheets; "
            "annotator_from='file' takes the names of files"
        )
    worker = {"file": document.stem, "folder": document.folder, "sheet": document.sheet}[source]
    for answer in made:
        if answer.is_predicted:
            continue  # A model's prediction, which names the model.
        answer.worker = worker
        first = owners.setdefault((worker, answer.task), document.name)
        if source == "file" and first != document.name:
            raise AnnotationError(
                f"annotator_from='file': {first} and {document.name} have the same name, and both "
                f"answer task {answer.task!r}; annotator_from='folder' takes the names of their "
                "folders or archives"
            )


def _without_unnamed(
    gathered: Gathered, start: int, form: Format, document: Document
) -> list[Answer]:
    """Drop answers without an annotator; refuse a document that names no annotators at all."""
    made = gathered.answers[start:]
    named = [answer for answer in made if answer.worker not in (None, "")]
    if not named:
        reason = form.unnamed or (
            "the records do not name annotators. If every file holds one annotator's work, pass "
            "annotator_from='file'; if every folder or archive does, annotator_from='folder'"
        )
        raise AnnotationError(f"{document.name}: {reason}")
    for answer in made:
        if answer.worker in (None, ""):
            gathered.lose("the record names no annotator", answer.at)
    gathered.answers[start:] = named
    return named


def _export(gathered: Gathered, found: Recognised, asked: Asked, choices: Choices) -> Export:
    if gathered.counts is not None:
        return _of_counts(gathered, gathered.counts, found, choices)
    try:
        question = choose_question(gathered, asked.question)
    except NoAnswers:
        if not choices.piece or all(a.question is not None for a in gathered.answers):
            raise
        question = ""
    answers = [a for a in gathered.answers if a.question in (question, None)]
    gold = [g for g in gathered.gold if g.question in (question, None)]
    choices = _with_meanings(gathered, question, answers, gold, choices)
    if not found.form.reads_tasks:
        own_ids(gathered, answers, gold, choices.task)
    _name_people(answers, choices)
    answers = accepted(gathered, answers, drop=choices.drop_rejected)
    repeats = choices.duplicates
    if repeats == "auto":
        repeats = "error" if found.form.is_layout else "last"
    known = gathered.classes.get(question)
    answers = cut_answers(
        gathered,
        answers,
        choices.multilabel,
        known or () if choices.classes is None else choices.classes,
        whole=not choices.piece,
        rows=repeats == "error",
    )
    if choices.multilabel in ("join", "split"):
        _read_meanings(answers, choices)
    _mark_passes(answers, choices)
    answers = once(gathered, answers, repeats)
    names = anonymised(gathered, answers) if choices.anonymise else {}
    if choices.multilabel == "split":
        tables, table, order = _split(gathered, answers, choices)
        instances = next(iter(tables.values())).instances if tables else np.array([], dtype=str)
        gold = of_option(gold, choices.option)
    else:
        tables = {}
        answers = single(gathered, answers, choices.multilabel)
        table, order = _table(gathered, answers, choices, known)
        instances = table.instances
    return Export(
        table,
        _gold_file(gathered, gold, instances),
        _items(gathered.items, instances),
        tuple(LeftOut(reason, tuple(where)) for reason, where in gathered.lost.items()),
        tuple(gathered.notes),
        _times(order, "seconds"),
        _times(order, "ended"),
        found.form.name,
        question,
        tuple(form.name for form in found.alternatives),
        names,
        tables,
        Origin(gathered.controls.get(question, {}), choices.multilabel == "join", gathered.sets),
        _reading(gathered, found.form, question),
        gathered.unlabelled[question] + gathered.unlabelled[None],
    )


def _with_meanings(
    gathered: Gathered,
    question: str,
    answers: list[Answer],
    gold: list[Gold],
    choices: Choices,
) -> Choices:
    """Replace labels, known classes and marks by the spelling that they mean."""
    spellings = Spellings.of(choices.mapping, choices.lowercase)
    if spellings is None:
        return choices
    if choices.multilabel not in ("join", "split"):  # Labels of sets are read after splitting.
        _read_meanings(answers, choices)
    for known in gold:
        known.labels = tuple(dict.fromkeys(spellings.read(known.labels)))
    configured = spellings.read_classes(gathered.classes.get(question))
    if configured is not None:
        gathered.classes[question] = configured
    return replace(
        choices,
        classes=spellings.read_classes(choices.classes),
        abstain=spellings.read_marks(choices.abstain),
        skip=spellings.read_marks(choices.skip),
    )


def _name_people(answers: list[Answer], choices: Choices) -> None:
    """Replace names of annotators by the one that they mean."""
    people = AnnotatorNames.of(choices.annotator_mapping)
    if people is None:
        return
    for answer, name in zip(answers, people.read(a.worker for a in answers), strict=True):
        answer.worker = name
    if not choices.piece:
        people.report()


def _read_meanings(answers: list[Answer], choices: Choices) -> None:
    """Replace the labels of answers by the spelling that they mean."""
    spellings = Spellings.of(choices.mapping, choices.lowercase)
    if spellings is None:
        return
    for answer in answers:
        answer.labels = tuple(dict.fromkeys(spellings.read(answer.labels)))
    if not choices.piece:
        spellings.report()


def _of_counts(
    gathered: Gathered, votes: VoteCounts, found: Recognised, choices: Choices
) -> Export:
    """Make votes of unknown annotators from counts per class."""
    if choices.annotator_mapping is not None:
        raise AnnotationError(
            "annotator_mapping= is for names of annotators, but counts of votes have none; leave "
            "it out"
        )
    if choices.multilabel in ("join", "split"):
        raise AnnotationError(
            f"multilabel={choices.multilabel!r} does not apply to counts of votes, which hold one "
            "label per vote; leave it out"
        )
    names, passes = votes.classes, {"abstain": choices.abstain, "skip": choices.skip}
    scale = read_scale(choices.scale)
    known, spellings = choices.classes, Spellings.of(choices.mapping, choices.lowercase)
    if spellings is not None:
        names, known = spellings.read(names), spellings.read_classes(known)
        passes = {kind: spellings.read_marks(marks) for kind, marks in passes.items()}
        spellings.report()
    if known is None:
        codes, classes = encode(
            canonical(np.array(names, dtype=str)), None, argument="counts", vocabulary_name="names"
        )
        _, classes, order = in_class_order(codes, classes)
    else:
        classes = make_vocabulary(known, "classes")
    given = np.array(names, dtype=str) if classes.dtype.kind == "U" else canonical(np.array(names))
    codes, _ = encode(given, classes, argument="the counts", vocabulary_name="classes")
    counts = np.zeros((len(votes.tasks), len(classes)), dtype=np.int64)
    np.add.at(counts.T, codes, votes.counts.T)  # Spellings of one class are added.
    if known is None:
        scale = scale_of_found(classes, order, scale, counts.sum(axis=0))
    instances = canonical(np.array([str(task) for task in votes.tasks], dtype=str))
    table = AnnotationTable.from_counts(counts, classes, instances=instances, scale=scale, **passes)
    if known is None:
        order = order_of(table.classes)
        check_scale(table.classes, order, table.scale)
        table = replace(table, class_order=order)
    unknown = np.full(table.n_annotations, np.nan)
    return Export(
        table,
        _gold_file(gathered, [], table.instances),
        _items(gathered.items, table.instances),
        tuple(LeftOut(reason, tuple(where)) for reason, where in gathered.lost.items()),
        tuple(gathered.notes),
        unknown,
        unknown,
        found.form.name,
        "label",
        tuple(form.name for form in found.alternatives),
        reading=_reading(gathered, found.form, "label"),
    )


def _reading(gathered: Gathered, form: Format, question: str) -> dict[str, Any]:
    """Return options that read the same again: the format, and what was found in it."""
    found = {name: value for name, value in gathered.found.items() if value is not None}
    asks = {} if form.is_layout else {"question": question}
    return {"format": form.name} | asks | found


# -- the table ------------------------------------------------------------------------------------


def _split(
    gathered: Gathered, answers: list[Answer], choices: Choices
) -> tuple[dict[str, AnnotationTable], AnnotationTable | None, list[Answer]]:
    """Make a table of "no" and "yes" for every label, or for the requested option only."""
    tables, table, order = {}, None, answers
    labels = sorted({str(v) for a in answers for v in a.labels})
    if choices.classes is not None:
        named = [str(value) for value in choices.classes]
        strange = next((name for name in labels if name not in named), None)
        if strange is not None:
            raise AnnotationError(
                f"answers tick {strange!r}, which is not among the named options "
                f"({preview(named)}); correct it, or also name it in classes="
            )
        labels = named
    if choices.option is not None:
        known = labels if not choices.piece else [str(choices.option)]
        labels = [check_option(choices.option, known)]
    options = replace(choices, classes=list(NO_YES), multilabel="none")
    for label in labels:
        tables[label], order = _table(gathered, yes_no(answers, label), options, None)
        table = None if choices.option is None else tables[label]
    return tables, table, order


def _mark_passes(answers: list[Answer], choices: Choices) -> None:
    """Turn answers whose label means a pass into passes."""
    marks = written_marks(choices.abstain, choices.skip, choices.classes)
    if marks and not choices.piece:
        texts = np.array([str(v) for a in answers for v in a.labels], dtype=str)
        warn_of_unused(marks, marks, texts, "the question")
    for answer in answers:
        if len(answer.labels) == 1 and str(answer.labels[0]) in marks:
            answer.passed, answer.labels = PASSES[marks[str(answer.labels[0])]], ()


def _table(
    gathered: Gathered, answers: list[Answer], choices: Choices, known: list[Any] | None
) -> tuple[AnnotationTable, list[Answer]]:
    """Return the table, and the answers that are its annotations, in its order."""
    given = [a for a in answers if not a.passed]
    passed = [a for a in answers if a.passed]
    for kind in PASSES:
        n = sum(a.passed == kind for a in passed)
        if n:
            gathered.note(
                f"{n:,} {'answer was' if n == 1 else 'answers were'} read as "
                f"{'a pass' if n == 1 else 'passes'} ({kind})"
            )
    ordered = given + passed
    rows, instances = _ids([a.task for a in ordered])
    columns, annotators = _ids([a.worker for a in ordered])
    if not choices.piece:
        warn_of_alike(annotators, columns, "the question", "annotators")
    n = len(given)
    codes, classes, order, scale = _classes(
        gathered, [a.labels[0] for a in given], choices, known, rows[:n]
    )
    kinds = np.array([PASSES.index(str(a.passed)) for a in passed], dtype=np.int64)
    table = AnnotationTable(
        rows[:n],
        columns[:n],
        codes,
        instances,
        annotators,
        classes,
        passes=np.column_stack([rows[n:], columns[n:], kinds]) if passed else None,
        instance_order=sorted_order(instances),
        scale="nominal" if choices.piece else scale,  # The scale is found from all pieces later.
        class_order=order,
        annotators_known=not gathered.unnamed,
    )
    codes_of_models = columns[[row for row, a in enumerate(ordered) if a.is_predicted]]
    if len(codes_of_models):
        models = annotators[np.unique(codes_of_models)].tolist()
        table = table.with_groups(dict.fromkeys(models, MODELS))
        gathered.note(
            f"{len(models)} models were declared as one family, {MODELS!r}, because models tend to "
            "share mistakes; with_groups() changes it"
        )
    return table, given


def _ids(values: Iterable[Any]) -> tuple[IntArray, AnyArray]:
    texts = canonical(np.array([str(v) for v in values], dtype=str))
    return in_natural_order(*encode(texts, None, argument="ids", vocabulary_name="ids"))


def _classes(
    gathered: Gathered,
    labels: list[Any],
    choices: Choices,
    known: list[Any] | None,
    instance: IntArray,
) -> Coded:
    """Return the codes of labels and the classes: as given, as configured, or as sorted."""
    scale = read_scale(choices.scale)
    if choices.piece and scale is not None:
        scale = "nominal"  # The scale is found from all pieces later.
    values = canonical(np.array([str(v) for v in labels], dtype=str), floats=True)
    if choices.classes is not None:
        names = make_vocabulary(choices.classes, "classes")
        if names.dtype.kind in "UT" and values.dtype.kind == "i":
            if not np.isin(values.astype(str), names).all():
                check_codes(values, names)
                check_scale(names, "given", scale or "nominal")
                return Coded(values, names, "given", scale or "nominal")
            values = values.astype(str)
        return read_classes(values, names, argument="the labels", scale=scale)
    if known:
        order = canonical(np.array([str(v) for v in known], dtype=str), floats=True)
        if order.dtype.kind == values.dtype.kind or not len(values):
            unseen = order[~np.isin(order, values)]
            extra = np.unique(values[~np.isin(values, order)])
            if len(unseen) and len(values):
                warn_caller(
                    f"{len(unseen)} of {len(order)} classes of the configuration do not occur: "
                    f"{preview(unseen)}"
                )
            if len(extra):
                gathered.note(f"labels outside the configuration became classes: {preview(extra)}")
            names = np.concatenate([order, extra.astype(order.dtype)]) if len(extra) else order
            if order_of(names) == "known":
                counts = np.array([np.count_nonzero(values == name) for name in names])
                scale = scale_of_found(names, "known", scale, counts)
            return read_classes(values, names, argument="the labels", scale=scale)
    judged = len(values) and not choices.piece
    return read_classes(
        values,
        None,
        argument="the table",
        scale=scale,
        instance=instance if judged else None,
        asks=True,
        sets=choices.multilabel == "error",
    )


def _times(answers: list[Answer], name: str) -> FloatArray:
    found = [getattr(a, name) for a in answers]
    return np.array([np.nan if v is None else v for v in found], dtype=np.float64)


def _gold_file(gathered: Gathered, gold: list[Gold], instances: AnyArray) -> GoldFile:
    """Return gold labels by task; where a task has several different ones, it has none."""
    found: dict[str, set[Any]] = {}
    for entry in gold:
        found.setdefault(str(entry.task), set()).add(entry.labels)
    first = {str(entry.task): entry.at for entry in reversed(gold)}
    for task, answers in list(found.items()):
        if len(answers) > 1 or len(next(iter(answers))) != 1:
            gathered.lose("the gold of the task has several labels", first[task])
            del found[task]
    tasks = _as_kind(list(found), instances)
    labels = [str(next(iter(answers))[0]) for answers in found.values()]
    typed = canonical(np.array(labels, dtype=str), floats=True)
    at = tuple(first[task] for task in found)
    return GoldFile(tasks, with_missing(typed, np.zeros(len(typed), dtype=bool)), at=at)


def _as_kind(texts: list[str], like: AnyArray) -> AnyArray:
    """Return ids in the type of the instances."""
    array = np.array(texts, dtype=str)
    typed = canonical(array)
    return typed if typed.dtype.kind == like.dtype.kind or not len(like) else array


def _items(items: dict[Any, dict[str, Any]], instances: AnyArray) -> Items:
    keys = [str(i) for i in instances.tolist()]
    annotated = set(keys)
    keys += [key for key in items if key not in annotated]
    names = list(dict.fromkeys(name for data in items.values() for name in data))
    brief = [short(name) for name in names]
    shown = {
        name: part if brief.count(part) == 1 else name
        for name, part in zip(names, brief, strict=True)
    }
    columns = {shown[n]: [items.get(key, {}).get(n) for key in keys] for n in names}
    return Items(_as_kind(keys, instances), columns, {shown[n]: n for n in names})


def report_losses(export: Export, path: Any) -> None:
    """Log how an export was read, and warn of what was left out of the table."""
    command = f"format={export.format!r}"
    if export.question not in ("label", "choice"):
        # In a long table, the question is the column of labels.
        name = "label" if export.format == "long" else "question"
        command += f", {name}={export.question!r}"
    others = f" (it could also be {', '.join(export.alternatives)})" if export.alternatives else ""
    several = isinstance(path, list | tuple)
    shown = f"{len(path)} files" if several else Path(path).name
    _LOG.info(
        "%s %s read with %s%s", shown, "are" if shown.endswith(" files") else "is", command, others
    )
    for note in export.notes:
        _LOG.info("%s: %s", shown, note)
    if export.left_out:
        warn_caller(
            f"{shown}: left out: {'. '.join(map(str, export.left_out))}. "
            "manyhands.io.read_export(...).left_out lists all of them"
        )
