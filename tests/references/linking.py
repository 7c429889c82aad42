"""Hub correction, anchor codes, thresholds and clusters in numpy, as their formulas stand."""

import numpy as np
from scipy.stats import binom


def inverted_softmax(scores, bank, beta):
    return np.exp(beta * scores) / np.exp(beta * bank).sum(axis=0)


def anncur(scores, columns, ridge):
    crossing = scores[:, columns]
    if ridge == 0:
        return np.linalg.pinv(crossing, rcond=1e-10) @ scores
    strength = ridge * np.linalg.norm(crossing, 2) ** 2
    return np.linalg.solve(crossing.T @ crossing + strength * np.eye(len(columns)), crossing.T @ scores)


def passes(wrong, count, precision, level):
    """Whether so few wrong pairs would come by chance, had accepted pairs just this precision."""
    return binom.cdf(wrong, count, 1 - precision) <= level


def bcubed(clusters, truth):
    rows = range(len(truth))
    precision = np.mean([np.mean([truth[j] == truth[i] for j in rows if clusters[j] == clusters[i]]) for i in rows])
    recall = np.mean([np.mean([clusters[j] == clusters[i] for j in rows if truth[j] == truth[i]]) for i in rows])
    return precision, recall, 2 * precision * recall / (precision + recall)
