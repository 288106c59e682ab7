"""What holds for every truth-inference method."""

import json
import pickle
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone

from manyhands import (
    EBCC,
    IBCC,
    MACE,
    AnnotationTable,
    CrowdLab,
    DawidSkene,
    MajorityVote,
    WorkerClustering,
    load,
    save,
)
from manyhands.exceptions import AnnotationError, ModelFolderError
from manyhands.inference.inputs import gold_codes
from manyhands.inference.votes import Votes
from manyhands.registry import all_aggregators, find_aggregator

# Random tables need not have two annotations of any instance.
pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")

AGGREGATORS = [cls for _, cls in all_aggregators()]
methods = pytest.mark.parametrize("cls", AGGREGATORS)
WARM = [cls for cls in AGGREGATORS if cls.traits.uses_start]
COLD = [cls for cls in AGGREGATORS if not cls.traits.uses_start]


def tables(min_instances=2):
    """Random matrices of 3 classes with at least one annotation."""
    shape = st.tuples(st.integers(min_instances, 10), st.integers(1, 5))
    return arrays(np.int64, shape, elements=st.integers(-1, 2)).filter(lambda A: (A >= 0).any())


def crowd(seed=0, n=300, r=12, c=3, per_instance=5):
    """Annotators of mixed skill: matrix of annotations, true classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, c, n)
    skill = np.linspace(0.5, 0.95, r)
    A = np.where(rng.random((n, r)) < skill, y[:, None], rng.integers(0, c, (n, r)))
    silent = rng.random((n, r)).argsort(axis=1) >= per_instance
    A[silent] = -1
    return A, y


def with_known(cls, **parameters):
    """Make a method with those of the parameters that it has."""
    known = cls().get_params()
    return cls(**{name: value for name, value in parameters.items() if name in known})


def few_steps(cls, max_iter=2):
    """Make a method that ends after a few steps of one start."""
    return with_known(cls, n_restarts=1, max_iter=max_iter)


def few_starts(cls, **parameters):
    """Make a method that starts twice, where it would ten times."""
    return with_known(cls, n_restarts=2, **parameters)


def check_result(model, n, r, c):
    assert model.posterior_.shape == (n, c)
    assert np.isfinite(model.posterior_).all()
    assert (model.posterior_ >= 0).all()
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_allclose(model.class_prior_.sum(), 1)
    assert model.annotator_accuracy_.shape == (r,)
    assert np.isfinite(model.annotator_accuracy_).all()
    assert model.confusion_.shape == (r, c, c)
    np.testing.assert_allclose(model.confusion_.sum(axis=2), 1)
    assert model.log_likelihood_.shape in ((model.n_iter_,), (0,))


@methods
def test_does_better_than_the_annotators(cls):
    A, y = crowd()
    model = cls().fit(A)
    check_result(model, 300, 12, 3)
    annotators = [(A[A[:, r] >= 0, r] == y[A[:, r] >= 0]).mean() for r in range(12)]
    assert (model.labels_ == y).mean() > 0.88 > np.mean(annotators) + 0.05


@methods
@given(A=tables())
@settings(max_examples=6, deadline=None)
def test_any_table_gives_probabilities(cls, A):
    model = few_starts(cls).fit(AnnotationTable.from_matrix(A, classes=range(3)))
    check_result(model, *A.shape, 3)


@methods
def test_the_page_says_what_is_estimated_of_an_annotator(cls):
    page = (Path(__file__).parents[2] / "docs" / "inference.md").read_text()
    table = page.partition("| method | attribute | without annotations |")[2].partition("\n\n")[0]
    rows = [row.split("|") for row in table.splitlines() if f"`{cls.__name__}`" in row]
    assert rows, f'add {cls.__name__} to the table under "What annotations mean" of inference.md'
    A, y = crowd(n=60)
    model = few_steps(cls).fit(A, gold=dict(enumerate(y[:20])), groups={})
    for name in re.findall(r"`(\w+_)`", rows[0][2]):
        assert len(getattr(model, name)) == A.shape[1], name


@methods
def test_hundreds_of_annotations_an_instance_do_not_underflow(cls):
    rng = np.random.default_rng(0)
    y = np.arange(10)
    A = np.where(rng.random((10, 500)) < 0.3, y[:, None], rng.integers(0, 10, (10, 500)))
    p = np.where(y[:, None] == A, 0.37, 0.07)
    assert (np.prod(p, axis=1) == 0).all(), "plain products would underflow"
    model = few_starts(cls).fit(A)
    assert np.isfinite(model.posterior_).all()
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)
    np.testing.assert_array_equal(model.labels_, y)


@methods
def test_shards_change_nothing(cls, monkeypatch):
    A, y = crowd(n=60)
    A[5] = A[47] = -1
    gold = [c if i % 9 == 0 else None for i, c in enumerate(y)]
    whole = few_starts(cls, max_iter=5).fit(A, gold=gold)
    cut = Votes.shards
    monkeypatch.setattr(Votes, "shards", lambda votes, size=None: cut(votes, 40))
    parts = few_starts(cls, max_iter=5).fit(A, gold=gold)
    np.testing.assert_allclose(parts.posterior_, whole.posterior_, atol=1e-7)
    np.testing.assert_allclose(parts.annotator_accuracy_, whole.annotator_accuracy_, atol=1e-7)
    np.testing.assert_allclose(parts.predict_proba(A), whole.predict_proba(A), atol=1e-7)


@methods
def test_nothing_of_size_instances_times_annotators(cls):
    """20,000 x 20,000 cells, of which 6,000 hold an annotation."""
    rng = np.random.default_rng(0)
    place, who = rng.choice(20_000, 3_000), rng.choice(20_000, 3_000)
    table = AnnotationTable.from_arrays(
        np.repeat(place, 2),
        np.stack([who, (who + 1) % 20_000], axis=1).ravel(),
        rng.integers(0, 2, 6_000),
        n_instances=20_000,
        n_annotators=20_000,
        duplicates="last",
    )
    tracemalloc.start()
    try:
        few_steps(cls).fit(table)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.17e9, "one byte per cell would be 0.4 GB"


@methods
@given(A=tables(), seed=st.integers(0, 99))
@settings(max_examples=6, deadline=None)
def test_permuting_and_relabelling_permutes_and_relabels(cls, A, seed):
    rng = np.random.default_rng(seed)
    rows, columns, classes = (rng.permutation(k) for k in (*A.shape, 3))
    model = few_starts(cls, max_iter=25, dependence=0.2)  # Its estimate is a random number.
    plain = clone(model).fit(AnnotationTable.from_matrix(A, classes=range(3)))
    B = np.where(A >= 0, classes[A], -1)[rows][:, columns]
    other = model.fit(AnnotationTable.from_matrix(B, classes=range(3)))
    np.testing.assert_allclose(other.posterior_[:, classes], plain.posterior_[rows], atol=1e-6)
    moved = other.confusion_[:, classes][:, :, classes]
    np.testing.assert_allclose(moved, plain.confusion_[columns], atol=1e-6)


@methods
def test_fitted_attributes(cls):
    A = np.array([["x", "x", "x"], ["y", "y", None], [None, None, None]], dtype=object)
    model = cls()
    labels = model.fit_predict(A)
    assert labels.dtype.kind == "U"
    assert labels[:2].tolist() == ["x", "y"]
    check_result(model, 3, 3, 2)
    np.testing.assert_array_equal(cls().fit_predict_proba(A), model.posterior_)
    # The instance without annotations gets what is known without any: the class prior.
    np.testing.assert_allclose(model.posterior_[2], model.class_prior_, atol=1e-3)


@methods
def test_silent_annotator_and_adversary(cls):
    y = np.arange(30) % 3
    A = np.column_stack([y, y, y, (y + 1) % 3, np.full(30, -1)])
    model = cls().fit(A)
    np.testing.assert_array_equal(model.labels_, y)
    assert model.annotator_accuracy_[3] < 0.5 < model.annotator_accuracy_[0]
    assert np.isfinite(model.confusion_).all()


restarted = pytest.mark.parametrize("cls", [EBCC, MACE, WorkerClustering])


@restarted
@pytest.mark.parametrize(("seed", "n"), [(0, 100), (1, 200)])
def test_three_adversaries_of_seven_do_not_swap_the_classes(cls, seed, n):
    """The maximum in which the adversaries are right often has the better bound."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    is_right = rng.random((n, 7)) < np.array([0.85] * 4 + [0.05] * 3)
    A = np.where(is_right, y[:, None], 1 - y[:, None])
    model = cls().fit(A)
    assert (model.labels_ == y).mean() > 0.9
    np.testing.assert_array_equal(cls().fit(1 - A).labels_, 1 - model.labels_)


@pytest.mark.parametrize("model", [MACE(class_prior="uniform"), WorkerClustering()])
def test_spammers_do_not_vouch_for_each_other(model):
    """Four who always give the rare class agree with each other, but tell nothing."""
    rng = np.random.default_rng(0)
    y = (rng.random(300) < 0.2).astype(int)
    two = np.where(rng.random((300, 2)) < 0.95, y[:, None], 1 - y[:, None])
    A = np.column_stack([two, np.ones((300, 4), int)])
    assert (model.fit(A).labels_ == y).mean() > 0.9


@methods
def test_constant_annotators_do_not_carry_the_day(cls):
    y = np.arange(60) % 3
    A = np.column_stack([y, y, y, np.full(60, 2), np.full(60, 2)])
    np.testing.assert_array_equal(cls().fit(A).labels_, y)


@methods
def test_one_annotator_is_believed(cls):
    y = np.arange(30) % 3
    model = cls().fit(np.append(y, -1)[:, None])
    np.testing.assert_array_equal(model.labels_[:30], y)


@methods
@pytest.mark.parametrize("n_annotators", [1, 10])
def test_annotations_nobody_contradicts_are_the_labels(cls, n_annotators):
    given = np.where(np.arange(100) % 10 == 0, 1, 0)
    table = AnnotationTable.from_arrays(range(100), np.arange(100) % n_annotators, given)
    model = few_starts(cls).fit(table)
    np.testing.assert_array_equal(model.labels_, given)
    assert (model.annotator_accuracy_ > 0.5).all()


@methods
def test_one_instance(cls):
    model = cls().fit(AnnotationTable.from_matrix([[0, 1, 0]], classes=[0, 1]))
    assert model.labels_.tolist() == [0]


@methods
@pytest.mark.parametrize(
    ("A", "message"),
    [
        (np.full((3, 2), -1), "table is empty"),
        (np.ones((3, 2), dtype=int), r"one class only, 1 \(6 annotations\)"),
    ],
)
def test_nothing_to_infer_is_an_error(cls, A, message):
    with pytest.raises(AnnotationError, match=message):
        cls().fit(A)


@methods
def test_all_weights_zero_is_an_error(cls):
    table = AnnotationTable.from_arrays([0, 1], [0, 0], [0, 1], weight=[0.0, 0.0])
    with pytest.raises(AnnotationError, match="all weights of table are 0"):
        cls().fit(table)


@methods
def test_a_class_nobody_gave_is_no_trouble(cls):
    table = AnnotationTable.from_matrix([[0, 0], [1, 1]], classes=[0, 1, 2])
    model = cls().fit(table)
    assert model.labels_.tolist() == [0, 1]
    assert np.isfinite(model.posterior_).all()


@pytest.mark.parametrize(
    ("cls", "class_prior"),
    [
        (cls, class_prior)
        for cls in AGGREGATORS
        for class_prior in ("estimated", "uniform")
        if class_prior == "estimated" or "class_prior" in cls().get_params()
    ],
)
def test_a_class_nobody_gave_is_improbable_unless_gold_names_it(cls, class_prior):
    A, _ = crowd(n=60)
    model = few_starts(cls, class_prior=class_prior)
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2, 3])
    model.fit(table)
    # IBCC gives every class a pseudo-instance. CrowdLab shares the doubt in an annotation equally
    # among all other classes.
    doubt = 1 - getattr(model, "agreement_", 1.0)
    most = {IBCC: 1 / 60, CrowdLab: doubt / 3}.get(cls, 0.0)
    assert model.posterior_[:, 3].max() <= most + 1e-9
    model.fit(table, gold={0: 3})
    np.testing.assert_allclose(model.posterior_[0], [0, 0, 0, 1], atol=1e-9)
    assert model.class_prior_[3] > 0


@methods
def test_weights_are_repetitions_and_zero_is_absence(cls):
    A, _ = crowd(n=40)
    table = AnnotationTable.from_matrix(A)
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 3, table.n_annotations)
    repeated = table.take(np.repeat(np.arange(table.n_annotations), weight))
    weighted = AnnotationTable.from_arrays(
        table.instance,
        table.annotator,
        table.label,
        n_instances=40,
        n_annotators=12,
        weight=weight,
    )
    model = few_starts(cls, dependence=0.2)
    one, other = clone(model).fit(weighted), model.fit(repeated)
    np.testing.assert_allclose(one.posterior_, other.posterior_, atol=1e-6)


@methods
def test_gold_is_kept_and_teaches(cls):
    """Three liars against two honest annotators: gold tells who is who."""
    y = np.arange(40) % 2
    A = np.column_stack([1 - y, 1 - y, y, y, 1 - y])
    gold = {i: y[i] for i in range(20)}
    table = AnnotationTable.from_matrix(A)
    model = few_starts(cls).fit(table, gold=gold)
    np.testing.assert_array_equal(model.labels_[:20], y[:20])
    np.testing.assert_allclose(model.posterior_[np.arange(20), y[:20]], 1)
    as_array = [*y[:20].tolist(), *[None] * 20]
    again = few_starts(cls).fit(table, gold=as_array)
    np.testing.assert_array_equal(again.posterior_, model.posterior_)
    without = few_starts(cls).fit(table)
    assert model.annotator_accuracy_[2] > without.annotator_accuracy_[2]
    alone = AnnotationTable.from_matrix([[0, 0], [1, 1], [-1, -1]])
    assert cls().fit(alone, gold={2: 1}).labels_.tolist() == [0, 1, 1]


@methods
def test_new_instances_by_known_annotators(cls):
    A, y = crowd(n=400)
    model = few_starts(cls).fit(A[:300])
    posterior = model.predict_proba(A[300:])
    np.testing.assert_allclose(posterior.sum(axis=1), 1)
    assert (model.predict(A[300:]) == y[300:]).mean() > 0.88
    nothing = model.predict_proba(np.full((1, 12), -1))
    np.testing.assert_allclose(nothing[0], model.class_prior_, atol=1e-3)
    if not cls.traits.learns_instances:
        model = few_starts(cls, dependence=0).fit(A[:300])
        np.testing.assert_allclose(model.predict_proba(A[:300]), model.posterior_, atol=2e-2)


@methods
def test_annotators_are_matched_by_id(cls):
    A, _ = crowd(n=60)
    ids = [f"a{j}" for j in range(12)]
    model = few_starts(cls).fit(AnnotationTable.from_matrix(A, annotators=ids))
    backwards = AnnotationTable.from_matrix(A[:, ::-1], annotators=ids[::-1])
    np.testing.assert_allclose(model.predict_proba(backwards), model.predict_proba(A), atol=1e-9)
    stranger = AnnotationTable.from_matrix([[0, 1]], annotators=["a0", "zoe"])
    with pytest.raises(AnnotationError, match=r"'zoe'.*partial_fit"):
        model.predict_proba(stranger)
    with pytest.raises(AnnotationError, match="matrix of 3 columns"):
        model.predict_proba(A[:, :3])
    # What a stranger skipped tells nothing, so it is no matter who it was.
    skipped = AnnotationTable.from_matrix(
        [[0, "no"]], classes=range(3), annotators=["a0", "zoe"], skip="no"
    )
    assert model.predict_proba(skipped).shape == (1, 3)


@pytest.mark.parametrize("cls", [c for c in AGGREGATORS if not c.traits.has_several_maxima])
def test_pieces_give_what_one_fit_gives(cls):
    A, _ = crowd(n=150)
    A[:50, 8:] = -1  # The last four annotators come later.
    model = few_starts(cls, tol=1e-7, max_iter=2000)
    whole = clone(model).fit(AnnotationTable.from_matrix(A))
    for first, last in ((0, 50), (50, 100), (100, 150)):
        columns = 8 if first == 0 else 12
        model.partial_fit(
            AnnotationTable.from_matrix(
                A[first:last, :columns], classes=range(3), instances=range(first, last)
            )
        )
    assert model.table_.shape == (150, 12)
    np.testing.assert_allclose(model.posterior_, whole.posterior_, atol=1e-2)
    np.testing.assert_allclose(model.annotator_accuracy_, whole.annotator_accuracy_, atol=1e-2)


@methods
def test_partial_fit_after_repeated_pairs(cls):
    table = AnnotationTable.from_arrays(
        [0, 0, 0, 1, 1, 2, 2], [0, 1, 1, 0, 1, 0, 1], [0, 0, 1, 1, 1, 0, 0], duplicates="keep"
    )
    model = few_steps(cls).fit(table)
    new = AnnotationTable.from_matrix([[0, 1]], instances=[3], annotators=[0, 7])
    assert model.partial_fit(new).posterior_.shape == (4, 2)
    before = model.posterior_
    with pytest.raises(AnnotationError, match=r"all 2 annotations are known already.*the same ta"):
        model.partial_fit(new)
    with pytest.warns(UserWarning, match=r"all 2 are known, with the same labels"):
        model.partial_fit(new, duplicates="last")
    assert model.posterior_ is before
    assert model.partial_fit(new, duplicates="keep").table_.n_annotations == 11
    changed = AnnotationTable.from_matrix([[0, 1, 1]], instances=[3], annotators=[0, 7, 8])
    with pytest.raises(AnnotationError, match=r"2 \(instance, annotator\) pairs are repeated"):
        model.partial_fit(changed)


@methods
@pytest.mark.parametrize("refit", ["fit", "partial_fit"])
def test_a_fit_that_fails_midway_leaves_all_as_it_was(cls, refit, monkeypatch):
    A, _ = crowd(n=20)
    model = few_steps(cls).fit(A)
    model.confusion_  # noqa: B018 - computed on access by some
    before = dict(vars(model))
    later = AnnotationTable.from_matrix(A[:, :9], instances=range(20, 40), classes=range(3))
    inferred = []

    def fail(votes, posterior, *rest):
        inferred.append(posterior)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("manyhands.inference.votes.Votes.labels", fail)
        with pytest.raises(KeyboardInterrupt):
            getattr(model, refit)(later)
    assert len(inferred[0]) > 0
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    assert model.partial_fit(later).posterior_.shape == (40, 3)


@methods
def test_partial_fit_keeps_gold_and_refuses_the_same_pair(cls):
    A, _ = crowd(n=30)
    model = few_starts(cls).partial_fit(A, gold={0: 2})
    model.partial_fit(AnnotationTable.from_matrix([[0, 0, 1]], instances=[30], classes=range(3)))
    again = AnnotationTable.from_matrix([[2, 2, 2]], instances=[30], classes=range(3))
    model.partial_fit(again, duplicates="last")
    assert model.labels_[30] == 2
    assert model.labels_[0] == 2
    assert model.posterior_.shape == (31, 3)
    with pytest.raises(AnnotationError, match="known already"):
        model.partial_fit(AnnotationTable.from_matrix(A[:1]))
    with pytest.raises(AnnotationError, match="fitted classes"):
        model.partial_fit(AnnotationTable.from_matrix([["x", "y"]]))


def test_rows_without_ids_are_taken_for_those_of_before_with_a_warning():
    A, B = np.array([[0, 1], [1, 1], [0, 0]]), np.array([[-1, -1, 1], [-1, -1, 0]])
    says = r"2 of the 2 rows .* before.*instances=range\(3, 5\)"
    with pytest.warns(UserWarning, match=says) as told:
        merged = DawidSkene().fit(A).partial_fit(B)
    assert len(told) == 1
    assert merged.table_.shape == (3, 3)
    named = AnnotationTable.from_matrix(B, instances=range(3, 5))
    assert DawidSkene().fit(A).partial_fit(named).table_.shape == (5, 3)
    # Rows that are named, empty, or known to repeat are what they seem.
    DawidSkene().fit(A).partial_fit(AnnotationTable.from_matrix(B, instances=[0, 1]))
    DawidSkene().fit(A).partial_fit(np.vstack([np.full((3, 2), -1), [[0, 1]]]))
    DawidSkene().fit(A).partial_fit(1 - A, duplicates="last")


@methods
def test_fitting_again_forgets_what_was(cls):
    A, _ = crowd(n=50)
    model = few_starts(cls, max_iter=5).fit(A)
    model.confusion_  # noqa: B018 - computed when asked for, by some
    model.fit(A[:20, :4])
    assert model.confusion_.shape == (4, 3, 3)
    fresh = clone(model).fit(A[:20, :4])
    np.testing.assert_array_equal(fresh.posterior_, model.posterior_)


@methods
def test_a_saved_aggregator_goes_on(cls, tmp_path):
    A, _ = crowd(n=60)
    ids = [f"task {i}" for i in range(60)]
    table = AnnotationTable.from_matrix(A, instances=ids, annotators=list("abcdefghijkl"))
    model = few_starts(cls, max_iter=5).fit(table[:40], gold={"task 0": 0, "task 1": 1})
    model.confusion_  # noqa: B018 - computed on access by some
    again = load(save(model, tmp_path / "model"))
    assert type(again) is cls
    assert vars(again).keys() == vars(model).keys()
    np.testing.assert_array_equal(again.predict_proba(table[40:]), model.predict_proba(table[40:]))
    model.partial_fit(table[40:])
    again.partial_fit(table[40:])
    np.testing.assert_array_equal(again.posterior_, model.posterior_)
    assert again.labels_[:2].tolist() == [0, 1]  # Known labels are kept.
    assert again.table_.instances.tolist() == ids


SAVED = {
    "gold": {"n_gold": 20},
    "gold and families found": {"n_gold": 30, "r": 5, "per_instance": 5},
    "gold and families declared": {"n_gold": 55, "groups": {"a": "x", "b": "x"}},
    "abstentions": {"abstain": True},
    "little gold": {"n_gold": 3, "c": 2},
}
"""What a fit may rest on: each keeps something else in the aggregator."""


@methods
@pytest.mark.parametrize("case", SAVED)
def test_every_aggregator_can_be_saved_whatever_it_was_fitted_to(cls, case, tmp_path):
    given = {"n_gold": 0, "r": 12, "c": 3, "per_instance": 5, "groups": None} | SAVED[case]
    A, y = crowd(n=80, r=given["r"], c=given["c"], per_instance=given["per_instance"])
    names = list("abcdefghijkl")[: given["r"]]
    table = AnnotationTable.from_matrix(A, annotators=names)
    if given.get("abstain"):
        frame = table.to_frame().astype({"label": str})
        frame.loc[::7, "label"] = "unsure"
        table = AnnotationTable.from_frame(frame, abstain="unsure")
        y = y.astype(str)
    gold = dict(zip(table.instances.tolist(), y[: given["n_gold"]].tolist(), strict=False))
    model = few_starts(cls, max_iter=5)
    model.fit(table[:60], gold=gold or None, groups=given["groups"])
    if cls.__name__ == "GoldCorrected":
        assert model.corrected_ == (given["n_gold"] >= (50 if given["groups"] else 10))
    again = load(save(model, tmp_path / "model"))
    np.testing.assert_array_equal(again.posterior_, model.posterior_)
    assert again.labels_.tolist() == model.labels_.tolist()
    np.testing.assert_array_equal(again.predict_proba(table[60:]), model.predict_proba(table[60:]))
    np.testing.assert_array_equal(again.annotator_accuracy_, model.annotator_accuracy_)
    twice = load(save(again, tmp_path / "again"))
    np.testing.assert_array_equal(twice.predict_proba(table), model.predict_proba(table))


def test_saved_values_stay_what_they_were(tmp_path):
    table = AnnotationTable.from_arrays(
        ["a", "a", "b", "b"], ["x", "y", "x", "z"], ["no", "yes", "no", "no"], classes=["no", "yes"]
    ).with_groups({"x": "family", "y": "family"})
    history = {"x": [[3, 1], [0, 2]]}
    model = DawidSkene(random_state=np.random.RandomState(0), tol=np.float64(1e-4))
    again = load(save(model.fit(table, history=history), tmp_path))
    assert again.random_state is None
    assert type(again.tol) is np.float64
    assert again.table_.groups.tolist() == table.groups.tolist()
    assert again.table_.instance_order.kind == table.instance_order.kind
    told, plain = (DawidSkene().fit(table, history=fit).confusion_ for fit in (again, model))
    np.testing.assert_array_equal(told, plain)
    assert again.labels_.tolist() == model.labels_.tolist()


def test_an_altered_aggregator_is_refused(tmp_path):
    folder = save(DawidSkene().fit(crowd(n=30)[0]), tmp_path / "model")
    described = json.loads((folder / "model.json").read_text())
    for change in (
        {"class": "CrowdLayerClassifier"},
        {"class": "nobody"},
        {"parameters": {"max_iter": 7}},
        {"fitted": {"table_": {"$record": "Path", "fields": {}}}},
        {"fitted": {"posterior_": {"$array": "nobody"}}},
    ):
        (folder / "model.json").write_text(json.dumps(described | change))
        with pytest.raises(ModelFolderError, match=r"damaged|altered|does not know|no parameter"):
            load(folder)
    model = CrowdLab().fit(crowd(n=30)[0], proba=np.full((30, 3), 1 / 3))
    model.note_ = object()
    with pytest.raises(AnnotationError, match="note_ is of type object, which cannot be saved"):
        save(model, tmp_path / "other")


@methods
def test_pickles(cls):
    A, _ = crowd(n=80)
    model = with_known(cls, n_restarts=1)
    model.fit(A)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(A), model.predict_proba(A))


@pytest.mark.parametrize("cls", WARM)
def test_starts_where_told(cls):
    A, _ = crowd(n=80)
    model = with_known(cls, n_restarts=1).fit(A)
    warm = clone(model).fit(A, start=model.posterior_)
    np.testing.assert_array_equal(warm.labels_, model.labels_)
    assert warm.n_iter_ <= model.n_iter_


@pytest.mark.parametrize("cls", COLD)
def test_a_start_without_effect_is_refused(cls, monkeypatch):
    A, _ = crowd(n=40)
    model, start = cls(), np.random.default_rng(0).dirichlet(np.ones(3), 40)
    says = f"start= has no effect, because {cls.__name__} does not iterate from a posterior; leave"
    with pytest.raises(AnnotationError, match=says):
        model.fit(A, start=start)
    assert not hasattr(model, "posterior_")
    # What is refused has indeed no effect.
    expected = cls().fit(A).posterior_
    monkeypatch.setattr(cls, "traits", replace(cls.traits, uses_start=True))
    np.testing.assert_array_equal(cls().fit(A, start=start).posterior_, expected)


@pytest.mark.parametrize("cls", WARM)
def test_the_start_is_checked_and_not_overwritten(cls):
    A, _ = crowd(n=10)
    start = np.full((10, 3), 1 / 3)
    few_steps(cls).fit(A, start=start)
    assert (start == 1 / 3).all()
    with pytest.raises(AnnotationError, match=r"start has shape \(2, 3\)"):
        cls().fit(A, start=start[:2])
    with pytest.raises(AnnotationError, match="start is not a distribution in row 0"):
        cls().fit(A, start=start * 2)


@pytest.mark.parametrize("cls", [c for c in AGGREGATORS if c.__name__ != "EBCC"])
def test_hundreds_of_classes(cls):
    """EBCC keeps R * C^2 * n_subtypes numbers, as its page says: too many here."""
    rng = np.random.default_rng(0)
    table = AnnotationTable.from_matrix(rng.integers(0, 500, (20, 2)), classes=range(500))
    model = few_steps(cls).fit(table)
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)


@methods
def test_huge_sparse_ids(cls):
    table = AnnotationTable.from_arrays(
        ["9" * 15, "x", "9" * 15, "x"], ["ann", "ann", "ben", "ben"], [0, 1, 0, 1]
    )
    assert cls().fit_predict(table).tolist() == [0, 1]


@methods
def test_the_global_generator_is_left_alone(cls):
    A, _ = crowd(n=20)
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    few_steps(cls).fit(A)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_gold_is_read_and_checked():
    table = AnnotationTable.from_matrix([["x", "y"], ["y", "y"], ["x", "x"]], instances=[5, 6, 7])
    assert gold_codes({6: "x"}, table).tolist() == [-1, 0, -1]
    assert gold_codes(["y", None, "x"], table).tolist() == [1, -1, 0]
    series = pd.Series(["x", None], index=[7, 5])
    assert gold_codes(series, table).tolist() == [-1, -1, 0]
    assert gold_codes({}, table).tolist() == [-1, -1, -1]
    numbers = AnnotationTable.from_matrix([[0, 1], [1, 1]])
    assert gold_codes(np.array([-1, 1]), numbers).tolist() == [-1, 1]
    assert gold_codes(np.array([np.nan, 1.0]), numbers).tolist() == [-1, 1]
    signs = AnnotationTable.from_matrix([[-1, 1], [1, 1]], classes=[-1, 1])
    assert gold_codes(np.array([-1, 1]), signs).tolist() == [0, 1]
    with pytest.raises(AnnotationError, match=r"gold holds 9 .*instances"):
        gold_codes({9: "x"}, table)
    with pytest.raises(AnnotationError, match="gold holds 'z'"):
        gold_codes({5: "z"}, table)
    with pytest.raises(AnnotationError, match=r"gold has shape \(2,\)"):
        gold_codes(["x", "y"], table)


def test_majority_vote_ties():
    A = np.array([[0, 1], [1, 1]])
    assert MajorityVote().fit(A).labels_.tolist() == [0, 1]
    shared = MajorityVote(soft=False, ties="distribute").fit(A)
    assert shared.posterior_.tolist() == [[0.5, 0.5], [0, 1]]
    picked = {MajorityVote(ties="random", random_state=s).fit(A).labels_[0] for s in range(20)}
    assert picked == {0, 1}
    first = MajorityVote(soft=False).fit(A)
    assert first.posterior_.tolist() == [[1, 0], [0, 1]]


def test_majority_vote_counts_weights():
    table = AnnotationTable.from_arrays([0, 0, 1], [0, 1, 0], [0, 1, 1], weight=[1.0, 3.0, 1.0])
    assert MajorityVote().fit(table).posterior_.tolist() == [[0.25, 0.75], [0, 1]]


CROWD_KIT = {
    "MajorityVote": {},
    "DawidSkene": {"confusion_prior": None, "max_iter": 20, "tol": 0.0},
    "OneCoinDawidSkene": {"prior_strength": 0.0, "max_iter": 20, "tol": 0.0},
}


@pytest.mark.parametrize(("name", "parameters"), CROWD_KIT.items())
def test_labels_are_those_of_crowd_kit(name, parameters):
    peer = pytest.importorskip(
        "crowdkit.aggregation", reason="crowd-kit comes with the group bench"
    )
    A, _ = crowd(n=200, per_instance=5)
    table = AnnotationTable.from_matrix(A)
    frame = pd.DataFrame({"task": table.instance, "worker": table.annotator, "label": table.label})
    options = {"n_iter": 20, "tol": -np.inf} if "max_iter" in parameters else {}
    theirs = getattr(peer, name)(**options).fit_predict(frame).sort_index().to_numpy()
    model = find_aggregator(name)(**parameters).fit(table)
    top = np.sort(model.posterior_, axis=1)
    clear = top[:, -1] - top[:, -2] > 1e-6
    np.testing.assert_array_equal(model.labels_[clear], theirs[clear])
    assert clear.mean() > 0.8


def test_methods_are_found_by_name():
    assert find_aggregator("dawid-skene") is DawidSkene
    assert find_aggregator("Majority_Vote") is MajorityVote
    with pytest.raises(AnnotationError, match="majority-vote"):
        find_aggregator("oracle")
