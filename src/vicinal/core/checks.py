"""Checks of arguments, all with the same form of error: ``name: expected X, got Y``.

Checks of shape, dtype and plain Python numbers always run. None of them reads the values of a tensor, which
would make an accelerator wait.
"""

import bisect
import contextlib
import difflib
import importlib
import inspect
import itertools
import math
import numbers
import os
import re
import reprlib
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

ECHO = 200
"""Most characters of a user's value that an error repeats."""

_PACKAGES = ("vicinal", "torch", "sklearn", "contextlib")
"""Packages whose lines are skipped when a warning names the line of the caller."""


class ColumnError(ValueError):
    """An error of a column or one of its cells; its message begins with the name of the column."""


class ColumnWarning(UserWarning):
    """What a person may want to know of a column: left out, read in one of two ways, with values never seen."""


class CellWarning(ColumnWarning):
    """Cells count as missing though something is written in them, or a column has none in the rows to train on."""


class CalibrationWarning(UserWarning):
    """Too few groups calibrate an interval or a set of classes for it to rule anything out."""


class ExtrapolationWarning(UserWarning):
    """Rows to predict lie far beyond those of the fit, so that the model has seen nothing like them."""


@contextlib.contextmanager
def unwarned(*kinds: type[Warning]) -> Iterator[None]:
    """While warnings of these kinds would say what was said, what is said in other words, or what is meant."""
    with warnings.catch_warnings():
        for kind in kinds:
            warnings.simplefilter("ignore", kind)
        yield


def short(value: object, length: int = 60) -> str:
    """``repr`` of any value in one line of at most ``length`` characters, as errors show a cell or a name.

    Only a part of a large or nested value is read.

    >>> short("abc"), short("a" * 100, 12)
    ("'abc'", "'aaaaaaaa...")
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()  # a number of numpy or torch
    if isinstance(value, str | bytes | bytearray):
        return _cut(repr(value[: length + 1]), length)
    brief = reprlib.Repr()
    brief.maxlevel = 3
    brief.maxstring = brief.maxother = brief.maxlong = 4 * length  # cut at the end below, not in the middle
    brief.maxlist = brief.maxtuple = brief.maxdict = brief.maxset = brief.maxarray = 8
    try:
        return _cut(brief.repr(value), length)
    except ValueError:  # Python writes no whole number of more than 4300 digits
        return f"<{type(value).__name__}...>"


def short_text(text: object, length: int = 60) -> str:
    r"""A text in one line of at most ``length`` characters, without quotes, as errors begin with a name.

    >>> short_text("a column\nname", 60), short_text("a" * 100, 12)
    ('a column name', 'aaaaaaaaa...')
    """
    return _cut(str(text)[: 4 * length], length)


def _cut(text: str, length: int) -> str:
    line = " ".join(text.split()) if "\n" in text else text
    line = line if line.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in line)
    return line if len(line) <= length else f"{line[: length - 3]}..."


def nearest(value: str, choices: Iterable[str]) -> str:
    """A clause that suggests the choice most like ``value``, or "" if none is close.

    >>> nearest("titel", ["title", "price"])
    "; did you mean 'title'?"
    >>> nearest("zzz", ["title", "price"])
    ''
    """
    if len(value) > ECHO:
        return ""
    folded = {choice.casefold(): choice for choice in choices if len(choice) <= ECHO}
    close = difflib.get_close_matches(value.casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {short(folded[close[0]], ECHO)}?" if close else ""


def plain(value: float, digits: int = 4) -> str:
    """``value`` with so many significant digits and no exponent, as an end of a range.

    >>> plain(15284.3), plain(0.0254321), plain(1998)
    ('15280', '0.02543', '1998')
    """
    return f"{float(f'{value:.{digits}g}'):.12g}"


def listed(names: Iterable[object], room: int = 900) -> str:
    """The first names, as many as fit into ``room`` characters, and how many more there are.

    >>> listed(["a", "b", "c"], room=10)
    "'a', 'b' and 1 more"
    """
    texts = [short(name, 40) for name in names]
    ends = list(itertools.accumulate(len(text) + 2 for text in texts))
    most = max(1, bisect.bisect_right(ends, room))
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1.

    >>> counted(1, "row"), counted(2, "row")
    ('1 row', '2 rows')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def warn_caller(sentence: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the line of the caller: the nearest one outside vicinal, torch and scikit-learn."""
    frame, level = inspect.currentframe(), 1
    while (
        frame is not None
        and frame.f_back is not None
        and frame.f_globals.get("__name__", "").partition(".")[0] in _PACKAGES
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, kind, stacklevel=level)


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``.

    Raises:
        ValueError: if not, naming the choices and the nearest one.

    >>> check_choice("head", "nonna", ["dense", "nona"])
    Traceback (most recent call last):
    ValueError: head: expected one of 'dense', 'nona', got 'nonna'; did you mean 'nona'?
    """
    known = list(choices)
    if isinstance(value, str) and value in known:
        return value
    hint = nearest(value, known) if isinstance(value, str) else ""
    raise ValueError(f"{name}: expected one of {listed(known)}, got {short(value)}{hint}")


def local_path(name: str, path: str | os.PathLike[str], *, written: bool = False) -> Path:
    """``path`` as a Path; a web address is refused.

    >>> local_path("data", "https://example.org/d.csv")
    Traceback (most recent call last):
    ValueError: data: expected a file or folder on this computer, got 'https://example.org/d.csv'; download it first
    """
    text = os.fspath(path)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
        advice = "" if written else "; download it first"
        raise ValueError(f"{name}: expected a file or folder on this computer, got {short(text, ECHO)}{advice}")
    if not text:
        raise ValueError(f"{name}: expected a file or folder, got no name")
    return Path(path)


def check_number(name: str, value: object) -> float:
    """Return ``value`` as a float if it is a finite real number (not a bool)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected a number, got {short(value)}")
    if not math.isfinite(value):
        raise ValueError(f"{name}: expected a finite number, got {short(value)}")
    return float(value)


def check_between(name: str, value: object, low: float, high: float, *, closed: bool = False) -> float:
    """Return ``value`` if it lies in the open (or closed) interval from ``low`` to ``high``.

    >>> check_between("coverage", 90, 0, 1)
    Traceback (most recent call last):
    ValueError: coverage: expected a number between 0 and 1, got 90; for 90 % say 0.9
    """
    number = check_number(name, value)
    inside = low <= number <= high if closed else low < number < high
    if not inside:
        if math.isinf(high):
            interval = f"a number {'of at least' if closed else 'above'} {low:g}"
        else:
            interval = f"a number {'from' if closed else 'between'} {low:g} {'to' if closed else 'and'} {high:g}"
        hint = f"; for {number:g} % say {number / 100:g}" if (low, high) == (0, 1) and 2 <= number < 100 else ""
        raise ValueError(f"{name}: expected {interval}, got {short(value)}{hint}")
    return number


def check_integer(name: str, value: object, low: int = 1, high: int | None = None) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``low``, and of at most ``high``.

    >>> check_integer("k", 0)
    Traceback (most recent call last):
    ValueError: k: expected a whole number of at least 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}: expected a whole number, got {short(value)}")
    if value < low:
        raise ValueError(f"{name}: expected a whole number of at least {low}, got {short(value)}")
    if high is not None and int(value) > high:
        raise ValueError(f"{name}: expected a whole number of at most {high}, got {short(value)}")
    return int(value)


def check_tensor(name: str, value: object) -> Tensor:
    """Return ``value`` if it is a tensor.

    Raises:
        TypeError: if it is not.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: expected a tensor, got {type(value).__name__}")
    return value


def check_matrices(queries: Tensor, bank: Tensor) -> None:
    """Check that ``queries [b, d]`` and ``bank [N, d]`` are floating matrices of the same width and device."""
    for name, value in (("queries", queries), ("bank", bank)):
        check_tensor(name, value)
        if value.ndim != 2:
            raise ValueError(f"{name}: expected a matrix [rows, d], got shape {tuple(value.shape)}")
        if not value.is_floating_point():
            raise TypeError(f"{name}: expected a floating dtype, got {value.dtype}; call .float() on it")
    if queries.shape[1] != bank.shape[1]:
        raise ValueError(f"bank: expected [N, {queries.shape[1]}] as wide as the queries, got {tuple(bank.shape)}")
    if queries.device != bank.device:
        raise ValueError(f"bank: expected a tensor on {queries.device} as the queries are, got {bank.device}")


def check_scores(scores: Tensor, weight: Tensor | None = None) -> None:
    """Check that ``scores [b, N]`` is a floating matrix and that ``weight``, if given, has its shape."""
    check_tensor("scores", scores)
    if scores.ndim != 2:
        raise ValueError(f"scores: expected a matrix [b, N], got shape {tuple(scores.shape)}")
    if not scores.is_floating_point():
        raise TypeError(f"scores: expected a floating dtype, got {scores.dtype}")
    if weight is not None and weight.shape != scores.shape:
        raise ValueError(f"weight: expected {tuple(scores.shape)} as the scores, got {tuple(weight.shape)}")


def check_labels(labels: Tensor, rows: int) -> None:
    """Check that ``labels`` is floating, ``[N]`` or ``[N, T]``, with one row for each of the ``rows`` of the bank."""
    check_tensor("labels", labels)
    if labels.ndim not in (1, 2) or labels.shape[0] != rows:
        raise ValueError(
            f"labels: expected [{rows}] or [{rows}, T], one row for each bank row, got {tuple(labels.shape)}"
        )
    if not labels.is_floating_point():
        raise TypeError(
            f"labels: expected a floating dtype, got {labels.dtype}; "
            "classes go in one-hot (torch.nn.functional.one_hot(labels).float()), numbers by .float()"
        )


def optional_import(name: str, module: str, extra: str, package: str = "") -> Any:
    """Import a module of a package that is not installed by default.

    Args:
        name: the name that an error begins with.
        module: full name of the module.
        extra: the extra of vicinal that installs it.
        package: its name in an error; "": the first part of ``module``.

    Raises:
        ValueError: if it, or something that it needs, is not installed, saying how to install it.

    >>> optional_import("index", "a_package.of_nobody", "faiss")
    Traceback (most recent call last):
    ValueError: index: expected the package a_package, got none; install it with pip install 'vicinal[faiss]'
    """
    top = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # OSError: the library behind it is not there
        absent = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == top
        got = "none" if absent else f"one that cannot be imported ({short_text(error)})"
        raise ValueError(
            f"{name}: expected the package {package or top}, got {got}; install it with pip install 'vicinal[{extra}]'"
        ) from error
