"""USPS: handwritten digits without annotations, for simulated crowds."""

from __future__ import annotations

from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.fetch import DataSource, load_set

__all__ = ["load_usps"]

_DESCRIPTION = """\
USPS: 9298 handwritten digits from envelopes, 16 x 16 grey values from 0 to 1, row by row. There are
no annotations: the set is a basis for simulated crowds (make_crowd). The split is that of Hastie,
Tibshirani and Friedman (The Elements of Statistical Learning).

J. J. Hull. A Database for Handwritten Text Recognition Research. IEEE Transactions on Pattern
Analysis and Machine Intelligence 1994."""


def load_usps(data_home: PathLike | None = None) -> CrowdDataset:
    """Load USPS: 7291 / - / 2007 digits, 10 classes, no annotators.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets; default: the environment variable MANYHANDS_DATA, else the user's
        cache. The set cannot be fetched.

    Returns
    -------
    CrowdDataset
        X has 256 values from 0 to 1; classes are the integers 0 to 9. ``annotations`` has one
        instance per training image but no annotators and no annotations: pass ``y_train`` to
        `make_crowd`. There is no validation part.

    Raises
    ------
    DataNotFoundError
        If the set is not found, or a file has an unexpected checksum.

    References
    ----------
    J. J. Hull. A Database for Handwritten Text Recognition Research. IEEE Transactions on Pattern
    Analysis and Machine Intelligence 1994.

    Examples
    --------
    >>> from manyhands.datasets import load_usps, make_crowd
    >>> data = load_usps()                                              # doctest: +SKIP
    >>> data.annotations                                                # doctest: +SKIP
    AnnotationTable(0 annotations: 7291 instances x 0 annotators, 10 classes)
    >>> make_crowd(data.y_train, n_annotators=15, random_state=0).shape  # doctest: +SKIP
    (7291, 15)
    """
    return load_set(USPS, data_home)


USPS = DataSource(
    name="usps",
    classes=tuple(range(10)),
    description=_DESCRIPTION,
    licence="none stated (research data in a public repository); do not redistribute",
    sha256={
        "labels.csv": "bbc61455708a51bb65dd346ba9b564aa1f272cbad152ad914aa543f0bfd663fc",
        "classes.txt": "7427877c40fb0361401248f9c96abe6117396bc6ab16811b5b1706274c02443e",
        "X": "5f0b9dd66439a84eafe33135fd9626680096e02648bee0b44891dd4723d2fcab",
    },
    repository="niuers/Learning-From-Data-A-Short-Course",
    commit="879a698b960e5867f7c2b11f8938fa89c3d21839",
    folder="data",
    derived="files were converted",
)
