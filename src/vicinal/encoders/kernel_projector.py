"""From the standardized columns of a plain table to vectors in which a learned kernel is a sum of two simple ones."""

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer
from vicinal.encoders.components import Components

BINS = 8
"""Pieces of a column of numbers, between its quantiles."""


class PiecewiseColumns(nn.Module):
    r"""Columns $x$ and piecewise-linear features $\phi(x)$ of those of numbers, centered.

    For the edges $e_k$ of 8 bins of as many rows each, the features of a number are $(2 v_k - 1)/\sqrt 8$ with
    $v_k = (x - e_k)/(e_{k+1} - e_k)$ cut to 0 and 1, in the outer bins to -1 and 2.

    Args:
        in_dim: p, the width of its input.
        numbers: places of the q columns of numbers in it.

    Attributes:
        width: p + 8 q.
    """

    def __init__(self, in_dim: int, numbers: Sequence[int] = ()) -> None:
        super().__init__()
        self.in_dim = check_integer("in_dim", in_dim)
        self.numbers = list(numbers)
        self.width = self.in_dim + BINS * len(self.numbers)
        self.edges: Tensor = nn.Buffer(torch.zeros(len(self.numbers), BINS + 1, dtype=torch.float64))
        self.center: Tensor = nn.Buffer(torch.zeros(self.width, dtype=torch.float64))

    @torch.no_grad()
    def fit(self, features: Tensor) -> Self:
        """Take the edges of the bins and the center from training rows ``[n, p]``; gives itself."""
        levels = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)
        if self.numbers:
            self.edges.copy_(self.columns(features)[:, self.numbers].quantile(levels, dim=0).T)
        self.center.zero_()
        self.center.copy_(torch.cat(self.terms(features), dim=1).mean(dim=0))
        return self

    def columns(self, features: Tensor) -> Tensor:
        """The columns ``[b, p]`` that the pieces are of, in float64."""
        return features.double()

    def terms(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Centered columns ``[b, p]`` and their pieces ``[b, 8 q]``, in float64."""
        wide = self.columns(features)
        if not self.numbers:
            return wide - self.center, wide[:, :0]
        low, high = self.edges[:, :-1], self.edges[:, 1:]
        width = high - low
        share = (wide[:, self.numbers, None] - low) / torch.where(width > 0, width, 1.0)  # [b, q, 8]
        least, most = torch.zeros(BINS).double(), torch.ones(BINS).double()
        least[0], most[-1] = -1.0, 2.0
        share = torch.where(width > 0, share.clamp(least.to(share), most.to(share)), 0.5)
        pieces = (2 * share - 1) / math.sqrt(BINS)
        return wide - self.center[: self.in_dim], pieces.flatten(1) - self.center[self.in_dim :]

    def by_column(self, names: Sequence[str]) -> list[str]:
        """The name of the column of each of the ``width`` terms, from those ``[p]`` of the input."""
        return [*names, *(names[place] for place in self.numbers for _ in range(BINS))]


class KernelProjector(PiecewiseColumns):
    r"""The columns as a kernel sees them: $[\sqrt 3\, x / \ell,\ \sqrt{a/p}\, x,\ \sqrt c\, \phi(x)]$, centered.

    A wide part of a row, such as the embedding of a text, is its leading principal components, which share one length.
    They are scaled to a sum of variances of 1, so that all of them weigh as much as one standardized number, and p
    counts them once.

    Of the kernel $(1 + \sqrt 3 r) e^{-\sqrt 3 r} + \frac a p x^\top x' + c\, \phi(x)^\top \phi(x')$ with
    $r^2 = \sum_j (x_j - x'_j)^2 / \ell_j^2$ the first p entries give $3 r^2$ as their squared distance, and the rest
    the other terms as their inner product. The kernel's own squared distance,
    $2 - 2 (1 + \sqrt 3 r) e^{-\sqrt 3 r} + \dots$, is that of these vectors, $3 r^2 + \dots$, up to terms of third
    order in r, and never more; the nearest rows are those by the latter. $\phi$ are those of
    :class:`PiecewiseColumns`.

    Args:
        in_dim: how many columns there are.
        numbers: places of the columns of numbers among them.
        line: whether the kernel has its two terms of inner products; else only $\sqrt 3\, x / \ell$ is left.
        components: make the columns from its input; None: that is the columns.

    Attributes:
        linear: how many of the last entries enter by their inner product.
        parts: which length each column has ``[in_dim]``, from 0 on: components of one part share it.

    >>> projector = KernelProjector(2, [0]).fit(torch.tensor([[-1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    >>> projector.dim, projector.linear, projector(torch.zeros(5, 2)).shape
    (12, 10, torch.Size([5, 12]))
    """

    def __init__(
        self, in_dim: int, numbers: Sequence[int] = (), *, line: bool = True, components: Components | None = None
    ) -> None:
        super().__init__(in_dim, numbers if line else ())
        self.linear = self.width if line else 0
        self.dim = self.in_dim + self.linear
        self.components = components
        self.parts = list(range(self.in_dim)) if components is None else components.parts()
        if components is not None:
            self.scale: Tensor = nn.Buffer(torch.ones(in_dim, dtype=torch.float64))
        self.log_lengths = nn.Parameter(torch.full((in_dim,), math.log(in_dim) / 2, dtype=torch.float64))
        self.log_linear = nn.Parameter(torch.tensor(0.0, dtype=torch.float64))
        self.log_pieces = nn.Parameter(torch.tensor(0.0, dtype=torch.float64))

    @torch.no_grad()
    def fit(self, features: Tensor) -> Self:
        """Take components and their scale from training rows, then what all columns need; gives itself."""
        if self.components is not None:
            spread = self.components.fit(features)(features).var(dim=0, correction=0)
            parts, shared = torch.tensor(self.parts), torch.tensor(self.components.together())
            total = torch.zeros_like(spread).index_add(0, parts, spread)[parts]
            self.scale.copy_(torch.where(shared & (total > 0), total.rsqrt(), 1.0))
        return super().fit(features)

    def columns(self, features: Tensor) -> Tensor:
        """The columns of its input, of wide parts their components."""
        return super().columns(features) if self.components is None else self.components(features) * self.scale

    def forward(self, features: Tensor) -> Tensor:
        """``[b, dim]`` from ``[b, p]``, in float64."""
        width = self.in_dim if self.components is None else sum(self.components.widths)
        if features.ndim != 2 or features.shape[1] != width:
            raise ValueError(f"features: expected [b, {width}], got {tuple(features.shape)}")
        inputs, pieces = self.terms(features)
        near = math.sqrt(3) * inputs * (-self.log_lengths).exp()
        if not self.linear:
            return near
        line = inputs * (self.log_linear / 2).exp() / math.sqrt(self.parts[-1] + 1)
        return torch.cat([near, line, pieces * (self.log_pieces / 2).exp()], dim=1)

    def extra_repr(self) -> str:
        """Widths, for ``print``."""
        return f"in_dim={self.in_dim}, dim={self.dim}, linear={self.linear}"


class TrendProjector(nn.Module):
    r"""The nearness of a kernel, and what each column adds to the trend of its linear and piecewise-linear part.

    Of the kernel of :class:`KernelProjector` the entries are $[\sqrt 3\, x / \ell,\ t_1 \dots t_p]$ with
    $t_c = \beta_c v_c + \sum_k \beta_{ck} \phi_{ck}$, the posterior mean of the kernel's part that is linear in
    $v = [\sqrt{a/p}\, x, \sqrt c\, \phi(x)]$. Slopes are cross-fitted: a row that they were fitted to has those of the
    fold that left it out, any other row their mean.

    Args:
        kernel: with a line, fitted.
        folds: F.
        targets: T.

    Attributes:
        slopes: $\beta$ of each fold and target ``[F, linear, T]``, in the unit of the kernel's amplitude.
        base: what all rows get ``[T]``, in units of the labels.
        unit: units of the labels in one unit of the entries ``[T]``.
        trend: how many of the last entries are columns of one target: p.
        names: the column of the table that each of these comes from.

    >>> projector = TrendProjector(KernelProjector(2, [0]), folds=5)
    >>> projector.dim, projector.slopes.shape
    (4, torch.Size([5, 10, 1]))
    """

    linear = 0
    cross_fitted = True

    def __init__(self, kernel: KernelProjector, folds: int, targets: int = 1, names: Sequence[str] = ()) -> None:
        super().__init__()
        self.names = list(names)
        self.kernel, self.folds, self.targets, self.trend = kernel, folds, targets, kernel.in_dim
        self.dim = kernel.in_dim * (1 + targets)
        self.slopes: Tensor = nn.Buffer(torch.zeros(folds, kernel.linear, targets, dtype=torch.float64))
        self.base: Tensor = nn.Buffer(torch.zeros(targets, dtype=torch.float64))
        self.unit: Tensor = nn.Buffer(torch.ones(targets, dtype=torch.float64))

    def forward(self, features: Tensor, folds: Tensor | None = None) -> Tensor:
        """``[b, dim]``, float64, of ``features [b, p]``; ``folds [b]`` as of trees: -1 for the mean of all."""
        known, p = self.kernel(features), self.trend
        near, line, pieces = known[:, :p], known[:, p : 2 * p], known[:, 2 * p :]
        slopes = self.slopes.mean(dim=0)[None]
        if folds is not None:
            slopes = torch.where((folds < 0)[:, None, None], slopes, self.slopes[folds.clamp(min=0)])
        added = line[:, :, None] * slopes[:, :p]  # [b, p, T]
        if pieces.shape[1]:
            bent = (pieces[:, :, None] * slopes[:, p:]).unflatten(1, (-1, BINS)).sum(dim=2)
            added = added.index_add(1, torch.tensor(self.kernel.numbers), bent)
        return torch.cat([near, added.transpose(1, 2).flatten(1)], dim=1)

    @torch.no_grad()
    def fit(
        self, features: Tensor, labels: Tensor, folds: Tensor, *, noise: float, amplitude: float, weights: Tensor
    ) -> Self:
        r"""Take slopes by folds: $V^\top K^{-1} (y - \mu)$ of the rows of other folds, $\mu$ their mean by $K^{-1}$.

        Args:
            features: of the rows that it is fitted to ``[n, p]``.
            labels: ``[n, T]``.
            folds: ``[n]``.
            noise: of the kernel, in units of its amplitude.
            amplitude: b of the kernel, in variances of the labels.
            weights: how many rows each counts as ``[n]``.
        """
        known, p = self.kernel(features), self.trend
        near, line = known[:, :p], known[:, p:]
        distance = torch.cdist(near, near)
        matrix = (1 + distance) * (-distance).exp() + line @ line.T + torch.diag(noise / weights)
        self.unit.copy_(labels.std(dim=0, correction=0) * math.sqrt(amplitude))
        means = []
        for fold in range(self.folds):
            at = (folds != fold).nonzero()[:, 0]
            sides = torch.cat([labels[at], torch.ones(len(at), 1, dtype=torch.float64)], dim=1)
            solved = torch.cholesky_solve(sides, torch.linalg.cholesky(matrix[at][:, at]))
            mean = solved[:, :-1].sum(dim=0) / solved[:, -1].sum()
            self.slopes[fold] = line[at].T @ (solved[:, :-1] - solved[:, -1:] * mean) / self.unit
            means.append(mean)
        self.base.copy_(torch.stack(means).mean(dim=0))
        return self
