"""Tables in JSON: rows as objects, whose parts are columns."""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core.checks import ECHO, short, short_text
from vicinal.core.progress import Log
from vicinal.data.column_form import is_missing
from vicinal.data.formats import decoding, text_encoding
from vicinal.encoders.kinds import is_file, read_list

MOST_PARTS = 100
"""Columns, at most, that the objects in the texts of one column become."""

_SHAPE = re.compile(r'"type":\s*"(Multi)?(LineString|Polygon)"|"type":\s*"MultiPoint"')

_SHAPE_LEVELS = 3
"""Of lists in those of a shape's corners: parts, rings, corners."""

DEEPEST = 16
"""A row of JSON with more levels of lists and objects is refused."""


def read_json(path: Path, log: Log) -> pd.DataFrame:
    """An array of objects, also within one object; the features of a map; or one object a line."""
    encoding = text_encoding(path)
    prefix = f"{path.name}: expected an array of JSON objects, got"
    with decoding(path, encoding):
        text = path.read_text(encoding=encoding)
    start = text.lstrip()[:1]
    if start != "[":
        whole = text.strip().count("\n") == 0 or "\n{" in text
        if start == "{" and (rows := _rows_inside(text, prefix)):
            if '"FeatureCollection"' in text and _SHAPE.search(text):
                log(f"{path.name}: longitude and latitude of lines and areas are those of the middle of their box")
            return pd.DataFrame([_flat(row) for row in _checked(rows, prefix, text)])
        if start == "{" and whole:
            return pd.DataFrame(list(json_rows(path, log)))
        raise ValueError(f"{prefix} {'one object' if start == '{' else 'an empty file' if not start else 'other text'}")
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{prefix} none: {short_text(error, ECHO)}") from None
    if not rows:
        raise ValueError(f"{prefix} an empty one")
    if len(rows) > 1 and all(isinstance(row, list) for row in rows) and all(isinstance(name, str) for name in rows[0]):
        rows = _named(rows[0], rows[1:], prefix)
    return pd.DataFrame(list(map(_flat, _checked(rows, prefix, text))))


def _named(columns: list[Any], rows: list[Any], prefix: str) -> list[dict[str, Any]]:
    """Lists of cells by the names of their columns; short ones have gaps."""
    names = list(map(str, columns))
    if len(set(names)) < len(names):
        raise ValueError(f"{prefix} a name of two columns: {short(next(n for n in names if names.count(n) > 1))}")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) > len(names):
            raise ValueError(f"{prefix} row {number} that is no list of at most {len(names)} cells, as names there are")
    return [dict(zip(names, row, strict=False)) for row in rows]


def _checked(rows: list[Any], prefix: str, text: str) -> list[dict[str, Any]]:
    plain = "\\u" not in text and _depth(rows) <= DEEPEST + 1
    for number, row in enumerate(rows, start=1):
        _check_row(row, f"row {number}", prefix, plain=plain)
    return rows


def _rows_inside(text: str, prefix: str = "") -> list[Any]:
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
    if whole.get("type") == "FeatureCollection" and isinstance(whole.get("features"), list):
        return list(map(_feature, whole["features"]))
    for level in (parts, [inner for part in parts if isinstance(part, dict) for inner in part.values()]):
        tables = [part for part in level if isinstance(part, list) and part and isinstance(part[0], dict)]
        if len(tables) == 1:
            return tables[0]
        if tables:
            break  # which of them is meant, nobody knows
    if isinstance(whole.get("columns"), list) and isinstance(whole.get("data"), list):
        return _named(whole["columns"], whole["data"], prefix)
    inner = [list(part) for part in parts if isinstance(part, dict)]
    if len(inner) == len(parts) > len(inner[0]) and not any(map(str.isdecimal, inner[0])):  # rows by their names
        return parts
    columns = [list(part.values()) if isinstance(part, dict) else part for part in parts]
    if columns and all(isinstance(part, list) and len(part) == len(columns[0]) > 1 for part in columns):
        return [dict(zip(whole, row, strict=True)) for row in zip(*columns, strict=True)]
    return []


def _feature(feature: Any) -> Any:
    """A row of a feature in GeoJSON: its properties, and the place of a point, or of the middle of another shape's box.

    >>> _feature({"properties": {"name": "Rome"}, "geometry": {"type": "Point", "coordinates": [12.5, 41.9]}})
    {'name': 'Rome', 'longitude': 12.5, 'latitude': 41.9}
    """
    if not isinstance(feature, dict) or not isinstance(feature.get("properties"), dict):
        return feature
    shape = feature.get("geometry")
    corners: list[Any] = [shape.get("coordinates") if isinstance(shape, dict) else None]
    for _ in range(_SHAPE_LEVELS):
        lists = [each for each in corners if isinstance(each, list) and each]
        corners = [corner for each in lists for corner in (each if isinstance(each[0], list) else [each])]
    places = [each[:2] for each in corners if len(each) > 1 and all(isinstance(one, int | float) for one in each[:2])]
    middle = ((min(each) + max(each)) / 2 for each in zip(*places, strict=True))
    return feature["properties"] | dict(zip(("longitude", "latitude"), middle, strict=False))


def json_rows(path: Path, log: Log) -> Iterator[dict[str, Any]]:
    """The objects in a file with one a line; ``log`` is told of an unusual encoding."""
    encoding = text_encoding(path)
    if encoding not in ("utf-8", "utf-8-sig"):
        log(f"{path.name} was read with the encoding {encoding}")
    empty = True
    prefix = f"{path.name}: expected a JSON object in each line, got"
    with decoding(path, encoding), path.open(encoding=encoding, newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                if empty and line.lstrip()[0] == "[":
                    yield from (
                        {str(name): row[name] for name in row} for row in read_json(path, log).to_dict("records")
                    )
                    return
                empty = False
                yield _row_of(line, f"line {number}", prefix)
    if empty:
        raise ValueError(f"{prefix} an empty file")


def _row_of(line: str, where: str, prefix: str) -> dict[str, Any]:
    """The row that a line holds."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{prefix} none in {where}: {error.msg}") from None
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
    if not plain and re.search(r"[\ud800-\udfff]", json.dumps(row, ensure_ascii=False)):
        raise ValueError(f"{prefix} one with half of a character (a lone surrogate) in {where}; save it as UTF-8")


def _depth(value: Any) -> int:
    """How deep lists and objects are nested."""
    level, depth = [value], 0
    while level := [part for part in level if isinstance(part, dict | list)]:
        level = [part for outer in level for part in (outer.values() if isinstance(outer, dict) else outer)]
        depth += 1
    return depth
