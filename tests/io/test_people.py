"""What people write into spreadsheets by hand: gold, reviewed labels, names of annotators."""

import json
import logging

import numpy as np
import pandas as pd
import pytest

from manyhands import AnnotationTable
from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, read_export, read_gold
from manyhands.jobs import match_gold
from manyhands.scale.ingest import ingest
from tests.cli.conftest import run
from tests.io.test_spreadsheets import write_csv, write_xlsx

HEADER = ("task", "worker", "label")
ROWS = [(f"E{i:02}", who, "yes" if (i + k) % 3 else "no") for i in range(12)
        for k, who in enumerate(("ann", "bob", "cat"))]  # fmt: skip
REVIEW = ("task", "text", "label", "was", "reviewed")


@pytest.fixture
def votes(tmp_path):
    return write_csv(tmp_path / "votes.csv", HEADER, *ROWS)


@pytest.fixture
def notes(caplog):
    caplog.set_level(logging.INFO, logger="manyhands")
    return caplog


# -- reviewed labels ------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [write_csv, write_xlsx])
def test_a_reviewed_row_without_a_label_is_not_known(tmp_path, votes, notes, write):
    rows = [
        ("E01", "a", "", "yes", "me"),
        ("E02", "b", "no", "yes", ""),
        ("E03", "c", "no", "no", ""),
    ]
    path = write(tmp_path / f"review.{write.__name__[6:]}", REVIEW, *rows)
    with pytest.warns(UserWarning, match=r"row 2: the label of task 'E01' is empty.*'me'.*Write"):
        gold = read_gold(path)
    assert gold.tasks.tolist() == ["E02"]
    assert gold.at == (f"{path.name}, row 3",)
    assert gold.n_not_reviewed == 2
    assert "1 label was reviewed (1 of them because the label was changed)" in notes.text
    assert "1 without an entry in the column 'reviewed' does not" in notes.text


def test_a_mistyped_id_is_named_with_its_row_and_the_nearest(tmp_path, votes):
    rows = [("E01", "a", "yes", "yes", "me"), ("E0l", "b", "yes", "yes", "me")]
    path = write_csv(tmp_path / "review.csv", REVIEW, *rows)
    with pytest.warns(UserWarning, match=r"review.csv, row 3: task 'E0l'; the nearest is 'E\d\d'"):
        rows = match_gold(read_gold(path), read_annotations(votes))
    assert (rows.codes >= 0).sum() == 1
    result = run("aggregate", votes, "--known", path)
    assert "Correct the ids, or delete the rows" in result.stderr
    assert "belong to tasks without" not in result.stderr


def test_a_mistyped_label_is_named_with_its_row(tmp_path, votes):
    rows = [("E01", "a", "yes", "yes", "me"), ("E02", "b", "yess", "yes", "me")]
    path = write_csv(tmp_path / "review.csv", REVIEW, *rows)
    words = (
        r"row 3: task 'E02' has the label 'yess'.*not among the classes 'no', 'yes'; the nearest is"
    )
    with pytest.raises(AnnotationError, match=words):
        match_gold(read_gold(path), read_annotations(votes))
    with pytest.raises(AnnotationError, match=words):
        read_gold(path, classes=["no", "yes"])
    result = run("aggregate", votes, "--known", path)
    assert result.exit_code == 3
    assert "review.csv, row 3" in result.stderr
    assert "name all classes in --classes" in result.stderr


# -- gold beside annotations ----------------------------------------------------------------------


def test_gold_beside_annotations_is_said_and_can_be_used(tmp_path, notes):
    rows = [(*row, "yes" if row[0] < "E06" else "no") for row in ROWS]
    path = write_csv(tmp_path / "votes.csv", ("Elem", "worker", "label", "gold"), *rows)
    result = run("describe", path, "--task", "Elem")
    assert "the column 'gold' is named like gold labels, but is not used" in result.stderr
    measured = run("aggregate", path, "--task", "Elem", "--gold", path)
    assert "items with gold: 12" in measured.stdout
    gold = read_gold(path, task="Elem")
    assert gold.labels.tolist() == ["yes"] * 6 + ["no"] * 6
    export = read_export(path, task="Elem", fields=["gold"])
    assert any("is not used" in note for note in export.notes)
    rows[1] = (*rows[1][:3], "maybe")
    write_csv(path, ("Elem", "worker", "label", "gold"), *rows)
    with pytest.raises(AnnotationError, match=r"gold label 'yes' in row 2 and 'maybe'"):
        read_gold(path, task="Elem")


def test_gold_of_wide_tables_says_how_it_is_used(tmp_path):
    rows = [(f"t{i}", *("yn"[(i + k) % 2] for k in range(4))) for i in range(9)]
    path = write_csv(tmp_path / "wide.csv", ("id", "a1", "a2", "a3", "gold"), *rows)
    result = run("describe", path, "--annotators", "a*")
    assert "give the file as --gold, too" in result.stdout


# -- names of annotators --------------------------------------------------------------------------


def test_annotators_in_two_spellings_are_named(tmp_path, votes, notes):
    spelled = {"E00": "Ann", "E01": "Ann ", "E02": "Ann ", "E03": "Ann "}
    rows = [(t, spelled.get(t, w) if w == "ann" else w, c) for t, w, c in ROWS]
    rows = [(f" {t}", *rest) if i % 2 else (t, *rest) for i, (t, *rest) in enumerate(rows)]
    path = write_csv(tmp_path / "spelled.csv", HEADER, *rows)
    with pytest.warns(UserWarning, match=r"whose names differ only.*: 'ann' \(8\), 'Ann' \(4\)"):
        table = read_annotations(path)
    assert table.annotators.tolist() == ["Ann", "ann", "bob", "cat"]
    assert table.n_instances == 12
    assert "removed the spaces around 3 values of the column 'worker', such as 'Ann '" in notes.text
    with pytest.warns(UserWarning, match="differ only"):
        export = read_export(path)
    assert export.annotations.equals(table)
    assert sum("the spaces around" in note for note in export.notes) == 1
    frame = pd.DataFrame(rows, columns=HEADER)
    with pytest.warns(UserWarning, match=r"column 'worker' holds annotators.*'Ann ' \(3\)"):
        AnnotationTable.from_frame(frame)


def test_numbers_with_zeros_are_other_annotators(recwarn):
    frame = pd.DataFrame({"task": ["t", "t"], "worker": ["007", "7"], "label": ["a", "b"]})
    assert AnnotationTable.from_frame(frame).n_annotators == 2
    assert not [w for w in recwarn if "differ only" in str(w.message)]
    assert np.array_equal(AnnotationTable.from_frame(frame).annotators, ["007", "7"])


# -- names that mean one person -------------------------------------------------------------------

NAMED = "task,worker,label\na,Anna,dog\nb,anna,cat\nb,Bo,cat\nc,Anna S.,dog\n"


@pytest.mark.parametrize("layout", ["long", "json", "wide", "store"])
def test_names_that_mean_one_person_become_one(layout, tmp_path):
    path = tmp_path / f"a.{'jsonl' if layout == 'json' else 'csv'}"
    if layout == "json":
        keys, *rows = (line.split(",") for line in NAMED.splitlines())
        path.write_text(
            "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows)
        )
    elif layout == "wide":
        path.write_text("id,Anna,anna,Bo,Anna S.\na,dog,,,\nb,,cat,cat,\nc,,,,dog\n")
    else:
        path.write_text(NAMED)
    meant = {"anna": "Anna", "Anna S.": "Anna", "Annah": "Anna"}
    more = {"annotators": "Anna,anna,Bo,Anna S."} if layout == "wide" else {}
    with pytest.warns(UserWarning, match=r"annotator_mapping= holds 1 name.* 'Annah'"):
        table = (
            ingest(path, tmp_path / "store", annotator_mapping=meant)
            if layout == "store"
            else read_annotations(path, annotator_mapping=meant, **more)
        )
    assert table.annotators.tolist() == ["Anna", "Bo"]
    assert table.annotations_per_annotator().tolist() == [3, 1]


def test_a_table_of_names_is_read_on_the_command_line(tmp_path):
    (tmp_path / "a.csv").write_text(NAMED)
    (tmp_path / "names.csv").write_text("from,to\nanna,Anna\nAnna S.,Anna\n")
    given = ("describe", tmp_path / "a.csv", "--map-annotators", tmp_path / "names.csv")
    found = run(*given, "--json")
    assert json.loads(found.stdout)["data"]["n_annotators"] == 2
    (tmp_path / "names.csv").write_text("name,to\nanna,Anna\n")
    said = run(*given).stderr
    assert "--map-annotators" in said
    assert "an annotator's name" in said
    with pytest.raises(AnnotationError, match="annotator_mapping is a list"):
        read_annotations(tmp_path / "a.csv", annotator_mapping=["anna"])
