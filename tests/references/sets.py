"""Encoders of sets again, in numpy, from the formulas: one set ``[n, d]`` at a time."""

import numpy as np


def weights(module, *names):
    """Parameters of a module as arrays."""
    return [dict(module.named_parameters())[name].detach().numpy() for name in names]


def perceptron(x, module):
    first, a, second, b = (p.detach().numpy() for p in module.parameters())
    return np.maximum(x @ first.T + a, 0) @ second.T + b


def power_sums(encoder, x, scale):
    """sum_i (w_k . x_i)^p for all k and p, then the network."""
    (w,) = weights(encoder, "projection.weight")
    sums = [sum((w[k] @ row / scale) ** p for row in x) for p in range(1, encoder.powers + 1) for k in range(len(w))]
    return perceptron(np.array(sums), encoder.rho)


def exponential_sums(encoder, x, scale):
    (w,) = weights(encoder, "projection.weight")
    sums = [sum(np.exp(np.clip(w[k] @ row / scale, -20, 20)) for row in x) for k in range(len(w))]
    return perceptron(np.array(sums), encoder.rho)


def moments(encoder, x):
    """Mean and deviation of each number of the elements, and the logarithm of one more than there are."""
    deviation = [np.sqrt(np.mean((column - np.mean(column)) ** 2) + 1e-6) for column in x.T]
    return np.array([*(np.mean(column) for column in x.T), *deviation, np.log(1 + len(x))])


def counts(encoder, x):
    """Sum and mean of each number of the elements, and the logarithm of one more than there are."""
    return np.array([*(np.sum(column) for column in x.T), *(np.mean(column) for column in x.T), np.log(1 + len(x))])


def sliced_quantiles(encoder, x):
    """Elements at the ranks of the levels (k - 1/2) / K along each direction, over a root, and how many there are."""
    levels = (np.arange(encoder.levels) + 0.5) / encoder.levels
    along = x @ encoder.along.numpy().T.astype(float)
    quantiles = [np.quantile(column, levels, method="inverted_cdf") for column in along.T]
    return np.array([*(np.concatenate(quantiles) / np.sqrt(len(levels) * along.shape[1])), np.log(1 + len(x))])


def set_score(pool, scores, sharpness=1.0, k=3):
    """Of the scores of the elements of one set with one item."""
    s = np.asarray(scores, float)
    return {
        "max": lambda: s.max(),
        "mean": lambda: s.mean(),
        "logsumexp": lambda: np.log(np.mean(np.exp(sharpness * s))) / sharpness,
        "noisy_or": lambda: 1 - np.prod(1 - 1 / (1 + np.exp(-s))),
        "top_k": lambda: np.sort(s)[-k:].mean(),
    }[pool]()


def maxsim(query, document):
    return sum(max(y @ x for x in document) for y in query)
