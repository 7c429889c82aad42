"""Miners ``g(scores, relation, weight=None, **hyper) -> weight [b, N]``: which pairs of a batch a loss sees."""

from vicinal.miners.iqr_filter import iqr_filter, within_fences
from vicinal.miners.pairs import (
    adaptive_margin,
    bucket_pairs,
    guided,
    multi_similarity,
    nearest,
    pair_margin,
    topk_hard,
)
from vicinal.miners.sampled import distance_weighted, uniform_histogram
from vicinal.miners.triplets import angular, hard, semihard, triplet_margin

__all__ = [
    "adaptive_margin",
    "angular",
    "bucket_pairs",
    "distance_weighted",
    "guided",
    "hard",
    "iqr_filter",
    "multi_similarity",
    "nearest",
    "pair_margin",
    "semihard",
    "topk_hard",
    "triplet_margin",
    "uniform_histogram",
    "within_fences",
]
