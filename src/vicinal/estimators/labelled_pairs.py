"""Labelled pairs of rows, as people give them and as a matcher learns from them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from vicinal.core import listed, short
from vicinal.estimators.inputs import as_table
from vicinal.estimators.linking import connected
from vicinal.estimators.match_rows import MatchTable
from vicinal.estimators.match_tables import MatchedTables, found_pairs
from vicinal.linkage.columns import Ids

_CLOSED = 20
"""Rows that labels make one thing, up to which each two of them are learned from."""


def pair_positions(name: str, pairs: Any, tables: Sequence[MatchTable]) -> Ids:
    """Positions ``[n, 2]`` of pairs by id, a table or a list of tuples; of one table the lower one first.

    Raises:
        ValueError: for a column that is not there, an id that is not in its table, or a row with itself.
    """
    pairs = _pair_table(name, pairs)
    columns = list(pairs.columns) if isinstance(pairs, pd.DataFrame) else []
    if not {"left", "right"} <= set(columns):
        got = listed(columns, 99) if columns else short(pairs)
        raise ValueError(f"{name}: expected the columns left and right, with ids of either table, got {got}")
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
    frame = _pair_table(name, pairs)
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
    frame = _pair_table(name, pairs)
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


def _pair_table(name: str, pairs: Any) -> Any:
    """Pairs as a table; those given as (left, right) or (left, right, match), such as a list of tuples, get names."""
    table = as_table(name, pairs)
    if isinstance(table, pd.DataFrame) or not hasattr(table, "__len__"):
        return table
    rows = [list(pair) if isinstance(pair, list | tuple | np.ndarray) else [] for pair in table]
    named = ["left", "right", "match"][: len(rows[0]) if rows else 0]
    return pd.DataFrame(rows, columns=named) if len(named) > 1 and {len(row) for row in rows} == {len(named)} else table


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


def folds(pairs: pd.DataFrame, fraction: float, random: np.random.Generator) -> Ids:
    """The fold of each labelled pair, ``[n]``, each of about a ``fraction`` of the left rows, whole rows at a time."""
    rows = random.permutation(pairs["left"].unique())
    number = np.arange(len(rows)) // max(1, round(fraction * len(rows)))
    last = max(1, round(1 / fraction) - 1)
    return np.asarray(pairs["left"].map(dict(zip(rows.tolist(), np.minimum(number, last).tolist(), strict=True))))


class SameThings:
    """What labelled matches say of pairs that nobody labelled: if A is B and B is C, A is C.

    Args:
        matches: positions ``[n, 2]`` of things that match.
        counts: of the things of either table.
        is_single: whether both are one table.
    """

    def __init__(self, matches: Ids, counts: tuple[int, int], *, is_single: bool) -> None:
        self.shift = 0 if is_single else counts[0]
        self.of = connected(matches + np.array([0, self.shift]), counts[0] if is_single else sum(counts))

    @classmethod
    def by(cls, labels: pd.DataFrame, tables: MatchedTables) -> "SameThings":
        """What labels of rows say."""
        matches = tables.things(positions_of(labels[labels["match"] == 1]))
        return cls(matches, tables.counts, is_single=tables.is_single)

    def are_same(self, at: Ids) -> Ids:
        """Whether each pair ``[n, 2]`` is of one thing by the labels."""
        return np.asarray(self.of[at[:, 0]] == self.of[at[:, 1] + self.shift])

    def pairs(self, known: Ids, largest: int) -> Ids:
        """All matches ``[m, 2]`` that follow from ``known`` ones, in groups of at most ``largest``, without these."""
        rows = pd.DataFrame({"row": np.unique(known + np.array([0, self.shift]))})
        rows["of"] = self.of[rows["row"]]
        small = rows[rows.groupby("of")["row"].transform("size") <= largest]
        at = small.merge(small, on="of")[["row_x", "row_y"]].to_numpy()
        across = (at[:, 0] < self.shift) & (at[:, 1] >= self.shift) if self.shift else at[:, 0] < at[:, 1]
        follow = pd.DataFrame(at[across] - np.array([0, self.shift]), columns=["left", "right"])
        new = follow.merge(pd.DataFrame(known, columns=["left", "right"]), how="left", indicator=True)
        return positions_of(new[new["_merge"] == "left_only"])


def closed_pairs(
    tables: MatchedTables, labelled: pd.DataFrame, labels: pd.DataFrame, n_candidates: int
) -> tuple[pd.DataFrame, list[str]]:
    """Labelled pairs as things, and the matches that follow from them; and sentences about it.

    Of each two things one pair stays, a match, if one is, and none of a thing with itself; ``left`` and ``right`` are
    things, ``left row`` and ``right row`` the rows that were labelled.

    If non-matches are implicit, other candidates of rows with a labelled match are taken for none.

    Args:
        tables: both.
        labelled: pairs of rows.
        labels: all that were labelled, also those to choose the threshold by.
        n_candidates: of each row.
    """
    known, implicit = positions_of(labelled), labelled.attrs.get("implicit", False)
    pairs = pd.DataFrame(np.hstack([tables.things(known), known]), columns=["left", "right", "left row", "right row"])
    pairs.insert(2, "match", labelled["match"].to_numpy())
    pairs = pairs[pairs["left"] != pairs["right"]] if tables.is_single else pairs
    pairs = pairs.sort_values("match", ascending=False, kind="stable").drop_duplicates(["left", "right"]).sort_index()
    same = SameThings.by(labels, tables)
    follow = _as_pairs(tables, same.pairs(positions_of(pairs[pairs["match"] == 1]), _CLOSED), 1)
    parts = [pairs, follow]
    if implicit:
        at = pairs.loc[pairs["match"] == 1, "left"].unique()
        others, _ = found_pairs(tables.candidates(n_candidates, torch.from_numpy(at)))
        others[:, 0] = at[others[:, 0]]
        others = np.unique(np.sort(others, axis=1), axis=0) if tables.is_single else others
        parts.append(_as_pairs(tables, others[~same.are_same(others)], 0))
    both = pd.concat(parts, ignore_index=True).drop_duplicates(["left", "right"], ignore_index=True)
    if not implicit:
        return both, []
    count = int((both["match"] == 0).sum() - (pairs["match"] == 0).sum())
    return both, [f"{count} other candidates of the rows of labelled matches count as none"]


def _as_pairs(tables: MatchedTables, at: Ids, match: int) -> pd.DataFrame:
    """Pairs of things ``[n, 2]`` as labelled ones, with their first rows."""
    left, right = tables.left.first[at[:, 0]], tables.right.first[at[:, 1]]
    return pd.DataFrame({"left": at[:, 0], "right": at[:, 1], "match": match, "left row": left, "right row": right})


def labelled_rows(labelled: pd.DataFrame) -> pd.DataFrame:
    """Labelled things as the rows that were labelled."""
    rows = labelled[["left row", "right row", "match"]].set_axis(["left", "right", "match"], axis=1)
    return rows.reset_index(drop=True)


def lack_of_labels(parts: Sequence[tuple[pd.DataFrame, pd.DataFrame]]) -> str:
    """What labelled pairs lack, each part to learn from and all others to choose the threshold by; "" if nothing."""
    learned = [("learn from", rows) for rows, _ in parts]
    for part, rows in (*learned, ("choose the threshold by", pd.concat([others for _, others in parts]))):
        if rows["match"].nunique() < 2:
            right = int(rows["match"].sum())
            which = f" that {'do not match' if right else 'match'}" if len(rows) else ""
            return (
                f"expected some that match and some that do not to {part}, got {right} and {len(rows) - right}; label "
                f"more pairs{which}"
            )
    return ""
