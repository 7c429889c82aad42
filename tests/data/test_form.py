"""How a table is written: every spelling is read as what it is, the same in every file and in every part of it."""

import contextlib
import datetime
import json
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.core import CellWarning, ColumnError, ColumnWarning
from vicinal.data import TableForm, read_table
from vicinal.data.date_spelling import span_of
from vicinal.data.form import ColumnForm

DAY = datetime.datetime(2021, 12, 31)
NUMBERS = {
    "<b>12.5</b>": 12.5,
    '<td class="n">1,234&nbsp;&euro;</td>': 1234.0,
    "12&thinsp;%<br/>": 12.0,
    "$3,750.00": 3750.0,
    "USD 3,750": 3750.0,
    "-$5.25": -5.25,
    "(1,234.50)": -1234.5,
    "€ 1.250,00": 1250.0,
    "1.250,5 €": 1250.5,
    "12%": 12.0,
    "99,5 %": 99.5,
    "1 234,5": 1234.5,
    "1\u202f234,5": 1234.5,
    "1'234.50": 1234.5,
    "1,23,456": 123456.0,
    "1.234.567": 1234567.0,
    "\u221212.5": -12.5,
    "CHF 1'200.-": 1200.0,
    "1.5e-3": 0.0015,
    "$(1,234.50)": -1234.5,
    "\u226512.5": 12.5,
    "c. 1931": 1931.0,
    "12\u00bd": 12.5,
    "9.5**": 9.5,
    "9.5[2]": 9.5,
    "42nd": 42.0,
    "2.5B": 2.5,
    "Rs. 1,23,456/-": 123456.0,
    "2.5 Crore": 2.5e7,
    "12-": -12.0,
    "115k miles": 115000.0,
    "2.5 million km": 2.5e6,
    "3 1/4": 3.25,
    '18-1/8"': 18.125,
    "3/4": 0.75,
    "1.5 \u00d7 10^4": 15000.0,
    "6 x 10\u207b\u00b2": 0.06,
    "\u0664\u0664\u0662\u066b\u0665": 442.5,
    "\u0967\u096a": 14.0,
    "52\u00b030'N": 52.5,
    "W 13\u00b0 15\u2032 36\u2033": -13.26,
    "33.5\u00b0 S": -33.5,
    "5\u20196\u201d": 5.5,
    "12,5 \u00e2\u201a\u00ac": 12.5,
    "2\u00c2\u00a0345": 2345.0,
    "12 percent": 12.0,
    "1,200 sq. ft.": 1200.0,
    "56 y/o": 56.0,
    "(10 reviews)": 10.0,
    "#12": 12.0,
    "2.212,50 S": -2212.5,
    "2.212,50 H": 2212.5,
    "11 st 7 lb": 11.5,
    "3.5\u4e07\u5186": 35000.0,
    "\\5,004,000": 5.004e6,
    "1,2 \u043c\u043b\u043d \u0440\u0443\u0431.": 1.2e6,
    "$24.279m": 24.279e6,
    "37,- \u20ac": 37.0,
    "R$ 690 mil": 690_000.0,
    "R$ 2,1 milh\u00f5es": 2.1e6,
    "$2.5 mil": 2.5e6,
    "1,2 mln z\u0142": 1.2e6,
    "50 mil km": 50_000.0,
    "TEUR 150": 150_000.0,
    "12,5 T\u20ac": 12_500.0,
    "kr. 1.234,50": 1234.5,
    "1 \u00bd cups": 1.5,
    "2\u2154": 2.666667,
    "12.3 \u00b1 0.4": 12.3,
    "12.3 +/- 0.4 ppb": 12.3,
    "2 ans et 3 mois": 2.25,
    "1 hr 6": 1.1,
    "2\u00e8me": 2.0,
    "392 degrees F": 392.0,
    "120 m \u00fc. M.": 120.0,
    "rd. 300": 300.0,
    "1 250:-": 1250.0,
    "1,200\u5143": 1200.0,
    "1598 cm\u00b3": 1598.0,
    "12 (\u00b1 3)": 12.0,
    "12 \u00b1 3 %": 12.0,
}
DATES = {
    "31/12/2021": DAY,
    "31.12.2021": DAY,
    "31-12-2021": DAY,
    "12/31/2021": DAY,
    "2021-12-31": DAY,
    "2021/12/31": DAY,
    "2021-12-31T00:00:00Z": DAY,
    "2021-12-31 02:00:00+02:00": DAY,
    "Dec 31, 2021": DAY,
    "December 31st, 2021": DAY,
    "Fri Dec 31 00:00:00 2021": DAY,
    "31 Dec 2021": DAY,
    "31-Dec-21": DAY,
    "31. Dezember 2021": DAY,
    "Fri, 31 Dec 2021 00:00:00 GMT": DAY,
    "31/12/2021 2:30 pm": DAY.replace(hour=14, minute=30),
    "31/12/21": DAY,
    "2021-12-30 19:00:00 EST": DAY,
    "2021-12-31T01:00+01:00[Europe/Berlin]": DAY,
    "Fr., 31.12.2021": DAY,
    "31 de diciembre de 2021": DAY,
    "31DEC2021:14:30:00": DAY.replace(hour=14, minute=30),
    "20211231T143000Z": DAY.replace(hour=14, minute=30),
    "2021\u5e7412\u670831\u65e5": DAY,
    "\u4ee4\u548c3\u5e7412\u6708": DAY.replace(day=1),
    "12/2021": DAY.replace(day=1),
    "Dec-21": DAY.replace(day=1),
    "Q4 2021": datetime.datetime(2021, 10, 1),
    "2021-Q4": datetime.datetime(2021, 10, 1),
    "2021-W52": datetime.datetime(2021, 12, 27),
    "H2 2021": datetime.datetime(2021, 7, 1),
    "2021 H1": datetime.datetime(2021, 1, 1),
    "2021-W52-5": DAY,
    "31. Dec 21": DAY,
    "Q4 FY21": datetime.datetime(2021, 10, 1),
    "KW 52/2021": datetime.datetime(2021, 12, 27),
    "4. Quartal 2021": datetime.datetime(2021, 10, 1),
    "2021. 12. 31.": DAY,
    "31.12.2021 14.30": DAY.replace(hour=14, minute=30),
    "31/12/2021 \u00e0 14h30": DAY.replace(hour=14, minute=30),
    "2021-12-31-14.30.00.000000": DAY.replace(hour=14, minute=30),
    "2021/12/31 3:30:00 PM GMT+1": DAY.replace(hour=14, minute=30),
    "31/Dec/2021:14:30:00 +0000": DAY.replace(hour=14, minute=30),
    "Fri Dec 31 2021 14:30:00 GMT+0530 (India Standard Time)": DAY.replace(hour=9),
    "1066-10-14": datetime.datetime(1066, 10, 14),
    "9999-12-31": datetime.datetime(9999, 12, 31),
}


def form_of(cells, **settings):
    return TableForm.of(pd.DataFrame({"x": cells}), **settings).columns.get("x")


def read(cells, **settings):
    frame = pd.DataFrame({"x": cells})
    return TableForm.of(frame, **settings).read(frame)["x"]


@pytest.mark.parametrize(("text", "number"), NUMBERS.items())
@pytest.mark.parametrize("gap", ["n/a", "?", "-", "NA", "\\N", "", None])
def test_numbers_as_people_write_them(text, number, gap):
    cells = read([text, gap, text])
    assert cells.tolist()[::2] == [number, number]
    assert np.isnan(cells[1])


@pytest.mark.parametrize(("text", "day"), DATES.items())
def test_dates_as_people_write_them(text, day):
    cells = read([text, "n/a"])
    assert cells.dtype == "datetime64[us]"
    assert cells[0].to_pydatetime() == day
    assert pd.isna(cells[1])


@pytest.mark.parametrize(
    "cells",
    [
        ["007", "12"],
        ["12 Main St"],
        ["1.1.1.1"],
        ["2021-02-30"],
        ["€5", "¥700"],
        ["1,5", "2.5"],
        ["6/8", "3/4"],
        ["3/4/5"],
        ["2+", "2", "2-"],
        ["\u2605", None],
        ["H3 2021"],
        ["31/12/2021", "12/31/2021"],
    ],
)
def test_what_is_no_number_and_no_date_is_left_alone(cells):
    assert form_of(cells) is None


@pytest.mark.parametrize(
    ("cells", "value"),
    [
        (["true", "FALSE"], [True, False]),
        (["Yes", "no", "YES"], ["Yes", "no", "Yes"]),
        (["ja", "Nein"], ["ja", "Nein"]),
        (["y", "n"], ["y", "n"]),
        ([True, None, False], [True, None, False]),
        (["1", "yes", "N", "TRUE", "0"], [True, True, False, True, False]),
    ],
)
def test_truth_values_mean_the_same_in_any_spelling(cells, value):
    form = TableForm.of(pd.DataFrame({"x": cells}))
    assert form.columns["x"].kind == "truth"
    assert form.read(pd.DataFrame({"x": cells}))["x"].tolist() == value
    true = value[0]
    for other in (True, 1, 1.0, "true", "TRUE", "yes", "1", np.True_):
        assert form.read(pd.DataFrame({"x": pd.Series([other], dtype=object)}))["x"].tolist() == [true]


def test_day_or_month_is_decided_by_the_column_then_by_the_table_then_said():
    lines = []
    settings = {"log": lines.append}
    assert form_of(["03/04/2021", "25/04/2021"], **settings).day_first
    assert not form_of(["03/04/2021", "04/25/2021"], **settings).day_first
    both = pd.DataFrame({"a": ["03/04/2021"], "b": ["25/04/2021"]})
    assert TableForm.of(both, **settings).columns["a"].day_first, "as the other column has it"
    assert lines == []
    assert not form_of(["03/04/2021"], **settings).day_first
    assert form_of(["03.04.2021"], **settings).day_first
    assert [line.partition(":")[0] for line in lines] == ["x", "x"]
    assert "--day-first" in lines[0]
    assert form_of(["03/04/2021"], day_first=True, **settings).day_first
    assert len(lines) == 2


def test_the_mark_before_decimals_is_decided_by_the_column_then_by_the_table_then_said():
    lines = []
    assert form_of(["1.250", "8.750,5"]).decimal == ","
    table = pd.DataFrame({"a": ["1.250", "4.500"], "b": ["1,5", "2,25"]})
    assert TableForm.of(table, log=lines.append).read(table)["a"].tolist() == [1250, 4500]
    assert lines == []
    assert read(["1,234"], log=lines.append).tolist() == [1234]
    assert "--decimal ," in lines[0]
    assert read(["1,234"], decimal=",").tolist() == [1.234]
    with pytest.raises(ValueError, match=r"^decimal: expected one of '\.', ','"):
        form_of(["1"], decimal=";")


OTHER_UNITS = {
    "dates for years": ([1990, 2001], pd.to_datetime(["1990-06-01"])),
    "texts of dates for years": ([1990, 2001], ["1990-06-01"]),
    "date objects for numbers": ([1.5, 2.5], [datetime.date(2020, 1, 1)]),
    "years for dates": (["2020-01-01"], [1990]),
    "serials for dates": (pd.to_datetime(["2020-01-01"]), [43831.0]),
    "numbers for lengths of time": (pd.to_timedelta([1, 2], unit="h"), [1.0]),
    "numbers for times": (["7:30", "8:15"], [7.5]),
    "dates for lengths of time": (pd.to_timedelta([1, 2], unit="h"), pd.to_datetime(["2020-01-01"])),
    "another money": (["$5"], ["€5"]),
    "shares for numbers": ([0.12, 0.5], ["12%"]),
    "numbers for shares": (["12%"], ["0.12"]),
    "the other mark": (["1,5", "2,5"], ["1,234.5"]),
    "a mark that may be of thousands": (["1.5", "14.891"], ["14,891"]),
    "the other order": (["25/04/2021"], ["04/25/2021"]),
}


@pytest.mark.parametrize(("before", "after"), OTHER_UNITS.values(), ids=OTHER_UNITS)
def test_another_unit_is_refused_by_column_and_row(before, after):
    form = TableForm.of(pd.DataFrame({"built": before}))
    with pytest.raises(ColumnError, match=r"^built: expected .* in row 7, got .*; the column held .* was fitted$"):
        form.read(pd.DataFrame({"built": after}, index=[7]))


def test_far_dates_are_at_the_ends_of_years_that_are_there():
    cells = [f"2020-{month:02}-01" for month in range(1, 13)] + ["9999-12-31"] * 2 + ["0001-01-01"]
    form = form_of(cells)
    assert form.span == (2019, 2021)
    assert read(cells).dt.year.tolist() == [2020] * 12 + [2021] * 2 + [2019]
    assert form_of(["1066-10-14", "1215-06-15"]).span is None, "where most are far, they are what they are"
    assert read(cells[:13]).isna().tolist() == [False] * 12 + [True], "one far out would pull at the slopes of all"


def test_a_form_that_was_read_reads_again_and_is_the_same_as_json():
    frame = pd.DataFrame(
        {
            "money": ["$1.50", "?"], "day": ["31/12/2021", ""], "yes": ["yes", "no"], "b": [True, False],
            "list": ['["a"]', ""], "n": [Decimal("1.5"), None], "t": ["7:30", "0:05"], "w": ["red", "n/a"],
        }
    )  # fmt: skip
    form = TableForm.of(frame)
    meant = form.read(frame)
    pd.testing.assert_frame_equal(form.read(meant), meant)
    assert TableForm.model_validate_json(json.dumps(form.model_dump(exclude_defaults=True))) == form
    assert meant["w"].tolist() == ["red", None]
    assert frame["money"].tolist() == ["$1.50", "?"], "the given table is left alone"


WRITTEN = {
    "number": lambda value: f"{value:.2f}",
    "money": lambda value: f"${value:,.2f}",
    "comma": lambda value: f"{value:,.2f}".translate(str.maketrans(",.", ".,")),
    "share": lambda value: f"{value:.2f}%",
    "day first": lambda value: (DAY + datetime.timedelta(days=round(value))).strftime("%d/%m/%Y"),
    "month by name": lambda value: (DAY + datetime.timedelta(days=round(value))).strftime("%b %d, %Y"),
    "truth": lambda value: "yes" if value > 5000 else "no",
    "gaps": lambda value: "n/a" if value > 9000 else f"{value:.1f}",
}
FILES = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    ".jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    ".parquet": lambda frame, path: frame.to_parquet(path),
    ".xlsx": lambda frame, path: frame.to_excel(path, index=False),
}


@given(
    st.lists(st.floats(0, 10_000), min_size=3, max_size=12),
    st.sets(st.integers(0, 11), min_size=1),
    st.sampled_from(sorted(FILES)),
    st.sampled_from(sorted(FILES)),
)
def test_any_part_in_any_file_is_read_as_the_whole_was(tmp_path_factory, values, some, whole, part):
    frame = pd.DataFrame({name: [write(value) for value in values] for name, write in WRITTEN.items()})
    folder = tmp_path_factory.mktemp("t")
    FILES[whole](frame, folder / f"whole{whole}")
    written = read_table(folder / f"whole{whole}")
    form = TableForm.of(frame)
    pd.testing.assert_frame_equal(
        form.read(frame), written.reset_index(drop=True), check_dtype=False, check_column_type=False
    )
    rows = sorted({place % len(values) for place in some})
    FILES[part](frame.iloc[rows], folder / f"part{part}")
    again = read_table(folder / f"part{part}", form=form)
    pd.testing.assert_frame_equal(
        again.reset_index(drop=True),
        form.read(frame).iloc[rows].reset_index(drop=True),
        check_dtype=False,
        check_column_type=False,
    )


def test_categories_are_told_apart_as_the_file_does():
    codes = pd.DataFrame({"x": ["1.1", "1.10", "007", "7"]})
    assert TableForm.of(codes, kinds={"x": "category"}).read(codes)["x"].tolist() == ["1.1", "1.10", "007", "7"]
    assert form_of([1.0, 2.5], kinds={"x": "category"}) == ColumnForm(kind="levels")


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1,5", "-", "2"], [1.5, None, 2.0]),
        (["12", "n/a"], [12.0, None]),
        (["2020-01-02", ""], [pd.Timestamp("2020-01-02"), None]),
        ([1, 2], [1, 2]),
    ],
)
def test_columns_of_a_model_without_forms_are_read_as_each_table_shows(cells, values):
    form = TableForm(columns={"x": ColumnForm(kind="number", unitless=True)})
    assert [None if pd.isna(cell) else cell for cell in form.read(pd.DataFrame({"x": cells}))["x"]] == values


LENGTHS = {
    "times of day": {"5:46 PM": 63960, "12:05 a.m.": 300, "12 pm": 43200},
    "hours, minutes and seconds": {
        "1h 30m": 5400,
        "45m": 2700,
        "2 hrs 5 mins 1 sec": 7501,
        "7h05": 25500,
        "1d 2h": 93600,
    },
    "ISO": {"PT12H30M": 45000, "P1DT1S": 86401},
    "a stopwatch": {"3:28.5": 208.5, "0:00.25": 0.25, "4:07": 247, "59,32": 59.32, "9.58": 9.58},
    "a run": {"45:07": 2707, "1:02:03": 3723},
    "minutes and seconds": {"9'58\"": 598, "10'05\"": 605},
    "hours and minutes": {"7:30": 27000, "12:45": 45900, "1:02:03": 3723},
    "gaps to the first": {"+12.3": 12.3, "+1:23.7": 83.7, "-0.5": -0.5},
    "hours of three kinds": {"4h10": 15000, "4:05 h": 14700, "1 h 6 min": 3960},
    "German": {"2 Std. 5 Min.": 7500, "07:30 Uhr": 27000, "13.15 Uhr": 47700, "7 Uhr": 25200},
}


@pytest.mark.parametrize("seconds", LENGTHS.values(), ids=LENGTHS)
def test_lengths_of_time_as_people_write_them(seconds):
    assert read(list(seconds)).dt.total_seconds().tolist() == list(seconds.values())
    assert form_of(["pm", "13 pm", "T", "P", "7:75"]) is None


PARTS = {
    "one that differs": (lambda n: f"{n} pages long", lambda n: n),
    "of ten": (lambda n: f"{n}.5/100", lambda n: n + 0.5),
    "German": (lambda n: f"{n},5 von 50", lambda n: n + 0.5),
    "German thousands": (lambda n: f"{n}{'.000' * (n > 15)} VB fest", lambda n: n * (1000 if n > 15 else 1)),
    "sizes": (lambda n: f"{n}x{n + 1}.5 cm", lambda n: [n, n + 1.5]),
    "a place": (lambda n: f"(-{n}.25, {n})", lambda n: [-n - 0.25, n]),
    "ranges": (lambda n: f"{n}-{n + 9} kg", lambda n: [n, n + 9]),
    "a count": (lambda n: f"{n}.5 (1,{n}1 reviews)", lambda n: [n + 0.5, 1001 + 10 * n]),
    "three": (lambda n: f"1.{n}.{n + 1}", lambda n: [n, n + 1]),
    "about": (lambda n: f"{'ca. ' * (n % 2)}{n},5 l/100 km", lambda n: n + 0.5),
    "packs": (lambda n: f"{n}x75 cl" if n % 2 else f"{n} \u00d7 500 ml", lambda n: [n, 750 if n % 2 else 500]),
    "sides": (
        lambda n: f"{n}x{n + 1} cm" if n % 2 else f"{n} x {n + 1} mm",
        lambda n: [10 * n, 10 * n + 10] if n % 2 else [n, n + 1],
    ),
    "three sides": (
        lambda n: f"{n} x {n + 1} x 5{n} cm" if n % 2 else f"{n}x{n + 1}x5{n}cm",
        lambda n: [n, n + 1, 500 + n],
    ),
    "a note": (lambda n: f"{n},5 l/100 km (komb.)" if n % 2 else f"ca. {n},5 l/100km", lambda n: n + 0.5),
    "a bonus": (lambda n: f"{n}+{n % 4}" if n % 4 else f"{n}", lambda n: [n, n % 4]),
}


@pytest.mark.parametrize(("written", "meant"), PARTS.values(), ids=PARTS)
def test_cells_with_numbers_among_the_same_words_are_these_numbers(written, meant):
    frame = pd.DataFrame({"x": [written(n) for n in range(10, 22)]})
    form = TableForm.of(frame)
    cells = form.read(frame)
    assert cells["x"].tolist() == [meant(n) for n in range(10, 22)]
    pd.testing.assert_frame_equal(form.read(cells), cells)
    gap, middle = form.read(pd.DataFrame({"x": [written(10), None]}))["x"][1], np.array(cells["x"].tolist())
    assert gap == np.median(middle, axis=0).tolist() if middle.ndim == 2 else np.isnan(gap)
    with pytest.raises(ColumnError, match=r"^x: expected texts as .* in row 0, got another one"):
        form.read(pd.DataFrame({"x": ["else"]}))


@pytest.mark.parametrize(
    "written",
    [
        "A{}",
        "room {} b",
        "{}.png",
        "https://a.b/{}?c=1",
        "{}@a.com",
        "0{}-0{}1",
        "{} or so, {other}",
        "{}-07",
        "{}.110.222-17",
    ],
)
def test_numbers_in_names_are_no_numbers(written):
    assert form_of([written.format(n, n, other="a" * n) for n in range(100, 130)]) is None


def test_words_that_stand_often_among_numbers_are_gaps_and_said():
    lines, cells = [], [*map(str, range(12)), *["not reported"] * 5, *["ND"] * 3]
    form = TableForm.of(pd.DataFrame({"x": cells}), log=lines.append)
    assert len(lines) == 1
    assert lines[0].startswith("x: 'nd', 'not reported' among numbers reads as missing")
    assert form.read(pd.DataFrame({"x": ["ND", "nd", "3"]}), ["x"])["x"].isna().tolist() == [True, True, False]
    assert TableForm.model_validate_json(json.dumps(form.model_dump(exclude_defaults=True))) == form
    assert form_of([*cells, *["more", "and", "much"] * 3]) is None, "many words"
    assert form_of(["7", *["ND"] * 30]) is None, "more words than numbers"


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(("number", "is_gap"), [(-999, True), (999, True), (99, False), (990, False)])
def test_nines_far_beyond_all_others_are_gaps_and_said(number, is_gap, as_text):
    lines, cells = [], [*range(0, 60, 5), *[number] * 3]
    frame = pd.DataFrame({"x": [str(cell) if as_text else cell for cell in cells]})
    form = TableForm.of(frame, log=lines.append)
    assert form.read(frame)["x"].isna().tolist() == [False] * 12 + [is_gap] * 3
    assert [line.partition(" among")[0] for line in lines] == [f"x: {number}"] * is_gap
    assert TableForm.of(frame, kinds={"x": "number"}).read(frame)["x"].notna().all()
    assert TableForm.of(frame[:13]).read(frame)["x"].notna().all(), "once it may be a number"


YEARS = [(month, year) for year in range(19, 23) for month in range(1, 13)]
MONTHS = {
    "01/19": ("x", "{0:02d}/{1}"),
    "01.19": ("x", "{0:02d}.{1}"),
    "1/19 by its name": ("Month of sale", "{0}/{1}"),
    "1-19 by its name": ("expires", "{0}-{1}"),
    "1/2019": ("x", "{0}/20{1}"),
    "2019-1": ("x", "20{1}-{0}"),
    "2019/01": ("x", "20{1}/{0:02d}"),
    "2019M01": ("x", "20{1}M{0:02d}"),
    "201901": ("x", "20{1}{0:02d}"),
    "2019.01": ("x", "20{1}.{0:02d}"),
}
NO_MONTHS = {
    "one of 19": [f"{month}/{year}" for month, year in YEARS],
    "days of a year": [f"{1 + day % 12:02d}/{1 + day % 31:02d}" for day in range(200)],
    "the last days of months": [f"{month:02d}/{day}" for month, day in zip(range(1, 13), [31, 28] * 6, strict=True)],
    "halves of years": [f"{half}/{year}" for year in range(2000, 2020) for half in (1, 2)],
    "a thirteenth": [f"{month:02d}/{year}" for month, year in [*YEARS, (13, 20)]],
}


@pytest.mark.parametrize(("name", "written"), MONTHS.values(), ids=MONTHS)
def test_months_are_dates(name, written):
    frame = pd.DataFrame({name: [written.format(*each) for each in YEARS]})
    form = TableForm.of(frame)
    assert form.columns[name].kind == "date"
    assert form.read(frame)[name].tolist() == [pd.Timestamp(2000 + year, month, 1) for month, year in YEARS]
    assert form.read(pd.DataFrame({name: ["Jun 2023"]}))[name].tolist() == [pd.Timestamp(2023, 6, 1)]


@pytest.mark.parametrize("cells", NO_MONTHS.values(), ids=NO_MONTHS)
def test_what_may_be_no_months_are_no_dates(cells):
    form = form_of(cells)
    assert form is None or form.kind != "date"


@pytest.mark.parametrize(
    ("cells", "rows"),
    [
        (["a", None, "", "b", None, None], "2 of 6 cells are filled, the first among them"),
        ([None, "a", None, None, "b", None], ""),
        (["a", "b", *[None] * 7], ""),
        (["a", None, None, "a", None, None], ""),
        (["a", None, "b", None], ""),
        ([1, None, None, "b", None, None], ""),
    ],
)
def test_a_column_whose_groups_are_named_in_their_first_row_is_told(cells, rows):
    lines: list[str] = []
    frame = pd.DataFrame({"x": cells, "y": range(len(cells))})
    form = TableForm.of(frame, log=lines.append)
    assert form.read(frame)["x"].isna().sum() == frame["x"].isna().sum()
    said = f"x: {rows}; if each holds for the empty cells below it, fill these in the file"
    assert lines == [said] * bool(rows)


NO_NUMBERS = {
    "below and above one number": ["<=3cm", ">3cm"],
    "with signs after and words before": ["under 50", "50 +"],
    "beside the number itself": ["1", "2", "3", ">3"],
    "years of school": ["16years", ">16years", "12years", "9-11years"],
    "from a year on": ["1935-", "1940-", "1945-"],
    "up to and from": ["24-", "25+"],
    "a family of a number": [*map(str, range(40)), "7A"],
    "a quarter": ["1", "2", "3", "4", "1OT"],
}


@pytest.mark.parametrize("cells", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_categories_that_would_be_one_number_stay(cells):
    assert form_of(cells) is None


STILL_NUMBERS = {
    "ends of a scale": (["<25", "25-29", "30-35", ">35"], [25.0, 27.0, 32.5, 35.0]),
    "three or more": (["3+", "0", "2", "1"], [3.0, 0.0, 2.0, 1.0]),
    "a limit of detection": (
        ["<0.5", "0.5", *(f"{n}.5" for n in range(1, 10))],
        [0.5, 0.5, *(n + 0.5 for n in range(1, 10))],
    ),
    "amounts that are negative": (["123.45-", "99.00-", "7.00-"], [-123.45, -99.0, -7.0]),
    "pieces": (["12 pcs", "12", "7"], [12.0, 12.0, 7.0]),
    "a control character": (["6.2\x1a", "7.1"], [6.2, 7.1]),
    "feet and inches": ([*(f"5'{n}" for n in range(10)), "5-6", "6-0"], [*(5 + n / 12 for n in range(10)), 5.5, 6.0]),
    "letters of a test": (
        [f"{n}.5{' ' * (n % 2)}{group}" for n, group in enumerate(["a", "ab", "b", "bc", "c"] * 3)],
        [n + 0.5 for n in range(15)],
    ),
    "meters": ([*(f"1.{n}00 m" for n in range(1, 10)), "800 m", "2.000 m"], [*range(1100, 2000, 100), 800, 2000]),
    "concentrations": ([*(f"{n} mg/L" for n in range(9)), "500 \u00b5g/l"], [*map(float, range(9)), 0.5]),
    "how long ago": (
        [f"{n} {'days' if n % 4 == 0 else 'hours'} ago" for n in range(1, 13)],
        [n * (24.0 if n % 4 == 0 else 1.0) for n in range(1, 13)],
    ),
    "minor versions": ([f"3.{n}" for n in range(7, 13)], [float(n) for n in range(7, 13)]),
    "prices of people": (["3.9", "3.10", "3.05"], [3.9, 3.1, 3.05]),
}


@pytest.mark.parametrize(("cells", "meant"), STILL_NUMBERS.values(), ids=STILL_NUMBERS)
def test_numbers_with_bounds_and_words_are_numbers(cells, meant):
    frame = pd.DataFrame({"x": cells})
    assert TableForm.of(frame).read(frame)["x"].tolist() == meant


@pytest.mark.parametrize("stored", [np.int64, str, object])
@pytest.mark.parametrize("parts", [1, 1000])
def test_seconds_since_1970_are_times_in_a_column_of_times(stored, parts):
    numbers = [parts * (1_700_000_000 + 86_400 * n) for n in range(12)]
    frame = pd.DataFrame({name: np.array(numbers).astype(stored) for name in ("created_at", "serial")})
    form = TableForm.of(frame)
    read = form.read(frame)
    assert read["created_at"].iloc[1] == pd.Timestamp("2023-11-15 22:13:20")
    assert form.read(frame[:2])["created_at"].tolist() == read["created_at"].tolist()[:2]
    assert form.columns["serial"].kind == "number"


def test_versions_are_their_numbers():
    for cells in (["v3.9.1", "v3.10.2-rc2", "v2.1"], ["3.9", "3.10.2", "2.1"]):
        assert read(cells)[1] == [3.0, 10.0, 2.0]
    assert form_of(["10.0.0.1", "10.0.0.12", "10.0.3.4"]) is None


def test_texts_of_one_pattern_that_few_rows_have_are_no_numbers():
    builds = [f"Windows 10.0.{n}" for n in range(20)]
    assert form_of([*builds, *["macOS 14.1"] * 30]) is None
    spans = [f"{n}-{n + 3} May 2024" for n in range(1, 25)]
    assert form_of([*spans, *["not until spring"] * 60]) is None


def test_times_of_day_with_points_are_no_minutes_and_seconds():
    frame = pd.DataFrame({"x": ["5:00 a.m.", "8:00 p.m.", "13:00"]})
    assert TableForm.of(frame).read(frame)["x"].dt.total_seconds().tolist() == [18_000, 72_000, 46_800]


YEAR_DAYS = [datetime.date(2000, 1, 3) + datetime.timedelta(days=11 * n) for n in range(33)]
WITHOUT_A_YEAR = {
    "name first": lambda day: f"{day:%b} {day.day}",
    "Excel": lambda day: f"{day:%d-%b}",
    "as Excel writes a month": lambda day: f"{day:%b-%d}",
    "a log": lambda day: f"{day:%b %d} 00:00:00",
    "French": lambda day: f"{day.day} {['avril', 'mars'][day.month % 2]}" if day.month in (3, 4) else f"{day:%d %b}",
    "ordinals": lambda day: f"{day:%B} {day.day}th",
    "digits": lambda day: f"{day:%d/%m}",
    "digits, month first": lambda day: f"{day:%m-%d}",
    "points": lambda day: f"{day.day}.{day.month}.",
    "birthday": lambda day: f"{day.day}/{day.month}",
}


@pytest.mark.parametrize(("name", "written"), WITHOUT_A_YEAR.items(), ids=WITHOUT_A_YEAR)
def test_days_without_a_year_are_dates(name, written):
    lines: list[str] = []
    frame = pd.DataFrame({name: [*map(written, YEAR_DAYS), "n/a"]})
    form = TableForm.of(frame, log=lines.append)
    assert form.read(frame)[name].tolist() == [*map(pd.Timestamp, YEAR_DAYS), pd.NaT]
    assert lines == [f"{name}: read as days without a year, 19/01 as the 19th of January (--category if that is wrong)"]
    saved = TableForm.model_validate_json(form.model_dump_json(exclude_defaults=True))
    assert saved.read(frame.iloc[:1])[name].tolist() == [pd.Timestamp(YEAR_DAYS[0])]


@pytest.mark.parametrize("written", ["{:%b} {:%y}", "{:%y}-{:%b}"])
def test_names_of_months_beside_a_few_years_are_months(written):
    months = [datetime.date(2000 + year, month, 1) for month, year in YEARS]
    frame = pd.DataFrame({"x": [written.format(day, day) for day in months]})
    assert TableForm.of(frame).read(frame)["x"].tolist() == [*map(pd.Timestamp, months)]


@pytest.mark.parametrize(("mark", "kinds"), [("-", ["x"]), (" ", [])])
def test_what_may_be_days_or_years_is_asked_about(mark, kinds):
    """Mar-05 is read as a month, as spreadsheets write it; Mar 05 stays a text."""
    lines: list[str] = []
    form = TableForm.of(pd.DataFrame({"x": [f"Mar{mark}{number:02d}" for number in range(3, 19)]}), log=lines.append)
    assert list(form.columns) == kinds
    advice = f"'Mar{mark}03' may be a day or a month of a year; write 2019-01 for a month, 2000-01-19 for a day"
    assert [line.endswith(advice) for line in lines] == [True]


def test_words_among_days_without_a_year_are_missing_and_told():
    lines: list[str] = []
    frame = pd.DataFrame({"x": [*(f"{day:%b %d}" for day in YEAR_DAYS), *["Now"] * 4]})
    cells = TableForm.of(frame, log=lines.append).read(frame)["x"]
    assert cells.tolist() == [*map(pd.Timestamp, YEAR_DAYS), *[pd.NaT] * 4]
    assert lines[1] == "x: 'now' among dates reads as missing (--text or --category if that is wrong)"


NO_DAYS = {
    "fractions": [f"{over}/{under}" for over in (1, 3, 5, 7, 11, 13) for under in (2, 4, 8)],
    "odds": [f"{over}/{under}" for over in (1, 7, 19, 31) for under in (1, 2, 5)],
    "grades": [f"{points:02d}/20" for points in range(5, 21)],
    "sets": [f"Set {number}" for number in range(1, 31)],
}


@pytest.mark.parametrize("cells", NO_DAYS.values(), ids=NO_DAYS)
def test_what_may_be_no_days_are_no_dates(cells):
    form = TableForm.of(pd.DataFrame({"x": cells}))
    assert "x" not in form.columns or form.columns["x"].kind != "date"


def test_months_of_two_centuries_lie_together_and_are_said():
    lines = []
    frame = pd.DataFrame(
        {"x": [f"{month:02d}/{year % 100:02d}" for year in range(1962, 1972) for month in range(1, 13)]}
    )
    years = TableForm.of(frame, log=lines.append).read(frame)["x"].dt.year
    assert (years.min(), years.max(), years.is_monotonic_increasing) == (1962, 1971, True)
    assert lines == ["x: read as months, 06/23 as June 2023 (--category if that is wrong)"]


@pytest.mark.parametrize("cell", ["Q2 2019", "Q2'19", "2Q19", "Q2/19", "Q2 19", "2q2019", "2019Q2", "2. Quartal 2019"])
def test_quarters_are_dates(cell):
    assert read([cell, "2020Q1"]).tolist()[0] == pd.Timestamp(2019, 4, 1)


def test_tags_within_a_cell_of_a_web_page_stay():
    assert form_of([f"{n}<br>{n + 100}" for n in range(20)]).kind == "parts"


LATE = [datetime.date(2023, 1, 5) + datetime.timedelta(9 * n) for n in range(40)]


def serial(day):
    return (day - datetime.date(1899, 12, 30)).days


@pytest.mark.parametrize("cell", [str, int, float, lambda number: f"{number}.0"])
@pytest.mark.parametrize("written", ["%d/%m/%Y", "%Y-%m-%d", None])
def test_days_of_spreadsheets_among_dates_are_dates_and_said(written, cell):
    lines = []
    cells = [cell(serial(day)) if n % 3 else day.strftime(written) if written else day for n, day in enumerate(LATE)]
    frame = pd.DataFrame({"x": pd.Series(cells, dtype=object)})
    form = TableForm.of(frame, log=lines.append)
    assert form.read(frame)["x"].tolist() == [pd.Timestamp(day) for day in LATE]
    assert lines == [
        "x: numbers among dates are years, days of a spreadsheet, 45231 is 2023-11-01, or seconds from 1970 "
        "(--category if that is wrong)"
    ]


def test_numbers_far_from_dates_are_no_days_of_spreadsheets():
    assert form_of([*map(str, LATE), "12345"]) is None
    assert form_of([*map(str, LATE[:2]), *(str(serial(day)) for day in LATE)]) is None, "hardly any dates"
    assert form_of([str(serial(day)) for day in LATE]).kind == "number"


@pytest.mark.parametrize("first", ["%d.%m.%Y", "%d-%m-%Y"])
def test_two_orders_are_told_apart_by_their_marks(first):
    lines = []
    frame = pd.DataFrame({"x": [day.strftime(first if n % 3 else "%m/%d/%Y") for n, day in enumerate(LATE)]})
    form = TableForm.of(frame, log=lines.append)
    assert form.read(frame)["x"].tolist() == [pd.Timestamp(day) for day in LATE]
    assert lines == ["x: dates with / have the month first, all others the day"]
    known = form_of([f"{day}/13/2021" if day < 9 else f"13.{day}.2021" for day in range(1, 13)] + ["03-04-2021"])
    assert known is None, "a mark of which no cell tells the order"


def test_one_date_of_the_other_order_is_missing_and_said():
    frame = pd.DataFrame({"x": [*(day.strftime("%d/%m/%Y") for day in LATE), "12/31/2023"]})
    with pytest.warns(ColumnWarning, match="1 of 41 cells read as missing, as the column holds dates: '12/31/2023'"):
        assert TableForm.of(frame).read(frame)["x"].isna().sum() == 1


@pytest.mark.parametrize("stored", [serial, str, lambda day: day, lambda day: str(serial(day))])
def test_days_and_months_that_a_spreadsheet_swapped_are_asked_about(stored):
    days = [datetime.date(2023, 1 + n % 12, 1 + n % 28) for n in range(84)]
    cells = [stored(d.replace(month=d.day, day=d.month)) if d.day < 13 else d.strftime("%d/%m/%Y") for d in days]
    lines = []
    TableForm.of(pd.DataFrame({"x": pd.Series(cells, dtype=object)}), log=lines.append)
    assert [line for line in lines if "are up to the 12th of a month, and all others, written as '13/01/2023'" in line]
    honest = [stored(d.replace(day=1)) if n % 2 else d.strftime("%d/%m/%Y") for n, d in enumerate(days)]
    TableForm.of(pd.DataFrame({"x": pd.Series(honest, dtype=object)}), log=(lines := []).append)
    assert not [line for line in lines if "swapped" in line]


REASONS = {
    "in several units: 'kg', 'm', 's'": [f"{n}.50 {'m' if n > 17 else 's' if n > 15 else 'kg'}" for n in range(20)],
    "write all in one order, such as 2024-05-31": [
        *(f"{day}/1/2021" for day in range(13, 25)),
        "1/25/2021",
    ],
    "not 'V58'": [*map(str, range(20)), "V58"],
}


@pytest.mark.parametrize(("why", "cells"), REASONS.items())
def test_numbers_and_dates_that_are_read_as_texts_are_said(why, cells):
    lines = []
    assert form_of(cells, log=lines.append) is None
    assert len(lines) == 1
    assert lines[0].endswith(why)


UNITS = {
    "12 kg": ["12 kg", 12.0],
    "pounds among kilograms": ["10 kg", 10.0, "12 kg", 12.0, "2 lbs", 0.90718474],
    "meters and centimeters": ["1m80", 1.8, "1m65", 1.65, "2 m", 2.0],
    "feet and inches": ["6'", 6.0, "5'6\"", 5.5, "5 ft 9 in", 5.75],
    "hours and minutes": ["1h 30m", 1.5, "2h", 2.0, "45 min", 0.75],
    "years and months": ["6 yrs 6 mos", 6.5, "4y 3m", 4.25, "14.5 years", 14.5, "9 mos", 0.75],
    "months beside years": ["6y 6m", 6.5, "11y", 11.0, "9m", 0.75],
    "thousands and millions": ["1.5k", 1500.0, "2M", 2e6, "350", 350.0],
    "money without its sign": ["$7,500", 7500.0, "7.5k", 7500.0, "$8k", 8e3],
    "meters and kilometers": ["3 m", 3.0, "4 m", 4.0, "2 km", 2000.0],
    "two temperatures": ["37 \u00b0C", 37.0, "36.5 C", 36.5, "98.6 F", 37.0, "212 \u00b0F", 100.0],
    "millions of money": ["$1.5M", 1.5e6, "$20k", 2e4, "$7", 7.0],
    "meters, not millions": ["3 m", 3.0, "4 m", 4.0],
    "at least": ["~7", 7.0, ">9", 9.0, "65+", 65.0],
    "watts": ["3.264 kW", 3.264, "1.5 kW", 1.5, "820 W", 0.82],
    "credit and debit": ["500.50 Cr", 500.5, "20 Dr", -20.0, "7 dr", -7.0],
    "before and after": ["44 BC", -44.0, "14 AD", 14.0, "9 AD", 9.0],
    "free among prices": ["$1.50", 1.5, "Free", 0.0, "$3", 3.0],
    "ranges among numbers": ["3", 3.0, "2-4", 3.0, "10", 10.0, "5+", 5.0],
    "dollars and euros": ["€5", 5.0, "$7", 7.0],
    "marks of notes": ["12", 12.0, "15 b", 15.0, "9", 9.0, "14 p", 14.0, "20", 20.0],
    "thousands, no notes": ["950", 950.0, "2 k", 2e3, "12", 12.0],
    "hemispheres": ["42.5N", 42.5, "3.25S", -3.25, "7N", 7.0],
    "shares in words": ["12%", 12.0, "12.5 percent", 12.5, "3 pct", 3.0],
    "ages in words": ["31 years old", 31.0, "40 yrs", 40.0, "56 y/o", 56.0],
    "square feet and meters": ["1,000 sq ft", 1000.0, "900 sqft", 900.0, "9.290304 m\u00b2", 100.0],
    "powers": ["100 hp", 100.0, "90 hp", 90.0, "0.745699872 kW", 1.0],
    "a number without a unit": ["1.80 m", 180.0, "1.60 m", 160.0, "172 cm", 172.0, "165", 165.0],
    "kitchens": ["350 kcal", 350.0, "200 cal", 200.0, "100 kJ", 23.9006],
    "pressures": ["1008 hPa", 1008.0, "991 mbar", 991.0, "1 bar", 1000.0, "1015", 1015.0],
    "pieces and dozens": ["12 pcs", 12.0, "2 doz", 24.0, "7 pc", 7.0],
    "years and months in Swedish": ["9 år 1 mån", 109.0, "24 mån", 24.0, "7 mån", 7.0],
    "from so many on": ["30+ days", 30.0, "2 weeks", 14.0, "5 days", 5.0],
    "places": ["No. 37", 37.0, "no 4", 4.0, "Nr. 12", 12.0, "N\u00ba 3", 3.0],
    "what is left": ["only 3", 3.0, "noch 12", 12.0, "20", 20.0],
    "years of print": ["c1997", 1997.0, "\u00a92001", 2001.0, "[1974]", 1974.0, "1980", 1980.0],
    "times in words": ["never", 0.0, "once", 1.0, "twice", 2.0, "3 times", 3.0, "5 times", 5.0],
    "stars": ["\u2605\u2605\u2605\u2606", 3.0, "\u2605\u2605\u2605\u2605", 4.0, "\u2606\u2606\u2606\u2606", 0.0],
}


@pytest.mark.parametrize("cells", UNITS.values(), ids=UNITS)
def test_numbers_with_units_are_numbers_in_one_unit(cells):
    np.testing.assert_allclose(read(cells[::2]), cells[1::2], rtol=1e-12)


SEVERAL = {
    "words": ([f"{('sunny', 'fog')[n % 2]} {n}" for n in range(20)], [3.0, 1.0, 0.0]),
    "stays of a day": ([f"{n} May 2024" if n % 2 else f"{n}~{n + 2} May 2024" for n in range(1, 21)], [19847.0, 2.0]),
    "words after a unit": ([f"{n} km/h {'NE'[n % 2]}" for n in range(20)], [3.0, 1.0, 0.0]),
    "directions": (
        [f"{['N', 'NE', 'E', 'SE', 'S', 'SW', 'W', 'NW'][n % 8]} {n} km/h" for n in range(40)],
        [3.0, *[0.0] * 5, 1.0, 0.0, 0.0],
    ),
    "units of several quantities": ([f"{n} {('kg', 'boxes')[n % 2]}" for n in range(20)], [3.0, 1.0, 0.0]),
    "money worth much more": ([f"{'$¥'[n % 2]}{n * (1 + 99 * (n % 2))}.50" for n in range(20)], [300.5, 0.0, 1.0]),
    "days": ([f"{n + 1}-{n + 3} May 2024" for n in range(20)], [19847.0, 2.0]),
    "days of two months": ([f"{n + 1}. April - {n + 2}. Mai 2024" for n in range(20)], [19817.0, 31.0]),
    "numbered words": ([f"Reihe {n % 5} Platz {n}" for n in range(20)], [3.0, 3.0]),
    "a number and its plural": ([f"{n} Erw." + " + 2 Kinder" * (n % 3 > 0) for n in range(20)], [3.0, 0.0]),
    "numbers that some end before": ([str(n) if n % 3 else f"{n} ({n + 7} reg)" for n in range(20)], [3.0, 10.0]),
}


@pytest.mark.parametrize(("cells", "fourth"), SEVERAL.values(), ids=SEVERAL)
def test_numbers_with_words_and_spans_of_days_are_vectors(cells, fourth):
    written, form = cells, TableForm.of(pd.DataFrame({"x": cells}))
    cells = read(cells)
    assert cells[3] == fourth
    assert {len(cell) for cell in cells} == {len(fourth)}
    form = TableForm.model_validate_json(form.model_dump_json())
    texts = form.written(form.read(pd.DataFrame({"x": written})))
    if "..." not in texts["x"][0]:  # a number in which no cell differs
        assert form.read(texts)["x"].tolist() == cells.tolist()
    told = pytest.warns(CellWarning, match="hail 7") if form.columns["x"].kind == "parts" else contextlib.nullcontext()
    with told:  # a gap, and a word that no row had
        again = form.read(form.read(pd.DataFrame({"x": [None, written[0], "hail 7"]})))["x"]
    assert {len(cell) for cell in again} == {len(fourth)}


@pytest.mark.parametrize(
    "cells",
    [
        ["Shop 1", "Shop 2"] * 9,
        [f"{('Shop', 'Kiosk')[n % 2]} {n % 12}" for n in range(240)],
        [f"{n}/{n + n % 2}" if n % 3 else str(n) for n in range(30)],
        [f"{'ABC'[n % 3]}-{n}-2" for n in range(30)],
    ],
)
def test_names_with_numbers_are_no_vectors(cells):
    assert form_of(cells) is None


def test_times_without_a_mark_are_times_of_day_and_codes_are_not():
    hours = [f"{n:02d}{15 * (n % 4):02d}" for n in range(24)]
    form = TableForm.of(pd.DataFrame({"x": hours}))
    assert form.read(pd.DataFrame({"x": ["0930", "2359"]}))["x"].tolist() == [
        datetime.timedelta(hours=9, minutes=30),
        datetime.timedelta(hours=23, minutes=59),
    ]
    assert read([f"{hour} hrs" for hour in hours])[1] == datetime.timedelta(hours=1, minutes=15)
    assert form.read(pd.DataFrame({"x": [930]}))["x"].tolist() == [datetime.timedelta(hours=9, minutes=30)]
    assert form_of([f"{n:02d}00" for n in range(24)]) is None  # numbers of departments
    assert form_of([f"{n:04d}" for n in range(24)]) is None


def test_days_of_a_year_are_dates():
    assert read([f"2024-{n:03d}" for n in range(32, 366, 20)])[0] == pd.Timestamp("2024-02-01")
    assert form_of([f"2024-{n:03d}" for n in range(1, 33)]) is None, "numbers of invoices"
    assert form_of([f"2024-{n:03d}" for n in range(360, 380)]).kind == "parts"


def test_ranges_in_several_forms_are_their_middles():
    cells = [f"\u00a3{n}k - \u00a3{n + 2}k" if n % 2 else f"\u00a3{n},000 - \u00a3{n + 2},000" for n in range(20, 40)]
    assert read(cells).tolist()[:2] == [21e3, 22e3]


@pytest.mark.parametrize("cells", [["12 kg", "3 m"], ["4 %", "4 kg"], ["12A", "13B"], ["1.jpg"]])
def test_units_of_different_quantities_are_left_alone(cells):
    assert form_of(cells) is None


def test_a_unit_that_the_fit_did_not_see_is_converted_or_refused():
    form = TableForm.of(pd.DataFrame({"x": ["1 kg", "2 kg"]}))
    assert form.read(pd.DataFrame({"x": ["500 g", "3"]}))["x"].tolist() == [0.5, 3.0]
    with pytest.raises(ColumnError, match=r"^x: expected numbers in kg in row 0, got numbers in km: '5 km'"):
        form.read(pd.DataFrame({"x": ["5 km"]}))


@pytest.mark.parametrize("odd", ["see note", "***", "inf"])
def test_a_few_odd_cells_are_gaps_and_said(odd):
    cells = [*map(str, range(19)), odd]
    with pytest.warns(
        ColumnWarning, match=rf"^x: 1 of 20 cells read as missing, .* numbers: .*{re.escape(odd)}.* row 19"
    ):
        numbers = read(cells)
    assert numbers[:19].tolist() == list(range(19))
    assert np.isnan(numbers[19])


def test_codes_few_numbers_and_many_odd_cells_are_no_numbers_with_gaps():
    assert form_of([*map(str, range(400, 439)), "V58"]) is None
    assert form_of([*"123456789", "many"]) is None
    assert form_of([*map(str, range(19)), "many", "more"]) is None


@pytest.mark.parametrize("written", ["{}x{} cm", "{} bd | {} ba"])
def test_a_text_without_the_numbers_of_its_column_is_missing_and_said(written):
    cells = [written.format(10 + n, 20 + n % 7) for n in range(11)]
    form = TableForm.of(pd.DataFrame({"size": cells}))
    new = pd.DataFrame({"size": [cells[0], "as usual", None, written.format(15, 23)]})  # the last as the medians
    with pytest.warns(ColumnWarning, match="1 of 4 cells read as missing, .*: 'as usual' in row 1"):
        read_cells = form.read(new)["size"].tolist()
    assert read_cells[1] == read_cells[2] == list(form.columns["size"].typical.values())


def test_a_row_alone_without_any_named_number_is_read_as_usual_and_said():
    form = TableForm.of(
        pd.DataFrame({"size": [f"{n % 7} bd | {20 + n} m" if n % 2 else f"{20 + n} m" for n in range(20)]})
    )
    with pytest.warns(CellWarning, match="1 of 1 cells read as missing, .*: 'Loft' in row 0"):
        assert form.read(pd.DataFrame({"size": ["Loft"]}))["size"].tolist() == [
            list(form.columns["size"].typical.values())
        ]


def test_a_saved_form_with_names_without_numbers_is_refused():
    with pytest.raises(ValueError, match="expected a number for each of 2 names, got 1"):
        ColumnForm(kind="fields", beside=("# bd", "studio"), typical={0: 1.0})


def test_one_wild_cell_of_new_rows_is_a_gap_and_a_column_of_them_is_refused():
    form = TableForm.of(pd.DataFrame({"x": [1.5, 2.5], "day": ["25/04/2021", "26/04/2021"]}))
    new = pd.DataFrame({"x": ["1.0", "abc", "1e999"], "day": ["01/02/2021", "04/25/2021", ""]})
    with pytest.warns(ColumnWarning) as warned:
        assert form.read(new.iloc[[0, 0, 1, 2]])["x"].isna().tolist() == [False, False, True, True]
    assert [str(each.message).partition(":")[0] for each in warned] == ["x", "day"]
    with pytest.raises(ColumnError, match=r"^day: expected dates written day first in row 1"):
        form.read(new.iloc[[1]])


def test_whole_numbers_that_are_all_days_are_dates():
    days = pd.date_range("2024-01-28", periods=12)
    written = days.strftime("%Y%m%d")
    for cells in (written.tolist(), written.astype(int).tolist()):
        assert read(cells).tolist() == days.tolist()
        assert read(cells[:9]).tolist() == written[:9].astype(int).tolist(), "few may be numbers"
    assert form_of([*written.astype(int).tolist(), 20241301]).kind == "number"


def test_words_that_differ_in_case_alone_are_one_category_spelled_as_usual():
    lines = []
    form = TableForm.of(
        pd.DataFrame({"x": ["Yes", "yes ", "YES", "Yes", "maybe", "MM", "mm", "mm", "-"]}), log=lines.append
    )
    new = pd.DataFrame({"x": [" yes", "YeS", "MM", "maybe", "Maybe", "-"]})
    assert form.read(new)["x"].tolist() == ["Yes", "Yes", "mm", "maybe", "Maybe", None]
    assert len(lines) == 1
    assert lines[0].startswith("x: several spellings are one category: ")
    assert {"'Yes'", "'mm'"} == set(lines[0].partition("category: ")[2].split(", "))
    assert TableForm.model_validate_json(json.dumps(form.model_dump(exclude_defaults=True))) == form
    assert read(["New York", "New\u00a0York", "new  york"]).tolist() == ["New York"] * 3


@pytest.mark.parametrize(
    ("cells", "new", "counts"),
    [
        (["FeWo", "FeWo", "FEWO", "fewo", "Suite"], "fewo", {"FeWo": 5, "Suite": 1}),
        (["Full-time", "Full-time", "full time", "full_time.", "other"], "FULL TIME", {"Full-time": 5, "other": 1}),
        (["K\u00f6ln", "K\u00f6ln", "K\u00c3\u00b6ln", "Koln"], "koln", {"K\u00f6ln": 5}),
        (["male", "male", "M", "f", "female", "female"], "m", {"male": 4, "female": 3}),
        (["a", "ab", "abnormal"], "a", {"a": 2, "ab": 1, "abnormal": 1}),
        (
            ["Ann", "Anna", "Dan", "Daniel", "Mary", "Paul", "Sarah"],
            "Ann",
            {"Ann": 2, **dict.fromkeys(["Anna", "Dan", "Daniel", "Mary", "Paul", "Sarah"], 1)},
        ),
    ],
)
def test_spellings_and_abbreviations_of_a_word_are_one_category(cells, new, counts):
    read = TableForm.of(pd.DataFrame({"x": cells})).read(pd.DataFrame({"x": [*cells, new]}))["x"]
    assert read.value_counts().to_dict() == counts


@pytest.mark.parametrize(
    "cells", [["AA", "Aa", "aa"], ["a", "A"], ["pH", "PH"], [f"{w} {n}" for w in "aA" for n in range(60)]]
)
def test_words_whose_case_tells_are_several_categories(cells):
    assert form_of(cells) is None


def test_words_beside_some_numbers_are_left_out_and_named():
    prices = [
        *(f"\u00a3{1000 + 7 * n:,}" for n in range(12)),
        *(f"\u00a3{n}.5k ono" for n in range(5, 8)),
        "9,100 GBP +VAT",
    ]
    lines = []
    form = TableForm.of(pd.DataFrame({"x": prices}), log=lines.append)
    assert form.columns["x"].beside == ("# +vat", "# ono")
    assert read([*prices, *["\u00a3950 monthly"] * 3]).tolist()[-1] == 950, "no millions"
    shown = "x: read without the words beside numbers or dates: '+vat', 'ono' (--category or --text if that is wrong)"
    assert lines == [shown]
    assert form.read(pd.DataFrame({"x": prices}))["x"].tolist()[11:] == [1077.0, 5500.0, 6500.0, 7500.0, 9100.0]
    with pytest.warns(ColumnWarning, match="'8k o.b.o.' in row 2"):
        new = form.read(pd.DataFrame({"x": ["\u00a36,500 ONO", "7.5k", "8k o.b.o."]}))
    assert new["x"].tolist()[:2] == [6500.0, 7500.0]
    assert np.isnan(new["x"][2])
    assert TableForm.model_validate_json(json.dumps(form.model_dump(exclude_defaults=True))) == form


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["one", "Two", "ten", "12", "none"], [1, 2, 10, 12, None]),
        (["same day", "next day", "3 days"], [0, 1, 3]),
        (["no eggs", "1 egg", "3 eggs"], [0, 1, 3]),
        (["1.5G", "512M", "4K"], [1.5, 0.512, 4e-6]),
        (["500g", "1.2k"], [500, 1200]),
        (["142 tkm", "88.000 km", "1.500,5 km"], [142_000, 88_000, 1500.5]),
        (["1,020.0 hPa", "30.00 inHg"], [1020, 1015.917]),
    ],
)
def test_words_and_letters_that_are_numbers_beside_numbers(cells, values):
    assert [None if np.isnan(cell) else round(cell, 6) for cell in read(cells).astype(float)] == values


def test_words_for_numbers_beside_ranges_are_these():
    cells = [*(f"{n}-{n + 2} days" for n in range(2, 14)), "same day", "overnight"] * 2
    assert read(cells).tolist()[10:14] == [13, 14, 0, 1]


def test_words_that_turn_a_sign_are_not_left_out():
    cells = [f"-{n} %" if n % 2 else f"{n}% off" for n in range(5, 45)]
    form = form_of(cells)
    assert (form.kind, form.beside) == ("worded", ("# %", "# % off"))


def test_no_thing_is_a_number_where_no_cell_counts_it():
    assert form_of(["no pets", "cats", "2 dogs"] * 4) is None


def test_wind_keeps_its_directions_beside_a_calm():
    cells = [*(f"{way} {n} km/h" for n in range(3, 15) for way in ("NE", "SW")), "calm"]
    assert form_of([*cells, "lull"]).kind == "worded"
    assert form_of([*map(str, range(11)), *(f"{n} shared baths" for n in range(12))]).kind == "worded"
    form = form_of(cells)
    assert (form.kind, form.beside) == ("worded", ("ne #", "sw #"))
    assert form_of([f"{n:.2f}" if n % 2 else f"pH {n:.2f}" for n in range(5, 30)]).beside == ("ph #",)
    assert read(cells).tolist()[::24] == [[3.0, 1.0, 0.0], [0.0, 0.0, 0.0]]


def test_words_after_times_are_left_out():
    times = [f"1:{n}.5{' PB' if n % 4 == 0 else ' SB' if n % 4 == 1 else ''}" for n in range(10, 40)]
    assert read(times).dt.total_seconds().tolist() == [60.5 + n for n in range(10, 40)]


def test_opening_hours_are_the_time_from_and_how_long():
    ways = ("{0}:00-{1}:30", "0{0}:00 \u2013 {1}:30", "{0} am - {2}:30 pm", "{0}:00am-{2}:30PM")
    cells = [ways[n % 4].format(n, end, end - 12) for n in range(6, 10) for end in range(17, 21)]
    form, read_as = form_of(cells), read(cells).tolist()
    hours = np.array([[n, end - n + 0.5] for n in range(6, 10) for end in range(17, 21)])
    np.testing.assert_allclose(np.array(read_as) * 24, hours, atol=1e-9)
    frame = pd.DataFrame({"x": read_as})
    assert TableForm(columns={"x": form}).written(frame)["x"][0] == "06:00 - 17:30"
    assert span_of("1:30 - 2:45 pm")[0].day_first.hour == 13
    assert span_of("22:00-06:00")[1].day_first.day == 2
    for other in ("{0}:1{1}-{1}", "{0} h - 1{1} h", "{0}:{1} - 2:1"):  # verses, lengths and scores of sets
        assert span_of(other.format(3, 4)) is None


def test_years_among_months_are_their_first_days():
    cells = [f"{month:02d}/201{month % 4}" for month in range(1, 13)]
    assert read([*cells, "2012", "2010"]).tolist()[-2:] == [pd.Timestamp("2012-01-01"), pd.Timestamp("2010-01-01")]
    assert form_of([*cells, "1512", "1515"]) is None, "far from all others"
    months = [f"{month:02d}/{year}" for month in range(1, 13) for year in (21, 22, 23)]
    form = form_of([*months, *["neu"] * 5])
    assert (form.sign, form.gaps) == ("mm/yy", ("neu",))


def test_items_on_lines_are_sets():
    cells = ["- Salt\r\n- Red wine, dry", "- Red wine, dry", "* Salt", "1. Salt\n2. Figs", "n/a"] * 5
    form, dry = form_of(cells), "Red wine, dry"
    assert (form.kind, form.around) == ("list", "\n")
    assert read(cells).tolist()[:5] == [["Salt", dry], [dry], ["Salt"], ["Salt", "Figs"], None]
    assert form_of([f"{n} Oak St\nBerlin {n % 3}" for n in range(40)]).kind != "list"


def test_numbers_with_and_without_their_words_are_one_scale():
    steps = form_of(["1 - disagree", "1", "2 - neutral", "3 - agree", "3"]).steps
    assert steps == {"1 - disagree": 1, "1": 1, "2 - neutral": 2, "3 - agree": 3, "3": 3}
    assert form_of(["1 - disagree", "1 - strongly disagree", "2 - neutral", "3 - agree"]) is None
    assert read(["S", "Medium", "x-large", "XXL", "small"]).tolist() == [0, 1, 2, 3, 0]


def test_decimals_after_one_word_are_numbers():
    form = form_of([f"pH {n / 10:.1f}" for n in range(60, 80)])
    assert (form.kind, form.beside) == ("number", ("ph #",))


@pytest.mark.parametrize(
    "cells",
    [
        [f"{n} {street} St" for n in range(5) for street in ("Main", "Oak", "Elm")],
        [f"Store {n}" for n in range(20)],
        [f"Python 3.{n}" for n in range(20)],
        [f"B{n / 100:.2f}" for n in range(101, 130)],
        [*map(str, range(12)), "3 red", "4 blue"],
    ],
    ids=["addresses", "names", "versions", "rooms", "words in single rows"],
)
def test_words_that_tell_rows_apart_stay(cells):
    form = form_of(cells)
    assert form is None or not form.beside


def test_dates_among_words_are_dates():
    days = pd.date_range("2024-01-28", periods=12)
    cells = [*("valid until " + days.strftime("%d.%m.%Y")), *("from " + days[:3].strftime("%d %b %Y"))]
    assert read(cells).tolist() == [*days, *days[:3]]
    built = read([*(f"Bj. {1900 + 9 * n}" for n in range(12)), "k. A.", "k. A.", "k. A."])
    np.testing.assert_array_equal(built, [*range(1900, 2008, 9), np.nan, np.nan, np.nan])


@pytest.mark.parametrize("word", ["sofort", "expired"])
def test_words_that_stand_often_among_dates_are_gaps_however_many(word):
    days = pd.date_range("2024-01-28", periods=12)
    lines = []
    cells = [*("until " + days.strftime("%d.%m.%Y")), *[word] * 30, "odd one"]
    form = TableForm.of(pd.DataFrame({"x": cells}), log=lines.append).columns["x"]
    assert (form.kind, form.gaps, form.beside) == ("date", (word,), ("until #",))
    assert lines[1] == f"x: {word!r} among dates reads as missing (--text or --category if that is wrong)"
    assert form_of([*days.strftime("%d.%m.%Y"), *(f"{word} {n % 4}" for n in range(40))]) is None, "many words"
    number = form_of([*map(str, range(30)), *["<LOD"] * 4, "mg/L"])
    assert (number.kind, number.gaps) == ("number", ("<lod",))


def test_measures_among_words_are_numbers():
    assert read([f"{n} days ago" for n in range(2, 14)]).tolist() == [*range(2, 14)]
    assert read([*(f"{n} days ago" for n in range(2, 14)), *["1 week ago"] * 3])[12] == 7
    assert form_of([f"{n} in {('Bern', 'Wien')[n % 2]}" for n in range(20)]).sign == "", "no inches"
    assert read([f"\u5f92\u6b69{n}\u5206" for n in range(12)]).tolist() == [*range(12)]


@pytest.mark.parametrize(
    ("cell", "month"),
    [
        ("5 janv. 2023", 1),
        ("1er mai 2023", 5),
        ("12 listopada 2023", 11),
        ("7 \u043c\u0430\u044f 2023", 5),
        ("03/Jun/23 11:14 AM", 6),
    ],
)
def test_months_as_people_call_them(cell, month):
    assert (read([cell])[0].year, read([cell])[0].month) == (2023, month)


def test_an_order_of_day_and_month_that_the_fit_did_not_see_is_what_the_column_shows():
    form = TableForm.of(pd.DataFrame({"x": ["2024-09-30", "2024-04-03"]}))
    assert form.read(pd.DataFrame({"x": ["30/09/2024", "03/04/2024"]}))["x"].tolist() == [
        pd.Timestamp("2024-09-30"),
        pd.Timestamp("2024-04-03"),
    ]
    with pytest.raises(ColumnError, match="expected dates written without doubt in row 0"):
        form.read(pd.DataFrame({"x": ["03/04/2024", "04/05/2024"]}))


ANSWERS = ["Price; Quality", "Quality;Speed", "Price", "Speed", "Quality", "Speed; Price", "Price;Quality;Speed;"] * 3


@pytest.mark.parametrize("mark", [";", "|", ",", " / "])
def test_words_between_marks_are_sets_and_said(mark):
    lines = []
    cells = [(cell if len(mark) == 1 else cell.rstrip(";")).replace(";", mark) for cell in ANSWERS]
    form = TableForm.of(pd.DataFrame({"x": cells}), log=lines.append)
    assert lines == [f"x: read as sets of words between {mark!r} (--category or --text if that is wrong)"]
    assert form.read(pd.DataFrame({"x": cells[5:7]}))["x"].tolist() == [
        ["Speed", "Price"],
        ["Price", "Quality", "Speed"],
    ]
    assert not TableForm.of(pd.DataFrame({"x": cells}), targets=["x"]).columns, "a target names one class"
    assert not form.of_target("x").columns
    new = form.read(pd.DataFrame({"x": [f"New{mark}Price", "n/a", ["Price"]]}))["x"].tolist()
    assert new == [["New", "Price"], None, ["Price"]]
    assert TableForm.model_validate_json(json.dumps(form.model_dump(exclude_defaults=True))) == form


def test_sets_of_many_words_may_have_some_that_are_rare():
    """As films have languages: most are spoken in many of them, a third in one, and some always come first."""
    usual = [f"{one}, {other}" for one in LANGUAGES for other in LANGUAGES if one != other]
    form = form_of([*usual, *(f"rare{chr(97 + n)}, {LANGUAGES[n]}" for n in range(20)), *LANGUAGES])
    assert (form.kind, form.around) == ("list", ",")


LANGUAGES = [f"{first}{last}" for first in "abcdefgh" for last in "mnopqrs"]


@pytest.mark.parametrize(
    "cells",
    [
        [f"{city}, {state}" for city, state in zip("abcdefghij", "AABBBCCCDD", strict=True)] * 3,
        [f"well, {n} words" for n in range(60)],
        ["b2b", "summer; vip"] * 9,
        [f"{n}; {n + 1}" for n in range(5)] * 9,
        [f"on a {street} street, {state}" for street in ("quiet", "busy", "long") for state in ("new", "worn", "old")]
        * 4,
    ],
    ids=["towns", "sentences", "no fewer words than cells", "numbers", "parts that keep their places"],
)
def test_other_texts_with_marks_are_no_sets(cells):
    form = form_of(cells)
    assert form is None or form.kind != "list"


def thousands(values, mark, sign=""):
    return [f"{value:,}".replace(",", mark) + sign for value in values]


@pytest.mark.parametrize(
    ("cells", "decimal"),
    [
        (thousands(range(700, 15_000, 601), "."), ","),
        (thousands(range(7_000, 15_000, 601), ".", " \u20ac"), ","),
        (thousands(range(7_000, 15_000, 601), ",", " $"), "."),
        (thousands(range(7_000, 15_000, 601), "."), None),
        (thousands(range(7_000, 15_000, 601), ".", " kg"), None),
        ([*thousands(range(1_264, 9_000, 601), ".", " kW"), "820 W"], None),
        (thousands(range(1_111, 2_000, 61), ".", " \u20ac"), None),
        ([*thousands(range(700, 15_000, 601), "."), "1200"], None),
        ([*thousands(range(7_000, 15_000, 601), "."), "0", "-99"], None),
        (thousands(range(700, 7_000, 901), "."), None),
    ],
    ids=[
        "some too small",
        "money",
        "dollars",
        "decimals",
        "weights",
        "two units",
        "fuel",
        "a plain thousand",
        "gaps",
        "few",
    ],
)
def test_three_digits_after_every_mark_are_thousands_in_money_or_beside_smaller_numbers(cells, decimal):
    form = form_of(cells)
    assert (form.decimal, form.certain, form.open) == (decimal or ".", decimal is not None, decimal is None)


@pytest.mark.parametrize("written", ["{:%y-%m-%d}", "{:%y/%m/%d}", "{0.day}.{0.month}.{0:%y}", "{:%Y_%m_%d}"])
def test_days_with_a_short_year_are_dates_where_the_column_shows_the_order(written):
    days = pd.date_range("2019-01-25", periods=60, freq="17D")
    assert read([written.format(day) for day in days]).tolist() == days.tolist()
    assert form_of(["1.2.3", "2.0.1", *(f"{n // 5}.{n % 5}.{n}" for n in range(5, 30))]).kind == "parts"


@pytest.mark.parametrize("written", ["{}-{:02}", "{}/{:02}", "FY{}-{:02}"])
def test_seasons_are_years_unless_all_may_be_months(written):
    years = [2009, 2010, 2011, 2012, 2013]
    seasons = [written.format(year, (year + 1) % 100) for year in years]
    assert read(seasons).dt.year.tolist() == years
    assert form_of([season.removeprefix("FY") for season in seasons[:3]]).sign == ""


def test_a_first_of_january_far_before_all_other_dates_is_a_gap_and_said():
    lines = []
    cells = [f"2021-{1 + n % 12:02}-{1 + n % 28:02}" for n in range(60)] + ["1900-01-01"] * 3
    assert read(cells, log=lines.append).isna().tolist() == [False] * 60 + [True] * 3
    assert [line for line in lines if line.startswith("x: 1900-01-01 among dates reads as missing")]
    assert read([*cells[:60], "1900-01-01", "1900-01-02", "1900-01-03"]).notna().all()


def test_numbers_with_either_mark_before_decimals_are_read_by_their_own_and_said():
    lines = []
    cells = [f"{n}{',.'[n % 3 == 0]}5" for n in range(20)]
    assert read(cells, log=lines.append).tolist() == [n + 0.5 for n in range(20)]
    assert lines == ["x: most cells have a comma before decimals, others a point; each is read by its own"]


def test_years_of_two_digits_lie_where_the_column_is_shortest():
    births = [f"{month}/13/{year:02d}" for month, year in enumerate([35, 54, 68, 70, 88, 99, 0, 4], start=1)]
    assert read(births).dt.year.tolist() == [1935, 1954, 1968, 1970, 1988, 1999, 2000, 2004]
    assert read(["1/13/19", "2/13/24", "3/13/68"]).dt.year.tolist() == [2019, 2024, 2068], "none is nearer to 1999"
    form = TableForm.of(pd.DataFrame({"x": births}))
    assert form.columns["x"].first_year == 1935
    assert form.read(pd.DataFrame({"x": ["2/29/36", "2/28/2036"]}))["x"].dt.year.tolist() == [1936, 2036]
    late = TableForm.of(pd.DataFrame({"x": ["1/13/01", "2/28/99"]}))
    assert late.columns["x"].first_year is None, "1999 to 2001, as in POSIX"
    early = TableForm(columns={"x": ColumnForm(kind="date", day_first=False, first_year=1900)})
    assert early.read(pd.DataFrame({"x": ["2/29/00"]}))["x"].tolist() == [pd.Timestamp("1900-02-28")]


def test_letters_before_digits_are_no_lengths_of_time():
    assert form_of([f"P{n:04d}" for n in range(20)]) is None
    assert read(["7h30", "7 hrs", "PT5M"]).dt.total_seconds().tolist() == [27000.0, 25200.0, 300.0]


SCALES = {
    "agreement": {"Strongly disagree": 0, "disagree": 1, "Neutral": 2, "agree": 3, "Strongly Agree": 4},
    "some of it": {"disagree": 0, "neutral": 1, "strongly agree": 2},
    "how often": {"Nie": 0, "manchmal": 1, "h\u00e4ufig": 2, "immer": 3},
    "schools": {"high school": 0, "Bachelor's": 1, "PhD": 2},
    "grades": {"C": 0, "B-": 1, "B": 2, "A+": 3},
    "numbers explained": {"1 - very bad": 1, "2": 2, "3": 3, "5 - very good": 5},
    "in brackets": {"very bad (1)": 1, "bad (2)": 2, "good (4)": 4},
    "years": {"Less than a year": 1, "1 to 2 years": 1.5, "3-4 years": 3.5, "5 to 9 years": 7, "10 or more years": 10},
    "ages": {"Under 18": 18, "18-24": 21, "25 to 34": 29.5, "35-49": 42, "50 or older": 50},
    "incomes": {"< $20k": 20e3, "$20k - $40k": 30e3, "$40k - $60k": 50e3, "60,000 to 99,999": 79999.5},
}


@pytest.mark.parametrize("steps", SCALES.values(), ids=SCALES)
def test_words_that_are_steps_of_a_scale_are_numbers_and_said(steps):
    lines, cells = [], [*steps, *steps, "n/a", "don't know"]
    form = TableForm.of(pd.DataFrame({"x": cells}), log=lines.append)
    assert form.columns["x"].kind == "scale"
    assert lines[0].startswith("x: read as steps of a scale, lowest first: ")
    meant = form.read(pd.DataFrame({"x": cells}))
    np.testing.assert_array_equal(meant["x"], [*steps.values()] * 2 + [np.nan] * 2)
    pd.testing.assert_frame_equal(form.read(meant), meant)
    assert TableForm.model_validate_json(json.dumps(form.model_dump(exclude_defaults=True))) == form
    assert not TableForm.of(pd.DataFrame({"x": cells}), targets=["x"]).columns, "a target names classes"
    assert not form.of_target("x").columns
    assert form_of(cells, kinds={"x": "category"}) is None or form_of(cells, kinds={"x": "category"}).kind == "words"


@pytest.mark.parametrize(
    "cells",
    [
        ["A", "B", "C", "D"],
        ["A+", "A-", "B+", "B-", "AB+"],
        ["A+", "A-", "B+"],
        ["good", "bad", "fair", "blue"],
        ["satisfied", "neutral"],
        ["1 - North", "2 - South", "3 - East"],
        ["Store 1", "Store 2", "Store 3"],
        ["6-4", "7-5", "7-6", "3-6"],
        ["1-0", "0-1", "1/2-1/2"],
        ["2019-20", "2020-21", "2021-22"],
        ["01-02", "03-04", "05-06"],
        ["555-1234", "556-2345", "557-9876"],
        ["1.9.0", "1.10.0", "1.11.1", "2.0.0"],
    ],
    ids=lambda cells: cells[0],
)
def test_names_scores_and_codes_are_no_scales(cells):
    form = form_of(cells * 4)
    assert form is None or form.kind == ("date" if cells[0] == "2019-20" else "parts")


def test_a_range_and_a_word_of_a_scale_that_the_fit_did_not_see():
    form = TableForm.of(pd.DataFrame({"x": ["18-24", "25-34", "35-44"]}))
    with pytest.warns(ColumnWarning, match="1 of 3 cells read as missing, as the column holds steps of a scale"):
        new = form.read(pd.DataFrame({"x": ["45-54", "65+", "old"]}))["x"]
    np.testing.assert_array_equal(new, [49.5, 65.0, np.nan])
    form = TableForm.of(pd.DataFrame({"x": ["disagree", "neutral", "agree"]}))
    new = form.read(pd.DataFrame({"x": ["Somewhat agree", "strongly agree", "agree"]}))["x"]
    np.testing.assert_array_equal(new, [1.5, 2.0, 2.0])


def test_times_in_one_number_are_dates():
    times = pd.date_range("2024-01-28 10:15", periods=12, freq="37h")
    written = times.strftime("%Y%m%d%H%M%S")
    for cells in (written.tolist(), written.astype(int).tolist()):
        assert read(cells).tolist() == times.tolist()


def test_words_among_times_are_gaps():
    cells = [*(f"{38 + n}:{10 + n}" for n in range(12)), "1:02:03", "DNF", "DNF", "DNF"]
    assert read(cells).dt.total_seconds().tolist()[:2] == [38 * 60 + 10, 39 * 60 + 11]
    assert read(cells).isna().sum() == 3


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["55.5%", "0.25", "12%", "0.5"], [55.5, 25.0, 12.0, 50.0]),
        (["0.3%", "0.5", "0.2%", "0.4"], [0.3, 0.5, 0.2, 0.4]),
        (["5%", "0", "12%", "1"], [5.0, 0.0, 12.0, 1.0]),
    ],
)
def test_shares_of_1_among_those_of_100_are_read_as_these_and_said(cells, expected):
    lines = []
    frame = pd.DataFrame({"margin": cells})
    form = TableForm.of(frame, log=lines.append)
    assert form.read(frame)["margin"].tolist() == expected
    assert any("0.5 is 50 %" in line for line in lines) == (expected[1] == 25)


def test_words_that_differ_in_characters_nobody_sees_are_one_category():
    frame = pd.DataFrame({"size": ["red", "red\u200b", "blue", "\ufeffblue", "so\u00adlid", "solid"]})
    assert TableForm.of(frame).read(frame)["size"].tolist() == ["red", "red", "blue", "blue", "solid", "solid"]


def test_numbers_by_name_are_numbers_wherever_they_stand_and_said():
    rooms = [(n % 5, 1 + n % 3, 310 + 137 * n) for n in range(40)]
    cells = [f"{f'{bed} bd' if bed else 'Studio'} | {bath} ba | {size:,} sqft" for bed, bath, size in rooms]
    lines = []
    frame = pd.DataFrame({"home": cells})
    form = TableForm.of(frame, log=lines.append)
    expected = [[bed, bath, size, float(bed == 0)] for bed, bath, size in rooms]
    found = sorted(form.columns["home"].beside)
    assert found == ["# ba", "# bd", "# sqft", "studio"]
    order = [["# bd", "# ba", "# sqft", "studio"].index(name) for name in form.columns["home"].beside]
    assert form.read(frame)["home"].tolist() == [[row[place] for place in order] for row in expected]
    assert "as the numbers with these words beside them" in lines[0]
    assert "says 'studio'" in lines[0]
    texts = form.written(form.read(frame))
    assert texts["home"].tolist()[:2] == ["1 ba, 310 sqft, studio", "2 ba, 447 sqft, 1 bd"]
    pd.testing.assert_frame_equal(form.read(texts), form.read(frame))
    new = form.read(pd.DataFrame({"home": ["1,000 sqft | 2 bd | pool", None, cells[1]]}))["home"].tolist()
    usual = dict(zip(form.columns["home"].beside, new[1], strict=True))
    said = dict(zip(form.columns["home"].beside, new[0], strict=True))
    assert usual["# bd"] == usual["studio"] == 0  # many lack it
    assert usual["# ba"] == said["# ba"] == 2
    assert said["# bd"] == 2
    assert said["# sqft"] == 1000


def test_units_of_numbers_by_name_are_converted_and_equal_ones_told_apart_by_more_words():
    cells = [f"fat {n % 7} g, carbs {20 + n} g" if n % 3 else f"salt {300 + n} mg, fat {n % 7} g" for n in range(40)]
    form = TableForm.of(pd.DataFrame({"x": cells})).columns["x"]
    read_cells = [dict(zip(form.beside, row, strict=True)) for row in read(cells)]
    assert form.sign in ("g", "mg")
    assert {name.split()[0] for name in form.beside} == {"fat", "carb", "salt"}
    grams = 1 if form.sign == "g" else 1000
    values = {name.split()[0]: value for name, value in read_cells[3].items()}
    np.testing.assert_allclose([values["salt"], values["fat"], values["carb"]], [0.303 * grams, 3 * grams, 0])


@pytest.mark.parametrize(
    "cells",
    [
        [f"{n} Main St, apt {n % 4}, {'ABCDEFGHIJ'[n % 10] * 3}ville{n % 7 * 'x'}" for n in range(40)],
        [f"Galaxy S{n} {2 ** (n % 4 + 5)}GB" for n in range(40)],
        [f"{n % 3} word {'abcdefghijklmnopqrst'[n % 20] * 4} and {n} other" for n in range(40)],
    ],
)
def test_texts_with_other_numbers_or_words_stay_texts(cells):
    assert TableForm.of(pd.DataFrame({"x": cells})).columns.get("x") is None


def test_counts_in_brackets_are_not_below_zero_and_a_number_of_a_book_is_no_range():
    assert read([f"({n},{n}00)" for n in range(1, 10)] + ["(1,605)", "(23)"]).tolist()[-2:] == [1605, 23]
    assert read([*(f"{n}.5" for n in range(12)), "(1.5)"]).tolist()[-1] == -1.5
    assert TableForm.of(pd.DataFrame({"x": [f"978-{818128314 + n}2" for n in range(20)]})).columns.get("x") is None


def test_a_month_is_one_month():
    cells = [*(f"{n} months ago" for n in range(2, 12)), *(f"{n} years ago" for n in range(2, 6)), "a month ago"]
    assert read(cells).tolist()[-1] == read(["1 month ago", *cells]).tolist()[0]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["Ground out of 13", "5 out of 13", "Lower Basement out of 4", "Upper Basement out of 4"], [0, 5, -2, -1]),
        (["11th floor", "3rd floor", "Ground", "2nd floor"], [11, 3, 0, 2]),
        (["7+ years", "5-7 Yrs", "8-10 Yrs", "3+ years"], [7, 6, 9, 3]),
    ],
)
def test_floors_and_years_as_people_say_them(cells, expected):
    others = {"out": "{} out of 12", "floor": "{}th floor", "ears": "{}-{} Yrs"}
    more = next(text for part, text in others.items() if part in cells[1] or part in cells[0])
    read_cells = read([*cells, *(more.format(n, n + 2) for n in range(4, 20))]).tolist()[:4]
    assert [one[0] if isinstance(one, list) else one for one in read_cells] == expected


def test_a_score_is_no_range_to_predict():
    scores = [f"{n % 5}-{n % 3}" for n in range(40)]
    ranges = [f"{n}-{n + 2 + n % 3}" for n in range(40)]
    for cells, middle in ((scores, None), (ranges, [1.0, 2.5, 4.0])):
        frame = pd.DataFrame({"x": cells})
        form = TableForm.of(frame).of_target("x")
        if middle is None:
            assert form.read(frame)["x"].tolist() == cells
        else:
            assert form.read(frame)["x"].tolist()[:3] == middle
    frame = pd.DataFrame({"x": [f"{n % 3}-{n % 5}" for n in range(40)]})  # most have the larger one last
    cells = TableForm.of(frame).of_target("x").read(frame, labels=["x"])["x"].tolist()
    assert "2-0" in cells


@pytest.mark.parametrize(("mark", "values"), [(" H", [8.1, 9.5, 12.0]), (" L", [0.1, 0.5, 1.0])])
def test_marks_of_what_is_above_or_below_all_results_are_no_units(mark, values):
    cells = [*(f"{2 + n / 4}" for n in range(20)), *(f"{value}{mark}" for value in values)]
    form = TableForm.of(pd.DataFrame({"x": cells})).columns["x"]
    assert form.sign == ""
    assert read(cells).tolist()[-3:] == values
    within = [*(f"{2 + n / 4}" for n in range(20)), *(f"{2 + n}{mark.lower()}" for n in range(3)), f"30{mark}"]
    assert TableForm.of(pd.DataFrame({"x": within})).columns["x"].sign in ("h", "l")


PAY = [f"${40 + n}k-${60 + n}k/yr" for n in range(20)]
MIXED = {
    "pay per hour beside pay per year": ([*PAY, "$30/hr", "$20 - $24 an hour", "$96,000"], [62400, 45760, 96000]),
    "pay per day beside pay per year": ([f"£{n + 20},000 p.a." for n in range(20)] + ["£200 per day"], [52000]),
    "pay per month": ([f"{n + 40}.000 €/Jahr" for n in range(20)] + ["3.500,00 € pro Monat"], [42000]),
    "rates of two units": ([f"{n}.5 mg/L" for n in range(20)] + ["500 ug/l", "1 mg/dL"], [0.5, 10]),
    "flows": ([f"{n} L/min" for n in range(20)] + ["60 l/h"], [1]),
    "prices per weight": ([f"${n}.5/lb" for n in range(20)] + ["$0.25 / oz"], [4]),
    "microseconds": ([f"{n}.5ms" for n in range(20)] + ["500µs", "2s"], [0.5, 2000]),
    "bytes": ([f"{n}.5 MB" for n in range(20)] + ["500 B"], [0.0005]),
    "bits": ([f"{n} Mbps" for n in range(20)] + ["2 Gbit/s"], [2000]),
    "ranges of two units": (
        [f"{n}-{n + 2} kg" for n in range(1, 60)] + ["500 g", "800 g - 1.2 kg", "1 kg"],
        [0.5, 1, 1],
    ),
    "ranges of days and weeks": (
        [f"{n} - {n + 2} days" for n in range(1, 60)] + ["1-2 weeks", "9 days", "1 week"],
        [10.5, 9, 7],
    ),
    "ranges of billions": (
        [f"${n} to ${n + 1} million (USD)" for n in range(60)] + ["$1 to $2 billion (USD)", "$3 million", "$4 million"],
        [1.5e9, 3e6, 4e6],
    ),
    "views": ([f"{n}.5K views" for n in range(1, 20)] + ["1.7M views", "470 views", "2K"], [1.7e6, 470, 2000]),
    "arrows": ([f"▲ {n}.5%" for n in range(20)] + ["▼ 0.69%", "0.5 % ↓", "▼ -2%"], [-0.69, -0.5, -2]),
    "nothing in a spreadsheet": ([f"$ {n}.50" for n in range(20)] + ["$ (3.00)", " $ -  "], [-3, 0]),
    "doubtful ones": ([f"{n}" for n in range(20)] + ["12?", "ø 5"], [12, 5]),
    "shares after a word": ([f"Save {n}%" for n in range(20)], []),
    "credits": ([f"1,{n + 100}.25" for n in range(20)] + ["127.72 CR", "12.50 DR"], [-127.72, 12.5]),
    "crores": ([f"{n}.5" for n in range(20)] + ["3 Cr", "2.5 crore"], [3, 2.5]),
    "crores of rupees": ([f"{n}00000" for n in range(1, 20)] + ["3 Cr", "2.5 crore"], [3e7, 2.5e7]),
}


@pytest.mark.parametrize("kind", MIXED)
def test_numbers_of_several_units_are_numbers_in_one(kind):
    cells, last = MIXED[kind]
    column = read(cells)
    assert pd.api.types.is_numeric_dtype(column.dtype)
    assert column.tolist()[len(cells) - len(last) :] == pytest.approx(last)


def test_pay_and_credits_are_said():
    for kind, said in (("pay per hour beside pay per year", "as money in $/year"), ("credits", "Cr are credits")):
        lines = []
        TableForm.of(pd.DataFrame({"x": MIXED[kind][0]}), log=lines.append)
        assert any(said in line for line in lines)
    form = TableForm.of(pd.DataFrame({"x": [*PAY, *MIXED["pay per hour beside pay per year"][0]]}))
    with pytest.raises(ColumnError, match="got money in €/h"):
        form.read(pd.DataFrame({"x": ["€20/hr"]}))
    words = pd.DataFrame({"x": [f"{n} kg" if n % 2 else f"{n} boxes" for n in range(40)]})
    lines = []
    TableForm.of(words, targets=["x"], log=lines.append)
    assert "numbers, whichever word is beside each" in lines[0], "a label has no word"


def test_a_unit_that_a_model_saved_as_it_was_written_is_that_unit():
    form = TableForm(columns={"x": ColumnForm(kind="number", sign="ug/l", every=True)})
    assert form.read(pd.DataFrame({"x": ["5 ug/L", "2 mg/L"]}))["x"].tolist() == pytest.approx([5, 2000])


def test_both_ends_of_a_range_have_its_unit():
    cells = [f"{n}-{n + 2 + n % 3} {'kg' if n % 3 else 'g'}" for n in range(1, 40)]
    form = form_of(cells)
    assert (form.sign, form.around) == ("kg", "#-# kg")
    assert read(cells).tolist()[1:3] == [[2, 6], pytest.approx([0.003, 0.005])]


def test_a_range_says_what_its_steps_are_in():
    steps = ["1-2 kg", "2-3 kg", "3-4 kg", "500 g", "200-400 g", "Unknown / other"]
    form = form_of(steps)
    assert (form.kind, form.gaps) == ("scale", ("unknown / other",))
    assert read(steps).tolist()[:5] == pytest.approx([1.5, 2.5, 3.5, 0.5, 0.3])
    new = TableForm(columns={"x": form}).read(pd.DataFrame({"x": ["800-900 g"]}))["x"]
    assert new.tolist() == pytest.approx([0.85])


def test_words_that_begin_others_without_being_short_for_them_stay():
    for words in (["Yes", "No", "Yes, sometimes", "Not sure"], ["old", "new", "older", "newer"]):
        form = form_of(words * 5)
        assert form is None or not form.spellings


@pytest.mark.parametrize(
    ("written", "new", "meant"),
    [
        ("L{} x W{} x H{}", "l: 5 X w: 6 X h: 7", [5, 6, 7]),
        ("{}x{}x{} cm", "5x6 cm", [5, 6, 0]),
        ("{} x {} x {}", "5 x 6", [5, 6, 0]),
        ("Ø{} x {} x {} mm", "5 x 6 x 7 mm", [5, 6, 7]),
    ],
)
def test_lengths_of_sides_with_letters_or_of_two_beside_three_are_numbers(written, new, meant):
    cells = [written.format(n % 7 + 1, n + 2, n % 5 + 1) for n in range(30)]
    cells = cells if "L" in written or "Ø" in written else [*cells, *(f"{n}{new[1:]}" for n in range(3, 9))]
    form = TableForm.of(pd.DataFrame({"x": cells}))
    assert form.columns["x"].kind == "parts"
    assert form.read(pd.DataFrame({"x": [new]}))["x"].tolist() == [meant]


def test_numbers_that_many_rows_lack_count_as_0_and_texts_that_only_names_tell_are_read_so():
    cells = [f"{n % 9 + 1} pallets + {n + 2} boxes" for n in range(60)] + [f"{n} pallets" for n in range(1, 4)] * 5
    form = TableForm.of(pd.DataFrame({"x": [*cells, "54 boxes", "12 boxes", "7 boxes"]}))
    assert form.columns["x"].kind == "fields"
    read_cells = form.read(pd.DataFrame({"x": ["3 pallets", "54 boxes", "2 pallets + 5 boxes"]}))["x"].tolist()
    assert read_cells[0] == [3, 0]
    assert read_cells[1][1] == 54
    assert read_cells[2] == [2, 5]


@pytest.mark.parametrize("stored", [str, object])
def test_seconds_and_their_parts_since_1970_are_times_among_dates_too(stored):
    seconds = [1_690_000_000 + 86_400 * n for n in range(40)]
    parts = [1, 1000, 1_000_000, 1_000_000_000]
    cells = [each * parts[n % 4] for n, each in enumerate(seconds)]
    column = pd.Series(cells, dtype=object).map(str if stored is str else lambda cell: cell)
    expected = [pd.Timestamp(each, unit="s") for each in seconds]
    assert read(column.rename("ts")).tolist() != expected, "the name says that it is a time"
    frame = pd.DataFrame({"ts": column})
    assert TableForm.of(frame).read(frame)["ts"].tolist() == expected
    among = pd.DataFrame(
        {"x": [f"{when:%Y-%m-%dT%H:%M:%S}Z" if n % 2 else column[n] for n, when in enumerate(expected)]}
    )
    assert TableForm.of(among).read(among)["x"].tolist() == expected


OPINIONS = {
    "qualtrics": [
        *("Extremely dissatisfied", "Somewhat dissatisfied", "Neither satisfied nor dissatisfied"),
        *("Somewhat satisfied", "Extremely satisfied"),
    ],
    "spanish": ["Muy insatisfecho", "Insatisfecho", "Neutral", "Satisfecho", "Muy satisfecho"],
    "german": ["Sehr unzufrieden", "Eher unzufrieden", "Eher zufrieden", "Sehr zufrieden"],
    "intention": ["Definitely not", "Probably not", "Might or might not", "Probably yes", "Definitely yes"],
    "how often": ["Never", "Yearly", "Monthly", "Weekly", "Daily"],
    "urine": ["neg", "trace", "1+", "2+", "3+"],
    "priority": ["Low", "Medium", "High", "Urgent"],
}


@pytest.mark.parametrize("words", OPINIONS.values(), ids=OPINIONS)
def test_words_of_degree_are_steps(words):
    assert read(words[::-1] * 3).tolist() == list(range(len(words)))[::-1] * 3
    assert form_of(["1+", "2+", "3+", "4+"] * 5) is None or form_of(["1+", "2+", "3+", "4+"] * 5).kind != "scale"
