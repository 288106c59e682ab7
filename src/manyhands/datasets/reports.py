"""Reports: software issues whose impact five annotators judged."""

from __future__ import annotations

from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.fetch import DataSource, load_set

__all__ = ["load_reports"]

_DESCRIPTION = """\
Reports (Compendium): what does a reported software issue affect? 962 reports of the Compendium
project in 4 classes, the integers 0 to 3; 5 annotators judged each report. The source does not
document the origin of the gold, which agrees with nearly every majority vote. Features: 56 raw
values (apparently term weights); standardise them. The split (70 / 30 %, stratified) is not the
papers'. Only the 3365 annotations of the training reports are included, of 4810. That the set is
that of the following paper is inferred from its name, shape and annotators.

J. Hernandez-Gonzalez, D. Rodriguez, I. Inza, R. Harrison, J. A. Lozano. Learning to classify
software defects from crowds: a novel approach. Applied Soft Computing 2018."""


def load_reports(data_home: PathLike | None = None) -> CrowdDataset:
    """Load Reports: 673 / - / 289 reports, 4 classes, 5 annotators, 3365 annotations.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets, with ``reports_compendium``; default: the environment variable
        MANYHANDS_DATA, else the user's cache. The set cannot be fetched: its public source does
        not hold the split.

    Returns
    -------
    CrowdDataset
        Classes are the integers 0 to 3, imbalanced (the rarest is one report in eleven); every
        annotator judged every report. Features are raw (not standardised). There is no validation
        part.

    Raises
    ------
    DataNotFoundError
        If the set is not found, or a file has an unexpected checksum.

    References
    ----------
    J. Hernandez-Gonzalez, D. Rodriguez, I. Inza, R. Harrison, J. A. Lozano. Learning to classify
    software defects from crowds: a novel approach. Applied Soft Computing 2018.

    Examples
    --------
    >>> from manyhands.datasets import load_reports
    >>> data = load_reports()                                           # doctest: +SKIP
    >>> data.annotations                                                # doctest: +SKIP
    AnnotationTable(3365 annotations: 673 instances x 5 annotators, 4 classes)
    """
    return load_set(REPORTS, data_home)


REPORTS = DataSource(
    name="reports_compendium",
    classes=(0, 1, 2, 3),
    description=_DESCRIPTION,
    licence="none stated (research data in a public repository); do not redistribute",
    sha256={
        "labels.csv": "54d00bc0b725436912862ff2c757ebd4731d719605dc4dd10d7a23bda7e15a2e",
        "annotations.csv": "3749df8aed1e037243f99362b90cf830c1c9d93cfc6efd06c1ae01a3e884e237",
        "X": "f07741db21fc9e5e4c7f2047081994a191133114ef3034d7947f48e2371b73ce",
    },
    repository="oishik75/ActiveLearningMultiAnnotators",
    commit="1f9d3ea0576760f80fa07ab3e446d68bcddefafe",
    folder="data",
    derived="tables and their split were made",
)
