"""Why two rows are taken for one thing: their cells side by side, and what each says in bits."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from vicinal.estimators.match_linkage import Linkage
from vicinal.estimators.match_model import DIGITS, VECTORS
from vicinal.estimators.match_rows import CODED, MatchTable
from vicinal.estimators.match_tables import MatchedTables
from vicinal.index.lexical import codes
from vicinal.linkage.cell_forms import normal_text, shown_text
from vicinal.linkage.columns import Floats, Ids
from vicinal.linkage.compared import CellComparison, ComparedPair

_ALIKE = 0.5
"""Likeness of two cells from which on they are alike, not in part."""


@dataclass(frozen=True)
class PairExplanation(ComparedPair):
    """Why a pair is taken for a match or not: ``probability``, ``cells``, ``resembles``, ``start``, ``refined``.

    See :class:`vicinal.linkage.compared.ComparedPair`, whose attributes these are.
    """

    def to_frame(self) -> pd.DataFrame:
        """The cells side by side, with their likeness, verdict, level and weight."""
        return pd.DataFrame([vars(cell) for cell in self.cells])

    def _repr_html_(self) -> str:
        return _tables([self])


class PairExplanations(list[PairExplanation]):
    """Explanations of several pairs: a line for each in a terminal, their cells side by side in a notebook."""

    def __repr__(self) -> str:
        return "\n".join(map(str, self))

    def to_frame(self) -> pd.DataFrame:
        """The cells of all pairs, with the ids of the pair before them."""
        tables = [one.to_frame().assign(left_id=one.left, right_id=one.right) for one in self]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def _repr_html_(self) -> str:
        return _tables(self)


def _tables(pairs: list[PairExplanation]) -> str:
    """The cells of the first pairs side by side, with their weights; the colors are those of the page."""
    from vicinal.report.notebook import first_tables, pair_part

    return first_tables(pairs, lambda _, one: pair_part(one), "pair")


def explained_cells(
    tables: MatchedTables, linkage: Linkage, rows: Ids, chances: Floats
) -> tuple[list[list[CellComparison]], float, Floats]:
    """The cells of pairs of rows ``[n, 2]``, the log2 of the prior odds, and what is refined, ``[n]``."""
    things, names = tables.things(rows), linkage.level_names
    (start, bits, refined), levels = linkage.weighed(tables, things, chances), linkage.compared(tables, things)
    places = {name: place for place, name in enumerate(names)}
    exact = {column.name for column in tables.coded() if column.is_exact}
    columns = [*tables.columns.compared, *(name for name in names if name not in linkage.kinds)]
    explained = []
    for row, pair in enumerate(rows):
        cells, sides = [], list(zip((tables.left, tables.right), pair, strict=True))
        for column in columns:
            one, other = _shown(tables, sides, column)
            if column in places:
                grade, steps = int(levels[row, places[column]]), names[column]
                weight = float(bits[row, places[column]])
            else:  # a column that says nothing has no levels
                grade, steps = (1 + (normal_text(one) == normal_text(other))) * bool(one and other), ("", "", "")
                weight = math.nan
            alike = (grade - 1) / (len(steps) - 2) if grade else math.nan
            verdict = _verdict(alike, is_exact=column in exact)
            cells.append(CellComparison(column, one, other, alike, verdict, steps[grade], weight))
        explained.append(cells)
    return explained, start, refined


def _shown(tables: MatchedTables, sides: list[tuple[MatchTable, int]], column: str) -> list[str]:
    """The cells of a pair in a column as texts; of whole rows the words with digits, or nothing."""
    if column == DIGITS:
        texts = (tables.columns.texts_of(table, CODED, np.array([at]))[0] for table, at in sides)
        return [" ".join(codes(text)) for text in texts]
    return ["" if column == VECTORS else shown_text(table.frame[column].iloc[at]) for table, at in sides]


def _verdict(alike: float, *, is_exact: bool) -> str:
    """What is said of two cells of a likeness; those of ``exact`` columns are the same or differ."""
    if math.isnan(alike):
        return "empty"
    if alike == 1:
        return "agrees"
    if alike == 0 or is_exact:
        return "differs"
    return "alike" if alike >= _ALIKE else "alike in part"
