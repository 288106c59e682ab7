import copy
import html
import json
import pickle
import re
from dataclasses import replace
from importlib import resources
from itertools import pairwise

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    DawidSkene,
    MajorityVote,
    make_crowd,
)
from manyhands.exceptions import AnnotationError, ChosenGoldWarning
from manyhands.metrics import Level
from manyhands.metrics.certainty import certainty_of
from manyhands.report import SECTIONS, render_report, summarize, write_report
from manyhands.report.charts import count_bars, curves, log_ticks, nice_ticks
from manyhands.report.counts import count_histogram
from manyhands.report.filters import clipped, duration, fine_percent, name, percent, visible
from manyhands.report.headline import headline
from manyhands.report.limits import LIMITS
from tests.report.conftest import EVIL, FakeClassifier, Page, compared, crowd, history, numbered

# -- the dict -------------------------------------------------------------------------------------


def test_the_dict_is_plain_json(full):
    text = json.dumps(full, allow_nan=False)
    assert json.loads(text) == full
    assert full["version"] == 1
    of_no_section = {"version", "generator", "title", "limits", "levels", "warnings"}
    assert set(full) == of_no_section | {each.key for each in SECTIONS if each.summarise}


def test_data_by_hand():
    table = AnnotationTable.from_matrix(
        [[0, 0, 1, -1], [1, 1, -1, -1], [0, 1, -1, -1], [2, -1, -1, -1], [-1] * 4],
        classes=[0, 1, 2, 3],
    )
    data = summarize(table)["data"]
    assert (data["n_instances"], data["n_annotators"], data["n_annotations"]) == (5, 4, 8)
    assert (data["n_unannotated"], data["n_single"], data["n_silent"]) == (1, 1, 1)
    assert data["sparsity"] == pytest.approx(12 / 20)
    assert data["per_instance"]["mean"] == 2
    assert data["per_instance"]["histogram"] == [
        {"from": k, "to": k, "count": n} for k, n in enumerate([1, 1, 2, 1])
    ]
    # Agreeing pairs: 1 of 3, 1 of 1, 0 of 1.
    assert data["agreement"]["percent"] == pytest.approx((1 / 3 + 1 + 0) / 3)
    assert data["agreement"]["n_instances"] == 3
    assert data["ties"] == {"n": 1, "share": 0.25}
    assert data["imbalance"]["ratio"] is None
    assert data["imbalance"]["least"] == {"name": 3, "n": 0}


def test_imbalance_is_most_over_least_frequent():
    data = summarize(np.array([[0, 0], [0, 1], [0, 0]]))["data"]
    assert data["imbalance"]["ratio"] == 5.0


def test_warnings_in_words():
    A = np.array([[0, 1, 0, -1]] * 6 + [[1, 0, 0, -1]] * 6 + [[0, -1, -1, -1], [-1] * 4])
    A[0, 3] = 0
    table = AnnotationTable.from_matrix(np.pad(A, [(0, 0), (0, 1)], constant_values=-1),
                                        classes=[0, 1, 2])  # fmt: skip
    found = {w["code"]: w["text"] for w in summarize(table)["warnings"]}
    assert found["class-never-given"] == "Class “2” was never given by any annotator."
    assert (
        found["few-annotations"] == "1 annotator gave fewer than 5 annotations: too few to judge."
    )
    assert found["silent"] == "1 annotator gave no annotations."
    assert found["unannotated"] == "1 item has no annotations."
    assert "below 0" in found["alpha-below-0"]
    assert "always-the-same-class" not in found  # Of twelve answers, chance makes half the same.
    B = np.tile(A[:12], (3, 1))
    told = {w["code"]: w["text"] for w in summarize(AnnotationTable.from_matrix(B))["warnings"]}
    assert told["always-the-same-class"] == (
        "1 annotator nearly always gave the same class, where others gave several: “2”."
    )
    assert "no-overlap" in {w["code"] for w in summarize(np.array([[0, -1], [-1, 1]]))["warnings"]}


def test_an_annotator_below_chance_is_flagged():
    table, _, _ = crowd(density=1.0)
    A = table.to_matrix(codes=True)
    A[:, 4] = (A[:, 8] + 1) % 3  # against the best annotator, every time
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2])
    section = summarize(table, aggregator=DawidSkene().fit(table))["annotators"]
    row = next(row for row in section["rows"] if row["id"] == 4)
    assert row["flags"][0] == "significantly below chance"
    assert row["screen"]["evidence"][0].startswith("right in at most ")
    assert row["upper"] < section["chance"] == pytest.approx(1 / 3)
    assert section["flagged"]["significantly below chance"] == [4]


def test_an_annotator_a_little_below_chance_is_counted_but_not_called_significant():
    A = np.tile(np.arange(10), 5)[:, None].repeat(4, axis=1)
    A[:, 3] = (A[:, 3] + 1) % 10
    A[:3, 3] = A[:3, 0]  # right in 3 of 50: 6 % where guessing gives 10 %
    summary = summarize(A, labels=A[:, 0])
    section = summary["annotators"]
    first = section["rows"][0]
    assert (first["id"], first["accuracy"]) == (3, pytest.approx(0.06))
    assert section["chance"] == pytest.approx(0.1)
    assert "significantly below chance" not in first["flags"]
    assert section["n_at_or_below_chance"] == 1
    assert section["flag_counts"]["significantly below chance"] == 0
    page = render_report(summary)
    assert "<dt>annotators flagged “is right less often than by guessing”</dt>" not in page
    assert "<dt>annotators flagged “does no better than guessing”</dt>" in page
    A[:, 3] = (A[:, 0] + 1) % 10
    texts = [warning["text"] for warning in summarize(A, labels=A[:, 0])["warnings"]]
    assert (
        "1 annotator is right significantly less often than guessing would be (the whole "
        "interval is below 1 in 10): “3”." in texts
    )


def test_an_annotator_below_chance_by_gold_is_counted_whatever_the_votes_say():
    A = np.tile(np.arange(10), 5)[:, None].repeat(4, axis=1)
    A[:, 3] = (A[:, 3] + 1) % 10
    A[:3, 3] = A[:3, 0]  # right in 3 of 50
    gold = A[:, 0].astype(float)
    section = summarize(A)["annotators"]
    assert section["rows"][0]["accuracy"] > section["chance"]  # their own votes count
    assert (section["n_at_or_below_chance"], section["n_judged_by_gold"]) == (0, 0)
    summary = summarize(A, gold=gold)
    section = summary["annotators"]
    assert (section["n_at_or_below_chance"], section["n_judged_by_gold"]) == (1, 4)
    gold[9:] = np.nan  # Nine annotations with gold are too few.
    section = summarize(A, gold=gold)["annotators"]
    assert (section["n_at_or_below_chance"], section["n_judged_by_gold"]) == (0, 0)


def test_annotators_by_hand():
    A = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 1], [1, 1, -1], [1, 1, 0]])
    section = summarize(A, labels=[0, 0, 1, 1, 1])["annotators"]
    assert [row["id"] for row in section["rows"]] == [0, 1, 2]
    last = section["rows"][2]
    assert (last["n_annotations"], last["accuracy"]) == (4, 0.5)
    assert last["flags"] == []
    assert (
        last["screen"]["advice"] == "there are too few annotations to judge or rank this annotator"
    )
    assert section["n_few"] == 1
    once = {"n": 1, "of": 2, "back": 1, "back_of": 2}
    assert last["mistake"] == {"true": 0, "given": 1} | once
    by_gold = summarize(A, labels=[0, 0, 1, 1, 1], gold=[0, 1, 1, 1, 1])["annotators"]["rows"]
    assert by_gold[2]["mistake"] == {"true": 1, "given": 0, "n": 1, "of": 3}
    cells = {"0-1": [1], "1-0": [4]}
    assert last["matrix"] == {
        "shares": [[0.5, 0.5], [0.5, 0.5]],
        "met": [2, 2],
        "cells": cells,
    }
    assert section["rows"][0]["mistake"] is None
    assert section["matrices"]["source"] is None
    assert section["rest"] is None


def test_common_confusions_by_hand():
    A = np.array([[0, 1, 1, -1], [0, 1, 0, -1], [1, 1, 0, -1]])
    inferred = summarize(A, labels=[0, 0, 1])["common_confusions"]
    # Three active annotators: two called 0 a 1, one called 1 a 0.
    assert inferred["truth"] == "inferred"
    assert inferred["matrix"] == [[0.6667, 0.6667], [0.3333, 0.6667]]
    found = [(p["true"], p["given"], p["n"], p["of"]) for p in inferred["pairs"]]
    assert found == [(0, 1, 2, 3), (1, 0, 1, 3)]
    gold = summarize(A, labels=[0, 0, 1], gold=[1, 1, -1])["common_confusions"]
    assert (gold["truth"], gold["source"]) == ("gold", "gold labels")
    found = [(p["true"], p["given"], p["n"], p["of"]) for p in gold["pairs"]]
    assert found == [(1, 0, 2, 3)]
    assert gold["matrix"] == [[None, None], [0.6667, 0.6667]]  # No item is a 0 by gold.


def test_only_annotators_of_a_class_share_its_confusions():
    A = np.full((4, 4), -1)
    A[:2] = [[0, 1, -1, -1], [0, 1, -1, -1]]
    A[2:] = [[-1, -1, 1, 0], [-1, -1, 1, 1]]
    summary = summarize(A, labels=[0, 0, 1, 1])
    found = {(p["true"], p["given"]): (p["n"], p["of"], p["share"]) for p in
             summary["common_confusions"]["pairs"]}  # fmt: skip
    assert found == {(0, 1): (1, 2, 0.5), (1, 0): (1, 2, 0.5)}
    assert "1 of 2" in render_report(summary)


def test_labels_of_the_aggregator(full):
    table, _, _ = crowd()
    found = DawidSkene().fit(table)
    labels = full["labels"]
    assert labels["source"] == "DawidSkene"
    assert labels["n"] == int((table.annotations_per_instance() > 0).sum())
    # The mean is the level that is told of all, here by gold.
    level = Level(**full["levels"]["labels"])
    codes = found.posterior_.argmax(axis=1)
    told = certainty_of(table, level, found.posterior_, codes)(found.posterior_.max(axis=1))
    assert labels["confidence"]["n_certain"] == int((told >= 0.95).sum())
    rows = labels["uncertain"]["rows"]
    probabilities = [row["probability"] for row in rows]
    assert probabilities == sorted(probabilities)
    assert probabilities[0] == pytest.approx(told.min())
    assert labels["all"]["total"] == labels["all"]["shown"] == labels["n"]
    for row in rows:
        position = row["id"]
        assert row["label"] == found.labels_[position]
        votes = dict(row["votes"])
        counts = table.vote_counts()[position]
        assert votes == {c: n for c, n in zip(table.classes.tolist(), counts, strict=True) if n}


def test_no_runner_up_is_more_probable_than_its_label():
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 4, 150)
    table = make_crowd(truth, n_annotators=12, annotations_per_instance=5, random_state=1)
    # By gold, half of the labels are wrong, of which the model is sure.
    gold = np.where(rng.random(150) < 0.5, truth, (truth + 1) % 4)
    summary = summarize(table, aggregator=DawidSkene().fit(table), gold=gold)
    assert summary["levels"]["labels"]["value"] < 0.6
    rows = summary["labels"]["all"]["rows"]
    assert len(rows) == 150
    assert all(row["second_probability"] <= row["probability"] for row in rows)


@pytest.mark.filterwarnings("ignore:This family shows no shared mistakes")
def test_dependence_is_shown():
    table, _, _ = crowd()
    families = table.with_groups({table.annotators[0]: "f", table.annotators[1]: "f"})
    model = DawidSkene().fit(families)
    shown = summarize(families, aggregator=model)
    dependence = shown["labels"]["dependence"]
    assert dependence == {
        "rho": model.dependence_, "se": model.dependence_se_, "n_families": 1
    }  # fmt: skip
    page = " ".join(render_report(shown).split())
    assert model.dependence_ < 0.1
    assert (
        "about the same item rarely make the same mistake. The probabilities allow for this" in page
    )
    assert "1 declared family counts as fewer annotators" in page
    independent = DawidSkene(dependence=0).fit(table)
    page = render_report(summarize(table, aggregator=independent))
    assert "assumes that annotators make mistakes independently" in page
    assert summarize(table)["labels"]["dependence"] is None


def test_labels_against_the_majority():
    A = np.array([[0, 0, 1], [0, 1, -1], [1, 1, 1]])
    labels = summarize(A, labels=[1, 1, 1])["labels"]
    assert labels["n_against_majority"] == 1
    assert labels["against_majority"]["rows"][0]["id"] == 0
    assert labels["against_majority"]["rows"][0]["votes"] == [[0, 2], [1, 1]]
    assert labels["n_ties_decided"] == 1
    assert labels["confidence"] is None
    assert labels["uncertain"] is None


def test_which_labels_are_taken():
    table, _, rng = crowd()
    classifier = FakeClassifier(table, rng)
    X = np.zeros((len(table), 1))
    assert summarize(table)["labels"]["kind"] == "majority"
    assert summarize(table, classifier=classifier)["labels"]["kind"] == "majority"
    assert summarize(table, classifier=classifier, X=X)["labels"]["source"] == "FakeClassifier"
    aggregator = MajorityVote().fit(table)
    both = summarize(table, aggregator=aggregator, classifier=classifier, X=X)
    assert both["labels"]["source"] == "MajorityVote"
    given = summarize(table, aggregator=aggregator, posterior=classifier.proba)
    assert given["labels"]["kind"] == "given"


def test_classes_in_another_order_are_aligned():
    table, _, rng = crowd()
    plain = FakeClassifier(table, rng, confusion_=rng.dirichlet(np.ones(3), size=(9, 3)))
    turned = copy.copy(plain)
    order = np.array([2, 0, 1])
    turned.classes_ = table.classes[order]
    turned.proba = plain.proba[:, order]
    turned.confusion_ = plain.confusion_[:, order][:, :, order]
    X = np.zeros((len(table), 1))
    first, second = (summarize(table, classifier=c, X=X) for c in (plain, turned))
    assert first == second


def test_gold_section(full):
    table, gold, _ = crowd()
    found = DawidSkene().fit(table)
    annotated = table.annotations_per_instance() > 0
    rows = {row["name"]: row for row in full["gold"]["rows"]}
    assert list(rows) == ["majority vote", "DawidSkene", "FakeClassifier (prediction)"]
    expected = np.mean(found.labels_[annotated] == gold[annotated])
    assert rows["DawidSkene"]["accuracy"] == pytest.approx(expected)
    assert 0 <= rows["DawidSkene"]["ece"] <= 1
    few = np.arange(len(gold)) % 4 == 0
    known = np.where(few, gold.astype(object), None)
    part = summarize(table, gold=known)["gold"]
    assert part["n"] + part["n_without"] == annotated.sum()
    assert part["n"] == annotated[few].sum()
    assert summarize(table, gold=[None] * len(table))["gold"] is None


def test_the_prediction_is_judged_as_the_classifier_decides():
    table, gold, rng = crowd()
    plain = FakeClassifier(table, rng)
    X = rng.normal(size=(len(table), 2)).astype(np.float32)
    costs = 1.0 - np.eye(table.n_classes)
    costs[0] *= 10  # To miss the first class is dearest.
    ruled = AggregatedClassifier(backbone="linear", decision=costs, max_epochs=1, random_state=0)
    ruled.fit(X, table)
    most_probable = table.classes[ruled.predict_proba(X).argmax(axis=1)]
    assert (ruled.predict(X) != most_probable).any()
    annotated = table.annotations_per_instance() > 0
    for classifier, x, labels in (
        (plain, numbered(table), table.classes[plain.proba.argmax(axis=1)]),
        (ruled, X, ruled.predict(X)),
    ):
        aggregator = DawidSkene().fit(table)
        summary = summarize(table, aggregator=aggregator, classifier=classifier, X=x, gold=gold)
        row = summary["gold"]["rows"][-1]
        assert row["name"] == f"{type(classifier).__name__} (prediction)"
        right = (labels == gold)[annotated]
        assert row["accuracy"] == pytest.approx(right.mean())


def test_overconfidence_is_a_warning():
    table, gold, _ = crowd()
    wrong = np.roll(np.eye(3), 1, axis=1)[np.searchsorted(table.classes, gold)]
    summary = summarize(table, posterior=wrong, gold=gold)
    assert summary["warnings"][0]["code"] == "overconfident"
    assert (
        "100\u202f% of its labels to be right, but by the gold labels, 0\u202f% are"
        in summary["warnings"][0]["text"]
    )


def test_training_section(full):
    training = full["training"]
    assert (training["n_epochs"], training["seconds"]) == (12, 6.0)
    assert [(s["name"], s["first"], s["n_epochs"]) for s in training["stages"]] == [
        ("warm-up", 1, 4),
        ("crowd", 5, 8),
    ]
    charts = {chart["name"]: [s["name"] for s in chart["series"]] for chart in training["charts"]}
    assert charts == {"nll": ["nll", "validation_nll"], "confusion_gap": ["confusion_gap"]}
    assert training["charts"][1]["series"][0]["points"][3] == [4, None]


def test_long_histories_are_thinned():
    table, _, rng = crowd()
    summary = summarize(table, classifier=FakeClassifier(table, rng, history_=history(1000)))
    points = summary["training"]["charts"][0]["series"][0]["points"]
    assert len(points) == LIMITS["curve_points"]
    assert (points[0][0], points[-1][0]) == (1, 1000)
    assert "The curves show 200 of 1,000" in " ".join(render_report(summary).split())


def test_only_observed_rows_count():
    table, _, _ = crowd()
    rest = np.argwhere(table.to_matrix(codes=True) < 0)
    extra = AnnotationTable.from_arrays(
        rest[:, 0], [f"ann-{k}" for k in rest[:, 1]], ["ant"] * len(rest),
        n_instances=len(table), classes=table.classes, annotators=table.annotators,
    )  # fmt: skip
    plain = summarize(table)
    added = summarize(table.with_added(extra.with_source("pseudo")))
    assert added["data"].pop("n_added") == len(rest)
    assert added["warnings"].pop()["code"] == "added"
    plain["data"].pop("n_added")
    assert added == plain


def test_passes_are_counted_and_change_nothing_else():
    table, gold, _ = crowd()
    rest = np.argwhere(table.to_matrix(codes=True) < 0)[:10]
    kinds = np.arange(10) < 7
    labels = {"posterior": np.eye(3)[np.searchsorted(table.classes, gold)]}
    passed = summarize(replace(table, passes=np.column_stack([rest, kinds])), **labels)
    plain = summarize(table, **labels)
    for kind, n in (("abstentions", 3), ("skips", 7)):
        assert sum(row.pop(kind) for row in passed["annotators"]["rows"]) == n
        assert sum(row.pop(kind) for row in plain["annotators"]["rows"]) == 0
    rates = [row.pop("pass_rate") for row in passed["annotators"]["rows"]]
    assert sum(rate > 0 for rate in rates) == len(np.unique(rest[:, 1]))
    assert not any(row.pop("pass_rate") for row in plain["annotators"]["rows"])
    for summary in (passed, plain):
        # Nobody is asked again who passed, and what is passed on says something of the class, of
        # how many labels are right, and so of how sure each is said to be.
        del summary["plan"], summary["levels"], summary["labels"], summary["review"]
        del summary["actions"]
        del summary["items"]
    assert [passed["data"].pop(name) for name in ("n_abstentions", "n_skips")] == [3, 7]
    assert [plain["data"].pop(name) for name in ("n_abstentions", "n_skips")] == [0, 0]
    assert passed == plain


def test_an_estimator_fitted_on_other_data_is_refused():
    table, _, rng = crowd()
    fitted = DawidSkene().fit(table)
    with pytest.raises(AnnotationError, match="fitted on 9 annotators"):
        summarize(table.select(annotators=np.arange(8)), aggregator=fitted)
    with pytest.raises(AnnotationError, match="fit it on this table"):
        summarize(table[:50], aggregator=fitted)
    with pytest.raises(NotFittedError, match=r"aggregator\.fit"):
        summarize(table, aggregator=DawidSkene())
    with pytest.raises(NotFittedError, match=r"classifier\.fit"):
        summarize(table, classifier=DawidSkene())
    with pytest.raises(AnnotationError, match="classifier="):
        summarize(table, X=np.zeros((120, 2)))
    with pytest.raises(AnnotationError, match="predict_proba"):
        summarize(table[:50], classifier=FakeClassifier(table, rng), X=np.zeros((50, 1)))
    for name_, wrong in [("common_proportion_", np.ones(3)), ("common_confusion_", np.ones((2, 2))),
                         ("confusion_", np.ones((2, 3, 3)))]:  # fmt: skip
        with pytest.raises(AnnotationError, match=name_):
            summarize(table, classifier=FakeClassifier(table, rng, **{name_: wrong}))


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("gold", ["ant"] * 3, r"gold has shape \(3,\)"),
        ("gold", ["dog"] * 120, "gold holds 'dog'"),
        ("labels", [None] * 120, "labels is missing for"),
        ("posterior", np.ones((120, 2)), r"posterior has shape \(120, 2\)"),
        ("posterior", np.full((120, 3), np.nan), "posterior of instance 0"),
        ("posterior", np.full((120, 3), 0.5), "sum to 1"),
    ],
)
def test_what_does_not_fit_is_named(argument, value, message):
    with pytest.raises(AnnotationError, match=message):
        summarize(crowd()[0], **{argument: value})


def test_inputs_stay_as_they_were():
    table, gold, _ = crowd()
    fitted = DawidSkene().fit(table)
    before = pickle.dumps(fitted), gold.copy()
    summarize(table, aggregator=fitted, gold=gold)
    assert pickle.dumps(fitted) == before[0]
    np.testing.assert_array_equal(gold, before[1])


# -- the page -------------------------------------------------------------------------------------


def test_every_section_is_on_the_page(full_page):
    page = full_page
    page.check_harmless()
    for section in SECTIONS:
        assert section.key in page.ids
        assert section.heading in page.text
    assert page.tags.count("h1") == 1
    assert ("html", "lang", "en") in page.attributes
    assert page.tags.count("table") == page.tags.count("caption")
    n_svg = page.tags.count("svg")
    assert n_svg == len(
        [1 for tag, key, _ in page.attributes if (tag, key) == ("svg", "aria-label")]
    )
    assert all(scope in ("row", "col") for tag, key, scope in page.attributes if key == "scope")
    headings = [(tag, key) for tag, key, _ in page.attributes if tag == "th" and key == "scope"]
    assert len(headings) == page.tags.count("th")


def test_the_page_is_self_contained(full_html):
    assert not re.search(r"(https?:)?//\w", full_html)
    assert "url(" not in full_html
    assert "@import" not in full_html
    assert "default-src 'none'" in full_html


def test_print_and_dark_are_there(full_html):
    assert "@media print" in full_html
    assert "::details-content" in full_html
    assert "print-color-adjust: exact" in full_html
    assert "@media screen and (prefers-color-scheme: dark)" in full_html


def test_rendering_is_deterministic(full, full_html, tmp_path):
    assert render_report(json.loads(json.dumps(full))) == full_html
    assert " at 0x" not in full_html
    source = tmp_path / "summary.json"
    source.write_text(json.dumps(full), encoding="utf-8")
    one = write_report(full, tmp_path / "a" / "one.html")
    two = write_report(source, tmp_path / "two.html")
    assert one.read_bytes() == two.read_bytes() == full_html.encode()
    with pytest.raises(OSError, match=r"page\.pdf.: .*HTML page"):
        write_report(full, tmp_path / "page.pdf")
    assert not (tmp_path / "page.pdf").exists()


def test_sections_without_content_are_left_out():
    page = Page(render_report(summarize(crowd()[0])))
    assert {"data", "classes", "labels", "annotators", "common_confusions"} <= set(page.ids)
    assert not {"training", "gold", "learnt_confusion", "unexpected"} & set(page.ids)
    page.check_harmless()


def test_an_empty_table_has_a_page():
    table = AnnotationTable.from_matrix(np.full((3, 2), -1), classes=["a", "b"])
    summary = summarize(table, gold=["a", "b", "a"])
    assert summary["warnings"] == [
        {"code": "empty", "text": "There are no observed annotations to report on."}
    ]
    page = Page(render_report(summary))
    page.check_harmless()
    assert "labels" not in page.ids
    Page(render_report(summarize(np.zeros((0, 2), dtype=int)))).check_harmless()


def test_one_class_one_annotator_one_annotation():
    for A in ([[0]], [[0, -1], [0, 0]], [["a"]]):
        Page(render_report(summarize(np.array(A)))).check_harmless()


def hostile():
    """A page with every section, and a small one for each title."""
    rng = np.random.default_rng(0)
    A = rng.choice(np.array(EVIL, dtype=object), size=(30, len(EVIL)))
    table = AnnotationTable.from_matrix(
        A,
        classes=[*EVIL, "never <b>given</b>"],
        annotators=EVIL,
        instances=[f"{EVIL[k % len(EVIL)]}{k}" for k in range(30)],
    )
    rows = [{"stage": EVIL[k % 3], "epoch": k, EVIL[0]: k, EVIL[8]: 1.0} for k in range(4)]
    c, r = table.n_classes, table.n_annotators
    grid = rng.dirichlet(np.ones(c), size=(30, r))
    classifier = FakeClassifier(
        table,
        rng,
        history_=rows,
        common_confusion_=np.eye(c),
        common_proportion_=np.ones(r),
        predict_annotation_proba=lambda X: grid[X[:, 0]],
    )
    classifier.get_params = lambda deep=True: dict.fromkeys(EVIL, EVIL[1])
    aggregator = DawidSkene().fit(table)
    gold = rng.choice(np.array(EVIL, dtype=object), size=30)
    full = summarize(
        table,
        aggregator=aggregator,
        classifier=classifier,
        X=numbered(table),
        gold=gold,
        title=EVIL[0],
    )
    small = table[:2].select(annotators=np.arange(3))
    return [full, *(summarize(small, title=title) for title in EVIL)]


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_hostile_names_are_harmless():
    for summary in hostile():
        html = render_report(summary)
        Page(html).check_harmless()
        html.encode()
        assert json.loads(json.dumps(summary, allow_nan=False)) == summary
        for character in "\u202e\u200b\x00":
            assert character not in html
        assert "x" * 400 not in html
        assert "{{ 7 * 7 }}" in html


def test_hostile_text_in_charts_is_escaped():
    series = {"name": EVIL[1], "points": [[1, 0.0], [2, None], [3, 1.0]], "first": 0.0, "last": 1.0}
    svg = curves({"name": EVIL[0], "series": [series]}, [], 3)
    assert "<script" not in svg
    assert "<img" not in svg
    svg = count_bars([{"from": 1, "to": 1, "count": 2}], EVIL[0], EVIL[1], EVIL[4])
    Page(svg)
    assert "<script" not in svg


def test_text_can_be_read_on_every_cell():
    css = (resources.files("manyhands.report") / "templates" / "report.css").read_text()
    light, dark = (
        dict(re.findall(r"--([a-z-]+): ([^;]+);", block))
        for block in re.findall(r":root \{(.*?)\}", css, flags=re.DOTALL)[:2]
    )
    for scheme in (light, dark):
        ink, quiet, paper = (hex_colour(scheme[key]) for key in ("ink", "quiet", "paper"))
        assert contrast(ink, paper) > 12
        assert contrast(quiet, paper) > 4.5
        for ground in ("paper", "panel", "look"):
            for text in ("ink", "quiet", "accent", "warm", "green"):
                assert contrast(hex_colour(scheme[text]), hex_colour(scheme[ground])) > 4.5
        # Borders of buttons, and the line on which the headline's interval lies.
        assert contrast(hex_colour(scheme["field"]), hex_colour(scheme["paper"])) > 3
        assert contrast(ink, hex_colour(scheme["look"])) > 7
        for key in ("heat-right", "heat-wrong"):
            heat = np.array([int(v) for v in scheme[key].split()])
            for v in np.linspace(0, 1, 21):
                assert contrast(ink, v * heat + (1 - v) * paper) > 4.5


def hex_colour(text):
    return np.array([int(text[k : k + 2], 16) for k in (1, 3, 5)])


def contrast(a, b):
    """Contrast ratio of WCAG 2."""

    def luminance(colour):
        c = np.asarray(colour) / 255
        return np.where(c <= 0.03928, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [
            0.2126,
            0.7152,
            0.0722,
        ]

    high, low = sorted([luminance(a), luminance(b)], reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_another_version_is_refused(full, tmp_path):
    with pytest.raises(ValueError, match="version"):
        render_report({**full, "version": 2})
    with pytest.raises(ValueError, match="version"):
        render_report({})
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(ValueError, match=r"broken\.json"):
        write_report(broken, tmp_path / "x.html")
    assert not (tmp_path / "x.html").exists()


# -- size -----------------------------------------------------------------------------------------


def test_many_annotators_are_cut_and_it_is_said():
    rng = np.random.default_rng(0)
    n, m = 300, 2000
    pairs = np.unique(rng.integers(n, size=m) * 1500 + rng.integers(1500, size=m))
    table = AnnotationTable.from_arrays(
        pairs // 1500, pairs % 1500, rng.integers(4, size=len(pairs)),
        n_instances=n, n_annotators=1500,
    )  # fmt: skip
    summary = summarize(table)
    html = render_report(summary)
    section = summary["annotators"]
    assert (section["total"], section["shown"]) == (1500, LIMITS["annotators"])
    assert section["rest"]["n"] == 1300
    counted = sum(row["n_annotations"] for row in section["rows"])
    assert counted + section["rest"]["n_annotations"] == len(pairs)
    assert "The other 1,300\u00a0annotators gave" in html
    assert len(html) < 1_000_000


def test_many_classes_have_pairs_instead_of_matrices():
    rng = np.random.default_rng(0)
    table = AnnotationTable.from_matrix(rng.integers(150, size=(200, 4)), classes=range(150))
    summary = summarize(table)
    assert summary["common_confusions"]["matrix"] is None
    assert len(summary["common_confusions"]["pairs"]) == LIMITS["pairs"]
    assert summary["annotators"]["matrices"] is None
    assert summary["classes"]["shown"] == LIMITS["classes"]
    html = render_report(summary)
    Page(html).check_harmless()
    assert len(html) < 500_000


# -- words and charts -----------------------------------------------------------------------------


def test_words():
    assert [percent(p) for p in (0, 0.001, 0.5, 0.999, 1, None)] == [
        *("0\u202f%", "<1\u202f%", "50\u202f%", ">99\u202f%", "100\u202f%", "\u2013")
    ]
    assert [fine_percent(p) for p in (0, 2e-5, 0.001, 0.0949, 0.0951, 1, None)] == [
        *(
            "0\u202f%",
            "<0.01\u202f%",
            "0.10\u202f%",
            "9.5\u202f%",
            "10\u202f%",
            "100\u202f%",
            "\u2013",
        )
    ]
    assert [duration(s) for s in (4.25, 200, 7500)] == [
        *("4.2\u00a0s", "3\u00a0min 20\u00a0s", "2\u00a0h 5\u00a0min")
    ]
    assert visible("a\u202eb\n\ud800") == r"a\u202eb\n\ud800"
    assert clipped("x" * 50, 10) == "x" * 9 + "…"
    assert clipped("  ") == "“  ”"
    assert name("a<b") == '<bdi class="name">a&lt;b</bdi>'
    assert 'title="' in name("x" * 50)


def test_ticks_enclose_and_are_round():
    rng = np.random.default_rng(0)
    cases = [(0, 0), (5, 5), (-1e-5, 0), (1e9, 1e9 + 1), (-3, 7), *rng.normal(size=(200, 2))]
    for a, b in cases:
        low, high = min(a, b), max(a, b)
        ticks = nice_ticks(low, high)
        span = ticks[-1] - ticks[0]
        assert ticks[0] <= low + 1e-6 * span
        assert high - 1e-6 * span <= ticks[-1]
        assert 2 <= len(ticks) <= 8


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1.0, 1.0, [1, 2]),
        (3.0, 40.0, [2, 5, 10, 20, 50]),
        (1.0, 1000.0, [1, 10, 100, 1000]),
        (0.02, 9.0, [0.01, 0.1, 1, 10]),
        (1e-12, 1.0, [1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1]),
    ],
)
def test_ticks_of_a_logarithmic_axis_enclose_it(low, high, ticks):
    assert log_ticks(low, high) == ticks


def test_histograms_of_counts_hold_everything():
    rng = np.random.default_rng(0)
    for top in (0, 1, 12, 13, 99, 100, 101, 54_321):
        counts = rng.integers(top + 1, size=500)
        bins = count_histogram(counts)
        assert sum(b["count"] for b in bins) == 500
        assert len(bins) <= 20
        assert all(b["to"] + 1 == c["from"] for b, c in pairwise(bins))


def test_the_comparison_of_methods_is_shown_with_its_doubts():
    table = np.array([[0, 0, 1], [1, 1, 1], [0, -1, 0]])
    summary = summarize(table, selection=replace(compared(), reason_="Two holds shares"))
    assert summary["selection"]["candidates"][1]["z"] == 0.5
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    page = render_report(summary)
    del summary["selection"]["reason"]  # As earlier versions saved it.
    assert "Two holds shares" not in render_report(summary)
    for text in (
        "Doubt it.",
        "Two holds shares.",
        "cannot be trained",
        '<td class="n">85',
        "do not show whether it is better than",
    ):
        assert text in page
    assert "<b>one</b>" not in page.replace("&lt;b&gt;one&lt;/b&gt;", "")
    assert summarize(table)["selection"] is None
    with pytest.raises(AnnotationError, match="selection is a str"):
        summarize(table, selection="best")


def test_sentences_are_apart():
    """Blocks that end a line take its end with them: the next sentence brings its blank."""
    folder = resources.files("manyhands.report") / "templates"
    for file in folder.iterdir():
        if not file.name.endswith(".html"):
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        written = [(line, re.sub(r"{%.*?%}", "", line)) for line in lines]
        written = [(line, text) for line, text in written if text.strip()]
        for (line, text), (_, after) in pairwise(written):
            if line.endswith("%}") and re.search(r"[.:;,?]$", text):
                assert after.lstrip().startswith("<") or after.startswith(" "), (file.name, line)


def test_reasons_why_nothing_is_known_are_no_headline():
    table = AnnotationTable.from_matrix([["x", "x"], ["y", "y"], ["x", "y"]])
    page = render_report(summarize(table))
    bold = re.search(r'<p class="level">(.*?)</p>\s*<p>(.*?)</p>', page)
    assert bold[1].startswith("It is not known how many of the ")
    assert bold[2].startswith("There are two annotators")


def test_one_label_is_no_plural():
    levels = {"n": 2, "n_known": 1, "labels": None, "n_units": 2}
    told = headline({"levels": levels, "data": {"n_classes": 2}})
    assert told.startswith("It is not known whether 1\xa0other label is right: there are two")


def test_gold_of_the_most_doubtful_labels_is_no_measurement():
    """The report says why the headline does not use it."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    table = make_crowd(y, n_annotators=10, annotations_per_instance=5, random_state=0)
    model = DawidSkene().fit(table)
    rows = np.argsort(model.posterior_.max(axis=1), kind="stable")[:30]
    gold = {int(i): int(y[i]) for i in rows}
    with pytest.warns(
        ChosenGoldWarning, match="30 gold labels are of items that are more in doubt"
    ):
        summary = summarize(table, aggregator=model, gold=gold)
    assert summary["levels"]["labels"]["source"] == "model"
    (told,) = (w["text"] for w in summary["warnings"] if w["code"] == "gold-chosen")
    assert "The share of right labels therefore leaves them out, because wrong labels are" in told
    assert told in html.unescape(render_report(summary))
    # The section of gold labels still tells how often the labels equal them, of these items alone.
    beside = (
        "These gold labels do not count as drawn at random, so the figures describe the items with"
    )
    assert summary["gold"]["n_chosen"] == 30
    page = html.unescape(render_report(summary))
    assert f"%. {beside} gold labels alone, and not the others." in page
    assert re.search(rf"</table>\s*</div>\s*<p>{beside}", page)
    drawn = {int(i): int(y[i]) for i in rng.choice(300, 30, replace=False)}
    measured = summarize(table, aggregator=model, gold=drawn)
    assert measured["gold"]["n_chosen"] == 0
    assert "so the figures describe" not in render_report(measured)
    assert measured["levels"]["labels"]["source"] == "gold"
    assert "gold-chosen" not in {w["code"] for w in measured["warnings"]}
