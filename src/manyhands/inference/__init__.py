"""Truth inference: from annotations alone to posteriors over the true classes (no torch).

A method is a file and a line of ``__init__.pyi``: to export it there registers it, and exports it
from `manyhands` too. What compares methods is in `manyhands.inference.comparison`.
"""

from manyhands._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
