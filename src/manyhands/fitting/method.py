"""`Method`: what the shared fit asks of a method, all in one place.

`BaseCrowdClassifier` has a default for nearly everything here; a method of its own overrides what
is different, and builds its module in `_build_module`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from manyhands.annotations import AnnotationTable
from manyhands.fitting.context import AnyFit
from manyhands.nn import CrowdModule
from manyhands.training import BestState, Callback, History, Stage
from manyhands.typing import AnyArray, FloatArray


class Method(Protocol):
    """A classifier whose network `manyhands.fitting.run` trains.

    The parameters and the fitted attributes are described in `BaseCrowdClassifier`, and so are the
    hooks, where each has its default.
    """

    # What a method says of itself.
    _fitted_arrays: ClassVar[Sequence[str]]
    _shrinks_confusions: ClassVar[bool]
    _start_refusal: ClassVar[str | None]
    _devices_refusal: ClassVar[str | None]
    _validates_last_stage_only: ClassVar[bool]
    _preparatory_stages: ClassVar[Sequence[str]]
    _length_refusal: ClassVar[str | None]
    _epochs_are_rounds: ClassVar[bool]
    _pilots: ClassVar[bool]

    # Parameters.
    max_epochs: int | str
    batch_size: int
    lr: float
    weight_decay: float
    reset_optimizer: bool
    class_balance: Any
    scaling: str | None
    device: Any
    random_state: Any
    verbose: int
    validation: Any
    monitor: str
    patience: int | None
    checkpoint: str | Path | None
    callbacks: Sequence[Callback] | None

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
    heard_: AnyArray

    def get_params(self, deep: bool = ...) -> dict[str, Any]:
        """Parameters by name."""

    def set_params(self, **params: Any) -> Any:
        """Set parameters."""

    def _validate_params(self) -> None:
        """Check each parameter by itself."""

    # Parameters as they are used.
    @property
    def _title(self) -> str: ...

    @property
    def _network(self) -> Any: ...

    @property
    def _rule(self) -> Any: ...

    @property
    def _scales(self) -> tuple[float, ...]: ...

    # The course of a fit, in its order.
    def _balanced(self, table: AnnotationTable, rng: np.random.Generator) -> AnnotationTable: ...

    _build_module: Callable[..., CrowdModule]

    def _prepare(self, fit: AnyFit) -> Any: ...

    def _stages(self, fit: AnyFit) -> list[Stage]: ...

    def _callbacks(self, fit: AnyFit) -> tuple[list[Callback], BestState | None]: ...

    def _specification(self, fit: AnyFit) -> dict[str, str]: ...

    def _read_out(self, fit: AnyFit) -> dict[str, Any]: ...
