"""Columns from the results of a search: dynamic ones for each step (ADORE), static hard ones drawn once (STAR)."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.core.checks import check_integer
from vicinal.ranks.pairs import check_label_chances


class Retrieved(NamedTuple):
    """Bank rows as columns of each query.

    Attributes:
        columns: whole numbers ``[b, N]``, rows of the bank; 0 where the weight is 0.
        relation: ``[b, N]``, 1 where the column is related.
        weight: ``[b, N]``, 0 for padding.
    """

    columns: Tensor
    relation: Tensor
    weight: Tensor


def with_relevant(results: Tensor, relevant: Tensor, *, always: bool = False) -> Retrieved:
    """The results of a search for each query, with its related rows added if none of them was found.

    Pass the scores of the columns, such as ``torch.einsum("bd,bnd->bn", queries, bank[columns])``, with relation and
    weight to :func:`vicinal.losses.adore` or any other pair loss. Search again at each step, with the current queries;
    only these get a gradient if the bank needs none.

    Args:
        results: whole numbers ``[b, n]``, bank rows found by a search; -1 where it found fewer.
        relevant: whole numbers ``[b, r]``, related bank rows of each query, -1 as padding.
        always: add all related rows that were not found, even if some were.

    Returns:
        columns, relation and weight ``[b, n + r]``.

    Raises:
        ValueError: for a query without a related row, or other shapes.

    >>> retrieved = with_relevant(torch.tensor([[4, 7], [2, 9]]), torch.tensor([[7, -1], [3, -1]]))
    >>> retrieved.columns.tolist(), retrieved.relation.tolist()
    ([[4, 7, 0, 0], [2, 9, 3, 0]], [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    >>> retrieved.weight.tolist()
    [[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]]
    """
    hit = _hits(results, relevant)
    there = relevant >= 0
    if bool((~there.any(dim=1)).any()):
        row = int((~there.any(dim=1)).nonzero()[0])
        raise ValueError(f"relevant: expected at least one related row of each query, got none for query {row}")
    missing = there & ~(relevant[:, :, None] == results[:, None]).any(dim=-1)
    again = (relevant[:, :, None] == relevant[:, None]).tril(-1).any(dim=-1)  # listed twice
    added = missing & ~again if always else there & ~again & ~hit.any(dim=1, keepdim=True)
    counted = torch.cat([results >= 0, added], dim=1)
    columns = torch.cat([results, relevant], dim=1)
    relation = torch.cat([hit, added], dim=1).to(torch.get_default_dtype())
    return Retrieved(torch.where(counted, columns, 0), relation, counted.to(relation.dtype))


def draw_negatives(
    results: Tensor, relevant: Tensor, number: int = 1, *, generator: torch.Generator | None = None
) -> Tensor:
    """Hard unrelated rows of each query, drawn from the results of a search, without replacement.

    A search with a trained model before training gives the static negatives of STAR: train with
    ``triplet(margin=0, smooth=True)`` on the scores of the related rows and of these rows, of all queries of the batch.

    Args:
        results: whole numbers ``[b, n]``, bank rows found by a search; -1 where it found fewer.
        relevant: whole numbers ``[b, r]``, related bank rows of each query, -1 as padding; never drawn.
        number: rows for each query.
        generator: source of random numbers on the device of ``results``.

    Returns:
        whole numbers ``[b, number]``, rows of the bank.

    Raises:
        ValueError: for a query with fewer unrelated rows.

    >>> draw_negatives(torch.tensor([[4, 7, 5]]), torch.tensor([[7, 5]])).tolist()
    [[4]]
    """
    check_integer("number", number)
    usable = ~_hits(results, relevant) & (results >= 0)
    few = usable.sum(dim=1) < number
    if bool(few.any()):
        row = int(few.nonzero()[0])
        raise ValueError(
            f"results: expected at least {number} unrelated rows, got {int(usable[row].sum())} for query {row}"
        )
    chance = torch.rand(results.shape, generator=generator, device=results.device)
    return results.gather(1, torch.where(usable, chance, -1.0).topk(number, dim=1).indices)


def _hits(results: Tensor, relevant: Tensor) -> Tensor:
    """Boolean ``[b, n]``: which results are related."""
    for name, value in (("results", results), ("relevant", relevant)):
        if value.ndim != 2 or len(value) != len(results):
            raise ValueError(f"{name}: expected [{len(results)}, n], a row for each query, got {tuple(value.shape)}")
        if value.is_floating_point():
            raise TypeError(f"{name}: expected whole numbers, got {value.dtype}")
    return ((results[:, :, None] == relevant[:, None]) & (results >= 0)[:, :, None]).any(dim=-1)


def draw_unlabelled(
    scores: Tensor,
    relation: Tensor,
    count: int,
    *,
    missed: float | Tensor = 0.0,
    spurious: float | Tensor = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Unrelated columns of each query, drawn by how hard :func:`vicinal.losses.pair_cross_entropy` pushes them (NBPO).

    The probability is proportional to the slope of the loss divided by $p = \sigma(s)$:
    $(1 - p)(1 - \rho - \rho') / (p \rho + (1 - p)(1 - \rho'))$, which falls to 0 at p = 1 if $\rho > 0$, so a column
    that is surely related but not labelled is not drawn. With $\rho = 0$ all are equally likely. Draw again after some
    steps.

    Args:
        scores: ``[b, N]``, logits.
        relation: ``[b, N]``, 0 where a column is not labelled as related.
        count: number for each query, all different; at most N.
        missed: $\rho$, as for the loss: a number or a tensor.
        spurious: $\rho'$, likewise.
        generator: source of random numbers.

    Returns:
        Columns, whole numbers ``[b, count]``; -1 where a query has no more.

    Paper: arXiv:2007.07204.

    >>> scores, relation = torch.tensor([[30.0, 0.0, 2.0]]), torch.tensor([[0.0, 0.0, 1.0]])
    >>> draw_unlabelled(scores, relation, 1, missed=0.2)
    tensor([[1]])
    """
    if scores.ndim != 2 or scores.shape != relation.shape:
        raise ValueError(f"relation: expected {tuple(scores.shape)} as the scores, got {tuple(relation.shape)}")
    check_integer("count", count, 1, scores.shape[1])
    lost, wrong = check_label_chances(missed, spurious, scores.detach().double())
    odds = torch.where(lost > 0, scores.detach().double().exp() * lost, 0.0)
    mass = torch.where(relation == 0, (1 - lost - wrong) / (odds + 1 - wrong), 0.0).detach()
    draws = torch.empty_like(mass).exponential_(generator=generator) / mass  # the least of them are a draw by mass
    nearest = draws.topk(count, largest=False)
    return torch.where(nearest.values.isfinite(), nearest.indices, -1)
