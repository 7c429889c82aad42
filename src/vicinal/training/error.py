"""The error that is trained by default: squared for numbers, log-loss for classes."""

from torch import Tensor, nn

_FLOOR = 1e-4
"""Mass given to every class in the log-loss, so that a class without neighbors costs much but not infinitely much."""


def error_of(prediction: Tensor, labels: Tensor) -> Tensor:
    r"""Error of each row ``[b]``: squared for labels ``[b]``, log-loss for one-hot labels ``[b, K]``.

    The log-loss is $-\sum_k y_k \ln(\delta + (1 - K\delta) p_k)$ with $\delta = 10^{-4}$: finite for a class that no
    neighbor has.

    >>> import torch
    >>> error_of(torch.tensor([0.5]), torch.tensor([1.0]))
    tensor([0.2500])
    """
    if labels.ndim == 1:
        return (prediction - labels).square()
    mass = _FLOOR + (1 - labels.shape[1] * _FLOOR) * prediction
    return -(labels * mass.log()).sum(dim=-1)


class MeanError(nn.Module):
    """The default criterion: mean of :func:`error_of` over rows."""

    def forward(self, prediction: Tensor, labels: Tensor) -> Tensor:
        """``[]`` from ``[b]`` and ``[b]``, or from ``[b, K]`` and one-hot ``[b, K]``."""
        return error_of(prediction, labels).mean()
