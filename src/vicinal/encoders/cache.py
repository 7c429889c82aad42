"""Embeddings of frozen encoders, kept by content, so that each row is run once in ten splits."""

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from vicinal.core import replaced_file
from vicinal.core.checks import check_integer
from vicinal.core.files import clear


def content_key(content: bytes) -> str:
    """sha256 of what a row holds."""
    return hashlib.sha256(content).hexdigest()


class EmbeddingCache:
    """Embeddings by encoder and content, in memory and, given a folder, on disk.

    A file in the folder that is damaged or was edited is ignored: its rows are run again.

    Args:
        folder: where files are kept between runs; None: nowhere. It is created if it does not exist.
        most: how many rows of one encoder are held in memory; the oldest go first.

    Raises:
        ValueError: if the folder cannot be created.

    >>> cache = EmbeddingCache()
    >>> cache.put("encoder", ["a"], torch.ones(1, 2))
    >>> cache.get("encoder", ["a", "b"])
    {'a': tensor([1., 1.])}
    """

    def __init__(self, folder: str | Path | None = None, most: int = 250_000) -> None:
        self.folder = None if folder is None else Path(folder)
        self.most = check_integer("most", most)
        self._known: dict[str, dict[str, Tensor]] = {}
        if self.folder is not None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueError(f"folder: expected a folder that can be written, got {error}") from error
            clear(self.folder)

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def get(self, identity: str, keys: Sequence[str]) -> Mapping[str, Tensor]:
        """The known embeddings ``[dim]`` by key, out of ``keys`` of the encoder ``identity``."""
        known = self._open(identity)
        return {key: known[key] for key in keys if key in known}

    def put(self, identity: str, keys: Sequence[str], values: Tensor) -> None:
        """Keep ``values [n, dim]`` under ``keys`` (sha256, or any text when there is no folder)."""
        if values.ndim != 2 or len(values) != len(keys):
            raise ValueError(f"values: expected [{len(keys)}, dim], one row for each key, got {tuple(values.shape)}")
        known = self._open(identity)
        known.update(zip(keys, torch.unbind(values.clone()), strict=True))
        for key in list(known)[: max(0, len(known) - self.most)]:
            del known[key]
        if self.folder is not None and keys:
            self._write(self.folder, identity, keys, values)

    def _open(self, identity: str) -> dict[str, Tensor]:
        if identity not in self._known:
            self._known[identity] = {}
            files = sorted(self.folder.glob(f"{identity[:32]}-*.safetensors")) if self.folder else []
            for path in files:
                self._known[identity].update(_read(path, identity))
        return self._known[identity]

    @staticmethod
    def _write(folder: Path, identity: str, keys: Sequence[str], values: Tensor) -> None:
        packed = torch.frombuffer(bytearray.fromhex("".join(keys)), dtype=torch.uint8).reshape(len(keys), 32)
        tensors = {"keys": packed, "values": values.contiguous()}
        target = folder / f"{identity[:32]}-{_checksum(tensors)[:32]}.safetensors"
        with replaced_file(target) as aside:
            save_file(tensors, aside, {"identity": identity, "checksum": _checksum(tensors)})


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(tensors["keys"].numpy().tobytes())
    digest.update(tensors["values"].numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path, identity: str) -> dict[str, Tensor]:
    with contextlib.suppress(SafetensorError, OSError, KeyError), safe_open(path, framework="pt") as file:
        tensors = {"keys": file.get_tensor("keys"), "values": file.get_tensor("values")}
        facts = file.metadata() or {}
        if facts.get("identity") == identity and facts.get("checksum") == _checksum(tensors):
            names = [bytes(key).hex() for key in tensors["keys"].numpy()]
            return dict(zip(names, tensors["values"].unbind(), strict=True))
    return {}
