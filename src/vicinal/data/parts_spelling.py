"""Several numbers in one text, by place or by name, versions, and numbers among words, each read from one text."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from vicinal.data.date_spelling import day_of, duration_of
from vicinal.data.spelling import (
    LONGEST_NUMBER,
    LONGEST_PART,
    MOST_PARTS,
    QUALIFIED,
    UNITS,
    common_unit,
    converted,
    number_of,
    unit_of,
)

_PART = re.compile(
    r"(?:(?<![\w.)\]%°'\"])[-+])?"  # no minus sign: 10-20
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?(?![0-9,])|(?<![0-9.])[0-9]+\.[0-9]+(?!\.?[0-9])|[0-9]+)"
)
_NO_PARTS = re.compile(
    r"^[^\w#]*[^\W\d_\u3040-\u9fff\uac00-\ud7af](?:[^(:=]*[^\W\d_]#|[^(:=#]*#[^#]*$)|"  # letters, but those of Asia
    r"#\.[a-z]{2,4}$|@[a-z]+\.|://|##|#-#-#|#\.#\.#[.-]#|\(#\) ?#|# # #"
)
"""Codes (A#), names of files (#.png), addresses, numbers of telephones and accounts: their numbers are names."""

_ABOUT = re.compile(rf"^{QUALIFIED}\s*(?=[0-9])")
_SWAPPED = str.maketrans(",.", ".,")
_MEASURED = re.compile(rf"({_PART.pattern}) ?([^\W\d_]{{1,12}}[23]?)(?![^\W\d_])")
_SIDES = re.compile(r"([0-9]) ?[x\u00d7] ?(?=[0-9.,]+ ?([mck]?m|in|ft)\b)")
"""Between two lengths, of which the last has the unit of both."""
_ENDS = re.compile(r"([0-9]) ?- ?(?=[0-9.,]+ ?([^\W\d_]{1,12}[23]?)(?![^\W\d_]))")
"""Between the ends of a range."""
_PRODUCT = re.compile(r"(?:(?:[^\W\d_][:.]? ?|[^\W\d_]{2,6}[:.]? )?#[^#x]{0,6}(?:x ?|$)){2,}")
"""Lengths of sides, each with its letter: L11 x W6 x H45."""
_TIMES, _ORDINAL = re.compile("(?<=#) ?[x\u00d7] ?(?=#)"), re.compile(r"#(?:st|nd|rd)\b")
_NEXT = re.compile(r"(?<=#)(?=(?!x#|th\b)[^\W\d_]{1,6}(?:$|[ ,)/]))")
"""Before a unit directly after a number."""
_FLOOR = re.compile(r"^(?:(lower )?(?:upper )?(basement)|ground(?: floor)?)(?= (?:out )?of [0-9])")
"""The lowest floors out of so many."""


def parts_of(text: str, decimal: str = ".", unit: str = "") -> tuple[str, list[float]] | None:
    """What stands around the numbers of a text of :func:`plain_text`, each of which is "#" there, and these; or None.

    Numbers of the quantity of ``unit`` are converted to it.

    >>> parts_of("10x20.5 cm"), parts_of("1,200 Reviews"), parts_of("(-3.5, 7)")
    (('#x# cm', [10.0, 20.5]), ('# review', [1200.0]), ('(#, #)', [-3.5, 7.0]))
    >>> parts_of("A12"), parts_of("12.png"), parts_of("12-034"), parts_of("(555) 864-6732"), parts_of("123.456.789-09")
    (None, None, None, None, None)
    """
    text = _spelled(text, decimal, unit)
    numbers = _PART.findall(text)
    around = _ORDINAL.sub("#th", re.sub(r"(?<=[^\W\d_]{3})s\b", "", _PART.sub("#", text)))
    around = _TIMES.sub("x", around).replace(f"# {unit} - # {unit}", f"#-# {unit}")
    shortest = 1 if around == "#-#" else 2
    codes = any(_is_code(one, shortest) for one in numbers)
    if not 0 < len(numbers) <= MOST_PARTS or len(around) > LONGEST_PART or codes:
        return None
    if _NO_PARTS.search(around) and not _PRODUCT.fullmatch(around):
        return None
    return _sides(around), [float(number.replace(",", "")) for number in numbers]


def _sides(around: str) -> str:
    """What stands around numbers with one blank before a unit, and without blanks around lengths with letters."""
    product = around[:1].isalpha() and _PRODUCT.fullmatch(around) is not None
    return re.sub("[ :.]", "", around) if product else _NEXT.sub(" ", around)


def _is_code(number: str, shortest: int = 2) -> bool:
    """Whether a number is so long, or begins with a zero, that it is a name."""
    return number.isdecimal() and (len(number) > LONGEST_NUMBER or (number[0] == "0" and len(number) > shortest))


def _spelled(text: str, decimal: str, unit: str) -> str:
    """A text in lower case with points before decimals, and its measures in one unit."""
    text = _ABOUT.sub("", text.casefold()) if decimal == "." else _ABOUT.sub("", text.casefold()).translate(_SWAPPED)
    text = _FLOOR.sub(lambda floor: "-2" if floor[1] else "-1" if floor[2] else "0", text)
    if unit:
        while (sides := _SIDES.sub(r"\1 \2 x ", text)) != text:
            text = sides
        text = _ENDS.sub(r"\1 \2 - ", text)
        text = _MEASURED.sub(lambda part: _in_unit(part, unit), text)
    return text


def _in_unit(part: re.Match[str], unit: str) -> str:
    value = converted(float(part[1].replace(",", "")), unit_of(part[2]), unit)
    return part[0] if value is None else f"{value:.9g} {unit}"


def unit_of_parts(texts: Iterable[str]) -> str:
    """The unit of one quantity that numbers among words have, where several such are written: ml of 75 cl; or ""."""
    named = [unit_of(match[2]) for text in texts for match in _MEASURED.finditer(text.casefold())]
    units = [unit for unit in named if any(unit in each for each in UNITS)]
    return (common_unit(units) or "") if len(set(units)) > 1 else ""


_VERSION = re.compile(
    r"(?:v\.? ?)?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,6}))?"
    r"(?:[-+_. ]?(?:rc|alpha|beta|dev|post|[abp])[-.]?[0-9]{0,3})?",
    re.IGNORECASE,
)


def version_of(text: str) -> list[float] | None:
    """The numbers of a version; or None.

    >>> version_of("v3.10.2-rc1"), version_of("3.9"), version_of("10.0.0.1")
    ([3.0, 10.0, 2.0], [3.0, 9.0, 0.0], None)
    """
    match = _VERSION.fullmatch(text)
    return None if match is None else [float(part or 0) for part in match.groups()]


def is_start(start: str, around: str) -> bool:
    """Whether numbers and words end before those of another text, or are these but for a plural.

    >>> is_start("#", "# (# reg)"), is_start("# adult + # kind", "# adult + # kinder"), is_start("#", "#/#")
    (True, True, False)
    >>> is_start("#x# cm", "#x#x# cm")
    True
    """
    start, around = _sides(_TIMES.sub("x", start)), _sides(_TIMES.sub("x", around))  # as models were saved
    rest = around[len(start) :]
    if around.startswith(start) and (rest[:1] in ("", " ", ",", "+") or (rest.isalpha() and len(rest) < 3)):
        return True
    sides = start.removesuffix(around.rpartition("#")[2])  # two beside three
    return around.startswith(sides) and re.match("x[a-z]?#", around[len(sides) :]) is not None


def parts_decimal(texts: Sequence[str]) -> Literal[".", ","]:
    """The mark before decimals in texts with numbers: a comma in "4,5 of 5", and in "950 VB" beside "1.200 VB".

    >>> parts_decimal(["4,5 of 5", "3 of 5"]), parts_decimal(["1.200 VB", "950 VB"]), parts_decimal(["1.125 x 2"])
    (',', ',', '.')
    """
    joined = "\n".join(texts)
    if re.search(r"[0-9],[0-9]{1,2}(?![0-9])", joined):
        return ","
    grouped = [re.search(r"(?<![0-9])[1-9][0-9]{0,2}\.[0-9]{3}(?![0-9])", text) is not None for text in texts]
    others = re.search(r"\.[0-9]{1,2}(?![0-9])|\.[0-9]{4}|[0-9]{4}", joined)
    return "," if others is None and any(grouped) and not all(grouped) else "."


_WORD_BEFORE, _WORD_AFTER = re.compile(r"[^\W\d_]+[.:,]?\s*"), re.compile(r"[\s/+(,-]*[^\W\d_]+")
_ONE = re.compile(
    r"(?<!half )(?<![0-9] )(?<![0-9][kK] )"
    r"\b(?:an?|ein(?:em|er)?|un) (?=(?:year|month|week|day|hour|minute|jahr|monat|woche|an|mois)\b)"
)
_LONGEST_BESIDE = 32
"""Characters before and after a number or date, each, up to which words are looked for there."""


def words_beside(text: str) -> tuple[str, str] | None:
    """The fewest words without which a text is a number or a date, which is "#" among them, and this; or None.

    >>> words_beside("\u00a37,500 ono"), words_beside("from 12 km/h (est.)"), words_beside("until Nov 2024")
    (('# ono', '\u00a37,500'), ('from # (est.)', '12 km/h'), ('until #', 'Nov 2024'))
    """
    text = _ONE.sub("1 ", text)
    digits = [place for place, sign in enumerate(text) if sign.isdigit()]
    if not digits or digits[0] > _LONGEST_BESIDE or len(text) - digits[-1] > _LONGEST_BESIDE:
        return None
    starts = [0, *(match.end() for match in _WORD_BEFORE.finditer(text, 0, digits[0]))]
    ends = [len(text), *(match.start() for match in reversed([*_WORD_AFTER.finditer(text, digits[-1] + 1)]))]
    for start in starts:
        for end in ends:
            some = text[start:end].strip()
            if number_of(some) is not None or day_of(some) is not None or (":" in some and duration_of(some)):
                return f"{text[:start].strip()} # {text[end:].strip()}".strip().casefold(), some
    return None


_BARE = re.compile(r"[-+]?[0-9](?:.*[0-9])?")


def worded_number(text: str, sign: str) -> tuple[str, str] | None:
    """The words around a number, "#" for it, with its unit if that is no ``sign``, and the number; or None.

    >>> worded_number("SW 13 km/h", "km/h"), worded_number("sunny -3", ""), worded_number("148 CT", "")
    (('sw #', '13 km/h'), ('sunny #', '-3'), ('# ct', '148'))
    """
    parts = words_beside(text)
    number = None if parts is None else number_of(parts[1])
    bare = None if parts is None else _BARE.search(parts[1])
    if parts is None or number is None or bare is None:
        return None
    same = not number.sign or converted(1.0, number.sign, sign) is not None
    return parts if same else (parts[0].replace("#", f"# {number.sign}"), bare[0])


_MARK = re.compile(r"[|,;+()\[\]{}@\u2022\u00b7&*\n]| - |(?<![^\W\d_])/|/(?![^\W\d_])|\b(?:and|with|und|et|y)\b")
_NAMED = re.compile(rf"(?:(?<![^\W_])|(?<=[0-9]x)){_PART.pattern}")
_POWER = re.compile(r"(?<=m)[23](?![\w.,])|(?<=ft)[23](?![\w.,])")
_LETTERS = re.compile(r"[^\W\d_](?:.*[^\W_])?[\u00b2\u00b3]?")


class Listed(NamedTuple):
    """What a text lists: each number with the words directly before and after it, and the words beside none."""

    numbers: list[tuple[float, str, str]]
    words: list[str]


def listed_in(text: str, decimal: str = ".", unit: str = "") -> Listed | None:
    """The numbers of a text of :func:`plain_text` by the words around them; None if one may be a code.

    >>> listed_in("Studio | 1 ba | 850 sqft")
    Listed(numbers=[(1.0, '', 'ba'), (850.0, '', 'sqft')], words=['studio'])
    >>> listed_in("Rooms: 3, fat 2 g"), listed_in("a house"), listed_in("A12")
    (Listed(numbers=[(3.0, 'room', ''), (2.0, 'fat', 'g')], words=[]), Listed(numbers=[], words=['a house']), None)
    """
    text = _POWER.sub(lambda power: {"2": "\u00b2", "3": "\u00b3"}[power[0]], text)
    if not any(map(str.isdecimal, text)):
        return Listed([], _phrases(text.casefold()))
    text = re.sub(r"(?<=[^\W\d_]{3})s\b", "", _spelled(text.replace("#", " "), decimal, unit))
    numbers, pieces = _NAMED.findall(text), _NAMED.split(text)
    if not 0 < len(numbers) <= MOST_PARTS or any(map(_is_code, numbers)):
        return None
    before, after, words = [""] * len(numbers), [""] * len(numbers), list[str]()
    for place, piece in enumerate(pieces):
        phrases, bare = _phrases(piece), piece.strip()
        if phrases and place < len(before) and bare[-1] in ":=":
            before[place] = phrases.pop()
        if phrases and place and not _MARK.match(bare):
            after[place - 1] = phrases.pop(0)
        if phrases and place < len(before) and bare[-1] not in ":=" and not _MARK.search(bare[-1]):
            before[place] = phrases.pop()
        words += phrases
    values = [float(number.replace(",", "")) for number in numbers]
    return Listed(list(zip(values, before, after, strict=True)), words)


def _phrases(piece: str) -> list[str]:
    matches = (_LETTERS.search(part) for phrase in _MARK.split(piece) for part in re.split("[:=]", phrase))
    return [match[0] for match in matches if match is not None]


def values_of(listed: Listed, names: Iterable[str]) -> tuple[dict[str, float], list[str], bool]:
    """The number or, of a word, 1 of each of the ``names`` that a text has, other words, and if all numbers have one.

    >>> values_of(listed_in("3 bed flat"), ["# bed", "flat"])
    ({'# bed': 3.0, 'flat': 1.0}, [], True)
    """
    numbers = sorted((name for name in names if "#" in name), key=len, reverse=True)
    values, words, whole = dict[str, float](), list(listed.words), True
    for number, before, after in listed.numbers:
        for name in numbers:
            first, last = map(str.strip, name.split("#"))
            if first in ("", before) and (after == last or not last or after.startswith(f"{last} ")):
                values[name] = values.get(name, 0.0) + number
                words += [before] * bool(before and not first) + [after[len(last) :].strip()] * (after != last)
                break
        else:
            whole = False
    said = [word for word in words if word in names]
    return values | dict.fromkeys(said, 1.0), [word for word in words if word not in said], whole
