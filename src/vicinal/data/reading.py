"""Reading a table from the file or folder that a user names: csv, tsv, json, parquet, Excel and others."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from vicinal.core import listed, nearest, short
from vicinal.core.checks import ECHO, short_text
from vicinal.core.progress import Log
from vicinal.core.untrusted import arrow_tables, as_frame, open_regular, parquet_frames, read_frame
from vicinal.data.databases import DATABASES, read_database
from vicinal.data.delimited import delimited_pieces
from vicinal.data.form import TableForm
from vicinal.data.formats import READABLE, advice_for, check_names, other_format
from vicinal.data.json_tables import flat_table, json_rows, read_json
from vicinal.data.sources import PACKED, TEXTS, source_files, unpacked
from vicinal.data.typed import arrow_table, folder_images, image_table, is_dataset, read_dataset, read_workbook


@dataclass(frozen=True)
class Reading:
    """How a table is read: see :func:`table_pieces`; and the sheet or table that is named."""

    size: int | None
    need: Collection[str]
    ids: Collection[str]
    log: Log
    part: str


def read_table(
    path: str | Path,
    *,
    text: Collection[str] = (),
    ids: Collection[str] = (),
    form: TableForm | None = None,
    labels: Collection[str] = (),
    log: Log = lambda line: None,
) -> pd.DataFrame:
    """The table in the file at ``path``, its cells as they were meant; its rows labelled 1, 2, ... without the header.

    Which columns are numbers, money, dates or truth values is found from all their cells, see :class:`TableForm`; an
    empty cell is missing, and among these so is "n/a", "?" or "-". A column of lists in JSON (``["a.jpg", "b.jpg"]``)
    becomes a column of lists. All else stays as :func:`read_cells` reads it.

    Args:
        path: see :func:`read_cells`.
        text: columns that stay texts even if all their cells are numbers (a title "1984", a code "12").
        ids: see :func:`read_cells`.
        form: how columns are written, as a fitted model keeps it (``form_``); None: as this table shows.
        labels: columns of labels, see :meth:`TableForm.read`.
        log: called with how the file was read, if that differs from what its name suggests.

    Raises:
        ValueError: see :func:`read_cells`.
    """
    frame = read_cells(path, ids=ids, log=log)
    known = TableForm() if form is None else form
    form = known.widened(frame, kinds=dict.fromkeys(text, "text"), aside=ids, log=log)
    commas = [name for name, column in form.columns.items() if column.decimal == "," and name not in known.columns]
    if commas:
        log(f"decimal commas in {listed(commas, 80)}")
    return form.read(frame, labels)


def read_cells(path: str | Path, *, ids: Collection[str] = (), log: Log = lambda line: None) -> pd.DataFrame:
    """The table in the file at ``path``, its cells as they are stored, those of csv and tsv as texts.

    Semicolons, tabs or bars between cells and encodings other than UTF-8 are detected and logged. An apostrophe that
    keeps a cell from being run as a formula (see :func:`vicinal.core.formulas.escape_formula`) is removed. All other
    formats have their own types: jsonl (one JSON object a line), json (an array of them), parquet, feather and arrow,
    xlsx, and database files (sqlite, duckdb).

    Args:
        path: a file with one of these endings, text also packed (.csv.gz, .jsonl.zst, .zip); a pattern of files
            (``sold-*.csv``) with the same columns; ``book.xlsx#sheet``, ``shop.sqlite#table`` or, of several tables in
            an archive, ``sold.zip#may.csv``; a folder of images,
            with a table of labels in it or a folder for each class; or a folder that ``datasets`` saved to disk, with
            several splits ``folder#split``.
        ids: columns of ids and groups, whose cells csv and tsv keep as written ("1e3", "+1"), so that each is the same
            id as in a file whose other cells are words.
        log: called with how the file was read, if that differs from what its name suggests.

    Raises:
        ValueError: for a file that is missing, of another format, torn, or has two columns of one name, for files with
            different columns, or one that unpacks to too much; the error names the file and, if there is one, the line.
    """
    frames = [*table_pieces(path, ids=ids, log=log)]
    frame = frames[0] if len(frames) == 1 else pd.concat(frames)
    frame.index = pd.RangeIndex(1, len(frame) + 1)
    return frame


def table_pieces(
    path: str | Path,
    size: int | None = None,
    *,
    need: Collection[str] = (),
    ids: Collection[str] = (),
    log: Log = lambda line: None,
) -> Iterator[pd.DataFrame]:
    """The rows of :func:`read_cells`, ``size`` at a time if the file can be read that way, else all together.

    Args:
        path: see :func:`read_cells`.
        size: approximate rows of a piece; None: all rows of a file.
        need: columns that each piece has if its file has them in any row: the lines of jsonl may leave some out.
        ids: see :func:`read_cells`.
        log: see there.
    """
    files, part = source_files(path)
    how = Reading(size, need, ids, log, part)
    first: tuple[Path, list[str]] | None = None
    for file in files:
        check_table(file, part)
        with unpacked(file, part=part) as plain:
            for piece in [_read_folder(plain, how)] if plain.is_dir() else READERS[plain.suffix.lower()](plain, how):
                frame = with_names(plain, flat_table(piece))
                first = first or (file, list(frame.columns))
                _check_same(file, frame, *first)
                yield frame


def _check_same(file: Path, frame: pd.DataFrame, first: Path, names: list[str]) -> None:
    """Refuse a file with other columns than the first; a line of jsonl need not have all."""
    if file == first or set(names) == set(frame.columns) or {*LINES} & {*file.suffixes}:
        return
    odd = [f"{short(name)} missing" for name in names if name not in frame.columns]
    odd += [f"{short(name)} too" for name in frame.columns if name not in names]
    raise ValueError(f"{file.name}: expected the columns of {first.name}, got {', '.join(odd[:5])}")


def check_table(path: Path, part: str = "") -> None:
    """Refuse a file that cannot be read as a table, by its ending and its first bytes."""
    ending = path.suffix.lower()
    try:
        if path.is_dir():
            return
        check_file(path)
        other = other_format(path)
    except OSError as wrong:
        raise ValueError(f"{short_text(path, ECHO)}: expected a file, got none: {wrong.strerror}") from None
    groups = (ARROW, DATABASES, (*OBJECTS, *LINES))
    meant = next((group for group in groups if ending in group), (ending,))
    if other and other.partition(";")[0] not in {READABLE.get(one) for one in meant}:
        raise ValueError(f"{path.name}: expected a table, got {other}")
    if not other and ending in (".xlsx", ".parquet"):
        raise ValueError(
            f"{path.name}: expected {READABLE[ending]}, got none; if it is a text, let its name end in .csv"
        )
    if ending in PACKED and ending != ".zip" and Path(path.stem).suffix.lower() not in TEXTS:
        endings = ", ".join(f"{text}{ending}" for text in TEXTS)
        raise ValueError(f"{path.name}: expected a packed file that ends in {endings}, got {short(path.name)}")
    if ending not in (*READERS, *PACKED):
        advice = advice_for(path)
        raise ValueError(
            f"{path.name}: expected a file that ends in {', '.join(READERS)}, got "
            f"{short(path.suffix or 'no ending')}{'; ' if advice else ''}{advice}"
        )
    if part and ending not in (".xlsx", ".zip", *DATABASES):
        raise ValueError(
            f"{path.name}: expected a workbook, a zip archive, a database or a dataset before a #, got {short(ending)}"
        )


def with_names(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """``frame`` of a file with texts as column names, all different, without the columns of a pandas index."""
    names = [str(name).strip() for name in frame.columns]
    check_names(path.name, names)
    frame = frame.set_axis(pd.Index(names, dtype=object), axis="columns")
    return frame.drop(columns=[name for name in names if name.startswith("__index_level_")])


def check_file(path: Path) -> None:
    """Raise ValueError unless ``path`` is a plain file, suggesting the most similar name in its folder."""
    if path.is_file():
        return
    siblings = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
    got = "a folder" if path.is_dir() else "no plain file" if path.exists() else "none" + nearest(path.name, siblings)
    raise ValueError(f"{short_text(path, ECHO)}: expected a file, got {got}")


def _read_parquet(path: Path, how: Reading) -> Iterator[pd.DataFrame]:
    with open_regular(path) as file:
        yield from parquet_frames(file, path.name) if how.size else [read_frame(file, path.name, ignore_metadata=True)]


def _read_arrow(path: Path, how: Reading) -> Iterator[pd.DataFrame]:
    for table in arrow_tables(path) if how.size else [arrow_table([path])]:
        yield as_frame(table, path.name, ignore_metadata=True)


def _read_folder(folder: Path, how: Reading) -> pd.DataFrame:
    """A Hugging Face dataset; or images, with or without a table of labels beside them."""
    if is_dataset(folder):
        return read_dataset(folder, how.part)
    images = folder_images(folder)
    if not images:
        raise ValueError(
            f"{short_text(folder, ECHO)}: expected a file, got a folder without images, which is no dataset either"
        )
    known = (*(READERS.keys() - {".txt"}), *(text + packed for text in TEXTS for packed in PACKED))
    tables = sorted(path for path in folder.iterdir() if path.name.lower().endswith(known) and path.is_file())
    if len(tables) > 1:
        names = listed([path.name for path in tables])
        raise ValueError(f"{folder.name}: expected one table of labels beside the images, got {names}; name the one")
    if not tables:
        return image_table(images)
    how.log(f"{tables[0].name} names the images of {folder.name}")
    return read_cells(tables[0], ids=how.ids, log=how.log)


def _read_lines(path: Path, how: Reading) -> Iterator[pd.DataFrame]:
    if how.size is None:
        yield pd.DataFrame(list(json_rows(path, how.log)))
        return
    missing = dict.fromkeys(how.need)
    for row in json_rows(path, how.log):
        for name in row:
            missing.pop(name.strip(), None)
        if not missing:
            break
    rows = json_rows(path, lambda line: None)
    while piece := list(itertools.islice(rows, how.size)):
        frame = pd.DataFrame(piece)
        known = {str(name).strip() for name in frame.columns}
        yield frame.assign(**{name: None for name in how.need if name not in known and name not in missing})


DELIMITED, ARROW, LINES = (
    (".csv", ".tsv", ".txt", ".tab", ".psv", ".dat", ".data"),
    (".feather", ".arrow"),
    (".jsonl", ".ndjson"),
)
OBJECTS = (".json", ".geojson")
READERS: dict[str, Callable[[Path, Reading], Iterable[pd.DataFrame]]] = {
    **dict.fromkeys(DELIMITED, lambda path, how: delimited_pieces(path, how.size, how.ids, how.log)),
    **dict.fromkeys(OBJECTS, lambda path, how: [read_json(path, how.log)]),
    **dict.fromkeys(LINES, _read_lines),
    ".parquet": _read_parquet,
    **dict.fromkeys(ARROW, _read_arrow),
    ".xlsx": lambda path, how: [read_workbook(path, how.part, how.log)],
    **dict.fromkeys(DATABASES, lambda path, how: [read_database(path, how.part)]),
}
"""The reader of each file ending: the rows in pieces, or all together."""
