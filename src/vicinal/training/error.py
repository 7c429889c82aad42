"""The default training error: squared error for numbers, log-loss for one or several classes per row."""

from torch import Tensor, nn

from vicinal.core import check_choice

_FLOOR = 1e-4
"""Probability added to every class in the log-loss, so that a class without neighbors has a finite loss."""


def error_of(prediction: Tensor, labels: Tensor, *, multilabel: bool = False, numbers: bool = False) -> Tensor:
    r"""Error of each row ``[b]``: squared for labels ``[b]``, log-loss for one-hot labels ``[b, K]``.

    The log-loss is $-\sum_k y_k \ln(\delta + (1 - K\delta) p_k)$ with $\delta = 10^{-4}$: finite for a class that no
    neighbor has. For several classes per row (``multilabel``) the error is the mean over classes of the binary log-loss
    $-y_k \ln m_k - (1 - y_k) \ln(1 - m_k)$ with $m_k = \delta + (1 - 2\delta) p_k$; for several numbers per row
    (``numbers``, ``[b, T]``) the mean of their squared errors.

    >>> import torch
    >>> error_of(torch.tensor([0.5]), torch.tensor([1.0]))
    tensor([0.2500])
    """
    if labels.ndim == 1 or numbers:
        return (prediction - labels).square().reshape(len(labels), -1).mean(dim=1)
    if multilabel:
        odds = class_scores(prediction, odds=True)
        return nn.functional.binary_cross_entropy_with_logits(odds, labels, reduction="none").mean(dim=-1)
    return -(labels * class_scores(prediction)).sum(dim=-1)


def class_scores(prediction: Tensor, *, odds: bool = False) -> Tensor:
    r"""Scores of classes ``[b, K]`` from probabilities, $\ln(\delta + (1 - K\delta) p_k)$ with $\delta = 10^{-4}$.

    With ``odds`` the log-odds of each class alone, $\ln \frac{m}{1 - m}$ for $m = \delta + (1 - 2\delta) p_k$.
    """
    if odds:
        return (_FLOOR + (1 - 2 * _FLOOR) * prediction).logit()
    return (_FLOOR + (1 - prediction.shape[1] * _FLOOR) * prediction).log()


class MeanError(nn.Module):
    """The default criterion: the mean of :func:`error_of` over rows; see there for ``multilabel`` and ``numbers``.

    With ``reduction="none"`` it returns the error of each row.
    """

    def __init__(self, *, multilabel: bool = False, numbers: bool = False, reduction: str = "mean") -> None:
        super().__init__()
        self.multilabel, self.numbers = multilabel, numbers
        self.reduction = check_choice("reduction", reduction, ("mean", "none"))

    def forward(self, prediction: Tensor, labels: Tensor) -> Tensor:
        """``[]`` from ``[b]`` and ``[b]``, ``[b, K]`` and one-hot ``[b, K]``, or ``[b, T]`` and ``[b, T]``."""
        error = error_of(prediction, labels, multilabel=self.multilabel, numbers=self.numbers)
        return error.mean() if self.reduction == "mean" else error


def weighted_mean(errors: Tensor, weights: Tensor) -> Tensor:
    r"""$\frac1b \sum_i w_i e_i$ of a batch; for weights of mean 1, the weighted mean of all rows in expectation.

    Args:
        errors: of each row ``[b]``, or ``[b, ...]``, which is averaged to one error per row.
        weights: ``[b]``.

    >>> import torch
    >>> weighted_mean(torch.tensor([1.0, 4.0]), torch.tensor([1.5, 0.5]))
    tensor(1.7500)
    """
    if errors.ndim == 0 or len(errors) != len(weights):
        raise ValueError(f"loss: expected the error of each row [{len(weights)}], got shape {tuple(errors.shape)}")
    return (errors.reshape(len(errors), -1).mean(dim=1) * weights.to(errors)).mean()
