"""Evidence: rows of experiments, records of their runs, and pages made from records alone.

Names are imported on first use, so aggregating labels needs no deep-learning stack.
"""

from manyhands._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
