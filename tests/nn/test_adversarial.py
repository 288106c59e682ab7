import numpy as np
import pytest
import torch

from manyhands.nn import (
    AnnotationDiscriminator,
    AnnotationGenerator,
    AuxiliaryNetwork,
    CrowdLayerModule,
    GenerativeCrowdModule,
    ScaledClassifier,
    Standardize,
    make_backbone,
    normalized_adjacency,
)

PATH = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.5, 0.0]])
"""Three labels in a row: 0 and 1 go together, 1 and 2 half as often."""


def make_module(n_classes=3, n_annotators=4, **options):
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
    module, x = make_module(), torch.randn(7, 5)
    grid = module.annotation_log_proba_grid(x, torch.tensor([3, 1]))
    rows = torch.arange(7).repeat_interleave(2)
    pairs = module.annotation_log_proba(x, rows, torch.tensor([3, 1]).repeat(7))
    torch.testing.assert_close(grid.reshape(14, 3), pairs)
    module.chunk_size = 3
    torch.testing.assert_close(module.annotation_log_proba_grid(x, torch.tensor([3, 1])), grid)


def test_expected_confusion_weighs_by_the_classifiers_probabilities():
    module, x = make_module(), torch.randn(7, 5)
    with torch.no_grad():
        found = module.expected_confusion([x[:4], x[4:]], torch.tensor([2, 0]))
        z = module(x).softmax(dim=1)
        given = module.annotation_log_proba_grid(x, torch.tensor([2, 0])).exp()
    expected = torch.zeros(2, 3, 3)
    for r in range(2):
        for c in range(3):
            expected[r, c] = sum(z[n, c] * given[n, r] for n in range(7)) / z[:, c].sum()
    torch.testing.assert_close(found.float(), expected)
