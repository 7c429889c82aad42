"""``vicinal explain``: a prediction, the bank rows behind it, and its uncertainty."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from vicinal.core import ExtrapolationWarning, replaced_file
from vicinal.core.checks import check_between, check_integer, nearest, short, short_text, unwarned
from vicinal.core.identity import IdentityWarning, canonical_ids
from vicinal.core.progress import Log
from vicinal.data.cells import missing_cells
from vicinal.estimators.attention import nearest_rows
from vicinal.estimators.bank import check_known
from vicinal.estimators.calibrating import check_calibrates
from vicinal.estimators.comparables import noise_sentence
from vicinal.estimators.explanation import Explanation
from vicinal.estimators.inputs import EmbeddedRows
from vicinal.estimators.kernel_metric import nearness_by_column
from vicinal.estimators.matching import RowMatcher
from vicinal.estimators.neighbors import NeighborClassifier
from vicinal.estimators.pair_explanation import PairExplanation
from vicinal.estimators.search import query_table, rows_of
from vicinal.plot import match_weights, reasons
from vicinal.report.text import one_line
from vicinal.report.theme import sheet, style, written
from vicinal.training.rows import spread
from vicinal.workflows.predict import load_predictor, of_target, own_rows_note, read_rows, who_of, with_aim
from vicinal.workflows.search import json_row, read_row

_MEANT = 4096
"""Most bank rows whose mean stands for an average row."""

DRAWN = (".svg", ".png", ".pdf")
"""Endings of files of pictures."""

_DRAWN_ROWS = 6
"""Predictions of one picture, at most."""

_USUAL = 256
"""Most bank rows whose nearest-row distances show what is usual."""


@dataclass(frozen=True)
class Explained:
    """A prediction with its rows and its uncertainty.

    Attributes:
        query: name of the row.
        label: the label of a bank row, or that of its table; None without one.
        explanation: the prediction as a sum over bank rows.
        interval: low and high, for numbers, if enough rows calibrate; else None.
        chances: class -> probability, the highest first; empty for numbers.
        nearest: distance to the nearest bank row (for other similarities, the negated score).
        near_by: for a kernel, how much nearer each row of the explanation is than an average bank row, in squared
            distance by column; see :func:`vicinal.estimators.kernel_metric.nearness_by_column`.
        said: for several classes per row, the predicted ones; the explanation is that of the most probable class. Else
            None.
    """

    query: Any
    label: Any
    explanation: Explanation
    interval: tuple[float, float] | None
    chances: dict[Any, float]
    nearest: float
    near_by: tuple[dict[str, float], ...] = ()
    said: tuple[Any, ...] | None = None


class Explainer:
    """Explains predictions of the model in a folder, each by ``k`` bank rows, with intervals of a ``coverage``.

    Args:
        folder: of a model that predicts from neighbors.
        target: for a model of several targets, the one to explain.
        include_own: say nothing of rows that equal rows of the fit.
        aim: see :func:`vicinal.workflows.predict_table`.
        root: folder that paths of images and sounds start from; None: that of a table.
        log: gets notes such as columns that were left empty, or why there is no interval.
        settings: see :func:`vicinal.estimators.load_model`.

    Attributes:
        usual: median and 90 % quantile of the distance from bank rows to their nearest row, or None.
        digits: number of decimals to show predicted numbers with.
        noise: that labels are mostly noise, if they are; else "".
    """

    def __init__(
        self,
        folder: Path,
        k: int = 5,
        *,
        coverage: float = 0.9,
        target: str | None = None,
        include_own: bool = False,
        aim: Mapping[str, Any] | None = None,
        root: Path | None = None,
        log: Log = lambda line: None,
        **settings: Any,
    ) -> None:
        self.k, self.coverage = check_integer("k", k), check_between("coverage", coverage, 0, 1)
        self.root, self.log, self.include_own, self.target = root, log, include_own, target
        self.model = with_aim(of_target(load_predictor(folder, **settings, several=True), target), aim)
        self.model.check_neighbor_head("explain")
        self.model.root = root
        self.digits = label_digits(self.model.bank_.labels)
        self.usual, self.noise = self._usual(), noise_sentence(self.model.fitted_)

    def ids(self, ids: Sequence[str]) -> list[Explained]:
        """Explain bank rows, each predicted without itself and its group."""
        advice = " (rows of the test and new ones need their table: `vicinal explain MODEL TABLE --id ID`)"
        if self.model.notes_.get("id") is None:
            advice = " (without --id in the fit, rows are named by their numbers, from 1)"
        check_known(self.model.bank_, self.model.calibration_, canonical_ids("ids", ids), advice)
        rows, known = rows_of(self.model, ids)
        self.log("Each row is predicted without itself, but the encoder may have been trained with it.")
        return self._explained(list(ids), rows, known, self.model.labels_of(known["ids"]))

    def row(self, text: str) -> list[Explained]:
        """Explain a row given as a JSON object; missing columns are left empty."""
        return self._of_frame(pd.DataFrame([read_row(text)]), [text])

    def table(self, source: Any, ids: Sequence[str] = ()) -> list[Explained]:
        """Explain the rows of a table, or those with these ids, each without the bank rows of its own id or group."""
        frame = read_rows(self.model, source, self.root, self.log)
        if ids:
            names = [str(name) for name in who_of(self.model, frame).get("ids", frame.index.tolist())]
            if lost := [name for name in ids if name not in names]:
                raise ValueError(f"ids: expected rows of the table, got {short(lost[0])}{nearest(lost[0], names)}")
            frame = frame.iloc[[names.index(name) for name in ids]]
        return self._of_frame(frame, frame.index.tolist())

    def _of_frame(self, frame: pd.DataFrame, names: list[Any]) -> list[Explained]:
        who = who_of(self.model, frame)
        rows, empty = query_table(self.model, frame)
        if empty:
            self.log(f"left empty: {', '.join(short_text(name) for name in empty[:8])}")
        with unwarned(IdentityWarning, ExtrapolationWarning):  # it is said next
            embedded = self.model.query_rows(rows, **who, look=not self.include_own)
        for sentence in filter(None, (embedded.sentence(), own_rows_note(self.model, embedded))):
            self.log(sentence)
        return self._explained(who.get("ids", names), embedded, who, self._own_labels(frame))

    def _own_labels(self, frame: pd.DataFrame) -> list[Any]:
        """The labels that the rows have themselves, None where there is none."""
        name = self.target or str(self.model.notes_.get("target"))
        if name not in frame.columns:
            return [None] * len(frame)
        cells = self.model.form_.read(frame[[name]], [name])[name]
        return [None if gone else cell for cell, gone in zip(cells.tolist(), missing_cells(cells), strict=True)]

    def _explained(
        self, names: list[Any], rows: EmbeddedRows, identity: dict[str, Any], labels: Sequence[Any]
    ) -> list[Explained]:
        model = self.model
        with unwarned(IdentityWarning):
            explained = model.explain(rows, self.k, **identity)
            bounds, chances = self._bounds(rows, identity), self._chances(rows, identity)
            nearest = model.kneighbors(rows, 1, **identity)[0][:, 0].tolist()
        near_by = [self._near_by(one, query) for one, query in zip(explained, rows.vectors, strict=True)]
        said = [self._said(one) for one in chances]
        parts = zip(names, labels, explained, bounds, chances, nearest, near_by, said, strict=True)
        return [Explained(*part) for part in parts]

    def _near_by(self, explanation: Explanation, query: Tensor) -> tuple[dict[str, float], ...]:
        """For a kernel, the columns that make each row near; else nothing."""
        if self.model.metric_ != "kernel" or not explanation.neighbors:
            return ()
        store = self.model.bank_.store
        rows = store.vectors_at(store.positions([n.id for n in explanation.neighbors]))
        by_column = nearness_by_column(self.model.network_, query, rows, store.vectors_at(spread(len(store), _MEANT)))
        each = zip(*(values.tolist() for values in by_column.values()), strict=True)
        return tuple(dict(zip(by_column, values, strict=True)) for values in each)

    def _bounds(self, rows: EmbeddedRows, identity: dict[str, Any]) -> list[tuple[float, float] | None]:
        if hasattr(self.model, "classes_"):
            return [None] * len(rows.vectors)
        try:
            check_calibrates(self.model.fitted_, self.coverage)
            return list(map(tuple, self.model.predict_interval(rows, self.coverage, **identity).tolist()))
        except ValueError as wrong:  # too few rows or groups calibrate
            self.log(f"no interval: {wrong}")
            return [None] * len(rows.vectors)

    def _chances(self, rows: EmbeddedRows, identity: dict[str, Any]) -> list[dict[Any, float]]:
        if not hasattr(self.model, "classes_"):
            return [{}] * len(rows.vectors)
        classes = self.model.classes_.tolist()
        lines = self.model.predict_proba(rows, **identity).tolist()
        return [dict(sorted(zip(classes, line, strict=True), key=lambda one: -one[1])) for line in lines]

    def _said(self, chances: dict[Any, float]) -> tuple[Any, ...] | None:
        """For several classes per row, the predicted ones, the most probable first; else None."""
        if not isinstance(self.model, NeighborClassifier) or not self.model.multilabel_:
            return None
        limits = dict(zip(self.model.classes_.tolist(), self.model.thresholds_.tolist(), strict=True))
        return tuple(name for name, chance in chances.items() if chance >= limits[name])

    def _usual(self) -> tuple[float, float] | None:
        """Median and 90 % quantile of the distances of at most 256 bank rows to their nearest row."""
        bank = self.model.bank_
        some = spread(len(bank), _USUAL)
        try:
            distances = nearest_rows(self.model, bank.store.vectors_at(some).double(), 1, bank.who(some))[0]
        except ValueError:  # a row alone, or a group that is all there is
            return None
        half, most = np.quantile(distances, (0.5, 0.9)).tolist()
        return half, most


def label_digits(labels: Tensor) -> int:
    """Decimals to show predictions with: at least those of the labels, and three digits of their range.

    >>> import torch
    >>> label_digits(torch.tensor([869500.0, 22000.0])), label_digits(torch.tensor([1.0, 5.0]))
    (0, 2)
    >>> label_digits(torch.tensor([0.25, 80.5]))
    2
    """
    some = labels[spread(len(labels), 1000)].flatten().double()
    decimals = next((d for d in range(4) if bool((some - some.round(decimals=d)).abs().max() < 1e-9)), 4)
    width = float(some.max() - some.min())
    return max(decimals, min(6, 2 - math.floor(math.log10(width)))) if width > 0 else decimals


def explained_record(one: Explained) -> dict[str, Any]:
    """An explained prediction as a dictionary for programs."""
    explanation = one.explanation
    doubt: dict[str, Any] = {"probabilities": {str(name): chance for name, chance in one.chances.items()}}
    if not one.chances:
        doubt = {"interval": None if one.interval is None else list(one.interval)}
    return {
        "query": one.query,
        "prediction": explanation.prediction if one.said is None else list(one.said),
        **({} if one.said is None else {"explained": explanation.prediction}),
        **({} if one.label is None else {"label": one.label}),
        **doubt,
        "nearest": one.nearest,
        **({} if explanation.transform == "none" else {"scale": explanation.transform}),
        **({"constant": explanation.constant} if explanation.constant else {}),
        "neighbors": [
            {
                "id": n.id,
                "label": n.label,
                **n.adjusting(),
                "weight": n.weight,
                "contribution": n.contribution,
                **({"near_by": one.near_by[place]} if one.near_by else {}),
                "row": json_row(n.row),
            }
            for place, n in enumerate(explanation.neighbors)
        ],
        **({} if explanation.trend is None else {"trend": explanation.trend.record()}),
        "others": {
            "rows": explanation.other_count,
            "weight": explanation.other_weight,
            "contribution": explanation.other_contribution,
        },
    }


def explain_pair(folder: Path, ids: Sequence[str], k: int = 3) -> PairExplanation:
    """Why a left and a right row of the matcher in a folder, by their ids, are taken for one thing or not."""
    if len(ids) != 2:
        raise ValueError(f"--id: expected two of a matcher, a left and a right row, got {len(ids)}")
    return RowMatcher.load(folder).explain(pd.DataFrame({"left": ids[:1], "right": ids[1:]}), k)[0]


def pair_record(pair: PairExplanation) -> dict[str, Any]:
    """An explained pair as a dictionary for programs."""
    record = {name: getattr(pair, name) for name in ("left", "right", "probability", "start", "refined")}
    names = ("left", "right", "match", "likeness")
    resembles = [dict(zip(names, one, strict=True)) for one in pair.resembles]
    return record | {"cells": list(map(vars, pair.cells)), "resembles": resembles}


def draw_reasons(rows: Sequence[Explained | PairExplanation], path: Path) -> None:
    """Write a picture of the reasons of the first predictions or pairs, one below the other: see :mod:`vicinal.plot`.

    The file has one of the endings ``DRAWN``.
    """
    some = rows[:_DRAWN_ROWS]
    heights = [5.0 + len((one if isinstance(one, PairExplanation) else one.explanation).steps()) for one in some]
    with style():
        figure = sheet(5.6, 0.27 * sum(heights))
        panels = figure.subplots(len(some), 1, squeeze=False, height_ratios=heights)[:, 0]
        for panel, one in zip(panels, some, strict=True):
            if isinstance(one, PairExplanation):
                match_weights(one, ax=panel)
                title = f"{one.left} and {one.right}"
            else:
                reasons(one.explanation, ax=panel)
                title = one.query
            panel.set_title(one_line(title, 40), loc="left", fontsize=9)
    with replaced_file(path) as aside:
        aside.write_bytes(written(figure, path.suffix.lower()[1:]))
