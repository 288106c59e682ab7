"""Ranking: the strengths of items, their order and its uncertainty, from pairwise comparisons.

Each method is a file and a line of ``__init__.pyi``. Exporting a method there registers it and also
exports it from `manyhands`.
"""

from manyhands._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
