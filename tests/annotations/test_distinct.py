"""Distinct values of a column."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from manyhands.annotations.encoding import sorted_distinct


@settings(max_examples=300)
@given(
    st.sampled_from(["i1", "u1", "i2", "i8", "u8", "f8", "U3"]).flatmap(
        lambda kind: arrays.arrays(kind, st.integers(0, 30))
    )
)
def test_distinct_values_are_those_of_numpy(values):
    if values.dtype.kind == "f":
        values = values[~np.isnan(values)]
    found, codes = sorted_distinct(values)
    expected, places = np.unique(values, return_inverse=True)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(codes, places)


@pytest.mark.parametrize(
    ("kind", "low"), [("i1", -128), ("u1", 250), ("i8", -(2**63)), ("u8", 2**64 - 6), ("i4", -3)]
)
def test_numbers_that_lie_close_together_are_those_of_numpy(kind, low):
    """They are marked rather than sorted, also at the ends of their type."""
    steps = np.array([5, 0, 3, 3, 5], dtype=np.uint64)
    values = np.array([low + int(step) for step in steps], dtype=kind)
    found, codes = sorted_distinct(values)
    assert found.dtype == values.dtype
    assert found.tolist() == [low, low + 3, low + 5]
    assert codes.tolist() == [2, 0, 1, 1, 2]
