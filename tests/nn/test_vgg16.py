"""VGG-16: its layers are the paper's, and what does not fit is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from manyhands.exceptions import AnnotationError
from manyhands.nn import make_backbone


def test_layers_of_configuration_d_with_batch_normalisation():
    network = make_backbone("vgg16", (3, 32, 32), 10)
    kinds = [type(layer) for layer in network.modules()]
    assert (kinds.count(nn.Conv2d), kinds.count(nn.BatchNorm2d)) == (13, 13)
    assert (kinds.count(nn.MaxPool2d), kinds.count(nn.Linear)) == (5, 1)
    convolutions = 9 * sum(
        given * made
        for given, made in zip(
            (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512),
            (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512),
            strict=True,
        )
    )
    norms = 2 * (2 * 64 + 2 * 128 + 3 * 256 + 6 * 512)
    assert sum(p.numel() for p in network.parameters()) == convolutions + norms + 512 * 10 + 10


def test_shapes_of_logits_and_embedding():
    network = make_backbone("vgg16", (3, 32, 32), 4).eval()
    x = torch.zeros(2, 3, 32, 32)
    assert network(x).shape == (2, 4)
    assert network.embed(x).shape == (2, 512)


@pytest.mark.parametrize("shape", [(512,), (3, 16, 16), (3, 224, 224)])
def test_other_inputs_are_refused(shape):
    with pytest.raises(AnnotationError, match="32 x 32"):
        make_backbone("vgg16", shape, 10)
