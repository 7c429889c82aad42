"""Losses of sets, of retrieval and of blocks again, in numpy, by loops; see ``pair_losses`` for what is returned."""

import numpy as np

from references.pair_losses import by_pair, by_row, lse, relu, sides, softplus


def nlsh(s, r, w, radius=0.5, factor=2.0):
    p, n = sides(r, w)
    return [by_pair(relu(-s - radius), p), by_pair(relu(factor * radius + s), n)]


def facility_location(s, r, w, temperature=1.0):
    return by_row(lambda s, p, n: temperature * lse(s / temperature, n) if n.any() else None, s, r, w)


def facility_location_of_classes(s, labels, w):
    """The paper's formula: the soft maximum over each other class, with weights 0 or 1."""
    part = []
    for i in range(len(s)):
        others = [k for k in set(labels) if k != labels[i] and any(w[i, j] for j in range(len(s)) if labels[j] == k)]
        value = sum(np.log(sum(w[i, j] * np.exp(s[i, j]) for j in range(len(s)) if labels[j] == k)) for k in others)
        part.append([(value, 1.0)] if others else [])
    return [part]


def graph_cut(s, r, w, balance=0.5, form="information"):
    def row(s, p, n):
        across, inside = (n * s).sum(), (p * s).sum()
        if not p.any() or (form == "ratio" and not n.any()):
            return None
        if form == "ratio":
            return np.log(across / (balance * inside))
        return (balance * across if form == "correlation" else across - balance * inside) / p.sum()

    return by_row(row, s, r, w)


def log_det(s, r, w, ridge=0.5, offset=0.0, form="correlation"):
    n = len(s)

    def volume(share):
        matrix = np.zeros((n, n))
        for i, j in np.ndindex(n, n):
            matrix[i, j] = (w[i, j] * share[i, j] * (s[i, j] + offset) + w[j, i] * share[j, i] * (s[j, i] + offset)) / 2
        for i in range(n):
            used = w[i].any() or w[:, i].any()
            matrix[i, i] = (s[i, i] + offset if used else 1.0) + ridge
        return np.linalg.slogdet(matrix)[1]

    value = volume(r) - (volume(np.ones((n, n))) if form == "correlation" else 0.0)
    active = w.any(axis=1)
    return [[[(value / active.sum(), 1.0)] if on else [] for on in active]]


def focal_nt_xent(s, r, w, temperature=0.1, focus=0.5):
    p, n = sides(r, w)
    x, values = s / temperature, np.zeros_like(s)
    for i, j in np.ndindex(*s.shape):
        if n[i].any():
            miss = 1 / (1 + np.exp(x[i, j] - lse(x[i], n[i])))  # 1 - p
            values[i, j] = miss**focus * softplus(lse(x[i], n[i]) - x[i, j])
    return [by_pair(values, p)]


def hardest(s, n, k):
    """(score, weight) of the k columns of highest score; those tied at the last place share it."""
    found = sorted((float(x) for x, weight in zip(s, n, strict=True) if weight > 0), reverse=True)[:k]
    if not found:
        return []
    above = [j for j in range(len(s)) if n[j] > 0 and s[j] > found[-1]]
    tied = [j for j in range(len(s)) if n[j] > 0 and s[j] == found[-1]]
    share = np.mean([n[j] for j in tied])
    return [(s[j], n[j]) for j in above] + [(found[-1], share)] * (len(found) - len(above))


def lmnn(s, r, w, k=3, margin=1.0, push=0.5, top=1.0):
    """The k most similar related columns of each row near, unrelated ones farther than each by a margin."""
    near, apart = [], []
    for row, positive, negative in zip(s, w * r, w * (1 - r), strict=True):
        related = [j for j in range(len(row)) if positive[j] > 0]
        least = sorted((row[j] for j in related), reverse=True)[:k][-1:]
        targets = [j for j in related if row[j] >= least[0]]
        near.append([((1 - push) * (top - row[j]), positive[j]) for j in targets])
        terms = [(j, n) for j in targets for n in range(len(row)) if negative[n] > 0]
        apart.append([(push * max(0.0, margin + row[n] - row[j]), positive[j] * negative[n]) for j, n in terms])
    return [near, apart]


def ngame(s, r, w, margin=0.3, k=3, weighting="equal", temperature=0.1):
    p, n = sides(r, w)
    part = []
    for i in range(len(s)):
        row, against = [], hardest(s[i], n[i], k)
        for j in np.flatnonzero(p[i]):
            costs = [(relu(x - s[i, j] + margin), weight, x) for x, weight in against]
            if weighting == "equal":
                row += [(cost, p[i, j] * weight) for cost, weight, _ in costs]
            elif costs:
                mass = [weight * np.exp(x / temperature if cost > 0 else 0.0) for cost, weight, x in costs]
                value = sum(m * cost for m, (cost, _, _) in zip(mass, costs, strict=True)) / sum(mass)
                row.append((value, p[i, j]))
        part.append(row)
    return [part]


def adore(s, r, w, cut=None, temperature=1.0):
    p, n = sides(r, w)
    part = []
    for i in range(len(s)):
        counted = np.flatnonzero(w[i])
        worth = {}
        for j in counted:
            rank = 1 + sum(s[i, m] > s[i, j] for m in counted) + (sum(s[i, m] == s[i, j] for m in counted) - 1) / 2
            worth[j] = 1 / rank if cut is None or rank <= cut else 0.0
        terms = [
            (abs(worth[a] - worth[c]) * softplus((s[i, c] - s[i, a]) / temperature), p[i, a] * n[i, c])
            for a in counted
            for c in counted
            if p[i, a] * n[i, c] > 0
        ]
        mass = sum(weight for _, weight in terms)
        part.append([(sum(value * weight for value, weight in terms) / mass, 1.0)] if mass else [])
    return [part]


def unit(x):
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    return x / np.where(length > 0, length, 1)


def block_contrast(z, q, a, scale=1.0):
    u, block = unit(z), q.argmax(axis=1)
    logs = []
    for i in range(len(z)):
        mass = sum(a[i, j] * np.exp(scale * (u[i] @ u[j] if i != j else 0.0)) for j in range(len(z)))
        if mass > 0:
            logs.append(np.log(mass))
    used = sorted(set(block))
    m = unit(np.array([z[block == k].sum(axis=0) for k in used]))
    others = [
        np.log(sum(np.exp(scale * (m[k] @ m[o] if k != o else 0.0)) for o in range(len(used))))
        for k in range(len(used))
    ]
    return np.mean(others) - (np.mean(logs) if logs else 0.0)


def warp(s, r, w, margin=0.5, columns=None, by_rank=True):
    """Sums of the rows, pair by pair."""
    out = np.zeros(len(s))
    for i in range(len(s)):
        unrelated = [n for n in range(s.shape[1]) if w[i, n] > 0 and r[i, n] < 1]
        for p in range(s.shape[1]):
            if w[i, p] * r[i, p] == 0 or not unrelated:
                continue
            ahead = [n for n in unrelated if s[i, n] - s[i, p] + margin > 0]
            rank = len(ahead) / len(unrelated) * (columns or len(unrelated))
            hinge = max(max(s[i, n] for n in unrelated) - s[i, p] + margin, 0)
            out[i] += hinge * (np.log(1 + rank) if by_rank else 1)
    return out
