"""Truth inference jobs: the labels of one method, or all methods compared (without torch)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.duplicates import Duplicates
from manyhands.decision import decide
from manyhands.decision.labels import best_of, check_rule_of, rule_of
from manyhands.exceptions import AnnotationError
from manyhands.inference.base import BaseAggregator
from manyhands.inference.comparison import against_gold, compare_aggregators
from manyhands.inference.identifiability import warn_of_unidentified
from manyhands.inference.inputs import on_scale_of, without_known
from manyhands.inference.set_aggregator import BaseSetAggregator
from manyhands.inference.votes import is_vast, votes_of
from manyhands.io import Consensus, Export, GoldFile, consensus
from manyhands.io.consensus_labels import ACCEPT
from manyhands.io.shown import Shown, shown_of
from manyhands.io.writers import SUFFIXES, check_target, write_consensus
from manyhands.jobs.gold import (
    GoldRows,
    match_gold,
    note_unused_gold,
    warn_of_gold_that_is_known,
)
from manyhands.jobs.outputs import (
    files_with_more,
    keep_labels,
    label_rows,
    severity_rows,
    times_of,
)
from manyhands.metrics.certainty import certainty_of, n_less_probable, with_open
from manyhands.models import load
from manyhands.report import read_inputs, summarize_annotators, summarize_inputs
from manyhands.report.annotators import told_of_all
from manyhands.report.doubts import told_of_settled
from manyhands.report.headline import tell_decided, tell_labels
from manyhands.report.labels import told_of_usable
from manyhands.report.review import half_of_wrong
from manyhands.scale.store import AnnotationStore
from manyhands.wording import SCORES, told_of_rule

MEASURED = ("accuracy", "macro_f1", "minority_recall", "ece", "within_one", "mae", "qwk", "rps")
"""Measures of labels against gold, for names or grades; see `manyhands.wording.SCORES`."""


def aggregate_table(
    table: AnnotationTable,
    aggregator: BaseAggregator,
    gold: GoldFile | None = None,
    out: str | Path | None = None,
    *,
    known: GoldFile | None = None,
    history: Any = None,
    rule: str | None = None,
    threshold: float | None = None,
    checkpoint: str | Path | None = None,
    to: str = "table",
    export: Export | None = None,
    title: str | None = None,
    keep_formulas: bool = False,
    shown: Shown | None = None,
    files: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Aggregate a table, and write all labels if ``out`` is given.

    Parameters
    ----------
    table : AnnotationTable
    aggregator : BaseAggregator
    gold : GoldFile, optional
        Gold labels, used only to evaluate the labels and their probabilities.
    out : str or Path, optional
        File to write, in the format ``to``; or a folder (a name without a suffix) for
        the model, ``labels.csv``, ``annotators.csv``, ``summary.json``, ``report.html``, and,
        unless ``to`` is "table", a file in that format.
    known : GoldFile, optional
        Known classes (gold questions), which the method uses.
    history : optional
        Counts of annotators' earlier annotations, as in `DawidSkene.fit`.
    rule : as in `manyhands.decide`
        By default "median" for three or more grades, else "argmax", as for ``labels_``.
    threshold : float in [0, 1], optional
        Leave a label open if its probability, as in the column "probability" of the labels, is
        below this (where nothing shows that probability, the method's own), and accept labels of at
        least this probability. By default no label is left open.
    checkpoint : as in `BaseAggregator.fit`
    to, export, keep_formulas : as in `manyhands.io.write_labels`
    title : str, optional
        Heading of the report.
    shown : Shown, optional
        What the table of labels says of the items; default: that of the export.
    files : dict, optional
        Names of files for the commands in the report; see `manyhands.report.commands`.

    Returns
    -------
    dict
        ``method``, ``n_instances``, ``n_undecided``, ``labels`` (task, label, probability, which is
        None where it is unknown),
        ``actions`` (number of instances per recommended action), ``n_unconfirmed`` (labels that are
        certain enough to be accepted, which fewer than two annotators gave), ``half_of_wrong`` (how
        many of the most doubtful labels hold half of the wrong ones, as the report expects it; None
        without a report), ``usable`` (which threshold would keep more labels where fewer than half
        are accepted, in words; "" without a report), ``n_known`` (known labels, which
        are among the accepted ones), ``level`` (share of right labels,
        with interval and source; see `manyhands.metrics.Level`) and ``headline`` (the same in
        words), as if no label were left open, ``of_rule`` (for how many items another class is more
        probable than the label, and why, in words; "" for none), ``threshold`` (as given),
        ``decided`` (level and headline of the labels that were decided; None if none was left
        open), ``annotators`` (annotator, n_annotations, severity in grades, severity_low_95,
        severity_high_95, severity_in_words; of grades, by methods that estimate it), ``too_high``
        (whether all annotators together grade too high or too low, in words; "" with too little
        gold or without a report), ``settled`` (what gold shows of annotators who may share
        mistakes, in words; "" likewise), ``files`` (what was written), and ``gold``: metrics on the
        annotated instances that have gold and are not in ``known``, or None.

    Raises
    ------
    AnnotationError
        If ``out`` is a folder and nobody knows who gave the votes, or there are too many
        classes for a folder; or if ``rule`` does not suit the labels.
    """
    place = None if out is None else check_output(Path(out), to)
    if place is not None and not place.suffix and not table.annotators_known:
        raise AnnotationError(
            f"out={str(out)!r} names a folder for a report on annotators, but the votes do not "
            "say who gave them; name a file for the labels, such as labels.csv"
        )
    if place is not None and not place.suffix and is_vast(table.n_instances, table.n_classes):
        raise AnnotationError(
            f"out={str(out)!r} names a folder for a model and a report, but {table.n_classes:,} "
            "classes are too many for them; name a file for the labels, such as labels.csv"
        )
    check_rule_of(rule, table)
    own = {} if history is None else {"history": history}
    own |= {} if checkpoint is None else {"checkpoint": checkpoint}
    aggregator.fit(table, **_known(known, table), **own)
    options: dict[str, Any] = {"to": to, "export": export, "keep_formulas": keep_formulas}
    options |= {"shown": shown, "named": files}
    return _concluded(aggregator, gold, place, rule, threshold, title, **options)


def continue_aggregation(
    folder: str | Path,
    new: AnnotationTable,
    gold: GoldFile | None = None,
    out: str | Path | None = None,
    *,
    duplicates: Duplicates = "last",
    known: GoldFile | None = None,
    rule: str | None = None,
    threshold: float | None = None,
    to: str = "table",
    export: Export | None = None,
    title: str | None = None,
    keep_formulas: bool = False,
    shown: Shown | None = None,
    files: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Add annotations to an aggregator of a folder, and write the labels of all instances.

    Parameters
    ----------
    folder : str or Path
        Folder that `aggregate_table` wrote. It is not changed, unless it is ``out``, too.
    new : AnnotationTable
        New annotations, over the aggregator's classes or some of them. Those that it has already,
        with the same label, may be among them.
    duplicates : {"error", "last", "keep"}
        How to treat (instance, annotator) pairs that were annotated before; see
        `BaseAggregator.partial_fit`.
    known : GoldFile, optional
        Known classes of old and new instances. Those known earlier remain so.
    gold, out, rule, threshold, to, export, title, keep_formulas, shown, files
        As in `aggregate_table`.

    Returns
    -------
    dict
        As of `aggregate_table`, and ``added``: the numbers of annotations that were ``new``,
        ``changed`` (of pairs annotated before) and ``repeated`` (with the same label).

    Raises
    ------
    AnnotationError
        If the folder holds a classifier, or for the reasons of `BaseAggregator.partial_fit`.
    ModelFolderError
        If the folder holds no model.
    """
    place = None if out is None else check_output(Path(out), to)
    aggregator = load(folder)
    if isinstance(aggregator, BaseSetAggregator):
        raise AnnotationError(
            f"{folder} holds a {type(aggregator).__name__}, which infers sets of labels; read the "
            "new annotations as sets, too: multilabel=';'"
        )
    if not isinstance(aggregator, BaseAggregator):
        raise AnnotationError(
            f"{folder} holds a {type(aggregator).__name__}, a classifier; continue it by "
            "fit --continue, with features"
        )
    before = aggregator.table_
    check_rule_of(rule, before)
    new = on_scale_of(before, new, argument="the new annotations")
    if known is not None:
        # Over all instances, so that old ones can become known, too.
        new = before.take(np.zeros(before.n_annotations, dtype=bool)).with_added(new)
    aggregator.partial_fit(new, **_known(known, new), duplicates=duplicates)
    n_unlike = without_known(new, before).n_annotations
    n_changed = before.n_annotations + n_unlike - aggregator.table_.n_annotations
    if duplicates == "keep":
        n_unlike, n_changed = new.n_annotations, 0
    added = {
        "new": n_unlike - n_changed,
        "changed": n_changed,
        "repeated": new.n_annotations - n_unlike,
    }
    options: dict[str, Any] = {"to": to, "export": export, "keep_formulas": keep_formulas}
    options |= {"shown": shown, "named": files_with_more(folder, files)}
    return _concluded(aggregator, gold, place, rule, threshold, title, **options) | {"added": added}


def _concluded(
    aggregator: BaseAggregator,
    gold: GoldFile | None,
    place: Path | None,
    rule: str | None,
    threshold: float | None,
    title: str | None,
    *,
    named: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Decide the labels of a fitted aggregator, evaluate and write them."""
    table, posterior = aggregator.table_, aggregator.posterior_
    values = np.array([*table.classes.tolist(), None], dtype=object)
    codes = decide(
        posterior,
        rule or rule_of(table),
        ties="random" if aggregator.ties == "random" else "first",
        random_state=aggregator.random_state,
    )
    is_known = aggregator.is_known_
    metrics, matched = None, None
    measured: dict[str, Any] = {}
    if gold is not None:
        matched = match_gold(gold, table)
        matched.note_queue()
        truth = matched.codes
        measured = {"gold": matched.measuring, "random": matched.random}
        annotated = table.annotations_per_instance() > 0
        warn_of_gold_that_is_known(truth, is_known)
        rows = np.flatnonzero((truth >= 0) & annotated & ~is_known)
    decided = aggregator.identified_
    told = tell_labels(table, aggregator, codes, posterior, **measured)
    certainty = certainty_of(table, told.level, posterior, codes, is_known)
    judged: dict[str, Any] = {"known": is_known, "identified": decided}
    judged["probability"] = certainty.of_labels(posterior, codes, is_known)
    judged["accept"] = threshold or ACCEPT
    every, some = codes, None
    if threshold is not None:
        # How sure a label is does not depend on which other labels are left open.
        codes = with_open(codes, judged["probability"], posterior, threshold)
        if ((codes < 0) & (table.annotations_per_instance() > 0)).any():
            whole = (table, told.level, every, posterior, codes < 0, threshold)
            some = tell_decided(*whole, known=is_known, gold=measured.get("gold")).to_dict()
    if gold is not None:
        metrics = measure(table, posterior, codes, truth, rows)
    if not aggregator.traits.compares_annotators:  # Others have said it in their fit.
        warn_of_unidentified(aggregator._unidentified(votes_of(table, aggregator._gold)))
    middle = isinstance(rule, str | None) and (rule or rule_of(table)) == "median"
    n_other = n_less_probable(posterior, np.where(table.annotations_per_instance() > 0, every, -1))
    of_rule = told_of_rule(n_other, middle=middle)
    found = consensus(table, posterior, values[codes], **judged)
    found = replace(found, random=aggregator._random_gold)
    files: list[Path] = []
    summary: dict[str, Any] = {}
    if place is not None and place.suffix:
        name = type(aggregator).__name__
        files = [write_consensus(place, found, method=name, **options)]
    elif place is not None:
        how = {"rule": rule if isinstance(rule, str) else None, "threshold": threshold}
        options |= {"named": named, "some": some, "decision": how}
        files, summary = _write_folder(place, found, aggregator, matched, title, **options)
    return {
        "method": type(aggregator).__name__,
        "n_instances": table.n_instances,
        "n_undecided": int((codes < 0).sum()),
        "labels": label_rows(codes, found.probability, table.instances, table.classes),
        "actions": found.count_actions(),
        "n_unconfirmed": found.n_unconfirmed,
        "rule": found.rule,
        "half_of_wrong": half_of_wrong(summary),
        "usable": told_of_usable(summary),
        "n_known": int(found.known.sum()),
        **told.to_dict(),
        "of_rule": of_rule,
        "threshold": threshold,
        "decided": some,
        "annotators": severity_rows(aggregator),
        "too_high": told_of_all(summary),
        "settled": told_of_settled(summary),
        "files": [str(path) for path in files],
        "gold": metrics,
    }


def check_output(out: Path, to: str) -> Path:
    """Check the name of the output, before any work; a name without a suffix is a folder.

    Raises
    ------
    AnnotationError
        If no labels can be written to a file of this name.
    """
    if out.suffix:
        try:
            return check_target(out, to)
        except AnnotationError as error:
            raise AnnotationError(
                f"{error}, or a name without a dot, such as "
                f"{str(out.with_suffix('')) + out.suffix.replace('.', '-')!r}, for a folder with "
                "labels, model and report"
            ) from error
    check_target(out / tool_file(to), to)
    return out


def tool_file(to: str) -> str:
    """Return the name of the file for a tool, within a folder."""
    return f"{to}{SUFFIXES.get(to, '.csv')}"


def _known(known: GoldFile | None, table: AnnotationTable) -> dict[str, Any]:
    """Return the arguments of ``fit``: known classes, and which were drawn at random."""
    if known is None:
        return {}
    rows = match_gold(known, table)
    values = np.array([*table.classes.tolist(), None], dtype=object)
    return {"gold": values[rows.codes], "random_gold": rows.random}


def _write_folder(
    folder: Path,
    found: Consensus,
    aggregator: BaseAggregator,
    matched: GoldRows | None,
    title: str | None,
    *,
    to: str,
    export: Export | None,
    keep_formulas: bool,
    shown: Shown | None,
    named: Mapping[str, Any] | None,
    some: Mapping[str, Any] | None,
    decision: Mapping[str, Any],
) -> tuple[list[Path], dict[str, Any]]:
    """Write model, labels, annotators and a report, and the labels in the format of a tool.

    ``some`` tells how many of the labels are right that were not left open, if some were, and
    ``decision`` by which rule and threshold, for the explorer and for plans. Returns the files and
    the summary.
    """
    table = aggregator.table_
    given: dict[str, Any] = {}
    decided = (found.codes >= 0) | (found.n_annotations == 0)
    if decided.all() and (found.codes != best_of(found.posterior, table)).any():
        given = {"labels": found.labels, "posterior": found.posterior}
    given |= times_of(export, table)
    if matched is not None:
        values = np.array([*table.classes.tolist(), None], dtype=object)
        given["gold"] = values[matched.codes]
    inputs = read_inputs(table, aggregator, **given)
    if matched is not None:
        inputs = replace(inputs, measuring=matched.measuring, random_gold=matched.random)
    summary, profiles = summarize_inputs(inputs, title=title, labels=found)
    if some is not None:
        summary["levels"]["decided"] = some
    if summary["labels"] is not None:
        summary["labels"]["decision"] = dict(decision)
    note_unused_gold(summary, export)
    shown = shown or shown_of(export)
    own: dict[str, Any] = {"files": named, "keep_formulas": keep_formulas}
    files = keep_labels(folder, aggregator, found, profiles, summary, shown, **own)
    if to != "table":
        path = folder / tool_file(to)
        method = type(aggregator).__name__
        files.append(write_consensus(path, found, to=to, export=export, method=method))
    return files, summary


def profile_annotators(
    table: AnnotationTable,
    aggregator: BaseAggregator,
    export: Export | None = None,
    *,
    gold: Any = None,
    joined: bool = True,
) -> dict[str, list[Any]]:
    """Return the columns of ``annotators.csv`` for a fitted aggregator.

    ``gold`` holds true class values of the instances, None where unknown.
    """
    inputs = read_inputs(table, aggregator, gold=gold, **times_of(export, table))
    return summarize_annotators(inputs, joined=joined)


def measure(
    table: AnnotationTable | AnnotationStore, posterior: Any, codes: Any, truth: Any, rows: Any
) -> dict[str, Any]:
    """Return scores against gold, on the instances that received a label."""
    labelled = rows[codes[rows] >= 0]
    metrics: dict[str, Any] = {"instances with gold": len(rows)}
    if len(labelled) < len(rows):
        metrics["of them decided"] = len(labelled)
    if len(labelled):
        values = against_gold(table, truth[labelled], codes[labelled], posterior[labelled])
        metrics |= {
            SCORES[key].name: values[key] for key in MEASURED if values.get(key) is not None
        }
    return metrics


def compare_methods(
    table: AnnotationTable, gold: GoldFile | None = None, *, seed: int = 0
) -> dict[str, Any]:
    """Score every method on a table; see `manyhands.inference.comparison.compare_aggregators`.

    Returns
    -------
    dict
        ``n_instances``, ``n_gold`` (annotated instances with gold, by which the methods are
        scored), and ``methods`` (the fields of a `MethodScore` each, best first).
    """
    values = np.array([*table.classes.tolist(), None], dtype=object)
    codes = None if gold is None else match_gold(gold, table).codes
    truth = None if codes is None else values[codes]
    scores = compare_aggregators(table, gold=truth, random_state=seed)
    annotated = table.annotations_per_instance() > 0
    n_gold = 0 if codes is None else int(((codes >= 0) & annotated).sum())
    methods = [asdict(score) for score in scores]
    return {"n_instances": table.n_instances, "n_gold": n_gold, "methods": methods}
