"""Rows: what is read, and that every mistake is refused with its line."""

import sys

import pytest
from sklearn.linear_model import LogisticRegression

from manyhands import AggregatedClassifier, CoNALClassifier, DawidSkene
from manyhands.evidence import RowError, load_row, load_rows
from manyhands.evidence.objects import find_object
from manyhands.evidence.running.code import code_hash
from manyhands.exceptions import AnnotationError, MissingExtraError

ROW = """\
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
def write(tmp_path):
    def write(text, name="conal/chu2021_demo.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_a_row_as_it_is_written(write):
    row = load_row(write(ROW))
    assert row.id == "conal/chu2021_demo"
    assert (row.label, row.table, row.column) == ("CoNAL", "chu2021/table1", "Demo")
    assert row.data == {"name": "demo", "random_state": 1}
    assert row.estimator["params"]["gap_weight"] == 1e-5
    assert (row.seeds, row.holdout, row.device) == ((0, 1), 0.1, "cpu")
    assert row.published["value"] == 0.8712
    assert len(row.deviations) == 1


def test_the_estimator_has_the_parameters_the_seed_and_the_device(write):
    model = load_row(write(ROW)).make_estimator(7)
    assert type(model) is CoNALClassifier
    assert (model.max_epochs, model.gap_weight, model.random_state) == (2, 1e-5, 7)
    assert (model.backbone, model.device) == ({"name": "mlp", "hidden": [16]}, "cpu")
    on_gpu = load_row(write(ROW + "device: gpu\n"))
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


def test_objects_within_parameters_are_made(write):
    row = load_row(write(NESTED))
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


def test_the_key_is_of_what_decides_the_result(write):
    row = load_row(write(ROW))
    for change in (
        ("label: CoNAL", "label: Ours"),
        ("value: 0.8712", "value: 0.9"),
        ("seeds: [0, 1]", "seeds: [2]"),
        ("AAAI 2021", "AAAI 2022"),
        ("gap_weight: 1e-5", "gap_weight: 0.00001"),
    ):
        assert load_row(write(ROW.replace(*change))).key == row.key
    for change in (
        ("gap_weight: 1e-5", "gap_weight: 2e-5"),
        ("random_state: 1", "random_state: 2"),
        ("holdout: 0.1", "holdout: 0.2"),
        ("hidden: [16]", "hidden: [17]"),
        ("seeds:", "device: gpu\nseeds:"),
        ("seeds:", "watch: [train]\nseeds:"),
    ):
        assert load_row(write(ROW.replace(*change))).key != row.key
    # Records made before rows had it are still theirs.
    assert "watch" not in row.specification()
    assert load_row(write(ROW + "watch: []\n")).key == row.key


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
def test_a_mistake_is_refused_with_its_line(write, case):
    old, new, line, message = WRONG[case]
    assert old in ROW
    path = write(ROW.replace(old, new, 1))
    with pytest.raises(RowError, match=message) as caught:
        load_row(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


def test_several_printed_figures_are_told_apart_by_their_measure(write):
    one = (
        "published: {metric: accuracy, value: 0.8712, sd: 0.0055, n: 5, selection: gold validation}"
    )
    assert one in ROW
    row = load_row(write(ROW))
    assert row.published_of("accuracy") == row.published
    assert row.published_of("macro_f1") is None
    several = """\
published:
- {metric: accuracy, value: 0.8}
- {metric: balanced_macro_f1, value: 0.7}"""
    row = load_row(write(ROW.replace(one, several)))
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
        path = write(ROW.replace(one, several.replace(old, new)))
        with pytest.raises(RowError, match=message) as caught:
            load_row(path)
        assert str(caught.value).startswith(f"{path}:{line}: ")
    with pytest.raises(RowError, match="published is empty"):
        load_row(write(ROW.replace(one, "published: []")))


def test_a_mistake_within_an_object_has_its_line(write):
    path = write(NESTED.replace("max_iter: 7", "max_iter: -7"))
    with pytest.raises(RowError, match=r":7: .*'max_iter' parameter of DawidSkene"):
        load_row(path)
    path = write(NESTED.replace("max_iter: 7", "max_iters: 7"))
    with pytest.raises(RowError, match=r":7: .*did you mean max_iter"):
        load_row(path)


@pytest.mark.parametrize("text", ["", "- 1\n", "text\n"])
def test_what_is_no_mapping_is_refused(write, text):
    with pytest.raises(RowError, match=r"\.yaml:1: a row is"):
        load_row(write(text))


def test_rows_of_a_folder_by_id_without_the_papers(write, tmp_path):
    write(ROW, "conal/b.yaml")
    write(NESTED, "aggregated/c.yaml")
    write("title: no row\n", "chu2021.yaml")
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


def test_classes_and_data_of_a_module_in_the_rows_folder(write, monkeypatch):
    write(OWN, "mine/my_own_method.py")
    text = (
        NESTED.split("estimator")[0].replace("{name: demo}", "{factory: 'my_own_method:make'}")
        + "estimator: {class: 'my_own_method:Constant', params: {label: 3}}\nseeds: [0]\n"
    )
    monkeypatch.delitem(sys.modules, "my_own_method", raising=False)
    before = list(sys.path)
    path = write(text, "mine/row.yaml")
    with pytest.raises(RowError, match=r":3: make needs 'size'"):
        load_row(path)
    path.write_text(text.replace("make'", "make', size: 2"))
    assert load_row(path).make_estimator(0).label == 3
    assert sys.path == before


def test_data_may_be_made_anew_with_every_seed(write):
    row = load_row(write(ROW.replace("random_state: 1", "random_state: seed")))
    assert row.data_of(7) == {**row.data, "random_state": 7}
    assert row.specification()["data"]["random_state"] == "seed"
    same = load_row(write(ROW))
    assert same.data_of(7) == same.data


def test_modules_of_one_name_in_two_folders_are_two(write, monkeypatch):
    monkeypatch.delitem(sys.modules, "my_own_method", raising=False)
    text = NESTED.split("estimator")[0] + (
        "estimator: {class: 'my_own_method:Constant', params: {label: 3}}\nseeds: [0]\n"
    )
    rows = []
    for name in ("first", "second"):
        write(f"NAME = '{name}'\n" + OWN, f"{name}/my_own_method.py")
        rows.append(load_row(write(text, f"{name}/row.yaml")))
    hashes = []
    for row, name in [*zip(rows, ("first", "second"), strict=True)] * 2:
        model = row.make_estimator(0)
        assert type(model).fit.__globals__["NAME"] == name
        hashes.append(code_hash(row))
    assert hashes[:2] == hashes[2:]
    assert hashes[0] != hashes[1]


def test_an_installed_module_is_not_hidden_by_one_of_a_folder(write):
    write(OWN, "mine/json.py")
    with pytest.raises(AnnotationError, match=r"'json' is that of .*, not .*json.py; rename"):
        find_object("json:dumps", write(OWN, "mine/other.py").parent)


def test_names_that_lead_nowhere():
    with pytest.raises(AnnotationError, match=r"did you mean DawidSkene"):
        find_object("DavidSkene")
    with pytest.raises(AnnotationError, match="has no 'fsum2'"):
        find_object("math:fsum2")


def test_without_yaml_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'manyhands\[cli\]'"):
        load_row("any.yaml")
