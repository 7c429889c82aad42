"""Explanations: which bank rows made a prediction, by how much, with everything else in one line."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from vicinal.estimators.bank import Bank


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
        """One line: ``-2.4: horrible -2.5 (0.31), horrid -2.5 (0.22) ...``."""
        parts = [f"{n.name or n.id} {_short(n.label)} ({n.weight:.2f})" for n in self.neighbors]
        more = f", {self.other_count} more ({self.other_weight:.2f})" if self.other_count else ""
        return f"{_short(self.prediction)}: {', '.join(parts)}{more}"


def explain_rows(
    weights: Tensor,
    bank: Bank,
    k: int,
    classes: np.ndarray[Any, Any] | None,
    predicted: Tensor,
    text: str | None = None,
) -> list[Explanation]:
    """Explanations of the queries whose weights ``[b, N]`` are given.

    Args:
        weights: rows sum to 1.
        bank: the N rows.
        k: how many rows to list, at most N.
        classes: names of the classes that the bank's labels count, or None for numbers.
        predicted: ``[b]`` numbers, or positions of the predicted classes.
        text: the column that rows are called by; None: by their ids.
    """
    labels = bank.labels.to(weights)
    top = weights.topk(min(k, len(bank)), dim=-1)
    found = []
    for i in range(len(weights)):
        of_class = labels if classes is None else (labels == predicted[i]).to(weights)
        contributions = weights[i] * of_class
        neighbors = tuple(
            Neighbor(
                id=bank.ids[j],
                weight=float(weights[i, j]),
                label=float(labels[j]) if classes is None else classes[int(labels[j])],
                contribution=float(contributions[j]),
                row=bank.rows.iloc[j].to_dict(),
                name=_name(bank, j, text),
            )
            for j in top.indices[i].tolist()
        )
        total = float(contributions.sum())
        found.append(
            Explanation(
                prediction=float(predicted[i]) if classes is None else classes[int(predicted[i])],
                total=total,
                neighbors=neighbors,
                other_weight=max(0.0, 1.0 - sum(n.weight for n in neighbors)),
                other_contribution=total - sum(n.contribution for n in neighbors),
                other_count=len(bank) - len(neighbors),
            )
        )
    return found


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


def _name(bank: Bank, row: int, text: str | None) -> str:
    told = f"row {bank.ids[row]}" if text is None else str(bank.rows[text].iloc[row])
    return told if len(told) <= 40 else told[:37] + "..."
