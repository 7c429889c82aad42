"""Transport and permutations again, in numpy, from the formulas."""

import numpy as np


def sinkhorn(scores, row_mass, column_mass, temperature, steps):
    """Columns and rows of exp(scores / temperature) scaled in turn, on logarithms."""
    z = np.asarray(scores) / temperature

    def lse(values, axis):
        top = values.max(axis, keepdims=True)
        return top + np.log(np.exp(values - top).sum(axis, keepdims=True))

    for _ in range(steps):
        z = z - lse(z, 0) + np.log(column_mass)[None, :]
        z = z - lse(z, 1) + np.log(row_mass)[:, None]
    return np.exp(z)


def soft_permutation(scores, temperature, steps):
    ones = np.ones(len(scores))
    return sinkhorn(np.asarray(scores).T, ones, ones, temperature, steps).T


def k_sparsemax(row, k):
    """The simplex projection of the k highest scores, by bisection of the threshold; ties to the highest index."""
    places = sorted(range(len(row)), key=lambda j: (row[j], j))[-k:]
    low, high = min(row) - 2.0, max(row)
    for _ in range(200):
        middle = (low + high) / 2
        total = sum(max(row[j] - middle, 0.0) for j in places)
        low, high = (middle, high) if total > 1 else (low, middle)
    weights = np.zeros(len(row))
    for j in places:
        weights[j] = max(row[j] - low, 0.0)
    return weights


def line_distance(x, y, a, b, power):
    """p-th power of the Wasserstein distance of two weighted sets on a line: mass goes in order, a piece at a time."""
    x, y, a, b = (np.asarray(each, float) for each in (x, y, a, b))
    left, right = (
        [[float(x[i]), float(a[i])] for i in np.argsort(x)],
        [[float(y[j]), float(b[j])] for j in np.argsort(y)],
    )
    total = 0.0
    while left and right:
        piece = min(left[0][1], right[0][1])
        total += piece * abs(left[0][0] - right[0][0]) ** power
        for side in (left, right):
            side[0][1] -= piece
            if side[0][1] <= 1e-15:
                side.pop(0)
    return total
