"""Known labels and known class shares in stacking, in Python and on the command line."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import softmax

from manyhands import AnnotationTable, CrowdStackingClassifier, load, load_demo, save
from manyhands.classifiers.stacking.crowd import joint_log_proba
from manyhands.classifiers.stacking.members import Option
from manyhands.classifiers.stacking.rounds import Rounds, Settings
from manyhands.exceptions import AnnotationError
from manyhands.inference.votes import make_votes
from manyhands.linear.ridge import SoftRidge
from manyhands.report import render_report, summarize
from tests.cli.conftest import done, done_json, refused, write_crowd, write_csv

pytestmark = pytest.mark.filterwarnings("ignore::manyhands.exceptions.ModelChoiceWarning")


@pytest.fixture(scope="module")
def demo():
    return load_demo()


@pytest.fixture(scope="module")
def crowd(demo):
    """The first 240 digits: features, annotations, true labels."""
    return demo.X_train[:240], demo.annotations[:240], demo.y_train[:240]


def quick(**parameters):
    """One member: which others there are does not matter here."""
    return CrowdStackingClassifier(
        [("ridge", SoftRidge())], n_rounds=2, random_state=0, **parameters
    )


@pytest.fixture(scope="module")
def plain(crowd):
    return quick().fit(crowd[0], crowd[1])


@pytest.mark.parametrize("none", [{}, [None] * 240, np.full(240, -1)], ids=["dict", "None", "-1"])
def test_no_known_labels_are_the_fit_without(crowd, plain, demo, none):
    X, table, _ = crowd
    model = quick().fit(X, table, gold=none)
    np.testing.assert_array_equal(model.posterior_, plain.posterior_)
    np.testing.assert_array_equal(
        model.predict_proba(demo.X_test), plain.predict_proba(demo.X_test)
    )


def test_all_labels_known_is_training_on_gold(crowd, plain, demo):
    X, table, y = crowd
    model, gold = quick().fit(X, table, gold=y), quick().fit(X, y)
    np.testing.assert_array_equal(model.posterior_, np.eye(10)[y])
    right = [np.mean(m.predict(demo.X_test) == demo.y_test) for m in (plain, gold, model)]
    assert right[2] > right[0]
    assert abs(right[2] - right[1]) < 0.02
    assert np.mean(model.predict(demo.X_test) == gold.predict(demo.X_test)) > 0.95


def test_some_are_certain_and_teach_the_rest(crowd, plain):
    X, table, y = crowd
    wrong = np.flatnonzero(plain.labels_ != y)[:3]
    ids = table.instances
    model = quick().fit(X, table, gold={ids[i]: y[i] for i in wrong})
    np.testing.assert_array_equal(model.posterior_[wrong], np.eye(10)[y[wrong]])
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)
    assert np.abs(model.confusion_ - plain.confusion_).max() > 0.01
    assert np.abs(model.posterior_ - plain.posterior_)[np.setdiff1d(np.arange(240), wrong)].any()


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        (np.full(10, 0.1), None),
        (dict(enumerate([0.05, 0.15] * 5)), None),
        ("uniform", 1.0),
        ("estimated", 0.0),
    ],
)
def test_given_shares_are_not_shrunk(crowd, prior, expected, tmp_path):
    X, table = crowd[0][:120], crowd[1][:120]
    options = {"class_prior": prior, "n_rounds": 1, "n_folds": 2, "random_state": 0}
    model = CrowdStackingClassifier([("ridge", SoftRidge())], **options).fit(X, table)
    assert model.prior_shrinkage_ == expected
    loaded = load(model.save(tmp_path))
    assert loaded.prior_shrinkage_ == expected
    summary = summarize(table, classifier=loaded, X=X)
    assert summary["training"]["stack"]["prior_shrinkage"] == expected
    assert "class_prior" in render_report(summary)
    assert model.fit(X, table, gold={table.instances[0]: 0}).prior_shrinkage_ == expected


def test_a_known_label_needs_no_annotations(crowd, tmp_path):
    X, table, y = crowd
    without = table.take(table.instance >= 40)
    known = {table.instances[i]: y[i] for i in range(20)}
    model = quick(class_prior="uniform").fit(X, without, gold=known)
    np.testing.assert_array_equal(model.labels_[:20], y[:20])
    assert np.isfinite(model.posterior_).all()
    assert (model.posterior_[20:40].max(axis=1) < 1).all()  # They have neither.
    loaded = load(model.save(tmp_path))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_a_class_that_only_a_known_label_has_is_learnt(crowd):
    X, table, y = crowd
    others = table.take(table.label != 3)
    known = {table.instances[i]: 3 for i in np.flatnonzero(y == 3)}
    model = quick(class_prior="estimated").fit(X, others, gold=known)
    assert np.mean(model.predict(X[y == 3]) == 3) > 0.9


def test_class_shares_hold_among_the_unknown():
    A = np.array([[0, 0], [1, 0], [1, 1], [2, 2], [0, 2], [2, 1]])
    table = AnnotationTable.from_matrix(A)
    settings = Settings(2.0, 5.0, np.full(3, 1 / 3), "auto")
    votes = make_votes(table, gold=np.array([0, 0, -1, -1, -1, -1]))
    log_proba = np.log(np.random.default_rng(1).dirichlet(np.ones(3), 6))
    member = SimpleNamespace(options=lambda targets: [Option(log_proba, None)])
    found = Rounds(votes, [member], settings, np.random.default_rng(0)).run()
    np.testing.assert_array_equal(found.posterior[:2], np.eye(3)[[0, 0]])
    np.testing.assert_allclose(found.posterior[2:].mean(axis=0), 1 / 3, atol=1e-3)
    told = joint_log_proba(votes, found.log_proba, found.confusion, settings.classifier_weight)
    expected = np.concatenate([np.eye(3)[[0, 0]], softmax(told[2:], axis=1)]).mean(axis=0)
    np.testing.assert_allclose(found.free_shares, expected)


@pytest.mark.parametrize(
    ("gold", "says"),
    [
        ({"nobody": 1}, "nobody"),
        ({0: "ape"}, "ape"),
        ([1, 2], r"one entry per instance, shape \(240,\)"),
    ],
)
def test_unusable_known_labels_change_nothing(crowd, gold, says):
    X, table, _ = crowd
    model = quick()
    with pytest.raises(AnnotationError, match=says):
        model.fit(X, table, gold=gold)
    assert not hasattr(model, "classes_")


def test_save_with_its_arguments_swapped_names_both(plain, tmp_path):
    with pytest.raises(
        AnnotationError, match=r"save\(model, folder\) was given model=.*folder=Crow"
    ):
        save(tmp_path, plain)
    with pytest.raises(AnnotationError, match=r"give the fitted model first"):
        save(plain, None)


# -- on the command line ---------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path, monkeypatch):
    write_crowd(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


FIT = ("fit", "--features", "X.npy", "--annotations", "A.csv", "--out", "m")


def test_corrections_are_kept_by_fit(home):
    rest = {"was": 2, "certainty": 0.5, "by": "me", "at": "2026-01-01T00:00:00Z"}
    lines = [
        {"task": 5, "label": 1, "action": "correct", **rest},
        {"task": 7, "label": 0, "action": "gold", **rest},
    ]
    (home / "corrections.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done(*FIT, "--set", "n_rounds=2", "--known", "corrections.jsonl")
    labels = (home / "m" / "labels.csv").read_text().splitlines()
    found = {line.split(",")[0]: line.split(",")[1:3] for line in labels[1:]}
    assert [found[task][0] for task in ("5", "7")] == ["1", "0"]
    assert {float(found[task][1]) for task in ("5", "7")} == {1.0}


def test_known_labels_of_test_rows_are_left_out(home):
    write_csv(home / "known.csv", [("task", "label"), (40, 0), (41, 0), (0, 0)])
    options = ("--gold", "gold.csv", "--set", "n_rounds=2")
    with_train = done_json(*FIT, *options, "--known", "known.csv")
    write_csv(home / "known.csv", [("task", "label"), (0, 0)])
    alone = done_json(*FIT, *options, "--known", "known.csv")
    runs = [result["table"]["all rounds"]["splits"] for result in (with_train, alone)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--method", "conal"), "CoNALClassifier cannot use known labels"),
        (("--method", "auto"), "--known goes with one method"),
    ],
)
def test_what_takes_no_known_labels_says_so(home, more, says):
    write_csv(home / "known.csv", [("task", "label"), (0, 0)])
    result = refused(3, *FIT, "--known", "known.csv", *more, says=[says])
    assert "leave --known out" in result.stderr or "aggregate --known" in result.stderr
