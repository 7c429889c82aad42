"""The users and the items of clicks: their ids, and their columns where there are some."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core import nearest, short
from vicinal.core.identity import as_texts, canonical_ids, spelled

Ids = np.ndarray[Any, Any]

_HINTED = 100_000
"""Ids among which the nearest spelling is looked for, at most."""


@dataclass
class Side:
    """The users, or the items.

    Attributes:
        name: "user" or "item".
        ids: canonical ``[n]``.
        rows: columns of the ids, a row for each; None: there are none.
        described: which ids had a row in a table of columns ``[n]``.
    """

    name: str
    ids: Ids
    rows: pd.DataFrame | None = None
    described: Ids = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def __post_init__(self) -> None:
        self.places = {spelled(text): place for place, text in enumerate(as_texts(self.ids).tolist())}
        if self.rows is None:
            self.described = np.zeros(len(self.ids), dtype=bool)

    def __len__(self) -> int:
        return len(self.ids)

    def positions(self, ids: Iterable[Any]) -> Ids:
        """Positions ``[n]``, -1 for an id that is not there."""
        texts = as_texts(canonical_ids(self.name, list(ids))).tolist()
        return np.array([self.places.get(spelled(text), -1) for text in texts], dtype=np.int64)

    def position(self, name: Any) -> int:
        """The position of an id; raises ValueError if it is not there."""
        place = int(self.positions([name])[0])
        if place < 0:
            near = nearest(str(name), self.places) if len(self.places) <= _HINTED else ""
            article = "an" if self.name == "item" else "a"
            raise ValueError(f"id: expected that of {article} {self.name} of the model, got {short(name)}{near}")
        return place

    def joined(self, ids: Ids, rows: pd.DataFrame | None = None) -> "Side":
        """With further ids behind; those of ``rows``, a row for each of ``ids``, get these columns."""
        texts = as_texts(ids).tolist()
        first = {spelled(text): place for place, text in reversed(list(enumerate(texts)))}
        fresh = ids[sorted(place for text, place in first.items() if text not in self.places)]
        whole = ids.dtype == np.int64 and (len(self) == 0 or self.ids.dtype == np.int64)
        every = np.concatenate([self.ids, fresh] if whole else [as_texts(self.ids), as_texts(fresh)])
        side = Side(self.name, every)
        if rows is None and self.rows is None:
            return side
        tables = [] if self.rows is None else [self.rows[self.described]]
        if rows is not None:
            columns = rows.columns if self.rows is None else self.rows.columns
            tables.append(rows.set_axis(side.positions(ids.tolist())).reindex(columns=columns))
        table = pd.concat(tables) if len(tables) > 1 and len(tables[0]) else tables[-1]
        table = table[~table.index.duplicated(keep="last")]
        described = np.isin(np.arange(len(every)), table.index)
        return Side(self.name, every, table.reindex(range(len(every))), described)

    def without(self, gone: Ids) -> "Side":
        """Without the ids at the positions ``gone``."""
        rest = np.setdiff1d(np.arange(len(self)), gone)
        rows = None if self.rows is None else self.rows.iloc[rest].reset_index(drop=True)
        return Side(self.name, self.ids[rest], rows, self.described[rest])
