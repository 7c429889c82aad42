"""Copies among labelled rows: equal cells, equal rows, and embeddings that nearly meet."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from vicinal.data import find_duplicates
from vicinal.data.table import Table
from vicinal.report import Copies, Part

MEDIA = ("text", "image", "audio", "vector")
SHORT = 40


def equal_content(table: Table, kinds: dict[str, str], parts: Sequence[Part]) -> list[Copies]:
    """Groups of rows that are equal in all columns, or in one that holds media or long text.

    Args:
        table: the labelled rows.
        kinds: of the columns that the model reads.
        parts: ``[n]``, where each row stands.
    """
    found, told = [], set()
    singles = [name for name, kind in kinds.items() if kind in MEDIA and _says_much(table, name, kind)]
    for what, columns in [("all columns", list(kinds)), *((name, [name]) for name in singles)]:
        for group in find_duplicates(table, kinds, columns=columns).groups:
            if tuple(group) in told:
                continue
            told.add(tuple(group))
            found.append(_copies(table, what, group, parts))
    return found


def _says_much(table: Table, name: str, kind: str) -> bool:
    """Whether an equal cell of this column means the same thing: a medium does, "yes" does not."""
    if kind != "text":
        return True
    return bool(table.frame[name].astype(str).str.len().median() > SHORT)


def near_embeddings(
    table: Table,
    vectors: Tensor,
    parts: Sequence[Part],
    known: Sequence[Copies],
    *,
    share: float = 0.01,
    most: int = 20,
) -> list[Copies]:
    """New rows whose nearest row that the model has seen lies much nearer than is usual, and is no known copy.

    Args:
        table: the labelled rows.
        vectors: ``[n, d]``, their embeddings.
        parts: ``[n]``.
        known: copies of equal content.
        share: of the median distance to the nearest neighbor, below which two rows count as near copies.
        most: how many to give, nearest first.
    """
    new = np.array([part == "new" for part in parts])
    seen = np.flatnonzero(~new)
    if not new.any() or not len(seen):
        return []
    distance, place = [], []
    fresh = np.flatnonzero(new)
    for start in range(0, len(fresh), 512):
        block = fresh[start : start + 512]
        near = torch.cdist(vectors[block], vectors[seen]).min(dim=1)
        distance.append(near.values.numpy())
        place.append(seen[near.indices.numpy()])
    gaps, others = np.concatenate(distance), np.concatenate(place)
    listed = {frozenset((a, b)) for group in known for a in group.rows for b in group.rows}
    found: list[Copies] = []
    for query in np.argsort(gaps, kind="stable"):
        if gaps[query] > share * np.median(gaps) or len(found) == most:
            break
        pair = np.array([fresh[query], others[query]])
        if frozenset(table.rows[pair].tolist()) not in listed:
            found.append(_copies(table, "the embedding", pair, parts, float(gaps[query])))
    return found


def _copies(table: Table, what: str, rows: np.ndarray, parts: Sequence[Part], distance: float = 0.0) -> Copies:
    return Copies(
        what,
        table.rows[rows].tolist(),
        [parts[row] for row in rows],
        table.target[rows].tolist(),
        distance,
    )
