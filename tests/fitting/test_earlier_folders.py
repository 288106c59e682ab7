"""Folders that an earlier version saved load, whatever modules their classes stand in today.

They were written by version 0.1.0 as of 2026-11-28: classifiers of every family, and aggregators,
two of them with a history.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from manyhands import load
from manyhands.inference.base import BaseAggregator

FOLDERS = Path(__file__).parent / "earlier_folders"
EXPECTED = json.loads((FOLDERS / "expected.json").read_text(encoding="utf-8"))


def test_every_folder_is_tested():
    assert {path.name for path in FOLDERS.iterdir() if path.is_dir()} == EXPECTED["proba"].keys()


@pytest.mark.parametrize("name", EXPECTED["proba"])
def test_earlier_folders_load_and_say_what_they_said(name):
    model = load(FOLDERS / name)
    if isinstance(model, BaseAggregator):
        found = model.posterior_[:3]
    else:
        found = model.predict_proba(np.array(EXPECTED["X"]))
    np.testing.assert_allclose(found, EXPECTED["proba"][name], rtol=0, atol=1e-5)
