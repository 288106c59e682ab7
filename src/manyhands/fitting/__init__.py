"""Shared code of crowd classifiers: fitting, prediction, and saving."""

from manyhands._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
