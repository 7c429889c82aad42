"""Pairs of rows cell by cell, as explanations, reports and pages show them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
    weight: float = math.nan


@dataclass(frozen=True)
class ComparedPair:
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
        others: cells of either row that are not compared as texts or numbers, by column; images as bytes.
    """

    left: Any
    right: Any
    probability: float
    cells: Sequence[CellComparison]
    resembles: Sequence[tuple[Any, Any, bool, float]]
    start: float = math.nan
    refined: float = math.nan
    others: tuple[Mapping[str, str | bytes], Mapping[str, str | bytes]] = ({}, {})

    def __str__(self) -> str:
        """One line: the probability, what agrees and differs, and the labelled pairs."""
        cells = ", ".join(f"{cell.column} {cell.verdict}" for cell in self.cells)
        like = f"; like {', '.join(self.like())}" if self.resembles else ""
        return f"{self.left} and {self.right}: match with probability {self.probability:.2f}; {cells}{like}"

    def like(self) -> list[str]:
        """The labelled pairs that it resembles as texts."""
        return [f"{one} and {other} ({'match' if same else 'no match'})" for one, other, same, _ in self.resembles]

    def steps(self) -> list[tuple[str, float]]:
        """Bits from even odds to the log2 odds of the probability: the start, each column, and what is beyond them."""
        known = [(cell.column, cell.weight) for cell in self.cells if not math.isnan(cell.weight)]
        return [("before any column", self.start), *known, ("other pairs and learning", self.refined)]
