"""Regularizers of embeddings, to be added to a loss, and losses of embeddings alone: ``f(embeddings, ...) -> []``."""

import functools
import math

import torch
from torch import Tensor

from vicinal.core import check_choice, register
from vicinal.core.checks import check_between, check_integer, check_matrices
from vicinal.losses.contract import PAPER_CODE
from vicinal.similarity.products import l2_normalize


def wide_rows(embeddings: Tensor) -> Tensor:
    """Embeddings that are a matrix, in float32 or wider."""
    check_matrices(embeddings, embeddings)
    return embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))


_regularizer = functools.partial(register, "regularizer", family="regularizers")


@_regularizer("zero_mean", paper="arXiv:1904.02616", verified="pytorch-metric-learning 2.9.0; numpy in float64")
def zero_mean(embeddings: Tensor, *, factor: float = 1.0) -> Tensor:
    r"""Rows whose coordinates have mean 0, $\lambda\, \mathrm{mean}_i |\sum_k z_{ik}|$.

    Goes with the similarity "snr", which for such rows is the squared distance over the squared length.

    Args:
        embeddings: ``[b, d]``.
        factor: $\lambda \ge 0$.

    >>> zero_mean(torch.tensor([[1.0, -1.0], [1.0, 2.0]]))
    tensor(1.5000)
    """
    check_between("factor", factor, 0, math.inf, closed=True)
    rows = wide_rows(embeddings)
    with torch.autocast(rows.device.type, enabled=False):
        return factor * rows.sum(dim=1).abs().sum() / max(1, len(rows))


@_regularizer(
    "energy_confusion",
    "class-labels",
    "common-shift-invariant",
    "rotation-invariant",
    paper="arXiv:1901.07169",
    verified="numpy in float64",
)
def energy_confusion(
    embeddings: Tensor, labels: Tensor, *, factor: float = 1.0, class_pairs: Tensor | None = None
) -> Tensor:
    r"""Rows of different classes near one another, $\lambda\, \mathrm{mean}_{A \ne B}\, EC(A, B)$ (ECAML).

    $EC(A, B) = \frac{1}{|A||B|} \sum_{a \in A, b \in B} \|z_a - z_b\|^2 = \|\mu_A - \mu_B\|^2 + \mathrm{tr}\,\Sigma_A +
    \mathrm{tr}\,\Sigma_B$, the expected squared distance. It pulls classes together, and on its own would collapse all
    rows into one: add it to a loss that separates them, with a small factor (0.01 to 1). It needs no matrix of pairs.

    Args:
        embeddings: ``[b, d]``.
        labels: whole numbers ``[b]``, of at least two classes.
        factor: $\lambda \ge 0$.
        class_pairs: ``[P, 2]``, the labels of the pairs of classes that count, such as random ones; None: all pairs.

    Raises:
        ValueError: for fewer than two classes, or a pair of classes that are equal or not in the batch.

    >>> energy_confusion(torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([0, 0, 1]))
    tensor(17.)
    """
    check_between("factor", factor, 0, math.inf, closed=True)
    rows = wide_rows(embeddings)
    if labels.shape != (len(rows),) or labels.is_floating_point():
        raise ValueError(
            f"labels: expected whole numbers [{len(rows)}], got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    classes, place = torch.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"labels: expected at least two classes, got {len(classes)}")
    with torch.autocast(rows.device.type, enabled=False):
        rows = rows - rows.detach().mean(dim=0)  # a common offset costs digits
        count = torch.bincount(place)[:, None]
        means = rows.new_zeros(len(classes), rows.shape[1]).index_add(0, place, rows) / count  # [C, d]
        apart = (rows - means[place]).square().sum(dim=1)
        traces = rows.new_zeros(len(classes)).index_add(0, place, apart) / count[:, 0]  # [C]
        if class_pairs is None:  # the mean over all pairs of |mu_A - mu_B|^2 is twice the variance of the means
            spread = (means - means.mean(dim=0)).square().sum() / (len(classes) - 1)
            return factor * 2 * (spread + traces.mean())
        one, other = _places(class_pairs, classes)
        return factor * ((means[one] - means[other]).square().sum(dim=1) + traces[one] + traces[other]).mean()


def _places(class_pairs: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    if class_pairs.ndim != 2 or class_pairs.shape[1] != 2 or not len(class_pairs) or class_pairs.is_floating_point():
        raise ValueError(
            f"class_pairs: expected whole numbers [P, 2] with P >= 1, got {class_pairs.dtype} of shape "
            f"{tuple(class_pairs.shape)}"
        )
    at = torch.searchsorted(classes, class_pairs.contiguous()).clamp(max=len(classes) - 1)
    wrong = (classes[at] != class_pairs).any(dim=1) | (class_pairs[:, 0] == class_pairs[:, 1])
    if bool(wrong.any()):
        raise ValueError(
            f"class_pairs: expected two different classes of the batch, got {class_pairs[wrong][0].tolist()}"
        )
    return at[:, 0], at[:, 1]


@_regularizer("temperature_penalty", paper="arXiv:2310.05615", verified="numpy in float64")
def temperature_penalty(temperature: Tensor, dim: int, *, factor: float = 0.1) -> Tensor:
    r"""Temperatures of pairs neither near 0 nor large, $\beta\, \mathrm{mean}(\frac d2 \log \tau + \frac 1\tau)$.

    Smallest at $\tau = 2/d$. It comes from the density of the scores that the temperatures stand for (AMCL).

    Args:
        temperature: of any shape, > 0.
        dim: d, the width of the embeddings.
        factor: $\beta \ge 0$.

    >>> temperature_penalty(torch.tensor([0.5]), 4)
    tensor(0.0614)
    """
    check_between("factor", factor, 0, math.inf, closed=True)
    wide = temperature.to(torch.promote_types(temperature.dtype, torch.float32))
    return factor * (dim / 2 * wide.log() + 1 / wide).mean()


@_regularizer("flops", paper="arXiv:2004.05665; arXiv:2411.04403", verified=PAPER_CODE)
def flops(embeddings: Tensor, idf: Tensor | None = None, *, groups: int = 1, least: int = 0) -> Tensor:
    r"""Few rows that use a coordinate, so that an inverted index of sparse embeddings is short.

    $\sum_t (\frac1N \sum_n |v_{nt}|/\mathrm{idf}_t)^2$: how much the rows of a batch use each coordinate.

    Rare words, of high idf, cost less where the idf is part of the embeddings.

    Args:
        embeddings: v, ``[N, V]``, such as $\log(1 + [x]_+)$ of logits, times the idf if that is given.
        idf: ``[V]``, > 0; None: 1.
        groups: number of passages of each query, if rows are the passages of one query after another; the mean is then
            over queries for each of these places, and the places are summed.
        least: rows with at most this many nonzero coordinates count as 0.

    >>> flops(torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor(1.2500)
    """
    rows = wide_rows(embeddings)
    check_integer("least", least, 0)
    if check_integer("groups", groups) and len(rows) % groups:
        raise ValueError(f"groups: expected a divisor of {len(rows)} rows, got {groups}")
    with torch.autocast(rows.device.type, enabled=False):
        sizes = rows.abs()
        if least:
            sizes = sizes * ((rows != 0).sum(1, keepdim=True) > least)
        if idf is not None:
            if idf.shape != rows.shape[1:] or not bool((idf > 0).all()):
                raise ValueError(f"idf: expected numbers above 0 [{rows.shape[1]}], got {tuple(idf.shape)}")
            sizes = sizes / idf
        count = max(1, len(rows) // groups)
        return (sizes.view(-1, groups, rows.shape[1]).sum(0) / count).square().sum()


def grown(factor: float, step: int, steps: int) -> float:
    r"""A factor that grows with the square of the steps: $\lambda \min(1, (t + 1)/T)^2$, as :func:`flops` wants it.

    >>> [grown(2.0, step, 4) for step in (0, 1, 3, 9)]
    [0.125, 0.5, 2.0, 2.0]
    """
    return factor * min(1.0, (check_integer("step", step, 0) + 1) / check_integer("steps", steps)) ** 2


def vicreg(
    embeddings: Tensor,
    other: Tensor,
    *,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    eps: float = 1e-4,
) -> Tensor:
    r"""VICReg: $\lambda \overline{(z - z')^2} + \mu[v(Z) + v(Z')] + \nu[c(Z) + c(Z')]$.

    $v$ is half the mean over dimensions of $[1 - \sqrt{\mathrm{Var} + \epsilon}]_+$, which keeps each dimension spread
    out, and c the sum of the squared covariances of different dimensions over d, which decorrelates them.

    Args:
        embeddings: ``[b, d]``, b >= 2.
        other: ``[b, d]``, another view of the same rows in the same order.
        invariance: $\lambda \ge 0$.
        variance: $\mu \ge 0$.
        covariance: $\nu \ge 0$.
        eps: > 0, keeps the gradient of the root finite.

    Returns:
        A number.

    Raises:
        ValueError: for shapes that differ or fewer than 2 rows.

    >>> vicreg(torch.eye(2), torch.eye(2))
    tensor(7.8206)
    """
    check_matrices(embeddings, other)
    if embeddings.shape != other.shape or len(other) < 2:
        raise ValueError(
            f"other: expected {tuple(embeddings.shape)} as the embeddings, at least 2 rows, got {tuple(other.shape)}"
        )
    for name, factor in (("invariance", invariance), ("variance", variance), ("covariance", covariance)):
        check_between(name, factor, 0, math.inf, closed=True)
    check_between("eps", eps, 0, math.inf)
    dtype = torch.promote_types(torch.promote_types(embeddings.dtype, other.dtype), torch.float32)
    with torch.autocast(embeddings.device.type, enabled=False):
        mine, theirs = embeddings.to(dtype), other.to(dtype)
        same = (mine - theirs).square().mean()
        value = same * invariance
        for view in (mine, theirs):
            spread = (1 - (view.var(dim=0) + eps).sqrt()).relu().mean() / 2
            value = value + variance * spread + covariance * covariance_penalty(view)
    return value


def covariance_penalty(embeddings: Tensor) -> Tensor:
    r"""The squared covariances of different dimensions, $\frac1d \sum_{k \ne l} C_{kl}^2$ (VICReg, CML).

    The public code of CML adds the covariances without squares, which may be negative and has no lower bound.

    Args:
        embeddings: ``[b, d]``, b >= 2.

    >>> covariance_penalty(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))
    tensor(4.)
    """
    view = wide_rows(embeddings)
    if len(view) < 2:
        raise ValueError(f"embeddings: expected at least 2 rows, got {len(view)}")
    centered = view - view.mean(dim=0)
    matrix = centered.T @ centered / (len(view) - 1)
    return (matrix.square().sum() - matrix.diagonal().square().sum()) / view.shape[1]


@_regularizer(
    "block_contrast",
    "rotation-invariant",
    paper="arXiv:2209.14067",
    verified="released code, value and gradient in float64; numpy in float64",
)
def block_contrast(embeddings: Tensor, assignment: Tensor, neighbors: Tensor, *, scale: float = 1.0) -> Tensor:
    r"""PamC: $-\overline{\log \sum_j a_{ij} e^{\tau c_{ij}}} + \overline{\log \sum_{k'} e^{\tau C_{kk'}}}$.

    $c_{ij}$ are cosines of rows, $C_{kk'}$ cosines of the sums of rows over blocks, both 0 on the diagonal; a row is in
    the block of its largest assignment. This is not a pair loss ``f(scores, relation)``: the second term needs sums of
    embeddings, so that the negatives cost k^2 instead of n^2, and the first only the scores along edges. Add it to
    others: the paper adds 2 times this to 0.1 times the divergence from the assignment that
    is squared, divided by the mass of its block, and normalized.

    Args:
        embeddings: ``[n, d]``.
        assignment: ``[n, k]``, how much each row belongs to each block; passes no gradient.
        neighbors: ``[n, n]``, weights of the neighbors of each row, dense or sparse (COO), such as powers of an
            adjacency with self loops whose rows sum to 1. A row without weight is left out of the first mean.
        scale: $\tau > 0$, multiplies the cosines.

    Returns:
        A number. Blocks without rows are left out; a zero vector has cosine 0 with all.

    Raises:
        ValueError: for other shapes, or negative weights of neighbors.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> block_contrast(x, torch.eye(2)[[0, 0, 1]], torch.tensor([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]]))
    tensor(0.0265)
    """
    check_between("scale", scale, 0, math.inf)
    rows, n = wide_rows(embeddings), len(embeddings)
    if assignment.ndim != 2 or len(assignment) != n or assignment.shape[1] < 1:
        raise ValueError(f"assignment: expected [{n}, k], a row for each embedding, got {tuple(assignment.shape)}")
    if neighbors.shape != (n, n):
        raise ValueError(f"neighbors: expected [{n}, {n}], got {tuple(neighbors.shape)}")
    with torch.autocast(embeddings.device.type, enabled=False):
        return _against_blocks(rows, assignment, scale) - _along_edges(rows, neighbors, scale)


def _along_edges(rows: Tensor, neighbors: Tensor, scale: float) -> Tensor:
    """The mean over rows of the log of the weighed neighbors, only along the edges."""
    edges = (neighbors if neighbors.is_sparse else neighbors.to_sparse()).coalesce()
    weight = edges.values().to(rows.dtype)
    if not torch.compiler.is_compiling() and bool((weight < 0).any()):
        raise ValueError(f"neighbors: expected weights of at least 0, got {float(weight.min()):g}")
    row, column = edges.indices()
    unit = l2_normalize(rows)
    cosine = torch.where(row == column, 0.0, (unit[row] * unit[column]).sum(-1))
    # cosines are at most 1, so e^(scale * (cosine - 1)) cannot overflow
    mass = rows.new_zeros(len(rows)).index_add(0, row, weight * (scale * (cosine - 1)).exp())
    some = mass > 0
    logs = torch.where(some, torch.where(some, mass, 1.0).log() + scale, 0.0)
    return logs.sum() / some.sum().clamp(min=1)


def _against_blocks(rows: Tensor, assignment: Tensor, scale: float) -> Tensor:
    """The mean over blocks that have rows of the log-sum over such blocks."""
    block = assignment.argmax(dim=-1)
    blocks = assignment.shape[1]
    used = torch.zeros(blocks, dtype=torch.bool, device=rows.device).index_fill(0, block, value=True)
    unit = l2_normalize(rows.new_zeros(blocks, rows.shape[1]).index_add(0, block, rows))
    itself = torch.eye(blocks, dtype=torch.bool, device=rows.device)
    cosine = (unit @ unit.T).masked_fill(itself, 0.0)
    logs = (scale * cosine).masked_fill(~used, -torch.inf).logsumexp(-1)
    return torch.where(used, logs, 0.0).sum() / used.sum().clamp(min=1)


SHAPES = ("linupper", "quadratic", "extremes", "upper")


def loss_weights(losses: Tensor, *, shape: str = "linupper", temperature: float = 1.0) -> Tensor:
    r"""Weights $w = \mathrm{softmax}(F(h) / r)$ of a batch's rows, with h their losses scaled to [-1, 1].

    The shape F: "linupper" $\min(h + 1, 1)$ (only the easiest lose), "quadratic" $1 - h^2$ (the middle), "extremes"
    $|h|$ (both ends), "upper" $(h + 1)/2$ (the harder the more). Sow et al., *Dynamic Loss-Based Sample Reweighting*,
    ICLR 2025 (arXiv:2502.06733). Multiply by the number of rows to keep a mean's scale; start with a large
    temperature (uniform) and lower it.

    Args:
        losses: ``[b]``, one for each row (``reduction="none"`` of any loss); no gradient passes through the weights.
        shape: one of "linupper", "quadratic", "extremes", "upper".
        temperature: r above 0.

    Returns:
        ``[b]``, >= 0, sums to 1; uniform if all losses are equal.

    Raises:
        ValueError: if a loss is not finite.

    >>> loss_weights(torch.tensor([0.0, 1.0, 2.0]), temperature=0.5)
    tensor([0.0634, 0.4683, 0.4683])
    """
    check_choice("shape", shape, SHAPES)
    check_between("temperature", temperature, 0, float("inf"))
    if losses.ndim != 1 or not losses.is_floating_point() or not len(losses):
        raise ValueError(f"losses: expected floating numbers [b], got {losses.dtype} {tuple(losses.shape)}")
    values = losses.detach()
    if not torch.isfinite(values).all():
        raise ValueError("losses: expected finite numbers, got some that are not")
    low, high = values.min(), values.max()
    place = 2 * (values - (low + high) / 2) / (high - low).clamp(min=1e-6)
    if shape == "linupper":
        height = (place + 1).clamp(max=1)
    elif shape == "quadratic":
        height = 1 - place**2
    elif shape == "extremes":
        height = place.abs()
    else:
        height = (place + 1) / 2
    return (height / temperature).softmax(0)
