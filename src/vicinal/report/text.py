"""Numbers and foreign text for display: few digits, clipped, and harmless."""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

_BRIEF = 8
"""Elements of a list, at most, that are shown."""

_MIDNIGHT = re.compile(r"(?<=^[0-9]{4}-[0-9]{2}-[0-9]{2})[T ]00:00(:00(\.0+)?)?$")

_METRICS = {
    "mse": "MSE",
    "mae": "MAE",
    "r2": "R2",
    "log_loss": "log loss",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "subset_accuracy": "all classes right",
    "hamming_loss": "Hamming loss",
    "average_precision": "average precision",
    "ndcg@10": "nDCG@10",
    "map@r": "MAP@R",
    "r_precision": "R-precision",
    "r2@10": "R2@10",
}


def metric_name(metric: str) -> str:
    """Display name of ``metric``.

    >>> metric_name("mse"), metric_name("log_loss"), metric_name("own")
    ('MSE', 'log loss', 'own')
    """
    return _METRICS.get(metric.lower(), one_line(metric, 40))


def score_table(each: Mapping[str, Mapping[str, Any]], shown: Callable[[Any], str]) -> list[list[str]]:
    """Scores by method and metric as rows of text, the header first; "" where a method lacks a metric.

    >>> score_table({"model": {"mse": 1.0, "r2": 0.5}, "mean": {"mse": 2.0}}, number)
    [['', 'MSE', 'R2'], ['model', '1', '0.5'], ['mean', '2', '']]
    """
    metrics = list(dict.fromkeys(metric for scores in each.values() for metric in scores))
    rows = [[name, *(shown(scores[m]) if m in scores else "" for m in metrics)] for name, scores in each.items()]
    return [["", *map(metric_name, metrics)], *rows]


def clean(value: object) -> str:
    r"""``value`` as text that can be written anywhere: without control characters and lone surrogates.

    >>> clean("a\x00b\ud800")
    'a�b�'
    """
    text = str(value).replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" else c for c in text)


def one_line(value: object, limit: int = 60) -> str:
    r"""``value`` as one line of at most ``limit`` characters, with an ellipsis where it was cut.

    >>> one_line("a  long\nstory", 8)
    'a long …'
    """
    text = " ".join(clean(value).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def number(value: float, digits: int = 4) -> str:
    """``value`` with about ``digits`` significant digits, all before the point below 1e9, and commas as :func:`fixed`.

    >>> number(0.0254321), number(123456.7), number(-2.5), number(5.13e10), number(1998)
    ('0.02543', '123,457', '-2.5', '5.13e10', '1998')
    """
    if not math.isfinite(value):
        return "n/a"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if not -5 <= size < 9:
        mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    text = fixed(value, max(0, digits - 1 - size))
    return text.rstrip("0").rstrip(".") if "." in text else text


def cell_text(value: Any) -> str:
    """A cell of a table as people write it: a gap as "", a day without its midnight, a short list by its elements.

    >>> cell_text(3.14159), cell_text(float("nan")), cell_text(np.datetime64("2024-05-31T00:00")), cell_text(["a", 2])
    ('3.142', '', '2024-05-31', 'a, 2')
    >>> cell_text([0.5] * 384), cell_text('["a", "b c"]'), cell_text(1999.0), cell_text(12999.0)
    ('(384 elements)', 'a, b c', '1999', '12,999')
    """
    if isinstance(value, str) and value.startswith('["') and value.endswith('"]'):  # as a bank keeps lists
        with suppress(ValueError, RecursionError):
            elements = json.loads(value)
            value = elements if all(isinstance(one, str) for one in elements) else value
    if isinstance(value, list | tuple | set | np.ndarray | dict):
        brief = len(value) <= _BRIEF and not isinstance(value, dict)
        return ", ".join(map(cell_text, value)) if brief else f"({len(value)} elements)"
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else number(float(value))
    text = "" if value is None else str(value)
    return "" if text in ("NaT", "<NA>") else _MIDNIGHT.sub("", text)


def label_text(label: float | str) -> str:
    """A number, or the name of a class in one line."""
    return one_line(label, 60) if isinstance(label, str) else number(float(label))


def plus(text: str) -> str:
    """A number as text with the sign of what is added.

    >>> plus("3.1"), plus("-20"), plus("0.0")
    ('+3.1', '-20', '0.0')
    """
    return text if text.startswith("-") or not text.strip("0.,") else f"+{text}"


def compact(value: float) -> str:
    """``value`` for the tick of an axis.

    >>> compact(1_500_000), compact(20_000), compact(0.25), compact(1999)
    ('1.5M', '20k', '0.25', '1999')
    """
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / unit:.4g}{letter}".replace("-", "\N{MINUS SIGN}")
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}")


def score(value: float, digits: int = 4) -> str:
    """A measure of errors: squared errors of prices in millions.

    >>> score(439_137_589.2), score(20_956.4), score(0.0254321)
    ('439.1M', '20,956', '0.02543')
    """
    return compact(value) if abs(value) >= 1e7 else number(value, digits)


def change_cell(change: float) -> str:
    """A relative change with its sign; from the threefold on, how many times as much, which people grasp.

    >>> change_cell(0.047), change_cell(-0.31), change_cell(218.27), change_cell(float("inf"))
    ('+4.7 %', '-31 %', '219 times', 'n/a')
    """
    if not math.isfinite(change):
        return "n/a"
    if change >= TIMES:
        return f"{number(1 + change, 3)} times"
    return f"{signed_percent(change)} %"


def signed_percent(share: float) -> str:
    """A share in percent with its sign.

    >>> signed_percent(0.047), signed_percent(-0.31), signed_percent(0)
    ('+4.7', '-31', '0')
    """
    size = abs(100 * share)
    digits = f"{size:.1f}".removesuffix(".0") if size < 9.95 else f"{size:.0f}"
    return f"{'+' if share > 0 else '-' if share < 0 else ''}{digits}"


TIMES = 2.0
"""Relative change from which a ratio is told in place of percent."""


def percent(share: float) -> str:
    """A share in percent; negative for a negative weight. What is neither nothing nor all is not said to be.

    >>> percent(0.314), percent(0.0312), percent(0.0002), percent(0), percent(-0.0312), percent(0.998), percent(0.9998)
    ('31 %', '3.1 %', '<0.1 %', '0 %', '-3.1 %', '99.8 %', '>99.9 %')
    """
    if share <= -0.001:
        return f"-{percent(-share)}"
    if share <= 0:
        return "0 %"
    if share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1 - 1e-9:
        return ">99.9 %"
    return f"{100 * share:.1f} %" if share < 0.0995 or 0.995 <= share <= 0.999 else f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """A length of time in suitable units.

    >>> duration(4.21), duration(161), duration(7320)
    ('4.2 s', '2 min 41 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def decimals_for(values: Sequence[float]) -> int:
    """Number of decimals to show all ``values`` with: 3 significant digits for the largest, 4 from ten on.

    >>> decimals_for([-2.41, 0.3]), decimals_for([13.2]), decimals_for([350000.0]), decimals_for([0.0])
    (2, 2, 0, 2)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0:
        return 2
    digits = 3 if largest < 10 else 4
    return min(9, max(0, digits - 1 - math.floor(math.log10(largest))))


def round_to_sum(values: Sequence[float], total: float, decimals: int) -> list[str]:
    """``values`` rounded so that they add up to the rounded ``total``; each moves by at most one in the last decimal.

    ``values`` must sum to ``total`` up to rounding errors.

    >>> round_to_sum([1 / 3, 1 / 3, 1 / 3], 1.0, 2)
    ['0.34', '0.33', '0.33']
    """
    unit = 10.0**decimals
    floors = [math.floor(value * unit) for value in values]
    rests = [value * unit - low for value, low in zip(values, floors, strict=True)]
    missing = round(total * unit) - sum(floors)
    for position in sorted(range(len(values)), key=lambda p: -rests[p])[: max(0, missing)]:
        floors[position] += 1
    return [fixed(low / unit, decimals) for low in floors]


def fixed(value: float, decimals: int) -> str:
    """``value`` with exactly ``decimals`` decimals and no negative zero; four digits have no comma: they may be a year.

    >>> fixed(-0.001, 2), fixed(1998.5, 1), fixed(12345.6, 1)
    ('0.00', '1998.5', '12,345.6')
    """
    text = f"{value:{',' if abs(value) >= 9999.5 else ''}.{decimals}f}"
    return text.lstrip("-") if not text.strip("-0.,") else text
