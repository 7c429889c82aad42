"""The saved form of an index: a folder with its settings, its data and their checksums."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

import vicinal
from vicinal.core.folders import MARKERS, check_sums, staged_folder
from vicinal.index.bank_files import read_settings
from vicinal.index.pairs import similarity_name

if TYPE_CHECKING:
    from vicinal.index.base import Index

VERSION = 1
"""Version of the folder's layout; a folder of a later version is refused."""

CONFIG = MARKERS["index"]


class SavedIndex(BaseModel):
    """What ``index.json`` holds."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["vicinal-index"] = "vicinal-index"
    version: int
    vicinal: str
    kind: str
    dim: int
    similarity: str
    rows: int
    settings: dict[str, Any] = {}


@contextlib.contextmanager
def sealed(index: "Index", folder: Path, kind: str, **settings: Any) -> Iterator[Path]:
    """An empty folder for the data of an index, which becomes ``folder`` with its settings when the block ends.

    Raises:
        ValueError: if the similarity has no name, or the folder holds other things.
    """
    name = similarity_name(index.similarity)
    if name is None:
        raise ValueError(f"similarity: expected one with a name, to be saved, got {index.similarity!r}")
    with staged_folder(folder, "index") as stage:
        yield stage
        config = SavedIndex(
            version=VERSION,
            vicinal=vicinal.__version__,
            kind=kind,
            dim=index.dim,
            similarity=name,
            rows=len(index),
            settings=settings,
        )
        (stage / CONFIG).write_text(config.model_dump_json(indent=1) + "\n", encoding="utf-8")


def opened(folder: Path, kind: str | None = None, names: tuple[str, ...] = ()) -> SavedIndex:
    """The settings of a saved index, and that of its files ``names`` none is missing, torn or edited.

    Called by what :func:`vicinal.core.folders.read_whole` calls.
    """
    if not folder.is_dir():
        raise ValueError(f"index: expected an index folder, got {folder}, which is not there")
    check_sums(folder, (CONFIG,), "index")
    config = read_settings(folder / CONFIG, SavedIndex, VERSION, "an index")
    if kind is not None and config.kind != kind:
        raise ValueError(f"index: expected an index of kind {kind!r} in {folder}, got {config.kind!r}")
    check_sums(folder, names, "index")
    return config
