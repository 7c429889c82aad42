"""Pairs of rows side by side: what differs in their cells, and the match weight of each column."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vicinal.linkage.compared import CellComparison, ComparedPair
from vicinal.report.differences import Piece, differences
from vicinal.report.page import cells as views
from vicinal.report.text import fixed, one_line, percent, plus
from vicinal.report.theme import environment

_CELL = 240
"""Characters of a cell that are shown, at most."""

_COLORS = {"agrees": "same", "alike": "same", "differs": "apart"}
"""Of cells of columns that have no weight, by their verdict."""

_SPEAKS = 0.5
"""Bits from which on cells are shown as speaking for a match, or against it."""


@dataclass(frozen=True)
class Bar:
    """A bar of a waterfall: where it begins and how long it is, from 0 to 100, where even odds are, and its bits."""

    begin: float
    length: float
    even: float
    bits: float

    @property
    def text(self) -> str:
        """The bits with their sign."""
        return plus(fixed(self.bits, 1))


def bars(spans: Sequence[tuple[float, float]]) -> list[Bar]:
    """Bars from one number of bits to another, all of one scale that holds 0, which is even odds."""
    ends = [0.0, *(end for span in spans for end in span)]
    low, high = min(ends), max(ends)
    scale = 100 / ((high - low) or 1.0)
    return [
        Bar(
            round(scale * (min(one, other) - low), 2),
            round(scale * abs(other - one), 2),
            round(-scale * low, 2),
            other - one,
        )
        for one, other in spans
    ]


def waterfall(steps: Sequence[float]) -> list[Bar]:
    """A bar from the sum of the steps before it to the sum with it, for each step, and last one of the whole sum.

    >>> [(bar.begin, bar.length) for bar in waterfall([-4.0, 6.0])]
    [(0.0, 66.67), (0.0, 100.0), (66.67, 33.33)]
    """
    sums = [0.0, *itertools.accumulate(steps)]
    return bars([*itertools.pairwise(sums), (0.0, sums[-1])])


def pair_view(pair: ComparedPair) -> dict[str, Any]:
    """A pair as the template shows it."""
    weights = [0.0 if math.isnan(cell.weight) else cell.weight for cell in pair.cells]
    start, *columns, refined, total = waterfall([pair.start, *weights, pair.refined])
    cells = [
        {
            "column": one_line(cell.column, 40),
            "level": one_line(cell.level or cell.verdict, 60),
            "color": _color(cell),
            "sides": _sides(cell),
            "bar": None if math.isnan(cell.weight) else bar,
        }
        for cell, bar in zip(pair.cells, columns, strict=True)
        if cell.left or cell.right
    ]
    return {
        "left": one_line(str(pair.left), 60),
        "right": one_line(str(pair.right), 60),
        "probability": percent(pair.probability),
        "cells": cells,
        "start": start,
        "refined": refined,
        "total": total,
        "others": [views(side, 160) for side in pair.others] if any(pair.others) else [],
        "resembles": [one_line(text, 120) for text in pair.like()],
    }


def _color(cell: CellComparison) -> str:
    if math.isnan(cell.weight):
        return _COLORS.get(cell.verdict, "")
    return "same" if cell.weight >= _SPEAKS else "apart" if cell.weight <= -_SPEAKS else ""


def _sides(cell: CellComparison) -> Sequence[list[Piece]]:
    left, right = one_line(cell.left, _CELL), one_line(cell.right, _CELL)
    if cell.verdict == "agrees":
        return [(left, False)], [(right, False)]
    return differences(left, right)


def pair_html(pair: ComparedPair) -> str:
    """A pair as HTML, all of whose texts are escaped."""
    macros: Any = environment().get_template("parts.html").module
    return str(macros.pair(pair_view(pair)))
