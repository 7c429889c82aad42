"""Files that are replaced whole or not at all: staging folders, locks, and the system calls behind them."""

import contextlib
import ctypes
import errno
import functools
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

_WAIT = 600.0
"""Seconds that a process waits for another one that is replacing the same file, which takes milliseconds."""


class FileLayer:
    """The calls on files whose order decides what a crash leaves behind.

    Any code may write a file's content; everything that syncs, moves or removes files goes through :data:`layer`, so
    that a test can record the calls and stop after each of them.
    """

    def make_folder(self, path: Path) -> None:
        """Make an empty folder."""
        path.mkdir()

    def sync(self, path: Path) -> None:
        """Wait until the content of a file, or the names in a folder, are on disk."""
        if os.name == "nt" and path.is_dir():
            return  # a folder cannot be opened there
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        """Rename ``source`` to ``target``; a file of that name is replaced atomically."""
        source.replace(target)

    def exchange(self, one: Path, other: Path) -> None:
        """Swap two names atomically.

        Raises:
            OSError: if the system or the file system cannot do that.
        """
        call = _system_exchange()
        if call is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(one))
        if call(os.fsencode(one), os.fsencode(other)) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(one))

    def link(self, source: Path, target: Path) -> None:
        """Make a hard link to a file, or a copy if the file system has no hard links."""
        try:
            os.link(source, target, follow_symlinks=False)
        except (OSError, NotImplementedError):
            shutil.copy2(source, target, follow_symlinks=False)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def remove_folder(self, path: Path) -> None:
        """Remove an empty folder."""
        path.rmdir()


layer = FileLayer()
"""The instance that the whole library uses."""


@functools.cache
def _system_exchange() -> Callable[[bytes, bytes], int] | None:
    """The system call that swaps two names, or None."""
    here, swap = (-100, 2) if sys.platform == "linux" else (-2, 2)  # AT_FDCWD; RENAME_EXCHANGE or RENAME_SWAP
    name = {"linux": "renameat2", "darwin": "renameatx_np"}.get(sys.platform)
    call = None if name is None else getattr(ctypes.CDLL(None, use_errno=True), name, None)
    return None if call is None else lambda one, other: int(call(here, one, here, other, swap))


def resolved(path: str | os.PathLike[str]) -> Path:
    """The full path to write to: a symbolic link is followed, so that it stays and its target changes.

    Raises:
        ValueError: for links that lead in a circle.
    """
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise ValueError(f"out: expected a path, got {path}, a symbolic link that leads to itself")
    return real


def make_parents(path: Path) -> None:
    """Make the missing folders above ``path``, each on disk before the next."""
    missing = [folder for folder in path.parents if not folder.is_dir()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process made it
            layer.make_folder(folder)
        layer.sync(folder.parent)


@contextlib.contextmanager
def locked(target: Path, word: str = "lock") -> Iterator[None]:
    """Hold a lock on ``target`` within a ``with`` statement.

    It is a file ``.NAME.lock`` beside it, removed afterwards; one left by a killed process is free.

    Args:
        target: what is changed.
        word: which lock: "lock" to replace the target, "update" to read it first and then replace it.

    Raises:
        ValueError: if another process keeps it.
        OSError: if nothing can be written beside ``target``.
    """
    lock = FileLock(target.with_name(f".{target.name}.{word}"), timeout=_WAIT, poll_interval=0.005)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(
            f"out: expected {target} to be free within {_WAIT:g} s, got a process that keeps {lock.lock_file}; stop it"
        ) from None
    except PermissionError as refused:
        raise PermissionError(refused.errno, refused.strerror, str(target.parent)) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # while it is held: who waits for a file that is gone starts again
            os.unlink(lock.lock_file)
        lock.release()


def hold(path: Path) -> FileLock | None:
    """The lock ``path``, held until it is released or the process ends; None if a living process holds it.

    Raises:
        FileNotFoundError: if its folder does not exist, or no longer exists.
    """
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


_PART = re.compile(r"\.(.+)\.[0-9a-f]{16}\.part", re.DOTALL)
_LOCK, _STAGE = "lock", "new"


@contextlib.contextmanager
def staging(target: Path, rescue: Callable[[Path], None] = lambda stage: None) -> Iterator[Path]:
    """An empty folder beside ``target`` to make its successor in, removed at the end of the ``with`` statement.

    It is the folder ``new`` in ``.NAME.TOKEN.part``, with a unique token. A file ``lock`` beside it is locked as long
    as this process lives; leftovers of killed processes are removed.

    Args:
        target: what is to be made or replaced, in an existing folder.
        rescue: called with each folder ``new`` that a killed process left, before it is removed.
    """
    with locked(target):
        _clear(target, rescue)
        work = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
        layer.make_folder(work)
        alive = FileLock(work / _LOCK)
        alive.acquire()
    try:
        layer.make_folder(work / _STAGE)
        yield work / _STAGE
    finally:
        _remove_work(work, alive)


def clear_target(target: Path) -> None:
    """Remove what killed processes left when they wrote the file ``target``."""
    with locked(target):
        _clear(target)


def clear(folder: Path) -> None:
    """Remove what killed processes left in ``folder`` when they wrote any files there."""
    for name in {part[1] for path in folder.iterdir() if (part := _PART.fullmatch(path.name))}:
        with contextlib.suppress(OSError):  # nothing can be removed that is only for reading
            clear_target(folder / name)


def _clear(target: Path, rescue: Callable[[Path], None] = lambda stage: None) -> None:
    """Remove what killed processes left when they wrote ``target``, whose lock is held."""
    for work in list(target.parent.iterdir()):
        part = _PART.fullmatch(work.name)
        if part is None or part[1] != target.name or not work.is_dir():
            continue
        try:
            abandoned = hold(work / _LOCK)
        except FileNotFoundError:  # its process lives, and has just removed it
            continue
        if abandoned is not None:
            rescue(work / _STAGE)
            _remove_work(work, abandoned)


def _remove_work(work: Path, lock: FileLock) -> None:
    remove_tree(work / _STAGE)
    lock.release()  # some systems remove no file that is locked
    remove_tree(work)


def remove_tree(path: Path) -> None:
    """Remove a file, or a folder with its content; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            for inner in path.iterdir():
                remove_tree(inner)
            layer.remove_folder(path)
        else:
            layer.unlink(path)


@contextlib.contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside ``path`` to write to; it replaces ``path`` if the ``with`` statement ends without an error.

    Even after a kill or a power cut a reader sees the old file or the new one, never a part. Missing folders are made;
    a symbolic link stays, and its target is replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replaced_file(Path(folder) / "runs.csv") as aside:
    ...         _ = aside.write_text("a,b")
    ...     (Path(folder) / "runs.csv").read_text()
    'a,b'
    """
    target = resolved(path)
    make_parents(target)
    with staging(target) as stage:
        aside = stage / target.name
        yield aside
        if target.is_file():
            shutil.copymode(target, aside)
        layer.sync(aside)
        layer.rename(aside, target)
        layer.sync(target.parent)


def replace_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write ``text`` as the whole content of ``path`` in UTF-8, see :func:`replaced_file`; returns the path."""
    with replaced_file(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")
    return Path(path)
