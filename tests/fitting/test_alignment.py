"""Rows of X belong to the instances of the table: by id, or in an order that is stated."""

import json
import pickle
import warnings
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_validate, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import shuffle

from manyhands import (
    AggNetClassifier,
    AggregatedClassifier,
    AnnotationPlanner,
    AnnotationTable,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    DASCClassifier,
    DawidSkene,
    cross_predict,
    load,
    review_queue,
    save,
    summarize,
)
from manyhands.exceptions import AnnotationError, ModelChoiceWarning, ModelFolderError
from manyhands.fitting import Watch
from manyhands.fitting.folds import instance_units
from manyhands.inference.inputs import rows_of_fitted
from manyhands.metrics import vote_agreement_scorer
from manyhands.planning.beliefs import beliefs_of

N = 60
EARLIER = Path(__file__).parent / "earlier_folders" / "2026-11-28"
ASSUMED = r"X has no ids.*'img0', 'img1', \.\.\., 'img59'"


@pytest.fixture
def data():
    """Features with text ids as index, long annotations of them, and gold labels."""
    rng = np.random.default_rng(0)
    gold = rng.integers(3, size=N)
    ids = [f"img{i}" for i in range(N)]
    X = pd.DataFrame(rng.normal(size=(N, 4)) * 0.3, columns=list("abcd"), index=ids)
    X.iloc[:, :3] += np.eye(3)[gold] * 3
    votes = np.where(rng.random((N, 5)) < 0.8, gold[:, None], rng.integers(3, size=(N, 5)))
    long = pd.DataFrame(
        {"task": np.repeat(ids, 5), "worker": np.tile(list("vwxyz"), N), "label": votes.ravel()}
    )
    return X, long.sample(frac=1, random_state=0), pd.Series(gold, index=ids)


def quick():
    return AggregatedClassifier(backbone=LogisticRegression(max_iter=2000))


def network():
    return CrowdLayerClassifier(max_epochs=10, lr=0.05, random_state=0, device="cpu")


def accuracy(X, table, gold, model=None):
    return (model or quick()).fit(X, table).score(X, gold)


# -- ids match, whatever the order ----------------------------------------------------------------


@pytest.mark.parametrize("make", [quick, network])
def test_text_ids_in_the_order_of_x(data, make):
    X, long, gold = data
    assert accuracy(X, AnnotationTable.from_frame(long), gold, make()) > 0.9


@pytest.mark.parametrize("make", [quick, network, lambda: DASCClassifier(network(), n_rounds=1)])
def test_a_shuffled_frame_is_matched_by_its_index(data, make):
    X, long, gold = data
    X = X.sample(frac=1, random_state=1)
    assert accuracy(X, AnnotationTable.from_frame(long), gold, make()) > 0.9


@pytest.mark.parametrize("make", [quick, network])
def test_every_use_of_a_table_with_x_is_matched(data, make):
    X, long, gold = data
    table = AnnotationTable.from_frame(long)
    shuffled = X.sample(frac=1, random_state=1)
    model = make().fit(X, table)
    likelihood = model.annotation_log_likelihood
    assert likelihood(shuffled, table) == pytest.approx(likelihood(X, table))
    assert model.score(shuffled, gold) == model.score(X, gold)
    # In the order of the table's annotations, whatever that of X.
    np.testing.assert_allclose(
        model.predict_observed_proba(shuffled, table),
        model.predict_observed_proba(X, table),
        rtol=1e-5,
    )
    reports = [summarize(table, classifier=model, X=rows) for rows in (X, shuffled)]
    assert reports[0]["labels"] == reports[1]["labels"]


def test_integer_ids_of_a_sampled_frame_are_matched(data):
    X, long, gold = data
    X, gold = X.reset_index(drop=True), gold.reset_index(drop=True)
    long["task"] = long["task"].str.removeprefix("img").astype(int)
    table = AnnotationTable.from_frame(long)
    assert accuracy(X, table, gold) > 0.9
    assert accuracy(X.sample(frac=1, random_state=1), table, gold.sample(frac=1, random_state=1))
    shuffled = X.sample(frac=1, random_state=1)
    assert accuracy(shuffled, table, gold[shuffled.index]) > 0.9
    # Numbers as text are the same ids.
    as_text = AnnotationTable.from_frame(long.assign(task=long["task"].astype(str)))
    assert accuracy(shuffled, as_text, gold[shuffled.index]) > 0.9


@pytest.mark.parametrize("make", [quick, network])
@pytest.mark.parametrize("kind", ["polars", "pyarrow"])
def test_polars_and_pyarrow_carry_ids_in_a_column(data, kind, make):
    X, long, gold = data
    X = X.sample(frac=1, random_state=1)
    table, frame = AnnotationTable.from_frame(long), X.rename_axis("image_id").reset_index()
    other = pl.from_pandas(frame) if kind == "polars" else pa.Table.from_pandas(frame)
    model = make().fit(other, table)
    assert model.feature_names_in_.tolist() == list("abcd")
    assert model.score(other, gold) > 0.9
    np.testing.assert_allclose(
        model.predict_proba(other), model.predict_proba(other.select(list("dcba"))), atol=1e-6
    )
    with pytest.raises(AnnotationError, match="60 rows of X are not among y's instances"):
        make().fit(other, AnnotationTable.from_frame(long.assign(task=long["task"] + "x")))


def test_the_index_of_a_series_of_labels_counts_too(data):
    X, _, gold = data
    shuffled = X.sample(frac=1, random_state=1)
    expected = quick().fit(X, gold)
    assert quick().fit(shuffled, gold).score(X, gold) == expected.score(shuffled, gold) == 1
    with pytest.raises(AnnotationError, match=r"X \(59 rows\) and y \(60 rows\) differ.*img3"):
        expected.score(X.drop("img3"), gold)


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas])
def test_the_column_of_ids_is_matched_with_the_index_of_labels_and_groups(data, convert):
    X, long, gold = data
    shuffled = X.sample(frac=1, random_state=1)
    other = convert(shuffled.rename_axis("task").reset_index())
    model = quick().fit(other, gold)
    assert model.score(X, gold) == model.score(other, gold) == 1
    chosen = (
        network().set_params(validation=(other, gold)).fit(other, AnnotationTable.from_frame(long))
    )
    assert chosen.history_[-1]["validation_accuracy"] > 0.9
    table = AnnotationTable.from_frame(long, tasks=shuffled.index)
    groups = pd.Series(np.arange(N) // 10, X.index)
    np.testing.assert_array_equal(
        instance_units(other, table, groups), instance_units(shuffled, table, groups)
    )
    with pytest.raises(AnnotationError, match=r"X \(60 rows\) and the index of y \(59.*'img3'"):
        model.score(other, gold.drop("img3"))
    with pytest.raises(AnnotationError, match=r"ids of X .* and the index of groups .* differ"):
        instance_units(other, table, groups.add_prefix("x"))


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas])
def test_a_column_of_shuffled_ids_beside_bare_labels_is_warned_of(data, convert):
    X, long, gold = data
    matrix = long.pivot(index="task", columns="worker", values="label").loc[gold.index].to_numpy()
    other = convert(X.sample(frac=1, random_state=1).rename_axis("task").reset_index())
    says = r"rows of X are shuffled \(column 'task' 'img.*row i of y.*leaving out the column 'task'"
    with pytest.warns(UserWarning, match=says):
        model = quick().fit(other, matrix)
    with pytest.warns(UserWarning, match=says):
        model.score(other, gold.to_numpy())
    with pytest.warns(ModelChoiceWarning), pytest.warns(UserWarning, match=says):
        vote_agreement_scorer(model, other, matrix)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick().fit(convert(X.rename_axis("task").reset_index()), matrix)


def test_bare_groups_beside_shuffled_rows_are_named_in_the_warning(data):
    X, long, _ = data
    X = X.sample(frac=1, random_state=1)
    table = AnnotationTable.from_frame(long, tasks=X.index)
    with pytest.warns(UserWarning, match=r"shuffled .* and groups has no ids, so row i of groups"):
        instance_units(X, table, np.arange(N) // 10)


def test_known_labels_without_ids_beside_shuffled_rows_are_warned_of(data):
    X, long, gold = data
    X, table = X.sample(frac=1, random_state=1), AnnotationTable.from_frame(long)
    stack = CrowdStackingClassifier([("logistic", LogisticRegression())], n_rounds=1)
    with pytest.warns(UserWarning, match=r"rows of X are shuffled .* and gold has no ids"):
        stack.fit(X, table, gold=gold[X.index].to_numpy())
    assert stack.fit(X, table, gold=gold).score(X, gold) == 1
    assert stack.fit(X, table, gold=gold.to_dict()).score(X, gold) == 1


def test_watched_labels_of_the_training_instances_are_matched_by_index(data):
    X, long, gold = data
    X, table = (
        X.sample(frac=1, random_state=1),
        AnnotationTable.from_frame(long[::2], tasks=X.index),
    )

    def qualities(y_train):
        model = DASCClassifier(network(), n_rounds=1).fit(X, table, watch=Watch(y_train))
        return model.history_.column("pseudo_accuracy")

    found = qualities(gold)
    with pytest.warns(UserWarning, match=r"rows of X are shuffled .* and y_train has no ids"):
        np.testing.assert_array_equal(qualities(gold[X.index].to_numpy()), found)
    assert found[-1] > 0.6


def test_labels_are_in_the_order_in_which_partial_fits_first_gave_the_instances(data):
    X, long, gold = data
    shuffled, early = X.sample(frac=1, random_state=1), long["worker"] < "x"
    tables = [AnnotationTable.from_frame(part) for part in (long[early], long[~early])]
    stack = CrowdStackingClassifier([("logistic", LogisticRegression())], n_rounds=1)
    stack.partial_fit(shuffled, tables[0]).partial_fit(X, tables[1])
    assert (stack.labels_ == gold[shuffled.index]).mean() > 0.9


# -- ids that do not match are refused ------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X.drop("img7"), r"59 rows of X .* 60 instances of y.*1 instances.*'img7'"),
        (lambda X: pd.concat([X, X[:1].rename({"img0": "new"})]), r"1 rows of X are.*'new'"),
        (lambda X: pd.concat([X[1:], X[1:2]]), r"'img0'.*X holds 'img1' twice"),
        (lambda X: X.rename(str.upper), r"60 rows of X are.*'IMG0'.*60 instances.*'img0'"),
        (lambda X: X.set_axis(range(5, N + 5)), r"60 rows.*\(5, 6, \.\.\., 64\).*reset_index"),
        (lambda X: X.set_axis(pd.date_range("2020", periods=N)), r"index of X.*reset_index"),
        (lambda X: X.set_index(["a", "b"]), r"index of 2 levels"),
        (lambda X: X.set_axis([None, *X.index[1:]]), r"index of X holds a missing value"),
        (lambda X: X.set_axis([0, *X.index[1:]]), r"index of X mixes strings"),
    ],
)
def test_rows_missing_extra_repeated_or_otherwise_named_are_refused(data, change, message):
    X, long, _ = data
    table = AnnotationTable.from_frame(long)
    model, X = quick().fit(X, table), change(X)
    for use in (quick().fit, model.score, model.predict_observed_proba):
        with pytest.raises(AnnotationError, match=message):
            use(X, table)


def test_mends_that_the_refusal_names_work(data):
    X, long, gold = data
    table = AnnotationTable.from_frame(long)
    few = X.sample(40, random_state=0)
    assert accuracy(few, table.select(instances=few.index), gold[few.index]) > 0.9
    more = pd.concat([X[::-1], X[:1].rename({"img0": "new"})])
    with_new = AnnotationTable.from_frame(long, tasks=more.index)
    assert accuracy(more, with_new, pd.concat([gold, pd.Series({"new": gold["img0"]})])) > 0.9
    assert accuracy(X.loc[table.instances[:30]], table[:30], gold[:30]) > 0.9


def test_a_mask_in_another_order_than_the_table_is_refused(data):
    X, long, _ = data
    table = AnnotationTable.from_frame(long)
    mask = X["a"] > 0
    assert table[mask].instances.tolist() == X.index[mask].tolist()
    assert table[mask.reset_index(drop=True)].n_instances == mask.sum()
    shuffled = mask.sample(frac=1, random_state=0)
    with pytest.raises(AnnotationError, match=r"same ids in another order.*select\(instances="):
        table[shuffled]
    chosen = table.select(instances=shuffled.index[shuffled])
    assert chosen.instances.tolist() == shuffled.index[shuffled].tolist()


def test_row_numbers_in_another_order_are_refused_with_both_orders(data):
    X, long, gold = data
    X = X.reset_index(drop=True)
    numbered = AnnotationTable.from_matrix(
        long.pivot(index="task", columns="worker", values="label").loc[gold.index].to_numpy()
    )
    both = r"X has the index .*, y the instances .*in another order"
    with pytest.raises(AnnotationError, match=both):
        quick().fit(X.sample(frac=1, random_state=0), numbered)
    with pytest.raises(AnnotationError, match=both):
        quick().fit(X, numbered[::-1])
    for rows, table in (
        shuffle(X, numbered, random_state=0),
        train_test_split(X, numbered, random_state=0)[::2],
        (X[10:], numbered[10:]),
        (X[::-1].to_numpy(), numbered[::-1]),
    ):
        truth = gold.to_numpy()[table.instances]
        if isinstance(rows, pd.DataFrame):
            truth = pd.Series(truth, index=table.instances)
        assert accuracy(rows, table, truth) > 0.9


def test_a_shuffled_frame_beside_a_bare_matrix_is_warned_of(data):
    X, long, gold = data
    matrix = long.pivot(index="task", columns="worker", values="label").loc[gold.index].to_numpy()
    X = X.reset_index(drop=True)
    with pytest.warns(UserWarning, match="rows of X are shuffled.*row i of y"):
        quick().fit(X.sample(frac=1, random_state=0), matrix)
    named = X.set_axis(gold.index).sample(frac=1, random_state=0)
    with pytest.warns(UserWarning, match="rows of X are shuffled.*'img"):
        quick().fit(named, matrix)
    accuracy(X, matrix, gold.to_numpy())  # No warning, nor in folds:
    cross_validate(quick(), X, matrix, cv=KFold(3, shuffle=True, random_state=0))


# -- X without ids: the order is stated -----------------------------------------------------------


@pytest.mark.parametrize(
    "drop",
    [pd.DataFrame.to_numpy, lambda X: X.reset_index(drop=True), lambda X: X.to_numpy().tolist()],
)
def test_an_order_that_the_table_chose_is_shown(data, drop):
    X, long, gold = data
    table = AnnotationTable.from_frame(long)
    with pytest.warns(UserWarning, match=ASSUMED):
        model = network().fit(drop(X), table)
    rows = X if hasattr(model, "feature_names_in_") else X.to_numpy()
    assert (model.predict(rows) == gold).mean() > 0.9  # Natural order is that of X.
    with pytest.warns(UserWarning, match=ASSUMED):
        model.annotation_log_likelihood(drop(X), table)
    with pytest.warns(UserWarning, match=ASSUMED):
        network().fit(drop(X[10:30]), table[10:30])
    for told in (
        AnnotationTable.from_frame(long, tasks=X.index),
        pickle.loads(pickle.dumps(AnnotationTable.from_frame(long, tasks=X.index))),
        table.select(instances=X.index),
    ):
        brief = network().set_params(max_epochs=1)
        brief.fit(drop(X), told)
        brief.fit(drop(X[10:30]), told[10:30])


def test_ids_that_are_row_numbers_need_no_warning(data):
    X, long, gold = data
    numbers = long["task"].str.removeprefix("img")
    for ids in (numbers, numbers.astype(int)):
        table = AnnotationTable.from_frame(long.assign(task=ids))
        assert accuracy(X.to_numpy(), table, gold.to_numpy()) > 0.9
        assert accuracy(X.to_numpy()[::2], table[::2], gold.to_numpy()[::2]) > 0.9
    from_one = AnnotationTable.from_frame(long.assign(task=numbers.astype(int) + 1))
    with pytest.warns(UserWarning, match=r"in this order: 1, 2, \.\.\., 60"):
        quick().fit(X.reset_index(drop=True), from_one)


def test_self_training_states_the_order_once(data):
    X, long, _ = data
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DASCClassifier(network(), n_rounds=1).fit(X.to_numpy(), AnnotationTable.from_frame(long))
    assert sum("no ids" in str(w.message) for w in caught) == 1


def test_a_pipeline_keeps_the_index_or_the_order_is_stated(data):
    X, long, gold = data
    table, X = AnnotationTable.from_frame(long), X.sample(frac=1, random_state=1)
    named = make_pipeline(StandardScaler().set_output(transform="pandas"), quick())
    assert accuracy(X, table, gold, named) > 0.9
    with pytest.warns(UserWarning, match=ASSUMED + r".*\.set_output\(transform=\"pandas\"\) keeps"):
        make_pipeline(StandardScaler(), quick()).fit(X, table)
    whole = make_pipeline(StandardScaler(), quick()).set_output(transform="pandas")
    assert accuracy(X, table, gold, whole) > 0.9


def test_features_that_tell_nothing_may_be_in_another_order(data):
    X, long, _ = data
    table, turned = AnnotationTable.from_frame(long), X.to_numpy()[::-1]
    with (
        pytest.warns(UserWarning, match=ASSUMED),
        pytest.warns(ModelChoiceWarning, match="rows in another order look the same"),
    ):
        stack().fit(turned, table)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stack().fit(X, table)
    assert not any("another order" in str(w.message) for w in caught)


def stack():
    return CrowdStackingClassifier(n_rounds=1, random_state=0)


@pytest.mark.parametrize("gap", [np.nan, None, pd.NA, "pd.NA of objects"])
@pytest.mark.parametrize("make", [network, stack])
@pytest.mark.filterwarnings("ignore:the features predict")
def test_a_gap_among_numbers_is_refused_by_its_id_whoever_reads_it(data, make, gap):
    X, long, _ = data
    table, whole = AnnotationTable.from_frame(long), X.sample(frac=1, random_state=1)
    broken = whole.convert_dtypes() if gap is pd.NA else whole.astype(object)
    broken.loc["img7", "b"] = pd.NA if isinstance(gap, str) else gap
    fitted = make().fit(whole, table)
    for read in (
        lambda: make().fit(broken, table),
        lambda: fitted.predict(broken),
        lambda: cross_predict(make(), broken, table, cv=3),
    ):
        with pytest.raises(AnnotationError, match="first in row 'img7', column 'b'; leave such"):
            read()
    # Polars frames have no index that an imputer could keep.
    columns = pl.from_pandas(whole.reset_index(names="task")).with_columns(
        b=pl.when(pl.col("task") == "img7").then(None).otherwise("b")
    )
    with pytest.raises(AnnotationError, match=r"'b'; .* fill the gaps of the frame"):
        make().fit(columns, table)


def test_the_mend_of_a_gap_keeps_the_order_of_the_rows(data):
    X, long, gold = data
    table, mixed = AnnotationTable.from_frame(long), X.sample(frac=1, random_state=1)
    mixed.loc["img7", "b"] = np.nan
    with pytest.raises(AnnotationError) as raised:
        stack().fit(mixed, table)
    advised = str(raised.value).partition("fill the gaps: ")[2]
    names = {"SimpleImputer": SimpleImputer, "CrowdStackingClassifier": stack}
    pipeline = eval(advised, {"make_pipeline": make_pipeline, **names})
    assert accuracy(mixed, table, gold[mixed.index], pipeline) > 0.9
    # An imputer cannot read the NA of pandas in a column of objects.
    objects = mixed.astype(object)
    objects.loc["img7", "b"] = pd.NA
    with pytest.raises(AnnotationError) as raised:
        stack().fit(objects, table)
    again, _, first = str(raised.value).partition("fill the gaps: ")[2].partition(" with ")
    assert again == advised
    converted = eval(first.partition(",")[0], {"X": objects})
    assert accuracy(converted, table, gold[mixed.index], pipeline) > 0.9


def test_cross_validation_of_a_table_and_its_frame(data):
    X, long, _ = data
    table = AnnotationTable.from_frame(long)
    for rows, crowd in (
        (X, table),
        (X.reset_index(drop=True), AnnotationTable.from_frame(long, tasks=X.index)),
        (X.sample(frac=1, random_state=1), table.select(X.sample(frac=1, random_state=1).index)),
    ):
        cv = KFold(3, shuffle=True, random_state=0)
        scores = cross_validate(quick(), rows, crowd, cv=cv, error_score="raise")["test_score"]
        assert scores.min() > 0.8
    search = GridSearchCV(quick(), {"backbone__C": [0.1, 1]}, cv=3).fit(X, table)
    assert search.best_score_ > 0.8
    turned = X.sample(frac=1, random_state=1)
    with pytest.raises(AnnotationError, match=r"^the instances of y were selected") as raised:
        cross_validate(quick(), turned, table, error_score="raise")
    said, _, mend = str(raised.value).partition("train_test_split: ")
    assert len(f"{said}{mend}".split()) < 40
    again = eval(mend, {"table": table, "X": turned})
    assert cross_validate(quick(), turned, again, error_score="raise")["test_score"].min() > 0.8
    with pytest.warns(UserWarning, match=ASSUMED) as caught:
        cross_validate(quick(), X.to_numpy(), table, cv=3)
    assert len({str(w.message) for w in caught}) == 1


# -- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [quick, network, lambda: DASCClassifier(network(), n_rounds=1)])
def test_columns_are_matched_by_name(data, make):
    X, long, _ = data
    table = AnnotationTable.from_frame(long)
    model = make().fit(X, table)
    assert model.feature_names_in_.tolist() == list("abcd")
    mixed = X[list("dbca")]
    np.testing.assert_allclose(model.predict_proba(mixed), model.predict_proba(X), rtol=1e-6)
    expected = model.predict_observed_proba(X, table)
    np.testing.assert_allclose(model.predict_observed_proba(mixed, table), expected, rtol=1e-6)
    with pytest.raises(AnnotationError, match=r"lacks column 'c', which .* was fitted on"):
        model.predict(X.drop(columns="c"))
    with pytest.raises(AnnotationError, match="has 2 columns 'e', 'f'"):
        model.predict_proba(X.assign(e=1, f=2))


@pytest.mark.parametrize("make", [network, lambda: DASCClassifier(network(), n_rounds=1)])
def test_gold_labels_to_measure_by_are_matched_by_index(data, make):
    X, long, gold = data
    table, shuffled = AnnotationTable.from_frame(long), X.sample(frac=1, random_state=1)
    model = make().fit(X, table, watch=Watch(test=(shuffled, gold)))
    assert model.history_[-1]["test_accuracy"] == model.score(X, gold) > 0.9
    chosen = make().set_params(validation=(shuffled, gold)).fit(X, table)
    assert chosen.history_[-1]["validation_accuracy"] > 0.9
    with pytest.raises(
        AnnotationError, match=r"validation.*the indices of X .* differ|differ: for example"
    ):
        make().set_params(validation=(shuffled, gold.add_prefix("x"))).fit(X, table)


def test_a_report_matches_labels_gold_and_posterior_by_id(data):
    X, long, gold = data
    table = AnnotationTable.from_frame(long, tasks=X.index)
    proba = pd.DataFrame(np.eye(3)[gold] * 0.7 + 0.1, index=X.index)
    for name, values in (("labels", gold), ("gold", gold), ("posterior", proba)):
        both = [
            summarize(table, **{name: v}) for v in (values, values.sample(frac=1, random_state=0))
        ]
        for part in ("labels", "gold", "annotators"):
            assert repr(both[0][part]) == repr(both[1][part])
    with pytest.raises(AnnotationError, match=r"gold holds 'ximg0'.* not among the table's"):
        summarize(table, gold=gold.add_prefix("x"))


@pytest.mark.parametrize("kind", ["text", "integer"])
@pytest.mark.parametrize("cls", [CrowdStackingClassifier, AggNetClassifier])
def test_what_reads_a_posterior_matches_its_rows_by_id(data, cls, kind, tmp_path):
    X, long, gold = data
    if kind == "integer":
        number = {name: i for i, name in enumerate(X.index)}
        X, gold = X.rename(index=number), gold.rename(index=number)
        long = long.assign(task=long["task"].map(number))
    table, mixed = AnnotationTable.from_frame(long), X.sample(frac=1, random_state=1)
    options = {"max_epochs": 5} if cls is AggNetClassifier else {"n_rounds": 2, "n_folds": 2}
    plain, model = (cls(random_state=0, **options).fit(x, table) for x in (X, mixed))
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    right = []
    for one in (plain, model, loaded):
        assert one.instances_.tolist() == (X if one is plain else mixed).index.tolist()
        labels = pd.Series(one.labels_, index=one.instances_)  # As README joins them.
        right.append(float((labels == gold[labels.index]).mean()))
        queue = review_queue(one, table).to_frame()
        right.append(float((queue["label"].to_numpy() == gold[queue["task"]].to_numpy()).mean()))
        summary = summarize(table, classifier=one, X=mixed, gold=gold)
        right += [row["accuracy"] for row in summary["gold"]["rows"]]
        found = AnnotationPlanner().fit(table, model=one).posterior_.argmax(axis=1)
        right.append(float((found == gold[table.instances].to_numpy()).mean()))
    assert min(right) > 0.75  # In the order of X, a third would be right.
    others = AnnotationTable.from_frame(long.assign(task=long["task"].astype(str) + "x"))
    for one in (model, loaded):
        queue = review_queue(one, table.select(instances=mixed.index)).to_frame()
        assert (queue["label"].to_numpy() == gold[queue["task"]].to_numpy()).mean() > 0.85
        with pytest.raises(AnnotationError, match=f"{cls.__name__} was fitted on 60 instances"):
            review_queue(one, others)


def test_a_folder_that_names_no_instances_keeps_the_order_of_its_rows(data, tmp_path):
    _, long, _ = data
    table = AnnotationTable.from_frame(long)
    folder = copytree(EARLIER / "stack", tmp_path / "model")
    earlier = load(folder)  # Of a version that named none.
    assert earlier.instances_.tolist() == list(range(len(earlier.posterior_)))
    plain = SimpleNamespace(posterior_=np.zeros((N, 3)), instances_=np.arange(N))
    assert rows_of_fitted(plain, table.select(instances=table.instances[::-1]), "model") == (
        slice(None)
    )
    described = json.loads((folder / "model.json").read_text())
    for wrong in (5, "abc", [1, 2], [[1]] * 30):
        (folder / "model.json").write_text(json.dumps(described | {"instances": wrong}))
        with pytest.raises(ModelFolderError, match=r"'instances' is not a list of \d+ ids"):
            load(folder)


def test_known_labels_stay_with_their_instances_in_another_order(data):
    _, long, gold = data
    table = AnnotationTable.from_frame(long)
    known = table.instances[:10]
    model = DawidSkene().fit(table, gold=gold[known].to_dict())
    proba = pd.DataFrame(np.full((N, 3), 1 / 3), index=table.instances)
    order = table.instances[::-1]
    there, back = (
        beliefs_of(model, each, proba.loc[each.instances])[0].posterior
        for each in (table, table.select(instances=order))
    )
    np.testing.assert_allclose(back[::-1], there, atol=1e-6)
    assert (there[:10].max(axis=1) == 1).all()


def test_an_index_of_texts_and_numbers_is_nothing_shuffled(data):
    X, long, gold = data
    model = quick().fit(X.to_numpy(), AnnotationTable.from_frame(long, tasks=X.index))
    labels = gold.set_axis([1, *gold.index[1:]])
    assert model.score(X.to_numpy(), labels) == model.score(X.to_numpy(), gold)


def test_bare_features_beside_shuffled_labels_are_warned_of(data):
    X, long, gold = data
    model = quick().fit(X.to_numpy(), AnnotationTable.from_frame(long, tasks=X.index))
    mixed = gold.sample(frac=1, random_state=1)
    with pytest.warns(UserWarning, match="y is shuffled .* and X has no ids, so row i of y"):
        model.score(X.to_numpy(), mixed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.score(X.to_numpy(), gold)
        part = X.sample(30, random_state=1).index  # As a split leaves them.
        model.score(X.loc[part].to_numpy(), gold[part])


def test_a_frame_to_measure_by_needs_the_names_of_fit(data):
    X, long, gold = data
    table = AnnotationTable.from_frame(long, tasks=X.index)
    for given in ({"validation": (X[list("dcba")], gold)}, {}):
        watch = None if given else Watch(test=(X[list("dcba")], gold))
        with pytest.raises(AnnotationError, match=r"columns of (validation|test)'s X have names"):
            network().set_params(**given).fit(X.to_numpy(), table, watch=watch)
    model = network().set_params(validation=(X[list("dcba")], gold)).fit(X, table)
    assert model.history_[-1]["validation_accuracy"] > 0.9


@pytest.mark.parametrize("make", [quick, network])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("label", r"'label' \(by its name\)"),
        ("Task_ID", r"'Task_ID' \(by its name\)"),
        ("nr", r"'nr' \(equal to the ids\)"),
        ("kind", r"'kind' \(equal to the most annotated class\)"),
    ],
)
def test_columns_that_tell_the_label_or_the_id_are_named(data, column, message, make):
    X, long, _ = data
    values = np.arange(N) if column == "nr" else np.random.default_rng(0).normal(size=N)
    table = AnnotationTable.from_frame(long)
    if column == "kind":
        values = table.vote_counts().argmax(axis=1)
    with pytest.warns(UserWarning, match=message):
        make().fit(X.assign(**{column: values}), table)


def test_columns_with_gaps_or_objects_are_compared_with_nothing(data):
    X, long, _ = data
    table = AnnotationTable.from_frame(long)
    answers = pd.array([None, *[True] * (N - 1)], dtype="boolean")
    model = CrowdStackingClassifier(n_rounds=1, n_folds=2)
    colour = np.resize(["red", "green"], N)
    # NA is neither equal to an id nor different.
    model.fit(X.assign(answered=answers, colour=colour), table)
    with pytest.raises(AnnotationError, match="column 'price' of X holds Decimal objects"):
        model.fit(X.assign(price=[Decimal(i) for i in range(N)]), table)


@pytest.mark.parametrize("convert", [lambda frame: frame, pl.from_pandas])
def test_ids_that_reset_index_turns_into_a_column_are_named(data, convert):
    X, long, gold = data
    numbers = dict(zip(gold.index, range(N), strict=True))
    table = AnnotationTable.from_frame(long.assign(task=long["task"].map(numbers)))
    shuffled = X.reset_index(drop=True).sample(frac=1, random_state=0).reset_index()
    with pytest.raises(AnnotationError, match=r"'index' of X holds the ids.*in another order"):
        quick().fit(convert(shuffled), table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick().fit(X.assign(rank=X["a"].rank()), AnnotationTable.from_frame(long))


@pytest.mark.parametrize("name", ["uid", "task"])
def test_ids_in_another_order_are_refused_whatever_their_name_and_type(data, name):
    """The command line reads all features as float32; pandas reads the column `task` as one."""
    X, long, gold = data
    numbers = dict(zip(gold.index, range(N), strict=True))
    table = AnnotationTable.from_frame(long.assign(task=long["task"].map(numbers)))
    frame = X.reset_index(drop=True).assign(**{name: np.arange(N, dtype=np.float32)})
    shuffled = frame.sample(frac=1, random_state=0).reset_index(drop=True)
    with pytest.raises(AnnotationError, match=rf"'{name}' of X holds the ids .*the index"):
        quick().fit(shuffled, table)
    # What the message advises matches the rows; a feature may stay beside ids.
    aligned = quick().fit(shuffled.set_index(shuffled[name].astype(int)).drop(columns=name), table)
    plain = frame.drop(columns=name)
    assert (aligned.predict(plain) == quick().fit(plain, table).predict(plain)).mean() > 0.9
    with pytest.warns(UserWarning, match=rf"'{name}' \(the ids in another order\)"):
        quick().fit(shuffled.set_axis(np.arange(N)[::-1]), table)


def test_the_order_of_a_matrix_s_index_is_said_where_x_has_no_ids(data):
    X, long, _ = data
    wide = long.pivot(index="task", columns="worker", values="label").sample(frac=1, random_state=0)
    first, last = wide.index[0], wide.index[-1]
    with pytest.warns(UserWarning, match=f"its matrix's index.*'{first}', .*'{last}'.*instances="):
        quick().fit(X.loc[wide.index].to_numpy(), AnnotationTable.from_matrix(wide))
    stated = AnnotationTable.from_matrix(wide, instances=wide.index)
    numbered = wide.loc[X.index].reset_index(drop=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick().fit(X.loc[wide.index].to_numpy(), stated)
        quick().fit(X.loc[wide.index], AnnotationTable.from_matrix(wide))
        quick().fit(X.to_numpy(), AnnotationTable.from_matrix(numbered))


@pytest.mark.filterwarnings("ignore:columns of X may leak")
def test_a_second_stage_on_texts_says_where_the_encoder_goes(data):
    X, long, _ = data
    table = AnnotationTable.from_frame(long, tasks=X.index)
    for texts in (["a text"] * N, X.assign(said="a text")):
        with pytest.raises(AnnotationError, match="encoder in front: make_pipeline"):
            quick().fit(texts, table)


@pytest.mark.filterwarnings("ignore:X has no ids", "ignore:columns of X may leak")
def test_columns_of_text_are_named_whatever_their_first_row_holds(data):
    X, long, _ = data
    table = AnnotationTable.from_frame(long)
    with pytest.raises(AnnotationError, match=r"column 'kind' of X holds text \('x' \.\.\.\)"):
        network().fit(X.assign(kind=[None] + ["x"] * (N - 1)), table)
    unknown = pl.from_pandas(X.rename_axis("file").reset_index())
    with pytest.raises(AnnotationError, match=r"column 'file' of X.*call it 'task'"):
        network().fit(unknown, table)
    with pytest.raises(AnnotationError, match=r"LazyFrame.*X\.collect\(\)"):
        network().fit(unknown.lazy(), table)


def test_numbered_columns_out_of_order_are_warned_of(data):
    X, long, _ = data
    X.columns = range(4)
    model = network().fit(X, AnnotationTable.from_frame(long))
    with pytest.warns(UserWarning, match=r"in another order \(3, 2, \.\.\., 0\)"):
        model.predict(X[[3, 2, 1, 0]])
    with pytest.raises(AnnotationError, match="several columns called 'twice'"):
        model.predict(X.set_axis(["twice"] * 4, axis=1))


# -- wide frames ----------------------------------------------------------------------------------


def wide_frame(data):
    _, long, gold = data
    return long.pivot(index="task", columns="worker", values="label").loc[gold.index]


def test_a_wide_frame_keeps_its_ids(data):
    X, long, gold = data
    wide = wide_frame(data)
    expected = AnnotationTable.from_frame(long)
    for frame in (
        wide,
        wide.reset_index(),
        pl.from_pandas(wide.rename_axis("id").reset_index()),
        pa.Table.from_pandas(wide.reset_index()),
    ):
        table = AnnotationTable.from_matrix(frame)
        assert table.instances.tolist() == gold.index.tolist()
        assert table.annotators.tolist() == list("vwxyz")
        assert table.n_classes == 3
        np.testing.assert_array_equal(table.to_matrix(), expected.to_matrix())
        assert accuracy(X[::-1], table, gold) > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: w.assign(task=0),
            "'task' of A is named like a column of ids, but the ids are given",
        ),
        (lambda w: w.reset_index(drop=True).assign(id=1), "but it repeats '1'"),
        (lambda w: w.reset_index(drop=True).assign(id=None), "but it has empty cells"),
        (lambda w: w.reset_index(drop=True).assign(id=np.arange(N) / 2), "values such as 0.0"),
        (
            lambda w: w.rename_axis("file").reset_index(),
            "'file' of A holds a different value in each",
        ),
        (lambda w: w.assign(nr=range(N)), r"'nr' of A holds a different value.*\(0, 1, \.\.\.\)"),
        (lambda w: w.set_axis(["same"] * N), "holds 'same' twice"),
    ],
)
def test_columns_of_ids_are_not_annotators(data, change, message):
    with pytest.raises(AnnotationError, match=message):
        AnnotationTable.from_matrix(change(wide_frame(data)))


def test_plain_wide_frames_are_read_as_before():
    table = AnnotationTable.from_matrix(pd.DataFrame([[0, 1], [1, None], [2, 0], [3, 3]]))
    assert table.instances.tolist() == [0, 1, 2, 3]
    assert table.annotators.tolist() == [0, 1]
    named = AnnotationTable.from_matrix(
        pd.DataFrame({"u": [0, 1]}), instances=["a", "b"], annotators=["v"]
    )
    assert (named.instances.tolist(), named.annotators.tolist()) == (["a", "b"], ["v"])


def test_order_survives_what_a_table_is_put_through(data):
    _, long, _ = data
    chosen = AnnotationTable.from_frame(long)
    given = AnnotationTable.from_frame(long, tasks=chosen.instances)
    parts = [
        chosen[::2],
        chosen.take(chosen.label > 0),
        chosen.observed,
        chosen.with_source("pseudo"),
    ]
    parts += [chosen.select(annotators=["v"]), chosen.with_added(chosen.select(annotators=[]))]
    orders = [part.instance_order for part in parts]
    assert {order.assumed for order in orders} == {"'img0', 'img1', ..., 'img59'"}
    assert all(a.kind == b.kind == "sorted" for a, b in pairwise(orders))
    assert chosen.equals(given)
    assert given.instance_order.assumed == given[3:].instance_order.assumed == ""


def test_the_index_that_shuffling_leaves_is_no_id_beside_a_column_of_ids(data):
    _, long, _ = data
    wide = long.pivot(index="task", columns="worker", values="label").reset_index()
    shuffled = wide.sample(frac=1, random_state=0)
    table = AnnotationTable.from_matrix(shuffled)
    assert table.instances.tolist() == shuffled["task"].tolist()
    again = table.select(instances=wide["task"])
    expected = AnnotationTable.from_matrix(wide)
    np.testing.assert_array_equal(again.vote_counts(), expected.vote_counts())
    with pytest.raises(AnnotationError, match=r"by the index \(.*\); drop it"):
        AnnotationTable.from_matrix(shuffled.rename_axis("row"))
