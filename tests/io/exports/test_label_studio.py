"""Exports of Label Studio."""

import numpy as np
import pytest

from manyhands.exceptions import AnnotationError
from manyhands.inference.families import family_weights
from manyhands.io import read_annotations, read_export
from tests.io.exports.conftest import cells, made, reasons, studio, write


def test_label_studio_skips_are_passes_and_unlabelled_is_left_out(tmp_path):
    task = studio(made(1, "good"), made(2, was_cancelled=True), made(3))
    export = read_export(write(tmp_path / "a.json", [task]))
    assert export.annotations.skips.tolist() == [[0, 1]]
    assert export.annotations.annotators.tolist() == [1, 2]
    assert reasons(export) == {"no answer was given": 1}
    with pytest.warns(UserWarning, match=r"left out: 1: no answer.*item 1 \(task 1\), annot.* 3"):
        read_annotations(tmp_path / "a.json")


def test_of_several_annotations_by_one_annotator_the_last_by_time_counts(tmp_path):
    late = made(1, "bad", updated_at="2024-05-02T00:00:00Z")
    early = made(1, "good", updated_at="2024-05-01T00:00:00+00:00")
    path = write(tmp_path / "a.json", [studio(late, early, made(2, "good"))])
    export = read_export(path)
    assert cells(export.annotations) == {("1", "1"): "bad", ("1", "2"): "good"}
    assert export.left_out[0].where == ("item 1 (task 1), annotation 2",)
    assert read_export(path, duplicates="keep").annotations.n_annotations == 3
    with pytest.raises(AnnotationError, match=r"1 .* pairs are repeated"):
        read_export(path, duplicates="error")


def test_several_questions_are_listed(tmp_path):
    task = studio(made(1, "good"), made(1, "long", question="size"))
    path = write(tmp_path / "a.json", [task])
    with pytest.raises(AnnotationError, match=r"2 questions.*'mood' \('good': 1\); 'size'"):
        read_annotations(path)
    assert read_annotations(path, question="size").classes.tolist() == ["long"]
    with pytest.raises(AnnotationError, match=r"question='colour' is not among.*'mood'"):
        read_annotations(path, question="colour")


def test_rejected_work_is_kept_and_counted_unless_it_is_dropped(tmp_path):
    rejected = made({"id": 3, "email": "c@x.org"}, "bad", reviews=[{"accepted": False}])
    path = write(tmp_path / "a.json", [studio(made(1, "good"), rejected)])
    export = read_export(path)
    assert export.annotations.annotators.tolist() == ["1", "c@x.org"]
    assert any("1 answers were rejected" in note for note in export.notes)
    dropped = read_export(path, drop_rejected=True)
    assert dropped.annotations.n_annotations == 1
    assert reasons(dropped) == {"the work was rejected": 1}


def test_several_labels_in_an_answer(tmp_path):
    path = write(tmp_path / "a.json", [studio(made(1, "b", "a"), made(2, "a"))])
    with pytest.raises(AnnotationError, match="1 of 2 answers hold several labels"):
        read_annotations(path)
    joined = read_annotations(path, multilabel="join")
    assert cells(joined) == {("1", "1"): "a + b", ("1", "2"): "a"}
    split = read_export(path, multilabel="split")
    assert cells(split.tables["b"]) == {("1", "1"): "yes", ("1", "2"): "no"}
    with pytest.raises(AnnotationError, match=r"one of \.tables"):
        _ = split.annotations
    with pytest.raises(AnnotationError, match="split"):
        read_annotations(path, multilabel="split")


def test_predictions_are_annotators_only_if_asked(tmp_path):
    task = studio(made(1, "good"))
    task["predictions"] = [{"model_version": "m1", **made(0, "bad")}, 7]
    path = write(tmp_path / "a.json", [task])
    assert read_export(path).annotations.n_annotators == 1
    export = read_export(path, predictions_as_annotators=True)
    assert export.annotations.annotators.tolist() == ["1", "model:m1"]
    assert reasons(export) == {"the export holds only the number of the prediction": 1}


def test_predictions_are_declared_as_one_family(tmp_path):
    tasks = [studio(made(1, "good"), made(2, "bad"), number=n) for n in (1, 2)]
    for task in tasks:
        task["predictions"] = [{"model_version": m, **made(0, "bad")} for m in ("m1", "m2")]
    path = write(tmp_path / "a.json", tasks)
    assert read_annotations(path).groups is None
    table = read_annotations(path, predictions_as_annotators=True)
    assert table.annotators.tolist() == ["1", "2", "model:m1", "model:m2"]
    assert table.groups.tolist() == ["", "", "models", "models"]
    np.testing.assert_allclose(family_weights(table), [1, 1, 1 / 1.8, 1 / 1.8] * 2)
    anonymous = read_annotations(path, predictions_as_annotators=True, anonymise=True)
    assert anonymous.groups.tolist() == ["", "", "models", "models"]
    one = write(tmp_path / "ann.json", [{**tasks[0], "annotations": tasks[0]["annotations"][:1]}])
    named = read_annotations(one, predictions_as_annotators=True, annotator_from="file")
    assert named.annotators.tolist() == ["ann", "model:m1", "model:m2"]
    assert named.groups.tolist() == ["", "models", "models"]


def test_classes_of_the_configuration_keep_their_order_and_rare_ones_warn(tmp_path):
    path = write(tmp_path / "a.json", [studio(made(1, "good"), made(2, "bad"))])
    choices = "".join(f'<Choice value="{c}"/>' for c in ("good", "bad", "none"))
    config = write(tmp_path / "c.xml", f'<View><Choices name="mood">{choices}</Choices></View>')
    with pytest.warns(UserWarning, match="1 of 3 classes .* do not occur: 'none'"):
        table = read_annotations(path, label_config=config)
    assert table.classes.tolist() == ["good", "bad", "none"]
    write(config, '<!DOCTYPE a [<!ENTITY b "c">]><View/>')
    with pytest.raises(AnnotationError, match="declares a document type or entities"):
        read_annotations(path, label_config=config)


def test_cloned_projects_join_by_ones_own_ids(tmp_path):
    a = write(tmp_path / "ann.json", [studio(made(1, "good"), text="A", item="x")])
    b = write(tmp_path / "bob.json", [studio(made(1, "bad"), text="B", item="y")])
    with pytest.raises(
        AnnotationError, match=r"one item in .*ann\.json and a different one in .*task='data"
    ):
        read_annotations([a, b], annotator_from="file")
    b = write(tmp_path / "bob.json", [studio(made(1, "bad"), number=2, text="A", item="x")])
    table = read_annotations(tmp_path, annotator_from="file", task="data.item")
    assert table.equals(read_annotations(tmp_path, annotator_from="file", task="item"))
    assert cells(table) == {("x", "ann"): "good", ("x", "bob"): "bad"}
