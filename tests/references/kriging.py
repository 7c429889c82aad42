"""Kriging weights of one query, in plain numpy."""

import itertools

import numpy as np


def kernel_problem(query, rows, scale):
    """Covariance of the rows ``[k, k]``, and of the rows with the query ``[k]``."""

    def covariance(first, second):
        distance = np.sqrt(((first[:, None] - second[None]) ** 2).sum(-1)) / scale
        return (1 + np.sqrt(3) * distance) * np.exp(-np.sqrt(3) * distance)

    return covariance(rows, rows), covariance(rows, query[None])[:, 0]


def signed_weights(matrix, vector, active=None):
    """Ordinary kriging: the bordered linear system, over the rows ``active``."""
    active = list(range(len(vector))) if active is None else active
    size = len(active)
    system = np.ones((size + 1, size + 1))
    system[:size, :size] = matrix[np.ix_(active, active)]
    system[size, size] = 0
    weights = np.zeros(len(vector))
    weights[active] = np.linalg.solve(system, np.append(vector[active], 1.0))[:size]
    return weights


def objective(matrix, vector, weights):
    return weights @ matrix @ weights / 2 - weights @ vector


def all_subsets(matrix, vector):
    """Convex weights, by trying every set of rows."""
    best = None
    for size in range(1, len(vector) + 1):
        for active in itertools.combinations(range(len(vector)), size):
            weights = signed_weights(matrix, vector, list(active))
            if weights.min() < 0:
                continue
            value = objective(matrix, vector, weights)
            if best is None or value < best[0]:
                best = value, weights
    return best[1]


def convex_weights(matrix, vector):
    """Convex weights, by the active-set method: one row enters or leaves at a time."""
    active = [int(vector.argmax())]
    weights = signed_weights(matrix, vector, active)
    while True:
        goal = signed_weights(matrix, vector, active)
        if goal.min() < 0:
            falling = [row for row in active if goal[row] < 0]
            shares = [weights[row] / (weights[row] - goal[row]) for row in falling]
            step = min(shares)
            weights = weights + step * (goal - weights)
            leaving = falling[int(np.argmin(shares))]
            weights[leaving] = 0.0
            active.remove(leaving)
            continue
        weights = goal
        slope = matrix @ weights - vector
        slope = slope - slope[active].mean()
        slope[active] = 0.0
        if slope.min() >= -1e-14:
            return weights
        active.append(int(slope.argmin()))
