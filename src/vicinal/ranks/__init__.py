"""Ranks of scores, which metrics and ranking losses share; and which pairs of a score matrix are related."""

from vicinal.ranks.hard import Ties, rank_order, related_ranks
from vicinal.ranks.pairs import Pairs, check_relation, split_pairs

__all__ = ["Pairs", "Ties", "check_relation", "rank_order", "related_ranks", "split_pairs"]
