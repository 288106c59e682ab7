"""Output files of a job (model, labels, summary and report), and jobs that read them.

A job writes all its files into a staging folder inside its own folder. When all are complete,
`manyhands.fitting.folders.publish` puts them in place, so a failure at any moment leaves the files
of an earlier job, or the new ones.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.pipeline import Pipeline, make_pipeline

from manyhands.annotations import AnnotationTable
from manyhands.annotations.class_order import unit_of_grades
from manyhands.annotations.encoding import missing_mask
from manyhands.decision.labels import is_scale_of_grades
from manyhands.decision.rules import AUTO, apply_rule
from manyhands.exceptions import (
    AnnotationError,
    ModelFolderError,
    WriteError,
    warn_caller,
)
from manyhands.files import as_word, check_writable, explain, file_lock
from manyhands.fitting.folders import (
    LOCK,
    STAGING,
    publish,
    read_description,
    settle,
    settle_held,
)
from manyhands.fitting.saving import holds_aggregator
from manyhands.inference.base import BaseAggregator
from manyhands.inference.rating_mean import RatingMean
from manyhands.inference.set_aggregator import BaseSetAggregator
from manyhands.io import (
    Consensus,
    Export,
    GoldFile,
    consensus,
    read_features,
    read_images,
    read_raw_aligned,
    read_texts,
    write_atomically,
)
from manyhands.io.columns import preview
from manyhands.io.csv_files import released
from manyhands.io.frames import check_table_path, write_table
from manyhands.io.gold import REVIEWED
from manyhands.io.sheets import read_sheet
from manyhands.io.shown import Shown, with_shown
from manyhands.jobs.gold import GoldRows, note_unused_gold
from manyhands.metrics import Level, accuracy_on_new_items
from manyhands.metrics.certainty import (
    Certainty,
    certainty_of,
    interval_of_some,
    label_probability,
    n_less_probable,
)
from manyhands.models import load, save
from manyhands.ranking.bradley_terry import BradleyTerry
from manyhands.report import (
    Contents,
    read_contents,
    read_inputs,
    summarize_inputs,
    summary_tables,
    write_report,
)
from manyhands.report.headline import is_told, told_of_new_items
from manyhands.report.html import read_summary
from manyhands.report.inputs import class_positions
from manyhands.report.labels import CERTAIN, at_cutoffs
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray
from manyhands.wording import percent, told_of_rule, too_much

LABELS, ANNOTATORS, SUMMARY = "labels.csv", "annotators.csv", "summary.json"
OUTPUTS = ("model.json", LABELS, ANNOTATORS, SUMMARY, "report.html")
"""Files in a job's folder, besides the weights (named by their content)."""


class NewItems(NamedTuple):
    """How often a classifier is right on new items, and how probable that makes its predictions.

    Attributes
    ----------
    level : Level
    certainty : dict {"value", "low" or "high": Certainty}
        Maps from the classifier's own probability of a predicted label to the one that we report.
        They give the predictions that the level rests on the share of right ones as their mean, or
        an end of its interval.
    """

    level: Level
    certainty: dict[str, Certainty]

    @classmethod
    def of(cls, level: Level | None, probability: FloatArray, n_classes: int) -> NewItems | None:
        """Find the maps from the probabilities of predicted labels; None if nothing is known."""
        if level is None:
            return None
        ends = {"value": level.value, "low": level.low, "high": level.high}
        maps = {
            name: Certainty.of(level._replace(value=end), probability, n_classes)
            for name, end in ends.items()
        }
        return cls(level, maps)


@contextmanager
def job_folder(folder: str | Path) -> Iterator[Path]:
    """Create a folder to write into, for one job at a time; a failure leaves no empty folder.

    The files of an earlier job stay until `manyhands.fitting.folders.publish`.

    Raises
    ------
    WriteError
        If it cannot be written, another job is writing into it, or it holds a ``labels.csv`` or an
        ``annotators.csv`` that is not from manyhands (such as gold labels).
    """
    folder = Path(folder)
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        check_writable(folder)
        settle(folder)
        ours = any((folder / name).exists() for name in ("model.json", SUMMARY))
        for name in (LABELS, ANNOTATORS):
            if (folder / name).exists() and not ours:
                raise WriteError(
                    errno.EEXIST,
                    f"{str(folder / name)!r} would be overwritten, but manyhands did not write it "
                    "(there is no model beside it). Choose another folder",
                )
        for name in OUTPUTS:
            if (folder / name).is_dir():
                raise WriteError(errno.EISDIR, explain(OSError(errno.EISDIR, ""), folder / name))
        with file_lock(folder / LOCK) as held:
            if not held:
                raise WriteError(
                    errno.EBUSY,
                    f"cannot write {str(folder)!r}: another manyhands command is writing into it; "
                    "wait until it is done, or choose another folder",
                )
            settle_held(folder)
            try:
                yield folder
            finally:
                shutil.rmtree(folder / STAGING, ignore_errors=True)
    except BaseException:
        for path in created:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise


def keep_model(
    model: Any,
    X: Any,
    train: AnnotationTable,
    folder: Path,
    *,
    gold: GoldRows | None = None,
    known: BoolArray | None = None,
    drawn: BoolArray | None = None,
    title: str | None = None,
    keep_formulas: bool = False,
    selection: dict[str, Any] | None = None,
    encoder: Any = None,
    export: Export | None = None,
    shown: Shown | None = None,
    new_items: NewItems | None = None,
    files: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], Consensus]:
    """Write model, inferred labels, annotators and summary into a job's folder, for `publish`.

    An encoder, which made X of texts or images, is saved in front of the model. An export has the
    times of its annotations. ``known`` masks the instances whose label is known, ``drawn`` those of
    them that were drawn at random, and ``shown`` is what the table of labels says of the items.
    ``files`` are the names in the report's commands; see `manyhands.report.commands`.
    Returns the summary and the labels.
    """
    # A method's own posterior_ is preferred, because it combines annotations and features.
    proba = model.posterior_ if hasattr(model, "posterior_") else model.predict_proba(X)
    if not hasattr(model, "posterior_") and hasattr(model, "_decide"):
        codes = model._decide(proba)
    else:
        codes = apply_rule(proba, AUTO, grades=is_scale_of_grades(train))
    positions = class_positions(model, train, "classifier")
    over_classes = np.zeros((train.n_instances, train.n_classes))
    over_classes[:, positions] = proba
    values = np.array([*train.classes.tolist(), None], dtype=object)
    codes = np.where(codes < 0, -1, positions[codes])
    labels = values[codes]
    note = getattr(model, "sample_note_", None)  # Then only what is known may be accepted.
    decided = None if note is None else np.zeros(train.n_instances, dtype=bool)
    gold_values = None
    if gold is not None:
        # The report covers annotated rows only, so gold of test rows is left out.
        annotated = train.annotations_per_instance() > 0
        gold_values = values[np.where(annotated, gold.codes, -1)]
    inputs = read_inputs(train, classifier=model, X=X, gold=gold_values, **times_of(export, train))
    certainty = certainty_of(train, inputs.level, over_classes, codes, known)
    told = certainty.of_labels(over_classes, codes, known)
    found = consensus(
        train, over_classes, labels, known=known, identified=decided, probability=told
    )
    found = replace(found, random=drawn)
    level = None if new_items is None else new_items.level
    summary, profiles = summarize_inputs(inputs, selection, title, level, found)
    if new_items is not None and summary["levels"] is not None:
        maps = {name: asdict(each) for name, each in new_items.certainty.items()}
        summary["levels"]["certainty"] = maps
    note_unused_gold(summary, export)
    name_files(summary, folder, files)
    staged = folder / STAGING
    if any(hasattr(model, name) for name in ("module_", "estimators_", "stack_")):
        save(model if encoder is None else make_pipeline(encoder, model), staged)
    keep_tables(staged, found, profiles, summary, shown, keep_formulas=keep_formulas)
    return summary, found


def labels_rest_on(model: Any) -> str:
    """Return what a classifier infers labels from: "features", or "annotations and features"."""
    return "annotations and features" if hasattr(model, "posterior_") else "features"


def keep_tables(
    staged: Path,
    found: Consensus,
    annotators: dict[str, list[Any]],
    summary: dict[str, Any],
    shown: Shown | None = None,
    *,
    keep_formulas: bool = False,
) -> None:
    """Write ``labels.csv``, ``annotators.csv`` and ``summary.json``, as every job does."""
    _write_labels(staged, found, annotators, shown, keep_formulas=keep_formulas)
    write_atomically(staged / SUMMARY, json.dumps(summary, indent=1, allow_nan=False))


def _write_labels(
    staged: Path,
    found: Consensus,
    annotators: dict[str, list[Any]],
    shown: Shown | None,
    *,
    keep_formulas: bool,
) -> None:
    labels = with_shown(found.columns(), shown)
    write_table(staged / LABELS, labels, keep_formulas=keep_formulas)
    write_table(staged / ANNOTATORS, annotators, keep_formulas=keep_formulas)


def times_of(export: Export | None, table: AnnotationTable) -> dict[str, FloatArray]:
    """Return ``seconds`` and ``ended`` of a table's annotations, matched by instance and annotator.

    The table may hold some of the export's annotations, in another order; without times, nothing
    is returned.
    """
    if export is None or export.table is None:
        return {}
    known = {"seconds": export.seconds, "ended": export.ended}
    known = {name: values for name, values in known.items() if np.isfinite(values).any()}
    if not known:
        return {}
    rows = {pair: row for row, pair in enumerate(_pairs(export.table))}
    place = np.array([rows.get(pair, -1) for pair in _pairs(table)], dtype=np.int64)
    return {
        name: np.where(place >= 0, np.append(values, np.nan)[place], np.nan)
        for name, values in known.items()
    }


def _pairs(table: AnnotationTable) -> Iterator[tuple[str, str]]:
    """Yield the instance and annotator of every annotation, as text."""
    instances, annotators = table.instances.astype(str), table.annotators.astype(str)
    return zip(
        instances[table.instance].tolist(), annotators[table.annotator].tolist(), strict=True
    )


def keep_labels(
    folder: Path,
    model: BaseAggregator,
    found: Consensus,
    annotators: dict[str, list[Any]],
    summary: dict[str, Any],
    shown: Shown | None = None,
    *,
    files: Mapping[str, Any] | None = None,
    keep_formulas: bool = False,
) -> list[Path]:
    """Write model, labels, annotators, summary and report of a job without features into a folder.

    ``files`` are the names in the report's commands; see `manyhands.report.commands`.

    Raises WriteError for the reasons of `job_folder`, or if the folder contains a classifier.
    """

    def write(staged: Path) -> None:
        _write_labels(staged, found, annotators, shown, keep_formulas=keep_formulas)

    return keep_aggregator(folder, model, summary, write, shown, files=files)


def keep_aggregator(
    folder: Path,
    model: Any,
    summary: dict[str, Any],
    write: Callable[[Path], None],
    shown: Shown | None = None,
    *,
    files: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write an aggregator, its tables, summary and report into a folder; return the files.

    ``write(place)`` writes the labels and the tables beside them; ``files`` are as in
    `keep_labels`.

    Raises
    ------
    WriteError
        For the reasons of `job_folder`, or if the folder contains a classifier.
    """
    with job_folder(folder) as place:
        if (place / "model.json").exists() and not holds_aggregator(place):
            raise WriteError(
                errno.EEXIST,
                f"cannot write {str(folder)!r}: its model is from fit; choose another folder",
            )
        staged = place / STAGING
        save(model, staged)
        write(staged)
        name_files(summary, folder, files)
        write_atomically(staged / SUMMARY, json.dumps(summary, indent=1, allow_nan=False))
        write_report(staged / SUMMARY, staged / "report.html", contents_of(shown))
        written = sorted(p.name for p in staged.iterdir() if p.suffix != ".safetensors")
        publish(place)
    return [folder / name for name in written]


def name_files(
    summary: dict[str, Any], folder: str | Path, files: Mapping[str, Any] | None = None
) -> None:
    """Add the names of files that the report's commands need to a summary.

    See `manyhands.report.commands`.
    """
    summary["files"] = {**(files or {}), "folder": as_word(folder)}


def files_with_more(
    folder: str | Path, files: Mapping[str, Any] | None, *, whole: bool = False
) -> dict[str, Any] | None:
    """Return the names of a folder's files and of those that are added to it.

    Parameters
    ----------
    folder : str or Path
        Of an earlier job.
    files : dict, optional
        Of the new annotations.
    whole : bool
        Whether the new files hold the earlier annotations, too.

    Returns
    -------
    dict or None
        None if one of the two is not known.
    """
    try:
        before = json.loads(Path(folder, SUMMARY).read_text(encoding="utf-8"))["files"]
        earlier = {name: list(before[name]) for name in ("annotations", "known", "options")}
        name = str(before["name"])
    except (OSError, ValueError, KeyError, TypeError):  # Not by a command, or an earlier release.
        return None
    if files is None:
        return None
    more = {key: [*files[key]] for key in ("annotations", "known")}
    if not whole:
        more["annotations"] = [*dict.fromkeys([*earlier["annotations"], *more["annotations"]])]
    more["known"] = [*earlier["known"], *more["known"]]
    return {**files, **more, "options": earlier["options"], "name": name}


def predict_file(
    folder: str | Path,
    features: str | Path | None = None,
    out: str | Path | None = None,
    *,
    texts: str | Path | None = None,
    images: str | Path | None = None,
    annotations: Path | list[Path] | None = None,
    options: dict[str, Any] | None = None,
    gold: GoldFile | None = None,
    keep_formulas: bool = False,
) -> dict[str, Any]:
    """Predict the rows of a file with a saved model, and write them if ``out`` is given.

    The file holds features (`manyhands.io.read_features`) or texts (`read_texts`); ``images`` is a
    folder (`read_images`). With ``annotations``, a table or an export that is read with
    ``options``, texts and images may also be its column or field (`read_raw_aligned`).

    With ``gold``, true classes of some rows, the share of right predictions is measured on those
    that the model was not trained on (``level``, and in words ``headline``).

    The mean of ``probability`` over new items is the share of right predictions that the folder's
    job estimated; it is None where the job did not. What it is, and how often the model is right on
    new items as far as the folder knows, is told in ``about``. ``cutoffs`` says how many of these
    predictions have at least a given probability, and how many of them should be right.

    See `manyhands.io.frames.write_table` for the formats of ``out``, and ``keep_formulas``.
    """
    if out is not None:
        check_table_path(out)
    model = load_classifier(folder)
    check_kind(model, {"--features": features, "--texts": texts, "--images": images})
    own = {name: (options or {}).get(name) for name in ("encoding", "separator")}
    if annotations is not None and features is None:
        kind: Any = "images" if texts is None else "texts"
        data = read_raw_aligned(kind, str(images or texts), annotations, **(options or {}))[0]
    elif texts is not None:
        data = read_texts(texts, task=_task_of(folder, options or {}), **own)
    elif images is not None:
        data = read_images(images)
    elif features is not None:
        data = read_features(features, known=getattr(model, "feature_names_in_", ()), **own)
    tasks = np.arange(len(data)) if data.tasks is None else data.tasks
    proba = model.predict_proba(data.frame)
    last = model[-1] if isinstance(model, Pipeline) else model
    codes = last._decide(proba)
    expected, certainty = _read_new_items(Path(folder), len(model.classes_))
    classifier = label_probability(proba, codes)
    told = certainty["value"](classifier)
    if out is not None:
        columns = label_columns(codes, proba, told, tasks, model.classes_)
        write_table(out, columns, keep_formulas=keep_formulas)
    about = [] if gold is not None else [told_of_new_items(expected)]
    about += _about_probabilities(classifier, told, expected is not None)
    about += _about_rule(last, codes, proba)
    found: dict[str, Any] = {
        "n_instances": len(data),
        "labels": label_rows(codes, told, tasks, model.classes_),
        "about": about,
        "cutoffs": prediction_cutoffs(classifier, certainty),
    }
    return found if gold is None else found | _measured(folder, gold, tasks, model.classes_[codes])


def _read_new_items(
    folder: Path, n_classes: int
) -> tuple[Mapping[str, Any] | None, dict[str, Certainty]]:
    """Read the level on new items and the maps of `NewItems`; without a level, they tell nothing.

    A folder of an earlier release has no maps.
    """
    unknown = {name: Certainty(n_classes) for name in ("value", "low", "high")}
    try:
        levels = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["levels"]
        level = levels["new_items"] if levels["has_classifier"] else None
        if not is_told(level):
            return None, unknown
        given = levels.get("certainty") or {}
        return level, unknown | {name: Certainty(**each) for name, each in given.items()}
    except (OSError, ValueError, KeyError, TypeError):  # No job wrote it, or an earlier release.
        return None, unknown


def _task_of(folder: str | Path, options: dict[str, Any]) -> str | None:
    """Return the name of the column of ids: that of the options, else the one given to the fit."""
    task = options.get("task", "task")
    if task != "task":
        return str(task)
    try:
        words = json.loads(Path(folder, SUMMARY).read_text(encoding="utf-8"))["files"]["reading"]
        return str(words[words.index("--task") + 1])
    except (OSError, ValueError, KeyError, TypeError, IndexError):  # It was not named.
        return None


def _about_probabilities(own: FloatArray, told: FloatArray, has_level: bool) -> list[str]:
    """Say what the probabilities of predictions are; ``own`` are the classifier's."""
    classifier = (
        "p(...): the classifier's own probabilities. They may be far too high or too low; by them, "
        f"{percent(float(own.mean()))} of these labels would be right."
    )
    if np.isnan(told).any():
        why = (
            "an earlier version of manyhands made this folder"
            if has_level
            else "it is not known how often such predictions are right"
        )
        few = "" if has_level else "; with few items, it may remain unknown"
        return [
            f"probability: empty, because {why}. Fit the model again with --folds 3 to have it "
            f"filled{few}.",
            classifier,
        ]
    lines = [
        "probability: how probable it is that the label is right, for new items that are like "
        "those of the training data. Its mean over such items is the share of right labels that "
        f"was estimated; over these items it is {percent(float(told.mean()))}.",
        classifier,
    ]
    if (top := float(told.max())) < CERTAIN:
        lines.append(
            f"No prediction is {percent(CERTAIN)} certain; the highest probability is "
            f"{percent(top)}."
        )
    return lines


def _about_rule(model: Any, codes: IntArray, proba: FloatArray) -> list[str]:
    """Say for how many items a decision rule took another label than the most probable class."""
    rule = getattr(model, "decision", AUTO)
    middle = isinstance(rule, str) and rule in (AUTO, "median")
    told = told_of_rule(n_less_probable(proba, codes), middle=middle)
    return [told] if told else []


def prediction_cutoffs(own: FloatArray, certainty: Mapping[str, Certainty]) -> list[dict[str, Any]]:
    """Count the predictions that are at least so probable, and how many of them are right."""
    told = {name: each(own) for name, each in certainty.items()}
    found = []
    for least, mask in at_cutoffs(told["value"]):
        low, value, high = (float(told[name][mask].mean()) for name in ("low", "value", "high"))
        n = int(mask.sum())
        ends = interval_of_some(value, (low, high), float(told["value"].mean()), n)
        row = {"at_least": least, "n": n, "expected": value}
        found.append(row | dict(zip(("low", "high"), ends, strict=True)))
    return found


def _measured(
    folder: str | Path, gold: GoldFile, tasks: AnyArray, predicted: AnyArray
) -> dict[str, Any]:
    """Measure predictions of items that a folder's model was not trained on, by gold labels."""
    given = dict(zip(map(str, gold.tasks.tolist()), gold.labels.tolist(), strict=True))
    true = np.array([given.get(str(task)) for task in tasks.tolist()], dtype=object)
    has = ~missing_mask(true)
    if not has.any():
        raise AnnotationError(
            f"none of the {len(gold):,} tasks with gold labels (such as "
            f"{preview(gold.tasks.tolist())}) is among the {len(tasks):,} items (such as "
            f"{preview(tasks.tolist())}); use the same ids in both"
        )
    trained = _trained_on(Path(folder))
    seen = np.array([str(task) in trained for task in tasks.tolist()], dtype=bool)
    if not trained:
        warn_caller(
            "the model was fitted to items without ids, so it is unknown whether it was trained on "
            "some of these; the measurement only holds if all of them are new"
        )
    elif (has & seen).any():
        warn_caller(
            f"left out {int((has & seen).sum()):,} of {int(has.sum()):,} gold labels, because the "
            "model was trained on their items, so they say nothing about new items"
        )
        true[seen] = None
    level = accuracy_on_new_items(gold=true, predicted=predicted)
    n = int((~missing_mask(true)).sum())
    if level is None:
        line = f"{n} gold labels of new items are too few to measure with; give at least 10"
    else:
        line = told_of_new_items(level.to_dict())
    return {"level": None if level is None else level.to_dict(), "headline": line}


def _trained_on(folder: Path) -> set[str]:
    """Return the ids that a folder's model was fitted to; none if it was fitted to rows.

    A folder without a table of labels, or with numbered items, names no ids.
    """
    if not (folder / LABELS).is_file():
        return set()
    sheet = read_sheet(folder / LABELS)
    columns = dict(zip(sheet.header, sheet.columns(), strict=False))
    tasks = [released(cell) for cell in columns.get("task", ())]
    if tasks == [str(k) for k in range(len(tasks))]:
        return set()
    given = columns.get("n_annotations", ("",) * len(tasks))
    return {task for task, n in zip(tasks, given, strict=True) if n != "0"}


def load_classifier(folder: str | Path) -> Any:
    """Load a model that reads features, texts or images.

    Raises
    ------
    AnnotationError
        If it is an aggregator, which reads annotations alone.
    """
    model = load(folder)
    if isinstance(model, BradleyTerry):
        raise AnnotationError(
            f"{folder} holds a ranking (BradleyTerry), which predicts no labels; give the folder "
            "of a classifier. The ranking is in the file ranking.csv of the folder"
        )
    if isinstance(model, BaseAggregator | BaseSetAggregator | RatingMean):
        raise AnnotationError(
            f"{folder} holds a {type(model).__name__}, which does not use features; give the "
            "folder of a classifier, or add annotations with aggregate --continue"
        )
    return model


def check_kind(model: Any, given: dict[str, Any]) -> None:
    """Refuse inputs of another kind than the model was fitted on.

    Raises
    ------
    AnnotationError
        If other inputs are given, or none.
    """
    first = model[0] if isinstance(model, Pipeline) else getattr(model, "encoder_", None)
    wanted = {"TextEncoder": "--texts", "ImageEncoder": "--images"}.get(
        type(first).__name__, "--features"
    )
    named = [name for name, value in given.items() if value is not None]
    if named != [wanted]:
        kind, example = {
            "--features": (
                "features",
                "--features FILE, with one row per item and the columns that fit was given (a "
                "column 'task' holds the ids),",
            ),
            "--texts": ("texts", "--texts FILE"),
            "--images": ("images", "--images DIR"),
        }[wanted]
        raise AnnotationError(
            f"the model was fitted on {kind}, so give {example} and nothing else (given: "
            f"{', '.join(named) or 'nothing'})"
        )


NO_TEXTS = "none"
"""Value of ``texts`` that asks for a report without texts."""


def contents_of(shown: Shown | None) -> Contents | None:
    """Return the texts to show beside items in a report; None if there are none."""
    texts = {} if shown is None else shown.values
    found = {task: text for task, text in texts.items() if isinstance(text, str)}
    return Contents(found) if found else None


def _shown_in(folder: Path) -> Shown | None:
    """Return the columns of ``labels.csv`` that show the items, between ids and labels."""
    path = folder / LABELS
    names = list(pd.read_csv(path, nrows=0).columns) if path.is_file() else []
    if names[:1] != ["task"] or names[1:2] in ([], ["label"], ["labels"]):
        return None
    rows = pd.read_csv(path, usecols=names[:2], dtype=str).dropna()
    return Shown(names[1], dict(zip(rows["task"], rows[names[1]], strict=True)))


def _ids_in(folder: Path) -> AnyArray | None:
    """Return the ids in ``labels.csv``; None without it, or if they are none."""
    path = folder / LABELS
    names = list(pd.read_csv(path, nrows=0).columns) if path.is_file() else []
    if names[:1] != ["task"]:
        return None
    return pd.read_csv(path, usecols=names[:1], dtype=str, keep_default_na=False)["task"].to_numpy()


def report_folder(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    tables: str | Path | None = None,
    texts: str | Path | None = None,
    images: str | Path | None = None,
    keep_formulas: bool = False,
) -> Path:
    """Write the HTML report on a job's folder, by default into that folder.

    With ``tables``, every table of the report becomes a CSV file in that folder, too. With
    ``texts`` or ``images``, the page shows those of the instances that it names (see
    `manyhands.report.read_contents`); by default, the texts that ``labels.csv`` shows, and with
    "none" no texts.

    Raises
    ------
    ModelFolderError
        If the folder has no summary, the summary cannot be rendered, or ``model.json`` is damaged.
    WriteError
        If the page or a table cannot be written, or a table would replace a file of another kind.
    """
    path = Path(folder) / SUMMARY
    settle(Path(folder))
    if not path.is_file():
        raise ModelFolderError(
            f"{str(folder)!r} has no {SUMMARY}; give the folder that fit or aggregate --out wrote"
        )
    if (Path(folder) / "model.json").exists():
        try:
            read_description(Path(folder))
        except ModelFolderError as error:
            raise ModelFolderError(
                f"{error}. A report would pass off as sound what can no longer be read: run the "
                "command that made the folder again, with the same --out"
            ) from error
    if texts is None and images is None:
        contents = contents_of(_shown_in(Path(folder)))
    else:
        ids = _ids_in(Path(folder))
        contents = read_contents(None if str(texts) == NO_TEXTS else texts, images, ids=ids)
    try:
        summary = read_summary(path)
        named = {"files": {**(summary.get("files") or {}), "folder": as_word(folder)}}
        written = write_report({**summary, **named}, out or Path(folder) / "report.html", contents)
        if tables is not None:
            found = summary_tables(summary)
            _check_tables(Path(tables), found)
            for name, columns in found.items():
                write_table(Path(tables) / f"{name}.csv", columns, keep_formulas=keep_formulas)
            for name in (LABELS, ANNOTATORS):  # Complete, as the job wrote them.
                if (Path(folder) / name).is_file():
                    write_atomically(Path(tables) / name, (Path(folder) / name).read_bytes())
        return written
    except WriteError:
        raise
    except Exception as error:
        # A summary edited by hand can make a template fail in any way.
        own = isinstance(error, TypeError | LookupError | AttributeError)  # Python's words.
        raise ModelFolderError(
            f"{str(path)!r} cannot be rendered{'' if own else f' ({error})'}; it was truncated or "
            "edited, or another version of manyhands wrote it: run the command that made the "
            "folder again"
        ) from error


def _check_tables(folder: Path, tables: dict[str, Any]) -> None:
    """Refuse to replace files other than a report's tables, such as gold labels in gold.csv."""
    if (folder / "facts.csv").exists() and not (folder / SUMMARY).exists():
        return
    for name in tables:
        if (folder / f"{name}.csv").exists():
            raise WriteError(
                errno.EEXIST,
                f"{str(folder / name) + '.csv'!r} would be overwritten, but is not a table of a "
                "report. Choose another folder",
            )


def _severities_in_words(model: Any, half: FloatArray) -> list[str]:
    """Say how much too high annotators surely label, such as in stars; "" where it is unsure."""
    step, unit = unit_of_grades(model.classes_)
    told = zip(step * model.severity_, step * half, strict=True)
    return [
        too_much(value, value - width, value + width, unit and f" {unit}")
        if np.isfinite(value + width)
        else ""
        for value, width in told
    ]


def severity_rows(model: Any) -> list[dict[str, Any]]:
    """Return how many grades too high each annotator labels (severity), with 95 % intervals."""
    severity = getattr(model, "severity_", None)
    if severity is None:
        return []
    half = norm.ppf(0.975) * model.severity_se_
    columns = {
        "annotator": model.annotators_,
        "n_annotations": model.table_.annotations_per_annotator(),
        "severity": severity,
        "severity_low_95": severity - half,
        "severity_high_95": severity + half,
        "severity_in_words": _severities_in_words(model, half),
    }
    lists = (np.asarray(values).tolist() for values in columns.values())
    return [
        {
            name: (round(value, 6) if np.isfinite(value) else None)
            if isinstance(value, float)
            else value
            for name, value in zip(columns, row, strict=True)
        }
        for row in zip(*lists, strict=True)
    ]


def label_rows(
    codes: IntArray, probability: FloatArray, tasks: AnyArray, classes: AnyArray
) -> list[dict[str, Any]]:
    """Return the label and probability of each instance, as plain values.

    A code of -1 means undecided: the label is None. An unknown probability (NaN) is None.
    """
    values = [*classes.tolist(), None]
    return [
        {"task": task, "label": values[code], "probability": None if p != p else p}
        for task, code, p in zip(tasks.tolist(), codes, probability.tolist(), strict=True)
    ]


def label_columns(
    codes: IntArray, proba: AnyArray, told: FloatArray, tasks: AnyArray, classes: AnyArray
) -> dict[str, list[Any]]:
    """Return the columns of ``labels.csv`` that need no annotations.

    They are the label of each instance, the reported probability of it (NaN is left empty), the
    method's own probabilities of all classes, and ``reviewed``, for a person to fill in.
    """
    rows = label_rows(codes, told, tasks, classes)
    columns = {name: [row[name] for row in rows] for name in ("task", "label", "probability")}
    shares = dict(zip((f"p({c})" for c in classes.tolist()), proba.T.tolist(), strict=True))
    return columns | shares | {REVIEWED: [""] * len(rows)}
