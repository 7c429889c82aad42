"""NONA, nearness of neighbors attention: a prediction is a weighted mean of the labels of real rows."""

import torch
from torch import Tensor, nn

from vicinal.core import check_labels, check_matrices, register
from vicinal.heads.admissible import admissible, check_some
from vicinal.masks.simplex import SimplexMap, resolve_simplex
from vicinal.similarity import resolve_similarity


@register(
    "head",
    "nona",
    "convex-hull",
    "permutation-invariant",
    paper="NONA, sections 3.1-3.2",
    verified="values of the paper's code, gradients against central differences",
)
class NONA(nn.Module):
    r"""$\hat y_i = \sum_j p_{ij} y_j$ with $p_i = \mathrm{simplex}_j(s_{ij} + \ln S(n_{ij}))$ over admissible rows.

    Args:
        similarity: a registered name ("l2", "l1", "cosine", "dot", "scaled_dot", "squared_l2") or a module
            ``sim(queries, bank) -> scores``.
        mask: a module ``mask(scores, queries, weight) -> log_mask``, as :class:`vicinal.masks.SoftStep`, or None.
        simplex: a registered name ("softmax", "sparsemax", "entmax15") or a callable ``map(scores) -> weights``.

    A query attends neither to a bank row of its own id nor to one of its own group. The prediction lies in the convex
    hull of the labels, so it needs no clipping.

    >>> head = NONA()
    >>> bank, labels = torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([0.0, 1.0, 5.0])
    >>> head(torch.tensor([[0.5]]), bank, labels)
    tensor([0.5008])
    >>> head.weights(bank, bank, query_ids=torch.arange(3), bank_ids=torch.arange(3))[0]
    tensor([0.0000e+00, 9.9966e-01, 3.3535e-04])
    """

    uses_bank = True

    def __init__(
        self,
        similarity: str | nn.Module = "l2",
        mask: nn.Module | None = None,
        simplex: str | SimplexMap = "softmax",
    ) -> None:
        super().__init__()
        self.similarity = resolve_similarity(similarity)
        if not (mask is None or isinstance(mask, nn.Module)):
            raise TypeError(f"mask: expected a module such as SoftStep(dim), or None, got {mask!r}")
        self.mask = mask
        self.simplex = resolve_simplex(simplex)

    def weights(
        self,
        queries: Tensor,
        bank: Tensor,
        *,
        query_ids: Tensor | None = None,
        bank_ids: Tensor | None = None,
        query_groups: Tensor | None = None,
        bank_groups: Tensor | None = None,
    ) -> Tensor:
        """Weight of each bank row in the prediction of each query.

        Args:
            queries: ``[b, d]``.
            bank: ``[N, d]``.
            query_ids: integers ``[b]``, with ``bank_ids`` or not at all.
            bank_ids: integers ``[N]``.
            query_groups: integers ``[b]``, with ``bank_groups`` or not at all.
            bank_groups: integers ``[N]``.

        Returns:
            ``[b, N]``, >= 0, rows sum to 1, 0 where not admissible.

        Raises:
            ValueError: if a query has no admissible bank row, or shapes do not agree.
        """
        check_matrices(queries, bank)
        shape = (queries.shape[0], bank.shape[0])
        allowed = admissible(shape, query_ids, bank_ids, query_groups, bank_groups)
        check_some(allowed, bank.shape[0])
        scores: Tensor = self.similarity(queries, bank)  # [b, N]
        if self.mask is not None:
            weight = None if allowed is None else allowed.to(scores.dtype)
            scores = scores + self.mask(scores, queries, weight)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        return self.simplex(scores)

    def forward(
        self,
        queries: Tensor,
        bank: Tensor,
        labels: Tensor,
        *,
        query_ids: Tensor | None = None,
        bank_ids: Tensor | None = None,
        query_groups: Tensor | None = None,
        bank_groups: Tensor | None = None,
    ) -> Tensor:
        """Weighted mean of the labels.

        Args:
            queries: ``[b, d]``.
            bank: ``[N, d]``.
            labels: ``[N]``, or ``[N, T]`` for several targets or one-hot classes (rows of the result are then
                probabilities); floating.
            query_ids: see :meth:`weights`, as are the three below.
            bank_ids: see :meth:`weights`.
            query_groups: see :meth:`weights`.
            bank_groups: see :meth:`weights`.

        Returns:
            ``[b]`` or ``[b, T]``.
        """
        check_matrices(queries, bank)
        check_labels(labels, bank.shape[0])
        weights = self.weights(
            queries,
            bank,
            query_ids=query_ids,
            bank_ids=bank_ids,
            query_groups=query_groups,
            bank_groups=bank_groups,
        )
        dtype = torch.promote_types(weights.dtype, labels.dtype)
        with torch.autocast(queries.device.type, enabled=False):
            return weights.to(dtype) @ labels.to(dtype)
