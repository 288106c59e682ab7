"""Grades: severities in the prior, a class prior held near the votes, and the median as label."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.base import clone

from manyhands import AnnotationTable, DawidSkene, decide, load, save
from manyhands.exceptions import AnnotationError
from manyhands.inference import confusion_em
from manyhands.inference.confusion_em import CLASS_PRIOR_WEIGHT
from manyhands.inference.confusion_prior import ConfusionPrior
from manyhands.inference.severity import CROWD_SHARE, RIDGE, Tilt
from manyhands.io import read_annotations, read_gold
from manyhands.metrics import ranked_probability_score
from manyhands.registry import all_aggregators
from manyhands.scale.store import AnnotationStore

pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.NotIdentifiableWarning")

K = 5
OPTIONS = {"dependence": 0.2}
"""Of fits that are compared with those of reversed grades: simulated tables draw other numbers."""


def crowd(seed, n_annotators=30, each=40, votes=4, sd=0.6):
    """Graders who see the true grade with noise, and too high or too low by their own severity."""
    rng = np.random.default_rng(seed)
    n = n_annotators * each // votes
    y = rng.choice(K, n, p=[0.1, 0.2, 0.3, 0.25, 0.15])
    bias, noise = rng.normal(0, sd, n_annotators), rng.uniform(0.4, 0.6, n_annotators)
    row = np.repeat(np.arange(n), votes)
    who = np.argsort(rng.random((n, n_annotators)), axis=1)[:, :votes].ravel()
    seen = y[row] + bias[who] + noise[who] * rng.normal(size=len(row))
    grade = np.rint(seen).clip(0, K - 1).astype(int)
    cuts = np.arange(K - 1) + 0.5 - np.arange(K)[:, None]
    up_to = norm.cdf((cuts - bias[:, None, None]) / noise[:, None, None])
    given = np.diff(np.pad(up_to, [(0, 0), (0, 0), (1, 1)], constant_values=(0, 1)), axis=2)
    severity = np.einsum("c,rck,ck->r", np.bincount(y, minlength=K) / n, given, distance())
    return table_of(row, who, grade, n_annotators), y, severity


def distance():
    """Grades from true to given."""
    return np.arange(K) - np.arange(K)[:, None]


def table_of(row, who, grade, n_annotators, **options):
    """Table of grades 0, ..., K - 1."""
    return AnnotationTable.from_arrays(
        row, who, grade, classes=list(range(K)), n_annotators=n_annotators,
        **{"ordered": True} | options,
    )  # fmt: skip


def named(table):
    """The same answers as names of classes."""
    return table.with_scale("nominal")


@pytest.fixture(scope="module")
def graded():
    """Table, true grades and true severities."""
    return crowd(0)


# -- the tilt -------------------------------------------------------------------------------------


def tilt_of(strength=5.0):
    """Tilt of two subtypes of each of three classes."""
    rng = np.random.default_rng(3)
    classes = np.repeat(np.arange(3), 2)
    matrix = rng.dirichlet(np.ones(3), 6) + 2 * np.eye(3)[classes]
    matrix /= matrix.sum(axis=1, keepdims=True)
    return Tilt(matrix, rng.dirichlet(np.ones(6)), classes, strength)


def loss(tilt, counts, g, b):
    """Minus what the tilt maximises, term by term as it is written."""
    q = np.array(tilt.crowd)
    for s, c in enumerate(tilt.classes):
        for grade in range(3):
            q[s, grade] *= np.exp(g * (grade == c) + b * (grade - c) / 2)
    q /= q.sum(axis=1, keepdims=True)
    seen = counts + tilt.strength * tilt.shares[:, None] * tilt.crowd
    return -(seen * np.log(q)).sum() + RIDGE / 2 * (g**2 + b**2), q


def test_the_tilt_is_the_maximum():
    tilt, rng = tilt_of(), np.random.default_rng(0)
    counts = rng.poisson(3.0, (4, 6, 3)).astype(float)
    counts[1] = [40, 0, 0]  # The lowest grade, whatever the truth.
    counts[2] = 30 * np.eye(3)[tilt.classes]
    found, centre = tilt.fit(counts), tilt.centre(counts)
    for r, own in enumerate(counts):
        best = minimize(lambda x, own=own: loss(tilt, own, *x)[0], [0, 0], tol=1e-12)
        np.testing.assert_allclose([found.right[r], found.up[r]], best.x, atol=1e-4)
        _, q = loss(tilt, own, found.right[r], found.up[r])
        np.testing.assert_allclose(
            centre[r], (1 - CROWD_SHARE) * q + CROWD_SHARE * tilt.crowd, rtol=1e-10
        )
        # The covariance is the inverse of the curvature, here by differences.
        h = 1e-3
        value = {
            (i, j): loss(tilt, own, found.right[r] + i * h, found.up[r] + j * h)[0]
            for i in (-1, 0, 1) for j in (-1, 0, 1)
        }  # fmt: skip
        mixed = (value[1, 1] - value[1, -1] - value[-1, 1] + value[-1, -1]) / 4
        curvature = np.array([
            [value[1, 0] - 2 * value[0, 0] + value[-1, 0], mixed],
            [mixed, value[0, 1] - 2 * value[0, 0] + value[0, -1]],
        ]) / h**2  # fmt: skip
        np.testing.assert_allclose(found.covariance[r], np.linalg.inv(curvature), rtol=1e-3)


def test_without_annotations_or_with_many_of_the_crowd_the_centre_is_the_crowds():
    for counts, tilt in (
        (np.zeros((2, 6, 3)), tilt_of()),
        (np.random.default_rng(0).poisson(3.0, (2, 6, 3)).astype(float), tilt_of(1e12)),
    ):
        np.testing.assert_allclose(
            tilt.centre(counts), np.broadcast_to(tilt.crowd, (2, 6, 3)), atol=1e-8
        )


def test_the_prior_of_grades_keeps_the_rate_of_abstentions():
    rng = np.random.default_rng(1)
    counts = rng.poisson(4.0, (5, K, K + 1)).astype(float)
    prior = ConfusionPrior("hierarchical", 1.0, 0.7)
    names, grades = (prior.pseudo_counts(counts, K, ordered=o)[0] for o in (False, True))
    np.testing.assert_allclose(grades[:, :, K], names[:, :, K])
    np.testing.assert_allclose(grades.sum(axis=2), 1.0)
    assert np.abs(grades - names).max() > 0.01


@pytest.mark.parametrize("centre", ["pooled", "diagonal", None])
def test_other_centres_have_no_severity(centre):
    counts = np.random.default_rng(1).poisson(4.0, (5, K, K)).astype(float)
    prior = ConfusionPrior(centre, 1.0, 0.7)
    names, grades = (prior.pseudo_counts(counts, K, ordered=o)[0] for o in (False, True))
    np.testing.assert_array_equal(names, grades)


# -- fits -----------------------------------------------------------------------------------------


def test_who_grades_too_high_has_a_positive_severity_and_who_is_strict_a_negative_one():
    truth = [1, 1, 2, 2]  # The shares of the grades are 1/2, 1/2 and 0.
    given = {"generous": [2, 1, 3, 2], "right": truth, "strict": [1, 1, 1, 1]}
    rows = [(f"t{i}", who, g) for who, grades in given.items() for i, g in enumerate(grades)]
    frame = pd.DataFrame(rows, columns=["task", "worker", "label"])
    table = AnnotationTable.from_frame(frame, ordered=True, classes=[1, 2, 3])
    gold = {f"t{i}": grade for i, grade in enumerate(truth)}
    model = DawidSkene(prior_strength=0, dependence=0).fit(table, gold=gold)
    assert model.annotators_.tolist() == ["generous", "right", "strict"]
    # generous: (1/2) (1 + 0) / 2 + (1/2) (1 + 0) / 2; strict: (1/2) 0 + (1/2) (-1 - 1) / 2.
    np.testing.assert_allclose(model.severity_, [0.5, 0, -0.5], atol=1e-9)


def test_names_and_two_classes_have_todays_bits(graded):
    table = graded[0]
    assert DawidSkene().fit(named(table)).severity_ is None
    two = table.take(table.label < 2)
    two = AnnotationTable.from_arrays(
        two.instance, two.annotator, two.label, classes=[0, 1], scale="nominal"
    )
    names = DawidSkene().fit(two)
    with pytest.warns(UserWarning, match="the order of two classes"):
        order = AnnotationTable.from_arrays(
            two.instance, two.annotator, two.label, classes=[0, 1], ordered=True
        )
    grades = DawidSkene().fit(order)
    np.testing.assert_array_equal(names.posterior_, grades.posterior_)
    np.testing.assert_array_equal(names.labels_, grades.labels_)
    assert grades.severity_ is None
    assert grades.severity_se_ is None


def test_grades_and_names_differ(graded):
    table, y, _ = graded
    grades, names = DawidSkene().fit(table), DawidSkene().fit(named(table))
    assert np.abs(grades.posterior_ - names.posterior_).max() > 0.05
    off = [np.abs(model.labels_ - y).mean() for model in (grades, names)]
    assert off[0] < off[1]


@pytest.mark.parametrize("n_subtypes", [1, 2])
def test_reversed_grades_have_the_mirrored_posterior(graded, n_subtypes):
    table = graded[0]
    mirrored = table_of(table.instance, table.annotator, K - 1 - table.label, table.n_annotators)
    one, other = (DawidSkene(n_subtypes=n_subtypes, **OPTIONS).fit(t) for t in (table, mirrored))
    np.testing.assert_allclose(one.posterior_, other.posterior_[:, ::-1], atol=1e-9)
    np.testing.assert_allclose(one.severity_, -other.severity_, atol=1e-9)
    np.testing.assert_allclose(one.severity_se_, other.severity_se_, atol=1e-9)


def test_values_of_the_grades_do_not_matter(graded):
    table = graded[0]
    values = np.array([-3, 0, 1, 50, 900])
    spread = AnnotationTable.from_arrays(
        table.instance, table.annotator, values[table.label], classes=values,
        n_annotators=table.n_annotators, ordered=True,
    )  # fmt: skip
    one, other = DawidSkene().fit(table), DawidSkene().fit(spread)
    np.testing.assert_array_equal(one.posterior_, other.posterior_)
    np.testing.assert_array_equal(one.severity_, other.severity_)


def test_probabilities_of_single_instances_hold_the_class_shares_too(graded):
    """As far as the annotations say nothing of an instance, its grade is that of the class prior.

    The read-out leaves an instance's own part out of the shares, and not what holds these.
    """
    table = graded[0]
    model = DawidSkene(n_subtypes=1, dependence=0.0).fit(table)
    wary = DawidSkene(n_subtypes=1, dependence=1.0).fit(table)
    np.testing.assert_array_equal(model.class_prior_, wary.class_prior_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confusion_em, "among_subtypes", lambda held, prior: np.zeros_like(prior))
        bare = DawidSkene(n_subtypes=1, dependence=1.0).fit(table)
    np.testing.assert_array_equal(bare.class_prior_, wary.class_prior_)
    rare = wary.class_prior_.argmin()
    assert wary.posterior_[:, rare].mean() > bare.posterior_[:, rare].mean()


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "most_rps", "most_off"), [("polit6", 0.95, 1.4), ("polit6e", 0.5, 0.6)]
)
def test_real_grades(data_home, name, most_rps, most_off):
    """Names of classes: RPS 1.07 and MAE 1.53 on polit6, .48 and .56 on polit6e."""
    folder = data_home / "ordinal" / name
    table = read_annotations(folder / "annotations.csv.gz", scale="ordinal")
    gold = read_gold(folder / "labels.csv")
    truth = {str(task): int(grade) for task, grade in zip(gold.tasks, gold.labels, strict=True)}
    y = np.array([truth.get(str(i), -1) for i in table.instances.tolist()])
    model, known = DawidSkene().fit(table), y >= 0
    grades = table.classes
    p, y = model.posterior_[known], y[known]
    assert ranked_probability_score(p, y, classes=grades) < most_rps
    assert np.abs(model.labels_[known] - y).mean() < most_off
    assert model.severity_.std() > 0.2


def test_grades_that_nobody_gave_are_kept():
    row, who = np.repeat(np.arange(30), 3), np.tile([0, 1, 2], 30)
    grade = np.random.default_rng(0).integers(1, 4, 90)
    model = DawidSkene().fit(table_of(row, who, grade, 3))
    assert model.classes_.tolist() == list(range(K))
    assert model.posterior_.shape == (30, K)
    assert np.isfinite(model.posterior_).all()
    assert np.isfinite(model.severity_).all()
    assert (model.severity_se_ > 0).all()


matrices = arrays(np.int64, st.tuples(st.integers(2, 10), st.integers(1, 5)),
                  elements=st.integers(-1, 2)).filter(lambda A: (A >= 0).any())  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*labels are read as grades")  # Of any share.
@pytest.mark.parametrize("em", ["soft", "hard"])
@pytest.mark.parametrize("n_subtypes", [1, 2])
@pytest.mark.parametrize("prior", ["hierarchical", "pooled", None])
@given(A=matrices, accelerate=st.booleans())
@settings(max_examples=8)
def test_the_objective_never_falls(prior, n_subtypes, em, A, accelerate):
    table = AnnotationTable.from_matrix(A, classes=[0, 1, 2], ordered=True)
    model = DawidSkene(
        tol=0.0, max_iter=15, confusion_prior=prior, n_subtypes=n_subtypes, em=em,
        dependence=0, accelerate=accelerate,
    ).fit(table)  # fmt: skip
    assert (np.diff(model.log_likelihood_) > -1e-7 * table.n_annotations).all()
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1.0)


def test_class_shares_are_held_near_those_of_the_votes(graded):
    table = graded[0]
    model = DawidSkene(n_subtypes=1, dependence=0, tol=0.0, max_iter=400, accelerate=False)
    model.fit(table)
    counts = table.vote_counts()
    shares = (counts / counts.sum(axis=1, keepdims=True)).mean(axis=0)
    # At the end of EM the shares are those of the M-step.
    held = (model.posterior_.mean(axis=0) + CLASS_PRIOR_WEIGHT * shares) / (1 + CLASS_PRIOR_WEIGHT)
    np.testing.assert_allclose(model.class_prior_, held, atol=1e-5)
    uniform = DawidSkene(class_prior="uniform").fit(table)
    np.testing.assert_allclose(uniform.class_prior_, 1 / K)


def test_annotators_who_agree_by_chance_do_not_fill_one_grade():
    rng = np.random.default_rng(0)
    row = np.repeat(np.arange(300), 3)
    who = np.argsort(rng.random((300, 30)), axis=1)[:, :3].ravel()
    table = table_of(row, who, rng.choice(K, 900, p=[0.02, 0.08, 0.6, 0.2, 0.1]), 30)
    names, grades = DawidSkene().fit(named(table)), DawidSkene().fit(table)
    assert names.class_prior_.max() > 0.9
    assert grades.class_prior_.max() < 0.75


def test_severities_are_near_planted_ones_and_their_errors_hold():
    """Twenty annotations each; see docs/results/ordinal.md for more."""
    gaps, z = [], []
    for seed in range(8):
        table, _, severity = crowd(100 + seed, n_annotators=40, each=20, votes=5, sd=0.5)
        model = DawidSkene().fit(table)
        gaps.append(model.severity_ - severity)
        z.append(gaps[-1] / model.severity_se_)
    assert np.sqrt(np.mean(np.square(gaps))) < 0.2
    assert 0.88 < np.mean(np.abs(z) < 1.96) < 1.0
    np.testing.assert_allclose(
        model.severity_,
        np.einsum("c,rck,ck->r", model.class_prior_, model.confusion_, distance()),
    )


def test_severities_gain_where_they_are_large_and_cost_little_where_there_are_none():
    """Ranked probability score of both parts beside names; docs/results/ordinal.md has more."""
    found = {}
    for sd in (0.0, 0.8):
        scores = []
        for seed in range(100, 106):
            table, y, _ = crowd(seed, each=60, sd=sd)
            scores.append([rps(DawidSkene().fit(t).posterior_, y) for t in (named(table), table)])
        found[sd] = np.mean(scores, axis=0)
    names, grades = found[0.8]
    assert grades < 0.85 * names
    names, grades = found[0.0]
    assert grades < 1.1 * names


def rps(posterior, y):
    return ranked_probability_score(posterior, y, classes=np.arange(K))


def test_who_gives_more_is_surer_of_severity_and_who_gives_none_is_the_crowd(graded):
    table = graded[0]
    more = AnnotationTable.from_arrays(
        table.instance, table.annotator, table.label, classes=list(range(K)),
        n_annotators=table.n_annotators + 1, ordered=True,
    )  # fmt: skip
    model = DawidSkene().fit(more)
    assert model.severity_se_[-1] > 1.5 * model.severity_se_[:-1].max()
    assert abs(model.severity_[-1]) < 0.2
    half = model.fit(table.take(table.instance % 4 == 0)).severity_se_
    assert np.median(half) > 1.2 * np.median(DawidSkene().fit(table).severity_se_)


# -- what surrounds it ----------------------------------------------------------------------------


def test_gold_weights_families_and_history(graded):
    table, y, _ = graded
    plain = DawidSkene().fit(table)
    gold = {int(i): int(y[i]) for i in range(0, table.n_instances, 5)}
    known = DawidSkene().fit(table, gold=gold)
    assert all(known.labels_[i] == grade for i, grade in gold.items())
    off = [np.abs(m.labels_ - y)[y.astype(bool)].mean() for m in (known, plain)]
    assert off[0] < off[1]
    # A weight of 2 is an annotation given twice.
    rows = np.arange(table.n_annotations)
    twice = table.take(np.concatenate([rows, rows[::3]]))
    weighted = table_of(
        table.instance, table.annotator, table.label, table.n_annotators,
        weight=1.0 + (rows % 3 == 0),
    )  # fmt: skip
    one, other = (DawidSkene(n_subtypes=1, dependence=0).fit(t) for t in (twice, weighted))
    np.testing.assert_allclose(one.posterior_, other.posterior_, atol=1e-9)
    np.testing.assert_allclose(one.severity_, other.severity_, atol=1e-9)
    # A harsh annotator, known from before.
    harsh = np.eye(K, k=-1) * 300
    harsh[0, 0] = 300
    before = DawidSkene().fit(table, history={0: harsh})
    assert before.severity_[0] < -0.6
    assert before.severity_[0] < plain.severity_[0]
    family = DawidSkene().fit(table.with_groups({0: "a", 1: "a", 2: "a"}))
    assert family.severity_.shape == (table.n_annotators,)
    assert np.abs(family.posterior_ - plain.posterior_).max() > 1e-3


def test_abstentions_are_no_grade(graded):
    table = graded[0]
    frame = table.to_frame()
    passed = frame.loc[::7, ["task", "worker"]].assign(label=None)
    kept = frame.drop(index=passed.index)[["task", "worker", "label"]]
    import pandas as pd

    both = pd.concat([kept.astype({"label": object}), passed.assign(label="can't tell")])
    given = AnnotationTable.from_frame(
        both, abstain="can't tell", classes=list(range(K)), ordered=True
    )
    assert given.n_classes == K
    assert len(given.abstentions) == len(passed)
    model, ignored = DawidSkene().fit(given), DawidSkene(abstentions="ignore").fit(given)
    assert model.confusion_.shape == (table.n_annotators, K, K)
    assert model.abstention_.min() > 0
    assert ignored.abstention_.max() == 0
    np.testing.assert_allclose(model.severity_, ignored.severity_, atol=0.1)


@pytest.mark.filterwarnings("ignore:.* rows are taken for instances of before")
def test_more_annotations_are_added(graded):
    table = graded[0]
    rows = np.arange(table.n_annotations)
    model = DawidSkene(tol=1e-9, max_iter=500).fit(table.take(rows % 3 > 0))
    assert model.partial_fit(table.take(rows % 3 == 0)).table_.ordered
    whole = DawidSkene(tol=1e-9, max_iter=500).fit(model.table_)
    np.testing.assert_allclose(model.severity_, whole.severity_, atol=1e-3)
    # A matrix says nothing of a scale, and that of the fit holds.
    A = np.full((2, table.n_annotators), -1)
    A[:, :3] = [[0, 1, 1], [4, 4, 3]]
    assert model.partial_fit(A, duplicates="keep").table_.ordered


def test_saved_and_cloned(graded, tmp_path):
    table = graded[0]
    model = DawidSkene().fit(table)
    save(model, tmp_path / "model")
    found = load(tmp_path / "model")
    assert found.table_.ordered
    for name in ("severity_", "severity_se_", "posterior_", "labels_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(model, name))
    np.testing.assert_array_equal(found.predict(table), model.predict(table))
    names = clone(model).fit(named(table))
    save(names, tmp_path / "names")
    assert load(tmp_path / "names").severity_ is None
    assert model.fit(named(table)).severity_ is None  # Nothing is left of the fit before.


def test_a_store_gives_what_the_table_gives(graded, tmp_path):
    table = graded[0]
    store = AnnotationStore.create(tmp_path / "store", table, shard_annotations=200)
    assert store.n_shards > 1
    assert store.ordered
    for options in ({}, {"n_subtypes": 2}):
        one, other = DawidSkene(**options).fit(table), DawidSkene(**options).fit(store)
        np.testing.assert_allclose(one.posterior_, other.posterior_, atol=1e-9)
        np.testing.assert_allclose(one.severity_, other.severity_, atol=1e-9)
        np.testing.assert_allclose(one.severity_se_, other.severity_se_, atol=1e-9)
        np.testing.assert_array_equal(one.labels_, other.labels_)


def test_a_checkpoint_of_names_is_none_of_grades(graded, tmp_path):
    class Killed(Exception):
        pass

    table, saved = graded[0], tmp_path / "saved"
    model = DawidSkene(n_subtypes=1, dependence=0)

    def killed(*args, **options):
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DawidSkene, "_set_severity", killed)
        with pytest.raises(Killed):
            model.fit(table, checkpoint=saved)
    with pytest.raises(AnnotationError, match="belongs to another fit: annotations"):
        clone(model).fit(named(table), checkpoint=saved)
    resumed = clone(model).fit(table, checkpoint=saved)
    np.testing.assert_array_equal(resumed.posterior_, model.fit(table).posterior_)


# -- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "method"), all_aggregators())
def test_every_aggregator_labels_grades_by_the_median(name, method, graded):
    table, y, _ = graded
    part = table[np.arange(80)]
    gold = {int(i): int(y[i]) for i in range(0, 80, 4)} if method.traits.needs_gold else None
    model = method()
    if "max_iter" in model.get_params():
        model.set_params(max_iter=10)
    if "random_state" in model.get_params():
        model.set_params(random_state=0)
    model.fit(part, gold=gold)
    median = decide(model.posterior_, "median", classes=model.classes_)
    np.testing.assert_array_equal(model.labels_, median)
    costs = np.abs(distance())
    np.testing.assert_array_equal(model.labels_, decide(model.posterior_, costs))
    names = method(**model.get_params()).fit(named(part), gold=gold)
    np.testing.assert_array_equal(names.labels_, decide(names.posterior_, classes=names.classes_))


def test_the_median_is_drawn_among_equals_if_asked():
    from manyhands import MajorityVote

    row, who = np.repeat(np.arange(200), 2), np.tile([0, 1], 200)
    table = table_of(row, who, np.tile([1, 3], 200), 2)
    assert set(MajorityVote().fit(table).labels_.tolist()) == {1}
    drawn = MajorityVote(ties="random", random_state=0).fit(table).labels_
    assert set(drawn.tolist()) == {1, 2, 3}
