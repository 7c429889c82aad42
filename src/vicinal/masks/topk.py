"""The mask that keeps the k highest scores."""

import torch
from torch import Tensor, nn

from vicinal.blockwise.resolution import Resolution
from vicinal.core import register
from vicinal.core.checks import check_integer, check_scores
from vicinal.masks.unit import told_apart


@register(
    "mask",
    "topk",
    "hard-rejection",
    "score-scale-invariant",
    "score-shift-invariant",
    "permutation-invariant",
    verified="numpy in float64",
)
class TopK(nn.Module):
    """Log mask 0 for the ``k`` highest admissible scores of each query and -inf for the rest.

    Rows tied with the k-th are all kept, so the result does not depend on the order of the bank; scores that differ by
    no more than their rounding are tied.

    Args:
        k: how many to keep, >= 1; a bank with fewer rows is kept whole.

    >>> TopK(2)(torch.tensor([[3.0, 1.0, 2.0, 2.0]]), torch.zeros(1, 1))
    tensor([[0., -inf, 0., 0.]])
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = check_integer("k", k)

    def forward(
        self, scores: Tensor, queries: Tensor, weight: Tensor | None = None, resolution: Resolution | None = None
    ) -> Tensor:
        """Log mask to add to the scores: see :meth:`SoftStep.forward`; ``queries`` is not used."""
        check_scores(scores, weight)
        if scores.shape[1] == 0:
            return torch.zeros_like(scores)
        values = scores.detach()
        if weight is not None:
            values = torch.where(weight > 0, values, -torch.inf)
        best = values.topk(min(self.k, scores.shape[1]), dim=-1).values  # [b, k]
        lowest = best[:, -1:] - told_apart(values, resolution).of(best[:, -1:], best[:, :1])  # [b, 1]
        return torch.zeros_like(values).masked_fill(values < lowest, -torch.inf)

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"k={self.k}"
