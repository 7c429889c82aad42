"""Regularizers of weights: near values of a set, orthogonal in groups, and used alike by rows of a class."""

import functools
import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_choice, register
from vicinal.core.checks import check_between, check_integer, check_tensor
from vicinal.losses.contract import PAPER_CODE

Values = Literal["binary", "one_sided", "ternary", "eigenvector", "orthogonal"]
_DEGREES = {"binary": 4, "one_sided": 6, "ternary": 8, "eigenvector": 4, "orthogonal": 4}


def _wide(weights: Tensor) -> Tensor:
    check_tensor("weights", weights)
    if weights.ndim < 1 or not weights.is_floating_point():
        raise ValueError(f"weights: expected floating numbers, got {weights.dtype} {tuple(weights.shape)}")
    return weights.to(torch.promote_types(weights.dtype, torch.float32))


_regularizer = functools.partial(register, "regularizer", family="weights")


@_regularizer(
    "cauchy_schwarz",
    paper="arXiv:2503.01639",
    verified="values of the paper's code, value and gradient in float64; columns in closed form",
)
def cauchy_schwarz(
    weights: Tensor, *, values: Values = "binary", matrix: Tensor | None = None, scale_free: bool = False
) -> Tensor:
    r"""Numbers of each row that are one of a few values, at whatever scale: what two vectors lack to be parallel.

    $\|g\|^2 \|h\|^2 - \langle g, h \rangle^2$, summed over rows: "binary" $\pm a$: $n \sum x^4 - (\sum x^2)^2$;
    "one_sided" 0 or a: $\sum x^2 \sum x^4 - (\sum x^3)^2$; "ternary": $\sum x^2 \sum x^6 - (\sum x^4)^2$.

    "eigenvector" of C: $\|Cx\|^2 \|x\|^2 - (x^\top C x)^2$; "orthogonal" columns of one length, of a matrix of K: $K
    \|X^\top X\|_F^2 - (\mathrm{tr}\, X^\top X)^2$. It is at least 0, and 0 exactly for what the name says, at any
    scale, zeros included: add it to a loss that fixes the scale.

    Args:
        weights: x, ``[..., n]``; X, ``[..., n, K]``.
        values: see above.
        matrix: C, ``[n, n]``, for "eigenvector".
        scale_free: divide by the power of $\sum x^2$ that makes it independent of the scale of the weights; 0 for
            zeros.

    >>> cauchy_schwarz(torch.tensor([[2.0, -2.0], [1.0, 0.0]]))
    tensor(1.)
    """
    check_choice("values", values, get_args(Values))
    x = _wide(weights)
    if (matrix is None) == (values == "eigenvector"):
        raise ValueError(f"matrix: expected one for 'eigenvector' and only then, got values={values!r}")
    with torch.autocast(x.device.type, enabled=False):
        if values == "orthogonal":
            gap, mass = _columns(x)
        else:
            one, other, both = _powers(x, values, matrix)
            gap, mass = one * other - both.square(), x.square().sum(-1)
        gap = gap.clamp(min=0)
        if scale_free:
            gap = torch.where(mass > 0, gap / torch.where(mass > 0, mass, 1.0) ** (_DEGREES[values] / 2), 0.0)
        return gap.sum()


def _columns(x: Tensor) -> tuple[Tensor, Tensor]:
    if x.ndim < 2:
        raise ValueError(f"weights: expected columns [..., n, K], got {tuple(x.shape)}")
    products = x.mT @ x
    trace = products.diagonal(dim1=-2, dim2=-1).sum(-1)
    return x.shape[-1] * products.square().sum((-2, -1)) - trace.square(), trace


def _powers(x: Tensor, values: Values, matrix: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Squared lengths of two vectors of each row, and their inner product."""
    if matrix is not None:
        if matrix.shape != (x.shape[-1], x.shape[-1]):
            raise ValueError(f"matrix: expected [{x.shape[-1]}, {x.shape[-1]}], got {tuple(matrix.shape)}")
        moved = x @ matrix.to(x.dtype).mT
        return moved.square().sum(-1), x.square().sum(-1), (moved * x).sum(-1)
    low, high = {"binary": (0, 2), "one_sided": (1, 2), "ternary": (1, 3)}[values]
    return (x ** (2 * low)).sum(-1), (x ** (2 * high)).sum(-1), (x ** (low + high)).sum(-1)


Groups = Literal["inter", "intra"]


@_regularizer("group_orthogonality", paper="arXiv:2306.10001", verified=PAPER_CODE)
def group_orthogonality(weights: Tensor, *, groups: int | None = None, form: Groups = "inter") -> Tensor:
    r"""Filters that are orthonormal within groups, which costs less than all with all and leaves more freedom.

    $\sum_B \|B B^\top - I\|_F^2$ over blocks B of rows, or of $B^\top B$ where a block is taller than wide.

    Also useful for prototypes and tables of embeddings.

    Args:
        weights: ``[o, ...]``, o filters.
        groups: G, a divisor of o; None: the largest of at most o / 4 that is.
        form: "inter": blocks of o / G rows that follow one another; "intra": the i-th rows of all such blocks.

    >>> group_orthogonality(2 * torch.eye(4), groups=2)
    tensor(36.)
    """
    rows = _wide(weights)
    rows = rows.reshape(len(rows), -1)
    count = len(rows)
    check_choice("form", form, get_args(Groups))
    if groups is None:
        groups = next((g for g in range(max(1, count // 4), 0, -1) if count % g == 0), 1)
    if count % check_integer("groups", groups):
        raise ValueError(f"groups: expected a divisor of {count} rows, got {groups}")
    with torch.autocast(rows.device.type, enabled=False):
        blocks = rows.view(groups, count // groups, rows.shape[1])
        if form == "intra":
            blocks = blocks.transpose(0, 1)
        side = blocks if blocks.shape[1] <= blocks.shape[2] else blocks.mT
        eye = torch.eye(side.shape[1], dtype=rows.dtype, device=rows.device)
        return (side @ side.mT - eye).square().sum()


@_regularizer(
    "rationale_invariance",
    "class-labels",
    paper="arXiv:2308.11158",
    verified="numpy in float64; the paper's code, read",
)
class RationaleInvariance(nn.Module):
    r"""Rows of a class that come to their scores by the same features, in the same shares (RIDG).

    $\lambda \sum_y \overline{\sum_d (W_{cd} f_{id} - \bar R_{ycd})^2}$, a mean over outputs c and rows i of class y;
    $\bar R_y$ is a moving average of $W_{cd} f_{id}$.

    The gradient reaches the head's weights and the features, not the average, which is updated first.

    Args:
        classes: C.
        dim: D, the width of the features.
        factor: $\lambda \ge 0$.
        rate: $\mu$ in (0, 1], of the average, which starts at the mean when a class is first seen.

    Attributes:
        rationales: ``[C, C, D]``, a buffer that checkpoints keep; NaN for a class that was not seen.

    >>> loss = RationaleInvariance(2, 1, factor=1.0)
    >>> loss(torch.tensor([[1.0], [3.0]]), torch.tensor([0, 0]), torch.tensor([[1.0], [2.0]]))
    tensor(2.5000)
    """

    def __init__(self, classes: int, dim: int, *, factor: float = 0.01, rate: float = 1e-3) -> None:
        super().__init__()
        check_integer("classes", classes), check_integer("dim", dim)
        self.factor = check_between("factor", factor, 0, math.inf, closed=True)
        self.rate = check_between("rate", rate, 0, 1 + 1e-12)
        self.rationales: Tensor = nn.Buffer(torch.full((classes, classes, dim), torch.nan))

    def forward(self, features: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        """The loss.

        Args:
            features: f, ``[b, D]``, what a linear head reads.
            labels: ``[b]``, 0 to C - 1.
            weight: W, ``[C, D]``, of that head.

        Raises:
            ValueError: for other shapes or labels.
        """
        classes, _, dim = self.rationales.shape
        if features.ndim != 2 or features.shape[1] != dim or weight.shape != (classes, dim):
            raise ValueError(
                f"weight: expected [{classes}, {dim}] and features [b, {dim}], got {tuple(weight.shape)} and "
                f"{tuple(features.shape)}"
            )
        if labels.shape != features.shape[:1] or labels.is_floating_point():
            raise ValueError(f"labels: expected whole numbers [{len(features)}], got {tuple(labels.shape)}")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise ValueError(f"labels: expected classes 0 to {classes - 1}, got others")
        dtype = torch.promote_types(features.dtype, torch.float32)
        with torch.autocast(features.device.type, enabled=False):
            rows, head = features.to(dtype), weight.to(dtype)
            total = (rows.sum() + head.sum()) * 0.0
            for label in labels.unique().tolist():  # type: ignore[no-untyped-call]
                shares = rows[labels == label][:, None] * head  # [n, C, D]
                total = total + (shares - self._renewed(label, shares.detach().mean(0))).square().sum(-1).mean()
            return self.factor * total

    def _renewed(self, label: int, now: Tensor) -> Tensor:
        """The moving average of a class, with ``now`` in it."""
        before = self.rationales[label].to(now.dtype)
        after = now if bool(before.isnan().any()) else (1 - self.rate) * before + self.rate * now
        if self.training:
            self.rationales[label] = after.to(self.rationales.dtype)
        return after
