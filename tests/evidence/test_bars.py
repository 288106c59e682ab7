"""Pictures at the top of pages of results: marks stand where their figures are."""

from xml.etree import ElementTree

import pytest

from benchmarks.bars import Row, dots

SVG = "{http://www.w3.org/2000/svg}"
ROWS = [
    Row("first", {"ours": 10.0, "theirs": 0.0}),
    Row("second", {"ours": 5.0}, (2.5, 7.5), ours=True),
]


@pytest.fixture
def drawn():
    return ElementTree.fromstring(dots("Figures", ROWS, target=5, digits=1))


def of_kind(drawn, name, kind):
    return [each for each in drawn.iter(SVG + name) if each.get("class") == kind]


def test_a_mark_stands_where_its_figure_is(drawn):
    # The first circle is the key of the legend.
    _, ten, five = (float(each.get("cx")) for each in of_kind(drawn, "circle", "d0"))
    _, zero = (float(each.get("d")[1:].split()[0]) + 6 for each in of_kind(drawn, "path", "d1"))
    assert five == pytest.approx((zero + ten) / 2)
    (target,) = of_kind(drawn, "line", "target")
    assert float(target.get("x1")) == pytest.approx(five)


def test_a_line_joins_the_figures_of_a_row_or_shows_its_interval(drawn):
    whole, interval = (
        float(each.get("x2")) - float(each.get("x1")) for each in of_kind(drawn, "line", "between")
    )
    assert interval == pytest.approx(whole / 2)


def test_names_and_figures_can_be_read(drawn):
    texts = [each.text for each in drawn.iter(SVG + "text")]
    assert {"Figures", "ours", "theirs", "first", "second", "10.0", "5.0"} <= set(texts)
    (bold,) = (each.text for each in of_kind(drawn, "text", "ours") if each.text != "Figures")
    assert bold == "second"
    assert drawn.get("aria-label") == "Figures: first, ours 10, theirs 0; second, ours 5"


def test_one_kind_of_figure_needs_no_legend():
    drawn = ElementTree.fromstring(dots("Figures", [Row("first", {"ours": 1.0})]))
    assert "ours" not in [each.text for each in drawn.iter(SVG + "text")]
