"""Cells as texts, and the form in which those of a column are compared: telephones, keys, names of companies."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from vicinal.core.identity import spelled, without_accents

CellForm = Literal["plain", "key", "telephone", "company", "day"]

_LONG = 6
"""Letters and digits of the median key from which on marks between them say nothing."""

_TELEPHONE, _LAST = 8, 9
"""Digits of a telephone number, at least, and how many of the last ones count: codes of countries come before."""

_MOST, _SOME = 0.9, 0.05
"""Shares of cells: that are nothing but a long number, and that begin as telephone numbers do, at least."""

_BOTH = 0.1
"""Shares of days and of times, at least, from which on days are compared: one of the tables has no times."""

_LEGAL, _FORMS = 0.1, 2
"""Share of the cells that end in a legal form, and number of different ones, from which on they are companies."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?")
_MARKS = re.compile(r"[\s/()\-\u2010-\u2015]+")
_INITIALS = re.compile(r"(?<=\b\w)\.\s?(?=\w\b)")
_WORD = re.compile(r"[\w&+]+")

_SHORT, _LONG_FORMS = (
    frozenset(words.split())
    for words in (
        """
        gmbh mbh ag kg kgaa ohg gbr ug ek ev eg se sarl sa sas sasu eurl sci snc sl slu slne spa srl srls sapa ltd
        limited llc llp plc inc incorporated corp corporation company bv nv ab asa oy oyj aps sro spzoo kft pty lda
        """,
        """
        gesellschaft mit beschrankter haftung aktiengesellschaft kommanditgesellschaft offene handelsgesellschaft und &
        co societe anonyme a responsabilite limitee par actions simplifiee sociedad limitada anonima societa per azioni
        responsabilita limitata in nome collettivo cia et
        """,
    )
)
"""Legal forms of companies, short, and the words of long ones, with those between them."""


def shown_text(cell: Any) -> str:
    """A cell as a text in one line; "" for an empty one.

    >>> shown_text(3.0), shown_text(None), shown_text(" a  b "), shown_text(pd.Timestamp("2021-03-04"))
    ('3', '', 'a b', '2021-03-04')
    """
    if cell is None or cell is pd.NA or cell is pd.NaT or (isinstance(cell, float) and cell != cell):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return " ".join(str(cell).removesuffix(" 00:00:00").split())


def normal_text(cell: Any) -> str:
    """A cell as it is compared: case, invisible characters and the form of Unicode do not count.

    >>> normal_text("\uff21B\u200b 1 "), normal_text("Zoe\u0308") == normal_text("ZOË")
    ('ab 1', True)
    """
    if type(cell) is str and cell.isascii() and cell.isprintable() and not cell.endswith(" 00:00:00"):
        return " ".join(cell.lower().split())
    return spelled(shown_text(cell), loose=True)


def cell_form(kind: str, values: Sequence[str]) -> CellForm:
    """The form of a column of a kind, by its distinct cells in their normal form.

    >>> cell_form("code", ["+49 170 1234567", "0170/1234567", "0170 7654321"])
    'telephone'
    >>> cell_form("name", ["müller bau gmbh", "sauer kg", "rossi s.r.l.", "ulm"])
    'company'
    """
    if kind == "code":
        days = [each for each in map(_DAY.fullmatch, values) if each]
        times = sum(bool(each[1]) for each in days)
        if values and min(times, len(days) - times) >= _BOTH * len(values) and len(days) >= _MOST * len(values):
            return "day"
        digits = [re.sub(r"[+.]", "", _MARKS.sub("", value)) for value in values]
        numbers = np.array([len(each) * each.isdigit() for each in digits])
        signs = [value.startswith(("+", "00", "(")) for value in values]
        if len(values) and np.mean(numbers >= _TELEPHONE) >= _MOST and np.mean(signs) >= _SOME:
            return "telephone"
        return "key" if len(values) and np.median([*map(len, digits)]) >= _LONG else "plain"
    if kind in ("name", "text"):
        last = Counter(words[-1] for value in values if len(words := _words(value)) > 1 and words[-1] in _SHORT)
        if len(last) >= _FORMS and last.total() >= _LEGAL * len(values):
            return "company"
    return "plain"


def compared_cell(text: str, form: CellForm) -> str:
    """A cell in its normal form as it is compared, without accents.

    >>> compared_cell("+49 (0)170 1234567", "telephone") == compared_cell("0170/1234567", "telephone")
    True
    >>> compared_cell("978-3-16-148410-0", "key"), compared_cell("bâtiment brun s.a.r.l.", "company")
    ('9783161484100', 'batiment brun')
    """
    text = without_accents(text)
    if form == "day":
        return text[:10]
    if form == "telephone":
        return re.sub(r"\D", "", text)[-_LAST:]
    if form == "key":
        return _MARKS.sub("", text)
    return _without_legal_form(text) if form == "company" else text


def _words(text: str) -> list[str]:
    return _WORD.findall(_INITIALS.sub("", text))


def _without_legal_form(text: str) -> str:
    """A name without the legal form before or behind it, unless it is nothing else."""
    words = _words(text)
    first, last = 0, len(words)
    while last and words[last - 1] in _SHORT | _LONG_FORMS:
        last -= 1
    while first < last and words[first] in _SHORT:
        first += 1
    return " ".join(words[first:last]) or text
