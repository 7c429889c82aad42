"""NONA and SoftStep again in numpy, row by row from the formulas; no code shared with the package."""

import math

import numpy as np


def l2(q, x):
    return -math.sqrt(math.fsum((a - b) ** 2 for a, b in zip(q, x, strict=True)))


def squared_l2(q, x):
    return -math.fsum((a - b) ** 2 for a, b in zip(q, x, strict=True))


def l1(q, x):
    return -math.fsum(abs(a - b) for a, b in zip(q, x, strict=True))


def dot(q, x):
    return math.fsum(a * b for a, b in zip(q, x, strict=True))


def scaled_dot(q, x):
    return dot(q, x) / len(q)


def cosine(q, x):
    lengths = math.sqrt(dot(q, q)) * math.sqrt(dot(x, x))
    return dot(q, x) / lengths if lengths > 0 else 0.0


def scores(name, queries, bank):
    one = globals()[name]
    return np.array([[one(q, x) for x in bank] for q in queries])


def s1(x, a0, b0, t, top, eps):
    a = min(a0, top) - eps
    b = a + b0 * (1 - a)
    if x <= a:
        return 0.0
    if x >= b:
        return 1.0
    u, v = math.log(x - a) / t, math.log(b - x) / t
    return 1 / (1 + math.exp(min(700.0, v - u)))


def s2(x, b, t):
    if x >= b:
        return 1.0
    return (x / b) ** ((b - x) * t / (1 - t))


def softmax(row):
    e = [math.exp(v - max(row)) for v in row]
    return [v / math.fsum(e) for v in e]


def sparsemax(row):
    """Threshold by trying each size of the support."""
    ordered = sorted(row, reverse=True)
    for size in range(len(row), 0, -1):
        tau = (math.fsum(ordered[:size]) - 1) / size
        if ordered[size - 1] > tau:
            return [max(v - tau, 0.0) for v in row]
    raise AssertionError("a support of one is always valid")


def entmax15(row):
    """Threshold of sum max(s/2 - tau, 0)^2 = 1 by bisection."""
    half = [v / 2 for v in row]
    low, high = max(half) - 1, max(half)
    for _ in range(200):
        tau = (low + high) / 2
        if math.fsum(max(v - tau, 0.0) ** 2 for v in half) >= 1:
            low = tau
        else:
            high = tau
    return [max(v - low, 0.0) ** 2 for v in half]


def head_weights(matrix, allowed, shapes, *, family, extent, eps, simplex=softmax):
    """Weights of the head from a matrix of scores, boolean ``allowed`` and one (a0, b0, t) a row (or None)."""
    result = np.zeros_like(matrix)
    for i, row in enumerate(matrix):
        seen = [j for j in range(len(row)) if allowed[i, j]]
        over = seen if extent == "admissible" else range(len(row))
        low, high = min(row[j] for j in over), max(row[j] for j in over)
        unit = [1.0 if high == low else (v - low) / (high - low) for v in row]
        mass = [1.0] * len(row)
        if shapes is not None:
            a0, b0, t = shapes[i]
            top = max(unit[j] for j in seen)
            mass = [s1(x, a0, b0, t, top, eps) if family == "s1" else s2(x, b0, t) if x > 0 else 0.0 for x in unit]
        kept = [j for j in seen if mass[j] > 0]
        for j, p in zip(kept, simplex([row[j] + math.log(mass[j]) for j in kept]), strict=True):
            result[i, j] = p
    return result
