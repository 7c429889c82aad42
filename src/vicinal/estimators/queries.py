"""Queries whose rows have an order to learn: those of several rows and several grades."""

from typing import Any

import numpy as np
import pandas as pd

from vicinal.core import counted
from vicinal.core.checks import warn_caller
from vicinal.core.identity import canonical_ids
from vicinal.estimators.inputs import Ids, as_series, as_table, positions_left, rows_at


def ranked_rows(queries: Any, grades: Any) -> tuple[Ids, str]:
    """Which rows ``[n]`` are of queries with more than one grade, and a sentence on the others; "" if all are.

    Args:
        queries: of each row ``[n]``.
        grades: numbers ``[n]``.

    Raises:
        ValueError: if no query has an order.

    >>> some, said = ranked_rows(["a", "a", "b", "b", "c"], [0.0, 1.0, 2.0, 2.0, 1.0])
    >>> some.tolist()
    [True, True, False, False, False]
    >>> said
    '2 of 3 queries have one row or one grade, so no order, and are left out (3 rows)'
    """
    values, codes = np.asarray(grades, dtype=np.float64), pd.factorize(np.asarray(queries))[0]
    each = pd.Series(values).groupby(codes)
    spread = (each.transform("max") > each.transform("min")).to_numpy()
    count, left = int(codes.max()) + 1, len(set(codes[~spread].tolist()))
    if not spread.any():
        raise ValueError(
            f"queries: expected some with rows of different grades, got {count}, each of one row or one "
            "grade; name the column that rows of one list share"
        )
    if not left:
        return spread, ""
    have, are = ("has", "is") if left == 1 else ("have", "are")
    rows = counted(int((~spread).sum()), "row")
    return spread, f"{left} of {count} queries {have} one row or one grade, so no order, and {are} left out ({rows})"


def of_ranked_queries(
    X: Any, y: Any, queries: Any, *, weights: Any = None, ids: Any = None, validation: Any = None
) -> tuple[tuple[Any, Any, Any, Any, Any], Any]:
    """Rows, labels, weights, ids and queries of :func:`ranked_rows`, and the positions held out among them.

    Ids stay those of all rows; a warning says what is left out.
    """
    rows = as_table("X", X)
    count = rows.shape[0] if hasattr(rows, "shape") else len(rows)
    names = canonical_ids("queries", queries, count)
    grades = np.asarray(as_series("y", y))
    if grades.shape not in ((count,), (count, 1)) or grades.dtype.kind not in "biuf" or not np.isfinite(grades).all():
        raise ValueError(
            f"y: expected one finite grade for each of {count} rows that are ranked, got {grades.dtype} of shape "
            f"{grades.shape}"
        )
    some, said = ranked_rows(names, grades.reshape(-1))
    if not said:
        return (X, y, weights, ids, names), validation
    warn_caller(f"queries: {said}")
    at = np.flatnonzero(some)
    own_ids = np.arange(count) if ids is None else ids
    ranked = tuple(None if one is None else rows_at(one, at) for one in (rows, y, weights, own_ids, names))
    return ranked, None if validation is None else positions_left(validation, at, count)  # type: ignore[return-value]
