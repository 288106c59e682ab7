"""What pages make of records: groups, means, and tables in Markdown."""

import numpy as np
import pytest

from evidence.tables import (
    chosen_without,
    constant_cells,
    crossed,
    days,
    groups,
    left_out_table,
    listing,
    mean,
    split,
    spread,
    where,
    with_error,
)

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


FIGURES = {
    "as is": {"a 1": (0.9, 1.0, 0.1), "a 2": (0.9, 3.0, 0.1), "b": (0.9, 1.0, 0.1)},
    "half": {"a 1": (0.9, 2.0, 0.3), "a 2": (0.9, 0.0, 0.3), "b": (0.9, 2.0, 0.3)},
}


def test_a_constant_is_chosen_without_the_tables_of_a_family():
    family_of = lambda name: name[0]  # noqa: E731
    chosen = chosen_without(
        FIGURES, family_of, lambda found, _: sum(loss for _, loss, _ in found.values())
    )
    # Without the family a, b decides; without b, the mean of a's tables.
    assert chosen == {"a 1": "as is", "a 2": "as is", "b": "half"}
    cells = constant_cells(FIGURES, family_of)
    assert cells == ["1.6667 / 0.1000", "1.3333 / 0.3000", "2.0000 / 0.1667", "as is 2, half 1"]


def test_of_equal_values_the_one_nearest_to_ours_is_chosen():
    costs = {1.0: {"a": 0.0, "b": 0.0}, 2.0: {"a": 0.0, "b": 0.0}, 4.0: {"a": 0.5, "b": 0.0}}
    lines = left_out_table(costs, 2.0, lambda name: name)
    assert lines[0] == "| left out together | 1 | **2** | 4 | chosen without it | lost |"
    assert lines[2] == "| a | 0.0000 | 0.0000 | 0.5000 | 2 | 0.0000 |"
    assert lines[4] == "| **all** | 0.0000 | 0.0000 | 0.2500 |  | 0.0000 |"


def test_a_wide_table_is_split_into_tables_that_begin_with_the_same_column():
    lines = split(["set", "a", "b", "c"], [["one", "1", "2", "3"]], most=2)
    first, second = "\n".join(lines).strip().split("\n\n")
    assert first == "| set | a | b |\n|---|---|---|\n| one | 1 | 2 |"
    assert second == "| set | c |\n|---|---|\n| one | 3 |"
