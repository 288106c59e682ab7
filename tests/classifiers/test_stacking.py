"""Crowd-calibrated stacking: its equations by hand, limiting cases, members, saving."""

import json
import pickle
import warnings
from dataclasses import replace

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_matrix
from scipy.special import log_softmax, logsumexp
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from manyhands import (
    AnnotationTable,
    AveragedCrowdClassifier,
    CrowdStackingClassifier,
    DASCClassifier,
    DawidSkene,
    MajorityVote,
    SelfTrainingCrowdClassifier,
    load,
    load_demo,
    make_crowd,
    select,
)
from manyhands.classifiers.stacking import crowd, encoding, stack
from manyhands.classifiers.stacking import members as members_module
from manyhands.classifiers.stacking.members import as_member
from manyhands.classifiers.stacking.rounds import fit_rounds
from manyhands.exceptions import AnnotationError, ModelChoiceWarning, ModelFolderError
from manyhands.inference.votes import make_votes
from manyhands.linear.ridge import SoftRidge
from manyhands.report import render_report, summarize
from manyhands.selection.selecting import SHORT_LIST


def blobs(n=90, n_classes=3, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return rng.normal(scale=spread, size=(n, 5)) + 2.0 * np.eye(n_classes, 5)[y], y


def few_blobs():
    """60 instances of three classes: features, annotations, true classes."""
    X, y = blobs(60)
    return X, make_crowd(y, n_annotators=8, random_state=0), y


def small_votes(seed=0, n=12, n_annotators=4, n_classes=3):
    rng = np.random.default_rng(seed)
    A = rng.integers(n_classes, size=(n, n_annotators))
    A[rng.random(A.shape) < 0.3] = -1
    A[:, 0] = rng.integers(n_classes, size=n)
    return A, make_votes(AnnotationTable.from_matrix(A, classes=range(n_classes)))


# -- the equations, by loops -----------------------------------------------------------------------


def test_confusions_borrow_from_the_crowd():
    A, votes = small_votes()
    q = np.random.default_rng(1).dirichlet(np.ones(3), size=len(A))
    counts = np.zeros((4, 3, 3))
    for n, row in enumerate(A):
        for r, given in enumerate(row):
            if given >= 0:
                counts[r, :, given] += q[n]
    pooled = counts.sum(axis=0) + 0.1 + np.eye(3)
    pooled /= pooled.sum(axis=1, keepdims=True)
    expected = counts + 5 * pooled
    expected /= expected.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(crowd.estimate_confusions(votes, q, 5.0), expected)


def test_kappa():
    many = 10**12
    assert crowd.prior_shrinkage(np.full(4, 0.25), many) == 1.0
    # var = .01, x = 4 * .01 / 1.
    expected = 1 / (1 + (0.04 / 0.011) ** 2)
    assert crowd.prior_shrinkage(np.array([0.4, 0.6]), many) == pytest.approx(expected)
    expected = 1 / (1 + ((0.04 - 0.01) / 0.011) ** 2)
    assert crowd.prior_shrinkage(np.array([0.4, 0.6]), 100) == pytest.approx(expected)
    one_class = crowd.prior_shrinkage(np.array([1.0, 0.0, 0.0]), many)
    assert one_class == pytest.approx(1 / (1 + 0.011**-2))


def test_equal_classes_differ_by_one_nth_in_a_sample():
    rng = np.random.default_rng(0)
    shares = rng.multinomial(50, np.full(5, 0.2), size=20_000) / 50
    assert (25 * shares.var(axis=1) / 4).mean() == pytest.approx(1 / 50, rel=0.02)


def test_posterior_has_the_wanted_shares():
    joint = np.random.default_rng(0).normal(size=(500, 3)) * 2
    wanted = np.array([0.2, 0.3, 0.5])
    posterior = crowd.posterior_with_shares(joint.copy(), wanted)
    np.testing.assert_allclose(posterior.mean(axis=0), wanted, atol=1e-6)
    # The shift is the same for all instances.
    shift = np.log(posterior) - log_softmax(joint, axis=1)
    shift -= shift[:, :1]
    np.testing.assert_allclose(shift, np.broadcast_to(shift[0], shift.shape), atol=1e-9)
    free = crowd.posterior_with_shares(joint, None)
    np.testing.assert_allclose(free, np.exp(log_softmax(joint, axis=1)))


def test_abstentions_are_counted_by_loops():
    """`rownorm(A_r + s rownorm(sum_r A_r + .1))`, and the sum of its logarithms by instance."""
    A, _ = small_votes(seed=3, n=9)
    A[[0, 2, 5], [1, 1, 2]] = 7
    table = AnnotationTable.from_matrix(A, classes=range(3), abstain=7)
    asked = crowd.asked(make_votes(table, abstentions=True))
    belief = np.random.default_rng(0).dirichlet(np.ones(3), size=9)
    counts = np.zeros((4, 3, 2))
    for i, r in zip(*np.nonzero(A >= 0), strict=True):
        counts[r, :, int(A[i, r] == 7)] += belief[i]
    pooled = counts.sum(axis=0) + 0.1
    expected = counts + 5 * pooled / pooled.sum(axis=1, keepdims=True)
    expected /= expected.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(crowd.estimate_abstention(asked, belief, 5.0), expected)
    assert crowd.asked(small_votes()[1]) is None


@pytest.mark.filterwarnings("ignore:the features predict")
def test_abstentions_are_evidence_of_a_class_that_makes_people_unsure(tmp_path):
    X, y = blobs(240, n_classes=2, spread=2.0)
    rng = np.random.default_rng(1)
    A = np.where(rng.random((240, 4)) < 0.7, y[:, None], rng.integers(2, size=(240, 4)))
    A[rng.random(A.shape) < np.array([0.05, 0.6])[y, None]] = 9
    A[np.all(A == 9, axis=1), 0] = -1  # Everyone abstained: as if without annotations.
    table = AnnotationTable.from_matrix(A, abstain=9)
    model, deaf = (
        CrowdStackingClassifier(abstentions=each, n_rounds=3, random_state=0).fit(X, table)
        for each in ("model", "ignore")
    )
    assert np.mean(model.labels_ == y) > np.mean(deaf.labels_ == y) + 0.02
    np.testing.assert_allclose(model.abstention_.mean(axis=0), [0.05, 0.6], atol=0.08)
    assert (deaf.abstention_ == 0).all()
    np.testing.assert_array_equal(load(model.save(tmp_path)).abstention_, model.abstention_)
    unheard = AnnotationTable.from_matrix(np.where(A == 9, -1, A), classes=[0, 1])
    again = CrowdStackingClassifier(n_rounds=3, random_state=0).fit(X, unheard)
    np.testing.assert_array_equal(again.posterior_, deaf.posterior_)


def test_relative_informedness_by_loops():
    A, votes = small_votes(seed=3, n=30)
    rng = np.random.default_rng(4)
    codes, beta = rng.integers(3, size=30), rng.random(4)
    agree = pairs = with_them = 0.0
    e, f = np.zeros(3), np.bincount(codes, minlength=3) / 30
    for n, row in enumerate(A):
        given = [(r, a) for r, a in enumerate(row) if a >= 0]
        for r, a in given:
            e[a] += beta[r]
            for s, b in given:
                if r != s:
                    pairs += beta[r] * beta[s]
                    agree += beta[r] * beta[s] * (a == b)
                    with_them += beta[r] * beta[s] * (a == codes[n])
    e /= e.sum()
    expected = ((with_them / pairs - e @ f) / (1 - e @ f)) / ((agree / pairs - e @ e) / (1 - e @ e))
    floored = (with_them / pairs - e @ f) / (1 - e @ f) / 1e-3
    found = crowd.relative_informedness(votes, codes, beta)
    assert found == pytest.approx(expected if agree / pairs > e @ e + 1e-3 else floored)


def test_single_annotations_have_no_relative_informedness():
    votes = make_votes(AnnotationTable.from_matrix(np.eye(3, dtype=int) * 2 - 1, classes=[0, 1]))
    assert crowd.relative_informedness(votes, np.zeros(3, dtype=int), np.ones(3)) is None


def test_exponent_is_the_most_likely_one():
    rng = np.random.default_rng(0)
    log_proba = log_softmax(rng.normal(size=(20, 3)), axis=1)
    annotated = stack.Annotated(np.repeat(np.arange(20), 2), rng.dirichlet(np.ones(3), size=40))

    def likelihood(temperature):
        total = 0.0
        for place, instance in enumerate(annotated.instance):
            powered = (np.exp(log_proba[instance]) + 1e-4) ** temperature
            total += np.log(powered / powered.sum() @ annotated.likelihood[place])
        return total / 40

    values = [likelihood(t) for t in stack.EXPONENTS]
    found, value = stack.choose_exponent(log_proba, annotated)
    assert found == stack.EXPONENTS[int(np.argmax(values))]
    assert value == pytest.approx(max(values))


def test_stack_weights_maximise_the_penalised_likelihood():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=200)
    good = log_softmax(3 * np.eye(3)[truth] + rng.normal(size=(200, 3)), axis=1)
    bad = log_softmax(rng.normal(size=(200, 3)), axis=1)
    log_probas = np.stack([good, bad])
    likelihood = np.where(np.eye(3)[truth] > 0, 0.8, 0.1)
    annotated = stack.Annotated(np.arange(200), likelihood, np.full(200, 0.5))

    def objective(weights):
        joint = np.einsum("m,mnc->nc", weights, log_probas)
        p = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        penalty = ((np.log(weights) - np.log(0.5)) ** 2).sum()
        return 0.5 * np.log((p * likelihood).sum(axis=1)).sum() - penalty

    found = stack.stack_weights(log_probas, annotated)
    assert found[0] > found[1]
    for move in ([1.05, 1], [0.95, 1], [1, 1.05], [1, 0.95]):
        assert objective(found) > objective(found * move)


# -- limiting cases --------------------------------------------------------------------------------


class Remembered(BaseEstimator):
    """Says of each class how near its mean is; closed-form in the test's own loop, too."""

    def fit(self, X, T):
        self.means_ = (T.T @ X) / T.sum(axis=0)[:, None]
        return self

    def predict_log_proba(self, X):
        return log_softmax(-((X[:, None] - self.means_) ** 2).sum(axis=2), axis=1)


def test_one_member_without_prior_is_em_with_out_of_fold_priors():
    """With b = 1 a round is an E-step with the member's out-of-fold predictions as the prior."""
    X, y = blobs()
    table = make_crowd(y, n_annotators=8, random_state=0)
    model = CrowdStackingClassifier(
        [("own", Remembered())],
        n_rounds=3,
        classifier_weight=1.0,
        class_prior="estimated",
        vote_share=0.0,
        dependence=0.0,
        n_folds=3,
        random_state=5,
    ).fit(X, table)

    votes = make_votes(table)
    folds = _folds_of(model, X, len(X), 3)
    q = table.vote_counts() / table.vote_counts().sum(axis=1, keepdims=True)
    for number in range(3):
        confusion = crowd.estimate_confusions(votes, q, 5.0)
        out = np.empty_like(q)
        for fold in range(3):
            inside, outside = folds != fold, folds == fold
            out[outside] = Remembered().fit(X[inside], q[inside]).predict_log_proba(X[outside])
        part = model.stack_.rounds[number - 1][0] if number else None
        weight, temperature = (
            (part.weight, part.temperature) if part else _first(out, votes, confusion)
        )
        prior = log_softmax(weight * stack.temper(out, temperature), axis=1)
        evidence = np.zeros_like(q)
        for instance, annotator, given in zip(
            table.instance, table.annotator, table.label, strict=True
        ):
            evidence[instance] += np.log(confusion[annotator, :, given])
        q = np.exp(log_softmax(prior + evidence, axis=1))
    # The posterior of the rounds, from which the labels are then read out.
    findings = fit_rounds(model, X.astype(np.float32), table)
    np.testing.assert_allclose(findings.rounds.posterior, q, atol=1e-6)


def _folds_of(model, X, n, n_folds):
    """The folds that the fit drew: its generator draws nothing before them for given members."""
    from manyhands.training.seeding import draw_seed

    rng = np.random.default_rng(draw_seed(model.random_state))
    return rng.permutation(np.arange(n) % n_folds)


def _first(out, votes, confusion):
    """Weight and temperature of the first round, which no prediction uses."""
    likelihood = confusion[votes.annotator, :, votes.response]
    annotated = stack.Annotated(votes.instance, likelihood)
    temperature, _ = stack.choose_exponent(out, annotated)
    return stack.stack_weights(stack.temper(out, temperature)[None], annotated)[0], temperature


@pytest.mark.filterwarnings("ignore:the features predict")
def test_perfect_annotators_give_the_members_trained_on_gold():
    X, y = blobs(n=120, spread=1.5)
    A = np.repeat(y[:, None], 5, axis=1)
    model = CrowdStackingClassifier(
        [("ridge", SoftRidge([1.0]))], n_rounds=3, vote_share=0.0, random_state=0
    ).fit(X, A)
    np.testing.assert_allclose(model.posterior_, np.eye(3)[y], atol=1e-3)
    gold = SoftRidge([1.0]).fit(X.astype(np.float32), np.eye(3)[y])
    for parts in model.stack_.rounds:
        np.testing.assert_allclose(parts[0].predictor.coef, gold.coef_, atol=1e-3)
    np.testing.assert_array_equal(model.predict(X), gold.predict_log_proba(X).argmax(axis=1))


def test_one_round_is_stacking_on_vote_shares():
    X, y = blobs()
    table = make_crowd(y, n_annotators=8, random_state=0)
    model = CrowdStackingClassifier([("ridge", SoftRidge([0.3]))], n_rounds=1, random_state=0)
    model.fit(X, table)
    votes = table.vote_counts()
    shares = votes / votes.sum(axis=1, keepdims=True)
    member = SoftRidge([0.3])
    ((log_proba, predictor),) = member.prepare(X).fit_predict_loo(X, shares)
    confusion = crowd.estimate_confusions(make_votes(table), shares, 5.0)
    weight, temperature = _first(log_proba[:], make_votes(table), confusion)
    new = stack.temper(predictor.predict_log_proba(X), temperature)
    expected = np.exp(log_softmax(weight * new, axis=1))
    np.testing.assert_allclose(untempered(model).predict_proba(X), expected, atol=1e-4)


def untempered(model):
    """The mean of the rounds, before its exponent."""
    return replace(model.stack_, exponent=1.0)


# -- what users do ---------------------------------------------------------------------------------


def quick(**parameters):
    return CrowdStackingClassifier(**{"n_rounds": 2, "n_folds": 2, "random_state": 0, **parameters})


def light(**parameters):
    """One member, where it is not the members that are tested."""
    return quick(members=[("ridge", SoftRidge())], **parameters)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda: AveragedCrowdClassifier([light(), light(crowd_strength=1.0)]),
        lambda: DASCClassifier(light(), n_rounds=1, guard_folds=2, random_state=0),
        lambda: SelfTrainingCrowdClassifier(
            light(), n_rounds=1, guard_folds=2, warm_start=True, random_state=0
        ),
        lambda: GridSearchCV(light(), {"crowd_strength": [1.0, 5.0]}, cv=2),
        lambda: make_pipeline(StandardScaler(), quick()),
        quick,
    ],
)
def test_it_composes_as_others_do(wrap, tmp_path):
    (X, y), (new, new_y) = blobs(60, spread=0.7), blobs(60, spread=0.7, seed=1)
    model = clone(wrap()).fit(X, make_crowd(y, n_annotators=8, random_state=0))
    proba = model.predict_proba(new)
    assert np.mean(new_y == proba.argmax(axis=1)) > 0.85
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(new), proba)
    if hasattr(model, "save"):
        model.save(tmp_path)
        np.testing.assert_array_equal(load(tmp_path).predict_proba(new), proba)


def test_select_knows_its_rounds_and_its_prior():
    X, y = blobs(200)
    table = make_crowd(y, n_annotators=8, random_state=0)
    with pytest.raises(AnnotationError, match="differ only in n_rounds"):
        select([light(), light(n_rounds=6)], X, table, cv=2)
    candidates = {"auto": light(), "equal": light(class_prior="uniform")}
    with pytest.warns(ModelChoiceWarning, match="auto and equal differ only in the class prior"):
        found = select(candidates, X, table, cv=2)
    assert found.best_ in candidates
    assert "CrowdStackingClassifier" in SHORT_LIST


def test_the_report_tells_of_the_stack_in_words():
    X, table, y = few_blobs()
    model = quick().fit(X, table)
    summary = summarize(table, classifier=model, X=X, gold=y)
    training = summary["training"]
    assert [chart["name"] for chart in training["charts"]] == ["nll", "relative_informedness"]
    assert {m["name"]: m["weight"] for m in training["stack"]["members"]} == model.member_weights_
    assert summary["labels"]["source"] == "CrowdStackingClassifier"
    names = [row["name"] for row in summary["gold"]["rows"]]
    assert names[1:] == ["CrowdStackingClassifier", "CrowdStackingClassifier (prediction)"]
    page = render_report(summary)
    assert (
        f"are worth {model.relative_informedness_:.2f} times as much as another annotation" in page
    )
    assert all(name in page for name in model.member_weights_)
    priors = {
        "auto": "of the way towards equal frequencies",
        "uniform": "All classes were taken to be equally frequent",
        "estimated": "frequencies of the classes were estimated",
        (1 / 3, 1 / 3, 1 / 3): "are those given as <code>class_prior</code>",
    }
    for prior in priors:
        model = light(class_prior=prior).fit(X, table)
        page = render_report(summarize(table, classifier=model))
        assert [says for says in priors.values() if says in page] == [priors[prior]]


def test_the_report_of_new_instances_is_made_of_predictions():
    X, table, _ = few_blobs()
    model = quick().fit(X[:40], table[:40])
    other = summarize(table[40:], classifier=model, X=X[40:])
    assert other["labels"]["source"] == "CrowdStackingClassifier (prediction)"


def test_given_shares_pull_the_posterior():
    demo = load_demo()
    X, table = demo.X_train[:200], demo.annotations[:200]
    shares = dict.fromkeys(table.classes.tolist(), 0.1) | {0: 0.03, 1: 0.17}
    wanted = np.array(list(shares.values()))
    free = light(class_prior="estimated").fit(X, table)
    for given in (shares, wanted.tolist()):
        model = light(class_prior=given).fit(X, table)
        away = np.abs(model.class_prior_ - wanted).sum()
        assert away < 0.4 * np.abs(free.class_prior_ - wanted).sum()


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ({0: 1.0}, "class_prior names"),
        ([0.5, 0.5], "one nonnegative share"),
        ([0.5, 0.5, 0.5], "sums to 1.5"),
        ([0.5, 0.5, 0.0], "share 0"),
        (["much", "some", "little"], r"\['much', 'some', 'little'\] must hold numbers"),
        ({0: "much", 1: 0.5, 2: 0.5}, "must hold numbers"),
    ],
)
def test_unusable_shares_are_refused(prior, message):
    X, y = blobs()
    with pytest.raises(AnnotationError, match=message):
        CrowdStackingClassifier(class_prior=prior).fit(X, y)


def test_members_of_all_kinds(tmp_path):
    X, y = blobs(n=120)
    table = make_crowd(y, n_annotators=10, random_state=0)
    members = [
        ("forest", RandomForestClassifier(10, random_state=0)),
        ("scaled", make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0))),
        ("ridge", Ridge(), StandardScaler()),
        ("own", Remembered()),
        ("exact", SoftRidge()),
    ]
    model = CrowdStackingClassifier(members, n_rounds=2, random_state=0).fit(X, table)
    assert list(model.member_weights_) == [name for name, *_ in members]
    assert (model.labels_ == y).mean() > 0.9
    assert model.score(X, y) > 0.9
    with pytest.raises(AnnotationError, match="without pickle"):
        model.save(tmp_path / "model")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([], "at least one member"),
        ([("a", Ridge()), ("a", Ridge())], "own name"),
        ([Ridge()], "give tuples"),
        ([("knn", KNeighborsClassifier())], "cannot learn soft targets"),
        ([("ridge", Ridge)], "is the class Ridge"),
        ([("svr", SVR())], r"a single output .* give MultiOutputRegressor\(SVR\(\)\)"),
        ([("svr", make_pipeline(StandardScaler(), SVR()))], "member 'svr' is a SVR"),
        ([("a", Ridge(), "scale")], "view of member 'a' is 'scale', which is not a transformer"),
        ([("a", Ridge(), StandardScaler)], "StandardScaler'>, which is not a transformer"),
        ([("a", Ridge(), LogisticRegression())], "which is not a transformer"),
    ],
)
def test_unusable_members_are_refused(members, message):
    X, y = blobs()
    with pytest.raises(AnnotationError, match=message):
        CrowdStackingClassifier(members).fit(X, y)


def test_a_fold_of_one_class_is_named():
    X, _ = blobs(n=2)
    with pytest.raises(AnnotationError, match="one class only for the member LogisticRegression"):
        CrowdStackingClassifier([("lr", LogisticRegression())]).fit(X, [0, 1])


@pytest.mark.parametrize("container", [np.asarray, csr_matrix, pd.DataFrame])
def test_features_that_are_not_finite_are_named(container):
    X, y = blobs()
    X[[4, 9], [1, 2]] = np.nan
    own = CrowdStackingClassifier([("ridge", Ridge())])
    with pytest.raises(
        AnnotationError, match=r"NaN in 2 of 90 rows, first in row 4, column 1; .*Im"
    ):
        own.fit(container(X), y)
    fitted = own.fit(np.nan_to_num(X), y)
    X = np.nan_to_num(X)
    X[7, 0] = np.inf
    for method in (fitted.predict, lambda X: own.fit(X, y)):
        with pytest.raises(AnnotationError, match=r"infinity .* in 1 of 90 rows, first in row 7"):
            method(container(X))


def test_a_scikit_learn_classifier_needs_sample_weights():
    as_member("forest", RandomForestClassifier())
    with pytest.raises(AnnotationError, match="sample_weight"):
        as_member("knn", make_pipeline(StandardScaler(), KNeighborsClassifier()))


def test_classes_that_nobody_gave_have_no_probability(tmp_path):
    X, y = blobs()
    table = AnnotationTable.from_matrix(np.repeat(2 * y[:, None], 3, axis=1), classes=range(6))
    model = CrowdStackingClassifier(n_rounds=2, random_state=0).fit(X, table)
    proba = model.predict_proba(X)
    assert proba.shape == (90, 6)
    assert not proba[:, 1::2].any()
    np.testing.assert_allclose(model.confusion_.sum(axis=2), 1.0)
    np.testing.assert_array_equal(load(model.save(tmp_path / "model")).predict_proba(X), proba)


def test_start_continues_from_another_model():
    X, table, _ = few_blobs()
    first = CrowdStackingClassifier(n_rounds=3, random_state=0).fit(X, table)
    again = CrowdStackingClassifier(n_rounds=1, random_state=0).fit(X, table, start=first)
    fresh = CrowdStackingClassifier(n_rounds=1, random_state=0).fit(X, table)
    assert again.history_[0]["nll"] < fresh.history_[0]["nll"]
    other = AnnotationTable.from_matrix(np.eye(60, 3, dtype=int))
    for features, target, start, message in (
        (X, other, first, "start knows the classes"),
        (X[:, :4], table, first, "X has 4 features"),
        (X, table, DawidSkene().fit(table), "start is a DawidSkene"),
    ):
        with pytest.raises(ValueError, match=message):
            CrowdStackingClassifier().fit(features, target, start=start)


def test_a_start_reads_columns_as_it_was_fitted():
    X, table, _ = few_blobs()
    frame = pd.DataFrame(X).add_prefix("x")
    frame["colour"] = np.where(frame["x0"] > 0, "red", "green")
    frame.loc[::10, "x0"] = np.nan
    first = CrowdStackingClassifier(n_rounds=2, random_state=0).fit(frame, table)
    options = {"n_rounds": 1, "random_state": 0}
    straight = CrowdStackingClassifier(**options).fit(frame, table, start=first)
    turned = CrowdStackingClassifier(**options).fit(frame[frame.columns[::-1]], table, start=first)
    assert straight.history_[0]["nll"] == pytest.approx(turned.history_[0]["nll"], rel=0.02)


def test_one_instance_is_too_few():
    with pytest.raises(AnnotationError, match="one instance only"):
        CrowdStackingClassifier().fit(np.zeros((1, 2)), np.array([[0, 1]]))


def test_many_rows_use_landmarks(tmp_path):
    X, y = blobs(n=1600)
    table = make_crowd(y, n_annotators=20, random_state=0)
    model = CrowdStackingClassifier(n_landmarks=60, n_rounds=2, random_state=0).fit(X, table)
    assert model.score(X, y) > 0.8
    kept = [getattr(m.view, "steps", [("", None)])[-1][1] for m in model.stack_.members]
    assert {len(m.landmarks_) for m in kept if hasattr(m, "landmarks_")} == {60}
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_very_many_rows_are_streamed(monkeypatch, tmp_path):
    X, y = blobs(n=1600)
    table = make_crowd(y, n_annotators=20, random_state=0)
    monkeypatch.setattr(members_module, "STREAMED_ROWS", 1000)
    model = CrowdStackingClassifier(n_landmarks=60, n_rounds=2, random_state=0).fit(X, table)
    assert list(model.member_weights_) == ["rbf standardised", "rbf directions", "linear"]
    assert model.score(X, y) > 0.8
    # Two of its members, with features that are kept.
    monkeypatch.setattr(members_module, "STREAMED_ROWS", 10_000)
    kept = members_module.automatic_members(X, 60, 0)[:2]
    monkeypatch.setattr(members_module, "STREAMED_ROWS", 1000)
    for before, streamed in zip(kept, members_module.automatic_members(X, 60, 0), strict=False):
        folds, T = np.arange(1600) % 5, np.eye(3)[y]
        options = [member.fitted_on(X, folds).options(T) for member in (before, streamed)]
        for one, other in zip(*options, strict=True):
            np.testing.assert_allclose(other.log_proba[7:90], one.log_proba[7:90], atol=1e-3)
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_wide_sparse_features_take_logistic_regression(tmp_path):
    from scipy.sparse import csr_matrix

    X, y = blobs()
    wide = csr_matrix(np.hstack([X, np.zeros((len(X), 1200))]))
    model = CrowdStackingClassifier(n_rounds=3, random_state=0).fit(
        wide, make_crowd(y, random_state=0)
    )
    assert list(model.member_weights_) == ["logistic"]
    assert model.score(wide, y) > 0.85
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(wide), model.predict_proba(wide))


def mixed_columns(n=240, seed=0):
    """Columns whose colour tells the class, beside numbers with gaps."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    size = y + rng.normal(size=n)
    size[::7] = np.nan
    colour = np.array(["red", "green", "blue"], dtype=object)[y]
    colour[::11] = None
    colour[5] = "a colour of its own"
    columns = {"size": size, "colour": colour, "old": rng.random(n) < 0.3, "n": np.arange(n) % 5}
    return columns, y


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_columns_of_several_kinds_are_encoded(make, tmp_path):
    columns, y = mixed_columns()
    X, table = make(columns), make_crowd(y, n_annotators=8, random_state=0)
    model = CrowdStackingClassifier(n_rounds=3, random_state=0).fit(X, table)
    new, new_y = mixed_columns(seed=1)
    new["colour"][0] = "never seen"
    assert model.score(make(new), new_y) > 0.9
    # size and its gaps, three colours, rare ones, no colour, old, n.
    assert model.input_shape_ == (9,)
    assert model.feature_names_in_.tolist() == list(columns)
    proba = model.predict_proba(make(new))
    shuffled = make({name: new[name] for name in ("n", "old", "colour", "size")})
    np.testing.assert_array_equal(model.predict_proba(shuffled), proba)
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(make(new)), proba)
    with pytest.raises(AnnotationError, match="fit encoded a data frame"):
        model.predict(np.zeros((2, 4)))
    with pytest.raises(AnnotationError, match="lacks column 'colour'"):
        model.predict(shuffled[["n", "old", "size"]])


def test_columns_may_have_numbers_for_names():
    columns, y = mixed_columns()
    X = pd.DataFrame(dict(enumerate(columns.values())))
    model = CrowdStackingClassifier(n_rounds=1, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    with pytest.raises(AnnotationError, match="column 4 of X holds text"):
        model.fit(
            X.assign(**{"4": [f"code{n}" for n in range(len(X))]}).rename(columns={"4": 4}), y
        )


def test_values_of_a_column_by_hand():
    texts = ["a"] * 6 + ["b"] * 5 + ["c"] * 2 + [None]
    column = nw.from_native(pd.DataFrame({"x": pd.Categorical(texts)}))["x"]
    fitted = encoding.Values.of("x", column)
    assert fitted == encoding.Values("x", ["a", "b"], rare=True, gaps=True)
    expected = np.repeat(np.eye(4), [6, 5, 2, 1], axis=0)
    np.testing.assert_array_equal(fitted.encode(column), expected)


def test_frames_of_numbers_are_as_arrays():
    X, y = blobs()
    table = make_crowd(y, random_state=0)
    frame = pd.DataFrame(X, columns=list("abcde"))
    fits = [
        CrowdStackingClassifier(n_rounds=2, random_state=0).fit(given, table)
        for given in (frame, X)
    ]
    assert fits[0].encoder_ is None
    np.testing.assert_allclose(fits[0].posterior_, fits[1].posterior_, atol=1e-4)


def test_ids_dates_and_gaps_elsewhere_are_refused():
    columns, y = mixed_columns()
    X = pd.DataFrame(columns)
    model = CrowdStackingClassifier()
    for refused, message in (
        (
            X.assign(code=[f"a{n}" for n in range(len(X))]),
            "'code' of X holds text",
        ),
        (X.assign(day=pd.date_range("2020-01-01", periods=len(X))), "'day' of X holds dates"),
        (X.assign(size=np.inf), "'size' of X holds infinity"),
    ):
        with pytest.raises(AnnotationError, match=message):
            model.fit(refused, y)
    with pytest.raises(
        AnnotationError, match=r"'colour' of X holds text .* only with members='auto'"
    ):
        CrowdStackingClassifier([("ridge", Ridge())]).fit(X, y)


def test_networks_are_members(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(members_module, "FEWEST_STEPS", 60)
    X, y = blobs(n=60, spread=0.7)
    table = make_crowd(y, n_annotators=8, random_state=0)
    members = [
        (
            "module",
            torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)),
        ),
        ("member", members_module.SoftNetwork("linear", max_epochs=5)),
        ("name", "mlp"),
        ("dict", {"name": "mlp", "dropout": 0.2}),
    ]
    options = {"n_rounds": 2, "n_folds": 2, "random_state": 0}
    model = CrowdStackingClassifier(members, **options).fit(X, table)
    assert model.score(X, y) > 0.85
    assert list(model.member_weights_) == ["module", "member", "name", "dict"]
    with pytest.raises(AnnotationError, match=r"network of your own, Sequential.*by name or dict"):
        model.save(tmp_path / "model")


def test_networks_learn_soft_targets():
    """Given constant features, a network says the mean of the targets."""
    T = np.random.default_rng(0).dirichlet(np.ones(3), size=60)
    table = members_module.targets_as_table(T)
    kept = np.where(T < members_module.LEAST_TARGET, 0, T)
    np.testing.assert_allclose(
        MajorityVote().fit(table).posterior_, kept / kept.sum(axis=1, keepdims=True)
    )
    member = members_module.SoftNetwork("linear", max_epochs=200, random_state=0)
    proba = np.exp(member.fit(np.ones((60, 2)), T).predict_log_proba(np.ones((1, 2))))
    np.testing.assert_allclose(proba[0], T.mean(axis=0), atol=0.03)


def test_images_take_a_network_and_its_embedding(monkeypatch):
    monkeypatch.setattr(members_module, "FEWEST_STEPS", 15)
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.normal(scale=0.5, size=(60, 1, 8, 8)).astype(np.float32)
    X[y == 1, :, :4] += 2.0
    table = make_crowd(y, n_annotators=8, annotations_per_instance=5, random_state=0)
    model = CrowdStackingClassifier(n_rounds=1, n_folds=2, random_state=0).fit(X, table)
    assert list(model.member_weights_) == ["network"]
    assert model.score(X, y) > 0.85


def test_features_that_tell_nothing_are_named(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=120)
    table = make_crowd(y, n_annotators=6, random_state=0)
    two_rounds = CrowdStackingClassifier(n_rounds=2, random_state=0)
    with pytest.warns(ModelChoiceWarning, match="relative_informedness_"):
        model = clone(two_rounds).fit(rng.normal(size=(120, 4)), table)
    assert model.relative_informedness_ < 0.7
    assert list(model.doubts_) == ["low-informedness"]
    loaded = load(model.save(tmp_path / "model"))
    assert loaded.doubts_ == model.doubts_
    told = [
        each
        for each in summarize(table, classifier=loaded)["warnings"]
        if each["code"] == "low-informedness"
    ]
    assert told[0]["text"].startswith("The features predict annotations less well")
    shuffled = "have no ids, check that they are in the order of the"
    assert shuffled in told[0]["text"]
    X, y = blobs(n=120, n_classes=2)
    crowd, order = make_crowd(y, n_annotators=6, random_state=1), rng.permutation(120)
    with pytest.warns(ModelChoiceWarning, match=shuffled):  # Rows of informative features.
        clone(two_rounds).fit(X[order], crowd)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = two_rounds.fit(X, make_crowd(y, n_annotators=6, random_state=0))
        assert found.doubts_ == {}


@pytest.mark.filterwarnings("ignore:the features predict")
@pytest.mark.parametrize(("n_classes", "equal"), [(12, True), (10, False)])
def test_with_many_classes_the_first_round_tells_the_labels(n_classes, equal):
    X, y = blobs(96, n_classes=n_classes, spread=3.0)
    table = make_crowd(y, annotations_per_instance=2, classes=range(n_classes), random_state=0)
    one, six = (light(n_rounds=n).fit(X, table) for n in (1, 6))
    assert np.array_equal(one.posterior_, six.posterior_) == equal


def test_known_shares_survive_saving(tmp_path):
    X, y = blobs(n_classes=2)
    shares = {0: 0.4, 1: 0.6}
    model = CrowdStackingClassifier(class_prior=shares, n_rounds=1, random_state=0).fit(X, y)
    assert load(model.save(tmp_path / "model")).class_prior == shares
    costs = [[0.0, 1.0], [5.0, 0.0]]
    model.set_params(decision=np.array(costs)).fit(X, y).save(tmp_path / "model")
    assert load(tmp_path / "model").decision.tolist() == costs


def test_a_damaged_folder_is_refused(tmp_path):
    X, y = blobs(n_classes=2)
    CrowdStackingClassifier(n_rounds=1, random_state=0).fit(X, y).save(tmp_path)
    path = tmp_path / "model.json"
    whole = json.loads(path.read_text())
    for key in ("class", "parameters", "weights", "sha256", "fitted"):
        path.write_text(json.dumps({k: v for k, v in whole.items() if k != key}))
        with pytest.raises(ModelFolderError, match="damaged"):
            load(tmp_path)
    for name in ("classes_", "encoder_", "stack_"):
        fewer = {k: v for k, v in whole["fitted"].items() if k != name}
        path.write_text(json.dumps(whole | {"fitted": fewer}))
        with pytest.raises(ModelFolderError, match="altered"):
            load(tmp_path)
    path.write_text(json.dumps(whole | {"parameters": {"n_rounds": 3}}))
    with pytest.raises(ModelFolderError, match="altered"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("X_given", "says"),
    [
        ("abc", r"X is one text \('abc'\).*\[X\]"),
        (b"abc", "X is one text"),
        ((text for text in "ab"), r"X is a generator.*list\(X\)"),
        ([], "X has no rows"),
        ([b"a", b"b"], "X holds bytes"),
        (["1", "2"], r"texts that are numbers \('1'\).*TextEncoder"),
        (np.array(["1", "2"]), "texts that are numbers"),
    ],
)
def test_what_is_no_collection_of_rows_is_refused(X_given, says):
    with pytest.raises(AnnotationError, match=says):
        CrowdStackingClassifier().fit(X_given, np.array([[0, 1], [1, 1]]))
