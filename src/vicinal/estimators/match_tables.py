"""Two tables side by side: their rows as vectors and words, who is a candidate for whom, and pairs as features."""

import contextlib
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core import replaced_file
from vicinal.core.identity import as_texts
from vicinal.core.seeding import seeded
from vicinal.core.threads import in_threads, pieces
from vicinal.data.spelling import GAPS
from vicinal.encoders import Kind, TableEncoder, build_table_encoder
from vicinal.encoders.minilm import MINILM
from vicinal.estimators.match_rows import ROW, MatchColumns, MatchTable
from vicinal.estimators.pair_features import PairFeatures, Rivals, Side
from vicinal.estimators.pair_reader import pair_texts
from vicinal.index import Corrected, Hits, MilvusIndex, hub_bias, open_index
from vicinal.index.lexical import LexicalIndex, Sparse, fuse
from vicinal.linkage.block_keys import Cells
from vicinal.linkage.block_recall import estimated_recall
from vicinal.linkage.block_rules import choose_rules
from vicinal.linkage.blocking import block_index
from vicinal.linkage.columns import CodedColumn, Floats, Ids
from vicinal.linkage.columns import Kind as KindOfCells
from vicinal.similarity.products import l2_normalize
from vicinal.version import __version__

Log = Callable[[str], None]
T = TypeVar("T")

_FEWEST = 20
"""Rows that each search gives, at least, before they are fused."""

_PAIRS = 1 << 16
"""Pairs that are computed with at a time."""

_ROWS = 1 << 14
"""Rows that are encoded at a time."""

_ALL, _POSTINGS = 10_000, (15_000, 5_000)
"""Rows up to which all words and letters of a row look for others, and rows in which those stand that do in more; see
:class:`LexicalIndex`. At 300,000 rows these found .997 of the copies among 40, and 50,000 in all .999."""

LARGE = 20_000
"""Things of a table up to which each row's candidates are the most alike of all; of more, if nothing is encoded, those
that share rare keys with it: :func:`vicinal.linkage.blocking.block_index`."""

_COUNTED = 5_000
"""Rows of a large table that tell how rare words are."""

KEYS = 30
"""Pairs for each left row by all rules of a blocking."""

_SAMPLED = 20_000
"""Left rows that biases of hubs are computed from, at most."""


def found_pairs(hits: Hits) -> tuple[Ids, Floats]:
    """Queries and what was found for them ``[n, 2]``, query by query, and scores ``[n]``."""
    rows, places = (hits.ids >= 0).nonzero(as_tuple=True)
    return torch.stack([rows, hits.ids[rows, places]], dim=1).numpy(), hits.scores[rows, places].numpy()


def installed_encoders(named: Mapping[str, str] | None) -> dict[str, str]:
    """Encoders by kind: those that are named, and of texts the pretrained one if it is installed, else "none"."""
    return {"text": MINILM.encoder if MINILM.installed else "none", **(named or {})}


class MatchedTables:
    """Both tables, read the same way; of one table against itself twice the same. Positions are those of things.

    Args:
        tables: left and right, or the only one.
        columns: how shared columns are compared.
        encoder: of rows' texts and of media; None: words and letters only.
        index: what searches vectors, see :func:`vicinal.index.open_index`.
        features: of other tables with these columns; None: new ones.
        cache_dir: folder that keeps candidates of large tables and their levels between runs; None: nowhere.
        like: columns of larger tables that these are rows of, by name.
        known: what is computed already.

    Attributes:
        temperature: of the hub correction; None: none. Set it by :meth:`correct`.
    """

    def __init__(
        self,
        tables: Sequence[MatchTable],
        columns: MatchColumns,
        encoder: TableEncoder | None,
        index: str = "exact",
        features: PairFeatures | None = None,
        cache_dir: Any = None,
        like: Mapping[str, CodedColumn] | None = None,
        known: Mapping[Any, Any] | None = None,
    ) -> None:
        self._tables, self.columns, self.index, self.like = list(tables), columns, index, like or {}
        self._waiting: list[tuple[int, MatchTable]] = []
        self.encoder = None if encoder is None else encoder.eval()  # in training mode it leaves out n-grams at random
        self.features = features or PairFeatures(columns)
        self.temperature: float | None = None
        self._known = dict(known or {})
        self.cache_dir = None if cache_dir is None else Path(cache_dir)

    @classmethod
    def read(
        cls,
        tables: Sequence[MatchTable],
        encoders: Mapping[str, str],
        cache_dir: Any,
        index: str,
        seed: int,
        log: Log,
        *,
        counted: bool = True,
    ) -> Self:
        """Tables of the user with encoders named by kind, "none" for no encoder of texts; counted and encoded.

        ``seed`` draws the vectors of encoders that are not pretrained. Where pairs are weighed by their columns, so
        without ``counted``, some rows of large tables tell how rare words and letters are.
        """
        columns = MatchColumns.shared(tables[0].frame, tables[-1].frame)
        kinds: dict[str, Kind] = dict(columns.media)
        if encoders["text"] != "none":
            kinds[ROW] = "text"
        named = {kind: name for kind, name in encoders.items() if kind in kinds.values()}
        with seeded(seed):
            encoder = build_table_encoder(kinds, encoders=named, cache_dir=cache_dir) if kinds else None
            both = cls(tables, columns, encoder, index, cache_dir=cache_dir)
            if encoder is not None:
                encoder.fit(pd.concat([both.encoder_rows(each, each.first) for each in both.tables], ignore_index=True))
        sides = [both.side(number) for number in range(len(tables))]
        if both.is_large and not counted:
            some = [pd.Series(each.rows).sample(min(len(each.rows), _COUNTED), random_state=seed) for each in sides]
            sides = [Side(both.features, *each) for each in zip(both.tables, map(np.asarray, some), strict=True)]
        both.features.fit(sides)
        for table in both.tables:
            if encoder is not None:
                log(f"encoding {len(table.first)} rows")
            table.vectors = both.vectors_of(table, table.first)
        return both

    @property
    def tables(self) -> list[MatchTable]:
        """Left and right, or the only one, with the rows that came since they were asked for last."""
        self._take_in()
        return self._tables

    def _take_in(self) -> None:
        waiting, self._waiting = self._waiting, []
        for number in {number for number, _ in waiting}:
            self._join(number, [rows for place, rows in waiting if place == number])

    def more(self, number: int, rows: Any, id_column: str | None) -> MatchTable:
        """Further rows of a table, 0 for the left one, -1 for the right one, as it reads them, with their vectors."""
        more = self._tables[number].more(rows, id_column, self.columns.numbers)
        more.vectors = self.vectors_of(more, np.arange(len(more)))
        return more

    def add(self, number: int, more: MatchTable) -> None:
        """Put :meth:`more` rows into a table; what grows with its size is done when the tables are asked for."""
        self._tables[number].places.update(more.places)
        self._waiting.append((number, more))

    def _join(self, number: int, rows: Sequence[MatchTable]) -> None:
        table = self._tables[number]
        joined = table.joined(rows)
        new = torch.from_numpy(joined.first[len(table.first) :] - len(table))
        joined.vectors = torch.cat([table.vectors, torch.cat([each.vectors for each in rows])[new]])
        self.change(number, joined)

    @property
    def left(self) -> MatchTable:
        """The left table."""
        return self.tables[0]

    @property
    def right(self) -> MatchTable:
        """The right table, or the only one."""
        return self.tables[-1]

    @property
    def counts(self) -> tuple[int, int]:
        """Things of the left table and of the right one."""
        return len(self.left.first), len(self.right.first)

    @property
    def is_single(self) -> bool:
        """Whether one table is compared with itself."""
        return len(self._tables) == 1

    @property
    def is_large(self) -> bool:
        """Whether candidates share rare keys."""
        return self.encoder is None and max(self.counts) > LARGE

    def correct(self, temperature: float | None) -> None:
        """Take this temperature for the hub correction of vectors; None: no correction."""
        self.temperature = temperature
        self.forget("vectors", "candidates", "levels", "features", "weighed", "scored")

    def change(self, number: int, table: MatchTable) -> None:
        """Put another table in the place of one: 0 for the left one, -1 for the right one."""
        self._tables[number] = table
        self.forget()

    def as_now(self, *kinds: str) -> Self:
        """These tables as they are, whatever comes into them later, with what is known of some kinds, or all of it."""
        known = {key: part for key, part in self._known.items() if (key[0] in kinds if kinds else key[0] != "vectors")}
        now = type(self)(self.tables, self.columns, self.encoder, features=self.features, known=known)
        now.temperature = self.temperature
        return now

    def some(self, tables: Sequence[MatchTable], best: Sequence[list[Hits]]) -> Self:
        """Rows of these tables, or new ones, as tables of their own; with the two best other rows of each by search."""
        like = {column.name: column for column in self.coded()}
        known = {("best", side): hits for side, hits in enumerate(best)}
        return type(self)(tables, self.columns, self.encoder, features=self.features, like=like, known=known)

    def forget(self, *kinds: str) -> None:
        """Forget what was computed; without kinds all of it. Where what scores changed: "scored"."""
        for key in [key for key in self._known if not kinds or key[0] in kinds]:
            value = self._known.pop(key)
            if isinstance(value, Corrected):
                value.index.drop()

    # Rows.

    def encoder_rows(self, table: MatchTable, rows: Ids) -> pd.DataFrame:
        """Rows as the encoder reads them."""
        media = table.frame[list(self.columns.media)].iloc[rows]
        return media.assign(**{ROW: self.columns.texts_of(table, ROW, rows, shown=True)})

    def vectors_of(self, table: MatchTable, rows: Ids) -> Tensor:
        """Unit vectors ``[n, d]`` of rows, in which each part of the encoder has the same length."""
        if self.encoder is None:
            return torch.zeros(len(rows), 0)
        blocks = [torch.zeros(0, self.encoder.dim)]
        for part in pieces(len(rows), _ROWS):
            inputs = self.encoder.cache(self.encoder.prepare(self.encoder_rows(table, rows[part]), table.root))
            with torch.no_grad():
                vectors = self.encoder(inputs.select(torch.arange(len(rows[part])))).float()
            parts = vectors.split([part.dim for part in self.encoder.encoders], dim=1)
            blocks.append(l2_normalize(torch.cat([l2_normalize(part) for part in parts], dim=1)))
        return torch.cat(blocks)

    # What is computed, each once until a table changes. A side is 0, the left table, or 1, the right one.

    def once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """What ``make`` gives, and gave before since a table changed."""
        self._take_in()
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def cached(self, name: str, settings: Any, make: Callable[[], Ids]) -> Ids:
        """An array of large tables, from the folder of a run that came as far as this with them, or made and put there.

        It is named by the cells of all rows, how common words are, and ``settings``.
        """
        if self.cache_dir is None or not self.is_large:
            return make()
        facts = [name, settings, __version__, self.columns.texts, self.columns.numbers]
        digest = hashlib.sha256(json.dumps(facts, default=str).encode())
        terms = self.features.terms.values()
        for part in (*(table.row_keys for table in self.tables), *(each.weights for each in terms)):
            digest.update(np.ascontiguousarray(part).data)
        path = self.cache_dir / f"{name}-{digest.hexdigest()[:32]}.npy"
        with contextlib.suppress(OSError, ValueError, EOFError):  # none, or damaged
            return np.asarray(np.load(path, allow_pickle=False))
        array = make()
        with replaced_file(path) as aside, aside.open("wb") as file:
            np.save(file, array, allow_pickle=False)
        return array

    def _of(self, what: str, side: int, make: Callable[[MatchTable], T]) -> T:
        """The same of a side; both are one if there is one table."""
        return self.once((what, side * (not self.is_single)), lambda: make(self.tables[-side]))

    def side(self, side: int) -> Side:
        """The things of a side as pairs are made of them."""
        return self._of("side", side, partial(Side, self.features))

    def _lexical(self, side: int) -> LexicalIndex:
        return self._of("words", side, lambda _: LexicalIndex(self.side(side).lexical))

    def by_vectors(
        self, vectors: Tensor, k: int, side: int = 1, exclude: Tensor | None = None, *, corrected: bool = True
    ) -> Hits:
        """The rows of a side nearest to each vector; ``corrected``: for hubs, where that was chosen."""

        def make(table: MatchTable) -> Corrected:
            bias = self._bias(self.temperature if side == 1 or self.is_single else None, len(table.vectors))
            built = Corrected.build(table.vectors, bias, index=self.index, **_collection(self.index))
            if isinstance(built.index, MilvusIndex):
                built.index.flush(indexed=True)
            return built

        index = self._of("vectors", side, make)
        return (index.search if corrected else index.plain)(vectors, k, exclude=exclude)

    def _bias(self, temperature: float | None, count: int) -> Tensor:
        """What hubs among so many right rows lose, by a sample of the left ones."""
        left, right = self.left.vectors, self.right.vectors
        if temperature is None or count < 2:
            return torch.zeros(count)
        at = torch.linspace(0, len(left) - 1, min(len(left), _SAMPLED), dtype=torch.float64).long()
        same = (at, torch.arange(count)) if self.is_single else None
        return hub_bias(left[at], right, temperature=temperature, ids=same)

    # Candidates.

    def pairs_both_ways(self, k: int) -> Ids:
        """Things ``[n, 2]`` of which one is among the best ``k`` of the other, both with content, in order."""
        make = self._blocked if self.is_large else self._nearest_both_ways
        return self.once(("candidates", "both ways", k), partial(make, k))

    def _nearest_both_ways(self, k: int) -> Ids:
        parts = []
        for side in range(2 - self.is_single):
            parts.append(found_pairs(self.candidates(k, side=side))[0][:, :: -1 if side else 1])
        pairs = np.concatenate(parts)
        pairs = np.unique(np.sort(pairs, axis=1) if self.is_single else pairs, axis=0)
        return pairs[self.speak(pairs)]

    def _blocked(self, k: int) -> Ids:
        """Things that share rare keys; of each those with the rarest, half of ``k`` from either side."""

        def make() -> Ids:
            cells = Cells(self.coded())
            index = block_index(cells, single=self.is_single, most=KEYS * len(self.left.first))
            blocked = index.candidates(cells, later=self.is_single).strongest(-(-k // 2))
            self._known["candidates", "rules", k] = index.rules
            return np.column_stack([blocked.pairs, blocked.bits.view(np.int32)])

        candidates = self.cached("candidates", k, make)
        self._known["candidates", "bits", k] = candidates[:, 2].copy().view(np.uint32)
        return candidates[:, :2].astype(np.int64)

    def reached(self, k: int, chances: Floats) -> float | None:
        """Estimated share of the matches among the pairs of :meth:`pairs_both_ways` with these probabilities ``[n]``.

        None where each row is compared with those most alike, of which no rules are known, and of too few matches.
        """
        pairs = self.pairs_both_ways(k)
        if not self.is_large:
            return None
        cells = Cells(self.coded())
        rules = self.once(("candidates", "rules", k), partial(choose_rules, cells, KEYS, single=self.is_single))
        share = estimated_recall(cells, rules, pairs, self._known["candidates", "bits", k], chances)
        return share if np.isfinite(share) else None

    def coded(self, kinds: Mapping[str, KindOfCells] | None = None) -> list[CodedColumn]:
        """The shared columns of texts and numbers; with ``kinds`` those that are named there."""
        columns = self.once(("coded",), lambda: {name: self._coded(name) for name in self.columns.compared})
        if kinds is None:
            return list(columns.values())
        for name in [name for name, kind in kinds.items() if columns[name].kind != kind]:  # what it knows is kept else
            columns[name] = replace(columns[name], kind=kinds[name])
        return [columns[name] for name in kinds]

    def _coded(self, name: str) -> CodedColumn:
        sides, texts = [], list[str]()
        for table in self.tables:
            codes, values = table.cells(name)
            sides.append(codes[table.first] + len(texts))
            texts += values.tolist()
        numbers, like = name in self.columns.numbers, self.like.get(name)
        return CodedColumn.of_codes(name, sides, texts, GAPS, numbers=numbers, like=like)

    def nearest(
        self,
        side: int,
        lexical: Sparse,
        vectors: Tensor | None,
        k: int,
        depth: int = _FEWEST,
        exclude: Tensor | None = None,
        postings: Sequence[int] | None = None,
    ) -> tuple[Hits, list[Hits]]:
        """The best ``k`` rows of the other side for rows of this one, by words and by vectors, fused; see :func:`fuse`.

        Each search gives ``depth`` rows, or twice ``k`` if that is more; and its two best, not corrected for hubs.
        """
        depth = max(2 * k, depth)
        searches = [self._lexical(1 - side).search(lexical, depth, exclude=exclude, postings=postings)]
        best = list(searches)
        if self.encoder is not None and vectors is not None:
            search = partial(self.by_vectors, vectors, side=1 - side, exclude=exclude)
            searches.append(search(depth))
            best.append(searches[-1] if self.temperature is None else search(2, corrected=False))
        return fuse(searches, k), [Hits(hits.ids[:, :2].clone(), hits.scores[:, :2].clone()) for hits in best]

    def _search(self, side: int, rows: Tensor | None, k: int, depth: int) -> tuple[Hits, list[Hits]]:
        """:meth:`nearest` for rows of this side (None: all); of one table none is compared with itself."""
        table, some = self.tables[-side], slice(None) if rows is None else rows
        themselves = torch.arange(len(table.first))[some] if self.is_single else None
        postings = None if len(self.tables[side - 1].first) <= _ALL else _POSTINGS
        lexical = self.side(side).lexical if rows is None else self.side(side).lexical[rows.numpy()]
        return self.nearest(side, lexical, table.vectors[some], k, depth, themselves, postings)

    def candidates(self, k: int, rows: Tensor | None = None, side: int = 0) -> Hits:
        """The best ``k`` rows of the other side for rows of this one (None: all), by words and by vectors, fused."""

        def every() -> Hits:
            hits, best = self._search(side, None, k, _FEWEST)
            self._of("best", side, lambda _: best)
            return hits

        return self.once(("candidates", k, side), every) if rows is None else self._search(side, rows, k, _FEWEST)[0]

    # Pairs.

    def things(self, at: Ids) -> Ids:
        """The things of rows at positions ``[n, 2]``; of one table the lower one first."""
        pairs = np.stack([self.left.thing[at[:, 0]], self.right.thing[at[:, 1]]], axis=1)
        return np.sort(pairs, axis=1) if self.is_single else pairs

    def speak(self, at: Ids) -> Ids:
        """Which pairs ``[n, 2]`` have content on both sides."""

        def make(side: int, table: MatchTable) -> Ids:
            media = table.frame[list(self.columns.media)].notna().any(axis=1).to_numpy()[table.first]  # not in a folder
            unkept = bool(self.columns.media) and not media.any()
            return np.asarray(np.any([media | unkept, *(column.sides[side] >= 0 for column in self.coded())], axis=0))

        sides = [self._of("content", side, partial(make, side))[at[:, side]] for side in (0, 1)]
        return np.asarray(sides[0] & sides[1])

    def best(self, side: int, rows: Ids) -> list[Hits]:
        """The two best rows of the other side for some rows of this one, in the places of all, by each search."""
        known: list[Hits] | None = self._known.get(("best", side * (not self.is_single)))
        if known is not None:
            return known
        count, some = len(self.tables[-side].first), torch.from_numpy(np.unique(rows))
        best = []
        for hits in self._search(side, some, 1, 2)[1]:
            best.append(Hits(torch.full((count, 2), -1), torch.full((count, 2), -torch.inf)))
            best[-1].ids[some], best[-1].scores[some] = hits.ids, hits.scores
        return best

    def _rivals(self, at: Ids) -> Rivals:
        """The two best rows for each row of pairs; what no search for all rows has found is looked for."""
        words, *near = zip(*(self.best(side, at[:, side]) for side in (0, 1)), strict=True)
        return near[0] if near else None, words

    def pair_features(self, at: Ids) -> Floats:
        """Features ``[n, F]`` of pairs of positions ``[n, 2]``."""
        return np.concatenate([np.zeros((0, len(self.features.names))), *self.of_features(at, lambda block, _: block)])

    def term_cosines(self, key: tuple[str, str], at: Ids) -> tuple[Floats, Ids]:
        """Cosine ``[n]`` of the terms of a column and kind, weighed by how rare they are, and which pairs have some."""
        terms, sides = self.features.terms[key], [self.side(side).counts(key) for side in (0, 1)]
        cosines, filled = np.zeros(len(at)), np.zeros(len(at), dtype=bool)
        for part in pieces(len(at), _PAIRS):
            shared = terms.shared(*(terms.of_counts(rows[at[part, side]]) for side, rows in enumerate(sides)))
            cosines[part], filled[part] = shared.cosine, np.minimum(shared.left, shared.right) > 0
        return cosines, filled

    def vector_cosines(self, at: Ids) -> Floats:
        """Cosines of the vectors of pairs, ``[n]``."""
        left, right = (self.tables[-side].vectors[torch.from_numpy(at[:, side].copy())] for side in (0, 1))
        return np.asarray((left * right).sum(dim=1).double().numpy())

    def pair_texts(self, at: Ids) -> list[str]:
        """Both rows of pairs at positions ``[n, 2]`` as one text each."""
        return pair_texts(*(self.side(side).texts(ROW, at[:, side]) for side in (0, 1)))

    def pair_keys(self, rows: Ids) -> list[str]:
        """Names of pairs of rows ``[n, 2]``, as the reader of pairs knows them."""
        sides = (as_texts(table.ids[rows[:, side]]).tolist() for side, table in enumerate((self.left, self.right)))
        return ["\t".join(ids) for ids in zip(*sides, strict=True)]

    def of_features(self, at: Ids, work: Callable[[Floats, slice], Floats]) -> list[Floats]:
        """What ``work`` gives for the features of each block of pairs and its place among them, by threads of torch.

        ``work`` is called by one thread at a time.
        """
        rivals, left, right = self._rivals(at), self.side(0).whole(), self.side(1).whole()
        step = min(_PAIRS, max(1, -(-len(at) // torch.get_num_threads())))
        turn = Lock()

        def of_block(part: slice) -> Floats:
            cosines = None if self.encoder is None else self.vector_cosines(at[part])
            features = self.features.of(left, right, at[part], rivals, cosines)
            with turn:
                return work(features, part)

        return in_threads(of_block, pieces(len(at), step))


def check_index(name: str) -> None:
    """Raise ValueError for an index that cannot be opened or cannot hold vectors with a bias."""
    open_index(name, dim=2, similarity="dot", **_collection(name)).drop()


def _collection(name: str) -> dict[str, Any]:
    """A new collection: a file may hold those of several runs."""
    return {"collection": f"vicinal_{uuid.uuid4().hex[:12]}"} if name.partition(":")[0] == "milvus" else {}
