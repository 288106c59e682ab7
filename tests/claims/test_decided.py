"""What is told of the labels that a threshold does not leave open, on simulated and real tables.

The share of right labels is known from each source in turn: how annotators agree, gold labels, and
a random sample that a person checked.
"""

import re
import warnings
from itertools import product

import numpy as np
import pytest

from benchmarks.real_tables import real
from manyhands import AnnotationTable, DawidSkene
from manyhands.io import GoldFile
from manyhands.jobs import aggregate_table
from manyhands.report import render_report, summarize
from manyhands.report.filters import count, percent_range
from manyhands.report.labels import told_of_usable

SOURCES = ("model", "gold", "sample")
N_CHECKED = 40


def told_and_true(table, y, source, threshold, seed):
    """What `aggregate --threshold` says of the labels that it decides, and the truth."""
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(y >= 0))[:N_CHECKED]
    chosen = np.array(["random"] * len(rows), dtype=object)
    checked = GoldFile(table.instances[rows], table.classes[y[rows]], chosen=chosen)
    given = {"gold": {"gold": checked}, "sample": {"known": checked}}.get(source, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = aggregate_table(table, DawidSkene(), threshold=threshold, **given)
    headline, level = found["decided"]["headline"], found["decided"]["level"]
    if level is None:
        assert headline.startswith(("Every label was left open", "Only known labels"))
        return None
    assert level["source"] == source
    code = {value: k for k, value in enumerate(table.classes.tolist())}
    codes = np.array([code.get(row["label"], -1) for row in found["labels"]])
    known = np.isin(np.arange(len(y)), rows) & (source == "sample")
    decided = (codes >= 0) & ~known
    judged = decided & (y >= 0)
    told = np.array([row["probability"] for row in found["labels"]])[decided]
    assert told.mean() == pytest.approx(level["value"], abs=1e-6)
    assert f"{percent_range(level)} of the {count(int(decided.sum()), 'label')} that" in headline
    if source == "gold" and "estimated from" in headline:  # And beside it, what is measured.
        own = np.isin(np.arange(len(y)), rows) & decided
        n, right = int(own.sum()), int((codes == y)[own].sum())
        assert (f"Only {n} of these labels" in headline) == (0 < n < N_CHECKED)
        assert (
            not n
            or n == N_CHECKED
            or f"({right} {'is' if right == 1 else 'are'} right)" in headline
        )
    return level, float((codes == y)[judged].mean())


def crowd(seed, n=300, n_classes=4):
    """A crowd that errs by chance, and makes the same mistake on some items, as real crowds do."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    hard = rng.random(n) < rng.uniform(0.1, 0.3)
    looks = np.where(hard, (y + rng.integers(1, n_classes, size=n)) % n_classes, y)
    skill = rng.beta(6, 3, size=30)
    rows = [(i, j) for i in range(n) for j in rng.choice(30, rng.integers(3, 6), replace=False)]
    i, j = np.array(rows).T
    seen = np.where(rng.random(len(i)) < 0.5, looks[i], y[i])
    given = np.where(rng.random(len(i)) < skill[j], seen, rng.integers(n_classes, size=len(i)))
    return AnnotationTable.from_arrays(i, j, given, classes=range(n_classes)), y


def check(found):
    """The intervals hold the truth as often as they say, but for chance, with hardly any bias."""
    found = [each for each in found if each is not None]
    inside = [level["low"] <= true <= level["high"] for level, true in found]
    assert np.mean(inside) >= 0.95 - 2 * np.sqrt(0.95 * 0.05 / len(inside))
    assert abs(np.mean([level["value"] - true for level, true in found])) < 0.06


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("threshold", [0.8, 0.9])
def test_the_share_told_of_decided_labels_is_theirs(source, threshold):
    check(
        [
            told_and_true(*crowd(seed), source, threshold, seed)
            for seed in range(8 if source == "sample" else 16)
        ]
    )


@pytest.mark.data
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["dog", "music", "labelme"])
def test_the_share_told_of_decided_labels_is_theirs_on_real_tables(data_home, source, name):
    case, cells = real(name), product((0.8, 0.9), range(1 if source == "model" else 3))
    check([told_and_true(case.table, case.gold, source, *cell) for cell in cells])


def test_the_threshold_that_is_proposed_keeps_what_it_promises(tmp_path):
    """The report, the terminal and the next run name the same number of labels and share."""
    table, _ = crowd(0)
    found = aggregate_table(table, DawidSkene(), out=tmp_path / "labels")
    assert not found["actions"]["accept"]
    said = found["usable"]
    page = (tmp_path / "labels" / "report.html").read_text(encoding="utf-8")
    assert said in re.sub("<[^>]*>", "", page)
    assert 'href="#table-labels-cutoffs"' in page
    assert 'id="table-labels-cutoffs"' in page
    n, of, share, threshold = re.search(
        r"^([\d,]+) of ([\d,]+) labels .* about (.*\)) of these .* --threshold ([\d.]+)\.$", said
    ).groups()
    next_run = aggregate_table(table, DawidSkene(), threshold=float(threshold))
    assert (int(n), int(of)) == (len(table.instances) - next_run["n_undecided"], 300)
    assert f"About {share} of the {n}\xa0labels" in next_run["decided"]["headline"]
    assert not aggregate_table(table, DawidSkene())["usable"]


def test_a_summary_of_an_earlier_version_has_no_such_sentence():
    table, _ = crowd(0)
    summary = summarize(table, aggregator=DawidSkene().fit(table))
    assert "To keep only these" in render_report(summary)
    for row in summary["labels"]["confidence"]["cutoffs"]:
        for name in ("of", "low", "high", "is_measured"):
            del row[name]
    assert "To keep only these" not in render_report(summary)


def test_an_item_without_annotations_is_not_left_open_by_a_threshold():
    table, _ = crowd(0)
    A = np.vstack([table.to_matrix(codes=True), np.full((1, table.n_annotators), -1)])
    found = aggregate_table(
        AnnotationTable.from_matrix(A, classes=table.classes), DawidSkene(), threshold=0.0
    )
    assert found.get("decided") is None


def test_a_person_who_needs_nine_in_ten_is_told_of_the_most_labels():
    row = {"of": 1000, "is_measured": False}
    cutoffs = [
        row | {"at_least": 0.95, "n": 30, "expected": 0.97},
        row | {"at_least": 0.9, "n": 300, "expected": 0.93},
        row | {"at_least": 0.8, "n": 600, "expected": 0.905},
        row | {"at_least": 0.7, "n": 900, "expected": 0.84},
    ]

    def told(accepted, cutoffs=cutoffs, n_known=0, **levels):
        actions = {"accept": accepted + n_known, "review": 1000 - accepted, "collect more": 0}
        labels = {"actions": actions, "kind": "aggregator", "confidence": {"cutoffs": cutoffs}}
        return told_of_usable({"labels": labels, "levels": {"n_known": n_known, **levels}})

    for accepted in (0, 25, 499):
        assert told(accepted).startswith("600 of 1,000 labels are at least 80\u202f% certain, and")
    assert told(0).endswith("with --threshold 0.8.")
    assert told(10, n_known=600).startswith("600 of 1,000 other labels")
    assert not told(500)  # Half of the labels are accepted as it is.
    assert not told(0, decided={"headline": "A threshold was given."})
    assert told(0, cutoffs[3:]).startswith("900 of")  # The nearest to nine in ten.
    assert told(0, [cutoffs[0], cutoffs[3]]).startswith("900 of")  # Not the hardly any.
    assert not told(30, cutoffs[:1])  # Those are accepted already.
