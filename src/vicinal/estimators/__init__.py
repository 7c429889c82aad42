"""Estimators in scikit-learn's manner, their saved form, and the main job from a table to a model folder."""

from vicinal.estimators.answering import Answers, predict_table, table_columns
from vicinal.estimators.auditing import audit_table
from vicinal.estimators.bank import Bank
from vicinal.estimators.comparing import HEADS, Comparison, compare_tables
from vicinal.estimators.demonstration import DemoResult, run_demo
from vicinal.estimators.explain import Explanation, Neighbor, explanation_table
from vicinal.estimators.job import FitOutcome, fit_table
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.estimators.opening import OpenTable, TableJob, open_table
from vicinal.estimators.saving import load_model, save_model

__all__ = [
    "HEADS",
    "Answers",
    "Bank",
    "Comparison",
    "DemoResult",
    "Explanation",
    "FitOutcome",
    "Neighbor",
    "NeighborClassifier",
    "NeighborRegressor",
    "OpenTable",
    "TableJob",
    "audit_table",
    "compare_tables",
    "explanation_table",
    "fit_table",
    "load_model",
    "open_table",
    "predict_table",
    "run_demo",
    "save_model",
    "table_columns",
]
