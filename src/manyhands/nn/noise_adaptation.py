"""Noise adaptation layers: from the classifier's output to what annotators will write.

.. [1] F. Rodrigues and F. C. Pereira. Deep learning from crowds. AAAI 2018.
.. [2] Z. Chu, J. Ma and H. Wang. Learning from crowds by modeling common confusions. AAAI 2021.
.. [3] R. Tanno, A. Saeedi, S. Sankaranarayanan, D. C. Alexander and N. Silberman. Learning from
   noisy labels by regularized estimation of annotator confusion. CVPR 2019.
.. [4] P. Cao, Y. Xu, Y. Kong and Y. Wang. Max-MIG: an information theoretic approach for joint
   learning from crowds. ICLR 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from manyhands.functional import apply_confusion, mix_log_proba
from manyhands.nn.base import CrowdModule, ScaledClassifier

CONNECTIONS = ("MW", "VW", "VB", "VW+B", "S")
"""Crowd Layer's connections [1]_: matrix, class scales, biases, both, one scalar an annotator."""

PARAMETRIZATIONS = ("softplus", "softmax", "column_softmax")
"""How `ConfusionModule` makes confusion matrices of free kernels."""


class CrowdLayerModule(CrowdModule):
    """A classifier whose probabilities pass through one small layer an annotator [1]_.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int
    connection : one of `CONNECTIONS`
    init_scale : float
        Matrices start at this multiple of the identity, scales at this value.

    Notes
    -----
    As in the published code, the layer's input is the softmax of the classifier and its output
    passes another softmax; the weights are free (neither positive nor normalised).
    """

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        *,
        connection: str = "MW",
        init_scale: float = 1.0,
    ) -> None:
        super().__init__(classifier)
        self.connection = connection
        self.n_classes = n_classes
        if connection == "MW":
            identity = init_scale * torch.eye(n_classes)
            self.matrix = nn.Parameter(identity.repeat(n_annotators, 1, 1))
        if connection in ("VW", "VW+B"):
            self.scale = nn.Parameter(torch.full((n_annotators, n_classes), init_scale))
        if connection in ("VB", "VW+B"):
            self.bias = nn.Parameter(torch.zeros(n_annotators, n_classes))
        if connection == "S":
            self.scale = nn.Parameter(torch.full((n_annotators, 1), init_scale))

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of annotations, shape (m, n_classes)."""
        proba = self(x).softmax(dim=1)[rows]
        if self.connection == "MW":
            # An embedding look-up: its backward pass is faster than indexing's.
            flat = F.embedding(annotators, self.matrix.flatten(1))
            kernels = flat.view(-1, self.n_classes, self.n_classes)
            return apply_confusion(proba, kernels).log_softmax(dim=1)
        if self.connection != "VB":
            proba = proba * F.embedding(annotators, self.scale)
        if self.connection in ("VB", "VW+B"):
            proba = proba + F.embedding(annotators, self.bias)
        return proba.log_softmax(dim=1)

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of all pairs, shape (n, r, n_classes)."""
        if self.connection != "MW":
            return super().annotation_log_proba_grid(x, annotators)
        proba = self(x).softmax(dim=1)
        return torch.einsum("nc,rcg->nrg", proba, self.matrix[annotators]).log_softmax(dim=2)

    def confusion(self) -> Tensor:
        """What an instance surely of each class receives, shape (n_annotators, true, given)."""
        identity = torch.eye(self.n_classes, device=next(self.parameters()).device)
        if self.connection == "MW":
            return self.matrix.softmax(dim=2)
        output = identity[None]
        if self.connection != "VB":
            output = output * self.scale[:, None, :]
        if self.connection in ("VB", "VW+B"):
            output = output + self.bias[:, None, :]
        return output.softmax(dim=2)


class FixedConfusionModule(CrowdModule):
    """A classifier beside given confusion matrices: annotations are explained, not learnt from."""

    confusions: Tensor

    def __init__(self, classifier: ScaledClassifier, n_classes: int, n_annotators: int) -> None:
        super().__init__(classifier)
        start = torch.eye(n_classes).repeat(n_annotators, 1, 1)
        self.register_buffer("confusions", start)

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Log p(x) @ confusion of the annotator, shape (m, n_classes)."""
        proba = self(x).softmax(dim=1)[rows]
        given = apply_confusion(proba, self.confusions[annotators])
        return given.clamp_min(torch.finfo(given.dtype).tiny).log()

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of all pairs, shape (n, r, n_classes)."""
        proba = self(x).softmax(dim=1)
        given = torch.einsum("nc,rcg->nrg", proba, self.confusions[annotators])
        return given.clamp_min(torch.finfo(given.dtype).tiny).log()


class DirectModule(CrowdModule):
    """A classifier whose probabilities are every annotator's: there is no noise to adapt to."""

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of the classes, shape (m, n_classes)."""
        return self(x).log_softmax(dim=1)[rows]

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of the classes, repeated: shape (n, r, n_classes)."""
        return self(x).log_softmax(dim=1)[:, None].expand(-1, len(annotators), -1)


class ConfusionModule(CrowdModule):
    """A classifier whose probabilities pass through a confusion matrix an annotator [3]_.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int
    parametrization : one of `PARAMETRIZATIONS`
        How a kernel K becomes a matrix W [true, given]. "softplus": softplus(K), every row
        divided by its sum, as in [3]_. "softmax": softmax of every row. Both make W a confusion
        matrix, and an annotation's distribution p(x) @ W. "column_softmax": softmax of every
        *column*, and an annotation's distribution is the softmax of p(x) @ W: what DASC's Eq. 10
        and 8 say to the letter.
    init_scale : float
        Kernels start at this multiple of the identity; for "softplus" at 5 less everywhere.
    """

    def __init__(
        self,
        classifier: ScaledClassifier,
        n_classes: int,
        n_annotators: int,
        *,
        parametrization: str = "softplus",
        init_scale: float = 6.0,
    ) -> None:
        super().__init__(classifier)
        self.n_classes = n_classes
        self.parametrization = parametrization
        start = init_scale * torch.eye(n_classes)
        if parametrization == "softplus":
            start = start - 5.0
        self.kernels = nn.Parameter(start.repeat(n_annotators, 1, 1))

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of annotations, shape (m, n_classes)."""
        proba = self(x).softmax(dim=1)[rows]
        flat = F.embedding(annotators, self.kernels.flatten(1))
        kernels = flat.view(-1, self.n_classes, self.n_classes)
        return self._log(apply_confusion(proba, self._normalize(kernels)))

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of all pairs, shape (n, r, n_classes)."""
        matrices = self._normalize(self.kernels[annotators])
        return self._log(torch.einsum("nc,rcg->nrg", self(x).softmax(dim=1), matrices))

    def traces(self, annotators: Tensor) -> Tensor:
        """Traces of the matrices W of r annotators, shape (r,)."""
        flat = F.embedding(annotators, self.kernels.flatten(1))
        matrices = self._normalize(flat.view(-1, self.n_classes, self.n_classes))
        return matrices.diagonal(dim1=1, dim2=2).sum(dim=1)

    def confusion(self) -> Tensor:
        """What an instance surely of each class receives, shape (n_annotators, true, given)."""
        return self._log(self._normalize(self.kernels)).exp()

    def _normalize(self, kernels: Tensor) -> Tensor:
        """W of kernels (..., true, given)."""
        if self.parametrization == "column_softmax":
            return kernels.softmax(dim=-2)
        if self.parametrization == "softmax":
            return kernels.softmax(dim=-1)
        # A row that underflows as a whole would be divided by 0.
        positive = F.softplus(kernels).clamp_min(torch.finfo(kernels.dtype).tiny)
        return positive / positive.sum(dim=-1, keepdim=True)

    def _log(self, given: Tensor) -> Tensor:
        """Log probabilities of annotations from p(x) @ W."""
        if self.parametrization == "column_softmax":
            return given.log_softmax(dim=-1)
        return given.clamp_min(torch.finfo(given.dtype).tiny).log()


class AggregatorModule(FixedConfusionModule):
    """Max-MIG: a classifier of instances beside an aggregator of their annotations [4]_.

    The aggregator gives the classes of an instance as the softmax of log prior + sum_r L_r[y_r],
    the sum over the instance's annotations y_r. L_r (given, true) is free: in Bayes' rule it is
    log p(given | true) of annotator r, up to a constant for every given class.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int

    Attributes
    ----------
    tables : parameter of shape (n_annotators, n_classes, n_classes)
        L, [annotator, given, true].
    prior : buffer of shape (n_classes,)
        Of the classes; uniform until it is set.
    confusions : buffer of shape (n_annotators, n_classes, n_classes)
        [annotator, true, given], to explain annotations with; see `count_confusions`.
    """

    prior: Tensor

    def __init__(self, classifier: ScaledClassifier, n_classes: int, n_annotators: int) -> None:
        super().__init__(classifier, n_classes, n_annotators)
        self.n_classes = n_classes
        self.tables = nn.Parameter(torch.zeros(n_annotators, n_classes, n_classes))
        self.register_buffer("prior", torch.full((n_classes,), 1.0 / n_classes))

    def aggregate(
        self,
        n: int,
        rows: Tensor,
        annotators: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Log probabilities of the classes of n instances given their annotations, (n, n_classes).

        Parameters
        ----------
        n : int
        rows, annotators, labels : integer tensors of shape (m,)
            One entry an annotation; ``rows`` are below n.
        weights : tensor of shape (m,), optional
            How often each annotation counts.
        """
        evidence = F.embedding(annotators * self.n_classes + labels, self.tables.flatten(0, 1))
        if weights is not None:
            evidence = evidence * weights[:, None]
        start = self.prior.log().expand(n, -1)
        return start.index_add(0, rows, evidence).log_softmax(dim=1)

    def count_confusions(
        self,
        n: int,
        rows: Tensor,
        annotators: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Confusions of annotations against what `aggregate` makes of them, (r, true, given).

        Parameters are those of `aggregate`. Every row gets one annotation more, as the crowd on
        the whole would give it: what was never seen of an annotator is not impossible.
        """
        given = self.aggregate(n, rows, annotators, labels, weights).exp()[rows]
        if weights is not None:
            given = given * weights[:, None]
        counts = given.new_zeros(self.tables.flatten(0, 1).shape)
        counts.index_add_(0, annotators * self.n_classes + labels, given)
        counts = counts.view_as(self.tables).transpose(1, 2)
        pooled = counts.sum(dim=0) + 1.0 / self.n_classes
        counts = counts + pooled / pooled.sum(dim=1, keepdim=True)
        return counts / counts.sum(dim=2, keepdim=True)


class CommonNoiseModule(CrowdModule):
    """CoNAL: common and individual noise adaptation layers, chosen per (instance, annotator) [2]_.

    Parameters
    ----------
    classifier : ScaledClassifier
    n_classes, n_annotators : int
    input_shape : sequence of int
        Shape of one instance, which the auxiliary network sees flattened (and scaled).
    annotator_features : tensor of shape (n_annotators, n_features), optional
        e_r of Eq. 3; default: one-hot.
    embedding_dim : int
        Size of the embeddings u and v of Eq. 3.
    auxiliary_hidden : int or None
        The code's linear layer between instance and embedding (no nonlinearity); None is Eq. 3
        as printed.
    normalize : {"both", "annotator", "none"}
        Which embeddings are scaled to unit length.
    mixture : {"logits", "probabilities"}
        What the gate mixes: the layers' outputs before the softmax (the code, and Eq. 4) or the
        two distributions (the equation of p(y|x)).
    classifier_output : {"probabilities", "logits"}
        What the layers see of the classifier.
    init_scale : float
        Both layers start at this multiple of the identity.

    Notes
    -----
    Both layers start equal, so the gate has no gradient until they part; they part in the first
    step, since they receive different shares of the gradient (Eq. 4).
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
        width = prod(input_shape)
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
        """Instance embedding v of Eq. 3 for scaled instances, shape (n, embedding_dim)."""
        v: Tensor = self.instance_embedding(scaled.flatten(1))
        return F.normalize(v, dim=1) if self.normalize == "both" else v

    def embed_annotators(self, annotators: Tensor) -> Tensor:
        """Annotator embedding u of Eq. 3 for annotators (r,), shape (r, embedding_dim)."""
        if self.annotator_features is None:
            # W e_r for one-hot e_r is a column of W: no (r, n_annotators) one-hot matrix.
            columns = self.annotator_embedding.weight.t().contiguous()
            u = F.embedding(annotators, columns) + self.annotator_embedding.bias
        else:
            u = self.annotator_embedding(self.annotator_features[annotators])
        return u if self.normalize == "none" else F.normalize(u, dim=1)

    def gate(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Gate omega of Eq. 3: probability that the noise is the common one, shape (m,)."""
        return self._gate_logit(self.classifier.scaler(x), rows, annotators).sigmoid()

    def _gate_logit(self, scaled: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        v = self.embed_instances(scaled)[rows]
        return (self.embed_annotators(annotators) * v).sum(dim=1)

    def _output(self, scaled: Tensor) -> Tensor:
        logits: Tensor = self.classifier.backbone(scaled)
        return logits.softmax(dim=1) if self.classifier_output == "probabilities" else logits

    def _mix(self, gate_logit: Tensor, common: Tensor, individual: Tensor) -> Tensor:
        if self.mixture == "logits":
            omega = gate_logit.sigmoid()[..., None]
            return (omega * common + (1 - omega) * individual).log_softmax(dim=-1)
        return mix_log_proba(gate_logit, common.log_softmax(dim=-1), individual.log_softmax(dim=-1))

    def annotation_log_proba(self, x: Tensor, rows: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of annotations, shape (m, n_classes)."""
        scaled = self.classifier.scaler(x)  # once, for classifier and gate
        output = self._output(scaled)
        common = (output @ self.common)[rows]
        flat = F.embedding(annotators, self.individual.flatten(1))
        kernels = flat.view(-1, self.n_classes, self.n_classes)
        individual = apply_confusion(output[rows], kernels)
        return self._mix(self._gate_logit(scaled, rows, annotators), common, individual)

    def annotation_log_proba_grid(self, x: Tensor, annotators: Tensor) -> Tensor:
        """Log probabilities of all pairs, shape (n, r, n_classes)."""
        scaled = self.classifier.scaler(x)
        output = self._output(scaled)
        common = (output @ self.common)[:, None, :]
        individual = torch.einsum("nc,rcg->nrg", output, self.individual[annotators])
        gate_logit = self.embed_instances(scaled) @ self.embed_annotators(annotators).t()
        return self._mix(gate_logit, common, individual)

    def confusion(self, gate: Tensor) -> Tensor:
        """What an instance surely of each class receives, given each annotator's mean gate (r,)."""
        common = self.common.expand_as(self.individual)
        gate_logit = gate.logit()[:, None].expand(-1, self.n_classes)
        mixed = self._mix(gate_logit, common, self.individual)
        return mixed.exp()
