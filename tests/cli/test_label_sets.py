"""Commands on answers of several labels."""

import pytest

from tests.annotations.test_label_sets import ALPHA, long, rows
from tests.cli.conftest import done, done_json, refused
from tests.io.exports.conftest import write
from tests.io.test_label_sets import csv


def test_commands_take_sets(home):
    csv(home / "sets.csv", long(";".join))
    csv(home / "rows.csv", rows())
    write(home / "truth.csv", [["task", "label"], [1, "safety;policy"], [2, "policy"]])
    for name in ("sets.csv", "rows.csv"):
        says = ["--multilabel split --option", "--multilabel join"]
        refused(3, "aggregate", name, says=says)
        found = done_json("agreement", name, "--multilabel", "join")
        assert found["krippendorff_alpha"]["value"] == pytest.approx(ALPHA, abs=1e-6)
        option = ("--multilabel", "split", "--option", "safety")
        measured = done_json("aggregate", name, *option, "--gold", "truth.csv")["gold"]
        assert measured["accuracy"] == 1
        data = done_json("describe", name, *option)
        assert [row["name"] for row in data["classes"]["rows"]] == ["no", "yes"]
    refused(3, "describe", "sets.csv", "--multilabel", "split", says=["--option policy"])
    refused(3, "describe", "sets.csv", "--option", "x", says=["--multilabel split"])
    done("convert", "sets.csv", "joined.csv", "--multilabel", "join")
    assert done_json("describe", "joined.csv")["data"]["n_classes"] == 4
