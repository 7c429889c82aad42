"""How well rows are ordered within queries, and LightGBM's LambdaRank as the rival of such a fit."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, issparse

from vicinal.evaluation.baselines import Baseline
from vicinal.metrics import ndcg
from vicinal.ranks import list_places

FIRST = 10
"""Ranks that count."""

_MOST_GRADE = 30
"""Highest whole grade of which 2 to its power is a gain; LambdaRank knows no higher ones."""

_LEAVES, _ROUNDS, _PATIENCE, _FOLDS = (8, 31), 1000, 50, 5
"""Of LambdaRank: leaves that are tried, most trees, trees without a better nDCG, and folds of queries."""


def query_ndcg(truth: ArrayLike, prediction: ArrayLike, queries: ArrayLike) -> NDArray[np.float64]:
    r"""NDCG@10 of each query ``[Q]``, in the order of their sorted names: see :func:`vicinal.metrics.ndcg`.

    Gains are $2^{\text{grade}} - 1$ of whole grades from 0 to 30, else the grades less the lowest of all. A query
    of one grade, or one row, has no order and is NaN. Of equal predictions the mean over their orders counts.

    Args:
        truth: grades ``[n]``.
        prediction: ``[n]``, higher = better.
        queries: ``[n]``.

    >>> query_ndcg([0, 1, 0, 1], [0.1, 0.9, 0.8, 0.2], ["a", "a", "b", "b"]).round(4).tolist()
    [1.0, 0.6309]
    """
    grades = np.asarray(truth, dtype=np.float64)
    gain = "exponential" if _are_grades(grades) else "linear"
    grades = grades if gain == "exponential" else grades - grades.min()
    codes = np.unique(np.asarray(queries), return_inverse=True)[1].reshape(-1)
    places, valid = list_places(torch.from_numpy(codes))
    scores, relevance = (torch.tensor(np.asarray(one, dtype=np.float64))[places] for one in (prediction, grades))
    values = ndcg(scores, relevance, valid.double(), k=FIRST, gain=gain, ties="average")  # type: ignore[arg-type]
    high, low = (relevance.masked_fill(~valid, end) for end in (-math.inf, math.inf))
    return values.where(high.amax(1) > low.amin(1), math.nan).numpy()


def ranking_scores(truth: ArrayLike, prediction: ArrayLike, queries: ArrayLike) -> dict[str, float]:
    """The mean of :func:`query_ndcg` over queries that have an order; {} if none has.

    >>> ranking_scores([0, 1, 0, 1], [0.1, 0.9, 0.8, 0.2], ["a", "a", "b", "b"])["ndcg@10"].__round__(4)
    0.8155
    """
    values = query_ndcg(truth, prediction, queries)
    known = values[~np.isnan(values)]
    return {f"ndcg@{FIRST}": float(known.mean())} if len(known) else {}


def lambdarank_baseline(
    train: Any, train_target: ArrayLike, train_queries: ArrayLike, test: Any, *, seed: int = 0
) -> Baseline | None:
    """LightGBM's LambdaRank, its leaves and number of trees chosen by nDCG@10 in five folds of queries.

    Args:
        train: features ``[a, f]``, dense or sparse.
        train_target: whole grades from 0 to 30 ``[a]``; for others None is returned.
        train_queries: ``[a]``, of at least five queries; for fewer None is returned.
        test: ``[b, f]``.
        seed: of folds and trees.

    References:
        Burges (2010), From RankNet to LambdaRank to LambdaMART: an overview.
    """
    import lightgbm  # half a second

    grades, codes = np.asarray(train_target, dtype=np.float64), np.unique(train_queries, return_inverse=True)[1]
    number = int(codes.max()) + 1
    if not _are_grades(grades) or number < _FOLDS:
        return None
    order = np.argsort(codes, kind="stable")
    if issparse(train):  # LightGBM reads sparse matrices, no sparse arrays
        train, test = csr_matrix(train), csr_matrix(test)
    rows, grades, sizes = train[order], grades[order], np.bincount(codes)
    fold = np.repeat(np.random.default_rng(seed).permutation(number) % _FOLDS, sizes)
    parts = [(np.flatnonzero(fold != one), np.flatnonzero(fold == one)) for one in range(_FOLDS)]
    settings = {"objective": "lambdarank", "metric": "ndcg", "eval_at": [FIRST], "learning_rate": 0.05, "seed": seed}
    settings |= {"verbosity": -1, "deterministic": True, "force_row_wise": True, "num_threads": torch.get_num_threads()}
    tried = []
    for leaves in _LEAVES:
        data = lightgbm.Dataset(rows, grades, group=sizes, params={"verbosity": -1}, free_raw_data=False)
        known: Any = {"folds": parts, "callbacks": [lightgbm.early_stopping(_PATIENCE, verbose=False)]}
        curve: Any = lightgbm.cv(settings | {"num_leaves": leaves}, data, _ROUNDS, **known)[f"valid ndcg@{FIRST}-mean"]
        tried.append((float(max(curve)), leaves, int(np.argmax(curve)) + 1))
    value, leaves, trees = max(tried)
    data = lightgbm.Dataset(rows, grades, group=sizes, params={"verbosity": -1})
    model = lightgbm.train(settings | {"num_leaves": leaves}, data, trees)
    said = np.asarray(model.predict(test), dtype=np.float64)
    return Baseline("LambdaRank", said, {"num_leaves": leaves, "trees": trees}, validation=1 - value, rows=len(grades))


def _are_grades(values: NDArray[np.float64]) -> bool:
    """Whether all are whole numbers from 0 to 30."""
    return bool(((values == values.round()) & (values >= 0) & (values <= _MOST_GRADE)).all())
