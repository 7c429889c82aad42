"""Tables whose files or folders give the types of their cells: Excel, Arrow, folders of images, and datasets."""

import functools
import itertools
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import pyarrow as pa

from vicinal.core import counted, listed, nearest, short
from vicinal.core.checks import ECHO, optional_import, short_text
from vicinal.core.progress import Log
from vicinal.core.untrusted import arrow_tables, as_frame, check_inside, check_unpacked, most_unpacked, open_regular
from vicinal.data.formats import full_names, header_place
from vicinal.data.totals import MOST_NOTES, without_totals
from vicinal.encoders.kinds import IMAGE_ENDS

_CELL = 64
"""Least bytes of a cell of a workbook while its rows are read."""

_FIRST = 20
"""Rows of a workbook among which the header is looked for."""

_LARGEST_SHEET = 1 << 26
"""Most bytes of a sheet that is looked through for merged cells."""

_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\b[^>]*\bref="([A-Z]{1,3})([0-9]{1,7}):\1([0-9]{1,7})"')
"""Merged cells of one column, as a sheet lists them."""

_LARGEST_NOTES = 1 << 25
"""Most bytes of a file of notes about a dataset that is read."""


def read_workbook(path: Path, sheet: str, log: Log = lambda line: None) -> pd.DataFrame:
    """A sheet of an Excel file, "": the first; its first row that is no title names the columns.

    A formula is read as the value that was last computed for it, cells that are merged below one another as the first.
    """
    openpyxl = optional_import(path.name, "openpyxl", "files")
    most = most_unpacked(path.stat().st_size)
    with open_regular(path) as file:
        with _whole_workbook(path.name), zipfile.ZipFile(file) as archive:
            declared = sum(entry.file_size for entry in archive.infolist())
        check_unpacked(path.name, declared, most)
        with _whole_workbook(path.name):
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            names = [one.title for one in book.worksheets]
            shown = [one.title for one in book.worksheets if one.sheet_state == "visible"] or names
        if sheet not in names and (sheet or not names):
            got = f"{short(sheet)}{nearest(sheet, names)}" if names else "a book without any"
            raise ValueError(f"{path.name}: expected one of the sheets {listed(names)}, got {got}")
        if not sheet:
            sheet = next((name for name in shown if _holds_table(path.name, book[name])), shown[0])
            if len(names) > 1:
                log(f"{path.name}: read the sheet {short(sheet)} of {listed(names, 80)}; name another after a #")
        with _whole_workbook(path.name), zipfile.ZipFile(file) as archive:
            merged = _merged(archive, getattr(book[sheet], "_worksheet_path", ""))
        return _sheet_frame(path.name, _lines(path.name, book[sheet], merged), most, log)


def _merged(archive: zipfile.ZipFile, sheet: str) -> dict[int, list[tuple[int, int]]]:
    """Columns of merged cells and their last row, by their first row; each counts from 1."""
    cells: dict[int, list[tuple[int, int]]] = {}
    if sheet in archive.namelist() and archive.getinfo(sheet).file_size <= _LARGEST_SHEET:
        for column, first, last in _MERGED.findall(archive.read(sheet)):
            place = functools.reduce(lambda number, letter: 26 * number + letter - 64, column, 0)
            cells.setdefault(int(first), []).append((place, int(last)))
    return cells


def _holds_table(name: str, page: Any) -> bool:
    """Whether several of the first rows of a sheet have several cells, so that it is no page of notes."""
    first = itertools.islice(_lines(name, page), _FIRST)
    return sum(sum(cell is not None for cell in line) > 1 for line in first) > 1


@contextmanager
def _whole_workbook(name: str) -> Iterator[None]:
    """Turns the errors of openpyxl on a torn file into ours."""
    try:
        yield
    except (MemoryError, KeyboardInterrupt):
        raise
    except Exception as wrong:
        got = short_text(str(wrong) or type(wrong).__name__, ECHO)
        raise ValueError(f"{name}: expected a whole Excel file, got: {got}") from None


def _lines(
    name: str, page: Any, merged: Mapping[int, list[tuple[int, int]]] = MappingProxyType({})
) -> Iterator[tuple[Any, ...]]:
    """Cells of the rows of a sheet, without empty rows; what is ``merged`` below a cell is as it."""
    above: dict[int, tuple[int, Any]] = {}
    with _whole_workbook(name):
        page.reset_dimensions()  # those that are written in the file may be any
        rows = page.iter_rows(values_only=True)
    for number in itertools.count(1):
        with _whole_workbook(name):
            row = next(rows, None)
        if row is None:
            return
        if any(cell is not None for cell in row):
            row = (*row, *(None,) * (max(above, default=0) - len(row)))
            yield tuple(above[place][1] if place in above else cell for place, cell in enumerate(row, start=1))
        above = {place: (last, cell) for place, (last, cell) in above.items() if last > number}
        above |= {place: (last, row[place - 1]) for place, last in merged.get(number, ()) if place <= len(row)}


def _sheet_frame(name: str, lines: Iterator[tuple[Any, ...]], most: int, log: Log) -> pd.DataFrame:
    first = list(itertools.islice(lines, _FIRST))
    before, above = header_place([["" if cell is None else str(cell) for cell in line] for line in first])
    if before > bool(above):
        log(f"{name}: skipped {counted(before - bool(above), 'row')} before the header")
    lines = itertools.chain(first[before:], lines)
    header = next(lines, None)
    if header is None:
        raise ValueError(f"{name}: expected a header and rows, got an empty sheet")
    width = max(len(above), *(place + 1 for place, cell in enumerate(header) if cell is not None))
    rows: list[tuple[Any, ...]] = []
    beyond: dict[int, Any] = {}
    size = 0
    for line in lines:
        beyond |= {len(rows) + 1: cell for cell in line[width:] if cell is not None and len(beyond) <= MOST_NOTES}
        size += _CELL * width
        check_unpacked(name, size, most)
        rows.append((*line[:width], *(None,) * (width - len(line))))
    if len(beyond) > min(MOST_NOTES, len(rows) // 10):
        raise ValueError(
            f"{name}: expected as many cells in each row as in the header, got more than {width} in row "
            f"{next(iter(beyond))}; give each column a name"
        )
    names = ["" if place >= len(header) or header[place] is None else str(header[place]) for place in range(width)]
    named = [each or f"column {place}" for place, each in enumerate(full_names(names, above), start=1)]
    frame, left_out = without_totals(pd.DataFrame(rows, columns=named, dtype=object))
    notes = [f"cells beside the table: {listed(beyond.values(), 80)}"] * bool(beyond)
    for what in [left_out] * bool(left_out) + notes:
        log(f"{name}: skipped {what}")
    return frame.infer_objects()


def arrow_table(paths: list[Path]) -> Any:
    """The table in Arrow files, in the form of Feather or of a stream, one after the other."""
    tables = [pa.concat_tables(list(arrow_tables(path))) for path in paths]
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as wrong:
        raise ValueError(f"{paths[0].name}: expected files of one form, got: {short_text(wrong, ECHO)}") from None


# Folders.


def is_dataset(folder: Path) -> bool:
    """Whether a folder was saved to disk by ``datasets`` of Hugging Face."""
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))


def read_dataset(folder: Path, split: str) -> pd.DataFrame:
    """A dataset of Hugging Face's ``save_to_disk``, or the named one of its splits; classes by name."""
    if (folder / "dataset_dict.json").is_file():
        splits = [str(name) for name in _notes(folder, "dataset_dict.json").get("splits", ())]
        if split not in splits and (split or len(splits) != 1):
            choice = f"one of the splits {listed(splits)}" if split else "one split"
            got = f"{short(split)}{nearest(split, splits)}" if split else listed(splits)
            raise ValueError(f"{folder.name}: expected {choice}, got {got}; name one as {folder.name}#NAME")
        check_inside(folder, split or splits[0])
        return read_dataset(folder / (split or splits[0]), "")
    state = _notes(folder, "state.json")
    features: dict[str, Any] = {}
    if (folder / "dataset_info.json").is_file():
        features = _notes(folder, "dataset_info.json").get("features") or {}
    files = [str(one.get("filename")) for one in state.get("_data_files") or () if isinstance(one, dict)]
    if not files or state.get("_indices_data_files") or split:
        got = "one that picks rows of another" if state.get("_indices_data_files") else f"no split {short(split)}"
        raise ValueError(f"{folder.name}: expected a dataset with its rows, got {got if files else 'none'}")
    check_inside(folder, *files)
    frame = as_frame(arrow_table([folder / name for name in files]), folder.name, ignore_metadata=True)
    for name, feature in features.items():
        names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
        if names and name in frame.columns:
            places = pd.to_numeric(frame[name], errors="coerce")
            frame[name] = [names[int(at)] if 0 <= at < len(names) else None for at in places]
    return frame


def _notes(folder: Path, name: str) -> Mapping[str, Any]:
    check_inside(folder, name)
    with open_regular(folder / name) as file:
        text = file.read(_LARGEST_NOTES + 1)
    try:
        notes = json.loads(text) if len(text) <= _LARGEST_NOTES else None
    except (ValueError, RecursionError):
        notes = None
    if not isinstance(notes, dict):
        raise ValueError(f"{name}: expected the notes of a dataset, got a file that is torn or too large")
    return notes


def folder_images(folder: Path) -> list[Path]:
    """Paths of the images in a folder and those below it, relative to the folder, sorted; hidden ones are skipped."""
    images = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        here = Path(place).relative_to(folder)
        images += [here / n for n in names if n.lower().endswith(IMAGE_ENDS) and not n.startswith(".")]
    return sorted(images)


def image_table(images: list[Path]) -> pd.DataFrame:
    """A row for each image: its path and, if there are folders, the topmost folder that it is in as its class.

    >>> image_table([Path("cat/1.png"), Path("dog/1.png")]).to_dict("list")
    {'image': ['cat/1.png', 'dog/1.png'], 'class': ['cat', 'dog']}
    """
    frame = pd.DataFrame({"image": [path.as_posix() for path in images]})
    classes = [path.parts[0] if len(path.parts) > 1 else None for path in images]
    if any(classes):
        frame["class"] = classes
    return frame
