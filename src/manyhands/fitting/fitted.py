"""`Fitted`: the result of a fit as a value, and functions that copy it to an estimator (no torch).

An estimator is written to at the end of a fit, here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sklearn.base import BaseEstimator

from manyhands.exceptions import warn_caller
from manyhands.training.progress import History

if TYPE_CHECKING:  # It needs torch.
    from manyhands.nn import CrowdModule

E = TypeVar("E", bound=BaseEstimator)

SET_WITH_FEATURES = frozenset({"n_features_in_", "feature_names_in_"})
"""Fitted attributes that scikit-learn sets while it validates X."""

FORMER_ATTRIBUTES = {"heard_": "annotators_seen_", "parity_": "relative_informedness_"}
"""Fitted attributes by the names of before version 0.1.0, and the present names."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """The result of a fit.

    Attributes
    ----------
    module : CrowdModule or None
        The trained network, in evaluation mode; None if a scikit-learn classifier was fitted.
    history : History
    found : mapping of str to object
        The method's fitted attributes by name.
    n_epochs : int or None
        As ``n_epochs_``.
    best_epoch, best_stage : int, str, or None
        With ``validation``: the epoch that was kept, and its stage.
    """

    module: CrowdModule | None
    history: History
    found: Mapping[str, Any] = field(default_factory=dict)
    n_epochs: int | None = None
    best_epoch: int | None = None
    best_stage: str | None = None

    def attributes(self) -> dict[str, Any]:
        """Return all of it, by the names of an estimator's fitted attributes."""
        named = {
            "module_": self.module,
            "n_epochs_": self.n_epochs,
            "best_epoch_": self.best_epoch,
            "best_stage_": self.best_stage,
        }
        known = {name: value for name, value in named.items() if value is not None}
        return {**self.found, "history_": self.history, **known}


def fitted_attributes(model: BaseEstimator) -> dict[str, Any]:
    """Return what a fit has found, by the names of the attributes, which end in an underscore."""
    return {name: value for name, value in model.__dict__.items() if name.endswith("_")}


def forget_fit(model: BaseEstimator, *, keep: Collection[str] = ()) -> None:
    """Delete the fitted attributes of an earlier fit, except those to ``keep``."""
    for name in fitted_attributes(model).keys() - set(keep):
        delattr(model, name)


def take_over(model: BaseEstimator, attributes: Mapping[str, Any]) -> None:
    """Set fitted attributes by name."""
    for name, value in attributes.items():
        setattr(model, name, value)


def with_present_names(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return fitted attributes that an earlier version saved, by their present names.

    Parameters
    ----------
    attributes : mapping of str to object
        May have the names in `FORMER_ATTRIBUTES`.

    Returns
    -------
    dict
    """
    found = {FORMER_ATTRIBUTES.get(name, name): value for name, value in attributes.items()}
    if "parity_" in attributes:  # A stack's: the history and the doubts had the word, too.
        columns = {"parity": "relative_informedness"}
        found["history_"] = History(
            {columns.get(name, name): value for name, value in row.items()}
            for row in found["history_"]
        )
        codes = {"low-parity": "low-informedness"}
        doubts = found.get("doubts_", {})
        found["doubts_"] = {codes.get(code, code): text for code, text in doubts.items()}
    return found


def former_attribute(former: str) -> Any:
    """Return a property that reads a fitted attribute by its former name, with a warning."""
    present = FORMER_ATTRIBUTES[former]

    def read(model: BaseEstimator) -> Any:
        value = getattr(model, present)
        warn_caller(
            f"{type(model).__name__}.{former} is now called {present}, and the former name will "
            f"be removed; write {present}",
            FutureWarning,
        )
        return value

    return property(read, doc=f"Former name of ``{present}``.")


def become(model: BaseEstimator, fitted: Fitted) -> None:
    """Replace the fitted attributes of an earlier fit by those of a new one."""
    forget_fit(model)
    take_over(model, fitted.attributes())


def twin(model: E, **changed: Any) -> E:
    """Make an unfitted estimator with a model's parameters, which are not copied.

    Parameters
    ----------
    model : estimator
    **changed : object
        Other values of those parameters that the model has, also of fields of its protocol.

    Returns
    -------
    estimator
    """
    own = model.get_params(deep=False)
    again = type(model)(**{name: changed.get(name, value) for name, value in own.items()})
    within = (changed.keys() - own.keys()) & model.get_params().keys()
    return again.set_params(**{name: changed[name] for name in within}) if within else again


def fitted_twin(model: E) -> E:
    """Return another estimator that shares a model's parameters and fitted attributes."""
    again, parameters = twin(model), model.get_params(deep=False)
    take_over(again, {k: value for k, value in vars(model).items() if k not in parameters})
    return again
