import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from torch.utils.data import Dataset

from manyhands import (
    AggregatedClassifier,
    AnnotationTable,
    CoNALClassifier,
    CrowdInGClassifier,
    CrowdInGProtocol,
    CrowdLayerClassifier,
    DawidSkene,
    SelfTrainingCrowdClassifier,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.report import expected_answers, render_report, summarize
from manyhands.report.expected_answers import find_expectations
from manyhands.report.limits import LIMITS

BY_HAND = np.array(
    [
        [[0.90, 0.07, 0.03], [0.50, 0.50, 0.00]],
        [[0.02, 0.04, 0.94], [0.18, 0.32, 0.50]],
        [[0.25, 0.25, 0.50], [1.00, 0.00, 0.00]],
    ]
)


class Fake:
    """A classifier of somebody: classes, predictions, and a grid of what annotators give."""

    def __init__(self, grid, classes, proba=None):
        self.grid = np.asarray(grid)
        self.classes_ = np.array(classes)
        self.proba = self.grid.mean(axis=1) if proba is None else np.asarray(proba)
        self.sizes = []

    def predict_proba(self, X):
        return self.proba

    def predict_annotation_proba(self, X):
        rows = [int(X[i][0]) for i in range(len(X))] if not sparse.issparse(X) else (
            X.toarray()[:, 0].astype(int)
        )  # fmt: skip
        self.sizes.append(len(rows))
        return self.grid[rows]


class ByPairs(Fake):
    """The same, which tells pairs apart from others by itself."""

    predict_annotation_proba = None

    def predict_observed_proba(self, X, table):
        assert len(X) == table.n_instances
        self.sizes.append(table.n_annotations)
        return self.grid[table.instance, table.annotator]


def column(n):
    return np.arange(n)[:, None]


def crowd(n=300, r=6, c=4, seed=0):
    """Good annotators, whose model is known: 90 % right; all annotate everything."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(c, size=n)
    A = np.where(rng.random((n, r)) < 0.9, gold[:, None], rng.integers(c, size=(n, r)))
    grid = np.full((n, r, c), 0.1 / c)
    grid[np.arange(n), :, gold] += 0.9
    return A, gold, grid


# -- by hand --------------------------------------------------------------------------------------


def test_probabilities_by_hand():
    table = AnnotationTable.from_matrix(
        [[2, 0], [0, 1], [2, -1]], annotators=["ann", "bob"], classes=[0, 1, 2]
    )
    fake = Fake(BY_HAND, [0, 1, 2], [[0.8, 0.1, 0.1], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
    section = summarize(table, classifier=fake, X=column(3))["unexpected"]
    # Given: .03 of .9; .5 of .5, a tie; .02 of .94; .32 of .5; .5 of .5.
    assert (section["n"], section["n_second"], section["n_unexpected"]) == (5, 3, 2)
    assert section["n_second_foreseen"] == pytest.approx(0.10 + 0 + 0.06 + 0.5 + 0.5)
    assert section["n_unexpected_foreseen"] == pytest.approx(0.03 + 0 + 0.06 + 0 + 0)
    assert section["median"] == 0.32
    filled = {b["from"]: b["count"] for b in section["histogram"] if b["count"]}
    assert filled == {0.0: 2, 0.3: 1, 0.5: 2}
    assert section["least"] == {
        "total": 3,
        "shown": 3,
        "rows": [
            {
                "id": i,
                "annotator": annotator,
                "given": given,
                "given_probability": pytest.approx(p),
                "expected": expected,
                "expected_probability": pytest.approx(top),
                "predicted": predicted,
                "predicted_probability": pytest.approx(own),
            }
            for i, annotator, given, p, expected, top, predicted, own in [
                (1, "ann", 0, 0.02, 2, 0.94, 2, 0.7),
                (0, "ann", 2, 0.03, 0, 0.90, 0, 0.8),
                (1, "bob", 1, 0.32, 2, 0.50, 2, 0.7),
            ]
        ],
    }


def test_annotators_have_their_share():
    table = AnnotationTable.from_matrix([[2, 0], [0, 1], [2, -1]], annotators=["ann", "bob"],
                                        classes=[0, 1, 2])  # fmt: skip
    summary = summarize(table, classifier=Fake(BY_HAND, [0, 1, 2]), X=column(3))
    rows = {row["id"]: row["unexpected"] for row in summary["annotators"]["rows"]}
    assert rows["ann"] == {"n": 2, "foreseen": pytest.approx(0.03 + 0.06)}
    assert rows["bob"] == {"n": 0, "foreseen": 0}
    assert sum(row["n"] for row in rows.values()) == summary["unexpected"]["n_unexpected"]
    assert "Unexpected (predicted)" in render_report(summary)
    plain = summarize(table)
    assert all(row["unexpected"] is None for row in plain["annotators"]["rows"])
    assert "Unexpected" not in render_report(plain)


def test_slips_of_good_annotators_come_first():
    A, gold, grid = crowd()
    slips = [(17, 0), (170, 3), (299, 5)]
    for k, (i, r) in enumerate(slips):
        A[i, r] = (gold[i] + 1) % 4
        grid[i, r] = (0.0001 * (k + 1)) / 3
        grid[i, r, gold[i]] = 1 - 0.0001 * (k + 1)
    section = summarize(A, classifier=Fake(grid, range(4)), X=column(300))["unexpected"]
    found = [(row["id"], row["annotator"]) for row in section["least"]["rows"]]
    assert found[:3] == slips
    assert [row["expected"] for row in section["least"]["rows"][:3]] == [gold[i] for i, _ in slips]


def test_slips_are_found_by_a_trained_classifier():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=400)
    X = np.eye(3)[y] * 4 + rng.normal(size=(400, 3))
    A = np.where(rng.random((400, 5)) < 0.95, y[:, None], rng.integers(3, size=(400, 5)))
    A[:, 4] = rng.integers(3, size=400)  # of whom nothing is expected
    certain = np.argsort(-X[np.arange(400), y])[:3]
    A[certain, :4] = y[certain, None]
    A[certain, 1] = (y[certain] + 1) % 3
    ing = CrowdInGClassifier(
        max_epochs=10, protocol=CrowdInGProtocol(discriminator_epochs=1, adversarial_epochs=1)
    )
    for model in (CrowdLayerClassifier(max_epochs=15), ing):
        model.set_params(random_state=0, protocol__init_scale=2.0).fit(X, A)
        least = summarize(A, classifier=model, X=X)["unexpected"]["least"]["rows"]
        assert {(i, 1) for i in certain} <= {(row["id"], row["annotator"]) for row in least}
        assert all(row["annotator"] != 4 for row in least[:20])


def test_as_many_as_foreseen_where_the_model_is_right():
    rng = np.random.default_rng(1)
    grid = rng.dirichlet(np.full(5, 0.4), size=(2000, 6))
    A = (grid.cumsum(axis=2) < rng.random((2000, 6, 1))).sum(axis=2).clip(max=4)
    section = summarize(A, classifier=Fake(grid, range(5)), X=column(2000))["unexpected"]
    for name in ("n_unexpected", "n_second"):
        foreseen = section[f"{name}_foreseen"]
        assert abs(section[name] - foreseen) < 4 * np.sqrt(foreseen)


# -- order, limits, and what does not count -------------------------------------------------------


def test_ties_go_by_instance_annotator_and_class_whatever_the_order_of_rows():
    A, _, grid = crowd(n=80)
    table = AnnotationTable.from_matrix(A)
    fake = Fake(grid, range(4))
    first = summarize(table, classifier=fake, X=column(80))["unexpected"]
    shuffled = table.take(np.random.default_rng(3).permutation(table.n_annotations))
    again = summarize(shuffled, classifier=fake, X=column(80))["unexpected"]
    assert again["least"] == first["least"]
    pairs = [(row["id"], row["annotator"]) for row in first["least"]["rows"]]
    assert pairs == sorted(pairs)
    assert len(pairs) > 10


def test_a_repeated_pair_is_told_twice():
    table = AnnotationTable.from_arrays(
        [0, 0, 1], [0, 0, 0], [2, 1, 0], classes=[0, 1, 2], duplicates="keep"
    )
    grid = np.array([[[0.9, 0.05, 0.05]], [[0.9, 0.05, 0.05]]])
    rows = summarize(table, classifier=Fake(grid, [0, 1, 2]), X=column(2))["unexpected"]["least"]
    assert [row["given"] for row in rows["rows"]] == [1, 2]


def test_the_list_is_cut_and_it_is_said():
    A, gold, grid = crowd()
    wrong = int((gold[:, None] != A).sum())
    summary = summarize(A, classifier=Fake(grid, range(4)), X=column(300))
    assert summary["limits"]["unexpected"] == LIMITS["unexpected"] == 50
    least = summary["unexpected"]["least"]
    assert (least["total"], least["shown"], len(least["rows"])) == (wrong, 50, 50)
    assert f"Of {wrong} such annotations, 50 are shown." in " ".join(render_report(summary).split())
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_nothing_without_instances_or_expectations():
    A, _, grid = crowd(n=30)
    fake = Fake(grid, range(4))
    assert summarize(A, classifier=fake)["unexpected"] is None
    assert summarize(A)["unexpected"] is None
    lean = LogisticRegression().fit(column(30), A[:, 0])
    assert summarize(A, classifier=lean, X=column(30))["unexpected"] is None
    empty = AnnotationTable.from_matrix(np.full((30, 6), -1), classes=range(4))
    summary = summarize(empty, classifier=fake, X=column(30))
    assert summary["unexpected"] is None
    assert 'id="unexpected"' not in render_report(summary)


def test_nothing_unexpected_is_a_page_without_a_list():
    grid = np.full((4, 2, 2), 0.5)
    summary = summarize(np.array([[0, 1]] * 4), classifier=Fake(grid, [0, 1]), X=column(4))
    assert summary["unexpected"]["least"] == {"total": 0, "shown": 0, "rows": []}
    assert summary["unexpected"]["n_second_foreseen"] == 0
    html = render_report(summary)
    assert 'id="unexpected"' in html
    assert "Least probable" not in html


def test_passes_weights_and_what_programs_added_change_nothing():
    A, _, grid = crowd(n=40)
    A[:, 5] = -1
    table = AnnotationTable.from_matrix(A, classes=range(4))
    fake = Fake(grid, range(4))
    plain = summarize(table, classifier=fake, X=column(40))["unexpected"]
    weights = np.linspace(0.1, 3, table.n_annotations)
    passes = np.column_stack([np.arange(10), np.full(10, 5), np.arange(10) % 2])
    added = AnnotationTable.from_arrays(
        range(20), [5] * 20, [1] * 20,
        n_instances=40, classes=table.classes, annotators=table.annotators,
    )  # fmt: skip
    for other in (
        replace(table, weights=weights),
        replace(table, passes=passes),
        table.with_added(added.with_source("pseudo")),
    ):
        assert summarize(other, classifier=fake, X=column(40))["unexpected"] == plain


def test_classes_of_the_classifier_in_another_order_or_missing():
    A, _, grid = crowd(n=50, c=3)
    names = np.array(["ant", "bee", "cat"])
    table = AnnotationTable.from_matrix(names[A], classes=names)
    order = np.array([2, 0, 1])
    turned = Fake(grid[..., order], names[order])
    section = summarize(table, classifier=turned, X=column(50))["unexpected"]
    plain = summarize(table, classifier=Fake(grid, names), X=column(50))["unexpected"]
    assert section["least"] == plain["least"]
    assert section["n_second_foreseen"] == pytest.approx(plain["n_second_foreseen"])
    halves = np.full((50, 6, 2), 0.5)
    lacking = summarize(table, classifier=Fake(halves, ["ant", "cat"]), X=column(50))["unexpected"]
    rows = lacking["least"]["rows"]
    assert lacking["least"]["total"] == (A == 1).sum()
    assert {(r["given"], r["given_probability"], r["expected"]) for r in rows} == {
        ("bee", 0, "ant")
    }


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (np.full((30, 5, 4), 0.25), r"predict_annotation_proba\(X\) has shape \(30, 5, 4\)"),
        (np.full((30, 6, 3), 1 / 3), r"has shape \(30, 6, 3\); it must have shape \(30, 6, 4\)"),
        (np.full((30, 6, 4), 0.5), "sum to 1"),
        (np.full((30, 6, 4), np.nan), "sum to 1"),
    ],
)
def test_an_answer_that_does_not_fit_is_named(grid, message):
    A, _, _ = crowd(n=30)
    fake = Fake(grid, range(4), np.full((30, 4), 0.25))
    with pytest.raises(AnnotationError, match=message):
        summarize(A, classifier=fake, X=column(30))


# -- pairs and grid -------------------------------------------------------------------------------


def assert_same(a, b):
    for name in vars(a):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("entries", [1, 40, 100, 1 << 23])
def test_blocks_equal_one_answer(monkeypatch, entries):
    monkeypatch.setattr(expected_answers, "MAX_ENTRIES", entries)
    A, _, grid = crowd(n=40)
    grid = np.random.default_rng(2).dirichlet(np.ones(4), size=(40, 6))
    A[::3] = -1
    A[np.random.default_rng(1).random(A.shape) < 0.4] = -1
    table = AnnotationTable.from_matrix(A, classes=range(4))
    table = table.take(np.random.default_rng(0).permutation(table.n_annotations))
    given = grid[table.instance, table.annotator, table.label]
    for fake in (Fake(grid, range(4)), ByPairs(grid, range(4))):
        found = find_expectations(fake, column(40), table, np.arange(4))
        np.testing.assert_allclose(found.given_probability, given)
        top = grid[table.instance, table.annotator].max(axis=1)
        np.testing.assert_allclose(found.expected_probability, top)
        one = 4 if isinstance(fake, ByPairs) else 6 * 4
        assert max(fake.sizes) <= max(1, entries // one)


def test_the_grid_is_asked_for_annotated_instances_only():
    A, _, grid = crowd(n=40)
    A[5:] = -1
    fake = Fake(grid, range(4))
    table = AnnotationTable.from_matrix(A, classes=range(4))
    find_expectations(fake, column(40), table, np.arange(4))
    assert fake.sizes == [5]


class Rows(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return column(self.n)[i]


@pytest.mark.parametrize(
    "make", [column, lambda n: column(n).tolist(), lambda n: sparse.coo_array(column(n)), Rows]
)
def test_instances_of_any_kind(make):
    A, _, grid = crowd(n=20)
    A[::2] = -1
    table = AnnotationTable.from_matrix(A, classes=range(4))
    found = find_expectations(Fake(grid, range(4)), make(20), table, np.arange(4))
    np.testing.assert_allclose(
        found.given_probability, grid[table.instance, table.annotator, table.label]
    )


SMALL = {"max_epochs": 2, "random_state": 0}


@pytest.mark.parametrize(
    "model",
    [
        CoNALClassifier(**SMALL),
        CrowdInGClassifier(**SMALL),
        AggregatedClassifier(DawidSkene(), LogisticRegression()),
        SelfTrainingCrowdClassifier(CrowdLayerClassifier(**SMALL), n_rounds=1, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_pairs_are_cells_of_the_grid(model):
    X, A, _ = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    table = AnnotationTable.from_matrix(A)
    table = table.take(np.random.default_rng(0).permutation(table.n_annotations))
    model = model.fit(X, table)
    grid = model.predict_annotation_proba(X)
    observed = model.predict_observed_proba(X, table)
    assert observed.dtype == np.float32
    np.testing.assert_allclose(
        observed, grid[table.instance, table.annotator], rtol=1e-4, atol=1e-6
    )
    expected = np.log(observed[np.arange(len(observed)), table.label].astype(float)).mean()
    assert model.annotation_log_likelihood(X, table) == pytest.approx(expected, rel=1e-5)
    positions = np.arange(3)
    by_grid = Fake(grid, range(3))
    assert summarize(table, classifier=model, X=X)["unexpected"]["n"] == table.n_annotations
    numbers = column(len(X))
    a, b = (
        find_expectations(model, X, table, positions),
        find_expectations(by_grid, numbers, table, positions),
    )
    np.testing.assert_allclose(a.given_probability, b.given_probability, rtol=1e-4, atol=1e-6)


def test_new_and_silent_annotators_are_those_of_the_grid():
    X, A, _ = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    model = CrowdLayerClassifier(**SMALL).fit(X, A)
    asked = AnnotationTable.from_arrays(
        [0, 3, 3, 7], [1, 2, 0, 2], [0, 1, 2, 0], n_instances=len(X), annotators=[1, 5, 99]
    )
    with pytest.warns(UserWarning, match="99"):
        observed = model.predict_observed_proba(X, asked)
    with pytest.warns(UserWarning, match="99"):
        grid = model.predict_annotation_proba(X, [1, 5, 99])
    np.testing.assert_allclose(observed, grid[asked.instance, asked.annotator], rtol=1e-5)


def test_observed_of_nothing_and_of_other_rows():
    X, A, _ = make_crowd_problem()
    model = CrowdLayerClassifier(**SMALL).fit(X, A)
    nothing = AnnotationTable.from_matrix(np.full_like(A, -1), classes=[0, 1, 2])
    assert model.predict_observed_proba(X, nothing).shape == (0, 3)
    with pytest.raises(AnnotationError, match="X has"):
        model.predict_observed_proba(X[:-1], A)


def test_batches_of_instances_equal_all_at_once(monkeypatch):
    X, A, _ = make_crowd_problem()
    A[::4] = -1
    model = CrowdLayerClassifier(**SMALL).fit(X, A)
    whole, likelihood = model.predict_observed_proba(X, A), model.annotation_log_likelihood(X, A)
    monkeypatch.setattr("manyhands.fitting.prediction.PREDICT_BATCH", 7)
    np.testing.assert_allclose(model.predict_observed_proba(X, A), whole, rtol=1e-5)
    assert model.annotation_log_likelihood(X, A) == pytest.approx(likelihood, rel=1e-6)


def test_weights_count_in_the_likelihood():
    X, A, _ = make_crowd_problem()
    model = CrowdLayerClassifier(**SMALL).fit(X, A)
    table = AnnotationTable.from_matrix(A)
    weights = np.linspace(0.5, 4, table.n_annotations)
    given = model.predict_observed_proba(X, table)[np.arange(table.n_annotations), table.label]
    expected = (weights * np.log(given)).sum() / weights.sum()
    weighted = replace(table, weights=weights)
    assert model.annotation_log_likelihood(X, weighted) == pytest.approx(expected, rel=1e-5)


class Stranger(LogisticRegression):
    """Somebody's crowd classifier, which knows the grid alone."""

    def fit(self, X, y):
        self.table_ = y
        return super().fit(np.asarray(X)[y.instance], y.classes[y.label])

    def predict_annotation_proba(self, X, annotators=None):
        return np.repeat(self.predict_proba(X)[:, None], self.table_.n_annotators, axis=1)


def test_self_training_around_a_stranger_falls_back_to_the_grid():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    model = SelfTrainingCrowdClassifier(Stranger(), n_rounds=1, random_state=0)
    assert not hasattr(model, "predict_observed_proba")
    model.fit(X, table)
    assert not hasattr(model, "predict_observed_proba")
    section = summarize(table, classifier=model, X=X)["unexpected"]
    given = model.predict_proba(X)[table.instance, table.label]
    assert section["median"] == pytest.approx(np.median(given))


def test_ours_are_never_asked_for_the_grid(monkeypatch):
    X, A, _ = make_crowd_problem()
    model = CrowdLayerClassifier(**SMALL).fit(X, A)
    monkeypatch.delattr("manyhands.fitting.classifier.BaseCrowdClassifier.predict_annotation_proba")
    assert summarize(A, classifier=model, X=X)["unexpected"]["n"] == (A >= 0).sum()


def test_a_summary_from_before_this_section_has_a_page():
    A, _, grid = crowd(n=20)
    summary = summarize(A, classifier=Fake(grid, range(4)), X=column(20))
    del summary["unexpected"]
    for row in summary["annotators"]["rows"]:
        del row["unexpected"]
    assert "nexpected" not in render_report(summary)


def test_of_classes_as_probable_the_first_of_the_table_is_expected():
    table = AnnotationTable.from_matrix([["cat"]], classes=["ant", "bee", "cat"])
    orders = [(("ant", "bee", "cat"), (0.4, 0.4, 0.2)), (("cat", "bee", "ant"), (0.2, 0.4, 0.4))]
    for classes, row in orders:
        found = summarize(table, classifier=Fake([[row]], classes), X=column(1))["unexpected"]
        assert found["least"]["rows"][0]["expected"] == "ant"
