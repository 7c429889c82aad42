"""What all relations check."""

import torch
from torch import Tensor

from vicinal.core.checks import check_tensor


def check_blocks(name: str, of_queries: Tensor, of_bank: Tensor, dimensions: tuple[int, ...]) -> None:
    """Check that both are tensors of as many dimensions as one of ``dimensions``, and alike but for their rows.

    Raises:
        TypeError: if one is no tensor.
        ValueError: for other shapes, or two devices.
    """
    for side, value in ((name, of_queries), (f"bank_{name}", of_bank)):
        check_tensor(side, value)
        if value.ndim not in dimensions:
            shapes = " or ".join({1: "[rows]", 2: "[rows, width]"}[size] for size in dimensions)
            raise ValueError(f"{side}: expected {shapes}, got shape {tuple(value.shape)}")
    if of_queries.shape[1:] != of_bank.shape[1:] or of_queries.ndim != of_bank.ndim:
        expected_shape = (of_bank.shape[0], *of_queries.shape[1:])
        raise ValueError(f"bank_{name}: expected {expected_shape} to go with {name}, got {tuple(of_bank.shape)}")
    if of_queries.device != of_bank.device:
        raise ValueError(f"bank_{name}: expected a tensor on {of_queries.device}, got {of_bank.device}")


def check_whole(name: str, value: Tensor) -> None:
    """Check that ``value`` holds whole numbers.

    Raises:
        TypeError: for floating numbers, which are hardly ever equal: a relation by equality would be empty.
    """
    if value.is_floating_point() or value.is_complex():
        raise TypeError(
            f"{name}: expected whole numbers, got {value.dtype}; for labels that are numbers use label_distance, "
            "for classes call .long() on them"
        )


def as_relation(value: Tensor) -> Tensor:
    """Booleans as numbers of torch's default dtype."""
    return value.to(torch.get_default_dtype())
