"""One fit's context and warnings, what a failed fit leaves, and training protocols."""

from __future__ import annotations

import pickle
import shutil
import warnings
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evidence.experiments.loading import load_rows
from manyhands import (
    AggregatedClassifier,
    AggregatedProtocol,
    AnnotationTable,
    AveragedCrowdClassifier,
    CoNALClassifier,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
    DawidSkene,
    PersonalClassifier,
    RaykarClassifier,
    SelfTrainingCrowdClassifier,
    SoftProbClassifier,
    all_classifiers,
    load,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import (
    AnnotationError,
    ModelChoiceWarning,
    NotIdentifiableWarning,
    all_or_nothing,
)
from manyhands.fitting import PROTOCOLS, pilots, training_protocol, with_protocol
from manyhands.metrics import (
    VOTE_SCORERS,
    annotation_log_likelihood_scorer,
    vote_agreement,
    vote_agreement_scorer,
)
from tests.building import built

QUICK = {"max_epochs": 3, "batch_size": 48, "random_state": 0, "device": "cpu"}


class Told(CrowdLayerClassifier):
    """Notes the epochs its objective is told, and what is in the context, in a method's hooks."""

    def _prepare(self, fit):
        self.fits_ = [fit]
        return []

    def _objective(self, fit, batch):
        fit.state.append(fit.epoch)
        fit.facts["twice"] = 2.0 * fit.epoch
        return super()._objective(fit, batch)


def test_an_objective_is_told_the_epoch_and_tells_the_history():
    X, A, _ = make_crowd_problem()
    model = Told(**QUICK).fit(X, A)
    (fit,) = model.fits_
    assert fit.state == [0, 1, 2]
    assert model.history_.column("twice").tolist() == [0.0, 2.0, 4.0]
    assert fit.module is model.module_
    assert fit.history is model.history_


def test_the_context_keeps_annotations_given_weighed_trained_on_and_held_out_apart():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    weights = np.ones(table.n_annotations)
    weights[:10] = 0.0
    model = built(Told, validation=0.2, monitor="likelihood", **QUICK).fit(
        X, replace(table, weights=weights)
    )
    (fit,) = model.fits_
    n = table.n_annotations
    assert (fit.given.n_annotations, fit.whole.n_annotations) == (n, n - 10)
    assert fit.held.n_annotations == round(0.2 * (n - 10))
    assert fit.table.n_annotations == n - 10 - fit.held.n_annotations


class Thing:
    """Something with attributes."""

    def __init__(self):
        self.kept, self.replaced = [1], 2


def change_and_fail(thing, kind):
    with all_or_nothing(thing):
        thing.replaced, thing.new_ = 3, 4
        del thing.kept
        raise kind


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_all_or_nothing_puts_attributes_back(kind):
    thing = Thing()
    before = dict(vars(thing))
    with pytest.raises(kind):
        change_and_fail(thing, kind)
    assert vars(thing) == before
    with all_or_nothing(thing):
        thing.new_ = 5
    assert thing.new_ == 5


def test_weights_of_another_network_are_refused():
    X, A, _ = make_crowd_problem()
    wide = CrowdLayerClassifier({"name": "mlp", "hidden": [7]}, **QUICK).fit(X, A)
    model = CrowdLayerClassifier(**QUICK)
    with pytest.raises(AnnotationError, match="weights of start do not fit the network"):
        model.fit(X, A, start=wide)
    assert not hasattr(model, "classes_")


# -- warnings ---------------------------------------------------------------------------------

X, A, _ = make_crowd_problem()
ALONE = np.where(np.arange(5) == np.arange(len(A))[:, None] % 5, A, -1)
RENAMED = AnnotationTable.from_matrix(A, annotators=[0, 1, 2, 3, 99])


@pytest.fixture(scope="module")
def fitted():
    return AggregatedClassifier(max_epochs=1, random_state=0).fit(X, A)


@pytest.mark.parametrize(
    ("category", "message", "call"),
    [
        (
            NotIdentifiableWarning,
            "no instance has annotations by two",
            lambda _: AggregatedClassifier(DawidSkene(), max_epochs=1).fit(X, ALONE),
        ),
        (UserWarning, "99", lambda model: model.predict_annotation_proba(X, [99])),
        (UserWarning, "99", lambda model: model.predict_observed_proba(X, RENAMED)),
        (ModelChoiceWarning, "48 of the 48", lambda model: model.score(X, A)),
        (UserWarning, "99", lambda model: model.annotation_log_likelihood(X, RENAMED)),
    ],
)
def test_warnings_point_at_the_caller(fitted, category, message, call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(fitted)
    (warning,) = [w for w in caught if message in str(w.message)]
    assert issubclass(warning.category, category)
    assert warning.filename == __file__


# -- `score` on instances of the training ------------------------------------------------------

NAMES = np.array([f"img{i}" for i in range(len(X))])
NAMED = AnnotationTable.from_matrix(A, instances=NAMES)
NUMBERED = AnnotationTable.from_matrix(A)
quick = AggregatedClassifier(backbone=LogisticRegression())


def n_warned(model, rows, y, scorer=None):
    """How many instances of the training a score is said to be measured on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = model.score(rows, y) if scorer is None else scorer(model, rows, y)
    assert np.isfinite(value)
    found = [str(w.message) for w in caught if issubclass(w.category, ModelChoiceWarning)]
    assert len(found) < 2
    return int(found[0].split("fitted on ")[1].split()[0]) if found else 0


def wrapped(model):
    """The model itself, and those that consist of it."""
    network = CrowdLayerClassifier(**{**QUICK, "max_epochs": 30, "lr": 0.05})
    return [
        model,
        AveragedCrowdClassifier([model, clone(model)], random_state=0),
        SelfTrainingCrowdClassifier(network, n_rounds=1, guard=False, random_state=0),
        make_pipeline(StandardScaler(), model),
        GridSearchCV(model, {"backbone__C": [1.0]}, cv=2),
    ]


@pytest.mark.parametrize("model", wrapped(quick), ids=lambda model: type(model).__name__)
def test_training_instances_are_known_by_their_ids(model):
    model = model.fit(X[:30], NAMED[:30])
    assert n_warned(model, X[:30], NAMED[:30]) == 30
    assert n_warned(model, X[20:], NAMED[20:]) == 10
    assert n_warned(model, X[30:], NAMED[30:]) == 0
    # Whatever the annotations; the numbers of rows are no ids.
    assert n_warned(model, X[:30], NAMED[:30].select(annotators=[0, 1])) > 20
    assert n_warned(model, X[:30], A[:30]) == n_warned(model, X[30:], A[30:]) == 0
    assert n_warned(model, X[20:], NAMED[20:], vote_agreement_scorer) == 10
    assert n_warned(model, X[30:], NAMED[30:], vote_agreement_scorer) == 0


@pytest.mark.parametrize("model", wrapped(quick), ids=lambda model: type(model).__name__)
def test_training_instances_without_ids_are_known_by_their_annotations(model):
    for target in (A[:30], NUMBERED[:30]):
        model = model.fit(X[:30], target)
        table = NUMBERED[:30]
        for same in (A[:30], table, table.take(np.arange(table.n_annotations)[::-1])):
            assert n_warned(model, X[:30], same) == 30
        assert n_warned(model, X[:20], NUMBERED[:20]) == 20
        assert n_warned(model, X[30:], NUMBERED[30:]) == 0
        assert n_warned(model, X[18:], A[18:]) == 0
    # Rows of two tables have the same numbers.
    rows = np.arange(0, 48, 2)
    model = model.fit(X[rows], NUMBERED[rows])
    assert n_warned(model, X, NUMBERED) == 24
    other = AnnotationTable.from_matrix(np.roll(A, 1, axis=1))
    assert n_warned(model, X[rows], other[rows]) == 0


def test_instances_without_annotations_were_not_trained_on():
    gaps = np.where(np.arange(48)[:, None] < 10, -1, A)
    table = AnnotationTable.from_matrix(gaps, instances=NAMES, classes=[0, 1, 2])
    model = clone(quick).fit(X, table)
    assert n_warned(model, X, NAMED) == 38
    weights = np.where(NAMED.instance < 5, 0.0, 1.0)
    assert n_warned(model.fit(X, replace(NAMED, weights=weights)), X, NAMED) == 43


def test_the_mean_of_fold_models_was_fitted_on_the_instances_of_all(tmp_path):
    parts = [
        clone(CrowdLayerClassifier(**QUICK)).fit(X[rows], NAMED[rows])
        for rows in (np.arange(20), np.arange(10, 40))
    ]
    mean = AveragedCrowdClassifier.of_fitted(parts)
    assert n_warned(mean, X, NAMED) == 40
    assert n_warned(pickle.loads(pickle.dumps(mean)), X, NAMED) == 40
    for model in (mean, parts[0]):
        loaded = load(model.save(tmp_path / type(model).__name__))
        assert n_warned(loaded, X, NAMED) == 0


@pytest.mark.parametrize("y", [A, NUMBERED, NAMED], ids=["matrix", "numbered", "named"])
@pytest.mark.parametrize("scoring", [None, vote_agreement_scorer, VOTE_SCORERS])
def test_folds_of_instances_are_not_warned_of(y, scoring):
    folds = KFold(2, shuffle=True, random_state=0)
    for cv in (2, folds):
        found = cross_validate(quick, X, y, cv=cv, scoring=scoring, error_score="raise")
    with pytest.warns(ModelChoiceWarning, match="24 of the 24"):
        cross_validate(quick, X, y, cv=folds, scoring=scoring, return_train_score=True)
    if scoring is None:
        table = y if isinstance(y, AnnotationTable) else NUMBERED
        by_hand = [
            vote_agreement(clone(quick).fit(X[rest], table[rest]).predict(X[fold]), table[fold])
            for rest, fold in folds.split(X)
        ]
        assert found["test_score"].tolist() == by_hand


def test_the_likelihood_has_a_scorer_of_its_own():
    scoring = annotation_log_likelihood_scorer
    grid = {"backbone__C": [1e-4, 1.0]}
    search = GridSearchCV(quick, grid, cv=KFold(3), scoring=scoring).fit(X, NAMED)
    by_hand = [
        clone(quick).fit(X[rest], NAMED[rest]).annotation_log_likelihood(X[fold], NAMED[fold])
        for rest, fold in KFold(3).split(X)
    ]
    assert search.best_params_ == {"backbone__C": 1.0}
    assert search.best_score_ == pytest.approx(np.mean(by_hand))
    model = make_pipeline(StandardScaler(), clone(quick)).fit(X, NAMED)
    scaled = StandardScaler().fit_transform(X)
    expected = clone(quick).fit(scaled, NAMED).annotation_log_likelihood(scaled, NAMED)
    assert scoring(model, X, NAMED) == pytest.approx(expected)  # And no warning.
    with pytest.raises(AnnotationError, match="LogisticRegression has no annotation_log"):
        scoring(LogisticRegression(), X, NAMED)


# -- training protocols: what they set, where they must agree, what estimators make of them -------


ROOT = Path(__file__).parents[2]
ROWS = {
    "conal_labelme": "chu2021_labelme",
    "conal_music": "chu2021_music",
    "dasc_labelme": "chu2021_labelme_dasc",
}
# What rows say of the method rather than of its training.
OF_THE_METHOD = {"aggregator", "targets", "init_scale"}


@pytest.fixture(scope="module")
def parameters(tmp_path_factory):
    """Those of the rows of one paper: the files of all of them take seconds to read."""
    folder = tmp_path_factory.mktemp("experiments")
    shutil.copy(ROOT / "experiments" / "chu2021.yaml", folder)
    return {row.id: row.estimator["params"] for row in load_rows(folder)}


@pytest.mark.parametrize("name", ROWS)
def test_protocols_are_those_of_the_rows(name, parameters):
    rows = {
        CoNALClassifier: f"conal/{ROWS[name]}",
        CrowdLayerClassifier: f"crowd_layer/{ROWS[name]}",
        AggregatedClassifier: f"aggregated/{ROWS[name]}_majority_vote",
    }
    for cls, row in rows.items():
        of_training = {k: v for k, v in parameters[row].items() if k not in OF_THE_METHOD}
        of_row = built(cls, **of_training)
        assert with_protocol(cls(), name).get_params() == of_row.get_params(), row


def test_the_default_sets_nothing():
    assert training_protocol("default") == {}
    ours = CoNALClassifier(lr=0.3, backbone={"name": "linear"})
    assert with_protocol(ours, "default").get_params() == ours.get_params()


def test_dasc_differs_between_sets_where_the_paper_does():
    keys = ("max_epochs", "batch_size", "lr", "weight_decay")
    figures = {
        name: tuple(training_protocol(f"dasc_{name}")[key] for key in keys)
        for name in ("labelme", "music", "cifar10h")
    }
    assert figures == {
        "labelme": (25, 512, 1e-3, 5e-4),
        "music": (100, 128, 1e-3, 0.0),
        "cifar10h": (100, 128, 1e-4, 5e-4),
    }


def test_what_the_estimator_lacks_is_left_out_and_the_rest_stays():
    ours = built(AggregatedClassifier, targets="hard", random_state=3, lr=0.5)
    found = with_protocol(ours, "conal_music")
    assert found is not ours
    assert ours.lr == 0.5
    assert (found.protocol.targets, found.random_state, found.lr) == ("hard", 3, 0.01)
    assert found.backbone == {"name": "mlp", "batch_norm": True}
    assert found.protocol == AggregatedProtocol(targets="hard", reset_optimizer=True)
    assert with_protocol(CoNALClassifier(), "conal_music").protocol.embedding_dim == 80


def test_a_protocol_cannot_be_changed_by_what_is_done_with_it():
    training_protocol("dasc_music")["backbone"]["dropout"] = 0.9
    with_protocol(CoNALClassifier(), "dasc_music").backbone["dropout"] = 0.9
    assert training_protocol("dasc_music")["backbone"]["dropout"] == 0.0
    with pytest.raises(TypeError):
        PROTOCOLS["dasc_music"].parameters["lr"] = 1.0
    with pytest.raises(FrozenInstanceError):
        PROTOCOLS["dasc_music"].name = "mine"


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize(("_", "cls"), all_classifiers())
def test_every_network_takes_every_protocol(_, cls, name):
    """A method must not give a protocol's parameter another meaning."""
    if cls is CrowdStackingClassifier and name != "default":
        with pytest.raises(
            AnnotationError, match=f"protocol='{name}' sets how a network is trained"
        ):
            with_protocol(cls(), name)
        return
    with_protocol(cls(), name)._validate_params()  # scikit-learn's; the public way is a fit


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "dasc_cifar10h"])
def test_a_classifier_is_trained_by_it(name, monkeypatch):
    monkeypatch.setattr(pilots, "PLAIN_STEPS", 12)
    X, A, _ = make_crowd_problem(n=12)
    model = with_protocol(CrowdLayerClassifier(random_state=0, device="cpu"), name)
    model.fit(X, A)
    assert len(model.history_) == training_protocol(name).get("max_epochs", model.n_epochs_)


def test_unknown_names_and_other_second_stages_are_refused():
    with pytest.raises(AnnotationError, match="'adam' is unknown; use one of default, conal_label"):
        training_protocol("adam")
    stage = AggregatedClassifier(backbone=LogisticRegression())
    with pytest.raises(AnnotationError, match="LogisticRegression is a scikit-learn classifier"):
        with_protocol(stage, "dasc_labelme")
    assert with_protocol(stage, "default").backbone is not None


# -- the page ------------------------------------------------------------------------------------


def table_row(protocol):
    values = ", ".join(f"`{name}={value!r}`" for name, value in protocol.parameters.items())
    return f"| `{protocol.name}` | {protocol.source} | {values or 'nothing is set'} |"


def test_the_page_says_what_the_code_does():
    page = (ROOT / "docs" / "protocols.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line.startswith("| `")] == [
        table_row(protocol) for protocol in PROTOCOLS.values()
    ]
    for protocol in PROTOCOLS.values():
        assert f"- `{protocol.name}`: {protocol.description}" in page


def test_a_protocol_leaves_alone_what_it_does_not_mean():
    """A network that was named stays; where there are no gradient steps, all but the scaling."""
    linear = with_protocol(SoftProbClassifier("linear"), "dasc_music")
    assert (linear.backbone, linear.max_epochs) == ("linear", 100)
    for given in (RaykarClassifier(), PersonalClassifier()):
        changed = with_protocol(given, "conal_music").get_params()
        own = given.get_params()
        assert {name for name in own if own[name] != changed[name]} == {"scaling"}
