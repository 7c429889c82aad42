"""Metrics of retrieval and of embeddings: functions ``f(scores, relation, weight) -> [b]`` and accumulators."""

from vicinal.exports import export_imported as _export_imported
from vicinal.metrics.accumulate import EmbeddingRetrieval as EmbeddingRetrieval
from vicinal.metrics.accumulate import RetrievalMetrics as RetrievalMetrics
from vicinal.metrics.calibration import opis as opis
from vicinal.metrics.geometry import alignment as alignment
from vicinal.metrics.geometry import hubness as hubness
from vicinal.metrics.geometry import neighbor_coverage as neighbor_coverage
from vicinal.metrics.geometry import uniformity as uniformity
from vicinal.metrics.geometry import utilization as utilization
from vicinal.metrics.linking import LinkQuality as LinkQuality
from vicinal.metrics.linking import candidate_recall as candidate_recall
from vicinal.metrics.linking import cluster_quality as cluster_quality
from vicinal.metrics.linking import link_quality as link_quality
from vicinal.metrics.margins import class_margins as class_margins
from vicinal.metrics.margins import klom as klom
from vicinal.metrics.multiplicity import Multiplicity as Multiplicity
from vicinal.metrics.multiplicity import channel_capacity as channel_capacity
from vicinal.metrics.multiplicity import predictive_multiplicity as predictive_multiplicity
from vicinal.metrics.retrieval import average_precision as average_precision
from vicinal.metrics.retrieval import hit_at_k as hit_at_k
from vicinal.metrics.retrieval import map_at_r as map_at_r
from vicinal.metrics.retrieval import ndcg as ndcg
from vicinal.metrics.retrieval import precision_at_k as precision_at_k
from vicinal.metrics.retrieval import r_precision as r_precision
from vicinal.metrics.retrieval import recall_at_k as recall_at_k
from vicinal.metrics.retrieval import reciprocal_rank as reciprocal_rank
from vicinal.metrics.spectrum import pca_dimension as pca_dimension
from vicinal.metrics.streamed import embedding_metrics as embedding_metrics

_export_imported(__name__)
