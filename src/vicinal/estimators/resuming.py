"""The working folder of a run: kept when the run is killed, taken up by the same run, gone when it ends well."""

import contextlib
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FINGERPRINT = "run.sha256"


@dataclass(frozen=True)
class WorkingFolder:
    """Where checkpoints of a run go (None: nowhere), and whether an earlier one is taken up."""

    folder: Path | None
    resumed: bool


@contextlib.contextmanager
def resumable(out: Path | None, fingerprint: str) -> Iterator[WorkingFolder]:
    """A folder ``.NAME.fit`` beside ``out`` for the checkpoints of one run.

    If it is there from a run of the same ``fingerprint`` (data, settings, versions), that run is taken up; one of
    another run is emptied. It is removed when the block ends without an error, and kept if the user stops the run, the
    process is killed, or an error (a full disk, say) comes after training has begun.

    Args:
        out: what the run makes; None: no folder is made.
        fingerprint: all that the result depends on.
    """
    if out is None:
        yield WorkingFolder(None, resumed=False)
        return
    folder = out.absolute().with_name(f".{out.name}.fit")
    digest = hashlib.sha256(fingerprint.encode()).hexdigest()
    mark = folder / _FINGERPRINT
    same = mark.is_file() and mark.read_text(encoding="ascii").strip() == digest
    checkpoint = folder / "last.ckpt"
    resumed = same and checkpoint.is_file()
    if not same:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        mark.write_text(digest + "\n", encoding="ascii")
    try:
        yield WorkingFolder(folder, resumed)
    except Exception:
        if not checkpoint.is_file():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
