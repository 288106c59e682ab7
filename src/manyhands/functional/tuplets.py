"""n-tuplets of embedded instances (NeuCrowd). Letters: m tuplets, k members each, d dimensions.

.. [1] Y. Hao, W. Ding and Z. Liu. NeuCrowd: neural sampling network for representation learning
   with crowdsourced labels. Knowledge and Information Systems 64, 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor

SOFTMAX_FORMS = ("paper", "code")
"""Where the assurance stands in the softmax: see `tuplet_nll`."""

NEAR = 1e-12
"""Added to squared distances: the root has no derivative at 0."""


def robust_anchors(
    embedding: Tensor,
    assurance: Tensor,
    classes: Tensor,
    n_classes: int,
    *,
    normalize: bool = True,
) -> Tensor:
    r"""Robust anchor of every class: the assured centre of a batch's anchors [1]_.

    :math:`e^*_r = \sum_j A(e_{c_j}) e^*_{c_j}` (Def. 4), over the anchors of each class.

    Parameters
    ----------
    embedding : tensor of shape (m, d)
        The anchors, embedded.
    assurance : tensor of shape (m,)
    classes : integer tensor of shape (m,)
        Class of every anchor.
    n_classes : int
    normalize : bool, default=True
        Divide by the sum of the assurances, so that the anchor is a mean of embeddings; False: the
        sum as it is printed, whose length grows with the batch.

    Returns
    -------
    tensor of shape (n_classes, d)
        Zeros for a class without anchors. Where the assurances of a class are all 0, its anchors
        count equally.
    """
    chosen = torch.nn.functional.one_hot(classes, n_classes).to(embedding)
    weight = chosen * assurance[:, None]
    total = weight.sum(dim=0)
    weight = torch.where(total > 0, weight, chosen)
    anchors = weight.T @ embedding
    if not normalize:
        return anchors
    mass = weight.sum(dim=0)
    return anchors / torch.where(mass > 0, mass, torch.ones_like(mass))[:, None]


def tuplet_nll(
    anchors: Tensor,
    members: Tensor,
    assurance: Tensor,
    *,
    eta: float,
    constant: float = 1.0,
    form: str = "paper",
) -> Tensor:
    r"""Negative log probability of every tuplet's positive given its anchor [1]_.

    With the similarity :math:`R_j = C - \|f_j - f^*\|_2` (Section 3.3.3), "paper": the softmax over
    the members of :math:`\eta A_j R_j`; "code", what the authors released: of
    :math:`\eta R_j + \log A_j`, the assurance before the exponential, where C cancels and a member
    of assurance 0 drops out.

    Parameters
    ----------
    anchors : tensor of shape (m, d)
    members : tensor of shape (m, k, d)
        The positive, then the negatives.
    assurance : tensor of shape (m, k)
        Of the members.
    eta, constant : float
        :math:`\eta` and :math:`C`.
    form : one of `SOFTMAX_FORMS`

    Returns
    -------
    tensor of shape (m,)
    """
    squared = (members - anchors[:, None]).square().sum(dim=2)
    similarity = constant - (squared + NEAR).sqrt()
    if form == "paper":
        logits = eta * assurance * similarity
    else:
        # Of a positive without assurance the loss would be infinite, as 1e-7 keeps it in the code.
        logits = eta * similarity + (assurance + 1e-7).log()
    return -logits.log_softmax(dim=1)[:, 0]
