"""Crowds whose annotations decide nothing: no label of theirs is to be accepted."""

import warnings

import numpy as np
import pytest

from manyhands import AnnotationStore, AnnotationTable, DawidSkene, GoldCorrected, make_crowd
from manyhands.agreement import krippendorff_alpha
from manyhands.exceptions import NotIdentifiableWarning
from manyhands.inference.identifiability import (
    agreement_between_units,
    constant_annotators,
    grades_agree,
    identified,
    some_agree,
)
from manyhands.inference.votes import make_votes
from manyhands.io import consensus


def told(model, *given, **options):
    """Fit, and return what was said of identification."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(*given, **options)
    return [str(each.message) for each in caught if each.category is NotIdentifiableWarning]


def with_constants(answers, n=200, accuracy=0.9, share=0.275, seed=0):
    """A good annotator beside some who always give one answer."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    good = np.where(rng.random(n) < accuracy, y, 1 - y)
    return np.column_stack([good, *(np.full(n, answer) for answer in answers)]), y


@pytest.mark.parametrize("answers", [(1, 1), (0, 0), (0, 1), (1, 1, 1, 0)])
def test_constant_annotators_decide_nothing(answers):
    A, y = with_constants(answers)
    model = DawidSkene()
    (said,) = told(model, A, groups={})
    assert said.startswith("annotators 1, 2")
    assert "gave the same answer every time, and without them hardly any instance has" in said
    assert not model.identified_.any()
    table = AnnotationTable.from_matrix(A)
    assert not (consensus(table, model.posterior_).actions == "accept").any()
    # Gold says who is right.
    gold = {i: int(y[i]) for i in range(20)}
    corrected = GoldCorrected()
    assert not told(corrected, A, gold=gold, groups={})
    assert corrected.identified_.all()
    assert (corrected.labels_ == y)[20:].mean() > 0.8


def test_known_labels_are_accepted_all_the_same():
    A, y = with_constants((1, 1))
    model = DawidSkene()
    told(model, A, gold={i: int(y[i]) for i in range(5)}, groups={})
    np.testing.assert_array_equal(model.identified_, np.arange(200) < 5)


def test_constant_annotators_among_enough_others_do_not_matter():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    good = [np.where(rng.random(200) < 0.85, y, 1 - y) for _ in range(3)]
    A = np.column_stack([*good, np.ones((200, 2), dtype=int)])
    model = DawidSkene()
    assert not told(model, A, groups={})
    assert model.identified_.all()
    votes = make_votes(AnnotationTable.from_matrix(A))
    np.testing.assert_array_equal(constant_annotators(votes), [False] * 3 + [True] * 2)


def test_a_frequent_class_makes_nobody_constant():
    """All give the frequent class nearly always, and rightly so."""
    rng = np.random.default_rng(0)
    y = (rng.random(2000) < 0.01).astype(int)
    A = np.where(rng.random((2000, 3)) < 0.995, y[:, None], 1 - y[:, None])
    A[:, 2] = 0
    model = DawidSkene()
    assert not told(model, A, groups={})
    assert model.identified_.all()


@pytest.mark.parametrize("n_classes", [2, 5])
def test_agreement_by_chance_decides_nothing(n_classes):
    """Such as ratings by people who did not read: one grade once got everything, with certainty."""
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.full(n_classes, 5.0))
    A = rng.choice(n_classes, size=(400, 6), p=shares)
    model = DawidSkene()
    said = told(model, A, groups={})
    assert any(each.startswith("nothing shows that the annotators agree better") for each in said)
    assert not model.identified_.any()
    assert not (
        consensus(AnnotationTable.from_matrix(A), model.posterior_).actions == "accept"
    ).any()


def test_a_collapse_is_told_of():
    """Agreement hardly above chance, and a fit with one class left."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 4, 3000)
    A = np.where(rng.random((3000, 5)) < 0.12, y[:, None], rng.integers(0, 4, (3000, 5)))
    table = AnnotationTable.from_matrix(A)
    assert not agreement_between_units(make_votes(table)).is_chance
    posterior = np.tile([0.994, 0.002, 0.002, 0.002], (3000, 1))
    assert identified(table, np.full((3000, 4), 0.25)).all()
    assert not identified(table, posterior).any()


def test_two_good_annotators_among_poor_ones_decide():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    skill = np.array([0.95, 0.9, 0.55, 0.55, 0.55, 0.55, 0.5, 0.5])
    A = np.where(rng.random((200, 8)) < skill, y[:, None], 1 - y[:, None])
    votes = make_votes(AnnotationTable.from_matrix(A))
    assert some_agree(votes)
    model = DawidSkene()
    assert not told(model, A, groups={})
    assert (model.labels_ == y).mean() > 0.9


def test_few_instances_are_not_judged():
    rng = np.random.default_rng(0)
    assert not told(DawidSkene(), rng.integers(0, 2, (12, 3)), groups={})


@pytest.mark.parametrize("seed", range(3))
def test_ordinary_crowds_are_identified(seed):
    table = make_crowd(
        np.random.default_rng(seed).integers(0, 3, 300), annotations_per_instance=3,
        n_annotators=20, random_state=seed,
    )  # fmt: skip
    model = DawidSkene()
    assert not told(model, table)
    assert model.identified_.all()


def test_alpha_is_krippendorffs():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    A = np.where(rng.random((300, 6)) < 0.5, y[:, None], rng.integers(0, 3, (300, 6)))
    A[rng.random(A.shape) < 0.4] = -1
    table = AnnotationTable.from_matrix(A)
    found = agreement_between_units(make_votes(table))
    assert found.alpha == pytest.approx(krippendorff_alpha(table))
    assert found.low < found.alpha < found.high


def test_the_interval_of_alpha_covers():
    """At chance its lower end is above 0 in about 2.5 % of crowds."""
    rng = np.random.default_rng(0)
    above = [
        not agreement_between_units(
            make_votes(AnnotationTable.from_matrix(rng.integers(0, 3, (80, 4))))
        ).is_chance
        for _ in range(400)
    ]
    assert 0.005 < np.mean(above) < 0.05


def test_agreement_within_a_family_is_none():
    rng = np.random.default_rng(0)
    machine, person = rng.integers(0, 3, (2, 300))
    A = np.column_stack([machine, machine, machine, person])
    table = AnnotationTable.from_matrix(A)
    family = table.with_groups(dict.fromkeys(range(3), "llm"))
    assert not agreement_between_units(make_votes(table)).is_chance
    assert agreement_between_units(make_votes(family)).is_chance


def test_a_store_is_judged_as_its_table_is(tmp_path):
    A, _ = with_constants((1, 1), n=600)
    table = AnnotationTable.from_matrix(A)
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=300)
    assert told(DawidSkene(), store) == told(DawidSkene(), table, groups={})


def grades(noise, *, seed=0, n=100, votes=3, n_classes=9):
    """Grades that 40 annotators see with noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    row = np.repeat(np.arange(n), votes)
    who = np.argsort(rng.random((n, 40)), axis=1)[:, :votes].ravel()
    seen = np.rint(y[row] + noise * rng.normal(size=len(row))).clip(0, n_classes - 1).astype(int)
    table = AnnotationTable.from_arrays(
        row, who, seen, classes=list(range(n_classes)), n_annotators=40, ordered=True
    )
    return table, y


def test_annotators_who_never_give_the_same_grade_may_agree_on_grades():
    table, _ = grades(4, seed=1)
    votes = make_votes(table)
    assert agreement_between_units(votes).is_chance
    assert grades_agree(votes)
    model = DawidSkene()
    assert not told(model, table)
    assert model.identified_.all()
    (said,) = told(model, table.with_scale("nominal"))
    assert said.startswith("nothing shows that the annotators agree better than by chance")
    # Members of one family vouch for each other only.
    family = table.with_groups(dict.fromkeys(range(40), "models"))
    assert not grades_agree(make_votes(family))


def test_a_collapse_that_the_held_shares_of_grades_hide_is_told():
    """Raters with habits of their own, who see the true grade one time in ten."""
    rng = np.random.default_rng(1)
    n, n_annotators, votes = 400, 15, 5
    habits = rng.dirichlet([0.75, 1.5, 3, 1.5, 0.75], n_annotators).cumsum(axis=1)
    y = rng.integers(0, 5, n)
    row = np.repeat(np.arange(n), votes)
    who = np.argsort(rng.random((n, n_annotators)), axis=1)[:, :votes].ravel()
    label = (rng.random((n * votes, 1)) > habits[who]).sum(axis=1).clip(max=4)
    label = np.where(rng.random(n * votes) < 0.1, y[row], label)
    table = AnnotationTable.from_arrays(
        row, who, label, classes=list(range(5)), n_annotators=n_annotators, ordered=True
    )
    assert not agreement_between_units(make_votes(table)).is_chance
    model = DawidSkene()
    (said,) = told(model, table)
    assert "If grades were treated as mere names, " in said
    assert model.class_prior_.max() < 0.9
    assert not model.identified_.any()
    assert not (consensus(table, model).actions == "accept").any()


FIRED = {"metlit5", "metlit5, grades"}
"""Real tables whose annotations decide nothing; on metlit5 the fit gives one of six grades all."""


@pytest.mark.data
def test_real_tables_are_identified_but_for_one(data_home):
    from manyhands.datasets import AGGREGATION_SETS, load_aggregation, load_judgebench
    from manyhands.io import read_annotations

    tables = {
        name: load_aggregation(name, data_home, duplicates="last").annotations
        for name in AGGREGATION_SETS
    }
    tables["judgebench"] = load_judgebench(data_home).annotations
    for name in ("polit6", "polit6e", "metlit5"):
        path = data_home / "ordinal" / name / "annotations.csv.gz"
        tables[name] = read_annotations(path, duplicates="last")
        tables[f"{name}, grades"] = tables[name].with_scale("ordinal")
    for name in ("10k_prompts", "cebab_stars", "framing", "lgbteen", "mtbench", "summeval"):
        path = data_home / "judges" / name / "annotations.csv"
        tables[name] = read_annotations(path, group="family", duplicates="last")
    fired = set()
    for name, table in tables.items():
        model = DawidSkene()
        said = told(model, table.with_groups({}))
        assert model.identified_.all() == (name not in FIRED), (name, said)
        if not identified(table, model.posterior_).all():
            fired.add(name)
    assert fired == FIRED
