"""How every crowd classifier is fitted: the template, and what methods share of it."""

from manyhands._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
