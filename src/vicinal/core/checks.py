"""Checks of arguments, all with one form of sentence: ``name: expected X, got Y``.

Checks of shape, dtype and plain Python numbers always run. None of them reads the values of a tensor, which
would make an accelerator wait.
"""

import difflib
import math
import numbers
from collections.abc import Iterable

from torch import Tensor


def nearest(value: str, choices: Iterable[str]) -> str:
    """A clause that names the choice most like ``value``, or nothing.

    >>> nearest("titel", ["title", "price"])
    "; did you mean 'title'?"
    >>> nearest("zzz", ["title", "price"])
    ''
    """
    folded = {choice.casefold(): choice for choice in choices}
    close = difflib.get_close_matches(value.casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""


def check_choice(name: str, value: object, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``.

    Raises:
        ValueError: naming the choices and the nearest one.

    >>> check_choice("head", "nonna", ["dense", "nona"])
    Traceback (most recent call last):
    ValueError: head: expected one of 'dense', 'nona', got 'nonna'; did you mean 'nona'?
    """
    known = list(choices)
    if isinstance(value, str) and value in known:
        return value
    hint = nearest(value, known) if isinstance(value, str) else ""
    raise ValueError(f"{name}: expected one of {', '.join(map(repr, known))}, got {value!r}{hint}")


def check_number(name: str, value: object) -> float:
    """Return ``value`` as a float if it is a finite real number (not a bool)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}: expected a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name}: expected a finite number, got {value!r}")
    return float(value)


def check_between(name: str, value: object, low: float, high: float, *, closed: bool = False) -> float:
    """Return ``value`` if it lies in the open (or closed) interval from ``low`` to ``high``.

    >>> check_between("coverage", 1.5, 0, 1)
    Traceback (most recent call last):
    ValueError: coverage: expected a number between 0 and 1, got 1.5
    """
    number = check_number(name, value)
    inside = low <= number <= high if closed else low < number < high
    if not inside:
        if math.isinf(high):
            wanted = f"a number {'of at least' if closed else 'above'} {low:g}"
        else:
            wanted = f"a number {'from' if closed else 'between'} {low:g} {'to' if closed else 'and'} {high:g}"
        raise ValueError(f"{name}: expected {wanted}, got {value!r}")
    return number


def check_integer(name: str, value: object, low: int = 1) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``low``.

    >>> check_integer("k", 0)
    Traceback (most recent call last):
    ValueError: k: expected a whole number of at least 1, got 0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name}: expected a whole number, got {value!r}")
    if value < low:
        raise ValueError(f"{name}: expected a whole number of at least {low}, got {value!r}")
    return int(value)


def check_matrices(queries: Tensor, bank: Tensor) -> None:
    """Check that ``queries [b, d]`` and ``bank [N, d]`` are floating matrices of one width and device."""
    for name, value in (("queries", queries), ("bank", bank)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(value).__name__}")
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
    if not isinstance(scores, Tensor):
        raise TypeError(f"scores: expected a tensor, got {type(scores).__name__}")
    if scores.ndim != 2:
        raise ValueError(f"scores: expected a matrix [b, N], got shape {tuple(scores.shape)}")
    if not scores.is_floating_point():
        raise TypeError(f"scores: expected a floating dtype, got {scores.dtype}")
    if weight is not None and weight.shape != scores.shape:
        raise ValueError(f"weight: expected {tuple(scores.shape)} as the scores, got {tuple(weight.shape)}")


def check_labels(labels: Tensor, rows: int) -> None:
    """Check that ``labels`` is floating, ``[N]`` or ``[N, T]``, with one row for each of the ``rows`` of the bank."""
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels: expected a tensor, got {type(labels).__name__}")
    if labels.ndim not in (1, 2) or labels.shape[0] != rows:
        raise ValueError(
            f"labels: expected [{rows}] or [{rows}, T], one row for each bank row, got {tuple(labels.shape)}"
        )
    if not labels.is_floating_point():
        raise TypeError(
            f"labels: expected a floating dtype, got {labels.dtype}; "
            "classes go in one-hot (torch.nn.functional.one_hot(labels).float()), numbers by .float()"
        )
