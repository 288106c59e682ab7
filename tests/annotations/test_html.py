"""How tables look in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

from manyhands import AnnotationTable

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a&b", "\u202ereversed"]


class Reader(HTMLParser):
    """Tags, attributes and text; notes tags that are not closed in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)


def cells(html):
    return [text.strip() for text in Reader(html).text if text.strip()]


def test_counts_classes_and_first_rows_are_shown():
    table = AnnotationTable.from_arrays(
        ["a", "b", "b", "c"],
        ["ann", "ann", "bob", "cy"],
        ["cat", "cat", "dog", "unsure"],
        abstain="unsure",
        instances=["a", "b", "c", "d"],
    )
    text = cells(table._repr_html_())
    for key, value in {
        "annotations": "3",
        "instances": "4",
        "annotators": "3",
        "classes": "2",
        "abstentions": "1",
        "per instance": "0.8 (0 to 2; 2 without any)",
        "per annotator": "1.0 (0 to 2; 1 without any)",
    }.items():
        assert text[text.index(key) + 1] == value
    first = text.index("First annotations")
    assert text[first + 1 : first + 7] == ["instance", "annotator", "label", "a", "ann", "cat"]
    assert text[text.index("share") + 1 : first] == ["cat", "2", "66.7 %", "dog", "1", "33.3 %"]
    assert "skips" not in text


def test_names_from_outside_are_escaped_and_isolated():
    table = AnnotationTable.from_arrays(HOSTILE, HOSTILE, HOSTILE)
    html = table._repr_html_()
    read = Reader(html)
    assert set(read.tags) <= {
        *("style", "div", "p", "bdi", "span"),
        *("table", "caption", "thead", "tbody", "tr", "th", "td"),
    }
    assert set(read.attributes) <= {"class", "style", "scope"}
    for name in HOSTILE:
        # Instance, annotator and class in the first rows, and once more among the classes.
        assert read.text.count(name) == 4
    assert html.count("<bdi>\u202ereversed</bdi>") == 4


def test_long_names_many_classes_and_many_rows_stay_small():
    n = 5_000
    names = [f"{i}-" + "x" * 10_000 for i in range(12)]
    rng = np.random.RandomState(0)
    table = AnnotationTable.from_arrays(
        np.arange(n), rng.randint(9, size=n), rng.choice(names, n), classes=names
    )
    html = table._repr_html_()
    assert len(html) < 10_000
    text = cells(html)
    assert "and 4 more classes" in text
    assert max(map(len, text)) <= 60


def test_numbers_that_are_names_are_not_grouped():
    table = AnnotationTable.from_matrix([[2019, 2020], [2019, -1]], instances=[12345, 67890])
    text = cells(table._repr_html_())
    assert "12345" in text
    assert "2019" in text
    assert "2,019" not in text


@pytest.mark.parametrize("weight", [None, [0.5, 2.0]])
def test_weights_and_sources_only_where_there_are_some(weight):
    table = AnnotationTable.from_arrays([0, 1], [0, 0], ["a", "b"], weight=weight)
    if weight:
        table = table.with_source("pseudo")
    text = cells(table._repr_html_())
    assert ("weight" in text) == ("source" in text) == ("of these pseudo" in text) == bool(weight)
    assert ("0.500" in text) == bool(weight)


def test_tables_without_annotations_have_a_summary_too():
    table = AnnotationTable.from_arrays([], [], [], classes=["a", "b"], n_instances=3)
    text = cells(table._repr_html_())
    assert "no annotations" in text
    assert text[text.index("per instance") + 1] == "0.0 (0 to 0; 3 without any)"


def test_text_that_is_no_unicode_can_be_shown():
    table = AnnotationTable.from_arrays(["lone \ud800"], ["b"], ["c"])
    assert table._repr_html_().encode("utf-8")
