"""Label inference of ICED: majority votes, or the hard or soft EM of section 2.3.

.. [1] W. Wang, J. Thekinen, X. Liu, Z. Liu and J. Tang. Learning from imbalanced crowdsourced
   labeled data. SDM 2022.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast
from warnings import catch_warnings, simplefilter

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.exceptions import NotIdentifiableWarning
from manyhands.inference import DawidSkene
from manyhands.inference.votes import make_votes, vote_shares
from manyhands.typing import FloatArray

STARVED = 2 / 3
"""Share of a class's instances by soft EM below which hard EM is said to starve the class."""


@dataclass(frozen=True)
class LabelInference:
    """Inference of labels from annotations by the parameters of `ICEDClassifier`.

    Attributes
    ----------
    em : {"hard", "soft", None}
    prior : {"uniform", "estimated"}
    smoothing : float
    max_iter : int
    """

    em: str | None
    prior: str
    smoothing: float
    max_iter: int

    def aggregator(self, n_classes: int) -> DawidSkene:
        """Return Dawid-Skene with ``smoothing`` in each entry of a confusion matrix."""
        return DawidSkene(
            max_iter=self.max_iter,
            tol=1e-5,
            dependence=0,
            accelerate=False,
            confusion_prior="diagonal",
            diagonal=1.0 / n_classes,
            prior_strength=self.smoothing * n_classes,
            class_prior=self.prior,
            n_subtypes=1,
            em=self.em or "soft",
            abstentions="ignore",
        )

    def posterior(self, table: AnnotationTable, start: FloatArray | None = None) -> FloatArray:
        """Infer the class probabilities of all instances.

        Parameters
        ----------
        table : AnnotationTable
        start : array of shape (n_instances, n_classes), optional
            Initial posterior of EM; default: the vote shares.

        Returns
        -------
        array of shape (n_instances, n_classes)
        """
        if self.em is None:
            return majority(table)
        if self.em == "hard" and start is not None:
            start = most_probable(start)
        with catch_warnings():
            # The class's notes say that the labels are then the annotations.
            simplefilter("ignore", NotIdentifiableWarning)
            return self.aggregator(table.n_classes).fit(table, start=start).posterior_

    def starved_class(
        self, table: AnnotationTable, posterior: FloatArray
    ) -> tuple[int, float, float] | None:
        """Return the class of which hard EM with an estimated prior finds least of soft EM's.

        Parameters
        ----------
        table : AnnotationTable
        posterior : array of shape (n_instances, n_classes)
            Result of this inference for the table.

        Returns
        -------
        (class code, instances found, instances found by soft EM), or None if no class is starved
        """
        if (self.em, self.prior) != ("hard", "estimated"):
            return None
        soft = replace(self, em="soft").posterior(table)
        annotated = table.annotations_per_instance() > 0
        found, expected = (most_probable(p)[annotated].sum(axis=0) for p in (posterior, soft))
        starved = np.flatnonzero(found < STARVED * expected)
        if not len(starved):
            return None
        c = starved[np.argmin(found[starved] / expected[starved])]
        return int(c), float(found[c]), float(expected[c])


def majority(table: AnnotationTable) -> FloatArray:
    """Return the vote shares, (n_instances, n_classes); uniform for unannotated instances."""
    return vote_shares(make_votes(table).answers)


def most_probable(posterior: FloatArray) -> FloatArray:
    """Return one-hot rows of the most probable classes; tied classes share the 1."""
    top = posterior >= posterior.max(axis=1, keepdims=True) - 1e-9
    return cast(FloatArray, top / top.sum(axis=1, keepdims=True))
