"""Parts of a model for its report: the rows behind some predictions, thumbnails."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core.arrays import Array
from vicinal.data import (
    Table,
)
from vicinal.encoders.images import contact_sheet
from vicinal.encoders.kinds import elements_of
from vicinal.encoders.media import read_cell
from vicinal.estimators.banked import BankedEstimator
from vicinal.report.records import NeighborPanel
from vicinal.report.text import cell_text
from vicinal.workflows.measured import Measured, MeasuredSeveral


def neighbor_panels(
    model: BankedEstimator, table: Table, columns: list[str], test: Array, measured: Measured, k: int = 5
) -> list[NeighborPanel]:
    """Panels of the best, the median and the worst of the predictions; none for a head without neighbors."""
    if not model.network_.head.uses_bank or len(test) == 0:
        return []
    order = np.argsort(measured.misses, kind="stable")
    chosen = {"Best prediction": order[0], "Median prediction": order[len(order) // 2], "Worst prediction": order[-1]}
    positions = test[list(chosen.values())]
    part = table.select(positions)
    explained = model.explain(part.frame[columns], k, ids=part.ids, groups=part.groups)
    images = [p.columns[0] for p in model.table_encoder.encoders if getattr(p, "element_kind", None) == "image"]
    kinds: dict[str, str] = {**model.kinds_, **dict.fromkeys(images, "images")}
    panels, frame = [], model.form_.written(part.frame)
    for row, (title, explanation) in enumerate(zip(chosen, explained, strict=True)):
        query = {name: frame[name].iloc[row] for name in columns}
        said = str(measured.shown[chosen[title]]) if isinstance(measured, MeasuredSeveral) else ""
        known: dict[str, Any] = {"target": part.target[row], "row_id": str(part.ids[row]), "said": said}
        shown = replace(explanation, query=query).panel(title, lambda row: shown_cells(row, kinds, table.root), **known)
        panels.append(shown)
    return panels


_SHOWN = 6
"""Most images of a set that a report shows."""


def shown_cells(row: Mapping[str, Any], kinds: dict[str, Any], root: Path | None) -> dict[str, str | bytes]:
    """Cells of a row for display: thumbnails of images, names of sounds, all else as text."""
    shown: dict[str, str | bytes] = {}
    for name, cell in row.items():
        content = cell.get("bytes") if isinstance(cell, dict) else cell
        if kinds.get(name) in ("image", "images"):
            members = [value for _, value in elements_of(cell, name, "")] if kinds[name] == "images" else [cell]
            try:
                files = (read_cell(one, column=name, row="", what="an image", root=root) for one in members[:_SHOWN])
                small = contact_sheet(files, 320 if kinds[name] == "image" else 128)
            except ValueError:  # it was there when the model was fitted
                small = None
            shown[name] = small if small is not None else str(cell)[:80]
        elif isinstance(content, bytes | bytearray):
            shown[name] = f"({len(content)} bytes)"
        else:
            shown[name] = cell_text(cell)
    return shown


def row_text(row: "pd.Series[Any]") -> str:
    """A row in one line, without what is no text."""
    cells = [f"{name}: {cell_text(value)[:60]}" for name, value in row.items() if not isinstance(value, bytes | dict)]
    return "; ".join(cells)[:200]
