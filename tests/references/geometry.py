"""Metrics of embeddings as a whole, again in numpy from their definitions."""

import itertools

import numpy as np


def directions(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def pairs(n):
    return [(i, j) for i in range(n) for j in range(n) if i != j]


def alignment(x, y, power):
    u = directions(x)
    return np.mean([np.linalg.norm(u[i] - u[j]) ** power for i, j in pairs(len(x)) if y[i] == y[j]])


def uniformity(x, t):
    u = directions(x)
    return np.log(np.mean([np.exp(-t * np.sum((u[i] - u[j]) ** 2)) for i, j in pairs(len(x))]))


def occurrences(scores, k):
    counts = np.zeros(scores.shape[1])
    for row in scores:
        counts[np.argsort(-row)[:k]] += 1
    return counts


def utilization(q, x):
    return np.mean([min(np.sum((a - b) ** 2) for b in x) for a in q])


def opis(s, y, w, far, steps, extreme=None):
    n = len(y)
    unrelated = np.sort([s[i, j] for i in range(n) for j in range(n) if y[i] != y[j] and w[i, j] > 0])
    last = len(unrelated) - 1
    t0, t1 = (unrelated[round((1 - share) * last)] for share in (far[1], far[0]))
    grid = [t0 + (t1 - t0) * k / (steps - 1) for k in range(steps)]
    curves = []
    for c in np.unique(y):
        mine = [s[i, j] for i in range(n) for j in range(n) if y[i] == c and y[j] == c and w[i, j] > 0]
        others = [s[i, j] for i in range(n) for j in range(n) if y[i] == c and y[j] != c and w[i, j] > 0]
        if not mine or not others:
            continue
        curve = []
        for t in grid:
            sens, spec = np.mean([v >= t for v in mine]), np.mean([v < t for v in others])
            curve.append(0.0 if sens + spec == 0 else 2 * sens * spec / (sens + spec))
        curves.append(curve)
    curves = np.array(curves)
    if extreme is not None:
        means = np.sort([trapezoid(curve) for curve in curves])
        number = max(1, int(extreme * len(means)))
        return means[-number:].mean() - means[:number].mean()
    return np.mean([trapezoid((curve - curves.mean(0)) ** 2) for curve in curves])


def trapezoid(values):
    return np.mean([(a + b) / 2 for a, b in itertools.pairwise(values)])
