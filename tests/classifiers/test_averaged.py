"""The mean of several classifiers."""

import json
import pickle
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from manyhands import (
    AggNetClassifier,
    AggregatedClassifier,
    AnnotationTable,
    AveragedCrowdClassifier,
    CrowdLayerClassifier,
    cross_predict,
    load,
)
from manyhands.cli.app import app
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.fitting import with_protocol

QUICK = {"max_epochs": 2, "backbone": "linear", "device": "cpu"}


@pytest.fixture(scope="module")
def problem():
    X, A, y = make_crowd_problem()
    return X, AnnotationTable.from_matrix(A), y


@pytest.fixture(scope="module")
def two(problem):
    X, table, _ = problem
    members = [CrowdLayerClassifier(**QUICK), AggNetClassifier(**QUICK)]
    return AveragedCrowdClassifier(members, random_state=0).fit(X, table)


def test_it_is_the_mean_of_its_members(problem, two):
    X, table, y = problem
    a, b = two.estimators_
    for method, args in (
        ("predict_proba", (X,)),
        ("predict_annotation_proba", (X, [0, 3])),
        ("predict_observed_proba", (X, table)),
    ):
        mean = (getattr(a, method)(*args) + getattr(b, method)(*args)) / 2
        np.testing.assert_allclose(getattr(two, method)(*args), mean, atol=1e-6)
    own = two.predict_observed_proba(X, table)[np.arange(table.n_annotations), table.label]
    likelihood = two.annotation_log_likelihood(X, table)
    assert likelihood == pytest.approx(np.log(own).mean(), rel=1e-5)
    assert two.score(X, y) == pytest.approx((two.predict(X) == y).mean())


def test_one_member_is_that_member(problem):
    X, table, _ = problem
    alone = CrowdLayerClassifier(**QUICK, random_state=3)
    averaged = AveragedCrowdClassifier([alone]).fit(X, table)
    np.testing.assert_array_equal(
        averaged.predict_proba(X), clone(alone).fit(X, table).predict_proba(X)
    )


def test_members_without_a_seed_get_different_ones_and_keep_their_own(problem):
    X, table, _ = problem
    member = CrowdLayerClassifier(**QUICK)
    members = [member, member, CrowdLayerClassifier(**QUICK, random_state=3)]
    fitted = AveragedCrowdClassifier(members, random_state=0).fit(X, table)
    seeds = [each.random_state for each in fitted.estimators_]
    assert len(set(seeds)) == 3
    assert seeds[2] == 3
    assert member.random_state is None, "members are cloned"
    assert len(AveragedCrowdClassifier().clone_estimators()) == 5


def test_fold_models_are_averaged_as_they_are(problem):
    X, table, _ = problem
    found = cross_predict(CrowdLayerClassifier(**QUICK), X, table, cv=3, return_estimators=True)
    model = AveragedCrowdClassifier.of_fitted(found.estimators)
    assert all(a is b for a, b in zip(model.estimators_, found.estimators, strict=True))
    mean = np.mean([each.predict_proba(X) for each in found.estimators], axis=0)
    np.testing.assert_allclose(model.predict_proba(X), mean)
    clone(model).fit(X, table)  # A copy is trained anew.
    assert cross_predict(model, X, table, cv=2).proba.shape == (48, 3)


def test_save_and_load_without_pickle(problem, two, tmp_path):
    X = problem[0]
    two.save(tmp_path)
    loaded = load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(X), two.predict_proba(X))
    assert [type(each).__name__ for each in loaded.estimators_] == [
        "CrowdLayerClassifier",
        "AggNetClassifier",
    ]
    nested = AveragedCrowdClassifier.of_fitted([loaded, two])
    nested.save(tmp_path)
    np.testing.assert_allclose(load(tmp_path).predict_proba(X), two.predict_proba(X))
    assert len(list(tmp_path.iterdir())) == 2, "the previous members are removed"
    pickle.loads(pickle.dumps(two)).predict(X)


def test_a_failed_save_keeps_the_previous_model(problem, two, tmp_path):
    X, table, _ = problem
    two.save(tmp_path)
    regression = AggregatedClassifier(backbone=LogisticRegression()).fit(X, table)
    mixed = AveragedCrowdClassifier.of_fitted([two.estimators_[0], regression])
    with pytest.raises(AnnotationError, match="cannot write without pickle"):
        mixed.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    np.testing.assert_array_equal(load(tmp_path).predict_proba(X), two.predict_proba(X))


EARLIER = Path(__file__).parents[1] / "fitting" / "earlier_folders" / "2026-11-29" / "average"


@pytest.mark.parametrize("harm", ["missing", "exchanged", "description"])
def test_a_damaged_folder_of_the_first_layout_is_refused(tmp_path, harm):
    copytree(EARLIER, tmp_path, dirs_exist_ok=True)
    (members,) = tmp_path.glob("members-*")
    if harm == "missing":
        (members / "1" / "model.json").unlink()
    elif harm == "exchanged":
        (members / "0").rename(members / "2")
        (members / "1").rename(members / "0")
        (members / "2").rename(members / "1")
    else:
        described = json.loads((tmp_path / "model.json").read_text())
        described["members"].pop()
        (tmp_path / "model.json").write_text(json.dumps(described))
    with pytest.raises(ModelFolderError, match="altered"):
        load(tmp_path)


def test_a_folder_of_the_first_layout_is_replaced_whole(two, tmp_path):
    copytree(EARLIER, tmp_path, dirs_exist_ok=True)
    two.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    assert [type(each).__name__ for each in load(tmp_path).estimators] == [
        "CrowdLayerClassifier",
        "AggNetClassifier",
    ]


def test_parameters_of_members_are_set_by_their_number():
    model = AveragedCrowdClassifier([CrowdLayerClassifier(), AggNetClassifier()])
    model.set_params(**{"1__lr": 0.5, "random_state": 2})
    assert model.estimators[1].lr == model.get_params()["1__lr"] == 0.5
    assert model.random_state == 2
    with pytest.raises(AnnotationError, match="1 is one of the members"):
        model.set_params(**{"1": CrowdLayerClassifier()})
    trained = with_protocol(model, "dasc_labelme")
    assert {each.max_epochs for each in trained.estimators} == {25}


def test_validation_and_checkpoints_are_handed_on(problem, tmp_path):
    X, table, _ = problem
    members = [CrowdLayerClassifier(**QUICK), CrowdLayerClassifier(**QUICK, validation=0.5)]
    model = AveragedCrowdClassifier(
        members, validation=0.1, checkpoint=tmp_path / "c.safetensors", random_state=0
    ).fit(X, table)
    assert [each.validation for each in model.estimators_] == [0.1, 0.5]
    assert {path.name for path in tmp_path.iterdir()} == {
        "c-member0.safetensors",
        "c-member1.safetensors",
    }
    with pytest.raises(AnnotationError, match="checkpoint needs an integer random_state"):
        model.set_params(random_state=None).fit(X, table)


@pytest.mark.parametrize(
    ("estimators", "message"),
    [
        ([], "estimators is empty"),
        ([CrowdLayerClassifier], r"estimators\[0\]=CrowdLayerClassifier is a class"),
        ([CrowdLayerClassifier(), 7], r"estimators\[1\] is a int without 'fit'"),
    ],
)
def test_what_is_no_list_of_classifiers_is_refused(problem, estimators, message):
    with pytest.raises(AnnotationError, match=message):
        AveragedCrowdClassifier(estimators).fit(*problem[:2])


def test_members_that_do_not_fit_together_are_refused(problem, two):
    X, table, _ = problem
    fewer = CrowdLayerClassifier(**QUICK).fit(X, table.select(annotators=[0, 1, 2]))
    with pytest.raises(AnnotationError, match=r"estimators\[1\] and .* differ in annotators_"):
        AveragedCrowdClassifier.of_fitted([two.estimators_[0], fewer])
    with pytest.raises(NotFittedError):
        AveragedCrowdClassifier.of_fitted([two.estimators_[0], CrowdLayerClassifier()])


def test_the_command_line_fits_an_average(problem, tmp_path):
    X, table, _ = problem
    np.save(tmp_path / "X.npy", X)
    table.to_frame().to_csv(tmp_path / "A.csv", index=False)
    out = tmp_path / "model"
    command = ["fit", "--features", str(tmp_path / "X.npy"), "--annotations"]
    command += [str(tmp_path / "A.csv"), "--method", "averaged", "--out", str(out), "--json"]
    members = "estimators=[{name: crowd-layer, max_epochs: 1}, {name: agg-net, max_epochs: 2}]"
    for _ in range(2):  # Over an earlier one, too.
        result = CliRunner().invoke(app, [*command, "--set", members])
        assert result.exit_code == 0, result.output
        assert [each.max_epochs for each in load(out).estimators_] == [1, 2]
        assert len(list(out.glob("weights-*"))) == 1
    assert not list(out.glob("checkpoint*"))
    done = CliRunner().invoke(app, ["predict", str(out), str(tmp_path / "X.npy"), "--json"])
    assert json.loads(done.stdout)["n_instances"] == len(X)
    wrong = CliRunner().invoke(app, [*command, "--set", "estimators=[none-such]"])
    assert "none-such is unknown" in str(wrong.output) + str(wrong.exception)
