"""What rows have in common if they are to be compared: parts of cells, rare words and pairs of them, as hashes."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations_with_replacement
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.linkage.columns import CodedColumn, Ids

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

RAREST = 7
"""Words of a row that are keys, and pairs of them."""

GRAM = 4
"""Letters of an n-gram."""

_LONGEST, _SHORTEST, _LEAST = 40, 4, 3
"""Letters of the median cell of a column whose halves are parts, at the most and at the least; and of a half."""

_FEW = 100
"""Texts up to which words are looked for without Arrow."""

_WORD = re.compile(r"[^\W_]+")

_LETTERS = 64
"""Letters of a text up to which n-grams are taken."""

_ODD = [np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]
_HALF = np.uint64(29)

_NOTHING = np.uint64(0)
"""In the place of the hash of an empty cell."""


def mixed(hashes: Sequence[Hashes]) -> Hashes:
    """One hash of several that are not 0, in this order, ``[n]``."""
    key = np.zeros_like(hashes[0])
    for each, factor in zip(hashes, _ODD, strict=False):
        key += each * factor
    key ^= key >> _HALF
    key *= _ODD[1]
    return key


def text_hashes(texts: Sequence[str]) -> Hashes:
    """Hashes ``[n]`` of texts, none of them 0; the same in every process."""
    hashes = np.asarray(pd.util.hash_array(np.array(texts, dtype=object), categorize=False))
    return np.maximum(hashes, np.uint64(1))


@dataclass(frozen=True)
class Part:
    """A cell, its first or its last letters.

    Attributes:
        column: its name.
        which: "whole", "start" or "end".
        length: letters of the start or end.
    """

    column: str
    which: Literal["whole", "start", "end"] = "whole"
    length: int = 0

    def texts(self, values: Sequence[str]) -> Sequence[str]:
        """This part of each text."""
        if self.which == "whole":
            return values
        part = slice(None, self.length) if self.which == "start" else slice(-self.length, None)
        return [value[part] for value in values]


def parts_of(column: CodedColumn) -> list[Part]:
    """A column as a whole and, but for numbers and long texts, its halves: a single typo leaves one of them.

    >>> codes = np.zeros(1, dtype=np.int32)
    >>> [part.which for part in parts_of(CodedColumn("town", "name", ["bonn", "berlin"], (codes, codes)))]
    ['whole', 'start', 'end']
    """
    parts = [Part(column.name)]
    median = int(np.median(np.fromiter(map(len, column.values), np.int64))) if column.values else 0
    if column.kind not in ("number", "text") and _SHORTEST <= median <= _LONGEST:
        length = max(min(_LEAST, median // 2), (median + 1) // 2)
        parts += [Part(column.name, "start", length), Part(column.name, "end", length)]
    return parts


@dataclass(frozen=True)
class Tokens:
    """Words or n-grams of the distinct values of a column: those of value v are ``ids[ends[v]:ends[v + 1]]``.

    Attributes:
        ends: ``[v + 1]``, from 0.
        ids: places in ``hashes``.
        hashes: of the distinct tokens.
    """

    ends: Ids
    ids: Ids
    hashes: Hashes


def words_of(values: Sequence[str]) -> Tokens:
    """Runs of letters and digits."""
    if len(values) <= _FEW:  # Arrow takes 2 ms to read the expression
        lists = pa.array([_WORD.findall(value) for value in values], pa.large_list(pa.large_string()))
    else:
        texts = pc.replace_substring_regex(pa.array(values, pa.large_string()), r"[^\pL\pN]+", " ")
        lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts))
    words = lists.flatten().dictionary_encode()
    hashes = text_hashes(words.dictionary.to_pylist())
    hashes[pc.equal(words.dictionary, "").to_numpy(zero_copy_only=False)] = _NOTHING
    return Tokens(np.asarray(lists.offsets), np.asarray(words.indices), hashes)


def grams_of(values: Sequence[str]) -> Tokens:
    """Runs of four letters, of a text between spaces."""
    padded = np.array([f" {value[: _LETTERS - 2]} " for value in values], dtype=f"U{_LETTERS}")
    lengths = np.char.str_len(padded)
    points = padded.view(np.uint32).reshape(len(values), _LETTERS).astype(np.uint64)
    starts = np.arange(_LETTERS - GRAM + 1)
    here = starts < np.maximum(lengths - GRAM + 1, 0)[:, None]
    hashes = np.zeros(here.shape, dtype=np.uint64)
    for place in range(GRAM):
        hashes = (hashes ^ points[:, place : place + len(starts)]) * _ODD[0]
        hashes ^= hashes >> _HALF
    distinct, ids = np.unique(hashes[here], return_inverse=True)
    return Tokens(np.append(0, np.cumsum(here.sum(axis=1))), ids, np.maximum(distinct, np.uint64(1)))


_TOKENS: dict[str, Callable[[Sequence[str]], Tokens]] = {"words": words_of, "letters": grams_of}


class Cells:
    """The cells of both tables as hashes; each distinct one is hashed once.

    Args:
        columns: of both tables.
    """

    def __init__(self, columns: Sequence[CodedColumn]) -> None:
        self.columns = {column.name: column for column in columns}
        self._known: dict[Any, Any] = {}

    def once(self, key: Any, work: Callable[[], Any]) -> Any:
        """What ``work`` gave when it was first done for this key."""
        if key not in self._known:
            self._known[key] = work()
        return self._known[key]

    def rows(self, side: int) -> int:
        """Of a table."""
        return len(next(iter(self.columns.values())).sides[side])

    def hashes(self, part: Part, side: int, rows: Ids | slice) -> Hashes:
        """Of a part of a column's cells in some rows, 0 where empty."""
        values = self.columns[part.column].values
        every = self.once(part, lambda: np.append(text_hashes(part.texts(values)), _NOTHING))
        return np.asarray(every[self.columns[part.column].sides[side][rows]])

    def tokens(self, kind: str, name: str) -> Tokens:
        """Words or letters of a column."""
        return self.once((kind, name), lambda: _TOKENS[kind](self.columns[name].values))


@dataclass(frozen=True)
class PartsRule:
    """Rows are compared that have some parts of their cells in common.

    Attributes:
        parts: one to three, of different columns.
    """

    parts: tuple[Part, ...]

    def keys(self, cells: Cells, side: int, rows: Ids | slice) -> tuple[Hashes, Ids]:
        """Keys ``[k]`` and the places of their rows among ``rows``; a row with an empty cell has none."""
        hashes = [cells.hashes(part, side, rows) for part in self.parts]
        filled = np.flatnonzero(np.logical_and.reduce([each != _NOTHING for each in hashes]))
        return mixed([each[filled] for each in hashes]), filled


@dataclass(frozen=True, eq=False)
class TokensRule:
    """Rows are compared that share one of their seven rarest words or n-grams, or two; whichever columns they stand in.

    Attributes:
        kind: "words" or "letters".
        columns: the columns they are taken from.
        known: hashes of the tokens that may be shared, rising.
        order: of each, from the rarest.
    """

    kind: Literal["words", "letters"]
    columns: tuple[str, ...]
    known: Hashes = field(repr=False)
    order: Ids = field(repr=False)

    @cached_property
    def _rising(self) -> Hashes:
        """The known tokens from the rarest."""
        return self.known[np.argsort(self.order)]

    @classmethod
    def of(cls, kind: Literal["words", "letters"], cells: Cells, names: Sequence[str], *, single: bool) -> "TokensRule":
        """The rule for tokens of two tables, or of one: tokens that a single row has are left out."""
        hashes, counts = [np.zeros(0, dtype=np.uint64)], [np.zeros((0, 2))]
        for name in names:
            tokens, column = cells.tokens(kind, name), cells.columns[name]
            each = np.zeros((len(tokens.hashes), 2))
            for side, codes in enumerate(column.sides):
                often = np.bincount(codes[codes >= 0], minlength=len(column.values))
                weights = np.repeat(often, np.diff(tokens.ends))
                each[:, side] = np.bincount(tokens.ids, weights=weights, minlength=len(tokens.hashes))
            hashes.append(tokens.hashes)
            counts.append(each)
        distinct, place = np.unique(np.concatenate(hashes), return_inverse=True)
        left, right = (np.bincount(place, each, len(distinct)) for each in np.concatenate(counts).T)
        products = left * (right - single)
        usable = np.flatnonzero((products > 0) & (distinct != _NOTHING))
        order = np.empty(len(usable), dtype=np.int32)
        order[np.lexsort((distinct[usable], products[usable]))] = np.arange(len(usable))
        return cls(kind, tuple(names), distinct[usable], order)

    def keys(self, cells: Cells, side: int, rows: Ids | slice) -> tuple[Hashes, Ids]:
        """Keys ``[k]`` and the places of their rows among ``rows``: of a row up to 28."""
        entries: list[Ids] = []
        for name in self.columns:
            tokens = cells.tokens(self.kind, name)
            ranks = cells.once((self, name), partial(self._ranks, tokens))
            codes = cells.columns[name].sides[side][rows]
            filled = np.flatnonzero(codes >= 0)
            starts, sizes = tokens.ends[codes[filled]], np.diff(tokens.ends)[codes[filled]]
            of = ranks[runs(starts, sizes)]
            at = np.repeat(filled, sizes)
            entries.append((at[of >= 0].astype(np.int64) << 32) | of[of >= 0])
        entry, count = np.sort(np.concatenate(entries)), len(codes)
        entry = entry[np.append(True, entry[1:] != entry[:-1])[: len(entry)]]
        row = entry >> 32
        place = np.arange(len(entry)) - np.searchsorted(row, np.arange(count))[row]
        rarest = np.zeros((RAREST, count), dtype=np.uint64)
        first = place < RAREST
        rarest[place[first], row[first]] = self._rising[(entry & 0xFFFFFFFF)[first]]
        keys, places = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
        for one, other in combinations_with_replacement(range(RAREST), 2):
            both = np.flatnonzero(rarest[other] != _NOTHING)
            keys.append(mixed([rarest[one, both], rarest[other, both]]))
            places.append(both)
        return np.concatenate(keys), np.concatenate(places)

    def _ranks(self, tokens: Tokens) -> Ids:
        """Of each token of a column, -1 for one that no other row has."""
        if len(self.known) == 0:
            return np.full(len(tokens.ids), -1)
        place = np.minimum(np.searchsorted(self.known, tokens.hashes), len(self.known) - 1)
        return np.where(self.known[place] == tokens.hashes, self.order[place], -1)[tokens.ids]


Rule = PartsRule | TokensRule


def runs(starts: Ids, sizes: Ids) -> Ids:
    """The whole numbers from each start on, so many each.

    >>> runs(np.array([5, 9]), np.array([3, 2])).tolist()
    [5, 6, 7, 9, 10]
    """
    ends: Ids = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
