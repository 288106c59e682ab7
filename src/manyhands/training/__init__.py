"""The epoch loop, its batches and its callbacks. Nothing here depends on a crowd model."""

from manyhands._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
