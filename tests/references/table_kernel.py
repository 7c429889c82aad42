"""The kernel of a plain table, its likelihood and its prediction, in plain numpy, entry by entry."""

import math

import numpy as np


def pieces(column, train):
    """Piecewise-linear features of a column ``[n]`` for 8 bins between quantiles of ``train``, not centered."""
    edges = np.quantile(train, np.linspace(0, 1, 9))
    features = np.zeros((len(column), 8))
    for k in range(8):
        low, high = edges[k], edges[k + 1]
        for i, value in enumerate(column):
            if high == low:
                continue
            share = (value - low) / (high - low)
            share = max(share, -1.0 if k == 0 else 0.0)
            share = min(share, 2.0 if k == 7 else 1.0)
            features[i, k] = (2 * share - 1) / math.sqrt(8)
    return features


def covariance(x, z, phi, psi, lengths, b, a, c):
    """Kernel ``[n, m]`` of columns ``x`` and ``z`` with features ``phi`` and ``psi``."""
    matrix = np.zeros((len(x), len(z)))
    for i in range(len(x)):
        for j in range(len(z)):
            r = math.sqrt(sum(((x[i, f] - z[j, f]) / lengths[f]) ** 2 for f in range(x.shape[1])))
            near = b * (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r)
            matrix[i, j] = near + a / x.shape[1] * (x[i] @ z[j]) + c * (phi[i] @ psi[j])
    return matrix


def negative_log_likelihood(matrix, labels):
    """Of labels with mean 0 under a normal distribution of covariance ``matrix``."""
    value = labels @ np.linalg.solve(matrix, labels) + np.linalg.slogdet(matrix)[1]
    return (value + len(labels) * math.log(2 * math.pi)) / 2


def objective(x, phi, labels, lengths, b, a, c, noise):
    """Negative log likelihood and penalty."""
    matrix = covariance(x, x, phi, phi, lengths, b, a, c) + (noise + 1e-6) * np.eye(len(x))
    logs = np.log(lengths)
    penalty = 2 * (((logs - logs.mean()) ** 2).sum() + (logs.mean() - math.log(len(lengths)) / 2) ** 2)
    return negative_log_likelihood(matrix, labels) + penalty


def posterior_mean(matrix, cross, labels):
    """Of a process of unknown constant mean: the mean by generalized least squares, the rest by the kernel.

    ``matrix [n, n]`` has the noise on it, ``cross [m, n]`` is the kernel of the new rows with the known.
    """
    inverse = np.linalg.inv(matrix)
    ones = np.ones(len(labels))
    mean = ones @ inverse @ labels / (ones @ inverse @ ones)
    return mean + cross @ inverse @ (labels - mean)
