import re
import tracemalloc
from functools import partial
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import t
from sklearn.metrics import cohen_kappa_score

from manyhands import AnnotationTable, DawidSkene
from manyhands.agreement import (
    AnnotatorAgreement,
    ClassAgreement,
    PairwiseKappa,
    annotator_agreement,
    class_agreement,
    cohen_kappa,
    common_confusions,
    fleiss_kappa,
    gwet_ac1,
    gwet_ac2,
    jackknife,
    krippendorff_alpha,
    mean_cohen_kappa,
    percent_agreement,
    spammer_score,
    summary,
)
from manyhands.exceptions import AnnotationError
from tests.agreement_by_hand import (
    by_instance,
    fleiss_chance,
    gwet_chance,
    interval,
    nominal,
    ordinal,
    slow_alpha,
    slow_annotators,
    slow_classes,
    slow_cohen,
    slow_gwet,
)

SCALARS = [
    percent_agreement,
    fleiss_kappa,
    gwet_ac1,
    gwet_ac2,
    partial(gwet_ac2, weights="linear"),
    partial(gwet_ac2, weights="ordinal"),
    krippendorff_alpha,
    partial(krippendorff_alpha, level="ordinal"),
    partial(krippendorff_alpha, level="interval"),
    mean_cohen_kappa,
    partial(mean_cohen_kappa, weights="quadratic"),
]
ARRAYS = [
    cohen_kappa,
    partial(cohen_kappa, weights="quadratic"),
    class_agreement,
    annotator_agreement,
]
C = 4
"""Classes of the tables that Hypothesis makes."""


def named(measure):
    if isinstance(measure, partial):
        return f"{measure.func.__name__}-{'-'.join(measure.keywords.values())}"
    return measure.__name__


def figures(found):
    """Every number a measure returns, as one array."""
    if isinstance(found, float):
        return np.array([found])
    return np.concatenate([np.ravel(v) for v in vars(found).values()]).astype(float)


# -- tables that Hypothesis makes -----------------------------------------------------------------

SHAPE = (6, 4)
ROWS = st.lists(
    st.tuples(st.integers(0, SHAPE[0] - 1), st.integers(0, SHAPE[1] - 1), st.integers(0, C - 1)),
    max_size=25,
)
"""Rows (instance, annotator, class); pairs (instance, annotator) may be repeated."""


def as_table(rows, **options):
    instance, annotator, label = (list(v) for v in zip(*rows, strict=True)) if rows else ([],) * 3
    arguments = {
        "classes": range(C),
        "n_instances": SHAPE[0],
        "n_annotators": SHAPE[1],
        "duplicates": "keep",
    }
    return AnnotationTable.from_arrays(instance, annotator, label, **(arguments | options))


@given(ROWS)
@settings(max_examples=30)
def test_alpha_equals_the_slow_loop(rows):
    table = as_table(rows)
    for level, distance in (("nominal", nominal), ("ordinal", ordinal), ("interval", interval)):
        np.testing.assert_allclose(
            krippendorff_alpha(table, level=level), slow_alpha(rows, distance), atol=1e-12
        )


@given(ROWS, st.lists(st.integers(-5000, 5000), min_size=C, max_size=C, unique=True))
@settings(max_examples=30)
def test_interval_alpha_takes_values_and_is_blind_to_scale(rows, tenths):
    values = np.array(tenths) / 10

    def distance(a, b, _):
        return (values[a] - values[b]) ** 2

    found = krippendorff_alpha(as_table(rows), level="interval", values=values)
    np.testing.assert_allclose(found, slow_alpha(rows, distance), rtol=1e-8, atol=1e-8)
    seconds = 1.7e9 + 3 * np.arange(C)
    np.testing.assert_allclose(
        krippendorff_alpha(as_table(rows), level="interval", values=seconds),
        krippendorff_alpha(as_table(rows), level="interval"),
        atol=1e-12,
    )


@given(ROWS, st.sampled_from(["identity", "linear", "quadratic", "ordinal"]))
@settings(max_examples=30)
def test_fleiss_and_gwet_equal_the_slow_loop(rows, weights):
    table = as_table(rows)
    np.testing.assert_allclose(
        gwet_ac2(table, weights=weights), slow_gwet(rows, weights, C, gwet_chance), atol=1e-12
    )
    expected = slow_gwet(rows, "identity", C, fleiss_chance)
    np.testing.assert_allclose(fleiss_kappa(table), expected, atol=1e-12)
    assert gwet_ac1(table) == pytest.approx(gwet_ac2(table, weights="identity"), nan_ok=True)


@given(ROWS)
@settings(max_examples=30)
def test_pairs_equal_the_slow_loop(rows):
    table = as_table(rows)
    for weights, distance in (("identity", nominal), ("quadratic", interval)):
        found = cohen_kappa(table, weights=weights)
        expected = slow_cohen(rows, distance)
        assert list(zip(found.first, found.second, strict=True)) == list(expected)
        shared = [n for n, _ in expected.values()]
        kappas = np.array([kappa for _, kappa in expected.values()])
        assert found.n_shared.tolist() == shared
        np.testing.assert_allclose(found.kappa, kappas, atol=1e-12)
        by_weight = jackknife(partial(cohen_kappa, weights=weights), table)
        np.testing.assert_allclose(by_weight.value.kappa, kappas, atol=1e-12)
        defined = ~np.isnan(kappas)
        mean = np.average(kappas[defined], weights=np.array(shared)[defined]) if any(defined) else 0
        assert mean_cohen_kappa(table, weights=weights) == (
            pytest.approx(mean, abs=1e-12) if any(defined) else pytest.approx(np.nan, nan_ok=True)
        )


@given(ROWS)
@settings(max_examples=30)
def test_classes_and_annotators_equal_the_slow_loop(rows):
    table = as_table(rows)
    classes, annotators = class_agreement(table), annotator_agreement(table)
    np.testing.assert_allclose(
        [classes.n_annotations, classes.share, classes.agreement, classes.kappa],
        slow_classes(rows, C),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        [annotators.n_pairs, annotators.agreement, annotators.kappa],
        slow_annotators(rows, SHAPE[1]),
        atol=1e-12,
    )


@given(ROWS)
@settings(max_examples=30)
def test_percent_agreement_equals_the_slow_loop(rows):
    shares = [
        np.mean([a == b for (_, a), (_, b) in permutations(here, 2)])
        for here in by_instance(rows)
        if len(here) > 1
    ]
    expected = np.mean(shares) if shares else np.nan
    np.testing.assert_allclose(percent_agreement(as_table(rows)), expected, atol=1e-12)


@pytest.mark.parametrize("weights", ["identity", "quadratic"])
def test_kappa_equals_scikit_learn(weights):
    rng = np.random.default_rng(3)
    truth, noise = rng.integers(C, size=(60, 1)), rng.integers(C, size=(60, 5))
    A = np.where(rng.random((60, 5)) < 0.6, truth, noise)
    A[rng.random(A.shape) < 0.3] = -1
    found = cohen_kappa(AnnotationTable.from_matrix(A, classes=range(C)), weights=weights)
    assert len(found.kappa) == 10
    for r, s, n, kappa in zip(found.first, found.second, found.n_shared, found.kappa, strict=True):
        both = (A[:, [r, s]] >= 0).all(axis=1)
        option = None if weights == "identity" else weights
        expected = cohen_kappa_score(A[both, r], A[both, s], labels=range(C), weights=option)
        assert n == both.sum()
        assert kappa == pytest.approx(expected)


# -- published and hand-computed examples ---------------------------------------------------------

# Krippendorff (2018), section 12.3: four observers (rows), twelve units, values missing.
KRIPPENDORFF = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, -1, -1, -1],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, -1, 3],
        [-1, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, -1],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, -1],
    ]
).T

# Fleiss (1971), table 1: 30 patients, 6 psychiatrists each, 5 diagnoses; annotations of each.
FLEISS = """
00060 03003 01401 00006 03030 20400 00402 20310 20040 00006 10050 11040 03300 10050 02031
00501 30012 51000 02040 10203 00006 01050 02013 20040 10041 05010 40002 02040 10500 00006
"""


def table_of_counts(counts):
    """One annotator for every annotation of an instance."""
    rows = [
        (i, r, k)
        for i, given_here in enumerate(counts)
        for r, k in enumerate(np.repeat(np.arange(len(given_here)), given_here))
    ]
    return AnnotationTable.from_arrays(*zip(*rows, strict=True), classes=range(len(counts[0])))


def fleiss_table():
    return table_of_counts([[int(n) for n in row] for row in FLEISS.split()])


def test_krippendorffs_example_with_missing_data():
    table = AnnotationTable.from_matrix(KRIPPENDORFF)
    found = [krippendorff_alpha(table, level=v) for v in ("nominal", "ordinal", "interval")]
    np.testing.assert_allclose(found, [0.743, 0.815, 0.849], atol=5e-4)


def test_krippendorffs_binary_example():
    """Krippendorff (2018), figure 12.4: two observers, ten binary units, alpha = .095."""
    a = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    b = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    table = AnnotationTable.from_matrix(np.column_stack([a, b]))
    assert krippendorff_alpha(table) == pytest.approx(0.095, abs=5e-4)
    assert percent_agreement(table) == 0.6


def test_fleiss_example():
    """Fleiss (1971): kappa = .430; categories as in R's irr."""
    table = fleiss_table()
    assert fleiss_kappa(table) == pytest.approx(0.430, abs=5e-4)
    found = class_agreement(table)
    np.testing.assert_allclose(found.share, [0.144, 0.144, 0.167, 0.306, 0.239], atol=6e-4)
    np.testing.assert_allclose(found.kappa, [0.245, 0.245, 0.520, 0.471, 0.566], atol=6e-4)


def test_gwets_example_with_missing_data():
    """The table of Krippendorff's example in Gwet's own package irrCAC (raw ratings)."""
    A = KRIPPENDORFF.copy()
    table = AnnotationTable.from_matrix(A)
    assert percent_agreement(table) == pytest.approx(0.8181818, abs=1e-7)
    assert gwet_ac1(table) == pytest.approx(0.77544, abs=5e-6)
    assert fleiss_kappa(table) == pytest.approx(0.76117, abs=5e-6)


def test_gwets_example_of_two_raters():
    """Three diagnoses by two abstractors: kappa .7964, AC1 .8493, alpha .7973 (irrCAC)."""
    counts = np.array([[13, 0, 0], [0, 20, 7], [0, 4, 56]])
    a, b = (np.repeat(axis.ravel(), counts.ravel()) for axis in np.indices((3, 3)))
    table = AnnotationTable.from_matrix(np.column_stack([a, b]))
    assert mean_cohen_kappa(table) == pytest.approx(0.7964094, abs=1e-7)
    assert gwet_ac1(table) == pytest.approx(0.8493305, abs=1e-7)
    assert krippendorff_alpha(table) == pytest.approx(0.7972585, abs=1e-7)


def test_one_class_dominates():
    """118 times yes-yes, 5 yes-no, 2 no-yes: kappa < 0, AC1 = .94.

    p_a = 118/125 = .944; share of yes (123 + 120)/250 = .972, so p_e = 2 (.972) (.028) = .054432.
    """
    pairs = [(1, 1)] * 118 + [(1, 0)] * 5 + [(0, 1)] * 2
    table = AnnotationTable.from_matrix(pairs)
    assert gwet_ac1(table) == pytest.approx((0.944 - 0.054432) / (1 - 0.054432))
    # Cohen's chance agreement: (123 * 120 + 2 * 5) / 125^2.
    p_e = (123 * 120 + 2 * 5) / 125**2
    assert mean_cohen_kappa(table) == pytest.approx((0.944 - p_e) / (1 - p_e))
    assert mean_cohen_kappa(table) < 0


def test_ac2_by_hand():
    """Two instances 0, 0 and 0, 2 on a scale of three.

    Shares (3/4, 0, 1/4), sum of pi (1 - pi) = 3/8. Linear: p_a = (1 + 0)/2, T_w = 3 + 4/2 = 5.
    Quadratic: T_w = 3 + 4 * 3/4 = 6. Ordinal: one step is worth 1 - 2/6, T_w = 3 + 4 * 2/3.
    """
    table = AnnotationTable.from_matrix([[0, 0], [0, 2]], classes=range(3))
    for weights, total in (("linear", 5), ("quadratic", 6), ("ordinal", 3 + 8 / 3)):
        p_e = total / 6 * 3 / 8
        found = gwet_ac2(table, weights=weights)
        assert found == pytest.approx((0.5 - p_e) / (1 - p_e))


def test_cohen_by_hand():
    """20 + 15 agree of 50, margins 25:25 and 30:20: (.7 - .5) / (1 - .5) = .4."""
    pairs = [(1, 1)] * 20 + [(1, 0)] * 5 + [(0, 1)] * 10 + [(0, 0)] * 15
    found = cohen_kappa(AnnotationTable.from_matrix(pairs))
    assert found.kappa == pytest.approx(0.4)
    assert found.n_shared.tolist() == [50]
    assert found.mean == pytest.approx(0.4)


def test_weighted_cohen_by_hand():
    """Squared steps of 0-1, 1-1, 2-0, and of every first with every second class."""
    table = AnnotationTable.from_matrix([[0, 1], [1, 1], [2, 0]], classes=range(3))
    observed, expected = (1 + 0 + 4) / 3, (1 + 1 + 0 + 0 + 0 + 1 + 1 + 1 + 4) / 9
    assert cohen_kappa(table, weights="quadratic").kappa == pytest.approx(1 - observed / expected)


def test_class_agreement_by_hand():
    # Two annotations everywhere: of 3 given a 0, 2 have a 0 beside them.
    found = class_agreement(AnnotationTable.from_matrix([[0, 0], [0, 1], [1, 1], [2, -1]]))
    assert found.n_annotations.tolist() == [3, 3, 0]
    np.testing.assert_allclose(found.agreement, [2 / 3, 2 / 3, np.nan])
    np.testing.assert_allclose(found.kappa, [1 / 3, 1 / 3, np.nan])


def test_overall_figures_are_means_over_classes():
    found, table = class_agreement(fleiss_table()), fleiss_table()
    mean = np.average(found.agreement, weights=found.share)
    assert mean == pytest.approx(percent_agreement(table))
    weights = found.share * (1 - found.share)
    assert np.average(found.kappa, weights=weights) == pytest.approx(fleiss_kappa(table))


def test_an_annotator_who_contradicts_everybody():
    found = annotator_agreement(AnnotationTable.from_matrix([[0, 0, 1], [1, 1, 0], [1, 1, -1]]))
    assert found.n_pairs.tolist() == [5, 5, 4]
    assert found.agreement.tolist() == [0.6, 0.6, 0]
    assert found.kappa[2] == -1


def test_two_annotators_have_the_kappa_of_their_pair():
    table = AnnotationTable.from_matrix([[0, 1], [1, 1], [0, 0], [2, 1], [2, -1]])
    np.testing.assert_allclose(annotator_agreement(table).kappa, cohen_kappa(table).kappa.repeat(2))


# -- what must not matter -------------------------------------------------------------------------


def crowd(n=120, n_annotators=6, seed=0):
    """Three annotators per instance, right with probability .7."""
    rng = np.random.default_rng(seed)
    annotator = np.argsort(rng.random((n, n_annotators)), axis=1)[:, :3]
    truth = rng.integers(C, size=(n, 1))
    label = np.where(rng.random((n, 3)) < 0.7, truth, rng.integers(C, size=(n, 3)))
    instance = np.repeat(np.arange(n), 3)
    return AnnotationTable.from_arrays(
        instance, annotator.ravel(), label.ravel(), classes=range(C), n_annotators=n_annotators
    )


@pytest.mark.parametrize("measure", SCALARS + ARRAYS, ids=named)
def test_the_order_of_rows_does_not_matter(measure):
    table = crowd()
    mixed = table.take(np.random.default_rng(1).permutation(table.n_annotations))
    np.testing.assert_allclose(figures(measure(mixed)), figures(measure(table)), atol=1e-12)


@pytest.mark.parametrize("measure", SCALARS, ids=named)
def test_the_order_of_instances_and_annotators_does_not_matter(measure):
    table, rng = crowd(), np.random.default_rng(1)
    mixed = table[rng.permutation(len(table))].select(annotators=rng.permutation(table.annotators))
    assert measure(mixed) == pytest.approx(measure(table), abs=1e-12)


@given(ROWS, st.permutations(range(C)))
@settings(max_examples=30)
def test_names_of_classes_do_not_matter_to_nominal_measures(rows, names):
    table, renamed = as_table(rows), as_table([(i, r, names[k]) for i, r, k in rows])
    for measure in (percent_agreement, krippendorff_alpha, fleiss_kappa, gwet_ac1):
        np.testing.assert_allclose(measure(renamed), measure(table), atol=1e-12)


@given(ROWS)
@settings(max_examples=30)
def test_a_scale_may_be_turned_round(rows):
    table, turned = as_table(rows), as_table([(i, r, C - 1 - k) for i, r, k in rows])
    for measure in SCALARS:
        np.testing.assert_allclose(measure(turned), measure(table), atol=1e-12)


@pytest.mark.parametrize("measure", SCALARS, ids=named)
def test_silence_does_not_matter(measure):
    table = crowd()
    grown = AnnotationTable.from_arrays(
        table.instance,
        table.annotator,
        table.label,
        classes=table.classes,
        n_instances=len(table) + 3,
        n_annotators=table.n_annotators + 2,
    )
    assert measure(grown) == measure(table)
    assert jackknife(measure, grown) == jackknife(measure, table)


def test_single_annotations_tell_of_frequencies_alone():
    A = np.array([[0, 0], [1, 1], [0, 1], [0, 0]])
    single = np.array([[2, -1], [1, -1]])
    table = AnnotationTable.from_matrix(A, classes=range(3))
    grown = AnnotationTable.from_matrix(np.vstack([A, single]), classes=range(3))
    for measure in (percent_agreement, krippendorff_alpha, mean_cohen_kappa):
        assert measure(grown) == measure(table)
    np.testing.assert_array_equal(class_agreement(grown).kappa, class_agreement(table).kappa)
    # Shares of all six instances: 0: 2.5/6, 1: 2.5/6, 2: 1/6.
    p_e = (2.5**2 + 2.5**2 + 1) / 36
    assert fleiss_kappa(grown) == pytest.approx((0.75 - p_e) / (1 - p_e))


@pytest.mark.parametrize("measure", SCALARS + ARRAYS, ids=named)
def test_weights_and_added_annotations_do_not_count(measure):
    table = crowd()
    weighted = AnnotationTable.from_arrays(
        table.instance,
        table.annotator,
        table.label,
        classes=table.classes,
        weight=np.linspace(0, 5, table.n_annotations),
    )
    np.testing.assert_array_equal(figures(measure(weighted)), figures(measure(table)))
    absent = np.argwhere(np.asarray(table) < 0)
    pseudo = AnnotationTable.from_arrays(
        *absent.T, [0] * len(absent), classes=table.classes, source="pseudo"
    )
    grown = table.with_added(pseudo)
    np.testing.assert_array_equal(figures(measure(grown)), figures(measure(table)))


def test_nobody_agrees_with_himself():
    # Annotator 0 gave instance 0 twice the same class; annotator 1 another one.
    table = as_table([(0, 0, 1), (0, 0, 1), (0, 1, 2), (1, 0, 1), (1, 0, 1)])
    assert annotator_agreement(table).agreement[:2].tolist() == [0, 0]
    assert annotator_agreement(table).n_pairs[:2].tolist() == [2, 2]
    assert cohen_kappa(table).n_shared.tolist() == [2]
    # Where the annotators are not told apart, the four annotations by 0 agree among themselves.
    assert percent_agreement(table) == pytest.approx((1 / 3 + 1) / 2)


def test_missing_annotations_are_no_category():
    A = np.array([[0, 0, -1], [1, 1, -1], [-1, -1, 1]])
    table = AnnotationTable.from_matrix(A)
    for measure in SCALARS:
        assert measure(table) == 1


# -- where nothing can be said --------------------------------------------------------------------


@pytest.mark.parametrize("measure", SCALARS, ids=named)
@pytest.mark.parametrize(
    "table",
    [
        AnnotationTable.from_matrix([[0, -1], [-1, 1]]),
        AnnotationTable.from_matrix([[-1, -1]], classes=[0, 1]),
        AnnotationTable.from_arrays([], [], [], classes=[], n_instances=0, n_annotators=0),
    ],
    ids=["alone", "nothing", "empty"],
)
def test_nothing_to_compare_is_nan(measure, table):
    assert np.isnan(measure(table))
    assert np.isnan(jackknife(measure, table)).all()


@pytest.mark.parametrize("measure", ARRAYS, ids=named)
def test_nothing_to_compare_is_nan_for_every_part(measure):
    found = measure(AnnotationTable.from_matrix([[0, -1], [-1, 1]]))
    assert np.isnan(found.kappa).all()
    assert len(jackknife(measure, AnnotationTable.from_arrays([], [], []))) == 3


def test_full_agreement_on_one_class():
    unanimous = AnnotationTable.from_matrix([[0, 0], [0, 0]], classes=[0, 1])
    assert percent_agreement(unanimous) == 1
    for measure in SCALARS:
        if named(measure).startswith(("fleiss", "kripp", "mean_cohen")):
            assert np.isnan(measure(unanimous)), named(measure)
        else:
            assert measure(unanimous) == 1, named(measure)
    assert np.isnan(cohen_kappa(unanimous).kappa).all()
    assert np.isnan(class_agreement(unanimous).kappa).all()
    assert np.isnan(annotator_agreement(unanimous).kappa).all()
    assert np.isnan(gwet_ac1(AnnotationTable.from_matrix([[0, 0]], classes=[0])))


def test_one_value_of_several_classes_leaves_nothing_to_disagree_about():
    table = AnnotationTable.from_matrix([[0, 1], [1, 0], [2, 2]], classes=range(4))
    for values in ([0.1, 0.1, 0.1, 7], [7, 0.1, 0.1, 0.1]):
        found = AnnotationTable.from_matrix(np.asarray(table) + (values[0] == 7), classes=range(4))
        assert np.isnan(krippendorff_alpha(found, level="interval", values=values))


def test_undefined_pairs_do_not_enter_the_mean():
    # 0 and 1 agree on one class throughout; 0 and 2 disagree in half of four.
    A = np.array([[1, 1, -1]] * 9 + [[1, -1, 1], [0, -1, 1], [0, -1, 0], [1, -1, 0]])
    found = cohen_kappa(AnnotationTable.from_matrix(A))
    assert found.n_shared.tolist() == [9, 4]
    np.testing.assert_array_equal(found.kappa, [np.nan, 0])
    assert found.mean == 0


# -- intervals ------------------------------------------------------------------------------------


def shown(found):
    """The figures of a measure by name; of pairs by their annotators."""
    if isinstance(found, PairwiseKappa):
        return dict(zip(zip(found.first, found.second, strict=True), found.kappa, strict=True))
    if isinstance(found, ClassAgreement):
        return dict(enumerate(np.concatenate([found.share, found.agreement, found.kappa])))
    if isinstance(found, AnnotatorAgreement):
        return dict(enumerate(np.concatenate([found.agreement, found.kappa])))
    return {0: found}


def least(measure, key):
    """Least value of a figure: shares of agreement are at least 0, coefficients -1."""
    name = named(measure)
    if name.startswith("class_agreement"):
        return 0 if key < 2 * C else -1
    if name.startswith("annotator_agreement"):
        return 0 if key < 6 else -1
    return 0 if name.startswith("percent") else -1


@pytest.mark.parametrize("measure", SCALARS + ARRAYS, ids=named)
def test_each_instance_is_left_out_once(measure):
    """Delete-one jackknife, by slices of the table, on the scale of the logit."""
    table = crowd(n=25)
    n = len(table)
    whole = shown(measure(table))
    without = [shown(measure(table[np.delete(np.arange(n), i)])) for i in range(n)]
    found = jackknife(measure, table, level=0.9)
    lows, highs = shown(found.low), shown(found.high)
    reach = t.ppf(0.95, n - 1)
    checked = 0
    for key, value in whole.items():
        values = np.array([each.get(key, np.nan) for each in without])
        error = np.sqrt((n - 1) / n * ((values - values.mean()) ** 2).sum())
        place = (value - least(measure, key)) / (1 - least(measure, key))
        if not error > 1e-9 or not 0 < place < 1:
            assert np.isnan(lows[key])
            assert np.isnan(highs[key])
            continue
        half = reach * error / (1 - least(measure, key)) / (place * (1 - place))
        bounds = least(measure, key) + (1 - least(measure, key)) * expit(
            logit(place) + np.array([-half, half])
        )
        np.testing.assert_allclose([lows[key], highs[key]], bounds, rtol=1e-8, atol=1e-10)
        checked += 1
    assert checked


@pytest.mark.parametrize("measure", SCALARS, ids=named)
def test_the_interval_covers_the_value_and_narrows(measure):
    few, many = crowd(n=80), crowd(n=1280)  # The latter in 200 groups.
    short, long = jackknife(measure, few), jackknife(measure, many)
    for found, table in ((short, few), (long, many)):
        assert found.value == pytest.approx(measure(table), abs=1e-12)
        assert found.low < found.value < found.high
    # A quarter of the width, but for chance.
    assert long.high - long.low < (short.high - short.low) / 2


@pytest.mark.parametrize("n", [150, 1000])
def test_the_interval_is_that_of_the_mean(n):
    """Percent agreement of pairs is a mean of zeros and ones: sd sqrt(p (1 - p) / n)."""
    agree = np.arange(n) < 0.75 * n
    p = agree.mean()
    table = AnnotationTable.from_matrix(np.column_stack([np.zeros(n), ~agree]).astype(int))
    value, low, high = jackknife(percent_agreement, table)
    half = 1.96 / np.sqrt(p * (1 - p) * n)
    assert value == p
    np.testing.assert_allclose([low, high], expit(logit(p) + np.array([-half, half])), atol=0.015)
    wider = jackknife(percent_agreement, table, level=0.99)
    assert wider.low < low < high < wider.high


def test_no_interval_where_the_instances_do_not_tell():
    alike = AnnotationTable.from_matrix([[0, 0], [1, 1], [0, 0]])
    once = AnnotationTable.from_matrix([[0, 0], [0, 0], [0, 1]])
    alone = AnnotationTable.from_matrix([[0, 1]])
    for table in (alike, once, alone):  # All agree; one decides; there is one.
        value, low, high = jackknife(krippendorff_alpha, table)
        assert np.isfinite(value)
        assert np.isnan(low)
        assert np.isnan(high)
    value, low, high = jackknife(percent_agreement, once)
    assert 0 < low < value < high < 1


@pytest.mark.parametrize("measure", SCALARS, ids=named)
def test_no_interval_excludes_its_value(measure):
    rng = np.random.default_rng(0)
    y = rng.integers(C, size=(300, 1))
    A = np.where(rng.random((300, 15)) < 0.8, y, rng.integers(C, size=(300, 15)))
    A[np.argsort(rng.random(A.shape), axis=1) >= 4] = -1  # Pairs share about 17 instances.
    value, low, high = jackknife(measure, AnnotationTable.from_matrix(A))
    assert low < value < high


@pytest.mark.parametrize("n", [30, 600])
@pytest.mark.parametrize(
    ("measure", "right"), [(percent_agreement, 0.9), (krippendorff_alpha, 0.9), (gwet_ac1, 0.9)]
)
def test_intervals_cover_what_many_instances_have(measure, right, n):
    """Two in three instances are of one class; three annotators, 200 tables of each size."""

    def table(n, seed):
        rng = np.random.default_rng(seed)
        y = (rng.random((n, 1)) < 1 / 3).astype(int)
        return AnnotationTable.from_matrix(np.where(rng.random((n, 3)) < right, y, 1 - y))

    truth = measure(table(100_000, seed=0))
    found = [jackknife(measure, table(n, seed)) for seed in range(1, 201)]
    covered = np.mean([each.low <= truth <= each.high for each in found])
    assert covered > 0.9  # Of a nominal .95, which 200 tables know to .015.
    assert covered < 1


def test_intervals_of_parts():
    table = crowd(n=300)
    for measure, size in ((class_agreement, C), (annotator_agreement, 6), (cohen_kappa, 15)):
        value, low, high = jackknife(measure, table)
        assert value.kappa.shape == low.kappa.shape == (size,)
        assert (low.kappa < value.kappa).all()
        assert (value.kappa < high.kappa).all()
    assert low.n_shared.tolist() == high.n_shared.tolist() == value.n_shared.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_many_small_blocks_of_pairs_are_one(seed, monkeypatch):
    table = crowd(n=60, n_annotators=9, seed=seed)
    expected = cohen_kappa(table), jackknife(cohen_kappa, table)
    monkeypatch.setattr("manyhands.agreement.pairs._BLOCK_SUMMED", 30)
    monkeypatch.setattr("manyhands.agreement.pairs._BLOCK_BY_INSTANCE", 30)
    found = cohen_kappa(table), jackknife(cohen_kappa, table)
    np.testing.assert_allclose(figures(found[0]), figures(expected[0]))
    for bound in ("value", "low", "high"):
        np.testing.assert_allclose(
            figures(getattr(found[1], bound)), figures(getattr(expected[1], bound))
        )


def test_summary_holds_every_scalar_measure():
    table = crowd()
    found = summary(table)
    assert list(found) == [
        "percent_agreement",
        "mean_cohen_kappa",
        "fleiss_kappa",
        "krippendorff_alpha",
        "gwet_ac1",
    ]
    assert found["fleiss_kappa"] == jackknife(fleiss_kappa, table)
    ranks = summary(table, scale="ordinal", level=0.5)
    assert "gwet_ac1" not in ranks
    alpha = partial(krippendorff_alpha, level="ordinal")
    assert ranks["krippendorff_alpha"] == jackknife(alpha, table, level=0.5)
    kappa = partial(mean_cohen_kappa, weights="quadratic")
    assert ranks["mean_cohen_kappa"] == jackknife(kappa, table, level=0.5)
    assert ranks["gwet_ac2"] == jackknife(gwet_ac2, table, level=0.5)
    numbers = summary(table, scale="interval", values=[0, 1, 2, 10])
    alpha = krippendorff_alpha(table, level="interval", values=[0, 1, 2, 10])
    assert numbers["krippendorff_alpha"].value == pytest.approx(alpha)


def test_summary_gives_no_interval_for_pairs_who_hardly_meet():
    table = crowd(n=60, n_annotators=30)
    value, low, high = summary(table)["mean_cohen_kappa"]
    assert value == mean_cohen_kappa(table)
    assert np.isnan([low, high]).all()


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: krippendorff_alpha(t, level="ratio"), "level='ratio' is unknown; use one of"),
        (lambda t: krippendorff_alpha(t, level="interval"), r"values=\[1, 2, 3\]"),
        (lambda t: krippendorff_alpha(t, values=[1, 2, 3]), "values= applies to level='interval'"),
        (lambda t: krippendorff_alpha(t, level="interval", values=[1, 2]), "each of the 3 classes"),
        (
            lambda t: krippendorff_alpha(t, level="interval", values=[1, 2, np.inf]),
            "one finite number",
        ),
        (
            lambda t: krippendorff_alpha(t, level="interval", values=["a", 2, 3]),
            "are not numbers; give one number for each of 'low', 'mid', 'high'",
        ),
        (lambda t: gwet_ac2(t, weights="cubic"), "weights='cubic' is unknown"),
        (lambda t: cohen_kappa(t, weights="linear"), "weights='linear' is unknown"),
        (lambda t: jackknife(common_confusions, t), "use one of percent_agreement"),
        (lambda t: jackknife(fleiss_kappa, t, level=95), "level=95 must lie between 0 and 1"),
        (
            lambda t: jackknife(partial(mean_cohen_kappa, weights="linear"), t),
            "weights='linear' is unknown",
        ),
        (lambda t: summary(t, scale="metric"), "scale='metric' is unknown"),
    ],
)
def test_errors_say_what_to_do(call, message):
    table = AnnotationTable.from_matrix(np.array([["low", "mid"], ["high", "high"]]))
    with pytest.raises(AnnotationError, match=message):
        call(table)


# -- memory ---------------------------------------------------------------------------------------


def peak(call):
    tracemalloc.start()
    call()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_many_classes_and_many_annotators_take_no_dense_matrix():
    """Dense (n, C) would take 240 MB and (R, R) 800 MB; a block of weights may take 50 MB."""
    rng, n, r, c = np.random.default_rng(0), 15_000, 10_000, 2_000
    instance = np.repeat(np.arange(n), 2)
    annotator = (np.arange(2 * n) * 7919) % r
    table = AnnotationTable.from_arrays(
        instance, annotator, rng.integers(c, size=2 * n), classes=range(c)
    )
    for measure in SCALARS + ARRAYS:
        assert peak(partial(measure, table)) < 20e6, named(measure)
    assert peak(partial(jackknife, krippendorff_alpha, table)) < 80e6


# -- confusions -----------------------------------------------------------------------------------


def slow_spammer_score(confusion):
    """Raykar & Yu (2012): squared distances of all pairs of rows over C (C - 1)."""
    c = len(confusion)
    pairs = combinations(confusion, 2)
    return sum(((a - b) ** 2).sum() for a, b in pairs) / (c * (c - 1))


def test_spammer_score_equals_the_slow_loop():
    confusion = np.random.default_rng(0).dirichlet(np.ones(5), size=(7, 5))
    expected = [slow_spammer_score(matrix) for matrix in confusion]
    np.testing.assert_allclose(spammer_score(confusion), expected)


def test_spammers_score_0_experts_and_adversaries_1():
    eye = np.eye(3)
    always_last, guesses = np.tile([0, 0, 1], (3, 1)), np.full((3, 3), 1 / 3)
    found = spammer_score([eye, eye[[1, 2, 0]], always_last, guesses])
    np.testing.assert_allclose(found, [1, 1, 0, 0], atol=1e-15)
    # Two classes: (sensitivity + specificity - 1)^2.
    assert spammer_score([[[0.9, 0.1], [0.3, 0.7]]]) == pytest.approx(0.36)
    # Right with probability .7, else any of the others alike.
    assert spammer_score([0.55 * eye + 0.15]) == pytest.approx(((3 * 0.7 - 1) / 2) ** 2)


def test_spammer_score_ranks_a_fitted_crowd():
    truth = np.tile(np.arange(3), 80)
    rng = np.random.default_rng(0)
    expert = np.where(rng.random((240, 4)) < 0.85, truth[:, None], rng.integers(3, size=(240, 4)))
    spammer = rng.integers(3, size=(240, 1))
    model = DawidSkene().fit(np.hstack([expert, spammer]))
    assert spammer_score(model.confusion_).argmin() == 4


def test_spammer_score_refuses_what_is_no_confusion_matrix():
    with pytest.raises(AnnotationError, match=r"shape \(2, 2\).*confusion\[None\]"):
        spammer_score(np.eye(2))
    with pytest.raises(AnnotationError, match=r"confusion\[1, 0\] is \[8. 2.\].*sum to 1"):
        spammer_score([np.eye(2), [[8, 2], [0, 1]]])
    with pytest.raises(AnnotationError, match="probabilities"):
        spammer_score([[[1.5, -0.5], [0, 1]]])
    assert np.isnan(spammer_score([[[1.0]]])).all()
    assert np.isnan(spammer_score(np.full((1, 2, 2), np.nan))).all()


def test_common_confusions_by_hand():
    # Annotator 0 calls a 0 a 1 (twice, counted once), annotator 1 never errs, 2 is silent.
    A = np.array([[1, 0, -1], [1, 0, -1], [1, 1, -1], [0, 0, -1]])
    shares = common_confusions(AnnotationTable.from_matrix(A), np.array([0, 0, 1, -1]))
    np.testing.assert_array_equal(shares, [[0.5, 0.5], [0.0, 1.0]])


def test_added_annotations_make_no_common_confusions():
    table = AnnotationTable.from_matrix([[0, 0, -1], [1, 1, -1]])
    pseudo = AnnotationTable.from_arrays([0, 1], [2, 2], [1, 0], source="pseudo")
    truth = np.array([0, 1])
    np.testing.assert_array_equal(
        common_confusions(table.with_added(pseudo), truth), common_confusions(table, truth)
    )


# -- the page -------------------------------------------------------------------------------------


def test_python_in_the_page_prints_what_stands_there(capsys):
    page = Path(__file__).parent.parent / "docs" / "agreement.md"
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.DOTALL)
    assert blocks
    for code, printed in blocks:
        exec(compile(code, str(page), "exec"), {})
        assert capsys.readouterr().out == printed
