"""What labels are, their order and their spelling, on the command line."""

import csv
import json

import numpy as np
import pytest

from tests.cli.conftest import done, refused, run

LEVELS = ["very low", "low", "medium", "high", "very high"]


def write(path, labels):
    """Write a matrix of labels as a long table."""
    with open(path, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["task", "worker", "label"])
        for i, row in enumerate(labels):
            out.writerows((f"t{i}", f"w{r}", label) for r, label in enumerate(row))


@pytest.fixture
def grades(tmp_path, monkeypatch):
    """The same grades as numbers, words, numbered words and unknown words; and a slider."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    truth = rng.integers(5, size=40)
    given = (truth[:, None] + rng.choice([-1, 0, 0, 1], (40, 3))).clip(0, 4)
    write("numbers.csv", given)
    write("words.csv", np.array(LEVELS)[given])
    write("prefix.csv", np.array(["8 - a", "9 - b", "10 - c", "11 - d", "100 - e"])[given])
    write("own.csv", np.array(["zilch", "bit", "some", "lots", "all of it"])[given])
    write("slider.csv", (given * 7 + rng.integers(0, 7, given.shape)))
    write("scores.csv", given / 4)
    return tmp_path


def alpha(*words):
    return json.loads(done("agreement", *words, "--json", "--resamples", "5").stdout)


def test_ordinal_agreement_is_that_of_the_grades(grades):
    right = alpha("numbers.csv", "--scale", "ordinal")
    assert right["order"] == list("01234")
    for name, order in (("words.csv", LEVELS), ("prefix.csv", None)):
        found = alpha(name, "--scale", "ordinal")
        for measure in ("krippendorff_alpha", "mean_cohen_kappa", "gwet_ac2"):
            assert found[measure]["value"] == pytest.approx(right[measure]["value"], abs=1e-12)
        assert order is None or found["order"] == order
    shown = done("agreement", "words.csv", "--scale", "ordinal", "--resamples", "5")
    assert "order of the classes: very low < low < medium < high < very high (a known scale)" in (
        shown.stdout
    )
    assert alpha("words.csv") == alpha("words.csv", "--ordered")
    assert "order" not in alpha("words.csv", "--scale", "nominal")
    said = run("agreement", "words.csv").stderr
    assert "read as grades, in the order very low < low < medium < high < very high" in said
    assert "--scale nominal reads them as names" in said
    refused(3, "agreement", "words.csv", "--ordered", "--scale", "interval",
            says=["--ordered is short for --scale ordinal", "leave one of them out"])  # fmt: skip
    described = done("describe", "words.csv", "--scale", "ordinal").stdout
    assert "Krippendorff's alpha, ordinal" in described
    assert "very low < low < medium < high < very high" in described
    found = json.loads(done("describe", "words.csv", "--scale", "ordinal", "--json").stdout)
    assert found["data"]["agreement"]["order"] == " < ".join(LEVELS)
    named = done("describe", "words.csv", "--scale", "nominal").stdout
    assert "Krippendorff's alpha, nominal" in named
    own = ["zilch", "bit", "some", "lots", "all of it"]
    refused(3, "agreement", "own.csv", "--scale", "ordinal",
            says=["all of it < bit < lots < some < zilch", "--classes"])  # fmt: skip
    found = alpha("own.csv", "--scale", "ordinal", "--classes", ",".join(own))
    assert found["order"] == own
    assert found["krippendorff_alpha"]["value"] == pytest.approx(
        right["krippendorff_alpha"]["value"], abs=1e-12
    )
    (grades / "classes.txt").write_text("\n".join(own))
    assert alpha("own.csv", "--scale", "ordinal", "--classes", "classes.txt") == found


@pytest.mark.filterwarnings("default")
def test_one_na_among_grades_is_to_be_named(grades):
    rows = (grades / "numbers.csv").read_text() + "t0,w9,N/A\n"
    (grades / "na.csv").write_text(rows)
    result = run("agreement", "na.csv", "--scale", "ordinal")
    assert result.exit_code == 3
    assert "'N/A' has no place in the order of the others (0 < 1 < 2 < 3 < 4)" in result.stderr
    assert "--abstain 'N/A'" in result.stderr
    assert alpha("na.csv", "--scale", "ordinal", "--abstain", "N/A")["order"] == list("01234")


@pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")
@pytest.mark.filterwarnings("default:column .* read as numbers")
@pytest.mark.parametrize("name", ["slider.csv", "scores.csv"])
def test_ratings_are_asked_about_or_read_as_numbers(grades, name):
    asks = ["which look like", "--scale nominal", "--scale ordinal", "--scale interval"]
    for command in ("describe", "agreement", "aggregate", "annotators"):
        if name == "scores.csv":
            refused(3, command, name, says=asks)
        elif command != "annotators":
            says = run(command, name).stderr
            assert "35 different whole numbers, 0 to 34, which look like ratings, and are" in says
            assert "--scale ordinal reads them as grades" in says
    for scale in ("ordinal", "interval"):
        done("describe", name, "--scale", scale)
        assert alpha(name, "--scale", scale)["order"]
    for command in (["aggregate", "--method", "dawid-skene"], ["annotators"], ["next"]):
        says = ["labels are numbers", "--scale nominal", "--scale ordinal"]
        refused(3, command[0], name, *command[1:], "--scale", "interval", says=says)
    done("aggregate", name, "--scale", "ordinal", "--method", "majority-vote")
    done("aggregate", name, "--scale", "nominal", "--method", "majority-vote")


def test_interval_agreement_takes_fractions(grades):
    scores, numbers = (alpha(n, "--scale", "interval") for n in ("scores.csv", "numbers.csv"))
    assert scores["order"] == ["0", "0.25", "0.5", "0.75", "1"]
    value = numbers["krippendorff_alpha"]["value"]
    assert scores["krippendorff_alpha"]["value"] == pytest.approx(value, abs=1e-12)
    words = run("agreement", "words.csv", "--scale", "interval")
    assert words.exit_code == 3
    assert "labels that are numbers, but one is 'very low'" in words.stderr


def test_free_text_is_refused_and_names_are_read_on(grades):
    write("names.csv", [(f"name {i}", f"name {i}", f"name {(i + 1) % 300}") for i in range(300)])
    for command in ("describe", "aggregate"):
        refused(3, command, "names.csv", says=["300 different texts", "--scale nominal"])
    assert "300" in done("describe", "names.csv", "--scale", "nominal").stdout
    done("agreement", "names.csv", "--scale", "nominal", "--resamples", "5")
    result = done("aggregate", "names.csv", "--scale", "nominal", "--method", "majority-vote",
                  "--out", "labels.csv")  # fmt: skip
    assert "name 0" in result.stdout


@pytest.mark.filterwarnings("default")
def test_a_hyphen_makes_no_class_of_its_own_unnoticed(grades):
    write("genres.csv", [("hiphop", "pop"), ("hip-hop", "hiphop"), ("pop", "pop")])
    warned = run("describe", "genres.csv")
    assert "'hiphop' (2), 'hip-hop' (1)" in " ".join(warned.stderr.split())
    (grades / "map.csv").write_text("from,to\nhip-hop,hiphop\n")
    found = done("describe", "genres.csv", "--map", "map.csv")
    assert "hyphens" not in found.stderr


@pytest.mark.filterwarnings("default")
def test_spellings_are_merged(grades):
    write("mixed.csv", [("Yes", "yes "), ("NO", "no"), ("Yes", "nope"), ("yes", "yes")])
    warned = run("describe", "mixed.csv")
    assert "--lowercase" in warned.stderr
    assert "--map FILE" in warned.stderr
    (grades / "map.csv").write_text("from,to\nnope,no\n")
    both = ["--lowercase", "--map", "map.csv"]
    found = done("describe", "mixed.csv", *both)
    assert "labels are read as another spelling" in found.stderr
    assert "differ only in case" not in found.stderr
    shown = json.loads(done("describe", "mixed.csv", *both, "--json").stdout)
    assert [row["name"] for row in shown["classes"]["rows"]] == ["no", "yes"]
    (grades / "gold.csv").write_text("task,label\nt0,YES\nt1,No\n")
    scored = done("aggregate", "mixed.csv", *both, "--gold", "gold.csv", "--json")
    assert json.loads(scored.stdout)["gold"]["accuracy"] == 1
    (grades / "bad.csv").write_text("a,b\nnope,no\n")
    refused(3, "describe", "mixed.csv", "--map", "bad.csv", says=["--map", "no column 'from'"])


@pytest.mark.filterwarnings("default")
def test_a_pass_that_matches_nothing_is_named(grades):
    assert "did you mean '0'?" in done("describe", "numbers.csv", "--abstain", "0.0").stderr
    none = done("describe", "words.csv", "--skip", "broken").stderr
    assert "no label of column 'label' is 'broken', which --skip names" in none
    assert "which" not in done("describe", "words.csv", "--skip", "low").stderr


@pytest.mark.parametrize(
    ("given", "says"),
    [("a,,b", "name 2 is blank"), ("a,b,a", "names 'a' again"), ("absent.txt", "cannot be read")],
)
def test_bad_lists_of_classes_are_refused(grades, given, says):
    refused(3, "describe", "words.csv", "--classes", given, says=["--classes", says])
