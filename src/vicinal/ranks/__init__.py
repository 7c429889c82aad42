"""Ranks of scores, which metrics and ranking losses share; related pairs; sorting, and orders of several rankings."""

from vicinal.ranks.aggregation import (
    Consensus,
    borda,
    kemeny,
    preferences,
    reciprocal_rank_fusion,
    self_consistent_order,
)
from vicinal.ranks.hard import Ties
from vicinal.ranks.lists import list_places
from vicinal.ranks.pairs import Pairs
from vicinal.ranks.plackett_luce import order_log_prob
from vicinal.ranks.sorting import soft_sort

__all__ = [
    "Consensus",
    "Pairs",
    "Ties",
    "borda",
    "kemeny",
    "list_places",
    "order_log_prob",
    "preferences",
    "reciprocal_rank_fusion",
    "self_consistent_order",
    "soft_sort",
]
