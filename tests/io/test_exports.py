"""Exports of labelling tools: what is read, what is left out, and what is asked."""

import csv
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from manyhands.exceptions import AnnotationError, MissingExtraError
from manyhands.inference.families import family_weights
from manyhands.io import read_aligned, read_annotations, read_export
from manyhands.io.exports.formats import FORMATS, WRITERS


def write(path, content):
    """Write text, bytes, or a value as JSON; a list of rows as CSV or JSON Lines by the suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, list) and path.suffix in (".csv", ".tsv", ".txt"):
        text = io.StringIO()
        separator = "," if path.suffix == ".csv" else "\t"
        csv.writer(text, delimiter=separator, lineterminator="\n").writerows(content)
        content = text.getvalue()
    elif isinstance(content, list) and path.suffix == ".jsonl":
        content = "".join(json.dumps(row) + "\n" for row in content)
    elif not isinstance(content, str | bytes):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def cells(table):
    """{(task, worker): label} of a table."""
    return {
        (str(table.instances[i]), str(table.annotators[j])): table.classes[c].item()
        for i, j, c in zip(table.instance, table.annotator, table.label, strict=True)
    }


def reasons(export):
    return {lost.reason.split(";")[0].split(":")[0]: lost.count for lost in export.left_out}


# -- every sample has the counts of its documentation ---------------------------------------------

SAMPLES = [
    ("prodigy/presto_annotation_ann0.jsonl", {}, (971, 971, 1, 2, 0)),
    (
        "prodigy/annotated_github-issues-DOCUMENTATION-textcat.jsonl",
        {},
        (786, 786, 1, 2, 44),
    ),
    (
        "appen_figure_eight/relex-binary-choice.csv",
        {"question": "top_member_employee"},
        (150, 10, 67, 2, 0),
    ),
    (
        "appen_figure_eight/relex-multiple-choice.csv",
        {"question": "relations", "multilabel": "join"},
        (150, 10, 67, 26, 0),
    ),
    (
        "appen_figure_eight/relex-sparse-multiple-choice.csv",
        {"question": "output_relations", "multilabel": "join"},
        (150, 10, 67, 26, 0),
    ),
    ("mturk/platform_amt1.csv", {}, (27, 9, 18, 5, 0)),
    ("mace_csv/mace_temp.standardized.csv", {}, (4620, 462, 76, 2, 0)),
    ("zooniverse/wildcam_gorongosa_sample.csv", {"question": "T1"}, (20, 20, 1, 4, 0)),
    ("lewidi_json/HS-Brexit_dev.json", {}, (1008, 168, 6, 2, 0)),
    ("lewidi_json/ArMIS_dev.json", {}, (423, 141, 3, 2, 0)),
    ("lewidi_json/VariErrNLI_dev.json", {"multilabel": "join"}, (181, 50, 4, 6, 0)),
    ("popquorn_long_csv/raw_data.csv", {"question": "offensiveness"}, (2000, 1499, 41, 5, 0)),
    ("peerannot/answers.json", {}, (27, 13, 3, 4, 0)),
    ("peerannot/toy_answers.json", {}, (9, 3, 4, 2, 0)),
    ("peerannot/toy_answers_inversed.json", {}, (9, 4, 3, 2, 0)),
    ("get_another_label/labels.txt", {}, (5000, 1000, 83, 2, 0)),
    ("get_another_label/adult_labels.txt", {}, (25, 5, 5, 2, 0)),
    ("truth_inference_long_csv/answer.csv", {}, (4212, 108, 39, 2, 0)),
    ("crowdkit_long/annotations.csv", {}, (4212, 108, 39, 2, 0)),
    ("cleanlab_wide/labels_multiannotator.csv", {"format": "wide"}, (4212, 108, 39, 2, 0)),
    ("potato", {"question": "sentiment"}, (12, 6, 2, 3, 0)),
    ("label_studio_generated/project-1-json.json", {}, (16, 6, 3, 3, 2)),
    ("label_studio_generated/project-1-json_min.json", {}, (16, 6, 3, 3, 0)),
    ("label_studio_generated/project-1-csv.csv", {}, (16, 6, 3, 3, 0)),
    ("label_studio_generated/project-1-tsv.tsv", {}, (16, 6, 3, 3, 0)),
    ("label_studio_sdk_tests/csv_test2.json", {}, (1, 1, 1, 1, 0)),
    ("doccano_new/export_per_user.zip", {}, (5, 3, 2, 3, 0)),
    ("doccano_old/classification.jsonl", {}, (3, 3, 1, 2, 0)),
    ("argilla/to_json_documented.json", {}, (3, 2, 2, 2, 0)),
    ("argilla/flattened_documented.jsonl", {}, (3, 2, 2, 2, 1)),
    ("labelbox/export_documented.ndjson", {}, (2, 1, 2, 2, 0)),
    ("sagemaker_ground_truth/worker_response_documented.json", {}, (2, 1, 2, 2, 0)),
    ("sagemaker_ground_truth/consolidated_custom.json", {}, (4, 2, 2, 3, 0)),
    ("superannotate/example_image_1.jpg___objects.json", {}, (1, 1, 1, 1, 0)),
    ("superannotate/form1.jsonl", {"question": "component_id_2"}, (3, 3, 3, 2, 0)),
    ("toloka/responses_documented.tsv", {}, (3, 2, 3, 2, 1)),
    (
        "appen_figure_eight/full_report_with_gold_documented.csv",
        {"multilabel": "join"},
        (4, 2, 3, 3, 0),
    ),
]
"""File, options, and numbers of annotations, annotated tasks, annotators, classes and passes."""


@pytest.mark.data
@pytest.mark.filterwarnings("ignore:.*whose names differ only in case")
@pytest.mark.parametrize(("name", "options", "counts"), SAMPLES, ids=[s[0] for s in SAMPLES])
def test_samples_have_the_documented_counts(data_home, name, options, counts):
    export = read_export(data_home.parent / "exports" / name, **options)
    table = export.annotations
    annotated = int((table.annotations_per_instance() > 0).sum())
    n_passes = len(table.abstentions) + len(table.skips)
    found = (table.n_annotations, annotated, table.n_annotators, table.n_classes, n_passes)
    assert found == counts
    assert len(export.seconds) == len(export.ended) == table.n_annotations


@pytest.mark.data
def test_samples_left_out_and_gold(data_home):
    exports = data_home.parent / "exports"
    honey = read_export(exports / "toloka" / "honey.tsv")
    assert (len(honey.gold), len(set(honey.gold.labels)), honey.annotations.n_annotations) == (
        50,
        7,
        0,
    )
    with pytest.raises(AnnotationError, match="holds gold labels and no annotations"):
        read_annotations(exports / "toloka" / "honey.tsv")
    studio = read_export(
        exports / "label_studio_generated" / "project-1-json.json",
        label_config=exports / "label_studio_generated" / "label_config.xml",
    )
    assert studio.annotations.classes.tolist() == ["Positive", "Negative", "Neutral"]
    assert (studio.gold.tasks.tolist(), studio.gold.labels.tolist()) == ([1], ["Positive"])
    assert studio.annotations.skips.tolist() == [[4, 2], [5, 1]]
    assert reasons(read_export(exports / "peerannot" / "answers.json")) == {
        "nobody annotated the task": 2
    }
    zoo = read_export(exports / "zooniverse" / "wildcam_gorongosa_sample.csv")
    assert [lost.where for lost in zoo.left_out] == [("row 18",)]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sagemaker_ground_truth/output_documented.manifest", "merged already.*worker-response"),
        ("doccano_new/all_collaborative.jsonl", "does not name annotators.*joins everybody"),
        ("toloka/crowdspeech-dev-clean-crowd.tsv", "look like free text"),
        ("appen_figure_eight/relex-sparse-multiple-choice.csv", "2 questions.*'output_relations'"),
        ("appen_figure_eight/relex-multiple-choice.csv", "several labels.*multilabel='join'"),
        ("potato", "2 questions; choose one with question=: 'sentiment' \\('positive': 5"),
        ("cleanlab_wide/labels_multiannotator.csv", "pass format='wide'"),
        ("label_studio_sdk_tests/csv_test2_result.csv", "name the column of answers"),
        ("cvat/annotations.xml", "the image has no tags"),
        ("brat", "no label is given to all of it"),
        ("superannotate", "4 questions"),
    ],
)
def test_samples_that_must_be_asked_about(data_home, name, message):
    with pytest.raises(AnnotationError, match=message):
        read_annotations(data_home.parent / "exports" / name)


@pytest.mark.data
def test_three_exports_of_one_project_agree(data_home):
    folder = data_home.parent / "exports" / "label_studio_generated"
    names = ("json.json", "json_min.json", "csv.csv", "tsv.tsv")
    first, *others = (cells(read_annotations(folder / f"project-1-{n}")) for n in names)
    assert all(other == first for other in others)
    by_item = read_annotations(folder / "project-1-csv.csv", task="data.item")
    assert by_item.instances.tolist() == ["r0", "r1", "r2", "r3", "r4", "r5"]


# -- Label Studio ---------------------------------------------------------------------------------


def made(worker, *choices, question="mood", **more):
    result = [{"type": "choices", "from_name": question, "value": {"choices": list(choices)}}]
    return {"completed_by": worker, "result": result if choices else []} | more


def studio(*annotations, number=1, **data):
    return {"id": number, "data": {"text": "Fine."} | data, "annotations": list(annotations)}


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
    with pytest.warns(UserWarning, match="1 of 3 classes .* never occur: 'none'"):
        table = read_annotations(path, label_config=config)
    assert table.classes.tolist() == ["good", "bad", "none"]
    write(config, '<!DOCTYPE a [<!ENTITY b "c">]><View/>')
    with pytest.raises(AnnotationError, match="entities are declared"):
        read_annotations(path, label_config=config)


def test_cloned_projects_join_by_ones_own_ids(tmp_path):
    a = write(tmp_path / "ann.json", [studio(made(1, "good"), text="A", item="x")])
    b = write(tmp_path / "bob.json", [studio(made(1, "bad"), text="B", item="y")])
    with pytest.raises(
        AnnotationError, match=r"one item in .*ann\.json and another in .*task='data"
    ):
        read_annotations([a, b], annotator_from="file")
    b = write(tmp_path / "bob.json", [studio(made(1, "bad"), number=2, text="A", item="x")])
    table = read_annotations(tmp_path, annotator_from="file", task="data.item")
    assert table.equals(read_annotations(tmp_path, annotator_from="file", task="item"))
    assert cells(table) == {("x", "ann"): "good", ("x", "bob"): "bad"}


# -- other tools ----------------------------------------------------------------------------------


def test_prodigy(tmp_path):
    def record(number, who, answer="accept", **more):
        names = {"_input_hash": number, "_annotator_id": f"set-{who}", "answer": answer}
        return names | {"text": "t", "options": [{"id": "no"}, {"id": "yes"}]} | more

    rows = [
        record(1, "ann", accept=["yes"]),
        record(1, "bob", accept=["no"]),
        record(2, "ann", "ignore", accept=[]),
        record(2, "bob", "reject", accept=["no"]),
        record(3, "bob", accept=[]),
        {"_input_hash": 1, "_task_hash": 3, "sessions": ["a"], "accept": ["yes"], "options": []},
    ]
    export = read_export(write(tmp_path / "a.jsonl", rows))
    assert cells(export.annotations) == {("1", "ann"): "yes", ("1", "bob"): "no"}
    assert export.annotations.skips.tolist() == [[1, 0]]
    assert export.annotations.abstentions.tolist() == [[1, 1]]
    assert reasons(export) == {"no answer was given": 1}
    assert export.gold.labels.tolist() == ["yes"]


def test_prodigy_sessions_without_a_name_and_binary_labels(tmp_path):
    rows = [
        {"_input_hash": n, "label": "SPAM", "answer": answer, "_session_id": session}
        for n, (answer, session) in enumerate(
            [("accept", "s-2024-02-06_10-17-19"), ("reject", "s-2024-02-07_10-17-19")]
        )
    ]
    export = read_export(write(tmp_path / "a.jsonl", rows))
    assert export.annotations.annotators.tolist() == ["2024-02-06_10-17-19", "2024-02-07_10-17-19"]
    assert sorted(cells(export.annotations).values()) == [0, 1]
    assert any("no session was named" in note for note in export.notes)


def mturk(*rows, more=()):
    return [["HITId", "WorkerId", "AssignmentStatus", "SubmitTime", *more], *rows]


def test_mturk_switches_become_one_question_and_an_empty_answer_an_abstention(tmp_path):
    when = "Wed Jan 24 09:48:10 PST 2018"
    rows = mturk(
        ["h1", "w1", "Approved", when, "true", "false"],
        ["h1", "w2", "Rejected", when, "false", "true"],
        ["h1", "w3", "Approved", when, "false", "false"],
        more=["Answer.mood.good", "Answer.mood.bad"],
    )
    export = read_export(write(tmp_path / "b.csv", rows))
    assert export.question == "mood"
    assert cells(export.annotations) == {("h1", "w1"): "good", ("h1", "w2"): "bad"}
    assert export.annotations.abstentions.tolist() == [[0, 2]]
    assert export.ended.tolist() == [1516816090.0] * 2
    assert read_annotations(tmp_path / "b.csv", drop_rejected=False).n_annotations == 2


def test_mturk_hits_of_several_items_are_taken_apart(tmp_path):
    columns = ["Input.text_1", "Input.text_2", "Answer.q_1", "Answer.q_2"]
    rows = mturk(["h1", "w1", "Approved", "", "A", "B", "x", "y"], more=columns)
    export = read_export(write(tmp_path / "b.csv", rows), items=r"_(\d+)$")
    assert cells(export.annotations) == {("h1/1", "w1"): "x", ("h1/2", "w1"): "y"}
    assert export.items.columns == {"text": ["A", "B"]}
    by_text = read_annotations(tmp_path / "b.csv", items=r"_(\d+)$", task="Input.text")
    assert by_text.instances.tolist() == ["A", "B"]


def test_columns_named_by_hand_make_any_table_a_long_one(tmp_path):
    rows = mturk(["h1", "w1", "", "", "x"], ["h2", "w1", "", "", "y"], more=["Answer.q"])
    path = write(tmp_path / "b.csv", rows)
    table = read_annotations(path, task="HITId", worker="WorkerId", label="Answer.q")
    assert cells(table) == cells(read_annotations(path))


def doccano(labels):
    return "".join(json.dumps({"id": i, "text": "t", "label": v}) + "\n" for i, v in labels)


def test_doccano_members_of_a_zip_are_annotators(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("ann.jsonl", doccano([(1, ["x"]), (2, [])]))
        archive.writestr("bob.jsonl", doccano([(1, ["y"]), (2, ["x"])]))
    export = read_export(tmp_path / "a.zip")
    assert cells(export.annotations) == {("1", "ann"): "x", ("1", "bob"): "y", ("2", "bob"): "x"}
    assert export.left_out[0].where == ("ann.jsonl, line 2",)
    with pytest.raises(AnnotationError, match="anonymise='no' is neither True nor False"):
        read_export(tmp_path / "a.zip", anonymise="no")
    hidden = read_export(tmp_path / "a.zip", anonymise=True)
    assert hidden.annotations.annotators.tolist() == ["w001", "w002"]
    assert hidden.annotator_names == {"w001": "ann", "w002": "bob"}
    assert hidden.left_out[0].where == ("w001.jsonl, line 2",)


def test_one_file_of_doccano_needs_to_say_whose_it_is(tmp_path):
    path = write(tmp_path / "ann.jsonl", doccano([(1, ["x"]), (2, ["y"])]))
    with pytest.raises(AnnotationError, match="does not name annotators"):
        read_annotations(path)
    assert read_annotations(path, annotator_from="file").annotators.tolist() == ["ann"]


def argilla(number, values, users, states):
    names = ("responses", "responses.users", "responses.status")
    lists = {f"q.{n}": v for n, v in zip(names, (values, users, states), strict=True)}
    return {"id": number, "_server_id": "s", "text": "t"} | lists


def test_argilla_discarded_is_an_abstention_and_a_draft_is_left_out(tmp_path):
    rows = [
        argilla(1, ["x", None, "y"], ["a", "b", "c"], ["submitted", "discarded", "draft"]),
        argilla(2, ["y"], ["a"], ["submitted"]),
        argilla(3, ["y", "x"], ["a"], ["submitted"]),
    ]
    export = read_export(write(tmp_path / "a.jsonl", rows))
    assert cells(export.annotations) == {("1", "a"): "x", ("2", "a"): "y"}
    assert export.annotations.abstentions.tolist() == [[0, 1]]
    assert reasons(export) == {"the response is a draft": 1, "the record cannot be read": 1}


def test_appen_keeps_gold_apart_and_never_reads_addresses(tmp_path):
    header = ["_unit_id", "_worker_id", "_tainted", "_ip", "_city", "q", "q_gold", "text"]
    rows = [
        ["1", "7", "false", "10.1.2.3", "Rome", "x", "x\ny", "T"],
        ["2", "7", "true", "10.1.2.3", "Rome", "y", "y", "U"],
        ["2", "8", "false", "10.1.2.4", "Oslo", "", "y", "U"],
    ]
    export = read_export(write(tmp_path / "f1.csv", [header, *rows]))
    assert cells(export.annotations) == {("1", "7"): "x", ("2", "7"): "y"}
    assert export.annotations.abstentions.tolist() == [[1, 1]]
    assert (export.gold.tasks.tolist(), export.gold.labels.tolist()) == ([2], ["y"])
    assert reasons(export) == {"the gold of the task has several labels": 1}
    assert export.items.columns == {"text": ["T", "U"]}
    write(tmp_path / "a1.csv", [["_unit_id", "q", "q:confidence"], ["1", "x", "0.8"]])
    with pytest.raises(AnnotationError, match=r"aggregated report.*full report"):
        read_annotations(tmp_path / "a1.csv")


def test_toloka_control_tasks_are_annotations_and_gold_at_once(tmp_path):
    header = ["INPUT:id", "OUTPUT:r", "GOLDEN:r", "ASSIGNMENT:worker_id", "ASSIGNMENT:status"]
    rows = [
        ["c", "x", "x", "w1", "APPROVED"],
        ["1", "y", "", "w1", "REJECTED"],
        ["1", "", "", "w2", "SKIPPED"],
        ["1", "", "", "w3", "EXPIRED"],
    ]
    export = read_export(write(tmp_path / "t.tsv", [header, *rows]))
    assert cells(export.annotations) == {("c", "w1"): "x", ("1", "w1"): "y"}
    assert len(export.annotations.skips) == 1
    assert export.gold.tasks.tolist() == ["c"]
    assert reasons(export) == {"the assignment is EXPIRED": 1}


def labelbox(label_id, who, value, **spent):
    answer = {"name": "weather", "value": "weather", "radio_answer": {"value": value}}
    return {
        "id": label_id,
        "label_details": {"created_by": who},
        "performance_details": spent,
        "annotations": {"classifications": [answer]},
    }


def test_labelbox_skips_and_benchmarks(tmp_path):
    labels = [
        labelbox("a", "ann@x.org", "sun"),
        labelbox("b", "bob@x.org", "rain", benchmark_reference_label="g"),
        labelbox("c", "cy@x.org", "rain", skipped=True),
        labelbox("g", "boss@x.org", "sun"),
    ]
    row = {"data_row": {"id": "1", "row_data": "u"}, "projects": {"p": {"labels": labels}}}
    export = read_export(write(tmp_path / "l.ndjson", row), anonymise=True)
    assert cells(export.annotations) == {("1", "w001"): "sun", ("1", "w002"): "rain"}
    assert export.annotations.skips.tolist() == [[0, 2]]
    assert export.gold.labels.tolist() == ["sun"]
    assert "boss@x.org" not in export.annotator_names.values()


def test_ground_truth_folders(tmp_path):
    for name in ("0", "1"):
        folder = tmp_path / "job" / "annotations" / "worker-response" / "iteration-1" / name
        answers = [
            {"workerId": w, "answerContent": {"crowd-classifier": {"label": v}}}
            for w, v in (("a", "x"), ("b", "y"))
        ]
        write(folder / "2024.json", {"answers": answers})
    write(tmp_path / "job" / "manifests" / "output.manifest", {"source": "t"})
    table = read_annotations(tmp_path / "job")
    assert table.instances.tolist() == [0, 1]
    assert cells(table)["1", "b"] == "y"


def test_zooniverse_keeps_the_first_answer(tmp_path):
    header = ["classification_id", "user_name", "subject_ids", "metadata", "annotations"]
    answer = json.dumps([{"task": "T0", "value": "Yes"}, {"task": "T1", "value": "No"}])
    other = json.dumps([{"task": "T0", "value": "No"}])
    rows = [["1", "u", "9", "{}", answer], ["2", "u", "9", "{}", other], ["3", "v", "9", "{", "x"]]
    export = read_export(write(tmp_path / "z.csv", [header, *rows]), question="T0")
    assert cells(export.annotations) == {("9", "u"): "Yes"}
    assert sum(lost.count for lost in export.left_out) == 2


def test_research_layouts(tmp_path):
    item = {"annotators": "a,b", "annotations": "0,1", "annotation task": "hate"}
    broken = item | {"annotations": "0"}
    export = read_export(write(tmp_path / "l.json", {"1": item, "2": broken}))
    assert cells(export.annotations) == {("1", "a"): 0, ("1", "b"): 1}
    assert [lost.count for lost in export.left_out] == [1]
    write(tmp_path / "p" / "answers.json", {"0": {"0": 1, "1": 0, "2": 1}, "1": {"0": 1}})
    assert read_annotations(tmp_path / "p" / "answers.json").shape == (2, 3)
    write(tmp_path / "p" / "metadata.json", {"n_tasks": 3})
    assert read_annotations(tmp_path / "p" / "answers.json").shape == (3, 2)
    path = write(tmp_path / "labels.txt", [["w1", "url1", "x"], ["w2", "url1", "y"]])
    assert cells(read_annotations(path)) == {("url1", "w1"): "x", ("url1", "w2"): "y"}
    path = write(tmp_path / "m.csv", "x,y,,x\n,x,y,y\n,,,x\n")
    assert read_annotations(path).to_matrix(codes=True).tolist() == [
        [0, 1, -1, 0],
        [-1, 0, 1, 1],
        [-1, -1, -1, 0],
    ]
    path = write(tmp_path / "s.csv", "!amt_worker_ids\torig_id\tresponse\tgold\nA\t5\t1\t0\n")
    export = read_export(path)
    assert (export.format, cells(export.annotations)) == ("snow", {("5", "A"): 1})
    assert export.gold.labels.tolist() == [0]


def test_wide_tables_are_asked_about_and_keep_their_ids(tmp_path):
    path = write(tmp_path / "w.csv", "id,ann,bob\nx,0,1\ny,,1\n")
    with pytest.raises(AnnotationError, match="pass format='wide'"):
        read_annotations(path)
    table = read_annotations(path, format="wide")
    assert cells(table) == {("x", "ann"): 0, ("x", "bob"): 1, ("y", "bob"): 1}


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_lists_of_annotators_and_labels(tmp_path, suffix):
    rows = [
        {"id": "x", "text": "A", "annotators": ["a", "b"], "annotations": ["yes", "no"]},
        {"id": "y", "text": "B", "annotators": ["a"], "annotations": ["yes", "no"]},
    ]
    export = read_export(write(tmp_path / f"a{suffix}", rows))
    assert cells(export.annotations) == {("x", "a"): "yes", ("x", "b"): "no"}
    assert export.left_out[0].count == 1
    assert export.items.columns["text"][0] == "A"


def test_long_tables_as_json_lines(tmp_path):
    rows = [{"item": 1, "rater": "a", "label": True, "text": "T", "age": 40}]
    export = read_export(write(tmp_path / "a.jsonl", rows))
    assert cells(export.annotations) == {("1", "a"): "true"}
    assert export.items.columns == {"text": ["T"]}, "covariates are read only if they are named"
    assert "age" in read_export(tmp_path / "a.jsonl", fields=["age"]).items.columns


def test_excel_workbooks_need_the_extra(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(MissingExtraError, match=r"manyhands\[io\]"):
        read_annotations(tmp_path / "a.xlsx")


# -- the policy over all formats ------------------------------------------------------------------


def test_exports_align_with_features(tmp_path):
    tasks = [studio(made(1, "good"), number=n, item=f"i{n}") for n in (2, 1)]
    path = write(tmp_path / "a.json", tasks)
    np.savez(tmp_path / "X.npz", X=np.eye(3), task=np.array(["i0", "i1", "i2"]))
    features, table = read_aligned(tmp_path / "X.npz", path, task="data.item")
    assert len(features) == len(table) == 3
    assert table.annotations_per_instance().tolist() == [0, 1, 1]


def test_marked_labels_are_passes_and_classes_have_an_order(tmp_path):
    task = studio(made(1, "good"), made(2, "unsure"), made(3, "bad"))
    path = write(tmp_path / "a.json", [task])
    table = read_annotations(path, abstain="unsure", classes=["good", "bad", "ugly"])
    assert table.classes.tolist() == ["good", "bad", "ugly"]
    assert table.abstentions.tolist() == [[0, 1]]
    with pytest.raises(AnnotationError, match="bad"):
        read_annotations(path, classes=["good", "unsure"])


def test_files_that_hold_no_annotations_are_named(tmp_path):
    write(tmp_path / "a.json", [studio(made(1, "good"))])
    write(tmp_path / "README.md", "# A project")
    export = read_export(tmp_path)
    assert "README.md" in export.left_out[0].where[0]


def test_several_formats_at_once_are_refused(tmp_path):
    a = write(tmp_path / "a.json", [studio(made(1, "good"))])
    b = write(tmp_path / "b.json", {"0": {"0": 1}})
    with pytest.raises(AnnotationError, match=r"several formats.*label-studio.*peerannot"):
        read_annotations([a, b])


def test_the_choice_is_logged_as_a_command(tmp_path, caplog):
    path = write(tmp_path / "a.json", [studio(made(1, "good"))])
    with caplog.at_level("INFO", logger="manyhands"):
        read_annotations(path)
    assert "a.json is read with format='label-studio', question='mood'" in caplog.text


def test_the_page_of_formats_names_every_format_and_tool():
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    formats, tools = page.split("\n| `--to` |")
    first = " ".join(line.split("|")[1] for line in formats.splitlines() if line.startswith("| `"))
    # These are recognised so that they can be refused.
    refused = {"appen-aggregated", "ground-truth-manifest", "inception"}
    for name in {form.name for form in FORMATS} - refused:
        assert f"`{name}`" in first, f"docs/formats.md has no row for the format {name}"
    for name in WRITERS:
        assert f"\n| `{name}` |" in tools, (
            f"docs/formats.md does not say what is written for {name}"
        )


def test_formats_have_distinct_names_and_rules():
    assert len({form.name for form in FORMATS}) == len(FORMATS)
    assert all(form.rule for form in FORMATS)
    with pytest.raises(AnnotationError, match="format='excel' is unknown; use 'auto' or label-st"):
        read_annotations("a.csv", format="excel")


# -- tools whose export is a folder ---------------------------------------------------------------


def test_superannotate_tags_name_their_annotator(tmp_path):
    def tag(who, **more):
        return {"type": "tag", "createdBy": {"email": who}, **more}

    for name, first, second in (("a", "cat", "dog"), ("b", "cat", "cat")):
        tags = [tag("x@s.org", className=first), tag("y@s.org", className=second)]
        box = {"type": "bbox", "className": "eye"}
        value = {"metadata": {"name": f"{name}.jpg"}, "instances": [*tags, box]}
        write(tmp_path / f"{name}.json", value)
    export = read_export(tmp_path)
    assert export.format == "superannotate"
    assert cells(export.annotations)["a.jpg", "y@s.org"] == "dog"
    assert export.annotations.n_annotations == 4
    weather = tag("x@s.org", className="Sky", attributes=[{"name": "1", "groupName": "g"}])
    write(tmp_path / "c.json", {"metadata": {"name": "c.jpg"}, "instances": [weather]})
    with pytest.raises(AnnotationError, match=r"'class' .*'Sky / g'"):
        read_export(tmp_path)
    forms = [
        {"metadata": {"name": 1, "folder_name": who}, "data": {"q": {"value": [label]}}}
        for who, label in (("ann", "x"), (" bob", "y"))
    ]
    export = read_export(write(tmp_path / "forms" / "f.jsonl", forms))
    assert cells(export.annotations) == {("1", "ann"): "x", ("1", "bob"): "y"}
    assert "folder of an item counts as one" in export.notes[0]


CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version>
<image id="0" name="a.png"><tag label="{0}" source="manual"/></image>
<image id="1" name="b.png"><box label="eye" xtl="0" ytl="0" xbr="1" ybr="1"/></image>
</annotations>"""


def test_cvat_annotators_are_named_by_files_or_archives(tmp_path):
    for name, label in (("ann", "cat"), ("bob", "dog")):
        write(tmp_path / "xml" / f"{name}.xml", CVAT.format(label))
        (tmp_path / "zip").mkdir(exist_ok=True)
        with zipfile.ZipFile(tmp_path / "zip" / f"{name}.zip", "w") as archive:
            archive.writestr("annotations.xml", CVAT.format(label))
        rest = {"version": 3, "tags": [{"frame": 0, "label_id": 7}], "shapes": [], "tracks": []}
        write(tmp_path / "rest" / f"{name}.json", rest | {"assignee": {"username": name}})
    export = read_export(tmp_path / "xml", annotator_from="file")
    assert cells(export.annotations) == {("a.png", "ann"): "cat", ("a.png", "bob"): "dog"}
    (lost,) = export.left_out
    assert "has no tags" in lost.reason
    assert lost.where == ("ann.xml, image 1", "bob.xml, image 1")
    with pytest.raises(AnnotationError, match=r"no annotator is named.*annotator_from='folder'"):
        read_export(tmp_path / "xml")
    with pytest.raises(AnnotationError, match=r"have the same name.*annotator_from='folder'"):
        read_export(tmp_path / "zip", annotator_from="file")
    archives = read_export(tmp_path / "zip", annotator_from="folder")
    assert archives.annotations.equals(export.annotations)
    rest = read_export(tmp_path / "rest")
    assert cells(rest.annotations) == {("0", "ann"): 7, ("0", "bob"): 7}
    with pytest.raises(AnnotationError, match="annotator_from='name' is unknown"):
        read_export(tmp_path / "xml", annotator_from="name")


def test_brat_labels_of_a_whole_text(tmp_path):
    for name, label in (("ann", "Positive"), ("bob", "Negative")):
        write(tmp_path / name / "d1.txt", 'He said "fine.\n')
        marked = [f"T1\tDocument 0 14\tHe said {chr(34)}fine.", "T2\tWord 3 7\tsaid"]
        marked += [f"A1\tMood T1 {label}", "A2\tNegation T2", "E1\tSaying:T2"]
        write(tmp_path / name / "d1.ann", "\n".join(marked) + "\n")
        write(tmp_path / name / "d2.txt", "Well.")
        write(tmp_path / name / "d2.ann", "T1\tWord 0 4\tWell\nA1\tMood T1 Positive\n")
    export = read_export(tmp_path)
    assert cells(export.annotations) == {("d1", "ann"): "Positive", ("d1", "bob"): "Negative"}
    assert export.items.columns["text"] == ['He said "fine.\n', "Well."]
    assert export.question == "Mood"
    assert "no label is given to all of it" in export.left_out[0].reason
    (tmp_path / "ann" / "d1.txt").unlink()
    assert "d1.txt does not lie beside it" in str(read_export(tmp_path).left_out)


def test_inception_is_refused_with_the_way_out(tmp_path):
    cas = {"%TYPES": {}, "%FEATURE_STRUCTURES": [], "%VIEWS": {}}
    xmi = '<?xml version="1.0"?><xmi:XMI xmlns:xmi="http://www.omg.org/XMI" xmi:version="2.0"/>'
    with zipfile.ZipFile(tmp_path / "project.zip", "w") as archive:
        archive.writestr("annotation/d1.txt/ann.json", json.dumps(cas))
        archive.writestr("source/d1.txt", "Fine.")
    for path in (
        write(tmp_path / "ann.json", cas),
        write(tmp_path / "ann.xmi", xmi),
        tmp_path / "project.zip",
    ):
        with pytest.raises(AnnotationError, match=r"dkpro-cassis.*docs/formats\.md"):
            read_export(path)


def test_goemotions_raw(tmp_path):
    header = ["text", "id", "author", "rater_id", "example_very_unclear", "joy", "anger"]
    rows = [
        ["t", "c1", "someone", 4, False, 1, 0],
        ["t", "c1", "someone", 5, False, 1, 1],
        ["t", "c1", "someone", 6, True, 0, 0],
    ]
    path = write(tmp_path / "goemotions_1.csv", [header, *rows])
    with pytest.raises(AnnotationError, match="several labels"):
        read_annotations(path)
    export = read_export(path, multilabel="split")
    assert cells(export.tables["anger"]) == {("c1", "4"): "no", ("c1", "5"): "yes"}
    assert len(export.tables["joy"].abstentions) == 1
    assert list(export.items.columns) == ["text"]
