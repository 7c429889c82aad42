"""What made a prediction: its rows, by what they are adjusted, and what each counts; also in words."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from vicinal.report.records import Cell, NeighborPanel

_LINES = 10
"""Explanations that are shown of a list, as lines."""

_SHOWN, _CARRIED = 3, 0.6
"""Rows that are told of one by one, at least, and the share of the weight of all rows that they carry."""

_MOST_ALIKE = 120
"""Rows up to which they are said to be like the one that is predicted; of more some are not."""

_REASONS = 2
"""Columns that an adjustment is said to come from."""


_FEW = 0.01
"""Share of the weight below which a row says nothing by itself."""


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
        name: a short name to show, cut to 40 characters: its first text, or its id.
        adjustments: by column what a trend adds to its label for the difference between it and the query; of a readout
            without a trend none.
        adjusted: its label with these, in its own unit; for classes 1 or 0, as it is of the predicted class or not,
            with these; of a readout without a trend None.
    """

    id: Any
    weight: float
    label: Any
    contribution: float
    row: dict[str, Any]
    name: str = ""
    adjustments: Mapping[str, float] = field(default_factory=dict)
    adjusted: Any = None

    @property
    def by(self) -> float:
        """What moves its label in the unit of the labels, also where columns add on another scale; of classes a share.

        0 of a readout without a trend.
        """
        if isinstance(self.label, float):
            return float((self.label if self.adjusted is None else self.adjusted) - self.label)
        return sum(self.adjustments.values())

    def adjusting(self) -> dict[str, Any]:
        """What adjusts it, for JSON: ``adjusted`` and ``adjustments``; of a readout without a trend nothing."""
        return {} if self.adjusted is None else {"adjusted": self.adjusted, "adjustments": dict(self.adjustments)}


@dataclass(frozen=True)
class Trend:
    """What a trend by columns says of a query, on the scale of the contributions.

    Attributes:
        weight: of the trend itself in the prediction: what the weights of all rows are missing to 1.
        base: what every row gets.
        columns: what each column adds; with ``base`` they sum to ``value``.
        value: what the trend alone would predict.
        label: the value in the unit of the labels, where contributions are on another scale.
    """

    weight: float
    base: float
    columns: Mapping[str, float]
    value: float
    label: float | None = None

    @property
    def contribution(self) -> float:
        """What it adds to the prediction: weight times value."""
        return self.weight * self.value

    def record(self) -> dict[str, Any]:
        """The same for JSON."""
        return {"weight": self.weight, "base": self.base, "columns": dict(self.columns), "value": self.value}


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


@dataclass(frozen=True, repr=False)
class Explanation:
    """One prediction as a sum over bank rows.

    Attributes:
        prediction: a number, or the predicted class; where rows may have several, the most probable one.
        total: what the contributions sum to: the number, on the scale of ``target_transform`` (its logarithm, say); for
            classes their probability, or with a kernel, or after ``adapt``, the score behind it.
        neighbors: the rows with the largest weights (in absolute value), largest first.
        other_weight: weight of all rows that are not listed; together with the listed weights it sums to 1.
        other_contribution: what those rows add; together with the listed contributions it sums to ``total``.
        other_count: how many of those rows have weight. For a large bank, read in blocks, or an index, it is the number
            of rows not listed, with or without weight.
        elements: the elements of the row's sets, if asked for, largest effect first.
        transform: "none", "log", "rank", "softmax", "power", "link" or "quantile": the scale of the contributions.
            Labels and ``prediction`` stay in their own units. Of "link" ``total`` is h of the prediction, and a
            contribution the weight times h of the (adjusted) label; of "quantile" ``total`` is the share of all weight
            whose labels do not exceed the prediction, and a contribution the weight of one of them, else 0.
        probability: of the predicted class; None for numbers.
        trend: of comparables; its weight times its value is in ``total`` with the contributions, each of which is then
            the weight times the adjusted label. None: labels are taken as they are, and weights sum to 1.
        constant: what is added to the sum of the contributions, of a model that reads out the mean and a constant.
        query: cells of the row that is explained.
        usual: what all rows of the bank would add with equal weights, on the scale of the contributions: of classes the
            share that is of the predicted one.
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
    trend: Trend | None = None
    constant: float = 0.0
    query: Mapping[str, Any] = field(default_factory=dict)
    usual: float = 0.0

    @property
    def plain(self) -> bool:
        """Whether contributions are on the scale of the labels, or shares of a class."""
        return self.transform in ("none", "power")

    def __str__(self) -> str:
        """One line: ``-2.4: horrible -2.5 (31 %), horrid -2.5 (22 %) ...``; rows without weight are left out.

        Of comparables each row has its label and, behind an arrow, its adjusted label.
        """
        shown = [n for n in self.neighbors if abs(n.weight) >= 0.005]
        parts = [f"{n.name or n.id} {_labels(n)} ({_percent(n.weight)})" for n in shown]
        rest, count = self.other_weight, self.other_count
        if count and (abs(rest) >= 0.005 or not shown):
            parts.append(f"{count} others ({_percent(rest)})")
        if self.trend is not None and self.trend.weight >= 0.005:
            parts.append(f"trend by columns ({_percent(self.trend.weight)})")
        return f"{_short(self.prediction)}: {', '.join(parts)}"

    __repr__ = __str__

    def sentence(self, unit: str = "row") -> str:
        """The prediction in words: what rows had, by what each is adjusted, and what it counts.

        Named are rows that make up 60 % of the weight of all rows, three at least, of those that were asked for.

        Args:
            unit: what a row is: a patient, a house.

        >>> trend = Trend(0.4, 200.0, {"bmi": 20.0}, 220.0)
        >>> one = Neighbor(7, 0.6, 281.0, 150.0, {}, "row 7", {"bmi": -31.0}, 250.0)
        >>> print(Explanation(238.0, 238.0, (one,), 0.0, 0.0, 0, trend=trend).sentence("patient"))
        238 from 1 patient like this one: row 7 had 281, minus 31 for its bmi, counts 60 %; the trend by columns, 220, \
        counts 40 %
        """
        return _in_words(self, unit)

    def steps(self, columns: int = 4) -> list[tuple[str, float]]:
        """From what is usual to ``total``: steps with names, which add up to it.

        With a trend these are its base, what its ``columns`` largest columns add, and the others; then by how much each
        row pulls the prediction away from the trend, weight times (adjusted label - trend). Without one: ``usual``, and
        by how much each row pulls away from that.

        >>> one = Neighbor(7, 0.75, 280.0, 210.0, {}, "row 7")
        >>> Explanation(260.0, 260.0, (one,), 0.25, 50.0, 9, usual=150.0).steps()
        [('all rows alike', 150.0), ('row 7', 97.5), ('9 other rows', 12.5)]
        """
        start, trend = self.usual, self.trend
        said = [("all rows alike", start)]
        if trend is not None:
            start = trend.value
            falling = sorted(trend.columns.items(), key=lambda one: -abs(one[1]))
            rest = sum(value for _, value in falling[columns:])
            said = [("trend: start", trend.base), *((f"trend: {name}", value) for name, value in falling[:columns])]
            said += [("trend: other columns", rest)] * bool(rest)
        said += [(n.name or f"row {n.id}", n.contribution - n.weight * start) for n in self.neighbors]
        if self.other_count:
            rest = self.other_contribution - self.other_weight * start
            said.append((f"{self.other_count:,} other rows", rest))
        return said + [("constant", self.constant)] * bool(self.constant)

    def brief(self) -> "Explanation":
        """The same for people: rows of less than 1 %, and a tenth of the largest weight, are among the others.

        >>> rows = tuple(Neighbor(name, weight, 2.0, 2 * weight, {}) for name, weight in (("a", 0.9), ("b", 0.004)))
        >>> one = Explanation(2.0, 2.0, rows, 0.096, 0.192, 7).brief()
        >>> [n.id for n in one.neighbors], round(one.other_weight, 3), one.other_count
        (['a'], 0.1, 8)
        """
        least = min(_FEW, 0.1 * max((abs(n.weight) for n in self.neighbors), default=0.0))
        listed = tuple(n for n in self.neighbors if abs(n.weight) >= least)
        rest = self.neighbors[len(listed) :]
        return replace(
            self,
            neighbors=listed,
            other_weight=self.other_weight + sum(n.weight for n in rest),
            other_contribution=self.other_contribution + sum(n.contribution for n in rest),
            other_count=self.other_count + len(rest),
        )

    def to_frame(self) -> pd.DataFrame:
        """The rows, the trend and the others as a table: see :func:`explanation_table`."""
        return explanation_table([self])

    def panel(
        self,
        title: str,
        cells: "Callable[[Mapping[str, Any]], dict[str, Cell]]",
        *,
        target: Any = None,
        row_id: str = "",
        said: str = "",
    ) -> "NeighborPanel":
        """The same for reports and notebooks.

        Args:
            title: above it.
            cells: makes cells of a row that can be shown.
            target: the truth, if known.
            row_id: id of the row that is predicted.
            said: for rows with several classes, the predicted ones.
        """
        from vicinal.report.records import Neighbor as Listed  # predictions need no reports
        from vicinal.report.records import NeighborPanel, TrendLine

        trend, brief = self.trend, self.brief()
        is_scaled = self.transform != "none" or self.constant != 0
        is_scaled |= not math.isclose(self.total, self.prediction if self.probability is None else self.probability)
        return NeighborPanel(
            title=title,
            query=cells(self.query),
            prediction=_label(self.prediction),
            target=None if target is None else _label(target),
            said=said,
            neighbors=[
                Listed(cells(n.row), _label(n.label), n.weight, n.contribution, str(n.id), n.adjusted, n.adjustments)
                for n in brief.neighbors
            ],
            other_weight=brief.other_weight,
            other_contribution=brief.other_contribution,
            other_rows=brief.other_count,
            probability=self.probability,
            scale=self.transform,
            scaled=self.total - self.constant if is_scaled else None,
            id=row_id,
            trend=None if trend is None else TrendLine(trend.weight, trend.value, trend.columns, trend.label),
        )

    def _repr_html_(self) -> str:
        return _tables([self])


class Explanations(list[Explanation]):
    """Explanations of several rows, a list that reads well: a line for each in a terminal, tables in a notebook."""

    def __repr__(self) -> str:
        """The first lines, and how many more there are."""
        more = [f"... and {len(self) - _LINES} more"] if len(self) > _LINES else []
        return "\n".join([*map(str, self[:_LINES]), *more])

    def to_frame(self) -> pd.DataFrame:
        """One line a row, trend and rest of each: see :func:`explanation_table`."""
        return explanation_table(self)

    def _repr_html_(self) -> str:
        return _tables(self)


def _tables(explanations: list[Explanation]) -> str:
    """Each row beside its comparables, with differences marked; the colors are those of the page."""
    from vicinal.report.notebook import cells_of, first_tables, panel_part

    return first_tables(explanations, lambda title, one: panel_part(one.panel(title, cells_of)), "row")


def _label(value: Any) -> float | str:
    """A label as reports have it: a number, or the name of a class; of several classes their names."""
    if isinstance(value, float | np.floating):
        return float(value)
    return (", ".join(map(str, value)) or "(none)") if isinstance(value, tuple) else str(value)


def _labels(neighbor: Neighbor) -> str:
    """The label of a row, and the adjusted one."""
    label = _short(neighbor.label)
    return f"{label} -> {_short(neighbor.adjusted)}" if neighbor.adjustments else label


def explanation_table(explanations: list[Explanation]) -> pd.DataFrame:
    """One line a neighbor: query, prediction, rank, id, weight, label, adjusted (label), contribution.

    Of comparables a line "trend" follows, whose adjusted label is what the trend says, on the scale of contributions;
    "others" ends each query.
    """
    lines: list[dict[str, Any]] = []
    for query, explanation in enumerate(explanations):
        start = {"query": query, "prediction": explanation.prediction}
        for rank, n in enumerate(explanation.neighbors, start=1):
            lines.append({**start, "rank": rank, "id": n.id, "weight": n.weight, "label": n.label})
            lines[-1] |= {"adjusted": n.adjusted, "contribution": n.contribution}
        if (trend := explanation.trend) is not None:
            said = {"rank": None, "id": "trend", "weight": trend.weight, "label": None, "adjusted": trend.value}
            lines.append({**start, **said, "contribution": trend.contribution})
        if explanation.other_count:
            rest = {"rank": None, "id": "others", "weight": explanation.other_weight, "label": None, "adjusted": None}
            lines.append({**start, **rest, "contribution": explanation.other_contribution})
    columns = ["query", "prediction", "rank", "id", "weight", "label", "adjusted", "contribution"]
    return pd.DataFrame(lines, columns=columns).astype({"rank": "Int64"})


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value)) or "none"
    return _number(value, 3)


def _in_words(explanation: Explanation, unit: str) -> str:
    rows = len(explanation.neighbors) + explanation.other_count
    rest = 1 - (0 if explanation.trend is None else explanation.trend.weight)
    parts: list[str] = []
    named = _CARRIED * rest
    for one in explanation.neighbors:
        if len(parts) < _SHOWN or named > 1e-9:
            parts.append(_row(one))
            rest, named = rest - one.weight, named - one.weight
    left = rows - len(parts)
    if explanation.trend is not None and explanation.trend.weight >= 0.005:
        value = f"{_number(explanation.trend.value)}, " if explanation.plain else ""
        parts.append(f"the trend by columns, {value}counts {_percent(explanation.trend.weight)}")
    if left and abs(rest) >= 0.005:
        parts.append(f"{left} more count {_percent(rest)}")
    signed = any(one.weight < 0 for one in explanation.neighbors)
    like = "" if rows > _MOST_ALIKE or signed else " like this one"
    said = f"{_number(explanation.prediction)} from {rows} {unit}{'' if rows == 1 else 's'}"
    return f"{said}{like}: {'; '.join(parts)}"


def _row(one: Neighbor) -> str:
    name = one.name or str(one.id)
    said = f"{name} had {_number(one.label)}"
    if by := one.by:
        first = sorted(one.adjustments, key=lambda column: -abs(one.adjustments[column]))[:_REASONS]
        reasons = " and ".join(column for column in first if one.adjustments[column] * by > 0)
        said += f", {'minus' if by < 0 else 'plus'} {_number(abs(by), 3)}" + (f" for its {reasons}" if reasons else "")
    return f"{said}, counts {_percent(one.weight)}"


def _number(value: Any, digits: int = 4) -> str:
    from vicinal.report.text import number  # predictions need no reports

    return number(value, digits) if isinstance(value, float) else str(value)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
