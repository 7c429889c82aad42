"""Losses of rows with several related columns, as a row of a query against the labels of a catalogue."""

import math

import torch
from torch import Tensor

from vicinal.core import check_between, check_integer, check_number
from vicinal.losses.contract import pair_loss
from vicinal.losses.logsums import log_sum_exp, softplus
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part, pair_terms, row_products, row_terms
from vicinal.losses.positives import related_columns
from vicinal.losses.sloped import sloped
from vicinal.masks.soft_topk import soft_topk_share, soft_topk_shift

PAPER = "arXiv:2310.10636"
CODE = "values of the paper's code, value and gradient in float64"


@pair_loss("decoupled_softmax", "row-separable", "soft-relation", "score-shift-invariant", paper=PAPER, verified=CODE)
def decoupled_softmax(pairs: Pairs, *, temperature: float = 1.0) -> Part:
    r"""Each related column against the unrelated ones, a mean over the related columns of each row.

    $\frac{1}{\sum_j r_{ij}} \sum_j r_{ij} \log(1 + \sum_n e^{(s_{in} - s_{ij})/\tau})$, n over the unrelated columns.

    Related columns do not compete with one another, as they do in a softmax over the row. :func:`nt_xent` has the
    same terms with one mean over all pairs; here rows count alike, however many related columns they have.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0.

    >>> decoupled_softmax(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(1.0986)
    """
    check_between("temperature", temperature, 0, math.inf)
    logits = pairs.scores / temperature
    terms = softplus(log_sum_exp(logits, pairs.negative)[:, None] - logits)
    mass = pairs.positive.sum(-1)
    return row_terms(row_products(terms, pairs.positive) / torch.where(mass > 0, mass, 1.0), mass > 0)


@pair_loss("summed_softmax", "row-separable", "soft-relation", "score-shift-invariant", paper=PAPER, verified=CODE)
def summed_softmax(pairs: Pairs, *, temperature: float = 1.0) -> Part:
    r"""Softmax over the row, summed over the related columns.

    $-\sum_j r_{ij} \log \mathrm{softmax}_j(s_{i\cdot}/\tau)$: :func:`supcon` times the number of related columns.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0.

    >>> summed_softmax(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(2.7726)
    """
    check_between("temperature", temperature, 0, math.inf)
    logits = pairs.scores / temperature
    mass = pairs.positive.sum(-1)
    every = torch.where(mass > 0, log_sum_exp(logits, pairs.weight), 0.0)
    return row_terms(mass * every - row_products(logits, pairs.positive), mass > 0)


@pair_loss("pair_cross_entropy", "row-separable", "soft-relation", paper=PAPER, verified=CODE)
def pair_cross_entropy(pairs: Pairs, *, temperature: float = 1.0, bias: float = 0.0) -> Part:
    r"""Each pair by itself as related or not (binary cross-entropy).

    $-r_{ij} \log \sigma(z_{ij}) - (1 - r_{ij}) \log \sigma(-z_{ij})$ with $z = s / \tau + b$, a mean over all pairs.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0.
        bias: b, the logit of a pair of score 0; below 0 where few pairs are related.

    >>> pair_cross_entropy(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(0.6931)
    """
    check_between("temperature", temperature, 0, math.inf)
    logits = pairs.scores / temperature + check_number("bias", bias)
    return pair_terms(softplus(logits) - pairs.relation * logits, pairs.weight)


@pair_loss("soft_topk", "row-separable", "soft-relation", "score-shift-invariant", paper=PAPER, verified=CODE)
def soft_topk(pairs: Pairs, *, k: int | None = None, alpha: float = 2.0) -> Part:
    r"""Related columns among a smooth choice of the k highest scores.

    $-\frac{1}{\sum_j r_{ij}} \sum_j r_{ij} \log m_{ij}$ with the values $m$ of :func:`vicinal.masks.soft_topk`.

    Args:
        pairs: scores, relation and weight.
        k: how many columns are chosen; None: as many as the row has related ones. A row with no more columns than
            that has them all, and loss 0.
        alpha: > 0, sharpness of the choice; 2 to 10 for scores of some units.

    >>> soft_topk(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(0.6931)
    """
    check_between("alpha", alpha, 0, math.inf)
    weight = None if pairs.full else pairs.weight
    return _soft_topk(pairs.scores, pairs.positive, weight, 0 if k is None else check_integer("k", k), float(alpha))


@sloped("soft_topk")
def _soft_topk(
    scores: Tensor,
    positive: Tensor,
    weight: Tensor | None,
    k: int,
    alpha: float,
    wanted: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mass = positive.sum(-1)
    if not scores.numel():
        return *row_terms(mass.clone(), mass > 0), scores[:, : scores.shape[1] * wanted].clone()
    related, column = related_columns(positive)
    kept = torch.ones_like(scores, dtype=torch.bool) if weight is None else weight > 0
    count = torch.full_like(mass, k) if k else (related > 0).sum(-1).to(mass.dtype)
    logits = soft_topk_shift(scores, kept, count[:, None], alpha).add(scores).mul_(alpha)
    related /= torch.where((mass > 0) & (count < kept.sum(-1)), mass, torch.inf)[:, None]  # else all are chosen
    own = logits.gather(1, column)
    slope = scores[:, :0].clone()
    if wanted:
        pull = related * alpha * own.neg().sigmoid_()
        slope = soft_topk_share(logits, kept).mul_(pull.sum(-1, keepdim=True)).scatter_add_(1, column, -pull)
    return *row_terms(row_products(related, softplus(-own)), mass > 0), slope
