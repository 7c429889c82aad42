"""A training term against predictions that depend on an attribute such as sex or age."""

import math
from typing import cast

import torch
from torch import Tensor, nn

from vicinal.core import check_choice
from vicinal.core.checks import check_between
from vicinal.losses import distance_covariance, equal_rates
from vicinal.losses.fairness import Rate
from vicinal.settings import RATES

_FLOOR = 1e-4
_COUNTED = {"true_positive": 1, "false_positive": 0}
_LEAST = 4


class FairTerm(nn.Module):
    r"""$\lambda \sum_k |g_k / g - 1|$ of the rates of a batch's groups, :func:`vicinal.losses.equal_rates` (fairret).

    For two classes, the rate is that of the second; for more, the term is the mean over the classes. For numbers it is
    $\lambda$ times the unbiased :func:`vicinal.losses.distance_covariance` of predictions on [0, 1] and groups.

    Args:
        groups: of all rows ``[n]``, whole numbers from 0.
        weight: $\lambda \ge 0$; None: 0.1 for classes, 1 for numbers.
        rate: one of :data:`vicinal.settings.RATES`; not used for numbers.
        numbers: whether numbers are predicted.
        multilabel: whether rows can have several classes.

    >>> term = FairTerm(torch.tensor([0, 0, 1]), weight=1.0)
    >>> chances = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9]])
    >>> term(chances, torch.eye(2)[[0, 0, 1]], torch.arange(3))
    tensor(1.1998)
    """

    def __init__(
        self,
        groups: Tensor,
        *,
        weight: float | None = None,
        rate: str = "positive",
        numbers: bool = False,
        multilabel: bool = False,
    ) -> None:
        super().__init__()
        usual = 1.0 if numbers else 0.1
        self.weight = check_between("fair_weight", usual if weight is None else weight, 0, math.inf, closed=True)
        self.rate, self.numbers = cast(Rate, check_choice("fair_rate", rate, RATES)), numbers
        self.multilabel = multilabel
        self.groups: Tensor = nn.Buffer(groups, persistent=False)

    def forward(self, prediction: Tensor, labels: Tensor, ids: Tensor) -> Tensor:
        """The term of a batch; 0 if fewer than two groups count, or for fewer than four numbers.

        Args:
            prediction: numbers ``[b]`` or ``[b, T]`` on [0, 1], or probabilities ``[b, K]``.
            labels: of classes, 0 or 1 ``[b, K]``; not used for numbers.
            ids: positions of the rows among all, 0 to n - 1, ``[b]``.
        """
        groups = self.groups[ids]
        if self.numbers:
            if len(groups) < _LEAST:
                return prediction.sum() * 0.0
            shares = nn.functional.one_hot(groups).to(prediction) / math.sqrt(2)
            return self.weight * distance_covariance(prediction, shares, unbiased=True)
        first = int(prediction.shape[1] == 2 and not self.multilabel)
        chances = _FLOOR + (1 - 2 * _FLOOR) * prediction
        terms = [self._of_class(chances[:, k], labels[:, k], groups) for k in range(first, chances.shape[1])]
        return self.weight * torch.stack(terms).mean()

    def _of_class(self, chances: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
        """The term of one class, over the groups that have rows counted by its rate."""
        counted = labels == _COUNTED[self.rate] if self.rate in _COUNTED else torch.ones_like(groups, dtype=torch.bool)
        rows = torch.isin(groups, groups[counted])
        if len(torch.unique(groups[rows])) < 2:
            return chances.sum() * 0.0
        return equal_rates(chances[rows], groups[rows], labels[rows], rate=self.rate)
