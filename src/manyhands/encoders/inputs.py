"""Raw texts and images in lists, arrays, columns and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
import numpy as np

from manyhands.annotations.ids import as_frame
from manyhands.exceptions import AnnotationError, MissingExtraError
from manyhands.io.aligned import IMAGE_SUFFIXES
from manyhands.typing import AnyArray

CHANNELS = (1, 3, 4)

VALUES_LOOKED_AT = 100
"""Number of values that decide whether texts are texts or paths of images."""
RawKind = Literal["texts", "images"]


def raw_kind(X: Any) -> RawKind | None:
    """Return whether X holds texts or images; None if it holds features.

    Returns
    -------
    "images"
        An 8-bit array with three or four axes, or a list, array or column of paths or images.
    "texts"
        A list, array or column of other texts, unless all of them are numbers.
    None
        Anything else, including frames with several columns.
    """
    if len(getattr(X, "shape", ())) > 2:
        return "images" if str(X.dtype).endswith("uint8") and len(X.shape) < 5 else None
    values = _values(X)
    return None if values is None else kind_of_values(values)


def kind_of_values(values: Sequence[Any]) -> RawKind | None:
    """Return whether values are texts, or paths or images; None if neither."""
    head = [value for value in values[:VALUES_LOOKED_AT] if not _is_missing(value)]
    if head and all(_is_image(value) or _is_image_path(value) for value in head):
        return "images"
    texts = [value for value in values if isinstance(value, str)]
    if head and all(isinstance(value, str) for value in head) and not all(map(_is_number, texts)):
        return "texts"
    return None


def _values(X: Any) -> list[Any] | None:
    """Return the values of a list, an object or text array or one column; None otherwise."""
    if isinstance(X, str | bytes | os.PathLike):
        return None
    frame = as_frame(X)
    if frame is not None and len(frame.columns) != 1:
        return None
    X = listed(X)
    if isinstance(X, np.ndarray):
        if X.dtype.kind not in "OUT" or X.ndim not in (1, 2) or (X.ndim == 2 and X.shape[1] != 1):
            return None
        return list(X.ravel().tolist())
    if isinstance(X, list | tuple):
        return [row[0] if _is_cell(row) else row for row in X]
    return None


def _is_cell(value: Any) -> bool:
    """Return whether a row of a nested list holds one text."""
    return isinstance(value, list | tuple) and len(value) == 1 and isinstance(value[0], str)


def _is_missing(value: Any) -> bool:
    if value is None or isinstance(value, str | os.PathLike | np.ndarray):
        return value is None
    return bool(value != value) if isinstance(value, float) else type(value).__name__ == "NAType"


def _is_image(value: Any) -> bool:
    """Return whether a value is a path object, a PIL image, or an array of two or three axes."""
    if isinstance(value, os.PathLike) or hasattr(value, "getbands"):
        return True
    return isinstance(value, np.ndarray) and value.ndim in (2, 3)


def _is_image_path(value: Any) -> bool:
    return isinstance(value, str) and value.lower().endswith(IMAGE_SUFFIXES) and "\n" not in value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# -- texts ----------------------------------------------------------------------------------------


def as_texts(X: Any, missing: str = "error") -> list[str]:
    """Read a list, array, column or one-column frame of texts.

    Parameters
    ----------
    X : any
    missing : {"error", "empty"}
        What to do with None and NaN: raise an error, or read them as empty texts.

    Returns
    -------
    list of str

    Raises
    ------
    AnnotationError
        If X is of another kind, or holds something else than texts.
    """
    if isinstance(X, str | bytes):
        raise AnnotationError(f"X is one text ({X[:40]!r}); give a list of texts: [X]")
    values = _values(X)
    if values is None:
        shape = f" of shape {X.shape}" if hasattr(X, "shape") else ""
        raise AnnotationError(
            f"X is a {type(X).__name__}{shape}; give texts as a list, an array or one column"
        )
    gaps = [row for row, value in enumerate(values) if _is_missing(value)]
    if gaps and missing == "error":
        raise AnnotationError(
            f"X has no text in {len(gaps)} of {len(values)} rows (row {gaps[0]} is the first, "
            "counted from 0); leave such rows out, or read them as empty texts: "
            "TextEncoder(missing='empty')"
        )
    empty = set(gaps)
    texts = ["" if row in empty else value for row, value in enumerate(values)]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise AnnotationError(
                f"row {row} of X is {text!r:.60}, a {type(text).__name__}, not a text; convert it"
            )
    return texts


# -- images ---------------------------------------------------------------------------------------


class Images:
    """Images in memory or in files, read in batches.

    Parameters
    ----------
    X : array or list
        An array (n, height, width), (n, height, width, channels) or (n, channels, height, width);
        or a list, array or column of paths, PIL images or arrays of one image each.

    Raises
    ------
    AnnotationError
        If X is of another kind or empty.
    """

    def __init__(self, X: Any) -> None:
        self.array: AnyArray | None = None
        self.items: list[Any] = []
        if hasattr(X, "detach"):
            X = X.detach().cpu().numpy()
        if len(getattr(X, "shape", ())) > 2:
            self.array = _channels_last(np.asarray(X))
        else:
            values = _values(X)
            if values is None or not values:
                raise AnnotationError(
                    f"X is a {type(X).__name__}"
                    f"{f' of shape {X.shape}' if hasattr(X, 'shape') else ''}; give images as an "
                    "array (n, height, width, channels), or a list of paths or PIL images"
                )
            self.items = values

    def __len__(self) -> int:
        return len(self.items if self.array is None else self.array)

    @property
    def side_lengths(self) -> tuple[int, int] | None:
        """Height and width, if X is an array."""
        return None if self.array is None else (self.array.shape[1], self.array.shape[2])

    @property
    def channels(self) -> int:
        """Number of channels; files and PIL images are read as RGB."""
        if self.array is not None:
            return int(self.array.shape[3])
        first = self.items[0]
        return int(_channels_last(first[None]).shape[3]) if isinstance(first, np.ndarray) else 3

    def rows(self, rows: AnyArray) -> Images:
        """Return some of the images."""
        part = object.__new__(Images)
        part.array = None if self.array is None else self.array[rows]
        part.items = [self.items[row] for row in rows] if self.items else []
        return part

    def batches(self, size: tuple[int, int] | None, channels: int, n: int) -> Iterator[AnyArray]:
        """Yield up to n images at a time, float32 (m, height, width, channels).

        8-bit values are divided by 255; other numbers are as they are.

        Parameters
        ----------
        size : (height, width) or None
            Images of other sizes are resized by averaging areas. None: they must have one size.
        channels : int
        n : int
        """
        for start in range(0, len(self), n):
            if self.array is None:
                part = [
                    _one_image(item, start + row, size, channels)
                    for row, item in enumerate(self.items[start : start + n])
                ]
                shapes = {image.shape for image in part}
                if len(shapes) > 1:
                    raise AnnotationError(
                        f"X holds images of several sizes ({_shown(shapes)}); set size="
                    )
                batch = np.stack(part)
            else:
                batch = resized(_as_floats(self.array[start : start + n], start), size)
            _check_channels(batch, channels)
            yield batch


def _shown(shapes: set[tuple[int, ...]]) -> str:
    return ", ".join(f"{shape[0]} x {shape[1]}" for shape in sorted(shapes)[:3])


def _check_channels(batch: AnyArray, channels: int) -> None:
    if batch.shape[-1] != channels:
        raise AnnotationError(
            f"X has images of {batch.shape[-1]} channels, and fit had {channels}; convert them"
        )


def _channels_last(X: AnyArray) -> AnyArray:
    """Return the images as (n, height, width, channels)."""
    if X.dtype.kind not in "uifb":
        raise AnnotationError(f"X is an array of {X.dtype}; images are arrays of numbers")
    if X.ndim == 3:
        return X[..., None]
    if X.ndim == 4 and X.shape[3] in CHANNELS and X.shape[1] not in CHANNELS:
        return X
    if X.ndim == 4 and X.shape[1] in CHANNELS:
        return np.moveaxis(X, 1, 3)
    if X.ndim == 4 and X.shape[3] in CHANNELS:
        return X
    raise AnnotationError(
        f"X has shape {X.shape}; images have shape (n, height, width), (n, height, width, "
        "channels) or (n, channels, height, width), with 1, 3 or 4 channels"
    )


def _as_floats(images: AnyArray, start: int) -> AnyArray:
    values = images.astype(np.float32)
    if images.dtype == np.uint8:
        return values / np.float32(255)
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if not finite.all():
        raise AnnotationError(
            f"image {start + int(np.argmin(finite))} of X (counted from 0) holds NaN or infinity; "
            "leave it out or fill it"
        )
    return values


def _one_image(item: Any, row: int, size: tuple[int, int] | None, channels: int) -> AnyArray:
    """Read and resize one image."""
    if isinstance(item, np.ndarray):
        return resized(_as_floats(_channels_last(item[None]), row), size)[0]
    if _is_missing(item) or (isinstance(item, str) and not item.strip()):
        raise AnnotationError(f"row {row} of X (counted from 0) has no image; leave it out")
    if not (isinstance(item, str | os.PathLike) or hasattr(item, "getbands")):
        raise AnnotationError(
            f"row {row} of X is a {type(item).__name__}; give paths, PIL images or arrays"
        )
    return _read_image(item, f"row {row} of X", lambda image: _from_pillow(image, size, channels))


def as_pillow(item: Any) -> Any:
    """Return a path, an array or a PIL image as a PIL image in RGB."""
    if isinstance(item, np.ndarray):
        values = _channels_last(item[None])[0]
        if values.dtype != np.uint8:
            raise AnnotationError(
                f"X holds images of {values.dtype}; a network takes 8-bit images, arrays of uint8"
            )
        pillow = require("PIL.Image", "Reading images", "pillow", "manyhands[io]")
        item = pillow.fromarray(values[..., 0] if values.shape[2] == 1 else values)
    return _read_image(item, "X", lambda image: _upright(image).convert("RGB"))


def _read_image(item: Any, place: str, read: Callable[[Any], Any]) -> Any:
    """Read an image, and open it first if it is a file; errors name the file."""
    pillow = require("PIL.Image", "Reading images", "pillow", "manyhands[io]")
    try:
        if hasattr(item, "getbands"):
            return read(item)
        if Path(item).exists() and not Path(item).is_file():  # Reading a pipe would never end.
            raise ValueError("it is a folder, a pipe or a device")
        with pillow.open(Path(item)) as image:
            return read(image)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{item} ({place}) does not exist (looked in {Path.cwd()}); check the name, or "
            "give an absolute path"
        ) from error
    except Exception as error:  # Decoders raise all kinds of exceptions for damaged files.
        name = "" if hasattr(item, "getbands") else f"{item}: "
        raise AnnotationError(
            f"{name}{place} cannot be read as an image ({error}); replace it or leave it out"
        ) from error


def _upright(image: Any) -> Any:
    """Return the rotate a photograph according to the orientation in its metadata."""
    return import_module("PIL.ImageOps").exif_transpose(image)


def _from_pillow(image: Any, size: tuple[int, int] | None, channels: int) -> AnyArray:
    mode = "L" if channels == 1 else "RGB"
    if size is not None:
        image.draft(mode, (size[1], size[0]))  # JPEG files are decoded at about this size.
    image = _upright(image).convert(mode)
    if size is not None and image.size != (size[1], size[0]):
        box = import_module("PIL.Image").Resampling.BOX
        image = image.resize((size[1], size[0]), box)
    values = np.asarray(image, dtype=np.float32) / np.float32(255)
    return values if values.ndim == 3 else values[..., None]


def resized(images: AnyArray, size: tuple[int, int] | None) -> AnyArray:
    """Resize images (n, height, width, channels) by averaging areas.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.array([[0.0, 1.0, 2.0, 3.0]]).reshape(1, 1, 4, 1)
    >>> resized(image, (1, 2)).ravel().tolist()
    [0.5, 2.5]
    """
    if size is None or images.shape[1:3] == size:
        return images
    rows, columns = (_areas(have, want) for have, want in zip(images.shape[1:3], size, strict=True))
    return np.einsum("ih,nhwc,jw->nijc", rows, images, columns, optimize=True).astype(np.float32)


def _areas(have: int, want: int) -> AnyArray:
    """Return the weight of every old pixel in every new one, (want, have); rows sum to 1."""
    edges = np.arange(want + 1) * (have / want)
    pixels = np.arange(have)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    shares = np.clip(overlap, 0, None)
    return shares / shares.sum(axis=1, keepdims=True)


def listed(X: Any) -> Any:
    """Return the values of a Series or a one-column frame as a list; anything else as it is."""
    frame = as_frame(X)
    if frame is not None and len(frame.columns) != 1:
        raise AnnotationError(f"X has {len(frame.columns)} columns; give one, such as X[['text']]")
    if frame is not None:
        return frame[frame.columns[0]].to_list()
    if nw.dependencies.is_into_series(X):
        return nw.from_native(X, series_only=True).to_list()
    return X


def image_rows(X: Any) -> list[Any]:
    """Return the rows of X as a list; texts are read as paths of images."""
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    return [Path(row) if isinstance(row, str) else row for row in listed(X)]


# -- optional packages ----------------------------------------------------------------------------


def require(module: str, feature: str, package: str, install: str = "") -> Any:
    """Import a module of an optional package.

    Raises
    ------
    MissingExtraError
        If it is not installed; the message gives the pip command.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{feature} needs {package}: pip install '{install or package}'"
        ) from error
