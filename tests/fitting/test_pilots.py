"""How long a fit trains by default: the pilot, its rule, and what has none."""

import copy

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.utils._param_validation import InvalidParameterError

from manyhands import (
    CrowdInGClassifier,
    CrowdLayerClassifier,
    CrowdLayerProtocol,
    DASCClassifier,
    MBEMClassifier,
    load,
    load_demo,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import ModelFolderError
from manyhands.fitting import pilots
from manyhands.fitting.pilots import earliest, n_epochs_of_pilot
from manyhands.registry import all_classifiers
from manyhands.training import Checkpoint
from tests.building import built
from tests.classifiers.conftest import FEW_PARTS

QUICK = {"backbone": "linear", "random_state": 0, "device": "cpu"}
ONE_FIT = {
    "protocol": CrowdLayerProtocol(init_scale=3.0)
}  # Four epochs lose classes, for which "auto" would fit again.


@pytest.fixture(scope="module")
def problem():
    demo = load_demo()
    return demo.X_train[:150], demo.annotations[:150]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Pilots of four epochs."""
    monkeypatch.setattr(pilots, "PILOT_STEPS", 4)
    monkeypatch.setattr(pilots, "LEAST_EPOCHS", 4)


def test_the_earliest_epoch_that_is_not_clearly_behind_is_chosen():
    # Four instances, class 1 right by all votes. The third epoch is the best (4 of 4); the second
    # has one wrong: the paired differences 1, 0, 0, 0 have mean .25 and standard error .25: z = 1.
    codes = np.array([[0, 0, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])
    shares = np.tile([0.0, 1.0], (4, 1))
    assert earliest(codes, shares, behind=0.99) == 3
    assert earliest(codes, shares, behind=1.0) == 2
    # The first: differences 1, 1, 1, 0, mean .75, standard error .25, z = 3.
    assert earliest(codes, shares, behind=2.99) == 2
    assert earliest(codes, shares, behind=3.0) == 1


def test_instances_without_votes_do_not_count():
    codes = np.array([[0, 0, 1], [1, 1, 0]])
    shares = np.array([[0.0, 1.0], [0.25, 0.75], [np.nan, np.nan]])
    assert earliest(codes, shares, behind=0.0) == 2


def test_the_limit_is_in_steps_and_at_least_some_epochs(monkeypatch):
    monkeypatch.undo()
    assert n_epochs_of_pilot(6) == 100
    assert n_epochs_of_pilot(1000) == 20


def test_auto_trains_as_if_its_number_had_been_given(problem):
    X, A = problem
    found = CrowdLayerClassifier(**QUICK).fit(X, A)
    assert 1 <= found.n_epochs_ <= 4
    assert len(found.history_) == found.n_epochs_
    given = clone(found).set_params(max_epochs=found.n_epochs_).fit(X, A)
    np.testing.assert_array_equal(found.predict_proba(X), given.predict_proba(X))
    assert found.max_epochs == "auto"


@pytest.mark.parametrize(
    ("enough", "n_pilots", "n_predicted"), [(1000, 3, 150), (51, 2, 100), (50, 1, 50)]
)
def test_pilots_neither_train_on_nor_miss_an_instance(
    problem, monkeypatch, enough, n_pilots, n_predicted
):
    monkeypatch.setattr(pilots, "ENOUGH_PREDICTED", enough)
    X, A = problem
    seen = []

    def spy(method, recipe, table, rng, pilot, start):
        def watched(n_epochs, rest, held):
            seen.append((rest, held))
            assert n_epochs == 4
            return pilot(n_epochs, rest, held)

        return pilots.chosen_n_epochs(method, recipe, table, rng, watched, start)

    monkeypatch.setattr("manyhands.fitting.run.chosen_n_epochs", spy)
    CrowdLayerClassifier(**QUICK, **ONE_FIT).fit(X, A)
    annotated = np.flatnonzero(A.annotations_per_instance())
    assert len(seen) == n_pilots
    assert len(set(np.concatenate([held for _, held in seen]))) == n_predicted
    for rest, held in seen:
        assert not np.isin(rest.instance, held).any()
        assert set(held) | set(rest.instance) == set(annotated)


def test_validation_decides_alone(problem, monkeypatch):
    X, A = problem
    monkeypatch.setattr(pilots, "earliest", lambda *_: pytest.fail("a pilot was run"))
    model = CrowdLayerClassifier(validation=0.2, **QUICK).fit(X, A)
    assert model.n_epochs_ == len(model.history_) == 4


def test_few_instances_have_no_pilot(monkeypatch):
    X, A, _ = make_crowd_problem()
    assert len(X) < pilots.FEWEST_INSTANCES
    monkeypatch.setattr(pilots, "PLAIN_STEPS", 6)
    model = CrowdLayerClassifier(batch_size=len(X), **QUICK).fit(X, A)
    assert model.n_epochs_ == 6
    model = CrowdLayerClassifier(batch_size=len(X) // 2 + 1, **QUICK).fit(X, A)
    assert model.n_epochs_ == 3


def test_the_number_survives_saving(problem, tmp_path):
    model = CrowdLayerClassifier(**QUICK).fit(*problem)
    assert load(model.save(tmp_path / "model")).n_epochs_ == model.n_epochs_


def test_every_stage_of_mbem_has_the_number_of_the_first(problem):
    model = MBEMClassifier(n_iterations=1, **QUICK).fit(*problem)
    assert len(model.history_) == 2 * model.n_epochs_


def test_the_start_of_crowding_has_the_pilot(problem):
    few = FEW_PARTS["CrowdInGClassifier"]
    model = built(CrowdInGClassifier, random_state=0, device="cpu", **few).fit(*problem)
    start = CrowdLayerClassifier(random_state=0, device="cpu")
    assert model.pretrainer_.n_epochs_ == start.fit(*problem).n_epochs_


@pytest.mark.filterwarnings("ignore:DASCClassifier added no pseudo")
def test_later_rounds_of_self_training_have_the_number_of_the_first(problem, monkeypatch):
    calls = []
    plain = pilots.earliest
    monkeypatch.setattr(pilots, "earliest", lambda *a: calls.append(a) or plain(*a))
    base = CrowdLayerClassifier(backbone="linear", device="cpu", **ONE_FIT)
    DASCClassifier(base, n_rounds=2, guard=False, random_state=0).fit(*problem)
    assert len(calls) == 1


FIXED = [cls for _, cls in all_classifiers() if getattr(cls(), "max_epochs", "auto") != "auto"]


@pytest.mark.parametrize("cls", FIXED)
def test_epochs_that_no_pilot_can_judge_are_numbers(problem, cls):
    with pytest.raises(InvalidParameterError, match=r"max_epochs.*, because .* Got 'auto'"):
        cls(max_epochs="auto").fit(*problem)


def test_a_fit_from_other_weights_takes_their_number(problem, monkeypatch):
    """These weights may have seen the instances that a pilot would predict."""
    first = CrowdLayerClassifier(**{**QUICK, "max_epochs": 3}).fit(*problem)
    monkeypatch.setattr(pilots, "earliest", lambda *_: pytest.fail("a pilot was run"))
    assert CrowdLayerClassifier(**QUICK).fit(*problem, start=first).n_epochs_ == 3


def test_pilots_do_not_train_the_module_that_a_factory_keeps(problem):
    X, A = problem
    kept = torch.nn.Linear(X.shape[1], 10)
    same = copy.deepcopy(kept)
    model = CrowdLayerClassifier(**{**QUICK, **ONE_FIT, "backbone": lambda *_: kept}).fit(X, A)
    given = CrowdLayerClassifier(**{**QUICK, **ONE_FIT, "backbone": lambda *_: same})
    given.set_params(max_epochs=model.n_epochs_).fit(X, A)
    np.testing.assert_array_equal(model.predict_proba(X), given.predict_proba(X))


def test_a_few_instances_many_times_have_no_pilot(problem, monkeypatch):
    monkeypatch.setattr(pilots, "PLAIN_STEPS", 20)
    X, A = problem
    rows = np.repeat(np.arange(2), 75)
    steps = 2
    model = CrowdLayerClassifier(**QUICK).fit(X[rows], A[rows])
    assert model.n_epochs_ == pilots.PLAIN_STEPS / steps


def test_a_killed_run_that_resumes_keeps_its_number_and_runs_no_pilot(
    problem, tmp_path, monkeypatch
):
    monkeypatch.setattr(pilots, "earliest", lambda *_: 3)
    whole = CrowdLayerClassifier(**QUICK, **ONE_FIT).fit(*problem)
    model = CrowdLayerClassifier(**QUICK, **ONE_FIT)
    model.set_params(checkpoint=tmp_path / "checkpoint.safetensors")
    write = Checkpoint.on_epoch_end

    def killed(self, number, row):
        write(self, number, row)
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "on_epoch_end", killed)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*problem)
    monkeypatch.setattr(Checkpoint, "on_epoch_end", write)
    monkeypatch.setattr(pilots, "earliest", lambda *_: pytest.fail("a pilot was run"))
    model.fit(*problem)
    assert model.n_epochs_ == len(model.history_) == 3
    np.testing.assert_array_equal(model.predict_proba(problem[0]), whole.predict_proba(problem[0]))


def test_the_number_of_another_run_is_not_taken(problem, tmp_path):
    X, A = problem
    path = tmp_path / "checkpoint.safetensors"
    CrowdLayerClassifier(**{**QUICK, "max_epochs": 1}, checkpoint=path).fit(X, A)
    with pytest.raises(ModelFolderError, match="max_epochs differ"):
        CrowdLayerClassifier(**QUICK, checkpoint=path).fit(X, A)
    path.write_bytes(b"nonsense")
    with pytest.raises(ModelFolderError, match="delete it to start over"):
        CrowdLayerClassifier(**QUICK, checkpoint=path).fit(X, A)
