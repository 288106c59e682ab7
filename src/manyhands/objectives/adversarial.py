"""CrowdInG's objectives: the discriminator's loss, and counterfactual risks of the generator.

.. [1] Z. Chu and H. Wang. Improve learning from crowds via generative augmentation. KDD 2021.
.. [2] T. Joachims, A. Swaminathan and M. de Rijke. Deep learning with logged bandit feedback.
   ICLR 2018.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from manyhands.nn import AnnotationDiscriminator, AuxiliaryNetwork

COST_FORMS = ("non_saturating", "saturating")
"""Cost of a generated annotation: -log D (released code) and log(1 - D) (paper)."""

SPARSITY_FORMS = ("l1", "l2")
"""Mean of D over all classes (released code), and mean of its square (paper)."""

ADDED_TO_COSTS = 1e-3
"""Added to a probability before its logarithm, as in the released code; costs are <= log 1001."""


class Annotations(NamedTuple):
    """Some annotations of a batch, real or generated.

    Attributes
    ----------
    rows, annotators, labels : integer tensors of shape (m,)
    weights : tensor of shape (m,), optional
    """

    rows: Tensor
    annotators: Tensor
    labels: Tensor
    weights: Tensor | None = None


def discriminator_objective(
    discriminator: AnnotationDiscriminator,
    auxiliary: AuxiliaryNetwork,
    features: Tensor,
    proba: Tensor,
    real: Annotations,
    generated: Annotations,
    *,
    information_weight: float,
    sparsity_weight: float,
    sparsity_form: str = "l1",
) -> dict[str, Tensor]:
    """Return the loss of discriminator and auxiliary network: their negated part of Eq. 4 of [1]_.

    ``real`` = -log D(y) is averaged over the real annotations, ``generated`` = -log(1 - D(y)) over
    the generated ones; both means are halved. ``sparsity``, a penalty on D of all classes, and
    ``information`` = information_weight * -sum_c z_c log Q_c(y) add half their mean over either
    kind. A mean over no generated annotations is 0.

    Parameters
    ----------
    discriminator : AnnotationDiscriminator
    auxiliary : AuxiliaryNetwork
    features : tensor of shape (n, n_features)
    proba : tensor of shape (n, n_classes)
        The classifier's output z, detached.
    real, generated : Annotations
    information_weight : float
        Lambda; 0 leaves out Q.
    sparsity_weight : float
    sparsity_form : one of `SPARSITY_FORMS`
    """
    matrices = discriminator.class_matrices()
    rows, annotators, labels = (
        torch.cat([getattr(real, name), getattr(generated, name)])
        for name in ("rows", "annotators", "labels")
    )
    weights = _half_weights(real, generated)
    pairs = discriminator.embed(features, rows, annotators)
    scores = discriminator.scores(pairs, matrices)
    own = scores.gather(1, labels[:, None])[:, 0]
    m = len(real.labels)
    authentic = scores.sigmoid()
    penalty = authentic if sparsity_form == "l1" else authentic.square()
    terms = {
        "real": weights[:m] @ F.softplus(-own[:m]),
        "generated": weights[m:] @ F.softplus(own[m:]),
        "sparsity": sparsity_weight * (weights @ penalty.mean(dim=1)),
    }
    if information_weight:
        cost = information_cost(auxiliary(pairs, matrices, labels), proba[rows])
        terms["information"] = information_weight * (weights @ cost)
    return terms


def _half_weights(real: Annotations, generated: Annotations) -> Tensor:
    """Return weights of the real, then the generated annotations; each kind sums to one half."""
    device = real.labels.device
    own = torch.ones(len(real.labels), device=device) if real.weights is None else real.weights
    others = torch.ones(len(generated.labels), device=device)
    return torch.cat([own / max(1, len(own)), others / max(1, len(others))]) / 2


def authenticity_cost(scores: Tensor, form: str) -> Tensor:
    """Return the cost of generated annotations (L_G) from the logits of D.

    "non_saturating" is -log((D + f) / (1 + f)), at least 0; "saturating" is
    log((1 - D + f) / (1 + f)), at most 0. f is the small `ADDED_TO_COSTS` that bounds them. Both
    decrease with D.

    Examples
    --------
    >>> round(authenticity_cost(torch.tensor([0.0]), "non_saturating").item(), 2)
    0.69
    >>> round(authenticity_cost(torch.tensor([0.0]), "saturating").item(), 2)
    -0.69
    """
    if form == "saturating":
        return ((torch.sigmoid(-scores) + ADDED_TO_COSTS) / (1 + ADDED_TO_COSTS)).log()
    return -((torch.sigmoid(scores) + ADDED_TO_COSTS) / (1 + ADDED_TO_COSTS)).log()


def information_cost(log_posterior: Tensor, proba: Tensor) -> Tensor:
    """Return the negated bound on the mutual information (Eq. 3 of [1]_, without H(z)), (m,).

    Parameters
    ----------
    log_posterior : tensor of shape (m, n_classes)
        log Q(z | x, e, y).
    proba : tensor of shape (m, n_classes)
        The classifier's output z.
    """
    return -(proba * log_posterior).sum(dim=1)


def importance_ratios(log_proba: Tensor, logged: Tensor) -> Tensor:
    """Return the ratios G(y) / G_0(y), shape (m,), of annotations drawn from G_0.

    Both arguments are log probabilities, of shape (m,).
    """
    return (log_proba - logged).exp()


def counterfactual_risk(ratios: Tensor, cost: Tensor, *, mu: float, truncation: float) -> Tensor:
    """Return the mean of (cost - mu) min(ratio, truncation), Eq. 5 and 6 of [1]_.

    A ratio above ``truncation`` is truncated and has no gradient.

    Parameters
    ----------
    ratios, cost : tensors of shape (m,)
    mu : float
        Lagrange multiplier, which is subtracted from every cost.
    truncation : float

    Examples
    --------
    Ratios 2 and 9 (truncated to 5), costs 1 and 3, mu = 1: (0 * 2 + 2 * 5) / 2.

    >>> ratios, cost = torch.tensor([2.0, 9.0]), torch.tensor([1.0, 3.0])
    >>> counterfactual_risk(ratios, cost, mu=1.0, truncation=5.0).item()
    5.0
    """
    return ((cost - mu) * ratios.clamp(max=truncation)).mean()


def self_normalized_risk(ratios: Tensor, cost: Tensor) -> Tensor:
    """Return the expected cost of a policy from another's log [2]_: sum(ratio cost) / sum(ratio).

    A constant added to all costs shifts this estimate by exactly that constant, unlike the plain
    mean. Choices of mu can therefore be compared by it.
    """
    total = ratios.sum().clamp_min(torch.finfo(ratios.dtype).tiny)
    return (ratios @ cost) / total


def effective_sample_size(ratios: Tensor) -> Tensor:
    """Return the effective share of a weighted sample's size: (sum w)^2 / (m sum w^2), in [0, 1].

    Examples
    --------
    >>> effective_sample_size(torch.tensor([1.0, 1.0, 0.0, 0.0])).item()
    0.5
    """
    squares = ratios.square().sum().clamp_min(torch.finfo(ratios.dtype).tiny)
    return ratios.sum().square() / (len(ratios) * squares)
