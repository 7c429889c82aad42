"""Retrieval metrics again in numpy, query by query from their definitions; and embeddings by a whole matrix."""

import math

import numpy as np


def ordered(scores, relation, weight, ties):
    """Grades in the order of the ranking, of the columns that count."""
    rows = []
    for s, r, w in zip(scores, relation, weight, strict=True):
        columns = [j for j in range(len(s)) if w[j] > 0]
        second = {"worst": lambda j, r=r: r[j], "best": lambda j, r=r: -r[j], "first": int, "last": lambda j: -j}[ties]
        columns.sort(key=lambda j: (-s[j], second(j)))
        rows.append([r[j] for j in columns])
    return rows


def metric(name, scores, relation, weight=None, *, k=None, ties="worst", empty=math.nan, gain="linear"):
    weight = np.ones_like(scores) if weight is None else weight
    rows = ordered(scores, relation, weight, ties)
    return np.array([one(name, row, k, gain) if any(g > 0 for g in row) else empty for row in rows], dtype=float)


def one(name, grades, k, gain="linear"):
    hits = [g > 0 for g in grades]
    total = sum(hits)
    if name == "ndcg":
        gains = [max(g, 0) if gain == "linear" else 2 ** max(g, 0) - 1 for g in grades]
        return dcg(gains, k) / dcg(sorted(gains, reverse=True), k)
    if name in ("precision_at_k", "hit_at_k", "recall_at_k"):
        found = sum(hits[:k])
        return {"precision_at_k": found / k, "hit_at_k": float(found > 0), "recall_at_k": found / total}[name]
    if name == "r_precision":
        return sum(hits[:total]) / total
    if name == "reciprocal_rank":
        first = hits.index(True) + 1
        return 1 / first if k is None or first <= k else 0.0
    last = {"map_at_r": total, "average_precision": len(hits) if k is None else k}[name]
    return sum(sum(hits[: i + 1]) / (i + 1) for i in range(min(last, len(hits))) if hits[i]) / total


def dcg(gains, k):
    return sum(g / math.log2(i + 2) for i, g in enumerate(gains) if k is None or i < k)
