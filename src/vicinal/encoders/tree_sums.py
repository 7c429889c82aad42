"""What each column adds in boosted trees: of many rows, and of all trees at once."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from vicinal.encoders.tree_text import BY_CATEGORY, Floats, Places, Tree

_ZERO = float(np.float32(1e-35))
"""Size up to which LightGBM takes a number for 0."""

_LEFT, _GAPS, _ZERO_IS_GAP = 0b10, 0b1000, 0b100
"""Bits of a decision: whether gaps go left, and which numbers are gaps."""

_CELLS = 1 << 19
"""Splits times rows that are decided together, in bytes that the cache of a processor holds."""

_FEW = 32
"""Rows up to which what columns add is summed by one call for many trees."""


class RowPlaces(NamedTuple):
    """Rows as splits compare them: places of numbers among thresholds ``[w, b]``, and categories ``[c, b]``."""

    numbers: np.ndarray[Any, Any]
    categories: Places

    def of(self, rows: Places) -> "RowPlaces":
        """Of some rows alone."""
        return RowPlaces(self.numbers[:, rows], self.categories[:, rows])


class TreeSums:
    r"""The trees of several models, as arrays of all their splits, and what each column adds in a model.

    The place of a number among the thresholds of its column is found once for all trees; then a split compares bytes.
    The leaf of a row is found from the leaves up: with b = 1 where a row goes left, a split has the leaf
    $r + b (l - r)$ of those of its children, without a branch. Leaves are those of LightGBM for any number, gap
    and category, and sums are added tree by tree, so that they do not depend on how many rows are asked together.

    Args:
        models: the trees of each, checked.
        columns: how many columns rows have, f.
    """

    def __init__(self, models: Sequence[list[Tree]], columns: int) -> None:
        trees = [tree for model in models for tree in model]
        self.columns, self.models = columns, np.cumsum([0, *map(len, models)])
        self.splits = np.cumsum([0, *(len(tree.inside) for tree in trees)])
        self.leaves = np.cumsum([0, *(len(tree.values) for tree in trees)])
        self._tree = np.repeat(np.arange(len(trees)), np.diff(self.splits))  # of a split
        number = np.arange(self.leaves[-1]) - np.repeat(self.leaves[:-1], np.diff(self.leaves))
        self._number = number.astype(np.min_scalar_type(int(number.max())))  # of a leaf in its tree
        children = np.concatenate([tree.children for tree in trees])
        starts = np.where(children >= 0, self.splits[self._tree, None], -self.leaves[self._tree, None])
        self._children = children + starts  # in all trees
        self._levels = list(self._by_depth())
        self._height = np.zeros(len(children), dtype=np.int64)
        for at in reversed(self._levels):
            below = self._children[at]
            self._height[at] = np.where(below >= 0, self._height[below.clip(min=0)] + 1, 0).max(axis=1)
        column, decision, threshold = (_joined(trees, name) for name in ("column", "decisions", "thresholds"))
        self._cut, self._way, self._size, self._start = np.zeros((4, len(column)), dtype=np.int64)
        by_set = decision & BY_CATEGORY > 0
        self._read_numbers(column << 4 | decision, threshold, np.flatnonzero(~by_set))
        self._read_sets(trees, column, threshold, np.flatnonzero(by_set))
        self._read_values(trees, column)

    def _by_depth(self) -> Iterator[Places]:
        at = self.splits[:-1][np.diff(self.splits) > 0]
        while len(at):
            yield at
            below = self._children[at].ravel()
            at = below[below >= 0]

    def _read_numbers(self, ways: Places, thresholds: Floats, splits: Places) -> None:
        """Thresholds of each column and way with gaps, and the place among them of that of each split by numbers."""
        at = splits[np.lexsort((thresholds[splits], ways[splits]))]
        ways, thresholds = ways[at], thresholds[at]
        first, other = np.ones((2, len(at)), dtype=bool)
        first[1:] = ways[1:] != ways[:-1]
        other[1:] = first[1:] | (thresholds[1:] != thresholds[:-1])
        starts, self._way[at] = np.flatnonzero(first), np.cumsum(first) - 1
        place = np.cumsum(other) - 1
        self._cut[at] = place - place[starts][self._way[at]]
        self._ways = ways[starts].tolist()
        self._cuts = [np.unique(part) for part in np.split(thresholds, starts[1:])]

    def _read_sets(self, trees: list[Tree], column: Places, thresholds: Floats, splits: Places) -> None:
        """Flags of the categories of all sets, each with one behind it for what is in none."""
        flags, starts, behind = [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=np.int64)], 0
        for tree in [tree for tree in trees if len(tree.words)]:
            bits = np.unpackbits(tree.words.astype("<u4").view(np.uint8), bitorder="little").astype(bool)
            flags.append(np.insert(bits, 32 * tree.ends[1:], False))
            starts.append(behind + 32 * tree.ends[:-1] + np.arange(len(tree.ends) - 1))
            behind += len(flags[-1])
        sets = np.cumsum([0, *(len(tree.ends) - 1 for tree in trees)])[self._tree[splits]]
        sets += thresholds[splits].astype(np.int64)
        ends = np.concatenate([*starts, [behind]])
        self._flags, self._set_columns = np.concatenate(flags), np.unique(column[splits])
        self._start[splits], self._size[splits] = ends[sets], ends[sets + 1] - ends[sets] - 1
        self._way[splits] = np.searchsorted(self._set_columns, column[splits])

    def _read_values(self, trees: list[Tree], column: Places) -> None:
        """What each column adds on the way to each leaf: of the columns that a tree looks at, in turn."""
        pairs, place = np.unique(self._tree * self.columns + column, return_inverse=True)
        self._pair_tree, self._pair_column = np.divmod(pairs, self.columns)
        self._pairs = np.searchsorted(self._pair_tree, np.arange(len(trees) + 1))
        self._pair_slot = np.arange(len(pairs)) - self._pairs[self._pair_tree]
        slot, width = place - self._pairs[self._tree], int(self._pair_slot.max(initial=0)) + 1
        values, inside = _joined(trees, "values"), _joined(trees, "inside")
        paths, table = np.zeros((len(inside), width)), np.zeros((len(values), width))
        for at in self._levels:
            for child in self._children[at].T:
                to, ends = paths[at], child < 0
                below = np.where(ends, values[(~child).clip(min=0)], inside[child.clip(min=0)])
                to[np.arange(len(at)), slot[at]] += below - inside[at]
                table[~child[ends]], paths[child[~ends]] = to[ends], to[~ends]
        self._table = np.ascontiguousarray(table.T)  # [width, leaves]

    def places(self, rows: Floats) -> RowPlaces:
        """Of rows ``[b, f]``, for :meth:`sums`."""
        rows = np.where(np.abs(rows) <= _ZERO, 0.0, rows)
        most = max((len(cuts) for cuts in self._cuts), default=0)
        numbers = np.zeros((max(1, len(self._ways)), len(rows)), dtype=np.min_scalar_type(most))
        for to, way, cuts in zip(numbers, self._ways, self._cuts, strict=False):
            gaps = np.isnan(rows[:, way >> 4])
            values = np.where(gaps, 0.0, rows[:, way >> 4])
            to[:] = np.searchsorted(cuts, values)
            kind = way & (_GAPS | _ZERO_IS_GAP)
            if kind in (_GAPS, _ZERO_IS_GAP):
                to[gaps if kind == _GAPS else values == 0] = 0 if way & _LEFT else len(cuts)
        categories, none = rows[:, self._set_columns].T, 1 << 40  # no set is so large
        return RowPlaces(numbers, np.where(categories > -1, categories.clip(max=none), none).astype(np.int64))

    def sums(self, model: int, places: RowPlaces) -> Floats:
        """What each column adds in all trees of a model ``[b, f]``."""
        rows = places.numbers.shape[1]
        total = np.zeros((self.columns, rows))
        for first, last in self._blocks(model, rows):
            leaves = self._leaves(first, last, places) + self.leaves[first:last, None]
            at = slice(self._pairs[first], self._pairs[last])
            tree, column, slot = self._pair_tree[at] - first, self._pair_column[at], self._pair_slot[at]
            if rows <= _FEW:
                added = self._table.take(leaves.take(tree, axis=0) + slot[:, None] * self._table.shape[1])
                np.add.at(total.reshape(-1), (column[:, None] * rows + np.arange(rows)).ravel(), added.ravel())
                continue
            for one, to, of in zip(tree.tolist(), column.tolist(), slot.tolist(), strict=True):
                total[to] += self._table[of].take(leaves[one])
        return total.T

    def leaves_of(self, model: int, places: RowPlaces) -> np.ndarray[Any, Any]:
        """The number of the leaf of each row in each tree of a model ``[trees, b]``."""
        blocks = self._blocks(model, places.numbers.shape[1])
        return np.concatenate([self._leaves(first, last, places) for first, last in blocks])

    def _blocks(self, model: int, rows: int) -> Iterator[tuple[int, int]]:
        """Trees that are looked at together."""
        first, last = self.models[model : model + 2].tolist()
        while first < last:
            end = int(np.searchsorted(self.splits, self.splits[first] + _CELLS // max(1, rows), side="right")) - 1
            end = min(max(end, first + 1), last)
            yield first, end
            first = end

    def _leaves(self, first: int, last: int, places: RowPlaces) -> np.ndarray[Any, Any]:
        """The number of the leaf of each row in each tree from ``first`` to ``last`` ``[trees, b]``."""
        start, end, before, behind = (part[tree] for part in (self.splits, self.leaves) for tree in (first, last))
        leaves = behind - before
        order = np.argsort(self._height[start:end], kind="stable")
        place = np.empty_like(order)
        place[order] = leaves + np.arange(len(order))
        children = self._children[start:end][order]
        below = np.where(children < 0, ~children - before, place.take((children - start).clip(min=0), mode="clip"))
        left = self._left(order + start, places)
        leaf = np.empty((leaves + len(order), left.shape[1]), dtype=self._number.dtype)
        leaf[:leaves] = self._number[before:behind, None]
        ends = np.cumsum(np.bincount(self._height[start:end])).tolist()
        for one, two in zip([0, *ends], ends, strict=False):
            this, other = leaf.take(below[one:two, 0], axis=0), leaf.take(below[one:two, 1], axis=0)
            this -= other
            this *= left[one:two]
            np.add(this, other, out=leaf[leaves + one : leaves + two])
        roots = self.splits[first:last] - start
        single = np.diff(self.splits[first : last + 1]) == 0  # a tree of one leaf
        at = np.where(single, self.leaves[first:last] - before, place.take(roots, mode="clip") if len(place) else 0)
        return leaf.take(at, axis=0)

    def _left(self, splits: Places, places: RowPlaces) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Whether each row goes left at each split ``[splits, b]``."""
        cuts = self._cut[splits].astype(places.numbers.dtype)
        left = places.numbers.take(self._way[splits], axis=0, mode="clip") <= cuts[:, None]
        by_set = np.flatnonzero(self._size[splits])
        at = splits[by_set]
        if len(at):
            known = np.minimum(places.categories.take(self._way[at], axis=0), self._size[at, None])
            left[by_set] = self._flags.take(known + self._start[at, None])
        return left.view(np.uint8)


def _joined(trees: list[Tree], name: str) -> np.ndarray[Any, Any]:
    return np.concatenate([getattr(tree, name) for tree in trees])
