"""Loss of NeuCrowd's n-tuplets, whose members are rows of a batch.

.. [1] Y. Hao, W. Ding and Z. Liu. NeuCrowd: neural sampling network for representation learning
   with crowdsourced labels. Knowledge and Information Systems 64, 2022.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from manyhands.functional import robust_anchors, tuplet_nll


@dataclass(frozen=True)
class TupletLoss:
    """Loss of each tuplet of a batch [1]_ (Section 3.3).

    Attributes
    ----------
    n_classes : int
    robust_anchor : bool
        Whether to compare with the robust anchor of the anchor's class (Def. 4) or with the anchor
        itself.
    normalize_anchor, eta, constant, form
        See `robust_anchors` and `tuplet_nll`.
    """

    n_classes: int
    robust_anchor: bool = True
    normalize_anchor: bool = True
    eta: float = 5.0
    constant: float = 1.0
    form: str = "paper"

    def __call__(
        self, embedding: Tensor, tuplets: Tensor, assurance: Tensor, labels: Tensor
    ) -> Tensor:
        """Return the loss of each tuplet, shape (m,).

        Parameters
        ----------
        embedding : tensor of shape (n, d)
        tuplets : integer tensor of shape (m, size)
            Rows of the anchor, the positive and the negatives.
        assurance : tensor of shape (n,)
        labels : integer tensor of shape (n,)
        """
        first, rest = tuplets[:, 0], tuplets[:, 1:]
        anchors = embedding[first]
        if self.robust_anchor:
            classes = labels[first]
            anchors = robust_anchors(
                anchors,
                assurance[first],
                classes,
                self.n_classes,
                normalize=self.normalize_anchor,
            )[classes]
        # Few distinct rows are gathered many times: index_select has the faster gradient.
        members = embedding.index_select(0, rest.flatten()).view(*rest.shape, -1)
        return tuplet_nll(
            anchors,
            members,
            assurance[rest],
            eta=self.eta,
            constant=self.constant,
            form=self.form,
        )


def hardness_error(predicted: Tensor, losses: Tensor) -> Tensor:
    """Return the mean squared error of predicted losses (m,) against actual losses (m,).

    Raises
    ------
    ValueError
        If the shapes differ. Broadcasting would compare all pairs, for which predicting the mean
        is best.
    """
    if predicted.shape != losses.shape:
        raise ValueError(
            f"predicted has shape {tuple(predicted.shape)} and losses {tuple(losses.shape)}; both "
            "must have the same shape"
        )
    return torch.nn.functional.mse_loss(predicted, losses)
