"""From a job's folder, and the annotations behind it, to a review desk."""

from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable, LabelSetTable
from manyhands.decision import decide_sets
from manyhands.exceptions import AnnotationError, ModelFolderError, warn_caller
from manyhands.explore.answers import Answers
from manyhands.explore.class_answers import ClassAnswers
from manyhands.explore.desk import Contents, Desk
from manyhands.explore.figures import Figures, Model, compute
from manyhands.explore.set_answers import SetAnswers
from manyhands.fitting.saving import holds_aggregator, refuse_means
from manyhands.inference import MultiLabelDawidSkene
from manyhands.io import read_raw_aligned, read_texts
from manyhands.io.aligned import shown_image
from manyhands.io.annotations import read_items, read_shown, read_with_account
from manyhands.io.consensus_labels import Consensus, read_consensus
from manyhands.io.consensus_sets import SetConsensus, read_set_consensus, set_consensus
from manyhands.io.corrections import Journal, Standing, matched, open_journal
from manyhands.io.csv_files import DECIMALS
from manyhands.io.exports.reading import report_losses
from manyhands.io.exports.records import Export
from manyhands.io.gold import GoldFile, join_gold
from manyhands.io.label_sets import items_shown, read_sets_with_account
from manyhands.io.long_tables import over_tasks
from manyhands.jobs.fit_label_sets import read_as
from manyhands.jobs.gold import match_gold, training_codes, training_part
from manyhands.jobs.outputs import LABELS, SUMMARY, times_of
from manyhands.jobs.ranking import RANKING
from manyhands.metrics import Level
from manyhands.metrics.set_levels import levels_of_sets, told_of_cells
from manyhands.models import load
from manyhands.report.commands import files_in
from manyhands.report.planning import basis_of
from manyhands.report.sections import SETS
from manyhands.report.summary import UNTITLED
from manyhands.typing import AnyArray, FloatArray

_LOG = logging.getLogger("manyhands")

SHOWN = dict(zip((".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"),
                 ("png", "jpeg", "jpeg", "gif", "webp", "bmp"), strict=True))  # fmt: skip
"""Images that every browser shows, with their media types; SVG, which may hold scripts, is none."""


@contextmanager
def open_desk(
    folder: Path,
    annotations: Path | Sequence[Path],
    *,
    by: str,
    texts: str | None = None,
    images: str | None = None,
    known: GoldFile | None = None,
    known_files: Sequence[Path] = (),
    sets: bool = False,
    reading: Sequence[str] = (),
    **options: Any,
) -> Iterator[Desk]:
    """Open a folder for review; nobody else can until it is closed.

    Parameters
    ----------
    folder : Path
        What ``fit`` or ``aggregate`` wrote.
    annotations : Path or sequence of Path
        Those that the folder's labels rest on.
    by : str
        Who reviews.
    texts, images : str, optional
        As in `manyhands.io.read_raw_aligned`; of sets, a file of texts or a folder of images.
    known : GoldFile, optional
        Known labels beside those of the folder, which knows what it was made with.
    known_files : sequence of Path
        What they were read from.
    sets : bool
        Whether the annotations are read as sets of labels.
    reading : sequence of str
        Words with which the command line reads the annotations in the same way.
    **options
        As in `manyhands.io.read_annotations`, or of sets in `manyhands.io.read_label_sets`.

    Raises
    ------
    ModelFolderError
        If the folder holds no labels of manyhands.
    AnnotationError
        If the annotations are not those of the labels, a task has no text or image, the file of
        corrections is damaged, a known label is another one in the folder, or the folder holds
        sets and the annotations are read as classes, or the reverse.
    WriteError
        If corrections cannot be written, or another explorer has the folder open.
    """
    described = described_in(folder)
    if sets and described.get("kind") != SETS:
        raise AnnotationError(
            f"{folder} holds labels that are one class each; leave multilabel= out, or write the "
            "folder by the command aggregate with it"
        )
    if not sets and described.get("kind") == SETS:
        raise AnnotationError(
            f"{folder} holds sets of labels; read the answers as sets, too: "
            f"multilabel={described['set_data']['separator']!r}"
        )
    title = described.get("title", UNTITLED)
    title = "Labels" if title == UNTITLED else str(title)
    shown = {"texts": texts, "images": images}
    finish: Callable[[Journal], tuple[Answers[Any], Contents]]
    if sets:
        finish = _sets_in(folder, annotations, described, shown, options)
    else:
        finish = _classes_in(folder, annotations, described, shown, options, known)
    with open_journal(folder) as journal:
        answers, contents = finish(journal)
        contents = replace(contents, known=tuple(known_files), reading=tuple(reading))
        contents = replace(contents, made_by=made_by(described))
        desk = Desk(answers, journal, contents, title=title, by=by)
        for note in desk.notes:
            warn_caller(note)
        told = _OncePerKind()
        _LOG.addFilter(told)
        try:
            yield desk
        finally:
            desk.close()
            _LOG.removeFilter(told)


class _OncePerKind(logging.Filter):
    """Let a message through once, whatever its figures: it is told by what its last sentence says.

    Every correction computes the figures again, with the same notes on other numbers of labels.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = re.sub(r"\d[\d,.]*", "", record.getMessage().rpartition(". ")[2])
        is_new = kind not in self._told
        self._told.add(kind)
        return is_new


def _classes_in(
    folder: Path,
    annotations: Path | Sequence[Path],
    described: dict[str, Any],
    shown: dict[str, str | None],
    options: dict[str, Any],
    known: GoldFile | None,
) -> Callable[[Journal], tuple[ClassAnswers, Contents]]:
    """Read a folder's labels of one class each, and what the items are."""
    if options.get("scale") is None:  # As the labels were made.
        read = _grades_in(described)
        options |= {name: read[name] for name in read if options.get(name) is None}
    table, export = read_with_account(annotations, **options)
    if export is not None:
        report_losses(export, annotations)
    found = read_consensus(folder / LABELS, table)
    table = over_tasks(table, found.tasks)
    items = export if export is not None else _items(annotations, table, options)
    contents = contents_of(table, items, annotations, options=options, **shown)

    def finish(journal: Journal) -> tuple[ClassAnswers, Contents]:
        own = _known_in_folder(found, journal)
        given = match_gold(_joined(own, folder, known), table)
        others = own.tasks[:0] if known is None else known.tasks[known.known]
        is_needed = not np.isin(own.tasks.astype(str), others.astype(str)).all()
        times = times_of(contents.export, table.observed)
        model = _model_of(folder, described, table, found, times.get("ended"))
        labels = folder / LABELS if is_needed else None
        return ClassAnswers(table, model, given), replace(contents, labels=labels)

    return finish


def _model_of(
    folder: Path,
    described: dict[str, Any],
    table: AnnotationTable,
    found: Consensus,
    ended: FloatArray | None = None,
) -> Model:
    """Return how the labels of a folder, which were read, follow from its annotations."""
    # What somebody marked in the file since is known, but not to its probabilities.
    rows = np.arange(len(found.codes))
    is_in = found.known & (found.posterior[rows, found.codes] == 1)
    codes = np.where(is_in, found.codes, -1)
    fitted = load(folder) if holds_aggregator(folder) else None
    return Model(table, found.posterior, described, ended, codes, found.random, fitted)


def figures_in(
    folder: Path,
    table: AnnotationTable,
    known: GoldFile | None = None,
    gold: GoldFile | None = None,
) -> tuple[AnnotationTable, Figures]:
    """Compute what a folder's report and pages plan with, without opening it for review.

    Parameters
    ----------
    folder : Path
        What ``fit`` or ``aggregate`` wrote, of labels that are one class each.
    table : AnnotationTable
        Annotations that the folder's labels rest on.
    known : GoldFile, optional
        Known labels. Those of the folder that it does not hold are known, too.
    gold : GoldFile, optional
        Gold labels; those of a classifier's folder may set rows aside, as in ``fit``.

    Returns
    -------
    table : AnnotationTable
        The annotations over the folder's items, in its order.
    figures : Figures

    Raises
    ------
    ModelFolderError, AnnotationError
        As in `open_desk`.
    """
    described = described_in(folder, "a plan")
    if described.get("kind") == SETS:
        raise AnnotationError(
            f"{folder} holds sets of labels, and a plan needs labels that are one class each"
        )
    found = read_consensus(folder / LABELS, table)
    table, aside = over_tasks(table, found.tasks), None
    if gold is not None and described["methods"].get("classifier"):
        aside = match_gold(gold, table)
        table = training_part(table, aside)
    model = _model_of(folder, described, table, found)
    own = found.take(found.known)
    if known is not None:
        own = own.take(~np.isin(own.tasks.astype(str), known.tasks[known.known].astype(str)))
    rows = match_gold(_joined(_known_of(own), folder, known), table)
    for note in model.notes:
        warn_caller(note)
    figures = compute(table, model, training_codes(rows, aside), 0, rows.random)
    return table, _with_labels_of(found, figures)


def _with_labels_of(found: Consensus, figures: Figures) -> Figures:
    """Return figures that plan with the labels of a folder, which another rule may have decided.

    Where labels that are known since have changed the probabilities, those of the figures stay.
    """
    inferred = figures.inputs.inferred
    if inferred is None:
        return figures
    same = np.abs(figures.posterior - found.posterior).max(axis=1) < 10.0**-DECIMALS
    # What the folder leaves open has a label here, or nobody would check the most doubtful ones.
    codes = np.where(same & (found.codes >= 0), found.codes, inferred.codes)
    inputs = replace(figures.inputs, inferred=replace(inferred, codes=codes))
    return replace(figures, inputs=inputs, basis=basis_of(inputs, figures.gold))


def _known_of(found: Consensus) -> GoldFile:
    """Return labels, all of which are known."""
    how = None if found.random is None else np.where(found.random, "random", "queue")
    values = found.classes[found.codes]
    return GoldFile(found.tasks, values, chosen=how, at=(LABELS,) * len(values))


def _sets_in(
    folder: Path,
    annotations: Path | Sequence[Path],
    described: dict[str, Any],
    shown: dict[str, str | None],
    options: dict[str, Any],
) -> Callable[[Journal], tuple[SetAnswers, Contents]]:
    """Read a folder's sets, and what the items are."""
    for name, source in shown.items():
        if source is not None and not Path(source).exists():
            raise AnnotationError(
                f"{name}={source!r} does not exist; of sets of labels, it is a file of texts or a "
                "folder of images. The fields of an export are shown without it"
            )
    table, export = read_sets_with_account(annotations, **options)
    separator, none = str(described["set_data"]["separator"]), read_as(folder)["none"]
    cells = described["levels"].get("cells")  # Folders of earlier versions have none.
    if cells is not None:
        cells = [None if level is None else Level(**level) for level in cells]
    if "aggregator" in described:  # The sets of a classifier rest on features, too.
        command = "fit"
        found, table = read_set_consensus(folder / LABELS, table, separator=separator, none=none)
        tells = described["aggregator"] == MultiLabelDawidSkene.__name__
        if cells is not None and tells:
            free = (found.n_annotations > 0)[:, None] & ~found.known
            told = told_of_cells(found.posterior, found.ticks, free, cells)
            found = replace(found, probability=np.where(found.known, 1.0, told))
    else:
        command = "aggregate"
        found, table = _inferred_sets(folder, described, table, cells)
    if export is None:
        export = items_shown(table, read_shown(annotations, None, **options))
    contents = contents_of(table.answers, export, annotations, options=options, **shown)
    method, headline = str(described["method"]), str(described["headline"])
    answers = SetAnswers(
        table,
        found,
        method=method,
        command=command,
        headline=headline,
        separator=separator,
        none=none,
    )
    return lambda journal: (answers, contents)


def _inferred_sets(
    folder: Path, described: dict[str, Any], table: LabelSetTable, cells: list[Level | None] | None
) -> tuple[SetConsensus, LabelSetTable]:
    """Return the sets of a folder of ``aggregate``, and the answers that they rest on."""
    model: Any = load(folder)
    own = set(model.instances_.astype(str).tolist())
    strange = [str(task) for task in table.instances.tolist() if str(task) not in own]
    if strange:
        raise AnnotationError(
            f"{len(strange):,} instances of the answers (such as {strange[0]!r}) have no set in "
            f"{folder}; give the answers that it was made from, or aggregate these anew"
        )
    rule = "probable" if described["rule"] == "threshold" else described["rule"]
    decided = decide_sets(model.posterior_, rule, threshold=described.get("threshold"))
    levels = levels_of_sets(model, decided.ticks, cells=cells)
    found = set_consensus(model.table_, model, decided.ticks, levels.probability)
    return found, model.table_


def _known_in_folder(found: Consensus, journal: Journal) -> GoldFile:
    """Labels that the folder knows besides those that were decided in the explorer.

    Of a task that somebody decided here, the folder may have the label from that decision. Its
    first record tells whether a label was known before.
    """
    standing = Standing(matched(journal.records, found.tasks.tolist(), found.classes.tolist()))
    code_of = {str(value): code for code, value in enumerate(found.classes.tolist())}
    codes = np.where(found.known, found.codes, -1)
    for row in np.flatnonzero(codes >= 0).tolist():
        task = found.tasks[row].item()
        if standing.version(task):
            codes[row] = code_of.get(str(standing.known_before(task)), -1)
    return _known_of(replace(found, codes=codes).take(codes >= 0))


def _joined(own: GoldFile, folder: Path, known: GoldFile | None) -> GoldFile:
    """Join the folder's known labels with others."""
    if known is None:
        return own
    try:
        return join_gold([own, known]) or own
    except AnnotationError as error:
        raise AnnotationError(
            f"{error}. Or write {str(folder)!r} again, by the command that wrote it, with --known "
            "as it is now"
        ) from error


def made_by(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the command that wrote a folder was given; empty if that is not known.

    ``select`` takes no known labels, so the method that it chose is fitted with them.
    """
    files = files_in(described)
    if files.get("name") == "select":
        given = list(files.get("options", ()))
        kept = ("--features", "--texts", "--images", "--gold", "--seed")
        pairs = pairwise(given)
        options = [word for pair in pairs if pair[0] in kept for word in pair]
        best = str((described.get("selection") or {}).get("best"))
        method = ["--method", best] if best.isidentifier() else []
        files |= {"name": "fit", "options": [*options, *method]}
    return files


def described_in(folder: Path, what: str = "the explorer") -> dict[str, Any]:
    """Read the folder's summary; ``what`` needs it, for messages."""
    refuse_means(folder, what)
    if (folder / RANKING).is_file() and not (folder / LABELS).is_file():
        raise AnnotationError(
            f"{folder} holds a ranking, and {what} needs labels. The ranking is in its ranking.csv "
            "and report.html, and annotators.csv says whose comparisons need a look"
        )
    for name in (SUMMARY, LABELS):
        if not (folder / name).is_file():
            raise ModelFolderError(
                f"{str(folder)!r} has no {name}; give the folder that fit --out or "
                "aggregate --out wrote"
            )
    try:
        described = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        if not isinstance(described["methods"], dict):
            raise TypeError("methods")
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFolderError(
            f"{str(folder / SUMMARY)!r} is truncated or edited ({error!r}); write the folder again"
        ) from error
    return dict(described)


def _grades_in(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return how to read a folder's annotations as the grades that they were; empty if none."""
    data, classes = described.get("data") or {}, described.get("classes") or {}
    names = [row["name"] for row in classes.get("rows", ())]
    is_ordinal = (data.get("agreement") or {}).get("scale") == "ordinal"
    if not is_ordinal or len(names) != data.get("n_classes"):
        return {}
    return {"scale": "ordinal", "classes": names}


def contents_of(
    table: AnnotationTable,
    items: Export | None,
    annotations: Path | Sequence[Path],
    texts: str | None,
    images: str | None,
    options: dict[str, Any],
) -> Contents:
    """Read what the items are: texts, images, or else their own data in the annotations."""
    row_of = {str(task): row for row, task in enumerate(table.instances.tolist())}
    files = (annotations,) if isinstance(annotations, Path) else tuple(annotations)
    contents = Contents(export=items, annotations=files)
    if texts is not None:
        found = _read("texts", texts, annotations, options, table.instances)
        contents.texts.update({row_of[t]: text for t, text in found if t in row_of})
    if images is not None:
        first = annotations if isinstance(annotations, Path) else annotations[0]
        root = Path(images) if Path(images).is_dir() else first.parent
        for task, name in _read("images", images, annotations, options, table.instances):
            path = shown_image(name, root, task)
            if task in row_of and path.is_file() and path.suffix.lower() in SHOWN:
                contents.images[row_of[task]] = path
    for what, shown in (("text", contents.texts), ("image", contents.images)):
        if (texts if what == "text" else images) is not None and len(shown) < len(row_of):
            warn_caller(
                f"{len(row_of) - len(shown):,} of {len(row_of):,} tasks have no {what} that can be "
                "shown"
            )
    if items is None:
        return contents
    for name, values in items.items.columns.items():
        for task, value in zip(items.items.ids.tolist(), values, strict=True):
            if value is not None and str(task) in row_of and name not in (texts, images):
                contents.fields.setdefault(row_of[str(task)], {})[name] = value
    return contents


def _read(
    kind: Any,
    source: str,
    annotations: Path | Sequence[Path],
    options: dict[str, Any],
    ids: AnyArray,
) -> Iterator[tuple[str, str]]:
    """Yield the tasks with their texts, or the names of their images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What was left out of the annotations was said already.
        if kind == "texts" and Path(source).is_file():
            own = {name: options.get(name) for name in ("task", "encoding", "separator")}
            found = read_texts(source, wanted=ids, **own)
        else:
            found, _ = read_raw_aligned(kind, source, annotations, **options)
    tasks = range(len(found)) if found.tasks is None else found.tasks.tolist()
    yield from zip(map(str, tasks), map(str, found.X.tolist()), strict=True)


def _items(
    annotations: Path | Sequence[Path], table: AnnotationTable, options: dict[str, Any]
) -> Export | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_items(annotations, table, **options)
