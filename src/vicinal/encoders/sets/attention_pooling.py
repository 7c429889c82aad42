"""Weighted means of the elements, with a weight for each number of an element, and their training in two phases."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import check_integer
from vicinal.encoders.sets.contract import SetEncoder
from vicinal.encoders.sets.deep_sets import perceptron


class FeatureAttention(nn.Module):
    r"""A weighted mean of the elements, apart for each of their numbers.

    $y = \sum_i a_i \odot x_i$ with $a = \mathrm{softmax}_i(W x_i + c)$ for each feature apart: within the least and the
    largest of the set, and the element itself for a set of one.

    Args:
        width: d, of the elements.
        outputs: k such means, one after the other.
        tanh: of the logits, before the softmax.

    Paper: arXiv:1808.00758.

    >>> FeatureAttention(2)(torch.tensor([[[3.0, 4.0]]]))
    tensor([[3., 4.]], grad_fn=...)
    """

    def __init__(self, width: int, *, outputs: int = 1, tanh: bool = False) -> None:
        super().__init__()
        self.outputs, self.tanh = check_integer("outputs", outputs), tanh
        self.gate = nn.Linear(width, outputs * width)

    def forward(self, elements: Tensor, valid: Tensor | None = None) -> Tensor:
        """``[b, k d]`` of ``[b, n, d]``, with one valid element at least in each set."""
        logits = self.gate(elements)
        if self.tanh:
            logits = logits.tanh()
        if valid is not None and not bool(valid.all()):
            logits = logits + torch.where(valid, 0.0, -torch.inf).to(logits.dtype)[..., None]
        values = elements if self.outputs == 1 else elements.repeat(1, 1, self.outputs)
        return (logits.softmax(dim=1) * values).sum(dim=1)


@register(
    "set_encoder",
    "attsets",
    family="attention pooling",
    paper="arXiv:1808.00758",
    verified="torch_geometric 2.8.1",
)
class AttSets(SetEncoder):
    r"""A weighted mean of what a network says of each element, with a weight for each of its numbers.

    $W \sum_i a_i \odot \phi(x_i) + c$: see :class:`FeatureAttention`.

    Args:
        width: d, of the elements.
        dim: e, of the vectors.
        hidden: width of the two layers of $\phi$.
        tanh: see :class:`FeatureAttention`.

    >>> AttSets(2, 3)(torch.zeros(4, 5, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, width: int, dim: int, *, hidden: int = 128, tanh: bool = False) -> None:
        super().__init__(width, dim)
        self.phi = perceptron(width, check_integer("hidden", hidden), hidden)
        self.attention = FeatureAttention(hidden, tanh=tanh)
        self.out = nn.Linear(hidden, dim)

    def encode(self, elements: Tensor, valid: Tensor) -> Tensor:
        """See :meth:`SetEncoder.encode`."""
        return self.out(self.attention(self.phi(elements), valid))


def two_phase_backward(
    model: nn.Module,
    elements: Tensor,
    valid: Tensor,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Add the gradients of FASet: attention learns from whole sets, all the rest from sets of one element.

    So the rest of the network works for a set of any size. Attention learns nothing from sets of one anyway: their
    weights are 1. Call it in the place of ``loss.backward()``, before the step of an optimizer.

    Args:
        model: takes ``(elements, valid)``; its attention are the parameters of its :class:`FeatureAttention` modules.
        elements: ``[b, n, d]``.
        valid: boolean ``[b, n]``.
        targets: ``[b, ...]``; an element has the target of its set.
        loss: of ``(model(elements, valid), targets)``, a scalar.

    Returns:
        The losses of the single elements and of the whole sets.

    Raises:
        ValueError: for a model without a :class:`FeatureAttention`, or sets without an element between them.

    Paper: arXiv:1808.00758.
    """
    attention = {p for part in model.modules() if isinstance(part, FeatureAttention) for p in part.parameters()}
    if not attention:
        raise ValueError("model: expected a module with a FeatureAttention, got none")
    if not bool(valid.any()):
        raise ValueError("valid: expected an element at least, got none")
    rest = [p for p in model.parameters() if p not in attention and p.requires_grad]
    single = loss(model(elements[valid][:, None], None), targets.repeat_interleave(valid.sum(dim=1), dim=0))
    torch.autograd.backward(single, inputs=rest)
    whole = loss(model(elements, valid), targets)
    torch.autograd.backward(whole, inputs=[p for p in attention if p.requires_grad])
    return single.detach(), whole.detach()
