"""The report on sets of labels: options, annotators, and the options that are in doubt."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from scipy.special import logit

from manyhands.agreement import krippendorff_alpha, option_agreement
from manyhands.agreement.intervals import jackknife
from manyhands.agreement.set_distances import MOST_SETS
from manyhands.annotations import LabelSetTable
from manyhands.codes import ActionCode
from manyhands.decision import SetDecision
from manyhands.inference.set_aggregator import BaseSetAggregator
from manyhands.io.consensus_sets import RULE, SetConsensus
from manyhands.metrics import Level
from manyhands.metrics.levels import expectation_error
from manyhands.metrics.set_levels import SetLevels
from manyhands.report.filters import clipped, percent_range
from manyhands.report.first import (
    MEASURED_NOTE,
    UNKNOWN,
    First,
    figure_of,
    first_section,
    told_of_agreement,
)
from manyhands.report.inputs import describe_estimator
from manyhands.report.items import ITEMS
from manyhands.report.limits import FEW, LIMITS
from manyhands.report.methods import answer_methods
from manyhands.report.section import Action, Answer, Content, Once, Section
from manyhands.typing import FloatArray, IntArray
from manyhands.wording import N_RANDOM, counted, listed, percent

MOST_ACTIONS = 4
"""Actions on the first screen."""

UNCLEAR = 0.4
"""Alpha below which annotators hardly agree on what an option means."""

FEW_TICKS = 20
"""Ticks below which nothing is said of the agreement on an option."""

DOUBTS = 3
"""Doubtful options that are named of an item."""

SURE = 0.9
"""Certainty from which an option of an item is not named as doubtful, unless all are."""


@dataclass(frozen=True, eq=False)
class SetFindings(Once):
    """The inputs of a report on sets of labels, and what its sections find, each once.

    Attributes
    ----------
    model : BaseSetAggregator, fitted
    found : SetConsensus
    levels : SetLevels
    decided : SetDecision
    how : str
        How the sets were decided, in words.
    gold : integer array of shape (n_instances, n_options) or None
        True cells, -1 where unknown.
    measured : dict {name: value} or None
        Scores against gold, as the job measured them.
    separator : str
        What is written between the labels of a set.
    files, reading : sequence of str
        Files of the answers, and the options of the command line that read them, for commands that
        read the answers again. Without files, the commands name a FILE with this separator.
    given : sequence of str
        The other options of the command.
    """

    model: BaseSetAggregator
    found: SetConsensus
    levels: SetLevels
    decided: SetDecision
    how: str
    gold: IntArray | None = None
    measured: Mapping[str, Any] | None = None
    separator: str = ";"
    files: Sequence[str] = ()
    reading: Sequence[str] = ()
    given: Sequence[str] = ()

    @property
    def table(self) -> LabelSetTable:
        """The answers."""
        return self.model.table_


# -- sections --------------------------------------------------------------------------------------


def data_section(found: SetFindings) -> Content:
    """Describe the answers: their number, what they tick, and how the sets were decided."""
    table, model = found.table, found.model
    n, per_answer = table.annotations_per_instance(), table.ticks_per_answer()
    shared = getattr(model, "shared_", None)
    return {
        "n_instances": table.n_instances,
        "n_annotators": table.n_annotators,
        "n_annotations": table.n_annotations,
        "n_options": table.n_options,
        "n_ticks": table.n_ticks,
        "n_labels": int(found.decided.ticks.sum()),
        "ticks_per_answer": float(per_answer.mean()) if len(per_answer) else None,
        "labels_per_item": float(found.decided.ticks.sum(axis=1).mean()) if len(n) else None,
        "n_without_a_tick": int((per_answer == 0).sum()),
        "answers_per_item": float(n[n > 0].mean()) if (n > 0).any() else None,
        "n_unanswered": int((n == 0).sum()),
        "n_known": int(found.found.known.sum()),
        "actions": found.found.count_actions(),
        "decided": found.how,
        "shared": shared,
        "why": getattr(model, "why_", None),
        "separator": found.separator,
        "files": list(found.files),
        "reading": list(found.reading),
        "given": list(found.given),
        "judged": _is_judged(found),
    }


def levels_section(found: SetFindings) -> Content:
    """Shares of right labels among those given, and of those that apply which were given."""
    given, missed = found.levels.given, found.levels.found
    return {
        "given": None if given is None else given.to_dict(),
        "found": None if missed is None else missed.to_dict(),
        "headline": told_of_sets(found),
    }


def agreement_section(found: SetFindings) -> Content | None:
    """Krippendorff's alpha of sets, by each distance, with intervals; None where undefined."""
    table = found.table
    many = len(np.unique(table.answers.label)) > MOST_SETS
    distances: tuple[Any, ...] = ("nominal",) if many else ("jaccard", "masi", "nominal")
    rows = []
    for name in distances:
        alpha = jackknife(
            partial(krippendorff_alpha, distance=name),
            table,  # type: ignore[arg-type]
        )
        if not np.isnan(alpha.value):
            rows.append({"distance": name, **_bounds(alpha.value, alpha.low, alpha.high)})
    several = int((table.annotations_per_instance() > 1).sum())
    return {"n_instances": several, "rows": rows} if rows else None


def options_section(found: SetFindings) -> Content:
    """Each option: how often it is ticked and given, agreement, how sure, and against gold."""
    agreement, ticks = option_agreement(found.table), found.decided.ticks
    doubt = 1 - found.found.certainty
    gold = _gold_of_options(found)
    n = max(found.table.n_instances, 1)
    rows = []
    for m, name in enumerate(found.found.options.tolist()):
        given = ticks[:, m] & ~found.found.known[:, m]
        told = found.found.probability[given, m]
        is_told = bool(len(told)) and not np.isnan(told).any()
        rows.append(
            {
                "option": name,
                "n_ticks": int(agreement.n_ticks[m]),
                "share": float(agreement.share[m]),
                "n_given": int(ticks[:, m].sum()),
                "share_given": float(ticks[:, m].sum() / n),
                "prevalence": float(found.model.prevalence_[m]),
                **_bounds(agreement.alpha[m], agreement.low[m], agreement.high[m]),
                "certainty": float(told.mean()) if is_told else None,
                "expected_wrong": float(doubt[:, m].sum()),
                "threshold": float(min(found.decided.threshold[m], 1.0)),
                "expected_f1": float(found.decided.expected_f1[m]),
                **({} if gold is None else gold[m]),
            }
        )
    rows.sort(key=lambda row: -row["expected_wrong"])
    return {"total": len(rows), "has_gold": gold is not None, "rows": rows}


def _gold_of_options(found: SetFindings) -> list[Content] | None:
    """Precision and recall of each option against gold."""
    if found.gold is None:
        return None
    has = (found.gold >= 0) & ~found.found.known
    applies, ticks = has & (found.gold == 1), has & found.decided.ticks
    hits = (applies & ticks).sum(axis=0)
    return [
        {
            "n_gold": int(has[:, m].sum()),
            "precision": float(hits[m] / ticks[:, m].sum()) if ticks[:, m].any() else None,
            "recall": float(hits[m] / applies[:, m].sum()) if applies[:, m].any() else None,
        }
        for m in range(found.table.n_options)
    ]


def gold_section(found: SetFindings) -> Content | None:
    """Scores against gold, by name; None without gold."""
    return dict(found.measured) if found.measured else None


def annotators_section(found: SetFindings) -> Content:
    """Describe how much each annotator overlooks and ticks wrongly, those to look at first."""
    table, model = found.table, found.model
    n = table.annotations_per_annotator()
    ticks = np.bincount(table.annotator, table.ticks_per_answer(), table.n_annotators)
    people = {
        "n_annotations": n,
        "ticks_per_answer": np.divide(ticks, n, out=np.full(len(n), np.nan), where=n > 0),
    }
    judged = _is_judged(found) and hasattr(model, "annotator_sensitivity_")
    if not judged:
        order = np.argsort(-n, kind="stable")[: LIMITS["annotators"]]
        rows = [_person(found, people, r) for r in order.tolist()]
        return {"total": len(n), "shown": len(rows), "judged": False, "n_flagged": 0, "rows": rows}
    own: Any = model
    intervals = own.intervals()
    of_option = (intervals.sensitivity, intervals.false_tick_rate)
    active = n >= FEW
    typical = {}
    for name in ("sensitivity", "false_tick_rate"):
        values = getattr(own, f"annotator_{name}_")
        low, high = np.moveaxis(getattr(intervals, f"annotator_{name}"), -1, 0)
        people |= {name: values, f"{name}_low": low, f"{name}_high": high}
        typical[name] = float(np.median(values[active] if active.any() else values))
    misses = active & (people["sensitivity_high"] < typical["sensitivity"])
    vain = active & (people["false_tick_rate_low"] > typical["false_tick_rate"])
    extra = _extra_mistakes(found, people, typical)
    order = np.lexsort((-n, -np.where(misses | vain, extra, 0.0), ~(misses | vain)))
    shown = order[: LIMITS["annotators"]]
    rows = []
    for r in shown.tolist():
        flags = []
        if misses[r]:
            flags.append("overlooks labels")
        if vain[r]:
            flags.append("ticks wrongly")
        rows.append(
            _person(found, people, r)
            | {"flags": flags, "extra": float(extra[r]) if flags else 0.0}
            | {"where": _where(found, of_option, r) if active[r] else []}
        )
    return {
        "total": len(n),
        "shown": len(rows),
        "judged": True,
        "n_flagged": int((misses | vain).sum()),
        "typical": typical,
        "rows": rows,
    }


def _person(found: SetFindings, people: Mapping[str, Any], r: int) -> Content:
    row = {"id": found.table.annotators[r].item(), "flags": [], "where": []}
    return row | {name: _number(values[r]) for name, values in people.items()}


def _extra_mistakes(
    found: SetFindings, people: Mapping[str, FloatArray], typical: Mapping[str, float]
) -> FloatArray:
    """Wrong cells of each annotator's answers beyond those of the typical one, (R,)."""
    prevalence = found.model.prevalence_
    overlooked = typical["sensitivity"] - people["sensitivity"]
    vain = people["false_tick_rate"] - typical["false_tick_rate"]
    per_answer = overlooked * prevalence.sum() + vain * (1 - prevalence).sum()
    return np.asarray(people["n_annotations"] * np.maximum(per_answer, 0.0))


def _usual_rates(found: SetFindings) -> tuple[FloatArray, FloatArray]:
    """Rates of the typical annotator under each option: sensitivity, and false ticks."""
    model: Any = found.model
    return np.median(model.sensitivity_, axis=0), np.median(model.false_tick_rate_, axis=0)


def _where(found: SetFindings, intervals: Any, r: int) -> list[str]:
    """Say under which options an annotator surely differs most from the others."""
    model: Any = found.model
    told = []
    rates = ((model.sensitivity_, 0), (model.false_tick_rate_, 1))
    typical = found.once(_usual_rates)
    for (rate, is_vain), usual, bounds in zip(rates, typical, intervals, strict=True):
        low, high = bounds[r].T
        worse = low > usual if is_vain else high < usual
        apart = np.abs(logit(rate[r].clip(1e-4, 1 - 1e-4)) - logit(usual.clip(1e-4, 1 - 1e-4)))
        for m in np.flatnonzero(worse).tolist():
            name = clipped(found.found.options[m], 30)
            own, others = percent(round(rate[r, m], 2)), percent(round(float(usual[m]), 2))
            text = (
                f"ticks “{name}” in {own} of cases where it does not apply (others {others})"
                if is_vain
                else f"ticks “{name}” in {own} of cases where it applies (others {others})"
            )
            told.append((float(apart[m]), text))
    told.sort(key=lambda each: -each[0])
    return [text for _, text in told[:2]]


def doubtful_section(found: SetFindings) -> Content | None:
    """Items by the number of wrong options to expect; None if all sets are known."""
    rows = _by_doubt(found)
    if not len(rows):
        return None
    shown = rows[: LIMITS["review"]]
    expected = (1 - found.found.certainty)[rows].sum(axis=1)
    half = int(np.searchsorted(expected.cumsum(), expected.sum() / 2) + 1)
    return {
        "total": len(rows),
        "shown": len(shown),
        "is_told": not np.isnan(found.found.probability[rows]).any(),
        "half": half,
        "expected_wrong": float(expected.sum()),
        "expected_wrong_shown": float(expected[: len(shown)].sum()),
        "rows": [_item(found, i) for i in shown.tolist()],
    }


def _by_doubt(found: SetFindings) -> IntArray:
    """Items with answers whose sets are not all known, those with most wrong options first."""
    order = found.found.by_doubt()
    open_ = (found.found.n_annotations > 0) & ~found.found.known.all(axis=1)
    return np.asarray(order[open_[order]])


def _item(found: SetFindings, i: int) -> Content:
    sets = found.found
    certainty = sets.certainty[i]
    ticked, n = found.once(_ticks_by_item)[i], int(sets.n_annotations[i])
    order = np.argsort(certainty, kind="stable")[:DOUBTS].tolist()
    doubts = [m for m in order if certainty[m] < SURE] or order[:1]
    return {
        "id": sets.tasks[i].item(),
        "labels": sets.labels[i],
        "expected_errors": float((1 - certainty).sum()),
        "n_annotations": n,
        "action": str(sets.actions[i]),
        "doubts": [
            {
                "option": str(sets.options[m]),
                "given": bool(sets.ticks[i, m]),
                "certainty": float(certainty[m]),
                "n_ticked": int(ticked[m]),
            }
            for m in doubts
        ],
    }


def _ticks_by_item(found: SetFindings) -> IntArray:
    """Return how many answers tick each option, shape (n_instances, n_options)."""
    from scipy.sparse import csr_array

    table = found.table
    shape = (table.n_instances, table.answers.n_classes)
    ones = np.ones(table.n_annotations, dtype=np.int32)
    given = csr_array((ones, (table.instance, table.answers.label)), shape=shape)
    return np.asarray((given @ table._sets.astype(np.int32)).toarray())


def methods_section(found: SetFindings) -> Content:
    """The method with its parameters."""
    return {"aggregator": describe_estimator(found.model)}


def items_section(found: SetFindings) -> Content:
    """The items that the page names: their sets, and who ticked what."""
    table = found.table
    rows = _by_doubt(found)[: LIMITS["review"]]
    order = np.argsort(table.instance, kind="stable")
    starts = np.searchsorted(table.instance[order], rows)
    stops = np.searchsorted(table.instance[order], rows, side="right")
    sets, people = table.labels_of_sets(), table.annotators[table.annotator]
    shown = []
    for i, low, high in zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True):
        own = order[low:high]
        cut = own[: LIMITS["votes_of_item"]]
        given = [[_joined(sets[table.answers.label[k]]), people[k].item()] for k in cut.tolist()]
        shown.append(
            {
                "id": table.instances[i].item(),
                "label": _joined(found.found.labels[i]),
                "probability": None,
                "gold": _gold_of(found, i),
                "given": given,
                "more": len(own) - len(cut),
            }
        )
    return {"total": len(rows), "shown": len(rows), "rows": shown}


def _gold_of(found: SetFindings, i: int) -> str | None:
    """The gold set of an item, if all of it is known."""
    if found.gold is None or (found.gold[i] < 0).any():
        return None
    return _joined(found.found.options[found.gold[i] == 1].tolist())


def _joined(names: list[str]) -> str:
    return ", ".join(names) if names else "none"


def _is_judged(found: SetFindings) -> bool:
    """Return whether anything shows how good the annotators are."""
    known = np.asarray(found.found.known.all(axis=1))
    return expectation_error(found.table.answers, known) is not None


def _bounds(value: float, low: float, high: float) -> Content:
    return {"alpha": _number(value), "low": _number(low), "high": _number(high)}


def _number(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if value != value else value


# -- what to do ------------------------------------------------------------------------------------


def actions_section(found: SetFindings) -> list[Content]:
    """Return what to do next: at most four steps, by the wrong options that each may avoid."""
    steps = list(_actions(found))
    codes = [*ActionCode]
    steps.sort(key=lambda step: (-step.avoided, codes.index(ActionCode(step.code))))
    return [each.to_dict() for each in steps[:MOST_ACTIONS]]


def _actions(found: SetFindings) -> Iterator[Action]:
    doubtful, counts = found.once(doubtful_section), found.found.count_actions()
    expected = 0.0 if doubtful is None else doubtful["expected_wrong"]
    yield from _talk(found, expected)
    command = review_command(found)
    if doubtful is not None:
        rows = doubtful["rows"][: LIMITS["actions"]]
        yield Action(
            ActionCode.CHECK,
            "set_items",
            "Check these items first",
            _expected_wrong(found, doubtful),
            doubtful["expected_wrong_shown"],
            [_doubt(row) for row in rows],
            [
                f"write the 50 most doubtful items into a sheet: {command} -n 50 --out review.csv",
                "or correct them with check boxes in a browser, on the page that the command "
                "“explore” opens",
            ],
        )
    yield from _explain(found)
    if n := counts["collect more"]:
        few = found.found.n_annotations[found.found.actions == "collect more"]
        rest = 1 - found.found.certainty[found.found.actions == "collect more"]
        is_all = n == found.table.n_instances
        what = "all items" if is_all else counted(n, "item")
        yield Action(
            ActionCode.BUY,
            "set_items",
            f"Have more annotators answer {what}",
            f"{'These items have' if n > 1 else 'It has'} {few.mean():.1f} answers on average, "
            "which leave at least one option in doubt. Once an item has five answers, another one "
            "seldom settles it.",
            float(rest.sum()) / 2,
        )
    given = found.levels.given
    if given is None or given.source != "gold":
        yield Action(
            ActionCode.SAMPLE,
            "set_levels",
            "Measure how many labels are right",
            "This was not measured so far. Correct the sets of some random items yourself, and "
            "give them as --gold. Experts often tick more than crowds do, which agreement cannot "
            "show.",
            float(found.decided.ticks.sum()) if given is None else 0.0,
            (),
            [f"draw a sample: {command} --random 50 --out sample.csv"],
        )


def _wrong(n: float) -> str:
    """Write how many options are expected to be wrong."""
    return (
        "fewer than one mistake"
        if n < 0.5
        else f"about {counted(round(n), 'wrong or missing label')}"
    )


def _expected_wrong(found: SetFindings, doubtful: Content) -> str:
    n = counted(doubtful["total"], "item")
    if not doubtful["is_told"]:
        return f"How many options of the {n} are wrong is not known."
    wrong = doubtful["expected_wrong"]
    text = f"The model expects {_wrong(wrong)} in {n}."
    if wrong < 0.5:
        return text
    half = doubtful["half"]
    most = "most doubtful item holds" if half == 1 else f"{half:,} most doubtful items hold"
    return f"{text} The {most} half of these."


def _doubt(row: Content) -> Content:
    """Write an item with its most doubtful option; the page says first which item it is."""
    first = row["doubts"][0]
    labels = ", ".join(clipped(name) for name in row["labels"]) or "no label"
    name = f"“{clipped(first['option'])}”"
    doubt = (
        f"{name} is the least certain of them"
        if first["given"] and len(row["labels"]) > 1
        else f"{name} is given"
        if first["given"]
        else f"{name} is left out"
    )
    applies = round(first["certainty"], 2)
    if not first["given"]:
        applies = round(1 - applies, 2)
    text = (
        f"{labels}. {doubt}; it applies with a probability of {percent(applies)} "
        f"({first['n_ticked']} of {row['n_annotations']} answers tick it)"
    )
    return {"id": row["id"], "text": text}


def _talk(found: SetFindings, expected: float) -> Iterator[Action]:
    people = found.once(annotators_section)
    rows = [row for row in people["rows"] if row["flags"]]
    if not rows:
        return
    n = people["n_flagged"]
    who = "One annotator overlooks" if n == 1 else f"{n:,} annotators overlook"
    per_item = found.found.n_annotations
    each = max(float(per_item[per_item > 0].mean()), 1.0) if (per_item > 0).any() else 1.0
    yield Action(
        ActionCode.TALK,
        "set_annotators",
        f"{who} labels, or {'ticks' if n == 1 else 'tick'} too much",
        "The sets are already corrected for this, as far as the answers show it. Show these "
        "annotators examples before they answer more.",
        min(sum(row["extra"] for row in rows) / each, expected),
        [_habit(row, people["typical"]) for row in rows[: LIMITS["actions"]]],
    )


def _habit(row: Content, typical: Mapping[str, float]) -> str:
    """Say what an annotator does that others do not."""
    told = []
    if "overlooks labels" in row["flags"]:
        told.append(
            f"ticks {percent(round(row['sensitivity'], 2))} of the labels that apply (the typical "
            f"annotator {percent(round(typical['sensitivity'], 2))})"
        )
    if "ticks wrongly" in row["flags"]:
        told.append(
            f"ticks {percent(round(row['false_tick_rate'], 2))} of the labels that do not apply "
            f"(the typical annotator {percent(round(typical['false_tick_rate'], 2))})"
        )
    n = counted(row["n_annotations"], "answer")
    return f"{clipped(row['id'], 24)} {', and '.join(told)}, in {n}"


def flagged_annotators(found: SetFindings) -> list[Content]:
    """Return who surely overlooks more, or ticks more wrongly, than the typical annotator.

    Returns
    -------
    list of dict
        ``annotator``, ``flags`` and ``told``, a sentence without its full stop; those who account
        for most mistakes first.
    """
    people = found.once(annotators_section)
    return [
        {"annotator": row["id"], "flags": row["flags"], "told": _habit(row, people["typical"])}
        for row in people["rows"]
        if row["flags"]
    ]


def _explain(found: SetFindings) -> Iterator[Action]:
    rows = [
        row
        for row in found.once(options_section)["rows"]
        if row["n_ticks"] >= FEW_TICKS and row["high"] is not None and row["high"] < UNCLEAR
    ]
    if not rows:
        return
    rows.sort(key=lambda row: row["alpha"])
    names = listed([row["option"] for row in rows], len(rows), 3)
    yield Action(
        ActionCode.EXPLAIN,
        "set_options",
        f"Explain {counted(len(rows), 'option')} better"
        if len(rows) > 1
        else f"Explain the option “{clipped(rows[0]['option'])}” better",
        f"Annotators hardly agree on when to tick {names}. Clearer guidelines, or options that do "
        "not overlap, would help more than further answers.",
        sum(row["expected_wrong"] for row in rows) / 3,
        [
            f"{clipped(row['option'])}: alpha {row['alpha']:.2f}, ticked in "
            f"{percent(round(row['share'], 3))} of the answers"
            for row in rows[: LIMITS["actions"]]
        ],
    )


# -- in words --------------------------------------------------------------------------------------


def review_command(found: SetFindings) -> str:
    """Write the command that lists sets to check, of the same answers read in the same way."""
    options = found.reading or ["--multilabel", found.separator]
    return shlex.join(["manyhands", "review", *(found.files or ["FILE"]), *options])


def told_of_sets(sets: SetFindings) -> str:
    """Say in a sentence or two how many labels of sets are right, and how many are missing."""
    decided, gold, options = sets.decided, sets.gold, sets.found.options
    given, found = sets.levels.given, sets.levels.found
    n_given, n_instances = int(decided.ticks.sum()), len(decided.ticks)
    labels = f"{counted(n_given, 'label')} of {counted(n_instances, 'item')}"
    if not n_given:
        return f"No label was given to any of the {counted(n_instances, 'item')}."
    if given is None:
        return (
            f"It is not known how many of the {labels} are right: too few items have answers by "
            f"two or more independent annotators. Checked sets of {N_RANDOM} random items would "
            f"show it: {review_command(sets)} --random {N_RANDOM}"
        )
    if given.source == "gold" and gold is not None:
        has = (gold >= 0).any(axis=0)
        some = "" if has.all() else f" for {listed(options[has].tolist(), int(has.sum()), 3)}"
        text = (
            f"{_range(given)} of the labels given{some} are right, measured on "
            f"{counted(given.n, 'label')} of items with gold."
        )
        if some:
            text += " The other options were not measured."
        if found is not None and found.source == "gold":
            text += (
                f" Of {counted(found.n, 'label')} that apply by gold, {_range(found)} were given."
            )
        return text
    text = f"About {_range(given)} of the {labels} are right"
    if found is not None:
        text += f", and about {_range(found)} of the labels that apply are among them"
        return f"{text}. Both are estimated from how annotators agree, not measured."
    return f"{text}: estimated from how annotators agree, not measured."


def _range(level: Level) -> str:
    return percent_range(level.to_dict())


def told_of_decision(rule: str, threshold: float | None, decided: SetDecision) -> str:
    """Say how sets were decided, and why so."""
    if threshold is not None:
        return (
            "A label is given to an item if its probability is at least "
            f"{threshold:g}, as you asked."
        )
    if rule == "f1":
        low, high = decided.threshold.min(), decided.threshold.max()
        return (
            "Of each option, so many of its likeliest items are ticked that the expected F1 is "
            f"greatest; that is from probabilities of {percent(min(low, 1.0))} to "
            f"{percent(min(high, 1.0))} on. It ticks more where labels are rare, which pays if "
            "annotators overlook labels, and can cost if they do not."
        )
    return (
        "A label is given to an item if it is more probable than not. This makes the fewest "
        "mistakes. If missing labels are worse than false labels, add --rule f1, or a --threshold "
        "below 0.5."
    )


def first_screen(s: Mapping[str, Any]) -> First:
    """Return the first screen of a report on sets of labels."""
    given = s["set_levels"]["given"]
    figure = (
        figure_of(given) if given or "not known" not in s["set_levels"]["headline"] else UNKNOWN
    )
    return First(
        s["set_levels"]["headline"],
        figure=figure,
        lines=[_told_of_agreement(s)],
        steps=s["set_actions"],
        note=MEASURED_NOTE,
    )


def _told_of_agreement(s: Mapping[str, Any]) -> str:
    """Say how well annotators agree on sets; "" where that is not known."""
    rows = (s.get("set_agreement") or {}).get("rows")
    return told_of_agreement(rows[0]) if rows else ""


def answer_data(s: Mapping[str, Any]) -> Answer:
    """Answer what is in the data."""
    d = s["set_data"]
    return "set_data", (
        f"{counted(d['n_annotators'], 'annotator')} gave {counted(d['n_annotations'], 'answer')} "
        f"about {counted(d['n_instances'], 'item')}, with {counted(d['n_options'], 'option')} to "
        "tick."
    )


def answer_agree(s: Mapping[str, Any]) -> Answer:
    """Answer whether annotators agree."""
    told = _told_of_agreement(s)
    return ("set_agreement", told) if told else (None, "No two annotators answered the same items.")


def answer_options(s: Mapping[str, Any]) -> Answer:
    """Answer which options are unclear."""
    rows = [row for row in s["set_options"].get("rows", ()) if row["alpha"] is not None]
    if not rows:
        return "set_options", "The agreement on single options is not known."
    least = min(rows, key=lambda row: row["alpha"])
    return "set_options", (
        f"Annotators agree least on “{clipped(least['option'])}” (alpha {least['alpha']:.2f})."
    )


def answer_annotators(s: Mapping[str, Any]) -> Answer:
    """Answer how good the annotators are."""
    own = s["set_annotators"]
    if not own.get("judged"):
        return "set_annotators", "It is not known how good the annotators are."
    typical, n = own["typical"]["sensitivity"], own["n_flagged"]
    who = f"{counted(n, 'annotator')} clearly {'does' if n == 1 else 'do'} worse" if n else ""
    text = f"The typical annotator ticks {percent(round(typical, 2))} of the labels that apply"
    return "set_annotators", f"{text}; {who}." if who else f"{text}."


def answer_items(s: Mapping[str, Any]) -> Answer:
    """Answer which items need another look."""
    own = s["set_items"]
    if not own:
        return None, "Every set is known."
    if not own["is_told"]:
        return (
            "set_items",
            "It is not known how many options are wrong. The most doubtful items come first.",
        )
    wrong = own["expected_wrong"]
    return "set_items", f"The model expects {_wrong(wrong)}; the items with the most come first."


SET_SECTIONS: Final[tuple[Section, ...]] = (
    first_section("set_actions", first_screen, actions_section),
    Section(
        "set_data",
        "What is in the data?",
        "set_data.html",
        data_section,
        words={"SET_RULE": RULE},
        answer=answer_data,
    ),
    Section(
        "set_levels",
        "How many labels are right?",
        "set_levels.html",
        levels_section,
        words={"percent_range": percent_range},
        answer=lambda s: ("set_levels", s["set_levels"]["headline"]),
    ),
    Section("set_gold", "What do the gold labels show?", "set_gold.html", gold_section),
    Section(
        "set_options",
        "Which options are unclear?",
        "set_options.html",
        options_section,
        answer=answer_options,
    ),
    Section(
        "set_agreement",
        "Do the annotators agree?",
        "set_agreement.html",
        agreement_section,
        answer=answer_agree,
    ),
    Section(
        "set_annotators",
        "How good is each annotator?",
        "set_annotators.html",
        annotators_section,
        answer=answer_annotators,
    ),
    Section(
        "set_items",
        "Which items need another look?",
        "set_items.html",
        doubtful_section,
        answer=answer_items,
    ),
    Section(
        "methods",
        "How was this made, and where are the tables?",
        "set_methods.html",
        methods_section,
        answer=answer_methods,
        on_demand=True,
    ),
    Section(
        "items",
        ITEMS.heading,
        ITEMS.template,
        items_section,
        answer=ITEMS.answer,
        on_demand=True,
    ),
)
"""Sections of the report on sets of labels, in page order."""
