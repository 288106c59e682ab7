"""Exports of Prodigy."""

from manyhands.io import read_export
from tests.io.exports.conftest import cells, reasons, write


def test_prodigy(tmp_path):
    def record(number, who, answer="accept", **more):
        names = {"_input_hash": number, "_annotator_id": f"set-{who}", "answer": answer}
        return names | {"text": "t", "options": [{"id": "no"}, {"id": "yes"}]} | more

    rows = [
        record(1, "ann", accept=["yes"]),
        record(1, "bob", accept=["no"]),
        record(2, "ann", "ignore", accept=[]),
        record(2, "bob", "reject", accept=["no"]),
        record(3, "bob", accept=[]),
        {"_input_hash": 1, "_task_hash": 3, "sessions": ["a"], "accept": ["yes"], "options": []},
    ]
    export = read_export(write(tmp_path / "a.jsonl", rows))
    assert cells(export.annotations) == {("1", "ann"): "yes", ("1", "bob"): "no"}
    assert export.annotations.skips.tolist() == [[1, 0]]
    assert export.annotations.abstentions.tolist() == [[1, 1]]
    assert reasons(export) == {"no answer was given": 1}
    assert export.gold.labels.tolist() == ["yes"]


def test_prodigy_sessions_without_a_name_and_binary_labels(tmp_path):
    rows = [
        {"_input_hash": n, "label": "SPAM", "answer": answer, "_session_id": session}
        for n, (answer, session) in enumerate(
            [("accept", "s-2024-02-06_10-17-19"), ("reject", "s-2024-02-07_10-17-19")]
        )
    ]
    export = read_export(write(tmp_path / "a.jsonl", rows))
    assert export.annotations.annotators.tolist() == ["2024-02-06_10-17-19", "2024-02-07_10-17-19"]
    assert sorted(cells(export.annotations).values()) == [0, 1]
    assert any("the sessions had no name" in note for note in export.notes)
