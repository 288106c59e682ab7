"""CrowdInG's step: the counterfactual risk, what cells are drawn, what every network learns."""

import copy
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from manyhands import (
    AnnotationTable,
    CrowdInGClassifier,
    CrowdInGProtocol,
)
from manyhands.classifiers.crowding.adversarial import AdversarialSettings, AdversarialStep
from manyhands.classifiers.crowding.counterfactual import (
    MU_GRID,
    ClassifierGradient,
    GeneratorGradient,
    cell_ratios,
)
from manyhands.classifiers.crowding.label_correlation import label_cooccurrence, label_correlation
from manyhands.classifiers.crowding.log import (
    LoggedCells,
    class_proba_of,
    clipped_entropy,
    select_certain,
)
from manyhands.estimator_checks import make_crowd_problem
from manyhands.fitting.callbacks import ClassifierMonitor
from manyhands.objectives import (
    Annotations,
    authenticity_cost,
    counterfactual_risk,
    discriminator_objective,
    effective_sample_size,
    importance_ratios,
    information_cost,
    self_normalized_risk,
)
from manyhands.training import AnnotationBatches, Features, hold_out
from tests.building import built

CPU = torch.device("cpu")


GAN = {
    "generator": "crowd_layer", "information_weight": 0, "selection": "random",
    "two_steps": False, "generative_steps": 1, "mu": "mean", "lca": False,
}  # fmt: skip


QUICK = {
    "max_epochs": 2, "batch_size": 16, "discriminator_steps": 2, "generative_steps": 2,
    "random_state": 0, "device": "cpu",
}  # fmt: skip

# Options that make another network. The others are those of the step, or of the training before.
NETWORK = {"generator", "lca", "chunk_size"}


@cache
def pretrained(n, **network):
    """A network trained on a small problem of n instances, for many tests to copy."""
    short = {"batch_size": n, "adversarial_epochs": 1, "mu": 0.0}
    return (
        built(CrowdInGClassifier, **QUICK | short | network).fit(*make_crowd_problem(n)[:2]).module_
    )


class Step:
    """A step on a small problem with its first batch, everything as after pre-training."""

    def __init__(self, generate=True, seed=0, n=48, **options):
        X, A, self.y = make_crowd_problem(n)
        table = AnnotationTable.from_matrix(A)
        model = built(CrowdInGClassifier, **QUICK | options)
        network = {name: options[name] for name in NETWORK & options.keys()}
        self.table, self.module = table, copy.deepcopy(pretrained(n, **network))
        self.batches = AnnotationBatches(Features(X.astype(np.float32), CPU), table, n)
        cells = LoggedCells(table, model._protocol.annotators_per_instance, CPU)
        self.step = AdversarialStep(
            self.module, AdversarialSettings.of(model._protocol), cells, generate=generate
        )
        torch.manual_seed(seed)
        self.batch = next(iter(self.batches.epoch(0)))
        self.step.start_epoch(0)

    def divide(self):
        """Put the threshold between the instances, half of them on either side."""
        proba = self.module(self.batch.x).detach().softmax(dim=1)
        t = float(torch.special.entr(proba).sum(dim=1).median())
        self.step.settings = replace(self.step.settings, entropy_threshold=t)
        return self

    def state(self, part=""):
        state = self.module.state_dict()
        return {name: v.clone() for name, v in state.items() if name.startswith(part)}

    def proba(self, log):
        """What the classifier says of a log's instances now."""
        return class_proba_of(self.module.classifier, log)

    def gradients(self, log, cost, cells=None, truncation=5.0):
        """The gradients of both networks over some cells (all), at some cost."""
        cells = torch.arange(len(log.rows)) if cells is None else cells
        given = log, self.proba(log), cells, cost, truncation, 1 << 13
        return GeneratorGradient(*given), ClassifierGradient(*given, self.module.generator)

    def run(self):
        """Names of the tensors that one call changes, and the terms."""
        before = self.state()
        terms = self.step(self.batch)
        after = self.module.state_dict()
        return {n for n, v in before.items() if not torch.equal(v, after[n])}, terms


# -- the estimator of the counterfactual risk ---------------------------------------------------


def test_counterfactual_gradient_by_hand():
    """Two cells of two classes: drawn 0 and 1 from a uniform log, of costs 3 and 1, mu = 2."""
    logits = torch.tensor([[0.4, -0.4], [1.0, 0.5]], requires_grad=True)
    labels, cost, mu = torch.tensor([0, 1]), torch.tensor([3.0, 1.0]), 2.0
    now = logits.log_softmax(dim=1).gather(1, labels[:, None])[:, 0]
    ratios = importance_ratios(now, torch.full((2,), math.log(0.5)))
    counterfactual_risk(ratios, cost, mu=mu, truncation=10.0).backward()
    p = [1 / (1 + math.exp(-0.8)), 1 / (1 + math.exp(0.5))]  # Of the drawn labels.
    np.testing.assert_allclose(ratios.detach(), [p[0] / 0.5, p[1] / 0.5], rtol=1e-5)
    # d w / d logit of the drawn label: p (1 - p) / p0; of the other one, its negative.
    first = (3 - mu) * p[0] * (1 - p[0]) / 0.5 / 2
    second = (1 - mu) * p[1] * (1 - p[1]) / 0.5 / 2
    expected = [[first, -first], [-second, second]]
    np.testing.assert_allclose(logits.grad, expected, rtol=1e-5)
    assert logits.grad[0, 0] > 0, "what costs more than mu is made less probable"
    assert logits.grad[1, 1] < 0, "what costs less is made more probable"


def test_truncated_ratios_count_and_have_no_gradient():
    log_ratio = torch.tensor([math.log(9.0), 0.0], requires_grad=True)
    risk = counterfactual_risk(log_ratio.exp(), torch.tensor([3.0, 2.0]), mu=1.0, truncation=5.0)
    risk.backward()
    assert float(risk.detach()) == pytest.approx((2 * 5 + 1 * 1) / 2)
    np.testing.assert_allclose(log_ratio.grad, [0.0, 0.5])


def test_self_normalised_risk_is_equivariant_and_the_plain_one_is_not():
    ratios, cost = torch.tensor([0.5, 2.0, 1.5]), torch.tensor([1.0, 2.0, 4.0])
    risk = float(self_normalized_risk(ratios, cost))
    assert risk == pytest.approx((0.5 * 1 + 2 * 2 + 1.5 * 4) / 4)
    assert float(self_normalized_risk(ratios, cost + 10)) == pytest.approx(risk + 10)
    assert float((ratios * (cost + 10)).mean()) != pytest.approx(float((ratios * cost).mean()) + 10)


def test_effective_sample_size_by_hand():
    assert float(effective_sample_size(torch.ones(7))) == pytest.approx(1.0)
    weights = torch.tensor([1.0, 2.0, 3.0])
    assert float(effective_sample_size(weights)) == pytest.approx(36 / (3 * 14))


@pytest.mark.parametrize("form", ["saturating", "non_saturating"])
def test_costs_fall_with_authenticity_and_are_bounded(form):
    scores = torch.tensor([-1e4, -2.0, 0.0, 2.0, 1e4])
    cost = authenticity_cost(scores, form)
    assert (cost.diff() < 0).all()
    assert cost.abs().max() <= math.log(1001) + 1e-4
    d = 1 / (1 + math.exp(-2.0))
    by_hand = math.log((1 - d + 1e-3) / 1.001), -math.log((d + 1e-3) / 1.001)
    assert float(cost[3]) == pytest.approx(by_hand[form == "non_saturating"], rel=1e-4)


def test_information_cost_by_hand():
    log_posterior = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    z = torch.tensor([[0.3, 0.7], [1.0, 0.0]])
    expected = [-math.log(0.5), -math.log(0.9)]
    np.testing.assert_allclose(information_cost(log_posterior, z), expected, rtol=1e-5)


@pytest.mark.parametrize("form", ["l1", "l2"])
def test_discriminator_objective_equals_a_loop(form):
    s = Step()
    judge, auxiliary = s.module.discriminator, s.module.auxiliary
    features, proba = s.module.classify(s.batch.x)
    proba = proba.detach()
    real = Annotations(
        torch.tensor([0, 3, 3]), torch.tensor([1, 0, 4]), torch.tensor([2, 0, 1]),
        torch.tensor([0.5, 1.0, 1.5]),
    )  # fmt: skip
    generated = Annotations(torch.tensor([5, 1]), torch.tensor([2, 2]), torch.tensor([0, 2]))
    terms = discriminator_objective(
        judge, auxiliary, features, proba, real, generated,
        information_weight=0.7, sparsity_weight=0.2, sparsity_form=form,
    )  # fmt: skip
    expected = dict.fromkeys(terms, 0.0)
    matrices = judge.class_matrices()
    for name, part in (("real", real), ("generated", generated)):
        m = len(part.labels)
        for i in range(m):
            cell = part.rows[i : i + 1], part.annotators[i : i + 1]
            weight = 0.5 / m * (1.0 if part.weights is None else float(part.weights[i]))
            pair = judge.embed(features, *cell)
            D = judge.scores(pair, matrices)[0].sigmoid().detach().double()
            y, z = int(part.labels[i]), proba[part.rows[i]]
            expected[name] -= weight * math.log(D[y] if name == "real" else 1 - D[y])
            expected["sparsity"] += 0.2 * weight * float((D if form == "l1" else D**2).mean())
            Q = auxiliary(pair, matrices, part.labels[i : i + 1])[0].detach()
            expected["information"] -= 0.7 * weight * float((z * Q).sum())
    for name, term in terms.items():
        assert float(term.detach()) == pytest.approx(expected[name], rel=1e-4), name


# -- cells, selection, correlation of labels ----------------------------------------------------


def test_one_cell_is_drawn_with_probability_proportional_to_inverse_entropy():
    torch.manual_seed(0)
    H, n = torch.tensor([0.1, 0.2, 0.4, 0.8]), 20_000
    # One annotator a draw: all draws at once.
    annotators = torch.arange(n).repeat_interleave(4)
    chosen = select_certain(H.repeat(n), annotators, torch.ones(n, dtype=torch.int64))
    frequency = torch.bincount(chosen % 4, minlength=4) / n
    expected = (1 / H) / (1 / H).sum()
    np.testing.assert_allclose(frequency, expected, atol=4 * 0.5 / math.sqrt(n))


def test_the_second_draw_is_without_replacement():
    torch.manual_seed(0)
    H, n = torch.tensor([0.25, 0.5, 1.0]), 20_000
    annotators = torch.arange(n).repeat_interleave(3)
    chosen = select_certain(H.repeat(n), annotators, torch.full((n,), 2))
    assert len(chosen) == len(chosen.unique()) == 2 * n
    w = (1 / H / (1 / H).sum()).double().numpy()
    # Left out is i if the other two are drawn in either order.
    left = [sum(w[j] * w[k] / (1 - w[j]) for j, k in ((a, b), (b, a)))
            for a, b in ((1, 2), (0, 2), (0, 1))]  # fmt: skip
    frequency = 1 - torch.bincount(chosen % 3, minlength=3) / n
    np.testing.assert_allclose(frequency, left, atol=4 * 0.5 / math.sqrt(n))


def test_quotas_hold_for_every_annotator():
    torch.manual_seed(0)
    annotators = torch.tensor([2, 0, 0, 2, 2, 0, 1])
    for uniform in (False, True):
        chosen = select_certain(torch.rand(7), annotators, torch.tensor([2, 3, 0]), uniform=uniform)
        counts = torch.bincount(annotators[chosen], minlength=3)
        assert counts.tolist() == [2, 1, 0], "all there are where there are fewer"
        assert len(chosen.unique()) == len(chosen)


def test_uniform_selection_forgets_entropy():
    torch.manual_seed(0)
    n = 5000
    annotators = torch.arange(n).repeat_interleave(2)
    H = torch.tensor([0.01, 2.0]).repeat(n)
    chosen = select_certain(H, annotators, torch.ones(n, dtype=torch.int64), uniform=True)
    assert abs(float((chosen % 2).float().mean()) - 0.5) < 0.03


def test_cells_are_open_unless_annotated_or_passed():
    A = np.array([["a", None, "b"], [None, "unsure", "b"]], dtype=object)
    table = AnnotationTable.from_matrix(A, abstain="unsure")
    cells = LoggedCells(table, None, CPU)
    # Annotator 1 only ever passed: there is nothing to generate in its likeness.
    rows, annotators = cells.of(torch.tensor([0, 1]))
    assert rows.tolist() == [0, 0, 1, 1]
    assert annotators.tolist() == [0, 2, 0, 2]
    every = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 2, 0, 1, 2])
    assert cells.are_open(*every).tolist() == [False, True, False, True, False, False]


def test_annotators_drawn_for_every_instance():
    _, A, _ = make_crowd_problem()
    torch.manual_seed(0)
    cells = LoggedCells(AnnotationTable.from_matrix(A), 2, CPU)
    rows, annotators = cells.of(torch.arange(48))
    assert torch.bincount(rows).tolist() == [2] * 48
    pairs = rows * 5 + annotators
    assert len(pairs.unique()) == len(pairs)
    assert set(annotators.tolist()) == set(range(5))
    # Five of seven annotated anything: whatever part of the crowd each draw is from, all are
    # equally probable.
    A = np.pad(A, ((0, 0), (1, 1)), constant_values=-1)
    cells = LoggedCells(AnnotationTable.from_matrix(A), 3, CPU)
    drawn = torch.cat([cells.of(torch.arange(48))[1] for _ in range(200)])
    shares = torch.bincount(drawn, minlength=7) / (48 * 200)
    np.testing.assert_allclose(shares, [0, 0.6, 0.6, 0.6, 0.6, 0.6, 0], atol=0.03)


def test_entropy_is_that_of_clipped_probabilities():
    found = clipped_entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
    low = -(1 - 1e-4) * math.log(1 - 1e-4) - 1e-4 * math.log(1e-4)
    np.testing.assert_allclose(found, [low, math.log(2)], rtol=1e-3)


def test_disagreements_on_some_pairs_are_a_correlation():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 600)
    wrong = rng.random((600, 3)) < 0.5
    paired = np.where(wrong, (y ^ 1)[:, None], y[:, None])  # 0 with 1, 2 with 3, 4 with 5.
    spread = np.where(wrong, rng.integers(0, 6, wrong.shape), y[:, None])
    found = [
        label_correlation(label_cooccurrence(AnnotationTable.from_matrix(A)))
        for A in (paired, spread, paired // 2 * 2, paired % 2)
    ]
    # Each label has one partner of five.
    assert found[0] == pytest.approx(math.log(5), abs=0.05)
    assert found[1] < 0.02
    assert found[2:] == [0.0, 0.0], "no disagreement; two classes"


@pytest.mark.parametrize(("lca", "aggregates"), [("auto", True), (True, True), (False, False)])
def test_when_labels_are_aggregated(lca, aggregates):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 60)
    A = np.where(rng.random((60, 3)) < 0.4, (y ^ 1)[:, None], y[:, None])
    X = np.eye(6)[y]
    short = {"max_epochs": 1, "batch_size": 60, "mu": 0.0}
    model = built(CrowdInGClassifier, **QUICK | short, protocol=CrowdInGProtocol(lca=lca)).fit(X, A)
    adjacency = model.module_.discriminator.adjacency
    assert bool(adjacency.any()) == aggregates
    assert model.label_correlation_ > 0.5
    if aggregates:
        assert adjacency.max() == 1
        assert (adjacency[0, 2:] == 0).all()
        torch.testing.assert_close(adjacency, adjacency.T)


# -- the step -----------------------------------------------------------------------------------


@pytest.mark.parametrize("two_steps", [True, False])
def test_every_parameter_of_all_four_networks_moves(two_steps):
    s = Step(two_steps=two_steps, lca=True).divide()
    moved = set()
    for _ in range(3):
        moved |= s.run()[0]
    names = {name for name, _ in s.module.named_parameters()}
    assert names - moved == set()
    parts = {name.split(".")[0] for name in moved}
    assert parts == {"classifier", "generator", "discriminator", "auxiliary"}


def test_learning_rates_of_zero_change_nothing():
    still = {"generator_lr": 0.0, "discriminator_lr": 0.0, "classifier_lr": 0.0}
    moved, terms = Step(**still).divide().run()
    assert moved == set()
    assert all(torch.isfinite(term) for term in terms.values())


@pytest.mark.parametrize(
    ("threshold", "learns", "rests"),
    [(9.0, "generator", "classifier"), (0.0, "classifier", "generator")],
)
def test_the_threshold_divides_generator_from_classifier(threshold, learns, rests):
    moved, _ = Step(entropy_threshold=threshold).run()
    parts = {name.split(".")[0] for name in moved}
    assert learns in parts
    assert rests not in parts


def test_pretraining_of_the_discriminator_leaves_the_others_alone():
    moved, terms = Step(generate=False).run()
    assert {name.split(".")[0] for name in moved} == {"discriminator", "auxiliary"}
    assert set(terms) == {"real", "generated", "sparsity", "information"}


def test_without_weight_the_information_term_vanishes():
    s = Step(information_weight=0.0)
    moved, terms = s.run()
    assert "information" not in terms
    assert float(terms["generator_information"]) == 0.0
    assert not [name for name in moved if name.startswith("auxiliary")]
    log = s.step.draw(s.batch)
    cost, information = s.step.costs(log, s.proba(log))
    assert not information.any()
    assert cost.any()


def test_ratios_are_one_before_the_first_update_and_only_then():
    s = Step(generator_lr=1e-2)
    log = s.step.draw(s.batch)
    cells, proba = torch.arange(len(log.rows)), s.proba(log)
    first = cell_ratios(s.module.generator, log, proba, cells)
    torch.testing.assert_close(first, torch.ones_like(first))
    cost, _ = s.step.costs(log, proba)
    s.gradients(log, cost)[0].backward(s.module.generator, cells, float(cost.mean()))
    s.step.optimizers["generator"].step()
    with torch.no_grad():
        second = cell_ratios(s.module.generator, log, proba, cells)
    assert not torch.allclose(second, first)
    now = cost @ second / len(cells)
    assert now < cost.mean(), "annotations that cost less are more probable"


def test_against_observed_cells_only_the_label_can_tell():
    s = Step(contrast="observed")
    with torch.no_grad():  # Sure of its labels: cells and classes differ by more than chance.
        s.module.generator.last.weight.mul_(6)
    opposed = s.step.generated_for_contrast(s.batch, s.step.draw(s.batch))
    assert torch.equal(opposed.rows, s.batch.rows)
    assert torch.equal(opposed.annotators, s.batch.annotators)
    torch.manual_seed(0)
    drawn = torch.stack([s.step.draw_observed(s.batch, s.step.draw(s.batch)) for _ in range(200)])
    shares = torch.nn.functional.one_hot(drawn, 3).float().mean(dim=0)
    x = s.batch.x
    proba = s.module.annotation_log_proba(x, s.batch.rows, s.batch.annotators).exp().detach()
    # Noise around 0 makes a mixture that is near to what the mean of the noise gives.
    assert float((shares - proba).abs().mean()) < 0.05
    assert not torch.equal(drawn[0], drawn[1])


@pytest.mark.parametrize("cost_form", ["saturating", "non_saturating"])
def test_gradients_equal_those_of_the_objective_written_out(cost_form):
    s = Step(n=12, adversarial_cost=cost_form)
    module, step = s.module, s.step
    log = step.draw(s.batch)
    proba = s.proba(log)
    cost, _ = step.costs(log, proba)
    cells = (log.rows % 2 == 0).nonzero()[:, 0]
    of_generator, of_classifier = s.gradients(log, cost)

    def written_out(z):
        total = 0.0
        for i in cells.tolist():
            cell = slice(i, i + 1)
            now = module.generator(
                log.features, z, log.rows[cell], log.annotators[cell], log.noise[cell]
            )
            ratio = (now[0, log.labels[i]] - log.log_proba[i]).exp()
            total = total + (cost[i] - 0.3) * ratio / len(cells)
        return total

    generator = list(module.generator.parameters())
    expected = torch.autograd.grad(written_out(proba), generator)
    module.zero_grad()
    of_generator.backward(module.generator, cells, 0.3)
    for parameter, gradient in zip(generator, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-6)
    classifier = list(module.classifier.parameters())
    z = module.classifier.backbone(log.scaled).softmax(dim=1)
    expected = torch.autograd.grad(written_out(z), classifier)
    module.zero_grad()
    of_classifier.backward(module.classifier, cells, 0.3)
    for parameter, gradient in zip(classifier, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-6)
    assert all(parameter.grad is None for parameter in module.generator.parameters())


def test_chunks_change_nothing():
    whole, parts = (Step(n=12, classifier_lr=1e-4, **size) for size in ({}, {"chunk_size": 7}))
    # The fits behind them have rounded differently, and Adam divides even tiny gradients by size.
    parts.module.load_state_dict(whole.module.state_dict())
    for s in (whole.divide(), parts.divide()):
        torch.manual_seed(3)
        s.step(s.batch)
    for name, value in whole.state().items():
        torch.testing.assert_close(value, parts.state()[name], rtol=1e-3, atol=1e-5)


def test_the_discriminator_sees_as_many_generated_annotations_as_real_ones():
    s = Step()
    log = s.step.draw(s.batch)
    chosen = s.step.select(s.batch, log)
    observed = set(zip(s.batch.rows.tolist(), s.batch.annotators.tolist(), strict=True))
    picked = list(zip(log.rows[chosen].tolist(), log.annotators[chosen].tolist(), strict=True))
    assert not observed & set(picked)
    given = np.bincount(s.batch.annotators, minlength=5)
    np.testing.assert_array_equal(
        np.bincount(log.annotators[chosen], minlength=5), np.minimum(given, 48 - given)
    )


def test_an_epochs_policy_stays_while_the_generator_learns():
    s = Step(logging_policy="epoch", generator_lr=1e-2, entropy_threshold=9.0)
    before = s.step.policy[1].last.weight.clone()
    s.step(s.batch)
    assert torch.equal(s.step.policy[1].last.weight, before)
    assert not torch.equal(s.module.generator.last.weight, before)
    s.step.start_epoch(1)
    assert torch.equal(s.step.policy[1].last.weight, s.module.generator.last.weight)


def test_mu_is_what_the_self_normalised_risk_prefers():
    s = Step()
    log = s.step.draw(s.batch)
    cells = torch.arange(len(log.rows))
    cost = torch.linspace(1.0, 2.0, len(cells))

    def attempt(learnt, judged, mu):
        assert not set(log.rows[learnt].tolist()) & set(log.rows[judged].tolist())
        # Only what is learnt with the fourth candidate prefers cheap annotations.
        cheap = (cost[judged] < 1.5).float() + 0.1
        return cheap if mu == pytest.approx(1.1, abs=0.02) else torch.ones_like(cheap)

    multiplier, gradient = s.step.multiplier, s.gradients(log, cost)[0]
    found = multiplier.search("generator", gradient, attempt)
    assert MU_GRID[3] == 0.1
    assert found == pytest.approx(1.1, abs=0.02)
    multiplier.epoch = 1000  # The search is over: what was found counts.
    dearer = s.gradients(log, cost + 1)[0]
    assert multiplier.search("generator", dearer, None) == pytest.approx(2.1, abs=0.02)


def test_a_fixed_mu_is_used_as_it_is():
    s = Step(mu=0.25)
    s.run()
    assert s.step.multiplier.values == {"generator": 0.25, "classifier": 0.25}


def test_costs_above_mu_make_annotations_rarer_for_the_classifier_too():
    """A generator that repeats the classifier: cheap annotations of class 0 make it say 0."""
    s = Step(entropy_threshold=0.0, classifier_lr=1e-2, mu=0.5, generative_steps=20)
    generator = s.module.generator
    with torch.no_grad():
        generator.first.weight.zero_()
        generator.first.bias.zero_()
        generator.last.bias.zero_()
        generator.last.weight.zero_()
        generator.first.weight[:3, :3] = torch.eye(3)
        generator.last.weight[:, :3] = 4 * torch.eye(3)
    log = s.step.draw(s.batch)
    before = s.proba(log)[:, 0].mean()
    s.step.costs = lambda log, proba: ((log.labels != 0).float(), torch.zeros(len(log.labels)))
    s.step.learn(log)
    assert s.proba(log)[:, 0].mean() > before + 0.02


def test_a_mean_mu_is_the_mean_cost_of_the_cells():
    s = Step(mu="mean", two_steps=False)
    step = s.step
    log = step.draw(s.batch)
    proba = s.proba(log)
    cost, information = step.costs(log, proba)
    step.learn(log)
    assert step.multiplier.values["classifier"] == pytest.approx(float(cost.mean()), rel=1e-5)
    total = cost + step.settings.information_weight * information
    assert step.multiplier.values["generator"] == pytest.approx(float(total.mean()), rel=1e-5)


def test_adversarial_training_of_a_crowd_layer_is_reinforce():
    """DL-CL+GAN: the gradient is that of the mean of (cost - mean cost) log G of what was drawn."""
    s = Step(**GAN)
    module, step = s.module, s.step
    log = step.draw(s.batch)
    proba = s.proba(log)
    cost, _ = step.costs(log, proba)
    z = module.classifier.backbone(log.scaled).softmax(dim=1)
    log_proba = module.generator(log.features, z, log.rows, log.annotators, log.noise)
    drawn = log_proba.gather(1, log.labels[:, None])[:, 0]
    risk = ((cost - cost.mean()) * drawn).mean()
    parameters = [*module.generator.parameters(), *module.classifier.parameters()]
    expected = torch.autograd.grad(risk, parameters)
    seen = {}
    for name, optimizer in step.optimizers.items():
        optimizer.step = lambda name=name: seen.update(
            {name: [p.grad.clone() for p in getattr(module, name).parameters()]}
        )
    step.learn(log)
    found = [*seen["generator"], *seen["classifier"]]
    for gradient, by_hand in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, by_hand, rtol=1e-3, atol=1e-6)


def test_weights_of_annotations_reach_the_discriminator():
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    features = Features(X.astype(np.float32), CPU)
    batch = next(AnnotationBatches(features, table, 48).in_order())
    s = Step()
    real = Annotations(batch.rows, batch.annotators, batch.labels)
    none = Annotations(*(torch.zeros(0, dtype=torch.int64) for _ in range(3)))
    options = {"information_weight": 0.5, "sparsity_weight": 0.1}
    features, proba = s.module.classify(batch.x)
    judges = s.module.discriminator, s.module.auxiliary
    plain = discriminator_objective(*judges, features, proba, real, none, **options)
    doubled = real._replace(weights=torch.full((len(batch.labels),), 2.0))
    twice = discriminator_objective(*judges, features, proba, doubled, none, **options)
    for name in ("real", "sparsity", "information"):
        torch.testing.assert_close(twice[name], 2 * plain[name])
    assert float(plain["generated"].detach()) == 0.0


# -- wiring: what a review's mutants survived ---------------------------------------------------


def test_the_generator_first_and_it_alone_pays_for_information(monkeypatch):
    s = Step().divide()
    step = s.step
    log = step.draw(s.batch)
    cost, information = step.costs(log, s.proba(log))
    seen = []

    def spy(name, kind):
        backward = kind.backward

        def call(self, network, cells, mu):
            seen.append((name, cells, self.cost))
            return backward(self, network, cells, mu)

        monkeypatch.setattr(kind, "backward", call)

    spy("generator", GeneratorGradient)
    spy("classifier", ClassifierGradient)
    step.multiplier.rule = 0.5
    step.learn(log)
    assert [name for name, *_ in seen] == ["generator"] * 2 + ["classifier"] * 2
    assert information.min() > 0
    charged = cost + step.settings.information_weight * information
    for name, _, given in seen:
        torch.testing.assert_close(given, charged if name == "generator" else cost)
    certain, others = seen[0][1], seen[-1][1]
    entropy = torch.special.entr(s.proba(log)).sum(dim=1)
    assert entropy[log.rows[certain]].max() < entropy[log.rows[others]].min()
    assert sorted([*certain.tolist(), *others.tolist()]) == list(range(len(log.rows)))


def test_an_epochs_policy_is_what_annotations_are_drawn_from():
    s = Step(logging_policy="epoch")
    with torch.no_grad():
        s.module.generator.last.bias.add_(torch.tensor([50.0, 0.0, 0.0]))
    log = s.step.draw(s.batch)
    assert (log.labels != 0).any()
    cells = torch.arange(len(log.rows))
    ratios = cell_ratios(s.module.generator, log, s.proba(log), cells)
    assert (ratios[log.labels == 0] > 1).all()
    assert (ratios[log.labels != 0] < 1e-6).all()


def test_risks_are_summed_over_the_epochs_and_outlive_a_checkpoint():
    s = Step()
    log = s.step.draw(s.batch)
    cells = torch.arange(len(log.rows))
    cost = torch.linspace(1.0, 2.0, len(cells))
    candidates = [1 + q for q in MU_GRID]

    def preferring(place, how_much):
        def attempt(learnt, judged, mu):
            if mu != pytest.approx(candidates[place], abs=0.02):
                return torch.ones(len(judged))
            return 1 + how_much * (cost[judged] < 1.5)

        return attempt

    multiplier, gradient = s.step.multiplier, s.gradients(log, cost)[0]
    found = multiplier.search("generator", gradient, preferring(3, 2.0))
    multiplier.epoch = 1
    again = multiplier.search("generator", gradient, preferring(1, 0.1))
    assert again == found == pytest.approx(candidates[3], abs=0.02)
    other = AdversarialStep(s.module, s.step.settings, s.step.cells, generate=True)
    other.load_state_dict(s.step.state_dict())
    other.multiplier.epoch = 1000
    assert other.multiplier.search("generator", gradient, None) == found


def test_networks_never_see_more_cells_than_a_chunk(monkeypatch):
    """The search of mu among them."""
    s = Step(n=12, chunk_size=7).divide()
    sizes = []
    forward = type(s.module.generator).forward

    def counted(self, features, proba, rows, annotators, noise=None):
        sizes.append(len(rows))
        return forward(self, features, proba, rows, annotators, noise)

    monkeypatch.setattr(type(s.module.generator), "forward", counted)
    s.run()
    assert {"generator", "classifier"} <= set(s.step.multiplier.values)
    assert max(sizes) <= 7


def test_accuracy_is_of_what_the_annotations_are(monkeypatch):
    s = Step()
    judge = type(s.module.discriminator)
    for_real = staticmethod(lambda pairs, matrices, labels: torch.ones(len(labels)))
    monkeypatch.setattr(judge, "scores", for_real)
    some = Annotations(s.batch.rows, s.batch.annotators, s.batch.labels)
    features, _ = s.module.classify(s.batch.x)
    s.step.measure_accuracy(features, some, some)
    found = s.step.measures()
    assert found == {"real_accuracy": 1.0, "generated_accuracy": 0.0}


def test_costs_are_judged_without_dropout():
    s = Step()
    s.run()
    assert not s.module.discriminator.training
    log = s.step.draw(s.batch)
    first, second = (s.step.costs(log, s.proba(log))[0] for _ in range(2))
    assert torch.equal(first, second)


def test_every_parameter_of_the_phase_reaches_the_step():
    own = {
        "generator_lr": 0.1, "classifier_lr": 0.2, "discriminator_lr": 0.3,
        "discriminator_decay": 0.4, "information_weight": 0.6, "entropy_threshold": 0.7,
        "adversarial_cost": "saturating", "sparsity_weight": 0.8, "sparsity_form": "l2",
        "mu": 0.9, "truncation": 3.0, "discriminator_steps": 2, "generative_steps": 3,
        "two_steps": False, "chunk_size": 11, "reset_optimizer": True,
    }  # fmt: skip
    named = {"selection": "random", "contrast": "observed", "logging_policy": "epoch"}
    found = vars(AdversarialSettings.of(CrowdInGProtocol(**own, **named)))
    assert own.items() <= found.items()
    for flag, on in (("uniform_selection", True), ("contrast_open", False), ("logged_epoch", True)):
        assert found.pop(flag) is on
        assert vars(AdversarialSettings.of(CrowdInGProtocol()))[flag] is not on
    assert found.keys() == own.keys()
    s = Step(discriminator_decay=0.4, truncation=1.5)
    groups = {name: each.param_groups[0] for name, each in s.step.optimizers.items()}
    decay = {name: group["weight_decay"] for name, group in groups.items()}
    assert decay == {"discriminator": 0.4, "generator": 0.0, "classifier": 0.0}
    module = pretrained(12, lca_form="row")
    assert module.discriminator.lca_form == "row"


def test_a_classifier_that_does_not_learn_is_the_start_with_its_statistics():
    """Batch normalisation: the generator's pre-training must not move running statistics."""
    X, A, _ = make_crowd_problem(24)
    network = {"name": "mlp", "batch_norm": True}
    model = built(
        CrowdInGClassifier, network, **QUICK, protocol=CrowdInGProtocol(classifier_lr=0.0, mu=0.0)
    ).fit(X, A)
    start = model.pretrainer_.module_.classifier.state_dict()
    for name, value in model.module_.classifier.state_dict().items():
        assert torch.equal(value, start[name]), name


@pytest.mark.parametrize("monitor", ["agreement", "likelihood"])
def test_held_out_annotations_are_not_generated(monitor):
    X, A, _ = make_crowd_problem()
    table = AnnotationTable.from_matrix(A)
    short = {"max_epochs": 1, "batch_size": 48, "mu": 0.0}
    model = built(
        CrowdInGClassifier,
        validation=0.3,
        **QUICK | short,
        protocol=CrowdInGProtocol(monitor=monitor),
    ).fit(X, table)
    assert table.with_added(model.generated_annotations_).observed.equals(table)


def test_the_watchdog_names_an_epoch_where_the_generator_has_no_phase():
    X, A, _ = make_crowd_problem()
    wild = {"generator_lr": 0.3, "classifier_lr": 0.3}
    model = built(CrowdInGClassifier, **QUICK | GAN | wild, validation=0.3).fit(X, A)
    rows = [(row["stage"], row["epoch"]) for row in model.history_]
    assert (model.best_stage_, model.best_epoch_) in rows


def test_the_classifiers_monitor_counts_a_weight_of_two_as_two_annotations():
    X, _, _ = make_crowd_problem()
    s = Step()
    features = Features(X.astype(np.float32), CPU)
    learnt, held = hold_out(s.table, 0.3, np.random.default_rng(0))
    twice = np.arange(learnt.n_annotations) % 2 == 0, np.arange(held.n_annotations) % 2 == 0

    def measured(*given):
        return ClassifierMonitor(s.module, features, *given)()["validation_classifier_nll"]

    def weighted(scale):
        return [
            replace(table, weights=scale * np.where(two, 2.0, 1.0))
            for table, two in zip((learnt, held), twice, strict=True)
        ]

    plain = measured(learnt, held)
    assert measured(*weighted(1.0)) == pytest.approx(measured(*weighted(100.0)))
    assert measured(weighted(1.0)[0], held) != pytest.approx(plain, abs=1e-6)
    assert measured(learnt, weighted(1.0)[1]) != pytest.approx(plain, abs=1e-6)


def test_ratios_beyond_the_truncation_teach_neither_network():
    s = Step(truncation=5.0)
    step, module = s.step, s.module
    log = step.draw(s.batch)
    log.log_proba -= math.log(10.0)
    cells = torch.arange(len(log.rows))
    cost = torch.ones(len(cells))
    module.zero_grad()
    of_generator, of_classifier = s.gradients(log, cost)
    for ratios in (
        of_generator.backward(module.generator, cells, 0.0),
        of_classifier.backward(module.classifier, cells, 0.0),
    ):
        torch.testing.assert_close(ratios, torch.full_like(ratios, 10.0))
    for network in (module.generator, module.classifier):
        assert not any(p.grad.any() for p in network.parameters())


@pytest.mark.parametrize("resets", [True, False])
def test_optimisers_begin_anew_with_an_epoch_where_asked(resets):
    s = Step(reset_optimizer=resets).divide()
    s.run()
    assert all(optimizer.state for optimizer in s.step.optimizers.values())
    s.step.start_epoch(1)
    assert all(bool(each.state) != resets for each in s.step.optimizers.values())
