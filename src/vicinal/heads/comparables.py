"""Comparables: labels of a few rows, each adjusted by what a trend says of its difference to the query."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import check_integer
from vicinal.heads.kriging import Kriging, KrigingWeights


class TrendTerms(NamedTuple):
    """What a trend says of some queries and their rows, column by column, in units of the labels.

    Attributes:
        base: what all rows get ``[b, T]``.
        columns: what each entry adds for the queries ``[b, T, c]``.
        differences: the same less that of each row ``[b, k, T, c]``.
    """

    base: Tensor
    columns: Tensor
    differences: Tensor


@register(
    "head",
    "comparables",
    "common-shift-invariant",
    "hard-rejection",
    "permutation-invariant",
    "learned",
    paper="doi:10.1016/j.cageo.2007.05.001 (regression kriging)",
    verified="numpy active-set reference, residual 1e-10; sums of explanations to 1e-9",
)
class Comparables(Kriging):
    r"""$\hat y = \sum_j w_j\, (y_j + f(q) - f(x_j)) + (1 - \sum_j w_j)\, f(q)$, $w \ge 0$, $\sum_j w_j \le 1$.

    This is how appraisers argue: the label of each comparable row, moved by what the trend f says of the difference
    between it and the query, and the trend itself for what is missing to a weight of 1. Weights are those of
    :class:`vicinal.heads.Kriging` over the k nearest rows, with a sum of at most 1: far from all rows they are 0, and
    the trend is the prediction.

    The trend is a sum over columns, $f(x) = a + u \sum_c x_c$, of the last ``targets * trend`` entries of an embedding.
    Those of a bank row should come from a fit that has not seen its label; else f(x_j) takes a share of $y_j$ away.

    Args:
        k: how many nearest rows are used, >= 1; at most that many have weight.
        scale: see :class:`vicinal.heads.Kriging`.
        noise: see there.
        trend: entries of the trend for each target, >= 1.
        targets: how many numbers a label has, >= 1.

    Attributes:
        base: a ``[T]``, in units of the labels.
        unit: u ``[T]``, units of the labels in one unit of the entries.
        log_odds: whether it is of log-odds of classes. To classes that came later it then gives those of the likeliest
            of the others, so that rows decide between these; of shares it gives 0.

    >>> rows = torch.tensor([[0.0, 10.0], [1.0, 12.0]])  # the second entry is the trend of a row
    >>> head = Comparables(k=2, trend=1, noise=1e-6)
    >>> head(torch.tensor([[0.0, 10.0]]), rows, torch.tensor([11.0, 12.0])).round().detach()
    tensor([11.])
    >>> head(torch.tensor([[99.0, 15.0]]), rows, torch.tensor([11.0, 12.0])).round().detach()
    tensor([15.])
    """

    slack = True

    def __init__(
        self, k: int = 30, *, scale: float = 1.0, noise: float = 0.3, trend: int = 1, targets: int = 1
    ) -> None:
        super().__init__(k, scale=scale, noise=noise)
        self.trend, self.targets = check_integer("trend", trend), check_integer("targets", targets)
        self.place: int | None = None  # of the one target that is meant
        self.log_odds = False
        self.base: Tensor = nn.Buffer(torch.zeros(targets, dtype=torch.float64))
        self.unit: Tensor = nn.Buffer(torch.ones(targets, dtype=torch.float64))

    def of_target(self, place: int, low: float, high: float) -> "Comparables":
        """The head of one target, whose labels 0 and 1 were ``low`` and ``high``."""
        head = copy.deepcopy(self)
        head.place = place
        head.base = low + self.base[place : place + 1] * (high - low)
        head.unit = self.unit[place : place + 1] * (high - low)
        return head

    def extra_repr(self) -> str:
        """The settings, as they are now."""
        return f"{super().extra_repr()}, trend={self.trend}, targets={self.targets}"

    def contributions(self, embeddings: Tensor) -> Tensor:
        """What each column adds to the trend ``[..., T, c]`` of embeddings ``[..., d]``, in float64."""
        last = embeddings[..., embeddings.shape[-1] - self.targets * self.trend :].double()
        each = last.reshape(*last.shape[:-1], self.targets, self.trend)
        each = each if self.place is None else each[..., self.place : self.place + 1, :]
        return each * self.unit[:, None]

    def rescale(self, factor: Tensor, offset: Tensor) -> None:
        """Make the trend say ``factor [T]`` times what it said, plus ``offset [T]``."""
        self.base.mul_(factor).add_(offset)
        self.unit.mul_(factor)

    def trend_terms(self, queries: Tensor, rows: Tensor, shares: Tensor | None) -> TrendTerms:
        """What each column adds for ``queries [b, d]``, and by what it adjusts the labels of ``rows [b, k, d]``.

        Args:
            queries: ``[b, d]``.
            rows: ``[b, k, d]``.
            shares: of the weights of these rows: see :class:`vicinal.heads.kriging.KrigingWeights`.
        """
        columns = self.contributions(queries)
        return TrendTerms(self.base.expand(len(queries), -1), columns, columns[:, None] - self.contributions(rows))

    def trend_of(self, embeddings: Tensor) -> Tensor:
        """F ``[..., T]`` of embeddings ``[..., d]``, in float64."""
        return self.base + self.contributions(embeddings).sum(dim=-1)

    def with_trend(self, local: KrigingWeights, queries: Tensor, bank: Tensor) -> KrigingWeights:
        """Weights of queries ``[b, d]`` over rows of ``bank [N, d]``, with f(q), and f(q) - f(x_j) of each row."""
        trend = self.trend_of(queries)  # [b, T]
        moves = trend[:, None] - self.trend_of(bank[local.positions.clamp(min=0)])  # [b, k, T]
        later = trend.amax(dim=1) if self.log_odds else None
        if trend.shape[1] == 1:
            trend, moves = trend[:, 0], moves[..., 0]
        return KrigingWeights(local.weights, local.positions, local.variance, trend, moves, later=later)
