"""The form of one column, found in its cells; it may be open to more than one reading."""

import datetime
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype, is_timedelta64_dtype

from vicinal.core import listed, short
from vicinal.data.column_form import (
    CLOCK,
    CODE,
    MOST_BESIDE,
    MOST_GAPS,
    MOST_WORDS,
    SEPARATORS,
    ColumnForm,
    is_missing,
    is_number,
    split,
)
from vicinal.data.date_drafts import (
    DOUBT,
    FEWEST_READ,
    MOST_ODD,
    compact_dates,
    date_draft,
    date_form,
    month_form,
    partial_form,
    span_form,
    whole_days,
)
from vicinal.data.date_spelling import STOPWATCH, day_of, duration_of, month_of, year_day_of
from vicinal.data.placeholders import AT_ONCE, OFTEN, placeholders_of
from vicinal.data.scales import MOST_STEPS, range_of, steps_of
from vicinal.data.spelling import (
    GAPS,
    MEASURES,
    MONEY,
    SURE_GAPS,
    Number,
    common_unit,
    converted,
    is_unit,
    number_of,
    parts_decimal,
    parts_of,
    plain_text,
    truth_pair,
    truths_agree,
    worded_number,
    words_beside,
)
from vicinal.encoders.base import Kind
from vicinal.encoders.category import spelling_of
from vicinal.encoders.kinds import is_list, read_list

MOST_APART = 5
"""How many times the median of one currency may be that of another in a column that is read without converting them."""

_CODE = re.compile(r"0[0-9]+")
_YEAR = re.compile(r"(?:1[5-9]|20)[0-9]{2}")
_CLOCK = re.compile(r"(?:[01][0-9]|2[0-3])[0-5][0-9]")
_CODED = re.compile(r"[^\W\d_][-_./]?[0-9]")
_BELOW = re.compile(r"[<\u2264]|(?:under|up to)\b", re.IGNORECASE)
_ABOVE = re.compile(r"^(?:[>\u2265]|over\b)|\+$", re.IGNORECASE)
_HAS_DIGIT = re.compile(r"[0-9]")
_WORDS = (
    "free gratis kostenlos gratuit zero never nie jamais nunca keine kein aucun ninguno today heute aujourd'hui "
    "hoy oggi just_now ground ground_floor erdgeschoss eg parterre",
    "once einmal yesterday gestern hier ayer ieri",
    "twice zweimal",
)
NUMBER_WORDS = {word.replace("_", " "): float(number) for number, words in enumerate(_WORDS) for word in words.split()}
"""Words for 0, 1 and 2 among numbers."""
_LONG = re.compile(r"^[+-]?\d{16,}$", re.MULTILINE)  # more digits than a float keeps apart
_POINT_SURELY = re.compile(r"\.(?!\d{3}$)|\..*\.|^[+-]?(?:0|\d{4,})\.", re.MULTILINE)  # 1.234 could be a thousand


def draft_of(
    column: "pd.Series[Any]", kind: Kind | None, *, decimal: str | None, day_first: bool | None
) -> ColumnForm | None:
    """How the cells of a column are written; None: they are taken as they are stored.

    Args:
        column: its cells, as they were read.
        kind: what it was said to be; None: to be found.
        decimal: the mark before decimals where no cell tells; None: a point, and the form is open.
        day_first: whether the day comes before the month where no cell tells; likewise.

    >>> draft = draft_of(pd.Series(["1.234,5", "7"]), None, decimal=None, day_first=None)
    >>> draft.kind, draft.decimal, draft.open
    ('number', ',', False)
    """
    if kind in ("text", "image", "audio"):
        return None
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        numbers = is_numeric_dtype(dtype.categories.dtype) and not is_bool_dtype(dtype.categories.dtype)
        return ColumnForm(kind="levels") if numbers else None
    if is_bool_dtype(dtype):
        return ColumnForm(kind="truth")
    if is_numeric_dtype(dtype):
        return _form_of_numbers(column, kind)
    if is_datetime64_any_dtype(dtype) or isinstance(dtype, pd.PeriodDtype):
        return None if kind == "category" else date_form(form := ColumnForm(kind="date"), form.read(column))
    if is_timedelta64_dtype(dtype):
        return None if kind == "category" else ColumnForm(kind="duration")
    distinct = column.drop_duplicates() if isinstance(dtype, pd.StringDtype) else column
    cells = [cell for cell in distinct.tolist() if not is_missing(cell)]
    texts = list(dict.fromkeys(cell for cell in cells if isinstance(cell, str)))
    others = [cell for cell in cells if not isinstance(cell, str)]
    if kind in ("set", "vector", None) and texts and not others:
        lists = [read_list(text) for text in texts if text.strip()]
        if lists and all(map(is_list, lists)):
            return ColumnForm(kind="list")
    if kind in ("set", "vector"):
        return _separated(column, texts, kind) if kind == "set" else None
    return _draft_of_cells(column, texts, others, kind, decimal=decimal, day_first=day_first)


def _form_of_numbers(column: "pd.Series[Any]", kind: Kind | None) -> ColumnForm | None:
    """The form of a column of a numeric type."""
    if kind == "category":
        return ColumnForm(kind="levels")
    if column.dtype.kind == "c":
        return None
    compact = compact_dates(whole_days(column)) if kind is None else None
    return compact or _with_placeholders(ColumnForm(kind="number"), column, kind)


def _with_placeholders(form: ColumnForm, column: "pd.Series[Any]", kind: Kind | None) -> ColumnForm:
    """The form of a column of numbers with those that stand for missing ones, unless it was said to be of numbers."""
    if kind is not None:
        return form
    numbers, doubtful, doubt = placeholders_of(form.read(column))
    return form.model_copy(update={"placeholder": numbers or None, "doubtful": doubtful, "doubt": doubt or form.doubt})


def _draft_of_cells(
    column: "pd.Series[Any]",
    texts: Sequence[str],
    others: Sequence[Any],
    kind: Kind | None,
    *,
    decimal: str | None,
    day_first: bool | None,
) -> ColumnForm | None:
    """The form of a column of objects: different ``texts``, and ``others``."""
    folded = {text: text.casefold() for text in map(plain_text, texts)}
    plain = [text for text, small in folded.items() if small not in GAPS]
    if (words := _named_form(plain, others, kind)) is not None:
        return words
    words = _words_form(column, folded) if not others else None
    if kind == "category":
        return ColumnForm(kind="levels") if others and not texts and all(map(is_number, others)) else words
    if not plain and not others:
        return ColumnForm(kind="number") if texts else None
    free = {folded[text]: NUMBER_WORDS[folded[text]] for text in plain if folded[text] in NUMBER_WORDS}
    plain = [text for text in plain if folded[text] not in free] if len(free) < len(plain) else plain
    plain, beside = _without_words(column, plain)
    plain, words_of_gaps = _without_odd(column, folded, plain)
    if not others and (dates := partial_form(str(column.name), plain, day_first=day_first)) is not None:
        return dates.model_copy(update={"gaps": words_of_gaps, "beside": beside})
    if all(map(is_number, others)):
        compact = compact_dates([*plain, *others])
        if compact is not None:
            return compact
        gaps = len(plain) < len(folded) or bool(column.isna().any())
        number = _number_form(plain, others, gaps=gaps)
        if number is not None:
            named = {"open": False, "decimal": decimal, "certain": True} if number.open and decimal is not None else {}
            named |= {"gaps": words_of_gaps, "beside": (*number.beside, *beside), "steps": free}
            return _with_placeholders(number.model_copy(update=named), column, kind)
    if (dates := date_draft(column, plain, others, day_first=day_first, gaps=words_of_gaps, beside=beside)) is not None:
        return dates
    if not free and (lengths := _duration_form(str(column.name), plain, others)) is not None:
        return lengths.model_copy(update={"gaps": words_of_gaps})
    return words if others else _form_of_texts(column, texts, plain, words_of_gaps, kind) or words


def _form_of_texts(
    column: "pd.Series[Any]", texts: Sequence[str], plain: Sequence[str], gaps: tuple[str, ...], kind: Kind | None
) -> ColumnForm | None:
    """Of texts that are months, or that hold several numbers or words."""
    if kind is not None:
        return None
    if (months := month_form(str(column.name), plain)) is not None:
        return months.model_copy(update={"gaps": gaps})
    if (worded := _worded_form(column, plain)) is not None:
        return worded
    raw = [text for text in map(plain_text, texts) if text.casefold() not in GAPS]
    numbers = span_form(raw) or _parts_form(raw)
    if numbers is None and len(raw) >= FEWEST_READ and not any(map(_CODED.search, raw)):
        numbers = _number_form(raw, (), gaps=True, middles=True)
    return numbers or _separated(column, texts, None)


def _named_form(plain: Sequence[str], others: Sequence[Any], kind: Kind | None) -> ColumnForm | None:
    """Of truth values, or of words that are steps of a scale."""
    if kind != "number" and (pair := _truth_form(plain, others)) is not None:
        return pair
    if kind == "category" or others or len(plain) > 2 * MOST_STEPS:
        return None
    steps, gaps = steps_of({text.casefold() for text in plain})
    return ColumnForm(kind="scale", steps=steps, gaps=gaps[:MOST_GAPS], middle=True) if steps else None


def _duration_form(name: str, plain: Sequence[str], others: Sequence[Any]) -> ColumnForm | None:
    if not all(isinstance(cell, datetime.timedelta | datetime.time | np.timedelta64) for cell in others):
        return None
    if len(plain) >= FEWEST_READ and all(map(_CLOCK.fullmatch, plain)) and len({text[:2] for text in plain}) > 4:
        named = re.search(r"time|hour|zeit|uhr|heure|hora|utc|gmt|clock|\bat\b", name, re.IGNORECASE) is not None
        return ColumnForm(kind="duration", sign=CLOCK) if named or len({text[2:] for text in plain}) > 1 else None
    if _is_stopwatch(plain) and all(duration_of(text) is not None or STOPWATCH.fullmatch(text) for text in plain):
        return ColumnForm(kind="duration", sign="s")
    return ColumnForm(kind="duration") if all(duration_of(text) is not None for text in plain) else None


def _is_stopwatch(plain: Sequence[str]) -> bool:
    """Whether 3:28 is minutes and seconds: beside 3:28.5, or beside hours of which no day has as many."""
    clocks = [text.split(":") for text in plain if ":" in text]
    short = [clock for clock in clocks if len(clock) == 2]
    fractions = any(re.search("[.,][0-9]", seconds) is not None for _, seconds in short)  # 5:00 a.m. has none
    return fractions or (len(short) < len(clocks) and any(first.isdecimal() and int(first) >= 24 for first, _ in short))


def _separated(column: "pd.Series[Any]", texts: Sequence[str], kind: Kind | None) -> ColumnForm | None:
    """Of texts that are sets of a few words, such as the answers "Price; Quality" or the genres "Action|Drama".

    As sets they have fewer words than they have different cells, each of them in several rows. Commas also stand in
    sentences and addresses, whose parts keep their places: between them most words stand first here and later there.
    """
    first = {plain_text(text) for text in texts[: 20 * MOST_WORDS]} - GAPS
    for mark in SEPARATORS:
        if FEWEST_READ * sum(mark in cell for cell in first) < max(1, len(first)):
            continue
        if len({part for cell in first for part in split(cell, mark)}) > MOST_WORDS:
            continue
        words: Counter[str] = Counter()
        often = Counter(plain_text(cell) for cell in column.tolist() if isinstance(cell, str))
        for gap in GAPS & often.keys():
            del often[gap]
        for cell, count in often.items():
            words.update(dict.fromkeys(split(cell, mark), count))
        letters = all(any(map(str.isalpha, word)) for word in words)
        few = letters and len(words) < min(len(often), MOST_WORDS) and words.total() >= OFTEN * len(words)
        few = few and sum(count < OFTEN for count in words.values()) <= MOST_ODD * len(words)
        if kind == "set" or (few and (mark != "," or _moves(often))):
            return ColumnForm(kind="list", around=mark)
    return None


def _moves(cells: Iterable[str]) -> bool:
    """Whether most words between commas stand first in some of these cells and later in others."""
    places: dict[str, set[bool]] = {}
    for cell in cells:
        for place, word in enumerate(split(cell, ",")):
            places.setdefault(word, set()).add(place > 0)
    return 2 * sum(len(each) > 1 for each in places.values()) > len(places)


def _without_words(column: "pd.Series[Any]", plain: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The texts without words that stand beside numbers or dates, such as "ono" beside prices, and these words.

    Most numbers must be without, and some of the words in several rows: "12 Main St" is an address, "Store 12" a name.
    Dates, years and measures may all be among words: "valid until 31.12.2024", "built 1974", "3 days ago".
    """
    first = [each[1] for text in plain[:FEWEST_READ] if (each := words_beside(text)) is not None]
    days = 2 * sum(map(_is_unmistakable, first)) > FEWEST_READ
    if not (days or _mostly_read(plain)):  # names and addresses of a million rows are not looked at one by one
        return plain, ()
    plain, notes = _without_notes(plain)
    others = [text for text in plain if not text.isdecimal() and number_of(text) is None and day_of(text) is None]
    parts = {text: each for text in others if (each := words_beside(text)) is not None}
    cells = Counter(plain_text(cell) for cell in column.tolist() if isinstance(cell, str))
    rows: Counter[str] = Counter()
    for text, (words, _) in parts.items():
        rows[words] += cells[text]
    if len(rows) > 1 and len(parts) == len(plain) and any(day_of(some) is None for _, some in parts.values()):
        return plain, ()  # each has one of several words, which counts
    some = rows.total()
    texts = [*dict.fromkeys(parts[text][1] if text in parts else text for text in plain)]
    if not rows or max(rows.values()) < OFTEN or len(rows) > MOST_BESIDE or len(texts) < FEWEST_READ:
        return plain, notes
    return (texts, (*notes, *sorted(rows))) if days or 2 * some <= cells.total() else (plain, notes)


def _worded_form(column: "pd.Series[Any]", plain: Sequence[str]) -> ColumnForm | None:
    """Of numbers each of which has one of a few words: "sunny 21", or "5 kg" beside "12 boxes".

    The words stand in several rows each, beside several numbers. Cells that are few are categories.
    """
    cells = Counter(plain_text(cell) for cell in column.tolist() if isinstance(cell, str))
    few = len(plain) <= MOST_WORDS and AT_ONCE * len(plain) < cells.total()
    if len(plain) < FEWEST_READ or few:
        return None
    first = plain[:FEWEST_READ]
    if any(worded_number(text, "") is None or _is_day(text) or _CODED.search(text) for text in first):
        return None
    signs = [number.sign for text in plain if (number := number_of((words_beside(text) or ("", text))[1])) is not None]
    sign = unit if (unit := common_unit(signs)) in MEASURES else ""
    parts = {text: each for text in plain if (each := worded_number(text, sign)) is not None and not _is_day(text)}
    words, numbers = Counter[str](), Counter[str]()
    for text, (word, _) in parts.items():
        words[word] += cells[text]
        numbers[word] += 1
    often = tuple(sorted(word for word in words if words[word] >= OFTEN and numbers[word] >= OFTEN and word != "#"))
    if not 1 < len(often) <= MOST_BESIDE or any(word[:-1] == "# " and not is_unit(word[-1]) for word in often):
        return None
    rows = sum(words[word] for word in (*often, "#"))
    form = _number_form([*dict.fromkeys(number for _, number in parts.values())], (), gaps=True)
    if form is None or rows < (1 - MOST_ODD) * sum(cells[text] for text in plain):
        return None
    form = form.model_copy(update={"kind": "worded", "beside": often, "typical": {}, "open": False})
    values = form.model_copy(update={"typical": {0: np.nan}}).read(column)
    usual = {0: float(values.median())} | dict.fromkeys(range(1, len(often) + 1), 0.0)
    return form.model_copy(update={"typical": usual}) if values.nunique() >= FEWEST_READ else None


def _is_day(text: str) -> bool:
    return (day_of(text) or year_day_of(text) or month_of(text)) is not None


def _without_notes(plain: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The texts without letters that mark notes after a few numbers, such as "12 p", and these: they are no units.

    A letter that is a unit or a scale is a mark if its number is like those without: "12 b" among 9 and 15.
    """
    read = {text: number for text in plain if (number := number_of(text)) is not None}
    bare = [number.point or 0.0 for number in read.values() if not number.sign]
    marked = {text: number for text, number in read.items() if number.sign}
    letters = {text[-1].casefold() for text in marked if text[-2:-1] == " " and text[-1].isalpha()}
    if not letters or len(marked) >= len(bare) or len(letters) > MOST_BESIDE // 2:
        return plain, ()
    if not all(text[-2:-1] == " " and text[-1].isalpha() for text in marked):
        return plain, ()
    if common_unit([number.sign for number in marked.values()]) not in (None, *letters & {"b", "m", "k"}):
        return plain, ()
    values = [number.point or 0.0 for text in marked if (number := number_of(text[:-2])) is not None]
    if not min(bare) <= float(np.median(values)) <= max(bare):
        return plain, ()
    return [text[:-2] if text in marked else text for text in plain], tuple(sorted(f"# {each}" for each in letters))


def _without_odd(
    column: "pd.Series[Any]", folded: Mapping[str, str], plain: list[str]
) -> tuple[list[str], tuple[str, ...]]:
    """The texts but those that are no numbers, dates or times, if they are few: "see note" among numbers is a gap.

    So are up to ``MOST_GAPS`` words that stand in several rows each, which come second: in fewer rows than the numbers,
    and of up to three words beside dates in however many ("sofort", "expired").
    A code with digits, such as V58 among 401 and 250, is never odd: it says that the column is one of codes.
    """
    some = [text for text in plain if not text.isdecimal()] if _mostly_read(plain) else []  # digits alone are a number
    odd = {text for text in some if not _is_read(text)}
    if not odd or len(plain) - len(odd) < FEWEST_READ:
        return plain, ()
    dates = 2 * sum(day_of(text) is not None for text in plain) > len(plain)
    cells = Counter(folded[plain_text(cell)] for cell in column.tolist() if isinstance(cell, str))
    words = {folded[text]: cells[folded[text]] for text in odd}
    often = {word: count for word, count in words.items() if count >= OFTEN}
    if len(often) > MOST_GAPS or not ((dates and len(often) <= 3) or 2 * sum(often.values()) < len(column)):
        often = {}
    few = sum(words.values()) - sum(often.values()) <= max(1, MOST_ODD * len(column))
    if not few or (not dates and any(map(_HAS_DIGIT.search, odd))):
        return plain, ()
    return [text for text in plain if text not in odd], tuple(sorted(often))


def _is_unmistakable(text: str) -> bool:
    """Whether a text is a date, a year or a measure, which are no part of a name."""
    if _YEAR.fullmatch(text) or day_of(text) is not None:
        return True
    number = number_of(text)
    return number is not None and number.sign in MEASURES


def _mostly_read(plain: Sequence[str]) -> bool:
    """Whether most of the first texts are numbers or dates, so that it is worth a look at all of them."""
    first = plain[:FEWEST_READ]
    return 2 * sum(map(_is_read, first)) > len(first)


def _is_read(text: str) -> bool:
    if number_of(text) is not None or day_of(text) is not None or duration_of(text) is not None:
        return True
    return (text[0].isalpha() or text[-1].isalpha()) and year_day_of(text) is not None


def _parts_form(plain: Sequence[str]) -> ColumnForm | None:
    """Of texts with numbers among the same words, such as 10x20 cm or 7 out of 10, at least ``FEWEST_READ`` of them.

    Some may end before the others: "2019" beside "2019 (69 reg)".
    """
    if len(plain) < FEWEST_READ or not any(map(parts_of, plain[:3])):
        return None
    decimal = parts_decimal(plain)
    parts = [each for each in (parts_of(text, decimal) for text in plain) if each is not None]
    counts = Counter(each for each, _ in parts)
    often = [each for each, count in counts.most_common(MOST_GAPS) if count >= max(OFTEN, 2 * MOST_ODD * len(plain))]
    around = max(often, key=lambda each: sum(counts[o] for o in counts if each.startswith(o)), default="#")
    alike = [numbers for each, numbers in parts if around.startswith(each)]
    if around == "#" or len(alike) < max(FEWEST_READ, min((1 - 2 * MOST_ODD) * len(plain), len(plain) - 1)):
        return None
    if 2 * sum(day_of(text) is not None for text in plain) > len(plain):
        return None  # dates of several orders
    columns = enumerate(itertools.zip_longest(*alike, fillvalue=0.0))  # some cells have fewer
    typical = {place: float(np.median(some)) for place, some in columns if min(some) < max(some)}
    form = ColumnForm(kind="parts", decimal="," if decimal == "," else ".", around=around, typical=typical)
    return form if typical else None


def why_text(column: "pd.Series[Any]") -> str:
    """Why a column most of whose cells are numbers or dates is read as texts, as a clause; "" if they are not."""
    if column.dtype != object and not isinstance(column.dtype, pd.StringDtype):
        return ""
    cells = column.drop_duplicates() if isinstance(column.dtype, pd.StringDtype) else column
    each = dict.fromkeys(plain_text(cell) for cell in cells.tolist() if isinstance(cell, str))
    texts = [text for text in each if text.casefold() not in GAPS]
    if len(texts) >= FEWEST_READ and all(map(month_of, texts)) and all(map(year_day_of, texts)):
        return f"dates, but {DOUBT.format(short(texts[0]))}"
    if len(texts) < FEWEST_READ or not _mostly_read(texts) or any(map(_CODE.fullmatch, texts)):
        return ""
    days = [day for day in map(day_of, texts) if day is not None]
    numbers = [number for number in map(number_of, texts) if number is not None]
    what, read = ("dates", days) if len(days) > len(numbers) else ("numbers", numbers)
    odd = [text for text in texts if (day_of if what == "dates" else number_of)(text) is None]
    if len(odd) > 0.2 * len(texts):
        return ""
    units = sorted({number.sign or "no unit" for number in numbers})
    if odd:
        why = f"not {', '.join(map(short, odd[:3]))}"
    elif what == "dates":
        why = "some with the day first and some with the month first; write all in one order, such as 2024-05-31"
    else:
        why = f"in several units: {listed(units, 80)}"
    return f"{len(read)} of {len(texts)} different cells are {what}, {why}"


def _words_form(column: "pd.Series[Any]", folded: Mapping[str, str]) -> ColumnForm | None:
    """Of texts with gaps that are surely gaps ("-" beside "+" is a category), or with several spellings of a word.

    "Full-time", "FULL TIME" and "full_time " are one category, and M is male; "AA", "Aa" and "aa" are genes.
    """
    gaps = not SURE_GAPS.isdisjoint(folded.values()) and "+" not in folded
    words = {plain: spelling_of(small) for plain, small in folded.items()}
    if len(set(words.values())) > MOST_WORDS:
        return ColumnForm(kind="words") if gaps else None
    raw = column.drop_duplicates() if isinstance(column.dtype, pd.StringDtype) else column
    spaced = {cell.strip() for cell in raw.tolist() if isinstance(cell, str)}
    ways = Counter(words[plain_text(cell)] for cell in spaced)
    alike = {word for word, count in ways.items() if count > 1 and sum(map(str.isalpha, word)) > 1}
    alike -= {word for plain, word in words.items() if not _usual_case(plain)}
    short = _abbreviations(ways)
    if not alike and not short:
        return ColumnForm(kind="words") if gaps else None
    often = Counter(plain_text(cell) for cell in column.tolist() if isinstance(cell, str))
    usual = {words[plain]: plain for plain, _ in reversed(often.most_common())}
    spellings = {word: usual[short.get(word, word)] for word in ways if word in alike or word in short}
    return ColumnForm(kind="words", spellings=spellings)


def _abbreviations(words: Iterable[str]) -> dict[str, str]:
    """The words of up to three letters that begin just one longer word each: m of male, f of female.

    Several do, and half of the longer ones have one: Ann is not Anna among many names.
    """
    longer = [word for word in words if len(word) > 3]
    begun = {word: [each for each in longer if each.startswith(word)] for word in words if word.isalpha()}
    whole = {word: each[0] for word, each in begun.items() if len(word) <= 3 and len(each) == 1}
    return whole if len(set(whole.values())) >= max(2, len(longer) / 2) else {}


def _usual_case(word: str) -> bool:
    """Whether a word is of lower, upper or title case, and no gene: "Aa"."""
    gene = len(set(word)) > len(set(word.casefold())) == 1
    return not gene and word in (word.lower(), word.upper(), word.title(), word.capitalize())


def _truth_form(plain: Sequence[str], others: Sequence[Any]) -> ColumnForm | None:
    if not all(isinstance(cell, bool | np.bool_) for cell in others):
        return None
    if not plain:
        return ColumnForm(kind="truth") if others else None
    pair = truth_pair(plain)
    if pair is None:
        return ColumnForm(kind="truth") if truths_agree(plain) else None
    if others or pair == ("false", "true"):
        return ColumnForm(kind="truth")
    known = {word.casefold(): word for word in reversed(plain)}
    return ColumnForm(kind="truth", spelled=(known.get(pair[0], pair[0]), known.get(pair[1], pair[1])))


def _number_form(
    plain: Sequence[str], others: Sequence[Any], *, gaps: bool, middles: bool = False
) -> ColumnForm | None:
    """Of different texts, and numbers; with ``gaps`` beside them whole numbers become floats.

    With ``middles`` most may be ranges, too.
    """
    if not plain:
        return ColumnForm(kind="number")
    joined = "\n".join(plain)
    if CODE.search(joined) or (_LONG.search(joined) and (gaps or not _exact(plain))):
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
    known: dict[str, Any] = {"sign": sign, "every": every, "certain": bool(commas or points)}
    known |= {"middle": ranges > 0, "beside": tuple(each for each in money if each)}
    if sign == "%" and _are_shares(read):
        known |= {"shares": True, "doubt": "numbers without a % among those with one are shares of 1: 0.5 is 50 %"}
    if commas and points:
        mark, other = ("comma", "point") if commas > points else ("point", "comma")
        known |= {
            "either": True,
            "doubt": f"most cells have a {mark} before decimals, others a {other}; each is read by its own",
        }
    is_open = not (commas or points) and any(number.is_open for number in read)
    if is_open and (decimal := _decimal_beside_thousands(read, money=sign in MONEY)):
        return ColumnForm(kind="number", decimal=decimal, **(known | {"certain": True}))
    return ColumnForm(kind="number", decimal="," if commas > points else ".", open=is_open, **known)


def _unit_of_bare(read: Sequence[Number], sign: str) -> str:
    """The unit of numbers without one: of several that whose numbers are most like them, cm of 172 beside 1.80 m."""
    values: dict[str, list[float]] = {}
    for number in read:
        values.setdefault(number.sign, []).append(abs(number.point or number.comma or 0.0) or 1.0)
    bare = values.pop("", [])
    units = [unit for unit in values if sign and sign not in MONEY and converted(1.0, unit, sign) is not None]
    if not bare or len(units) < 2:
        return sign
    return min(units, key=lambda unit: abs(float(np.log(np.median(values[unit]) / np.median(bare)))))


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
    sides: dict[tuple[float | None, str], set[str]] = {}
    for text, number in zip(plain, read, strict=True):
        value = number.comma if number.point is None else number.point
        side = "<" if _BELOW.match(text) else ">" if _ABOVE.search(text) else ""
        sides.setdefault((value, number.sign), set()).add(side)
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
    for text in plain:
        number = number_of(text)
        if number is None and (span := range_of(text)) is not None:
            ranges, number = ranges + 1, Number(sum(span) / 2, sum(span) / 2)
        if number is None or (2 * ranges > len(plain) and not middles):
            return [], 0
        read.append(number)
    return read, ranges


def _are_alike(read: Sequence[Number]) -> bool:
    """Whether all are amounts of a few kinds of money that are worth about as much: not yen beside dollars."""
    amounts: dict[str, list[float]] = {}
    for number in read:
        amounts.setdefault(number.sign, []).append(abs(number.comma or 0.0 if number.point is None else number.point))
    middles = [float(np.median(each)) for each in amounts.values()]
    known = bool(middles) and amounts.keys() <= (MONEY - {"%"}) | {""}
    return known and 0 < max(middles) <= MOST_APART * min(middles)


def _are_shares(read: Sequence[Number]) -> bool:
    """Whether numbers without a sign are shares of 1 among those in %: most are then about 100 times as large."""
    bare, signed = (
        [abs(one.point or one.comma or 0.0) for one in read if bool(one.sign) == each] for each in (False, True)
    )
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
