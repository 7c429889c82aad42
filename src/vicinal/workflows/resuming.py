"""The working folder of a run: for one run at a time, kept if the run is killed, and removed when it succeeds."""

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
    """The folder for the checkpoints of a run.

    Args:
        folder: the folder; None: no checkpoints.
        mark: name of a file that exists as soon as the run can be resumed.
        shared: whether another process manages the folder.
    """

    def __init__(self, folder: Path | None, mark: str = CHECKPOINT, *, shared: bool = False) -> None:
        self.folder, self.mark, self.shared = folder, mark, shared

    def take_up(self, fingerprint: str) -> bool:
        """Whether there is a run with this ``fingerprint`` to resume; files of a different run are removed."""
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
    """A folder ``.NAME.WORK`` beside ``out`` for the checkpoints of one run, locked until the run ends.

    It is removed when the block ends without an error, and kept if the process is killed, the user stops the run, or an
    error (such as a full disk) comes after the first checkpoint.

    Args:
        out: the file or folder that the run makes; None: no working folder.
        work: the last part of the folder's name.
        mark: see :class:`WorkingFolder`.

    Raises:
        ValueError: if another process is writing ``out``.
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
        place, owner = "file" if work == "predict" else "folder", "(unknown)"
        with contextlib.suppress(FileNotFoundError):  # it has just begun, or just ended
            owner = (folder / _OWNER).read_text(encoding="ascii").strip()
        raise ValueError(
            f"out: expected a {place} that no other run writes, got {out}, which process {owner} {work}s; "
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
    """Remove everything except the files ``names``."""
    for path in folder.iterdir():
        if path.name not in names:
            files.remove_tree(path)


def _locked(folder: Path) -> FileLock | None:
    while True:
        files.make_parents(folder / _LOCK)
        with contextlib.suppress(FileNotFoundError):  # another run has just ended, and its folder is gone
            return files.hold(folder / _LOCK)
