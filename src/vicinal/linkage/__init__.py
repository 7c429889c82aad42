"""Record linkage: columns as codes, comparison levels, match weights, competition of pairs, blocking."""

from vicinal.linkage.columns import CodedColumn
from vicinal.linkage.competition import Competition
from vicinal.linkage.fellegi_sunter import MatchWeights, Patterns, estimate
from vicinal.linkage.levels import LEVELS, comparison_levels

__all__ = ["LEVELS", "CodedColumn", "Competition", "MatchWeights", "Patterns", "comparison_levels", "estimate"]
