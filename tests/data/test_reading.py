"""read_table: types of columns, and one sentence for each file that is wrong."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import pickle
import re
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.core.formulas import escape_formula, unescape_formula
from vicinal.data import read_cells, read_table, write_table
from vicinal.data.formats import delimiter_of, header_of
from vicinal.data.reading import table_pieces


def write(tmp_path, text, name="d.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_csv_columns_are_read_as_what_all_their_cells_are(tmp_path):
    path = write(tmp_path, "a,b,zip,word,yes\n1,1.5,00501,NA,True\n2,NA,10001,nan,False\n-3,,02134,Oslo,true\n")
    frame = read_table(path)
    assert list(frame.index) == [1, 2, 3]
    assert frame["a"].dtype == np.int64
    assert frame["b"].tolist()[0] == 1.5
    assert frame["b"].isna().tolist() == [False, True, True]
    assert frame["zip"].tolist() == ["00501", "10001", "02134"], "leading zeros are kept"
    assert frame["word"].tolist()[:2] == ["NA", "nan"], "words stay words among words"
    assert frame["yes"].tolist() == [True, False, True]


@pytest.mark.parametrize(
    "numbers", [["9007199254740993", ""], ["18446744073709551615", "1"], ["9007199254740993", "1.5"]]
)
def test_numbers_too_long_to_be_exact_stay_text(tmp_path, numbers):
    column = read_table(write(tmp_path, "id,x\n" + "".join(f"{cell},1\n" for cell in numbers)))["id"]
    assert column.iloc[0] == numbers[0]


def test_columns_can_be_kept_as_text(tmp_path):
    frame = read_table(write(tmp_path, "title,year\n1984,1949\n,1950\n"), text=["title"])
    assert frame["title"].iloc[0] == "1984"
    assert frame["title"].isna().tolist() == [False, True]
    assert frame["year"].tolist() == [1949, 1950]


def test_cells_of_ids_stay_as_they_are_written(tmp_path):
    """Beside a word, or beside numbers: what a cell says does not depend on the others."""
    cells = ["1e3", "+1", "007", "1.0", "-0", "9007199254740993.5", "true"]
    alone = [read_table(write(tmp_path, f"id,x\n{cell},1\n2,2\n"), ids=["id"])["id"].iloc[0] for cell in cells]
    beside = read_table(write(tmp_path, "id,x\n" + "".join(f"{cell},1\n" for cell in ["word", *cells])), ids=["id"])
    assert alone == beside["id"].tolist()[1:] == cells
    whole = read_table(write(tmp_path, "id,g,x\n1, -4,1\n20,3,2\n"), ids=["id", "g"])
    assert whole["id"].tolist() == [1, 20]
    assert whole["g"].tolist() == [-4, 3]
    gaps = read_table(write(tmp_path, "id,g,x\n1,NA,1\nNA,,2\n3,b,3\n"), ids=["id", "g"])
    assert gaps["id"].isna().tolist() == [False, True, False]
    assert gaps["g"].isna().tolist() == [False, True, False], "NA among words is a word"


def test_exact_long_integers_are_integers(tmp_path):
    column = read_table(write(tmp_path, "id\n9007199254740993\n9007199254740994\n"))["id"]
    assert column.tolist() == [9007199254740993, 9007199254740994]


def test_byte_order_mark_quotes_and_spaces_in_names(tmp_path):
    frame = read_table(write(tmp_path, b'\xef\xbb\xbf price ,"a,b"\n1,"x\ny"\n'))
    assert list(frame.columns) == ["price", "a,b"]
    assert frame["a,b"].tolist() == ["x\ny"]


def test_tsv_parquet_and_jsonl_agree_with_csv(tmp_path):
    want = read_table(write(tmp_path, "n,t\n1,a\n2,b c\n"))
    pd.testing.assert_frame_equal(read_table(write(tmp_path, "n\tt\n1\ta\n2\tb c\n", "d.tsv")), want)
    pd.testing.assert_frame_equal(
        read_table(write(tmp_path, '{"n": 1, "t": "a"}\n\n{"n": 2, "t": "b c"}\n', "d.jsonl")), want
    )
    want.set_index("n", drop=False).to_parquet(tmp_path / "d.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "d.parquet"), want)


def test_jsonl_keeps_its_own_types(tmp_path):
    lines = [{"code": "007", "v": [1, 2.5], "w": 1}, {"code": "8", "v": [3, 4]}]
    frame = read_table(write(tmp_path, "\n".join(map(json.dumps, lines)), "d.jsonl"))
    assert frame["code"].tolist() == ["007", "8"]
    assert frame["v"].tolist() == [[1, 2.5], [3, 4]]
    assert frame["w"].isna().tolist() == [False, True]
    nested = json.dumps({"answer": {"bytes": "3K", "status": 200}})
    assert list(read_table(write(tmp_path, nested, "d.jsonl"))) == ["answer.bytes", "answer.status"], "no file"


GERMAN = pd.DataFrame({"Stra\u00dfe": ["M\u00fchlweg", "\u00d6tztal"], "Preis": [1234.5, 0.75], "Zahl": [1, 2]})


def said(path, **options):
    """A table and what was said of it."""
    lines = []
    return read_table(path, log=lines.append, **options), lines


@pytest.mark.parametrize("name", ["d.csv", "d.tsv"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-32"])
def test_delimiters_and_encodings_are_found_out_and_said(tmp_path, name, separator, encoding):
    text = GERMAN.to_csv(index=False, sep=separator)
    frame, lines = said(write(tmp_path, text.encode(encoding), name))
    pd.testing.assert_frame_equal(frame.reset_index(drop=True), GERMAN, check_column_type=False)
    usual = separator == ("," if name == "d.csv" else "\t")
    assert len(lines) == (0 if usual and encoding.startswith("utf-8") else 1)
    if lines:
        assert ("between cells" in lines[0]) == (not usual)
        assert ("encoding" in lines[0]) == (not encoding.startswith("utf-8"))


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Se\u00f1or Pe\u00f1a, a\u00f1o 2020"),
        ("cp1252", "Sch\u00f6ne Wohnung in M\u00fcnchen, ca. 95,37 m\u00b2, 1.853,58 \u20ac"),
        ("cp1252", "12 \u20ac, 20 \u00b0C"),
        ("cp1252", "D\u00eda: lunes, Precio: 54 \u20ac, Cliente nuevo: S\u00ed"),
        ("mac_roman", "Gem\u00fctliche K\u00fcche, gro\u00dfe Zimmer, sch\u00f6ner Garten in der Stra\u00dfe"),
        ("cp1252", "Gr\u00f8n \u00e6ble, \u00f8l; \u00c5rhus"),
        ("cp1252", "K\u00f8benhavn \u00c5rhus"),
        ("mac_roman", "Le caf\u00e9 pr\u00e8s de l\u2019h\u00f4tel, d\u00e9j\u00e0 tr\u00e8s fran\u00e7ais"),
        ("cp1250", "Krak\u00f3w, D\u0105browskiego 5, ma\u0142e mieszkanie; \u0141\u00f3d\u017a, du\u017cy dom"),
        (
            "cp1251",
            "\u041c\u043e\u0441\u043a\u0432\u0430, \u0431\u043e\u043b\u044c\u0448\u043e\u0439 \u0434\u043e\u043c",
        ),
        ("shift_jis", "\u6771\u4eac\u90fd\u3001\u5927\u304d\u306a\u5bb6\u3067\u3059"),
        ("gb18030", "\u5317\u4eac\u5e02\uff0c\u5927\u623f\u5b50\uff0c\u9760\u8fd1\u5730\u94c1\u7ad9"),
    ],
)
def test_letters_of_other_languages(tmp_path, encoding, text):
    frame, lines = said(write(tmp_path, f'a,b\n1,"{text}"\n2,x\n'.encode(encoding)))
    assert frame["b"].tolist() == [text, "x"]
    assert len(lines) == 1
    long = read_table(write(tmp_path, b"a,b\n" + 3000 * f'1,"{text}"\n'.encode(encoding)))
    assert set(long["b"]) == {text}
    rows = f'{{"b": "{text}"}}\n'.encode(encoding)
    assert read_table(write(tmp_path, rows, "d.jsonl"))["b"].tolist() == [text]


def test_decimal_commas(tmp_path):
    text = "a;b;c;d\n1,5;1.234;007;1.5\n2;12.500;008;1,5\n"
    frame, lines = said(write(tmp_path, text))
    assert frame["a"].tolist() == [1.5, 2.0]
    assert frame["b"].tolist() == [1234, 12500], "a point that is no decimal point"
    assert frame["c"].tolist() == ["007", "008"]
    assert frame["d"].tolist() == ["1.5", "1,5"], "not all cells are numbers of one form"
    assert "decimal commas in 'a', 'b'" in lines
    assert read_table(tmp_path / "d.csv", text=["a"])["a"].tolist() == ["1,5", "2"]


def test_a_comma_that_may_be_of_thousands_is_said(tmp_path):
    frame, lines = said(write(tmp_path, "a;b\n1,500;x\n2,750;y\n"))
    assert frame["a"].tolist() == [1500, 2750]
    assert any(line.startswith("a: no cell tells which mark stands before decimals") for line in lines)


def test_decimal_commas_between_quotes(tmp_path):
    frame, lines = said(write(tmp_path, 'a,b\n"1,5",2\n"2,5",3\n'))
    assert frame["a"].tolist() == [1.5, 2.5]
    assert lines == ["decimal commas in 'a'"]


@pytest.mark.parametrize("before", ["Sales of 2024\n\n", "# made by us, today\n", "Sales,,,,,\n", '"two\nlines"\n'])
def test_lines_before_the_header_are_skipped_and_said(tmp_path, before):
    frame, lines = said(write(tmp_path, before + "a,b,c,d,e,f\n1,2,3,4,5,6\n7,8,9,,,\n"))
    assert frame.columns.tolist() == list("abcdef")
    assert frame["a"].tolist() == [1, 7]
    skipped = "2 lines" if "2024" in before else "1 line"  # a cell of two lines is one
    assert lines == [f"d.csv: skipped {skipped} before the header"]


def test_merged_cells_above_the_names_are_skipped_and_no_row_is(tmp_path):
    frame, lines = said(write(tmp_path, "Place,,Sold\nstreet,town,price\nA,B,1\nC,D,2\n"))
    assert frame.columns.tolist() == ["street", "town", "price"]
    assert lines == ["d.csv: skipped 1 line before the header"]
    for text in (",a,b\nx,y,z\n1,2,3\n", "a,,b\nx,y,z\nu,v,w\n", "a,,b\nx,x,z\n1,2,3\n", "a,,b\n1,y,z\n1,2,3\n"):
        assert header_of(write(tmp_path, text), "utf-8", ",")[:2] == (0, [])


def test_years_are_names_below_merged_cells(tmp_path):
    rows = "Region,2019,2020,2021,Growth\nN,1,2,3,4\nS,2,3,4,5\n"
    frame, lines = said(write(tmp_path, f",Sales,Sales,Sales,\n{rows}"))
    assert frame.columns.tolist() == ["Region", "2019", "2020", "2021", "Growth"]
    assert lines == ["d.csv: skipped 1 line before the header"]
    for data in ("N,2019,2021,2020,4", "N,219,220,221,4"):
        assert header_of(write(tmp_path, f",Sales,Sales,Sales,\n{data}\nS,2,3,4,5\n"), "utf-8", ",")[:2] == (0, [])


def test_cells_that_are_merged_below_one_another_are_all_as_the_first(tmp_path):
    book = openpyxl.Workbook()
    sheet = book.active
    rows = [
        ["Sold", None, None],
        ["Region", "Price", "Note"],
        ["N", 1, "a"],
        [None, 2, "b"],
        ["S", 3, None],
        [None, 4, None],
    ]
    for row in [*rows, [None, 5, "c"]]:
        sheet.append(row)
    for place in ("A1:C1", "A3:A4", "A5:A6", "C4:C6"):
        sheet.merge_cells(place)
    book.save(tmp_path / "d.xlsx")
    frame = read_cells(tmp_path / "d.xlsx")
    assert frame["Region"].tolist()[:4] == ["N", "N", "S", "S"]
    assert frame["Region"].isna().tolist() == [False] * 4 + [True]
    assert frame["Note"].tolist() == ["a", "b", "b", "b", "c"]


def test_names_of_wide_groups_stand_before_those_below_them(tmp_path):
    """Few cells of such a row are filled, so that it looks like a title, and a last name may have none below."""
    book = openpyxl.Workbook()
    years = ["2001", "2006", "2011", "2016", "2021"]
    top = ["Town", None, "Rent", *[None] * 4, "Price", *[None] * 4, "Change"]
    for row in (["Title"], top, ["Name", "Type", *years, *years], ["A", "x", *range(11)], ["B", "y", *range(11)]):
        book.active.append(row)
    book.save(tmp_path / "d.xlsx")
    frame, lines = said(tmp_path / "d.xlsx")
    groups = [f"{name} {year}" for name in ("Rent", "Price") for year in years]
    assert frame.columns.tolist() == ["Town Name", "Town Type", *groups, "Change"]
    assert lines == ["d.xlsx: skipped 1 row before the header"]
    assert frame["Change"].tolist() == [10, 10]


SHAPES = {
    "Polygon": [[[0, 0], [4, 0], [4, 2], [0, 2], [0, 0]]],
    "MultiPolygon": [[[[0, 0], [4, 0], [0, 0]]], [[[1, 1], [3, 2], [1, 1]]]],
    "LineString": [[0, 0], [4, 2], [1, 1]],
    "MultiPoint": [[0, 2], [4, 0]],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_on_a_map_lie_at_the_middle_of_their_box(tmp_path, shape):
    geometries = [{"type": shape, "coordinates": SHAPES[shape]}, {"type": "Point", "coordinates": [7, 8]}]
    empty = [{"type": shape, "coordinates": value} for value in ([], [[]], [["a", 1]], 3, [[[[[1, 2]]]]])]
    features = [{"type": "Feature", "properties": {"a": 1}, "geometry": each} for each in (*geometries, *empty)]
    frame, lines = said(write(tmp_path, json.dumps({"type": "FeatureCollection", "features": features}), "d.geojson"))
    assert frame[["longitude", "latitude"]][:2].to_numpy().tolist() == [[2, 1], [7, 8]]
    assert frame["longitude"][2:].isna().all()
    assert lines == ["d.geojson: longitude and latitude of lines and areas are those of the middle of their box"]


OBJECTS = {
    "JSON": ['{"a": {"b": 1}, "c": ["x", "y"]}', " ", '{"a": {"b": 3}}'],
    "Python": ["{'a': {'b': 1}, 'c': ['x', 'y']}", "", "{'a': {'b': 3}}"],
}


@pytest.mark.parametrize("cells", OBJECTS.values(), ids=OBJECTS)
def test_texts_that_are_objects_are_columns_of_their_parts(tmp_path, cells):
    path = tmp_path / "d.csv"
    pd.DataFrame({"o": cells, "n": [1, 2, 3]}).to_csv(path, index=False)
    frame = read_table(path)
    assert sorted(frame.columns) == ["n", "o.a.b", "o.c"]
    assert frame["o.a.b"].tolist()[::2] == [1, 3]
    assert frame["o.c"].tolist()[0] == ["x", "y"]


def test_lists_of_objects_in_texts_are_lists_of_their_parts(tmp_path):
    path = tmp_path / "d.csv"
    pd.DataFrame({"g": ["[{'id': 1, 'name': 'a'}, {'id': 2, 'name': 'b'}]", "[]"], "n": [1, 2]}).to_csv(
        path, index=False
    )
    frame = read_table(path)
    assert frame["g.name"].tolist()[0] == ["a", "b"]
    assert frame["g.id"].tolist()[0] == [1, 2]


NO_OBJECTS = {
    "words in braces": ["{a}", "{b}"],
    "one is another text": ['{"a": 1}', "none"],
    "names of things": [f'{{"a{number}": 1}}' for number in range(101)],
    "a file": ['{"path": "a.jpg"}', '{"path": "b.jpg"}'],
    "empty": ["{}", "{}"],
    "deep": ['{"a":' * 20 + "1" + "}" * 20, ""],
    "lists": ["[1, 2]", "[3]"],
}


@pytest.mark.parametrize("cells", NO_OBJECTS.values(), ids=NO_OBJECTS)
def test_texts_that_are_no_objects_stay_one_column(tmp_path, cells):
    path = tmp_path / "d.csv"
    pd.DataFrame({"o": cells, "n": range(len(cells))}).to_csv(path, index=False)
    assert read_cells(path).columns.tolist() == ["o", "n"]


def test_lines_that_repeat_the_header_are_skipped_and_said(tmp_path):
    frame, lines = said(write(tmp_path, "a,b\n1,2\na,b\n3,4\na,5\n"))
    assert frame["b"].tolist() == [2, 4, 5]
    assert lines == ["d.csv: skipped 1 line that repeats the header or is drawn"]
    assert said(write(tmp_path, "a\nb\na\n"))[0]["a"].tolist() == ["b", "a"], "a word in one column"


def test_zeros_that_excel_keeps_are_kept(tmp_path):
    frame, _ = said(write(tmp_path, 'zip,b\n"=""00501""",1\n"=""12345""",2\n'))
    assert frame["zip"].tolist() == ["00501", "12345"]


JSON = {
    "a list inside": {"count": 2, "rows": [{"a": 1, "b": {"c": "x"}}, {"a": 2, "b": {"c": "y"}}]},
    "columns": {"a": {"0": 1, "1": 2}, "b.c": {"0": "x", "1": "y"}},
    "lists": {"a": [1, 2], "b.c": ["x", "y"]},
    "split": {"columns": ["a", "b.c"], "index": [0, 1], "data": [[1, "x"], [2, "y"]]},
    "a header": [["a", "b.c"], [1, "x"], [2, "y"]],
}


@pytest.mark.parametrize("value", JSON.values(), ids=JSON)
def test_rows_inside_an_object_of_json_are_read(tmp_path, value):
    frame, _ = said(write(tmp_path, json.dumps(value), "d.json"))
    assert frame.to_dict("list") == {"a": [1, 2], "b.c": ["x", "y"]}
    lines = '{"a": 1, "b": {"c": "x"}}\n{"a": 2, "b": {"c": "y"}}\n'
    assert said(write(tmp_path, lines, "d.ndjson"))[0].to_dict("list") == frame.to_dict("list")


LAID_OUT = {
    "an array in place of lines": ("d.jsonl", '[{"town": "New York", "rent": 12},\n {"town": "Rome", "rent": 3}]'),
    "features of a map": (
        "d.geojson",
        '{"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": null, "properties": '
        '{"town": "New York", "rent": 12}}, {"properties": {"town": "Rome", "rent": 3}}]}',
    ),
    "blanks": ("d.dat", '"town" rent\n "New York"  12 \nRome 3\n'),
    "names of rows": ("d.csv", '"town","rent"\n"1","New York",12\n"2","Rome",3\n'),
    "blanks and names of rows": ("d.txt", '"town" "rent"\n"a" "New York" 12\n"b" "Rome" 3\n'),
    "aligned": ("d.txt", "town      rent\n--------  ----\nNew York  12\nRome      3\n"),
    "aligned to the right": ("d.txt", "       town  rent\n0  New York    12\n1      Rome     3\n"),
    "bars": ("d.psv", "town|rent\nNew York|12\nRome|3\n"),
}


@pytest.mark.parametrize("size", [None, 1])
@pytest.mark.parametrize(("name", "text"), LAID_OUT.values(), ids=LAID_OUT)
def test_however_rows_are_laid_out_their_cells_are_read(tmp_path, name, text, size):
    frame = pd.concat(table_pieces(write(tmp_path, text, name), size)).astype({"rent": int})
    assert frame["town"].tolist() == ["New York", "Rome"]
    assert frame["rent"].tolist() == [12, 3]


def test_aligned_words_are_columns_though_none_is_of_numbers(tmp_path):
    frame = read_table(write(tmp_path, "town  kind\nRome  flat\nBern  room\nOslo  flat\n", "d.txt"))
    assert frame["kind"].tolist() == ["flat", "room", "flat"]


WHOLE = ["name of it\nAnn B Smith\nBob A Jones\n", "a  text\nso it  is\nwell, yes\n", "x\n1 2\n3 4\n"]


@pytest.mark.parametrize("text", [*WHOLE, "a,b\n1,2,x\n1,3,y\n", "a,b\n1,2,\n2,3,\n"])
def test_blanks_within_texts_and_cells_beyond_the_header_make_no_columns(tmp_path, text):
    path = write(tmp_path, text, "d.txt")
    assert delimiter_of(path, "utf-8", ",") == ","
    assert not header_of(path, "utf-8", ",")[2]


@pytest.mark.parametrize("text", ["a\n1,2,3\n", "a,b\n1,2\n", "1\n2\n3\n"])
def test_a_header_is_no_line_before_it(tmp_path, text):
    assert header_of(write(tmp_path, text), "utf-8", ",")[:2] == (0, [])


@pytest.mark.parametrize(
    "text",
    ["a\nx;y\nz\n", 'a,b\n"x;y;z",1\nq,2\n', "note,b\nx|y,1\nz|w,2\n", "a\n1\n2\n", "a,b\n1,2,3;\n4,5,6;\n", "a"],
)
def test_commas_stay_commas(tmp_path, text):
    path = write(tmp_path, text)
    assert delimiter_of(path, "utf-8", ",") == ","


def test_long_lines_and_many_rows_are_sampled(tmp_path):
    rows = "".join(f"{i};{'long ' * 2000};{i / 2}\n".replace(".", ",") for i in range(200))
    frame, _ = said(write(tmp_path, "a;b;c\n" + rows))
    assert frame["c"].tolist() == [i / 2 for i in range(200)]


def zipped(**names):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in names.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return buffer.getvalue()


def parquet():
    buffer = io.BytesIO()
    GERMAN.to_parquet(buffer)
    return buffer.getvalue()


def feather():
    buffer = io.BytesIO()
    GERMAN.to_feather(buffer)
    return buffer.getvalue()


OTHER = {
    "gzip": (gzip.compress(b"a,b\n1,2\n"), "a gzip file; let its name end as in table.csv.gz"),
    "bzip2": (bz2.compress(b"a,b\n1,2\n"), "a bzip2 file; unpack it: bunzip2 d"),
    "xz": (lzma.compress(b"a,b\n1,2\n"), "an xz file; unpack it: unxz d"),
    "zip": (zipped(a_csv="a,b"), "a zip archive; let its name end in .zip"),
    "torn zip": (zipped(a_csv="a,b")[:40], "a zip archive; let its name end in .zip"),
    "excel": (zipped(xl__workbook_xml="<x/>"), "an Excel file; let its name end in .xlsx"),
    "open document": (zipped(content_xml="<x/>"), "a spreadsheet (OpenDocument); save it as CSV"),
    "old excel": (bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 100, "an Excel file of the old form; open it"),
    "feather": (feather(), "an Arrow or Feather file; let its name end in .feather"),
    "parquet": (parquet(), "a parquet file; let its name end in .parquet"),
    "sqlite": (b"SQLite format 3\0" + b"\0" * 100, "an SQLite database; let its name end in .sqlite"),
    "pickle": (pickle.dumps({"a": [1]}), "a pickle; it could run code and is never read"),
    "page": (b"\n<!DOCTYPE html><html>", "a web page; download the file itself"),
    "xml": (b"<?xml version='1.0'?><a/>", "an XML file; convert it"),
    "pdf": (b"%PDF-1.7", "a PDF file"),
    "image": (b"\x89PNG\r\n\x1a\n", "an image; name images in a column of a table"),
}


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet", ".gz", ""])
@pytest.mark.parametrize("case", OTHER)
def test_other_formats_are_named_with_a_way_to_convert_them(tmp_path, case, ending):
    content, sentence = OTHER[case]
    if (case, ending) in (("parquet", ".parquet"), ("gzip", ".gz")):
        return
    with pytest.raises(ValueError, match="expected a table, got " + re.escape(sentence)):
        read_table(write(tmp_path, content, f"d{ending}"))


@pytest.mark.parametrize("mark", [",", ";", "\t", "|", "~", "^"])
def test_texts_of_rows_are_read_as_csv(tmp_path, mark):
    text = "a,b\n1,x\n,\n2,y\n".replace(",", mark)
    assert read_table(write(tmp_path, text, "d.txt")).to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}


@pytest.mark.parametrize(
    ("ending", "advice"),
    [("ods", "pip install odfpy"), ("sav", "pip install pyreadstat"), ("dta", "pandas.read_stata")],
)
def test_files_of_other_programs_are_refused_with_what_reads_them(tmp_path, ending, advice):
    with pytest.raises(ValueError, match=rf"got '\.{ending}'; .*{advice}"):
        read_table(write(tmp_path, "x", f"d.{ending}"))


@pytest.mark.parametrize("start", ["PAR1", "ORC", "ARROW1", "BZh91", "7z", "Obj", "%PDF", "PK", "<b", "SQLite format"])
def test_a_text_that_begins_like_another_format_is_read(tmp_path, start):
    assert read_table(write(tmp_path, f"{start},b\n1,2\n")).columns[0] == start


def test_addresses_and_files_that_are_none(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path, sentence in (
        (
            "https://example.org/d.csv",
            r"^data: expected a file .*, got 'https://example\.org/d\.csv'; download it first$",
        ),
        ("s3://bucket/d.parquet", r"got 's3://bucket/d\.parquet'"),
        (tmp_path / "pipe.csv", r"pipe\.csv: expected a file, got no plain file$"),
        (tmp_path / ("y" * 999), r"expected a file, got none: File name too long$"),
    ):
        with pytest.raises(ValueError, match=sentence):
            read_table(path)


@given(cell=st.text(alphabet=st.one_of(st.sampled_from("'=+-@\t\r\n 1,.e"), st.characters(codec="utf-8")), max_size=9))
def test_every_text_comes_back_from_its_escaped_form(cell):
    marked = escape_formula(cell)
    assert unescape_formula(marked) == cell
    bare = marked.lstrip()
    assert bare[:1] not in tuple("=@") or marked[:1] == "'"
    if bare[:1] in ("+", "-"):
        assert re.fullmatch(r"[\d.,eE+\-\s]+", marked)
    assert marked[:1] not in tuple("\t\r\n") or re.fullmatch(r"[\d.,eE+\-\s]+", marked)


CELLS = [
    "=cmd|' /C calc'!A1",
    "+49 30",
    "-x",
    "@a",
    "'=1",
    "''-2",
    "-5",
    "+5e3",
    "'tis",
    "=",
    "\uff1dx",
    " =x",
    "a=b",
    "\r=x",
]


@pytest.mark.parametrize("name", ["d.csv", "d.tsv", "d.parquet", "d.jsonl"])
def test_tables_come_back_as_they_were_written(tmp_path, name):
    table = pd.DataFrame({"=id": [*CELLS, "plain"], "n": np.arange(len(CELLS) + 1) - 3.5})
    write_table(table, tmp_path / name)
    found = read_table(tmp_path / name).reset_index(drop=True)
    pd.testing.assert_frame_equal(found, table, check_column_type=False, check_dtype=False)
    if name.endswith("sv"):
        text = (tmp_path / name).read_bytes().decode()
        assert "=cmd" not in text.replace("'=cmd", "")
        write_table(table, tmp_path / name, escape=False)
        assert "'=cmd" not in (tmp_path / name).read_bytes().decode()


BAD = {
    "empty": ("d.csv", "", r"^d\.csv: expected a header and rows, got an empty file$"),
    "ragged": ("d.csv", "a,b\n1,2\n1,2,3\n", r"^d\.csv: expected as many cells .*line 3, saw 3$"),
    "all rows too long": ("d.csv", "a,b\n1,2,3\n4,5,6\n", r"^d\.csv: expected as many cells"),
    "open quote": ("d.csv", 'a,b\n1,"2\n3,4\n', r'^d\.csv: expected a closing " for .* in row 2, counted'),
    "NUL bytes": ("d.csv", b"a,b\n1,x\0y\n", r"^d\.csv: expected text, got NUL bytes in line 2; the file is damaged"),
    "cut in a letter": (
        "d.csv",
        "a\nM\u00fcller\nM\u00fc".encode()[:-1],
        r"^d\.csv: expected text in UTF-8, got line 2 in it and line 3 not; the file is cut short",
    ),
    "two encodings": (
        "d.jsonl",
        '{"a": "\u00fc"}\n'.encode() + '{"a": "\u00fc"}\n'.encode("cp1252"),
        r"^d\.jsonl: expected text in UTF-8, got line 1 in it and line 2 not",
    ),
    "cells without a name": ("d.json", '[["a", "b"], [1, 2], [1, 2, 3]]', r"^d\.json: .* got row 2 that is no list of"),
    "a split row too long": (
        "d.json",
        '{"columns": ["a"], "data": [[1], [1, 2]]}',
        r"^d\.json: .* got row 2 that is no",
    ),
    "a name twice": ("d.json", '[["a", "a"], [1, 2]]', r"^d\.json: .* got a name of two columns: 'a'$"),
    "nested json": ("d.jsonl", '{"a": 1}\n{"a": ' + "[" * 9999, r"^d\.jsonl: .* nested more than 16 deep in line 2"),
    "nested and whole": (
        "d.jsonl",
        '{"a": ' + "[" * 40 + "]" * 40 + "}",
        r"^d\.jsonl: .* nested more than 16 deep in line 1; make its parts columns",
    ),
    "half a character": ("d.jsonl", r'{"a": "\ud800"}', r"^d\.jsonl: .*half of a character .* in line 1"),
    "a long whole number": (
        "d.jsonl",
        '{"a": ' + "9" * 5000 + "}",
        r"^d\.jsonl: .*that cannot be read in line 1: Exceeds",
    ),
    "lists in lines": ("d.jsonl", "[1, 2]\n[3, 4]", r"^d\.jsonl: expected an array of JSON objects, got none: Extra"),
    "torn parquet": ("d.parquet", b"PAR1 and no more", r"^d\.parquet: expected a parquet file, got none; if it is"),
    "text as a workbook": ("d.xlsx", b"a,b\n1,2\n", r"^d\.xlsx: expected an Excel file, got none; .* end in \.csv$"),
    "random bytes": ("d.csv", bytes(range(1, 256)) * 9, r"^d\.csv: expected text, got other data; export the table"),
    "json as csv": ("d.csv", b'[{"a": 1}]', r"^d\.csv: .*got a JSON array; let its name end in \.json$"),
    "lines of json as csv": ("d.csv", b'{"a": 1}\n', r"^d\.csv: .*got JSON objects; let its name end in \.jsonl$"),
    "a page's table": ("d.csv", b"<table><tr><td>1", r"^d\.csv: .*got a web page; download the file itself"),
    "torn json": ("d.jsonl", '{"a": 1}\n{"a": ', r"^d\.jsonl: expected a JSON object in each line, got none in line 2"),
    "json list": ("d.jsonl", "[1]\n", r"^d\.jsonl: expected an array of JSON objects, got a int in row 1$"),
    "empty json": ("d.jsonl", "\n", r"^d\.jsonl: .*got an empty file$"),
    "ending": (
        "d.ods",
        "a",
        r"^d\.ods: expected a file that ends in \.csv, \.tsv, \.txt, .*\.json, .*, got '\.ods'; save it as CSV",
    ),
    "no ending": ("d", "a", r"got 'no ending'$"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file_gets_one_sentence(tmp_path, case):
    name, content, sentence = BAD[case]
    with pytest.raises(ValueError, match=sentence) as caught:
        read_table(write(tmp_path, content, name))
    assert "\n" not in str(caught.value)


def test_missing_file_suggests_the_nearest(tmp_path):
    write(tmp_path, "a\n1\n", "houses.csv")
    with pytest.raises(ValueError, match=r"house\.csv: expected a file, got none; did you mean 'houses\.csv'\?$"):
        read_table(tmp_path / "house.csv")
    with pytest.raises(ValueError, match="expected a file, got a folder"):
        read_table(tmp_path)


def test_the_second_column_of_a_name_has_its_number(tmp_path):
    frame, lines = said(write(tmp_path, "a,b, a,a\n1,2,3,4\n"))
    assert frame.columns.tolist() == ["a", "b", "a (2)", "a (3)"]
    assert frame.iloc[0].tolist() == [1, 2, 3, 4]
    assert lines == ["d.csv: several columns have one name; read as 'a (2)', 'a (3)', too"]
    with pytest.raises(ValueError, match=r"^d\.csv: expected columns of different names, got 'a' twice; rename one$"):
        read_table(write(tmp_path, "a," * 600 + "\n"))
    frame.set_axis(["a", "b", "c", "a "], axis="columns").to_parquet(tmp_path / "d.parquet")
    with pytest.raises(
        ValueError, match=r"^d\.parquet: expected columns of different names, got 'a' twice; rename one$"
    ):
        read_table(tmp_path / "d.parquet")


MEASURED = "".join(f"{'NS'[n % 2]}{n},{n},x,{n}.5\n" for n in range(10, 22))


@pytest.mark.parametrize("size", [None, 11, 2])
def test_totals_units_and_notes_are_no_rows(tmp_path, size):
    """They are left out and named, however many rows are read at once; what is written as rows are stays."""
    text = f'Place,Batch,,Note\n,pH,Temp,\n,°C,,\n{MEASURED}N Total,99,,\nS30,7,x,\nSumme,999,,9\n"Source: us",,,\n'
    path = write(tmp_path, text.replace("Note\n,pH,Temp,", "Batch C\n,pH,Temp,pH"))
    lines = []
    frame = pd.concat(table_pieces(path, size, log=lines.append))
    assert frame.columns.tolist() == ["Place", "Batch pH", "Batch Temp", "Batch C pH"]
    if size != 2:  # too few rows to tell what is usual
        assert frame["Place"].tolist() == [*(f"{'NS'[n % 2]}{n}" for n in range(10, 22)), "S30"]
        left_out = lines[-1 if size is None else 1 :]
        assert "'Summe'" in left_out[-1]
    assert len(read_table(write(tmp_path, "Place,a,b\n" + "x,1,2\n" * 9 + "Summe,3,\n"))) == 10, "few rows tell nothing"
    numbers = "".join(f"{n},a,x,y\n" for n in range(10, 22))
    for last in (",186,,", ",187,,", "-7.5,,,"):
        rows = len(read_table(write(tmp_path, "n,b,c,d\n" + numbers.replace("a", "15.5") + last + "\n")))
        assert rows == 13 - (last == ",186,,"), "a row with gaps is one, unless its number is the sum"
    sizes = "".join(f"{n},{'ab'[n % 2]},{n}.5\n" for n in range(10, 22))
    frame = read_table(write(tmp_path, f"size,town,price\nm2,,USD\n{sizes}\nSource: city office,,\nTotal,,192\n"))
    assert frame["size"].tolist() == [*range(10, 22)]
    assert len(read_table(write(tmp_path, f"size,town,price\nunknown,a,7\n{sizes}"))) == 13, "a name is no unit"


def test_a_zip_archive_with_a_password_says_what_to_do(tmp_path):
    content = bytearray(zipped(t_csv="a,b\n1,2\n"))
    for start, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.find(start) + place] |= 1  # said to be encrypted
    (tmp_path / "d.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"^d\.zip: .* password required .*; unpack it yourself$"):
        read_table(tmp_path / "d.zip")


def test_units_stand_in_the_first_row_of_a_file_not_of_a_piece(tmp_path):
    lines = [f"{n},a,{n}.5\n" for n in range(10, 34)]
    lines[12] = "unknown,,\n"
    path = write(tmp_path, "size,town,price\n" + "".join(lines))
    assert len(pd.concat(table_pieces(path, 12))) == len(read_table(path)) == 24


ARCHIVES = {
    "one table": ({"__MACOSX/._t.csv": "", "in/t.csv": "a;b\n1;2\n", "LICENSE.txt": "x"}, "", None),
    "a named one": ({"t.csv": "a,b\n3,4\n", "u.tsv": "a\tb\n1\t2\n"}, "#u.tsv", None),
    "two": (
        {"t.csv": "a\n1\n", "u.csv": "a\n1\n"},
        "",
        "expected one table inside, got 't.csv', 'u.csv'; name one as d.zip#NAME",
    ),
    "none of that name": ({"t.csv": "a\n1\n"}, "#v.csv", "expected a table 'v.csv' inside, got 't.csv'"),
    "no table": ({"x.txt": "a"}, "", "expected one table inside, got none; one ends in .csv"),
    "a bomb": ({"t.csv": "a\n" + "0" * (1 << 20)}, "", "that unpacks to at most"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_a_zip_archive_is_the_table_inside(tmp_path, case, monkeypatch):
    files, part, wrong = ARCHIVES[case]
    monkeypatch.setattr("vicinal.data.sources.most_unpacked", lambda size: 1 << 19)
    with zipfile.ZipFile(tmp_path / "d.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    if wrong is None:
        assert read_table(f"{tmp_path / 'd.zip'}{part}").to_numpy().tolist() == [[1, 2]]
    else:
        with pytest.raises(ValueError, match=f"^d.zip: .*{wrong}"):
            read_table(f"{tmp_path / 'd.zip'}{part}")


def test_a_film_called_total_recall_is_a_row_though_one_cell_of_it_is_unknown(tmp_path):
    films = "".join(f"Film {n},{n},a,b,c,d\n" for n in "abcdefghijkl")
    text = f"title,by,k,l,m,n\n{films}Total Recall,x,,b,c,d\nMean Girls,,a,b,c,d\nGrand Total:,,a,b,c,d\n"
    assert read_table(write(tmp_path, text))["title"].tolist()[12:] == ["Total Recall", "Mean Girls"]


def test_lists_of_objects_are_columns_of_lists(tmp_path):
    rows = [{"n": 1, "of": [{"sku": "tea", "qty": 2}, {"sku": "mug"}]}, {"n": 2, "of": []}]
    frame = read_table(write(tmp_path, json.dumps(rows), "d.json"))
    assert frame.columns.tolist() == ["n", "of.sku", "of.qty"]
    assert frame.loc[1, ["of.sku", "of.qty"]].tolist() == [["tea", "mug"], [2, None]]
    pd.DataFrame({"at": [{"x": 1, "y": {"z": "a"}}, None], "of": [[{"k": 1}, {"k": 2}], []]}).to_parquet(
        tmp_path / "d.parquet"
    )
    frame = read_table(tmp_path / "d.parquet")
    assert frame.columns.tolist() == ["at.x", "at.y.z", "of.k"]
    assert frame.loc[1].tolist() == [1, "a", [1, 2]]


def test_what_a_torn_parquet_file_gives_is_told_in_signs_that_print(tmp_path, monkeypatch):
    def torn(*_):
        raise OSError("don't know what type: \x0e\nof \x1b[31m" + "x" * 500)

    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "d.parquet")
    monkeypatch.setattr("pyarrow.parquet.read_metadata", torn)
    with pytest.raises(ValueError, match=r"^d\.parquet: expected a whole parquet file, got: don't know") as wrong:
        read_table(tmp_path / "d.parquet")
    assert str(wrong.value).isprintable()
    assert len(str(wrong.value)) < 300


def test_marks_at_the_end_of_some_lines_are_no_cells(tmp_path):
    rows = [f"{row},{row + 1},{row + 2}" for row in range(20)]
    plain, ends, more = (tmp_path / name for name in ("plain.csv", "ends.csv", "more.csv"))
    plain.write_text("\n".join(["a,b,c", *rows]))
    ends.write_text("\n".join(["a,b,c", *(line + ",, " * (place % 3 == 1) for place, line in enumerate(rows))]))
    pd.testing.assert_frame_equal(read_table(ends), read_table(plain))
    pieces = list(table_pieces(ends, 4))
    assert [len(piece) for piece in pieces[:2]] == [4, 4]
    assert pd.concat(pieces)["a"].tolist() == [str(row) for row in range(20)]
    more.write_text("\n".join(["a,b,c", *rows[:9], "9,10,11,,x", *rows[10:]]))
    with pytest.raises(ValueError, match=r"^more\.csv: expected as many cells .* line 11, saw 5"):
        read_table(more)


def test_columns_without_name_and_cells_are_none(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("|a|b||\n|1|x||\n|2|y||\n")
    assert list(read_table(path).columns) == ["a", "b"]
    path.write_text(",a,b,\n0,1,2,\n1,2,3,\n")
    assert list(read_table(path).columns) == ["Unnamed: 0", "a", "b"]


def test_a_quote_that_swallows_lines_is_refused(tmp_path):
    path = tmp_path / "open.csv"
    rows = [f'{row},"two\nlines","{row} x" y' for row in range(20)]  # text after a closing quote is read as before
    path.write_text("\n".join(["a,b,c", *rows]) + "\n")
    assert len(read_table(path)) == 20
    path.write_text("\n".join(["a,b,c", *rows[:9], '9,"two\nlines","9', *rows[10:]]) + "\n")
    with pytest.raises(ValueError, match=r"got none in the row of line 20 before the next opening one in line 22"):
        read_table(path)


def test_a_cell_of_many_quoted_lines_is_read_however_long(tmp_path):
    long = "\n".join(f'"line" {row}, of a long text' for row in range(6000))
    assert len(long) > csv.field_size_limit()
    table = pd.DataFrame({"note": [long, "short"], "n": [1, 2]})
    table.to_csv(tmp_path / "t.csv", index=False)
    assert read_table(tmp_path / "t.csv")["note"].tolist() == [long, "short"]


ROWS = "".join(f"{n:02}.03.24;{'ab'[n % 2]};1.{n:03},50;{n},25\n" for n in range(1, 15))


def test_lines_above_the_header_with_marks_and_a_balance_below_are_no_rows(tmp_path):
    text = "Konto:;DE12\nZeitraum:;2024\n\nTag;Art;Betrag;Saldo\n" + ROWS + "\nKontostand:;;;9,25\n"
    frame, lines = said(write(tmp_path, text))
    assert frame.columns.tolist() == ["Tag", "Art", "Betrag", "Saldo"]
    assert (len(frame), frame["Betrag"].iloc[0], frame["Saldo"].iloc[-1]) == (14, 1001.5, 14.25)
    assert any("'Kontostand:'" in line for line in lines)


DRAWN = {
    "between bars": ("-----\n| a | b | c |\n-----\n", "| {} | x | {},5 |", "-----\n"),
    "by MySQL": ("+---+---+---+\n| a | b | c |\n+---+---+---+\n", "| {} | x | {},5 |", "+---+---+---+\n"),
    "by PostgreSQL": (" a | b | c\n---+---+---\n", " {} | x | {},5", ""),
}


@pytest.mark.parametrize(("above", "row", "below"), DRAWN.values(), ids=DRAWN)
def test_lines_that_are_drawn_are_no_rows(tmp_path, above, row, below):
    frame, _ = said(write(tmp_path, above + "".join(f"{row.format(n, n)}\n" for n in range(12)) + below))
    assert frame["c"].tolist() == [n + 0.5 for n in range(12)]


def test_subtotals_amid_rows_and_a_second_header_again_are_no_rows(tmp_path):
    head = "Place,2022,,2023\n,Units,Price,Units\n"
    part = "".join(f"{'NS'[n % 2]},{n},{n + 5},{n + 9}\n" for n in range(6))
    text = head + (part + "Subtotal,15,45,69\n" + head) * 2 + part + "Total,45,135,207\n"
    frame, lines = said(write(tmp_path, text))
    assert (len(frame), frame["2022 Price"].max(), set(frame["Place"])) == (18, 10, {"N", "S"})
    assert any("'Subtotal', 'Subtotal', 'Total'" in line for line in lines)
    named = frame.assign(Place=["Total" if n == 9 else "N" for n in range(18)])
    assert len(said(write(tmp_path, named.to_csv(index=False)))[0]) == 18, "a name that is no sum"


def test_questions_and_their_ids_below_the_header_are_no_rows(tmp_path):
    ids = ",".join(f'"{{""ImportId"":""QID{n}""}}"' for n in range(3))
    rows = "".join(f"R_{n},{n},{n}\n" for n in range(12))
    frame, lines = said(write(tmp_path, f"ResponseId,Q1,Q2\nResponse ID,How much? - A,Rating\n{ids}\n{rows}"))
    assert frame["Q2"].tolist() == list(range(12))
    assert any("2 rows of totals, units or notes" in line for line in lines)
