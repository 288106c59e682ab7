"""Graph completion: what is hidden is hidden, what has a structure is completed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from torch.utils.data import TensorDataset

from manyhands import AnnotationTable, GraphCompleter, all_classifiers
from manyhands.classifiers import graph_completion
from manyhands.classifiers.graph_completion import AnnotationGraph
from manyhands.estimator_checks import make_crowd_problem
from manyhands.exceptions import AnnotationError, DivergenceError
from manyhands.registry import find
from manyhands.training import hold_out

QUICK = {"max_epochs": 5, "random_state": 0, "device": "cpu"}


def completer(**changes):
    return GraphCompleter(**{**QUICK, **changes})


def flippers(n=120, n_annotators=12, seed=0):
    """Return features that say nothing, and annotators who tell the class, or always the other."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    flips = np.arange(n_annotators) % 2
    A = y[:, None] ^ flips
    hidden = rng.random(A.shape) > 0.4
    return rng.normal(size=(n, 3)), np.where(hidden, -1, A), A, hidden


def test_a_crowd_of_blocks_is_completed():
    """Half of the annotators flip; nobody is told of whom or of what: the marginal is 1/2."""
    X, observed, A, hidden = flippers()
    table = AnnotationTable.from_matrix(observed, classes=[0, 1])
    model = completer(max_epochs=150, hidden=32, validation=None).fit(X, table)
    right = model.complete(np.arange(len(X))).argmax(axis=2) == A
    assert right[hidden].mean() > 0.95
    # Of features that say nothing, nothing is known.
    alone = model.predict_annotation_proba(X).argmax(axis=2) == A
    assert alone[hidden].mean() < 0.8


def test_features_speak_for_instances_nobody_annotated():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    X = np.eye(3)[y] * 3 + rng.normal(size=(200, 3))
    A = np.where(rng.random((200, 6)) < 0.4, y[:, None], -1)
    A[150:] = -1
    A[:, 3:] = np.where(A[:, 3:] < 0, -1, (A[:, 3:] + 1) % 3)  # they name the class after it
    model = completer(max_epochs=50).fit(X, AnnotationTable.from_matrix(A, classes=[0, 1, 2]))
    expected = np.column_stack([y[150:]] * 3 + [(y[150:] + 1) % 3] * 3)
    found = model.complete(np.arange(150, 200))
    assert (found.argmax(axis=2) == expected).mean() > 0.9
    np.testing.assert_allclose(found, model.predict_annotation_proba(X[150:]), atol=1e-6)


def test_what_is_to_be_predicted_is_no_message(monkeypatch):
    """Whatever label a hidden annotation has, its prediction in training is the same."""
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    rows = np.unique(table.instance)
    model = completer(dropout=0.0).fit(X, table)
    x = torch.from_numpy(X[rows].astype(np.float32))
    graph = AnnotationGraph.of(table, rows, torch.device("cpu"))
    hidden = graph.draw_hidden(0.5)
    assert hidden.sum() == round(0.5 * table.n_annotations)
    seen = []
    monkeypatch.setattr(AnnotationGraph, "draw_hidden", lambda self, share: hidden)
    monkeypatch.setattr(
        graph_completion,
        "annotation_nll",
        lambda log_proba, labels, weights: seen.append((log_proba, labels)) or log_proba.sum(),
    )
    for changed in (hidden, ~hidden):
        labels = torch.where(changed, (graph.edges.labels + 1) % 3, graph.edges.labels)
        for version in (graph.edges, graph.edges._replace(labels=labels)):
            graph_completion.hidden_annotations_loss(
                model.module_, x, graph._replace(edges=version), 0.5
            )
    own, others = seen[:2], seen[2:]
    assert torch.equal(own[0][0], own[1][0])
    assert not torch.equal(own[0][1], own[1][1])
    assert not torch.allclose(others[0][0], others[1][0]), "others' labels are messages"


def test_a_cell_is_hidden_with_all_its_annotations():
    rows = np.array([0, 0, 0, 1, 1, 2])
    annotators = np.array([0, 0, 1, 0, 0, 1])
    labels = np.array([0, 1, 0, 1, 1, 0])
    table = AnnotationTable(
        rows, annotators, labels, np.arange(3), np.arange(2), np.array(["a", "b"])
    )
    graph = AnnotationGraph.of(table, np.arange(3), torch.device("cpu"))
    assert graph.n_cells == 4
    torch.manual_seed(0)
    for _ in range(20):
        hidden = graph.draw_hidden(0.5)
        assert hidden[0] == hidden[1]
        assert hidden[3] == hidden[4]
        assert len(set(graph.cells[hidden].tolist())) == 2
    assert graph.draw_hidden(1e-6).any()


def test_the_epoch_that_explains_the_held_out_annotations_best_is_kept():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    options = {"lr": 0.05, "validation": 0.2}
    model = completer(max_epochs=20, **options).fit(X, table)
    nll = model.history_.column("validation_nll")
    assert model.best_epoch_ == np.argmin(nll) + 1
    assert model.history_.column("nll").tolist() == model.history_.column("loss").tolist()
    assert model.best_epoch_ < 20
    short = completer(max_epochs=model.best_epoch_, **options).fit(X, table)
    rows = np.arange(len(X))
    np.testing.assert_array_equal(short.complete(rows), model.complete(rows))
    # By hand: what is held out, explained by the graph of the others.
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    kept, held = hold_out(table, 0.2, np.random.default_rng(seed))
    found = np.unique(table.instance)
    x = torch.from_numpy(X[found].astype(np.float32))
    others = AnnotationGraph.of(kept, found, torch.device("cpu")).edges
    asked = AnnotationGraph.of(held, found, torch.device("cpu")).edges
    with torch.inference_mode():
        log_proba = model.module_.annotation_log_proba(x, others, *asked[:2])
    by_hand = -log_proba.gather(1, asked.labels[:, None]).mean()
    assert nll.min() == pytest.approx(float(by_hand), rel=1e-5)
    stopped = completer(max_epochs=20, patience=1, **options).fit(X, table)
    assert len(stopped.history_) < 20
    last = completer(validation=None).fit(X, table)
    assert not hasattr(last, "best_epoch_")
    assert "validation_nll" not in last.history_.columns
    assert not hasattr(model.set_params(validation=None).fit(X, table), "best_epoch_")


def test_cells_are_completed_with_all_annotations_those_held_out_too():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    model = completer(validation=0.5).fit(X, table)
    found = np.unique(table.instance)
    x = torch.from_numpy(X[found].astype(np.float32))
    with torch.inference_mode():
        whole = AnnotationGraph.of(table, found, torch.device("cpu")).edges
        proba = model.module_.decode(*model.module_(x, whole)).exp().numpy()
    np.testing.assert_allclose(model.complete(found), proba, atol=1e-6)


def test_annotators_in_another_order_are_the_same():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    order = np.array([3, 0, 4, 1, 2])
    place = np.argsort(order)
    other = AnnotationTable(
        table.instance,
        place[table.annotator],
        table.label,
        table.instances,
        table.annotators[order],
        table.classes,
    )
    rows = np.arange(len(X))
    one, two = (completer(dropout=0.0).fit(X, y).complete(rows) for y in (table, other))
    np.testing.assert_allclose(two, one[:, order], atol=1e-4)
    assert np.abs(two - one).max() > 0.01


def test_seeds_repeat_and_nothing_global_moves():
    X, A, _ = make_crowd_problem()
    state = torch.get_rng_state()
    rows = np.arange(len(X))
    first, second, other = (
        completer(random_state=seed).fit(X, A).complete(rows) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - other).max() > 1e-4
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_given_back():
    X, A, _ = make_crowd_problem()
    names = [f"w{r}" for r in range(5)]
    table = AnnotationTable.from_matrix(A, annotators=names)
    model = completer().fit(X, table)
    whole = model.complete(np.arange(len(X)))
    assert whole.dtype == np.float32
    np.testing.assert_allclose(whole.sum(axis=2), 1, rtol=1e-5)
    part = model.complete([5, -1], ["w3", "w0"])
    np.testing.assert_allclose(part, whole[[5, -1]][:, [3, 0]], rtol=1e-5)
    assert model.complete([]).shape == (0, 5, 3)
    assert model.predict_annotation_proba(X[:2], ["w1"]).shape == (2, 1, 3)
    assert clone(model).get_params() == model.get_params()


def test_who_said_nothing_says_what_the_others_do():
    X, A, _ = make_crowd_problem()
    A = np.hstack([A, np.full((len(A), 1), -1)])
    A[:3] = -1
    model = completer().fit(X, A)
    assert model.annotators_seen_.tolist() == [True] * 5 + [False]
    for found in (model.complete(np.arange(len(X))), model.predict_annotation_proba(X)):
        np.testing.assert_allclose(found[:, 5], found[:, :5].mean(axis=1), atol=1e-6)
    alone = model.predict_annotation_proba(X[:3])
    np.testing.assert_allclose(model.complete([0, 1, 2]), alone, atol=1e-6)


def test_datasets_sparse_matrices_tensors_and_images():
    X, A, _ = make_crowd_problem()
    X = X.astype(np.float32)
    plain = completer().fit(X, A).predict_annotation_proba(X)
    tensor = torch.from_numpy(X)
    for other in (tensor, TensorDataset(tensor), csr_matrix(X), X.tolist()):
        found = completer().fit(other, A).predict_annotation_proba(other)
        np.testing.assert_allclose(found, plain, atol=1e-5)
    images = np.random.default_rng(0).normal(size=(len(X), 3, 4, 4))
    model = completer().fit(images, A)
    assert model.predict_annotation_proba(images[:2]).shape == (2, 5, 3)
    with pytest.raises(AnnotationError, match=r"instances of shape \(3, 4, 5\)"):
        model.predict_annotation_proba(np.zeros((2, 3, 4, 5)))


def test_weights_are_weights_of_the_loss():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    rows = np.arange(len(X))
    plain = completer().fit(X, table).complete(rows)
    twos = completer().fit(X, replace(table, weights=np.full(table.n_annotations, 2.0)))
    np.testing.assert_allclose(twos.complete(rows), plain, atol=1e-6)
    one_sided = np.where(table.label == 0, 1.0, 1e-3)
    model = completer(max_epochs=20, lr=0.03, validation=None).fit(
        X, replace(table, weights=one_sided)
    )
    assert model.complete(rows)[..., 0].mean() > 0.9


def test_degenerate_crowds():
    X = np.eye(3)
    for A in ([[0], [1], [-1]], [[0, 0], [0, 0], [1, 0]]):
        table = AnnotationTable.from_matrix(np.array(A), classes=[0, 1])
        assert np.isfinite(completer(validation=None).fit(X, table).complete([0, 1, 2])).all()


def test_progress_is_shown_where_asked(capsys):
    X, A, _ = make_crowd_problem()
    completer().fit(X, A)
    assert capsys.readouterr().err == ""
    completer(verbose=1).fit(X, A)
    assert "GraphCompleter" in capsys.readouterr().err


def test_it_is_found_by_name_and_is_no_classifier():
    assert find("graph-completer", "completer", "classifier") is GraphCompleter
    assert find("GraphCompleter", "completer") is GraphCompleter
    assert find("conal", "completer", "classifier").__name__ == "CoNALClassifier"
    assert "GraphCompleter" not in dict(all_classifiers())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hide": 1.0}, "'hide' parameter of GraphCompleter"),
        ({"hidden": 0}, "'hidden' parameter of GraphCompleter"),
        ({"max_epochs": 0}, "'max_epochs' parameter of GraphCompleter"),
        ({"scaling": "best"}, "'scaling' parameter of GraphCompleter"),
        ({"validation": None, "patience": 2}, "patience=2 stops"),
        ({"validation": 1e-6}, "leaves one part empty"),
        ({"device": "abacus"}, "device='abacus' is unknown"),
    ],
)
def test_wrong_parameters_are_refused(changes, message):
    X, A, _ = make_crowd_problem()
    with pytest.raises(ValueError, match=message):
        completer(**changes).fit(X, A)


def test_wrong_input_is_refused():
    X, A, _ = make_crowd_problem()
    with pytest.raises(AnnotationError, match="X has 3 rows but y has annotations for 48"):
        completer().fit(X[:3], A)
    with pytest.raises(ValueError, match="NaN"):
        completer().fit(np.where(X > 1, np.nan, X), A)
    with pytest.raises(AnnotationError, match="y"):
        completer().fit(X, np.full_like(A, -1))
    with pytest.raises(DivergenceError, match="loss became"):
        completer(lr=1e30, max_epochs=20).fit(X, A)
    model = completer().fit(X, A)
    with pytest.raises(IndexError, match="rows: position 99 is outside"):
        model.complete([99])
    with pytest.raises(AnnotationError, match=r"rows has shape .* give positions"):
        model.complete(X)
    with pytest.raises(AnnotationError, match="annotators"):
        model.complete([0], [77])
