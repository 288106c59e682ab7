"""Figures that the README and the pages of docs quote, and the tables made of the papers' pages."""

import re

import pytest

from evidence.pages.docs import DOCS, pages, stale
from evidence.pages.quoted import Source, quotes, shaped, with_figures

RECORD = """
# Measured

## Here

| set | stack | other |
|---|---|---|
| **LabelMe** | 92.43 ± 0.02 (5) | 0.8397 (cf) |

## There

### Here

| set | seeds | stack |
|---|---|---|
| LabelMe | 5 | 12 |
| Music | 3 of 5 | 34 |
"""
PAGE = """
Right in [90.1][r-1] %, or [12][r-2]; in Music with [3
of 5][r-3], as [text](record.md) and `found["x"][r-0]` say.

[r-1]: record.md#here "LabelMe > stack as mean 1"
[r-2]: record.md#here-1 "LabelMe, 5 > stack"
[r-3]: record.md 'Music > seeds'
"""


def test_figures_are_links_to_their_cells(tmp_path):
    (tmp_path / "record.md").write_text(RECORD)
    found = quotes(PAGE, tmp_path)
    assert [(figure, cell.figure()) for figure, cell in found] == [
        ("90.1", "92.4"),
        ("12", "12"),
        ("3 of 5", "3 of 5"),  # A line may be broken within a figure.
    ]
    right = PAGE.replace("90.1", "92.4")
    assert with_figures(PAGE, tmp_path) == right
    assert with_figures(right, tmp_path) == right
    with pytest.raises(ValueError, match="no figure has the label r-4"):
        quotes(PAGE + '[r-4]: record.md "Music > stack"\n', tmp_path)
    for cell in ("Music > beauty", "Speech > stack"):
        with pytest.raises(KeyError, match="no cell"):
            with_figures(PAGE.replace("Music > seeds", cell), tmp_path)
    assert quotes("No [figure](record.md) is quoted.", tmp_path) == []


COLUMNS = """
| set | [stack][r-1] | ours | [in words][r-2] |
|---|---|---|---|
| [`LabelMe`](labelme.md), with care | 92.4 | 1 | 12 |

| method | [*elsewhere*][r-3] |
|---|---|
| stack | 34 |

[r-1]: record.md#here "* > stack as mean 1"
[r-2]: record.md#here-1 "* > stack"
[r-3]: record.md#here-1 "Music > *"
"""


def test_a_link_in_a_heading_quotes_its_column(tmp_path):
    (tmp_path / "record.md").write_text(RECORD)
    found = quotes(COLUMNS, tmp_path)
    assert [figure for figure, _ in found] == ["92.4", "12", "34"]
    assert [cell.figure() for _, cell in found] == ["92.4", "12", "34"]
    assert with_figures(COLUMNS, tmp_path) == COLUMNS
    wrong = COLUMNS.replace("92.4", "92.3").replace("| 34 |", "| **35** |")
    assert [figure for figure, _ in quotes(wrong, tmp_path)] == ["92.3", "12", "**35**"]
    assert with_figures(wrong, tmp_path) == COLUMNS
    with pytest.raises(KeyError, match="no cell for the row 'Speech, with care'"):
        quotes(COLUMNS.replace("`LabelMe`", "`Speech`"), tmp_path)


def test_figures_are_quoted_in_the_form_that_is_asked_for():
    assert shaped("**92.43 ± 0.02 (5)**", "mean 1") == "92.4"
    assert shaped("0.8397 (cf)", "% 1") == "84.0 (cf)"
    assert shaped("68.05 ± 1.10 (5); paper 66.60", "paper 0") == "67"
    assert shaped("68.05 ± 1.10 (5); paper 66.60", "1") == "68.1 ± 1.1"
    for why, found in (
        ("gain: +1.46 points (95 % interval -0.13 to +2.80; 5 seeds)", "+1.5 (−0.1 to +2.8)"),
        ("gain: -0.0041 (95 % interval -0.0120 to 0.0040; 5 seeds)", "−0.4 (−1.2 to +0.4)"),
    ):
        assert shaped(why, "change 1") == found
    assert shaped("before: 0.9529 (95 % interval 0.92 to 0.98)", "level 0") == "95"
    results = DOCS / "results"
    assert Source.named(results / "aggregation.md", "", "MajorityVote > sets").figure() == "21"
    claim = "… on LabelMe it is more accurate than DL-CL, its start. > why"
    assert "(95 %" in Source.named(results / "crowding2021" / "claims.md", "", claim).figure()


def test_quoted_figures_and_tables_are_those_of_the_records():
    assert not stale(), "run python -m evidence refresh"
    assert sum(len(quotes(page.read_text(), page.parent)) for page in pages()) > 400


def test_figures_with_a_deviation_on_pages_of_methods_are_quoted_from_records():
    for page in [*(DOCS / "methods").glob("*.md"), DOCS / "planning.md"]:
        own = re.sub(r"\[[^\[\]]+\]\[[^\[\]]+\]", "", page.read_text())
        assert not re.findall(r".*\d\s*±\s*\.?\d.*", own), f"{page.name} has figures without a cell"
