"""Banks of labelled rows at any size, and searches for the rows most like a query."""

from vicinal.index.bank import NeighborBank
from vicinal.index.base import Hits, Index
from vicinal.index.exact import ExactIndex
from vicinal.index.faiss import FaissIndex
from vicinal.index.milvus import MilvusIndex
from vicinal.index.opening import load_index, open_index

__all__ = [
    "ExactIndex",
    "FaissIndex",
    "Hits",
    "Index",
    "MilvusIndex",
    "NeighborBank",
    "load_index",
    "open_index",
]
