"""Reading features, texts or images together with the annotations of the same rows."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import numpy as np

from manyhands.annotations import AnnotationTable, LabelSetTable
from manyhands.annotations.encoding import missing_mask
from manyhands.annotations.ids import are_shuffled, first_and_last, id_column
from manyhands.annotations.wide import with_joined_task
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.io.annotations import read_annotations, read_with_account
from manyhands.io.columns import canonical, find_name, preview
from manyhands.io.encodings import find_encoding
from manyhands.io.exports.reading import report_losses
from manyhands.io.exports.records import Export
from manyhands.io.features import FeatureFile, holder_of_ids, only_ids, read_features, row_ids_of
from manyhands.io.files import PathLike, existing_file, is_typed, naming, suffix_of
from manyhands.io.frames import read_frame
from manyhands.io.label_sets import read_sets_with_account
from manyhands.io.long_tables import over_tasks
from manyhands.io.sheets import Stated, stated_of
from manyhands.typing import AnyArray

_LOG = logging.getLogger("manyhands")

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""Suffixes of files that are read as images."""


def read_aligned(
    features_path: PathLike | FeatureFile,
    annotations_path: PathLike | Sequence[PathLike],
    **options: Any,
) -> tuple[FeatureFile, AnnotationTable]:
    """Read features and annotations such that row i of X is instance i of the table.

    If the feature file holds ids, the tasks of the annotations are matched with them; the integer 7
    and the text "7" are the same id. A column of ids is known by its name, or else by its values:
    it alone holds the tasks of the annotations. The rows of a dense matrix have no ids and are
    taken in the order of the features, with a warning if the features are visibly shuffled. If the
    feature file holds no ids, integer tasks are row numbers of X, counted from 0, and a dense
    matrix must have as many rows as X.

    Parameters
    ----------
    features_path : str, Path or FeatureFile
        See `read_features`; or what `read_texts` returned.
    annotations_path : str or Path
        See `read_annotations`.
    **options
        Passed to `read_annotations` (all but ``tasks``).

    Returns
    -------
    features : FeatureFile
    table : AnnotationTable
        ``len(table) == len(features)``; rows without annotations are instances, too.

    Raises
    ------
    FileNotFoundError
        If the file of features does not exist.
    AnnotationError
        If a task has no features, or tasks are strings and the features have no ids.
    """
    if isinstance(features_path, FeatureFile):
        return _aligned(lambda _: features_path, "the texts", annotations_path, options)
    existing_file(features_path)  # Annotations are read first, and may be refused before.
    own: dict[str, Any] = {name: options.get(name) for name in ("encoding", "separator")}
    return _aligned(
        lambda wanted: read_features(features_path, wanted=wanted, **own),
        str(features_path),
        annotations_path,
        options,
    )


def _aligned(
    read: Callable[[AnyArray | None], FeatureFile],
    name: str,
    annotations_path: PathLike | Sequence[PathLike],
    options: dict[str, Any],
) -> tuple[FeatureFile, AnnotationTable]:
    """Read annotations and then, given the ids of their instances, the rows that ``read`` finds."""
    if (
        isinstance(annotations_path, str | os.PathLike)
        and suffix_of(Path(str(annotations_path))) == ".npy"
    ):
        features = read(None)
        rows = np.arange(len(features)) if features.tasks is None else features.tasks
        if features.tasks is not None and are_shuffled(rows):
            warn_caller(
                f"{name}: the rows of X are shuffled (ids {first_and_last(rows)}) and "
                f"{annotations_path} has no ids, so row i of the matrix is taken to belong to row "
                "i of X. If it does not, give the annotations as a long table with the ids as tasks"
            )
        return features, read_annotations(annotations_path, tasks=rows, **options)
    table = read_annotations(annotations_path, **options)
    features = read(table.instances)
    if features.tasks is not None:
        return features, over_tasks(table, features.tasks)
    rows = np.arange(len(features))
    _check_row_numbers(table.instances, len(rows), annotations_path, name)
    return features, over_tasks(table, rows)


def _check_row_numbers(ids: AnyArray, n: int, annotations: Any, features: PathLike) -> None:
    """Raise an error if tasks cannot be row numbers of X."""
    if ids.dtype.kind not in "iu" and len(ids):
        raise AnnotationError(
            f"{annotations}: tasks are strings ({preview(ids)}), but {features} has no ids to "
            "match them with. Store the ids with X (np.savez(file, X=X, task=ids), or a column "
            "'task' in a table), or use the row numbers 0, 1, ... as tasks"
        )
    outside = ids[(ids < 0) | (ids >= n)]
    if len(outside):
        raise AnnotationError(
            f"{annotations}: {len(outside)} tasks ({preview(outside)}) are not row numbers "
            f"0..{n - 1} of {features}, which has no ids. Count rows from 0, or store the ids "
            "with X (np.savez(file, X=X, task=ids))"
        )


# -- texts and images -----------------------------------------------------------------------------


def read_texts(
    path: PathLike,
    *,
    task: str | None = None,
    wanted: AnyArray | None = None,
    encoding: str | None = None,
    separator: str | None = None,
    sheet: str | None = None,
) -> FeatureFile:
    """Read texts: one in every line of a .txt file, or a column of a table.

    Parameters
    ----------
    path : str or Path
        .txt; or CSV of any separator, .xlsx, .parquet or .pq with a column ``text``, or with a
        single column besides that of the ids (``task``, ``id``, ``review_id``, ...).
    task : str, optional
        Column of the ids, if the file has it.
    wanted : array, optional
        As in `read_features`. Without them, the only column that is named like ids is taken as the
        ids, or else the only one beside ``text`` that could hold ids, which differ and are no
        fractions.
    encoding, separator, sheet : str, optional
        As in `read_annotations`.

    Raises
    ------
    FileNotFoundError, AnnotationError
        As in `read_features`; if a text is missing, or several columns could hold the texts.
    """
    path = existing_file(path)
    with naming(path):
        if suffix_of(path) == ".txt":
            with path.open("rb") as file:
                found = find_encoding(file, encoding)
            if found.note is not None:
                _LOG.info("%s: %s", path.name, found.note)
            # Lines end at "\n" and "\r\n" only, and not at the other characters of splitlines().
            lines = path.read_bytes().decode(found.name).removesuffix("\n").split("\n")
            return FeatureFile(_as_column(line.removesuffix("\r") for line in lines))
        frame = read_frame(path, Stated(encoding, separator, sheet))
        columns = list(frame.columns)
        id_name = task if task in columns else _id_of_texts(frame, wanted, path)
        others = [name for name in columns if name != id_name]
        if "text" not in others and len(others) != 1:
            more = ", or pass task=<name of the other>" if len(others) == 2 else ""
            raise AnnotationError(
                f"it is unclear which column holds the texts ({preview(others)}); rename it to "
                f"'text'{more}"
            )
        name = "text" if "text" in others else others[0]
        ids = None if id_name is None else row_ids_of(_ids_of(frame, id_name, path), len(frame))
        texts = _cells(frame, name)
        _check_no_gaps(texts, ids, f"text in column {name!r}")
        return FeatureFile(_as_column(texts), ids)


def _id_of_texts(frame: Any, wanted: AnyArray | None, path: Path) -> str | None:
    """Find the column of the ids of texts: by its name, else by its values."""
    columns = list(frame.columns)
    if len(columns) < 2:
        return None
    cells = {name: _cells(frame, name) for name in columns if name != "text"}
    index = next((name for name in cells if name in ("", "__index_level_0__")), None)
    # pandas' default index, 0 to n - 1, holds the ids only if no other column does.
    if index is not None and all(str(each) == str(i) for i, each in enumerate(cells[index])):
        del cells[index]
    found = id_column([name for name in columns if name in cells or name == "text"])
    if found is None and wanted is not None:
        found = holder_of_ids(cells, wanted, path)
    if found is None and (name := find_name(list(cells), "task", "task")) in cells:
        _LOG.info("%s: %r is taken as the ids, because of its name", path.name, name)
        found = name
    if found is None and wanted is None and "text" in columns:
        found = only_ids(cells, "no other column could hold them", path)
    return index if found is None else found


def read_images(folder: PathLike) -> FeatureFile:
    """List the images of a folder and its subfolders; their ids are paths without suffix.

    Raises
    ------
    FileNotFoundError, AnnotationError
        If there is no such folder, or no image in it.
    """
    files = _image_files(Path(folder))
    stems = [name.rsplit(".", 1)[0] for name in files]
    names = stems if len(set(stems)) == len(stems) else list(files)
    return FeatureFile(_as_column(map(str, files.values())), np.array(names))


def read_raw_aligned(
    kind: Literal["texts", "images"],
    source: str,
    annotations_path: PathLike | Sequence[PathLike],
    **options: Any,
) -> tuple[FeatureFile, AnnotationTable]:
    """Read texts or images such that row i is instance i of the table.

    Parameters
    ----------
    kind : {"texts", "images"}
    source : str
        A file of texts (`read_texts`); a folder of images that are named by task, or whose names
        are in a field of the export's items; or the name of a column of the annotations, or of a
        field of the export's items, that holds the texts, or the paths of images relative to the
        annotations.
    annotations_path, **options : as in `read_aligned`

    Raises
    ------
    AnnotationError
        If the source is none of these, a task has no text or image, or has several texts.
    """
    path = Path(source)
    if kind == "texts" and path.is_file():
        own = {n: options.get(n) for n in ("task", "encoding", "separator")}
        return _aligned(
            lambda wanted: read_texts(path, wanted=wanted, **own),
            "the texts",
            annotations_path,
            options,
        )
    table, export = read_with_account(annotations_path, **options)
    if export is not None:
        report_losses(export, annotations_path)
    return _raw_of(kind, source, annotations_path, table, export, options)


def _raw_of(
    kind: str,
    source: str,
    annotations_path: Any,
    table: AnnotationTable,
    export: Export | None,
    options: dict[str, Any],
) -> tuple[FeatureFile, AnnotationTable]:
    """Read texts or images that the annotations name, or that a folder holds."""
    path = Path(source)
    if export is not None:
        ids, columns = export.items.ids, export.items.columns
    else:
        ids, columns = _columns_by_task(
            annotations_path, table, options.get("task", "task"), source, stated_of(options)
        )
    if kind == "images" and path.is_dir():
        return _from_folder(path, table, ids, columns)
    if source not in columns:
        wanted = "a file" if kind == "texts" else "a folder"
        raise AnnotationError(
            f"{kind}={source!r} is neither {wanted} (looked in {Path.cwd()}) nor a column or field "
            f"of {annotations_path}, which has {preview(list(columns)) or 'none'}"
        )
    values = columns[source]
    _check_no_gaps(values, ids, f"{kind[:-1]} in {source!r}")
    if kind == "images":
        values = [_local(str(value), _parent(annotations_path)) for value in values]
    return FeatureFile(_as_column(map(str, values)), ids), over_tasks(table, ids)


def read_aligned_sets(
    kind: Literal["features", "texts", "images"],
    source: PathLike,
    annotations_path: PathLike | Sequence[PathLike],
    **options: Any,
) -> tuple[FeatureFile, LabelSetTable]:
    """Read features, texts or images such that row i is instance i of a table of label sets.

    Parameters
    ----------
    kind : {"features", "texts", "images"}
    source : str or Path
        As in `read_aligned`, for features, and else as in `read_raw_aligned`.
    annotations_path, **options
        See `manyhands.io.read_label_sets`.

    Returns
    -------
    features : FeatureFile
    table : LabelSetTable
        ``len(table) == len(features)``; rows without answers are instances, too.

    Raises
    ------
    AnnotationError
        As in `read_label_sets`, `read_aligned` and `read_raw_aligned`.
    """
    table, export = read_sets_with_account(annotations_path, **options)
    own: dict[str, Any] = {name: options.get(name) for name in ("encoding", "separator")}
    if kind == "images" or (kind == "texts" and not Path(source).is_file()):
        features, answers = _raw_of(
            kind, str(source), annotations_path, table.answers, export, options
        )
        return features, replace(table, answers=answers)
    own["wanted"] = table.instances
    if kind == "texts":
        features = read_texts(source, task=options.get("task"), **own)
    else:
        features = read_features(source, **own)
    tasks = features.tasks
    if tasks is None:
        tasks = np.arange(len(features))
        _check_row_numbers(table.instances, len(tasks), annotations_path, source)
    return features, replace(table, answers=over_tasks(table.answers, tasks))


def _ids_of(frame: Any, name: str, path: Path) -> AnyArray:
    ids: AnyArray = frame[name].to_numpy()
    return ids if is_typed(path) else canonical(ids)


def _cells(frame: Any, name: str) -> list[Any]:
    """Return the values of a column, None where a cell is empty."""
    values = frame[name].to_numpy()
    gaps = missing_mask(values).tolist()
    return [None if gap else value for gap, value in zip(gaps, values.tolist(), strict=True)]


def _as_column(values: Iterable[Any]) -> AnyArray:
    listed = list(values)
    column = np.empty(len(listed), dtype=object)
    column[:] = listed
    return column


def _check_no_gaps(values: Sequence[Any], ids: AnyArray | None, what: str) -> None:
    gaps = np.flatnonzero([value is None or not str(value).strip() for value in values])
    if len(gaps):
        named = "row" if ids is None else "task"
        shown = gaps if ids is None else ids[gaps]
        raise AnnotationError(
            f"{len(gaps)} of {len(values)} have no {what} ({named} {preview(shown)}); fill these "
            "in, or drop them"
        )


def _parent(paths: PathLike | Sequence[PathLike]) -> Path:
    return Path(paths if isinstance(paths, str | os.PathLike) else paths[0]).parent


def _local(value: str, beside: Path) -> Path:
    """Return the path of an image beside the annotations; web addresses are not fetched."""
    if "://" in value:
        raise AnnotationError(
            f"{value!r} is a web address, but images are not fetched; download them into a folder, "
            "and give images='FOLDER'"
        )
    return beside / value


def _columns_by_task(
    annotations: Any,
    table: AnnotationTable,
    task: str | Sequence[str],
    wanted: str,
    stated: Stated,
) -> tuple[AnyArray, dict[str, list[Any]]]:
    """Return the columns that hold one value for each task, as the wanted one must."""
    path = Path(str(annotations))
    if suffix_of(path) == ".npy":
        return table.instances, {}
    frame, task = with_joined_task(read_frame(path, stated), task)
    ids = _ids_of(frame, find_name(frame.columns, "task", task), path)
    first = {key: row for row, key in reversed(list(enumerate(ids.astype(str).tolist())))}
    rows = [first[str(key)] for key in table.instances.tolist()]
    back = [first[key] for key in ids.astype(str).tolist()]
    columns = {}
    for name in frame.columns:
        values = _cells(frame, name)
        if all(values[row] == value for row, value in zip(back, values, strict=True)):
            columns[name] = [values[row] for row in rows]
        elif name == wanted:
            said: dict[str, set[Any]] = {}
            for key, value in zip(ids.astype(str).tolist(), values, strict=True):
                said.setdefault(key, set()).add(value)
            key = next(key for key, found in said.items() if len(found) > 1)
            raise AnnotationError(
                f"{path}: column {name!r} holds {len(said[key])} different values for task {key}, "
                "but must hold one value for each task; correct it, or name another column"
            )
    return table.instances, columns


def _image_files(folder: Path) -> dict[str, Path]:
    """Return the images in a folder by their paths within it."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder (looked in {Path.cwd()}); give the folder of the images"
        )
    found = {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()  # A pipe would never end.
    }
    if not found:
        raise AnnotationError(
            f"{folder} holds no images; give a folder of files that end in "
            f"{', '.join(IMAGE_SUFFIXES)}"
        )
    return found


def shown_image(name: PathLike, folder: PathLike, task: str | None = None) -> Path:
    """Return the file of an image that a page may show, links resolved.

    Parameters
    ----------
    name : str or Path
    folder : str or Path
        Whoever wrote the annotations, or packed the folder, could name any file of this machine,
        and the page may be given to others.
    task : str, optional
        For the message.

    Raises
    ------
    AnnotationError
        If it lies outside of the folder, also through a link.
    """
    path = Path(name).resolve()
    if not path.is_relative_to(Path(folder).resolve()):
        whose = "" if task is None else f" of task {task}"
        raise AnnotationError(
            f"the image {str(name)!r}{whose} is not within {str(folder)!r}; only files in this "
            "folder are shown. Copy the image into it"
        )
    return path


def _from_folder(
    folder: Path, table: AnnotationTable, ids: AnyArray, columns: dict[str, list[Any]]
) -> tuple[FeatureFile, AnnotationTable]:
    """Match the images of a folder with tasks, by id or by a field that names the file."""
    files = _image_files(folder)
    stems = [name.rsplit(".", 1)[0] for name in files]
    wanted = set(table.instances.astype(str).tolist())
    for names in (list(files), stems):
        if wanted <= set(names) and len(set(names)) == len(names):
            tasks = np.array(names)
            return FeatureFile(_as_column(map(str, files.values())), tasks), over_tasks(
                table, tasks
            )
    by_name = {Path(name).stem: path for name, path in files.items()}
    by_name |= {Path(name).name: path for name, path in files.items()}
    best: list[Any] = [None] * len(ids)
    for values in (ids.tolist(), *columns.values()):
        found = [by_name.get(_file_name(str(value), by_name)) for value in values]
        best = max(best, found, key=lambda paths: sum(path is not None for path in paths))
    missing = ids[[path is None for path in best]]
    if len(missing):
        raise AnnotationError(
            f"{len(missing)} of {len(ids)} tasks ({preview(missing)}) have no image in {folder}, "
            f"which holds {preview(list(files))}; name the files by the ids of the tasks"
        )
    return FeatureFile(_as_column(map(str, best)), ids), over_tasks(table, ids)


def _file_name(value: str, known: Collection[str]) -> str:
    """Return the file name of a path or address, without the prefix that Label Studio adds."""
    name = unquote(urlsplit(value).path).replace("\\", "/").rsplit("/", 1)[-1]
    return name if name in known else re.sub(r"^[0-9a-f]{8}-", "", name)
