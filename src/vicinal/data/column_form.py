"""How the cells of one column are written, and how they are read by it."""

import datetime
import re
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from pydantic import ConfigDict, Field, model_validator

from vicinal.core import short
from vicinal.core.untrusted import Saved
from vicinal.data.date_spelling import (
    Day,
    dotted_of,
    epoch_of,
    month_of,
    ordinal_of,
    season_of,
    year_day_of,
    year_first_of,
)
from vicinal.data.scales import MOST_STEPS
from vicinal.data.spelling import GAPS, LONGEST_PART, MOST_PARTS, is_money, plain_text

FAR_YEARS = (1700, 2199)
"""Dates outside of these years mean "no beginning" or "no end" where most dates of a column lie within them."""

MOST_WORDS = 50
"""Different words of a column of categories, at most, whose spellings are compared."""

MOST_GAPS = 6
"""Different words, at most, that stand for missing numbers in one column, beside those that always do."""

MOST_BESIDE = 16
"""Different words, at most, that stand beside numbers of a column; a compass has as many."""

MOST_OF_SETS = 512
"""Different words of a column of sets, at most: as many as count each."""

SEPARATORS = ("\n", ";", "|", ",", " / ", " + ", " & ")
"""Marks between the words of a set."""

CODE = re.compile(r"^[+-]?0\d", re.MULTILINE)
"""Texts of digits that begin with 0: 007 is a code, not the number 7."""

SECONDS, MILLISECONDS = "seconds since 1970", "milliseconds since 1970"
MONTHS, DAYS, YEARS, DOTTED, SEASONS, ORDINALS = "mm/yy", "dd/mm", "yy-mm-dd", "d.m.yy", "yyyy-yy", "yyyy-ddd"
CLOCK, SPAN, VERSION = "hhmm", "dates", "version"
"""Signs of lengths of time of which 0930 is half past nine, and of parts that are two days, or a version: 3.10."""

PARTIAL_DATES: Mapping[str, tuple[str, Callable[[str], Day | None]]] = {
    MONTHS: ("months, 06/23 as June 2023", month_of),
    DAYS: ("days without a year, 19/01 as the 19th of January", year_day_of),
    YEARS: ("days after the year and the month, 24-01-31 as the 31st of January 2024", year_first_of),
    DOTTED: ("days, 3.4.21 as the 3rd of April 2021", dotted_of),
    SEASONS: ("years, 1998-99 as 1998", season_of),
    ORDINALS: ("days of a year, 2024-032 as the 1st of February", ordinal_of),
    **dict.fromkeys((SECONDS, MILLISECONDS), (SECONDS, epoch_of)),  # models say either
}
"""Signs of columns of dates that their cells alone do not show, what they are, and how one of their texts is read."""


class ColumnForm(Saved):
    """How the cells of one column are written.

    Attributes:
        kind: "number", "date", "duration", "truth"; "scale" of words that are steps of one; "levels" of a column of
            categories whose cells were numbers; "list" of texts that are lists in JSON or words between marks; "parts"
            of texts with numbers among the same words, or of two days; "fields" of numbers each of which has its name,
            and may be left out; "worded" of numbers among words that differ; "words" of texts among which "n/a", "?"
            and "-" are gaps, or that are spelled in several ways.
        decimal: the mark before decimals, in texts.
        sign: of money, "%", or a unit; "" without; "s" of lengths of time in which 3:28 is minutes and seconds, "hhmm"
            where 0930 is a time of day; of dates one of ``PARTIAL_DATES``: "mm/yy" where 06/23 is June 2023; of parts
            "dates" where they are two days, "version", or the unit of numbers that had several.
        every: whether each cell had that sign, so that a number without it is of another unit.
        day_first: whether 03/04 is the third of April; None: no such date was seen.
        turned: marks of dates in which it is the other way: "-" where 13/05/2024 stands beside 05-13-2024.
        serial: whether numbers such as 45231 are days as spreadsheets count them.
        first_year: of the hundred years that years of two digits are in; None: those up to 68 follow 1999.
        open: whether no cell told the order of day and month, or the mark before decimals, so that it was assumed.
        spelled: the words for false and true; None: truth values of Python.
        spellings: the usual spelling of each word, by what its spellings have in common, where there are several.
        span: first and last year of dates; those beyond mean "no beginning" and "no end", and are read as its ends.
        plain: whether no cell had marks between thousands, although some had decimals.
        certain: whether a cell told the mark before decimals.
        either: whether some cells told the other mark, so that each is read by the one that it can have.
        gaps: words that stood for a missing number or date, in lower case.
        beside: words beside numbers or dates, with "#" for these: "# ono" among prices; they are left out, or count
            where the form is "worded"; of "fields" the names of numbers, "# bd", and words that some texts have.
        placeholder: the numbers that stood for missing ones, such as -999; of dates their days since 1970; None: none.
        doubt: a sentence on cells to be checked; not saved.
        doubtful: numbers that it is about, which may stand for missing ones, see :func:`placeholders_of`; not saved.
        around: of "parts" what stands around the numbers of a cell, see :func:`vicinal.data.parts_spelling.parts_of`;
            of "list" the mark between words, "" in JSON.
        middle: whether a range (10-20 kg) is its middle: in a target of "parts", on a "scale" and among numbers.
        steps: numbers that words stand for, in lower case: steps of a "scale", and "free" among prices.
        typical: of "parts" the median of each number, which counts where a cell has none; one: cells are numbers. Of
            "fields" what counts where a cell does not have that number or word.
        shares: whether numbers without a sign among those with % are shares of 1: 0.557 beside 28.3%.
        unitless: of a model that was saved without forms: numbers, dates or lengths of time, as each table shows.
    """

    model_config = ConfigDict(frozen=True)

    kind: Literal[
        "number", "date", "duration", "truth", "scale", "levels", "list", "parts", "worded", "fields", "words"
    ]
    decimal: Literal[".", ","] = "."
    sign: str = Field(default="", max_length=32)
    every: bool = False
    day_first: bool | None = None
    turned: str = Field(default="", max_length=2)
    serial: bool = False
    first_year: int | None = Field(default=None, ge=1900, le=1999)
    open: bool = False
    spelled: tuple[str, str] | None = None
    spellings: dict[str, str] = Field(default_factory=dict, max_length=MOST_WORDS)
    span: tuple[int, int] | None = None
    certain: bool = False
    either: bool = False
    plain: bool = False
    gaps: tuple[str, ...] = Field(default=(), max_length=MOST_GAPS)
    beside: tuple[str, ...] = Field(default=(), max_length=MOST_BESIDE)
    placeholder: float | tuple[float, ...] | None = None  # one number in models that were saved before
    doubt: str = Field(default="", exclude=True)
    doubtful: tuple[float, ...] = Field(default=(), exclude=True)
    around: str = Field(default="", max_length=LONGEST_PART)
    middle: bool = False
    steps: dict[str, float] = Field(default_factory=dict, max_length=MOST_STEPS)
    typical: dict[int, float] = Field(default_factory=dict, max_length=max(MOST_PARTS, 1 + MOST_BESIDE))
    shares: bool = False
    unitless: bool = False

    @model_validator(mode="after")
    def _names_and_numbers(self) -> Self:
        if self.kind == "fields" and not (
            len(self.beside) == len(self.typical) and all(name.count("#") < 2 for name in self.beside)
        ):
            raise ValueError(
                f"typical: expected a number for each of {len(self.beside)} names, got {len(self.typical)}"
            )
        return self

    @property
    def is_split(self) -> bool:
        """Whether texts are sets of words between marks."""
        return self.kind == "list" and bool(self.around)

    @property
    def sentence(self) -> str:
        """What is unusual about how it is written, as a phrase; "" if nothing is."""
        if self.kind == "number" and (self.sign or self.decimal == ","):
            commas = ["decimal commas"] * (self.decimal == ",")
            return ", ".join([in_unit(self.sign)] * bool(self.sign) + commas)
        if self.kind == "date" and (self.sign or self.day_first is not None):
            return f"written {self.sign}" if self.sign else f"written {'day' if self.day_first else 'month'} first"
        if self.kind == "parts" and self.sign in (SPAN, VERSION):
            return "a first day or time, and days until the last" if self.sign == SPAN else "numbers of versions"
        if self.kind == "parts":
            return f"as in {short(self.around)}{', the middle of each range' * self.middle}"
        if self.kind == "worded":
            return f"{in_unit(self.sign)}, and which word is beside them"
        if self.kind == "fields":
            return f"{in_unit(self.sign)} by name".removeprefix("plain ")
        return {"truth": "true or false", "scale": "steps of a scale"}.get(self.kind, "")

    @property
    def placeholders(self) -> tuple[float, ...]:
        """All numbers that stand for missing ones."""
        if self.placeholder is None:
            return ()
        return self.placeholder if isinstance(self.placeholder, tuple) else (self.placeholder,)


def is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN or another sign that no value is there; a text is none."""
    return cell is None or cell is pd.NaT or (pd.api.types.is_scalar(cell) and bool(pd.isna(cell)))


def rows_of(column: "pd.Series[Any]") -> Counter[str]:
    """How many rows have each text, as its readers take it."""
    return Counter(plain_text(cell) for cell in column.tolist() if isinstance(cell, str))


def is_number(cell: Any) -> bool:
    """Whether a cell is one number of any type; a truth value is none."""
    plain = isinstance(cell, int | float | Decimal | np.number) or hasattr(cell, "__float__")
    return plain and not isinstance(cell, bool | np.bool_ | np.timedelta64) and not hasattr(cell, "__len__")


def is_written_gap(cell: Any) -> bool:
    """Whether a cell is missing, or says that it is."""
    return is_missing(cell) or (isinstance(cell, str) and plain_text(cell).casefold() in GAPS)


def in_unit(sign: str) -> str:
    """What numbers with a sign are, as a phrase."""
    what = "shares" if sign == "%" else "money" if is_money(sign) else "numbers"
    return f"{what} in {'cr' if sign == 'crore' else sign}" if sign else "plain numbers"  # as it was written


def days_of(dates: "pd.Series[Any]") -> "pd.Series[Any]":
    """Dates as numbers of days since 1970."""
    return (dates - pd.Timestamp(0).as_unit("us")) / pd.Timedelta(days=1)  # nanoseconds end in 2262


def date_of(day: float) -> datetime.date:
    """The date of such a number."""
    return (datetime.datetime(1970, 1, 1) + datetime.timedelta(days=day)).date()
