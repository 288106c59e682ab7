"""Sentiment: sentences of film reviews, labelled by Amazon Mechanical Turk annotators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from manyhands.datasets.base import CrowdDataset, PathLike
from manyhands.datasets.fetch import DataSource, Layout, load_set
from manyhands.typing import AnyArray

__all__ = ["load_sentiment"]

_DESCRIPTION = """\
Sentiment polarity: 4999 sentences of film reviews, positive or negative; 203 Amazon Mechanical Turk
annotators gave them 27746 labels. The 3848 test sentences are not the 5428 of the papers but
phrases of another collection (Rotten Tomatoes), 9 words long on average instead of 21; accuracy on
them is therefore lower than within the training sentences. 151 sentences that also occur in the
training part are left out. Features: sparse TF-IDF of 4000 terms (words and pairs of neighbouring
words); not the papers' features.

F. Rodrigues, F. C. Pereira, B. Ribeiro. Learning from multiple annotators: distinguishing good
from random labelers. Pattern Recognition Letters 2013. doi:10.1016/j.patrec.2013.05.012. Sentences:
B. Pang, L. Lee. Seeing stars: Exploiting class relationships for sentiment categorization with
respect to rating scales. ACL 2005."""

_TERMS = {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w[\w']*\b"}
# The 4000 most frequent terms include all that occur at least 6 times and some of the 891 that
# occur 5 times. Which of these depends on a sort that differs between processors, so they are
# listed here: one bit per term, in alphabetical order.
_LAST_COUNT = 5
_LAST_TAKEN = bytes.fromhex(
    "be181ffffffc3cff0c1fff3fd8387ffe1ffefff0457d7fffe7ff31fffe1c00003fffff3fffff"
    "ffa0007ffd9dffffff07c003fffffffffff07ffffffff880002900fffff1240efffffff01200"
    "14fffffffffff141ffffffff00038017ffffab7ffff87c7fffffc7de7ffffc000e7ffe60"
)


def load_sentiment(data_home: PathLike | None = None) -> CrowdDataset:
    """Load Sentiment: 4999 / - / 3848 sentences, 2 classes, 203 annotators, 27746 annotations.

    Parameters
    ----------
    data_home : str or Path, optional
        Folder of data sets; default: the environment variable MANYHANDS_DATA, else the user's
        cache. A set that is in neither is fetched into the cache, with a log message.

    Returns
    -------
    CrowdDataset
        Classes are names; ``annotations.instances`` are the numbers of the sentences. Features are
        a float32 `scipy.sparse.csr_array` (0.3 % of entries are nonzero), which the classifiers
        accept as it is.
        There is no validation part.

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
    >>> from manyhands.datasets import load_sentiment
    >>> data = load_sentiment()                                         # doctest: +SKIP
    >>> data.annotations                                                # doctest: +SKIP
    AnnotationTable(27746 annotations: 4999 instances x 203 annotators, 2 classes)
    """
    return load_set(SENTIMENT, data_home)


def convert(raw: Path) -> Layout:
    """Convert the files of the source to the common layout."""
    train, test = (_lines(raw / f"Sentiment_text_{s}.txt") for s in ("train", "test"))
    gold = [label for s in ("train", "test") for label in _lines(raw / f"Sentiment_Z_{s}.txt")]
    known = {_letters(sentence) for sentence in train}
    splits = ["train"] * len(train)
    splits += ["test_overlap" if _letters(sentence) in known else "test" for sentence in test]
    labels = [
        [task, int(label), split]
        for task, (label, split) in enumerate(zip(gold, splits, strict=True))
    ]
    answers = np.loadtxt(raw / "answers.txt", dtype=np.int64, ndmin=2)
    task, worker = np.nonzero(answers >= 0)
    votes = np.column_stack([task, worker, answers[task, worker]]).tolist()
    return labels, votes, _tf_idf(train, train + test)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _letters(sentence: str) -> str:
    """Return a sentence's letters and digits, to compare without spacing and punctuation."""
    return "".join(c for c in sentence.lower() if c.isascii() and c.isalnum())


def _tf_idf(train: list[str], sentences: list[str]) -> AnyArray:
    """Return TF-IDF of the training sentences' most frequent terms, rounded to float16."""
    counter = CountVectorizer(**_TERMS)
    counts = np.asarray(counter.fit_transform(train).sum(axis=0)).ravel()
    last = np.flatnonzero(counts == _LAST_COUNT)
    taken = np.unpackbits(np.frombuffer(_LAST_TAKEN, dtype=np.uint8), count=len(last)).astype(bool)
    chosen = np.union1d(np.flatnonzero(counts > _LAST_COUNT), last[taken])
    terms = counter.get_feature_names_out()[chosen]
    weigher = TfidfVectorizer(vocabulary=terms, sublinear_tf=True, **_TERMS).fit(train)
    weights = weigher.transform(sentences).tocoo()
    X = np.zeros(weights.shape, dtype=np.float16)
    X[weights.row, weights.col] = weights.data
    return X


SENTIMENT = DataSource(
    name="sentiment",
    classes=("negative", "positive"),
    description=_DESCRIPTION,
    licence="none stated (research data released with the paper); do not redistribute",
    sha256={
        "labels.csv": "eabf3b71d03ab86dc7c6482f68cd056367fc2741ae30f4cb6df1f4a7feda205e",
        "annotations.csv": "e1d1b6065349364eabbe48dac6b20350fa001154ba4cf1724ee7f81a9f02e013",
        "classes.txt": "45ff43802510f9fdc16923bc42cce04f7bd1d0b679c257e0d45608d177d75461",
        "X": "b79f35cbda3b844888997559fd3abc56ae91cd51488df699a671f123c52dc08d",
    },
    repository="fmenat/PyLearningCrowds",
    commit="0edf617d0357a43b48dc53f10f4181ec0163d4db",
    folder="data/Sentiment",
    files=(
        "answers.txt",
        *(f"Sentiment_{part}_{s}.txt" for part in ("text", "Z") for s in ("train", "test")),
    ),
    size="about 4 MB",
    convert=convert,
    sparse=True,
)
