"""ICED: truth inference and synthetic instances of rare classes that improve each other.

.. [1] W. Wang, J. Thekinen, X. Liu, Z. Liu and J. Tang. Learning from imbalanced crowdsourced
   labeled data. SDM 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from manyhands.classifiers.iced.inference import LabelInference, majority
from manyhands.classifiers.iced.rounds import ICEDRounds, RoundOptions, RoundStep
from manyhands.classifiers.iced.synthesis import Synthesis
from manyhands.classifiers.iced.warm_up import (
    WARM_UPS,
    count_groups,
    group_by_certainty,
    warm_up_phases,
    warm_up_stage,
)
from manyhands.exceptions import AnnotationError, warn_caller
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Fit
from manyhands.fitting.latent import LatentClassClassifier, SoftTargets, class_shares
from manyhands.fitting.method_protocol import MethodProtocol, ProtocolOf
from manyhands.fitting.network import has_batch_norm
from manyhands.fitting.parameters import FIXED_EPOCHS
from manyhands.fitting.prediction import class_proba
from manyhands.fitting.traits import Traits
from manyhands.nn import ScaledClassifier, SynthesisModule
from manyhands.sampling import FewCandidatesWarning
from manyhands.training import GradientStep, Stage

ICEDFit = Fit[SynthesisModule, ICEDRounds]


@dataclass(frozen=True, kw_only=True, repr=False)
class ICEDProtocol(MethodProtocol):
    r"""Protocol of `ICEDClassifier`: variants, ablations, and numbers of epochs of its phases.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.MethodProtocol`.
    em : {"hard", "soft", None}, default="hard"
        Whether inference counts an instance as its most probable class (Eq. 2.1, 2.2), or as all
        classes in proportion to their probabilities. None: no inference, only majority votes.
    prior : {"uniform", "estimated"}, default="uniform"
        Prior of the classes in inference. Together with ``em`` it determines how many instances of
        rare classes are inferred. The paper's experiments use "hard" and "uniform". Its formula
        (:math:`\Phi`) is "hard" and "estimated", which infers too few instances of rare classes and
        warns of it. On simulated crowds, "soft" with "estimated" is the best compromise.
    smoothing : float, default=0.01
        Pseudo-annotations in each entry of a confusion matrix.
    em_max_iter : int, default=50
        Maximum number of EM iterations per round.
    em_start : {"votes", "previous"}, default="votes"
        Initial labels of EM in every round: the votes, or the labels of the previous round (but
        always the votes for synthetic instances), which takes fewer iterations. Hard EM hardly
        changes its initial labels, so with "previous" the mistakes of the first round remain.
    synthesis : {"auto", "decoder", "embedding", "input", None}, default="auto"
        Space in which synthetic instances are made. "decoder": a decoder maps points between
        embeddings back to instances; it is first trained as part of an autoencoder, and refitted in
        every round. "embedding": points are the input of the network's last layer. "input": points
        lie between the (scaled) instances. None: no instances are made. "auto": "decoder" if the
        backbone has ``embed``, else "input"; for dicts and token ids, "embedding" or, without
        ``embed`` and ``head``, None.
    synthetic_labels : {"inferred", "intended"}, default="inferred"
        Label of a synthetic instance: inferred from its annotations as for real instances, or the
        class for which it was made.
    regenerate : bool, default=True
        Make new synthetic instances in every round; with False, only in the first round.
    targets : {"hard", "soft"}, default="hard"
        Train on the most probable class, as in the paper, or on the posterior.
    warm_up : {"certainty", "together", "all", None}, default="certainty"
        Training on majority votes before the rounds. "certainty": on the instances of the
        ``warm_up_groups`` highest levels of label certainty, from the lowest of these groups to the
        highest (ICED-w). "together": on the same instances at once (Trad-II). "all": on all
        annotated instances (Trad-I).
    warm_up_epochs : int, default=5
        Epochs per group; "together" and "all" train for the same number in total.
    warm_up_groups : int, default=3
        Number of the highest levels of label certainty that "certainty" and "together" train on.
    warm_up_batch_size : int, default=16
        Batch size of the warm-up, small because the groups are small.
    decoder_epochs : int, default=20
        Epochs of the autoencoder.
    refit_epochs : int, default=1
        Epochs of the decoder in every round (five times as many before the first).
    """

    _constraints = {
        **MethodProtocol._constraints,
        "em": [StrOptions({"hard", "soft"}), None],
        "prior": [StrOptions({"uniform", "estimated"})],
        "smoothing": [Interval(Real, 0, None, closed="left")],
        "em_max_iter": [Interval(Integral, 1, None, closed="left")],
        "em_start": [StrOptions({"votes", "previous"})],
        "synthesis": [StrOptions({"auto", "decoder", "embedding", "input"}), None],
        "synthetic_labels": [StrOptions({"inferred", "intended"})],
        "regenerate": ["boolean"],
        "targets": [StrOptions({"hard", "soft"})],
        "warm_up": [StrOptions(set(WARM_UPS)), None],
        "warm_up_epochs": [Interval(Integral, 1, None, closed="left")],
        "warm_up_groups": [Interval(Integral, 1, None, closed="left")],
        "warm_up_batch_size": [Interval(Integral, 1, None, closed="left")],
        "decoder_epochs": [Interval(Integral, 0, None, closed="left")],
        "refit_epochs": [Interval(Integral, 0, None, closed="left")],
    }

    em: str | None = "hard"
    prior: str = "uniform"
    smoothing: float = 0.01
    em_max_iter: int = 50
    em_start: str = "votes"
    synthesis: str | None = "auto"
    synthetic_labels: str = "inferred"
    regenerate: bool = True
    targets: str = "hard"
    warm_up: str | None = "certainty"
    warm_up_epochs: int = 5
    warm_up_groups: int = 3
    warm_up_batch_size: int = 16
    decoder_epochs: int = 20
    refit_epochs: int = 1


@dataclass(kw_only=True, eq=False, repr=False)
class ICEDClassifier(LatentClassClassifier):
    r"""Learn from imbalanced crowdsourced labels by ICED [1]_.

    A network is first trained on the labels with high agreement of annotators (the warm-up), then
    in rounds of one epoch each. In every round `CrowdSMOTE` makes instances of the rare classes
    between real ones in the network's embedding, with annotations drawn from those of their
    neighbours. `DawidSkene` infers the labels of real and synthetic instances from the annotations
    of both, and the network is trained on them. The next synthetic instances are made between
    instances with the same inferred label.

    Parameters
    ----------
    backbone : None, str, dict, nn.Module or callable, default=None
        Synthesis in an embedding needs one with ``embed``, which all named backbones have.
    sampler : CrowdSMOTE or None, default=None
        Makes the synthetic instances: any object with ``fit_resample(X, table, labels=...)``.
    max_epochs : int, default=30
        Number of rounds.
    batch_size, lr, weight_decay, class_balance, scaling, device, random_state, \
verbose, validation, checkpoint, decision, callbacks
        See `manyhands.fitting.BaseCrowdClassifier`. ``class_balance`` acts on the inferred classes,
        synthetic instances included. ``validation`` chooses among the rounds. If it is a fraction,
        it does so by likelihood, because agreement would choose a wrong number of rounds.
    protocol : ICEDProtocol or None, default=None
        Variants and details of published experiments; None means `ICEDProtocol()`.

    Attributes
    ----------
    posterior_ : array of shape (n_samples, n_classes)
        Class probabilities of the training instances in the round that is kept: inferred, or those
        of the network for instances without annotations.
    labels_ : array of shape (n_samples,)
        Most probable classes of the training instances, or medians of three or more grades. They
        and ``posterior_`` are in the order of X (see `partial_fit`); ``instances_`` holds the ids.
    observed_posterior_ : array of shape (n_samples, n_classes)
        The same inference on the observed annotations alone, before any synthetic instance.
    confusion_ : array of shape (n_annotators, n_classes, n_classes)
        Observed annotations counted against ``posterior_``; synthetic ones do not count.
    class_prior_ : array of shape (n_classes,)
        Share of each class in the training targets of that round, synthetic instances included. It
        is the prior that the network's probabilities imply.
    synthesis_ : str or None
        Space in which synthetic instances were made.

    Notes
    -----
    ``history_`` has the stages "decoder" (``reconstruction``: mean squared error in scaled
    features), "warm_up" and "train" (``cross_entropy`` against the labels of the round). Rows of
    "train" also describe their round: ``inferred_<class>`` (observed instances inferred to be of
    the class), ``n_synthetic``, ``synthetic_agreement`` (share of the synthetic instances inferred
    to be of the class they were made for), ``reconstruction`` (of the decoder while it was
    refitted) and, if true classes are watched, ``inference_accuracy`` and
    ``inference_minority_recall``.

    With several classes, each rarer one is raised to the size of the largest. An instance whose two
    most probable classes tie is not a candidate for synthesis, and has an equal share of both in
    training. If no instance has two annotations, the labels are the annotations. Abstentions count
    as missing annotations.

    The groups of the warm-up are levels of certainty if all instances have equally many
    annotations. Otherwise (as when ``validation`` holds out a fraction) they are its quartiles.

    `partial_fit` continues with rounds: there is no other warm-up, and the decoder is trained as in
    other rounds. With ``em_start="previous"``, inference continues from ``posterior_``.

    Parameters of the sampler can be set if one is given: ``sampler=CrowdSMOTE()``, then
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
    >>> from manyhands import ICEDClassifier, ICEDProtocol, load_demo
    >>> demo = load_demo()
    >>> short = ICEDProtocol(warm_up_epochs=1, decoder_epochs=1)
    >>> model = ICEDClassifier(max_epochs=2, random_state=0, protocol=short)
    >>> model.fit(demo.X_train, demo.annotations).posterior_.shape == (len(demo.X_train), 10)
    True
    """

    _crowd_check_exemptions = {
        "check_history": "its rows also have columns on inference and synthesis, which are no loss "
        "terms; a test of the method checks the terms",
        "check_annotator_permutation": "annotations are drawn in the order of the annotators; a "
        "test of the method permutes them without synthesis",
        "check_degenerate_crowds": "warns if a class is left without instances, as with constant "
        "annotators; a test of the method tries these crowds",
    }
    _parameter_constraints = {
        **BaseCrowdClassifier._parameter_constraints,
        **FIXED_EPOCHS,
        "sampler": [None, HasMethods(["fit_resample"])],
    }

    backbone: Any = field(default=None, kw_only=False)
    sampler: Any = None
    max_epochs: int = 30
    batch_size: int = 64
    protocol: ICEDProtocol | None = None

    _protocol = ProtocolOf(ICEDProtocol)

    @property
    def _traits(self) -> Traits:
        inherited = super()._traits
        return replace(
            inherited,
            saved=(
                *inherited.saved,
                "observed_posterior_",
                "class_prior_",
            ),
            balanced_by="class_prior_",
            start_refusal="begins with majority votes",
            validates_last_stage_only=True,
            preparatory_stages=("decoder", "warm_up"),
            auto_epochs_refusal=(
                "'auto' chooses by agreement with the annotators, which is no criterion for "
                "rounds of EM"
            ),
            epochs_are_rounds=True,
        )

    def _build_module(
        self, classifier: ScaledClassifier, input_shape: Sequence[int]
    ) -> SynthesisModule:
        has_embedding = hasattr(classifier.backbone, "embed")
        place = self._place(classifier)
        if classifier.symbolic and place in ("decoder", "input"):
            raise AnnotationError(
                f"synthesis={self._protocol.synthesis!r} interpolates between instances, which is "
                "impossible for dicts and token ids. In the protocol, use synthesis='embedding' "
                "with a backbone that has embed and head, or synthesis=None"
            )
        lacking = "embed"
        if place == "embedding" and not hasattr(classifier.backbone, "head"):
            has_embedding, lacking = False, "head (the layer after the embedding)"
        if place in ("decoder", "embedding") and not has_embedding:
            instead = "None" if classifier.symbolic else "'input'"
            raise AnnotationError(
                f"synthesis={self._protocol.synthesis!r} needs a backbone with {lacking}, which "
                f"{type(classifier.backbone).__name__} lacks; use synthesis={instead} in the "
                "protocol"
            )
        return SynthesisModule(
            classifier,
            len(self.classes_),
            self.n_annotators_,
            input_shape,
            place or "input",
        )

    def _place(self, classifier: ScaledClassifier) -> str | None:
        """Return the space of synthesis: ``synthesis``, or the choice of "auto" for a network."""
        if self._protocol.synthesis != "auto":
            return self._protocol.synthesis
        has_embedding = hasattr(classifier.backbone, "embed")
        if classifier.symbolic:
            is_possible = has_embedding and hasattr(classifier.backbone, "head")
            return "embedding" if is_possible else None
        return "decoder" if has_embedding else "input"

    @property
    def synthesis_(self) -> str | None:
        """Space in which synthetic instances were made."""
        return self._place(self.module_.classifier)

    def _prepare(self, fit: ICEDFit) -> ICEDRounds:
        if (
            self._protocol.warm_up
            and self._protocol.warm_up_batch_size < 2
            and has_batch_norm(fit.module)
        ):
            raise AnnotationError(
                "backbone has batch normalisation, which needs at least two instances per batch, "
                f"but warm_up_batch_size={self._protocol.warm_up_batch_size}; give 2 or more"
            )
        votes = majority(fit.table)
        forms = self._protocol
        inference = LabelInference(forms.em, forms.prior, forms.smoothing, forms.em_max_iter)
        observed_posterior = inference.posterior(fit.table, votes)
        shares = class_shares(votes[fit.batches.instances.cpu().numpy()])
        fit.found |= {"observed_posterior_": observed_posterior, "class_prior_": shares}
        # Buffers of the module during training, so that those of the best epoch are kept.
        start = observed_posterior.copy()
        before = getattr(fit.earlier and fit.earlier.model, "seen_", None)
        if fit.earlier is not None and before is not None:  # Its instances are the first ones.
            start[: before.table.n_instances] = fit.earlier.model.posterior_
        observed = torch.from_numpy(start)
        fit.module.register_buffer("posterior", observed)
        fit.module.register_buffer("class_shares", torch.from_numpy(shares.copy()))
        return ICEDRounds(
            fit,
            self.classes_,
            latent=self._latent(fit.table),
            inference=inference,
            synthesis=self._make_synthesis(fit),
            targets=SoftTargets(fit.recipe.balance, fit.features.device),
            options=RoundOptions(
                self._protocol.em_start,
                self._protocol.regenerate,
                self._protocol.targets,
                self._protocol.synthetic_labels,
            ),
        )

    def _make_synthesis(self, fit: ICEDFit) -> Synthesis | None:
        if self._place(fit.module.classifier) is None:
            return None
        return Synthesis(
            fit,
            self.classes_,
            sampler=self.sampler,
            needs_intended=self._protocol.synthetic_labels == "intended",
            refit_epochs=self._protocol.refit_epochs,
            lr=self.lr,
            weight_decay=self.weight_decay,
        )

    # -- training ---------------------------------------------------------------------------------

    def _stages(self, fit: ICEDFit) -> list[Stage]:
        if fit.earlier is not None:
            return [self._round_stage(fit)]
        return [
            *self._decoder_stage(fit),
            *self._warm_up_stage(fit),
            self._round_stage(fit),
        ]

    def _decoder_stage(self, fit: ICEDFit) -> Iterator[Stage]:
        if fit.module.decoder is not None and self._protocol.decoder_epochs:
            step = GradientStep(
                fit.module,
                lambda module, batch: {"reconstruction": module.reconstruct(batch.x)},
                lambda: fit.recipe.make_optimizer(fit.module),
            )
            yield Stage("decoder", step, fit.batches.epoch, self._protocol.decoder_epochs)

    def _warm_up_stage(self, fit: ICEDFit) -> Iterator[Stage]:
        groups = group_by_certainty(fit.table, self._protocol.warm_up_groups)
        phases = warm_up_phases(fit.table, groups, self._protocol.warm_up)
        if phases:
            yield warm_up_stage(
                fit,
                phases,
                self._protocol.warm_up_epochs * count_groups(groups),
                self._protocol.warm_up_batch_size,
                SoftTargets(fit.recipe.balance, fit.features.device),
                partial(
                    GradientStep,
                    fit.module,
                    make_optimizer=lambda: fit.recipe.make_optimizer(fit.module),
                    reset_every_epoch=fit.recipe.reset_optimizer,
                ),
            )

    def _round_stage(self, fit: ICEDFit) -> Stage:
        step = RoundStep(
            fit.state,
            lambda: fit.recipe.make_optimizer(fit.module),
            reset_every_epoch=fit.recipe.reset_optimizer,
        )
        return Stage("train", step, fit.state.epoch_batches, fit.n_epochs)

    def _read_out(self, fit: ICEDFit) -> dict[str, Any]:
        module, table, rounds = fit.module, fit.table, fit.state
        fit.belief = posterior = module.posterior.cpu().numpy()
        unknown = np.flatnonzero(table.annotations_per_instance() == 0)
        if len(unknown):
            posterior[unknown] = class_proba(module, fit.features, unknown)
        prior = module.class_shares.cpu().numpy()
        del module.posterior, module.class_shares
        starved = rounds.inference.starved_class(table, fit.found["observed_posterior_"])
        if starved is not None:
            c, found, expected = starved
            warn_caller(
                f"em='hard' with prior='estimated' finds {found:.0f} instances of class "
                f"{self.classes_[c].item()!r} among the annotated ones, and em='soft' "
                f"{expected:.0f}. Hard EM with an estimated prior makes rare classes rarer. Use "
                "prior='uniform' (as the paper's results suggest) or em='soft', fields of the "
                "protocol",
            )
        for label, n in rounds.few.items():
            inferred = "one instance was" if n else "no instance was"
            made = "it was repeated" if n else "none was synthesised"
            warn_caller(
                f"in the last round {inferred} inferred to be of class {label}, so {made}. The "
                f"column inferred_{label} of history_ has the number of every round; prior and em "
                "of the protocol change how classes are inferred",
                FewCandidatesWarning,
            )
        confusion = rounds.latent.confusion(posterior[rounds.latent.instances])
        return {"confusion_": confusion, "class_prior_": prior, "posterior_": posterior}
