"""Scores computed a block at a time, for all other packages: tensors, numbers and callables in, tensors out."""

from vicinal.blockwise.blocks import block_policy, policy
from vicinal.blockwise.custom_ops import custom_op, opaque_op

__all__ = [
    "block_policy",
    "custom_op",
    "opaque_op",
    "policy",
]
