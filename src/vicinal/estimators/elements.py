"""What each element of a set adds to a prediction: by leaving it out."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from vicinal.encoders.kinds import elements_of
from vicinal.estimators.attention import attended
from vicinal.estimators.base import NeighborEstimator
from vicinal.estimators.explanation import Element, Explanation

MOST = 1000
"""Elements of a set, at most: each costs a row of its size."""

_LISTED = 64
"""Neighbors of highest weight among which those of a row are looked for when an element is left out."""


def element_counts(frame: pd.DataFrame, kinds: Mapping[str, str]) -> pd.DataFrame:
    """How many elements the sets of each row have ``[n, columns of sets]``.

    >>> element_counts(pd.DataFrame({"x": [["a", "b"], None]}), {"x": "set"})["x"].tolist()
    [2, 0]
    """
    names = [name for name, kind in kinds.items() if kind == "set"]
    return pd.DataFrame(
        {name: [sum(1 for _ in elements_of(cell, name, row)) for row, cell in frame[name].items()] for name in names},
        index=frame.index,
    )


def with_elements(
    model: NeighborEstimator,
    frame: pd.DataFrame,
    explanations: list[Explanation],
    query_identity: Mapping[str, Any],
) -> list[Explanation]:
    """``explanations`` with their elements: each row is embedded once more for each of its elements, without it.

    Args:
        model: fitted.
        frame: the rows ``[n, columns]`` that were explained.
        explanations: ``[n]``.
        query_identity: ids and groups of the rows, or None.

    Raises:
        ValueError: for a model without sets, or a set of more than ``MOST`` elements.
    """
    counts = element_counts(frame, model.kinds_)
    if not len(counts.columns):
        raise ValueError("elements: expected a model that reads a column of sets, got one without")
    if counts.size and counts.to_numpy().max() > MOST:
        most = int(counts.to_numpy().max())
        raise ValueError(
            f"elements: expected sets of at most {MOST} elements, each of which is left out once, got {most}"
        )
    variants = list(_variants(frame, counts.columns))
    if not variants:
        return explanations
    rows = np.array([variant.row for variant in variants])
    table = frame.iloc[rows].reset_index(drop=True)
    for name in counts.columns:
        pairs = zip(table[name].tolist(), variants, strict=True)
        table[name] = pd.Series([v.others if v.column == name else cell for cell, v in pairs], dtype=object)
    identity = {key: None if value is None else value[rows] for key, value in query_identity.items()}
    elements: list[list[Element]] = [[] for _ in explanations]
    answers = _answers(model, table, [explanations[row].prediction for row in rows], identity)
    for variant, (total, weights) in zip(variants, answers, strict=True):
        before = explanations[variant.row]
        change = tuple(neighbor.weight - weights.get(neighbor.id, 0.0) for neighbor in before.neighbors)
        one = Element(variant.column, variant.position, variant.value, before.total - total, change)
        elements[variant.row].append(one)
    ordered = [tuple(sorted(some, key=lambda one: -abs(one.effect))) for some in elements]
    return [replace(one, elements=some) for one, some in zip(explanations, ordered, strict=True)]


class _Variant(NamedTuple):
    """A row without an element of a set: which element it is, and the others."""

    row: int
    column: str
    position: int
    value: Any
    others: list[Any]


def _variants(frame: pd.DataFrame, columns: Iterable[str]) -> Iterator[_Variant]:
    for row, label in enumerate(frame.index):
        for name in columns:
            members = list(elements_of(frame[name].iloc[row], name, label))
            for position, value in members:
                yield _Variant(row, name, position, value, [other for at, other in members if at != position])


def _answers(
    model: NeighborEstimator, table: pd.DataFrame, predictions: list[Any], identity: dict[str, Any]
) -> Iterator[tuple[float, dict[Any, float]]]:
    """Of each row the number, or the probability of the class that is named, and weights of neighbors by id."""
    queries, store = torch.from_numpy(model.embed(table)), model.bank_.store
    codes = {name: code for code, name in enumerate(model.fitted_.codec.classes.tolist())}
    said = iter(predictions)
    for part in attended(model.fitted_, queries, identity, _LISTED):
        ids = store.ids_of_keys(store.keys[part.positions.clamp(min=0)].flatten()).reshape(part.positions.shape)
        for at, weights in enumerate(part.weights.tolist()):
            total, name = part.prediction[at], next(said)
            yield float(total[codes[name]] if codes else total), dict(zip(ids[at].tolist(), weights, strict=True))
