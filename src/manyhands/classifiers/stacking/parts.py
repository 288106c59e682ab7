"""Classes of which the members of a stack may consist if it is to be saved without pickle."""

from __future__ import annotations

from typing import Any

from sklearn.decomposition import PCA
from sklearn.preprocessing import Normalizer

from manyhands.classifiers.stacking.networks import SoftNetwork
from manyhands.linear.gaussians import SoftDiscriminant, TiedMixture
from manyhands.linear.kernels import ClippedScaler, KernelMap, NormalScores
from manyhands.linear.regression import SoftLogistic
from manyhands.linear.ridge import RidgeValues, SoftRidge

_LINEAR = ("weight_", "bias_", "centre_")
PARTS: dict[type[Any], tuple[str, ...]] = {
    ClippedScaler: ("mean_", "scale_", "var_", "n_samples_seen_", "n_features_in_"),
    NormalScores: ("quantiles_", "references_", "n_quantiles_", "n_features_in_"),
    Normalizer: ("n_features_in_",),
    PCA: ("components_", "mean_", "explained_variance_", "n_components_", "n_features_in_"),
    KernelMap: ("landmarks_", "whitening_", "width_"),
    RidgeValues: (),
    SoftDiscriminant: _LINEAR,
    TiedMixture: _LINEAR,
    SoftLogistic: ("coef_", "intercept_"),
}
"""Classes that can be saved, and the fitted attributes of each that prediction needs."""

BY_NAME = {kind.__name__: kind for kind in PARTS}

UNFITTED: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (*PARTS, SoftRidge, SoftNetwork) if kind is not RidgeValues
}
"""Classes of which the parameter ``members`` can be saved, by name."""
