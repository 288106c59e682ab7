"""The members of ``members="auto"``, by the kind of features."""

from __future__ import annotations

from typing import Any

from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from manyhands.classifiers.stacking.members import Member
from manyhands.classifiers.stacking.networks import SoftNetwork
from manyhands.linear.gaussians import SoftDiscriminant, TiedMixture
from manyhands.linear.kernels import ClippedScaler, KernelMap, NormalScores
from manyhands.linear.regression import SoftLogistic
from manyhands.linear.ridge import SoftRidge

MANY_FEATURES = 2000
"""Dense features beyond which the quantile and Gaussian members would cost too much."""

MANY_ROWS = 50_000
"""Rows beyond which the Laplacian kernel would cost too much: it cannot use matrix products."""

STREAMED_ROWS, STREAMED_LANDMARKS = 200_000, 400
"""Rows beyond which no member keeps what its view shows, and the most landmarks of its kernel."""

MIXTURE_FEATURES = 20
"""Principal components that the mixture sees, at most."""

LANDMARK_CELLS, FEW_LANDMARKS = 90_000_000, 100
"""A kernel has at most 90e6 / n landmarks (fewer than 1,200 above 75,000 rows), and at least
100."""


def automatic_members(X: Any, n_landmarks: int, random_state: int) -> list[Member]:
    """Members for dense or sparse features X of shape (n, d), or images."""
    if hasattr(X, "tocsr"):
        return [Member("logistic", SoftLogistic())]
    if X.ndim > 2:
        return [Member("network", SoftNetwork("cnn", ridge=True, random_state=random_state))]
    n, d = X.shape
    if n > STREAMED_ROWS:
        return _streamed_members(min(n_landmarks, STREAMED_LANDMARKS), random_state)
    landmarks = min(n_landmarks, max(LANDMARK_CELLS // n, FEW_LANDMARKS))

    def kernel(kind: Any, *scaler: Any) -> Any:
        mapping = KernelMap(kind, n_landmarks=landmarks, random_state=random_state)
        return make_pipeline(*scaler, mapping)

    members = [
        Member("rbf standardised", SoftRidge(), kernel("rbf", ClippedScaler())),
        Member("rbf directions", SoftRidge(), kernel("rbf", Normalizer())),
    ]
    if d > MANY_FEATURES:
        return members
    # The seed only draws the 10,000 rows that give the quantiles of more; as it is fixed, both
    # kernels see the same scores.
    members.append(
        Member("rbf normal scores", SoftRidge(), kernel("rbf", NormalScores(random_state=0)))
    )
    if n <= MANY_ROWS:
        scores = NormalScores(random_state=0)
        members.append(Member("laplacian normal scores", SoftRidge(), kernel("laplacian", scores)))
    few = make_pipeline(Normalizer(), PCA(min(MIXTURE_FEATURES, d, n), random_state=random_state))
    return [
        *members,
        Member("discriminant", SoftDiscriminant(), Normalizer()),
        Member("mixture", TiedMixture(), few),
    ]


def _streamed_members(n_landmarks: int, random_state: int) -> list[Member]:
    """Members that read the features batch by batch, and keep nothing of them."""

    def ridge(name: str, *steps: Any) -> Member:
        return Member(name, SoftRidge(), make_pipeline(*steps), streamed=True)

    def kernel() -> KernelMap:
        return KernelMap(n_landmarks=n_landmarks, random_state=random_state)

    return [
        ridge("rbf standardised", ClippedScaler(), kernel()),
        ridge("rbf directions", Normalizer(), kernel()),
        ridge("linear", ClippedScaler()),
    ]
