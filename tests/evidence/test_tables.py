"""What pages make of records: groups, means, and tables in Markdown."""

import numpy as np
import pytest

from evidence.tables import crossed, days, groups, listing, mean, spread, where, with_error

RECORDS = [
    {"set": "a", "seed": 2, "right": 0.5, "date": "2026-11-03"},
    {"set": "b", "seed": 1, "right": 1.0, "date": "2026-11-01"},
    {"set": "a", "seed": 1, "right": 1.0, "date": "2026-11-02"},
]


def test_groups_are_in_the_order_of_their_first_records():
    assert list(groups(RECORDS, "set")) == ["a", "b"]
    assert groups(RECORDS, "set")["a"] == [RECORDS[0], RECORDS[2]]
    assert list(groups(RECORDS, "set", "seed")) == [("a", 2), ("b", 1), ("a", 1)]
    assert where(RECORDS, set="a", seed=1) == [RECORDS[2]]


def test_means_of_fields():
    assert mean(where(RECORDS, set="a"), "right") == 0.75
    assert np.isnan(mean([], "right"))


def test_days_are_a_span_or_one_day():
    assert days(RECORDS) == "2026-11-01 to 2026-11-03"
    assert days(RECORDS[:1]) == "2026-11-03"


def test_a_listing_has_formats_of_fields_and_functions_of_the_row():
    lines = listing(RECORDS[:2], {"set": "{set}", "%": lambda r: f"{100 * r['right']:.0f}"})
    assert lines == ["| set | % |", "|---|---|", "| a | 50 |", "| b | 100 |", ""]
    twice = listing(RECORDS[:1], [("seed", "{seed}"), ("seed", "{seed:.1f}")])
    assert twice == ["| seed | seed |", "|---|---|", "| 2 | 2.0 |", ""]


@pytest.mark.parametrize("sets", [["a", "b"], {"a": 1, "b": 2}])
def test_rows_and_columns_are_crossed_under_their_titles(sets):
    lines = crossed("", {1: "one", 2: "two"}, sets, lambda seed, name: f"{seed}{name}")
    assert lines == ["|  | a | b |", "|---|---|---|", "| one | 1a | 1b |", "| two | 2a | 2b |", ""]


def test_a_mean_has_its_error_or_its_spread():
    assert with_error([1.0, 3.0]) == "+2.0 ± 1.0"
    assert spread([1.0, 3.0], 2) == "2.00 ± 1.41"
