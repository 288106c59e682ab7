"""Fits from further starts, where the first one loses a class."""

import logging
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.base import clone

from manyhands import (
    AnnotationTable,
    CoNALClassifier,
    CrowdInGClassifier,
    CrowdInGProtocol,
    CrowdLayerClassifier,
    DASCClassifier,
    load,
)
from manyhands.exceptions import AnnotationError, ClassCollapseWarning
from manyhands.fitting import Watch
from manyhands.fitting.context import Followed
from manyhands.training import Callback
from tests.building import built
from tests.classifiers.conftest import FEW_PARTS


def zeros(shape, n_classes):
    network = torch.nn.Linear(shape[0], n_classes)
    for parameter in network.parameters():
        torch.nn.init.zeros_(parameter)
    return network


# Of five annotators, two take the two instances of the rare class, 2, for the frequent class 0.
# Features are free of noise, weights start at 0, and a batch is everything: nothing is random.
Y = np.repeat([0, 1, 2], [20, 20, 2])
X = np.eye(3)[Y]
A = np.repeat(Y[:, None], 5, axis=1)
A[Y == 2, :2] = 0
TABLE = AnnotationTable.from_matrix(A)

KEPT = {15: 3.0, 10: 6.0, 7: 12.0, 5: 3.0}
"""Epochs -> the start that is kept: within 5 epochs, every start loses class 2."""


def network(n_epochs=10, **parameters):
    options = {"scaling": None, "lr": 0.1, "batch_size": 64, "random_state": 0, "device": "cpu"}
    return built(CrowdLayerClassifier, zeros, max_epochs=n_epochs, **{**options, **parameters})


def quietly(model, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClassCollapseWarning)
        return model.fit(*args, **options)


def assert_same(a, b):
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
    np.testing.assert_array_equal(a.confusion_, b.confusion_)
    assert [row["nll"] for row in a.history_] == [row["nll"] for row in b.history_]


@pytest.mark.parametrize(("n_epochs", "kept"), KEPT.items())
def test_the_fit_that_is_kept_is_that_of_its_number(n_epochs, kept):
    model = quietly(network(n_epochs), X, A)
    assert model.init_scale_ == kept
    assert model.protocol is None
    assert_same(model, quietly(network(n_epochs, init_scale=kept), X, A))


def test_a_class_is_lost_from_the_first_start_and_not_from_the_second():
    with pytest.warns(ClassCollapseWarning, match="an init_scale above 3"):
        first = network(init_scale=3.0).fit(X, A)
    assert set(first.predict(X)) == {0, 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(network().fit(X, A).predict(X)) == {0, 1, 2}


def test_the_warning_remains_where_no_start_helps():
    with pytest.warns(ClassCollapseWarning) as caught:
        network(5).fit(X, A)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    said = str(caught[0].message)
    assert said.endswith("2 (6 annotations). Try class_balance='reweight', more epochs")


class Heard(Callback):
    """Counts the fits that begin."""

    def __init__(self):
        self.parameters = []

    def on_fit_begin(self, estimator, facts):
        self.parameters.append(facts["parameters"]["init_scale"])


@pytest.mark.parametrize(
    ("parameters", "n_fits"),
    [
        ({"n_epochs": 15}, 1),
        ({"n_epochs": 10}, 2),
        ({"n_epochs": 7}, 3),
        ({"n_epochs": 5}, 3),
        ({"n_epochs": 5, "init_scale": 3.0}, 1),
        ({"n_epochs": 5, "connection": "VB"}, 1),  # has no scale
    ],
)
def test_there_are_as_many_fits_as_needed(parameters, n_fits):
    heard = Heard()
    quietly(network(**parameters, callbacks=[heard]), X, A)
    assert heard.parameters == n_fits * [parameters.get("init_scale", "auto")]


def test_every_further_fit_is_logged(caplog):
    with caplog.at_level(logging.INFO, "manyhands"):
        network(7).fit(X, A)
    assert [record.getMessage() for record in caplog.records] == [
        f"CrowdLayerClassifier predicts 2 for no training instance after a start from {a} times "
        f"the identity; it is fitted again from {b} times the identity"
        for a, b in pairwise([3, 6, 12])
    ]
    assert all(record.levelno == logging.INFO for record in caplog.records)


def test_the_progress_bar_names_a_further_start(capsys):
    network(verbose=1).fit(X, A)
    shown = capsys.readouterr().err
    assert "CrowdLayer" in shown
    assert "CrowdLayer from 6" in shown
    assert "from 3" not in shown


@pytest.mark.parametrize("state", [None, np.random.RandomState(5)])
def test_further_fits_draw_what_the_first_drew(state):
    starts = []
    plain = CrowdLayerClassifier._build_module

    def built(self, classifier, shape, **options):
        starts.append(torch.get_rng_state())
        return plain(self, classifier, shape, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CrowdLayerClassifier, "_build_module", built)
        model = network(5, random_state=state)
        quietly(model, X, A)
    assert len(starts) == 3
    assert all(torch.equal(starts[0], other) for other in starts)
    assert model.random_state is state


def test_a_fit_that_fails_leaves_the_estimator_as_it_was():
    class Failing(Heard):
        def on_fit_begin(self, estimator, facts):
            super().on_fit_begin(estimator, facts)
            if len(self.parameters) == 2:
                raise RuntimeError("the second fit")

    model = quietly(network(15), X, A)
    model.set_params(max_epochs=10, callbacks=[Failing()])
    before = dict(vars(model))
    with pytest.raises(RuntimeError, match="the second fit"):
        model.fit(X, A)
    assert set(vars(model)) == set(before)
    assert all(vars(model)[name] is value for name, value in before.items())
    fresh = network(callbacks=[Failing()])
    with pytest.raises(RuntimeError, match="the second fit"):
        fresh.fit(X, A)
    assert vars(fresh).keys() == vars(network()).keys()


def test_further_fits_leave_the_network_that_is_kept_as_it_was():
    """Where a factory returns the same network again, which they train on."""
    kept = zeros((3,), 3)
    model = quietly(network(1).set_params(backbone=lambda *_: kept), X, A)
    assert model.init_scale_ == 3.0
    assert_same(model, quietly(network(1, init_scale=3.0), X, A))


def test_what_is_followed_is_that_of_the_fit_that_is_kept():
    for n_epochs in (7, 5):
        watch = Watch(followed=Followed(X))
        model = quietly(network(n_epochs), X, A, watch=watch)
        assert len(watch.followed.codes) == n_epochs
        np.testing.assert_array_equal(watch.followed.codes[-1], model.predict(X))


def test_every_fit_has_a_checkpoint_of_its_own(tmp_path):
    path = tmp_path / "run"
    whole = network(7, checkpoint=path).fit(X, A)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "run-from12", "run-from6"]
    assert whole.checkpoint == path

    class Killed(Callback):
        def on_epoch_end(self, epoch, metrics):
            if (tmp_path / "again-from6").exists() and epoch == 4:
                raise KeyboardInterrupt

    again = network(7, checkpoint=tmp_path / "again")
    with pytest.raises(KeyboardInterrupt):
        clone(again).set_params(callbacks=[Killed()]).fit(X, A)
    assert_same(again.fit(X, A), whole)


@pytest.mark.parametrize("low_rank", [None, 2, 9])
def test_the_start_survives_saving(tmp_path, low_rank):
    model = network(10 if low_rank is None else 12, low_rank=low_rank).fit(X, A)
    assert model.init_scale_ > 3
    loaded = load(model.save(tmp_path / "model"), backbone=zeros)
    assert (loaded.protocol, loaded.init_scale_) == (None, model.init_scale_)
    grids = [m.predict_annotation_proba(X) for m in (model, loaded)]
    np.testing.assert_array_equal(*grids)


def test_a_model_saved_with_a_number_needs_no_other(tmp_path):
    """As one from before "auto" was."""
    model = network(15, init_scale=4.0, low_rank=2).fit(X, A)
    del model.init_scale_
    loaded = load(model.save(tmp_path / "model"), backbone=zeros)
    assert not hasattr(loaded, "init_scale_")
    grids = [m.predict_annotation_proba(X) for m in (model, loaded)]
    np.testing.assert_array_equal(*grids)
    again = network(15, low_rank=2).fit(X, A, start=loaded)
    assert again.init_scale_ == 4.0


def test_given_weights_allow_one_fit():
    before = network(10, low_rank=2, init_scale=8.0).fit(X, A)
    heard = Heard()
    model = quietly(network(1, low_rank=2, callbacks=[heard]), X, A, start=before)
    assert (model.init_scale_, len(heard.parameters)) == (8.0, 1)
    with pytest.raises(AnnotationError, match="is not fitted"):
        network().fit(X, A, start=network())


def test_a_partial_fit_goes_on_from_the_start_that_was_kept():
    heard = Heard()
    model = network(10, callbacks=[heard])
    early = TABLE.select(annotators=list(range(4)))
    model.partial_fit(X, early)
    kept, n_fits = model.init_scale_, len(heard.parameters)
    assert n_fits > 1
    model.partial_fit(X, TABLE.select(annotators=[4]))
    assert model.init_scale_ == kept
    assert len(heard.parameters) == n_fits + 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_only_the_first_round_of_self_training_looks_for_a_start():
    heard = Heard()
    base = network(5, callbacks=[heard])
    sparse = A.copy()
    sparse[::2, 4] = -1
    model = DASCClassifier(base, n_rounds=2, guard=False, random_state=0).fit(X, sparse)
    n_later = len(model.history_) - 1
    assert n_later
    assert heard.parameters == 3 * ["auto"] + n_later * [model.estimator_.init_scale_]


# -- CoNAL and CrowdInG ---------------------------------------------------------------------------

CONAL = {20: 2.0, 12: 4.0, 8: 8.0, 5: 2.0}
"""Epochs -> the start of CoNAL that is kept."""


def conal(n_epochs, **parameters):
    options = {"scaling": None, "lr": 0.1, "batch_size": 64, "random_state": 0, "device": "cpu"}
    return built(CoNALClassifier, zeros, max_epochs=n_epochs, **{**options, **parameters})


@pytest.mark.parametrize(("n_epochs", "kept"), CONAL.items())
def test_conal_keeps_the_fit_of_its_number(n_epochs, kept):
    model = quietly(conal(n_epochs), X, A)
    assert (model.protocol, model.init_scale_) == (None, kept)
    alone = quietly(conal(n_epochs, init_scale=kept), X, A)
    assert_same(model, alone)
    assert alone.init_scale_ == kept
    np.testing.assert_array_equal(model.common_confusion_, alone.common_confusion_)


def test_conal_fits_once_from_a_number():
    heard = Heard()
    quietly(conal(8, init_scale=2.0, callbacks=[heard]), X, A)
    assert heard.parameters == [2.0]


def test_conals_start_survives_saving(tmp_path):
    model = conal(12).fit(X, A)
    loaded = load(model.save(tmp_path / "model"), backbone=zeros)
    assert (loaded.protocol, loaded.init_scale_) == (None, 4.0)
    again = quietly(conal(1), X, A, start=loaded)
    assert again.init_scale_ == 4.0


@pytest.mark.parametrize(("n_epochs", "kept"), [(15, 3.0), (10, 6.0)])
def test_crowding_starts_from_the_crowd_layer_that_is_kept(n_epochs, kept):
    options = {"scaling": None, "lr": 0.1, "batch_size": 64, "random_state": 0, "device": "cpu"}
    still = {"classifier_lr": 0.0, **FEW_PARTS["CrowdInGClassifier"]}
    model = built(CrowdInGClassifier, zeros, max_epochs=n_epochs, **still, **options)
    quietly(model, X, A)
    assert (model._protocol.init_scale, model.pretrainer_.init_scale_) == ("auto", kept)
    start = quietly(network(n_epochs, init_scale=kept), X, A)
    np.testing.assert_array_equal(model.predict_proba(X), start.predict_proba(X))


def test_the_start_of_crowding_has_the_number_it_is_told():
    model = CrowdInGClassifier(
        max_epochs=1, device="cpu", random_state=0, protocol=CrowdInGProtocol(init_scale=2.0)
    )
    quietly(model, X, A)
    assert model.pretrainer_.init_scale_ == 2.0


def test_auto_is_a_parameter_like_any_other():
    assert clone(network()).get_params()["protocol__init_scale"] == "auto"
    with pytest.raises(ValueError, match="init_scale"):
        network(init_scale="twice").fit(X, A)
