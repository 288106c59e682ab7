"""Likelihoods of annotations; robust anchors and the likelihood of a tuplet's positive."""

import math

import pytest
import torch
from torch.testing import assert_close

from manyhands.functional import (
    SOFTMAX_FORMS,
    annotation_nll,
    apply_confusion,
    confusion_gap,
    mix_log_proba,
    robust_anchors,
    soft_cross_entropy,
    tuplet_nll,
)


def test_annotation_nll_by_hand():
    log_proba = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    labels = torch.tensor([0, 1])
    assert_close(
        annotation_nll(log_proba, labels), torch.tensor(-(math.log(0.5) + math.log(0.75)) / 2)
    )
    weights = torch.tensor([3.0, 1.0])
    expected = -(3 * math.log(0.5) + math.log(0.75)) / 2
    assert_close(annotation_nll(log_proba, labels, weights), torch.tensor(expected))
    assert annotation_nll(log_proba, labels, torch.zeros(2)) == 0


def test_soft_cross_entropy_equals_a_slow_loop():
    torch.manual_seed(0)
    logits, targets = torch.randn(5, 3), torch.rand(5, 3)
    slow = 0.0
    for i in range(5):
        total = sum(math.exp(float(z)) for z in logits[i])
        for c in range(3):
            slow -= float(targets[i, c]) * math.log(math.exp(float(logits[i, c])) / total)
    assert_close(soft_cross_entropy(logits, targets), torch.tensor(slow / 5))


def test_apply_confusion_reads_rows_as_true_classes():
    proba = torch.tensor([[1.0, 0.0]])
    kernel = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])
    assert_close(apply_confusion(proba, kernel), torch.tensor([[0.9, 0.1]]))


def test_mix_log_proba_mixes_distributions():
    gate = torch.tensor([0.25]).logit()
    first, second = torch.tensor([[0.2, 0.8]]), torch.tensor([[0.6, 0.4]])
    mixed = mix_log_proba(gate, first.log(), second.log()).exp()
    assert_close(mixed, torch.tensor([[0.5, 0.5]]))


def test_mix_log_proba_keeps_its_gradient_where_the_gate_saturates():
    gate = torch.tensor([200.0, -200.0], requires_grad=True)
    first = torch.tensor([[0.2, 0.8]] * 2).log()
    second = torch.tensor([[0.6, 0.4]] * 2).log()
    mixed = mix_log_proba(gate, first, second)
    assert_close(mixed.exp(), torch.tensor([[0.2, 0.8], [0.6, 0.4]]))
    mixed.sum().backward()
    assert torch.isfinite(gate.grad).all()


def test_confusion_gap_by_hand():
    individual = torch.stack([torch.zeros(2, 2), 2 * torch.ones(2, 2)])
    common = torch.ones(2, 2)
    assert confusion_gap(individual, common) == 4.0  # twice the norm of four ones
    assert confusion_gap(individual, common, squared=True) == 8.0


def test_confusion_gap_has_a_gradient_of_zero_at_zero():
    individual = torch.zeros(2, 2, 2, requires_grad=True)
    confusion_gap(individual, torch.zeros(2, 2)).backward()
    assert_close(individual.grad, torch.zeros(2, 2, 2))


# -- tuplets (NeuCrowd, Def. 4) -----------------------------------------------------------------

EMBEDDING = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0], [10.0, 10.0]])
ASSURANCE = torch.tensor([0.2, 0.6, 1.0, 0.5])
CLASSES = torch.tensor([0, 0, 2, 2])


def test_anchors_are_means_by_assurance_or_the_printed_sum():
    anchors = robust_anchors(EMBEDDING, ASSURANCE, CLASSES, 3)
    # (.2 (1, 0) + .6 (3, 4)) / .8 and ((0, 2) + .5 (10, 10)) / 1.5.
    expected = torch.tensor([[2.5, 3.0], [0.0, 0.0], [10 / 3, 14 / 3]])
    torch.testing.assert_close(anchors, expected)
    printed = robust_anchors(EMBEDDING, ASSURANCE, CLASSES, 3, normalize=False)
    torch.testing.assert_close(printed, torch.tensor([[2.0, 2.4], [0.0, 0.0], [5.0, 7.0]]))


def test_where_nothing_is_assured_all_count_alike():
    anchors = robust_anchors(EMBEDDING, torch.tensor([0.0, 0.0, 1.0, 0.0]), CLASSES, 3)
    torch.testing.assert_close(anchors[0], torch.tensor([2.0, 2.0]))
    torch.testing.assert_close(anchors[2], torch.tensor([0.0, 2.0]))


def test_the_gradient_reaches_the_anchors_by_their_assurance():
    embedding = EMBEDDING.clone().requires_grad_()
    robust_anchors(embedding, ASSURANCE, CLASSES, 3)[0].sum().backward()
    expected = torch.tensor([[0.25, 0.25], [0.75, 0.75], [0.0, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(embedding.grad, expected)


def loop_nll(anchor, members, assurance, eta, constant, form):
    """Section 3.3.3 for one tuplet, number by number."""
    terms = []
    for member, own in zip(members, assurance, strict=True):
        distance = math.sqrt(sum((a - b) ** 2 for a, b in zip(member, anchor, strict=True)))
        similarity = constant - distance
        if form == "paper":
            terms.append(math.exp(eta * own * similarity))
        else:
            terms.append((own + 1e-7) * math.exp(eta * similarity))
    return -math.log(terms[0] / sum(terms))


@pytest.mark.parametrize("form", SOFTMAX_FORMS)
@pytest.mark.parametrize("constant", [1.0, -0.5])
def test_the_loss_equals_the_loop(form, constant):
    generator = torch.Generator().manual_seed(0)
    anchors = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    members = torch.randn(6, 4, 3, generator=generator, dtype=torch.float64)
    assurance = torch.rand(6, 4, generator=generator, dtype=torch.float64)
    assurance[0, 2] = 0.0
    found = tuplet_nll(anchors, members, assurance, eta=1.5, constant=constant, form=form)
    expected = [
        loop_nll(*tuplet, 1.5, constant, form)
        for tuplet in zip(anchors.tolist(), members.tolist(), assurance.tolist(), strict=True)
    ]
    assert found.shape == (6,)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_one_tuplet_by_hand():
    anchor, members = torch.zeros(1, 2), torch.tensor([[[3.0, 4.0], [1.0, 0.0]]])
    sure = torch.ones(1, 2)
    # Similarities 1 - 5 and 1 - 1.
    nll = tuplet_nll(anchor, members, sure, eta=0.5, constant=1.0)
    torch.testing.assert_close(nll, torch.tensor([math.log(1 + math.exp(2.0))]))
    # A negative without assurance: a constant 1 in the paper, nothing in the code.
    half = torch.tensor([[0.5, 0.0]])
    paper = tuplet_nll(anchor, members, half, eta=0.5, constant=1.0)
    torch.testing.assert_close(paper, torch.tensor([math.log(1 + math.exp(1.0))]))
    code = tuplet_nll(anchor, members, half, eta=0.5, constant=1.0, form="code")
    torch.testing.assert_close(code, torch.zeros(1), atol=1e-5, rtol=0)


def test_the_constant_cancels_in_the_code_and_not_in_the_paper():
    generator = torch.Generator().manual_seed(1)
    anchors = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    members = torch.randn(5, 3, 2, generator=generator, dtype=torch.float64)
    assurance = torch.rand(5, 3, generator=generator, dtype=torch.float64)
    code, paper = (
        [tuplet_nll(anchors, members, assurance, eta=2.0, constant=C, form=form) for C in (1, 3)]
        for form in ("code", "paper")
    )
    torch.testing.assert_close(*code)
    assert (paper[0] - paper[1]).abs().min() > 1e-3


@pytest.mark.parametrize("form", SOFTMAX_FORMS)
def test_gradients_are_finite_where_a_member_lies_on_the_anchor_and_nothing_is_assured(form):
    anchors = torch.ones(2, 3, requires_grad=True)
    members = torch.ones(2, 4, 3)
    members[:, 3] = 2.0
    members.requires_grad_()
    assurance = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    nll = tuplet_nll(anchors, members, assurance, eta=5.0, form=form)
    nll.sum().backward()
    assert torch.isfinite(nll).all()
    assert torch.isfinite(anchors.grad).all()
    assert torch.isfinite(members.grad).all()
    assert members.grad[0, 3].abs().sum() > 0
