"""The simulator: what it promises holds in its samples, and its truth is the truth."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyhands.annotations import AnnotationTable
from manyhands.datasets import make_crowd
from manyhands.exceptions import AnnotationError

Y = np.random.default_rng(0).integers(5, size=4000)


def counted(table, true, rows, n_annotators, n_classes):
    """Confusion counts [annotator, true, given] of some of the annotations."""
    counts = np.zeros((n_annotators, n_classes, n_classes))
    np.add.at(counts, (table.annotator[rows], true[table.instance[rows]], table.label[rows]), 1.0)
    return counts


def within_chance(counts, probability, sigmas=4.5):
    """Whether counts look drawn from rows of probabilities."""
    n = counts.sum(axis=-1, keepdims=True)
    spread = np.sqrt(n * probability * (1 - probability))
    return bool((np.abs(counts - n * probability) <= sigmas * spread + 1e-9).all())


# -- shape of the table -----------------------------------------------------------------------


def test_hand_case_without_noise_everybody_is_right():
    y = np.array(["b", "a", "c", "a"])
    table = make_crowd(
        y, n_annotators=3, annotations_per_instance=3, noise_strength=0, random_state=0
    )
    assert table.to_matrix().tolist() == [[v] * 3 for v in y]


def test_hand_case_with_full_symmetric_noise_two_classes_swap():
    table = make_crowd([0, 1, 1], noise="symmetric", noise_strength=1.0, random_state=0)
    assert (table.label == 1 - np.array([0, 1, 1])[table.instance]).all()


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 60),
    c=st.integers(2, 6),
    r=st.integers(1, 12),
    mean=st.floats(0, 1),
    noise=st.sampled_from(["asymmetric", "symmetric", "uniform"]),
    common=st.sampled_from([None, "asymmetric", "symmetric", "uniform"]),
    proportion=st.floats(0, 1),
    kinds=st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)),
    activity=st.sampled_from(["even", "skewed"]),
    seed=st.integers(0, 1000),
)
def test_every_crowd_is_a_crowd(n, c, r, mean, noise, common, proportion, kinds, activity, seed):
    y = np.arange(n) % c
    table, truth = make_crowd(
        y,
        n_annotators=r,
        annotations_per_instance=1 + mean * (r - 1),
        noise=noise,
        common_noise=common,
        common_proportion=proportion,
        spammers=kinds[0],
        adversaries=kinds[1],
        activity=activity,
        difficulty_drift=0.5,
        classes=range(c),
        random_state=seed,
        return_truth=True,
    )
    assert table.shape == (n, r)
    assert table.classes.tolist() == list(range(c))
    assert table.annotations_per_instance().min() >= 1
    pairs = table.instance.astype(int) * r + table.annotator
    assert len(np.unique(pairs)) == len(pairs)
    assert (np.diff(table.instance) >= 0).all()
    np.testing.assert_allclose(truth.confusion.sum(axis=2), 1.0)
    assert truth.confusion.shape == (r, c, c)
    assert truth.confusion.min() >= 0
    assert ((truth.gate >= 0) & (truth.gate <= 1)).all()
    assert not (truth.from_common & truth.guessed).any()
    assert not truth.gate[truth.kind[table.annotator] != "honest"].any()
    honest = truth.kind[table.annotator] == "honest"
    if common is not None and honest.any():
        assert truth.gate[honest].mean() == pytest.approx(proportion, abs=1e-4)


def test_same_seed_same_crowd_and_no_global_state():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    a = make_crowd(Y, random_state=7)
    b, truth = make_crowd(Y, random_state=7, return_truth=True)
    assert isinstance(a, AnnotationTable)
    assert a.equals(b)
    assert not a.equals(make_crowd(Y, random_state=8))
    assert a.equals(make_crowd(Y, random_state=np.random.RandomState(7)))
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    with pytest.raises(dataclasses.FrozenInstanceError):
        truth.kind = None


def test_classes_of_any_kind_in_the_order_wanted():
    table = make_crowd(["x", "y"] * 50, classes=["z", "y", "x"], random_state=0)
    assert table.classes.tolist() == ["z", "y", "x"]
    assert make_crowd([True, False] * 50, random_state=0).classes.tolist() == [False, True]


# -- counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [1.0, 2.5, 7.25, 30])
def test_the_mean_number_of_annotations(mean):
    table = make_crowd(Y, annotations_per_instance=mean, random_state=0)
    counts = table.annotations_per_instance()
    assert counts.mean() == pytest.approx(mean, abs=4 * counts.std() / np.sqrt(len(Y)) + 1e-9)
    assert counts.max() <= 30


def test_one_mean_per_class_makes_annotations_imbalanced():
    means = [1, 2, 3, 4, 10]
    table = make_crowd(Y, annotations_per_instance=means, random_state=0)
    counts = table.annotations_per_instance()
    found = [counts[c == Y].mean() for c in range(5)]
    np.testing.assert_allclose(found, means, rtol=0.06)


def test_even_activity():
    counts = make_crowd(Y, random_state=0).annotations_per_annotator()
    expected = counts.sum() / 30
    assert np.abs(counts - expected).max() < 4.5 * np.sqrt(expected)


def test_skewed_activity_falls_like_zipf():
    table = make_crowd(
        Y, activity="skewed", annotations_per_instance=1, n_annotators=20, random_state=0
    )
    counts = np.sort(table.annotations_per_annotator())[::-1]
    expected = 1 / np.arange(1, 21)
    expected *= len(Y) / expected.sum()
    assert np.abs(counts - expected).max() < 4.5 * np.sqrt(expected[0])


def test_given_activity():
    table = make_crowd(
        Y, activity=[1, 2, 7], n_annotators=3, annotations_per_instance=1, random_state=0
    )
    np.testing.assert_allclose(
        table.annotations_per_annotator() / len(Y), [0.1, 0.2, 0.7], atol=0.03
    )


# -- confusions -------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["asymmetric", "symmetric", "uniform"])
def test_labels_follow_the_individual_confusions(noise):
    table, truth = make_crowd(Y, noise=noise, random_state=1, return_truth=True)
    counts = counted(table, Y, slice(None), 30, 5)
    assert within_chance(counts, truth.confusion)
    assert truth.common_confusion is None
    assert not truth.from_common.any()


def test_asymmetric_noise_goes_to_one_other_class_of_each_annotator():
    confusion = make_crowd(Y, n_annotators=200, random_state=0, return_truth=True)[1].confusion
    np.testing.assert_allclose(np.diagonal(confusion, axis1=1, axis2=2), 0.7)
    mistakes = confusion * (1 - np.eye(5))
    assert ((mistakes > 0).sum(axis=2) == 1).all()
    # Each of the four other classes is the target of about a quarter of the annotators.
    share = (mistakes > 0).mean(axis=0)[~np.eye(5, dtype=bool)]
    assert np.abs(share - 0.25).max() < 4.5 * np.sqrt(0.25 * 0.75 / 200)


def test_symmetric_noise_flips_pairs_and_spares_the_odd_class():
    confusion = make_crowd(Y, noise="symmetric", random_state=0, return_truth=True)[1].confusion
    np.testing.assert_allclose(confusion, confusion.transpose(0, 2, 1))
    diagonal = np.sort(np.diagonal(confusion, axis1=1, axis2=2), axis=1)
    np.testing.assert_allclose(diagonal, [[0.7, 0.7, 0.7, 0.7, 1.0]] * 30)


def test_uniform_noise_is_spread():
    confusion = make_crowd(Y, noise="uniform", random_state=0, return_truth=True)[1].confusion
    np.testing.assert_allclose(confusion[0], np.where(np.eye(5, dtype=bool), 0.7, 0.075))


def test_given_confusions_are_taken():
    one = np.array([[0.9, 0.1], [0.4, 0.6]])
    many = np.stack([one, np.eye(2), one[::-1, ::-1]])
    for given_, expected in ((one, np.stack([one] * 3)), (many, many)):
        truth = make_crowd([0, 1], n_annotators=3, noise=given_, random_state=0, return_truth=True)[
            1
        ]
        np.testing.assert_allclose(truth.confusion, expected)


def test_strengths_of_annotators():
    def diagonal(strength):
        truth = make_crowd(
            Y, n_annotators=4, noise_strength=strength, random_state=0, return_truth=True
        )[1]
        return truth.confusion[:, 0, 0]

    np.testing.assert_allclose(diagonal([0, 0.2, 0.5, 1]), [1, 0.8, 0.5, 0])
    drawn = diagonal((0.2, 0.4))
    assert ((drawn >= 0.6) & (drawn <= 0.8)).all()
    assert len(np.unique(drawn)) == 4


# -- common confusion -------------------------------------------------------------------------


@pytest.mark.parametrize("proportion", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("with_x", [True, False])
def test_the_gate(proportion, with_x):
    X = np.random.default_rng(1).normal(size=(len(Y), 8)) + Y[:, None] if with_x else None
    table, truth = make_crowd(
        Y,
        X=X,
        common_noise="asymmetric",
        common_proportion=proportion,
        random_state=2,
        return_truth=True,
    )
    assert truth.gate.mean() == pytest.approx(proportion, abs=1e-5)
    assert 0.15 < truth.gate.std() < 0.45
    spread = np.sqrt((truth.gate * (1 - truth.gate)).sum())
    assert abs(truth.from_common.sum() - truth.gate.sum()) < 4.5 * spread
    common = counted(table, Y, truth.from_common, 30, 5).sum(axis=0)
    assert within_chance(common, truth.common_confusion)
    own = counted(table, Y, ~truth.from_common, 30, 5)
    assert within_chance(own, truth.confusion)


def test_the_gate_depends_on_annotator_and_instance():
    kwargs = {
        "annotations_per_instance": 30,
        "common_noise": "uniform",
        "random_state": 0,
        "return_truth": True,
    }
    y = np.arange(500) % 5
    gate = make_crowd(y, **kwargs)[1].gate.reshape(500, 30)
    assert gate.mean(axis=1).std() > 0.02
    # The same instance twice is the same to every annotator.
    X = np.repeat(np.random.default_rng(0).normal(size=(250, 3)), 2, axis=0)
    table, truth = make_crowd(y, X=X, **kwargs)
    matrix = np.zeros((500, 30))
    matrix[table.instance, table.annotator] = truth.gate
    np.testing.assert_allclose(matrix[::2], matrix[1::2])


def test_eq_3_as_printed_hardly_leaves_its_mean():
    def spread(temperature):
        options = {"common_noise": "uniform", "gate_temperature": temperature}
        return make_crowd(Y, random_state=0, return_truth=True, **options)[1].gate.std()

    assert spread(0) == pytest.approx(0, abs=1e-12)
    assert 0.02 < spread(1) < 0.1 < 0.2 < spread(10)


@pytest.mark.parametrize(("proportion", "expected"), [(0, 0.0), (1, 1.0)])
def test_all_or_nothing_common(proportion, expected):
    truth = make_crowd(
        Y,
        common_noise="symmetric",
        common_proportion=proportion,
        random_state=0,
        return_truth=True,
    )[1]
    assert (truth.gate == expected).all()
    assert (truth.from_common == bool(expected)).all()


def test_common_strength_is_the_mass_off_the_diagonal():
    for strength in (0.4, 0.8):
        truth = make_crowd(
            Y,
            common_noise="asymmetric",
            common_strength=strength,
            random_state=0,
            return_truth=True,
        )[1]
        np.testing.assert_allclose(np.diagonal(truth.common_confusion), 1 - strength)


# -- spammers, adversaries, drift -------------------------------------------------------------


def test_spammers_do_not_look_and_adversaries_permute():
    table, truth = make_crowd(
        Y,
        n_annotators=20,
        spammers=0.3,
        adversaries=0.2,
        noise_strength=0.1,
        common_noise="uniform",
        random_state=0,
        return_truth=True,
    )
    kinds, counts = np.unique(truth.kind, return_counts=True)
    assert dict(zip(kinds.tolist(), counts.tolist(), strict=True)) == {
        "adversary": 4,
        "honest": 10,
        "spammer": 6,
    }
    spam = truth.confusion[truth.kind == "spammer"]
    np.testing.assert_allclose(spam, spam[:, :1] + np.zeros((1, 5, 1)))
    assert sorted(np.round(spam[:, 0].max(axis=1), 6)) == [0.2, 0.2, 0.2, 1, 1, 1]
    against = truth.confusion[truth.kind == "adversary"]
    assert (against.argmax(axis=2) != np.arange(5)).all()
    np.testing.assert_array_equal(np.sort(against.argmax(axis=2), axis=1), [range(5)] * 4)
    np.testing.assert_allclose(against.max(axis=2), 0.9)
    assert within_chance(counted(table, Y, ~truth.from_common, 20, 5), truth.confusion)
    # The mean of omega is that of the honest.
    honest = truth.kind[table.annotator] == "honest"
    assert truth.gate[honest].mean() == pytest.approx(0.5, abs=1e-5)


def test_drift_turns_late_annotations_into_guesses():
    table, truth = make_crowd(
        Y, difficulty_drift=0.8, noise_strength=0, random_state=0, return_truth=True
    )
    assert truth.guessed.mean() == pytest.approx(0.4, abs=0.02)
    right = table.label == Y[table.instance]
    assert right[~truth.guessed].all()
    assert right[truth.guessed].mean() == pytest.approx(0.2, abs=0.02)
    early = table.instance < len(Y) // 4
    late = table.instance >= 3 * len(Y) // 4
    assert truth.guessed[early].mean() == pytest.approx(0.1, abs=0.03)
    assert truth.guessed[late].mean() == pytest.approx(0.7, abs=0.03)


# -- size -------------------------------------------------------------------------------------


def test_blocks_do_not_change_the_law(monkeypatch):
    monkeypatch.setattr("manyhands.datasets.simulated_crowd.CELLS_AT_ONCE", 64)
    table, truth = make_crowd(Y, common_noise="asymmetric", random_state=1, return_truth=True)
    assert within_chance(counted(table, Y, ~truth.from_common, 30, 5), truth.confusion)
    assert table.annotations_per_instance().mean() == pytest.approx(3, abs=0.1)


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": [[0, 1]]}, r"y must hold one true class.*\(1, 2\)"),
        ({"y": []}, "y must hold one true class"),
        ({"y": [0, 0]}, r"only one class, 0; name all classes in classes="),
        ({"y": [0, None]}, "y is missing for instance 1"),
        ({"y": [0.0, np.nan]}, "y is missing for instance 1"),
        ({"classes": [0, 1]}, "not among classes"),
        ({"X": np.zeros((2, 2)), "common_noise": "uniform"}, r"X has shape \(2, 2\)"),
        ({"X": np.full((5, 1), np.nan), "common_noise": "uniform"}, "X contains NaN"),
        ({"n_annotators": 0}, "n_annotators=0 must be a whole number"),
        ({"n_annotators": 2.5}, "n_annotators=2.5 must be a whole number"),
        ({"n_annotators": "3"}, "n_annotators='3' must be a whole number"),
        ({"annotations_per_instance": 0.5}, r"annotations_per_instance=0.5 must lie in \[1, 30\]"),
        ({"annotations_per_instance": 31}, "none of the n_annotators=30"),
        ({"annotations_per_instance": [1, 2]}, r"has shape \(2,\)"),
        ({"noise": "salt"}, "noise='salt' is unknown; use 'asymmetric'"),
        ({"noise": np.eye(4)}, r"noise has shape \(4, 4\)"),
        ({"noise": np.ones((3, 3))}, "noise has rows that are not distributions"),
        ({"noise": 2 * np.eye(3) - 1 / 3}, "noise has rows that are not distributions"),
        ({"noise": np.full((3, 3), np.nan)}, "noise has rows that are not distributions"),
        ({"noise_strength": 1.5}, "noise_strength=1.5 must be a probability"),
        ({"noise_strength": (0.1, 2)}, r"noise_strength=2 must be a number in \[0, 1\]"),
        ({"noise_strength": [0.1, 0.2, 0.3]}, "one probability for each of the 30 annotators"),
        ({"common_noise": "pepper"}, "common_noise='pepper' is unknown"),
        ({"common_noise": np.eye(2)}, r"common_noise has shape \(2, 2\)"),
        ({"common_strength": -0.1}, "common_strength=-0.1"),
        ({"common_proportion": 2}, "common_proportion=2"),
        ({"gate_temperature": np.inf, "common_noise": "uniform"}, "gate_temperature=inf"),
        ({"embedding_dim": 0, "common_noise": "uniform"}, "embedding_dim=0"),
        ({"spammers": np.nan}, "spammers=nan"),
        ({"spammers": 0.6, "adversaries": 0.6}, "together exceed 1"),
        ({"activity": "lazy"}, "activity='lazy' is unknown"),
        ({"activity": [1.0]}, r"activity must hold one positive weight.*\(1,\)"),
        ({"activity": [0.0] + [1.0] * 29}, r"minimum 0\.0"),
        ({"difficulty_drift": "much"}, "difficulty_drift='much'"),
    ],
)
def test_errors_name_argument_and_value(options, message):
    options = {"y": [0, 1, 2, 0, 1], "random_state": 0, **options}
    with pytest.raises(AnnotationError, match=message):
        make_crowd(**options)
