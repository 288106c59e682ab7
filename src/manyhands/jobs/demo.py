"""The demo: four ways to learn from a simulated crowd, and a classifier trained on gold."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

from manyhands.annotations import AnnotationTable
from manyhands.classifiers import (
    AggregatedClassifier,
    CoNALClassifier,
    CrowdLayerClassifier,
)
from manyhands.datasets import load_demo
from manyhands.fitting import BaseCrowdClassifier
from manyhands.inference import DawidSkene, MajorityVote
from manyhands.jobs.outputs import job_folder, keep_model, publish
from manyhands.metrics import accuracy


def run_demo(
    folder: str | Path,
    *,
    seed: int = 0,
    verbose: int = 0,
) -> dict[str, Any]:
    """Train on the demo data set, and save CoNAL's model and summary in a folder.

    Parameters
    ----------
    folder : str or Path
    seed : int
        Seed of the networks; the crowd is always the same.
    verbose : int
        1 shows progress bars.

    Returns
    -------
    dict
        ``data`` (counts), ``rows`` (method, test accuracy, seconds, and train label accuracy for
        methods that infer labels without features) and ``seed``.
    """
    demo = load_demo()
    crowd = demo.annotations
    assert demo.X_test is not None
    methods: list[tuple[str, BaseCrowdClassifier, Any]] = [
        ("majority vote, then a network", AggregatedClassifier(MajorityVote()), crowd),
        ("Dawid-Skene, then a network", AggregatedClassifier(DawidSkene()), crowd),
        ("Crowd Layer", CrowdLayerClassifier(), crowd),
        ("CoNAL", CoNALClassifier(), crowd),
        ("trained on gold (ceiling)", AggregatedClassifier(), demo.y_train),
    ]
    rows: list[dict[str, Any]] = []
    with job_folder(folder) as place:
        for name, estimator, target in methods:
            estimator.set_params(random_state=seed, verbose=verbose)
            started = perf_counter()
            estimator.fit(demo.X_train, target)
            rows.append(
                {
                    "method": name,
                    "train_label_accuracy": _label_accuracy(estimator, target, demo.y_train),
                    "test_accuracy": accuracy(demo.y_test, estimator.predict(demo.X_test)),
                    "seconds": perf_counter() - started,
                }
            )
            if isinstance(estimator, CoNALClassifier):
                title = f"Demo: digits by {crowd.n_annotators} annotators"
                keep_model(estimator, demo.X_train, crowd, place, title=title)
        publish(place)
    data = {
        "instances": crowd.n_instances,
        "annotators": crowd.n_annotators,
        "annotations": crowd.n_annotations,
        "classes": crowd.n_classes,
        "test_instances": len(demo.X_test),
    }
    return {"seed": seed, "data": data, "rows": rows}


def _label_accuracy(model: BaseCrowdClassifier, target: Any, y: Any) -> float | None:
    """Accuracy of the training labels that an aggregator inferred; None without an aggregator."""
    if not isinstance(model, AggregatedClassifier) or not isinstance(target, AnnotationTable):
        return None
    return accuracy(y, model.aggregator_.labels_)
