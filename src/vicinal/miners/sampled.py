"""Miners that draw pairs at random so that all scores are seen."""

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice, check_integer, register
from vicinal.miners.selection import by_rows, kept_weight, measured, picked, row_blocks
from vicinal.ranks import check_relation, split_pairs

Scale = Literal["cosine", "l2", "squared_l2"]


def squared_distance(scores: Tensor, scale: str) -> Tensor:
    """Squared distances of directions from their scores: cosine, or negative (squared) Euclidean distances."""
    if scale == "cosine":
        return (2 - 2 * scores).clamp(min=0)
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
    paper="arXiv:1706.07567",
    verified="numpy in float64",
)
@torch.no_grad()
@by_rows
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
    density of the distance of random directions, see :func:`log_density`; pairs farther than ``farthest`` are not
    drawn, unless a query has no others. Drawn without replacement; related pairs are always kept.

    Args:
        scores: ``[b, N]``, of directions (rows of length 1).
        relation: ``[b, N]``, above 0 = related.
        weight: ``[b, N]`` or None; pairs of weight 0 are not looked at.
        dim: width of the embeddings, >= 2.
        scale: what the scores are: "cosine", "l2" or "squared_l2" (negative distances).
        cutoff: $c$, distances below it are treated as it.
        farthest: distance beyond which pairs are not drawn.
        draws: unrelated pairs of each query, or None for as many as it has related ones.
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
    related, unrelated = split_pairs(scores, relation, weight)
    distance = squared_distance(measured(scores), scale).clamp(min=0).sqrt()
    preference = -log_density(distance.clamp(min=near), width)
    within = unrelated & (distance <= far)
    allowed = torch.where(within.any(dim=1, keepdim=True), within, unrelated)
    noise = torch.rand(scores.shape, generator=generator, device=scores.device, dtype=distance.dtype)
    tiny = torch.finfo(noise.dtype).tiny
    gumbel = -(-noise.clamp(min=tiny).log()).clamp(min=tiny).log()
    number = (
        related.sum(dim=1)
        if draws is None
        else torch.full_like(related[:, :1].sum(dim=1), check_integer("draws", draws))
    )
    return kept_weight(scores, weight, related | picked(preference + gumbel, allowed, number))


@register(
    "miner",
    "uniform_histogram",
    "random",
    verified="numpy in float64",
)
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
        weight: ``[b, N]`` or None; pairs of weight 0 are not looked at.
        bins: how many bins, >= 1.
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
    chosen = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    for which, limit in enumerate(limits):

        def side(part: slice, which: int = which) -> tuple[Tensor, Tensor]:
            """Places in the block and scores of the pairs of one side."""
            among = split_pairs(scores[part], relation[part], None if weight is None else weight[part])[which]
            place = among.reshape(-1).nonzero()[:, 0]
            return place, measured(scores[part]).reshape(-1)[place]

        chosen.view(-1)[_flat(scores, side, number, limit, generator)] = True
    return kept_weight(scores, weight, chosen)


def _flat(
    scores: Tensor,
    side: Callable[[slice], tuple[Tensor, Tensor]],
    bins: int,
    limit: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Places in the matrix of at most ``limit`` random pairs of each bin, gone through by blocks of rows."""
    blocks = row_blocks(scores)
    ends = [values.aminmax() for _, values in map(side, blocks) if len(values)]
    if not ends:
        return torch.zeros(0, dtype=torch.int64, device=scores.device)
    low, high = torch.stack([end.min for end in ends]).min(), torch.stack([end.max for end in ends]).max()
    step = torch.where(high > low, high - low, torch.ones_like(high))

    def binned(values: Tensor) -> Tensor:
        return ((values - low) / step * bins).long().clamp(max=bins - 1)

    counts = torch.stack([binned(side(part)[1]).bincount(minlength=bins) for part in blocks]).sum(0)
    share = (4 * limit + 16) / counts.clamp(min=1)  # lower numbers than this hold the limit lowest but by a rare chance
    for likely in (share, torch.full_like(share, 2.0)):
        place, which, drawn = _drawn(scores, side, binned, likely, generator)
        if not bool((which.bincount(minlength=bins) < counts.clamp(max=limit)).any()):
            break
    kept = which.bincount(minlength=bins)
    shuffled = drawn.argsort()
    order = shuffled[which[shuffled].argsort(stable=True)]  # by bin, at random within it
    nth = torch.arange(len(order), device=order.device) - (kept.cumsum(0) - kept)[which[order]]
    return place[order[nth < limit]]


def _drawn(
    scores: Tensor,
    side: Callable[[slice], tuple[Tensor, Tensor]],
    binned: Callable[[Tensor], Tensor],
    likely: Tensor,
    generator: torch.Generator | None,
) -> tuple[Tensor, ...]:
    """Places, bins and random numbers of the pairs whose number is below what is likely for their bin."""
    found = []
    for part in row_blocks(scores):
        place, values = side(part)
        noise = torch.rand(len(place), generator=generator, device=scores.device)
        which = binned(values)
        kept = (noise < likely[which]).nonzero()[:, 0]
        found.append((place[kept] + part.start * scores.shape[1], which[kept], noise[kept]))
    return tuple(torch.cat(each) for each in zip(*found, strict=True))
