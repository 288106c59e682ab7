"""NeuCrowd's synthetic data, reconstructed."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import truncnorm
from sklearn.datasets import make_classification
from sklearn.utils import check_random_state

from evidence.data.sets import SimulatedCrowdDataset
from manyhands.datasets.simulated_crowd import make_crowd
from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray

_ANNOTATORS = {"syn1": 7, "syn2": 11}
_SIZES = (800, 200, 500)
_FEATURES = 1200
_PAPER = """\
Y. Hao, W. Ding, Z. Liu. NeuCrowd: Neural Sampling Network for Representation Learning with
Crowdsourced Labels. Knowledge and Information Systems 2022."""


def make_neucrowd_synthetic(which: str = "syn1", *, random_state: Any = 0) -> SimulatedCrowdDataset:
    """Make NeuCrowd's Syn1 or Syn2 [1]_: 800 / 200 / 500 instances, 1,200 features, 2 classes.

    Parameters
    ----------
    which : {"syn1", "syn2"}
        With 7 or 11 annotators, each of whom labels every training instance.
    random_state : int, RandomState or None
        With the same seed, both sets have the same instances.

    Returns
    -------
    SimulatedCrowdDataset
        X is float32; ``y_valid`` and ``y_test`` are true classes, not votes.

    Raises
    ------
    AnnotationError
        If ``which`` is unknown.

    Notes
    -----
    According to the paper (Section 4.1), there are four normal clusters with unit standard
    deviation around vertices of a hypercube with sides of length 2, two per class, made with
    `sklearn.datasets.make_classification`. An annotator errs with a probability drawn from a normal
    distribution with mean and standard deviation .1, truncated to [.01, .5]. What the paper leaves
    open, and what is done here:

    * **Features.** All 1,200 are informative, as in the part that the authors released: all its
      columns have a standard deviation near 20, as here; that of a noise column would be 1.
      Everything else is scikit-learn's default; 1 % of the true classes are drawn at random
      (``flip_y``).
    * **Mean .1** is the mean of the normal distribution before truncation; after truncation it is
      .133. With seven or eleven annotators a set's kappa depends on the draw: .55 (sd .07) and .55
      (sd .06) over the seeds 0 to 19; the paper prints .52 and .44.
    * **Mistakes** are equally likely on both classes, and independent.
    * **Validation part**: with true classes; the released one also has majority votes.

    References
    ----------
    .. [1] Y. Hao, W. Ding, Z. Liu. NeuCrowd: Neural Sampling Network for Representation Learning
       with Crowdsourced Labels. Knowledge and Information Systems 2022.

    Examples
    --------
    >>> from evidence.data import make_neucrowd_synthetic
    >>> data = make_neucrowd_synthetic("syn2")
    >>> data.X_train.shape, data.annotations.shape, len(data.y_valid), len(data.y_test)
    ((800, 1200), (800, 11), 200, 500)
    >>> data.annotations.n_annotations
    8800
    """
    if not isinstance(which, str) or which not in _ANNOTATORS:
        raise AnnotationError(
            f"which={which!r} is unknown; use {' or '.join(map(repr, _ANNOTATORS))}"
        )
    rng = check_random_state(random_state)
    X, y = make_classification(
        sum(_SIZES),
        _FEATURES,
        n_informative=_FEATURES,
        n_redundant=0,
        n_clusters_per_class=2,
        class_sep=1.0,
        random_state=rng,
    )
    X = X.astype(np.float32)
    valid, test = _SIZES[0], _SIZES[0] + _SIZES[1]
    n_annotators = _ANNOTATORS[which]
    table, truth = make_crowd(
        y[:valid],
        n_annotators=n_annotators,
        annotations_per_instance=n_annotators,
        noise="uniform",
        noise_strength=_error_rates(n_annotators, rng),
        classes=[0, 1],
        random_state=rng,
        return_truth=True,
    )
    return SimulatedCrowdDataset(
        X_train=X[:valid],
        annotations=table,
        y_train=y[:valid],
        X_valid=X[valid:test],
        y_valid=y[valid:test],
        X_test=X[test:],
        y_test=y[test:],
        classes=table.classes,
        description=f"NeuCrowd's {which.capitalize()}, reconstructed. {_PAPER}",
        licence="none needed: simulated",
        name=f"neucrowd_{which}",
        truth=truth,
    )


def _error_rates(n: int, rng: np.random.RandomState) -> FloatArray:
    """Draw from N(.1, .1) truncated to [.01, .5]."""
    mean, spread, low, high = 0.1, 0.1, 0.01, 0.5
    a, b = (low - mean) / spread, (high - mean) / spread
    rates: FloatArray = truncnorm.rvs(a, b, loc=mean, scale=spread, size=n, random_state=rng)
    return rates
