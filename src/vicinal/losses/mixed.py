"""A criterion that also sees mixed rows."""

from typing import get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_choice, check_integer
from vicinal.losses.embedding import EmbeddingLoss
from vicinal.losses.resolving import relation_of
from vicinal.losses.sides import Rows
from vicinal.mixing import Mixture, draw_mixture
from vicinal.mixing.drawing import Kind
from vicinal.relation import other_rows


class MixedLoss(nn.Module):
    r"""A criterion plus the same loss of the batch against mixed rows, $\ell + w\, \tilde\ell$ (Metrix).

    The mixed rows are columns whose relation is mixed in the same shares, so every loss with soft relations takes
    them. Embeddings are mixed if nothing else is given. To mix inputs, or features of a layer:

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
        nearest: mix only the so many unrelated rows of highest score, the hard ones; None: any.
        alpha: of the Beta distribution of the shares, > 0.
        generator: of the CPU, for the draws; with ``gather`` all processes need one of the same seed.

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
        """Rows to mix.

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

    def _mixed(self, queries: Rows, mixture: Mixture, mixed: Tensor | None) -> Tensor:
        columns = mixture.rows(queries.vectors) if mixed is None else mixed
        if len(columns) != len(mixture):
            raise ValueError(f"mixed: expected {len(mixture)} rows as the mixture has, got {tuple(columns.shape)}")
        if self.criterion.normalize:
            columns = nn.functional.normalize(columns, dim=-1)
        relation, weight = self._relations(queries.labels, queries.ids)
        scores = self.criterion.similarity(queries.vectors, columns)
        value: Tensor = self.criterion.loss(
            scores,
            mixture.relation(relation).to(scores.dtype),
            mixture.weight(weight, with_anchor=self.kind == "anchor-negative").to(scores.dtype),
            reduction=self.criterion.reduction,
            **self.criterion.hyper,
        )
        return value

    def _relations(self, labels: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor]:
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
