"""A temperature for every pair, learned, and several views of the embeddings."""

import math

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_integer, check_matrices
from vicinal.losses.contract import NUMPY, pair_loss
from vicinal.losses.embedding import EmbeddingLoss
from vicinal.losses.logsums import softplus
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part

PAPER = "arXiv:2310.05615"


@pair_loss("amcl", "row-separable", "soft-relation", paper=PAPER, verified=NUMPY)
def amcl(
    pairs: Pairs, *, temperature: float | Tensor = 0.1, dim: int | None = None, factor: float = 0.1
) -> tuple[Part, ...]:
    r"""InfoNCE with a temperature of its own for every pair.

    $\log(1 + \sum_n e^{s_{in}/\tau_{in} - s_{ij}/\tau_{ij}})$ for each related pair, plus
    $\beta(\frac d2 \log \tau_{ij} + \frac1{\tau_{ij}})$ for each pair, each with a mean of its own.

    With one temperature for all and no ``dim`` it is :func:`nt_xent`. :class:`AdaptiveHeadsLoss` learns the
    temperatures. The paper's published code has no negatives; the contrastive part here follows its text.

    Args:
        pairs: scores, relation and weight.
        temperature: $\tau > 0$, a number or ``[b, N]``.
        dim: d, the width of the embeddings, for the second sum; None: without it.
        factor: $\beta \ge 0$.

    >>> amcl(torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]]), temperature=torch.ones(1, 3))
    tensor(1.0986)
    """
    check_between("factor", factor, 0, math.inf, closed=True)
    if isinstance(temperature, Tensor):
        if temperature.shape != pairs.scores.shape:
            raise ValueError(
                f"temperature: expected {tuple(pairs.scores.shape)} as the scores, got {tuple(temperature.shape)}"
            )
        of_pairs = temperature.to(pairs.scores.dtype)
        logits = pairs.scores / of_pairs
        against = pairs.log_sum_exp(logits, pairs.negative)
        contrast = pairs.terms(softplus(against[:, None] - logits), pairs.positive)
    else:
        check_between("temperature", temperature, 0, math.inf)
        of_pairs = pairs.scores.new_tensor(temperature)
        against = pairs.log_sum_exp(pairs.scores / temperature, pairs.negative)
        contrast = pairs.related_terms(lambda own, of_row, _: softplus(of_row(against) - own / temperature))
    if dim is None:
        return (contrast,)
    penalty = factor * (check_integer("dim", dim) / 2 * of_pairs.log() + 1 / of_pairs)
    return contrast, pairs.terms(penalty.expand_as(pairs.scores), pairs.weight)


class PairTemperature(nn.Module):
    r"""A learned temperature for each pair, $\tau_{ij} = lo + (hi - lo)\, \sigma(\phi(z_i, z_j))$, the same both ways.

    $\phi(x, y) = \frac12 (Ax \cdot By + Bx \cdot Ay) + c$ is symmetric and needs two matrix products, so any block of
    columns can be computed alone.

    Args:
        dim: width of the embeddings.
        rank: rows of A and B.
        low: lo > 0, the least temperature; the paper's 1e-5 lets single pairs rule the loss.
        high: hi > lo.
        start: the temperature of all pairs before training, between ``low`` and ``high``.

    >>> PairTemperature(2)(torch.zeros(1, 2), torch.zeros(3, 2)).detach()
    tensor([[0.2000, 0.2000, 0.2000]])
    """

    def __init__(self, dim: int, *, rank: int = 8, low: float = 0.05, high: float = 2.0, start: float = 0.2) -> None:
        super().__init__()
        check_integer("dim", dim)
        self.low = check_between("low", low, 0, math.inf)
        self.high = check_between("high", high, low, math.inf)
        share = (check_between("start", start, low, high) - low) / (high - low)
        self.left = nn.Linear(dim, check_integer("rank", rank), bias=False)
        self.right = nn.Linear(dim, rank, bias=False)
        self.level = nn.Parameter(torch.tensor(math.log(share / (1 - share))))

    def forward(self, queries: Tensor, bank: Tensor) -> Tensor:
        """Temperatures ``[b, N]`` of ``queries [b, dim]`` with ``bank [N, dim]``."""
        check_matrices(queries, bank)
        one, other = self.left(queries) @ self.right(bank).T, self.right(queries) @ self.left(bank).T
        return self.low + (self.high - self.low) * torch.sigmoid((one + other) / 2 + self.level)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"low={self.low:g}, high={self.high:g}"


class AdaptiveHeadsLoss(nn.Module):
    r"""Contrast in several learned views of the embeddings, with a temperature for each pair: :func:`amcl` of heads.

    $\frac1H \sum_h \mathrm{amcl}(s^h, \tau^h)$ with cosines $s^h_{ij}$ of the h-th projections. The projections and
    the temperatures are parameters: pass them to the optimizer. For retrieval use the embeddings, not the projections.

    Args:
        dim: width of the embeddings.
        width: width of the projections; None: ``dim``.
        heads: H >= 1.
        rank: see :class:`PairTemperature`.
        low: least temperature, > 0.
        high: largest temperature.
        factor: $\beta \ge 0$, of the penalty on the temperatures.
        criterion: an :class:`EmbeddingLoss` of "amcl", for its relation, miner or reduction; None: the defaults.

    >>> criterion = AdaptiveHeadsLoss(4, heads=2)
    >>> criterion(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        dim: int,
        width: int | None = None,
        *,
        heads: int = 3,
        rank: int = 8,
        low: float = 0.05,
        high: float = 2.0,
        factor: float = 0.1,
        criterion: EmbeddingLoss | None = None,
    ) -> None:
        super().__init__()
        self.criterion = EmbeddingLoss("amcl") if criterion is None else criterion
        if getattr(self.criterion.loss, "__name__", "") != "amcl" or self.criterion.bank is not None:
            raise ValueError("criterion: expected EmbeddingLoss('amcl', ...) without a bank")
        self.width = check_integer("dim", dim) if width is None else check_integer("width", width)
        self.factor = check_between("factor", factor, 0, math.inf, closed=True)
        number = check_integer("heads", heads)
        self.projections = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, self.width)) for _ in range(number)
        )
        start = min(0.2, (low + high) / 2) if low < 0.2 else (low + high) / 2
        self.temperatures = nn.ModuleList(
            PairTemperature(self.width, rank=rank, low=low, high=high, start=start) for _ in range(number)
        )

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        bank: Tensor | None = None,
        bank_labels: Tensor | None = None,
        *,
        ids: Tensor | None = None,
        bank_ids: Tensor | None = None,
    ) -> Tensor:
        """The loss; see :meth:`EmbeddingLoss.forward`."""
        queries, columns = self.criterion.sides(embeddings, labels, bank, bank_labels, ids=ids, bank_ids=bank_ids)
        values = []
        for project, temperature in zip(self.projections, self.temperatures, strict=True):
            rows = queries._replace(vectors=project(queries.vectors))
            others = rows if columns is queries else columns._replace(vectors=project(columns.vectors))
            values.append(
                self.criterion.loss(
                    *self.criterion.pairs(rows, others),
                    reduction=self.criterion.reduction,
                    temperature=temperature(rows.vectors, others.vectors),
                    dim=self.width,
                    factor=self.factor,
                )
            )
        return torch.stack(values).mean(dim=0)
