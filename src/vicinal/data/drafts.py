"""The form of one column, found in its cells; it may be open to more than one reading."""

import contextlib
import datetime
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype, is_timedelta64_dtype

from vicinal.core import ColumnError, listed, short
from vicinal.data.cell_reading import is_odd, read_column, split
from vicinal.data.column_form import (
    CLOCK,
    MOST_GAPS,
    MOST_OF_SETS,
    MOST_WORDS,
    SEPARATORS,
    ColumnForm,
    is_missing,
    is_number,
    rows_of,
)
from vicinal.data.date_drafts import (
    DOUBT,
    FEWEST_READ,
    compact_dates,
    date_draft,
    date_form,
    epoch_form,
    month_form,
    partial_form,
    span_form,
    whole_days,
)
from vicinal.data.date_spelling import STOPWATCH, day_of, duration_of, month_of, year_day_of
from vicinal.data.number_drafts import (
    CODED,
    MOST_LISTS,
    fields_form,
    mostly_read,
    number_form,
    numbers_of_words,
    parts_form,
    version_form,
    without_odd,
    without_words,
    worded_form,
)
from vicinal.data.placeholders import OFTEN, placeholders_of
from vicinal.data.scales import MOST_STEPS, middle_of, steps_of
from vicinal.data.spelling import GAPS, SURE_GAPS, as_truth, number_of, plain_text, truth_pair, truths_agree
from vicinal.encoders.base import Kind
from vicinal.encoders.category import spelling_of
from vicinal.encoders.kinds import is_list, read_list

_CODE = re.compile(r"0[0-9]+")
_CLOCK = re.compile(r"(?:[01][0-9]|2[0-3])[0-5][0-9](?: ?(?:h|hrs?|uhr|z))?", re.IGNORECASE)


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
        return None if kind == "category" else date_form(form := ColumnForm(kind="date"), read_column(form, column))
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
    name = str(column.name)
    dates = (compact_dates(whole_days(column)) or epoch_form(name, column.dropna())) if kind is None else None
    return dates or _with_placeholders(ColumnForm(kind="number"), column, kind)


def _with_placeholders(form: ColumnForm, column: "pd.Series[Any]", kind: Kind | None) -> ColumnForm:
    """The form of a column of numbers with those that stand for missing ones, unless it was said to be of numbers."""
    if kind is not None:
        return form
    numbers, doubtful, doubt = placeholders_of(read_column(form, column))
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
    free = numbers_of_words({text: folded[text] for text in plain})
    plain = [text for text in plain if folded[text] not in free] if len(free) < len(plain) else plain
    plain, beside = without_words(column, plain)
    plain, words_of_gaps = without_odd(column, folded, plain)
    if not others and (dates := partial_form(str(column.name), plain, day_first=day_first)) is not None:
        return dates.model_copy(update={"gaps": words_of_gaps, "beside": beside})
    if all(map(is_number, others)):
        if (dates := compact_dates([*plain, *others]) or epoch_form(str(column.name), [*plain, *others])) is not None:
            return dates
        gaps = len(plain) < len(folded) or bool(column.isna().any())
        number = number_form(plain, others, gaps=gaps)
        if number is not None:
            named = {"open": False, "decimal": decimal, "certain": True} if number.open and decimal is not None else {}
            named |= {"gaps": words_of_gaps, "beside": (*number.beside, *beside), "steps": free}
            return _with_placeholders(number.model_copy(update=named), column, kind)
    no_dates = (*words_of_gaps, *free)[:MOST_GAPS]
    if (dates := date_draft(column, plain, others, day_first=day_first, gaps=no_dates, beside=beside)) is not None:
        return dates
    if not free and (lengths := _duration_form(str(column.name), plain, others)) is not None:
        return lengths.model_copy(update={"gaps": words_of_gaps, "beside": beside})
    return words if others else _form_of_texts(column, texts, plain, words_of_gaps, kind) or words


def _form_of_texts(
    column: "pd.Series[Any]", texts: Sequence[str], plain: Sequence[str], gaps: tuple[str, ...], kind: Kind | None
) -> ColumnForm | None:
    """Of texts that are months, or that hold several numbers or words."""
    if kind is not None:
        return None
    raw = [text for text in map(plain_text, texts) if text.casefold() not in GAPS]
    steps = numbers_of_words({text: text.casefold() for text in raw})
    if (months := month_form(str(column.name), plain)) is not None:
        return months.model_copy(update={"gaps": (*gaps, *steps)[:MOST_GAPS]})
    numbers = worded_form(column, plain) or span_form(raw) or _numbers_form(column, raw, plain, gaps)
    with contextlib.suppress(ColumnError):  # most texts are of the form, but not most rows
        if numbers is not None:
            if numbers.kind in ("worded", "number") or len(numbers.typical) == 1:
                numbers = numbers.model_copy(update={"steps": steps})
            read_column(numbers, column)
            return numbers
    return _separated(column, texts, None)


def _numbers_form(
    column: "pd.Series[Any]", raw: Sequence[str], plain: Sequence[str], gaps: tuple[str, ...]
) -> ColumnForm | None:
    """Of texts with several numbers: by place, or by name or as middles of ranges where more texts are read so."""
    some = raw[:: 1 + len(raw) // MOST_LISTS]

    def odd(form: ColumnForm) -> int:
        return 0 if form.kind == "number" else sum(is_odd(form, text) for text in some)

    parts = parts_form(raw)
    if parts is not None and odd(parts) < OFTEN:
        return parts
    ranges = len(raw) >= FEWEST_READ and any(map(middle_of, raw[:FEWEST_READ])) and not any(map(CODED.search, raw))
    middles = number_form(plain, (), gaps=True, middles=True) if ranges else None
    middles = middles and middles.model_copy(update={"gaps": gaps})
    named = fields_form(column, raw)
    ways = (named, middles) if parts is None else (parts, middles, named)
    return min(filter(None, ways), key=odd, default=None)


def _named_form(plain: Sequence[str], others: Sequence[Any], kind: Kind | None) -> ColumnForm | None:
    """Of truth values, of versions, or of words that are steps of a scale."""
    if kind != "number" and (pair := _truth_form(plain, others)) is not None:
        return pair
    if kind == "category" or others:
        return None
    if kind is None and (versions := version_form(plain)) is not None:
        return versions
    if len(plain) > 2 * MOST_STEPS:
        return None
    steps, gaps, unit = steps_of({text.casefold() for text in plain})
    return ColumnForm(kind="scale", steps=steps, gaps=gaps[:MOST_GAPS], middle=True, sign=unit) if steps else None


def _duration_form(name: str, plain: Sequence[str], others: Sequence[Any]) -> ColumnForm | None:
    if not all(isinstance(cell, datetime.timedelta | datetime.time | np.timedelta64) for cell in others):
        return None
    if len(plain) >= FEWEST_READ and all(map(_CLOCK.fullmatch, plain)) and len({text[:2] for text in plain}) > 4:
        named = re.search(r"time|hour|zeit|uhr|heure|hora|utc|gmt|clock|\bat\b", name, re.IGNORECASE) is not None
        return ColumnForm(kind="duration", sign=CLOCK) if named or len({text[2:4] for text in plain}) > 1 else None
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

    As sets they have fewer words than they have different cells, nine of ten of them in several rows. Commas also stand
    in sentences and addresses, whose parts keep their places: of words in several of these cells, most stand first here
    and later there.
    """
    first = {text.strip() for text in texts[: 20 * MOST_WORDS]} - GAPS
    often = Counter(cell.strip() for cell in column.tolist() if isinstance(cell, str))
    for gap in GAPS & often.keys():
        del often[gap]
    for mark in SEPARATORS:
        if FEWEST_READ * sum(mark in cell for cell in first) < max(1, len(first)):
            continue
        if len({part for cell in first for part in split(cell, mark)}) > MOST_OF_SETS:
            continue
        words: Counter[str] = Counter()
        for cell, count in often.items():
            words.update(dict.fromkeys(split(cell, mark), count))
        letters = all(any(map(str.isalpha, word)) for word in words)
        few = letters and len(words) < min(len(often), MOST_OF_SETS) and words.total() >= OFTEN * len(words)
        few = few and 10 * sum(count for count in words.values() if count < OFTEN) <= words.total()
        if kind == "set" or (few and (mark != "," or _moves(often))):
            return ColumnForm(kind="list", around=mark)
    return None


def _moves(cells: Iterable[str]) -> bool:
    """Whether most words of several of these cells stand first between commas in some and later in others."""
    places: dict[str, list[bool]] = {}
    for cell in cells:
        for place, word in enumerate(split(cell, ",")):
            places.setdefault(word, []).append(place > 0)
    several = [len(set(each)) > 1 for each in places.values() if len(each) > 1]
    return 2 * sum(several) > len(several)


def why_text(column: "pd.Series[Any]") -> str:
    """Why a column most of whose cells are numbers or dates is read as texts, as a clause; "" if they are not."""
    if column.dtype != object and not isinstance(column.dtype, pd.StringDtype):
        return ""
    cells = column.drop_duplicates() if isinstance(column.dtype, pd.StringDtype) else column
    each = dict.fromkeys(plain_text(cell) for cell in cells.tolist() if isinstance(cell, str))
    texts = [text for text in each if text.casefold() not in GAPS]
    if len(texts) >= FEWEST_READ and all(map(month_of, texts)) and all(map(year_day_of, texts)):
        return f"dates, but {DOUBT.format(short(texts[0]))}"
    if len(texts) < FEWEST_READ or not mostly_read(texts) or any(map(_CODE.fullmatch, texts)):
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
    spaced = dict.fromkeys(cell.strip() for cell in raw.tolist() if isinstance(cell, str))
    ways = Counter(words[plain_text(cell)] for cell in spaced)
    alike = {word for word, count in ways.items() if count > 1 and sum(map(str.isalpha, word)) > 1}
    alike -= {word for plain, word in words.items() if not _usual_case(plain)}
    short = _abbreviations(ways)
    if not alike and not short:
        return ColumnForm(kind="words") if gaps else None
    often = rows_of(column)
    usual = {words[plain]: plain for plain, _ in reversed(often.most_common())}
    spellings = {word: usual[short.get(word, word)] for word in ways if word in alike or word in short}
    return ColumnForm(kind="words", spellings=spellings)


def _abbreviations(words: Iterable[str]) -> dict[str, str]:
    """The words of up to three letters that begin just one longer word each: m of male, f of female.

    Several do, and half of the longer ones have one: Ann is not Anna among many names. Nor is old older, or
    yes "yes, but rarely".
    """
    longer = [word for word in words if len(word) > 3]
    some = [word for word in words if word.isalpha() and (len(word) == 1 or as_truth(word) is None)]
    begun = {word: [each for each in longer if re.match(f"{word}(?!e(r|st)$)", each)] for word in some}
    whole = {word: each[0] for word, each in begun.items() if len(word) <= 3 and len(each) == 1}
    return whole if len(set(whole.values())) >= max(2, len(longer) / 2) else {}


def _usual_case(word: str) -> bool:
    """Whether a word is of lower, upper or title case, or a long one, and no gene: "Aa"."""
    gene = len(set(word)) > len(set(word.casefold())) == 1
    return not gene and (len(word) > 3 or word in (word.lower(), word.upper(), word.title()))


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
