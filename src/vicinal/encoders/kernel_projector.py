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

STEPS = 16
"""The same where distances are of them."""


class PiecewiseColumns(nn.Module):
    r"""Columns $x$ and piecewise-linear features $\phi(x)$ of those of numbers, centered.

    For the edges $e_k$ of B = 8 bins of as many rows each, the features of a number are $(2 v_k - 1)/\sqrt B$ with
    $v_k = (x - e_k)/(e_{k+1} - e_k)$ cut to 0 and 1, in the outer bins to -1 and 2.

    Args:
        in_dim: p, the width of its input.
        numbers: places of the q columns of numbers in it.
        bins: B.

    Attributes:
        width: p + B q.
    """

    def __init__(self, in_dim: int, numbers: Sequence[int] = (), bins: int = BINS) -> None:
        super().__init__()
        self.in_dim = check_integer("in_dim", in_dim)
        self.numbers, self.bins = list(numbers), bins
        self.width = self.in_dim + bins * len(self.numbers)
        self.edges: Tensor = nn.Buffer(torch.zeros(len(self.numbers), bins + 1, dtype=torch.float64))
        self.center: Tensor = nn.Buffer(torch.zeros(self.width, dtype=torch.float64))

    @torch.no_grad()
    def fit(self, features: Tensor) -> Self:
        """Take the edges of the bins and the center from training rows ``[n, p]``; gives itself."""
        levels = torch.linspace(0, 1, self.bins + 1, dtype=torch.float64)
        if self.numbers:
            self.edges.copy_(self.columns(features)[:, self.numbers].quantile(levels, dim=0).T)
        self.center.zero_()
        self.center.copy_(torch.cat(self.terms(features), dim=1).mean(dim=0))
        return self

    def columns(self, features: Tensor) -> Tensor:
        """The columns ``[b, p]`` that the pieces are of, in float64."""
        return features.double()

    def terms(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Centered columns ``[b, p]`` and their pieces ``[b, B q]``, in float64."""
        wide = self.columns(features)
        if not self.numbers:
            return wide - self.center, wide[:, :0]
        low, high = self.edges[:, :-1], self.edges[:, 1:]
        width = high - low
        share = (wide[:, self.numbers, None] - low) / torch.where(width > 0, width, 1.0)  # [b, q, 8]
        least, most = torch.zeros(self.bins).double(), torch.ones(self.bins).double()
        least[0], most[-1] = -1.0, 2.0
        share = torch.where(width > 0, share.clamp(least.to(share), most.to(share)), 0.5)
        pieces = (2 * share - 1) / math.sqrt(self.bins)
        return wide - self.center[: self.in_dim], pieces.flatten(1) - self.center[self.in_dim :]

    def by_column(self, names: Sequence[str]) -> list[str]:
        """The name of the column of each of the ``width`` terms, from those ``[p]`` of the input."""
        return [*names, *(names[place] for place in self.numbers for _ in range(self.bins))]


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

    After :meth:`read_steps` distances are of steps: $(x_j - x'_j)^2$ of a number gives way to
    $\|\psi_j - \psi'_j\|^2$ with such features $\psi$ of 16 bins. Beyond a bin that is the absolute difference of
    ranks (L1), so that labels may jump along a column.

    Args:
        in_dim: how many columns there are.
        numbers: places of the columns of numbers among them.
        line: whether the kernel has its two terms of inner products; else only $\sqrt 3\, x / \ell$ is left.
        components: make the columns from its input; None: that is the columns.
        stepped: places of the columns that may be read by steps; None: ``numbers``.

    Attributes:
        linear: how many of the last entries enter by their inner product.
        steps: the features that distances are of; None: these are of the columns as they are.
        parts: which length each column has ``[in_dim]``, from 0 on: components of one part share it.

    >>> projector = KernelProjector(2, [0]).fit(torch.tensor([[-1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    >>> projector.dim, projector.linear, projector(torch.zeros(5, 2)).shape
    (12, 10, torch.Size([5, 12]))
    """

    def __init__(
        self,
        in_dim: int,
        numbers: Sequence[int] = (),
        *,
        line: bool = True,
        components: Components | None = None,
        stepped: Sequence[int] | None = None,
    ) -> None:
        super().__init__(in_dim, numbers if line else ())
        self.linear = self.width if line else 0
        self.components = components
        self.stepped = list(numbers if stepped is None else stepped)
        self.steps: PiecewiseColumns | None = None
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

    @torch.no_grad()
    def read_steps(self, features: Tensor | None = None) -> Self:
        """Take distances of steps, between quantiles of training rows ``[n, p]`` (None: to be loaded); gives itself."""
        self.steps = PiecewiseColumns(self.in_dim, self.stepped, STEPS)
        if features is not None:
            self.steps.fit(self.columns(features))
        return self

    @property
    def places(self) -> list[int]:
        """The column of each entry that distances are of ``[w]``."""
        if self.steps is None:
            return list(range(self.in_dim))
        rest = [place for place in range(self.in_dim) if place not in self.stepped]
        return rest + [place for place in self.stepped for _ in range(STEPS)]

    @property
    def dim(self) -> int:
        """Width of its output."""
        return len(self.places) + self.linear

    def near(self, features: Tensor) -> Tensor:
        """What distances are of ``[b, w]``, in units in which all lengths are 1."""
        if self.steps is None:
            return self.columns(features) - self.center[: self.in_dim]
        wide, steps = self.steps.terms(self.columns(features))
        places = self.places[: len(self.places) - steps.shape[1]]
        if self.components is not None:
            steps = steps * self.scale[self.stepped].repeat_interleave(STEPS)
        return torch.cat([wide[:, places], steps], dim=1)

    def columns(self, features: Tensor) -> Tensor:
        """The columns of its input, of wide parts their components."""
        return super().columns(features) if self.components is None else self.components(features) * self.scale

    def forward(self, features: Tensor) -> Tensor:
        """``[b, dim]`` from ``[b, p]``, in float64."""
        width = self.in_dim if self.components is None else sum(self.components.widths)
        if features.ndim != 2 or features.shape[1] != width:
            raise ValueError(f"features: expected [b, {width}], got {tuple(features.shape)}")
        inputs, pieces = self.terms(features)
        near = math.sqrt(3) * self.near(features) * (-self.log_lengths[self.places]).exp()
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
        self.width = len(kernel.places)
        self.dim = self.width + kernel.in_dim * targets
        self.slopes: Tensor = nn.Buffer(torch.zeros(folds, kernel.linear, targets, dtype=torch.float64))
        self.base: Tensor = nn.Buffer(torch.zeros(targets, dtype=torch.float64))
        self.unit: Tensor = nn.Buffer(torch.ones(targets, dtype=torch.float64))

    def forward(self, features: Tensor, folds: Tensor | None = None) -> Tensor:
        """``[b, dim]``, float64, of ``features [b, p]``; ``folds [b]`` as of trees: -1 for the mean of all."""
        p, w = self.trend, self.width
        near, line, pieces = self.kernel(features).tensor_split([w, w + p], dim=1)
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
        near, line = self.kernel(features).tensor_split([self.width], dim=1)
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

    @torch.no_grad()
    def take_lines(self, slopes: Tensor, starts: Tensor) -> None:
        """Take slopes of the centered columns ``[F, T, p]`` and what all rows get by fold ``[F, T]``, and no bends."""
        unit = (self.kernel.log_linear / 2).exp() / math.sqrt(self.kernel.parts[-1] + 1)  # of them in the kernel
        self.slopes[:, : self.trend] = slopes.mT / unit
        self.base.copy_(starts.mean(dim=0))
