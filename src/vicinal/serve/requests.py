"""Reads untrusted requests: JSON to tables of cells; what is wrong is refused in one sentence."""

import base64
import binascii
import contextlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import pandas as pd
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from vicinal.core import listed, nearest, short
from vicinal.core.checks import short_text
from vicinal.data.duplicates import MEDIA
from vicinal.data.form import MEASURED
from vicinal.data.json_tables import flat_row
from vicinal.estimators.banked import BankedEstimator

_MOST_HITS = 1000
"""Most rows that a search or an explanation returns."""


class Refused(Exception):
    """Refusal of a request, with the reason.

    Args:
        status: HTTP status.
        sentence: the reason, for the client.
        headers: of the response.
    """

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, dict(headers or {})


def read_json(content: bytes) -> dict[str, Any]:
    """The JSON object in the body of a request.

    >>> read_json(b'{"rows": NaN}')
    Traceback (most recent call last):
    vicinal.serve.requests.Refused: body: expected numbers that JSON has, got NaN
    """

    def refuse(word: str) -> None:
        raise Refused(400, f"body: expected numbers that JSON has, got {word}")

    def number(word: str) -> int | float:
        if not math.isfinite(float(word)):  # also of a whole number too long to be a float anywhere behind
            raise Refused(400, f"body: expected numbers below 1.8e308, got {short_text(word, 20)}")
        return int(word) if word.lstrip("-").isdigit() else float(word)

    try:
        text = content.decode()
        value = json.loads(text, parse_constant=refuse, parse_int=number, parse_float=number)
        json.dumps(value, ensure_ascii=False).encode()  # a half of a surrogate pair is no text
    except (ValueError, RecursionError) as wrong:
        raise ValueError(f"body: expected a JSON object in UTF-8, got {short(content[:200])}") from wrong
    if not isinstance(value, dict):
        raise ValueError(f"body: expected a JSON object, got {short(value)}")
    return value


def typed(text: str) -> int | float | str:
    """A field of a form as JSON would have it: a number if it can be read as one, also "007" and ".9".

    >>> typed("007"), typed(".9"), typed("x")
    (7, 0.9, 'x')
    """
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


_ITEMS = {
    "rows": "objects of cells by column",
    "ids": "texts or whole numbers",
    "users": "texts or whole numbers",
    "query": "a text or a list of texts",
    "cost": "a price of too low, or a list of two, of too low and of too high",
}
"""What an error expects of the items of a field."""

Rows = Annotated[
    list[Annotated[dict[str, Any], Field(min_length=1)]], Field(min_length=1, description="a list of at least one")
]
Ids = Annotated[list[int | str], Field(min_length=1, description="a list of at least one")]


def _like(example: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"example": example})


class Body(BaseModel):
    """What a request may hold; the description of a field is what its error expects."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Predict(Body):
    """Rows to predict."""

    model_config = _like({"rows": [{"column": 1.5}], "interval": 0.9})

    rows: Rows
    interval: float | None = Field(None, gt=0, lt=1, description="a number between 0 and 1")
    abstain: float | None = Field(None, gt=0, lt=1, description="a number between 0 and 1")
    link: str | None = Field(None, description="the link of a matching loss, as exp(1.5)")
    cost: float | Annotated[list[float], Field(min_length=2, max_length=2)] | None = Field(
        None, description=_ITEMS["cost"]
    )
    quantile: float | None = Field(None, ge=0, le=1, description="a number from 0 to 1")
    cap: float | None = Field(2.0, gt=0, description="spreads from the median, or null")

    def aim(self) -> dict[str, Any]:
        """Arguments of ``NeighborRegressor.for_loss``; none where nothing is asked for."""
        named = self.model_dump(include={"link", "cost", "quantile"}, exclude_none=True)
        return named | ({"cap": self.cap} if "link" in named else {})


class Explain(Predict):
    """Rows to predict, and how many rows behind each prediction to list."""

    model_config = _like({"rows": [{"column": 1.5}], "k": 5})

    k: int = Field(5, ge=1, le=_MOST_HITS, description=f"a whole number from 1 to {_MOST_HITS}")


class Search(Body):
    """Texts or rows to search for."""

    model_config = _like({"query": "words", "k": 10})

    query: str | Annotated[list[str], Field(min_length=1)] | None = Field(None, description=_ITEMS["query"])
    rows: Rows | None = None
    k: int = Field(10, ge=1, le=_MOST_HITS, description=f"a whole number from 1 to {_MOST_HITS}")


class Recommend(Body):
    """Users to recommend items to; see :meth:`vicinal.estimators.Recommender.recommend`."""

    model_config = _like({"users": ["ann"], "k": 10, "among": "all"})

    users: Ids
    k: int = Field(10, ge=1, le=_MOST_HITS, description=f"a whole number from 1 to {_MOST_HITS}")
    among: Literal["all", "known", "new"] = Field("all", description="all, known or new")


class Reason(Body):
    """Pairs of a user and an item to give the reasons of, from a recommender."""

    model_config = _like({"rows": [{"user": "ann", "item": "The Third Man"}], "people": False})

    rows: Rows
    people: bool = Field(default=False, description="true or false")


class Add(Body):
    """Rows with their labels, and their ids if the model has a column of them."""

    model_config = _like({"rows": [{"id": "a7", "column": 1.5, "target": 3.0}]})

    rows: Rows


class Forget(Body):
    """Ids of bank rows."""

    model_config = _like({"ids": ["a7"]})

    ids: Ids


class Relabel(Forget):
    """Ids of bank rows, and a label for each."""

    model_config = _like({"ids": ["a7"], "labels": [4.0]})

    labels: list[Any] = Field(min_length=1, description="a list of at least one")


AnyBody = TypeVar("AnyBody", bound=Body)


def read_body(kind: type[AnyBody], content: bytes, most: int) -> AnyBody:
    """The body of a request, with at most ``most`` rows, ids or queries.

    Raises:
        ValueError: if it is not what ``kind`` says.
        Refused: if it cannot be read, or holds more.
    """
    value = read_json(content)
    for name, values in value.items():
        if isinstance(values, list) and len(values) > most:
            raise Refused(413, f"{name}: expected at most {most} in a request, got {len(values)}")
    try:
        return kind.model_validate(value)
    except ValidationError as wrong:
        raise ValueError(_sentence(kind, wrong.errors(include_url=False)[0])) from wrong


def _sentence(kind: type[Body], error: Any) -> str:
    """What is wrong with a field, or with an item of it."""
    name, *inside = error["loc"]
    if error["type"] == "extra_forbidden":
        names = list(kind.model_fields)
        return f"body: expected the keys {listed(names, 200)}, got {short(name)}{nearest(name, names)}"
    place = f" at {inside[0]}" if inside and isinstance(inside[0], int) else ""
    expected = _ITEMS[name] if inside else kind.model_fields[name].description
    return f"{name}: expected {expected}, got {short(None if error['type'] == 'missing' else error['input'])}{place}"


def table_of(model: BankedEstimator, rows: list[dict[str, Any]], *, whole: bool = True) -> pd.DataFrame:
    """Rows as a table, with cells as the model takes them; a cell cannot name a file of this machine.

    Args:
        model: reads the rows.
        rows: JSON objects of cells by column.
        whole: whether every row must have all columns that the model reads.

    Raises:
        ValueError: for a cell that cannot be used, with its row and column.
    """
    read = [str(name) for name in model.feature_names_in_] if whole else []
    derived = {str(name) for name in (*(model.notes_.get("sets") or {}), *(model.notes_.get("chunked") or []))}
    rows = [flat_row(row, model.kinds_) for row in rows]
    for place, row in enumerate(rows):
        for name in read:
            if name not in row and name not in derived:
                likely = nearest(name, [other for other in row if other not in read])
                raise ValueError(
                    f"rows: expected the column {short(name)}, which the model reads, in row {place}, got "
                    f"none{likely}; null stands for a gap"
                )
    frame = frame_of(rows, model.kinds_)
    read_cells = model.form_.read(frame, frame.columns)  # what it cannot read stays, as no client sees warnings
    for column, form in model.form_.columns.items():
        cells = read_cells[column].tolist() if column in read_cells and form.kind in MEASURED else []
        odd = [place for place, cell in enumerate(cells) if isinstance(cell, str)]
        if odd:
            at = f"rows: in row {odd[0]}, column {short(column)}"
            raise ValueError(f"{at}, expected {MEASURED[form.kind]}, got {short(cells[odd[0]])}; null stands for a gap")
    return frame


def frame_of(rows: list[dict[str, Any]], kinds: Mapping[str, str]) -> pd.DataFrame:
    """Rows as a table, with cells that fit the kinds of their columns, by name.

    Raises:
        ValueError: for a cell that does not, with its row and column.
    """
    columns = {name: None for row in rows for name in row}
    cells = {
        name: [checked_cell(row.get(name), kinds.get(name), name, place) for place, row in enumerate(rows)]
        for name in columns
    }
    return pd.DataFrame({name: _column(values, kinds.get(name)) for name, values in cells.items()})


def _column(values: list[Any], kind: str | None) -> pd.Series:
    if kind == "number" and all(value is None or isinstance(value, int | float) for value in values):
        return pd.Series([math.nan if value is None else float(value) for value in values])
    return pd.Series(values, dtype=object)


def checked_cell(cell: Any, kind: str | None, column: str, place: int) -> Any:
    """A cell of a request as the library takes it: a file as ``{"bytes": ...}``.

    Raises:
        ValueError: for a cell that does not fit the kind of the column.
    """
    at = f"rows: in row {place}, column {short(column)}, expected"
    if isinstance(cell, dict):
        cell = _uploaded(cell, at)
    if kind in MEDIA:
        if not isinstance(cell, dict):
            raise ValueError(f'{at} a file as {{"base64": ...}} or as a part of a form, got {short(cell)}')
        return cell
    if isinstance(cell, dict) and kind != "set":
        raise ValueError(f"{at} {_expected(kind)}, got an object")
    if isinstance(cell, list):
        if kind not in ("set", "vector", None):
            raise ValueError(f"{at} {_expected(kind)}, got a list")
        return [_element(one, at, kind) for one in cell]
    if kind == "number" and (isinstance(cell, bool) or not isinstance(cell, int | float | str | None)):
        raise ValueError(f"{at} a number, got {short(cell)}")
    return cell


def _expected(kind: str | None) -> str:
    return {"number": "a number", "text": "a text", "category": "a text or a number"}.get(kind or "", "a plain value")


def _element(one: Any, at: str, kind: str | None) -> Any:
    if isinstance(one, dict):
        return _uploaded(one, at)
    if kind == "vector" and (isinstance(one, bool) or not isinstance(one, int | float | list)):
        raise ValueError(f"{at} a list of numbers, got {short(one)} in it")
    return one


def _uploaded(cell: dict[str, Any], at: str) -> dict[str, bytes]:
    if set(cell) != {"base64"} or not isinstance(cell["base64"], str):
        raise ValueError(f'{at} a file as {{"base64": ...}}, got an object with {listed(cell, 100) or "no keys"}')
    try:
        return {"bytes": base64.b64decode(cell["base64"], validate=True)}
    except (binascii.Error, ValueError) as wrong:
        raise ValueError(f"{at} base64, got other text") from wrong


def as_json(answer: Any) -> Response:
    """An answer as JSON; numbers that are not finite become null, and objects that JSON has not become text."""
    content = to_json(answer, inf_nan_mode="null", fallback=lambda v: v.tolist() if hasattr(v, "tolist") else str(v))
    return Response(content, media_type="application/json")
