"""Which rows to mix: drawn for each query from its related and unrelated rows."""

import math
from typing import Literal, get_args

import torch
from scipy.special import betaincinv
from torch import Tensor

from vicinal.core import check_between, check_choice, check_integer
from vicinal.mixing.mixture import Mixture

Kind = Literal["positive-negative", "anchor-negative", "positive-positive"]


def draw_shares(number: int, alpha: float = 2.0, *, generator: torch.Generator | None = None) -> Tensor:
    r"""Shares $\lambda \sim \mathrm{Beta}(\alpha, \alpha)$, ``[number]`` on the CPU.

    Args:
        number: how many, >= 0.
        alpha: > 0; 1 is uniform, more keeps the shares near one half.
        generator: of the CPU; None: torch's own.

    >>> draw_shares(2, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([2])
    """
    check_integer("number", number, 0)
    check_between("alpha", alpha, 0, math.inf)
    uniform = torch.rand(number, generator=generator, dtype=torch.float64)
    return torch.from_numpy(betaincinv(alpha, alpha, uniform.numpy())).to(torch.get_default_dtype())


def draw_mixture(
    relation: Tensor,
    weight: Tensor | None = None,
    *,
    kind: Kind = "positive-negative",
    per_row: int = 1,
    scores: Tensor | None = None,
    nearest: int | None = None,
    alpha: float = 2.0,
    generator: torch.Generator | None = None,
) -> Mixture:
    """For each row of a batch, rows to mix: a related or the row itself with an unrelated one, or two related ones.

    A row that lacks what is needed gets none. Every mixed row is a column for all rows of the batch.

    Args:
        relation: ``[n, n]`` of a batch with itself; above 0 = related.
        weight: ``[n, n]``; pairs of weight 0 are not drawn (a row and itself). None: all but the diagonal.
        kind: "positive-negative", "anchor-negative" or "positive-positive".
        per_row: mixed rows for each row of the batch.
        scores: ``[n, n]``, with ``nearest``.
        nearest: draw unrelated rows from so many of highest score only, the hard ones; None: from all.
        alpha: of the Beta distribution of the shares, > 0.
        generator: of the CPU; None: torch's own.

    Returns:
        a mixture of at most ``n * per_row`` rows.

    >>> same = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> mixture = draw_mixture(same)
    >>> mixture.first.tolist(), mixture.second.tolist()
    ([1, 0], [2, 2])
    """
    check_choice("kind", kind, get_args(Kind))
    check_integer("per_row", per_row)
    if relation.ndim != 2 or relation.shape[0] != relation.shape[1]:
        raise ValueError(f"relation: expected [n, n] of a batch with itself, got {tuple(relation.shape)}")
    counted = _counted(relation, weight)
    related, unrelated = counted & (relation > 0).cpu(), counted & (relation <= 0).cpu()
    hard = unrelated if nearest is None else _highest(scores, unrelated, nearest)
    own = torch.eye(len(relation), dtype=torch.bool)
    sources = {"positive-negative": (related, hard), "anchor-negative": (own, hard)}
    first, second = sources.get(kind, (related, related))
    usable = (first.any(dim=1) & second.any(dim=1)).nonzero()[:, 0]
    one, other = (_drawn(side[usable], per_row, generator).to(relation.device) for side in (first, second))
    shares = draw_shares(len(one), alpha, generator=generator).to(relation.device)
    return Mixture(one, other, shares, len(relation))


def _counted(relation: Tensor, weight: Tensor | None) -> Tensor:
    if weight is None:
        return ~torch.eye(len(relation), dtype=torch.bool)
    if weight.shape != relation.shape:
        raise ValueError(f"weight: expected {tuple(relation.shape)} as the relation, got {tuple(weight.shape)}")
    return (weight > 0).cpu()


def _highest(scores: Tensor | None, among: Tensor, number: int) -> Tensor:
    if scores is None or scores.shape != among.shape:
        shape = None if scores is None else tuple(scores.shape)
        raise ValueError(f"scores: expected {tuple(among.shape)} with nearest, got {shape}")
    kept = torch.where(among, scores.detach().cpu().float(), -torch.inf)
    lowest = kept.topk(min(check_integer("nearest", number), among.shape[1]), dim=1).values[:, -1:]
    return among & (kept >= lowest)


def _drawn(among: Tensor, number: int, generator: torch.Generator | None) -> Tensor:
    """``number`` columns for each row, from those ``among``, one row after the other; each row has some."""
    places = among.cumsum(dim=1, dtype=torch.int32)  # how many there are up to each column
    chosen = torch.rand(len(among), number, generator=generator, dtype=torch.float64) * places[:, -1:]
    return torch.searchsorted(places, chosen.floor().to(torch.int32), right=True).flatten()
