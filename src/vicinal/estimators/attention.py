"""Which bank rows queries attend to, and what that explains; by the index, in blocks, or from all weights."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from vicinal.estimators.base import NeighborEstimator
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.readout import LARGE, local_weights
from vicinal.heads import neighbor_range
from vicinal.heads.admissible import Identity
from vicinal.heads.intervals import streamed_quantiles
from vicinal.heads.kinds import attends, has_members, member_heads, weighs_locally
from vicinal.heads.members import ensemble_quantiles, ensemble_top_weights
from vicinal.index import ExactIndex
from vicinal.index.pairs import PairScore, pair_score
from vicinal.similarity.factors import score_kernel

_LINES = 10
"""Explanations that are shown of a list."""

_QUERIES = 1024
"""Queries that are looked up together in a large bank."""

INWARD = 0.01
"""Share of the way to the prediction by which the ends of a range are drawn in, so that they do not tie."""

_RANGE = 1024
"""Rows of highest weight whose labels make the range of a query, where an index finds them."""

_ROUNDING = 1e-6
"""By how much listed weights may sum to more than 1."""


class Attended(NamedTuple):
    """Of some queries: highest weights and positions (-1 for none) ``[b, k]``, predictions ``[b]`` or ``[b, K]``.

    ``carriers [b]`` is how many rows have weight, None where that was not counted.
    """

    weights: Tensor
    positions: Tensor
    prediction: Tensor
    carriers: Tensor | None = None


def streams(head: torch.nn.Module, rows: int, weight: Tensor | None) -> bool:
    """Whether a bank of so many rows is large and the head can read it in blocks; not where rows have weights."""
    if weight is not None:
        return False
    heads = member_heads(head)
    known = all(attends(one) and pair_score(one.similarity) is not None for one in heads)
    return rows >= LARGE and known and bool(head.can_stream)


def attended(model: FittedModel, queries: Tensor, query_identity: dict[str, Any], k: int) -> Iterator[Attended]:
    """The ``k`` rows of highest weight of each query, for some queries after the other."""
    near, head = model.near, model.network.head
    k = min(k, len(model.bank))
    if near is not None:  # an index finds them
        for start in range(0, len(queries), _QUERIES):
            answer = near.predict(queries[start : start + _QUERIES], **_part(query_identity, start, _QUERIES), top=k)
            yield Attended(answer.weights, answer.positions, answer.prediction)
        return
    identity = model.bank.identity(**query_identity)
    if weighs_locally(head):  # which has weights for a few rows only
        labels = model.bank_labels()
        for part, part_identity in model.query_blocks(queries, identity, _QUERIES):
            local = local_weights(head, model.bank, part, part_identity)
            yield Attended(*local.largest(k), local.mean(labels), (local.weights != 0).sum(dim=1))
        return
    if streams(head, len(model.bank), model.bank.weights):  # all rows have weight, too many to hold: block by block
        vectors = model.bank.vectors
        for some, keys in model.query_blocks(queries, identity, _QUERIES):
            if has_members(head):
                top = ensemble_top_weights(head, some, vectors, k, **keys)
            else:
                top = head.top_weights(some, vectors, k, **keys)  # type: ignore[operator]
            yield Attended(*top, model.predict_embedded(some, keys))
        return
    for part, part_identity in model.query_blocks(queries, identity):  # few enough rows for all weights at once
        weights = model.bank_weights(part, part_identity)
        best = weights.topk(k, dim=-1)
        prediction = weights @ model.bank_labels().to(weights)
        yield Attended(best.values, best.indices, prediction, (weights > 0).sum(dim=1))


def kriging_prediction(model: FittedModel, queries: Tensor, query_identity: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Predictions ``[b]`` of a kriging readout, and their deviations ``[b]`` up to one factor for all queries.

    Raises:
        TypeError: if the model has another readout.
    """
    head = model.network.head
    if not weighs_locally(head):
        raise TypeError(f"readout: expected a kriging head, got {type(head).__name__}")
    near, labels = model.near, model.bank_labels()
    if near is not None:
        local = near.local_weights(queries, **query_identity)
        return local.mean(labels), local.variance.clamp(min=0).sqrt()
    predictions, deviations = [], []
    for part, part_identity in model.query_blocks(queries, model.bank.identity(**query_identity), _QUERIES):
        local = local_weights(head, model.bank, part, part_identity)
        predictions.append(local.mean(labels))
        deviations.append(local.variance.clamp(min=0).sqrt())
    return torch.cat(predictions), torch.cat(deviations)


def label_range(
    model: FittedModel, queries: Tensor, query_identity: dict[str, Any], coverage: float
) -> tuple[Tensor, Tensor]:
    """The central range of the labels that each query attends to, on their scale: ``[b]`` and ``[b]``."""
    near, head, labels = model.near, model.network.head, model.bank_labels()
    tail = (1 - coverage) / 2
    ranges = []
    if near is not None:
        for one in attended(model, queries, query_identity, _RANGE):
            near_labels = labels[one.positions.clamp(min=0)]
            ranges.append(_row_quantiles(one.weights, near_labels, (tail, 1 - tail)))
    else:
        vectors = model.bank.vectors
        step = _QUERIES if streams(head, len(model.bank), model.bank.weights) else None
        for part, part_identity in model.query_blocks(queries, model.bank.identity(**query_identity), step):
            ranges.append(head_range(head, part, vectors, labels, coverage, part_identity))
    both = torch.cat(ranges)
    return both[:, 0], both[:, 1]


@torch.no_grad()
def head_range(
    head: torch.nn.Module,
    queries: Tensor,
    bank: Tensor,
    labels: Tensor,
    coverage: float,
    identity: Mapping[str, Tensor | None],
) -> Tensor:
    """The central range ``[b, 2]`` of the labels that some queries attend to."""
    levels = (1 - coverage) / 2, (1 + coverage) / 2
    if not streams(head, len(bank), identity.get("bank_weight")):
        weights = head.weights(queries, bank, **identity)  # type: ignore[operator]
        return torch.stack(neighbor_range(weights, labels, coverage), dim=1)
    if has_members(head):
        return ensemble_quantiles(head, queries, bank, labels, levels, **identity)
    if not attends(head):
        raise TypeError(f"head: expected a head of neighbors, got {type(head).__name__}")
    parts: dict[str, Any] = {"similarity": head.similarity, "mask": head.mask, "simplex": head.simplex, **identity}
    return streamed_quantiles(queries, bank, labels, levels, **parts)


def nearest_rows(model: NeighborEstimator, queries: Tensor, k: int, query_identity: dict[str, Any]) -> tuple[Any, Any]:
    """Negated scores ``[n, k]``, rising, and positions ``[n, k]`` of the nearest bank rows of other ids and groups.

    Raises:
        ValueError: if a query has fewer than k such rows.
    """
    similarity = model.fitted_similarity()
    score = pair_score(similarity)
    if score_kernel(similarity).euclidean:
        scores, places = _nearest_by_distance(model, queries, k, query_identity)
    elif score is None or len(model.bank_) < LARGE:
        scores, places = _nearest_of_all(model, queries, k, query_identity)
    else:
        scores, places = _nearest_by_index(model, queries, k, query_identity, score)
    short = (places < 0).any(dim=1)
    if bool(short.any()):
        row = int(short.nonzero()[0])
        most = int((places[row] >= 0).sum())
        raise ValueError(
            f"n_neighbors: expected at most {most}, the rows of other ids and groups of row {row}, got {k}"
        )
    return -scores.numpy(), places.numpy()


def _nearest_by_distance(
    model: NeighborEstimator, queries: Tensor, k: int, query_identity: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """Scores and positions ``[n, k]``, best first; -1 where there are no more rows that a query may see."""
    bank, factors = model.bank_, score_kernel(model.fitted_similarity()).factors
    rooted = factors is not None and factors.rooted
    blocks = []
    for part, part_identity in model.fitted_.query_blocks(queries, bank.identity(**query_identity), _QUERIES):
        squared, places = bank.nearest(part, k, part_identity)
        scores = -(squared.sqrt() if rooted else squared)
        blocks.append((scores, places.masked_fill(squared == torch.inf, -1)))
    return torch.cat([scores for scores, _ in blocks]), torch.cat([places for _, places in blocks])


def _nearest_by_index(
    model: NeighborEstimator, queries: Tensor, k: int, query_identity: dict[str, Any], score: PairScore
) -> tuple[Tensor, Tensor]:
    """The same by any similarity of this library."""
    store = model.bank_.store
    index = ExactIndex(store.dim, model.fitted_similarity(), bank=store)
    blocks = []
    for start in range(0, len(queries), _QUERIES):
        part, part_identity = queries[start : start + _QUERIES], _part(query_identity, start, _QUERIES)
        hidden = store.hidden_keys(**part_identity) if any(v is not None for v in part_identity.values()) else None
        at = store.positions_of_keys(index.search(part.float(), k, exclude=hidden).ids)
        lines = torch.arange(len(part)).repeat_interleave(k)
        rows = store.vectors_at(at.clamp(min=0).flatten()).double()
        scores = score(part.double()[lines], rows).reshape(at.shape).masked_fill(at < 0, -torch.inf)
        best = scores.sort(dim=1, descending=True, stable=True)
        blocks.append((best.values, at.gather(1, best.indices)))
    return torch.cat([scores for scores, _ in blocks]), torch.cat([places for _, places in blocks])


def _nearest_of_all(
    model: NeighborEstimator, queries: Tensor, k: int, query_identity: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The same from all scores."""
    bank, similarity = model.bank_, model.fitted_similarity()
    blocks = []
    for part, part_identity in model.fitted_.query_blocks(queries, bank.identity(**query_identity)):
        with torch.no_grad():
            scores = similarity(part, bank.vectors)
        allowed = Identity(**part_identity).allowed(len(part), len(bank))
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        best = scores.topk(k, dim=-1)
        seen = torch.ones_like(best.indices, dtype=torch.bool) if allowed is None else allowed.gather(1, best.indices)
        blocks.append((best.values, best.indices.masked_fill(~seen, -1)))
    return torch.cat([scores for scores, _ in blocks]), torch.cat([places for _, places in blocks])


def _part(identity: dict[str, Any], start: int, size: int) -> dict[str, Any]:
    return {name: None if value is None else value[start : start + size] for name, value in identity.items()}


def _row_quantiles(weights: Tensor, labels: Tensor, levels: tuple[float, float]) -> Tensor:
    """Quantiles ``[b, 2]`` of labels ``[b, k]`` by weights ``[b, k]``, which need not sum to 1."""
    ordered, order = labels.sort(dim=1)
    mass = weights.gather(1, order).cumsum(dim=1)
    thresholds = mass[:, -1:] * torch.tensor(levels, dtype=mass.dtype) * (1 - 8 * torch.finfo(mass.dtype).eps)
    at = torch.searchsorted(mass, thresholds).clamp_(max=labels.shape[1] - 1)
    return ordered.gather(1, at)


@dataclass(frozen=True)
class Neighbor:
    """A bank row in a prediction.

    Attributes:
        id: the row's id.
        weight: its share of the prediction, from 0 to 1; a readout with signed weights may give less than 0 or more
            than 1.
        label: its label: a number, a class, or a tuple of its classes where rows may have several.
        contribution: what it adds to the prediction: weight times label (on the scale of ``target_transform``, if there
            is one); for a class, the weight if the row is of that class, else 0.
        row: its columns.
        name: a short name to show: its first text, cut to 40 characters, or its id.
    """

    id: Any
    weight: float
    label: Any
    contribution: float
    row: dict[str, Any]
    name: str = ""


@dataclass(frozen=True)
class Element:
    """An element of a set in a prediction.

    Attributes:
        column: the column of sets.
        position: its place in the cell, from 1.
        value: the element itself.
        effect: how much ``Explanation.total`` drops without it.
        weights: how much weight each listed neighbor loses without it; a neighbor that is then no longer among the 64
            heaviest counts as having none.
    """

    column: str
    position: int
    value: Any
    effect: float
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Explanation:
    """One prediction as a sum over bank rows.

    Attributes:
        prediction: a number, or the predicted class; where rows may have several, the most probable one.
        total: what the contributions sum to: the number, on the scale of ``target_transform`` (its logarithm, say); for
            classes their probability, or with a kernel the score behind it.
        neighbors: the rows with the largest weights (in absolute value), largest first.
        other_weight: weight of all rows that are not listed; together with the listed weights it sums to 1.
        other_contribution: what those rows add; together with the listed contributions it sums to ``total``.
        other_count: how many of those rows have weight. For a large bank, read in blocks, or an index, it is the number
            of rows not listed, with or without weight.
        elements: the elements of the row's sets, if asked for, largest effect first.
        transform: "none", "log", "rank" or "softmax": the scale of the contributions. Labels and ``prediction`` stay in
            their own units.
        probability: of the predicted class; None for numbers.
    """

    prediction: Any
    total: float
    neighbors: tuple[Neighbor, ...]
    other_weight: float
    other_contribution: float
    other_count: int
    elements: tuple[Element, ...] = ()
    transform: str = "none"
    probability: float | None = None

    def __str__(self) -> str:
        """One line: ``-2.4: horrible -2.5 (0.31), horrid -2.5 (0.22) ...``; rows without weight are left out."""
        shown = [n for n in self.neighbors if abs(n.weight) >= 0.005]
        parts = [f"{n.name or n.id} {_short(n.label)} ({n.weight:.2f})" for n in shown]
        rest, count = self.other_weight, self.other_count
        more = f", {count} more ({rest:.2f})" if count and (abs(rest) >= 0.005 or not shown) else ""
        return f"{_short(self.prediction)}: {', '.join(parts)}{more}"


class Explanations(list[Explanation]):
    """Explanations of several rows, a list that reads well: a line for each in a terminal, a table in a notebook."""

    def __repr__(self) -> str:
        """The first lines, and how many more there are."""
        more = [f"... and {len(self) - _LINES} more"] if len(self) > _LINES else []
        return "\n".join([*map(str, self[:_LINES]), *more])

    def _repr_html_(self) -> str:
        """A table of predictions and neighbors, which takes its colors from the page."""
        width = max((len(one.neighbors) for one in self[:_LINES]), default=0)
        heads = ["prediction", *(f"neighbor {place + 1}" for place in range(width)), "others"]
        rows = [
            [_short(one.prediction), *([*map(_cell, one.neighbors)] + [""] * width)[:width], f"{one.other_weight:.2f}"]
            for one in self[:_LINES]
        ]
        lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        more = f"<p>and {len(self) - _LINES} more</p>" if len(self) > _LINES else ""
        return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{lines}</table>{more}"


def _cell(neighbor: Neighbor) -> str:
    return f"{neighbor.name or neighbor.id}: {_short(neighbor.label)} ({neighbor.weight:.2f})"


def explain_rows(top: Attended, model: FittedModel, text: str | None = None) -> list[Explanation]:
    """Explanations of some queries.

    Args:
        top: their highest weights, where these rows stand in the bank, and their predictions.
        model: whose rows they are; contributions are on the scale of its labels' transform.
        text: the column that rows are called by; None: by their ids.
    """
    bank, transform = model.bank, model.limited_transform()
    classes = model.codec.classes if model.codec.kind == "classes" else None
    known = top.positions >= 0
    places, where = torch.unique(top.positions[known], return_inverse=True)
    slots = torch.full_like(top.positions, -1).masked_scatter_(known, where)
    rows = bank.store.rows_at(places).to_dict("records")
    ids = bank.store.ids_of_keys(bank.store.keys[places])
    labels, numbers = bank.labels[places].tolist(), transform.forward(bank.labels[places]).tolist()
    said = transform.inverse(top.prediction)
    best = top.prediction if classes is None else said.argmax(dim=-1)
    others = [len(bank)] * len(best) if top.carriers is None else top.carriers.tolist()
    explanations = []
    for i, prediction in enumerate(best.tolist()):
        neighbors = []
        for weight, slot in zip(top.weights[i].tolist(), slots[i].tolist(), strict=True):
            if slot < 0 or weight == 0:  # nothing of it is in the prediction: such is the row itself, and its group
                continue
            label = labels[slot]
            share = weight * (numbers[slot] if classes is None else _has(label, prediction))
            row = rows[slot]
            name = _name(ids[slot], row, text)
            neighbors.append(Neighbor(ids[slot], weight, model.codec.named(label), share, row, name))
        total = float(prediction if classes is None else top.prediction[i, prediction])
        rest = 1.0 - sum(n.weight for n in neighbors)
        explanations.append(
            Explanation(
                prediction=float(said[i]) if classes is None else model.codec.named(prediction),
                total=total,
                neighbors=tuple(neighbors),
                other_weight=0.0 if -_ROUNDING < rest < _ROUNDING * _ROUNDING else rest,
                other_contribution=total - sum(n.contribution for n in neighbors),
                other_count=others[i] - len(neighbors),
                transform=transform.name,
                probability=None if classes is None else float(said[i, prediction]),
            )
        )
    return explanations


def _has(label: Any, place: int) -> bool:
    """Whether a label of the bank, one class or 0 and 1 of each, is or has the class at ``place``."""
    return bool(label[place] if isinstance(label, list) else label == place)


def explanation_table(explanations: list[Explanation]) -> pd.DataFrame:
    """One line a neighbor: query, prediction, rank, id, weight, label, contribution; "others" ends each query."""
    lines: list[dict[str, Any]] = []
    for query, explanation in enumerate(explanations):
        start = {"query": query, "prediction": explanation.prediction}
        for rank, n in enumerate(explanation.neighbors, start=1):
            lines.append({**start, "rank": rank, "id": n.id, "weight": n.weight, "label": n.label})
            lines[-1]["contribution"] = n.contribution
        if explanation.other_count:
            rest = {"rank": None, "id": "others", "weight": explanation.other_weight, "label": None}
            lines.append({**start, **rest, "contribution": explanation.other_contribution})
    columns = ["query", "prediction", "rank", "id", "weight", "label", "contribution"]
    return pd.DataFrame(lines, columns=columns).astype({"rank": "Int64"})


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _name(row_id: Any, row: dict[str, Any], text: str | None) -> str:
    name = f"row {row_id}" if text is None else str(row[text])
    return name if len(name) <= 40 else name[:37] + "..."
