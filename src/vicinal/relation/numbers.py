"""Relations of things whose labels are numbers."""

import math
from typing import Literal

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_between
from vicinal.relation.checks import check_blocks

Kernel = Literal["gaussian", "laplace", "triangle"]


def label_distance(
    labels: Tensor, bank_labels: Tensor, *, kernel: Kernel | None = None, bandwidth: float = 1.0
) -> Tensor:
    r"""$r_{ij} = -\|y_i - y_j\|$, or a kernel of that distance.

    With $u = \|y_i - y_j\| / h$ for the bandwidth h, the kernels are "gaussian" $e^{-u^2/2}$, "laplace" $e^{-u}$ and
    "triangle" $\max(0, 1 - u)$. They lie in [0, 1], so every loss with soft relations accepts them.

    Args:
        labels: numbers ``[b]``, or ``[b, T]`` for several at once (Euclidean distance).
        bank_labels: likewise ``[N]`` or ``[N, T]``.
        kernel: None for the negative distance itself.
        bandwidth: > 0, in units of the label.

    Returns:
        ``[b, N]``, <= 0 without a kernel, in [0, 1] with one.

    >>> label_distance(torch.tensor([1.0]), torch.tensor([1.0, 3.0]))
    tensor([[-0., -2.]])
    >>> label_distance(torch.tensor([1.0]), torch.tensor([1.0, 3.0]), kernel="triangle", bandwidth=4)
    tensor([[1.0000, 0.5000]])
    """
    check_between("bandwidth", bandwidth, 0, math.inf)
    check_blocks("labels", labels, bank_labels, (1, 2))
    dtype = torch.promote_types(torch.promote_types(labels.dtype, bank_labels.dtype), torch.get_default_dtype())
    mine, theirs = labels.to(dtype), bank_labels.to(dtype)
    if mine.ndim == 1:
        distance = (mine[:, None] - theirs).abs()
    else:
        distance = torch.cdist(mine, theirs, compute_mode="donot_use_mm_for_euclid_dist")
    if kernel is None:
        return -distance
    check_choice("kernel", kernel, ("gaussian", "laplace", "triangle"))
    unit = distance / bandwidth
    if kernel == "gaussian":
        return (-unit.square() / 2).exp()
    return (-unit).exp() if kernel == "laplace" else (1 - unit).clamp(min=0)
