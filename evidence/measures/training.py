"""Measures of training: where a model started, and when it should have stopped."""

from __future__ import annotations

from typing import Any

from scipy.stats import spearmanr
from sklearn.base import clone

from evidence.data.sets import Data
from manyhands.exceptions import AnnotationError
from manyhands.metrics import accuracy

HOLDOUT = 0.1
"""Fraction of the annotations that `stopping_rule` and `watchdog` hold out."""


def held_out_likelihood(model: Any, fraction: float) -> Any:
    """Let the likelihood of held-out annotations choose a model's epoch or round, in place.

    Parameters
    ----------
    model : classifier with ``validation``
    fraction : float
        Of the annotations.

    Returns
    -------
    The model
    """
    monitor = {"monitor": "likelihood"} if "monitor" in model.get_params(deep=False) else {}
    return model.set_params(validation=fraction, **monitor)


def stopping_rule(model: Any, data: Data) -> dict[str, float]:
    """Measure how well the likelihood of held-out annotations chooses a round of self-training.

    The model is fitted again, with a tenth of the annotations held out.

    Parameters
    ----------
    model : SelfTrainingCrowdClassifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``stopping_rank_correlation``: Spearman's correlation, over the rounds, of the likelihood
        with test accuracy (0 if either never changes). Test accuracies of that fit:
        ``stopping_accuracy`` (chosen round), ``stopping_last_accuracy`` (last round) and
        ``stopping_oracle_accuracy`` (best round on test). ``stopping_round``: the chosen round.

    Raises
    ------
    AnnotationError
        If the data have no test part.
    """
    from manyhands.fitting import Watch

    if data.y_test is None:
        raise AnnotationError(
            "y_test is None, so rounds cannot be compared; use data with a test part"
        )
    again = held_out_likelihood(clone(model), HOLDOUT)
    watch = Watch(test=(data.X_test, data.y_test))
    again.fit(data.X_train, data.annotations, watch=watch)
    found = again.history_.column("test_accuracy")
    likelihood = -again.history_.column("validation_nll")
    moves = len(set(found)) > 1 and len(set(likelihood)) > 1
    return {
        "stopping_rank_correlation": float(spearmanr(likelihood, found)[0]) if moves else 0.0,
        "stopping_accuracy": float(found[again.best_round_]),
        "stopping_last_accuracy": float(found[-1]),
        "stopping_oracle_accuracy": float(found.max()),
        "stopping_round": float(again.best_round_),
    }


def start_accuracy(model: Any, data: Data) -> dict[str, float]:
    """Measure the classifier that another one starts from, and the gain over it.

    Parameters
    ----------
    model : classifier with ``pretrainer_``
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        ``start_accuracy``, the test accuracy of the start; ``gain_on_start``, the model's test
        accuracy less that of the start.

    Raises
    ------
    AnnotationError
        If the model has no start, or the data have no test part.
    """
    start, own = _start_and_own(model, data)
    return {"start_accuracy": start, "gain_on_start": own - start}


def watchdog(model: Any, data: Data) -> dict[str, float]:
    """Compare the model that held-out annotations choose with the start of the same fit.

    The model is fitted again, with a tenth of the annotations held out.

    Parameters
    ----------
    model : CrowdInGClassifier
    data : Data
        With a test part.

    Returns
    -------
    dict of str to float
        Test accuracies of that fit: ``watchdog_accuracy`` (chosen model),
        ``watchdog_start_accuracy``, ``watchdog_last_accuracy`` (last epoch) and
        ``watchdog_oracle_accuracy`` (the start or an adversarial epoch, whichever is best on test).
        ``watchdog_gain``: ``watchdog_accuracy`` less ``watchdog_start_accuracy``.

    Raises
    ------
    AnnotationError
        If the model has no start, or the data have no test part.
    """
    from manyhands.fitting import Watch

    # Refuse what cannot be measured before paying for a fit.
    _start_and_own(model, data)
    again = held_out_likelihood(clone(model), HOLDOUT)
    watch = Watch(test=(data.X_test, data.y_test))
    again.fit(data.X_train, data.annotations, watch=watch)
    start, own = _start_and_own(again, data)
    epochs = again.history_.column("test_accuracy", "adversarial")
    return {
        "watchdog_accuracy": own,
        "watchdog_start_accuracy": start,
        "watchdog_last_accuracy": float(epochs[-1]),
        "watchdog_oracle_accuracy": float(max(start, epochs.max())),
        "watchdog_gain": own - start,
    }


def _start_and_own(model: Any, data: Data) -> tuple[float, float]:
    """Return the test accuracy of a model's start, and of the model itself."""
    if data.y_test is None:
        raise AnnotationError("y_test is None, so accuracy is unknown; use data with a test part")
    if not hasattr(model, "pretrainer_"):
        raise AnnotationError(
            f"{type(model).__name__} has no pretrainer_; leave this measure out of its row"
        )
    start, own = (
        accuracy(data.y_test, each.predict(data.X_test)) for each in (model.pretrainer_, model)
    )
    return start, own
