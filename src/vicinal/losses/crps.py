"""The continuous ranked probability score: training the distribution of neighbor labels, not its mean alone."""

from typing import Self

import torch
from torch import Tensor, nn

from vicinal.core import register
from vicinal.core.checks import check_integer
from vicinal.losses.contract import check_reduction, reduce


@register(
    "loss",
    "crps",
    "number-labels",
    "convex",
    family="distribution",
    paper="Gneiting & Raftery (2007), Strictly Proper Scoring Rules",
    verified="the sum over pairs of labels, in float64",
)
class CRPS(nn.Module):
    r"""$\int (F(t) - 1[y \le t])^2\,dt = \sum_j p_j |y_j - y| - \tfrac12 \sum_{jk} p_j p_k |y_j - y_k|$ of weights p.

    F(t) is the weight on labels of at most t. With all weight on one label this is the absolute error; spread is
    rewarded exactly where labels are uncertain, so intervals of neighbor labels come out narrower. A head is linear in
    the labels, so it returns F if it is given :meth:`steps` of the bank's labels instead. The integral is a sum over
    the gaps between knots, exact if every label is a knot.

    Args:
        knots: how many labels, at most, F is compared between; if there are more, their quantiles are used.
        reduction: "mean", "sum", "none" or "mean_nonzero"; over rows.

    Raises:
        ValueError: for fewer than 2 knots, or use before :meth:`fit`.

    >>> labels = torch.tensor([0.0, 1.0, 3.0])
    >>> loss = CRPS().fit(labels)
    >>> weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
    >>> loss(weights @ loss.steps(labels), loss.steps(torch.tensor([3.0, 1.0])))  # (3 + 0.75) / 2
    tensor(1.8750)
    """

    def __init__(self, knots: int = 64, *, reduction: str = "mean") -> None:
        super().__init__()
        self.knots = check_integer("knots", knots)
        if self.knots < 2:
            raise ValueError(f"knots: expected at least 2, got {knots}")
        self.reduction = check_reduction(reduction)
        self.middles: Tensor = nn.Buffer(torch.zeros(0))
        self.widths: Tensor = nn.Buffer(torch.zeros(0))

    def fit(self, labels: Tensor) -> Self:
        """Take the knots from labels ``[n]``, not all of them equal; returns this loss."""
        rising = labels.detach().flatten().double().sort().values
        knots = torch.unique_consecutive(rising)
        if len(knots) > self.knots:
            levels = torch.linspace(0, 1, self.knots, dtype=torch.float64, device=labels.device)
            places = (levels * (len(rising) - 1)).round().long()  # labels themselves, so that ends and ties are kept
            knots = torch.unique_consecutive(rising[places])
        if len(knots) < 2 or not bool(knots.isfinite().all()):
            raise ValueError(f"labels: expected finite numbers that are not all equal, got {len(knots)} of them")
        self.middles = ((knots[1:] + knots[:-1]) / 2).to(labels.dtype)
        self.widths = knots.diff().to(labels.dtype)
        return self

    def steps(self, labels: Tensor) -> Tensor:
        r"""``[n, K]``: whether each label is at most each place between knots, $1[y \le t]$."""
        if not len(self.middles):
            raise ValueError("crps: expected knots, got none; call fit(labels) first")
        below = (labels[:, None] <= self.middles.to(labels.device)).to(labels.dtype)
        return below.masked_fill(labels.isnan()[:, None], torch.nan)

    def forward(self, cumulative: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """``[]`` or ``[b]``, in units of the labels.

        Args:
            cumulative: F at the places between knots ``[b, K]``.
            target: :meth:`steps` of the true labels ``[b, K]``.
            weight: of the rows ``[b]``, >= 0; 0 leaves out.
        """
        if cumulative.shape != target.shape or cumulative.shape[-1:] != self.widths.shape:
            expected = f"two tensors [b, {len(self.widths)}], as steps gives them"
            raise ValueError(f"crps: expected {expected}, got {tuple(cumulative.shape)} and {tuple(target.shape)}")
        rows = ((cumulative - target).square() * self.widths.to(cumulative)).sum(-1)
        return reduce(rows, weight, None, self.reduction)

    def extra_repr(self) -> str:
        """Settings."""
        return f"knots={self.knots}"
