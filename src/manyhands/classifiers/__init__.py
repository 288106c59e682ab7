"""Crowd classifiers: scikit-learn classifiers whose target is annotations.

A method is a file, or a package where it has several parts, and a line of ``__init__.pyi``: to
export it there registers it, and exports it from `manyhands` too.
"""

from manyhands._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
