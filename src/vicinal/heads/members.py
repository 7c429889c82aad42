"""Several heads side by side: each reads its own part of the embeddings, and their mean is the prediction."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.core import check_integer
from vicinal.heads.admissible import warn_of_own_bank


class Members(nn.Module):
    r"""$\hat y_i = \frac{1}{M} \sum_m \hat y_i^m$, with head m on columns $md$ to $(m + 1)d$ of the embeddings.

    For neighbor heads this is one set of weights, $p_{ij} = \frac{1}{M} \sum_m p_{ij}^m$, that sum to 1: an
    explanation reads as that of one head. Train each member by its own error (:meth:`each`), not by the error of the
    mean: members that only fit together do not average their mistakes away.

    Args:
        heads: at least one, all of the same kind (:class:`NONA` or :class:`Dense`), for embeddings of width d.

    Raises:
        ValueError: if there is none, or some use the bank and others do not.

    >>> from vicinal.heads import NONA
    >>> head = Members([NONA(), NONA("squared_l2")])
    >>> bank, labels = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([0.0, 1.0])
    >>> head(torch.tensor([[0.0, 1.0]]), bank, labels)
    tensor([0.5000])
    """

    def __init__(self, heads: Sequence[nn.Module]) -> None:
        super().__init__()
        if not heads:
            raise ValueError("heads: expected at least one head, got none")
        if len({bool(head.uses_bank) for head in heads}) > 1:
            raise ValueError("heads: expected all to use the bank or none, got some of both")
        self.heads = nn.ModuleList(heads)

    @property
    def uses_bank(self) -> bool:
        """Whether the members do."""
        return bool(self.heads[0].uses_bank)

    @property
    def can_stream(self) -> bool:
        """Whether all members stream large banks, so that memory does not grow with the bank."""
        return all(getattr(head, "can_stream", False) for head in self.heads)

    def _parts(self, embeddings: Tensor, name: str) -> tuple[Tensor, ...]:
        """``[b, d]`` of each member."""
        if embeddings.ndim != 2 or embeddings.shape[1] % len(self.heads):
            raise ValueError(
                f"{name}: expected [rows, d * {len(self.heads)}], d columns for each member, "
                f"got {tuple(embeddings.shape)}"
            )
        return embeddings.chunk(len(self.heads), dim=1)

    def _warn_of_own_bank(self, queries: Tensor, bank: Tensor, identity: dict[str, Tensor | None]) -> None:
        """Once for all members, which see views of the same rows."""
        if self.uses_bank:
            warn_of_own_bank(self, queries, bank, *identity.values())

    def each(self, queries: Tensor, bank: Tensor, labels: Tensor, **identity: Tensor | None) -> Tensor:
        """Prediction of each member, along the last dimension: ``[b, M]``, or ``[b, T, M]``.

        Args:
            queries: ``[b, M * d]``.
            bank: ``[N, M * d]``.
            labels: as the heads take them.
            identity: ids and groups, as the heads take them.
        """
        self._warn_of_own_bank(queries, bank, identity)
        parts = zip(self.heads, self._parts(queries, "queries"), self._parts(bank, "bank"), strict=True)
        return torch.stack([head(own, rows, labels, **identity) for head, own, rows in parts], dim=-1)

    def forward(self, queries: Tensor, bank: Tensor, labels: Tensor, **identity: Tensor | None) -> Tensor:
        """Mean of the members' predictions, ``[b]`` or ``[b, T]``: see :meth:`each`."""
        return self.each(queries, bank, labels, **identity).mean(dim=-1)

    def weights(self, queries: Tensor, bank: Tensor, **identity: Tensor | None) -> Tensor:
        """Mean of the members' weights ``[b, N]``, rows sum to 1: see :meth:`NONA.weights`."""
        self._warn_of_own_bank(queries, bank, identity)
        parts = zip(self.heads, self._parts(queries, "queries"), self._parts(bank, "bank"), strict=True)
        total = torch.zeros((), dtype=queries.dtype, device=queries.device)
        for head, own, rows in parts:  # one at a time: a row of weights may be long
            total = total + head.weights(own, rows, **identity)  # type: ignore[operator]
        return total / len(self.heads)

    @torch.no_grad()
    def top_weights(self, queries: Tensor, bank: Tensor, k: int, **identity: Tensor | None) -> tuple[Tensor, Tensor]:
        """The ``k`` bank rows of highest mean weight: see :meth:`NONA.top_weights`.

        The mean of all members is needed before rows can be ranked, so this holds ``[b, N]`` weights.
        """
        k = min(check_integer("k", k), bank.shape[0])
        found = self.weights(queries, bank, **identity).topk(k, dim=-1)
        return found.values, found.indices.masked_fill(found.values == 0, -1)
