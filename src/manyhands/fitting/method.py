"""`Method`: the protocol of methods that the shared fit can train.

`BaseCrowdClassifier` has a default for nearly everything here; a method overrides what differs, and
builds its module in `_build_module`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from manyhands.fitting.context import AnyFit
from manyhands.fitting.method_protocol import MethodProtocol
from manyhands.fitting.traits import Traits
from manyhands.nn import CrowdModule
from manyhands.training import BestState, Callback, History, Stage
from manyhands.typing import AnyArray, FloatArray


class Method(Protocol):
    """A classifier whose network `manyhands.fitting.run` trains.

    The parameters and the fitted attributes are described in `BaseCrowdClassifier`, and so are the
    hooks, where each has its default.
    """

    @property
    def _traits(self) -> Traits:
        """What the method is and can do."""

    @property
    def _protocol(self) -> MethodProtocol:
        """The parameter ``protocol``, or the method's defaults."""

    # Parameters.
    max_epochs: int | str
    batch_size: int
    lr: float
    weight_decay: float
    class_balance: Any
    scaling: str | None
    device: Any
    random_state: Any
    verbose: int
    validation: Any
    checkpoint: str | Path | None
    callbacks: Sequence[Callback] | None
    decision: Any

    # What a fit finds.
    classes_: AnyArray
    annotators_: AnyArray
    n_annotators_: int
    input_shape_: Any
    module_: Any
    history_: History
    n_epochs_: int
    best_epoch_: int
    best_stage_: str
    confusion_: FloatArray
    pooled_confusion_: FloatArray
    annotators_seen_: AnyArray

    def get_params(self, deep: bool = ...) -> dict[str, Any]:
        """Return the parameters by name."""

    def set_params(self, **params: Any) -> Any:
        """Set parameters."""

    def _validate_params(self) -> None:
        """Check each parameter by itself."""

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of every true class, shape (n_samples, n_classes)."""

    # Parameters as they are used.
    @property
    def _network(self) -> Any: ...

    # The hooks, in the order in which a fit calls them.
    _build_module: Callable[..., CrowdModule]
    """Build the module from a scaled classifier and the shape of an instance."""

    def _prepare(self, fit: AnyFit) -> Any:
        """Make the method's own state for a fit, which is then ``fit.state``."""

    def _stages(self, fit: AnyFit) -> list[Stage]:
        """Return the phases of training, with their steps, batches and numbers of epochs."""

    def _callbacks(self, fit: AnyFit) -> tuple[list[Callback], BestState | None]:
        """Return the callbacks in calling order, and the one that keeps the best state."""

    def _read_out(self, fit: AnyFit) -> dict[str, Any]:
        """Return the fitted attributes by name, read off the trained network."""
