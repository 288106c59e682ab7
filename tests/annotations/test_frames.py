"""Data frames and arrays as people have them: what they mean is read, asked about or refused."""

import warnings

import numpy as np
import pandas as pd
import pytest

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
    with pytest.raises(AnnotationError, match=r"only number the rows.*from_lists\(task=\)"):
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
