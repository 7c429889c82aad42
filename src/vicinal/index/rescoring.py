"""Candidates of an approximate index, scored anew from the vectors of a bank."""

import torch
from torch import Tensor, nn

from vicinal.index.bank import NeighborBank
from vicinal.index.base import Hits, ordered
from vicinal.index.pairs import exact_scores, pair_score


def rescored(found: Hits, queries: Tensor, similarity: nn.Module, bank: NeighborBank) -> Hits:
    """``found [b, k]`` with the exact scores of the bank's vectors, ordered by them.

    Candidates that the bank has not are dropped. What the search missed stays missed.

    Raises:
        ValueError: for a similarity that is none of this library.
    """
    score = pair_score(similarity)
    if score is None:
        raise ValueError(f"similarity: expected one of this library, got {similarity!r}")
    positions = bank.positions_of_keys(found.ids.masked_fill(found.ids < 0, -1))
    known = positions >= 0
    lines, _ = known.nonzero(as_tuple=True)
    at = positions[known]
    scores = torch.full_like(found.scores, -torch.inf)
    scores[known] = exact_scores(score, queries, lines, lambda run: bank.vectors_at(at[run]))
    made = ordered(torch.where(known, found.ids, _LAST), scores)
    return Hits(made.ids.masked_fill(made.ids == _LAST, -1), made.scores)


_LAST = torch.iinfo(torch.int64).max
