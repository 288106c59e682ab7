"""Commands that write folders: models, full disks, interruptions, and the folds of select."""

import errno
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import manyhands
from manyhands import CoNALClassifier, CrowdStackingClassifier
from manyhands.files import file_lock
from manyhands.io import features, read_gold
from manyhands.io.mapped import MappedRows
from manyhands.training.checkpoint import Checkpoint
from tests.cli.conftest import (
    done,
    done_json,
    fit_arguments,
    read_rows,
    refused,
    run,
    snapshot,
    weights_digest,
    write_crowd,
    write_csv,
)

pytestmark = pytest.mark.usefixtures("short")


# -- model folders ----------------------------------------------------------------------------


def test_a_fit_that_maps_its_features_gives_the_same_bits(home, monkeypatch):
    done(*fit_arguments("--gold", "gold.csv", out="read"))
    monkeypatch.setattr(features, "MAPPED_BYTES", 1)
    monkeypatch.setattr(MappedRows, "__array__", None)  # Nothing reads all rows at once.
    done(*fit_arguments("--gold", "gold.csv", out="mapped"))
    assert weights_digest(Path("mapped")) == weights_digest(Path("read"))
    found = [done_json("predict", folder, "X.npy") for folder in ("read", "mapped")]
    assert found[0] == found[1]


def weights_of(folder):
    return next(folder.glob("weights-*.safetensors"))


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def edit(folder, **changes):
    path = folder / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_found(folder, **changes):
    found = json.loads((folder / "model.json").read_text())["fitted"]
    edit(folder, fitted=found | changes)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (shutil.rmtree, "not a model folder"),
        (lambda f: (f / "model.json").unlink(), "no model.json"),
        (lambda f: (f / "model.json").write_text((f / "model.json").read_text()[:99]), "truncated"),
        (lambda f: (f / "model.json").write_text("[" * 100_000), "unreadable"),
        (lambda f: (f / "model.json").write_bytes(b"\xff\x00"), "unreadable"),
        (lambda f: weights_of(f).unlink(), "missing"),
        (lambda f: weights_of(f).write_bytes(weights_of(f).read_bytes()[:99]), "truncated"),
        (lambda f: weights_of(f).write_bytes(b""), "truncated"),
        (lambda f: flip(weights_of(f)), "altered"),
        (lambda f: edit(f, version=99), "version 99"),
        (lambda f: edit(f, **{"class": "Nonsense"}), "'Nonsense'"),
        (lambda f: edit(f, **{"class": ["a"]}), "damaged"),
        (lambda f: edit_found(f, classes_={"$values": ["2", "1", "0"]}), "altered"),
        (lambda f: edit_found(f, classes_={"$values": ["0", "1"]}), "do not fit"),
        (lambda f: edit_found(f, classes_={"$array": "nobody"}), "damaged"),
        (lambda f: edit_found(f, annotators_={"$nobody": 1}), "damaged"),
        (lambda f: edit_found(f, annotators_={"$object": "Path", "parameters": {}}), "'Path'"),
        (lambda f: edit(f, parameters=[]), "damaged"),
        (lambda f: edit(f, parameters={}), "altered"),
        (lambda f: edit(f, weights=3), "damaged"),
        (lambda f: edit_found(f, history_={"$record": "Rows"}), "damaged"),
        (lambda f: edit_found(f, n_features_in_="x"), "altered"),
    ],
)
def test_damaged_model_folders(model, damage, says):
    damage(model)
    refused(5, "predict", "model", "X.npy", "--out", "labels.csv", says=[says])


class Payload:
    """Unpickled, it creates a file."""

    def __reduce__(self):
        return open, ("unpickled", "w")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_pickles_are_never_loaded(model):
    content = pickle.dumps(Payload())
    for name in ("model.pkl", "weights.pkl", "model.pt"):
        (model / name).write_bytes(content)
    done("predict", "model", "X.npy")
    digest = hashlib.sha256(content).hexdigest()
    whole = (model / "model.json").read_text()
    edit(model, weights="weights.pkl", sha256=digest)
    refused(5, "predict", "model", "X.npy", says=["not a safetensors file"])
    (model / "model.json").write_text(whole)
    edit(model, parameters={"backbone": {"$own": "model.pkl"}})
    refused(5, "predict", "model", "X.npy", says=["backbone"])
    assert not Path("unpickled").exists()
    pickle.loads(content)
    assert Path("unpickled").exists(), "it would have been noticed"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"version": 99}', '{"version": 1}', '{"version": 1, "data": 3}']
)
def test_damaged_summaries(model, content):
    (model / "summary.json").write_text(content)
    refused(5, "report", "model", says=["summary.json"])


def test_report_without_a_summary(home):
    refused(5, "report", ".", says=["summary.json"])
    refused(5, "report", "nofolder", says=["'nofolder'"])


@pytest.mark.parametrize("place", [("classes", "rows", 1), ("agreement", "pairs", "rows", 1)])
def test_an_edited_summary_is_refused_in_words(model, place):
    """Python's own would be: 'NoneType' object is not subscriptable."""
    path = model / "summary.json"
    summary = json.loads(path.read_text())
    part = summary
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = None
    path.write_text(json.dumps(summary))
    refused(5, "report", "model", says=["cannot be rendered; it was truncated or edited"])


# -- writing ----------------------------------------------------------------------------------


on_linux = pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")


@pytest.mark.parametrize(
    "out", ["file.txt/dir", "file.txt", pytest.param("/proc/manyhands/x", marks=on_linux)]
)
def test_unwritable_folders(model, out):
    says = ["cannot write"]
    refused(4, *fit_arguments(out=out), says=says)
    refused(4, "demo", "--out", out, says=says)
    if out != "file.txt":
        refused(4, "aggregate", "A.csv", "--out", f"{out}/labels.csv", says=says)
        refused(4, "predict", "model", "X.npy", "--out", f"{out}/labels.csv", says=says)
        refused(4, "report", "model", "--out", f"{out}/report.html", says=says)


def test_a_folder_in_the_place_of_a_file(model):
    for arguments in (["aggregate", "A.csv"], ["predict", "model", "X.npy"], ["report", "model"]):
        refused(4, *arguments, "--out", "model", says=["cannot write 'model'", "folder"])


@pytest.fixture
def full_disk(monkeypatch):
    """Return a function: the disk is full from the n-th synced file on."""
    sync = os.fsync

    def fill(n):
        calls = iter(range(1, 10**6))

        def fsync(handle):
            if next(calls) >= n:
                raise OSError(errno.ENOSPC, "No space left on device")
            sync(handle)

        monkeypatch.setattr(os, "fsync", fsync)

    return fill


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a fit with seed 5 learns if nothing disturbs it: the digest of its weights."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_crowd(folder)
    places = {"features": folder / "X.npy", "annotations": folder / "A.csv"}
    done(*fit_arguments("--seed", "5", out=folder / "model", **places))
    return weights_digest(folder / "model")


@pytest.mark.parametrize(
    "n",
    # Two checkpoints, weights, model.json, labels, summary.
    range(1, 7),
)
def test_a_full_disk_leaves_a_whole_model(model, undisturbed, full_disk, monkeypatch, n):
    before, sync = snapshot(model), os.fsync
    full_disk(n)
    arguments = fit_arguments("--seed", "5", out="model")
    result = run(*arguments)
    assert result.exit_code == 4, result.output
    assert "the disk is full" in result.stderr
    monkeypatch.setattr(os, "fsync", sync)
    after = snapshot(model)
    assert not [path for path in after if path.suffix == ".part"]
    assert {path: after[path] for path in before} == before
    assert set(after) - set(before) <= {Path("checkpoint.safetensors")}
    done(*arguments)
    assert weights_digest(model) == undisturbed, "space freed, the same command goes on"


@pytest.mark.parametrize("n", [5, 6])
def test_a_full_disk_leaves_no_half_of_a_first_model(home, full_disk, n):
    full_disk(n)
    assert run(*fit_arguments()).exit_code == 4
    assert {path.name for path in Path("out").iterdir()} == {"checkpoint.safetensors"}


def test_one_job_at_a_time_writes_into_a_folder(home):
    Path("out").mkdir()
    with file_lock(Path("out/.manyhands.lock")) as held:
        assert held
        for arguments in (fit_arguments(), ["demo", "--out", "out"]):
            refused(4, *arguments, says=["'out'", "another manyhands command", "another folder"])
    done(*fit_arguments())


def test_what_a_killed_writer_left_blocks_nothing(home):
    whole = done_json(*fit_arguments(out="whole"))
    Path("out/.manyhands-new").mkdir(parents=True)
    left = ["out/.manyhands-new/labels.csv", "out/.manyhands.lock"]
    left += ["out/.checkpoint.safetensors.x.part"]
    for name in left:
        Path(name).write_text("half")
    assert done_json(*fit_arguments())["table"].keys() == whole["table"].keys()
    assert {path.name.split("-")[0] for path in Path("out").iterdir()} == {
        *("annotators.csv", "labels.csv", "model.json", "report.html", "summary.json", "weights"),
    }


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".json", ".jsonl"])
def test_the_suffix_decides_what_is_written(model, suffix):
    read = {
        ".csv": pd.read_csv,
        ".tsv": lambda path: pd.read_csv(path, sep="\t"),
        ".parquet": pd.read_parquet,
        ".json": pd.read_json,
        ".jsonl": lambda path: pd.read_json(path, lines=True),
    }[suffix]
    for arguments in (["aggregate", "A.csv"], ["predict", "model", "X.npy"]):
        done(*arguments, "--out", "labels" + suffix)
        done(*arguments, "--out", "expected.csv")
        found, expected = read("labels" + suffix), pd.read_csv("expected.csv")
        for each in (found, expected):  # Nobody reviewed them: pandas reads empty cells as NaN.
            assert set(each.pop("reviewed").astype(object).fillna("")) == {""}
        pd.testing.assert_frame_equal(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["labels.ods", "labels", "labels.csv.gz"])
def test_an_unknown_suffix_is_refused(model, name):
    says = [name, ".csv, .tsv, .xlsx, .parquet, .json or .jsonl"]
    if name != "labels":  # For aggregate, a name without a suffix is a folder.
        refused(3, "aggregate", "A.csv", "--out", name, says=says)
    refused(3, "predict", "model", "X.npy", "--out", name, says=says)


FORMULAS = ["=cmd|'/c calc'!A1", "+SUM(1)", "-A1", "@now()", "\tx", "'=x", "''+x", "＝1+1"]
NO_FORMULAS = ["-5", "+3.5e1", "'quoted", "a=b", "'-5", "–", "1-2"]


def test_ids_that_a_spreadsheet_would_run_are_neutralised_and_read_back(home):
    ids = [*FORMULAS, *NO_FORMULAS]
    votes = {"task": ids * 2, "worker": ["a"] * len(ids) + ["b"] * len(ids)}
    pd.DataFrame(votes | {"label": ["=1+1", "no", "no"] * 10}).to_parquet("votes.parquet")
    done("aggregate", "votes.parquet", "--out", "safe.csv", "--method", "majority-vote")
    _, *rows = read_rows(Path("safe.csv"))
    assert {row[0] for row in rows} == {*(f"'{name}" for name in FORMULAS), *NO_FORMULAS}
    assert {row[1] for row in rows} == {"'=1+1", "no"}
    header, *rows = read_rows(Path("safe.csv"))
    place = header.index("reviewed")
    write_csv(Path("safe.csv"), [header, *([*r[:place], "yes", *r[place + 1 :]] for r in rows)])
    gold = read_gold("safe.csv")
    assert sorted(gold.tasks) == sorted(ids)
    assert set(gold.labels) == {"=1+1", "no"}
    again = ["aggregate", "votes.parquet", "--gold", "safe.csv", "--method", "majority-vote"]
    assert done_json(*again)["gold"]["accuracy"] == 1.0

    done(*again, "--keep-formulas", "--out", "plain.csv")
    assert {row[0] for row in read_rows(Path("plain.csv"))[1:]} == set(ids)
    done(*again, "--out", "labels.parquet")
    assert set(pd.read_parquet("labels.parquet")["task"]) == set(ids)


def test_what_messages_recommend_can_be_done_on_the_command_line(home, interrupted):
    interrupted(1)
    assert run(*fit_arguments()).exit_code == 130
    result = run(*fit_arguments("--set", "lr=0.5"))
    assert "or choose --restart, or another --out" in result.stderr
    done(*fit_arguments("--set", "lr=0.5", out="elsewhere"))


@pytest.mark.filterwarnings("always")
def test_warnings_name_the_options_too(home):
    rows = [
        ("task", "worker", "label"),
        *((i, "w", "yn"[i % 2]) for i in range(4)),
        (9, "w", "n/a"),
    ]
    write_csv(home / "marks.csv", rows)
    result = done("describe", "marks.csv")
    assert "'n/a' (1), which counts as a class" in result.stderr
    assert "name it in --abstain or --skip; if it is a class, name all classes in --classes" in (
        result.stderr
    )
    named = done("describe", "marks.csv", "--skip", "n/a")
    assert "n/a" not in named.stderr
    assert named.stdout.count("n/a") == 1  # The next command keeps the option.
    assert "marks.csv --skip n/a --out labels" in named.stdout


@pytest.mark.parametrize("command", ["describe", "aggregate"])
def test_ids_are_neither_guessed_nor_taken_as_labels(home, command):
    """An export of Label Studio: one annotation per row, with its id."""
    rows = [(i, i % 5, i % 3, ["pos", "neg"][i % 2]) for i in range(30)]
    write_csv(home / "ls.csv", [("annotation_id", "id", "annotator", "sentiment"), *rows])
    chosen = ["--task", "id", "--worker", "annotator", "--duplicates", "keep", "--label"]
    refused(
        3,
        command,
        "ls.csv",
        *chosen[:4],
        says=["there is no column 'label' (--label)", "'sentiment'", "--label"],
    )
    says = ["30 classes in 30 annotations", "look like ids"]
    with_labels = run(command, "ls.csv", *chosen, "annotation_id")
    assert with_labels.exit_code == 3
    assert all(words in with_labels.stderr for words in says)
    done(command, "ls.csv", *chosen, "sentiment")


def test_a_full_disk_leaves_the_previous_file(model, full_disk):
    done("aggregate", "A.csv", "--out", "labels.csv")
    done("report", "model")
    full_disk(1)
    refused(4, "aggregate", "A.csv", "--set", "max_iter=1", "--out", "labels.csv", says=["full"])
    refused(4, "predict", "model", "X.npy", "--out", "labels.csv", says=["full"])
    refused(4, "report", "model", says=["full"])
    refused(4, *fit_arguments(out="deep/new"), says=["full"])


# -- interruptions ----------------------------------------------------------------------------


@pytest.fixture
def interrupted(monkeypatch):
    """Return a function: Ctrl-C after the n-th checkpoint."""
    write = Checkpoint.on_epoch_end

    def interrupt(n):
        calls = iter(range(1, 10**6))

        def on_epoch_end(self, number, row):
            write(self, number, row)
            if next(calls) == n:
                raise KeyboardInterrupt

        monkeypatch.setattr(Checkpoint, "on_epoch_end", on_epoch_end)

    return interrupt


def test_ctrl_c_says_whether_the_command_goes_on(home, interrupted, monkeypatch):
    interrupted(1)
    told = run(*fit_arguments())
    assert told.exit_code == 130
    assert "the same command goes on where it stopped" in told.stderr

    def stop(self, *args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(CrowdStackingClassifier, "fit", stop)
    files = ("--features", "X.npy", "--annotations", "A.csv", "--out", "other")
    told = run("fit", *files)
    assert told.exit_code == 130
    assert "starts afresh, as this method keeps no checkpoint" in told.stderr
    assert "goes on" not in told.stderr
    told = run("select", *files, "--methods", "crowd-stacking", "--cv", "2")
    assert "goes on after the last finished fold" in told.stderr


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 6, 8])
def test_ctrl_c_and_the_same_command_again(home, interrupted, n):
    more = ["--seeds", "2", "--holdout", "0.2", "--gold", "gold.csv"]
    whole = done_json(*fit_arguments(*more, out="whole"))
    interrupted(n)
    result = run(*fit_arguments(*more, "--json"))
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert "Traceback" not in result.stderr
    resumed = done_json(*fit_arguments(*more))
    assert weights_digest(home / "out") == weights_digest(home / "whole")
    for protocol, run_ in whole["table"].items():
        assert resumed["table"][protocol]["splits"] == run_["splits"]
    assert not list((home / "out").glob("*checkpoint*"))


def test_a_run_goes_on_with_another_verbosity(home, interrupted):
    interrupted(1)
    assert run(*fit_arguments()).exit_code == 130
    done(*fit_arguments("--json"))


def test_finished_fits_are_not_repeated(home, interrupted, monkeypatch):
    three = ("--seeds", "3", "--set", "init_scale=2.0")  # "auto" would fit again for lost classes.
    interrupted(5)
    assert run(*fit_arguments(*three)).exit_code == 130
    epochs = []
    monkeypatch.setattr(
        Checkpoint, "on_epoch_end", lambda self, number, row: epochs.append(row["epoch"])
    )
    done(*fit_arguments(*three))
    assert epochs == [2], "of six epochs five were done"


def test_ctrl_c_before_anything_leaves_nothing(home, monkeypatch):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(manyhands.CoNALClassifier, "fit", stop)
    before = snapshot(home)
    assert run(*fit_arguments(out="deep/new")).exit_code == 130
    assert snapshot(home) == before


@pytest.mark.slow
def test_kill_9_and_the_same_command_again(home):
    """A process killed in the second seed; the run goes on to bit-identical weights."""
    more = ["--seeds", "2", "--holdout", "0.2"]
    program = (
        "import os, signal, torch\n"
        "from manyhands.cli import main\n"
        "from manyhands.training import checkpoint\n"
        f"torch.set_num_threads({torch.get_num_threads()})\n"
        "write, calls = checkpoint.save_tree, iter(range(1, 99))\n"
        "def save_tree(*args):\n"
        "    n = next(calls)\n"
        "    if n == 6:\n"
        "        open('out/.checkpoint-2.safetensors.x.part', 'w').write('half')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    write(*args)\n"
        "checkpoint.save_tree = save_tree\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program, *fit_arguments(*more)]
    killed = subprocess.run(command, cwd=home, capture_output=True, check=False, timeout=600)
    assert killed.returncode == -9, killed.stderr
    left = {path.name for path in (home / "out").glob("*checkpoint*")}
    assert left == {
        "checkpoint.safetensors",
        "checkpoint-1.safetensors",
        "checkpoint-2.safetensors",
        ".checkpoint-2.safetensors.x.part",
    }
    done(*fit_arguments(*more))
    done(*fit_arguments(*more, out="whole"))
    assert weights_digest(home / "out") == weights_digest(home / "whole")
    assert (home / "out/labels.csv").read_bytes() == (home / "whole/labels.csv").read_bytes()
    assert not list((home / "out").glob("*checkpoint*"))


def test_a_checkpoint_of_another_run_is_kept_and_named(home, interrupted):
    interrupted(1)
    assert run(*fit_arguments()).exit_code == 130
    for more, says in (
        (["--set", "lr=0.5"], "lr"),
        (["--seed", "3"], "random_state"),
        (["--method", "crowdlayer"], "class"),
        (["--duplicates", "last", "--gold", "gold.csv"], "data"),
    ):
        result = run(*fit_arguments(*more))
        assert result.exit_code == 5, result.output
        assert "another run" in result.stderr
        assert says in result.stderr
        assert "Delete it" in result.stderr
        assert "or choose --restart, or another --out" in result.stderr
    done(*fit_arguments())


def test_restart_runs_another_fit_over_an_interrupted_one(home, interrupted):
    interrupted(1)
    assert run(*fit_arguments("--seeds", "2")).exit_code == 130
    other = ["--set", "lr=0.05", "--seeds", "2"]
    refused(5, *fit_arguments(*other), says=["another run", "--restart"])
    done(*fit_arguments(*other, "--restart"))
    assert not list((home / "out").glob("*checkpoint*"))
    done(*fit_arguments(*other, out="fresh"))
    assert weights_digest(home / "out") == weights_digest(home / "fresh")


def test_restart_over_a_damaged_checkpoint(home, interrupted):
    interrupted(1)
    assert run(*fit_arguments()).exit_code == 130
    (home / "out" / "checkpoint.safetensors").write_bytes(b"")
    refused(5, *fit_arguments(), says=["out/checkpoint.safetensors", "--restart"])
    done(*fit_arguments("--restart"))


@pytest.mark.parametrize("damage", [lambda c: b"", lambda c: c[:50], lambda c: c[: len(c) // 2]])
def test_truncated_checkpoints(home, interrupted, damage):
    interrupted(1)
    assert run(*fit_arguments()).exit_code == 130
    path = home / "out" / "checkpoint.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    refused(5, *fit_arguments("--json"), says=["out/checkpoint.safetensors"])


def test_divergence(home):
    # One step an epoch: the first ends, with its checkpoint, before the loss is infinite.
    result = run(*fit_arguments("--set", "lr=1e30", "--set", "batch_size=99"))
    assert result.exit_code == 7
    assert "in epoch 2" in result.stderr
    assert "lower lr" in result.stderr
    assert not (home / "out").exists()
    done(*fit_arguments())


# -- select ----------------------------------------------------------------------------------------

QUICK_METHODS = ("--methods", "conal,crowd-layer", "--cv", "2")


FEW = pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")


def select_arguments(*more, out="chosen"):
    files = ("--features", "X.npy", "--annotations", "A.csv")
    return ["select", *files, "--out", out, *QUICK_METHODS, *more]


@FEW
def test_select_prints_the_table_and_saves_a_model_that_predicts(home):
    shown = done(*select_arguments("--gold", "gold.csv"))
    for text in ("crowd-layer", "conal", "z behind", "chosen:", "against gold"):
        assert text in shown.stdout
    score = (
        "mean of the share of the annotations that its predictions agree with, and of this share"
    )
    assert score in " ".join(shown.stdout.split())
    assert not (home / "chosen" / "folds").exists()
    done("predict", "chosen", "X.npy", "--out", "predicted.csv")
    page = Path(done_json("report", "chosen")["report"]).read_text(encoding="utf-8")
    assert "Which method suits these data best?" in page
    assert "was chosen among" in page


@FEW
def test_a_method_of_features_alone_says_why_it_accepts_nothing(home, short):
    why = "predicts the label of an item from its features alone, so answers that agree"
    shown = " ".join(done(*fit_arguments()).stdout.split())
    assert "recommended: accept 0 labels, " in shown
    assert why in shown
    assert "and `manyhands aggregate A.csv` from answers alone" in shown
    assert done_json(*fit_arguments())["labels_rest_on"] == "features"
    both = fit_arguments("--method", "crowd-stacking")  # It takes no settings of networks.
    both = [word for word in both if word != "--set" and "=" not in word]
    assert done_json(*both)["labels_rest_on"] == "annotations and features"
    assert why not in " ".join(done(*both).stdout.split())


@FEW
def test_select_says_the_same_to_programs(home):
    result = done_json(*select_arguments("--criterion", "balanced", "--average", 2))
    assert result["labels_rest_on"] == "features"
    assert result["selection"]["criterion"] == "balanced"
    assert {row["candidate"] for row in result["selection"]["candidates"]} == {
        "conal",
        "crowd-layer",
    }
    assert result["splits"] == {}
    saved = json.loads((home / "chosen" / "summary.json").read_text())["selection"]
    assert saved == result["selection"]


@pytest.mark.slow
@FEW
def test_select_goes_on_after_an_interruption(home, monkeypatch):
    trained, fits = CoNALClassifier.fit, []

    def interrupted(self, *args, **options):
        fits.append(1)
        if len(fits) == 2:
            raise KeyboardInterrupt
        return trained(self, *args, **options)

    monkeypatch.setattr(CoNALClassifier, "fit", interrupted)
    assert run(*select_arguments()).exit_code != 0
    assert len(list((home / "chosen" / "folds").glob("*.npz"))) == 1
    done(*select_arguments())
    assert len(fits) == 3  # The finished fold is not trained again.


@FEW
def test_method_auto_selects_over_the_short_list(home, monkeypatch):
    from manyhands.selection import selecting

    monkeypatch.setattr(selecting, "SHORT_LIST", ("CoNALClassifier", "CrowdLayerClassifier"))
    files = ("--features", "X.npy", "--annotations", "A.csv", "--out", "out")
    result = done_json("fit", *files, "--method", "auto")
    assert len(result["selection"]["candidates"]) == 2
    for more in (("--set", "lr=1"), ("--seeds", "2"), ("--protocol", "conal_music")):
        refused = run("fit", *files, "--method", "auto", *more)
        assert refused.exit_code == 3
        assert f"{more[0]} goes with one method" in refused.stderr


def test_without_a_method_there_is_stacking(home):
    files = ["--features", "X.npy", "--annotations", "A.csv", "--gold", "gold.csv", "--out", "out"]
    told = done("fit", *files, "--seeds", "2", "--set", "n_rounds=2").stdout
    assert "no --method given, so crowd-stacking is used" in told
    assert "all rounds, test (12)" in told
    named = [*files, "--method", "crowd-stacking", "--set", "n_rounds=2"]
    assert "no --method" not in done("fit", *named).stdout
    result = done_json("fit", *files, "--set", "class_prior=uniform")
    assert result["method"] == "CrowdStackingClassifier"
    assert result["records"][0]["protocols"]["all rounds"]["epoch"] is None
    assert read_rows(home / "out" / "labels.csv")[0][:3] == ["task", "label", "probability"]
    done("predict", "out", "ids.npz", "--out", "predicted.csv")
    assert [row[0] for row in read_rows(home / "predicted.csv")[1:3]] == ["t0", "t1"]
    done("report", "out")
    told = done("fit", *files, "--known", "gold.csv").stdout
    n_train = sum(row[2] == "train" for row in read_rows(home / "gold.csv"))
    assert f"known: {n_train} labels" in told  # Those of test rows are left out.
    assert "annotators.csv" in told
    for more, says in (
        (("--holdout", "0.1"), "--holdout 0.1 chooses the number of epochs"),
        (("--protocol", "conal_music"), "--protocol conal_music sets how a network is trained"),
        (("--set", "max_epochs=2"), "CrowdStackingClassifier has no parameter 'max_epochs'"),
        (("--set", "members=[ridge]"), "give tuples"),
    ):
        wrong = run("fit", *files, *more)
        assert wrong.exit_code == 3
        assert says in wrong.stderr


def test_select_refuses_an_unknown_method(home):
    refused = run("select", *select_arguments()[1:7], "--methods", "conal,agnet")
    assert refused.exit_code == 3
    assert "did you mean agg-net?" in refused.stderr


@pytest.mark.slow  # It trains ten networks.
@pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")  # Noise, as made.
def test_images_for_which_the_stack_trains_a_network(home):
    rng = np.random.default_rng(0)
    np.save("images.npy", rng.normal(size=(len(np.load("X.npy")), 8, 8, 1)).astype(np.float32))
    files = ("--features", "images.npy", "--annotations", "A.csv", "--out", "stack")
    done("fit", *files, "--method", "crowd-stacking", "--set", "n_rounds=2")
    done("predict", "stack", "images.npy", "--out", "labels.csv")
    found = pd.read_csv("labels.csv").filter(regex=r"^p\(")
    proba = manyhands.load("stack").predict_proba(np.load("images.npy"))
    np.testing.assert_allclose(found, proba, atol=1e-5)  # Files have six digits.


# -- what is installed ------------------------------------------------------------------------


def test_doctor_tells_what_is_there(tmp_path, monkeypatch):
    for place in ("music", "aggregation/rte", "notes"):
        (tmp_path / place).mkdir(parents=True)
    for place in ("music", "aggregation/rte"):
        (tmp_path / place / "labels.csv").write_text("")
    monkeypatch.setenv("MANYHANDS_DATA", str(tmp_path))
    found = done_json("doctor")
    assert found["packages"]["numpy"] == np.__version__
    assert found["data"] == {
        "folder": str(tmp_path),
        "exists": True,
        "sets": ["aggregation/rte", "music"],
    }
    assert found["devices"][0] == "cpu"
    assert not found["problems"]
    told = done("doctor").stdout
    assert f"data home: {tmp_path} (aggregation/rte, music)" in told.replace("\n", "")
    monkeypatch.setattr("manyhands.datasets.base.user_cache", lambda: tmp_path)
    told = done("doctor").stdout.replace("\n", "")
    assert told.count(str(tmp_path)) == 1
    assert f"data home and cache: {tmp_path} (aggregation/rte, music)" in told
    monkeypatch.setattr("manyhands.cli.commands.describe.__version__", "99.0")
    assert "99.0 is imported: install it again" in done_json("doctor")["problems"][0]


def test_doctor_never_fails(monkeypatch):
    monkeypatch.setenv("MANYHANDS_DATA", "/no/such/folder")
    monkeypatch.setitem(sys.modules, "torch", None)
    requirements = [
        "numpy>=2.0",
        "no-such_package>=1 ; extra == 'torch'",
        'manyhands[torch,plot] ; extra == "all"',
        "matplotlib>=3 ; extra == 'plot'",
    ]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: requirements)
    found = done_json("doctor")
    assert found["devices"] == ["cpu (no torch)"]
    assert found["problems"][0].startswith("MANYHANDS_DATA='/no/such/folder' is not a folder")
    assert set(found["packages"]) == {"numpy", "no-such_package", "matplotlib"}
    missing = {name: extra["missing"] for name, extra in found["extras"].items()}
    assert missing == {"torch": ["no-such_package"], "plot": [], "all": ["no-such_package"]}
    assert found["extras"]["torch"]["command"] == "pip install 'no-such_package>=1'"
    assert "pip install 'no-such_package>=1'" in done("doctor").stdout

    def unknown(name):
        raise PackageNotFoundError

    monkeypatch.setattr("importlib.metadata.requires", unknown)
    assert "its extras are not known" in done("doctor").stdout


# -- annotations that come later --------------------------------------------------------------


def write_days():
    """Annotations of the first 30 instances by three annotators, and then all, new ones first."""
    rows = pd.read_csv("A.csv")
    first = rows[(rows.task < 30) & rows.worker.isin(["w0", "w1", "w2"])]
    first.to_csv("A1.csv", index=False)
    rows.sort_values(["worker", "task"], ascending=False).to_csv("A2.csv", index=False)
    np.save("X1.npy", np.load("X.npy")[:30])
    return rows


@pytest.mark.parametrize("method", ["crowd-stacking", "crowd-layer"])
def test_a_fit_goes_on_from_a_saved_model(home, method):
    rows = write_days()
    quick = ["--set", "n_rounds=2" if method == "crowd-stacking" else "max_epochs=2"]
    files = ["--features", "X1.npy", "--annotations", "A1.csv"]
    done("fit", *files, "--out", "m", "--method", method, *quick)
    everything = ["--continue", "m", "--features", "X.npy", "--annotations", "A2.csv"]
    result = done_json("fit", *everything, "--gold", "gold_plain.csv", "--out", "m")
    assert result["data"]["annotations"] == len(rows)
    assert list(result["table"]) == ["continued"]
    assert len(read_rows(home / "m" / "labels.csv")[1:]) == 48
    model = manyhands.load("m")
    assert model.annotators_.tolist() == ["w0", "w1", "w2", "w3", "w4"]
    assert model.n_annotations_ == len(rows)
    done("report", "m")


def test_what_does_not_fit_the_model_is_refused(model):
    files = ["--continue", "model", "--out", "more"]
    features = ["--features", "X_3.npy", "--annotations", "A.csv"]
    refused(3, "fit", *files, *features, says=["X has 3 features"])
    features = ["--features", "X.npy", "--annotations", "A_names.csv"]
    refused(3, "fit", *files, *features, says=["classes are fixed", "fit anew"])
    features = ["--features", "X.npy", "--annotations", "A.csv"]
    refused(3, "fit", *files, *features, "--method", "conal", says=["--method", "leave --method"])
