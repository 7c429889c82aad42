"""Which bank rows queries attend to, and what that explains; by the index, in blocks, or from all weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.blocks import row_slices
from vicinal.calibration import ErrorSize
from vicinal.calibration.checks import Floats
from vicinal.data.form import TableForm
from vicinal.estimators.base import NeighborEstimator
from vicinal.estimators.explanation import Explanation, Neighbor, Trend
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.readout import LARGE
from vicinal.estimators.target_transform import PLAIN, TargetTransform
from vicinal.heads import neighbor_range
from vicinal.heads.admissible import Identity
from vicinal.heads.comparables import TrendTerms
from vicinal.heads.kinds import adjusts, attends, has_members, member_heads, weighs_locally
from vicinal.heads.kriging import Kriging, KrigingWeights
from vicinal.heads.members import ensemble_top_weights, label_quantiles
from vicinal.index import ExactIndex
from vicinal.index.pairs import PairScore, pair_score
from vicinal.similarity.factors import score_kernel

_QUERIES = 1024
"""Queries that are looked up together in a large bank."""

INWARD = 0.01
"""Share of the way to the prediction by which the ends of a range are drawn in, so that they do not tie."""

_ROUNDING = 1e-6
"""By how much listed weights may sum to more than 1."""


class TrendParts(NamedTuple):
    """What a trend says of some queries and of the rows that they attend to, in units of the labels' transform.

    Attributes:
        base: what all rows get ``[b]``.
        columns: what each entry of the trend adds for the queries ``[b, c]``.
        differences: the same less that of each row ``[b, k, c]``.
        weight: of the trend itself, what the rows are missing to 1 ``[b]``.
        shared: by how much the trend's own share moves all labels alike ``[b]``; None: it has a weight of its own.
    """

    base: Tensor
    columns: Tensor
    differences: Tensor
    weight: Tensor
    shared: Tensor | None = None


class Attended(NamedTuple):
    """Of some queries: highest weights and positions (-1 for none) ``[b, k]``, predictions ``[b]`` or ``[b, K]``.

    ``carriers [b]`` is how many rows have weight, None where that was not counted; ``trend`` what adjusts their labels;
    ``below [b]`` which share of all weight is of labels that do not exceed a quantile that is predicted.
    """

    weights: Tensor
    positions: Tensor
    prediction: Tensor
    carriers: Tensor | None = None
    trend: TrendParts | None = None
    below: Tensor | None = None


def streams(head: torch.nn.Module, rows: int, weight: Tensor | None) -> bool:
    """Whether a bank of so many rows is large and the head can read it in blocks; not where rows have weights."""
    if weight is not None:
        return False
    heads = member_heads(head)
    known = all(attends(one) and pair_score(one.similarity) is not None for one in heads)
    return rows >= LARGE and known and bool(head.can_stream)


def attended(model: FittedModel, queries: Tensor, query_identity: dict[str, Any], k: int) -> Iterator[Attended]:
    """The ``k`` rows of highest weight of each query, for some queries after the other."""
    head, k = model.network.head, min(k, len(model.bank))
    if weighs_locally(head):  # which has weights for a few rows only
        for part, local in model.local_parts(queries, query_identity, _QUERIES):
            yield _of_few(model, head, part, local, k)
        return
    identity = model.bank.identity(**query_identity)
    one_by_one = model.codec.transform.level is not None
    if not one_by_one and streams(head, len(model.bank), model.bank.weights):
        # all rows have weight, too many to hold: block by block
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
        best, prediction = weights.topk(k, dim=-1), model.summed_over_all(weights)
        below = _share_below(model, weights, model.bank_labels(), prediction)
        yield Attended(best.values, best.indices, prediction, (weights > 0).sum(dim=1), None, below)


def _of_few(model: FittedModel, head: Kriging, queries: Tensor, local: KrigingWeights, k: int) -> Attended:
    """Of queries ``[b, d]`` by a head that has weights for a few rows only."""
    prediction = model.summed(local)
    below = shared = trend = None
    if model.codec.transform.by_rows:
        weights, values = model.weighted_values(local)  # that sum to 1, as a link or a quantile needs them
        below = _share_below(model, weights, values, prediction)
        even = local.without_slack(model.codec.transform.base.forward(model.bank.labels))
        if even.moves is not None and local.moves is not None:  # what weights lack is no weight of the trend's then
            shared = even.moves[:, 0] - local.moves[:, 0]
            local = even
    top = local.strongest(k)
    if adjusts(head):
        near, meant = model.bank.vectors[top.positions.clamp(min=0)], torch.zeros(len(queries), dtype=torch.int64)
        if model.codec.kind == "classes":  # a number is the only output of a trend, of classes the predicted one counts
            meant = model.in_label_units(prediction).argmax(dim=1)
        terms, slack = head.trend_terms(queries, near, top.shares), 1 - local.weights.sum(dim=1)
        if local.later is not None:
            best = (terms.base + terms.columns.sum(dim=2)).argmax(dim=1)
            meant = torch.where(meant < terms.base.shape[1], meant, best)
        trend = _trend_parts(terms, slack, meant, shared)
    return Attended(*top[:2], prediction, (local.weights != 0).sum(dim=1), trend, below)


def _share_below(model: FittedModel, weights: Tensor, values: Tensor, prediction: Tensor) -> Tensor | None:
    """Weight ``[b]`` of values ``[b, k]`` or ``[k]`` that do not exceed the quantile ``[b]``; None of a mean."""
    if model.codec.transform.level is None:
        return None
    return (weights * (values <= prediction[:, None])).sum(dim=1)


def _trend_parts(terms: TrendTerms, slack: Tensor, meant: Tensor, shared: Tensor | None) -> TrendParts:
    """Of the output ``meant [b]``; of a class that came later all 0."""
    targets, at = terms.base.shape[1], torch.arange(len(meant))
    known, place = meant < targets, meant.clamp(max=targets - 1)
    base, columns, apart = terms.base[at, place], terms.columns[at, place], terms.differences[at, :, place]
    return TrendParts(base * known, columns * known[:, None], apart * known[:, None, None], slack, shared)


def kriging_prediction(model: FittedModel, queries: Tensor, query_identity: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Predictions ``[b]`` of a kriging readout, and their deviations ``[b]`` up to one factor for all queries.

    Raises:
        TypeError: if the model has another readout.
    """
    predictions, deviations = [], []
    for _, local in model.local_parts(queries, query_identity, _QUERIES):
        predictions.append(model.summed(local))
        deviations.append(local.variance.clamp(min=0).sqrt())
    return torch.cat(predictions), torch.cat(deviations)


def label_range(
    model: FittedModel, queries: Tensor, query_identity: Mapping[str, Any], coverage: float
) -> tuple[Tensor, Tensor]:
    """The central range of the labels that each query attends to, on their scale: ``[b]`` and ``[b]``."""
    head, vectors = model.network.head, model.bank.vectors
    labels = model.codec.transform.base.forward(model.bank.labels)
    step = _QUERIES if streams(head, len(model.bank), model.bank.weights) else None
    parts = model.query_blocks(queries, model.bank.identity(**query_identity), step)
    both = torch.cat([head_range(head, part, vectors, labels, coverage, identity) for part, identity in parts])
    return both[:, 0], both[:, 1]


def range_of(
    model: FittedModel, queries: Tensor, query_identity: Mapping[str, Any], coverage: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Uncalibrated range of each query ``[b]``, on the scale of labels, and in which unit its margin counts."""
    # few rows have no quantiles to speak of, but kriging has a deviation of its own
    if weighs_locally(model.network.head):
        summed, deviation = kriging_prediction(model, queries, query_identity)
        prediction = model.on_label_scale(summed)
        return prediction, prediction, deviation
    prediction = model.on_label_scale(model.answer(queries, query_identity))
    unit = torch.ones_like(prediction)
    if not model.network.head.uses_bank:
        return prediction, prediction, unit
    low, high = label_range(model, queries, query_identity, coverage)
    return *inward(model, prediction, low, high), unit


def inward(model: FittedModel, prediction: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Ends of ranges ``[b]`` drawn in to the mean, or as wide a range around another prediction that is asked for."""
    prediction = prediction.to(low)
    if model.codec.transform.by_rows:
        return prediction - (high - low) / 2, prediction + (high - low) / 2
    return torch.lerp(low, prediction, INWARD), torch.lerp(high, prediction, INWARD)


def range_features(low: Tensor, high: Tensor, unit: Tensor) -> Floats:
    """What the size of errors goes by ``[b, 2]``: the middle of each range, and its width, or the unit if none."""
    width = torch.where(high > low, high - low, unit)
    return torch.stack([(low + high) / 2, width], dim=1).detach().double().numpy()


def error_size(labels: Tensor, low: Tensor, high: Tensor, unit: Tensor) -> ErrorSize:
    """How large errors of single predictions usually are, in their units; 1 for ranges that are as wide as rows say."""
    errors = torch.zeros_like(labels) if bool((high > low).any()) else (labels - low) / unit
    return ErrorSize(range_features(low, high, unit), errors.detach().numpy())


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
    if not (attends(head) or has_members(head)):
        raise TypeError(f"head: expected a head of neighbors, got {type(head).__name__}")
    return label_quantiles(head, queries, bank, labels, levels, **identity)


def nearest_rows(model: NeighborEstimator, queries: Tensor, k: int, query_identity: dict[str, Any]) -> tuple[Any, Any]:
    """Negated scores ``[n, k]``, rising, and positions ``[n, k]`` of the nearest bank rows of other ids and groups.

    Raises:
        ValueError: if a query has fewer than k such rows.
    """
    similarity = model.fitted_similarity()
    score = pair_score(similarity)
    if score_kernel(similarity).euclidean:
        blocks = _nearest_by_distance(model, queries, k, query_identity)
    elif score is None or len(model.bank_) < LARGE:
        blocks = _nearest_of_all(model, queries, k, query_identity)
    else:
        blocks = _nearest_by_index(model, queries, k, query_identity, score)
    scores, places = (torch.cat(each) for each in zip(*blocks, strict=True))
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
) -> Iterator[tuple[Tensor, Tensor]]:
    """Scores and positions ``[b, k]`` of some queries, best first; -1 where a query may see no more rows."""
    bank, factors = model.bank_, score_kernel(model.fitted_similarity()).factors
    rooted = factors is not None and factors.rooted
    for part, part_identity in model.fitted_.query_blocks(queries, bank.identity(**query_identity), _QUERIES):
        squared, places = bank.nearest(part, k, part_identity)
        scores = -(squared.sqrt() if rooted else squared)
        yield scores, places.masked_fill(squared == torch.inf, -1)


def _nearest_by_index(
    model: NeighborEstimator, queries: Tensor, k: int, query_identity: dict[str, Any], score: PairScore
) -> Iterator[tuple[Tensor, Tensor]]:
    """The same by any similarity of this library."""
    store = model.bank_.store
    index = ExactIndex(store.dim, model.fitted_similarity(), bank=store)
    for at in row_slices(len(queries), _QUERIES):
        part, who = queries[at], {name: None if v is None else v[at] for name, v in query_identity.items()}
        hidden = store.hidden_keys(**who) if any(v is not None for v in who.values()) else None
        places = store.positions_of_keys(index.search(part.float(), k, exclude=hidden).ids)
        lines = torch.arange(len(part)).repeat_interleave(k)
        rows = store.vectors_at(places.clamp(min=0).flatten()).double()
        scores = score(part.double()[lines], rows).reshape(places.shape).masked_fill(places < 0, -torch.inf)
        best = scores.sort(dim=1, descending=True, stable=True)
        yield best.values, places.gather(1, best.indices)


def _nearest_of_all(
    model: NeighborEstimator, queries: Tensor, k: int, query_identity: dict[str, Any]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The same from all scores."""
    bank, similarity = model.bank_, model.fitted_similarity()
    for part, part_identity in model.fitted_.query_blocks(queries, bank.identity(**query_identity)):
        with torch.no_grad():
            scores = similarity(part, bank.vectors)
        allowed = Identity(**part_identity).allowed(len(part), len(bank))
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        best = scores.topk(k, dim=-1)
        seen = torch.ones_like(best.indices, dtype=torch.bool) if allowed is None else allowed.gather(1, best.indices)
        yield best.values, best.indices.masked_fill(~seen, -1)


def explain_rows(top: Attended, model: FittedModel, text: str | None, form: TableForm) -> list[Explanation]:
    """Explanations of some queries: of numbers of what is predicted, of classes of the most probable one.

    Args:
        top: their highest weights, where these rows stand in the bank, and their predictions.
        model: whose rows they are; contributions are on the scale of its labels' transform.
        text: the column that rows are called by; None: by their ids.
        form: how cells of several numbers are written.
    """
    transform, classes = model.codec.transform, model.codec.kind == "classes"
    rows, slots = _listed(top.positions, model, text, form)
    said, predicted = _columns(model.in_label_units(top.prediction)), _columns(top.prediction)
    usual = model.usual().reshape(-1)
    others = [len(model.bank)] * len(said) if top.carriers is None else top.carriers.tolist()
    explanations = []
    for i, place in enumerate(said.argmax(dim=1).tolist()):  # a number is the only column there is
        neighbors = _neighbors(top, model, rows, slots[i], i, place)
        total = float(predicted[i, place] if top.below is None else top.below[i])
        trend = _trend(model, top.trend, i)
        of_trend = (0.0, 0.0) if trend is None else (trend.weight, trend.weight * trend.value)
        rest = 1.0 - of_trend[0] - sum(n.weight for n in neighbors)
        explanations.append(
            Explanation(
                prediction=model.codec.named(place) if classes else float(said[i, place]),
                total=total + transform.constant,
                neighbors=neighbors,
                other_weight=0.0 if -_ROUNDING < rest < _ROUNDING * _ROUNDING else rest,
                other_contribution=total - of_trend[1] - sum(n.contribution for n in neighbors),
                other_count=others[i] - len(neighbors),
                transform=transform.name if top.below is None else "quantile",
                probability=float(said[i, place]) if classes else None,
                trend=trend,
                constant=transform.constant,
                usual=float(usual[place]) if top.below is None else 0.0,
            )
        )
    return explanations


class _Listed(NamedTuple):
    """The rows that some queries attend to.

    Attributes:
        rows: as explanations tell of them, without weight yet ``[R]``.
        numbers: their labels ``[R, 1]``, or 1 and 0 as each has a class or not ``[R, K]``.
        values: the same on the scale of contributions.
        scales: that scale, and the one whose predictions keep near the labels.
    """

    rows: list[Neighbor]
    numbers: list[list[float]]
    values: list[list[float]]
    scales: tuple[TargetTransform, TargetTransform]


def _listed(positions: Tensor, model: FittedModel, text: str | None, form: TableForm) -> tuple[_Listed, Tensor]:
    """The rows at ``positions [b, k]`` of the bank, each once, and which of them each is ``[b, k]``; -1 for none."""
    bank, codec, known = model.bank, model.codec, positions >= 0
    places, where = torch.unique(positions[known], return_inverse=True)
    labels, classes = bank.labels[places], codec.kind == "classes"
    scales = (PLAIN, PLAIN) if classes else (codec.transform, model.limited_transform())
    numbers = codec.as_predicted(labels) if classes else labels
    cells: list[dict[str, Any]] = form.written(bank.store.rows_at(places)).to_dict("records")  # type: ignore[assignment]
    each = zip(bank.store.ids_of_keys(bank.store.keys[places]), labels.tolist(), cells, strict=True)
    rows = [Neighbor(name, 0.0, codec.named(label), 0.0, row, _name(name, row, text)) for name, label, row in each]
    listed = _Listed(rows, _columns(numbers).tolist(), _columns(scales[0].forward(numbers)).tolist(), scales)
    return listed, torch.full_like(positions, -1).masked_scatter_(known, where)


def _neighbors(
    top: Attended, model: FittedModel, listed: _Listed, slots: Tensor, query: int, place: int
) -> tuple[Neighbor, ...]:
    """The rows of a query with what each adds to the number, or class, at ``place``."""
    neighbors, entries = [], model.network.trend_columns()
    moves = torch.zeros(0) if top.trend is None else top.trend.differences[query].abs() > _ROUNDING * _ROUNDING
    moved = bool(moves.any()) or (top.trend is not None and top.trend.shared is not None)
    for nth, (weight, slot) in enumerate(zip(top.weights[query].tolist(), slots.tolist(), strict=True)):
        if slot < 0 or weight == 0:  # nothing of it is in the prediction: such is the row itself, and its group
            continue
        one, number, value = listed.rows[slot], listed.numbers[slot][place], listed.values[slot][place]
        if top.trend is not None:
            by_column = _by_column(entries, top.trend.differences[query, nth]) if bool(moves[nth].any()) else {}
            if top.trend.shared is not None:
                by_column["the trend"] = float(top.trend.shared[query])
            adjusted, value = _adjusted(one, number, by_column, *listed.scales)
            one = adjusted if moved else one
        if top.below is not None:
            bound = float(top.prediction[query])
            value = float(value <= bound + _ROUNDING * _ROUNDING * (abs(bound) + abs(number)))
        neighbors.append(replace(one, weight=weight, contribution=weight * value))
    return tuple(neighbors)


def _columns(values: Tensor) -> Tensor:
    """Numbers ``[n]`` as one column ``[n, 1]``; several columns as they are."""
    return values if values.ndim == 2 else values[:, None]


def _by_column(entries: Sequence[str], values: Tensor) -> dict[str, float]:
    """Sums of values ``[c]`` by the column of each entry."""
    sums = dict.fromkeys(entries, 0.0)
    for name, value in zip(entries, values.tolist(), strict=True):
        sums[name] += value
    return sums


def _trend(model: FittedModel, parts: TrendParts | None, query: int) -> Trend | None:
    """What the trend itself says of a query; None where there is none, or it moves the labels of rows."""
    if parts is None or parts.shared is not None:
        return None
    columns, base = _by_column(model.network.trend_columns(), parts.columns[query]), float(parts.base[query])
    trend = Trend(float(parts.weight[query]), base, columns, base + float(parts.columns[query].sum()))
    if model.codec.kind == "classes" or model.codec.transform.name == "none":
        return trend
    label = model.limited_transform().inverse(torch.tensor([trend.value], dtype=torch.float64))
    return replace(trend, label=float(label[0]))


def _adjusted(
    one: Neighbor, number: float, adjustments: dict[str, float], transform: TargetTransform, limited: TargetTransform
) -> tuple[Neighbor, float]:
    """A row whose label, of a class 1 or 0, is adjusted on the scale of the fit; and that on the scale of read-out."""
    moved = limited.forward(torch.tensor([number], dtype=torch.float64)) + sum(adjustments.values())
    adjusted = limited.inverse(moved)
    value = transform.forward(adjusted) if transform.name == "link" else moved
    return replace(one, adjustments=adjustments, adjusted=float(adjusted[0])), float(value[0])


def _name(row_id: Any, row: dict[str, Any], text: str | None) -> str:
    name = str(row[text]) if text is not None else row_id if isinstance(row_id, str) else f"row {row_id}"
    return name if len(name) <= 40 else name[:37] + "..."
