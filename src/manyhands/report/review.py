"""The section on labels, and single annotations, in the order in which to check them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from manyhands.codes import ActionCode
from manyhands.decision.labels import best_of
from manyhands.io.consensus_labels import ACTIONS, REVIEW_RULE, Consensus
from manyhands.metrics import Level
from manyhands.metrics.certainty import Certainty, certainty_of
from manyhands.metrics.intervals import share_interval
from manyhands.metrics.sample_levels import LEAST_GOLD
from manyhands.planning import ReviewQueue, review_queue
from manyhands.report.headline import find_levels, n_wrong, number_of_wrong
from manyhands.report.inputs import Inputs
from manyhands.report.labels import find_consensus
from manyhands.report.limits import LIMITS
from manyhands.report.planning import EXPLORE, Basis, find_basis, plan_actions
from manyhands.report.section import Action, Answer, Content, Findings, Section
from manyhands.typing import AnyArray, BoolArray, FloatArray, IntArray
from manyhands.wording import (
    ALL_TO_REVIEW,
    N_RANDOM,
    SHARED_LOOK_CERTAIN,
    count_ends,
    counted,
    percent_interval,
    spread,
)


class Doubted(NamedTuple):
    """The labels of the annotated items, the most doubtful first.

    Attributes
    ----------
    queue : ReviewQueue
    certainty : Certainty
    actions, is_known, has_gold : arrays of shape (len(queue),)
        What is recommended for each label of the queue, whether it was given, and whether a gold
        label says already what is right.
    n_to_review : int
        Labels that need review, as ``labels.csv`` has it.
    """

    queue: ReviewQueue
    certainty: Certainty
    actions: AnyArray
    is_known: BoolArray
    has_gold: BoolArray
    n_to_review: int


def find_doubted(found: Findings) -> Doubted | None:
    """Find the order in which to check labels; None where nothing was chosen."""
    inputs, basis, labels = found.inputs, found.once(find_basis), found.once(find_consensus)
    if basis is None or labels is None:
        return None
    certainty = certainty_of_basis(inputs, basis, inputs.level)
    queue = label_queue_of(inputs, basis, certainty, labels)
    place = {each: i for i, each in enumerate(inputs.table.instances.tolist())}
    rows = np.array([place[each] for each in queue.instances.tolist()], dtype=np.int64)
    known = np.zeros(len(place), dtype=bool) if inputs.known is None else inputs.known
    has_gold = known if inputs.gold is None else known | (inputs.gold >= 0)
    n = labels.count_actions()["review"]
    return Doubted(queue, certainty, labels.actions[rows], known[rows], has_gold[rows], n)


def review_section(found: Findings) -> Content | None:
    """Labels, and single annotations, in the order in which to check them."""
    inputs, basis, own = found.inputs, found.once(find_basis), found.once(find_doubted)
    if basis is None or own is None:
        return None
    told = own.queue.scores[~own.is_known]
    is_told = own.certainty.is_known
    single = queue_of(inputs, basis, own.certainty, by="annotation", n=LIMITS["review"])
    return {
        "source": basis.name,
        "n": len(own.queue),
        "n_to_review": own.n_to_review,
        "n_expected_wrong": float(told.sum()) if is_told else None,
        "half": _until(told, 0.5) if is_told else None,
        "labels": _queue_rows(own.queue, np.flatnonzero(own.actions != ACTIONS[0])),
        "annotations": _queue_rows(single, np.arange(len(single))),
    }


REVIEW_COMMAND = "manyhands review ANNOTATIONS --model FOLDER --out review.csv"
"""Command that lists the same labels as the report, of the same folder, in the same order."""


def certainty_of_basis(inputs: Inputs, basis: Basis, level: Level | None) -> Certainty:
    """Return how sure labels are said to be, from the probabilities that plans rest on."""
    table, posterior = inputs.table, _posterior_of(basis)
    return certainty_of(table, level, posterior, _codes_of(inputs, basis), inputs.known)


def _posterior_of(basis: Basis) -> Any:
    return basis.model.posterior_ if hasattr(basis.model, "posterior_") else basis.model


def _codes_of(inputs: Inputs, basis: Basis) -> IntArray:
    return best_of(_posterior_of(basis), inputs.table) if basis.codes is None else basis.codes


def label_queue_of(
    inputs: Inputs, basis: Basis, certainty: Certainty, labels: Consensus, **options: Any
) -> ReviewQueue:
    """Order labels as a report lists them; ``options`` are of `queue_of`.

    What is accepted comes last: with few annotations, even a surer label is in doubt.
    """
    return queue_of(inputs, basis, certainty, last=labels.actions == ACTIONS[0], **options)


def queue_of(
    inputs: Inputs, basis: Basis, certainty: Certainty, *, random: int = 0, **options: Any
) -> ReviewQueue:
    """Order labels, or annotations, as a report lists them; ``options`` are of `review_queue`."""
    labels = basis.codes
    if random and inputs.known is not None:
        # Nobody checks known labels at random; an array of probabilities does not tell them.
        labels = np.where(inputs.known, -1, _codes_of(inputs, basis))
    given: dict[str, Any] = {"labels": labels, "certainty": certainty, "random": random}
    return review_queue(basis.model, inputs.table, **given, **options)


def told_of_checking(queue: ReviewQueue, level: Level | None) -> list[str]:
    """Say what checking a queue brings: how many of it are wrong, and how far its sample measures.

    ``level`` is the share of right labels before.
    """
    drawn = np.zeros(len(queue), dtype=bool) if queue.chosen is None else queue.chosen == "random"
    told = _told_of_doubtful(queue, ~drawn)
    after = points_after(level, int(drawn.sum()))
    if after is None:
        return told
    whole, these = f"about {100 * after:.0f} percentage points", f"these {int(drawn.sum()):,}"
    if level is None:
        return [*told, f"Checking {these} would measure the share of right labels: the interval "
                f"would span {whole} or less."]  # fmt: skip
    now = f"{percent_interval(level.low, level.high)}"
    if level.source == "sample":
        return [*told, f"The share of right labels is now measured as {now}. With {these} checked, "
                f"too, the interval would span {whole}."]  # fmt: skip
    return [*told, f"The share of right labels is now estimated as {now}. Checking {these} would "
            f"measure it: the interval would span {whole}."]  # fmt: skip


def _told_of_doubtful(queue: ReviewQueue, doubtful: BoolArray) -> list[str]:
    """Say how many of the doubtful labels, or annotations, are expected to be wrong."""
    n, wrong = int(doubtful.sum()), float(queue.scores[doubtful].sum())
    if not n or np.isnan(wrong):
        return []
    what = "label" if queue.annotators is None else "annotation"
    which = f"these {counted(n, what)}" if n > 1 else f"this {what}"
    if not doubtful.all():
        which = f"the {counted(n, f'most doubtful {what}')}"
    many = number_of_wrong(wrong)
    be = "is" if round(wrong) <= 1 else "are"
    text = f"{many[0].upper()}{many[1:]} of {which} {be} expected to be wrong"
    if queue.annotators is not None or wrong < 0.5:
        return [f"{text}."]
    checks = "most checks correct a label"
    if round(n / wrong) > 1:
        checks = f"checking them corrects one label for every {n / wrong:.0f}"
    return [
        f"{text}, so {checks}. `manyhands next ANNOTATIONS` says how many annotations correct one."
    ]


def points_after(level: Level | None, n: int) -> float | None:
    """Return about how wide the interval of right labels will be with n more random labels checked.

    The width of what was measured shrinks with the square root of the number of labels. None where
    these labels will measure nothing, because they are too few or gold labels take their place.
    """
    if level is not None and level.source == "sample" and n:
        return float((level.high - level.low) * np.sqrt(level.n / (level.n + n)))
    if n < LEAST_GOLD or (level is not None and level.source == "gold"):
        return None
    low, high = share_interval((0.5 if level is None else level.value) * n, n, level=0.95)
    return float(high - low)


def _until(scores: FloatArray, share: float) -> int:
    """Return how many labels to check to meet this share of those expected to be wrong."""
    total = scores.sum()
    return int(np.searchsorted(scores.cumsum(), share * total) + 1) if total > 0 else 0


def _queue_rows(queue: ReviewQueue, order: IntArray) -> dict[str, Any]:
    shown = order[: LIMITS["review"]]
    columns = {
        "id": queue.instances,
        "annotator": queue.annotators,
        "label": queue.labels,
        "suggestion": queue.suggestions,
        "score": queue.scores,
        "grades_off": queue.grades_off,
        "suggestion_probability": queue.suggestion_probability,
        "is_middle": queue.is_middle,
    }
    kept = {k: values[shown].tolist() for k, values in columns.items() if values is not None}
    rows = [dict(zip(kept, row, strict=True)) for row in zip(*kept.values(), strict=True)]
    return {"total": len(order), "shown": len(shown), "rows": rows}


# -- what to do, and what it answers ---------------------------------------------------------------


def _actions(found: Findings) -> Iterator[Action]:
    own, section = found.once(find_doubted), found.once(review_section)
    if own is None or section is None or not section["labels"]["rows"]:
        return
    # By the rule of labels.csv: where no label needs review, another step settles the doubt.
    first, n = np.flatnonzero(own.actions == "review"), own.n_to_review
    title, need = "Review these labels first", f"{counted(n, 'label')} {_needs(n)} review. "
    if not n:
        if any(plan_actions(found)):
            return
        first, title, need = np.flatnonzero(own.actions != "accept"), CORRECT, ""
    first = first[~own.has_gold[first]]  # Somebody has looked at the others already.
    levels = found.once(find_levels)
    wrong = n_wrong({"levels": levels})
    if n and wrong is None:  # A random sample is checked before them.
        title = "Review the most doubtful labels"
    yield Action(
        ActionCode.CHECK,
        "review",
        title,
        need + _how_many_wrong(section, levels, wrong),
        # Half of the expected mistakes come first in this order.
        (section["n_to_review"] if wrong is None else wrong) / 2,
        _queue_rows(own.queue, first)["rows"][: LIMITS["actions"]],
        [
            "this command opens a page on which you correct a label with one key. When you "
            "stop this command (Ctrl+C), it prints the command that applies your corrections"
        ],
        EXPLORE,
    )


CORRECT = "Correct the most doubtful labels"
"""Title of the step where further annotations would hardly help, and no label needs review."""


def _needs(n: int) -> str:
    return "needs" if n == 1 else "need"


def half_of_wrong(summary: Mapping[str, Any]) -> int | None:
    """Return how many labels to check to meet half of the wrong ones; None if these are few."""
    found = summary.get("review") or {}
    return found.get("half") if (found.get("n_expected_wrong") or 0.0) >= FEW_WRONG else None


FEW_WRONG = 2.0
"""Expected number of wrong labels below which nobody is told where half of them are."""


def _how_many_wrong(section: Content, levels: Mapping[str, Any] | None, wrong: float | None) -> str:
    """Say how many labels are wrong, as the headline implies it, and what is listed."""
    labels = counted(section["n"], "label")
    half = half_of_wrong({"review": section})
    listed = "The most doubtful labels come first."
    if half is not None:
        listed = f"Half of the wrong ones are probably among the {half:,} most doubtful."
    unseen = SHARED_LOOK_CERTAIN
    level = None if levels is None else levels["labels"]
    if wrong is None or levels is None or level is None:
        return f"{listed} {unseen}"
    source = {"gold": "Judging by your gold labels", "sample": "Judging by your random sample"}
    of = levels["n"] - levels.get("n_known", 0)
    right = count_ends(of, level["low"], level["high"])
    ends = spread(f"{of - right[1]:,}", f"{of - right[0]:,}", "")
    if of < levels["n"]:
        labels = f"the {counted(of, 'inferred label')}"
    by = source.get(level["source"], "Judging by how annotators agree")
    text = (
        f"{by}, we expect {number_of_wrong(wrong)} "
        f"of {labels} to be wrong{f' ({ends})' if ends else ''}. {listed}"
    )
    return text if level["source"] in source else f"{text} {unseen}"


def _instances(own: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    yield 1, [row["id"] for row in own["labels"]["rows"]]
    yield 5, [row["id"] for row in own["annotations"]["rows"]]


def answer_review(s: Mapping[str, Any]) -> Answer:
    """Answer which labels need another look."""
    found = s.get("review")
    if not found:
        return None, "There is one class only."
    wrong = n_wrong(s)
    if wrong is None:
        return "review", f"{_to_review(found)} The most doubtful labels come first.".strip()
    of = s["levels"]["n"] - s["levels"].get("n_known", 0)
    number = number_of_wrong(wrong)
    wrong_of = (
        f"{number[0].upper()}{number[1:]} of {of:,} {'is' if wrong < 1.5 else 'are'} probably wrong"
    )
    return "review", f"{_to_review(found)} {wrong_of}; the most doubtful come first.".strip()


def _to_review(found: Mapping[str, Any]) -> str:
    n = found.get("n_to_review")
    if n and n == found["n"] and n > 1:
        return f"All of them. Begin with {N_RANDOM} random labels."
    return f"{counted(n, 'label')} {_needs(n)} review." if n else ""


REVIEW = Section(
    "review",
    "Which labels need another look?",
    "review.html",
    review_section,
    actions=_actions,
    instances=_instances,
    words={
        "ALL_TO_REVIEW": ALL_TO_REVIEW,
        "REVIEW_RULE": REVIEW_RULE,
        "REVIEW_COMMAND": REVIEW_COMMAND,
    },
    answer=answer_review,
)
