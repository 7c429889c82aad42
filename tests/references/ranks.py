"""Friedman's statistic, the resampled t and the weighted neighbor mean, again in numpy from their formulas."""

import math

import numpy as np


def friedman_statistic(scores):
    """12 N / (k (k + 1)) (sum R^2 - k (k + 1)^2 / 4), Demsar (2006), for scores without ties."""
    n, k = scores.shape
    ranks = np.array([[1 + sum(row < value) for value in row] for row in scores]).mean(0)
    return 12 * n / (k * (k + 1)) * ((ranks**2).sum() - k * (k + 1) ** 2 / 4)


def corrected_t(first, second, train, test):
    """Nadeau and Bengio (2003), section 3."""
    d = [a - b for a, b in zip(first, second, strict=True)]
    n = len(d)
    mean = sum(d) / n
    variance = sum((x - mean) ** 2 for x in d) / (n - 1)
    return mean / math.sqrt((1 / n + test / train) * variance)
