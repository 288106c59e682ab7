"""ICED: truth inference and synthetic instances of rare classes that feed each other.

.. [1] W. Wang, J. Thekinen, X. Liu, Z. Liu and J. Tang. Learning from imbalanced crowdsourced
   labeled data. SDM 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, cast
from warnings import catch_warnings, simplefilter, warn

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from torch import Tensor

from manyhands.annotations import AnnotationTable, certainty_groups, label_certainty
from manyhands.annotations.certainty import has_equal_counts
from manyhands.annotations.encoding import encode
from manyhands.exceptions import AnnotationError, NotIdentifiableWarning
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.latent import (
    LatentClassClassifier,
    LatentClasses,
    SoftTargets,
    balancing_rng,
    class_shares,
)
from manyhands.fitting.prediction import PREDICT_BATCH, class_proba
from manyhands.fitting.seeding import set_random_states
from manyhands.fitting.template import has_batch_norm
from manyhands.inference import DawidSkene
from manyhands.inference.inputs import gold_codes
from manyhands.inference.vote_sums import vote_shares
from manyhands.inference.votes import make_votes
from manyhands.metrics import accuracy, minority_recall
from manyhands.nn import ScaledClassifier, SynthesisModule
from manyhands.sampling import CrowdSMOTE, FewCandidatesWarning
from manyhands.training import (
    GradientStep,
    MixedBatch,
    Stage,
    mixed_epoch,
)
from manyhands.typing import AnyArray, FloatArray, IntArray

REFITS_AT_FIRST = 5
"""Times ``refit_epochs`` before the first round: the warm-up has moved the embedding further."""

STARVED = 2 / 3
"""Below this share of what soft EM finds of a class, hard EM is said to starve it."""

WARM_UPS = ("certainty", "together", "all")


ICEDFit = Fit[SynthesisModule, "_Rounds"]


@dataclass(kw_only=True, eq=False, repr=False)
class ICEDClassifier(LatentClassClassifier):
    r"""Learn from imbalanced crowdsourced labels by ICED [1]_.

    A network is warmed up on the labels annotators agree on, then trained in rounds of an epoch.
    In every round `CrowdSMOTE` makes instances of the rare classes between real ones in the
    network's embedding, with annotations drawn from their neighbours'; `DawidSkene` infers the
    labels of real and synthetic instances from the annotations of both; and the network is trained
    on them. The inferred labels say between which instances the next ones are made.

    Parameters
    ----------
    backbone : as in `BaseCrowdClassifier`
        Synthesis in an embedding needs one with ``embed``, as all that go by a name have.
    em : {"hard", "soft", None}, default="hard"
        Whether inference counts an instance as its most probable class (Eq. 2.1, 2.2), or as all
        of them, as probable as they are. None: no inference, the labels are majority votes.
    prior : {"uniform", "estimated"}, default="uniform"
        Prior of the classes in inference. With ``em`` it decides what becomes of rare classes:
        "hard" and "uniform" are what the paper does; "hard" and "estimated", what it prints
        (:math:`\Phi`), starve them, with a warning; "soft" and "estimated" infer best.
    smoothing : float, default=0.01
        Pseudo-annotations in every entry of a confusion matrix.
    em_start : {"votes", "previous"}, default="votes"
        Where EM starts in every round: from the votes, or from the labels of the round before (of
        synthetic instances always from their votes), which takes fewer iterations. Hard EM hardly
        leaves the labels it starts from: with "previous" it keeps the mistakes of its first round.
    em_max_iter : int, default=50
        Iterations of EM in a round, at most.
    synthesis : {"auto", "decoder", "embedding", "input", None}, default="auto"
        "decoder": points between embeddings are mapped back to instances by a decoder, trained as
        an autoencoder's before anything else and refitted in every round. "embedding": points go
        to the network's last layer as they are. "input": points between the (scaled) instances
        themselves. None: no instances are made. "auto": "decoder" where the backbone has
        ``embed``, else "input".
    sampler : CrowdSMOTE or None, default=None
        What makes instances; anything with ``fit_resample(X, table, labels=...)``.
    synthetic_labels : {"inferred", "intended"}, default="inferred"
        Label of a synthetic instance: inferred from its annotations as those of real ones are, or
        the class it was made for.
    regenerate : bool, default=True
        Make the synthetic instances anew in every round; False: in the first alone.
    targets : {"hard", "soft"}, default="hard"
        Train on the most probable class, as in the paper, or on the posterior.
    warm_up : {"certainty", "together", "all", None}, default="certainty"
        On majority votes, before the rounds. "certainty": instances of the ``warm_up_groups``
        highest levels of label certainty, from the lowest of these groups to the highest (ICED-w).
        "together": the same instances at once (Trad-II). "all": all annotated instances (Trad-I).
    warm_up_epochs : int, default=5
        Of every group; "together" and "all" train for as many in all.
    warm_up_groups : int, default=3
    warm_up_batch_size : int, default=16
        The groups are small.
    decoder_epochs : int, default=20
        Of the autoencoder.
    refit_epochs : int, default=1
        Of the decoder in every round (five times as many before the first).
    decision : {"posterior", "balanced"} or cost matrix, default="posterior"
        How `predict` makes labels of probabilities: the most probable class; the largest
        probability divided by ``class_prior_``, for the mean recall; or, with costs of shape
        (n_classes, n_classes) [true, decided], the least expected cost. See `manyhands.decide`.
    max_epochs : int, default=30
        Rounds.
    batch_size, lr, weight_decay, reset_optimizer, class_balance, scaling, device, random_state, \
verbose, validation, patience, checkpoint
        See `BaseCrowdClassifier`. ``class_balance`` acts on the inferred classes, synthetic
        instances included; ``validation`` chooses among the rounds.

    Attributes
    ----------
    posterior_ : array of shape (n_samples, n_classes)
        Class probabilities of the training instances in the round that is kept, by inference (by
        the network, for instances without annotations).
    labels_ : array of shape (n_samples,)
        Their most probable classes.
    observed_posterior_ : array of shape (n_samples, n_classes)
        The same inference on the observed annotations alone, before any instance was made.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Observed annotations counted against ``posterior_``; synthetic ones do not count.
    class_prior_ : array of shape (n_classes,)
        Share of every class in what the network was trained on in that round, synthetic instances
        included: what its probabilities imply.
    synthesis_ : str or None
        Where instances were made.

    Notes
    -----
    ``history_`` has the stages "decoder" (``reconstruction``: mean squared error in scaled
    features), "warm_up" and "train" (``cross_entropy`` against the labels of the round). Rows of
    "train" also tell of their round: ``inferred_<class>`` (observed instances inferred to be of
    the class), ``n_synthetic``, ``synthetic_agreement`` (share of them inferred to be what they
    were made for), ``reconstruction`` (of the decoder while it was refitted), and, where true
    classes are watched, ``inference_accuracy`` and ``inference_minority_recall``.

    With several classes each that is rarer than the largest is raised to it. An instance whose two
    most probable classes tie is nobody's candidate, and is trained on as a share of both. If no
    instance has two annotations, the labels are the annotations. Abstentions are taken for gaps.

    The warm-up's groups are levels of certainty where all instances have as many annotations, else
    (as with a fraction held out by ``validation``) quartiles of it.

    Parameters of the sampler are reached where one is given: ``sampler=CrowdSMOTE()``, then
    ``sampler__delta``.

    Warns
    -----
    FewCandidatesWarning
        If a class had one instance or none to make others from in the last round.
    UserWarning
        If ``em="hard"`` with ``prior="estimated"`` finds less than two thirds of the instances of
        a class that soft EM finds in the observed annotations.

    References
    ----------
    .. [1] Wang et al., Learning from imbalanced crowdsourced labeled data, SDM 2022, Algorithm 1.

    Examples
    --------
    >>> from manyhands import ICEDClassifier, load_demo
    >>> demo = load_demo()
    >>> model = ICEDClassifier(max_epochs=2, warm_up_epochs=1, decoder_epochs=1, random_state=0)
    >>> model.fit(demo.X_train, demo.annotations).posterior_.shape == (len(demo.X_train), 10)
    True
    """

    _start_refusal = "begins with majority votes"
    _validates_last_stage_only = True
    _preparatory_stages = ("decoder", "warm_up")
    _crowd_check_exemptions = {
        "check_history": "its rows also tell of inference and synthesis, which are no loss; a test "
        "of the method checks its terms",
        "check_annotator_permutation": "annotations are drawn in the order of the annotators; a "
        "test of the method permutes them where nothing is made",
        "check_degenerate_crowds": "warns where a class is left with no instance, as with constant "
        "annotators; a test of the method tries these crowds",
    }
    _fitted_arrays = (
        *LatentClassClassifier._fitted_arrays,
        "observed_posterior_",
        "class_prior_",
    )
    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        "em": [StrOptions({"hard", "soft"}), None],
        "prior": [StrOptions({"uniform", "estimated"})],
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "em_max_iter": [Interval(Integral, 1, None, closed="left")],
        "em_start": [StrOptions({"votes", "previous"})],
        "synthesis": [StrOptions({"auto", "decoder", "embedding", "input"}), None],
        "sampler": [None, HasMethods(["fit_resample"])],
        "synthetic_labels": [StrOptions({"inferred", "intended"})],
        "regenerate": ["boolean"],
        "targets": [StrOptions({"hard", "soft"})],
        "warm_up": [StrOptions(set(WARM_UPS)), None],
        "warm_up_epochs": [Interval(Integral, 1, None, closed="left")],
        "warm_up_groups": [Interval(Integral, 1, None, closed="left")],
        "warm_up_batch_size": [Interval(Integral, 1, None, closed="left")],
        "decoder_epochs": [Interval(Integral, 0, None, closed="left")],
        "refit_epochs": [Interval(Integral, 0, None, closed="left")],
        "decision": [str, "array-like"],
    }

    backbone: Any = field(default=None, kw_only=False)
    em: str | None = "hard"
    prior: str = "uniform"
    smoothing: float = 0.01
    em_max_iter: int = 50
    em_start: str = "votes"
    synthesis: str | None = "auto"
    sampler: Any = None
    synthetic_labels: str = "inferred"
    regenerate: bool = True
    targets: str = "hard"
    warm_up: str | None = "certainty"
    warm_up_epochs: int = 5
    warm_up_groups: int = 3
    warm_up_batch_size: int = 16
    decoder_epochs: int = 20
    refit_epochs: int = 1
    decision: Any = "posterior"
    max_epochs: int = 30
    batch_size: int = 64

    # -- what it is made of -----------------------------------------------------------------------

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.sampler, type):
            raise AnnotationError(
                f"sampler is the class {self.sampler.__name__}; give an object: "
                f"{self.sampler.__name__}()"
            )

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> SynthesisModule:
        has_embedding = hasattr(classifier.backbone, "embed")
        self.synthesis_ = self.synthesis
        if self.synthesis == "auto":
            self.synthesis_ = "decoder" if has_embedding else "input"
        lacking = "embed"
        if self.synthesis_ == "embedding" and not hasattr(classifier.backbone, "head"):
            has_embedding, lacking = False, "head (the layer after the embedding)"
        if self.synthesis_ in ("decoder", "embedding") and not has_embedding:
            raise AnnotationError(
                f"synthesis={self.synthesis!r} needs a backbone with {lacking}, which "
                f"{type(classifier.backbone).__name__} has not; use synthesis='input'"
            )
        return SynthesisModule(
            classifier,
            len(self.classes_),
            self.n_annotators_,
            input_shape,
            self.synthesis_ or "input",
        )

    def _inference(self) -> DawidSkene:
        """Dawid-Skene with ``smoothing`` pseudo-annotations in every entry of a confusion row."""
        n_classes = len(self.classes_)
        return DawidSkene(
            max_iter=self.em_max_iter,
            confusion_prior="diagonal",
            diagonal=1.0 / n_classes,
            prior_strength=self.smoothing * n_classes,
            class_prior=self.prior,
            n_subtypes=1,
            em=self.em or "soft",
            abstentions="ignore",
        )

    def _prepare(self, fit: ICEDFit) -> _Rounds:
        if self.warm_up and self.warm_up_batch_size < 2 and has_batch_norm(fit.module):
            raise AnnotationError(
                "backbone normalises over batches, which needs two instances in each: "
                f"warm_up_batch_size={self.warm_up_batch_size}"
            )
        majority = _majority(fit.table)
        self.observed_posterior_ = self._inferred(fit.table, majority)
        # Parts of the module for as long as it is trained, so that the best epoch's are kept.
        observed = torch.from_numpy(self.observed_posterior_.copy())
        fit.module.register_buffer("posterior", observed)
        self.class_prior_ = class_shares(majority[fit.batches.instances.cpu().numpy()])
        fit.module.register_buffer("class_shares", torch.from_numpy(self.class_prior_.copy()))
        return _Rounds(self, fit)

    def _inferred(self, table: AnnotationTable, start: FloatArray) -> FloatArray:
        """Posterior of all instances, from a start (n, n_classes)."""
        if self.em is None:
            return _majority(table)
        if self.em == "hard":
            start = _most_probable(start)
        with catch_warnings():
            # Said in the docs: the labels are the annotations then.
            simplefilter("ignore", NotIdentifiableWarning)
            return self._inference().fit(table, start=start).posterior_

    # -- training ---------------------------------------------------------------------------------

    def _stages(self, fit: ICEDFit) -> list[Stage]:
        module, rounds, stages = fit.module, fit.state, []
        if module.decoder is not None and self.decoder_epochs:
            reconstruct = GradientStep(
                module,
                lambda module, batch: {"reconstruction": module.reconstruct(batch.x)},
                lambda: self._make_optimizer(module),
            )
            stages.append(Stage("decoder", reconstruct, fit.batches.epoch, self.decoder_epochs))
        warm_up = self._warm_up_stage(fit)
        if warm_up is not None:
            stages.append(warm_up)
        step = _RoundStep(
            module,
            rounds,
            lambda: self._make_optimizer(module),
            reset_every_epoch=self.reset_optimizer,
        )
        return [*stages, Stage("train", step, rounds.epoch, self.max_epochs)]

    def _warm_up_stage(self, fit: ICEDFit) -> Stage | None:
        """Train on majority votes, group by group (section 2.5)."""
        groups = self._warm_up_rows(fit.table)
        if not groups:
            return None
        targets = SoftTargets(self._balance, fit.features.device)
        named = np.concatenate(groups)
        votes = np.zeros((fit.table.n_instances, len(self.classes_)))
        votes[named] = _most_probable(_majority(fit.table))[named]
        targets.set(votes, balancing_rng(0, 1))
        rows = [torch.from_numpy(group).to(fit.features.device) for group in groups]

        def epoch_batches(epoch: int) -> Iterator[MixedBatch]:
            group = rows[epoch * len(rows) // n_epochs]
            return mixed_epoch(fit.features, group, self.warm_up_batch_size)

        n_epochs = self.warm_up_epochs * self._n_groups(fit.table)
        step = GradientStep(
            fit.module,
            lambda module, batch: targets.loss(
                module.mixed_logits(batch.x, batch.synthetic), batch.instances
            ),
            lambda: self._make_optimizer(fit.module),
            reset_every_epoch=self.reset_optimizer,
        )
        return Stage("warm_up", step, epoch_batches, n_epochs)

    def _groups(self, table: AnnotationTable) -> IntArray:
        by = "levels" if has_equal_counts(table) else "quantiles"
        return certainty_groups(label_certainty(table), self.warm_up_groups, by=by)

    def _n_groups(self, table: AnnotationTable) -> int:
        """Groups of certainty that have instances: what all warm-ups count their epochs by."""
        groups = self._groups(table)
        return max(1, len(np.unique(groups[groups > 0])))

    def _warm_up_rows(self, table: AnnotationTable) -> list[Any]:
        """Instances of the warm-up, one array a phase."""
        if self.warm_up is None:
            return []
        groups = self._groups(table)
        phases = [np.flatnonzero(groups == g) for g in np.unique(groups[groups > 0])]
        if self.warm_up == "together":
            phases = [np.flatnonzero(groups)]
        elif self.warm_up == "all":
            phases = [np.flatnonzero(table.annotations_per_instance())]
        # A network that normalises over batches learns nothing from one instance alone.
        for i in reversed(range(1, len(phases))):
            if min(len(phases[i]), len(phases[i - 1])) < 2:
                phases[i - 1 : i + 1] = [np.concatenate(phases[i - 1 : i + 1])]
        return phases if sum(map(len, phases)) > 1 else []

    def _set_fitted(self, fit: ICEDFit) -> None:
        module, table = fit.module, fit.table
        self.posterior_ = module.posterior.cpu().numpy()
        unknown = np.flatnonzero(table.annotations_per_instance() == 0)
        if len(unknown):
            self.posterior_[unknown] = class_proba(module, fit.features, unknown)
        self.class_prior_ = module.class_shares.cpu().numpy()
        del module.posterior, module.class_shares
        self.confusion_ = self._confusion(table, self.posterior_)
        self._warn_of_losses(table)
        fit.state.warn_of_few()

    def _confusion(self, table: AnnotationTable, posterior: FloatArray) -> FloatArray:
        latent = self._latent(table)
        return latent.confusion(posterior[latent.instances])

    def _warn_of_losses(self, table: AnnotationTable) -> None:
        """Warn where hard EM with an estimated prior starves a class that soft EM does not."""
        if (self.em, self.prior) != ("hard", "estimated"):
            return
        soft = self._inference().set_params(em="soft")
        with catch_warnings():
            simplefilter("ignore", NotIdentifiableWarning)
            other = soft.fit(table).posterior_
        annotated = table.annotations_per_instance() > 0
        found, expected = (
            _most_probable(p)[annotated].sum(axis=0) for p in (self.observed_posterior_, other)
        )
        starved = np.flatnonzero(found < STARVED * expected)
        if len(starved):
            c = starved[np.argmin(found[starved] / expected[starved])]
            warn(
                f"em='hard' with prior='estimated' finds {found[c]:.0f} instances of class "
                f"{self.classes_[c].item()!r} among the observed ones, em='soft' "
                f"{expected[c]:.0f}: the rarer a class is inferred to be, the less it is believed. "
                "Use prior='uniform' (as the paper's results suggest) or em='soft'",
                stacklevel=5,
            )


class _RoundStep(GradientStep):
    """Gradient steps towards the labels of a round, which begins with every epoch."""

    def __init__(self, module: SynthesisModule, rounds: _Rounds, *args: Any, **more: Any) -> None:
        super().__init__(module, rounds.objective, *args, **more)
        self.rounds = rounds

    def start_epoch(self, epoch: int) -> None:
        """Synthesise and infer."""
        self.rounds.renew(epoch)
        super().start_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """State of the optimiser, and of the rounds."""
        return {**super().state_dict(), "rounds": self.rounds.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the state back."""
        super().load_state_dict(state)
        self.rounds.load_state_dict(state["rounds"])


@dataclass(eq=False)
class _Made:
    """Synthetic instances as they are held, and the class each was made for."""

    points: Tensor
    table: AnnotationTable
    intended: IntArray | None
    few: dict[str, int]


class _Rounds:
    """The loop of Algorithm 1: what is made and inferred anew before every epoch.

    Parameters
    ----------
    model : ICEDClassifier
    fit : Fit
        The buffer ``posterior`` (n_instances, n_classes) of its module is that of the last round;
        its facts are what the history says of the round.
    """

    def __init__(self, model: ICEDClassifier, fit: Fit[SynthesisModule, Any]) -> None:
        self.model = model
        self.module, self.features, self.table = fit.module, fit.features, fit.table
        self.rows = fit.batches.instances
        self.batch_size = fit.batches.batch_size
        self.gold = fit.watch.y_train
        self.facts = fit.facts
        self.latent = LatentClasses(self.table, smoothing=model.smoothing)
        self.targets = SoftTargets(model._balance, self.features.device)
        self.points: Tensor | None = None
        self.few: dict[str, int] = {}
        self.decoder_optimizer: torch.optim.Optimizer | None = None
        if self.module.decoder is not None:
            self.decoder_optimizer = torch.optim.Adam(
                self.module.decoder.parameters(), lr=model.lr, weight_decay=model.weight_decay
            )

    # -- a round ----------------------------------------------------------------------------------

    def renew(self, epoch: int) -> None:
        """Begin a round (0-based): synthesise, then infer."""
        if epoch and not (self.model.regenerate and self.model.synthesis_):
            return  # Nothing is new, and what was inferred stays.
        rng = balancing_rng(epoch)
        made = self._make(epoch, rng) if self.model.synthesis_ else None
        table = self.table if made is None else made.table
        posterior = self._infer(table)
        n = self.table.n_instances
        observed = posterior[:n]
        self.module.posterior.copy_(torch.from_numpy(observed))
        confusion = self.latent.confusion(observed[self.latent.instances])
        self.module.confusions.copy_(torch.from_numpy(confusion))
        self.points = None if made is None else made.points
        self.few = {} if made is None else made.few
        self.targets.set(self._targets(posterior, made), rng)
        self.module.class_shares.copy_(torch.from_numpy(self.targets.shares))
        self.model.class_prior_ = self.targets.shares
        self.facts |= self._told(observed)
        if made is not None:
            self.facts |= self._told_of_made(posterior[n:], made)

    def _make(self, epoch: int, rng: np.random.Generator) -> _Made:
        """Make instances of the rare classes, and their annotations (section 2.4)."""
        model, module = self.model, self.module
        module.eval()
        with torch.no_grad():
            space = self._encoded()
        if module.decoder is not None:
            n_epochs = model.refit_epochs * (1 if epoch else REFITS_AT_FIRST)
            self.facts |= self._refit(space, n_epochs)
        labels = self._labels()
        sampler = CrowdSMOTE() if model.sampler is None else clone(model.sampler, safe=False)
        with catch_warnings():
            # Said once, after the last round.
            simplefilter("ignore", FewCandidatesWarning)
            more, table = set_random_states(sampler, rng).fit_resample(
                space.cpu().numpy(), self.table, labels=labels
            )
        new = _checked(more, table, self.table, type(sampler).__name__)
        few = {
            str(each.label): each.n_candidates
            for each in getattr(sampler, "resampling_", [])
            if each.n_candidates < 2
        }
        points = torch.from_numpy(new)
        intended = getattr(sampler, "synthetic_labels_", None)
        if intended is None and model.synthetic_labels == "intended":
            raise AnnotationError(
                f"synthetic_labels='intended', but {type(sampler).__name__} does not say in "
                "synthetic_labels_ what it made instances for; use 'inferred'"
            )
        codes: IntArray | None = None
        if intended is not None:
            codes, _ = encode(
                intended, model.classes_, argument="synthetic_labels_", vocabulary_name="classes_"
            )
        with torch.no_grad():
            parts = torch.split(points.to(space.device), PREDICT_BATCH)
            decoded = [module.decode(z) for z in parts]
        return _Made(torch.cat(decoded) if decoded else points, table, codes, few)

    def _encoded(self) -> Tensor:
        """Every instance in the space of the synthesis; zeros where it has no annotations."""
        parts = [self.module.encode(x) for x in self.features.batches(self.rows, PREDICT_BATCH)]
        known = torch.cat(parts)
        space = known.new_zeros(self.table.n_instances, known.shape[1])
        space[self.rows] = known
        return space

    def _labels(self) -> AnyArray:
        """Inferred class of every observed instance, None where two are as probable."""
        posterior = self.module.posterior.cpu().numpy()
        sure = (_most_probable(posterior) > 0).sum(axis=1) == 1
        labels = np.full(len(posterior), None, dtype=object)
        labels[sure] = self.model.classes_[posterior[sure].argmax(axis=1)].tolist()
        return labels

    def _refit(self, space: Tensor, n_epochs: int) -> dict[str, float]:
        """Fit the decoder to the embedding as it is now; the embedding stays."""
        module, optimizer = self.module, self.decoder_optimizer
        assert module.decoder is not None
        assert optimizer is not None
        error = space.new_zeros(())
        for _ in range(n_epochs):
            total = space.new_zeros(())
            for batch in mixed_epoch(self.features, self.rows, self.batch_size):
                scaled = module.classifier.scaler(batch.x)
                loss = torch.nn.functional.mse_loss(module.decoder(space[batch.instances]), scaled)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += loss.detach() * len(batch.instances)
            error = total / len(self.rows)
        return {"reconstruction": float(error)} if n_epochs else {}

    def _infer(self, table: AnnotationTable) -> FloatArray:
        """Labels of observed and synthetic instances (section 2.3), from those of before."""
        start = _majority(table)
        if self.model.em_start == "previous":
            before = self.module.posterior.cpu().numpy()
            start[: len(before)] = before
        return self.model._inferred(table, start)

    def _targets(self, posterior: FloatArray, made: _Made | None) -> FloatArray:
        """What the network is trained on; zeros for observed instances without annotations."""
        targets = posterior if self.model.targets == "soft" else _most_probable(posterior)
        n = self.table.n_instances
        if made is not None and self.model.synthetic_labels == "intended":
            forced = np.eye(targets.shape[1])[made.intended]
            targets = np.concatenate([targets[:n], forced])
        known = np.ones(len(targets), dtype=bool)
        known[:n] = self.table.annotations_per_instance() > 0
        return targets * known[:, None]

    # -- what is said of it -----------------------------------------------------------------------

    def _told(self, posterior: FloatArray) -> dict[str, float]:
        chosen = _most_probable(posterior)[self.latent.instances]
        counts = chosen.sum(axis=0)
        names = [f"inferred_{name}" for name in self.model.classes_]
        told: dict[str, float] = dict(zip(names, counts.tolist(), strict=True))
        gold = self.gold
        if gold is None or len(gold) != len(posterior):
            return told
        codes = gold_codes(gold, self.table)[self.latent.instances]
        known = codes >= 0
        labels = chosen.argmax(axis=1)[known]
        if not known.any():
            return told
        return told | {
            "inference_accuracy": accuracy(codes[known], labels),
            "inference_minority_recall": minority_recall(codes[known], labels),
        }

    def _told_of_made(self, posterior: FloatArray, made: _Made) -> dict[str, float]:
        told = {"n_synthetic": float(len(posterior))}
        if made.intended is not None and len(posterior):
            share = float((posterior.argmax(axis=1) == made.intended).mean())
            told["synthetic_agreement"] = share
        return told

    def warn_of_few(self) -> None:
        """Warn of classes that had too few instances in the last round."""
        for label, n in self.few.items():
            what = "one instance was inferred to be" if n else "no instance was inferred to be"
            then = "it was repeated" if n else "none was made"
            warn(
                f"in the last round {what} of class {label}, so {then}; see "
                f"inferred_{label} in history_, and prior= and em= for what infers it",
                FewCandidatesWarning,
                stacklevel=6,
            )

    # -- for the training -------------------------------------------------------------------------

    def epoch(self, epoch: int) -> Iterator[MixedBatch]:
        """Yield observed and synthetic instances in random order."""
        return mixed_epoch(self.features, self.rows, self.batch_size, self.points)

    def objective(self, module: SynthesisModule, batch: MixedBatch) -> dict[str, Tensor]:
        """``cross_entropy`` against the labels of the round."""
        return self.targets.loss(module.mixed_logits(batch.x, batch.synthetic), batch.instances)

    def state_dict(self) -> dict[str, Any]:
        """Targets, points and the decoder's optimiser, for a checkpoint."""
        optimizer = self.decoder_optimizer
        return {
            "targets": self.targets.state_dict(),
            "points": self.points,
            "facts": dict(self.facts),
            "few": dict(self.few),
            "decoder_optimizer": None if optimizer is None else optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put `state_dict` back."""
        self.targets.load_state_dict(state["targets"])
        if len(self.targets.targets):
            self.model.class_prior_ = self.targets.shares
        points = state["points"]
        self.points = None if points is None else points.to(self.features.device)
        self.facts.clear()
        self.facts |= state["facts"]
        self.few = dict(state["few"])
        if self.decoder_optimizer is not None:
            self.decoder_optimizer.load_state_dict(state["decoder_optimizer"])


def _checked(
    more: Any, table: AnnotationTable, observed: AnnotationTable, sampler: str
) -> FloatArray:
    """Points that a sampler made, shape (m, d); refuse what does not only add to what was there."""
    n, wrong = observed.n_instances, None
    points = more.toarray() if hasattr(more, "toarray") else np.asarray(more)
    same = ("classes", "annotators")
    if not isinstance(table, AnnotationTable) or points.ndim != 2 or len(points) < n:
        wrong = f"returned {type(table).__name__} and X of shape {np.shape(more)}"
    elif len(points) != table.n_instances:
        wrong = f"returned {len(points)} rows of X for {table.n_instances} instances"
    elif not all(np.array_equal(getattr(table, a), getattr(observed, a)) for a in same):
        wrong = "changed the classes or annotators of the table"
    elif not np.isfinite(points).all():
        wrong = "made instances that are not finite"
    if wrong is not None:
        raise AnnotationError(
            f"sampler: {sampler}.fit_resample {wrong}; it must return the {n} instances it was "
            "given and after them new ones, and an AnnotationTable of all"
        )
    return np.ascontiguousarray(points[n:], dtype=np.float32)


def _majority(table: AnnotationTable) -> FloatArray:
    """Shares of the votes, shape (n_instances, n_classes); uniform without any."""
    return vote_shares(make_votes(table).answers)


def _most_probable(posterior: FloatArray) -> FloatArray:
    """1 for the most probable class of every row; shared where several are (up to rounding)."""
    top = posterior >= posterior.max(axis=1, keepdims=True) - 1e-9
    return cast(FloatArray, top / top.sum(axis=1, keepdims=True))
