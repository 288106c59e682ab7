"""Truth inference jobs: the labels of one method, or all methods compared (without torch)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.decision import decide
from manyhands.decision.labels import generator
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.inference.base import BaseAggregator
from manyhands.inference.comparison import against_gold, compare_aggregators
from manyhands.io import Consensus, Export, GoldFile, consensus, remote
from manyhands.io.frames import write_parquet_parts, write_table
from manyhands.io.store import AnnotationStore
from manyhands.io.writers import SUFFIXES, check_target, write_consensus
from manyhands.jobs.gold import match_gold
from manyhands.jobs.outputs import keep_labels, label_rows, times_of
from manyhands.report import annotator_columns, summarize
from manyhands.typing import AnyArray, IntArray

METRIC_NAMES = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "minority_recall": "minority recall",
    "ece": "calibration error",
}


def aggregate_table(
    table: AnnotationTable,
    aggregator: BaseAggregator,
    gold: GoldFile | None = None,
    out: str | Path | None = None,
    *,
    known: GoldFile | None = None,
    history: Any = None,
    rule: str = "argmax",
    threshold: float | None = None,
    checkpoint: str | Path | None = None,
    to: str = "table",
    export: Export | None = None,
    title: str | None = None,
    keep_formulas: bool = False,
) -> dict[str, Any]:
    """Aggregate a table, and write all labels if ``out`` is given.

    Parameters
    ----------
    table : AnnotationTable
    aggregator : BaseAggregator
    gold : GoldFile, optional
        Gold labels, used for evaluation only.
    out : str or Path, optional
        File to write, in the format ``to``; or a folder (a name without a suffix) for
        ``labels.csv``, ``annotators.csv``, ``summary.json``, ``report.html``, and, unless ``to`` is
        "table", a file in that format.
    known : GoldFile, optional
        Known classes (gold questions), which the method uses.
    history : optional
        Counts of annotators' earlier annotations, as in `DawidSkene.fit`.
    rule, threshold : as in `manyhands.decide`
    checkpoint : as in `BaseAggregator.fit`
    to, export, keep_formulas : as in `manyhands.io.write_labels`
    title : str, optional
        Heading of the report.

    Returns
    -------
    dict
        ``method``, ``n_instances``, ``n_undecided``, ``labels`` (task, label, probability),
        ``actions`` (number of instances per recommended action), ``files`` (what was written), and
        ``gold``: metrics on the annotated instances that have gold and are not in ``known``, or
        None.
    """
    place = None if out is None else check_output(Path(out), to)
    clamped = None if known is None else _known_codes(known, table)
    values = np.array([*table.classes.tolist(), None], dtype=object)
    own = {} if history is None else {"history": history}
    own |= {} if checkpoint is None else {"checkpoint": checkpoint}
    aggregator.fit(table, gold=None if clamped is None else values[clamped], **own)
    posterior = aggregator.posterior_
    codes = decide(
        posterior,
        rule,
        threshold=threshold,
        ties="random" if aggregator.ties == "random" else "first",
        random_state=aggregator.random_state,
    )
    is_known = np.zeros(len(codes), dtype=bool) if clamped is None else clamped >= 0
    metrics, truth = None, None
    if gold is not None:
        truth = match_gold(gold, table).codes
        annotated = table.annotations_per_instance() > 0
        rows = np.flatnonzero((truth >= 0) & annotated & ~is_known)
        metrics = _metrics(table, posterior, codes, truth, rows)
    found = consensus(table, posterior, values[codes], known=is_known)
    files: list[Path] = []
    if place is not None:
        options: dict[str, Any] = {"to": to, "export": export, "keep_formulas": keep_formulas}
        if place.suffix:
            options["method"] = type(aggregator).__name__
            files = [write_consensus(place, found, **options)]
        else:
            best = None if truth is None else values[truth]
            files = _write_folder(place, found, table, aggregator, best, title, **options)
    return {
        "method": type(aggregator).__name__,
        "n_instances": table.n_instances,
        "n_undecided": int((codes < 0).sum()),
        "labels": label_rows(codes, posterior, table.instances, table.classes),
        "actions": found.count_actions(),
        "files": [str(path) for path in files],
        "gold": metrics,
    }


def check_output(out: Path, to: str) -> Path:
    """Check the name of the output, before any work; a name without a suffix is a folder."""
    if out.suffix:
        return check_target(out, to)
    check_target(out / tool_file(to), to)
    return out


def tool_file(to: str) -> str:
    """Name of the file, within a folder, that is for a tool."""
    return f"{to}{SUFFIXES.get(to, '.csv')}"


def _known_codes(known: GoldFile, table: AnnotationTable | AnnotationStore) -> IntArray:
    codes = match_gold(known, table).codes
    lost = int(known.known.sum() - (codes >= 0).sum())
    if lost:
        warn_caller(f"{lost} of the known labels belong to tasks without annotations")
    return codes


def _write_folder(
    folder: Path,
    found: Consensus,
    table: AnnotationTable,
    aggregator: BaseAggregator,
    gold: AnyArray | None,
    title: str | None,
    *,
    to: str,
    export: Export | None,
    keep_formulas: bool,
) -> list[Path]:
    """Write labels, annotators and a report, and the labels in the format of a tool."""
    given: dict[str, Any] = {}
    decided = (found.codes >= 0) | (found.n_annotations == 0)
    if decided.all() and (found.codes != found.posterior.argmax(axis=1)).any():
        given = {"labels": found.labels, "posterior": found.posterior}
    given |= times_of(export, table)
    summary = summarize(table, aggregator=aggregator, gold=gold, title=title, **given)
    seconds = None if export is None else export.seconds
    profiles = annotator_columns(table, found.posterior, seconds=seconds)
    files = keep_labels(folder, found.columns(), profiles, summary, keep_formulas=keep_formulas)
    if to != "table":
        path = folder / tool_file(to)
        method = type(aggregator).__name__
        files.append(write_consensus(path, found, to=to, export=export, method=method))
    return files


def _metrics(
    table: AnnotationTable | AnnotationStore, posterior: Any, codes: Any, truth: Any, rows: Any
) -> dict[str, Any]:
    """Metrics against gold, on the instances that received a label."""
    labelled = rows[codes[rows] >= 0]
    metrics: dict[str, Any] = {"instances with gold": len(rows)}
    if len(labelled) < len(rows):
        metrics["of them decided"] = len(labelled)
    if len(labelled):
        labels = table.classes[codes[labelled]]
        values = against_gold(table.classes, truth[labelled], labels, posterior[labelled])
        metrics |= {METRIC_NAMES[key]: value for key, value in values.items() if value is not None}
    return metrics


def aggregate_store(
    store: AnnotationStore,
    aggregator: BaseAggregator,
    gold: GoldFile | None = None,
    out: str | Path | None = None,
    *,
    known: GoldFile | None = None,
    rule: str = "argmax",
    threshold: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Aggregate a store, and write all labels, shard by shard, if ``out`` is given.

    Parameters
    ----------
    store : AnnotationStore
    aggregator, gold, known, rule, threshold
        As in `aggregate_table`.
    out : str or Path, optional
        A .parquet file with the columns of `aggregate_table`'s labels; or a folder (a name without
        a suffix) for ``labels.parquet`` and ``annotators.csv``.
    **options
        ``history``, ``checkpoint`` and ``engine`` of `BaseAggregator.fit`.

    Returns
    -------
    dict
        As of `aggregate_table`, with the first ten labels only.
    """
    place = None if out is None else check_store_output(Path(out))
    clamped = None if known is None else _known_codes(known, store)
    given = None
    if clamped is not None:
        rows = np.flatnonzero(clamped >= 0)
        pairs = store.instances[rows].tolist(), store.classes[clamped[rows]].tolist()
        given = dict(zip(*pairs, strict=True))
    aggregator.fit(store, gold=given, **{k: v for k, v in options.items() if v is not None})
    labels = _StoreLabels(store, aggregator, clamped, rule, threshold)
    files = _write_store_labels(place, labels, aggregator)
    metrics = None
    if gold is not None:
        truth = match_gold(gold, store).codes
        annotated = store.annotations_per_instance() > 0
        unclamped = True if clamped is None else clamped < 0
        rows = np.flatnonzero((truth >= 0) & annotated & unclamped)
        metrics = _metrics(store, aggregator.posterior_, labels.codes, truth, rows)
    first = slice(0, 10)
    return {
        "method": type(aggregator).__name__,
        "n_instances": store.n_instances,
        "n_undecided": int((labels.codes < 0).sum()),
        "labels": label_rows(
            labels.codes[first],
            np.asarray(aggregator.posterior_[first]),
            store.instances[first],
            store.classes,
        ),
        "actions": labels.actions,
        "files": [str(path) for path in files],
        "gold": metrics,
    }


def _write_store_labels(
    place: Path | None, labels: _StoreLabels, aggregator: BaseAggregator
) -> list[Path | str]:
    """Write the labels, and into a folder the annotators; return the files, or their URLs."""
    if place is None:
        for _ in labels.frames():
            pass
        return []
    url = remote.url_of(place)
    if url is not None:
        with tempfile.TemporaryDirectory() as folder:
            made = _write_store_labels(Path(folder) / place.name, labels, aggregator)
            ends = ["" if place.suffix else f"/{Path(file).name}" for file in made]
            return [remote.upload(Path(f), url + end) for f, end in zip(made, ends, strict=True)]
    place = remote.local_path(place)
    if place.suffix:
        return [write_parquet_parts(place, labels.frames())]
    return [
        write_parquet_parts(place / "labels.parquet", labels.frames()),
        write_table(place / "annotators.csv", _annotator_profiles(aggregator)),
    ]


def check_store_output(out: Path) -> Path:
    """Check the name of a store's output, before any work."""
    if out.suffix.lower() not in ("", ".parquet"):
        raise AnnotationError(
            f"{str(out)!r}: labels of a store are written shard by shard, as .parquet; give such a "
            "name, or a folder (a name without a suffix)"
        )
    return out


class _StoreLabels:
    """Labels of a fitted store, as frames of one shard each; counted while they are made."""

    def __init__(
        self,
        store: AnnotationStore,
        aggregator: BaseAggregator,
        clamped: IntArray | None,
        rule: str,
        threshold: float | None,
    ) -> None:
        self.store, self.aggregator, self.clamped = store, aggregator, clamped
        self.rule, self.threshold = rule, threshold
        self.codes = np.empty(store.n_instances, dtype=np.int32)
        self.actions: dict[str, int] = {}

    def frames(self) -> Iterator[dict[str, AnyArray]]:
        """Yield the columns of each shard's labels."""
        store, posterior = self.store, self.aggregator.posterior_
        prior = None
        if self.rule == "balanced":
            prior = sum(np.asarray(posterior[own]).sum(axis=0) for own in self._places())
            prior = np.maximum(prior / prior.sum(), np.finfo(float).tiny)
        ties = "random" if self.aggregator.ties == "random" else "first"
        seed = generator(self.aggregator.random_state)
        values = np.array([*store.classes.tolist(), None], dtype=object)
        for number, own in enumerate(self._places()):
            rows = np.asarray(posterior[own])
            codes = decide(
                rows,
                self.rule,
                class_prior=prior,
                threshold=self.threshold,
                ties=ties,
                random_state=seed,
            )
            self.codes[own] = codes
            known = None if self.clamped is None else self.clamped[own] >= 0
            found = consensus(store.table(number), rows, values[codes], known=known)
            for name, n in found.count_actions().items():
                self.actions[name] = self.actions.get(name, 0) + n
            yield {
                "task": found.tasks,
                "label": values[codes],
                "probability": found.probability,
                "n_annotations": found.n_annotations,
                "agreement": found.agreement,
                "action": found.actions,
            } | {f"p({name})": rows[:, c] for c, name in enumerate(store.classes.tolist())}

    def _places(self) -> Iterator[slice]:
        for first, last in pairwise(self.store.firsts.tolist()):
            yield slice(first, last)


def _annotator_profiles(aggregator: BaseAggregator) -> dict[str, list[Any]]:
    given = aggregator.table_.annotations_per_annotator()
    return {
        "annotator": aggregator.annotators_.tolist(),
        "n_annotations": given.tolist(),
        "accuracy": aggregator.annotator_accuracy_.tolist(),
    }


def compare_methods(
    table: AnnotationTable, gold: GoldFile | None = None, *, seed: int = 0
) -> dict[str, Any]:
    """Score every method on a table; see `manyhands.inference.comparison.compare_aggregators`."""
    values = np.array([*table.classes.tolist(), None], dtype=object)
    truth = None if gold is None else values[match_gold(gold, table).codes]
    scores = compare_aggregators(table, gold=truth, random_state=seed)
    return {"n_instances": table.n_instances, "methods": [asdict(score) for score in scores]}
