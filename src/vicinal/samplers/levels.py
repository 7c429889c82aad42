"""Noise levels, or levels of anything else with a scale, drawn from a log-normal distribution."""

import math

import torch
from torch import Tensor

from vicinal.core.checks import check_between, check_integer, check_number, check_tensor


def level_probabilities(levels: Tensor, *, mean: float = -1.1, deviation: float = 2.0) -> Tensor:
    r"""How often each step between neighboring levels is drawn: proportional to the log-normal mass in it.

    $p_i \propto \operatorname{erf}\frac{\ln \sigma_{i+1} - \mu}{\sqrt2 s} - \operatorname{erf}\frac{\ln \sigma_i -
    \mu}{\sqrt2 s}$. Song and Dhariwal, *Improved Techniques for Training Consistency Models*, arXiv:2310.14189.

    Args:
        levels: $\sigma$, ascending and above 0, ``[n]``, n >= 2.
        mean: $\mu$.
        deviation: s > 0.

    Returns:
        ``[n - 1]``, summing to 1, in at least float32.

    Raises:
        ValueError: for levels that are not ascending and above 0, or all too far from the distribution.

    >>> level_probabilities(torch.tensor([0.1, 1.0, 10.0]), mean=0.0, deviation=1.0)
    tensor([0.5000, 0.5000])
    """
    check_number("mean", mean), check_between("deviation", deviation, 0, math.inf)
    sizes = check_tensor("levels", levels).to(torch.promote_types(levels.dtype, torch.float32))
    if sizes.ndim != 1 or len(sizes) < 2 or not bool((sizes[:1] > 0).all() & (sizes.diff() > 0).all()):
        raise ValueError(f"levels: expected at least two numbers above 0 that rise, got {tuple(levels.shape)}")
    z = (sizes.double().log() - mean) / (math.sqrt(2) * deviation)
    low, high = z[:-1], z[1:]  # differences of erf lose their digits far out, those of erfc on that side do not
    below, above = torch.erfc(-high) - torch.erfc(-low), torch.erfc(low) - torch.erfc(high)
    mass = torch.where(low + high < 0, below, above)
    if not bool(mass.sum() > 0):
        raise ValueError("levels: expected some within reach of the law, got all too far from exp(mean)")
    shares: Tensor = (mass / mass.sum()).to(sizes.dtype)
    return shares


def draw_levels(
    levels: Tensor,
    count: int,
    *,
    mean: float = -1.1,
    deviation: float = 2.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Positions ``[count]`` of levels, each the lower end of a step drawn by :func:`level_probabilities`.

    >>> levels = torch.tensor([0.1, 0.2, 100.0])
    >>> draw_levels(levels, 5, mean=3.0, deviation=0.1)
    tensor([1, 1, 1, 1, 1])
    """
    shares = level_probabilities(levels, mean=mean, deviation=deviation)
    return torch.multinomial(shares, check_integer("count", count), replacement=True, generator=generator)
