"""Repeated fits from larger initial scales, as long as there is class collapse."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from manyhands.fitting.class_collapse import collapsed_classes
from manyhands.fitting.context import Followed, Watch
from manyhands.fitting.fitted import Fitted
from manyhands.fitting.method_protocol import StartProtocol
from manyhands.fitting.pilots import AUTO
from manyhands.fitting.prediction import class_proba
from manyhands.fitting.recipe import CrowdData, Recipe
from manyhands.training import Features
from manyhands.typing import AnyArray, IntArray

if TYPE_CHECKING:
    from manyhands.fitting.method import Method

_LOG = logging.getLogger("manyhands")


def scale_of(method: Method, given: float | None = None) -> float:
    """Return the initial multiple of the identity of a method's matrices.

    Parameters
    ----------
    method : Method
        With ``init_scale`` in its protocol.
    given : float, optional
        The start of the present fit.

    Returns
    -------
    float
        ``given``; else ``init_scale_``, the scale of the last fit (folders of earlier versions only
        have the parameter); else the parameter, or the first scale that "auto" tries.
    """
    if given is not None:
        return given
    parameter = _asked(method)
    first = method._traits.starts[0] if parameter == AUTO else parameter
    return float(getattr(method, "init_scale_", first))


def recipes_of_starts(method: Method, recipe: Recipe, before: object | None) -> list[Recipe]:
    """Return a recipe for every start that ``init_scale`` asks for; the first is tried first.

    Parameters
    ----------
    method : Method
    recipe : Recipe
    before : object or None
        A fitted classifier whose weights are given, or what it had found: weights of low rank are
        added to the start that they were found with.

    Returns
    -------
    list of Recipe
        A further start keeps a checkpoint of its own, beside ``checkpoint``, and has a title of its
        own. Methods without starts have the recipe itself.
    """
    scales = starts = method._traits.starts
    if not scales:
        return [recipe]
    parameter = _asked(method)
    if parameter != AUTO:
        return [replace(recipe, init_scale=float(parameter))]
    if before is not None:
        given = _asked(before)  # Of a model that was saved with a number.
        scales = (float(getattr(before, "init_scale_", scales[0] if given == AUTO else given)),)
    recipes: list[Recipe] = []
    for scale in scales:
        is_further = scale > starts[0]
        recipes.append(
            replace(
                recipe,
                init_scale=scale,
                title=f"{recipe.title} from {scale:g}" if is_further else recipe.title,
                checkpoint=_beside(recipe.checkpoint, scale) if recipes else recipe.checkpoint,
            )
        )
    return recipes


def _asked(method: object) -> float | str:
    """Return the start that a method's protocol asks for; "auto" if there is none."""
    protocol = getattr(method, "_protocol", None)
    return protocol.init_scale if isinstance(protocol, StartProtocol) else AUTO


class _Attempt(NamedTuple):
    """A fit from one start."""

    n_lost: int
    fitted: Fitted
    codes: list[IntArray]


def fewest_lost(
    name: str,
    data: CrowdData,
    recipes: Sequence[Recipe],
    attempt: Callable[[CrowdData, Recipe], Fitted],
) -> Fitted:
    """Fit by one recipe after another until no class collapses; keep the fit with the fewest.

    A tie goes to the first fit, so a class that collapses from every start, such as one with a
    single annotation, changes nothing. All fits draw the same random numbers. Only the checkpoints
    of the other fits remain; their warnings repeat those of the first and are suppressed.

    Parameters
    ----------
    name : str
        What is fitted, for the log.
    data : CrowdData
        The codes of what is followed are those of the kept fit.
    recipes : sequence of Recipe
    attempt : callable (data, recipe) -> Fitted

    Returns
    -------
    Fitted
        That of the kept fit.
    """
    if len(recipes) == 1:
        return attempt(data, recipes[0])
    table = data.whole
    fits: list[_Attempt] = []
    for recipe, following in zip(recipes, [*recipes[1:], None], strict=True):
        own, codes = _followed_anew(data)
        with _quiet_unless(not fits):
            fitted = attempt(own, recipe)
        lost = collapsed_classes(_predictor(fitted, own), table)
        if not len(lost) or following is None:
            fits.append(_Attempt(len(lost), fitted, codes))
            break
        _LOG.info(
            "%s predicts %s for no training instance after a start from %g times the identity; "
            "it is fitted again from %g times the identity",
            name,
            ", ".join(map(repr, table.classes[lost].tolist())),
            recipe.init_scale,
            following.init_scale,
        )
        # A factory may return a network that it keeps, which the next fit would train.
        fitted = replace(fitted, module=deepcopy(fitted.module))
        fits.append(_Attempt(len(lost), fitted, codes))
    _, kept, codes = min(fits, key=lambda fit: fit.n_lost)
    if data.watch.followed is not None:
        data.watch.followed.codes.extend(codes)
    return kept


def _followed_anew(data: CrowdData) -> tuple[CrowdData, list[IntArray]]:
    """Return the data with a list of its own for the codes of what is followed, and that list."""
    watch, codes = data.watch, list[IntArray]()
    if watch.followed is None:
        return data, codes
    own = Watch(watch.y_train, followed=Followed(watch.followed.X, codes), **watch.sets)
    return replace(data, watch=own), codes


def _predictor(fitted: Fitted, data: CrowdData) -> Callable[[IntArray], AnyArray]:
    """Make what predicts the most probable classes of some of the training instances."""
    module, features, classes = fitted.module, data.features, data.whole.classes
    assert module is not None
    weight = next(module.parameters())
    if weight.dtype != features.dtype:
        features = Features(features.data, weight.device, weight.dtype)
    return lambda rows: classes[class_proba(module, features, rows).argmax(axis=1)]


@contextmanager
def _quiet_unless(is_first: bool) -> Iterator[None]:
    """Suppress warnings, which the first fit has given."""
    with warnings.catch_warnings():
        if not is_first:
            warnings.simplefilter("ignore")
        yield


def _beside(checkpoint: str | Path | None, start: float) -> Path | None:
    """Return the checkpoint of a further fit."""
    path = None if checkpoint is None else Path(checkpoint)
    return path and path.with_stem(f"{path.stem}-from{start:g}")
