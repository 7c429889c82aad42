"""Miners ``g(scores, relation, weight=None, **hyper) -> weight [b, N]``: which pairs of a batch a loss sees."""

from vicinal.miners.angles import angular
from vicinal.miners.pairs import guided, multi_similarity, pair_margin, topk_hard
from vicinal.miners.sampled import distance_weighted, uniform_histogram
from vicinal.miners.triplets import hard, semihard, triplet_margin

__all__ = [
    "angular",
    "distance_weighted",
    "guided",
    "hard",
    "multi_similarity",
    "pair_margin",
    "semihard",
    "topk_hard",
    "triplet_margin",
    "uniform_histogram",
]
