"""Where scikit-learn's conventions meet annotations: searches, splitters, output, displays."""

import re
import sys

import joblib
import matplotlib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from matplotlib import pyplot
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manyhands import (
    AnnotationTable,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    DawidSkene,
    LabelSetTable,
    MajorityVote,
    MetricLearningEmbedding,
    MultiLabelDawidSkene,
    NeuCrowdEmbedding,
    cross_predict,
    load_demo,
    make_crowd,
    save,
    select,
)
from manyhands.agreement import cohen_kappa, percent_agreement
from manyhands.displays import (
    AgreementDisplay,
    ConfusionDisplay,
    JudgesDisplay,
    ReliabilityDisplay,
    TicksDisplay,
)
from manyhands.exceptions import AnnotationError, MissingExtraError, NoGoldError
from manyhands.metrics import VOTE_SCORERS, gold_scorer, vote_agreement_scorer
from manyhands.selection import InstanceKFold

matplotlib.use("Agg")


class Threshold(ClassifierMixin, BaseEstimator):
    """Says 1 where X exceeds a threshold; learns nothing but the classes."""

    def __init__(self, at=0.0):
        self.at = at

    def fit(self, X, y):
        self.classes_ = y.classes if isinstance(y, AnnotationTable) else np.unique(y)
        return self

    def predict_proba(self, X):
        above = np.asarray(X)[:, 0] > self.at
        return np.where(above[:, None], [0.2, 0.8], [0.7, 0.3])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


GOLD = np.array(["no", "no", "no", "yes"] * 10)
X = pd.DataFrame({"x": np.where(GOLD == "yes", 0.4, -0.4)}, index=[f"i{k}" for k in range(40)])
X.iloc[:4] *= -1  # Four mistakes of Threshold().


def crowd(ids=X.index):
    table = make_crowd((GOLD == "yes").astype(int), n_annotators=6, random_state=0)
    return AnnotationTable.from_matrix(
        table.to_matrix(codes=True), classes=[0, 1], instances=list(ids)
    )


def named_crowd():
    codes = crowd().to_matrix(codes=True)
    return AnnotationTable.from_matrix(
        np.array(["no", "yes", None], dtype=object)[codes], instances=list(X.index)
    )


TABLE = named_crowd()


# -- scoring ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scoring", ["accuracy", "f1_macro", "neg_log_loss", "roc_auc_ovr", ["accuracy", "f1_macro"]]
)
def test_measures_that_need_gold_stop_a_search_rather_than_give_nan(scoring):
    with pytest.raises(NoGoldError, match=r"gold_scorer\('accuracy', y_true, table\)"):
        cross_validate(Threshold(), X, TABLE, cv=2, scoring=scoring)
    if scoring == "accuracy":
        with pytest.raises(NoGoldError):
            GridSearchCV(Threshold(), {"at": [0.0, 1.0]}, cv=2, scoring=scoring).fit(X, TABLE)
        with pytest.raises(NoGoldError):
            accuracy_score(TABLE, GOLD)


def test_other_measures_see_the_codes():
    np.testing.assert_array_equal(np.asarray(TABLE), TABLE.to_matrix(codes=True))
    found = cross_validate(Threshold(), X, TABLE, cv=2, scoring=VOTE_SCORERS)
    assert np.isfinite(found["test_vote_agreement"]).all()


@pytest.mark.parametrize(
    "gold",
    [
        lambda: (GOLD, TABLE),
        lambda: (dict(zip(X.index, GOLD, strict=True)),),
        lambda: (pd.Series(GOLD, index=X.index).sample(frac=1, random_state=1),),
    ],
    ids=["array", "dict", "series"],
)
def test_gold_is_found_by_id(gold):
    scoring = {name: gold_scorer(name, *gold()) for name in ("accuracy", "neg_log_loss")}
    shuffled = X.sample(frac=1, random_state=0)  # Rows of X in another order than the table.
    found = cross_validate(
        Threshold(), shuffled, TABLE.select(shuffled.index), cv=4, scoring=scoring
    )
    assert found["test_accuracy"].mean() == pytest.approx(0.9)
    model = Threshold().fit(X, TABLE)
    expected = -log_loss(GOLD, model.predict_proba(X), labels=["no", "yes"])
    assert found["test_neg_log_loss"].mean() == pytest.approx(expected)


def test_gold_chooses_in_nested_searches_and_pipelines():
    scoring = gold_scorer("accuracy", GOLD, TABLE)
    search = GridSearchCV(Threshold(), {"at": [-1.0, 0.0, 1.0]}, cv=2, scoring=scoring)
    found = cross_validate(search, X, TABLE, cv=2, scoring=scoring, return_estimator=True)
    assert found["test_score"].mean() == pytest.approx(0.9)
    assert [each.best_params_ for each in found["estimator"]] == [{"at": 0.0}] * 2


def test_instances_without_gold_are_left_out():
    gold = {name: label for name, label in zip(X.index, GOLD, strict=True) if name >= "i30"}
    gold["i39"] = None
    scorer = gold_scorer("accuracy", gold)
    # i30 to i38, and i4 to i9, which sort behind "i30"; all are right.
    assert scorer(Threshold().fit(X, TABLE), X, TABLE) == 1
    assert "15 labels" in repr(scorer)
    with pytest.raises(AnnotationError, match="none of these 4 instances has a gold label"):
        scorer(Threshold().fit(X, TABLE), X.iloc[:4], TABLE[:4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((GOLD,), "an array without ids; also give the table"),
        ((GOLD[:3], TABLE), r"shape \(3,\) for 40 instances"),
        (([None] * 40, TABLE), "gold holds no label"),
        (
            (np.ones(40, dtype=int), TABLE),
            "gold holds numbers .* but the table's classes strings",
        ),
        (({"i0": 1.5},), "1.5"),
    ],
)
def test_gold_that_cannot_be_used_is_refused_before_the_search(arguments, message):
    with pytest.raises(AnnotationError, match=message):
        gold_scorer("accuracy", *arguments)


def test_a_matrix_has_no_ids():
    scorer = gold_scorer("accuracy", GOLD, TABLE)
    with pytest.raises(AnnotationError, match="y is a ndarray, which has no ids"):
        scorer(Threshold(), X, TABLE.to_matrix(codes=True))


# -- splitters -------------------------------------------------------------------------------------


def shares(folds, labels):
    return [np.mean(labels[folds == k] == "yes") for k in range(folds.max() + 1)]


@pytest.mark.parametrize(
    "labels", [GOLD, pd.Series(GOLD, X.index), dict(zip(X.index, GOLD, strict=True))]
)
def test_folds_have_the_shares_of_given_labels(labels):
    folds = np.full(40, -1)
    for k, (train, test) in enumerate(InstanceKFold(5, labels=labels).split(X, TABLE)):
        assert sorted([*train, *test]) == list(range(40))
        folds[test] = k
    assert shares(folds, GOLD) == [0.25] * 5


def test_folds_have_the_shares_of_inferred_labels():
    inferred = DawidSkene().fit_predict(TABLE)
    folds = InstanceKFold(4, labels=DawidSkene()).folds_of(X, TABLE)
    counts = [np.sum(inferred[folds == k] == "yes") for k in range(4)]
    assert max(counts) - min(counts) <= 1
    np.testing.assert_array_equal(
        InstanceKFold(4).folds_of(X, TABLE),
        cross_predict(Threshold(), X, TABLE, cv=InstanceKFold(4)).folds,
    )


def test_the_splitter_serves_searches_and_keeps_groups_together():
    groups = np.arange(40) // 2
    for train, test in InstanceKFold(3, labels=GOLD).split(X, TABLE, groups):
        assert not set(groups[train]) & set(groups[test])
    by_id = dict(zip(X.index, GOLD, strict=True))
    cv = InstanceKFold(3, labels=by_id)
    scoring = gold_scorer("accuracy", by_id)
    search = GridSearchCV(Threshold(), {"at": [0.0]}, cv=cv, scoring=scoring)  # Sees two thirds.
    assert cross_validate(search, X, TABLE, cv=cv, scoring=scoring)["test_score"].mean() > 0.8
    assert repr(InstanceKFold(3)) == "InstanceKFold(labels=None, n_splits=3, random_state=0)"


def test_scikit_learns_splitters_get_the_classes_with_most_votes():
    most = TABLE.classes[TABLE.vote_counts().argmax(axis=1)]
    found = cross_predict(Threshold(), X, TABLE, cv=StratifiedKFold(4))
    for k, (_, test) in enumerate(StratifiedKFold(4).split(X, most)):
        np.testing.assert_array_equal(np.flatnonzero(found.folds == k), test)
    pairs = list(StratifiedKFold(5).split(X, GOLD))
    folds = cross_predict(Threshold(), X, TABLE, cv=pairs).folds
    assert shares(folds, GOLD) == [0.25] * 5
    groups = np.repeat(np.arange(20), 2)
    grouped = cross_predict(Threshold(), X, TABLE, cv=GroupKFold(4), groups=groups).folds
    assert (grouped[::2] == grouped[1::2]).all()
    cross_predict(Threshold(), X, TABLE, cv=iter(pairs))
    found = cross_validate(Threshold(), X, TABLE, cv=pairs, scoring=vote_agreement_scorer)
    assert len(found["test_score"]) == 5


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (ShuffleSplit(3, random_state=0), "every instance must be left out once"),
        ([(np.arange(20), np.arange(20, 40))], "cv never leaves out instance 0"),
        ([(np.arange(30), np.arange(20, 40)), (np.arange(20, 40), np.arange(20))], "fold 0"),
        ("stratified", "or a splitter such as InstanceKFold"),
        (InstanceKFold(1), "n_splits=1"),
        (InstanceKFold(2, labels=GOLD[:9]), r"shape \(9,\) for 40 instances"),
        (InstanceKFold(2, labels={"j": "yes"}), "labels names none of these 40"),
    ],
)
def test_folds_that_cannot_be_used_are_refused(cv, message):
    with pytest.raises(AnnotationError, match=message):
        cross_predict(Threshold(), X, TABLE, cv=cv)


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_select_takes_a_splitter():
    candidates = [CrowdStackingClassifier([("lr", LogisticRegression())], n_rounds=1)]
    folds = InstanceKFold(2, labels=GOLD)
    scores = [
        select(candidates, X, TABLE, cv=cv).table_[0].score
        for cv in (folds, folds.folds_of(X, TABLE))
    ]
    assert scores[0] == scores[1]


# -- containers ------------------------------------------------------------------------------------

DEMO = load_demo()
FEATURES = pd.DataFrame(
    DEMO.X_train[:80], columns=[f"f{k}" for k in range(64)], index=np.arange(100, 180)
)
VOTES = AnnotationTable.from_matrix(
    DEMO.annotations[:80].to_matrix(codes=True), instances=FEATURES.index
)
EMBEDDINGS = [
    CrowdLayerClassifier("mlp", max_epochs=1),
    NeuCrowdEmbedding(max_epochs=1),
    MetricLearningEmbedding(max_epochs=1),
]


@pytest.mark.parametrize("model", EMBEDDINGS, ids=lambda model: type(model).__name__)
def test_embeddings_come_as_the_container_that_is_asked_for(model):
    steps = make_pipeline(StandardScaler(), clone(model).set_params(random_state=0))
    plain = steps.fit(FEATURES, VOTES).transform(FEATURES)
    framed = clone(steps).set_output(transform="pandas").fit(FEATURES, VOTES).transform(FEATURES)
    np.testing.assert_array_equal(framed.to_numpy(), plain)
    assert framed.index.equals(FEATURES.index)
    names = steps[-1].get_feature_names_out()
    assert framed.columns.tolist() == names.tolist()
    assert names[-1] == f"{type(model).__name__.lower()}{plain.shape[1] - 1}"
    columns = clone(steps).set_output(transform="polars").fit(FEATURES, VOTES).transform(FEATURES)
    np.testing.assert_array_equal(columns.to_numpy(), plain)


def test_a_network_without_an_embedding_is_the_last_step_all_the_same():
    network = torch.nn.Sequential(torch.nn.Linear(64, 10))
    steps = make_pipeline(StandardScaler(), CrowdLayerClassifier(network, max_epochs=1))
    steps.set_output(transform="pandas").fit(FEATURES, VOTES)
    assert not hasattr(steps, "transform")
    assert len(steps.predict(FEATURES)) == 80


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
@pytest.mark.parametrize(
    "model",
    [
        CrowdStackingClassifier(n_rounds=1, n_folds=2, random_state=0),
        CrowdLayerClassifier("mlp", max_epochs=1, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_pipeline_with_a_scaler_is_saved_by_joblib_as_the_error_says(
    model, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    pipeline = make_pipeline(StandardScaler(), model).fit(FEATURES, VOTES)
    with pytest.raises(AnnotationError, match="the step StandardScaler cannot be saved") as raised:
        save(pipeline, "model")
    (command,) = re.findall(r"joblib\.dump\(.*?\)", str(raised.value))
    eval(command, {"joblib": joblib, "pipeline": pipeline})
    again = joblib.load("pipeline.joblib")
    raw = FEATURES * 3 + 5  # Without the scaler, these would be predicted otherwise.
    np.testing.assert_array_equal(again.predict_proba(raw), pipeline.predict_proba(raw))
    np.testing.assert_array_equal(again[0].mean_, pipeline[0].mean_)


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_what_set_config_asks_for_does_not_reach_the_parts_of_a_stack(container):
    # An embedding in front, members with views of their own and the automatic ones.
    view = StandardScaler().set_output(transform="pandas")
    few = {"n_rounds": 2, "n_folds": 2, "random_state": 0}
    own = CrowdStackingClassifier([("lr", LogisticRegression(C=0.01), view)], **few)
    stacks = [CrowdStackingClassifier(**few), own]
    X = FEATURES.iloc[:, 16:40]
    for stack in stacks:
        expected = clone(stack).fit(X, VOTES).predict_proba(X)
        with config_context(transform_output=container):
            fitted = clone(stack).fit(X, VOTES)
            np.testing.assert_array_equal(fitted.predict_proba(X), expected)


# -- columns that can have gaps, and categories ----------------------------------------------------

GAPPY = {
    "Int64": [0, 1, None, 2],
    "Float64": [0.0, 1.0, None, 2.0],
    "int64[pyarrow]": [0, 1, None, 2],
    "string": ["a", "b", None, "c"],
    "boolean": [True, False, None, True],
}


@pytest.mark.parametrize("dtype", GAPPY)
def test_nullable_columns_hold_labels_and_gaps(dtype):
    labels = pd.array(GAPPY[dtype], dtype=dtype)
    frame = pd.DataFrame({"task": [0, 1, 1, 2], "worker": list("abab"), "label": labels})
    with pytest.warns(UserWarning, match="1 of 4 rows have no label"):
        long = AnnotationTable.from_frame(frame, duplicates="keep")
    wide = AnnotationTable.from_matrix(pd.DataFrame({"a": labels, "b": labels[::-1]}))
    given = [value for value in GAPPY[dtype] if value is not None]
    assert long.classes.tolist() == wide.classes.tolist() == sorted(set(given))
    assert long.classes[long.label].tolist() == given
    assert wide.n_annotations == 6
    np.testing.assert_array_equal(wide.annotations_per_instance(), [2, 1, 1, 2])


def test_nullable_integers_beyond_floats_stay_exact():
    big = 2**60 + 1
    labels = pd.array([big, None, big + 2], dtype="Int64")
    frame = pd.DataFrame({"task": [0, 1, 2], "worker": ["a"] * 3, "label": labels})
    with pytest.warns(UserWarning, match="1 of 3 rows have no label"):
        table = AnnotationTable.from_frame(frame, classes=[big, big + 2])
    assert table.n_annotations == 2
    assert table.classes[table.label].tolist() == [big, big + 2]


SCALE = ["low", "mid", "high"]
GRADES = ["high", None, "low", "mid"]


def as_columns():
    dictionary = pa.DictionaryArray.from_arrays(
        pa.array([2, None, 0, 1]), pa.array(SCALE), ordered=True
    )
    return {
        "ordered": pd.Series(pd.Categorical(GRADES, SCALE, ordered=True)),
        "unordered": pd.Series(pd.Categorical(GRADES, SCALE)),
        "Enum": pl.Series("label", GRADES, dtype=pl.Enum(SCALE)),
        "dictionary": pa.chunked_array([dictionary]),
    }


def framed(column, **others):
    if isinstance(column, pl.Series):
        return pl.DataFrame({**others, "label": column})
    return (
        pd.DataFrame({**others, "label": column})
        if isinstance(column, pd.Series)
        else pa.table({**others, "label": column})
    )


@pytest.mark.parametrize("kind", as_columns())
def test_the_order_of_categories_is_that_of_the_classes(kind):
    column = as_columns()[kind]
    with pytest.warns(UserWarning, match="1 of 4 rows have no label"):
        long = AnnotationTable.from_frame(framed(column, task=list("pqrs"), worker=["x"] * 4))
    wide = AnnotationTable.from_matrix(framed(column))
    for table in (long, wide):
        assert table.classes.tolist() == SCALE
        assert table.classes[table.label].tolist() == ["high", "low", "mid"]
        assert table.shape == (4, 1)
    assert AnnotationTable.from_matrix(framed(column), classes=sorted(SCALE)).label.tolist() == [
        0, 1, 2,
    ]  # fmt: skip


def test_categories_nobody_gave_are_classes_but_passes_are_none():
    grades = pd.Categorical(["low", "unsure", "high"], [*SCALE, "unsure"], ordered=True)
    frame = pd.DataFrame({"task": [0, 1, 2], "worker": ["x"] * 3, "label": grades})
    table = AnnotationTable.from_frame(frame, abstain="unsure")
    assert table.classes.tolist() == SCALE
    assert len(table.abstentions) == 1
    arrays = AnnotationTable.from_arrays([0, 1, 2], [0, 0, 0], grades, abstain="unsure")
    assert arrays.classes.tolist() == SCALE
    numbers = pd.DataFrame({"a": pd.Categorical([3, -1, 1], [-1, 3, 2, 1])})
    assert AnnotationTable.from_matrix(numbers).classes.tolist() == [3, 2, 1]


def test_columns_without_one_order_are_sorted():
    one, other = (pd.Categorical(["low", "high"], order) for order in (SCALE, SCALE[::-1]))
    with pytest.warns(UserWarning, match="different categories, so the classes were sorted"):
        table = AnnotationTable.from_matrix(pd.DataFrame({"a": one, "b": other}))
    assert table.classes.tolist() == ["low", "high"]  # A known order.
    both = pd.DataFrame({"a": ["x", "y"], "b": ["x", "z"]}, dtype="category")  # Each sorted.
    assert AnnotationTable.from_matrix(both.astype("category")).classes.tolist() == list("xyz")
    mixed = pd.DataFrame({"a": one, "b": ["low", "mid"]})
    assert AnnotationTable.from_matrix(mixed).classes.tolist() == ["low", "mid", "high"]
    appeared = pl.DataFrame({"a": pl.Series(["z", "x", "y"], dtype=pl.Categorical)})
    assert AnnotationTable.from_matrix(appeared).classes.tolist() == list("xyz")


# -- displays --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_figure_stays():
    yield
    pyplot.close("all")


def texts(display):
    return [text.get_text() for text in display.ax_.texts]


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_confusions_of_an_annotator_and_of_the_crowd():
    model = DawidSkene().fit(TABLE)
    for annotator, matrix in ((4, model.confusion_[4]), (None, model.confusion_.mean(axis=0))):
        shown = ConfusionDisplay.from_estimator(model, annotator=annotator)
        np.testing.assert_allclose(shown.matrix, matrix)
        np.testing.assert_allclose(shown.image_.get_array(), matrix)
        assert texts(shown) == [f"{value:.2f}".removeprefix("0") for value in matrix.ravel()]
        assert ticks(shown.ax_.xaxis) == ticks(shown.ax_.yaxis) == ["no", "yes"]
        assert shown.ax_.get_title(loc="left") == (
            "All annotators" if annotator is None else "Annotator 4"
        )
    search = GridSearchCV(
        make_pipeline(StandardScaler(), CrowdStackingClassifier(n_rounds=1)),
        {"crowdstackingclassifier__crowd_strength": [5.0]},
        cv=2,
    ).fit(FEATURES, VOTES)
    shown = ConfusionDisplay.from_estimator(search, values=False)
    best = search.best_estimator_[-1]
    np.testing.assert_array_equal(shown.matrix, best.pooled_confusion_)
    assert not texts(shown)


def test_confusions_are_drawn_on_given_axes_and_large_ones_without_values():
    _, axes = pyplot.subplots(1, 2)
    shown = ConfusionDisplay.from_confusion([[1, 0], [0.5, 0.5]], ["a", "b"], ax=axes[1])
    assert shown.ax_ is axes[1]
    assert texts(shown) == ["1", "0", ".50", ".50"]
    assert shown.plot(axes[0]).ax_ is axes[0]
    large = ConfusionDisplay.from_confusion(np.eye(130), [f"class number {k}" for k in range(130)])
    assert not texts(large)
    assert len(ticks(large.ax_.xaxis)) == 44  # Every third is named.
    long = ConfusionDisplay.from_confusion(np.eye(2), ["x" * 50, "y"])
    assert ticks(long.ax_.yaxis)[0] == "x" * 17 + "…"
    gap = ConfusionDisplay.from_confusion([[np.nan, np.nan], [0, 1]], ["a", "b"])
    assert texts(gap) == ["0", "1"]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: ConfusionDisplay.from_estimator(DawidSkene()), "DawidSkene has no confusion_"),
        (lambda: ConfusionDisplay.from_estimator(DawidSkene().fit(TABLE), annotator=9), "9"),
        (lambda: ConfusionDisplay([[1, 0]], ["a", "b"]), r"\(1, 2\); for 2 classes"),
        (lambda: ConfusionDisplay([[9, 1], [0, 3]], ["a", "b"]), "divide counts by the sums"),
        (lambda: AgreementDisplay.from_table([[0, -1], [-1, 1]]), "no instance with two"),
        (lambda: AgreementDisplay.from_table(TABLE, kind="classes"), "kind='classes'"),
        (lambda: AgreementDisplay.from_table(TABLE, measure="alpha"), "measure='alpha'"),
    ],
)
def test_what_cannot_be_drawn_is_named(draw, message):
    with pytest.raises(AnnotationError, match=message):
        draw()


def test_ticks_of_annotators_are_drawn():
    rng = np.random.default_rng(0)
    truth = np.repeat(rng.random((40, 3)) < 0.4, 3, axis=0)
    ticks = rng.random((120, 3)) < np.where(truth, 0.85, 0.1)
    table = LabelSetTable.from_arrays(
        np.arange(120) // 3, np.tile(["ann", "bob", "cem"], 40), ticks
    )
    model = MultiLabelDawidSkene().fit(table)
    shown = TicksDisplay.from_estimator(model, title="Who ticks what", named=2)
    (points,) = shown.ax_.collections
    np.testing.assert_allclose(points.get_offsets()[:, 1], model.annotator_sensitivity_)
    assert len(shown.ax_.texts) == 2
    assert shown.ax_.get_title(loc="left") == "Who ticks what"
    with pytest.raises(AnnotationError, match="MajorityVote has no annotator_sensitivity_"):
        TicksDisplay.from_estimator(MajorityVote().fit(table.option(table.options[0])))
    with pytest.raises(AnnotationError, match=r"sensitivity has shape \(2,\)"):
        TicksDisplay([0.5, 0.6], [0.1], ["ann"])


def test_judges_are_drawn_from_the_best_to_the_worst():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 300)
    known = rng.random((300, 5)) < [0.8, 0.8, 0.8, 0.3, 0.9]
    A = np.where(known, truth[:, None], rng.integers(0, 2, (300, 5)))
    shown = JudgesDisplay.from_table(AnnotationTable.from_matrix(A), [0, 1, 2])
    assert ticks(shown.ax_.yaxis) == ["4", "3"]
    assert texts(shown) == ["can stand in *", "cannot stand in"]
    intervals = [line for line in shown.ax_.lines if len(line.get_xdata()) == 2][:2]
    for line, judge in zip(intervals, shown.comparison.judges, strict=True):
        np.testing.assert_allclose(line.get_xdata(), [judge.low, judge.high])


def test_agreement_of_pairs_by_hand():
    # Annotators 0 and 1 agree on 3 of 4; 2 agrees with 0 on 1 of 2, with 1 on 2 of 2; 3 is alone.
    A = np.array([[0, 0, -1, -1], [0, 1, 1, -1], [1, 1, 1, -1], [1, 1, -1, -1], [-1, -1, -1, 0]])
    shown = AgreementDisplay.from_table(A, least=3)
    assert shown.annotators.tolist() == [1, 2, 0, 3]  # By agreement with the others.
    np.testing.assert_array_equal(shown.n_shared[:3, :3], [[4, 2, 4], [2, 2, 2], [4, 2, 4]])
    expected = [[1, 1, 0.75], [1, 1, 0.5], [0.75, 0.5, 1]]
    np.testing.assert_allclose(shown.agreement[:3, :3], expected)
    assert np.isnan(shown.agreement[3, :3]).all()
    assert texts(shown) == [".75\n4", "grey: unknown, or fewer\nthan 3 shared instances"]
    assert ticks(shown.ax_.yaxis) == ["2", "0", "3"]
    assert ticks(shown.ax_.xaxis) == ["1", "2", "0"]
    np.testing.assert_allclose(shown.by_instance, [1, 1 / 3, 1, 1])
    histogram = shown.plot(kind="instances")
    assert sum(bar.get_height() for bar in histogram.ax_.patches) == 4
    assert texts(histogram) == ["mean 0.83"]


def test_figures_of_agreement_are_those_of_the_measures():
    shown = AgreementDisplay.from_table(VOTES, measure="kappa", most=10)
    assert shown.by_instance.mean() == pytest.approx(percent_agreement(VOTES))
    found = cohen_kappa(VOTES)
    place = {name: k for k, name in enumerate(shown.annotators.tolist())}
    for first, second, n, kappa in zip(
        *(VOTES.annotators[codes] for codes in (found.first, found.second)),
        found.n_shared,
        found.kappa,
        strict=True,
    ):
        if first in place and second in place:
            cell = place[first], place[second]
            assert shown.n_shared[cell] == n
            np.testing.assert_allclose(shown.agreement[cell], kappa)
    active = int((VOTES.annotations_per_annotator() > 0).sum())
    assert shown.ax_.get_title(loc="left").endswith(f"10 busiest of {active} annotators")
    assert shown.image_.norm.vmin == -1


def test_reliability_is_the_curve():
    model = Threshold().fit(X, TABLE)
    shown = ReliabilityDisplay.from_estimator(model, X, GOLD, n_bins=5)
    line = shown.ax_.lines[1]
    # Bins of width .2: all "no" have .7, all "yes" .8, which is in the bin up to .8, too.
    assert line.get_xdata().tolist() == [pytest.approx(shown.curve.confidence[3])]
    assert line.get_ydata().tolist() == [pytest.approx(0.9)]
    assert shown.ax_.get_title(loc="left") == "Threshold"
    heights = [bar.get_height() for bar in shown.ax_.patches]
    assert heights == [0, 0, 0, 1, 0]


def test_reliability_matches_gold_with_x_by_index():
    model, gold = Threshold().fit(X, TABLE), pd.Series(GOLD, index=X.index)
    expected = ReliabilityDisplay.from_estimator(model, X, GOLD).curve
    found = ReliabilityDisplay.from_estimator(model, X.sample(frac=1, random_state=1), gold).curve
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'manyhands\[plot\]'"):
        ConfusionDisplay.from_confusion(np.eye(2), ["a", "b"])
