"""Miners that draw pairs at random so that all distances, or all scores, are seen."""

import math
from collections.abc import Callable, Iterator
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.blockwise import opaque_op
from vicinal.core import check_choice, register
from vicinal.core.checks import check_between, check_integer
from vicinal.miners.selection import by_rows, kept_dtype, kept_weight, measured, picked, row_blocks, some
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


@opaque_op(
    "distance_weighted",
    lambda scores, relation, weight, *_: scores.new_empty(scores.shape, dtype=kept_dtype(scores, weight)),
    random=True,
)
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


_FEW = 1 << 20
"""Of so many pairs the places and scores of a side are kept; of more they are made again when they are needed."""

_BITS = 24
"""Of a random number of float32."""


@register(
    "miner",
    "uniform_histogram",
    "random",
    family="sampled at random",
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


@opaque_op(
    "uniform_histogram",
    lambda scores, relation, weight, *_: scores.new_empty(scores.shape, dtype=kept_dtype(scores, weight)),
    random=True,
)
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
    dtype, columns = kept_dtype(scores, weight), scores.shape[1]
    weights = torch.zeros(scores.shape, dtype=dtype, device=scores.device)
    for which, limit in enumerate(limits):
        place = _flat(_Side(scores, relation, weight, which), bins, limit, generator)
        if weight is None:
            weights.view(-1)[place] = 1.0
        elif len(place):
            weights.view(-1)[place] = weight.detach()[place // columns, place % columns].to(dtype)
    return weights


class _Side:
    """Places and scores of the related or the unrelated pairs, by blocks of rows."""

    def __init__(self, scores: Tensor, relation: Tensor, weight: Tensor | None, which: int) -> None:
        self.scores, self.relation, self.weight, self.which = scores, relation, weight, which
        few = scores.numel() <= _FEW
        self.blocks = row_blocks(scores, 1 if few else 2)  # a place takes as much memory as two scores
        self.stored = [self.block(part) for part in self.blocks] if few else None

    def block(self, part: slice) -> tuple[Tensor, Tensor]:
        """Places in the block and scores."""
        scores, weight = self.scores[part], None if self.weight is None else self.weight[part]
        place = split_pairs(scores, self.relation[part], weight)[self.which].reshape(-1).nonzero()[:, 0]
        return place, measured(scores).reshape(-1).index_select(0, place)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.stored) if self.stored is not None else map(self.block, self.blocks)


def _flat(side: _Side, bins: int, limit: int, generator: torch.Generator | None) -> Tensor:
    """Places in the matrix of at most ``limit`` random pairs of each bin."""
    ends = [[float(end) for end in values.aminmax()] for _, values in side if len(values)]
    if not ends:
        return torch.zeros(0, dtype=torch.int64, device=side.scores.device)
    if any(math.isnan(low) for low, _ in ends):  # these alone, so that the loss tells of them
        columns = side.scores.shape[1]
        blocks = zip(side.blocks, side, strict=True)
        return torch.cat([place[values.isnan()] + part.start * columns for part, (place, values) in blocks])
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    step = high - low if high > low else 1.0

    def binned(values: Tensor) -> Tensor:
        return values.sub(low).div_(step).mul_(bins).int().clamp_(max=bins - 1)

    counts = torch.zeros(bins, dtype=torch.int64, device=side.scores.device)
    for _, values in side:
        counts += binned(values).bincount(minlength=bins)
    enough = 3 * limit + 16  # so many expected ones are fewer than the limit by a rare chance
    likely = enough / counts.clamp(min=1)
    mean = float(counts.clamp(max=enough).sum())
    place, key = _likely(side, binned, likely, int(mean + 8 * math.sqrt(mean)) + 1, generator)
    if bool(((key >> _BITS).bincount(minlength=bins) < counts.clamp(max=limit)).any()):
        place, key = _likely(side, binned, torch.full_like(likely, 2.0), int(counts.sum()), generator)
    ordered, order = key.sort()  # by bin, at random within it
    which = ordered >> _BITS
    number = which.bincount(minlength=bins)
    nth = torch.arange(len(order), device=order.device) - (number.cumsum(0) - number)[which]
    drawn: Tensor = place[order[nth < limit]]
    return drawn


def _likely(
    side: _Side, binned: Callable[[Tensor], Tensor], likely: Tensor, most: int, generator: torch.Generator | None
) -> Tensor:
    """Places in the matrix, and bins with random numbers, ``[2, K]``, of pairs whose number is likely for their bin.

    All are written to one tensor of the size that is expected: small ones that stay would break up the memory between
    the large ones that go. What does not fit is left out.
    """
    places, start = torch.empty(2, most, dtype=torch.int64, device=likely.device), 0
    for part, (place, values) in zip(side.blocks, side, strict=True):
        noise, which = torch.rand(len(place), generator=generator, device=place.device), binned(values)
        hits = (noise < likely.index_select(0, which)).nonzero()[: most - start, 0]
        until = start + len(hits)
        torch.add(place.index_select(0, hits), part.start * side.scores.shape[1], out=places[0, start:until])
        number = noise.index_select(0, hits).mul_(1 << _BITS).long()
        torch.add(number, which.index_select(0, hits).long(), alpha=1 << _BITS, out=places[1, start:until])
        start = until
    return places[:, :start]
