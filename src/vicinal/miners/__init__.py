"""Miners ``g(scores, relation, weight=None, **hyper) -> weight [b, N]``: which pairs of a batch a loss sees."""

from vicinal.exports import export_imported as _export_imported
from vicinal.miners.iqr_filter import iqr_filter as iqr_filter
from vicinal.miners.iqr_filter import within_fences as within_fences
from vicinal.miners.pairs import adaptive_margin as adaptive_margin
from vicinal.miners.pairs import bucket_pairs as bucket_pairs
from vicinal.miners.pairs import guided as guided
from vicinal.miners.pairs import multi_similarity as multi_similarity
from vicinal.miners.pairs import nearest as nearest
from vicinal.miners.pairs import pair_margin as pair_margin
from vicinal.miners.pairs import topk_hard as topk_hard
from vicinal.miners.sampled import distance_weighted as distance_weighted
from vicinal.miners.sampled import uniform_histogram as uniform_histogram
from vicinal.miners.triplets import angular as angular
from vicinal.miners.triplets import hard as hard
from vicinal.miners.triplets import semihard as semihard
from vicinal.miners.triplets import triplet_margin as triplet_margin

_export_imported(__name__)
