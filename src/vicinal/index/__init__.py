"""Banks of labelled rows at any size, and searches for the rows most like a query."""

from vicinal.index.anchors import anchor_codes, anchor_search
from vicinal.index.bank import NeighborBank
from vicinal.index.base import Hits, Index
from vicinal.index.exact import ExactIndex
from vicinal.index.faiss import FaissIndex
from vicinal.index.hubs import Corrected, dual_hub_bias, hub_bias
from vicinal.index.milvus import MilvusIndex
from vicinal.index.opening import load_index, open_index

__all__ = [
    "Corrected",
    "ExactIndex",
    "FaissIndex",
    "Hits",
    "Index",
    "MilvusIndex",
    "NeighborBank",
    "anchor_codes",
    "anchor_search",
    "dual_hub_bias",
    "hub_bias",
    "load_index",
    "open_index",
]
