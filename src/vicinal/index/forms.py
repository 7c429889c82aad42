"""What all rows of a bank have alike, and whether rows that are given have it too."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vicinal.core import check_labels, short
from vicinal.core.identity import as_texts, canonical_ids, whole_values
from vicinal.index.identity import Array

if TYPE_CHECKING:
    import pandas as pd


class Form(NamedTuple):
    """What every row of a bank has alike.

    Attributes:
        ids: "whole numbers" or "strings".
        groups: the same, or None without groups.
        labels: dtype and width ("float32", 0 for one number a row), or None without labels.
        rows: there is a table.
    """

    ids: str
    groups: str | None
    labels: tuple[str, int] | None
    rows: bool

    def check_same(self, other: "Form") -> None:
        """Raise ValueError unless rows of the form ``other`` may stand beside ours."""
        for name in ("labels", "groups", "rows"):
            if bool(getattr(self, name)) != bool(getattr(other, name)):
                has, got = ("some", "none") if getattr(self, name) else ("none", "some")
                raise ValueError(f"{name}: expected {has}, as the rows of the bank have {has}, got {got}")


def form_of(names: Array, cells: dict[str, Array], rows: "pd.DataFrame | None") -> Form:
    """The form of rows with ids ``names`` and the labels and groups in ``cells``."""
    labels = cells.get("labels")
    return Form(
        ids=_kind(names),
        groups=_kind(cells["groups"]) if "groups" in cells else None,
        labels=None if labels is None else (labels.dtype.name, _width(labels)),
        rows=rows is not None,
    )


def checked_labels(labels: Tensor | Array, rows: int, form: Form | None) -> Array:
    """``labels`` of ``rows`` rows, in the dtype and width of a bank of this form."""
    made = torch.as_tensor(labels).detach().cpu()
    check_labels(made, rows)
    known = None if form is None else form.labels
    if known is not None and _width(made) != known[1]:
        wanted = f"[{rows}, {known[1]}]" if known[1] else f"[{rows}]"
        raise ValueError(f"labels: expected {wanted} as the bank has them, got {tuple(made.shape)}")
    bad = made.isnan() if made.ndim == 1 else made.isnan().any(dim=1)
    if bool(bad.any()):
        raise ValueError(f"labels: expected a number for every row, got NaN in row {int(bad.nonzero()[0])}")
    dtype = known[0] if known is not None else "float64" if made.dtype == torch.float64 else "float32"
    return made.to(getattr(torch, dtype)).numpy()


def checked_groups(groups: object, rows: int, form: Form | None) -> Array:
    """``groups`` of ``rows`` rows, as numbers or strings as a bank of this form has them."""
    given = canonical_ids("groups", groups, rows)  # type: ignore[arg-type]
    return given if form is None or form.groups is None or rows == 0 else as_kind("groups", given, form.groups)


def as_kind(name: str, ids: Array, kind: str) -> Array:
    """Canonical ``ids`` as the whole numbers or the strings that a bank has."""
    if kind == "strings":
        return as_texts(ids)
    numbers, whole = whole_values(ids)
    if not whole.all():
        raise ValueError(f"{name}: expected whole numbers as the bank has them, got {short(ids[int(whole.argmin())])}")
    return numbers


def checked_rows(rows: "pd.DataFrame", count: int, columns: list[object] | None) -> None:
    """Check that a table has ``count`` rows, and these columns if the bank has some."""
    if len(rows) != count:
        raise ValueError(f"rows: expected a table of {count} rows, one for each id, got {len(rows)}")
    if columns is not None and list(rows.columns) != columns:
        raise ValueError(f"rows: expected the columns {columns}, got {list(rows.columns)}")


def _kind(names: Array) -> str:
    return "whole numbers" if names.dtype == np.int64 else "strings"


def _width(labels: Tensor | Array) -> int:
    return labels.shape[1] if labels.ndim == 2 else 0
