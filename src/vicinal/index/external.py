"""What indexes of other libraries need: the metric of theirs that a similarity is."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.core.arrays import Array
from vicinal.index.bank import NeighborBank
from vicinal.index.base import Hits, ordered
from vicinal.index.pairs import similarity_name
from vicinal.index.scanning import rescored
from vicinal.similarity.base import resolve_similarity
from vicinal.similarity.products import l2_normalize

_METRICS = {"l2": "L2", "squared_l2": "L2", "dot": "IP", "scaled_dot": "IP", "cosine": "COSINE"}


class ExternalMetric(NamedTuple):
    """How a similarity is computed by an index that knows squared distances and inner products.

    Attributes:
        similarity: its name.
        metric: "L2", squared distances; "IP", inner products; "COSINE", those of rows of length 1.
    """

    similarity: str
    metric: str

    def rows(self, rows: Tensor) -> Tensor:
        """``rows [n, d]`` as such an index is given them."""
        return l2_normalize(rows) if self.metric == "COSINE" else rows

    def scores(self, values: Tensor, dim: int) -> Tensor:
        """``values`` that the index gives, as scores of the similarity."""
        if self.similarity == "l2":
            return -values.clamp(min=0).sqrt() + 0.0
        if self.similarity == "squared_l2":
            return -values.clamp(min=0) + 0.0
        if self.similarity == "cosine":
            return values.clamp(-1, 1)
        return values / dim if self.similarity == "scaled_dot" else values

    def hits(self, ids: Array, values: Array, queries: Tensor, k: int, bank: NeighborBank | None) -> Hits:
        """The first ``k`` of ``ids [b, m]``, -1 for none, by the index's ``values``, or by a bank if there is one."""
        numbers = torch.from_numpy(ids)
        scores = self.scores(torch.from_numpy(values), queries.shape[1]).masked_fill_(numbers < 0, -torch.inf)
        ranked = ordered(numbers, scores)
        ranked = Hits(ranked.ids[:, :k].to(queries.device), ranked.scores[:, :k].to(queries.device))
        return ranked if bank is None else rescored(ranked, queries, resolve_similarity(self.similarity), bank)


def external_metric(similarity: nn.Module, kind: str) -> ExternalMetric:
    """How an index of ``kind`` computes a similarity.

    Raises:
        ValueError: for one that it cannot compute.

    >>> from vicinal.similarity import NegativeL1
    >>> external_metric(NegativeL1(), "faiss")
    Traceback (most recent call last):
    ValueError: similarity: expected one of l2, squared_l2, dot, scaled_dot, cosine for an index ...
    """
    name = similarity_name(similarity)
    if name not in _METRICS:
        raise ValueError(
            f"similarity: expected one of {', '.join(_METRICS)} for an index {kind!r}, got {name or similarity!r}; "
            "use 'exact'"
        )
    return ExternalMetric(name, _METRICS[name])


def as_float32(rows: Tensor) -> Tensor:
    """``rows`` on the CPU, contiguous, in float32."""
    return rows.detach().to("cpu", torch.float32).contiguous()
