"""NeuCrowd's regression, validation, checkpoints and files; its embedding as a transformer."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from manyhands import (
    NeuCrowdClassifier,
    NeuCrowdEmbedding,
    NeuCrowdProtocol,
    load,
)
from manyhands.classifiers import neucrowd
from manyhands.estimator_checks import make_crowd_problem
from manyhands.fitting import embedding
from manyhands.fitting.callbacks import AnnotationMonitor, GoldMonitor
from manyhands.objectives import TupletLoss
from manyhands.training import Checkpoint
from tests.building import built
from tests.rounding import single_precision_in_row_checks

SMALL = {
    "max_epochs": 3,
    "batch_size": 16,
    "n_tuplets": 64,
    "C": 0.1,
    "random_state": 0,
    "device": "cpu",
}


SHARED = {name: value for name, value in SMALL.items() if name != "C"}
"""Parameters that the transformer has, too."""


@pytest.fixture(autouse=True)
def seeded():
    """Networks made in a test start from the same weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


class Killed(Exception):
    """The run was killed."""


def noisy_problem(n=120, n_noise=20, seed=0):
    """Two classes in the first two of many features; five annotators right in .8."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 2 + n_noise))
    X[:, :2] += 2.5 * (2 * y[:, None] - 1)
    A = np.where(rng.random((n, 5)) < 0.8, y[:, None], 1 - y[:, None])
    return X.astype(np.float32), A, y


def test_with_both_the_regression_is_given_the_features_too():
    X, A, _ = make_crowd_problem()
    # An embedding of one number cannot tell three classes apart, the features can.
    backbone = {"name": "embedding", "hidden": (), "width": 1}
    more = {"backbone": backbone, "C": 100.0, "max_epochs": 1, "lr": 1e-9, "weight_decay": 0.0}
    alone = built(NeuCrowdClassifier, **(SMALL | more)).fit(X, A)
    both = built(
        NeuCrowdClassifier, **SMALL | more, protocol=NeuCrowdProtocol(regression="both")
    ).fit(X, A)
    y = make_crowd_problem()[2]
    assert alone.score(X, y) < 0.8
    assert both.score(X, y) > 0.95
    scaled = both.module_.classifier.scaler(torch.from_numpy(X).float())
    scale = both.module_.classifier.backbone.input_scale
    lengths = (both.transform(X) ** 2).sum(), (scale * scaled).square().sum()
    np.testing.assert_allclose(*[float(length) for length in lengths], rtol=1e-4)
    np.testing.assert_allclose(alone.transform(X), both.transform(X), atol=1e-6)


def test_the_strength_is_chosen_in_the_last_epoch_and_fixed_before():
    X, A, _ = noisy_problem(n=60)
    model = built(NeuCrowdClassifier, **(SMALL | {"C": "cv", "cv": 2})).fit(X, A)
    assert [row["C"] for row in model.history_] == [0.1, 0.1, model.C_]
    assert model.C_ != 0.1
    fixed = built(NeuCrowdClassifier, **(SMALL | {"C": 3.0})).fit(X, A)
    assert [row["C"] for row in fixed.history_] == [3.0, 3.0, 3.0]
    assert fixed.C_ == 3.0


def test_the_history_tells_terms_that_sum_to_the_loss_and_facts_beside():
    X, A, _ = make_crowd_problem()
    model = built(NeuCrowdClassifier, **(SMALL | {"n_tuplets": 72})).fit(X, A)
    facts = {"stage", "epoch", "loss", "seconds", "step", "C", "hardness_correlation", "probe_nll"}
    terms = {"tuplet_nll", "hardness_error"}
    for epoch, row in enumerate(model.history_):
        assert set(row) == facts | terms | ({"safe_share"} if epoch else set())
        np.testing.assert_allclose(row["loss"], row["tuplet_nll"] + row["hardness_error"])
        # 72 are 4 batches of 16 and one of 8.
        assert row["step"] == 5 * (epoch + 1)
        assert -1 <= row["hardness_correlation"] <= 1
        assert 0 <= row.get("safe_share", 0.0) <= 1
    bare = built(
        NeuCrowdClassifier, **SMALL, protocol=NeuCrowdProtocol(sampling_network=False)
    ).fit(X, A)
    for row in bare.history_:
        assert row["loss"] == row["tuplet_nll"]
        assert not {"hardness_error", "hardness_correlation"} & set(row)


@pytest.mark.parametrize("kind", ["fraction", "gold"])
def test_the_best_epoch_is_kept_and_its_strength_chosen(kind, monkeypatch):
    X, A, y = noisy_problem(n=50, n_noise=4)
    monitor, name, values = {
        "fraction": (AnnotationMonitor, "validation_nll", [0.5, 0.4, 0.6, 0.3, 0.7]),
        "gold": (GoldMonitor, "validation_accuracy", [0.5, 0.6, 0.4, 0.7, 0.3]),
    }[kind]
    epochs = []

    def planned(self):
        epochs.append(len(epochs))
        return {name: values[epochs[-1]]}

    monkeypatch.setattr(monitor, "__call__", planned)
    validation = 0.3 if kind == "fraction" else (X[1::2], y[1::2])
    parameters = SMALL | {"C": "cv", "lr": 0.01, "max_epochs": 5, "validation": validation}
    parameters |= {"protocol": NeuCrowdProtocol(monitor="likelihood"), "cv": 2}

    asked, regress = [], embedding.fit_regression

    def asking(Z, targets, C, **more):
        asked.append(C)
        return regress(Z, targets, C, **more)

    monkeypatch.setattr(embedding, "fit_regression", asking)

    def fitted(**more):
        epochs.clear()
        return built(NeuCrowdClassifier, **(parameters | more)).fit(X, A)

    model = fitted()
    assert [row[name] for row in model.history_] == values
    assert model.best_epoch_ == 4
    # Epochs compete with regressions of one strength.
    assert [row["C"] for row in model.history_] == [0.1] * 5
    assert asked == [0.1] * 5 + ["cv"]
    short = fitted(max_epochs=4)
    np.testing.assert_array_equal(model.transform(X), short.transform(X))
    np.testing.assert_array_equal(model.predict_proba(X), short.predict_proba(X))
    assert model.C_ == short.C_
    impatient = fitted(patience=1)
    assert len(impatient.history_) == 3
    assert impatient.best_epoch_ == 2
    np.testing.assert_array_equal(impatient.transform(X), fitted(max_epochs=2).transform(X))
    assert not np.array_equal(impatient.transform(X), model.transform(X))


def test_an_epoch_is_judged_with_its_own_regression():
    X, A, y = noisy_problem(n=80)
    gold = (X[1::2], y[1::2])
    parameters = SMALL | {"validation": gold, "lr": 0.01}
    model = built(NeuCrowdClassifier, **parameters).fit(X, A)
    for epoch, row in enumerate(model.history_):
        short = built(NeuCrowdClassifier, **(SMALL | {"lr": 0.01, "max_epochs": epoch + 1})).fit(
            X, A
        )
        np.testing.assert_allclose(row["validation_accuracy"], short.score(*gold))


@pytest.mark.slow
@pytest.mark.parametrize("validation", [None, 0.2])
def test_resume_ends_in_the_same_weights(tmp_path, monkeypatch, validation):
    X, A, _ = make_crowd_problem()
    parameters = SMALL | {"max_epochs": 5, "validation": validation, "regression": "both"}
    parameters |= {"sampler_lr": 0.01, "C": "cv", "cv": 3}
    file = tmp_path / "run.safetensors"
    whole = built(NeuCrowdClassifier, **parameters).fit(X, A)
    written = Checkpoint.on_epoch_end

    def die_after_two(self, number, row):
        written(self, number, row)
        if row["epoch"] == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "on_epoch_end", die_after_two)
        with pytest.raises(Killed):
            built(NeuCrowdClassifier, checkpoint=file, **parameters).fit(X, A)
    # The second goes on from the middle, the third finds everything done.
    for _ in range(2):
        resumed = built(NeuCrowdClassifier, checkpoint=file, **parameters).fit(X, A)
        for name, value in whole.module_.state_dict().items():
            assert torch.equal(value, resumed.module_.state_dict()[name]), name
        assert whole.C_ == resumed.C_
        rows = [
            [{k: v for k, v in row.items() if k != "seconds"} for row in model.history_]
            for model in (whole, resumed)
        ]
        assert rows[0] == rows[1]


def test_a_saved_model_is_the_same_after_loading(tmp_path):
    X, A, _ = make_crowd_problem()
    model = built(
        NeuCrowdClassifier,
        **SMALL | {"C": "cv", "cv": 3},
        protocol=NeuCrowdProtocol(regression="both"),
    ).fit(X, A)
    model.save(tmp_path)
    loaded = load(tmp_path, device="cpu")
    assert type(loaded) is NeuCrowdClassifier
    assert loaded.C_ == model.C_
    assert loaded.history_ == model.history_
    np.testing.assert_array_equal(loaded.confusion_, model.confusion_)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    np.testing.assert_array_equal(
        loaded.predict_annotation_proba(X), model.predict_annotation_proba(X)
    )


def test_nothing_of_the_training_stays_in_the_model():
    X, A, _ = make_crowd_problem()
    model = built(NeuCrowdClassifier, **SMALL).fit(X, A)
    left = {name for name in vars(model) if name.startswith("_")}
    assert not left & {"_data", "_tuplets", "_targets"}
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


# -- the transformer ------------------------------------------------------------------------------


@parametrize_with_checks(
    [NeuCrowdEmbedding(max_epochs=1, n_tuplets=16, random_state=0, device="cpu")]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract_of_the_transformer(estimator, check):
    with single_precision_in_row_checks(check):
        check(estimator)


def test_the_transformer_is_the_classifiers_embedding():
    X, A, _ = make_crowd_problem()
    own = built(NeuCrowdEmbedding, **SHARED)
    together = own.fit_transform(X, A)
    np.testing.assert_array_equal(together, own.transform(X))
    np.testing.assert_array_equal(
        together, built(NeuCrowdClassifier, **SMALL).fit(X, A).transform(X)
    )
    assert own.transform(X).dtype == np.float32
    assert own.n_features_in_ == 4
    assert len(own.history_) == 3
    assert own.classifier_.C_ == 0.1
    names = own.get_feature_names_out()
    assert names.tolist() == [f"neucrowdembedding{i}" for i in range(32)]


def test_the_transformer_has_the_classifiers_parameters_and_defaults():
    classifier = NeuCrowdClassifier().get_params()
    for name, value in NeuCrowdEmbedding().get_params().items():
        assert classifier[name] == value, name
    of_the_regression = {"decision", "class_balance"}
    of_the_run = {"validation", "checkpoint", "callbacks"}
    missing = set(classifier) - set(NeuCrowdEmbedding().get_params())
    assert missing == of_the_regression | of_the_run


def test_the_transformer_gives_frames_their_names():
    X, A, _ = make_crowd_problem()
    frame = pd.DataFrame(X, columns=list("abcd"), index=np.arange(48) + 100)
    own = built(NeuCrowdEmbedding, **SHARED).set_output(transform="pandas")
    made = own.fit_transform(frame, A)
    assert made.columns.tolist() == own.get_feature_names_out().tolist()
    assert made.index.tolist() == frame.index.tolist()
    assert own.feature_names_in_.tolist() == list("abcd")


def test_in_a_pipeline_before_a_classifier():
    X, _, y = make_crowd_problem()
    model = make_pipeline(built(NeuCrowdEmbedding, **SHARED), LogisticRegression()).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model[0].classifier_.n_annotators_ == 1


def test_the_embedding_brings_a_class_together_where_the_features_do_not():
    X, A, y = noisy_problem(n=300, n_noise=60, seed=1)
    X[:, :2] *= 0.2
    train, test = slice(0, 150), slice(150, 300)
    more = {"max_epochs": 6, "n_tuplets": 1280, "batch_size": 128, "lr": 2e-3}
    own = built(NeuCrowdEmbedding, **(SHARED | more)).fit(X[train], A[train])

    def accuracy(Z):
        return KNeighborsClassifier(1).fit(Z[train], y[train]).score(Z[test], y[test])

    assert accuracy(X) < 0.7
    assert accuracy(own.transform(X)) > 0.9


def test_the_probe_is_the_same_for_all_variants_and_by_hand(monkeypatch):
    X, A, _ = make_crowd_problem()
    variants = (
        {},
        {"robust_anchor": False, "sampling_network": False, "safety_aware": False},
        {"softmax": "code"},
    )
    drawn, embedded = [], []
    monkeypatch.setattr(neucrowd, "PROBE_TUPLETS", 3)

    class Probe(TupletLoss):
        def __call__(self, z, tuplets, assurance, labels):
            if not z.requires_grad:  # The training computes its loss, too.
                drawn.append(tuplets.numpy())
                embedded.append((z.numpy(), assurance.numpy()))
            return super().__call__(z, tuplets, assurance, labels)

    monkeypatch.setattr(neucrowd, "TupletLoss", Probe)
    for variant in variants:
        model = built(NeuCrowdClassifier, **(SMALL | variant)).fit(X, A)
        z, assurance = embedded[-1]
        losses = []
        for anchor, *rest in drawn[-1].tolist():
            near = [1 - np.linalg.norm(z[j] - z[anchor]) for j in rest]
            weights = np.exp([5 * assurance[j] * s for j, s in zip(rest, near, strict=True)])
            losses.append(-np.log(weights[0] / weights.sum()))
        found = model.history_[-1]["probe_nll"]
        np.testing.assert_allclose(found, np.mean(losses), rtol=1e-4)
    assert all(np.array_equal(drawn[0], other) for other in drawn), "of every epoch, every variant"
