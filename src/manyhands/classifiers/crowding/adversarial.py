"""CrowdInG's training step: log annotations of the generator, judge them, learn from the log.

.. [1] Z. Chu and H. Wang. Improve learning from crowds via generative augmentation. KDD 2021.
.. [2] T. Joachims, A. Swaminathan and M. de Rijke. Deep learning with logged bandit feedback.
   ICLR 2018.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from manyhands.classifiers.crowding.augmentation import (
    Cells,
    clipped_entropy,
    observed_per_annotator,
    select_certain,
)
from manyhands.exceptions import DivergenceError
from manyhands.nn import (
    AnnotationGenerator,
    CrowdLayerGenerator,
    GenerativeCrowdModule,
    ScaledClassifier,
)
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
from manyhands.training import CrowdBatch

Generator = AnnotationGenerator | CrowdLayerGenerator

MU_GRID = (0.5, 0.25, 0.75, 0.1, 0.9)
"""Quantiles of the logged costs among which mu is searched; among equals the first is taken."""

MU_SEARCHES = 5
"""Epochs in which mu is searched; what was found then is kept."""

GENERATIVE_TERMS = ("generator_cost", "generator_information", "classifier_cost")


@dataclass(frozen=True)
class AdversarialSettings:
    """What a step needs to know; see the parameters of `CrowdInGClassifier`."""

    generator_lr: float
    classifier_lr: float
    discriminator_lr: float
    discriminator_decay: float
    information_weight: float
    entropy_threshold: float
    adversarial_cost: str
    sparsity_weight: float
    sparsity_form: str
    mu: str | float
    truncation: float
    discriminator_steps: int
    generative_steps: int
    two_steps: bool
    uniform_selection: bool
    contrast_open: bool
    logged_epoch: bool
    chunk_size: int
    reset_optimizer: bool


@dataclass
class Log:
    """What the logging policy made of a batch's cells: m cells of n instances.

    Attributes
    ----------
    scaled : tensor of shape (n, *input_shape)
        What the classifier sees.
    features : tensor of shape (n, n_features)
        What the other networks see.
    rows, annotators : integer tensors of shape (m,)
    noise : tensor of shape (m, n_classes)
    labels : integer tensor of shape (m,)
        One annotation a cell, drawn.
    log_proba : tensor of shape (m,)
        Of the drawn annotation, at that time.
    uncertainty : tensor of shape (m,)
        Entropy of the cell's distribution.
    """

    scaled: Tensor
    features: Tensor
    rows: Tensor
    annotators: Tensor
    noise: Tensor
    labels: Tensor
    log_proba: Tensor
    uncertainty: Tensor


class AdversarialStep:
    """One batch of CrowdInG's training, after pre-training.

    The generator's annotations of the batch's cells are drawn and logged; discriminator and
    auxiliary network learn from the observed and from selected drawn ones; what these say of all
    drawn ones is their cost, from which, without drawing anew, the generator learns on instances
    the classifier is sure of, and the classifier on the others.

    Parameters
    ----------
    module : GenerativeCrowdModule
    settings : AdversarialSettings
    cells : Cells
    generate : bool
        Whether generator and classifier learn, or the other two alone (their pre-training).

    Notes
    -----
    Generator and classifier are in evaluation mode throughout: with dropout, importance ratios
    would be noise before anything is learnt, and batch normalisation would mix instances.
    """

    def __init__(
        self,
        module: GenerativeCrowdModule,
        settings: AdversarialSettings,
        cells: Cells,
        *,
        generate: bool,
    ) -> None:
        self.module = module
        self.settings = settings
        self.cells = cells
        self.generate = generate
        self.policy: tuple[ScaledClassifier, Generator] | None = None
        self.risks = {name: [0.0] * len(MU_GRID) for name in ("generator", "classifier")}
        self._make_optimizers()

    def _make_optimizers(self) -> None:
        own, module = self.settings, self.module
        judges = [*module.discriminator.parameters()]
        if own.information_weight:
            judges += module.auxiliary.parameters()
        self.optimizers = {
            "discriminator": _adam(judges, own.discriminator_lr, own.discriminator_decay)
        }
        if self.generate:
            for name, lr in (("generator", own.generator_lr), ("classifier", own.classifier_lr)):
                self.optimizers[name] = _adam(getattr(module, name).parameters(), lr)

    def start_epoch(self, epoch: int) -> None:
        """Take the logging policy, where it is an epoch's, and forget the last epoch's measures."""
        self.module.eval()
        if self.settings.reset_optimizer and epoch:
            self._make_optimizers()
        if self.settings.logged_epoch:
            self.policy = copy.deepcopy((self.module.classifier, self.module.generator))
        self.epoch = epoch
        self.mu: dict[str, float] = {}
        self._measured: dict[str, list[Tensor]] = defaultdict(list)

    def __call__(self, batch: CrowdBatch) -> dict[str, Tensor]:
        """Update everything from a batch; return the mean loss terms of its updates."""
        log = self.draw(batch)
        terms = self._judge(batch, log)
        if self.generate:
            terms |= self._learn(log)
        return terms

    def measures(self) -> dict[str, float]:
        """Means over the epoch of what is measured beside the loss."""
        means = {name: float(torch.stack(v).mean()) for name, v in self._measured.items() if v}
        return means | {f"{name}_mu": value for name, value in self.mu.items()}

    def state_dict(self) -> dict[str, Any]:
        """State of the optimisers, and what the search of mu found so far."""
        optimizers = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        return {"optimizers": optimizers, "risks": self.risks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put `state_dict` back."""
        self.risks = state["risks"]
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])

    # -- the log --------------------------------------------------------------------------------

    @torch.no_grad()
    def draw(self, batch: CrowdBatch) -> Log:
        """Draw an annotation of every cell from the logging policy (G_0)."""
        scaled = self.module.classifier.scaler(batch.x)
        classifier, generator = self.policy or (self.module.classifier, self.module.generator)
        proba = classifier.backbone(scaled).softmax(dim=1)
        rows, annotators = self.cells.of(batch.instances)
        noise = generator.draw_noise(len(rows))
        features = self.module.represent(scaled)
        parts = [
            generator(features, proba, rows[p], annotators[p], noise[p]) for p in self._parts(rows)
        ]
        log_proba = torch.cat(parts)
        if bool(log_proba.isnan().any()):
            raise DivergenceError(
                "what the generator gives became NaN in the adversarial phase; lower generator_lr, "
                "classifier_lr or pretraining_lr"
            )
        labels = log_proba.exp().multinomial(1)
        return Log(
            scaled,
            features,
            rows,
            annotators,
            noise,
            labels[:, 0],
            log_proba.gather(1, labels)[:, 0],
            clipped_entropy(log_proba.exp()),
        )

    def _parts(self, cells: Tensor) -> Iterator[slice]:
        """Slices of at most ``chunk_size`` cells; one empty one of none."""
        size = self.settings.chunk_size
        for start in range(0, max(1, len(cells)), size):
            yield slice(start, start + size)

    @torch.no_grad()
    def _proba(self, log: Log) -> Tensor:
        """Return what the classifier says now, shape (n, n_classes)."""
        proba: Tensor = self.module.classifier.backbone(log.scaled).softmax(dim=1)
        return proba

    # -- discriminator and auxiliary network ----------------------------------------------------

    def _judge(self, batch: CrowdBatch, log: Log) -> dict[str, Tensor]:
        """Update discriminator and auxiliary network on observed and on selected annotations."""
        real = Annotations(batch.rows, batch.annotators, batch.labels, batch.weights)
        generated = self._opposed(batch, log)
        proba = self._proba(log)
        module, own, optimizer = self.module, self.settings, self.optimizers["discriminator"]
        module.discriminator.train()
        summed: dict[str, Tensor] = defaultdict(lambda: log.scaled.new_zeros(()))
        for _ in range(own.discriminator_steps):
            terms = discriminator_objective(
                module.discriminator,
                module.auxiliary,
                log.features,
                proba,
                real,
                generated,
                information_weight=own.information_weight,
                sparsity_weight=own.sparsity_weight,
                sparsity_form=own.sparsity_form,
            )
            optimizer.zero_grad(set_to_none=True)
            torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            for name, term in terms.items():
                summed[name] = summed[name] + term.detach() / own.discriminator_steps
        module.discriminator.eval()
        share = len(generated.labels) / len(real.labels)
        self._measured["generated_share"].append(torch.tensor(share))
        self._measure_accuracy(log.features, real, generated)
        return dict(summed)

    def _opposed(self, batch: CrowdBatch, log: Log) -> Annotations:
        """Generated annotations of selected open cells, or of the observed ones, once drawn."""
        if self.settings.contrast_open:
            chosen = self.select(batch, log)
            # Against none, every annotation would be real, whatever it says.
            if len(chosen):
                return Annotations(log.rows[chosen], log.annotators[chosen], log.labels[chosen])
        return Annotations(batch.rows, batch.annotators, self._draw_again(batch, log))

    @torch.no_grad()
    def _draw_again(self, batch: CrowdBatch, log: Log) -> Tensor:
        """Draw annotations of the observed cells from the logging policy, shape (m,)."""
        classifier, generator = self.policy or (self.module.classifier, self.module.generator)
        proba = classifier.backbone(log.scaled).softmax(dim=1)
        noise = generator.draw_noise(len(batch.rows))
        drawn = generator(log.features, proba, batch.rows, batch.annotators, noise)
        return drawn.exp().multinomial(1)[:, 0]

    def select(self, batch: CrowdBatch, log: Log) -> Tensor:
        """Choose cells: as many of every annotator as it has annotations here, by 1/H."""
        is_open = self.cells.are_open(batch.instances[log.rows], log.annotators)
        candidates = is_open.nonzero()[:, 0]
        chosen = select_certain(
            log.uncertainty[candidates],
            log.annotators[candidates],
            observed_per_annotator(batch, self.cells.n_annotators),
            uniform=self.settings.uniform_selection,
        )
        return candidates[chosen]

    @torch.no_grad()
    def _measure_accuracy(
        self, features: Tensor, real: Annotations, generated: Annotations
    ) -> None:
        """Share of real and of generated annotations the discriminator takes for what they are."""
        judge = self.module.discriminator
        for name, given in (("real", real), ("generated", generated)):
            if len(given.labels):
                pairs = judge.embed(features, given.rows, given.annotators)
                scores = judge.scores(pairs, judge.class_matrices(), given.labels)
                right = scores > 0 if name == "real" else scores <= 0
                self._measured[f"{name}_accuracy"].append(right.float().mean())

    # -- generator and classifier ---------------------------------------------------------------

    def _learn(self, log: Log) -> dict[str, Tensor]:
        """Update generator and classifier by Eq. 5 and 6, without drawing or judging anew."""
        proba = self._proba(log)
        cost, information = self._costs(log, proba)
        total = cost + self.settings.information_weight * information
        certain = _entropy(proba) <= self.settings.entropy_threshold
        self._measured["certain_share"].append(certain.float().mean())
        everywhere = torch.ones_like(certain)
        two = self.settings.two_steps
        for_generator = (certain if two else everywhere)[log.rows].nonzero()[:, 0]
        for_classifier = (~certain if two else everywhere)[log.rows].nonzero()[:, 0]
        self._set_mu(log, proba, (for_generator, total), (for_classifier, cost))
        sums: dict[str, Tensor] = {name: cost.new_zeros(()) for name in GENERATIVE_TERMS}
        module, steps = self.module, self.settings.generative_steps

        def update_generator() -> None:
            ratios = self._generator_pass(
                module.generator, log, proba, for_generator, total, self.mu["generator"]
            )
            own = counterfactual_risk(
                ratios, cost[for_generator], mu=self.mu["generator"], truncation=self._truncation
            )
            bound = ratios.clamp(max=self._truncation) @ information[for_generator] / len(ratios)
            sums["generator_cost"] += own / steps
            sums["generator_information"] += self.settings.information_weight * bound / steps
            self._last["generator"] = ratios

        def update_classifier() -> None:
            ratios = self._classifier_pass(
                module.classifier, module.generator, log, proba, for_classifier, cost,
                self.mu["classifier"],
            )  # fmt: skip
            own = counterfactual_risk(
                ratios, cost[for_classifier], mu=self.mu["classifier"], truncation=self._truncation
            )
            sums["classifier_cost"] += own / steps
            self._last["classifier"] = ratios

        self._last: dict[str, Tensor] = {}
        self._alternate(
            (update_generator, len(for_generator)), (update_classifier, len(for_classifier))
        )
        for name, ratios in self._last.items():
            self._measured[f"{name}_sample_size"].append(effective_sample_size(ratios))
        return sums

    @property
    def _truncation(self) -> float:
        return self.settings.truncation

    def _alternate(
        self, generator: tuple[Callable[[], None], int], classifier: tuple[Callable[[], None], int]
    ) -> None:
        """Run the updates: all of the generator's, then the classifier's; or both at once.

        An update computes gradients alone; the optimisers step afterwards, so that "both at once"
        means what it says. Without cells there is nothing to learn from.
        """
        named = {"generator": generator, "classifier": classifier}
        names = [name for name, (_, n_cells) in named.items() if n_cells]
        rounds = [[name] for name in names] if self.settings.two_steps else [names]
        for together in rounds:
            for _ in range(self.settings.generative_steps):
                for name in together:
                    self.optimizers[name].zero_grad(set_to_none=True)
                for name in together:
                    named[name][0]()
                for name in together:
                    self.optimizers[name].step()

    @torch.no_grad()
    def _costs(self, log: Log, proba: Tensor) -> tuple[Tensor, Tensor]:
        """Cost of every drawn annotation by the discriminator, and by the auxiliary network."""
        judge, own = self.module.discriminator, self.settings
        matrices = judge.class_matrices()
        costs, informations = [], []
        for p in self._parts(log.rows):
            pairs = judge.embed(log.features, log.rows[p], log.annotators[p])
            scores = judge.scores(pairs, matrices, log.labels[p])
            costs.append(authenticity_cost(scores, own.adversarial_cost))
            if own.information_weight:
                log_posterior = self.module.auxiliary(pairs, matrices, log.labels[p])
                informations.append(information_cost(log_posterior, proba[log.rows[p]]))
            else:
                informations.append(torch.zeros_like(costs[-1]))
        return torch.cat(costs), torch.cat(informations)

    def _ratios(self, generator: Generator, log: Log, proba: Tensor, cells: Tensor) -> Tensor:
        rows, annotators = log.rows[cells], log.annotators[cells]
        now = generator(log.features, proba, rows, annotators, log.noise[cells])
        own = now.gather(1, log.labels[cells][:, None])[:, 0]
        return importance_ratios(own, log.log_proba[cells])

    @torch.no_grad()
    def _judged_ratios(
        self, generator: Generator, log: Log, proba: Tensor, cells: Tensor
    ) -> Tensor:
        parts = self._parts(cells)
        return torch.cat([self._ratios(generator, log, proba, cells[p]) for p in parts])

    def _generator_pass(
        self,
        generator: Generator,
        log: Log,
        proba: Tensor,
        cells: Tensor,
        cost: Tensor,
        mu: float,
    ) -> Tensor:
        """Add the gradient of Eq. 5 to the generator's; return the ratios, detached."""
        found = []
        for p in self._parts(cells):
            ratios = self._ratios(generator, log, proba, cells[p])
            risk = counterfactual_risk(ratios, cost[cells[p]], mu=mu, truncation=self._truncation)
            (risk * (len(ratios) / len(cells))).backward()  # type: ignore[no-untyped-call]
            found.append(ratios.detach())
        return torch.cat(found)

    def _classifier_pass(
        self,
        classifier: ScaledClassifier,
        generator: Generator,
        log: Log,
        proba: Tensor,
        cells: Tensor,
        cost: Tensor,
        mu: float,
    ) -> Tensor:
        """Add the gradient of Eq. 6 to the classifier's, through the generator as it is."""
        own = log.rows[cells].unique()  # type: ignore[no-untyped-call]
        output = classifier.backbone(log.scaled[own]).softmax(dim=1)
        current = proba.clone()
        current[own] = output.detach()
        current.requires_grad_()
        gradient = torch.zeros_like(current)
        found = []
        for p in self._parts(cells):
            ratios = self._ratios(generator, log, current, cells[p])
            risk = counterfactual_risk(ratios, cost[cells[p]], mu=mu, truncation=self._truncation)
            (part,) = torch.autograd.grad(risk * (len(ratios) / len(cells)), current)
            gradient += part
            found.append(ratios.detach())
        output.backward(gradient[own])
        return torch.cat(found)

    # -- the Lagrange multiplier ----------------------------------------------------------------

    def _set_mu(
        self,
        log: Log,
        proba: Tensor,
        for_generator: tuple[Tensor, Tensor],
        for_classifier: tuple[Tensor, Tensor],
    ) -> None:
        """Take mu as given, or the mean; or search it, on the first log of an epoch with cells."""
        given = self.settings.mu
        if not isinstance(given, str):
            self.mu = {"generator": float(given), "classifier": float(given)}
            return
        if given == "mean":
            for name, (cells, cost) in (
                ("generator", for_generator),
                ("classifier", for_classifier),
            ):
                self.mu[name] = float(cost[cells].mean()) if len(cells) else 0.0
            return

        def try_generator(cells: Tensor, judged: Tensor, mu: float) -> Tensor:
            trial = copy.deepcopy(self.module.generator)
            optimizer = _adam(trial.parameters(), self.settings.generator_lr)
            for _ in range(self.settings.generative_steps):
                optimizer.zero_grad(set_to_none=True)
                self._generator_pass(trial, log, proba, cells, for_generator[1], mu)
                optimizer.step()
            return self._judged_ratios(trial, log, proba, judged)

        def try_classifier(cells: Tensor, judged: Tensor, mu: float) -> Tensor:
            trial = copy.deepcopy(self.module.classifier)
            optimizer = _adam(trial.parameters(), self.settings.classifier_lr)
            generator, cost = self.module.generator, for_classifier[1]
            for _ in range(self.settings.generative_steps):
                optimizer.zero_grad(set_to_none=True)
                self._classifier_pass(trial, generator, log, proba, cells, cost, mu)
                optimizer.step()
            with torch.no_grad():
                now = trial.backbone(log.scaled).softmax(dim=1)
            return self._judged_ratios(generator, log, now, judged)

        for name, (cells, cost), attempt in (
            ("generator", for_generator, try_generator),
            ("classifier", for_classifier, try_classifier),
        ):
            if name not in self.mu and len(cells):
                self.mu[name] = self._search(name, log, cells, cost, attempt)

    def _search(
        self,
        name: str,
        log: Log,
        cells: Tensor,
        cost: Tensor,
        attempt: Callable[[Tensor, Tensor, float], Tensor],
    ) -> float:
        """Choose mu by the self-normalised risk [2]_ of what is learnt with it.

        For every candidate a copy learns from every other instance's cells; the log of the others
        judges it. What tells candidates apart in one log is little beside its noise, so their
        risks, less the first one's, are summed over the epochs.
        """
        place = log.rows[cells].unique(return_inverse=True)[1]  # type: ignore[no-untyped-call]
        learnt, judged = cells[place % 2 == 0], cells[place % 2 == 1]
        candidates = _quantiles(cost[cells])
        if len(judged) and self.epoch < MU_SEARCHES:
            found = [
                float(
                    self_normalized_risk(
                        attempt(learnt, judged, mu).clamp(max=self._truncation), cost[judged]
                    )
                )
                for mu in candidates
            ]
            summed = zip(self.risks[name], found, strict=True)
            self.risks[name] = [before + now - found[0] for before, now in summed]
        return candidates[min(range(len(MU_GRID)), key=self.risks[name].__getitem__)]


def _quantiles(cost: Tensor) -> list[float]:
    """Candidates of mu: quantiles of the costs."""
    # torch's own refuses more than 2^24 numbers.
    ordered = cost.sort().values
    return [float(ordered[round(q * (len(ordered) - 1))]) for q in MU_GRID]


def _adam(
    parameters: Iterable[torch.nn.Parameter], lr: float, decay: float = 0.0
) -> torch.optim.Optimizer:
    parameters = list(parameters)
    fused = parameters[0].device.type in {"cpu", "cuda"}
    return torch.optim.Adam(parameters, lr=lr, weight_decay=decay, fused=fused)


def _entropy(proba: Tensor) -> Tensor:
    return torch.special.entr(proba).sum(dim=1)
