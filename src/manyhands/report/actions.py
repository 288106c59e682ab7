"""What to do next: one step per question that a report can answer with names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from manyhands.report.filters import percent
from manyhands.report.headline import n_wrong
from manyhands.report.limits import LIMITS
from manyhands.report.planning import enough
from manyhands.report.warnings import SHARED, count, shorten
from manyhands.wording import N_RANDOM, SAMPLE_TELLS, count_ends

Step = dict[str, Any]

MOST_DOUBTED = 0.1
"""Share of the gold labels that may be doubted; where annotators contradict more, they err."""

OUTVOTED = (
    "This depends on who shares mistakes (the warning under “Worth a look”): annotators who share "
    "them look better than they are, and those whom they outvote look worse."
)


MOST_ACTIONS = 4
"""Actions on the first screen."""


def find_actions(summary: Mapping[str, Any]) -> list[Step]:
    """List the steps that a summary leads to: at most four, by the mistakes that each avoids.

    Each step has a code for programs ("talk", "sample", "check", "explain", "buy", "gold"), a
    title and a text for readers, the section that holds the evidence, the first rows of it, and the
    number of wrong labels that it may put right ("avoided"), which is a rough figure and only
    orders them. While it is open who shares mistakes, that comes first.
    """
    if not summary["data"]["n_annotations"]:
        return []
    steps = (_talk, _sample, _check, _explain, _gold, _buy)
    found = [{"code": step.__name__[1:], **each} for step in steps for each in step(summary)]
    found.sort(key=lambda each: -each["avoided"])
    return found[:MOST_ACTIONS]


def _step(
    section: str, title: str, text: str, avoided: float, rows: Any = (), advice: Any = ()
) -> Step:
    return {
        "section": section,
        "title": title,
        "text": text,
        "avoided": float(avoided),
        "rows": list(rows),
        "advice": list(advice),
    }


def _talk(summary: Mapping[str, Any]) -> Iterator[Step]:
    found = summary["annotators"]
    if found is None:
        return
    rows = [row for row in found["rows"] if row["screen"]["flags"]]
    if not rows:
        return
    flags = {flag for row in rows for flag in row["screen"]["flags"]}
    is_open = any(warning["code"] in SHARED for warning in summary["warnings"])
    by_gold = flags == {"below the median on gold"}
    is_open &= not by_gold  # Gold knows nothing of shared mistakes.
    n, wrong = found["n_flagged"], _wrong_annotations(rows)
    of_all = _wrong_annotations(found["rows"])
    need = "One annotator needs" if n == 1 else f"{n:,} annotators need"
    title = f"{need} a closer look"
    blame = (
        f"{'It accounts' if n == 1 else 'Together they account'} for about {wrong:,.0f} of the "
        f"about {of_all:,.0f} wrong annotations."
        if found.get("judged", True)
        else "Gold labels measure it."
        if by_gold
        else "How many of their annotations are wrong is not known."
    )
    text = f"{blame} Look at examples before you draw conclusions."
    if is_open:
        whom = "this annotator" if n == 1 else f"{n:,} annotators"
        title, text = f"Find out who shares mistakes before you judge {whom}", OUTVOTED
    excess = sum(
        row["n_annotations"] * max(found["median_accuracy"] - row["accuracy"], 0.0)
        for row in rows
        if row["n_annotations"] and row["accuracy"] is not None
    )
    rows = rows[: LIMITS["actions"]]
    yield _step(
        "annotators",
        title,
        text,
        float("1e12") if is_open else _share_of_wrong(summary, excess / of_all if of_all else 0.0),
        [
            {
                "id": row["id"],
                "n_annotations": row["n_annotations"],
                "flags": row["screen"]["flags"],
                "evidence": row["screen"]["evidence"],
                "advice": row["screen"]["advice"],
                "instances": row["instances"],
            }
            for row in rows
        ],
        dict.fromkeys(f"{row['screen']['flags'][0]}: {row['screen']['advice']}" for row in rows),
    )


def _wrong_annotations(rows: list[Mapping[str, Any]]) -> float:
    """How many annotations of these annotators are wrong, as the labels have it."""
    return sum(
        row["n_annotations"] * (1 - row["accuracy"]) for row in rows if row["accuracy"] is not None
    )


def _share_of_wrong(summary: Mapping[str, Any], share: float) -> float:
    """Wrong labels that a share of the wrong annotations is to blame for."""
    wrong = n_wrong(summary)
    return share * (summary["data"]["n_instances"] if wrong is None else wrong)


def _check(summary: Mapping[str, Any]) -> Iterator[Step]:
    found = summary["review"]
    if found is None:
        return
    rows = found["labels"]["rows"][: LIMITS["actions"]]
    if not rows:
        return
    wrong = n_wrong(summary)
    yield _step(
        "review",
        "Review these labels first",
        _how_many_wrong(summary, wrong, len(rows)),
        # Half of the expected mistakes come first in this order.
        (found.get("n_to_review", 0) if wrong is None else wrong) / 2,
        rows,
        [
            "correct them on the page of 'manyhands explore', with one key per label; what you "
            "decide goes into the next fit or aggregate as --known"
        ],
    )


def _how_many_wrong(summary: Mapping[str, Any], wrong: float | None, n_listed: int) -> str:
    """Say how many labels are wrong, as the headline implies it, and what is listed."""
    labels = count(summary["review"]["n"], "label")
    listed = f"The {n_listed} most doubtful are" if n_listed > 1 else "The most doubtful one is"
    listed += " listed."
    unseen = "Mistakes that annotators share look sure: also check a random sample."
    levels = summary.get("levels") or {}
    level = levels.get("labels")
    if wrong is None or level is None:
        return f"How many of the {labels} are wrong is not known. {listed} {unseen}"
    source = {"gold": "By your gold labels", "sample": "By your random sample"}
    of = levels["n"] - levels.get("n_known", 0)
    right = count_ends(of, level["low"], level["high"])
    least, most = of - right[1], of - right[0]
    if of < levels["n"]:
        labels = count(of, "other label")
    text = (
        f"{source.get(level['source'], 'By how annotators agree')}, we expect {_number(wrong)} "
        f"wrong among {labels} ({least:,} to {most:,}). {listed}"
    )
    return text if level["source"] in source else f"{text} {unseen}"


def _number(value: float) -> str:
    if value < 0.5:  # Not "none": that would be said of all labels with certainty.
        return "fewer than one"
    return "about one" if value < 1.5 else f"about {value:,.0f}"


def _explain(summary: Mapping[str, Any]) -> Iterator[Step]:
    found = summary["confusions"]
    if found is None or not found["pairs"]:
        return
    rows = found["pairs"][: LIMITS["actions"]]
    most, total = sum(row["n"] for row in rows), found["n_wrong"]
    about = "" if found["truth"] == "gold" else "about "
    wrong = "differ from gold labels" if found["truth"] == "gold" else "are probably wrong"
    share = f"{about}{percent(most / total)}"
    pairs = "one pair" if len(rows) == 1 else f"{len(rows)} pairs"
    text = f"{share[0].upper()}{share[1:]} of the annotations that {wrong} ({most:,} of {total:,}) "
    text += f"are between {pairs} of classes."
    if most >= total:  # All of them in all pairs says nothing.
        top = rows[0]
        named = f"{shorten(str(top['true']))} labelled {shorten(str(top['given']))}"
        text = f"{about}{total:,} annotations {wrong}, {about}{top['n']:,} of them as {named}."
        text = f"{text[0].upper()}{text[1:]}"
    is_known = found.get("known", True)
    if about and is_known:
        text += " By the inferred labels and how sure they are; the model may err."
    if not is_known:
        # Which class is mistaken for which rests on labels that nothing vouches for.
        rows = _mixed_up(found["pairs"])
        text = (
            "Annotators differ most between these classes. Which of them is right, and how often, "
            f"is not known. {SAMPLE_TELLS}."
        )
    yield _step(
        "confusions",
        "Clarify the guidelines for these classes",
        text,
        _share_of_wrong(summary, most / total / 2),  # Guidelines prevent some of them.
        rows,
    )


def _mixed_up(pairs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Pairs of classes in either direction, those that differ most often first, without numbers."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for pair in pairs:
        low, high = sorted((pair["row"], pair["column"]))
        first, second = pair["true"], pair["given"]
        if pair["row"] != low:
            first, second = second, first
        empty = {"true": first, "given": second, "n": 0, "instances": []}
        row = found.setdefault((low, high), empty)
        row["n"] += pair["n"]
        row["instances"] = [*dict.fromkeys([*row["instances"], *pair["instances"]])]
    rows = sorted(found.values(), key=lambda row: -row["n"])[: LIMITS["actions"]]
    return [
        {**row, "n": None, "instances": row["instances"][: LIMITS["instances"]]} for row in rows
    ]


def _gold(summary: Mapping[str, Any]) -> Iterator[Step]:
    gold = summary["gold"] or {}
    doubts = gold.get("doubts")
    if not doubts or not doubts["rows"]:
        return
    n, of = doubts["total"], gold["n"]
    if n > MOST_DOUBTED * of:
        return  # So much gold is not wrong: the annotators are.
    yield _step(
        "gold-doubts",
        f"Check {count(n, 'gold label')}",
        f"Several good annotators agree on another class than {count(n, 'gold label')} of "
        f"{of:,}. Either the gold label or the guideline may be wrong.",
        n / 2,
        doubts["rows"][: LIMITS["actions"]],
    )


def _buy(summary: Mapping[str, Any]) -> Iterator[Step]:
    plan = summary["plan"]
    if plan is None or plan["stop"] or _is_unjudged(plan):
        return
    rows = [] if plan["newcomer"] else plan["next"]["rows"][: LIMITS["actions"]]
    yield _step(
        "plan-next" if rows else "plan",
        "Ask these annotators about these items next" if rows else "Buy more annotations",
        "Each answer is expected to tell most about the label of its item."
        if rows and not plan["n_warm_up"]
        else "Second answers to the same items show who can be trusted."
        if rows
        else enough(plan),
        _worth(plan, summary["data"]["n_instances"]),
        rows,
    )


def _worth(plan: Mapping[str, Any], n_instances: int) -> float:
    """Right labels that the next annotations add; all, where nobody can be told good from bad."""
    return n_instances if plan["gain"] is None else max(plan["gain"], 0.0) * plan["n"]


def _sample(summary: Mapping[str, Any]) -> Iterator[Step]:
    plan = summary["plan"]
    if plan is None or not _is_unjudged(plan) or plan.get("measured"):
        return
    yield _step(
        "review",
        f"Check {N_RANDOM} labels that are drawn at random",
        "Nothing shows how good the annotators are. Known labels of random items do: draw them "
        f"with 'manyhands review --random {N_RANDOM}', and give the file back as --known.",
        summary["data"]["n_instances"],
    )


def _is_unjudged(plan: Mapping[str, Any]) -> bool:
    """Whether nothing tells how good the annotators are, other than too few annotations."""
    return not plan.get("judged", True) and not plan["n_warm_up"]


# -- the questions of those who answer for the quality ---------------------------------------------


def find_answers(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Answer the questions of a quality manager in a line each.

    Each entry has a question, an anchor on the page (None: the report cannot tell), and the answer.
    """
    data = {key: summary.get(key) or {} for key in summary} | {"time": summary.get("time") or {}}
    questions = (
        ("Do they agree?", _agree),
        ("Who agrees with whom?", _pairs),
        ("Who is right?", _right),
        ("What is confused?", _confused),
        ("Who hurries?", _hurries),
        ("Who skips?", _skips),
        ("Who answers at random, or always the same?", _spams),
        ("Which labels need another look?", _review),
        ("How many more labels?", _more),
        ("Is it getting better or worse?", _trend),
        ("Are the gold labels right?", _gold_hygiene),
        ("Which method suits?", _methods),
        ("Can I take it away?", lambda _: ("tables", "every table as CSV")),
    )
    found = []
    for question, answer in questions:
        anchor, text = answer(data)
        found.append({"question": question, "anchor": anchor, "answer": text})
    return found


Answer = tuple[str | None, str]


def _agree(s: Mapping[str, Any]) -> Answer:
    found = s["data"].get("agreement", {})
    if not s.get("agreement") or found.get("percent") is None:
        return None, "no instance has two annotations"
    text = f"{percent(found['percent'])} of pairs of annotations agree"
    alpha = found["alpha"]
    return "agreement", text if alpha is None else f"{text}, Krippendorff’s alpha {alpha:.2f}"


def _pairs(s: Mapping[str, Any]) -> Answer:
    rows = s.get("agreement", {}).get("pairs", {}).get("rows")
    if not rows:
        return None, "no two annotators share instances"
    low, high = rows[0]["share"], rows[-1]["share"]
    share = f"{percent(low)} to {percent(high)}"
    return "agreement-pairs", f"pairs of annotators agree in {share} of cases"


def _right(s: Mapping[str, Any]) -> Answer:
    found = s.get("annotators")
    if not found:
        return None, "there are no annotations"
    measured = found.get("median_gold")
    share = found["median_accuracy"] if measured is None else measured
    if share is None:
        return None, "nobody knows: nothing shows how many of the labels are right"
    how = "expected by the model, not measured" if measured is None else "measured on gold"
    return "annotators", f"the median annotator in {percent(share)} of cases, {how}"


def _confused(s: Mapping[str, Any]) -> Answer:
    found = s.get("confusions", {})
    pairs = found.get("pairs")
    if not pairs:
        return None, "nothing differs from the labels"
    top = pairs[0]
    if not found.get("known", True):
        top = _mixed_up(pairs)[0]
        named = f"{shorten(str(top['true']))} and {shorten(str(top['given']))}"
        return "confusions", f"annotators differ most between {named}; which is right is not known"
    return (
        "confusions",
        f"most often {shorten(str(top['true']))} labelled {shorten(str(top['given']))}",
    )


def _hurries(s: Mapping[str, Any]) -> Answer:
    if not s["time"].get("speed"):
        return None, "the annotations have no durations"
    fast = sum(bool((row.get("times") or {}).get("too_fast")) for row in s["annotators"]["rows"])
    return "time-speed", f"{_nobody(fast)} below a third of the crowd’s median time"


def _skips(s: Mapping[str, Any]) -> Answer:
    n = s["data"].get("n_abstentions", 0) + s["data"].get("n_skips", 0)
    if not n:
        return None, "no abstention or skip is recorded"
    return "annotators", f"{count(n, 'abstention or skip', 'abstentions and skips')}"


def _spams(s: Mapping[str, Any]) -> Answer:
    rows = s.get("annotators", {}).get("rows")
    if not rows or "screen" not in rows[0]:
        return None, "there are no annotators to screen"
    kinds = {"no better than guessing", "one label", "repeating pattern"}
    n = sum(bool(kinds & {*row["screen"]["flags"]}) for row in rows)
    if not s["annotators"].get("judged", True):
        return "annotators-each", (
            f"{_nobody(n)} with a flag for one label or a repeating pattern; who guesses is not "
            "known: nothing shows how many of the labels are right"
        )
    return "annotators-each", f"{_nobody(n)} with such a flag"


def _nobody(n: int) -> str:
    return count(n, "annotator") if n else "nobody"


def _review(s: Mapping[str, Any]) -> Answer:
    found = s.get("review")
    if not found:
        return None, "there is one class only"
    wrong = n_wrong(s)
    if wrong is None:
        return "review", f"{_to_review(found)}the most doubtful come first"
    of = s["levels"]["n"] - s["levels"].get("n_known", 0)
    wrong_of = f"{_number(wrong)} of {of:,} {'is' if wrong < 1.5 else 'are'} wrong"
    return "review", f"{_to_review(found)}{wrong_of}; the doubtful come first"


def _to_review(found: Mapping[str, Any]) -> str:
    n = found.get("n_to_review")
    if n and n == found["n"] and n > 1:
        return f"all of them, {N_RANDOM} that are drawn at random first; "
    return f"{count(n, 'label')} to review; " if n else ""


def _more(s: Mapping[str, Any]) -> Answer:
    plan = s.get("plan")
    if not plan:
        return None, "there is one class only, or every label is known"
    return None if _is_unjudged(plan) else "plan", enough(plan).removesuffix(".")


def _trend(s: Mapping[str, Any]) -> Answer:
    windows = s["time"].get("windows")
    if not windows:
        return None, "the annotations have no times"
    first, *later = windows["rows"]
    if not later:
        return None, "there are too few annotations with times to compare two windows"
    last = later[-1]
    measured = first["gold"] is not None and last["gold"] is not None
    key, how = ("gold", "right by gold") if measured else ("expected", "expected right")
    if first[key] is None or last[key] is None:
        return None, "nobody knows: nothing shows how many of the labels are right"
    return (
        "time-windows",
        f"{percent(first[key])} {how} in the first window, {percent(last[key])} in the last",
    )


def _gold_hygiene(s: Mapping[str, Any]) -> Answer:
    doubts = s.get("gold", {}).get("doubts")
    unused = s["data"].get("n_gold_unused", 0)
    if not doubts and unused:
        return None, (
            f"the export of the annotations holds {count(unused, 'gold label')} that "
            f"{'was' if unused == 1 else 'were'} not used: give it as --gold, too"
        )
    if not doubts:
        return None, "there are no gold labels"
    n, of = doubts["total"], s["gold"]["n"]
    if n > MOST_DOUBTED * of:
        return "gold-doubts", (
            f"several annotators contradict {n:,} of {count(of, 'gold label')}: so many that they "
            "err, rather than the gold labels"
        )
    return "gold-doubts", f"{count(n, 'gold label')} contradicted by good annotators"


def _methods(s: Mapping[str, Any]) -> Answer:
    if not s.get("selection"):
        return None, "one method was used; manyhands select compares several"
    return "selection", f"{shorten(str(s['selection']['best']))}, by out-of-fold agreement"
