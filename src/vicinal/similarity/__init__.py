"""Similarities: ``sim(queries [b, d], bank [N, d]) -> scores [b, N]``, where higher means more alike."""

from vicinal.similarity.base import Similarity, resolve_similarity
from vicinal.similarity.distances import NegativeL1, NegativeL2, NegativeSquaredL2
from vicinal.similarity.products import Cosine, Dot, scaled_dot

__all__ = [
    "Cosine",
    "Dot",
    "NegativeL1",
    "NegativeL2",
    "NegativeSquaredL2",
    "Similarity",
    "resolve_similarity",
    "scaled_dot",
]
