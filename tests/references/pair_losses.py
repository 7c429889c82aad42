"""Pair losses again, in numpy, from their formulas, term by term and in loops; no code is shared with the library.

Each function has the defaults of the library and returns the parts of the loss; a part is a list with one entry for
each row, and that is a list of (value, weight) of its terms.
"""

import numpy as np


def reduce(parts, reduction):
    if reduction == "none":
        return np.sum([[sum(v * w for v, w in row) for row in part] for part in parts], axis=0)
    total = 0.0
    for part in parts:
        terms = [term for row in part for term in row]
        value = sum(v * w for v, w in terms)
        if reduction == "sum":
            total += value
            continue
        number = sum(w for v, w in terms if reduction == "mean" or v != 0)
        total += value / number if number else 0.0
    return total


def sides(r, w):
    return w * r, w * (1 - r)


def softplus(x):
    return np.logaddexp(0, x)


def lse(x, w):
    kept = w > 0
    return np.log(np.sum(w[kept] * np.exp(x[kept] - x[kept].max()))) + x[kept].max() if kept.any() else -np.inf


def relu(x):
    return np.maximum(x, 0)


def by_pair(values, weights):
    return [[(v, w) for v, w in zip(*row, strict=True) if w > 0] for row in zip(values, weights, strict=True)]


def by_row(function, s, r, w):
    rows = [function(*row) for row in zip(s, *sides(r, w), strict=True)]
    return [[[] if value is None else [(value, 1.0)] for value in rows]]


def contrastive(s, r, w):
    p, n = sides(r, w)
    return [by_pair(relu(1 - s), p), by_pair(relu(s), n)]


def margin(s, r, w):
    p, n = sides(r, w)
    part = []
    for i in range(len(s)):
        above = [(relu(0.5 - s[i, j]), p[i, j] * n[i].sum()) for j in range(s.shape[1])]
        below = [(relu(s[i, j] - 0.1), n[i, j] * p[i].sum()) for j in range(s.shape[1])]
        part.append([term for term in above + below if term[1] > 0])
    return [part]


def intra_pair_variance(s, r, w):
    p, n = sides(r, w)
    high, low = (p * s).sum() / p.sum(), (n * s).sum() / n.sum()
    return [by_pair(relu(0.99 * high - s) ** 2, p), by_pair(relu(s - 1.01 * low) ** 2, n)]


def ranked_list(s, r, w):
    def side(gap, weight, temperature):
        mass = weight * np.exp(temperature * gap) * (gap > 0)
        return (mass * gap).sum() / mass.sum() if mass.sum() else 0.0

    def row(s, p, n):
        return None if not (p + n).any() else 0.5 * side(0.7 - s, p, 0) + 0.5 * side(s - 0.3, n, 3)

    return by_row(row, s, r, w)


def nt_xent(s, r, w):
    p, n = sides(r, w)
    x = s / 0.1
    values = [[softplus(lse(x[i], n[i]) - x[i, j]) for j in range(s.shape[1])] for i in range(len(s))]
    return [by_pair(values, p)]


def cross_entropy(x, p, w):
    return None if not p.any() else lse(x, w) - (p * x).sum() / p.sum()


def supcon(s, r, w):
    return by_row(lambda s, p, n: cross_entropy(s / 0.1, p, p + n), s, r, w)


def nca(s, r, w):
    return by_row(lambda s, p, n: lse(s, p + n) - lse(s, p) if p.any() else None, s, r, w)


proxy_nca = nca


def n_pairs(s, r, w):
    p, _ = sides(r, w)
    seen, chosen = set(), {}
    for i in range(len(s)):
        kind = int(np.argmax(r[i] > 0))
        if p[i].any() and kind not in seen:
            seen.add(kind)
            chosen[i] = int(np.argmax(p[i] > 0))
    part = []
    for i in range(len(s)):
        if i not in chosen:
            part.append([])
            continue
        among = np.array([w[i, j] if j in chosen.values() else 0.0 for j in range(s.shape[1])])
        part.append([(lse(s[i], among) - s[i, chosen[i]], 1.0)])
    return [part]


def lifted_structure(s, r, w):
    p, n = sides(r, w)
    values = np.zeros_like(s)
    for i, j in np.ndindex(*s.shape):
        against = np.logaddexp(lse(s[i], n[i]), lse(s[:, j], n[:, j]))
        values[i, j] = relu(against - s[i, j] + 1) ** 2 / 2
    return [by_pair(values, p)]


def generalized_lifted_structure(s, r, w):
    def row(s, p, n):
        if not (p + n).any():
            return None
        return relu((lse(-s, p) if p.any() else 0.0) + (lse(s, n) + 1 if n.any() else 0.0))

    return by_row(row, s, r, w)


def multi_similarity(s, r, w):
    def row(s, p, n):
        if not (p + n).any():
            return None
        return softplus(lse(-2 * (s - 0.5), p)) / 2 + softplus(lse(50 * (s - 0.5), n)) / 50

    return by_row(row, s, r, w)


def circle(s, r, w):
    def row(s, p, n):
        if not (p.any() and n.any()):
            return None
        unrelated = lse(80 * relu(s + 0.4) * (s - 0.4), n)
        return softplus(unrelated + lse(-80 * relu(1.4 - s) * (s - 0.6), p))

    return by_row(row, s, r, w)


def tuplet_margin(s, r, w):
    p, n = sides(r, w)
    goal = np.cos(np.arccos(s) - np.radians(5.73))
    values = [[softplus(lse(64 * s[i], n[i]) - 64 * g) for g in goal[i]] for i in range(len(s))]
    return [by_pair(values, p)]


def triplet(s, r, w, margin=0.2, chosen=lambda own, other: True, smooth=False, swap=False):
    p, n = sides(r, w)
    part = []
    for i in range(len(s)):
        row = []
        for j, k in np.ndindex(s.shape[1], s.shape[1]):
            other = max(s[i, k], s[j, k]) if swap else s[i, k]
            if p[i, j] * n[i, k] > 0 and chosen(s[i, j], other):
                gap = margin + other - s[i, j]
                row.append((softplus(gap) if smooth else relu(gap), p[i, j] * n[i, k]))
        part.append(row)
    return [part]


def angular(s, r, w):
    p, n = sides(r, w)
    slope = np.tan(np.radians(40)) ** 2
    values = np.zeros_like(s)
    for i, j in np.ndindex(*s.shape):
        values[i, j] = softplus(lse(4 * slope * (s[i] + s[j]), n[i]) - 2 * (1 + slope) * s[i, j])
    return [by_pair(values, p)]


def bins_of(s, weights, low, high, bins):
    """Counts at the edges low ... high, each score shared between the two edges around it."""
    edges = np.linspace(low, high, bins + 1)
    width = (high - low) / bins
    return np.array([(weights * relu(1 - np.abs(s - edge) / width)).sum() for edge in edges])


def fast_ap(s, r, w):
    def row(s, p, n):
        if not p.any():
            return None
        related = bins_of(s, p, -1, 1, 10)[::-1]
        unrelated = bins_of(s, n, -1, 1, 10)[::-1]
        value = 0.0
        for edge in range(11):
            every = related[: edge + 1].sum() + unrelated[: edge + 1].sum()
            value += related[edge] * related[: edge + 1].sum() / every if every > 0 else 0.0
        return 1 - value / p.sum()

    return by_row(row, s, r, w)


def histogram(s, r, w):
    p, n = sides(r, w)
    below = np.cumsum(bins_of(s, p, -1, 1, 100)) / p.sum()
    values = np.array([[(bins_of(x, 1.0, -1, 1, 100) * below).sum() for x in row] for row in s])
    return [by_pair(values, n)]


def sigmoid(x):
    return 1 / (1 + np.exp(-np.clip(x, -500, 500)))


def smooth_ap(s, r, w):
    def row(s, p, n):
        if not p.any():
            return None
        value = 0.0
        for j in np.flatnonzero(p):
            ahead = sigmoid((s - s[j]) / 0.01)
            ahead[j] = 0.0
            value += p[j] * (1 + (ahead * p).sum()) / (1 + (ahead * (p + n)).sum())
        return 1 - value / p.sum()

    return by_row(row, s, r, w)


def pnp(s, r, w, variant="Ds"):
    functions = {
        "O": lambda x: x,
        "Ds": lambda x: np.log(1 + x),
        "Dq": lambda x: 1 - 1 / (1 + x),
        "Iu": lambda x: (1 + x) * np.log(1 + x),
        "Ib": lambda x: (2 * x - np.log(1 + 2 * x)) / 4,
    }

    def row(s, p, n):
        if not p.any():
            return None
        costs = [p[j] * functions[variant]((sigmoid((s - s[j]) / 0.01) * n).sum()) for j in np.flatnonzero(p)]
        return sum(costs) / p.sum()

    return by_row(row, s, r, w)


def dynamic_soft_margin(s, r, w):
    [rows] = triplet(s, r, w, margin=0.0, chosen=lambda own, other: True)
    p, n = sides(r, w)
    gaps = [
        [(s[i, k] - s[i, j], p[i, j] * n[i, k]) for j, k in np.ndindex(s.shape[1], s.shape[1]) if p[i, j] * n[i, k] > 0]
        for i in range(len(rows))
    ]
    every = np.array([term for row in gaps for term in row]).reshape(-1, 2)
    share = np.cumsum(bins_of(every[:, 0], every[:, 1], -2, 2, 10)) / every[:, 1].sum()
    return [[[(share[int((v + 2) / 0.4)] * v, weight) for v, weight in row] for row in gaps]]


def normalized_softmax(s, r, w):
    return by_row(lambda s, p, n: cross_entropy(s / 0.05, p, p + n), s, r, w)


def with_goal(s, r, w, goal, scale):
    """Cross-entropy of scores that are replaced by their goal where related."""
    p, _ = sides(r, w)
    x = scale * (s + r * (goal - s))
    values = [cross_entropy(x[i], p[i], w[i]) for i in range(len(s))]
    return [[[] if value is None else [(value, 1.0)] for value in values]]


def cosface(s, r, w):
    return with_goal(s, r, w, s - 0.35, 64)


def arcface(s, r, w):
    margin = np.radians(28.6)
    angle = np.arccos(s)
    beyond = angle > np.pi - margin
    return with_goal(s, r, w, np.where(beyond, s - margin * np.sin(margin), np.cos(angle + margin)), 64)


def sphereface(s, r, w):
    angle = np.arccos(s)
    turns = np.floor(4 * angle / np.pi)
    return with_goal(s, r, w, (-1) ** turns * np.cos(4 * angle) - 2 * turns, 1)


large_margin_softmax = sphereface


def pooled(s, r, w, pool):
    """Two columns a class."""
    b = len(s)
    s, r, w = (matrix.reshape(b, -1, 2) for matrix in (s, r, w))
    classes = np.zeros(s.shape[:2])
    for i, c in np.ndindex(*classes.shape):
        kept = w[i, c] > 0
        classes[i, c] = pool(s[i, c][kept]) if kept.any() else 0.0
    return classes, r.max(-1), w.max(-1)


def subcenter_arcface(s, r, w):
    return arcface(*pooled(s, r, w, np.max))


def soft_triple(s, r, w):
    def mean(x):
        mass = np.exp(x / 0.1)
        return (mass * x).sum() / mass.sum()

    s, r, w = pooled(s, r, w, mean)
    return with_goal(s, r, w, s - 0.01, 20)


def proxy_anchor(s, r, w):
    related = by_row(lambda s, p, n: softplus(lse(-32 * (s - 0.1), p)) if p.any() else None, s, r, w)
    unrelated = by_row(lambda s, p, n: softplus(lse(32 * (s + 0.1), n)) if (p + n).any() else None, s, r, w)
    return [related[0], unrelated[0]]


def rank_n_contrast(s, r, w):
    part = []
    for i in range(len(s)):
        row = []
        for j in np.flatnonzero(w[i]):
            far = w[i] * (-r[i] >= -r[i, j])
            row.append((lse(s[i] / 2, far) - s[i, j] / 2, w[i, j]))
        part.append(row)
    return [part]


def label_contrast(s, r, w):
    kernel = w * np.exp(-(r**2) / 2)
    values = [cross_entropy(s[i] / 0.1, kernel[i], w[i]) for i in range(len(s))]
    return [[[] if value is None else [(value, 1.0)] for value in values]]


def log_ratio(s, r, w):
    part = []
    for i in range(len(s)):
        distance, label = np.log(relu(-s[i]) + 1e-6), np.log(np.abs(r[i]) + 1e-6)
        row = []
        for j, k in np.ndindex(s.shape[1], s.shape[1]):
            if j < k and w[i, j] * w[i, k] > 0:
                gap = (distance[j] - distance[k]) - (label[j] - label[k])
                row.append((gap**2, w[i, j] * w[i, k]))
        part.append(row)
    return [part]
