"""Every row and paper of the repository can be run as it is written: checked without training."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from manyhands import AveragedCrowdClassifier, CrowdInGClassifier, DASCClassifier
from manyhands.classifiers.crowding.pretrainer import make_pretrainer
from manyhands.evidence.pages.page import write_results
from manyhands.evidence.records.adoptions import read_adoptions
from manyhands.evidence.records.packed import open_packed, packed_papers
from manyhands.evidence.records.store import read_records

ROOT = Path(__file__).parents[2]

ROWS = {
    "chu2021": 356,
    "crowd_models": 184,
    "crowding2021": 127,
    "dasc2023": 288,
    "iced2022": 347,
    "neucrowd2022": 430,
}

# The first digits. Records are filed under these: a key that changes loses its runs.
KEYS = {
    "conal/chu2021_labelme": "b42c3a54a01e751d",
    "aggregated/chu2021_music_gold": "6dc5cae1780cd4e2",
    "conal/chu2021_recovery_i30_symmetric_probabilities": "cb5863251d79b47c",
    "crowding/crowd_models_product": "055e905d68d12867",
    "crowding/crowding2021_sparse60_music_crowding": "3180077b7b427659",
    "self_training/crowding2021_labelme_dl_cl_ing": "58190a7bb6948852",
    "self_training/dasc2023_variants_cifar10h_dasc": "d94fb38dd3eaf27f",
    "self_training/dasc2023_sparse80_music_wdn_random": "182040878dd8043e",
    "iced/iced2022_rivals_sentiment_smote_on_ds_labels": "31e7e07ee8b8324c",
    "aggregated/iced2022_table2_reports_ds_lr": "eddde8fc32ccfc85",
    "neucrowd/neucrowd2022_table3_hotel_neucrowd": "17b0efc85b1061d1",
    "soft_prob/neucrowd2022_curve_auc_labelme800_softprob": "edff67a89493cf7c",
}


@pytest.fixture(scope="module")
def records():
    """The committed records, read once."""
    return read_records(ROOT / "results")


def test_rows_and_papers_fit_together(experiments):
    # Loading checks every row against the real signatures, and refuses the first that fails.
    rows, papers = experiments
    places = [(row.table, row.column, row.label, row.key) for row in rows]
    assert len(set(places)) == len(places)
    assert Counter(row.paper for row in rows) == ROWS
    assert list(papers) == list(ROWS)


def test_keys_are_those_that_records_are_filed_under(experiments):
    keys = {row.id: row.key for row in experiments[0]}
    assert {name: keys[name][:16] for name in KEYS} == KEYS


def test_reproductions_of_self_training_have_no_guard(experiments):
    wrapped = [row for row in experiments[0] if "SelfTraining" in row.estimator["class"]]
    assert len(wrapped) == 216
    assert all(row.estimator["params"]["guard"] is False for row in wrapped)


def automatic(model):
    """Yield the parameters that are "auto" in a model and in those it holds or makes itself."""
    parameters = model.get_params(deep=False)
    for name in ("max_epochs", "scaling"):
        if parameters.get(name) == "auto":
            yield f"{type(model).__name__}.{name}"
    within = [value for value in parameters.values() if hasattr(value, "get_params")]
    if hasattr(model, "clone_estimator"):
        within.append(model.clone_estimator())
    if hasattr(model, "clone_estimators"):
        within += model.clone_estimators()
    if "pretrainer" in parameters:
        within.append(make_pretrainer(model, np.random.default_rng(0)))
    for part in within:
        yield from automatic(part)


def test_no_published_row_depends_on_what_auto_comes_to_mean(experiments):
    # Parameters of estimators that a row does not describe are out of reach of instead_of_auto.
    found = {row.id: set(automatic(row.make_estimator(0))) for row in experiments[0]}
    assert {name: each for name, each in found.items() if each} == {}


def test_what_a_class_makes_itself_is_looked_at():
    assert list(automatic(DASCClassifier(None))) == [
        "CrowdLayerClassifier.max_epochs",
        "CrowdLayerClassifier.scaling",
    ]
    assert "CrowdLayerClassifier.max_epochs" in automatic(AveragedCrowdClassifier())
    model = CrowdInGClassifier(max_epochs=1, scaling="rms")
    assert list(automatic(model)) == []


def test_every_row_says_how_it_differs(experiments):
    rows, _ = experiments
    assert all(row.deviations for row in rows)
    for row in rows:
        # The learning curve's own network is "not a row of the paper" twice.
        if row.paper == "neucrowd2022" and "curve" in row.id:
            continue
        assert len(row.deviations) == len(set(row.deviations)), row.id


def test_claims_have_names_of_their_own(experiments):
    for paper in experiments[1].values():
        names = [claim.id for claim in paper.claims]
        assert len(names) == len(set(names)), paper.key


def test_committed_pages_are_what_the_records_give(experiments, records, tmp_path):
    rows, papers = experiments
    adoptions = read_adoptions(ROOT / "results")
    pages = ROOT / "docs" / "results"
    for key, paper in papers.items():
        written = write_results(paper, rows, records, tmp_path, adoptions=adoptions)
        for path in written:
            # Else: manyhands results <paper> --out docs/results
            assert path.read_bytes() == (pages / path.name).read_bytes(), path.name
        drawings = {path.name for path in pages.glob(f"{key}-*.svg")}
        assert drawings == {path.name for path in written if path.suffix == ".svg"}


def test_committed_records_are_packed_and_sound(records):
    found = {(record.row, record.seed, record.key) for record in records}
    papers = packed_papers(ROOT / "results")
    assert papers
    for paper in papers:
        # Opened once: it knows which of its lines gave no record.
        packed = open_packed(ROOT / "results", paper)
        lines = packed.lines.values()
        assert lines
        assert {(row, line["seed"], line["key"]) for line in lines for row in line["rows"]} <= found
        assert packed.problems() == []
