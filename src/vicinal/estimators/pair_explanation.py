"""Why two rows are taken for one thing: their cells side by side, and what each says in bits."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from vicinal.estimators.match_linkage import Linkage
from vicinal.estimators.match_model import DIGITS, VECTORS
from vicinal.estimators.match_rows import Ids, MatchTable
from vicinal.estimators.match_tables import MatchedTables
from vicinal.estimators.pair_features import Floats, normal_text, shown_text
from vicinal.index.lexical import codes

if TYPE_CHECKING:
    from vicinal.report.pairs import ShownPair

_ALIKE = 0.5
"""Likeness of two cells from which on they are alike, not in part."""


@dataclass(frozen=True)
class CellComparison:
    """Two cells of a pair.

    Attributes:
        column: its name.
        left: cell of the left row, as text.
        right: likewise.
        likeness: from 0, "differs", to 1, the highest level, in steps of the levels; NaN where one is empty.
        verdict: "agrees" of cells that are the same, "alike", "alike in part", "differs" or "empty". Codes, dates and
            whole numbers agree or differ.
        level: the comparison level of the cells, as "equal", "edit distance 1" or "differs"; "" of a column that has
            none.
        weight: match weight of the cells in bits, log2 of m / u, and more where they are equal and rare; NaN then.
    """

    column: str
    left: str
    right: str
    likeness: float
    verdict: str
    level: str = ""
    weight: float = float("nan")


@dataclass(frozen=True)
class PairExplanation:
    """Why a pair is taken for a match or not.

    Attributes:
        left: id of the left row.
        right: id of the right row.
        probability: that they match.
        cells: the columns that both tables have, then what is compared of whole rows: words with digits, vectors.
        resembles: the labelled pairs that look most alike to the scorer: left id, right id, whether they match,
            likeness.
        start: log2 of the odds before anything was compared.
        refined: what the competition of other pairs and learning beyond the weights of columns add, in bits: with the
            start and the weights of the cells it is the log2 odds of the probability.
    """

    left: Any
    right: Any
    probability: float
    cells: list[CellComparison]
    resembles: list[tuple[Any, Any, bool, float]]
    start: float = float("nan")
    refined: float = float("nan")

    def __str__(self) -> str:
        """One line: the probability, what agrees and differs, and the labelled pairs."""
        cells = ", ".join(f"{cell.column} {cell.verdict}" for cell in self.cells)
        known = ", ".join(f"{a} and {b} ({'match' if same else 'no match'})" for a, b, same, _ in self.resembles)
        like = f"; like {known}" if known else ""
        return f"{self.left} and {self.right}: match with probability {self.probability:.2f}; {cells}{like}"

    def steps(self) -> list[tuple[str, float]]:
        """Bits from even odds to the log2 odds of the probability: the start, each column, and what is beyond them."""
        known = [(cell.column, cell.weight) for cell in self.cells if not math.isnan(cell.weight)]
        return [("before any column", self.start), *known, ("beyond columns", self.refined)]

    def to_frame(self) -> pd.DataFrame:
        """The cells side by side, with their likeness, verdict, level and weight."""
        return pd.DataFrame([vars(cell) for cell in self.cells])

    def shown(self, others: Any = ({}, {})) -> "ShownPair":
        """The pair for reports and notebooks, with cells of either row that are not compared as text."""
        from vicinal.report.pairs import ShownCell, ShownPair

        return ShownPair(
            str(self.left),
            str(self.right),
            self.probability,
            [ShownCell(c.column, c.left, c.right, c.verdict, c.level, c.weight) for c in self.cells],
            [f"{one} and {other} ({'match' if match else 'no match'})" for one, other, match, _ in self.resembles],
            self.start,
            self.refined,
            others=others,
        )

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

    return first_tables(pairs, lambda _, one: pair_part(one.shown()), "pair")


def explained_cells(
    tables: MatchedTables, linkage: Linkage, rows: Ids, chances: Floats
) -> tuple[list[list[CellComparison]], float, Floats]:
    """The cells of pairs of rows ``[n, 2]``, the log2 of the prior odds, and what is refined, ``[n]``."""
    things, names = tables.things(rows), linkage.level_names
    (start, bits, refined), levels = linkage.weighed(tables, things, chances), linkage.compared(tables, things)
    places = {name: place for place, name in enumerate(names)}
    exact = {column.name for column in tables.coded() if column.is_exact}
    columns = [*tables.features.columns, *(name for name in names if name not in linkage.kinds)]
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
        return [" ".join(codes(tables.row_texts(table.frame.iloc[[at]])[0])) for table, at in sides]
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
