"""Data frames and arrays as people have them: what they mean is read, asked about or refused."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from manyhands import (
    AnnotationTable,
    CrowdStackingClassifier,
    DawidSkene,
    GoldCorrected,
    MajorityVote,
    summarize,
)
from manyhands.exceptions import AnnotationError
from manyhands.io import consensus, write_labels

N = 40
TRUTH = np.random.RandomState(0).randint(0, 2, N)
RIGHT = np.random.RandomState(1).rand(N, 5) < 0.8
VOTES = np.where(RIGHT, TRUTH[:, None], 1 - TRUTH[:, None])
WIDE = pd.DataFrame(VOTES, columns=[f"rater_{r}" for r in range(5)])


# -- ids ------------------------------------------------------------------------------------------


def of_lists(index=None):
    return pd.DataFrame({"votes": [["a", "b"], ["b", "b"], ["a", "a"]]}, index=index)


def read_lists(frame):
    return AnnotationTable.from_lists(frame, labels="votes", annotators=None)


def test_the_index_of_a_frame_of_lists_holds_its_ids():
    table = read_lists(of_lists(["x", "y", "z"]))
    assert table.instances.tolist() == ["x", "y", "z"]
    gold = pd.Series(["b", "a"], index=["y", "z"])
    assert DawidSkene().fit(table, gold=gold).is_known_.tolist() == [False, True, True]
    assert read_lists(of_lists([2, 0, 1])).instances.tolist() == [2, 0, 1]
    with pytest.raises(AnnotationError, match=r"holds 1 twice.*task=.*reset_index\(drop=True\)"):
        read_lists(of_lists([1, 1, 2]))


def test_numbers_of_rows_in_another_order_are_no_ids_of_lists():
    X = pd.DataFrame(np.arange(6.0).reshape(3, 2), index=[2, 0, 1])
    with pytest.raises(AnnotationError, match=r"merely number the rows.*from_lists\(task=\)"):
        CrowdStackingClassifier().fit(X, read_lists(of_lists()))


# -- fitted models as posteriors ------------------------------------------------------------------


def test_a_fitted_model_is_matched_with_the_table_by_its_instances(tmp_path):
    ids = np.array([f"t{i:02}" for i in range(N)])
    order = np.random.RandomState(0).permutation(N)
    table = AnnotationTable.from_matrix(VOTES, instances=ids)
    noise = np.random.RandomState(5).randn(N, 2)
    X = pd.DataFrame(TRUTH[:, None] + noise, index=ids).iloc[order]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CrowdStackingClassifier(random_state=0).fit(X, table)
    assert model.instances_.tolist() == ids[order].tolist()
    write_labels(tmp_path / "labels.csv", table, model)
    written = pd.read_csv(tmp_path / "labels.csv", index_col="task")
    expected = pd.DataFrame(model.posterior_, index=model.instances_).loc[ids]
    np.testing.assert_allclose(written[["p(0)", "p(1)"]], expected, atol=1e-6)
    assert summarize(table, posterior=model) == summarize(table, posterior=expected.to_numpy())


def test_a_model_gives_its_own_labels_and_what_it_was_told():
    table = AnnotationTable.from_matrix(VOTES)
    model = DawidSkene().fit(table, gold={3: 1})
    found = consensus(table, model)
    assert found.labels == model.labels_.tolist()
    assert np.flatnonzero(found.known).tolist() == [3]
    with pytest.raises(AnnotationError, match="fitted on 40 instances"):
        consensus(table[:5].select(instances=[0, 1]), model)


def test_labels_in_place_of_a_posterior_ask_for_the_model(tmp_path):
    table = AnnotationTable.from_matrix(np.array(["no", "yes"])[VOTES])
    model = MajorityVote().fit(table)
    with pytest.raises(AnnotationError, match=r"holds 'yes'|holds 'no'.*table, model"):
        write_labels(tmp_path / "labels.csv", table, model.labels_)


# -- cells that are no answers --------------------------------------------------------------------


def test_masked_cells_are_missing_everywhere():
    mask = np.random.RandomState(2).rand(N, 5) < 0.3
    masked = np.ma.masked_array(VOTES, mask=mask)
    expected = np.where(mask, np.nan, VOTES)
    for text in (False, True):
        given = np.ma.masked_array(VOTES.astype(str), mask=mask) if text else masked
        fitted = DawidSkene().fit(given)
        assert fitted.table_.n_annotations == (~mask).sum()
        np.testing.assert_allclose(fitted.posterior_, DawidSkene().fit(expected).posterior_)
    gold = np.ma.masked_array(TRUTH, mask=np.arange(N) > 12)
    assert GoldCorrected().fit(VOTES, gold=gold).is_known_.sum() == 13
    assert summarize(VOTES, gold=gold)["gold"]["n"] == 13
    with pytest.raises(AnnotationError, match="label is missing in row 2"):
        AnnotationTable.from_arrays([0, 1, 2], [0, 0, 0], np.ma.masked_array([0, 1, 1], [0, 0, 1]))
    with pytest.raises(AnnotationError, match="instance holds a missing value"):
        AnnotationTable.from_arrays(np.ma.masked_array([0, 1, 2], [0, 0, 1]), [0, 0, 0], [0, 1, 1])


def test_minus_one_beside_one_other_value_is_asked_about():
    signs = np.where(VOTES == 1, 1, -1)
    with pytest.raises(AnnotationError, match=r"one class only, 1.*classes=\[-1, 1\]"):
        DawidSkene().fit(signs)
    assert AnnotationTable.from_matrix(signs, classes=[-1, 1]).n_annotations == signs.size
    assert AnnotationTable.from_matrix(signs, classes=[0, 1]).n_annotations == (signs == 1).sum()


def test_minus_one_that_comes_together_in_rows_is_said():
    truth = np.random.RandomState(3).randint(-1, 2, N)
    wrong = np.random.RandomState(4).randint(-1, 2, (N, 5))
    A = np.where(RIGHT, truth[:, None], wrong)
    with pytest.warns(UserWarning, match=rf"{(A == -1).sum()} cells.*no annotation.*classes="):
        assert AnnotationTable.from_matrix(A).classes.tolist() == [0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AnnotationTable.from_matrix(A, classes=[0, 1])
        AnnotationTable.from_matrix(np.where(wrong == -1, -1, VOTES))


# -- columns that are something else --------------------------------------------------------------

COUNTS = pd.DataFrame({"yes": [3, 1, 2], "no": [0, 2, 1]})


@pytest.mark.parametrize("name", ["gold", "n_words", "length", "conf", "year"])
def test_columns_of_counts_that_count_no_votes_are_left_out_by_name(name):
    with pytest.warns(UserWarning, match=rf"left out \('{name}': its name suggests"):
        table = AnnotationTable.from_counts(COUNTS.assign(**{name: [1, 0, 1]}))
    assert table.classes.tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    "names", [("correct", "incorrect"), ("count_cat", "count_dog"), ("yes", "no")]
)
def test_classes_may_be_called_as_other_columns_are(names):
    table = AnnotationTable.from_counts(COUNTS.set_axis(names, axis=1))
    assert table.n_annotations == 9
    four_each = COUNTS.assign(yes=[3, 1, 0], correct=[1, 1, 3])
    assert AnnotationTable.from_counts(four_each).n_classes == 3


@pytest.mark.parametrize("names", [["y"], ["smoker", "sex", "urgent"]])
@pytest.mark.parametrize("pattern", ["rater_{}", "w0{}"])
def test_a_column_beside_others_that_are_called_alike_is_asked_about(names, pattern):
    wide = WIDE.set_axis([pattern.format(r) for r in range(5)], axis=1)
    more = wide.assign(**{name: 1 - VOTES[:, k] for k, name in enumerate(names)})
    star = pattern.format("*").replace("0*", "*")
    with pytest.raises(AnnotationError, match=rf"'{names[0]}'.*could be annotators.*{star[0]}"):
        AnnotationTable.from_matrix(more)
    assert AnnotationTable.from_matrix(more, annotators=star).n_annotators == 5
    assert AnnotationTable.from_matrix(more, annotators=list(more)).n_annotators == more.shape[1]


def test_a_column_called_y_is_asked_about_unless_it_is_one_letter_of_many():
    wide = WIDE.set_axis(list("abcde"), axis=1)
    for names in ("abcde", ["Anna", "Bo", "Cy", "Di", "Ed"]):
        more = wide.set_axis(list(names), axis=1).assign(y=VOTES[:, 0])
        with pytest.raises(AnnotationError, match=r"'y' could be annotators like .* gold labels"):
            AnnotationTable.from_matrix(more)
    letters = wide.assign(y=VOTES[:, 0])[["a", "b", "y"]].rename(columns={"a": "x", "b": "z"})
    assert AnnotationTable.from_matrix(letters).n_annotators == 3
    assert AnnotationTable.from_matrix(wide.assign(y=1), annotators="a,b,y").n_annotators == 3


def test_a_frame_of_ticked_options_is_refused_unless_the_classes_are_named():
    ticks = pd.DataFrame({"sport": ["x", None, "x"], "music": [None, "x", "x"]}, index=[3, 4, 5])
    with pytest.raises(AnnotationError, match="A: 'sport', 'music' hold 'x' or nothing"):
        AnnotationTable.from_matrix(ticks)
    assert AnnotationTable.from_matrix(ticks, classes=["x", "o"]).n_annotations == 4


def test_columns_of_several_levels_are_refused_with_one_of_them():
    levels = WIDE.set_axis(pd.MultiIndex.from_product([["label"], WIDE.columns]), axis=1)
    with pytest.raises(AnnotationError, match=r"2 levels, such as .*A\['label'\]"):
        AnnotationTable.from_matrix(levels)
    assert AnnotationTable.from_matrix(levels["label"]).n_annotators == 5


# -- long frames ----------------------------------------------------------------------------------

ROWS = [(f"t{i}", f"w{r}", ["no", "yes"][VOTES[i, r]]) for i in range(N) for r in range(5)]
LONG = pd.DataFrame(ROWS, columns=["task", "worker", "label"])


def test_numbers_name_columns():
    table = AnnotationTable.from_frame(pd.DataFrame(ROWS), task=0, worker=1, label=2)
    assert table.equals(AnnotationTable.from_frame(LONG))
    pairs = AnnotationTable.from_frame(pd.DataFrame(ROWS), task=[0, 1], worker=1, label=2)
    assert pairs.instances[0] == "t0|w0"
    lists = pd.DataFrame({0: [["a", "b"], ["b", "b"]], 1: [["x", "y"], ["x", "y"]]})
    read = AnnotationTable.from_lists(lists, labels=0, annotators=1)
    assert read.annotators.tolist() == ["x", "y"]


def test_ids_in_the_index_of_a_long_frame_are_asked_back():
    with pytest.raises(AnnotationError, match=r"'task' is the index of df.*reset_index\(\)"):
        AnnotationTable.from_frame(LONG.set_index("task"))


@pytest.mark.parametrize(("column", "cell"), [("worker", ""), ("worker", "nan"), ("task", " ")])
def test_ids_that_are_empty_cells_are_named_with_their_row(column, cell):
    frame = LONG.copy()
    frame.loc[3, column] = cell
    ids = {f"{column}s": list(dict.fromkeys(frame[column]))}
    assert AnnotationTable.from_frame(frame, **ids).n_annotations == N * 5
    words = rf"'{column}' holds '{cell}' in row 3.*{column}s="
    if cell.strip():
        with pytest.warns(UserWarning, match=words):
            AnnotationTable.from_frame(frame)
        return
    with pytest.raises(AnnotationError, match=words):
        AnnotationTable.from_frame(frame)


def test_an_annotator_without_a_name_in_a_list_is_refused():
    lists = {"annotators": [["a"], ["", "b"]], "annotations": [["x"], ["y", "x"]]}
    with pytest.raises(AnnotationError, match="holds '' in row 1"):
        AnnotationTable.from_lists(lists)


NESTED = [
    {"id": 1, "annotations": [{"annotator": "x", "label": "a"}, {"annotator": "y", "label": "b"}]},
    {"id": 2, "annotations": [{"annotator": "x", "label": "a"}]},
]


@pytest.mark.parametrize("make", [list, pd.DataFrame, "polars", "pyarrow"])
def test_rows_with_dicts_in_them_are_refused_with_what_flattens_them(make):
    if make == "polars":
        make = pytest.importorskip("polars").DataFrame
    elif make == "pyarrow":
        make = pytest.importorskip("pyarrow").Table.from_pylist
    rows = make(NESTED)
    flat = r'pandas.json_normalize\(.*, "annotations", \["id"\]\)'
    for read in (
        AnnotationTable.from_frame,
        AnnotationTable.from_matrix,
        lambda rows: AnnotationTable.from_lists(rows, annotators=None),
    ):
        with pytest.raises(AnnotationError, match=flat):
            read(rows)
    frame = pd.json_normalize(NESTED, "annotations", ["id"])
    table = AnnotationTable.from_frame(frame, task="id", worker="annotator")
    assert table.n_annotations == 3


@pytest.mark.parametrize("column", ["worker", "label"])
def test_dicts_in_the_cells_of_a_long_frame_are_named(column):
    pl = pytest.importorskip("polars")
    frame = LONG.assign(**{column: [{"id": value} for value in LONG[column]]})
    for given in (frame, pl.DataFrame(frame.to_dict("list"))):
        with pytest.raises(AnnotationError, match=rf"'{column}' of df holds dicts.*'id'"):
            AnnotationTable.from_frame(given)


# -- gold -----------------------------------------------------------------------------------------


def test_gold_with_two_labels_of_one_instance_is_refused():
    table = AnnotationTable.from_matrix(VOTES)
    with pytest.raises(AnnotationError, match=r"instance 1 more than once.*\(0, 1\)"):
        DawidSkene().fit(table, gold=pd.Series([0, 1, 1], index=[1, 1, 2]))
    same = DawidSkene().fit(table, gold=pd.Series([1, 1, 1], index=[1, 1, 2]))
    assert np.flatnonzero(same.is_known_).tolist() == [1, 2]


def test_seven_is_the_same_id_and_label_as_text():
    numbers = AnnotationTable.from_matrix(VOTES)
    texts = AnnotationTable.from_frame(LONG.assign(task=LONG.task.str[1:]))
    for gold in ({"7": 1}, {7: "1"}, pd.Series(["1"], index=["7"])):
        assert np.flatnonzero(DawidSkene().fit(numbers, gold=gold).is_known_).tolist() == [7]
        assert summarize(numbers, gold=gold)["gold"]["n"] == 1
    fitted = GoldCorrected().fit
    with pytest.warns(UserWarning, match="1 annotated instance has gold"):
        assert np.flatnonzero(fitted(texts, gold={7: "yes"}).is_known_).tolist() == [7]
    assert numbers.select(instances=["7", "3"]).instances.tolist() == [7, 3]
    with pytest.raises(AnnotationError, match="gold holds '400'"):
        DawidSkene().fit(numbers, gold={"400": 1})


def test_part_of_the_gold_is_enough_for_a_summary():
    table = AnnotationTable.from_frame(LONG)
    part = pd.Series(["yes", "no"], index=["t0", "t3"])
    for gold in (part, part.to_dict(), part.reindex(table.instances)):
        assert summarize(table, gold=gold)["gold"]["n"] == 2
    whole = pd.Series(np.array(["no", "yes"])[TRUTH])
    assert summarize(table, gold=whole)["gold"]["n"] == N
    with pytest.raises(AnnotationError, match=r"gold is a data frame.*Series"):
        GoldCorrected().fit(table, gold=part.to_frame("label"))


def test_a_row_of_x_that_occurs_twice_is_told_apart():
    ids = [f"t{i}" for i in range(N)]
    X = pd.DataFrame(VOTES.astype(float), index=[*ids[:-1], "t0"])
    with pytest.raises(AnnotationError, match=r"X holds 't0' twice.*index.duplicated\(\)\]"):
        CrowdStackingClassifier().fit(X, AnnotationTable.from_frame(LONG))


@pytest.mark.parametrize(("name", "mend"), [("from_matrix", "from_arrays"), ("from_counts", "toa")])
def test_sparse_matrices_are_named(name, mend):
    with pytest.raises(AnnotationError, match=f"scipy.sparse matrix.*{mend}"):
        getattr(AnnotationTable, name)(csr_array(VOTES))
