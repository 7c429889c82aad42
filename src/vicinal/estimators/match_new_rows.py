"""Rows that come into a linked table: candidates by sorted keys, weighed at once, whatever the size of the table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch

from vicinal.data.spelling import GAPS
from vicinal.estimators.match_linkage import Linkage
from vicinal.estimators.match_rows import MatchTable
from vicinal.estimators.match_tables import KEYS, MatchedTables
from vicinal.estimators.pair_features import normal_text
from vicinal.linkage.block_keys import Cells
from vicinal.linkage.blocking import block_index
from vicinal.linkage.cell_forms import compared_cell
from vicinal.linkage.columns import CodedColumn, Floats, Ids

STRONGEST = 50
"""Candidates of a new row that are weighed, those with the rarest keys in common."""

_NONE = np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class _FewCells(CodedColumn):
    """A column of some rows, with what its values are worth in all.

    Attributes:
        rare: see :attr:`CodedColumn.rarity`.
    """

    rare: Floats

    @cached_property
    def rarity(self) -> Floats:
        """Of the values among all rows."""
        return self.rare


class NewRows:
    """The rows that new ones may be, of the other table or of the only one, by the weights that a match has.

    Memory and start grow with the table: sorted keys of its rows, by rules that are chosen from both tables. What a new
    row takes does not, but for the logarithm.

    Args:
        tables: both, as they are now.
        linkage: the weights; nothing is learned beyond them.
        number: of the table that rows come into: 0 for the left one, -1 for the right one.

    Attributes:
        ids: of the rows that new ones are compared with.
    """

    def __init__(self, tables: MatchedTables, linkage: Linkage, number: int) -> None:
        self.linkage, self.is_single = linkage, tables.is_single
        self.features, self.shared = tables.features, tables.columns
        here, there = (0, 1) if number == 0 else (1, 0)
        every = [replace(column, sides=(column.sides[here], column.sides[there])) for column in tables.coded()]
        self.columns = {column.name: column for column in every}
        self.rarity = {name: column.rarity for name, column in self.columns.items()}
        table = tables.left if tables.is_single or number else tables.right
        self.ids = table.ids[table.first].tolist()
        whole = linkage.competition(tables, _NONE)
        rows, again = whole.rows, whole.again
        self.competition = replace(whole, rows=(rows[here], rows[there]), again=(again[here], again[there]))
        self.start, self.expected = linkage.start(tables), linkage.expected(tables)
        self.index = block_index(Cells(every), single=self.is_single, most=KEYS * self.competition.rows[0])
        self.texts: dict[str, list[str]] = {name: [] for name in self.columns}  # of rows that were put in
        self.worth: dict[str, list[float]] = {name: [] for name in self.columns}  # their rarity

    def put(self, more: MatchTable) -> None:
        """Let later rows be compared with these, too."""
        cells = self._cells(more)
        self.index.add(_alone(self.columns, cells))
        self.ids += more.ids.tolist()
        for name, texts in cells.items():
            self.texts[name] += texts
            self.worth[name] += [self._known[name].get(text, float(self.rarity[name][-1])) for text in texts]

    @cached_property
    def _known(self) -> dict[str, dict[str, float]]:
        """The rarity of the values of each column."""
        pairs = ((name, column.values, self.rarity[name].tolist()) for name, column in self.columns.items())
        return {name: dict(zip(values, rarity, strict=False)) for name, values, rarity in pairs}

    def pairs(self, more: MatchTable) -> tuple[Ids, Floats, Floats]:
        """Places of new rows and of those that they may be ``[n, 2]``, log odds by themselves, and probabilities.

        In one table a new row is compared with those before it. Rows of two tables compete among these pairs alone.
        """
        cells = self._cells(more)
        if self.is_single:
            self.put(more)
        blocked = self.index.candidates(_alone(self.columns, cells))
        new, other = blocked.pairs.astype(np.int64).T
        there = other < (len(self.ids) - len(more) + new if self.is_single else len(self.ids))
        order = np.lexsort((-blocked.evidence, new))
        order = order[there[order]]
        rank = np.arange(len(order)) - np.searchsorted(new[order], new[order])
        order = order[rank < STRONGEST]
        new, other = new[order], other[order]
        others, place = np.unique(other, return_inverse=True)
        at = np.stack([new, place.ravel()], axis=1)
        few = self._few(cells, others)
        log_odds = self.linkage.ratios(few, at) + self.start
        chances = replace(self.competition, pairs=at).chances(log_odds, self.expected)
        return np.stack([new, other], axis=1), log_odds, self.linkage.as_told(chances)

    def _cells(self, more: MatchTable) -> dict[str, list[str]]:
        """The cells of new rows in their normal form, "" where they say nothing."""
        cells = {}
        for name, column in self.columns.items():
            texts = map(normal_text, more.frame[name].tolist())
            cells[name] = ["" if text in GAPS else compared_cell(text, column.form) for text in texts]
        return cells

    def _few(self, cells: dict[str, list[str]], others: Ids) -> MatchedTables:
        """New rows beside some that they may be."""
        count = len(self.ids) - len(next(iter(self.texts.values())))
        old, added = others[others < count], others[others >= count] - count
        texts, coded = {}, {}
        for name, column in self.columns.items():
            codes = column.sides[1][old]
            theirs = [column.values[code] if code >= 0 else "" for code in codes.tolist()]
            theirs += [self.texts[name][place] for place in added.tolist()]
            rare = [*self.rarity[name][codes].tolist(), *(self.worth[name][place] for place in added.tolist())]
            coded[name], texts[name] = _beside(column, cells[name], theirs, rare), theirs
        has_texts = any(column.kind == "text" for column in self.columns.values())
        tables = [_plain(*part) for part in (("left", cells), ("right", texts))] if has_texts else []
        few = MatchedTables(tables, self.shared, None, features=self.features)
        few.once(("coded",), lambda: coded)
        return few


def _plain(name: str, cells: dict[str, list[str]]) -> MatchTable:
    frame = pd.DataFrame(cells)
    return MatchTable(
        name, frame, np.arange(len(frame)), torch.zeros(len(frame), 0), keys=np.arange(len(frame), dtype=np.uint64)
    )


def _alone(columns: dict[str, CodedColumn], cells: dict[str, list[str]]) -> Cells:
    """The cells of new rows."""
    return Cells([_beside(column, cells[name], [], []) for name, column in columns.items()])


def _beside(column: CodedColumn, new: Sequence[str], others: Sequence[str], rare: Sequence[float]) -> _FewCells:
    """Cells of new rows beside others, whose values are so rare."""
    values = [text for text in dict.fromkeys([*new, *others]) if text]
    numbers = {text: place for place, text in enumerate(values)}
    codes = np.array([numbers.get(text, -1) for text in (*new, *others)], dtype=np.int32)
    worth = np.zeros(len(values) + 1)
    worth[codes[len(new) :]] = rare
    return _FewCells(column.name, column.kind, values, (codes[: len(new)], codes[len(new) :]), worth)
