"""Ranks of scores, which metrics and ranking losses share; related pairs; sorting, and orders of several rankings."""

from vicinal.exports import export_imported as _export_imported
from vicinal.ranks.aggregation import Consensus as Consensus
from vicinal.ranks.aggregation import borda as borda
from vicinal.ranks.aggregation import kemeny as kemeny
from vicinal.ranks.aggregation import preferences as preferences
from vicinal.ranks.aggregation import reciprocal_rank_fusion as reciprocal_rank_fusion
from vicinal.ranks.aggregation import self_consistent_order as self_consistent_order
from vicinal.ranks.hard import Ties as Ties
from vicinal.ranks.lists import list_places as list_places
from vicinal.ranks.pairs import Pairs as Pairs
from vicinal.ranks.plackett_luce import order_log_prob as order_log_prob
from vicinal.ranks.sorting import soft_sort as soft_sort

_export_imported(__name__)
