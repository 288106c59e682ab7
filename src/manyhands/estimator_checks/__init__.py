"""The contract that every crowd classifier fulfils, as checks to run on your own classifier.

Examples
--------
In a test file::

    from manyhands.estimator_checks import parametrize_with_crowd_checks

    @parametrize_with_crowd_checks([MyClassifier()])
    def test_contract(estimator, check):
        check(estimator)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from manyhands.estimator_checks.inputs import *
from manyhands.estimator_checks.problem import make_crowd_problem
from manyhands.estimator_checks.results import *
from manyhands.estimator_checks.state import *
from manyhands.fitting import BaseCrowdClassifier

__all__ = [
    "check_crowd_estimator",
    "crowd_checks",
    "make_crowd_problem",
    "parametrize_with_crowd_checks",
]

Check = Callable[[BaseCrowdClassifier], None]


def crowd_checks(estimator: BaseCrowdClassifier) -> Iterator[tuple[str, Check]]:
    """Yield (name, check) for every check of `inputs`, `results` and `state` that applies.

    A class is exempt from a check that its ``_crowd_check_exemptions`` names with a reason.
    """
    exempt = getattr(estimator, "_crowd_check_exemptions", {})
    for name, check in globals().items():
        if name.startswith("check_") and name != "check_crowd_estimator" and name not in exempt:
            yield name, check


def check_crowd_estimator(estimator: BaseCrowdClassifier) -> None:
    """Run every check that applies to an estimator.

    Raises
    ------
    AssertionError
        By the first check that fails.
    """
    for _, check in crowd_checks(estimator):
        check(estimator)


def parametrize_with_crowd_checks(estimators: Iterable[BaseCrowdClassifier]) -> Any:
    """Parametrise a pytest function ``test(estimator, check)`` over estimators and checks."""
    import pytest

    cases = [
        pytest.param(estimator, check, id=f"{type(estimator).__name__}-{name}")
        for estimator in estimators
        for name, check in crowd_checks(estimator)
    ]
    return pytest.mark.parametrize(("estimator", "check"), cases)
