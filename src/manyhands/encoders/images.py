"""Encoder of images without a download: whitened patches (Coates & Ng), or HOG."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from manyhands.encoders.inputs import Images, require
from manyhands.exceptions import AnnotationError, all_or_nothing
from manyhands.records import record
from manyhands.typing import AnyArray, FloatArray

SIDE = 32
"""Longest side that images have by default."""

PATCH = 6
"""Side of a patch in pixels."""

MOST_PATCHES = 100_000
MOST_IMAGES = 20_000
"""Numbers of random patches from which the dictionary is learned, and of images that determine the
scale of its features: enough for stable estimates, few enough for memory."""

LEAST_PATCH_VARIANCE = 10.0 / 255**2
"""Added to a patch's variance before it divides, so that flat patches do not become noise: 10 on
the scale of 8-bit values, as Coates and Ng have it."""

PIXEL_DEVIATION = 0.25
"""Standard deviation to which pixels that are not 8-bit are scaled, about that of photographs."""

WHITENING = 0.1
"""Added to the variances of the normalised patches before whitening."""

IMAGES_AT_ONCE = 64
"""Number of images that are encoded at once, which bounds memory."""

HOG: dict[str, Any] = {
    "orientations": 9,
    "pixels_per_cell": (4, 4),
    "cells_per_block": (2, 2),
    "channel_axis": -1,
}


@record(
    "ImageEncoder", "size_", "channels_", "n_features_out_", "scale_", "patch_mean_", "whitening_",
    "centroids_", "feature_mean_", "components_", "component_mean_",
)  # fmt: skip
class ImageEncoder(TransformerMixin, BaseEstimator):
    """Encode images by a dictionary of small patches, or by histograms of gradients.

    "patches": patches of 6 x 6 pixels are normalised, whitened and clustered. The features of an
    image measure how near its patches are to each centre, summed over each of its four quarters,
    standardised, and reduced to principal components (Coates & Ng, "The Importance of Encoding
    Versus Training with Sparse Coding and Vector Quantization", ICML 2011). The dictionary is
    learned from these images alone; a pretrained network (`TimmEncoder`) usually gives better
    features.

    Parameters
    ----------
    kind : {"patches", "hog"}
        "hog" needs scikit-image, and learns nothing from the images.
    size : "auto", int or (height, width), default="auto"
        Size to which images are resized by averaging areas. "auto": arrays keep their height and
        width up to 32 pixels; longer sides, files and PIL images become 32.
    n_centroids : int, default=400
        Number of patches in the dictionary.
    n_components : int, default=256
        Number of principal components; at most the number of images.
    random_state : int, RandomState or None
        Seed of the random patches and of the clustering.

    Attributes
    ----------
    size_ : (height, width)
        Size to which images are resized, in pixels.
    channels_ : int
        Number of channels of the images of `fit`; files and PIL images have 3.
    centroids_ : array of shape (n_centroids, 36 * channels)
        Centres of the clusters of whitened patches.

    Examples
    --------
    >>> from manyhands import load_demo
    >>> digits = load_demo().X_train[:50].reshape(-1, 8, 8)
    >>> ImageEncoder(n_centroids=10, random_state=0).fit_transform(digits).shape
    (50, 40)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "kind": [StrOptions({"patches", "hog"})],
        "size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), list, tuple],
        "n_centroids": [Interval(Integral, 1, None, closed="left")],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        kind: str = "patches",
        *,
        size: Any = "auto",
        n_centroids: int = 400,
        n_components: int = 256,
        random_state: Any = None,
    ) -> None:
        self.kind = kind
        self.size = size
        self.n_centroids = n_centroids
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the dictionary of patches.

        Parameters
        ----------
        X : array or list of n images
            An array (n, height, width), (n, height, width, channels) or (n, channels, height,
            width), of 8-bit integers or other numbers; or a list, array or column of paths, PIL
            images or arrays. Files are read batch by batch.
        y : ignored

        Raises
        ------
        AnnotationError
            If X holds no images, a file is damaged, or images are smaller than a patch.
        FileNotFoundError
            If a file does not exist.
        MissingExtraError
            If X holds files and pillow is missing, or "hog" lacks scikit-image.
        """
        with all_or_nothing(self):
            self._fit(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> FloatArray:
        """Fit, and encode the same images; see `fit` and `transform`."""
        with all_or_nothing(self):
            images, pooled = self._fit(X)
        if pooled is not None and len(pooled) == len(images):
            return self._project(pooled)
        return self._encode(images)

    def _fit(self, X: Any) -> tuple[Images, FloatArray | None]:
        self._validate_params()
        images = Images(X)
        if not len(images):
            raise AnnotationError("X holds no images; give at least one")
        self.size_ = _read_size(self.size, images.side_lengths)
        self.channels_ = images.channels
        self.scale_ = 1.0
        if self.kind == "hog":
            self.n_features_out_ = self._hog(next(self._batches(images.rows(np.arange(1))))).shape[
                1
            ]
            return images, None
        if len(images) < 2:
            raise AnnotationError("X holds one image; patches are learned from two or more")
        if min(self.size_) < PATCH + 1:
            raise AnnotationError(
                f"images of {self.size_[0]} x {self.size_[1]} pixels are too small for patches of "
                f"{PATCH} x {PATCH}; set size= to {PATCH + 1} or more"
            )
        rng = check_random_state(self.random_state)
        some = images
        if len(images) > MOST_IMAGES:
            some = images.rows(np.sort(rng.choice(len(images), MOST_IMAGES, replace=False)))
        if images.array is not None and images.array.dtype != np.uint8:
            self.scale_ = float(images.array[: MOST_PATCHES // SIDE].std()) / PIXEL_DEVIATION or 1.0
        self._learn_patches(self._sample_patches(some, rng), rng)
        pooled = np.concatenate([self._pool(b) for b in self._batches(some)])
        self._learn_projection(pooled, rng)
        return images, pooled

    def _sample_patches(self, images: Images, rng: Any) -> FloatArray:
        """Draw equally many random patches from each image, shape (m, 36 * channels)."""
        each = -(-MOST_PATCHES // len(images))
        each = min(each, (self.size_[0] - PATCH + 1) * (self.size_[1] - PATCH + 1))
        found = []
        for batch in self._batches(images):
            windows = np.lib.stride_tricks.sliding_window_view(batch, (PATCH, PATCH), axis=(1, 2))
            shape = (len(batch), each)
            rows, columns = (rng.randint(0, limit, shape) for limit in windows.shape[1:3])
            drawn = windows[np.arange(len(batch))[:, None], rows, columns]
            found.append(drawn.transpose(0, 1, 3, 4, 2).reshape(len(batch) * each, -1))
        return np.concatenate(found)

    def _learn_patches(self, patches: FloatArray, rng: Any) -> None:
        patches = _normalised(patches)
        self.patch_mean_ = patches.mean(axis=0)
        centred = patches - self.patch_mean_
        values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
        scales = np.sqrt(np.maximum(values, 0.0) + WHITENING)
        self.whitening_ = ((vectors / scales) @ vectors.T).astype(np.float32)
        white = centred @ self.whitening_
        n = min(self.n_centroids, len(white))
        clusters = MiniBatchKMeans(
            n, batch_size=2048, n_init=1, max_iter=20, random_state=rng.randint(2**31 - 1)
        )
        self.centroids_ = clusters.fit(white).cluster_centers_.astype(np.float32)

    def _learn_projection(self, pooled: FloatArray, rng: Any) -> None:
        self.feature_mean_ = pooled.mean(axis=0)
        scale = pooled.std(axis=0)
        scale[scale < 1e-6] = 1.0
        standard = (pooled - self.feature_mean_) / scale
        n = min(self.n_components, *standard.shape)
        with np.errstate(invalid="ignore"):  # If all images are equal, shares of variance are 0/0.
            solver = PCA(n, random_state=rng.randint(2**31 - 1)).fit(standard)
        self.components_ = (solver.components_ / scale).astype(np.float32)
        self.component_mean_ = (solver.mean_ @ solver.components_.T).astype(np.float32)
        self.n_features_out_ = n

    def transform(self, X: Any) -> FloatArray:
        """Encode images as an array of shape (n, n_features), float32.

        Raises
        ------
        AnnotationError, FileNotFoundError
            As in `fit`; also if images have another number of channels than those of `fit`.
        """
        check_is_fitted(self, "size_")
        _refuse_one_image(X, self.channels_)
        return self._encode(Images(X))

    def _encode(self, images: Images) -> FloatArray:
        if self.kind == "hog":
            rows = [self._hog(batch) for batch in self._batches(images)]
        else:
            rows = [self._project(self._pool(batch)) for batch in self._batches(images)]
        return np.concatenate([np.zeros((0, self.n_features_out_), np.float32), *rows])

    def _batches(self, images: Images) -> Iterator[FloatArray]:
        for batch in images.batches(self.size_, self.channels_, IMAGES_AT_ONCE):
            yield batch / np.float32(self.scale_)

    def _pool(self, batch: FloatArray) -> FloatArray:
        """Sum over each quarter how much nearer each centre is than the average centre."""
        windows = np.lib.stride_tricks.sliding_window_view(batch, (PATCH, PATCH), axis=(1, 2))
        n, high, wide = windows.shape[:3]
        patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(n * high * wide, -1)
        white = (_normalised(patches) - self.patch_mean_) @ self.whitening_
        squares = (white**2).sum(axis=1)[:, None] + (self.centroids_**2).sum(axis=1)
        distances = np.sqrt(np.maximum(squares - 2 * (white @ self.centroids_.T), 0.0))
        near = np.maximum(distances.mean(axis=1, keepdims=True) - distances, 0.0)
        near = near.reshape(n, high, wide, -1)
        rows = (slice(0, high // 2), slice(high // 2, high))
        columns = (slice(0, wide // 2), slice(wide // 2, wide))
        return np.concatenate([near[:, r, c].sum(axis=(1, 2)) for r in rows for c in columns], 1)

    def _project(self, pooled: FloatArray) -> FloatArray:
        found: FloatArray = (pooled - self.feature_mean_) @ self.components_.T
        return (found - self.component_mean_).astype(np.float32)

    def _hog(self, batch: FloatArray) -> FloatArray:
        features = require("skimage.feature", "kind='hog'", "scikit-image")
        return np.stack([features.hog(image, **HOG) for image in batch]).astype(np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> AnyArray:
        """Return the names of the columns: "patches0", "patches1", ..."""
        check_is_fitted(self, "size_")
        return np.array([f"{self.kind}{i}" for i in range(self.n_features_out_)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


def _refuse_one_image(X: Any, channels: int) -> None:
    """Raise an error if X is a single image instead of an array of images."""
    shape = tuple(getattr(X, "shape", ()))
    if str(getattr(X, "dtype", "")) in ("object", "str") or hasattr(X, "columns") or 0 in shape:
        return  # X holds paths or is empty.
    grey = channels == 1 and len(shape) == 2 and shape[1] > 1
    if grey or (channels > 1 and len(shape) == 3 and channels in (shape[0], shape[2])):
        raise AnnotationError(
            f"X has the shape of one image, {shape}; give images (n, ...), as fit had them: X[None]"
        )


def _read_size(size: Any, given: tuple[int, int] | None) -> tuple[int, int]:
    if isinstance(size, str):
        height, width = given or (SIDE, SIDE)
        return min(height, SIDE), min(width, SIDE)
    if isinstance(size, Integral):
        return int(size), int(size)
    sides = list(size)
    if len(sides) != 2 or not all(isinstance(side, Integral) and int(side) > 0 for side in sides):
        raise AnnotationError(f"size={size!r} is no (height, width) of two positive whole numbers")
    return int(sides[0]), int(sides[1])


def _normalised(patches: FloatArray) -> FloatArray:
    """Return the patches scaled to mean 0 and, unless they are flat, variance 1."""
    centred = patches - patches.mean(axis=1, keepdims=True)
    return centred / np.sqrt(
        (centred**2).mean(axis=1, keepdims=True) + np.float32(LEAST_PATCH_VARIANCE)
    )
