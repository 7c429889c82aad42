"""Tables with faults in them, seeded: of files, of cells, of targets, ids and groups."""

import gzip
import io
import os
import zipfile
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

ROWS = 40
RESULT, ERROR = (0,), (2,)
EITHER = (0, 2)


@dataclass
class BadTable:
    """A table on its way to a file.

    Attributes:
        frame: the rows.
        name: of the file.
        separator: between cells of csv.
        encoding: of csv and jsonl.
        edits: what is done to the bytes of the file, in order; a function of the bytes.
        place: what is done instead of writing a file; a function of its path.
        options: more options of ``fit``.
    """

    frame: pd.DataFrame
    name: str = "rows.csv"
    separator: str = ","
    encoding: str = "utf-8"
    edits: list = field(default_factory=list)
    place: object = None
    options: list = field(default_factory=lambda: ["--id", "house", "--group", "street", "--target", "price"])

    def write(self, folder):
        """Write the table into ``folder``; return its path."""
        path = folder / self.name
        if self.place is not None:
            self.place(path)
            return path
        data = self._encoded()
        for edit in self.edits:
            data = edit(data)
        path.write_bytes(data)
        return path

    def _encoded(self):
        if self.name.lower().endswith(".parquet"):
            file = io.BytesIO()
            rows = self.frame if isinstance(self.frame, pa.Table) else pa.Table.from_pandas(as_arrow(self.frame))
            pyarrow.parquet.write_table(rows, file)
            return file.getvalue()
        if self.name.lower().endswith(".jsonl"):
            return self.frame.to_json(orient="records", lines=True, force_ascii=False).encode(self.encoding, "replace")
        text = self.frame.to_csv(index=False, sep=self.separator, lineterminator="\n")
        return text.encode(self.encoding, "surrogatepass" if self.encoding == "utf-8" else "replace")


def as_arrow(frame):
    """``frame`` with columns of one type each, as parquet has them."""
    made = frame.copy()
    for place, column in enumerate(frame.dtypes):
        if pd.api.types.is_object_dtype(column):
            cells = frame.iloc[:, place]
            made.isetitem(place, cells.map(str).where(cells.notna(), None))
    return made


def good(rng, rows=ROWS):
    """A table of numbers, a category, a text, a truth and days, with ids, groups, a price and a class."""
    size = rng.uniform(10, 90, rows).round(1)
    mood = rng.choice(["good", "bad", "fair"], rows)
    return pd.DataFrame(
        {
            "house": [f"h{i}" for i in range(rows)],
            "street": [f"s{i // 3}" for i in range(rows)],
            "size": size,
            "rooms": rng.integers(1, 7, rows),
            "town": rng.choice(["Malmö", "York", "Bath"], rows),
            "note": [f"a {m} house of the {c} kind" for m, c in zip(mood, rng.choice(list("xyz"), rows), strict=True)],
            "garden": rng.random(rows) < 0.5,
            "price": (size * 2 + 20 * (mood == "good") + rng.normal(0, 2, rows)).round(2),
            "mood": mood,
        }
    )


FAULTS = {}
"""Faults by name: the function that brings one into a table, the exit codes of ``fit`` that are right after it alone,
and whether it is one of the file, which ``predict`` and ``evaluate`` meet as well."""


def fault(codes=EITHER, *, file=False):
    def registered(function):
        FAULTS[function.__name__] = (function, codes, file)
        return function

    return registered


def bad_table(seed):
    """A table with a fault, each in its turn; from the third turn on with another one.

    Returns:
        the table, the names of the faults, and the seed's generator for more choices.
    """
    rng = np.random.default_rng(seed)
    table, names, chosen = BadTable(good(rng)), list(FAULTS), chosen_faults(seed)
    for name in sorted(set(chosen), key=names.index):
        FAULTS[name][0](rng, table)
    return table, chosen, rng


def chosen_faults(seed):
    """Names of the faults of a case."""
    names = list(FAULTS)
    chosen = [names[seed % len(names)]]
    if seed >= 2 * len(names):
        chosen.append(names[np.random.default_rng([seed, 1]).integers(len(names))])
    return chosen


def pick(rng, choices):
    """One of some values, as it is: numpy's own choice makes its types of them."""
    return choices[int(rng.integers(len(choices)))]


def cell(table, rng, column, value):
    """Put a value into one cell."""
    if column in table.frame.columns and len(table.frame):
        place = list(table.frame.columns).index(column)
        cells = table.frame.iloc[:, place].astype(object).copy()
        cells.iloc[int(rng.integers(len(cells)))] = value
        table.frame.isetitem(place, cells)


def aim(table, target, *more):
    """Predict another column; two targets would be predicted together."""
    place = table.options.index("--target") + 1
    table.options[place : place + 1] = [target, *more]


def number_column(table, rng):
    return str(rng.choice(["size", "rooms"]))


# Cells of features.


@fault()
def infinite_feature(rng, table):
    cell(table, rng, number_column(table, rng), pick(rng, ["inf", "-Infinity", "1e999"]))


@fault()
def huge_feature(rng, table):
    cell(table, rng, number_column(table, rng), pick(rng, ["1e308", "-1.7e308", "3e38", "9" * 19, "9" * 400]))


@fault(RESULT)
def tiny_feature(rng, table):
    table.frame["size"] = rng.normal(size=len(table.frame)) * 1e-320


@fault(RESULT)
def word_among_numbers(rng, table):
    cell(table, rng, number_column(table, rng), pick(rng, ["unknown", "12 m²", "1.234,5", "1+2j", "0x1f", "½", "٣"]))


@fault(RESULT)
def empty_column(rng, table):
    table.frame[number_column(table, rng)] = pick(rng, ["", "  ", "NA", "nan", "-", "?"])


@fault(RESULT)
def constant_column(rng, table):
    table.frame[number_column(table, rng)] = pick(rng, ["0", "1e5", "always"])


@fault()
def mostly_empty_column(rng, table):
    column = table.frame["size"].astype(object)
    column.iloc[: int(rng.integers(ROWS - 4, ROWS))] = None
    table.frame["size"] = column


@fault(RESULT)
def formula(rng, table):
    cell(table, rng, pick(rng, ["town", "note"]), pick(rng, ["=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-x", "'=1"]))


@fault(RESULT)
def markup(rng, table):
    cell(table, rng, "note", pick(rng, ["<script>alert(1)</script>", "[a](javascript:b)", "|a|", "```", "[bold]x[/b"]))


@fault()
def control_characters(rng, table):
    cell(table, rng, "town", "a" + chr(int(rng.integers(1, 32))) + "b" + chr(int(rng.integers(127, 160))))


@fault(RESULT)
def line_breaks_in_cells(rng, table):
    cell(table, rng, "note", pick(rng, ["a\nb", "a\r\nb", '"a"\n"b"', ",\n,"]))


@fault(RESULT)
def strange_letters(rng, table):
    cell(table, rng, "town", pick(rng, ["👩‍👩‍👧", "\u202egnihton", "e\u0301" * 50, "\ufeff", "\u2028", "Ω"]))


@fault(RESULT)
def long_cell(rng, table):
    cell(table, rng, "note", "word " * int(rng.integers(1_000, 60_000)))


@fault()
def long_word_in_all_cells(rng, table):
    table.frame["town"] = table.frame["town"] + "x" * 20_000


@fault(RESULT)
def every_category_its_own(rng, table):
    table.frame["town"] = [f"t{number}" for number in rng.permutation(len(table.frame))]


@fault(RESULT)
def codes_and_long_numbers(rng, table):
    table.frame["rooms"] = [f"{pick(rng, ['00', '9' * 17])}{number}" for number in table.frame["rooms"]]


@fault(RESULT)
def thousands(rng, table):
    table.frame["size"] = [f"{rng.integers(1, 9)},{rng.integers(100, 999)}.5" for _ in range(len(table.frame))]


@fault()
def days(rng, table):
    some = pd.Timestamp("2021-03-04") + pd.to_timedelta(rng.integers(0, 999, len(table.frame)), unit="D")
    table.frame["rooms"] = some.strftime(pick(rng, ["%Y-%m-%d", "%d/%m/%Y", "%Y-%m-%dT%H:%M:%SZ"]))


@fault()
def far_days(rng, table):
    table.name = "rows.jsonl"
    cell(table, rng, "rooms", pick(rng, ["0001-01-01", "9999-12-31", "2021-02-30"]))


# Columns.


@fault(file=True)
def two_columns_of_one_name(rng, table):
    table.frame = pd.concat([table.frame, table.frame[["size"]]], axis=1)


@fault()
def column_without_name(rng, table):
    table.frame = table.frame.rename(columns={"rooms": pick(rng, ["", " ", "nan", "Unnamed: 3"])})


@fault(RESULT)
def odd_name(rng, table):
    names = ["a\nb", "x" * 10_000, "=1+2", "<b>size</b>", "..", "0", "hidden", "values", "index", "a;b", 'a"b', "[x]"]
    table.frame = table.frame.rename(columns={"rooms": pick(rng, names)})


@fault(RESULT)
def many_columns(rng, table):
    wide = pd.DataFrame(rng.normal(size=(len(table.frame), 800)).round(2)).add_prefix("c")
    table.frame = pd.concat([table.frame, wide], axis=1)


@fault(ERROR)
def nothing_to_learn_from(rng, table):
    table.frame = table.frame[["house", "street", "price", "mood"][: pick(rng, [3, 3, 4])]]
    table.frame = table.frame.drop(columns="mood", errors="ignore")


@fault()
def wrong_kind(rng, table):
    kind = pick(rng, ["number", "image", "audio", "vector", "text", "category"])
    table.options += [f"--{kind}", pick(rng, ["town", "size", "note", "garden", "rooms"])]


@fault(ERROR)
def unknown_column_asked_for(rng, table):
    table.options += [
        pick(rng, ["--drop", "--use", "--text"]),
        pick(rng, ["sise", "", "x" * 5_000, "цена"]),
    ]


# Targets.


@fault(ERROR)
def constant_target(rng, table):
    table.frame["price"] = pick(rng, [3.5, 0.0, 1e300])


@fault(ERROR)
def empty_target(rng, table):
    column = table.frame["price"].astype(object)
    column.iloc[: pick(rng, [len(column), len(column) - 9])] = None
    table.frame["price"] = column


@fault(RESULT)
def infinite_target(rng, table):
    cell(table, rng, "price", pick(rng, ["inf", "-inf", "1e999"]))


@fault(RESULT)
def word_in_target(rng, table):
    cell(table, rng, "price", pick(rng, ["unknown", "n/a", "-", "1.2.3", "12 EUR", "long " * 5_000]))


@fault()
def huge_target(rng, table):
    cell(table, rng, "price", pick(rng, ["1e300", "-1e308", "1e39"]))


@fault()
def tiny_target(rng, table):
    table.frame["price"] = rng.normal(size=len(table.frame)) * pick(rng, [1e-300, 1e-322])


@fault()
def outlying_target(rng, table):
    cell(table, rng, "price", 1e12)


@fault(ERROR)
def days_as_target(rng, table):
    start = pd.Timestamp("2021-03-04")
    table.frame["price"] = [str((start + pd.Timedelta(days=i)).date()) for i in range(len(table.frame))]


@fault(RESULT)
def classes(rng, table):
    aim(table, "mood")


@fault()
def rare_class(rng, table):
    aim(table, "mood")
    cell(table, rng, "mood", "once")


@fault(ERROR)
def every_class_once(rng, table):
    aim(table, "note", "--task", "classification")
    table.frame["note"] = [f"note {i}" for i in range(len(table.frame))]


@fault()
def wrong_task(rng, table):
    table.options += ["--task", pick(rng, ["classification", "regression", "clustering"])]


@fault(ERROR)
def unknown_target(rng, table):
    aim(table, pick(rng, ["prise", "", "x" * 5_000, "price ", "\n"]))


@fault(ERROR)
def few_rows(rng, table):
    table.frame = table.frame.iloc[: int(rng.integers(0, 10))]


@fault()
def ten_rows(rng, table):
    table.frame = table.frame.iloc[: int(rng.integers(10, 14))]


@fault()
def copied_rows(rng, table):
    rows = rng.integers(0, max(len(table.frame), 1), len(table.frame))
    copies = table.frame.iloc[rows].reset_index(drop=True)
    table.frame = copies.assign(house=[f"h{i}" for i in range(len(copies))])


@fault()
def copy_of_the_target(rng, table):
    if pd.api.types.is_numeric_dtype(table.frame["price"].dtype):
        table.frame["euros"] = (table.frame["price"] * 1.1).round()


# Ids and groups.


@fault(ERROR)
def id_twice(rng, table):
    cells = table.frame["house"].astype(object).copy()
    cells.iloc[-1] = cells.iloc[0] if len(cells) > 1 else None
    table.frame["house"] = cells


@fault(ERROR)
def one_id_in_two_types(rng, table):
    table.name = "rows.jsonl"
    cells = [int(i) for i in range(len(table.frame))]
    if len(cells) > 1:
        cells[-1] = pick(rng, ["1", "1.0"])
    table.frame["house"] = pd.Series(cells, dtype=object, index=table.frame.index)
    if len(cells) <= 1:
        table.frame = table.frame.drop(columns="house")


@fault(ERROR)
def no_id(rng, table):
    cell(table, rng, "house", pick(rng, ["", " "]))


@fault(ERROR)
def one_group(rng, table):
    table.frame["street"] = "Main Street"


@fault(ERROR)
def no_group(rng, table):
    cell(table, rng, "street", "")


@fault(RESULT)
def every_group_its_own(rng, table):
    table.frame["street"] = table.frame["house"]


@fault(ERROR)
def target_as_id_or_group(rng, table):
    table.options += [pick(rng, ["--id", "--group"]), "price"]


@fault(RESULT)
def long_ids(rng, table):
    table.frame["house"] = table.frame["house"].astype(str) + "=" * 5_000


# Files of text.


@fault(RESULT, file=True)
def other_delimiter(rng, table):
    table.separator = pick(rng, [";", "\t", "|"])


@fault(RESULT, file=True)
def other_encoding(rng, table):
    table.encoding = pick(rng, ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8-sig", "utf-32"])


@fault(file=True)
def far_encoding(rng, table):
    table.frame["town"] = rng.choice(["東京都", "大阪市", "京都府"], len(table.frame))
    table.encoding = pick(rng, ["shift-jis", "euc-jp", "gb18030", "iso-2022-jp", "utf-7"])


@fault(ERROR, file=True)
def two_encodings(rng, table):
    table.edits.append(lambda data: data + "h900,s900,1,1,Malmö,x,True,3,bad\n".encode("latin-1"))


@fault(file=True)
def old_line_ends(rng, table):
    table.edits.append(lambda data: data.replace(b"\n", b"\r"))


@fault(RESULT, file=True)
def carriage_returns(rng, table):
    table.edits.append(lambda data: data.replace(b"\n", b"\r\n"))


@fault(file=True)
def mark_in_the_middle(rng, table):
    table.edits.append(lambda data: data[:100] + b"\xef\xbb\xbf" + data[100:])


@fault(ERROR, file=True)
def empty_file(rng, table):
    table.edits.append(lambda data: b"" if data[:1] < b"i" else b"\n \n")


@fault(ERROR, file=True)
def header_alone(rng, table):
    table.edits.append(lambda data: data[: data.find(b"\n") + 1])


@fault(ERROR, file=True)
def zeros(rng, table):
    at = int(rng.integers(50, 400))
    table.edits.append(lambda data: data[:at] + b"\0" * 40 + data[at:])


@fault(ERROR, file=True)
def noise(rng, table):
    made = rng.bytes(5_000)
    table.edits.append(lambda data: made)


@fault(file=True)
def cut_short(rng, table):
    share = rng.uniform(0.05, 0.95)
    table.edits.append(lambda data: data[: int(len(data) * share)])


@fault(file=True)
def flipped_bits(rng, table):
    places, bits = rng.random(20), rng.integers(0, 8, 20)

    def flipped(data):
        made = bytearray(data)
        for place, bit in zip(places, bits, strict=True):
            if made:
                made[int(place * len(made))] ^= 1 << int(bit)
        return bytes(made)

    table.edits.append(flipped)


@fault(file=True)
def shuffled_pieces(rng, table):
    order = rng.permutation(8)
    table.edits.append(lambda data: b"".join(data[len(data) * i // 8 : len(data) * (i + 1) // 8] for i in order))


@fault(ERROR, file=True)
def more_cells_than_the_header(rng, table):
    table.edits.append(lambda data: data + b"h900,s900,1,1,York,x,True,3,bad,4,5,6\n")


@fault(file=True)
def fewer_cells_than_the_header(rng, table):
    table.edits.append(lambda data: data + b"h900,s900\n")


@fault(file=True)
def open_quote(rng, table):
    at = rng.uniform(0.1, 0.9)
    table.edits.append(lambda data: data[: int(len(data) * at)] + b'"' + data[int(len(data) * at) :])


@fault(RESULT, file=True)
def blank_lines(rng, table):
    table.edits.append(lambda data: data.replace(b"\n", b"\n\n"))


@fault(file=True)
def remarks_above(rng, table):
    table.edits.append(lambda data: b"# exported by a program\n\n" + data)


@fault(file=True)
def header_twice(rng, table):
    table.edits.append(lambda data: data[: data.find(b"\n") + 1] + data)


@fault(file=True)
def no_header(rng, table):
    table.edits.append(lambda data: data[data.find(b"\n") + 1 :])


@fault(file=True)
def one_endless_line(rng, table):
    table.edits.append(lambda data: data.replace(b"\n", b" ") * 200)


# Files of JSON lines.


@fault(RESULT, file=True)
def json_lines(rng, table):
    table.name = "rows.jsonl"


def broken_line(line):
    """A fault: a file of JSON lines with one more line."""

    def broken(rng, table):
        table.name = "rows.jsonl"
        table.edits.append(lambda data: data + line + b"\n")

    return broken


for _name, _codes, _line in (
    ("deep_json", ERROR, b'{"size": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ("nested_json", ERROR, b'{"size": ' + b'{"a": ' * 60 + b"1" + b"}" * 60 + b"}"),
    ("json_array", ERROR, b"[1, 2]"),
    ("json_scalar", ERROR, b"17"),
    ("json_cut", ERROR, b'{"size": 3, "ro'),
    ("json_surrogate", ERROR, b'{"house": "h900", "street": "s900", "town": "\\ud800", "price": 3}'),
    ("json_digits", ERROR, b'{"house": "h900", "street": "s900", "size": ' + b"9" * 6_000 + b', "price": 3}'),
    ("json_large", EITHER, b'{"house": "h900", "street": "s900", "size": ' + b"9" * 400 + b', "price": 3}'),
    ("json_not_finite", EITHER, b'{"house": "h900", "street": "s900", "size": Infinity, "price": NaN}'),
    ("json_lists", EITHER, b'{"house": "h900", "street": "s900", "size": [1, 2], "price": 3}'),
    ("json_objects", EITHER, b'{"house": "h900", "street": "s900", "town": {"a": 1}, "price": 3}'),
    ("json_mixed", EITHER, b'{"house": 900, "street": null, "size": "x", "town": 3, "garden": "no", "price": 3}'),
    ("json_other_keys", EITHER, b'{"house": "h900", "street": "s900", "price": 3, "' + b"k" * 3_000 + b'": 1}'),
    ("json_target", EITHER, b'{"house": "h900", "street": "s900", "price": {"a": [1]}}'),
    ("json_empty_object", EITHER, b"{}"),
):
    FAULTS[_name] = (broken_line(_line), _codes, False)


@fault(RESULT, file=True)
def one_json_array(rng, table):
    table.name = "rows.jsonl"
    table.edits.append(lambda data: b"[" + data.replace(b"\n", b",\n").rstrip(b",\n") + b"]")


# Files of other formats.


@fault(RESULT, file=True)
def parquet(rng, table):
    table.name = "rows.parquet"


@fault(ERROR, file=True)
def torn_parquet(rng, table):
    table.name = "rows.parquet"
    share = rng.uniform(0.01, 0.99)
    table.edits.append(lambda data: data[: int(len(data) * share)])


@fault(file=True)
def edited_parquet(rng, table):
    table.name = "rows.parquet"
    flipped_bits(rng, table)


@fault(file=True)
def parquet_types(rng, table):
    rows = len(table.frame)
    columns = {
        "decimals": pa.array([None if i % 7 == 0 else i * 100 for i in range(rows)]).cast(pa.decimal128(25, 3)),
        "moments": pa.array(range(rows), pa.timestamp("ns", tz="Europe/Rome")),
        "hours": pa.array(range(rows), pa.duration("ms")),
        "bytes": pa.array([b"\xff\x00"] * rows),
        "pairs": pa.array([{"a": i, "b": [i]} for i in range(rows)]),
        "lists": pa.array([[1.0] * (i % 4) for i in range(rows)]),
        "words": pa.array(["a", "b"] * rows).dictionary_encode()[:rows],
        "long": pa.array(["a"] * rows, pa.large_string()),
        "nothing": pa.nulls(rows),
        "large": pa.array([2**64 - 1 - i for i in range(rows)], pa.uint64()),
        "halves": pa.array(np.arange(rows, dtype=np.float16)),
        "times": pa.array(range(rows), pa.time64("us")),
        "maps": pa.array([[("k", i)] for i in range(rows)], pa.map_(pa.string(), pa.int64())),
    }
    chosen = rng.choice(list(columns), int(rng.integers(1, 4)), replace=False)
    made = pa.Table.from_pandas(as_arrow(table.frame))
    for name in chosen:
        made = made.append_column(str(name), columns[name])
    table.name = "rows.parquet"
    file = io.BytesIO()
    pyarrow.parquet.write_table(made, file)
    table.edits.append(lambda data: file.getvalue())


@fault(ERROR, file=True)
def unpacking_parquet(rng, table):
    """A small file of very many equal cells."""
    file = io.BytesIO()
    schema = pa.schema([("price", pa.float64()), ("note", pa.string())])
    rows = pa.table([pa.array([1.0] * (1 << 20)), pa.array(["a house " * 8] * (1 << 20))], schema=schema)
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        for _ in range(60):
            writer.write_table(rows)
    table.name = "rows.parquet"
    table.edits.append(lambda data: file.getvalue())


def zipped(*names):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "<x/>")
    return file.getvalue()


STARTS = (
    gzip.compress(b"a,b\n1,2\n", mtime=0),
    zipped("xl/workbook.xml"),
    zipped("content.xml"),
    zipped("rows.csv"),
    b"PK\x03\x04torn",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 500,
    b"SQLite format 3\0" + b"\0" * 500,
    b"\x89PNG\r\n\x1a\n",
    b"%PDF-1.7\n",
    b"<!DOCTYPE html><html><body>log in</body></html>",
    b'<?xml version="1.0"?><rows/>',
    b"\x80\x04\x95\x10\0\0\0\0\0\0\0",
    b"ARROW1\0\0",
    b"PAR1\x15\x04",
)


@fault(ERROR, file=True)
def other_format(rng, table):
    start = pick(rng, STARTS)
    table.edits.append(lambda data: start)


@fault(ERROR, file=True)
def other_ending(rng, table):
    table.name = pick(rng, ["rows.xlsx", "rows.json", "rows.txt", "rows", "rows.csv.gz", "rows." + "x" * 200])


@fault(RESULT, file=True)
def ending_in_capitals(rng, table):
    table.name = table.name.replace(".csv", ".CSV")


# What stands in the place of a file.


def loop(path):
    path.symlink_to(path.name)


@fault(ERROR, file=True)
def no_plain_file(rng, table):
    places = [lambda path: None, lambda path: path.mkdir(), os.mkfifo, loop, lambda path: path.symlink_to("none")]
    table.place = pick(rng, places)
