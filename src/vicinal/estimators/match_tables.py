"""Two tables side by side: their rows as vectors and words, who is a candidate for whom, and pairs as features."""

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core import check_choice, listed, short
from vicinal.core.identity import as_texts, canonical_ids
from vicinal.core.seeding import seeded
from vicinal.data.column_form import is_written_gap
from vicinal.data.form import TableForm
from vicinal.data.spelling import GAPS
from vicinal.encoders import Kind, TableEncoder, build_table_encoder, infer_kinds
from vicinal.encoders.kinds import is_list
from vicinal.encoders.minilm import MINILM
from vicinal.estimators.inputs import as_table
from vicinal.estimators.pair_features import ROW, PairFeatures, Rivals, Side, normal_text, shown_text
from vicinal.estimators.pair_reader import pair_texts
from vicinal.index import Corrected, Hits, MilvusIndex, hub_bias, open_index
from vicinal.index.lexical import LexicalIndex, Sparse, fuse, presence
from vicinal.linkage.block_keys import Cells
from vicinal.linkage.block_recall import estimated_recall
from vicinal.linkage.blocking import blocked_pairs
from vicinal.linkage.columns import CodedColumn
from vicinal.linkage.columns import Kind as KindOfCells
from vicinal.similarity.products import l2_normalize

Ids = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Log = Callable[[str], None]

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
that share rare keys with it: :func:`vicinal.linkage.blocking.blocked_pairs`."""

_COUNTED = 5_000
"""Rows of a large table that tell how rare words are."""

KEYS = 30
"""Pairs for each left row by all rules of a blocking."""

_SAMPLED = 20_000
"""Left rows that biases of hubs are computed from, at most."""

_UNKNOWN = -2
"""In the place of a best row that was not looked for yet."""


@dataclass
class MatchTable:
    """One of the two tables. Rows that are equal in all cells are one thing: only its first row is compared.

    Attributes:
        name: "left" or "right".
        frame: its rows, without the ids.
        ids: in canonical form, ``[n]``.
        vectors: unit vectors of the things ``[t, d]``; of no width without an encoder.
        root: folder that paths of images and sounds start from.
        form: how its columns are written.
        thing: the thing of each row ``[n]``, numbered in the order of their first rows.
        keys: what rows of one thing have in common, ``[n]``.
    """

    name: str
    frame: pd.DataFrame
    ids: Ids
    vectors: Tensor
    root: Path | None = None
    form: TableForm = field(default_factory=TableForm)
    keys: Sequence[Any] = ()
    thing: Ids = field(init=False)

    def __post_init__(self) -> None:
        self.places = {text: place for place, text in enumerate(as_texts(self.ids).tolist())}
        self.keys = self.keys or row_keys(self.frame)
        self.thing = pd.factorize(np.fromiter(self.keys, dtype=object, count=len(self.keys)))[0]
        self.first: Ids = np.unique(self.thing, return_index=True)[1]

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def things(self) -> pd.DataFrame:
        """The first row of each thing."""
        return self.frame if len(self.first) == len(self) else self.frame.iloc[self.first]

    @classmethod
    def read(cls, name: str, table: Any, id_column: str, root: Any = None) -> Self:
        """A table of the user, not encoded yet.

        Raises:
            ValueError: for no rows, no such column, or an id that is missing or stands twice.
        """
        frame, ids = _rows(name, table, id_column)
        form, frame = _as_typed(frame)
        return cls(name, frame, ids, torch.zeros(0), None if root is None else Path(root), form)

    def positions(self, ids: Any, name: str = "pairs") -> Ids:
        """Positions ``[n]`` of rows; raises ValueError for an id that is not there."""
        texts = as_texts(canonical_ids(self.name, ids)).tolist()
        lost = list(dict.fromkeys(text for text in texts if text not in self.places))
        if lost:
            raise ValueError(f"{name}: expected ids of the {self.name} table, got {listed(lost, 60)}, which it has not")
        return np.array([self.places[text] for text in texts], dtype=np.int64)

    def more(self, rows: Any, id_column: str, numbers: Sequence[str]) -> "MatchTable":
        """Further rows of this table, read as its own, without vectors.

        Raises:
            ValueError: as :meth:`read`, and for an id that is there, or no number in a column of ``numbers``.
        """
        frame, ids = _rows(self.name, rows, id_column)
        there = [text for text in as_texts(ids).tolist() if text in self.places]
        if there:
            raise ValueError(f"{self.name}: expected ids that the table has not yet, got {listed(there, 60)}")
        frame = self.form.read(frame).reindex(columns=self.frame.columns)
        for name in numbers:
            cells = pd.to_numeric(frame[name], errors="coerce")
            if bool((cells.isna() & frame[name].notna()).any()):
                raise ValueError(f"{self.name}: expected numbers in the column {short(name)}, got others")
            frame[name] = cells
        return replace(self, frame=frame, ids=ids, vectors=torch.zeros(0), keys=())

    def joined(self, others: Sequence["MatchTable"]) -> "MatchTable":
        """This table with the rows of others behind its own, whose new things have no vectors yet."""
        every = [self, *others]
        ids = canonical_ids(self.name, [name for each in every for name in each.ids.tolist()])
        frame = pd.concat([each.frame for each in every], ignore_index=True)
        return replace(self, frame=frame, ids=ids, keys=[key for each in every for key in each.keys])

    def without(self, places: Ids) -> "MatchTable":
        """This table without the rows at ``places``."""
        keep = np.setdiff1d(np.arange(len(self)), places)
        if len(keep) == 0:
            raise ValueError(f"{self.name}: expected rows to be left in the table, got the ids of all")
        frame, keys = self.frame.iloc[keep].reset_index(drop=True), [self.keys[place] for place in keep]
        vectors = self.vectors[pd.unique(self.thing[keep])]
        return replace(self, frame=frame, ids=self.ids[keep], vectors=vectors, keys=keys)


def _rows(name: str, table: Any, id_column: str) -> tuple[pd.DataFrame, Ids]:
    """The cells of a table of the user, and its ids."""
    frame = as_table(name, table)
    if not isinstance(frame, pd.DataFrame) or len(frame) == 0:
        got = "none" if isinstance(frame, pd.DataFrame) else short(frame)
        raise ValueError(f"{name}: expected a table of at least one row, got {got}")
    frame = frame.rename(columns=str).reset_index(drop=True)
    check_choice(f"id_{name}", id_column, list(frame.columns))
    ids = canonical_ids(f"id_{name}", frame[id_column], distinct=True, labels=list(range(1, len(frame) + 1)))
    return frame.drop(columns=id_column), ids


def _as_typed(frame: pd.DataFrame) -> tuple[TableForm, pd.DataFrame]:
    """The form of a table, and its cells; one that is none of its column, as by a typo, stays as it was typed."""
    form, read = TableForm.of(frame), {}
    for name, one in form.columns.items():
        if one.kind == "parts":  # numbers among words are compared as texts
            continue
        cells, typed = one.read(frame[name]), frame[name]
        odd = np.array(cells.isna() & (one.kind in ("number", "date", "duration")))
        odd[odd] = [not is_written_gap(cell) for cell in typed[odd].tolist()]
        if not odd.any():
            read[name] = cells
        elif one.kind == "date":
            read[name] = typed.where(odd, cells.map(shown_text))
    return form.of_columns(read), frame.assign(**read)


def row_keys(frame: pd.DataFrame) -> list[bytes]:
    """A digest of the cells of each row, the same for rows that are equal; texts in their normal form."""
    columns = [_cell_keys(frame[name]) for name in frame.columns]
    cells = list(map("\x1f".join, zip(*columns, strict=True))) or [""] * len(frame)
    return [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in cells]


def _cell_keys(cells: "pd.Series[Any]") -> list[str]:
    """The key of each cell, once for each distinct one; but objects may be equal and not the same."""
    if cells.dtype == object:
        return [_key(cell) for cell in cells.tolist()]
    codes, distinct = pd.factorize(cells, use_na_sentinel=True)
    keys = [*(_key(cell) for cell in distinct.tolist()), ""]
    return [keys[code] for code in codes.tolist()]


def _key(cell: Any) -> str:
    if isinstance(cell, str):
        return normal_text(cell)
    return repr(cell.tolist() if isinstance(cell, np.ndarray) else cell) if is_list(cell) else normal_text(cell)


@dataclass(frozen=True)
class MatchColumns:
    """How the columns that both tables have are compared.

    Attributes:
        texts: as texts.
        numbers: as numbers.
        media: images, sounds and vectors, by their vectors, with their kinds.
    """

    texts: list[str]
    numbers: list[str]
    media: dict[str, Kind]

    @classmethod
    def shared(cls, left: pd.DataFrame, right: pd.DataFrame) -> Self:
        """The columns of both tables.

        Raises:
            ValueError: if there is none, or none has a value.
        """
        names = [name for name in left.columns if name in right.columns]
        if not names:
            raise ValueError(
                f"right: expected columns that the left table has, too, got {listed(right.columns, 60)} beside "
                f"{listed(left.columns, 60)}; give the same thing the same name"
            )
        some = [each.sample(LARGE, random_state=0) if len(each) > LARGE else each for each in (left, right)]
        joined = pd.DataFrame({name: pd.concat([each[name] for each in some], ignore_index=True) for name in names})
        kinds = infer_kinds(joined)
        media: dict[str, Kind] = {n: kind for n in names if (kind := kinds[n].kind) in ("image", "audio", "vector")}
        filled = [n for n in names if n not in media and left[n].notna().any() and right[n].notna().any()]
        if not filled and not media:
            raise ValueError(f"right: expected a shared column with values in both, got {listed(names, 60)} without")
        numbers = [name for name in filled if _is_number(left[name]) and _is_number(right[name])]
        return cls([name for name in filled if name not in numbers], numbers, media)


def _is_number(cells: "pd.Series[Any]") -> bool:
    numeric = pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells)
    return bool(numeric or not cells.notna().any())


class MatchedTables:
    """Both tables, read the same way; of one table against itself twice the same. Positions are those of things.

    Args:
        tables: left and right, or the only one.
        columns: how shared columns are compared.
        encoder: of rows' texts and of media; None: words and letters only.
        index: what searches vectors, see :func:`vicinal.index.open_index`.
        features: of other tables with these columns; None: new ones.

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
    ) -> None:
        self._tables, self.columns, self.index = list(tables), columns, index
        self._waiting: list[tuple[int, MatchTable]] = []
        self.encoder = None if encoder is None else encoder.eval()  # in training mode it leaves out n-grams at random
        self.features = features or PairFeatures(columns.texts, columns.numbers)
        self.temperature: float | None = None
        self._known: dict[Any, Any] = {}

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
            both = cls(tables, columns, encoder, index)
            if encoder is not None:
                encoder.fit(pd.concat([both.encoder_rows(table.things) for table in both.tables], ignore_index=True))
        things = [both.words(table.things) for table in both.tables]
        is_part = both.is_large and not counted
        if is_part:
            things = [each.sample(min(len(each), _COUNTED), random_state=seed) for each in things]
        sides = both.features.fit(things)
        for table in both.tables:
            if encoder is not None:
                log(f"encoding {len(table.first)} rows")
            table.vectors = both.vectors_of(table.things, table.root)
        for number, side in enumerate(() if is_part else sides):
            vectors = None if encoder is None else tables[number].vectors
            both.once(("side", number), partial(replace, side, vectors=vectors))
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

    def more(self, number: int, rows: Any, id_column: str) -> MatchTable:
        """Further rows of a table, 0 for the left one, -1 for the right one, as it reads them; see :meth:`add`."""
        return self._tables[number].more(rows, id_column, self.columns.numbers)

    def add(self, number: int, more: MatchTable) -> None:
        """Put rows into a table; but for vectors, what grows with its size is done when the tables are asked for."""
        if self.encoder is not None:
            self._join(number, [more])
            return
        self._tables[number].places.update(more.places)
        self._waiting.append((number, more))

    def _join(self, number: int, rows: Sequence[MatchTable]) -> None:
        table = self._tables[number]
        joined = table.joined(rows)
        joined.vectors = torch.cat([table.vectors, self.vectors_of(joined.things.iloc[len(table.first) :], table.root)])
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
    def is_single(self) -> bool:
        """Whether one table is compared with itself."""
        return len(self._tables) == 1

    @property
    def is_large(self) -> bool:
        """Whether candidates share rare keys."""
        return self.encoder is None and any(len(table.first) > LARGE for table in self.tables)

    def correct(self, temperature: float | None) -> None:
        """Take this temperature for the hub correction of vectors; None: no correction."""
        self.temperature = temperature
        self._forget("vectors", "candidates", "levels", "scored")

    def change_scores(self) -> None:
        """Forget the probabilities of candidates, as what scores them changed."""
        self._forget("scored")

    def change(self, number: int, table: MatchTable) -> None:
        """Put another table in the place of one: 0 for the left one, -1 for the right one."""
        self._tables[number] = table
        self._forget()

    def close(self) -> None:
        """Let go of what searches the vectors, also outside of this process; it is made anew where it is needed."""
        self._forget("vectors")

    def _forget(self, *kinds: str) -> None:
        """Forget what was computed; without kinds all of it."""
        for key in [key for key in self._known if not kinds or key[0] in kinds]:
            value = self._known.pop(key)
            if isinstance(value, Corrected):
                value.index.drop()

    # Rows.

    def words(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The columns of rows that are read as texts or numbers; shared ones that they lack are empty."""
        frame = frame.drop(columns=[name for name in self.columns.media if name in frame.columns])
        lost = [name for name in (*self.columns.texts, *self.columns.numbers) if name not in frame.columns]
        return frame.assign(**dict.fromkeys(lost))

    def row_texts(self, frame: pd.DataFrame) -> list[str]:
        """All cells of each row as one text."""
        return self.features.column(self.words(frame), ROW)

    def encoder_rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows as the encoder reads them."""
        return frame[list(self.columns.media)].assign(**{ROW: self.features.column(self.words(frame), ROW, shown_text)})

    def vectors_of(self, frame: pd.DataFrame, root: Path | None = None) -> Tensor:
        """Unit vectors ``[n, d]`` in which each part of the encoder has the same length; paths start from ``root``."""
        if self.encoder is None:
            return torch.zeros(len(frame), 0)
        blocks = [torch.zeros(0, self.encoder.dim)]
        for start in range(0, len(frame), _ROWS):
            rows = self.encoder_rows(frame.iloc[start : start + _ROWS])
            inputs = self.encoder.cache(self.encoder.prepare(rows, root))
            with torch.no_grad():
                vectors = self.encoder(inputs.select(torch.arange(len(rows)))).float()
            parts = vectors.split([part.dim for part in self.encoder.encoders], dim=1)
            blocks.append(l2_normalize(torch.cat([l2_normalize(part) for part in parts], dim=1)))
        return torch.cat(blocks)

    # What is computed, each once until a table changes. A side is 0, the left table, or 1, the right one.

    def once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What ``make`` gives, and gave before since a table changed."""
        if self._waiting:
            self._take_in()
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def _table(self, side: int) -> MatchTable:
        return self.tables[-side]

    def _side(self, side: int) -> Side:
        def make() -> Side:
            table = self._table(side)
            return self.features.side(self.words(table.things), table.vectors if self.encoder is not None else None)

        prepared: Side = self.once(("side", side * (not self.is_single)), make)
        return prepared

    def _by_terms(self, side: int, rows: Tensor | None, k: int, exclude: Tensor | None) -> Hits:
        """The rows of the other side that share most words and letters with rows of this one (None: with each)."""
        lexical = self._side(side).lexical
        queries = lexical if rows is None else lexical[rows.numpy()]
        postings = None if len(self._table(1 - side).first) <= _ALL else _POSTINGS
        return self._lexical(1 - side).search(queries, k, exclude=exclude, postings=postings)

    def _lexical(self, side: int) -> LexicalIndex:
        side *= not self.is_single

        def make() -> LexicalIndex:
            if ("side", side) in self._known:
                return LexicalIndex(self._side(side).lexical)
            texts = self.row_texts(self._table(side).things)  # a search needs no more of a side than this
            return LexicalIndex(self.features.lexical(texts))

        index: LexicalIndex = self.once(("words", side), make)
        return index

    def by_words(self, texts: Sequence[str], k: int, exclude: Tensor | None = None) -> Hits:
        """The right rows that share most words and letters with each text."""
        return self._lexical(1).search(self.features.lexical(texts), k, exclude=exclude)

    def by_vectors(
        self, vectors: Tensor, k: int, side: int = 1, exclude: Tensor | None = None, *, corrected: bool = True
    ) -> Hits:
        """The rows of a side nearest to each vector; ``corrected``: for hubs, where that was chosen."""
        side *= not self.is_single

        def make() -> Corrected:
            rows = self._table(side).vectors
            bias = self._bias(self.temperature) if side == 1 or self.is_single else torch.zeros(len(rows))
            built = Corrected.build(rows, bias, index=self.index, **_collection(self.index))
            if isinstance(built.index, MilvusIndex):
                built.index.flush(indexed=True)
            return built

        index: Corrected = self.once(("vectors", side), make)
        return (index.search if corrected else index.plain)(vectors, k, exclude=exclude)

    def _bias(self, temperature: float | None) -> Tensor:
        """What hubs among the right rows lose, by a sample of the left ones."""

        def make() -> Tensor:
            left, right = self.left.vectors, self.right.vectors
            if temperature is None or len(right) < 2:
                return torch.zeros(len(right))
            at = torch.linspace(0, len(left) - 1, min(len(left), _SAMPLED), dtype=torch.float64).long()
            same = (at, torch.arange(len(right))) if self.is_single else None
            return hub_bias(left[at], right, temperature=temperature, ids=same)

        bias: Tensor = self.once(("bias", temperature), make)
        return bias

    def nearest(self, left: Tensor, temperature: float | None) -> Ids:
        """The right row ``[n]`` nearest to each of some left ones by vectors, corrected for hubs at a temperature."""
        index = Corrected.build(self.right.vectors, self._bias(temperature))
        hits = index.search(self.left.vectors[left], 1, exclude=left if self.is_single else None)
        return np.asarray(hits.ids[:, 0].numpy())

    # Candidates.

    def pairs_both_ways(self, k: int) -> Ids:
        """Things ``[n, 2]`` of which one is among the best ``k`` of the other, both with content, in order."""
        make = partial(self._blocked if self.is_large else self._nearest_both_ways, k)
        pairs: Ids = self.once(("candidates", "both ways", k), make)
        return pairs

    def _nearest_both_ways(self, k: int) -> Ids:
        sides = [self.candidates(k).ids.numpy()]
        if not self.is_single:
            sides.append(fuse(self._searches(1, max(2 * k, _FEWEST)), k).ids.numpy())
        parts = []
        for side, ids in enumerate(sides):
            rows, place = np.nonzero(ids >= 0)
            parts.append(np.stack([rows, ids[rows, place]][:: -1 if side else 1], axis=1))
        pairs = np.concatenate(parts)
        pairs = np.unique(np.sort(pairs, axis=1) if self.is_single else pairs, axis=0)
        return pairs[self.speak(pairs)]

    def _blocked(self, k: int) -> Ids:
        """Things that share rare keys; of each those with the rarest, half of ``k`` from either side."""
        most = KEYS * len(self.left.first)
        blocking = blocked_pairs(self.coded(), single=self.is_single, most=most, each=-(-k // 2))
        self.once(("candidates", "rules", k), lambda: (blocking.index.rules, blocking.bits))
        return blocking.pairs.astype(np.int64)

    def reached(self, k: int, chances: Floats) -> float | None:
        """Estimated share of the matches among the pairs of :meth:`pairs_both_ways` with these probabilities ``[n]``.

        None where each row is compared with those most alike, of which no rules are known, and of too few matches.
        """
        pairs = self.pairs_both_ways(k)
        if not self.is_large:
            return None
        rules, bits = self._known["candidates", "rules", k]
        share = estimated_recall(Cells(self.coded()), rules, pairs, bits, chances)
        return share if np.isfinite(share) else None

    def coded(self, kinds: Mapping[str, KindOfCells] | None = None) -> list[CodedColumn]:
        """The shared columns of texts and numbers; with ``kinds`` those that are named there."""

        def make() -> dict[str, CodedColumn]:
            columns = {}
            for name in [*self.columns.texts, *self.columns.numbers]:
                cells = [table.things[name] for table in self.tables]
                numbers = name in self.columns.numbers
                columns[name] = CodedColumn.of(name, cells, normal_text, GAPS, numbers=numbers)
            return columns

        columns: dict[str, CodedColumn] = self.once(("coded",), make)
        return list(columns.values()) if kinds is None else [replace(columns[n], kind=k) for n, k in kinds.items()]

    @property
    def highest(self) -> float:
        """The score of a row that is first in each search."""
        return (1 if self.encoder is None else 2) / 61

    def _searches(self, side: int, depth: int, rows: Tensor | None = None) -> list[Hits]:
        """Rows of the other side for rows of this one (None: all), by words and by vectors."""
        table = self._table(side)
        themselves = (torch.arange(len(table.first)) if rows is None else rows) if self.is_single else None
        words = self._by_terms(side, rows, depth, themselves)
        if rows is None:
            self._remember("words", side, words)
        if self.encoder is None:
            return [words]
        vectors = table.vectors if rows is None else table.vectors[rows]
        near = self.by_vectors(vectors, depth, 1 - side, themselves)
        if rows is None and (self.temperature is None or side == 1):
            self._remember("vectors", side, near)
        return [words, near]

    def candidates(self, k: int, rows: Tensor | None = None) -> Hits:
        """The best ``k`` right rows of each left row (None: of all), by words and by vectors, fused."""
        depth = max(2 * k, _FEWEST)
        if rows is not None:
            return fuse(self._searches(0, depth, rows), k)
        hits: Hits = self.once(("candidates", k), lambda: fuse(self._searches(0, depth), k))
        return hits

    # Pairs.

    def things(self, at: Ids) -> Ids:
        """The things of rows at positions ``[n, 2]``; of one table the lower one first."""
        pairs = np.stack([self.left.thing[at[:, 0]], self.right.thing[at[:, 1]]], axis=1)
        return np.sort(pairs, axis=1) if self.is_single else pairs

    def speak(self, at: Ids) -> Ids:
        """Which pairs ``[n, 2]`` have content on both sides."""

        def make(side: int) -> Ids:
            frame = self._table(side).things
            if self.is_large:
                return np.asarray(np.any([column.sides[side] >= 0 for column in self.coded()], axis=0))
            media = frame[list(self.columns.media)].notna().any(axis=1).to_numpy()  # not kept in a folder
            return self._side(side).has_content | media | (bool(self.columns.media) and not media.any())

        sides = [self.once(("content", side * (not self.is_single)), partial(make, side)) for side in (0, 1)]
        return np.asarray(sides[0][at[:, 0]] & sides[1][at[:, 1]])

    def _two(self, kind: str, side: int) -> Hits:
        """The two best rows of the other side of each row, as far as they were looked for; by "words" or "vectors"."""

        def make() -> Hits:
            rows = len(self._table(side).first)
            return Hits(torch.full((rows, 2), _UNKNOWN), torch.full((rows, 2), -torch.inf))

        two: Hits = self.once(("two", kind, side * (not self.is_single)), make)
        return two

    def _remember(self, kind: str, side: int, hits: Hits) -> None:
        """Keep the two best rows of all rows of a side."""
        for target, part in zip(self._two(kind, side), hits, strict=True):
            target.copy_(part[:, :2])

    def _rivals(self, at: Ids) -> Rivals:
        """The best rows for the rows of pairs; what is missing is looked for."""
        for side in (0, 1):
            rows = torch.from_numpy(np.unique(at[:, side]))
            for kind in ("words", "vectors"):
                two = self._two(kind, side)
                missing = rows[two.ids[rows, 0] == _UNKNOWN]
                if len(missing) == 0 or (kind == "vectors" and self.encoder is None):
                    continue
                themselves = missing if self.is_single else None
                if kind == "words":
                    hits = self._by_terms(side, missing, 2, themselves)
                else:
                    vectors = self._table(side).vectors[missing]
                    hits = self.by_vectors(vectors, 2, 1 - side, themselves, corrected=False)
                two.ids[missing], two.scores[missing] = hits.ids, hits.scores
        words, near = ((self._two(kind, 0), self._two(kind, 1)) for kind in ("words", "vectors"))
        return Rivals((None if self.encoder is None else near, words))

    def pair_features(self, at: Ids) -> Floats:
        """Features ``[n, F]`` of pairs of positions ``[n, 2]``."""
        return np.concatenate([np.zeros((0, len(self.features.names))), *self.of_features(at, lambda block, _: block)])

    def row_text(self, side: int, thing: int) -> str:
        """All cells of a thing as one text."""
        if self.is_large:
            return self.row_texts(self._table(side).things.iloc[[thing]])[0]
        return self.texts(side)[ROW][thing]

    def texts(self, side: int) -> dict[str, list[str]]:
        """The shared columns of texts of the things of a side, in their normal form."""
        return self._side(side).texts

    def _terms(self, side: int, key: tuple[str, str]) -> Sparse:
        """Which terms of a column and kind each thing of a side has."""
        if ("side", side) in self._known:
            return self._side(side).terms[key]

        def make() -> Sparse:
            texts = self.features.column(self.words(self._table(side).things), key[0])
            return presence(self.features.terms[key].counts(texts))

        terms: Sparse = self.once(("terms", side, key), make)
        return terms

    def term_cosines(self, key: tuple[str, str], at: Ids) -> tuple[Floats, Ids]:
        """Cosine ``[n]`` of the terms of a column and kind, weighed by how rare they are, and which pairs have some."""
        terms, sides = self.features.terms[key], [self._terms(side * (not self.is_single), key) for side in (0, 1)]
        cosines, filled = np.zeros(len(at)), np.zeros(len(at), dtype=bool)
        for start in range(0, len(at), _PAIRS):
            part = slice(start, start + _PAIRS)
            shared = terms.shared(*(terms.of_counts(rows[at[part, side]]) for side, rows in enumerate(sides)))
            cosines[part], filled[part] = shared.cosine, np.minimum(shared.left, shared.right) > 0
        return cosines, filled

    def vector_cosines(self, at: Ids) -> Floats:
        """Cosines of the vectors of pairs, ``[n]``."""
        left, right = (torch.from_numpy(at[:, side].copy()) for side in (0, 1))
        return np.asarray((self.left.vectors[left] * self.right.vectors[right]).sum(dim=1).double().numpy())

    def pair_texts(self, at: Ids) -> list[str]:
        """Both rows of pairs at positions ``[n, 2]`` as one text each."""
        sides = (self.texts(side)[ROW] for side in (0, 1))
        return pair_texts(*([rows[place] for place in at[:, side]] for side, rows in enumerate(sides)))

    def pair_keys(self, rows: Ids) -> list[str]:
        """Names of pairs of rows ``[n, 2]``, as the reader of pairs knows them."""
        sides = (as_texts(table.ids[rows[:, side]]).tolist() for side, table in enumerate((self.left, self.right)))
        return ["\t".join(ids) for ids in zip(*sides, strict=True)]

    def of_features(self, at: Ids, work: Callable[[Floats, slice], Floats]) -> list[Floats]:
        """What ``work`` gives for the features of each block of pairs and its place among them, by threads of torch.

        ``work`` is called by one thread at a time.
        """
        rivals, left, right = self._rivals(at), self._side(0), self._side(1)
        workers = torch.get_num_threads()
        step = min(_PAIRS, max(1, -(-len(at) // workers)))

        turn = Lock()

        def of_block(start: int) -> Floats:
            part = slice(start, start + step)
            features = self.features.of(left, right, at[part], rivals)
            with turn:
                return work(features, part)

        with ThreadPoolExecutor(workers) as threads:  # sparse products and comparisons let other threads run
            return list(threads.map(of_block, range(0, len(at), step)))


def installed_encoders(named: Mapping[str, str] | None) -> dict[str, str]:
    """Encoders by kind: those that are named, and of texts the pretrained one if it is installed, else "none"."""
    return {"text": MINILM.encoder if MINILM.installed else "none", **(named or {})}


def check_index(name: str) -> None:
    """Raise ValueError for an index that cannot be opened or cannot hold vectors with a bias."""
    open_index(name, dim=2, similarity="dot", **_collection(name)).drop()


def _collection(name: str) -> dict[str, Any]:
    """A new collection: a file may hold those of several runs."""
    return {"collection": f"vicinal_{uuid.uuid4().hex[:12]}"} if name.partition(":")[0] == "milvus" else {}
