"""A criterion that also sees mixed rows."""

import math
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer, check_matrices
from vicinal.losses.cross_batch import LabelledEmbeddings
from vicinal.losses.embedding import EmbeddingLoss, relation_of
from vicinal.mixing import Mixture, draw_mixture
from vicinal.mixing.mixture import Kind
from vicinal.relation.pairs import other_rows


class MixedLoss(nn.Module):
    r"""A criterion plus the same loss of the batch against mixed rows, $\ell + w\, \tilde\ell$ (Metrix).

    The mixed rows are columns whose relation is mixed in the same shares, so any loss with soft relations accepts them.
    By default embeddings are mixed. To mix inputs, or features of a layer:

    .. code-block:: python

        mixture = criterion.draw(labels)
        mixed = encoder(mixture.rows(images))
        loss = criterion(encoder(images), labels, mixture=mixture, mixed=mixed)

    Against proxies no module is needed: ``ProxyLoss(...)(mixture.rows(embeddings), mixture.rows(one_hot))``.

    Args:
        criterion: an :class:`EmbeddingLoss` whose loss takes soft relations. Its miner chooses clean pairs only.
        factor: w >= 0.
        kind: which rows are mixed: "positive-negative", "anchor-negative" or "positive-positive".
        per_row: mixed rows for each row of the batch.
        nearest: mix only this many unrelated rows, those of highest score (the hard ones); None: any.
        alpha: of the Beta distribution of the shares, > 0.
        generator: on the CPU, for the draws; with ``gather`` all processes need the same seed.

    >>> criterion = MixedLoss(EmbeddingLoss("metrix"), generator=torch.Generator().manual_seed(0))
    >>> criterion(torch.eye(4)[[0, 0, 1, 2]], torch.tensor([0, 0, 1, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        criterion: EmbeddingLoss,
        *,
        factor: float = 0.4,
        kind: Kind = "positive-negative",
        per_row: int = 1,
        nearest: int | None = None,
        alpha: float = 2.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(criterion, EmbeddingLoss):
            raise TypeError(f"criterion: expected an EmbeddingLoss, got {type(criterion).__name__}")
        if criterion.facts and ("soft-relation" not in criterion.facts or "square" in criterion.facts):
            raise ValueError(
                "criterion: expected a loss that takes soft relations and columns other than its rows, got "
                f"{getattr(criterion.loss, '__name__', criterion.loss)}; 'metrix' has the forms of many losses"
            )
        self.criterion, self.generator = criterion, generator
        self.factor = check_between("factor", factor, 0, float("inf"), closed=True)
        self.kind: Kind = kind
        check_choice("kind", kind, get_args(Kind))
        self.per_row, self.alpha = check_integer("per_row", per_row), check_between("alpha", alpha, 0, float("inf"))
        self.nearest = nearest if nearest is None else check_integer("nearest", nearest)

    def draw(self, labels: Tensor, *, ids: Tensor | None = None, scores: Tensor | None = None) -> Mixture:
        """Which rows to mix, and in what shares.

        Args:
            labels: ``[b]`` or ``[b, C]``.
            ids: whole numbers ``[b]``; rows of one id are not mixed as a related pair.
            scores: ``[b, b]`` if ``nearest`` is set.
        """
        relation, weight = self._relations(labels, ids)
        return draw_mixture(
            relation,
            weight,
            kind=self.kind,
            per_row=self.per_row,
            scores=scores,
            nearest=self.nearest,
            alpha=self.alpha,
            generator=self.generator,
        )

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        ids: Tensor | None = None,
        mixture: Mixture | None = None,
        mixed: Tensor | None = None,
    ) -> Tensor:
        """The loss.

        Args:
            embeddings: ``[b, d]``.
            labels: ``[b]`` or ``[b, C]``.
            ids: see :class:`EmbeddingLoss`.
            mixture: which rows were mixed; None: drawn here.
            mixed: ``[M, d]``, embeddings of the mixed inputs or features, with ``mixture``; None: the embeddings are
                mixed.

        Returns:
            A number, or ``[b]`` for the reduction "none".
        """
        if mixed is not None and mixture is None:
            raise ValueError("mixture: expected with mixed, to say what was mixed, got None")
        clean: Tensor = self.criterion(embeddings, labels, ids=ids)
        queries, _ = self.criterion.sides(embeddings, labels, ids=ids)
        if mixture is None:
            scores = None
            if self.nearest is not None:
                scores = self.criterion.similarity(queries.vectors, queries.vectors).detach()
            mixture = self.draw(queries.labels, ids=queries.ids, scores=scores)
        return clean + self.factor * self._mixed(queries, mixture, mixed)

    def _mixed(self, queries: LabelledEmbeddings, mixture: Mixture, mixed: Tensor | None) -> Tensor:
        columns = mixture.rows(queries.vectors) if mixed is None else mixed
        if len(columns) != len(mixture):
            raise ValueError(f"mixed: expected {len(mixture)} rows as the mixture has, got {tuple(columns.shape)}")
        if self.criterion.normalize:
            columns = nn.functional.normalize(columns, dim=-1)
        relation, weight = self._relations(queries.labels, queries.ids)
        scores = self.criterion.similarity(queries.vectors, columns)
        return self.criterion.loss(
            scores,
            mixture.relation(relation).to(scores.dtype),
            mixture.weight(weight, with_anchor=self.kind == "anchor-negative").to(scores.dtype),
            reduction=self.criterion.reduction,
            **self.criterion.hyper,
        )

    def _relations(self, labels: Tensor, ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Relation and weight ``[b, b]`` of the batch with itself."""
        relate = self.criterion.relation or relation_of(labels, self.criterion.facts)
        if ids is None:
            ids = torch.arange(len(labels), device=labels.device)
        relation = relate(labels, labels)
        weight = other_rows(ids, ids)
        return relation.to(weight.dtype) if not relation.is_floating_point() else relation, weight.to(relation.device)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"factor={self.factor:g}, kind={self.kind!r}, per_row={self.per_row}, alpha={self.alpha:g}"


class PairTemperature(nn.Module):
    r"""A learned temperature for each pair, $\tau_{ij} = lo + (hi - lo)\, \sigma(\phi(z_i, z_j))$, the same both ways.

    $\phi(x, y) = \frac12 (Ax \cdot By + Bx \cdot Ay) + c$ is symmetric and needs two matrix products, so any block of
    columns can be computed alone.

    Args:
        dim: width of the embeddings.
        rank: rows of A and B.
        low: lo > 0, the lowest temperature; the paper's 1e-5 lets single pairs dominate the loss.
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
            rows = replace(queries, vectors=project(queries.vectors))
            others = rows if columns is queries else replace(columns, vectors=project(columns.vectors))
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
