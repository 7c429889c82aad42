"""Losses of sets: classes as subsets of a batch, measured by submodular functions (SCoRe)."""

import math
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice
from vicinal.losses.contract import pair_loss
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_products, row_terms

Sets = Literal["rest", "classes"]
CutForm = Literal["information", "correlation", "ratio"]
DetForm = Literal["correlation", "information"]

_PAPER = "arXiv:2310.00165"
_VERIFIED = "released code up to its constants and masked zeros, value and gradient in float64"


@pair_loss("facility_location", "row-separable", "soft-relation", paper=_PAPER, verified=_VERIFIED)
def facility_location(pairs: Pairs, *, temperature: float = 1.0, sets: Sets = "rest") -> Part:
    r"""How well what is unrelated to a row represents it: the softly most similar unrelated column, to be low.

    $\tau\log\sum_n e^{s_{in}/\tau}$ over the unrelated columns n of each row, a soft maximum.

    "rest" takes the unrelated columns as one set, as the authors' program does. "classes" sums the soft maximum over
    each other class, $\sum_k \tau\log\sum_{n \in A_k} e^{s_{in}/\tau}$, the formula of the paper; it reads the classes
    off a relation of the batch against itself. Only unrelated pairs have a gradient, so it is a term to add to a loss
    that pulls related ones together. A row without unrelated columns is left out.

    Args:
        pairs: scores, relation and weight.
        temperature: > 0; towards 0 the soft maximum becomes the maximum.
        sets: "rest", or "classes", which needs the scores of a batch against itself and a relation of classes.

    Raises:
        ValueError: for "classes" with other columns than the rows.

    >>> facility_location(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(0.6931)
    """
    check_between("temperature", temperature, 0, math.inf)
    check_choice("sets", sets, get_args(Sets))
    logits, some = pairs.scores / temperature, (pairs.negative > 0).any(-1)
    value = pairs.log_sum_exp(logits, pairs.negative) if sets == "rest" else _over_classes(logits, pairs)
    return row_terms(temperature * torch.where(some, value, 0.0), some)


def _check_square(scores: Tensor) -> None:
    if scores.shape[0] != scores.shape[1]:
        raise ValueError(f"scores: expected as many rows as columns, the same things, got {tuple(scores.shape)}")


def _over_classes(logits: Tensor, pairs: Pairs) -> Tensor:
    """The log-sum of each class of unrelated columns, summed over classes, ``[b]``."""
    _check_square(logits)
    own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    first = ((pairs.relation > 0) | own).to(torch.uint8).argmax(-1)  # of its class; names it
    kind = first.expand(logits.shape)
    counted = pairs.negative > 0
    floor = torch.full_like(logits, -torch.inf)
    top = floor.scatter_reduce(1, kind, torch.where(counted, logits.detach(), -torch.inf), "amax")
    mass = pairs.negative * torch.where(counted, logits - top.gather(1, kind), 0.0).exp()
    total = torch.zeros_like(logits).scatter_add(1, kind, mass)
    some = total > 0
    return torch.where(some, torch.where(some, total, 1.0).log() + top, 0.0).sum(-1)


@pair_loss("graph_cut", "row-separable", "soft-relation", paper=_PAPER, verified=_VERIFIED)
def graph_cut(pairs: Pairs, *, balance: float = 0.5, form: CutForm = "information") -> Part:
    r"""Similarity across classes, which should be low, against similarity within them.

    With $B_i = \sum_n s_{in}$ over unrelated, $W_i = \sum_p s_{ip}$ over related columns and $r_i$ related ones:
    "information" $(B_i - \lambda W_i)/r_i$, "correlation" $\lambda B_i/r_i$, "ratio" $\log(B_i/(\lambda W_i))$.

    A row without related columns is left out; for "ratio" also one without unrelated columns. "correlation" has a
    gradient through unrelated pairs only.

    Args:
        pairs: scores, relation and weight.
        balance: $\lambda > 0$.
        form: which of the three; "ratio" needs scores above 0, such as $e^{-d^2}$.

    Raises:
        ValueError: for scores that are not above 0 in "ratio".

    >>> graph_cut(torch.tensor([[0.8, 0.2]]), torch.tensor([[1.0, 0.0]]))
    tensor(-0.2000)
    """
    check_between("balance", balance, 0, math.inf)
    check_choice("form", form, get_args(CutForm))
    between, within = row_products(pairs.scores, pairs.negative), row_products(pairs.scores, pairs.positive)
    number = pairs.positive.sum(-1)
    active = number > 0
    if form == "ratio":
        _check_above_0(pairs)
        active = active & (pairs.negative > 0).any(-1)
        across, inside = (torch.where(active, side, 1.0) for side in (between, within))
        return row_terms(across.log() - inside.log() - math.log(balance), active)
    value = balance * between if form == "correlation" else between - balance * within
    return row_terms(value / torch.where(active, number, 1.0), active)


def _check_above_0(pairs: Pairs) -> None:
    low = (pairs.scores.detach() <= 0) & (pairs.weight > 0)
    if not torch.compiler.is_compiling() and bool(low.any()):
        raise ValueError(
            f"scores: expected numbers above 0 under the logarithm, got {float(pairs.scores[low][0]):g}; use a kernel "
            "of a distance, or another form"
        )


@pair_loss("log_det", "square", "soft-relation", "cosine-scores", paper=_PAPER, verified=_VERIFIED)
def log_det(pairs: Pairs, *, ridge: float = 0.5, offset: float = 0.0, form: DetForm = "correlation") -> Part:
    r"""Volume that the classes span one by one beyond the volume that they span together.

    $\log\det(S \circ R + \epsilon I) - \log\det(S + \epsilon I)$ ("correlation"), or the first term alone
    ("information"), for the relation R with ones on its diagonal; each row has an equal share of it.

    For a relation of classes the first term is $\sum_k \log\det(S_{A_k} + \epsilon I)$. For scores that are positive
    semidefinite (cosines, inner products, kernels) the difference is >= 0 (Fischer), and 0 exactly if what is unrelated
    scores 0. Two opposite directions span as little as two equal ones: ``offset=1`` makes them span most. The diagonal
    is read even where its weight is 0; the weight of a pair multiplies its score. Time grows with the cube of the
    batch.

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
    check_between("ridge", ridge, 0, math.inf)
    check_between("offset", offset, 0, math.inf, closed=True)
    check_choice("form", form, get_args(DetForm))
    _check_square(pairs.scores)
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
