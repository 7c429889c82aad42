"""Estimators in scikit-learn's manner, and their saved form."""

from vicinal.core import ExtrapolationWarning
from vicinal.estimators.bank import Bank
from vicinal.estimators.banked import load_model
from vicinal.estimators.explanation import Element, Explanation, Neighbor, explanation_table
from vicinal.estimators.forces import Force, RowForces
from vicinal.estimators.learner import EmbeddingLearner
from vicinal.estimators.matching import RowMatcher
from vicinal.estimators.model_folder import ModelFolder
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.estimators.pair_explanation import CellComparison, PairExplanation
from vicinal.estimators.plan import TuningPlan
from vicinal.estimators.presets import PRESETS
from vicinal.estimators.recommend import Reasons, Recommender
from vicinal.estimators.saving import save_model
from vicinal.estimators.search import Hit

__all__ = [
    "PRESETS",
    "Bank",
    "CellComparison",
    "Element",
    "EmbeddingLearner",
    "Explanation",
    "ExtrapolationWarning",
    "Force",
    "Hit",
    "ModelFolder",
    "Neighbor",
    "NeighborClassifier",
    "NeighborRegressor",
    "PairExplanation",
    "Reasons",
    "Recommender",
    "RowForces",
    "RowMatcher",
    "TuningPlan",
    "explanation_table",
    "load_model",
    "save_model",
]
