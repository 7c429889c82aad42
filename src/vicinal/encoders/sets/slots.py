"""Slots that sum over the elements one at a time, so that any chunks of a set give the same, whatever comes after."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from vicinal.core import check_choice, register
from vicinal.core.checks import check_integer
from vicinal.encoders.sets.contract import AdditiveSetEncoder, Sums
from vicinal.encoders.sets.set_transformer import AttentionPooling, SelfAttentionBlock, check_heads

Activation = Literal["slot-sigmoid", "sigmoid", "slot-softmax", "slot-exp", "softmax"]

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "slot-sigmoid": lambda logits: logits.sigmoid() / logits.sigmoid().sum(dim=2, keepdim=True),
    "sigmoid": lambda logits: logits.sigmoid(),
    "slot-softmax": lambda logits: logits.softmax(dim=2),
    "slot-exp": lambda logits: (logits - logits.amax(dim=2, keepdim=True)).exp(),
    "softmax": lambda logits: logits.clamp(max=10).exp(),
}
"""Of logits ``[b, heads, slots, n]``; none looks at more than one element."""

_EPS = 1e-20


class SlotSums(nn.Module):
    r"""Weighted means of the elements, one for each slot, by running sums.

    $z_k = \mathrm{LN}(q_k + \sum_i a_{ki} v_i / (\sum_i a_{ki} + \epsilon))$ with $q_k$ linear in the normalized slot,
    $v_i$ in the element, and $a_{ki} \ge 0$ of the logits $q_k \cdot k_i / \sqrt{h}$ of heads of width h. Weights
    are normalized over the elements only by the sum, so each element can be read alone.

    Args:
        width: of the elements.
        dim: of the result.
        slots: K >= 1.
        slot_width: of a slot, before it is mapped to ``dim``.
        heads: which divide ``dim``.
        activation: what makes a of the logits: "sigmoid", "slot-sigmoid" (divided by its sum over the slots),
            "slot-softmax" (over the slots), "slot-exp" (less the largest of the slots) or "softmax" (cut at 10).

    Paper: arXiv:2208.12401.
    """

    def __init__(
        self,
        width: int,
        dim: int,
        *,
        slots: int = 16,
        slot_width: int = 64,
        heads: int = 4,
        activation: Activation = "slot-sigmoid",
    ) -> None:
        super().__init__()
        self.heads = check_heads(dim, heads)
        self.activation = check_choice("activation", activation, _ACTIVATIONS)
        self.factor = 1 / math.sqrt(dim // heads)
        shape = (check_integer("slots", slots), check_integer("slot_width", slot_width))
        self.slots = nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))
        self.slot_norm, self.norm = nn.LayerNorm(slot_width), nn.LayerNorm(dim)
        self.query, self.key, self.value = nn.Linear(slot_width, dim), nn.Linear(width, dim), nn.Linear(width, dim)

    def sums(self, elements: Tensor, valid: Tensor) -> Sums:
        """Numerators ``[b, heads, K, dim / heads]`` and denominators ``[b, heads, K]`` of these elements."""
        queries = self.query(self.slot_norm(self.slots)).unflatten(-1, (self.heads, -1)).transpose(0, 1)
        keys, values = (
            each(elements).unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (self.key, self.value)
        )  # [b, heads, n, dim / heads]
        weights = _ACTIVATIONS[self.activation](self.factor * queries @ keys.mT)  # [b, heads, K, n]
        weights = torch.where(valid[:, None, None], weights, 0.0)
        return weights @ values, weights.sum(dim=-1)

    def read_out(self, sums: Sums) -> Tensor:
        """``[b, K, dim]``."""
        total, mass = sums
        means = (total / (mass + _EPS)[..., None]).transpose(1, 2).flatten(2)
        return self.norm(self.query(self.slot_norm(self.slots)) + means)


@register(
    "set_encoder",
    "umbc",
    "mini-batch-consistent",
    family="slots",
    paper="arXiv:2208.12401",
    verified="the authors' code (jeffwillette/umbc)",
)
class UMBC(AdditiveSetEncoder):
    r"""Slots that sum over the elements, attention between the slots, and a learned seed that reads them.

    $W\, \mathrm{PMA}_1(\mathrm{SAB}(z)) + c$ with the slots z of :class:`SlotSums`. As any chunks of a set give the
    same slots, any network may follow them.

    Args:
        width: d, of the elements.
        dim: e, of the vectors.
        hidden: width of the slots and of the blocks after them.
        slots, heads, activation: see :class:`SlotSums`.

    >>> UMBC(2, 3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(
        self,
        width: int,
        dim: int,
        *,
        hidden: int = 64,
        slots: int = 16,
        heads: int = 4,
        activation: Activation = "slot-sigmoid",
    ) -> None:
        super().__init__(width, dim)
        self.slots = SlotSums(
            width, hidden, slots=slots, slot_width=check_integer("hidden", hidden), heads=heads, activation=activation
        )
        self.block = SelfAttentionBlock(hidden, hidden, heads=heads)
        self.pooling = AttentionPooling(hidden, heads=heads)
        self.out = nn.Linear(hidden, dim)

    def sums(self, elements: Tensor, valid: Tensor) -> Sums:
        """See :meth:`SlotSums.sums`."""
        return self.slots.sums(elements, valid)

    def read_out(self, sums: Sums) -> Tensor:
        """See :class:`UMBC`."""
        return self.out(self.pooling(self.block(self.slots.read_out(sums)))[:, 0])
