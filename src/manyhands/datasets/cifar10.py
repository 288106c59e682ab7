"""CIFAR-10H and CIFAR-10N: images of CIFAR-10 with real annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.fetch import DataSource, load_set
from manyhands.exceptions import AnnotationError
from manyhands.typing import FloatArray

__all__ = ["load_cifar10h", "load_cifar10n"]

_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
_CLASSES_FILE = "2ce042b1e0b48db4bb214408e6414ba18b2731c24af244f2d6c112fddf31af00"

_FEATURES = """\
Features "compact": 256 principal components of k-means features (A. Coates, A. Y. Ng, 2011: 400
centroids of whitened 6 x 6 patches, pooled over quarters of the image), all fitted on the training
images without labels; far weaker than those of a pretrained network. Features "images": the
pixels, (3, 32, 32), from 0 to 1. Images: A. Krizhevsky. Learning Multiple Layers of Features from
Tiny Images. 2009."""

_CIFAR10H_DESCRIPTION = """\
CIFAR-10H: the 10000 test images of CIFAR-10 are the training part here. 2567 Amazon Mechanical Turk
annotators labelled them, with 50 annotations per image. The published set has 514200 annotations by
2571 annotators; here, those of each image were sorted by annotator and cut at 50. The 3000 test
images are training images of CIFAR-10. The images were decoded from JPEG copies (lossy).

J. C. Peterson, R. M. Battleday, T. L. Griffiths, O. Russakovsky. Human Uncertainty Makes
Classification More Robust. ICCV 2019.

""" + _FEATURES.format("cifar10h")

_CIFAR10N_DESCRIPTION = """\
CIFAR-10N: 10000 training images of CIFAR-10, each labelled by 3 Amazon Mechanical Turk annotators.
The labels are real, but the annotators assigned to them cannot be trusted: the published assignment
is no better than chance at telling annotators apart. The 2000 test images are also from CIFAR-10's
training part.

J. Wei, Z. Zhu, H. Cheng, T. Liu, G. Niu, Y. Liu. Learning with Noisy Labels Revisited: A Study
Using Real-World Human Annotations. ICLR 2022.

""" + _FEATURES.format("cifar10n")


def load_cifar10h(data_home: PathLike | None = None, features: str = "compact") -> CrowdDataset:
    """Load CIFAR-10H: 10000 / - / 3000 images, 10 classes, 2567 annotators, 500000 annotations.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets; default: the environment variable MANYHANDS_DATA, else the user's
        cache. The set cannot be fetched: the public source of the annotations has no images.
    features : {"compact", "images"}
        "compact": 256 values per image, for quick experiments (logistic regression on the gold
        labels reaches a test accuracy of .61). "images": pixels from 0 to 1, of shape
        (n, 3, 32, 32).

    Returns
    -------
    CrowdDataset
        X is float32. Classes are names; ``annotations.instances`` are "test_<i>", where i is the
        position in CIFAR-10's test part. There is no validation part.

    Raises
    ------
    AnnotationError
        If ``features`` is unknown.
    DataNotFoundError
        If the set is not found, or a file has an unexpected checksum.

    Notes
    -----
    Every image has exactly 50 of the roughly 51 annotations that were published (500,000 of 514,200
    in total): those with the lowest annotator numbers. Annotators with high numbers therefore have
    fewer than the 200 annotations that each gave, and 4 of 2,571 have none. The licence of the
    annotations is CC BY-NC-SA 4.0.

    References
    ----------
    J. C. Peterson, R. M. Battleday, T. L. Griffiths, O. Russakovsky. Human Uncertainty Makes
    Classification More Robust. ICCV 2019.

    Examples
    --------
    >>> from manyhands.datasets import load_cifar10h
    >>> data = load_cifar10h()                                          # doctest: +SKIP
    >>> data.annotations                                                # doctest: +SKIP
    AnnotationTable(500000 annotations: 10000 instances x 2567 annotators, 10 classes)
    """
    return _load(CIFAR10H, data_home, features)


def load_cifar10n(data_home: PathLike | None = None, features: str = "compact") -> CrowdDataset:
    """Load CIFAR-10N: 10000 / - / 2000 images, 10 classes, 220 annotators, 30000 annotations.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets; default: the environment variable MANYHANDS_DATA, else the user's
        cache. The set cannot be fetched: the public source of the annotations has no images.
    features : {"compact", "images"}
        As in `load_cifar10h` (with a test accuracy of .64).

    Returns
    -------
    CrowdDataset
        X is float32. Classes are names; ``annotations.instances`` are positions in CIFAR-10's
        training part. There is no validation part.

    Raises
    ------
    AnnotationError
        If ``features`` is unknown.
    DataNotFoundError
        If the set is not found, or a file has an unexpected checksum.

    Notes
    -----
    The labels are real, but their annotators cannot be trusted: with the published assignment, the
    annotators' accuracies differ no more than by chance. Use the set as "3 noisy labels per image";
    it cannot show how well a method models annotators. The licence of the annotations is CC BY-NC
    4.0.

    References
    ----------
    J. Wei, Z. Zhu, H. Cheng, T. Liu, G. Niu, Y. Liu. Learning with Noisy Labels Revisited: A Study
    Using Real-World Human Annotations. ICLR 2022.

    Examples
    --------
    >>> from manyhands.datasets import load_cifar10n
    >>> data = load_cifar10n()                                          # doctest: +SKIP
    >>> data.annotations                                                # doctest: +SKIP
    AnnotationTable(30000 annotations: 10000 instances x 220 annotators, 10 classes)
    """
    return _load(CIFAR10N, data_home, features)


def _load(
    sources: Mapping[str, DataSource], data_home: PathLike | None, features: Any
) -> CrowdDataset:
    if not isinstance(features, str) or features not in sources:
        raise AnnotationError(
            f"features={features!r} is unknown; use {' or '.join(map(repr, sources))}"
        )
    data = load_set(sources[features], data_home)
    if features == "compact":
        return data
    return replace(data, X_train=_pixels(data.X_train), X_test=_pixels(data.X_test))


def _pixels(X: Any) -> FloatArray:
    """Convert channels-last pixels from 0 to 255 to channels-first pixels from 0 to 1."""
    pixels: FloatArray = np.ascontiguousarray(X.transpose(0, 3, 1, 2))
    pixels /= np.float32(255)
    return pixels


def _variants(compact: str, images: str, **source: Any) -> dict[str, DataSource]:
    """Return the sources of a set by ``features``, which differ only in the array."""
    files = source.pop("sha256")
    return {
        "compact": DataSource(**source, sha256={**files, "X": compact}, array="F"),
        "images": DataSource(**source, sha256={**files, "X": images}),
    }


CIFAR10H = _variants(
    compact="25aad491abbba70198e7ef59fb0b2033fe07f1b1b380732fcfe900264629ccd9",
    images="68e0eb22fd1ca5cb96cf5295bd0e4029788a8c35df0131659b25ccd6c93b60ab",
    name="cifar10h",
    classes=_CLASSES,
    description=_CIFAR10H_DESCRIPTION,
    licence="CC BY-NC-SA 4.0 (annotations); images: none stated",
    sha256={
        "labels.csv": "51e048fd8241f65c5f72c498f409a8e0e885823c302b73c249125fa16f27f3fe",
        "annotations.csv": "db59a1c8eb083d790ac0c33ee10d8b57703df997b72b8c257bb16dfab4a83573",
        "classes.txt": _CLASSES_FILE,
    },
    repository="SamShowalter/bayesian_online_consensus_prediction",
    commit="3c9670817267f3780e1a082707468f66d52adec7",
    folder="data/cifar-10H",
    derived="images and features were matched to annotations",
)

CIFAR10N = _variants(
    compact="650fbfff38e513b223b8080f6a755e8047d93ca3e22ee43ca3a9fd54225aa428",
    images="31aae8477dae5ee44f69258f72220552bd166fd6150c3cbed9ed35dbf989a449",
    name="cifar10n",
    classes=_CLASSES,
    description=_CIFAR10N_DESCRIPTION,
    licence="CC BY-NC 4.0 (annotations); images: none stated",
    sha256={
        "labels.csv": "523289941de510b6b943317bb67ea7ce991b4355c943cefa4afd377a6fb23f2d",
        "annotations.csv": "be9c6653096901674d959fb3f1bb43b6fea2c9195e88f4697250392f77a9d91f",
        "classes.txt": _CLASSES_FILE,
    },
    repository="UCSC-REAL/cifar-10-100n",
    commit="49df7d8a69e355470c77c1c2f2424916325a394b",
    folder="data",
    derived="images and features were matched to annotations",
)
