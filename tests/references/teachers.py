"""Losses of a teacher's scores in numpy, a row at a time: ``f(scores [K], teacher [K], **settings) -> number``."""

import numpy as np


def softmax(x):
    e = np.exp(x - np.max(x))
    return e / e.sum()


def kl_top(s, g, k=None, temperature=1.0):
    top = sorted(range(len(g)), key=lambda place: (-g[place], place))[:k]
    p, q = softmax(s[top] / temperature), softmax(g[top] / temperature)
    return temperature**2 * sum(q[i] * np.log(q[i] / p[i]) for i in range(len(top)))


def ranknet(s, g, duplicates=None):
    t = np.array(g, dtype=float)
    for group in set() if duplicates is None else set(duplicates[duplicates >= 0]):
        columns = [j for j in range(len(s)) if duplicates[j] == group]
        first = min(columns, key=lambda j: (-s[j], j))
        t[columns], t[first] = min(0.0, min(g)), max(g[j] for j in columns)
    pairs = [(j, k) for j in range(len(s)) for k in range(len(s)) if t[j] > t[k]]
    return np.mean([np.log1p(np.exp(s[k] - s[j])) for j, k in pairs]) if pairs else 0.0


def ar2(s, g, balance=0.5, temperature=1.0, divisor=1.0, floor=0.0):
    p, q = softmax(s / divisor), softmax(g / temperature)
    found = sum(np.log(1 / (1 + np.exp(g[j] - g[0])) + floor) * np.log(p[j] + floor) for j in range(len(s)))
    return balance * found - (1 - balance) * (q * np.log(p + floor)).sum()


def mixed_labels(s, g, target, share=0.8):
    label = np.eye(len(s))[target]
    mixed = (1 - share) * label + share * (label if np.isnan(g).any() else softmax(g))
    return -(mixed * np.log(softmax(s))).sum()


def member_diversity(scores, members, strength=1.0):
    """Of all rows at once."""
    total = 0.0
    for member in members:
        gaps = [((softmax(s) - softmax(g)) ** 2).sum() for s, g in zip(scores, member, strict=True)]
        total += np.exp(-strength / scores.shape[1] * np.mean(gaps))
    return np.log(total)


def sinkhorn_distillation(s, g, temperature=2.0, softness=0.1, steps=20):
    """Of all rows at once, by iterations of the kernel."""
    p, q = (np.array([softmax(row / temperature) for row in side]) for side in (s, g))
    costs = np.abs(p[:, None] - q).sum(-1)
    plan = np.exp(-costs / softness)
    for _ in range(steps):
        plan = plan / plan.sum(1, keepdims=True)
        plan = plan / plan.sum(0)
    return (plan * costs).sum(1)
