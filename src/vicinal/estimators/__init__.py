"""Estimators in scikit-learn's manner, and their saved form."""

import typing as _typing

from vicinal.core import ExtrapolationWarning as ExtrapolationWarning
from vicinal.estimators.bank import Bank as Bank
from vicinal.estimators.banked import load_model as load_model
from vicinal.estimators.explanation import Element as Element
from vicinal.estimators.explanation import Explanation as Explanation
from vicinal.estimators.explanation import Neighbor as Neighbor
from vicinal.estimators.explanation import explanation_table as explanation_table
from vicinal.estimators.forces import Force as Force
from vicinal.estimators.forces import RowForces as RowForces
from vicinal.estimators.learner import EmbeddingLearner as EmbeddingLearner
from vicinal.estimators.model_folder import ModelFolder as ModelFolder
from vicinal.estimators.neighbors import NeighborClassifier as NeighborClassifier
from vicinal.estimators.neighbors import NeighborRegressor as NeighborRegressor
from vicinal.estimators.plan import TuningPlan as TuningPlan
from vicinal.estimators.presets import PRESETS as PRESETS
from vicinal.estimators.saving import save_model as save_model
from vicinal.estimators.search import Hit as Hit
from vicinal.exports import export_imported as _export_imported

if _typing.TYPE_CHECKING:
    from vicinal.estimators.matching import RowMatcher as RowMatcher
    from vicinal.estimators.pair_explanation import PairExplanation as PairExplanation
    from vicinal.estimators.recommend import Reasons as Reasons
    from vicinal.estimators.recommend import Recommender as Recommender
    from vicinal.linkage.compared import CellComparison as CellComparison

_LATER = {
    "CellComparison": "pair_explanation",
    "PairExplanation": "pair_explanation",
    "Reasons": "recommend",
    "Recommender": "recommend",
    "RowMatcher": "matching",
}
"""Files by name that are imported at first use: no prediction waits for what matches and recommends."""

_export_imported(__name__, _LATER)
