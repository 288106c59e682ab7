"""`partial_fit`: what is matched, kept, refused, and where new annotators start."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, clone

from manyhands import (
    AggNetClassifier,
    AggregatedClassifier,
    AnnotationTable,
    AveragedCrowdClassifier,
    CrowdInGClassifier,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    DASCClassifier,
    DawidSkene,
    ICEDClassifier,
    MaxMIGClassifier,
    MBEMClassifier,
    PersonalClassifier,
    all_classifiers,
    load,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError
from manyhands.fitting import continuing, pilots
from manyhands.fitting.context import Earlier
from manyhands.registry import all_aggregators, all_wrappers
from manyhands.training import Callback
from tests.building import built
from tests.classifiers.conftest import FEW_PARTS

pytestmark = pytest.mark.filterwarnings("ignore:the votes do not say whether")

X, A, Y = make_crowd_problem(n=60)
IDS = [f"img{i}" for i in range(60)]
TABLE = AnnotationTable.from_matrix(A, instances=IDS, annotators=list("abcde"))


def network(**parameters):
    return built(CrowdLayerClassifier, max_epochs=4, random_state=0, device="cpu", **parameters)


def continued(model, X=X, y=TABLE, cuts=(40,)):
    for rows in np.split(np.arange(60), cuts):
        part = X.iloc[rows] if hasattr(X, "iloc") else X[rows]
        model.partial_fit(part, y[rows])
    return model


def test_the_length_is_the_share_that_is_new():
    model = continued(network().set_params(max_epochs=8))
    share = TABLE[40:].n_annotations / TABLE.n_annotations
    assert len(model.history_) == Earlier(model, share).epochs(8) == np.ceil(4 * share)
    assert model.n_epochs_ == 8  # The next call takes its share of a whole fit, too.
    assert Earlier(model, 0.0).epochs(100) == 1
    assert Earlier(model, 1.0).epochs(100) == 50


def test_a_short_training_is_repeated_rather_than_continued(monkeypatch):
    """Where pilots find a few epochs, more of them would learn the annotators' mistakes."""
    model = CrowdLayerClassifier(random_state=0, device="cpu", checkpoint="nowhere")
    monkeypatch.setattr(pilots, "PLAIN_STEPS", 3)
    model.set_params(checkpoint=None).partial_fit(X[:40], TABLE[:40])
    assert model.n_epochs_ == 3
    model.set_params(checkpoint="nowhere").partial_fit(X[40:], TABLE[40:])
    assert model.get_params()["max_epochs"] == "auto"
    assert model.checkpoint == "nowhere"
    scratch = network().set_params(max_epochs=3).fit(X, model.seen_.table)
    np.testing.assert_array_equal(model.predict_proba(X), scratch.predict_proba(X))
    assert model.n_epochs_ == 3
    assert model.seen_.from_scratch == TABLE[:40].n_annotations  # Its length was not sought.


@pytest.mark.parametrize("kind", [AggNetClassifier, MaxMIGClassifier])
def test_methods_that_infer_labels_repeat_small_trainings(kind, monkeypatch):
    monkeypatch.setattr(pilots, "PLAIN_STEPS", 6)
    model = continued(kind(random_state=0, device="cpu"))
    assert len(model.history_) == model.n_epochs_ == 6 > continuing.FEW_EPOCHS
    scratch = kind(max_epochs=6, random_state=0, device="cpu").fit(X, TABLE)
    np.testing.assert_array_equal(model.predict_proba(X), scratch.predict_proba(X))
    # Where the number was given, no pilots are saved, so it goes on.
    given = continued(kind(max_epochs=6, random_state=0, device="cpu"))
    assert len(given.history_) < 6
    monkeypatch.setattr("manyhands.fitting.classifier.ENOUGH_PREDICTED", 59)
    large = continued(kind(random_state=0, device="cpu"))
    np.testing.assert_array_equal(large.predict_proba(X), given.predict_proba(X))


def test_twice_the_annotations_are_fitted_from_scratch():
    model = network(validation=0.3)
    for first, end in [(0, 20), (20, 28), (28, 45)]:
        model.partial_fit(X[first:end], TABLE[first:end])
        assert (model.seen_.from_scratch == TABLE[:end].n_annotations) == (end != 28)
    scratch = network().fit(X[:45], TABLE[:45])
    np.testing.assert_array_equal(model.predict_proba(X), scratch.predict_proba(X))
    assert model.validation == 0.3
    model.partial_fit(X[45:], TABLE[45:])
    assert len(model.history_) == 1 < len(scratch.history_)


def test_what_is_kept_is_everything_in_order():
    model = continued(network(), cuts=(20, 40))
    np.testing.assert_array_equal(model.seen_.X, X)
    assert model.seen_.table.instances.tolist() == IDS
    assert model.seen_.table.n_annotations == model.n_annotations_ == TABLE.n_annotations
    assert not hasattr(network().fit(X, TABLE), "seen_")


def test_a_new_annotator_starts_from_the_crowds_parameters():
    """With a learning rate of almost 0 the start can be seen."""
    model = network(lr=1e-12, noise_lr=None).set_params(max_epochs=1)
    model.partial_fit(X[:45], TABLE[:45].select(annotators=list("abc")))
    before = model.module_.matrix.detach().clone()
    counts = model.seen_.table.annotations_per_annotator()
    model.partial_fit(X[45:], TABLE[45:])
    assert model.annotators_.tolist() == list("abcde")
    after = model.module_.matrix.detach()
    torch.testing.assert_close(after[:3], before, atol=1e-6, rtol=0)
    by_hand = np.average(before.numpy(), axis=0, weights=counts)
    np.testing.assert_allclose(after[3].numpy(), by_hand, atol=1e-6)
    np.testing.assert_allclose(after[4].numpy(), by_hand, atol=1e-6)


def test_new_annotators_of_an_aggregated_classifier_start_from_its_pooled_matrix():
    model = AggregatedClassifier(DawidSkene(), max_epochs=1, random_state=0)
    model.partial_fit(X[:45], TABLE[:45].select(annotators=list("abc")))
    first = model.aggregator_
    model.partial_fit(X[45:], TABLE[45:])
    assert model.aggregator_ is not first
    expected = DawidSkene().fit(first.table_).partial_fit(TABLE[45:])
    np.testing.assert_allclose(model.aggregator_.posterior_, expected.posterior_, atol=1e-3)


def test_new_annotations_of_old_instances():
    early, late = TABLE.select(annotators=list("abc")), TABLE.select(annotators=list("de"))
    model = network().partial_fit(X, early)
    model.partial_fit(X[20:], late[20:])
    assert len(model.seen_.X) == 60
    assert model.seen_.table.n_annotations == early.n_annotations + late[20:].n_annotations


def test_repeated_pairs_are_refused_or_replaced():
    model = network().partial_fit(X, TABLE)
    seen = model.seen_
    with pytest.raises(AnnotationError, match=r"known already.*the same table again"):
        model.partial_fit(X[:5], TABLE[:5])
    with pytest.warns(UserWarning, match="are known, with the same labels"):
        model.partial_fit(X[:5], TABLE[:5], duplicates="last")
    assert model.seen_ is seen
    other = AnnotationTable.from_matrix(
        np.where(A[:5] < 0, -1, 2 - A[:5]), range(3), instances=IDS[:5], annotators=list("abcde")
    )
    with pytest.raises(AnnotationError, match=r"pairs are repeated.*duplicates="):
        model.partial_fit(X[:5], other)
    model.partial_fit(X[:5], other, duplicates="last")
    assert model.seen_.table.n_annotations == TABLE.n_annotations


def test_other_features_of_an_old_instance_are_refused():
    model = network().partial_fit(X[:30], TABLE[:30].select(annotators=list("abc")))
    late = TABLE[20:40].select(annotators=list("de"))
    with pytest.raises(AnnotationError, match=r"for 10 known instances.*'img20'"):
        model.partial_fit(X[20:40] + 1, late)
    numbered = network().partial_fit(X[:30], A[:30, :3])
    with pytest.raises(
        AnnotationError, match="no ids, so they were matched with the earlier instances 0, 1"
    ):
        numbered.partial_fit(X[30:], np.hstack([np.full((30, 3), -1), A[30:, 3:]]))


def test_classes_are_those_of_the_first_call():
    two = AnnotationTable.from_matrix(np.where(A == 2, -1, A), instances=IDS)
    declared = network().partial_fit(X[:30], two[:30], classes=[2, 1, 0])
    assert declared.classes_.tolist() == [2, 1, 0]
    assert declared.predict_proba(X).shape == (60, 3)
    declared.partial_fit(X[30:], AnnotationTable.from_matrix(A[30:], instances=IDS[30:]))
    with pytest.raises(AnnotationError, match=r"classes=\[0, 1, 2\] differ from those"):
        declared.partial_fit(X[30:], two[30:], classes=[0, 1, 2])
    with pytest.raises(AnnotationError, match="must be a list of two or more different classes"):
        network().partial_fit(X, TABLE, classes=[1, 1])
    fixed = network().partial_fit(
        X[:30], AnnotationTable.from_matrix(A[:30] % 2, [0, 1], instances=IDS[:30])
    )
    with pytest.raises(AnnotationError, match=r"2.*fixed by the first call: fit anew"):
        fixed.partial_fit(X[30:], TABLE[30:])


FRAME = pd.DataFrame(X, columns=list("wxyz"), index=IDS)


@pytest.mark.parametrize(
    "features",
    [
        FRAME,
        pl.DataFrame(FRAME).with_columns(pl.Series("task", IDS)),
        sparse.csr_array(X.astype(np.float32)),
        torch.from_numpy(X),
    ],
    ids=["pandas", "polars", "sparse", "tensor"],
)
def test_features_of_all_kinds(features):
    model = continued(network(), features)
    np.testing.assert_allclose(
        model.predict_proba(features), continued(network()).predict_proba(X), atol=1e-4
    )


def test_dicts_and_datasets():
    class Mean(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(4, 3)

        def forward(self, values):
            return self.head(values.float())

    model = network(backbone=Mean())
    for rows in np.split(np.arange(60), [40]):
        model.partial_fit({"values": X[rows].astype(np.float32)}, TABLE[rows])
    assert model.predict({"values": X.astype(np.float32)}).shape == (60,)
    model = network()
    for rows in np.split(np.arange(60), [20, 40]):
        part = torch.utils.data.TensorDataset(torch.from_numpy(X[rows]).float())
        model.partial_fit(part, TABLE[rows])
    assert len(model.seen_.X) == 60
    with pytest.raises(AnnotationError, match=r"X is an array, but earlier calls gave a Dataset"):
        model.partial_fit(X[:5], TABLE[:5], duplicates="last")


def test_frames_with_categories_that_change():
    frame = FRAME.assign(kind=pd.Categorical(np.where(Y == 0, "cat", "dog")), index=0)
    model = CrowdStackingClassifier(n_rounds=2, random_state=0)
    first = frame.iloc[:30].assign(kind=pd.Categorical(["cat", "dog"] * 15))
    model.partial_fit(first, TABLE[:30]).partial_fit(frame.iloc[30:], TABLE[30:])
    assert model.predict(frame).shape == (60,)


def test_a_saved_model_is_given_everything_again(tmp_path):
    network().fit(X[:40], TABLE[:40]).save(tmp_path / "model")
    model = load(tmp_path / "model", device="cpu")
    assert model.n_annotations_ == TABLE[:40].n_annotations
    order = TABLE.select(annotators=list("edcba"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X, order)
    assert model.annotators_.tolist() == list("abcde")  # As the model has them.
    assert len(model.history_) == 1  # A third is new: of 4 epochs, a sixth.
    with pytest.warns(UserWarning, match="trained on .* does not keep"):
        load(tmp_path / "model").partial_fit(X[50:], TABLE[50:])
    with pytest.warns(UserWarning, match="none of them by 2 of the 5 known annotators"):
        network().fit(X[:10], TABLE[:10]).partial_fit(X, TABLE.select(annotators=list("abc")))


def test_every_method_has_it():
    for _, cls in [*all_classifiers(), *all_wrappers(), *all_aggregators()]:
        assert hasattr(cls(), "partial_fit"), cls.__name__


def test_wrappers_of_what_cannot_go_on_say_why():
    class Own(BaseEstimator):
        def fit(self, X, y):
            return self

        def predict_annotation_proba(self, X):
            return X

        predict_proba = predict_annotation_proba

    for wrapper, says in (
        (DASCClassifier(Own()), "it trains Own, which cannot go on"),
        (AveragedCrowdClassifier([network(), Own()]), "it averages Own, which cannot go on"),
    ):
        assert not hasattr(wrapper, "partial_fit")
        with pytest.raises(AttributeError) as refused:
            wrapper.partial_fit(X, TABLE)
        assert says in f"{refused.value} {refused.value.__cause__}"


@pytest.mark.parametrize(
    "model", [network(), CrowdStackingClassifier(n_rounds=2, n_folds=2)], ids=repr
)
def test_a_day_without_annotations_changes_nothing(model):
    model = clone(model).partial_fit(X[:40], TABLE[:40])
    before = dict(vars(model))
    for nothing in (
        np.full((5, 5), -1),
        TABLE[40:45].take(np.zeros(TABLE[40:45].n_annotations, bool)),
    ):
        with pytest.warns(UserWarning, match="no annotations to add") as told:
            assert model.partial_fit(X[40:45], nothing) is model
        assert told[0].filename == __file__
        assert all(before[name] is value for name, value in vars(model).items())
    with pytest.raises(AnnotationError, match="y is empty"):
        clone(model).partial_fit(X[:5], np.full((5, 5), -1))


def test_skips_alone_are_kept():
    model = network().partial_fit(X[:40], TABLE[:40])
    skips = AnnotationTable.from_matrix(
        [["no"], [None]], classes=[0, 1, 2], instances=IDS[40:42], annotators=["a"], skip="no"
    )
    model.partial_fit(X[40:42], skips)
    assert len(model.seen_.table.skips) == 1


# -- methods with a way of their own --------------------------------------------------------------


def test_mbem_repeats_its_later_rounds_with_the_network_there_is():
    model = MBEMClassifier(max_epochs=4, n_iterations=2, lr=1e-12, random_state=0, device="cpu")
    model.partial_fit(X[:40], TABLE[:40].select(annotators=list("abc")))
    before = model.module_.classifier.backbone.state_dict()
    model.partial_fit(X[40:], TABLE[40:])
    assert list(dict.fromkeys(row["stage"] for row in model.history_)) == ["round 1", "round 2"]
    after = model.module_.classifier.backbone.state_dict()
    for name, value in before.items():  # No new network.
        torch.testing.assert_close(after[name], value, atol=1e-6, rtol=0)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_personal_classifiers_end_at_the_same_minimum(n_classes):
    table = AnnotationTable.from_matrix(
        np.minimum(A, n_classes - 1), instances=IDS, annotators=list("abcde")
    )
    exact = {"tol": 1e-3, "scaling": None, "device": "cpu"}
    model = PersonalClassifier(**exact)
    model.partial_fit(X[:40], table[:40].select(annotators=list("abc"))).partial_fit(
        X[40:], table[40:]
    )
    whole = PersonalClassifier(**exact).fit(X, model.seen_.table)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=5e-3)
    np.testing.assert_allclose(model.annotator_coef_, whole.annotator_coef_, atol=5e-3)


def test_personal_classifiers_start_where_they_were():
    """One step of ADMM with hardly any pull leaves them where they are."""
    model = PersonalClassifier(max_epochs=30, scaling=None, fusion=1e-6, device="cpu")
    model.fit(X, TABLE)
    before = model.annotator_coef_.copy()
    model.set_params(max_epochs=1).partial_fit(X, TABLE)
    assert model.history_[-1]["epoch"] == 1
    np.testing.assert_allclose(model.annotator_coef_, before, atol=0.02 * abs(before).max())


def test_iced_goes_on_with_rounds_and_from_its_posterior():
    given = {"max_epochs": 4, "warm_up_epochs": 1, "decoder_epochs": 1, "random_state": 0}
    given |= {"synthesis": None, "em_start": "previous", "device": "cpu"}
    model = built(ICEDClassifier, **given)
    continued(model)
    assert {row["stage"] for row in model.history_} == {"train"}
    assert model.posterior_.shape == (60, 3)
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1.0)


def test_crowding_goes_on_with_its_start():
    few = FEW_PARTS["CrowdInGClassifier"]
    model = built(CrowdInGClassifier, max_epochs=2, random_state=0, device="cpu", **few)
    model.partial_fit(X[:40], TABLE[:40].select(annotators=list("abcd")))
    start = model.pretrainer_
    before = {name: value.clone() for name, value in start.module_.state_dict().items()}
    model.partial_fit(X[40:], TABLE[40:])
    assert model.pretrainer_ is not start
    assert model.pretrainer_.annotators_.tolist() == list("abcde")
    assert {row["stage"] for row in model.history_} == {
        "start",
        "generator",
        "discriminator",
        "adversarial",
    }
    for name, value in start.module_.state_dict().items():  # The former start is as it was.
        torch.testing.assert_close(value, before[name])
    sampled = model.sample_annotations(X[:3], ["e"], random_state=0)
    assert sampled.n_annotations == 3


def test_self_training_keeps_pseudo_annotations_until_somebody_answers():
    estimator = network(init_scale=4.0).set_params(max_epochs=20)
    model = DASCClassifier(estimator, n_rounds=2, n_select=0.5, guard=False, random_state=0)
    early = TABLE.select(annotators=list("abcd"))
    model.partial_fit(X, early)
    n_before = int((model.rounds_ > 0).sum())
    late = TABLE[:20].select(annotators=list("e"))
    model.partial_fit(X[:20], late)
    augmented = model.augmented_annotations_
    observed = augmented.observed
    assert observed.n_annotations == early.n_annotations + late.n_annotations
    n_pseudo = augmented.n_annotations - observed.n_annotations
    expected = n_before / early.n_annotations * observed.n_annotations
    assert abs(n_pseudo - expected) <= 2
    assert model.rounds_.max() == 3
    assert model.estimator_.annotators_.tolist() == list("abcde")
    # A pair that a model filled in is free for its annotator.
    source = model.augmented_annotations_
    pseudo = source.take(source.source == "pseudo")
    i, r = int(pseudo.instance[0]), int(pseudo.annotator[0])
    answer = AnnotationTable.from_arrays(
        [IDS[i]], [source.annotators[r]], [0], classes=[0, 1, 2], instances=[IDS[i]]
    )
    model.partial_fit(X[[i]], answer)
    now = model.augmented_annotations_
    here = (now.instance == i) & (now.annotator == r)
    assert now.source[here].tolist() == ["observed"]


def test_members_of_an_average_go_on():
    members = [network(), network().set_params(random_state=1)]
    model = continued(AveragedCrowdClassifier(members))
    alone = [continued(clone(member)) for member in members]
    expected = np.mean([each.predict_proba(X) for each in alone], axis=0)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-6)
    assert not any(hasattr(member, "seen_") for member in model.estimators_)


def test_declared_classes_may_be_texts():
    words = np.array(["no", "yes"])[A[:40] % 2]
    early = AnnotationTable.from_matrix(np.where(A[:40] < 0, None, words), instances=IDS[:40])
    model = network().partial_fit(X[:40], early, classes=["yes", "no", "maybe"])
    assert model.classes_.tolist() == ["yes", "no", "maybe"]


def test_validation_and_checkpoints_are_for_the_first_call(tmp_path):
    model = network(validation=0.3, checkpoint=tmp_path / "state.safetensors")
    continued(model)
    assert not hasattr(model, "best_epoch_")
    assert "validation_agreement" not in model.history_[0]


def test_a_later_training_from_scratch_has_no_patience_and_leaves_the_parameters_alone():
    class Telling(Callback):
        def on_fit_begin(self, estimator, facts):
            heard.append(
                (facts["parameters"]["validation"], model.validation, model.protocol.patience)
            )

    heard = []
    one_fit = {"init_scale": 6.0}
    model = network(validation=0.3, patience=2, callbacks=[Telling()], **one_fit)
    continued(model, cuts=(20,))
    assert heard == [(0.3, 0.3, 2), (None, 0.3, 2)]
    assert not hasattr(model, "best_epoch_")
    alone = network(**one_fit).fit(X, TABLE)
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))


def test_a_stack_goes_on_in_two_rounds():
    model = continued(CrowdStackingClassifier(n_rounds=3, n_folds=2, random_state=0))
    assert len(model.history_) == 2
    assert model.posterior_.shape == (60, 3)
    assert model.score(X, Y) > 0.9
