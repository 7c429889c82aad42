"""Two rows as one: how alike they are column by column, and how much more than any other row is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.index.base import Hits
from vicinal.index.lexical import Shared, Sparse, Terms, beside, presence

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ids = np.ndarray[Any, Any]

MISSING = -1.0
"""In the place of a likeness where a cell is empty; likenesses are from 0 to 1."""

_ROW_TERMS = ("words", "letters", "codes")
_COLUMN_TERMS = ("words", "letters")
_LEXICAL = ("words", "letters")
"""Terms of whole rows that candidates are looked for by."""


def text_of(cell: Any) -> str:
    """A cell as a text in one line; "" for an empty one.

    >>> text_of(3.0), text_of(None), text_of(" a  b ")
    ('3', '', 'a b')
    """
    if cell is None or (isinstance(cell, float) and cell != cell):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return "" if cell is pd.NA or cell is pd.NaT else " ".join(str(cell).split())


@dataclass(frozen=True)
class Side:
    """One table as pairs are made of it.

    Attributes:
        texts: of each shared column, ``[n]``; "row" is all columns in one.
        numbers: of each shared column of numbers, ``[n]``, NaN where empty.
        vectors: unit rows ``[n, d]``, or None.
        terms: which terms each row has, by column and kind, ``[n, BUCKETS]``.
        lexical: rows as :class:`vicinal.index.lexical.LexicalIndex` compares them.
    """

    texts: dict[str, list[str]]
    numbers: dict[str, Floats]
    vectors: Tensor | None
    terms: dict[tuple[str, str], Sparse]
    lexical: Sparse

    def __len__(self) -> int:
        return len(self.texts[ROW])


Key = tuple[str, str]
"""A column and a kind of terms."""

ROW = "\0row"
"""Stands for all columns together; no column of a table is called so."""


class PairFeatures:
    """Likenesses of pairs of rows of two tables.

    Args:
        texts: shared columns that are compared as texts.
        numbers: shared columns that are compared as numbers.

    Attributes:
        terms: by column and kind; :meth:`fit` counts them.
    """

    def __init__(self, texts: Sequence[str], numbers: Sequence[str]) -> None:
        self.texts, self.numbers = list(texts), list(numbers)
        pairs = [(ROW, kind) for kind in _ROW_TERMS]
        pairs += [(column, kind) for column in self.texts for kind in _COLUMN_TERMS]
        self.terms = {pair: Terms(pair[1]) for pair in pairs}

    def fit(self, tables: Sequence[pd.DataFrame]) -> list[Side]:
        """Count the terms of all rows; gives what is needed of the tables, without vectors."""
        texts = [self._texts(table) for table in tables]
        counts = [self._counts(each) for each in texts]
        for key, terms in self.terms.items():
            terms.fit_counts([each[key] for each in counts])
        return [self._side(*each, None) for each in zip(tables, texts, counts, strict=True)]

    def column(self, table: pd.DataFrame, column: str) -> list[str]:
        """A column as texts; :data:`ROW`: all of a row, the shared columns first."""
        if column != ROW:
            return [text_of(cell) for cell in table[column].tolist()]
        names = [*self.texts, *(name for name in table.columns if name not in self.texts)]
        cells = [[text_of(cell) for cell in table[name].tolist()] for name in names]
        return [" ".join(filter(None, row)) for row in zip(*cells, strict=True)]

    def side(self, table: pd.DataFrame, vectors: Tensor | None) -> Side:
        """What is needed of one table."""
        texts = self._texts(table)
        return self._side(table, texts, self._counts(texts), vectors)

    def _side(
        self, table: pd.DataFrame, texts: dict[str, list[str]], counts: Mapping[Key, Sparse], vectors: Tensor | None
    ) -> Side:
        numbers = {name: pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64) for name in self.numbers}
        terms = {key: presence(counts[key]) for key in self.terms}
        lexical = beside([self.terms[ROW, kind].unit(counts[ROW, kind]) for kind in _LEXICAL])
        return Side(texts, numbers, vectors, terms, lexical)

    def lexical(self, texts: Sequence[str]) -> Sparse:
        """Whole rows, as texts, as :class:`vicinal.index.lexical.LexicalIndex` compares them."""
        parts = (self.terms[ROW, kind] for kind in _LEXICAL)
        return beside([terms.unit(terms.counts(texts)) for terms in parts])

    def _counts(self, texts: Mapping[str, list[str]]) -> dict[Key, Sparse]:
        return {key: terms.counts(texts[key[0]]) for key, terms in self.terms.items()}

    def _texts(self, table: pd.DataFrame) -> dict[str, list[str]]:
        return {column: self.column(table, column) for column in (ROW, *self.texts)}

    @property
    def columns(self) -> list[str]:
        """The columns that are compared."""
        return [*self.texts, *self.numbers]

    @property
    def names(self) -> list[str]:
        """Of the features, in their order; those of a column begin with its name and a colon."""
        names = [f"row: {kind} {what}" for kind in _ROW_TERMS for what in ("cosine", "least share", "greatest share")]
        for column in self.texts:
            names += [f"{column}: {kind} {what}" for kind in _COLUMN_TERMS for what in _SHARES]
            names.append(f"{column}: equal")
        names += [f"{column}: {what}" for column in self.numbers for what in ("nearness", "equal")]
        names += [
            "row: vectors",
            *(
                f"row: {what} above the best other of the {side}"
                for what in ("vectors", "words")
                for side in ("left", "right")
            ),
        ]
        return names

    def of(self, left: Side, right: Side, pairs: Ids, rivals: "Rivals") -> Floats:
        """Features ``[n, F]`` of pairs of positions ``[n, 2]``."""
        at, to = pairs[:, 0], pairs[:, 1]
        columns: list[Floats] = []
        for (column, kind), terms in self.terms.items():
            rows = left.terms[column, kind][at], right.terms[column, kind][to]
            shared = terms.shared(*map(terms.of_counts, rows))
            empty = np.minimum(shared.left, shared.right) == 0
            columns += [np.where(empty, MISSING, value) for value in _shares(shared)]
            if column != ROW and kind == _COLUMN_TERMS[-1]:
                ours, theirs = (side.texts[column] for side in (left, right))
                same = [ours[one] == theirs[other] for one, other in pairs.tolist()]
                columns.append(np.where(empty, MISSING, np.array(same, dtype=float)))
        for column in self.numbers:
            columns += _nearness(left.numbers[column][at], right.numbers[column][to])
        cosine = np.full(len(pairs), MISSING)
        if left.vectors is not None and right.vectors is not None:
            cosine = (left.vectors[torch.tensor(at)] * right.vectors[torch.tensor(to)]).sum(dim=1).double().numpy()
        words = np.asarray(left.lexical[at].multiply(right.lexical[to]).sum(axis=1), dtype=np.float64).ravel()
        columns += [cosine, *rivals.ahead(pairs, cosine, words)]
        return np.stack(columns, axis=1)


_SHARES = ("cosine", "least share", "greatest share")


def _shares(shared: Shared) -> list[Floats]:
    return [shared.cosine, np.minimum(shared.of_left, shared.of_right), np.maximum(shared.of_left, shared.of_right)]


def _nearness(left: Floats, right: Floats) -> list[Floats]:
    """1 less the relative difference of numbers, and whether they are equal."""
    largest = np.maximum(np.abs(left), np.abs(right))
    with np.errstate(invalid="ignore"):
        near = 1 - np.minimum(np.abs(left - right) / np.maximum(largest, 1e-12), 1)
    missing = ~(np.isfinite(left) & np.isfinite(right))
    return [np.where(missing, MISSING, near), np.where(missing, MISSING, (left == right).astype(float))]


@dataclass(frozen=True)
class Rivals:
    """The two best rows of the other table for each row, by vectors and by words: what a pair has to beat.

    Attributes:
        searches: for "vectors" (or None) and "words", of the left rows and of the right ones, ``[n, 2]`` each.
    """

    searches: tuple[tuple[Hits, Hits] | None, tuple[Hits, Hits]]

    def ahead(self, pairs: Ids, vectors: Floats, words: Floats) -> list[Floats]:
        """By how much each pair is ahead of the best other pair of its left row and of its right row."""
        columns = []
        for search, score in zip(self.searches, (vectors, words), strict=True):
            for side in (0, 1):
                if search is None:
                    columns.append(np.zeros(len(pairs)))
                    continue
                ids, scores = (part[torch.tensor(pairs[:, side])].numpy() for part in search[side])
                best = np.where(ids[:, 0] == pairs[:, 1 - side], scores[:, 1], scores[:, 0])
                columns.append(score - np.where(np.isfinite(best), best, 0.0))
        return columns
