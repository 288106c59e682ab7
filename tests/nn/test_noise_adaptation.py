import math

import pytest
import torch
from torch.testing import assert_close

from manyhands.exceptions import AnnotationError
from manyhands.nn import (
    CONNECTIONS,
    MLP,
    CommonNoiseModule,
    CrowdLayerModule,
    FixedConfusionModule,
    Linear,
    ScaledClassifier,
    Standardize,
    make_backbone,
)

N, D, C, R = 6, 4, 3, 5


def classifier():
    return ScaledClassifier(Standardize((D,), None), Linear((D,), C))


def softmax(values):
    top = max(values)
    e = [math.exp(v - top) for v in values]
    return [v / sum(e) for v in e]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture
def x():
    return torch.randn(N, D)


def shake(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module


def pairs():
    return torch.tensor([0, 0, 3, 5]), torch.tensor([1, 4, 0, 2])


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_crowd_layer_equals_a_slow_loop(connection, x):
    module = shake(CrowdLayerModule(classifier(), C, R, connection=connection))
    rows, annotators = pairs()
    fast = module.annotation_log_proba(x, rows, annotators)
    proba = module(x).softmax(1)
    for k, (i, r) in enumerate(zip(rows.tolist(), annotators.tolist(), strict=True)):
        p = [float(v) for v in proba[i]]
        out = list(p)
        if connection == "MW":
            W = module.matrix[r]
            out = [sum(p[c] * float(W[c, g]) for c in range(C)) for g in range(C)]
        if connection in ("VW", "VW+B"):
            out = [float(module.scale[r, g]) * p[g] for g in range(C)]
        if connection in ("VB", "VW+B"):
            out = [out[g] + float(module.bias[r, g]) for g in range(C)]
        if connection == "S":
            out = [float(module.scale[r, 0]) * v for v in p]
        assert_close(fast[k].exp(), torch.tensor(softmax(out)))


@pytest.mark.parametrize("connection", CONNECTIONS)
def test_crowd_layer_confusion_is_what_a_sure_instance_receives(connection):
    module = shake(CrowdLayerModule(classifier(), C, R, connection=connection))
    with torch.no_grad():
        # Logits so large that the softmax is one-hot: instance c is surely of class c.
        module.classifier.backbone.head.weight.copy_(torch.eye(C, D))
        module.classifier.backbone.head.bias.zero_()
    sure = 100.0 * torch.eye(C, D)
    grid = module.annotation_log_proba_grid(sure, torch.arange(R)).exp()
    assert_close(module.confusion(), grid.transpose(0, 1))


@pytest.mark.parametrize("mixture", ["logits", "probabilities"])
@pytest.mark.parametrize("normalize", ["both", "annotator", "none"])
@pytest.mark.parametrize("classifier_output", ["probabilities", "logits"])
@pytest.mark.parametrize("hidden", [None, 7])
def test_conal_equals_a_slow_loop(x, mixture, normalize, classifier_output, hidden):
    module = shake(
        CommonNoiseModule(
            classifier(), C, R, input_shape=(D,), embedding_dim=4, auxiliary_hidden=hidden,
            mixture=mixture, normalize=normalize, classifier_output=classifier_output,
        )
    )  # fmt: skip
    rows, annotators = pairs()
    fast = module.annotation_log_proba(x, rows, annotators).exp()
    one_hot = torch.eye(R)
    for k, (i, r) in enumerate(zip(rows.tolist(), annotators.tolist(), strict=True)):
        # Eq. 3
        v, u = module.instance_embedding(x[i]), module.annotator_embedding(one_hot[r])
        if normalize == "both":
            v = v / v.norm()
        if normalize != "none":
            u = u / u.norm()
        omega = float(1 / (1 + (-(u @ v)).exp()))
        f = module(x[i : i + 1])[0]
        if classifier_output == "probabilities":
            f = f.softmax(0)
        common = [float(f @ module.common[:, g]) for g in range(C)]
        own = [float(f @ module.individual[r][:, g]) for g in range(C)]
        if mixture == "logits":  # Eq. 4
            expected = softmax(
                [omega * a + (1 - omega) * b for a, b in zip(common, own, strict=True)]
            )
        else:
            expected = [
                omega * a + (1 - omega) * b
                for a, b in zip(softmax(common), softmax(own), strict=True)
            ]
        assert_close(fast[k], torch.tensor(expected), atol=1e-5, rtol=1e-4)


def modules():
    return {
        "MW": CrowdLayerModule(classifier(), C, R),
        "VW+B": CrowdLayerModule(classifier(), C, R, connection="VW+B"),
        "conal": CommonNoiseModule(classifier(), C, R, input_shape=(D,)),
        "mixture": CommonNoiseModule(
            classifier(), C, R, input_shape=(D,), mixture="probabilities"
        ),
        "features": CommonNoiseModule(
            classifier(), C, R, input_shape=(D,), annotator_features=torch.randn(R, 2)
        ),
        "fixed": FixedConfusionModule(classifier(), C, R),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(modules()))
def test_the_grid_equals_the_pairs(name, x):
    module = shake(modules()[name])
    annotators = torch.tensor([4, 0, 2])
    grid = module.annotation_log_proba_grid(x, annotators)
    for i in range(N):
        for j, r in enumerate(annotators.tolist()):
            one = module.annotation_log_proba(x, torch.tensor([i]), torch.tensor([r]))
            assert_close(grid[i, j], one[0], atol=1e-5, rtol=1e-4)


def test_crowd_layer_is_conal_with_the_gate_shut(x):
    """Limiting case: omega = 0 leaves the individual layers, which are a Crowd Layer."""
    conal = shake(CommonNoiseModule(classifier(), C, R, input_shape=(D,), normalize="none"))
    with torch.no_grad():
        for parameter in conal.annotator_embedding.parameters():
            parameter.zero_()
        conal.annotator_embedding.bias.fill_(1.0)
        conal.instance_embedding[1].weight.zero_()
        conal.instance_embedding[1].bias.fill_(-50.0)
    layer = CrowdLayerModule(conal.classifier, C, R)
    layer.matrix.data = conal.individual.data
    rows, annotators = pairs()
    assert_close(
        conal.annotation_log_proba(x, rows, annotators),
        layer.annotation_log_proba(x, rows, annotators),
    )


def test_gate_and_classifier_see_scaled_instances_once(x):
    plain = shake(CommonNoiseModule(classifier(), C, R, input_shape=(D,)))
    scaled = CommonNoiseModule(
        ScaledClassifier(Standardize((D,), "standard"), Linear((D,), C)), C, R, input_shape=(D,)
    )
    scaled.load_state_dict(
        plain.state_dict() | {
            "classifier.scaler.shift": torch.arange(4.0),
            "classifier.scaler.scale": torch.tensor([1.0, 2.0, 3.0, 4.0]),
        }
    )  # fmt: skip
    raw = x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.arange(4.0)
    rows, annotators = pairs()
    everyone = torch.arange(R)
    assert_close(scaled(raw), plain(x))
    assert_close(scaled.gate(raw, rows, annotators), plain.gate(x, rows, annotators))
    assert_close(
        scaled.annotation_log_proba(raw, rows, annotators),
        plain.annotation_log_proba(x, rows, annotators),
    )
    assert_close(
        scaled.annotation_log_proba_grid(raw, everyone),
        plain.annotation_log_proba_grid(x, everyone),
    )


def test_normalised_embeddings_keep_the_gate_in_a_band(x):
    module = shake(CommonNoiseModule(classifier(), C, R, input_shape=(D,)))
    rows, annotators = torch.arange(N).repeat_interleave(R), torch.arange(R).repeat(N)
    gate = module.gate(100 * x, rows, annotators)
    assert gate.min() >= torch.sigmoid(torch.tensor(-1.0)) - 1e-6
    assert gate.max() <= torch.sigmoid(torch.tensor(1.0)) + 1e-6


def test_fixed_confusion_multiplies_probabilities(x):
    module = FixedConfusionModule(classifier(), C, R)
    module.confusions.copy_(torch.rand(R, C, C).softmax(2))
    rows, annotators = pairs()
    proba = module(x).softmax(1)
    for k, (i, r) in enumerate(zip(rows.tolist(), annotators.tolist(), strict=True)):
        expected = (proba[i] @ module.confusions[r]).log()
        assert_close(module.annotation_log_proba(x, rows, annotators)[k], expected)


def test_standardize_shapes():
    assert Standardize((3,), "standard").shift.shape == (3,)
    assert Standardize((3, 8, 8), "standard").shift.shape == (3, 1, 1)
    assert Standardize((3, 8, 8), "rms").shift.shape == (1,)


ALIKE = torch.rand(200, 6, generator=torch.Generator().manual_seed(0)).square()


@pytest.mark.parametrize(
    ("x", "is_one"),
    [
        (ALIKE, True),
        (ALIKE * torch.tensor([1.0, 1, 1, 1, 1, 0]), True),  # A feature that is always 0.
        (ALIKE - 0.01, False),  # Negative values.
        (ALIKE + 3, False),  # A distance from a mean says more than the size.
        (ALIKE * torch.tensor([1.0, 1, 1, 1, 1, 1000]), False),  # No shared scale.
        (torch.ones(200, 6), False),  # Nothing varies.
    ],
)
def test_auto_takes_one_scale_for_what_looks_like_an_embedding(x, is_one):
    scaler, expected = Standardize((6,), "auto"), Standardize((6,), "standard")
    for each in (scaler, expected):
        each.fit_statistics(x.split(64))
    if is_one:
        assert_close(scaler.scale, x.square().mean().sqrt().expand(6))
        assert_close(scaler.shift, torch.zeros(6))
    else:
        assert_close(scaler.scale, expected.scale)
        assert_close(scaler.shift, expected.shift)


def test_auto_standardises_the_channels_of_images():
    images = torch.rand(50, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    scaler, expected = Standardize((3, 4, 4), "auto"), Standardize((3, 4, 4), "standard")
    for each in (scaler, expected):
        each.fit_statistics([images])
    assert_close(scaler(images), expected(images))


def test_backbones_by_name_dict_factory_and_module():
    assert isinstance(make_backbone(None, (D,), C), MLP)
    deep = make_backbone({"name": "mlp", "hidden": [8, 5], "batch_norm": True}, (2, D), C)
    assert deep(torch.randn(3, 2, D)).shape == (3, C)
    assert deep.embed(torch.randn(3, 2, D)).shape == (3, 5)
    assert isinstance(make_backbone("linear", (D,), C), Linear)
    own = torch.nn.Linear(D, C)
    copied = make_backbone(own, (D,), C)
    assert copied is not own
    assert_close(copied.weight, own.weight)
    assert make_backbone(lambda shape, n: torch.nn.Linear(shape[0], n), (D,), C).out_features == C
    with pytest.raises(AnnotationError, match="'vgg99' is unknown; use one of linear, mlp"):
        make_backbone("vgg99", (D,), C)
    with pytest.raises(AnnotationError, match="depth"):
        make_backbone({"name": "mlp", "depth": 3}, (D,), C)
    with pytest.raises(AnnotationError, match="returned int"):
        make_backbone(lambda shape, n: 3, (D,), C)
