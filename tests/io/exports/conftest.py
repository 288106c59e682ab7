"""What tests of exports write, and what they compare."""

import csv
import io
import json


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


def made(worker, *choices, question="mood", **more):
    result = [{"type": "choices", "from_name": question, "value": {"choices": list(choices)}}]
    return {"completed_by": worker, "result": result if choices else []} | more


def studio(*annotations, number=1, **data):
    return {"id": number, "data": {"text": "Fine."} | data, "annotations": list(annotations)}


def doccano(labels):
    return "".join(json.dumps({"id": i, "text": "t", "label": v}) + "\n" for i, v in labels)


def argilla(number, values, users, states):
    names = ("responses", "responses.users", "responses.status")
    lists = {f"q.{n}": v for n, v in zip(names, (values, users, states), strict=True)}
    return {"id": number, "_server_id": "s", "text": "t"} | lists


def labelbox(label_id, who, value, **spent):
    answer = {"name": "weather", "value": "weather", "radio_answer": {"value": value}}
    return {
        "id": label_id,
        "label_details": {"created_by": who},
        "performance_details": spent,
        "annotations": {"classifications": [answer]},
    }
