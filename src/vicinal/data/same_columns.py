"""Which columns of two tables hold the same, though their names differ."""

import re
from typing import Any

import pandas as pd

from vicinal.core.identity import spelled
from vicinal.data.form import TableForm
from vicinal.data.spelling import GAPS

_ROWS = 20_000
"""Rows of a table that are looked at, at most."""

_SHARED, _SHARE = 10, 0.1
"""Distinct cells that two columns have in common, at least, and as a share of those of the shorter list."""

_LETTERS = 4
"""Letters of a name that is part of another one's: mail and email, phone and telephone."""


def same_columns(left: pd.DataFrame, right: pd.DataFrame) -> dict[str, str]:
    """The column of the left table for columns of the right one that hold the same under another name.

    Columns of one name are left as they are. Of the others two are paired if their names differ in case and marks
    alone, or if each has with no other as many distinct cells in common (ten and a tenth of the shorter list at least),
    or, last, if one name is part of the other.

    >>> left = pd.DataFrame({"First Name": ["Ann", "Bo"], "E-Mail": ["a@b.de", "c@d.de"]})
    >>> same_columns(left, pd.DataFrame({"mail": ["a@b.de", "x@y.de"], "first_name": ["Bo", "Ann"]}))
    {'first_name': 'First Name', 'mail': 'E-Mail'}
    """
    here = [name for name in left.columns if name not in right.columns]
    there = [name for name in right.columns if name not in left.columns]
    if not here or not there:
        return {}
    cells = [_cells(table[names]) for table, names in ((left, here), (right, there))]
    shared = pd.DataFrame(
        [[_in_common(cells[0][one], cells[1][other]) for other in there] for one in here], index=here, columns=there
    )
    plain = {name: re.sub(r"[\W_]+", "", spelled(str(name), loose=True)) for name in (*here, *there)}
    best = [(one, other) for one in here for other in there if _is_best(shared, one, other)]
    rules = [
        [(one, other) for one in here for other in there if plain[one] == plain[other]],
        best,
        [(one, other) for one in here for other in there if _is_part(plain[one], plain[other])],
    ]
    same: dict[str, str] = {}
    for one, other in (pair for rule in rules for pair in rule):
        if other not in same and one not in same.values():
            same[other] = one
    return same


def _cells(table: pd.DataFrame) -> dict[str, set[str]]:
    """The distinct cells of each column, as they are meant."""
    some = table.sample(_ROWS, random_state=0) if len(table) > _ROWS else table
    forms = TableForm.of(some).columns
    read = {name: forms[name].read(some[name]) if name in forms else some[name] for name in some.columns}
    return {name: {spelled(str(cell), loose=True) for cell in cells.dropna()} - GAPS for name, cells in read.items()}


def _in_common(one: set[str], other: set[str]) -> float:
    """The share of the shorter list; 0 of too few."""
    count = len(one & other)
    share = count / max(1, min(len(one), len(other)))
    return share if count >= _SHARED and share >= _SHARE else 0.0


def _is_best(shared: pd.DataFrame, one: Any, other: Any) -> bool:
    share = float(shared.loc[one, other])
    return share > 0 and share >= shared.loc[one].max() and share >= shared[other].max()


def _is_part(one: str, other: str) -> bool:
    return min(len(one), len(other)) >= _LETTERS and (one in other or other in one)
