"""The loss of tuplets that are rows of a batch, against a loop; and the sampling network's."""

import math

import pytest
import torch

from manyhands.objectives import TupletLoss, hardness_error

EMBEDDING = torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.tensor([0, 1, 0, 2, 1, 0, 2])
ASSURANCE = torch.tensor([1.0, 0.5, 0.2, 0.0, 0.8, 0.4, 0.7], dtype=torch.float64)
TUPLETS = torch.tensor([[0, 2, 1, 3], [2, 5, 4, 4], [4, 1, 6, 5], [0, 5, 6, 3]])


def loop_loss(loss):
    """Loss of every tuplet, number by number: Def. 4, then the softmax of Section 3.3.3."""
    E, A, labels = EMBEDDING.tolist(), ASSURANCE.tolist(), LABELS.tolist()
    anchors = {}
    for c in set(labels):
        own = [t[0] for t in TUPLETS.tolist() if labels[t[0]] == c]
        if own:
            mass = sum(A[i] for i in own) if loss.normalize_anchor else 1.0
            anchors[c] = [sum(A[i] * E[i][d] for i in own) / mass for d in range(2)]
    found = []
    for first, *rest in TUPLETS.tolist():
        anchor = anchors[labels[first]] if loss.robust_anchor else E[first]
        terms = []
        for j in rest:
            similarity = loss.constant - math.dist(E[j], anchor)
            terms.append(
                math.exp(loss.eta * A[j] * similarity)
                if loss.form == "paper"
                else (A[j] + 1e-7) * math.exp(loss.eta * similarity)
            )
        found.append(-math.log(terms[0] / sum(terms)))
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("form", ["paper", "code"])
@pytest.mark.parametrize("anchor", ["own", "robust", "printed"])
def test_the_loss_of_a_batch_equals_the_loop(form, anchor):
    loss = TupletLoss(
        3,
        robust_anchor=anchor != "own",
        normalize_anchor=anchor == "robust",
        eta=2.0,
        constant=1.5,
        form=form,
    )
    found = loss(EMBEDDING, TUPLETS, ASSURANCE, LABELS)
    assert found.shape == (4,)
    torch.testing.assert_close(found, loop_loss(loss))


def test_an_anchor_of_its_own_is_indifferent_to_other_tuplets_a_robust_one_is_not():
    alone = TUPLETS[1:2]
    for robust in (False, True):
        loss = TupletLoss(3, robust_anchor=robust)
        same = torch.allclose(
            loss(EMBEDDING, TUPLETS, ASSURANCE, LABELS)[1:2],
            loss(EMBEDDING, alone, ASSURANCE, LABELS),
        )
        assert same is not robust


def test_every_member_gets_a_gradient():
    embedding = EMBEDDING.clone().requires_grad_()
    TupletLoss(3)(embedding, TUPLETS, ASSURANCE, LABELS).sum().backward()
    reached = embedding.grad.abs().sum(dim=1) > 0
    # Instance 3 is in two tuplets, but its assurance is 0: a constant 1 in the paper's softmax.
    assert reached.tolist() == [True, True, True, False, True, True, True]


def test_the_hardness_error_is_the_mean_square():
    error = hardness_error(torch.tensor([1.0, 2.0, 5.0]), torch.tensor([1.0, 4.0, 2.0]))
    torch.testing.assert_close(error, torch.tensor((0 + 4 + 9) / 3))


def test_the_hardness_error_refuses_a_column_against_a_row():
    with pytest.raises(ValueError, match=r"predicted has shape \(3, 1\) and losses \(3,\)"):
        hardness_error(torch.zeros(3, 1), torch.zeros(3))
