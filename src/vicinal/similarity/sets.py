"""Scores of sets: of a set and an item, of two sets (MaxSim), and sets as one vector for search by inner products."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from vicinal.blockwise.blocks import policy, row_slices
from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer, check_tensor
from vicinal.similarity.base import resolve_similarity

Pool = Literal["max", "mean", "logsumexp", "noisy_or", "top_k", "attention"]
Over = Literal["sum", "mean"]


class SetScores(nn.Module):
    r"""Scores of sets by the scores of their elements, whatever their order.

    A pool turns the scores $s_i$ of the n elements with an item into one: "max"; "mean"; "logsumexp" $\frac 1 r \log
    \frac 1 n \sum_i e^{r s_i}$, between the mean ($r \to 0$) and the maximum; "noisy_or" $1 - \prod_i (1 -
    \sigma(s_i))$; "top_k", the mean of the k highest. "attention" is the score of the item with $\sum_i w_i x_i$ for $w
    = \mathrm{softmax}(\langle x_i, y \rangle / \tau)$.

    Args:
        pool: one of these.
        similarity: of an element and an item, by name or as a module.
        sharpness: r > 0, of "logsumexp".
        k: of "top_k".
        temperature: $\tau > 0$, of "attention".
        over: for two sets, whether the scores of the query's elements are added ("sum") or averaged ("mean").

    Paper: arXiv:2212.05561. MaxSim: arXiv:2004.12832.

    >>> elements, items = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.tensor([[2.0, 1.0]])
    >>> SetScores("max", similarity="dot")(elements, items), SetScores("mean", similarity="dot")(elements, items)
    (tensor([[2.]]), tensor([[1.5000]]))
    """

    def __init__(
        self,
        pool: Pool = "max",
        *,
        similarity: str | nn.Module = "cosine",
        sharpness: float = 1.0,
        k: int = 3,
        temperature: float = 0.1,
        over: Over = "sum",
    ) -> None:
        super().__init__()
        self.pool, self.over = check_choice("pool", pool, get_args(Pool)), check_choice("over", over, get_args(Over))
        self.similarity = resolve_similarity(similarity)
        self.sharpness = check_between("sharpness", sharpness, 0, math.inf)
        self.temperature = check_between("temperature", temperature, 0, math.inf)
        self.k = check_integer("k", k)

    def forward(self, elements: Tensor, items: Tensor, valid: Tensor | None = None) -> Tensor:
        """Scores of sets with items.

        Args:
            elements: ``[b, n, d]``, at least one valid in each set.
            items: ``[N, d]``.
            valid: boolean ``[b, n]``; None: all.

        Returns:
            ``[b, N]``, higher = more alike; float32, or float64 if an input is.

        Raises:
            ValueError: for another shape, or a set without elements.
        """
        valid = check_bags("elements", elements, valid)
        if self.pool == "attention":
            return self._attended(elements, items, valid)
        flat = elements.masked_fill(~valid[..., None], 0.0).flatten(0, 1)
        scores = self.similarity(flat, items).reshape(*valid.shape, len(items))  # [b, n, N]
        return self._pooled(scores, valid[..., None])

    def of_sets(
        self, queries: Tensor, bank: Tensor, query_valid: Tensor | None = None, bank_valid: Tensor | None = None
    ) -> Tensor:
        r"""Scores of two sets, $\sum_q \mathrm{pool}_p\, s(x_p, y_q)$ over elements q of a query and p of a bank set.

        With pool "max" and similarity "dot" this is MaxSim. Sets of the bank are read block by block, so that element
        scores are never held for the whole bank.

        Args:
            queries: ``[b, m, d]``.
            bank: ``[N, n, d]``.
            query_valid: boolean ``[b, m]``; None: all.
            bank_valid: boolean ``[N, n]``; None: all.

        Returns:
            ``[b, N]``.

        >>> scores = SetScores("max", similarity="dot")
        >>> scores.of_sets(torch.eye(2)[None], torch.tensor([[[1.0, 0.5]], [[0.0, 2.0]]]))
        tensor([[1.5000, 2.0000]])
        """
        query_valid = check_bags("queries", queries, query_valid)
        bank_valid = check_bags("bank", bank, bank_valid)
        items = queries.masked_fill(~query_valid[..., None], 0.0).flatten(0, 1)
        blocks = row_slices(len(bank), max(1, policy().memory_entries // max(1, len(items) * bank.shape[1])))
        parts = []
        for part in blocks:
            scores = SetScores.forward(self, bank[part], items, bank_valid[part])  # [B, b m]
            parts.append(self._over(scores.reshape(len(scores), *query_valid.shape), query_valid).T)
        return torch.cat(parts, dim=1)

    def rescored(
        self,
        queries: Tensor,
        bank: Tensor,
        candidates: Tensor,
        query_valid: Tensor | None = None,
        bank_valid: Tensor | None = None,
    ) -> Tensor:
        """Scores of two sets, for some sets of the bank alone: the second step after a search.

        Args:
            queries: ``[b, m, d]``.
            bank: ``[N, n, d]``.
            candidates: int64 ``[b, c]``, rows of the bank for each query.
            query_valid: see :meth:`of_sets`.
            bank_valid: see :meth:`of_sets`.

        Returns:
            ``[b, c]``.
        """
        query_valid = check_bags("queries", queries, query_valid)
        bank_valid = check_bags("bank", bank, bank_valid)
        if candidates.ndim != 2 or candidates.dtype != torch.int64 or len(candidates) != len(queries):
            raise ValueError(
                f"candidates: expected int64 [{len(queries)}, c], got {candidates.dtype} {tuple(candidates.shape)}"
            )
        rows = [
            self.of_sets(query[None], bank[some], known[None], bank_valid[some])
            for query, some, known in zip(queries, candidates, query_valid, strict=True)
        ]
        return torch.cat(rows) if rows else queries.new_zeros(candidates.shape)

    def _pooled(self, scores: Tensor, valid: Tensor) -> Tensor:
        """``[b, N]`` of ``[b, n, N]`` by ``valid [b, n, 1]``."""
        lowest = scores.masked_fill(~valid, -torch.inf)
        number = valid.sum(dim=1)  # [b, 1]
        if self.pool == "max":
            return lowest.max(dim=1).values  # remembers a place for its gradient, not the scores
        if self.pool == "logsumexp":
            return ((self.sharpness * lowest).logsumexp(dim=1) - number.to(scores.dtype).log()) / self.sharpness
        if self.pool == "noisy_or":
            return -torch.expm1(torch.where(valid, nn.functional.logsigmoid(-scores), 0.0).sum(dim=1))
        if self.pool == "top_k":
            best = lowest.topk(min(self.k, scores.shape[1]), dim=1).values
            return torch.where(best > -torch.inf, best, 0.0).sum(dim=1) / number.clamp(max=self.k)
        return torch.where(valid, scores, 0.0).sum(dim=1) / number

    def _attended(self, elements: Tensor, items: Tensor, valid: Tensor) -> Tensor:
        """``[b, N]``: a mean of the elements for each item, whose score with the item is then taken."""
        wide = torch.promote_types(elements.dtype, torch.float32)
        rows, known = elements.to(wide).masked_fill(~valid[..., None], 0.0), items.to(wide)
        logits = (rows @ known.T / self.temperature).masked_fill(~valid[..., None], -torch.inf)  # [b, n, N]
        means = logits.softmax(dim=1).mT @ rows  # [b, N, d]
        return torch.cat([self.similarity(means[:, j], known[j : j + 1]) for j in range(len(items))], dim=1)

    def _over(self, scores: Tensor, valid: Tensor) -> Tensor:
        """``[B, b]`` of ``[B, b, m]`` by ``valid [b, m]``."""
        total = torch.where(valid, scores, 0.0).sum(dim=-1)
        return total / valid.sum(dim=-1) if self.over == "mean" else total

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"pool={self.pool!r}, over={self.over!r}"


def check_bags(name: str, elements: Tensor, valid: Tensor | None) -> Tensor:
    """``valid [b, n]`` of ``elements [b, n, d]``, if each set has an element."""
    if check_tensor(name, elements).ndim != 3 or elements.shape[1] == 0:
        raise ValueError(f"{name}: expected sets [b, n, d] with n of at least 1, got {tuple(elements.shape)}")
    if not elements.is_floating_point():
        raise TypeError(f"{name}: expected a floating dtype, got {elements.dtype}; call .float() on it")
    if valid is None:
        return torch.ones(elements.shape[:2], dtype=torch.bool, device=elements.device)
    if valid.shape != elements.shape[:2] or valid.dtype != torch.bool:
        raise ValueError(
            f"valid: expected booleans {tuple(elements.shape[:2])} as {name}, got {valid.dtype} {tuple(valid.shape)}"
        )
    if not bool(valid.any(dim=1).all()):
        row = int((~valid.any(dim=1)).nonzero()[0])
        raise ValueError(f"{name}: expected an element at least in each set, got none in row {row}")
    return valid


class FixedDimensionalEncoding(nn.Module):
    r"""A set of vectors as one vector, whose inner products with others approximate MaxSim (MUVERA).

    Each of R times, space is cut into $2^k$ buckets by the signs of k random projections. A query puts the sum of its
    elements into each bucket, a document their mean; an empty bucket of a document takes the element whose signs differ
    least (on ties that of the lowest bucket, then the first). All buckets are concatenated, so $\frac 1 R \langle
    \mathrm{query}, \mathrm{document} \rangle \approx \sum_q \max_p \langle y_q, x_p \rangle$: without a projection the
    left side is never larger, and it is equal for a document of one element. Any bank or index of inner products can
    search these vectors; :meth:`SetScores.rescored` is the second step.

    Args:
        width: d, of the elements.
        bits: k, from 0 to 30.
        repetitions: R >= 1.
        projected: width of a bucket after a projection by random signs, divided by the root of this width; None: no
            projection, width d.
        sketched: width of the whole vector after a final count sketch, which adds each entry with a random sign at a
            random place; None: no sketch, $R\, 2^k$ times the width of a bucket.
        seed: of all random draws.

    Paper: arXiv:2405.19504.

    >>> encoding = FixedDimensionalEncoding(2, bits=2, repetitions=3)
    >>> query, document = torch.eye(2)[None], torch.tensor([[[1.0, 0.5]]])
    >>> (encoding.queries(query) @ encoding.documents(document).T / 3).round(decimals=4)
    tensor([[1.5000]])
    """

    signs: Tensor | None
    places: Tensor | None
    place_signs: Tensor | None

    def __init__(
        self,
        width: int,
        *,
        bits: int = 5,
        repetitions: int = 20,
        projected: int | None = None,
        sketched: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.width, self.bits = check_integer("width", width), check_integer("bits", bits, 0, 30)
        self.repetitions = check_integer("repetitions", repetitions)
        self.bucket_width = width if projected is None else check_integer("projected", projected, 1, width)
        generator = torch.Generator().manual_seed(seed)

        def draw_signs(*shape: int) -> Tensor:
            return 2.0 * torch.randint(0, 2, shape, generator=generator) - 1

        self.planes: Tensor = nn.Buffer(torch.randn(repetitions, width, bits, generator=generator))
        self.register_buffer("signs", None if projected is None else draw_signs(repetitions, width, projected))
        whole = repetitions * 2**bits * self.bucket_width
        self.dim = whole if sketched is None else check_integer("sketched", sketched, 1, whole)
        places = None if sketched is None else torch.randint(0, sketched, (whole,), generator=generator)
        self.register_buffer("places", places)
        self.register_buffer("place_signs", None if sketched is None else draw_signs(whole))

    def queries(self, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        """``[b, dim]`` of queries ``[b, n, d]``: sums, and zeros in empty buckets."""
        return self._encoded(elements, valid, is_query=True, fill=False)

    def documents(self, elements: Tensor, valid: Tensor | None = None, *, fill: bool = True) -> Tensor:
        """``[b, dim]`` of documents ``[b, n, d]``: means, and the nearest element in empty buckets if ``fill``."""
        return self._encoded(elements, valid, is_query=False, fill=fill)

    def _encoded(self, elements: Tensor, valid: Tensor | None, *, is_query: bool, fill: bool) -> Tensor:
        valid = check_bags("elements", elements, valid)
        if elements.shape[2] != self.width:
            raise ValueError(f"elements: expected [b, n, {self.width}], got {tuple(elements.shape)}")
        each = self.repetitions * max(2**self.bits, self.bucket_width) * elements.shape[1]
        blocks = row_slices(len(elements), max(1, policy().memory_entries // each))
        parts = [self._block(elements[part], valid[part], is_query=is_query, fill=fill) for part in blocks]
        return torch.cat(parts)

    def _block(self, elements: Tensor, valid: Tensor, *, is_query: bool, fill: bool) -> Tensor:
        dtype = torch.promote_types(elements.dtype, torch.float32)
        rows = elements.to(dtype).masked_fill(~valid[..., None], 0.0)[:, None]  # [b, 1, n, d]
        above = rows.detach() @ self.planes.to(dtype) > 0  # [b, R, n, k]
        bucket = (above * 2 ** torch.arange(self.bits, device=above.device)).sum(dim=-1)  # [b, R, n]
        if self.signs is not None:
            rows = rows @ self.signs.to(dtype) / math.sqrt(self.bucket_width)
        rows = rows.expand(-1, self.repetitions, -1, -1)  # [b, R, n, p]
        total = rows.new_zeros(*bucket.shape[:2], 2**self.bits, self.bucket_width)
        total = total.scatter_add(2, bucket[..., None].expand_as(rows), rows)  # [b, R, 2^k, p]
        if not is_query:
            known = valid[:, None].expand_as(bucket).to(dtype)
            count = known.new_zeros(total.shape[:3]).scatter_add(2, bucket, known)[..., None]
            total = total / count.clamp(min=1)
            if fill and bool((count == 0).any()):
                nearest = self._nearest(above, bucket, valid)[..., None].expand_as(total)
                total = torch.where(count == 0, rows.gather(2, nearest), total)
        vectors = total.flatten(1)
        if self.places is None or self.place_signs is None:
            return vectors
        sketch = vectors.new_zeros(len(vectors), self.dim)
        return sketch.index_add(1, self.places, vectors * self.place_signs.to(dtype))

    def _nearest(self, above: Tensor, bucket: Tensor, valid: Tensor) -> Tensor:
        """For each bucket the element whose signs differ least, ``[b, R, 2^k]``."""
        every = torch.arange(2**self.bits, device=bucket.device)
        codes = (every[:, None] >> torch.arange(self.bits, device=bucket.device)) % 2  # [2^k, k]
        agree = (2.0 * codes - 1) @ (2.0 * above.float() - 1).mT  # [b, R, 2^k, n]; bits less twice the distance
        count = bucket.shape[-1]
        order = bucket * count + torch.arange(count, device=bucket.device)  # lowest bucket, then first element
        order = torch.where(valid[:, None], order, 2**self.bits * count)
        best = torch.where(valid[:, None, None], agree, -torch.inf).amax(dim=-1, keepdim=True)
        last = torch.iinfo(order.dtype).max
        return torch.where((agree == best) & valid[:, None, None], order[:, :, None], last).argmin(dim=-1)
