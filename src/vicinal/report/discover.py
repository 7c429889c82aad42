"""The page of rows that fit no known class: groups, each with its most typical rows and words."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from vicinal.core.checks import counted
from vicinal.core.files import replace_text
from vicinal.report.page import cells, map_of
from vicinal.report.records import Cell
from vicinal.report.text import number, one_line, percent
from vicinal.report.theme import rendered


@dataclass(frozen=True)
class FoundGroup:
    """A group of rows that fit no known class.

    Attributes:
        name: its number, "1" for the largest group.
        rows: number of rows.
        nearest: the most frequent class of the nearest bank rows, and its share of the group.
        words: more frequent in its texts than in the others.
        typical: ids and cells of the most typical rows, the most typical first.
    """

    name: str
    rows: int
    nearest: tuple[str, float]
    words: Sequence[str]
    typical: Sequence[tuple[str, Mapping[str, Cell]]]


@dataclass(frozen=True, eq=False)
class DiscoverRecord:
    """Contents of the page of rows that fit no known class: how many of the ``rows`` are ``new``, and their groups.

    Attributes:
        error: largest expected share of known-class rows that are taken for new.
        calibrating: number of rows that set the threshold.
        score: accuracy of the same grouping on hidden known classes; NaN if there were too few.
        names: name of the file to write group names into.
        vectors: of the new rows ``[n, d]``.
        labels: groups of the new rows ``[n]``.
    """

    name: str
    model: str
    rows: int
    new: int
    error: float
    calibrating: int
    score: float
    groups: Sequence[FoundGroup]
    names: str
    vectors: NDArray[Any]
    labels: Sequence[str]
    notes: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


def discover_findings(record: DiscoverRecord) -> list[str]:
    """The result as sentences, with the guarantee of the threshold."""
    groups = counted(len(record.groups), "group")
    said = [
        f"{record.new:,} of {record.rows:,} rows fit no known class, in {groups}. False alarms are expected for up "
        f"to {percent(record.error)} of rows of known classes; the threshold is from {record.calibrating:,} such rows. "
        "How many rows of new classes are missed is not known."
    ]
    if record.score == record.score:
        said.append(
            f"When known classes were hidden, {percent(record.score)} of their rows came into the right group. Expect "
            "about as much of these groups: space and number of groups were chosen by it."
        )
    else:
        said.append("Too few known classes to hide some and try: the number of groups is a usual setting.")
    return said


def write_discover_page(record: DiscoverRecord, path: str | os.PathLike[str]) -> Path:
    """Write the page of ``record`` to ``path``, whole or not at all."""
    tiles = [("rows looked at", f"{record.rows:,}"), ("fit no known class", f"{record.new:,}")]
    tiles += [("groups", str(len(record.groups)))]
    tiles += [("hidden classes found again", number(record.score, 2))] if record.score == record.score else []
    shown_rows = [[(one_line(name, 40), cells(row, 200)) for name, row in group.typical] for group in record.groups]
    groups = [
        (
            one_line(group.name, 40),
            f"{group.rows:,} rows, {percent(group.nearest[1])} of them" if group.rows > 1 else "1 row,",
            one_line(group.nearest[0], 60),
            [one_line(word, 40) for word in group.words],
            rows,
            all(view.kind == "image" for _, views in rows for view in views),
        )
        for group, rows in zip(record.groups, shown_rows, strict=True)
    ]
    means = "Two dimensions show a part of what the groups were found by."
    of = "row that fits no known class"
    drawn = [map_of(record.vectors, record.labels, "the groups", of, "group", means)] if record.new > 1 else []
    page = rendered(
        "discover.html",
        record,
        model=one_line(record.model, 80),
        names=one_line(record.names, 120),
        tiles=tiles,
        findings=discover_findings(record),
        groups=groups,
        pictures=drawn,
    )
    return replace_text(path, page)
