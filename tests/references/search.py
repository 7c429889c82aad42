"""Search by sorting all scores, in numpy and float64."""

import numpy as np


def scores(similarity, queries, rows):
    """``[b, N]`` float64, from the formulas."""
    q, x = queries.astype(np.float64), rows.astype(np.float64)
    if similarity in ("l2", "squared_l2", "l1"):
        apart = q[:, None] - x[None]
        if similarity == "l1":
            return -np.abs(apart).sum(-1)
        squared = (apart**2).sum(-1)
        return -np.sqrt(squared) if similarity == "l2" else -squared
    if similarity == "cosine":
        lengths = [np.linalg.norm(m, axis=1) for m in (q, x)]
        q, x = (m / np.where(n > 0, n, 1)[:, None] for m, n in zip((q, x), lengths, strict=True))
    return q @ x.T / (q.shape[1] if similarity == "scaled_dot" else 1)


def search(similarity, queries, ids, rows, k):
    """Ids and float32 scores ``[b, k]``: best first, of equal float32 scores the lower id; -1 and -inf fill up."""
    all_scores = scores(similarity, queries, rows).astype(np.float32)
    found = np.full((len(queries), k), -1, dtype=np.int64)
    values = np.full((len(queries), k), -np.inf, dtype=np.float32)
    for row, own in enumerate(all_scores):
        order = np.lexsort((ids, -own))[:k]
        found[row, : len(order)], values[row, : len(order)] = ids[order], own[order]
    return found, values
