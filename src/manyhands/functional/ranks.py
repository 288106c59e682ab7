"""Data-parallel training of one network by several processes, with exact gradients.

All processes run the same program, with the same random numbers, on the same batches. Only the
network's work is divided: every process applies the network to its own part of a batch
(`over_ranks`) and receives the outputs of all. Every process then computes the rest in the same
way: layers of annotators, losses over pairs of instances, draws of annotations. The gradient of the
loss, averaged over the processes, equals that of one process with the whole batch, for any loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MethodType
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.utils.weak import WeakTensorKeyDictionary

T = TypeVar("T")

BUCKET_BYTES = 1 << 25
"""Bytes of gradients that are summed over the processes in one call (32 MiB)."""


@dataclass(eq=False)
class Ranks:
    """One process's view of the processes that train a network together.

    Attributes
    ----------
    rank, size : int
        Number of this process, from 0, and number of processes.
    device : torch.device
    dtype : torch.dtype
        Type of the instances and of the weights.
    autocast : callable () -> context manager
        Precision in which the network computes.
    """

    rank: int
    size: int
    device: torch.device
    dtype: torch.dtype = torch.float32
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    _divided: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary)
    _inside: bool = False
    _drawn_from: bytes = b""
    _n_draws: int = 0
    _n_fits: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this is the first process, the only one that writes files and prints."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """Return the slice of n rows that this process computes; sizes differ by at most one."""
        return self._bounds(n)[self.rank]

    def _bounds(self, n: int) -> list[slice]:
        ends = [n * (rank + 1) // self.size for rank in range(self.size)]
        return [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def divides(self, n: int) -> bool:
        """Return whether n rows are divided: there are several processes, and a row for each."""
        return 1 < self.size <= n

    # -- the network ------------------------------------------------------------------------------

    def apply(
        self, network: nn.Module, function: Callable[[Tensor], Tensor], x: Tensor, dim: int
    ) -> Tensor:
        """Apply a function of a network to all rows of x; see `over_ranks`."""
        if self._inside or not self.divides(len(x)):
            return self._computed(function, x)
        for value in network.parameters():
            self._divided[value] = True
        self._inside = True
        try:
            with self._own_draws(), _synced_batch_norms(network, self):
                own = self._computed(function, x[self.part(len(x))])
        finally:
            self._inside = False
        return self.gathered(own.movedim(dim, 0), len(x)).movedim(0, dim)

    def _computed(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        with self.autocast():
            return function(x).to(x.dtype)

    def gathered(self, own: Tensor, n: int) -> Tensor:
        """Return the parts of all processes as one tensor (n, ...); gradients flow back to each."""
        return cast(Tensor, _Gathered.apply(own, self, n))  # type: ignore[no-untyped-call]

    @contextmanager
    def _own_draws(self) -> Iterator[None]:
        """Let dropout draw different numbers in every process; restore the generator afterwards.

        Later draws, such as the order of an epoch, are then the same in all processes.
        """
        state = torch.get_rng_state()
        on_cuda = self.device.type == "cuda"
        cuda_state = torch.cuda.get_rng_state(self.device) if on_cuda else None
        digest = blake2b(state.numpy().tobytes(), digest_size=8).digest()
        if digest != self._drawn_from:
            self._drawn_from, self._n_draws = digest, 0
        self._n_draws += 1
        own = f"{digest.hex()} {self._n_draws} {self.rank}".encode()
        seed = int.from_bytes(blake2b(own, digest_size=7).digest())
        torch.default_generator.manual_seed(seed)
        if cuda_state is not None:
            torch.cuda.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_rng_state(state)
            if cuda_state is not None:
                torch.cuda.set_rng_state(cuda_state, self.device)

    # -- weights and gradients --------------------------------------------------------------------

    @torch.no_grad()
    def average_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Average the gradients of an optimiser's parameters over the processes.

        Parameters outside the divided networks are left out: their gradients are already complete.
        """
        if self.size == 1:
            return
        kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for group in optimizer.param_groups:
            for value in group["params"]:
                if value.grad is not None and value in self._divided:
                    kinds.setdefault((value.dtype, value.device), []).append(value.grad)
        for gradients in kinds.values():
            for bucket in _buckets(gradients):
                flat = _flatten_dense_tensors(bucket)  # type: ignore[no-untyped-call]
                dist.all_reduce(flat)
                flat /= self.size
                parts = _unflatten_dense_tensors(flat, bucket)  # type: ignore[no-untyped-call]
                for gradient, averaged in zip(bucket, parts, strict=True):
                    gradient.copy_(averaged)

    @torch.no_grad()
    def align(self, module: nn.Module) -> None:
        """Copy the first process's weights and buffers to all processes."""
        if self.size == 1:
            return
        for value in [*module.parameters(), *module.buffers()]:
            given = value.detach().contiguous()
            dist.broadcast(given, 0)
            value.copy_(given)

    def from_first(self, make: Callable[[], T]) -> T:
        """Call ``make`` in the first process, and return its result, or raise its error, in all."""
        if self.size == 1:
            return make()
        found: list[Any] = [None, None]
        failure: Exception | None = None
        if self.is_first:
            try:
                found[0] = make()
            except Exception as error:
                failure, found[1] = error, f"{type(error).__name__}: {error}"
        dist.broadcast_object_list(found, 0)
        if failure is not None:
            raise failure
        if found[1] is not None:
            raise RuntimeError(f"the first process failed: {found[1]}")
        return cast(T, found[0])

    def all_of(self, value: T) -> list[T]:
        """Return the values of all processes, in their order."""
        values: list[Any] = [None] * self.size
        if self.size == 1:
            return [value]
        dist.all_gather_object(values, value)
        return values


_ACTIVE: ContextVar[Ranks | None] = ContextVar("ranks", default=None)


def active_ranks() -> Ranks | None:
    """Return the processes of the current training on several devices; None if there is none."""
    return _ACTIVE.get()


@contextmanager
def working_together(ranks: Ranks | None) -> Iterator[None]:
    """Divide networks among ``ranks`` inside the block; with None every process works alone."""
    token = _ACTIVE.set(ranks)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


@contextmanager
def one_fit(ranks: Ranks | None) -> Iterator[bool]:
    """Yield whether this fit on several processes is the outermost one."""
    if ranks is None:
        yield False
        return
    ranks._n_fits += 1
    try:
        yield ranks._n_fits == 1
    finally:
        ranks._n_fits -= 1


def from_first(make: Callable[[], T]) -> T:
    """Call ``make`` in the first process and return its result in all; alone, just call it."""
    ranks = active_ranks()
    return make() if ranks is None else ranks.from_first(make)


def exchanged(own: Tensor, n: int) -> Tensor:
    """Return all n rows, of which every process holds a part."""
    ranks = active_ranks()
    assert ranks is not None
    return ranks.gathered(own, n)


def in_first_process() -> bool:
    """Return whether this is the main process, the only one that writes files and prints."""
    ranks = active_ranks()
    return ranks is None or ranks.is_first


def over_ranks(
    network: nn.Module, function: Callable[[Tensor], Tensor], x: Tensor, dim: int = 0
) -> Tensor:
    """Apply a function of a network to instances, each process to its part of them.

    Parameters
    ----------
    network : nn.Module
        The network whose parameters ``function`` uses.
    function : callable (x) -> tensor with one entry per instance along ``dim``
    x : tensor of shape (n, ...)
        The same in all processes.
    dim : int

    Returns
    -------
    tensor
        ``function(x)``, the same in all processes.
    """
    ranks = active_ranks()
    return function(x) if ranks is None else ranks.apply(network, function, x, dim)


class _Gathered(torch.autograd.Function):
    """Concatenation of the parts of all processes, with its gradient.

    Every process computes the loss from the whole. The gradient of the sum of these losses with
    respect to a part is the sum of the gradients of all processes.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: Ranks, n: int) -> Tensor:
        ctx.ranks = ranks
        bounds = ranks._bounds(n)
        longest = max(part.stop - part.start for part in bounds)
        padded = own.new_zeros(longest, *own.shape[1:])
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in bounds]
        dist.all_gather(parts, padded)
        sizes = [part.stop - part.start for part in bounds]
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total[ctx.ranks.part(len(total))], None, None


class _Summed(torch.autograd.Function):
    """The sum of a tensor over the processes."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        total = own.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        bucket.append(tensor)
        size += tensor.nbytes
        if size >= BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


# -- batch normalisation --------------------------------------------------------------------------


@contextmanager
def _synced_batch_norms(network: nn.Module, ranks: Ranks) -> Iterator[None]:
    """Make batch normalisation use the statistics of the whole batch inside the block."""
    parts = [
        part
        for part in network.modules()
        if isinstance(part, _BatchNorm) and not isinstance(part, SyncBatchNorm) and _counts(part)
    ]
    for part in parts:

        def forward(norm: Any, x: Tensor) -> Tensor:
            return _normalised(norm, x)

        part.forward = MethodType(forward, part)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for part in parts:
            del part.forward


def _counts(norm: _BatchNorm) -> bool:
    return norm.training or not norm.track_running_stats


def _normalised(norm: _BatchNorm, x: Tensor) -> Tensor:
    """Normalise this process's part of a batch by the mean and variance of the whole batch."""
    axes = [axis for axis in range(x.ndim) if axis != 1]
    shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
    wide = x if x.dtype == torch.float64 else x.float()
    n_own = wide.new_tensor([x.numel() / x.shape[1]])
    sums = _Summed.apply(torch.cat([wide.sum(axes), n_own]))  # type: ignore[no-untyped-call]
    n = sums[-1].detach()
    mean = sums[:-1] / n
    centred = wide - mean.view(shape)
    variance = _Summed.apply(centred.square().sum(axes)) / n  # type: ignore[no-untyped-call]
    if norm.training and norm.running_mean is not None and norm.running_var is not None:
        _update_statistics(norm, mean.detach(), variance.detach() * n / (n - 1))
    out = centred * (variance + norm.eps).rsqrt().view(shape)
    if norm.affine:
        out = out * norm.weight.view(shape) + norm.bias.view(shape)
    return out.to(x.dtype)


@torch.no_grad()
def _update_statistics(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    factor = norm.momentum
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        if factor is None:
            factor = 1.0 / float(norm.num_batches_tracked)
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), factor or 0.0)
    norm.running_var.lerp_(variance.to(norm.running_var.dtype), factor or 0.0)
