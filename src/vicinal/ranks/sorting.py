"""Sorting networks whose swaps are smooth, or exact with a smooth gradient."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_scores

Network = Literal["odd_even", "bitonic"]
Swap = Literal["cauchy", "logistic", "logistic_phi", "gaussian", "reciprocal", "optimal"]

_POWER = 0.25
"""Of the difference that "logistic_phi" divides by."""


class SortedScores(NamedTuple):
    """``values [b, n]``, rising, and ``permutation [b, n, n]``: how much of column i stands at place j."""

    values: Tensor
    permutation: Tensor


def soft_sort(
    scores: Tensor,
    *,
    network: Network = "odd_even",
    swap: Swap = "cauchy",
    steepness: float = 10.0,
    exact: bool = True,
) -> SortedScores:
    r"""Scores in rising order by a network of swaps, with a gradient that says how places would change.

    A swap of a and b gives $\alpha a + (1 - \alpha) b$ and $(1 - \alpha) a + \alpha b$ with $\alpha = \sigma(\beta (b -
    a))$. Smooth swaps pull values together, more so in larger networks; ``exact`` swaps are hard in the forward pass,
    $\alpha \in \{0, 1\}$, and have the gradient of smooth ones at hard inputs.

    Args:
        scores: ``[b, n]``.
        network: "odd_even", n layers, or "bitonic", about $(\log_2 n)^2 / 2$.
        swap: $\sigma$: "cauchy" $\arctan(v) / \pi + \frac 1 2$; "logistic"; "logistic_phi", of
            $v / |b - a|^{1/4}$; "gaussian", its distribution; "reciprocal" $(v / (2 + |v|) + 1) / 2$; "optimal"
            $v + \frac 1 2$ up to $|v| = \frac 1 4$ and then as $1 / (16 |v|)$ to its limit.
        steepness: $\beta > 0$.
        exact: swap exactly in the forward pass; if False, values are only nearly sorted.

    Returns:
        Sorted values, and a permutation with ``values = scores @ permutation``, rows and columns of which sum to 1.

    Papers: arXiv:2105.04019, arXiv:2310.07174.

    >>> soft_sort(torch.tensor([[2.0, 3.0, 1.0]])).values
    tensor([[1., 2., 3.]])
    """
    check_scores(scores)
    check_choice("swap", swap, get_args(Swap))
    check_between("steepness", steepness, 0, math.inf)
    layers = network_layers(scores.shape[1], network)
    values = scores.to(torch.promote_types(scores.dtype, torch.float32))
    wires = torch.eye(scores.shape[1], dtype=values.dtype, device=values.device).expand(len(scores), -1, -1)
    state = torch.cat([values[:, None], wires], dim=1)  # [b, 1 + n, n]: what is swapped together
    for layer in layers:
        first, second = (torch.tensor(each, device=state.device) for each in zip(*layer, strict=True))
        a, b = state[..., first], state[..., second]
        gap = b[:, :1] - a[:, :1]
        smooth = _SWAPS[swap](steepness * gap, gap)
        low, high = b + smooth * (a - b), a + smooth * (b - a)
        if exact:
            stays = torch.where(first < second, gap >= 0, gap > 0)  # of equal values the upper wire's is the lower
            low = torch.where(stays, a, b).detach() + (low - low.detach())
            high = torch.where(stays, b, a).detach() + (high - high.detach())
        state = state.index_copy(-1, first, low).index_copy(-1, second, high)
    return SortedScores(state[:, 0], state[:, 1:])


def _optimal(v: Tensor, _: Tensor) -> Tensor:
    far = v.abs() > 0.25
    tail = 1 / (16 * torch.where(far, v.abs(), 1.0))
    return torch.where(far, torch.where(v > 0, 1 - tail, tail), v + 0.5)


def _logistic_phi(v: Tensor, gap: Tensor) -> Tensor:
    return torch.sigmoid(v / (gap.abs() + 1e-10) ** _POWER)


_SWAPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cauchy": lambda v, _: v.atan() / math.pi + 0.5,
    "logistic": lambda v, _: v.sigmoid(),
    "logistic_phi": _logistic_phi,
    "gaussian": lambda v, _: torch.special.ndtr(v),
    "reciprocal": lambda v, _: 0.5 * (v / (2 + v.abs()) + 1),
    "optimal": _optimal,
}


def network_layers(count: int, network: str) -> list[list[tuple[int, int]]]:
    """Layers of a network that sorts ``count`` wires: pairs of wires, of which the first gets the lower value.

    A bitonic network is that of the next power of two without its first wires.

    >>> network_layers(3, "odd_even")
    [[(0, 1)], [(1, 2)], [(0, 1)]]
    """
    check_choice("network", network, get_args(Network))
    if network == "odd_even":
        layers = [[(i, i + 1) for i in range(layer % 2, count - 1, 2)] for layer in range(count)]
        return [layer for layer in layers if layer]
    blocks = max(0, math.ceil(math.log2(max(count, 1))))
    size = 2**blocks
    layers = []
    for block in range(blocks):
        for step in (2**k for k in range(block, -1, -1)):
            pairs = [(i, i + step) for i in range(size) if not i & step]
            rising = [pair if not pair[0] & (2 << block) else pair[::-1] for pair in pairs]
            left = size - count
            layers.append([(a - left, b - left) for a, b in rising if min(a, b) >= left])
    return [layer for layer in layers if layer]
