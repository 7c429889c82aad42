"""Masks ``mask(scores, queries, weight) -> log_mask [b, N]`` and simplex maps ``map(scores) -> weights [b, N]``."""

from vicinal.masks.budgets import MutualChoice, feature_choice, mutual_choice, zipf_budgets
from vicinal.masks.perturbed import hard_topk, perturbed_topk
from vicinal.masks.simplex import entmax15, k_sparsemax, resolve_simplex, softmax, sparsemax
from vicinal.masks.soft_topk import log_soft_topk, soft_topk
from vicinal.masks.softstep import RankStep, RejectingStep, SoftStep, log_s1, log_s2
from vicinal.masks.topk import TopK
from vicinal.masks.unit import unit_scores

__all__ = [
    "MutualChoice",
    "RankStep",
    "RejectingStep",
    "SoftStep",
    "TopK",
    "entmax15",
    "feature_choice",
    "hard_topk",
    "k_sparsemax",
    "log_s1",
    "log_s2",
    "log_soft_topk",
    "mutual_choice",
    "perturbed_topk",
    "resolve_simplex",
    "soft_topk",
    "softmax",
    "sparsemax",
    "unit_scores",
    "zipf_budgets",
]
