"""The section on inferred labels: confidence, the least certain, and those against the majority."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from manyhands.annotations.groups import ALONE
from manyhands.decision.labels import best_of, is_scale_of_grades
from manyhands.io.consensus_labels import (
    ACTIONS,
    REVIEW_RULE,
    Consensus,
    consensus,
    whole_rule,
)
from manyhands.metrics.certainty import level_of_some, n_less_probable
from manyhands.report.filters import percent, percent_range
from manyhands.report.inputs import Inferred, Inputs
from manyhands.report.limits import LIMITS
from manyhands.report.section import Answer, Content, Findings, Section
from manyhands.typing import BoolArray, FloatArray, IntArray
from manyhands.wording import counted, told_of_rule

CERTAIN = 0.95
"""Labels with at least this probability count as certain, where the annotations decide them."""

CUTOFFS = (CERTAIN, 0.9, 0.8, 0.7, 0.6)
"""Probabilities from which a person may want to use labels."""


def consensus_of(inputs: Inputs) -> Consensus | None:
    """Return the labels with the actions that `consensus` recommends; None if nothing is chosen."""
    inferred, table = inputs.inferred, inputs.table
    if inferred is None or table.n_classes < 2:
        return None
    labels = np.array([*table.classes.tolist(), None], dtype=object)[inferred.codes]
    given: dict[str, Any] = {"probability": inputs.told}
    model = inputs.source
    if model is not None and inferred.name == type(model).__name__:  # Not of predictions.
        given["known"] = inputs.known
        own = getattr(model, "identified_", None)
        given["identified"] = None if own is None else inputs.identified
        if getattr(model, "sample_note_", None) is not None:
            given["identified"] = inputs.known  # A random sample contradicts the rest.
    filled = filled_rows(inferred.posterior)
    return consensus(inputs.whole, filled, labels, **given)


def filled_rows(posterior: FloatArray) -> FloatArray:
    """Replace empty rows, of instances without annotations, by the mean of the others."""
    empty = posterior.sum(axis=1) < 0.5
    if not empty.any():
        return posterior
    filled = posterior.copy()
    filled[empty] = posterior[~empty].mean(axis=0)
    return filled


def find_consensus(found: Findings) -> Consensus | None:
    """Find the labels with their recommended actions; see `consensus_of`."""
    return consensus_of(found.inputs) if found.labels is None else found.labels


def find_doubtful(found: Findings) -> BoolArray | None:
    """Mask the annotated instances whose label is not accepted; None where nothing is chosen.

    This is what the whole report calls a label in doubt. Its number is what ``labels.csv`` does not
    accept, but for the items that nobody annotated.
    """
    labels = found.once(find_consensus)
    if labels is None:
        return None
    doubtful: BoolArray = found.inputs.annotated & (labels.actions != ACTIONS[0])
    return doubtful


def labels_section(found: Findings) -> Content | None:
    """Inferred labels of the annotated instances; None if nothing is annotated."""
    inputs, inferred, chosen = found.inputs, found.inputs.inferred, found.once(find_consensus)
    if inferred is None:
        return None
    rows = np.flatnonzero(inputs.annotated)
    against = _against_majority(inputs, inferred)
    return {
        "source": inferred.name,
        "kind": inferred.kind,
        "n": len(rows),
        "n_ties_decided": int(inputs.tied.sum()),
        "n_against_majority": int((against > 0).sum()),
        "actions": None if chosen is None else chosen.count_actions(),
        "rule": whole_rule() if chosen is None else whole_rule(chosen.accept),
        "confidence": _confidence_section(inputs, inferred, rows),
        "dependence": _dependence(inputs, inferred),
        "all": _listing(inputs, rows, "all_labels") if len(rows) <= LIMITS["all_labels"] else None,
        "uncertain": _uncertain(inputs, inferred, found.once(find_doubtful)),
        "against_majority": _listing(inputs, _most_overruled(inputs, against), "against_majority"),
        "of_rule": _of_rule(inputs, inferred, rows),
    }


def _of_rule(inputs: Inputs, inferred: Inferred, rows: IntArray) -> str:
    """Say for how many items the label is not the most probable class."""
    if not inferred.probable:
        return ""
    codes = inferred.codes[rows]
    middle = is_scale_of_grades(inputs.table)
    middle = middle and bool((codes == best_of(inferred.posterior[rows], inputs.table)).all())
    return told_of_rule(n_less_probable(inferred.posterior[rows], codes), middle=middle)


def confidence(inferred: Inferred) -> FloatArray:
    """The method's own probability of each inferred label, shape (n_instances,)."""
    taken = np.take_along_axis(inferred.posterior, inferred.codes[:, None].clip(0), axis=1)
    return taken[:, 0]


def _dependence(inputs: Inputs, inferred: Inferred) -> dict[str, Any] | None:
    """Correlation of annotators' mistakes that the posterior allows for, and declared families."""
    model = {"aggregator": inputs.aggregator, "classifier": inputs.classifier}.get(inferred.kind)
    rho = getattr(model, "dependence_", None)
    if rho is None or inferred.name != type(model).__name__:  # Predictions do not depend on it.
        return None
    se, groups = getattr(model, "dependence_se_", None), inputs.whole.groups
    return {
        "rho": float(rho),
        "se": None if se is None else float(se),
        "n_families": 0 if groups is None else len(set(groups.tolist()) - {ALONE}),
    }


def _confidence_section(
    inputs: Inputs, inferred: Inferred, rows: IntArray
) -> dict[str, Any] | None:
    if not inferred.probable or not inputs.certainty.is_known:
        return None
    values = inputs.told[rows]
    edges = np.linspace(0.0, 1.0, 21)
    counts, _ = np.histogram(values, bins=edges)
    return {
        "mean": float(values.mean()),
        "certain": CERTAIN,
        "n_certain": int((inputs.identified[rows] & (values >= CERTAIN)).sum()),
        "n_below_half": int((values < 0.5).sum()),
        "histogram": [
            {"from": float(low), "to": float(high), "count": int(n)}
            for low, high, n in zip(edges[:-1].round(2), edges[1:].round(2), counts, strict=True)
        ],
        "cutoffs": _cutoffs(inputs, inferred),
    }


def at_cutoffs(told: FloatArray) -> list[tuple[float, BoolArray]]:
    """Mask the labels that have at least each probability; one that adds no label is left out."""
    masks = [(least, told >= least) for least in CUTOFFS]
    counts = np.array([mask.sum() for _, mask in masks])
    more = np.diff(counts, prepend=0) > 0
    return [each for each, adds in zip(masks, more, strict=True) if adds]


def _cutoffs(inputs: Inputs, inferred: Inferred) -> list[dict[str, Any]]:
    """Count the labels that are at least so probable, and how many of them are right.

    Known labels are left out, and so are probabilities that no further label has. Right labels are
    also counted on gold, if it measures the share of right labels. What is expected is what the
    headline says if this probability is the threshold (`level_of_some`).
    """
    free = inputs.annotated if inputs.known is None else inputs.annotated & ~inputs.known
    measures = inputs.level is not None and inputs.level.source == "gold"
    gold = inputs.level_gold if measures else None
    found: list[dict[str, Any]] = []
    for least, own in at_cutoffs(np.where(free, inputs.told, np.nan)):
        whole = (inputs.table, inputs.level, inferred.posterior, inferred.codes)
        part = level_of_some(*whole, own, known=inputs.known, gold=gold)
        if part is None:
            continue
        level = part.level
        row: dict[str, Any] = {
            "at_least": least,
            "n": int(own.sum()),
            "of": int(free.sum()),
            "expected": level.value,
            "low": level.low,
            "high": level.high,
            "is_measured": part.is_measured,
        }
        if gold is not None:
            judged = own & (gold >= 0)
            row["n_gold"] = int(judged.sum())
            row["right"] = float((inferred.codes == gold)[judged].mean()) if judged.any() else None
        found.append(row)
    return found


USABLE = 0.9
"""Share of right labels with which most people who use labels are content."""

HARDLY = 0.05
"""Share of all labels below which a choice of them is of no use."""


def told_of_row(row: Mapping[str, Any]) -> str:
    """Write the share of right labels among those of a least probability, with its interval."""
    level = {"value": row["expected"], **row}
    return percent_range(level) if "low" in row else percent(row["expected"])


def usable_row(cutoffs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the row of the most labels of which nine in ten are right, else the nearest to it.

    A row of hardly any labels serves nobody, so it is left out unless there is no other.

    Examples
    --------
    >>> rows = [{"n": 3, "of": 1000, "expected": 0.97}, {"n": 470, "of": 1000, "expected": 0.91}]
    >>> usable_row([*rows, {"n": 700, "of": 1000, "expected": 0.84}])["n"]
    470
    >>> usable_row([rows[0], {"n": 700, "of": 1000, "expected": 0.84}])["n"]
    700
    """
    rows = [row for row in cutoffs if row["n"] >= HARDLY * row["of"]] or cutoffs
    enough = [row for row in rows if row["expected"] >= USABLE]
    if enough:
        return max(enough, key=lambda row: int(row["n"]))
    return min(rows, key=lambda row: abs(USABLE - float(row["expected"])))


def told_of_usable(s: Mapping[str, Any]) -> str:
    """Say which labels can be used by a lower threshold where few are accepted; else ""."""
    found, levels = s.get("labels") or {}, s.get("levels") or {}
    actions, n_known = found.get("actions"), levels.get("n_known", 0)
    cutoffs = (found.get("confidence") or {}).get("cutoffs")
    if levels.get("decided") or not actions or not cutoffs:
        return ""
    n_accepted = actions["accept"] - n_known
    if found["kind"] != "aggregator" or 2 * n_accepted >= cutoffs[0].get("of", 0):
        return ""  # Summaries of earlier versions do not say of how many.
    row = usable_row(cutoffs)
    if row["n"] <= n_accepted:
        return ""
    share = told_of_row(row)
    about = share if share.startswith(">") else f"about {share}"
    return (
        f"{row['n']:,} of {row['of']:,} {'other ' if n_known else ''}labels "
        f"{'is' if row['n'] == 1 else 'are'} at least {percent(row['at_least'])} certain, and "
        f"{about} of these are right. To keep only these{' and the known' if n_known else ''} "
        f"labels, repeat “aggregate” with --threshold {row['at_least']:g}."
    )


def _uncertain(
    inputs: Inputs, inferred: Inferred, doubtful: BoolArray | None
) -> dict[str, Any] | None:
    if not inferred.probable or doubtful is None:
        return None
    rows = np.flatnonzero(doubtful)
    order = rows[np.argsort(confidence(inferred)[rows], kind="stable")]
    return _listing(inputs, order, "uncertain")


def _against_majority(inputs: Inputs, inferred: Inferred) -> IntArray:
    """Count the votes by which the most chosen class leads the inferred one, (n_instances,)."""
    instance, label, count = inputs.votes
    mine = label == inferred.codes[instance]
    own = np.zeros(inputs.table.n_instances, dtype=np.int64)
    own[instance[mine]] = count[mine]
    return inputs.top_votes - own


def _most_overruled(inputs: Inputs, against: IntArray) -> IntArray:
    rows = np.flatnonzero(inputs.annotated & (against > 0))
    return rows[np.argsort(-against[rows], kind="stable")]


def _listing(inputs: Inputs, rows: IntArray, limit: str) -> dict[str, Any]:
    """Describe the first rows of a list, and count all of its rows."""
    shown = rows[: LIMITS[limit]]
    return {"total": len(rows), "shown": len(shown), "rows": _describe(inputs, shown)}


def _describe(inputs: Inputs, rows: IntArray) -> list[dict[str, Any]]:
    inferred, table = inputs.inferred, inputs.table
    if inferred is None:
        return []
    votes = _votes_of(inputs, rows)
    told, second = inputs.told, _second(inferred, rows)
    is_told = inferred.probable and inputs.certainty.is_known
    known = None if inputs.known is None else inputs.known[rows]
    shares = inputs.certainty.of_classes(inferred.posterior[rows], inferred.codes[rows], known)
    return [
        {
            "id": table.instances[i].item(),
            "label": table.classes[inferred.codes[i]].item(),
            "probability": float(told[i]) if is_told else None,
            "second": None if second is None else table.classes[second[k]].item(),
            "second_probability": (
                float(shares[k, second[k]]) if is_told and second is not None else None
            ),
            **votes[k],
        }
        for k, i in enumerate(rows.tolist())
    ]


def _second(inferred: Inferred, rows: IntArray) -> IntArray | None:
    """Second most probable class of the given instances."""
    if not inferred.probable or inferred.posterior.shape[1] < 2:
        return None
    proba = inferred.posterior[rows].copy()
    proba[np.arange(len(rows)), inferred.codes[rows]] = -1.0
    second: IntArray = proba.argmax(axis=1)
    return second


def _votes_of(inputs: Inputs, rows: IntArray) -> list[dict[str, Any]]:
    """Votes of the given instances, most chosen class first, cut to the limit."""
    instance, label, count = inputs.votes
    starts = np.searchsorted(instance, rows, side="left")
    stops = np.searchsorted(instance, rows, side="right")
    return [
        _vote_list(inputs, label[low:high], count[low:high])
        for low, high in zip(starts, stops, strict=True)
    ]


def _vote_list(inputs: Inputs, label: IntArray, count: IntArray) -> dict[str, Any]:
    order = np.argsort(-count, kind="stable")[: LIMITS["votes"]]
    return {
        "votes": [[inputs.table.classes[label[k]].item(), int(count[k])] for k in order],
        "more_votes": int(count.sum() - count[order].sum()),
    }


def most_doubtful(
    inputs: Inputs, shown: IntArray, among: IntArray | None = None
) -> list[list[Any]]:
    """For each annotator, the instances whose annotations are most probably wrong.

    ``among`` limits this to some annotations, by their positions.
    """
    inferred, table = inputs.inferred, inputs.table
    if inferred is None:
        return [[] for _ in shown]
    rows = np.arange(table.n_annotations) if among is None else among
    right = inferred.posterior[table.instance[rows], table.label[rows]]
    order = np.lexsort((right, table.annotator[rows]))
    rows, right = rows[order], right[order]
    starts = np.searchsorted(table.annotator[rows], shown)
    stops = np.searchsorted(table.annotator[rows], shown, side="right")
    found = []
    for low, high in zip(starts.tolist(), stops.tolist(), strict=True):
        first = slice(low, min(high, low + LIMITS["instances"]))
        found.append(table.instances[table.instance[rows[first][right[first] < 0.5]]].tolist())
    return found


def _instances(own: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    for rank, part in ((9, own["uncertain"]), (10, own["against_majority"])):
        yield rank, [row["id"] for row in (part or {"rows": ()})["rows"]]


def _are(n: int) -> str:
    return "is" if n < 2 else "are"


def answer_labels(s: Mapping[str, Any]) -> Answer:
    """Answer how sure the labels are."""
    found = s.get("labels")
    if not found:
        return None, "There are no annotations."
    sure, actions = found["confidence"], found.get("actions")
    if not sure:
        return "labels", "Nothing shows how sure a single label is."
    if actions and found["kind"] != "given":
        n, of = actions["accept"], counted(s["data"]["n_instances"], "label")
        return (
            "labels",
            f"{f'{n:,}' if n else 'None'} of the {of} {_are(n)} certain enough to accept.",
        )
    return "labels", (
        f"{sure['n_certain']:,} of {counted(found['n'], 'label')} are at least "
        f"{percent(sure['certain'])} certain."
    )


LABELS = Section(
    "labels",
    "How sure are the labels?",
    "labels.html",
    labels_section,
    instances=_instances,
    words={"REVIEW_RULE": REVIEW_RULE, "told_of_row": told_of_row, "usable_row": usable_row},
    answer=answer_labels,
    on_demand=True,
)
