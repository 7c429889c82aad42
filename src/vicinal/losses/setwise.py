"""Losses of sets: classes as subsets of a batch, by submodular functions and volumes."""

import math
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from vicinal.core import check_choice
from vicinal.core.checks import check_between
from vicinal.losses.contract import ROWS, Pairs, RowTerms, pair_loss, row_products, row_terms, some
from vicinal.losses.ranges import Positive

Sets = Literal["rest", "classes"]
CutForm = Literal["information", "correlation", "ratio"]

PAPER = "arXiv:2310.00165"
VERIFIED = "released code up to its constants and masked zeros, value and gradient in float64"


@pair_loss("facility_location", *ROWS, family="setwise", paper=PAPER, verified=VERIFIED)
def facility_location(pairs: Pairs, *, temperature: Positive = 1.0, sets: Sets = "rest") -> RowTerms:
    r"""How well what is unrelated to a row represents it: the softly most similar unrelated column, to be low.

    $\tau\log\sum_n e^{s_{in}/\tau}$ over the unrelated columns n of each row, a soft maximum.

    "rest" takes the unrelated columns as one set, as the authors' code does. "classes" sums the soft maxima of the
    other classes, $\sum_k \tau\log\sum_{n \in A_k} e^{s_{in}/\tau}$, the formula of the paper; it reads the classes off
    a relation of the batch against itself, which has to be a partition. Only unrelated pairs have a gradient, so it is
    a term to add to a loss that pulls related ones together. A row without unrelated columns is left out.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: > 0; towards 0 the soft maximum becomes the maximum.
        sets: "rest", or "classes", which needs the scores of a batch against itself and a relation of classes.

    Raises:
        ValueError: for "classes" if the columns are not the rows, or the relation is no partition into classes (checked
            by its values, for which an accelerator has to wait; a compiled graph skips the check).

    >>> facility_location(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(0.6931)
    """
    logits, some = pairs.scores / temperature, (pairs.negative > 0).any(-1)
    value = pairs.log_sum_exp(logits, pairs.negative) if sets == "rest" else _over_classes(logits, pairs)
    return row_terms(temperature * torch.where(some, value, 0.0), some)


def check_square(scores: Tensor) -> None:
    """Check that rows and columns can be the same things."""
    if scores.shape[0] != scores.shape[1]:
        raise ValueError(f"scores: expected as many rows as columns, the same things, got {tuple(scores.shape)}")


def _over_classes(logits: Tensor, pairs: Pairs) -> Tensor:
    """The log-sum of each class of unrelated columns, summed over classes, ``[b]``."""
    check_square(logits)
    first = _classes(pairs.relation)
    kind = first.expand(logits.shape)
    counted = pairs.negative > 0
    floor = torch.full_like(logits, -torch.inf)
    top = floor.scatter_reduce(1, kind, torch.where(counted, logits.detach(), -torch.inf), "amax")
    mass = pairs.negative * torch.where(counted, logits - top.gather(1, kind), 0.0).exp()
    total = torch.zeros_like(logits).scatter_add(1, kind, mass)
    some = total > 0
    return torch.where(some, torch.where(some, total, 1.0).log() + top, 0.0).sum(-1)


def _classes(relation: Tensor) -> Tensor:
    """The first row of the class of each row, ``[b]``: rows of one class are related to one another, and to no other.

    Raises:
        ValueError: naming two rows that share a class by one of them and not by the other.
    """
    itself = torch.eye(len(relation), dtype=torch.bool, device=relation.device)
    related = (relation > 0) | itself
    first = related.to(torch.uint8).argmax(-1)
    if not torch.compiler.is_compiling():
        wrong = related != (first[:, None] == first)
        if bool(wrong.any()):
            row, column = (int(place) for place in wrong.nonzero()[0])
            raise ValueError(
                "relation: expected classes (rows of one class related to each other and to no others), got rows "
                f"{row} and {column}, which one row relates and another does not; use sets='rest'"
            )
    return first


@pair_loss("graph_cut", *ROWS, family="setwise", paper=PAPER, verified=VERIFIED)
def graph_cut(pairs: Pairs, *, balance: Positive = 0.5, form: CutForm = "information") -> RowTerms:
    r"""Similarity across classes, which should be low, against similarity within them.

    With $B_i = \sum_n s_{in}$ over unrelated, $W_i = \sum_p s_{ip}$ over related columns and $r_i$ related ones:
    "information" $(B_i - \lambda W_i)/r_i$, "correlation" $\lambda B_i/r_i$, "ratio" $\log(B_i/(\lambda W_i))$.

    A row without related columns is left out; for "ratio" also one without unrelated columns. "correlation" has a
    gradient through unrelated pairs only.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        balance: $\lambda > 0$.
        form: which of the three; "ratio" needs scores above 0, such as $e^{-d^2}$.

    Raises:
        ValueError: for scores that are not above 0 in "ratio".

    >>> graph_cut(torch.tensor([[0.8, 0.2]]), torch.tensor([[1.0, 0.0]]))
    tensor(-0.2000)
    """
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


Form = Literal["correlation", "information"]


def _check(ridge: float, offset: float, form: Form) -> None:
    check_between("ridge", ridge, 0, math.inf)
    check_between("offset", offset, 0, math.inf, closed=True)
    check_choice("form", form, get_args(Form))


@pair_loss("log_det", "square", "soft-relation", "cosine-scores", family="setwise", paper=PAPER, verified=VERIFIED)
def log_det(pairs: Pairs, *, ridge: float = 0.5, offset: float = 0.0, form: Form = "correlation") -> RowTerms:
    r"""Volume that the classes span one by one beyond the volume that they span together.

    $\log\det(S \circ R + \epsilon I) - \log\det(S + \epsilon I)$ ("correlation"), or the first term alone
    ("information"), for the relation R with ones on its diagonal; each row gets an equal share of the value.

    For a relation of classes the first term is $\sum_k \log\det(S_{A_k} + \epsilon I)$. For scores that are positive
    semidefinite (cosines, inner products, kernels) the difference is >= 0 (Fischer), and 0 exactly if all unrelated
    pairs score 0. Two opposite directions span as little as two equal ones; with ``offset=1`` they span the most. The
    diagonal is read even where its weight is 0; the weight of a pair multiplies its score. Time grows with the cube of
    the batch.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
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
    diagonal = torch.where(used, pairs.raw_scores.diagonal() + offset, 1.0) + ridge
    apart = pairs.weight * (pairs.scores + offset)
    value = _log_volume(apart * pairs.relation, diagonal)
    if form == "correlation":
        value = value - _log_volume(apart, diagonal)
    return _equal_shares(value, pairs)


def _equal_shares(value: Tensor, pairs: Pairs) -> RowTerms:
    active = some(pairs.weight)
    return row_terms((value / active.sum().clamp(min=1)).expand(len(active)), active)


def _log_volume(apart: Tensor, diagonal: Tensor) -> Tensor:
    """The log of the absolute determinant of the symmetric part of ``apart [n, n]`` with another diagonal."""
    matrix = ((apart + apart.mT) / 2).diagonal_scatter(diagonal, dim1=-2, dim2=-1)
    return cast(Tensor, torch.linalg.slogdet(matrix).logabsdet)
