"""What the pages show of labels and annotators, computed anew after corrections."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import softmax

from manyhands.annotations import AnnotationTable
from manyhands.annotations.class_order import unit_of_grades
from manyhands.decision.labels import best_of, decide, is_scale_of_grades
from manyhands.decision.rules import AUTO, apply_rule
from manyhands.inference.base import BaseAggregator
from manyhands.inference.dawid_skene import DawidSkene
from manyhands.io import consensus
from manyhands.io.consensus_labels import ACCEPT, Consensus
from manyhands.metrics import annotator_reliability
from manyhands.metrics.certainty import Certainty, certainty_of
from manyhands.planning import AnnotatorScreen, review_queue
from manyhands.planning.screening import LEVEL
from manyhands.registry import find_aggregator
from manyhands.report.annotators import order_of
from manyhands.report.headline import (
    Told,
    headline_of_new_items,
    is_calibrated,
    tell_labels,
    told_in,
)
from manyhands.report.inputs import Inferred, Inputs
from manyhands.report.planning import Basis, basis_of, screening_of
from manyhands.typing import BoolArray, FloatArray, IntArray
from manyhands.wording import too_much

LEAST_KEPT = 1e-6
"""Probabilities below are not told apart when a classifier's evidence is kept."""


@dataclass(frozen=True, eq=False)
class Figures:
    """Labels and annotators, as of some number of corrections.

    Attributes
    ----------
    n_records : int
        Number of actions, from the first on, that these figures include.
    posterior : array of shape (n, C)
        1 for the class of a known label.
    codes : integer array of shape (n,)
        Labels.
    order : integer array of shape (n,)
        Instances, the most doubtful label first; those without annotations come last.
    found : Consensus
        The labels, and what is recommended for each.
    n_annotations, accuracy, low, high : arrays of shape (R,)
        Annotations of each annotator, and the expected accuracy with a 95 % interval; NaN where
        nothing shows how good the annotators are.
    n_checked, n_right : integer arrays of shape (R,)
        Annotations of labels that a person gave or confirmed, and how many of them were the same.
    pairs : integer array of shape (C, C)
        Annotations by [label, given].
    gold : dict {id: class}
        The known labels.
    aggregator : BaseAggregator
        What the annotations and the known labels say without a classifier.
    inputs : Inputs
    basis : Basis or None
        What plans rest on; None without two classes.
    screens : dict {code: AnnotatorScreen}
        Who needs a look and why, of the annotators with annotations.
    told : Told
        How many labels are right.
    certainty : Certainty
        How sure single labels are said to be.
    """

    n_records: int
    posterior: FloatArray
    codes: IntArray
    order: IntArray
    found: Consensus
    n_annotations: IntArray
    accuracy: FloatArray
    low: FloatArray
    high: FloatArray
    n_checked: IntArray
    n_right: IntArray
    pairs: IntArray
    gold: dict[Any, Any]
    aggregator: BaseAggregator
    inputs: Inputs
    basis: Basis | None
    screens: dict[int, AnnotatorScreen]
    told: Told
    certainty: Certainty

    def people(self) -> list[int]:
        """Positions of the annotators with annotations, in the order of the report."""
        rows = [
            {
                "n_annotations": int(self.n_annotations[r]),
                "accuracy": float(self.accuracy[r]) if self.inputs.judged else None,
                "upper": float(self.high[r]) if self.inputs.judged else None,
                "flags": self.screens[r].flags if r in self.screens else (),
                "gold": None,
            }
            for r in range(len(self.n_annotations))
        ]
        return [r for r in order_of(rows).tolist() if self.n_annotations[r]]

    def severities(self) -> dict[int, str]:
        """Find the annotators of grades who surely rate too high or too low, by their positions.

        It is told in what the scale counts, such as stars, also where grades are halves of them.
        """
        model: Any = self.aggregator
        if getattr(model, "severity_", None) is None or not self.inputs.judged:
            return {}
        step, unit = unit_of_grades(self.found.classes)
        severity, width = step * model.severity_, step * 1.959963984540054 * model.severity_se_
        ends = zip(severity - width, severity + width, strict=True)
        told = {
            r: too_much(float(severity[r]), float(low), float(high), unit and f" {unit}")
            for r, (low, high) in enumerate(ends)
            if self.n_annotations[r]
        }
        return {r: text for r, text in told.items() if text}


class Model:
    """How labels follow from annotations and known labels.

    A folder of ``aggregate`` names its method, which is fitted again with the known labels. The
    labels of a classifier rest on features, too. Their share of the evidence is kept: with p the
    classifier's posterior and a, b that of the annotations alone, given the labels that were known
    to the classifier and those that are known now, the new posterior is proportional to p b / a.

    Parameters
    ----------
    table : AnnotationTable
    saved : array of shape (n, C)
        Posterior in the folder.
    described : dict
        The folder's summary.
    ended : array of shape (n_annotations,), optional
        When each annotation was given.
    known : integer array of shape (n,), optional
        Classes that the posterior in the folder already takes as known; -1 elsewhere.
    drawn : boolean array of shape (n,), optional
        Which of them were drawn at random.
    fitted : BaseAggregator, optional
        The method of the folder as it was fitted. It knows more than the summary, such as a
        history, and serves while nothing else is known and the annotations are the same.

    Attributes
    ----------
    name : str
    command : {"fit", "aggregate"}
        What made the folder.
    new_items : str
        How often the folder's classifier is right on new items; empty without one.
    threshold : float or None
        Probability from which the folder accepts labels; less probable ones are left open there.
        None: `manyhands.io.consensus_labels.ACCEPT`, and no label is left open.
    notes : list of str
        What a reader should know.
    """

    def __init__(
        self,
        table: AnnotationTable,
        saved: FloatArray,
        described: dict[str, Any],
        ended: FloatArray | None = None,
        known: IntArray | None = None,
        drawn: BoolArray | None = None,
        fitted: BaseAggregator | None = None,
    ) -> None:
        self.notes: list[str] = []
        self.new_items = headline_of_new_items(described)
        self._table, self._ended = table, ended
        self._values = np.array([*table.classes.tolist(), None], dtype=object)
        self._summary, methods = described, described["methods"]
        # Not in folders of earlier versions, and not of a classifier.
        decision = (described.get("labels") or {}).get("decision") or {}
        self._rule, self.threshold = decision.get("rule"), decision.get("threshold")
        self._known = np.full(table.n_instances, -1) if known is None else known
        self._drawn = drawn
        self._make = self._maker(methods.get("aggregator"))
        if fitted is not None and not is_same(fitted.table_, table):
            fitted = None
        is_known = known is not None and bool((known >= 0).any())
        self._fitted = self._make().fit(table) if fitted is None or is_known else fitted
        # What the folder's labels say is compared with the same corrections, or they count twice.
        self._before = fitted if is_known else None
        if is_known and fitted is None:
            self._before = self._make().fit(table, gold=self._values[known], random_gold=drawn)
        self._alone = (self._before or self._fitted).posterior_
        classifier = methods.get("classifier")
        self.command = "fit" if classifier else "aggregate"
        self._saved = saved if classifier else None
        self.name = str((classifier or methods.get("aggregator") or {}).get("name", "DawidSkene"))
        if classifier is None:
            annotated = table.annotations_per_instance() > 0
            other = (self.codes(self._alone) != self.codes(saved)) & annotated
            if other.any():
                self.notes.append(
                    f"{other.sum():,} of {annotated.sum():,} labels here differ from those in the "
                    "folder, which were made with other annotations or with options that are not "
                    "known here (known labels, a history)"
                )

    def _maker(self, aggregator: dict[str, Any] | None) -> Callable[[], BaseAggregator]:
        if aggregator is None:
            return DawidSkene
        kind = find_aggregator(str(aggregator.get("name")))
        given: dict[str, Any] = {}
        for name, parameter in inspect.signature(kind).parameters.items():
            text = aggregator.get("params", {}).get(name, repr(parameter.default))
            if text == repr(parameter.default):
                continue
            try:
                given[name] = ast.literal_eval(text)
            except (ValueError, SyntaxError):
                self.notes.append(f"{kind.__name__}({name}={text}) is not repeated: its default is")
        return lambda: kind(**given)

    def aggregate(self, known: IntArray, drawn: BoolArray | None = None) -> BaseAggregator:
        """Return what annotations and known classes (-1 unknown) say without a classifier.

        ``drawn`` marks the classes that were drawn at random, if anything is known of it.
        """
        if not (known >= 0).any():
            return self._fitted
        if self._before is not None and self._is_as_before(known, drawn):
            return self._before
        # From the same start always: what is undone leaves no trace.
        start = self._fitted.posterior_
        more = {"start": start, "random_gold": drawn}
        return self._make().fit(self._table, gold=self._values[known], **more)

    def _is_as_before(self, known: IntArray, drawn: BoolArray | None) -> bool:
        """Return whether known classes, and what was drawn at random, are those of the folder."""
        if not np.array_equal(known, self._known) or (drawn is None) != (self._drawn is None):
            return False
        rows = known >= 0
        return drawn is None or self._drawn is None or bool((drawn == self._drawn)[rows].all())

    def posterior(self, aggregator: BaseAggregator, known: IntArray) -> FloatArray:
        """Class probabilities, shape (n, C), given what `aggregate` found."""
        found = aggregator.posterior_
        if self._saved is not None and np.array_equal(known, self._known):
            return self._saved  # Exactly as the folder has them.
        if self._saved is not None:
            logs = [
                np.log(np.maximum(each, LEAST_KEPT)) for each in (self._saved, found, self._alone)
            ]
            found = softmax(logs[0] + logs[1] - logs[2], axis=1)
        found = found.copy()
        rows = np.flatnonzero(known >= 0)
        found[rows] = 0.0
        found[rows, known[rows]] = 1.0
        return found

    def told(
        self,
        aggregator: BaseAggregator,
        posterior: FloatArray,
        known: IntArray,
        drawn: BoolArray | None,
    ) -> Told:
        """Return how many labels are right: by the folder's report if it is about these labels.

        What gold measured there remains true of the labels that nobody corrects. So does what a
        random sample told of a classifier, until a larger one was reviewed since: what was said of
        the sample before anybody looked at it is not in the folder.
        """
        kept = told_in(self._summary)
        before = self._known
        new = (known >= 0) & (before < 0)
        rows = np.flatnonzero(new & (False if drawn is None else drawn))
        if kept is not None and not self.notes:
            level = kept.level
            source = None if level is None else level.source
            holds = source == "gold" or np.array_equal(known, before)
            if source == "sample" and self._saved is not None and level is not None:
                holds = holds or len(rows) <= level.n
            if holds:
                annotated = self._table.annotations_per_instance() > 0
                return told_in(self._summary, int(((known >= 0) & annotated).sum())) or kept
        if self._saved is None:
            return tell_labels(self._table, aggregator, self.codes(posterior), posterior)
        audit = np.full(len(known), -1)
        audit[rows] = known[rows]
        posterior = posterior.copy()
        posterior[rows] = self._saved[rows]  # As it was before anybody looked.
        calibrated = is_calibrated(self._summary)
        more: dict[str, Any] = {"fitted": aggregator, "audit": audit, "is_calibrated": calibrated}
        more |= {"identified": aggregator.identified_, "random": audit >= 0}
        return tell_labels(self._table, None, self.codes(posterior), posterior, **more)

    def codes(self, posterior: FloatArray) -> IntArray:
        """Codes of the labels that a posterior gives, shape (n,)."""
        if self.command == "aggregate" and self._rule is not None:
            return np.asarray(decide(posterior, self._rule))
        if self.command == "aggregate":
            return best_of(posterior, self._table)
        return apply_rule(posterior, AUTO, grades=is_scale_of_grades(self._table))

    def inputs(self, aggregator: BaseAggregator, posterior: FloatArray) -> Inputs:
        """The same as the functions of the report take it."""
        kind = "aggregator" if self._saved is None else "classifier"
        inferred = Inferred(self.name, kind, self.codes(posterior), posterior)
        own = aggregator if self._saved is None else None
        table = replace(self._table.observed, weights=None)
        return Inputs(self._table, table, inferred, own, ended=self._ended, given=aggregator)


def is_same(one: AnnotationTable, other: AnnotationTable) -> bool:
    """Return whether two tables hold the same annotations in the same order."""
    names = ("instances", "annotators", "classes", "instance", "annotator", "label")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def compute(
    table: AnnotationTable,
    model: Model,
    known: IntArray,
    n_records: int,
    drawn: BoolArray | None = None,
) -> Figures:
    """Compute what is shown, from annotations and known classes (-1 unknown)."""
    aggregator = model.aggregate(known, drawn)
    posterior = model.posterior(aggregator, known)
    rows = np.flatnonzero(known >= 0)
    gold = dict(
        zip(table.instances[rows].tolist(), table.classes[known[rows]].tolist(), strict=True)
    )
    inputs = model.inputs(aggregator, posterior)
    basis = basis_of(inputs, gold)
    screening = () if basis is None else screening_of(inputs, basis)
    place = {annotator: r for r, annotator in enumerate(table.annotators.tolist())}
    told = model.told(aggregator, posterior, known, drawn)
    codes = model.codes(posterior)
    certainty = certainty_of(table, told.level, posterior, codes, known >= 0)
    found = consensus(
        table,
        posterior,
        table.classes[codes],
        known=known >= 0,
        probability=certainty.of_labels(posterior, codes, known >= 0),
        accept=model.threshold or ACCEPT,
    )
    queue = review_queue(posterior, table)
    row_of = {task: row for row, task in enumerate(table.instances.tolist())}
    order = np.array([row_of[task] for task in queue.instances.tolist()], dtype=np.int64)
    order = np.concatenate([order, np.setdiff1d(np.arange(table.n_instances), order)])
    observed = table.observed
    reliability = annotator_reliability(observed, posterior, level=LEVEL)
    accuracy, low, high = reliability[1:]
    if not inputs.judged:
        accuracy, low, high = (np.full(table.n_annotators, np.nan) for _ in range(3))
    truth = known[observed.instance]
    checked, right = truth >= 0, truth == observed.label
    cells = codes[observed.instance] * table.n_classes + observed.label
    return Figures(
        n_records,
        posterior,
        codes,
        order,
        found,
        reliability.n_annotations,
        accuracy,
        low,
        high,
        _count(observed, checked),
        _count(observed, right),
        np.bincount(cells, minlength=table.n_classes**2).reshape(table.n_classes, -1),
        gold,
        aggregator,
        inputs,
        basis,
        {place[each.annotator]: each for each in screening if each.n_annotations},
        told,
        certainty,
    )


def _count(table: AnnotationTable, mask: BoolArray) -> IntArray:
    return np.bincount(table.annotator[mask], minlength=table.n_annotators)
