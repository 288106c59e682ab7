import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from manyhands import AnnotationTable
from manyhands.agreement import common_confusions, krippendorff_alpha, percent_agreement


def slow_alpha(A):
    """Krippendorff (2018), section 12.3, by loops over all ordered pairs."""
    pairs = []
    for row in A:
        given_classes = [v for v in row if v >= 0]
        m = len(given_classes)
        for i, a in enumerate(given_classes):
            for j, b in enumerate(given_classes):
                if i != j:
                    pairs.append((a, b, 1 / (m - 1)))
    total = sum(w for *_, w in pairs)
    if total == 0:
        return np.nan
    observed = sum(w for a, b, w in pairs if a != b) / total
    counts = {c: sum(w for a, _, w in pairs if a == c) for c in {a for a, *_ in pairs}}
    expected = sum(counts[a] * counts[b] for a in counts for b in counts if a != b) / (
        total * (total - 1)
    )
    return np.nan if expected == 0 else 1 - observed / expected


def test_krippendorff_textbook_example():
    """Krippendorff (2018), figure 12.4: two observers, ten binary units, alpha = .095."""
    a = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    b = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    table = AnnotationTable.from_matrix(np.column_stack([a, b]))
    assert krippendorff_alpha(table) == pytest.approx(0.095, abs=5e-4)
    assert percent_agreement(table) == 0.6


@given(
    arrays(np.int64, st.tuples(st.integers(1, 8), st.integers(1, 5)), elements=st.integers(-1, 2))
)
def test_alpha_equals_the_slow_loop(A):
    table = AnnotationTable.from_matrix(A, classes=range(3))
    np.testing.assert_allclose(krippendorff_alpha(table), slow_alpha(A), atol=1e-12)


def test_missing_annotations_are_no_category():
    A = np.array([[0, 0, -1], [1, 1, -1], [-1, -1, 1]])
    table = AnnotationTable.from_matrix(A)
    assert krippendorff_alpha(table) == 1
    assert percent_agreement(table) == 1


def test_nothing_to_compare_is_nan():
    single = AnnotationTable.from_matrix([[0, -1], [-1, 1]])
    assert np.isnan(percent_agreement(single))
    assert np.isnan(krippendorff_alpha(single))
    unanimous = AnnotationTable.from_matrix([[0, 0], [0, 0]], classes=[0, 1])
    assert np.isnan(krippendorff_alpha(unanimous))
    assert percent_agreement(unanimous) == 1


def test_added_annotations_do_not_count():
    table = AnnotationTable.from_matrix([[0, 0, -1], [1, 1, -1]])
    pseudo = AnnotationTable.from_arrays([0, 1], [2, 2], [1, 0], source="pseudo")
    grown = table.with_added(pseudo)
    assert krippendorff_alpha(grown) == 1
    np.testing.assert_array_equal(
        common_confusions(grown, np.array([0, 1])), common_confusions(table, np.array([0, 1]))
    )


def test_common_confusions_by_hand():
    # Annotator 0 calls a 0 a 1 (twice, counted once), annotator 1 never errs, 2 is silent.
    A = np.array([[1, 0, -1], [1, 0, -1], [1, 1, -1], [0, 0, -1]])
    shares = common_confusions(AnnotationTable.from_matrix(A), np.array([0, 0, 1, -1]))
    np.testing.assert_array_equal(shares, [[0.5, 0.5], [0.0, 1.0]])
