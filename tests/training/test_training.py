"""The epoch loop and its data; likelihoods of annotations and of tuplets' positives."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from manyhands import AnnotationTable, training
from manyhands.exceptions import AnnotationError, DivergenceError, ModelFolderError, WriteError
from manyhands.functional import (
    SOFTMAX_FORMS,
    annotation_nll,
    apply_confusion,
    confusion_gap,
    mix_log_proba,
    robust_anchors,
    soft_cross_entropy,
    tuplet_nll,
)
from manyhands.training import (
    AnnotationBatches,
    BestState,
    EarlyStopping,
    Features,
    GradientStep,
    History,
    Monitor,
    Stage,
    hold_out,
    isolated_rng,
    load_tree,
    pick_device,
    run_epochs,
    run_stages,
    save_tree,
)

CPU = torch.device("cpu")


def batches(n=7, batch_size=3, weights=False):
    rng = np.random.default_rng(0)
    A = rng.integers(-1, 3, (n, 4))
    A[2] = -1
    A[3] = [0, 1, 2, 0]
    table = AnnotationTable.from_matrix(A)
    if weights:
        table = AnnotationTable.from_arrays(
            table.instance, table.annotator, table.label, n_instances=n,
            weight=np.arange(table.n_annotations) + 1.0,
        )  # fmt: skip
    X = np.arange(n, dtype=np.float32)[:, None]
    return AnnotationBatches(Features(X, CPU), table, batch_size), A, table


@pytest.mark.parametrize("weights", [False, True])
def test_an_epoch_holds_every_annotation_once(weights):
    source, A, table = batches(weights=weights)
    seen = []
    for batch in source.epoch(0):
        assert len(batch.x) >= 2, "a batch of one cannot be normalised"
        np.testing.assert_array_equal(batch.x[:, 0], batch.instances)
        w = batch.weights if weights else torch.ones(len(batch.labels))
        for row, r, label, weight in zip(
            batch.rows, batch.annotators, batch.labels, w, strict=True
        ):
            seen.append((int(batch.instances[row]), int(r), int(label), float(weight)))
    expected = [
        (int(i), int(r), int(label), float(w))
        for i, r, label, w in zip(
            table.instance, table.annotator, table.label, table.weight, strict=True
        )
    ]
    assert sorted(seen) == sorted(expected)
    assert all(A[i, r] == label for i, r, label, _ in seen)
    assert 2 not in {i for i, *_ in seen}, "an instance without annotations was fetched"


def test_epochs_are_shuffled_and_in_order_is_not():
    source, _, _ = batches(n=40, batch_size=8)
    first = torch.cat([b.instances for b in source.epoch(0)])
    second = torch.cat([b.instances for b in source.epoch(1)])
    assert not torch.equal(first, second)
    assert torch.equal(first.sort().values, second.sort().values)
    in_order = torch.cat([b.instances for b in source.in_order()])
    assert torch.equal(in_order, in_order.sort().values)


def test_a_shuffled_table_gives_the_same_batches():
    source, _, table = batches()
    shuffled = table.take(np.random.default_rng(1).permutation(table.n_annotations))
    other = AnnotationBatches(source.features, shuffled, 3)
    for a, b in zip(source.in_order(), other.in_order(), strict=True):
        assert sorted(
            zip(a.rows.tolist(), a.annotators.tolist(), a.labels.tolist(), strict=True)
        ) == sorted(zip(b.rows.tolist(), b.annotators.tolist(), b.labels.tolist(), strict=True))


def test_hold_out_splits_annotations_exactly():
    _, _, table = batches()
    kept, held = hold_out(table, 0.3, np.random.default_rng(0))
    assert held.n_annotations == round(0.3 * table.n_annotations)
    both = sorted(
        zip(
            *(
                np.concatenate([getattr(kept, c), getattr(held, c)])
                for c in ("instance", "annotator", "label")
            ),
            strict=True,
        )
    )
    assert both == sorted(zip(table.instance, table.annotator, table.label, strict=True))
    assert kept.shape == held.shape == table.shape
    with pytest.raises(AnnotationError, match=r"validation=0\.001"):
        hold_out(table, 0.001, np.random.default_rng(0))


def quadratic(start=4.0, **options):
    module = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(module.weight, start)

    def objective(module, batch):
        return {"square": module.weight.square().sum(), "shift": 0.0 * module.weight.sum()}

    step = GradientStep(
        module, objective, lambda: torch.optim.SGD(module.parameters(), lr=0.25), **options
    )
    return module, step


def test_run_epochs_logs_named_terms_and_their_sum():
    module, step = quadratic()
    history = History()
    run_epochs(step, lambda epoch: [None, None], max_epochs=2, history=history, stage="warm")
    assert [row["epoch"] for row in history] == [1, 2]
    assert history.columns == ["stage", "epoch", "square", "shift", "loss", "seconds"]
    # w -> w / 2 a step: squares 16, 4 | 1, .25; means 10 and .625
    np.testing.assert_allclose(history.column("square"), [10.0, 0.625])
    np.testing.assert_allclose(history.column("loss"), history.column("square"))
    assert history.column("square", stage="other").size == 0
    assert math.isnan(history.column("nothing")[0])
    assert module.weight.item() == 0.25


def test_early_stopping_waits_and_best_state_returns():
    module, step = quadratic()
    values = iter([3.0, 1.0, 2.0, 2.0, 0.5, 0.1])
    monitor = Monitor(lambda: {"metric": next(values)})
    best = BestState(module, "metric", higher_is_better=False)
    stop = EarlyStopping("metric", higher_is_better=False, patience=2)
    history = History()
    run_stages(
        [Stage("train", step, lambda epoch: [None], 6)],
        callbacks=[monitor, best, stop],
        history=history,
    )
    assert len(history) == 4, "stops after two epochs without improvement"
    assert module.weight.item() == 4.0 / 2**4
    best.restore()
    assert best.best["epoch"] == 2
    assert module.weight.item() == 4.0 / 2**2


def test_stages_that_are_exempt_from_early_stopping_are_run_to_their_end():
    for exempt, expected in (((), [3, 3]), (("before",), [5, 3])):
        _, step = quadratic()
        stop = EarlyStopping("metric", higher_is_better=True, patience=2, exempt=exempt)
        history = History()
        run_stages(
            [Stage(name, step, lambda epoch: [None], 5) for name in ("before", "train")],
            callbacks=[Monitor(lambda: {"metric": 1.0}), stop],
            history=history,
        )
        assert [len(history.column("metric", name)) for name in ("before", "train")] == expected


def test_an_exempt_stage_need_not_have_the_metric():
    _, step = quadratic()
    stop = EarlyStopping("metric", higher_is_better=True, patience=1, exempt=["before"])
    run_stages(
        [Stage("before", step, lambda epoch: [None], 2)], callbacks=[stop], history=History()
    )
    assert stop.best is None


def test_a_new_optimiser_every_epoch_on_request():
    _, step = quadratic(reset_every_epoch=True)
    before = step.optimizer
    step.start_epoch(0)
    assert step.optimizer is before
    step.start_epoch(1)
    assert step.optimizer is not before


def test_divergence_is_an_error_that_says_what_to_do():
    _, step = quadratic(start=float("inf"))
    with pytest.raises(DivergenceError, match="lower lr"):
        run_epochs(step, lambda epoch: [None], max_epochs=1, history=History())


def test_isolated_rng_repeats_and_restores():
    before = torch.get_rng_state()
    with isolated_rng(3, CPU):
        first = torch.rand(4)
    with isolated_rng(3, CPU):
        second = torch.rand(4)
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_trees_survive_the_disk(tmp_path):
    tree = {
        "a": [1, 2.5, None, "x", True],
        "state": {0: {"step": torch.tensor(3.0), "m": torch.ones(2, 3)}, 1: {}},
        "bytes": torch.arange(5, dtype=torch.uint8),
        "__odd__": {"__tensor__": "not one"},
    }
    path = save_tree(tmp_path / "tree.safetensors", tree)
    loaded = load_tree(path)
    assert loaded["a"] == tree["a"]
    assert set(loaded["state"]) == {0, 1}
    assert torch.equal(loaded["state"][0]["m"], tree["state"][0]["m"])
    assert loaded["bytes"].dtype == torch.uint8
    assert loaded["__odd__"] == {"__tensor__": "not one"}


def test_a_truncated_tree_is_refused(tmp_path):
    path = save_tree(tmp_path / "tree.safetensors", {"w": torch.ones(100)})
    content = path.read_bytes()
    for cut in (0, 4, 40, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(ModelFolderError, match="truncated"):
            load_tree(path)
    with pytest.raises(ModelFolderError, match="missing"):
        load_tree(tmp_path / "none")


def test_a_full_disk_leaves_the_previous_file(tmp_path, monkeypatch):
    import errno
    import os

    path = save_tree(tmp_path / "tree.safetensors", {"w": torch.ones(3)})

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="disk is full"):
        save_tree(path, {"w": torch.zeros(3)})
    assert torch.equal(load_tree(path)["w"], torch.ones(3))
    assert [p.name for p in tmp_path.iterdir()] == ["tree.safetensors"]


def test_devices():
    assert pick_device("cpu") == CPU
    assert pick_device("auto").type in {"cpu", "cuda"}
    with pytest.raises(ValueError, match="'abacus' is unknown"):
        pick_device("abacus")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"):
            pick_device("cuda")


# -- likelihoods of annotations; robust anchors and the likelihood of a tuplet's positive ---------


def test_annotation_nll_by_hand():
    log_proba = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    labels = torch.tensor([0, 1])
    assert_close(
        annotation_nll(log_proba, labels), torch.tensor(-(math.log(0.5) + math.log(0.75)) / 2)
    )
    weights = torch.tensor([3.0, 1.0])
    expected = -(3 * math.log(0.5) + math.log(0.75)) / 2
    assert_close(annotation_nll(log_proba, labels, weights), torch.tensor(expected))
    assert annotation_nll(log_proba, labels, torch.zeros(2)) == 0


def test_soft_cross_entropy_equals_a_slow_loop():
    torch.manual_seed(0)
    logits, targets = torch.randn(5, 3), torch.rand(5, 3)
    slow = 0.0
    for i in range(5):
        total = sum(math.exp(float(z)) for z in logits[i])
        for c in range(3):
            slow -= float(targets[i, c]) * math.log(math.exp(float(logits[i, c])) / total)
    assert_close(soft_cross_entropy(logits, targets), torch.tensor(slow / 5))


def test_apply_confusion_reads_rows_as_true_classes():
    proba = torch.tensor([[1.0, 0.0]])
    kernel = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])
    assert_close(apply_confusion(proba, kernel), torch.tensor([[0.9, 0.1]]))


def test_mix_log_proba_mixes_distributions():
    gate = torch.tensor([0.25]).logit()
    first, second = torch.tensor([[0.2, 0.8]]), torch.tensor([[0.6, 0.4]])
    mixed = mix_log_proba(gate, first.log(), second.log()).exp()
    assert_close(mixed, torch.tensor([[0.5, 0.5]]))


def test_mix_log_proba_keeps_its_gradient_where_the_gate_saturates():
    gate = torch.tensor([200.0, -200.0], requires_grad=True)
    first = torch.tensor([[0.2, 0.8]] * 2).log()
    second = torch.tensor([[0.6, 0.4]] * 2).log()
    mixed = mix_log_proba(gate, first, second)
    assert_close(mixed.exp(), torch.tensor([[0.2, 0.8], [0.6, 0.4]]))
    mixed.sum().backward()
    assert torch.isfinite(gate.grad).all()


def test_confusion_gap_by_hand():
    individual = torch.stack([torch.zeros(2, 2), 2 * torch.ones(2, 2)])
    common = torch.ones(2, 2)
    assert confusion_gap(individual, common) == 4.0  # twice the norm of four ones
    assert confusion_gap(individual, common, squared=True) == 8.0


def test_confusion_gap_has_a_gradient_of_zero_at_zero():
    individual = torch.zeros(2, 2, 2, requires_grad=True)
    confusion_gap(individual, torch.zeros(2, 2)).backward()
    assert_close(individual.grad, torch.zeros(2, 2, 2))


# -- tuplets (NeuCrowd, Def. 4) -----------------------------------------------------------------

EMBEDDING = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0], [10.0, 10.0]])
ASSURANCE = torch.tensor([0.2, 0.6, 1.0, 0.5])
CLASSES = torch.tensor([0, 0, 2, 2])


def test_anchors_are_means_by_assurance_or_the_printed_sum():
    anchors = robust_anchors(EMBEDDING, ASSURANCE, CLASSES, 3)
    # (.2 (1, 0) + .6 (3, 4)) / .8 and ((0, 2) + .5 (10, 10)) / 1.5.
    expected = torch.tensor([[2.5, 3.0], [0.0, 0.0], [10 / 3, 14 / 3]])
    torch.testing.assert_close(anchors, expected)
    printed = robust_anchors(EMBEDDING, ASSURANCE, CLASSES, 3, normalize=False)
    torch.testing.assert_close(printed, torch.tensor([[2.0, 2.4], [0.0, 0.0], [5.0, 7.0]]))


def test_where_nothing_is_assured_all_count_alike():
    anchors = robust_anchors(EMBEDDING, torch.tensor([0.0, 0.0, 1.0, 0.0]), CLASSES, 3)
    torch.testing.assert_close(anchors[0], torch.tensor([2.0, 2.0]))
    torch.testing.assert_close(anchors[2], torch.tensor([0.0, 2.0]))


def test_the_gradient_reaches_the_anchors_by_their_assurance():
    embedding = EMBEDDING.clone().requires_grad_()
    robust_anchors(embedding, ASSURANCE, CLASSES, 3)[0].sum().backward()
    expected = torch.tensor([[0.25, 0.25], [0.75, 0.75], [0.0, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(embedding.grad, expected)


def loop_nll(anchor, members, assurance, eta, constant, form):
    """Section 3.3.3 for one tuplet, number by number."""
    terms = []
    for member, own in zip(members, assurance, strict=True):
        distance = math.sqrt(sum((a - b) ** 2 for a, b in zip(member, anchor, strict=True)))
        similarity = constant - distance
        if form == "paper":
            terms.append(math.exp(eta * own * similarity))
        else:
            terms.append((own + 1e-7) * math.exp(eta * similarity))
    return -math.log(terms[0] / sum(terms))


@pytest.mark.parametrize("form", SOFTMAX_FORMS)
@pytest.mark.parametrize("constant", [1.0, -0.5])
def test_the_loss_equals_the_loop(form, constant):
    generator = torch.Generator().manual_seed(0)
    anchors = torch.randn(6, 3, generator=generator, dtype=torch.float64)
    members = torch.randn(6, 4, 3, generator=generator, dtype=torch.float64)
    assurance = torch.rand(6, 4, generator=generator, dtype=torch.float64)
    assurance[0, 2] = 0.0
    found = tuplet_nll(anchors, members, assurance, eta=1.5, constant=constant, form=form)
    expected = [
        loop_nll(*tuplet, 1.5, constant, form)
        for tuplet in zip(anchors.tolist(), members.tolist(), assurance.tolist(), strict=True)
    ]
    assert found.shape == (6,)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_one_tuplet_by_hand():
    anchor, members = torch.zeros(1, 2), torch.tensor([[[3.0, 4.0], [1.0, 0.0]]])
    sure = torch.ones(1, 2)
    # Similarities 1 - 5 and 1 - 1.
    nll = tuplet_nll(anchor, members, sure, eta=0.5, constant=1.0)
    torch.testing.assert_close(nll, torch.tensor([math.log(1 + math.exp(2.0))]))
    # A negative without assurance: a constant 1 in the paper, nothing in the code.
    half = torch.tensor([[0.5, 0.0]])
    paper = tuplet_nll(anchor, members, half, eta=0.5, constant=1.0)
    torch.testing.assert_close(paper, torch.tensor([math.log(1 + math.exp(1.0))]))
    code = tuplet_nll(anchor, members, half, eta=0.5, constant=1.0, form="code")
    torch.testing.assert_close(code, torch.zeros(1), atol=1e-5, rtol=0)


def test_the_constant_cancels_in_the_code_and_not_in_the_paper():
    generator = torch.Generator().manual_seed(1)
    anchors = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    members = torch.randn(5, 3, 2, generator=generator, dtype=torch.float64)
    assurance = torch.rand(5, 3, generator=generator, dtype=torch.float64)
    code, paper = (
        [tuplet_nll(anchors, members, assurance, eta=2.0, constant=C, form=form) for C in (1, 3)]
        for form in ("code", "paper")
    )
    torch.testing.assert_close(*code)
    assert (paper[0] - paper[1]).abs().min() > 1e-3


@pytest.mark.parametrize("form", SOFTMAX_FORMS)
def test_gradients_are_finite_where_a_member_lies_on_the_anchor_and_nothing_is_assured(form):
    anchors = torch.ones(2, 3, requires_grad=True)
    members = torch.ones(2, 4, 3)
    members[:, 3] = 2.0
    members.requires_grad_()
    assurance = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    nll = tuplet_nll(anchors, members, assurance, eta=5.0, form=form)
    nll.sum().backward()
    assert torch.isfinite(nll).all()
    assert torch.isfinite(anchors.grad).all()
    assert torch.isfinite(members.grad).all()
    assert members.grad[0, 3].abs().sum() > 0


@pytest.mark.parametrize(("former", "name"), training.FORMER_NAMES.items())
def test_former_names_work_and_name_the_present_one(former, name):
    with pytest.warns(FutureWarning, match=f"{former} is now called {name}"):
        assert getattr(training, former) is getattr(training, name)
    assert name in training.__all__
    assert former not in training.__all__
