"""Candidates by vectors that were turned: a linear map of frozen vectors, learned from rows that match."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.estimators.match_tables import Ids, Log, MatchedTables
from vicinal.similarity.products import l2_normalize

EPOCHS, BATCH, RATE = 20, 32, 1e-3
"""Passes over the matches, those of a step, and the learning rate of Adam."""

TEMPERATURE = 0.05
"""That cosines are divided by."""

HARD = 16
"""Nearest rows that do not match, which each row is compared with beside those of its batch; refreshed in each pass."""


def choose_map(
    tables: MatchedTables,
    train: Ids,
    rest: Ids,
    depth: int,
    temperatures: Sequence[float | None],
    seed: int,
    log: Log,
) -> tuple[float, float]:
    """Give the tables the map of most matches among the candidates of other rows, if it is more than without.

    The map $W$ starts as the identity; its loss is the cross entropy of a match among the matches of the other rows of
    a batch and the nearest rows that are none, by cosines of $W x$. Measured is the share of the matches ``rest`` among
    the first candidates, by vectors and words, averaged over their numbers from 1 to ``depth``.

    Args:
        tables: without a map and without hub correction.
        train: positions ``[n, 2]`` of matches to learn from.
        rest: of matches of other left rows, which choose how long.
        depth: candidates of a row.
        temperatures: of the hub correction: a map is taken if it is better at the best of them for either.
        seed: of the order of the matches.
        log: gets a line.

    Returns:
        What was measured without a map, and with the best one.
    """
    log(f"learning candidates from {len(train)} matches")
    generator = torch.Generator().manual_seed(seed)
    weight = torch.eye(tables.left.vectors.shape[1]).requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=RATE)
    index, tables.index = tables.index, "exact"  # many maps, each looked at for a few rows
    best, chosen = _recall(tables, rest, depth), None
    for _ in range(EPOCHS):
        negatives = _negatives(tables, train)
        for rows in torch.split(torch.randperm(len(train), generator=generator), BATCH):
            optimizer.zero_grad()
            torch.autograd.backward(_loss(tables, weight, torch.from_numpy(train)[rows], negatives[rows]))
            optimizer.step()
        tables.turn(weight.detach().clone())
        share = _recall(tables, rest, depth)
        if share > best:
            best, chosen = share, weight.detach().clone()
    shares = [_corrected_recall(tables, each, rest, depth, temperatures) for each in (None, chosen)]
    tables.index = index
    tables.turn(chosen if shares[1] > shares[0] else None)
    return shares[0], shares[1]


def _corrected_recall(
    tables: MatchedTables, weight: Tensor | None, rest: Ids, depth: int, temperatures: Sequence[float | None]
) -> float:
    """:func:`_recall` with a map at the best temperature of the hub correction."""
    tables.turn(weight)
    shares = []
    for temperature in temperatures:
        tables.correct(temperature)
        shares.append(_recall(tables, rest, depth))
    tables.correct(None)
    return max(shares)


def _negatives(tables: MatchedTables, train: Ids) -> Tensor:
    """Right rows nearest to the left row of each match that do not match it: positions ``[n, HARD]``, -1 for none."""
    left = torch.from_numpy(train[:, 0])
    most = int(pd.Series(train[:, 0]).value_counts().max())
    ids = tables.by_vectors(tables.left.vectors[left], HARD + most, exclude=left if tables.is_single else None).ids
    known = train[:, 0] * len(tables.right) + train[:, 1]
    places = left[:, None].numpy() * len(tables.right) + ids.numpy()
    return ids.masked_fill(torch.from_numpy(np.isin(places, known)), -1)[:, :HARD]


def _loss(tables: MatchedTables, weight: Tensor, matches: Tensor, negatives: Tensor) -> Tensor:
    rows, others = (
        l2_normalize(vectors @ weight)
        for vectors in (tables.left.vectors[matches[:, 0]], tables.right.vectors[matches[:, 1]])
    )
    hard = l2_normalize(tables.right.vectors[negatives.clamp(min=0)] @ weight)
    same = (matches[:, None, 0] == matches[None, :, 0]) | (matches[:, None, 1] == matches[None, :, 1])
    same &= ~torch.eye(len(matches), dtype=torch.bool)
    inside = (rows @ others.T).masked_fill(same, -torch.inf)
    outside = torch.einsum("bd,bhd->bh", rows, hard).masked_fill(negatives < 0, -torch.inf)
    logits = torch.cat([inside, outside], dim=1) / TEMPERATURE
    return torch.nn.functional.cross_entropy(logits, torch.arange(len(matches)))


def _recall(tables: MatchedTables, matches: Ids, depth: int) -> float:
    """Share of matches among the first candidates of their left row, averaged over their numbers up to ``depth``."""
    rows, place = np.unique(matches[:, 0], return_inverse=True)
    ids = tables.candidates(depth, torch.from_numpy(rows)).ids.numpy()
    hit = ids[place.ravel()] == matches[:, 1, None]
    return float(np.cumsum(hit, axis=1).mean())
