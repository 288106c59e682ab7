"""What is said of sets of labels: how many are right, how many are missing, which to accept.

Crowds are simulated whose behaviour is shared across options or not; real sets have experts'
labels. On real sets an interval may miss where the truth is better than what was told.
"""

from importlib import import_module
from itertools import product

import numpy as np
import pytest
from scipy.special import expit

from manyhands import LabelSetTable, MultiLabelDawidSkene, MultiLabelMajorityVote, decide_sets
from manyhands.io.consensus_sets import set_consensus
from manyhands.metrics.set_levels import levels_of_sets

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def study():
    """The benchmark."""
    return import_module("benchmarks.multilabel")


def told(table, truth, model=None, rule="probable", gold=None):
    """What is told of a crowd's sets, and what is true of them."""
    model = (model or MultiLabelDawidSkene()).fit(table)
    ticks = decide_sets(model.posterior_, rule).ticks
    levels = levels_of_sets(model, ticks, gold)
    found = set_consensus(table, model, ticks, levels.probability)
    known = truth >= 0
    own, applies = ticks & known, truth == 1
    return {
        "levels": levels,
        "found": found,
        "precision": applies[own].mean(),
        "recall": (ticks & applies).sum() / applies.sum(),
        "right": np.where(known, ticks == applies, True),
        "known": known,
    }


def skilled(sensitivity, false_ticks, k, seed, n=400, n_options=8, n_annotators=40):
    """Draw a crowd that hardly differs in skill."""
    rng = np.random.default_rng(seed)
    truth = rng.random((n, n_options)) < rng.uniform(0.05, 0.4, n_options)
    shape = (n_annotators, n_options)
    seen = np.clip(rng.normal(sensitivity, 0.05, shape), 0.3, 0.995)
    false = np.clip(rng.normal(false_ticks, 0.02, shape), 0.002, 0.6)
    instance = np.repeat(np.arange(n), k)
    annotator = rng.random((n, n_annotators)).argsort(axis=1)[:, :k].ravel()
    rate = np.where(truth[instance], seen[annotator], false[annotator])
    ticks = rng.random(rate.shape) < rate
    table = LabelSetTable.from_arrays(instance, annotator, ticks, n_annotators=n_annotators)
    return table, truth.astype(int)


SKILLS = [*product([(0.95, 0.02), (0.9, 0.03)], [2, 3, 5]), *product([(0.8, 0.05)], [3, 5])]
"""Sensitivities and rates of false ticks with annotators per item, of which sets are accepted."""


def accepted_and_right(crowds):
    """Which sets of some crowds are accepted, and which of their cells are right."""
    found = [told(*crowd) for crowd in crowds]
    accepted = np.concatenate([each["found"].actions == "accept" for each in found])
    return accepted, np.concatenate([each["right"] for each in found])


@pytest.mark.parametrize(("skill", "k"), SKILLS)
def test_accepted_sets_are_right_in_simulations(skill, k):
    accepted, right = accepted_and_right(skilled(*skill, k, seed) for seed in range(3))
    assert accepted.mean() > (0.4 if skill == (0.95, 0.02) else 0.01)
    assert right[accepted].mean() >= 0.95
    assert right[~accepted].mean() <= right[accepted].mean()


def test_two_answers_of_a_poor_crowd_are_not_accepted():
    accepted, right = accepted_and_right(skilled(0.8, 0.05, 2, seed) for seed in range(3))
    assert not accepted.any()
    assert right.mean() < 0.95


def uneven(what, k, n=400, n_options=8, n_annotators=40):
    """Draw a good crowd that differs in habits or in skill, over all options or in each."""
    rng = np.random.default_rng(k)
    truth = rng.random((n, n_options)) < rng.uniform(0.05, 0.4, n_options)
    own = rng.normal(0, 0.7, (n_annotators, n_options if "own" in what else 1))
    habit, skill = (own, 0 * own) if "habits" in what else (0 * own, own)
    shape = (n_annotators, n_options)
    seen = np.broadcast_to(expit(2.5 + habit + skill), shape)
    false = np.broadcast_to(expit(-4 + habit - skill), shape)
    instance = np.repeat(np.arange(n), k)
    annotator = rng.random((n, n_annotators)).argsort(axis=1)[:, :k].ravel()
    rate = np.where(truth[instance], seen[annotator], false[annotator])
    ticks = rng.random(rate.shape) < rate
    table = LabelSetTable.from_arrays(instance, annotator, ticks, n_annotators=n_annotators)
    return table, truth.astype(int)


@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("what", ["habits", "skill", "own habits", "own skill"])
def test_accepted_sets_of_uneven_crowds_are_right(what, k):
    accepted, right = accepted_and_right([uneven(what, k)])
    assert accepted.mean() > 0.2
    assert right[accepted].mean() >= 0.95


@pytest.mark.parametrize("crowd", ["under, over", "own habits", "own skill", "specialists"])
@pytest.mark.parametrize("rule", ["probable", "f1"])
def test_shares_of_right_labels_are_not_told_too_high(study, crowd, rule):
    for k in (2, 3, 5):
        table, truth, _ = study.simulate(crowd, k, 0)
        found = told(table, truth.astype(int), rule=rule)
        levels = found["levels"]
        assert levels.given.low <= found["precision"] <= levels.given.high
        assert levels.found.low <= found["recall"]
        # Of poor crowds no set is accepted; of better ones, see the tests above.
        assert not (found["found"].actions == "accept").any()


def test_another_method_is_told_by_what_the_model_expects(study):
    table, truth, _ = study.simulate("skill", 3, 0)
    found = told(table, truth.astype(int), MultiLabelMajorityVote())
    assert found["levels"].given.low <= found["precision"] <= found["levels"].given.high


def test_gold_measures_and_known_cells_are_not_measured():
    table, truth = skilled(0.8, 0.05, 3, 0)
    gold = np.full(truth.shape, -1)
    gold[:100] = truth[:100]
    found = told(table, truth, gold=gold)
    given = found["levels"].given
    assert given.source == "gold"
    ticks = found["found"].ticks[:100]
    assert given.value == pytest.approx((truth[:100] == 1)[ticks].mean())
    model = MultiLabelDawidSkene().fit(table, gold=np.where(gold < 0, np.nan, gold))
    levels = levels_of_sets(model, decide_sets(model.posterior_).ticks, gold)
    assert levels.given.source == "model"
    assert (levels.probability[:100] == 1).all()


def test_nothing_is_told_where_nothing_tells():
    one = LabelSetTable.from_arrays(np.arange(60), np.arange(60) % 3, np.eye(60, 4) > 0)
    found = told(one, np.ones((60, 4)))
    assert found["levels"].given is None
    assert np.isnan(found["levels"].probability).all()
    assert set(found["found"].actions) == {"collect more"}


def test_a_family_counts_as_one(study):
    table, _ = skilled(0.95, 0.02, 3, 0, n_annotators=3)
    model = MultiLabelDawidSkene().fit(table)
    ticks = model.labels_
    sure = np.ones(ticks.shape)
    free = set_consensus(table, model, ticks, sure)
    assert (free.actions == "accept").mean() > 0.5
    family = table.with_groups(dict.fromkeys(table.annotators.tolist(), "llm"))
    assert not (set_consensus(family, model, ticks, sure).actions == "accept").any()


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "k"), [("snow", 3), ("snow", 0), ("varierr", 0), ("relex", 3), ("relex", 5)]
)
@pytest.mark.parametrize("rule", ["probable", "f1"])
def test_what_is_told_holds_on_real_sets(study, name, k, rule, data_home):
    table, truth = study.load_set(name)
    found = told(study.drawn(table, k, 0), truth, rule=rule)
    levels, accepted = found["levels"], found["found"].actions == "accept"
    assert levels.given.low <= found["precision"]
    assert levels.found.low <= found["recall"] or name == "relex"  # Of two of fourteen options.
    # The crowds agree too little: docs/label_sets.md says that hardly any set is accepted.
    assert accepted.mean() < 0.02
    assert accepted.any() == ((name, k) == ("relex", 5))
    cells = found["known"] & accepted[:, None]
    assert cells.any() == ((name, k, rule) == ("relex", 5, "probable"))
    assert found["right"][cells].all()
