"""The report of a ranking: what is known of the order, of the annotators, and what to ask next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.special import expit, ndtri
from scipy.stats import t as student

from manyhands._version import __version__
from manyhands.files import write_atomically
from manyhands.ranking.bradley_terry import BradleyTerry
from manyhands.ranking.findings import (
    RANDOM,
    annotator_columns,
    better_columns,
    in_order,
    next_columns,
    not_told_apart,
    pair_columns,
    plain,
    ranking_columns,
)
from manyhands.ranking.next_pairs import NextPairs
from manyhands.report.filters import visible
from manyhands.report.first import First, first_section
from manyhands.report.html import render_page
from manyhands.report.questions import find_answers
from manyhands.report.section import Answer, Section
from manyhands.typing import IntArray
from manyhands.wording import counted, listed, percent

MOST_IN_MATRIX = 25
"""Items that the matrix shows; the file ``better.csv`` has all."""

MOST_LISTED = 200
"""Rows of a table on the page; the files have all."""


def summarize_ranking(
    model: BradleyTerry,
    *,
    title: str = "Ranking",
    pairs: NextPairs | None = None,
    models: Any = None,
    wording: Callable[[str], str] = str,
) -> dict[str, Any]:
    """Gather what a fitted ranking says, as a dict for JSON.

    Parameters
    ----------
    model : fitted BradleyTerry
    title : str
    pairs : NextPairs, optional
        What to compare next.
    models : sequence of ids, optional
        Annotators that are language models; default: those named like one.
    wording : callable
        Writes a warning of the fit as its reader knows the options.

    Returns
    -------
    dict
        ``headline`` and ``facts`` are sentences, ``advice`` says what to do; ``ranking``,
        ``annotators``, ``better``, ``pairs`` and ``next`` are columns of tables.
    """
    table = model.table_
    annotators = _with_odd_ties(annotator_columns(model, models), model)
    ranking = ranking_columns(model)
    if "component" in ranking:  # People count from 1.
        ranking["component"] = [group + 1 for group in ranking["component"]]
    return {
        "title": title,
        "generator": f"manyhands {__version__}",
        "headline": _headline(model),
        "facts": [*_facts(model), *_of_random(annotators), *_of_judges(model, annotators)],
        "advice": [wording(each) for each in model.warnings_],
        "data": {
            "n_comparisons": table.n_answers,
            "n_items": table.n_items,
            "n_annotators": table.n_annotators if table.has_annotators else None,
            "n_questions": None if table.questions is None else len(table.questions),
            "n_groups": model.n_components_,
            "tie_share": table.tie_share,
        },
        "model": {
            "reliability_variance": model.reliability_variance_,
            "evidence": {str(name): float(value) for name, value in model.evidence_.items()},
            "strength_variance": model.strength_variance_,
            "position": model.position_,
            "left_between_equals": float(expit(model.position_)),
            "ties": model.ties_ if np.isfinite(model.ties_) else None,
            "dispersion": model.dispersion_,
            "clustered": model.clustered_,
            "n_iter": model.n_iter_,
            "converged": model.converged_,
            "log_likelihood": model.log_likelihood_,
        },
        "ranking": ranking,
        "annotators": annotators,
        "better": better_columns(model) if table.n_items <= MOST_IN_MATRIX else {},
        "pairs": pair_columns(model),
        "next": {} if pairs is None else next_columns(pairs),
    }


MANY_TIES, FEW_TIES = "many ties", "few ties"
"""Why to look at the answers of an annotator, besides what `annotator_columns` finds."""

FEWEST_FOR_TIES = 4
"""Annotators from which there is something like a habit of the others."""


def odd_ties(model: BradleyTerry) -> IntArray:
    """Find the annotators who call ties far more or less easily than the others.

    The 95 % interval of their tendency lies beyond the 99 % interval in which a further annotator
    like the others is expected. That of the others is as wide as their tendencies spread and are
    unsure, and wider where they are few (Student's t).

    Returns
    -------
    integer array of shape (n_annotators,)
        1 for many ties, -1 for few, 0 for neither.
    """
    tendency, error = model.tie_tendency_, model.tie_tendency_se_
    answered = np.bincount(model.table_.annotator, minlength=len(tendency)) > 0
    who = np.flatnonzero(answered & np.isfinite(tendency) & np.isfinite(error))
    found = np.zeros(len(tendency), dtype=np.int64)
    n = len(who) - 1
    if n + 1 < FEWEST_FOR_TIES:
        return found
    width = student.ppf(0.995, n - 1) * np.sqrt(1 + 1 / n)
    for one in who:
        others = who[who != one]
        spread = np.sqrt(tendency[others].var(ddof=1) + np.mean(error[others] ** 2))
        gap = tendency[one] - tendency[others].mean()
        if abs(gap) - ndtri(0.975) * error[one] > width * spread:
            found[one] = np.sign(gap)
    return found


def _with_odd_ties(annotators: dict[str, list[Any]], model: BradleyTerry) -> dict[str, list[Any]]:
    """Add to ``look`` who calls ties far more or less easily than the others."""
    odd = dict(zip(plain(model.annotators_), odd_ties(model).tolist(), strict=True))
    names = {1: MANY_TIES, -1: FEW_TIES, 0: None}
    looks = [
        ", ".join(filter(None, (look, names[odd[who]]))) or None
        for who, look in zip(
            annotators.get("annotator", []), annotators.get("look", []), strict=True
        )
    ]
    return annotators | {"look": looks} if annotators else annotators


def _headline(model: BradleyTerry) -> str:
    """Say which item is the strongest, and from which others it cannot be told apart."""
    table, n = model.table_, _n_compared(model)
    if model.n_components_ > 1:
        return (
            f"{counted(model.n_components_, 'group')} of items were never compared with each "
            "other, so each group has a ranking of its own."
        )
    order = in_order(model)
    best = int(order[0])
    name = table.items[best].item()
    if not (table.outcome != 1).any():
        return "All comparisons are ties, so nothing shows which item is better."
    if model.covariance_ is None:
        return f"“{name}” has the highest strength of {counted(n, 'item')}."
    near = not_told_apart(model, best)
    if not len(near):
        return f"“{name}” is the strongest of {counted(n, 'item')} (95 % confidence)."
    near = near[np.argsort(model.ranks_[near], kind="stable")]
    names = listed(table.items[near].tolist(), len(near))
    if len(near) == n - 1:
        return (
            f"The comparisons do not show which item is the strongest: “{name}” is first, but "
            "cannot be told apart from any other at 95 % confidence."
        )
    return (
        f"“{name}” is first of {counted(n, 'item')}, but cannot be told apart from "
        f"{names} at 95 % confidence."
    )


def _n_compared(model: BradleyTerry) -> int:
    return int((model.component_ >= 0).sum())


def _facts(model: BradleyTerry) -> list[str]:
    table, n = model.table_, _n_compared(model)
    who = f" by {counted(table.n_annotators, 'annotator')}" if table.has_annotators else ""
    facts = [
        f"{counted(table.n_answers, 'comparison')} of {counted(n, 'item')}{who}; "
        f"{percent(table.tie_share)} are ties."
    ]
    if model.covariance_ is not None and model.n_components_ == 1 and n > 1:
        better = model.better()
        apart = (better >= 0.975).sum() / (n * (n - 1) / 2)
        facts.append(
            f"In {percent(float(apart))} of all pairs of items, it is clear which item is "
            "stronger (95 % confidence)."
        )
    if model.position_ != 0:
        left = float(expit(model.position_))
        facts.append(
            f"Of two equal items, a typical annotator prefers the left one in {percent(left)} "
            "of comparisons, not counting ties (estimated)."
        )
    if model.reliability_variance_:
        facts.append(
            "Annotators differ in how well they pick the better item. The answers of annotators "
            "who do this well count more."
        )
    return facts


def _of_random(annotators: Mapping[str, list[Any]]) -> list[str]:
    """Name the annotators who choose nearly at random, as far as that is sure."""
    looks = zip(annotators.get("annotator", []), annotators.get("look", []), strict=True)
    names = [name for name, look in looks if RANDOM in (look or "").split(", ")]
    if not names:
        return []
    verb, who, whose = (
        ("chooses", "this annotator is", "The answers")
        if len(names) == 1
        else ("choose", "they are", "Their answers")
    )
    return [
        f"{listed(names, len(names))} {verb} nearly at random: {who} less than half as good as "
        f"the average annotator at picking the better item. {whose} count little."
    ]


def _of_judges(model: BradleyTerry, annotators: Mapping[str, list[Any]]) -> list[str]:
    """Say how language models and people differ in sides and ties, where both or models judged."""
    kinds = annotators.get("kind", [])
    if "model" not in kinds or not model.table_.has_sides:
        return []
    told = []
    for kind, name in (("model", "language model"), ("person", "person")):
        rows = [i for i, each in enumerate(kinds) if each == kind]
        if not rows:
            continue
        weight = np.array([annotators["n_comparisons"][i] for i in rows], dtype=float)
        left = np.array([annotators["left_between_equals"][i] for i in rows])
        ties = np.array([annotators["ties"][i] for i in rows])
        one_sided = sum(
            annotators["left_low"][i] > 0.5 or annotators["left_high"][i] < 0.5 for i in rows
        )
        plural = "people" if kind == "person" else None
        verb = "prefers" if one_sided == 1 else "prefer"
        share = float(np.average(ties, weights=weight))
        told.append(
            f"{counted(len(rows), name, plural)}: {percent(share)} of the answers are ties; "
            f"between two equals the left one wins {percent(float(left.min()))} to "
            f"{percent(float(left.max()))} of the decided comparisons, and {one_sided} clearly "
            f"{verb} a side."
        )
    return told


def first_screen(s: Mapping[str, Any]) -> First:
    """Return the first screen of the report of a ranking."""
    lines = [visible(line) for line in s["facts"]]
    advice = [f"{text[:1].upper()}{text[1:].removesuffix('.')}." for text in s["advice"]]
    return First(
        visible(s["headline"]), lines=lines, warnings=advice, heading="Before you use the ranking"
    )


def answer_ranking(s: Mapping[str, Any]) -> Answer:
    """Answer how the items are ranked."""
    items = s["ranking"].get("item", ())
    if s["data"].get("n_groups", 1) > 1 or not items:
        return "ranking", "Each group of items has a ranking of its own."
    return "ranking", f"The first are {listed(items, min(len(items), 3), 3)}."


def answer_annotators(s: Mapping[str, Any]) -> Answer:
    """Answer how annotators compare."""
    looks = s["annotators"].get("look", ())
    n = sum(bool(look) for look in looks)
    who = (
        f"{n:,} of them {'needs' if n == 1 else 'need'} a closer look"
        if n
        else "Nobody needs a closer look"
    )
    return "annotators", f"{counted(len(looks), 'annotator')} compared items. {who}."


def answer_pairs(s: Mapping[str, Any]) -> Answer:
    """Answer which comparisons are surprising."""
    n = len(next(iter(s["pairs"].values()), ()))
    return (
        "pairs",
        f"{counted(n, 'pair')} of items, beginning with those that fit the ranking least.",
    )


SECTIONS: Final = (
    first_section("actions", first_screen),
    Section("ranking", "How are the items ranked?", "ranking_items.html", answer=answer_ranking),
    Section(
        "better",
        "Which of two items is better?",
        "ranking_better.html",
        answer=lambda _: ("better", "The table has the probability for every pair."),
    ),
    Section(
        "annotators",
        "How do the annotators compare?",
        "ranking_annotators.html",
        answer=answer_annotators,
    ),
    Section(
        "pairs", "Which comparisons are surprising?", "ranking_pairs.html", answer=answer_pairs
    ),
    Section(
        "next",
        "What should be compared next?",
        "ranking_next.html",
        answer=lambda _: ("next", "The pairs that would make the ranking most certain."),
    ),
    Section(
        "method",
        "How was this made?",
        "ranking_method.html",
        answer=lambda _: ("method", "By the model of Bradley and Terry, with ties."),
    ),
)


# -- the page -------------------------------------------------------------------------------------


def render_ranking(summary: Mapping[str, Any]) -> str:
    """Render a summary of `summarize_ranking` as one self-contained HTML page.

    Parameters
    ----------
    summary : dict

    Returns
    -------
    str
    """
    shown = [each for each in SECTIONS if summary.get(each.key, True)]
    return render_page(
        summary,
        shown,
        words={
            "rows_of": rows_of,
            "place": place_on(summary["ranking"]),
            "MOST_LISTED": MOST_LISTED,
        }
        | {name: value for each in shown for name, value in each.words.items()},
        answers=find_answers(summary, shown),
    )


def write_ranking_report(summary: Mapping[str, Any], path: str | Path) -> Path:
    """Write the HTML page of a ranking atomically.

    Raises
    ------
    WriteError
        If the file cannot be written; an existing file is left unchanged.
    """
    return write_atomically(path, render_ranking(summary))


def rows_of(columns: Mapping[str, list[Any]], most: int | None = None) -> list[dict[str, Any]]:
    """Turn columns into rows, at most so many."""
    rows = zip(*columns.values(), strict=True)
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    return found if most is None else found[:most]


def place_on(ranking: Mapping[str, list[Any]]) -> Any:
    """Return a function from a strength to its place on a scale from 0 to 1."""
    ends = [v for name in ("low", "high", "strength") for v in ranking[name] if v is not None]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    width = max(high - low, 1e-9)
    return lambda value: min(max((value - low) / width, 0.0), 1.0)
