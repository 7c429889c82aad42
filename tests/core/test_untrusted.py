"""Promises about files of somebody else: what would hang, fill the memory or mean something else is refused first."""

import json
import os
import socket

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from vicinal.core import untrusted
from vicinal.core.untrusted import (
    Saved,
    check_inside,
    open_regular,
    read_frame,
    read_parquet,
    read_settings,
    read_tensors,
)


class Settings(Saved):
    version: int
    names: list[str]
    share: float = 0.5


def write(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


# Files.


def test_only_regular_files_are_opened(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # the name of a socket must be short
        server.bind("socket")
        for name, what in (("pipe", "a named pipe"), ("folder", "a folder"), ("socket", "a socket")):
            with pytest.raises(ValueError, match=rf"^{name}: expected a regular file, got {what}"):
                open_regular(tmp_path / name)
    with pytest.raises(ValueError, match=r"^zero: expected a regular file, got a device"):
        open_regular(tmp_path.__class__("/dev/zero"))
    (tmp_path / "ring").symlink_to("ring")
    for name in ("none", "ring"):
        with pytest.raises(ValueError, match=rf"^{name}: expected a file, got none at"):
            open_regular(tmp_path / name)
    write(tmp_path / "file", "text")
    (tmp_path / "link").symlink_to("file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"text"


def test_names_stay_inside_a_folder(tmp_path):
    (tmp_path / "model" / "part").mkdir(parents=True)
    write(tmp_path / "secret", "x")
    (tmp_path / "model" / "up").symlink_to("part/../../secret")
    (tmp_path / "model" / "out").symlink_to(tmp_path)
    (tmp_path / "model" / "ring").symlink_to("ring")
    (tmp_path / "model" / "nowhere").symlink_to("absent")
    write(tmp_path / "model" / "own", "x")
    (tmp_path / "model" / "inside").symlink_to("own")
    check_inside(tmp_path / "model", "own", "inside", "part", "absent")
    for name in ("up", "out", "../secret", "out/secret"):
        with pytest.raises(ValueError, match=rf"^{name}: expected a file in .*model, got a link out of it"):
            check_inside(tmp_path / "model", name)
    for name in ("ring", "nowhere"):
        with pytest.raises(ValueError, match=rf"^{name}: expected a file in .*model, got a link that leads nowhere"):
            check_inside(tmp_path / "model", name)


# Settings.


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"version": 1}, r"got field required at 'names'"),
        ({"version": 1, "names": [], "more": 1}, r"got extra inputs are not permitted at 'more'"),
        ({"version": 1, "names": [3]}, r"got input should be a valid string at 'names.0'"),
        ({"version": 1, "names": [], "share": "0.5"}, r"got input should be a valid number at 'share'"),
        ({"version": 1, "names": [], "share": True}, r"got input should be a valid number at 'share'"),
        ('{"version": 1, "names": [], "share": NaN}', r"got input should be a finite number at 'share'"),
        ('{"version": 1, "names": [], "share": 1e999}', r"got input should be a finite number at 'share'"),
        ({"version": 3, "names": []}, r"expected format version 2 or older, got 3; update vicinal to load a thing"),
        ({"version": 0, "names": []}, r"expected format version 2 or older, got 0; make it anew"),
        ({"version": True, "names": []}, r"expected the settings of a thing, got other content"),
        ({"names": []}, r"expected the settings of a thing, got other content"),
        ("[" * 300_000 + "]" * 300_000, r"expected the settings of a thing, got other content"),
        ("", r"expected the settings of a thing, got other content"),
        ("\x00", r"expected the settings of a thing, got other content"),
    ],
)
def test_settings_are_of_one_form(tmp_path, content, sentence):
    with pytest.raises(ValueError, match=rf"^a.json: .*{sentence}"):
        read_settings(write(tmp_path / "a.json", content), Settings, "a thing", newest=2)


def test_settings_are_read_back_and_not_too_large(tmp_path, monkeypatch):
    path = write(tmp_path / "a.json", {"version": 2, "names": ["a"], "share": 1})
    assert read_settings(path, Settings, "a thing", newest=2) == Settings(version=2, names=["a"], share=1.0)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"^a.json: expected the settings of a thing, got other content"):
        read_settings(path, Settings, "a thing", newest=2)
    monkeypatch.setattr(untrusted, "LARGEST_SETTINGS", 1 << 20)
    with path.open("wb") as file:
        file.truncate(1 << 40)  # it takes no room, and none to refuse it
    with pytest.raises(ValueError, match=r"^a.json: expected at most 1 MiB of settings, got more"):
        read_settings(path, Settings, "a thing", newest=2)


# Tensors.


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ({}, r"expected a tensor 'w', got none of that name"),
        ({"w": torch.zeros(2, 3), "v": torch.zeros(1)}, r"got one more, 'v'"),
        ({"w": torch.zeros(3, 2)}, r"expected 'w' to be \(2, 3\) torch.float32, got \(3, 2\) torch.float32"),
        ({"w": torch.zeros(2, 3).double()}, r"expected 'w' to be \(2, 3\) torch.float32, got \(2, 3\) torch.float64"),
        ({"w": torch.full((2, 3), torch.nan)}, r"expected finite numbers, got NaN or infinity in 'w'"),
        ({"w": torch.full((2, 3), -torch.inf)}, r"expected finite numbers, got NaN or infinity in 'w'"),
    ],
)
def test_tensors_are_those_that_were_expected(tmp_path, found, sentence):
    save_file(found, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=rf"^a.safetensors: .*{sentence}"):
        read_tensors(tmp_path / "a.safetensors", {"w": torch.empty(2, 3, device="meta")})


def test_tensors_are_compared_before_they_are_read(tmp_path):
    save_file({"w": torch.ones(2, 3)}, tmp_path / "a.safetensors")
    (found,) = read_tensors(tmp_path / "a.safetensors", {"w": torch.empty(2, 3, device="meta")}).values()
    assert torch.equal(found, torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"expected 'w' to be \(1000000, 1000000\) torch.float32, got \(2, 3\)"):
        read_tensors(tmp_path / "a.safetensors", {"w": torch.empty(10**6, 10**6, device="meta")})
    for content in (b"", b"\xff" * 8, (10**6).to_bytes(8, "little") + b"{}", b"\x02" + b"\0" * 7 + b"[]"):
        (tmp_path / "b.safetensors").write_bytes(content)
        with pytest.raises(
            ValueError, match=r"^b.safetensors: expected a whole safetensors file, got one that was torn"
        ):
            read_tensors(tmp_path / "b.safetensors", {})


# Tables.


def opened(read, path):
    """What ``read`` gives for the file at ``path``."""
    with open_regular(path) as file:
        return read(file, path.name)


def every_type(rows, seed):
    """A table of the types that a parquet file of ours or of users may have."""
    rng = np.random.default_rng(seed)
    texts = [None if rng.random() < 0.1 else "x" * int(rng.integers(9)) for _ in range(rows)]
    columns = {
        "text": pa.array(texts, pa.string()),
        "large": pa.array(texts, pa.large_string()),
        "view": pa.array(texts, pa.string_view()),
        "bytes": pa.array([None if t is None else t.encode() for t in texts], pa.binary()),
        "coded": pa.array(texts).dictionary_encode(),
        "number": pa.array(rng.normal(size=rows)),
        "whole": pa.array([int(i) if i % 3 else None for i in range(rows)], pa.int32()),
        "vector": pa.array(list(rng.normal(size=(rows, 3)))),
        "texts": pa.array([[t, "y"] for t in texts]),
        "deep": pa.array([[[t]] for t in texts]),
        "image": pa.array([{"bytes": b"abc", "path": t} for t in texts]),
        "map": pa.array([[("k", t)] for t in texts], pa.map_(pa.string(), pa.string())),
        "nothing": pa.nulls(rows),
        "day": pa.array(pd.date_range("2026-01-01", periods=rows)),
        "truth": pa.array(rng.random(rows) < 0.5),
        "price": pa.array(range(rows)).cast(pa.decimal128(38, 2)),
    }
    return pa.table(columns)


@settings(max_examples=20)
@given(rows=st.integers(0, 70), seed=st.integers(0, 99), group=st.sampled_from([7, 1000]), zipped=st.booleans())
def test_a_table_is_what_pyarrow_reads(tmp_path_factory, rows, seed, group, zipped):
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    table = every_type(rows, seed)
    pyarrow.parquet.write_table(table, path, row_group_size=group, compression="zstd" if zipped else "none")
    found = opened(read_parquet, path)
    assert found.schema == pyarrow.parquet.read_table(path).schema
    assert found.equals(pyarrow.parquet.read_table(path))
    pd.testing.assert_frame_equal(opened(read_frame, path), pd.read_parquet(path))


def bombs():
    """Tables of a few kilobytes that unpack to 32 MB."""
    text, count = "x" * 2**20, 32
    coded = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int32)), pa.array([text]))
    lists = pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), coded)
    yield "coded", pa.table({"a": coded})
    yield "cast", pa.table({"a": coded}).replace_schema_metadata(None)
    yield "list", pa.table({"a": lists})
    yield "struct", pa.table({"a": pa.StructArray.from_arrays([coded], ["bytes"])})
    yield "numbers", pa.table({"a": pa.DictionaryArray.from_arrays(np.zeros(4 * 10**6, dtype=np.int32), [1.5])})


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(("name", "table"), list(bombs()))
def test_a_table_that_unpacks_to_far_more_than_its_file_is_refused(tmp_path, monkeypatch, name, table, stored):
    monkeypatch.setattr(untrusted, "UNPACKED", 1 << 24)
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table, path, compression="zstd", store_schema=stored)
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match=r"^a.parquet: expected a table that unpacks to at most 16 MiB, got at least"):
        opened(read_parquet, path)


def test_a_large_table_of_real_rows_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(untrusted, "UNPACKED", 1 << 16)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=20_000), "b": rng.choice(["one", "two"], 20_000), "c": ["yes"] * 20_000})
    frame.to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(opened(read_frame, tmp_path / "a.parquet"), frame)


def test_a_damaged_table_is_one_sentence(tmp_path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(every_type(50, 0), path)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(60):
        torn = bytearray(whole)
        for at in rng.integers(len(torn), size=3):
            torn[at] = rng.integers(256)
        path.write_bytes(torn)
        try:
            opened(read_frame, path)
        except ValueError as error:
            refused += 1
            assert str(error).startswith("a.parquet: expected ")  # noqa: PT017
    assert refused > 10
