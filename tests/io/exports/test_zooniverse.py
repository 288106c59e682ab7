"""Exports of Zooniverse."""

import json

from manyhands.io import read_export
from tests.io.exports.conftest import cells, write


def test_zooniverse_keeps_the_first_answer(tmp_path):
    header = ["classification_id", "user_name", "subject_ids", "metadata", "annotations"]
    answer = json.dumps([{"task": "T0", "value": "Yes"}, {"task": "T1", "value": "No"}])
    other = json.dumps([{"task": "T0", "value": "No"}])
    rows = [["1", "u", "9", "{}", answer], ["2", "u", "9", "{}", other], ["3", "v", "9", "{", "x"]]
    export = read_export(write(tmp_path / "z.csv", [header, *rows]), question="T0")
    assert cells(export.annotations) == {("9", "u"): "Yes"}
    assert sum(lost.count for lost in export.left_out) == 2
