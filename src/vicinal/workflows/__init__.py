"""What each command does, from a table to a folder: one file a command, named after it."""

from vicinal.workflows.compare import HEADS, Comparison, compare_tables
from vicinal.workflows.demo import DemoResult, run_demo
from vicinal.workflows.evaluate import audit_table
from vicinal.workflows.fit import FitOutcome, OpenTable, TableJob, fit_table, open_table
from vicinal.workflows.predict import Answers, predict_table, table_columns

__all__ = [
    "HEADS",
    "Answers",
    "Comparison",
    "DemoResult",
    "FitOutcome",
    "OpenTable",
    "TableJob",
    "audit_table",
    "compare_tables",
    "fit_table",
    "open_table",
    "predict_table",
    "run_demo",
    "table_columns",
]
