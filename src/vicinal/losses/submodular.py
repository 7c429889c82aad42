"""Losses of sets: classes as subsets of a batch, measured by submodular functions (SCoRe)."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from vicinal.core import check_between, check_choice
from vicinal.losses.contract import pair_loss
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, row_products, row_terms

Sets = Literal["rest", "classes"]
CutForm = Literal["information", "correlation", "ratio"]

PAPER = "arXiv:2310.00165"
VERIFIED = "released code up to its constants and masked zeros, value and gradient in float64"


@pair_loss("facility_location", "row-separable", "soft-relation", family="sets", paper=PAPER, verified=VERIFIED)
def facility_location(pairs: Pairs, *, temperature: float = 1.0, sets: Sets = "rest") -> Part:
    r"""How well what is unrelated to a row represents it: the softly most similar unrelated column, to be low.

    $\tau\log\sum_n e^{s_{in}/\tau}$ over the unrelated columns n of each row, a soft maximum.

    "rest" takes the unrelated columns as one set, as the authors' program does. "classes" sums the soft maximum over
    each other class, $\sum_k \tau\log\sum_{n \in A_k} e^{s_{in}/\tau}$, the formula of the paper; it reads the classes
    off a relation of the batch against itself, which has to be a partition. Only unrelated pairs have a gradient, so it
    is a term to add to a loss that pulls related ones together. A row without unrelated columns is left out.

    Args:
        pairs: scores, relation and weight.
        temperature: > 0; towards 0 the soft maximum becomes the maximum.
        sets: "rest", or "classes", which needs the scores of a batch against itself and a relation of classes.

    Raises:
        ValueError: for "classes" with other columns than the rows, or a relation that is no partition into classes
            (which is read off its values, so an accelerator waits; a compiled graph does not look).

    >>> facility_location(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(0.6931)
    """
    check_between("temperature", temperature, 0, math.inf)
    check_choice("sets", sets, get_args(Sets))
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


@pair_loss("graph_cut", "row-separable", "soft-relation", family="sets", paper=PAPER, verified=VERIFIED)
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
