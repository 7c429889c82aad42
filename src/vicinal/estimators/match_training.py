"""Candidates by vectors, made better by rows that match: a linear map of frozen vectors, and the correction of hubs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.estimators.labelled_pairs import pairs_to_learn_from, positions_of
from vicinal.estimators.match_tables import Ids, Log, MatchedTables
from vicinal.similarity.products import l2_normalize

EPOCHS, BATCH, RATE = 20, 32, 1e-3
"""Passes over the matches, those of a step, and the learning rate of Adam."""

TEMPERATURE = 0.05
"""That cosines are divided by."""

HARD = 16
"""Nearest rows that do not match, which each row is compared with beside those of its batch; refreshed in each pass."""


TEMPERATURES = (0.02, 0.05, 0.1)
"""Of the hub correction that are tried."""

_INNER = 0.25
"""Share of the matches that choose the map."""


def turn_candidates(
    tables: MatchedTables, matches: pd.DataFrame, depth: int, temperatures: Sequence[float | None], seed: int, log: Log
) -> tuple[pd.DataFrame, list[str]]:
    """Turn the vectors, if that helps; gives the matches that nothing was learned from, and a sentence.

    Args:
        tables: whose vectors are turned.
        matches: labelled pairs of things.
        depth: see :func:`choose_map`, as are the others.
        temperatures: likewise.
        seed: likewise.
        log: likewise.
    """
    inner = pairs_to_learn_from(matches, _INNER, np.random.default_rng(seed))
    at = positions_of(matches)
    if inner.all() or not inner.any():
        return matches, []
    plain, best = choose_map(tables, at[inner], at[~inner], depth, temperatures, seed, log)
    where = f"of {int((~inner).sum())} matches are among the first candidates, averaged over 1 to {depth}"
    if tables.weight is None:
        return matches, [f"candidates by the vectors as they are: {100 * plain:.1f} % {where}, and turned no more"]
    return matches[~inner], [
        f"candidates by turned vectors: {100 * best:.1f} % {where}, {100 * plain:.1f} % as they are"
    ]


def correct_hubs(tables: MatchedTables, matches: pd.DataFrame) -> str:
    """Take the temperature of most matches in the first place, if it is more than without; gives a sentence."""
    matches = matches.drop_duplicates("left")
    left, right = (matches[side].to_numpy() for side in ("left", "right"))
    shares: dict[float | None, float] = {}
    for temperature in (None, *TEMPERATURES):
        shares[temperature] = float((tables.nearest(torch.tensor(left), temperature) == right).mean())
    best = max(shares, key=lambda temperature: (round(shares[temperature], 4), temperature is None))
    tables.correct(best)
    said = {t: f"{100 * share:.1f} %" for t, share in shares.items()}
    if best is None:
        return f"Hub correction off: it did not improve recall@1 of the vectors ({said[None]})."
    return f"Hub correction on (temperature {best}): recall@1 {said[best]}, without it {said[None]}."


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
