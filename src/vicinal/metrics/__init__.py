"""Metrics of retrieval and of embeddings: functions ``f(scores, relation, weight) -> [b]`` and accumulators."""

from vicinal.metrics.accumulate import EmbeddingRetrieval, RetrievalMetrics
from vicinal.metrics.calibration import opis
from vicinal.metrics.geometry import alignment, hubness, neighbor_coverage, uniformity, utilization
from vicinal.metrics.linking import LinkQuality, candidate_recall, cluster_quality, link_quality
from vicinal.metrics.margins import class_margins, klom
from vicinal.metrics.multiplicity import Multiplicity, channel_capacity, predictive_multiplicity
from vicinal.metrics.retrieval import (
    average_precision,
    hit_at_k,
    map_at_r,
    ndcg,
    precision_at_k,
    r_precision,
    recall_at_k,
    reciprocal_rank,
)
from vicinal.metrics.spectrum import pca_dimension
from vicinal.metrics.streamed import embedding_metrics

__all__ = [
    "EmbeddingRetrieval",
    "LinkQuality",
    "Multiplicity",
    "RetrievalMetrics",
    "alignment",
    "average_precision",
    "candidate_recall",
    "channel_capacity",
    "class_margins",
    "cluster_quality",
    "embedding_metrics",
    "hit_at_k",
    "hubness",
    "klom",
    "link_quality",
    "map_at_r",
    "ndcg",
    "neighbor_coverage",
    "opis",
    "pca_dimension",
    "precision_at_k",
    "predictive_multiplicity",
    "r_precision",
    "recall_at_k",
    "reciprocal_rank",
    "uniformity",
    "utilization",
]
