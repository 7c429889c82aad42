"""Names of reductions, and a logarithm of masks with finite gradients."""

from typing import Literal

import torch
from torch import Tensor

Reduction = Literal["mean", "sum", "none", "mean_nonzero"]


def log_mask(mask: Tensor) -> Tensor:
    """Natural log of ``mask`` (values >= 0): -inf where it is 0, with gradient 0 there instead of NaN.

    >>> x = torch.tensor([0.0, 1.0], requires_grad=True)
    >>> log_mask(x)
    tensor([-inf, 0.], grad_fn=<WhereBackward0>)
    """
    positive = mask > 0
    return torch.where(positive, torch.where(positive, mask, 1.0).log(), -torch.inf)
