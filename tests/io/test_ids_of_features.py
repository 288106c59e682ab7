"""Features whose column of ids has a name of its own, and the commands that errors print."""

import itertools
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from manyhands.cli.options import OTHER_NAME
from manyhands.exceptions import AnnotationError
from manyhands.io import read_aligned, read_features, read_raw_aligned, read_texts
from tests.cli.conftest import done, refused, run

N = 40
QUICK = ("--method", "aggregated", "--folds", "0")
HEADERS = {
    "standard": ("task", "worker", "label"),
    "foreign": ("song", "listener", "genre"),
    "ids": ("song_id", "listener_id", "genre"),
    "German": ("Stück", "Hörer", "Gattung"),
}
KINDS = {
    "text": lambda k: f"s{k:02d}.mp3",
    "numbers": lambda k: k + 1000,
}
"""How item k is called."""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(header, kind, name):
    """Write annotations of 40 songs, and features of these and of 5 more, in another order."""
    rng = np.random.default_rng(0)
    rows = [
        (KINDS[kind](k), f"p{r}", ("rock", "pop")[(k + (rng.random() < 0.2)) % 2])
        for k in range(N)
        for r in range(4)
    ]
    pd.DataFrame(rows, columns=header).to_csv("answers.csv", index=False)
    k = rng.permutation(N + 5)
    ids = [KINDS[kind](each) for each in k.tolist()]
    columns = {name: ids, "loud": k / 10, "fast": rng.random(len(k)), "beats": k % 2}
    frame = pd.DataFrame(columns)
    frame.to_csv("X.csv", index=False)
    return frame.set_index(name)["loud"]


@pytest.mark.parametrize("name", ["song", "clip", "file name", "Stück", "task"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_matched_by_the_only_column_that_holds_the_ids(kind, name, home, caplog):
    caplog.set_level("INFO", "manyhands")
    loud = write(HEADERS["standard"], kind, name)
    frame = pd.read_csv("X.csv")
    frame.to_parquet("X.parquet")
    frame.to_csv("X with an index.csv")
    arrays = {"X": frame[["loud", "fast"]].to_numpy(), name: frame[name].to_numpy(dtype=str)}
    np.savez("X.npz", **arrays)
    for path in ("X.csv", "X.parquet", "X with an index.csv", "X.npz"):
        caplog.clear()
        rows, table = read_aligned(path, "answers.csv")
        tasks = table.instances.tolist()
        wanted = [loud[task if task in loud.index else int(task)] for task in tasks]
        assert rows.X[:, 0] == pytest.approx(wanted, abs=1e-6)
        assert rows.columns is None or name not in rows.columns
        noted = f"matched with the annotations by the column {name!r}" in caplog.text
        assert noted == (name != "task")
    texts = frame[[name]].assign(text=[f"loudness {each}" for each in frame["loud"]])
    texts.to_csv("texts.csv", index=False)
    rows, table = read_raw_aligned("texts", "texts.csv", "answers.csv")
    tasks = [task if task in loud.index else int(task) for task in table.instances.tolist()]
    assert rows.X.tolist() == [f"loudness {loud[task]}" for task in tasks]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("header", "kind"), [*itertools.product(HEADERS, KINDS)])
def test_every_command_that_an_error_prints_works_as_it_is_pasted(header, kind, home):
    n_pasted = 0
    for name in (HEADERS[header][0], "clip"):
        loud = write(HEADERS[header], kind, name)
        for words in (
            *([("describe", "answers.csv")] if name != "clip" else ()),
            *([("aggregate", "answers.csv", "--out", "labels")] if name != "clip" else ()),
            ("fit", "--features", "X.csv", "--annotations", "answers.csv", *QUICK, "--out", "m"),
        ):
            result = run(*words)
            if result.exit_code:
                command = shlex.split(result.stderr.split("The likeliest command is: ")[1])
                assert command[:2] == ["manyhands", words[0]]
                result = run(*command[1:])
                n_pasted += 1
            assert result.exit_code == 0, result.output
        labels = pd.read_csv("m/labels.csv")
        assert set(labels["task"]) == set(loud.index)
        # The features tell the true class, which a mismatch of rows would lose.
        odd = (10 * loud[labels["task"]]).round().to_numpy() % 2 == 1
        assert (labels["label"].eq("pop") == odd).mean() > 0.9
        done("predict", "m", "--features", "X.csv", "--out", "p.csv")
        assert set(pd.read_csv("p.csv")["task"]) == set(loud.index)
    assert n_pasted == (0 if header == "standard" else 4)


def test_what_is_ambiguous_or_fits_nothing_is_an_error_that_names_the_mend(home):
    write(HEADERS["standard"], "text", "song")
    frame = pd.read_csv("X.csv")
    frame.assign(copy=frame["song"]).to_csv("two.csv", index=False)
    with pytest.raises(AnnotationError, match=r"'song', 'copy'.* rename the right one to 'task'"):
        read_aligned("two.csv", "answers.csv")
    frame.assign(song="x" + frame["song"]).to_csv("none.csv", index=False)
    rule = "the id column is the one that contains the ids of all annotated items"
    with pytest.raises(AnnotationError, match=r"'song'.* rename the column of ids") as error:
        read_aligned("none.csv", "answers.csv")
    assert "No column holds the ids of the annotated items ('s00.mp3', " in str(error.value)
    assert rule in str(error.value)
    assert rule in OTHER_NAME


FAULTS = {
    "some items lack": lambda frame: frame.iloc[7:],
    "most items lack": lambda frame: frame.iloc[30:],
    "rows are double": lambda frame: pd.concat([frame, frame.iloc[:3]]),
    "an id is empty": lambda frame: frame.assign(ID=frame["ID"].astype(str).mask(frame.index == 5)),
    "a feature is text": lambda frame: frame.assign(fast=frame["fast"].map("{:.3f} s".format)),
    "a feature has a gap": lambda frame: frame.assign(fast=frame["fast"].mask(frame.index == 5)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_of_a_file_is_named_whatever_its_column_of_ids_is_called(fault, kind, home):
    write(HEADERS["standard"], kind, "ID")
    frame = FAULTS[fault](pd.read_csv("X.csv"))
    told = []
    for name in ("task", "clip"):
        frame.rename(columns={"ID": name}).to_csv("X.csv", index=False)
        with pytest.raises(AnnotationError) as error:
            read_aligned("X.csv", "answers.csv")
        told.append(str(error.value).replace("'clip'", "'task'"))
    assert told[0] == told[1]
    assert "rename the column of ids" not in told[0]


FAULTS_OF_NEW = {
    "a column lacks": lambda frame: frame.drop(columns="fast"),
    "a column is foreign": lambda frame: frame.assign(volume=frame["loud"] / 3),
    "a column has another name": lambda frame: frame.rename(columns={"loud": "volume"}),
    "rows are double": lambda frame: pd.concat([frame, frame.iloc[:3]]),
    "an id is empty": lambda frame: frame.assign(ID=frame["ID"].mask(frame.index == 5)),
    "a feature is text": lambda frame: frame.assign(fast=frame["fast"].map("{:.3f} s".format)),
}


@pytest.mark.filterwarnings("ignore")
def test_predict_names_the_fault_of_a_file_whatever_its_column_of_ids_is_called(home):
    write(HEADERS["standard"], "text", "ID")
    done("fit", "--features", "X.csv", "--annotations", "answers.csv", *QUICK, "--out", "m")
    whole = pd.read_csv("X.csv").assign(ID=[f"{k}_1" for k in range(N + 5)])
    for fault in FAULTS_OF_NEW.values():
        told = []
        for name in ("task", "clip"):
            fault(whole).rename(columns={"ID": name}).to_csv("new.csv", index=False)
            result = run("predict", "m", "--features", "new.csv")
            assert result.exit_code
            errors = [line for line in result.stderr.splitlines() if line.startswith("error")]
            told.append(" ".join(errors).replace("'clip'", "'task'"))
        assert told[0] == told[1]
        assert "rename the column of ids" not in told[0]


def test_a_feature_with_some_numbers_of_rows_is_not_taken_for_ids(home):
    answers = [(k, r, k % 2) for k in range(N) for r in range(3)]
    pd.DataFrame(answers, columns=["task", "worker", "label"]).to_csv("answers.csv", index=False)
    beats = np.arange(N) + N // 2
    loud = np.arange(N) / 2
    pd.DataFrame({"beats": beats, "loud": loud}).to_csv("X.csv", index=False)
    with pytest.warns(UserWarning, match=r"'beats' numbers the rows"):
        assert read_aligned("X.csv", "answers.csv")[0].tasks is None
    # Nearly all of them: silence would match each row with another item's annotations.
    for rows in (np.r_[np.arange(N)[::-1], :3], np.r_[N + 1, np.arange(N - 1)[::-1]]):
        pd.DataFrame({"beats": rows, "loud": rows / 2}).to_csv("X.csv", index=False)
        with pytest.raises(AnnotationError, match=r"Rename 'beats' to 'task' if it holds the ids"):
            read_aligned("X.csv", "answers.csv")


@pytest.mark.parametrize("first", [0, 1])
def test_ids_that_could_number_the_rows_are_matched_only_if_both_readings_agree(first, home):
    """An integer feature, such as a rank, holds all numbers of the rows, too."""
    n = 20
    answers = [(first + k, r, k % 2) for k in range(n) for r in range(3)]
    pd.DataFrame(answers, columns=["task", "worker", "label"]).to_csv("answers.csv", index=False)
    rank = np.random.default_rng(0).permutation(n) + first
    frame = pd.DataFrame({"rank": rank, "loud": np.arange(n) / 2})
    clear = "could be those in column 'rank', or the numbers of the rows, counted from"
    for indexed in (False, True):
        frame.to_csv("X.csv", index=indexed)
        frame.to_parquet("X.parquet")
        for path in ("X.csv", "X.parquet"):
            with pytest.raises(AnnotationError, match=f"{clear} {first}. Rename 'rank' to 'task'"):
                read_aligned(path, "answers.csv")
    # An index that does not merely number the rows from 0 is a column like others.
    frame.set_index(rank[::-1]).to_csv("X.csv")
    with pytest.raises(AnnotationError, match=r"the columns '', 'rank' hold the ids"):
        read_aligned("X.csv", "answers.csv")
    frame.rename(columns={"rank": "task"}).to_csv("X.csv", index=False)
    assert read_aligned("X.csv", "answers.csv")[0].tasks.tolist() == rank.tolist()
    frame.sort_values("rank").to_csv("X.csv", index=False)
    rows, table = read_aligned("X.csv", "answers.csv")
    assert rows.columns == ("loud",)
    assert table.instances.tolist() == rows.tasks.tolist() == sorted(rank.tolist())


def test_a_feature_that_numbers_the_rows_is_warned_of(home):
    write(HEADERS["standard"], "numbers", "song")
    answers = pd.read_csv("answers.csv")
    answers.assign(task=answers["task"] - 1000).to_csv("answers.csv", index=False)
    frame = pd.read_csv("X.csv")
    frame.to_parquet("X.parquet")
    for path in ("X.csv", "X.parquet"):
        with pytest.warns(UserWarning, match=r"'song' numbers the rows.* rename it to 'task'"):
            assert read_aligned(path, "answers.csv")[0].tasks is None


def test_an_error_in_the_annotations_names_only_their_file(home):
    write(HEADERS["standard"], "text", "song")
    Path("empty.csv").write_text("task,worker,label\n")
    with pytest.raises(AnnotationError, match=r"^empty\.csv: "):
        read_aligned("X.csv", "empty.csv")
    with pytest.raises(FileNotFoundError, match=r"^absent\.csv does not exist"):
        read_aligned("X.csv", "absent.csv")


def test_only_a_column_that_could_hold_ids_is_taken_as_such_beside_known_features(home):
    known = ("loud", "beats")
    frame = pd.DataFrame({"song": ["b", "a", "c"], "loud": [0.5, 1.5, 2.5], "beats": [1, 1, 2]})
    frame.to_csv("X.csv", index=False)
    frame.to_parquet("X.parquet")
    for path in ("X.csv", "X.parquet"):
        rows = read_features(path, known=known)
        assert rows.tasks.tolist() == ["b", "a", "c"]
        assert rows.columns == known
    for extra in ([0.5, 1.5, 2.5], [1, 1, 2]):
        frame.assign(song=extra).to_csv("X.csv", index=False)
        frame.assign(song=extra).to_parquet("X.parquet")
        for path in ("X.csv", "X.parquet"):
            rows = read_features(path, known=known)
            assert rows.tasks is None
            assert rows.columns == ("song", *known)
    frame.assign(song=[4, 5, 6]).rename(columns={"loud": "volume"}).to_csv("X.csv", index=False)
    assert read_features("X.csv", known=known).tasks is None


@pytest.mark.filterwarnings("ignore")
def test_predictions_of_texts_keep_the_ids_whatever_the_name_of_their_column(home, caplog):
    """So do the pages that show texts; what could also number the rows is an error."""
    caplog.set_level("INFO", "manyhands")
    write(HEADERS["standard"], "text", "song")
    frame = pd.read_csv("X.csv")
    texts = frame[["song"]].assign(text=["low" if each < 2 else "high" for each in frame["loud"]])
    texts.to_csv("texts.csv", index=False)
    done("fit", "--texts", "texts.csv", "--annotations", "answers.csv", *QUICK, "--out", "m")
    ids = ["z9", "a1", "7"]
    new = pd.DataFrame({"clip": ids, "text": ["low", "high", "low"], "mood": [1, 2, 1]})
    for write_new in (new.to_csv, lambda path: new.to_csv(path, index=False)):
        write_new("new.csv")
        done("predict", "m", "--texts", "new.csv", "--out", "p.csv")
        assert pd.read_csv("p.csv", dtype=str)["task"].tolist() == ids
    assert read_texts("new.csv").tasks.tolist() == ids
    assert "'clip' is taken as the ids" in caplog.text
    new.drop(columns="clip").to_csv("new.csv", index=False)
    assert read_texts("new.csv").tasks is None
    for columns, says in (
        ({"clip": [2, 0, 1]}, "could be those in column 'clip', or the numbers of the rows"),
        ({"link": ["u", "v", "w"]}, "'clip', 'link' could all hold the ids of the items"),
    ):
        new.assign(**columns).to_csv("new.csv", index=False)
        assert says in refused(3, "predict", "m", "--texts", "new.csv").stderr
        new.assign(**columns, task=ids).to_csv("new.csv", index=False)
        assert read_texts("new.csv").tasks.tolist() == ids


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("ids", "named"), [("review_id", ()), ("photo", ("--task", "photo"))])
def test_every_command_takes_the_file_of_texts_that_fit_took(ids, named, home):
    """The column of the ids is found by the items' ids, by its name, or as --task names it."""
    answers = [(f"r{k:02d}", f"p{r}", ("bad", "good")[k % 2]) for k in range(40) for r in range(3)]
    columns = (ids, "reader", "opinion")
    pd.DataFrame(answers, columns=columns).to_csv("answers.csv", index=False)
    texts = pd.DataFrame({ids: [f"r{k:02d}" for k in range(40)]})
    texts["sentence"] = [f"{('dull', 'fine')[k % 2]} {k}" for k in range(40)]
    texts.to_csv("texts.csv", index=False)
    reading = ("--annotations", "answers.csv", *named, "--worker", "reader", "--label", "opinion")
    done("fit", "--texts", "texts.csv", *reading, *QUICK, "--out", "m")
    new = texts.assign(**{ids: [f"new{k}" for k in range(40)]})
    new.to_csv("new.csv", index=False)
    for file, first in (("texts.csv", "r00"), ("new.csv", "new0")):
        done("predict", "m", "--texts", file, "--out", "p.csv")
        assert pd.read_csv("p.csv")["task"][0] == first
    done("report", "m", "--texts", "texts.csv", "--out", "page.html")
    assert "dull 0" in Path("page.html").read_text()
    done("explore", "m", *reading, "--texts", "texts.csv", "--out", "reviewed.csv")
    new.rename(columns={ids: "clip"}).to_csv("new.csv", index=False)
    says = refused(3, "predict", "m", "--texts", "new.csv").stderr
    assert "rename it to 'text', or pass --task COLUMN" in " ".join(says.split())
    done("predict", "m", "--texts", "new.csv", "--task", "clip", "--out", "p.csv")
    assert pd.read_csv("p.csv")["task"][0] == "new0"


def test_a_file_of_features_that_does_not_exist_is_named_before_anything_else(
    tmp_path, monkeypatch
):
    """The column of labels was reported, which the annotations lacked, too."""
    monkeypatch.chdir(tmp_path)
    Path("answers.csv").write_text("song,listener,verdict_of_mine\na,x,1\nb,y,0\n")
    with pytest.raises(FileNotFoundError, match=r"feature\.csv does not exist"):
        read_aligned("feature.csv", "answers.csv", label="nowhere")
