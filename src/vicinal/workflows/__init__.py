"""What each command does, from a table to a folder: one file per command, and the steps that several share."""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from vicinal.workflows.bank import BankChange, add_table, embed_table, forget_rows, read_ids, relabel_table
    from vicinal.workflows.compare import HEADS, ComparePlan, Comparison, compare_tables, plan_compare
    from vicinal.workflows.compress import Compressed, compress_model
    from vicinal.workflows.demo import DemoResult, run_demo
    from vicinal.workflows.discover import Discovered, discover_table
    from vicinal.workflows.distill import Distilled, distill_table
    from vicinal.workflows.evaluate import audit_table, audit_targets
    from vicinal.workflows.explain import Explained, Explainer, explained_record
    from vicinal.workflows.explore import Explorer
    from vicinal.workflows.export import GraphInput, export_onnx, graph_inputs
    from vicinal.workflows.fit import FitOutcome, FitPlan, fit_table, plan_fit
    from vicinal.workflows.learn import LearnJob, LearnOutcome, learn_table
    from vicinal.workflows.match import MatchJob, MatchOutcome, match_tables
    from vicinal.workflows.mlflow_model import PyfuncModel, log_mlflow, save_mlflow
    from vicinal.workflows.opening import OpenTable, TableJob, open_table
    from vicinal.workflows.predict import Answers, predict_table, table_columns
    from vicinal.workflows.refit import Refit, refit_model
    from vicinal.workflows.search import MatcherSearcher, Searched, Searcher, open_searcher
    from vicinal.workflows.show import list_changes, show_folder
    from vicinal.workflows.streaming import predict_file

_FILES = {
    "bank": ("BankChange", "add_table", "embed_table", "forget_rows", "read_ids", "relabel_table"),
    "compare": ("HEADS", "ComparePlan", "Comparison", "compare_tables", "plan_compare"),
    "compress": ("Compressed", "compress_model"),
    "demo": ("DemoResult", "run_demo"),
    "discover": ("Discovered", "discover_table"),
    "distill": ("Distilled", "distill_table"),
    "evaluate": ("audit_table", "audit_targets"),
    "explain": ("Explained", "Explainer", "explained_record"),
    "export": ("GraphInput", "export_onnx", "graph_inputs"),
    "fit": ("FitOutcome", "FitPlan", "fit_table", "plan_fit"),
    "explore": ("Explorer",),
    "learn": ("LearnJob", "LearnOutcome", "learn_table"),
    "match": ("MatchJob", "MatchOutcome", "match_tables"),
    "mlflow_model": ("PyfuncModel", "log_mlflow", "save_mlflow"),
    "opening": ("OpenTable", "TableJob", "open_table"),
    "predict": ("Answers", "predict_table", "table_columns"),
    "refit": ("Refit", "refit_model"),
    "search": ("MatcherSearcher", "Searched", "Searcher", "open_searcher"),
    "show": ("list_changes", "show_folder"),
    "streaming": ("predict_file",),
}
"""Names by file; a file is imported at first use, so that no command waits for the imports of another."""

__all__ = [
    "HEADS",
    "Answers",
    "BankChange",
    "ComparePlan",
    "Comparison",
    "Compressed",
    "DemoResult",
    "Discovered",
    "Distilled",
    "Explained",
    "Explainer",
    "Explorer",
    "FitOutcome",
    "FitPlan",
    "GraphInput",
    "LearnJob",
    "LearnOutcome",
    "MatchJob",
    "MatchOutcome",
    "MatcherSearcher",
    "OpenTable",
    "PyfuncModel",
    "Refit",
    "Searched",
    "Searcher",
    "TableJob",
    "add_table",
    "audit_table",
    "audit_targets",
    "compare_tables",
    "compress_model",
    "discover_table",
    "distill_table",
    "embed_table",
    "explained_record",
    "export_onnx",
    "fit_table",
    "forget_rows",
    "graph_inputs",
    "learn_table",
    "list_changes",
    "log_mlflow",
    "match_tables",
    "open_searcher",
    "open_table",
    "plan_compare",
    "plan_fit",
    "predict_file",
    "predict_table",
    "read_ids",
    "refit_model",
    "relabel_table",
    "run_demo",
    "save_mlflow",
    "show_folder",
    "table_columns",
]


def __getattr__(name: str) -> _typing.Any:
    for file, names in _FILES.items():
        if name in names:
            return getattr(_importlib.import_module(f"vicinal.workflows.{file}"), name)
    raise AttributeError(f"module 'vicinal.workflows' has no attribute {name!r}")
