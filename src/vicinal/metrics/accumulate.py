"""Accumulators: metrics over a data set that arrives in blocks, in a plain loop or in a Lightning module."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.metrics.retrieval import DEFAULT, from_ranks, named, ndcg
from vicinal.metrics.streamed import embedding_metrics
from vicinal.ranks import Ties
from vicinal.ranks.hard import related_ranks


class RetrievalMetrics:
    """Means of retrieval metrics over queries whose rows of scores arrive in blocks.

    Only sums are kept, so memory does not grow, and any relation works. Each block must hold whole rows: all columns
    that a query is compared with.

    Args:
        metrics: names, see :func:`vicinal.metrics.retrieval.named`; "ndcg" reads grades, the others relation > 0.
        ties: order of equal scores, see :func:`vicinal.ranks.hard.rank_order`.
        empty: value of a query without related columns; NaN leaves it out of the means.

    >>> metrics = RetrievalMetrics(["precision@1", "mrr"])
    >>> metrics.update(torch.tensor([[0.9, 0.1], [0.8, 0.7]]), torch.tensor([[1, 0], [0, 1]]))
    >>> metrics.update(torch.tensor([[0.3, 0.4]]), torch.tensor([[0, 0]]))
    >>> metrics.compute()
    {'precision@1': 0.5, 'mrr': 0.75}
    """

    def __init__(self, metrics: Sequence[str] = DEFAULT, *, ties: Ties = "worst", empty: float = math.nan) -> None:
        self.metrics = named(metrics)
        self.ties: Ties = ties
        self.empty = empty
        self.reset()

    def reset(self) -> None:
        """Forget all queries."""
        self.totals = torch.zeros(len(self.metrics), dtype=torch.float64)
        self.counts = torch.zeros(len(self.metrics), dtype=torch.int64)

    @torch.no_grad()
    def update(self, scores: Tensor, relation: Tensor, weight: Tensor | None = None) -> None:
        """Add queries.

        Args:
            scores: ``[b, N]``, higher = more alike.
            relation: ``[b, N]``, above 0 = related.
            weight: ``[b, N]`` or None; columns of weight 0, such as the query itself, are taken out.
        """
        ranks = related_ranks(scores, relation, weight, ties=self.ties)
        for place, one in enumerate(self.metrics):
            if one.formula == "ndcg":
                values = ndcg(scores, relation, weight, k=one.k, ties=self.ties, empty=self.empty)
            else:
                values = from_ranks(one.formula, ranks, k=one.k, empty=self.empty)
            numbers = values[~values.isnan()]
            self.totals[place] += numbers.sum().item()
            self.counts[place] += len(numbers)

    def merge(self, other: "RetrievalMetrics") -> None:
        """Add the queries that ``other`` has seen, on another process for example; its metrics must be the same."""
        if other.metrics != self.metrics:
            raise ValueError(f"other: expected the metrics {[m.name for m in self.metrics]}, got others")
        self.totals += other.totals
        self.counts += other.counts

    def compute(self) -> dict[str, float]:
        """Mean of each metric over the queries so far, by name; NaN before the first query that counts."""
        means = self.totals / self.counts
        return {one.name: float(mean) for one, mean in zip(self.metrics, means, strict=True)}


class EmbeddingRetrieval:
    """Retrieval metrics of embeddings that arrive in batches: each row is compared with all other rows at the end.

    It keeps the embeddings themselves, ``[n, d]``, and never makes the n x n scores, see
    :func:`vicinal.metrics.embedding_metrics`. In a Lightning module call :meth:`update` in ``validation_step`` and
    ``self.log_dict(metrics.compute())`` then :meth:`reset` in ``on_validation_epoch_end``.

    Args:
        metrics: names, see :func:`vicinal.metrics.retrieval.named`.
        similarity: name or module, symmetric.
        ties: "worst" or "best".
        empty: value of a row without related rows; NaN leaves it out of the means.
        block: rows and columns of a block of scores.

    >>> metrics = EmbeddingRetrieval(["precision@1"])
    >>> metrics.update(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    >>> metrics.update(torch.tensor([[0.9, 0.1]]), torch.tensor([0]))
    >>> metrics.compute()
    {'precision@1': 1.0}
    """

    def __init__(
        self,
        metrics: Sequence[str] = DEFAULT,
        *,
        similarity: str | nn.Module = "cosine",
        ties: str = "worst",
        empty: float = math.nan,
        block: int = 1024,
    ) -> None:
        self.metrics = tuple(one.name for one in named(metrics))
        self.similarity, self.ties, self.empty, self.block = similarity, ties, empty, block
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self.embeddings: list[Tensor] = []
        self.labels: list[Tensor] = []

    def update(self, embeddings: Tensor, labels: Tensor) -> None:
        """Add rows: ``embeddings [b, d]`` and integer ``labels [b]``."""
        if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
            raise ValueError(
                f"labels: expected [b] for embeddings [b, d], got {tuple(labels.shape)} for {tuple(embeddings.shape)}"
            )
        self.embeddings.append(embeddings.detach())
        self.labels.append(labels.detach())

    def compute(self) -> dict[str, float]:
        """Mean of each metric over the rows that have related rows, by name; NaN if none has."""
        if not self.embeddings:
            return dict.fromkeys(self.metrics, math.nan)
        values = embedding_metrics(
            torch.cat(self.embeddings),
            torch.cat(self.labels),
            metrics=self.metrics,
            similarity=self.similarity,
            ties=self.ties,
            empty=self.empty,
            block=self.block,
        )
        return {name: float(value.nanmean()) for name, value in values.items()}
