"""The report on ratings and scores, whose labels are means: a few sections of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from manyhands.agreement.intervals import jackknife
from manyhands.agreement.overall import krippendorff_alpha
from manyhands.annotations import AnnotationTable
from manyhands.annotations.groups import undeclared_models
from manyhands.codes import ActionCode
from manyhands.inference.identifiability import unidentified_numbers
from manyhands.inference.rating_mean import LEAST_KNOWN, RatingMean
from manyhands.report.filters import short
from manyhands.report.first import (
    ESTIMATED,
    SOURCES,
    Figure,
    First,
    first_section,
    told_of_agreement,
)
from manyhands.report.inputs import describe_estimator
from manyhands.report.items import ITEMS
from manyhands.report.limits import LIMITS
from manyhands.report.methods import answer_methods
from manyhands.report.section import Action, Answer, Content, Once, Section
from manyhands.typing import FloatArray, IntArray
from manyhands.wording import counted, listed, quantity, too_much

LEVEL = 0.95
"""Level of all intervals."""

LEAST_GOLD = 20
"""Number of gold values below which they do not measure within which distance 95 % of them lie."""

GOLD_WITHIN = "distance from the value within which 95 % of the gold values lie"
"""Name of this measure."""

STEPS = 9
"""Decimals of a standard error in which two of them may differ; more are rounding."""

WIDTH = 1.959963984540054
"""Standard errors from an estimate to the end of its interval."""


@dataclass(frozen=True, eq=False)
class RatingFindings(Once):
    """The inputs of a report on ratings, and what its sections find, each once.

    Attributes
    ----------
    model : RatingMean, fitted
    measured : dict {name: value} or None
        Errors against gold, as the job measured them.
    """

    model: RatingMean
    measured: Mapping[str, Any] | None = None

    @property
    def table(self) -> AnnotationTable:
        """The ratings."""
        return self.model.table_


def means_section(found: RatingFindings) -> Content:
    """Describe the ratings: their number, how sure the means are, and why ratings differ."""
    model, table = found.model, found.table
    rated = (table.annotations_per_instance() > 0) & ~model.is_known_
    width = WIDTH * model.value_se_[rated]
    return {
        "n_instances": table.n_instances,
        "n_annotators": table.n_annotators,
        "n_annotations": table.n_annotations,
        "n_known": int(model.is_known_.sum()),
        "n_unrated": int((table.annotations_per_instance() == 0).sum()),
        "lowest": float(table.numbers[table.label].min()),
        "highest": float(table.numbers[table.label].max()),
        "half_width": float(np.median(width)) if len(width) else None,
        "n_measured": model.n_measured_,
        "drawn_at_random": model._random_gold is not None,
        "models": model.annotators_[undeclared_models(None, model.annotators_)].tolist(),
        "shared_sd": model.shared_sd_,
        "scale": scale_of(model),
        "condition": condition_of(model.n_measured_),
        "value_sd": model.value_sd_,
        "severity_sd": model.severity_sd_,
        "noise_sd": model.noise_sd_,
    }


def agreement_section(found: RatingFindings) -> Content | None:
    """Krippendorff's alpha at interval level, with its interval; None where it is not defined."""
    alpha = jackknife(partial(krippendorff_alpha, level="interval"), found.table, level=LEVEL)
    if np.isnan(alpha.value):
        return None
    several = found.table.annotations_per_instance() > 1
    return {
        "n_instances": int(several.sum()),
        "alpha": alpha.value,
        "low": None if np.isnan(alpha.low) else alpha.low,
        "high": None if np.isnan(alpha.high) else alpha.high,
        "doubt": _doubt(found),
    }


def _doubt(found: RatingFindings) -> str | None:
    """Return what is said where nothing shows that annotators agree; None with known values."""
    told = None if found.model.is_known_.any() else unidentified_numbers(found.table)
    return None if told is None else f"{told[0].upper()}{told[1:]}."


def annotators_section(found: RatingFindings) -> Content:
    """Describe by how much annotators rate too high or too low, the certain cases first."""
    model = found.model
    low, high = (model.severity_ + side * WIDTH * model.severity_se_ for side in (-1, 1))
    n = found.table.annotations_per_annotator()
    is_sure = ((low > 0) | (high < 0)) & (n > 0)
    order = np.lexsort((-n, -np.abs(model.severity_), ~is_sure))
    shown = order[: LIMITS["annotators"]]
    return {
        "total": len(order),
        "shown": len(shown),
        "n_sure": int(is_sure.sum()),
        "rows": [
            {
                "id": model.annotators_[r].item(),
                "n_annotations": int(n[r]),
                "severity": float(model.severity_[r]),
                "low": float(low[r]),
                "high": float(high[r]),
                "told": too_much(model.severity_[r], low[r], high[r]) if n[r] else "",
                "sd": float(model.annotator_sd_[r]),
            }
            for r in shown.tolist()
        ],
    }


def doubtful_section(found: RatingFindings) -> Content | None:
    """Rated instances by how unsure their means are; None if all values are known."""
    rows = _by_doubt(found)
    if not len(rows):
        return None
    shown = rows[: LIMITS["review"]]
    errors = np.round(found.model.value_se_[rows], STEPS)
    return {
        "total": len(rows),
        "shown": len(shown),
        "all_equally_sure": len(rows) > 1 and bool((errors == errors[0]).all()),
        "rows": _values(found, shown),
    }


def _by_doubt(found: RatingFindings) -> IntArray:
    """Rated instances of unknown value, the least sure first; of equals, those most at odds."""
    model, table = found.model, found.table
    rows = np.flatnonzero((table.annotations_per_instance() > 0) & ~model.is_known_)
    apart = np.bincount(
        table.instance,
        np.abs(table.values - model.values_[table.instance]),
        table.n_instances,
    )
    order = np.lexsort((-apart[rows], -np.round(model.value_se_[rows], STEPS)))
    return np.asarray(rows[order])


def _values(found: RatingFindings, rows: IntArray) -> list[Content]:
    model, table = found.model, found.table
    low, high = model.interval(LEVEL)[rows].T
    n = table.annotations_per_instance()
    return [
        {
            "id": table.instances[i].item(),
            "value": float(model.values_[i]),
            "low": float(low[k]),
            "high": float(high[k]),
            "mean": _number(model.mean_[i]),
            "median": _number(model.median_[i]),
            "n_annotations": int(n[i]),
        }
        for k, i in enumerate(rows.tolist())
    ]


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def gold_section(found: RatingFindings) -> Content | None:
    """Errors against gold, by name; None without gold."""
    return dict(found.measured) if found.measured else None


def methods_section(found: RatingFindings) -> Content:
    """The method with its parameters."""
    return {"aggregator": describe_estimator(found.model)}


def items_section(found: RatingFindings) -> Content:
    """The instances that the page names: their values, and who gave them what."""
    model, table = found.model, found.table
    rows = _by_doubt(found)[: LIMITS["review"]]
    order = np.argsort(table.instance, kind="stable")
    starts = np.searchsorted(table.instance[order], rows)
    stops = np.searchsorted(table.instance[order], rows, side="right")
    shown = []
    for i, low, high in zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True):
        own = order[low:high]
        own = own[np.argsort(table.values[own], kind="stable")]
        cut = own[: LIMITS["votes_of_item"]]
        given = zip(_texts(table.values[cut]), table.annotators[table.annotator[cut]].tolist(),
                    strict=True)  # fmt: skip
        shown.append(
            {
                "id": table.instances[i].item(),
                "label": short(float(model.values_[i])),
                "probability": None,
                "gold": None,
                "given": [list(pair) for pair in given],
                "more": len(own) - len(cut),
            }
        )
    return {"total": len(rows), "shown": len(rows), "rows": shown}


def _texts(values: FloatArray) -> list[str]:
    return [f"{value:g}" for value in values.tolist()]


# -- what to do ------------------------------------------------------------------------------------


def actions_section(found: RatingFindings) -> list[Content]:
    """Return what to do next: whom to talk to, and what to have rated again."""
    return [each.to_dict() for each in _actions(found)]


def _actions(found: RatingFindings) -> Iterator[Action]:
    people = found.once(annotators_section)
    rows = [row for row in people["rows"] if row["told"]][: LIMITS["actions"]]
    if rows:
        n = people["n_sure"]
        who = "One annotator rates" if n == 1 else f"{n:,} annotators rate"
        yield Action(
            ActionCode.TALK,
            "rating_annotators",
            f"{who} too high or too low",
            "The values allow for this: each annotator's deviation is subtracted. Show these "
            "annotators examples before they rate more.",
            0.0,
            [f"{row['id']} {row['told']}, in {counted(row['n_annotations'], 'rating')}"
             for row in rows],
        )  # fmt: skip
    doubtful = found.once(doubtful_section)
    if doubtful is not None:
        equal = doubtful["all_equally_sure"]
        is_known = bool(found.model.is_known_.any())
        which = (
            f"All {doubtful['total']:,} items without a known value" if is_known else "All items"
        )
        yield Action(
            ActionCode.BUY,
            "rating_items",
            _equally_certain(is_known) if equal else "Have these items rated again first",
            f"{which} have equally many ratings, so none needs another rating more. The ratings "
            "of these items differ most from their values, so look at them first."
            if equal
            else "Their values are the least certain. One more rating narrows an interval most if "
            "the item has few ratings.",
            0.0,
            [
                {
                    "id": row["id"],
                    "text": f"{row['value']:.2f} ({row['low']:.2f} to {row['high']:.2f}), from "
                    f"{counted(row['n_annotations'], 'rating')}",
                }
                for row in doubtful["rows"][: LIMITS["actions"]]
            ],
        )


def _equally_certain(is_known: bool) -> str:
    which = " that were not given as known" if is_known else ""
    return f"All values{which} are equally certain"


def condition_of(n_measured: int) -> str:
    """Return the end of a sentence: under which condition intervals hold the true values."""
    if n_measured:
        return f"as measured on {counted(n_measured, 'known value')}"
    return (
        "if ratings scatter as evenly as the method assumes, and annotators do not share mistakes"
    )


def scale_of(model: RatingMean) -> str:
    """Say on whose scale values are: with what annotators' ratings are compared."""
    if not model.severity_sd_:
        return (
            "The values are plain means: each is on the scale of whoever rated the item, as "
            "nobody's ratings are corrected."
        )
    if n := int(model.is_known_.sum()):
        return f"The values are on the scale of the {counted(n, 'known value')}."
    people = model.reference_
    if people is None:
        who = f"all {model.n_annotators_:,} annotators on average"
    else:
        who = f"{listed(people, len(people), 3)} on average"
    return (
        f"The values are on the scale of {who}. An annotator's severity is measured against theirs."
    )


def told_of_values(
    model: RatingMean, measured: Mapping[str, Any] | None = None, doubt: str | None = None
) -> str:
    """Say how sure the values of a model are; ``doubt`` is that of `unidentified_numbers`."""
    means = means_section(RatingFindings(model))
    parts = {"rating_means": means, "rating_gold": measured, "rating_agreement": {"doubt": doubt}}
    return headline(parts)


def headline(summary: Mapping[str, Any]) -> str:
    """Say how sure the means of a summary are, in a few sentences."""
    own, gold = summary["rating_means"], summary.get("rating_gold") or {}
    if own["half_width"] is None:
        return "Every value was given: nothing was averaged."
    if (summary.get("rating_agreement") or {}).get("doubt"):
        return "Do not trust any value yet: the annotators may agree by chance alone."
    scale = f"on a scale from {short(own['lowest'])} to {short(own['highest'])}"
    if GOLD_WITHIN in gold:
        return (
            f"The value of a typical item is known to within ± {quantity(gold[GOLD_WITHIN])}, "
            f"{scale}: 95 % of {gold['instances with gold']:,} gold values are as near as this to "
            "the values, which were inferred without them."
        )
    text = (
        f"The value of a typical item is known to within ± {quantity(own['half_width'])}, {scale} "
        "(95 % interval)"
    )
    if n := own.get("n_measured"):
        how = "" if own["drawn_at_random"] else " It holds if these items were drawn at random."
        return (
            f"{text}. The width is measured on {counted(n, 'known value')}, each of which was left "
            f"out when its value was inferred.{how}"
        )
    models = own.get("models") or []
    often = (
        f" Language models often share them, and {listed(models, len(models), 2)} are named like "
        "such, so the true value may be much farther off."
    )
    return (
        f"{text}, if annotators do not share mistakes.{often if models else ''} The width is "
        "estimated from how ratings scatter, not measured; known values of "
        f"{LEAST_KNOWN} or more items drawn at random would measure it."
    )


def first_screen(s: Mapping[str, Any]) -> First:
    """Return the first screen of a report on ratings."""
    own, agreement = s["rating_means"], s.get("rating_agreement") or {}
    half, doubt = own["half_width"], agreement.get("doubt") or ""
    figure = None
    if half is not None and not doubt:
        ends = f"ratings from {short(own['lowest'])} to {short(own['highest'])}"
        within, n = (s.get("rating_gold") or {}).get(GOLD_WITHIN), own.get("n_measured")
        source = SOURCES["gold"] if within else "measured on known values" if n else ESTIMATED
        figure = Figure(f"± {quantity(within or half)}", ends, source)
    return First(headline(s), doubt, figure, [_told_of_agreement(agreement)], s["rating_actions"])


def _told_of_agreement(found: Mapping[str, Any]) -> str:
    return told_of_agreement(found) or (
        "No two annotators rated the same items differently, so that their agreement is not known."
    )


def answer_data(s: Mapping[str, Any]) -> Answer:
    """Answer what is in the data."""
    d = s["rating_means"]
    return "rating_means", (
        f"{counted(d['n_annotators'], 'annotator')} gave {counted(d['n_annotations'], 'rating')} "
        f"to {counted(d['n_instances'], 'item')}."
    )


def answer_agree(s: Mapping[str, Any]) -> Answer:
    """Answer whether annotators agree."""
    found = s["rating_agreement"]
    return "rating_agreement" if found else None, _told_of_agreement(found)


def answer_annotators(s: Mapping[str, Any]) -> Answer:
    """Answer who rates too high or too low."""
    n = s["rating_annotators"]["n_sure"]
    who = counted(n, "annotator") if n else "Nobody"
    return "rating_annotators", (
        f"{who} clearly {'rate' if n > 1 else 'rates'} too high or too low; the values allow "
        "for this."
    )


def answer_items(s: Mapping[str, Any]) -> Answer:
    """Answer which values are the least sure."""
    own = s["rating_items"]
    if not own:
        return None, "Every value was given."
    if own["all_equally_sure"]:
        return "rating_items", f"{_equally_certain(s['rating_means']['n_known'] > 0)}."
    first = own["rows"][0]
    return "rating_items", (
        f"The least certain value is {first['value']:.2f}, with an interval from "
        f"{first['low']:.2f} to "
        f"{first['high']:.2f}."
    )


RATING_SECTIONS: Final[tuple[Section, ...]] = (
    first_section("rating_actions", first_screen, actions_section),
    Section(
        "rating_means",
        "What is in the data?",
        "rating_means.html",
        means_section,
        words={"quantity": quantity},
        answer=answer_data,
    ),
    Section(
        "rating_agreement",
        "Do the annotators agree?",
        "rating_agreement.html",
        agreement_section,
        answer=answer_agree,
    ),
    Section("rating_gold", "What do the gold values show?", "rating_gold.html", gold_section),
    Section(
        "rating_annotators",
        "Who rates too high or too low?",
        "rating_annotators.html",
        annotators_section,
        answer=answer_annotators,
    ),
    Section(
        "rating_items",
        "Which values are the least certain?",
        "rating_items.html",
        doubtful_section,
        answer=answer_items,
    ),
    Section(
        "methods",
        "How was this made, and where are the tables?",
        "rating_methods.html",
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
"""Sections of the report on ratings, in page order."""
