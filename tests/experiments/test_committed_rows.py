"""Every row and paper of the repository can be run as it is written: checked without training."""

from pathlib import Path

import pytest

from manyhands.experiments import load_row
from manyhands.experiments.papers import load_experiments
from manyhands.experiments.rows import row_files

FOLDER = Path(__file__).parents[2] / "experiments"
ROWS = row_files(FOLDER)


@pytest.mark.parametrize("path", ROWS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_committed_row_is_valid(path):
    assert load_row(path).seeds


@pytest.mark.skipif(not ROWS, reason="there are no rows yet")
def test_rows_and_papers_fit_together():
    rows, _ = load_experiments(FOLDER)
    places = [(row.table, row.column, row.label, row.key) for row in rows]
    assert len(set(places)) == len(places)
