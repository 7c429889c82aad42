"""Records of a fit or a comparison, and what is written of them: pages, figures, tables, model cards."""

from vicinal.report.audit import audit_findings, audit_html, write_audit_page
from vicinal.report.audit_records import AuditRecord, Copies, Hub, Part, Suspect
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
from vicinal.report.losses import KINDS as METHOD_KINDS
from vicinal.report.losses import LABELS, MethodSheet, find_sheets, method_sheets
from vicinal.report.maps import embedding_map, mask_curves, principal_plane
from vicinal.report.page import page_html, write_page
from vicinal.report.ranks import cliques, critical_difference, relative_changes
from vicinal.report.records import Cell, Column, CompareRecord, FitRecord, Neighbor, NeighborPanel
from vicinal.report.tables import compare_table, findings, fit_table, limits

__all__ = [
    "LABELS",
    "METHOD_KINDS",
    "AuditRecord",
    "Cell",
    "Column",
    "CompareRecord",
    "Copies",
    "FitRecord",
    "Hub",
    "MethodSheet",
    "Neighbor",
    "NeighborPanel",
    "Part",
    "Suspect",
    "audit_findings",
    "audit_html",
    "card_text",
    "cliques",
    "compare_html",
    "compare_table",
    "confusion_matrix",
    "critical_difference",
    "embedding_map",
    "find_sheets",
    "findings",
    "fit_table",
    "learning_curves",
    "limits",
    "link_figure",
    "link_rows",
    "mask_curves",
    "method_sheets",
    "page_html",
    "predicted_vs_true",
    "principal_plane",
    "relative_changes",
    "reliability",
    "residuals",
    "write_audit_page",
    "write_card",
    "write_compare_page",
    "write_page",
]
