"""What to check, whom to ask what next, and whether more annotations are worth their price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from manyhands.annotations import AnnotationTable
from manyhands.codes import TELL_NOTHING, ActionCode
from manyhands.decision.labels import best_of, is_scale_of_grades
from manyhands.exceptions import AnnotationError, silenced
from manyhands.inference import DawidSkene
from manyhands.inference.base import BaseAggregator
from manyhands.io.csv_files import DECIMALS
from manyhands.planning import (
    AnnotationPlanner,
    Screening,
    Stopping,
    Suggestion,
    forecast,
)
from manyhands.planning.planner import correcting, limit_of, price_in_words
from manyhands.planning.pool import read_pool
from manyhands.planning.screening import screened
from manyhands.report.filters import count
from manyhands.report.headline import are_decided, find_levels
from manyhands.report.inputs import Inputs
from manyhands.report.labels import filled_rows, find_consensus
from manyhands.report.limits import LIMITS, MIN_GAIN
from manyhands.report.section import Action, Answer, Content, Findings, Section
from manyhands.typing import BoolArray, IntArray
from manyhands.wording import (
    DRAW_SAMPLE,
    GAINS,
    N_RANDOM,
    GainWords,
    quantity,
)

BATCH = 0.1
"""Annotations of the next batch, as a share of the instances."""

MOST = 2.0
"""Largest part of the next annotations for one annotator, as a multiple of the even share."""

POINTS = 40
"""Points of the curve of gains."""

LEAST_GAIN = 0.01
"""Gain below which an answer is called unlikely to correct its label."""

RANGE_OF_GAIN = "On real data sets, the gain was between half and twice what was expected."
"""How far the expected gain may be off, in words: `manyhands.planning.replay.LESS` and `MORE`."""

WARM_UP = 1.5
"""Annotations per instance before a plan chooses, unless a classifier's labels are planned with."""

GOOD = 0.9
"""Share of right labels from which on annotations are called enough; with less, more would only
not help."""

ROUNDS, ROUND = 4, 0.5
"""Rounds of the forecast, and annotations per instance of each."""

WORLDS = 3
"""Simulated continuations of the crowd behind the forecast."""

FORESEEN = {"annotations": 50_000, "annotators": 500, "classes": 20}
"""Largest numbers with a forecast, which then takes a few seconds at most."""


PER_MINUTE = 200_000
"""Annotations of a table whose forecast by ``budget`` takes about a minute: half a minute to three
quarters were measured with 50,000 to 200,000 annotations (4 to 40 classes, up to 3,000
annotators)."""


@dataclass(frozen=True)
class Basis:
    """What plans rest on: the report's own labels; Dawid-Skene's if these have no probabilities.

    ``codes`` are labels to check that are not the most probable classes, or None.
    """

    name: str
    model: Any
    codes: IntArray | None = None


def basis_of(inputs: Inputs, known: dict[Any, Any] | None = None) -> Basis | None:
    """Probabilities to plan with; None with fewer than two classes or without annotations.

    Labels that are ``known`` are those that the inferred ones include already.
    """
    inferred, table = inputs.inferred, inputs.table
    if inferred is None or table.n_classes < 2:
        return None
    shares = inputs.has_shares
    if inferred.probable and not shares:
        codes = None
        if (inferred.codes != best_of(inferred.posterior, table)).any():
            codes = inferred.codes
        model = inputs.aggregator
        if isinstance(model, BaseAggregator) and np.array_equal(model.classes_, table.classes):
            # Labels that another rule decided are given, but the probabilities are the method's.
            own = inferred.kind == "aggregator"
            if own or np.array_equal(model.posterior_, inferred.posterior):
                return Basis(type(model).__name__, model, codes)
        # As labels.csv has them, or near ties would give those who read it another batch.
        written = np.round(inferred.posterior, DECIMALS)
        return Basis(inferred.name, filled_rows(written), codes)
    with silenced("manyhands"):  # The report has warnings of its own.
        try:
            model = DawidSkene().fit(table, gold=known or None)
        except AnnotationError:
            return None
    return Basis("DawidSkene", model, None if shares else inferred.codes)


def find_basis(found: Findings) -> Basis | None:
    """Find the labels and probabilities on which plans and reviews of a report are based."""
    return basis_of(found.inputs, known_of(found.inputs))


def find_screening(found: Findings) -> Screening | None:
    """Find the annotators who need a look; None if nothing can be planned."""
    basis = found.once(find_basis)
    return None if basis is None else screening_of(found.inputs, basis)


def screening_of(inputs: Inputs, basis: Basis) -> Screening:
    """Screen the annotators against the labels that are given, else those of the plan."""
    table, model, gold = inputs.table, basis.model, None
    if inputs.inferred is not None and not inputs.inferred.probable:
        model = filled_rows(inputs.inferred.posterior)
    if inputs.judging is not None:
        gold = np.array([*table.classes.tolist(), None], dtype=object)[inputs.judging]
    seen = {"times": inputs.ended, "seconds": inputs.seconds, "gold": gold}
    return screened(table, model, judged=inputs.judged, **seen)


def plan_section(found: Findings) -> Content | None:
    """The next annotations to buy, from whom, and what each is expected to add."""
    levels = found.once(find_levels)
    level = None if levels is None else levels["labels"]
    screening = found.once(find_screening)
    return plan_of(found.inputs, found.once(find_basis), screening, level=level)


def plan_of(
    inputs: Inputs,
    basis: Basis | None,
    screening: Screening | None = None,
    known: dict[Any, Any] | None = None,
    *,
    ahead: bool = True,
    level: Mapping[str, Any] | None = None,
    most: int | None = LIMITS["next"],
) -> dict[str, Any] | None:
    """The next annotations to buy, from whom, and what each is expected to add.

    Nobody is asked about a label that is ``known`` (default: those of the fit); None if all are.
    ``screening`` tells whom not to ask (default: `screening_of`). ``ahead`` forecasts several
    rounds, which takes seconds. ``level`` says how many labels are right (`Level.to_dict`), and
    ``most`` how many annotations of the batch are told; None: all.
    """
    if basis is None:
        return None
    table = inputs.table
    known = known_of(inputs) if known is None else known
    if len(known) == table.n_instances:
        return None
    planner = AnnotationPlanner(random_state=0, warm_up=warm_up_of(inputs), load=MOST)
    with silenced("manyhands"):
        planner.fit(table, gold=known or None, model=basis.model)
        screening = screening_of(inputs, basis) if screening is None else screening
        asked = candidates_of(planner, screening)
        advice = advised(planner, asked)
        batch = planner.suggest(next_size(table), asked.pairs)
    # Where nothing decides who is right, what an annotation is worth rests on a made-up model.
    judged = is_judged(inputs)
    newcomer = asked.newcomer
    ahead = ahead and newcomer is None and judged
    is_new, told = newcomer is not None, told_of(level)
    plan = priced(advice, basis.name, newcomer=is_new, judged=judged, **told)
    gains = told_gains(plan, batch)
    drawn = inputs.drawn
    rounds = _rounds(basis.model, table, known or None, drawn, asked.pairs) if ahead else None
    return {
        **plan,
        "whom": asked.told,
        "of_annotations": basis.model is inputs.aggregator and is_of_annotations(basis.model),
        "curve": None if gains is None else _curve(batch),
        "rounds": rounds,
        "next": _next_rows(batch, newcomer, gains, most),
        "annotators": _per_annotator(batch, newcomer, gains),
    }


def next_size(table: AnnotationTable) -> int:
    """Size of the next batch, unless told: small enough that a forecast's round is no better."""
    return max(1, int(BATCH * table.n_instances))


@dataclass(frozen=True)
class Candidates:
    """Whom a plan may ask.

    ``pairs`` is as in `AnnotationPlanner.suggest`. ``newcomer`` is an id that nobody has, or None
    if somebody of the table is left to ask. ``told`` says who is not asked and why, or is "".
    """

    pairs: Any
    newcomer: Any
    told: str


def candidates_of(planner: AnnotationPlanner, screening: Screening) -> Candidates:
    """Return whom a fitted planner may ask, where nobody said whom.

    Nobody is asked whose answers tell nothing. If nobody else has work left, a newcomer is.
    """
    table = planner.table_
    nothing = [each.annotator for each in screening if TELL_NOTHING.intersection(each.flags)]
    may = ~np.isin(table.annotators, nothing)
    pairs = None if may.all() else np.broadcast_to(may, table.shape)
    if read_pool(pairs, table).open_instances[~planner.is_known_].any():
        return Candidates(pairs, None, "" if pairs is None else OF_GUESSING)
    newcomer = _newcomer(table.annotators)
    why = "has annotated everything"
    if not may.any():
        why = "does no better than guessing"
    elif pairs is not None:
        why += " or does no better than guessing"
    return Candidates(
        [(instance, newcomer) for instance in table.instances.tolist()],
        newcomer,
        f"Everybody here {why}, so a new annotator is needed, who is expected to be as good as the "
        "crowd.",
    )


OF_GUESSING = "Annotators who do no better than guessing are not asked."
"""Who is not asked, in words."""


def advised(planner: AnnotationPlanner, asked: Candidates) -> Stopping:
    """Return whether to buy more annotations of these candidates."""
    return planner.stopping(MIN_GAIN, n=next_size(planner.table_), pairs=asked.pairs)


def priced(
    advice: Stopping,
    source: str,
    *,
    newcomer: bool = False,
    min_gain: float = MIN_GAIN,
    judged: bool = True,
    right: float | None = None,
    measured: bool = False,
) -> dict[str, Any]:
    """Return what the next annotations are worth, for `enough`; ``source`` is the basis.

    ``judged`` says whether anything tells how good the annotators are, and ``right`` how many of
    the labels are right, which may be ``measured`` on gold. Where nobody can be judged yet, what
    annotations are worth is None.
    """
    gain = advice.marginal_gain if judged and not advice.n_warm_up else None
    return {
        "source": source,
        "newcomer": newcomer,
        "judged": judged,
        "n": advice.n,
        "n_warm_up": advice.n_warm_up,
        "gain": gain,
        "min_gain": min_gain,
        "stop": advice.stop,
        "right": right,
        "measured": measured,
        "unit": advice.unit,
        "per_right_label": 1 / gain if gain is not None and gain > 1e-6 else None,
    }


def gain_words(plan: Mapping[str, Any]) -> GainWords:
    """Return the words for the gains of a plan."""
    return GAINS[plan.get("unit", "label")]


def limit(plan: Mapping[str, Any]) -> str:
    """Say below which gain of a plan we suggest stopping; "" without a limit."""
    return limit_of(plan["min_gain"], ordered=plan.get("unit") == "grade")


def minutes_of_forecast(table: AnnotationTable) -> int:
    """Return about how many minutes ``budget`` takes with a table, at least one."""
    return max(1, round(table.n_annotations / PER_MINUTE))


def told_of_rounds(rows: Sequence[Mapping[str, Any]]) -> tuple[int, str]:
    """Return how many rounds of a forecast are worth buying, and say where to stop."""
    prices = [row["per_right_label"] for row in rows]
    n = n_worth([None if price is None else 1 / price for price in prices])
    if n == len(rows):
        return n, ""
    if not n:
        little = "in the first, " if prices[0] else "the first "
        return n, f"No round of the table is worth buying: {little}{_too_little(prices[0])}."
    bought = count(rows[n - 1]["annotations"], "further annotation")
    little = "" if prices[n] else "the next round of the table "
    return n, f"Stop after {bought}: beyond these, {little}{_too_little(prices[n])}."


def _too_little(price: float | None) -> str:
    """Say what a round costs that is not worth buying."""
    if price is None:
        return "would hardly correct a label"
    return f"a corrected label takes more than {count(round(1 / MIN_GAIN), 'annotation')}"


def n_worth(gains: Sequence[float | None]) -> int:
    """Count the rounds of a forecast before the first that gains too little per annotation.

    A gain that is None is below one label in a round; it is NaN where there was nothing to buy.

    Examples
    --------
    >>> n_worth([0.2, 0.021, 0.019, 0.03]), n_worth([0.1, None]), n_worth([0.2, 0.1])
    (2, 1, 2)
    """
    little = (k for k, gain in enumerate(gains) if gain is None or gain < MIN_GAIN)
    return next(little, len(gains))


def told_of(level: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what `priced` needs of a level: how many labels are right, and whether measured."""
    if level is None:
        return {"right": None, "measured": False}
    return {"right": level["value"], "measured": level["source"] == "gold"}


def told_gains(plan: Mapping[str, Any], batch: Suggestion) -> list[float] | None:
    """Right labels that each annotation of a batch is expected to add; None if it is not known."""
    return None if plan["gain"] is None else batch.expected_gain.tolist()


def enough(plan: Mapping[str, Any] | None) -> str:
    """Answer whether more annotations are needed, in a sentence or two; "" without a plan.

    The report, the explorer, ``next`` and ``budget`` all answer with it.
    """
    if plan is None or not plan["n"]:
        return ""
    price = plan["per_right_label"]
    if plan["n_warm_up"]:
        return "You need more annotations: with so few per item, nothing shows who is good."
    if not plan.get("judged", True):
        if plan.get("measured"):
            return (
                "It is not known whether more annotations are worth their price, because the "
                "annotations alone do not show how good the annotators are. Your gold labels "
                "show it if you give them as --known."
            )
        return (
            "It is not known whether more annotations are worth their price, because nothing shows "
            "how good the annotators are."
        )
    gain = None if price is None else 1 / price
    rate = correcting(plan["n"], gain, ordered=plan.get("unit") == "grade")
    n = "the next annotation" if plan["n"] == 1 else f"the next {plan['n']:,} annotations"
    who = f"{n}, from a new annotator," if plan["newcomer"] else n
    told = f"the model ({plan['source']}) expects that {who} would correct {rate}."
    if plan["stop"]:
        told = told.removesuffix(".")
        right = plan.get("right")
        is_good = right is not None and right >= GOOD
        hardly = "More annotations by people like these would hardly help"
        answer = "You have enough annotations" if is_good else hardly
        return (
            f"{answer}: {told}. Reviewing doubtful labels corrects more"
            f"{'' if is_good else ', and so may clearer guidelines or better annotators'}."
        )
    return f"More annotations help: {told} Weigh this against what they cost."


def is_of_annotations(model: Any) -> bool:
    """Return whether ``manyhands next`` fits the same model to annotations and known labels."""
    return is_refitted(model) and model.get_params() == DawidSkene().get_params()


def next_command(plan: Mapping[str, Any], n: int) -> str:
    """Command that plans the same batch: from the labels of the folder, unless it infers them."""
    labels = "" if plan["of_annotations"] else " --model FOLDER"
    return f"manyhands next ANNOTATIONS{labels} -n {n}"


def is_judged(inputs: Inputs) -> bool:
    """Return whether annotators can be judged and most labels are decided."""
    has_known = inputs.known is not None and bool(inputs.known.any())
    return inputs.judged and (has_known or are_decided(inputs.identified, inputs.annotated))


def is_refitted(model: Any) -> bool:
    """Return whether a forecast can fit a plan's model again: `DawidSkene` without history."""
    return isinstance(model, DawidSkene) and getattr(model, "_history", None) is None


def known_of(inputs: Inputs) -> dict[Any, Any]:
    """Labels that were given to the fit, by instance."""
    known = inputs.known
    if inputs.inferred is None or known is None:
        return {}
    codes = inputs.inferred.codes[known]
    values = inputs.table.classes[codes].tolist()
    return dict(zip(inputs.table.instances[known].tolist(), values, strict=True))


def warm_up_of(inputs: Inputs) -> float:
    """Warm-up of a plan: labels that rest on one annotation each all look sure."""
    is_classifier = inputs.inferred is not None and inputs.inferred.kind == "classifier"
    return 0.0 if is_classifier else WARM_UP


def _newcomer(annotators: Any) -> Any:
    """An id that nobody has."""
    if annotators.dtype.kind in "iu":
        return int(annotators.max(initial=0)) + 1
    return max((str(name) for name in annotators.tolist()), default="") + "+"


def _curve(batch: Suggestion) -> list[dict[str, float]]:
    """Right labels that the first annotations of the batch add, the best first."""
    gains = np.sort(batch.expected_gain)[::-1].cumsum()
    places = np.unique(np.linspace(1, len(gains), min(POINTS, len(gains))).round().astype(int))
    return [{"annotations": 0, "gain": 0.0}] + [
        {"annotations": int(k), "gain": float(gains[k - 1])} for k in places
    ]


def _rounds(
    model: Any,
    table: AnnotationTable,
    known: Mapping[Any, Any] | None,
    drawn: BoolArray | None,
    pairs: BoolArray | None,
) -> dict[str, Any] | None:
    """Forecast several rounds, planned and at random; None of grades, or where it would take long.

    What a batch adds on grades is a distance, and the forecast is of shares of right labels.

    ``model`` is that of the plan, which the forecast fits again after every round: its rounds
    continue the price of the next batch. There is no forecast with other models, because one with
    Dawid and Skene's would be a second price. ``drawn`` marks the labels of ``known`` that were
    drawn at random, and ``pairs`` those that may be asked.
    """
    if not is_refitted(model) or is_scale_of_grades(table):
        return None
    if any(getattr(table, f"n_{what}") > most for what, most in FORESEEN.items()):
        return None
    start = table.n_annotations / table.n_instances
    policies = {"plan": AnnotationPlanner(clone(model), load=MOST), "random": None}
    try:
        # Progress and doubts of a forecast are none of the job.
        with silenced("manyhands", "manyhands.progress"):
            most = start + ROUNDS * ROUND
            size: dict[str, Any] = {"batch": ROUND, "n_runs": WORLDS, "random_state": 0}
            given: dict[str, Any] = {"gold": known, "random_gold": drawn, "pairs": pairs}
            found = forecast(table, policies, most, **given, **size)
    except AnnotationError:
        return None
    # By which the next batch is priced, too; the accuracy also allows for the level.
    steps = np.diff(found.sizes, prepend=found.sizes[0])
    gains = {name: np.cumsum(np.nan_to_num(c.gain) * steps, 1) for name, c in found.curves.items()}
    plan, by_chance = gains["plan"], gains["random"].mean(axis=0)
    bought = np.round((found.sizes - found.sizes[0]) * table.n_instances)
    added = np.diff(plan.mean(axis=0)) * table.n_instances
    rows = [
        {
            "annotations": int(bought[k]),
            "gain": float(plan[:, k].mean()),
            "low": float(plan[:, k].min()),
            "high": float(plan[:, k].max()),
            "random": float(by_chance[k]),
            "per_right_label": (bought[k] - bought[k - 1]) / each if each >= 0.5 else None,
        }
        for k, each in enumerate(added.tolist(), start=1)
    ]
    return {"runs": WORLDS, "rows": rows}


def _next_rows(
    batch: Suggestion, newcomer: Any, gains: list[float] | None, most: int | None
) -> dict[str, Any]:
    shown = len(batch) if most is None else min(most, len(batch))
    rows = [
        {
            "id": instance,
            "annotator": None if newcomer is not None else annotator,
            "gain": None if gains is None else gains[k],
        }
        for k, (instance, annotator) in enumerate(batch)
    ]
    return {"total": len(batch), "shown": shown, "rows": rows[:shown]}


def _per_annotator(
    batch: Suggestion, newcomer: Any, gains: list[float] | None
) -> list[dict[str, Any]]:
    """Return how many of the batch each annotator gets, the most first."""
    if newcomer is not None:
        return []
    names, place = np.unique(batch.annotators, return_inverse=True)
    n, gain = np.bincount(place), np.bincount(place, weights=batch.expected_gain)
    order = np.argsort(-n, kind="stable")[: LIMITS["named"]]
    return [
        {
            "annotator": names[k].item(),
            "n": int(n[k]),
            "gain": None if gains is None else float(gain[k]),
        }
        for k in order
    ]


# -- what to do, and what it answers ---------------------------------------------------------------


def plan_actions(found: Findings) -> Iterator[Action]:
    """Yield what the plan advises: a random sample, or further annotations."""
    plan = found.once(plan_section)
    if plan is None:
        return
    n_instances = found.inputs.table.n_instances
    if _is_unjudged(plan):
        if not plan["measured"]:
            yield Action(
                ActionCode.SAMPLE,
                "review",
                f"Check {N_RANDOM} random labels",
                "Only labels that you check yourself can show how good the annotators are. The "
                f"command below draws {N_RANDOM} items. Write your label for each into sample.csv. "
                "Then repeat the command that made this report, with --known sample.csv.",
                n_instances,
                command=DRAW_SAMPLE,
            )
        return
    if plan["stop"]:
        return
    rows = [] if plan["newcomer"] else plan["next"]["rows"]
    rows = sorted(rows, key=_corrects_nothing)[: LIMITS["actions"]]
    yield Action(
        ActionCode.BUY,
        "plan-next" if rows else "plan",
        "Ask these annotators about these items next" if rows else "Buy more annotations",
        _of_answers(plan) if rows else enough(plan),
        _worth(plan, n_instances),
        rows,
        [*_or_correct(found), *_of_gold(found.inputs, plan)],
        command=f"{next_command(plan, plan['n'])} --out batch.csv",
    )


def _of_answers(plan: Mapping[str, Any]) -> str:
    """Say what the next answers are for."""
    if plan["n_warm_up"]:
        return "Second answers to the same items show who can be trusted."
    return "Their answers should help most to settle the doubtful labels."


def _corrects_nothing(row: Mapping[str, Any]) -> bool:
    """Return whether an answer is unlikely to correct its label, a poor example of what helps."""
    return row["gain"] is not None and row["gain"] < LEAST_GAIN


EXPLORE = "manyhands explore FOLDER --annotations ANNOTATIONS"
"""Command that opens the page on which a person corrects labels."""


def _or_correct(found: Findings) -> list[str]:
    """Say what else helps where labels are in doubt and none needs review yet."""
    labels = found.once(find_consensus)
    if labels is None or labels.count_actions()["review"]:
        return []
    told = "if you can judge the items yourself, you may instead correct the most doubtful labels"
    return [f"{told}: {EXPLORE}"]


GOLD_TEACHES = (
    "with the gold labels as --known, the plan may expect another gain: the model then learns "
    "from them how good the annotators are and, if the labels were drawn at random, how sure its "
    "own labels are"
)
"""Why the same labels as --gold and as --known give two gains."""


def _of_gold(inputs: Inputs, plan: Mapping[str, Any]) -> list[str]:
    """Say why a plan asks about items with gold labels, where it does."""
    if inputs.gold is None:
        return []
    told = [GOLD_TEACHES] if plan["gain"] is not None and inputs.known is not None else []
    has_gold = set(inputs.table.instances[inputs.gold >= 0].tolist())
    if has_gold.isdisjoint(row["id"] for row in plan["next"]["rows"]):
        return told
    return [
        "items with gold labels can be in this list, because gold labels decide no label. Give "
        "gold labels as --known, and nobody is asked about their items again",
        *told,
    ]


def told_of_answer(gain: float, unit: str = "label") -> str:
    """Say what a single answer is expected to correct.

    Examples
    --------
    >>> told_of_answer(0.27), told_of_answer(0.9)
    ('corrects the label with a chance of about 1 in 4', 'expected to correct the label')
    >>> told_of_answer(0.004), told_of_answer(0.3, "grade")
    ('unlikely to correct the label', 'expected to bring the label 0.30 grades nearer the truth')
    """
    if unit == "grade":
        return f"expected to bring the label {quantity(gain)} grades nearer the truth"
    n = round(1 / gain) if gain >= LEAST_GAIN else 0
    if n > 1:
        return f"corrects the label with a chance of about 1 in {n}"
    return "expected to correct the label" if n else "unlikely to correct the label"


def _worth(plan: Mapping[str, Any], n_instances: int) -> float:
    """Right labels that the next annotations add; all, where nobody can be told good from bad."""
    return n_instances if plan["gain"] is None else max(plan["gain"], 0.0) * plan["n"]


def _is_unjudged(plan: Mapping[str, Any]) -> bool:
    """Return whether nothing shows how good annotators are, apart from too few annotations."""
    return not plan.get("judged", True) and not plan["n_warm_up"]


def _instances(own: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    yield 6, [row["id"] for row in own["next"]["rows"]]


def answer_more(s: Mapping[str, Any]) -> Answer:
    """Answer how many more labels are needed."""
    plan = s.get("plan")
    if not plan:
        return None, "There is one class only, or every label is known."
    return None if _is_unjudged(plan) else "plan", enough(plan)


PLAN = Section(
    "plan",
    "Do you need more annotations?",
    "plan.html",
    plan_section,
    actions=plan_actions,
    instances=_instances,
    words={
        "gain_words": gain_words,
        "limit": limit,
        "price_in_words": price_in_words,
        "told_of_rounds": told_of_rounds,
        "told_of_answer": told_of_answer,
        "range_of_gain": RANGE_OF_GAIN,
        "next_command": next_command,
    },
    answer=answer_more,
)
