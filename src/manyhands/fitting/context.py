"""The context of one fit, and gold labels for the metrics in its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.annotations.target import in_order_of_rows
from manyhands.training.progress import History
from manyhands.typing import FloatArray, Instances, IntArray

if TYPE_CHECKING:
    from manyhands.fitting.recipe import CrowdData, Recipe
    from manyhands.training import AnnotationBatches, Features

Module = TypeVar("Module")
State = TypeVar("State")


@dataclass(eq=False)
class Followed:
    """Instances whose predicted classes are kept after every epoch: ``Watch(followed=...)``.

    Parameters
    ----------
    X : as in ``predict``
    codes : list of integer arrays of shape (n,)
        Filled by the fit: codes of the most probable classes (whatever ``decision`` says) after
        each epoch, of every stage and of every network that the fit trains.
    """

    X: Instances | None
    codes: list[IntArray] = field(default_factory=list)


@dataclass(frozen=True, init=False, eq=False)
class Watch:
    """Gold labels for metrics in the history of a fit: ``fit(X, y, watch=...)``.

    They do not change the training: neither its random numbers, nor the epoch that is kept, nor
    which runs can resume its checkpoints. Use metrics on a test set only for curves and oracles.

    Parameters
    ----------
    y_train : array of shape (n_samples,), optional
        True classes of the training instances; a pandas Series is matched with X by its index.
        Methods that add or infer annotations compare these annotations with them; other methods
        ignore them.
    **sets : (X, y_gold)
        Instances with gold labels, by name. The history gets ``<name>_accuracy`` and
        ``<name>_macro_f1`` for each, unless the shape of its instances differs from the training
        instances' shape.

    Examples
    --------
    >>> from manyhands import CoNALClassifier, load_demo
    >>> from manyhands.fitting import Watch
    >>> demo = load_demo()
    >>> model = CoNALClassifier(max_epochs=2, random_state=0)
    >>> watch = Watch(test=(demo.X_test, demo.y_test))
    >>> model = model.fit(demo.X_train, demo.annotations, watch=watch)
    >>> len(model.history_.column("test_accuracy"))
    2
    """

    y_train: Any
    followed: Followed | None
    sets: Mapping[str, tuple[Any, Any]]

    def __init__(
        self, y_train: Any = None, *, followed: Followed | None = None, **sets: tuple[Any, Any]
    ) -> None:
        object.__setattr__(self, "y_train", y_train)
        object.__setattr__(self, "followed", followed)
        object.__setattr__(self, "sets", sets)

    def over(self, X: Instances, n_rows: int) -> Watch:
        """Return a copy with ``y_train`` in the order of the rows of X, if it has one per row."""
        y = self.y_train
        if y is None or isinstance(y, Mapping) or len(y) != n_rows:
            return self
        y = in_order_of_rows(X, y, name="y_train")
        return Watch(y, followed=self.followed, **self.sets)


@dataclass(frozen=True, eq=False)
class Earlier:
    """The fit that a partial fit continues.

    Attributes
    ----------
    model : object
        Object with its fitted attributes.
    share : float
        Share of all annotations that are new, from 0 to 1.
    """

    model: Any
    share: float

    def epochs(self, n: int) -> int:
        """Return the number of epochs of a partial fit, given n of a whole fit.

        The cost is half that of n epochs on the new annotations alone, because the weights are
        already trained.
        """
        return max(1, ceil(n * self.share / 2))


@dataclass(eq=False)
class Fit(Generic[Module, State]):
    """The data and state of one fit. Every hook of a method receives it.

    It exists only during the fit. A method keeps the state that its hooks share in ``state``, and
    future fitted attributes in ``found``: nothing is set on the estimator while it fits.

    Attributes
    ----------
    recipe : Recipe
        How the network is trained.
    data : CrowdData
        The training data; ``features``, ``given``, ``whole`` and ``watch`` are shortcuts to it.
    table : AnnotationTable
        The training part of ``whole``: all but ``held``.
    held : AnnotationTable or None
        The part that ``validation`` holds out, if it is a fraction: all annotations of some
        instances or, with the protocol's ``monitor="likelihood"``, single ones.
    batches : AnnotationBatches
        Minibatches of ``table``, balanced by ``class_balance``.
    rng : Generator
    n_epochs : int
        Number of epochs: ``max_epochs``, or the number chosen for "auto".
    earlier : Earlier or None
        In a partial fit: the fit that it continues.
    history : History
    facts : dict of str to float
        Further entries of the next row of the history. Values persist until replaced.
    found : dict of str to object
        Fitted attributes by name, as far as they are found before the end, such as the
        ``aggregator_``; the ``class_prior_`` among them is the one that predictions go by.
    belief : array of shape (n_instances, n_classes) or None
        Class probabilities of the annotated training instances, used to pool the annotators'
        confusion matrices. None: those of the network.
    epoch : int
        The current epoch of the stage, from 0.
    module : CrowdModule
        The result of ``_build_module``.
    state : object
        The result of ``_prepare``.
    """

    recipe: Recipe
    data: CrowdData
    table: AnnotationTable
    held: AnnotationTable | None
    batches: AnnotationBatches
    rng: np.random.Generator
    n_epochs: int
    earlier: Earlier | None = None
    history: History = field(default_factory=History)
    facts: dict[str, float] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)
    belief: FloatArray | None = None
    epoch: int = 0
    module: Module = field(init=False)
    state: State = field(init=False)

    @property
    def features(self) -> Features:
        """The features of the data."""
        return self.data.features

    @property
    def given(self) -> AnnotationTable:
        """The annotations as given to ``fit``."""
        return self.data.given

    @property
    def whole(self) -> AnnotationTable:
        """The annotations with a positive weight."""
        return self.data.whole

    @property
    def watch(self) -> Watch:
        """Gold labels for the history; training must not use them."""
        return self.data.watch


AnyFit = Fit[Any, Any]
