"""Mixed rows: which rows are mixed, in which shares, and what the mixtures are related to."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from scipy.special import betaincinv
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer


@dataclass(frozen=True)
class Mixture:
    r"""Rows $v_m = \lambda_m x_{i_m} + (1 - \lambda_m) x_{j_m}$ of a batch, at any level of a network.

    ``rows`` mixes inputs, features of a layer or embeddings; ``relation`` says how related the mixed rows are, so any
    pair loss with soft relations accepts them as further columns. No labels are needed beyond the relation.

    Attributes:
        first: i, whole numbers ``[M]``, positions of rows.
        second: j, whole numbers ``[M]``.
        share: $\lambda$ ``[M]`` in [0, 1], the share of the first.
        size: n, the number of rows in the batch.

    Raises:
        TypeError: for positions that are not whole numbers.
        ValueError: for other shapes, a share outside [0, 1], or a position outside the batch.

    >>> mixture = Mixture(torch.tensor([0]), torch.tensor([2]), torch.tensor([0.75]), 3)
    >>> mixture.rows(torch.tensor([[4.0, 0.0], [9.0, 9.0], [0.0, 4.0]]))
    tensor([[3., 1.]])
    >>> mixture.relation(torch.tensor([[1.0, 1.0, 0.0]]))
    tensor([[0.7500]])
    """

    first: Tensor
    second: Tensor
    share: Tensor
    size: int

    def __post_init__(self) -> None:
        for name, value in (("first", self.first), ("second", self.second)):
            if value.is_floating_point() or value.dtype == torch.bool:
                raise TypeError(f"{name}: expected whole numbers, got {value.dtype}")
            if value.ndim != 1 or value.shape != self.share.shape:
                raise ValueError(
                    f"{name}: expected one row for each of the shares {tuple(self.share.shape)}, got "
                    f"{tuple(value.shape)}"
                )
            if torch.compiler.is_compiling():
                continue
            outside = (value < 0) | (value >= self.size)
            if bool(outside.any()):
                raise ValueError(f"{name}: expected rows 0 to {self.size - 1}, got {int(value[outside][0])}")
        if not torch.compiler.is_compiling():
            wrong = ~((self.share >= 0) & (self.share <= 1))
            if bool(wrong.any()):
                raise ValueError(f"share: expected numbers from 0 to 1, got {float(self.share[wrong][0]):g}")

    def __len__(self) -> int:
        return len(self.first)

    def rows(self, values: Tensor) -> Tensor:
        """Mix rows.

        Args:
            values: ``[n, ...]``, floating: inputs, features, embeddings, or labels as 0/1 ``[n, C]``.

        Returns:
            ``[M, ...]``. Mixed embeddings no longer have length 1, which does not matter for the cosine.
        """
        if not values.is_floating_point():
            raise TypeError(f"values: expected a floating dtype, got {values.dtype}; labels go in one-hot")
        self._check("values", values, 0)
        share = self.share.to(values.device, values.dtype).view(-1, *[1] * (values.ndim - 1))
        first, second = self.first.to(values.device), self.second.to(values.device)
        return share * values[first] + (1 - share) * values[second]

    def relation(self, relation: Tensor) -> Tensor:
        r"""How related things are to the mixed rows, $t_{am} = \lambda r_{ai} + (1 - \lambda) r_{aj}$.

        Args:
            relation: ``[b, n]``, to the rows themselves.

        Returns:
            ``[b, M]``.
        """
        self._check("relation", relation, 1)
        share = self.share.to(relation.device, relation.dtype)
        first, second = self.first.to(relation.device), self.second.to(relation.device)
        return share * relation[:, first] + (1 - share) * relation[:, second]

    def weight(self, weight: Tensor, *, with_anchor: bool = False) -> Tensor:
        """Weights of the mixed rows: the lower weight of the two sources, so that both must count.

        A source of share 0 is not in the mixture and does not matter.

        Args:
            weight: ``[b, n]``, of the rows themselves; 0 for the query itself.
            with_anchor: the first sources are the queries themselves, so only the second must count.

        Returns:
            ``[b, M]``.
        """
        self._check("weight", weight, 1)
        share = self.share.to(weight.device)
        first, second = self.first.to(weight.device), self.second.to(weight.device)
        of_first = torch.where((share > 0) & (not with_anchor), weight[:, first], 1.0)
        return torch.minimum(of_first, torch.where(share < 1, weight[:, second], 1.0)).to(weight.dtype)

    def _check(self, name: str, value: Tensor, dim: int) -> None:
        if value.ndim <= dim or value.shape[dim] != self.size:
            expected = f"[{self.size}, ...]" if dim == 0 else f"[b, {self.size}]"
            raise ValueError(f"{name}: expected {expected}, the rows that are mixed, got {tuple(value.shape)}")


Kind = Literal["positive-negative", "anchor-negative", "positive-positive"]


def draw_shares(number: int, alpha: float = 2.0, *, generator: torch.Generator | None = None) -> Tensor:
    r"""Shares $\lambda \sim \mathrm{Beta}(\alpha, \alpha)$, ``[number]`` on the CPU.

    Args:
        number: of shares, >= 0.
        alpha: > 0; 1 is uniform, larger values keep the shares near one half.
        generator: on the CPU; None: torch's own.

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
    """Draw rows to mix for each row of a batch: a related row or the row itself with an unrelated one, or two related.

    A row without the rows needed gets none; two related rows may be the same. Every mixed row is a column for all rows
    of the batch.

    Args:
        relation: ``[n, n]`` of a batch with itself; above 0 = related.
        weight: ``[n, n]``; pairs of weight 0 (such as a row and itself) are not drawn. None: all but the diagonal.
        kind: "positive-negative", "anchor-negative" or "positive-positive".
        per_row: mixed rows for each row of the batch.
        scores: ``[n, n]``, needed with ``nearest``.
        nearest: draw unrelated rows only from this many of highest score, the hard ones; None: from all.
        alpha: of the Beta distribution of the shares, > 0.
        generator: on the CPU; None: torch's own.

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
    itself = torch.eye(len(relation), dtype=torch.bool)
    sources = {"positive-negative": (related, hard), "anchor-negative": (itself, hard)}
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
    ranked = torch.where(among, scores.detach().cpu().float(), -torch.inf)
    lowest = ranked.topk(min(check_integer("nearest", number), among.shape[1]), dim=1).values[:, -1:]
    return among & (ranked >= lowest)


def _drawn(among: Tensor, number: int, generator: torch.Generator | None) -> Tensor:
    """``number`` columns for each row, drawn from those ``among``, row after row; each row has some."""
    places = among.cumsum(dim=1, dtype=torch.int32)  # how many there are up to each column
    chosen = torch.rand(len(among), number, generator=generator, dtype=torch.float64) * places[:, -1:]
    return torch.searchsorted(places, chosen.floor().to(torch.int32), right=True).flatten()
