"""Weights of rows from their own losses: attend to the hard, to the middling, or to both ends."""

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice

SHAPES = ("linupper", "quadratic", "extremes", "upper")


def loss_weights(losses: Tensor, *, shape: str = "linupper", temperature: float = 1.0) -> Tensor:
    r"""Weights $w = \mathrm{softmax}(F(h) / r)$ of a batch's rows, with h their losses scaled to [-1, 1].

    The shape F: "linupper" $\min(h + 1, 1)$ (only the easiest lose), "quadratic" $1 - h^2$ (the middle), "extremes"
    $|h|$ (both ends), "upper" $(h + 1)/2$ (the harder the more). Sow et al., *Dynamic Loss-Based Sample Reweighting*,
    ICLR 2025 (arXiv:2502.06733). Multiply by the number of rows to keep a mean's scale; start with a large
    temperature (uniform) and lower it.

    Args:
        losses: ``[b]``, one for each row (``reduction="none"`` of any loss); no gradient passes through the weights.
        shape: one of "linupper", "quadratic", "extremes", "upper".
        temperature: r above 0.

    Returns:
        ``[b]``, >= 0, sums to 1; uniform if all losses are equal.

    Raises:
        ValueError: if a loss is not finite.

    >>> loss_weights(torch.tensor([0.0, 1.0, 2.0]), temperature=0.5)
    tensor([0.0634, 0.4683, 0.4683])
    """
    check_choice("shape", shape, SHAPES)
    check_between("temperature", temperature, 0, float("inf"))
    if losses.ndim != 1 or not losses.is_floating_point() or not len(losses):
        raise ValueError(f"losses: expected floating numbers [b], got {losses.dtype} {tuple(losses.shape)}")
    values = losses.detach()
    if not torch.isfinite(values).all():
        raise ValueError("losses: expected finite numbers, got some that are not")
    low, high = values.min(), values.max()
    place = 2 * (values - (low + high) / 2) / (high - low).clamp(min=1e-6)
    if shape == "linupper":
        height = (place + 1).clamp(max=1)
    elif shape == "quadratic":
        height = 1 - place**2
    elif shape == "extremes":
        height = place.abs()
    else:
        height = (place + 1) / 2
    return (height / temperature).softmax(0)
