"""Which bank rows queries attend to: by the index, in blocks of a large bank, or from all weights of a small one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vicinal.heads import NONA, Members, neighbor_range, streamed_quantiles
from vicinal.heads.member_streams import member_quantiles, member_top_weights
from vicinal.index import ExactIndex
from vicinal.index.pairs import pair_score

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
    heads = list(head.heads) if isinstance(head, Members) else [head]
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
            if isinstance(head, Members):
                top = member_top_weights(head, some, vectors, k, **keys)
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
            if isinstance(head, Members):
                found.append(member_quantiles(head, part, vectors, labels, levels, **own))
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


def nearest_rows(model: "BankedEstimator", queries: Tensor, k: int, own: Tensor | None) -> tuple[Any, Any]:
    """Negated scores ``[n, k]``, rising, and positions ``[n, k]`` of the nearest bank rows; not that at ``own [n]``."""
    bank, similarity = model.bank_, model._similarity()
    score = pair_score(similarity)
    if score is None or len(bank) < LARGE:
        return _nearest_of_all(model, queries, k, own)
    index = ExactIndex(bank.store.dim, similarity, bank=bank.store)
    distances, positions = [], []
    for start in range(0, len(queries), _QUERIES):
        part = queries[start : start + _QUERIES]
        hidden = None if own is None else bank.store.keys[own[start : start + _QUERIES]]
        at = bank.store.positions_of_keys(index.search(part.float(), k, exclude=hidden).ids)
        lines = torch.arange(len(part)).repeat_interleave(k)
        rows = bank.store.vectors_at(at.clamp(min=0).flatten()).double()
        scores = score(part.double()[lines], rows).reshape(at.shape).masked_fill(at < 0, -torch.inf)
        order = scores.sort(dim=1, descending=True, stable=True)
        distances.append(-order.values.numpy())
        positions.append(at.gather(1, order.indices).numpy())
    return np.concatenate(distances), np.concatenate(positions)


def _nearest_of_all(model: "BankedEstimator", queries: Tensor, k: int, own: Tensor | None) -> tuple[Any, Any]:
    distances, positions, similarity = [], [], model._similarity()
    start = 0
    with torch.no_grad():
        for part, _ in model._blocks(queries, {}):
            scores = similarity(part, model.bank_.vectors)
            if own is not None:
                rows = torch.arange(len(part))
                scores[rows, own[start + rows]] = -torch.inf
            top = scores.topk(k, dim=-1)
            distances.append(-top.values.numpy())
            positions.append(top.indices.numpy())
            start += len(part)
    return np.concatenate(distances), np.concatenate(positions)


def _part(asked: dict[str, Any], start: int, size: int) -> dict[str, Any]:
    return {name: None if value is None else value[start : start + size] for name, value in asked.items()}


def _row_quantiles(weights: Tensor, labels: Tensor, levels: tuple[float, float]) -> Tensor:
    """Quantiles ``[b, 2]`` of labels ``[b, k]`` by weights ``[b, k]``, which need not sum to 1."""
    ordered, order = labels.sort(dim=1)
    mass = weights.gather(1, order).cumsum(dim=1)
    wanted = mass[:, -1:] * torch.tensor(levels, dtype=mass.dtype) * (1 - 8 * torch.finfo(mass.dtype).eps)
    at = torch.searchsorted(mass, wanted).clamp_(max=labels.shape[1] - 1)
    return ordered.gather(1, at)
