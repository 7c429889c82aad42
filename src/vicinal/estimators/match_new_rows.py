"""Rows that come into a linked table: those that they may be are found and told at once, and nothing is learned."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.data.spelling import GAPS
from vicinal.estimators.match_labels import LabelScorer
from vicinal.estimators.match_linkage import Linkage
from vicinal.estimators.match_rows import MatchTable
from vicinal.estimators.match_tables import KEYS, MatchedTables
from vicinal.estimators.pair_features import normal_text
from vicinal.index import Hits
from vicinal.index.lexical import LexicalIndex
from vicinal.linkage.block_keys import Cells
from vicinal.linkage.blocking import BlockIndex, block_index
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
        copies: ids of further rows of one table that are equal to these, by their places.
        taken: probabilities of the links of those that have one.
    """

    def __init__(self, tables: MatchedTables, linkage: Linkage, number: int) -> None:
        self.linkage, self.is_single = linkage, tables.is_single
        self.features, self.shared = tables.features, tables.columns
        here, there = (0, 1) if number == 0 else (1, 0)
        every = [replace(column, sides=(column.sides[here], column.sides[there])) for column in tables.coded()]
        self.columns = {column.name: column for column in every}
        self.rarity = {name: column.rarity for name, column in self.columns.items()}
        table = tables.left if tables.is_single or number else tables.right
        self.ids, self.copies = table.ids[table.first].tolist(), dict[int, list[Any]]()
        if tables.is_single and len(self.ids) < len(table):
            for row in np.setdiff1d(np.arange(len(table)), table.first):
                self.copies.setdefault(int(table.thing[row]), []).append(table.ids[row])
        whole = linkage.competition(tables, _NONE)
        rows, again = whole.rows, whole.again
        self.competition = replace(whole, rows=(rows[here], rows[there]), again=(again[here], again[there]))
        self.start, self.expected = linkage.start(tables), linkage.expected(tables)
        self.taken: dict[int, float] = {}
        self.texts: dict[str, list[str]] = {name: [] for name in self.columns}  # of rows that were put in
        self.worth: dict[str, list[float]] = {name: [] for name in self.columns}  # their rarity

    def ids_of(self, place: int) -> list[Any]:
        """The ids of a row, and of those of one table that are equal to it."""
        return [self.ids[place], *self.copies.get(place, ())]

    def put(self, more: MatchTable) -> None:
        """Let later rows be compared with these, too."""
        cells = self._cells(more)
        self._add(more, cells)
        self.ids += more.ids.tolist()
        for name, texts in cells.items():
            self.texts[name] += texts
            self.worth[name] += [self._known[name].get(text, float(self.rarity[name][-1])) for text in texts]

    def _add(self, more: MatchTable, cells: dict[str, list[str]]) -> None:
        """Let rows be found."""
        self.index.add(_alone(self.columns, cells))

    @cached_property
    def index(self) -> BlockIndex:
        """The sorted keys of all rows."""
        cells = Cells(list(self.columns.values()))
        return block_index(cells, single=self.is_single, most=KEYS * self.competition.rows[0])

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
        new, other, evidence = self._neighbors(more, cells)
        order = np.lexsort((-evidence, new))
        order = order[(other < len(self.ids) - self.is_single * (len(more) - new))[order]]
        order = order[np.arange(len(order)) - np.searchsorted(new[order], new[order]) < STRONGEST]
        new, other = new[order], other[order]
        others, place = np.unique(other, return_inverse=True)
        log_odds, chances = self._scored(more, cells, others, np.stack([new, place.ravel()], axis=1))
        return np.stack([new, other], axis=1), log_odds, chances

    def _neighbors(self, more: MatchTable, cells: dict[str, list[str]]) -> tuple[Ids, Ids, Floats]:
        """New rows, those that share rare keys with them, and how rare these are."""
        blocked = self.index.candidates(_alone(self.columns, cells))
        new, other = blocked.pairs.astype(np.int64).T
        return new, other, blocked.evidence

    def _scored(self, more: MatchTable, cells: dict[str, list[str]], others: Ids, at: Ids) -> tuple[Floats, Floats]:
        """Log odds of pairs of new rows and some others, each by itself, and probabilities."""
        coded, texts = self._coded(cells, others)
        has_texts = any(column.kind == "text" for column in self.columns.values())
        tables = [_plain(*part) for part in (("left", cells), ("right", texts))] if has_texts else []
        few = MatchedTables(tables, self.shared, None, features=self.features)
        few.once(("coded",), lambda: coded)
        log_odds = self.linkage.ratios(few, at) + self.start
        return log_odds, self._chances(at, log_odds)

    def _chances(self, at: Ids, log_odds: Floats) -> Floats:
        """Probabilities of pairs that compete among one another, ``[n]``."""
        return self.linkage.as_told(replace(self.competition, pairs=at).chances(log_odds, self.expected))

    def _cells(self, more: MatchTable) -> dict[str, list[str]]:
        """The cells of new rows in their normal form, "" where they say nothing."""
        cells = {}
        for name, column in self.columns.items():
            texts = map(normal_text, more.frame[name].tolist())
            cells[name] = ["" if text in GAPS else compared_cell(text, column.form) for text in texts]
        return cells

    def _coded(self, cells: dict[str, list[str]], others: Ids) -> tuple[dict[str, CodedColumn], dict[str, list[str]]]:
        """The columns of new rows beside those of some others, and the cells of these."""
        count = len(self.ids) - len(next(iter(self.texts.values())))
        old, added = others[others < count], others[others >= count] - count
        texts, coded = dict[str, list[str]](), dict[str, CodedColumn]()
        for name, column in self.columns.items():
            codes = column.sides[1][old]
            theirs = [column.values[code] if code >= 0 else "" for code in codes.tolist()]
            theirs += [self.texts[name][place] for place in added.tolist()]
            rare = [*self.rarity[name][codes].tolist(), *(self.worth[name][place] for place in added.tolist())]
            coded[name], texts[name] = _beside(column, cells[name], theirs, rare), theirs
        return coded, texts


class LearnedRows(NewRows):
    """The rows that new ones may be, by all that was learned of pairs: those most alike in words, letters and vectors.

    What is known of the others stays as it is: how far they are taken, and how much like the best other rows.

    Args:
        tables: both, as they are now.
        linkage: the estimates.
        number: of the table that rows come into.
        learned: what labels taught beside them; None: nothing.
        taken: see :class:`NewRows`.
    """

    def __init__(
        self,
        tables: MatchedTables,
        linkage: Linkage,
        number: int,
        learned: LabelScorer | None,
        taken: dict[int, float],
    ) -> None:
        super().__init__(tables, linkage, number)
        self.tables, self.learned, self.side, self.taken = tables.as_now(), learned, -number, taken
        pairs, log_odds, _ = linkage.candidates(tables)
        self.room = linkage.competition(tables, pairs).room(log_odds, self.expected)[1 - self.side]
        table = tables.left if tables.is_single or number else tables.right
        self.known, self.table = len(table.first), _things(table, [(table.things, table.vectors)])
        self.best = [hits.scores for hits in self.tables.best(1 - self.side, np.arange(self.known))]
        self.later: LexicalIndex | None = None

    def _add(self, more: MatchTable, cells: dict[str, list[str]]) -> None:
        best = self.tables.nearest(1 - self.side, more, 1)[1]
        self.best = [torch.cat([known, hits.scores]) for known, hits in zip(self.best, best, strict=True)]
        self.room = np.concatenate([self.room, np.ones(len(more))])
        self.table = _things(self.table, [(self.table.frame, self.table.vectors), self._read(more)])
        later = self.tables.row_texts(self.table.frame.iloc[self.known :])
        self.later = LexicalIndex(self.features.lexical(later))

    def _read(self, more: MatchTable) -> tuple[pd.DataFrame, Tensor]:
        return more.frame, self.tables.vectors_of(more.frame, more.root)

    def _neighbors(self, more: MatchTable, cells: dict[str, list[str]]) -> tuple[Ids, Ids, Floats]:
        count = self.linkage.n_candidates
        hits, self.hits = self.tables.nearest(self.side, more, count)
        ids = hits.ids
        if self.later is not None:  # in one table rows find themselves, too
            texts = self.features.lexical(self.tables.row_texts(more.frame))
            later = self.later.search(texts, count + self.is_single * len(more)).ids
            ids = torch.cat([ids, torch.where(later < 0, later, later + self.known)], dim=1)
        new, place = (ids >= 0).numpy().nonzero()
        return new, ids.numpy()[new, place], np.zeros(len(new))

    def _scored(self, more: MatchTable, cells: dict[str, list[str]], others: Ids, at: Ids) -> tuple[Floats, Floats]:
        few, pairs = self._beside(more, cells, others), at[:, ::-1] if self.side else at
        if self.is_single:  # new rows come last
            pairs = np.stack([at[:, 1], len(others) + at[:, 0]], axis=1)
        log_odds = self.linkage.log_odds(few, pairs, start=self.start)
        chances = self._chances(at, log_odds + np.log(np.maximum(self.room[others], 1e-99))[at[:, 1]])
        if self.learned is not None:
            chances = self.learned.chances(few, self.linkage, pairs, chances)
        return log_odds, np.where(few.speak(pairs), chances, 0.0)

    def _beside(self, more: MatchTable, cells: dict[str, list[str]], others: Ids) -> MatchedTables:
        """New rows and some others as tables of their own, of which the same is known as of all."""
        places = torch.from_numpy(others)
        rows = [self._read(more), (self.table.frame.iloc[others], self.table.vectors[places])]
        coded = self._coded(cells, others)[0]
        nobody = torch.full((len(others), 2), -1)  # the best other rows are no new ones
        best = [[_places(hits, others) for hits in self.hits], [Hits(nobody, scores[places]) for scores in self.best]]
        if self.side or self.is_single:
            rows, best = rows[::-1], best[::-1]
            coded = {name: replace(column, sides=column.sides[::-1]) for name, column in coded.items()}
        if self.is_single:
            both = {name: np.concatenate(column.sides) for name, column in coded.items()}
            coded = {name: replace(column, sides=(both[name], both[name])) for name, column in coded.items()}
            best = [[Hits(*map(torch.cat, zip(*each, strict=True))) for each in zip(*best, strict=True)]]
            tables = [_things(self.table, rows)]
        else:
            tables = [_things(self.table, [each]) for each in rows]
        few = MatchedTables(tables, self.shared, self.tables.encoder, features=self.features)
        few.once(("coded",), lambda: coded)
        for side, hits in enumerate(best):
            few.once(("best", side), partial(lambda each: each, hits))
        return few


def _things(table: MatchTable, parts: Sequence[tuple[pd.DataFrame, Tensor]]) -> MatchTable:
    """Rows with their vectors, each a thing of its own, as a table like another."""
    frames, vectors = zip(*parts, strict=True)
    frame = pd.concat(frames, ignore_index=True)
    places = np.arange(len(frame))
    return replace(table, frame=frame, ids=places, vectors=torch.cat(vectors), keys=places.astype(np.uint64))


def _places(hits: Hits, others: Ids) -> Hits:
    """Hits by their places among others, which rise; -1 of those that are none of them."""
    ids = hits.ids.numpy()
    places = np.minimum(np.searchsorted(others, ids), len(others) - 1)
    return Hits(torch.from_numpy(np.where(others[places] == ids, places, -1)), hits.scores)


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
