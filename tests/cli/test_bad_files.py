"""All files that a command cannot use are told in one error, those of the annotations first."""

from pathlib import Path

import pytest

from tests.cli.conftest import fit_arguments, refused

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (fit_arguments(annotations="a.csv", features="x.csv"), ["a.csv", "x.csv"]),
        (["aggregate", "a.csv", "--known", "k.csv"], ["a.csv", "k.csv"]),
        (["aggregate", "A.csv", "--gold", "g.csv", "--known", "k.csv"], ["g.csv", "k.csv"]),
        (["next", "a.csv", "--audit", "k.csv", "--features", "x.csv"], ["a.csv", "k.csv", "x.csv"]),
        (["review", "--map", "m.csv", "a.csv", "b.csv"], ["a.csv", "b.csv", "m.csv"]),
        (["predict", "model", "--features", "x.csv", "--gold", "g.csv"], ["x.csv", "g.csv"]),
    ],
)
def test_all_absent_files_are_named_at_once(arguments, absent, home):
    told = refused(3, *arguments).stderr
    assert told.startswith(f"error: {len(absent)} files cannot be used. (1) {absent[0]} does not")
    assert all(f"({k}) {name} does not exist" in told for k, name in enumerate(absent, 1)), told
    for name in absent:
        Path(name).write_text("")
    assert f"({len(absent)}) {absent[-1]} is empty" in refused(3, *arguments).stderr


def test_files_of_a_wrong_form_are_named_at_once(home):
    Path("bad.csv").write_text("one,two\n1.5,x\n2.5,y\n")
    own = ["--features", "X.npy", "--method", "aggregated", "--out", "m"]
    for words in (["aggregate", "header.csv"], ["fit", "--annotations", "header.csv", *own]):
        told = refused(3, *words, "--known", "bad.csv").stderr
        assert told.startswith("error: 2 files cannot be used. (1) header.csv")
        assert "(2) --known bad.csv: " in told
    told = refused(3, "fit", "--annotations", "header.csv", *own, "--gold", "absent.csv").stderr
    assert "(1) header.csv" in told
    assert "(2) absent.csv does not exist" in told


def test_one_bad_file_is_told_as_before(home):
    for words in (
        ["aggregate", "absent.csv"],
        fit_arguments(features="absent.csv"),
    ):
        assert refused(3, *words).stderr.startswith("error: absent.csv does not exist")
