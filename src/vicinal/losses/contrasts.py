"""Losses of a softmax over a row: related columns against all, or each against the unrelated ones."""

import math

import torch

from vicinal.core import check_between
from vicinal.losses.pairs import (
    PML,
    Pairs,
    Part,
    cross_entropy,
    log_sum_exp,
    pair_loss,
    pair_terms,
    row_terms,
    softplus,
)

_ROWS = ("row-separable", "soft-relation", "score-shift-invariant")


@pair_loss("nt_xent", *_ROWS, paper="arXiv:2002.05709", verified=PML)
def nt_xent(pairs: Pairs, *, temperature: float = 0.1) -> Part:
    r"""Each related column in a softmax against the unrelated ones of its row (InfoNCE).

    $\log(1 + \sum_{n} e^{(s_{in} - s_{ij})/\tau})$ for each related pair, over the unrelated columns n of its row.

    With one related column a row this is InfoNCE. It is computed from one matrix: a term needs the log-sum of its
    row's unrelated columns only.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0.

    >>> nt_xent(torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(1.0986)
    """
    check_between("temperature", temperature, 0, math.inf)
    logits = pairs.scores / temperature
    against = log_sum_exp(logits, pairs.negative)  # [b]
    return pair_terms(softplus(against[:, None] - logits), pairs.positive)


@pair_loss("supcon", *_ROWS, paper="arXiv:2004.11362", verified=PML)
def supcon(pairs: Pairs, *, temperature: float = 0.1) -> Part:
    r"""All related columns as targets of a softmax over the row.

    $-\frac{1}{\sum_j r_{ij}} \sum_j r_{ij} \log \mathrm{softmax}_j(s_{i\cdot}/\tau)$, the softmax over all columns.

    Soft relations are soft targets, so kernels of label distances and shares of labels fit.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0.

    >>> supcon(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(1.3863)
    """
    check_between("temperature", temperature, 0, math.inf)
    return cross_entropy(pairs.scores / temperature, pairs)


@pair_loss("nca", *_ROWS, paper="Goldberger et al., NeurIPS 2004", verified=PML)
def nca(pairs: Pairs, *, temperature: float = 1.0) -> Part:
    r"""The softmax mass that a row gives to its related columns.

    $-\log \sum_j r_{ij}\, \mathrm{softmax}_j(s_{i\cdot}/\tau)$: the log mass of the related columns.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0. Made for negative squared distances.

    >>> nca(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(0.6931)
    """
    check_between("temperature", temperature, 0, math.inf)
    logits = pairs.scores / temperature
    related = (pairs.positive > 0).any(-1)
    mass = torch.where(related, log_sum_exp(logits, pairs.positive), 0.0)
    return row_terms(torch.where(related, log_sum_exp(logits, pairs.weight), 0.0) - mass, related)


@pair_loss("n_pairs", "order-dependent", "score-shift-invariant", paper="Sohn, NeurIPS 2016", verified=PML)
def n_pairs(pairs: Pairs, *, temperature: float = 1.0) -> Part:
    r"""Softmax of one pair for each class against the other columns of such pairs.

    Cross-entropy of one pair for each class: $-\log \mathrm{softmax}$ of its column among those of all such pairs.

    The first row of a class that has a related column stands for it, with the first such column. Two rows are of one
    class here if the first column that they are related to, by the relation alone, is the same.

    Args:
        pairs: scores, relation and weight.
        temperature: divides the scores, > 0. Made for scores that are inner products.

    >>> same = torch.tensor([0, 0, 1, 1])[:, None] == torch.tensor([0, 0, 1, 1])
    >>> n_pairs(torch.zeros(4, 4), same.float(), 1 - torch.eye(4))
    tensor(0.6931)
    """
    check_between("temperature", temperature, 0, math.inf)
    logits = pairs.scores / temperature
    related = pairs.positive > 0
    usable = related.any(-1)
    kind = (pairs.relation > 0).to(torch.uint8).argmax(-1)  # [b], the first of several equal maxima
    alike = (kind[:, None] == kind) & usable  # [b, b]
    stands = usable & (alike.to(torch.uint8).argmax(-1) == torch.arange(len(kind), device=kind.device))
    column = related.to(torch.uint8).argmax(-1)
    used = logits.new_zeros(logits.shape[1]).scatter_reduce(0, column, stands.to(logits.dtype), "amax") > 0
    among = torch.where(used, pairs.weight, 0.0)
    values = log_sum_exp(logits, among) - logits.gather(1, column[:, None])[:, 0]
    return row_terms(values, stands)
