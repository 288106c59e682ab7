import math

import torch
from torch.testing import assert_close

from manyhands.functional import (
    annotation_nll,
    apply_confusion,
    confusion_gap,
    mix_log_proba,
    soft_cross_entropy,
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
