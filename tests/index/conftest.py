"""The indexes that all pass one battery."""

import pytest
import torch

from vicinal.index import open_index

BACKENDS = {
    "exact": {},
    "faiss:Flat": {},
    "faiss:IVF8,Flat": {"search": "nprobe=4"},
    "faiss:HNSW32": {},
    "milvus:FLAT": {"index_type": "FLAT"},
    "milvus:HNSW": {"index_type": "HNSW"},
}
COMPLETE = ("exact", "faiss:Flat", "milvus:FLAT")
"""Those that scan all rows, and so find what a sort finds but for near ties."""


def skip_absent(name):
    """Skip the test if the packages of this index are not installed."""
    if name.startswith("faiss"):
        pytest.importorskip("faiss", reason="faiss-cpu is an optional package")
    if name.startswith("milvus"):
        pytest.importorskip("pymilvus", reason="pymilvus is an optional package")
        pytest.importorskip("milvus_lite", reason="milvus-lite is an optional package")


@pytest.fixture(scope="session")
def database(tmp_path_factory):
    """A database file that the tests of the session share, each with collections of its own."""
    skip_absent("milvus")
    path = tmp_path_factory.mktemp("milvus") / "bank.db"
    keeper = open_index(f"milvus:{path}", dim=2, collection="keeper")  # keeps the server of the file up
    yield path
    keeper.close()


@pytest.fixture(params=BACKENDS)
def backend(request):
    """The name of an index of the battery."""
    skip_absent(request.param)
    return request.param


@pytest.fixture
def make(backend, request):
    """Makes an empty index of the battery."""
    made = []

    def make_one(dim=8, similarity="l2", **settings):
        settings = {**BACKENDS[backend], **settings}
        name = backend
        if backend.startswith("milvus"):
            name = f"milvus:{request.getfixturevalue('database')}"
            test = "".join(c if c.isalnum() else "_" for c in request.node.name)
            settings.setdefault("collection", f"{test}_{len(made)}")
        made.append(open_index(name, dim=dim, similarity=similarity, **settings))
        return made[-1]

    yield make_one
    for index in made:
        index.close()


@pytest.fixture
def place(backend, request):
    """What a saved index has to be told again, to be loaded: the place of its database."""
    return {"uri": str(request.getfixturevalue("database"))} if backend.startswith("milvus") else {}


@pytest.fixture
def rows(generator):
    """Ids in no order ``[300]`` and vectors ``[300, 8]``."""
    return torch.randperm(900, generator=generator)[:300] + 3, torch.randn(300, 8, generator=generator)
