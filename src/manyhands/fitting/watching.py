"""Gold labels that a fit is watched by, and that it never learns from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, init=False, eq=False)
class Watch:
    """Gold labels by which the history of a fit tells how it goes: ``fit(X, y, watch=...)``.

    The training does not change: neither its random numbers nor which epoch is kept, nor what its
    checkpoints can be resumed by. What is seen of a test set in this way is for curves and oracles.

    Parameters
    ----------
    y_train : array of shape (n_samples,), optional
        True classes of the instances fitted on. Methods that add or infer annotations compare
        these with them; the others ignore them.
    **sets : (X, y_gold)
        Instances with gold labels, by name. The history gets ``<name>_accuracy`` and
        ``<name>_macro_f1`` for each, unless its instances have another shape than those fitted on.

    Examples
    --------
    >>> from manyhands import CoNALClassifier, load_demo
    >>> from manyhands.fitting import Watch
    >>> demo = load_demo()
    >>> model = CoNALClassifier(max_epochs=2, random_state=0)
    >>> watch = Watch(test=(demo.X_test, demo.y_test))
    >>> model = model.fit(demo.X_train, demo.annotations, watch=watch)
    >>> len(model.history_.column("test_accuracy"))
    2
    """

    y_train: Any
    sets: Mapping[str, tuple[Any, Any]]

    def __init__(self, y_train: Any = None, **sets: tuple[Any, Any]) -> None:
        object.__setattr__(self, "y_train", y_train)
        object.__setattr__(self, "sets", sets)
