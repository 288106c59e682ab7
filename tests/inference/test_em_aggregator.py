"""A method of its own: what its author writes, and all that comes with the base class."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from manyhands import AnnotationStore, AnnotationTable
from manyhands.exceptions import NotIdentifiableWarning
from manyhands.inference.base import COUNT, NON_NEGATIVE, AggregatorTraits, BaseAggregator
from manyhands.inference.confusions import normalise_joint
from manyhands.inference.dependence import DEPENDENCE
from manyhands.inference.em import EMModel
from manyhands.inference.em_aggregator import EMAggregator
from manyhands.inference.probability import log_prior, normalise_rows
from manyhands.inference.votes import Votes, probability_correct, sum_over_shards, weighted_votes
from tests.inference.test_aggregators import crowd
from tests.rounding import assert_near


@dataclass(frozen=True)
class Params:
    accuracy: float
    prior: np.ndarray

    @property
    def sent(self):
        return self.accuracy, self.prior


@dataclass(frozen=True)
class SameSkillModel(EMModel[Params, np.ndarray]):
    """Everybody is right with one probability; counts are hits, annotations, classes, evidence."""

    shards: Iterable[Votes]

    parameters = Params

    @classmethod
    def of(cls, settings, votes, shards):
        return cls(shards)

    def start(self, posterior):
        return self.maximise(sum_over_shards(count, self.shards, rows=(posterior,)))

    @staticmethod
    def expect(shard, accuracy, prior):
        return count(shard, *e_step(shard, accuracy, prior))

    def maximise(self, counts, parameters=None):
        hits, given, _, *classes = counts
        return Params((hits + 1.0) / (given + 2.0), normalise_rows(np.array(classes)))

    def objective(self, counts, parameters):
        return float(counts[2])

    @staticmethod
    def posterior(shard, accuracy, prior, exponent=None):
        return e_step(shard, accuracy, prior, exponent)[0]


def e_step(shard, accuracy, prior, exponent=None):
    odds = np.log(accuracy * (shard.n_classes - 1) / (1.0 - accuracy))
    joint = odds * weighted_votes(shard) + log_prior(prior, exponent)
    return normalise_joint(shard, joint, exponent)


def count(shard, posterior, evidence=None):
    likelihood = 0.0 if evidence is None else evidence[shard.voted].sum()
    hits = probability_correct(shard, posterior).sum()
    return np.array([hits, shard.n_annotations, likelihood, *posterior[shard.voted].sum(axis=0)])


class SameSkill(EMAggregator):
    traits = AggregatorTraits(takes_stores=True)
    model = SameSkillModel

    _parameter_constraints: dict[str, list[Any]] = {
        **BaseAggregator._parameter_constraints,
        "max_iter": [COUNT],
        "tol": [NON_NEGATIVE],
        "dependence": DEPENDENCE,
    }

    def __init__(self, max_iter=100, tol=1e-5, *, dependence=0, ties="first", random_state=None):
        self.max_iter, self.tol, self.dependence = max_iter, tol, dependence
        self.ties, self.random_state = ties, random_state

    def _set_fitted(self, parameters, votes):
        self.accuracy_, self.class_prior_ = parameters.accuracy, parameters.prior

    @property
    def _sent(self):
        return self.accuracy_, self.class_prior_


@pytest.fixture
def table():
    return AnnotationTable.from_matrix(crowd(n=200)[0], classes=range(3))


def test_it_is_an_aggregator_like_the_others(table):
    y = crowd(n=200)[1]
    model = SameSkill().fit(table)
    assert (model.labels_ == y).mean() > 0.85
    right = np.mean(table.label == y[table.instance])
    assert model.accuracy_ == pytest.approx(right, abs=0.05)
    assert len(model.log_likelihood_) == model.n_iter_ > 1
    assert model.identified_.all()
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_)
    nobody = np.full((1, table.n_annotators), -1)
    np.testing.assert_allclose(model.predict_proba(nobody)[0], model.class_prior_)
    again = SameSkill().fit(table[:150]).partial_fit(table[150:])
    np.testing.assert_array_equal(again.labels_, model.labels_)


def test_gold_isolated_annotators_and_dependence_are_nothing_it_knows_of(table):
    model = SameSkill(dependence=0.3).fit(table, gold={0: 2, 1: 0})
    np.testing.assert_allclose(model.posterior_[:2], [[0, 0, 1], [1, 0, 0]], atol=1e-12)
    sure = SameSkill().fit(table).posterior_.max(axis=1)
    assert model.posterior_[2:].max(axis=1).mean() < sure[2:].mean()
    with pytest.warns(NotIdentifiableWarning, match="no instance has annotations by two"):
        alone = SameSkill().fit(np.diag(np.arange(40) % 2 + 1) - 1)
    assert alone.labels_.tolist() == (np.arange(40) % 2).tolist()


def test_it_takes_stores_and_resumes(table, tmp_path, monkeypatch):
    expected = SameSkill(max_iter=6, tol=0).fit(table)
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=200)
    found = SameSkill(max_iter=6, tol=0).fit(store)
    assert_near(found.posterior_, expected.posterior_, np.float64, table.n_annotations)
    steps = []
    plain = SameSkillModel.maximise

    def dies(self, counts, parameters=None):
        steps.append(counts)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return plain(self, counts, parameters)

    with monkeypatch.context() as patch:
        patch.setattr(SameSkillModel, "maximise", dies)
        with pytest.raises(KeyboardInterrupt):
            SameSkill(max_iter=6, tol=0).fit(store, checkpoint=tmp_path / "saved")
    again = SameSkill(max_iter=6, tol=0).fit(store, checkpoint=tmp_path / "saved")
    np.testing.assert_array_equal(again.posterior_, found.posterior_)
    np.testing.assert_array_equal(again.log_likelihood_, found.log_likelihood_)


def test_an_aggregator_without_a_model_is_told_to_name_one(table, monkeypatch):
    monkeypatch.delattr(SameSkill, "model")
    with pytest.raises(TypeError, match="SameSkill does not say which model it fits; set the"):
        SameSkill().fit(table)
