"""Estimators in scikit-learn's manner, and their saved form."""

import importlib as _importlib
import typing as _typing

from vicinal.core import ExtrapolationWarning
from vicinal.estimators.bank import Bank
from vicinal.estimators.banked import load_model
from vicinal.estimators.explanation import Element, Explanation, Neighbor, explanation_table
from vicinal.estimators.forces import Force, RowForces
from vicinal.estimators.learner import EmbeddingLearner
from vicinal.estimators.model_folder import ModelFolder
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.estimators.plan import TuningPlan
from vicinal.estimators.presets import PRESETS
from vicinal.estimators.saving import save_model
from vicinal.estimators.search import Hit

if _typing.TYPE_CHECKING:
    from vicinal.estimators.matching import RowMatcher
    from vicinal.estimators.pair_explanation import PairExplanation
    from vicinal.estimators.recommend import Reasons, Recommender
    from vicinal.linkage.compared import CellComparison

_LATER = {
    "CellComparison": "pair_explanation",
    "PairExplanation": "pair_explanation",
    "Reasons": "recommend",
    "Recommender": "recommend",
    "RowMatcher": "matching",
}
"""Files by name that are imported at first use: no prediction waits for what matches and recommends."""

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


def __getattr__(name: str) -> _typing.Any:
    if name in _LATER:
        return getattr(_importlib.import_module(f"vicinal.estimators.{_LATER[name]}"), name)
    raise AttributeError(f"module 'vicinal.estimators' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
