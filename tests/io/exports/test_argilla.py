"""Exports of Argilla."""

from manyhands.io import read_export
from tests.io.exports.conftest import argilla, cells, reasons, write


def test_argilla_discarded_is_an_abstention_and_a_draft_is_left_out(tmp_path):
    rows = [
        argilla(1, ["x", None, "y"], ["a", "b", "c"], ["submitted", "discarded", "draft"]),
        argilla(2, ["y"], ["a"], ["submitted"]),
        argilla(3, ["y", "x"], ["a"], ["submitted"]),
    ]
    export = read_export(write(tmp_path / "a.jsonl", rows))
    assert cells(export.annotations) == {("1", "a"): "x", ("2", "a"): "y"}
    assert export.annotations.abstentions.tolist() == [[0, 1]]
    assert reasons(export) == {"the response is a draft": 1, "the record cannot be read": 1}
