"""Losses of a softmax over a row: related columns against all, or each against the unrelated ones."""

import functools
import math

import torch
from torch import Tensor

from vicinal.blockwise.logsums import log_sum_exp, softplus
from vicinal.core.checks import check_between, check_integer
from vicinal.losses.contract import (
    NUMPY,
    PAPER_CODE,
    PML,
    ROWS,
    Pairs,
    RowTerms,
    cross_entropy,
    pair_loss,
    row_products,
    row_terms,
    some,
)
from vicinal.losses.ranges import NonNegative, Positive

_ROWS = ("row-separable", "soft-relation", "score-shift-invariant")


_pair_loss = functools.partial(pair_loss, family="softmax over a row")


@_pair_loss("nt_xent", *_ROWS, paper="arXiv:2002.05709", verified=PML)
def nt_xent(pairs: Pairs, *, temperature: float = 0.1, column_log_probability: Tensor | None = None) -> RowTerms:
    r"""Each related column in a softmax against the unrelated ones of its row (InfoNCE).

    $\log(1 + \sum_{n} e^{(s_{in} - s_{ij})/\tau})$ for each related pair, over the unrelated columns n of its row.

    With one related column a row this is InfoNCE. It is computed from a single matrix: a term needs only the log-sum of
    its row's unrelated columns.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0.
        column_log_probability: ``[N]``, log probability of each column to be drawn into the batch, subtracted from the
            logits: in expectation the softmax is then over all that could be drawn (logQ; Yi et al., RecSys 2019).
            None: all the same.

    >>> nt_xent(torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(1.0986)
    """
    logits = _corrected(pairs.scores / check_between("temperature", temperature, 0, math.inf), column_log_probability)
    against = pairs.log_sum_exp(logits, pairs.negative)  # [b]
    if column_log_probability is not None:
        return pairs.terms(softplus(against[:, None] - logits), pairs.positive)
    return pairs.related_terms(lambda score, of_row, _: softplus(of_row(against) - score / temperature))


def _corrected(logits: Tensor, column_log_probability: Tensor | None) -> Tensor:
    """The logits less the log probability of their columns."""
    if column_log_probability is None:
        return logits
    if column_log_probability.shape != logits.shape[1:]:
        shape = tuple(column_log_probability.shape)
        raise ValueError(f"column_log_probability: expected one number a column, [{logits.shape[1]}], got {shape}")
    return logits - column_log_probability.to(logits.dtype)


@_pair_loss("supcon", *_ROWS, paper="arXiv:2004.11362", verified=PML)
def supcon(pairs: Pairs, *, temperature: float = 0.1, column_log_probability: Tensor | None = None) -> RowTerms:
    r"""All related columns as targets of a softmax over the row.

    $-\frac{1}{\sum_j r_{ij}} \sum_j r_{ij} \log \mathrm{softmax}_j(s_{i\cdot}/\tau)$, the softmax over all columns.

    Soft relations are soft targets, so kernels of label distances and shares of labels fit.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0.
        column_log_probability: ``[N]``, log probability of each column to be drawn into the batch, subtracted from the
            logits: in expectation the softmax is then over all that could be drawn (logQ; Yi et al., RecSys 2019).
            None: all the same.

    >>> supcon(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(1.3863)
    """
    logits = pairs.scores / check_between("temperature", temperature, 0, math.inf)
    return cross_entropy(_corrected(logits, column_log_probability), pairs)


@_pair_loss("nca", *_ROWS, paper="Goldberger et al., NeurIPS 2004", verified=PML)
def nca(pairs: Pairs, *, temperature: Positive = 1.0) -> RowTerms:
    r"""The softmax mass that a row gives to its related columns.

    $-\log \sum_j r_{ij}\, \mathrm{softmax}_j(s_{i\cdot}/\tau)$: the log mass of the related columns.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0. Made for negative squared distances.

    >>> nca(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(0.6931)
    """
    logits = pairs.scores / temperature
    related = some(pairs.positive)
    mass = torch.where(related, pairs.log_sum_exp(logits, pairs.positive), 0.0)
    return row_terms(torch.where(related, pairs.log_sum_exp(logits, pairs.weight), 0.0) - mass, related)


def _first_pairs(pairs: Pairs, **_: float) -> tuple[Tensor, Tensor]:
    """Of each row ``[b]`` the first column that counts as related, or -1, and the first that is related at all."""
    relation = pairs.relation
    columns = relation.shape[1]
    if not columns:
        return relation.sum(-1).long() - 1, relation.sum(-1).long()
    falling = torch.arange(columns, 0, -1, dtype=relation.dtype, device=relation.device)
    ranked = (relation if pairs.masks else relation.sign()) * falling
    of_relation = first = columns - ranked.amax(-1).long()
    if not pairs.full:
        first = columns - (ranked * (pairs.weight if pairs.masks else pairs.weight.sign())).amax(-1).long()
    return torch.where(first < columns, first, -1), of_relation.clamp(max=columns - 1)


def _stands(column: Tensor, kind: Tensor, columns: int) -> Tensor:
    """Boolean ``[b]``: the first usable row of its kind."""
    rows = torch.arange(len(column), device=column.device)
    first = torch.full_like(column, len(column)).new_full((columns + 1,), len(column))
    first = first.scatter_reduce(0, torch.where(column >= 0, kind, columns), rows, "amin")
    return (column >= 0) & (first[kind] == rows)


@_pair_loss(
    "n_pairs",
    "order-dependent",
    "score-shift-invariant",
    paper="Sohn, NeurIPS 2016",
    verified=PML,
    batch_stats=_first_pairs,
)
def n_pairs(pairs: Pairs, *, temperature: Positive = 1.0) -> RowTerms:
    r"""Softmax of one pair for each class against the other columns of such pairs.

    Cross-entropy of one pair for each class: $-\log \mathrm{softmax}$ of its column among those of all such pairs.

    Each class is represented by its first row that has a related column, with the first such column. Two rows belong to
    the same class here if the first column that the relation marks for them is the same.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0. Made for scores that are inner products.

    >>> same = torch.tensor([0, 0, 1, 1])[:, None] == torch.tensor([0, 0, 1, 1])
    >>> n_pairs(torch.zeros(4, 4), same.float(), 1 - torch.eye(4))
    tensor(0.6931)
    """
    logits = pairs.scores / temperature
    columns = logits.shape[1]
    column, kind = pairs.stats
    stands = _stands(column, kind, max(columns, len(kind)))
    used = logits.new_zeros(columns + 1).index_fill(0, torch.where(stands, column, columns), 1.0)[:-1]
    block = slice(pairs.start, pairs.start + len(logits))
    target = logits.gather(1, column[block, None].clamp(min=0))[:, 0] if columns else logits.sum(-1)
    every = torch.where(stands[block], pairs.log_sum_exp(logits, pairs.weight * used), 0.0)
    return row_terms(every - target, stands[block])


@_pair_loss(
    "focal_nt_xent", *ROWS, "score-shift-invariant", "stopped-gradient", paper="arXiv:2506.20923", verified=NUMPY
)
def focal_nt_xent(
    pairs: Pairs, *, temperature: Positive = 0.1, focus: NonNegative = 0.5, detach: bool = True
) -> RowTerms:
    r"""InfoNCE with more weight on the pairs that are still wrong.

    $(1 - p_{ij})^\gamma (-\log p_{ij})$ with the softmax mass $p_{ij}$ of a related column against the unrelated ones.

    With ``focus=0`` this is :func:`nt_xent`. The weight passes no gradient unless ``detach=False``. The formula is from
    the paper's text; its code was not available.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0.
        focus: $\gamma \ge 0$.
        detach: treat the weight as a constant.

    >>> focal_nt_xent(torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.0]]), focus=1)
    tensor(0.3466)
    """
    logits = pairs.scores / temperature
    against = pairs.log_sum_exp(logits, pairs.negative)[:, None]
    some = against > -torch.inf
    ahead = logits - torch.where(some, against, 0.0)
    weight = (-focus * softplus(ahead)).exp()  # 1 - p = sigmoid(-ahead)
    terms = (weight.detach() if detach else weight) * softplus(-ahead)
    return pairs.terms(torch.where(some, terms, 0.0), pairs.positive)


@_pair_loss("decoupled_softmax", *ROWS, "score-shift-invariant", paper="arXiv:2310.10636", verified=PAPER_CODE)
def decoupled_softmax(pairs: Pairs, *, temperature: Positive = 1.0) -> RowTerms:
    r"""Each related column against the unrelated ones, a mean over the related columns of each row.

    $\frac{1}{\sum_j r_{ij}} \sum_j r_{ij} \log(1 + \sum_n e^{(s_{in} - s_{ij})/\tau})$, n over the unrelated columns.

    Related columns do not compete with one another, as they do in a softmax over the row. :func:`nt_xent` has the same
    terms with one mean over all pairs; here all rows count the same, however many related columns they have.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0.

    >>> decoupled_softmax(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(1.0986)
    """
    logits = pairs.scores / temperature
    terms = softplus(log_sum_exp(logits, pairs.negative)[:, None] - logits)
    mass = pairs.positive.sum(-1)
    return row_terms(row_products(terms, pairs.positive) / torch.where(mass > 0, mass, 1.0), mass > 0)


@_pair_loss("summed_softmax", *ROWS, "score-shift-invariant", paper="arXiv:2310.10636", verified=PAPER_CODE)
def summed_softmax(pairs: Pairs, *, temperature: float = 1.0, column_log_probability: Tensor | None = None) -> RowTerms:
    r"""Softmax over the row, summed over the related columns.

    $-\sum_j r_{ij} \log \mathrm{softmax}_j(s_{i\cdot}/\tau)$: :func:`supcon` times the number of related columns.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: divides the scores, > 0.
        column_log_probability: ``[N]``, log probability of each column to be drawn into the batch, subtracted from the
            logits: in expectation the softmax is then over all that could be drawn (logQ; Yi et al., RecSys 2019).
            None: all the same.

    >>> summed_softmax(torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))
    tensor(2.7726)
    """
    logits = _corrected(pairs.scores / check_between("temperature", temperature, 0, math.inf), column_log_probability)
    mass = pairs.positive.sum(-1)
    every = torch.where(mass > 0, log_sum_exp(logits, pairs.weight), 0.0)
    return row_terms(mass * every - row_products(logits, pairs.positive), mass > 0)


@_pair_loss("amcl", *ROWS, paper="arXiv:2310.05615", verified=NUMPY)
def amcl(
    pairs: Pairs, *, temperature: float | Tensor = 0.1, dim: int | None = None, factor: NonNegative = 0.1
) -> tuple[RowTerms, ...]:
    r"""InfoNCE with a temperature of its own for every pair.

    $\log(1 + \sum_n e^{s_{in}/\tau_{in} - s_{ij}/\tau_{ij}})$ for each related pair, plus $\beta(\frac d2 \log
    \tau_{ij} + \frac1{\tau_{ij}})$ for each pair; the two are averaged separately.

    With one temperature for all and no ``dim`` it is :func:`nt_xent`. :class:`AdaptiveHeadsLoss` learns the
    temperatures. The paper's published code has no negatives; the contrastive part here follows its text.

    Args:
        pairs: ``scores``, ``relation``, ``weight`` and ``reduction``; see :class:`PairLoss`.
        temperature: $\tau > 0$, a number or ``[b, N]``.
        dim: d, the width of the embeddings, for the second part; None: leave that part out.
        factor: $\beta \ge 0$.

    >>> amcl(torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[1.0, 0.0, 0.0]]), temperature=torch.ones(1, 3))
    tensor(1.0986)
    """
    if isinstance(temperature, Tensor):
        if temperature.shape != pairs.scores.shape:
            raise ValueError(
                f"temperature: expected {tuple(pairs.scores.shape)} as the scores, got {tuple(temperature.shape)}"
            )
        of_pairs = temperature.to(pairs.scores.dtype)
        logits = pairs.scores / of_pairs
        against = pairs.log_sum_exp(logits, pairs.negative)
        contrast = pairs.terms(softplus(against[:, None] - logits), pairs.positive)
    else:
        check_between("temperature", temperature, 0, math.inf)
        of_pairs = pairs.scores.new_tensor(temperature)
        against = pairs.log_sum_exp(pairs.scores / temperature, pairs.negative)
        contrast = pairs.related_terms(lambda score, of_row, _: softplus(of_row(against) - score / temperature))
    if dim is None:
        return (contrast,)
    penalty = factor * (check_integer("dim", dim) / 2 * of_pairs.log() + 1 / of_pairs)
    return contrast, pairs.terms(penalty.expand_as(pairs.scores), pairs.weight)
