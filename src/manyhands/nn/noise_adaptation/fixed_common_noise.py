"""CoNAL by EM: given confusion matrices, common and individual, with a learnt gate between them.

.. [1] Z. Chu, J. Ma and H. Wang. Learning from crowds by modeling common confusions. AAAI 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from manyhands.functional import mix_log_proba
from manyhands.nn.base import ScaledClassifier
from manyhands.nn.noise_adaptation.common_noise import CommonNoiseModule


class FixedCommonNoiseModule(CommonNoiseModule):
    """A common confusion matrix and individual ones, none of them trained; a trained gate [1]_.

    Unlike the layers of `CommonNoiseModule`, both are confusion matrices, [true, given], and what
    the gate mixes is two distributions: the equation of p(y|x).

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
        """Log probability of m annotations if the true class is known, (m, n_classes).

        It depends on x through the gate.
        """
        gate_logit = self._gate_logit(self.classifier.scaler(x), rows, annotators)
        return self._mix(
            gate_logit, self.common.t()[labels], self.individual[annotators, :, labels]
        )


def _log(proba: Tensor) -> Tensor:
    return proba.clamp_min(torch.finfo(proba.dtype).tiny).log()
