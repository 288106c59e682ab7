"""Matrices of MACE."""

from manyhands.io import read_annotations
from tests.io.exports.conftest import write


def test_mace_empty_cells_are_missing(tmp_path):
    path = write(tmp_path / "m.csv", "x,y,,x\n,x,y,y\n,,,x\n")
    assert read_annotations(path).to_matrix(codes=True).tolist() == [
        [0, 1, -1, 0],
        [-1, 0, 1, 1],
        [-1, -1, -1, 0],
    ]
