"""Search by an expensive score: what it says of a few anchor rows tells which rows are worth asking it about."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal.core.checks import check_integer, check_number
from vicinal.core.identity import check_distinct, whole_ids
from vicinal.index.base import Hits, IdsLike, ordered, padded

Scorer = Callable[[Any, Tensor], Tensor]
"""Scores ``[n]`` of a query and rows, by their positions ``[n]``."""


def anchor_codes(scores: Tensor, anchors: IdsLike, *, ridge: float = 1e-6, rcond: float | None = None) -> Tensor:
    r"""Codes ``[a, N]`` of rows: a query's scores with the anchors ``[b, a]`` times them are its scores (ANNCUR).

    $E = U R$ with $R$ the scores of some anchor queries with all rows and $U$ the inverse of $A = R_{:, anchors}$:
    exact if the matrix of all scores has the rank of A. With a nearly singular A a pseudoinverse explodes, so by
    default $U = (A^T A + \lambda \sigma^2 I)^{-1} A^T$, $\sigma$ the largest singular value of A.

    Args:
        scores: R ``[r, N]``, of the anchor queries with all rows.
        anchors: positions of the anchor rows, ``[a]``, no duplicates.
        ridge: lambda >= 0.
        rcond: with ``ridge`` 0: singular values below this fraction of the largest count as 0; None: 1e-10 in float64,
            1e-4 in float32.

    Raises:
        ValueError: for anchors that are not positions, no scores, or scores that are all 0.

    Paper: arXiv:2210.12579.

    >>> scores = torch.outer(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 3.0, 5.0]))  # of rank 1
    >>> codes = anchor_codes(scores, [1], ridge=0)
    >>> torch.tensor([[6.0]]) @ codes  # a query that scores 6 with row 1
    tensor([[ 2.0000,  6.0000, 10.0000]])
    """
    if scores.ndim != 2 or not scores.is_floating_point() or 0 in scores.shape:
        raise ValueError(f"scores: expected floating numbers [r, N], got {scores.dtype} {tuple(scores.shape)}")
    at = torch.from_numpy(_positions(anchors, scores.shape[1])).to(scores.device)
    if check_number("ridge", ridge) < 0:
        raise ValueError(f"ridge: expected a number of at least 0, got {ridge}")
    crossing = scores[:, at]  # [r, a]
    left, values, right = torch.linalg.svd(crossing, full_matrices=False)
    if not float(values.max()) > 0:
        raise ValueError("scores: expected anchors that some anchor query scores other than 0, got none; take others")
    if ridge > 0:
        inverse = values / (values.square() + ridge * values.max().square())
    else:
        least = (1e-10 if scores.dtype == torch.float64 else 1e-4) if rcond is None else rcond
        inverse = torch.where(values > least * values.max(), 1 / values, 0.0)
    return (right.T * inverse) @ (left.T @ scores)


def _positions(anchors: IdsLike, rows: int) -> np.ndarray[Any, Any]:
    at = check_distinct(whole_ids("anchors", anchors), name="anchors")
    if len(at) == 0 or at.min() < 0 or at.max() >= rows:
        raise ValueError(f"anchors: expected one or more positions from 0 to {rows - 1}, got others")
    return at


def anchor_search(
    score: Scorer,
    queries: list[Any],
    codes: Tensor,
    anchors: IdsLike,
    k: int,
    *,
    calls: int,
    first: Tensor | None = None,
) -> Hits:
    """The ``k`` rows that an expensive ``score`` puts highest, by at most ``calls`` calls of it a query.

    It scores the anchors; from their scores and the codes it predicts which rows may be best, and scores those. Only
    rows that were scored are ranked, so no returned score is an approximation.

    Args:
        score: ``score(query, positions [n])`` gives the scores ``[n]`` of those rows.
        queries: whatever ``score`` takes.
        codes: ``[a, N]`` of :func:`anchor_codes`.
        anchors: as there.
        k: rows of a query.
        calls: calls of ``score`` for each query, at least one per anchor.
        first: cheap scores ``[b, N]``, such as those of vectors, that rank the rows in place of the codes; the anchors
            are then not scored.

    Paper: arXiv:2210.12579.

    >>> rows = torch.tensor([1.0, 3.0, 5.0])
    >>> codes = anchor_codes(torch.outer(torch.tensor([1.0, 2.0]), rows), [1])
    >>> anchor_search(lambda query, at: query * rows[at], [-1.0, 2.0], codes, [1], 1, calls=2).ids.tolist()
    [[0], [2]]
    """
    at = torch.from_numpy(_positions(anchors, codes.shape[1]))
    check_integer("calls", calls, len(at) if first is None else 1)
    parts = [padded(torch.zeros(0, 0), at.new_zeros(0, 0), check_integer("k", k))]
    for row, query in enumerate(queries):
        scored, scores = at[:0], codes.new_zeros(0)
        guess = first[row].clone() if first is not None else codes.new_zeros(0)
        if first is None:
            scored, scores = at, score(query, at).to(codes)
            guess = scores @ codes
            guess[at] = -torch.inf
        more = guess.topk(min(calls - len(scored), len(guess) - len(scored))).indices
        scored = torch.cat([scored, more])
        best = ordered(scored[None], torch.cat([scores, score(query, more).to(codes)])[None].float())
        parts.append(padded(best.scores, best.ids, k))
    return Hits(torch.cat([hits.ids for hits in parts]), torch.cat([hits.scores for hits in parts]))
