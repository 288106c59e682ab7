"""The instances that a report names: who gave them what, and their texts or images if asked for."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from manyhands.exceptions import AnnotationError, raise_missing_extra
from manyhands.io.aligned import read_images, read_texts, shown_image
from manyhands.io.annotations import is_export, read_export
from manyhands.report.inputs import Inputs
from manyhands.report.limits import LIMITS
from manyhands.report.section import Answer, Content, Findings, Section
from manyhands.wording import counted

THUMBNAIL = 112
"""Longest side of an image on the page, in pixels."""

IMAGE_BYTES = 400_000
"""Bytes of all images on a page, in base64; instances that come later have none."""

TEXT = 400
"""Characters of a text on the page."""


def items_section(found: Findings) -> Content | None:
    """Every instance that another section names, up to a limit: its label and who gave it what."""
    inputs = found.inputs
    if inputs.inferred is None:
        return None
    codes = {each: k for k, each in enumerate(inputs.table.instances.tolist())}
    named = dict.fromkeys(each for each in _named(found) if each in codes)
    chosen = [codes[each] for each in list(named)[: LIMITS["items"]]]
    return {"total": len(named), "shown": len(chosen), "rows": _describe(inputs, chosen)}


def _named(found: Findings) -> Iterator[Any]:
    """Ids of the instances that sections show, those to look at first come first."""
    lists: list[tuple[int, Any]] = []
    for section in found.sections:
        if section.summarise not in (None, items_section):
            content = found.once(section.summarise)
            lists += section.instances(content) if content else ()
    for _, ids in sorted(lists, key=lambda each: each[0]):
        yield from ids


def _describe(inputs: Inputs, chosen: list[int]) -> list[dict[str, Any]]:
    inferred, table = inputs.inferred, inputs.table
    if inferred is None:
        return []
    order = np.argsort(table.instance, kind="stable")
    starts = np.searchsorted(table.instance[order], chosen)
    stops = np.searchsorted(table.instance[order], chosen, side="right")
    probability, is_told = inputs.told, inferred.probable and inputs.certainty.is_known
    rows = []
    for i, low, high in zip(chosen, starts.tolist(), stops.tolist(), strict=True):
        own = order[low:high]
        own = own[np.argsort(table.label[own], kind="stable")]
        cut = own[: LIMITS["votes_of_item"]]
        given = zip(table.classes[table.label[cut]].tolist(),
                    table.annotators[table.annotator[cut]].tolist(), strict=True)  # fmt: skip
        known = inputs.gold is not None and inputs.gold[i] >= 0
        rows.append(
            {
                "id": table.instances[i].item(),
                "label": table.classes[inferred.codes[i]].item() if len(own) else None,
                "probability": float(probability[i]) if is_told and len(own) else None,
                "gold": table.classes[inputs.gold[i]].item() if known and inputs.gold is not None
                else None,
                "given": [list(pair) for pair in given],
                "more": len(own) - len(cut),
            }
        )  # fmt: skip
    return rows


def answer_items(s: Mapping[str, Any]) -> Answer:
    """Answer which items the page shows in full."""
    found = s.get("items") or {"shown": 0}
    return "items", f"{counted(found['shown'], 'item')}, each with its annotations and its label."


ITEMS = Section(
    "items",
    "Which items does this page show?",
    "items.html",
    items_section,
    answer=answer_items,
    on_demand=True,
)


# -- texts and images ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ItemContents:
    """Texts and images of instances, by id; integers match the strings that spell them.

    Attributes
    ----------
    texts : dict {str: str}
    images : dict {str: Path}
        Nothing is opened before the page is rendered, and only what it shows.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, Path] = field(default_factory=dict)

    def of(self, ids: list[Any]) -> list[dict[str, str | None]]:
        """Text and image (a data URI) of every id; None where there is none or no room."""
        room, found = IMAGE_BYTES, []
        for each in ids:
            text, path = self.texts.get(str(each)), self.images.get(str(each))
            image = None if path is None or room <= 0 else thumbnail(path)
            room -= len(image or "")
            shown = None if text is None else " ".join(text[: 4 * TEXT].split())
            if shown is not None and len(shown) > TEXT:
                shown = shown[:TEXT] + "…"
            found.append({"text": shown, "image": image if room >= 0 else None})
        return found


def read_contents(
    texts: str | Path | None = None, images: str | Path | None = None, *, ids: Any = None
) -> ItemContents:
    """Read what instances hold, for `render_report`.

    Parameters
    ----------
    texts : str or Path, optional
        An export of a labelling tool, or a file as in `manyhands.io.read_texts`; without ids, line
        i is the instance i, counted from 0.
    images : str or Path, optional
        A folder, as in `manyhands.io.read_images`; ids are file names, with or without suffix.
    ids : array, optional
        Of the instances, by which the column of a file of texts is found that holds them.

    Raises
    ------
    FileNotFoundError, AnnotationError
        As in these readers; or if an export has no texts.
    """
    found: dict[str, str] = {}
    if texts is not None:
        found = _exported(Path(texts)) if is_export(texts) else _listed(Path(texts), ids)
    files: dict[str, Path] = {}
    if images is not None:
        listed = read_images(images)
        for path in map(Path, listed.frame):
            within = path.relative_to(images)
            for name in (str(within.with_suffix("")), within.stem, str(within), within.name):
                files.setdefault(name, shown_image(path, images))
    return ItemContents(found, files)


def _listed(path: Path, wanted: Any) -> dict[str, str]:
    read = read_texts(path, wanted=wanted)
    ids = range(len(read)) if read.tasks is None else read.tasks.tolist()
    return {str(each): str(text) for each, text in zip(ids, read.frame, strict=True)}


def _exported(path: Path) -> dict[str, str]:
    """Texts of an export: its field "text", or else the one that holds the longest strings."""
    items = read_export(path).items
    long = {
        name: np.mean([len(value) if isinstance(value, str) else 0 for value in values])
        for name, values in items.columns.items()
    }
    name = "text" if "text" in long else max(long, key=lambda key: long[key], default=None)
    if name is None or not long[name]:
        raise AnnotationError(f"{path} holds no texts; give a table with the columns task and text")
    return {
        str(each): str(value)
        for each, value in zip(items.ids.tolist(), items.columns[name], strict=True)
        if value is not None
    }


def thumbnail(path: Path) -> str | None:
    """Make a small JPEG of an image, as a data URI; None if it cannot be read."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise_missing_extra("images in a report", "io", error)
    try:
        with Image.open(path) as image:
            small = ImageOps.exif_transpose(image).convert("RGB")
            small.thumbnail((THUMBNAIL, THUMBNAIL))
            written = io.BytesIO()
            small.save(written, "JPEG", quality=62)
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    return "data:image/jpeg;base64," + base64.b64encode(written.getvalue()).decode()
