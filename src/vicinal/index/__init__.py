"""Banks of labelled rows at any size, and searches for the rows most like a query."""

from vicinal.exports import export_imported as _export_imported
from vicinal.index.anchors import anchor_codes as anchor_codes
from vicinal.index.anchors import anchor_search as anchor_search
from vicinal.index.bank import NeighborBank as NeighborBank
from vicinal.index.base import Hits as Hits
from vicinal.index.base import Index as Index
from vicinal.index.exact import ExactIndex as ExactIndex
from vicinal.index.faiss import FaissIndex as FaissIndex
from vicinal.index.hubs import Corrected as Corrected
from vicinal.index.hubs import dual_hub_bias as dual_hub_bias
from vicinal.index.hubs import hub_bias as hub_bias
from vicinal.index.milvus import MilvusIndex as MilvusIndex
from vicinal.index.opening import load_index as load_index
from vicinal.index.opening import open_index as open_index

_export_imported(__name__)
