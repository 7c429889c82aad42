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
