"""The contract of an index: rows are put in by id, and a query gets the ids and scores of the rows most like it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.core import as_tensor
from vicinal.core.arrays import Array
from vicinal.core.checks import check_integer
from vicinal.core.identity import check_distinct, shown, whole_ids
from vicinal.index.pairs import similarity_name
from vicinal.similarity.base import resolve_similarity

IdsLike = Tensor | Array | Iterable[int]

_STEP = 1 << 16
"""Rows whose values are checked at a time."""


class Hits(NamedTuple):
    """What a search found, best first.

    Attributes:
        ids: ``[b, k]`` int64; -1 where a query has fewer than k hits.
        scores: ``[b, k]`` float32, descending; ``-inf`` there.
    """

    ids: Tensor
    scores: Tensor


class Index(ABC):
    """Rows by id, and a search for those of highest score. Subclasses write the methods that begin with ``_``.

    Ids are unique whole numbers >= 0. Scores are those of a similarity of this library (higher = more alike: ``l2``
    gives the negated distance, not its square). Among equal scores the lower id comes first. If more rows tie for the
    last place than fit, an exact index returns those with the lowest ids; an approximate one orders only what it found.
    Do not change an index from two threads at once.

    Args:
        dim: width of the vectors.
        similarity: name of a registered similarity, or the module.

    Attributes:
        exact: whether a search misses no row and scores are those of the vectors that were added.
        persistent: whether the effect of :meth:`add` and :meth:`remove` outlives the process once they return.
        behind_colon: argument that stands behind the name and a colon for :func:`vicinal.index.open_index`; "": none.
    """

    exact: ClassVar[bool] = False
    persistent: ClassVar[bool] = False
    behind_colon: ClassVar[str] = ""

    def __init__(self, dim: int, similarity: str | nn.Module = "l2") -> None:
        self.dim = check_integer("dim", dim)
        self.similarity = resolve_similarity(similarity)

    @abstractmethod
    def __len__(self) -> int:
        """Rows that can be found."""

    def add(self, ids: IdsLike, vectors: Tensor | Array) -> None:
        """Put rows in; all of them or, after an error, none.

        Args:
            ids: ``[n]``, whole numbers >= 0 that are not in the index yet.
            vectors: ``[n, d]``, finite; kept in float32.

        Raises:
            TypeError: if ids are not whole numbers or vectors are not a floating matrix.
            ValueError: for an id that is given twice or in the index already, a wrong shape, NaN or infinity.
        """
        numbers = check_distinct(whole_ids("ids", ids))
        rows = check_vectors("vectors", vectors, self.dim, len(numbers))
        if len(numbers) == 0:
            return
        there = self.has(numbers)
        if there.any():
            first = int(numbers[there.argmax()])
            raise ValueError(
                f"ids: expected ids that the index has not yet, got {first}, which it has; remove it first"
            )
        self._add(numbers, rows)

    def remove(self, ids: IdsLike) -> None:
        """Take rows out; later searches do not find them.

        Raises:
            ValueError: for an id that is given twice or is not in the index; nothing is removed then.
        """
        numbers = check_distinct(whole_ids("ids", ids))
        if len(numbers) == 0:
            return
        there = self.has(numbers)
        if not there.all():
            raise ValueError(f"ids: expected ids that the index has, got {shown(numbers[~there])}, which it has not")
        self._remove(numbers)

    def search(self, queries: Tensor | Array, k: int, *, exclude: Tensor | Array | None = None) -> Hits:
        """The ``k`` rows of highest score for each query.

        Args:
            queries: ``[b, d]``, finite.
            k: >= 1; with fewer rows than k, the rest has id -1 and score ``-inf``.
            exclude: ids ``[b]`` or ``[b, m]`` that a query must not get, such as its own; -1 for none. The index is
                asked for m more rows and these are dropped, so k others are found if there are that many.

        Returns:
            ids ``[b, k]`` and scores ``[b, k]`` on the device of the queries, best first.

        Raises:
            TypeError: if queries are not a floating matrix.
            ValueError: for a wrong width, NaN or infinity.
        """
        checked = check_vectors("queries", queries, self.dim)
        k = check_integer("k", k)
        hidden = None if exclude is None else _excluded(exclude, len(checked)).to(checked.device)
        limit = k if hidden is None else k + hidden.shape[1]
        fetched = min(limit, len(self))
        if fetched == 0 or len(checked) == 0:
            return padded(none := checked.new_zeros(len(checked), 0), none.long(), k)
        with torch.no_grad():
            hits = self._search(checked, fetched)
        if hidden is not None:
            hits = _without(hits, hidden)
        return padded(hits.scores, hits.ids, k)

    @abstractmethod
    def has(self, ids: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which of ``ids [n]`` (int64) are in the index: ``[n]``."""

    @abstractmethod
    def _add(self, ids: Array, vectors: Tensor) -> None:
        """Put checked rows in: ids ``[n]`` int64, n >= 1, and vectors ``[n, d]`` float32."""

    @abstractmethod
    def _remove(self, ids: Array) -> None:
        """Take rows out that are there: ids ``[n]`` int64, n >= 1."""

    @abstractmethod
    def _search(self, queries: Tensor, k: int) -> Hits:
        """At most ``k <= len(self)`` hits of checked queries, ordered by :func:`ordered`; fewer columns are padded."""

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the index as a folder, whole or not at all; :func:`vicinal.index.load_index` reads it."""

    @classmethod
    @abstractmethod
    def load(cls, folder: str | Path) -> Self:
        """The index saved in ``folder``.

        Raises:
            ValueError: naming the file that is missing, damaged, edited or of a newer version.
        """

    def close(self) -> None:  # noqa: B027
        """Let go of files and connections; nothing to do for an index that has none."""

    def drop(self) -> None:
        """Close it and remove what it holds outside this process."""
        self.close()

    def __repr__(self) -> str:
        name = similarity_name(self.similarity) or repr(self.similarity)
        return f"{type(self).__name__}({len(self)} rows, dim={self.dim}, similarity={name!r})"


def check_vectors(name: str, values: Tensor | Array, dim: int, rows: int | None = None) -> Tensor:
    """``values`` as a float32 matrix ``[rows, dim]`` of finite numbers that float32 can hold."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind != "f":
            raise TypeError(f"{name}: expected a floating dtype, got {values.dtype}; call .astype('float32') on it")
        values = as_tensor(name, values)
    if not isinstance(values, Tensor):
        raise TypeError(f"{name}: expected a tensor or a numpy array, got {type(values).__name__}")
    if not values.is_floating_point():
        raise TypeError(f"{name}: expected a floating dtype, got {values.dtype}; call .float() on it")
    if values.ndim != 2 or values.shape[1] != dim or (rows is not None and values.shape[0] != rows):
        first = "rows" if rows is None else rows
        raise ValueError(f"{name}: expected a matrix [{first}, {dim}], got shape {tuple(values.shape)}")
    values = values.detach().float()
    for start in range(0, len(values), _STEP):
        bad = ~values[start : start + _STEP].isfinite().all(dim=1)
        if bool(bad.any()):
            raise ValueError(
                f"{name}: expected finite numbers, got NaN or infinity in row {start + int(bad.nonzero()[0])}"
            )
    return values


def ordered(ids: Tensor, scores: Tensor) -> Hits:
    """Hits ``[b, m]`` by falling score, and by rising id where scores are equal."""
    by_id = ids.sort(dim=1, stable=True).indices
    by_score = scores.gather(1, by_id).sort(dim=1, descending=True, stable=True).indices
    order = by_id.gather(1, by_score)
    return Hits(ids.gather(1, order), scores.gather(1, order))


def no_hits(rows: int, k: int, device: torch.device, none: int = -1) -> Hits:
    """Hits ``[rows, k]`` before any is found: the id ``none``, score ``-inf``."""
    return Hits(torch.full((rows, k), none, device=device), torch.full((rows, k), -torch.inf, device=device))


def padded(scores: Tensor, ids: Tensor, k: int) -> Hits:
    """Hits ``[b, k]`` of ordered ones ``[b, m]``: cut, or filled up with id -1 and score ``-inf``."""
    hits = no_hits(len(scores), k, scores.device)
    hits.ids[:, : ids.shape[1]] = ids[:, :k]
    hits.scores[:, : ids.shape[1]] = scores[:, :k]
    hits.scores.masked_fill_(hits.ids < 0, -torch.inf)
    return hits


def _excluded(exclude: Tensor | Array, rows: int) -> Tensor:
    hidden = as_tensor("exclude", exclude)
    if hidden.is_floating_point() or hidden.dtype == torch.bool:
        raise TypeError(f"exclude: expected whole numbers, got {hidden.dtype}")
    hidden = hidden[:, None] if hidden.ndim == 1 else hidden
    if hidden.ndim != 2 or hidden.shape[0] != rows:
        raise ValueError(f"exclude: expected [{rows}] or [{rows}, m], ids for each query, got {tuple(hidden.shape)}")
    return hidden.long()


def _without(hits: Hits, hidden: Tensor) -> Hits:
    gone = torch.zeros_like(hits.ids, dtype=torch.bool)
    for column in hidden.T:
        gone |= hits.ids == column[:, None]
    order = gone.to(torch.int8).sort(dim=1, stable=True).indices
    ids = hits.ids.masked_fill(gone, -1).gather(1, order)
    return Hits(ids, hits.scores.gather(1, order))
