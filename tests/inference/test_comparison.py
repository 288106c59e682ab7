import dataclasses

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score

from manyhands import AnnotationTable, DawidSkene, MajorityVote
from manyhands.exceptions import AnnotationError
from manyhands.inference.comparison import (
    MethodScore,
    ScoreTable,
    compare_aggregators,
    held_out_log_likelihood,
    hold_out,
    p_values_against_first,
)
from manyhands.metrics.intervals import share_interval
from manyhands.registry import all_aggregators


def crowd(n=200):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    skill = np.array([0.95, 0.9, 0.55, 0.55, 0.55, 0.55])
    return np.where(rng.random((n, 6)) < skill, y[:, None], 1 - y[:, None]), y


def test_best_first_with_gold_and_without():
    A, y = crowd()
    methods = [MajorityVote(), DawidSkene()]
    scored = compare_aggregators(A, methods, gold=y)
    assert [s.method for s in scored] == ["DawidSkene()", "MajorityVote()"]
    assert scored[0].accuracy == (DawidSkene().fit(A).labels_ == y).mean()
    assert scored[0].accuracy > scored[1].accuracy
    assert 0 <= scored[0].ece < scored[1].ece
    blind = compare_aggregators(A, {"a": MajorityVote(), "b": DawidSkene()})
    assert [s.method for s in blind] == ["b", "a"]
    assert blind[0].accuracy is None
    # Gold is for scoring only.
    assert {s.held_out_log_likelihood for s in blind} == {s.held_out_log_likelihood for s in scored}


def test_ties_shared_do_not_depend_on_the_order_of_the_classes():
    """Ties name the first class, which is right in three of four."""
    A, y = np.array([[0, 1]] * 4 + [[1, 1], [0, 0]]), np.array([0, 0, 0, 1, 1, 0])
    (score,) = compare_aggregators(A, [MajorityVote()], gold=y)
    assert score.accuracy == 5 / 6
    assert score.accuracy_ties_shared == 4 / 6
    (swapped,) = compare_aggregators(1 - A, [MajorityVote()], gold=1 - y)
    assert (swapped.accuracy, swapped.accuracy_ties_shared) == (3 / 6, 4 / 6)


def test_grades_are_compared_by_their_distance_and_names_are_not():
    A = np.array([[1, 2, 5], [2, 2, 3], [4, 4, 1], [5, 5, 5], [1, 1, 2]])
    y = np.array([1, 2, 4, 5, 3])
    table = AnnotationTable.from_matrix(A, classes=[1, 2, 3, 4, 5], ordered=True)
    (score,) = compare_aggregators(table, [MajorityVote()], gold=y)
    labels = MajorityVote().fit(table).labels_  # medians: 2, 2, 4, 5, 1
    np.testing.assert_array_equal(labels, [2, 2, 4, 5, 1])
    assert (score.accuracy, score.within_one, score.mae) == (3 / 5, 4 / 5, 3 / 5)
    assert score.qwk == cohen_kappa_score(y, labels, weights="quadratic")
    assert score.rps > 0
    names = AnnotationTable.from_matrix(A, classes=[1, 2, 3, 4, 5], ordered=False)
    (plain,) = compare_aggregators(names, [MajorityVote()], gold=y)
    assert plain.mae is plain.qwk is plain.rps is plain.within_one is None


def test_grades_are_ranked_by_their_error_and_not_by_their_accuracy():
    """One method is right more often, and far off where it is wrong."""

    class Says(MajorityVote):
        def __init__(self, shift=0):
            super().__init__()
            self.shift = shift

        def fit(self, table, **options):
            super().fit(table, **options)
            if self.shift:
                self.posterior_ = np.eye(5)[[0, 1, 2, 3, 0]]
                self.labels_ = self.classes_[[0, 1, 2, 3, 0]]
            else:
                self.posterior_ = np.eye(5)[[0, 1, 2, 4, 3]]
                self.labels_ = self.classes_[[0, 1, 2, 4, 3]]
            return self

    A = np.array([[1, 1], [2, 2], [3, 3], [4, 4], [5, 5]])
    table = AnnotationTable.from_matrix(A, classes=[1, 2, 3, 4, 5], ordered=True)
    scored = compare_aggregators(table, {"far": Says(1), "near": Says()}, gold=A[:, 0])
    assert [s.method for s in scored] == ["near", "far"]
    assert scored[0].accuracy < scored[1].accuracy


def test_the_interval_of_an_accuracy_and_the_p_value_by_hand():
    """One of the two is nearer to gold on 12 instances, the other on 1; the rest are equal."""
    best, other = np.zeros(30, dtype=int), np.zeros(30, dtype=int)
    other[:12], best[12], other[13], best[13] = 1, 1, 1, 1
    (p,) = p_values_against_first([best, other])
    assert p == pytest.approx(2 * 14 / 2**13)  # P(12 or 13 of 13 fair coins), two-sided
    _, second = p_values_against_first([best, best, other])
    assert second == pytest.approx(3 * p)  # 3 pairs in place of 1
    assert p_values_against_first([other, best]) == [1.0]
    # Grades: two grades off are not nearer than one, however many grades both are off.
    assert p_values_against_first([np.full(8, 1), np.full(8, 2)]) == [2 * 0.5**8]
    A, y = crowd()
    scored = compare_aggregators(A, [MajorityVote(), DawidSkene()], gold=y)
    right = [(type_().fit(A).labels_ == y) for type_ in (DawidSkene, MajorityVote)]
    only = [int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())]
    assert scored[0].p_value is None
    assert scored[1].p_value == pytest.approx(
        binomtest(only[0], sum(only), alternative="greater").pvalue * 2
    )
    assert scored[1].p_value < 0.001
    low, high = share_interval(right[0].sum(), len(y), level=0.95)
    assert (scored[0].low, scored[0].high) == (low, high)
    (blind,) = compare_aggregators(A, [MajorityVote()])
    assert blind.low is blind.high is blind.p_value is None


@pytest.mark.parametrize("n", [60, 400])
def test_equal_methods_are_seldom_told_apart_and_worse_ones_often(n):
    """Twelve methods whose mistakes overlap; in each of 300 tables, the best one is chosen."""
    rng = np.random.default_rng(n)
    false = found = 0
    for _ in range(300):
        hard = rng.random(n) < 0.4
        wrong = hard & (rng.random((12, n)) < 0.6)  # All are right in 76 % of cases.
        off = sorted(wrong.astype(int), key=np.sum)
        false += min(p_values_against_first(off)) < 0.05
        worse = (hard & (rng.random(n) < 0.6)) | (rng.random(n) < 0.35)
        off = sorted([*wrong.astype(int), worse.astype(int)], key=np.sum)
        place = next(i for i, each in enumerate(off) if (each == worse).all())
        found += place > 0 and p_values_against_first(off)[place - 1] < 0.05
    assert false <= 0.05 * 300
    assert found >= (0.2 if n == 60 else 0.95) * 300


def test_all_methods_are_compared():
    A, y = crowd(60)
    known = {name for name, _ in all_aggregators()}
    # No method sees the gold, without which this one is DawidSkene.
    assert {s.method for s in compare_aggregators(A, gold=y)} == known - {"GoldCorrected"}


def test_held_out_likelihood_by_hand():
    """One class is certain everywhere; the annotator's row is (3 + 5 p) / 8, p pooled."""
    kept = AnnotationTable.from_matrix([[0, 0], [0, 0], [0, 1]], classes=[0, 1])
    held_out = AnnotationTable.from_arrays([0], [0], [0], classes=[0, 1], n_annotators=2)

    class Certain(MajorityVote):
        def fit(self, table):
            super().fit(table)
            self.posterior_ = np.tile([1.0, 0.0], (table.n_instances, 1))
            return self

    pooled = (5 + 0.5) / 7
    expected = np.log((3 + 5 * pooled) / 8)
    assert held_out_log_likelihood(Certain(), kept, held_out) == pytest.approx(expected)


def test_what_is_held_out():
    A, _ = crowd(50)
    A[0, 1:] = -1
    table = AnnotationTable.from_matrix(A)
    kept, out = hold_out(table, 0.1, 0)
    assert kept.n_annotations + out.n_annotations == table.n_annotations
    assert out.n_annotations == round(0.1 * table.n_annotations)
    assert 0 not in out.instance
    assert out.annotations_per_instance().max() == 1
    np.testing.assert_array_equal(kept.annotations_per_instance() > 0, True)
    assert hold_out(AnnotationTable.from_matrix([[0, -1], [-1, 1]]), 0.1, 0) is None
    with pytest.raises(AnnotationError, match="fraction=2"):
        hold_out(table, 2, 0)


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_a_method_that_cannot_stands_last():
    A, y = crowd(30)

    class Refuses(MajorityVote):
        def _infer(self, votes, start, rng):
            raise AnnotationError("not this table")

    scored = compare_aggregators(A, [Refuses(), MajorityVote()], gold=y)
    assert scored[-1].error == "not this table"
    assert scored[-1].accuracy is None


def test_gold_of_nothing_is_an_error():
    with pytest.raises(AnnotationError, match="gold names no instance"):
        compare_aggregators(np.array([[0, 1], [1, 1], [-1, -1]]), [MajorityVote()], gold={2: 1})


def test_the_table_prints_every_figure_that_some_method_has():
    table = ScoreTable(
        (
            MethodScore("Good()", -0.25, 0.9, 0.875, None, 0.0625, 1.5),
            MethodScore("Bad()", None, 0.5, 0.25, None, 0.5, 0.0),
            MethodScore("Fails(x=<1>)", error="not <this> table"),
        )
    )
    assert repr(table).splitlines() == [
        "method  accuracy  macro-F1    ECE  held-out LL  CPU s",
        "Good()     0.900     0.875  0.062       -0.250  1.500",
        "Bad()      0.500     0.250  0.500               0.000",
        "! Fails(x=<1>): not <this> table",
    ]
    html = table._repr_html_()
    assert "min. recall" not in html
    assert '<td class="number">0.875</td>' in html
    assert "! Fails(x=&lt;1&gt;): not &lt;this&gt; table" in html
    assert "<1>" not in html
    assert [row.method for row in table] == ["Good()", "Bad()", "Fails(x=<1>)"]
    assert len(table) == 3
    assert table[-1].error


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_the_table_as_a_frame(backend):
    pytest.importorskip(backend)
    A, y = crowd(40)
    table = compare_aggregators(A, {"a": MajorityVote(), "b": DawidSkene()}, gold=y)
    frame = table.to_frame(backend)
    assert list(frame.columns) == [field.name for field in dataclasses.fields(MethodScore)]
    assert frame["method"].to_list() == [row.method for row in table]
    assert frame["accuracy"].to_list() == [row.accuracy for row in table]
