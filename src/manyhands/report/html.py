"""Render a summary as one HTML file; the text is in the templates.

A section consists of a key of the summary, an entry of `SECTIONS`, and a template with that name;
or, if it is short, a macro of that name in ``_sections.html``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyhands.exceptions import WriteError, raise_missing_extra
from manyhands.io.files import write_atomically

if TYPE_CHECKING:
    from jinja2 import Environment

SECTIONS = (
    ("data", "Data at a glance"),
    ("gold", "Against gold labels"),
    ("selection", "Methods compared"),
    ("classes", "Classes"),
    ("labels", "Inferred labels"),
    ("annotators", "Annotators"),
    ("unexpected", "Unexpected annotations"),
    ("common_confusions", "Common confusions"),
    ("learnt_confusion", "Learnt common confusion"),
    ("training", "Training"),
    ("methods", "How this was made"),
)
"""Key and heading of each section, in page order."""


def render_report(summary: Mapping[str, Any]) -> str:
    """Render a summary as one self-contained HTML page.

    Parameters
    ----------
    summary : dict
        Result of `summarize`, possibly read back from JSON.

    Returns
    -------
    str
        HTML without network access or JavaScript, with styles for light, dark and print. The same
        summary gives the same page.

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
    _check_version(summary)
    sections = [(key, heading) for key, heading in SECTIONS if summary.get(key)]
    template = _environment().get_template("report.html")
    return template.render(s=summary, sections=sections)


def write_report(
    summary_or_path: Mapping[str, Any] | str | os.PathLike[str], path: str | os.PathLike[str]
) -> Path:
    """Write the HTML page of a summary atomically.

    Parameters
    ----------
    summary_or_path : dict, or path of its JSON file
    path : str or Path
        The HTML file; missing parent folders are created.

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
        summary_or_path if isinstance(summary_or_path, Mapping) else _read_summary(summary_or_path)
    )
    return write_atomically(path, render_report(summary))


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

    from manyhands.report import charts, words

    environment = Environment(
        loader=PackageLoader("manyhands.report", "templates"),
        # For every template: all names in a summary are untrusted text.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(words.FILTERS)
    environment.globals.update(
        count_bars=charts.count_bars, share_bars=charts.share_bars, curves=charts.curves
    )
    return environment
