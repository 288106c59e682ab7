"""Product: pairs of product descriptions, labelled by Amazon Mechanical Turk annotators."""

from __future__ import annotations

from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.fetch import DataSource, load_set

__all__ = ["load_product"]

_DESCRIPTION = """\
Product (d_Product, jn-product): do two descriptions refer to the same product? 8315 pairs of
Abt-Buy products, 12 % of them the same; each pair has 3 Amazon Mechanical Turk annotators.
Features: 20 raw similarities of names, descriptions and prices; standardise them with the mean and
standard deviation of the training pairs. The split (60 / 10 / 30 %, stratified) is not the papers'.
Only the 14967 annotations of the training pairs are included, of 24945.

J. Wang, T. Kraska, M. J. Franklin, J. Feng. CrowdER: Crowdsourcing Entity Resolution. VLDB 2012.
Annotations as packaged for Y. Zheng et al., Truth Inference in Crowdsourcing: Is the Problem
Solved? VLDB 2017."""


def load_product(data_home: PathLike | None = None) -> CrowdDataset:
    """Load Product: 4989 / 831 / 2495 pairs, 2 classes, 14967 annotations.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets; default: the environment variable MANYHANDS_DATA, else the user's
        cache. The set cannot be fetched: its public source holds the annotations, not the features.

    Returns
    -------
    CrowdDataset
        Classes are names and imbalanced; ``annotations.instances`` are the ids of the two
        descriptions. Features are raw (not standardised).

    Raises
    ------
    DataNotFoundError
        If the set is not found, or a file has an unexpected checksum.

    References
    ----------
    J. Wang, T. Kraska, M. J. Franklin, J. Feng. CrowdER: Crowdsourcing Entity Resolution.
    VLDB 2012.

    Examples
    --------
    >>> from manyhands.datasets import load_product
    >>> data = load_product()                                           # doctest: +SKIP
    >>> data.X_train.shape                                              # doctest: +SKIP
    (4989, 20)
    """
    return load_set(PRODUCT, data_home)


PRODUCT = DataSource(
    name="product",
    classes=("different", "same"),
    description=_DESCRIPTION,
    licence="none stated (research data released with the paper); do not redistribute",
    sha256={
        "labels.csv": "8c64d64b2461319e08618a9c89bebea0225ee203719fc863b5a01bbc91dcb6db",
        "annotations.csv": "bdcfa8b77d387201cde3c96fd1b75c62b97b39b53a495658161cf1f3f1c00c48",
        "classes.txt": "239a8465e71b1e60c30d9a78356319c12bda680e7a458019ae2044e51d639a0b",
        "X": "5d6d161c124cfb13a0d67c89079a74aacf356d179842f7e05f8ee87d1c46fbf5",
    },
    repository="zhydhkcws/crowd_truth_infer",
    commit="8d216471071f09b9e474ee19f8d692447f982f88",
    folder="datasets/d_jn-product",
)
