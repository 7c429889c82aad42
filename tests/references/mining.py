"""Miners again in numpy, by loops over pairs and triplets."""

import math

import numpy as np


def sides(relation, weight):
    n = relation.shape[1]
    for i in range(len(relation)):
        counted = [j for j in range(n) if weight[i, j] > 0]
        yield i, [j for j in counted if relation[i, j] > 0], [j for j in counted if relation[i, j] <= 0]


def triplet_margin(s, r, w, *, margin=0.2, kind="violating"):
    out = np.zeros(s.shape, bool)
    for i, related, unrelated in sides(r, w):
        for p in related:
            for n in unrelated:
                gap = s[i, p] - s[i, n]
                good = {
                    "violating": gap <= margin,
                    "hard": gap <= 0,
                    "semihard": 0 < gap <= margin,
                    "easy": gap > margin,
                }[kind]
                if good:
                    out[i, [p, n]] = True
    return out


def semihard(s, r, w, *, margin=0.2):
    return triplet_margin(s, r, w, margin=margin, kind="semihard")


def hard(s, r, w):
    out = np.zeros(s.shape, bool)
    for i, related, unrelated in sides(r, w):
        if related and unrelated:
            low, high = min(s[i, related]), max(s[i, unrelated])
            out[i, [p for p in related if s[i, p] == low] + [n for n in unrelated if s[i, n] == high]] = True
    return out


def multi_similarity(s, r, w, *, epsilon=0.1):
    out = np.zeros(s.shape, bool)
    for i, related, unrelated in sides(r, w):
        out[i, [p for p in related if any(s[i, p] - epsilon < s[i, n] for n in unrelated)]] = True
        out[i, [n for n in unrelated if any(s[i, n] + epsilon > s[i, p] for p in related)]] = True
    return out


def pair_margin(s, r, w, *, positive=0.8, negative=0.2):
    out = np.zeros(s.shape, bool)
    for i, related, unrelated in sides(r, w):
        out[i, [p for p in related if s[i, p] < positive]] = True
        out[i, [n for n in unrelated if s[i, n] > negative]] = True
    return out


def reference_of(values, how):
    return math.inf if len(values) == 0 else {"min": np.min, "mean": np.mean}[how](values)


def topk_hard(s, r, w, *, k=10, margin=0.0, relative=None, max_score=None, min_score=None, reference="min"):
    out = np.zeros(s.shape, bool)
    for i, related, unrelated in sides(r, w):
        rho = reference_of(s[i, related], reference)
        kept = [n for n in unrelated if not s[i, n] + margin > rho]
        if relative is not None and math.isfinite(rho):
            kept = [n for n in kept if not s[i, n] > rho - relative * abs(rho)]
        kept = [n for n in kept if max_score is None or s[i, n] <= max_score]
        kept = [n for n in kept if min_score is None or s[i, n] >= min_score]
        kept.sort(key=lambda n, i=i: (-s[i, n], n))
        out[i, related + kept[:k]] = True
    return out


def guided(s, r, w, *, guide, margin=0.0, relative=None, reference="min"):
    return topk_hard(guide, r, w, k=None, margin=margin, relative=relative, reference=reference)


def adaptive_margin(s, r, w, *, factor=0.1, k=10, low=0.0, high=0.2, reference="min"):
    out = np.zeros(s.shape, bool)
    for i, related, unrelated in sides(r, w):
        rho = reference_of(s[i, related], reference)
        hardest = sorted(s[i, unrelated])[::-1][:k]
        known = hardest and math.isfinite(rho)
        m = min(max(factor * (rho - np.mean(hardest)), low), high) if known else 0.0
        out[i, related + [n for n in unrelated if not s[i, n] + m > rho]] = True
    return out


def iqr_filter(s, r, w, *, reach=1.5):
    out = np.zeros(s.shape, bool)
    every = sorted(s[i, n] for i, _, unrelated in sides(r, w) for n in unrelated)
    if every:
        first, third = every[int(0.25 * len(every))], every[int(0.75 * len(every))]
    for i, related, unrelated in sides(r, w):
        spread = reach * (third - first) if every and math.isfinite(reach) else math.inf
        out[i, related + [n for n in unrelated if first - spread <= s[i, n] <= third + spread]] = True
    return out


def angular(s, r, w, *, angle=20.0):
    """From cosines of a batch against itself, by the directions themselves (a Cholesky-like factor)."""
    values, vectors = np.linalg.eigh(s)
    x = vectors * np.sqrt(values.clip(0))
    out = np.zeros(s.shape, bool)
    for a, related, unrelated in sides(r, w):
        for p in related:
            center = (x[a] + x[p]) / 2
            for n in unrelated:
                height = np.linalg.norm(x[n] - center)
                if math.degrees(math.atan2(np.linalg.norm(x[a] - x[p]), 2 * height)) > angle:
                    out[a, [p, n]] = True
    return out


def log_density(d, n):
    return (n - 2) * math.log(d) + (n - 3) / 2 * math.log(1 - d * d / 4)


def nearest(s, w, *, k=10, min_score=None):
    out = np.zeros(s.shape, bool)
    for i in range(len(s)):
        among = [j for j in range(s.shape[1]) if w[i, j] > 0 and (min_score is None or s[i, j] >= min_score)]
        last = -math.inf if k is None or len(among) <= k else sorted(s[i, among])[-k]
        out[i, [j for j in among if s[i, j] >= last]] = True
    return out
