"""ICED's rows: files and script agree, every place is taken, and the printed figures add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from manyhands import MajorityVote
from manyhands.annotations import certainty_groups, label_certainty
from manyhands.datasets import load_colposcopy, load_product, load_reports
from manyhands.evidence.experiments.loading import load_experiments

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def script(import_script):
    return import_script("iced2022")


@pytest.fixture(scope="module")
def loaded():
    return load_experiments(EXPERIMENTS)


@pytest.fixture(scope="module")
def mine(loaded):
    return [row for row in loaded[0] if "/iced2022_" in row.id]


@pytest.fixture(scope="module")
def paper(loaded):
    return loaded[1]["iced2022"]


def test_generated_files_are_those_committed(script):
    written = script.files()
    for name, text in written.items():
        assert (EXPERIMENTS / name).read_text(encoding="utf-8") == text, name
    committed = {
        path.relative_to(EXPERIMENTS).as_posix() for path in EXPERIMENTS.glob("*/iced2022*.yaml")
    }
    assert committed == set(written)
    assert len(written) == len([*script.rows()]) + 1


def test_places_of_tables_have_one_row(script, mine, paper):
    for plan in paper.tables:
        here = [(row.column, row.label) for row in mine if row.table == f"iced2022/{plan.id}"]
        assert len(here) == len(set(here))
        places = {(column, label) for column in plan.columns for label in plan.rows}
        own, missing = set(here) - places, places - set(here)
        filled = script.GAPS_FILLED
        assert own == ({("Product", filled)} if plan.id == "parts" else set())
        assert missing == ({("Sentiment 10:1", "CPC")} if plan.id == "table2" else set())


def test_every_measure_of_a_table_is_measured_by_its_rows(script, mine, paper):
    given = {
        "by_class": set(script.SHOWN),
        "inference": set(script.INFERRED),
        "warm_up": set(script.WARMED) - {script.BALANCED},
    }
    plans = {plan.id: plan for plan in paper.tables}
    for row in mine:
        found = set().union(*(given[name.partition(":")[2]] for name in row.extra))
        assert set(plans[row.table.partition("/")[2]].metrics) <= found, row.id


def test_all_printed_figures_stand_beside_ours(script):
    rows = [row for _, row in script.rows()]
    shown = {
        (row["table"], row["label"], row["column"]): {
            each["metric"]: each["value"] for each in row["published"]
        }
        for row in rows
        if "published" in row
    }
    sets = [data.name for data in script.PRINTED_SETS]
    expected = {
        ("iced2022/table2", label, column): dict(
            zip(script.SHOWN[:2], script.PRINTED[label][k], strict=True)
        )
        for label in script.PRINTED
        for k, column in enumerate(sets)
    }
    for label, figures in script.PRINTED_WARM_UP.items():
        for k, column in enumerate(sets):
            accuracy, f1, n = figures[k]
            values = (accuracy, f1, pytest.approx(n / script.TRAINING_SIZES[k], abs=5e-5))
            measures = dict(zip(script.WARMED[:3], values, strict=True))
            expected["iced2022/table3", label, column] = measures
    assert shown == expected


def test_claims_name_rows_and_have_their_own_names(script):
    rows, claims = dict(script.rows()), script.paper()["claims"]
    for claim in claims:
        for side in ("better", "than", "row"):
            named = claim["test"].get(side, [])
            assert {named} <= set(rows) if isinstance(named, str) else set(named) <= set(rows)
    assert len({claim["id"] for claim in claims}) == len(claims)
    for data in script.SETS:
        (best,) = (claim["test"] for claim in claims if claim["id"] == f"best-{data.key}")
        baselines = {m.label for m in script.BASELINES if (m.label, data.key) not in script.ABSENT}
        assert {rows[name]["label"] for name in best["than"]} == baselines


def test_an_experiment_in_several_tables_is_run_once(mine):
    for column, tables in {
        "Gisette-like": {"table2", "rivals", "fig2", "table3"},
        "USPS-Syn": {"table2", "rivals", "parts", "fig2", "table3"},
        "USPS hard": {"table2", "rivals", "parts"},
        "Product": {"table2", "rivals", "parts", "fig2", "table3"},
        "Colposcopy": {"table2", "rivals"},
    }.items():
        full = [row for row in mine if row.column == column and row.label in ("ICED", "ICED-w")]
        assert {row.table.partition("/")[2] for row in full} == tables
        assert len({row.key for row in full}) == 1


def test_networks_of_a_set_are_trained_in_the_same_way(script, mine):
    own = {"max_epochs", "batch_size", "scaling"}
    for data in script.SETS:
        for row in mine:
            params = row.estimator["params"]
            if row.column != data.name or "max_epochs" not in params:
                continue
            if row.label == script.FEWER_EPOCHS:
                assert params["max_epochs"] == data.fewer_epochs < data.max_epochs
                continue
            if row.label == script.AS_MANY_STEPS:
                assert params["max_epochs"] == data.as_many_steps > data.max_epochs
                continue
            assert {name: params[name] for name in own & set(params)} == data.protocol, row.id


def test_a_part_differs_from_iced_by_itself(script, mine):
    rows = {(row.label, row.column): row for row in mine if row.table == "iced2022/parts"}
    for data in script.PART_SETS:
        full = rows["ICED", data.name].estimator["params"]
        for label, part in script.PARTS.items():
            if (label, data.name) not in rows:
                continue
            params = rows[label, data.name].estimator["params"]
            differing = {k for k in {*full, *params} if full.get(k, "-") != params.get(k, "-")}
            own = label in (script.FEWER_EPOCHS, script.AS_MANY_STEPS)
            assert differing == (set(part) | {"max_epochs"} if own else set(part))


def test_the_papers_ds_is_plain_maximum_likelihood(mine):
    """A hundredth of an annotation in every cell, whatever the number of classes."""
    found = [row for row in mine if row.label.startswith("D&S")]
    assert len(found) == 5 * 8
    for row in found:
        params = row.estimator["params"]["aggregator"]["params"]
        n_classes = 4 if row.column == "Reports" else 2
        assert params["diagonal"] == pytest.approx(1 / n_classes)
        assert params["prior_strength"] * params["diagonal"] == pytest.approx(0.01)
        assert params["class_prior"] == ("estimated" if "estimated" in row.label else "uniform")
        assert params["em"] == ("hard" if "hard" in row.label else "soft")


def test_smote_on_labels_of_ds_is_iced_without_its_ways(script, mine):
    for data in script.SETS:
        (row,) = (r for r in mine if r.label == script.SMOTE and r.column == data.name)
        assert row.table == "iced2022/rivals"
        assert [name.partition(":")[2] for name in row.extra] == ["by_class", "inference"]
        model = row.make_estimator(0)
        assert (model.em, model.prior, model.synthesis) == ("soft", "estimated", "input")
        assert (model.synthetic_labels, model.warm_up) == ("intended", None)
        assert (model.sampler.delta, model.sampler.jitter) == ("random", 0.1)


def test_what_is_one_run_or_decided_by_gold_is_not_tested(script):
    untestable = {c["id"] for c in script.paper()["claims"] if c["test"]["kind"] == "untestable"}
    assert untestable == {
        "mbem",
        *(f"mv-labels-{c}-{s}" for c in ("lr", "dnn") for s in ("colposcopy", "reports")),
        "warm-up-trad_ii-product",
        "part-warm_up_at_once_trad_ii-product",
        "part-no_inference_majority_vote-reports",
    }


@pytest.mark.data
def test_of_three_votes_one_group_is_warmed_up_on(data_home):
    """So that on Product Trad-II and ICED-w are the same run."""
    table = load_product().annotations
    assert set(table.annotations_per_instance()) == {3}
    groups = certainty_groups(label_certainty(table), 3, by="levels")
    assert len(np.unique(groups[groups > 0])) == 1


@pytest.mark.data
def test_gold_of_two_sets_is_the_majority_vote(data_home):
    """As the claims on labels by MV say: ties of Colposcopy go to class 1, in Reports first."""
    data = load_colposcopy()
    shares = MajorityVote().fit(data.annotations).posterior_
    tied, right = shares[:, 0] == shares[:, 1], shares.argmax(axis=1) == data.y_train
    assert right[~tied].all()
    assert not right[tied].any()
    assert right.mean() == 0.875
    reports = load_reports()
    assert (MajorityVote().fit_predict(reports.annotations) == reports.y_train).all()


@pytest.mark.data
def test_epochs_with_synthetic_instances_are_so_much_longer(script, data_home):
    for data, loaded in ((script.PRODUCT, load_product()), (script.REPORTS, load_reports())):
        counts = np.unique(loaded.y_train, return_counts=True)[1]
        assert data.growth == pytest.approx(len(counts) * counts.max() / counts.sum(), abs=0.05)


def test_deviations_are_on_every_row(script):
    for name, row in script.rows():
        assert row["deviations"], name
        assert len(row["deviations"]) == len(set(row["deviations"])), name


# -- what the printed figures can be ----------------------------------------------------------


def f1_of(recall, of_other):
    """F1 of a class where both are equally frequent."""
    return 2 * recall / (1 + recall + 1 - of_other)


def fitting(accuracy, f1, n_test):
    """Right instances of either class that give the printed accuracy and macro-F1."""
    n, digits = n_test // 2, 0.5e-4 + 1e-9
    found = []
    for right in range(n_test + 1):
        if abs(right / n_test - accuracy) > digits:
            continue
        first = np.arange(max(0, right - n), min(n, right) + 1)
        a, b = first / n, (right - first) / n
        fits = np.abs((f1_of(a, b) + f1_of(b, a)) / 2 - f1) <= digits
        found += [(int(x), right - int(x)) for x in first[fits]]
    return found


EMOTION = {
    "MV+LR": (0.8289, 0.8277),
    "MV+DNN": (0.7944, 0.7901),
    "D&S+LR": (0.8311, 0.8294),
    "D&S+DNN": (0.7811, 0.7749),
    "Crowd-Layer": (0.8300, 0.8273),
    "MBEM": (0.6344, 0.5324),
    "ICED": (0.8644, 0.8640),
}
"""The paper's fourth column, of 900 test instances; it has no rows here."""


def test_printed_rows_are_counts_of_a_balanced_test_part_but_mbem(script):
    """So that each is one run, with macro-F1; and MBEM's was measured on something else."""
    for label, (accuracy, f1) in EMOTION.items():
        assert bool(fitting(accuracy, f1, 900)) == (label != "MBEM"), label
    for label, figures in script.PRINTED.items():
        for (accuracy, f1), n_test in zip(figures, script.TEST_SIZES, strict=True):
            assert bool(fitting(accuracy, f1, n_test)) == (label != "MBEM"), (label, n_test)


def test_mbems_figures_are_impossible_as_the_claim_says(script):
    of_one_class = []
    stated = ((0.666, 0.564), (0.770, 0.720), (0.647, 0.535), (0.578, 0.423))
    for (accuracy, f1), (macro, of_one) in zip(
        (*script.PRINTED["MBEM"], EMOTION["MBEM"]), stated, strict=True
    ):
        # All recalls of this mean.
        first = np.linspace(2 * accuracy - 1, 1, 100_001)
        second = 2 * accuracy - first
        lowest = ((f1_of(first, second) + f1_of(second, first)) / 2).min()
        assert macro == pytest.approx(lowest, abs=1e-3)
        assert of_one == pytest.approx(f1_of(first, second).min(), abs=1e-3)
        assert f1 < lowest - 0.04
        of_one_class.append(f1 < of_one - 0.04)
        for number in (f"{macro:.3f}", f"{of_one:.3f}", f"{accuracy:.4f}", f"{f1:.4f}"):
            assert number[1:] in script.WHY_MBEM
    # Taken for F1 of one class, GSAD's and Emotion's are possible.
    assert of_one_class == [True, True, False, False]
    # Of Emotion's test part alone the accuracy is a share.
    figures = (*script.PRINTED["MBEM"], EMOTION["MBEM"])
    for (accuracy, _), n_test in zip(figures, (*script.TEST_SIZES, 900), strict=True):
        shares = np.arange(n_test + 1) / n_test
        assert (np.abs(shares - accuracy).min() > 0.5e-4) == (n_test != 900)
