"""Transport between masses: one Sinkhorn for everybody, ``sinkhorn(scores, a, b) -> plan [..., m, n]``."""

from vicinal.transport.class_structured import fused_transport, group_lasso_transport, same_class
from vicinal.transport.inverse import inverse_transport, inverse_transport_loss
from vicinal.transport.permutations import assignment, soft_permutation
from vicinal.transport.sinkhorn import sinkhorn
from vicinal.transport.sliced import draw_directions, sliced_wasserstein, wasserstein
from vicinal.transport.sparse import sparse_transport

__all__ = [
    "assignment",
    "draw_directions",
    "fused_transport",
    "group_lasso_transport",
    "inverse_transport",
    "inverse_transport_loss",
    "same_class",
    "sinkhorn",
    "sliced_wasserstein",
    "soft_permutation",
    "sparse_transport",
    "wasserstein",
]
