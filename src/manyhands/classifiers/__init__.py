"""Crowd classifiers: scikit-learn classifiers whose target is annotations.

A method is a file, or a package if it has several parts, and a line in ``__init__.pyi``, which
registers it and exports it from `manyhands` too.
"""

from manyhands._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
