"""Choosing by out-of-fold predictions: ties, alarms, refusals, epochs, resuming."""

from functools import wraps

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manyhands import (
    GLAD,
    AggregatedClassifier,
    AnnotationTable,
    AveragedCrowdClassifier,
    CrowdLayerClassifier,
    CrowdLayerProtocol,
    CrowdStackingClassifier,
    DASCClassifier,
    DawidSkene,
    ICEDClassifier,
    ICEDProtocol,
    MaxMIGClassifier,
    RaykarClassifier,
    cross_predict,
    load_demo,
    make_crowd,
    select,
)
from manyhands.exceptions import AnnotationError, ModelChoiceWarning
from manyhands.fitting import pilots
from manyhands.jobs import run_job, run_selection
from manyhands.metrics import accuracy, paired_z, vote_agreement
from manyhands.registry import all_classifiers
from manyhands.selection import criteria, selecting
from manyhands.selection.criteria import DECIDING_GOLD_LABELS, earliest_epoch, guarded_epoch
from tests.selection.conftest import QUICK


class Fixed(ClassifierMixin, BaseEstimator):
    """Predicts the class in a column of X; all columns are known from the start."""

    def __init__(self, column=0, n_rounds=1, class_prior=None, fails=False):
        self.column, self.n_rounds, self.class_prior = column, n_rounds, class_prior
        self.fails = fails

    def fit(self, X, y):
        if self.fails:
            raise AnnotationError("cannot be trained")
        self.classes_ = y.classes
        return self

    def predict_proba(self, X):
        return np.eye(len(self.classes_))[np.asarray(X)[:, self.column].astype(int)]

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def noisy(y, share_right, rng, n_classes=3):
    return np.where(rng.random(len(y)) < share_right, y, rng.integers(0, n_classes, len(y)))


@pytest.fixture
def contest():
    """600 instances of 3 classes, whose columns of X are classes right to different degrees."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    X = np.column_stack([noisy(y, share, rng) for share in (0.5, 0.9, 0.1, 0.7)])
    return X, make_crowd(y, annotations_per_instance=3, random_state=0), y


def test_select_chooses_the_most_accurate_and_says_how_accurate(contest):
    X, table, y = contest
    named = {f"column {k}": Fixed(k) for k in range(4)}
    found = select(named, X, table, cv=3)
    assert found.best_ == "column 1"
    assert [row.candidate for row in found.table_] == [f"column {k}" for k in (1, 3, 0, 2)]
    assert found.tied_ == ["column 1"]
    assert found.warnings_ == []
    for row in found.table_:
        right = accuracy(y, X[:, int(row.candidate[-1])])
        assert row.low < right < row.high
        assert row.estimate == pytest.approx(right, abs=0.15)
        assert row.epoch is None
    best, second = found.table_[0], found.table_[1]
    assert best.score == pytest.approx((best.agreement + best.corrected) / 2)
    assert best.z == 0 < 1 < second.z
    np.testing.assert_array_equal(found.oof_proba_.argmax(axis=1), X[:, 1])
    np.testing.assert_array_equal(found.estimator_.predict(X), X[:, 1])
    assert len(found.estimator_.estimators_) == 3
    assert "best by agreement: column 1" in repr(found)
    assert found.table_.to_frame()["candidate"].tolist() == [row.candidate for row in found.table_]


def test_each_candidate_is_told_before_and_after_it_is_trained(contest, caplog):
    X, table, _ = contest
    caplog.set_level("INFO", "manyhands.progress")
    with pytest.warns(ModelChoiceWarning, match="cannot be trained"):
        found = select({"good": Fixed(1), "bad": Fixed(fails=True)}, X, table, cv=3)
    row, lines = found.table_[0], caplog.messages
    assert lines[0] == "candidate 1 of 2: good"
    assert lines[1].startswith(f"good: score {row.score:.3f}, accuracy ")
    assert lines[1].endswith(f"{row.seconds:.0f} s")
    assert lines[2:] == ["candidate 2 of 2: bad", "bad: failed (cannot be trained)"]


def test_equal_candidates_are_tied(contest):
    X, table, _ = contest
    found = select([Fixed(1), Fixed(1), Fixed(0)], X, table, cv=2)
    assert found.tied_ == ["fixed", "fixed 2"]
    assert "tied with it (z <= 1): fixed 2" in repr(found)


def test_the_best_are_averaged_or_trained_again(contest):
    X, table, _ = contest
    named = {name: Fixed(k) for name, k in {"a": 0, "b": 1, "d": 3}.items()}
    two = select(named, X, table, cv=2, average=2)
    assert [model.column for model in two.estimator_.estimators_] == [1, 1, 3, 3]
    mean = (np.eye(3)[X[:, 1]] + np.eye(3)[X[:, 3]]) / 2
    np.testing.assert_allclose(two.oof_proba_, mean)
    assert select(named, X, table, cv=2, refit=True).estimator_.column == 1
    both = select(named, X, table, cv=2, average=2, refit=True).estimator_
    assert [model.column for model in both.estimators_] == [1, 3]


def test_a_candidate_that_fails_is_named_and_the_others_compete(contest):
    X, table, _ = contest
    with pytest.warns(ModelChoiceWarning, match="broken cannot be trained"):
        found = select({"fine": Fixed(1), "broken": Fixed(fails=True)}, X, table, cv=2)
    assert found.best_ == "fine"
    assert found.table_[-1].error == "cannot be trained"
    assert "! broken" in repr(found)
    with pytest.raises(AnnotationError, match="no candidate can be trained; a cannot"):
        select({"a": Fixed(fails=True)}, X, table, cv=2)


def test_whatever_a_candidate_raises_the_others_compete(contest, tmp_path):
    X, table, _ = contest
    labels = LogisticRegression()  # It knows nothing of annotations.
    with pytest.warns(ModelChoiceWarning, match="bad cannot be trained: ValueError: "):
        found = select({"bad": labels, "fine": Fixed(1)}, X, table, cv=2)
    assert found.best_ == "fine"
    assert found.table_[-1].error.startswith("ValueError: ")
    with pytest.raises(AnnotationError, match="folder needs an integer random_state, got None"):
        select([Fixed(1)], X, table, folder=tmp_path, random_state=None)
    assert not list(tmp_path.iterdir())
    for average in (1.0, "1", True, 2):
        with pytest.raises(AnnotationError, match="give a whole number from 1 to 1"):
            select([Fixed(1)], X, table, average=average)
    with pytest.raises(AnnotationError, match="n_jobs=0 trains nothing"):
        select([Fixed(1)], X, table, n_jobs=0)
    with pytest.raises(AnnotationError, match="splits groups; give groups="):
        cross_predict(Fixed(1), X, table, cv=GroupKFold(2))


def test_balanced_prefers_who_knows_the_rare_class():
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.1).astype(int)
    careful = np.where((y == 0) & (rng.random(600) < 0.4), 1, y)
    X = np.column_stack([np.zeros(600), careful])
    table = make_crowd(y, annotations_per_instance=3, random_state=0)
    named = {"always 0": Fixed(0), "careful": Fixed(1)}
    with pytest.warns(ModelChoiceWarning, match="never predicts 1|or neglect a class"):
        assert select(named, X, table, cv=2).best_ == "always 0"
    assert select(named, X, table, cv=2, criterion="balanced").best_ == "careful"
    assert select(named, X, table, cv=2, criterion="information").best_ == "careful"


def test_few_instances_are_warned_of(contest):
    X, table, _ = contest
    with pytest.warns(ModelChoiceWarning, match="only 100 instances have annotations"):
        select([Fixed(1), Fixed(0)], X[:100], table[np.arange(100)], cv=2)


def shared_mistakes(share):
    """A crowd that takes most of class 1 for class 2, and models that do so more or less."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 200)
    seen = np.where((y == 1) & (rng.random(600) < share), 2, y)
    given = np.where(rng.random((600, 3)) < 0.9, seen[:, None], rng.integers(0, 3, (600, 3)))
    columns = []
    for skill in (0.6, 0.7, 0.8, 0.9):
        right = noisy(y, skill, rng)
        columns += [right, np.where(right == 1, 2, right)]
    return np.column_stack(columns), AnnotationTable.from_matrix(given)


def test_the_alarm_is_raised_where_most_annotators_share_a_mistake():
    X, table = shared_mistakes(0.8)
    named = {f"{'repeats' if k % 2 else 'right'} {k // 2}": Fixed(k) for k in range(8)}
    with pytest.warns(ModelChoiceWarning) as caught:
        found = select(named, X, table, cv=2)
    assert found.best_ == "repeats 3"
    (text,) = [text for text in found.warnings_ if "may share a mistake" in text]
    assert text in [str(each.message) for each in caught]
    assert "agreement prefers repeats 3 to right 3" in text
    assert "information prefers right 3 to repeats 3" in text
    assert "2 against 1" in text
    assert "is right on 29 of them" in text


def test_the_alarm_needs_a_clear_contradiction_among_those_that_could_be_chosen():
    def alarms(predicted, chosen):
        return [t for t in criteria.doubts(predicted, chosen, table, posterior) if "mistake" in t]

    # Column 7 merges two classes of column 6; column 0 is right less often than either.
    X, table = shared_mistakes(0.0)
    posterior = DawidSkene().fit_predict_proba(table)
    assert alarms({str(k): X[:, k] for k in (0, 6, 7)}, "6") == []
    X, table = shared_mistakes(0.8)
    posterior = DawidSkene().fit_predict_proba(table)
    codes = {str(k): X[:, k] for k in (0, 6, 7)}
    found = criteria.find_contradiction(codes, table, posterior)
    rate, inform = (criteria.make_criterion(c, table, posterior) for c in criteria.CRITERIA[::2])
    z = paired_z(rate(X[:, 7]) - rate(X[:, 6])), paired_z(inform(X[:, 6]) - inform(X[:, 7]))
    assert found == ("7", "6", *z)
    assert min(found[2:]) > criteria.CONTRADICTION
    assert len(alarms(codes, "7")) == 1
    assert alarms(codes, "6") == []  # What information prefers was chosen.


def test_gold_labels_that_settle_a_choice_do_so_with_power_80_percent():
    from scipy.stats import binom, binomtest

    n = DECIDING_GOLD_LABELS
    rejected = [k for k in range(n + 1) if k > n / 2 and binomtest(k, n).pvalue < 0.08]
    assert binom.sf(rejected[0] - 1, n, 0.75) > 0.78


def test_rounds_of_one_em_are_refused_and_priors_warned_of(contest):
    X, table, _ = contest
    with pytest.raises(AnnotationError, match="'one' and 'two' differ only in n_rounds"):
        select({"one": Fixed(n_rounds=1), "two": Fixed(n_rounds=2)}, X, table)
    with pytest.raises(AnnotationError, match="differ only in aggregator__max_iter"):
        select([AggregatedClassifier(DawidSkene(max_iter=n)) for n in (1, 100)], X, table)
    with pytest.warns(ModelChoiceWarning, match="one and two differ in n_rounds besides other"):
        select({"one": Fixed(0, n_rounds=1), "two": Fixed(1, n_rounds=2)}, X, table, cv=2)
    with pytest.warns(ModelChoiceWarning, match="differ only in the class prior"):
        select({"a": Fixed(), "b": Fixed(class_prior=[1, 2, 3])}, X, table, cv=2)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (RaykarClassifier(max_epochs=1), RaykarClassifier()),
        (ICEDClassifier(max_epochs=3), ICEDClassifier()),
        (Fixed(n_rounds=1, class_prior="uniform"), Fixed(n_rounds=2)),
        (
            CrowdStackingClassifier(n_rounds=1, random_state=0),
            CrowdStackingClassifier(n_rounds=2, random_state=1, verbose=1),
        ),
        (
            AggregatedClassifier(DawidSkene(max_iter=1), device="cpu"),
            AggregatedClassifier(DawidSkene(max_iter=50)),
        ),
    ],
)
@pytest.mark.parametrize("within", ["alone", "pipeline", "average", "self-training"])
def test_rounds_are_refused_wherever_they_stand(one, two, within):
    wrap = {
        "alone": lambda model: model,
        "pipeline": lambda model: make_pipeline(StandardScaler(), model),
        "average": lambda model: AveragedCrowdClassifier([model]),
        "self-training": DASCClassifier,
    }[within]
    with pytest.raises(AnnotationError, match=r"'a' and 'b' differ only in .*early rounds"):
        criteria.refuse_rounds({"a": wrap(one), "b": wrap(two)})
    assert criteria.refuse_rounds({"a": wrap(one), "b": wrap(clone(one))}) == []


def test_rounds_of_different_methods_are_no_rounds_of_one():
    every = {name: cls() for name, cls in all_classifiers()}
    assert criteria.refuse_rounds(every) == []
    few, many = (AggregatedClassifier(DawidSkene(max_iter=n)) for n in (1, 50))
    assert criteria.refuse_rounds({"a": few, "b": AggregatedClassifier(GLAD())}) == []
    epochs = {str(n): CrowdLayerClassifier(max_epochs=n) for n in (1, 4)}
    assert criteria.refuse_rounds(epochs) == []
    (text,) = criteria.refuse_rounds({"a": few, "b": many.set_params(lr=0.1)})
    assert "a and b differ in aggregator__max_iter besides other parameters" in text
    scaled = [StandardScaler(), StandardScaler(with_mean=False)]
    pipes = [make_pipeline(s, Fixed(n_rounds=n)) for n, s in enumerate(scaled)]
    (text,) = criteria.refuse_rounds(dict(zip("ab", pipes, strict=True)))
    assert "fixed__n_rounds" in text
    # Iterations of a solver are no rounds of EM.
    solved = [AggregatedClassifier(backbone=LogisticRegression(max_iter=n)) for n in (100, 200)]
    assert criteria.refuse_rounds(dict(zip("ab", solved, strict=True))) == []


@pytest.fixture
def biased():
    """A crowd with a shared mistake, and who repeats it, departs from it a little, and much."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    seen = np.where((y == 1) & (rng.random(600) < 0.55), 2, y)
    own, again = noisy(seen, 0.9, rng), noisy(seen, 0.9, rng)
    departs = [np.where((seen != y) & (rng.random(600) < share), y, again) for share in (0.05, 0.9)]
    given = np.where(rng.random((600, 3)) < 0.9, seen[:, None], rng.integers(0, 3, (600, 3)))
    return np.column_stack([own, *departs]), AnnotationTable.from_matrix(given), y


def test_a_tie_goes_to_who_holds_class_shares(biased):
    X, table, y = biased
    named = {"plain": Fixed(0), "equal": Fixed(1, class_prior=[1 / 3] * 3)}
    found = select(named, X, table, cv=2)
    assert (found.table_[0].candidate, found.table_[0].z) == ("plain", 0)
    assert 0 < found.table_[1].z <= 1
    assert accuracy(y, X[:, 1]) > accuracy(y, X[:, 0])
    assert found.tied_ == ["equal", "plain"] == [found.best_, "plain"]
    assert [model.column for model in found.estimator_.estimators_] == [1, 1]
    assert "plain has the higher score" in found.to_dict()["reason"] in repr(found)
    both = select(named, X, table, cv=2, average=2)
    assert [model.column for model in both.estimator_.estimators_] == [1, 1, 0, 0]


def test_a_later_holder_of_shares_may_be_the_tied_one():
    behind = {"plain": 0.0, "stack": 1.2, "iced": 0.9}  # By score; z depends on the spread, too.
    chosen, reason, warnings = criteria.choose_among(behind, {"stack", "iced"})
    assert (chosen, warnings) == ("iced", [])
    assert "plain has the higher score (by z = 0.90), but iced has a class prior" in reason
    chosen, reason, (text,) = criteria.choose_among({**behind, "iced": 1.1}, {"stack", "iced"})
    assert (chosen, reason) == ("plain", None)
    assert "stack (z = 1.20), iced (z = 1.10)" in text


def test_who_holds_class_shares_and_is_behind_is_warned_of(biased):
    X, table, _ = biased
    named = {"plain": Fixed(0), "equal": Fixed(2, class_prior="uniform")}
    with pytest.warns(ModelChoiceWarning, match=r"Behind .*: equal \(z = \d+"):
        assert select(named, X, table, cv=2).best_ == "plain"
    for prior in (None, "estimated"):  # The crowd's shares.
        named = {"plain": Fixed(0), "other": Fixed(1, class_prior=prior)}
        assert select(named, X, table, cv=2).reason_ is None


def test_classifiers_that_hold_class_shares():
    held = {"CrowdStackingClassifier", "ICEDClassifier"}
    assert {
        name for name, kind in all_classifiers() if criteria.has_own_class_prior(kind())
    } == held
    assert criteria.has_own_class_prior(DASCClassifier(MaxMIGClassifier(prior="uniform")))
    assert not criteria.has_own_class_prior(CrowdStackingClassifier(class_prior="estimated"))
    for model in (CrowdStackingClassifier(), MaxMIGClassifier(prior="uniform")):
        assert criteria.has_own_class_prior(make_pipeline(StandardScaler(), model))
        assert criteria.has_own_class_prior(AveragedCrowdClassifier([model, model]))
    inferred = AggregatedClassifier(DawidSkene(class_prior="uniform"))
    assert not criteria.has_own_class_prior(make_pipeline(StandardScaler(), inferred))


@pytest.mark.parametrize(
    ("candidates", "options", "message"),
    [
        ([], {}, "candidates is empty"),
        ("conal", {}, "is one candidate"),
        ([Fixed], {}, "give an object"),
        (["connal"], {}, "did you mean conal"),
        ([Fixed()], {"criterion": "accuracy"}, "criterion='accuracy' is unknown"),
        ([Fixed()], {"epochs": 3}, "epochs=3 is unknown"),
        ([Fixed()], {"average": 2}, "from 1 to 1"),
        ([Fixed()], {"average": True}, "average=True"),
    ],
)
def test_select_refuses_what_it_cannot_use(contest, candidates, options, message):
    X, table, _ = contest
    with pytest.raises(AnnotationError, match=message):
        select(candidates, X, table, **options)


def test_the_guard_takes_an_earlier_epoch_only_if_it_is_better_by_more_than_one_error():
    def values(codes):
        return np.where(np.isnan(given), np.nan, codes == 1)

    given = np.array([1.0] * 100 + [np.nan])
    last = np.repeat([0, 1], [30, 71])
    ahead = np.repeat([0, 1], [28, 73])  # z = 2 / sqrt(2 * .98 * 100 / 99) = 1.42
    mixed = ahead.copy()
    mixed[-8:-1] = 0  # Better in two, worse in seven.
    assert guarded_epoch(np.stack([last, ahead, last]), values) == 2
    narrowly = ahead.copy()
    narrowly[-2] = 0  # Better in two, worse in one: z = .57.
    assert guarded_epoch(np.stack([narrowly, last]), values) is None
    assert guarded_epoch(np.stack([mixed, last]), values) is None
    assert guarded_epoch(np.stack([last, ahead]), values) is None


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_a_candidate_that_overtrains_is_stopped_early(monkeypatch, problem):
    X, table = problem
    model = CrowdLayerClassifier(**{**QUICK, "max_epochs": 4})
    monkeypatch.setattr(selecting, "guarded_epoch", lambda epochs, values: 2)
    monkeypatch.setattr(selecting, "paired_z", lambda difference: 1.5)
    found = select({"crowd layer": model}, X, table, cv=2)
    assert found.table_[0].epoch == 2
    short = cross_predict(clone(model).set_params(max_epochs=2), X, table, cv=2)
    np.testing.assert_array_equal(found.oof_proba_, short.proba)
    monkeypatch.setattr(selecting, "paired_z", lambda difference: 0.5)
    kept = select({"crowd layer": model}, X, table, cv=2)
    assert kept.table_[0].epoch is None
    whole = cross_predict(model, X, table, cv=2)
    np.testing.assert_array_equal(kept.oof_proba_, whole.proba)
    assert select({"a": model}, X, table, cv=2, epochs="last").table_[0].epoch is None


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
@pytest.mark.parametrize(
    "model",
    [
        RaykarClassifier(max_epochs=3),
        ICEDClassifier(
            max_epochs=2, device="cpu", protocol=ICEDProtocol(warm_up_epochs=1, decoder_epochs=1)
        ),
    ],
)
def test_rounds_of_em_are_not_guarded(monkeypatch, problem, model):
    monkeypatch.setattr(selecting, "guarded_epoch", lambda *_: pytest.fail("rounds were rated"))
    assert select([model], *problem, cv=2).table_[0].epoch is None


def test_a_fold_is_rated_after_the_epoch_that_the_others_choose():
    # All annotations say 1. Fold 0 is right after the first epoch only, fold 1 after the second.
    table = AnnotationTable.from_matrix(np.ones((8, 2), dtype=int), classes=[0, 1])
    folds = np.repeat([0, 1], 4)
    epochs = np.array([[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]])
    epoch, codes = earliest_epoch(epochs, folds, table)
    assert epoch == 1  # As good as the second.
    np.testing.assert_array_equal(codes, np.zeros(8))
    agreed = np.array([[0, 1, 1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]])
    epoch, codes = earliest_epoch(agreed, folds, table)
    assert epoch == 2
    np.testing.assert_array_equal(codes, np.ones(8))


@pytest.fixture
def short_auto(monkeypatch):
    """``max_epochs="auto"`` means 4 epochs at most, and is looked for in small sets, too."""
    for name, value in {"PILOT_STEPS": 4, "LEAST_EPOCHS": 4, "FEWEST_INSTANCES": 9}.items():
        monkeypatch.setattr(pilots, name, value)


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_auto_is_found_once_by_the_predictions_of_all_folds(problem, short_auto, monkeypatch):
    X, table = problem
    model = CrowdLayerClassifier(backbone="linear", device="cpu")
    long = cross_predict(clone(model).set_params(max_epochs=4), X, table, cv=2, return_epochs=True)
    fits = []
    trained = CrowdLayerClassifier.fit

    def second(epochs, folds, given):
        if not fits[2:]:
            np.testing.assert_array_equal(epochs, long.epochs)
            np.testing.assert_array_equal(folds, long.folds)
        return 2, epochs[2]

    @wraps(trained)
    def counted(self, *args, **options):
        fits.append((self.lr, self.max_epochs))
        return trained(self, *args, **options)

    monkeypatch.setattr(selecting, "earliest_epoch", second)
    monkeypatch.setattr(CrowdLayerClassifier, "fit", counted)
    pool = {"good": model, "bad": clone(model).set_params(lr=1e-9)}
    found = select(pool, X, table, cv=2)
    assert found.best_ == "good"
    # Fewer epochs are only run for the best, when it is known.
    assert fits == [(1e-3, 4)] * 2 + [(1e-9, 4)] * 2 + [(1e-3, 2)] * 2
    assert [row.epoch for row in found.table_] == [2, 2]
    short = cross_predict(clone(model).set_params(max_epochs=2), X, table, cv=2)
    np.testing.assert_array_equal(found.oof_proba_, short.proba)
    rated = vote_agreement(table.classes[long.epochs[2]], table)
    assert found.table_[0].agreement == rated
    assert [member.n_epochs_ for member in found.estimator_.estimators_] == [2, 2]
    assert select({"good": model}, X, table, cv=2, refit=True).estimator_.n_epochs_ == 2


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_the_last_epoch_that_auto_looks_at_is_not_trained_again(problem, short_auto, monkeypatch):
    X, table = problem
    monkeypatch.setattr(selecting, "earliest_epoch", lambda epochs, *_: (4, epochs[3]))
    calls = []
    plain = selecting.cross_predict
    monkeypatch.setattr(
        selecting, "cross_predict", lambda *a, **k: calls.append(a) or plain(*a, **k)
    )
    model = CrowdLayerClassifier(backbone="linear", device="cpu")
    assert select({"one": model}, X, table, cv=2).table_[0].epoch == 4
    assert len(calls) == 1


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
@pytest.mark.parametrize("options", [{"epochs": "last"}, {"fewest": 1000}])
def test_auto_is_left_to_every_fold(problem, short_auto, monkeypatch, options):
    X, table = problem
    monkeypatch.setattr(pilots, "FEWEST_INSTANCES", options.pop("fewest", 9))
    monkeypatch.setattr(pilots, "PLAIN_STEPS", 6)
    monkeypatch.setattr(
        selecting, "earliest_epoch", lambda *_: pytest.fail("a number was looked for")
    )
    model = CrowdLayerClassifier(backbone="linear", device="cpu")
    found = select({"one": model}, X, table, cv=2, **options)
    assert found.table_[0].epoch is None
    np.testing.assert_array_equal(found.oof_proba_, cross_predict(model, X, table, cv=2).proba)


AUTOMATIC = [cls for _, cls in all_classifiers() if getattr(cls(), "max_epochs", 0) == pilots.AUTO]


@pytest.mark.parametrize("cls", AUTOMATIC)
def test_what_trains_once_has_epochs_to_choose_from_and_nothing_else(cls, problem, short_auto):
    model = cls(device="cpu")
    n_epochs = pilots.n_epochs_to_search(model, 100)
    model.set_params(max_epochs=1)
    found = cross_predict(model, *problem, cv=2, return_epochs=True)
    assert (found.epochs is None) == (n_epochs is None)


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_select_goes_on_where_it_was_interrupted(problem, tmp_path, monkeypatch):
    X, table = problem
    named = {
        name: CrowdLayerClassifier(**QUICK, protocol=CrowdLayerProtocol(init_scale=scale))
        for name, scale in {"first": 1.0, "second": 2.0}.items()
    }
    fits = []
    trained = CrowdLayerClassifier.fit

    def counted(self, *args, **options):
        fits.append(self.protocol.init_scale)
        if len(fits) == fail_at:
            raise KeyboardInterrupt
        return trained(self, *args, **options)

    monkeypatch.setattr(CrowdLayerClassifier, "fit", counted)
    fail_at = 4
    with pytest.raises(KeyboardInterrupt):
        select(named, X, table, cv=2, folder=tmp_path)
    fits.clear()
    found = select(named, X, table, cv=2, folder=tmp_path)
    assert fits == [2.0]
    fits.clear()
    again = select(named, X, table, cv=2, folder=tmp_path)
    assert fits == []
    np.testing.assert_array_equal(again.oof_proba_, found.oof_proba_)
    np.testing.assert_array_equal(again.estimator_.predict(X), found.estimator_.predict(X))


def test_the_average_of_folds_infers_labels_as_its_models_do():
    """An instance's label rests on the models that were trained on its annotations."""
    demo = load_demo()
    X, table = demo.X_train[:210], demo.annotations[:210]
    average = select([RaykarClassifier()], X, table, cv=3, random_state=0).estimator_
    found = cross_predict(
        RaykarClassifier(), X, table, cv=3, random_state=0, return_estimators=True
    )
    for i in range(0, 210, 7):
        seen = []
        for k, model in enumerate(found.estimators):
            rows = [j for j in range(210) if found.folds[j] != k]
            if i in rows:
                seen.append(model.posterior_[rows.index(i)])
        assert len(seen) == 2
        assert average.posterior_[i] == pytest.approx(np.mean(seen, axis=0))
    assert not average._knows_its_accuracy
    network = select([AggregatedClassifier(max_epochs=1)], X, table, cv=2, random_state=0)
    assert not hasattr(network.estimator_, "posterior_")


def test_the_job_accepts_labels_as_fit_does_and_has_one_figure_for_new_items(tmp_path):
    demo = load_demo()
    X, table = demo.X_train[:210], demo.annotations[:210]
    stack = CrowdStackingClassifier(random_state=0)
    found = run_selection([stack], X, table, tmp_path / "chosen", cv=3, random_state=0, verbose=0)
    fitted = run_job(stack, X, table, tmp_path / "fitted", folds=0)
    assert found["levels"]["is_calibrated"]
    shares = [each["levels"]["labels"]["value"] for each in (found, fitted)]
    assert shares[0] == pytest.approx(shares[1], abs=0.08)
    accepted = [each["actions"]["accept"] for each in (found, fitted)]
    assert accepted[0] > accepted[1] / 2 > 10
    row, new = found["selection"]["candidates"][0], found["levels"]["new_items"]
    assert [row[name] for name in ("estimate", "low", "high")] == [
        new[name] for name in ("value", "low", "high")
    ]
    labels = [pd.read_csv(tmp_path / name / "labels.csv")["label"] for name in ("chosen", "fitted")]
    assert (labels[0] == labels[1]).mean() > 0.95
