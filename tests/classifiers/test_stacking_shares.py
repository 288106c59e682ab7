"""Class shares given to a stack, weights of annotations, and what it calls a doubt."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.utils._param_validation import InvalidParameterError

from manyhands import AnnotationTable, CrowdStackingClassifier, make_crowd
from manyhands.exceptions import AnnotationError, ModelChoiceWarning

pytestmark = pytest.mark.filterwarnings("ignore:the (votes do not say|features predict)")


def quick(**parameters):
    return CrowdStackingClassifier(n_rounds=2, n_folds=2, random_state=0, **parameters)


@pytest.fixture(scope="module")
def rare():
    """Features, annotations and classes of instances of which four in five are of class 1."""
    rng = np.random.default_rng(0)
    y = (rng.random(200) < 0.8).astype(int)
    X = rng.normal(size=(200, 4)) + 1.2 * y[:, None]
    return X, make_crowd(y, n_annotators=3, random_state=0), y


def test_shares_in_a_series_go_by_class_not_by_order(rare):
    X, table, y = rare
    shares = pd.Series(y).value_counts(normalize=True)
    assert shares.index[0] != table.classes[0]  # The most frequent class comes first.
    found = quick(class_prior=shares).fit(X, table)
    same = quick(class_prior=shares.to_dict()).fit(X, table)
    np.testing.assert_array_equal(found.posterior_, same.posterior_)
    with pytest.raises(AnnotationError, match=r"class_prior names \['a', 'b'\]"):
        quick(class_prior=shares.rename({0: "a", 1: "b"}).sort_index()).fit(X, table)


def test_a_share_that_no_annotation_can_take_is_warned_of(rare):
    X, table, _ = rare
    wider = replace(table, classes=np.arange(3))
    with pytest.warns(ModelChoiceWarning, match=r"gives \[2\] the share 0.4"):
        found = quick(class_prior=[0.2, 0.4, 0.4]).fit(X, wider)
    np.testing.assert_allclose(found.class_prior_[:2], [1 / 3, 2 / 3], atol=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(class_prior=[0.2, 0.7995, 0.0]).fit(X, wider)  # Rounded shares sum to nearly 1.


def test_annotators_of_hardly_any_weight_leave_parity_as_it_is(rare):
    X, table, y = rare
    noise = make_crowd(y, n_annotators=6, noise=np.full((6, 2, 2), 0.5), random_state=1)
    both = AnnotationTable.from_arrays(
        np.r_[table.instance, noise.instance],
        np.r_[table.annotator, noise.annotator + table.n_annotators],
        np.r_[table.label, noise.label],
        weight=np.r_[np.ones(table.n_annotations), np.full(noise.n_annotations, 1e-6)],
    )
    alone, beside = quick().fit(X, table), quick().fit(X, both)
    assert beside.relative_informedness_ == pytest.approx(alone.relative_informedness_, rel=0.02)
    assert beside.vote_share_ == alone.vote_share_


def test_the_matrices_must_borrow_something():
    with pytest.raises(InvalidParameterError, match="crowd_strength"):
        CrowdStackingClassifier(crowd_strength=0).fit(np.eye(4), [0, 1, 0, 1])
