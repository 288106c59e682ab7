"""The section on people and models: the figures of `compare_judges`, and when there is none."""

import numpy as np
import pytest

from manyhands import AnnotationTable, render_report, summarize
from manyhands.agreement import compare_judges
from manyhands.metrics.mean_estimate import share_estimate
from manyhands.report import summarize_judges
from tests.report.conftest import Page


@pytest.fixture(scope="module")
def table():
    """Three people on half of the items, and two models on all."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 200)
    known = rng.random((200, 5)) < [0.8, 0.8, 0.8, 0.9, 0.2]
    A = np.where(known, truth[:, None], rng.integers(0, 3, (200, 5)))
    A[::2, :3] = -1
    classes = np.array(["<b>", "dog", "owl"])
    values = np.append(classes.astype(object), None)[A]
    names = ["anna", "ben", "cleo", "<gpt>", "llama"]
    return AnnotationTable.from_matrix(values, classes=classes.tolist(), annotators=names)


def test_the_section_says_what_the_comparison_found(table):
    declared = table.with_groups({"<gpt>": "llm", "llama": "llm"})
    summary = summarize(declared)
    own, expected = summary["judges"], compare_judges(declared)
    assert [row["name"] for row in own["judges"]] == ["<gpt>", "llama"]
    for row, judge in zip(own["judges"], expected.judges, strict=True):
        assert row["r"] == pytest.approx(judge.r)
        assert row["verdict"] == judge.verdict
    assert own["shares"]["n_labelled"] == 100
    html = render_report(summary)
    page = Page(html)
    page.check_harmless()
    text = " ".join(" ".join(page.text).split())
    assert "Can the models stand in for people?" in text
    assert "cannot stand in" in text
    assert f"{expected.judges[0].r:.2f}" in text


def test_the_estimates_of_the_command_are_those_of_a_call(table):
    declared = table.with_groups({"<gpt>": "llm", "llama": "llm"})
    shares = summarize_judges(declared, is_random=True)["shares"]
    assert shares["random"]
    assert shares | {"random": False} == summarize(declared)["judges"]["shares"]
    matrix = declared.to_matrix()
    owl = (matrix == "owl").astype(float)
    people, models = owl[1::2, :3].mean(axis=1), owl[:, 3:].mean(axis=1)  # The plain averages.
    found = share_estimate(people, models[1::2], models)
    row = next(row for row in shares["classes"] if row["label"] == "owl")
    assert (row["estimate"], row["low"], row["high"]) == pytest.approx(found[:3])


def test_means_are_of_the_values_that_are_given_and_questions_may_be_a_list(table):
    declared = table.with_groups({"<gpt>": "llm", "llama": "llm"})
    values, question = np.array([0.0, 10.0, 50.0]), ["first"] * 100 + ["second"] * 100
    shares = summarize_judges(declared, values=values, question=question)["shares"]
    codes = declared.to_matrix(codes=True)[1::2, :3].astype(int)
    assert shares["mean"]["people_alone"] == pytest.approx(values[codes].mean())
    assert [row["question"] for row in shares["means"]] == ["first", "second"]


def test_grades_are_compared_with_those_of_people(table):
    codes = table.to_matrix(codes=True).astype(int)
    graded = AnnotationTable.from_matrix(
        codes, ordered=True, annotators=table.annotators.tolist()
    ).with_groups({"<gpt>": "llm", "llama": "llm"})
    summary = summarize(graded)
    html = render_report(summary)
    mean = summary["judges"]["shares"]["mean"]
    assert f"The mean of all 200 items is {mean['estimate']:.2f} ({mean['low']:.2f} to" in html
    judge = compare_judges(graded).judges[0]
    way = "lower" if judge.bias < 0 else "higher"
    assert f"{abs(judge.bias):.2f} grades {way}" in html


@pytest.mark.parametrize("groups", [None, {}, {"<gpt>": "llm"}])
def test_without_families_there_is_no_section(table, groups):
    assert summarize(table if groups is None else table.with_groups(groups))["judges"] is None


def test_without_two_people_on_ten_items_there_is_no_section(table):
    A = table.to_matrix()
    A[:, 1:3] = None
    alone = AnnotationTable.from_matrix(A, classes=table.classes, annotators=table.annotators)
    assert summarize(alone.with_groups({"<gpt>": "llm", "llama": "llm"}))["judges"] is None
