"""One order out of several: the median by Kendall's tau (Kemeny), Borda's, and fusion of reciprocal ranks."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from vicinal.core import as_tensor, check_choice
from vicinal.core.checks import check_between, check_integer

Item = TypeVar("Item")
Method = Literal["auto", "exact", "local"]

EXACT_ITEMS = 16
"""Most items for which all subsets are gone through."""


class Consensus(NamedTuple):
    """``order``, int64 ``[n]``, best first; its ``distance`` to the rankings; how many ``optima``, None: unknown."""

    order: Tensor
    distance: int
    optima: int | None


def check_rankings(rankings: Tensor, count: int | None) -> tuple[Tensor, int]:
    """Rankings ``[v, m]``, best first and -1 for nothing, and the number of items; see :func:`kemeny`."""
    rankings = as_tensor("rankings", rankings)
    if rankings.ndim != 2 or rankings.dtype != torch.int64 or not rankings.numel():
        raise ValueError(f"rankings: expected int64 [v, m], got {rankings.dtype} {tuple(rankings.shape)}")
    most = int(rankings.max()) + 1
    count = most if count is None else check_integer("count", count, 0)
    if not (rankings >= 0).any():
        raise ValueError("rankings: expected an item at least, got none")
    if int(rankings.min()) < -1 or most > count:
        raise ValueError(f"rankings: expected items from 0 to {count - 1}, or -1 for nothing, got another")
    ordered = rankings.sort(dim=1).values
    if bool(((ordered.diff(dim=1) == 0) & (ordered[:, 1:] >= 0)).any()):
        raise ValueError("rankings: expected each item once in a ranking, got one twice")
    return rankings, count


def item_ranks(rankings: Tensor, count: int) -> Tensor:
    """Rank of each item in each ranking, from 0, int64 ``[v, n]``; -1 where it is not ranked."""
    ranks = torch.full((len(rankings), count + 1), -1)
    places = torch.arange(rankings.shape[1]).expand_as(rankings)
    there = torch.where(rankings >= 0, rankings, count)
    ranks.scatter_(1, there, places)
    return ranks[:, :count]


def preferences(rankings: Tensor, count: int | None = None) -> Tensor:
    """How many rankings have item i before item j, int64 ``[n, n]``; a ranking without one of the two does not count.

    >>> preferences(torch.tensor([[0, 1], [1, 0], [1, 0]])).tolist()
    [[0, 1], [2, 0]]
    """
    rankings, count = check_rankings(rankings, count)
    ranks = item_ranks(rankings, count)
    there = ranks >= 0
    before = (ranks[:, :, None] < ranks[:, None]) & there[:, :, None] & there[:, None]
    return before.sum(dim=0)


def kemeny(rankings: Tensor, count: int | None = None, *, method: Method = "auto") -> Consensus:
    r"""The order of least total distance of Kendall's tau to the rankings: the fewest pairs are turned around.

    Exact by dynamic programming over all subsets: $f(S) = \min_{j \notin S} \sum_{i \in S} c_{ji} + f(S \cup j)$ with
    $c_{ji}$ the rankings that have j before i. Among several best orders it returns the first by item. For more than 16
    items, it starts from Borda's order and swaps pairs as long as that helps.

    Args:
        rankings: int64 ``[v, m]``, best first; -1 is an empty place, so a ranking may hold only some of the items.
        count: n, of items; None: one more than the highest.
        method: "exact", for at most 16 items; "local"; "auto": exact if possible.

    Raises:
        ValueError: for an item twice in a ranking, out of range, or no items.

    >>> kemeny(torch.tensor([[0, 1, 2], [0, 1, 2], [2, 0, 1]]))
    Consensus(order=tensor([0, 1, 2]), distance=2, optima=1)
    """
    check_choice("method", method, ("auto", "exact", "local"))
    rankings, count = check_rankings(rankings, count)
    costs = preferences(rankings, count).numpy()
    if method == "exact" and count > EXACT_ITEMS:
        raise ValueError(f"rankings: expected at most {EXACT_ITEMS} items for method 'exact', got {count}")
    if method == "local" or count > EXACT_ITEMS:
        order, optima = _swapped(costs, borda(rankings, count).numpy()), None
    else:
        order, optima = _best(costs)
    distance = int(np.triu(costs.T[np.ix_(order, order)], 1).sum())
    return Consensus(torch.from_numpy(order), distance, optima)


def _best(costs: np.ndarray) -> tuple[np.ndarray, int]:
    """The first best order, and how many there are; ``costs[j, i]``: rankings that have j before i."""
    # Held and Karp: a mask says which items are placed already; of the others the least cost, and in how many orders
    # it is reached, are those of placing one of them next. Masks of more items come first.
    count = len(costs)
    masks = np.arange(1 << count)
    least = np.zeros(1 << count, dtype=np.int64)
    ways = np.ones(1 << count, dtype=object)
    bits = (masks[:, None] >> np.arange(count)) & 1
    added = bits @ costs.T  # [2^n, n]: what it costs that j comes after all of the subset
    for size in range(count - 1, -1, -1):
        some = masks[bits.sum(axis=1) == size]
        totals = added[some] + least[some[:, None] | (1 << np.arange(count))]
        totals = np.where(bits[some] == 1, np.iinfo(np.int64).max, totals)
        least[some] = totals.min(axis=1)
        follow = np.where(totals == least[some][:, None], ways[some[:, None] | (1 << np.arange(count))], 0)
        ways[some] = follow.sum(axis=1)
    order, mask = [], 0
    for _ in range(count):
        options = [j for j in range(count) if not mask >> j & 1]
        best = min(options, key=lambda j: (added[mask, j] + least[mask | 1 << j], j))
        order.append(best)
        mask |= 1 << best
    return np.array(order, dtype=np.int64), int(ways[0])


def _swapped(costs: np.ndarray, order: np.ndarray) -> np.ndarray:
    """``order`` after swaps of any two items, as long as one makes the distance less."""
    order, count = order.copy(), len(order)
    gain = costs - costs.T  # what is gained by i before j
    improved = True
    while improved:
        improved = False
        for a in range(count):
            for b in range(a + 1, count):
                x, y, inner = order[a], order[b], order[a + 1 : b]
                change = gain[y, x] + gain[y, inner].sum() + gain[inner, x].sum()
                if change > 0:
                    order[a], order[b] = y, x
                    improved = True
    return order


def borda(rankings: Tensor, count: int | None = None) -> Tensor:
    """Items by their mean rank over the rankings that have them, best first, int64 ``[n]``; others last.

    Args:
        rankings: see :func:`kemeny`.
        count: n, of items; None: one more than the highest.

    >>> borda(torch.tensor([[0, 1, 2], [2, 0, 1]])).tolist()
    [0, 2, 1]
    """
    rankings, count = check_rankings(rankings, count)
    ranks = item_ranks(rankings, count)
    there = ranks >= 0
    means = torch.where(there, ranks, 0).sum(dim=0).double() / there.sum(dim=0)
    return torch.where(there.any(dim=0), means, torch.inf).argsort(stable=True)


def reciprocal_rank_sums(items: Tensor, ranks: Tensor, offset: float) -> tuple[Tensor, Tensor, Tensor]:
    r"""What several lists add to each item of a row: $\sum 1 / (c + \mathrm{rank})$, and how many of them have it.

    Args:
        items: int64 ``[b, m]``, the lists of a row side by side; -1 for nothing.
        ranks: of each in its list ``[b, m]``.
        offset: c.

    Returns:
        Items by rising number, each once and -1 in place of others, their sums (float64) and counts, ``[b, m]`` each.

    >>> items, sums, counts = reciprocal_rank_sums(torch.tensor([[4, 7, 7]]), torch.tensor([[1, 2, 1]]), 1.0)
    >>> items.tolist(), sums[0, items[0] >= 0].tolist(), counts[0, items[0] >= 0].tolist()
    ([[4, -1, 7]], [0.5, 0.8333333333333333], [1, 2])
    """
    order = items.argsort(dim=1, stable=True)
    items, ranks = items.gather(1, order), ranks.gather(1, order)
    sums, counts = torch.where(items >= 0, 1 / (offset + ranks.double()), 0.0), torch.ones_like(items)
    last = torch.ones_like(items, dtype=torch.bool)
    for column in range(1, items.shape[1]):  # equal items stand side by side
        same = items[:, column] == items[:, column - 1]
        sums[:, column] += torch.where(same, sums[:, column - 1], 0.0)
        counts[:, column] += torch.where(same, counts[:, column - 1], 0)
        last[:, column - 1] = ~same
    return torch.where(last, items, -1), sums, counts


def reciprocal_rank_fusion(rankings: Tensor, count: int | None = None, *, offset: float = 60.0) -> Tensor:
    r"""Items by the mean of $1 / (60 + \mathrm{rank})$, ranks from 0, best first, int64 ``[n]``.

    The mean is over the rankings that have the item; items in none of them come last.

    Args:
        rankings: see :func:`kemeny`.
        count: n, of items; None: one more than the highest.
        offset: in place of 60, > 0.

    Paper: Cormack, Clarke and Buettcher, 2009.

    >>> reciprocal_rank_fusion(torch.tensor([[0, 1, 2], [2, 0, 1]])).tolist()
    [0, 2, 1]
    """
    check_between("offset", offset, 0, float("inf"))
    rankings, count = check_rankings(rankings, count)
    ranks = torch.arange(rankings.shape[1]).expand_as(rankings).reshape(1, -1)
    items, sums, counts = reciprocal_rank_sums(rankings.reshape(1, -1), ranks, offset)
    there, scores = items >= 0, torch.zeros(count, dtype=torch.float64)
    scores[items[there]] = sums[there] / counts[there]
    return scores.argsort(descending=True, stable=True)


def self_consistent_order(
    rank: Callable[[list[Item]], Sequence[int]],
    items: Sequence[Item],
    *,
    repeats: int = 20,
    seed: int = 0,
    method: Method = "auto",
) -> Consensus:
    """The order of a ranker that is led by the order of its input: of what it says of shuffled inputs (Kemeny).

    Args:
        rank: ``rank(items)`` returns positions in its list of items, best first; it may leave some out.
        items: n items.
        repeats: number of shuffles, >= 1.
        seed: of the shuffles.
        method: see :func:`kemeny`.

    Paper: arXiv:2310.07712.

    >>> self_consistent_order(lambda words: sorted(range(3), key=lambda i: words[i]), ["b", "c", "a"]).order.tolist()
    [2, 0, 1]
    """
    check_integer("repeats", repeats)
    generator = torch.Generator().manual_seed(seed)
    rankings = torch.full((repeats, max(1, len(items))), -1)
    for row in range(repeats):
        order = torch.randperm(len(items), generator=generator)
        places = torch.as_tensor(list(rank([items[i] for i in order.tolist()])), dtype=torch.int64)
        if len(places) > len(items) or (len(places) and not 0 <= int(places.min()) <= int(places.max()) < len(items)):
            raise ValueError(f"rank: expected places of {len(items)} items, from 0, got {places.tolist()}")
        rankings[row, : len(places)] = order[places]
    return kemeny(rankings, len(items), method=method)
