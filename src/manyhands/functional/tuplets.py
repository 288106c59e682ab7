"""n-tuplets of embedded instances (NeuCrowd). Shapes: m tuplets, k members each, d dimensions.

.. [1] Y. Hao, W. Ding and Z. Liu. NeuCrowd: neural sampling network for representation learning
   with crowdsourced labels. Knowledge and Information Systems 64, 2022.
"""

from __future__ import annotations

import torch
from torch import Tensor

SOFTMAX_FORMS = ("paper", "code")
"""How the assurance enters the softmax; see `tuplet_nll`."""

EPSILON = 1e-12
"""Added to squared distances: the square root has no derivative at 0."""


def robust_anchors(
    embedding: Tensor,
    assurance: Tensor,
    classes: Tensor,
    n_classes: int,
    *,
    normalize: bool = True,
) -> Tensor:
    r"""Return the robust anchor of each class: the assurance-weighted centre of its anchors [1]_.

    :math:`e^*_r = \sum_j A(e_{c_j}) e^*_{c_j}` (Def. 4), over the anchors of each class.

    Parameters
    ----------
    embedding : tensor of shape (m, d)
        Embeddings of the anchors.
    assurance : tensor of shape (m,)
    classes : integer tensor of shape (m,)
        Class of each anchor.
    n_classes : int
    normalize : bool, default=True
        Whether to divide by the sum of the assurances, which makes the robust anchor a mean of
        embeddings. False gives the sum as printed, whose length grows with the batch.

    Returns
    -------
    tensor of shape (n_classes, d)
        Zeros for a class without anchors. If the assurances of a class are all 0, its anchors
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
    r"""Return the negative log probability of each tuplet's positive given its anchor [1]_.

    The similarity is :math:`R_j = C - \|f_j - f^*\|_2` (Section 3.3.3). The form "paper" is the
    softmax over the members of :math:`\eta A_j R_j`. The form "code", as released by the authors,
    is the softmax of :math:`\eta R_j + \log A_j`: the assurance multiplies the exponential, C
    cancels and a member of assurance 0 drops out.

    Parameters
    ----------
    anchors : tensor of shape (m, d)
    members : tensor of shape (m, k, d)
        The positive, then the negatives.
    assurance : tensor of shape (m, k)
        Assurance of the members.
    eta, constant : float
        :math:`\eta` and :math:`C`.
    form : one of `SOFTMAX_FORMS`

    Returns
    -------
    tensor of shape (m,)
    """
    squared = (members - anchors[:, None]).square().sum(dim=2)
    similarity = constant - (squared + EPSILON).sqrt()
    if form == "paper":
        logits = eta * assurance * similarity
    else:
        # Like the released code, adds 1e-7 to keep the loss of a positive without assurance finite.
        logits = eta * similarity + (assurance + 1e-7).log()
    return -logits.log_softmax(dim=1)[:, 0]
