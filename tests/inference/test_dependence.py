import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from manyhands import GLAD, AnnotationTable, DawidSkene, OneCoinDawidSkene
from manyhands.inference import dependence
from manyhands.inference.confusion_em import OwnRemoved
from manyhands.inference.confusions import EMCounts, m_step
from manyhands.inference.dependence import DEFAULT_EM as EM
from manyhands.inference.dependence import (
    FEW_CLASSES,
    Dependence,
    exponents,
    measure,
    refine,
    residual_correlation,
)
from manyhands.inference.em import STEP_GROWTH
from manyhands.inference.em_aggregator import EMAggregator
from manyhands.inference.gold_samples import KnownLabels
from manyhands.inference.votes import make_votes, vote_shares
from manyhands.registry import all_aggregators

pytestmark = [
    pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning"),
    pytest.mark.filterwarnings("ignore::manyhands.exceptions.SharedMistakesWarning"),
]

TAKERS = [cls for _, cls in all_aggregators() if "dependence" in cls().get_params()]
"""All methods with the parameter."""

MODELS = [cls for cls in TAKERS if issubclass(cls, EMAggregator)]
"""Those whose posterior is raised to the power that follows from it."""


def correlated(rho, seed=0, n=600, r=15, per_instance=8):
    """Three classes; annotators of an instance follow a shared random number with sqrt(rho)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    who = np.argsort(rng.random((n, r)), axis=1)[:, :per_instance]
    skill = rng.uniform(0.55, 0.9, r)[who]
    follows = rng.random(who.shape) < np.sqrt(rho)
    u = np.where(follows, rng.random((n, 1)), rng.random(who.shape))
    given_label = np.where(u < skill, y[:, None], (y[:, None] + 1 + (u > (1 + skill) / 2)) % 3)
    A = np.full((n, r), -1)
    np.put_along_axis(A, who, given_label, axis=1)
    return A, y


def fitted(A, **options):
    votes = make_votes(AnnotationTable.from_matrix(A, **options))
    return votes, EM.run(votes, votes.shards(), vote_shares(votes))


def log_loss(posterior, y):
    return -np.log(np.maximum(posterior[np.arange(len(y)), y], 1e-12)).mean()


# -- the moment ------------------------------------------------------------------------------------


def test_residual_correlation_by_hand():
    """Both annotators are right with .8, and both are wrong: e = (-.8, .8) twice, s = (.4, .4).

    The product of the residuals is 1.28, that of the standard deviations .32.
    """
    votes = make_votes(AnnotationTable.from_matrix([[1, 1]], classes=[0, 1]))
    responses = np.array([[[0.8, 0.2], [0.2, 0.8]]] * 2)
    value, _ = residual_correlation(votes, np.array([[1.0, 0.0]]), responses)
    assert value == pytest.approx(1.28 / 0.32)


def slow_correlation(votes, posterior, responses):
    products, scales = [], []
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    family = np.arange(votes.n_annotators) if votes.family is None else votes.family
    for i in range(votes.n_instances):
        rows = range(votes.start[i], votes.start[i + 1])
        product = scale = 0.0
        for c in range(votes.n_classes):
            for a in rows:
                for b in rows:
                    r, s = votes.annotator[a], votes.annotator[b]
                    if family[r] == family[s]:
                        continue
                    e, f = (
                        np.eye(votes.n_classes)[votes.response[k]] - responses[who, c]
                        for k, who in ((a, r), (b, s))
                    )
                    sd, td = (np.sqrt(responses[k, c] * (1 - responses[k, c])) for k in (r, s))
                    product += posterior[i, c] * weight[a] * weight[b] * (e @ f)
                    scale += posterior[i, c] * weight[a] * weight[b] * (sd @ td)
        products.append(product)
        scales.append(scale)
    value = sum(products) / sum(scales)
    errors = np.array(products) - value * np.array(scales)
    return value, (errors**2).sum() / sum(scales) ** 2


@pytest.mark.parametrize("family", [None, [0, 0, 1, 2]])
@pytest.mark.parametrize("n_classes", [3, FEW_CLASSES + 2])
@given(seed=st.integers(0, 99))
@settings(max_examples=10)
def test_residual_correlation_equals_slow_loops(seed, n_classes, family):
    """With weights and repeated pairs, whose own products do not count; nor do a family's."""
    rng = np.random.default_rng(seed)
    instance = np.repeat(np.arange(5), 4)
    annotator = np.sort(rng.integers(0, 4, (5, 4)), axis=1).ravel()
    table = AnnotationTable.from_arrays(
        instance, annotator, rng.integers(0, n_classes, 20), n_instances=5, n_annotators=4,
        classes=range(n_classes), duplicates="keep", weight=rng.uniform(0.5, 2.0, 20),
    )  # fmt: skip
    votes = replace(make_votes(table), family=None if family is None else np.array(family))
    posterior = rng.dirichlet(np.ones(n_classes), size=5)
    responses = rng.dirichlet(np.ones(n_classes), size=(4, n_classes))
    np.testing.assert_allclose(
        residual_correlation(votes, posterior, responses),
        slow_correlation(votes, posterior, responses),
    )


def test_the_moment_of_the_right_model_is_zero():
    values = []
    for seed in range(8):
        A, y = correlated(0.0, seed)
        votes, run = fitted(A)
        values.append(residual_correlation(votes, np.eye(3)[y], run.parameters.responses)[0])
    assert abs(np.mean(values)) < 0.01


# -- rho -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.0, 0.15, 0.3])
def test_rho_is_recovered(rho):
    found = [measure(*fitted(correlated(rho, seed)[0]), EM) for seed in range(4)]
    values, errors = np.array(found).T
    # The line through two moments overstates what lies between them.
    assert -0.03 < values.mean() - rho < (0.08 if rho == 0.15 else 0.03)
    assert 0.01 < errors.mean() < 0.06


def test_little_evidence_leaves_the_prior():
    A = np.array([[0, 1], [1, 1], [0, 0]])
    model = DawidSkene().fit(A)
    assert abs(model.dependence_ - dependence.PRIOR_MEAN) < 0.15
    assert model.dependence_se_ > 0.1
    one_family = DawidSkene().fit(correlated(0.0, n=50)[0], groups=["f"] * 15)
    assert one_family.dependence_ == pytest.approx(dependence.PRIOR_MEAN)
    assert np.isfinite(one_family.posterior_).all()
    single = DawidSkene().fit(np.array([[0, -1], [-1, 1], [1, -1]]))
    assert single.dependence_ == pytest.approx(dependence.PRIOR_MEAN)


def test_too_many_confusions_are_not_measured(monkeypatch):
    A, _ = correlated(0.0)
    assert OneCoinDawidSkene().fit(A).dependence_ < 0.15
    monkeypatch.setattr(dependence, "N_PARAMETERS", 10)
    model = OneCoinDawidSkene().fit(A)
    assert (model.dependence_, model.dependence_se_) == (0.25, 0.15)


def test_the_sample_stands_for_the_table(monkeypatch):
    votes, run = fitted(correlated(0.3, n=1500)[0])
    whole, _ = measure(votes, run, EM)
    monkeypatch.setattr(dependence, "N_INSTANCES", 500)
    part, error = measure(votes, run, EM)
    assert abs(whole - part) < 3 * error
    assert whole != part


def test_the_order_of_the_rows_is_no_matter():
    table = AnnotationTable.from_matrix(correlated(0.2, n=100)[0])
    mixed = table.take(np.random.default_rng(0).permutation(table.n_annotations))
    one, other = (DawidSkene().fit(t).posterior_ for t in (table, mixed))
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_gold_shows_mistakes_that_nearly_everybody_makes():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    misled = rng.random(400) < 0.3
    named = np.where(misled, 1 - y, y)[:, None]
    A = np.where(rng.random((400, 7)) < 0.9, named, 1 - named)
    without = DawidSkene().fit(A)
    told = DawidSkene().fit(A, gold={i: y[i] for i in range(60)})
    assert told.dependence_ > without.dependence_ + 0.2
    assert log_loss(told.posterior_[60:], y[60:]) < log_loss(without.posterior_[60:], y[60:])
    np.testing.assert_array_equal(told.labels_[:60], y[:60])
    assert GLAD().fit(A, gold={i: y[i] for i in range(60)}).dependence_ > 0.3


def test_refine_minimises_the_loss_of_gold():
    votes = make_votes(AnnotationTable.from_matrix([[0, 0, 0]] * 20, classes=[0, 1]))
    gold = np.repeat([0, 1], [14, 6])
    joint = np.tile([4.0, 0.0], (20, 1))
    known = KnownLabels(gold, "random")
    found = refine(Dependence(0.2, 0.1), votes, lambda _: joint.copy(), known)

    def loss(rho):
        log_p = log_softmax(joint / (1 + 2 * rho), axis=1)
        return -log_p[np.arange(20), gold].sum() + 0.5 * ((rho - 0.2) / 0.15) ** 2

    grid = np.linspace(0, 1, 1001)
    assert found.rho == pytest.approx(min(grid, key=loss), abs=2e-3)
    p = np.exp([-loss(rho) for rho in grid])
    assert found.se == pytest.approx(np.sqrt(p @ (grid - found.rho) ** 2 / p.sum()), rel=0.02)


def test_gold_and_many_annotators_leave_an_honest_error():
    """Near rho = 0 the design effect of 80 annotators must not turn negative."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 150)
    A = np.where(rng.random((150, 80)) < 0.55, y[:, None], 1 - y[:, None])
    model = DawidSkene().fit(A, gold={i: y[i] for i in range(50)})
    assert model.dependence_ < 0.1
    assert 0.002 < model.dependence_se_ < 0.1


def test_weights_of_the_user_do_not_make_dependence():
    A, _ = correlated(0.0, n=400)
    table = AnnotationTable.from_matrix(A)
    weight = np.random.default_rng(0).uniform(0.3, 1, table.n_annotations)
    columns = (table.instance, table.annotator, table.label)
    weighted = AnnotationTable.from_arrays(*columns, weight=weight)
    found = [DawidSkene().fit(t).dependence_ for t in (table, weighted)]
    assert max(found) < 0.08


def test_many_classes_are_measured():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 60, 600)
    A = np.where(rng.random((600, 8)) < 0.75, y[:, None], rng.integers(0, 60, (600, 8)))
    A[rng.random(A.shape) < 0.4] = -1
    assert OneCoinDawidSkene().fit(A).dependence_ < 0.1


# -- the read-out ----------------------------------------------------------------------------------


def test_exponents_by_hand():
    """Three annotators; one asked twice; weights 2 and 2; weights .5, .5; one and an abstention."""
    table = AnnotationTable.from_arrays(
        [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4], [0, 1, 2, 0, 0, 1, 0, 1, 0, 1, 0],
        [0, 1, 1, 0, 1, 1, 0, 1, 0, 1, 1], n_instances=6, n_annotators=3, duplicates="keep",
        weight=[1, 1, 1, 1, 1, 1, 2, 2, 0.5, 0.5, 1],
    )  # fmt: skip
    expected = [1 / 1.6, 2 / 3 / 1.3, 0.5 / 1.3, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(exponents(make_votes(table), 0.3), expected)
    cells = np.array([["a", "unsure", "b"], ["a", "a", "b"]], dtype=object)
    abstaining = AnnotationTable.from_matrix(cells, abstain="unsure")
    votes = make_votes(abstaining, abstentions=True)
    np.testing.assert_allclose(exponents(votes, 0.3), [1 / 1.3, 1 / 1.6])


def test_own_annotations_are_removed_exactly_where_the_class_is_certain():
    """Gold makes p 0 or 1, so the chord is exact: the counts without the instance."""
    A, y = correlated(0.0, n=40, r=5, per_instance=3)
    table = AnnotationTable.from_matrix(A)
    votes = make_votes(table, gold=y)
    run = EM.run(votes, votes.shards(), vote_shares(votes))
    joint = OwnRemoved(run)(votes)
    i, c = 7, y[7]
    counts = run.counts.confusion + run.pseudo_counts
    expected = np.log(run.counts.prior[c] - 1)
    for r in np.flatnonzero(A[i] >= 0):
        mine = counts[r, c].copy()
        mine[A[i, r]] -= 1
        expected += np.log(mine[A[i, r]] / mine.sum())
    assert joint[i, c] == pytest.approx(expected)
    other = (c + 1) % 3
    expected = np.log(run.counts.prior[other])
    for r in np.flatnonzero(A[i] >= 0):
        expected += np.log(counts[r, other, A[i, r]] / counts[r, other].sum())
    assert joint[i, other] == pytest.approx(expected)


@pytest.mark.parametrize("how", ["weighted", "repeated", "families"])
def test_what_weighted_annotations_added_is_removed(how):
    """Against a loop; instances without weights and repetitions do as in a table of their own."""
    A, _ = correlated(0.0, n=12, r=4, per_instance=3)
    table = AnnotationTable.from_matrix(A, classes=range(3))
    if how == "families":
        table = table.with_groups({2: "f", 3: "f"})
    else:
        rng = np.random.default_rng(0)
        extra = rng.permutation(36)[:9] if how == "repeated" else []
        rows = np.concatenate([np.arange(36), extra]).astype(int)
        label = table.label[rows].copy()
        label[36:] = rng.integers(0, 3, len(extra))
        weight = rng.uniform(0.2, 2.0, 36) if how == "weighted" else None
        table = AnnotationTable.from_arrays(
            table.instance[rows], table.annotator[rows], label, n_instances=12, n_annotators=4,
            classes=range(3), weight=weight, duplicates="keep",
        )  # fmt: skip
    votes = make_votes(table)
    run = EM.run(votes, votes.shards(), vote_shares(votes))
    p = run.parameters.posterior(votes)
    counts = run.counts.confusion + run.pseudo_counts
    n = run.counts.prior
    expected = np.log(np.maximum(n - p, 0.5 * np.minimum(n, 1)))
    weight = np.ones(votes.n_annotations) if votes.weight is None else votes.weight
    for a in range(votes.n_annotations):
        i, r, given_class = votes.instance[a], votes.annotator[a], votes.response[a]
        own = np.flatnonzero((votes.instance == i) & (votes.annotator == r))
        for c in range(3):
            rest = counts[r, c].copy()
            for b in own:
                rest[votes.response[b]] -= weight[b] * p[i, c]
            expected[i, c] += weight[a] * np.log(rest[given_class] / rest.sum())
    found = OwnRemoved(run)(votes)
    exact = votes.uneven
    np.testing.assert_allclose(found[exact], expected[exact])
    others = np.setdiff1d(np.arange(12), exact)
    assert (0 < len(others) < 12) == (how != "weighted")
    np.testing.assert_allclose(found[others], OwnRemoved(run)(votes.select(others)))


def test_without_a_prior_nothing_is_removed():
    A, _ = correlated(0.0, n=40)
    model = DawidSkene(confusion_prior=None, dependence=0.2).fit(A)
    np.testing.assert_allclose(model.posterior_, model.predict_proba(A))


@pytest.mark.parametrize("cls", MODELS)
def test_a_number_tempers_the_published_posterior(cls):
    A, _ = correlated(0.0, n=60, per_instance=4)
    A[3] = -1
    published, tempered = cls(dependence=0).fit(A), cls(dependence=0.3).fit(A)
    power = np.where((A >= 0).any(axis=1), 1 / (1 + 3 * 0.3), 1.0)[:, None]
    expected = published.predict_proba(A) ** power
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(tempered.predict_proba(A), expected, atol=1e-6)
    assert (tempered.dependence_, tempered.dependence_se_) == (0.3, 0.0)
    np.testing.assert_allclose(tempered.posterior_[3], tempered.class_prior_)
    gold = cls(dependence=0.3).fit(A, gold={0: 2})
    np.testing.assert_allclose(gold.posterior_[0], [0, 0, 1])


@pytest.mark.parametrize("cls", MODELS)
def test_shared_mistakes_cost_less(cls):
    A, y = correlated(0.3)
    published, found = cls(dependence=0).fit(A), cls(dependence="auto").fit(A)
    assert log_loss(found.posterior_, y) < 0.75 * log_loss(published.posterior_, y)
    assert (found.labels_ == y).mean() > (published.labels_ == y).mean() - 0.02


@pytest.mark.parametrize("value", [1.5, -0.1, np.nan, "0.3", None, True, np.False_])
@pytest.mark.parametrize("cls", TAKERS)
def test_bad_dependence_is_refused(cls, value):
    says = rf"'dependence' parameter of {cls.__name__} must be .*Got {re.escape(repr(value))}"
    with pytest.raises(ValueError, match=says):
        cls(dependence=value).fit([[0, 1], [1, 1]])


def test_whole_numbers_are_numbers():
    assert DawidSkene(dependence=1).fit([[0, 1], [1, 1]]).dependence_ == 1.0


# -- EM --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_subtypes", [1, 2])
def test_over_relaxed_steps_reach_the_same_maximum_sooner(n_subtypes):
    A, _ = correlated(0.1, n=300)
    settings_ = {"tol": 1e-9, "max_iter": 500, "n_subtypes": n_subtypes, "dependence": 0}
    plain = DawidSkene(accelerate=False, **settings_).fit(A)
    fast = DawidSkene(**settings_).fit(A)
    np.testing.assert_allclose(fast.posterior_, plain.posterior_, atol=1e-3)
    assert fast.n_iter_ < plain.n_iter_


def test_a_step_beyond_by_definition():
    """Each goes so many times as far as EM would, in logarithms; the third is too far, and EM's."""
    A, _ = correlated(0.1, n=300)
    options = {"confusion_prior": None, "tol": 0.0, "dependence": 0}
    fits = [DawidSkene(max_iter=n, **options).fit(A) for n in range(1, 9)]
    steps = STEP_GROWTH ** np.array([1, 2, 0, 1, 2, 3, 4])
    for step, (here, beyond) in zip(steps, pairwise(fits), strict=True):
        proposal = DawidSkene(max_iter=1, **options).fit(A, start=here.posterior_)
        for name in ("class_prior_", "confusion_"):
            start, end, found = (getattr(fit, name) for fit in (here, proposal, beyond))
            expected = start * (end / start) ** step
            np.testing.assert_allclose(found, expected / expected.sum(axis=-1, keepdims=True))


def test_the_m_step_by_hand():
    counts = EMCounts(np.array([1.0, 3.0]), np.array([[[1.0, 0.0], [1.0, 2.0]]]))
    found = m_step(counts, np.full((1, 2, 2), 0.5))
    np.testing.assert_allclose(found.prior, [0.25, 0.75])
    np.testing.assert_allclose(found.responses, [[[0.75, 0.25], [0.375, 0.625]]])
