"""Encoder of texts without a download: words and runs of characters, counted or hashed."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from manyhands.encoders.inputs import as_texts
from manyhands.exceptions import AnnotationError, all_or_nothing
from manyhands.records import record
from manyhands.typing import AnyArray

WORDS: dict[str, Any] = {"analyzer": "word", "ngram_range": (1, 2)}
CHARACTERS: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": (3, 5)}
RARE_CHARACTERS = 2
"""Number of texts in which a run of characters must occur, unless none does."""


@record(
    "TextEncoder",
    "word_terms_",
    "word_idf_",
    "character_terms_",
    "character_idf_",
    "n_features_out_",
)
class TextEncoder(TransformerMixin, BaseEstimator):
    """Encode texts as weights of words and pairs of words, and of runs of 3 to 5 characters.

    Runs of characters match inflections and misspellings that words miss
    (docs/results/encoders.md). Counts enter by their logarithm. The words and the runs of a row are
    each scaled to length 1.

    Parameters
    ----------
    kind : {"tfidf", "hashing"}
        "tfidf": the vocabulary is that of `fit`, and rare terms weigh more. "hashing": terms are
        hashed into a fixed number of columns, so nothing is fitted, nothing grows with the texts,
        and all batches of a stream are encoded in the same way. Networks and `RaykarClassifier`
        have weights for every column: use "tfidf" or a smaller ``n_features`` with them.
    n_features : int, default=2**18
        Number of columns of "hashing", half for words and half for characters. A network whose
        first layer has 128 units has 128 weights per column: 34 million by default (134 MB, and
        four times that with Adam), all updated in every step. The fewer the columns, the more terms
        share one.
    missing : {"error", "empty"}
        What to do with None and NaN: raise an error, or read them as empty texts (rows of zeros).

    Attributes
    ----------
    word_terms_, character_terms_ : list of str
        Terms of the columns, words first. With "tfidf".
    word_idf_, character_idf_ : arrays of shape (n_terms,)
        Inverse document frequencies of the terms. With "tfidf".

    Examples
    --------
    >>> encoder = TextEncoder()
    >>> encoder.fit_transform(["good film", "bad film"]).shape
    (2, 14)
    >>> encoder.word_terms_
    ['bad', 'bad film', 'film', 'good', 'good film']
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kind": [StrOptions({"tfidf", "hashing"})],
        "n_features": [Interval(Integral, 2, None, closed="left")],
        "missing": [StrOptions({"error", "empty"})],
    }

    def __init__(
        self, kind: str = "tfidf", *, n_features: int = 2**18, missing: str = "error"
    ) -> None:
        self.kind = kind
        self.n_features = n_features
        self.missing = missing

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the terms of texts and how rare they are.

        Parameters
        ----------
        X : list, array, Series or one-column frame of n texts
        y : ignored

        Raises
        ------
        AnnotationError
            If X holds no texts, a text is missing, or no text has a word.
        """
        with all_or_nothing(self):
            self._fit(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit, and encode the same texts; see `fit` and `transform`."""
        with all_or_nothing(self):
            texts = self._fit(X)
        return self._encode(texts)

    def _fit(self, X: Any) -> list[str]:
        self._validate_params()
        texts = self._read(X)
        if self.kind == "hashing":
            self.n_features_out_ = 2 * (self.n_features // 2)
            return texts
        words, characters = _terms(texts, WORDS, 1), _terms(texts, CHARACTERS, RARE_CHARACTERS)
        if not words[0] and not characters[0]:
            raise AnnotationError(
                f"none of the {len(texts)} texts of X holds a word (the first is {texts[0]!r:.60})"
            )
        self.word_terms_, self.word_idf_ = words
        self.character_terms_, self.character_idf_ = characters
        self.n_features_out_ = len(words[0]) + len(characters[0])
        return texts

    def _read(self, X: Any) -> list[str]:
        texts = as_texts(X, self.missing)
        if not texts:
            raise AnnotationError("X holds no texts; give at least one")
        return texts

    def transform(self, X: Any) -> Any:
        """Encode texts as a sparse matrix (CSR) of shape (n, n_features), float32.

        Raises
        ------
        AnnotationError
            If X holds anything but texts, or none, or a text is missing.
        """
        self._check_fitted()
        return self._encode(self._read(X))

    def _check_fitted(self) -> None:
        if self.kind == "hashing":
            self._validate_params()
        else:
            check_is_fitted(self, "word_terms_")

    def _encode(self, texts: list[str]) -> Any:
        if self.kind == "hashing":
            parts = [_hashed(texts, options, self.n_features // 2) for options in _BOTH]
        else:
            fitted = (
                (WORDS, self.word_terms_, self.word_idf_),
                (CHARACTERS, self.character_terms_, self.character_idf_),
            )
            parts = [
                _vectorizer(options, terms, idf).transform(texts)
                for options, terms, idf in fitted
                if terms
            ]
        return sparse.hstack(parts, format="csr", dtype=np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:
        """Return the names of the columns: terms, with "word:" or "characters:" before them."""
        self._check_fitted()
        if self.kind == "hashing":
            half = self.n_features // 2
            names = [f"{part}{i}" for part in ("words", "characters") for i in range(half)]
        else:
            names = [f"word:{term}" for term in self.word_terms_]
            names += [f"characters:{term}" for term in self.character_terms_]
        return np.array(names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return self.kind == "hashing" or hasattr(self, "word_terms_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = self.kind != "hashing"
        return tags


_BOTH = (WORDS, CHARACTERS)


def _terms(texts: list[str], options: dict[str, Any], least: int) -> tuple[list[str], AnyArray]:
    """Return the terms that occur in ``least`` texts (or in any, if none does), and their idf."""
    for min_df in dict.fromkeys((min(least, len(texts)), 1)):
        vectorizer = TfidfVectorizer(**options, sublinear_tf=True, min_df=min_df)
        try:
            vectorizer.fit(texts)
        except ValueError:  # No text has any term.
            continue
        return vectorizer.get_feature_names_out().tolist(), vectorizer.idf_.astype(np.float32)
    return [], np.zeros(0, dtype=np.float32)


def _vectorizer(options: dict[str, Any], terms: list[str], idf: AnyArray) -> TfidfVectorizer:
    vectorizer = TfidfVectorizer(**options, sublinear_tf=True, vocabulary=terms, dtype=np.float32)
    vectorizer.idf_ = idf
    return vectorizer


def _hashed(texts: list[str], options: dict[str, Any], n_features: int) -> Any:
    counter = HashingVectorizer(
        **options, n_features=n_features, norm=None, alternate_sign=False, dtype=np.float32
    )
    weigher = TfidfTransformer(use_idf=False, sublinear_tf=True)
    return weigher.fit_transform(counter.transform(texts))
