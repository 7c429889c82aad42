"""What each command does, from a table to a folder: one file per command, and the steps that several share."""

import typing as _typing

from vicinal.exports import export_imported as _export_imported

if _typing.TYPE_CHECKING:
    from vicinal.workflows.adapt import adapt_table as adapt_table
    from vicinal.workflows.bank import add_table as add_table
    from vicinal.workflows.compare import HEADS as HEADS
    from vicinal.workflows.compare import compare_tables as compare_tables
    from vicinal.workflows.compress import compress_model as compress_model
    from vicinal.workflows.discover import discover_table as discover_table
    from vicinal.workflows.distill import distill_table as distill_table
    from vicinal.workflows.evaluate import audit_table as audit_table
    from vicinal.workflows.explore import Explorer as Explorer
    from vicinal.workflows.export import export_onnx as export_onnx
    from vicinal.workflows.export import graph_inputs as graph_inputs
    from vicinal.workflows.fit import fit_table as fit_table
    from vicinal.workflows.fit import plan_fit as plan_fit
    from vicinal.workflows.match import match_tables as match_tables
    from vicinal.workflows.mlflow_model import log_mlflow as log_mlflow
    from vicinal.workflows.opening import TableJob as TableJob
    from vicinal.workflows.opening import open_table as open_table
    from vicinal.workflows.predict import predict_table as predict_table
    from vicinal.workflows.refit import refit_model as refit_model
    from vicinal.workflows.review import Reviewer as Reviewer

_LATER = {
    "Explorer": "explore",
    "HEADS": "compare",
    "Reviewer": "review",
    "TableJob": "opening",
    "adapt_table": "adapt",
    "add_table": "bank",
    "audit_table": "evaluate",
    "compare_tables": "compare",
    "compress_model": "compress",
    "discover_table": "discover",
    "distill_table": "distill",
    "export_onnx": "export",
    "fit_table": "fit",
    "graph_inputs": "export",
    "log_mlflow": "mlflow_model",
    "match_tables": "match",
    "open_table": "opening",
    "plan_fit": "fit",
    "predict_table": "predict",
    "refit_model": "refit",
}
"""Names by file; a file is imported at first use, so that no command waits for the imports of another."""

_export_imported(__name__, _LATER)
