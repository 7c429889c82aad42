"""Similarities: ``sim(queries [b, d], bank [N, d]) -> scores [b, N]``, where higher means more alike."""

from vicinal.similarity.base import Similarity
from vicinal.similarity.distances import NegativeL1, NegativeL2, NegativeSquaredL2
from vicinal.similarity.gaussians import bures_exp, bures_geodesic, bures_log, bures_wasserstein
from vicinal.similarity.images import ImageSimilarity, ms_ssim, ssim
from vicinal.similarity.mapped import Mapped
from vicinal.similarity.means import class_means
from vicinal.similarity.noise import NegativeSNR
from vicinal.similarity.products import Cosine, Dot, scaled_dot
from vicinal.similarity.sets import FixedDimensionalEncoding, SetScores

__all__ = [
    "Cosine",
    "Dot",
    "FixedDimensionalEncoding",
    "ImageSimilarity",
    "Mapped",
    "NegativeL1",
    "NegativeL2",
    "NegativeSNR",
    "NegativeSquaredL2",
    "SetScores",
    "Similarity",
    "bures_exp",
    "bures_geodesic",
    "bures_log",
    "bures_wasserstein",
    "class_means",
    "ms_ssim",
    "scaled_dot",
    "ssim",
]
