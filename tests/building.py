"""Classifiers from flat names, as rows of experiments and saved folders have them."""

from manyhands.fitting.method_protocol import from_flat


def built(kind, *args, **parameters):
    """Make a classifier; fields of its protocol may stand among the parameters."""
    return kind(*args, **from_flat(kind, parameters))
