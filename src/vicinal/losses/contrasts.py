"""Losses of a softmax over a row: related columns against all, or each against the unrelated ones."""

import math

import torch
from torch import Tensor, nn

from vicinal.core import check_between
from vicinal.losses.contract import PML, pair_loss
from vicinal.losses.logsums import softplus
from vicinal.losses.pairs import Pairs, cross_entropy
from vicinal.losses.parts import Part, row_terms, some
from vicinal.losses.scaling import plain
from vicinal.losses.targets import target_entropy

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
    against = pairs.log_sum_exp(logits, pairs.negative)  # [b]
    return pairs.related_terms(lambda own, of_row, _: softplus(of_row(against) - own / temperature))


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


def _standing(column: Tensor, kind: Tensor, columns: int) -> Tensor:
    """Boolean ``[b]``: the first usable row of its kind."""
    rows = torch.arange(len(column), device=column.device)
    first = torch.full_like(column, len(column)).new_full((columns + 1,), len(column))
    first = first.scatter_reduce(0, torch.where(column >= 0, kind, columns), rows, "amin")
    return (column >= 0) & (first[kind] == rows)


def _chosen(column: Tensor, kind: Tensor, columns: int) -> tuple[Tensor, Tensor, tuple[Tensor]]:
    """Rows and columns that the loss looks at, and which of these columns is the own one of each row."""
    rows = _standing(column, kind, columns).nonzero()[:, 0]
    among, own = torch.unique(column[rows], return_inverse=True)
    return rows, among, (own,)


def _of_classes(similarity: nn.Module, rows: Tensor, classes: Tensor, *, temperature: float = 1.0) -> Part | None:
    """The loss of the first two rows of each class that has two; a compiled graph has no shapes that data decide."""
    if torch.compiler.is_compiling():
        return None
    check_between("temperature", temperature, 0, math.inf)
    ordered, order = classes.sort(stable=True)
    again = ordered[1:] == ordered[:-1]
    place = (again & ~nn.functional.pad(again[:-1], (1, 0))[: len(again)]).nonzero()[:, 0]
    row, number = order[place], len(place)
    both = rows.index_select(0, torch.cat([row, order[place + 1]]))
    score, both, _ = plain(similarity, both, both)
    empty = both.new_zeros(len(rows))
    if not number:
        return Part(rows[:, :0].sum(-1).to(empty.dtype), empty, empty)  # it still has a gradient, of 0
    one, other = both.view(2, number, both.shape[1]).unbind(0)
    value = target_entropy(score(one, other), torch.arange(number, device=rows.device)[:, None], 1 / temperature)
    total = empty.index_add(0, row, value)
    return Part(total, empty.index_fill(0, row, 1.0), (total != 0).to(total.dtype))


@pair_loss(
    "n_pairs",
    "order-dependent",
    "score-shift-invariant",
    paper="Sohn, NeurIPS 2016",
    verified=PML,
    across=_first_pairs,
    chosen=_chosen,
    of_classes=_of_classes,
)
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
    columns = logits.shape[1]
    if len(pairs.shared) == 1:  # rows and columns are chosen already, and all stand
        own = logits.gather(1, pairs.shared[0][:, None])[:, 0] if columns else logits.sum(-1)
        return row_terms(pairs.log_sum_exp_all(logits) - own, torch.ones_like(own, dtype=torch.bool))
    column, kind = pairs.shared
    stands = _standing(column, kind, max(columns, len(kind)))
    used = logits.new_zeros(columns + 1).index_fill(0, torch.where(stands, column, columns), 1.0)[:-1]
    block = slice(pairs.start, pairs.start + len(logits))
    own = logits.gather(1, column[block, None].clamp(min=0))[:, 0] if columns else logits.sum(-1)
    every = torch.where(stands[block], pairs.log_sum_exp(logits, pairs.weight * used), 0.0)
    return row_terms(every - own, stands[block])
