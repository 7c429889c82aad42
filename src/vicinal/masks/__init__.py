"""Masks ``mask(scores, queries, weight) -> log_mask [b, N]`` and simplex maps ``map(scores) -> weights [b, N]``."""

from vicinal.masks.simplex import entmax15, resolve_simplex, softmax, sparsemax
from vicinal.masks.softstep import SoftStep, log_s1, log_s2
from vicinal.masks.topk import TopK
from vicinal.masks.unit import unit_scores

__all__ = [
    "SoftStep",
    "TopK",
    "entmax15",
    "log_s1",
    "log_s2",
    "resolve_simplex",
    "softmax",
    "sparsemax",
    "unit_scores",
]
