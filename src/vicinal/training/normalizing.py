"""Batch norm over the batches of all processes, exact in value and gradient.

torch.nn.SyncBatchNorm runs on GPUs only; this one needs only a sum over processes.
"""

from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core.gathering import sum_over_processes


class _Synchronized:
    """Comes before a batch norm of torch in the order of bases; parameters, statistics and names stay the same."""

    apart: type[nn.Module]

    def forward(self: Any, input: Tensor) -> Tensor:
        """Batch norm, in training with mean and variance over the rows of all processes."""
        if not self.training:
            return super().forward(input)  # type: ignore[misc]  # that of the batch norm behind it
        wide = input.to(torch.promote_types(input.dtype, torch.float32))
        dims = [dim for dim in range(input.ndim) if dim != 1]
        shape = [1, -1, *(1 for _ in dims[1:])]
        local_count = wide.new_full((1,), input.numel() / input.shape[1])
        total = sum_over_processes(torch.cat([wide.sum(dim=dims), local_count]))
        count = total[-1].detach()
        if count < 2:
            raise ValueError(f"batch: expected more than 1 value a channel in training, got {int(count)}")
        mean = total[:-1] / count
        apart = wide - mean.view(shape)
        variance = sum_over_processes(apart.square().sum(dim=dims)) / count
        if self.track_running_stats:
            self._remember(mean.detach(), variance.detach() * count / (count - 1))
        normed = apart * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normed = normed * self.weight.view(shape) + self.bias.view(shape)
        return normed.to(input.dtype)

    def _remember(self: Any, mean: Tensor, variance: Tensor) -> None:
        self.num_batches_tracked.add_(1)
        share = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


def synchronize(network: nn.Module) -> None:
    """Make every batch norm in ``network`` take its statistics over the batches of all processes, in place.

    A subclass of a batch norm keeps its own ``forward``; its calls of torch's are synchronized.

    >>> norm = nn.BatchNorm1d(2)
    >>> synchronize(norm)
    >>> type(norm).__name__, isinstance(norm, nn.BatchNorm1d)
    ('SynchronizedBatchNorm1d', True)
    """
    for module in network.modules():
        kind = type(module)
        base = next((base for base in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d) if base in kind.__mro__), None)
        if base is None or isinstance(module, _Synchronized):
            continue
        between = type(f"Synchronized{base.__name__}", (_Synchronized, base), {"apart": kind})
        module.__class__ = between if kind is base else type(between.__name__, (kind, between), {"apart": kind})


def separate(network: nn.Module) -> None:
    """Undo :func:`synchronize`.

    >>> norm = nn.BatchNorm1d(2)
    >>> synchronize(norm)
    >>> separate(norm)
    >>> type(norm) is nn.BatchNorm1d
    True
    """
    for module in network.modules():
        if isinstance(module, _Synchronized):
            module.__class__ = module.apart  # type: ignore[assignment]  # which it was
