"""Folders that earlier versions saved load, whatever modules their classes stand in today.

They were written by version 0.1.0 as of the day that each is named after, in the layout of before
there was one codec: networks, stacks, averages, self-training, pipelines and aggregators.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from manyhands import load
from manyhands.fitting.fitted import FORMER_ATTRIBUTES
from manyhands.inference.base import BaseAggregator

FOLDERS = Path(__file__).parent / "earlier_folders"
EXPECTED = {
    day.name: json.loads((day / "expected.json").read_text(encoding="utf-8"))
    for day in sorted(FOLDERS.iterdir())
}
CASES = [(day, name) for day, said in EXPECTED.items() for name in said["proba"]]


def test_every_folder_is_tested():
    kept = {(day.parent.name, day.name) for day in FOLDERS.glob("*/*") if day.is_dir()}
    assert kept == set(CASES)


@pytest.mark.parametrize(("day", "name"), CASES)
def test_earlier_folders_load_and_say_what_they_said(day, name):
    said, model = EXPECTED[day], load(FOLDERS / day / name)
    if isinstance(model, BaseAggregator):
        found = model.posterior_[:3]
    elif name in ("pipeline", "stack_of_texts"):
        found = model.predict_proba(said["texts"])
    else:
        X = np.array(said["X"])
        named = hasattr(model, "feature_names_in_")
        found = model.predict_proba(pd.DataFrame(X, columns=["x1", "x2", "x3"]) if named else X)
    np.testing.assert_allclose(found, said["proba"][name], rtol=0, atol=1e-5)


def test_earlier_folders_keep_parameters_ids_and_what_was_found():
    day = FOLDERS / "2026-11-29"
    conal = load(day / "conal")
    assert conal.class_balance == "reweight"
    assert conal.annotator_features.shape == (4, 2)
    assert conal.annotators_.tolist() == ["ann0", "ann1", "ann2", "ann3"]
    assert conal.n_annotators_ == 4
    assert conal.input_shape_ == (3,)
    assert len(conal.history_) == conal.n_epochs_ == 2
    latent = load(day / "agg_net")
    assert latent.instances_.tolist() == [f"photo{i}" for i in range(24)]
    assert len(latent.posterior_) == 24
    aggregated = load(day / "aggregated")
    assert aggregated.aggregator.max_iter == 3
    assert aggregated.decision == [[0, 5], [1, 0]]
    stack = load(day / "stack")
    assert stack.class_prior == {"a": 0.4, "b": 0.6}
    assert [name for name, *_ in stack.members] == ["net", "small"]
    average = load(day / "average")
    assert [type(each).__name__ for each in average.estimators_] == [
        "CrowdLayerClassifier",
        "CoNALClassifier",
    ]
    assert average.classes_.tolist() == ["a", "b"]


def test_former_names_of_fitted_attributes_are_read_and_warn():
    stack = load(FOLDERS / "2026-11-28" / "stack")
    assert stack.annotators_seen_.dtype == bool
    assert stack.relative_informedness_ > 0
    assert "parity" not in stack.history_.columns
    assert stack.history_[-1]["relative_informedness"] == stack.relative_informedness_
    for former, present in FORMER_ATTRIBUTES.items():
        assert former not in vars(stack)
        with pytest.warns(FutureWarning, match=f"{former} is now called {present}"):
            found = getattr(stack, former)
        assert found is getattr(stack, present)
    doubted = load(FOLDERS / "2026-11-29" / "stack")
    assert list(doubted.doubts_) == ["low-informedness"]
    assert not hasattr(type(stack)(), "heard_"), "it is not fitted"
