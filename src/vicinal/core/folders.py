"""Folders that are written whole or not at all, with checksums."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

SUMS = "SHA256SUMS"
"""One line a file, in the form that the program ``sha256sum -c`` reads."""


def sha256(path: Path) -> str:
    """Checksum of a file, as hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def recover(target: Path) -> None:
    """Put back the previous folder if a writer was killed between taking it away and putting the new one there."""
    previous = _aside(target, "previous")
    if previous.is_dir() and not target.exists():
        previous.rename(target)


@contextlib.contextmanager
def staged_folder(target: Path, marker: str, what: str = "model") -> Iterator[Path]:
    """A new folder beside ``target`` that takes its place when the block ends without an error.

    Whatever ends the block early, a kill included, ``target`` is as it was before (see :func:`recover`).

    Args:
        target: the folder to make or to replace.
        marker: a file that says that a folder was written by us; another folder that is not empty is refused.
        what: the thing that such a folder holds, as errors name it.

    Raises:
        ValueError: if ``target`` is a file, or a folder with other things in it.
        OSError: if it cannot be written.
    """
    recover(target)
    check_replaceable(target, marker, what)
    stage = _aside(target, "new")
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(parents=True)
    try:
        yield stage
        _seal(stage)
        _replace(target, stage)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def check_replaceable(target: Path, marker: str, what: str = "model") -> None:
    """Raise unless ``target`` can be made or replaced: it is absent, empty or ours, and we may write there."""
    if target.exists() and not target.is_dir():
        raise ValueError(f"out: expected a folder, got the file {target}")
    if target.is_dir() and any(target.iterdir()) and not (target / marker).is_file():
        article = "an" if what[0] in "aeiou" else "a"
        raise ValueError(
            f"out: expected a new or empty folder, or {article} {what} folder to replace, got {target}, "
            "which holds other files"
        )
    above = next(folder for folder in (target, *target.absolute().parents) if folder.is_dir())
    if not os.access(above, os.W_OK | os.X_OK):
        raise ValueError(f"out: expected a folder that can be written to, got {target}; {above} is read-only for you")


def _aside(target: Path, word: str) -> Path:
    target = target.absolute()
    return target.with_name(f".{target.name}.{word}")


def _seal(stage: Path) -> None:
    """Write the checksums and see to it that everything is on disk."""
    files = sorted(path for path in stage.rglob("*") if path.is_file())
    lines = [f"{sha256(path)}  {path.relative_to(stage).as_posix()}\n" for path in files]
    (stage / SUMS).write_text("".join(lines), encoding="utf-8")
    for path in (*files, stage / SUMS, stage):
        path.chmod(0o755 if path.is_dir() else 0o644)
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _replace(target: Path, stage: Path) -> None:
    previous = _aside(target, "previous")
    shutil.rmtree(previous, ignore_errors=True)
    if target.exists():
        target.rename(previous)
    stage.rename(target)
    shutil.rmtree(previous, ignore_errors=True)


def read_sums(folder: Path, what: str = "model") -> dict[str, str]:
    """The checksums of a folder's files by name; raises ValueError if there are none."""
    sums = folder / SUMS
    if not sums.is_file():
        raise ValueError(f"{sums.name}: expected this file in {folder}, got none; it is no {what} folder or was torn")
    lines = sums.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def check_sums(folder: Path, names: tuple[str, ...], what: str = "model") -> None:
    """Raise ValueError naming the first of the files ``names`` that is missing, torn or edited."""
    wanted = read_sums(folder, what)
    for name in names:
        if not (folder / name).is_file():
            raise ValueError(f"{name}: expected this file in {folder}, got none; save the {what} again")
        found = sha256(folder / name)
        if found != wanted.get(name):
            raise ValueError(
                f"{name}: expected the checksum {wanted.get(name, 'that ' + SUMS + ' lists')!s:.20}, got {found:.20}; "
                "the file was torn or edited, so nothing was loaded"
            )
