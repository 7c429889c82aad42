"""Hubs: rows that are near to everything and so answer queries that are not theirs; what they get taken off."""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.blockwise.blocks import attention_sizes
from vicinal.blockwise.exclusion import Exclusion
from vicinal.blockwise.scores import Block, BlockScores, Factors, ScoreKernel
from vicinal.core.checks import check_between, check_integer, check_matrices
from vicinal.core.identity import check_distinct, shown, whole_ids
from vicinal.index.bank_storage import IdMap
from vicinal.index.base import Hits, IdsLike, Index, check_vectors, ordered
from vicinal.index.opening import open_index
from vicinal.index.pairs import similarity_name
from vicinal.similarity.base import resolve_similarity
from vicinal.similarity.factors import score_kernel
from vicinal.similarity.products import l2_normalize

_PRODUCTS = ("cosine", "dot", "scaled_dot")
"""Similarities of which a bias is one more coordinate."""

_TIMES = 4
"""So many times more rows are fetched when those that were fetched may not hold the best."""

Ids = tuple[Tensor, Tensor]


def hub_bias(
    queries: Tensor, bank: Tensor, similarity: str | nn.Module = "cosine", *, temperature: float, ids: Ids | None = None
) -> Tensor:
    r"""What to add to the scores of each bank row so that hubs lose: $b_j = -\tau \log \frac1n \sum_k e^{s_{kj}/\tau}$.

    Ranking by $s_{ij} + b_j$ is ranking by the inverted softmax $e^{s_{ij}/\tau} / \sum_k e^{s_{kj}/\tau}$. At a high
    temperature b is the negated mean score of a row, at a low one its negated highest score. Scores are computed block
    by block and never held whole. Choose the temperature on queries whose answers are known.

    Args:
        queries: ``[n, d]``, a sample of the queries to come (no labels are needed).
        bank: ``[N, d]``, the rows that answer.
        similarity: name of a registered similarity, or the module.
        temperature: tau > 0, in units of the score; 1 / beta of the paper.
        ids: whole numbers of the queries ``[n]`` and of the bank ``[N]``: pairs with the same id do not count, as when
            the bank's own rows are the queries.

    Returns:
        ``[N]``, in the dtype that scores are computed in.

    Raises:
        ValueError: without queries, or for a bank row whose only query is itself.

    Paper: arXiv:2310.11612.

    >>> hub_bias(torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 1.0]]), temperature=0.5)
    tensor([-0.7169, -0.7071])
    """
    check_between("temperature", temperature, 0, float("inf"))
    scores = _scores(queries, bank, similarity)
    bias, counts = scores.queries.new_empty(len(bank)), _counts(queries, bank, ids)
    for block, tiles in _tiles(scores, ids):
        highest = scores.queries.new_full((block.stop - block.start,), -torch.inf)
        total = torch.zeros_like(highest)
        for _, costs in tiles:
            logits = costs.mul_(-1 / temperature)  # [r, B]
            top = torch.maximum(highest, logits.amax(dim=0))
            finite = top.clamp(min=torch.finfo(top.dtype).min)  # of a row that no query of the tile may ask
            total.mul_((highest - finite).exp()).add_(logits.sub_(finite).exp_().sum(dim=0))
            highest = top
        bias[block.start : block.stop] = -temperature * (highest + total.log())
    return bias + temperature * counts.to(bias.dtype).log()


def dual_hub_bias(
    queries: Tensor,
    gallery: Tensor,
    bank: Tensor,
    similarity: str | nn.Module = "cosine",
    *,
    temperatures: tuple[float, float] = (1.99, 1 / 3),
) -> Tensor:
    r"""The bias of two samples, of queries and of rows such as the bank's: $(b/\tau + b'/\tau') / (1/\tau + 1/\tau')$.

    Ranking by it is ranking by the product of both inverted softmaxes. The temperatures are the paper's; lower ones
    correct more.

    Args:
        queries: ``[n, d]``.
        gallery: ``[m, d]``.
        bank: ``[N, d]``.
        similarity: see :func:`hub_bias`.
        temperatures: of the queries and of the gallery.

    Paper: arXiv:2310.11612.

    >>> dual_hub_bias(torch.eye(2), torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 1.0]])).shape
    torch.Size([2])
    """
    samples = zip((queries, gallery), temperatures, strict=True)
    parts = [hub_bias(sample, bank, similarity, temperature=t) / t for sample, t in samples]
    return (parts[0] + parts[1]) / sum(1 / t for t in temperatures)


def _scores(queries: Tensor, bank: Tensor, similarity: str | nn.Module) -> BlockScores:
    check_matrices(queries, bank)
    if len(queries) == 0:
        raise ValueError("queries: expected at least one, a sample of what will be asked, got none")
    kernel = score_kernel(resolve_similarity(similarity))
    if kernel.factors is not None:  # scores of several queries are compared, so none may be moved
        of_queries, of_bank, rooted, cancels, _ = kernel.factors
        kernel = ScoreKernel(kernel.score, Factors(of_queries, of_bank, rooted, cancels), kernel.resolution)
    return BlockScores(kernel, queries, bank, *attention_sizes(len(queries), bank.shape[1], bank.device))


def _counts(queries: Tensor, bank: Tensor, ids: Ids | None = None) -> Tensor:
    """How many queries may ask each bank row ``[N]``."""
    counts = torch.full((len(bank),), len(queries), device=bank.device)
    if ids is None:
        return counts
    for name, of, rows in (("queries", ids[0], queries), ("bank", ids[1], bank)):
        if of.shape != (len(rows),) or of.is_floating_point():
            raise ValueError(f"ids: expected whole numbers [{len(rows)}] of the {name}, got {tuple(of.shape)}")
    known = ids[0].sort().values
    counts = counts - torch.searchsorted(known, ids[1], right=True) + torch.searchsorted(known, ids[1])
    if bool((counts == 0).any()):
        raise ValueError("queries: expected one of another id for each bank row, got a row that only itself asks")
    return counts


def _tiles(scores: BlockScores, ids: Ids | None = None) -> Iterator[tuple[Block, Iterator[tuple[int, Tensor]]]]:
    """Each block of the bank with its costs ``[r, B]`` from each tile of queries, and where that tile starts."""
    exclusion = Exclusion([] if ids is None else [ids])

    def costs(block: Block) -> Iterator[tuple[int, Tensor]]:
        excluded = exclusion.within(block.start, block.stop)
        for rows in scores.tiles():
            values = scores.costs(scores.product(rows, block, lowest=False))
            yield rows.start, values if excluded is None else excluded.fill(values, rows, torch.inf)

    with torch.no_grad():
        for block in scores.blocks():
            yield block, costs(block)


class Corrected:
    """An index that answers by score and bias together: see :func:`hub_bias`.

    Over an existing index, it fetches more rows until no other can be better, and reorders them: with an exact index
    nothing is missed. :meth:`build` makes an index of inner products with the bias as an extra coordinate; a search
    then costs no more than one without bias.

    Args:
        index: the index to search.
        bias: ``[N]``.
        ids: of the rows that the biases are of, ``[N]``; None: 0 to N - 1.
        dynamic: correct only queries whose best row without bias is also the best row of one of ``queries``; others are
            answered without bias.
        queries: ``[n, d]``, with ``dynamic``.
        widened: "cosine", "dot" or "scaled_dot" if the index is one of inner products whose rows have their bias as an
            extra coordinate (as :meth:`build` makes).

    >>> from vicinal.index import ExactIndex
    >>> index = ExactIndex(1, "dot")
    >>> index.add([0, 1], torch.tensor([[1.0], [0.9]]))
    >>> Corrected(index, torch.tensor([-0.5, 0.0])).search(torch.tensor([[1.0]]), 1)
    Hits(ids=tensor([[1]]), scores=tensor([[0.9000]]))
    """

    def __init__(
        self,
        index: Index,
        bias: Tensor,
        ids: IdsLike | None = None,
        *,
        dynamic: bool = False,
        queries: Tensor | None = None,
        widened: str | None = None,
    ) -> None:
        self.index, self.dynamic, self.widened = index, dynamic, widened
        numbers = np.arange(len(bias)) if ids is None else check_distinct(whole_ids("ids", ids))
        if bias.shape != (len(numbers),) or not bool(bias.isfinite().all()):
            raise ValueError(f"bias: expected {len(numbers)} finite numbers, one for each id, got {tuple(bias.shape)}")
        self.bias, self._places = bias.detach().float(), IdMap(numbers)
        self._hubs = torch.zeros(0, dtype=torch.int64)
        if dynamic:
            if queries is None:
                raise ValueError("queries: expected a sample of queries, whose best rows are the hubs, got None")
            self._hubs = self.plain(queries, 1).ids[:, 0]

    @classmethod
    def build(
        cls,
        vectors: Tensor,
        bias: Tensor,
        ids: IdsLike | None = None,
        *,
        similarity: str = "cosine",
        index: str = "exact",
        dynamic: bool = False,
        queries: Tensor | None = None,
        **settings: Any,
    ) -> Self:
        """A new index of ``vectors [N, d]``; for cosine and inner products the bias is one more coordinate of it.

        Args:
            vectors: the rows.
            bias: see the class, as for ids, dynamic and queries.
            ids: likewise.
            similarity: name of a registered similarity.
            index: see :func:`vicinal.index.open_index`.
            dynamic: see the class.
            queries: likewise.
            settings: further arguments of the index.
        """
        name = similarity_name(resolve_similarity(similarity))
        numbers = np.arange(len(vectors)) if ids is None else whole_ids("ids", ids)
        rows = check_vectors("vectors", vectors, vectors.shape[-1], len(bias))
        widened = name if name in _PRODUCTS else None
        if widened is not None:
            rows = torch.cat([l2_normalize(rows) if name == "cosine" else rows, bias[:, None].to(rows)], dim=1)
            similarity = "dot"
        opened = open_index(index, dim=rows.shape[1], similarity=similarity, **settings)
        opened.add(numbers, rows)
        return cls(opened, bias, numbers, dynamic=dynamic, queries=queries, widened=widened)

    def __len__(self) -> int:
        return len(self.index)

    def search(self, queries: Tensor, k: int, *, exclude: Tensor | None = None) -> Hits:
        """The ``k`` rows of highest score and bias together: see :meth:`Index.search`."""
        if self.widened is not None:
            hits = self.index.search(self._widened(queries, 1.0), k, exclude=exclude)
        else:
            hits = self._rescored(queries, check_integer("k", k), exclude)
        if not self.dynamic:
            return hits
        plain = self.plain(queries, k, exclude=exclude)
        hub = torch.isin(self.plain(queries, 1).ids, self._hubs.to(hits.ids.device))
        return Hits(torch.where(hub, hits.ids, plain.ids), torch.where(hub, hits.scores, plain.scores))

    def _widened(self, queries: Tensor, value: float) -> Tensor:
        """Queries with one coordinate more, which the bias is multiplied with."""
        rows = check_vectors("queries", queries, self.index.dim - 1)
        if self.widened != "dot":
            rows = l2_normalize(rows) if self.widened == "cosine" else rows / rows.shape[1]
        return torch.cat([rows, rows.new_full((len(rows), 1), value)], dim=1)

    def plain(self, queries: Tensor, k: int, *, exclude: Tensor | None = None) -> Hits:
        """The ``k`` rows of highest score, without the bias."""
        rows = queries if self.widened is None else self._widened(queries, 0.0)
        return self.index.search(rows, k, exclude=exclude)

    def _rescored(self, queries: Tensor, k: int, exclude: Tensor | None) -> Hits:
        """The best of more and more rows, until those left cannot be better than the k-th."""
        most, fetched = float(self.bias.max()) if len(self.bias) else 0.0, _TIMES * k
        while True:
            hits = self.index.search(queries, fetched, exclude=exclude)
            there = hits.ids >= 0
            known = self._places.has(hits.ids[there].cpu().numpy())
            if not known.all():
                lost = hits.ids[there].cpu().numpy()[~known]
                raise ValueError(f"bias: expected one for each row of the index, got none for {shown(lost)}")
            scores = hits.scores.clone()
            places = torch.from_numpy(self._places.of(hits.ids[there].cpu().numpy()))
            scores[there] += self.bias[places].to(scores)
            best = ordered(hits.ids, scores)
            left = hits.scores[:, -1] + most  # at most the score of any other row
            if fetched >= len(self.index) or bool((best.scores[:, k - 1] >= left).all()):
                return Hits(best.ids[:, :k], best.scores[:, :k])
            fetched *= _TIMES
