"""Cosines of angles that are shifted or multiplied, without the infinite slope of the arc cosine at +-1."""

import math

import torch
from torch import Tensor


def shifted_cosine(cosine: Tensor, shift: float) -> Tensor:
    r"""$\cos(\theta + a) = \cos\theta \cos a - \sin\theta \sin a$ for $\theta = \arccos$ of ``cosine``.

    Cosines are clamped to [-1, 1]; where they are -1 or 1 the sine is taken as 0 with slope 0.

    >>> shifted_cosine(torch.tensor([0.5, 0.0]), math.pi / 2)
    tensor([-0.8660, -1.0000])
    """
    cosine = cosine.clamp(-1, 1)
    square = (1 - cosine) * (1 + cosine)
    inside = square > 0
    sine = torch.where(inside, torch.where(inside, square, 1.0).sqrt(), 0.0)
    return cosine * math.cos(shift) - sine * math.sin(shift)


def falling_cosine(cosine: Tensor, margin: float) -> Tensor:
    r"""$\cos(\theta + m)$, and $\cos\theta - m \sin m$ beyond $\theta = \pi - m$, where it would rise again.

    >>> falling_cosine(torch.tensor([0.0, -1.0]), math.pi / 2)
    tensor([-1.0000, -2.5708])
    """
    beyond = cosine < -math.cos(margin)
    return torch.where(beyond, cosine.clamp(-1, 1) - margin * math.sin(margin), shifted_cosine(cosine, margin))


def multiplied_cosine(cosine: Tensor, times: int) -> Tensor:
    r"""$(-1)^k \cos(m\theta) - 2k$ for $\theta \in [k\pi/m, (k+1)\pi/m]$: falls from 1 to 1 - 2m as the angle grows.

    >>> multiplied_cosine(torch.tensor([1.0, 0.0, -1.0]), 4)
    tensor([ 1., -3., -7.])
    """
    cosine = cosine.clamp(-1, 1)
    last, now = torch.ones_like(cosine), cosine
    for _ in range(times - 1):  # cos((n+1)t) = 2 cos t cos nt - cos((n-1)t)
        last, now = now, 2 * cosine * now - last
    with torch.no_grad():
        turns = (torch.acos(cosine) * times / math.pi).floor().clamp(max=times - 1)
        sign = 1 - 2 * (turns % 2)
    return sign * now - 2 * turns
