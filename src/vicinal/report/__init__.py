"""Records of fits and comparisons, and the pages, figures, tables and model cards made from them."""

from vicinal.report.audit import audit_findings, fairness_cells, period_cells, write_audit_page
from vicinal.report.card import write_card
from vicinal.report.compare import write_compare_page
from vicinal.report.discover import DiscoverRecord, FoundGroup, write_discover_page
from vicinal.report.links import link_figure, link_rows
from vicinal.report.losses import KINDS as METHOD_KINDS
from vicinal.report.losses import LABELS, MethodSheet, find_sheets, method_sheets
from vicinal.report.match import MatchRecord, ShownPair, write_match_page
from vicinal.report.page import write_page
from vicinal.report.records import (
    AuditRecord,
    Column,
    CompareRecord,
    Copies,
    Doubted,
    Example,
    FitRecord,
    Hub,
    Neighbor,
    NeighborPanel,
    Part,
    Suspect,
    Verdict,
)
from vicinal.report.tables import verdict_sentence

__all__ = [
    "LABELS",
    "METHOD_KINDS",
    "AuditRecord",
    "Column",
    "CompareRecord",
    "Copies",
    "DiscoverRecord",
    "Doubted",
    "Example",
    "FitRecord",
    "FoundGroup",
    "Hub",
    "MatchRecord",
    "MethodSheet",
    "Neighbor",
    "NeighborPanel",
    "Part",
    "ShownPair",
    "Suspect",
    "Verdict",
    "audit_findings",
    "fairness_cells",
    "find_sheets",
    "link_figure",
    "link_rows",
    "method_sheets",
    "period_cells",
    "verdict_sentence",
    "write_audit_page",
    "write_card",
    "write_compare_page",
    "write_discover_page",
    "write_match_page",
    "write_page",
]
