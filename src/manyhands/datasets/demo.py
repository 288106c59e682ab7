"""The demo data set: handwritten digits with a simulated crowd, without a download."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from manyhands.datasets.base import CrowdDataset
from manyhands.datasets.simulated_crowd import make_crowd
from manyhands.typing import FloatArray

__all__ = ["load_demo"]

# The digit that each digit is commonly mistaken for.
_LOOK_ALIKE = (6, 7, 3, 8, 9, 6, 0, 1, 3, 4)

_DESCRIPTION = """\
Demo: scikit-learn's 1797 handwritten digits (8 x 8 pixels, scaled to [0, 1]) with a simulated crowd
of 30 annotators, about 3 annotations for each of 1000 training images. Annotators share confusions
of digits that look alike; each also has an individual confusion, and some are spammers. Workloads
are skewed.

Digits: E. Alpaydin, C. Kaynak. Optical Recognition of Handwritten Digits. UCI Machine Learning
Repository 1998. doi:10.24432/C50P49"""


def load_demo(random_state: Any = 0) -> CrowdDataset:
    """Load the demo: 1000 / 297 / 500 digits, 10 classes, 30 simulated annotators.

    Parameters
    ----------
    random_state : int, RandomState or None
        Seed of the split and of the crowd.

    Returns
    -------
    CrowdDataset

    Examples
    --------
    >>> from manyhands.datasets import load_demo
    >>> data = load_demo()
    >>> data.X_train.shape, len(data.X_valid), len(data.X_test)
    ((1000, 64), 297, 500)
    >>> data.annotations.shape
    (1000, 30)
    """
    rng = check_random_state(random_state)
    X, y = load_digits(return_X_y=True)
    X = (X / 16.0).astype(np.float32)
    X_rest, X_test, y_rest, y_test = train_test_split(
        X, y, test_size=500, stratify=y, random_state=rng
    )
    X_train, X_valid, y_train, y_valid = train_test_split(
        X_rest, y_rest, test_size=297, stratify=y_rest, random_state=rng
    )
    annotations = make_crowd(
        y_train,
        X=X_train,
        noise_strength=(0.05, 0.4),
        common_noise=_look_alikes(0.35),
        spammers=0.07,
        activity=1.0 / np.sqrt(1.0 + rng.permutation(30)),
        random_state=rng,
    )
    return CrowdDataset(
        X_train=X_train,
        annotations=annotations,
        y_train=y_train,
        X_valid=X_valid,
        y_valid=y_valid,
        X_test=X_test,
        y_test=y_test,
        classes=annotations.classes,
        description=_DESCRIPTION,
        licence="CC BY 4.0 (digits); the annotations are simulated",
        name="demo",
    )


def _look_alikes(strength: float) -> FloatArray:
    """Build the common confusion [true, given]: each digit is mistaken for its look-alike."""
    return (1.0 - strength) * np.eye(10) + strength * np.eye(10)[list(_LOOK_ALIKE)]
