"""Truth inference on a store: labels are decided and written shard by shard (without torch)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cached_property, reduce
from itertools import pairwise
from operator import add
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from manyhands.annotations.groups import Overlap, in_one_family, undeclared_models
from manyhands.decision import decide
from manyhands.decision.labels import (
    best_of,
    check_rule_of,
    generator,
    is_scale_of_grades,
    rule_of,
)
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.inference.base import BaseAggregator
from manyhands.io import GoldFile, consensus
from manyhands.io.consensus_labels import ACCEPT, whole_rule
from manyhands.io.frames import write_parquet_parts, write_table
from manyhands.io.mapped import release
from manyhands.jobs.aggregation import measure
from manyhands.jobs.gold import match_gold
from manyhands.jobs.outputs import label_rows, severity_rows
from manyhands.metrics.certainty import Certainty, certainty_of, with_open
from manyhands.metrics.inferred_labels import level_of_labels
from manyhands.metrics.sample_levels import LEAST_GOLD, Level, level_of_gold, level_of_sample
from manyhands.planning.screening import AnswerCounts, RightByGold, right_by_gold
from manyhands.report import annotator_columns
from manyhands.report.annotators import store_profiles
from manyhands.report.confusions import gold_of_most
from manyhands.scale import remote
from manyhands.scale.store import AnnotationStore
from manyhands.typing import AnyArray, IntArray


def aggregate_store(
    store: AnnotationStore,
    aggregator: BaseAggregator,
    gold: GoldFile | None = None,
    out: str | Path | None = None,
    *,
    known: GoldFile | None = None,
    rule: str | None = None,
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
    check_rule_of(rule, store)
    clamped = None
    own = {name: value for name, value in options.items() if value is not None}
    if known is not None:
        found = match_gold(known, store)
        clamped = found.codes
        rows = np.flatnonzero(clamped >= 0)
        pairs = store.instances[rows].tolist(), store.classes[clamped[rows]].tolist()
        own |= {"gold": dict(zip(*pairs, strict=True)), "random_gold": found.random}
    aggregator.fit(store, **own)
    truth = None if gold is None else match_gold(gold, store).codes
    labels = _StoreLabels(store, aggregator, clamped, rule, threshold, truth)
    files = _write_store_labels(place, labels, truth)
    metrics = None
    if truth is not None:
        annotated = store.annotations_per_instance() > 0
        unclamped = True if clamped is None else clamped < 0
        rows = np.flatnonzero((truth >= 0) & annotated & unclamped)
        metrics = measure(store, aggregator.posterior_, labels.codes, truth, rows)
    first = slice(0, 10)
    some, clamped = np.asarray(aggregator.posterior_[first]), labels.clamped
    is_known = None if clamped is None else clamped[first] >= 0
    told = labels.certainty.of_labels(some, labels.codes[first], is_known)
    return {
        "method": type(aggregator).__name__,
        "n_instances": store.n_instances,
        "n_undecided": int((labels.codes < 0).sum()),
        "labels": label_rows(labels.codes[first], told, store.instances[first], store.classes),
        "actions": labels.actions,
        "rule": whole_rule(threshold or ACCEPT),
        "annotators": severity_rows(aggregator),
        "files": [str(path) for path in files],
        "gold": metrics,
    }


def _write_store_labels(
    place: Path | None, labels: _StoreLabels, gold: IntArray | None
) -> list[Path | str]:
    """Write the labels, and into a folder the annotators; return the files, or their URLs.

    Annotators are measured by ``gold``, true classes of the instances (-1 unknown), if it is given.
    """
    if place is None:
        for _ in labels.frames():
            pass
        return []
    url = remote.url_of(place)
    if url is not None:
        with tempfile.TemporaryDirectory() as folder:
            made = _write_store_labels(Path(folder) / place.name, labels, gold)
            ends = ["" if place.suffix else f"/{Path(file).name}" for file in made]
            return [remote.upload(Path(f), url + end) for f, end in zip(made, ends, strict=True)]
    place = remote.local_path(place)
    if place.suffix:
        return [write_parquet_parts(place, labels.frames())]
    return [
        write_parquet_parts(place / "labels.parquet", labels.frames()),
        write_table(place / "annotators.csv", _annotator_profiles(labels, gold)),
    ]


def check_store_output(out: Path) -> Path:
    """Check the name of a store's output, before any work.

    Raises
    ------
    AnnotationError
        If the name has another suffix than ``.parquet``.
    """
    if out.suffix.lower() not in ("", ".parquet"):
        raise AnnotationError(
            f"{str(out)!r}: the labels of a store are written shard by shard, as .parquet; give a "
            "name with this suffix, or a folder (a name without a suffix)"
        )
    return out


class _StoreLabels:
    """Labels of a fitted store, as one frame per shard; they are counted as frames are made."""

    def __init__(
        self,
        store: AnnotationStore,
        aggregator: BaseAggregator,
        clamped: IntArray | None,
        rule: str | None,
        threshold: float | None,
        truth: IntArray | None = None,
    ) -> None:
        self.truth = truth
        self.store, self.aggregator, self.clamped = store, aggregator, clamped
        self.rule, self.threshold = rule or rule_of(store), threshold
        self.codes = np.empty(store.n_instances, dtype=np.int32)
        self.actions: dict[str, int] = {}

    def frames(self) -> Iterator[dict[str, AnyArray]]:
        """Yield the columns of each shard's labels."""
        store, posterior = self.store, self.aggregator.posterior_
        prior = None
        if self.rule == "balanced":
            prior = sum(np.asarray(posterior[own]).sum(axis=0) for own in self.places())
            prior = np.maximum(prior / prior.sum(), np.finfo(float).tiny)
        ties = "random" if self.aggregator.ties == "random" else "first"
        seed = generator(self.aggregator.random_state)
        values = np.array([*store.classes.tolist(), None], dtype=object)
        certainty = self.certainty
        for number, own in enumerate(self.places()):
            rows = np.asarray(posterior[own])
            codes = decide(
                rows,
                self.rule,
                class_prior=prior,
                ties=ties,
                random_state=seed,
            )
            known = None if self.clamped is None else self.clamped[own] >= 0
            judged: dict[str, Any] = {"known": known}
            told = judged["probability"] = certainty.of_labels(rows, codes, known)
            judged["accept"] = self.threshold or ACCEPT
            self.codes[own] = codes = with_open(codes, told, rows, self.threshold)
            judged["identified"] = self.aggregator.identified_[own]
            judged["alike"] = undeclared_models(None, store.annotators)
            found = consensus(store.table(number), rows, values[codes], **judged)
            for name, n in found.count_actions().items():
                self.actions[name] = self.actions.get(name, 0) + n
            yield found.arrays()
            release(posterior)

    @cached_property
    def certainty(self) -> Certainty:
        """Certainty of the labels, from the first instances of the shard in the middle."""
        number = (len(self.store.firsts) - 2) // 2
        first, last = self.store.firsts[number : number + 2].tolist()
        own = slice(first, min(last, first + JUDGED))
        table = self.store.table(number)[: own.stop - first]
        posterior = np.asarray(self.aggregator.posterior_[own])
        known = None if self.clamped is None else self.clamped[own] >= 0
        codes = best_of(posterior, table)
        level = self._measured()
        if level is None:
            calibrated = getattr(self.aggregator, "_knows_its_accuracy", False)
            given = {} if known is None else {"is_known_": known}
            model = SimpleNamespace(_knows_its_accuracy=calibrated, **given)
            decided = self.aggregator.identified_[own]
            level = level_of_labels(table, model, codes, posterior, identified=decided)
        return certainty_of(table, level, posterior, codes, known)

    def _measured(self) -> Level | None:
        """Return how many labels are right by gold or a random sample; None without either."""
        n, model = self.store.n_instances, self.aggregator
        free = self.store.annotations_per_instance() > 0
        if self.clamped is not None:
            free &= self.clamped < 0
        if self.truth is not None:
            rows = np.flatnonzero((self.truth >= 0) & free)
            if len(rows) >= LEAST_GOLD:
                codes = best_of(np.asarray(model.posterior_[rows]), self.store)
                return level_of_gold(codes == self.truth[rows], "gold")
        drawn = model.sampled_rows_
        if self.clamped is None or len(drawn) < LEAST_GOLD:
            return None
        has, right = np.zeros((2, n), dtype=bool)
        has[drawn] = True
        right[drawn] = best_of(model.sampled_posterior_, self.store) == self.clamped[drawn]
        return level_of_sample(right, has, None, free)

    def places(self) -> Iterator[slice]:
        """Yield the rows of each shard."""
        for first, last in pairwise(self.store.firsts.tolist()):
            yield slice(first, last)


JUDGED = 50_000
"""Number of a store's instances from which the certainty of its labels is estimated."""

LARGEST_SCREENED = 10**8
"""Most cells of all confusion matrices together with which annotators of a store are screened."""


def _annotator_profiles(labels: _StoreLabels, gold: IntArray | None) -> dict[str, list[Any]]:
    """Return the columns of ``annotators.csv``, from sums over the shards.

    A store keeps neither the order of annotations nor their times, so no flag is based on these.
    ``gold`` holds true classes, -1 where unknown. Known labels that were drawn at random measure
    annotators, too.
    """
    store, posterior, judged = labels.store, labels.aggregator.posterior_, _are_judged(labels)
    n_annotators, n_classes = store.n_annotators, store.n_classes
    if n_annotators * n_classes**2 > LARGEST_SCREENED:
        warn_caller(
            f"{n_annotators:,} annotators and {n_classes:,} classes are too many to screen the "
            "annotators, so annotators.csv contains only their expected accuracy"
        )
        return _annotator_accuracy(labels.aggregator, judged)
    found, pooled = None, np.zeros((n_classes, n_classes))
    mistakes = np.zeros((n_annotators, n_classes, n_classes), dtype=np.int64)
    passes, measured = np.zeros((2, n_annotators), dtype=np.int64), np.zeros((2, n_annotators))
    best = gold_of_most(gold, store.annotations_per_instance() > 0)
    truth = labels.codes if best is None else best
    drawn = labels.aggregator.sampled_rows_
    if labels.clamped is not None and len(drawn):
        gold = np.full(store.n_instances, -1) if gold is None else gold.copy()
        gold[drawn] = np.where(gold[drawn] < 0, labels.clamped[drawn], gold[drawn])
    for number, own in enumerate(labels.places()):
        table, rows = store.table(number), np.asarray(posterior[own])
        part = AnswerCounts.of(table, rows)
        found = part if found is None else found + part
        observed, codes = table.observed, truth[own]
        true = codes[observed.instance]
        decided = true >= 0
        pairs = (observed.annotator[decided], true[decided], observed.label[decided])
        np.add.at(mistakes, pairs, 1)
        for k, which in enumerate((table.abstentions, table.skips)):
            passes[k] += np.bincount(which[:, 1], minlength=n_annotators)
        if gold is not None:
            measured += right_by_gold(observed, gold[own])[:2]
        release(posterior)
    assert found is not None
    pooled = found.counts.sum(axis=0) + np.finfo(float).tiny
    pooled /= pooled.sum(axis=1, keepdims=True)
    by_gold = None if gold is None else RightByGold.of(*measured.astype(np.int64))
    marks = found.marks(pooled, store.classes, by_gold)
    names = None if is_scale_of_grades(store) else store.classes
    screening = found.screening(
        store.annotators, marks, judged=judged, measured=by_gold, names=names
    )
    sums = (found.reliability, screening, mistakes, passes, by_gold)
    own_model: dict[str, Any] = {"counts": found.counts, "model": labels.aggregator}
    profiles = store_profiles(
        store, *sums, judged=judged, are_from_gold=best is not None, **own_model
    )
    return annotator_columns(profiles)


def _are_judged(labels: _StoreLabels) -> bool:
    """Return whether anything shows how good the annotators are (`annotators_are_judged`)."""
    alike = undeclared_models(None, labels.store.annotators)
    parts = []
    for number, own in enumerate(labels.places()):
        table = labels.store.table(number)
        known = None if labels.clamped is None else labels.clamped[own] >= 0
        parts.append(Overlap.of(in_one_family(table, alike) if alike.any() else table, known))
    return reduce(add, parts).judges


def _annotator_accuracy(aggregator: BaseAggregator, judged: bool) -> dict[str, list[Any]]:
    given = aggregator.table_.annotations_per_annotator().tolist()
    rows = zip(aggregator.annotators_.tolist(), given, aggregator.annotator_accuracy_, strict=True)
    unknown = dict.fromkeys(("lower", "upper", "abstentions", "skips", "gold", "mistake", "times"))
    screen: dict[str, Any] = {"flags": [], "evidence": [], "advice": None}
    profiles = [
        {"id": each, "n_annotations": n, "accuracy": float(accuracy) if judged else None}
        | {"screen": screen}
        | unknown
        for each, n, accuracy in rows
    ]
    return annotator_columns(profiles)
