"""Two rows as one: how alike they are column by column, and how much more than any other row is."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import contains, eq
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from rapidfuzz.distance import OSA
from rapidfuzz.process import cpdist
from scipy.sparse import csr_matrix

from vicinal.estimators.match_rows import CODED, LONG, ROW, MatchColumns, MatchTable
from vicinal.index.base import Hits
from vicinal.index.lexical import Shared, Sparse, Terms, beside, codes, without_marks
from vicinal.linkage.columns import Floats, Ids

MISSING = -1.0
"""In the place of a likeness where a cell is empty; likenesses are from 0 to 1."""

_WORD = re.compile(r"[^\W_]+")

_ROW_TERMS = ("words", "letters", "codes", "numbers")
_LEXICAL = ("words", "letters")
"""Terms of columns, and those of whole rows that candidates are looked for by."""


class Parts(NamedTuple):
    """Words or codes of each row, to be looked for anywhere in another one.

    Attributes:
        rows: sparse ``[n, values]``: how rare each of a row is, at most 1.
        values: distinct ones.
        texts: all letters and digits of each row, ``[n]``.
    """

    rows: Sparse
    values: Ids
    texts: Ids

    @classmethod
    def of(cls, parts: Sequence[Sequence[str]], terms: Terms, texts: Ids) -> "Parts":
        """Of whole rows."""
        rows = list(map(dict.fromkeys, parts))
        ids, values = pd.factorize(np.array([part for row in rows for part in row], dtype=object))
        roots = terms.of(values.tolist())
        rare = np.asarray(roots.multiply(roots).sum(axis=1), dtype=np.float64).ravel() / max(terms.weights.max(), 1e-9)
        cells = rare[ids], ids, np.cumsum([0, *map(len, rows)])
        return cls(csr_matrix(cells, (len(rows), len(values))), values, texts)


Rivals = Sequence[Sequence[Hits] | None]
"""The two best rows of the other table for each row, by vectors (or None) and by words: what a pair has to beat. Of the
left rows and of the right ones, ``[n, 2]`` each."""

Key = tuple[str, str]
"""A column and a kind of terms."""


class Side:
    """Rows of one table as pairs are made of them; all is computed when it is first needed.

    Args:
        features: by whose terms they are compared.
        table: of the rows.
        rows: their places; None: the first row of each thing.
    """

    def __init__(self, features: "PairFeatures", table: MatchTable, rows: Ids | None = None) -> None:
        self.features, self.table, self.rows = features, table, table.first if rows is None else rows
        self._counts: dict[Key, Sparse] = {}

    def texts(self, column: str, at: Ids | slice = slice(None)) -> list[str]:
        """A column in its normal form, of all rows or of some."""
        return self.features.columns.texts_of(self.table, column, self.rows[at])

    def numbers(self, column: str, at: Ids) -> Floats:
        """A column of numbers in some rows, NaN where empty."""
        cells = self.table.frame[column].iloc[self.rows[at]]
        return pd.to_numeric(cells, errors="coerce").to_numpy(np.float64)

    def counts(self, key: Key) -> Sparse:
        """How often each row has each term of a column and kind, ``[n, BUCKETS]``."""
        if key not in self._counts:
            self._counts[key] = self.features.terms[key].counts(self.texts(key[0]))
        return self._counts[key]

    @cached_property
    def lexical(self) -> Sparse:
        """The rows as :class:`vicinal.index.lexical.LexicalIndex` compares them."""
        return beside([self.features.terms[ROW, kind].unit(self.counts((ROW, kind))) for kind in _LEXICAL])

    @cached_property
    def parts(self) -> tuple[Parts, Parts]:
        """What :data:`_CODES` and :data:`_WORDS` are of."""
        texts, terms = self.texts(CODED), self.features.terms
        plain = np.array([*map(without_marks, texts), ""], dtype=object)
        long = [[code for code in codes(text) if len(code) >= LONG] for text in texts]
        words = Parts.of(list(map(_WORD.findall, texts)), terms[ROW, "words"], plain)
        return Parts.of(long, terms[CODED, "codes"], plain), words

    def whole(self) -> Self:
        """All of it, so that threads need not compute the same."""
        for key in self.features.terms:
            self.counts(key)
        _ = self.parts
        return self


class PairFeatures:
    """Likenesses of pairs of rows of two tables.

    Args:
        columns: that both have.

    Attributes:
        terms: by column and kind; :meth:`fit` counts them.
    """

    def __init__(self, columns: MatchColumns) -> None:
        self.columns = columns
        pairs = [(CODED if kind in ("codes", "numbers") else ROW, kind) for kind in _ROW_TERMS]
        pairs += [(column, kind) for column in columns.texts for kind in _LEXICAL]
        self.terms = {pair: Terms(pair[1]) for pair in pairs}

    def fit(self, sides: Sequence[Side]) -> None:
        """Count the terms of all rows."""
        for key, terms in self.terms.items():
            terms.fit_counts([side.counts(key) for side in sides])

    @property
    def names(self) -> list[str]:
        """Of the features, in their order; those of a column begin with its name and a colon."""
        names = [f"row: {kind} {what}" for kind in _ROW_TERMS for what in ("cosine", "least share", "greatest share")]
        for column in self.columns.texts:
            names += [f"{column}: {kind} {what}" for kind in _LEXICAL for what in _SHARES]
            names.append(f"{column}: equal")
        names += [f"{column}: {what}" for column in self.columns.numbers for what in ("nearness", "equal")]
        sides = [f"row: {what} above the best other of the {side}" for what in _RIVALS for side in ("left", "right")]
        return [*names, *_CODES, *_WORDS, "row: vectors", *sides]

    def of(self, left: Side, right: Side, pairs: Ids, rivals: Rivals, cosine: Floats | None) -> Floats:
        """Features ``[n, F]`` of pairs of positions ``[n, 2]``, whose vectors have these cosines."""
        at, to = pairs[:, 0], pairs[:, 1]
        columns: list[Floats] = []
        for (column, kind), terms in self.terms.items():
            rows = left.counts((column, kind))[at], right.counts((column, kind))[to]
            shared = terms.shared(*map(terms.of_counts, rows))
            empty = np.minimum(shared.left, shared.right) == 0
            columns += [np.where(empty, MISSING, value) for value in _shares(shared)]
            if column in self.columns.texts and kind == _LEXICAL[-1]:
                same = list(map(eq, left.texts(column, at), right.texts(column, to)))
                columns.append(np.where(empty, MISSING, np.array(same, dtype=float)))
        for column in self.columns.numbers:
            ours, theirs = left.numbers(column, at), right.numbers(column, to)
            near = _nearness(ours, theirs)
            columns += [near, np.where(near == MISSING, MISSING, (ours == theirs).astype(float))]
        cosine = np.full(len(pairs), MISSING) if cosine is None else cosine
        common = np.asarray(left.lexical[at].multiply(right.lexical[to]).sum(axis=1), dtype=np.float64).ravel()
        long_codes, every_word = zip(left.parts, right.parts, strict=True)
        columns += [*_of_codes(long_codes, pairs), *_of_words(every_word, pairs)]
        columns += [cosine, *_ahead(rivals, pairs, (cosine, common))]
        return np.stack(columns, axis=1)


_SHARES = ("cosine", "least share", "greatest share")
_RIVALS = ("vectors", "words")
_CODES = ("row: codes within the other", "row: rarest code within the other", "row: nearest of other codes")
"""The least share of the long codes of either row that the other has, also in parts of words or in several; the rarest
of these; and how near each other those are that the other row has not: models of a series differ in a letter."""


_WORDS = ("row: words within", "row: most words within", "row: rarest lost word", "row: rarest of all lost words")
"""The least and the greatest share of the words of either row that stand anywhere in the other, and the rarest word
that does not: of the row where it is less rare, and of both."""


def _of_codes(sides: Sequence[Parts], pairs: Ids) -> list[Floats]:
    """What :data:`_CODES` says: codes of one row anywhere in the other, whatever stands between their letters."""
    rarest, nearest = np.full(len(pairs), MISSING), np.full(len(pairs), MISSING)
    shares, others = [], []
    for codes_of, pair, rare, within, share in _sought(sides, pairs):
        shares.append(share)
        np.maximum.at(rarest, pair, rare * within)
        others.append(pd.DataFrame({"pair": pair[~within], "code": codes_of[~within]}))
    both = others[0].merge(others[1], on="pair")
    width = max(len(sides[1].values), 1)
    place, distinct = pd.factorize(both["code_x"].to_numpy(np.int64) * width + both["code_y"].to_numpy())
    texts = [side.values[part] for side, part in zip(sides, np.divmod(distinct, width), strict=True)]
    alike = cpdist(*texts, scorer=OSA.normalized_similarity, dtype=np.float64)[place]  # each two are compared once
    np.maximum.at(nearest, both["pair"].to_numpy(), alike)
    return [np.nan_to_num(np.minimum(*shares), nan=MISSING), rarest, nearest]


def _of_words(sides: Sequence[Parts], pairs: Ids) -> list[Floats]:
    """What :data:`_WORDS` says: a color, or "remanufactured", in one row alone speaks against it, as no share does."""
    shares, lost = [], []
    for _, pair, rare, within, share in _sought(sides, pairs):
        shares.append(np.nan_to_num(share, nan=MISSING))
        lost.append(np.zeros(len(pairs)))
        np.maximum.at(lost[-1], pair, rare * ~within)
    return [np.minimum(*shares), np.maximum(*shares), np.minimum(*lost), np.maximum(*lost)]


def _sought(sides: Sequence[Parts], pairs: Ids) -> Iterator[tuple[Ids, Ids, Floats, Ids, Floats]]:
    """Parts of either side, the pair of each, how rare it is, whether the other row has it, and its share ``[n]``."""
    count = len(pairs)
    for side, known in enumerate(sides):
        rows = known.rows[pairs[:, side]]
        pair, rare = np.repeat(np.arange(count), np.diff(rows.indptr)), rows.data
        texts = sides[1 - side].texts[pairs[pair, 1 - side]]
        within = np.fromiter(map(contains, texts, known.values[rows.indices]), bool, len(pair))
        every, shared = (np.bincount(pair, weights=each, minlength=count) for each in (rare, rare * within))
        yield rows.indices, pair, rare, within, np.where(every > 0, shared / np.maximum(every, 1e-12), np.nan)


def _shares(shared: Shared) -> list[Floats]:
    return [shared.cosine, np.minimum(shared.of_left, shared.of_right), np.maximum(shared.of_left, shared.of_right)]


def _nearness(left: Floats, right: Floats) -> Floats:
    """1 less the relative difference of numbers."""
    largest = np.maximum(np.abs(left), np.abs(right))
    with np.errstate(invalid="ignore"):
        near = 1 - np.minimum(np.abs(left - right) / np.maximum(largest, 1e-12), 1)
    return np.where(np.isfinite(left) & np.isfinite(right), near, MISSING)


def _ahead(rivals: Rivals, pairs: Ids, likenesses: Sequence[Floats]) -> list[Floats]:
    """By how much each pair is ahead of the best other pair of its left row and of its right row."""
    columns = []
    for search, likeness in zip(rivals, likenesses, strict=True):
        for side in (0, 1):
            if search is None:
                columns.append(np.zeros(len(pairs)))
                continue
            ids, scores = (part[torch.tensor(pairs[:, side])].numpy() for part in search[side])
            best = np.where(ids[:, 0] == pairs[:, 1 - side], scores[:, 1], scores[:, 0])
            columns.append(likeness - np.where(np.isfinite(best), best, 0.0))
    return columns
