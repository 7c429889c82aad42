"""Wasserstein distances of sets of points: exact between as many, and of weighted points on lines."""

import math
from typing import Literal

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer, check_tensor
from vicinal.transport.permutations import assignment


def draw_directions(
    width: int, count: int, *, orthogonal: bool = False, generator: torch.Generator | None = None
) -> Tensor:
    """``count`` random unit vectors, ``[count, width]`` in float64; ``orthogonal``: in groups of at most ``width``.

    >>> draw_directions(3, 5).norm(dim=1).float()
    tensor([1., 1., 1., 1., 1.])
    """
    check_integer("width", width)
    groups = -(-check_integer("count", count) // width) if orthogonal else 1
    shape = (groups, width, width) if orthogonal else (count, width)
    device = None if generator is None else generator.device
    normal = torch.randn(shape, generator=generator, dtype=torch.float64, device=device)
    if orthogonal:
        normal = torch.linalg.qr(normal).Q.mT.reshape(-1, width)[:count]
    lengths: Tensor = torch.linalg.vector_norm(normal, dim=1, keepdim=True)
    return normal / lengths


def wasserstein(points: Tensor, others: Tensor) -> Tensor:
    r"""$W_1(X, Y) = \min_\pi \frac 1 n \sum_i \|x_i - y_{\pi(i)}\|$, exact, between two sets of as many points.

    The gradient is that of the matched distances, 0 where matched points coincide.

    Args:
        points: X, ``[n, d]``, n >= 1.
        others: Y, ``[n, d]``.

    Paper: Transformed Distribution Matching, arXiv:2302.10363, whose cost of two batches this is.

    >>> wasserstein(torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0], [0.0]]))
    tensor(1.)
    """
    if points.ndim != 2 or not len(points) or points.shape != others.shape:
        raise ValueError(
            f"others: expected [n, d] as the points, n >= 1, got {tuple(points.shape)}, {tuple(others.shape)}"
        )
    x, y = (
        each.to(torch.promote_types(torch.promote_types(points.dtype, others.dtype), torch.float32))
        for each in (points, others)
    )
    order = assignment(-torch.cdist(x.detach(), y.detach(), compute_mode="donot_use_mm_for_euclid_dist"))
    lengths: Tensor = torch.linalg.vector_norm(x - y[order], dim=-1)
    return lengths.mean()


def sliced_wasserstein(
    points: Tensor,
    others: Tensor,
    weights: Tensor | None = None,
    other_weights: Tensor | None = None,
    *,
    directions: Tensor | int = 50,
    power: float = 2.0,
    over: Literal["mean", "max"] = "mean",
    root: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""$\left( \frac 1 L \sum_l W_p^p(X u_l, Y u_l) \right)^{1/p}$, with W exact on each line, by sorting.

    Weights are divided by their sum; points of weight 0 do not count at all, so that sets of unequal size can share a
    batch.

    Args:
        points: X, ``[..., m, d]``.
        others: Y, ``[..., n, d]``.
        weights: ``[..., m]``, >= 0, not all 0; None: equal weights.
        other_weights: ``[..., n]``; likewise.
        directions: unit vectors u, ``[L, d]``, or how many are drawn: see :func:`draw_directions`.
        power: p >= 1.
        over: the "mean" over the lines, or the line of the "max" distance.
        root: take the p-th root, with gradient 0 where the distance is 0. False: the p-th power, which is smooth there.
        generator: draws directions.

    Returns:
        ``[...]``, in float32 at least.

    Raises:
        ValueError: for points of different width, no points, negative weights or weights of sum 0.

    Paper: Bonneel et al., Sliced and Radon Wasserstein barycenters of measures, 2015.

    >>> sliced_wasserstein(torch.zeros(2, 1), torch.tensor([[3.0], [4.0]]), directions=torch.ones(1, 1))
    tensor(3.5355)
    """
    check_choice("over", over, ("mean", "max"))
    check_between("power", power, 1, math.inf, closed=True)
    if points.shape[:-2] != others.shape[:-2] or points.shape[-1:] != others.shape[-1:]:
        raise ValueError(f"others: expected sets of the width of {tuple(points.shape)}, got {tuple(others.shape)}")
    dtype = torch.promote_types(torch.promote_types(points.dtype, others.dtype), torch.float32)
    masses = _unit_mass("weights", points, dtype, weights), _unit_mass("other_weights", others, dtype, other_weights)
    if not isinstance(directions, Tensor):
        directions = draw_directions(points.shape[-1], directions, generator=generator)
    if directions.ndim != 2 or directions.shape[1] != points.shape[-1]:
        raise ValueError(f"directions: expected [L, {points.shape[-1]}], got {tuple(directions.shape)}")
    along = directions.to(points.device, dtype).T
    one, other = (_sorted_line(each, mass, along) for each, mass in zip((points, others), masses, strict=True))
    distances = _line_distance(one, other, power)  # [..., L]
    value = distances.amax(dim=-1) if over == "max" else distances.mean(dim=-1)
    if not root:
        return value
    apart = value > 0
    return torch.where(apart, torch.where(apart, value, 1.0) ** (1 / power), 0.0)


def _unit_mass(name: str, points: Tensor, dtype: torch.dtype, weights: Tensor | None = None) -> Tensor:
    if points.ndim < 2 or not points.shape[-2]:
        raise ValueError(f"points: expected [..., m, d] with m of at least 1, got {tuple(points.shape)}")
    if weights is None:
        return torch.full(points.shape[:-1], 1 / points.shape[-2], dtype=dtype, device=points.device)
    if check_tensor(name, weights).shape != points.shape[:-1]:
        raise ValueError(f"{name}: expected {tuple(points.shape[:-1])} as the points, got {tuple(weights.shape)}")
    total = weights.to(dtype).sum(dim=-1, keepdim=True)
    if not bool((weights >= 0).all() & (total > 0).all() & total.isfinite().all()):
        raise ValueError(f"{name}: expected numbers of at least 0, not all 0 in a set, got others")
    return weights.to(dtype) / total


def _sorted_line(points: Tensor, mass: Tensor, along: Tensor) -> tuple[Tensor, Tensor]:
    """Places ``[..., L, m]`` that rise, and the mass up to each, which ends at exactly 1."""
    places = (torch.where(mass[..., None] > 0, points.to(mass.dtype), 0.0) @ along).mT
    ranked = places.sort(dim=-1)
    level = mass[..., None, :].expand(places.shape).gather(-1, ranked.indices).cumsum(dim=-1)
    return ranked.values, level / level[..., -1:]


def _line_distance(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], power: float) -> Tensor:
    """p-th power of the distance on each line, ``[..., L]``: both quantile functions are constant between levels."""
    levels = torch.cat([one[1], other[1]], dim=-1).sort(dim=-1).values
    start = torch.cat([torch.zeros_like(levels[..., :1]), levels[..., :-1]], dim=-1)
    middle = ((start + levels) / 2).detach().contiguous()
    quantiles = []
    for places, mass in (one, other):
        at = torch.searchsorted(mass.detach().contiguous(), middle).clamp(max=places.shape[-1] - 1)
        quantiles.append(places.gather(-1, at))
    return ((levels - start) * (quantiles[0] - quantiles[1]).abs() ** power).sum(dim=-1)
