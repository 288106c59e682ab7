"""Methods that are there only where a classifier can do what they do."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper, wraps
from types import MethodType
from typing import Any

__all__ = ["available_where"]


class _Conditional:
    """A method whose look-up raises what a check of the object raises."""

    def __init__(self, function: Callable[..., Any], check: Callable[[Any], object]) -> None:
        self.function, self.check = function, check
        update_wrapper(self, function)  # type: ignore[arg-type]

    def __get__(self, model: Any, owner: Any = None) -> Callable[..., Any]:
        if model is not None:
            self.check(model)
            return MethodType(self.function, model)

        @wraps(self.function)
        def checked(model: Any, *args: Any, **kwargs: Any) -> Any:
            self.check(model)
            return self.function(model, *args, **kwargs)

        return checked


def available_where(check: Callable[[Any], object]) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator for a method that exists only where ``check(model)`` raises no error.

    As `sklearn.utils.metaestimators.available_if`, but the reader gets the sentence of the check,
    which scikit-learn replaces by "has no attribute" and leaves to the cause.

    Parameters
    ----------
    check : function of the object
        Raises AttributeError, with what to do instead, where the method is not available.

    Returns
    -------
    callable
        Decorator of a method.

    Examples
    --------
    >>> def is_open(model):
    ...     if not model.open:
    ...         raise AttributeError("it is shut; open it")
    >>> class Box:
    ...     open = False
    ...     @available_where(is_open)
    ...     def look(self): return "empty"
    >>> hasattr(Box(), "look")
    False
    """
    return lambda function: _Conditional(function, check)
