"""Threads that count shards in memory."""

import threading

import joblib
import numpy as np
import pytest

from manyhands import make_crowd
from manyhands.inference import votes as votes_module
from manyhands.inference.votes import as_shards
from manyhands.registry import all_aggregators

AGGREGATORS = [cls for _, cls in all_aggregators()]


@pytest.fixture
def problem(monkeypatch):
    """Return annotations whose shards hold about 60 of them, and 40 gold labels."""
    monkeypatch.setattr(votes_module, "SHARD", 60)
    monkeypatch.setattr(votes_module, "grown", lambda size, n_pairs: 60)
    y = np.random.default_rng(0).integers(3, size=120)
    gold = np.where(np.arange(120) < 40, y, -1)
    crowd = make_crowd(y, n_annotators=8, annotations_per_instance=5, random_state=0)
    return crowd, gold


def in_threads(n):
    return joblib.parallel_config("threading", n_jobs=n)


@pytest.mark.parametrize("cls", AGGREGATORS)
def test_bits_do_not_depend_on_the_number_of_threads(cls, problem):
    table, gold = problem
    posteriors = []
    for n in (1, 2, 5):
        with in_threads(n):
            posteriors.append(cls().fit(table, gold=gold).posterior_)
    for posterior in posteriors[1:]:
        np.testing.assert_array_equal(posterior, posteriors[0])


def test_results_come_in_order_and_several_threads_make_them():
    shards = as_shards([])
    parts = list(range(9))
    both = threading.Barrier(2)  # Passes only if two threads wait at once.

    def count(part):
        if part < 8:
            both.wait(timeout=60)
        return part, threading.get_ident()

    with in_threads(2):
        found = list(shards.each(count, parts))
    assert [part for part, _ in found] == parts
    assert len({thread for _, thread in found}) == 2


def test_without_a_context_the_calling_thread_counts():
    shards = as_shards([])
    found = set(shards.each(lambda _: threading.get_ident(), range(4)))
    assert found == {threading.get_ident()}


def test_an_error_in_a_thread_reaches_the_caller():
    shards = as_shards([])
    with in_threads(2), pytest.raises(ZeroDivisionError):
        list(shards.each(lambda part: 1 / part, [1, 0, 2]))
