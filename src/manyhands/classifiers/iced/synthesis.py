"""Synthesis of ICED: instances of the rare classes, and their annotations (section 2.4).

.. [1] W. Wang, J. Thekinen, X. Liu, Z. Liu and J. Tang. Learning from imbalanced crowdsourced
   labeled data. SDM 2022.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor

from manyhands.annotations import AnnotationTable
from manyhands.annotations.encoding import encode
from manyhands.classifiers.iced.inference import most_probable
from manyhands.exceptions import AnnotationError
from manyhands.fitting.context import Fit
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.nn import SynthesisModule
from manyhands.sampling import CrowdSMOTE, FewCandidatesWarning
from manyhands.training import mixed_epoch
from manyhands.training.seeding import set_random_states
from manyhands.typing import AnyArray, FloatArray, IntArray

REFITS_AT_FIRST = 5
"""Factor of ``refit_epochs`` before the first round: the warm-up changes the embedding more."""


@dataclass(eq=False)
class SyntheticInstances:
    """Synthetic instances of one round.

    Attributes
    ----------
    points : tensor of shape (n_synthetic, ...)
        As `SynthesisModule.mixed_logits` takes them.
    table : AnnotationTable
        Annotations of the observed and then of the synthetic instances.
    intended : integer array of shape (n_synthetic,) or None
        Code of the class for which each was made; None if the sampler does not say.
    few : dict of str to int
        Classes with fewer than two instances to make others from, and their number.
    """

    points: Tensor
    table: AnnotationTable
    intended: IntArray | None
    few: dict[str, int]


class Synthesis:
    """Make synthetic instances in the space of a `SynthesisModule`, and refit its decoder.

    Parameters
    ----------
    fit : Fit
    classes : array of shape (n_classes,)
    sampler : object with ``fit_resample``, or None
        None is `CrowdSMOTE`.
    needs_intended : bool
        Whether a sampler must say for which classes it made instances.
    refit_epochs : int
    lr, weight_decay : float
        For the optimizer of the decoder.
    """

    def __init__(
        self,
        fit: Fit[SynthesisModule, Any],
        classes: AnyArray,
        *,
        sampler: Any,
        needs_intended: bool,
        refit_epochs: int,
        lr: float,
        weight_decay: float,
    ) -> None:
        self.module, self.features, self.table = fit.module, fit.features, fit.table
        self.rows = fit.batches.instances
        self.batch_size = fit.batches.batch_size
        self.facts = fit.facts
        self.classes = classes
        self.sampler = sampler
        self.needs_intended = needs_intended
        self.refit_epochs = refit_epochs
        self.decoder_optimizer: torch.optim.Optimizer | None = None
        if self.module.decoder is not None:
            self.decoder_optimizer = torch.optim.Adam(
                self.module.decoder.parameters(), lr=lr, weight_decay=weight_decay
            )

    def make(self, epoch: int, rng: np.random.Generator) -> SyntheticInstances:
        """Refit the decoder, and make instances of the rare classes and their annotations.

        Parameters
        ----------
        epoch : int
            The round, from 0.
        rng : Generator
            Seeds the sampler.

        Returns
        -------
        SyntheticInstances
        """
        module = self.module
        module.eval()
        with torch.no_grad():
            space = self._encode()
        if module.decoder is not None:
            self.facts |= self.refit(space, self.refit_epochs * (1 if epoch else REFITS_AT_FIRST))
        labels = self._labels()
        sampler = CrowdSMOTE() if self.sampler is None else clone(self.sampler, safe=False)
        with catch_warnings():
            # ICEDClassifier warns once, after the last round.
            simplefilter("ignore", FewCandidatesWarning)
            resampled, table = set_random_states(sampler, rng).fit_resample(
                space.cpu().numpy(), self.table, labels=labels
            )
        points = torch.from_numpy(_new_points(resampled, table, self.table, sampler))
        few = {
            str(each.label): each.n_candidates
            for each in getattr(sampler, "resampling_", [])
            if each.n_candidates < 2
        }
        intended = self._intended(sampler)
        with torch.no_grad():
            parts = torch.split(points.to(space), PREDICT_BATCH)
            decoded = [module.decode(z) for z in parts]
        return SyntheticInstances(torch.cat(decoded) if decoded else points, table, intended, few)

    def _encode(self) -> Tensor:
        """Map all instances into the space; zeros for those without annotations."""
        parts = [self.module.encode(x) for x in self.features.batches(self.rows, PREDICT_BATCH)]
        known = torch.cat(parts)
        space = known.new_zeros(self.table.n_instances, known.shape[1])
        space[self.rows] = known
        return space

    def _labels(self) -> AnyArray:
        """Return the inferred class of each observed instance; None if its classes tie."""
        posterior = self.module.posterior.cpu().numpy()
        sure = (most_probable(posterior) > 0).sum(axis=1) == 1
        labels = np.full(len(posterior), None, dtype=object)
        labels[sure] = self.classes[posterior[sure].argmax(axis=1)].tolist()
        return labels

    def refit(self, space: Tensor, n_epochs: int) -> dict[str, float]:
        """Fit the decoder to the present embedding, which stays fixed.

        Returns
        -------
        dict
            ``reconstruction``, the error in the last epoch; empty without epochs.
        """
        decoder, optimizer = self.module.decoder, self.decoder_optimizer
        assert decoder is not None
        assert optimizer is not None
        error = space.new_zeros(())
        for _ in range(n_epochs):
            total = space.new_zeros(())
            for batch in mixed_epoch(self.features, self.rows, self.batch_size):
                scaled = self.module.classifier.scaler(batch.x)
                loss = torch.nn.functional.mse_loss(decoder(space[batch.instances]), scaled)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += loss.detach() * len(batch.instances)
            error = total / len(self.rows)
        return {"reconstruction": float(error)} if n_epochs else {}

    def _intended(self, sampler: Any) -> IntArray | None:
        """Return the codes of the classes for which a sampler made instances."""
        intended = getattr(sampler, "synthetic_labels_", None)
        if intended is not None:
            codes, _ = encode(
                intended, self.classes, argument="synthetic_labels_", vocabulary_name="classes_"
            )
            return codes
        if self.needs_intended:
            raise AnnotationError(
                "synthetic_labels='intended' needs a sampler whose synthetic_labels_ has the "
                f"class that each new instance was made for, and {type(sampler).__name__} has "
                "none; use 'inferred'"
            )
        return None


def _new_points(
    resampled: Any, table: AnnotationTable, observed: AnnotationTable, sampler: Any
) -> FloatArray:
    """Return the points that a sampler added, shape (n_synthetic, d).

    Raises
    ------
    AnnotationError
        If the sampler did anything except adding instances and annotations.
    """
    n, wrong = observed.n_instances, None
    points = resampled.toarray() if hasattr(resampled, "toarray") else np.asarray(resampled)
    same = ("classes", "annotators")
    if not isinstance(table, AnnotationTable) or points.ndim != 2 or len(points) < n:
        wrong = f"returned {type(table).__name__} and X of shape {np.shape(resampled)}"
    elif len(points) != table.n_instances:
        wrong = f"returned {len(points)} rows of X for {table.n_instances} instances"
    elif not all(np.array_equal(getattr(table, a), getattr(observed, a)) for a in same):
        wrong = "changed the classes or annotators of the table"
    elif not np.isfinite(points).all():
        wrong = "made instances that are not finite"
    if wrong is not None:
        raise AnnotationError(
            f"sampler: {type(sampler).__name__}.fit_resample {wrong}; it must return the {n} "
            "instances it was given followed by new ones, and an AnnotationTable of all of them"
        )
    return np.ascontiguousarray(points[n:], dtype=np.float32)
