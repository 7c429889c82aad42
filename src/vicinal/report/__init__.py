"""Records of a fit or a comparison, and what is written of them: pages, figures, tables, model cards."""

from vicinal.report.card import card_text, write_card
from vicinal.report.compare import compare_html, write_compare_page
from vicinal.report.figures import (
    confusion_matrix,
    learning_curves,
    predicted_vs_true,
    reliability,
    residuals,
)
from vicinal.report.links import link_figure, link_rows
from vicinal.report.maps import embedding_map, mask_curves, principal_plane
from vicinal.report.page import page_html, write_page
from vicinal.report.ranks import cliques, critical_difference, relative_changes
from vicinal.report.records import Cell, Column, CompareRecord, FitRecord, Neighbor, NeighborPanel
from vicinal.report.tables import compare_table, findings, fit_table, limits

__all__ = [
    "Cell",
    "Column",
    "CompareRecord",
    "FitRecord",
    "Neighbor",
    "NeighborPanel",
    "card_text",
    "cliques",
    "compare_html",
    "compare_table",
    "confusion_matrix",
    "critical_difference",
    "embedding_map",
    "findings",
    "fit_table",
    "learning_curves",
    "limits",
    "link_figure",
    "link_rows",
    "mask_curves",
    "page_html",
    "predicted_vs_true",
    "principal_plane",
    "relative_changes",
    "reliability",
    "residuals",
    "write_card",
    "write_compare_page",
    "write_page",
]
