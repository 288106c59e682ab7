"""Music genres: songs of GTZAN, labelled by Amazon Mechanical Turk annotators."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.fetch import DataSource, Layout, load_set

__all__ = ["load_music"]

_CLASSES = (
    "blues",
    "classical",
    "country",
    "disco",
    "hiphop",
    "jazz",
    "metal",
    "pop",
    "reggae",
    "rock",
)

_DESCRIPTION = """\
Music genre classification: 1000 songs of 30 seconds in 10 genres (GTZAN); 44 Amazon Mechanical
Turk annotators gave 2945 labels to the 700 training songs. Features: 124 raw Marsyas statistics;
standardise them with the mean and standard deviation of the training songs.

F. Rodrigues, F. C. Pereira, B. Ribeiro. Learning from multiple annotators: distinguishing good
from random labelers. Pattern Recognition Letters 2013. doi:10.1016/j.patrec.2013.05.012. Audio:
G. Tzanetakis, P. Cook. Musical genre classification of audio signals. IEEE TSAP 2002.
doi:10.1109/TSA.2002.800560"""


def load_music(data_home: PathLike | None = None) -> CrowdDataset:
    """Load Music: 700 / - / 300 songs, 10 genres, 44 annotators, 2945 annotations.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets; default: the environment variable MANYHANDS_DATA, else the user's
        cache. A set that is in neither is fetched into the cache, with a log message.

    Returns
    -------
    CrowdDataset
        Classes are names; ``annotations.instances`` are the names of the songs. Features are raw
        (not standardised). There is no validation part.

    Raises
    ------
    DataNotFoundError
        If the set is not found and cannot be fetched, or a file has an unexpected checksum.

    References
    ----------
    F. Rodrigues, F. C. Pereira, B. Ribeiro. Learning from multiple annotators: distinguishing
    good from random labelers. Pattern Recognition Letters 2013.

    Examples
    --------
    >>> from manyhands.datasets import load_music
    >>> data = load_music()                                             # doctest: +SKIP
    >>> data.annotations                                                # doctest: +SKIP
    AnnotationTable(2945 annotations: 700 instances x 44 annotators, 10 classes)
    """
    return load_set(MUSIC, data_home)


def convert(raw: Path) -> Layout:
    """Convert the files of the source to the common layout."""
    labels, X = [], []
    for file, split in (("music_genre_gold.csv", "train"), ("music_genre_test.csv", "test")):
        _, *rows = _rows(raw / file)
        labels += [[song, _CLASSES.index(genre), split] for song, *_, genre in rows]
        X += [features for _, *features, _ in rows]
    _, *answers = _rows(raw / "mturk_answers.csv")
    place = {song: row for row, (song, *_) in enumerate(labels)}
    votes = [[song, worker, _CLASSES.index(genre)] for worker, song, _, genre in answers]
    votes.sort(key=lambda vote: (place[vote[0]], vote[1]))
    return labels, votes, np.array(X, dtype=np.float64).astype(np.float32)


def _rows(path: Path) -> list[list[str]]:
    # Some of these files end their lines with only a carriage return.
    lines = path.read_text(encoding="utf-8").splitlines()
    return [row for row in csv.reader(lines) if row]


MUSIC = DataSource(
    name="music",
    classes=_CLASSES,
    description=_DESCRIPTION,
    licence="none stated (research data released with the paper); do not redistribute",
    sha256={
        "labels.csv": "077b3a1792d179c0263281234e112ad80945230566e980dcd51ae3183edf4e84",
        "annotations.csv": "dcda1fa2ebdafac4613e6356f77ad6c41d7c49bbe565e53b4e7d662885cf3b0d",
        "classes.txt": "3a5543cee4080ed8e70cf44133d133ab0044dfb96f8e98775414b70d862a056e",
        "X": "3647d083a5a3df108c66183390522ab173fd0f8717b6789437e3a9719e5fe992",
    },
    repository="shahanaibrahimosu/end-to-end-crowdsourcing",
    commit="7653680c475ba8faa5d4a7b104b42a2a5204cef9",
    folder="data/Music",
    files=("music_genre_gold.csv", "music_genre_test.csv", "mturk_answers.csv"),
    size="about 1.3 MB",
    convert=convert,
)
