"""Folders of brat."""

from manyhands.io import read_export
from tests.io.exports.conftest import cells, write


def test_brat_labels_of_a_whole_text(tmp_path):
    for name, label in (("ann", "Positive"), ("bob", "Negative")):
        write(tmp_path / name / "d1.txt", 'He said "fine.\n')
        marked = [f"T1\tDocument 0 14\tHe said {chr(34)}fine.", "T2\tWord 3 7\tsaid"]
        marked += [f"A1\tMood T1 {label}", "A2\tNegation T2", "E1\tSaying:T2"]
        write(tmp_path / name / "d1.ann", "\n".join(marked) + "\n")
        write(tmp_path / name / "d2.txt", "Well.")
        write(tmp_path / name / "d2.ann", "T1\tWord 0 4\tWell\nA1\tMood T1 Positive\n")
    export = read_export(tmp_path)
    assert cells(export.annotations) == {("d1", "ann"): "Positive", ("d1", "bob"): "Negative"}
    assert export.items.columns["text"] == ['He said "fine.\n', "Well."]
    assert export.question == "Mood"
    assert "only parts of the text are marked" in export.left_out[0].reason
    (tmp_path / "ann" / "d1.txt").unlink()
    assert "d1.txt is not beside it" in str(read_export(tmp_path).left_out)
