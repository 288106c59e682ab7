"""Encoders of texts and images as features: scikit-learn transformers that download nothing."""

from manyhands._lazy import attach_stub

# scikit-learn's models are imported with the encoder that needs them, not with what reads inputs.
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
