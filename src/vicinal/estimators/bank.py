"""The bank: labelled rows with identity, which a neighbor model predicts from, and how it is filled."""

import copy
import math
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.blockwise.exclusion import Exclusion
from vicinal.blockwise.nearest import NearestRows
from vicinal.blockwise.topk import Nearest
from vicinal.core import nearest, short
from vicinal.core.identity import Grouped
from vicinal.core.threads import all_threads
from vicinal.estimators.inputs import Ids, LabelledRows
from vicinal.estimators.label_codec import LabelCodec
from vicinal.heads import Kriging
from vicinal.heads.admissible import Identity
from vicinal.heads.whole_bank import WholeBank
from vicinal.index import NeighborBank
from vicinal.training import NeighborNetwork
from vicinal.training.rows import RowInputs, RowSubset, spread

_EQUAL = 1e-10
"""Squared distance up to which two vectors are one, as a share of their variance: that of rounding in float32."""

_COMPARED = 256
"""Rows that stand for all of a bank, and queries of a large one."""

_MANY = 1 << 15
"""Rows from which on a bank is large."""

_ROWS = 8
"""Rows that a notebook shows."""

_SHOWN = 10_000
"""Ids among which the nearest to one that is not there is looked for."""


class Bank(Grouped):
    """Rows that can be attended to, in the words of the estimators, over a :class:`vicinal.index.NeighborBank`.

    Adding and removing rows changes it in place. Removing moves the last rows into the gaps, so positions change; ids
    do not.

    Args:
        ids: ``[N]``, unique. All ids and groups are compared as :mod:`vicinal.core.identity` describes.
        vectors: embeddings ``[N, d]``; kept in float32.
        labels: ``[N]``: numbers, or positions of classes; kept in float64.
        rows: the table's columns of these rows, for explanations.
        groups: ``[N]`` or None.

    The first search computes what it needs to know about every row (4 bytes a row); :meth:`add` and :meth:`remove` keep
    it up to date.

    Attributes:
        store: what holds the rows.
        state: a new object whenever rows are added or removed, so that anything computed from the rows can tell whether
            they are still the same. A copy, also by pickle, keeps this tie.
        inverted: a state, and what :meth:`whole` gave for it last; None: nothing yet.
        codec: of the model that was asked for it, which names classes; None: labels are shown as they are kept.
    """

    codec: LabelCodec | None = None
    _prepared: NearestRows | None = None
    inverted: tuple[object, WholeBank] | None = None
    _line: tuple[object, Tensor, Tensor] | None = None
    _target: int | None = None

    def __init__(
        self, ids: Ids, vectors: Tensor, labels: Tensor, rows: pd.DataFrame, groups: Ids | None = None
    ) -> None:
        self.store, self.state = NeighborBank(vectors.shape[1]), object()
        self.add(ids, vectors, labels, rows, groups)

    @classmethod
    def over(cls, store: NeighborBank) -> Self:
        """The bank whose rows ``store`` holds."""
        bank = cls.__new__(cls)
        bank.store, bank.state = store, object()
        return bank

    @classmethod
    def load(cls, folder: Path, *, verify: bool) -> Self:
        """See :meth:`vicinal.index.NeighborBank.load`."""
        return cls.over(NeighborBank.load(folder, verify=verify))

    def __len__(self) -> int:
        return len(self.store)

    def __repr__(self) -> str:
        return f"Bank({len(self):,} rows, {self.vectors.shape[1]} numbers each)"

    def _repr_html_(self) -> str:
        from vicinal.report.notebook import plain_table
        from vicinal.report.theme import notebook_html

        rows = self.store.rows_at(torch.arange(min(len(self), _ROWS)))
        labels = self.labels[:_ROWS].tolist()
        labels = labels if self.codec is None else [self.codec.named(label) for label in labels]
        cells = zip(self.ids, labels, *(rows[name] for name in rows), strict=False)
        headings = ["id", "label", *map(str, rows.columns)]
        more = [f"{len(self) - _ROWS:,} more rows"] if len(self) > _ROWS else []
        return notebook_html(plain_table(headings, [*cells], repr(self), *more))

    @property
    def ids(self) -> Ids:
        """``[N]`` int64 or str, each once."""
        return self.store.ids

    @property
    def vectors(self) -> Tensor:
        """Embeddings ``[N, d]``, float32; read only."""
        return self.store.vectors

    @property
    def labels(self) -> Tensor:
        """Numbers or positions of classes ``[N]``, several of either ``[N, T]``; float64, read only."""
        labels = self.store.labels
        if labels is None:
            return torch.zeros(0, dtype=torch.float64)
        return labels if self._target is None else labels[:, self._target]

    @property
    def rows(self) -> pd.DataFrame:
        """A copy of the table's columns of these rows."""
        rows = self.store.rows
        return pd.DataFrame() if rows is None else rows

    @property
    def groups(self) -> Ids | None:
        """``[N]`` int64 or str, or None."""
        return self.store.groups

    @property
    def folds(self) -> Tensor | None:
        """``[N]`` int64: the fold that each row was left out with in training, -1 for rows added later; or None."""
        return self.store.folds

    def in_fold(self, fold: int, at: Tensor | None = None) -> Tensor:
        """Whether each row, or each at these places, was left out with this fold: bool ``[n]``.

        Raises:
            ValueError: for rows of which nothing says the fold.
        """
        if self.folds is None:
            raise ValueError("folds: expected rows of a model fitted with folds, got rows without; fit with folds")
        return (self.folds if at is None else self.folds[at]) == fold

    @property
    def weights(self) -> Tensor | None:
        """``[N]`` float64: how many equal rows each counts as, in units of the fit; None where all count as one."""
        return self.store.weights

    @property
    def grouped(self) -> bool:
        """Whether rows have groups."""
        return self.store.group_codes is not None

    @property
    def mass(self) -> Tensor:
        """``[N]`` float64: how many equal rows each counts as, 1 where nothing else was said."""
        return torch.ones(len(self), dtype=torch.float64) if self.weights is None else self.weights

    def who(self, at: Tensor) -> dict[str, Ids | None]:
        """Ids and groups of the rows at these positions, as queries of a bank have them."""
        return {"ids": self.ids[at.numpy()], "groups": None if self.groups is None else self.groups[at.numpy()]}

    def of_target(self, place: int | None) -> Self:
        """The same rows with one of their several targets as label ``[N]``, None: all; valid until a row changes."""
        bank = copy.copy(self)
        bank.__dict__ |= {"_target": place}
        return bank

    def keys_of(self, ids: Ids | None = None) -> Tensor | None:
        """Numbers that stand for ``ids`` inside this bank: their positions, and -1 for None and for unknown ids."""
        if ids is None:
            return None
        if np.asarray(ids).dtype != object:
            return self.store.positions(ids)
        keys = torch.full((len(ids),), -1)
        known = np.flatnonzero([value is not None for value in ids])
        keys[torch.from_numpy(known)] = self.store.positions([ids[i] for i in known])
        return keys

    def codes_of(self, groups: Ids | None = None) -> Tensor | None:
        """Numbers that stand for ``groups`` inside this bank; unknown groups get other numbers, or -1."""
        if groups is None or self.store.group_codes is None:
            return None
        return self.store.codes_of_groups(groups)

    def identity(self, ids: Ids | None = None, groups: Ids | None = None) -> dict[str, Tensor | None]:
        """Keyword arguments that tell a head which bank rows queries may not see, and what each row counts as."""
        query_ids, query_groups = self.keys_of(ids), self.codes_of(groups)
        return {
            "query_ids": query_ids,
            "bank_ids": None if query_ids is None else torch.arange(len(self)),
            "query_groups": query_groups,
            "bank_groups": None if query_groups is None else self.store.group_codes,
            "bank_weight": self.weights,
        }

    def prepared(self) -> NearestRows:
        """The search structure for the rows as they are now."""
        if self._prepared is None:
            self._prepared = NearestRows(self.vectors)
        return self._prepared

    def whole(self, head: Kriging, vectors: Tensor) -> WholeBank:
        """The predictor that uses all rows as they are now, by ``vectors [N, d]`` or a part of them."""
        if self.inverted is None or self.inverted[0] is not self.state or self.inverted[1].head is not head:
            self.inverted = self.state, WholeBank(head, vectors, self.weights)
        return self.inverted[1]

    def knowing_whole(self, other: "Bank") -> Self:
        """Itself, with that predictor of a bank of the same rows, whose vectors are a part of these."""
        if other.inverted is not None and other.inverted[0] is other.state:
            self.inverted = self.state, other.inverted[1]
        return self

    def nearest(self, queries: Tensor, k: int, identity: Mapping[str, Tensor | None]) -> Nearest:
        """The ``k`` nearest rows by Euclidean distance: see :meth:`vicinal.blockwise.nearest.NearestRows.search`.

        Args:
            queries: ``[b, d]``.
            k: >= 1.
            identity: as :meth:`identity` gives it.
        """
        keys = Identity(**identity).keys(len(queries), len(self))
        return self.prepared().search(queries, self.vectors, k, Exclusion(keys))

    @torch.no_grad()
    def equal_rows(self, queries: Tensor) -> int:
        """How many of ``queries [b, d]`` have the vector of a row of the bank, more than chance explains.

        Where rows of the bank often equal each other, as in tables of few categories, queries equal them by chance:
        then it is 0, unless they do so three standard deviations more often. Of a large bank ``_COMPARED`` queries
        stand for all.
        """
        rows = spread(len(queries), len(queries) if len(self) < _MANY else _COMPARED)
        sample = self.vectors[spread(len(self), _COMPARED)].double()
        tolerance = _EQUAL * float(sample.var(dim=0, correction=0).sum())
        if tolerance == 0 or not len(rows):  # no row differs from any other
            return 0
        equal = int(self._equals(queries[rows].double(), tolerance, 1).sum())
        if not equal:
            return 0
        chance = float((self._equals(sample, tolerance, 2) > 1).double().mean())
        usual = len(rows) * chance + 3 * math.sqrt(len(rows) * chance * (1 - chance))
        return round(equal * len(queries) / len(rows)) if equal > usual else 0

    def _equals(self, queries: Tensor, tolerance: float, most: int) -> Tensor:
        """How many rows are as near as ``tolerance`` to each of ``queries [b, d]``, up to ``most``.

        Rows that are near are so along any line, where they stand sorted: only those beside a query are compared.
        """
        line = torch.randn(self.store.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        line /= torch.linalg.vector_norm(line)
        if self._line is None or self._line[0] is not self.state:
            self._line = self.state, *(self.vectors @ line.to(self.vectors.dtype)).double().sort()
        _, places, order = self._line
        rounding = len(line) * torch.finfo(self.vectors.dtype).eps * torch.linalg.vector_norm(queries, dim=1)
        at, reach = queries @ line, math.sqrt(tolerance) + 2 * rounding
        start, end = torch.searchsorted(places, at - reach), torch.searchsorted(places, at + reach, right=True)
        counts, left = torch.zeros_like(start), (start < end).nonzero()[:, 0]
        while len(left):
            apart = queries[left] - self.vectors[order[start[left]]]
            counts[left] += torch.linalg.vecdot(apart, apart) <= tolerance
            start[left] += 1
            left = left[(start[left] < end[left]) & (counts[left] < most)]
        return counts

    def has(self, ids: Iterable[Any]) -> Ids:
        """Which of ``ids`` are in the bank: ``[n]``."""
        return self.store.positions(ids).numpy() >= 0

    def take(self, positions: Ids, vectors: Tensor | None = None, *, cells: bool = True) -> Self:
        """A bank of its own of the rows at ``positions``, in that order, with other ``vectors [n, d']`` if given.

        Without ``cells`` it has nothing to show of them: predictions need none, and a table is slow to copy.
        """
        at = torch.from_numpy(np.asarray(positions, dtype=np.int64))
        store = self.store
        vectors = store.vectors_at(at) if vectors is None else vectors.float()
        subset = NeighborBank(vectors.shape[1])
        if not len(store):
            return self.over(subset)
        subset.add(
            store.ids_of_keys(store.keys[at]),
            vectors,
            store.labels_at(at),
            groups=self.who(at)["groups"],
            rows=store.rows_at(at) if cells else None,
            folds=None if self.folds is None else self.folds[at].numpy(),
            weights=store.weights_at(at),
        )
        return self.over(subset).of_target(self._target)

    def add(
        self,
        ids: Ids,
        vectors: Tensor,
        labels: Tensor,
        rows: pd.DataFrame,
        groups: Ids | None = None,
        weights: Any = None,
    ) -> Tensor:
        """Put rows in, all or none.

        Returns:
            the keys ``[n]`` by which an index knows them.

        Raises:
            ValueError: if an id is already in the bank, or if only the bank or only the new rows have groups.
        """
        before = len(self)
        if len(ids) and before:
            self.store.reserve(before + len(ids))
        self.store.add(ids, vectors, labels.double(), groups=groups, rows=rows, weights=weights)
        self.state = object()
        if self._prepared is not None:
            self._prepared.update(self.vectors, torch.arange(before, len(self)))
        return self.store.keys[before:].clone()

    def remove(self, ids: Ids) -> Tensor:
        """Take out the rows with these ids (no id twice); ids that are not in the bank are ignored.

        Returns:
            the keys ``[n]`` by which an index knew them.
        """
        there = ids[self.has(ids)]
        places = self.store.positions(there)
        keys = self.store.keys[places]
        self.store.remove(there)
        self.state = object()
        if self._prepared is not None:  # the last rows stand in the places of those that are gone
            self._prepared.update(self.vectors, places[places < len(self)])
        return keys

    def relabel(self, ids: Ids, labels: Tensor) -> None:
        """Give the rows with these ids (no id twice) new labels ``[n]`` or ``[n, K]``."""
        self.store.update(ids, labels=labels.double())
        self.state = object()


def check_known(bank: Bank, others: Bank, ids: Ids, advice: str = "") -> None:
    """Raise ValueError if one of ``ids`` is in neither bank, with ``advice`` and the nearest that is."""
    lost = ids[~(bank.has(ids) | others.has(ids))].tolist()
    if lost:
        hint = nearest(str(lost[0]), map(str, bank.ids[:_SHOWN].tolist()))
        raise ValueError(f"ids: expected ids of rows that the model was given, got {short(lost[0])}{advice}{hint}")


_PROCESSOR = torch.device("cpu")

_BLOCK = 1 << 14
"""Rows that are embedded before they are kept; a multiple of the batch of embedding."""


def embedded(
    network: NeighborNetwork,
    inputs: RowInputs,
    dtype: torch.dtype = torch.float64,
    device: torch.device = _PROCESSOR,
    folds: Tensor | None = None,
) -> Tensor:
    """Embeddings ``[n, d]`` of all rows, on the CPU.

    Encoders that were tuned run on ``device``, and the network moves back; those of frozen ones have run by now.
    ``folds [n]`` are those of rows that a cross-fitted network was trained on.
    """
    tuned = any(part.learned and not part.frozen for part in getattr(network.encoder, "encoders", ()))
    device = device if tuned else _PROCESSOR
    vectors: Tensor | None = None
    if device != _PROCESSOR:
        network.to(device)
    try:
        for start in range(0, len(inputs), _BLOCK):
            rows = torch.arange(start, min(start + _BLOCK, len(inputs)))
            some = None if folds is None else folds[rows]
            with all_threads() if tuned else nullcontext():
                part = network.embed_all(RowSubset(inputs, rows), device, folds=some)
            if vectors is None:
                vectors = torch.empty(len(inputs), part.shape[1], dtype=dtype)
            vectors[start : start + len(rows)] = part.to(_PROCESSOR)
    finally:
        if device != _PROCESSOR:
            network.to(_PROCESSOR)
    return torch.zeros(0, 0, dtype=dtype) if vectors is None else vectors


def filled_bank(
    network: NeighborNetwork,
    inputs: RowInputs,
    rows: LabelledRows,
    positions: np.ndarray,
    device: torch.device = _PROCESSOR,
) -> Bank:
    """The bank of those of all ``rows`` that stand at ``positions [n]``; tuned encoders run on ``device``."""
    store = NeighborBank(network.width)
    store.reserve(len(positions) + len(positions) // 8)  # room for rows that are added; it costs no memory until then
    for start in range(0, len(positions), _BLOCK):
        at = positions[start : start + _BLOCK]
        known = rows.of(at)
        of_folds = torch.from_numpy(known["folds"]) if known["folds"] is not None and network.cross_fitted else None
        some = RowSubset(inputs, torch.arange(start, start + len(at)))
        vectors = embedded(network, some, torch.float32, device, of_folds)
        store.add(rows.ids[at], vectors, rows.labels[torch.from_numpy(at)], rows=rows.frame.iloc[at], **known)
    return Bank.over(store)
