"""CrowdInG's training step: log annotations of the generator, judge them, learn from the log.

.. [1] Z. Chu and H. Wang. Improve learning from crowds via generative augmentation. KDD 2021.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor, nn

from manyhands.classifiers.crowding.counterfactual import (
    ClassifierGradient,
    GeneratorGradient,
    Multiplier,
    RiskGradient,
    make_adam,
)
from manyhands.classifiers.crowding.log import (
    Log,
    LoggedCells,
    Policy,
    chunks,
    class_proba_of,
    draw_log,
    draw_observed_cells,
    observed_per_annotator,
    select_certain,
)
from manyhands.nn import GenerativeCrowdModule
from manyhands.objectives import (
    Annotations,
    authenticity_cost,
    counterfactual_risk,
    discriminator_objective,
    effective_sample_size,
    information_cost,
)
from manyhands.training import CrowdBatch


@dataclass(frozen=True)
class AdversarialSettings:
    """Parameters of an adversarial step. Most are described in `CrowdInGProtocol`.

    Attributes
    ----------
    uniform_selection : bool
        ``selection="random"``.
    contrast_open : bool
        ``contrast="open"``.
    logged_epoch : bool
        ``logging_policy="epoch"``.
    """

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

    @classmethod
    def of(cls, protocol: Any) -> Self:
        """Return the settings of a `CrowdInGProtocol`."""
        choices = {
            "uniform_selection": protocol.selection == "random",
            "contrast_open": protocol.contrast == "open",
            "logged_epoch": protocol.logging_policy == "epoch",
        }
        names = {field.name for field in fields(cls)} - choices.keys()
        return cls(**{name: getattr(protocol, name) for name in names}, **choices)


GENERATIVE_TERMS = ("generator_cost", "generator_information", "classifier_cost")


class AdversarialStep:
    """One batch of CrowdInG's training [1]_, after pre-training.

    The generator draws annotations of the batch's cells, which are logged. Discriminator and
    auxiliary network are trained on the observed annotations and on a selection of the drawn ones.
    Their outputs for all drawn annotations are the costs. The generator is trained on the costs of
    instances for which the classifier has a low entropy, and the classifier on the others, without
    new draws.

    Parameters
    ----------
    module : GenerativeCrowdModule
    settings : AdversarialSettings
    cells : LoggedCells
    generate : bool
        Whether generator and classifier learn too; otherwise only discriminator and auxiliary
        network do (their pre-training).

    Notes
    -----
    Generator and classifier stay in evaluation mode: with dropout, importance ratios would differ
    from 1 before any update, and with batch normalisation they would depend on the batch.
    """

    def __init__(
        self,
        module: GenerativeCrowdModule,
        settings: AdversarialSettings,
        cells: LoggedCells,
        *,
        generate: bool,
    ) -> None:
        self.module = module
        self.settings = settings
        self.cells = cells
        self.generate = generate
        self.policy: Policy | None = None
        self.networks: dict[str, nn.Module] = {
            "generator": module.generator,
            "classifier": module.classifier,
        }
        self.lrs = {"generator": settings.generator_lr, "classifier": settings.classifier_lr}
        self.multiplier = Multiplier(settings.mu, self.lrs, settings.generative_steps)
        self._make_optimizers()

    def _make_optimizers(self) -> None:
        settings, module = self.settings, self.module
        judges = [*module.discriminator.parameters()]
        if settings.information_weight:
            judges += module.auxiliary.parameters()
        self.optimizers = {
            "discriminator": make_adam(
                judges, settings.discriminator_lr, settings.discriminator_decay
            )
        }
        if self.generate:
            for name, network in self.networks.items():
                self.optimizers[name] = make_adam(network.parameters(), self.lrs[name])

    def start_epoch(self, epoch: int) -> None:
        """Copy the logging policy, if it is kept for an epoch, and clear the last measures."""
        self.module.eval()
        if self.settings.reset_optimizer and epoch:
            self._make_optimizers()
        if self.settings.logged_epoch:
            self.policy = copy.deepcopy(self._current_policy())
        self.multiplier.start_epoch(epoch)
        self._measured: dict[str, list[Tensor]] = defaultdict(list)

    def __call__(self, batch: CrowdBatch) -> dict[str, Tensor]:
        """Update all networks from a batch; return the mean loss terms of the updates."""
        log = self.draw(batch)
        terms = self._judge(batch, log)
        if self.generate:
            terms |= self.learn(log)
        return terms

    def measures(self) -> dict[str, float]:
        """Return the epoch's mean of every measure except the loss, and the multipliers."""
        means = {name: float(torch.stack(v).mean()) for name, v in self._measured.items() if v}
        return means | {f"{name}_mu": value for name, value in self.multiplier.values.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the optimisers, and of the search for mu."""
        optimizers = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        return {"optimizers": optimizers, "risks": self.multiplier.risks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self.multiplier.risks = state["risks"]
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])

    # -- drawing and selecting ------------------------------------------------------------------

    def _current_policy(self) -> Policy:
        return self.module.classifier, self.module.generator

    def draw(self, batch: CrowdBatch) -> Log:
        """Draw an annotation of every cell from the logging policy."""
        policy = self.policy or self._current_policy()
        return draw_log(self.module, policy, self.cells, batch, self.settings.chunk_size)

    def draw_observed(self, batch: CrowdBatch, log: Log) -> Tensor:
        """Draw annotations of the annotated cells from the logging policy, shape (m,)."""
        return draw_observed_cells(self.policy or self._current_policy(), batch, log)

    def select(self, batch: CrowdBatch, log: Log) -> Tensor:
        """Choose open cells by 1/H, for each annotator as many as it has annotations here."""
        is_open = self.cells.are_open(batch.instances[log.rows], log.annotators)
        candidates = is_open.nonzero()[:, 0]
        chosen = select_certain(
            log.uncertainty[candidates],
            log.annotators[candidates],
            observed_per_annotator(batch, self.cells.n_annotators),
            uniform=self.settings.uniform_selection,
        )
        return candidates[chosen]

    # -- discriminator and auxiliary network ----------------------------------------------------

    def _judge(self, batch: CrowdBatch, log: Log) -> dict[str, Tensor]:
        """Update discriminator and auxiliary network on observed and on generated annotations."""
        real = Annotations(batch.rows, batch.annotators, batch.labels, batch.weights)
        generated = self.generated_for_contrast(batch, log)
        proba = class_proba_of(self.module.classifier, log)
        module, settings = self.module, self.settings
        optimizer = self.optimizers["discriminator"]
        module.discriminator.train()
        summed: dict[str, Tensor] = defaultdict(lambda: log.scaled.new_zeros(()))
        for _ in range(settings.discriminator_steps):
            terms = discriminator_objective(
                module.discriminator,
                module.auxiliary,
                log.features,
                proba,
                real,
                generated,
                information_weight=settings.information_weight,
                sparsity_weight=settings.sparsity_weight,
                sparsity_form=settings.sparsity_form,
            )
            optimizer.zero_grad(set_to_none=True)
            torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            for name, term in terms.items():
                summed[name] = summed[name] + term.detach() / settings.discriminator_steps
        module.discriminator.eval()
        share = len(generated.labels) / len(real.labels)
        self._measured["generated_share"].append(torch.tensor(share))
        self.measure_accuracy(log.features, real, generated)
        return dict(summed)

    def generated_for_contrast(self, batch: CrowdBatch, log: Log) -> Annotations:
        """Return the generated annotations for the training of the discriminator.

        They are of selected open cells, or of the observed cells.
        """
        if self.settings.contrast_open:
            chosen = self.select(batch, log)
            # Without generated annotations, the discriminator would learn to call all real.
            if len(chosen):
                return Annotations(log.rows[chosen], log.annotators[chosen], log.labels[chosen])
        return Annotations(batch.rows, batch.annotators, self.draw_observed(batch, log))

    @torch.no_grad()
    def measure_accuracy(self, features: Tensor, real: Annotations, generated: Annotations) -> None:
        """Record the discriminator's accuracy on real and on generated annotations."""
        discriminator = self.module.discriminator
        for name, given in (("real", real), ("generated", generated)):
            if len(given.labels):
                pairs = discriminator.embed(features, given.rows, given.annotators)
                scores = discriminator.scores(pairs, discriminator.class_matrices(), given.labels)
                is_correct = scores > 0 if name == "real" else scores <= 0
                self._measured[f"{name}_accuracy"].append(is_correct.float().mean())

    # -- generator and classifier ---------------------------------------------------------------

    def learn(self, log: Log) -> dict[str, Tensor]:
        """Update generator and classifier by Eq. 5 and 6; return the mean loss terms."""
        proba = class_proba_of(self.module.classifier, log)
        cost, information = self.costs(log, proba)
        gradients = self._gradients(log, proba, cost, information)
        self.multiplier.update(gradients, self.networks)
        terms = {name: cost.new_zeros(()) for name in GENERATIVE_TERMS}
        last_ratios: dict[str, Tensor] = {}
        # A network without cells has no gradient.
        names = [name for name, gradient in gradients.items() if len(gradient.cells)]
        for together in [[name] for name in names] if self.settings.two_steps else [names]:
            for _ in range(self.settings.generative_steps):
                last_ratios |= self._update(together, gradients)
                for name in together:
                    for term, value in self._terms(
                        name, gradients[name].cells, last_ratios[name], cost, information
                    ).items():
                        terms[term] += value / self.settings.generative_steps
        for name, ratios in last_ratios.items():
            self._measured[f"{name}_sample_size"].append(effective_sample_size(ratios))
        return terms

    @torch.no_grad()
    def costs(self, log: Log, proba: Tensor) -> tuple[Tensor, Tensor]:
        """Return the costs of all drawn annotations by discriminator and auxiliary network."""
        discriminator, settings = self.module.discriminator, self.settings
        matrices = discriminator.class_matrices()
        costs, informations = [], []
        for p in chunks(len(log.rows), settings.chunk_size):
            pairs = discriminator.embed(log.features, log.rows[p], log.annotators[p])
            scores = discriminator.scores(pairs, matrices, log.labels[p])
            costs.append(authenticity_cost(scores, settings.adversarial_cost))
            if settings.information_weight:
                log_posterior = self.module.auxiliary(pairs, matrices, log.labels[p])
                informations.append(information_cost(log_posterior, proba[log.rows[p]]))
            else:
                informations.append(torch.zeros_like(costs[-1]))
        return torch.cat(costs), torch.cat(informations)

    def _gradients(
        self, log: Log, proba: Tensor, cost: Tensor, information: Tensor
    ) -> dict[str, RiskGradient]:
        """Return cells and costs of both networks; only the generator has the information cost."""
        settings = self.settings
        is_certain = torch.special.entr(proba).sum(dim=1) <= settings.entropy_threshold
        self._measured["certain_share"].append(is_certain.float().mean())
        total = cost + settings.information_weight * information
        everywhere = torch.ones_like(is_certain)
        for_generator = (is_certain if settings.two_steps else everywhere)[log.rows]
        for_classifier = (~is_certain if settings.two_steps else everywhere)[log.rows]
        limits = settings.truncation, settings.chunk_size
        return {
            "generator": GeneratorGradient(
                log, proba, for_generator.nonzero()[:, 0], total, *limits
            ),
            "classifier": ClassifierGradient(
                log, proba, for_classifier.nonzero()[:, 0], cost, *limits, self.module.generator
            ),
        }

    def _update(self, names: list[str], gradients: dict[str, RiskGradient]) -> dict[str, Tensor]:
        """Update some networks together: all gradients are computed before any network changes."""
        for name in names:
            self.optimizers[name].zero_grad(set_to_none=True)
        ratios = {
            name: gradients[name].backward(
                self.networks[name], gradients[name].cells, self.multiplier.values[name]
            )
            for name in names
        }
        for name in names:
            self.optimizers[name].step()
        return ratios

    def _terms(
        self, name: str, cells: Tensor, ratios: Tensor, cost: Tensor, information: Tensor
    ) -> dict[str, Tensor]:
        """Return the loss terms of one update of a network."""
        mu, truncation = self.multiplier.values[name], self.settings.truncation
        terms = {
            f"{name}_cost": counterfactual_risk(ratios, cost[cells], mu=mu, truncation=truncation)
        }
        if name == "generator":
            bound = ratios.clamp(max=truncation) @ information[cells] / len(ratios)
            terms["generator_information"] = self.settings.information_weight * bound
        return terms
