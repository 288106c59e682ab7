"""Gold labels for monitoring a fit, which never learns from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, init=False, eq=False)
class Watch:
    """Gold labels for metrics in the history of a fit: ``fit(X, y, watch=...)``.

    They do not change the training: neither its random numbers, nor the epoch that is kept, nor
    which runs can resume its checkpoints. Use metrics on a test set only for curves and oracles.

    Parameters
    ----------
    y_train : array of shape (n_samples,), optional
        True classes of the training instances. Methods that add or infer annotations compare these
        annotations with them; other methods ignore them.
    **sets : (X, y_gold)
        Instances with gold labels, by name. The history gets ``<name>_accuracy`` and
        ``<name>_macro_f1`` for each, unless the shape of its instances differs from the training
        instances' shape.

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
