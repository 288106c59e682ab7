"""A fit as values: `Recipe` and `CrowdData` go into `manyhands.fitting.run`, `Fitted` comes out.

All three are frozen (`Fitted` stands in `manyhands.fitting.fitted`). Pilots, restarts and partial
fits are functions of them: they make other recipes and data by `dataclasses.replace`, and choose
among what comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from manyhands.annotations import AnnotationTable
from manyhands.annotations.target import Target
from manyhands.exceptions import AnnotationError
from manyhands.fitting.context import Watch
from manyhands.fitting.method_protocol import NoiseProtocol
from manyhands.fitting.network import make_adam
from manyhands.fitting.reading import (
    as_target,
    check_leakage,
    check_learnable,
    drop_weightless,
    read_features,
    set_vocabularies,
)
from manyhands.nn import CrowdModule
from manyhands.sampling.class_balance import ClassBalance, make_balance
from manyhands.training import Callback, Features, pick_device
from manyhands.training.seeding import draw_seed
from manyhands.typing import Instances

if TYPE_CHECKING:
    from manyhands.fitting.method import Method


@dataclass(frozen=True, kw_only=True, eq=False)
class Recipe:
    """Settings of one training: the effective shared parameters and protocol of a method.

    Attributes
    ----------
    seed : int
        Drawn from ``random_state``, once per fit: pilots and further starts draw the same numbers.
    max_epochs : int or "auto"
    batch_size : int
    lr, weight_decay : float
        Settings of Adam; with ``noise_lr``, only for the classifier.
    noise_lr : float or None
        Learning rate of all other parameters, without weight decay.
    reset_optimizer : bool
    balance : ClassBalance or None
    decision : str or array
        Decision rule of ``predict``.
    verbose : int
    title : str
        Name on the progress bar.
    validation : None, float or (X, y_gold)
    monitor : {"agreement", "likelihood"}
        Measure that chooses the epoch on a held-out fraction; the likelihood if epochs are rounds.
    patience : int or None
    checkpoint : str, Path or None
    callbacks : sequence of Callback
    init_scale : float or None
        Multiple of the identity at which matrices start, for methods that try several.
    """

    seed: int
    max_epochs: int | str
    batch_size: int
    lr: float
    weight_decay: float
    noise_lr: float | None
    reset_optimizer: bool
    balance: ClassBalance | None
    decision: Any
    verbose: int
    title: str
    validation: Any
    monitor: str
    patience: int | None
    checkpoint: str | Path | None
    callbacks: Sequence[Callback]
    init_scale: float | None = None

    @classmethod
    def of(cls, method: Method) -> Self:
        """Read the parameters of a method, and draw the seed.

        Raises
        ------
        AnnotationError
            If ``class_balance`` is unknown, or changes a loss that the method does not have.
        """
        names = ("max_epochs", "batch_size", "lr", "weight_decay", "verbose", "decision")
        more = ("validation", "checkpoint")
        traits, protocol = method._traits, method._protocol
        balance = make_balance(method.class_balance)
        if balance is not None and balance.focus and traits.focal_refusal is not None:
            raise AnnotationError(f"class_balance={method.class_balance!r} {traits.focal_refusal}")
        return cls(
            seed=draw_seed(method.random_state),
            noise_lr=protocol.noise_lr if isinstance(protocol, NoiseProtocol) else None,
            reset_optimizer=protocol.reset_optimizer,
            patience=protocol.patience,
            balance=balance,
            title=traits.title or type(method).__name__.removesuffix("Classifier"),
            monitor="likelihood" if traits.epochs_are_rounds else protocol.monitor,
            callbacks=tuple(method.callbacks or ()),
            **{name: getattr(method, name) for name in (*names, *more)},
        )

    @property
    def focus(self) -> float:
        """Exponent of the focal factor in the loss."""
        return 0.0 if self.balance is None else self.balance.focus

    def make_optimizer(self, module: CrowdModule) -> torch.optim.Optimizer:
        """Make Adam; with ``noise_lr``, only the classifier keeps ``lr`` and ``weight_decay``."""
        return make_adam(module, self.lr, self.weight_decay, self.noise_lr)


@dataclass(frozen=True, eq=False)
class CrowdData:
    """Training data of a network: read, checked, and matched.

    Attributes
    ----------
    features : Features
    given : AnnotationTable
        The annotations as given to ``fit``, of the rows of the features.
    whole : AnnotationTable
        Those with a positive weight.
    watch : Watch
        Gold labels for the history; training must not use them.
    """

    features: Features
    given: AnnotationTable
    whole: AnnotationTable
    watch: Watch


def read_data(method: Method, X: Instances, y: Target, watch: Watch, *, reset: bool) -> CrowdData:
    """Read the training data of a classifier.

    What an earlier fit has found is discarded from the classifier, which gets the columns of X, the
    shape of an instance, and the vocabularies: scikit-learn's checks, and callbacks, read them
    there.

    Parameters
    ----------
    method : Method
    X, y, watch
        See `BaseCrowdClassifier.fit`.
    reset : bool
        Whether X may have other columns than before; not in a partial fit.

    Returns
    -------
    CrowdData

    Raises
    ------
    AnnotationError
        If X and y do not match, y is empty or has one class, or X is not finite.
    """
    given = as_target(X, y, type(method).__name__)
    whole = drop_weightless(given)
    check_leakage(X, whole)
    watch = watch.over(X, whole.n_instances)
    X = read_features(method, X, reset=reset)
    check_learnable(X, whole)
    set_vocabularies(method, y, whole)
    features = Features(X, pick_device(method.device))
    method.input_shape_ = features.input_shape
    return CrowdData(features, given, whole, watch)
