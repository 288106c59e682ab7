"""Results of Toloka."""

from manyhands.io import read_export
from tests.io.exports.conftest import cells, reasons, write


def test_toloka_control_tasks_are_annotations_and_gold_at_once(tmp_path):
    header = ["INPUT:id", "OUTPUT:r", "GOLDEN:r", "ASSIGNMENT:worker_id", "ASSIGNMENT:status"]
    rows = [
        ["c", "x", "x", "w1", "APPROVED"],
        ["1", "y", "", "w1", "REJECTED"],
        ["1", "", "", "w2", "SKIPPED"],
        ["1", "", "", "w3", "EXPIRED"],
    ]
    export = read_export(write(tmp_path / "t.tsv", [header, *rows]))
    assert cells(export.annotations) == {("c", "w1"): "x", ("1", "w1"): "y"}
    assert len(export.annotations.skips) == 1
    assert export.gold.tasks.tolist() == ["c"]
    assert reasons(export) == {"the assignment is EXPIRED, so nothing was submitted": 1}
