"""Transport between masses: one Sinkhorn for everybody, ``sinkhorn(scores, a, b) -> plan [..., m, n]``."""

from vicinal.transport.permutations import assignment, permutation_cross_entropy, soft_permutation
from vicinal.transport.sinkhorn import sinkhorn

__all__ = ["assignment", "permutation_cross_entropy", "sinkhorn", "soft_permutation"]
