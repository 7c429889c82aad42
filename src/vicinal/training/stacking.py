"""Predictions of several models as one, by what each said of rows that it had not seen."""

import math

import numpy as np
import torch
from torch import Tensor

_BIAS_PENALTY = 0.5


def stack_numbers(sources: Tensor, labels: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor, float]:
    r"""Shares $a_s \ge 0$ of least $\sum_i m_i (y_i - \mu - \sum_s a_s (s_i - \mu))^2$ for each target, $\mu$ its mean.

    Args:
        sources: predictions of several models ``[S, n, T]``, each row predicted without its label.
        labels: ``[n, T]``.
        weights: how many rows each counts as, m ``[n]``; None: one.

    Returns:
        shares ``[S, T]``, what is added to their weighted sum ``[T]``, and the mean squared error.

    References:
        Breiman (1996), Stacked regressions.

    >>> labels = torch.tensor([[1.0], [2.0], [3.0]])
    >>> shares, added, _ = stack_numbers(torch.stack([labels, 5 - labels]), labels)
    >>> [round(one, 6) for one in [*shares.flatten().tolist(), *added.tolist()]]
    [1.0, 0.0, 0.0]
    """
    from scipy.optimize import nnls  # only training needs it

    sources, labels = sources.double(), labels.double()
    mass = torch.ones(len(labels), dtype=torch.float64) if weights is None else weights.double()
    mean = (mass / mass.sum()) @ labels
    root, apart = mass.sqrt()[:, None], sources - mean
    each = [
        nnls((apart[:, :, t].T * root).numpy(), (labels[:, t] - mean[t]).mul(root[:, 0]).numpy())[0]
        for t in range(labels.shape[1])
    ]
    shares = torch.from_numpy(np.stack(each, axis=1))
    said = mean + torch.einsum("st,snt->nt", shares, apart)
    error = float((mass @ (said - labels).square()).mean() / mass.sum())
    return shares, mean * (1 - shares.sum(dim=0)), error


def stack_scores(
    sources: Tensor, labels: Tensor, weights: Tensor | None = None, *, start: float = 0.5, least: Tensor | float = 1e-3
) -> tuple[Tensor, Tensor, float]:
    r"""Slopes $a_s$ and biases b of least log-loss for $p_{ik} \propto e^{\sum_s a_s s_{ik} + b_k}$.

    Targets and penalty are those of :func:`vicinal.training.class_kernel.calibrate_scores`.

    Args:
        sources: scores of several models ``[S, n, K]``, each row predicted without its label.
        labels: one-hot ``[n, K]``.
        weights: of rows ``[n]``; None: 1 each.
        start: of all slopes.
        least: that each may be, or ``[S]`` for each.

    Returns:
        slopes ``[S]``, > 0, biases ``[K]`` of sum 0, and the mean log-loss of the rows.

    References:
        Wolpert (1992), Stacked generalization.

    >>> labels = torch.eye(2).repeat(50, 1)
    >>> good, noise = labels * 2, torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    >>> slopes, _, _ = stack_scores(torch.stack([good, noise]), labels)
    >>> bool(slopes[0] > 3 * slopes[1])
    True
    """
    from scipy.optimize import minimize  # only training needs it

    count, n, classes = sources.shape
    sources, labels = sources.double(), labels.double()
    mass = torch.full((n,), 1 / n, dtype=torch.float64) if weights is None else weights.double() / weights.sum()
    targets = (n * labels + 1 / classes) / (n + 1)
    frequencies, aims = mass @ targets, torch.einsum("n,nk,snk->s", mass, targets, sources)

    def value_and_grad(values: object) -> tuple[float, object]:
        point = torch.as_tensor(values, dtype=torch.float64)
        # slopes by their logarithms: a model may count for little, but never against what it says
        slopes, biases = point[:count].exp(), point[count:]
        odds = biases + torch.einsum("s,snk->nk", slopes, sources)
        chances = odds.softmax(dim=1)
        value = mass @ odds.logsumexp(dim=1) - slopes @ aims - frequencies @ biases
        value = value + _BIAS_PENALTY * biases.square().sum() / n
        of_slopes = slopes * (torch.einsum("n,nk,snk->s", mass, chances, sources) - aims)
        of_biases = mass @ chances - frequencies + 2 * _BIAS_PENALTY * biases / n
        return float(value), torch.cat([of_slopes, of_biases]).numpy()

    ends = torch.as_tensor(least, dtype=torch.float64).expand(count).log()
    begin = torch.cat([ends.clamp(min=math.log(start)), torch.zeros(classes).double()])
    bounds = [(end, math.log(1e4)) for end in ends.tolist()] + [(None, None)] * classes
    best = torch.from_numpy(minimize(value_and_grad, begin.numpy(), jac=True, method="L-BFGS-B", bounds=bounds).x)
    slopes, biases = best[:count].exp(), best[count:] - best[count:].mean()
    chances = torch.log_softmax(biases + torch.einsum("s,snk->nk", slopes, sources), dim=1)
    return slopes, biases, -float(mass @ (chances * labels).sum(dim=1))
