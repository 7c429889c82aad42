"""Rows that come into a linked table: those that they may be are found and told at once, and nothing is learned."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.estimators.match_labels import LabelScorer
from vicinal.estimators.match_linkage import Linkage
from vicinal.estimators.match_rows import MatchTable
from vicinal.estimators.match_tables import KEYS, MatchedTables, found_pairs
from vicinal.estimators.pair_features import Side
from vicinal.index import Hits
from vicinal.index.lexical import LexicalIndex, Sparse
from vicinal.linkage.block_keys import Cells
from vicinal.linkage.blocking import BlockIndex, block_index
from vicinal.linkage.columns import Floats, Ids

STRONGEST = 50
"""Candidates of a new row that are weighed, those with the rarest keys in common."""

_NONE = np.zeros((0, 2), dtype=np.int64)


class NewRows:
    """The rows that new ones may be, of the other table or of the only one.

    Where nothing is learned beyond the weights of columns they are found among the sorted keys of all rows, by rules
    that are chosen from both tables: memory and start grow with the table, what a new row takes does not, but for the
    logarithm. Else they are those most alike in words, letters and vectors, told by all that was learned of pairs; what
    is known of the others stays as it is: how far they are taken, and how much like the best other rows.

    Args:
        tables: both, as they are now.
        linkage: the estimates.
        number: of the table that rows come into: 0 for the left one, -1 for the right one.
        learned: what labels taught beside them; None: nothing.
        taken: probabilities of the links of those that have one; None: they are found by keys.

    Attributes:
        ids: of the rows that new ones are compared with.
        copies: ids of further rows of one table that are equal to these, by their places.
    """

    def __init__(
        self,
        tables: MatchedTables,
        linkage: Linkage,
        number: int,
        learned: LabelScorer | None,
        taken: dict[int, float] | None,
    ) -> None:
        self.linkage, self.learned, self.side, self.taken = linkage, learned, -number, taken or {}
        self.is_single, here, there = tables.is_single, self.side, 1 - self.side
        table = tables.tables[0 if number else -1]
        self.ids, self.copies = table.ids[table.first].tolist(), dict[int, list[Any]]()
        self.table, self.known, self.later = table, len(self.ids), table.rows(table.first[:0])
        for row in np.setdiff1d(np.arange(len(table)), table.first) if self.is_single else ():
            self.copies.setdefault(int(table.thing[row]), []).append(table.ids[row])
        whole = linkage.competition(tables, _NONE)
        rows, again = (whole.rows[here], whole.rows[there]), (whole.again[here], whole.again[there])
        self.competition = replace(whole, rows=rows, again=again)
        self.start, self.expected = linkage.start(tables), linkage.expected(tables)
        self.index: BlockIndex | None = None
        self.best, self.hits = list[Tensor](), list[Hits]()
        if taken is None:
            self.tables = tables.as_now("coded")
            columns = [replace(each, sides=(each.sides[here], each.sides[there])) for each in tables.coded()]
            self.index = block_index(Cells(columns), single=self.is_single, most=KEYS * self.competition.rows[0])
            return
        self.tables = tables.as_now()
        pairs, log_odds, _ = linkage.candidates(tables)
        self.room = linkage.competition(tables, pairs).room(log_odds, self.expected)[1 - self.side]
        self.best = [hits.scores for hits in self.tables.best(1 - self.side, np.arange(self.known))]

    def ids_of(self, place: int) -> list[Any]:
        """The ids of a row, and of those of one table that are equal to it."""
        return [self.ids[place], *self.copies.get(place, ())]

    def put(self, more: MatchTable) -> None:
        """Let later rows be compared with these, too, each a thing of its own."""
        self.ids += more.ids.tolist()
        self.later = _as_things(self.later, more)
        if self.index is not None:
            self.index.add(self._keys(more))
            return
        self.room = np.concatenate([self.room, np.ones(len(more))])
        best = self.tables.nearest(1 - self.side, self._lexical(more), more.vectors, 1)[1]
        self.best = [torch.cat([known, hits.scores]) for known, hits in zip(self.best, best, strict=True)]

    def _keys(self, more: MatchTable) -> Cells:
        return Cells(self.tables.some([more], []).coded())

    def _lexical(self, more: MatchTable) -> Sparse:
        return Side(self.tables.features, more).lexical

    def pairs(self, more: MatchTable) -> tuple[Ids, Floats, Floats]:
        """Places of new rows and of those that they may be ``[n, 2]``, log odds by themselves, and probabilities.

        In one table a new row is compared with those before it. Rows of two tables compete among these pairs alone.
        """
        if self.is_single:
            self.put(more)
        new, other, evidence = self._neighbors(more)
        order = np.lexsort((-evidence, new))
        order = order[(other < len(self.ids) - self.is_single * (len(more) - new))[order]]
        order = order[np.arange(len(order)) - np.searchsorted(new[order], new[order]) < STRONGEST]
        new, other = new[order], other[order]
        others, place = np.unique(other, return_inverse=True)
        at = np.stack([new, place.ravel()], axis=1)
        log_odds, chances = self._scored(more, others, at) if len(at) else (np.zeros(0), np.zeros(0))
        return np.stack([new, other], axis=1), log_odds, chances

    def _neighbors(self, more: MatchTable) -> tuple[Ids, Ids, Floats]:
        """New rows, those that share rare keys with them, and how rare these are; or those most alike."""
        if self.index is not None:
            blocked = self.index.candidates(self._keys(more))
            new, other = blocked.pairs.astype(np.int64).T
            return new, other, blocked.evidence
        count = self.linkage.n_candidates
        lexical = self._lexical(more)
        hits, self.hits = self.tables.nearest(self.side, lexical, more.vectors, count)
        ids = hits.ids
        if len(self.later):  # in one table rows find themselves, too
            index = LexicalIndex(self._lexical(self.later))
            later = index.search(lexical, count + self.is_single * len(more)).ids
            ids = torch.cat([ids, torch.where(later < 0, later, later + self.known)], dim=1)
        new, other = found_pairs(Hits(ids, torch.zeros(ids.shape)))[0].T
        return new, other, np.zeros(len(new))

    def _scored(self, more: MatchTable, others: Ids, at: Ids) -> tuple[Floats, Floats]:
        """Log odds of pairs of new rows and some others, each by itself, and probabilities."""
        few, pairs = self._beside(more, others), at[:, ::-1] if self.side else at
        if self.is_single:  # new rows come last
            pairs = np.stack([at[:, 1], len(others) + at[:, 0]], axis=1)
        log_odds = self.linkage.log_odds(few, pairs, start=self.start)
        free = log_odds if self.index else log_odds + np.log(np.maximum(self.room[others], 1e-99))[at[:, 1]]
        chances = self.linkage.as_told(replace(self.competition, pairs=at).chances(free, self.expected))
        if self.learned is not None:
            chances = self.learned.chances(few, self.linkage, pairs, chances)
        return log_odds, chances if self.index else np.where(few.speak(pairs), chances, 0.0)

    def _beside(self, more: MatchTable, others: Ids) -> MatchedTables:
        """New rows and some others as tables of their own, of which the same is known as of all."""
        old = others[others < self.known]
        parts = [self.table.rows(self.table.first[old])] if len(old) else []
        parts += [self.later.rows(others[len(old) :] - self.known)] if len(old) < len(others) else []
        places = torch.from_numpy(others)
        nobody = torch.full((len(others), 2), -1)  # the best other rows are no new ones
        best = [[_placed(hits, others) for hits in self.hits], [Hits(nobody, scores[places]) for scores in self.best]]
        if self.is_single:
            both = [Hits(*map(torch.cat, zip(there, here, strict=True))) for here, there in zip(*best, strict=True)]
            return self.tables.some([_as_things(*parts, more)], [both])
        turn = slice(None, None, -1 if self.side else 1)
        return self.tables.some([more, _as_things(*parts)][turn], best[turn])


def _as_things(*tables: MatchTable) -> MatchTable:
    """The rows of tables, each a thing of its own, as one."""
    frame = pd.concat([table.frame for table in tables], ignore_index=True)
    vectors, places = torch.cat([table.vectors for table in tables]), np.arange(len(frame))
    return replace(tables[0], frame=frame, ids=places, vectors=vectors, keys=places.astype(np.uint64))


def _placed(hits: Hits, others: Ids) -> Hits:
    """Hits by their places among others, which rise; -1 of those that are none of them."""
    ids = hits.ids.numpy()
    places = np.minimum(np.searchsorted(others, ids), len(others) - 1)
    return Hits(torch.from_numpy(np.where(others[places] == ids, places, -1)), hits.scores)
