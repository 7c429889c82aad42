"""Two rows as one: how alike they are column by column, and how much more than any other row is."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import contains
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from rapidfuzz.distance import OSA
from rapidfuzz.process import cpdist
from scipy.sparse import csr_matrix

from vicinal.core.identity import spelled
from vicinal.index.base import Hits
from vicinal.index.lexical import Shared, Sparse, Terms, beside, codes, presence, without_marks
from vicinal.linkage.columns import Floats, Ids

MISSING = -1.0
"""In the place of a likeness where a cell is empty; likenesses are from 0 to 1."""

_LONG = 4
"""Letters of a code that is looked for within the other row, at least."""

_WORD = re.compile(r"[^\W_]+")

_TIMES = re.compile(r"(?<=\d) ?[x\u00d7] ?(?=\d)")
"""Between the lengths of a size, which is one code: M3 x 20 and M3x20."""

_ROW_TERMS = ("words", "letters", "codes", "numbers")
_LEXICAL = ("words", "letters")
"""Terms of columns, and those of whole rows that candidates are looked for by."""


def shown_text(cell: Any) -> str:
    """A cell as a text in one line; "" for an empty one.

    >>> shown_text(3.0), shown_text(None), shown_text(" a  b "), shown_text(pd.Timestamp("2021-03-04"))
    ('3', '', 'a b', '2021-03-04')
    """
    if cell is None or cell is pd.NA or cell is pd.NaT or (isinstance(cell, float) and cell != cell):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return " ".join(str(cell).removesuffix(" 00:00:00").split())


def normal_text(cell: Any) -> str:
    """A cell as it is compared: case, invisible characters and the form of Unicode do not count.

    >>> normal_text("\uff21B\u200b 1 "), normal_text("Zoe\u0308") == normal_text("ZOË")
    ('ab 1', True)
    """
    if type(cell) is str and cell.isascii() and cell.isprintable() and not cell.endswith(" 00:00:00"):
        return " ".join(cell.lower().split())
    return spelled(shown_text(cell), loose=True)


@dataclass(frozen=True)
class Side:
    """One table as pairs are made of it.

    Attributes:
        texts: of each shared column in their normal form, ``[n]``; "row" is all columns in one.
        numbers: of each shared column of numbers, ``[n]``, NaN where empty.
        terms: which terms each row has, by column and kind, ``[n, BUCKETS]``.
        lexical: rows as :class:`vicinal.index.lexical.LexicalIndex` compares them.
        parts: what :data:`_CODES` and :data:`_WORDS` are of.
    """

    texts: dict[str, list[str]]
    numbers: dict[str, Floats]
    terms: dict[tuple[str, str], Sparse]
    lexical: Sparse
    parts: tuple["Parts", "Parts"]


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

_WHOLE = ROW, CODED = "\0row", "\0codes"
"""Stand for all columns together, where codes are looked for without the amounts of shared numbers: they would count
twice. No column of a table is called so."""


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
        pairs = [(CODED if kind in ("codes", "numbers") else ROW, kind) for kind in _ROW_TERMS]
        pairs += [(column, kind) for column in self.texts for kind in _LEXICAL]
        self.terms = {pair: Terms(pair[1]) for pair in pairs}

    def fit(self, tables: Sequence[pd.DataFrame]) -> list[Side]:
        """Count the terms of all rows; gives what is needed of the tables, without vectors."""
        texts = [self._texts(table) for table in tables]
        counts = [self._counts(each) for each in texts]
        for key, terms in self.terms.items():
            terms.fit_counts([each[key] for each in counts])
        return [self._side(*each) for each in zip(tables, texts, counts, strict=True)]

    def column(self, table: pd.DataFrame, column: str, text_of: Callable[[Any], str] = normal_text) -> list[str]:
        """A column as texts; :data:`ROW`: all of a row, the shared columns first; :data:`CODED`: without amounts."""
        if column not in _WHOLE:
            return [text_of(cell) for cell in table[column].tolist()]
        names = [*self.texts, *(name for name in table.columns if name not in self.texts)]
        cells = [[text_of(cell) for cell in table[name].tolist()] for name in names]
        for name in self.numbers if column == CODED else ():  # years and keys are codes
            place = names.index(name)
            cells[place] = [cell if cell.isdigit() and len(cell) >= _LONG else "" for cell in cells[place]]
        rows = [" ".join(filter(None, row)) for row in zip(*cells, strict=True)]
        return rows if column == ROW else [_TIMES.sub("x", row) for row in rows]

    def side(self, table: pd.DataFrame) -> Side:
        """What is needed of one table."""
        texts = self._texts(table)
        return self._side(table, texts, self._counts(texts))

    def _side(self, table: pd.DataFrame, texts: dict[str, list[str]], counts: Mapping[Key, Sparse]) -> Side:
        numbers = {name: pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64) for name in self.numbers}
        terms = {key: presence(counts[key]) for key in self.terms}
        lexical = beside([self.terms[ROW, kind].unit(counts[ROW, kind]) for kind in _LEXICAL])
        plain = np.array([*map(without_marks, texts[CODED]), ""], dtype=object)
        long = [[code for code in codes(text) if len(code) >= _LONG] for text in texts[CODED]]
        words = Parts.of(list(map(_WORD.findall, texts[CODED])), self.terms[ROW, "words"], plain)
        return Side(texts, numbers, terms, lexical, (Parts.of(long, self.terms[CODED, "codes"], plain), words))

    def lexical(self, texts: Sequence[str]) -> Sparse:
        """Whole rows, as texts, as :class:`vicinal.index.lexical.LexicalIndex` compares them."""
        parts = (self.terms[ROW, kind] for kind in _LEXICAL)
        return beside([terms.unit(terms.counts(texts)) for terms in parts])

    def _counts(self, texts: Mapping[str, list[str]]) -> dict[Key, Sparse]:
        return {key: terms.counts(texts[key[0]]) for key, terms in self.terms.items()}

    def _texts(self, table: pd.DataFrame) -> dict[str, list[str]]:
        return {column: self.column(table, column) for column in (*_WHOLE, *self.texts)}

    @property
    def columns(self) -> list[str]:
        """The columns that are compared."""
        return [*self.texts, *self.numbers]

    @property
    def names(self) -> list[str]:
        """Of the features, in their order; those of a column begin with its name and a colon."""
        names = [f"row: {kind} {what}" for kind in _ROW_TERMS for what in ("cosine", "least share", "greatest share")]
        for column in self.texts:
            names += [f"{column}: {kind} {what}" for kind in _LEXICAL for what in _SHARES]
            names.append(f"{column}: equal")
        names += [f"{column}: {what}" for column in self.numbers for what in ("nearness", "equal")]
        sides = [f"row: {what} above the best other of the {side}" for what in _RIVALS for side in ("left", "right")]
        return [*names, *_CODES, *_WORDS, "row: vectors", *sides]

    def of(self, left: Side, right: Side, pairs: Ids, rivals: Rivals, cosine: Floats | None) -> Floats:
        """Features ``[n, F]`` of pairs of positions ``[n, 2]``, whose vectors have these cosines."""
        at, to = pairs[:, 0], pairs[:, 1]
        columns: list[Floats] = []
        for (column, kind), terms in self.terms.items():
            rows = left.terms[column, kind][at], right.terms[column, kind][to]
            shared = terms.shared(*map(terms.of_counts, rows))
            empty = np.minimum(shared.left, shared.right) == 0
            columns += [np.where(empty, MISSING, value) for value in _shares(shared)]
            if column not in _WHOLE and kind == _LEXICAL[-1]:
                words, others = (side.texts[column] for side in (left, right))
                same = [words[one] == others[other] for one, other in pairs.tolist()]
                columns.append(np.where(empty, MISSING, np.array(same, dtype=float)))
        for column in self.numbers:
            ours, theirs = left.numbers[column][at], right.numbers[column][to]
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
