import contextlib
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

import manyhands
from manyhands import AnnotationTable, DawidSkene, MajorityVote, decide, make_crowd
from manyhands.classifiers import AggregatedClassifier, CrowdStackingClassifier
from manyhands.decision.labels import check_rule_of
from manyhands.exceptions import AnnotationError
from manyhands.io import GoldFile
from manyhands.jobs import aggregate_table

POSTERIOR = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]])
PAGE = Path(__file__).parents[2] / "docs" / "decisions.md"


@st.composite
def posteriors(draw):
    """Shares of small counts: ties are frequent and exact, other gaps clear."""
    n, c = draw(st.integers(1, 8)), draw(st.integers(2, 5))
    counts = draw(arrays(np.int64, (n, c), elements=st.integers(0, 6)))
    counts[:, 0] += counts.sum(axis=1) == 0
    return counts / counts.sum(axis=1, keepdims=True)


def costs_for(c, columns):
    return arrays(np.float64, (c, columns), elements=st.integers(0, 9).map(float))


def cheapest(posterior, cost):
    """Elkan (2001), Eq. 1, by loops; None where abstaining is cheaper than every class."""
    decisions = []
    for row in posterior:
        c = len(row)
        expected = [
            sum(row[true] * cost[true, decided] for true in range(c))
            for decided in range(cost.shape[1])
        ]
        best = min(expected[:c])
        if len(expected) > c and expected[c] < best - 1e-9:
            decisions.append(None)
        else:
            decisions.append(next(d for d in range(c) if expected[d] < best + 1e-9))
    return decisions


# -- argmax -------------------------------------------------------------------------------------


def test_it_is_exported():
    assert manyhands.decide is decide
    assert "decide" in dir(manyhands)


@pytest.mark.parametrize("ties", ["first", "random"])
def test_argmax_is_what_the_aggregators_decide(ties):
    votes = np.random.default_rng(0).integers(0, 3, (400, 2))  # every third instance ties
    model = MajorityVote(ties=ties, random_state=5).fit(votes)
    mine = decide(model.posterior_, classes=model.classes_, ties=ties, random_state=5)
    np.testing.assert_array_equal(mine, model.labels_)


def test_rounding_breaks_no_tie():
    third = 1 / 3
    assert decide([[third, third + 1e-13, third]]).tolist() == [0]
    assert decide([[third - 1e-6, third + 1e-6, third]]).tolist() == [1]


def test_random_ties_reach_every_winner_and_nobody_else():
    drawn = decide(np.tile([0.4, 0.2, 0.4], (200, 1)), ties="random", random_state=0)
    assert set(drawn.tolist()) == {0, 2}
    assert 60 < (drawn == 0).sum() < 140


def test_class_values():
    assert decide(POSTERIOR).dtype.kind == "i"
    assert decide(POSTERIOR, classes=["b", "a"]).tolist() == ["b"] * 3
    assert decide(POSTERIOR, classes=[7, 3]).tolist() == [7] * 3
    assert decide(np.zeros((0, 2)), "balanced", classes=["b", "a"]).shape == (0,)


# -- median -------------------------------------------------------------------------------------


def test_median_by_hand():
    posterior = [[0.4, 0.35, 0.25], [0.5, 0.0, 0.5], [0.1, 0.2, 0.7], [0.49, 0.02, 0.49]]
    assert decide(posterior, "median", classes=["low", "mid", "high"]).tolist() == [
        *("mid", "low", "high", "mid")
    ]
    # Sums up to rounding: 0.1 + 0.4 is a little below 0.5 in some orders.
    assert decide([[0.5 - 1e-12, 0.3, 0.2 + 1e-12]], "median").tolist() == [0]
    assert decide([[0.5 - 1e-6, 0.3, 0.2 + 1e-6]], "median").tolist() == [1]


@given(posteriors())
@settings(max_examples=60)
def test_median_is_the_cost_of_the_distance(posterior):
    grade = np.arange(posterior.shape[1])
    cost = abs(grade[:, None] - grade)
    expected = [next(c for c, p in enumerate(row.cumsum()) if p >= 0.5 - 1e-9) for row in posterior]
    assert decide(posterior, "median").tolist() == expected
    assert decide(posterior, cost).tolist() == expected


def test_median_draws_among_all_medians_if_asked():
    drawn = decide(np.tile([0.5, 0.0, 0.5, 0.0], (300, 1)), "median", ties="random", random_state=0)
    assert set(drawn.tolist()) == {0, 1, 2}


def test_median_abstains_by_its_own_probability():
    posterior = [[0.4, 0.2, 0.4], [0.1, 0.8, 0.1]]
    assert decide(posterior, "median", threshold=0.3).tolist() == [-1, 1]
    assert decide(posterior, "median", threshold=0.2).tolist() == [1, 1]


def test_median_of_very_many_classes_is_refused():
    with pytest.raises(AnnotationError, match=r"scale of a few grades.*scale='interval'"):
        decide(csr_array(np.eye(3)), "median")


# -- balanced -----------------------------------------------------------------------------------


def test_balanced_by_hand():
    # Column means .767 and .233: ratios 1.17 : .43, 1.04 : .86, .78 : 1.71.
    assert decide(POSTERIOR, "balanced").tolist() == [0, 0, 1]
    # Ratios .9/.85 : .1/.15, .8/.85 : .2/.15, .6/.85 : .4/.15.
    assert decide(POSTERIOR, "balanced", class_prior=[0.85, 0.15]).tolist() == [0, 1, 1]
    # Counts serve as well as frequencies.
    assert decide(POSTERIOR, "balanced", class_prior=[170, 30]).tolist() == [0, 1, 1]


@given(posteriors())
@settings(max_examples=30)
def test_balanced_is_argmax_where_classes_are_equally_frequent(posterior):
    uniform = np.ones(posterior.shape[1])
    np.testing.assert_array_equal(
        decide(posterior, "balanced", class_prior=uniform), decide(posterior)
    )


@given(posteriors())
@settings(max_examples=30)
def test_balanced_is_the_cost_of_one_over_the_prior(posterior):
    prior = np.arange(1, posterior.shape[1] + 1.0)
    cost = (1 - np.eye(len(prior))) / prior[:, None]
    np.testing.assert_array_equal(
        decide(posterior, "balanced", class_prior=prior), decide(posterior, cost)
    )


@given(posteriors())
@settings(max_examples=30)
def test_balanced_never_decides_for_an_absent_class(posterior):
    absent = posterior.sum(axis=0) == 0
    assert not absent[decide(posterior, "balanced")].any()


def test_a_class_nobody_gave_is_absent_though_its_log_is_floored():
    table = AnnotationTable.from_matrix([[0, 0, 1], [1, 1, 1], [0, 0, 0]], classes=[0, 1, 2])
    posterior = DawidSkene().fit(table).posterior_
    assert 2 not in decide(posterior, "balanced")
    tiny = np.array([[0.5 - 1e-100, 0.5, 1e-100], [0.9, 0.1, 0]])
    assert 2 not in decide(tiny, "balanced")


def test_balanced_has_the_least_balanced_error():
    rng = np.random.default_rng(0)
    p = rng.beta(1, 9, 4000)
    y = rng.random(4000) < p
    posterior = np.column_stack([1 - p, p])

    def balanced_error(z):
        return np.mean([np.mean(z[y == c] != c) for c in (0, 1)])

    best = balanced_error(decide(posterior, "balanced"))
    assert best < balanced_error(decide(posterior)) - 0.1
    others = [balanced_error((p > cut).astype(int)) for cut in (0.02, 0.05, 0.2, 0.3)]
    assert best < min(others)


# -- costs --------------------------------------------------------------------------------------


@given(st.data(), posteriors())
@settings(max_examples=30)
def test_costs_against_loops(data, posterior):
    c = posterior.shape[1]
    cost = data.draw(costs_for(c, c + data.draw(st.integers(0, 1))))
    found = [None if d == -1 else d for d in decide(posterior, cost)]
    assert found == cheapest(posterior, cost)


@given(st.data(), posteriors(), st.sampled_from([1e-15, 0.1, 1e15]))
@settings(max_examples=30)
def test_the_currency_of_costs_decides_nothing(data, posterior, factor):
    cost = data.draw(costs_for(posterior.shape[1], posterior.shape[1]))
    np.testing.assert_array_equal(decide(posterior, cost * factor), decide(posterior, cost))


@given(posteriors())
@settings(max_examples=30)
def test_equal_costs_are_argmax(posterior):
    cost = 1 - np.eye(posterior.shape[1])
    np.testing.assert_array_equal(decide(posterior, cost), decide(posterior))


def test_costs_are_read_true_by_decided():
    # Deciding 0 where 1 is true is dear: at .2 it costs 2, a false alarm .8.
    assert decide([[0.8, 0.2]], [[0, 1], [10, 0]]).tolist() == [1]
    assert decide([[0.8, 0.2]], [[0, 10], [1, 0]]).tolist() == [0]


def test_a_forbidding_cost_hides_no_small_one():
    cost = [[0, 1, 2], [1e13, 0, 0], [1e13, 0, 0]]
    assert decide([[1, 0, 0]], cost).tolist() == [0]
    assert decide([[0.5, 0.5, 0]], cost).tolist() == [1]


# -- abstaining ---------------------------------------------------------------------------------


def test_threshold_by_hand():
    assert decide(POSTERIOR, threshold=0.8).tolist() == [0, 0, -1]
    assert decide([[0.1 + 0.2 + 0.3, 0.4]], threshold=0.6).tolist() == [0]
    assert decide([[0.6 - 1e-12, 0.4 + 1e-12]], threshold=0.6).tolist() == [0]
    assert decide(POSTERIOR, threshold=1).tolist() == [-1, -1, -1]
    assert decide(POSTERIOR, threshold=0).tolist() == decide(POSTERIOR).tolist()


def test_balanced_is_refused_by_its_own_probability():
    # Ratios 1.17 : .43, 1.04 : .86, .78 : 1.71: shares of the winner .73, .55, .69.
    assert decide(POSTERIOR, "balanced", threshold=0.6).tolist() == [0, -1, 1]


@given(posteriors(), st.integers(0, 10))
@settings(max_examples=30)
def test_chows_rule_is_a_cost_of_abstaining(posterior, tenths):
    c = posterior.shape[1]
    cost = np.column_stack([1 - np.eye(c), np.full(c, 1 - tenths / 10)])
    np.testing.assert_array_equal(decide(posterior, threshold=tenths / 10), decide(posterior, cost))


def test_ties_are_drawn_among_classes_only():
    cost = [[0, 1, 0.5], [1, 0, 0.5]]
    drawn = decide(np.full((50, 2), 0.5), cost, ties="random", random_state=0)
    assert set(drawn.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("classes", "abstain", "expected", "kind"),
    [
        (None, None, [0, -1], "i"),
        ([3, 4], None, [3, -1], "i"),
        ([3, 4], 9, [3, 9], "i"),
        ([3, 4], "none", [3, "none"], "O"),
        (["no", "yes"], None, ["no", None], "O"),
        (["no", "yes"], "unsure", ["no", "unsure"], "U"),
        (["no", "yes"], -1, ["no", -1], "O"),
        ([False, True], None, [False, None], "O"),
    ],
)
def test_the_value_of_no_decision(classes, abstain, expected, kind):
    found = decide([[0.9, 0.1], [0.6, 0.4]], classes=classes, threshold=0.7, abstain=abstain)
    assert found.tolist() == expected
    assert found.dtype.kind == kind
    # The type does not hang on whether anybody abstains.
    sure = decide([[0.9, 0.1]], classes=classes, threshold=0.7, abstain=abstain)
    assert sure.dtype == found.dtype


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("posterior", "message"),
    [
        ([0.2, 0.8], r"shape \(2,\).*column_stack"),
        (np.zeros((3, 0)), r"shape \(3, 0\)"),
        ([[0.5, 0.5], [0.7, 0.7]], "row 1 and 0 more.*1.4"),
        ([[0.5, np.nan]], "row 0.*nan"),
        ([[1.2, -0.2]], "row 0.*-0.2"),
        ([[2.0, -3.0]], "softmax"),
    ],
)
def test_what_is_no_posterior_is_refused(posterior, message):
    with pytest.raises(AnnotationError, match=f"(?s){message}"):
        decide(posterior)


def test_single_precision_is_a_posterior():
    scores = np.random.default_rng(0).normal(size=(50, 1000)).astype(np.float32)
    p = np.exp(scores)
    decide(p / p.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "loudest"}, "rule='loudest'.*'balanced'"),
        ({"rule": [[0, 1]]}, r"shape \(1, 2\).*\(2, 2\).*\(2, 3\)"),
        ({"rule": [[0, 1], [-2, 0]]}, r"-2.0 at \[1, 0\]"),
        ({"rule": [[0, np.inf], [1, 0]]}, r"inf at \[0, 1\]"),
        ({"rule": [[0, 1], [1, 0]], "threshold": 0.5}, "threshold=0.5.*last column"),
        ({"rule": "balanced", "class_prior": [1, 1, 1]}, r"class_prior has shape \(3,\)"),
        ({"rule": "balanced", "class_prior": [1, 0]}, "0.0 for class 1"),
        ({"rule": "balanced", "class_prior": [np.nan, 1]}, "nan for class 0"),
        ({"threshold": 1.2}, "threshold=1.2"),
        ({"threshold": np.nan}, "threshold=nan"),
        ({"ties": "loudest"}, "ties='loudest'"),
        ({"classes": ["a", "b", "c"]}, "3 entries.*2 columns"),
        ({"classes": ["a", "a"]}, "'a' twice"),
        ({"classes": [-1, 1], "threshold": 0.9}, "abstain=-1 is a class"),
        ({"threshold": 0.9, "abstain": 1}, "abstain=1 is a class"),
    ],
)
def test_what_does_not_fit_is_named(arguments, message):
    with pytest.raises(AnnotationError, match=message):
        decide(POSTERIOR, **arguments)


# -- the page -----------------------------------------------------------------------------------


def test_the_page_prints_what_it_says():
    blocks = re.findall(r"```python\n(.*?)```.*?```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == PAGE.read_text().count("```python") == 3
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), {})
        assert printed.getvalue() == expected


def unordered(words):
    return AnnotationTable.from_matrix(np.array([words, words[::-1], [words[1]] * len(words)]))


@pytest.mark.parametrize("model", [AggregatedClassifier, CrowdStackingClassifier])
def test_medians_of_names_in_the_order_of_the_alphabet_are_refused(model):
    words, X = ["ccc", "aaa", "bbb"], np.arange(6.0).reshape(3, 2)
    with pytest.raises(AnnotationError, match=r"decision='median' needs .*a < bbb < c"):
        model(decision="median").fit(X, unordered(words))


def test_medians_are_of_classes_that_have_an_order():
    table = unordered(["ccc", "aaa", "bbb"])
    with pytest.raises(AnnotationError, match="rule='median' needs the order of the classes"):
        aggregate_table(table, MajorityVote(), rule="median")
    named = replace(table, class_order="given")  # As in a fit that was saved.
    with pytest.raises(AnnotationError, match="scale='ordinal'"):
        aggregate_table(named, MajorityVote(), rule="median")
    for known in (
        named.with_scale("ordinal"),
        unordered(["low", "medium", "high"]),
        AnnotationTable.from_matrix([[1, 2, 3], [3, 3, 2]]),
        AnnotationTable.from_matrix(np.array([["ccc", "aaa"], ["aaa", "aaa"]])),
        AnnotationTable.from_matrix(np.array([["c", "a", "b"]]), classes=["c", "a", "b"]),
    ):
        check_rule_of("median", known)
    check_rule_of("argmax", table)
    check_rule_of(np.ones((3, 3)), table)


@pytest.mark.parametrize("measured", [False, True])
def test_a_threshold_does_not_change_how_sure_a_label_is(measured):
    y = np.random.default_rng(0).integers(0, 3, 400)
    table = make_crowd(y, annotations_per_instance=4, random_state=0)
    gold = GoldFile(table.instances[:60], y[:60]) if measured else None
    plain = aggregate_table(table, DawidSkene(), gold)
    some = aggregate_table(table, DawidSkene(), gold, threshold=0.9)
    told = {row["task"]: row["probability"] for row in plain["labels"]}
    assert {row["task"]: row["probability"] for row in some["labels"]} == told
    decided = {row["task"] for row in some["labels"] if row["label"] is not None}
    assert decided == {task for task, share in told.items() if share >= 0.9}
    assert 0 < len(decided) == 400 - some["n_undecided"] < 400
    # What is decided by the share that was asked for is accepted, if two annotators gave it.
    names = {task: i for i, task in enumerate(table.instances.tolist())}
    labels = {row["task"]: row["label"] for row in plain["labels"]}
    votes = table.vote_counts()
    n = sum(votes[names[task], labels[task]] >= 2 for task in decided)
    assert some["actions"]["accept"] == n > plain["actions"]["accept"]
    assert "at least 90 % certain" in some["rule"]
    # How many of all labels are right comes first, as without a threshold.
    assert (some["level"], some["headline"]) == (plain["level"], plain["headline"])
    assert some["decided"]["level"]["value"] > plain["level"]["value"]
    mean = np.mean([told[task] for task in decided])
    assert some["decided"]["level"]["value"] == pytest.approx(mean, abs=1e-6)
    told = some["decided"]["headline"]
    assert f"of the {len(decided)}\xa0labels that are at least 90\u202f% certain are right" in told
    assert told.endswith(f"The other {some['n_undecided']} were left open.")
    assert plain["decided"] is None
    nothing = aggregate_table(table, DawidSkene(), threshold=1.0)
    assert nothing["decided"]["headline"] == "Every label was left open."
