"""Jobs of the command line: aggregate, fit, predict, report, and the demo.

Names are imported on first use, so that aggregating labels needs no deep-learning stack.
"""

from manyhands._lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
