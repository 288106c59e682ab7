"""Folders of SageMaker Ground Truth."""

from manyhands.io import read_annotations
from tests.io.exports.conftest import cells, write


def test_ground_truth_folders(tmp_path):
    for name in ("0", "1"):
        folder = tmp_path / "job" / "annotations" / "worker-response" / "iteration-1" / name
        answers = [
            {"workerId": w, "answerContent": {"crowd-classifier": {"label": v}}}
            for w, v in (("a", "x"), ("b", "y"))
        ]
        write(folder / "2024.json", {"answers": answers})
    write(tmp_path / "job" / "manifests" / "output.manifest", {"source": "t"})
    table = read_annotations(tmp_path / "job")
    assert table.instances.tolist() == [0, 1]
    assert cells(table)["1", "b"] == "y"
