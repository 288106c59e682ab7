"""CrowdInG's module: classifier, generator, discriminator and auxiliary network."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from math import prod
from typing import Self

import torch
from torch import Tensor

from manyhands.nn.backbones import blank, embedded
from manyhands.nn.base import CrowdModule, ScaledClassifier
from manyhands.nn.discriminator import AnnotationDiscriminator, AuxiliaryNetwork
from manyhands.nn.generators import AnnotationGenerator, CrowdLayerGenerator


class GenerativeCrowdModule(CrowdModule):
    """A classifier, a generator of annotations given its output, and two networks that judge them.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int
    input_shape : sequence of int
    annotator_features : tensor of shape (n_annotators, n_features), optional
    generator : one of `GENERATORS`
    generator_inputs : one of `GENERATOR_INPUTS`
        Inputs of the generator "network".
    lca_form : one of `LCA_FORMS`
    chunk_size : int
        Number of pairs per pass through the generator in `annotation_log_proba_grid`.

    Attributes
    ----------
    encoder : ScaledClassifier or None
        For instances that are not vectors, such as images: the generator and the discriminator
        see the embedding of this frozen classifier. They see vectors as they are.
    generator : AnnotationGenerator or CrowdLayerGenerator
    discriminator : AnnotationDiscriminator
    auxiliary : AuxiliaryNetwork
    """

    annotator_features: Tensor | None

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        *,
        input_shape: Sequence[int],
        annotator_features: Tensor | None = None,
        generator: str = "network",
        generator_inputs: str = "both",
        lca_form: str = "symmetric",
        chunk_size: int = 1 << 13,
    ) -> None:
        super().__init__(classifier)
        self.n_classes = n_classes
        self.chunk_size = chunk_size
        self.register_buffer("annotator_features", annotator_features)
        self.encoder: ScaledClassifier | None = None
        n_features = prod(input_shape)
        is_image = len(input_shape) > 1 and hasattr(classifier.backbone, "embed")
        if classifier.symbolic or is_image:
            self.set_encoder(classifier)
            n_features = self._embedding_width(input_shape)
        self.generator: AnnotationGenerator | CrowdLayerGenerator
        if generator == "crowd_layer":
            self.generator = CrowdLayerGenerator(n_classes, n_annotators)
        else:
            self.generator = AnnotationGenerator(
                n_classes,
                n_annotators,
                n_features=n_features,
                annotator_features=annotator_features,
                inputs=generator_inputs,
            )
        self.discriminator = AnnotationDiscriminator(
            n_classes,
            n_annotators,
            n_features=n_features,
            annotator_features=annotator_features,
            lca_form=lca_form,
        )
        self.auxiliary = AuxiliaryNetwork(n_classes)

    def set_encoder(self, classifier: ScaledClassifier) -> None:
        """Encode instances with a frozen copy of this classifier from now on."""
        self.encoder = copy.deepcopy(classifier).requires_grad_(requires_grad=False).eval()

    def train(self, mode: bool = True) -> Self:
        """Put all but the encoder into training or evaluation mode."""
        super().train(mode)
        if self.encoder is not None:
            self.encoder.eval()
        return self

    @torch.no_grad()
    def _embedding_width(self, input_shape: Sequence[int]) -> int:
        device = next(self.parameters()).device
        return self.represent(blank(input_shape, device)).shape[1]

    def represent(self, scaled: Tensor) -> Tensor:
        """Encode scaled instances for generator and discriminator, shape (n, n_features)."""
        if self.encoder is None:
            return scaled.flatten(1)
        if self.encoder.symbolic:
            return self.encoder.represent(scaled)
        with torch.no_grad():
            return embedded(self.encoder.backbone, scaled).flatten(1)

    def classify(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return encoded instances (n, n_features) and the classifier's probabilities."""
        scaled = self.classifier.scaler(x)
        return self.represent(scaled), self.classifier.logits(scaled).softmax(dim=1)

    def annotation_log_proba(
        self, x: Tensor, rows: Tensor, annotators: Tensor, noise: Tensor | None = None
    ) -> Tensor:
        """Log probabilities of annotations, shape (m, n_classes); the default noise is 0."""
        features, proba = self.classify(x)
        log_proba: Tensor = self.generator(features, proba, rows, annotators, noise)
        return log_proba

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of all pairs, shape (n, r, n_classes), in blocks of instances."""
        return self._grid(*self.classify(x), annotators)

    def _grid(self, features: Tensor, proba: Tensor, annotators: Tensor) -> Tensor:
        r = len(annotators)
        parts = []
        size = max(1, self.chunk_size // max(1, r))
        for own, z in zip(torch.split(features, size), torch.split(proba, size), strict=True):
            rows = torch.arange(len(own), device=own.device).repeat_interleave(r)
            pairs = self.generator(own, z, rows, annotators.repeat(len(own)))
            parts.append(pairs.view(len(own), r, self.n_classes))
        return torch.cat(parts)

    def expected_confusion(self, batches: Iterable[Tensor], annotators: Tensor) -> Tensor:
        """Confusion matrices of r annotators under the generator, shape (r, true, given).

        Row c is the mean of the generator's probabilities over the instances, each weighted by
        the classifier's probability that its class is c.

        Parameters
        ----------
        batches : iterable of tensors (n, *input_shape)
        annotators : integer tensor of shape (r,)
        """
        shape = (len(annotators), self.n_classes, self.n_classes)
        total = torch.zeros(shape, dtype=torch.float64, device=annotators.device)
        for x in batches:
            features, proba = self.classify(x)
            given = self._grid(features, proba, annotators).double().exp()
            total += torch.einsum("nc,nrg->rcg", proba.double(), given)
        # The smallest number avoids 0 / 0 for a class without mass.
        total += torch.finfo(total.dtype).tiny
        return total / total.sum(dim=2, keepdim=True)
