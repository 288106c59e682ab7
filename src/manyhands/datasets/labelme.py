"""LabelMe: outdoor scenes, labelled by Amazon Mechanical Turk annotators."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.fetch import DataSource, Layout, load_set

__all__ = ["load_labelme"]

_SPLITS = ("train", "valid", "test")

_DESCRIPTION = """\
LabelMe: 2688 outdoor scenes in 8 classes; 59 Amazon Mechanical Turk annotators gave 2547 labels to
the 1000 training images. Features: the last convolutional block of VGG-16 (ImageNet), averaged over
the image: 512 values, not the 8192 of the papers' augmented images.

F. Rodrigues, F. C. Pereira. Deep Learning from Crowds. AAAI 2018. Images: B. C. Russell et al.,
LabelMe: A Database and Web-Based Tool for Image Annotation. IJCV 2008.
doi:10.1007/s11263-007-0090-8"""


def load_labelme(data_home: PathLike | None = None) -> CrowdDataset:
    """Load LabelMe: 1000 / 500 / 1188 images, 8 classes, 59 annotators, 2547 annotations.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets; default: the environment variable MANYHANDS_DATA, else the user's
        cache. A set that is in neither is fetched into the cache, with a log message.

    Returns
    -------
    CrowdDataset
        Classes are names; ``annotations.instances`` are the numbers of the images.

    Raises
    ------
    DataNotFoundError
        If the set is not found and cannot be fetched, or a file has an unexpected checksum.

    References
    ----------
    F. Rodrigues, F. C. Pereira. Deep Learning from Crowds. AAAI 2018.

    Examples
    --------
    >>> from manyhands.datasets import load_labelme
    >>> data = load_labelme()                                           # doctest: +SKIP
    >>> data.annotations                                                # doctest: +SKIP
    AnnotationTable(2547 annotations: 1000 instances x 59 annotators, 8 classes)
    """
    return load_set(LABELME, data_home)


def convert(raw: Path) -> Layout:
    """Convert the files of the source to the common layout."""
    X = [np.load(raw / f"LabelMe_VGG_avg_{s}.npy", allow_pickle=False) for s in _SPLITS]
    gold = [np.loadtxt(raw / f"LabelMe_Z_{s}.txt", dtype=np.int64, ndmin=1) for s in _SPLITS]
    splits = np.repeat(_SPLITS, [len(part) for part in gold])
    labels = [
        [task, label, split]
        for task, (label, split) in enumerate(
            zip(np.concatenate(gold).tolist(), splits.tolist(), strict=True)
        )
    ]
    answers = np.loadtxt(raw / "answers.txt", dtype=np.int64, ndmin=2)
    # Some versions of this file have columns for annotators who never answered.
    answers = answers[:, (answers >= 0).any(axis=0)]
    task, worker = np.nonzero(answers >= 0)
    votes = np.column_stack([task, worker, answers[task, worker]]).tolist()
    return labels, votes, np.concatenate(X).reshape(len(labels), -1).astype(np.float32)


LABELME = DataSource(
    name="labelme",
    classes=(
        "highway",
        "insidecity",
        "tallbuilding",
        "street",
        "forest",
        "coast",
        "mountain",
        "opencountry",
    ),
    description=_DESCRIPTION,
    licence="none stated (research data released with the paper); do not redistribute",
    sha256={
        "labels.csv": "c0c64083a5a5abf41583e62fa48bd4ed0ce26060700d02caa92e4c1381e5c028",
        "annotations.csv": "918b96ed450ad5124efaee519802f79f7e15746ee72542e1558e6eeae6f7039a",
        "classes.txt": "6425b593d24e71bc73559b2efce4f0597589f2cda45a4172d8d180b76011b8c4",
        "X": "e7743181337a83161f0ff4b712b564cbca705018a3d7dd2acd6887b7643c663b",
    },
    repository="fmenat/PyLearningCrowds",
    commit="0edf617d0357a43b48dc53f10f4181ec0163d4db",
    folder="data/LabelMe",
    files=(
        "answers.txt",
        *(f"LabelMe_Z_{s}.txt" for s in _SPLITS),
        *(f"LabelMe_VGG_avg_{s}.npy" for s in _SPLITS),
    ),
    size="about 6 MB",
    convert=convert,
)
