"""What to do next: one step per question that a report can answer with names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from manyhands.report.limits import LIMITS
from manyhands.report.warnings import SHARED, count, shorten
from manyhands.report.words import percent

Step = dict[str, Any]

OUTVOTED = (
    "This depends on who shares mistakes (the warning under “Worth a look”): annotators who share "
    "them look better than they are, and those whom they outvote look worse."
)


def find_actions(summary: Mapping[str, Any]) -> list[Step]:
    """List the steps that a summary leads to, in the order in which to take them.

    Each step has a code for programs ("talk", "check", "explain", "buy", "ask", "gold"), a title
    and a text for readers, the section that holds the evidence, and the first rows of it.
    """
    if not summary["data"]["n_annotations"]:
        return []
    steps = (_talk, _check, _explain, _gold, _buy, _ask)
    return [{"code": step.__name__[1:], **found} for step in steps for found in step(summary)]


def _step(section: str, title: str, text: str, rows: Any = (), advice: Any = ()) -> Step:
    return {
        "section": section,
        "title": title,
        "text": text,
        "rows": list(rows),
        "advice": list(advice),
    }


def _talk(summary: Mapping[str, Any]) -> Iterator[Step]:
    found = summary["annotators"]
    if found is None:
        return
    rows = [row for row in found["rows"] if row["screen"]["flags"]][: LIMITS["actions"]]
    is_open = any(warning["code"] in SHARED for warning in summary["warnings"])
    caveat = f" {OUTVOTED}" if is_open else ""
    if not rows:
        text = f"Nobody’s annotations call for a talk.{caveat}"
        yield _step("annotators", "No annotator stands out", text)
        return
    whom = count(found["n_flagged"], "annotator")
    yield _step(
        "annotators",
        f"Find out who shares mistakes before you talk to {whom}" if is_open else f"Talk to {whom}",
        f"A flag is a reason to look, not to dismiss.{caveat}",
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


def _check(summary: Mapping[str, Any]) -> Iterator[Step]:
    found = summary["review"]
    if found is None:
        return
    rows = found["labels"]["rows"][: LIMITS["actions"]]
    if not rows:
        yield _step(
            "review",
            "No label is in doubt",
            f"{found['source']} is sure of all labels. Mistakes that most annotators share look "
            "sure, too: check some labels at random.",
        )
        return
    yield _step(
        "review",
        f"Check {count(found['half'], 'label')} first",
        f"Half of the wrong labels that {found['source']} itself expects are there: "
        f"{found['n_expected_wrong']:,.1f} in all among {found['n']:,}. Nobody measured it.",
        rows,
        [
            "correct them on the page of 'manyhands explore', with one key per label; what you "
            "decide goes into the next fit or aggregate as --known"
        ],
    )


def _explain(summary: Mapping[str, Any]) -> Iterator[Step]:
    found = summary["confusions"]
    if found is None or not found["pairs"]:
        return
    rows = found["pairs"][: LIMITS["actions"]]
    most = sum(row["n"] for row in rows)
    of = f"all {most:,}" if most == found["n_wrong"] else f"{most:,} of the {found['n_wrong']:,}"
    truth = "gold labels" if found["truth"] == "gold" else "the inferred labels"
    yield _step(
        "confusions",
        "Explain these classes better" if len(rows) > 1 else "Explain this class better",
        f"{'These confusions are' if len(rows) > 1 else 'This confusion is'} {of} annotations that "
        f"differ from {truth}.",
        rows,
    )


def _gold(summary: Mapping[str, Any]) -> Iterator[Step]:
    doubts = (summary["gold"] or {}).get("doubts")
    if doubts and doubts["rows"]:
        yield _step(
            "gold-doubts",
            f"Check {count(doubts['total'], 'gold label')}",
            "Annotators of at least median accuracy contradict them with one and the same class.",
            doubts["rows"][: LIMITS["actions"]],
        )


def _buy(summary: Mapping[str, Any]) -> Iterator[Step]:
    plan = summary["plan"]
    if plan is None:
        return
    who = " of a newcomer (everybody has annotated everything)" if plan["newcomer"] else ""
    if plan["n_warm_up"]:
        yield _step(
            "plan",
            "Buy more annotations",
            f"There are too few per instance to tell good annotators from bad ones; the next "
            f"{plan['n']:,} spread over the instances.",
        )
    elif plan["stop"]:
        price = plan["per_right_label"]
        rate = "none" if price is None or price > 10_000 else f"one right label per {price:,.0f}"
        yield _step(
            "plan",
            "More annotations are hardly worth their price",
            f"The next {count(plan['n'], 'annotation')}{who} would add {rate}; we advise to stop "
            f"below one per {1 / plan['min_gain']:.0f}. Checking the labels above helps more.",
        )
    else:
        yield _step(
            "plan",
            "Buy more annotations",
            f"The next {count(plan['n'], 'annotation')}{who} would add about one right label per "
            f"{plan['per_right_label']:,.0f}. Compare with their price.",
        )


def _ask(summary: Mapping[str, Any]) -> Iterator[Step]:
    plan = summary["plan"]
    if plan is not None and plan["next"]["rows"] and not plan["newcomer"] and not plan["stop"]:
        yield _step(
            "plan-next",
            "Ask these next",
            "Instance and annotator that tell most, one annotation of each instance at a time.",
            plan["next"]["rows"][: LIMITS["actions"]],
        )


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
    how = "expected by the model, not measured" if measured is None else "measured on gold"
    return "annotators", f"the median annotator in {percent(share)} of cases, {how}"


def _confused(s: Mapping[str, Any]) -> Answer:
    pairs = s.get("confusions", {}).get("pairs")
    if not pairs:
        return None, "nothing differs from the labels"
    top = pairs[0]
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
    kinds = {"no better than chance", "one label", "repeating pattern", "always the same class"}
    n = sum(bool(kinds & {*row["flags"], *row["screen"]["flags"]}) for row in rows)
    return "annotators-each", f"{_nobody(n)} with such a flag"


def _nobody(n: int) -> str:
    return count(n, "annotator") if n else "nobody"


def _review(s: Mapping[str, Any]) -> Answer:
    found = s.get("review")
    if not found:
        return None, "there is one class only"
    wrong = f"{found['n_expected_wrong']:,.1f} of {found['n']:,}"
    return "review", f"{wrong} are expected to be wrong; the most doubtful come first"


def _more(s: Mapping[str, Any]) -> Answer:
    plan = s.get("plan")
    if not plan:
        return None, "there is one class only"
    price = plan["per_right_label"]
    if plan["n_warm_up"]:
        return "plan", "more: there are too few per instance to judge"
    rate = "" if price is None else f": one right label per {price:,.0f} annotations"
    return "plan", ("stop" if plan["stop"] else "go on") + rate


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
    return "gold-doubts", f"{count(doubts['total'], 'gold label')} contradicted by good annotators"


def _methods(s: Mapping[str, Any]) -> Answer:
    if not s.get("selection"):
        return None, "one method was used; manyhands select compares several"
    return "selection", f"{shorten(str(s['selection']['best']))}, by out-of-fold agreement"
