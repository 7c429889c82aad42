"""Comparables as appraisers show them: a row beside those it is compared with, column by column."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from vicinal.report.differences import Piece, differences
from vicinal.report.records import Cell, Neighbor, NeighborPanel
from vicinal.report.text import (
    change_cell,
    decimals_for,
    fixed,
    label_text,
    number,
    one_line,
    percent,
    plus,
    round_to_sum,
)

_REASONS = 2
"""Columns that an adjustment is said to come from."""

COLUMNS = 12
"""Columns of a grid, at most; what the others adjust is summed in one line."""

WEIGHT = "weight in the prediction"

_CELL, _CLIPPED = 40, 160
"""Letters of a cell that are shown: in a grid of columns that adjust, and of any."""


@dataclass(frozen=True)
class GridCell:
    """A cell of a comparable row: its text, whether that differs from the row beside it, and what it adjusts.

    Of two texts the words are marked that the row beside it lacks, of all else the whole cell: ``pieces``.
    """

    text: str
    differs: bool
    adds: str = ""
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True)
class GridLine:
    """A column of the table: the cell of the row that is predicted, and those of its comparables."""

    column: str
    query: str
    cells: list[GridCell]


class Grid(NamedTuple):
    """A row beside others: their heads, figures above, columns, figures below, and how many columns are not shown."""

    heads: list[str]
    above: list[tuple[str, str, list[str]]]
    lines: list[GridLine]
    below: list[tuple[str, str, list[str]]]
    more: str = ""


def signed(value: float, decimals: int | None = None) -> str:
    """A number that is added, with its sign.

    >>> signed(3.14159), signed(-20), signed(0.004, 1), signed(0)
    ('+3.14', '-20', '0.0', '0')
    """
    return plus(number(value, 3) if decimals is None else fixed(value, decimals))


def effect(value: float, scale: str = "none") -> str:
    """What is added, with its sign: of logarithms, scale "log", the change in percent; "" where it reads as nothing.

    >>> effect(3.14159), effect(-20), effect(0.0), effect(0.0953, "log"), effect(1e-5, "log")
    ('+3.14', '-20', '', '+10 %', '')
    """
    text = change_cell(math.expm1(min(value, 700.0))) if scale == "log" else signed(value)
    return "" if text.strip("+-") in ("0", "0 %") else text


def reasons(adjustments: Mapping[str, float], scale: str = "none") -> str:
    """The two columns that add most, with what they add.

    >>> reasons({"age": 1.0, "bmi": -30.26, "sex": 0.0, "bp": 4}), reasons({"age": 0.0953, "sex": -1e-5}, "log")
    ('bmi -30.3, bp +4', 'age +10 %')
    """
    most = sorted(adjustments, key=lambda name: -abs(adjustments[name]))[:_REASONS]
    said = {name: effect(adjustments[name], scale) for name in most}
    return ", ".join(f"{one_line(name, 40)} {added}" for name, added in said.items() if added)


def grid_view(panel: NeighborPanel, most: int | None = None) -> Grid:
    """The row of ``panel`` beside its rows, at most ``most`` of them.

    What is shown of a comparable adds up: its label and what its columns add are its adjusted label. Of logarithms
    columns change it by so many percent each, on another scale they add up there. The largest adjustment is first.
    """
    rows = panel.neighbors[:most]
    moved = any(one.adjusted is not None for one in rows)
    kind = "comparable" if moved else "neighbor"
    heads = [f"row {one_line(one.id, 24)}" if one.id else f"{kind} {at}" for at, one in enumerate(rows, 1)]
    above = [("label", "", [label_text(one.label) for one in rows])]
    below = [(WEIGHT, "", [percent(one.weight) for one in rows])]
    if not moved:
        more = f"The first {COLUMNS} of {len(panel.query)} columns." if len(panel.query) > COLUMNS else ""
        return Grid(heads, above, beside(panel.query, [one.row for one in rows]), below, more)
    names = list(dict.fromkeys(name for one in rows for name in one.adjustments))
    names.sort(key=lambda name: -max(abs(one.adjustments.get(name, 0.0)) for one in rows))
    first, rest = names[:COLUMNS], names[COLUMNS:]
    decimals = decimals_for([value for one in rows for value in one.adjustments.values()])
    added = [_added(one, first, rest, decimals, panel.scale) for one in rows]
    lines = [
        GridLine(
            one_line(name, 40),
            _text(panel.query.get(name, "")),
            [
                replace(_beside(panel.query.get(name, ""), one.row.get(name, ""), _CELL), adds=each[at])
                for one, each in zip(rows, added, strict=True)
            ],
        )
        for at, name in enumerate(first)
    ]
    plain = panel.scale in ("none", "power")
    others = [("all other columns", "", [each[-1] for each in added])] if rest else []
    adjusted = ("adjusted label", "", [_adjusted(one, decimals if plain else None) for one in rows])
    return Grid(heads, above, lines, [*others, adjusted, *below])


def rest_sentences(panel: NeighborPanel) -> list[str]:
    """What is in the prediction beside the rows that are shown: the trend, and all other rows."""
    sentences, trend = [], panel.trend
    if trend is not None:
        value = number(trend.value if trend.label is None else trend.label)
        by = f" (most from {reasons(trend.columns, panel.scale)})" if any(trend.columns.values()) else ""
        sentences.append(f"The trend by columns says {value}{by}; weight {percent(trend.weight)}.")
    if panel.other_weight and panel.other_rows != 0:
        rows = f"{panel.other_rows:,} other rows" if panel.other_rows else "All other rows"
        sentences.append(f"{rows}: weight {percent(panel.other_weight)}.")
    return sentences


def beside(query: Mapping[str, Cell], rows: Sequence[Mapping[str, Cell]]) -> list[GridLine]:
    """The first 12 columns of a row and of others, each with its cells; of a column that the row lacks none differs."""
    names = list(dict.fromkeys([*query, *(name for row in rows for name in row)]))
    return [
        GridLine(
            one_line(name, 40),
            _text(query[name], _CLIPPED) if name in query else "",
            [_beside(query.get(name, row.get(name, "")), row.get(name, "")) for row in rows],
        )
        for name in names[:COLUMNS]
    ]


def _beside(one: Cell, other: Cell, limit: int = _CLIPPED) -> GridCell:
    known, text = _text(one, limit), _text(other, limit)
    are_texts = min(len(text.split()), len(known.split())) > 1 and any(map(str.isalpha, text))  # no time of a day
    return GridCell(text, one != other, pieces=differences(known, text)[1] if are_texts else [(text, one != other)])


def _added(one: Neighbor, first: list[str], rest: list[str], decimals: int, scale: str) -> list[str]:
    """What each of the first columns adds, and the others together, rounded so that they add up; "" where none is."""
    values = [one.adjustments.get(name, 0.0) for name in first]
    values.append(sum(one.adjustments.get(name, 0.0) for name in rest))
    if scale == "log" or not one.adjustments:
        return [effect(value, scale) for value in values]
    return [*map(plus, round_to_sum(values, sum(values), decimals))]


def _adjusted(one: Neighbor, decimals: int | None) -> str:
    """The adjusted label, with the decimals of its adjustments if these are in its unit."""
    value = float(one.adjusted or 0.0)
    return number(value) if decimals is None else fixed(value, decimals)


def _text(cell: Cell, limit: int = _CELL) -> str:
    return "…" if isinstance(cell, bytes) else one_line(cell, limit) or "(empty)"
