"""What is found out about a table's file before it is read: its format, text encoding and delimiter."""

import codecs
import csv
import io
import itertools
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import chardet

from vicinal.core import short
from vicinal.core.checks import ECHO, short_text
from vicinal.data.spelling import number_of, plain_text

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", "~": "tildes", "^": "carets"}
"""Possible delimiters of cells, and their names."""
BLANKS, ALIGNED = " ", "  "
"""Any number of blanks between cells; and cells with blanks in them that stand below each other."""

_SPREADSHEET = "open it in a spreadsheet program and save it as CSV, or pandas.read_excel('NAME').to_csv('table.csv')"
_ODS = "save it as CSV in a spreadsheet program, or pip install odfpy and pandas.read_excel('NAME').to_csv('table.csv')"
_STATA = "convert it: pandas.read_stata('NAME').to_parquet('table.parquet')"
_SPSS = "convert it: pip install pyreadstat, and pandas.read_spss('NAME').to_parquet('table.parquet')"
_UNPACK = "unpack it and give the table inside"
_CODE = "it could run code and is never read; convert it where it comes from"
_PAGE = "download the file itself, not the page that shows it"
_PICTURE = "name images in a column of a table"
_FORMATS = (
    (rb"PAR1[^\n -~]", "a parquet file", "let its name end in .parquet"),
    (rb"\x1f\x8b", "a gzip file", "let its name end as in table.csv.gz"),
    (rb"BZh[1-9]1AY&SY", "a bzip2 file", "unpack it: bunzip2 NAME"),
    (rb"\xfd7zXZ\0", "an xz file", "unpack it: unxz NAME"),
    (rb"\x28\xb5\x2f\xfd", "a zstandard file", "let its name end as in table.csv.zst"),
    (rb"7z\xbc\xaf\x27\x1c", "a 7z archive", _UNPACK),
    (rb"Rar!\x1a\x07", "a rar archive", _UNPACK),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel file of the old form", _SPREADSHEET),
    (rb"ARROW1\0", "an Arrow or Feather file", "let its name end in .feather"),
    (rb"ORC[^\n -~]", "an ORC file", "convert it: pandas.read_orc('NAME').to_parquet('table.parquet')"),
    (rb"Obj\x01", "an Avro file", "convert it to parquet"),
    (rb"\x89HDF\r\n\x1a\n", "an HDF5 file", "convert it: pandas.read_hdf('NAME').to_parquet('table.parquet')"),
    (rb"<stata_dta>", "a Stata file", _STATA),
    (rb"\$FL2@\(#\)", "an SPSS file", _SPSS),
    (rb"SQLite format 3\0", "an SQLite database", "let its name end in .sqlite"),
    (rb"\x93NUMPY", "a numpy array", "make a table of it: pandas.DataFrame(numpy.load('NAME')).to_csv('table.csv')"),
    (rb"\x80[\x02-\x05][^\n]", "a pickle", _CODE),
    (rb"%PDF-", "a PDF file", "a table in it has to be copied out"),
    (rb"\x89PNG|\xff\xd8\xff", "an image", _PICTURE),
    (rb"(?i)\s*<(!doctype html|html|head|body|div|table)\b", "a web page", _PAGE),
    (rb"(?:\xef\xbb\xbf)?\s*\[\s*\{", "a JSON array", "let its name end in .json"),
    (rb"(?:\xef\xbb\xbf)?\s*\{\s*\"", "JSON objects", "let its name end in .jsonl"),
    (rb"\s*<\?xml", "an XML file", "convert it: pandas.read_xml('NAME').to_csv('table.csv')"),
)
"""Formats that tables are often stored in: pattern of the first bytes, name, what to do."""

READABLE = {
    ".parquet": "a parquet file",
    ".xlsx": "an Excel file",
    ".feather": "an Arrow or Feather file",
    ".sqlite": "an SQLite database",
    ".gz": "a gzip file",
    ".zst": "a zstandard file",
    ".zip": "a zip archive",
    ".json": "a JSON array",
    ".jsonl": "JSON objects",
}
"""Those of them that are read, by the ending of a file."""

_ENDINGS = {".xls": _SPREADSHEET, ".ods": _ODS, ".dta": _STATA, ".sav": _SPSS}

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_RARE_NAMES = (
    "cp437 cp720 cp737 cp775 cp852 cp855 cp856 cp857 cp858 cp860 cp861 cp862 cp863 cp864 cp865 cp869 cp1006 cp1125 "
    "cp1258 iso8859-3 iso8859-4 iso8859-10 iso8859-13 iso8859-14 iso8859-16 hp-roman8 kz1048 mac-latin2 mac-turkish "
    "mac-iceland mac-greek mac-cyrillic ptcp154 koi8-t tis-620"
)
_RARE = tuple(_RARE_NAMES.split())
"""Encodings that hardly any table is in, and whose letters fit many texts; Windows and ISO have their languages."""
_LETTER = re.compile(
    r"(?!\u2019)(?:[^\W\x00-\x7f\u00b2\u00b3\u00b9\u00bc-\u00be]|(?<=[a-zA-Z])[^\x00-\x7f](?=[a-zA-Z]))"
)
"""A letter that is not of ASCII, or a sign in its place: of "12 \u20ac, 20 \u00b0C, 5 m\u00b2" there is none."""
_MIXED = re.compile(r"[a-zA-Z](?=[\u0370-\u06ff\u0e00-\u0e7f])|[\u0370-\u06ff\u0e00-\u0e7f](?=[a-zA-Z])")
"""Latin letters beside Greek, Cyrillic, Hebrew, Arabic or Thai ones: no word has both."""
_FAINT, _TIED = 0.01, 0.95
"""How like a language letters must be at least, and by how much more than in the usual encoding."""

_CONTROLS, _FEW = bytes({*range(1, 32)} - {7, 8, 9, 10, 12, 13, 26, 27}), 0.02
"""Bytes that no text has but by accident, and their share of it at most."""

_SAMPLE = 1 << 16
"""Bytes or characters that an encoding or a delimiter is guessed from."""
_STEP = 1 << 20


def other_format(path: Path) -> str:
    r"""What a file is, by its first bytes, if it is not text, and what to do, for an error message; or "".

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "d.csv").write_bytes(b"\x1f\x8b\x08")
    ...     other_format(Path(folder, "d.csv"))
    'a gzip file; let its name end as in table.csv.gz'
    """
    with path.open("rb") as file:
        start = file.read(512)
    if start.startswith(b"PK\x03\x04"):
        what, advice = _zipped(path)
    else:
        matches = ((what, advice) for pattern, what, advice in _FORMATS if re.match(pattern, start))
        what, advice = next(matches, ("", ""))
    return f"{what}; {advice.replace('NAME', path.name)}" if what else ""


def _zipped(path: Path) -> tuple[str, str]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [entry.filename for entry in archive.filelist[:100]]
    except (zipfile.BadZipFile, OSError, NotImplementedError, UnicodeError):  # damaged, or of a form to come
        names = []
    if any(name.startswith("xl/") for name in names):
        return "an Excel file", "let its name end in .xlsx"
    if "content.xml" in names:
        return "a spreadsheet (OpenDocument)", _ODS
    return "a zip archive", "let its name end in .zip"


@contextmanager
def decoding(path: Path, encoding: str) -> Iterator[None]:
    """Turns the error of bytes that are not of the encoding into ours."""
    try:
        yield
    except UnicodeError as error:
        detail = short_text(error, ECHO)
        raise ValueError(f"{path.name}: expected text in {encoding}, got: {detail}; save it as UTF-8") from None


def advice_for(path: Path) -> str:
    """What to do with a file, by its ending, for an error message; or ""."""
    return _ENDINGS.get(path.suffix.lower(), "").replace("NAME", path.name)


def text_encoding(path: Path) -> str:
    """The encoding of a text file: by its byte-order mark, else UTF-16 or UTF-8 if it fits, else the likeliest.

    Raises:
        ValueError: if only some lines are UTF-8, no encoding fits, or there are NUL bytes, which text does not have.
    """
    with path.open("rb") as file:
        start = file.read(_SAMPLE)
        for mark, name in _MARKS.items():
            if start.startswith(mark):
                return name
        if start.count(0) > len(start) // 4:  # every second byte of plain letters
            return "utf-16-le" if start[1::2].count(0) > start[::2].count(0) else "utf-16-be"
        if 0 not in start and len(start) - len(start.translate(None, _CONTROLS)) > _FEW * len(start):
            raise ValueError(f"{path.name}: expected text, got other data; export the table as CSV in UTF-8")
        file.seek(0)
        if _is_utf8(file, path.name):
            return "utf-8"
        file.seek(0)
        encoding = _likeliest(b"".join(_foreign_lines(file, path.name)))
    if encoding is None:
        raise ValueError(f"{path.name}: expected text in UTF-8, got other bytes in no known encoding; save it as UTF-8")
    return encoding


def _is_utf8(file: BinaryIO, name: str) -> bool:
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    while block := file.read(_STEP):
        if b"\0" in block:
            line += block.count(b"\n", 0, block.index(b"\0"))
            advice = "the file is damaged, or no text; where only these are wrong, tr -d '\\000' removes them"
            raise ValueError(f"{name}: expected text, got NUL bytes in line {line}; {advice}")
        line += block.count(b"\n")
        try:
            decoder.decode(block)
        except UnicodeDecodeError:
            return False
    return not decoder.getstate()[0]


def _foreign_lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The first lines with characters outside ASCII."""
    number = size = 0
    known = foreign = None
    while size < _SAMPLE and (line := file.readline(_STEP)):
        number += 1
        if line.isascii():
            continue
        try:
            line.decode("utf-8")
            known = known or number
        except UnicodeDecodeError:
            foreign = foreign or number
        if known and foreign:
            raise ValueError(
                f"{name}: expected text in UTF-8, got line {known} in it and line {foreign} not; the file is cut short "
                "or damaged, or put together from files of two encodings"
            )
        size += len(line)
        yield line


def _likeliest(text: bytes) -> str | None:
    """The encoding in which the letters are most like those of a language; cp1252 where they tell little."""
    guesses = chardet.detect_all(text, exclude_encodings=_RARE, compat_names=False, ignore_threshold=True)
    likeness = {str(each["encoding"]): each["confidence"] for each in guesses}
    best = max(likeness.values(), default=0.0)
    usual = any(likeness.get(name, 0.0) >= _TIED * best for name in ("cp1252", "iso8859-1"))
    usual = usual or best < _FAINT or not _LETTER.search(text.decode("cp1252", "ignore"))
    names = ["cp1252"] * usual + [name for name in likeness if name != "iso8859-1"]  # no text has what is only there
    read = {name: each for name in names if (each := _decoded(text, name)) is not None}
    return next((name for name, each in read.items() if not _MIXED.search(each)), next(iter(read), None))


def _decoded(text: bytes, encoding: str) -> str | None:
    try:
        return text.decode(encoding)
    except (LookupError, UnicodeDecodeError):
        return None


RULE = re.compile(r"[\s+|]*[-=_]{3}[-=_\s+|]*")
"""A line that is drawn between the header and the rows, or below these."""


def delimiter_of(path: Path, encoding: str, usual: str) -> str:
    """The delimiter of a text file: the one by which most of its first lines have as many cells as the header.

    If there is none, ``BLANKS`` where each line has as many words as the header, or one more in front, and some column
    is of numbers; ``ALIGNED`` where as many columns stand below the header as it has names with two blanks between.

    Args:
        path: the file.
        encoding: of its text.
        usual: the delimiter that its name suggests, taken unless another fits better.
    """
    sample = _sample(path, encoding)
    fits = {one: (*_cut_by(one, sample), one == usual) for one in DELIMITERS}
    best = max(fits, key=lambda one: fits[one])
    return best if fits[best][0] or not sample.strip() else _by_blanks(sample) or best


def _by_blanks(sample: str) -> str | None:
    with suppress(csv.Error):
        header, *rows = [row for row in cell_rows(sample, BLANKS) if row]
        columns = [*zip(*rows, strict=False)][-len(header) :]
        alike = len(rows) > 1 < len(header) and {len(row) for row in rows} in ({len(header)}, {len(header) + 1})
        if alike and any(2 * sum(map(_is_number, column)) > len(column) for column in columns):
            return BLANKS
    names = re.split(r" {2,}", sample.lstrip("\r\n").partition("\n")[0].strip())
    return ALIGNED if 1 < len(names) <= len(aligned_spans(sample.splitlines())) <= len(names) + 1 else None


def aligned_spans(lines: Iterable[str]) -> list[tuple[int, int]]:
    """Where the columns of aligned cells begin and end: between the places that are blank in all lines.

    A single blank is part of a column where on one side there is no name above, or no cell below.

    >>> aligned_spans(["       city  size", "0  New York    12", "1      Rome     3"])
    [(0, 1), (3, 11), (13, 17)]
    """
    above, below = set[int](), set[int]()
    for line in lines:
        if not RULE.fullmatch(line.rstrip() or "---"):
            (below if above else above).update(place for place, letter in enumerate(line) if not letter.isspace())
    spans: list[tuple[int, int]] = []
    for place in sorted(above | below):
        spans[-1:] = (
            [(spans[-1][0], place + 1)] if spans and spans[-1][1] == place else [*spans[-1:], (place, place + 1)]
        )
    joined = spans[:1]
    for span in spans[1:]:
        both = (joined[-1], span)
        whole = all(filled.intersection(range(*one)) for filled in (above, below) for one in both)
        joined[-1:] = [*both] if whole or span[0] > joined[-1][1] + 1 else [(both[0][0], span[1])]
    return joined


def cell_rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """The rows of cells in a text."""
    lines = io.StringIO(text, newline="")
    if delimiter == BLANKS:
        return csv.reader((f"{line.strip()}\n" for line in lines), delimiter=" ", skipinitialspace=True)
    return csv.reader(lines, delimiter=delimiter)


def header_of(path: Path, encoding: str, delimiter: str) -> tuple[int, list[str], bool]:
    """What is said of the columns of a text file.

    Returns:
        The lines before its header, such as a title; the names above those of the header, if any; and whether each row
        begins with its own name, above which the header has no cell: words, or the numbers from 1 on, all different.
    """
    rows = list(cell_rows(_sample(path, encoding), delimiter))
    place, above = header_place(rows)
    body = [row for row in rows[place + 1 :] if row]
    first = [row[0] for row in body]
    shifted = len(set(first)) == len(first) > 1 and {len(row) for row in body} == {len(rows[place]) + 1}
    named = first == [str(row + 1) for row in range(len(first))] or not any(map(_is_number, first))
    return (place if any(rows[:place]) else 0), above, shifted and named and any(row[-1] for row in body)


def _sample(path: Path, encoding: str) -> str:
    """The first lines of a text file."""
    with path.open(encoding=encoding, errors="replace", newline="") as file:
        sample = file.read(_SAMPLE)
    return (sample[: sample.rfind("\n") + 1] or sample) if len(sample) == _SAMPLE else sample


def header_place(rows: Sequence[Sequence[str]]) -> tuple[int, list[str]]:
    """Which of the first rows of cells is the header, and names above it that belong to its own.

    Before it are rows with at most a third of the cells that most rows have, if these have three or more, rows that end
    two or more cells before these (``Account:;DE12 34``), and one with gaps above other names, such as merged cells, if
    numbers follow. Names that are not all different get those above.

    >>> header_place([["Sales", "", ""], ["Place", "", "Sold"], ["street", "town", "price"], ["a", "b", "1"]])
    (2, [])
    >>> header_place([["", "2023", "", "2024", ""], ["Town", "Rent", "Age", "Rent", "Age"], ["a", "1", "2", "3", "4"]])
    (1, ['', '2023', '2023', '2024', '2024'])
    """
    width = Counter(len(row) for row in rows if row).most_common(1)[0][0] if any(rows) else 0
    if width < 3:
        return 0, []
    filled = (3 * sum(bool(cell.strip()) for cell in row) > width <= len(row) + 1 for row in rows)
    first = next((place for place, full in enumerate(filled) if full), 0)
    repeated = any(count > 1 for name, count in Counter(rows[first]).items() if name.strip())
    tops = [first - 1] * (first > 0 and repeated)  # names of a few wide groups have the look of a title
    for top in [*tops, *[first] * (not all(cell.strip() for cell in rows[first][1:]))]:
        if len(rows) < top + 3:
            continue
        padded = [[*row, *[""] * (width - len(row))] for row in rows[top : top + 2]]
        names = [cell.strip() for cell in padded[1]]
        follow = [cell for row in rows[top + 2 : top + 4] for cell in row]  # the first may be one of units
        if len(names) != width or not _are_names(names) or not any(map(_is_number, follow)):
            continue
        if len(set(names) - {""}) == width:
            return top + 1, []
        above: list[str] = []
        for cell in padded[0]:  # a merged name is above all cells up to the next one
            above.append(cell.strip() or (above[-1] if above else ""))
        whole = set(zip(above, names, strict=False))
        if len(whole) == width and ("", "") not in whole:
            return top + 1, above
    return first, []


def _are_names(cells: Sequence[str]) -> bool:
    """Whether cells may be names: without numbers, or with years in equal steps, of one group or of each."""
    numbers = [cell for cell in cells if _is_number(cell)]
    if not all(re.fullmatch("(19|20)[0-9][0-9]", cell) for cell in numbers):
        return False
    years = sorted({int(cell) for cell in numbers})
    steps = {later - year for year, later in itertools.pairwise(years)}
    even = steps <= {1} or (len(steps) == 1 and len(years) > 2)
    groups = len(numbers) // len(years) if len(years) > 1 else 1
    return even and numbers == groups * [*map(str, years)]


def full_names(names: Sequence[str], above: Sequence[str] = ()) -> list[str]:
    """Names of columns, those of a cell that is merged above them before them, the second of a name with its number.

    >>> full_names(["id", "label ", "label", ""]), full_names(["Town", "Rent", "Rent"], ["", "2023", "2024"])
    (['id', 'label', 'label (2)', ''], ['Town', '2023 Rent', '2024 Rent'])
    """
    whole = [" ".join(parts).strip() for parts in zip(above, names, strict=False)] if above else list(names)
    counts: Counter[str] = Counter()
    different = []
    for name in map(str.strip, whole):
        counts[name] += 1
        place = counts[name]
        different.append(f"{name} ({place})" if name and place > 1 else name)
    return different


def check_names(table: str, names: Iterable[str]) -> None:
    """Raise ValueError for two columns of one name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{table}: expected columns of different names, got {short(twice[0])} twice; rename one")


def _is_number(cell: str) -> bool:
    return number_of(plain_text(cell)) is not None


def _cut_by(delimiter: str, sample: str) -> tuple[float, int]:
    """The share of lines with as many cells as the header, if it has several, and the number of these cells."""
    try:
        rows = list(cell_rows(sample, delimiter))
        rows = [row for row in rows[header_place(rows)[0] :] if row and not RULE.fullmatch("".join(row))]
    except csv.Error:
        return 0.0, 0
    width = len(rows[0]) if rows else 0
    if width < 2:
        return 0.0, 0
    alike = [len(row) == width for row in rows[1:]]
    share = sum(alike) / len(alike) if alike else 1.0
    return share, width if share else 0
