"""Render a summary as one HTML file; the text is in the templates.

A section consists of a key of the summary, an entry of `SECTIONS`, and a template with that name;
or a macro of that name in ``_sections.html`` or ``_work.html``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyhands.exceptions import WriteError, raise_missing_extra
from manyhands.files import write_atomically
from manyhands.planning.planner import limit_of
from manyhands.report.actions import find_answers
from manyhands.report.headline import headline, headline_of_new_items
from manyhands.report.items import Contents
from manyhands.report.planning import enough
from manyhands.wording import ALL_TO_REVIEW, SAMPLE_TELLS

if TYPE_CHECKING:
    from jinja2 import Environment

SECTIONS = (
    ("actions", "What to do next"),
    ("brief", "In brief"),
    ("questions", "Questions answered"),
    ("data", "Data at a glance"),
    ("agreement", "Agreement"),
    ("gold", "Against gold labels"),
    ("selection", "Methods compared"),
    ("annotators", "Annotators"),
    ("time", "Speed and time"),
    ("classes", "Classes"),
    ("confusions", "What is confused"),
    ("common_confusions", "Common confusions"),
    ("learnt_confusion", "Learnt common confusion"),
    ("review", "Labels to check"),
    ("plan", "What to buy next"),
    ("labels", "Inferred labels"),
    ("unexpected", "Unexpected annotations"),
    ("training", "Training"),
    ("methods", "How this was made"),
    ("items", "Instances"),
)
"""Key and heading of each section, in page order. A section's id is its key, a table's id is
"table-" and its name, an instance's is "item-" and its number, a step's is "step-" and its code."""

ALWAYS = frozenset({"brief", "questions"})
"""Sections that have no key of their own in a summary."""

PRINTED_ON_DEMAND = frozenset(
    {
        *("items", "training", "unexpected", "labels"),
        *("common_confusions", "learnt_confusion", "methods"),
    }
)
"""Sections that are left out in print unless everything is printed."""


def render_report(summary: Mapping[str, Any], contents: Contents | None = None) -> str:
    """Render a summary as one self-contained HTML page.

    Parameters
    ----------
    summary : dict
        Result of `summarize`, possibly read back from JSON.
    contents : Contents, optional
        Texts and images of the instances that the page names, as `read_contents` returns them.

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
    MissingExtraError
        If the extra 'report' is not installed.

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
    summary = {**dict.fromkeys(key for key, _ in SECTIONS), **summary}
    sections = [(key, heading) for key, heading in SECTIONS if key in ALWAYS or summary[key]]
    environment = _environment()
    from markupsafe import Markup

    css, script = style_sheet(), _script()
    rows = (summary["items"] or {"rows": ()})["rows"]
    shown = (contents or Contents()).of([row["id"] for row in rows])
    pairs = (summary["agreement"] or {}).get("pairs", {"rows": ()})["rows"]
    confused = (summary["confusions"] or {}).get("pairs", ())
    names = (summary["agreement"] or {}).get("matrix_of_pairs", {"annotators": ()})["annotators"]
    return environment.get_template("report.html").render(
        s=summary,
        sections=sections,
        css=Markup(css),
        script=Markup(script),
        policy=Markup(_policy(css, script)),
        printed_on_demand=PRINTED_ON_DEMAND,
        places={row["id"]: k for k, row in enumerate(rows, start=1)},
        contents=shown,
        has_contents=any(each["text"] for each in shown),
        pairs=_places_of_pairs(pairs, names),
        confused={f"{pair['row']}-{pair['column']}" for pair in confused},
    )


def _places_of_pairs(rows: Any, names: Any) -> dict[tuple[int, int], int]:
    """Row of the list of pairs for each cell of the matrix of pairs."""
    position = {name: k for k, name in enumerate(names)}
    found = {}
    for k, row in enumerate(rows, start=1):
        a, b = position.get(row["first"]), position.get(row["second"])
        if a is not None and b is not None:
            found[a, b] = found[b, a] = k
    return found


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
    contents: Contents | None = None,
) -> Path:
    """Write the HTML page of a summary atomically.

    Parameters
    ----------
    summary_or_path : dict, or path of its JSON file
    path : str or Path
        The HTML file; missing parent folders are created.
    contents : Contents, optional
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
        _read_summary(summary_or_path)
        if isinstance(summary_or_path, str | os.PathLike)
        else summary_or_path
    )
    return write_atomically(path, render_report(summary, contents))


def _read_summary(path: str | os.PathLike[str]) -> Mapping[str, Any]:
    try:
        summary = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{os.fspath(path)!r} is not a JSON file ({error}); write one with "
            "json.dump(summarize(...), file)"
        ) from error
    if not isinstance(summary, dict):
        raise ValueError(f"{os.fspath(path)!r} holds a {type(summary).__name__}, not a summary")
    return summary


def _check_version(summary: Mapping[str, Any]) -> None:
    from manyhands.report.summary import VERSION

    found = summary.get("version")
    if found != VERSION:
        raise ValueError(
            f"summary['version'] is {found!r}; this version of manyhands renders version {VERSION}."
            " Create the summary again with summarize(...)"
        )


def _environment() -> Environment:
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise_missing_extra("render_report", "report", error)
    return _environment_of_templates()


@cache
def _environment_of_templates() -> Environment:
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
        limit_of=limit_of,
        SAMPLE_TELLS=SAMPLE_TELLS,
        ALL_TO_REVIEW=ALL_TO_REVIEW,
        headline=headline,
        headline_of_new_items=headline_of_new_items,
        questions_of=find_answers,
        rest_lines=filters.rest_lines,
    )
    return environment
