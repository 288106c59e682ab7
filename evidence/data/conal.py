"""CoNAL's synthesized data, reconstructed: crowds with common noise and known truth.

References
----------
.. [1] Z. Chu, J. Ma, H. Wang. Learning from Crowds by Modeling Common Confusions. AAAI 2021,
   "Experiments on Synthesized Datasets".
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from evidence.data.sets import SimulatedCrowdDataset
from manyhands.datasets.base import PathLike
from manyhands.datasets.cifar10 import load_cifar10n
from manyhands.datasets.simulated_crowd import make_crowd
from manyhands.exceptions import AnnotationError
from manyhands.typing import AnyArray, FloatArray

_PATTERNS = ("asymmetric", "symmetric")
_SIZES = (8000, 1000, 1000)
_CLASSES = 6
_PAPER = "Z. Chu, J. Ma, H. Wang. Learning from Crowds by Modeling Common Confusions. AAAI 2021."

_CIFAR10_VALID = 2000
# Pairs of CIFAR-10 classes that are mistaken for each other: airplane and bird, automobile and
# truck, cat and dog, deer and horse, and the remaining frog and ship.
_SIMILAR = (2, 9, 0, 5, 7, 3, 8, 4, 6, 1)


def make_conal_synthetic(
    common_noise: str = "asymmetric",
    common_strength: float = 0.7,
    common_proportion: float = 0.5,
    *,
    individual_strength: float = 0.7,
    n_features: int = 20,
    separation: float = 0.7,
    gate_temperature: float = 10.0,
    random_state: Any = 0,
) -> SimulatedCrowdDataset:
    """Make CoNAL's Synthetic set [1]_: 10,000 instances, 6 classes, 30 annotators, known truth.

    8,000 training instances have about 3 annotations each; 1,000 instances are for validation,
    1,000 for testing.

    Parameters
    ----------
    common_noise : {"asymmetric", "symmetric"}
        Common confusion: each class is mistaken for one other class, or classes are paired and
        mistaken for each other.
    common_strength : float in [0, 1]
        Probability of a mistake under the common confusion; .4 to .8 in the paper.
    common_proportion : float in [0, 1]
        Mean probability that an annotation comes from the common confusion; .3 to .7 and 0 in the
        paper, where 0 means no common noise.
    individual_strength : float in [0, 1]
        Probability of a mistake under the individual confusion, which is asymmetric (see Notes).
    n_features : int
    separation : float
        Standard deviation of each coordinate of the class means.
    gate_temperature : float
        Spread of the probability of the common confusion; see `make_crowd`.
    random_state : int, RandomState or None
        With the same seed, instances, annotators' target classes and assignments do not depend on
        strength or proportion, so settings can be compared.

    Returns
    -------
    SimulatedCrowdDataset
        With ``truth``.

    Raises
    ------
    AnnotationError
        If a parameter is out of range.

    Notes
    -----
    What the paper leaves open, and what is done here:

    * Features: there are 20. Each coordinate of a class mean is drawn from N(0, separation²), and
      instances are drawn around it with unit variance. All classes have the same probability.
    * Separation: at .7, linear discriminant analysis on the gold labels, which is the correct
      model, reaches a test accuracy of .94 for ``random_state=0``, and .87 to .98 (mean .93) over
      the seeds 0 to 9: neither perfect nor poor. At .5 the mean is .80. At 1.5 it is 1.00, and
      nothing can be learned from a crowd's mistakes.
    * Strength: the paper calls it the sum of the off-diagonal entries, and reports "nearly 42 %"
      flipped annotations for a proportion of .7 and a strength of .6. It is therefore the
      probability of a mistake. All of it goes to the one target of a class.
    * The individual strength is .7 as printed. An annotator is then wrong in 70 % of the individual
      annotations, yet the paper calls such annotators "of high quality", which would fit
      ``individual_strength=0.3``. With .7, and strong common noise in half of the annotations, more
      annotations name the common mistake than the truth.
    * Gate: Eq. (3) with unit embeddings, times ``gate_temperature``; with the printed factor of 1
      it would stay close to its mean. Its bias is set such that its mean is ``common_proportion``.

    References
    ----------
    .. [1] Z. Chu, J. Ma, H. Wang. Learning from Crowds by Modeling Common Confusions. AAAI 2021,
       "Experiments on Synthesized Datasets".

    Examples
    --------
    >>> from evidence.data import make_conal_synthetic
    >>> data = make_conal_synthetic("symmetric", common_strength=0.6)
    >>> data.annotations.shape, len(data.y_valid), len(data.y_test)
    ((8000, 30), 1000, 1000)
    >>> data.truth.common_confusion.diagonal()
    array([0.4, 0.4, 0.4, 0.4, 0.4, 0.4])
    """
    _check_pattern(common_noise)
    if not n_features >= 1:
        raise AnnotationError(f"n_features={n_features!r} must be at least 1")
    if not separation >= 0:
        raise AnnotationError(f"separation={separation!r} must be nonnegative")
    rng = check_random_state(random_state)
    means = separation * rng.standard_normal((_CLASSES, n_features))
    y = rng.randint(_CLASSES, size=sum(_SIZES))
    X = (means[y] + rng.standard_normal((len(y), n_features))).astype(np.float32)
    valid, test = _SIZES[0], _SIZES[0] + _SIZES[1]
    return _simulated(
        X,
        y,
        (valid, test),
        np.arange(_CLASSES),
        common_noise=common_noise,
        common_strength=common_strength,
        common_proportion=common_proportion,
        individual_strength=individual_strength,
        gate_temperature=gate_temperature,
        rng=rng,
        name="conal_synthetic",
        description=(
            f"CoNAL's Synthetic set, reconstructed, with {common_noise} common noise. {_PAPER}"
        ),
        licence="none needed: simulated",
    )


def make_conal_cifar10(
    common_noise: str = "asymmetric",
    common_strength: float = 0.7,
    common_proportion: float = 0.5,
    *,
    individual_strength: float = 0.7,
    gate_temperature: float = 10.0,
    random_state: Any = 0,
    data_home: PathLike | None = None,
) -> SimulatedCrowdDataset:
    """Make CoNAL's CIFAR-10 set [1]_ from 12,000 of its images, with 30 simulated annotators.

    8,000 training images have about 3 annotations each; 2,000 images are for validation and 2,000
    for testing (the paper has 40,000, 10,000 and 10,000).

    Parameters
    ----------
    common_noise, common_strength, common_proportion, individual_strength, gate_temperature : \
as in `make_conal_synthetic`
        Symmetric common noise pairs similar classes: airplane and bird (the paper's example),
        automobile and truck, cat and dog, deer and horse, and the remaining frog and ship.
    random_state : int, RandomState or None
        Seed of the crowd; the images and splits are fixed.
    data_home : str or Path, optional
        Folder of data sets, with ``cifar10n``; default: the environment variable MANYHANDS_DATA,
        else the user's cache.

    Returns
    -------
    SimulatedCrowdDataset
        X is float32 of shape (n, 3, 32, 32), from 0 to 1.

    Raises
    ------
    AnnotationError
        If a parameter is out of its range.
    DataNotFoundError
        If the images are not found; they cannot be fetched.

    References
    ----------
    .. [1] Z. Chu, J. Ma, H. Wang. Learning from Crowds by Modeling Common Confusions. AAAI 2021,
       "Experiments on Synthesized Datasets".
    """
    _check_pattern(common_noise)
    images = load_cifar10n(data_home, features="images")
    X = np.concatenate([np.asarray(images.X_train), np.asarray(images.X_test)])
    test = len(images.y_train)
    return _simulated(
        X,
        np.concatenate([images.y_train, np.asarray(images.y_test)]),
        (test - _CIFAR10_VALID, test),
        images.classes,
        common_noise=common_noise,
        common_strength=common_strength,
        common_proportion=common_proportion,
        individual_strength=individual_strength,
        gate_temperature=gate_temperature,
        rng=check_random_state(random_state),
        name="conal_cifar10",
        description=f"CIFAR-10 with a simulated crowd, {common_noise} common noise. {_PAPER}",
        licence="CC BY-NC 4.0 (annotations, which are not used here); images: none stated",
        pairs=_SIMILAR,
    )


def _check_pattern(common_noise: Any) -> None:
    if not isinstance(common_noise, str) or common_noise not in _PATTERNS:
        raise AnnotationError(
            f"common_noise={common_noise!r} is unknown; use {' or '.join(map(repr, _PATTERNS))}"
        )


def _simulated(
    X: FloatArray,
    y: AnyArray,
    splits: tuple[int, int],
    classes: AnyArray,
    *,
    common_noise: str,
    common_strength: float,
    common_proportion: float,
    individual_strength: float,
    gate_temperature: float,
    rng: np.random.RandomState,
    name: str,
    description: str,
    licence: str,
    pairs: tuple[int, ...] | None = None,
) -> SimulatedCrowdDataset:
    """Split at the two given rows, and simulate annotations of the first part."""
    valid, test = splits
    noise: Any = common_noise
    if pairs is not None and common_noise == "symmetric":
        eye = np.eye(len(classes))
        noise = (1 - common_strength) * eye + common_strength * eye[list(pairs)]
    table, truth = make_crowd(
        y[:valid],
        X=X[:valid],
        noise="asymmetric",
        noise_strength=individual_strength,
        common_noise=noise,
        common_strength=common_strength,
        common_proportion=common_proportion,
        gate_temperature=gate_temperature,
        classes=classes,
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
        description=description,
        licence=licence,
        name=name,
        truth=truth,
    )
