"""Softmax cross-entropy of rows with one related column each, after a change to its score."""

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import cross_entropy

Change = Callable[[Tensor], Tensor]


def scaled_at(scores: Tensor, column: Tensor, scale: float, change: Change) -> Tensor:
    """``scale * scores``, with ``change`` first made to the score at ``column [b, 1]`` of each row; ``[b, N]``.

    >>> import torch
    >>> scaled_at(torch.tensor([[1.0, 2.0]]), torch.tensor([[1]]), 10.0, lambda own: own - 0.5)
    tensor([[10., 15.]])
    """
    return scale * scores.scatter(1, column, change(scores.gather(1, column)))


def target_entropy(scores: Tensor, column: Tensor, scale: float = 1.0, change: Change | None = None) -> Tensor:
    """Minus the log-softmax of each row of ``scale * scores`` at its column, after a ``change`` there, ``[b]``.

    >>> import torch
    >>> target_entropy(torch.zeros(1, 3), torch.tensor([[0]]))
    tensor([1.0986])
    """
    logits = scale * scores if change is None else scaled_at(scores, column, scale, change)
    return cross_entropy(logits, column[:, 0], reduction="none")
