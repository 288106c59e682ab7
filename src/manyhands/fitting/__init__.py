"""What crowd classifiers share: one fit, prediction, watching, persistence."""

from manyhands._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
