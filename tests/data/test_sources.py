"""What a table is read from: every format gives the same cells, and what is wrong gets one sentence."""

import contextlib
import gzip
import io
import json
import sqlite3
import struct
import sys
from pathlib import Path

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pytest
import zstandard
from pyarrow import feather, ipc, parquet

from vicinal.core import untrusted
from vicinal.data import TableForm, beside, read_table, write_table
from vicinal.data.databases import query_tables
from vicinal.data.sources import root_of, table_name, table_source, table_sources
from vicinal.data.streaming import stream_table

TABLE = pd.DataFrame({"n": [1, 2, 3], "x": [0.5, np.nan, -1e300], "word": ["a", "b c", "\u00fc"]})
ZSTD = zstandard.ZstdCompressor()


def text_of(kind):
    rows = TABLE.astype(object).where(TABLE.notna(), None).to_dict("records")
    return {
        "csv": TABLE.to_csv(index=False),
        "tsv": TABLE.to_csv(index=False, sep="\t"),
        "json": json.dumps(rows, indent=1),
        "jsonl": "\n".join(map(json.dumps, rows)),
    }[kind].encode()


def write_excel(path, frame=TABLE, **sheets):
    book = openpyxl.Workbook()
    for name, table in {"first": frame, **sheets}.items():
        sheet = book.create_sheet(name)
        sheet.append([])
        sheet.append(list(table.columns))
        for row in table.astype(object).where(table.notna(), None).itertuples(index=False):
            sheet.append(list(row))
    del book["Sheet"]
    book.save(path)


def write_stream(path, compression=None):
    table = pa.Table.from_pandas(TABLE)
    with ipc.new_stream(path, table.schema, options=ipc.IpcWriteOptions(compression=compression)) as stream:
        stream.write_table(table, max_chunksize=2)


def write_duckdb(path):
    with contextlib.closing(duckdb.connect(str(path))) as database:
        database.register("frame", TABLE.assign(x=TABLE["x"].astype(object).where(TABLE["x"].notna(), None)))
        database.execute('create table "a ""table" as select n, cast(x as double) x, word from frame')


WRITERS = {
    "t.csv": lambda path: path.write_bytes(text_of("csv")),
    "t.tsv.gz": lambda path: path.write_bytes(gzip.compress(text_of("tsv")[:9]) + gzip.compress(text_of("tsv")[9:])),
    "t.csv.zst": lambda path: path.write_bytes(ZSTD.compress(text_of("csv")[:9]) + ZSTD.compress(text_of("csv")[9:])),
    "t.json": lambda path: path.write_bytes(text_of("json")),
    "lines.json": lambda path: path.write_bytes(text_of("jsonl")),
    "t.json.gz": lambda path: path.write_bytes(gzip.compress(text_of("json"))),
    "t.jsonl.zst": lambda path: path.write_bytes(ZSTD.compress(text_of("jsonl"))),
    "t.parquet": lambda path: TABLE.to_parquet(path),
    "t.feather": lambda path: feather.write_feather(TABLE, path, compression="zstd"),
    "t.arrow": write_stream,
    "packed.arrow": lambda path: write_stream(path, "lz4"),
    "t.xlsx": write_excel,
    "t.sqlite": lambda path: write_table(TABLE, path),
    "t.duckdb": write_duckdb,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_cells_whole_and_in_batches(tmp_path, name):
    WRITERS[name](tmp_path / name)
    want = TABLE.set_axis(pd.RangeIndex(1, 4))
    options = {"check_dtype": False, "check_column_type": False}
    pd.testing.assert_frame_equal(read_table(tmp_path / name), want, **options)
    form = TableForm.of(pd.concat(stream_table(tmp_path / name, 2)))
    batches = [form.read(batch) for batch in stream_table(tmp_path / name, 2)]
    pd.testing.assert_frame_equal(pd.concat(batches), want, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == [name], "nothing is left"


def test_several_files_are_one_table_in_the_order_of_their_names(tmp_path):
    (tmp_path / "s-1.csv").write_text("a,b\n1,x\n2,y\n")
    (tmp_path / "s-2.csv").write_text("b,a\nz,n/a\n")
    (tmp_path / "s-3.csv").write_text("a;b\n1,5;u\n")
    whole = read_table(tmp_path / "s-*.csv")
    assert whole["a"].fillna(0).tolist() == [1, 2, 0, 1.5], "a column is what the cells of all files are"
    assert whole["b"].tolist() == list("xyzu")
    assert whole.index.tolist() == [1, 2, 3, 4]
    assert [len(part) for part in stream_table(tmp_path / "s-[12].csv", 2)] == [2, 1]
    (tmp_path / "s-4.csv").write_text("a,c\n1,x\n")
    with pytest.raises(ValueError, match=r"^s-4\.csv: expected the columns of s-1\.csv, got 'b' missing, 'c' too$"):
        read_table(tmp_path / "s-*.csv")
    with pytest.raises(ValueError, match=r"q-\*\.csv: expected a pattern that files have, got none of that name$"):
        read_table(tmp_path / "q-*.csv")


def test_a_sheet_or_a_table_is_named_behind_a_number_sign(tmp_path):
    write_excel(tmp_path / "b.xlsx", TABLE[:1], other=TABLE[1:])
    lines = []
    assert len(read_table(tmp_path / "b.xlsx", log=lines.append)) == 1
    assert lines == ["b.xlsx: read the sheet 'first' of 'first', 'other'; name another after a #"]
    assert read_table(f"{tmp_path}/b.xlsx#other")["word"].tolist() == ["b c", "\u00fc"]
    write_excel(tmp_path / "n.xlsx", pd.DataFrame({"Notes": ["made in May", "by us"]}), other=TABLE)
    assert len(read_table(tmp_path / "n.xlsx")) == 3, "a page of notes is no table"
    write_excel(tmp_path / "h.xlsx", TABLE[:1], other=TABLE)
    book = openpyxl.load_workbook(tmp_path / "h.xlsx")
    book["first"].sheet_state = "hidden"
    book.save(tmp_path / "h.xlsx")
    assert len(read_table(tmp_path / "h.xlsx")) == 3, "a hidden sheet is only read by name"
    assert len(read_table(f"{tmp_path}/h.xlsx#first")) == 1
    with contextlib.closing(sqlite3.connect(tmp_path / "d.sqlite")) as database:
        for name in ("one", "two"):
            TABLE.assign(word=name).to_sql(name, database, index=False)
    assert read_table(f"{tmp_path}/d.sqlite#two")["word"].tolist() == ["two"] * 3
    for name, sentence in {
        "b.xlsx#othr": r"^b\.xlsx: expected one of the sheets 'first', 'other', got 'othr'; did you mean 'other'\?$",
        "d.sqlite": r"^d\.sqlite: expected one table, got 'one', 'two'; name one as d\.sqlite#NAME$",
        "d.sqlite#three": r"^d\.sqlite: expected one of the tables 'one', 'two', got 'three'",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            read_table(f"{tmp_path}/{name}")
    (tmp_path / "c.csv").write_text("a\n1\n")
    with pytest.raises(
        ValueError,
        match=r"^c\.csv: expected a workbook, a zip archive, a database or a dataset before a #, got '\.csv'",
    ):
        read_table(f"{tmp_path}/c.csv#x")
    (tmp_path / "c#1.csv").write_text("a\n1\n")
    assert len(read_table(tmp_path / "c#1.csv")) == 1


def test_a_folder_of_images_is_a_table_of_their_classes_or_of_the_labels_beside_them(tmp_path):
    for name in ("cat/1.png", "dog/old/2.JPG", "dog/3.png", ".hidden/4.png"):
        (tmp_path / "pets" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pets" / name).touch()
    frame = read_table(tmp_path / "pets")
    assert frame.to_dict("list") == {
        "image": ["cat/1.png", "dog/3.png", "dog/old/2.JPG"],
        "class": ["cat", "dog", "dog"],
    }
    assert root_of(tmp_path / "pets") == (tmp_path / "pets").resolve()
    (tmp_path / "pets" / "labels.csv").write_text("file,weight\ncat/1.png,4\n")
    (tmp_path / "pets" / "licence.txt").write_text("These texts are no labels.")
    said = []
    assert read_table(tmp_path / "pets", log=said.append).to_dict("list") == {"file": ["cat/1.png"], "weight": [4]}
    assert said == ["labels.csv names the images of pets"]
    (tmp_path / "pets" / "more.csv.gz").touch()
    with pytest.raises(
        ValueError, match=r"^pets: expected one table of labels beside the images, got 'labels\.csv', 'mor"
    ):
        read_table(tmp_path / "pets")


def save_dataset(folder, table, features):
    """As ``save_to_disk`` of datasets 4 does."""
    folder.mkdir()
    with ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_fingerprint": "1", "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def test_a_dataset_of_hugging_face_is_read_without_its_package(tmp_path):
    table = pa.table({"text": ["a", "b", "c"], "label": [1, 0, -1]})
    features = {
        "text": {"dtype": "string", "_type": "Value"},
        "label": {"names": ["bad", "good"], "_type": "ClassLabel"},
    }
    save_dataset(tmp_path / "one", table, features)
    frame = read_table(tmp_path / "one")
    assert frame["text"].tolist() == ["a", "b", "c"]
    assert frame["label"].tolist()[:2] == ["good", "bad"]
    assert frame["label"].isna().tolist() == [False, False, True]
    (tmp_path / "both").mkdir()
    save_dataset(tmp_path / "both" / "train", table, features)
    save_dataset(tmp_path / "both" / "test", table[:1], {})
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert len(read_table(f"{tmp_path}/both#train")) == 3
    assert read_table(f"{tmp_path}/both#test")["label"].tolist() == [1]
    state = '{"_data_files": [{"filename": "../one/data-00000-of-00001.arrow"}]}'
    (tmp_path / "both" / "test" / "state.json").write_text(state)
    for name, sentence in {
        "both": r"^both: expected one split, got 'train', 'test'; name one as both#NAME$",
        "both#tset": r"^both: expected one of the splits 'train', 'test', got 'tset'; did you mean 'test'\?",
        "both#test": r"expected a file in .*, got a link out of it",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            read_table(f"{tmp_path}/{name}")


def test_a_query_is_answered_and_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("t.sqlite", "t.duckdb", "t.parquet"):
        WRITERS[name](tmp_path / name)
    for sql, database in (
        ("select n, x from t where n < 3 order by n", "t.sqlite"),
        ('SELECT n, x from "a ""table" where n < 3 order by n', "t.duckdb"),
        ("select n, x from t where n < 3 order by n", f"sqlite:///{tmp_path}/t.sqlite"),
        ("select n, x from t where n < 3 order by n", f"sqlite+pysqlite:///{tmp_path}/t.sqlite"),
        ("with a as (select * from 't.parquet') select n, x from a where n < 3", None),
    ):
        path = table_source("data", sql, database)
        assert read_table(path)["n"].tolist() == [1, 2]
        assert read_table(path)["x"].isna().tolist() == [False, True]
        assert root_of(path) == tmp_path
        assert table_name(path).startswith("query")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for sql, database, sentence in (
        ("drop table t", "t.sqlite", r"^sql: expected a query that reads \(select \.\.\.\), got 'drop table t'$"),
        (
            "with a as (select 1) delete from t",
            "t.sqlite",
            r"^database: .* t\.sqlite answers, got: attempt to write a re",
        ),
        ("select 1; drop table t", "t.sqlite", r"^database: .* got: You can only execute one statement at a time"),
        ("select 1; drop table t", "t.duckdb", r"^sql: expected one query that reads"),
        ("select * from 't.parquet'", "t.duckdb", r"^database: expected a query that t\.duckdb answers, got: "),
        (
            "with a as (select 1) delete from t",
            f"sqlite+pysqlite:///{tmp_path}/t.sqlite",
            r"that sqlite\+pysqlite answers",
        ),
        (
            "select 1",
            "no.duckdb",
            r"^database: expected a file or an address as postgresql://\.\.\., got 'no\.duckdb'$",
        ),
        (
            "select 1",
            "nosuch://secret:word@host/d",
            r"^database: expected a query that nosuch answers, got: (?!.*word)",
        ),
        ("select n fro t", "t.sqlite", r"^database: expected a query that t\.sqlite answers, got: "),
    ):
        with pytest.raises(ValueError, match=sentence) as wrong:
            list(query_tables(sql, database))
        assert "\n" not in str(wrong.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(ValueError, match=r"^database: expected a query \('select \.\.\.'\) as data, got 't\.csv'$"):
        table_source("data", "t.csv", "t.sqlite")
    paths = table_sources("data", ["t.csv", "select 1 as n", "select 2 as n"], "t.sqlite")
    assert paths[0] == Path("t.csv")
    assert [read_table(path)["n"].tolist() for path in paths[1:]] == [[1], [2]]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (text_of("csv"), "stdin.csv"),
        (b"\xef\xbb\xbf " + text_of("jsonl"), "stdin.jsonl"),
        (text_of("json"), "stdin.json"),
        (gzip.compress(text_of("jsonl"), mtime=0), "stdin.jsonl.gz"),
        (TABLE.to_parquet(), "stdin.parquet"),
    ],
)
def test_standard_input_is_read_as_what_it_is(tmp_path, monkeypatch, content, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    inside = table_source.__globals__  # its module, which the doctests import once more
    monkeypatch.setitem(inside, "_spool", lambda: tmp_path / "spool")
    (tmp_path / "spool").mkdir()
    inside["_standard_input"].cache_clear()
    path = table_source("data", "-")
    inside["_standard_input"].cache_clear()
    assert path.name == name
    assert read_table(path)["word"].tolist() == TABLE["word"].tolist()
    assert root_of(path) == tmp_path
    assert beside(path, "model") == Path("stdin-model")


def huge_arrow(path):
    """A file that says its only buffer unpacks to a terabyte."""
    table = pa.table({"a": np.zeros(100_000)})
    with ipc.new_stream(path, table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    content = path.read_bytes()
    assert content.count(struct.pack("<q", 800_000)) == 1
    path.write_bytes(content.replace(struct.pack("<q", 800_000), struct.pack("<q", 1 << 40)))


def huge_nulls(path):
    table = pa.table({"a": pa.nulls(1 << 28)})
    with ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)


def far_offset(path):
    """A file whose second text ends behind all texts."""
    table = pa.table({"a": ["one", "four", "seven"]})
    with ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)
    content = path.read_bytes()
    assert content.count(struct.pack("<4i", 0, 3, 7, 12)) == 1
    path.write_bytes(content.replace(struct.pack("<4i", 0, 3, 7, 12), struct.pack("<4i", 0, 3, 1 << 20, 12)))


WRONG = {
    "empty.xlsx": (b"", r"expected an Excel file, got none; if it is a text"),
    "binary.csv": (bytes(range(256)) * 9, r"expected text, got NUL bytes in line 1; the file is damaged"),
    "torn.csv.gz": (
        gzip.compress(b"a\n1\n" * 999)[:40],
        r"expected a whole gzip file, got: Truncated compressed stream",
    ),
    "no.csv.gz": (b"a,b\n1,2\n", r"expected a whole gzip file, got: zlib inflate failed: incorrect header"),
    "torn.csv.zst": (
        ZSTD.compress(bytes(range(250)) * 99)[:-9],
        r"expected a whole zstandard file, got: Truncated compressed stream",
    ),
    "no.csv.zst": (b"a,b\n1,2\n", r"expected a whole zstandard file, got: ZSTD decompress failed"),
    "bomb.csv.gz": (gzip.compress(b"a" * (1 << 22)), r"unpacks to at most 1 MiB, got at least [23] MiB"),
    "bomb.csv.zst": (ZSTD.compress(b"a" * (1 << 22)), r"unpacks to at most 1 MiB, got at least [234] MiB"),
    "table.parquet.gz": (
        gzip.compress(b"PAR1"),
        r"expected a packed file that ends in \.csv\.gz, \.tsv\.gz, \.json\.gz",
    ),
    "object.json": (b'{\n"a": 1\n}', r"^object\.json: expected an array of JSON objects, got one object$"),
    "text.json": (b"hello", r"expected an array of JSON objects, got other text$"),
    "torn.json": (b'[{"a": 1}, {', r"expected an array of JSON objects, got none: Expecting property name"),
    "numbers.json": (b"[1, 2]", r"expected an array of JSON objects, got a int in row 1$"),
    "deep.json": (b"[" * 99999, r"expected an array of JSON objects, got none: maximum recursion"),
    "nested.json": (b'[{"a": ' + b"[" * 40 + b"]" * 40 + b"}]", r"nested more than 16 deep in row 1"),
    "empty.json": (b" ", r"expected an array of JSON objects, got an empty file$"),
    "torn.feather": (b"ARROW1\0\0and more", r"expected a whole Arrow file, got: "),
    "no.arrow": (b"a,b\n1,2\n" * 9, r"expected a whole Arrow file, got: "),
    "huge.arrow": (huge_arrow, r"unpacks to at most \d+ MiB, got at least 1048576 MiB"),
    "far.arrow": (far_offset, r"expected a whole Arrow file, got: .*[Oo]ffset"),
    "nulls.arrow": (huge_nulls, r"unpacks to at most 1 MiB, got at least 2048 MiB"),
    "torn.sqlite": (
        b"SQLite format 3\0" + b"\1" * 900,
        r"^database: expected a query that torn\.sqlite answers, got: ",
    ),
    "empty.db": (b"", r"expected one table, got none"),
    "torn.duckdb": (b"12345678DUCK" * 99, r"^database: expected a query that torn\.duckdb answers, got: "),
    "bomb.xlsx": (
        lambda path: write_excel(path, pd.DataFrame({"a": ["x" * 30000] * 300})),
        r"at most \d MiB, got at least \d MiB",
    ),
    "wide.xlsx": (lambda path: write_excel(path, pd.DataFrame({"a": [1], "b": [2]}), x=TABLE), None),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_gets_one_sentence_before_it_fills_the_memory(tmp_path, monkeypatch, name):
    monkeypatch.setattr(untrusted, "UNPACKED", 1 << 20)
    content, sentence = WRONG[name]
    content(tmp_path / name) if callable(content) else (tmp_path / name).write_bytes(content)
    if sentence is None:
        assert len(read_table(tmp_path / name)) == 1
        return
    for read in (read_table, lambda path: list(stream_table(path, 100))):
        with pytest.raises(ValueError, match=sentence) as wrong:
            read(tmp_path / name)
        assert "\n" not in str(wrong.value)
        assert str(wrong.value).isprintable()


@pytest.mark.parametrize(("module", "name"), [("openpyxl", "t.xlsx"), ("duckdb", "t.duckdb")])
def test_a_package_that_is_missing_is_named_with_its_extra(tmp_path, monkeypatch, module, name):
    WRITERS[name](tmp_path / name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ValueError, match=rf"expected the package {module}, got none; .* pip install 'vicinal\[files\]'$"
    ):
        read_table(tmp_path / name)


def test_rows_above_the_header_of_a_sheet_are_skipped_and_said(tmp_path):
    book, lines = openpyxl.Workbook(), []
    for row in (["Sales of 2024"], [], ["Place", None, "Sold"], ["street", "town", "price"], ["a", "b", 1.5]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    frame = read_table(tmp_path / "t.xlsx", log=lines.append)
    assert frame.to_dict("list") == {"street": ["a"], "town": ["b"], "price": [1.5]}
    assert lines == ["t.xlsx: skipped 2 rows before the header"]


def test_rows_of_a_sheet_that_are_longer_than_its_header_are_refused(tmp_path):
    book = openpyxl.Workbook()
    for row in (["a", "b"], [1, 2], [3, 4, 5]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(ValueError, match=r"^t\.xlsx: expected as many cells in each row .* more than 2 in row 2; give"):
        read_table(tmp_path / "t.xlsx")


def test_a_note_beside_the_table_of_a_sheet_is_skipped_and_said(tmp_path):
    book, lines = openpyxl.Workbook(), []
    for row in (["a", "b"], *([n, 2 * n] for n in range(20))):
        book.active.append(row)
    book.active["F5"] = "see Bob"
    book.save(tmp_path / "t.xlsx")
    assert read_table(tmp_path / "t.xlsx", log=lines.append).shape == (20, 2)
    assert lines == ["t.xlsx: skipped cells beside the table: 'see Bob'"]


def test_parquet_with_other_types_in_another_file_is_put_together(tmp_path):
    parquet.write_table(pa.table({"a": [1, 2]}), tmp_path / "p1.parquet")
    parquet.write_table(pa.table({"a": [0.5, None]}), tmp_path / "p2.parquet")
    assert read_table(tmp_path / "p*.parquet")["a"].tolist()[:3] == [1.0, 2.0, 0.5]


def damaged(content, random):
    """Bytes cut short, changed or put in."""
    content, kind = bytearray(content), random.random()
    if kind < 0.3:
        return content[: random.integers(len(content))]
    if kind < 0.8:
        for at in random.integers(len(content), size=random.choice([1, 2, 8])):
            content[at] = random.integers(256)
        return content
    at = random.integers(len(content))
    content[at:at] = random.bytes(random.integers(20))
    return content


@pytest.mark.parametrize("turns", [8, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WRITERS)
def test_damaged_files_are_read_or_refused_in_one_sentence(tmp_path, name, turns):
    WRITERS[name](tmp_path / name)
    content, random = (tmp_path / name).read_bytes(), np.random.default_rng(turns)
    refused = []
    for _ in range(turns):
        (tmp_path / name).write_bytes(damaged(content, random))
        for read in (read_table, lambda path: list(stream_table(path, 2))):
            try:
                read(tmp_path / name)
            except ValueError as wrong:
                refused.append(wrong)
    assert {type(wrong) for wrong in refused} <= {ValueError}
    assert all(str(wrong).isprintable() for wrong in refused)
