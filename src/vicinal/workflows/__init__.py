"""What each command does, from a table to a folder: one file per command, and the steps that several share."""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from vicinal.workflows.adapt import adapt_table
    from vicinal.workflows.bank import add_table
    from vicinal.workflows.compare import HEADS, compare_tables
    from vicinal.workflows.compress import compress_model
    from vicinal.workflows.discover import discover_table
    from vicinal.workflows.distill import distill_table
    from vicinal.workflows.evaluate import audit_table
    from vicinal.workflows.explore import Explorer
    from vicinal.workflows.export import export_onnx, graph_inputs
    from vicinal.workflows.fit import fit_table, plan_fit
    from vicinal.workflows.match import match_tables
    from vicinal.workflows.mlflow_model import log_mlflow
    from vicinal.workflows.opening import TableJob, open_table
    from vicinal.workflows.predict import predict_table
    from vicinal.workflows.refit import refit_model
    from vicinal.workflows.review import Reviewer

_FILES = {
    "adapt": ("adapt_table",),
    "bank": ("add_table",),
    "compare": ("HEADS", "compare_tables"),
    "compress": ("compress_model",),
    "discover": ("discover_table",),
    "distill": ("distill_table",),
    "evaluate": ("audit_table",),
    "export": ("export_onnx", "graph_inputs"),
    "fit": ("fit_table", "plan_fit"),
    "explore": ("Explorer",),
    "match": ("match_tables",),
    "mlflow_model": ("log_mlflow",),
    "opening": ("TableJob", "open_table"),
    "predict": ("predict_table",),
    "refit": ("refit_model",),
    "review": ("Reviewer",),
}
"""Names by file; a file is imported at first use, so that no command waits for the imports of another."""

__all__ = [
    "HEADS",
    "Explorer",
    "Reviewer",
    "TableJob",
    "adapt_table",
    "add_table",
    "audit_table",
    "compare_tables",
    "compress_model",
    "discover_table",
    "distill_table",
    "export_onnx",
    "fit_table",
    "graph_inputs",
    "log_mlflow",
    "match_tables",
    "open_table",
    "plan_fit",
    "predict_table",
    "refit_model",
]


def __getattr__(name: str) -> _typing.Any:
    for file, names in _FILES.items():
        if name in names:
            return getattr(_importlib.import_module(f"vicinal.workflows.{file}"), name)
    raise AttributeError(f"module 'vicinal.workflows' has no attribute {name!r}")
