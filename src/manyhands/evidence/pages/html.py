"""A page as one HTML file."""

from __future__ import annotations

from manyhands.evidence.pages.document import Page
from manyhands.exceptions import raise_missing_extra


def to_html(page: Page) -> str:
    """Write a page as one self-contained HTML file, without JavaScript, in light and dark.

    Raises
    ------
    MissingExtraError
        Without the extra 'report'.
    """
    try:
        from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise_missing_extra("to_html", "report", error)
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("manyhands.evidence.pages", "templates"),
                # One style for all of the project's pages.
                PackageLoader("manyhands.report", "templates"),
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment.get_template("results.html").render(page=page)
