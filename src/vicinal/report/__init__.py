"""Records of fits and comparisons, and the pages, figures, tables and model cards made from them."""

from vicinal.report.audit_records import Copies, Hub
from vicinal.report.losses import LABELS
from vicinal.report.page import write_page
from vicinal.report.records import Neighbor

__all__ = [
    "LABELS",
    "Copies",
    "Hub",
    "Neighbor",
    "write_page",
]
