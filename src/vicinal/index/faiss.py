"""Search by FAISS: any index that one of its factory strings names."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from vicinal.core import register, short
from vicinal.core.arrays import Array
from vicinal.core.checks import check_integer, optional_import, short_text
from vicinal.core.folders import read_whole
from vicinal.core.untrusted import Saved
from vicinal.index.bank import NeighborBank
from vicinal.index.bank_storage import Columns, IdMap
from vicinal.index.base import Hits, Index, check_vectors
from vicinal.index.external import as_float32, external_metric
from vicinal.index.index_files import check_rows, opened, sealed
from vicinal.index.tensor_file import Column, map_tensors, write_tensors

_DATA, _STATE = "index.faiss", "state.safetensors"


_CELLS = 128
"""Cells that a search visits by default, at most: an eighth of very many takes as long as comparing all rows."""

_SAMPLE = 1 << 14
"""Rows, at most, of which the median is taken."""

_EARLY = 64
"""Rows from which the median is kept for good."""

_FAR, _FARTHEST = 1e4, 1e18
"""Rows so many times as long as the median are not trained on; longer ones than the second are shortened to it."""

_USUAL = re.compile(
    r"(PCA[RW]{0,2}\d{1,4},|OPQ\d{1,3}(_\d{1,4})?,)?(IVF\d{1,7}(_HNSW\d{1,2})?,)?"
    r"(Flat|SQ[468]|SQfp16|SQbf16|PQ\d{1,3}(x([4-9]|1[0-2]))?(fs|fsr|np)?|HNSW\d{1,3}(,Flat|_SQ8|_PQ\d{1,3})?)(,RFlat)?"
)
"""Factory strings that need no more memory than the rows ask for."""


class SavedFaiss(Saved):
    """The settings of a saved index."""

    factory: str = Field(max_length=200)
    search: str | None = Field(pattern=r"^[A-Za-z_]+=[0-9]{1,9}(,[A-Za-z_]+=[0-9]{1,9})*$", max_length=200)
    seed: Annotated[int, Field(ge=0, lt=1 << 31)]


@register("index", "faiss", "approximate-search", "optional-package", paper="arXiv:2401.08281", verified="`exact`")
class FaissIndex(Index):
    """Search by a FAISS index of any factory string: ``Flat``, ``IVF1024,Flat``, ``HNSW32``, ``IVF1024,PQ32``, ...

    An index that needs training is trained on the rows of the first :meth:`add`, or earlier by :meth:`train`; it needs
    at least as many rows as it has cells (and centroids of its codes), and is better with 40 times as many. Graphs
    (HNSW, NSG) cannot remove rows: these are no longer found, but stay in memory and in the saved file, so make a new
    index now and then.

    Vectors are centered at the median of the first rows for distances, since FAISS loses digits on data far from 0, and
    a few far rows, such as fill values, must not move the others. Farther rows than 1e18 count as that far.

    Args:
        dim: width of the vectors.
        similarity: l2, squared_l2, dot, scaled_dot or cosine.
        factory: see https://github.com/facebookresearch/faiss/wiki/The-index-factory.
        search: parameters of the search as FAISS words them, ``"nprobe=32"`` or ``"efSearch=128"``. None: an eighth of
            the cells, at least 16 and at most 128, and efSearch 64.
        seed: of the training.
        bank: rescore what FAISS finds from the vectors of this bank, which must hold the same rows under the same keys;
            without it, scores are those that FAISS computes from what it stored.

    Raises:
        ValueError: if FAISS is not installed or cannot read the factory string, or cannot serve the similarity.
    """

    behind_colon = "factory"

    def __init__(
        self,
        dim: int,
        similarity: str | nn.Module = "l2",
        *,
        factory: str = "Flat",
        search: str | None = None,
        seed: int = 0,
        bank: NeighborBank | None = None,
    ) -> None:
        super().__init__(dim, similarity)
        self._faiss = optional_import("index", "faiss", "faiss")
        self.factory, self.settings, self.bank = factory, search, bank
        self.seed = check_integer("seed", seed, 0)
        self._external = external_metric(self.similarity, "faiss")
        self._empty()
        few = np.zeros(0, dtype=np.int64), torch.zeros(0, self.dim)
        self._early: tuple[Array, Tensor] | None = few if self.trained and self._external.metric == "L2" else None

    def _empty(self) -> None:
        self._places = IdMap(np.zeros(0, dtype=np.int64))
        self._ids = Columns()  # by the running numbers that rows have in FAISS; -1 for removed rows
        self._center: Tensor | None = None
        self._index = self._new_index()

    @staticmethod
    def usual(factory: str) -> bool:
        """Whether a factory string is one of those that a model folder may bring: it builds nothing beyond its rows.

        >>> FaissIndex.usual("IVF1024,PQ32"), FaissIndex.usual("IMI2x14,Flat")
        (True, False)
        """
        return _USUAL.fullmatch(factory or "Flat") is not None

    def __len__(self) -> int:
        return len(self._places)

    def has(self, ids: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """See :meth:`Index.has`."""
        return self._places.has(ids)

    @property
    def trained(self) -> bool:
        """Whether rows can be added without training."""
        return bool(self._index.is_trained)

    def train(self, vectors: Tensor | Array) -> None:
        """Train the cells and codes on ``vectors [n, d]``; nothing to do for an index without.

        Raises:
            ValueError: if there are fewer rows than the index has cells or centroids.
        """
        self._early = None
        self._train(check_vectors("vectors", vectors, self.dim))

    def _train(self, rows: Tensor) -> None:
        if self._center is None and self._external.metric == "L2" and len(rows):
            self._center = rows[:: -(-len(rows) // _SAMPLE)].median(dim=0).values.cpu()
        if self._index.is_trained:
            return
        rows = self._without_far(rows)
        for clustering, least in self._clusterings():
            clustering.seed, clustering.min_points_per_centroid = self.seed, 1
            if len(rows) < least:
                raise ValueError(
                    f"vectors: expected at least {least} rows to train {self.factory!r}, better {40 * least}, "
                    f"got {len(rows)}; use fewer cells, or train it on more rows"
                )
        with self._used("factory", self.factory):
            self._index.train(self._prepared(rows))

    def _without_far(self, rows: Tensor) -> Tensor:
        """Rows that are not far beyond the others: a fill value would take the range of all codes."""
        length = torch.linalg.vector_norm(torch.from_numpy(self._prepared(rows)).double(), dim=1)
        return rows[(length <= _FAR * length.median()).to(rows.device)] if len(rows) else rows

    def _add(self, ids: Array, vectors: Tensor) -> None:
        if self._early is not None:  # a few rows may all be far from those that follow, so they are put in again
            ids, vectors = np.r_[self._early[0], ids], torch.cat([self._early[1], vectors.cpu()])
            self._early = (ids, vectors) if len(ids) < _EARLY else None
            self._empty()
        if self._center is None or not self.trained:
            self._train(vectors)
        numbers = np.arange(len(self._ids), len(self._ids) + len(ids))
        self._index.add_with_ids(self._prepared(vectors), numbers)
        self._ids.append({"ids": ids})
        self._places.add(ids, numbers)

    def _remove(self, ids: Array) -> None:
        numbers = self._places.of(ids)
        try:
            self._index.remove_ids(numbers)
        except RuntimeError as cannot:
            if "not implemented" not in str(cannot):
                raise
        self._places.drop(ids)
        if self._early is not None:
            left = ~np.isin(self._early[0], ids)
            self._early = self._early[0][left], self._early[1][torch.from_numpy(left)]
        self._ids.put(numbers, {"ids": np.full(len(ids), -1)})

    def _search(self, queries: Tensor, k: int) -> Hits:
        rows, total = self._prepared(queries), int(self._index.ntotal)
        count = min(total, k if total == len(self) else k * total // len(self) + 8)
        while True:  # rows that were removed but are still in the graph are passed over
            values, numbers = self._neighbors(rows, count)
            ids = np.full(numbers.shape, -1)
            ids[numbers >= 0] = self._ids.take("ids", numbers[numbers >= 0])
            if count == total or bool(((ids >= 0).sum(axis=1) >= k).all()) or bool((numbers[:, -1] < 0).any()):
                break
            count = min(total, 2 * count)
        return self._external.hits(ids, values, queries, k, self.bank)

    def save(self, folder: str | Path) -> None:
        """See :meth:`Index.save`."""
        ids = self._ids.whole("ids") if len(self._ids) else np.zeros(0, dtype=np.int64)
        center = np.zeros(0, dtype=np.float32) if self._center is None else self._center.numpy()
        columns = {"ids": Column(ids.dtype, ids.shape, [ids]), "center": Column(center.dtype, center.shape, [center])}
        settings = {"factory": self.factory, "search": self.settings, "seed": self.seed}
        with sealed(self, Path(folder), "faiss", **settings) as stage:
            self._faiss.write_index(self._index, str(stage / _DATA))
            write_tensors(stage / _STATE, columns)

    @classmethod
    def load(cls, folder: str | Path, *, bank: NeighborBank | None = None) -> Self:
        """See :meth:`Index.load`; ``bank`` as for a new index."""
        return read_whole(Path(folder), lambda place: cls._loaded(place, bank))

    @classmethod
    def _loaded(cls, folder: Path, bank: NeighborBank | None) -> Self:
        config = opened(folder, "faiss", (_DATA, _STATE), SavedFaiss)
        settings = SavedFaiss.model_validate(config.settings)
        index = cls(config.dim, config.similarity, seed=settings.seed, bank=bank)  # nothing is built by its settings
        index.factory, index.settings = settings.factory, settings.search
        check_rows(config, index.restore(folder))
        return index

    def restore(self, folder: Path) -> int:
        """Replace all rows by what :meth:`save` wrote; returns how many there are.

        Raises:
            ValueError: if the files are not an index of this width and metric, or do not fit together.
        """
        self._index, self._early = self._read(folder / _DATA), None
        self._tune()
        state = map_tensors(folder / _STATE)
        ids, center = (state.get(name, np.zeros((0, 0))).copy() for name in ("ids", "center"))
        numbers = np.flatnonzero(ids.ravel() >= 0)
        total = self._index.ntotal
        fits = ids.ndim == 1 and len(numbers) <= total <= len(ids)  # graphs keep rows that were removed
        if ids.dtype != np.int64 or not fits or IdMap(ids.ravel()[numbers]).repeated:
            raise ValueError(f"{_STATE}: expected an id for each of {total} rows, got others")
        if center.dtype != np.float32 or center.shape not in ((0,), (self.dim,)) or not np.isfinite(center).all():
            raise ValueError(f"{_STATE}: expected a center of {self.dim} finite numbers or none, got another")
        self._ids = Columns({"ids": ids})
        self._places = IdMap(np.zeros(0, dtype=np.int64))
        self._places.add(ids[numbers], numbers)
        self._center = torch.from_numpy(center) if len(center) else None
        return len(numbers)

    def _read(self, path: Path) -> Any:
        """The FAISS index in a file, if it is one of this width and metric."""
        with _refused_by_faiss(f"{path.name}: expected an index of FAISS, got another file"):
            index = self._faiss.read_index(str(path))
        metric = self._faiss.METRIC_L2 if self._external.metric == "L2" else self._faiss.METRIC_INNER_PRODUCT
        if index.d != self.dim or index.metric_type != metric or (index.ntotal and not index.is_trained):
            raise ValueError(f"{path.name}: expected a trained index of width {self.dim} and its metric, got another")
        return index

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: the index of FAISS as the bytes of its file."""
        state = {name: value for name, value in self.__dict__.items() if name not in ("_faiss", "_index")}
        return state | {"data": self._faiss.serialize_index(self._index)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        data = state.pop("data")
        self.__dict__.update(state, _faiss=optional_import("index", "faiss", "faiss"))
        self._index = self._faiss.deserialize_index(data)
        self._tune()

    # The FAISS index.

    def _neighbors(self, rows: Array, count: int) -> tuple[Array, Array]:
        """Values and numbers of rows ``[b, count]``; what FAISS raises comes from a file that was edited."""
        with _refused_by_faiss(f"{_DATA}: expected an index that can be searched, got an edited one"):
            values, numbers = self._index.search(rows, count)
        if numbers.max(initial=-1) >= len(self._ids):
            raise ValueError(f"{_DATA}: expected rows below {len(self._ids)}, got {numbers.max()}; it was edited")
        return values, numbers

    def _prepared(self, rows: Tensor) -> Array:
        """Rows as FAISS is given them."""
        moved = as_float32(rows)
        if self._center is not None:
            moved = moved - self._center
            length = torch.linalg.vector_norm(moved.double(), dim=1, keepdim=True)
            moved = moved * (_FARTHEST / length.clamp(min=_FARTHEST)).float()  # squares of more overflow
        return self._external.rows(moved).contiguous().numpy()

    def _new_index(self) -> Any:
        faiss = self._faiss
        metric = faiss.METRIC_L2 if self._external.metric == "L2" else faiss.METRIC_INNER_PRODUCT
        if not isinstance(self.factory, str):
            raise TypeError(f"factory: expected a FAISS factory string, got {short(self.factory)}")
        with self._used("factory", self.factory):
            index = faiss.index_factory(self.dim, self.factory, metric)
        keeps_numbers = isinstance(index, faiss.IndexIDMap | faiss.IndexIDMap2 | faiss.IndexIVF) or (
            isinstance(index, faiss.IndexPreTransform) and isinstance(faiss.downcast_index(index.index), faiss.IndexIVF)
        )
        self._index = index if keeps_numbers else faiss.IndexIDMap2(index)
        self._tune()
        return self._index

    def _tune(self) -> None:
        faiss = self._faiss
        ivf = faiss.try_extract_index_ivf(self._index)
        space = faiss.ParameterSpace()
        if self.settings is not None:
            with self._used("search", self.settings):
                space.set_index_parameters(self._index, self.settings)
        elif ivf is not None:
            ivf.nprobe = min(ivf.nlist, max(16, ivf.nlist // 8), _CELLS)
        elif "HNSW" in self.factory:
            space.set_index_parameters(self._index, "efSearch=64")

    def _clusterings(self) -> list[tuple[Any, int]]:
        """What is clustered in training: its parameters, and the centroids that there will be."""
        faiss, clusterings = self._faiss, []
        ivf = faiss.try_extract_index_ivf(self._index)
        if ivf is not None:
            clusterings.append((ivf.cp, int(ivf.nlist)))
        inner = self._index
        while hasattr(inner, "index"):
            inner = faiss.downcast_index(inner.index)
        for holder in (inner, None if ivf is None else faiss.downcast_index(ivf)):
            if holder is not None and hasattr(holder, "pq"):
                clusterings.append((holder.pq.cp, int(holder.pq.ksub)))
        return clusterings

    @staticmethod
    def _used(name: str, value: str) -> contextlib.AbstractContextManager[None]:
        return _refused_by_faiss(f"{name}: expected what FAISS can use, got {short(value)}")


@contextlib.contextmanager
def _refused_by_faiss(sentence: str) -> Iterator[None]:
    """An error of FAISS becomes this sentence, with the first line of what FAISS says."""
    try:
        yield
    except (RuntimeError, MemoryError) as wrong:
        message = str(wrong).split(": ", 1)[-1].strip().partition("\n")[0]
        raise ValueError(f"{sentence}; it says: {short_text(message, 200)}") from wrong
