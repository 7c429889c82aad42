"""Labelled pairs of rows, as people give them and as a matcher learns from them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from vicinal.core import listed, short
from vicinal.estimators.inputs import as_table
from vicinal.estimators.match_tables import Ids, MatchTable


def pair_positions(name: str, pairs: Any, tables: Sequence[MatchTable]) -> Ids:
    """Positions ``[n, 2]`` of pairs by id; of one table the lower one first.

    Raises:
        ValueError: for a column that is not there, an id that is not in its table, or a row with itself.
    """
    columns = list(pairs.columns) if isinstance(pairs, pd.DataFrame) else []
    if not {"left", "right"} <= set(columns):
        raise ValueError(
            f"{name}: expected the columns left and right, with ids of either table, got {listed(columns, 99)}"
        )
    at = np.stack(
        [table.positions(pairs[side]) for side, table in (("left", tables[0]), ("right", tables[-1]))], axis=1
    )
    if len(tables) > 1:
        return at
    same = at[:, 0] == at[:, 1]
    if same.any():
        who = short(pairs["left"].iloc[int(same.argmax())])
        raise ValueError(f"{name}: expected pairs of two rows, got {who} with itself")
    return np.sort(at, axis=1)


def take_pairs(name: str, pairs: Any, tables: Sequence[MatchTable]) -> pd.DataFrame:
    """Labelled pairs as positions ``left`` and ``right`` and 0 or 1 in ``match``, each once.

    Raises:
        ValueError: for pairs that are none, labels other than 0 and 1, two labels of one pair, or labels of one kind.
    """
    frame = as_table(name, pairs)
    table = take_labels(name, frame, tables)
    check_one_label(name, table, tables)
    if not (table["match"] == 1).any():
        raise ValueError(f"{name}: expected at least one pair that matches, got {len(table)} that do not")
    if "match" in frame.columns and (table["match"] == 1).all():
        raise ValueError(
            f"{name}: expected at least one pair that does not match, got {len(table)} that do; leave the column match "
            "out, and other candidates of the same rows are taken for such"
        )
    table.attrs["implicit"] = "match" not in frame.columns
    return table


def take_labels(name: str, pairs: Any, tables: Sequence[MatchTable]) -> pd.DataFrame:
    """Pairs as positions ``left`` and ``right``, with 0 or 1 in ``match`` (1 without that column), each label once."""
    frame = as_table(name, pairs)
    at = pair_positions(name, frame, tables)
    match = np.ones(len(frame))
    if "match" in frame.columns:
        match = pd.to_numeric(frame["match"], errors="coerce").to_numpy(np.float64)
        wrong = ~np.isin(match, (0, 1))
        if wrong.any():
            raise ValueError(
                f"{name}: expected 0 or 1 in the column match, got {short(frame['match'].iloc[int(wrong.argmax())])}"
            )
    return pd.DataFrame({"left": at[:, 0], "right": at[:, 1], "match": match.astype(np.int64)}).drop_duplicates()


def with_answers(labelled: pd.DataFrame | None, answers: pd.DataFrame) -> pd.DataFrame:
    """Labelled pairs with those of a review, the last of which is right; only matches have implicit others."""
    implicit = (answers["match"] == 1).all() if labelled is None else labelled.attrs["implicit"]
    parts = [answers] if labelled is None else [labelled, answers]
    table = pd.concat(parts, ignore_index=True).drop_duplicates(["left", "right"], keep="last", ignore_index=True)
    table.attrs["implicit"] = bool(implicit)
    return table


def check_one_label(name: str, table: pd.DataFrame, tables: Sequence[MatchTable]) -> None:
    """Raise ValueError for a pair that was labelled 0 and 1."""
    labels = table.groupby(["left", "right"])["match"].nunique()
    if (labels > 1).any():
        left, right = labels.index[labels > 1][0]
        who = f"{short(tables[0].ids[left])} and {short(tables[-1].ids[right])}"
        raise ValueError(f"{name}: expected one label for each pair, got both 0 and 1 for {who}")


def positions_of(pairs: pd.DataFrame) -> Ids:
    """Of labelled pairs ``[n, 2]``."""
    return pairs[["left", "right"]].to_numpy(dtype=np.int64)


def pairs_to_learn_from(pairs: pd.DataFrame, fraction: float, random: np.random.Generator) -> Ids:
    """Which labelled pairs are learned from: all of a left row or none."""
    rows = pairs["left"].unique()
    held_out = random.permutation(rows)[: max(1, round(fraction * len(rows)))]
    return ~pairs["left"].isin(held_out).to_numpy()
