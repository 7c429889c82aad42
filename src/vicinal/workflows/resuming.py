"""The working folder of a run: one run at a time; kept when it is killed, and gone when it ends well."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from vicinal.core import files

_FINGERPRINT, _LOCK, _OWNER = "run.sha256", "lock", "process"
CHECKPOINT, CACHE = "last.ckpt", "cache"


class WorkingFolder:
    """Where checkpoints of a run go.

    Args:
        folder: the folder; None: nowhere.
        mark: the file that is there from when on there is something to go on with.
        shared: whether another process looks after it.
    """

    def __init__(self, folder: Path | None, mark: str = CHECKPOINT, *, shared: bool = False) -> None:
        self.folder, self.mark, self.shared = folder, mark, shared

    def take_up(self, fingerprint: str) -> bool:
        """Whether there is a run of this ``fingerprint`` to go on with; what another run left is removed.

        Args:
            fingerprint: all that the result depends on.
        """
        if self.folder is None:
            return False
        mark = self.folder / _FINGERPRINT
        digest = hashlib.sha256(f"{self.folder}\n{fingerprint}".encode()).hexdigest()  # checkpoints name their place
        if mark.is_file() and mark.read_text(encoding="ascii").strip() == digest:
            return any(self.folder.rglob(self.mark))  # a fit that may tune trains in folders inside
        if not self.shared:
            _empty(self.folder, (_LOCK, _OWNER))
            mark.write_text(digest + "\n", encoding="ascii")
        return False


@contextlib.contextmanager
def working_folder(out: Path | None, work: str = "fit", mark: str = CHECKPOINT) -> Iterator[WorkingFolder]:
    """A folder ``.NAME.fit`` beside ``out`` for the checkpoints of one run, locked until the run ends.

    It is removed when the block ends without an error, and kept if the user stops the run, the process is killed, or
    an error (a full disk, say) comes after training has begun.

    Args:
        out: what the run makes; None: no folder is made.
        work: the last part of the folder's name.
        mark: see :class:`WorkingFolder`.

    Raises:
        ValueError: if another process writes ``out``.
    """
    if out is None:
        yield WorkingFolder(None)
        return
    target = files.resolved(out)
    folder = target.with_name(f".{target.name}.{work}")
    if os.environ.get("RANK", "0") != "0":  # of processes that train as one, the first looks after the folder
        yield WorkingFolder(folder, mark, shared=True)
        return
    new_folders = [above for above in folder.parents if not above.is_dir()]
    lock = _locked(folder)
    if lock is None:
        place = "file" if work == "predict" else "folder"
        raise ValueError(
            f"out: expected a {place} that no other run writes, got {out}, which process {_owner(folder)} {work}s; "
            "wait for it, stop it, or choose another --out"
        )
    (folder / _OWNER).write_text(f"{os.getpid()}\n", encoding="ascii")
    keep: tuple[str, ...] = ()
    try:
        yield WorkingFolder(folder, mark)
    except BaseException as wrong:
        keep = (mark,) if isinstance(wrong, Exception) else (mark, CACHE)
        raise
    finally:
        if not any((folder / name).exists() for name in keep):
            _empty(folder, (_LOCK,))  # the lock goes last: whoever makes a new one finds nothing of ours
            files.remove_tree(folder)
            with contextlib.suppress(OSError):  # somebody has put something there
                for above in new_folders:
                    files.layer.remove_folder(above)
        lock.release()


def _empty(folder: Path, names: tuple[str, ...]) -> None:
    """Remove all but the files ``names``."""
    for path in folder.iterdir():
        if path.name not in names:
            files.remove_tree(path)


def _locked(folder: Path) -> FileLock | None:
    while True:
        files.make_parents(folder / _LOCK)
        with contextlib.suppress(FileNotFoundError):  # another run has just ended, and its folder is gone
            return files.hold(folder / _LOCK)


def _owner(folder: Path) -> str:
    try:
        return (folder / _OWNER).read_text(encoding="ascii").strip()
    except FileNotFoundError:  # it has just begun, or just ended
        return "(unknown)"
