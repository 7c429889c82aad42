"""Reading a table from the file or folder that a user names: csv, tsv, json, parquet, Excel and others."""

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core import listed, nearest, short
from vicinal.core.checks import ECHO, short_text
from vicinal.core.untrusted import arrow_tables, as_frame, open_regular, parquet_frames, read_frame
from vicinal.data.column_form import is_missing
from vicinal.data.databases import DATABASES, read_database
from vicinal.data.delimited import Log, delimited_pieces
from vicinal.data.form import TableForm
from vicinal.data.formats import advice_for, check_names, other_format, text_encoding
from vicinal.data.sources import PACKED, TEXTS, source_files, unpacked
from vicinal.data.typed import (
    folder_images,
    image_table,
    is_dataset,
    read_arrow,
    read_dataset,
    read_workbook,
)
from vicinal.encoders.kinds import is_file, read_list

MOST_PARTS = 100
"""Columns, at most, that the objects in the texts of one column become."""

DEEPEST = 16
"""A row of JSON with more levels of lists and objects is refused."""


@dataclass(frozen=True)
class Reading:
    """How a table is read: columns of ids, the log, and the sheet or table that is named."""

    ids: Collection[str]
    log: Log
    part: str = ""


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
    how = Reading(ids, log, part)
    first: tuple[Path, list[str]] | None = None
    for file in files:
        check_table(file, part)
        with unpacked(file, part=part) as plain:
            for piece in _pieces(plain, size, need, how):
                frame = with_names(plain, flat_table(piece))
                first = first or (file, list(frame.columns))
                _check_same(file, frame, *first)
                yield frame


def _pieces(path: Path, size: int | None, need: Collection[str], how: Reading) -> Iterator[pd.DataFrame]:
    """The rows of one file; those of csv and tsv as texts."""
    ending = path.suffix.lower()
    if path.is_dir():
        yield _read_folder(path, how)
    elif ending in DELIMITED:
        yield from delimited_pieces(path, size, how.ids, how.log)
    elif ending in LINES and size is not None:
        yield from _line_pieces(path, size, need, how.log)
    elif ending == ".parquet" and size is not None:
        with open_regular(path) as stream:
            yield from parquet_frames(stream, path.name)
    elif ending in ARROW and size is not None:
        yield from (as_frame(table, path.name, ignore_metadata=True) for table in arrow_tables(path))
    else:
        yield READERS[ending](path, how)


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
    if other and not other.startswith(_FORMATS.get(ending, "\0")):
        raise ValueError(f"{path.name}: expected a table, got {other}")
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


def _read_parquet(path: Path, _: Reading) -> pd.DataFrame:
    with open_regular(path) as file:
        return read_frame(file, path.name, ignore_metadata=True)


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


def _read_json(path: Path, how: Reading) -> pd.DataFrame:
    """An array of objects; or one object a line."""
    encoding = text_encoding(path)
    prefix = f"{path.name}: expected an array of JSON objects, got"
    try:
        text = path.read_text(encoding=encoding)
    except UnicodeError as error:
        detail = short_text(error, ECHO)
        raise ValueError(f"{path.name}: expected text in {encoding}, got: {detail}; save it as UTF-8") from None
    start = text.lstrip()[:1]
    if start != "[":
        whole = text.strip().count("\n") == 0 or "\n{" in text
        if start == "{" and (rows := _rows_inside(text)):
            return pd.DataFrame([_flat(row) for row in _checked(rows, prefix, text)])
        if start == "{" and whole:
            return pd.DataFrame(list(json_rows(path, how.log)))
        raise ValueError(f"{prefix} {'one object' if start == '{' else 'an empty file' if not start else 'other text'}")
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{prefix} none: {short_text(error, ECHO)}") from None
    if not rows:
        raise ValueError(f"{prefix} an empty one")
    return pd.DataFrame(list(map(_flat, _checked(rows, prefix, text))))


def _checked(rows: list[Any], prefix: str, text: str) -> list[dict[str, Any]]:
    plain = "\\u" not in text and _depth(rows) <= DEEPEST + 1
    for number, row in enumerate(rows, start=1):
        _check_row(row, f"row {number}", prefix, plain=plain)
    return rows


def _rows_inside(text: str) -> list[Any]:
    """The rows in an object of JSON: the one list of objects in it or in its parts, or pandas' columns; or none.

    >>> _rows_inside('{"count": 1, "data": [{"a": 1}]}'), _rows_inside('{"columns": ["a"], "data": [[1], [2]]}')
    ([{'a': 1}], [{'a': 1}, {'a': 2}])
    >>> _rows_inside('{"a": {"0": 1, "1": 2}}'), _rows_inside('{"a": [1, 2]}'), _rows_inside('{"a": 1}')
    ([{'a': 1}, {'a': 2}], [{'a': 1}, {'a': 2}], [])
    >>> _rows_inside('{"x": {"a": 1}, "y": {"a": 2}}')
    [{'a': 1}, {'a': 2}]
    >>> _rows_inside('{"data": {"rows": [{"a": 1}], "count": 1}}')
    [{'a': 1}]
    """
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return []
    parts = list(whole.values())
    for level in (parts, [inner for part in parts if isinstance(part, dict) for inner in part.values()]):
        tables = [part for part in level if isinstance(part, list) and part and isinstance(part[0], dict)]
        if len(tables) == 1:
            return tables[0]
        if tables:
            break  # which of them is meant, nobody knows
    if isinstance(whole.get("columns"), list) and isinstance(whole.get("data"), list):
        return [
            dict(zip(map(str, whole["columns"]), row, strict=False)) for row in whole["data"] if isinstance(row, list)
        ]
    inner = [list(part) for part in parts if isinstance(part, dict)]
    if len(inner) == len(parts) > len(inner[0]) and not any(map(str.isdecimal, inner[0])):  # rows by their names
        return parts
    columns = [list(part.values()) if isinstance(part, dict) else part for part in parts]
    if columns and all(isinstance(part, list) and len(part) == len(columns[0]) > 1 for part in columns):
        return [dict(zip(whole, row, strict=True)) for row in zip(*columns, strict=True)]
    return []


def _line_pieces(path: Path, size: int, need: Collection[str], log: Log) -> Iterator[pd.DataFrame]:
    missing = dict.fromkeys(need)
    for row in json_rows(path, log):
        for name in row:
            missing.pop(name.strip(), None)
        if not missing:
            break
    rows = json_rows(path, lambda line: None)
    while piece := list(itertools.islice(rows, size)):
        frame = pd.DataFrame(piece)
        known = {str(name).strip() for name in frame.columns}
        yield frame.assign(**{name: None for name in need if name not in known and name not in missing})


def json_rows(path: Path, log: Log) -> Iterator[dict[str, Any]]:
    """The objects in a file with one a line; ``log`` is told of an unusual encoding."""
    encoding = text_encoding(path)
    if encoding not in ("utf-8", "utf-8-sig"):
        log(f"{path.name} was read with the encoding {encoding}")
    empty = True
    prefix = f"{path.name}: expected a JSON object in each line, got"
    try:
        with path.open(encoding=encoding, newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    empty = False
                    yield _row_of(line, f"line {number}", prefix)
    except UnicodeError as error:
        detail = short_text(error, ECHO)
        raise ValueError(f"{path.name}: expected text in {encoding}, got: {detail}; save it as UTF-8") from None
    if empty:
        raise ValueError(f"{prefix} an empty file")


def _row_of(line: str, where: str, prefix: str) -> dict[str, Any]:
    """The row that a line holds."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        advice = "; let its name end in .json" if line.lstrip().startswith("[") and where == "line 1" else ""
        raise ValueError(f"{prefix} none in {where}: {error.msg}{advice}") from None
    except RecursionError:
        raise ValueError(_nested(prefix, where)) from None
    except ValueError as error:  # a whole number of more digits than Python reads
        raise ValueError(f"{prefix} one that cannot be read in {where}: {short_text(error, ECHO)}") from None
    _check_row(row, where, prefix, plain="\\u" not in line and line.count("[") + line.count("{") <= DEEPEST)
    return _flat(row)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose objects, and lists of objects, are columns of their parts, unless they are files.

    >>> _flat({"id": 1, "size": {"height": 2, "box": {"x": 3}}, "photo": {"path": "a.jpg"}})
    {'id': 1, 'size.height': 2, 'size.box.x': 3, 'photo': {'path': 'a.jpg'}}
    >>> _flat({"items": [{"sku": "tea", "qty": 2}, {"sku": "mug"}]})
    {'items.sku': ['tea', 'mug'], 'items.qty': [2, None]}
    """
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if _is_object(value):
            flat |= {f"{name}.{part}": inner for part, inner in _flat(value).items()}
        elif _is_objects(value):
            each = [_flat(one) for one in value]
            parts = dict.fromkeys(part for one in each for part in one)
            flat |= {f"{name}.{part}": [one.get(part) for one in each] for part in parts}
        else:
            flat[name] = value
    return flat


def flat_row(row: dict[str, Any], read: Collection[str]) -> dict[str, Any]:
    """A row whose objects, also those in texts, are columns of their parts where such columns are ``read``.

    Raises:
        ValueError: if it is nested too deep.

    >>> flat_row({"size": '{"height": 2}', "note": {"a": 1}}, ["size.height", "size.width"])
    {'size.height': 2, 'note': {'a': 1}}
    """
    if _depth(row) > DEEPEST:
        raise ValueError(_nested("rows: expected objects of cells, got", "a row"))
    wholes, flat = wholes_of(row, read), dict[str, Any]()
    for name, cell in row.items():
        whole = (_object_in(cell) or cell) if isinstance(cell, str) else cell
        flat |= _flat({name: whole}) if name in wholes else {name: cell}
    return flat


def wholes_of(names: Iterable[str], read: Collection[str]) -> list[str]:
    """Those names of which parts are read, and not they: of "size" the column "size.height"."""
    return [name for name in names if name not in read and any(one.startswith(f"{name}.") for one in read)]


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not is_file(value)


def _is_objects(value: Any) -> bool:
    return isinstance(value, list | np.ndarray) and len(value) > 0 and all(map(_is_object, value))


def flat_table(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose columns of objects, or of lists of them, are columns of their parts; empty lists have none.

    So are columns of texts that are objects in JSON, or as Python writes them, of up to ``MOST_PARTS`` parts.
    """
    texts = {name: parsed for name in frame.columns if (parsed := _objects_of(frame[name])) is not None}
    frame = frame.assign(**texts) if texts else frame
    objects = [name for name in frame.columns if frame[name].dtype == object]
    nested = [name for name in objects if any(_is_object(cell) or _is_objects(cell) for cell in frame[name])]
    if nested:
        rows = ({str(name): cell for name, cell in row.items()} for row in frame[nested].to_dict("records"))
        flat = pd.DataFrame(map(_flat, rows), index=frame.index)
        frame = pd.concat([frame.drop(columns=nested), flat], axis="columns")
    wholes = {name[: dot.start()] for name in frame.columns for dot in re.finditer(r"\.", name)}
    left = [name for name in objects if name in wholes and name in frame and not any(map(_is_filled, frame[name]))]
    return frame.drop(columns=left)


def _objects_of(column: "pd.Series[Any]") -> "pd.Series[Any] | None":
    """The objects, or lists of objects, that all texts of a column are; None if some are not, or no text is there."""
    if column.dtype != object and not isinstance(column.dtype, pd.StringDtype):
        return None
    known: dict[str, Any] = {}
    for cell in column.tolist():
        if isinstance(cell, str) and cell.strip() and cell not in known:
            known[cell] = _object_in(cell)
            if known[cell] is None:
                return None
        elif not isinstance(cell, str) and not is_missing(cell):
            return None
    parts = {part for value in known.values() for part in _flat({"": value})}
    if not 0 < len(parts - {""}) <= MOST_PARTS:
        return None
    return pd.Series([known.get(cell) for cell in column.tolist()], index=column.index, dtype=object)


def _object_in(text: str) -> Any:
    """The object, or list of objects, in a text; None if it is another one."""
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        return None
    values = read_list(text if start == "[" else f"[{text}]")
    if values is None or not all(map(_is_object, values)) or _depth(values) > DEEPEST:
        return None
    return values if start == "[" else values[0]


def _is_filled(cell: Any) -> bool:
    return len(cell) > 0 if isinstance(cell, list | np.ndarray) else not is_missing(cell)


def _nested(prefix: str, where: str) -> str:
    return f"{prefix} one that is nested more than {DEEPEST} deep in {where}; make its parts columns"


def _check_row(row: Any, where: str, prefix: str, *, plain: bool = False) -> None:
    """Refuse anything but an object, and one that is too deep or, unless ``plain``, may hold half a character."""
    if not isinstance(row, dict):
        raise ValueError(f"{prefix} a {type(row).__name__} in {where}")
    if not plain and _depth(row) > DEEPEST:
        raise ValueError(_nested(prefix, where))
    if not plain and not _is_text(json.dumps(row, ensure_ascii=False)):
        raise ValueError(f"{prefix} one with half of a character (a lone surrogate) in {where}; save it as UTF-8")


def _depth(value: Any) -> int:
    """How deep lists and objects are nested."""
    level, depth = [value], 0
    while level := [part for part in level if isinstance(part, dict | list)]:
        level = [part for outer in level for part in (outer.values() if isinstance(outer, dict) else outer)]
        depth += 1
    return depth


def _is_text(line: str) -> bool:
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


DELIMITED, ARROW, LINES = (".csv", ".tsv", ".txt"), (".feather", ".arrow"), (".jsonl", ".ndjson")

READERS: dict[str, Callable[[Path, Reading], pd.DataFrame]] = {
    **dict.fromkeys(DELIMITED, lambda path, how: next(delimited_pieces(path, None, how.ids, how.log))),
    ".json": _read_json,
    **dict.fromkeys(LINES, lambda path, how: pd.DataFrame(list(json_rows(path, how.log)))),
    ".parquet": _read_parquet,
    **dict.fromkeys(ARROW, lambda path, _: read_arrow(path)),
    ".xlsx": lambda path, how: read_workbook(path, how.part, how.log),
    **dict.fromkeys(DATABASES, lambda path, how: read_database(path, how.part)),
}
"""The reader of each file ending."""

_FORMATS = {
    ".parquet": "a parquet file",
    **dict.fromkeys(ARROW, "an Arrow or Feather file"),
    ".xlsx": "an Excel file;",
    **dict.fromkeys(DATABASES, "an SQLite database"),
    ".gz": "a gzip file",
    ".zst": "a zstandard file",
    ".zip": "a zip archive",
}
"""The format of files with this ending, as :func:`vicinal.data.formats.other_format` names it."""
