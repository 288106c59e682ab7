"""What a fit holds in memory at most."""

import tracemalloc

import numpy as np

from manyhands import AnnotationTable, DawidSkene


def peak_of_fit(n, n_classes=10, n_annotators=100):
    """Fit Dawid-Skene to n annotations, five per instance; return the bytes held at most."""
    rng = np.random.default_rng(0)
    n_instances = n // 5
    truth = rng.integers(n_classes, size=n_instances)
    instance = np.repeat(np.arange(n_instances), 5)
    first = rng.integers(n_annotators, size=n_instances)
    annotator = (first[:, None] + np.arange(5) * 17).ravel() % n_annotators
    right = rng.random(n) < 0.7
    label = np.where(right, truth[instance], rng.integers(n_classes, size=n))
    table = AnnotationTable.from_arrays(instance, annotator, label)
    tracemalloc.start()
    model = DawidSkene().fit(table)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak, model.posterior_.nbytes


def test_only_the_posterior_is_held_for_all_instances():
    """Twice the annotations: arrays of one shard, sample or annotator do not grow with them."""
    peak_of_fit(5_000)  # Modules are loaded.
    small, large = (np.array(peak_of_fit(n)) for n in (400_000, 800_000))
    grown, posterior = large - small
    assert posterior == 400_000 / 5 * 10 * 8
    # A second array like the posterior would take 16 bytes per annotation. The annotations of all
    # shards as sparse matrices take 4, and integers of instances 2.
    assert grown < posterior + 400_000 * 8
    assert grown > posterior
