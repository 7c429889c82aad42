"""Search by Milvus: a file with nothing to start, or a cluster, by the same code."""

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import Field, NonNegativeInt
from torch import Tensor, nn

from vicinal.core import check_choice, register, short
from vicinal.core.arrays import Array
from vicinal.core.checks import optional_import, short_text
from vicinal.core.folders import read_whole
from vicinal.core.threads import pieces
from vicinal.core.untrusted import Saved
from vicinal.index.bank import NeighborBank
from vicinal.index.base import Hits, Index
from vicinal.index.external import as_float32, external_metric
from vicinal.index.index_files import opened, sealed

_users: Counter[str] = Counter()
"""How many indexes use each file; a file has one server, in this process."""


def checked_uri(uri: str | Path | None) -> str:
    """An address as it is, or the whole path of a file; the folder of the file is made."""
    if uri is None:
        raise ValueError("index: expected a file or an address behind 'milvus:', as in 'milvus:./bank.db', got none")
    if not isinstance(uri, str | Path):
        raise TypeError(f"uri: expected a file ending in .db or an address, got {short(uri)}")
    uri = str(uri)
    if "://" in uri:
        return uri
    if not uri.endswith(".db"):
        raise ValueError(
            f"uri: expected a file ending in .db, or an address such as http://host:19530, got {short(uri)}"
        )
    path = Path(uri).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    return str(path)


def connected(uri: str, token: str) -> Any:
    """A connection. gRPC's log lines on stderr are off, unless GRPC_VERBOSITY says otherwise."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    pymilvus = optional_import("index", "pymilvus", "milvus")
    if "://" not in uri:
        optional_import("index", "milvus_lite", "milvus")
    try:
        client = pymilvus.MilvusClient(uri, token=token)
    except Exception as wrong:  # pymilvus raises several kinds, its own and those of gRPC
        raise ValueError(
            f"uri: expected a database that can be opened, got {short(uri, 200)}; {short_text(wrong, 200)}"
        ) from wrong
    if "://" not in uri:
        _users[uri] += 1
    return client


def release(file: str) -> None:
    """Say that an index uses a file no more; after the last, its server stops."""
    _users[file] -= 1
    if _users[file] == 0:
        optional_import("index", "milvus_lite.server_manager", "milvus").server_manager_instance.release_server(file)


_BUILD: dict[str, dict[str, int]] = {"HNSW": {"M": 16, "efConstruction": 200}, "IVF_FLAT": {"nlist": 128}}
_IN_FILES = ("AUTOINDEX", "FLAT", "HNSW", "HNSW_SQ", "IVF_FLAT", "IVF_SQ8")
"""Index types of milvus-lite, which takes any name and compares all rows for one that it does not know."""

_MOST = 16_384
"""Rows that Milvus gives for one query at most."""

_MESSAGE = 8 << 20
"""Bytes of vectors that are sent at a time."""

_UNFLUSHED = 20_000
"""Rows after which a file is flushed, so that they are indexed; until then they are compared one by one."""


class SavedMilvus(Saved):
    """The settings of a saved index."""

    uri: str = Field(max_length=4096)
    collection: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=255)
    index_type: str = Field(pattern=r"^[A-Za-z0-9_]+$", max_length=40)
    search: dict[str, NonNegativeInt] | None


@register("index", "milvus", "approximate-search", "persistent", "optional-package", verified="`exact`")
class MilvusIndex(Index):
    """Search by a collection of Milvus, which is there as soon as it is opened and stays when the program ends.

    With a file (milvus-lite) nothing has to be started, but only one process at a time can use it. With the address of
    a server or a cluster, several processes and machines can share it. The server of a file searches by FAISS in this
    process: once ``faiss.contrib.torch_utils`` is imported, as pytorch-metric-learning does, its searches fail.

    When :meth:`add` or :meth:`remove` returns, the change is stored: killing the process, even in the middle of a later
    ``add``, loses none of it. Of the interrupted ``add``, some rows may be there; :meth:`has` tells which. (A
    milvus-lite file has then handed its rows to the operating system, but perhaps not yet to the disk, so a power cut
    may lose the last ones; :meth:`flush` waits for the disk.)

    Args:
        dim: width of the vectors.
        similarity: l2, squared_l2, dot, scaled_dot or cosine; the collection's metric is L2, IP or COSINE.
        uri: a file ending in .db, or the address of a server.
        collection: its name; created if it does not exist, else checked for width, metric and fields.
        index_type: HNSW; FLAT, which misses nothing but compares all rows; IVF_FLAT, or another that the server knows.
            Used only when the collection is created. The index is built in the background after :meth:`flush`, which
            :meth:`add` calls for a file now and then; until then new rows are compared one by one, which is slow.
        build: parameters of that index as Milvus words them; None: M 16 and efConstruction 200, or nlist 128.
        search: parameters of the search; None: ef of twice the hits but at least 64, or nprobe 16.
        token: of the server; never saved.
        bank: as for :class:`vicinal.index.FaissIndex`.

    Raises:
        ValueError: if pymilvus is not installed, the address is invalid, the collection does not fit, or it cannot
            serve the similarity.
    """

    persistent: ClassVar[bool] = True
    behind_colon = "uri"

    def __init__(
        self,
        dim: int,
        similarity: str | nn.Module = "l2",
        *,
        uri: str | None = None,
        collection: str = "vicinal",
        index_type: str = "HNSW",
        build: dict[str, int] | None = None,
        search: dict[str, int] | None = None,
        token: str = "",
        bank: NeighborBank | None = None,
    ) -> None:
        super().__init__(dim, similarity)
        self.uri, self.collection, self.index_type, self.bank = checked_uri(uri), collection, index_type, bank
        self._external = external_metric(self.similarity, "milvus")
        self._settings, self._unflushed = search, 0
        self._file = None if "://" in self.uri else self.uri
        self._client = connected(self.uri, token)
        try:
            if self._client.has_collection(collection):
                self._check()
            else:
                self._make(_BUILD.get(index_type, {}) if build is None else build)
            self._client.load_collection(collection)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        counts = self._client.query(self.collection, filter="", output_fields=["count(*)"])
        return int(counts[0]["count(*)"])

    def has(self, ids: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """See :meth:`Index.has`."""
        there: list[int] = []
        for part in pieces(len(ids), 4096):
            rows = self._client.query(self.collection, filter=f"id in {ids[part].tolist()}", output_fields=["id"])
            there += [int(row["id"]) for row in rows]
        return np.isin(ids, np.array(there, dtype=np.int64))

    def _add(self, ids: Array, vectors: Tensor) -> None:
        rows = as_float32(vectors).numpy()
        step = max(1, _MESSAGE // (4 * self.dim))
        for part in pieces(len(ids), step):
            data = [{"id": int(i), "vector": row} for i, row in zip(ids[part], rows[part], strict=True)]
            self._client.insert(self.collection, data)
        self._unflushed += len(ids)
        if self._file is not None and self._unflushed >= _UNFLUSHED:
            self._client.flush(self.collection)
            self._unflushed = 0

    def _remove(self, ids: Array) -> None:
        for part in pieces(len(ids), 4096):
            self._client.delete(self.collection, ids=ids[part].tolist())

    def _search(self, queries: Tensor, k: int) -> Hits:
        if k > _MOST:
            raise ValueError(f"k: expected at most {_MOST}, the most that Milvus gives, got {k}")
        vectors = as_float32(queries).numpy()
        ids = np.full((len(vectors), k), -1)
        values = np.zeros((len(vectors), k), dtype=np.float32)
        step = max(1, min(1024, 1_000_000 // k))
        for start in range(0, len(vectors), step):
            answers = self._client.search(
                self.collection,
                data=list(vectors[start : start + step]),
                limit=k,
                output_fields=["id"],
                search_params={"params": self._search_params(k)},
            )
            for row, hits in enumerate(answers, start=start):
                ids[row, : len(hits)] = [hit["id"] for hit in hits]
                values[row, : len(hits)] = [hit["distance"] for hit in hits]
        return self._external.hits(ids, values, queries, k, self.bank)

    def flush(self, *, indexed: bool = False) -> None:
        """Wait until all rows are on disk, and if ``indexed`` until the index is built over them.

        While a file is being indexed, no other index on its collection can search.
        """
        self._client.flush(self.collection)
        self._unflushed = 0
        if indexed and self._file is not None:  # milvus-lite does not tell, but loads only what it has built
            self._client.release_collection(self.collection)
            self._client.load_collection(self.collection)
        while indexed and self._client.describe_index(self.collection, "vector")["pending_index_rows"]:
            time.sleep(0.05)

    def save(self, folder: str | Path) -> None:
        """Flush, and write a folder that says where the collection is; the rows stay there, and are shared."""
        self.flush()
        settings = {"uri": self.uri, "collection": self.collection, "index_type": self.index_type}
        with sealed(self, Path(folder), "milvus", **settings, search=self._settings):
            pass

    @classmethod
    def load(
        cls, folder: str | Path, *, uri: str | None = None, token: str = "", bank: NeighborBank | None = None
    ) -> Self:
        """See :meth:`Index.load`: opens the collection that the folder names, with the rows that it now has.

        Args:
            folder: as :meth:`save` wrote it.
            uri: where the database is. You have to give it: the folder may come from somebody else, and must not decide
                which file is opened or where rows are sent.
            token: of the server.
            bank: as for a new index.

        Raises:
            ValueError: if the folder is not complete, ``uri`` is not given, or there is no such database.
        """
        config = read_whole(Path(folder), lambda place: opened(place, "milvus", settings=SavedMilvus))
        settings = SavedMilvus.model_validate(config.settings)
        if uri is None:
            raise ValueError(
                f"uri: expected the place of the database to be given, as a folder may not choose what is opened, got "
                f"none; it was {settings.uri:.200} when the index was saved"
            )
        if "://" not in uri and not Path(uri).exists():
            raise ValueError(f"uri: expected the database {uri}, got none; give load() its place as uri")
        return cls(config.dim, config.similarity, token=token, bank=bank, **settings.model_dump() | {"uri": uri})

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            f"index: expected one that can be copied, got milvus:{self.uri}, a database that the copies would share; "
            "save the model and load it where it is needed"
        )

    def close(self) -> None:
        """Let go of the connection; the last index that uses a file stops its server."""
        if self._client is None:
            return
        self._client.close()
        self._client = None
        if self._file is not None:
            release(self._file)

    def drop(self) -> None:
        """Remove the collection, and close."""
        if self._client is not None:
            self._client.drop_collection(self.collection)
        self.close()

    # The collection.

    def _make(self, build: dict[str, int]) -> None:
        if self._file is not None:
            check_choice("index_type", self.index_type, _IN_FILES)
        kinds = optional_import("index", "pymilvus", "milvus").DataType
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", kinds.INT64, is_primary=True)
        schema.add_field("vector", kinds.FLOAT_VECTOR, dim=self.dim)
        index = self._client.prepare_index_params()
        index.add_index("vector", index_type=self.index_type, metric_type=self._external.metric, params=build)
        self._client.create_collection(self.collection, schema=schema, index_params=index, consistency_level="Strong")

    def _check(self) -> None:
        """Check that the collection that is there is one of ours, of this width and metric."""
        fields = {field["name"]: field for field in self._client.describe_collection(self.collection)["fields"]}
        if set(fields) != {"id", "vector"}:
            raise ValueError(
                f"collection: expected one with the fields id and vector, got {self.collection!r} with "
                f"{sorted(fields)}; choose another name"
            )
        dim = int(fields["vector"]["params"]["dim"])
        if dim != self.dim:
            raise ValueError(f"dim: expected {dim} as the collection {self.collection!r} has it, got {self.dim}")
        details = self._client.describe_index(self.collection, "vector")
        if details["metric_type"] != self._external.metric:
            raise ValueError(
                f"similarity: expected one of metric {details['metric_type']} as the collection {self.collection!r} "
                f"has it, got {self._external.similarity!r}, which is of {self._external.metric}"
            )
        self.index_type = str(details["index_type"])

    def _search_params(self, k: int) -> dict[str, int]:
        if self._settings is not None:
            return self._settings
        if "HNSW" in self.index_type:
            return {"ef": max(64, 2 * k)}
        return {"nprobe": 16} if "IVF" in self.index_type else {}
