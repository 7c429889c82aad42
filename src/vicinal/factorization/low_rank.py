"""Layers and tables of fewer parameters: two factors in the place of a matrix of weights."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.core import register
from vicinal.core.checks import check_integer, check_tensor, warn_caller


class LowRank(NamedTuple):
    """Two factors: ``x @ weight`` is about ``x @ left @ right + bias``.

    Attributes:
        left: ``[p, rank]``.
        right: ``[rank, q]``, orthonormal rows.
        bias: ``[q]``, or None if there is none.
        error: the share of the squared norm that is lost, of the weighted rows or of the centered outputs.
        before: number of parameters of the matrix, and of the bias if there was one.
        after: number of parameters of the factors and the bias.
    """

    left: Tensor
    right: Tensor
    bias: Tensor | None
    error: float
    before: int
    after: int


@register("factorization", "low_rank", paper="arXiv:2207.00112, arXiv:2405.18146", verified="values of public code")
def low_rank(
    weight: Tensor,
    rank: int,
    *,
    row_weight: Tensor | None = None,
    outputs: Tensor | None = None,
    bias: Tensor | None = None,
) -> LowRank:
    r"""Two factors in the place of a matrix, $W \approx (W V_r) V_r^\top$, of least error where errors matter.

    $V_r$ are the r right singular vectors of largest value of

    - $W$: plain, of least squared error of the entries;
    - $\operatorname{diag}(f)^{1/2} W$ with ``row_weight`` f, of least $\sum_i f_i \|w_i - \hat w_i\|^2$ (FWSVD; f is
      the sum over a row of mean squared gradients, or how often a row of a table is read);
    - $\operatorname{diag}(f)^{1/2} (Y - \mu)$ with ``outputs`` Y, of least squared error of these outputs among all
      affine maps of that rank; the bias becomes $\mu + (b - \mu) V_r V_r^\top$.

    Args:
        weight: ``[p, q]``; rows are multiplied by inputs, or looked up: ``layer.weight.T`` of a linear layer.
        rank: from 1 to min(p, q); above pq / (p + q) there are more parameters than before, and a warning.
        row_weight: f >= 0, ``[p]``, not all 0; with ``outputs`` one for each of their rows.
        outputs: Y ``[n, q]``, the outputs of the layer (or table), bias included, for rows of the data.
        bias: b ``[q]`` of the layer.

    Raises:
        ValueError: for shapes that do not fit, negative weights, or numbers that are not finite.

    >>> small = low_rank(torch.outer(torch.arange(3.0), torch.ones(4)), 1)
    >>> (small.left @ small.right)[2], small.before, small.after
    (tensor([2.0000, 2.0000, 2.0000, 2.0000]), 12, 7)
    """
    wide = _check("weight", weight, None)
    sample = wide if outputs is None else _check("outputs", outputs, wide.shape[1])
    check_integer("rank", rank, 1, min(wide.shape))
    share = _row_weight(row_weight, sample)
    offset = None if bias is None else _check("bias", bias[None], wide.shape[1])[0]
    mean = (share[:, None] * sample).sum(0) if outputs is not None else torch.zeros_like(sample[0])
    values, right = torch.linalg.svd(share.sqrt()[:, None] * (sample - mean), full_matrices=False)[1:]
    if len(right) < rank:
        raise ValueError(f"outputs: expected at least {rank} rows, as many as the rank, got {len(sample)}")
    right = right[:rank]
    if outputs is not None:
        offset = (torch.zeros_like(mean) if offset is None else offset) - mean
        offset = mean + offset @ right.T @ right
    elif offset is not None:
        offset = offset.clone()
    before = weight.numel() + (0 if bias is None else bias.numel())
    after = rank * sum(weight.shape) + (0 if offset is None else offset.numel())
    if after >= before:
        warn_caller(f"low_rank: expected fewer parameters than {before}, got {after}; take a lower rank")
    lost, total = float(values[rank:].square().sum()), float(values.square().sum())
    left, right = (wide @ right.T).to(weight.dtype), right.to(weight.dtype)
    offset = None if offset is None else offset.to(weight.dtype)
    return LowRank(left, right, offset, lost / total if total else 0.0, before, after)


def _check(name: str, value: Tensor, columns: int | None) -> Tensor:
    """A matrix of finite numbers, in at least float32."""
    if check_tensor(name, value).ndim != 2 or 0 in value.shape or columns not in (None, value.shape[1]):
        raise ValueError(f"{name}: expected rows of {columns or 'one or more'} numbers, got {tuple(value.shape)}")
    if not value.is_floating_point() or not bool(value.isfinite().all()):
        raise ValueError(f"{name}: expected finite floating numbers, got others")
    return value.to(torch.promote_types(value.dtype, torch.float32))


def _row_weight(row_weight: Tensor | None, sample: Tensor) -> Tensor:
    """Weights of rows that sum to 1."""
    if row_weight is None:
        return sample.new_full(sample.shape[:1], 1 / len(sample))
    if check_tensor("row_weight", row_weight).shape != sample.shape[:1]:
        raise ValueError(f"row_weight: expected one for each of {len(sample)} rows, got {tuple(row_weight.shape)}")
    share = row_weight.to(sample)
    if not bool((share >= 0).all() & (share < torch.inf).all() & (share > 0).any()):
        raise ValueError("row_weight: expected finite numbers of at least 0, and one above 0, got others")
    return share / share.sum()
