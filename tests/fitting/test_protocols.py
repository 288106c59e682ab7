"""Training protocols: what they set, where they must agree, and what estimators make of them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from sklearn.linear_model import LogisticRegression

from manyhands import (
    AggregatedClassifier,
    CoNALClassifier,
    CrowdLayerClassifier,
    PersonalClassifier,
    RaykarClassifier,
    SoftProbClassifier,
    all_classifiers,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.evidence.experiments.loading import load_experiments
from manyhands.exceptions import AnnotationError
from manyhands.fitting import PROTOCOLS, training_protocol, with_protocol

ROOT = Path(__file__).parents[2]
ROWS = {
    "conal_labelme": "chu2021_labelme",
    "conal_music": "chu2021_music",
    "dasc_labelme": "chu2021_labelme_dasc",
}
# What rows say of the method rather than of its training.
OF_THE_METHOD = {"aggregator", "targets", "init_scale"}


@pytest.fixture(scope="module")
def parameters():
    rows, _ = load_experiments(ROOT / "experiments")
    return {row.id: row.estimator["params"] for row in rows}


@pytest.mark.parametrize("name", ROWS)
def test_protocols_are_those_of_the_rows(name, parameters):
    rows = {
        CoNALClassifier: f"conal/{ROWS[name]}",
        CrowdLayerClassifier: f"crowd_layer/{ROWS[name]}",
        AggregatedClassifier: f"aggregated/{ROWS[name]}_majority_vote",
    }
    for cls, row in rows.items():
        of_row = cls(**{k: v for k, v in parameters[row].items() if k not in OF_THE_METHOD})
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
    ours = AggregatedClassifier(targets="hard", random_state=3, lr=0.5)
    found = with_protocol(ours, "conal_music")
    assert found is not ours
    assert ours.lr == 0.5
    assert (found.targets, found.random_state, found.lr) == ("hard", 3, 0.01)
    assert found.backbone == {"name": "mlp", "batch_norm": True}
    assert not hasattr(found, "embedding_dim")
    assert with_protocol(CoNALClassifier(), "conal_music").embedding_dim == 80


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
def test_every_classifier_takes_every_protocol(_, cls, name):
    """A method must not give a protocol's parameter another meaning."""
    with_protocol(cls(), name)._validate_params()


@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "dasc_cifar10h"])
def test_a_classifier_is_trained_by_it(name):
    X, A, _ = make_crowd_problem()
    model = with_protocol(CrowdLayerClassifier(random_state=0, device="cpu"), name)
    model.fit(X, A)
    assert len(model.history_) == training_protocol(name).get("max_epochs", model.n_epochs_)


def test_unknown_names_and_other_second_stages_are_refused():
    with pytest.raises(AnnotationError, match="'adam' is unknown; use one of default, conal_label"):
        training_protocol("adam")
    stage = AggregatedClassifier(backbone=LogisticRegression())
    with pytest.raises(AnnotationError, match="LogisticRegression is fitted by its own rules"):
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
