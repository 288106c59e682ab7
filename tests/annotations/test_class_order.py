"""The order of classes that are found: by numbers, by a known scale, or as text."""

import logging

import numpy as np
import pandas as pd
import pytest

from manyhands import AnnotationTable
from manyhands.agreement import cohen_kappa, gwet_ac2, krippendorff_alpha, mean_cohen_kappa, summary
from manyhands.annotations.class_order import close_to, number_of, order_of, places_of
from manyhands.exceptions import AnnotationError


def long_frame(labels, n_workers=2):
    labels = list(labels)
    rows = range(len(labels))
    return pd.DataFrame(
        {
            "task": [i // n_workers for i in rows],
            "worker": [i % n_workers for i in rows],
            "label": labels,
        }
    )


def found(labels):
    """Classes of labels that come in an order of their own, each given twice."""
    shuffled = np.random.default_rng(0).permutation([*labels, *labels]).tolist()
    return AnnotationTable.from_frame(long_frame(shuffled))


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        (["2 - low", "10 - high"], "numbers"),
        ([f"{k} - level" for k in range(1, 11)], "numbers"),
        (["5%", "20%", "100%"], "numbers"),
        (["grade 2", "grade 3", "grade 10"], "numbers"),
        (["-2", "-1", "0", "1", "2"], "numbers"),
        (["-1 - bad", "0 - so", "1 - good"], "numbers"),
        (["<18", "18-24", "25-34", ">80"], "numbers"),
        (["500-1,000", "1,000-5,000", "10,000-20,000"], "numbers"),
        (["$5", "$10", "$100"], "numbers"),
        (["1st", "2nd", "10th"], "numbers"),
        (["low", "medium", "high"], "known"),
        (["very low", "low", "medium", "high", "very high"], "known"),
        (["Low risk", "Medium risk", "High risk"], "known"),
        (["Risk: low", "Risk: mid", "Risk: high"], "known"),
        (
            ["Strongly disagree", "Disagree", "Neutral", "Agree", "Strongly agree"],
            "known",
        ),
        (
            [
                "Strongly disagree",
                "Somewhat disagree",
                "Neither agree nor disagree",
                "Somewhat agree",
                "Strongly agree",
            ],
            "known",
        ),
        (["disagree strongly", "disagree", "agree", "agree strongly"], "known"),
        (["never", "rarely", "sometimes", "often", "always"], "known"),
        (["poor", "fair", "good", "very good", "excellent"], "known"),
        (["none", "mild", "moderate", "severe"], "known"),
        (["VERY UNLIKELY", "UNLIKELY", "LIKELY", "VERY LIKELY"], "known"),
        (["very negative", "negative", "neutral", "positive", "very positive"], "known"),
        (["not at all useful", "slightly useful", "very useful"], "known"),
        (["not toxic", "toxic", "very toxic"], "known"),
        (["pants-fire", "false", "barely-true", "half-true", "mostly-true", "true"], "known"),
        (["stage I", "stage II", "stage V", "stage IX"], "known"),
        (["S", "M", "L", "XL"], "known"),
        (["cat", "dog", "mouse"], "sorted"),
        (["maybe", "no", "yes"], "sorted"),
        (["rock 2", "pop 10"][::-1], "sorted"),
        (["high", "low", "medium", "unknown"], "sorted"),
    ],
)
def test_classes_come_in_their_order(labels, order):
    table = found(labels)
    assert table.classes.tolist() == labels
    assert table.class_order == order
    again = AnnotationTable.from_arrays(*(getattr(table, n) for n in ("instance", "annotator")),
                                        table.classes[table.label])  # fmt: skip
    assert again.classes.tolist() == labels
    wide = AnnotationTable.from_matrix(np.array([labels, labels[::-1]], dtype=object))
    assert wide.classes.tolist() == labels


def test_an_order_that_is_given_stays():
    labels = ["high", "low", "medium"]
    assert AnnotationTable.from_frame(long_frame(labels * 2), classes=labels).class_order == "given"
    frame = long_frame(labels * 2)
    frame["label"] = pd.Categorical(frame["label"], ["low", "high", "medium"])
    table = AnnotationTable.from_frame(frame)
    assert (table.classes.tolist(), table.class_order) == (["low", "high", "medium"], "given")
    frame["label"] = frame["label"].astype(str).astype("category")  # Sorted, which says nothing.
    assert AnnotationTable.from_frame(frame).class_order == "sorted"
    frame["label"] = pd.Categorical(["1 - a", "10 - b", "2 - c"] * 2)
    assert AnnotationTable.from_frame(frame).class_order == "sorted"
    assert order_of(np.array(["agree", "disagree"])) == "known"
    assert order_of(np.array(["cat", "dog", "mouse"])) == "sorted"
    assert order_of(np.array(["dog", "cat", "mouse"])) == "given"


def test_the_order_survives_selections_and_additions():
    table = found(["low", "medium", "high"])
    for other in (table.take([0, 1]), table[:2], table.select(annotators=[0]), table.observed):
        assert (other.class_order, other.scale) == ("known", "ordinal")


def test_a_known_order_is_said(caplog):
    with caplog.at_level(logging.INFO, "manyhands"):
        found(["low", "medium", "high"])
        assert "low < medium < high" in caplog.text
        caplog.clear()
        found(["cat", "dog", "mouse"])
        found(["1 - a", "2 - b", "10 - c"])
        assert not caplog.text


@pytest.mark.parametrize(
    "statistic",
    [
        lambda t: krippendorff_alpha(t, level="ordinal"),
        lambda t: gwet_ac2(t),
        lambda t: gwet_ac2(t, weights="linear"),
        lambda t: cohen_kappa(t, weights="quadratic"),
        lambda t: mean_cohen_kappa(t, weights="quadratic"),
        lambda t: summary(t, scale="ordinal"),
    ],
)
def test_statistics_of_grades_refuse_the_alphabet(statistic):
    labels = ["meh", "wow", "ugh", "meh", "wow", "wow"]
    with pytest.raises(AnnotationError, match=r"sorted as text, meh < ugh < wow.*classes="):
        statistic(AnnotationTable.from_frame(long_frame(labels)))
    statistic(AnnotationTable.from_frame(long_frame(labels), classes=["ugh", "meh", "wow"]))
    statistic(AnnotationTable.from_frame(long_frame(["no", "yes", "no", "no"])))  # No order needed.


def test_one_odd_label_among_grades_is_named():
    labels = [*map(str, range(1, 11)), *map(str, range(1, 11)), "N/A", "10"]
    with pytest.warns(UserWarning, match="'N/A'"):
        table = AnnotationTable.from_frame(long_frame(labels))
    assert table.classes.tolist() == [*map(str, range(1, 11)), "N/A"]
    with pytest.raises(AnnotationError, match=r"'N/A' has no place.*abstain='N/A'"):
        krippendorff_alpha(table, level="ordinal")
    passed = AnnotationTable.from_frame(long_frame(labels), abstain="N/A")
    assert krippendorff_alpha(passed, level="ordinal") <= 1


def test_ordinal_agreement_on_tables_is_that_of_the_grades():
    rng = np.random.default_rng(3)
    truth = rng.integers(5, size=60)
    given = (truth[:, None] + rng.integers(-1, 2, (60, 3))).clip(0, 4)
    right = krippendorff_alpha(AnnotationTable.from_matrix(given), level="ordinal")
    words = np.array(["very low", "low", "medium", "high", "very high"])
    numbered = np.array(["8 - a", "9 - z", "10 - b", "11 - y", "100 - c"])
    for names in (words, numbered):
        table = AnnotationTable.from_matrix(names[given].astype(object))
        assert krippendorff_alpha(table, level="ordinal") == pytest.approx(right, abs=1e-12)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("3", 3.0), (" -1.50 ", -1.5), ("0,5", 0.5), ("1,000", 1000.0), ("1e-3", 0.001)],
        *[(".5", 0.5), (7, 7.0), ("5%", None), ("1-2", None), ("", None), (True, None)],
    ],
)
def test_numbers_are_read_from_text(text, number):
    assert number_of(text) == number


def test_near_values_are_found():
    assert close_to("0.0", [0, 1]) == [0]
    assert close_to("unsure", ["Unsure", "yes"]) == ["Unsure"]
    assert close_to("unsrue", ["unsure", "yes"]) == ["unsure"]
    assert close_to("broken", ["yes", "no"]) == []


def test_odd_ones_are_few():
    assert places_of(["low", "medium", "high", "n/a"]).odd == [3]
    assert places_of(["low", "cat", "dog", "n/a"]).odd == []


def test_numbers_in_scientific_notation_have_their_place():
    values = [0.9, 1e-5, 0.5, 2e-5, 0.4]
    frame = pd.DataFrame({"task": range(5), "worker": "w", "label": values})
    table = AnnotationTable.from_frame(frame, scale="ordinal")
    assert [float(value) for value in table.classes] == sorted(values)


def test_alpha_is_of_the_scale_that_was_stated():
    frame = pd.DataFrame(
        {"task": [0, 0, 1, 1, 2, 2], "worker": list("ababab"), "label": [1, 2, 3, 3, 5, 4]}
    )
    for scale in ("nominal", "ordinal", "interval"):
        table = AnnotationTable.from_frame(frame, scale=scale)
        assert krippendorff_alpha(table) == krippendorff_alpha(table, level=scale)
