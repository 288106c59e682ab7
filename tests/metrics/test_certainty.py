"""Single labels are said to be as sure as all of them together."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit, logit

from manyhands import AnnotationTable, DawidSkene, MajorityVote, make_crowd
from manyhands.io import consensus
from manyhands.metrics import Level
from manyhands.metrics.certainty import (
    SHARED,
    Certainty,
    certainty_of,
    label_probability,
    level_of_some,
)
from manyhands.metrics.sample_levels import level_of_gold


def of_share(value):
    return Level(value, 0.0, 1.0, "model", 100)


def probabilities(n=5000, seed=0):
    return 0.5 + 0.5 * np.random.default_rng(seed).beta(3, 1, n)


def test_by_hand():
    found = Certainty(4, power=0.5, shared=0.1)(np.array([0.9, 0.25]))
    q = expit(logit(0.25) + 0.5 * (logit(0.9) - logit(0.25)))
    assert found == pytest.approx([0.9 * q + 0.1 / 4, 0.25])


@pytest.mark.parametrize("value", [0.02, 0.3, 0.55, 0.7, 0.9, 0.97, 0.999])
@pytest.mark.parametrize("n_classes", [2, 10])
def test_the_mean_is_the_level_and_the_order_stays(value, n_classes):
    p = probabilities()
    told = Certainty.of(of_share(value), p, n_classes)(p)
    assert told.mean() == pytest.approx(value, abs=1e-6)
    assert ((told >= 0) & (told <= 1)).all()
    assert (np.diff(told[np.argsort(p)]) >= 0).all()


@pytest.mark.parametrize("value", [0.6, 0.8, 0.95])
def test_even_the_surest_label_may_be_wrong(value):
    p = np.append(probabilities(), 1.0)
    wrong = 1 - Certainty.of(of_share(value), p, 2)(p).max()
    assert wrong >= SHARED * (1 - value) / 2


def test_votes_that_tie_are_raised_as_far_as_the_level_asks():
    p = np.repeat([0.5, 1.0], [30, 70])
    assert Certainty.of(of_share(0.95), p, 2)(p).mean() == pytest.approx(0.95, abs=1e-6)


def test_where_nothing_tells_nothing_is_told():
    p = probabilities(10)
    for found in (Certainty.of(None, p, 3), Certainty.of(of_share(0.9), np.ones(10), 1)):
        assert not found.is_known
        assert np.isnan(found(p)).all()


def test_known_labels_are_certain_and_open_ones_have_the_most_probable_class():
    posterior = np.array([[1.0, 0.0], [0.8, 0.2], [0.3, 0.7]])
    codes, known = np.array([0, 0, -1]), np.array([True, False, False])
    told = Certainty(2, 1.0, 0.1).of_labels(posterior, codes, known)
    assert told == pytest.approx([1.0, 0.77, 0.68])
    sparse = label_probability(csr_array(posterior), codes)
    assert sparse == pytest.approx(label_probability(posterior, codes))


def test_only_labels_that_the_level_is_about_count():
    """Neither known labels, nor instances without annotations, nor labels that were left open."""
    table = AnnotationTable.from_arrays([0, 1, 2], [0, 0, 0], [0, 1, 0], n_instances=5)
    posterior = np.array([[0.9, 0.1], [0.2, 0.8], [1.0, 0.0], [0.5, 0.5], [0.5, 0.5]])
    codes, known = np.array([0, 1, 0, 0, -1]), np.array([False, False, True, False, False])
    found = certainty_of(table, of_share(0.7), posterior, codes, known)
    assert found(np.array([0.9, 0.8])).mean() == pytest.approx(0.7, abs=1e-6)


def test_a_model_is_told_by_its_level_and_an_array_as_it_is():
    y = np.random.default_rng(0).integers(3, size=300)
    table = make_crowd(y, annotations_per_instance=4.0, random_state=0)
    model = DawidSkene().fit(table)
    assert consensus(table, model.posterior_).probability == pytest.approx(
        model.posterior_.max(axis=1)
    )
    told = consensus(table, model).probability
    assert told.mean() < model.posterior_.max(axis=1).mean()
    given = consensus(table, model, probability=np.full(300, np.nan))
    assert not (given.actions == "accept").any()
    assert given.columns()["probability"] == [None] * 300


def test_a_model_in_another_order_is_told_the_same():
    y = np.random.default_rng(1).integers(3, size=300)
    table = make_crowd(y, annotations_per_instance=4.0, random_state=1)
    drawn = np.random.default_rng(2).choice(300, 40, replace=False)
    gold = np.where(np.isin(np.arange(300), drawn), y, None)
    model = DawidSkene().fit(table, gold=gold, random_gold=np.isin(np.arange(300), drawn))
    order = np.random.default_rng(3).permutation(300)
    one, other = consensus(table, model), consensus(table[order], model)
    assert other.probability == pytest.approx(one.probability[order], abs=1e-6)
    assert (other.actions == one.actions[order]).all()


def test_vote_shares_are_told_as_probabilities():
    """A label that all annotators gave is not certain for that."""
    y = np.random.default_rng(0).integers(3, size=400)
    table = make_crowd(
        y, annotations_per_instance=3.0, noise="uniform", noise_strength=0.3, random_state=0
    )
    found = consensus(table, MajorityVote().fit(table))
    unanimous = found.agreement == 1
    right = np.array(found.labels) == y
    assert right[unanimous].mean() < 0.9
    assert found.probability[unanimous].max() < 0.95
    assert not (found.actions == "accept").any()


@pytest.mark.parametrize("value", [0.35, 0.6, 0.9])
@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_no_class_is_told_to_be_more_probable_than_a_label_that_the_method_prefers(
    value, n_classes
):
    posterior = np.random.default_rng(0).dirichlet(np.full(n_classes, 0.4), 2000)
    codes = posterior.argmax(axis=1)
    certainty = Certainty.of(of_share(value), posterior.max(axis=1), n_classes)
    told = certainty.of_classes(posterior, codes)
    own = told[np.arange(len(codes)), codes]
    assert own == pytest.approx(certainty.of_labels(posterior, codes, None))
    assert (told <= own[:, None]).all()
    # The order of the classes stays, and they share all that there is.
    assert (np.diff(np.take_along_axis(told, posterior.argsort(axis=1), axis=1)) > -1e-12).all()
    full = own >= 1 / n_classes  # Of others, it is told that they are worse than guessed.
    assert full.any() == (value > 1 / n_classes)
    assert told[full].sum(axis=1) == pytest.approx(1)


def test_classes_by_hand():
    certainty = Certainty(3, power=0.3, shared=0.1)
    label, second, third = certainty([0.6, 0.35, 0.05])
    [told] = certainty.of_classes(np.array([[0.6, 0.35, 0.05]]), np.array([0]))
    rest = (1 - label) / (second + third)
    assert told == pytest.approx([label, second * rest, third * rest])


def test_a_label_against_the_posterior_may_be_less_probable_than_another_class():
    posterior = np.array([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]])
    known = np.array([False, True])
    first, second = Certainty(3, 0.8, 0.1).of_classes(posterior, np.array([1, 1]), known)
    assert first[0] > first[1] > first[2]
    assert second == pytest.approx(posterior[1])


def test_of_classes_nothing_is_told_where_nothing_is_known():
    assert np.isnan(Certainty(3).of_classes(np.full((2, 3), 1 / 3), np.zeros(2, int))).all()


def test_the_level_of_surer_labels_is_their_mean_probability():
    """And its ends are at least as far away as those that the ends of the level of all imply."""
    y = np.random.default_rng(0).integers(3, size=300)
    table = make_crowd(y, annotations_per_instance=4.0, random_state=0)
    posterior = DawidSkene().fit(table).posterior_
    codes = posterior.argmax(axis=1)
    level = Level(0.8, 0.7, 0.9, "sample", 50)

    def told(value):
        found = certainty_of(table, level._replace(value=value), posterior, codes)
        return found.of_labels(posterior, codes, None)

    some = told(0.8) >= 0.8
    found, is_measured = level_of_some(table, level, posterior, codes, some)
    assert not is_measured
    assert found.value == pytest.approx(told(0.8)[some].mean())
    assert found.low < told(0.7)[some].mean() < found.value < told(0.9)[some].mean() < found.high
    everything = np.ones(300, dtype=bool)
    assert level_of_some(table, level, posterior, codes, everything).level == level
    assert level_of_some(table, level, posterior, codes, ~everything) is None
    assert level_of_some(table, None, posterior, codes, some) is None


def test_gold_of_most_labels_measures_some_of_them_and_little_gold_does_not():
    """Ten gold labels that all happen to be right say less than the order of the labels."""
    y = np.random.default_rng(0).integers(3, size=300)
    table = make_crowd(y, annotations_per_instance=4.0, random_state=0)
    posterior = DawidSkene().fit(table).posterior_
    codes = posterior.argmax(axis=1)
    some = posterior.max(axis=1) >= 0.9
    right = (codes == y)[some]

    def found(gold):
        judged = gold >= 0
        level = level_of_gold((codes == gold)[judged], "gold")
        return level_of_some(table, level, posterior, codes, some, gold=gold)

    every, is_measured = found(y)
    assert is_measured
    assert (every.value, every.n) == (pytest.approx(right.mean()), some.sum())
    few = np.full(300, -1)
    few[np.flatnonzero(some & (codes == y))[:20]] = y[some & (codes == y)][:20]
    few[np.flatnonzero(~some)[:20]] = y[~some][:20]
    part, is_measured = found(few)
    assert not is_measured
    assert part.n == 40
