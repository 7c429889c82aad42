"""What can be read of a bank: its rows by position, by id and in blocks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vicinal.core.arrays import Array
from vicinal.core.checks import check_integer
from vicinal.core.identity import as_texts, canonical_ids, whole_values
from vicinal.index.bank_schema import BankSchema, check_values
from vicinal.index.bank_storage import Columns, IdMap, Names, TableStore

if TYPE_CHECKING:
    import pandas as pd


class BankRows:
    """The rows of a bank: the part of :class:`vicinal.index.NeighborBank` that reads."""

    def __init__(self, dim: int) -> None:
        self.dim = check_integer("dim", dim)
        self._columns = Columns()
        self._places: IdMap | None = None
        self._id_names: Names | None = None
        self._group_names: Names | None = None
        self._table: TableStore | None = None
        self._form: BankSchema | None = None
        self._distrusted: set[str] = set()
        self._source = ""

    def __len__(self) -> int:
        return len(self._columns)

    def __contains__(self, value: object) -> bool:
        return bool(self.positions([value])[0] >= 0)

    def __repr__(self) -> str:
        return f"NeighborBank({len(self)} rows, dim={self.dim})"

    def distrust(self, source: str) -> None:
        """Check the values of all columns when they are first used, as those of the file ``source``, as errors say."""
        self._source, self._distrusted = source, set(self._columns.names)

    def check(self) -> None:
        """Check the values of all columns that were read from a file and have not been used yet.

        Raises:
            ValueError: for NaN among vectors or labels, or ids that are given twice.
        """
        for name in self._columns.names:
            self._check(name)
        self.id_map()

    # What is in it.

    @property
    def form(self) -> BankSchema | None:
        """What every row has alike; None before there are rows."""
        return self._form

    @property
    def columns(self) -> list[Any] | None:
        """Names of the columns of the table of rows, or None without."""
        return None if self._table is None else self._table.columns

    @property
    def keys(self) -> Tensor:
        """``[N]`` int64: what stands for the rows in an index."""
        return torch.from_numpy(self._whole("keys"))

    @property
    def ids(self) -> Array:
        """``[N]`` int64 or strings."""
        keys = self._whole("keys")
        return keys.copy() if self._id_names is None else self._id_names.names(keys)

    @property
    def groups(self) -> Array | None:
        """``[N]`` int64 or strings, or None."""
        codes = self.group_codes
        if codes is None:
            return None
        return codes.numpy().copy() if self._group_names is None else self._group_names.names(codes.numpy())

    @property
    def group_codes(self) -> Tensor | None:
        """``[N]`` int64: numbers that stand for the groups, or None."""
        return torch.from_numpy(self._whole("groups")) if self._has("groups") else None

    @property
    def vectors(self) -> Tensor:
        """``[N, d]`` float32: the rows themselves where they lie in one stretch of memory, else a copy; read only."""
        return torch.from_numpy(self._whole("vectors"))

    @property
    def labels(self) -> Tensor | None:
        """``[N]`` or ``[N, T]``, or None; as :attr:`vectors`."""
        return torch.from_numpy(self._whole("labels")) if self._has("labels") else None

    @property
    def folds(self) -> Tensor | None:
        """``[N]`` int64: the fold that each row was held out with in training, -1 for rows added later; or None."""
        return torch.from_numpy(self._whole("folds").astype(np.int64)) if self._has("folds") else None

    @property
    def weights(self) -> Tensor | None:
        """``[N]`` float64: how many equal rows each counts as, or None where every row counts as one."""
        return torch.from_numpy(self._whole("weights")) if self._has("weights") else None

    @property
    def rows(self) -> "pd.DataFrame | None":
        """The table of the rows, or None."""
        return None if self._table is None else self.rows_at(torch.arange(len(self)))

    def positions(self, ids: Any) -> Tensor:
        """Where the rows of ``ids`` stand now: ``[n]``, -1 for ids that the bank has not."""
        return torch.from_numpy(self.id_map().of(self._known_keys(canonical_ids("ids", ids))))

    def positions_of_keys(self, keys: Tensor) -> Tensor:
        """Where the rows of ``keys`` stand now, in the shape of ``keys``; -1 for keys that the bank has not."""
        flat = keys.detach().cpu().numpy().reshape(-1)
        return torch.from_numpy(self.id_map().of(flat)).reshape(keys.shape).to(keys.device)

    def ids_of_keys(self, keys: Tensor) -> Array:
        """The ids of rows by their keys ``[n]``."""
        numbers = keys.detach().cpu().numpy()
        return numbers.copy() if self._id_names is None else self._id_names.names(numbers)

    def codes_of_groups(self, groups: Any) -> Tensor:
        """Numbers ``[n]`` that stand for ``groups``; for those that the bank has not, numbers that no row has."""
        names = canonical_ids("groups", groups)
        if self._group_names is not None:
            return torch.from_numpy(self._group_names.numbers(as_texts(names)))
        numbers, whole = whole_values(names)
        codes = np.zeros(0, dtype=np.int64) if self.group_codes is None else self.group_codes.numpy()
        absent = -1 if whole.all() else np.setdiff1d(np.arange(-1, len(codes)), codes)[0]  # a number of no row
        return torch.from_numpy(np.where(whole, numbers, absent))

    def hidden_keys(self, ids: Any = None, groups: Any = None) -> Tensor:
        """The keys of the rows that queries of these ids and groups may not see: ``exclude`` of a search.

        Args:
            ids: ``[b]``, ids of the queries, or None; ids that the bank has not are passed over.
            groups: ``[b]``, groups of the queries, or None; if the bank has none, this is passed over too.

        Returns:
            ``[b, m]`` int64, filled up with -1; m is the most rows that a query may not see.
        """
        columns: list[Tensor] = []
        if ids is not None:
            keys = torch.from_numpy(self._known_keys(canonical_ids("ids", ids)))
            columns.append(keys.where(self.positions_of_keys(keys) >= 0, -1)[:, None])
        codes = self.group_codes
        if groups is not None and codes is not None:
            columns.append(_members(self.keys, codes, self.codes_of_groups(groups)))
        if not columns:
            raise ValueError("ids: expected ids or groups of the queries, got neither that the bank knows of")
        return torch.cat(columns, dim=1)

    def vectors_at(self, positions: Tensor) -> Tensor:
        """A copy ``[n, d]`` of the vectors at ``positions [n]``."""
        return torch.from_numpy(self._take("vectors", positions))

    def weights_at(self, positions: Tensor) -> Tensor | None:
        """As how many equal rows these count ``[n]``, or None where every row counts as one."""
        return torch.from_numpy(self._take("weights", positions)) if self._has("weights") else None

    def labels_at(self, positions: Tensor) -> Tensor:
        """A copy of the labels at ``positions [n]``.

        Raises:
            ValueError: if the bank has no labels.
        """
        if not self._has("labels"):
            raise ValueError("labels: expected a bank with labels, got one without")
        return torch.from_numpy(self._take("labels", positions))

    def rows_at(self, positions: Tensor) -> "pd.DataFrame":
        """The table of the rows at ``positions [n]``.

        Raises:
            ValueError: if the bank has no table, or its file was torn or edited.
        """
        if self._table is None:
            raise ValueError("rows: expected a bank with a table of rows, got one without")
        return self._table.take(self._take("cells", positions))

    def blocks(self, size: int) -> Iterator[tuple[int, Tensor]]:
        """The vectors a block at a time: where it starts, and its rows ``[n, d]``."""
        for start, piece in self._columns.pieces("vectors", size):
            self._check("vectors", piece)
            yield start, torch.from_numpy(piece)
        self._distrusted.discard("vectors")

    def _has(self, name: str) -> bool:
        form = self._form
        return form is not None and bool(getattr(form, name))

    def _whole(self, name: str) -> Array:
        self._check(name)
        return self._columns.whole(name) if len(self) else self._empty(name)

    def _check(self, name: str, values: Array | None = None) -> None:
        """Check values of a column that came from a file; None: all of them, once."""
        if name not in self._distrusted:
            return
        if values is not None:
            check_values(self._source, name, values)
            return
        for _, piece in self._columns.pieces(name):
            check_values(self._source, name, piece)
        self._distrusted.discard(name)

    def _take(self, name: str, positions: Tensor) -> Array:
        at = positions.detach().cpu().numpy()
        if len(at) and not (at.min() >= 0 and at.max() < len(self)):
            raise ValueError(
                f"positions: expected numbers from 0 to {len(self) - 1}, got {int(at.min())} to {int(at.max())}; "
                "-1 stands for a row that the bank has not"
            )
        if not len(self):
            return self._empty(name)
        values = self._columns.take(name, at)
        self._check(name, values)
        return values

    def _empty(self, name: str) -> Array:
        if name == "vectors":
            return np.zeros((0, self.dim), dtype=np.float32)
        if name == "labels" and self._form is not None and self._form.labels is not None:
            dtype, width = self._form.labels
            return np.zeros((0, width) if width else 0, dtype=dtype)
        return np.zeros(0, dtype=np.int64)

    def id_map(self) -> IdMap:
        """Where each key stands; sorted when it is first asked for."""
        if self._places is None:
            self._places = IdMap(self._whole("keys"))
            if self._places.repeated:
                raise ValueError(f"{self._source}: expected each id once, got one twice; the file was edited")
        return self._places

    def _known_keys(self, names: Array) -> Array:
        """The keys ``[n]`` of ids, -1 for those that the bank has not."""
        if self._id_names is None:
            numbers, whole = whole_values(names)
            return np.where(whole, numbers, -1)
        return self._id_names.numbers(as_texts(names))


def _members(keys: Tensor, codes: Tensor, groups: Tensor) -> Tensor:
    """The ``keys [N]`` whose group in ``codes [N]`` is that of each of ``groups [b]``: ``[b, m]``, -1 behind them."""
    some = torch.isin(codes, groups).nonzero()[:, 0]
    some = some[codes[some].sort(stable=True).indices]
    ranked = codes[some]
    first, last = torch.searchsorted(ranked, groups), torch.searchsorted(ranked, groups, right=True)
    most = int((last - first).amax()) if len(groups) else 0
    slots = first[:, None] + torch.arange(most)
    there = slots < last[:, None]
    return torch.where(there, keys[some[slots.where(there, 0)]], -1) if most else keys.new_zeros(len(groups), 0)
