"""Factorizations and clusters written again in numpy, from the formulas."""

import numpy as np


def als(table, rank, confidence, ridge, sweeps, columns):
    """Row by row, each by its own normal equations; ``table`` is dense, with nan where nothing is given."""
    given = ~np.isnan(table)
    if confidence is None:
        weight, target = given.astype(float), np.nan_to_num(table)
    else:
        clicked = given & (np.nan_to_num(table) > 0)
        weight, target = np.where(clicked, confidence * np.nan_to_num(table), 1.0), clicked.astype(float)

    def solve(others, w, t):
        out = np.zeros((len(w), rank))
        for i in range(len(w)):
            system = others.T @ (w[i][:, None] * others) + ridge * np.eye(rank)
            out[i] = np.linalg.solve(system, others.T @ (w[i] * t[i]))
        return out

    for _ in range(sweeps):
        rows = solve(columns, weight, target)
        columns = solve(rows, weight.T, target.T)
    error = np.sum(weight * (target - rows @ columns.T) ** 2)
    return rows, columns, error + ridge * (np.sum(rows**2) + np.sum(columns**2))


def fastrp(adjacency, projection, weights, degree_power):
    """The explicit sum of powers of the transitions, without normalization."""
    degrees = adjacency.sum(1)
    step = np.diag(1 / degrees) @ adjacency
    scale = np.diag(degrees**degree_power)
    return sum(w * np.linalg.matrix_power(step, k + 1) @ scale @ projection for k, w in enumerate(weights))


def low_rank(sample, rank):
    """The projection to the leading eigenvectors of the second moments of the sample."""
    values, vectors = np.linalg.eigh(sample.T @ sample)
    top = vectors[:, np.argsort(values)[::-1][:rank]]
    return top @ top.T


def transductive(unary, affinity, strength, steps):
    """Bound updates, and the energy after each."""

    def softmax(z):
        z = np.exp(z - z.max(1, keepdims=True))
        return z / z.sum(1, keepdims=True)

    shares, energies = softmax(-unary), []
    for _ in range(steps):
        shares = softmax(-unary + strength * affinity @ shares)
        entropy = np.sum(shares * np.log(np.maximum(shares, 1e-300)))
        energies.append(entropy + np.sum(unary * shares) - strength * np.sum(shares * (affinity @ shares)))
    return shares, energies
