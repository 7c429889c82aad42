"""Miners that draw pairs at random so that all distances, or all scores, are seen."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.blockwise import opaque_op
from vicinal.core import check_choice, register
from vicinal.core.checks import check_between, check_integer
from vicinal.miners.selection import by_rows, kept_like, kept_weight, measured, picked, some
from vicinal.ranks.pairs import check_relation, split_pairs

Scale = Literal["cosine", "l2", "squared_l2"]


def squared_distance(scores: Tensor, scale: str) -> Tensor:
    """Squared distances of directions from their scores: cosine, or negative (squared) Euclidean distances."""
    if scale == "cosine":
        return scores.mul(-2).add_(2).clamp_(min=0)
    return scores.square() if scale == "l2" else -scores


def log_density(distance: Tensor, dim: int) -> Tensor:
    r"""Log density, up to a constant, of the distance of two random directions in ``dim`` dimensions.

    $\log q(d) = (n - 2) \log d + \frac{n - 3}{2} \log(1 - d^2 / 4)$.

    >>> log_density(torch.tensor([1.0]), 3)
    tensor([0.])
    """
    rest = (1 - distance.square() / 4).clamp(min=torch.finfo(distance.dtype).eps)
    return (dim - 2) * distance.log() + (dim - 3) / 2 * rest.log()


@register(
    "miner",
    "distance_weighted",
    "permutation-invariant",
    "row-separable",
    "random",
    family="sampled at random",
    paper="arXiv:1706.07567",
    verified="numpy in float64",
)
@torch.no_grad()
def distance_weighted(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    dim: int,
    scale: Scale = "cosine",
    cutoff: float = 0.5,
    farthest: float = 1.4,
    draws: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draws unrelated pairs so that all distances are about equally frequent.

    An unrelated pair at distance $d$ is drawn with probability proportional to $1 / q(\max(d, c))$, where $q$ is the
    density of the distance between random directions, see :func:`log_density`; pairs farther than ``farthest`` are not
    drawn, unless a query has no others. Drawn without replacement; related pairs are always kept.

    Args:
        scores: ``[b, N]``, of directions (rows of length 1).
        relation: ``[b, N]``, above 0 = related.
        weight: ``[b, N]`` or None; pairs of weight 0 are ignored.
        dim: width of the embeddings, >= 2.
        scale: what the scores are: "cosine", "l2" or "squared_l2" (negative distances).
        cutoff: $c$; smaller distances count as this one.
        farthest: distance beyond which pairs are not drawn.
        draws: number of unrelated pairs for each query; None: as many as it has related ones.
        generator: source of random numbers on the device of the scores.

    Returns:
        ``[b, N]``: ``weight`` where a pair was kept, else 0.

    >>> g = torch.Generator().manual_seed(0)
    >>> distance_weighted(torch.tensor([[0.9, 0.5, -0.9]]), torch.tensor([[1, 0, 0]]), dim=8, generator=g)
    tensor([[1., 1., 0.]])
    """
    width = check_integer("dim", dim, 2)
    near = check_between("cutoff", cutoff, 0, 2)
    far = check_between("farthest", farthest, near, math.inf)
    check_choice("scale", scale, get_args(Scale))
    number = None if draws is None else check_integer("draws", draws)
    check_relation(scores, relation, weight)
    if generator is None:
        return _node(scores, relation, weight, width, scale, near, far, number)
    return _drawn(scores, relation, weight, width, scale, near, far, number, generator=generator)


@by_rows
def _drawn(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None,
    width: int,
    scale: str,
    near: float,
    far: float,
    draws: int | None,
    *,
    generator: torch.Generator | None = None,
) -> Tensor:
    related, unrelated = split_pairs(scores, relation, weight)
    distance = squared_distance(measured(scores), scale).clamp_(min=0).sqrt_()
    within = unrelated & (distance <= far)
    allowed = unrelated & (within | ~some(within))
    preference = log_density(distance.clamp_(min=near), width).neg_()
    noise = torch.rand(scores.shape, generator=generator, device=scores.device, dtype=distance.dtype)
    tiny = torch.finfo(noise.dtype).tiny
    gumbel = noise.clamp_(min=tiny).log_().neg_().clamp_(min=tiny).log_().neg_()
    number = related.sum(dim=1)
    if draws is not None:
        number.fill_(draws)
    return kept_weight(scores, weight, related | picked(preference.add_(gumbel), allowed, number))


@opaque_op("distance_weighted", kept_like, random=True)
def _node(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None,
    width: int,
    scale: str,
    near: float,
    far: float,
    draws: int | None,
) -> Tensor:
    """By torch's own random numbers: a node of a graph takes no generator."""
    return _drawn(scores, relation, weight, width, scale, near, far, draws)


_SPARE = 16
"""Pairs of a bin that are drawn beyond three times those needed; so many are fewer than needed by a rare chance."""

_BITS = 24
"""Of a random number of float32."""


@register("miner", "uniform_histogram", "random", family="sampled at random", verified="numpy in float64")
@torch.no_grad()
def uniform_histogram(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    bins: int = 100,
    positives: int = 10,
    negatives: int = 10,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draws pairs of the whole batch so that the histogram of their scores is as flat as it can be.

    The range of the scores of related pairs is cut into ``bins`` equal bins and at most ``positives`` pairs of each are
    drawn; the same for unrelated pairs.

    Args:
        scores: ``[b, N]``.
        relation: ``[b, N]``, above 0 = related.
        weight: ``[b, N]`` or None; pairs of weight 0 are ignored.
        bins: number of bins, >= 1.
        positives: related pairs of a bin, >= 1.
        negatives: unrelated pairs of a bin, >= 1.
        generator: source of random numbers on the device of the scores.

    Returns:
        ``[b, N]``: ``weight`` where a pair was drawn, else 0.

    >>> uniform_histogram(torch.tensor([[0.9, 0.8, 0.1, 0.2]]), torch.tensor([[1, 1, 0, 0]]), bins=2)
    tensor([[1., 1., 1., 1.]])
    """
    number = check_integer("bins", bins)
    limits = check_integer("positives", positives), check_integer("negatives", negatives)
    check_relation(scores, relation, weight)
    if generator is None:
        return _drawn_evenly(scores, relation, weight, number, *limits)
    return _weights(scores, relation, weight, number, limits, generator)


@opaque_op("uniform_histogram", kept_like, random=True)
def _drawn_evenly(
    scores: Tensor, relation: Tensor, weight: Tensor | None, bins: int, positives: int, negatives: int
) -> Tensor:
    """By torch's own random numbers: a node of a graph takes no generator."""
    return _weights(scores, relation, weight, bins, (positives, negatives), None)


def _weights(
    scores: Tensor,
    relation: Tensor,
    weight: Tensor | None,
    bins: int,
    limits: tuple[int, int],
    generator: torch.Generator | None,
) -> Tensor:
    """The weight of the pairs of both sides that were drawn, ``[b, N]``."""
    drawn = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    values = measured(scores).reshape(-1)
    for side, limit in zip(split_pairs(scores, relation, weight), limits, strict=True):
        place = side.reshape(-1).nonzero()[:, 0]
        if len(place) and not bool(values[place].isnan().any()):  # which are kept alone, so that the loss tells of them
            drawn.view(-1)[place[_evenly(values[place], bins, limit, generator)]] = True
    return kept_weight(scores, weight, drawn)


def _evenly(values: Tensor, bins: int, limit: int, generator: torch.Generator | None) -> Tensor:
    """Places of at most ``limit`` random ``values [P]`` of each bin."""
    low, high = values.aminmax()
    step = torch.where(high > low, high - low, 1.0)
    which = values.sub(low).div_(step).mul_(bins).int().clamp_(max=bins - 1)
    counts = which.bincount(minlength=bins)
    noise = torch.rand(len(which), generator=generator, device=which.device)
    likely = (3 * limit + _SPARE) / counts.clamp(min=1)
    place = (noise < likely[which]).nonzero()[:, 0]
    if bool((which[place].bincount(minlength=bins) < counts.clamp(max=limit)).any()):
        place = torch.arange(len(which), device=which.device)
    bin_of = which[place].long()
    order = ((bin_of << _BITS) + noise[place].mul_(1 << _BITS).long()).argsort()  # by bin, at random within it
    number = bin_of.bincount(minlength=bins)
    ranked = bin_of[order]
    nth = torch.arange(len(order), device=order.device) - (number.cumsum(0) - number)[ranked]
    return place[order[nth < limit]]
