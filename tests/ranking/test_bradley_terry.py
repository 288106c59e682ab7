"""Bradley-Terry with annotators: what it equals, finds, says and refuses."""

import copy
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag
from scipy.optimize import minimize
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import manyhands
from manyhands import AnnotationTable, BradleyTerry, ComparisonTable, load, registry, save
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning
from manyhands.ranking import uncertainty
from manyhands.ranking.davidson import ComparisonRows, Wanted, answers, climb, first_state
from manyhands.ranking.findings import ranking_columns
from manyhands.ranking.uncertainty import _each_row, curvature
from tests.ranking.conftest import crowd

PLAIN = {"reliability": False, "position": False, "own_ties": False}
EXACT = {**PLAIN, "tol": 1e-14, "max_iter": 500}


def told(model, table, text):
    """Fit, and require a warning; others are left alone."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(table)
    assert any(text in str(each.message) for each in caught), [str(w.message) for w in caught]
    assert any(text in each for each in model.warnings_)
    return model


def quiet(model, table):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manyhands.ranking.bradley_terry.warn_caller", lambda *_: None)
        return model.fit(table)


# -- what it equals -------------------------------------------------------------------------------


def by_scipy(table, s2=np.inf, ties=True):
    """Strengths and tendency to ties by a general optimiser."""
    n = table.n_items

    def loss(x):
        eta = x[table.left] - x[table.right]
        logits = np.column_stack([eta / 2, np.full(len(eta), x[n]), -eta / 2])
        if not ties:
            logits[:, 1] = -1e9
        log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        happened = log_p[np.arange(len(eta)), table.outcome]
        return -(table.weight * happened).sum() + 0.5 * (x[:n] @ x[:n]) / s2

    found = minimize(loss, np.zeros(n + 1), method="BFGS", options={"gtol": 1e-7}).x
    return found[:n] - found[:n].mean(), found[n]


@pytest.mark.parametrize("s2", [0.5, 2.0])
def test_plain_davidson_is_that_of_an_optimiser(s2):
    table = crowd(3, n=8, m=400).table
    model = BradleyTerry(**EXACT, strength_variance=s2).fit(table)
    strengths, tau = by_scipy(table, s2)
    np.testing.assert_allclose(model.strengths_, strengths, atol=2e-5)
    np.testing.assert_allclose(model.ties_, tau, atol=2e-5)


def by_minorisation(table, rounds=5000):
    """Maximum likelihood of Bradley and Terry's model by Zermelo's iteration, in a slow loop."""
    n = table.n_items
    wins, games = np.zeros(n), np.zeros((n, n))
    for left, right, outcome in zip(table.left, table.right, table.outcome, strict=True):
        wins[left if outcome == 0 else right] += 1
        games[left, right] += 1
        games[right, left] += 1
    worth = np.ones(n)
    for _ in range(rounds):
        worth = wins / (games / (worth[:, None] + worth[None, :])).sum(axis=1)
        worth /= np.exp(np.log(worth).mean())
    return np.log(worth)


def test_without_ties_and_prior_it_is_bradley_and_terrys_estimate():
    table = crowd(1, n=8, m=400, ties=-40.0).table
    assert not (table.outcome == 1).any()
    model = BradleyTerry(**EXACT, strength_variance=np.inf).fit(table)
    np.testing.assert_allclose(model.strengths_, by_minorisation(table), atol=1e-9)
    assert model.ties_ == -np.inf
    assert (model.predict_proba(["i0"], ["i1"])[:, 1] == 0).all()


def test_two_items_by_hand():
    df = pd.DataFrame({"left": ["x"] * 8 + ["y"] * 2, "right": ["y"] * 8 + ["x"] * 2})
    table = ComparisonTable.from_frame(df.assign(winner="left"), worker=None)
    model = BradleyTerry(**EXACT, strength_variance=np.inf).fit(table)
    np.testing.assert_allclose(model.strengths_, [np.log(4) / 2, -np.log(4) / 2], atol=1e-9)
    np.testing.assert_allclose(model.predict_proba("x", "y"), [[0.8, 0, 0.2]], atol=1e-9)
    # The information of the difference is n p (1 - p) = 1.6.
    np.testing.assert_allclose(model.strength_se_, np.sqrt(1 / 1.6) / 2, rtol=1e-6)


def test_a_weight_of_two_is_a_row_twice():
    table = crowd(5).table
    twice = table.with_added(table.take(slice(0, 500)))
    weight = np.where(np.arange(len(table)) < 500, 2.0, 1.0)
    own = ComparisonTable(
        table.left, table.right, table.annotator, table.outcome, table.items, table.annotators,
        weights=weight,
    )  # fmt: skip
    one, other = BradleyTerry().fit(twice), BradleyTerry().fit(own)
    np.testing.assert_allclose(one.strengths_, other.strengths_, atol=1e-9)
    np.testing.assert_allclose(one.strength_se_, other.strength_se_, atol=1e-9)
    np.testing.assert_allclose(one.reliability_, other.reliability_, atol=1e-9)


def test_swapping_sides_turns_biases_round_and_nothing_else():
    table = crowd(2, position=np.linspace(-1, 1, 15)).table
    one, other = BradleyTerry().fit(table), BradleyTerry().fit(table.swapped())
    np.testing.assert_allclose(one.strengths_, other.strengths_, atol=1e-8)
    np.testing.assert_allclose(one.strength_se_, other.strength_se_, atol=1e-8)
    np.testing.assert_allclose(one.position_bias_, -other.position_bias_, atol=1e-8)
    np.testing.assert_allclose(one.tie_tendency_, other.tie_tendency_, atol=1e-8)
    proba = one.predict_proba(["i0", "i3"], ["i1", "i2"], ["a0", "a14"])
    again = other.predict_proba(["i1", "i2"], ["i0", "i3"], ["a0", "a14"])
    np.testing.assert_allclose(proba, again[:, ::-1], atol=1e-8)


def test_order_and_names_of_ids_do_not_matter():
    df = crowd(7).table.to_frame()
    one = BradleyTerry().fit(ComparisonTable.from_frame(df))
    other = BradleyTerry().fit(ComparisonTable.from_frame(df.sample(frac=1, random_state=0)))
    np.testing.assert_allclose(one.strengths_, other.strengths_, atol=1e-8)


def test_conjugate_gradients_are_the_dense_solution(monkeypatch):
    table = crowd(4, n=40, m=4000).table
    dense = BradleyTerry(**PLAIN, strength_variance=1.0, tol=1e-12).fit(table)
    monkeypatch.setattr("manyhands.ranking.davidson.DENSE", 5)
    sparse = BradleyTerry(**PLAIN, strength_variance=1.0, tol=1e-12).fit(table)
    np.testing.assert_allclose(dense.strengths_, sparse.strengths_, atol=1e-5)


def test_the_information_is_the_curvature_of_the_log_posterior():
    """Blocks and their Schur complement, against finite differences of the log posterior."""
    made = crowd(8, n=4, r=3, m=200, position=[0.5, -0.5, 0.0])
    table = made.table
    rows = ComparisonRows.of(table, by_annotator=True)
    wanted = Wanted(True, True, np.full(3, True), 1.0, 500, 1e-13)
    state = climb(rows, first_state(rows, wanted, 0.3), wanted)
    n, r = 4, 3

    def log_posterior(x):
        theta, beta, tau = x[:n], x[n], x[n + 1]
        a, b, u = x[n + 2 :].reshape(r, 3).T
        who = table.annotator
        eta = (1 + a[who]) * (theta[table.left] - theta[table.right]) + beta + b[who]
        logits = np.column_stack([eta / 2, tau + u[who], -eta / 2])
        log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        prior = theta @ theta / state.s2 + sum(
            v @ v / s for v, s in zip((a, b, u), state.variance, strict=True)
        )
        return log_p[np.arange(len(eta)), table.outcome].sum() - prior / 2

    own = (state.profile - state.common).ravel()
    x = np.concatenate([state.theta, state.common[1:], own])
    k, step = len(x), 1e-4
    hessian = np.empty((k, k))
    eye = np.eye(k) * step
    for i in range(k):
        for j in range(k):
            hessian[i, j] = (
                log_posterior(x + eye[i] + eye[j]) - log_posterior(x + eye[i] - eye[j])
                - log_posterior(x - eye[i] + eye[j]) + log_posterior(x - eye[i] - eye[j])
            ) / (4 * step**2)  # fmt: skip
    inverse = np.linalg.inv(-hessian)
    found = np.linalg.inv(curvature(rows, state, wanted).outer)
    # Rounding errors of the second differences, carried through the inverse.
    rounding = np.finfo(float).eps * abs(log_posterior(x)) / step**2
    atol = k * rounding * np.linalg.norm(inverse, 2) ** 2
    assert atol < 1e-4
    np.testing.assert_allclose(found, inverse[: n + 2, : n + 2], rtol=1e-3, atol=atol)


# -- what it finds --------------------------------------------------------------------------------


def test_reversed_and_one_sided_annotators_are_found():
    rng = np.random.default_rng(0)
    reliability = np.where(np.arange(20) < 4, -1.0, 1.0)
    position = np.where(np.arange(20) >= 18, 4.0, rng.normal(0, 0.2, 20))
    made = crowd(11, r=20, m=3000, reliability=reliability, position=position)
    model = told(BradleyTerry(), made.table, "prefer the weaker item")
    assert set(np.flatnonzero(model.reliability_ < 0)) == {0, 1, 2, 3}
    assert (model.reliability_[:4] + 1.96 * model.reliability_se_[:4] < 0).all()
    assert set(np.argsort(-model.position_bias_)[:2]) == {18, 19}
    assert np.corrcoef(made.theta, model.strengths_)[0, 1] > 0.97
    plain = quiet(BradleyTerry(**PLAIN), made.table)
    right, wrong = (np.corrcoef(made.theta, m.strengths_)[0, 1] for m in (model, plain))
    assert 1 - right < 0.7 * (1 - wrong)


def test_own_tendencies_and_biases_are_found():
    position = np.linspace(-1.5, 1.5, 15)
    made = crowd(12, m=6000, position=position, own=0.8)
    model = quiet(BradleyTerry(), made.table)
    assert np.corrcoef(position, model.position_bias_)[0, 1] > 0.95
    off = (model.position_bias_ - position) / model.position_bias_se_
    assert np.abs(off).max() < 4
    assert np.sqrt(np.mean(off**2)) < 1.6


@pytest.mark.parametrize("seed", range(3))
def test_few_answers_leave_annotators_alike(seed):
    made = crowd(seed, n=60, r=400, m=1600)  # Four answers each.
    model = quiet(BradleyTerry(), made.table)
    assert model.reliability_variance_ == 0
    assert (model.reliability_ == 1).all()


def test_reliability_by_number_and_by_wish():
    rng = np.random.default_rng(2)
    made = crowd(3, r=20, m=3000, reliability=1 + rng.normal(0, 0.6, 20))
    fixed = quiet(BradleyTerry(reliability=0.3), made.table)
    assert fixed.reliability_variance_ == 0.3
    assert quiet(BradleyTerry(reliability=True), made.table).reliability_variance_ > 0
    auto = quiet(BradleyTerry(), made.table)
    assert auto.evidence_[auto.reliability_variance_] == max(auto.evidence_.values())
    assert max(auto.evidence_.values()) > auto.evidence_[0.0] + 2
    assert np.corrcoef(made.reliability, auto.reliability_)[0, 1] > 0.8


# -- intervals ------------------------------------------------------------------------------------


def coverage(draws, model=None, **options):
    held, ranked, said, true = [], [], [], []
    for seed in range(draws):
        made = crowd(100 + seed, **options)
        fit = quiet(copy.deepcopy(model) or BradleyTerry(), made.table)
        theta = made.theta - made.theta.mean()
        low, high = fit.interval().T
        held.append((low <= theta) & (theta <= high))
        rank = (-theta).argsort().argsort() + 1
        ranked.append((fit.rank_low_ <= rank) & (rank <= fit.rank_high_))
        better = fit.better()
        i, j = np.nonzero(better > 0.9)
        said.append(better[i, j])
        true.append(theta[i] > theta[j])
    return (
        np.mean(held),
        np.mean(ranked),
        np.concatenate(said).mean(),
        np.concatenate(true).mean(),
    )


def test_intervals_and_probabilities_hold_as_often_as_they_say():
    strengths, ranks, said, true = coverage(20, n=15, r=20, m=700)
    assert 0.90 <= strengths <= 0.98  # 300 strengths: .95 +- .025, and they depend.
    assert ranks >= 0.94
    assert abs(said - true) < 0.03


def test_intervals_allow_for_questions():
    found, clustered, usual = [], [], []
    for seed in range(30):
        made = crowd(seed, n=6, r=6, m=1800, questions=40, effect=1.0, theta=np.linspace(-1, 1, 6))
        bare = ComparisonTable(*[getattr(made.table, name) for name in
            ("left", "right", "annotator", "outcome", "items", "annotators")])  # fmt: skip
        with_questions, without = quiet(BradleyTerry(), made.table), quiet(BradleyTerry(), bare)
        assert (with_questions.clustered_, without.clustered_) == (True, False)
        found.append(with_questions.strengths_)
        clustered.append(with_questions.strength_se_)
        usual.append(without.strength_se_)
    # 30 draws of 6 strengths: the true spread is known within a tenth.
    spread = np.sqrt(np.var(found, axis=0, ddof=1).mean())
    assert 0.8 < np.mean(clustered) / spread < 1.2
    assert np.mean(usual) / spread < 0.75


def test_questions_whose_answers_do_not_depend_change_intervals_little():
    """Few annotators of differing reliability leave the scale unsure, whatever is asked."""
    reliability = np.array([0.4, 0.7, 1.0, 1.3, 1.6, 1.0])
    ratios = []
    for seed in range(5):
        made = crowd(seed, n=8, r=6, m=2400, reliability=reliability, questions=120)
        bare = ComparisonTable(*[getattr(made.table, name) for name in
            ("left", "right", "annotator", "outcome", "items", "annotators")])  # fmt: skip
        asked, usual = quiet(BradleyTerry(), made.table), quiet(BradleyTerry(), bare)
        assert asked.clustered_
        assert usual.reliability_variance_ > 0
        ratios.append(asked.strength_se_.mean() / usual.strength_se_.mean())
    assert 0.9 < np.mean(ratios) < 1.1


def with_effects_of_pairs(seed, questions, n=15, m=2400, effect=0.6):
    """Draw answers to pairs that have an effect of their own, whatever the question."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=n)
    theta -= theta.mean()
    own = np.triu(rng.normal(0, effect, (n, n)), 1)
    own -= own.T
    left = rng.integers(0, n, m)
    right = (left + rng.integers(1, n, m)) % n
    eta = theta[left] - theta[right] + own[left, right]
    outcome = np.where(rng.random(m) < 1 / (1 + np.exp(-eta)), 0, 2)
    asked = None if questions is None else np.arange(m) % questions
    table = ComparisonTable(
        left, right, np.zeros(m), outcome, np.arange(n), np.array(["all"]), asked,
        None if questions is None else np.arange(questions),
    )  # fmt: skip
    return theta, table


def test_naming_questions_does_not_make_intervals_forget_effects_of_pairs():
    held: dict[str, list] = {"none": [], "one each": [], "some": []}
    for seed in range(12):
        for name, questions in (("none", None), ("one each", 2400), ("some", 150)):
            theta, table = with_effects_of_pairs(seed, questions)
            model = told(BradleyTerry(), table, "vary")
            assert model.clustered_ == (name == "some")
            low, high = model.interval().T
            held[name].append((low <= theta) & (theta <= high))
    covered = {name: np.mean(each) for name, each in held.items()}
    assert covered["one each"] == covered["none"]
    # 180 strengths: .95 +- .03, and they depend. Without the effects it would be below .85.
    assert min(covered.values()) > 0.89


def by_dense_loop(table, state, wanted, found, inverse):
    """Sandwich of scores of questions, one row at a time."""
    n, r = table.n_items, len(found.annotators)
    at = answers(_each_row(table, wanted), state, wanted)
    scores = np.zeros((len(table.questions), n + 2))
    inner = np.zeros((len(table.questions), 3 * r))
    for i, q in enumerate(table.question):
        scores[q, table.left[i]] += at.reliability[i] * at.score[i]
        scores[q, table.right[i]] -= at.reliability[i] * at.score[i]
        scores[q, n:] += at.score[i], at.score_t[i]
        own = np.array([at.score[i] * at.gap[i], at.score[i], at.score_t[i]]) * wanted.own
        inner[q, 3 * table.annotator[i] : 3 * table.annotator[i] + 3] += own
    crossed = found.crossed.toarray()
    blocks = block_diag(*np.linalg.inv(found.annotators))
    spread = (scores * found.free - inner @ blocks @ crossed.T) @ inverse
    k = len(table.questions)
    precision = np.tile(np.where(wanted.own, 1 / state.variance, 0.0), r)
    prior = crossed @ blocks @ np.diag(precision) @ blocks @ crossed.T
    prior += np.diag(np.r_[np.full(n, 1 / state.s2), 0.0, 0.0])
    return spread.T @ spread * k / (k - 1) + inverse @ prior @ inverse


@pytest.mark.parametrize("chunk", [7, 3_000])
def test_clusters_in_chunks_are_those_of_a_slow_loop(monkeypatch, chunk):
    monkeypatch.setattr(uncertainty, "DENSE_COLUMNS", chunk)
    table = crowd(3, n=6, r=5, m=400, reliability=np.linspace(0.5, 1.5, 5), questions=45).table
    rows = ComparisonRows.of(table, by_annotator=True)
    wanted = Wanted(True, True, np.array([True, True, True]), None, 50, 1e-6)
    state = climb(rows, first_state(rows, wanted, 0.2), wanted)
    found = uncertainty.curvature(rows, state, wanted)
    inverse = uncertainty.covariance(found)
    np.testing.assert_allclose(
        uncertainty.clustered(table, state, wanted, found, inverse),
        by_dense_loop(table, state, wanted, found, inverse),
        rtol=1e-9, atol=1e-12,
    )  # fmt: skip


def test_few_questions_are_said_to_be_few():
    made = crowd(1, questions=10)
    model = told(BradleyTerry(), made.table, "10 questions")
    assert not model.clustered_


def test_ranks_are_within_their_intervals():
    model = BradleyTerry().fit(crowd(9).table)
    assert sorted(model.ranks_) == list(range(1, 13))
    assert (model.rank_low_ <= model.ranks_).all()
    assert (model.ranks_ <= model.rank_high_).all()
    again = BradleyTerry().fit(crowd(9).table)
    np.testing.assert_array_equal(model.rank_low_, again.rank_low_)


def test_scattered_answers_widen_intervals():
    rng = np.random.default_rng(3)
    made = crowd(6, n=10, m=6000)
    # Every pair has an effect of its own, which strengths do not have.
    effect = rng.normal(0, 1.0, (10, 10))
    effect = effect - effect.T
    theta = made.theta
    eta = theta[made.table.left] - theta[made.table.right]
    eta += effect[made.table.left, made.table.right]
    outcome = np.where(rng.random(len(eta)) < 1 / (1 + np.exp(-eta)), 0, 2)
    table = ComparisonTable(
        made.table.left, made.table.right, made.table.annotator, outcome, made.table.items,
        made.table.annotators,
    )  # fmt: skip
    model = told(BradleyTerry(), table, "vary")
    assert model.dispersion_ > 3
    assert quiet(BradleyTerry(), made.table).dispersion_ < 1.5


# -- what is said ---------------------------------------------------------------------------------


def islands():
    one, other = crowd(1, n=5, m=300).table, crowd(2, n=5, m=300).table
    renamed = ComparisonTable.from_frame(
        other.to_frame().assign(left=lambda d: "z" + d.left, right=lambda d: "z" + d.right)
    )
    return one, one.with_added(renamed)


def test_groups_that_are_never_compared_are_ranked_apart():
    one, both = islands()
    model = told(BradleyTerry(), both, "2 groups of items were never compared")
    assert sorted(model.ranks_) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    better = model.better()
    assert np.isnan(better[:5, 5:]).all()
    assert not np.isnan(better[:5, :5]).any()
    with pytest.warns(NotIdentifiableWarning, match="1 of 2 pairs"):
        proba = model.predict_proba(["i0", "i0"], ["i1", "zi1"])
    assert np.isnan(proba[1]).all()
    np.testing.assert_allclose(proba[0].sum(), 1, atol=1e-12)
    for i, j in model.next_pairs(6):
        assert i.startswith("z") == j.startswith("z")
    linking = model.next_pairs(2, pairs=[("i0", "zi0"), ("i1", "zi1")])
    assert len(linking) == 2
    alone = BradleyTerry(**PLAIN, strength_variance=1.0).fit(one)
    among = quiet(BradleyTerry(**PLAIN, strength_variance=1.0, tol=1e-12), both)
    # Ties are common, so strengths of one group move a little with the ties of the other.
    np.testing.assert_allclose(among.strengths_[:5], alone.strengths_, atol=0.02)


def test_without_ties_a_group_is_unmoved_by_another():
    one, both = islands()
    one, both = (t.take(t.outcome != 1) for t in (one, both))
    options = {**EXACT, "strength_variance": 1.0}
    alone, among = quiet(BradleyTerry(**options), one), quiet(BradleyTerry(**options), both)
    np.testing.assert_allclose(among.strengths_[:5], alone.strengths_, atol=1e-9)


def test_all_ties():
    df = pd.DataFrame({"left": ["x", "y", "z"] * 10, "right": ["y", "z", "x"] * 10})
    table = ComparisonTable.from_frame(df.assign(winner="tie"), worker=None)
    model = told(BradleyTerry(), table, "all comparisons are ties")
    np.testing.assert_allclose(model.strengths_, 0, atol=1e-9)
    assert (model.ranks_ == 1).all()
    assert model.predict_proba("x", "y")[0, 1] > 0.9
    assert np.isfinite(model.strength_se_).all()


def test_a_winner_of_everything_stays_finite_and_is_named():
    rows = [("x", "y", "x"), ("y", "x", "x"), ("y", "z", "y"), ("z", "y", "z")] * 6
    table = ComparisonTable.from_frame(
        pd.DataFrame(rows, columns=["left", "right", "winner"]), worker=None
    )
    model = told(BradleyTerry(), table, "'x' won or lost every comparison")
    assert np.isfinite(model.strengths_).all()
    with pytest.raises(AnnotationError, match="strength_variance=inf has no finite estimate"):
        BradleyTerry(strength_variance=np.inf).fit(table)


def test_weights_are_counted_in_what_is_said():
    wins = [("x", "y", 60), ("y", "x", 40), ("x", "z", 70), ("z", "x", 30), ("y", "z", 55)]
    df = pd.DataFrame(wins, columns=["left", "right", "n"]).assign(winner="left")
    df = pd.concat([df, df.iloc[:1].assign(left="lone", n=0), df.iloc[-1:].assign(
        left="z", right="y", n=45)])  # fmt: skip
    table = ComparisonTable.from_frame(df, worker=None, weight="n")
    assert table.n_answers == 300
    assert len(table) == 7
    assert table.counts().tolist() == [0, 200, 200, 200]
    assert repr(table).startswith("ComparisonTable(300 comparisons in 7 rows, 0 ties: 4 items")
    model = quiet(BradleyTerry(), table)
    assert not [text for text in model.warnings_ if "fewer than" in text or "groups" in text]
    assert np.isnan(model.strengths_).tolist() == [True, False, False, False]
    one_way = table.take(np.array([0, 2, 4, 6]))  # Only what x won, and a row of weight 0.
    some = one_way.with_added(ComparisonTable.from_arrays(["y"], ["x"], ["left"], weight=[0.0]))
    told(BradleyTerry(), some, "'x' won or lost every comparison")


def test_items_without_comparisons_have_no_rank_and_are_no_groups():
    rows = [("x", "y", "x"), ("y", "x", "x"), ("y", "x", "y"), ("y", "z", "y"), ("z", "y", "z")] * 6
    df = pd.DataFrame([*rows, ("p", "q", None)], columns=["left", "right", "winner"])
    with pytest.warns(UserWarning, match="no winner"):
        table = ComparisonTable.from_frame(df, worker=None)
    assert table.components().tolist() == [-1, -1, 0, 0, 0]
    model = told(
        BradleyTerry(), table, "2 items have no comparison, so no strength and no rank: 'p', 'q'"
    )
    assert model.n_components_ == 1
    assert model.component_.tolist() == [-1, -1, 0, 0, 0]
    assert not [text for text in model.warnings_ if "groups" in text]
    for values in (
        model.strengths_, model.strength_se_, model.ranks_, model.rank_low_, model.rank_high_,
    ):  # fmt: skip
        assert np.isnan(values).tolist() == [True, True, False, False, False]
    assert sorted(model.ranks_[2:]) == [1, 2, 3]
    columns = ranking_columns(model)
    assert columns["item"][3:] == ["p", "q"]
    for name in ("rank", "rank_low", "tier", "strength", "low", "p_beats_average"):
        assert columns[name][3:] == [None, None]
    assert columns["n_comparisons"][3:] == [0, 0]
    with pytest.warns(NotIdentifiableWarning, match="1 of 1 pairs"):
        assert np.isnan(model.predict_proba("p", "q")).all()
    assert not {"p", "q"} & {item for pair in model.next_pairs(6) for item in pair}
    assert set(model.next_pairs(1, pairs=[("p", "x")])) <= {("p", "x"), ("x", "p")}
    among = quiet(BradleyTerry(strength_variance=1.0), table)
    alone = quiet(BradleyTerry(strength_variance=1.0), table.select(items=["x", "y", "z"]))
    np.testing.assert_allclose(among.strengths_[2:], alone.strengths_, atol=1e-9)
    np.testing.assert_allclose(among.strength_se_[2:], alone.strength_se_, atol=1e-9)


def test_few_comparisons_are_said_to_be_few():
    df = pd.DataFrame({"left": ["x", "y"], "right": ["y", "x"], "winner": ["x", "y"]})
    told(BradleyTerry(), ComparisonTable.from_frame(df, worker=None), "fewer than 10 comparisons")


def test_a_side_that_never_changes_is_no_strength_and_no_preference():
    df = pd.DataFrame({"left": ["new"] * 40, "right": ["old"] * 40})
    df["winner"] = ["left"] * 30 + ["right"] * 10
    model = told(
        BradleyTerry(),
        ComparisonTable.from_frame(df, worker=None),
        "always shown in the same order",
    )
    assert model.position_ == 0
    assert model.strengths_[0] > 0.3
    df = pd.DataFrame({"left": list("abcab") * 20, "right": list("dddcd") * 20})
    df["winner"] = (["left"] * 3 + ["right"] * 2) * 20
    told(BradleyTerry(), ComparisonTable.from_frame(df, worker=None), "always on the same side")


def test_winners_that_are_written_first_are_no_preference_for_a_side():
    table = crowd(3, ties=-40.0).table
    first = ComparisonTable(
        np.where(table.outcome == 0, table.left, table.right),
        np.where(table.outcome == 0, table.right, table.left),
        table.annotator, np.zeros(len(table), dtype=int), table.items, table.annotators,
    )  # fmt: skip
    model = told(BradleyTerry(reliability=False), first, "the left item won every comparison")
    plain = BradleyTerry(**PLAIN).fit(table)
    np.testing.assert_allclose(model.strengths_, plain.strengths_, atol=1e-6)
    assert (model.position_bias_ == 0).all()


def test_repeated_answers_ask_for_questions():
    told(BradleyTerry(), crowd(1, n=4, r=3, m=300).table, "Name the column of the questions")


def test_pairs_of_scores_have_no_sides():
    rng = np.random.default_rng(0)
    df = pd.DataFrame({
        "item": np.tile(np.arange(6), 40), "article": np.repeat(np.arange(40), 6), "worker": "w",
        "score": np.tile(np.arange(6), 40) + rng.normal(0, 1, 240).round(),
    })  # fmt: skip
    model = BradleyTerry().fit(ComparisonTable.from_scores(df, question="article"))
    assert model.position_ == 0
    assert model.clustered_
    assert model.ranks_.tolist() == [6, 5, 4, 3, 2, 1]


def test_more_items_than_have_intervals(monkeypatch):
    monkeypatch.setattr("manyhands.ranking.bradley_terry.MOST_ITEMS", 8)
    monkeypatch.setattr("manyhands.ranking.uncertainty.MOST_ITEMS", 8)
    table = crowd(9).table
    model = told(BradleyTerry(), table, "12 items are more than the 8")
    assert np.isnan(model.strength_se_).all()
    assert np.isnan(model.rank_low_).all()
    assert model.covariance_ is None
    for ask in (model.better, lambda: model.next_pairs(3)):
        with pytest.raises(AnnotationError, match="select the items"):
            ask()
    monkeypatch.undo()
    whole = BradleyTerry(reliability=model.reliability_variance_ or False).fit(table)
    np.testing.assert_allclose(model.strengths_, whole.strengths_, atol=1e-6)
    assert (model.reliability_se_ <= whole.reliability_se_ + 1e-9).all()


# -- what surrounds it ----------------------------------------------------------------------------


def test_predictions_of_strangers_are_refused():
    model = BradleyTerry().fit(crowd(1).table)
    with pytest.raises(AnnotationError, match=r"left: items holds 'nobody'"):
        model.predict_proba("nobody", "i1")
    with pytest.raises(AnnotationError, match="give None for an annotator who was not"):
        model.predict_proba("i0", "i1", "nobody")
    typical = model.predict_proba(["i0", "i0"], ["i1", "i1"], [None, "a0"])
    np.testing.assert_array_equal(typical[0], model.predict_proba("i0", "i1")[0])
    assert typical.shape == (2, 3)
    with pytest.raises(NotFittedError):
        BradleyTerry().predict_proba("i0", "i1")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("nothing", "table is a str; give a ComparisonTable"),
        (AnnotationTable.from_matrix(np.array([[0, 1], [1, 1]])), "table is an AnnotationTable"),
        (ComparisonTable([], [], [], [], ["x", "y"], ["w"]), "table is empty"),
    ],
)
def test_what_is_no_comparisons_is_refused(table, message):
    with pytest.raises(AnnotationError, match=message):
        BradleyTerry().fit(table)


@pytest.mark.parametrize("name", ["gold", "groups", "engine", "start", "times", "sample_weight"])
def test_what_is_not_supported_is_refused_by_name(name):
    table = crowd(1).table
    for fit in (BradleyTerry().fit, BradleyTerry().partial_fit):
        with pytest.raises(AnnotationError, match=name):
            fit(table, **{name: 1})
    with pytest.raises(TypeError, match="nonsense"):
        BradleyTerry().fit(table, nonsense=1)
    with pytest.raises(AnnotationError, match="y is not used"):
        BradleyTerry().fit(table, [1])


@pytest.mark.parametrize(
    "bad",
    [{"reliability": -1.0}, {"reliability": "yes"}, {"max_iter": 0}, {"strength_variance": 0.0}],
)
def test_bad_parameters_name_the_parameter(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        BradleyTerry(**bad).fit(crowd(1).table)


def test_more_comparisons_are_added():
    table = crowd(4, m=2000).table
    model = BradleyTerry().partial_fit(table.take(slice(0, 1000)))
    model.partial_fit(table.take(slice(1000, None)))
    whole = BradleyTerry().fit(table)
    np.testing.assert_allclose(model.strengths_, whole.strengths_, atol=1e-9)
    assert model.partial_fit(table.take([])) is model


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    model = BradleyTerry().fit(crowd(4).table)
    before = dict(vars(model))
    with pytest.raises(AnnotationError):
        model.fit("nothing")
    assert vars(model) == before


def test_clones_copies_and_discovery():
    model = BradleyTerry(reliability=0.2, position=False).fit(crowd(4).table)
    assert clone(model).get_params() == model.get_params()
    assert not hasattr(clone(model), "strengths_")
    assert registry.find("bradley-terry", "ranker") is BradleyTerry
    assert dict(registry.all_rankers()) == {"BradleyTerry": BradleyTerry}
    assert manyhands.BradleyTerry is BradleyTerry


def test_a_saved_model_comes_back(tmp_path):
    made = crowd(4, questions=40)
    model = quiet(BradleyTerry(), made.table)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    assert set(vars(again)) == set(vars(model))
    for name in ("strengths_", "strength_se_", "rank_low_", "reliability_", "covariance_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    assert again.evidence_ == model.evidence_
    ids = (["i0"], ["i1"])
    np.testing.assert_array_equal(again.predict_proba(*ids), model.predict_proba(*ids))
    assert list(again.next_pairs(3)) == list(model.next_pairs(3))
    assert again.table_.to_frame().equals(model.table_.to_frame())
    again.partial_fit(made.table.take(slice(0, 100)))


# -- what to ask next -----------------------------------------------------------------------------


def test_the_next_pair_is_that_of_a_slow_search():
    table = crowd(9, m=300, n=6).table
    model = BradleyTerry(**PLAIN).fit(table)  # No annotators, so that their part is not left out.
    cov, theta = model.covariance_ / max(1, model.dispersion_), model.strengths_
    best = {}
    for i in range(6):
        for j in range(i + 1, 6):
            left, _, right = model.predict_proba(model.items_[i], model.items_[j])[0]
            info = (left + right - (left - right) ** 2) / 4
            variance = cov[i, i] + cov[j, j] - 2 * cov[i, j]
            p = ndtr((theta[i] - theta[j]) / np.sqrt(variance))
            best[i, j] = np.log1p(info * variance) / 2 * 4 * p * (1 - p)
    one, other = max(best, key=best.get)
    found = model.next_pairs(1)
    assert {*found} & {(model.items_[one], model.items_[other]),
                       (model.items_[other], model.items_[one])}  # fmt: skip
    # The tendency to ties is taken as known.
    np.testing.assert_allclose(found.gain[0], max(best.values()), rtol=0.02)


def test_the_ends_of_a_ranking_are_not_asked_about_where_their_order_is_sure():
    """Few judges leave the scale of strengths unsure, which asking does not change."""
    theta = np.array([-2.0, -1.0, 0.0, 0.9, 1.0, 1.1])
    reliability = np.array([0.5, 0.8, 1.0, 1.2, 1.5, 0.2])
    made = crowd(3, n=6, r=6, m=1500, theta=theta, reliability=reliability)
    model = quiet(BradleyTerry(), made.table)
    assert model.reliability_variance_ > 0
    asked = [frozenset(pair) for pair in model.next_pairs(15, each=15)]
    assert set(asked) <= {frozenset(p) for p in (("i3", "i4"), ("i3", "i5"), ("i4", "i5"))}


def test_a_batch_does_not_hang_on_one_pair():
    model = quiet(BradleyTerry(), crowd(9, n=6).table)
    times = Counter(frozenset(pair) for pair in model.next_pairs(20))
    assert max(times.values()) == 4
    assert max(Counter(map(frozenset, model.next_pairs(10, each=1))).values()) == 1
    assert len(model.next_pairs(99, each=2)) == 30  # All 15 pairs twice.
    only = [("i0", "i1"), ("i2", "i3")]
    assert len(model.next_pairs(20, pairs=only)) == 20
    with pytest.raises(AnnotationError, match="each=0 must be a positive integer"):
        model.next_pairs(3, each=0)


def test_asking_what_is_proposed_decides_more_than_asking_at_random():
    rng = np.random.default_rng(0)
    gains = []
    for seed in range(8):
        made = crowd(seed, n=12, r=8, m=150)
        model = quiet(BradleyTerry(**PLAIN), made.table)
        proposed = model.next_pairs(60)
        index = {item: k for k, item in enumerate(model.items_.tolist())}
        wise = [(index[i], index[j]) for i, j in proposed]
        left = rng.integers(0, 12, 60)
        chance = list(zip(left, (left + rng.integers(1, 12, 60)) % 12, strict=True))
        doubts = []
        for pairs in (wise, chance):
            i, j = np.array(pairs).T
            eta = made.theta[i] - made.theta[j]
            logits = np.column_stack([eta / 2, np.full(60, -0.5), -eta / 2])
            p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            outcome = (rng.random(60)[:, None] > p.cumsum(1)).sum(1)
            more = ComparisonTable(i, j, np.zeros(60, dtype=int), outcome, model.items_,
                                   made.table.annotators)  # fmt: skip
            again = quiet(BradleyTerry(**PLAIN), made.table.with_added(more))
            better = again.better()
            doubts.append(np.mean(better * (1 - better)))
        gains.append(doubts[1] - doubts[0])
    assert np.mean(gains) > 0


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_how_many_to_ask_is_a_positive_integer(n):
    with pytest.raises(AnnotationError, match="n="):
        BradleyTerry().fit(crowd(9).table).next_pairs(n)


def test_a_pair_that_is_named_twice_is_one_pair():
    model = BradleyTerry().fit(crowd(1).table)
    assert len(model.next_pairs(2, pairs=[("i0", "i1"), ("i1", "i0")], each=1)) == 1


def test_predictions_of_unequal_lengths_are_refused():
    model = BradleyTerry().fit(crowd(1).table)
    with pytest.raises(AnnotationError, match="left 2, right 3"):
        model.predict_proba(["i0", "i1"], ["i1", "i2", "i3"])
    with pytest.raises(AnnotationError, match="annotator 2"):
        model.predict_proba(["i0"] * 3, ["i1", "i2", "i3"], ["a0", "a1"])
    assert model.predict_proba("i0", ["i1", "i2"], ["a0", "a1"]).shape == (2, 3)


def test_options_that_are_none_are_not_given():
    table = crowd(1).table
    options = dict.fromkeys(("time", "gold", "engine"))
    assert BradleyTerry().fit(table, **options).converged_


def test_pairs_that_may_be_asked():
    model = BradleyTerry().fit(crowd(9).table)
    found = model.next_pairs(3, pairs=[("i0", "i1"), ("i2", "i3")])
    assert {frozenset(pair) for pair in found} <= {frozenset(("i0", "i1")), frozenset(("i2", "i3"))}
    with pytest.raises(AnnotationError, match="an item with itself"):
        model.next_pairs(1, pairs=[("i0", "i0")])
    with pytest.raises(AnnotationError, match="pairs is empty"):
        model.next_pairs(1, pairs=[])


# -- pictures -------------------------------------------------------------------------------------


def test_pictures_of_a_ranking():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    from manyhands.displays import BetterDisplay, RankingDisplay

    model = BradleyTerry().fit(crowd(9).table)
    ranking = RankingDisplay.from_model(model, title="Items")
    names = [label.get_text() for label in ranking.ax_.get_yticklabels()]
    assert names == model.items_[model.ranks_.argsort()].tolist()
    assert len(RankingDisplay.from_model(model, most=5).items) == 5
    better = BetterDisplay.from_model(model)
    assert better.image_.get_array().shape == (12, 12)
    with pytest.raises(AnnotationError, match="must be"):
        BetterDisplay(np.zeros((2, 2)), ["x"])
    with pytest.raises(AnnotationError, match="must be"):
        RankingDisplay(["x"], [0.0, 1.0], [[0, 1]])
    pyplot.close("all")
