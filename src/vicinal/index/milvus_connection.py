"""Connections to Milvus: to the address of a server, or to a file, which is served by this process."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

from vicinal.core import short, short_text
from vicinal.index.needs import need

_users: Counter[str] = Counter()
"""How many indexes use each file; a file has one server, in this process."""


def checked_uri(uri: str | Path) -> str:
    """An address as it is, or the whole path of a file; the folder of the file is made."""
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
    pymilvus = need("pymilvus", "milvus")
    if "://" not in uri:
        need("milvus_lite", "milvus")
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
        need("milvus_lite.server_manager", "milvus").server_manager_instance.release_server(file)
