"""The index of an estimator's bank: made with it, kept in step with it, and saved beside it."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.core import short
from vicinal.core.checks import check_between
from vicinal.core.folders import read_sums, read_whole
from vicinal.core.untrusted import check_inside
from vicinal.heads import NONA, ApproximateKriging, ApproximateNONA, Approximation, Kriging
from vicinal.heads.bank_ball import check_bounded
from vicinal.heads.kinds import attends, indexed_locally, member_heads, weighs_locally
from vicinal.heads.kriging import KrigingWeights
from vicinal.heads.streaming import can_stream
from vicinal.index import FaissIndex, Index, NeighborBank, load_index, open_index
from vicinal.index.index_files import opened
from vicinal.index.pairs import similarity_name
from vicinal.index.part import bank_part, part_of

FOLDER = "index"

_STEP = 1 << 16
"""Rows that are put into an index at a time; it is trained on twice as many."""

_LATEST = 1000
"""Rows of the bank that are looked for in an index that was opened again."""

_MERGED = 256
"""Rows of highest weight of each member, at least, that the highest of their mean are looked for among."""


class NearBank:
    """The heads of an estimator over what their indexes find in its bank.

    See :class:`ApproximateNONA` and :class:`ApproximateKriging`. Members of an Ensemble have an index each, of the
    columns that they read; kriging reads all of them, and has one.

    Args:
        head: NONA, or Ensemble of such, or Kriging.
        store: the bank.
        indexes: one a member, which hold the rows of the bank.
        classes: see :class:`ApproximateNONA`, as is ``tolerance``.
        tolerance: for every member.
    """

    def __init__(
        self,
        head: nn.Module,
        store: NeighborBank,
        indexes: Sequence[Index],
        classes: int | None,
        tolerance: float,
    ) -> None:
        self.store, self.spans, self.indexes = store, _spans(head, store.dim), list(indexes)
        self.members: list[ApproximateNONA | ApproximateKriging] = []
        for member, index, span in zip(_heads(head), indexes, self.spans, strict=True):
            part = bank_part(store, *span)
            if attends(member):
                near = ApproximateNONA(member, index, part, classes=classes, tolerance=tolerance)
                self.members.append(near)
            elif weighs_locally(member):
                self.members.append(ApproximateKriging(member, index, part, classes=classes))

    def __len__(self) -> int:
        return min(len(index) for index in self.indexes)

    def predict(self, queries: Tensor, *, ids: Any = None, groups: Any = None, top: int = 0) -> Approximation:
        """The mean of the members' predictions, and of their bounds: see :meth:`ApproximateNONA.predict`."""
        several = len(self.members) > 1
        count = max(top, _MERGED) if several and top else top
        answers = [
            member.predict(part_of(queries, *span), ids=ids, groups=groups, top=min(count, len(self.store)))
            for member, span in zip(self.members, self.spans, strict=True)
        ]
        if not several:
            return answers[0]
        weights, positions = _merged([one.weights for one in answers], [one.positions for one in answers], top)
        return Approximation(
            prediction=torch.stack([one.prediction for one in answers]).mean(dim=0),
            left_out=torch.stack([one.left_out for one in answers]).mean(dim=0),
            error=torch.stack([one.error for one in answers]).mean(dim=0),
            fetched=torch.stack([one.fetched for one in answers]).amax(dim=0),
            weights=weights,
            positions=positions,
        )

    def local_weights(self, queries: Tensor, *, ids: Any = None, groups: Any = None) -> KrigingWeights:
        """See :meth:`ApproximateKriging.local_weights`; raises TypeError for another head."""
        member = self.members[0]
        if not indexed_locally(member):
            raise TypeError("head: expected kriging, got another")
        return member.local_weights(queries, ids=ids, groups=groups)

    def add(self, keys: Tensor, vectors: Tensor) -> None:
        """Rows that were added to the bank; of all indexes or, after an error, of none."""
        done: list[Index] = []
        try:
            for index, span in zip(self.indexes, self.spans, strict=True):
                missing = _missing(index, keys)
                index.add(keys[missing], part_of(vectors[missing], *span))
                done.append(index)
        except BaseException:
            for index in done:
                if not is_bank(index):
                    index.remove(keys)
            raise
        for member in self.members:
            member.added(keys)

    def set_classes(self, classes: int | None) -> None:
        """How many classes the labels of the bank are of from now on."""
        for member in self.members:
            member.classes = classes

    def remove(self, keys: Tensor) -> None:
        """Rows that were removed from the bank."""
        for index, member in zip(self.indexes, self.members, strict=True):
            index.remove(keys[~_missing(index, keys)])
            member.removed(keys)

    def save(self, stage: Path) -> None:
        """Write the indexes, unless they are the bank itself."""
        for number, index in enumerate(self.indexes):
            if not is_bank(index):
                index.save(stage / FOLDER / str(number))

    def close(self) -> None:
        """Let go of files and connections."""
        for index in self.indexes:
            index.close()


def start_indexes(name: str, head: nn.Module, store: NeighborBank, tolerance: float) -> list[Index]:
    """Empty indexes of that name for a bank, one a member; everything that can be wrong with them is said here.

    Raises:
        TypeError: for what is no name.
        ValueError: for an index that is not there, or cannot serve the head.
    """
    if not isinstance(name, str):
        raise TypeError(f"index: expected a name such as 'exact' or 'faiss:Flat', or None, got {short(name)}")
    check_between("index_tolerance", tolerance, 0, 1, closed=True)
    indexes = []
    for member, span in zip(_heads(head), _spans(head, store.dim), strict=True):
        if attends(member):
            if not can_stream(member.mask, member.simplex):
                raise ValueError(f"index: expected None for a mask or simplex map of your own, got {short(name)}")
            check_bounded(member.similarity)
        settings: dict[str, Any] = {"bank": bank_part(store, *span)}
        if name.partition(":")[0] == "milvus":  # a file may hold the collections of several models
            settings["collection"] = f"vicinal_{uuid.uuid4().hex[:12]}"
        indexes.append(open_index(name, dim=span[1] - span[0], similarity=member.similarity, **settings))
    return indexes


def drop_indexes(indexes: Sequence[Index]) -> None:
    """Let go of indexes that nothing was put into, and of what they have begun in a database."""
    for index in indexes:
        index.drop()


def fill_indexes(indexes: Sequence[Index], head: nn.Module, store: NeighborBank) -> None:
    """Put all rows of a bank into indexes that are empty and hold rows of their own."""
    count = len(store)
    some = torch.linspace(0, count - 1, min(count, 2 * _STEP), dtype=torch.float64).long()
    for index, span in zip(indexes, _spans(head, store.dim), strict=True):
        if is_bank(index) or not count:
            continue
        if isinstance(index, FaissIndex):
            index.train(part_of(store.vectors_at(some), *span))
        for start in range(0, count, _STEP):
            part = torch.arange(start, min(start + _STEP, count))
            index.add(store.keys[part], part_of(store.vectors_at(part), *span))


@dataclass(frozen=True)
class SavedNear:
    """An index that was saved and has not been opened yet.

    Attributes:
        folder: of the model.
        sums: the checksums that it had when the model was loaded; another model may be there by now.
    """

    folder: Path
    sums: dict[str, str]


def load_near(
    name: str, saved: SavedNear, head: nn.Module, store: NeighborBank, classes: int | None, tolerance: float
) -> NearBank:
    """What :meth:`NearBank.save` wrote.

    The bank is what counts: an index that has other rows than it, as a database that was changed and whose model was
    not saved, is made again; so is one in a database whose folder was replaced, and one of another name than ``name``,
    which alone says what is opened.
    """
    parts = list(zip(_heads(head), _spans(head, store.dim), strict=True))

    def read(folder: Path) -> list[Index | None]:
        if not folder.is_dir() or read_sums(folder) != saved.sums:
            return []
        check_inside(folder, FOLDER)
        return [
            _load_index(name, folder / FOLDER / str(number), member, bank_part(store, *span))
            for number, (member, span) in enumerate(parts)
        ]

    indexes = [index for index in read_whole(saved.folder, read) if index is not None]
    latest = store.keys[-_LATEST:].numpy()
    if len(indexes) < len(parts) or any(len(index) != len(store) or not index.has(latest).all() for index in indexes):
        for index in indexes:
            index.close()
        indexes = start_indexes(name, head, store, tolerance)
        fill_indexes(indexes, head, store)
    return NearBank(head, store, indexes, classes, tolerance)


def _load_index(name: str, folder: Path, head: NONA | Kriging, store: NeighborBank) -> Index | None:
    """The index in ``folder`` if there is one of that name, of the head's similarity.

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
    if index.dim != store.dim or similarity_name(index.similarity) != similarity_name(head.similarity):
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


def _heads(head: nn.Module) -> list[NONA | Kriging]:
    heads: list[NONA | Kriging] = []
    for member in member_heads(head):
        if not (attends(member) or weighs_locally(member)):
            raise ValueError(f"index: expected None for a head that looks at no bank, got {type(member).__name__}")
        heads.append(member)
    return heads


def _spans(head: nn.Module, dim: int) -> list[tuple[int, int]]:
    """The columns that each member reads."""
    count = len(member_heads(head))
    width = dim // count
    return [(i * width, (i + 1) * width) for i in range(count)]


def _merged(weights: list[Tensor], positions: list[Tensor], top: int) -> tuple[Tensor, Tensor]:
    """The highest of the mean of the members' weights, by bank row: ``[b, top]`` each."""
    share, where = torch.cat(weights, dim=1) / len(weights), torch.cat(positions, dim=1)
    top_weights = torch.zeros(len(share), top, dtype=share.dtype)
    top_positions = torch.full((len(share), top), -1)
    for row in range(len(share)):
        known = where[row] >= 0
        rows, slot = torch.unique(where[row][known], return_inverse=True)
        total = share.new_zeros(len(rows)).index_add_(0, slot, share[row][known])
        best = total.topk(min(top, len(rows)))
        top_weights[row, : len(best.values)] = best.values
        top_positions[row, : len(best.values)] = rows[best.indices]
    return top_weights, top_positions
