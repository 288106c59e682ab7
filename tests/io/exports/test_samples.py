"""Samples of exports have the counts of their documentation."""

import pytest

from manyhands.exceptions import AnnotationError
from manyhands.io import read_annotations, read_export
from tests.io.exports.conftest import SAMPLES, cells, reasons


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
    with pytest.raises(AnnotationError, match="holds gold labels, but no annotations"):
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
        ("sagemaker_ground_truth/output_documented.manifest", "merged labels.*worker-response"),
        ("doccano_new/all_collaborative.jsonl", "does not name annotators.*joins everybody"),
        ("toloka/crowdspeech-dev-clean-crowd.tsv", "look like free text"),
        ("appen_figure_eight/relex-sparse-multiple-choice.csv", "2 questions.*'output_relations'"),
        ("appen_figure_eight/relex-multiple-choice.csv", "several labels.*multilabel='join'"),
        ("potato", "2 questions; choose one with question=: 'sentiment' \\('positive': 5"),
        ("cleanlab_wide/labels_multiannotator.csv", "pass format='wide'"),
        ("label_studio_sdk_tests/csv_test2_result.csv", "name the column of answers"),
        ("cvat/annotations.xml", "the image has no tags"),
        ("brat", "only parts of the text are marked"),
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
