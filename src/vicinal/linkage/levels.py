"""Comparison levels: how alike the cells of a pair are, in a few steps for each kind of column."""

from typing import Literal

import numpy as np
import pandas as pd
import torch
from rapidfuzz.distance import OSA, JaroWinkler
from rapidfuzz.process import cpdist

from vicinal.core.threads import pieces
from vicinal.linkage.columns import CodedColumn, Floats, Ids, Kind

Cosine = Literal["text", "digits", "vectors"]
"""What cosines are of."""

EMPTY = 0
"""Level of a pair of which a cell is empty: it says nothing."""

_JARO_WINKLER = (0.8, 0.88, 0.94)
_RELATIVE = (0.02, 0.1, 0.3)
_COSINES = {
    "text": (0.15, 0.3, 0.45, 0.6, 0.75, 0.9),
    "digits": (1e-4, 0.34, 0.67, 0.999),
    "vectors": (0.3, 0.5, 0.7, 0.8, 0.9, 0.97),
}
"""Of the words of two texts, weighed by how rare they are, of those with digits alone, and of vectors."""

_PAIRS = 1 << 20
"""Distinct pairs of values that are compared at a time."""

LEVELS: dict[Kind | Cosine, tuple[str, ...]] = {
    "code": ("empty", "differs", "edit distance 2", "edit distance 1", "equal"),
    "number": ("empty", "differs", "within 30 %", "within 10 %", "within 2 %", "equal"),
    "name": ("empty", "differs", *(f"Jaro-Winkler {each}" for each in _JARO_WINKLER), "equal"),
    "text": ("empty", "differs", *(f"cosine {each}" for each in _COSINES["text"]), "equal"),
    "digits": ("empty", "none shared", "few shared", "some shared", "most shared", "all shared"),
    "vectors": ("empty", "differs", *(f"cosine {each}" for each in _COSINES["vectors"])),
}
"""What the levels of a kind are called, from none to the highest; "digits": the words with digits of both rows;
"vectors": of images, sounds and numbers."""


def comparison_levels(column: CodedColumn, pairs: Ids, cosines: Floats | None = None) -> Ids:
    """The level of each pair in a column, int8 ``[n]``; see :data:`LEVELS`.

    Codes by optimal string alignment, where two letters that change places are one edit; names by the similarity of
    Jaro and Winkler, with their words as they are or in the order of the alphabet, whichever is higher; numbers by
    their difference over the larger one; texts by ``cosines``. Each pair of distinct values is compared once.

    Args:
        column: of both tables.
        pairs: positions ``[n, 2]``.
        cosines: of a column of texts: of the words of each pair, ``[n]``.

    >>> towns = ["ulm", "", "köln", "ulm", "kölm", "bonn"]
    >>> column = CodedColumn.of_codes("town", np.split(np.arange(6), 2), towns)
    >>> levels = comparison_levels(column, np.array([[0, 0], [1, 0], [2, 1], [2, 2]]))
    >>> [LEVELS["name"][level] for level in levels]
    ['equal', 'empty', 'Jaro-Winkler 0.88', 'differs']
    """
    left, right = column.sides[0][pairs[:, 0]], column.sides[1][pairs[:, 1]]
    if column.kind == "text":
        levels = cosine_levels("text", np.zeros(len(pairs)) if cosines is None else cosines)
    else:
        levels = np.ones(len(pairs), dtype=np.int8)
        other = np.flatnonzero((left != right) & (left >= 0) & (right >= 0))
        place, distinct = pd.factorize(left[other].astype(np.int64) * len(column.values) + right[other])
        codes = (np.divmod(distinct[part], len(column.values)) for part in pieces(len(distinct), _PAIRS))
        parts = [_graded(column, *part) for part in codes]
        levels[other] = np.concatenate([np.zeros(0, dtype=np.int8), *parts])[place]
    levels[left == right] = len(LEVELS[column.kind]) - 1
    levels[(left < 0) | (right < 0)] = EMPTY
    return levels


def cosine_levels(kind: Cosine, cosines: Floats) -> Ids:
    """The level ``[n]`` of each cosine; equal texts are above all of them.

    >>> [LEVELS["digits"][level] for level in cosine_levels("digits", np.array([0.0, 0.5, 1.0]))]
    ['none shared', 'some shared', 'all shared']
    """
    return np.asarray(1 + np.searchsorted(_COSINES[kind], cosines, side="right"), dtype=np.int8)


def _graded(column: CodedColumn, one: Ids, two: Ids) -> Ids:
    """Levels of pairs of distinct values, which are not equal."""
    if column.kind == "number":
        numbers = np.array([float(value) for value in column.values])
        left, right = numbers[one], numbers[two]
        with np.errstate(invalid="ignore", over="ignore"):  # infinite ones differ
            apart = np.abs(left - right) / np.maximum(np.maximum(np.abs(left), np.abs(right)), 1e-300)
        return np.asarray(1 + len(_RELATIVE) - np.searchsorted(_RELATIVE, apart), dtype=np.int8)
    words, workers = (column.texts[one], column.texts[two]), torch.get_num_threads()
    if column.kind == "code":
        edits = cpdist(*words, scorer=OSA.distance, score_cutoff=2, dtype=np.int32, workers=workers)
        return np.asarray(1 + np.clip(3 - edits, 0, 2), dtype=np.int8)
    least = _JARO_WINKLER[0] - 0.01
    alike = cpdist(*words, scorer=JaroWinkler.similarity, score_cutoff=least, dtype=np.float64, workers=workers)
    other = np.flatnonzero(alike < _JARO_WINKLER[-1])
    other = other[column.has_order[one[other]] | column.has_order[two[other]]]
    words = column.ordered[one[other]], column.ordered[two[other]]
    again = cpdist(*words, scorer=JaroWinkler.similarity, score_cutoff=least, dtype=np.float64, workers=workers)
    alike[other] = np.maximum(alike[other], again)
    return np.asarray(1 + np.searchsorted(_JARO_WINKLER, alike, side="right"), dtype=np.int8)
