"""The network of a fit: its construction, scaling, initial weights and checks; its optimiser."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from manyhands.exceptions import AnnotationError
from manyhands.fitting.context import Earlier, Fit
from manyhands.fitting.folders import Stored
from manyhands.fitting.prediction import PREDICT_BATCH
from manyhands.functional.ranks import active_ranks
from manyhands.memory import free_memory, in_gib
from manyhands.nn import CrowdModule, channels_last, make_scaled
from manyhands.training import Features, pick_device

if TYPE_CHECKING:
    from manyhands.fitting.method import Method

Weights = dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class Start:
    """Another fitted classifier, from whose weights a fit starts.

    Attributes
    ----------
    weights : dict of tensors
    n_epochs : int or None
        Number of epochs of that fit.
    """

    weights: Weights
    n_epochs: int | None


def read_start(model: Method, start: Method | None) -> Start | None:
    """Read the classifier from whose weights a fit starts, if there is one.

    Raises
    ------
    AnnotationError
        If that classifier has no network, or this class ignores the weights it starts from.
    """
    if start is None:
        return None
    if model._traits.start_refusal is not None:
        raise AnnotationError(
            f"start={type(start).__name__} has no effect, because {type(model).__name__} "
            f"{model._traits.start_refusal}; leave start out"
        )
    if not hasattr(start, "module_"):
        raise AnnotationError(
            f"start={type(start).__name__} has no network to start from (it is not fitted, or its "
            "backbone is a scikit-learn classifier); leave start out"
        )
    return Start(start.module_.state_dict(), getattr(start, "n_epochs_", None))


def make_module(method: Method, fit: Fit[Any, Any], start: Start | None) -> CrowdModule:
    """Make the method's network, fit its scaling, and check that it outputs logits."""
    features, annotated = fit.features, fit.batches.instances
    shape, weights = features.input_shape, None if start is None else start.weights
    classifier = make_scaled(method._network, method.scaling, shape, len(method.classes_))
    init = fit.recipe.init_scale
    with naming_the_backbone(shape):  # Some modules ask the backbone for the width of its output.
        module: CrowdModule = method._build_module(
            classifier, shape, **({} if init is None else {"init_scale": init})
        )
    if method.scaling is not None and not features.is_dataset:
        # Batches of at most 8 MiB in float64.
        size = max(1, min(PREDICT_BATCH, (1 << 20) // int(np.prod(shape))))
        classifier.scaler.fit_statistics(features.batches(annotated, size))
    if fit.earlier is not None:
        weights = grown_weights(method, module, fit, fit.earlier)
    if weights is not None:
        _load_start(module, weights)
    module = module.to(features.device, features.dtype)
    ranks = active_ranks()
    if ranks is not None:
        ranks.align(module)  # A factory of the user's may draw from generators of its own.
    check_logits(method, module, features, annotated)
    return module


def grown_weights(
    method: Method, module: CrowdModule, fit: Fit[Any, Any], earlier: Earlier
) -> Weights:
    """Return the weights from which a partial fit goes on: those of new annotators are the crowd's.

    An annotator's parameters and buffers are slices along an axis that has grown with the number of
    annotators. A new slice is the mean of the others, each weighted by that annotator's
    annotations. The confusion matrices of a buffer are ``pooled_confusion_``.

    Parameters
    ----------
    method : Method
        Its parameters that are arrays are buffers of the module, and are taken as they are now.
    module : CrowdModule
        Made for all annotators.
    fit : Fit
        Its table begins with the annotators that the earlier fit knew.
    earlier : Earlier

    Returns
    -------
    dict of str to tensor
        A state dict for ``module``.
    """
    before = earlier.model
    n_old, n_new = before.n_annotators_, fit.table.n_annotators
    given = torch.from_numpy(fit.whole.annotations_per_annotator()[:n_old]).double()
    share = (given + 1e-9) / (given + 1e-9).sum()
    fresh, weights = module.state_dict(), Weights()
    for name, old in before.module_.state_dict().items():
        now = fresh.get(name)
        weights[name] = old = old.cpu()
        if now is None or now.shape == old.shape or name.split(".")[-1] in vars(method):
            weights[name] = old if now is None or now.shape == old.shape else now
            continue
        axes = [axis for axis in range(min(old.ndim, now.ndim)) if old.shape[axis] == n_old]
        axis = next((axis for axis in axes if now.shape[axis] == n_new), None)
        if axis is None:
            continue  # Another network, which loading refuses.
        parts = old.double().movedim(axis, 0)
        mean = torch.einsum("r,r...->...", share, parts)
        if name == "confusions":
            mean = torch.from_numpy(before.pooled_confusion_)
        grown = torch.cat([parts, mean.expand(n_new - n_old, *mean.shape)])
        weights[name] = grown.movedim(0, axis).to(old.dtype)
    return weights


def _load_start(module: CrowdModule, start: Weights) -> None:
    """Load the starting weights into a module.

    Raises
    ------
    AnnotationError
        If they belong to another network or to other numbers of classes or annotators.
    """
    try:
        module.load_state_dict(start)
    except RuntimeError as error:
        raise AnnotationError(
            f"the weights of start do not fit the network of this fit ({error}). Its backbone, or "
            "its number of classes, annotators or features, differs; leave start out"
        ) from error


def check_logits(model: Method, module: CrowdModule, features: Features, rows: Tensor) -> None:
    """Raise an error for a wrong output width, or batch normalisation of a single row."""
    if has_batch_norm(module) and min(model.batch_size, len(rows)) < 2:
        raise AnnotationError(
            "backbone has batch normalisation, which needs at least two instances per batch, but "
            f"batch_size={model.batch_size} and {len(rows)} instances have annotations; use "
            "batch_size=2 or more, and at least two annotated instances"
        )
    shape = _shape_of_output(module, features.take(rows[:2]))
    expected = (min(2, len(rows)), len(model.classes_))
    if shape != expected:
        raise AnnotationError(
            f"backbone returns shape {shape} for {expected[0]} instances; it must return logits "
            f"of shape {expected}, one column for each of the {expected[1]} classes"
        )


def _shape_of_output(module: CrowdModule, x: Tensor) -> tuple[int, ...]:
    """Apply the network to some instances."""
    module.eval()
    with naming_the_backbone(x.shape[1:]), torch.no_grad():
        return tuple(module(x).shape)


@contextmanager
def naming_the_backbone(shape: Sequence[int]) -> Iterator[None]:
    """Turn an error in a network into one that names the backbone and the instances' shape.

    Raises
    ------
    AnnotationError
        Instead of an error of torch or Python inside the block.
    """
    try:
        yield
    except AnnotationError:
        raise
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        hint = ""
        if channels_last(shape):
            hint = ". These look like images with their channels last; torch's layers expect them "
            hint += "first: X.transpose(0, 3, 1, 2)"
        raise AnnotationError(
            f"backbone fails on instances of shape {tuple(shape)} ({error}){hint}. It must take a "
            "float tensor of instances and return a tensor of logits, or an object with .logits"
        ) from error


def read_annotator_features(given: Any, n_annotators: int) -> Tensor | None:
    """Read the parameter ``annotator_features``.

    Parameters
    ----------
    given : None, or array-like of shape (n_annotators, n_features)
    n_annotators : int

    Returns
    -------
    tensor of shape (n_annotators, n_features), or None

    Raises
    ------
    AnnotationError
        If it does not hold numbers, or not one row for each annotator, or gaps.
    """
    if given is None:
        return None
    try:
        features = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise AnnotationError(
            f"annotator_features is not an array of numbers ({error}); give one row of numbers "
            "per annotator"
        ) from error
    if features.ndim != 2 or len(features) != n_annotators:
        raise AnnotationError(
            f"annotator_features has shape {features.shape}; give one row for each of the "
            f"{n_annotators} annotators"
        )
    if not np.isfinite(features).all():
        raise AnnotationError("annotator_features contains NaN or infinity; fill the gaps")
    return torch.tensor(features)


def has_batch_norm(module: torch.nn.Module) -> bool:
    """Return whether a network normalises over batches, which rules out batches of one."""
    return any(isinstance(part, _BatchNorm) for part in module.modules())


def make_adam(
    module: CrowdModule, lr: float, weight_decay: float, noise_lr: float | None = None
) -> torch.optim.Optimizer:
    """Make an Adam optimiser for a crowd module.

    Parameters
    ----------
    module : CrowdModule
    lr, weight_decay : float
        For all parameters, or only for the classifier's if ``noise_lr`` is given.
    noise_lr : float or None
        Learning rate of the other parameters, without weight decay.

    Returns
    -------
    torch.optim.Adam
    """
    # The fused update halves the time of a step, but torch never chooses it by default.
    fused = next(module.parameters()).device.type in {"cpu", "cuda"}
    if noise_lr is None:
        return torch.optim.Adam(module.parameters(), lr=lr, weight_decay=weight_decay, fused=fused)
    classifier = list(module.classifier.parameters())
    classifier_ids = {id(parameter) for parameter in classifier}
    noise = [parameter for parameter in module.parameters() if id(parameter) not in classifier_ids]
    # Decay would pull confusion matrices towards 0, which means a uniform annotator.
    groups = [
        {"params": classifier, "weight_decay": weight_decay},
        {"params": noise, "lr": noise_lr},
    ]
    return torch.optim.Adam(groups, lr=lr, fused=fused)


def rebuilt(model: Method, weights: Mapping[str, Stored], device: str) -> CrowdModule:
    """Rebuild the network of a saved classifier.

    Parameters
    ----------
    model : Method
        With its parameters, classes, annotators and the shape of an instance.
    weights : mapping of str to Stored
        The network's state dict. It is read when the network has turned out to have as many
        weights.
    device : str

    Returns
    -------
    CrowdModule
        On the device, in evaluation mode.

    Raises
    ------
    RuntimeError, AnnotationError
        If the weights are of another network, or of one that is much smaller than the model's
        parameters say.
    MemoryError
        If the memory cannot hold the network.
    """
    shape = model.input_shape_
    held = sum(array.nbytes for array in weights.values())
    with warnings.catch_warnings(), _NoLargerThan(held):
        # A model that was shared without its annotators.
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")
        classifier = make_scaled(model._network, model.scaling, shape, len(model.classes_))
        module = model._build_module(classifier, shape)
    found = sum(math.prod(stored.shape) for stored in weights.values())
    needed = sum(tensor.numel() for tensor in module.state_dict().values())
    if found != needed:
        raise AnnotationError(f"its network has {needed:,} weights, and the file holds {found:,}")
    module.load_state_dict({name: torch.from_numpy(each.array) for name, each in weights.items()})
    return module.to(pick_device(device)).eval()


MAKERS = frozenset({
    *(torch.empty, torch.zeros, torch.ones, torch.full, torch.eye),
    *(torch.rand, torch.randn, torch.arange),
})  # fmt: skip
"""Functions by which networks make their tensors."""

TIMES, SPARE = 8, 2**28
"""How many times the bytes of its weights, and how many bytes beside, a network may make while it
is built: starts are made of several tensors, and own networks may have buffers that are not saved.
"""


class _NoLargerThan(TorchFunctionMode):
    """Refuse to build a network that is out of proportion to its weights, before it takes memory.

    The parameters of a saved model are a few bytes, and may ask for more than the machine has: the
    system would end the process without a word.
    """

    def __init__(self, held: int) -> None:
        super().__init__()
        self.held, self.made = held, 0
        free = free_memory()
        self.room = math.inf if free is None else free - held  # The weights are read beside it.

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if function in MAKERS:
            sizes = {name: value for name, value in given.items() if name != "generator"}
            self.made += function(*args, **{**sizes, "device": "meta"}).nbytes
            if self.made > TIMES * self.held + SPARE:
                raise AnnotationError(
                    f"it asks for a network of more than {in_gib(self.made)}, and its weights take "
                    f"{in_gib(self.held)}"
                )
            if self.made > self.room:
                raise MemoryError(
                    f"more than {in_gib(self.made)} while it is built, and beside its weights "
                    f"{in_gib(max(self.room, 0))} are free"
                )
        return function(*args, **given)
