"""The demo: five methods learn from a simulated crowd, and a network from gold labels."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

from manyhands.annotations import AnnotationTable
from manyhands.classifiers import (
    AggregatedClassifier,
    CoNALClassifier,
    CrowdLayerClassifier,
    CrowdStackingClassifier,
)
from manyhands.datasets import load_demo
from manyhands.files import as_word
from manyhands.fitting.folders import STAGING, publish
from manyhands.inference import DawidSkene, MajorityVote
from manyhands.io import write_annotations
from manyhands.jobs.outputs import NewItems, job_folder, keep_model
from manyhands.metrics import accuracy, accuracy_on_new_items

SHOWN = "crowd-calibrated stacking"
"""The method whose model and report the demo keeps."""

ANNOTATIONS = "annotations.csv"
"""The annotations as a file, for the commands that the report prints."""


def run_demo(
    folder: str | Path,
    *,
    seed: int = 0,
    verbose: int = 0,
) -> dict[str, Any]:
    """Train on the demo data set, and save the default method's model, summary and annotations.

    Parameters
    ----------
    folder : str or Path
    seed : int
        Seed of the methods; the crowd is always the same.
    verbose : int
        1 shows progress bars.

    Returns
    -------
    dict
        ``data`` (counts), ``rows`` (method, test accuracy, seconds, and train label accuracy for
        methods that infer labels) and ``seed``.
    """
    demo = load_demo()
    crowd = demo.annotations
    assert demo.X_test is not None
    methods: list[tuple[str, Any, Any]] = [
        ("majority vote, then a network", AggregatedClassifier(MajorityVote()), crowd),
        ("Dawid-Skene, then a network", AggregatedClassifier(DawidSkene()), crowd),
        ("Crowd Layer", CrowdLayerClassifier(), crowd),
        ("CoNAL", CoNALClassifier(), crowd),
        (SHOWN, CrowdStackingClassifier(), crowd),
        ("a network trained on gold", AggregatedClassifier(), demo.y_train),
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
            if name == SHOWN:
                title = f"Demo: digits by {crowd.n_annotators} annotators"
                new = accuracy_on_new_items(
                    gold=demo.y_test, predicted=estimator.predict(demo.X_test)
                )
                path = Path(folder) / ANNOTATIONS  # For the commands that the report prints.
                keep_model(
                    *(estimator, demo.X_train, crowd, place),
                    title=title,
                    new_items=NewItems.of(
                        new, estimator.predict_proba(demo.X_test).max(axis=1), crowd.n_classes
                    ),
                    files={"annotations": [as_word(path)]},
                )
                write_annotations(place / STAGING / ANNOTATIONS, crowd)
        publish(place)
    data = {
        "instances": crowd.n_instances,
        "annotators": crowd.n_annotators,
        "annotations": crowd.n_annotations,
        "classes": crowd.n_classes,
        "test_instances": len(demo.X_test),
    }
    return {"seed": seed, "data": data, "rows": rows}


def _label_accuracy(model: Any, target: Any, y: Any) -> float | None:
    """Return the accuracy of a method's training labels; None if it infers none."""
    if not isinstance(target, AnnotationTable):
        return None
    labels = getattr(getattr(model, "aggregator_", model), "labels_", None)
    return None if labels is None else accuracy(y, labels)
