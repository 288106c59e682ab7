"""Networks beyond backbones: embeddings, the sampling network, generators, discriminators."""

import numpy as np
import pytest
import torch
from torch import nn

from manyhands.exceptions import AnnotationError
from manyhands.nn import (
    MLP,
    AnnotationDiscriminator,
    AnnotationEdges,
    AnnotationGenerator,
    AuxiliaryNetwork,
    CrowdLayerModule,
    EmbeddedRegression,
    Ensemble,
    GenerativeCrowdModule,
    GraphCompletionModule,
    GraphConvolution,
    SamplingNetwork,
    ScaledClassifier,
    Standardize,
    make_backbone,
    normalized_adjacency,
)

X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def seeded():
    """Networks made in a test start from the same weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def kinds(network):
    return [type(layer).__name__ for layer in network.body]


# -- the embedding network ------------------------------------------------------------------------


def test_the_default_network_drops_features_and_ends_in_a_linear_layer():
    network = make_backbone("embedding", (4,), 3)
    # The last dropout is of nothing by default, and there is none of the embedding.
    assert kinds(network) == ["Flatten", "Dropout", "Linear", "Tanh", "Dropout", "Linear"]
    assert [layer.p for layer in network.body if isinstance(layer, nn.Dropout)] == [0.5, 0.0]
    assert network.body[2].out_features == 128
    assert network.eval().embed(X).shape == (5, 32)
    torch.testing.assert_close(network.head(network.embed(X)), network(X))
    with torch.no_grad():
        network.body[-1].weight.mul_(100)
    assert network.embed(X).abs().max() > 1, "the embedding is bounded"


def test_the_released_codes_network():
    spec = {
        "name": "embedding",
        "hidden": (128,),
        "width": 32,
        "activation": "sigmoid",
        "input_dropout": 0.0,
        "dropout": 0.2,
        "bounded": True,
    }
    network = make_backbone(spec, (4,), 2)
    layers = ["Linear", "Sigmoid", "Dropout"]
    assert kinds(network) == ["Flatten", "Dropout", *layers, *layers]
    assert [layer.p for layer in network.body if isinstance(layer, nn.Dropout)] == [0, 0.2, 0.2]
    embedding = network.eval().embed(100 * X)
    assert embedding.shape == (5, 32)
    assert ((embedding >= 0) & (embedding <= 1)).all()


def test_without_hidden_layers_the_embedding_is_linear():
    spec = {"name": "embedding", "hidden": (), "width": 3, "input_dropout": 0.3}
    network = make_backbone(spec, (2, 2), 2).eval()
    image = X.view(5, 2, 2)
    mid = network.embed((image[:1] + image[1:2]) / 2)
    torch.testing.assert_close(mid, (network.embed(image)[0] + network.embed(image)[1])[None] / 2)


def test_hidden_layers_in_a_row_and_their_activation():
    spec = {"name": "embedding", "hidden": (6, 5), "width": 2, "activation": "relu"}
    network = make_backbone(spec, (4,), 2)
    shapes = [tuple(layer.weight.shape) for layer in network.body if isinstance(layer, nn.Linear)]
    assert shapes == [(6, 4), (5, 6), (2, 5)]
    assert kinds(network).count("ReLU") == 2


def test_dropout_is_of_the_features_while_training_only():
    network = make_backbone({"name": "embedding", "hidden": (), "width": 3}, (4,), 2)
    torch.manual_seed(0)
    assert not torch.equal(network.train().embed(X), network.embed(X))
    assert torch.equal(network.eval().embed(X), network.embed(X))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"activation": "gelu"}, "activation='gelu' is unknown; use relu, tanh, sigmoid"),
        ({"hidden": (0,)}, r"hidden=\(0,\)"),
        ({"hidden": 128}, "hidden=128 must be a list of numbers"),
        ({"width": 0}, "width=0"),
        ({"width": 2.5}, "width=2.5"),
        ({"input_dropout": 1.5}, "probability"),
        ({"depth": 3}, "depth"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(AnnotationError, match=message):
        make_backbone({"name": "embedding", **wrong}, (4,), 2)


# -- the regression on top ------------------------------------------------------------------------


def test_the_regressions_layer_takes_the_place_of_the_networks():
    network = make_backbone("mlp", (4,), 3)
    own = EmbeddedRegression(network, (4,), 3).eval()
    assert isinstance(network.head, nn.Identity)
    assert own.width == 128
    assert own.head.in_features == 128
    assert torch.equal(own.embed(X), network.embed(X))
    assert torch.equal(own.regressors(X), own.embed(X))
    trained = {name for name, value in own.named_parameters() if value.requires_grad}
    assert trained == {"network.body.1.weight", "network.body.1.bias"}
    weight, bias = torch.randn(3, 128, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    own.set_regression(weight, bias)
    expected = own.embed(X).double() @ weight.T + bias
    torch.testing.assert_close(own(X).double(), expected, rtol=1e-4, atol=1e-4)


def test_the_features_come_beside_at_the_length_of_the_embedding():
    own = EmbeddedRegression(make_backbone("mlp", (2, 2), 3), (2, 2), 3, "both").eval()
    image = 7 * X.view(5, 2, 2)
    assert own.head.in_features == 128 + 4
    torch.testing.assert_close(own.regressors(image)[:, 128:], 7 * X)
    with torch.no_grad():
        own.match_input_scale(own.embed(image), image.flatten(1))
        embedded, features = own.regressors(image).split([128, 4], dim=1)
    torch.testing.assert_close(features / own.input_scale, 7 * X)
    torch.testing.assert_close(embedded.square().sum(), features.square().sum())
    assert "input_scale" in own.state_dict(), "a saved model would forget it"
    assert own(image).shape == (5, 3)


def test_features_or_embeddings_of_no_length_are_left_alone():
    own = EmbeddedRegression(make_backbone("linear", (4,), 2), (4,), 2, "both")
    own.match_input_scale(X, torch.zeros(5, 4))
    assert own.input_scale == 1
    own.match_input_scale(torch.zeros(5, 4), X)
    assert own.input_scale == 1
    alone = EmbeddedRegression(make_backbone("linear", (4,), 2), (4,), 2)
    alone.match_input_scale(X, 3 * X)
    assert alone.input_scale == 1, "without features beside there is nothing to be scaled"


def test_of_a_network_without_embed_the_output_is_the_embedding():
    network = nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2, padding=1))
    own = EmbeddedRegression(network, (4,), 2)
    assert own.width == 3 * 3 * 3
    torch.testing.assert_close(own.embed(X), network(X).flatten(1))
    assert own(X).shape == (5, 2)


def test_a_head_is_kept_where_the_output_is_the_embedding():
    class Headed(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 6)

        def forward(self, x):
            return self.head(x)

    own = EmbeddedRegression(Headed(), (4,), 2)
    assert own.width == 6
    assert isinstance(own.network.head, nn.Linear)


def test_the_width_is_measured_without_a_trace():
    network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    state = {name: value.clone() for name, value in network.state_dict().items()}
    assert EmbeddedRegression(network, (4,), 2).width == 3
    assert network.training
    for name, value in network.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_a_network_that_drops_an_axis_is_named():
    network = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    with pytest.raises(AnnotationError, match=r"embedding of shape \(1,\) for one instance"):
        EmbeddedRegression(network, (4,), 2)


# -- the sampling network -------------------------------------------------------------------------


@pytest.mark.parametrize("joint", [0, 32])
def test_hardness_is_one_number_a_tuplet(joint):
    torch.manual_seed(0)
    network = SamplingNetwork((2, 2), size=3, hidden=8, width=5, joint=joint)
    tuplets = torch.tensor([[0, 1, 2], [2, 1, 0], [4, 4, 4], [0, 1, 2]])
    hardness = network(X.view(5, 2, 2), tuplets)
    assert hardness.shape == (4,)
    assert hardness[0] == hardness[3]
    assert hardness[0] != hardness[1], "the place of a member does not count"
    # One tower for all: an instance has the same numbers wherever it stands.
    tower = network.tower(X.view(5, 2, 2))
    assert tower.shape == (5, 5)
    by_hand = network.score(torch.cat([tower[2], tower[1], tower[0]])[None])[0, 0]
    torch.testing.assert_close(hardness[1], by_hand)
    layers = [type(layer) for layer in network.score]
    assert layers == ([nn.Linear, nn.Tanh, nn.Linear] if joint else [nn.Linear])
    assert network.score[0].in_features == 3 * 5


def test_every_parameter_of_the_sampling_network_gets_a_gradient():
    network = SamplingNetwork((4,), size=3)
    network(X, torch.tensor([[0, 1, 2], [2, 3, 4]])).square().sum().backward()
    for name, value in network.named_parameters():
        assert value.grad.abs().sum() > 0, name


def edges(*triples):
    parts = torch.tensor(triples, dtype=torch.int64).reshape(-1, 3).T
    return AnnotationEdges(*parts)


def random_graph(seed=0, n=7, n_annotators=4, n_classes=3):
    """Return a graph in which the last instance and the last annotator stand alone."""
    generator = torch.Generator().manual_seed(seed)
    cells = torch.cartesian_prod(torch.arange(n - 1), torch.arange(n_annotators - 1))
    cells = cells[torch.randperm(len(cells), generator=generator)[:11]]
    labels = torch.randint(n_classes, (len(cells),), generator=generator)
    return AnnotationEdges(cells[:, 0], cells[:, 1], labels)


def make_module(n_classes=3, n_annotators=4, **changes):
    torch.manual_seed(0)
    options = {"embedding_dim": 5, "hidden": 6, "dropout": 0.0, **changes}
    scaler = Standardize((2,), None)
    return GraphCompletionModule(scaler, (2,), n_classes, n_annotators, **options)


def test_messages_by_hand():
    """Two instances, one annotator: the first was called 0, the second 1."""
    layer = GraphConvolution(2, 1, 1, 1)
    with torch.no_grad():
        for linear, weight, bias in (
            (layer.instance_self, 2.0, 1.0),
            (layer.annotator_self, 3.0, 0.0),
        ):
            linear.weight.fill_(weight)
            linear.bias.fill_(bias)
        layer.to_instances.copy_(torch.tensor([10.0, 20.0]).view(2, 1, 1))
        layer.to_annotators.copy_(torch.tensor([100.0, 200.0]).view(2, 1, 1))
    instances, annotators = torch.tensor([[1.0], [2.0], [5.0]]), torch.tensor([[7.0]])
    found = layer(instances, annotators, edges((0, 0, 0), (1, 0, 1)))
    # Itself; and the annotator's 7 through the matrix of what it said. The third heard nothing.
    assert found[0].tolist() == [[2 * 1 + 1 + 70], [2 * 2 + 1 + 140], [2 * 5 + 1]]
    # Itself; and the mean of 1 through the one matrix and 2 through the other.
    assert found[1].tolist() == [[3 * 7 + (100 * 1 + 200 * 2) / 2]]


@pytest.mark.parametrize("seed", range(3))
def test_a_layer_is_what_loops_say(seed):
    torch.manual_seed(seed)
    layer, graph = GraphConvolution(3, 5, 2, 6), random_graph(seed)
    instances, annotators = torch.randn(7, 5), torch.randn(4, 2)
    triples = torch.stack(graph).T.tolist()
    new_instances, new_annotators = layer(instances, annotators, graph)
    for i in range(7):
        own = [(r, c) for j, r, c in triples if j == i]
        expected = layer.instance_self(instances[i])
        for r, c in own:
            expected = expected + annotators[r] @ layer.to_instances[c] / len(own)
        torch.testing.assert_close(new_instances[i], expected)
    for r in range(4):
        own = [(i, c) for i, s, c in triples if s == r]
        expected = layer.annotator_self(annotators[r])
        for i, c in own:
            expected = expected + instances[i] @ layer.to_annotators[c] / len(own)
        torch.testing.assert_close(new_annotators[r], expected)


def test_the_decoder_is_what_loops_say_pair_by_pair_and_all_at_once():
    module, graph = make_module(), random_graph()
    x = torch.randn(7, 2)
    z, w = module(x, graph)
    assert torch.all(z[:, -1] == 1)
    assert torch.all(w[:, -1] == 1)
    pairs = torch.cartesian_prod(torch.arange(7), torch.arange(4))
    found = module.annotation_log_proba(x, graph, pairs[:, 0], pairs[:, 1])
    for (i, r), log_proba in zip(pairs.tolist(), found, strict=True):
        logits = torch.stack([z[i] @ matrix @ w[r] for matrix in module.decoder])
        torch.testing.assert_close(log_proba, logits.log_softmax(dim=0))
    torch.testing.assert_close(module.decode(z, w), found.view(7, 4, 3))


def test_one_without_edges_hears_nobody():
    module, graph = make_module(), random_graph()
    x = torch.randn(7, 2)
    alone, nobody = module(x[6:], edges())
    z, w = module(x, graph)
    torch.testing.assert_close(z[6:], alone)
    torch.testing.assert_close(w[3], nobody[3])
    assert not torch.allclose(z[:1], module(x[:1], edges())[0])


def test_every_parameter_gets_a_gradient():
    module, graph = make_module(hidden=32), random_graph()
    log_proba = module.annotation_log_proba(torch.randn(7, 2), graph, *graph[:2])
    log_proba.gather(1, graph.labels[:, None]).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


# -- generators and discriminators ----------------------------------------------------------------


PATH = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.5, 0.0]])
"""Three labels in a row: 0 and 1 go together, 1 and 2 half as often."""


def make_generative(n_classes=3, n_annotators=4, **options):
    torch.manual_seed(0)
    classifier = ScaledClassifier(Standardize((5,), None), make_backbone(None, (5,), n_classes))
    return GenerativeCrowdModule(
        classifier, n_classes, n_annotators, input_shape=(5,), **options
    ).eval()


def test_symmetric_normalization_by_hand():
    # A + I has degrees 2, 2.5 and 1.5.
    a, b, c = 2.0, 2.5, 1.5
    expected = [
        [1 / a, 1 / np.sqrt(a * b), 0],
        [1 / np.sqrt(a * b), 1 / b, 0.5 / np.sqrt(b * c)],
        [0, 0.5 / np.sqrt(b * c), 1 / c],
    ]
    np.testing.assert_allclose(normalized_adjacency(PATH, "symmetric"), expected, rtol=1e-6)


def test_row_normalization_by_hand():
    expected = [[1 / 2, 1 / 2, 0], [1 / 2.5, 1 / 2.5, 0.5 / 2.5], [0, 0.5 / 1.5, 1 / 1.5]]
    np.testing.assert_allclose(normalized_adjacency(PATH, "row"), expected, rtol=1e-6)


@pytest.mark.parametrize("form", ["symmetric", "row"])
def test_aggregated_matrices_by_hand(form):
    judge = AnnotationDiscriminator(3, 4, n_features=5, lca_form=form, embedding_dim=2)
    M = torch.tensor([[[1.0, 0], [0, 0]], [[0, 2.0], [0, 0]], [[0, 0], [3.0, 0]]])
    W = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    with torch.no_grad():
        judge.matrices.copy_(M)
        if form == "symmetric":
            judge.aggregation_weight.copy_(W)
    judge.adjacency.copy_(PATH)
    found = judge.class_matrices().detach().numpy()
    S, M, W = normalized_adjacency(PATH, form).numpy(), M.numpy(), W.numpy()
    for c in range(3):
        mixed = sum(S[c, d] * M[d] for d in range(3))
        expected = mixed @ W if form == "symmetric" else mixed + M[c]
        np.testing.assert_allclose(found[c], expected, atol=1e-6)


def test_without_adjacency_nothing_is_aggregated():
    judge = AnnotationDiscriminator(3, 4, n_features=5, embedding_dim=2)
    torch.testing.assert_close(judge.class_matrices(), judge.matrices)


@pytest.mark.parametrize("n", [2, 9])
def test_scores_are_bilinear_and_sliced_by_label(n):
    """With fewer instances than annotators, or more."""
    torch.manual_seed(0)
    judge = AnnotationDiscriminator(3, 4, n_features=5, embedding_dim=6).eval()
    x, rows = torch.randn(n, 5), torch.tensor([0, 1, 1])
    pairs = judge.embed(x, rows, torch.tensor([3, 0, 3]))
    u, v = pairs.u[pairs.annotator_rows], pairs.v[pairs.rows]
    matrices = judge.class_matrices().detach()
    scores = judge.scores(pairs, matrices).detach()
    for cell in range(3):
        for c in range(3):
            by_hand = float((u[cell] @ matrices[c] @ v[cell]).detach())
            assert float(scores[cell, c]) == pytest.approx(by_hand, abs=1e-5)
    labels = torch.tensor([2, 0, 1])
    own = judge.scores(pairs, matrices, labels)
    torch.testing.assert_close(own.detach(), scores.gather(1, labels[:, None])[:, 0])


@pytest.mark.parametrize(
    ("inputs", "sees_instance", "sees_annotator"),
    [("both", True, True), ("annotator", False, True), ("instance", True, False)],
)
def test_what_a_generator_sees(inputs, sees_instance, sees_annotator):
    torch.manual_seed(0)
    generator = AnnotationGenerator(3, 4, n_features=5, inputs=inputs).eval()
    x, z = torch.randn(2, 5), torch.full((2, 3), 1 / 3)
    by_instance = generator(x, z, torch.tensor([0, 1]), torch.tensor([2, 2]))
    by_annotator = generator(x, z, torch.tensor([0, 0]), torch.tensor([1, 2]))
    assert torch.equal(by_instance[0], by_instance[1]) != sees_instance
    assert torch.equal(by_annotator[0], by_annotator[1]) != sees_annotator
    sure = generator(x, torch.eye(3)[:2], torch.tensor([0, 1]), torch.tensor([2, 2]))
    assert not torch.allclose(sure, by_instance), "the classifier's output always counts"
    noisy = generator(x, z, torch.tensor([0]), torch.tensor([2]), torch.ones(1, 3))
    assert not torch.allclose(noisy, by_instance[:1])
    torch.testing.assert_close(by_instance.exp().sum(dim=1), torch.ones(2))


def test_a_generator_is_two_layers_on_the_concatenation():
    torch.manual_seed(0)
    generator = AnnotationGenerator(2, 3, n_features=5, embedding_dim=4).eval()
    x, z, noise = torch.randn(1, 5), torch.tensor([[0.2, 0.8]]), torch.randn(1, 2)
    u = generator.annotator_embedding.linear(torch.eye(3)[[1]])
    v = generator.instance_embedding(x)
    u, v = ((e - e.mean()) / (e.var(unbiased=False) + 1e-5).sqrt() for e in (u, v))
    hidden = generator.first(torch.cat([z, noise, u, v], dim=1)).relu()
    expected = generator.last(hidden).log_softmax(dim=1)
    found = generator(x, z, torch.tensor([0]), torch.tensor([1]), noise)
    torch.testing.assert_close(found, expected)


def test_one_hot_annotators_are_features_of_an_identity():
    torch.manual_seed(0)
    plain = AnnotationGenerator(3, 4, n_features=5).eval()
    given = AnnotationGenerator(3, 4, n_features=5, annotator_features=torch.eye(4)).eval()
    given.load_state_dict(plain.state_dict())
    x, z, rows = torch.randn(2, 5), torch.rand(2, 3), torch.tensor([0, 1, 1])
    for annotators in (torch.tensor([3, 0, 1]), torch.tensor([0, 1, 2, 3, 3, 0])):
        own = rows.repeat(2)[: len(annotators)]
        torch.testing.assert_close(plain(x, z, own, annotators), given(x, z, own, annotators))


def test_the_auxiliary_network_learns_through_the_shared_embeddings():
    torch.manual_seed(0)
    judge = AnnotationDiscriminator(3, 4, n_features=5, embedding_dim=6)
    auxiliary = AuxiliaryNetwork(3, embedding_dim=6)
    rows, labels = torch.tensor([0, 1]), torch.tensor([2, 0])
    pairs = judge.embed(torch.randn(2, 5), rows, torch.tensor([1, 3]))
    log_posterior = auxiliary(pairs, judge.class_matrices(), labels)
    assert log_posterior.shape == (2, 3)
    log_posterior[:, 0].sum().backward()
    for name, parameter in [*judge.named_parameters(), *auxiliary.named_parameters()]:
        assert parameter.grad is not None, name


def test_the_auxiliary_network_is_two_layers_on_the_concatenation():
    torch.manual_seed(0)
    judge = AnnotationDiscriminator(3, 4, n_features=5, embedding_dim=6).eval()
    auxiliary = AuxiliaryNetwork(3, embedding_dim=6)
    pairs = judge.embed(torch.randn(2, 5), torch.tensor([0, 1, 1]), torch.tensor([1, 3, 1]))
    matrices, labels = judge.class_matrices(), torch.tensor([2, 0, 1])
    m = auxiliary.label_embedding(matrices[labels].flatten(1).relu())
    m = (m - m.mean(dim=1, keepdim=True)) / (m.var(dim=1, unbiased=False) + 1e-5).sqrt()[:, None]
    u, v = pairs.u[pairs.annotator_rows], pairs.v[pairs.rows]
    expected = auxiliary.last(auxiliary.first(torch.cat([u, v, m], dim=1)).relu())
    found = auxiliary(pairs, matrices, labels)
    torch.testing.assert_close(found, expected.log_softmax(dim=1))


def test_a_crowd_layer_generates_what_the_crowd_layer_predicts():
    torch.manual_seed(0)
    classifier = ScaledClassifier(Standardize((5,), None), make_backbone("linear", (5,), 3))
    layer = CrowdLayerModule(classifier, 3, 4)
    with torch.no_grad():
        layer.matrix.add_(torch.randn_like(layer.matrix))
    module = GenerativeCrowdModule(classifier, 3, 4, input_shape=(5,), generator="crowd_layer")
    with torch.no_grad():
        module.generator.matrix.copy_(layer.matrix)
    x, rows, annotators = torch.randn(2, 5), torch.tensor([0, 1, 1]), torch.tensor([3, 0, 2])
    expected = layer.annotation_log_proba(x, rows, annotators)
    torch.testing.assert_close(module.annotation_log_proba(x, rows, annotators), expected)


def test_images_are_seen_as_an_encoder_embeds_them_which_does_not_learn():
    torch.manual_seed(0)
    shape = (3, 8, 8)
    classifier = ScaledClassifier(Standardize(shape, None), make_backbone("cnn", shape, 3))
    module = GenerativeCrowdModule(classifier, 3, 4, input_shape=shape)
    x = torch.randn(2, *shape)
    expected = classifier.eval().embed(x).flatten(1).detach()
    module.train()
    seen = module.classify(x)[0]
    torch.testing.assert_close(seen, expected)
    assert not any(p.requires_grad for p in module.encoder.parameters())
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.add_(1.0)
    torch.testing.assert_close(module.classify(x)[0], seen)
    assert GenerativeCrowdModule(classifier, 3, 4, input_shape=(3,)).encoder is None


def test_pairs_and_grid_agree_in_any_chunks():
    module, x = make_generative(), torch.randn(7, 5)
    grid = module.annotation_log_proba_grid(x, torch.tensor([3, 1]))
    rows = torch.arange(7).repeat_interleave(2)
    pairs = module.annotation_log_proba(x, rows, torch.tensor([3, 1]).repeat(7))
    torch.testing.assert_close(grid.reshape(14, 3), pairs)
    module.chunk_size = 3
    torch.testing.assert_close(module.annotation_log_proba_grid(x, torch.tensor([3, 1])), grid)


def test_expected_confusion_weighs_by_the_classifiers_probabilities():
    module, x = make_generative(), torch.randn(7, 5)
    with torch.no_grad():
        found = module.expected_confusion([x[:4], x[4:]], torch.tensor([2, 0]))
        z = module(x).softmax(dim=1)
        given = module.annotation_log_proba_grid(x, torch.tensor([2, 0])).exp()
    expected = torch.zeros(2, 3, 3)
    for r in range(2):
        for c in range(3):
            expected[r, c] = sum(z[n, c] * given[n, r] for n in range(7)) / z[:, c].sum()
    torch.testing.assert_close(found.float(), expected)


# -- the ensemble ---------------------------------------------------------------------------------


class Says(nn.Module):
    """The same probabilities of whatever instance."""

    def __init__(self, *proba):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(proba).log() + 3.0)

    def forward(self, x):
        return self.logits.expand(len(x), -1)


def test_the_ensemble_is_a_mean_of_probabilities():
    ensemble = Ensemble([Says(0.9, 0.1), Says(0.5, 0.5)])
    proba = ensemble(torch.zeros(3, 1)).softmax(dim=1).detach().numpy()
    np.testing.assert_allclose(proba, np.tile([0.7, 0.3], (3, 1)), rtol=1e-5)


def test_the_embedding_is_the_first_networks():
    networks = [MLP((4,), 3).eval(), MLP((4,), 3).eval()]
    assert torch.equal(Ensemble(networks).embed(X), networks[0].embed(X))
    assert not hasattr(Ensemble([Says(0.5, 0.5)]), "embed")


def test_networks_share_a_trunk_only_where_it_is_frozen():
    trunk = nn.Linear(4, 8)
    networks = [nn.Sequential(trunk, nn.ReLU(), nn.Linear(8, 3)) for _ in range(2)]
    with pytest.raises(AnnotationError, match="share trainable parameters"):
        Ensemble(networks)
    trunk.requires_grad_(False)
    assert Ensemble(networks)(X).shape == (5, 3)
