"""What `manyhands judges` says of all items is true as often as told, also of drawn documents."""

import numpy as np
import pytest

from manyhands import AnnotationTable
from manyhands.agreement import compare_judges
from manyhands.exceptions import silenced
from manyhands.metrics.mean_estimate import drawn_for_half, mean_estimate
from manyhands.report.judges import shares_of


def in_documents(rng, n_documents=80, size=8):
    """Grades 1 to 5 by two people and two models, who agree within a document; and the document."""
    document = np.repeat(np.arange(n_documents), size)
    n = len(document)
    truth = 3 + rng.normal(size=n_documents)[document] * 0.8 + rng.normal(size=n) * 0.6
    own = [truth + rng.normal(size=n) * 0.5 for _ in range(2)]
    own += [0.5 * truth + 1 + rng.normal(size=n) * 0.7 for _ in range(2)]
    return np.clip(np.round(own), 1, 5).astype(int).T, np.array([0, 0, 1, 1]), document


def of_a_set(frame):
    """Grades of people and models, which annotators are models, and the document of each item."""
    wide = frame.pivot_table(index="task", columns="worker", values="label", aggfunc="first")
    about = frame.drop_duplicates("task").set_index("task").loc[wide.index]
    models = set(frame.worker[frame.family == "llm"])
    is_model = np.array([name in models for name in wide.columns], dtype=int)
    return wide.fillna(-1).to_numpy(int), is_model, about.cluster.to_numpy()


def coverage(grades, is_model, document, n_drawn, runs):
    """Shares of the intervals that hold the truth, with and without the documents as clusters."""
    rng = np.random.default_rng(1)
    people = np.ma.masked_less(grades[:, is_model == 0], 0)
    truth = {k: (people == k).mean(axis=1).mean() for k in range(1, 6)}
    truth["mean"] = people.mean(axis=1).mean()
    bias = (grades.T - people.mean(axis=1)).mean(axis=1)
    names = [f"gpt-{k}" if model else f"person{k}" for k, model in enumerate(is_model)]
    families = {name: "llm" for name in names if name.startswith("gpt")}
    hits = {(how, what): [] for how in ("with", "without") for what in ("mean", "shares")}
    hits["with", "bias"] = []
    for _ in range(runs):
        drawn = np.isin(document, rng.choice(np.unique(document), n_drawn, replace=False))
        given = np.where(drawn[:, None] | (is_model == 1), grades, -1)
        table = AnnotationTable.from_matrix(
            given, classes=range(1, 6), annotators=names, ordered=True
        ).with_groups(families)
        with silenced():
            found = compare_judges(table, cluster=document)
        hits["with", "bias"] += [
            judge.bias_low <= bias[names.index(judge.name)] <= judge.bias_high
            for judge in found.judges
        ]
        for how, cluster in (("with", document), ("without", None)):
            shares = shares_of(table, found, cluster=cluster)
            hits[how, "mean"].append(held(shares["mean"], truth["mean"]))
            hits[how, "shares"] += [held(row, truth[row["label"]]) for row in shares["classes"]]
    return {key: float(np.mean(each)) for key, each in hits.items()}


def held(row, truth):
    return row["low"] <= truth <= row["high"]


def test_intervals_of_drawn_documents_hold_as_often_as_told_and_not_without_the_clusters():
    found = coverage(*in_documents(np.random.default_rng(0)), n_drawn=20, runs=120)
    assert found["with", "mean"] >= 0.92
    assert found["with", "shares"] >= 0.92
    assert found["with", "bias"] >= 0.92
    assert found["without", "mean"] <= 0.8
    assert found["without", "shares"] <= 0.88


def half(grades, is_model, document, n_drawn):
    """Width of the mean's interval if as many documents are drawn as told, over the width now."""
    people = np.ma.masked_less(grades[:, is_model == 0], 0).mean(axis=1).filled(np.nan)
    models = np.ma.masked_less(grades[:, is_model == 1], 0).mean(axis=1).filled(np.nan)
    known = np.isfinite(people) & np.isfinite(models)
    people, models, document = people[known], models[known], document[known]
    every, rng = np.unique(document), np.random.default_rng(2)

    def width(k):
        found = []
        for _ in range(60):
            drawn = np.isin(document, rng.choice(every, k, replace=False))
            one = mean_estimate(people[drawn], models[drawn], models, cluster=document[drawn])
            found.append(one.high - one.low)
        return np.mean(found)

    return width(drawn_for_half(n_drawn, len(every))) / width(n_drawn)


@pytest.mark.parametrize("n_drawn", [12, 20, 40])
def test_as_many_documents_as_told_make_the_interval_half_as_wide(n_drawn):
    assert half(*in_documents(np.random.default_rng(1)), n_drawn) == pytest.approx(0.5, abs=0.04)


@pytest.mark.data
@pytest.mark.parametrize("question", ["coherence", "consistency", "fluency", "relevance"])
def test_as_many_articles_of_a_real_set_make_the_interval_half_as_wide(data_home, question):
    import pandas as pd

    frame = pd.read_csv(data_home / "judges" / "summeval" / "annotations.csv")
    frame = frame[frame.question == question]
    assert half(*of_a_set(frame), n_drawn=30) == pytest.approx(0.5, abs=0.05)


@pytest.mark.data
@pytest.mark.parametrize("question", ["coherence", "relevance", None])
def test_intervals_of_drawn_articles_of_a_real_set(data_home, question):
    """Three experts and six models; 16 summaries of each of 100 articles."""
    import pandas as pd

    frame = pd.read_csv(data_home / "judges" / "summeval" / "annotations.csv")
    frame = frame if question is None else frame[frame.question == question]
    found = coverage(*of_a_set(frame), n_drawn=30, runs=40)
    assert found["with", "mean"] >= 0.9
    assert found["with", "shares"] >= 0.9
    assert found["with", "bias"] >= 0.9
    assert found["without", "mean"] <= 0.85
    assert found["without", "shares"] <= 0.9
