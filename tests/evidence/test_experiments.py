"""The language of experiments' files: rows, names, merging, tables; mistakes by line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from sklearn.linear_model import LogisticRegression

from evidence import RowError, load_rows
from evidence.experiments.expansion import Expander, Scope, slug
from evidence.experiments.loading import load_experiments, load_paper, load_row
from evidence.experiments.nodes import read_yaml
from evidence.objects import find_object
from manyhands import AggregatedClassifier, CoNALClassifier, DawidSkene
from manyhands.exceptions import AnnotationError

DOCS = Path(__file__).parents[2] / "docs" / "evidence.md"


def expand(tmp_path, text):
    """Expand a text, all of whose names are in its own ``let``."""
    path = tmp_path / "text.yaml"
    path.write_text(text, encoding="utf-8")
    return Expander(path).expand(read_yaml(path), Scope({})).plain()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{let: {a: 3}, b: $a}", {"b": 3}),
        ("{let: {a: 3}, b: 'x${a}y $a.'}", {"b": "x3y 3."}),
        ("{let: {a: 0.5}, b: half $a}", {"b": "half 0.5"}),
        ("{let: {a: {b: {c: [1]}}}, d: $a.b.c}", {"d": [1]}),
        ("{let: {a: [1, 2]}, b: [0, $a, [3]]}", {"b": [0, 1, 2, [3]]}),
        ("{let: {a: []}, b: [$a]}", {"b": []}),
        ("{let: {a: null}, b: $a}", {"b": None}),
        ("{let: {a: Crowd Layer}, b: $a.slug}", {"b": "crowd_layer"}),
        # Merging: what is written beside it counts first, then the first that says it.
        ("{let: {a: {x: 1, y: 1}, b: {y: 2, z: 2}}, <<: [$a, $b], z: 3}", {"x": 1, "y": 1, "z": 3}),
        ("{let: {a: {x: 1}}, c: {<<: $a}}", {"c": {"x": 1}}),
        # A name is looked up where it is used.
        ("{let: {a: is $b}, c: {let: {b: 1}, d: $a}, e: {let: {b: 2}, d: $a}}",
         {"c": {"d": "is 1"}, "e": {"d": "is 2"}}),
        ("{let: {a: 1}, c: {let: {a: [$a, 2]}, d: $a}}", {"c": {"d": [1, 2]}}),
        # Repetition
        ("[{for: {a: [1, 2]}, b: $a}]", [{"b": 1}, {"b": 2}]),
        ("[{for: {a: [1, 2], b: [x, y]}, give: $a$b}]", ["1x", "1y", "2x", "2y"]),
        ("[{for: {a: [[1, 2], [3]], b: $a}, give: $b}]", [1, 2, 3]),
        ("[{for: {a: [1, 2]}, give: [$a, -1]}, 9]", [1, -1, 2, -1, 9]),
        ("[{for: {a: {The One: {n: 1}}}, give: '$a.label $a.slug $a.n'}]", ["The One the_one 1"]),
        ("[{for: {a: [{label: X-Y}, {label: X, slug: z}]}, give: $a.slug}]", ["x_y", "z"]),
        ("[{for: {a: [1]}, let: {b: b$a}, c: $b}]", [{"c": "b1"}]),
        ("[{for: {a: [{for: {b: [1, 2]}, n: $b}]}, give: $a.n}]", [1, 2]),
        ("{price: '5 $', other: 1e-3}", {"price": "5 $", "other": 0.001}),
    ],
)  # fmt: skip
def test_what_is_written_short_stands_for(tmp_path, text, found):
    assert expand(tmp_path, text) == found


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: $c", 2, r"\$c stands for nothing here; name it in let"),
        ("let: {colour: 1}\nb: $color", 2, r"did you mean colour\?"),
        ("let: {a: {beta: 1}}\nb: $a.bet", 2, r"\$a.bet: no 'bet' \(did you mean beta\?\)"),
        ("let: {a: [1]}\nb: x $a", 2, "is no text or number"),
        ("let: {a: true}\nb: x $a", 2, "is no text or number"),
        ("let: {a: 1}\n<<: $a", 2, "is not a mapping"),
        ("- {for: {a: 3},\n   b: $a}", 1, "give it a list or a mapping"),
        ("let:\n  a: $b.c\n  b: {c: $a.d}\nd: $b.c", 3, "'\\$a.d' stands for itself"),
        ("let: {b: {c: x $b.c}}\nd: $b.c", 1, "'x \\$b.c' stands for itself"),
        ("let: {b: $c, c: $b}\nd: $b", 1, "stands for itself"),
    ],
)
def test_a_mistake_has_its_line(tmp_path, text, line, says):
    with pytest.raises(RowError, match=says) as caught:
        expand(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'text.yaml'}:{line}: ")


def test_slugs_are_parts_of_ids():
    assert slug("CB Focal+Self-C") == "cb_focal_self_c"
    assert slug("log(1 - D)") == "log_1_d"


PAPER = """\
title: A paper
citation: A. Author. 2021.
let:
  epochs: {max_epochs: $n}
tables:
- id: t1
  title: Table 1
  base:
    id: ${folder}/p_${key}_$slug
    data: {name: $key}
    estimator: {class: $class, params: {<<: [$own, $epochs]}}
    own: {}
    seeds: [0, 1]
    extra: [auc]
    deviations: [$of_set, $of_row]
    of_row: []
  columns:
    LabelMe: {key: labelme, n: 3, of_set: features}
    Music: {key: music, n: 4, of_set: [no images, songs]}
  rows:
    DL-MV: {folder: aggregated, class: AggregatedClassifier}
    CoNAL: {folder: conal, class: CoNALClassifier, own: {gap_weight: 1e-5}, of_row: [ours]}
  cells:
    DL-MV: {Music: null}
    CoNAL: {Music: {own: {gap_weight: 0.1}}}
  printed:
    metric: accuracy
    percent: true
    n: 5
    figures:
      CoNAL: [87.12 ± 0.55, "-"]
figures:
- id: f1
  kind: lines
  title: Figure 1
  x: estimator.params.max_epochs
  x_label: epochs
  base:
    id: conal/p_$n
    data: {name: demo}
    estimator: {class: CoNALClassifier, params: $epochs}
    seeds: [0]
  columns: {Demo: {}}
  rows: {CoNAL: {}}
  points: [{n: 5}, {n: 6}]
rows:
- for: {set: [labelme, music]}
  id: aggregated/p_${set}_gold
  label: gold
  table: t1
  column: All
  data: {factory: labelled_by_gold, of: {name: $set}}
  estimator: {class: AggregatedClassifier}
  seeds: [0]
claims:
- for: {set: [labelme, music]}
  id: better-$set
  text: It helps on $set.
  origin: paper
  test: {kind: paired, better: "conal/p_${set}_conal", than: "aggregated/p_${set}_gold"}
"""


@pytest.fixture
def write(tmp_path):
    def write(text=PAPER, name="p.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_paper_with_its_rows(write, tmp_path):
    path = write()
    rows, papers = load_experiments(tmp_path)
    assert [row.id for row in rows] == [
        "aggregated/p_labelme_dl_mv",
        "aggregated/p_labelme_gold",
        "aggregated/p_music_gold",
        "conal/p_5",
        "conal/p_6",
        "conal/p_labelme_conal",
        "conal/p_music_conal",
    ]
    found = {row.id: row for row in rows}
    row = found["conal/p_labelme_conal"]
    assert (row.label, row.table, row.column) == ("CoNAL", "p/t1", "LabelMe")
    assert (row.citation, row.paper, row.folder) == ("A. Author. 2021.", "p", tmp_path)
    assert row.data == {"name": "labelme"}
    params = {"gap_weight": 1e-5, "max_epochs": 3}
    assert row.estimator == {"class": "CoNALClassifier", "params": params}
    assert row.extra == ("auc",)
    assert row.deviations == ("features", "ours")
    assert row.published == {"metric": "accuracy", "value": 0.8712, "sd": 0.0055, "n": 5}
    other = found["conal/p_music_conal"]
    assert other.estimator["params"] == {"gap_weight": 0.1, "max_epochs": 4}
    assert other.deviations == ("no images", "songs", "ours")
    assert other.published is None
    gold = found["aggregated/p_music_gold"]
    assert gold.data["factory"] == "labelled_by_gold"
    assert (found["conal/p_6"].table, found["conal/p_6"].seeds) == ("p/f1", (0,))
    (table,), (figure,) = papers["p"].tables, papers["p"].figures
    assert (table.columns, table.rows) == (("LabelMe", "Music"), ("DL-MV", "CoNAL"))
    assert figure.place(found["conal/p_6"]) == 6
    assert [claim.id for claim in papers["p"].claims] == ["better-labelme", "better-music"]
    assert load_paper(path) == papers["p"]


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        # A value is wrong where it is written, and the message says of which row.
        ("n: 4", "n: 0", 19, r"'max_epochs' parameter .* \(row conal/p_music_conal\)"),
        ("gap_weight: 0.1", "gap: 0.1", 25, r"no 'gap'.*\(row conal/p_music_conal\)"),
        ("key: music", "key: musik", 19, "no data set 'musik'"),
        ("seeds: [0, 1]", "seed: [0, 1]", 13, r"nothing uses 'seed' \(did you mean seeds\?\)"),
        ("    seeds: [0, 1]\n", "", 20, "lacks 'seeds'"),
        ("{max_epochs: $n}", "{max_epochs: $m}", 4, r"\$m stands for nothing"),
        ("epochs: {max_epochs: $n}", "epochs: {max_epochs: $n}\n  b: 1", 5, "nothing uses 'b'"),
        ("DL-MV: {Music: null}", "DL-MF: {Music: null}", 24, "no row 'DL-MF' in a column 'Music'"),
        ("[87.12 ± 0.55, \"-\"]", "[87.12 ± 0.55]", 31, "are not 2 figures"),
        ("87.12 ± 0.55", "87.12 +- 0.55", 31, "is no figure"),
        ("87.12 ± 0.55", "8712", 31, "value holds 87.12"),
        ("percent: true", "per_cent: true", 28, "did you mean percent"),
        ("metric: accuracy", "metric: [accuracy, auc]", 31, "is not a figure of each"),
        ("id: conal/p_$n", "id: conal/p", 39, r"the id 'conal/p' is taken"),
        ("table: t1", "table: t2", 50, "no table or figure 't2'"),
        ("points: [{n: 5}, {n: 6}]", "points: {n: 5}", 45, "write a list of mappings"),
        ("title: A paper", "titel: A paper", 1, r"a paper has no 'titel' \(did you mean title"),
        ("rows:\n- for", "rows: x\nlet2:\n- for", 46, "not a list of mappings"),
        ("  points: [{n", "  sheet: f2\n  points: [{n", 45, "no sheet 'f2'; it has none"),
        ("claims:", "instead_of_auto: {scalng: rms}\nclaims:", 55, "has a parameter 'scalng'"),
        ("claims:", "instead_of_auto: [rms]\nclaims:", 55, "mapping"),
        ("claims:", "sheets: {f2: Two}\nclaims:", 55, "no figure has sheet: f2"),
        ("claims:", "sheets: {f1: One}\nclaims:", 55, "the sheet 'f1' is taken"),
        ("claims:", "sheets: [f2]\nclaims:", 55, "write id: title"),
        ("music]}\n  id: better", "demo]}\n  id: better", 60, "no row 'conal/p_demo_conal'"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_paper_has_its_line(write, tmp_path, old, new, line, says):
    assert old in PAPER
    path = write(PAPER.replace(old, new, 1))
    with pytest.raises(RowError, match=says) as caught:
        load_experiments(tmp_path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_automatic_defaults_are_replaced_by_what_rows_ran_with(write, tmp_path):
    more = """\
- id: self_training/p_nested
  label: nested
  table: t1
  column: All
  data: {name: demo}
  estimator:
    class: DASCClassifier
    params: {estimator: {class: RaykarClassifier}, annotator: {class: CoNALClassifier}}
  seeds: [0]
instead_of_auto: {scaling: rms, max_epochs: 7}
claims:"""
    write(PAPER.replace("claims:", more, 1))
    found = {row.id: row.estimator["params"] for row in load_experiments(tmp_path)[0]}
    params = {"gap_weight": 1e-5, "max_epochs": 3, "scaling": "rms"}
    assert found["conal/p_labelme_conal"] == params
    assert found["aggregated/p_music_gold"] == {"max_epochs": 7, "scaling": "rms"}
    inner = found["self_training/p_nested"]
    # The number of Raykar's iterations is not automatic.
    assert inner["estimator"]["params"] == {"scaling": "rms"}
    assert inner["annotator"]["params"] == {"max_epochs": 7, "scaling": "rms"}
    assert set(inner) == {"estimator", "annotator"}


ROW = """\
label: Mine
citation: nobody
data: {name: labelme}
estimator: {class: CoNALClassifier, params: {max_epochs: $n}}
seeds: [0]
let: {n: 3}
"""


def test_a_file_of_one_row(write, tmp_path):
    row = load_row(write(ROW, "conal/mine.yaml"))
    assert (row.id, row.paper) == ("conal/mine", "mine")
    assert row.estimator["params"] == {"max_epochs": 3}
    assert load_row(write(f"id: conal/ours\n{ROW}", "conal/mine.yaml")).id == "conal/ours"
    with pytest.raises(RowError, match="this file has 7 rows"):
        load_row(write())
    with pytest.raises(RowError, match="this file is a row's"):
        load_paper(write(ROW, "conal/mine.yaml"))
    with pytest.raises(RowError, match="write method/name"):
        load_row(write(f"id: ours\n{ROW}", "conal/mine.yaml"))
    # It may stand in a paper's table.
    write(f"table: p/t1\ncolumn: LabelMe\n{ROW}", "conal/mine.yaml")
    assert "conal/mine" in [row.id for row in load_experiments(tmp_path)[0]]
    write(f"id: conal/p_5\n{ROW}", "conal/mine.yaml")
    with pytest.raises(RowError, match=r"mine.yaml:1: the id 'conal/p_5' is taken in .*p.yaml"):
        load_experiments(tmp_path)


@pytest.mark.skipif(not DOCS.exists(), reason="pages come with the checkout only")
def test_examples_of_the_page_are_experiments(write, tmp_path):
    one_row, paper = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)[
        :2
    ]
    write(one_row, "conal/mine.yaml")
    write(paper, "paper.yaml")
    rows, papers = load_experiments(tmp_path)
    assert [row.id for row in rows] == [
        "conal/mine",
        "conal/paper_labelme_conal",
        "conal/paper_music_conal",
        "crowd_layer/paper_labelme_crowd_layer",
        "crowd_layer/paper_music_crowd_layer",
    ]
    assert [row.published["value"] for row in rows[1:]] == [0.8712, 0.8406, 0.8327, 0.8146]
    assert len(papers["paper"].claims) == 2


# -- rows: what is read, and that every mistake is refused with its line --------------------------


CONAL_ROW = """\
label: CoNAL
citation: "Z. Chu, J. Ma, H. Wang. AAAI 2021."
table: chu2021/table1
column: Demo
data: {name: demo, random_state: 1}
estimator:
  class: CoNALClassifier
  params:
    max_epochs: 2
    gap_weight: 1e-5
    backbone: {name: mlp, hidden: [16]}
seeds: [0, 1]
holdout: 0.1
published: {metric: accuracy, value: 0.8712, sd: 0.0055, n: 5, selection: gold validation}
deviations:
  - "Pooled features: only these are public."
"""


@pytest.fixture
def write_row(tmp_path):
    def write_row(text, name="conal/chu2021_demo.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write_row


def test_a_row_as_it_is_written(write_row):
    row = load_row(write_row(CONAL_ROW))
    assert row.id == "conal/chu2021_demo"
    assert (row.label, row.table, row.column) == ("CoNAL", "chu2021/table1", "Demo")
    assert row.data == {"name": "demo", "random_state": 1}
    assert row.estimator["params"]["gap_weight"] == 1e-5
    assert (row.seeds, row.holdout, row.device) == ((0, 1), 0.1, "cpu")
    assert row.published["value"] == 0.8712
    assert len(row.deviations) == 1


def test_the_estimator_has_the_parameters_the_seed_and_the_device(write_row):
    model = load_row(write_row(CONAL_ROW)).make_estimator(7)
    assert type(model) is CoNALClassifier
    assert (model.max_epochs, model.gap_weight, model.random_state) == (2, 1e-5, 7)
    assert (model.backbone, model.device) == ({"name": "mlp", "hidden": [16]}, "cpu")
    on_gpu = load_row(write_row(CONAL_ROW + "device: gpu\n"))
    assert on_gpu.make_estimator(7).device == "cuda"


NESTED = """\
label: DL-DS
citation: "Somebody 2000."
data: {name: demo}
estimator:
  class: AggregatedClassifier
  params:
    aggregator: {class: DawidSkene, params: {max_iter: 7}}
    backbone: {class: "sklearn.linear_model:LogisticRegression"}
seeds: [0]
"""


def test_objects_within_parameters_are_made(write_row):
    row = load_row(write_row(NESTED))
    model = row.make_estimator(0)
    assert type(model) is AggregatedClassifier
    assert type(model.aggregator) is DawidSkene
    assert model.aggregator.max_iter == 7
    assert type(model.backbone) is LogisticRegression
    assert row.classes == [
        "AggregatedClassifier",
        "DawidSkene",
        "sklearn.linear_model:LogisticRegression",
    ]
    assert (row.table, row.holdout, row.published, row.deviations) == (None, None, None, ())


def test_the_key_is_of_what_decides_the_result(write_row):
    row = load_row(write_row(CONAL_ROW))
    for change in (
        ("label: CoNAL", "label: Ours"),
        ("value: 0.8712", "value: 0.9"),
        ("seeds: [0, 1]", "seeds: [2]"),
        ("AAAI 2021", "AAAI 2022"),
        ("gap_weight: 1e-5", "gap_weight: 0.00001"),
    ):
        assert load_row(write_row(CONAL_ROW.replace(*change))).key == row.key
    for change in (
        ("gap_weight: 1e-5", "gap_weight: 2e-5"),
        ("random_state: 1", "random_state: 2"),
        ("holdout: 0.1", "holdout: 0.2"),
        ("hidden: [16]", "hidden: [17]"),
        ("seeds:", "device: gpu\nseeds:"),
        ("seeds:", "watch: [train]\nseeds:"),
    ):
        assert load_row(write_row(CONAL_ROW.replace(*change))).key != row.key
    # Records made before rows had it are still theirs.
    assert "watch" not in row.specification()
    assert load_row(write_row(CONAL_ROW + "watch: []\n")).key == row.key


# A change of the row, the line of the mistake, and what is said of it.
WRONG = {
    "no citation": ('citation: "Z. Chu, J. Ma, H. Wang. AAAI 2021."\n', "", 1, "lacks 'citation'"),
    "empty citation": ('"Z. Chu, J. Ma, H. Wang. AAAI 2021."', '" "', 2, "citation"),
    "null citation": ('"Z. Chu, J. Ma, H. Wang. AAAI 2021."', "", 2, "lacks 'citation'"),
    "unknown key": ("seeds:", "seed:", 12, r"'seed' \(did you mean seeds\?\)"),
    "unknown data": ("name: demo,", "name: demos,", 5, r"'demos' \(did you mean demo\?\)"),
    "unknown option": ("random_state: 1", "seed: 1", 5, "load_demo has no 'seed'"),
    "seed of the data": ("random_state: 1", "random_state: sed", 5, "an integer, or seed"),
    "no data": ("{name: demo, random_state: 1}", "{}", 5, "give one of name, factory, folder"),
    "two data": ("random_state: 1", "folder: x", 5, "give one of name, factory, folder"),
    "no folder": ("{name: demo, random_state: 1}", "{folder: x}", 5, "there is no .*features.npz"),
    "unknown class": ("CoNALClassifier", "CoNAL", 7, r"manyhands has no 'CoNAL'"),
    "no classifier": ("CoNALClassifier", "DawidSkene", 7, "DawidSkene is not a classifier"),
    "no class": ("CoNALClassifier", "safe_instances", 7, "safe_instances is not a classifier"),
    "unknown parameter": ("max_epochs:", "epochs:", 9, "'epochs'.*did you mean max_epochs"),
    "value of a parameter": ("max_epochs: 2", "max_epochs: 0", 9, "'max_epochs' parameter"),
    "type of a parameter": ("gap_weight: 1e-5", "gap_weight: few", 10, "'gap_weight' parameter"),
    "unknown backbone": ("{name: mlp,", "{name: mpl,", 11, r"did you mean mlp"),
    "backbone's argument": ("hidden: [16]", "units: [16]", 11, "the backbone mlp has no 'units'"),
    "seed is set": ("max_epochs: 2", "random_state: 2", 9, "the seeds of the row are used"),
    "validation is set": ("max_epochs: 2", "validation: 0.1", 9, "write holdout"),
    "monitor is set": ("max_epochs: 2", "monitor: agreement", 9, "with holdout, the likelihood"),
    "no seeds": ("[0, 1]", "[]", 12, "at least one"),
    "seeds no list": ("[0, 1]", "3", 12, "write a list"),
    "seed twice": ("[0, 1]", "[1, 1]", 12, "each once"),
    "seed no integer": ("[0, 1]", "[0, 0.5]", 12, "seeds holds 0.5"),
    "seed a truth value": ("[0, 1]", "[true]", 12, "seeds holds True"),
    "holdout": ("holdout: 0.1", "holdout: 1", 13, "holdout is 1"),
    "device": ("holdout: 0.1", "device: tpu", 13, "cpu or gpu"),
    "published another share above 1": (
        "{metric: accuracy, value: 0.8712",
        "{metric: balanced_accuracy, value: 87.12",
        14,
        "value holds 87.12",
    ),
    "published misspelt": ("metric: accuracy", "metric: acuracy", 14, "did you mean accuracy"),
    "published above 1": ("value: 0.8712", "value: 87.12", 14, "value holds 87.12"),
    "published key": ("value: 0.8712", "val: 0.8712", 14, "'val'"),
    "published n": ("n: 5", "n: 0", 14, "n holds 0"),
    "table without column": ("column: Demo\n", "", 3, "give both"),
    "table of no paper": ("chu2021/table1", "a/b/c", 3, "paper/table"),
    "deviation": ('"Pooled features: only these are public."', "3", 16, "deviations holds 3"),
    "measure": ("holdout: 0.1", 'extra: ["json:dump_all"]', 13, "no 'dump_all'"),
    "watch": ("holdout: 0.1", "watch: [test]", 13, "watch holds 'test'; write train"),
    "watch no list": ("holdout: 0.1", "watch: train", 13, "write a list"),
    "measure of no module": ("holdout: 0.1", 'extra: ["jsonn:dumps"]', 13, "cannot be imported"),
    "key twice": ("holdout: 0.1", "label: again", 13, "stands in line 1 too"),
    "no YAML": ("holdout: 0.1", "holdout: [0.1", 14, "not YAML"),
    "a date": ("label: CoNAL", "label: 2021-01-01", 1, "date; quote it"),
    "not finite": ("holdout: 0.1", "holdout: .nan", 13, "not finite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_refused_with_its_line(write_row, case):
    old, new, line, message = WRONG[case]
    assert old in CONAL_ROW
    path = write_row(CONAL_ROW.replace(old, new, 1))
    with pytest.raises(RowError, match=message) as caught:
        load_row(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_several_printed_figures_are_told_apart_by_their_measure(write_row):
    one = (
        "published: {metric: accuracy, value: 0.8712, sd: 0.0055, n: 5, selection: gold validation}"
    )
    assert one in CONAL_ROW
    row = load_row(write_row(CONAL_ROW))
    assert row.published_of("accuracy") == row.published
    assert row.published_of("macro_f1") is None
    several = """\
published:
- {metric: accuracy, value: 0.8}
- {metric: balanced_macro_f1, value: 0.7}"""
    row = load_row(write_row(CONAL_ROW.replace(one, several)))
    assert [row.published_of(name)["value"] for name in ("accuracy", "balanced_macro_f1")] == [
        0.8,
        0.7,
    ]
    assert row.published_of("macro_f1") is None
    for old, new, line, message in (
        ("balanced_macro_f1", "accuracy", 16, "published has 'accuracy' twice"),
        ("value: 0.7", "value: 7", 16, "value holds 7"),
        ("value: 0.7", "sd: 0.1", 16, "lacks 'value'"),
        ("\n- {metric: accuracy, value: 0.8}", "\n- 3", 15, "write keys and values"),
    ):
        path = write_row(CONAL_ROW.replace(one, several.replace(old, new)))
        with pytest.raises(RowError, match=message) as caught:
            load_row(path)
        assert str(caught.value).startswith(f"{path}:{line}: ")
    with pytest.raises(RowError, match="published is empty"):
        load_row(write_row(CONAL_ROW.replace(one, "published: []")))


def test_a_mistake_within_an_object_has_its_line(write_row):
    path = write_row(NESTED.replace("max_iter: 7", "max_iter: -7"))
    with pytest.raises(RowError, match=r":7: .*'max_iter' parameter of DawidSkene"):
        load_row(path)
    path = write_row(NESTED.replace("max_iter: 7", "max_iters: 7"))
    with pytest.raises(RowError, match=r":7: .*did you mean max_iter"):
        load_row(path)


@pytest.mark.parametrize("text", ["", "- 1\n", "text\n"])
def test_what_is_no_mapping_is_refused(write_row, text):
    with pytest.raises(RowError, match=r"\.yaml:1: a row is"):
        load_row(write_row(text))


def test_rows_of_a_folder_by_id_without_the_papers(write_row, tmp_path):
    write_row(CONAL_ROW, "conal/b.yaml")
    write_row(NESTED, "aggregated/c.yaml")
    write_row("title: no row\n", "chu2021.yaml")
    assert [row.id for row in load_rows(tmp_path)] == ["aggregated/c", "conal/b"]
    with pytest.raises(AnnotationError, match="is not a folder"):
        load_rows(tmp_path / "nowhere")


OWN = """\
class Constant:
    def __init__(self, label=0):
        self.label = label

    def fit(self, X, y):
        return self

    def predict(self, X):
        import numpy as np

        return np.full(len(X), self.label)

def make(size):
    return None
"""


def test_classes_and_data_of_a_module_in_the_rows_folder(write_row, monkeypatch):
    write_row(OWN, "mine/my_own_method.py")
    text = (
        NESTED.split("estimator")[0].replace("{name: demo}", "{factory: 'my_own_method:make'}")
        + "estimator: {class: 'my_own_method:Constant', params: {label: 3}}\nseeds: [0]\n"
    )
    monkeypatch.delitem(sys.modules, "my_own_method", raising=False)
    before = list(sys.path)
    path = write_row(text, "mine/row.yaml")
    with pytest.raises(RowError, match=r":3: make needs 'size'"):
        load_row(path)
    path.write_text(text.replace("make'", "make', size: 2"))
    assert load_row(path).make_estimator(0).label == 3
    assert sys.path == before


def test_data_may_be_made_anew_with_every_seed(write_row):
    row = load_row(write_row(CONAL_ROW.replace("random_state: 1", "random_state: seed")))
    assert row.data_of(7) == {**row.data, "random_state": 7}
    assert row.specification()["data"]["random_state"] == "seed"
    same = load_row(write_row(CONAL_ROW))
    assert same.data_of(7) == same.data


def test_modules_of_one_name_in_two_folders_are_two(write_row, monkeypatch):
    monkeypatch.delitem(sys.modules, "my_own_method", raising=False)
    text = NESTED.split("estimator")[0] + (
        "estimator: {class: 'my_own_method:Constant', params: {label: 3}}\nseeds: [0]\n"
    )
    rows = []
    for name in ("first", "second"):
        write_row(f"NAME = '{name}'\n" + OWN, f"{name}/my_own_method.py")
        rows.append(load_row(write_row(text, f"{name}/row.yaml")))
    for row, name in [*zip(rows, ("first", "second"), strict=True)] * 2:
        model = row.make_estimator(0)
        assert type(model).fit.__globals__["NAME"] == name


def test_an_installed_module_is_not_hidden_by_one_of_a_folder(write_row):
    write_row(OWN, "mine/json.py")
    with pytest.raises(AnnotationError, match=r"'json' is that of .*, not .*json.py; rename"):
        find_object("json:dumps", write_row(OWN, "mine/other.py").parent)


def test_names_that_lead_nowhere():
    with pytest.raises(AnnotationError, match=r"did you mean DawidSkene"):
        find_object("DavidSkene")
    with pytest.raises(AnnotationError, match="has no 'fsum2'"):
        find_object("math:fsum2")
