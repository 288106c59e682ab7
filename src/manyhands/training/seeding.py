"""Seeds of a fit and of estimators within it (no torch)."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state


def draw_seed(random_state: Any) -> int:
    """Draw the seed of one fit from the parameter ``random_state``."""
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def set_random_states(estimator: Any, rng: np.random.Generator) -> Any:
    """Give every unset ``random_state`` within an estimator a seed, and return the estimator."""
    if hasattr(estimator, "get_params"):
        unset = [
            name
            for name, value in sorted(estimator.get_params().items())
            if value is None and (name == "random_state" or name.endswith("__random_state"))
        ]
        estimator.set_params(**{name: int(rng.integers(2**31)) for name in unset})
    return estimator
