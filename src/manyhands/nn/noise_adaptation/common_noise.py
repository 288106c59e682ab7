"""CoNAL: common and individual noise adaptation layers with a gate between them.

.. [1] Z. Chu, J. Ma and H. Wang. Learning from crowds by modeling common confusions. AAAI 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyhands.functional import apply_confusion, mix_log_proba
from manyhands.nn.base import CrowdModule, ScaledClassifier


class CommonNoiseModule(CrowdModule):
    """CoNAL: common and individual noise layers, gated per (instance, annotator) pair [1]_.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int
    input_shape : sequence of int
        Shape of one instance. The auxiliary network gets instances scaled and flattened; for dicts
        and token ids it gets the vectors of `ScaledClassifier.represent`.
    annotator_features : tensor of shape (n_annotators, n_features), optional
        The vectors e_r of Eq. 3; default: one-hot.
    embedding_dim : int
        Dimension of the embeddings u and v of Eq. 3.
    auxiliary_hidden : int or None
        Units of the released code's linear layer between instance and embedding (without a
        nonlinearity); None: Eq. 3 as printed.
    normalize : {"both", "annotator", "none"}
        Which embeddings are scaled to unit length.
    mixture : {"logits", "probabilities"}
        Whether the gate mixes the layers' outputs before the softmax (the released code, and Eq. 4)
        or the two distributions (the equation of p(y|x)).
    classifier_output : {"probabilities", "logits"}
        Output of the classifier that the layers get as input.
    init_scale : float
        Initial multiple of the identity in both layers.

    Notes
    -----
    Both layers start equal, so the gate has no gradient until they differ. They differ after the
    first step, because they receive different shares of the gradient (Eq. 4).
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
        embedding_dim: int = 20,
        auxiliary_hidden: int | None = 128,
        normalize: str = "both",
        mixture: str = "logits",
        classifier_output: str = "probabilities",
        init_scale: float = 2.0,
    ) -> None:
        super().__init__(classifier)
        self.n_classes = n_classes
        self.normalize = normalize
        self.mixture = mixture
        self.classifier_output = classifier_output
        identity = init_scale * torch.eye(n_classes)
        self.common = nn.Parameter(identity.clone())
        self.individual = nn.Parameter(identity.repeat(n_annotators, 1, 1))
        width = classifier.represented_width(input_shape)
        if auxiliary_hidden is None:
            self.instance_embedding: nn.Module = nn.Linear(width, embedding_dim)
        else:
            self.instance_embedding = nn.Sequential(
                nn.Linear(width, auxiliary_hidden), nn.Linear(auxiliary_hidden, embedding_dim)
            )
        n_features = n_annotators if annotator_features is None else annotator_features.shape[1]
        self.annotator_embedding = nn.Linear(n_features, embedding_dim)
        self.register_buffer("annotator_features", annotator_features)

    def embed_instances(self, scaled: Tensor) -> Tensor:
        """Return the embeddings v of Eq. 3 of scaled instances, shape (n, embedding_dim)."""
        v: Tensor = self.instance_embedding(self.classifier.represent(scaled))
        return F.normalize(v, dim=1) if self.normalize == "both" else v

    def embed_annotators(self, annotators: Tensor) -> Tensor:
        """Return the annotator embeddings u of Eq. 3 for r annotators, shape (r, embedding_dim)."""
        if self.annotator_features is None:
            # For one-hot e_r, W e_r is a column of W; no (r, n_annotators) matrix is needed.
            columns = self.annotator_embedding.weight.t().contiguous()
            u = F.embedding(annotators, columns) + self.annotator_embedding.bias
        else:
            u = self.annotator_embedding(self.annotator_features[annotators])
        return u if self.normalize == "none" else F.normalize(u, dim=1)

    def gate(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Return the gate omega of Eq. 3: probability of the common noise layer, shape (m,)."""
        return self._gate_logit(self.classifier.scaler(x), rows, annotators).sigmoid()

    def _gate_logit(self, scaled: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        v = self.embed_instances(scaled)[rows]
        return (self.embed_annotators(annotators) * v).sum(dim=1)

    def _output(self, scaled: Tensor) -> Tensor:
        logits = self.classifier.logits(scaled)
        return logits.softmax(dim=1) if self.classifier_output == "probabilities" else logits

    def _mix(self, gate_logit: Tensor, common: Tensor, individual: Tensor) -> Tensor:
        if self.mixture == "logits":
            omega = gate_logit.sigmoid()[..., None]
            return (omega * common + (1 - omega) * individual).log_softmax(dim=-1)
        return mix_log_proba(gate_logit, common.log_softmax(dim=-1), individual.log_softmax(dim=-1))

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of annotations, shape (m, n_classes)."""
        scaled = self.classifier.scaler(x)
        output = self._output(scaled)
        common = (output @ self.common)[rows]
        flat = F.embedding(annotators, self.individual.flatten(1))
        kernels = flat.view(-1, self.n_classes, self.n_classes)
        individual = apply_confusion(output[rows], kernels)
        return self._mix(self._gate_logit(scaled, rows, annotators), common, individual)

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Return the log probabilities of all pairs, shape (n, r, n_classes)."""
        scaled = self.classifier.scaler(x)
        output = self._output(scaled)
        common = (output @ self.common)[:, None, :]
        individual = torch.einsum("nc,rcg->nrg", output, self.individual[annotators])
        gate_logit = self.embed_instances(scaled) @ self.embed_annotators(annotators).t()
        return self._mix(gate_logit, common, individual)

    def confusion(self, gate: Tensor) -> Tensor:
        """Return the confusion matrices for given mean gates (r,), as if classes were certain."""
        common = self.common.expand_as(self.individual)
        gate_logit = gate.logit()[:, None].expand(-1, self.n_classes)
        mixed = self._mix(gate_logit, common, self.individual)
        return mixed.exp()


# -- for EM: common and individual confusion matrices are given, only the gate is trained ---------


class FixedCommonNoiseModule(CommonNoiseModule):
    """A common confusion matrix and individual ones, none of them trained; a trained gate [1]_.

    Unlike the layers of `CommonNoiseModule`, both are confusion matrices, [true, given], and the
    gate mixes two distributions, as in the paper's equation of p(y|x).

    Parameters
    ----------
    classifier, n_classes, n_annotators, input_shape, annotator_features, embedding_dim, \
auxiliary_hidden, normalize
        See `CommonNoiseModule`.
    """

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        *,
        input_shape: Sequence[int],
        annotator_features: Tensor | None = None,
        embedding_dim: int = 20,
        auxiliary_hidden: int | None = 128,
        normalize: str = "both",
    ) -> None:
        super().__init__(
            classifier,
            n_classes,
            n_annotators,
            input_shape=input_shape,
            annotator_features=annotator_features,
            embedding_dim=embedding_dim,
            auxiliary_hidden=auxiliary_hidden,
            normalize=normalize,
            mixture="probabilities",
            init_scale=1.0,
        )
        self.common.requires_grad_(False)
        self.individual.requires_grad_(False)

    def _mix(self, gate_logit: Tensor, common: Tensor, individual: Tensor) -> Tensor:
        return mix_log_proba(gate_logit, _log(common), _log(individual))

    def log_likelihood(self, x: Tensor, rows: Tensor, annotators: Tensor, labels: Tensor) -> Tensor:
        """Return the log probability of m annotations given each true class, (m, n_classes).

        It depends on x through the gate.
        """
        gate_logit = self._gate_logit(self.classifier.scaler(x), rows, annotators)
        return self._mix(
            gate_logit, self.common.t()[labels], self.individual[annotators, :, labels]
        )


def _log(proba: Tensor) -> Tensor:
    return proba.clamp_min(torch.finfo(proba.dtype).tiny).log()
