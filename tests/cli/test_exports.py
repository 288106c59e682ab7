"""Commands on exports: every command that takes annotations takes them."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.pipeline import Pipeline
from typer.main import get_command

from manyhands import AnnotationStore, DawidSkene, load, save
from manyhands.cli.app import app
from manyhands.cli.reading import Reading
from manyhands.encoders import FunctionEncoder, ImageEncoder, TextEncoder
from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, read_images, read_raw_aligned, read_texts
from tests.cli.conftest import done, done_json, fit_arguments, read_rows, refused, write_csv
from tests.io.exports.conftest import made, studio, write

pytestmark = pytest.mark.usefixtures("short")


@pytest.fixture
def export(home):
    """The crowd of A.csv as an export of Label Studio, with a second question and a skip."""
    tasks = {}
    for task, worker, label in read_rows(home / "A.csv")[1:]:
        answers = tasks.setdefault(int(task), [])
        answers.append(made(worker, label))
        answers.append(made(worker, "long", question="size"))
    tasks[0].append(made("lazy", was_cancelled=True))
    projects = [studio(*answers, number=number) for number, answers in tasks.items()]
    return write(home / "project.json", projects)


def test_describe_names_the_format_and_the_explicit_command(export):
    shown = done("describe", "project.json", "--question", "mood").stdout
    assert "format: Label Studio, JSON" in shown
    command = "manyhands describe project.json --format label-studio --question mood"
    assert f"To read this file the same way in a script: {command}" in shown
    assert "read as a pass (skip)" in shown
    explicit = done_json(*command.split()[1:])
    assert explicit["export"]["format"] == "label-studio"
    assert (
        explicit["data"]["n_annotations"] == done_json("describe", "A.csv")["data"]["n_annotations"]
    )


def test_questions_are_listed_with_the_option_that_chooses(export):
    says = ["2 questions", "'mood'", "'size'", "--question"]
    refused(3, "describe", "project.json", says=says)
    refused(3, "aggregate", "project.json", says=says)


def test_aggregating_an_export_is_aggregating_its_table(export):
    arguments = ("--method", "majority-vote", "--out")
    done("aggregate", "project.json", "--question", "mood", *arguments, "a.csv")
    done("aggregate", "A.csv", *arguments, "b.csv")
    header, *rows = read_rows(export.parent / "a.csv")
    assert header[:3] == ["task", "text", "label"]  # The export has it, the table has not.
    assert all(row[1] for row in rows)
    assert [row[:1] + row[2:] for row in (header, *rows)] == read_rows(export.parent / "b.csv")
    done("agreement", "project.json", "--question", "mood")


def test_a_report_tells_of_gold_labels_that_the_export_holds(home):
    tasks = [studio(made(1, "good"), made(2, "bad"), number=k) for k in range(4)]
    tasks[0]["annotations"].append(made(3, "good", ground_truth=True))
    write(home / "project.json", tasks)
    done("aggregate", "project.json", "--out", "without")
    html = (home / "without" / "report.html").read_text(encoding="utf-8")
    assert (
        "holds 1 gold label that was not used. To use them, give the export as --gold, too" in html
    )
    done("aggregate", "project.json", "--gold", "project.json", "--out", "with")
    assert "not used" not in (home / "with" / "report.html").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_fit_and_select_take_exports(export):
    own = ["--question", "mood", "--format", "label-studio"]
    done(*fit_arguments(*own, annotations="project.json"))
    assert load("out").classes_.tolist() == [0, 1, 2]
    select = ["--methods", "soft-prob", "--cv", "2", "--out", "chosen"]
    done("select", "--features", "X.npy", "--annotations", "project.json", *own, *select)


def test_options_of_reading(export):
    options = ["--question", "mood", "--read"]
    done("aggregate", "project.json", *options, "anonymise=true", "--out", "a.csv")
    refused(3, "describe", "project.json", *options, "colour=red", says=["colour", "anonymise"])
    refused(3, "describe", "project.json", *options, "anonymise", says=["NAME=VALUE"])
    for value in ("maybe", "off", "annotator"):
        says = [f"anonymise={value}", "anonymise is one of true, yes, 1, false, no, 0"]
        refused(3, "aggregate", "project.json", *options, f"anonymise={value}", says=says)
    for value, first in (
        ("no", "w0"),
        ("FALSE", "w0"),
        ("0", "w0"),
        ("yes", "w001"),
        ("1", "w001"),
    ):
        done("convert", "project.json", f"{value}.csv", *options, f"anonymise={value}")
        assert read_rows(export.parent / f"{value}.csv")[1][1] == first
    twice = ("anonymise=yes", "--read", "anonymise=no")
    refused(3, "describe", "project.json", *options, *twice, says=["twice"])
    split = ("--multilabel", "split")
    says = ["asks about one label at a time", "--option 0"]
    refused(3, "describe", "project.json", *options[:2], *split, says=says)


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
def test_wide_tables_and_hostile_names(home):
    write(home / "wide.csv", "id,ann,bob\nx,0,1\ny,1,1\n")
    refused(3, "describe", "wide.csv", says=["one column per annotator", "--format"])
    assert done_json("describe", "wide.csv", "--format", "wide")["data"]["n_annotators"] == 2
    label = "<script>\x1b[31m=SUM(A1)"
    write(home / "a.json", json.dumps([studio(made(1, label), made(2, "=x"))]))
    shown = done("describe", "a.json").stdout
    assert "\x1b" not in shown
    done("aggregate", "a.json", "--method", "majority-vote", "--out", "a.csv")
    assert "SUM" in (home / "a.csv").read_text()


# -- texts and images -----------------------------------------------------------------------------


@pytest.fixture
def raw(tmp_path, monkeypatch):
    """Forty texts and images that four people annotated, in every form in which they come."""
    monkeypatch.setitem(ImageEncoder.__init__.__kwdefaults__, "n_centroids", 40)
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    texts = [f"{('awful', 'lovely')[c]} film, number {rng.integers(30)}" for c in y]
    (tmp_path / "photos" / "more").mkdir(parents=True)
    rows, projects = [], []
    for n, (c, text) in enumerate(zip(y, texts, strict=True)):
        image = rng.integers(0, 90, (12, 12, 3))
        image[::2] += 120 * c
        image[:, ::2] += 120 * (1 - c)
        Image.fromarray(image.astype(np.uint8)).save(tmp_path / "photos" / f"t{n}.png")
        labels = np.where(rng.random(4) < 0.85, c, 1 - c)
        photo = f"photos/t{n}.png"
        rows += [(f"t{n}", f"w{k}", label, text, photo) for k, label in enumerate(labels)]
        project = studio(*(made(k + 1, str(label)) for k, label in enumerate(labels)), number=n)
        uploaded = f"/data/upload/1/0a1b2c3d-t{n}.png"
        project["data"] = {"text": text, "image": uploaded}
        projects.append(project)
    header = ("task", "worker", "label")
    write_csv(tmp_path / "A.csv", [header, *(row[:3] for row in rows)])
    write_csv(tmp_path / "wide.csv", [(*header, "review", "photo"), *rows])
    write_csv(tmp_path / "numbered.csv", [header, *((r[0][1:], *r[1:3]) for r in rows)])
    reviews = [(f"t{n}", text) for n, text in enumerate(texts)]
    write_csv(tmp_path / "reviews.csv", [("task", "text"), *reviews])
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    splits = [(f"t{n}", c, "train" if n < 30 else "test") for n, c in enumerate(y)]
    write_csv(tmp_path / "gold.csv", [(*header[::2], "split"), *splits])
    write(tmp_path / "project.json", projects)
    votes = np.array([row[2] for row in rows]).reshape(40, 4).tolist()
    told = [(f"t{n}", texts[n], y[n], *votes[n]) for n in range(40)]
    write_csv(tmp_path / "beside.csv", [("id", "body", "truth", "ann", "bob", "cy", "di"), *told])
    monkeypatch.chdir(tmp_path)
    return y


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_texts_and_gold_of_a_wide_table(raw):
    wide = ("--annotations", "beside.csv", "--annotators", "ann,bob,cy,di")
    said = done("fit", "--texts", "body", "--gold", "beside.csv", *wide, "--out", "model")
    assert "encoded by TextEncoder" in said.stdout
    rows = done_json("predict", "model", "--texts", "reviews.csv")["labels"]
    assert np.mean([int(row["label"]) == raw[int(row["task"][1:])] for row in rows]) > 0.9
    summary = json.loads(Path("model/summary.json").read_text())
    assert "gold" in json.dumps(summary)
    found = ("--annotators", "ann,bob,cy,di")
    done("aggregate", "beside.csv", *found, "--known", "beside.csv", "--out", "a.csv")
    header, *rows = read_rows(Path("a.csv"))
    assert [row[header.index("label")] for row in rows] == [str(c) for c in raw]
    done("aggregate", "beside.csv", *found, "--gold", "gold.csv", "--out", "b.csv")


@pytest.mark.parametrize(
    ("source", "annotations", "new"),
    [
        (("--texts", "reviews.csv"), "A.csv", ("--texts", "reviews.csv")),
        (("--texts", "lines.txt"), "numbered.csv", ("--texts", "lines.txt")),
        (("--texts", "review"), "wide.csv", ("--texts", "reviews.csv")),
        (
            ("--texts", "text"),
            "project.json",
            ("--texts", "text", "--annotations", "project.json"),
        ),
        (("--images", "photos"), "A.csv", ("--images", "photos")),
        (
            ("--images", "photo"),
            "wide.csv",
            ("--images", "photo", "--annotations", "wide.csv"),
        ),
        (("--images", "photos"), "project.json", ("--images", "photos")),
    ],
)
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_raw_inputs_are_encoded_and_the_encoder_is_saved(raw, source, annotations, new):
    said = done("fit", *source, "--annotations", annotations, "--out", "model")
    kind = TextEncoder if source[0] == "--texts" else ImageEncoder
    assert f"encoded by {kind.__name__}" in said.stdout
    rows = done_json("predict", "model", *new)["labels"]
    assert len(rows) == 40
    right = {row["task"]: int(row["label"]) for row in rows}
    assert np.mean([right[task] == int(str(task).lstrip("t")) % 2 for task in right]) > 0.9
    model = load("model")
    assert isinstance(model, Pipeline)
    assert isinstance(model[0], kind)
    given = [line for _, line in read_rows(Path("reviews.csv"))[1:]]
    if kind is ImageEncoder:
        given = [f"photos/t{n}.png" for n in range(40)]
    assert (model.predict(given).astype(int) == raw).mean() > 0.9
    done("report", "model")


def test_an_export_is_ingested_in_parts_as_it_is_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [
        json.dumps(
            {
                "text": f"text {n // 3}",
                "_input_hash": n // 3,
                "_task_hash": n,
                "_annotator_id": f"reviews-{'abc'[n % 3]}",
                "options": [{"id": name} for name in ("bad", "good")],
                "accept": [["bad", "good"][rng.integers(2)]],
                "answer": "accept" if n % 7 else "ignore",
            }
        )
        for n in range(60)
    ]
    for name, part in (("whole", lines), ("part-0", lines[:30]), ("part-1", lines[30:])):
        Path(f"{name}.jsonl").write_text("\n".join(part))
        done("convert", f"{name}.jsonl", f"{name}.parquet")
    done("ingest", "part-0.parquet", "part-1.parquet", "--out", "parts")
    done("ingest", "whole.jsonl", "--out", "store")
    found, expected = (AnnotationStore.open(folder)[:] for folder in ("parts", "store"))
    for name in ("instance", "annotator", "label", "instances", "annotators", "classes", "passes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert len(found.passes) == 9


def test_a_network_is_saved_with_the_encoder_in_front(raw):
    quick = ["--method", "conal", "--set", "max_epochs=3", "--set", "device=cpu"]
    files = ["--texts", "reviews.csv", "--annotations", "A.csv"]
    done("fit", *files, "--out", "model", *quick)
    first = done_json("predict", "model", "--texts", "reviews.csv")
    # Trained again into the same folder, nothing of the first is left.
    done("fit", *files, "--out", "model", *quick)
    assert done_json("predict", "model", "--texts", "reviews.csv") == first
    assert sum(path.name.startswith("weights-") for path in Path("model").iterdir()) == 1


def test_texts_of_test_rows_do_not_reach_the_encoder(raw):
    rows = read_rows(Path("reviews.csv"))
    rows[-1][1] += " unheard"
    write_csv(Path("reviews.csv"), rows)
    files = ["--texts", "reviews.csv", "--annotations", "A.csv", "--gold", "gold.csv"]
    result = done_json("fit", *files, "--out", "model")
    assert result["table"]["all rounds"]["splits"]["test"]["n"]["mean"] == 10
    assert "unheard" not in load("model")[0].word_terms_
    assert "lovely" in load("model")[0].word_terms_


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_methods_are_compared_on_texts(raw):
    files = ["--texts", "reviews.csv", "--annotations", "A.csv"]
    said = done("select", *files, "--out", "m", "--methods", "crowd-stacking", "--cv", "2")
    assert "encoded by TextEncoder" in said.stdout
    assert "holds the average of the models of the folds" in said.stdout
    again = done(
        "select", *files, "--out", "n", "--methods", "crowd-stacking", "--cv", "2", "--refit"
    )
    assert "average of the models" not in again.stdout
    assert len(done_json("predict", "m", "--texts", "lines.txt")["labels"]) == 40


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "none of --features, --texts and --images"),
        (("--texts", "reviews.csv", "--images", "photos"), "2 of --features, --texts and"),
        (("--texts", "no.csv"), "neither a file (looked in"),
        (("--texts", "mood"), "'task'"),
        (("--images", "empty"), "holds no images"),
        (("--images", "few"), "39 of 40 tasks"),
    ],
)
def test_what_cannot_be_found_is_named(raw, tmp_path, arguments, says):
    (tmp_path / "empty").mkdir()
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "t0.png").write_bytes((tmp_path / "photos" / "t0.png").read_bytes())
    refused(3, "fit", *arguments, "--annotations", "A.csv", "--out", "out", says=[says])


def test_a_model_says_what_it_was_fitted_on(raw):
    done("fit", "--texts", "reviews.csv", "--annotations", "A.csv", "--out", "m")
    for arguments in (("reviews.csv",), ("--images", "photos"), ()):
        refused(3, "predict", "m", *arguments, says=["fitted on texts", "--texts"])


@pytest.mark.parametrize(
    "source", [("--texts", "text"), ("--images", "photos")], ids=["texts", "images"]
)
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")
def test_a_model_of_raw_inputs_is_continued(raw, tmp_path, source):
    projects = json.loads(Path("project.json").read_text())
    write(tmp_path / "first.json", projects[:32])
    first = ["--annotations", "first.json", "--out", "m"]
    done("fit", *source, *first)
    before = load("m")
    done("fit", "--continue", "m", *source, "--annotations", "project.json", "--out", "m")
    after = load("m")
    assert type(after[0]) is type(before[0])  # The encoder stays as it was fitted.
    assert after[0].n_features_out_ == before[0].n_features_out_
    assert len(read_rows(Path("m/labels.csv"))) == 41
    assert after[-1].n_annotations_ == 160


def test_an_aggregator_is_no_classifier(raw):
    table = read_annotations("A.csv")
    save(DawidSkene().fit(table), "labels")
    says = ["holds a DawidSkene, which does not use features"]
    refused(3, "predict", "labels", "X.npy", says=says)
    files = ["--texts", "reviews.csv", "--annotations", "A.csv", "--out", "out"]
    refused(3, "fit", "--continue", "labels", *files, says=says)


def test_texts_are_read_from_lines_and_tables(tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_bytes("\ufeffone\r\ntwo, too\r\n".encode())
    assert read_texts(lines).X.tolist() == ["one", "two, too"]
    assert read_texts(lines).tasks is None
    table = tmp_path / "table.csv"
    write_csv(table, [("id", "note", "text"), (7, "x", "one"), (9, "y", "=1+1")])
    assert read_texts(table).tasks.tolist() == [7, 9]
    assert read_texts(table).X.tolist() == ["one", "=1+1"]
    with pytest.raises(AnnotationError, match=r"'.json' cannot be read; use .* .txt"):
        read_texts(write(tmp_path / "ls.json", "[]"))
    for content, says in (
        ([("id", "a", "b"), (1, "x", "y")], "it is unclear which column holds the texts"),
        ([("id", "text"), (1, "x"), (2, "")], "1 of 2 have no text in column 'text' .task 2"),
    ):
        write_csv(table, content)
        with pytest.raises(AnnotationError, match=says):
            read_texts(table)


def test_images_have_the_names_of_their_files(raw, tmp_path):
    (tmp_path / "photos" / "more" / "t0.JPG").write_bytes(b"")
    (tmp_path / "photos" / "notes.txt").write_text("")
    found = read_images(tmp_path / "photos")
    assert found.tasks.tolist()[:2] == ["more/t0", "t0"]
    assert len(found) == 41
    (tmp_path / "photos" / "t0.gif").write_bytes(b"")
    assert {"t0.gif", "t0.png"} < set(read_images(tmp_path / "photos").tasks.tolist())
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        read_images(tmp_path / "none")


def test_a_column_says_one_thing_of_every_task(raw, tmp_path):
    rows = read_rows(Path("wide.csv"))
    file, table = read_raw_aligned("texts", "review", tmp_path / "wide.csv")
    assert file.tasks.tolist() == table.instances.tolist()
    assert file.X[table.instances.tolist().index("t7")] == rows[1 + 4 * 7][3]
    rows[1][3] = "something else"
    write_csv(tmp_path / "wide.csv", rows)
    with pytest.raises(AnnotationError, match="'review' holds 2 different values for task t0"):
        read_raw_aligned("texts", "review", tmp_path / "wide.csv")
    rows[1][4] = rows[2][4] = rows[3][4] = rows[4][4] = "https://example.org/t0.png"
    write_csv(tmp_path / "wide.csv", rows)
    with pytest.raises(AnnotationError, match="images are not fetched"):
        read_raw_aligned("images", "photo", tmp_path / "wide.csv")


def test_a_cache_is_shown_and_cleared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoder = FunctionEncoder(lambda rows: [[1.0]] * len(rows), cache=tmp_path, fingerprint="1")
    encoder.transform(["a", "b"])
    assert "FunctionEncoder" in done("cache", "info", tmp_path).stdout
    (row,) = done_json("cache", "info", tmp_path)["encoders"]
    assert row["rows"] == 2
    assert done_json("cache", "clear", tmp_path) == {"freed": row["bytes"]}
    assert "freed: 0 bytes" in done("cache", "clear", tmp_path).stdout
    refused(3, "cache", "info", tmp_path / "none", says=["is not a folder"])


def test_every_command_that_takes_annotations_has_all_options_of_reading():
    commands = get_command(app).commands
    options = {name: {p.name for p in each.params} for name, each in commands.items()}
    reading = {field.name for field in fields(Reading)}
    takes = {name for name, own in options.items() if "read" in own}
    assert takes >= {"aggregate", "fit", "select", "predict", "describe", "convert", "explore"}
    assert takes >= {"next", "review", "annotators", "budget"}
    assert {name: reading - options[name] for name in takes if reading - options[name]} == {}
