"""Scores computed a block at a time, for all other packages: tensors, numbers and callables in, tensors out."""

from vicinal.blockwise.blocks import BlockPolicy, block_policy, block_rows, policy, query_rows, row_slices
from vicinal.blockwise.custom_ops import custom_op, opaque_op, value_and_grad_op

__all__ = [
    "BlockPolicy",
    "block_policy",
    "block_rows",
    "custom_op",
    "opaque_op",
    "policy",
    "query_rows",
    "row_slices",
    "value_and_grad_op",
]
