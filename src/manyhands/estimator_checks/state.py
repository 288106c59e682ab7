"""Checks of the attributes that a fit sets, and that a failed fit sets none."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from manyhands.estimator_checks.problem import make_crowd_problem, quick_clone
from manyhands.fitting import BaseCrowdClassifier
from manyhands.typing import FloatArray


class _Interrupting(torch.utils.data.TensorDataset):
    """A Dataset that simulates Ctrl-C after some items."""

    def __init__(self, X: FloatArray, n_items: int) -> None:
        super().__init__(torch.from_numpy(X.astype(np.float32)))
        self.n_items = n_items

    def __getitem__(self, index: int) -> Any:
        self.n_items -= 1
        if self.n_items < 0:
            raise KeyboardInterrupt
        return tuple(tensor[index] for tensor in self.tensors)


def check_failed_fit_changes_nothing(estimator: BaseCrowdClassifier) -> None:
    """A fit that fails or is interrupted leaves all attributes unchanged."""
    X, A, _ = make_crowd_problem()
    broken = X.copy()
    broken[3, 1] = np.nan
    failures: list[tuple[Any, type[BaseException]]] = [
        (X[:-1], ValueError),
        (broken, ValueError),
        *((_Interrupting(X, n_items), KeyboardInterrupt) for n_items in (1, 40, 90)),
    ]
    for tried in (quick_clone(estimator), quick_clone(estimator).fit(X, A)):
        before = dict(vars(tried))
        for bad_X, kind in failures:
            try:
                tried.fit(bad_X, A[:, :4])
            except kind:
                after = vars(tried)
                assert set(before) == set(after), f"a failed fit: {set(before) ^ set(after)}"
                changed = [name for name in before if before[name] is not after[name]]
                assert not changed, f"a failed fit changed {changed}"
            else:
                raise AssertionError(f"a fit did not raise {kind.__name__}")


def check_fit_leaves_public_attributes_only(estimator: BaseCrowdClassifier) -> None:
    """After fit there are only parameters and names that end, but do not begin, with "_"."""
    X, A, _ = make_crowd_problem()
    for validation in (None, 0.2):
        fitted = quick_clone(estimator, validation=validation).fit(X, A)
        others = set(vars(fitted)) - set(fitted.get_params(deep=False))
        wrong = sorted(name for name in others if name.startswith("_") or name[-1] != "_")
        assert not wrong, f"fit left {wrong}"
