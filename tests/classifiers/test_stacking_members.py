"""Members of users' own in a stack: refusals, checks, saving."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import AdaBoostRegressor, BaggingRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

from manyhands import CrowdStackingClassifier, load, make_crowd
from manyhands.classifiers.stacking.members import AverageOfFolds, Folded, as_member
from manyhands.exceptions import AnnotationError
from manyhands.linear.kernels import ClippedScaler, KernelMap
from manyhands.linear.regression import SoftLogistic
from manyhands.linear.ridge import RidgeValues, SoftRidge

pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")


@pytest.fixture(scope="module")
def blobs():
    """90 instances of three classes: features, annotations, true classes."""
    y = np.arange(90) % 3
    X = np.random.default_rng(0).normal(size=(90, 5)) + 2.0 * np.eye(3, 5)[y]
    return X, make_crowd(y, n_annotators=8, random_state=0), y


def quick(members, **parameters):
    return CrowdStackingClassifier(members, n_rounds=2, random_state=0, **parameters)


class Nearest(BaseEstimator):
    """Says of each class how near its mean is; a test changes what it says."""

    def __init__(self, change=None):
        self.change = change

    def fit(self, X, T):
        self.means_ = (T.T @ X) / T.sum(axis=0)[:, None]
        return self

    def predict_log_proba(self, X):
        found = log_softmax(-((X[:, None] - self.means_) ** 2).sum(axis=2), axis=1)
        return found if self.change is None else self.change(X, found)


class LazyRidge(SoftRidge):
    """A ridge that says NaN of one row, when that is read."""

    def fit_predict_loo(self, X, T):
        class Lazy:
            def __getitem__(self, rows):
                found = np.zeros(T.shape)
                found[7] = np.nan
                return found[rows]

        return [(Lazy(), predictor) for _, predictor in super().fit_predict_loo(X, T)]


# -- what is refused ------------------------------------------------------------------------------


def test_a_member_that_cannot_be_cloned_is_told_how(blobs):
    class Plain:
        fit, predict_log_proba, transform = Nearest.fit, Nearest.predict_log_proba, None

    X, table, _ = blobs
    with pytest.raises(AnnotationError, match=r"'own' is a Plain without get_params.*BaseEstim"):
        quick([("own", Plain())]).fit(X, table)
    with pytest.raises(AnnotationError, match=r"view of member 'own' is a Plain without get_par"):
        quick([("own", Nearest(), Plain())]).fit(X, table)


def nan_in_a_row(X, found):
    found[-1] = np.nan
    return found


def nothing_possible(X, found):
    found[0] = -np.inf
    return found


def infinite(X, found):
    found[0, 1] = np.inf
    return found


@pytest.mark.parametrize(
    ("member", "says"),
    [
        (Nearest(nan_in_a_row), r"member 'own' gave unusable .* in 1 of 18 rows, such as \[nan"),
        (Nearest(nothing_possible), r"such as \[-inf, -inf, -inf\]"),
        (Nearest(infinite), r"such as .*inf"),
        (Nearest(lambda X, found: found[:, :2]), r"'own' gave .* shape \(18, 2\) .* \(18, 3\)"),
        (Nearest(lambda X, found: found[:, 0]), r"of shape \(18,\) for 18 rows and 3 classes"),
        (Nearest(lambda X, found: found.astype(str)), r"'own' gave log probabilities of type"),
        (Nearest(lambda X, found: softmax(found, axis=1)), r"'own' gave probabilities, such as \["),
        (LazyRidge(), r"'own' gave unusable log probabilities in 1 of 90 rows"),
    ],
)
def test_what_a_member_says_is_checked(blobs, member, says):
    X, table, _ = blobs
    with pytest.raises(AnnotationError, match=says):
        quick([("own", member)]).fit(X, table)


def test_errors_of_others_name_the_member(blobs):
    X, _, y = blobs
    gaps = np.where(X > 0, X, np.nan)
    member = Folded(as_member("own", LogisticRegression()), gaps, np.arange(90) % 2, "own")
    with pytest.raises(ValueError, match="NaN") as raised:
        member.options(np.eye(3)[y])
    assert raised.value.__notes__ == ["Raised by member 'own' of the stack."]


def test_what_a_member_says_of_new_rows_is_checked(blobs):
    X, table, _ = blobs

    def far(X, found):
        return np.where(X[:, :1] > 50, np.nan, found)

    model = quick([("own", Nearest(far))]).fit(X, table)
    new = X.copy()
    new[3] = 100
    with pytest.raises(AnnotationError, match=r"'own' gave unusable .* in 1 of 90 rows"):
        model.predict_proba(new)


def test_classes_may_be_ruled_out(blobs):
    X, table, y = blobs

    def surely(X, found):
        return np.where(found == found.max(axis=1, keepdims=True), 0.0, -np.inf)

    model = quick([("own", Nearest(surely))]).fit(X, table)
    assert model.score(X, y) > 0.8
    rows = np.zeros((1, 2))
    folds = [RidgeValues(np.zeros((2, 2))), RidgeValues(np.zeros((2, 2)))]
    for fold, says in zip(folds, ([[0.0, -np.inf]], [[-np.inf, 0.0]]), strict=True):
        fold.predict_log_proba = lambda X, says=says: np.array(says)
    np.testing.assert_allclose(AverageOfFolds(folds).predict_log_proba(rows), np.log([[0.5, 0.5]]))


@pytest.mark.parametrize(
    "regressor",
    [
        GridSearchCV(Ridge(), {"alpha": [1.0, 10.0]}, cv=2),
        GridSearchCV(make_pipeline(StandardScaler(), Ridge()), {"ridge__alpha": [1.0]}, cv=2),
        make_pipeline(StandardScaler(), BaggingRegressor(Ridge(), 3, random_state=0)),
    ],
)
def test_a_search_over_a_regressor_of_several_outputs_is_a_member(blobs, regressor):
    X, table, y = blobs
    assert quick([("p", regressor)]).fit(X, table).score(X, y) > 0.8


@pytest.mark.parametrize(
    "regressor",
    [
        GridSearchCV(SVR(), {"C": [1.0]}, cv=3),
        AdaBoostRegressor(DecisionTreeRegressor(max_depth=2), n_estimators=2),
    ],
)
def test_a_regressor_of_one_output_around_another_is_refused(blobs, regressor):
    X, table, _ = blobs
    kind = type(regressor).__name__
    with pytest.raises(
        AnnotationError, match=rf"a single output .*MultiOutputRegressor\({kind}\(\.\."
    ):
        quick([("p", regressor)]).fit(X, table)


def test_weights_by_class_are_refused_as_members_get_codes(blobs):
    X, _, y = blobs
    labels = np.array(["a", "b", "c"])[y]
    weights = {"a": 1, "b": 20, "c": 1}
    for member in (
        LogisticRegression(class_weight=weights),
        make_pipeline(StandardScaler(), RandomForestClassifier(5, class_weight=weights)),
    ):
        with pytest.raises(AnnotationError, match=r"class_weight=\{'a': 1.*decision='balanced'"):
            quick([("lr", member)]).fit(X, labels)
    quick([("lr", LogisticRegression(class_weight="balanced"))]).fit(X, labels)


@pytest.mark.parametrize("columns", ["b", ["a", "b"], slice("a", "c"), make_column_selector()])
def test_columns_by_name_are_refused_as_members_get_arrays(blobs, columns):
    X, table, _ = blobs
    frame = pd.DataFrame(X, columns=list("abcde"))
    picked = ColumnTransformer([("some", StandardScaler(), columns)])
    for member in (("p", make_pipeline(picked, Ridge())), ("p", Ridge(), picked)):
        with pytest.raises(AnnotationError, match=r"member 'p' picks the columns .* get an array"):
            quick([member]).fit(frame, table)


def test_columns_by_place_and_in_front_work(blobs):
    X, table, y = blobs
    frame = pd.DataFrame(X, columns=list("abcde"))
    for places in ([0, 1, 2], slice(0, 3), [True, True, True, False, False]):
        picked = ColumnTransformer([("some", "passthrough", places), ("none", "drop", 3)])
        model = quick([("p", make_pipeline(picked, Ridge()))]).fit(frame, table)
        assert np.mean(model.predict(frame) == y) > 0.8
    front = make_pipeline(
        ColumnTransformer([("some", "passthrough", ["a", "b", "c"])]), quick([("r", Ridge())])
    )
    assert np.mean(front.fit(frame, table).predict(frame) == y) > 0.8


@pytest.mark.parametrize("container", [list, np.array, lambda X: pd.Series(X, range(5, 65))])
def test_texts_are_encoded_for_no_members_of_users_own(container):
    texts = container(["poor awful thing", "great and lovely"] * 30)
    member = make_pipeline(TfidfVectorizer(), LogisticRegression())
    y = np.arange(60) % 2
    with pytest.raises(AnnotationError) as refused:
        quick([("lr", member)]).fit(texts, y)
    said = str(refused.value)
    assert said.startswith("X holds texts ('poor awful thing' ...), which are encoded only with")
    assert "make_pipeline(TextEncoder(), CrowdStackingClassifier(members))" in said
    with pytest.raises(AnnotationError, match=r"X holds images \('a\.png' .*ImageEncoder"):
        quick([("lr", member)]).fit(["a.png", "b.png"], [0, 1])
    fitted = quick([("lr", LogisticRegression())]).fit(np.eye(2)[y], y)
    with pytest.raises(AnnotationError, match=r"X holds text .* takes numbers"):
        fitted.predict(texts)


# -- saving ---------------------------------------------------------------------------------------


def test_a_loaded_stack_has_its_members_again(blobs, tmp_path):
    X, table, _ = blobs
    members = [
        ("l", SoftLogistic((1.0,))),
        ("r", SoftRidge(np.array([0.3])), make_pipeline(ClippedScaler(), KernelMap())),
        ("v", SoftRidge([1.0]), Normalizer("l1")),
        ["n", SoftLogistic(), None],
    ]
    model = quick(members).fit(X, table)
    loaded = load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert [len(entry) for entry in loaded.members] == [2, 3, 3, 3]
    assert loaded.members[2][2].norm == "l1"
    assert list(loaded.members[0][1].C) == [1.0]
    again = clone(loaded).set_params(random_state=0).fit(X, table)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    loaded.partial_fit(X, table, duplicates="last")
    assert list(loaded.member_weights_) == ["l", "r", "v", "n"]
    twice = load(load(tmp_path / "model").save(tmp_path / "again"))
    assert [entry[0] for entry in twice.members] == ["l", "r", "v", "n"]
    default = CrowdStackingClassifier(n_rounds=1, random_state=0).fit(X, table)
    assert load(default.save(tmp_path / "default")).members == "auto"


def test_a_backbone_is_loaded_by_name(blobs, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from manyhands.classifiers.stacking.members import SoftNetwork

    monkeypatch.setattr("manyhands.classifiers.stacking.members.FEWEST_STEPS", 5)
    X, table, _ = blobs
    backbone = {"name": "mlp", "hidden": [4]}
    members = [("name", "linear"), ("dict", backbone), ("own", SoftNetwork("linear", max_epochs=1))]
    model = quick(members, n_folds=2).set_params(n_rounds=1).fit(X[:40], table[:40])
    loaded = load(model.save(tmp_path))
    assert loaded.members[:2] == members[:2]
    assert loaded.members[2][1].get_params() == members[2][1].get_params()


class OwnRidge(SoftRidge):
    """A class that a loaded stack does not know; its predictors can be saved."""


@pytest.mark.parametrize(
    "own", [OwnRidge([0.3]), SoftRidge(strengths={0.3})], ids=["class", "parameter"]
)
def test_members_that_cannot_be_described_only_predict_once_loaded(blobs, own, tmp_path):
    X, table, _ = blobs
    model = quick([("known", SoftRidge()), ("own", own)]).fit(X, table)
    loaded = load(model.save(tmp_path / "model"))
    twice = load(loaded.save(tmp_path / "again"))
    for each in (loaded, twice, clone(loaded)):
        says = rf"member 'own' was a {type(own).__name__}, .*set_params\(members="
        with pytest.raises(AnnotationError, match=says):
            each.fit(X, table)
    np.testing.assert_array_equal(twice.predict_proba(X), model.predict_proba(X))
    with pytest.raises(AnnotationError, match="member 'own' was"):
        loaded.partial_fit(X, table, duplicates="last")
    loaded.set_params(members=[("own", own)]).fit(X, table)
