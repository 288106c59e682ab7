"""Colposcopy: the quality of digital colposcopies, assessed by six experts."""

from __future__ import annotations

from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.fetch import DataSource, load_set

__all__ = ["load_colposcopy"]

_DESCRIPTION = """\
Colposcopy: is an image of the cervix good enough to be used? 287 images, each assessed by 6
experts; the classes are 0 and 1. The gold is the experts' consensus, so it is not independent of
the annotations. Features: 62 raw measures per image; standardise them. The split (70 / 30 %,
stratified) is not the papers'. Only the 1200 annotations of the training images are included, of
1722. The source repository calls the set "medical" and gives no reference; that it is the following
set is inferred from its shape and experts.

K. Fernandes, J. S. Cardoso, J. Fernandes. Transfer Learning with Partial Observability Applied to
Cervical Cancer Screening. IbPRIA 2017 (UCI Quality Assessment of Digital Colposcopies)."""


def load_colposcopy(data_home: PathLike | None = None) -> CrowdDataset:
    """Load Colposcopy: 200 / - / 87 images, 2 classes, 6 experts, 1200 annotations.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets; default: the environment variable MANYHANDS_DATA, else the user's
        cache. The set cannot be fetched: its public source does not hold the split.

    Returns
    -------
    CrowdDataset
        Classes are 0 and 1, imbalanced (three in four images are 1); every expert assessed every
        image. Features are raw (not standardised). There is no validation part.

    Raises
    ------
    DataNotFoundError
        If the set is not found, or a file has an unexpected checksum.

    References
    ----------
    K. Fernandes, J. S. Cardoso, J. Fernandes. Transfer Learning with Partial Observability Applied
    to Cervical Cancer Screening. IbPRIA 2017.

    Examples
    --------
    >>> from manyhands.datasets import load_colposcopy
    >>> data = load_colposcopy()                                        # doctest: +SKIP
    >>> data.annotations                                                # doctest: +SKIP
    AnnotationTable(1200 annotations: 200 instances x 6 annotators, 2 classes)
    """
    return load_set(COLPOSCOPY, data_home)


COLPOSCOPY = DataSource(
    name="colposcopy",
    classes=(0, 1),
    description=_DESCRIPTION,
    licence="none stated (research data in a public repository); do not redistribute",
    sha256={
        "labels.csv": "27d0e6c4b3791900259b4081aa3571c0db0e1db0ee06d2cb20705e37beb9e40f",
        "annotations.csv": "9e12e5c1895ca070f0140bf2cd36824f58e162850808c8b9c463370fc09b0ccd",
        "X": "3696b44805ee8f1458a8bfd259a7cdfc59c8df545553926fe915eca9cfd18770",
    },
    repository="oishik75/ActiveLearningMultiAnnotators",
    commit="1f9d3ea0576760f80fa07ab3e446d68bcddefafe",
    folder="data",
    derived="tables and their split were made",
)
