"""Graph completion: predict the annotations nobody gave, from the graph of those given.

.. [1] R. van den Berg, T. N. Kipf and M. Welling. Graph convolutional matrix completion. 2017.
   https://arxiv.org/abs/1706.02263
"""

from manyhands.classifiers.graph_completion.completer import GraphCompleter

__all__ = ["GraphCompleter"]
