"""The list of formats: names, rules, and the page that describes them."""

from pathlib import Path

import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations
from manyhands.io.exports.formats import FORMATS, WRITERS
from tests.io.exports.conftest import made, studio, write


def test_the_page_of_formats_names_every_format_and_tool():
    page = (Path(__file__).parents[3] / "docs" / "formats.md").read_text()
    formats, tools = page.split("\n| `--to` |")
    first = " ".join(line.split("|")[1] for line in formats.splitlines() if line.startswith("| `"))
    # These are recognised so that they can be refused.
    refused = {"appen-aggregated", "ground-truth-manifest", "inception"}
    for name in {form.name for form in FORMATS} - refused:
        assert f"`{name}`" in first, f"docs/formats.md has no row for the format {name}"
    for name in WRITERS:
        assert f"\n| `{name}` |" in tools, (
            f"docs/formats.md does not say what is written for {name}"
        )


def test_formats_have_distinct_names_and_rules():
    assert len({form.name for form in FORMATS}) == len(FORMATS)
    assert all(form.rule for form in FORMATS)
    with pytest.raises(AnnotationError, match="format='excel' is unknown; use 'auto' or label-st"):
        read_annotations("a.csv", format="excel")


def test_several_formats_at_once_are_refused(tmp_path):
    a = write(tmp_path / "a.json", [studio(made(1, "good"))])
    b = write(tmp_path / "b.json", {"0": {"0": 1}})
    with pytest.raises(AnnotationError, match=r"several formats.*label-studio.*peerannot"):
        read_annotations([a, b])
