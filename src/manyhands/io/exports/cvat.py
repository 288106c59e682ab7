"""CVAT: tags of images and frames, in XML 1.1 and of the REST API (MIT)."""

from __future__ import annotations

from typing import Any

from manyhands.io.exports.contract import JSON, Format
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered, listed


def is_cvat(document: Document) -> bool:
    """Recognise CVAT: XML within "annotations", or JSON with "tags", "shapes" and "tracks"."""
    return document.root == "annotations" or {"tags", "shapes", "tracks"} <= document.whole.keys()


def read_cvat(document: Document, into: Gathered, asked: Asked) -> None:
    """Read the tags of images from XML 1.1, or of frames from a job's annotations (REST).

    Neither names the annotator, who is the assignee of the job; JSON may hold an "assignee".
    """
    if document.root:
        for at, image in document.records:
            task = image.get("name")
            into.item(task, {"image": task}, document.name)
            labels = [tag["label"] for tag in image["tags"]]
            if not labels:
                into.lose("the image has no tags: marked regions classify nothing", at)
                continue
            into.answer(task, None, "tag", labels, at, is_list=True)
            for tag in image["tags"]:
                for name, value in tag["attributes"].items():
                    into.answer(task, None, f"{tag['label']} / {name}", [value], at)
        return
    who = document.whole.get("assignee")
    worker = who.get("username") if isinstance(who, dict) else who
    frames: dict[Any, list[Any]] = {}
    for position, tag in enumerate(listed(document.whole["tags"]), start=1):
        if not isinstance(tag, dict) or isinstance(tag.get("frame"), list | dict):
            document.broken.append((f"tag {position}", "it is no object with a frame"))
        else:
            frames.setdefault(tag.get("frame"), []).append(tag.get("label_id"))
    for frame, labels in frames.items():
        into.answer(frame, worker, "tag", labels, f"frame {frame}", is_list=True)


FORMAT = Format("cvat", "CVAT, XML 1.1 or REST", JSON, is_cvat, read_cvat)
