"""How a user may name a table: a pattern of files, a sheet after a #, packed text, standard input, a query."""

import atexit
import functools
import glob
import itertools
import os
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

import pyarrow as pa
from pyarrow import parquet

from vicinal.core import listed, short
from vicinal.core.checks import ECHO, local_path, short_text
from vicinal.core.untrusted import check_unpacked, most_unpacked, open_regular
from vicinal.data.databases import QUERY, query_tables
from vicinal.data.formats import READABLE, other_format

TEXTS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")
"""Endings of text files, which may be packed."""

PACKED = (".gz", ".zst", ".zip")

_PATTERN = re.compile(r"[*?\[]")
_STEP = 1 << 20


def table_source(name: str, text: str, database: str | None = None) -> Path:
    """The path of a table as typed by a user; standard input and query results become files until the program ends.

    Args:
        name: of the argument.
        text: a file, a folder, a pattern of files, "-" for standard input, or an SQL query.
        database: of the query, see :func:`vicinal.data.databases.query_tables`.

    Raises:
        ValueError: for a web address, a database without a query, or a query that fails.
    """
    return table_sources(name, [text], database)[0]


def table_sources(name: str, texts: Sequence[str], database: str | None = None) -> list[Path]:
    """:func:`table_source` for several tables; with a ``database``, at least one must be a query."""
    queries = [QUERY.match(text) is not None and not os.path.exists(text) for text in texts]
    if database is not None and not any(queries):
        raise ValueError(f"database: expected a query ('select ...') as {name}, got {short(texts[0], ECHO)}")
    paths = []
    for text, is_query in zip(texts, queries, strict=True):
        if is_query:
            paths.append(_answer(text, database))
        else:
            paths.append(_standard_input() if text == "-" else local_path(name, text))
    return paths


def _answer(sql: str, database: str | None) -> Path:
    """A file with the result of a query."""
    path = _spool() / f"query{len(list(_spool().glob('query*'))) or ''}.parquet"
    tables = query_tables(sql, database)
    piece = next(tables)
    with parquet.ParquetWriter(path, piece.schema) as writer:
        for table in itertools.chain([piece], tables):
            writer.write_table(table.cast(piece.schema))
    return path


@functools.cache
def _spool() -> Path:
    """A folder of this process for what a query or standard input gives; it goes when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="vicinal-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _standard_input() -> Path:
    """A file with the content of standard input, with the ending that its first bytes suggest."""
    path = _spool() / "stdin"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    ending = _ending_of(path)
    if ending in PACKED:
        with unpacked(path, ending) as inner:
            ending = _ending_of(inner) + ending
    return path.rename(path.with_suffix(ending))


def _ending_of(path: Path) -> str:
    what = other_format(path).partition(";")[0]
    return next((ending for ending, name in READABLE.items() if name == what), "") if what else ".csv"


def source_files(path: str | Path) -> tuple[list[Path], str]:
    """The files that a path means, sorted, and the sheet or table that is named after a #, or "".

    Raises:
        ValueError: for a pattern that no file matches.
    """
    path = local_path("data", path)
    if os.path.lexists(path):
        return [path], ""
    before, _, part = str(path).rpartition("#")
    if before and os.path.exists(before):
        return [Path(before)], part
    if not _PATTERN.search(str(path)):
        return [path], ""
    files = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
    if not files:
        raise ValueError(f"{short_text(path, ECHO)}: expected a pattern that files have, got none of that name")
    return files, ""


def table_name(path: Path) -> str:
    """A name for the table at ``path``: the file's name without endings, or that of the folder of a pattern.

    >>> [table_name(Path("a", name)) for name in ("houses.csv.gz", "*.csv", "sold-*.csv", "book.xlsx#prices")]
    ['houses', 'a', 'sold', 'book-prices']
    """
    if path.is_dir():
        return path.resolve().name
    before, _, part = ("", "", path.name) if path.exists() else path.name.rpartition("#")
    stems = [
        Path(name.removesuffix(".gz").removesuffix(".zst").removesuffix(".zip")).stem for name in (before, part) if name
    ]
    plain = _PATTERN.split("-".join(stems))[0].strip("-_. ")
    return plain or next((one.name for one in path.parents if one.name and not _PATTERN.search(one.name)), "table")


def root_of(path: Path) -> Path:
    """The folder that paths in the cells of a table start from: its own, or the current one for standard input."""
    return path.resolve() if path.is_dir() else beside(path, "").parent.resolve()


def beside(path: Path, word: str) -> Path:
    """The default place for something made from the table at ``path``: ``NAME-WORD`` beside it."""
    folder = path.parent
    while _PATTERN.search(str(folder)) and not folder.exists():
        folder = folder.parent
    return (Path() if folder == _spool() else folder) / f"{table_name(path)}-{word}"


@contextmanager
def unpacked(path: Path, ending: str = "", part: str = "") -> Iterator[Path]:
    """``path``, or for a packed file an unpacked copy, removed at the end of the ``with`` statement.

    Args:
        path: a file; of a zip archive the only table inside, or ``part``.
        ending: how its name would end if it had one.
        part: the name of a table in a zip archive.

    Raises:
        ValueError: if it is torn, unpacks to too much, or holds no or several tables.
    """
    ending = ending or path.suffix.lower()
    if ending not in PACKED:
        yield path
        return
    most, size = most_unpacked(path.stat().st_size), 0
    with tempfile.TemporaryDirectory(prefix="vicinal-") as folder, open_regular(path) as packed:
        if ending == ".zip":
            name, blocks = _in_archive(packed, path.name, part)
        else:
            name = path.stem if path.suffix.lower() in PACKED else path.name
            form, what = ("gzip", "gzip") if ending == ".gz" else ("zstd", "zstandard")
            opened = functools.partial(pa.CompressedInputStream, pa.PythonFile(packed, mode="r"), form)
            blocks = _blocks(opened, f"{path.name}: expected a whole {what} file")
        plain = Path(folder) / name
        with plain.open("wb") as file:
            for block in blocks:
                size += len(block)
                check_unpacked(path.name, size, most)
                file.write(block)
        yield plain


def _in_archive(packed: BinaryIO, name: str, part: str) -> tuple[str, Iterator[bytes]]:
    """The file name of a table in a zip archive, and what is packed of it; hidden files are none."""
    try:
        archive = zipfile.ZipFile(packed)
        inside = [one for one in archive.namelist() if _is_table(one)]
        tables = [one for one in inside if not part or part in (one, PurePosixPath(one).name)]
    except (zipfile.BadZipFile, NotImplementedError, UnicodeError) as wrong:
        raise ValueError(f"{name}: expected a whole zip archive, got: {short_text(wrong, ECHO)}") from None
    if len(tables) != 1:
        expected = f"a table {short(part)} inside" if part else "one table inside"
        advice = f"; name one as {name}#NAME" if inside else f"; one ends in {', '.join(TEXTS)}"
        raise ValueError(f"{name}: expected {expected}, got {listed(inside, 80) or 'none'}{advice}")
    opened = functools.partial(archive.open, tables[0])
    return PurePosixPath(tables[0]).name, _blocks(
        opened, f"{name}: expected a whole zip archive", "; unpack it yourself"
    )


def _is_table(name: str) -> bool:
    path = PurePosixPath(name)  # of an archive, whatever the system
    return path.suffix.lower() in TEXTS and not any(one.startswith((".", "__MACOSX")) for one in path.parts)


def _blocks(opened: Callable[[], IO[bytes]], what: str, advice: str = "") -> Iterator[bytes]:
    """What is packed, a little at a time, as it may be much."""
    try:
        with opened() as stream:
            while block := stream.read(_STEP):
                yield block
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, zlib.error) as wrong:  # or has a password
        raise ValueError(f"{what}, got: {short_text(wrong, ECHO)}{advice}") from None
