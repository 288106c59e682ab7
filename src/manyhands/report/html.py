"""Render a summary as one HTML file; the text is in the templates."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyhands.exceptions import WriteError
from manyhands.files import write_atomically
from manyhands.report.commands import fill_command, fill_page
from manyhands.report.items import ItemContents
from manyhands.report.planning import enough
from manyhands.report.questions import find_answers
from manyhands.report.section import Section
from manyhands.report.sections import sections_of
from manyhands.wording import A_FLAG, SAMPLE_TELLS, SHARED_LOOK_CERTAIN

if TYPE_CHECKING:
    from jinja2 import Environment, Template


def render_report(
    summary: Mapping[str, Any],
    contents: ItemContents | None = None,
    *,
    sections: Sequence[Section] | None = None,
) -> str:
    """Render a summary as one self-contained HTML page.

    Parameters
    ----------
    summary : dict
        Result of `summarize`, possibly read back from JSON.
    contents : ItemContents, optional
        Texts and images of the instances that the page names, as `read_contents` returns them.
    sections : sequence of Section, optional
        As in `summarize`; default: those of the kind of the summary.

    Returns
    -------
    str
        HTML that loads nothing, with styles for phones, light, dark and print. It can be read
        without scripts; its own, which a hash in its policy names, sorts and filters tables, saves
        them as CSV and opens instances. The same summary gives the same page.

    Raises
    ------
    ValueError
        If ``summary`` is not a summary of the current version.

    Examples
    --------
    >>> import numpy as np
    >>> from manyhands import render_report, summarize
    >>> page = render_report(summarize(np.array([[0, 0], [1, 0]]), title="Demo"))
    >>> "<h1>" in page, "://" in page
    (True, False)
    """
    if not isinstance(summary, Mapping):
        raise ValueError(
            f"summary is a {type(summary).__name__}; give what summarize(table) returns, such as "
            "render_report(summarize(table))"
        )
    _check_version(summary)
    summary = with_present_keys(summary)
    sections = sections_of(summary) if sections is None else sections
    known = {each.key: None for each in sections if each.summarise}
    summary = known | dict(summary)
    shown = [each for each in sections if each.summarise is None or _has_content(each, summary)]
    rows = (summary.get("items") or {"rows": ()})["rows"]
    content = (contents or ItemContents()).of([row["id"] for row in rows])
    words = {name: value for each in sections for name, value in each.words.items()}
    return render_page(
        summary,
        shown,
        words=words,
        places={row["id"]: k for k, row in enumerate(rows, start=1)},
        contents=content,
        answers=find_answers(summary, sections),
    )


def _has_content(section: Section, summary: Mapping[str, Any]) -> bool:
    """Return whether a section is shown; a first screen without steps still has its headline."""
    content = summary[section.key]
    return bool(content) if section.is_question else content is not None


def render_page(
    summary: Mapping[str, Any],
    sections: Sequence[Section],
    *,
    words: Mapping[str, Any],
    places: Mapping[Any, int] | None = None,
    contents: Sequence[Mapping[str, Any]] = (),
    answers: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Render sections as one self-contained page.

    Parameters
    ----------
    summary : dict
        With ``title`` and ``generator``; the templates see it as ``s``.
    sections : sequence of Section
    words : dict {name: function or text}
        What the templates call.
    places : dict {id: number}, optional
        Instances that the page shows.
    contents : sequence of dict
        Their texts and images.
    answers : sequence of dict
        As of `find_answers`.

    Returns
    -------
    str
    """
    environment = _environment()
    from markupsafe import Markup

    css, script = style_sheet(), _script()
    page = environment.get_template("report.html").render(
        words,
        s=summary,
        sections=[(each, _template(environment, each)) for each in sections],
        css=Markup(css),
        script=Markup(script),
        policy=Markup(_policy(css, script)),
        places=places or {},
        contents=contents,
        has_contents=any(each["text"] for each in contents),
        answers={each["section"]: each["answer"] for each in answers if each["anchor"]},
        not_told=[(e["question"], e["answer"]) for e in answers if e["anchor"] is None],
    )
    return fill_page(page, summary.get("files"))


def _template(environment: Environment, section: Section) -> Template:
    """The template of a section: a file of this package by its name, any other by its path."""
    path = section.template
    if isinstance(path, str):
        return environment.get_template(path)
    return environment.from_string(Path(path).read_text(encoding="utf-8"))


def _policy(css: str, script: str) -> str:
    """Content security policy: this style, this script, and images within the page."""
    return (
        f"default-src 'none'; style-src {_hash(css)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def style_sheet() -> str:
    """Return the style sheet, with classes for shares: a policy may forbid style attributes."""
    shares = "".join(
        f".{letter}{k}{{--{name}:{k / 100:g}}}"
        for letter, name in (("v", "v"), ("l", "lo"), ("h", "hi"), ("a", "at"), ("c", "chance"))
        for k in range(101)
    )
    return _file("report.css") + shares


@cache
def _script() -> str:
    return _file("report.js")


def _file(name: str) -> str:
    path = resources.files("manyhands.report") / "templates" / name
    return path.read_text(encoding="utf-8")


def write_report(
    summary_or_path: Mapping[str, Any] | str | os.PathLike[str],
    path: str | os.PathLike[str],
    contents: ItemContents | None = None,
) -> Path:
    """Write the HTML page of a summary atomically.

    Parameters
    ----------
    summary_or_path : dict, or path of its JSON file
    path : str or Path
        The HTML file; missing parent folders are created.
    contents : ItemContents, optional
        As in `render_report`.

    Returns
    -------
    Path

    Raises
    ------
    ValueError
        If the JSON file does not hold a summary.
    WriteError
        If the path does not end in .html or .htm, or the file cannot be written; an existing file
        is left unchanged.
    """
    if not Path(path).is_dir() and Path(path).suffix.lower() not in (".html", ".htm"):
        raise WriteError(
            f"cannot write {str(path)!r}: the report is an HTML page; give a name that ends in "
            ".html"
        )
    summary = (
        read_summary(summary_or_path)
        if isinstance(summary_or_path, str | os.PathLike)
        else summary_or_path
    )
    return write_atomically(path, render_report(summary, contents))


def read_summary(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Read a summary from its JSON file.

    Raises
    ------
    ValueError
        If the file does not hold a summary.
    """
    try:
        summary = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{os.fspath(path)!r} is not a JSON file ({error}); write one with "
            "json.dump(summarize(...), file)"
        ) from error
    if not isinstance(summary, dict):
        raise ValueError(f"{os.fspath(path)!r} holds a {type(summary).__name__}, not a summary")
    return with_present_keys(summary)


def with_present_keys(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace the former key of a stack's relative informedness, ``parity``, if it is there."""
    training = summary.get("training") or {}
    stack = training.get("stack") or {}
    if "parity" not in stack:
        return summary
    present = {{"parity": "relative_informedness"}.get(k, k): value for k, value in stack.items()}
    return {**summary, "training": {**training, "stack": present}}


def _check_version(summary: Mapping[str, Any]) -> None:
    from manyhands.report.summary import VERSION

    found = summary.get("version")
    if found != VERSION:
        raise ValueError(
            f"summary['version'] is {found!r}; this version of manyhands renders version {VERSION}."
            " Create the summary again with summarize(...)"
        )


@cache
def _environment() -> Environment:
    """Make the environment once, since it compiles every template once."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from manyhands.report import charts, filters

    environment = Environment(
        loader=PackageLoader("manyhands.report", "templates"),
        # For every template: all names in a summary are untrusted text.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters.FILTERS)
    environment.globals.update(
        count_bars=charts.count_bars,
        share_bars=charts.share_bars,
        curves=charts.curves,
        gain_curve=charts.gain_curve,
        enough=enough,
        fill_command=fill_command,
        A_FLAG=A_FLAG,
        SAMPLE_TELLS=SAMPLE_TELLS,
        SHARED_LOOK_CERTAIN=SHARED_LOOK_CERTAIN,
    )
    return environment
