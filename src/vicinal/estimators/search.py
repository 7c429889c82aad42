"""What is nearest to a text or a row: the rows of a fitted model's bank, best first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core import check_choice, listed, short
from vicinal.core.checks import short_text
from vicinal.core.identity import canonical_ids
from vicinal.data.json_tables import flat_table, wholes_of
from vicinal.estimators.attention import nearest_rows
from vicinal.estimators.bank import check_known
from vicinal.estimators.base import NeighborEstimator
from vicinal.estimators.inputs import EmbeddedRows, as_table

CHECKED = ("image", "audio", "vector")
"""Kinds of columns in which a row cannot go without a cell."""

_LINES = 10
"""Queries whose hits a terminal shows."""


@dataclass(frozen=True)
class Hit:
    """A bank row that a search gives.

    Attributes:
        id: the row's id.
        score: how alike it is to the query by the model's similarity; higher is nearer (for l2, the negated distance).
        label: its number or class.
        row: its columns.
        shares: what columns of the query add to the score, if asked for.
    """

    id: Any
    score: float
    label: Any
    row: dict[str, Any]
    shares: Mapping[str, float] = field(default_factory=dict)


class SearchHits(list[list[Hit]]):
    """The hits of each query, best first; a notebook shows each query beside its hits, with differences marked.

    Attributes:
        queries: cells of each query.
    """

    queries: Sequence[Mapping[str, Any]] = ()

    def __repr__(self) -> str:
        """The hits of the first queries, each in a line: id, label and score."""
        lines = [", ".join(f"row {one.id} {one.label} ({one.score:.3g})" for one in hits) for hits in self[:_LINES]]
        return "\n".join(lines + [f"... and {len(self) - _LINES} more"] * (len(self) > _LINES))

    def to_frame(self) -> pd.DataFrame:
        """One line a hit: query (its place), rank, id, score and label."""
        return hit_table(self)

    def _repr_html_(self) -> str:
        from vicinal.report.notebook import cells_of, first_tables, hits_part

        def part(title: str, place: int) -> Any:
            query = cells_of(self.queries[place]) if self.queries else {}
            return hits_part(title, query, [(hit.id, hit.score, hit.label, cells_of(hit.row)) for hit in self[place]])

        return first_tables(range(len(self)), part, "query")


def query_table(model: NeighborEstimator, queries: Any, column: str | None = None) -> tuple[Any, list[str]]:
    """Queries as the table that ``model`` reads; columns that they have not are empty cells.

    Args:
        model: fitted on a table, or on an array if ``queries`` is one.
        queries: a text, several texts, or rows.
        column: that texts are looked for in; None: the first column of texts that the model reads.

    Returns:
        the rows, and the columns that were left empty.

    Raises:
        ValueError: if a text is empty, the model reads no texts, the rows have none of its columns, or lack a column
            whose cells cannot be empty.
    """
    texts = [queries] if isinstance(queries, str) else queries
    if isinstance(texts, list | tuple) and texts and all(isinstance(text, str) for text in texts):
        for text in texts:
            if not text.strip():
                raise ValueError(f"query: expected words to look for, got {short(text)}")
        queries = pd.DataFrame({_text_column(model, column): list(texts)})
    table = as_table("queries", queries)
    names = getattr(model, "feature_names_in_", None)
    if not isinstance(table, pd.DataFrame) or names is None:
        return table, []
    table = table.rename(columns=str)
    read = [str(name) for name in names]
    if wholes := wholes_of(table.columns, read):  # {"size": {"height": 2}}, which in files is a column "size.height"
        table = pd.concat([table.drop(columns=wholes), flat_table(table[wholes])], axis="columns")
    absent = [name for name in read if name not in table.columns]
    if len(absent) == len(read):
        raise ValueError(
            f"queries: expected at least one of the columns that the model reads ({listed(read, 200)}), got "
            f"{listed(table.columns, 200) or 'none'}"
        )
    several = [name for name, form in model.form_.columns.items() if len(form.typical) > 1]  # a gap is what is typical
    for name in absent:
        if model.kinds_.get(name) in CHECKED and name not in several:
            raise ValueError(
                f"queries: expected the column {short(name)}, which the model reads, got none; only texts, numbers "
                "and categories may be left out"
            )
    empty = {name: np.nan if model.kinds_.get(name) == "number" else None for name in absent}
    return table.assign(**empty)[read], [name for name in absent if name in model.kinds_]


def _text_column(model: NeighborEstimator, column: str | None) -> str:
    texts = [name for name, kind in model.kinds_.items() if kind == "text"]
    if column is not None:
        return check_choice("column", column, texts or list(model.kinds_))
    if not texts:
        kinds = ", ".join(f"{short_text(name)}: {kind}" for name, kind in list(model.kinds_.items())[:8])
        raise ValueError(
            f"query: expected a row, as the model reads no column of texts ({kinds}), got a text; give the row as JSON"
        )
    return texts[0]


def search_rows(model: NeighborEstimator, queries: Tensor, k: int, ids: Any = None, groups: Any = None) -> SearchHits:
    """The ``k`` bank rows nearest to each embedded query ``[n, d]``, best first; of a smaller bank all that may be.

    Args:
        model: fitted.
        queries: ``[n, d]``.
        k: >= 1.
        ids: ids of the queries; a query does not get the row of its own id.
        groups: groups of the queries, nor one of its group.
    """
    identity, bank = model.identity_of(len(queries), ids, groups), model.bank_
    itself = ids is not None and bool(bank.has(identity["ids"]).any())
    most = min(k, len(bank) - itself)
    if most < 1:
        return SearchHits([] for _ in range(len(queries)))
    distances, positions = nearest_rows(model, queries, most, identity)
    places = torch.from_numpy(np.ascontiguousarray(positions)).flatten()
    hits = hits_at(model, places, (-distances).ravel().tolist())
    return SearchHits(hits[start : start + most] for start in range(0, len(hits), most))


def hits_at(model: NeighborEstimator, places: Tensor, scores: Sequence[float]) -> list[Hit]:
    """The bank rows at these places ``[m]`` as hits of these scores."""
    bank = model.bank_
    rows: list[dict[str, Any]] = bank.store.rows_at(places).to_dict("records")  # type: ignore[assignment]
    named = bank.store.ids_of_keys(bank.store.keys[places]).tolist()
    labels = list(map(model.fitted_.codec.named, bank.labels[places].tolist()))
    return [Hit(*each) for each in zip(named, scores, labels, rows, strict=True)]


def vectors_of(model: NeighborEstimator, ids: Sequence[Any]) -> tuple[Tensor, Any]:
    """The embeddings ``[n, d]`` of bank rows by their ids, float64, and the ids in canonical form.

    Raises:
        ValueError: for an id that no row has, with the nearest that one has.
    """
    known = canonical_ids("ids", ids)
    check_known(model.bank_, model.calibration_, known)
    if not model.bank_.has(known).all():
        raise ValueError("ids: expected ids of rows of the bank, got one of a row that was held out")
    return model.bank_.store.vectors_at(model.bank_.store.positions(known)).double(), known


def rows_of(model: NeighborEstimator, ids: Sequence[Any]) -> tuple[EmbeddedRows, dict[str, Any]]:
    """Bank rows by their ids with their embeddings, and their ids and groups; raises as :func:`vectors_of`."""
    vectors, known = vectors_of(model, ids)
    at = model.bank_.store.positions(known)
    return EmbeddedRows(model.bank_.store.rows_at(at), vectors), model.bank_.who(at)


def hit_table(hits: Sequence[Sequence[Hit]], queries: Sequence[Any] | None = None) -> pd.DataFrame:
    """One line a hit: query (its name, or place), rank, id, score, label."""
    names = range(len(hits)) if queries is None else queries
    lines = [
        (name, rank, hit.id, hit.score, hit.label)
        for name, some in zip(names, hits, strict=True)
        for rank, hit in enumerate(some, start=1)
    ]
    return pd.DataFrame(lines, columns=["query", "rank", "id", "score", "label"])
