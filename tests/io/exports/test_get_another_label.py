"""Labels of Get-Another-Label."""

from manyhands.io import read_annotations
from tests.io.exports.conftest import cells, write


def test_get_another_label(tmp_path):
    path = write(tmp_path / "labels.txt", [["w1", "url1", "x"], ["w2", "url1", "y"]])
    assert cells(read_annotations(path)) == {("url1", "w1"): "x", ("url1", "w2"): "y"}
