"""``vicinal search``: the bank rows of a model most similar to a text, a row, or each row of a table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd

from vicinal.core import check_choice, short
from vicinal.core.checks import check_integer, short_text
from vicinal.core.folders import kind_of
from vicinal.core.progress import Log
from vicinal.data import read_table
from vicinal.estimators.banked import BankedEstimator, load_model
from vicinal.estimators.matching import RowMatcher
from vicinal.estimators.refined_search import Refinement, refined_search
from vicinal.estimators.saving import OpenSettings, shown_cell
from vicinal.estimators.search import Hit, hit_table, query_table, rows_of
from vicinal.workflows.predict import read_rows


@dataclass(frozen=True)
class Searched:
    """The result of a search: names of the queries, and the hits of each, best first."""

    queries: list[Any]
    hits: list[list[Hit]]

    def flat(self) -> pd.DataFrame:
        """One line per hit: query, rank, id, score, label."""
        return hit_table(self.hits, self.queries)

    def records(self) -> list[dict[str, Any]]:
        """One dictionary per query, with a list of hits and the cells of their rows."""
        return [
            {
                "query": query,
                "hits": [
                    {"id": hit.id, "score": hit.score, "label": hit.label, "row": json_row(hit.row)} for hit in hits
                ],
            }
            for query, hits in zip(self.queries, self.hits, strict=True)
        ]


def json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Cells of a row as JSON values."""
    numbers = (bool, int, float, np.number)
    cells = {name: cell if isinstance(cell, numbers) else shown_cell(cell, None) for name, cell in row.items()}
    return {name: None if cell is None or cell != cell else cell for name, cell in cells.items()}


def open_searcher(folder: Path, k: int = 10, **settings: Any) -> "Searcher | MatcherSearcher":
    """A :class:`Searcher` for the folder of a model, or a :class:`MatcherSearcher` for a match (without ``index``)."""
    if kind_of(folder) == "matcher":
        for name in ("rerank", "precision"):
            if settings.get(name) is not None:
                raise ValueError(f"{name}: expected the folder of a model of learn or fit, got that of a match")
        if settings.get("index") is not None:
            raise ValueError("index: expected none with the folder of a match, which is searched whole, got one")
        return MatcherSearcher(folder, k, settings.get("encoders"), settings.get("column"), settings.get("root"))
    return Searcher(folder, k, **settings)


class MatcherSearcher:
    """Searches the right table of a match, see :meth:`vicinal.estimators.RowMatcher.search`."""

    def __init__(
        self,
        folder: Path,
        k: int,
        encoders: Mapping[str, str] | None = None,
        column: str | None = None,
        root: Path | None = None,
    ) -> None:
        self.k, self.matcher = check_integer("k", k), RowMatcher.load(folder, encoders=encoders)
        self.column, self.matcher.tables_.left.root = column, root
        if column is not None:
            check_choice("column", column, self.matcher.tables_.columns.texts)

    def texts(self, texts: Sequence[str]) -> Searched:
        """Search for texts, in ``column`` if there is one."""
        queries = list(texts) if self.column is None else pd.DataFrame({self.column: list(texts)})
        return self._searched(list(texts), self.matcher.search(queries, self.k))

    def row(self, text: str) -> Searched:
        """Search for a row given as a JSON object."""
        return self._searched([text], self.matcher.search(pd.DataFrame([read_row(text)]), self.k))

    def table(self, source: Path | pd.DataFrame) -> Searched:
        """Search for the rows of a table."""
        frame = read_table(source) if isinstance(source, Path) else source
        return self._searched(frame.index.tolist(), self.matcher.search(frame, self.k))

    def ids(self, ids: Sequence[str]) -> Searched:
        """Search for rows of the left table; in a table matched with itself, without the row itself."""
        return self._searched(list(ids), self.matcher.search_ids(list(ids), self.k))

    def _searched(self, names: list[Any], table: pd.DataFrame) -> Searched:
        hits: list[list[Hit]] = [[] for _ in names]
        for cells in table.to_dict("records"):
            query, row, score = cells.pop("query"), cells.pop("right"), cells.pop("score")
            hits[query].append(Hit(row, score, None, {str(name): cell for name, cell in cells.items()}))
        return Searched(names, hits)


def read_row(text: str) -> dict[str, Any]:
    """The cells of a row from a JSON object; ValueError for other text."""
    try:
        row = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        row = None
    if not isinstance(row, dict) or not row:
        raise ValueError(
            f'row: expected a JSON object as {{"size": 3}}, got {short(text)}; a row of the bank is named by its id'
        )
    return row


class Searcher:
    """Searches the bank of the model in a folder.

    Args:
        folder: of a model of any kind.
        column: to search for texts; None: the first column of texts.
        root: folder that paths of images and sounds start from; None: that of a table of queries.
        words: see :meth:`vicinal.estimators.NeighborRegressor.search`, as for the next three.
        rerank: the folder of a ranker.
        calls: candidates that it reads.
        precision: of what is shown.
        log: gets which columns were left empty, and how many hits a promise leaves.
        opening: how the model is opened, see :class:`vicinal.estimators.saving.OpenSettings`.
    """

    def __init__(
        self,
        folder: Path,
        k: int = 10,
        *,
        words: bool = False,
        rerank: Path | None = None,
        calls: int = 50,
        precision: float | None = None,
        column: str | None = None,
        root: Path | None = None,
        log: Log = lambda line: None,
        **opening: Unpack[OpenSettings],
    ) -> None:
        self.k, self.column, self.root, self.log = check_integer("k", k), column, root, log
        self.model: BankedEstimator = load_model(folder, **opening)
        self.model.root = root
        self.by: dict[str, Any] = {"words": words, "rerank": None, "calls": calls, "precision": precision}
        if rerank is not None:
            self.by["rerank"] = load_model(rerank)

    def texts(self, texts: Sequence[str]) -> Searched:
        """Search for texts in one column."""
        return Searched(list(texts), self._hits(list(texts)))

    def row(self, text: str) -> Searched:
        """Search for a row given as a JSON object."""
        return Searched([text], self._hits(pd.DataFrame([read_row(text)])))

    def table(self, source: Path | pd.DataFrame) -> Searched:
        """Search for the rows of a table; if it has ids, a row does not find the bank row of its own id."""
        frame = read_rows(self.model, source, self.root, self.log)
        column = self.model.notes_.get("id")
        if column in frame.columns:
            return Searched(ids := frame[column].tolist(), self._hits(frame, ids))
        return Searched(frame.index.tolist(), self._hits(frame))

    def ids(self, ids: Sequence[str]) -> Searched:
        """Search for bank rows, without themselves."""
        rows, who = rows_of(self.model, ids)
        by = Refinement(**self.by)
        hits = refined_search(self.model, rows.frame, rows.vectors, self.k, who | {"groups": None}, by)
        return Searched(list(ids), self._promised(hits))

    def _hits(self, queries: Any, ids: Any = None) -> list[list[Hit]]:
        table, empty = query_table(self.model, queries, self.column)
        if empty:
            self.log(f"left empty in the query: {', '.join(short_text(name) for name in empty[:8])}")
            self.log = lambda line: None  # once is enough
        return self._promised(self.model.search(table, self.k, ids=ids, **self.by))

    def _promised(self, hits: list[list[Hit]]) -> list[list[Hit]]:
        """The hits; what a promise means for them is said."""
        if self.by["precision"] is not None:
            shown, none = sum(map(len, hits)), sum(not some for some in hits)
            self.log(
                f"{shown} hits shown: {self.by['precision']:.0%} of them are right, promised with 95 % confidence for "
                f"queries like the rows held out; {none} of {len(hits)} queries have none"
            )
        return hits
