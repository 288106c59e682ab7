"""Fits from further starts, while classes are lost."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

from sklearn.utils import check_random_state

from manyhands.annotations import AnnotationTable
from manyhands.fitting.classifier import BaseCrowdClassifier
from manyhands.fitting.context import Earlier, Watch
from manyhands.fitting.lost_classes import lost_classes
from manyhands.fitting.pilots import AUTO
from manyhands.fitting.reading import fitted_attributes, forget_fit
from manyhands.training import joined

_LOG = logging.getLogger("manyhands")


class StartsAtIdentity(BaseCrowdClassifier):
    """Base of classifiers whose matrices start at ``init_scale`` times the identity.

    ``init_scale="auto"`` fits from one of `scales` after another while classes are lost: while a
    class with annotations is predicted for no training instance.
    """

    scales: ClassVar[tuple[float, ...]]
    """Starts that "auto" tries."""

    init_scale: float | str

    @property
    def _title(self) -> str:
        """Name on the progress bar; further starts are named."""
        is_further = self.init_scale == AUTO and self._own_scale > self.scales[0]
        return super()._title + (f" from {self._own_scale:g}" if is_further else "")

    @property
    def _own_scale(self) -> float:
        """Where the matrices start in this fit, or have started; the first start before any fit.

        Folders of earlier versions only have the parameter.
        """
        given = self.scales[0] if self.init_scale == AUTO else self.init_scale
        own = getattr(self, "init_scale_", given)
        return cast(float, getattr(self, "_scale", own))

    def _starts(self) -> tuple[float, ...]:
        """Return the starts that "auto" tries with the present parameters."""
        return self.scales

    def _fit(
        self, X: Any, y: Any, watch: Watch, start: BaseCrowdClassifier | Earlier | None
    ) -> AnnotationTable:
        fit = super()._fit

        def fit_from(scale: float) -> AnnotationTable:
            self._scale = scale  # Of this fit, which discards what an earlier one has found.
            table = fit(X, y, watch, start)
            self.init_scale_ = scale
            del self._scale
            return table

        if self.init_scale != AUTO:
            return fit_from(float(self.init_scale))
        if start is None:
            return fewest_lost(self, self._starts(), fit_from, X, watch)
        # The weights are given, by a fitted classifier or the fit that a partial fit goes on from.
        # Those of low rank are added to the start that they were found with.
        before = start.model if isinstance(start, Earlier) else start
        return fit_from(getattr(before, "_own_scale", self.scales[0]))


class _Attempt(NamedTuple):
    """A fit from one start."""

    n_lost: int
    attributes: dict[str, Any]
    table: AnnotationTable
    codes: list[Any]


def fewest_lost(
    model: BaseCrowdClassifier,
    starts: Sequence[float],
    fit_from: Callable[[float], AnnotationTable],
    X: Any,
    watch: Watch,
) -> AnnotationTable:
    """Fit from one start after another until no class is lost; keep the fit that loses the fewest.

    Of several, the first is kept: a class that no start brings back, such as one with a single
    annotation, changes nothing. All have the same random numbers. Of the other fits, only their
    checkpoints remain; their warnings are those of the first, and are not repeated.

    Parameters
    ----------
    model : BaseCrowdClassifier
        A further fit keeps a checkpoint of its own, beside ``checkpoint``.
    starts : sequence of float
    fit_from : callable (start) -> AnnotationTable
        Fits the model and returns the annotations with a positive weight.
    X, watch
        See `BaseCrowdClassifier.fit`. The codes of what is followed are those of the kept fit.

    Returns
    -------
    AnnotationTable
        That of the kept fit.
    """
    random_state, checkpoint = model.random_state, model.checkpoint
    codes = [] if watch.followed is None else watch.followed.codes
    before, again = list(codes), _copied(random_state)
    fits: list[_Attempt] = []
    try:
        with joined(model):  # On several devices, the processes stay together between the fits.
            for start, following in zip(starts, [*starts[1:], None], strict=True):
                with _quiet_unless(not fits):
                    table = fit_from(start)
                lost = lost_classes(model, X, table)
                fits.append(_Attempt(len(lost), fitted_attributes(model), table, list(codes)))
                if not len(lost) or following is None:
                    break
                _LOG.info(
                    "%s started from %g predicts for no training instance: %s; it is fitted "
                    "again, from %g",
                    type(model).__name__,
                    start,
                    ", ".join(map(repr, table.classes[lost].tolist())),
                    following,
                )
                # A factory may return a network that it keeps, which the next fit would train.
                fits[-1].attributes["module_"] = deepcopy(model.module_)
                model.random_state = _copied(again)
                model.checkpoint = _beside(checkpoint, following)
                codes[:] = before  # The caller's own list.
        _, fitted, table, codes[:] = min(fits, key=lambda fit: fit.n_lost)
        forget_fit(model)
        for name, value in fitted.items():
            setattr(model, name, value)
    finally:
        model.random_state, model.checkpoint = random_state, checkpoint
    return table


@contextmanager
def _quiet_unless(is_first: bool) -> Iterator[None]:
    """Suppress warnings, which the first fit has given."""
    with warnings.catch_warnings():
        if not is_first:
            warnings.simplefilter("ignore")
        yield


def _copied(random_state: Any) -> Any:
    """Copy a random state, so that it can be drawn from again."""
    is_seed = isinstance(random_state, Integral)
    return random_state if is_seed else deepcopy(check_random_state(random_state))


def _beside(checkpoint: str | Path | None, start: float) -> Path | None:
    """Return the checkpoint of a further fit."""
    path = None if checkpoint is None else Path(checkpoint)
    return path and path.with_stem(f"{path.stem}-from{start:g}")
