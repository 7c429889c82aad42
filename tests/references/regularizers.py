"""Regularizers in numpy, written as sums over rows, pairs and classes."""

import numpy as np


def rationale_invariance(features, labels, weight, bank, rate, factor):
    """The loss and the bank after it; the bank is a dictionary of classes that were seen."""
    total, after = 0.0, dict(bank)
    for label in sorted(set(labels.tolist())):
        shares = [
            [[weight[c, d] * f[d] for d in range(len(f))] for c in range(len(weight))]
            for f in features[labels == label]
        ]
        shares = np.array(shares)
        now = shares.mean(0)
        after[label] = now if label not in bank else (1 - rate) * bank[label] + rate * now
        total += np.mean(
            [[((shares[i, c] - after[label][c]) ** 2).sum() for c in range(len(weight))] for i in range(len(shares))]
        )
    return factor * total, after


def centered(x, unbiased):
    x = x[:, None] if x.ndim == 1 else x
    n = len(x)
    d = np.array([[np.sqrt(((a - b) ** 2).sum()) for b in x] for a in x])
    u = np.zeros((n, n))
    for k in range(n):
        for j in range(n):
            if unbiased:
                u[k, j] = (
                    0
                    if k == j
                    else d[k].sum() / (n - 2) + d[:, j].sum() / (n - 2) - d[k, j] - d.sum() / ((n - 1) * (n - 2))
                )
            else:
                u[k, j] = d[k].mean() + d[:, j].mean() - d[k, j] - d.mean()
    return u


def joint_distance_covariance(parts, offset=1.0, unbiased=False, scale_free=False):
    n, product = len(parts[0]), 1.0
    by = n * (n - 3) if unbiased else n * n
    for part in parts:
        u = centered(part, unbiased)
        product = product * ((u / np.sqrt((u * u).sum() / by) if scale_free else u) + offset)
    return product.sum() / by - offset ** len(parts) * (n / (n - 3) if unbiased else 1)
