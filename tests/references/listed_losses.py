"""Further pair losses in numpy, as in ``pair_losses``, with regularizers, mixing and what else belongs to them."""

import numpy as np


def lse(x, w=None):
    x = np.asarray(x, float)
    w = np.ones_like(x) if w is None else w
    kept = w > 0
    return np.log(np.sum(w[kept] * np.exp(x[kept] - x[kept].max()))) + x[kept].max() if kept.any() else -np.inf


def softplus(x):
    return np.logaddexp(0, x)


def relu(x):
    return np.maximum(x, 0)


def rows(values):
    return [[[] if value is None else [(value, 1.0)] for value in values]]


FORMS = {
    "contrastive": (lambda p: (p[0] * relu(1 - p[1])).sum(), lambda n: (n[0] * relu(n[1])).sum(), False),
    "binomial_deviance": (
        lambda p: np.log1p((p[0] * np.exp(-2 * (p[1] - 0.5))).sum()),
        lambda n: np.log1p((n[0] * np.exp(50 * (n[1] - 0.5))).sum()),
        False,
    ),
    "multi_similarity": (
        lambda p: np.log1p((p[0] * np.exp(-2 * (p[1] - 0.5))).sum()) / 2,
        lambda n: np.log1p((n[0] * np.exp(50 * (n[1] - 0.5))).sum()) / 50,
        False,
    ),
    "proxy_anchor": (
        lambda p: np.log1p((p[0] * np.exp(-32 * (p[1] - 0.1))).sum()),
        lambda n: np.log1p((n[0] * np.exp(32 * (n[1] + 0.1))).sum()),
        False,
    ),
    "nca": (
        lambda p: -np.log((p[0] * np.exp(p[1])).sum()),
        lambda n: np.log((n[0] * np.exp(n[1])).sum()),
        True,
    ),
}


def metrix(s, r, w, form="multi_similarity"):
    related, unrelated, both = FORMS[form]
    values = []
    for i in range(len(s)):
        p, n = w[i] * r[i], w[i] * (1 - r[i])
        some, others = bool((p > 0).any()), bool((n > 0).any())
        if (both and not (some and others)) or not (some or others):
            values.append(None)
            continue
        values.append((related((p, s[i])) if some else 0.0) + (unrelated((n, s[i])) if others else 0.0))
    return rows(values)


def amcl(s, r, w, temperature=0.1, dim=None, factor=0.1):
    tau = np.broadcast_to(temperature, s.shape)
    x = s / tau
    contrast = []
    for i in range(len(s)):
        against = lse(x[i], w[i] * (1 - r[i]))
        contrast.append(
            [(softplus(against - x[i, j]), w[i, j] * r[i, j]) for j in range(s.shape[1]) if w[i, j] * r[i, j]]
        )
    if dim is None:
        return [contrast]
    penalty = factor * (dim / 2 * np.log(tau) + 1 / tau)
    return [contrast, [[(v, u) for v, u in zip(*row, strict=True) if u] for row in zip(penalty, w, strict=True)]]


def tcm(s, r, w, high=0.9, low=0.5):
    related, unrelated = [], []
    for i in range(len(s)):
        p, n = w[i] * r[i], w[i] * (1 - r[i])
        related.append([(high - s[i, j], p[j]) for j in range(s.shape[1]) if p[j] and s[i, j] <= high])
        unrelated.append([(s[i, j] - low, n[j]) for j in range(s.shape[1]) if n[j] and s[i, j] >= low])
    return [related, unrelated]


def over_related(s, r, w, term, mean=True):
    """Sum of a term over the related columns of each row, or its mean."""
    values = []
    for i in range(len(s)):
        p = w[i] * r[i]
        total = sum(p[j] * term(i, j) for j in np.flatnonzero(p))
        values.append((total / p.sum() if mean else total) if p.any() else None)
    return rows(values)


def decoupled_softmax(s, r, w):
    return over_related(s, r, w, lambda i, j: softplus(lse(s[i], w[i] * (1 - r[i])) - s[i, j]))


def summed_softmax(s, r, w):
    return over_related(s, r, w, lambda i, j: lse(s[i], w[i]) - s[i, j], mean=False)


def pair_cross_entropy(s, r, w):
    chance = 1 / (1 + np.exp(-s))
    values = -r * np.log(chance) - (1 - r) * np.log(1 - chance)
    return [[[(v, u) for v, u in zip(*row, strict=True) if u > 0] for row in zip(values, w, strict=True)]]


def soft_topk_mask(s, k, alpha):
    """One row: the shift by bisection until nothing moves."""
    low, high = -s.max() - 100, -s.min() + 100
    for _ in range(200):
        middle = (low + high) / 2
        less = (0.5 + 0.5 * np.tanh(alpha * (s + middle) / 2)).sum() < k
        low, high = (middle, high) if less else (low, middle)
    return 0.5 + 0.5 * np.tanh(alpha * (s + low) / 2)


def soft_topk(s, r, w, alpha=2.0):
    values = []
    for i in range(len(s)):
        p = w[i] * r[i]
        kept, number = np.flatnonzero(w[i]), int((p > 0).sum())
        mask = np.ones(s.shape[1])
        if 0 < number < len(kept):
            mask[kept] = soft_topk_mask(s[i, kept], number, alpha)
        values.append(-(p * np.log(mask)).sum() / p.sum() if number else None)
    return rows(values)


def fences(values, reach):
    ordered = np.sort(values)
    first, third = ordered[int(0.25 * len(ordered))], ordered[int(0.75 * len(ordered))]
    return first - reach * (third - first), third + reach * (third - first)


def unpg(s, r, w, margin=0.35, scale=64, reach=1.5, negatives=()):
    negatives = np.asarray(negatives, float)
    if len(negatives):
        low, high = fences(negatives, reach)
        negatives = negatives[(negatives >= low) & (negatives <= high)]
    values = []
    for i in range(len(s)):
        p = w[i] * r[i]
        x = scale * (s[i] - margin * r[i])
        every = lse(np.concatenate([x, scale * negatives]), np.concatenate([w[i], np.ones(len(negatives))]))
        values.append(every - (p * x).sum() / p.sum() if p.any() else None)
    return rows(values)


def proto_triplet(s, r, w, margin=1.0, wrong="nearest"):
    part = []
    for i in range(len(s)):
        p, n = w[i] * r[i], w[i] * (1 - r[i])
        others = np.flatnonzero(n)
        row = []
        for j in np.flatnonzero(p) if len(others) else []:
            if wrong == "nearest":
                value = relu(max(s[i, others]) - s[i, j] + margin)
            else:
                value = sum(n[k] * relu(s[i, k] - s[i, j] + margin) for k in others) / n.sum()
            row.append((value, p[j]))
        part.append(row)
    return [part]


def icnn(s, r, w, k=5, powers=(1, 1, 1), best=None):
    if best is None:  # a score above 0 is a cosine
        best = float((s * w > 0).any())

    def mean(x, weights):
        return (weights * x).sum() / weights.sum()

    values = []
    for i in range(len(s)):
        kept = np.flatnonzero(w[i])
        if not len(kept):
            values.append(None)
            continue
        last = np.sort(s[i, kept])[::-1][min(k, len(kept)) - 1]
        near = np.array([j for j in kept if s[i, j] >= last])
        d, same, u = relu(best - s[i, near]), r[i, near] > 0, w[i, near]
        if same.all() or not same.any():
            ratio = float(same.all())
        else:
            own, other = mean(d[same], u[same]), mean(d[~same], u[~same])
            ratio = other / (other + own) if other + own > 0 else 0.5
        center = mean(d, u)
        most = relu(best - s[i, kept]).max() ** 2 / 4
        spread = 1 - mean((d - center) ** 2, u) / most if most > 0 else 1.0
        share = u[same].sum() / u.sum()
        values.append(1 - ratio ** powers[0] * spread ** powers[1] * share ** powers[2])
    return rows(values)


def energy_confusion(x, y):
    """The mean over pairs of classes of the mean squared distance, pair by pair."""
    classes = sorted(set(y.tolist()))
    values = []
    for a in range(len(classes)):
        for b in range(a + 1, len(classes)):
            mine, theirs = x[y == classes[a]], x[y == classes[b]]
            values.append(np.mean([((p - q) ** 2).sum() for p in mine for q in theirs]))
    return np.mean(values)


def zero_mean(x, factor=1.0):
    return factor * np.mean([abs(sum(row)) for row in x])
