"""The kernel of a plain table, its likelihood and its prediction, in plain numpy, entry by entry."""

import math

import numpy as np


def pieces(column, train, bins=8):
    """Piecewise-linear features of a column ``[n]`` between so many quantiles of ``train``, not centered."""
    edges = np.quantile(train, np.linspace(0, 1, bins + 1))
    features = np.zeros((len(column), bins))
    for k in range(bins):
        low, high = edges[k], edges[k + 1]
        for i, value in enumerate(column):
            if high == low:
                continue
            share = (value - low) / (high - low)
            share = max(share, -1.0 if k == 0 else 0.0)
            share = min(share, 2.0 if k == bins - 1 else 1.0)
            features[i, k] = (2 * share - 1) / math.sqrt(bins)
    return features


def steps_apart(column, other, train):
    """Squared distances ``[n, m]`` of the features of a column for 16 bins."""
    first, second = pieces(column, train, 16), pieces(other, train, 16)
    return ((first[:, None] - second) ** 2).sum(axis=2)


def covariance(x, z, phi, psi, lengths, b, a, c, near=None):
    """Kernel ``[n, m]`` of columns ``x`` and ``z`` with features ``phi`` and ``psi``; of steps by ``near`` (below)."""
    matrix = np.zeros((len(x), len(z)))
    squares = [(x[:, f, None] - z[:, f]) ** 2 for f in range(x.shape[1])] if near is None else near
    for i in range(len(x)):
        for j in range(len(z)):
            r = math.sqrt(sum(square[i, j] / lengths[f] ** 2 for f, square in enumerate(squares)))
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
