"""The index of an estimator's bank: made with it, kept in step with it, and saved beside it."""

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.blockwise.blocks import policy, row_slices
from vicinal.blockwise.exclusion import check_some_row
from vicinal.core import short
from vicinal.core.checks import warn_caller
from vicinal.core.folders import read_sums, read_whole
from vicinal.core.untrusted import check_inside
from vicinal.heads.kinds import weighs_locally
from vicinal.heads.kriging import Kriging, KrigingWeights
from vicinal.index import FaissIndex, Index, NeighborBank, load_index, open_index
from vicinal.index.index_files import opened
from vicinal.index.pairs import similarity_name

FOLDER = "index"

_SIMILARITY = "l2"
"""What an index searches by: a kriging readout goes by distances."""

_STEP = 1 << 16
"""Rows that are put into an index at a time; it is trained on twice as many."""

_LATEST = 1000
"""Rows of the bank that are looked for in an index that was opened again."""


class NearBank:
    """A kriging readout over the rows that an index finds: one search a query, whatever the size of the bank.

    With an exact index these are the k nearest rows of the bank, up to rows that are equally near in float32. With an
    approximate index (FAISS, Milvus) they are what it returned: measure its recall.

    Args:
        head: sets how many rows are used, and their weights.
        store: the bank.
        index: holds the rows of the bank under their keys, of similarity l2; or a saved index, which is opened when
            it is first asked for: a database may be far away, and a model that only shows its rows needs none.

    >>> from vicinal.index import ExactIndex
    >>> bank = NeighborBank(1)
    >>> bank.add(range(1000), torch.arange(1000.0)[:, None], torch.arange(1000.0))
    >>> near = NearBank(Kriging(8, scale=4.0, noise=1e-6), bank, ExactIndex(1, bank=bank))
    >>> local = near.local_weights(torch.tensor([[5.25]], dtype=torch.float64))
    >>> round(float(local.mean(bank.labels)), 2), local.largest(2)[1].tolist()
    (5.24, [[5, 6]])
    """

    def __init__(self, head: Kriging, store: NeighborBank, index: "Index | SavedNear") -> None:
        self.head, self.store, self._index = head, store, index

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: a saved index is opened first, so that the folder is needed no more."""
        return vars(self) | {"_index": self.index}

    @property
    def index(self) -> Index:
        """The index, open."""
        if isinstance(self._index, SavedNear):
            self._index = self._index.opened(self.store)
        return self._index

    def read_by(self, head: Any) -> "NearBank":
        """The rows that the same index finds, weighed by another head."""
        return NearBank(head, self.store, self.index)

    @torch.no_grad()
    def local_weights(self, queries: Tensor, *, ids: Any = None, groups: Any = None) -> KrigingWeights:
        """The rows that make the predictions of queries ``[b, d]``: see :meth:`Kriging.local_weights`.

        Args:
            queries: ``[b, d]``, finite.
            ids: ``[b]``, ids of the queries, as in the bank: a query never sees the row with its own id. None: all
                rows.
            groups: ``[b]``, likewise: nor a row of its own group.

        Raises:
            ValueError: if a query has no admissible row.
        """
        hidden = None if ids is None and groups is None else self.store.hidden_keys(ids, groups)
        k = min(self.head.k, len(self.store))
        parts = []
        for part in row_slices(len(queries), policy().batch_queries):
            exclude = None if hidden is None else hidden[part]
            keys = self.index.search(queries[part].float(), k, exclude=exclude).ids
            parts.append(self._weights(queries[part], self.store.positions_of_keys(keys)))
        each = zip(*parts, strict=True)
        return KrigingWeights(*(None if values[0] is None else torch.cat(values) for values in each))  # type: ignore[arg-type]

    def _weights(self, queries: Tensor, positions: Tensor) -> KrigingWeights:
        """Weights of the rows at ``positions [b, k]``, which are read once each."""
        known = positions >= 0
        check_some_row(torch.where(known.any(dim=1), 0.0, torch.inf))
        places, where = torch.unique(positions[known], return_inverse=True)
        slots = torch.full_like(positions, -1).masked_scatter_(known, where)
        mass = self.store.weights_at(places)
        local = self.head.weights_of(queries, self.store.vectors_at(places), slots, mass)
        return KrigingWeights(local.weights, positions, local.variance, local.trend, local.moves)

    def add(self, keys: Tensor, vectors: Tensor) -> None:
        """Rows that were added to the bank."""
        missing = _missing(self.index, keys)
        self.index.add(keys[missing], vectors[missing])

    def remove(self, keys: Tensor) -> None:
        """Rows that were removed from the bank."""
        self.index.remove(keys[~_missing(self.index, keys)])

    def save(self, stage: Path) -> None:
        """Write the index, unless it is the bank itself."""
        if not is_bank(self.index):
            self.index.save(_place(stage))


def check_index(name: Any, width: int) -> None:
    """Raise unless there is an index of that name for rows of so many numbers, before anything is trained.

    Raises:
        TypeError: for what is no name.
        ValueError: for an index that is not there.
    """
    if name is not None:
        _started(name, NeighborBank(width)).drop()


def with_near(name: str, head: nn.Module, store: NeighborBank) -> NearBank | None:
    """The head over a new index with all rows of a bank.

    None for attention, with a warning: it weighs every row, so that no few rows make its prediction.
    """
    if not weighs_locally(head):
        warn_caller(
            f"index: expected None for readout 'attention', which weighs every row of the bank, got {short(name)}, "
            "which is not used; take readout='rows' to predict from the rows that an index finds"
        )
        return None
    return NearBank(head, store, _filled(name, store))


def _filled(name: str, store: NeighborBank) -> Index:
    """A new index with all rows of a bank."""
    index, count = _started(name, store), len(store)
    if count and not is_bank(index):
        if isinstance(index, FaissIndex):
            some = torch.linspace(0, count - 1, min(count, 2 * _STEP), dtype=torch.float64).long()
            index.train(store.vectors_at(some))
        for start in range(0, count, _STEP):
            part = torch.arange(start, min(start + _STEP, count))
            index.add(store.keys[part], store.vectors_at(part))
    return index


def _started(name: Any, store: NeighborBank) -> Index:
    """An empty index of that name for a bank; everything that can be wrong with it is said here."""
    if not isinstance(name, str):
        raise TypeError(f"index: expected a name such as 'exact' or 'faiss:Flat', or None, got {short(name)}")
    settings: dict[str, Any] = {"bank": store}
    if name.partition(":")[0] == "milvus":  # a file may hold the collections of several models
        settings["collection"] = f"vicinal_{uuid.uuid4().hex[:12]}"
    return open_index(name, dim=store.dim, similarity=_SIMILARITY, **settings)


@dataclass(frozen=True)
class SavedNear:
    """An index that was saved and has not been opened yet.

    Attributes:
        name: of the index.
        folder: of the model.
        sums: the checksums that it had when the model was loaded; another model may be there by now.
    """

    name: str
    folder: Path
    sums: dict[str, str]

    def opened(self, store: NeighborBank) -> Index:
        """What :meth:`NearBank.save` wrote, if it has the rows of the bank.

        The bank is what counts: an index that has other rows than it, as a database that was changed and whose model
        was not saved, is made again; so is one in a database whose folder was replaced, and one of another name, which
        alone says what is opened.
        """

        def read(folder: Path) -> Index | None:
            if not folder.is_dir() or read_sums(folder) != self.sums:
                return None
            check_inside(folder, FOLDER)
            return _load_index(self.name, _place(folder), store)

        index = read_whole(self.folder, read)
        if index is not None and len(index) == len(store) and index.has(store.keys[-_LATEST:].numpy()).all():
            return index
        if index is not None:
            index.close()
        return _filled(self.name, store)


def _place(folder: Path) -> Path:
    """Where the index of a model stands; earlier versions had one for each member, by their numbers."""
    return folder / FOLDER / "0"


def _load_index(name: str, folder: Path, store: NeighborBank) -> Index | None:
    """The index in ``folder`` if there is one of that name.

    Raises:
        ValueError: if it is not whole, or of another width or similarity than the model.
    """
    kind, _, rest = name.partition(":")
    if kind == "exact" or not folder.is_dir() or (saved := opened(folder)).kind != kind:
        return None
    if kind == "faiss" and saved.settings.get("factory") != (rest or "Flat"):
        return None
    settings = {"uri": rest} if kind == "milvus" else {}
    index = load_index(folder, bank=store, **settings)
    if index.dim != store.dim or similarity_name(index.similarity) != _SIMILARITY:
        index.close()
        raise ValueError(f"index.json: expected width and similarity of the model in {folder}, got others")
    return index


def _missing(index: Index, keys: Tensor) -> Tensor:
    """Which of ``keys [n]`` an index has not yet; in a database another process may have put them there already."""
    if is_bank(index):
        return torch.ones(len(keys), dtype=torch.bool)
    return torch.from_numpy(~np.asarray(index.has(keys.numpy())))


def is_bank(index: Index) -> bool:
    """Whether an index searches the bank itself, and so holds no rows of its own."""
    return bool(getattr(index, "shared", False))
