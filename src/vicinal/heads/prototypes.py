"""Nearest class mean: a class is the mean of its rows, so that rows and classes come and go without training."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_integer, check_matrices
from vicinal.similarity import resolve_similarity
from vicinal.similarity.products import directions

STEPS = 2.0**32
"""Steps of the fixed-point sums in a unit of the embeddings."""
LARGEST = 2.0**62


class NearestClassMean(nn.Module):
    r"""Probability of class k: $\mathrm{softmax}_k\, s(z_i, c_k) / \tau$, with $c_k$ the mean of the rows of k.

    The sums behind the means are whole numbers (multiples of $2^{-32}$), so that they do not depend on the order of
    rows, and forgetting a row leaves exactly what would be there without it. A class without rows has probability 0.
    Mensink et al. 2013, *Distance-Based Image Classification*; on the sphere as in arXiv:2305.09062.

    Args:
        classes: C >= 1, the classes that exist; :meth:`grow` adds more.
        dim: d, width of the embeddings.
        similarity: a registered name or a module ``sim(queries, bank) -> scores``.
        spherical: rows are scaled to length 1 before they are added: means of directions.
        temperature: tau > 0.

    Attributes:
        sums: int64 ``[C, d]``, in steps of $2^{-32}$.
        counts: int64 ``[C]``, rows of each class.

    >>> head = NearestClassMean(2, 2)
    >>> head.add(torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]), torch.tensor([0, 1, 1]))
    >>> head(torch.tensor([[3.0, 0.0]])).argmax(1)
    tensor([0])
    >>> head.forget(torch.tensor([[1.0, 1.0]]), torch.tensor([1]))
    >>> head.means()
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """

    sums: Tensor
    counts: Tensor

    def __init__(
        self,
        classes: int,
        dim: int,
        *,
        similarity: str | nn.Module = "cosine",
        spherical: bool = True,
        temperature: float = 0.1,
    ) -> None:
        super().__init__()
        check_integer("classes", classes), check_integer("dim", dim)
        self.similarity, self.spherical = resolve_similarity(similarity), spherical
        self.temperature = check_between("temperature", temperature, 0, math.inf)
        self.register_buffer("sums", torch.zeros(classes, dim, dtype=torch.int64))
        self.register_buffer("counts", torch.zeros(classes, dtype=torch.int64))

    @property
    def classes(self) -> int:
        """C, with or without rows."""
        return len(self.counts)

    def grow(self, classes: int) -> None:
        """Make room for more classes: from now on there are ``classes`` of them, the new ones without rows."""
        more = check_integer("classes", classes, self.classes) - self.classes
        self.sums = torch.cat([self.sums, self.sums.new_zeros(more, self.sums.shape[1])])
        self.counts = torch.cat([self.counts, self.counts.new_zeros(more)])

    @torch.no_grad()
    def add(self, embeddings: Tensor, labels: Tensor) -> None:
        """Take in rows ``[n, d]`` of classes ``[n]`` (whole numbers below ``classes``)."""
        self._change(embeddings, labels, 1)

    @torch.no_grad()
    def forget(self, embeddings: Tensor, labels: Tensor) -> None:
        """Take out rows that were added: with the same embeddings, bit for bit, nothing of them is left.

        Raises:
            ValueError: if a class would have fewer than no rows; nothing is changed then.
        """
        self._change(embeddings, labels, -1)

    def _change(self, embeddings: Tensor, labels: Tensor, sign: int) -> None:
        self._check(embeddings, "embeddings")
        if labels.shape != (len(embeddings),) or labels.is_floating_point() or labels.dtype == torch.bool:
            raise ValueError(
                f"labels: expected whole numbers [{len(embeddings)}], got {labels.dtype} of shape {tuple(labels.shape)}"
            )
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.classes:
            raise ValueError(
                f"labels: expected classes 0 to {self.classes - 1}, got {int(labels.min())}..{int(labels.max())}; "
                "call grow for new classes"
            )
        rows = embeddings.double()
        if not bool(rows.isfinite().all()):
            raise ValueError("embeddings: expected finite numbers, got NaN or inf")
        rows = (directions(rows) if self.spherical else rows) * STEPS
        reach = torch.zeros_like(self.sums, dtype=torch.float64).index_add_(0, labels, rows.abs())
        if bool((reach + self.sums.double().abs() > LARGEST).any()):
            raise ValueError("embeddings: expected sums below 2^30, got larger; scale the embeddings or use spherical")
        counts = self.counts + sign * torch.bincount(labels, minlength=self.classes)
        if bool((counts < 0).any()):
            missing = int((counts < 0).nonzero()[0])
            raise ValueError(f"labels: expected at most {int(self.counts[missing])} rows of class {missing} to forget")
        self.sums.index_add_(0, labels, rows.round().to(torch.int64), alpha=sign)
        self.counts = counts

    def means(self) -> Tensor:
        """Class means, float64 ``[C, d]``, of length 1 if spherical; NaN for a class without rows."""
        found = self.sums.double() / STEPS / self.counts[:, None]
        return torch.where(self.counts[:, None] > 0, directions(found), torch.nan) if self.spherical else found

    def scores(self, queries: Tensor) -> Tensor:
        """Similarity ``[b, C]`` of queries ``[b, d]`` with the class means; -inf for a class without rows."""
        self._check(queries, "queries")
        held = self.counts > 0
        if not bool(held.any()):
            raise ValueError("queries: expected a head that rows were added to, got one without any; call add first")
        means = torch.where(held[:, None], self.means(), 0.0).to(torch.promote_types(queries.dtype, torch.float32))
        found: Tensor = self.similarity(queries, means)
        return found.masked_fill(~held, -torch.inf)

    def forward(self, queries: Tensor) -> Tensor:
        """Probability of each class ``[b, C]``, rows sum to 1."""
        return (self.scores(queries) / self.temperature).softmax(dim=-1)

    def _check(self, embeddings: Any, name: str) -> None:
        check_matrices(embeddings, embeddings)
        if embeddings.shape[1] != self.sums.shape[1]:
            raise ValueError(f"{name}: expected [b, {self.sums.shape[1]}], got {tuple(embeddings.shape)}")

    def extra_repr(self) -> str:
        """Sizes, for ``print``."""
        return f"classes={self.classes}, dim={self.sums.shape[1]}, temperature={self.temperature:g}"
