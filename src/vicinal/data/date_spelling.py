"""Dates and lengths of time as people write them, each read from one text."""

import contextlib
import datetime
import functools
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

REMEMBERED = 1 << 16
"""Texts whose number or date is known: the cells of a column are looked at to find its form, and read then."""


@dataclass(frozen=True)
class Day:
    """A date as it was written: as day before month and as month before day (None: not so), the same where certain.

    A ``short`` year has two digits; those up to 68 are of the 21st century, as in POSIX.
    """

    day_first: datetime.datetime | None
    month_first: datetime.datetime | None
    mark: str = ""
    short: bool = False

    def value(self, *, day_first: bool) -> datetime.datetime | None:
        """The date, in UTC without a zone."""
        return self.day_first if day_first else self.month_first

    @property
    def is_open(self) -> bool:
        """Whether both orders can be meant, with different dates: 03/04/2021."""
        return None not in (self.day_first, self.month_first) and self.day_first != self.month_first


_DURATIONS = tuple(
    re.compile(form)
    for form in (
        r"(?P<minus>[-+])?(?:(?P<days>[0-9]+) days?,? ?)?(?P<hours>[0-9]{1,3}):(?P<minutes>[0-5][0-9])"
        r"(?::(?P<seconds>[0-5][0-9](?:[.,][0-9]{1,9})?))?(?: ?(?:h|hrs?|std)\.?)?",
        r"(?P<hours>[01]?[0-9]|2[0-4])(?:[:.](?P<minutes>[0-5][0-9])(?::(?P<seconds>[0-5][0-9]))?)? ?uhr",
        r"(?P<minus>[-+])?(?P<minutes>[0-9]{1,3}):(?P<seconds>[0-5][0-9][.,][0-9]{1,9})",
        r"(?P<minutes>[0-9]{1,3})' ?(?P<seconds>[0-5][0-9](?:\.[0-9]{1,3})?)(?:\"|'')",
        r"(?P<hours>0?[1-9]|1[0-2])(?::(?P<minutes>[0-5][0-9])(?::(?P<seconds>[0-5][0-9]))?)? ?(?P<half>[ap])\.?m\.?",
        r"(?P<minus>-)?p?(?=.*[0-9])(?:(?P<days>[0-9]+) ?d(?:ays?)?,? ?)?t?"
        r"(?:(?P<hours>[0-9]+) ?(?:h(?:(?:ou)?rs?)?|std\.?|stunden?),? ?)?"
        r"(?:(?P<minutes>[0-9]+) ?"
        r"(?:m(?:in(?:ut)?(?:e[ns]?|s)?)?\.?,? ?|(?(hours)(?:(?<=h[0-9]{2})|(?<=h [0-9]{2}))$|(?!))))?"
        r"(?:(?P<seconds>[0-9]+(?:\.[0-9]+)?) ?s(?:ec(?:ond)?s?)?)?",
    )
)
"""As a clock shows them, with hours or with fractions of a second; times of day; and with words: 1h 30m, PT5M, 7h30."""


STOPWATCH = re.compile(r"[-+]?(?:(?P<minutes>[0-9]{1,3}):(?=[0-5][0-9]))?(?P<seconds>[0-9]{1,2}(?:[.,][0-9]{1,3})?)")
"""Minutes and seconds, or seconds, where a column shows that these come last: 3:28.5, 3:28 and 59.32."""


def duration_of(text: str) -> datetime.timedelta | None:
    """The length of time or time of day in a text: 7:30 (hours and minutes), 1h 30m, 2 days 03:04:05.5; or None.

    >>> duration_of("7:30"), duration_of("1 days 00:00:01.5"), duration_of("7:75"), duration_of("7:30 pm")
    (datetime.timedelta(seconds=27000), ...(days=1, seconds=1, microseconds=500000), None, ...(seconds=70200))
    """
    match = next(filter(None, (form.fullmatch(text.casefold()) for form in _DURATIONS)), None)
    if match is None or not any(sign.isalpha() or sign in ":'" for sign in text):
        return None
    part = match.groupdict()
    parts = {name: float((part.get(name) or "0").replace(",", ".")) for name in ("days", "hours", "minutes", "seconds")}
    if part.get("half"):
        parts["hours"] = parts["hours"] % 12 + 12 * (part["half"] == "p")
    return datetime.timedelta(**parts) * (-1 if part.get("minus") == "-" else 1)


_MONTHS = (
    "jan january januar janvier enero gennaio janeiro ene gen"
    " janv januari styczeń stycznia leden ledna ocak январь января",
    "feb february februar février fevrier febrero febbraio fevereiro fev fév févr"
    " februari luty lutego únor února şubat февраль февраля",
    "mar march märz maerz mars marzo março mär mrz maart marzec marca březen března mart март марта",
    "apr april avril abril aprile avr abr kwiecień kwietnia duben dubna nisan апрель апреля",
    "may mai mayo maggio maio mag mei maj maja květen května may\u0131s май мая",
    "jun june juni juin junio giugno junho giu czerwiec czerwca červen června haziran июнь июня",
    "jul july juli juillet julio luglio julho juil lug lipiec lipca červenec července temmuz июль июля",
    "aug august août aout agosto ago aoû augustus augusti sierpień sierpnia srpen srpna ağustos август августа",
    "sep sept september septembre septiembre settembre setembro set wrzesień września září eylül сентябрь сентября",
    "oct october oktober octobre octubre ottobre outubro okt ott out"
    " październik października říjen října ekim октябрь октября",
    "nov november novembre noviembre novembro listopad listopada listopadu kas\u0131m ноябрь ноября",
    "dec december dezember décembre decembre diciembre dicembre dezembro dez déc dic"
    " grudzień grudnia prosinec prosince aral\u0131k декабрь декабря",
)
_MONTH = {name: number for number, names in enumerate(_MONTHS, start=1) for name in names.split()}
_TIME = (
    r"(?:(?:t|,? +(?:(?:\u00e0|at|um|klo?|om|alle|ore) )?|-(?=..\.))(?P<hour>[0-9]{1,2})[:.h](?P<minute>[0-9]{2})"
    r"(?:[:.](?P<second>[0-9]{2})(?:[.,](?P<part>[0-9]{1,9}))?)?\s*(?P<half>[ap]\.?m\.?)?"
    r"\s*(?P<zone>z|[a-z]{3,4}|(?:gmt|utc)?[+-][0-9]{1,2}(?::?[0-9]{2})?)?(?: ?[\[(][a-z/_ ]+[\])])?)?"
)
_ZONES = {
    **{"z": "z", "utc": "z", "gmt": "z", "wet": "z", "cet": "+01", "cest": "+02", "eet": "+02", "eest": "+03"},
    **{"est": "-05", "edt": "-04", "cst": "-06", "cdt": "-05", "mst": "-07", "mdt": "-06", "pst": "-08", "pdt": "-07"},
    **{"jst": "+09", "kst": "+09", "aest": "+10", "aedt": "+11"},
}
_WEEKDAY = r"(?:(?:mo|tu|we|th|fr|sa|su|di|mi|do|so|lu|ma|me|je|ju|gi|ve|vi|dim|dom|s\u00e1)[^\W\d_]{0,9}\.?,? )?"
_ORDINAL = r"(?:\.|st|nd|rd|th|er)?"
_DATES = (
    r"(?P<year>[0-9]{4})(?P<mark>[-/_]|(?P<dot>\. ?))(?P<month>[0-9]{1,2})(?P=mark)(?P<day>[0-9]{1,2})(?(dot)\.?)",
    r"(?P<first>[0-9]{1,2})(?P<mark>[-/]|\. ?)(?P<other>[0-9]{1,2})(?P=mark)(?P<year>[0-9]{4})",
    r"(?P<first>[0-9]{1,2})(?P<mark>/)(?P<other>[0-9]{1,2})/(?P<short>[0-9]{2})",
    r"(?P<first>[0-9]{2})(?P<mark>[-.])(?P<other>[0-9]{2})(?P=mark)(?P<short>[0-9]{2})",  # 3.4.21 may be a version
    rf"(?P<name>[^\W\d_]+)\.?[ -](?P<day>[0-9]{{1,2}}){_ORDINAL},?[ -](?P<year>[0-9]{{4}})",
    rf"(?P<day>[0-9]{{1,2}}){_ORDINAL}[ /-]?(?:of |de )?(?P<name>[^\W\d_]+)\.?,?[ /-]?(?:de )?(?P<year>[0-9]{{4}})",
    r"(?P<day>[0-9]{1,2})\.?[ /-](?P<name>[^\W\d_]+)\.?[ /-](?P<short>[0-9]{2})",
    r"(?P<year>[0-9]{4})[ -](?P<name>[^\W\d_]+)\.?[ -](?P<day>[0-9]{1,2})",
    r"(?P<name>[^\W\d_]+)\.?,?[ -](?P<year>[0-9]{4})",
    r"(?P<name>[^\W\d_]+)\.?(?:-| ?')(?P<short>[0-9]{2})",  # as Excel writes a month: Jan-24
    r"(?P<year>[0-9]{4})[ -](?P<name>[^\W\d_]+)\.?",
    r"(?P<year>[0-9]{4})(?:[-/]|[ -]?m)(?P<month>[0-9]{2})",
    r"(?P<month>[0-9]{2})[-/.](?P<year>(?:19|20)[0-9]{2})",
    r"(?P<year>(?:19|20)[0-9]{2})\.?(?P<month>0[1-9]|1[0-2])",
    r"(?P<year>(?:19|20)[0-9]{2})(?P<month>[0-9]{2})(?P<day>[0-9]{2})",
)


def _reader(*forms: str, **known: str) -> Callable[[str], Day | None]:
    """What reads a date that is written in one of these forms, with what of it is ``known``; None of other texts."""
    patterns = [re.compile(form) for form in forms]

    def read(text: str) -> Day | None:
        text = text.casefold()
        matches = filter(None, (pattern.fullmatch(text) for pattern in patterns))
        days = (_day(defaultdict(lambda: None, match.groupdict() | known)) for match in matches)
        return next(filter(None, days), None)

    return read


_written_date = _reader(*(_WEEKDAY + form + _TIME for form in _DATES))
_YEAR_DAY = re.compile(r"((?:19|20)[0-9]{2})[-./]([0-3][0-9]{2})")

_ERAS = {"令和": 2018, "平成": 1988, "昭和": 1925}
"""The year before the first of an emperor."""

_REWRITTEN = (
    (  # from the start of a word only: a long one would take its square
        re.compile(r"(?<![^\W\d_])([^\W\d_]+) +([0-9]{1,2}) ([0-9]{2}:[0-9]{2}:[0-9]{2})(?: (utc|gmt))? ([0-9]{4})$"),
        r"\1 \2 \5 \3",
    ),
    (re.compile(r"^([0-9]{8})(?:t|(?=[0-9]{6}$))([0-9]{2})([0-9]{2})([0-9]{2})"), r"\1 \2:\3:\4"),
    (re.compile(r"^([0-9]{2}/?[a-z]{3}/?[0-9]{4}):"), r"\1 "),
    (re.compile(r"^(?:kw|wk|week) ?([0-9]{1,2})[ /-]+([0-9]{4})$"), r"\2w\1"),
    (re.compile(r"^([1-4])(?:\. ?quartal |q[ /'-]?)([0-9]{2,4})$"), r"q\1 \2"),
    (re.compile(r"^(q[1-4])[ /'-]{0,2}(?:fy ?)?(?:20)?([0-9]{2})$"), lambda part: f"{part[1]} {_full_year(part[2])}"),
    (
        re.compile(r"^(令和|平成|昭和)([0-9]{1,2}|元)(?=年)"),
        lambda part: str(_ERAS[part[1]] + int(part[2].replace("元", "1"))),
    ),
    (re.compile(r"^([0-9]{4})年([0-9]{1,2})月(?:([0-9]{1,2})日)?"), lambda part: f"{part[1]}-{part[2]}-{part[3] or 1}"),
)
"""Times as C (Sun Jan 01 00:00:00 2012), basic ISO (20240131T101500Z), SAS (31JAN2024:10:15:00), Japan write them, and
weeks and quarters as Germany does."""

_PARTS_OF_YEAR = re.compile(
    r"(?:(?P<first>[qh][1-4])[ /-]?)?(?P<year>(?:19|20)[0-9]{2})"
    r"(?:[ /-]?(?:(?P<then>[qh][1-4])|w(?P<week>[0-9]{1,2})(?:-(?P<weekday>[1-7]))?))?"
)

_SHORT_YEARS = 69
"""Years of two digits below this are of the 21st century, as in POSIX."""


def _full_year(short: str | None) -> str:
    year = int(short or 0)
    return str(year + (2000 if year < _SHORT_YEARS else 1900))


_SERIAL = re.compile(r"[1-9][0-9]{4}(?:\.[0-9]+)?")
YEAR = re.compile(r"(?:1[5-9]|20)[0-9]{2}")
_EPOCH = re.compile(r"([1-9][0-9]{9})([0-9]{3}(?:[0-9]{3}){0,2})?(?:\.[0-9]+)?")


def serial_of(text: str) -> datetime.datetime | None:
    """The date of a number among dates: days as spreadsheets count them, seconds since 1970, or a year; or None.

    >>> serial_of("45231.75"), serial_of("20231101"), serial_of("2016")
    (datetime.datetime(2023, 11, 1, 18, 0), None, datetime.datetime(2016, 1, 1, 0, 0))
    """
    if YEAR.fullmatch(text):
        return datetime.datetime(int(text), 1, 1)
    if _SERIAL.fullmatch(text):
        return datetime.datetime(1899, 12, 30) + datetime.timedelta(float(text))
    return None if (day := epoch_of(text)) is None else day.day_first


def epoch_of(text: str) -> Day | None:
    """The moment in a text of seconds since 1970, of 10 digits, or of parts of them: of 13, 16 or 19; or None.

    >>> epoch_of("1700000000.5").day_first == epoch_of("1700000000500").day_first, epoch_of("20231101")
    (True, None)
    """
    match = _EPOCH.fullmatch(text)
    if match is None:
        return None
    seconds, _, part = text.partition(".")
    micro = f"{seconds[10:]}{part}".ljust(6, "0")[:6]
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=int(match[1]), microseconds=int(micro))
    return Day(moment, moment)


month_of = _reader(
    r"(?P<month>0?[1-9]|1[0-2])[/.-](?:(?P<year>(?:19|20)[0-9]{2})|(?P<short>[0-9]{2}))",
    r"(?P<year>(?:19|20)[0-9]{2})[/-](?P<month>0?[1-9]|1[0-2])",
    r"(?P<name>[^\W\d_]+)\.?[ /-](?P<short>[0-9]{2})",
    r"(?P<short>[0-9]{2})[ /-](?P<name>[^\W\d_]+)\.?",
)
"""The month in a text such as 06/23, 6/2023 or 23-Jun, where its column shows that it is June 2023; or None."""

year_first_of = _reader(r"(?P<short>[0-9]{2})(?P<mark>[-./])(?P<month>[0-9]{2})(?P=mark)(?P<day>[0-9]{2})" + _TIME)
"""The day in a text such as 24-01-31, where its column shows that the year comes first; or None."""

dotted_of = _reader(r"(?P<day>[0-9]{1,2})(?P<mark>[-.])(?P<month>[0-9]{1,2})(?P=mark)(?P<short>[0-9]{2})" + _TIME)
"""The day in a text such as 3.4.21, where its column shows that it is no version; or None."""

year_day_of = _reader(
    rf"{_WEEKDAY}(?P<name>[^\W\d_]+)\.?[ /-]?(?P<day>[0-9]{{1,2}}){_ORDINAL}{_TIME}",
    rf"{_WEEKDAY}(?P<day>[0-9]{{1,2}}){_ORDINAL}[ /-]?(?:of |de )?(?P<name>[^\W\d_]+)\.?{_TIME}",
    rf"{_WEEKDAY}(?P<first>[0-9]{{1,2}})(?P<mark>[-/])(?P<other>[0-9]{{1,2}}){_TIME}",
    rf"{_WEEKDAY}(?P<first>[0-9]{{1,2}})(?P<mark>\.) ?(?P<other>[0-9]{{1,2}})\.{_TIME}",
    year="2000",
)
"""The day in a text such as 19-Jan or 19/01, where its column shows that it names no year, in 2000; or None."""

_SEASON = re.compile(r"(?:fy ?)?((?:18|19|20)[0-9]{2})[-/]((?:[0-9]{2}){1,2})|fy ?([0-9]{2}|20[0-9]{2})")


def season_of(text: str) -> Day | None:
    """The first day of the first year of a text such as 1998-99, 2004/2005 or FY24; or None.

    >>> season_of("1999/00").day_first, season_of("1998-11"), season_of("FY24").month_first
    (datetime.datetime(1999, 1, 1, 0, 0), None, datetime.datetime(2024, 1, 1, 0, 0))
    """
    match = _SEASON.fullmatch(text.casefold())
    year = int(match[1] or (match[3] if len(match[3]) == 4 else _full_year(match[3]))) if match else 0
    if match is None or (match[2] and int(match[2]) % 100 != (year + 1) % 100):
        return None
    return Day(datetime.datetime(year, 1, 1), datetime.datetime(year, 1, 1))


def ordinal_of(text: str) -> Day | None:
    """The day in a text such as 2024-032, the first of February, where its column shows that it is no number; or None.

    >>> ordinal_of("2024-032").day_first, ordinal_of("2023-366")
    (datetime.datetime(2024, 2, 1, 0, 0), None)
    """
    match = _YEAR_DAY.fullmatch(text)
    if match is None:
        return None
    moment = datetime.datetime(int(match[1]), 1, 1) + datetime.timedelta(int(match[2]) - 1)
    return Day(moment, moment) if moment.year == int(match[1]) else None


_FROM = re.compile(r"^(?:from|vom|von|du|del|dal) ", re.IGNORECASE)
_UNTIL = re.compile(r" ?(?:[-/~\u301c]|\b(?:to|until|till|bis|au|al|tot)\b) ?")
_TIME_OF_DAY = re.compile(r"^[0-9]{1,2}:[0-9]{2}(?!.*[:h])|[0-9] ?[ap]\.?m\b|uhr$", re.IGNORECASE)
_HEAD, _DAY = re.compile(r"[^\W\d_]+\.? "), re.compile(r"(?:[0-9]{1,2}(?=\D)(?:st|nd|rd|th)?)?")


def span_of(text: str) -> tuple[Day, Day] | None:
    """The first and the last day in a text, the first also without its month or year, or its only one twice; or None.

    Of times of day, as opening hours are, both are those of the first of January 1970, or the last of the second.

    >>> [day.day_first.day for day in span_of("3-5 May 2024")], [day.day_first.month for day in span_of("Jan-Mar 2024")]
    ([3, 5], [1, 3])
    >>> [day.day_first.hour for day in span_of("9am - 5:30 pm")], span_of("22:00-06:00")[1].day_first.day
    ([9, 17], 2)
    >>> span_of("28. Februar - 2. M\u00e4rz 2023")[0].day_first, span_of("12.03.-15.03.2024")[0].day_first
    (datetime.datetime(2023, 2, 28, 0, 0), datetime.datetime(2024, 3, 12, 0, 0))
    """
    text = _FROM.sub("", text)
    for match in _UNTIL.finditer(text):
        one, other = text[: match.start()], text[match.end() :]
        head, year = _HEAD.match(one), re.search(r"[ .,/-]*(?:19|20)?[0-9]{2}$", other)
        ways = [(one, other), (one.rstrip(".") + _DAY.sub("", other, count=1), other)]
        if year is not None:
            ways += [(one.rstrip(".") + year[0], other), (one + year[0], f"{head[0] if head else ''}{other}")]
        for first, last in ways:
            days = day_of(first), day_of(last)
            if days[0] is not None and days[1] is not None and "" not in (one, other):
                return days[0], days[1]
        if (times := _times_of(one, other)) is not None:
            return times
    return None if (day := day_of(text)) is None else (day, day)


def _times_of(one: str, other: str) -> tuple[Day, Day] | None:
    """Two times of day, the other after the first, which may lack its half of the day: 1:30 - 2:45 pm; or None."""
    half = re.search(r" ?[ap]\.?m\.?$", other, re.IGNORECASE)
    ways = (one, other, one + (half[0] if half else ""))
    first, last, late = (duration_of(text) if _TIME_OF_DAY.search(text) else None for text in ways)
    first = late if last and late and late < last else first
    if first is None or last is None:
        return None
    start, end = (datetime.datetime(1970, 1, 1) + time for time in (first, last))
    end += datetime.timedelta(days=end < start)
    return Day(start, start), Day(end, end)


@functools.lru_cache(REMEMBERED)
def day_of(text: str) -> Day | None:
    """The date in a text of :func:`plain_text`, with or without a time of day and a zone; or None.

    >>> day_of("31/12/2021").day_first, day_of("31/12/2021").month_first
    (datetime.datetime(2021, 12, 31, 0, 0), None)
    >>> day_of("1.1.2021 klo 14.30").day_first, day_of("9999-12-31T23:59:59+01:00").day_first, day_of("12.05")
    (datetime.datetime(2021, 1, 1, 14, 30), datetime.datetime(9999, 12, 31, 22, 59, 59), None)
    """
    text = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
    if not text[:1].isalnum() or not any(sign.isdigit() for sign in text):
        return None
    text = text.casefold()
    for form, other in _REWRITTEN:
        text = form.sub(other, text)
    if (beginning := _beginning(text)) is not None:
        return Day(beginning, beginning)
    return _written_date(text)


def _beginning(text: str) -> datetime.datetime | None:
    """The first day of a quarter (Q1 2024, 2024-Q1), half a year (H1 2024) or week of the ISO (2024-W05); or None."""
    match = _PARTS_OF_YEAR.fullmatch(text)
    part = match and (match["first"] or match["then"])
    if match is None or (match["first"] and (match["then"] or match["week"])) or not (part or match["week"]):
        return None
    with contextlib.suppress(ValueError):  # a year without week 53, or a third half
        if part:
            months = {"q": 3, "h": 6}[part[0]]
            return datetime.datetime(int(match["year"]), months * (int(part[1]) - 1) + 1, 1)
        return datetime.datetime.fromisocalendar(int(match["year"]), int(match["week"]), int(match["weekday"] or 1))
    return None


def _day(part: dict[str, str | None]) -> Day | None:
    year = part.get("year") or _full_year(part["short"])
    if part.get("first") is not None:
        orders = ((part["other"], part["first"]), (part["first"], part["other"]))  # month and day
    else:
        name = part.get("name")
        month = part.get("month") if name is None else str(_MONTH.get(name, 0))
        orders = ((month, part.get("day") or "1"),) * 2
    days = [_moment(int(year), int(month or 0), int(day or 0), part) for month, day in orders]
    return (
        None
        if days == [None, None]
        else Day(days[0], days[1], (part.get("mark") or "").strip(), short=part.get("short") is not None)
    )


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
    zone = _ZONES.get(zone, zone.removeprefix("gmt").removeprefix("utc"))
    if zone[0] not in "+-z" or zone[1:2].isalpha():
        return None
    if zone[0] in "+-":
        hours, minutes = (zone[1:], 0) if len(zone) < 4 else (zone[1:-2], zone[-2:])
        ahead = datetime.timedelta(hours=int(hours), minutes=int(minutes))
        with contextlib.suppress(OverflowError):  # the last hours of the year 9999, which mean "no end" in any zone
            return moment + (ahead if zone[0] == "-" else -ahead)
    return moment
