"""Views of features for kernel methods: scaled copies, and the feature maps of kernels."""

from __future__ import annotations

import copy
from typing import Any, Literal, Self, cast

import numpy as np
from scipy.linalg import eigh
from scipy.spatial.distance import cdist, pdist
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted

from manyhands.records import record
from manyhands.typing import FloatArray

EXACT_ROWS = 1500
"""Number of rows up to which all rows are landmarks, so that the kernel is exact."""

ROWS_FOR_MEDIAN = 800
"""Number of random rows; the median of their distances is the kernel's width."""

LEAST_EIGENVALUE = 1e-8
"""Floor of the eigenvalues of the landmarks' kernel, whose inverse square roots are taken."""

MAPPED_AT_ONCE = 4096
"""Number of rows that are mapped at once, which bounds memory."""


@record("ClippedScaler", "mean_", "scale_", "var_", "n_samples_seen_", "n_features_in_")
class ClippedScaler(StandardScaler):
    """Standardised features, clipped at 6 standard deviations."""

    def transform(self, X: Any, copy: bool | None = None) -> FloatArray:
        """Return the features of shape (n, d), between -6 and 6."""
        return cast(FloatArray, np.clip(super().transform(X, copy=copy), -6.0, 6.0))


@record("NormalScores", "quantiles_", "references_", "n_quantiles_", "n_features_in_")
class NormalScores(QuantileTransformer):
    """Features made normal by their quantiles, clipped at 4 standard deviations.

    Parameters
    ----------
    n_quantiles, random_state
        See scikit-learn's ``QuantileTransformer``. There are at most as many quantiles as rows.
    """

    def __init__(self, *, n_quantiles: int = 200, random_state: Any = None) -> None:
        super().__init__(
            n_quantiles=n_quantiles, output_distribution="normal", random_state=random_state
        )
        self.n_quantiles: int = n_quantiles

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the quantiles of X, shape (n, d)."""
        given: int = self.n_quantiles
        self.n_quantiles = min(given, len(X))
        try:
            super().fit(X)
        finally:
            self.n_quantiles = given
        return self

    def transform(self, X: Any) -> FloatArray:
        """Return the scores of shape (n, d), between -4 and 4."""
        return cast(FloatArray, np.clip(super().transform(X), -4.0, 4.0))


@record("KernelMap", "landmarks_", "whitening_", "width_")
class KernelMap(TransformerMixin, BaseEstimator):
    r"""Features :math:`\phi` whose inner products are a kernel, exactly or by Nyström.

    With landmarks z, :math:`K_{zz} = W \mathrm{diag}(g) W^\top` and
    :math:`\phi(x) = K_{xz} W g^{-1/2}`. Up to 1,500 rows all are landmarks, and the kernel of the
    rows is exact.

    Parameters
    ----------
    kernel : {"rbf", "laplacian"}, default="rbf"
        :math:`\exp(-\|x - y\|_2^2 / w)` or :math:`\exp(-\|x - y\|_1 / w)`. The width w is the
        median of the squared (or absolute) distances between random rows.
    n_landmarks : int, default=1200
        Number of landmarks if there are more than 1,500 rows.
    random_state : int, RandomState or None
        Draws the rows of the median, and the landmarks.

    Attributes
    ----------
    landmarks_ : array of shape (m, d)
    width_ : float
    whitening_ : array of shape (m, m)
        W g^{-1/2}, in double precision if all rows are landmarks. Empty: see `without_whitening`.
    """

    def __init__(
        self,
        kernel: Literal["rbf", "laplacian"] = "rbf",
        *,
        n_landmarks: int = 1200,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.n_landmarks = n_landmarks
        self.random_state = random_state

    def fit(self, X: FloatArray, y: Any = None) -> Self:
        """Choose the width and the landmarks from rows X of shape (n, d)."""
        rng = check_random_state(self.random_state)
        sample = X[rng.permutation(len(X))[:ROWS_FOR_MEDIAN]].astype(np.float64)
        distances = pdist(sample, "sqeuclidean" if self.kernel == "rbf" else "cityblock")
        median = float(np.median(distances)) if len(distances) else 0.0
        self.width_ = median or float(distances.mean() if distances.any() else 1.0)
        every = len(X) <= EXACT_ROWS
        rows = np.arange(len(X)) if every else rng.permutation(len(X))[: self.n_landmarks]
        self.landmarks_ = X[rows]
        values, vectors = eigh(self._kernel(self.landmarks_))
        whitening = vectors / np.sqrt(np.maximum(values, LEAST_EIGENVALUE))
        precision = np.float64 if every else np.float32
        self.whitening_ = np.ascontiguousarray(whitening, dtype=precision)
        return self

    def without_whitening(self) -> Self:
        """Return a copy that maps to the kernel with the landmarks, K_xz, without whitening.

        A linear function of the features is also linear in the kernel, with the coefficients
        ``whitening_ @ coef``, so predictions need neither the matrix nor a product with it.
        """
        bare = copy.copy(self)
        bare.whitening_ = np.empty((0, 0))
        return bare

    def transform(self, X: FloatArray) -> FloatArray:
        """Return the features of shape (n, m), in single precision if the kernel is not exact."""
        check_is_fitted(self)
        if not self.whitening_.size:
            return self._kernel(X)
        mapped = np.empty((len(X), len(self.landmarks_)), self.whitening_.dtype)
        for rows in gen_batches(len(X), MAPPED_AT_ONCE):
            kernel = self._kernel(X[rows]).astype(mapped.dtype, copy=False)
            np.matmul(kernel, self.whitening_, out=mapped[rows])
        return mapped

    def _kernel(self, X: FloatArray) -> FloatArray:
        """Return the kernel of rows and landmarks, shape (n, m)."""
        if self.kernel == "rbf":
            distances = euclidean_distances(X, self.landmarks_, squared=True)
        else:
            distances = cdist(X, self.landmarks_, "cityblock")
        np.exp(np.divide(distances, -self.width_, out=distances), out=distances)
        return cast(FloatArray, distances)
