"""Words that are steps of a scale, such as "agree", "18-24" or "B+": each as a number, in the order of the scale."""

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from vicinal.data.date_spelling import REMEMBERED
from vicinal.data.parts_spelling import words_beside
from vicinal.data.spelling import LONGEST_NUMBER, Number, common_unit, converted, is_unit, number_of

FEWEST_STEPS, MOST_STEPS = 3, 50
"""Different steps of a scale in a column, at least and at most."""

_GRADES = "; ".join(f"{letter}-; {letter}; {letter}+" for letter in "fedcba")


def _two_sided(pair: str, degrees: str, neither: str) -> str:
    """A scale from a word with a prefix to the word, by ``degrees`` from strong to weak, with other words for each."""
    no, _, high = pair.partition("-")

    def side(word: str) -> list[str]:
        return [", ".join(f"{degree} {word}".lstrip("= ") for degree in one.split()) for one in degrees.split("; ")]

    return "; ".join([*side(no + high), neither.format(no + high, high), *reversed(side(high))])


_DEGREES = "extremely; very strongly completely totally; =; somewhat slightly rather fairly moderately"
_NEITHER = "neutral, undecided, neither, neither {0} nor {1}, neither {1} nor {0}"
_ENGLISH = ("dis-agree", "dis-satisfied", "un-satisfied", "un-likely", "un-happy", "un-important")
_SCALES = (
    *(_two_sided(pair, _DEGREES, _NEITHER) for pair in _ENGLISH),
    _two_sided("un-zufrieden", "sehr; =; eher", "neutral, teils/teils"),
    _two_sided("in-satisfait", "tr\u00e8s; =; plut\u00f4t", "neutre"),
    _two_sided("in-satisfecho", "muy; =; algo", "neutral"),
    _two_sided("in-soddisfatto", "molto; =; abbastanza", "neutrale"),
    "very easy; easy; medium, neutral, moderate; hard, difficult; very hard, very difficult",
    "definitely not, definitely will not; probably not, probably will not; might or might not, maybe; "
    "probably, probably yes, probably will; definitely, definitely yes, definitely will",
    "never; less often, less than once a month; yearly, annually, once a year; quarterly; monthly, once a month; "
    "a few times a month, several times a month; weekly, once a week, about once a week; "
    "a few times a week, several times a week; daily, every day; several times a day",
    "negative, neg; trace; +, 1+; ++, 2+; +++, 3+; ++++, 4+",
    "never; rarely, seldom; sometimes, occasionally; often, frequently; usually, very often; always",
    "terrible; very bad, very poor; bad, poor; fair, average, ok, okay; good; very good; excellent, outstanding",
    "very low; low; medium, moderate, med; high; very high, critical, urgent",
    "not at all; a little, slightly, a bit; somewhat, moderately; quite a bit, very, a lot; extremely, very much",
    "none, normal; minimal, very mild; mild; moderate; severe; very severe, critical",
    "unimportant, not important, not at all important; slightly important; moderately important, neutral; "
    "important, fairly important; very important; extremely important",
    "primary school, elementary school; high school, secondary school; some college; associate's, associate degree; "
    "bachelor's, bachelor, bachelors, bachelor's degree, undergraduate; "
    "master's, master, masters, master's degree; phd, ph.d., doctorate, doctoral",
    "xxs; xs, x-small, extra small; s, small; m, medium; l, large; xl, x-large, extra large; xxl, 2xl, xx-large; "
    "xxxl, 3xl",
    "tiny; small; medium; large; extra large",
    "first; second; third; fourth; fifth; sixth",
    "stimme \u00fcberhaupt nicht zu, stimme gar nicht zu; stimme nicht zu; stimme eher nicht zu; teils/teils, "
    "neutral, weder noch; stimme eher zu; stimme zu; stimme voll zu, stimme voll und ganz zu, stimme v\u00f6llig zu",
    "trifft \u00fcberhaupt nicht zu, trifft gar nicht zu; trifft nicht zu; trifft eher nicht zu; teils/teils; "
    "trifft eher zu; trifft zu; trifft voll zu, trifft v\u00f6llig zu, trifft voll und ganz zu",
    "nie; selten; manchmal, gelegentlich; oft, h\u00e4ufig; sehr oft, sehr h\u00e4ufig; immer",
    "sehr schlecht; schlecht; mittel, mittelm\u00e4\u00dfig, befriedigend, neutral; gut; sehr gut",
    "jamais; rarement; parfois, quelquefois; souvent; tr\u00e8s souvent; toujours",
    "pas du tout d'accord; pas d'accord, plut\u00f4t pas d'accord; neutre; "
    "d'accord, plut\u00f4t d'accord; tout \u00e0 fait d'accord",
    "nunca; raramente, rara vez, casi nunca; a veces, algunas veces; a menudo, frecuentemente, casi siempre; siempre",
    "muy en desacuerdo, totalmente en desacuerdo; en desacuerdo; neutral; "
    "de acuerdo; muy de acuerdo, totalmente de acuerdo",
    _GRADES,
    "g; f; e; d; c; b; a; a+; a++; a+++",
)
"""From the lowest step to the highest, with other words for one step between commas."""

_STEPS = [
    {word: step for step, words in enumerate(scale.split("; ")) for word in words.split(", ")} for scale in _SCALES
]
_NO_ANSWER = {
    *("don't know", "do not know", "not sure", "no opinion", "no answer", "wei\u00df nicht", "keine angabe", "refused"),
    "prefer not to answer",
}
_CODED = re.compile(r"^-?[0-9]{1,3} ?[-=:.)] ?")
"""The number before what it stands for: 98. Don't know."""
_RANGE = re.compile(
    r"(?:between|from|von|de|entre)? ?(?P<low>[^a-z]*[0-9].*?) ?(?:-|~|\.\.+|\b(?:to|bis|and|und|\u00e0|a|et|y)\b) ?"
    r"(?P<high>\S.*)"
)
_LAST = re.compile(r".*\d[)\]]*")
"""A number at the end of a range; what stands after it holds for the first, too: 10-20 kg."""
_LONG = re.compile(rf"[0-9]{{{LONGEST_NUMBER + 1},}}")
_NUMBERED = re.compile(
    r"(?P<first>[0-9]{1,2})(?: ?[-=:.)(] ?(?P<then>[^\d)]*)\)?)?|(?P<before>\D+?) ?[(\[](?P<last>[0-9]{1,2})[)\]]"
)


def steps_of(words: Collection[str]) -> tuple[dict[str, float], tuple[str, ...], str]:
    """The number of each of the different ``words`` of a column, in lower case, those for no answer, and the unit.

    No steps where they are none of one scale that people know, of numbers that words explain, or of ranges one above
    the other.

    >>> steps_of(["agree", "neutral", "disagree", "don't know"])
    ({'disagree': 0.0, 'neutral': 1.0, 'agree': 2.0}, ("don't know",), '')
    >>> steps_of(["18-24", "25-34", "35 to 64", "65 or older"])[0]
    {'18-24': 21.0, '25-34': 29.5, '35 to 64': 49.5, '65 or older': 65.0}
    >>> steps_of(["2 to 3 years", "less than a year", "3 to 5 years", "1 to 2 years", "half a year"])[0]
    {}
    >>> steps_of(["2 to 3 years", "less than a year", "3 to 5 years", "1 to 2 years"])[0]["less than a year"]
    1.0
    >>> steps_of(["1 = very bad", "2", "3 = very good"])[0], steps_of(["store 1", "store 2", "store 3"])[0]
    ({'1 = very bad': 1.0, '2': 2.0, '3 = very good': 3.0}, {})
    """
    none = [word for word in words if _CODED.sub("", word) in _NO_ANSWER or word.startswith("unknown")]
    some = [word for word in words if word not in none]
    if not FEWEST_STEPS <= len(some) <= MOST_STEPS:
        return {}, (), ""
    worded = any(map(str.isalpha, "".join(some)))  # 1+ and 2+ are numbers
    steps, unit = (_known(some) if worded else {}) or _explained(some), ""
    if not steps:
        steps, unit = _ranges(some)
    return steps, tuple(none) if steps else (), unit


def _known(words: Sequence[str]) -> dict[str, float]:
    """Steps of a known scale: those that are there one apart, and the others between them."""
    for scale in _STEPS:
        # grades have a sign at some but not at all: A, B and C are names, A+ and B- blood groups
        letters = "b" in scale
        if all(word in scale for word in words) and not (letters and len({min(len(word), 2) for word in words}) < 2):
            there = sorted({scale[word] for word in words})
            if len(there) >= FEWEST_STEPS:
                places = np.interp(list(scale.values()), there, np.arange(len(there))).tolist()
                return {word: place for word, place in zip(scale, places, strict=True) if word in words}
    return {}


def step_of(word: str, steps: Mapping[str, float]) -> float | None:
    """The number of a word that no row had: between its neighbors on the scale of ``steps``; None if it is not there.

    >>> step_of("somewhat agree", {"neutral": 0.0, "agree": 1.0}), step_of("perhaps", {"neutral": 0.0, "agree": 1.0})
    (0.5, None)
    """
    for scale in _STEPS:
        if word in scale and all(each in scale for each in steps):
            places, numbers = zip(*sorted((scale[each], number) for each, number in steps.items()), strict=True)
            return float(np.interp(scale[word], places, numbers))
    return None


def _explained(words: Sequence[str]) -> dict[str, float]:
    """Numbers beside words of a scale: all of it, or its ends alone."""
    matches = [(word, _NUMBERED.fullmatch(word)) for word in words]
    parts = [
        (word, match["first"] or match["last"], match["then"] or match["before"] or "")
        for word, match in matches
        if match
    ]
    numbers = [int(number) for _, number, _ in parts]
    said = {int(number): text.strip() for _, number, text in parts if text.strip()}
    twice = any(text.strip() not in ("", said.get(int(number))) for _, number, text in parts)
    if len(parts) < len(words) or len(set(numbers)) < FEWEST_STEPS or twice:
        return {}
    ends = said.keys() <= {min(numbers), max(numbers)}
    if not said or not (ends or any(all(text in scale for text in said.values()) for scale in _STEPS)):
        return {}
    return {word: float(number) for word, number, _ in parts}


def _ranges(words: Sequence[str]) -> tuple[dict[str, float], str]:
    """Ranges that do not overlap, and numbers between them, such as "65+", in the unit that comes second."""
    spans = [(word, *span) for word in words if (span := range_of(word) or _point(word)) is not None]
    unit = common_unit([sign for *_, sign in spans])
    if len(spans) < len(words) or unit is None:
        return {}, ""
    ends = sorted((in_one(low, sign, unit), in_one(high, sign, unit), word) for word, low, high, sign in spans)
    steps = sum(low < high for low, high, _ in ends) >= FEWEST_STEPS
    if not steps or any(high > low for (_, high, _), (low, *_) in pairwise(ends)):
        return {}, ""
    return {word: (low + high) / 2 for low, high, word in ends}, unit


def range_of(text: str) -> tuple[float, float, str] | None:
    """The ends of a range such as 10-20 kg or $20k to $40k, and their unit; None for another text, as 20-10 or 01-02.

    >>> range_of("$20k to $40k"), range_of("10-20 years old"), range_of("3-1"), range_of("01-02")
    ((20000.0, 40000.0, '$'), (10.0, 20.0, 'year'), None, None)
    >>> range_of("$1 to $2 billion"), range_of("800 g - 1.2 kg")
    ((1000000000.0, 2000000000.0, '$'), (0.8, 1.2, 'kg'))
    """
    match = _RANGE.fullmatch(text)
    if match is None or _LONG.search(text):
        return None
    whole = match["low"] + _LAST.sub("", match["high"]) * match["low"][-1].isdigit()
    low, high = _number(whole) or _number(match["low"]), _number(match["high"])
    if low is None or high is None:
        return None
    first = low.largest if low.sign in ("", high.sign) else converted(low.largest, low.sign, high.sign)
    return (first, high.largest, high.sign) if first is not None and first < high.largest else None


@functools.lru_cache(REMEMBERED)
def middle_of(text: str) -> Number | None:
    """The number in the middle of a range; None for another text."""
    if (ends := range_of(text)) is None:
        return None
    return Number(sum(ends[:2]) / 2, sum(ends[:2]) / 2, ends[2])


def in_one(value: float, sign: str, unit: str) -> float:
    """A number with a sign in the unit of others; as it is if it has none or another one."""
    return value if (same := converted(value, sign, unit)) is None else same


def _point(text: str) -> tuple[float, float, str] | None:
    number = _number(text)
    return None if number is None else (number.largest, number.largest, number.sign)


def _number(text: str) -> Number | None:
    """The one number in a text, whatever words are beside it, as in "under a year"; not a code, such as 007."""
    text = text.strip()
    alone = text if number_of(text) is not None else (words_beside(text) or ("", ""))[1]
    number = None if re.match(r"0\d", alone) else number_of(alone)
    return number if number is None or is_unit(number.sign) else replace(number, sign="")
