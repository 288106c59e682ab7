"""Every row and paper of the repository can be run as it is written: checked without training."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from evidence.data.sets import checksum, load_data
from evidence.experiments.papers import row_ids
from evidence.pages import what_holds
from evidence.pages.page import write_results
from evidence.pages.verdicts import measured
from evidence.records import GOLD, is_share
from evidence.reruns import read_reruns
from evidence.store import latest_records, open_packed, packed_papers, read_records
from manyhands import (
    AveragedCrowdClassifier,
    CoNALClassifier,
    CrowdInGClassifier,
    DASCClassifier,
    all_classifiers,
)
from manyhands.classifiers.crowding.pretrainer import make_pretrainer
from manyhands.fitting import BaseCrowdClassifier, training_protocol
from tests.building import built

ROOT = Path(__file__).parents[2]

ROWS = {
    "chu2021": 489,
    "crowding2021": 143,
    "dasc2023": 292,
    "iced2022": 331,
    "neucrowd2022": 468,
}

# The first digits. Records are filed under these: a key that changes loses its runs.
KEYS = {
    "conal/chu2021_labelme": "cae271a4035589fc",
    "conal/chu2021_labelme_one_step": "fec45dd21d493a6e",
    "aggregated/chu2021_music_gold": "901e54ec120597cc",
    "conal/chu2021_recovery_i30_symmetric_probabilities": "e38731bf93b6606b",
    "crowding/crowd_models_product_from_2": "b1fddc460fd21e17",
    "crowding/crowding2021_sparse60_music_crowding": "16fe63b342697658",
    "crowding/crowding2021_identity_labelme_crowding": "735188cfffa37d24",
    "self_training/crowding2021_labelme_dl_cl_ing": "96a794c0398de02b",
    "self_training/dasc2023_variants_music_dasc": "af09a82593636dbc",
    "self_training/dasc2023_sparse80_music_wdn_random": "eabf38cee20a4c37",
    "iced/iced2022_rivals_sentiment_smote_on_ds_labels": "2b49c595c3f243d5",
    "aggregated/iced2022_table2_reports_ds_lr": "825b67a2aa4e21b6",
    "neucrowd/neucrowd2022_table3_hotel_neucrowd": "154427b65124a70d",
    "soft_prob/neucrowd2022_curve_auc_labelme800_softprob": "2824431394edbc4b",
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
    counts = Counter(row.paper for row in rows)
    assert counts.pop("crowd_models") >= 190  # Every new method adds its own.
    assert counts == ROWS
    assert set(papers) == {*ROWS, "crowd_models"}


def test_keys_are_those_that_records_are_filed_under(experiments):
    keys = {row.id: row.key for row in experiments[0]}
    assert {name: keys[name][:16] for name in KEYS} == KEYS


def test_reproductions_of_self_training_have_no_guard(experiments):
    wrapped = [row for row in experiments[0] if "SelfTraining" in row.estimator["class"]]
    assert len(wrapped) == 210
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


ELSEWHERE = ("not a set of", "not a row of", "stand-in", "not the paper's", "does not try")
"""In deviations of rows that are none of the paper's."""

EQUAL = {
    "does-not-hurt-i70-released",
    "does-not-hurt-cifar10",
    "two-steps-are-stable-1e_5-labelme",
    "two-steps-are-stable-1e_4-labelme",
    "sparse-saves-labelme",
}
"""Claims of the papers that two are about equal, not that one is better."""


CONTRARY = {
    "aggregated-first-mv_dl-cifar10h-anno_reg",
    "aggregated-first-ds_dl-cifar10h-anno_reg",
    "balancing-focal-labelme-anno_reg",
    "balancing-focal-music-anno_reg",
    "balancing-focal-music-crowd_layer",
    "balancing-focal-cifar10h-anno_reg",
    "part-neucrowd_no_sa_no_ra-neucrowd_no_sa_no_ra_no_sn_rll-accuracy-syn2",
}
"""Claims that the papers make in their text, and that their own tables contradict."""


def test_claims_of_the_papers_are_of_their_sets_and_methods_and_no_weaker(experiments):
    rows = {row.id: row for row in experiments[0]}
    weaker = set()
    for paper in experiments[1].values():
        for claim in paper.claims:
            assert not re.search("this project|our question", claim.text), claim.id
            if claim.origin != "paper":
                continue
            for name in claim.rows:
                found = [d for d in rows[name].deviations if any(word in d for word in ELSEWHERE)]
                assert not found, (claim.id, name)
            weaker |= {claim.id} if claim.test.get("by", 0) < 0 else set()
    assert weaker == EQUAL


def difference(test, printed, label=None):
    """What a paper's printed figures give for a claim: None where it does not print them.

    The best of several rows is the paper's best, or, with a label, the row that has it.
    """
    better, than = row_ids(test["better"]), row_ids(test["than"])
    if test["kind"] == "best":
        named = [name for name in than if name in printed and label in (None, printed[name][0])]
        than = sorted(named, key=lambda name: printed[name][1])[-1:] or [""]
    if not {*better, *than} <= set(printed):
        return None
    first, second = (np.mean([printed[name][1] for name in side]) for side in (better, than))
    return first - second


def test_differences_that_papers_report_are_those_of_their_tables(experiments):
    rows, papers = experiments
    found, contrary = Counter(), set()
    for paper in set(papers) & set(ROWS):
        lines = what_holds.claims(paper)
        for claim, (text, _, verdict, why, _) in zip(papers[paper].claims, lines, strict=True):
            test, said = claim.test, re.search(r"the paper reports (\S+\d)(.*)", why)
            two = ("than_metric", "than_selection", "at")
            if test["kind"] not in ("paired", "best") or any(test.get(name) for name in two):
                assert said is None, text
                continue
            figures = {row.id: (row.label, row.published_of(test["metric"])) for row in rows}
            printed = {name: (label, f["value"]) for name, (label, f) in figures.items() if f}
            theirs = difference(test, printed)
            if said is None:
                assert theirs is None or verdict == "not run" or "no spread" in why, text
                continue
            share = is_share(test["metric"])
            form = (lambda x: f"{100 * x:+.2f}") if share else (lambda x: f"{x:+.4g}")
            assert said[1] == form(theirs), text
            found[test["kind"]] += 1
            if other := re.search(r"\((\S+\d) against ([^)]+)\)", said[2]):
                assert why.startswith(f"best of {len(test['than'])}: {other[2]};"), text
                assert other[1] == form(difference(test, printed, other[2])), text
                found["another best"] += 1
            against = theirs <= test["by"] + 1e-9
            assert ("which is not what is claimed" in said[2]) == against, text
            contrary |= {claim.id} if against and claim.origin == "paper" else set()
            outside = "which the interval excludes" in said[2]
            low, high = (
                float(each) for each in re.search(r"interval (\S+) to ([^;]+);", why).groups()
            )
            unlike = any(word in said[2] for word in ("(oracle)", "chosen in another way"))
            value = (100 if share else 1) * theirs
            # Ends are printed to two digits.
            if not unlike and min(abs(value - low), abs(value - high)) > 0.01:
                assert outside == (not low <= value <= high), text
            assert (verdict == "undecided, but excludes the paper's figure") == (
                outside and verdict.startswith("undecided")
            ), text
    assert contrary == CONTRARY
    assert found["paired"] > 100
    assert found["best"] >= 6
    assert found["another best"] >= 3


def assert_committed(paper, rows, records, folder):
    """Compare a paper's page and drawings with those in docs/results."""
    pages = ROOT / "docs" / "results"
    reruns = read_reruns(ROOT / "results")
    # The HTML is not committed: the site is made of the Markdown.
    written = write_results(paper, rows, records, folder, ("md",), reruns)
    expected = {str(path.relative_to(folder)): path.read_bytes() for path in written}
    found = {*pages.glob(f"{paper.key}-*.svg"), *(pages / paper.key).glob("*.md")}
    present = {str(path.relative_to(pages)): path.read_bytes() for path in found}
    for name in expected:
        here = pages / name
        present[name] = here.read_bytes() if here.is_file() else b""
    other = sorted(n for n in present | expected if present.get(n) != expected.get(n))
    if other:
        pytest.fail(
            f"docs/results/{', '.join(other)}: not what the records give; run "
            f"python -m evidence results {paper.key} --out docs/results (and delete drawings that "
            "it does not write)",
            pytrace=False,
        )


def latest_of(row):
    """The records of a row of the table of all classifiers."""
    return latest_records([row], open_packed(ROOT / "results", "crowd_models").records())[row.id]


def test_the_page_of_all_classifiers_is_what_its_records_give(experiments, tmp_path):
    rows, papers = experiments
    packed = open_packed(ROOT / "results", "crowd_models")
    assert packed.problems() == []
    assert_committed(papers["crowd_models"], rows, packed.records(), tmp_path)


@pytest.mark.slow
def test_committed_pages_are_what_the_records_give(experiments, records, tmp_path):
    rows, papers = experiments
    for paper in papers.values():
        assert_committed(paper, rows, records, tmp_path)


@pytest.mark.slow
def test_committed_records_are_packed_and_sound(records):
    found = {(record.paper, record.key) for record in records}
    papers = packed_papers(ROOT / "results")
    assert papers
    for paper in papers:
        # Opened once: it knows which of its lines gave no record.
        packed = open_packed(ROOT / "results", paper)
        lines = packed.lines.values()
        assert lines
        assert {(paper, line["key"]) for line in lines} <= found
        assert packed.problems() == []


@pytest.mark.slow
def test_no_committed_record_is_superseded(experiments, records):
    used = {
        (run.paper, run.key)
        for runs in latest_records(experiments[0], records).values()
        for run in runs.values()
    }
    assert {record.row for record in records if (record.paper, record.key) not in used} == set()


def test_conals_search_compares_what_the_validation_images_chose(experiments):
    rows, papers = experiments
    (claim,) = (c for c in papers["chu2021"].claims if c.id == "better-than-crowd-layer-searched")
    packed = open_packed(ROOT / "results", "chu2021")
    searched = [row for row in rows if row.table == "chu2021/search_test"]
    runs = latest_records(searched, packed.records(lambda line: "search" in line["row"]))
    assert len(searched) == 15
    for side in ("better", "than"):
        (chosen,) = row_ids(claim.test[side])
        folder = chosen.partition("/")[0]
        seen = {
            name: measured(found[0], "valid_accuracy", GOLD)
            for name, found in runs.items()
            if name.startswith(folder)
        }
        assert chosen == max(seen, key=seen.get)
        assert list(seen.values()).count(seen[chosen]) == 1


@pytest.mark.data
@pytest.mark.parametrize("name", ["labelme", "music", "reports"])
def test_records_are_found_by_the_checksum_of_present_data(experiments, name, data_home):
    (row,) = (row for row in experiments[0] if row.id == f"conal/crowd_models_{name}")
    made_on = {record.data_checksum for record in latest_of(row).values()}
    assert made_on == {checksum(load_data(row.data_of(0), row.folder))}


# -- the table of every classifier: one protocol per set, the same for all methods ----------------


SETS = {
    "LabelMe": "standard",
    "Music": "standard",
    "Sentiment": None,
    "Product": "standard",
    "Colposcopy": "standard",
    "Reports": "standard",
}
"""Columns, and how linear models see the features."""

ABSENT = {("Sentiment", "Personal (CPC)"), ("Sentiment", "NeuCrowd")}
SUBSAMPLED = {
    (column, f"CrowdInG, {start}·I") for column in ("Sentiment", "Product") for start in (1, 2)
}
MINUTES = {*SUBSAMPLED, ("Sentiment", "Triplets")}
OTHER_OPTIMISERS = {"Raykar", "Personal (CPC)", "Triplets", "NeuCrowd"}
NO_NETWORK = {"Crowd-calibrated stacking"}
"""No protocol applies, and no epoch is chosen."""
SHARED = {"backbone", *(field.name for field in fields(BaseCrowdClassifier))}
"""Parameters that every network has: what a protocol of a set may fix."""


def params_of(rows):
    return {(row.column, row.label): row.estimator["params"] for row in rows}


class TestAllClassifiers:
    PAPER = "crowd_models"

    def test_every_place_of_the_table_has_one_row(self, mine, paper):
        (table,) = paper.tables
        taken = [(row.column, row.label) for row in mine]
        places = {(column, label) for column in table.columns for label in table.rows}
        assert len(taken) == len(set(taken))
        odd = sorted(set(taken) ^ (places - ABSENT))
        assert not odd, f"experiments/{self.PAPER}.yaml: no row, or one without a place, for {odd}"

    def test_every_classifier_of_the_library_stands_in_the_table(self, mine):
        named = {row.estimator["class"] for row in mine}
        known = {name for name, _ in all_classifiers()}
        missing = sorted(known - named)
        assert not missing, f"add a row of {missing} to experiments/{self.PAPER}.yaml"
        unknown = sorted(named - known)
        assert not unknown, f"rows of experiments/{self.PAPER}.yaml name {unknown}: no classifiers"

    def test_seeds_and_hold_out(self, mine):
        for row in mine:
            one = row.label == "Personal (CPC)" or (row.column, row.label) in MINUTES
            assert row.seeds == ((0,) if one else (0, 1, 2, 3, 4)), row.id
            assert ("one seed: a run takes minutes" in row.deviations) == (
                (row.column, row.label) in MINUTES
            )
            no_epochs = "gold" in row.id or row.label in NO_NETWORK
            assert row.holdout == (None if no_epochs else 0.1), row.id
            assert row.device == "cpu"

    @pytest.mark.parametrize("name", ["labelme", "music"])
    def test_protocols_of_the_papers_sets_are_dascs(self, mine, name):
        (row,) = (row for row in mine if row.id == f"conal/crowd_models_{name}")
        estimator = built(CoNALClassifier, **row.estimator["params"])
        protocol = training_protocol(f"dasc_{name}")
        if name == "music":
            # What DASC does not name there: dropout, weight decay, how the input is scaled.
            for free in ("backbone", "weight_decay", "scaling"):
                protocol.pop(free)
        assert {key: estimator.get_params()[key] for key in protocol} == protocol

    def test_networks_of_a_set_are_trained_in_the_same_way(self, mine):
        """Beside its protocol, a network has the parameters of its method and no others."""
        params = params_of(mine)
        for column in SETS:
            protocols = []
            for label in (
                {row.label for row in mine}
                - OTHER_OPTIMISERS
                - NO_NETWORK
                - {"SoftProb", "MV+LR", "DS+LR"}
            ):
                own = dict(params[column, label])
                subsampled = (column, label) in SUBSAMPLED
                assert own.get("annotators_per_instance") == (16 if subsampled else None)
                assert own.get("noise_lr") is None
                if column in ("Colposcopy", "Reports") and label == "ICED":
                    own["max_epochs"] = 50  # The protocol says "library defaults": its own is 30.
                protocols.append({k: v for k, v in own.items() if k in SHARED})
            assert all(protocol == protocols[0] for protocol in protocols)
            assert protocols[0]

    def test_noise_is_learnt_at_the_rate_of_all_where_dascs_protocol_is(self, mine):
        params = params_of(mine)
        for column in SETS:
            for label in ("Crowd Layer MW, 1·I", "TraceReg", "Max-MIG", "CoNAL", "CrowdInG, 2·I"):
                assert ("noise_lr" in params[column, label]) == (column in ("LabelMe", "Music"))
            assert "noise_lr" not in params[column, "ICED"]

    def test_linear_models_see_one_scaling_a_set(self, mine):
        params = params_of(mine)
        for column, scaling in SETS.items():
            for label in {"SoftProb", *OTHER_OPTIMISERS}:
                if (column, label) not in ABSENT:
                    assert params[column, label]["scaling"] == scaling
            for label in ("MV+LR", "DS+LR"):
                piped = params[column, label]["backbone"]["class"] == "sklearn.pipeline:Pipeline"
                assert piped == (scaling == "standard")

    def test_without_a_network_there_are_the_methods_own_defaults(self, mine):
        params = params_of(mine)
        assert {column for column, label in params if label in NO_NETWORK} == {*SETS}
        assert all(not own for (_, label), own in params.items() if label in NO_NETWORK)

    @pytest.mark.data
    @pytest.mark.parametrize("row", ["colposcopy_majority_vote_regression", "reports_gold"])
    def test_a_row_runs(self, mine, row, data_home):
        from evidence.running.cells import run_cell

        (found,) = (each for each in mine if each.id == f"aggregated/crowd_models_{row}")
        record = run_cell(found, 0)
        assert record.status == "done", record.reason
        assert record.metrics["last epoch"]["accuracy"] > 0.5
