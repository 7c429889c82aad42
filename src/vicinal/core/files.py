"""Files that are replaced whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside ``path`` to write to; it takes the place of ``path`` when the block ends without an error.

    A reader, and the next start after a kill, sees the old file or the new one, never a part. Missing folders are made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replaced_file(Path(folder) / "runs.csv") as aside:
    ...         _ = aside.write_text("a,b")
    ...     (Path(folder) / "runs.csv").read_text()
    'a,b'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield aside
        handle = os.open(aside, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def replace_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write ``text`` as the whole of ``path`` in UTF-8: see :func:`replaced_file`. Gives the path."""
    with replaced_file(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")
    return Path(path)
