"""The report on sets of labels."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from manyhands import LabelSetTable, MultiLabelDawidSkene, MultiLabelMajorityVote, decide_sets
from manyhands.io.consensus_sets import set_consensus
from manyhands.metrics.set_levels import levels_of_sets
from manyhands.report import ItemContents, render_report, summarize_sets, summary_tables
from manyhands.report.label_sets import SET_SECTIONS, SetFindings, told_of_decision
from tests.report.conftest import EVIL, Page

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

OPTIONS = ["joy", "fear", "anger", "awe"]


def crowd(n=200, k=3, n_annotators=12, seed=0, options=OPTIONS):
    """Answers by good annotators, of whom the first overlooks much and the second ticks anger."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n, len(options))) < 0.3
    seen, false = np.full((n_annotators, 4), 0.9), np.full((n_annotators, 4), 0.04)
    seen[0], false[1, 2] = 0.35, 0.6
    instance = np.repeat(np.arange(n), k)
    annotator = rng.random((n, n_annotators)).argsort(axis=1)[:, :k].ravel()
    rate = np.where(truth[instance], seen[annotator], false[annotator])
    ticks = rng.random(rate.shape) < rate
    return LabelSetTable.from_arrays(
        instance, annotator, ticks, n_annotators=n_annotators, options=options
    ), truth.astype(int)


def summary_of(table, model=None, gold=None, rule="probable", **fit):
    model = (model or MultiLabelDawidSkene()).fit(table, **fit)
    decided = decide_sets(model.posterior_, rule)
    levels = levels_of_sets(model, decided.ticks, gold)
    found = set_consensus(table, model, decided.ticks, levels.probability)
    how = told_of_decision(rule, None, decided)
    measured = None if gold is None else {"cells with gold": int((gold >= 0).sum())}
    inputs = SetFindings(model, found, levels, decided, how, gold, measured)
    return summarize_sets(inputs, title="Feelings")


@pytest.fixture(scope="module")
def made():
    table, truth = crowd()
    return table, truth, summary_of(table, gold=truth)


def test_the_first_screen_has_the_headline_and_at_most_four_actions(made):
    table, truth, summary = made
    level = summary["set_levels"]["given"]
    ticks = MultiLabelDawidSkene().fit(table).labels_
    assert level["value"] == pytest.approx((truth == 1)[ticks].mean())
    assert level["source"] == "gold"
    page = render_report(summary)
    assert f"measured on {ticks.sum():,} labels" in page
    assert 1 <= len(summary["set_actions"]) <= 4
    avoided = [step["avoided"] for step in summary["set_actions"]]
    assert avoided == sorted(avoided, reverse=True)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert {each.key for each in SET_SECTIONS} <= {*Page(page).ids}


def test_annotators_are_told_apart_in_words(made):
    _, _, summary = made
    people = summary["set_annotators"]
    rows = {row["id"]: row for row in people["rows"]}
    assert "overlooks labels" in rows[0]["flags"]
    assert rows[0]["sensitivity_high"] < people["typical"]["sensitivity"]
    assert "ticks wrongly" in rows[1]["flags"]
    assert "“anger”" in rows[1]["where"][0]
    assert "where it does not apply" in rows[1]["where"][0]
    assert [row["id"] for row in people["rows"][:2]] in ([0, 1], [1, 0])
    (talk,) = (step for step in summary["set_actions"] if step["code"] == "talk")
    assert any(text.startswith("0 ticks") for text in talk["rows"])


def test_options_and_items_by_doubt(made):
    table, truth, summary = made
    options = summary["set_options"]["rows"]
    assert {row["option"] for row in options} == set(OPTIONS)
    wrong = [row["expected_wrong"] for row in options]
    assert wrong == sorted(wrong, reverse=True)
    model = MultiLabelDawidSkene().fit(table)
    m = OPTIONS.index(options[0]["option"])
    own = (truth[:, m] == 1)[model.labels_[:, m]]
    assert options[0]["precision"] == pytest.approx(own.mean())
    items = summary["set_items"]["rows"]
    errors = [row["expected_errors"] for row in items]
    assert errors == sorted(errors, reverse=True)
    first = items[0]["doubts"][0]
    row = table.instances.tolist().index(items[0]["id"])
    ticked = table.option(first["option"]).vote_counts()[row]
    assert first["n_ticked"] == ticked[1]
    assert summary["items"]["rows"][0]["id"] == items[0]["id"]
    assert len(summary["items"]["rows"][0]["given"]) == 3


def test_doubtful_items_are_named_by_their_texts(made):
    _, _, summary = made
    (check,) = (step for step in summary["set_actions"] if step["code"] == "check")
    first = check["rows"][0]
    page = render_report(summary, ItemContents({str(first["id"]): "What a lovely day"}))
    steps = page[page.index('id="step-check"') :].partition("</ul>")[0]
    assert "What a lovely day</bdi></a>" in steps
    assert "“" in first["text"]
    assert first["text"].replace(" %", "\u202f%") in steps
    assert re.search(r"\d %", steps) is None  # A narrow screen would break the line there.


def test_gold_of_some_options_says_so():
    table, truth = crowd()
    some = np.where(np.arange(4) == 0, truth, -1)
    headline = summary_of(table, gold=some)["set_levels"]["headline"]
    assert "of the labels given for “joy” are right" in headline
    assert "The other options were not measured." in headline


def test_nothing_is_claimed_where_nothing_tells():
    table, _ = crowd(k=1)
    summary = summary_of(table)
    assert summary["set_levels"]["given"] is None
    assert "is not known" in summary["set_levels"]["headline"]
    assert summary["set_actions"][0]["code"] == "sample"
    assert not summary["set_annotators"]["judged"]
    assert all(row["certainty"] is None for row in summary["set_options"]["rows"])
    page = render_report(summary)
    assert "It is not known how much each annotator overlooks or ticks wrongly" in page
    two, _ = crowd(k=2, n_annotators=2)
    assert summary_of(two)["set_levels"]["given"] is None


def test_other_methods_rules_and_known_sets():
    table, truth = crowd()
    vote = summary_of(table, MultiLabelMajorityVote(), rule="f1")
    assert "expected F1 is greatest" in vote["set_data"]["decided"]
    assert vote["set_data"]["shared"] is None
    assert not vote["set_annotators"]["judged"]
    assert "this method does not estimate it" in render_report(vote)
    known = summary_of(table, gold=None, model=MultiLabelDawidSkene())
    assert known["set_items"]["total"] == 200
    model = MultiLabelDawidSkene().fit(table, gold=truth.astype(float))
    decided = decide_sets(model.posterior_)
    levels = levels_of_sets(model, decided.ticks)
    found = set_consensus(table, model, decided.ticks, levels.probability)
    summary = summarize_sets(SetFindings(model, found, levels, decided, "As known."))
    assert summary["set_items"] is None
    assert summary["set_data"]["actions"]["accept"] == 200
    render_report(summary)


def test_names_are_shown_and_do_nothing():
    table, _ = crowd(options=EVIL[:4])
    names = [EVIL[k % len(EVIL)] + str(k) for k in range(12)]
    answers = replace(table.answers, annotators=np.array(names, dtype=object).astype(str))
    page = render_report(summary_of(replace(table, answers=answers)))
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "\u202e" not in page


def test_tables_of_the_report(made):
    tables = summary_tables(made[2])
    assert set(OPTIONS) == set(tables["set_options"]["option"])
    assert tables["set_annotators"]["id"][:2] in ([0, 1], [1, 0])
    assert "set_items" in tables
