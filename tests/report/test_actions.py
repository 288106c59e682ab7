"""What a report leads to: steps, answers, lists to check, times, gold, texts and images."""

import base64
import csv
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from manyhands import (
    EBCC,
    AnnotationStore,
    AnnotationTable,
    DawidSkene,
    GoldCorrected,
    MajorityVote,
)
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning, SharedMistakesWarning
from manyhands.planning import teaching_sheet
from manyhands.planning.planner import price_in_words
from manyhands.report import (
    SECTIONS,
    Contents,
    planning,
    read_contents,
    render_report,
    summarize,
    summary_tables,
)
from manyhands.report.annotators import OUTVOTED
from manyhands.report.confusions import (
    RULED_OUT,
    always_the_same,
    answer_confused,
    beside_typical,
    both_ways,
)
from manyhands.report.doubts import SHARED
from manyhands.report.filters import percent
from manyhands.report.gold import share_of_clusters
from manyhands.report.headline import headline, n_wrong
from manyhands.report.html import read_summary
from manyhands.report.items import IMAGE_BYTES
from manyhands.report.limits import LIMITS
from manyhands.report.planning import FORESEEN
from manyhands.report.questions import find_answers
from manyhands.wording import N_RANDOM, NOT_ASKED, for_commands
from tests.report.conftest import (
    EVIL,
    FakeClassifier,
    Page,
    crowd,
    hundred_times_ten_thousand,
    numbered,
)

DOCS = Path(__file__).parents[2] / "docs" / "report.md"


def step(summary, code):
    found = [each for each in summary["actions"] if each["code"] == code]
    assert len(found) == 1, code
    return found[0]


def with_spammers(n=200, seed=1):
    """Six good annotators, one who always says 0, and one who answers at random."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(3, size=n)
    good = np.where(rng.random((n, 6)) < 0.9, gold[:, None], rng.integers(3, size=(n, 6)))
    bad = np.column_stack([np.zeros(n, dtype=int), rng.integers(3, size=n)])
    return np.hstack([good, bad]), gold


def with_mixed_up(n=200, seed=1):
    """Like `with_spammers`, but most mistakes of the good annotators mix up the classes 0 and 1."""
    A, gold = with_spammers(n, seed)
    rng = np.random.default_rng(seed)
    mixes = (rng.random((n, 6)) < 0.25) & (gold < 2)[:, None]
    A[:, :6] = np.where(mixes, 1 - gold[:, None], A[:, :6])
    return A, gold


def without(A, annotators):
    """Delete the annotations of some annotators."""
    return AnnotationTable.from_matrix(
        np.where(np.isin(np.arange(A.shape[1]), annotators), -1, A), classes=[0, 1, 2]
    )


# -- what to do next ------------------------------------------------------------------------------


def test_who_guesses_can_be_left_out_and_the_page_says_what_that_costs():
    """The number of items without a label is that of a table without the guessers' annotations."""
    A, _ = with_spammers()
    for alone in (0, 5):
        A[:alone, :6] = -1
        summary = summarize(A, aggregator=DawidSkene().fit(A))
        advice = step(summary, "talk")["advice"]
        guessers = summary["annotators"]["flagged"]["no better than guessing"]
        left = without(A, guessers).annotations_per_instance()
        lost = int((left == 0).sum())
        assert lost == alone
        told = "every item would still have annotations from others"
        if alone:
            told = "5 items that only they annotated would then have no label"
        assert (
            "to leave out everybody who does no better than guessing, delete their annotations "
            f"from the file: {told}. Even if few labels change, the estimated share of right "
            "labels may change a lot. Only gold labels show whether the labels became better"
        ) in advice
        assert NOT_ASKED in advice
        (about,) = [text for text in advice if text.startswith("If an annotator does no better")]
        assert "no new work until they pass a check" in about
        assert "not withhold pay because of these figures alone" in about
    honest = summarize(A[:, :6], aggregator=DawidSkene().fit(A[:, :6]))
    assert "leave out" not in str(honest["actions"])
    assert NOT_ASKED not in str(honest["actions"])


def test_the_command_of_annotators_shows_what_the_step_says():
    A, _ = with_spammers()
    model = DawidSkene().fit(A)
    found = step(summarize(A, aggregator=model), "talk")
    first = found["rows"][0]["id"]
    assert found["command"].endswith(f"--teach {first}")
    assert (
        found["advice"][-1] == f"this command lists items that “{first}” probably labelled wrongly"
    )
    assert "20 of their" not in str(found)
    shown = [each for pair in teaching_sheet(model, A, first).pairs for each in pair.mistaken]
    assert shown
    assert all(A[each, first] != model.labels_[each] for each in shown)


def test_the_section_on_annotators_says_how_often_the_most_frequent_class_is_right():
    """By hand, and of a crowd whose truth is known; not where the classes are about even."""
    rng = np.random.default_rng(0)
    for share in (0.7, 1 / 3):
        gold = rng.choice(3, size=300, p=[(1 - share) / 2, share, (1 - share) / 2])
        A = np.where(rng.random((300, 6)) < 0.9, gold[:, None], rng.integers(3, size=(300, 6)))
        A[:, 5] = 1
        summary = summarize(A, aggregator=DawidSkene().fit(A))
        told = always_the_same(summary)
        if share < 0.5:
            assert told == ""
            continue
        assert told.startswith("Always answering “1”, the most frequent class, would be right in")
        assert abs(float(re.search(r"about ([\d.]+)", told)[1]) / 100 - (gold == 1).mean()) < 0.05
        assert " ".join(told.split()) in " ".join(
            "".join(Page(render_report(summary)).text).split()
        )
    even = {"classes": ["a", "b"], "matrix": [[30, 20], [10, 40]]}
    assert always_the_same({"confusions": even}) == ""
    uneven = {"classes": ["a", "b"], "matrix": [[50, 20], [10, 20]]}
    assert "“a”" in always_the_same({"confusions": uneven})
    assert "70\u202f% of cases" in always_the_same({"confusions": uneven})
    assert always_the_same({"confusions": {"classes": None, "matrix": None}}) == ""
    assert always_the_same({}) == ""


def test_shares_of_wrong_annotations_say_what_they_are_of():
    """Of few busy guessers and many careful annotators, most annotations are the guessers'."""
    rng = np.random.default_rng(0)
    gold = rng.integers(3, size=300)
    A = np.where(rng.random((300, 12)) < 0.9, gold[:, None], rng.integers(3, size=(300, 12)))
    A[:, 9:] = rng.integers(3, size=(300, 3))
    A[rng.random((300, 12)) < np.where(np.arange(12) < 9, 0.6, 0.0)] = -1
    summary = summarize(A, aggregator=DawidSkene().fit(A))
    own, people = summary["confusions"], summary["annotators"]
    assert own["truth"] == "expected"
    wrong = own["n_wrong"] / own["n"]
    typical = 1 - people["median_accuracy"]
    assert wrong > typical + 0.1
    told = f"the typical annotator (the median) is wrong in {percent(typical)} of cases"
    page = " ".join("".join(Page(render_report(summary)).text).split())
    assert f"{' '.join(told.split())}." in page
    assert "as measured" not in beside_typical(summary)
    some = np.where(np.arange(300) < 40, gold, -1)
    measured = summarize(A, aggregator=DawidSkene().fit(A), gold=some)
    right = (gold[:, None] == A)[:40][A[:40] >= 0]
    assert f"On the items with gold labels, {percent(1 - right.mean())} (" in beside_typical(
        measured
    )
    assert f"of {len(right)} annotations are wrong, as measured." in beside_typical(measured)
    alike = {"confusions": {"n": 100, "n_wrong": 30}, "annotators": {"median_accuracy": 0.71}}
    assert beside_typical(alike) == ""


@pytest.mark.parametrize("n_known", [0, 30])
def test_the_numbers_of_the_card_are_those_of_the_headline(n_known):
    labels, gold = with_spammers()
    table = AnnotationTable.from_matrix(labels)
    model = DawidSkene().fit(table, gold=np.where(np.arange(200) < n_known, gold, -1))
    summary = summarize(table, aggregator=model)
    of = 200 - n_known
    low, high = map(int, re.search(r"\((\d+) to (\d+)\D*%\)", headline(summary)).groups())
    wrong = (round(of * (100 - high) / 100), round(of * (100 - low) / 100))
    text = step(summary, "check")["text"].replace("\u00a0", " ")
    among = "200 labels" if not n_known else "the 170 inferred labels"
    assert f"of {among} to be wrong ({wrong[0]} to {wrong[1]})" in text
    [answer] = [
        each["answer"] for each in find_answers(summary) if "another look" in each["question"]
    ]
    assert f" of {of} " in answer


def test_spammers_are_talked_to_first_with_evidence_and_instances():
    A, _ = with_spammers()
    summary = summarize(A, aggregator=DawidSkene().fit(A))
    found = step(summary, "talk")
    assert found["section"] == "annotators"
    assert {row["id"] for row in found["rows"][:2]} == {6, 7}
    flags = {row["id"]: row["flags"] for row in found["rows"]}
    assert "one label" in flags[6]
    assert "no better than guessing" in flags[7]
    assert all(row["evidence"] and row["instances"] for row in found["rows"][:2])
    assert [row["id"] for row in summary["annotators"]["rows"][:2]] == [
        row["id"] for row in found["rows"][:2]
    ]
    for row in found["rows"][:2]:
        for instance in row["instances"]:
            assert A[instance, row["id"]] != summary["labels"]["all"]["rows"][instance]["label"]


def people_and_machines():
    """Three people who are right in 80 % of cases, and four machines that copy one another."""
    rng = np.random.default_rng(0)
    truth, copied = rng.integers(0, 2, (2, 400))
    people = [np.where(rng.random(400) < 0.8, truth, 1 - truth) for _ in range(3)]
    machines = [np.where(rng.random(400) < 0.6, copied, truth) for _ in range(4)]
    return AnnotationTable.from_matrix(np.stack([*people, *machines], axis=1)), truth


def doubts(summary):
    """What the report says of shared mistakes: codes and texts."""
    found = {each["code"]: each["text"] for each in summary["warnings"]}
    return {code: text for code, text in found.items() if code in SHARED}


def test_shared_mistakes_come_before_the_people_whom_they_outvote(tmp_path):
    table, truth = people_and_machines()
    with pytest.warns(SharedMistakesWarning) as told:
        model = DawidSkene().fit(table)
    summary = json.loads(json.dumps(summarize(table, aggregator=model)))
    warning = doubts(summary)["shared-mistakes"]
    assert warning == for_commands(str(told[0].message))
    assert "groups=" not in warning
    assert warning.startswith("Annotators 3, 4, 5, 6 agree with one another more than")
    first = summary["actions"][0]
    assert first["title"] == "One annotator stands out: do not judge them yet"
    assert OUTVOTED in first["text"]
    text = " ".join("".join(Page(render_report(summary)).text).split())
    assert text.count(warning) == text.count(OUTVOTED) == 1
    assert "closer look" not in text
    measured = doubts(summarize(table, gold=truth))["shared-mistakes"]
    assert (
        "use --method gold-corrected with the 400 gold labels as known labels (--known FILE) if "
        "they were drawn at random"
    ) in measured
    assert "GoldCorrected" not in warning + measured
    assert "instance" not in warning + measured
    store = AnnotationStore.create(tmp_path / "store", table)
    assert "A store carries no families" in doubts(summarize(store))["shared-mistakes"]


def test_a_doubt_of_the_classifier_is_not_said_twice():
    table, _ = people_and_machines()
    text = doubts(summarize(table))["shared-mistakes"]
    classifier = FakeClassifier(table, np.random.default_rng(0))
    classifier.doubts_ = {"own": text.removesuffix("."), "other": "the features are weak"}
    found = {
        each["code"]: each["text"] for each in summarize(table, classifier=classifier)["warnings"]
    }
    assert found["shared-mistakes"] == text
    assert "own" not in found
    assert found["other"] == "The features are weak."


def test_families_and_gold_of_the_fit_count():
    table, truth = people_and_machines()
    machines = dict.fromkeys(range(3, 7), "machines")
    declared = DawidSkene().fit(table, groups=machines)
    assert doubts(summarize(table, aggregator=declared)) == {}
    with pytest.warns(NotIdentifiableWarning, match="only two groups"):
        two = DawidSkene().fit(table, groups=machines | dict.fromkeys(range(3), "people"))
    for gold in (None, truth):
        assert {*doubts(summarize(table, aggregator=two, gold=gold))} == {"not-identifiable"}
    corrected = GoldCorrected().fit(table, gold=dict(enumerate(truth[:100].tolist())))
    assert doubts(summarize(table, aggregator=corrected)) == {}


def test_independent_annotators_get_no_warning_of_shared_mistakes():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 400)
    skills = (0.9, 0.85, 0.8, 0.8, 0.75, 0.7, 0.5)
    A = np.stack([np.where(rng.random(400) < p, truth, 1 - truth) for p in skills], axis=1)
    summary = summarize(A, aggregator=DawidSkene().fit(A))
    assert doubts(summary) == {}
    talk = step(summary, "talk")
    assert talk["title"] == "One annotator needs a closer look"
    assert OUTVOTED not in talk["text"]


def test_labels_to_check_are_those_that_look_wrong():
    A, gold = with_spammers()
    summary = summarize(A, labels=np.where(np.arange(200) == 17, (gold + 1) % 3, gold))
    first = step(summary, "check")["rows"][0]
    assert (first["id"], first["suggestion"]) == (17, gold[17])
    assert first["score"] > 0.8
    assert summary["review"]["source"] == "DawidSkene"


def test_confusions_count_and_name_instances_on_which_they_happened():
    A, gold = with_spammers()
    summary = summarize(A, labels=gold)
    found = summary["confusions"]
    assert found["n_wrong"] == (gold[:, None] != A).sum() == sum(p["n"] for p in found["pairs"])
    assert [p["n"] for p in found["pairs"]] == sorted(
        (p["n"] for p in found["pairs"]), reverse=True
    )
    for pair in found["pairs"]:
        assert found["matrix"][pair["row"]][pair["column"]] == pair["n"]
        assert pair["instances"]
        for instance in pair["instances"]:
            assert gold[instance] == pair["true"]
            assert pair["given"] in A[instance]
    by_gold = summarize(A, gold=gold)["confusions"]
    assert by_gold["known"]
    assert by_gold["truth"] == "gold"
    assert summarize(A, gold=[*gold[:50], *[None] * 150])["confusions"]["truth"] == "inferred"


def test_confusions_by_inferred_labels_are_expected_numbers():
    """A class that few labels win is confused as often as its probability says."""
    A, _ = with_mixed_up()
    model = DawidSkene().fit(A)
    summary = summarize(A, aggregator=model)
    found, q = summary["confusions"], model.posterior_
    expected = np.zeros((3, 3))
    for row in A.T:
        for given in range(3):
            expected[:, given] += q[row == given].sum(axis=0)
    assert found["truth"] == "expected"
    assert found["n"] == A.size
    assert np.abs(found["matrix"] - expected).max() < 0.5 + A.size * 3 * RULED_OUT
    off = expected.sum() - np.trace(expected)
    assert found["n_wrong"] == pytest.approx(off, abs=0.5 + A.size * 3 * RULED_OUT)
    for pair in found["pairs"]:
        value = expected[pair["row"], pair["column"]]
        assert pair["n"] == pytest.approx(value, abs=0.5 + A.size * RULED_OUT)
    text = step(summary, "explain")["text"]
    share, most, n, by_chance = re.match(
        r"One pair of classes accounts for about (\d+).% of the annotations that are probably "
        r"wrong \((\d+) of (\d+)\)\. "
        r"If mistakes were random, this pair would account for (\d+).%\. "
        r"These are estimates from the model's labels, and may be wrong\. ",
        text,
    ).groups()
    assert (int(n), int(most)) == (found["n_wrong"], sum(each["n"] for each in found["pairs"][:2]))
    assert int(share) == pytest.approx(100 * (expected[0, 1] + expected[1, 0]) / off, abs=1)
    crowd, at_random = expected.sum(axis=0) / expected.sum(), 0.0
    for (
        column
    ) in A.T:  # Those who are wrong about 0 would give 1 as often as among all their answers.
        answers = np.bincount(column, minlength=3) + 10 * crowd
        for true, given in ((0, 1), (1, 0)):
            mistakes = q[column != true, true].sum()
            at_random += mistakes * answers[given] / (answers.sum() - answers[true])
    assert int(by_chance) == pytest.approx(100 * at_random / off, abs=1)
    assert "estimated this number from its labels" in "".join(Page(render_report(summary)).text)


def test_confusions_of_the_same_classes_are_joined():
    cells = [((0, 1), 5, "xy"), ((2, 0), 4, "z"), ((0, 2), 3, "z"), ((1, 0), 1, "y")]
    pairs = [{"row": a, "column": b, "n": n, "instances": [*ids]} for (a, b), n, ids in cells]
    rows = both_ways(pairs)
    assert [(row["row"], row["column"], row["n"], row["back"]) for row in rows] == [
        (2, 0, 4, 3),
        (0, 1, 5, 1),
    ]
    assert [row["instances"] for row in rows] == [["z"], ["x", "y"]]
    assert "back" not in pairs[0]


def test_all_confusions_of_two_classes_are_one_pair():
    A = np.array([[0, 0, 0], [0, 0, 1], [0, 0, 1], [1, 1, 1], [1, 1, 0]])
    by_gold = "annotations differ from the gold labels. In"
    # Without gold, all that is left to say is that there are two classes.
    summary = summarize(A, labels=[0, 0, 0, 1, 1])
    assert "explain" not in {each["code"] for each in summary["actions"]}
    told = "There are two classes, so every wrong annotation mixes them up."
    assert answer_confused(summary)[1] == told
    for gold, said in (
        ([0, 0, 0, 1, 1], f"3 {by_gold} 2 of them, “0” was labelled “1”."),
        ([0, 0, 0, 1, None], f"2 {by_gold} all of them, “0” was labelled “1”."),
    ):
        summary = summarize(A, gold=gold, labels=[0, 0, 0, 1, 1])
        assert step(summary, "explain")["text"] == said


def test_no_number_of_confusions_is_told_where_the_labels_may_all_be_wrong():
    A, _ = with_mixed_up()
    summary = json.loads(json.dumps(summarize(A[:, :2])))
    assert summary["levels"]["labels"] is None
    found = step(summary, "explain")
    assert "is not known" in found["text"]
    assert f"--random {N_RANDOM}" in found["text"]
    assert {row["n"] for row in found["rows"]} == {None}
    pairs = [frozenset((row["true"], row["given"])) for row in found["rows"]]
    assert len(set(pairs)) == len(pairs)
    page = "".join(Page(render_report(summary)).text)
    assert not re.search(r"times? by \d", page)
    answers = {each["question"]: each["answer"] for each in find_answers(summary)}
    assert "it is not known which is right" in answers["Which classes are confused?"]


def test_a_full_table_is_priced_with_a_newcomer_and_a_sparse_one_with_names():
    A, _ = with_spammers()
    plan = summarize(A)["plan"]
    assert plan["newcomer"]
    assert all(row["annotator"] is None for row in plan["next"]["rows"])
    table, _, _ = crowd()
    plan = summarize(table)["plan"]
    assert not plan["newcomer"]
    known = table.to_matrix(codes=True)
    for row in plan["next"]["rows"]:
        who = np.flatnonzero(table.annotators == row["annotator"])[0]
        assert known[row["id"], who] == -1
    gains = [point["gain"] for point in plan["curve"]]
    assert gains == sorted(gains)
    assert gains[-1] == pytest.approx(plan["gain"] * plan["n"])


def test_examples_of_the_step_correct_labels_where_some_answers_do(monkeypatch):
    A, *_ = crowd()
    made = planning._next_rows

    def gainless_first(*args):
        found = made(*args)
        gains = [0.0, 0.3, 0.0, 0.2, 0.0]
        rows = zip(found["rows"][:5], gains, strict=True)
        return found | {"rows": [row | {"gain": gain} for row, gain in rows]}

    monkeypatch.setattr(planning, "_next_rows", gainless_first)
    summary = summarize(A)
    rows = step(summary, "buy")["rows"]
    assert [row["gain"] for row in rows][:3] == [0.3, 0.2, 0.0]
    more = f"-n {2 * planning.next_size(A)}"
    page = render_report(summary)
    assert re.search(rf"such as {2 * planning.next_size(A)}, run <code>[^<]* {more}</code>", page)


def test_vote_shares_are_no_probabilities_to_plan_with():
    A, _ = with_spammers()
    for summary in (summarize(A), summarize(A, aggregator=MajorityVote().fit(A))):
        assert summary["review"]["source"] == summary["plan"]["source"] == "DawidSkene"
    assert summarize(A, aggregator=DawidSkene().fit(A))["plan"]["source"] == "DawidSkene"
    assert summarize(np.zeros((4, 3), dtype=int))["plan"] is None


# -- gold -----------------------------------------------------------------------------------------


def test_gold_accuracy_of_annotators_stands_beside_what_is_expected():
    A = np.array([[0, 0, 1], [0, 0, 1], [1, 1, 1], [1, 1, -1], [1, 1, 0]])
    summary = summarize(A, labels=[0, 0, 1, 1, 1], gold=[0, 1, 1, None, None])
    rows = {row["id"]: row for row in summary["annotators"]["rows"]}
    assert (rows[0]["accuracy"], rows[0]["gold"]["accuracy"]) == (1.0, pytest.approx(2 / 3))
    assert (rows[2]["gold"]["right"], rows[2]["gold"]["n"]) == (2, 3)
    page = " ".join(render_report(summary).split())
    assert "expected, not measured). Nobody" in page  # Three gold labels measure nobody.
    assert 'data-field="gold">Right by gold' in page
    plain = render_report(summarize(A, labels=[0, 0, 1, 1, 1]))
    assert "expected, not measured). Nobody" in " ".join(plain.split())
    assert 'data-field="gold"' not in plain


def test_how_often_annotators_are_right_is_pooled_over_annotations():
    """Many annotators with a gold label or two each: a median of their shares would be 100 %."""
    rng = np.random.default_rng(0)
    gold = rng.integers(3, size=60)
    given = np.full((60, 60), -1)
    for i in range(60):
        who = [i, (i + 7) % 60, (i + 19) % 60]
        given[i, who] = np.where(rng.random(3) < 0.7, gold[i], (gold[i] + 1) % 3)
    right = (given == gold[:, None])[given >= 0]
    summary = summarize(given, gold=gold)
    measured = summary["gold"]["annotations"]
    assert (measured["n"], measured["right"]) == (180, pytest.approx(right.mean()))
    assert 0.05 < measured["high"] - measured["low"] < 0.2
    told = " ".join(each["answer"] for each in find_answers(summary)).replace("\u202f", " ")
    low, high = np.floor(100 * measured["low"]), np.ceil(100 * measured["high"])
    ends = f"({low:.0f} to {high:.0f} %) of cases"
    assert f"{ends}, measured on 180 annotations of items with gold labels" in told
    few = summarize(given, gold=[*gold[:9].tolist(), *[None] * 51])
    assert "expected, not measured" in str(find_answers(few))


def test_annotations_that_are_wrong_together_tell_less():
    alone, apart = np.arange(100), np.repeat(np.arange(20), 5)
    right = np.arange(100) % 5 < 4  # In clusters of five, four of each are right ...
    together = np.repeat(np.arange(20) % 5 < 4, 5)  # ... or all five are, or none is.
    of = {name: share_of_clusters(*each) for name, each in {
        "alone": (right, alone), "apart": (right, apart), "together": (together, apart),
    }.items()}  # fmt: skip
    widths = {name: high - low for name, (low, high) in of.items()}
    # 80 of 100 by Jeffreys: 71.4 to 87.0 %. Twenty clusters are 20 * 19 / 20 = 19 annotations.
    assert of["alone"] == pytest.approx((0.714, 0.870), abs=0.001)
    assert of["apart"] == pytest.approx(of["alone"], abs=0.001)
    assert widths["together"] == pytest.approx(widths["alone"] * np.sqrt(100 / 19), rel=0.1)


def test_gold_that_good_annotators_contradict():
    A, gold = with_spammers()
    claimed = gold.copy()
    sure = np.flatnonzero((A[:, :6] == gold[:, None]).all(axis=1))[:2]
    claimed[sure] = (gold[sure] + 1) % 3
    summary = summarize(A, aggregator=DawidSkene().fit(A), gold=claimed)
    rows = summary["gold"]["doubts"]["rows"]
    assert {row["id"] for row in rows[:2]} == set(sure)
    assert all(row["other"] == gold[row["id"]] and row["n_gold"] == 0 for row in rows[:2])
    assert step(summary, "gold")["section"] == "gold-doubts"
    assert summary["items"]["rows"][0]["id"] in sure


# -- agreement and time ---------------------------------------------------------------------------


def test_pairs_of_annotators_by_hand():
    A = np.array([[0, 0, 1], [0, 0, 1], [1, 1, 1], [1, 0, -1]])
    found = summarize(A)["agreement"]
    pairs = {(row["first"], row["second"]): row for row in found["pairs"]["rows"]}
    assert (pairs[0, 1]["share"], pairs[0, 1]["n"]) == (0.75, 4)
    assert pairs[0, 1]["instances"] == [3]
    assert pairs[0, 2]["instances"] == [0, 1]
    assert found["matrix_of_pairs"]["counts"] == [[0, 4, 3], [4, 0, 3], [3, 3, 0]]
    assert found["matrix_of_pairs"]["cells"] == {"1-0": [3], "2-0": [0, 1], "2-1": [0, 1]}
    assert found["n_unanimous"] == 1
    assert summarize(np.array([[0, -1], [-1, 1]]))["agreement"] is None


def test_who_hurries_and_whether_it_gets_worse():
    A, gold = with_spammers()
    table = AnnotationTable.from_matrix(A)
    seconds = np.where(table.annotator == 3, 1.0, 9.0)
    seconds[0] = np.nan
    later = table.instance >= 100
    summary = summarize(
        table, labels=gold, gold=gold, seconds=seconds, ended=1.7e9 + table.instance * 60.0
    )
    speed = summary["time"]["speed"]
    assert (speed["n"], speed["n_fast"], speed["limit"]) == (1599, 200, 3.0)
    assert speed["gold_fast"]["share"] == pytest.approx((A[:, 3] == gold).mean())
    rows = {row["id"]: row for row in summary["annotators"]["rows"]}
    assert rows[3]["times"]["too_fast"]
    assert not rows[2]["times"]["too_fast"]
    assert "too fast" in rows[3]["screen"]["flags"]
    windows = summary["time"]["windows"]["rows"]
    assert len(windows) == LIMITS["windows"]
    assert sum(row["n"] for row in windows) == 1600
    assert windows[0]["from"] == "2023-11-14 22:13"
    over_time = {row["id"]: row["instances"] for row in summary["time"]["windows"]["annotators"]}
    for k, ids in enumerate(over_time[7]):
        assert ids
        assert all(A[i, 7] != gold[i] and k * 200 // 6 <= i <= (k + 1) * 200 // 6 for i in ids)
    worse = np.where(later & (table.annotator < 6), (table.label + 1) % 3, table.label)
    turned = AnnotationTable.from_arrays(table.instance, table.annotator, worse)
    times = {"ended": 1.7e9 + table.instance * 60.0}
    windows = summarize(turned, labels=gold, gold=gold, **times)["time"]["windows"]["rows"]
    assert windows[0]["gold"] > 0.7 > 0.3 > windows[-1]["gold"]
    with pytest.raises(AnnotationError, match=r"seconds has shape \(3,\)"):
        summarize(table, seconds=[1, 2, 3])
    assert summarize(table, seconds=np.full(1600, np.nan))["time"] is None


def test_whose_answers_depend_on_the_class():
    A, _ = with_spammers()
    rows = summarize(A, aggregator=DawidSkene().fit(A))["annotators"]["rows"]
    scores = {row["id"]: row["spammer_score"] for row in rows}
    assert scores[6] < 0.01 < 0.5 < scores[0]
    html = render_report(summarize(A, aggregator=DawidSkene().fit(A)))
    assert "Spammer score" in html
    assert "Spammer score" not in render_report(summarize(A))  # A vote has no matrices.


def test_cells_of_common_confusions_lead_to_the_confusions_of_the_same_labels():
    A, gold = with_spammers()
    marked = 'id="table-common-confusions-matrix".*?</table>'
    html = render_report(summarize(A, gold=gold))
    links = set(re.findall(r"#cell-\d-\d", re.search(marked, html, flags=re.DOTALL)[0]))
    assert links == {f"#cell-{i}-{j}" for i in range(3) for j in range(3) if i != j}
    # Few gold labels show too little of who confuses what, so both go by the inferred labels.
    summary = summarize(A, gold=[*gold[:50], *[None] * 150])
    assert summary["common_confusions"]["truth"] == summary["confusions"]["truth"] != "gold"
    html = render_report(summary)
    assert "#cell" in re.search(marked, html, flags=re.DOTALL)[0]


# -- annotators -----------------------------------------------------------------------------------


def test_every_annotator_is_reachable_and_the_worst_are_first():
    rng = np.random.default_rng(0)
    gold = rng.integers(2, size=400)
    given = np.where(rng.random((400, 300)) < 0.9, gold[:, None], 1 - gold[:, None])
    given[:, 299] = np.where(rng.random(400) < 0.2, gold, 1 - gold)  # The worst, and least busy.
    given[rng.random(given.shape) > 0.2] = -1
    given[100:, 299] = -1
    summary = summarize(given, labels=gold)
    section = summary["annotators"]
    assert section["rows"][0]["id"] == 299
    names = [row["id"] for row in (*section["rows"], *section["rest"]["rows"])]
    assert sorted(names) == list(range(300))
    html = render_report(summary)
    lines = re.search(r"<pre[^>]*>(.*?)</pre>", html, flags=re.DOTALL)[1].split("\n")
    assert len(lines) == 1 + section["rest"]["n"]
    assert {int(line.split("\t")[0]) for line in lines[1:]} == {
        row["id"] for row in section["rest"]["rows"]
    }
    tables = summary_tables(summary)
    assert len(tables["annotators"]["annotator"]) + len(tables["annotators_rest"]["id"]) == 300
    assert "agreement_pairs" in tables
    assert tables["actions"]["code"] == [each["code"] for each in summary["actions"]]
    matrix = {key: tables["agreement_matrix"][key][0] for key in ("first", "second", "n")}
    both = (given[:, [matrix["first"], matrix["second"]]] >= 0).all(axis=1)
    assert matrix["n"] == both.sum()


# -- the page -------------------------------------------------------------------------------------


def test_cells_and_lists_lead_to_instances(full, full_page):
    page = full_page
    page.check_harmless()
    links = {value for _, key, value in page.attributes if key == "href"}
    cells = {link for link in links if link.startswith("#cell-")}
    assert len(cells) == full["confusions"]["total"]
    assert any(link.startswith("#pair-") for link in links)
    items = {link for link in links if link.startswith("#item-")}
    assert len(items) > 20
    assert full["items"]["shown"] == len([each for each in page.ids if each.startswith("item-")])
    shown = {row["id"]: row for row in full["items"]["rows"]}
    table, gold, _ = crowd()
    for row in full["review"]["labels"]["rows"]:
        card = shown[row["id"]]
        assert card["gold"] == gold[row["id"]]
        votes = table.to_matrix()[row["id"]]
        assert sorted(label for label, _ in card["given"]) == sorted(
            vote for vote in votes.tolist() if isinstance(vote, str)
        )


def test_ids_that_others_rely_on(full, full_page):
    page = full_page
    tables = {"annotators", "confusions", "review", "review-annotations", "agreement-pairs",
              "gold", "gold-doubts", "selection", "classes", "plan-next", "time-windows",
              "labels", "unexpected"}  # fmt: skip
    assert {f"table-{name}" for name in tables} <= set(page.ids)
    assert {"whole", "page-tools", "tables", "all-tables", "annotators-each"} <= set(page.ids)
    assert {f"step-{each['code']}" for each in full["actions"]} <= set(page.ids)


def test_each_question_is_answered_with_an_anchor_that_exists(full, full_page):
    page = full_page
    answers = find_answers(full)
    assert {each["anchor"] for each in answers} <= set(page.ids)
    assert {each["question"] for each in answers} <= {each.heading for each in SECTIONS}
    assert all(each["answer"].endswith(".") for each in answers)
    # A line never breaks between a number and its %.
    told = {re.sub(r"(?<=\d) %", "\u202f%", each["answer"]) for each in answers}
    assert told <= set(page.text)
    bare = find_answers(summarize(np.array([[0], [1]])))
    assert all(each["answer"] for each in bare)
    assert {each["anchor"] for each in bare} >= {None, "tables"}
    told = "".join(Page(render_report(summarize(np.array([[0], [1]])))).text)
    assert all(each["answer"] in told for each in bare if each["anchor"] is None)


def test_answers_count_whom_the_page_flags_and_compare_two_windows(full):
    summary = json.loads(json.dumps(full))
    rows = summary["annotators"]["rows"]
    for row in rows:
        row["flags"], row["screen"]["flags"] = [], []
    summary["annotators"]["n_flagged"] = 0

    def said(part):
        return next(each for each in find_answers(summary) if part in each["question"])["answer"]

    assert said("good is each").endswith("Nobody needs a closer look.")
    rows[0]["screen"]["flags"], rows[1]["screen"]["flags"] = ["repeating pattern"], ["one label"]
    summary["annotators"]["n_flagged"] = 3
    # A pattern alone may be that of the items.
    assert "3 annotators need a closer look. 1 of them does no better than" in said("good is each")
    assert "of the first and" in said("better or worse")
    del summary["time"]["windows"]["rows"][1:]
    assert "of the first and" not in said("better or worse")


def test_steps_say_how_to_go_on():
    A, _ = with_mixed_up()
    summary = summarize(A, aggregator=DawidSkene().fit(A))
    assert step(summary, "check")["command"].startswith("manyhands explore")
    text, rows = step(summary, "explain")["text"], step(summary, "explain")["rows"]
    n, n_wrong = sum(row["n"] + row["back"] for row in rows), summary["confusions"]["n_wrong"]
    assert f"({n} of {n_wrong})" in text


def test_random_mistakes_are_no_reason_for_other_guidelines():
    A, _ = with_spammers()
    summary = summarize(A, aggregator=DawidSkene().fit(A))
    assert "explain" not in {each["code"] for each in summary["actions"]}
    page = "".join(Page(render_report(summary)).text)
    assert page.count("clearly more often than by chance") == 2  # In the section and its answer.


def test_at_most_four_steps_by_the_mistakes_that_they_avoid(full):
    avoided = [each["avoided"] for each in full["actions"]]
    assert 1 < len(avoided) <= 4
    assert avoided == sorted(avoided, reverse=True)


def test_the_headline_is_measured_where_gold_measures_and_says_so():
    A, gold = with_spammers()
    model = DawidSkene().fit(A)
    right = np.mean(model.labels_ == gold)
    measured = summarize(A, aggregator=model, gold=gold)
    assert headline(measured).endswith("are right, measured on gold labels for all of them.")
    assert measured["levels"]["labels"]["value"] == right
    assert n_wrong(measured) == pytest.approx(np.sum(model.labels_ != gold))
    expected = summarize(A, aggregator=model)
    assert headline(expected).endswith("estimated from how annotators agree, not measured.")
    level = expected["levels"]["labels"]
    assert level["low"] < right < level["high"]
    assert headline(measured) in "".join(Page(render_report(measured)).text)


def test_gold_that_most_annotators_contradict_is_not_called_wrong():
    """Then the annotators err: nobody is sent to check thousands of right gold labels."""
    rng = np.random.default_rng(0)
    gold = rng.integers(3, size=200)
    A = np.tile(np.where(rng.random(200) < 0.3, gold, (gold + 1) % 3)[:, None], 4)
    summary = summarize(A, gold=gold)
    assert "gold" not in {each["code"] for each in summary["actions"]}
    assert summary["gold"]["doubts"]["total"] > 100


def test_the_guide_names_every_question_and_anchors_that_exist(full, full_page):
    text = DOCS.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+\?) \| [^|]*`#([\w-]+)`", text, flags=re.MULTILINE)
    assert {question for question, _ in rows} == {e["question"] for e in find_answers(full)}
    assert {anchor for _, anchor in rows} <= set(full_page.ids)


def test_a_summary_from_before_these_sections_has_a_page(full):
    old = json.loads(json.dumps(full))
    for name in ("actions", "agreement", "confusions", "review", "time", "plan", "items"):
        del old[name]
    for name in ("n_with_gold", "n_flagged"):
        del old["annotators"][name]
    for row in old["annotators"]["rows"]:
        for name in ("gold", "screen", "others", "times", "abstentions", "skips", "instances"):
            del row[name]
    del old["gold"]["doubts"]
    for row in old["classes"]["rows"]:
        del row["agreement"], row["kappa"]
    page = Page(render_report(old))
    page.check_harmless()
    assert "annotators" in page.ids
    assert {each.key for each in SECTIONS} - set(page.ids) == {
        *("actions", "agreement", "confusions", "review", "time", "plan", "items")
    }


def test_a_hundred_annotators_and_ten_thousand_instances_fit_into_a_megabyte():
    html = render_report(*hundred_times_ten_thousand())
    assert len(html.encode()) < 1_000_000
    matrix = re.search(r'id="table-agreement-matrix".*?</table>', html, flags=re.DOTALL)[0]
    cells = re.findall(r"<td class=.*?</td>", matrix)
    assert len(cells) == 24 * 23
    dead = [cell for cell in cells if "data-at=" not in cell and "#pair-" not in cell]
    assert all('class="d v100">100<' in cell for cell in dead)  # These two always agree.
    Page(html).check_harmless()


def test_cells_of_an_annotators_matrix_name_their_mistakes_until_there_is_no_room(monkeypatch):
    A = np.array([[0, 0, 1], [0, 0, 1], [1, 1, 1], [1, 1, 0], [0, 0, 0]])
    summary = summarize(A, labels=[0, 0, 1, 1, 0])
    cells = {row["id"]: row["matrix"]["cells"] for row in summary["annotators"]["rows"]}
    assert cells == {0: {}, 1: {}, 2: {"0-1": [0, 1], "1-0": [3]}}
    html = render_report(summary)
    places = {row["id"]: k for k, row in enumerate(summary["items"]["rows"], start=1)}
    assert f'data-at="#{places[0]}\t#{places[1]}"' in html
    monkeypatch.setattr("manyhands.report.confusions.CELL_TEXT", 1)
    found = summarize(A, labels=[0, 0, 1, 1, 0])["annotators"]["rows"]
    assert sum(len(ids) for row in found for ids in row["matrix"]["cells"].values()) == 1


def test_the_plan_looks_several_rounds_ahead(monkeypatch, caplog):
    caplog.set_level("INFO", "manyhands")
    A = half_answered()
    monkeypatch.setitem(FORESEEN, "annotators", 8)
    monkeypatch.setattr(planning, "ROUNDS", 4)
    monkeypatch.setattr(planning, "WORLDS", 1)
    summary = summarize(A)
    rows = summary["plan"]["rounds"]["rows"]
    assert [row["annotations"] for row in rows] == [30, 60, 90, 120]
    assert all(row["low"] <= row["gain"] <= row["high"] for row in rows)
    gains = np.array([0.0, *(row["gain"] for row in rows)])
    assert (np.diff(gains) > 0).all()
    assert rows[-1]["gain"] > 0.02
    # A round may correct no more labels per annotation than the batch that is judged by.
    per_annotation = np.diff(gains) * 60 / 30
    assert (per_annotation < 1.2 * summary["plan"]["gain"]).all()
    assert not caplog.records
    assert "Several rounds ahead" in render_report(summary)
    for row, price in zip(rows, [3.0, 9.0, 40.0, 20.0], strict=True):
        row["per_right_label"] = price
    assert "(stop here)" not in render_report(summary)
    rows[2]["per_right_label"] = 51.0  # The third round is the first that is not worth its price.
    page = render_report(summary)
    assert re.findall(r"\(stop here\) ([\d,]+)</td>", page) == ["60"]
    assert (
        "Stop after 60\u00a0further annotations: beyond these, a corrected label takes more than 50"
        in page
    )
    rows[0]["per_right_label"] = None
    page = render_report(summary)
    assert "(stop here)" not in page
    assert "No round of the table is worth buying: the first would hardly correct a label." in page
    monkeypatch.setitem(FORESEEN, "annotators", 7)
    assert summarize(A)["plan"]["rounds"] is None


def half_answered(n=60):
    """Half of the answers of six good annotators and two bad ones."""
    A, _ = with_spammers(n)
    return np.where(np.random.default_rng(0).random(A.shape) < 0.5, A, -1)


@pytest.mark.parametrize("model", [DawidSkene(), DawidSkene(dependence=0, max_iter=7)], ids=str)
def test_a_round_of_the_size_of_the_next_batch_has_its_price(model, monkeypatch):
    monkeypatch.setitem(FORESEEN, "annotators", 8)
    monkeypatch.setattr(planning, "ROUNDS", 2)
    monkeypatch.setattr(planning, "WORLDS", 1)
    monkeypatch.setattr(planning, "BATCH", planning.ROUND)
    table = AnnotationTable.from_matrix(half_answered())
    plan = summarize(table, aggregator=model.fit(table))["plan"]
    first = plan["rounds"]["rows"][0]
    assert first["annotations"] == plan["n"] == 30
    assert first["gain"] * 60 == pytest.approx(plan["gain"] * 30)
    assert first["per_right_label"] == pytest.approx(plan["per_right_label"])


@pytest.mark.parametrize("of", ["classifier", "another method", "history"])
def test_further_annotations_have_one_price_by_the_model_of_the_labels(of, monkeypatch):
    """A forecast by Dawid and Skene's model of the annotations would be a second one."""
    monkeypatch.setitem(FORESEEN, "annotators", 8)
    table = AnnotationTable.from_matrix(half_answered())
    if of == "classifier":
        X, rng = numbered(table), np.random.default_rng(0)
        found = FakeClassifier(table, rng, posterior_=EBCC().fit(table).posterior_)
        given = {"classifier": found, "X": X}
    elif of == "another method":
        given = {"aggregator": EBCC().fit(table)}
    else:
        given = {"aggregator": DawidSkene().fit(table, history={0: 50 * np.eye(3)})}
    summary = summarize(table, **given)
    plan, name = summary["plan"], type(next(iter(given.values()))).__name__
    assert plan["gain"] is not None
    assert plan["source"].split()[0] == name
    assert plan["rounds"] is None
    page = Page(render_report(summary))
    assert f"the model ({plan['source']}) expects that" in " ".join(page.text)
    assert "plan-rounds" not in page.ids
    price = price_in_words(plan["gain"])
    assert page.text[page.text.index("annotations per corrected label") + 1] == price
    if of != "history":
        assert "its figures differ" in " ".join(page.text)


def test_runs_that_agree_have_no_range(monkeypatch):
    monkeypatch.setitem(FORESEEN, "annotators", 8)
    summary = summarize(half_answered(), aggregator=DawidSkene().fit(half_answered()))
    rounds = summary["plan"]["rounds"]
    for low, high, runs, told in (
        (0.031, 0.044, 3, "3.1 to 4.4"),
        (0.0351, 0.0349, 3, "the same in all runs"),
        (0.035, 0.035, 1, "one run only"),
    ):
        rounds["runs"] = runs
        rounds["rows"][0] |= {"low": low, "high": high}
        page = Page(render_report(summary))
        assert told in page.text
        assert "3.5 to 3.5" not in page.text


def test_a_table_without_flags_is_not_called_that_of_annotators_to_look_at(full):
    """One who reads that nobody needs a look finds no column of reasons either."""
    summary = json.loads(json.dumps(full))
    named = "Annotators: those with a reason to look come first"
    assert named in render_report(summary)
    for row in summary["annotators"]["rows"]:
        row["flags"], row["screen"]["flags"] = [], []
    summary["annotators"]["n_flagged"] = 0
    page = render_report(summary)
    assert "Nobody needs a closer look" in page
    assert named not in page
    assert "Reason to look" not in page
    head, body = re.search(r'id="table-annotators".*?<thead>(.*?)</thead>.*?<tbody>(.*?)</tbody>',
                           page, re.DOTALL).groups()  # fmt: skip
    first = body.partition("</tr>")[0]
    assert len(re.findall("<th ", head)) == len(re.findall("<t[dh][ >]", first))


def test_a_summary_with_the_former_key_of_informedness_is_read(tmp_path):
    """Folders of before call a stack's relative informedness parity."""
    stack = {
        "members": [{"name": "net", "weight": 1.0, "temperature": 1.0}],
        "relative_informedness": 0.47,
        "weak_features": False,
        "vote_share": 0.5,
        "class_prior": "estimated",
        "prior_shrinkage": 0.0,
    }
    training = dict.fromkeys(("kept", "seconds"))
    training |= {"classifier": "CrowdStackingClassifier", "n_epochs": 3, "unit": "round"}
    training |= {"stages": [], "charts": [], "shown": 0, "total": 0, "points": 3, "first": 1}
    summary = summarize(with_spammers(n=30)[0]) | {"training": training | {"stack": stack}}
    former = {"parity" if k == "relative_informedness" else k: v for k, v in stack.items()}
    before = summary | {"training": training | {"stack": former}}
    assert render_report(before) == render_report(summary)
    assert (
        "the features of its item are worth 0.47 times as much as another annotation"
        in render_report(before)
    )
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(before))
    assert read_summary(path)["training"]["stack"] == stack
    assert summary_tables(read_summary(path)) == summary_tables(summary)


# -- texts and images -----------------------------------------------------------------------------


def test_texts_that_are_given_are_shown_and_never_as_markup(tmp_path):
    A, gold = with_spammers(n=30)
    summary = summarize(A, labels=gold)
    assert "To see their texts or images" in render_report(summary)
    path = tmp_path / "texts.csv"
    rows = [["task", "text"], *([k, EVIL[k % 8] + " words"] for k in range(30))]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    html = render_report(summary, read_contents(path))
    page = Page(html)
    page.check_harmless()
    assert "table" in page.tags
    assert any("<script>alert(1)</script> words" in text for text in page.text)
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"line {k}\n" for k in range(30)), encoding="utf-8")
    assert read_contents(lines).texts["17"] == "line 17"


def test_images_become_thumbnails_within_the_page(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    A, gold = with_spammers(n=30)
    noise = np.random.default_rng(0).integers(256, size=(300, 400, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "0.png")
    for k in range(1, 30):
        shutil.copy(tmp_path / "0.png", tmp_path / f"{k}.png")
    (tmp_path / "3.png").write_bytes(b"no image")
    summary = summarize(A, labels=gold)
    html = render_report(summary, read_contents(images=tmp_path))
    found = re.findall(r'<img src="data:image/jpeg;base64,([^"]+)" alt="">', html)
    assert 0 < len(found) <= summary["items"]["shown"]
    with Image.open(io.BytesIO(base64.b64decode(found[0]))) as small:
        assert max(small.size) == 112
    assert sum(map(len, found)) <= IMAGE_BYTES
    assert "img-src data:" in html
    assert str(tmp_path) not in html


def test_a_page_shows_no_image_from_outside_of_the_folder(tmp_path):
    """Links lead anywhere, and a report is given to others."""
    (tmp_path / "images" / "inner").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(b"any")
    (tmp_path / "images" / "0.png").write_bytes(b"any")
    (tmp_path / "images" / "1.png").symlink_to(tmp_path / "images" / "0.png")
    found = read_contents(images=tmp_path / "images").images
    assert found["1"] == (tmp_path / "images" / "0.png").resolve()
    (tmp_path / "images" / "inner" / "2.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(AnnotationError, match=r"2\.png' is not within '.*images'"):
        read_contents(images=tmp_path / "images")


def test_images_stop_where_there_is_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr("manyhands.report.items.thumbnail", lambda path: "x" * 150_000)
    contents = Contents(images={str(k): tmp_path for k in range(5)})
    assert [each["image"] is not None for each in contents.of(list(range(5)))] == [
        *(True, True, False, False, False)
    ]
