"""What a notebook shows of a value: tables in the colors of the page around them, all cells escaped."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vicinal.core.checks import short_text
from vicinal.linkage.compared import ComparedPair
from vicinal.report.comparables import beside, grid_view, rest_sentences
from vicinal.report.pairs import pair_view
from vicinal.report.records import Cell, NeighborPanel
from vicinal.report.text import cell_text, label_text, number, one_line
from vicinal.report.theme import Part, notebook_html

_LETTERS = 60
"""Of a cell of a plain table, at most."""

_KEY = "Marked: what differs from this row."

_WIDTH, _TABLES = 10, 3
"""Rows beside a query, and queries with tables, at most."""


def cell_of(value: Any) -> Cell:
    """A cell of a table as it is shown: bytes as they are, all else by :func:`vicinal.report.text.cell_text`."""
    return value if isinstance(value, bytes) else cell_text(value)


def cells_of(row: Mapping[str, Any]) -> dict[str, Cell]:
    """The cells of a row as they are shown."""
    return {str(name): cell_of(value) for name, value in row.items()}


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "", *sentences: str) -> Part:
    """A table of whatever values."""
    cells = [
        [one_line(shown if isinstance(shown := cell_of(one), str) else "…", _LETTERS) for one in row] for row in rows
    ]
    return Part(one_line(title, 80), headings=[*map(str, headings)], rows=cells, sentences=sentences)


def panel_part(panel: NeighborPanel) -> Part:
    """A prediction: the row beside its comparables, column by column, and what is beside these in the prediction."""
    grid = grid_view(panel, _WIDTH)
    moved = any(one.adjusted is not None for one in panel.neighbors)
    above = [("label", f"predicted {label_text(panel.said or panel.prediction)}", grid.above[0][2])]
    sentences = [_KEY + " Small: what the trend adds for the difference." * moved] if panel.neighbors else []
    sentences += rest_sentences(panel) + [grid.more] * bool(grid.more)
    return Part(one_line(panel.title, 80), grid=(grid.heads, above, grid.lines, grid.below), sentences=sentences)


def first_tables(items: Sequence[Any], part: Callable[[str, Any], Part], name: str) -> str:
    """The parts of the first items, each under its place unless it is alone, and how many more there are."""
    parts = [part("" if len(items) == 1 else f"{name} {place}", one) for place, one in enumerate(items[:_TABLES])]
    more = f"{len(items) - _TABLES} more; to_frame() has all of them."
    return notebook_html(*parts, *[Part(sentences=[more])] * (len(items) > _TABLES))


def pair_part(pair: ComparedPair) -> Part:
    """Why two rows match or not: cells side by side, and the waterfall of their weights."""
    return Part(pair=pair_view(pair))


def hits_part(
    title: str, query: Mapping[str, Cell], hits: Sequence[tuple[Any, float, Any, Mapping[str, Cell]]]
) -> Part:
    """The hits of one query beside it."""
    some = hits[:_WIDTH]
    heads = [f"row {short_text(hit[0], 24)}" for hit in some]
    labels = [number(hit[2]) if isinstance(hit[2], float) else one_line(hit[2], 60) for hit in some]
    above = [("label", "", labels)] if any(hit[2] is not None for hit in some) else []
    below = [("score", "", [number(hit[1], 3) for hit in some])]
    grid = heads, above, beside(query, [hit[3] for hit in some]), below
    return Part(one_line(title, 80), grid=grid, sentences=[_KEY] if query else [])
