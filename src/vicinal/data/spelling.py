"""Numbers, truth values and gaps as people write them, each read from one text."""

import contextlib
import functools
import html
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vicinal.data.date_spelling import REMEMBERED

GAPS = frozenset(
    {"", "-", "--", "---", "?", ".", "..", "...", ":", "null", "nil", "none", "missing", "unknown", "not available"}
    | {"na", "n/a", "#n/a", "n.a.", "n.a", "nan", "nat", "<na>", "(blank)", "n.d.", "no data", "not specified", "\\n"}
    | {"tbd", "tba", "not applicable", "prefer not to say", "0000-00-00", "unbekannt", "keine angabe", "k.a.", "k. a."}
    | {"k.a", "s/d", "s.d.", "sin datos", "inconnu", "non renseign\u00e9", "desconocido", "\u4e0d\u660e"}
    | {f"#{error}" for error in ("div/0!", "value!", "ref!", "name?", "num!", "null!", "error!", "getting_data")}
)
"""How people write that a value is missing, in lower case: among numbers, dates, lengths of time and truth values."""

SURE_GAPS = frozenset({"n/a", "#n/a", "?", "-", "--", "\\n"})
"""Those of them that are nothing else among categories, either: "none" and "NA" may be names."""

_TRUTHS = (
    "false/true no/yes off/on n/y f/t nein/ja non/oui no/si no/sí não/sim nao/sim nej/ja nie/tak нет/да いいえ/はい "
    "無/有 无/有 なし/あり 否/是 nee/ja ne/ano falsch/wahr faux/vrai falso/verdadero falso/vero \u00d7/\u25cb ✗/✓ ✘/✔ "
    "❌/✅ ☐/☑"
)
TRUTHS = tuple((pair.partition("/")[0], pair.partition("/")[2]) for pair in _TRUTHS.split())
"""Pairs of words for false and true, in lower case; single letters count only where a column has both."""

_TRUTH = {word: word == pair[1] for pair in (*TRUTHS, ("0", "1"), ("0.0", "1.0")) for word in pair}

_SIGNS = {
    **dict.fromkeys(("$", "us$", "usd"), "$"),
    **dict.fromkeys(("€", "eur", "euro"), "€"),
    **dict.fromkeys(("£", "gbp"), "£"),
    **dict.fromkeys(("¥", "jpy", "円", "\\"), "¥"),  # a backslash has the place of ¥ in Japan's encodings
    **dict.fromkeys(("₽", "\u0440\u0443\u0431", "\u0440\u0443\u0431."), "₽"),
    **dict.fromkeys(("₹", "inr", "rs", "rs."), "₹"),
    **dict.fromkeys(("r$", "brl"), "R$"),
    **dict.fromkeys(("fr.", "chf", "sfr."), "CHF"),
    **dict.fromkeys(("zł", "pln"), "PLN"),
    **dict.fromkeys(("kč", "czk"), "CZK"),
    **{name: name.upper() for name in ("cny", "krw", "rub", "try", "sek", "nok", "dkk", "huf", "mxn", "zar", "sgd")},
    **{name: name.upper() for name in ("aud", "cad", "nzd", "hkd", "ils", "thb", "a$", "c$", "nz$", "hk$", "s$")},
    **{"kr": "KR", "kr.": "KR", "nt$": "NT$", "rp": "IDR", "rp.": "IDR", "idr": "IDR", "\u5143": "CNY", "rmb": "CNY"},
    **{sign: sign for sign in "₩₺₫₴₪฿₦₱₲%"},
}
"""One sign for each way to write a currency or a share of 100."""

MOST_PARTS, LONGEST_PART, LONGEST_NUMBER = 8, 100, 9
"""Numbers in one cell, characters around them, and their digits, up to which they are read one by one."""

MONEY = frozenset(_SIGNS.values()) - {"%"}

UNITS = (
    {"ng": 1e-12, "\u03bcg": 1e-9, "mg": 1e-6, "g": 1e-3, "kg": 1.0, "t": 1e3, "oz": 0.028349523125, "lb": 0.45359237}
    | {"stone": 6.35029318, "k": 1.0},
    {"mm": 1e-3, "cm": 0.01, "m": 1.0, "km": 1e3, "tkm": 1e6, "in": 0.0254, "ft": 0.3048, "yd": 0.9144, "mi": 1609.344},
    {"ns": 1e-9, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}
    | {"week": 604800.0, "month": 2629800.0, "year": 31557600.0},
    {"ml": 1e-3, "cl": 0.01, "dl": 0.1, "l": 1.0, "gal": 3.785411784},
    {"wh": 1e-3, "kwh": 1.0, "mwh": 1e3, "gwh": 1e6},
    {"w": 1e-3, "kw": 1.0, "hp": 0.745699872, "ps": 0.73549875},
    {"hz": 1e-6, "khz": 1e-3, "mhz": 1.0, "ghz": 1e3},
    {"m2": 1.0, "km2": 1e6, "ha": 1e4, "sqft": 0.09290304, "acre": 4046.8564224},
    {"km/h": 1.0, "mph": 1.609344, "m/s": 3.6},
    {"b": 1e-6, "kb": 1e-3, "mb": 1.0, "gb": 1e3, "tb": 1e6, "kib": 1.024e-3, "mib": 1.048576, "gib": 1073.741824}
    | {"k": 1e-3, "mn": 1.0, "g": 1e3},  # 4K, 12M and 1G of memory
    {"kbit": 1e-3, "mbit": 1.0, "gbit": 1e3},
    {"\u00b0c": 1.0, "\u00b0f": 5 / 9},
    {"pa": 0.01, "hpa": 1.0, "kpa": 10.0, "bar": 1000.0, "psi": 68.9476, "mmhg": 1.333224} | {"inhg": 33.8639},
    {"kcal": 1.0, "kj": 0.239006},
    {"nmol": 1e-6, "\u03bcmol": 1e-3, "mmol": 1.0, "mol": 1e3},
    {"ppb": 1e-3, "ppm": 1.0},
    {"piece": 1.0, "dozen": 12.0},
)
"""Units that are converted where a column has several of them: those of one quantity, in its base unit."""

PAID = {"h": 1.0, "day": 8.0, "week": 40.0, "month": 520 / 3, "year": 2080.0}
"""Hours that money per hour, day, week, month or year is paid for."""

MEASURES = {unit for units in UNITS for unit in units if len(unit) > 1} - {"in", "mn"} | {"h"} | MONEY
"""Signs that say that a number is measured, whatever stands beside it: "3 days ago", but "5 in Bern"."""

_OPPOSITE = {"dr": "crore", "debit": "credit", "soll": "haben", "bc": "ad", "bce": "ce", "s": "n", "w": "e"}
"""Words after a number that turn its sign, beside those that do not: 500.00 Dr is -500.00 Cr, and 33.5S is -33.5N."""

_ZERO = {"\u00b0f": 32.0}
"""What a unit calls zero of its base unit, where that is not 0."""

_SCALES = {"k": 1e3, "m": 1e6, "mn": 1e6, "bn": 1e9, "b": 1e9, "lakh": 1e5, "crore": 1e7, "万": 1e4, "億": 1e8}
_SCALES["mil"] = 1e3  # of Spanish and Portuguese
_NAMES = (
    "lb pound lbs; in inch inche \" ''; ft ' feet foot; mi mile mls; \u00b0c c celsius; \u00b0f f fahrenheit; s "
    "sec second; min minute minuten minuti minuto; h hr hrs hour std stunde stunden heure hora ora ore timme "
    "timmar; day d tag tage tagen jour d\u00eda dia giorno giorni dag dagar dage; week wk wks woche wochen "
    "semaine semana vecka veckor; month mo mos mth mths monat monate monaten mois mes mese mesi m\u00e5n "
    "m\u00e5nad m\u00e5nader; year y yr yrs y/o yo jahr jahre jahren an ans ann\u00e9e a\u00f1o anno anni "
    "\u00e5r annum; \u03bcg mcg ug; g gram; kbit/s kbps; mbit/s mbps; gbit/s gbps; "
    "l liter litre; ml cc ccm cm3; m2 sqm qm sqmeter; sqft ft2 sqfeet sqfoot; acre ac; km/h "
    "kph kmh; % percent pct prozent; hp bhp; hpa mbar; kcal cal; piece pc pcs pce stk st\u00fcck; dozen doz dz;"
    " lakh lac; crore cr; th st nd rd er \u00e8re \u00e8me eme; k thousand tsd tausend mille tys tis \u0442\u044b\u0441"
    "; mn million mio mln milh\u00e3o milh\u00f5e milhao milhoe mill\u00f3n millone milione milioni miljoen "
    "\u043c\u043b\u043d; bn billion mrd mld milliard bilh\u00e3o bilh\u00f5e \u043c\u043b\u0440\u0434; "
    "万 만; 億 亿 억; stone"
)
_SAME = {word: names.split()[0] for names in _NAMES.split("; ") for word in names.split()[1:]}
"""Other names of units, without the s of the plural."""

_MONEY = "|".join(sorted(map(re.escape, _SIGNS), key=len, reverse=True))
_WORD = r"[^\W\d_]{1,12}[23]?(?:/[^\W\d_]{1,8})?\.?|°[cfk]?|''?|\""
QUALIFIED = (
    r"(?:#(?=[1-9])|\u00a9 ?|c(?=(?:1[5-9]|20)[0-9]{2}$)|[<>~\u2264\u2265\u2248\u00f8\u2300]=?|"
    r"(?:n[or]\.?|n\u00b0|c\.|ca\.?|circa|approx\.?|about|around|etwa|rund|rd\.|env\.|aprox\.|over|under|"
    r"up to|only|noch|nur) ?)"
)
_PER = r"(?:\s*/\s*|\s+(?:per|an?|pro|je|par|al)\s+)(?P<per>[^\W\d_]{1,8}[23]?)\.?"
_PAY = {"pa": "year", "pcm": "month", "pm": "month", "pw": "week", "ph": "h"}
"""Abbreviations after money."""
_NUMBER = re.compile(
    rf"{QUALIFIED}?\s*(?P<open>\()?\s*"
    rf"(?P<minus>[-+])?\s*(?P<before>{_MONEY})?\s*(?P<inner>[-+])?\s*"
    rf"(?P<digits>[0-9.,' ]*[0-9][.,]?)(?P<power>e[-+]?[0-9]+)?\+?\s*"
    rf"(?P<scale>(?:(?<=[0-9])[mb]|k|mio|mn|mil|mln|million|tsd|thousand|\u0442\u044b\u0441|\u043c\u043b\u043d|\u043c\u043b\u0440\u0434)\.?\s+(?=[^\W\d_])|[万億亿만억](?=[^\W\d_]))?"
    rf"(?:(?P<after>{_MONEY})|(?P<word>{_WORD})\s*(?P<last>{_MONEY})?)?(?:{_PER})?\s*(?P<trailing>-)?(?P<close>\))?"
    r"[+*?\u2020\u2021]*(?:\[[^\]]{1,8}\])?"
)
_MONEY_OUTSIDE = re.compile(r"^([^\w\s(]{1,2}|[a-z]{3}) ?\(")  # $(5.00)
_AND = r",?\s*(?:(?:and|et|und|y|e|og|och|&) )?"
_PARTS = re.compile(rf"(?P<much>[0-9]+)\s*(?P<unit>{_WORD}){_AND}(?P<more>[0-9]+(?:\.[0-9]+)?)\s*(?P<smaller>{_WORD})?")
_FRACTION = re.compile(
    r"(?<![\w/.,])(?:(?P<whole>[0-9]{1,3})[ -])?(?P<over>[0-9]{1,2})/(?P<under>2|3|4|8|16|32|64)(?![\w/.,])"
)
_WORDED = (
    (re.compile(r"(?<=[0-9%]) ?\(?(?:\u00b1|\+ ?/ ?-|\+-) ?[0-9.,]+%?\)?(?=$| ?[^\W\d_]| ?%)"), ""),  # 12.3 +/- 0.4
    (re.compile(r"\bsq(?:uare|\.)? ?(?=f(?:ee|oo)?t|m)"), "sq"),  # sq. ft.
    (re.compile(r"(?<=\w) old$"), ""),
    (re.compile(r"\bper cent$"), "percent"),
    (re.compile(r"\bp\.a\.?$"), "pa"),
    (re.compile(r"\b(?:deg(?:rees?|\.)?|grad) ?([cf])(?:elsius|ahrenheit)?$"), "\u00b0\\1"),
    (re.compile(r"(?<=m) (?:a\.?m?\.?s\.?l\.?|\u00fc\. ?(?:m|nh?n)\.?)$"), ""),  # meters above the sea
    (re.compile(r"\bt(?=\u20ac|eur\b|chf\b)"), "k "),
    (re.compile(r"^k ?(\u20ac|eur|chf) ?([0-9.,']+)$"), r"\2 k \1"),
)
"""Units of two words, as one, and numbers without how far they may be off."""
_MILLIONS = re.compile("[0-9] ?M")
_POWER = re.compile(r" ?[x\u00d7*\u00b7\u22c5] ?10\^([-+]?[0-9]{1,2})$")
_ON_ACCOUNT = re.compile(r"(?<=,[0-9]{2}) ([sh])$")  # as German banks write debit and credit
_NOTHING = re.compile(rf"(?!%)({_MONEY}) ?-{{1,3}}|-{{1,2}} ?(?!%)({_MONEY})")
_UP, _DOWN = "\u25b2\u25b3\u2191\u2b06\U0001f53a\U0001f4c8", "\u25bc\u25bd\u2193\u2b07\U0001f53b\U0001f4c9"
_AFTER = re.compile(rf"^([^\s{_UP}{_DOWN}]*[0-9][^\s{_UP}{_DOWN}]*(?: ?%)?) ?([{_UP}{_DOWN}])$")
_TREND = re.compile(rf"([{_UP}{_DOWN}]) ?([-+]?)(?=[^\w\s]? ?[0-9.])")
"""A number that rises or falls: 0.5% up or down an arrow."""
_STARS = re.compile(r"(?=.*[\u2605\u2b50\u2606])(?P<full>[\u2605\u2b50]*)(?P<half>\.5)?[\u2606\u2729]*")
_DEGREES = re.compile(
    r"(?P<before>[nsew]?) ?(?P<degrees>-?[0-9]{1,3}(?:\.[0-9]+)?) ?\u00b0 ?"
    r"(?:(?P<minutes>[0-9]{1,2}(?:\.[0-9]+)?) ?' ?)?"
    r"(?:(?P<seconds>[0-9]{1,2}(?:\.[0-9]+)?) ?(?:\"|'') ?)?(?P<after>[nsew]?)"
)
_POINT = re.compile(r"(?:[0-9]+|[1-9][0-9]{0,2}(?:([,' ])[0-9]{3})(?:\1[0-9]{3})*|[1-9][0-9]?(?:,[0-9]{2})*,[0-9]{3})?"
                    r"(?:\.[0-9]*)?")  # fmt: skip
_COMMA = re.compile(r"(?:[0-9]+|[1-9][0-9]{0,2}(?:([.' ])[0-9]{3})(?:\1[0-9]{3})*)?(?:,[0-9]*)?")
_NO_CENTS = re.compile(r"(?<=[0-9])[.,/:]-{1,2}(?=$| ?[^\W\d_]| ?\u20ac)")  # CHF 1'200.-, 12,- \u20ac and Rs. 1,200/-
_SPACES = str.maketrans(
    dict.fromkeys("\u00a0\u2007\u2009\u202f\t", " ")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-")  # dashes and minus signs
    | {"\u2019": "'", "\u2032": "'", "\u201d": '"', "\u2033": '"', "\u066b": ".", "\u066c": ",", "\ufe0f": ""}
    | {"\u00bd": ".5", "\u00bc": ".25", "\u00be": ".75", "\u2153": ".333333", "\u2154": ".666667", "\u2044": "/"}
    | {"\u215b": ".125", "\u215c": ".375", "\u215d": ".625", "\u215e": ".875"}
)
# and what nobody sees, but not the joiners U+200C and U+200D, which Persian, Hindi and emojis are written with
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\u00ad\u200b\u200e\u200f\u2060\ufeff]")
_BROKEN = re.compile("[\u00c2-\u00c5\u00ce-\u00d1\u00e2][^a-zA-Z0-9 ]")
_VULGAR = re.compile("(?<=[0-9]) (?=[\u00bc-\u00be\u2153\u2154\u215b-\u215e])")  # 1 \u00bd
_RAISED = re.compile(r"(?<=10)(?=[\u207b\u2070\u00b9\u00b2\u00b3\u2074-\u2079])")  # 10\u2075
_TAGS = re.compile(r"^(?:\s*<[a-z][^<>]*>)+|(?:<(?:/[a-z][a-z0-9]*|br ?/?)>\s*)+$", re.IGNORECASE)  # not 12<br>345
_DIGIT = re.compile(r"[^\W0-9](?<=\d)")  # of Arabic, Indian and other scripts


def plain_text(cell: str) -> str:
    r"""A cell as the readers below take it: compatible characters, single spaces, plain minus signs, no tags around it.

    >>> plain_text("re\u200bd"), len(plain_text("\u0645\u06cc\u200c\u0634"))  # a joiner of Persian words stays
    ('red', 4)
    >>> plain_text("K\u00c3\u00b6ln"), plain_text("12\u00c2\u00a0\u00e2\u201a\u00ac")
    ('K\xf6ln', '12 \u20ac')
    >>> plain_text(" \u22121\u202f234 "), plain_text("<td><b>12&nbsp;&euro;</b></td>"), plain_text("12<br>345")
    ('-1 234', '12 \u20ac', '12<br>345')
    """
    if not cell.isprintable():
        cell = _CONTROL.sub("", cell)
    if ">" in cell:
        cell = _TAGS.sub("", cell)
    if "&" in cell:
        cell = html.unescape(cell)
    if not cell.isascii():
        cell = _unbroken(cell) if _BROKEN.search(cell) else cell
        cell = unicodedata.normalize("NFKC", _VULGAR.sub("", _RAISED.sub("^", cell)).translate(_SPACES)).translate(
            _SPACES
        )
        cell = _DIGIT.sub(lambda sign: str(unicodedata.decimal(sign[0])), cell)
        cell = _TREND.sub(lambda part: part[2] or "-+"[part[1] in _UP], _AFTER.sub(r"\2\1", cell.strip()))
    return " ".join(cell.split())


def _unbroken(cell: str) -> str:
    """A text in UTF-8 that was taken for one of Windows or ISO, as it was written; another text as it is."""
    for encoding in ("cp1252", "latin-1"):
        with contextlib.suppress(UnicodeError):
            return cell.encode(encoding).decode()
    return cell


@dataclass(frozen=True)
class Number:
    """A number as it was written: its value with "." or "," before decimals (None: not so), and its sign or unit."""

    point: float | None
    comma: float | None
    sign: str = ""

    def value(self, decimal: str, *, either: bool = False) -> float | None:
        """The number, where ``decimal`` comes before the decimals, or ``either`` mark if it is none then."""
        some, other = (self.point, self.comma) if decimal == "." else (self.comma, self.point)
        return other if some is None and either else some

    @property
    def largest(self) -> float:
        """The number, where three digits after a mark are thousands."""
        return max((each for each in (self.point, self.comma) if each is not None), key=abs)

    @property
    def is_open(self) -> bool:
        """Whether both marks can be meant, with different values: "1,234"."""
        return None not in (self.point, self.comma) and self.point != self.comma


@functools.lru_cache(REMEMBERED)
def number_of(text: str) -> Number | None:
    r"""The number in a text of :func:`plain_text`, with thousands marks, a unit, a sign of money or %, or in brackets.

    >>> number_of("$3,750.00"), number_of("(12%)"), number_of("1.250,5 €")
    (Number(point=3750.0, comma=None, sign='$'), Number(point=-12.0, comma=-12.0, sign='%'), ...)
    >>> number_of("1,234"), number_of("12 Main St"), number_of("12.png")
    (Number(point=1234.0, comma=1.234, sign=''), None, None)
    >>> number_of("3 lbs"), number_of("$1.2M"), number_of("6'3\"")
    (Number(point=3.0, comma=3.0, sign='lb'), Number(point=1200000.0, comma=None, sign='$'), Number(point=6.25, ...))
    """
    plain = _rewritten(text.casefold())
    match = _NUMBER.fullmatch(plain)
    if match is None:
        return _in_parts(plain) or _of_signs(plain)
    part = match.groupdict()
    money = [part[name] for name in ("before", "after", "last") if part[name]]
    unit = "" if part["word"] is None else unit_of(part["word"])
    in_brackets = part["open"] is not None and (not unit or is_unit(unit))  # (10 reviews) are not -10
    signs = [part[name] for name in ("minus", "inner", "trailing") if part[name]] + ["-"] * in_brackets
    if len(money) > 1 or len(signs) > 1 or (part["open"] is None) != (part["close"] is None):
        return None
    if part["word"] and part["digits"][-1] in ".,":  # 12.png is a file
        return None
    digits, power = part["digits"].strip(), part["power"] or ""
    scale = (part["scale"] or "").strip()
    factor = (-1.0 if signs == ["-"] else 1.0) * _SCALES.get(unit_of(scale), 1.0)
    if unit == "uhr" or (scale in ("m", "b") and scale.upper() not in text):  # 13.15 Uhr is a time, 5m wide a length
        return None
    unit, per = _per(unit, part["per"] or "", money)
    unit = "mn" if (unit == "m" and _MILLIONS.search(text)) or (unit == "mil" and "$" in money) else unit  # $2 mil
    if (money and unit and unit not in _SCALES) or (unit and digits[-1] in ".,") or per in _SCALES:  # 12.jpg
        return None
    factor *= _SCALES[unit] if money and unit else 1.0
    point = _value(_POINT, digits, (",", "'", " "), power, factor)
    comma = _value(_COMMA, digits, (".", "'", " "), power, factor)
    sign = (_SIGNS[money[0]] if money else unit) + f"/{per}" * bool(per)
    return _in_parts(plain) if point is comma is None else Number(point, comma, sign)


def _rewritten(plain: str) -> str:
    """A text in lower case as ``_NUMBER`` reads it, other ways to write powers, cents and accounts as the usual one."""
    plain = plain[1:-1] if plain[:1] == "[" and plain[-1:] == "]" else plain
    if "/" in plain:
        plain = _FRACTION.sub(_decimals, plain)
    elif "^" in plain:
        plain = _POWER.sub(r"e\1", plain)
    elif "," in plain:
        plain = _ON_ACCOUNT.sub(lambda part: {"s": " soll", "h": " haben"}[part[1]], plain)
    for words, unit in _WORDED if " " in plain or "\u00b1" in plain else ():
        plain = words.sub(unit, plain)
    return _MONEY_OUTSIDE.sub(r"(\1", _NO_CENTS.sub("", plain))


def _per(unit: str, per: str, money: Sequence[str]) -> tuple[str, str]:
    """The unit of a number, a scale where it is money, and what it is per; a scale of nothing is no unit."""
    if money and not per:
        unit, _, per = ("", "", _PAY[unit]) if unit in _PAY else unit.partition("/")
    return unit, "k" if per and ("/" in unit or not (unit or money)) else unit_of(per)


def _decimals(part: re.Match[str]) -> str:
    """A fraction in lowest terms as decimals, 3 1/4 as 3.250000; another text, such as 6/8, as it is."""
    over, under = int(part["over"]), int(part["under"])
    is_one = over < under and math.gcd(over, under) == 1
    return f"{int(part['whole'] or 0) + over / under:.6f}" if is_one else part[0]


def _of_signs(text: str) -> Number | None:
    """Nothing ($ -), the degrees in 52\u00b031'N, or the stars in \u2605\u2605\u2605\u2606\u2606; or None."""
    if (nothing := _NOTHING.fullmatch(text)) is not None:
        return Number(0.0, 0.0, _SIGNS[nothing[1] or nothing[2]])
    stars = _STARS.fullmatch(text)
    if stars is not None:
        value = len(stars["full"]) + len(stars["half"] or "") / 4
        return Number(value, value)
    match = _DEGREES.fullmatch(text)
    if (
        match is None
        or (match["before"] and match["after"])
        or not (match["before"] or match["minutes"] or match["after"])
    ):
        return None
    value = float(match["degrees"]) + float(match["minutes"] or 0) / 60 + float(match["seconds"] or 0) / 3600
    value *= -1 if (match["before"] or match["after"] or "") in ("s", "w") else 1
    return Number(value, value, "\u00b0")


def _in_parts(text: str) -> Number | None:
    """A number of two units, such as 5 ft 11 in or 1h 30m, in the larger one; or None."""
    match = _PARTS.fullmatch(text)
    if match is None:
        return None
    unit, smaller = unit_of(match["unit"]), unit_of(match["smaller"] or "")
    tall = len(match["much"]) == 1 and len(match["more"]) == 2  # 1m80, but 2019m01 is a month
    smaller = smaller or {"ft": "in", "m": "cm" * tall}.get(unit, "")
    clock = len(match["more"]) == 2 or len(match["unit"]) > 1  # 2021 H1 is half a year
    if unit == "h" and (smaller == "m" or (not smaller and clock)):
        smaller = "min"
    smaller = "month" if unit == "year" and smaller == "m" else smaller
    unit = "stone" if unit == "th" and smaller == "lb" else unit  # 11 st 4 lb
    factor = converted(1.0, smaller, unit) if unit != smaller else None
    if not smaller or factor is None or factor >= 1 or (unit == "ft" and float(match["more"]) >= 12):
        return None
    value = float(match["much"]) + factor * float(match["more"])
    return Number(value, value, unit)


_TALL = re.compile(r"([3-8])-([0-9]|1[01])")


def feet_of(text: str) -> Number | None:
    """Feet and inches such as 5-11, where others of their column are written as 5'11"; or None."""
    match = _TALL.fullmatch(text)
    feet = 0.0 if match is None else int(match[1]) + int(match[2]) / 12
    return Number(feet, feet, "ft") if feet else None


def unit_of(word: str) -> str:
    """The name of a unit, however it is written.

    >>> [unit_of(word) for word in ("lbs.", "years", "m2", "ms", "mcg/hr")]
    ['lb', 'year', 'm2', 'ms', '\u03bcg/h']
    """
    word = word.rstrip(".")
    if "/" in word and word not in _SAME:
        return "/".join(map(unit_of, word.split("/")))
    one = word.removesuffix("s") if len(word) > 3 else word
    return _SAME.get(word, _SAME.get(one, one))


def converted(value: float, unit: str, other: str) -> float | None:
    """A number of ``unit`` in ``other``, "" of plain numbers; None for units of different quantities.

    Thousands and millions are plain numbers, and money where others have its sign, or are so much of it per unit.

    >>> converted(3, "km", "m"), converted(2, "k", ""), converted(98.6, "\u00b0f", "\u00b0c"), converted(1, "kg", "m")
    (3000.0, 2000.0, 37.0, None)
    >>> converted(3, "g/l", "mg/l"), converted(20, "$/h", "$/year")
    (3000.0, 41600.0)
    """
    other = unit_of(other) if "/" in other else other  # as models were saved
    if other in (unit, _OPPOSITE.get(unit)) or (unit == _OPPOSITE.get(other) and not is_unit(other)):
        return value if unit == other else -value
    (one, _, per), (amount, _, time) = unit.partition("/"), other.partition("/")
    if per and time:
        paid = one in MONEY and {per, time} <= PAID.keys()
        length = PAID[per] / PAID[time] if paid else converted(1.0, per, time)
        much = None if {one, amount} & _ZERO.keys() else converted(value, one, amount)
        return None if length is None or much is None else float(f"{much / length:.14g}")
    if not other or amount in MONEY or (len(other) > 2 and unit in _SCALES and not is_unit(other)):  # 2k views
        return value if unit == amount else value * _SCALES[unit] if unit in _SCALES else None
    unit = "month" if unit == "m" and other in ("year", "month", "week") else unit  # 2 y beside 11 m
    for units in UNITS:
        if unit in units and other in units:
            return (value - _ZERO.get(unit, 0.0)) * (units[unit] / units[other]) + _ZERO.get(other, 0.0)
    return None


def is_money(sign: str) -> bool:
    """Whether a sign of numbers is a currency, or so much of it per unit.

    >>> is_money("$"), is_money("$/h"), is_money("%")
    (True, True, False)
    """
    return sign.partition("/")[0] in MONEY


def is_unit(sign: str) -> bool:
    """Whether a sign of numbers is a known unit, scale, currency or ordinal.

    >>> is_unit("kg"), is_unit("ot"), is_unit("mg/kg")
    (True, False, True)
    """
    sign = sign.partition("/")[0]
    return sign in MONEY or sign in _SCALES or sign in ("%", "th", "\u00b0") or any(sign in units for units in UNITS)


def common_unit(units: Sequence[str]) -> str | None:
    """The unit that a column is read in, given those of its cells, "" of plain numbers; None if they do not fit.

    >>> [common_unit(units) for units in (["kg", "", "lb"], ["k", "mn"], ["$", "%"], ["bc", "ad"], ["m", "year"], "sn")]
    ['kg', '', None, 'ad', 'year', 'n']
    """
    some = Counter(unit for unit in units if unit)
    if not some:
        return ""
    if set(some) <= set(_SCALES):
        return next(iter(some)) if set(some) in ({"m"}, {"b"}, {"mil"}) else ""
    length = "m" if some.keys().isdisjoint({"year", "month", "week"}) else ""  # m is also a length, or a month
    often = sorted((unit for unit, _ in some.most_common()), key=lambda unit: not is_money(unit) or "/" not in unit)
    base = next(unit for unit in often if unit == length or unit not in _SCALES)
    base = "gb" if {"g", "mn"} <= some.keys() else base
    turned = _OPPOSITE.get(base, base)
    base = turned if turned in some or not is_unit(base) else base  # 5 s are seconds, unless some are N
    return base if all(converted(1.0, unit, base) is not None for unit in some) else None


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


def truths_agree(words: Iterable[str]) -> bool:
    """Whether all ``words`` are truth values, of several pairs or 0 and 1, both values and longer words among them.

    >>> truths_agree(["Y", "no", "1"]), truths_agree(["0", "1"]), truths_agree(["t", "n"])
    (True, False, False)
    """
    words = list(words)
    if any(as_truth(word) is None for word in words):  # the first name of many ends it
        return False
    some = {word.strip().casefold() for word in words}
    return {as_truth(word) for word in some} == {False, True} and any(len(word) > 1 and word.isalpha() for word in some)


def as_truth(word: str) -> bool | None:
    """The truth value of a word or of 0 and 1, whichever pair it is of; None for another.

    >>> as_truth("Yes"), as_truth("F"), as_truth("1.0"), as_truth("maybe")
    (True, False, True, None)
    """
    return _TRUTH.get(word.strip().casefold())
