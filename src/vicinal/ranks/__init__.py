"""Ranks of scores, which metrics and ranking losses share; related pairs; sorting, and orders of several rankings."""

from vicinal.ranks.aggregation import (
    Consensus,
    borda,
    kemeny,
    preferences,
    reciprocal_rank_fusion,
    self_consistent_order,
)
from vicinal.ranks.hard import Ties, rank_order, related_ranks
from vicinal.ranks.pairs import Pairs, check_relation, split_pairs
from vicinal.ranks.plackett_luce import order_log_prob, order_reward_loss, sample_orders
from vicinal.ranks.sorting import SortedScores, soft_sort

__all__ = [
    "Consensus",
    "Pairs",
    "SortedScores",
    "Ties",
    "borda",
    "check_relation",
    "kemeny",
    "order_log_prob",
    "order_reward_loss",
    "preferences",
    "rank_order",
    "reciprocal_rank_fusion",
    "related_ranks",
    "sample_orders",
    "self_consistent_order",
    "soft_sort",
    "split_pairs",
]
