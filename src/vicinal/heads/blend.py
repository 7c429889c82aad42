"""The mean of two local readouts, each with a metric of its own, as one set of weighted rows."""

import copy
from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_between
from vicinal.heads.admissible import Identity, IdentityArguments
from vicinal.heads.comparables import Comparables, TrendTerms
from vicinal.heads.kriging import Kriging, KrigingWeights
from vicinal.heads.whole_bank import WholeBank


class Blend(Comparables):
    r"""$\hat y = a\, \hat y^1 + (1 - a)\, \hat y^2$ of two heads, each over its own part of the embeddings.

    It is a sum over rows again. With weights $w^m_j$ and adjusted labels $y_j + d^m_j$ of head m, $a_1 = a$ and
    $a_2 = 1 - a$,

    .. math::
        w_j = \sum_m a_m w^m_j, \qquad d_j = \frac1{w_j} \sum_m a_m w^m_j d^m_j, \qquad
        f(q) = \frac{\sum_m a_m (1 - \sum_j w^m_j)\, f^m(q)}{1 - \sum_j w_j}

    so that a row that both metrics find near stands there once, with the weights of both. Where weights may be below 0
    and nearly cancel each other, $d_j$ is large, and $w_j$ as small.

    Args:
        heads: two: :class:`Comparables`, and another one or a :class:`Kriging`.
        widths: entries of the embeddings that each of them reads, in their order.
        share: a, from 0 to 1.

    Raises:
        ValueError: for other heads.

    References:
        Bates and Granger (1969), The combination of forecasts, doi:10.1057/jors.1969.103.

    >>> head = Blend([Kriging(1, noise=1e-6), Comparables(1, noise=1e-6)], [1, 1], 0.25)
    >>> rows = torch.tensor([[0.0, 1.0], [1.0, 0.0]])  # near in the first entry, or in the second
    >>> head(torch.tensor([[0.0, 0.0]]), rows, torch.tensor([10.0, 20.0])).round(decimals=2).detach()
    tensor([17.5000])
    """

    def __init__(self, heads: Sequence[Kriging], widths: Sequence[int], share: float = 0.5) -> None:
        adjusting = [head for head in heads if isinstance(head, Comparables)]
        if len(heads) != 2 or len(widths) != 2 or not adjusting:
            got = [type(head).__name__ for head in heads]
            raise ValueError(f"heads: expected two, one of them with a trend, and their widths, got {got} and {widths}")
        trend, targets = sum(head.trend for head in adjusting), adjusting[0].targets
        super().__init__(sum(head.k for head in heads), trend=trend, targets=targets)
        self.heads, self.widths, self.convex = nn.ModuleList(heads), list(widths), all(head.convex for head in heads)
        share = check_between("share", share, 0, 1, closed=True)
        self.share: Tensor = nn.Buffer(torch.tensor(share, dtype=torch.float64))

    def extra_repr(self) -> str:
        """The share of the first head, as it is now."""
        return f"share={float(self.share):.4g}"

    def of_target(self, place: int, low: float, high: float) -> "Blend":
        """See :meth:`Comparables.of_target`."""
        head = copy.deepcopy(self)
        head.heads = nn.ModuleList(
            one.of_target(place, low, high) if isinstance(one, Comparables) else one for one in self.members()
        )
        return head

    def with_rows(self, k: int) -> "Blend":
        """The same mean over so many rows at most, of which the head that reads fewer has half at most."""
        least, most = sorted(one.k for one in self.members())
        fewer = min(least, k // 2)
        heads = [one.with_rows(min(one.k, k - fewer if one.k == most else fewer)) for one in self.members()]
        return Blend(heads, self.widths, float(self.share)).double()

    def rescale(self, factor: Tensor, offset: Tensor) -> None:
        """See :meth:`Comparables.rescale`."""
        for one in self.members():
            if isinstance(one, Comparables):
                one.rescale(factor, offset)

    def local_weights(self, queries: Tensor, bank: Tensor, **identity: Unpack[IdentityArguments]) -> KrigingWeights:
        """See :meth:`Kriging.local_weights`."""
        who, each = Identity(**identity), list[KrigingWeights]()
        for head, some, rows in zip(self.members(), self.parts(queries), self.parts(bank), strict=True):
            if head.by_one_inverse(len(bank)):
                each.append(WholeBank(head, rows, who.bank_weight).weights_of(some, who))
            else:
                each.append(head.local_weights(some, rows, **identity))
        return self.mean_of(*each)

    def mean_of(self, one: KrigingWeights, two: KrigingWeights) -> KrigingWeights:
        """The weights of the mean of what both heads predict, from the weights of each."""
        like = one if one.trend is not None else two
        first, second = _amounts(one, self.share, like), _amounts(two, 1 - self.share, like)
        order = two.positions.sort(dim=1)
        slot = torch.searchsorted(order.values, one.positions.contiguous()).clamp(max=two.positions.shape[1] - 1)
        there, at = order.values.gather(1, slot), order.indices.gather(1, slot)
        same = (there == one.positions) & (there >= 0)

        def joined(left: Tensor, right: Tensor) -> Tensor:
            """Sums ``[b, k + k', ...]`` over the rows of both; one that both have stands where the first has it."""
            wide = _as_wide(at, right).expand(*at.shape, *right.shape[2:])
            moved = right.gather(1, wide) * _as_wide(same, right)
            return torch.cat([left + moved, right.scatter_add(1, wide, -moved)], dim=1)

        weights, slack = joined(first[0], second[0]), first[2] + second[2]
        of_first = joined(first[0], torch.zeros_like(second[0])) / _some(weights)
        moves, trend = joined(first[1], second[1]), first[3] + second[3]
        gone = torch.zeros_like(two.positions).scatter_add(1, at, same.long()) > 0
        return KrigingWeights(
            weights,
            torch.cat([one.positions, two.positions.masked_fill(gone, -1)], dim=1),
            self.share * one.variance + (1 - self.share) * two.variance,
            trend / _as_wide(_some(slack), trend),
            moves / _as_wide(_some(weights), moves),
            torch.cat([of_first, (first[2] / _some(slack))[:, None]], dim=1),
            like.later,
        )

    def contributions(self, embeddings: Tensor) -> Tensor:
        """What each column adds to the trends ``[..., T, c]``, to each by its share."""
        parts = zip(self.members(), self.parts(embeddings), (self.share, 1 - self.share), strict=True)
        return torch.cat([a * head.contributions(some) for head, some, a in parts if isinstance(head, Comparables)], -1)

    def trend_terms(self, queries: Tensor, rows: Tensor, shares: Tensor | None) -> TrendTerms:
        """See :meth:`Comparables.trend_terms`; with the shares of :meth:`weights_of`."""
        if shares is None:
            raise ValueError("shares: expected those of the weights, got None")
        each = zip(self.members(), self.parts(queries), self.parts(rows), (shares, 1 - shares), strict=True)
        trended = [(head, some, near, a) for head, some, near, a in each if isinstance(head, Comparables)]
        known = [(head.trend_terms(some, near, None), a) for head, some, near, a in trended]
        return TrendTerms(
            torch.stack([terms.base * a[:, -1:] for terms, a in known]).sum(dim=0),
            torch.cat([terms.columns * a[:, -1, None, None] for terms, a in known], dim=-1),
            torch.cat([terms.differences * a[:, :-1, None, None] for terms, a in known], dim=-1),
        )

    def members(self) -> list[Kriging]:
        """The two heads."""
        return list(self.heads)  # type: ignore[arg-type]  # modules

    def parts(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        """What each head reads of embeddings ``[..., d]``."""
        return torch.split(embeddings, self.widths, dim=-1)


def _amounts(local: KrigingWeights, share: Tensor, like: KrigingWeights) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights by a share of the prediction, what they move it by, the trend's own weight, and what that adds."""
    weights = share * local.weights
    if like.trend is None or like.moves is None:
        raise ValueError("heads: expected one with a trend, got none")
    if local.trend is None or local.moves is None:
        slack = weights.new_zeros(len(weights))
        return weights, weights.new_zeros(*weights.shape, *like.moves.shape[2:]), slack, torch.zeros_like(like.trend)
    slack = share * (1 - local.weights.sum(dim=1)).clamp(min=0)
    return weights, _as_wide(weights, local.moves) * local.moves, slack, _as_wide(slack, local.trend) * local.trend


def _as_wide(values: Tensor, like: Tensor) -> Tensor:
    """Values ``[b, ...]`` with as many dimensions as another tensor."""
    return values.reshape(*values.shape, *[1] * (like.ndim - values.ndim))


def _some(weights: Tensor) -> Tensor:
    """Weights that may be divided by: 1 for none, of which nothing is left."""
    return torch.where(weights != 0, weights, 1.0)
