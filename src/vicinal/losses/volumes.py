"""The loss of the volumes that classes span, from scores or from the rows themselves."""

import math
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_choice
from vicinal.losses.contract import pair_loss
from vicinal.losses.nodes import node_of_slope
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_terms
from vicinal.losses.rowwise import inner_products
from vicinal.losses.scaling import plain
from vicinal.losses.submodular import PAPER, VERIFIED, check_square

Form = Literal["correlation", "information"]


def _check(ridge: float, offset: float, form: Form) -> None:
    check_between("ridge", ridge, 0, math.inf)
    check_between("offset", offset, 0, math.inf, closed=True)
    check_choice("form", form, get_args(Form))


def _of_classes(
    similarity: nn.Module,
    rows: Tensor,
    classes: Tensor,
    *,
    ridge: float = 0.5,
    offset: float = 0.0,
    form: Form = "correlation",
) -> Part | None:
    r"""The loss of rows whose scores are inner products, in time that grows with b d^2.

    $\det(XX^\top + \epsilon I_n) = \epsilon^{n-d}\det(X^\top X + \epsilon I_d)$, of all rows and of those of a class.
    """
    _check(ridge, offset, form)
    score, given, _ = plain(similarity, rows, rows)
    if score is not inner_products or len(rows) < 2:
        return None
    if offset:
        given = nn.functional.pad(given, (0, 1), value=math.sqrt(offset))
    wanted = given, classes, ridge, form == "correlation"
    value = _NODE(*wanted)[0] if torch.compiler.is_compiling() else _Volumes.apply(*wanted)  # type: ignore[no-untyped-call]
    every = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    return row_terms((value / len(rows)).expand(len(rows)), every)


def _volume(rows: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Of ``rows [..., n, d]`` the summed log det of their inner products with the ridge, and its slope."""
    n, d = rows.shape[-2:]
    sides = rows.mT if n > d else rows  # the shorter side is first
    matrix = sides @ sides.mT
    matrix.diagonal(dim1=-2, dim2=-1).add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if bool(failed.any()):  # rounding of huge rows
        volume = torch.linalg.slogdet(matrix).logabsdet.sum()
        slope = torch.linalg.inv_ex(matrix).inverse @ sides
    else:
        volume = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum()
        slope = torch.cholesky_solve(sides, factor)
    volume = volume + math.prod(rows.shape[:-2]) * max(0, n - d) * math.log(ridge)
    return volume, 2 * (slope.mT if n > d else slope)


def _volumes(rows: Tensor, classes: Tensor, ridge: float, correlation: bool) -> tuple[Tensor, Tensor]:  # noqa: FBT001
    """The volume of each class, summed, for ``correlation`` less that of all rows; and its slope ``[b, d]``."""
    _, kind, count = torch.unique(classes, return_inverse=True, return_counts=True)
    order = (count[kind] * len(count) + kind).argsort()
    volume, slope = rows.new_zeros(()), torch.zeros_like(rows)
    if correlation:
        of_all, rise = _volume(rows, ridge)
        volume, slope = volume - of_all, slope - rise
    start = 0
    for size, number in zip(*(each.tolist() for each in torch.unique(count, return_counts=True)), strict=True):
        members = order[start : start + size * number]  # classes of one size are done at once
        own, rise = _volume(rows.index_select(0, members).view(number, size, -1), ridge)
        volume = volume + own
        slope.index_add_(0, members, rise.reshape(len(members), -1))
        start += size * number
    return volume, slope


class _Volumes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, *wanted: Any) -> Tensor:
        volume, slope = _volumes(rows, *wanted)
        ctx.save_for_backward(slope)
        return volume

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        return slope * slopes[0], None, None, None


_NODE = node_of_slope("volumes", _volumes)


@pair_loss(
    "log_det",
    "square",
    "soft-relation",
    "cosine-scores",
    family="sets",
    paper=PAPER,
    verified=VERIFIED,
    of_classes=_of_classes,
)
def log_det(pairs: Pairs, *, ridge: float = 0.5, offset: float = 0.0, form: Form = "correlation") -> Part:
    r"""Volume that the classes span one by one beyond the volume that they span together.

    $\log\det(S \circ R + \epsilon I) - \log\det(S + \epsilon I)$ ("correlation"), or the first term alone
    ("information"), for the relation R with ones on its diagonal; each row has an equal share of it.

    For a relation of classes the first term is $\sum_k \log\det(S_{A_k} + \epsilon I)$. For scores that are positive
    semidefinite (cosines, inner products, kernels) the difference is >= 0 (Fischer), and 0 exactly if what is unrelated
    scores 0. Two opposite directions span as little as two equal ones: ``offset=1`` makes them span most. The diagonal
    is read even where its weight is 0; the weight of a pair multiplies its score. Time grows with the cube of the
    batch; :class:`EmbeddingLoss` takes inner products and cosines of a batch with classes by the d sides of its rows,
    $\det(XX^\top + \epsilon I_n) = \epsilon^{n-d}\det(X^\top X + \epsilon I_d)$, without a matrix of scores.

    Args:
        pairs: scores, relation and weight.
        ridge: $\epsilon > 0$, added to the diagonal.
        offset: >= 0, added to all scores, as a constant coordinate of all embeddings would.
        form: "correlation" keeps classes apart, "information" draws each together.

    Raises:
        ValueError: if there are not as many rows as columns.

    >>> log_det(torch.tensor([[1.0, 0.5], [0.5, 1.0]]), torch.eye(2), reduction="sum")
    tensor(0.1178)
    """
    _check(ridge, offset, form)
    check_square(pairs.scores)
    counted = pairs.weight > 0
    used = counted.any(-1) | counted.any(0)
    diagonal = torch.where(used, pairs.given.diagonal() + offset, 1.0) + ridge
    apart = pairs.weight * (pairs.scores + offset)
    value = _log_volume_of_classes(apart, pairs.relation, diagonal)
    if form == "correlation":
        value = value - _log_volume(apart, diagonal)
    active = counted.any(-1)
    return row_terms((value / active.sum().clamp(min=1)).expand(len(active)), active)


class _LogDet(torch.autograd.Function):
    """Summed over matrices; by Cholesky's factor where they are positive definite, in half the time of elimination."""

    @staticmethod
    def forward(ctx: Any, apart: Tensor, diagonal: Tensor) -> Tensor:
        matrix = (apart + apart.mT).mul_(0.5)
        matrix.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
        factor, failed = torch.linalg.cholesky_ex(matrix.mT)
        ctx.definite = not bool(failed.any())
        ctx.save_for_backward(factor if ctx.definite else matrix)
        volume: Tensor = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum()
        if not ctx.definite:
            volume = torch.linalg.slogdet(matrix).logabsdet.sum()
        return volume

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, Tensor]:
        (kept,) = ctx.saved_tensors
        inverse = torch.cholesky_inverse(kept) if ctx.definite else torch.linalg.inv_ex(kept).inverse
        slope: Tensor = inverse.mT.mul_(slopes[0])  # it is symmetric, and stored by columns
        own = slope.diagonal(dim1=-2, dim2=-1)
        of_diagonal = own.clone()
        own.zero_()
        return slope, of_diagonal


def _members(relation: Tensor) -> Tensor | None:
    """Rows of each class ``[K, m]``, len(relation) beyond them; None for no relation of classes, or one of few."""
    size = len(relation)
    if torch.compiler.is_compiling() or not size:
        return None
    related = relation.detach().clone().fill_diagonal_(1.0)
    falling = torch.arange(size, 0, -1, dtype=related.dtype, device=related.device)
    first = (related.sign() * falling).amax(-1)  # names the class
    if not torch.equal((1 - (first[:, None] - first).abs_()).clamp_(min=0), related):
        return None
    _, kind, count = torch.unique(first, return_inverse=True, return_counts=True)
    widest = int(count.max())
    if 4 * len(count) * widest**2 > size**2:
        return None
    order = kind.argsort(stable=True)
    kind = kind[order]
    nth = torch.arange(size, device=kind.device) - (count.cumsum(0) - count)[kind]
    member: Tensor = kind.new_full((len(count), widest), size).index_put_((kind, nth), order)
    return member


def _log_volume_of_classes(apart: Tensor, relation: Tensor, diagonal: Tensor) -> Tensor:
    """:func:`_log_volume` of ``apart * relation``, class by class where the relation is that of small classes."""
    member = _members(relation)
    if member is None:
        return _log_volume(apart * relation, diagonal)
    size = len(apart)
    real = member < size
    row = member.clamp(max=size - 1)
    place = (row[:, :, None] * size + row[:, None]).reshape(-1)
    both = real[:, :, None] & real[:, None]
    blocks = torch.where(both, apart.reshape(-1).index_select(0, place).reshape(both.shape), 0.0)
    return _log_volume(blocks, torch.where(real, diagonal[row], 1.0))


def _log_volume(apart: Tensor, diagonal: Tensor) -> Tensor:
    """The log of the absolute determinant of the symmetric part of ``apart [..., n, n]`` with another diagonal."""
    if torch.compiler.is_compiling():
        matrix = ((apart + apart.mT) / 2).diagonal_scatter(diagonal, dim1=-2, dim2=-1)
        return cast(Tensor, torch.linalg.slogdet(matrix).logabsdet)
    return cast(Tensor, _LogDet.apply(apart, diagonal))  # type: ignore[no-untyped-call]
