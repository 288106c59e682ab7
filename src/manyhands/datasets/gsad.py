"""GSAD: measurements of gases without annotations, for simulated crowds."""

from __future__ import annotations

from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.fetch import DataSource, load_set

__all__ = ["load_gsad"]

_DESCRIPTION = """\
GSAD (Gas Sensor Array Drift): which of six gases did an array of 16 sensors measure? 6697 of the
13910 measurements, from batches 1 to 6, 8 and 9; batches 7 (3613) and 10 (3600) are MISSING. There
are no annotations: the set is a basis for simulated crowds (make_crowd).
Features: 8 raw values per sensor (up to 10^5); standardise them. There is no official split: all
measurements are in the training part. Sensors drift from batch to batch; an instance's name
contains the number of its batch.

A. Vergara, S. Vembu, T. Ayhan, M. A. Ryan, M. L. Homer, R. Huerta. Chemical gas sensor drift
compensation using classifier ensembles. Sensors and Actuators B: Chemical 2012."""


def load_gsad(data_home: PathLike | None = None) -> CrowdDataset:
    """Load Gas Sensor Array Drift: 6697 / - / - measurements, 6 classes, no annotators.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets; default: the environment variable MANYHANDS_DATA, else the user's
        cache. The set cannot be fetched.

    Returns
    -------
    CrowdDataset
        X has 128 raw values (not standardised); classes are names of gases. ``annotations`` has one
        instance per measurement but no annotators and no annotations: pass ``y_train`` to
        `make_crowd`. There is no test part, because the set has no official split.

    Raises
    ------
    DataNotFoundError
        If the set is not found, or a file has an unexpected checksum.

    Notes
    -----
    This copy lacks batches 7 and 10 of ten, with 7,213 of 13,910 measurements. Instances are named
    "b<batch>_<row>". Measurements of the same batch resemble each other more than those of
    different batches; a random split puts the same batches into both parts.

    References
    ----------
    A. Vergara, S. Vembu, T. Ayhan, M. A. Ryan, M. L. Homer, R. Huerta. Chemical gas sensor drift
    compensation using classifier ensembles. Sensors and Actuators B: Chemical 2012.

    Examples
    --------
    >>> from manyhands.datasets import load_gsad
    >>> data = load_gsad()                                              # doctest: +SKIP
    >>> data.annotations                                                # doctest: +SKIP
    AnnotationTable(0 annotations: 6697 instances x 0 annotators, 6 classes)
    """
    return load_set(GSAD, data_home)


GSAD = DataSource(
    name="gsad",
    classes=("Ethanol", "Ethylene", "Ammonia", "Acetaldehyde", "Acetone", "Toluene"),
    description=_DESCRIPTION,
    licence="CC BY 4.0 (UCI); none stated in the repository",
    sha256={
        "labels.csv": "3747129ee8ad6b01f37f8fbf54899ecd2889b15191f609a0a2d3e654de7e6c13",
        "classes.txt": "537ac6f14295bbbd7f5150c64a72108ac61c761cdaa58ee6fbd242b4bee69abf",
        "X": "7c93201c5c360a204bc9ca5d419046b1504fbd7ec22c3b0730a8933860bd434c",
    },
    repository="Randip-Randhawa/Gas_Sensor_Drift_Compensation",
    commit="6cf9d099ad604c14a94b603c83da662002263433",
    folder="Dataset",
    derived="tables were made",
)
