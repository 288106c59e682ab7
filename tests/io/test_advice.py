"""What people are told whose table is not recognised: the likely reading, as a command to paste."""

import random
import shlex

import pytest

from manyhands import AnnotationTable
from manyhands.annotations.wide import UnclearColumnsError, guess_long
from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, read_export
from tests.cli.conftest import run
from tests.io.test_spreadsheets import write_csv, write_xlsx

ITEMS = [f"E{i}" for i in range(12)]
PEOPLE = ("Anna", "Béla", "Cili", "Dóra")
LABELS = ("jó", "rossz", "semleges")


def annotations():
    """Three of four annotators label each item, and disagree."""
    draw = random.Random(0)
    return [(i, who, draw.choice(LABELS)) for i in ITEMS for who in draw.sample(PEOPLE, 3)]


def advised(result):
    """The command that an error prints, as arguments."""
    assert result.exit_code == 3, result.output
    command = result.stderr.split("The likeliest command is: ")[1]
    assert "COLUMN" not in command
    return shlex.split(command)[1:]


# -- long tables with foreign headers -------------------------------------------------------------


@pytest.mark.parametrize("given", [[], ["--worker", "Kodér"], ["--worker", "Koder"], ["--task=X"]])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_columns_of_a_long_table_are_told_by_their_values(tmp_path, given, order):
    rows = [("Elem", "Kodér", "Címke", "Szöveg")]
    rows += [(*row, f"{row[0]} is a sentence of some words") for row in annotations()]
    path = write_csv(tmp_path / "hu.csv", *([row[i] for i in order] for row in rows), separator=";")
    command = advised(run("describe", path, *given))
    for option, name in (("--task", "Elem"), ("--worker", "Kodér"), ("--label", "Címke")):
        assert command[command.index(option) + 1] == name
    assert command.count("--task") == command.count("--worker") == 1
    result = run(*command)
    assert result.exit_code == 0, result.output
    table = read_annotations(path, task="Elem", worker="Kodér", label="Címke")
    assert {*table.annotators.tolist()} == {*PEOPLE}
    assert table.n_annotations == len(rows) - 1


@pytest.mark.parametrize(
    "header",
    [
        ("Statement no.", "Respondent", "How far do you agree?"),
        ("Aufsatz", "Prüfer", "Note"),
        ("Gene", "Curator", "Call"),
        ("Text", "Time", "Comment"),
    ],
)
@pytest.mark.parametrize("ids", [ITEMS, [str(i) for i in range(1, 13)]])
def test_three_columns_are_told_by_their_values_whatever_they_are_called(tmp_path, header, ids):
    draw = random.Random(1)
    rows = [(i, who, draw.choice(LABELS[:2])) for i in ids for who in PEOPLE[:3]]
    path = write_csv(tmp_path / "a.csv", header, *rows, separator=";")
    command = advised(run("describe", path))
    assert command[-6:] == ["--task", header[0], "--worker", header[1], "--label", header[2]]
    columns = dict(zip(("task", "worker", "label"), header, strict=True))
    assert read_annotations(path, **columns).shape == (12, 3)


def test_no_command_is_printed_if_none_is_likely(tmp_path):
    rows = [(f"n{i}", f"s{i % 7}", "uvw"[i % 3]) for i in range(14)]
    path = write_csv(tmp_path / "a.csv", ("Ort", "Art", "Sorte"), *rows)
    said = run("describe", path)
    assert said.exit_code == 3
    assert "The likeliest command" not in said.stderr


@pytest.mark.parametrize("tick", ["x", "X", "✓", "1", "ja"])
@pytest.mark.parametrize("named", [[], ["--annotators", "Price,Delivery,Quality"]])
def test_ticks_of_options_are_no_annotators(tmp_path, tick, named):
    rows = [(k, *(tick if k % d == 0 else "" for d in (2, 3, 5))) for k in range(1, 31)]
    path = write_csv(tmp_path / "a.csv", ("Complaint", "Price", "Delivery", "Quality"), *rows)
    said = run("describe", path, *named).stderr
    assert "they look like ticked options rather than annotators" in said
    assert "--multilabel split --option Price" in said


def test_counts_beside_their_sum_are_counts(tmp_path):
    rows = [(f"img{k}", k % 3, k % 4, k % 2, k % 3 + k % 4 + k % 2) for k in range(1, 12)]
    header = ("Image", "Cat", "Dog", "Neither", "Total votes")
    path = write_csv(tmp_path / "a.csv", header, *rows)
    command = advised(run("describe", path))
    assert command[-2:] == ["--format", "counts"]
    assert run(*command).exit_code == 0


@pytest.mark.parametrize("first", ["Coder", "Name", "Annotator"])
def test_a_transposed_table_is_named(tmp_path, first):
    header = (first, *(f"Item {k}" for k in range(1, 21)))
    rows = [(who, *("ab"[(k + n) % 2] for k in range(20))) for n, who in enumerate(PEOPLE)]
    path = write_csv(tmp_path / "a.csv", header, *rows)
    said = run("describe", path).stderr
    assert "the table is transposed" in said
    assert "Paste Special > Transpose" in said
    assert "The likeliest command" not in said


def test_an_annotator_with_other_spellings_is_named(tmp_path):
    rows = [(k, *("TRUE" if k % d else "FALSE" for d in (2, 3))) for k in range(12)]
    rows = [(*row, "WAHR" if k % 2 else "FALSCH") for k, row in enumerate(rows)]
    path = write_csv(tmp_path / "a.csv", ("item", "Anna", "Bo", "Cy"), *rows)
    said = run("describe", path).stderr
    assert "'Cy' would be left out" in said
    assert "'FALSCH', 'WAHR'" in said


def test_names_that_became_dates_are_named_in_csv(tmp_path):
    genes = ["TP53", "1-Mar", "BRCA1", "2-Sep"]
    rows = [(g, who, "ab"[k % 2]) for k, g in enumerate(genes) for who in PEOPLE]
    path = write_csv(tmp_path / "a.csv", ("task", "worker", "label"), *rows)
    said = run("describe", path)
    assert "column 'task' holds '1-Mar' (row 6), which looks like a date" in said.output


def test_the_headline_of_counts_says_why_nothing_is_known(tmp_path):
    rows = [(k, 3 + k % 4, 1 + k % 2) for k in range(20)]
    path = write_csv(tmp_path / "a.csv", ("item", "count_a", "count_b"), *rows)
    said = run("aggregate", path, "--format", "counts").output
    assert "most items have only one annotation" not in said
    assert "the data do not say who gave which label" in said


def test_gold_and_properties_are_no_labels():
    rows = annotations()
    gold = {item: LABELS[k % 3] for k, item in enumerate(ITEMS)}
    team = {who: "AB"[k % 2] for k, who in enumerate(PEOPLE)}
    cells = {
        "richtig": [gold[item] for item, _, _ in rows],
        "Urteil": [label for _, _, label in rows],
        "Team": [team[who] for _, who, _ in rows],
        "Person": [who for _, who, _ in rows],
        "Satz": [item for item, _, _ in rows],
    }
    assert guess_long(cells) == {"task": "Satz", "worker": "Person", "label": "Urteil"}
    wide = {who: [LABELS[k % 3] for k in range(12)] for who in PEOPLE}
    assert guess_long({"Nr": ITEMS, **wide}) == {} == guess_long({})


def test_all_columns_that_are_missing_are_named_at_once(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(annotations(), columns=["Satz", "Person", "label"])
    with pytest.raises(
        AnnotationError,
        match=r"task='task' and worker='worker' are not columns.*"
        r"Most likely: task='Satz', worker='Person'",
    ):
        AnnotationTable.from_frame(frame)
    with pytest.raises(AnnotationError, match=r"worker='wrker' is not a column.*worker='Person'"):
        AnnotationTable.from_frame(frame, task="Satz", worker="wrker")
    few = pd.DataFrame([("a", "b", "c")], columns=["x", "y", "label"])
    with pytest.raises(AnnotationError, match=r"pass task=<name.*>, worker=<name.*>; one column"):
        AnnotationTable.from_frame(few)


def test_a_first_row_of_data_is_no_header(tmp_path):
    path = write_csv(tmp_path / "votes.csv", *annotations())
    with pytest.raises(AnnotationError, match=r"'jó'|'rossz'|'semleges'") as caught:
        read_annotations(path)
    assert "insert a row of names above it, such as task,worker,label" in str(caught.value)


# -- a file or a sheet per annotator --------------------------------------------------------------


def own_rows(header, seed):
    draw = random.Random(seed)
    return [header, *((item, f"words of {item} in a row", draw.choice(LABELS)) for item in ITEMS)]


def test_every_sheet_is_one_annotators_work(tmp_path):
    header = ("Nr", "Satz", "Urteil")
    sheets = {who: own_rows(header, k) for k, who in enumerate(PEOPLE[1:], start=1)}
    codebook = [("Klasse", "Erklärung"), *((label, f"this is {label}") for label in LABELS)]
    summary = [("Woche", "Stunden", "Ort", "Preis"), (1, 2, "Wien", 3), (2, 3, "Graz", 4)]
    more = sheets | {"Codebook": codebook, "Stunden": summary}
    path = write_xlsx(tmp_path / "team.xlsx", *own_rows(header, 0), more=more)
    result = run("describe", path)
    assert result.exit_code == 3
    assert "--annotator-from sheet takes the names of the sheets" in result.stderr
    assert "Codebook" not in result.stderr
    export = read_export(path, annotator_from="sheet")
    table = export.annotations
    assert table.annotators.tolist() == ["Béla", "Cili", "Dóra", "Votes"]
    assert table.shape == (12, 4)
    assert table.n_annotations == 48
    assert table.to_frame().query("task == 'E3' and worker == 'Cili'").label.tolist() == [
        sheets["Cili"][4][2]
    ]
    told = " ".join(export.notes)
    assert "'Codebook' is not read: it lists the values of the column 'Urteil'" in told
    assert "'Stunden' is not read: it has other columns" in told
    again = run("describe", path, "--annotator-from", "sheet")
    assert "--annotator-from sheet" in again.stdout
    assert again.exit_code == 0
    with pytest.raises(AnnotationError, match="is not a workbook with sheets"):
        read_annotations(
            write_csv(tmp_path / "a.csv", *own_rows(header, 0)), annotator_from="sheet"
        )
    with pytest.raises(AnnotationError, match="annotator_from='tab' is unknown; use one of 'file'"):
        read_annotations(path, annotator_from="tab")


def own_workbook(path, **headers):
    """A workbook with a sheet of twelve items per annotator; the columns are in a given order."""
    sheets = {}
    for k, (who, header) in enumerate(headers.items()):
        cells = {"id": "ID", "sentiment": LABELS, "comment": ("ok", "", "hm")}
        draw = random.Random(k)
        rows = [list(header)]
        for item in ITEMS:
            values = {name: draw.choice(given) for name, given in cells.items()} | {"id": item}
            rows.append([values[name.strip().lower()] for name in header])
        sheets[who] = rows
    first, *_ = sheets
    return write_xlsx(path, *sheets.pop(first), more=sheets), first


@pytest.mark.parametrize(
    "second",
    [
        ("sentiment", "ID"),
        ("ID", "sentiment", "Comment"),
        ("Comment", "ID ", "Sentiment"),
        ("ID", "sentiment"),
    ],
)
@pytest.mark.parametrize("n", [2, 3])
def test_sheets_with_the_same_columns_in_another_order_or_case_are_read(tmp_path, second, n):
    headers = dict.fromkeys(PEOPLE[:n], ("ID", "sentiment")) | {PEOPLE[1]: second}
    path, _ = own_workbook(tmp_path / "team.xlsx", **headers)
    export = read_export(path, annotator_from="sheet")
    assert export.annotations.n_annotations == 12 * n
    assert export.annotations.classes.tolist() == sorted(LABELS)
    told = " ".join(export.notes)
    assert ("left out 'Comment', which not all tables have" in told) == ("Comment" in second)
    again = run("describe", path, "--annotator-from", "sheet")
    assert again.exit_code == 0, again.output


def test_a_sheet_that_lacks_the_labels_is_left_out_with_a_warning(tmp_path):
    header = ("Comment", "ID", "Sentiment")
    path, _ = own_workbook(tmp_path / "t.xlsx", Anna=header, Cili=header, Dora=("ID", "Comment"))
    with pytest.warns(UserWarning, match=r"'Dora' is not read: it .*lacks 'sentiment'"):
        read_export(path, annotator_from="sheet", label="Sentiment")


@pytest.mark.parametrize("many", [False, True])
def test_every_file_is_one_annotators_work(tmp_path, many):
    header = ("id", "Satz", "label")
    paths = [
        write_csv(tmp_path / f"{who}.csv", *own_rows(header, k)) for k, who in enumerate(PEOPLE)
    ]
    paths = paths if many else paths[:1]
    result = run("describe", *paths)
    assert "--annotator-from file takes the names of the files" in result.stderr
    assert "if it holds known labels, give it as --known FILE" in result.stderr
    if many:
        command = advised(result)
        assert command[-2:] == ["--annotator-from", "file"]
        assert run(*command).exit_code == 0
    table = read_annotations(paths, annotator_from="file")
    assert table.shape == (12, len(paths))
    assert table.n_annotations == 12 * len(paths)


def test_a_codebook_is_not_taken_for_data(tmp_path):
    header = ("task", "worker", "label")
    codebook = [("label", "meaning"), *((label, f"this is {label}") for label in LABELS)]
    people = [("worker", "language"), *((who, "hu") for who in PEOPLE)]
    path = write_xlsx(
        tmp_path / "study.xlsx",
        *codebook,
        more={"Data": [header, *annotations()], "People": people},
    )
    assert read_annotations(path).n_annotations == 36


def test_columns_of_one_annotator_that_cannot_be_told_are_asked_for(tmp_path):
    rows = [("Nr", "Ton", "Stil"), *((k, LABELS[k % 3], "ab"[k % 2]) for k in range(9))]
    path = write_csv(tmp_path / "Anna.csv", *rows)
    with pytest.raises(UnclearColumnsError, match=r"'Ton'.*name them with task= and label="):
        read_annotations(path, annotator_from="file")
    table = read_annotations(path, annotator_from="file", task="Nr", label="Stil")
    assert table.classes.tolist() == ["a", "b"]
    assert table.annotators.tolist() == ["Anna"]
