"""Jobs on sets of labels: which options apply to every instance, in files and as a summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.agreement import krippendorff_alpha, option_agreement
from manyhands.agreement.set_distances import MOST_SETS
from manyhands.annotations import LabelSetTable
from manyhands.annotations.duplicates import Duplicates
from manyhands.annotations.label_set_frames import word_of_nothing
from manyhands.decision import SetDecision, decide_sets
from manyhands.exceptions import AnnotationError
from manyhands.files import write_atomically
from manyhands.inference import MultiLabelDawidSkene
from manyhands.inference.set_aggregator import BaseSetAggregator
from manyhands.io import Export
from manyhands.io.consensus_sets import SetConsensus, set_consensus
from manyhands.io.frames import write_table
from manyhands.io.shown import Shown
from manyhands.io.writers import check_separator, write_sets
from manyhands.jobs.aggregation import check_output, tool_file
from manyhands.jobs.outputs import (
    ANNOTATORS,
    LABELS,
    SUMMARY,
    keep_aggregator,
)
from manyhands.metrics.set_levels import levels_of_sets
from manyhands.models import load
from manyhands.report import Contents, summarize_sets, write_report
from manyhands.report.label_sets import (
    SetFindings,
    flagged_annotators,
    told_of_decision,
    told_of_sets,
)
from manyhands.typing import MISSING, AnyArray, BoolArray, FloatArray, IntArray

OPTIONS = "options.csv"
"""File of a job's folder, with the ticks and the frequency of each option."""


def aggregate_label_sets(
    table: LabelSetTable,
    model: BaseSetAggregator,
    gold: IntArray | None = None,
    out: str | Path | None = None,
    *,
    known: IntArray | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Infer which options apply, and write all labels if ``out`` is given.

    Parameters
    ----------
    table : LabelSetTable
    model : BaseSetAggregator
    gold : integer array of shape (n_instances, n_options), optional
        True labels, used for evaluation only: 0, 1, and -1 where unknown.
    out : str or Path, optional
        File for the labels, in the format ``to``; or a folder (a name without a suffix) for the
        model, ``labels.csv``, ``annotators.csv``, ``options.csv``, ``summary.json``,
        ``report.html`` and, unless ``to`` is "table", a file in that format.
    known : integer array of shape (n_instances, n_options), optional
        Known labels, which the fit uses.
    **options
        rule, threshold : how labels are decided; see `manyhands.decide_sets`.
        separator : str, what is written between the labels of a set.
        none : str or sequence of str, as in `manyhands.io.read_label_sets`; its first word other
        than "empty" is written of a set without labels.
        files, reading, given : sequences of str, for the commands in the report: the files of the
        answers, the options of the command line that read them, and the other options.
        to, export, keep_formulas, shown : as in `manyhands.io.writers.write_sets`.

    Returns
    -------
    dict
        ``method``, ``n_instances``, ``n_annotators``, ``n_annotations``, ``n_options``; ``shared``
        and ``why`` (where the method shares behaviour); ``rule``; ``levels``: shares of right
        labels among those ``given``, and of those that apply which were ``found`` (each a
        `manyhands.metrics.Level` as a dict, or None where nothing tells), and ``headline``, the
        same in words; ``decided``, how the sets were decided, in words; ``flagged``, annotators to
        look at (see `manyhands.report.label_sets.flagged_annotators`); ``actions`` (number of
        instances per recommended action); ``labels`` (rows of ``labels.csv``), ``annotators``,
        ``options``, ``files``; and ``gold``: scores on the known cells that are not in ``known``,
        or None.

    Raises
    ------
    AnnotationError
        As of the method, or if ``threshold`` is out of range.
    WriteError
        If the output cannot be written.
    """
    place = None if out is None else check_output(Path(out), options.get("to", "table"))
    cells = None if known is None else np.where(known < 0, np.nan, known)
    model.fit(table, gold=cells)
    return _concluded(model, gold, place, **options)


def continue_label_sets(
    folder: str | Path,
    new: LabelSetTable,
    gold: Path | None = None,
    out: str | Path | None = None,
    *,
    known: Sequence[Path] = (),
    read_cells: Callable[[Path, LabelSetTable], IntArray],
    duplicates: Duplicates = "last",
    **options: Any,
) -> dict[str, Any]:
    """Add answers to the model of a folder, and write the labels of all instances.

    Parameters
    ----------
    folder : str or Path
        What `aggregate_label_sets` wrote into a folder.
    new : LabelSetTable
        Answers over the model's options, or some of them. Those that it has already may be among
        them.
    gold : Path, optional
        File of true labels, used for evaluation only.
    out : as in `aggregate_label_sets`
    known : sequence of Path
        Files of known labels of old and new instances. Those known earlier remain so.
    read_cells : function of (path, table)
        Reads such a file; see `manyhands.io.read_gold_sets`.
    duplicates : {"error", "last", "keep"}
        How to treat (instance, annotator) pairs that answered before.
    **options
        As of `aggregate_label_sets`.

    Returns
    -------
    dict
        As of `aggregate_label_sets`, and ``added``: the numbers of answers that were ``new``, and
        of those whose pair of instance and annotator had ``answered_before``.

    Raises
    ------
    AnnotationError
        If the folder holds another kind of model, or the answers tick an option that it has not.
    """
    place = None if out is None else check_output(Path(out), options.get("to", "table"))
    options["files"] = _all_files(folder, options.get("files", ()))
    options["given"] = [*_set_data(folder).get("given", ()), *options.get("given", ())]
    model = load(folder)
    if not isinstance(model, BaseSetAggregator):
        raise AnnotationError(
            f"{folder} holds a {type(model).__name__}, which does not infer sets of labels; leave "
            "multilabel= out, or aggregate the answers with sets into another folder"
        )
    before = model.table_
    new = new.with_options(_with_new(model.options_, new.options, folder))
    nobody = np.zeros(before.n_annotations, dtype=bool)
    cells = None
    if known:  # Over all instances, so that old ones can become known, too.
        new = before.take(nobody).with_added(new)
        cells = join_cells([read_cells(path, new) for path in known])
        cells = np.where(cells < 0, np.nan, cells)
    n_before = before.n_annotations
    model.partial_fit(new, gold=cells, duplicates=duplicates)
    added = model.table_.n_annotations - n_before
    counts = {"new": added, "answered_before": new.n_annotations - added}
    truth = None if gold is None else read_cells(gold, model.table_)
    return _concluded(model, truth, place, **options) | {"added": counts}


def _all_files(folder: str | Path, new: Sequence[str]) -> list[str]:
    """Return the files of a folder's answers and the new ones; none if the folder names none."""
    before = _set_data(folder).get("files")
    return [*dict.fromkeys([*before, *new])] if before else []


def _set_data(folder: str | Path) -> dict[str, Any]:
    """Return what a folder's summary says of its answers; empty if an earlier release wrote it."""
    try:
        return dict(json.loads(Path(folder, SUMMARY).read_text(encoding="utf-8"))["set_data"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _with_new(options: AnyArray, found: AnyArray, folder: str | Path) -> AnyArray:
    """Return the options of a model, if they include those that were found."""
    strange = sorted(set(found.tolist()) - set(options.tolist()))
    if strange:
        raise AnnotationError(
            f"the new answers tick {strange[0]!r}, which is not among the {len(options)} options "
            f"of {folder}; correct it, or aggregate all files again, without continuing"
        )
    return options


def join_cells(files: Sequence[IntArray]) -> IntArray:
    """Join the known cells of several files; later files take precedence."""
    cells = files[0]
    for more in files[1:]:
        cells = np.where(more < 0, cells, more)
    return cells


def _concluded(
    model: BaseSetAggregator,
    gold: IntArray | None,
    place: Path | None,
    *,
    rule: str = "probable",
    threshold: float | None = None,
    separator: str = ";",
    none: str | Sequence[str] | None = None,
    to: str = "table",
    export: Export | None = None,
    shown: Shown | None = None,
    title: str | None = None,
    keep_formulas: bool = False,
    files: Sequence[str] = (),
    reading: Sequence[str] = (),
    given: Sequence[str] = (),
) -> dict[str, Any]:
    """Decide the sets of a fitted aggregator, evaluate and write them."""
    table = model.table_
    decided = decide_sets(model.posterior_, rule, threshold=threshold)
    levels = levels_of_sets(model, decided.ticks, gold)
    found = set_consensus(table, model, decided.ticks, levels.probability)
    annotators = annotator_columns(model)
    options = option_columns(model, decided)
    told = told_of_decision(rule, threshold, decided)
    scores = None
    if gold is not None:
        fresh = np.where(model.is_known_, MISSING, gold)
        scores = measured_cells(model.posterior_, decided.ticks, fresh)
    inputs = SetFindings(
        model, found, levels, decided, told, gold, scores, separator, files, reading, given
    )
    summary: dict[str, Any] = {
        "method": type(model).__name__,
        "n_instances": table.n_instances,
        "n_annotators": table.n_annotators,
        "n_annotations": table.n_annotations,
        "n_options": table.n_options,
        "shared": getattr(model, "shared_", None),
        "why": getattr(model, "why_", None),
        "rule": rule if threshold is None else "threshold",
        "threshold": threshold,
        "levels": levels.to_dict(),
        "headline": told_of_sets(inputs),
        "decided": told,
        "flagged": flagged_annotators(inputs),
        "actions": found.count_actions(),
        "gold": scores,
    }
    method = type(model).__name__
    own: dict[str, Any] = {"separator": separator, "none": none, "export": export, "method": method}
    own |= {"keep_formulas": keep_formulas, "shown": shown}
    written: list[Path] = []
    if place is not None and place.suffix:
        written = [write_sets(place, found, to=to, **own)]
    elif place is not None:
        tables = {ANNOTATORS: annotators, OPTIONS: options}
        whole = summarize_sets(inputs, title=title) | summary
        written = _write_folder(place, model, found, tables, whole, own)
        if to != "table":
            written.append(write_sets(place / tool_file(to), found, to=to, **own))
    return {
        **summary,
        "labels": rows_of({name: plain(v) for name, v in found.arrays(separator, none).items()}),
        "annotators": rows_of(annotators),
        "options": rows_of(options),
        "files": [str(path) for path in written],
    }


def report_label_sets(
    table: LabelSetTable,
    out: str | Path,
    *,
    title: str | None = None,
    separator: str = ";",
    contents: Contents | None = None,
    files: Sequence[str] = (),
    reading: Sequence[str] = (),
    given: Sequence[str] = (),
) -> list[Path]:
    """Infer sets with `MultiLabelDawidSkene`, and write a report and its summary alone.

    Parameters
    ----------
    table : LabelSetTable
    out : str or Path
        The HTML page; the summary is written beside it, with the suffix .json.
    title, separator, files, reading, given : as in `aggregate_label_sets`
    contents : Contents, optional
        Texts and images of the instances, for the page.

    Returns
    -------
    list of Path
        The page, and the summary.

    Raises
    ------
    AnnotationError
        As of the method.
    WriteError
        If a file cannot be written.
    """
    out = Path(out)
    model = MultiLabelDawidSkene().fit(table)
    decided = decide_sets(model.posterior_)
    levels = levels_of_sets(model, decided.ticks)
    found = set_consensus(table, model, decided.ticks, levels.probability)
    told = told_of_decision("probable", None, decided)
    inputs = SetFindings(
        model, found, levels, decided, told, None, None, separator, files, reading, given
    )
    summary = summarize_sets(inputs, title=title)
    page = write_report(summary, out, contents)
    text = json.dumps(summary, indent=1, allow_nan=False)
    return [page, write_atomically(out.with_suffix(".json"), text)]


def review_label_sets(
    table: LabelSetTable,
    *,
    known: IntArray | None = None,
    n: int = 100,
    n_random: int = 0,
    separator: str = ";",
    none: str | Sequence[str] | None = None,
    seed: int = 0,
) -> tuple[dict[str, list[Any]], SetConsensus]:
    """List the sets with the most wrong options to expect, and some drawn at random.

    Parameters
    ----------
    table : LabelSetTable
    known : integer array of shape (n_instances, n_options), optional
        Known labels; sets that are wholly known are not listed.
    n, n_random : int
        Length of the queue, and how many are drawn from the rest, which come first.
    separator : str
        What is written between the labels of a set.
    none : str or sequence of str, optional
        As in `aggregate_label_sets`.
    seed : int

    Returns
    -------
    columns : dict {column: list}
        ``task``, ``labels`` (to correct), ``was`` (the same), ``expected_errors``, ``least_sure``
        (the option most likely to be wrong) and ``probability_wrong`` (of it; None where
        nothing tells), ``chosen`` ("queue" or "random"), ``reviewed`` (empty).
        `manyhands.io.read_gold_sets` takes rows as known where ``reviewed`` is filled in or
        ``labels`` is no longer what it was.
    found : SetConsensus
        All sets.
    """
    model = MultiLabelDawidSkene()
    model.fit(table, gold=None if known is None else np.where(known < 0, np.nan, known))
    decided = decide_sets(model.posterior_)
    levels = levels_of_sets(model, decided.ticks)
    found = set_consensus(table, model, decided.ticks, levels.probability)
    check_separator(found.options, separator)
    order = found.by_doubt()
    is_known = np.asarray(found.known.all(axis=1))
    order = order[(found.n_annotations > 0)[order] & ~is_known[order]]
    queue = order[:n]
    drawn = np.random.default_rng(seed).permutation(np.sort(order[n:]))[:n_random]
    rows = np.concatenate([drawn, queue]).astype(np.int64)
    told = 1 - found.probability[rows, found.doubtful[rows]]
    nothing = word_of_nothing(none)
    labels = [separator.join(found.labels[i]) or nothing for i in rows.tolist()]
    columns: dict[str, Any] = {
        "task": found.tasks[rows],
        "labels": labels,
        "was": labels,
        "expected_errors": (1 - found.certainty)[rows].sum(axis=1),
        "least_sure": found.options[found.doubtful[rows]],
        "probability_wrong": told,
        "chosen": ["random"] * len(drawn) + ["queue"] * len(queue),
        "reviewed": [""] * len(rows),
    }
    return {name: plain(values) for name, values in columns.items()}, found


def _write_folder(
    folder: Path,
    model: BaseSetAggregator,
    found: SetConsensus,
    tables: dict[str, dict[str, list[Any]]],
    summary: dict[str, Any],
    own: dict[str, Any],
) -> list[Path]:
    def write(staged: Path) -> None:
        write_sets(staged / LABELS, found, **own)
        for name, columns in tables.items():
            write_table(staged / name, columns, keep_formulas=own["keep_formulas"])

    return keep_aggregator(folder, model, summary, write, own["shown"])


def annotator_columns(model: BaseSetAggregator) -> dict[str, list[Any]]:
    """Return the columns of ``annotators.csv``: answers, ticks, and accuracy where known.

    The ends ``_low_95`` and ``_high_95`` are those of nominal 95 % intervals, which cover less in
    some simulated crowds; see `MultiLabelDawidSkene.intervals`.
    """
    table = model.table_
    ticks = np.bincount(table.annotator, table.ticks_per_answer(), table.n_annotators)
    n = table.annotations_per_annotator()
    columns: dict[str, Any] = {
        "annotator": model.annotators_,
        "n_annotations": n,
        "ticks_per_answer": np.divide(ticks, n, out=np.full(len(n), np.nan), where=n > 0),
    }
    if hasattr(model, "annotator_sensitivity_"):
        found: Any = model
        intervals = found.intervals()
        for name in ("sensitivity", "false_tick_rate"):
            low, high = np.moveaxis(getattr(intervals, f"annotator_{name}"), -1, 0)
            columns[name] = getattr(found, f"annotator_{name}_")
            columns[f"{name}_low_95"], columns[f"{name}_high_95"] = low, high
    return {name: plain(values) for name, values in columns.items()}


def option_columns(model: BaseSetAggregator, decided: SetDecision) -> dict[str, list[Any]]:
    """Return the columns of ``options.csv``: ticks, and how often each option applies."""
    agreement = option_agreement(model.table_)
    columns: dict[str, Any] = {
        "option": model.options_,
        "n_ticks": agreement.n_ticks,
        "share_of_answers": agreement.share,
        "alpha": agreement.alpha,
        "prevalence": model.prevalence_,
        "n_instances": decided.n_ticked,
        "threshold": np.minimum(decided.threshold, 1.0),
        "expected_f1": decided.expected_f1,
    }
    return {name: plain(values) for name, values in columns.items()}


def describe_label_sets(table: LabelSetTable) -> dict[str, Any]:
    """Describe answers that are sets: counts, options, agreement, and warnings.

    Returns
    -------
    dict
        ``data`` (counts), ``options`` (rows), ``agreement`` (alpha by distance) and ``warnings``.
    """
    found = option_agreement(table)
    n_answers, per_answer = table.n_annotations, table.ticks_per_answer()
    per_instance = table.annotations_per_instance()
    annotated = per_instance > 0
    data = {
        "instances": table.n_instances,
        "annotators": table.n_annotators,
        "answers": n_answers,
        "options": table.n_options,
        "ticks": table.n_ticks,
        "ticks_per_answer": _number(per_answer.mean()) if n_answers else None,
        "answers_without_a_tick": int((per_answer == 0).sum()),
        "different_sets": len(np.unique(table.answers.label)),
        "answers_per_instance": _number(per_instance[annotated].mean())
        if annotated.any()
        else None,
        "abstentions": len(table.abstentions),
        "skips": len(table.skips),
    }
    options = {
        "option": found.options,
        "n_ticks": found.n_ticks,
        "share": found.share,
        "alpha": found.alpha,
        "low": found.low,
        "high": found.high,
    }
    return {
        "data": data,
        "options": rows_of({name: plain(values) for name, values in options.items()}),
        "agreement": set_alphas(table),
        "warnings": _warnings(table),
    }


def set_alphas(table: LabelSetTable) -> dict[str, float | None]:
    """Return Krippendorff's alpha by distance; None if undefined, or with too many sets."""
    many = len(np.unique(table.answers.label)) > MOST_SETS
    distances: tuple[Any, ...] = ("nominal",) if many else ("nominal", "jaccard", "masi")
    found = {name: krippendorff_alpha(table, distance=name) for name in distances}
    return {name: _number(value) for name, value in found.items()}


def _warnings(table: LabelSetTable) -> list[str]:
    found = []
    per_answer = table.ticks_per_answer()
    ticked = per_answer[per_answer > 0]
    if len(ticked) and (ticked == 1).all():
        found.append(
            "No answer ticks more than one option. If only one could be chosen, read the labels as "
            "classes: leave multilabel= out."
        )
    elif len(ticked) and (ticked == 1).mean() > 0.5:
        share = 100 * (ticked == 1).mean()
        found.append(
            f"{share:.0f} % of the answers with a tick tick one option only. If only one could be "
            "chosen, the others may be mistakes of the form."
        )
    n = table.ticks_per_option()
    for names, what in (
        (table.options[n == 0], "Nobody ticked"),
        (table.options[(n == table.n_annotations) & (n > 0)], "Everybody ticked"),
    ):
        if len(names):
            found.append(
                f"{what} {', '.join(map(repr, names[:5].tolist()))}; it is unknown how well "
                "annotators recognise it."
            )
    several = np.bincount(table.annotations_per_instance(), minlength=2)
    if not several[2:].any():
        found.append("No item has two annotators, so the labels are the answers.")
    return found


def measured_cells(proba: FloatArray, ticks: BoolArray, gold: IntArray) -> dict[str, Any]:
    """Return scores of sets on known cells.

    Parameters
    ----------
    proba : array of shape (n, n_options)
        Probability that each option applies.
    ticks : boolean array of shape (n, n_options)
    gold : integer array of shape (n, n_options)
        0, 1, and -1 where unknown.

    Returns
    -------
    dict
        Number of cells with gold and, if there are some, micro-F1, precision, recall, the share of
        right cells, and the log loss per cell in nats.
    """
    given = gold >= 0
    found: dict[str, Any] = {"cells with gold": int(given.sum())}
    if not given.any():
        return found
    truth, proba = gold[given] == 1, np.clip(proba[given], 1e-6, 1 - 1e-6)
    own = ticks[given]
    hits = int((own & truth).sum())
    found["micro-F1"] = 2 * hits / max(int(own.sum() + truth.sum()), 1)
    found["precision"] = hits / max(int(own.sum()), 1)
    found["recall"] = hits / max(int(truth.sum()), 1)
    found["share of right cells"] = float((own == truth).mean())
    found["log loss"] = float(-np.where(truth, np.log(proba), np.log(1 - proba)).mean())
    return found


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else float(f"{float(value):.6g}")


def plain(values: Any) -> list[Any]:
    """Return plain values; None for NaN, and floats to six significant digits."""
    return [
        _number(value) if isinstance(value, float) else value
        for value in np.asarray(values).tolist()
    ]


def rows_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return the rows of columns, as dicts."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
