"""Commands on votes of nobody in particular."""

import csv

import pytest

from tests.cli.conftest import done, done_json, read_rows, refused, run
from tests.io.exports.conftest import write
from tests.io.test_votes import FLEISS, HEADERS, NAMES, VOTES, counts_file


def test_what_votes_allow(home):
    counts_file(home / "c.csv", HEADERS["prefixed"])
    found = done_json("agreement", "c.csv")
    assert found["fleiss_kappa"]["value"] == pytest.approx(0.210, abs=5e-4)
    assert found["mean_cohen_kappa"]["value"] is None
    shown = done("describe", "c.csv")
    assert "unknown" in shown.stdout
    assert "per active annotator" not in shown.stdout
    made = done("aggregate", "c.csv", "--out", "labels.csv")
    assert "MajorityVote" in made.stdout
    assert "do not say who gave them" in made.stderr
    with (home / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    shares = [[float(row[f"p({name})"]) for name in NAMES] for row in rows]
    assert shares == [pytest.approx([n / 14 for n in row], abs=1e-6) for row in FLEISS]
    hard = ("--method", "majority-vote", "--set", "soft=false", "--out", "hard.csv")
    done("aggregate", "c.csv", *hard)
    assert {cell for row in read_rows(home / "hard.csv")[1:] for cell in row[6:-1]} == {
        "0.000000",
        "1.000000",
    }


def test_what_votes_do_not_allow(home):
    rows = [["id", "labels"], *([k, ";".join(v)] for k, v in VOTES.items())]
    write(home / "v.csv", rows)
    for command in (
        ("aggregate", "v.csv", "--method", "dawid-skene"),
        ("aggregate", "v.csv", "--compare"),
        ("next", "v.csv"),
        ("annotators", "v.csv"),
        ("review", "v.csv"),
        ("convert", "v.csv", "long.csv"),
        ("ingest", "v.csv", "--out", "store"),
        ("aggregate", "v.csv", "--out", "folder"),
    ):
        result = run(*command)
        assert result.exit_code == 3, command
        assert "do not say who gave them" in " ".join(result.stderr.split()), command
    assert not (home / "folder").exists()
    counts_file(home / "c.csv", NAMES)
    refused(3, "describe", "c.csv", says=["--format"])
    assert done_json("describe", "c.csv", "--format", "counts")["data"]["n_annotators"] is None
