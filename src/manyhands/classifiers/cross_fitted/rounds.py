"""The EM rounds of cross-fitted EM: out-of-fold prediction, calibration, E-step and M-step."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from manyhands.classifiers.cross_fitted.out_of_fold import OutOfFold
from manyhands.fitting.context import Fit
from manyhands.fitting.latent import LatentClasses
from manyhands.inference.em import confusion_counts, log_likelihoods
from manyhands.inference.probability import floored_log, normalise_rows
from manyhands.linear.calibration import calibrate, calibrated_nll, combine
from manyhands.nn import Ensemble, FixedConfusionModule
from manyhands.typing import AnyArray, FloatArray


class Rounds:
    """The training step that runs one round of EM.

    Parameters
    ----------
    fit : Fit
        Its module gets the confusion matrices and the members' weights. Its facts are what the
        history tells about the round.
    latent : LatentClasses
    posterior : array of shape (m, n_classes)
        Class probabilities of the annotated instances, from which EM starts.
    out_of_fold : OutOfFold
    classes : array of shape (n_classes,)
    crowd_strength : float
        See `count_confusions`.

    Attributes
    ----------
    confusion : array of shape (n_annotators, n_classes, n_classes)
    weights, shift : arrays of shape (n_members,) and (n_classes,)
        See `calibrate`.
    """

    def __init__(
        self,
        fit: Fit[FixedConfusionModule, Any],
        latent: LatentClasses,
        posterior: FloatArray,
        out_of_fold: OutOfFold,
        *,
        classes: AnyArray,
        crowd_strength: float,
    ) -> None:
        self.module, self.facts = fit.module, fit.facts
        self.latent = latent
        self.posterior = posterior
        self.out_of_fold = out_of_fold
        self.classes = classes
        self.crowd_strength = crowd_strength
        n_members = 1 + out_of_fold.linear
        self.weights = np.full(n_members, 1.0 / n_members)
        self.shift = np.zeros(posterior.shape[1])
        self._m_step()

    def start_epoch(self, epoch: int) -> None:
        """Nothing to prepare."""

    def __call__(self, batch: Any) -> dict[str, Tensor]:
        """Run a round; the loss is that of the annotations under the new prior."""
        log_probas = self.out_of_fold.log_proba(self.posterior)
        log_likelihood = log_likelihoods(self.latent.votes, floored_log(self.confusion))
        equal = np.full(len(log_probas), 1.0 / len(log_probas))
        uncalibrated = calibrated_nll(log_probas, log_likelihood, equal, np.zeros_like(self.shift))
        self.weights, self.shift = calibrate(log_probas, log_likelihood, self.weights, self.shift)
        prior = combine(log_probas, self.weights, self.shift)
        self.posterior, evidence = self.latent.posterior(np.exp(prior), self.confusion)
        self._m_step()
        self._set_facts(uncalibrated)
        return {"nll": torch.tensor(-float(evidence.mean()), dtype=torch.float64)}

    def _m_step(self) -> None:
        """Count the confusion matrices; the module gets them, and the members' weights."""
        self.confusion = count_confusions(self.latent, self.posterior, self.crowd_strength)
        self.module.confusions.copy_(torch.from_numpy(self.confusion))
        share = torch.from_numpy(self.weights / self.weights.sum())
        cast(Ensemble, self.module.classifier.backbone).weights.copy_(share)

    def _set_facts(self, uncalibrated: float) -> None:
        shares = dict(zip(self.classes, self.posterior.mean(axis=0).tolist(), strict=True))
        members = dict(zip(("network", "linear"), self.weights.tolist(), strict=False))
        self.facts.clear()
        self.facts["nll_uncalibrated"] = uncalibrated
        self.facts |= {f"weight_{name}": weight for name, weight in members.items()}
        self.facts |= {f"share_{name}": share for name, share in shares.items()}

    # -- for a checkpoint -------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return what the next round, or the last training, starts from."""
        regressions = self.out_of_fold.regressions
        return {
            "posterior": torch.from_numpy(self.posterior),
            "confusion": torch.from_numpy(self.confusion),
            "weights": torch.from_numpy(self.weights),
            "shift": torch.from_numpy(self.shift),
            "regressions": None if regressions is None else list(regressions),
            "facts": dict(self.facts),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name in ("posterior", "confusion", "weights", "shift"):
            setattr(self, name, state[name].cpu().numpy())
        if state["regressions"] is not None:
            device = self.out_of_fold.rows.device
            weight, bias = (part.to(device) for part in state["regressions"])
            self.out_of_fold.regressions = weight, bias
        self.facts.clear()
        self.facts |= state["facts"]


def count_confusions(latent: LatentClasses, posterior: FloatArray, strength: float) -> FloatArray:
    """M-step: expected counts, plus ``strength`` annotations per row as the crowd gives them.

    Parameters
    ----------
    latent : LatentClasses
    posterior : array of shape (m, n_classes)
    strength : float

    Returns
    -------
    array of shape (n_annotators, n_classes, n_classes), [annotator, true, given]
    """
    counts = confusion_counts(latent.votes, posterior)
    # If nothing is known about a class, the crowd's row is more likely right than wrong.
    pooled = normalise_rows(counts.sum(axis=0) + 0.1 + np.eye(counts.shape[1]))
    return normalise_rows(counts + strength * pooled)
