"""Passages that read one another by their first tokens, so that a list is scored as a set (Set-Encoder)."""

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer, check_tensor
from vicinal.encoders.sets.set_transformer import attend, check_heads


class PassageAttention(nn.Module):
    r"""Attention of the tokens of a passage to themselves, and to the first tokens of the other passages of its group.

    Of passage i with tokens $h_i \in \mathbb{R}^{t \times e}$, the keys and values are made of $[h_i; h_{j,0}, j \ne
    i]$, the queries of $h_i$. There are no positions over passages, so their order does not matter; a group of one is
    plain self-attention. What is projected out of it is left to the caller.

    Args:
        width: e, of the tokens.
        heads: which divide the width; scores are divided by the root of the width of a head.

    Paper: Set-Encoder, arXiv:2404.06912.

    >>> PassageAttention(8, heads=2)(torch.zeros(1, 3, 5, 8)).shape
    torch.Size([1, 3, 5, 8])
    """

    def __init__(self, width: int, *, heads: int = 4) -> None:
        super().__init__()
        self.width, self.heads = width, check_heads(width, heads)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        """New tokens of each passage.

        Args:
            tokens: ``[b, g, t, e]``, b groups of g passages.
            valid: boolean ``[b, g, t]``, True for a token; a passage without any is not there, and gets zeros.
                None: all.

        Returns:
            ``[b, g, t, e]``, zeros where there is no token.

        Raises:
            ValueError: for another shape, a group without passages, or a passage whose first token is hidden.
        """
        tokens, valid = check_passages(tokens, valid, self.width)
        b, g, t, e = tokens.shape
        first = tokens[:, None, :, 0].expand(b, g, g, e)  # [b, i, j, e]
        there = valid[:, None, :, 0] & ~torch.eye(g, dtype=torch.bool, device=valid.device)  # [b, i, j]
        read = torch.cat([tokens, first], dim=2).flatten(0, 1)  # [b g, t + g, e]
        some = valid[..., :1]  # a passage that is not there reads its first zeros, so that no softmax is empty
        mask = torch.cat([valid | (~some & (torch.arange(t, device=valid.device) == 0)), there], dim=2).flatten(0, 1)
        queries = self.query(tokens).flatten(0, 1)
        factor = (e // self.heads) ** -0.5
        attended = attend(queries, self.key(read), self.value(read), mask, self.heads, factor)
        return torch.where(valid[..., None], attended.view(b, g, t, e), 0.0)


def check_passages(tokens: Tensor, valid: Tensor | None, width: int) -> tuple[Tensor, Tensor]:
    """Tokens that are 0 where there are none, and where there are some."""
    if check_tensor("tokens", tokens).ndim != 4 or tokens.shape[-1] != width or not tokens.is_floating_point():
        raise ValueError(f"tokens: expected floating [b, g, t, {width}], got {tokens.dtype} {tuple(tokens.shape)}")
    if valid is None:
        valid = torch.ones(tokens.shape[:3], dtype=torch.bool, device=tokens.device)
    if valid.shape != tokens.shape[:3] or valid.dtype != torch.bool:
        raise ValueError(
            f"valid: expected boolean {tuple(tokens.shape[:3])}, got {valid.dtype} of {tuple(valid.shape)}"
        )
    if not tokens.shape[1] or not bool(valid.flatten(1).any(dim=1).all()):
        raise ValueError("valid: expected a passage at least in each group, got a group without")
    if bool((valid.any(dim=2) & ~valid[..., 0]).any()):
        raise ValueError("valid: expected the first token of each passage that is there, got one that is hidden")
    return torch.where(valid[..., None], tokens, 0.0), valid


class PassageScorer(nn.Module):
    r"""Scores of the passages of a group from their tokens: blocks with :class:`PassageAttention`, then a linear map.

    $x \leftarrow \mathrm{LN}(x + W\, \mathrm{attention}(x))$, then $x \leftarrow \mathrm{LN}(x + W'' \mathrm{GELU}(W'
    x))$, as in the encoders that it may go on top of; the score is linear in a passage's first token.

    Args:
        width: e, of the tokens.
        blocks: how many, >= 1.
        heads: see :class:`PassageAttention`.
        widening: of the hidden layer, as a multiple of the width.

    >>> PassageScorer(8)(torch.zeros(2, 3, 5, 8)).shape
    torch.Size([2, 3])
    """

    def __init__(self, width: int, *, blocks: int = 2, heads: int = 4, widening: int = 4) -> None:
        super().__init__()
        hidden, count = width * check_integer("widening", widening), check_integer("blocks", blocks)
        self.attentions = nn.ModuleList(PassageAttention(width, heads=heads) for _ in range(count))
        self.outs = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)) for _ in range(count)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * count))
        self.score = nn.Linear(width, 1)

    def forward(self, tokens: Tensor, valid: Tensor | None = None) -> Tensor:
        """``[b, g]`` of tokens ``[b, g, t, e]``, ``-inf`` for passages that are not there."""
        tokens, valid = check_passages(tokens, valid, self.score.in_features)
        for place, attention in enumerate(self.attentions):
            tokens = self.norms[2 * place](tokens + self.outs[place](attention(tokens, valid)))
            tokens = self.norms[2 * place + 1](tokens + self.networks[place](tokens))
        scores: Tensor = self.score(tokens[:, :, 0])[..., 0]
        return scores.masked_fill(~valid[..., 0], -torch.inf)
