"""Answers of peerannot."""

from manyhands.io import read_annotations
from tests.io.exports.conftest import write


def test_peerannot_takes_the_number_of_tasks_from_beside(tmp_path):
    write(tmp_path / "p" / "answers.json", {"0": {"0": 1, "1": 0, "2": 1}, "1": {"0": 1}})
    assert read_annotations(tmp_path / "p" / "answers.json").shape == (2, 3)
    write(tmp_path / "p" / "metadata.json", {"n_tasks": 3})
    assert read_annotations(tmp_path / "p" / "answers.json").shape == (3, 2)
