"""The saved form of an index: a folder with its settings, its data and their checksums."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, JsonValue, NonNegativeInt, PositiveInt

from vicinal.core.folders import MARKERS, SUMS, check_sums, staged_folder
from vicinal.core.untrusted import LARGEST_SETTINGS, Saved, check_inside, check_settings, read_settings
from vicinal.index.pairs import similarity_name
from vicinal.version import __version__

if TYPE_CHECKING:
    from vicinal.index.base import Index

VERSION = 1
"""Version of the folder's layout; a folder of a later version is refused."""

CONFIG = MARKERS["index"]


class SavedIndex(Saved):
    """What ``index.json`` holds."""

    format: Literal["vicinal-index"] = "vicinal-index"
    version: int
    vicinal: str
    kind: str
    dim: PositiveInt
    similarity: str
    rows: NonNegativeInt
    settings: dict[str, JsonValue] = Field(default_factory=dict)


class NoSettings(Saved):
    """The settings of a kind that has none of its own."""


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
            vicinal=__version__,
            kind=kind,
            dim=index.dim,
            similarity=name,
            rows=len(index),
            settings=settings,
        )
        (stage / CONFIG).write_text(config.model_dump_json(indent=1) + "\n", encoding="utf-8")


def opened(
    folder: Path, kind: str | None = None, names: tuple[str, ...] = (), settings: type[Saved] = NoSettings
) -> SavedIndex:
    """The settings of a saved index, after its files were checked.

    Called by what :func:`vicinal.core.folders.read_whole` calls.

    Args:
        folder: of the index.
        kind: that it must be of; None: any, whose own settings are not looked at.
        names: files of which none may be missing, torn or edited.
        settings: what the kind's own settings must be.

    Raises:
        ValueError: naming the file that is not as it must be.
    """
    if not folder.is_dir():
        raise ValueError(f"index: expected an index folder, got {folder}, which is not there")
    check_inside(folder, SUMS, CONFIG, *names)
    check_sums(folder, (CONFIG,), "index", LARGEST_SETTINGS)
    config = read_settings(folder / CONFIG, SavedIndex, "an index", newest=VERSION)
    if kind is not None and config.kind != kind:
        raise ValueError(f"index: expected an index of kind {kind!r} in {folder}, got {config.kind!r}")
    if kind is not None:
        check_settings(CONFIG, settings, json.dumps(config.settings))
    check_sums(folder, names, "index")
    return config


def check_rows(config: SavedIndex, rows: int) -> None:
    """Raise ValueError unless the data of an index hold as many rows as its settings say."""
    if rows != config.rows:
        raise ValueError(f"{CONFIG}: expected {rows} rows as the index has them, got {config.rows}; it was edited")
