"""Exports that do not fit in memory are read in pieces of whole records.

Properties of all records together (the format, the question, the classes) must be the same in every
piece, or are merged from all pieces.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.columns import require_annotators
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.files import write_atomically
from manyhands.io.annotations import requested
from manyhands.io.columns import preview
from manyhands.io.exports.documents import open_documents
from manyhands.io.exports.formats import matching, named
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.policy import NoAnswers
from manyhands.io.exports.reading import Choices, read_opened
from manyhands.io.exports.records import REPEATED, Asked, Export
from manyhands.io.files import PathLike, existing_file
from manyhands.io.writers import write_annotations
from manyhands.scale.export_cutting import Cutting, Piece
from manyhands.scale.sorted_runs import check_plan

EXPANSION = 32
"""Largest number of bytes of memory that reading needs per byte of an export."""

COLUMNS = {"task": "task", "worker": "worker", "label": "label", "weight": None}
"""Columns of the tables into which pieces are converted."""

KEPT_POSITIONS = 3
"""Number of positions of left out records that a message gives per reason and piece."""


def is_large(paths: Sequence[PathLike], memory: int) -> bool:
    """Return whether exports are too large to be read whole within this memory, in bytes."""
    files = [Path(path) for path in paths if Path(path).is_file()]
    zipped = {".gz": 8, ".parquet": 8, ".pq": 8}
    size = sum(file.stat().st_size * zipped.get(file.suffix.lower(), 1) for file in files)
    return size * EXPANSION > 2 * memory


@dataclass
class Converted:
    """Result of a conversion: the tables of all pieces, and how to read them.

    Attributes
    ----------
    tables : list of Path
        Long tables, in the order of the pieces, or reversed if first answers count.
    reading : dict
        Options for reading them: the classes (None: those that occur, sorted), and the policy for
        pairs that are repeated in different pieces.
    """

    tables: list[Path]
    reading: dict[str, Any]


@dataclass
class Conversion:
    """Conversion of exports, piece by piece, to long tables in a folder.

    If it is run again, it continues after the last complete piece.
    """

    paths: list[Path]
    folder: Path
    form: str
    asked: Asked
    choices: Choices
    size: int
    progress: Callable[[str, float], None]
    about: dict[str, Any] = field(default_factory=dict)
    done: list[dict[str, Any]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    nothing: NoAnswers | None = None

    @classmethod
    def of(
        cls,
        paths: Sequence[PathLike],
        folder: Path,
        options: dict[str, Any],
        memory: int,
        progress: Callable[[str, float], None],
    ) -> Conversion:
        """Return the conversion with the options of `manyhands.io.read_export`.

        Raises
        ------
        FileNotFoundError
            If a file does not exist.
        AnnotationError
            If an option is for other files.
        """
        given = dict(options)
        form, weight = given.pop("format", "auto"), given.pop("weight", None)
        if weight is not None:
            raise AnnotationError(
                f"weight={weight!r} names a column, which only a long table has; leave it out"
            )
        if given.get("multilabel") == "split" and given.get("option") is None:
            raise AnnotationError(
                "multilabel='split' makes one table per label, not a store; name the label in "
                "option="
            )
        if form != "auto":
            named(form)
        asked, choices = requested(**given)
        files = [Path(path) if Path(path).is_dir() else existing_file(path) for path in paths]
        if choices.label_config is not None:
            existing_file(choices.label_config)
        size = max(memory // EXPANSION, 1)
        about = {name: repr(value) for name, value in options.items()} | {"memory": memory}
        return cls(files, folder, form, asked, choices, size, progress, about)

    def check_plan(self) -> None:
        """Raise an error if the folder holds work on other files or with other options."""
        check_plan(self.folder, self.paths, self.about)

    def run(self) -> Converted:
        """Make the tables that do not exist yet.

        Raises
        ------
        AnnotationError
            As in `manyhands.io.read_export`; also if pieces differ in their question or format.
        """
        self._check_paths()
        found = sorted(self.folder.glob("[0-9]*.json"))
        self.done = [json.loads(place.read_text()) for place in found]
        self.names = dict(self.done[-1]["names"]) if self.done else {}
        number = 0
        for file, path in enumerate(self.paths):
            cutting, earlier = Cutting(path, self.size, stated=self.asked.stated), 0
            with closing(cutting.pieces()) as cut:
                for piece in cut:
                    if number == len(self.done):
                        self._convert(number, path, piece, earlier)
                    earlier += self.done[number]["records"]
                    cutting.headed = not named(self.done[number]["format"]).headless
                    number += 1
                    self.progress("converting", (file + piece.share) / len(self.paths))
                    if self.done[number - 1]["whole"]:
                        break
        if not any(meta["question"] for meta in self.done):
            raise self.nothing or AnnotationError(f"{self.paths[0]}: no annotations are found")
        form, repeats = named(self.done[0]["format"]), str(self.choices.duplicates)
        if repeats == "auto":
            repeats = "error" if form.is_layout else "last"
        tables = [self._place(i) for i, meta in enumerate(self.done) if meta["rows"]]
        if form.keeps_first:
            tables.reverse()  # The store keeps the last of repeated pairs, which is then the first.
        reading: dict[str, Any] = {"classes": self._classes(), "abstain": None, "skip": None}
        reading |= {"scale": self.choices.scale, "mapping": None, "lowercase": False}
        reading |= {"annotator_mapping": None}
        return Converted(tables, {**reading, "duplicates": repeats})

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:06d}.csv"

    def _check_paths(self) -> None:
        """Raise an error for several files whose ids could be confused, since none are compared."""
        if len(self.paths) == 1:
            return
        names = [path.name.split(".")[0] for path in self.paths]
        if self.choices.annotator_from == "file" and len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise AnnotationError(
                f"annotator_from='file': two files are called {twice!r}, and together the files "
                "are too large to see whether they are one annotator's; rename one"
            )

    def _convert(self, number: int, path: Path, piece: Piece, earlier: int) -> None:
        """Convert a piece to a table; the facts that later pieces need are written last."""
        form = self.done[0]["format"] if self.done else self.form
        documents, form, is_whole = self._documents(path, piece, earlier, form)
        choices = replace(self.choices, anonymise=False, piece=True)
        meta: dict[str, Any] = {"format": form, "question": "", "rows": 0}
        meta |= {"classes": [], "occurring": [], "order": "sorted"}
        try:
            with warnings.catch_warnings():
                # `report` warns once, about all pieces.
                warnings.simplefilter("ignore", UserWarning)
                export = read_opened(documents, str(path), form, self.asked, choices)
        except NoAnswers as error:
            self.nothing = self.nothing or error
            lost = error.lost
        except AnnotationError as error:
            if not piece.before:
                raise
            reason = str(error).removeprefix(f"{path}: ")
            raise AnnotationError(f"{path}, after {piece.before:,} records: {reason}") from error
        else:
            lost = {each.reason: list(each.where) for each in export.left_out}
            meta |= _facts(export)
            if meta["rows"]:
                self._check_alike(path, piece, meta)
                write_annotations(self._place(number), self._named(export))
        meta["lost"] = {
            reason: [len(where), where[:KEPT_POSITIONS]] for reason, where in lost.items()
        }
        first = documents[0]
        meta["records"] = len(first.records) or len(first.rows) + named(meta["format"]).headless
        meta |= {"whole": is_whole, "names": self.names}
        write_atomically(self.folder / f"{number:06d}.json", json.dumps(meta))
        self.done.append(meta)

    def _documents(
        self, path: Path, piece: Piece, earlier: int, form: str
    ) -> tuple[list[Document], str, bool]:
        """Return the document of a piece and its format; those of the file if it cannot be cut."""
        if piece.parse is None:
            return open_documents(path, stated=self.asked.stated), form, True
        name = PurePosixPath(path.name)
        document = Document(str(path), name, beside=path.parent)
        document.before, document.earlier = piece.before, earlier
        piece.parse(document)
        fitting, given = [each.name for each in matching(document)], form
        if form == "auto" and fitting:
            form = fitting[0]
        found = None if form == "auto" else named(form)
        is_keyed, is_whole = (False, False) if found is None else (found.keyed, found.is_whole)
        if (piece.keyed and not is_keyed) or is_whole:
            return open_documents(path), given, True
        if self.done and not piece.before and form not in fitting:
            raise AnnotationError(
                f"{path.name} is not of the format of {self.paths[0].name} ({form}), and large "
                "files of several formats are not read together. Ingest those of one format"
            )
        return [document], form, False

    def _check_alike(self, path: Path, piece: Piece, meta: dict[str, Any]) -> None:
        first = next((other for other in self.done if other["question"]), meta)
        if meta["question"] and first["question"] != meta["question"]:
            raise AnnotationError(
                f"{path}: the records up to {piece.before:,} ask {first['question']!r}, and later "
                f"ones {meta['question']!r}; choose one with question="
            )
        own_ids = self.choices.task is not None or named(meta["format"]).is_layout
        if len(self.paths) > 1 and not own_ids:
            raise AnnotationError(
                f"{len(self.paths)} exports are too large to be read together, and {path.name} "
                "has ids of its platform, which may be those of other items in another file. Name "
                "the field with your own ids by task=, or ingest one file"
            )

    def _named(self, export: Export) -> AnnotationTable:
        """Return the table of an export; with ``anonymise``, annotators are numbered."""
        table = export.annotations
        require_annotators(table, "a store")
        if table.groups is not None:
            raise AnnotationError(
                "a store holds no families of annotators; leave predictions_as_annotators out"
            )
        for what, ids in (("task", table.instances), ("annotator", table.annotators)):
            odd = next((text for text in map(str, ids) if text[:1] == " " or "\0" in text), None)
            if odd is not None:
                raise AnnotationError(
                    f"the {what} {odd!r} begins with a blank or holds a NUL, which the tables of "
                    "pieces do not keep; correct it in the export"
                )
        if not self.choices.anonymise:
            return table
        seen, first = np.unique(table.annotator, return_index=True)
        order = [*seen[np.argsort(first)].tolist(), *range(table.n_annotators)]
        for code in dict.fromkeys(order):
            name = str(table.annotators[code])
            self.names.setdefault(name, f"w{len(self.names) + 1:03d}")
        new = np.array([self.names[str(name)] for name in table.annotators.tolist()])
        return replace(table, annotators=new)

    def _classes(self) -> list[Any] | None:
        """Return the classes as given or configured; None to sort the classes that occur."""
        if self.choices.classes is not None:
            return list(self.choices.classes)
        found = [meta["classes"] for meta in self.done]
        together = list(dict.fromkeys(value for classes in found for value in classes))
        if len({type(value) for value in together}) > 1:
            together = list(dict.fromkeys(map(str, together)))
        occurring = {str(value) for meta in self.done for value in meta["occurring"]}
        unseen = [value for value in together if str(value) not in occurring]
        if unseen:
            warn_caller(
                f"{len(unseen)} of {len(together)} classes of the configuration do not occur: "
                f"{preview(np.array(unseen))}"
            )
        elif all(meta["order"] != "given" for meta in self.done):
            return None
        return together

    def report(self, kept: int) -> None:
        """Warn about records left out of all pieces; ``kept`` annotations and passes remain."""
        lost: dict[str, tuple[int, list[str]]] = {}
        for meta in self.done:
            for reason, (count, where) in meta["lost"].items():
                n, shown = lost.get(reason, (0, []))
                lost[reason] = n + count, [*shown, *where][:KEPT_POSITIONS]
        again = sum(meta["rows"] for meta in self.done) - kept
        if again:
            lost[f"{REPEATED}, in another piece"] = again, []
        if lost:
            said = [
                f"{count:,}: {reason}"
                + ("" if self.choices.anonymise or not where else f" ({'; '.join(where)})")
                for reason, (count, where) in lost.items()
            ]
            name = self.paths[0].name if len(self.paths) == 1 else f"{len(self.paths)} files"
            warn_caller(f"{name}: left out: {'. '.join(said)}")


def _facts(export: Export) -> dict[str, Any]:
    """Return the facts about a piece that later pieces need."""
    table = export.annotations
    return {
        "format": export.format,
        "question": export.question,
        "rows": table.n_annotations + (0 if table.passes is None else len(table.passes)),
        "classes": table.classes.tolist(),
        "order": table.class_order,
        "occurring": table.classes[np.unique(table.label)].tolist(),
    }
