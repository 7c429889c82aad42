"""Texts cut into tokens, and what all encoders of tokens share: batches of texts of like length, pooling, memory."""

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vicinal.encoders.inputs import Inputs, RaggedInputs, ragged
from vicinal.encoders.ngrams import to_texts
from vicinal.encoders.pretrained import ROWS_AT_ONCE, PretrainedEncoder

MOST_ACTIVATIONS = 1 << 27
"""Bytes of activations of a column that a CPU holds at a time. Of more, few rows run together; where there is a way
back each of these is run again when it is its turn, which gives the same gradients."""


def mean_of_places(hidden: Tensor, mask: Tensor | None = None) -> Tensor:
    """``[b, dim]``, means of ``hidden [b, places, dim]`` over the places where ``mask [b, places]`` is 1.

    >>> mean_of_places(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]]))
    tensor([[2.]])
    """
    if mask is None:
        return hidden.mean(dim=1)
    weight = mask[:, :, None].to(hidden.dtype)
    return (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


class TextEncoder(PretrainedEncoder):
    """An encoder whose network reads tokens.

    Attributes:
        normalized: whether vectors are given length 1.
    """

    kind = "text"
    has_states = True
    normalized: ClassVar[bool] = False

    @abc.abstractmethod
    def tokens(self, texts: list[str]) -> list[list[int]]:
        """Numbers of the tokens of each text, at least one and at most ``longest()``."""

    @abc.abstractmethod
    def longest(self) -> int:
        """Tokens that are read of a text."""

    @abc.abstractmethod
    def hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The last layer ``[b, places, dim]`` of ``tokens [b, places]``, of which those of ``mask`` 0 are not read."""

    @property
    @abc.abstractmethod
    def padding(self) -> int:
        """The token that stands where a text has ended."""

    def pool(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """``[b, dim]`` of ``hidden [b, places, dim]`` (``mask [b, places]``: 1 where there is a token)."""
        return mean_of_places(hidden, mask)

    def places(self, inputs: Inputs, state: Tensor) -> Tensor:
        """Tokens of each text."""
        return inputs.sizes()

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> RaggedInputs:
        """Cut texts into tokens: rows of different lengths."""
        texts = to_texts(self.cells(frame), self.columns[0])
        rows = self.tokens(texts) if texts else []
        return ragged((torch.tensor(row, dtype=torch.int32) for row in rows), torch.zeros(0, dtype=torch.int32))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """``[b, dim]``."""
        return self.onward({"inputs": batch})

    def onward(self, batch: Mapping[str, Any]) -> Tensor:
        """``[b, dim]``; texts of like length run together on a CPU, so that little of the work is padding."""
        values, lengths = batch["inputs"]["values"].long(), batch["inputs"]["lengths"]
        on_cpu, needs = values.device.type == "cpu", self._bytes_of_token()
        many = values.numel() * needs > MOST_ACTIVATIONS
        again = many and torch.is_grad_enabled()
        if not on_cpu or (not many and len(values) <= ROWS_AT_ONCE):
            return self._vectors(values, lengths, batch.get("states"))
        order, vectors = torch.argsort(lengths, stable=True), []
        for some in torch.split(order, ROWS_AT_ONCE):
            most = MOST_ACTIVATIONS // (needs * int(lengths[some].max())) if many else ROWS_AT_ONCE
            for rows in torch.split(some, max(1, most)):
                longest = int(lengths[rows].max())
                states = None if "states" not in batch else batch["states"][rows, :longest]
                part = (values[rows, :longest], lengths[rows], states)
                vectors.append(checkpoint(self._vectors, *part, use_reentrant=False) if again else self._vectors(*part))
        return torch.cat(vectors)[order.argsort()]

    def pooled(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Vectors ``[b, dim]`` of ``tokens [b, places]`` and ``mask [b, places]``."""
        pooled = self.pool(self.hidden(tokens, mask), mask)
        return nn.functional.normalize(pooled, dim=1) if self.normalized else pooled

    def _bytes_of_token(self) -> int:
        """Bytes that a layer, or the way back through the trained layers, needs of one token, about."""
        if not torch.is_grad_enabled():
            return 4 * 16 * self.dim
        trained = sum(self.tune == "lora" or any(p.requires_grad for p in part.parameters()) for part in self.layers())
        return 4 * 34 * trained * self.dim

    def _vectors(self, tokens: Tensor, lengths: Tensor, states: Tensor | None) -> Tensor:
        mask = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]  # [b, longest]
        with self.entered(states):
            return self.pooled(tokens.masked_fill(~mask, self.padding), mask)
