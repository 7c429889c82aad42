"""Numbers, dates, lengths of time and truth values as people write them, each read from one text."""

import contextlib
import datetime
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

GAPS = frozenset(
    {
        "",
        "na",
        "n/a",
        "#n/a",
        "n.a.",
        "nan",
        "nat",
        "null",
        "nil",
        "none",
        "<na>",
        "-",
        "--",
        "?",
        ".",
        "missing",
        "unknown",
    }
    | {"(blank)", "not available", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!", "0000-00-00"}
)
"""How people write that a value is missing, in lower case: among numbers, dates, lengths of time and truth values."""

SURE_GAPS = frozenset({"n/a", "#n/a", "?", "-", "--"})
"""Those of them that are nothing else among categories, either: "none" and "NA" may be names."""

TRUTHS = (
    ("false", "true"),
    ("no", "yes"),
    ("off", "on"),
    ("n", "y"),
    ("f", "t"),
    ("nein", "ja"),
    ("non", "oui"),
    ("no", "si"),
    ("no", "sí"),
)
"""Pairs of words for false and true, in lower case; single letters count only where a column has both."""

_SIGNS = {
    **dict.fromkeys(("$", "us$", "usd"), "$"),
    **dict.fromkeys(("€", "eur", "euro"), "€"),
    **dict.fromkeys(("£", "gbp"), "£"),
    **dict.fromkeys(("¥", "jpy"), "¥"),
    **dict.fromkeys(("₹", "inr", "rs", "rs."), "₹"),
    **dict.fromkeys(("r$", "brl"), "R$"),
    **dict.fromkeys(("fr.", "chf", "sfr."), "CHF"),
    **dict.fromkeys(("zł", "pln"), "PLN"),
    **dict.fromkeys(("kč", "czk"), "CZK"),
    **{name: name.upper() for name in ("cny", "krw", "rub", "try", "sek", "nok", "dkk", "huf", "mxn", "zar", "sgd")},
    **{name: name.upper() for name in ("aud", "cad", "nzd", "hkd", "ils", "thb", "a$", "c$", "nz$", "hk$", "s$", "kr")},
    **{sign: sign for sign in "₽₩₺₫₴₪฿₦₱₲%"},
}
"""One sign for each way to write a currency or a share of 100."""

MONEY = frozenset(_SIGNS.values()) - {"%"}

_UNITS = (
    {"mg": 1e-6, "g": 1e-3, "kg": 1.0, "t": 1e3, "oz": 0.028349523125, "lb": 0.45359237},
    {"mm": 1e-3, "cm": 0.01, "m": 1.0, "km": 1e3, "in": 0.0254, "ft": 0.3048, "yd": 0.9144, "mi": 1609.344},
    {"s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0, "week": 604800.0, "month": 2629800.0, "year": 31557600.0},
    {"ml": 1e-3, "cl": 0.01, "l": 1.0, "gal": 3.785411784},
    {"kb": 1e-3, "mb": 1.0, "gb": 1e3, "tb": 1e6},
)
"""Units that are converted where a column has several of them: those of one quantity, in its base unit."""

_SCALES = {"k": 1e3, "m": 1e6, "mn": 1e6, "bn": 1e9}
_SAME = {
    **{"pound": "lb", "inch": "in", "inche": "in", '"': "in", "''": "in", "'": "ft", "feet": "ft", "foot": "ft"},
    **{"mile": "mi", "sec": "s", "second": "s", "minute": "min", "hr": "h", "hour": "h", "d": "day", "wk": "week"},
    **{"mo": "month", "yr": "year", "y": "year", "liter": "l", "litre": "l", "gram": "g", "lbs": "lb", "hrs": "h"},
    **{"thousand": "k", "tsd": "k", "million": "mn", "mio": "mn", "billion": "bn", "mrd": "bn"},
}
"""Other names of units, without the s of the plural."""

_MONEY = "|".join(sorted(map(re.escape, _SIGNS), key=len, reverse=True))
_WORD = r"[^\W\d_]{1,12}[23]?(?:/[^\W\d_]{1,8})?\.?|°[cfk]?|''?|\""
_NUMBER = re.compile(
    rf"(?:[<>~]=?|ca\.? |about )?\s*(?P<open>\()?\s*(?P<minus>[-+])?\s*(?P<before>{_MONEY})?\s*(?P<inner>[-+])?\s*"
    rf"(?P<digits>[0-9.,' ]*[0-9][.,]?)(?P<power>e[-+]?[0-9]+)?\s*"
    rf"(?:(?P<after>{_MONEY})|(?P<word>{_WORD})\s*(?P<last>{_MONEY})?)?\s*(?P<trailing>-)?(?P<close>\))?[+*]?"
)
_PARTS = re.compile(rf"(?P<much>[0-9]+)\s*(?P<unit>{_WORD}),?\s*(?P<more>[0-9]+(?:\.[0-9]+)?)\s*(?P<smaller>{_WORD})?")
_POINT = re.compile(r"(?:[0-9]+|[1-9][0-9]{0,2}(?:([,' ])[0-9]{3})(?:\1[0-9]{3})*|[1-9][0-9]?(?:,[0-9]{2})*,[0-9]{3})?"
                    r"(?:\.[0-9]*)?")  # fmt: skip
_COMMA = re.compile(r"(?:[0-9]+|[1-9][0-9]{0,2}(?:([.' ])[0-9]{3})(?:\1[0-9]{3})*)?(?:,[0-9]*)?")
_NO_CENTS = re.compile(r"(?<=[0-9])[.,]-{1,2}$")  # CHF 1'200.-
_SPACES = str.maketrans(
    dict.fromkeys("\u00a0\u2007\u2009\u202f\t", " ")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-")  # dashes and minus signs
    | {"\u2019": "'"}
)


def plain_text(cell: str) -> str:
    r"""A cell in the form that the readers below take: compatible characters, plain spaces and minus signs, trimmed.

    >>> plain_text(" \u22121\u202f234 ")
    '-1 234'
    """
    if cell.isascii():
        return cell.replace("\t", " ").strip()
    return unicodedata.normalize("NFKC", cell.translate(_SPACES)).translate(_SPACES).strip()


def is_gap(cell: str) -> bool:
    """Whether a text says that a value is missing.

    >>> is_gap("N/A"), is_gap(" "), is_gap("0")
    (True, True, False)
    """
    return cell.strip().casefold() in GAPS


@dataclass(frozen=True)
class Number:
    """A number as it was written: its value with "." or "," before decimals (None: not so), and its sign or unit."""

    point: float | None
    comma: float | None
    sign: str = ""

    def value(self, decimal: str) -> float | None:
        """The number, where ``decimal`` comes before the decimals."""
        return self.point if decimal == "." else self.comma

    @property
    def is_open(self) -> bool:
        """Whether both marks can be meant, with different values: "1,234"."""
        return None not in (self.point, self.comma) and self.point != self.comma


def number_of(text: str) -> Number | None:
    r"""The number in a text of :func:`plain_text`, with thousands marks, a unit, a sign of money or %, or in brackets.

    >>> number_of("$3,750.00"), number_of("(12%)"), number_of("1.250,5 €")
    (Number(point=3750.0, comma=None, sign='$'), Number(point=-12.0, comma=-12.0, sign='%'), ...)
    >>> number_of("1,234"), number_of("12 Main St"), number_of("12.png")
    (Number(point=1234.0, comma=1.234, sign=''), None, None)
    >>> number_of("3 lbs"), number_of("$1.2M"), number_of("6'3\"")
    (Number(point=3.0, comma=3.0, sign='lb'), Number(point=1200000.0, comma=None, sign='$'), Number(point=6.25, ...))
    """
    match = _NUMBER.fullmatch(_NO_CENTS.sub("", text.casefold()))
    if match is None:
        return _in_parts(text.casefold())
    part = match.groupdict()
    money = [part[name] for name in ("before", "after", "last") if part[name]]
    signs = [part[name] for name in ("minus", "inner", "trailing") if part[name]] + ["-"] * (part["open"] is not None)
    if len(money) > 1 or len(signs) > 1 or (part["open"] is None) != (part["close"] is None):
        return None
    if part["word"] and part["digits"][-1] in ".,":  # 12.png is a file
        return None
    digits, power = part["digits"].strip(), part["power"] or ""
    factor = -1.0 if signs == ["-"] else 1.0
    unit = "" if part["word"] is None else _unit_of(part["word"])
    unit = "mn" if unit == "m" and "M" in text else unit
    if (money and unit and unit not in _SCALES) or (unit and digits[-1] in ".,"):  # 12.jpg
        return None
    factor *= _SCALES[unit] if money and unit else 1.0
    point = _value(_POINT, digits, (",", "'", " "), power, factor)
    comma = _value(_COMMA, digits, (".", "'", " "), power, factor)
    return (
        _in_parts(text.casefold())
        if point is comma is None
        else Number(point, comma, _SIGNS[money[0]] if money else unit)
    )


def _in_parts(text: str) -> Number | None:
    """A number of two units, such as 5 ft 11 in or 1h 30m, in the larger one; or None."""
    match = _PARTS.fullmatch(text)
    if match is None:
        return None
    unit, smaller = _unit_of(match["unit"]), _unit_of(match["smaller"] or "")
    smaller = "in" if unit == "ft" and not smaller else "min" if unit == "h" and smaller in ("m", "") else smaller
    factor = conversion(smaller, unit) if unit != smaller else None
    if not smaller or factor is None or factor >= 1:
        return None
    value = float(match["much"]) + factor * float(match["more"])
    return Number(value, value, unit)


def _unit_of(word: str) -> str:
    """The name of a unit, however it is written.

    >>> [_unit_of(word) for word in ("lbs.", "years", "m2", "ms")]
    ['lb', 'year', 'm2', 'ms']
    """
    word = word.rstrip(".")
    one = word.removesuffix("s") if len(word) > 3 else word
    return _SAME.get(word, _SAME.get(one, one))


def conversion(unit: str, other: str) -> float | None:
    """How many ``other`` one ``unit`` is, "" of plain numbers; None for units of different quantities.

    >>> conversion("km", "m"), conversion("k", ""), conversion("kg", "m")
    (1000.0, 1000.0, None)
    """
    if unit == other:
        return 1.0
    if not other:
        return _SCALES.get(unit)
    return next((units[unit] / units[other] for units in _UNITS if unit in units and other in units), None)


def common_unit(units: Sequence[str]) -> str | None:
    """The unit that a column is read in, given those of its cells, "" of plain numbers; None if they do not fit.

    >>> [common_unit(units) for units in (["kg", "", "lb", "kg"], ["k", "mn", ""], ["m", "m"], ["$", "%"])]
    ['kg', '', 'm', None]
    """
    some = Counter(unit for unit in units if unit)
    if not some:
        return ""
    base = "" if all(unit in _SCALES for unit in some) and set(some) != {"m"} else some.most_common(1)[0][0]
    return base if all(conversion(unit, base) is not None for unit in some) else None


def _value(form: re.Pattern[str], digits: str, thousands: Sequence[str], power: str, factor: float) -> float | None:
    if not form.fullmatch(digits):
        return None
    for mark in thousands:
        digits = digits.replace(mark, "")
    return factor * float(digits.replace(",", ".") + power)


def truth_pair(words: Iterable[str]) -> tuple[str, str] | None:
    """The pair of :data:`TRUTHS` that all ``words`` belong to, in lower case; None if there is none.

    >>> truth_pair(["TRUE", "false"]), truth_pair(["yes"]), truth_pair(["y"]), truth_pair(["yes", "maybe"])
    (('false', 'true'), ('no', 'yes'), None, None)
    """
    some = {word.strip().casefold() for word in words}
    for pair in TRUTHS:
        if some and some <= set(pair) and (len(some) == 2 or (len(pair[0]) > 1 and some != {"no"})):
            return pair
    return None


def as_truth(word: str) -> bool | None:
    """The truth value of a word or of 0 and 1, whichever pair it is of; None for another.

    >>> as_truth("Yes"), as_truth("F"), as_truth("1.0"), as_truth("maybe")
    (True, False, True, None)
    """
    word = word.strip().casefold()
    for false, true in (*TRUTHS, ("0", "1"), ("0.0", "1.0")):
        if word in (false, true):
            return word == true
    return None


_DURATION = re.compile(
    r"(?P<minus>-)?(?:(?P<days>[0-9]+) days?,? ?)?(?P<hours>[0-9]{1,3}):(?P<minutes>[0-5][0-9])"
    r"(?::(?P<seconds>[0-5][0-9](?:\.[0-9]{1,9})?))?|(?P<only>-?[0-9]+) days?"
)


def duration_of(text: str) -> datetime.timedelta | None:
    """The length of time or time of day in a text: 7:30 (hours and minutes), 1:30:00, 2 days 03:04:05.5; or None.

    >>> duration_of("7:30"), duration_of("1 days 00:00:01.5"), duration_of("7:75")
    (datetime.timedelta(seconds=27000), datetime.timedelta(days=1, seconds=1, microseconds=500000), None)
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    part = match.groupdict()
    if part["only"]:
        return datetime.timedelta(days=int(part["only"]))
    parts = {name: float(part[name] or 0) for name in ("days", "hours", "minutes", "seconds")}
    return datetime.timedelta(**parts) * (-1 if part["minus"] else 1)


_MONTHS = (
    "jan january januar janvier enero gennaio janeiro ene gen",
    "feb february februar février fevrier febrero febbraio fevereiro fev fév févr",
    "mar march märz maerz mars marzo março mär mrz",
    "apr april avril abril aprile avr abr",
    "may mai mayo maggio maio mag mei",
    "jun june juni juin junio giugno junho giu",
    "jul july juli juillet julio luglio julho juil lug",
    "aug august août aout agosto ago aoû",
    "sep sept september septembre septiembre settembre setembro set",
    "oct october oktober octobre octubre ottobre outubro okt ott out",
    "nov november novembre noviembre novembro",
    "dec december dezember décembre decembre diciembre dicembre dezembro dez déc dic",
)
_MONTH = {name: number for number, names in enumerate(_MONTHS, start=1) for name in names.split()}
_TIME = (
    r"(?:(?:t|,? +)(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<part>[0-9]{1,9}))?)?"
    r"\s*(?P<half>[ap]\.?m\.?)?\s*(?P<zone>z|utc|gmt|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_ORDINAL = r"(?:\.|st|nd|rd|th)?"
_DATES = tuple(
    re.compile(r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,? )?" + form + _TIME)
    for form in (
        r"(?P<year>[0-9]{4})(?P<mark>[-/.])(?P<month>[0-9]{1,2})(?P=mark)(?P<day>[0-9]{1,2})",
        r"(?P<first>[0-9]{1,2})(?P<mark>[-/]|\. ?)(?P<other>[0-9]{1,2})(?P=mark)(?P<year>[0-9]{4})",
        r"(?P<first>[0-9]{1,2})(?P<mark>/)(?P<other>[0-9]{1,2})/(?P<short>[0-9]{2})",
        r"(?P<first>[0-9]{2})(?P<mark>[-.])(?P<other>[0-9]{2})(?P=mark)(?P<short>[0-9]{2})",  # 3.4.21 may be a version
        rf"(?P<name>[^\W\d_]+)\.?[ -](?P<day>[0-9]{{1,2}}){_ORDINAL},?[ -](?P<year>[0-9]{{4}})",
        rf"(?P<day>[0-9]{{1,2}}){_ORDINAL}[ -]?(?:of )?(?P<name>[^\W\d_]+)\.?,?[ -]?(?P<year>[0-9]{{4}})",
        r"(?P<day>[0-9]{1,2})[ -](?P<name>[^\W\d_]+)\.?[ -](?P<short>[0-9]{2})",
        r"(?P<year>[0-9]{4})[ -](?P<name>[^\W\d_]+)\.?[ -](?P<day>[0-9]{1,2})",
        r"(?P<name>[^\W\d_]+)\.?,?[ -](?P<year>[0-9]{4})",
        r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})",
        r"(?P<year>(?:19|20)[0-9]{2})(?P<month>[0-9]{2})(?P<day>[0-9]{2})",
    )
)

_C_TIME = re.compile(r"([^\W\d_]+) +([0-9]{1,2}) ([0-9]{2}:[0-9]{2}:[0-9]{2})(?: (utc|gmt))? ([0-9]{4})$")
"""As C writes a time: Sun Jan 01 00:00:00 2012."""

_SHORT_YEARS = 69
"""Years of two digits below this are of the 21st century, as in POSIX."""


@dataclass(frozen=True)
class Day:
    """A date as it was written: as day before month and as month before day (None: not so), the same where certain."""

    day_first: datetime.datetime | None
    month_first: datetime.datetime | None
    mark: str = ""

    def value(self, *, day_first: bool) -> datetime.datetime | None:
        """The date, in UTC without a zone."""
        return self.day_first if day_first else self.month_first

    @property
    def is_open(self) -> bool:
        """Whether both orders can be meant, with different dates: 03/04/2021."""
        return None not in (self.day_first, self.month_first) and self.day_first != self.month_first


def day_of(text: str) -> Day | None:
    """The date in a text of :func:`plain_text`, with or without a time of day and a zone; or None.

    >>> day_of("31/12/2021").day_first, day_of("31/12/2021").month_first
    (datetime.datetime(2021, 12, 31, 0, 0), None)
    >>> day_of("Jan 01, 2021 2:30 pm").day_first, day_of("9999-12-31T23:59:59+01:00").day_first, day_of("12.05")
    (datetime.datetime(2021, 1, 1, 14, 30), datetime.datetime(9999, 12, 31, 22, 59, 59), None)
    """
    text = _C_TIME.sub(r"\1 \2 \5 \3", text.casefold())
    for form in _DATES if text[:1].isalnum() and any(sign.isdigit() for sign in text) else ():
        match = form.fullmatch(text)
        if match is not None and (day := _day(match.groupdict())) is not None:
            return day
    return None


def _day(part: dict[str, str | None]) -> Day | None:
    year = part.get("year")
    if year is None:
        short = int(part["short"] or 0)
        year = str(short + (2000 if short < _SHORT_YEARS else 1900))
    if part.get("first") is not None:
        orders = ((part["other"], part["first"]), (part["first"], part["other"]))  # month and day
    else:
        name = part.get("name")
        month = part.get("month") if name is None else str(_MONTH.get(name, 0))
        orders = ((month, part.get("day") or "1"),) * 2
    days = [_moment(int(year), int(month or 0), int(day or 0), part) for month, day in orders]
    return None if days == [None, None] else Day(days[0], days[1], (part.get("mark") or "").strip())


def _moment(year: int, month: int, day: int, part: dict[str, str | None]) -> datetime.datetime | None:
    """In UTC; None if there is no such day or time."""
    hour = int(part["hour"] or 0)
    if part["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * part["half"].startswith("p")
    micro = int((part["part"] or "0").ljust(6, "0")[:6])
    try:
        moment = datetime.datetime(year, month, day, hour, int(part["minute"] or 0), int(part["second"] or 0), micro)
    except ValueError:
        return None
    zone = (part["zone"] or "z").replace(":", "")
    if zone[0] in "+-":
        ahead = datetime.timedelta(hours=int(zone[1:3]), minutes=int(zone[3:] or 0))
        with contextlib.suppress(OverflowError):  # the last hours of the year 9999, which mean "no end" in any zone
            return moment + (ahead if zone[0] == "-" else -ahead)
    return moment
