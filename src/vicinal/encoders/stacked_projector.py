"""From the columns of a table to what each adds to boosted trees and a linear model, of numbers or of classes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.encoders.kernel_projector import PiecewiseColumns
from vicinal.encoders.tree_columns import LinearColumns
from vicinal.encoders.tree_projector import TreeProjector


def log_mean(a: Tensor, b: Tensor) -> Tensor:
    r"""The logarithmic mean $L(a, b) = (a - b) / (\ln a - \ln b)$ from $\ln a$ and $\ln b$; $L(a, a) = a$.

    >>> log_mean(torch.tensor(0.0), torch.tensor(-1.0))  # 1 and 1/e
    tensor(0.6321)
    """
    apart = a - b
    ratio = torch.where(apart == 0, 1.0, torch.expm1(apart) / torch.where(apart == 0, 1.0, apart))
    return b.exp() * ratio


def probability_parts(logits: Tensor, base: Tensor) -> Tensor:
    r"""What each column adds to probabilities of which it adds to the logits: ``[b, K, c]`` of ``logits [b, K, c]``.

    With $z = b + \sum_c F_c$, $p = \mathrm{softmax}(z)$, $p^0 = \mathrm{softmax}(b)$, the logarithmic means
    $L_k = L(p_k, p^0_k)$ and their shares $q_k = L_k / \sum_m L_m$, column c adds
    $g_{kc} = L_k \left(F_{kc} - \sum_m q_m F_{mc}\right)$.

    Both sums are exact: over columns $p_k - p^0_k$, as $\ln p_k - \ln p^0_k = \sum_c F_{kc} - \Delta$ with
    $\Delta = \sum_m q_m \sum_c F_{mc}$ the change of the log-sum-exp; over classes 0. Of two classes it is the share
    of a column in the log-odds, times what these change.

    Args:
        logits: what each column adds ``[b, K, c]``.
        base: what all rows get ``[K]``.

    References:
        Ang (2004), Decomposition analysis for policymaking in energy: the logarithmic mean Divisia index,
        doi:10.1016/S0301-4215(03)00076-4.

    >>> parts = probability_parts(torch.tensor([[[0.0, 0.0], [1.0, 3.0]]]), torch.zeros(2))
    >>> parts.sum(dim=2)[0]  # to sigmoid(4) from 1/2
    tensor([-0.4820,  0.4820])
    """
    after, before = (base + logits.sum(dim=2)).log_softmax(dim=1), base.log_softmax(dim=0)
    means = log_mean(after, before)  # [b, K]
    common = torch.einsum("bk,bkc->bc", means / means.sum(dim=1, keepdim=True), logits)
    return means[:, :, None] * (logits - common[:, None])


class StackedProjector(nn.Module):
    r"""What each column adds to a trend, with the sum over columns in front: $[\sum_c f_{tc},\ f_{11} \dots f_{TC}]$.

    Of numbers $f_{tc} = \alpha_t T_{tc} + \beta_t L_{tc}$, with what a column adds to boosted trees, $T$ (see
    :class:`vicinal.encoders.tree_projector.TreeProjector`), and to a linear model of columns and their
    piecewise-linear features, $L$. Of classes these are log-odds, and f what they add to the probabilities, see
    :func:`probability_parts`. Two rows are near if their columns add alike: in units of the label, or of a
    probability.

    Both models are there once for each fold: a row that they were trained on is embedded by the one that left it out,
    and any other row by their mean.

    Args:
        texts: of each fold the trees of each target, or class; of two classes those of the second alone.
        reader: makes the columns that both read.
        targets: T, or how many classes there are.
        classes: whether they are classes.

    Attributes:
        probabilities: whether f is what columns add to these; False: to numbers, or to log-odds of classes of mean 0.
        slopes: of the linear model of each fold ``[F, T, w]``.
        shares: $\alpha$ and $\beta$ ``[2, T]``.
        start: what all rows get, of classes as log-odds ``[T]``.
        trend: how many of the last entries are columns of one target.
        names: the columns of the table, one for each of these entries.
        base: what all rows get ``[T]``, as probabilities or as log-odds.
        unit: units of the labels in one unit of the entries ``[T]``: 1.
    """

    linear = 0
    cross_fitted = True

    def __init__(
        self, texts: Sequence[Sequence[str]], reader: LinearColumns, targets: int = 1, *, classes: bool = False
    ) -> None:
        super().__init__()
        self.trees, self.reader = TreeProjector(texts, reader), reader
        self.classes = self.probabilities = classes
        if self.trees.targets != (1 if classes and targets == 2 else targets):
            raise ValueError(f"texts: expected trees of {targets} targets, got {self.trees.targets} a fold")
        self.columns = PiecewiseColumns(len(reader.further), reader.numbers)
        self.folds, self.targets = self.trees.folds, targets
        self.names = list(dict.fromkeys(reader.names))
        self.trend = len(self.names)
        self.dim = targets * (1 + self.trend)
        places = {name: place for place, name in enumerate(self.names)}
        self._of_trees = torch.tensor([places[name] for name in reader.names])
        self._of_lines = torch.tensor([places[name] for name in self.columns.by_column(reader.further)])
        self.slopes: Tensor = nn.Buffer(torch.zeros(self.folds, targets, self.columns.width, dtype=torch.float64))
        self.shares: Tensor = nn.Buffer(torch.zeros(2, targets, dtype=torch.float64))
        self.start: Tensor = nn.Buffer(torch.zeros(targets, dtype=torch.float64))
        self.unit: Tensor = nn.Buffer(torch.ones(targets, dtype=torch.float64))

    @property
    def texts(self) -> list[list[str]]:
        """Of each fold the trees of each target, as LightGBM reads them."""
        return self.trees.texts

    @property
    def base(self) -> Tensor:
        """What all rows get, in units of the labels."""
        return self.start.softmax(dim=0) if self.probabilities else self._centered(self.start)

    def forward(self, columns: Tensor, folds: Tensor | None = None) -> Tensor:
        """``[b, dim]``, float64, of ``columns [b, f + p]``; ``folds [b]`` as of trees: -1 for the mean of all."""
        of_trees, of_lines = self.parts(columns, folds)
        added = self.shares[0, :, None] * of_trees + self.shares[1, :, None] * of_lines
        added = probability_parts(added, self.start) if self.probabilities else self._centered(added, dim=1)
        return torch.cat([added.sum(dim=2), added.flatten(1)], dim=1)

    def _centered(self, values: Tensor, dim: int = 0) -> Tensor:
        """Of classes log-odds of mean 0, by which each of two has its part; numbers as they are."""
        return values - values.mean(dim=dim, keepdim=True) if self.classes else values

    def parts(self, columns: Tensor, folds: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What each column of the table adds to trees and to the linear model, ``[b, T, c]`` each."""
        width, modeled = len(self.reader.names), self.trees.targets
        entries = self.trees(columns[:, :width], folds)[:, modeled:].unflatten(1, (modeled, -1))
        of_trees = entries.new_zeros(len(columns), self.targets, self.trend)
        of_trees[:, -modeled:] = of_trees[:, -modeled:].index_add(2, self._of_trees, entries)  # of the first of two: 0
        terms, of_lines = torch.cat(self.columns.terms(columns[:, width:]), dim=1), torch.zeros_like(of_trees)
        codes = torch.full((len(columns),), -1) if folds is None else folds
        for fold in sorted(set(codes.tolist())):
            at = (codes == fold).nonzero()[:, 0]
            slopes, some = self.slopes.mean(dim=0) if fold < 0 else self.slopes[fold], terms[at]
            for place in range(self.trend):
                here = (self._of_lines == place).nonzero()[:, 0]
                of_lines[at, :, place] = some[:, here] @ slopes[:, here].T
        return of_trees, of_lines

    def extra_repr(self) -> str:
        """Counts, for ``print``."""
        return f"folds={self.folds}, targets={self.targets}, columns={self.trend}, probabilities={self.probabilities}"
