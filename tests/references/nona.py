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


def snr(q, x):
    """Noise over signal, with the variances over coordinates."""
    return -float(np.var(np.subtract(x, q)) / max(np.var(q), 1e-8))


def scores(name, queries, bank):
    one = globals()[name]
    return np.array([[one(q, x) for x in bank] for q in queries])


def s1(x, a0, b0, t, top, eps, floor=0.0):
    """The floor keeps u and v at least that large, as the paper's code does."""
    a = min(a0, top) - eps
    b = a + b0 * (1 - a)
    if x <= a:
        return 0.0
    if x >= b:
        return 1.0
    least = math.log(floor) if floor > 0 else -math.inf
    u, v = max(math.log(x - a) / t, least), max(math.log(b - x) / t, least)
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


def unit(row, over):
    """Scores of a row on [0, 1] by the range over the columns ``over``."""
    low, high = min(row[j] for j in over), max(row[j] for j in over)
    return [1.0 if high == low else (v - low) / (high - low) for v in row]


def no_mass(row, seen, i):
    """No mask: everything has mass 1."""
    return [1.0] * len(row)


def top_k(k):
    """Mass 1 for the k highest of the columns that are seen, and what ties with the last of them."""

    def mass(row, seen, i):
        least = sorted((row[j] for j in seen), reverse=True)[: min(k, len(seen))][-1]
        return [float(v >= least) for v in row]

    return mass


def softstep(shapes, *, family, extent, eps):
    """Mass of each column from one (a0, b0, t) a row; a row that S2 would reject whole is left alone."""

    def mass(row, seen, i):
        a0, b0, t = shapes[i]
        x = unit(row, seen if extent == "admissible" else range(len(row)))
        if family == "s1":
            top, floor = max(x[j] for j in seen), eps if extent == "all" else 0.0
            return [s1(v, a0, b0, t, top, eps, floor) for v in x]
        result = [s2(v, b0, t) if v > 0 else 0.0 for v in x]
        return result if any(result[j] > 0 for j in seen) else [1.0] * len(row)

    return mass


def unit_ranks(row, over):
    """Ranks of a row on [0, 1] among the columns ``over``: 1 for the nearest, ties at the better rank."""
    return [1 - sum(row[k] > v for k in over) / max(1, len(over) - 1) for v in row]


def rank_step(shapes, *, family, extent, eps):
    """Mass of each column by its rank, from one (a0, b0, t) a row."""

    def mass(row, seen, i):
        a0, b0, t = shapes[i]
        x = unit_ranks(row, seen if extent == "admissible" else range(len(row)))
        if family == "s1":
            top, floor = max(x[j] for j in seen), eps if extent == "all" else 0.0
            return [s1(v, a0, b0, t, top, eps, floor) for v in x]
        result = [s2(v, b0, t) if v > 0 else 0.0 for v in x]
        return result if any(result[j] > 0 for j in seen) else [1.0] * len(row)

    return mass


def rejecting_step(shapes, *, extent, eps):
    """Mass of each column by S2 between a threshold a and 1, from one (a0, b0, t) a row."""

    def mass(row, seen, i):
        a0, b0, t = shapes[i]
        x = unit(row, seen if extent == "admissible" else range(len(row)))
        a = min(a0, max(x[j] for j in seen)) - eps
        return [s2((v - a) / (1 - a), b0, t) if v > a else 0.0 for v in x]

    return mass


def head_weights(matrix, allowed, mass=no_mass, simplex=softmax):
    """Weights of the head from a matrix of scores and boolean ``allowed``; ``mass(row, seen, i)`` is the mask."""
    result = np.zeros_like(matrix)
    for i, row in enumerate(matrix):
        seen = [j for j in range(len(row)) if allowed[i, j]]
        m = mass(row, seen, i)
        kept = [j for j in seen if m[j] > 0]
        for j, p in zip(kept, simplex([row[j] + math.log(m[j]) for j in kept]), strict=True):
            result[i, j] = p
    return result
