"""`MethodProtocol`: the settings of a method that published experiments differ in (no torch).

A classifier's constructor has the parameters that users adapt to their data. Settings that only
distinguish a paper from its released code, an ablation or a numerical detail are fields of
``protocol``, a frozen value. Files, rows of experiments and ``--set`` of the command line name both
kinds side by side; `flat_parameters` and `from_flat` translate.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

from sklearn.utils._param_validation import (
    Interval,
    StrOptions,
    validate_parameter_constraints,
)

from manyhands.exceptions import AnnotationError

PREFIX = "protocol__"
"""Prefix of the fields in ``get_params`` and ``set_params``."""


@dataclass(frozen=True, kw_only=True, repr=False)
class MethodProtocol:
    """Settings that few users change, or in which published experiments differ.

    A method with more of them has a class of its own, derived from this one. Values are checked
    when they are given, and never change: ``set_params(protocol__monitor="likelihood")`` puts a new
    protocol in place of the old one.

    Parameters
    ----------
    reset_optimizer : bool, default=False
        Make a new Adam every epoch, as the code released with CoNAL and CrowdInG does.
    monitor : {"agreement", "likelihood"}, default="agreement"
        What is held out if ``validation`` is a fraction. "agreement": whole instances; the last
        epoch is kept, unless the epoch with the highest `vote_agreement` is better by a paired z >
        1. "likelihood": single annotations; the epoch under which they are most likely is kept.
    patience : int or None, default=None
        With ``validation``: stop after this many epochs without a new best one.

    Raises
    ------
    InvalidParameterError
        If a value is none that the field accepts. It is a ValueError.
    TypeError
        If there is no such field.

    Examples
    --------
    >>> from manyhands import CrowdLayerClassifier
    >>> model = CrowdLayerClassifier(validation=0.2).set_params(protocol__monitor="likelihood")
    >>> model.protocol.monitor
    'likelihood'
    """

    _constraints: ClassVar[dict[str, list[Any]]] = {
        "reset_optimizer": ["boolean"],
        "monitor": [StrOptions({"agreement", "likelihood"})],
        "patience": [None, Interval(Integral, 1, None, closed="left")],
    }

    reset_optimizer: bool = False
    monitor: str = "agreement"
    patience: int | None = None

    def __new__(cls, **values: Any) -> Self:
        """Raise an error for unknown fields that names the existing ones."""
        unknown = cls._unknown(values)
        if unknown is not None:
            raise TypeError(unknown)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        validate_parameter_constraints(self._constraints, self.values(), type(self).__name__)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """Return the fields and their defaults."""
        return {each.name: each.default for each in fields(cls) if each.init}

    def values(self) -> dict[str, Any]:
        """Return the fields and their values."""
        return {name: getattr(self, name) for name in self.defaults()}

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """Return a protocol with other values for some fields.

        Raises
        ------
        AnnotationError
            If there is no such field.
        InvalidParameterError
            If a value is none that the field accepts.
        """
        unknown = self._unknown(values)
        if unknown is not None:
            raise AnnotationError(unknown)
        return replace(self, **values)

    @classmethod
    def _unknown(cls, names: Iterable[str]) -> str | None:
        known = cls.defaults()
        for name in names:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                hint = f" (did you mean {close[0]}?)" if close else ""
                return f"{cls.__name__} has no field {name!r}{hint}; it has {', '.join(known)}"
        return None

    def __repr__(self) -> str:
        defaults = self.defaults()
        changed = {name: value for name, value in self.values().items() if value != defaults[name]}
        inside = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        return f"{type(self).__name__}({inside})"


@dataclass(frozen=True, kw_only=True, repr=False)
class NoiseProtocol(MethodProtocol):
    """Protocol of methods whose network has layers for the annotators' noise.

    Parameters
    ----------
    reset_optimizer, monitor, patience
        See `manyhands.fitting.MethodProtocol`.
    noise_lr : float or None, default=1e-2
        Learning rate of all parameters except the classifier's, without weight decay: layers that
        start at a multiple of the identity have further to go. None trains everything at ``lr``
        with ``weight_decay``, as the papers do.
    """

    _constraints = {
        **MethodProtocol._constraints,
        "noise_lr": [None, Interval(Real, 0, None, closed="neither")],
    }

    noise_lr: float | None = 1e-2


@dataclass(frozen=True, kw_only=True, repr=False)
class StartProtocol(NoiseProtocol):
    """Protocol of methods that try several initial scales of their layers after a class collapse.

    Parameters
    ----------
    reset_optimizer, monitor, patience, noise_lr
        See `manyhands.fitting.method_protocol.NoiseProtocol`.
    init_scale : float or "auto", default="auto"
        Initial multiple of the identity in the layers. With "auto", a fit with class collapse (an
        annotated class is predicted for no training instance) is repeated from a larger multiple.
    """

    _constraints = {
        **NoiseProtocol._constraints,
        "init_scale": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
    }

    init_scale: float | str = "auto"


P = TypeVar("P", bound=MethodProtocol, covariant=True)


class ProtocolOf(Generic[P]):
    """Descriptor that returns a classifier's ``protocol``, or the method's default protocol.

    ``_protocol = ProtocolOf(CoNALProtocol)`` in the class of a method says which class that is, and
    ``self._protocol`` is a `CoNALProtocol`.

    Raises
    ------
    AnnotationError
        If ``protocol`` is another method's, or none at all.
    """

    def __init__(self, kind: type[P]) -> None:
        self.kind = kind
        self._default = kind()

    @overload
    def __get__(self, model: None, owner: type) -> Self: ...
    @overload
    def __get__(self, model: Any, owner: type) -> P: ...

    def __get__(self, model: Any, owner: type) -> Self | P:
        if model is None:
            return self
        given = model.protocol
        if given is None:
            return self._default
        if type(given) is not self.kind:
            raise AnnotationError(
                f"protocol={given!r} does not fit {owner.__name__}; give "
                f"{self.kind.__name__}(...), or None for the defaults"
            )
        return given


class TakesProtocol:
    """Mixin for estimators with the parameter ``protocol``, left of `sklearn.base.BaseEstimator`.

    The fields are listed by ``get_params()`` and set by ``set_params(protocol__<field>=...)``,
    whether a protocol was given or not, so that a grid may name them.
    """

    protocol: MethodProtocol | None

    _protocol: ClassVar[ProtocolOf[MethodProtocol]] = ProtocolOf(MethodProtocol)

    def __new__(cls, *args: Any, **parameters: Any) -> Self:
        """Raise an error for a field of the protocol among the arguments, and name its place."""
        kind = cls._protocol.kind
        known = kind.defaults()
        for name in parameters:
            if name in known:
                raise TypeError(
                    f"{cls.__name__}() has no parameter {name!r}: it is a field of the protocol; "
                    f"give protocol={kind.__name__}({name}=...), or set_params({PREFIX}{name}=...)"
                )
        return super().__new__(cls)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; if ``deep``, also the fields of the protocol.

        Parameters
        ----------
        deep : bool, default=True

        Returns
        -------
        dict
        """
        parameters: dict[str, Any] = super().get_params(deep=deep)  # type: ignore[misc]
        kind, given = type(self)._protocol.kind, self.protocol
        if deep and (given is None or type(given) is kind):  # Another one is refused by the fit.
            fields = self._protocol.values()
            parameters |= {PREFIX + name: value for name, value in fields.items()}
        return parameters

    def set_params(self, **params: Any) -> Self:
        """Set parameters; a field of the protocol puts a new one in place of the old one.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If there is no such parameter or field, or a field does not accept its value.
        """
        fields = {
            name.removeprefix(PREFIX): params.pop(name)
            for name in list(params)
            if name.startswith(PREFIX)
        }
        super().set_params(**params)  # type: ignore[misc]
        if fields:
            made = self._protocol.with_values(fields)
            if made != self._protocol:
                self.protocol = made
        return self


def protocol_class(kind: Any) -> type[MethodProtocol] | None:
    """Return the class of the protocols of a class of estimators; None if they have none."""
    found = getattr(kind, "_protocol", None)
    return found.kind if isinstance(found, ProtocolOf) else None


# -- flat names: how files, rows of experiments and the command line name parameters ---------------


def flat_defaults(kind: Any) -> dict[str, Any]:
    """Return the names and defaults of what can be set on a class, with the fields of its protocol.

    Parameters
    ----------
    kind : class, or any callable

    Returns
    -------
    dict
        Without ``protocol`` itself. What must be given has `inspect.Parameter.empty`.
    """
    parameters = inspect.signature(kind).parameters.values()
    protocol = protocol_class(kind)
    given = {each.name: each.default for each in parameters}
    if protocol is None:
        return given
    del given["protocol"]
    return given | protocol.defaults()


def flat_parameters(estimator: Any) -> dict[str, Any]:
    """Return an estimator's parameters by name, the fields of its protocol beside the others."""
    parameters: dict[str, Any] = estimator.get_params(deep=False)
    if protocol_class(type(estimator)) is None:
        return parameters
    del parameters["protocol"]
    return parameters | estimator._protocol.values()


def from_flat(kind: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a class from flat names; the inverse of `flat_parameters`.

    Fields beside a ``protocol`` replace those in it; where all have their defaults, there is none.

    Raises
    ------
    InvalidParameterError
        If a field of the protocol does not accept its value.
    """
    protocol = protocol_class(kind)
    if protocol is None:
        return dict(parameters)
    known = protocol.defaults()
    own = {name: value for name, value in parameters.items() if name not in known}
    moved = {name: value for name, value in parameters.items() if name in known}
    default = protocol()
    made = (own.get("protocol") or default).with_values(moved)
    return own if made == default else own | {"protocol": made}


def settable(kind: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``set_params`` from flat names."""
    protocol = protocol_class(kind)
    known = {} if protocol is None else protocol.defaults()
    return {PREFIX * (name in known) + name: value for name, value in parameters.items()}
