"""Two tables side by side: their rows as vectors and words, who is a candidate for whom, and pairs as features."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core import check_choice, listed, short
from vicinal.core.identity import as_texts, canonical_ids
from vicinal.encoders import Kind, TableEncoder, build_table_encoder, infer_kinds
from vicinal.encoders.transformers import MINILM
from vicinal.estimators.inputs import as_table
from vicinal.estimators.pair_features import ROW, PairFeatures, Rivals, Side
from vicinal.index import Corrected, Hits, hub_bias
from vicinal.index.lexical import LexicalIndex, fuse
from vicinal.similarity.products import l2_normalize

Ids = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Log = Callable[[str], None]

_FEWEST = 20
"""Rows that each search gives, at least, before they are fused."""

_PAIRS = 1 << 16
"""Pairs whose features are computed at a time."""


@dataclass
class MatchTable:
    """One of the two tables.

    Attributes:
        name: "left" or "right".
        frame: its rows, without the ids.
        ids: in canonical form, ``[n]``.
        vectors: unit vectors ``[n, d]``; of no width without an encoder.
        root: folder that paths of images and sounds start from.
    """

    name: str
    frame: pd.DataFrame
    ids: Ids
    vectors: Tensor
    root: Path | None = None

    def __post_init__(self) -> None:
        self.places = {text: place for place, text in enumerate(as_texts(self.ids).tolist())}

    def __len__(self) -> int:
        return len(self.frame)

    @classmethod
    def read(cls, name: str, table: Any, id_column: str, root: str | Path | None = None) -> Self:
        """A table of the user, not encoded yet.

        Raises:
            ValueError: for no rows, no such column, or an id that is missing or stands twice.
        """
        frame = as_table(name, table)
        if not isinstance(frame, pd.DataFrame) or len(frame) == 0:
            raise ValueError(f"{name}: expected a table of at least one row, got {short(frame)}")
        frame = frame.rename(columns=str).reset_index(drop=True)
        check_choice(f"id_{name}", id_column, list(frame.columns))
        labels = range(1, len(frame) + 1)
        ids = canonical_ids(f"id_{name}", frame[id_column], distinct=True, labels=list(labels))
        place = None if root is None else Path(root)
        return cls(name, frame.drop(columns=id_column), ids, torch.zeros(len(frame), 0), place)

    def positions(self, ids: Any, name: str = "pairs") -> Ids:
        """Positions ``[n]`` of rows; raises ValueError for an id that is not there."""
        texts = as_texts(canonical_ids(self.name, ids)).tolist()
        lost = list(dict.fromkeys(text for text in texts if text not in self.places))
        if lost:
            raise ValueError(f"{name}: expected ids of the {self.name} table, got {listed(lost, 60)}, which it has not")
        return np.array([self.places[text] for text in texts], dtype=np.int64)

    def joined(self, other: "MatchTable") -> "MatchTable":
        """This table with the rows of another behind its own."""
        there = [text for text in other.places if text in self.places]
        if there:
            raise ValueError(f"{self.name}: expected ids that the table has not yet, got {listed(there, 60)}")
        ids = canonical_ids(self.name, [*self.ids.tolist(), *other.ids.tolist()])
        frame = pd.concat([self.frame, other.frame.reindex(columns=self.frame.columns)], ignore_index=True)
        return replace(self, frame=frame, ids=ids, vectors=torch.cat([self.vectors, other.vectors]))

    def without(self, places: Ids) -> "MatchTable":
        """This table without the rows at ``places``."""
        keep = np.setdiff1d(np.arange(len(self)), places)
        if len(keep) == 0:
            raise ValueError(f"{self.name}: expected rows to be left in the table, got the ids of all")
        frame = self.frame.iloc[keep].reset_index(drop=True)
        return replace(self, frame=frame, ids=self.ids[keep], vectors=self.vectors[keep])


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
        joined = pd.DataFrame({name: pd.concat([left[name], right[name]], ignore_index=True) for name in names})
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
    """Both tables, read the same way; of one table against itself twice the same.

    Args:
        tables: left and right, or the only one.
        columns: how shared columns are compared.
        encoder: of rows' texts and of media; None: words and letters only.

    Attributes:
        temperature: of the hub correction; None: none. Set it by :meth:`correct`.
    """

    def __init__(self, tables: Sequence[MatchTable], columns: MatchColumns, encoder: TableEncoder | None) -> None:
        self.tables, self.columns, self.encoder = list(tables), columns, encoder
        self.features = PairFeatures(columns.texts, columns.numbers)
        self.temperature: float | None = None
        self._searches: dict[Any, Any] = {}

    @classmethod
    def read(cls, tables: Sequence[MatchTable], encoders: Mapping[str, str], cache_dir: Any, log: Log) -> Self:
        """Tables of the user with encoders named by kind, "none" for no encoder of texts; counted and encoded."""
        columns = MatchColumns.shared(tables[0].frame, tables[-1].frame)
        kinds: dict[str, Kind] = dict(columns.media)
        if encoders["text"] != "none":
            kinds[ROW] = "text"
        named = {kind: name for kind, name in encoders.items() if kind in kinds.values()}
        encoder = build_table_encoder(kinds, encoders=named, cache_dir=cache_dir) if kinds else None
        both = cls(tables, columns, encoder)
        both.features.fit([both.words(table.frame) for table in both.tables])
        if encoder is not None:
            encoder.fit(pd.concat([both.encoder_rows(table.frame) for table in both.tables], ignore_index=True))
            for table in both.tables:
                log(f"encoding {len(table)} rows")
                table.vectors = both.vectors_of(table.frame, table.root)
        return both

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
        return len(self.tables) == 1

    def correct(self, temperature: float | None) -> None:
        """Take this temperature for the hub correction of vectors; None: no correction."""
        self.temperature = temperature
        self._searches = {
            key: value for key, value in self._searches.items() if key[0] not in ("corrected", "candidates")
        }

    def change(self, number: int, table: MatchTable) -> None:
        """Put another table in the place of one: 0 for the left one, -1 for the right one."""
        self.tables[number] = table
        self._searches = {}

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
        return frame[list(self.columns.media)].assign(**{ROW: self.row_texts(frame)})

    def vectors_of(self, frame: pd.DataFrame, root: Path | None = None) -> Tensor:
        """Unit vectors ``[n, d]`` in which each part of the encoder has the same length; paths start from ``root``."""
        if self.encoder is None:
            return torch.zeros(len(frame), 0)
        inputs = self.encoder.cache(self.encoder.prepare(self.encoder_rows(frame), root))
        with torch.no_grad():
            vectors = self.encoder(inputs.select(torch.arange(len(frame)))).float()
        parts = vectors.split([part.dim for part in self.encoder.encoders], dim=1)
        return l2_normalize(torch.cat([l2_normalize(part) for part in parts], dim=1))

    # Searches, each made once until a table changes. A side is 0, the left table, or 1, the right one.

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._searches:
            self._searches[key] = make()
        return self._searches[key]

    def _table(self, side: int) -> MatchTable:
        return self.tables[-side]

    def _side(self, side: int) -> Side:
        def make() -> Side:
            table = self._table(side)
            return self.features.side(self.words(table.frame), table.vectors if self.encoder is not None else None)

        prepared: Side = self._once(("side", side * (not self.is_single)), make)
        return prepared

    def _rows_themselves(self, side: int) -> Tensor | None:
        return torch.arange(len(self._table(side))) if self.is_single else None

    def mutual(self) -> tuple[Ids, Floats]:
        """Pairs ``[n, 2]`` of rows that are each other's best candidate, and their scores."""
        best = []
        for side in (0, 1):
            themselves = self._rows_themselves(side)
            searches = [self.by_words(self._side(side).texts[ROW], _FEWEST, 1 - side, themselves)]
            if self.encoder is not None:
                searches.append(self.by_vectors(self._table(side).vectors, _FEWEST, 1 - side, themselves))
            best.append(fuse(searches, 1))
        there, back = (hits.ids[:, 0].numpy() for hits in best)
        left = np.flatnonzero(there >= 0)
        left = left[back[there[left]] == left]
        left = left[left < there[left]] if self.is_single else left
        return np.stack([left, there[left]], axis=1), best[0].scores[left, 0].numpy()

    def by_words(self, texts: Sequence[str], k: int, side: int = 1, exclude: Tensor | None = None) -> Hits:
        """The rows of a side that share most words and letters with each text."""
        side *= not self.is_single

        def make() -> LexicalIndex:
            terms = [self.features.terms[ROW, kind] for kind in ("words", "letters")]
            return LexicalIndex(self._side(side).texts[ROW], terms)

        index: LexicalIndex = self._once(("words", side), make)
        return index.search(texts, k, exclude=exclude)

    def by_vectors(
        self, vectors: Tensor, k: int, side: int = 1, exclude: Tensor | None = None, *, corrected: bool = True
    ) -> Hits:
        """The rows of a side that are nearest to each vector; ``corrected`` for hubs, if that was chosen."""
        side *= not self.is_single
        temperature = self.temperature if corrected else None

        def make() -> Corrected:
            rows = self._table(side).vectors
            bias = torch.zeros(len(rows))
            if temperature is not None and len(rows) > 1:
                same = (torch.arange(len(rows)), torch.arange(len(rows))) if self.is_single else None
                bias = hub_bias(self._table(1 - side).vectors, rows, temperature=temperature, ids=same)
            return Corrected.build(rows, bias)

        index: Corrected = self._once(("plain" if temperature is None else "corrected", side), make)
        return index.search(vectors, k, exclude=exclude)

    def candidates(self, k: int) -> Hits:
        """The best ``k`` right rows of each left row, by words and by vectors, fused."""

        def make() -> Hits:
            depth, themselves = max(2 * k, _FEWEST), self._rows_themselves(0)
            searches = [self.by_words(self._side(0).texts[ROW], depth, exclude=themselves)]
            if self.encoder is not None:
                searches.append(self.by_vectors(self.left.vectors, depth, exclude=themselves))
            return fuse(searches, k)

        hits: Hits = self._once(("candidates", k), make)
        return hits

    def _rivals(self) -> Rivals:
        def make() -> Rivals:
            sides = (0, 1)
            themselves = [self._rows_themselves(side) for side in sides]
            texts = [self._side(side).texts[ROW] for side in sides]
            words = [self.by_words(texts[side], 2, 1 - side, themselves[side]) for side in sides]
            if self.encoder is None:
                return Rivals((None, (words[0], words[1])))
            rows = [self._table(side).vectors for side in sides]
            near = [self.by_vectors(rows[side], 2, 1 - side, themselves[side], corrected=False) for side in sides]
            return Rivals(((near[0], near[1]), (words[0], words[1])))

        rivals: Rivals = self._once(("rivals",), make)
        return rivals

    def pair_features(self, at: Ids) -> Floats:
        """Features ``[n, F]`` of pairs of positions ``[n, 2]``."""
        parts = [at[start : start + _PAIRS] for start in range(0, max(1, len(at)), _PAIRS)]
        return np.concatenate([self.features.of(self._side(0), self._side(1), part, self._rivals()) for part in parts])


def installed_encoders(named: Mapping[str, str] | None) -> dict[str, str]:
    """Encoders by kind: those that are named, and of texts the pretrained one if it is installed, else "none"."""
    return {"text": MINILM.encoder if MINILM.installed else "none", **(named or {})}
