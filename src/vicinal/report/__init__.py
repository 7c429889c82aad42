"""Records of fits and comparisons, and the pages, figures, tables and model cards made from them."""

from vicinal.report.losses import LABELS
from vicinal.report.page import write_page
from vicinal.report.records import Copies, Hub, Neighbor

__all__ = [
    "LABELS",
    "Copies",
    "Hub",
    "Neighbor",
    "write_page",
]
