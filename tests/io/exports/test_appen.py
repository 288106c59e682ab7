"""Reports of Appen."""

import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, read_export
from tests.io.exports.conftest import cells, reasons, write


def test_appen_keeps_gold_apart_and_never_reads_addresses(tmp_path):
    header = ["_unit_id", "_worker_id", "_tainted", "_ip", "_city", "q", "q_gold", "text"]
    rows = [
        ["1", "7", "false", "10.1.2.3", "Rome", "x", "x\ny", "T"],
        ["2", "7", "true", "10.1.2.3", "Rome", "y", "y", "U"],
        ["2", "8", "false", "10.1.2.4", "Oslo", "", "y", "U"],
    ]
    export = read_export(write(tmp_path / "f1.csv", [header, *rows]))
    assert cells(export.annotations) == {("1", "7"): "x", ("2", "7"): "y"}
    assert export.annotations.abstentions.tolist() == [[1, 1]]
    assert (export.gold.tasks.tolist(), export.gold.labels.tolist()) == ([2], ["y"])
    assert reasons(export) == {"the gold of the task has several labels": 1}
    assert export.items.columns == {"text": ["T", "U"]}
    write(tmp_path / "a1.csv", [["_unit_id", "q", "q:confidence"], ["1", "x", "0.8"]])
    with pytest.raises(AnnotationError, match=r"aggregated report.*full report"):
        read_annotations(tmp_path / "a1.csv")
