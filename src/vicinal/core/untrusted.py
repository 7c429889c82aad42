"""Files that somebody else may have written: read within limits that are checked first, or refused with an error."""

import os
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, TypeVar, get_args

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from vicinal.core.checks import ECHO, short_text

if TYPE_CHECKING:
    import pandas
    import pyarrow

LARGEST_SETTINGS = 32 << 20
"""Most bytes of a JSON file that is read."""

UNPACKED, TIMES = 1 << 29, 200
"""A parquet file may unpack to ``UNPACKED`` bytes, or to ``TIMES`` its size if that is more."""

_BATCH = 1 << 16
"""Rows of a parquet file that are unpacked at a time."""

_FILE_TYPES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

Settings = TypeVar("Settings", bound=BaseModel)


class Saved(BaseModel):
    """The content of a JSON file of ours: no other fields, values of exactly these types, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


_PLAIN: dict[Any, Any] = {str: Annotated[str, Field(max_length=1000)], bool: bool, int: int, float: float}


def saved_settings(kind: type, names: Collection[str], *, required: bool = True) -> type[Saved]:
    """What a file holds of settings: numbers within their limits, choices, texts and truth values.

    A setting that may be None may be left out, and is None then; settings of other types are left to the caller.

    Args:
        kind: of :mod:`vicinal.settings`.
        names: of the settings.
        required: whether the others must be there; else they have their defaults.
    """
    known: dict[str, Any] = {}
    for one in (one for one in fields(kind) if one.name in names):
        limits, choices = one.metadata.get("limits"), one.metadata.get("choices")
        optional = type(None) in get_args(one.type)
        plain = _PLAIN.get(get_args(one.type)[0] if optional else one.type)
        if choices:
            plain = Literal[choices]
        elif limits is not None:
            ends = {"ge" if limits.closed else "gt": limits.low, "le" if limits.closed else "lt": limits.high}
            plain = Annotated[plain, Field(**{name: end for name, end in ends.items() if end is not None})]
        if plain is not None:
            default = ... if required and one.default is not None else one.default
            known[one.name] = (plain | None if optional else plain, default)
    return create_model(kind.__name__, __base__=Saved, **known)


def machine_memory() -> int:
    """Bytes of memory of this machine; a petabyte if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 1 << 50


# Files and paths.


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; one that might block or never end (a named pipe, a device) is refused.

    Args:
        path: of the file; links are followed.

    Raises:
        ValueError: if there is no regular file at ``path``.
        OSError: if it cannot be opened.
    """
    name = path.name
    if not path.exists():  # a null byte and a ring of links are no files either
        raise ValueError(f"{name}: expected a file, got none at {str(path)!r}")
    _check_regular(path.stat().st_mode, name)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_regular(os.fstat(handle).st_mode, name)  # it may have been replaced
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_regular(mode: int, name: str) -> None:
    if not stat.S_ISREG(mode):
        raise ValueError(f"{name}: expected a regular file, got {_FILE_TYPES.get(stat.S_IFMT(mode), 'something else')}")


def check_inside(folder: Path, *names: str) -> None:
    """Raise ValueError if one of the files or folders ``names`` of ``folder`` is a link that leads out of it."""
    root = folder.resolve()
    for name in names:
        path = folder / name
        try:
            inside = path.resolve(strict=os.path.lexists(path)).is_relative_to(root)
        except (OSError, RuntimeError) as wrong:  # a ring of links, or one to nothing
            raise ValueError(f"{name}: expected a file in {folder}, got a link that leads nowhere") from wrong
        if not inside:
            raise ValueError(f"{name}: expected a file in {folder}, got a link out of it; copy the file into it")


# Settings.


class Versioned(BaseModel):
    """What every JSON file of ours holds, in any version."""

    model_config = ConfigDict(strict=True)

    version: int


def read_settings(path: Path, model: type[Settings], what: str, *, newest: int, oldest: int = 1) -> Settings:
    """The settings in a JSON file.

    Args:
        path: of the file.
        model: what it must hold, with a field ``version``.
        what: the thing that the settings belong to, such as "a bank".
        newest: newest version that can be read.
        oldest: oldest version that can be read.

    Raises:
        ValueError: naming the file and the first value that does not fit ``model``.
    """
    with open_regular(path) as file:
        text = file.read(LARGEST_SETTINGS + 1)
    if len(text) > LARGEST_SETTINGS:
        raise ValueError(f"{path.name}: expected at most {LARGEST_SETTINGS >> 20} MiB of settings, got more")
    try:
        version = Versioned.model_validate_json(text).version
    except ValidationError as wrong:
        raise ValueError(f"{path.name}: expected the settings of {what}, got other content") from wrong
    if not oldest <= version <= newest:
        remedy = f"update vicinal to load {what}" if version > newest else "make it anew with this vicinal"
        versions = f"{newest}" if oldest == newest else f"{newest} or older"
        raise ValueError(f"{path.name}: expected format version {versions}, got {version}; {remedy}")
    return check_settings(path.name, model, text)


def read_saved(path: Path, model: type[Settings], what: str, *, newest: int, advice: str = "") -> Settings:
    """The content of a JSON file of any size, such as a user's own files of splits and of runs.

    Args:
        path: of the file.
        model: what it must hold, with a field ``version``.
        what: the name of its content in errors, such as "splits".
        newest: newest version that can be read.
        advice: what to do about a torn file, after a semicolon.

    Raises:
        ValueError: naming the file, if it is torn, edited or of a newer version.
    """
    with open_regular(path) as file:
        text = file.read()
    try:
        version = Versioned.model_validate_json(text).version
        if version <= newest:
            return model.model_validate_json(text)
    except ValidationError as error:
        got = f"a torn or edited file ({error.errors()[0]['msg']:.200}){advice}"
        raise ValueError(f"{path.name}: expected {what} written by vicinal, got {got}") from None
    raise ValueError(f"{path.name}: expected {what} of version {newest}, got the newer {version}; update vicinal")


def check_settings(name: str, model: type[Settings], content: str | bytes | Mapping[str, Any]) -> Settings:
    """The settings in a JSON text, or in a mapping of Python values (whose types need not match exactly).

    Raises:
        ValueError: naming the first setting that is wrong, and ``name``.
    """
    try:
        if isinstance(content, Mapping):
            return model.model_validate(content, strict=False)
        return model.model_validate_json(content)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False, include_input=False)[0]
        message = first["msg"].removeprefix("Value error, ")[:200]
        where = f" at {'.'.join(map(str, first['loc']))[:100]!r}" if first["loc"] else ""
        raise ValueError(f"{name}: expected valid settings, got {message[:1].lower()}{message[1:]}{where}") from wrong


# Tensors.


def read_tensors(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a safetensors file, after its header is compared with what is expected.

    Args:
        path: of the file.
        expected: by name, tensors of the same shape and dtype; on the device "meta" they take no memory.

    Raises:
        ValueError: naming the file and the first tensor that is missing, unexpected, of another shape or dtype, or not
            finite.
    """
    name = path.name
    header = tensor_header(path)
    for key in (*expected, *header):
        if key not in header:
            raise ValueError(f"{name}: expected a tensor {key!r:.100}, got none of that name")
        if key not in expected:
            raise ValueError(f"{name}: expected the tensors of these settings, got one more, {key!r:.100}")
        shape, dtype = header[key]
        if shape != expected[key].shape or dtype != expected[key].dtype:
            form = f"{tuple(expected[key].shape)} {expected[key].dtype}"
            raise ValueError(f"{name}: expected {key!r} to be {form}, got {shape} {dtype}")
    if path.stat().st_size > machine_memory():
        raise ValueError(f"{name}: expected weights that fit in memory, got a file of {path.stat().st_size >> 30} GiB")
    tensors: dict[str, Tensor] = load_file(path)
    for key, value in tensors.items():
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise ValueError(f"{name}: expected finite numbers, got NaN or infinity in {key!r}")
    return tensors


def tensor_header(path: Path) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Shape and dtype of each tensor of a safetensors file, whose size is checked against them.

    Raises:
        ValueError: if it is not a whole safetensors file.
    """
    open_regular(path).close()
    try:
        with safe_open(path, framework="pt") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 it is no dictionary
            return {key: (tuple(part.get_shape()), _DTYPES[part.get_dtype()]) for key, part in slices.items()}
    except (SafetensorError, OSError, KeyError) as wrong:
        raise ValueError(
            f"{path.name}: expected a whole safetensors file, got one that was torn or edited ({wrong!s:.100})"
        ) from wrong


_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


# Tables.


def read_parquet(stream: BinaryIO, name: str) -> "pyarrow.Table":
    """The table in a parquet file, called ``name`` in errors, unless it unpacks to too much.

    The declared size is checked before the file is read, the actual size while it is read; a text counts in full in
    each row.

    Raises:
        ValueError: if it is not a whole parquet file, or unpacks to more than ``UNPACKED`` bytes and ``TIMES`` its
            size, or to more than the memory of this machine.
    """
    import pyarrow

    batches = list(_counted_batches(stream, name, machine_memory()))
    return pyarrow.Table.from_batches(batches[1:], batches[0].schema)


def read_frame(stream: BinaryIO, name: str, *, ignore_metadata: bool = False) -> "pandas.DataFrame":
    """:func:`read_parquet` as a DataFrame; ``ignore_metadata``: without the index and types that pandas stored in it.

    Raises:
        ValueError: as :func:`read_parquet`, and for cells or metadata that pandas cannot read.
    """
    return as_frame(read_parquet(stream, name), name, ignore_metadata=ignore_metadata)


def parquet_frames(stream: BinaryIO, name: str) -> "Iterator[pandas.DataFrame]":
    """:func:`read_frame` a batch of rows at a time, so that the table need not fit in memory; the first has no rows.

    Raises:
        ValueError: as :func:`read_frame`.
    """
    import pyarrow

    for batch in _counted_batches(stream, name):
        yield as_frame(pyarrow.Table.from_batches([batch]), name, ignore_metadata=True)


def as_frame(table: "pyarrow.Table", name: str, *, ignore_metadata: bool) -> "pandas.DataFrame":
    """``table`` as a DataFrame; see :func:`read_frame`."""
    import pyarrow

    try:
        frame: pandas.DataFrame = table.to_pandas(ignore_metadata=ignore_metadata)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, pyarrow.ArrowException) as wrong:
        raise ValueError(f"{name}: expected a table that pandas can read, got: {short_text(wrong, ECHO)}") from wrong
    return frame


def _counted_batches(stream: BinaryIO, name: str, memory: int | None = None) -> "Iterator[pyarrow.RecordBatch]":
    """A batch without rows, for the schema, and then the rows; ``memory``: that they must all fit in together."""
    import pyarrow
    from pyarrow import parquet

    most = max(UNPACKED, TIMES * stream.seek(0, os.SEEK_END))
    most = most if memory is None else min(most, memory)
    stream.seek(0)
    try:
        metadata = parquet.read_metadata(stream)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        chunks = [group.column(j) for group in groups for j in range(group.num_columns)]
        check_unpacked(name, sum(chunk.total_uncompressed_size + 8 * chunk.num_values for chunk in chunks), most)
        schema = metadata.schema.to_arrow_schema()
        yield pyarrow.RecordBatch.from_pylist([], schema=schema)
        coded = {
            field.name for field in schema if pyarrow.types.is_dictionary(field.type)
        }  # as categories, in their order
        columns = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        texts = [one.path for one in columns if one.physical_type == "BYTE_ARRAY" and one.path not in coded]
        stream.seek(0)
        file = parquet.ParquetFile(stream, read_dictionary=texts)
        total = 0
        for group in range(len(groups)):  # each has dictionaries of its own
            for batch in file.iter_batches(_BATCH, row_groups=[group]):
                total += sum(_decoded_size(column) for column in batch.columns)
                check_unpacked(name, total, most)
                decoded = [_decoded(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
                yield pyarrow.RecordBatch.from_arrays(decoded, schema=schema)
    except (pyarrow.ArrowException, OSError) as wrong:
        raise ValueError(f"{name}: expected a whole parquet file, got: {short_text(wrong, ECHO)}") from None


def _decoded_size(column: Any) -> int:
    """Bytes of a column if its texts, wherever they are in its cells, are in each row and not once in a dictionary."""
    from pyarrow import compute, types

    kind = column.type
    if types.is_dictionary(kind):
        if not types.is_binary(kind.value_type) and not types.is_string(kind.value_type):
            return int(column.indices.nbytes)
        lengths = compute.take(compute.binary_length(column.dictionary), column.indices)
        return int(compute.sum(lengths).as_py() or 0) + 8 * len(column)
    if types.is_struct(kind):
        return sum(map(_decoded_size, column.flatten()))
    if types.is_map(kind):
        return _decoded_size(column.keys) + _decoded_size(column.items)
    return _decoded_size(column.flatten()) if types.is_nested(kind) else int(column.nbytes)


def _decoded(column: Any, kind: Any) -> Any:
    """A column whose texts are in a dictionary, as the type that its file gives it."""
    from pyarrow import types

    if column.type != kind and types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == kind else column.cast(kind)


def most_unpacked(size: int) -> int:
    """Bytes that a file of ``size`` bytes may unpack to, if they must all fit in memory."""
    return min(max(UNPACKED, TIMES * size), machine_memory())


def check_unpacked(name: str, size: int, most: int) -> None:
    """Raise ValueError if a file unpacks to more than ``most`` bytes."""
    if size > most:
        raise ValueError(
            f"{name}: expected a table that unpacks to at most {most >> 20} MiB, got at least {size >> 20} MiB; "
            "a file that is far smaller than its table may be meant to fill the memory"
        )


def arrow_tables(path: Path) -> "Iterator[pyarrow.Table]":
    """The rows of an Arrow file (Feather, or a stream), a batch at a time; the first has only the schema.

    The file is memory-mapped. The declared sizes are added up before the first batch is unpacked, and the offsets of
    cells are checked before they are read. The index and the types that pandas stored in it are ignored.

    Raises:
        ValueError: if it is not a whole Arrow file, or unpacks to too much.
    """
    import pyarrow
    from pyarrow import ipc

    open_regular(path).close()
    try:
        with pyarrow.memory_map(str(path)) as source:
            start = 8 if source.read(6) == b"ARROW1" else 0
            source.seek(start)
            declared, most = 0, max(UNPACKED, TIMES * source.size())
            for message in ipc.MessageReader.open_stream(source):
                declared += _declared_size(message)
                check_unpacked(path.name, declared, most)
            source.seek(start)
            reader = ipc.open_stream(source)
            schema = pyarrow.schema([pyarrow.field(field.name, field.type) for field in reader.schema])
            yield schema.empty_table()
            for batch in reader:
                batch.validate(full=True)
                yield pyarrow.Table.from_batches([pyarrow.RecordBatch.from_arrays(batch.columns, schema=schema)])
    except (pyarrow.ArrowException, OSError, struct.error, UnicodeError) as wrong:
        raise ValueError(f"{path.name}: expected a whole Arrow file, got: {short_text(wrong, ECHO)}") from None


def _declared_size(message: Any) -> int:
    """Bytes of memory that the rows of an Arrow message take, as declared by the flatbuffer in front of them."""
    if message.type == "schema" or message.body is None:
        return 0
    table = _FlatTable(message.metadata.to_pybytes()).table(2)
    batch = table if message.type == "record batch" else table.table(1)  # of a dictionary, the batch in it
    body, compressed = memoryview(message.body), batch.field(3) is not None
    size = 8 * sum(max(0, length) for length, _ in batch.pairs(1))  # a column of nulls has no bytes, and cells yet
    for offset, length in batch.pairs(2):
        declared = struct.unpack_from("<q", body, offset)[0] if compressed and length else length
        size += max(declared, length)
    return size


class _FlatTable:
    """A table of a flatbuffer: fields by number, each at a place given by the table's list of offsets."""

    def __init__(self, buffer: bytes, place: int | None = None) -> None:
        self.buffer = buffer
        self.place = self._number("<I", 0) if place is None else place
        self.offsets = self.place - self._number("<i", self.place)

    def _number(self, form: str, place: int) -> int:
        return struct.unpack_from(form, self.buffer, place)[0]

    def field(self, number: int) -> int | None:
        """Where a field is, or None if there is none."""
        at = 4 + 2 * number
        offset = self._number("<H", self.offsets + at) if at < self._number("<H", self.offsets) else 0
        return self.place + offset if offset else None

    def table(self, number: int) -> "_FlatTable":
        """The table that a field points to."""
        place = self.field(number)
        if place is None:
            raise struct.error("a message without its rows")
        return _FlatTable(self.buffer, place + self._number("<I", place))

    def pairs(self, number: int) -> list[tuple[int, int]]:
        """A vector of pairs of whole numbers."""
        place = self.field(number)
        if place is None:
            return []
        place += self._number("<I", place)
        count = self._number("<I", place)
        if 16 * count > len(self.buffer):
            raise struct.error("a list that is longer than its message")
        return [struct.unpack_from("<qq", self.buffer, place + 4 + 16 * at) for at in range(count)]
