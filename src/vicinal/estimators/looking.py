"""Which bank rows queries attend to: by the index, in blocks of a large bank, or from all weights of a small one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from vicinal.heads import NONA, Ensemble, admissible, neighbor_range, streamed_quantiles
from vicinal.heads.members import ensemble_quantiles, ensemble_top_weights
from vicinal.index import ExactIndex
from vicinal.index.pairs import PairScore, pair_score

if TYPE_CHECKING:
    from vicinal.estimators.neighborhood import BankedEstimator

LARGE = 1 << 15
"""Rows from which on a bank is read a block at a time; the weights of fewer are held for some queries at a time."""

_QUERIES = 1024
"""Queries that are looked up together in a large bank."""

_RANGE = 1024
"""Rows of highest weight whose labels make the range of a query, where an index finds them."""


class Attended(NamedTuple):
    """Of some queries: highest weights and positions (-1 for none) ``[b, k]``, predictions ``[b]`` or ``[b, K]``."""

    weights: Tensor
    positions: Tensor
    prediction: Tensor


def streams(model: "BankedEstimator") -> bool:
    """Whether the bank is large and the head can read it in blocks."""
    head = model.network_.head
    heads = list(head.heads) if isinstance(head, Ensemble) else [head]
    known = all(isinstance(one, NONA) and pair_score(one.similarity) is not None for one in heads)
    return len(model.bank_) >= LARGE and known and bool(head.can_stream)


def attended(model: "BankedEstimator", queries: Tensor, asked: dict[str, Any], k: int) -> Iterator[Attended]:
    """The ``k`` rows of highest weight of each query, for some queries after the other."""
    near, head = model._near(), model.network_.head
    k = min(k, len(model.bank_))
    if near is not None:
        for start in range(0, len(queries), _QUERIES):
            found = near.predict(queries[start : start + _QUERIES], **_part(asked, start, _QUERIES), top=k)
            yield Attended(found.weights, found.positions, found.prediction)
        return
    identity = model.bank_.identity(**asked)
    if streams(model):
        vectors = model.bank_.vectors
        for some, keys in model._blocks(queries, identity, _QUERIES):
            if isinstance(head, Ensemble):
                top = ensemble_top_weights(head, some, vectors, k, **keys)
            else:
                top = head.top_weights(some, vectors, k, **keys)  # type: ignore[operator]
            yield Attended(*top, model._head_predict(some, keys))
        return
    for part, own in model._blocks(queries, identity):
        weights = model._weights(part, model.bank_, own)
        best = weights.topk(k, dim=-1)
        yield Attended(best.values, best.indices, weights @ model._bank_labels().to(weights))


def label_range(
    model: "BankedEstimator", queries: Tensor, asked: dict[str, Any], coverage: float
) -> tuple[Tensor, Tensor]:
    """The central range of the labels that each query attends to: ``[b]`` and ``[b]``; with an index, of the first."""
    near, head, labels = model._near(), model.network_.head, model.bank_.labels
    tail = (1 - coverage) / 2
    found = []
    if near is not None:
        for one in attended(model, queries, asked, _RANGE):
            near_labels = labels[one.positions.clamp(min=0)]
            found.append(_row_quantiles(one.weights, near_labels, (tail, 1 - tail)))
    elif streams(model):
        vectors, levels = model.bank_.vectors, (tail, 1 - tail)
        for part, own in model._blocks(queries, model.bank_.identity(**asked), _QUERIES):
            if isinstance(head, Ensemble):
                found.append(ensemble_quantiles(head, part, vectors, labels, levels, **own))
            elif isinstance(head, NONA):
                parts: dict[str, Any] = {
                    "similarity": head.similarity,
                    "mask": head.mask,
                    "simplex": head.simplex,
                    **own,
                }
                found.append(streamed_quantiles(part, vectors, labels, levels, **parts))
    else:
        for part, own in model._blocks(queries, model.bank_.identity(**asked)):
            found.append(torch.stack(neighbor_range(model._weights(part, model.bank_, own), labels, coverage), dim=1))
    both = torch.cat(found)
    return both[:, 0], both[:, 1]


def nearest_rows(model: "BankedEstimator", queries: Tensor, k: int, asked: dict[str, Any]) -> tuple[Any, Any]:
    """Negated scores ``[n, k]``, rising, and positions ``[n, k]`` of the nearest bank rows of other ids and groups.

    Raises:
        ValueError: if a query has fewer than k such rows.
    """
    score = pair_score(model._similarity())
    if score is None or len(model.bank_) < LARGE:
        scores, places = _nearest_of_all(model, queries, k, asked)
    else:
        scores, places = _nearest_by_index(model, queries, k, asked, score)
    short = (places < 0).any(dim=1)
    if bool(short.any()):
        row = int(short.nonzero()[0])
        most = int((places[row] >= 0).sum())
        raise ValueError(
            f"n_neighbors: expected at most {most}, the rows of other ids and groups of row {row}, got {k}"
        )
    return -scores.numpy(), places.numpy()


def _nearest_by_index(
    model: "BankedEstimator", queries: Tensor, k: int, asked: dict[str, Any], score: PairScore
) -> tuple[Tensor, Tensor]:
    """Scores and positions ``[n, k]``, best first; -1 where there are no more rows that a query may see."""
    store = model.bank_.store
    index = ExactIndex(store.dim, model._similarity(), bank=store)
    found = []
    for start in range(0, len(queries), _QUERIES):
        part, own = queries[start : start + _QUERIES], _part(asked, start, _QUERIES)
        hidden = store.hidden_keys(**own) if any(value is not None for value in own.values()) else None
        at = store.positions_of_keys(index.search(part.float(), k, exclude=hidden).ids)
        lines = torch.arange(len(part)).repeat_interleave(k)
        rows = store.vectors_at(at.clamp(min=0).flatten()).double()
        scores = score(part.double()[lines], rows).reshape(at.shape).masked_fill(at < 0, -torch.inf)
        best = scores.sort(dim=1, descending=True, stable=True)
        found.append((best.values, at.gather(1, best.indices)))
    return torch.cat([scores for scores, _ in found]), torch.cat([places for _, places in found])


def _nearest_of_all(model: "BankedEstimator", queries: Tensor, k: int, asked: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The same from all scores."""
    bank, similarity = model.bank_, model._similarity()
    found = []
    for part, own in model._blocks(queries, bank.identity(**asked)):
        with torch.no_grad():
            scores = similarity(part, bank.vectors)
        allowed = admissible((len(part), len(bank)), **own)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        best = scores.topk(k, dim=-1)
        seen = torch.ones_like(best.indices, dtype=torch.bool) if allowed is None else allowed.gather(1, best.indices)
        found.append((best.values, best.indices.masked_fill(~seen, -1)))
    return torch.cat([scores for scores, _ in found]), torch.cat([places for _, places in found])


def _part(asked: dict[str, Any], start: int, size: int) -> dict[str, Any]:
    return {name: None if value is None else value[start : start + size] for name, value in asked.items()}


def _row_quantiles(weights: Tensor, labels: Tensor, levels: tuple[float, float]) -> Tensor:
    """Quantiles ``[b, 2]`` of labels ``[b, k]`` by weights ``[b, k]``, which need not sum to 1."""
    ordered, order = labels.sort(dim=1)
    mass = weights.gather(1, order).cumsum(dim=1)
    wanted = mass[:, -1:] * torch.tensor(levels, dtype=mass.dtype) * (1 - 8 * torch.finfo(mass.dtype).eps)
    at = torch.searchsorted(mass, wanted).clamp_(max=labels.shape[1] - 1)
    return ordered.gather(1, at)
