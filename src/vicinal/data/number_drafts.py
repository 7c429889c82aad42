"""How the numbers of a column are written: marks, units, words beside them, and several in one cell."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from vicinal.data.cell_reading import read_column
from vicinal.data.column_form import CODE, MOST_BESIDE, MOST_GAPS, MOST_WORDS, VERSION, ColumnForm, in_unit, rows_of
from vicinal.data.date_drafts import FEWEST_READ, MOST_ODD
from vicinal.data.date_spelling import YEAR, day_of, duration_of, month_of, year_day_of
from vicinal.data.parts_spelling import (
    Listed,
    is_start,
    listed_in,
    parts_decimal,
    parts_of,
    unit_of_parts,
    values_of,
    version_of,
    worded_number,
    words_beside,
)
from vicinal.data.placeholders import AT_ONCE, OFTEN
from vicinal.data.scales import FEWEST_STEPS, in_one, middle_of
from vicinal.data.spelling import MEASURES, MONEY, PAID, Number, common_unit, feet_of, is_money, is_unit, number_of

MOST_APART = 5
"""How many times the median of one currency may be that of another in a column that is read without converting them."""

FEWEST_ROWS = 0.1
"""Share of the texts that a number is named in; one that more than this share lacks counts as 0 there."""

MOST_LISTS = 2000
"""Different texts of a column in which words beside numbers are looked for, at most."""

MOST_VERSIONS = 1000
"""Different versions of one column, at most: numbers of a long column are not looked at."""

CODED = re.compile(r"[^\W\d_][-_./]?[0-9]")
_BELOW = re.compile(r"[<\u2264]|(?:under|up to)\b", re.IGNORECASE)
_ABOVE = re.compile(r"^(?:[>\u2265]|over\b)|\+$", re.IGNORECASE)
_HAS_DIGIT = re.compile(r"[0-9]")
_WORDS = (
    "free gratis kostenlos gratuit zero never nie jamais nunca keine kein keiner aucun ninguno today heute aujourd'hui "
    "hoy oggi just_now ground ground_floor erdgeschoss eg parterre rdc same_day sold_out out_of_stock ausverkauft calm "
    "trace tr. neg negative not_detected new neu; once einmal yesterday gestern hier ayer ieri next_day tomorrow "
    "morgen overnight one eins uno; twice zweimal two zwei deux dos; three drei trois tres tre; four vier quatre; "
    "five f\u00fcnf cinq cinco cinque; six sechs seis sei; seven sieben siete sette; eight acht huit ocho otto; "
    "nine neun neuf nueve nove; ten zehn dix diez dieci"
)
NUMBER_WORDS = {
    word.replace("_", " "): float(number) for number, words in enumerate(_WORDS.split("; ")) for word in words.split()
}
"""Words for 0 to 10 among numbers."""
_NO = re.compile(r"(?:no|not any|kein\w*|sem|sin|sans|geen|ingen|nessun\w*) ([^\W\d_]{3,})")

_SCALED = re.compile(r"[0-9] ?(?:m|bn?|mi?o|mn|[mb]illion|mrd)\b", re.IGNORECASE)
"""Numbers in millions: $24.279m are no thousands of them."""
_LETTERS = re.compile(r"(.*[0-9]) ?([a-h]{1,4})")
"""A mean, and letters of those that do not differ from it: 45.2 ab."""

_COUNTS = re.compile(r"(?:\([0-9,.]+\)\n?)+")
"""Numbers that are not all below zero: (1,605) are reviews."""
_DECIMALS = re.compile(r"[0-9]+\.[0-9]+")  # 6.98 among numbers is no June 1998
_CENTS = re.compile(r"[.,][0-9]{2}(?![0-9])")
_LONG = re.compile(r"^[+-]?\d{16,}$", re.MULTILINE)  # more digits than a float keeps apart
_POINT_SURELY = re.compile(r"\.(?!\d{3}$)|\..*\.|^[+-]?(?:0|\d{4,})\.", re.MULTILINE)  # 1.234 could be a thousand


def numbers_of_words(plain: Mapping[str, str]) -> dict[str, float]:
    """The numbers that texts in lower case are words for: "two", and "no eggs" beside "3 eggs".

    >>> numbers_of_words({"Two": "two", "no eggs": "no eggs", "3 eggs": "3 eggs", "no ham": "no ham"})
    {'two': 2.0, 'no eggs': 0.0}
    """
    words = {small: NUMBER_WORDS[small] for small in plain.values() if small in NUMBER_WORDS}
    nothing = {small: match[1].removesuffix("s") for small in plain.values() if (match := _NO.fullmatch(small))}
    counted = [small for small in plain.values() if small[0].isdecimal()] if nothing else []
    return words | {small: 0.0 for small, what in nothing.items() if any(what in each for each in counted)}


def without_words(column: "pd.Series[Any]", plain: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The texts without words that stand beside numbers or dates, such as "ono" beside prices, and these words.

    Most numbers must be without, and some of the words in several rows: "12 Main St" is an address, "Store 12" a name.
    Dates, years, measures and numbers of as many decimals may all be among words: "until 31.12.2024", "built 1974",
    "3 days ago", "pH 7.0".
    """
    first = [each for text in plain[:FEWEST_READ] if (each := words_beside(text)) is not None]
    days = 2 * sum(_is_unmistakable(each) for _, each in first) > FEWEST_READ
    days |= len(plain) >= FEWEST_READ and _alike_decimals(plain[:FEWEST_READ]) and _alike_decimals(plain)
    if not (days or mostly_read(plain)):  # names and addresses of a million rows are not looked at one by one
        return plain, ()
    plain, notes = _without_notes(plain)
    reads = (number_of, day_of, middle_of, duration_of)
    others = [text for text in plain if not (text.isdecimal() or any(read(text) is not None for read in reads))]
    parts = {text: each for text in others if (each := words_beside(text)) is not None}
    cells = rows_of(column)
    rows: Counter[str] = Counter()
    for text, (words, _) in parts.items():
        rows[words] += cells[text]
    whole = len(others) == len(plain) and len(parts) >= (1 - MOST_ODD) * len(plain)
    if len(rows) > 1 and whole and any(day_of(some) is None for _, some in parts.values()):
        return plain, ()  # each has one of several words, which counts
    texts = [*dict.fromkeys(parts[text][1] if text in parts else text for text in plain)]
    if not rows or max(rows.values()) < OFTEN or len(rows) > MOST_BESIDE or len(texts) < FEWEST_READ:
        return plain, notes
    sides = {*plain} - {*parts}, {some for _, some in parts.values()}
    signs = [{np.sign(number.largest) for number in map(number_of, side) if number} for side in sides]
    often = 2 * rows.total() > cells.total() and not days
    if often or signs == [{-1.0}, {1.0}]:  # 20% off beside -20 %
        return plain, notes
    return texts, (*notes, *sorted(rows))


def worded_form(column: "pd.Series[Any]", plain: Sequence[str]) -> ColumnForm | None:
    """Of numbers each of which has one of a few words: "sunny 21", or "5 kg" beside "12 boxes".

    The words stand in several rows each, beside several numbers. Cells that are few are categories.
    """
    first = plain[:FEWEST_READ]
    coded = any(worded_number(text, "") is None or CODED.search(text) for text in first)
    if coded or 2 * sum(map(_is_day, first)) > len(first):  # ene 13 is a day, but NE 13 is none
        return None
    cells = rows_of(column)
    few = len(plain) <= MOST_WORDS and AT_ONCE * len(plain) < cells.total()
    if len(plain) < FEWEST_READ or few:
        return None
    plain = plain[:: 1 + len(plain) // MOST_LISTS]
    signs = [number.sign for text in plain if (number := number_of((words_beside(text) or ("", text))[1])) is not None]
    sign = unit if (unit := common_unit(signs) or "").partition("/")[0] in MEASURES else ""
    parts = {text: each for text in plain if (each := worded_number(text, sign)) is not None}
    words, numbers = Counter[str](), Counter[str]()
    for text, (word, _) in parts.items():
        words[word] += cells[text]
        numbers[word] += 1
    often = tuple(sorted(word for word in words if words[word] >= OFTEN and numbers[word] >= OFTEN and word != "#"))
    letters = not sign and any(word[:-1] == "# " and not is_unit(word[-1]) for word in often)  # 7 A is a class
    if not len(often) + (words["#"] >= OFTEN) > 1 or len(often) > MOST_BESIDE or letters:
        return None
    rows = sum(words[word] for word in (*often, "#"))
    form = number_form([*dict.fromkeys(number for _, number in parts.values())], (), gaps=True)
    if form is None or rows < (1 - MOST_ODD) * sum(cells[text] for text in plain):
        return None
    form = form.model_copy(update={"kind": "worded", "beside": often, "typical": {}, "open": False})
    values = read_column(form.model_copy(update={"typical": {0: np.nan}}), column)
    usual = {0: float(values.median())} | dict.fromkeys(range(1, len(often) + 1), 0.0)
    return form.model_copy(update={"typical": usual}) if values.nunique() >= FEWEST_READ else None


def _is_day(text: str) -> bool:
    return not _DECIMALS.fullmatch(text) and (day_of(text) or year_day_of(text) or month_of(text)) is not None


def _without_notes(plain: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The texts without letters that mark notes after a few numbers, such as "12 p", and these: they are no units.

    A letter that is a unit or a scale is a mark if its number is like those without: "12 b" among 9 and 15. Most
    numbers have marks where these are letters of a test: 45.2 a, 44.1 ab and 41.7 b.
    """
    means = {text: match for text in plain if (match := _LETTERS.fullmatch(text)) is not None}
    groups = {match[2] for match in means.values()}
    tested = "ab" in groups and 2 < len(groups) <= MOST_BESIDE and len(means) > (1 - MOST_ODD) * len(plain)
    if tested and all("".join(sorted(set(each))) == each for each in groups):
        numbers = dict.fromkeys(means[text][1] if text in means else text for text in plain)
        return [*numbers], tuple(sorted(f"# {each}" for each in groups))
    read = {text: number for text in plain if (number := number_of(text)) is not None}
    bare = [number.point or 0.0 for number in read.values() if not number.sign]
    marked = {text: number for text, number in read.items() if number.sign}
    letters = {text[-1].casefold() for text in marked if text[-2:-1] == " " and text[-1].isalpha()}
    if not letters or len(marked) >= len(bare) or len(letters) > MOST_BESIDE // 2:
        return plain, ()
    if not all(text[-2:-1] == " " and text[-1].isalpha() for text in marked):
        return plain, ()
    flags = _are_flags(marked, bare)
    units = common_unit([number.sign for number in marked.values()])
    if not flags and units not in (None, *letters & {"b", "m", "k"}):
        return plain, ()
    values = [number.point or 0.0 for text in marked if (number := number_of(text[:-2])) is not None]
    if not (flags or min(bare) <= float(np.median(values)) <= max(bare)):
        return plain, ()
    return [text[:-2] if text in marked else text for text in plain], tuple(sorted(f"# {each}" for each in letters))


def _are_flags(marked: Iterable[str], bare: Sequence[float]) -> bool:
    """Whether H and L mark what is above and below all other results of a laboratory, and are no hours or liters."""
    ends = {"H": (max(bare), np.inf), "L": (-np.inf, min(bare))}
    read = [(text[-1], number_of(text[:-2])) for text in marked]
    return all(
        letter in ends
        and number is not None
        and number.point is not None
        and ends[letter][0] <= number.point <= ends[letter][1]
        for letter, number in read
    )


def without_odd(
    column: "pd.Series[Any]", folded: Mapping[str, str], plain: list[str]
) -> tuple[list[str], tuple[str, ...]]:
    """The texts but those that are no numbers, dates or times, if they are few: "see note" among numbers is a gap.

    So are up to ``MOST_GAPS`` words that stand in several rows each, which come second: in fewer rows than the numbers,
    and of up to three words beside dates in however many ("sofort", "expired").
    A code with digits, such as V58 among 401 and 250, is never odd: it says that the column is one of codes.
    """
    some = [text for text in plain if not text.isdecimal()] if mostly_read(plain) else []  # digits alone are a number
    odd = {text for text in some if not _is_read(text)}
    if not odd or len(plain) - len(odd) < FEWEST_READ:
        return plain, ()
    dates = 2 * sum(day_of(text) is not None for text in plain) > len(plain)
    cells, words = rows_of(column), Counter[str]()
    for text in odd:
        words[folded[text]] += cells[text]
    often = {word: count for word, count in words.items() if count >= OFTEN}
    if len(often) > MOST_GAPS or not ((dates and len(often) <= 3) or 2 * sum(often.values()) < len(column)):
        often = {}
    few = sum(words.values()) - sum(often.values()) <= max(1, MOST_ODD * len(column))
    if not few or (not dates and any(map(_HAS_DIGIT.search, odd))):
        return plain, ()
    return [text for text in plain if text not in odd], tuple(sorted(often))


def _alike_decimals(texts: Iterable[str]) -> bool:
    """Whether texts are numbers of as many decimals after one word and a blank: pH 7.0, but not Python 3.10."""
    alike = {re.sub("(?<= )-?[0-9]+[.]|[0-9]", "0", text) for text in texts}
    return len(alike) == 1 and re.fullmatch(r"[^\d\s]+[.:]? 00+", alike.pop()) is not None


def _is_unmistakable(text: str) -> bool:
    """Whether a text is a date, a year or a measure, which are no part of a name."""
    if YEAR.fullmatch(text) or day_of(text) is not None or (":" in text and duration_of(text) is not None):
        return True
    number = number_of(text)
    return number is not None and number.sign.partition("/")[0] in (*MEASURES, "%")


def mostly_read(plain: Sequence[str]) -> bool:
    """Whether most of the first texts are numbers or dates, so that it is worth a look at all of them."""
    first = plain[:FEWEST_READ]
    return 2 * sum(map(_is_read, first)) > len(first)


def _is_read(text: str) -> bool:
    if any(read(text) is not None for read in (number_of, day_of, duration_of, middle_of)):
        return True
    return (year_day_of if text[0].isalpha() or text[-1].isalpha() else month_of)(text) is not None


def parts_form(plain: Sequence[str]) -> ColumnForm | None:
    """Of texts with numbers among the same words, such as 10x20 cm or 7 out of 10, at least ``FEWEST_READ`` of them.

    Some may end before the others, "2019" beside "2019 (69 reg)", and have other units, "6x75 cl" beside "2x1.5 l".
    """
    if len(plain) < FEWEST_READ or not any(map(parts_of, plain[:3])):
        return None
    if 2 * sum(day_of(text) is not None for text in plain) > len(plain):
        return None  # dates of several orders
    decimal = parts_decimal(plain)
    for unit in dict.fromkeys(["", unit_of_parts(plain)]):
        parts = [each for text in plain if (each := parts_of(text, decimal, unit)) is not None]
        counts = Counter(each for each, _ in parts)
        often = [each for each, n in counts.most_common(MOST_GAPS) if n >= max(OFTEN, 2 * MOST_ODD * len(plain))]
        around = max(often, key=lambda each: sum(counts[o] for o in counts if is_start(o, each)), default="#")
        alike = [numbers for each, numbers in parts if is_start(each, around)]
        most = max(FEWEST_READ, min((1 - 2 * MOST_ODD) * len(plain), len(plain) - 1))
        if around != "#" and len(alike) >= most and (typical := _medians(alike)):
            return ColumnForm(kind="parts", decimal=decimal, sign=unit, around=around, typical=typical)
    return None


def _after(before: str, after: str) -> str:
    return f"# {after.split()[0]}" if after else f"{before} #" * bool(before)


def _all_after(before: str, after: str) -> str:
    return f"# {after}" if after else f"{before} #" * bool(before)


def _around(before: str, after: str) -> str:
    return f"{before} # {after.split()[0] if after else ''}".strip() if before else _after("", after)


_NAMINGS: tuple[Callable[[str, str], str], ...] = (_after, _all_after, _around)


def fields_form(column: "pd.Series[Any]", plain: Sequence[str]) -> ColumnForm | None:
    """Of texts that list numbers by name: most have no other number, and no word that is rare.

    A text may lack a number: that counts as 0 if many do, else as the median.
    """
    cells = rows_of(column)
    few = len(plain) <= MOST_WORDS and AT_ONCE * len(plain) < cells.total()
    first = [listed_in(text) for text in plain[:FEWEST_READ]]
    if len(plain) < FEWEST_READ or few or 2 * sum(bool(each and each.numbers) for each in first) < FEWEST_READ:
        return None
    some = plain[:: 1 + len(plain) // MOST_LISTS]
    decimal = parts_decimal(some)
    for unit in dict.fromkeys([unit_of_parts(some), ""]):
        lists = {text: each for text in some if (each := listed_in(text, decimal, unit)) is not None}
        rows = [cells[text] for text in lists]
        for naming in _NAMINGS:
            names = [[naming(*sides) for _, *sides in each.numbers] for each in lists.values()]
            twice = sum(len(set(each)) < len(each) for each in names)
            if twice <= MOST_ODD * len(some) and (typical := _typical([*lists.values()], names, rows, len(some))):
                usual = dict(enumerate(typical.values()))
                return ColumnForm(kind="fields", decimal=decimal, sign=unit, beside=tuple(typical), typical=usual)
    return None


def _typical(
    lists: Sequence[Listed], names: Iterable[Sequence[str]], rows: Sequence[int], texts: int
) -> dict[str, float]:
    """What counts for each name where a text lacks it; none if the names do not cover most of the texts.

    Nor if most texts have one number, whose names differ: "12 Main St" is an address.
    """
    counts = Counter(name for each in names for name in dict.fromkeys(each))
    often, rare = max(OFTEN, FEWEST_ROWS * texts), max(OFTEN, MOST_ODD * texts)
    numbers = [name for name, count in counts.items() if name and count >= often]
    words = Counter(word for each in lists for word in dict.fromkeys(values_of(each, numbers)[1]))
    chosen = numbers + [word for word, count in words.items() if rare <= count]
    said = [values_of(each, chosen) for each in lists]
    read = [values for values, others, whole in said if whole and not others]
    weights = [count for count, (_, others, whole) in zip(rows, said, strict=True) if whole and not others]
    known = {name: [values[name] for values in read if name in values] for name in chosen}
    one = max(counts.values(), default=0) < (1 - FEWEST_ROWS) * texts and counts.total() < 1.5 * texts
    few = len(read) < max(FEWEST_READ, (1 - 4 * MOST_ODD) * texts) or not 1 < len(chosen) <= MOST_BESIDE
    if one or few or not any(len(set(known[name])) >= FEWEST_STEPS for name in numbers):
        return {}
    there = {name: sum(n for n, each in zip(weights, read, strict=True) if name in each) for name in chosen}
    lacking = {name: "#" not in name or there[name] < (1 - FEWEST_ROWS) * sum(weights) for name in chosen}
    typical = {name: 0.0 if lacking[name] else float(np.median(known[name])) for name in chosen}
    typical = {name: usual for name, usual in typical.items() if len({each.get(name, usual) for each in read}) > 1}
    return typical if len(typical) > 1 else {}


def _medians(numbers: Iterable[Sequence[float]]) -> dict[int, float]:
    """The median of each number that differs between cells, by its place; some cells have fewer."""
    columns = enumerate(itertools.zip_longest(*numbers, fillvalue=0.0))
    return {place: float(np.median(some)) for place, some in columns if min(some) < max(some)}


def version_form(plain: Sequence[str]) -> ColumnForm | None:
    """Of versions: some begin with v or have three numbers, or 3.10 stands beside 3.9, and no 3.05.

    Numbers with as many decimals, or without zeros at the end, are none: a machine writes these, and people prices.
    """
    if len(plain) > MOST_VERSIONS or None in map(version_of, plain[:FEWEST_READ]):
        return None
    versions = [version_of(text) for text in plain if day_of(text) is None]
    known = [each for each in versions if each is not None]
    alike = len({text.count(".") for text in plain}) == 1 and plain[0].count(".") == 2
    if len(plain) < 3 or len(known) < len(plain) or (alike and all(text[0].isdecimal() for text in plain)):
        return None
    if not any(number_of(text) is None for text in plain):
        minors = {(major, text.partition(".")[2]) for text, (major, *_) in zip(plain, known, strict=True)}
        after = any((major, "10") in minors and (major, "9") in minors for major, _ in minors)
        if not after or any(minor[0] == "0" < minor[1:] or int(minor) > MOST_WORDS for _, minor in minors):
            return None
    typical = _medians(known)
    return ColumnForm(kind="parts", sign=VERSION, typical=typical) if typical else None


def number_form(plain: Sequence[str], others: Sequence[Any], *, gaps: bool, middles: bool = False) -> ColumnForm | None:
    """Of different texts, and numbers; with ``gaps`` beside them whole numbers become floats.

    With ``middles`` most may be ranges, too.
    """
    if not plain:
        return ColumnForm(kind="number")
    joined = "\n".join(plain)
    counts = len(plain) >= FEWEST_READ and _COUNTS.fullmatch(joined)
    if counts or CODE.search(joined) or (_LONG.search(joined) and (gaps or not _exact(plain))):
        return None
    numbers = pd.to_numeric(np.array(plain, dtype=object), errors="coerce")
    if not np.isnan(numbers.astype(np.float64)).any():
        sure = _POINT_SURELY.search(joined) is not None
        if sure or "." not in joined:
            return ColumnForm(kind="number", certain=sure, plain=sure)
    read, ranges = _numbers_of(plain, middles=middles)
    sign = common_unit([number.sign for number in read]) if read else None
    money = sorted({number.sign for number in read}) if sign is None and _are_alike(read) else []
    sign = "" if money else sign
    commas = sum(number.point is None for number in read)
    points = sum(number.comma is None for number in read)
    if sign is None or _are_codes(plain, read, sign) or _are_bounds(plain, read):
        return None
    if commas and points and len(plain) < FEWEST_READ:
        return None
    every = bool(sign) and all(number.sign for number in read) and not others
    sign = _unit_of_bare(read, sign)
    sign = "dr" if sign == "crore" and all(map(_CENTS.search, plain)) else sign
    known: dict[str, Any] = {"sign": sign, "every": every, "certain": bool(commas or points)}
    known |= {"middle": ranges > 0, "beside": tuple(each for each in money if each), "doubt": _doubt(read, sign)}
    known |= {"doubt": "what stands after \u00b1 is left out"} if "\u00b1" in joined or "+/-" in joined else {}
    if sign == "%" and _are_shares(read):
        known |= {"shares": True, "doubt": "numbers without a % among those with one are shares of 1: 0.5 is 50 %"}
    if commas and points:
        mark, other = ("comma", "point") if commas > points else ("point", "comma")
        known |= {
            "either": True,
            "doubt": f"most cells have a {mark} before decimals, others a {other}; each is read by its own",
        }
    is_open = not (commas or points) and any(number.is_open for number in read)
    scaled = (not sign or is_money(sign)) and _SCALED.search(joined) is not None  # 1.200 m beside 800 m are meters
    if is_open and not scaled and (decimal := _decimal_beside_thousands(read, money=is_money(sign))):
        return ColumnForm(kind="number", decimal=decimal, **(known | {"certain": True}))
    return ColumnForm(kind="number", decimal="," if commas > points else ".", open=is_open, **known)


def _unit_of_bare(read: Sequence[Number], sign: str) -> str:
    """The unit of numbers without one: that in which the others are most like them, cm of 172 beside 1.80 m.

    Money without a time is paid per year, month or hour as the others say. Of crores and lakhs, numbers may be as many
    of these, or plain ones.
    """
    amount, _, time = sign.partition("/")
    bare = [abs(number.largest) or 1.0 for number in read if number.sign in ("", amount if time else "")]
    others = [number for number in read if number.sign not in ("", amount if time else "")]
    units = [*dict.fromkeys(number.sign for number in others)]
    if is_money(sign):
        units = [f"{amount}/{each}" for each in PAID] if time in PAID else []
    elif not sign:
        units = ["", *units] if units in (["crore"], ["lakh"]) else []
    if not bare or len(units) < 2:
        return sign
    usual = {one: np.median([abs(in_one(each.largest, each.sign, one)) or 1.0 for each in others]) for one in units}
    return min(units, key=lambda unit: abs(np.log(usual[unit] / np.median(bare))))


def _doubt(read: Sequence[Number], sign: str) -> str:
    """A sentence on pay per several lengths of time, or on credits; or ""."""
    times = {number.sign.partition("/")[2] for number in read if number.sign} | {sign.partition("/")[2]}
    if sign == "dr":
        return "numbers with Cr are credits; those without have the other sign"
    if not is_money(sign) or len(times) < 2 or sign.partition("/")[2] not in PAID:
        return ""
    return f"pay is read as {in_unit(sign)}; a year has 12 months, 52 weeks, 260 days or 2,080 hours of it"


def _are_codes(plain: Sequence[str], read: Sequence[Number], sign: str) -> bool:
    """Whether letters make other things of a few numbers: family 136A is not 136, nor the quarter 1OT the first."""
    marked = [text for text, number in zip(plain, read, strict=True) if number.sign]
    return (
        len(sign) in (1, 2)
        and not is_unit(sign)
        and len(marked) < len(plain)
        and not any(" " in text for text in marked)
    )


def _are_bounds(plain: Sequence[str], read: Sequence[Number]) -> bool:
    """Whether a few texts differ in what is below and what is above a number alone: "<40" and ">=40"."""
    sides: dict[tuple[float, str], set[str]] = {}
    for text, number in zip(plain, read, strict=True):
        side = "<" if _BELOW.match(text) else ">" if _ABOVE.search(text) else ""
        sides.setdefault((number.largest, number.sign), set()).add(side)
    return len(plain) < FEWEST_READ and any(len(each) > 1 for each in sides.values())


def _numbers_of(plain: Sequence[str], *, middles: bool) -> tuple[list[Number], int]:
    """The number of each text, and how many are middles of ranges; none if some text is neither.

    Nor if most are ranges, unless these count as ``middles``.
    """
    ends = {text[-1] if text[-1] in "+-" else "" for text in plain}
    if len(ends) == 3 or (len(plain) == 1 and not _HAS_DIGIT.search(plain[0])):  # grades: 2+, 2, 2-; a star as a mark
        return [], 0
    whole = all(text[:-1].isdecimal() for text in plain)
    if "-" in ends and "" not in ends and whole and (len(ends) > 1 or len(plain) > 2):  # 50- and 55+: from there on
        return [], 0
    read: list[Number] = []
    ranges = 0
    tall = any(number is not None and number.sign == "ft" for number in map(number_of, plain[:FEWEST_READ]))
    for text in plain:
        number = number_of(text) or (feet_of(text) if tall else None)
        if number is None and (number := middle_of(text)) is not None:
            ranges += 1
        if number is None or (2 * ranges > len(plain) and not middles):
            return [], 0
        read.append(number)
    return read, ranges


def _are_alike(read: Sequence[Number]) -> bool:
    """Whether all are amounts of a few kinds of money that are worth about as much: not yen beside dollars."""
    amounts: dict[str, list[float]] = {}
    for number in read:
        amounts.setdefault(number.sign, []).append(abs(number.largest))
    middles = [float(np.median(each)) for each in amounts.values()]
    known = bool(middles) and amounts.keys() <= (MONEY - {"%"}) | {""}
    return known and 0 < max(middles) <= MOST_APART * min(middles)


def _are_shares(read: Sequence[Number]) -> bool:
    """Whether numbers without a sign are shares of 1 among those in %: most are then about 100 times as large."""
    bare, signed = ([abs(one.largest) for one in read if bool(one.sign) == each] for each in (False, True))
    apart = float(np.median(signed)) / (float(np.median(bare)) or 1.0) if bare and signed else 0.0
    return (
        len({one for one in bare if 0 < one < 1}) > 1
        and max(bare) <= 1
        and 100 / MOST_APART <= apart <= 100 * MOST_APART
    )


def _decimal_beside_thousands(read: Sequence[Number], *, money: bool) -> Literal[".", ","] | None:
    """The mark before decimals of numbers such as 13.102, if the three digits after each mark are thousands; or None.

    Three decimals in each of many cells are written by a machine, which writes them in whole numbers, too: cells
    without a mark, all below 1,000, are those too small for one. Nor has money three decimals, but for prices of
    fuel, which have one digit before them.
    """
    marked = [(each.point, each.comma) for each in read if each.is_open and each.point and each.comma]
    units = {each.sign for each in read if each.is_open}
    whole = {each.point for each in read if not each.is_open and each.point and each.sign in units}
    pairs = {point < comma if comma > 0 else point > comma for point, comma in marked}
    if len(marked) < FEWEST_READ or len(pairs) > 1 or any(abs(one) >= 1000 for one in whole):
        return None
    large = money and any(min(abs(point), abs(comma)) >= 10 for point, comma in marked)
    if not (large or any(one > 0 for one in whole)):
        return None
    return "," if True in pairs else "."


def _exact(plain: Sequence[str]) -> bool:
    """Whether all are whole numbers that int64 holds."""
    return all(text.lstrip("+-").isdecimal() and abs(int(text)) < 1 << 63 for text in plain)
