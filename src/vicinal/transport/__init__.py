"""Transport between masses: one Sinkhorn for everybody, ``sinkhorn(scores, a, b) -> plan [..., m, n]``."""

from vicinal.exports import export_imported as _export_imported
from vicinal.transport.class_structured import fused_transport as fused_transport
from vicinal.transport.class_structured import group_lasso_transport as group_lasso_transport
from vicinal.transport.class_structured import same_class as same_class
from vicinal.transport.inverse import inverse_transport as inverse_transport
from vicinal.transport.inverse import inverse_transport_loss as inverse_transport_loss
from vicinal.transport.permutations import assignment as assignment
from vicinal.transport.permutations import soft_permutation as soft_permutation
from vicinal.transport.sinkhorn import sinkhorn as sinkhorn
from vicinal.transport.sliced import draw_directions as draw_directions
from vicinal.transport.sliced import sliced_wasserstein as sliced_wasserstein
from vicinal.transport.sliced import wasserstein as wasserstein
from vicinal.transport.sparse import sparse_transport as sparse_transport

_export_imported(__name__)
