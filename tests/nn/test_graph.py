"""Graph convolutions: messages by hand, against slow loops, and along the edges alone."""

import pytest
import torch

from manyhands.nn import AnnotationEdges, GraphCompletionModule, GraphConvolution, Standardize


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
