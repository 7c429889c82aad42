"""Explanations: which bank rows made a prediction, by how much, with everything else in one line."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from vicinal.estimators.bank import Bank
from vicinal.estimators.looking import Attended


@dataclass(frozen=True)
class Neighbor:
    """A bank row in a prediction.

    Attributes:
        id: the row's id.
        weight: its share, from 0 to 1.
        label: its label (number or class).
        contribution: what it adds to the prediction: weight times label; for a class, weight if it is of that class.
        row: its columns.
        name: what to call it: its first text, cut to 40 characters, or its id.
    """

    id: Any
    weight: float
    label: Any
    contribution: float
    row: dict[str, Any]
    name: str = ""


@dataclass(frozen=True)
class Explanation:
    """One prediction as a sum over bank rows.

    Attributes:
        prediction: a number, or the predicted class.
        total: what the contributions sum to: the number, or the probability of the predicted class.
        neighbors: the rows of highest weight, highest first.
        other_weight: weight of all rows that are not listed; with the listed weights it sums to 1.
        other_contribution: what those rows add; with the listed contributions it sums to ``total``.
        other_count: how many rows those are.
    """

    prediction: Any
    total: float
    neighbors: tuple[Neighbor, ...]
    other_weight: float
    other_contribution: float
    other_count: int

    def __str__(self) -> str:
        """One line: ``-2.4: horrible -2.5 (0.31), horrid -2.5 (0.22) ...``; rows without weight are not told."""
        told = [n for n in self.neighbors if n.weight >= 0.005]
        parts = [f"{n.name or n.id} {_short(n.label)} ({n.weight:.2f})" for n in told]
        rest, count = self.other_weight, self.other_count
        more = f", {count} more ({rest:.2f})" if count and (rest >= 0.005 or not told) else ""
        return f"{_short(self.prediction)}: {', '.join(parts)}{more}"


def explain_rows(
    found: Attended,
    bank: Bank,
    classes: np.ndarray[Any, Any] | None,
    text: str | None = None,
) -> list[Explanation]:
    """Explanations of some queries.

    Args:
        found: their highest weights, where these rows stand in the bank, and their predictions.
        bank: the rows.
        classes: names of the classes that the bank's labels count, or None for numbers.
        text: the column that rows are called by; None: by their ids.
    """
    known = found.positions >= 0
    places, where = torch.unique(found.positions[known], return_inverse=True)
    slots = torch.full_like(found.positions, -1).masked_scatter_(known, where)
    rows, ids = bank.store.rows_at(places), bank.store.ids_of_keys(bank.store.keys[places])
    labels = bank.labels[places].tolist()
    best = found.prediction if classes is None else found.prediction.argmax(dim=-1)
    made = []
    for i, prediction in enumerate(best.tolist()):
        neighbors = []
        for weight, slot in zip(found.weights[i].tolist(), slots[i].tolist(), strict=True):
            if slot < 0:
                continue
            label = labels[slot]
            share = weight * label if classes is None else weight * (label == prediction)
            row = rows.iloc[slot].to_dict()
            name = _name(ids[slot], row, text)
            neighbors.append(Neighbor(ids[slot], weight, _named(label, classes), share, row, name))
        total = float(prediction if classes is None else found.prediction[i, prediction])
        made.append(
            Explanation(
                prediction=float(prediction) if classes is None else classes[prediction],
                total=total,
                neighbors=tuple(neighbors),
                other_weight=max(0.0, 1.0 - sum(n.weight for n in neighbors)),
                other_contribution=total - sum(n.contribution for n in neighbors),
                other_count=len(bank) - len(neighbors),
            )
        )
    return made


def _named(label: float, classes: np.ndarray[Any, Any] | None) -> Any:
    return label if classes is None else classes[int(label)]


def explanation_table(explanations: list[Explanation]) -> pd.DataFrame:
    """One line a neighbor: query, prediction, rank, id, weight, label, contribution; "others" ends each query."""
    lines: list[dict[str, Any]] = []
    for query, found in enumerate(explanations):
        start = {"query": query, "prediction": found.prediction}
        for rank, n in enumerate(found.neighbors, start=1):
            lines.append({**start, "rank": rank, "id": n.id, "weight": n.weight, "label": n.label})
            lines[-1]["contribution"] = n.contribution
        if found.other_count:
            rest = {"rank": None, "id": "others", "weight": found.other_weight, "label": None}
            lines.append({**start, **rest, "contribution": found.other_contribution})
    columns = ["query", "prediction", "rank", "id", "weight", "label", "contribution"]
    return pd.DataFrame(lines, columns=columns).astype({"rank": "Int64"})


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _name(own: Any, row: dict[str, Any], text: str | None) -> str:
    told = f"row {own}" if text is None else str(row[text])
    return told if len(told) <= 40 else told[:37] + "..."
