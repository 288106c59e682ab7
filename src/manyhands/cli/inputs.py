"""Reading what options name: annotations, features, texts, images, known labels, columns."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from manyhands.cli.options import Features, Images, Texts
from manyhands.exceptions import AnnotationError, silenced, warn_caller

_LOG = logging.getLogger("manyhands")


class BadFilesError(AnnotationError):
    """Several files of a command cannot be used; ``errors`` says why, a file at a time."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = list(errors)


class Faults:
    """Errors of reading several files, which are told together."""

    def __init__(self) -> None:
        self._found: list[Exception] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Read a file; the next is read even if this cannot be used."""
        try:
            yield
        except (AnnotationError, OSError) as error:
            self._found.append(error)

    def __len__(self) -> int:
        return len(self._found)

    def tell(self) -> None:
        """Raise what was found.

        Raises
        ------
        BadFilesError
            If several files cannot be used; else the error of the file.
        """
        first = {str(error): error for error in reversed(self._found)}
        if len(first) == 1:
            raise self._found[0]
        if first:
            raise BadFilesError([*reversed(first.values())])


def refuse_absent(paths: Sequence[Path]) -> None:
    """Refuse files that are absent or empty, all of them together, before any is read."""
    from manyhands.io.files import existing_file

    faults = Faults()
    for path in paths:
        with faults.noted():
            if not path.is_dir():
                existing_file(path)
    if len(faults) > 1:  # That of one is told by its reader, which knows its option.
        faults.tell()


@dataclass(frozen=True)
class TrainingInputs:
    """What a classifier is to be trained on: features, texts or images."""

    least: ClassVar[int] = 1
    """How many must be given: one, or none."""

    features: Features = None
    texts: Texts = None
    images: Images = None

    def __post_init__(self) -> None:
        """Refuse several, and none where one must be given."""
        if not self.least <= len(given := self._given) <= 1:
            raise AnnotationError(
                f"{len(given) or 'none'} of --features, --texts and --images are given; give one"
            )

    @property
    def _given(self) -> list[Any]:
        return [value for value in (self.features, self.texts, self.images) if value is not None]

    def __bool__(self) -> bool:
        """Return whether one of them is given."""
        return bool(self._given)

    @property
    def files(self) -> list[Path]:
        """Files and folders that are read, if that is what was named."""
        return [Path(value) for value in (self.features, self.texts) if value is not None]

    def read(self, annotations: Path | list[Path], options: dict[str, Any]) -> tuple[Any, Any]:
        """Read the rows and the table of their annotations."""
        from manyhands.io import read_aligned, read_raw_aligned

        if self.texts is not None:
            return read_raw_aligned("texts", self.texts, annotations, **options)
        if self.images is not None:
            return read_raw_aligned("images", self.images, annotations, **options)
        assert self.features is not None
        return read_aligned(self.features, annotations, **options)

    def read_sets(self, annotations: Path | list[Path], options: dict[str, Any]) -> tuple[Any, Any]:
        """Read the rows and the `LabelSetTable` of their answers."""
        from manyhands.io.aligned import read_aligned_sets

        for kind in ("texts", "images", "features"):
            source = getattr(self, kind)
            if source is not None:
                return read_aligned_sets(kind, source, annotations, **options)
        raise AssertionError("one of them is given")

    def shown(self, rows: Any, table: Any) -> Any:
        """Return the texts or names of images for tables; None for features."""
        from manyhands.io.shown import Shown

        if self.features is not None:
            return None
        name = "text" if self.texts is not None else "image"
        values = [str(value) if name == "text" else Path(str(value)).name for value in rows.X]
        return Shown.of(name, table.instances.tolist(), values)

    def encoder(self, random_state: int) -> Any:
        """Return the encoder of texts or images; None for features."""
        from manyhands.encoders import ImageEncoder, TextEncoder

        if self.features is not None:
            return None
        return TextEncoder() if self.texts is not None else ImageEncoder(random_state=random_state)

    def why(self, encoder: Any) -> str:
        """Say which encoder was picked."""
        if self.texts is not None:
            return f"texts are encoded by {encoder!r}: weights of words and of runs of characters"
        return f"images are encoded by {encoder!r}: a dictionary of their patches"


@dataclass(frozen=True)
class Files:
    """What a command that trains classifiers reads and writes.

    ``named`` has the words of the command line for the report; see `manyhands.report.commands`.
    """

    inputs: TrainingInputs
    annotations: list[Path]
    gold: Path | None
    out: Path
    options: dict[str, Any]
    keep_formulas: bool
    named: dict[str, Any] = field(default_factory=dict)

    def read(self, known: Sequence[Path] | None = None) -> tuple[Any, Any, Any, Any]:
        """Read the rows, the table of their annotations, gold labels and known labels."""
        from manyhands.io.files import existing_file
        from manyhands.jobs import match_gold

        faults, rows, table, gold, certain = Faults(), None, None, None, None
        with faults.noted():
            rows, table = self.inputs.read(one_or_all(self.annotations), self.options)
        if faults and self.inputs.features is not None:
            with faults.noted():
                existing_file(self.inputs.features)
        with faults.noted():
            gold = read_gold_option(
                self.gold, self.options, annotations=self.annotations, table=table
            )
        with faults.noted():
            certain = read_known_option(known, self.options, table)
        faults.tell()
        ask_how_gold_was_chosen(gold, self.gold, table)
        matched = [None if each is None else match_gold(each, table) for each in (gold, certain)]
        return rows, table, *matched

    def export(self) -> Any:
        """Read the export that the annotations are from; None for a plain table."""
        return read_export_of(one_or_all(self.annotations), self.options)

    def shown(self, rows: Any, table: Any, export: Any) -> Any:
        """Return the texts or images that the table of labels shows."""
        from manyhands.io.annotations import read_shown

        found = self.inputs.shown(rows, table)
        if found is not None:
            return found
        return read_shown(one_or_all(self.annotations), export, **self.options)


def open_store(paths: list[Path]) -> Any:
    """Open the store that a command is given in place of a table; None if it is given others."""
    from manyhands.scale.store import AnnotationStore
    from manyhands.scale.store_writer import is_store

    if not any(is_store(path) for path in paths):
        return None
    if len(paths) > 1:
        raise AnnotationError(
            "a store is read by itself; ingest all files into one, or give the store alone"
        )
    return AnnotationStore.open(paths[0])


def one_or_all(paths: list[Path]) -> Path | list[Path]:
    """Return a single path as it is: alone, it may be a table or a matrix."""
    return paths[0] if len(paths) == 1 else paths


def in_title(paths: Sequence[Path]) -> str:
    """Name files in the heading of a report.

    Examples
    --------
    >>> in_title([Path("a.csv")]), in_title([Path("a.csv"), Path("b.csv"), Path("c.csv")])
    ('a.csv', '3 files: a.csv, b.csv, c.csv')
    """
    names = [path.name for path in paths]
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{len(names)} files: {shown}"


def read_export_of(path: Path | list[Path], options: dict[str, Any]) -> Any:
    """Read the export that annotations were read from, for its times; None for a plain table."""
    from manyhands.io.annotations import is_export, read_with_account

    if isinstance(path, Path) and not is_export(path):
        return None
    with warnings.catch_warnings():
        # They were shown when the annotations were read.
        warnings.simplefilter("ignore")
        return read_with_account(path, **options)[1]


def _gold_of_wide(path: Path, options: dict[str, Any]) -> Any:
    """Return the known labels that a wide table of annotations holds; None if there are none."""
    from manyhands.io.annotations import is_wide_reading, read_export

    if not path.exists() or not is_wide_reading(options):
        return None
    own = {name: value for name, value in options.items() if name not in ("group", "people")}
    try:
        export = read_export(path, **own)
    except AnnotationError:
        return None  # A table of known labels alone, whose reader says what is wrong with it.
    return export.gold if len(export.gold) else None


def _columns_of_gold(path: Path, options: dict[str, Any]) -> dict[str, str]:
    """Return which columns of a table of known labels the options of the annotations name.

    A column that is named like gold labels holds them, whatever the annotations' labels are called.
    """
    from manyhands.annotations.wide import gold_column
    from manyhands.io.annotations import TABLES

    if not path.is_file() or path.suffix.lower() not in TABLES:
        return {}
    try:
        header = header_of(path, {**options, "sheet": None})
    except AnnotationError:
        return {}  # The reader of known labels says what is wrong.
    asked = {name: options.get(name, name) for name in ("task", "label")}
    named = {name: column for name, column in asked.items() if column in header}
    if "label" in header or gold_column(header, named.values()) is not None:
        named.pop("label", None)
    return named


def read_gold_option(
    path: Path | None,
    options: dict[str, Any],
    option: str = "--gold",
    annotations: Path | Sequence[Path] = (),
    table: Any = None,
) -> Any:
    """Read known labels from a table, whose column names are fixed, or from an export.

    An export that holds none is an error, unless the annotations are read from it, too: then a
    warning says so, and there are no known labels.

    Parameters
    ----------
    path : Path or None
    options : dict
        Those of the annotations (`Reading.arguments`): the question, the field of ids, the classes.
    option : str
        For messages.
    annotations : Path or sequence of Path
        What the annotations are read from.
    table : AnnotationTable or store, optional
        The annotations, on whose scale the labels of several people are summarised.
    """
    from manyhands.io import read_gold
    from manyhands.io.annotations import is_export, read_export
    from manyhands.io.gold_of_people import read_gold_of_people

    if path is None:
        return None
    wide = _gold_of_wide(path, options)
    if wide is not None:
        return wide
    if path.exists() and is_export(path):
        aside = ("group", "people", "format")
        own = {name: value for name, value in options.items() if name not in aside}
        # A sheet is named of the annotations; what else a command reads has its own.
        own["sheet"] = options.get("sheet") if _is_among(path, annotations) else None
        export = read_export(path, **own)
        if not len(export.gold):
            why = (
                f"{option} {path}: this {export.format} export holds no known labels for the "
                f"question {export.question!r}; give a table with the columns 'task' and 'label'"
            )
            if _is_among(path, annotations):
                warn_caller(f"{why}, or leave {option} out")
                return None
            raise AnnotationError(why)
        return export.gold
    if not _is_among(path, annotations):
        try:
            found = read_gold_of_people(path, options, table)
        except AnnotationError as error:
            raise AnnotationError(f"{option} {path}: {error}") from error
        if found is not None:
            return found if len(found) else None  # None if all items are tied.
    multilabel = options.get("multilabel", "error")
    classes = options.get("classes") if multilabel in ("error", "none") else None
    try:
        stated: dict[str, Any] = {name: options.get(name) for name in ("encoding", "separator")}
        spelled: dict[str, Any] = {"mapping": options.get("mapping")}
        spelled |= {"lowercase": options.get("lowercase", False)}
        own = _columns_of_gold(path, options)
        if _is_among(path, annotations):
            own = {"task": options.get("task", "task")}  # Its labels are not known ones.
        gold = read_gold(path, classes=classes, **own, **stated, **spelled)
        found = gold.of_sets(multilabel, options.get("option"))
    except AnnotationError as error:
        raise AnnotationError(
            f"{option} {error} (its columns are 'task' and 'label', or as --task and --label name "
            "them, and, if rows have splits, 'split')"
        ) from error
    return found if len(found) else None  # None of a sheet that nobody filled in.


def read_known_option(
    paths: Sequence[Path] | None, options: dict[str, Any], table: Any = None
) -> Any:
    """Read the known labels of all files of --known as one; None if there are none.

    For ``table`` see `read_gold_option`.

    Raises
    ------
    AnnotationError
        If two files give a task different labels.
    """
    from manyhands.io.gold import join_gold

    found = []
    for path in paths or ():
        gold = read_gold_option(path, options, "--known", table=table)
        if gold is not None:
            places = (path.name,) * len(gold)
            found.append(replace(gold, at=places) if gold.at is None else gold)
    known = join_gold(found)
    ask_how_chosen(
        known, paths or (), "known", "these labels also measure how many of the other labels"
    )
    return known


def ask_how_chosen(gold: Any, paths: Sequence[Path], kind: str, then: str) -> None:
    """Ask for the column that says which labels were drawn at random, where a file has none."""
    from manyhands.metrics.sample_levels import LEAST_GOLD

    if gold is None or gold.chosen is not None or len(gold) < LEAST_GOLD:
        return
    _LOG.info(
        "%s: it is not said how the %s %s items were chosen. If they were drawn at random, "
        "add a column 'chosen' that holds 'random' in each row; then %s are right",
        ", ".join(path.name for path in paths),
        f"{len(gold):,}",
        kind,
        then,
    )


def ask_how_gold_was_chosen(gold: Any, path: Path | None, table: Any) -> None:
    """Ask the same of gold labels of some items, without splits; see `ask_how_chosen`."""
    if path is None or gold is None or gold.splits is not None or _is_export(path):
        return
    if len(gold) < table.n_instances:
        then = "it is certain that these labels measure how many of all labels"
        ask_how_chosen(gold, [path], "gold", then)


def _is_export(path: Path) -> bool:
    from manyhands.io.annotations import is_export

    return bool(path.exists() and is_export(path))


def _is_among(path: Path, paths: Path | Sequence[Path]) -> bool:
    """Return whether a file is one of those that the annotations are read from."""
    own = [paths] if isinstance(paths, Path) else paths
    return path.exists() and any(other.exists() and other.samefile(path) for other in own)


class ReadTable(NamedTuple):
    """What a command reads."""

    table: Any
    export: Any
    proba: Any = None
    shown: Any = None


def read_planned(
    tables: list[Path],
    options: dict[str, Any],
    inputs: TrainingInputs | None,
    seed: int,
    check: Callable[[Any], None],
) -> ReadTable:
    """Read annotations, and predict their instances out of fold if a classifier can join.

    ``check`` refuses tables that a command cannot take, before anything is predicted.
    """
    from manyhands.io.annotations import read_items, read_with_account
    from manyhands.io.exports.reading import report_losses

    path = one_or_all(tables)
    if not inputs:
        table, export = read_with_account(path, **options)
        if export is not None:
            report_losses(export, path)
        check(table)
        return ReadTable(table, export)
    from manyhands import CrowdStackingClassifier, cross_predict
    from manyhands.jobs.fit import encode_rows

    rows, table = inputs.read(path, options)
    check(table)
    X = encode_rows(inputs.encoder(seed), rows.X, table)
    model = CrowdStackingClassifier(random_state=seed)
    proba = cross_predict(model, X, table, random_state=seed, verbose=1).proba
    return ReadTable(table, read_items(path, table, **options), proba, inputs.shown(rows, table))


def read_gold_of_fit(
    paths: Sequence[Path] | None, table: Any, options: dict[str, Any]
) -> dict[str, Any]:
    """Return arguments of ``fit``: the labels of --known, and which were drawn at random."""
    import numpy as np

    from manyhands.jobs.gold import match_gold

    gold = read_known_option(paths, options, table)
    if gold is None:
        return {}
    rows = match_gold(gold, table)
    values = np.array([*table.classes.tolist(), None], dtype=object)
    return {"gold": values[rows.codes], "random_gold": rows.random}


class Checked(NamedTuple):
    """Labels that measure others: class values of the table's instances, None where unknown.

    ``random`` masks the instances that were drawn at random, if the file says it.
    """

    values: Any
    random: Any


def read_checked(
    path: Path | None, table: Any, options: dict[str, Any], name: str
) -> Checked | None:
    """Read the labels of --gold or --audit that measure others; None without a file."""
    import numpy as np

    from manyhands.jobs.gold import match_gold

    gold = read_gold_option(path, options, name, table=table)
    if gold is None:
        return None
    values = np.array([*table.classes.tolist(), None], dtype=object)
    rows = match_gold(gold, table)
    rows.note_queue()
    return Checked(values[rows.measuring], rows.random)


def read_columns(path: Path, *names: str, options: dict[str, Any]) -> list[list[Any]]:
    """Return the columns of a small table, read with these options."""
    from manyhands.io.columns import find_columns, with_types
    from manyhands.io.files import existing_file, naming
    from manyhands.io.frames import read_frame
    from manyhands.io.sheets import stated_of

    with naming(existing_file(path)):
        frame = read_frame(path, stated_of({**options, "sheet": None}))
        found = find_columns(frame.columns, {name: name for name in names}, path, fixed=True)
        if missing := [name for name in found.values() if name not in frame.columns]:
            raise AnnotationError(
                f"there is no column {missing[0]!r}; the columns are "
                f"{', '.join(map(repr, frame.columns))}"
            )
        frame = with_types(frame, found, path)
        return [frame[name].to_list() for name in found.values()]


def read_item_columns(
    path: Path | list[Path], table: Any, names: dict[str, str], options: dict[str, Any]
) -> dict[str, Any]:
    """Read columns that describe items, each as text of shape (n_instances,).

    Parameters
    ----------
    path, options
        How the table was read.
    table : AnnotationTable
    names : dict {argument: column}
        The name of the option, which messages give, and that of the column.

    Raises
    ------
    AnnotationError
        If there is no such column, or an item has no value in it.
    """
    import numpy as np

    from manyhands.io.annotations import is_plain, read_export
    from manyhands.io.exports.reading import items_of_table
    from manyhands.io.exports.records import Asked
    from manyhands.io.sheets import stated_of

    if not names:
        return {}
    own = {name: value for name, value in options.items() if name not in ("group", "people")}
    wanted = tuple(names.values())
    if is_plain(path, {"group": options.get("group")}, own):
        given = {k: own[k] for k in ("task", "worker", "label") if own.get(k, k) != k}
        asked = Asked(**given, fields=wanted, stated=stated_of(own))
        with silenced("manyhands"):
            items = items_of_table(one_path(path), asked, table.instances).items
    else:
        with silenced("manyhands"):
            items = read_export(path, **own, fields=wanted).items
    known = {str(task): i for i, task in enumerate(items.ids.tolist())}
    found = {}
    for argument, column in names.items():
        if column not in items.columns:
            header = header_of(path, options)
            why = (
                "it holds the ids or the labels" if column in header else "there is no such column"
            )
            raise AnnotationError(
                f"--{argument} {column}: {why}; the columns are {', '.join(map(repr, header))}"
            )
        cells = items.columns[column]
        rows = [known.get(str(task)) for task in table.instances.tolist()]
        values = [None if row is None else cells[row] for row in rows]
        missing = [i for i, value in enumerate(values) if value is None or str(value) == ""]
        if missing:
            raise AnnotationError(
                f"--{argument} {column}: {len(missing):,} items have no value, such as "
                f"{table.instances[missing[0]].item()!r}; give each one"
            )
        found[argument] = np.array(values, dtype=object).astype(str)
    return found


def may_be_questions(
    path: Path | list[Path], without: set[str | None], options: dict[str, Any]
) -> list[str] | None:
    """Name the columns of which each item has one value, and several items have the same.

    Of several files, only the first is looked at.

    Parameters
    ----------
    path, options
        How the table was read.
    without : set of str
        Columns that are known to be something else.

    Returns
    -------
    list of str or None
        None if it cannot be told, as in an export of a tool.
    """
    from manyhands.io.columns import find_name
    from manyhands.io.exports.documents import open_documents
    from manyhands.io.exports.parsing import columns_as_text
    from manyhands.io.sheets import stated_of

    documents = open_documents(one_path(path), stated=stated_of(dict(options)))
    if len(documents) != 1:
        return None
    columns = columns_as_text(documents[0])
    task, worker, label = (
        find_name(list(columns), role, str(options.get(role) or role))
        for role in ("task", "worker", "label")
    )
    if task not in columns:
        return None
    n_items = len(set(columns[task]))
    found = []
    for name, cells in columns.items():
        n_values, n_pairs = len(set(cells)), len(set(zip(columns[task], cells, strict=True)))
        is_free = name not in {task, worker, label, *without}
        if is_free and n_pairs == n_items and 1 < n_values <= n_items / 2:
            found.append(name)
    return found


def header_of(path: Path | list[Path], options: dict[str, Any]) -> list[str]:
    """Return the names of the columns, or keys, of the first of some files."""
    from manyhands.io.exports.documents import open_documents
    from manyhands.io.sheets import stated_of

    documents = open_documents(one_path(path), most=200, stated=stated_of(dict(options)))
    return [name for d in documents[:1] for name in (d.header or list(d.first))]


def one_path(path: Path | list[Path]) -> Path:
    """Return the only path, or the first of several."""
    return path[0] if isinstance(path, list) else path
