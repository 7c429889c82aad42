"""The network: columns to embeddings to a prediction from neighbors."""

from typing import Any, Unpack

import torch
from torch import Tensor, nn

from vicinal.blockwise import policy
from vicinal.blockwise.blocks import query_rows, row_slices
from vicinal.encoders.base import to_device
from vicinal.heads.admissible import IdentityArguments, of_queries_in
from vicinal.heads.kinds import has_members, weighs_locally
from vicinal.training.rows import RowInputs

_FEW, _MANY = 256, 1 << 14
"""Rows that are embedded at a time, by layers and by a projector without any."""


class NeighborNetwork(nn.Module):
    """Encoder, projector and head.

    Args:
        encoder: module from a batch of columns to features ``[b, f]``.
        projector: module from features to embeddings ``[b, d]``.
        head: a head of the contract ``head(queries, bank, labels, *, query_ids, ...)``.
    """

    def __init__(self, encoder: nn.Module, projector: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector
        self.head = head

    def start_at(self, other: "NeighborNetwork") -> None:
        """Copy the projector's weights from a fitted network, and its head's unless that is a kriging head."""
        self.projector.load_state_dict(other.projector.state_dict())
        if not weighs_locally(other.head):
            self.head.load_state_dict(other.head.state_dict())

    @property
    def width(self) -> int:
        """Numbers in the vector of a row."""
        return self.projector.dim  # type: ignore[return-value]  # of a module

    @property
    def cross_fitted(self) -> bool:
        """Whether the projector has learned from labels by folds, and embeds a row by the one that left it out."""
        return bool(getattr(self.projector, "cross_fitted", False))

    def trend_columns(self) -> list[str]:
        """The column of the table that each entry of a trend comes from; of a projector without a trend none."""
        return list(getattr(self.projector, "names", ()))

    def embed(self, batch: Any, folds: Tensor | None = None) -> Tensor:
        """Embeddings ``[b, d]`` of a batch of columns, in the dtype of the projector's parameters.

        Args:
            batch: of the columns.
            folds: ``[b]``, of a cross-fitted projector the fold that left out each row, -1 for none.
        """
        reader = getattr(self.projector, "reader", None)
        features: Tensor = self.encoder(batch) if reader is None else reader(self.encoder, batch)
        if self.cross_fitted:
            embeddings: Tensor = self.projector(features, folds)
        else:
            embeddings = self.projector(features.to(next(self.projector.parameters()).dtype))
        return embeddings

    @torch.no_grad()
    def embed_all(
        self, inputs: RowInputs, device: torch.device, batch_size: int | None = None, folds: Tensor | None = None
    ) -> Tensor:
        """Embeddings ``[n, d]`` of all rows, batch by batch in evaluation mode; ``folds`` as in :meth:`embed`."""
        was_training = self.training
        if was_training:
            self.eval()
        blocks, batch_size = [], batch_size or (_MANY if self.cross_fitted else _FEW)
        for start in range(0, len(inputs), batch_size):
            rows = torch.arange(start, min(start + batch_size, len(inputs)))
            blocks.append(self.embed(to_device(inputs.select(rows), device), None if folds is None else folds[rows]))
        if was_training:
            self.train()
        return torch.cat(blocks)

    @torch.no_grad()
    def predict(
        self,
        queries: Tensor,
        bank: Tensor,
        labels: Tensor,
        **identity: Unpack[IdentityArguments],
    ) -> Tensor:
        """Predictions of the head for many queries, block by block: see :meth:`vicinal.heads.NONA.forward`."""
        streamed = getattr(self.head, "can_stream", False)  # then memory does not grow with the bank
        streamed &= identity.get("bank_weight") is None or weighs_locally(self.head)
        sizes = policy()
        step = sizes.batch_queries if streamed else query_rows(sizes.memory_entries, len(bank))
        if streamed and has_members(self.head):
            step = self.head.queries_at_once(len(bank))
        parts = row_slices(len(queries), step)
        blocks = [self.head(queries[part], bank, labels, **of_queries_in(part, identity)) for part in parts]
        return torch.cat(blocks)
