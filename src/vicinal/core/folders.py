"""Folders that are written whole or not at all, with checksums, and read as a consistent version."""

import contextlib
import errno
import filecmp
import functools
import hashlib
import operator
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from vicinal.core import files
from vicinal.core.untrusted import machine_memory

SUMS = "SHA256SUMS"
"""The file of checksums: one line a file, in the form that the program ``sha256sum -c`` reads."""

CHANGES = "changes.jsonl"
"""The journal of a model folder: ours, but it grows after the folder is written, so it has no checksum."""

_LARGEST_SUMS = 1 << 20
"""Bytes of the largest file of checksums that is read."""

MARKERS = {
    "model": "config.json",
    "index": "index.json",
    "bank": "bank.json",
    "matcher": "matcher.json",
    "recommender": "recommender.json",
}
"""Our kinds of folders, with the settings file that names the format. A model is also a bank; an index may be one."""
MATCHER_VERSION = 7
"""Of the settings of a matcher, for what loads it and for what shows it without torch."""

_CANNOT_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
_HEAD = 4096
"""Bytes of a folder's settings in which its format is sought; we write it first."""
_EAGER, _SECONDS = 5, 60.0
"""How often to read a folder without a lock if it is replaced meanwhile, and how many seconds at most if it cannot be
locked."""

Read = TypeVar("Read")


def sha256(path: Path) -> str:
    """Checksum of a file, as hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# Writing.


@contextlib.contextmanager
def staged_folder(target: Path, what: str = "model") -> Iterator[Path]:
    """A new folder beside ``target`` that replaces it if the ``with`` statement ends without an error.

    If it is interrupted, even by a kill or a power cut, ``target`` is as it was before. Several processes may do this
    at once: each folder is whole, and the last one stays. Leftovers of killed processes are removed.

    Files in the old folder that are not ours (its ``SHA256SUMS`` does not list them) move into the new one; if a file
    there has the same name, theirs gets a ``~`` at the end. A symbolic link to the folder stays, and its target is
    replaced; one in the folder is not followed. Files keep their modes, and a new one is open to nobody for whom one of
    ours was closed.

    Args:
        target: the folder to make or to replace.
        what: which of :data:`MARKERS` it holds; a folder that is not empty and holds something else is refused.

    Raises:
        ValueError: if ``target`` is a file, or a folder with other things in it.
        OSError: if it cannot be written.
    """
    check_replaceable(target, what)
    target = files.resolved(target)
    files.make_parents(target)
    _recover(target)
    with files.staging(target, lambda stage: _keep_theirs(stage, target)) as stage:
        modes, everybody = kept_modes(target), stage.stat().st_mode & 0o666  # as the user's mask has it
        mode = everybody & open_mode(modes)
        if mode != everybody:
            stage.chmod(0o700)  # nor is it while it is written; in the end the folder gets the mode of the old one
        yield stage
        _seal(stage, modes, mode)
        with files.locked(target):
            check_replaceable(target, what)
            _keep_theirs(target, stage)
            _swap(target, stage)
            _keep_theirs(stage, target)  # what came meanwhile
        _remove(stage)


def check_replaceable(target: Path, what: str = "model") -> None:
    """Raise unless ``target`` can be made or replaced: it is absent, empty or ours, and we may write there."""
    path, target = target, files.resolved(target)
    if target.exists() and not target.is_dir():
        raise ValueError(f"out: expected a folder, got the file {path}")
    if read_whole(target, lambda place: place.is_dir() and any(place.iterdir()) and kind_of(place) != what):
        article = "an" if what[0] in "aeiou" else "a"
        raise ValueError(
            f"out: expected a new or empty folder, or {article} {what} folder to replace, got {path}, "
            "which holds other files"
        )
    if os.path.ismount(target):
        raise ValueError(f"out: expected a folder that can be renamed, got {path}, a mount point; give one below it")
    above = next(folder for folder in target.parents if folder.is_dir())
    for folder in (target, above) if target.is_dir() else (above,):
        if not os.access(folder, os.W_OK | os.X_OK):
            raise ValueError(
                f"out: expected a folder that can be written to, got {path}; {folder} is read-only for you"
            )


def kind_of(folder: Path) -> str | None:
    """Which of :data:`MARKERS` a folder holds; None for one that is not ours, whatever the names of its files."""
    if not (folder / SUMS).is_file():
        return None
    for what, marker in MARKERS.items():
        if (folder / marker).is_file() and named_in(folder / marker, "format") == f"vicinal-{what}":
            return what
    return None


def named_in(settings: Path, key: str) -> str | None:
    """The text that the head of a settings file of ours has for a key; None without one."""
    with settings.open("rb") as stream:
        value = re.search(rf'"{key}"\s*:\s*"([^"\\]*)"'.encode(), stream.read(_HEAD))
    return None if value is None else value[1].decode(errors="replace")


def _previous(target: Path) -> Path:
    """Where a folder waits while it is being replaced, on systems that cannot swap two names."""
    return target.with_name(f".{target.name}.previous")


def _recover(target: Path) -> None:
    """Restore, or remove, what a writer left that was killed between two renames."""
    with files.locked(target):
        previous = _previous(target)
        if previous.is_dir() and target.exists():
            _keep_theirs(previous, target)
            _remove(previous)
        elif previous.is_dir():
            files.layer.rename(previous, target)
            files.layer.sync(target.parent)


def _keep_theirs(old: Path, new: Path) -> None:
    """Put the files of ``old`` that are not ours into ``new`` too, under a free name if theirs is taken."""
    if not (old / SUMS).is_file() or not new.is_dir():  # it was never whole, so nobody else knew of it
        return
    ours = {SUMS, CHANGES, *read_sums(old)}  # a journal goes along by whoever writes the new folder, or not at all
    touched: set[Path] = set()
    for path in sorted(old.rglob("*")):
        name = path.relative_to(old).as_posix()
        theirs = path.is_symlink() or not path.is_dir()
        if name in ours or not (theirs or not any(path.iterdir())):
            continue
        place = new / name
        while os.path.lexists(place) and not _same(path, place):
            place = place.with_name(f"{place.name}~")
        if os.path.lexists(place):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if theirs:
            files.layer.link(path, place)
        else:
            files.layer.make_folder(place)
        touched.update(folder for folder in place.parents if folder == new or new in folder.parents)
    for folder in sorted(touched, reverse=True):
        files.layer.sync(folder)


def _same(one: Path, other: Path) -> bool:
    """Whether two paths are one file, or a copy of it."""
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and os.readlink(one) == os.readlink(other)
    if one.is_dir() or other.is_dir():
        return one.is_dir() and other.is_dir()
    return os.path.samefile(one, other) or (one.is_file() and filecmp.cmp(one, other, shallow=False))


def kept_modes(folder: Path) -> dict[str, int]:
    """The modes of our files in a folder, by name; none if it is not there."""
    names = [SUMS, CHANGES, *read_sums(folder)] if (folder / SUMS).is_file() else []
    paths = {name: folder / name for name in names}
    return {name: path.stat().st_mode & 0o777 for name, path in paths.items() if _is_plain(path)}


def open_mode(modes: Mapping[str, int]) -> int:
    """The mode of a new file beside files with these ``modes``, before the user's mask: its owner can write it.

    >>> oct(open_mode({"config.json": 0o640, "bank.json": 0o444})), oct(open_mode({}))
    ('0o640', '0o666')
    """
    return functools.reduce(operator.and_, modes.values(), 0o666) | 0o600


def _is_plain(path: Path) -> bool:
    """Whether there is a regular file, and no link to one."""
    return path.is_file() and not path.is_symlink()


def _seal(stage: Path, modes: Mapping[str, int] | None = None, mode: int = 0o644) -> None:
    """Write the checksums, last of all, and wait until everything is on disk; a file without a mode gets ``mode``."""
    inside = sorted(stage.rglob("*"))
    names = [path for path in inside if _is_plain(path)]
    sealed = [path for path in names if path != stage / CHANGES]
    lines = [f"{sha256(path)}  {path.relative_to(stage).as_posix()}\n" for path in sealed]
    sums = stage / f"{SUMS}.part"  # a stage that has its checksums is whole
    sums.write_text("".join(lines), encoding="utf-8")
    for path in (*names, sums):
        name = path.relative_to(stage).as_posix().removesuffix(".part")
        path.chmod((modes or {}).get(name, mode))
        files.layer.sync(path)
    files.layer.rename(sums, stage / SUMS)
    for path in (*(path for path in reversed(inside) if path.is_dir()), stage):
        files.layer.sync(path)


def _swap(target: Path, stage: Path) -> None:
    """Swap ``stage`` and ``target``, if there is a ``target``."""
    old = None
    if not target.is_dir():
        files.layer.rename(stage, target)
    else:
        shutil.copymode(target, stage)
        try:
            files.layer.exchange(stage, target)
        except OSError as cannot:
            if cannot.errno not in _CANNOT_EXCHANGE:
                raise
            old = _previous(target)
            files.layer.rename(target, old)
            files.layer.rename(stage, target)
    files.layer.sync(target.parent)
    if old is not None:
        files.layer.rename(old, stage)


def _remove(folder: Path) -> None:
    """Remove a folder of ours, its checksums first, so that its remains after a kill do not count as a folder."""
    files.remove_tree(folder / SUMS)
    files.remove_tree(folder)


# Reading.


def read_whole(folder: Path, read: Callable[[Path], Read]) -> Read:
    """The result of ``read`` on a folder that others may replace: of the old or the new one, never of a mixture.

    ``read`` is called again if the folder was replaced while it ran. It must open everything that it needs before it
    returns; open or mapped files stay as they are. Nothing need be written, so the file system may be read-only.

    Args:
        folder: as :func:`staged_folder` writes it.
        read: called with the folder to read, which may be one that is just being replaced.

    Raises:
        ValueError: as ``read`` does for a folder that nobody replaces, or if it is replaced all the time.
    """
    begun, tries = time.monotonic(), 0
    while time.monotonic() - begun < _SECONDS:
        tries += 1
        with contextlib.ExitStack() as stack:
            if tries > _EAGER:  # writers do not let us through
                with contextlib.suppress(OSError):  # we may not lock here
                    stack.enter_context(files.locked(files.resolved(folder)))
            place = _current_folder(folder)
            version = stack.enter_context(_pinned(place))
            try:
                content = read(place)
            except Exception:  # whatever it is, it says nothing about a folder that went away under it
                gone = version is None and tries < _EAGER  # perhaps between the two renames of a writer, twice
                now = _current_folder(folder)  # of one version, but moved: what was read may have stood nowhere
                if now == place and _version(now) == version and not gone:
                    raise
            else:
                if _version(_current_folder(folder)) == version:
                    return content
    raise ValueError(f"{folder}: expected a folder that stays while it is read, got one that is replaced all the time")


def _current_folder(folder: Path) -> Path:
    """The folder, or its previous version while it is being replaced."""
    previous = _previous(files.resolved(folder))
    return previous if not folder.exists() and previous.is_dir() else folder


def _version(place: Path) -> tuple[int, int] | None:
    """What tells a folder from its successor of the same name; None if it does not exist."""
    try:
        status = place.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def _pinned(place: Path) -> Iterator[tuple[int, int] | None]:
    """The version of a folder, whose number no other folder can get meanwhile."""
    try:
        handle = os.open(place, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except OSError:  # it is not there, or folders cannot be opened here
        yield _version(place)
        return
    try:
        status = os.fstat(handle)
        yield status.st_dev, status.st_ino
    finally:
        os.close(handle)


def read_sums(folder: Path, what: str = "model") -> dict[str, str]:
    """The checksums of a folder's files by name; raises ValueError if there are none."""
    sums = folder / SUMS
    if not sums.is_file():
        raise ValueError(f"{sums.name}: expected this file in {folder}, got none; it is no {what} folder or was torn")
    with sums.open("rb") as stream:
        text = stream.read(_LARGEST_SUMS + 1)
    if len(text) > _LARGEST_SUMS:
        raise ValueError(
            f"{sums.name}: expected at most {_LARGEST_SUMS >> 20} MiB in {folder}, got more; it was edited"
        )
    lines = text.decode("utf-8", "replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def check_sums(folder: Path, names: tuple[str, ...], what: str = "model", largest: int | None = None) -> None:
    """Raise ValueError naming the first of the files ``names`` that is missing, too large, torn or edited.

    Args:
        folder: holds the files and their checksums.
        names: of the files.
        what: what the folder holds, as errors name it.
        largest: most bytes of a file; None: the memory of this machine.
    """
    sums = read_sums(folder, what)
    largest = machine_memory() if largest is None else largest
    for name in names:
        path = folder / name
        if not path.is_file():
            raise ValueError(f"{name}: expected this file in {folder}, got none; save the {what} again")
        if path.stat().st_size > largest:
            got = f"{path.stat().st_size >> 20} MiB"
            raise ValueError(f"{name}: expected at most {largest >> 20} MiB in {folder}, got {got}; it was edited")
        checksum = sha256(path)
        if checksum != sums.get(name):
            raise ValueError(
                f"{name}: expected the checksum {sums.get(name, 'that ' + SUMS + ' lists')!s:.20}, got {checksum:.20}; "
                "the file was torn or edited, so nothing was loaded"
            )
