"""Boosted trees as LightGBM writes them: texts that are read, checked and written anew before anything runs them."""

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.int64]]

MOST_TREES = 1 << 14
"""Trees of a text, at most."""

MOST_LEAVES = 1 << 12
"""Leaves of a tree, at most."""

_END = "end of trees\n"

BY_CATEGORY, _KNOWN_BITS = 1, 0b1111
"""Bits of a decision: whether it is by categories; those that there are."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of numbers, as arrays of its leaves and splits; a split comes before those below it.

    Attributes:
        values: of the leaves ``[leaves]``.
        inside: values at the splits ``[splits]``; the first is the root.
        column: that a split looks at ``[splits]``.
        thresholds: up to which numbers go left, or which set of categories does ``[splits]``.
        decisions: by numbers or categories, and where gaps go ``[splits]``.
        children: left and right ``[splits, 2]``; -1 - leaf for a leaf.
        ends: where each set of categories ends ``[sets + 1]``, in words.
        words: bits of categories, 32 in each.
    """

    values: Floats
    inside: Floats
    column: Places
    thresholds: Floats
    decisions: Places
    children: Places
    ends: Places
    words: Places

    @property
    def start(self) -> float:
        """The value at its root, which all rows get."""
        return float(self.inside[0] if len(self.inside) else self.values[0])


def class_texts(text: str, columns: int, classes: int) -> list[str]:
    """The texts of the log-odds of each class, in turn a tree of each, of two classes of the second alone."""
    models = classes if classes > 2 else 1
    trees = read_trees(text, columns, models)
    return [written(trees[place::models], columns) for place in range(models)]


def read_trees(text: str, columns: int, models: int = 1) -> list[Tree]:
    """The trees of a text, checked so that no row can lead out of one.

    Args:
        text: LightGBM's, of one model of a number, or of one for each of more than two classes.
        columns: how many columns it may split by.
        models: how many take turns.

    Raises:
        ValueError: naming what is missing, too large, or leads nowhere.
    """
    if not text.startswith("tree\n") or _END not in text:
        raise ValueError("trees: expected the text of a LightGBM model, got another")
    head, *blocks = text[: text.index(_END)].split("\nTree=")
    facts = _facts(head)
    each = str(models)
    for name, value in (("num_class", each), ("num_tree_per_iteration", each), ("max_feature_idx", str(columns - 1))):
        if facts.get(name) != value:
            raise ValueError(f"trees: expected {name}={value}, got {facts.get(name, 'none')!s:.40}")
    if not 0 < len(blocks) <= models * MOST_TREES:
        raise ValueError(f"trees: expected 1 to {models * MOST_TREES} trees, got {len(blocks)}")
    return _trees([_facts(block) for block in blocks], columns)


def written(trees: list[Tree], columns: int) -> str:
    """The text of trees for LightGBM, with nothing but what predictions need: no ranges of columns, of single rows.

    >>> stump = np.array([1.0, 3.0]), np.array([2.0]), np.array([0]), np.array([0.5]), np.array([2])
    >>> tree = Tree(*stump, np.array([[-1, -2]]), np.zeros(1, dtype=int), np.zeros(0, dtype=int))
    >>> read_trees(written([tree], 1), 1)[0].values.tolist()
    [1.0, 3.0]
    """
    blocks = [f"Tree={number}\n{_written(tree)}\n\n" for number, tree in enumerate(trees)]
    names, infos = (" ".join(parts) for parts in ([f"Column_{j}" for j in range(columns)], ["none"] * columns))
    head = {
        "version": "v4",
        "num_class": 1,
        "num_tree_per_iteration": 1,
        "label_index": 0,
        "max_feature_idx": columns - 1,
        "objective": "regression",
        "feature_names": names,
        "feature_infos": infos,
        "tree_sizes": " ".join(str(len(block)) for block in blocks),
    }
    facts = "\n".join(f"{name}={value}" for name, value in head.items())
    return f"tree\n{facts}\n\n{''.join(blocks)}{_END}"


def _written(tree: Tree) -> str:
    count = len(tree.ends) - 1
    facts: dict[str, Any] = {"num_leaves": len(tree.values), "num_cat": count}
    if len(tree.inside):
        facts |= {"split_feature": tree.column, "threshold": tree.thresholds, "decision_type": tree.decisions}
        facts |= {"left_child": tree.children[:, 0], "right_child": tree.children[:, 1]}
    facts["leaf_value"] = tree.values
    facts |= {"internal_value": tree.inside} if len(tree.inside) else {}
    facts |= {"cat_boundaries": tree.ends, "cat_threshold": tree.words} if count else {}
    facts |= {"is_linear": 0, "shrinkage": 1}
    return "\n".join(f"{name}={_line(value)}" for name, value in facts.items())


def _line(values: Any) -> str:
    return " ".join(map(repr, values.tolist())) if isinstance(values, np.ndarray) else str(values)


def _facts(block: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in block.splitlines() if "=" in line)
    return {name: value for name, value in pairs}


def _numbers(
    blocks: list[dict[str, str]], name: str, counts: Places, kind: type = np.float64, *, ends: bool = False
) -> Any:
    """The finite numbers of a line of all blocks, ``counts`` of each; infinite with ``ends``, where only gaps go on.

    Raises:
        ValueError: for others.
    """
    lines = [block.get(name, "").split() for block in blocks]
    values: np.ndarray
    try:
        values = np.array([*map(int if kind is np.int64 else float, chain.from_iterable(lines))], dtype=kind)
    except (ValueError, OverflowError):
        raise ValueError(f"trees: expected numbers in {name}, got others") from None
    good = kind is np.int64 or (not np.isnan(values).any() if ends else np.isfinite(values).all())
    if [*map(len, lines)] != counts.tolist() or not good:
        raise ValueError(f"trees: expected a finite number in {name} for each leaf or split, got others")
    return values


def _trees(blocks: list[dict[str, str]], columns: int) -> list[Tree]:
    """The trees of some blocks, read together: of thousands each line by itself takes longer than its numbers."""
    each = np.ones(len(blocks), dtype=np.int64)
    leaves, sets = (_numbers(blocks, name, each, np.int64) for name in ("num_leaves", "num_cat"))
    if leaves.min() < 1 or leaves.max() > MOST_LEAVES or {block.get("is_linear") for block in blocks} != {"0"}:
        raise ValueError(f"trees: expected constant leaves, 1 to {MOST_LEAVES} a tree, got others")
    values, splits = _numbers(blocks, "leaf_value", leaves), leaves - 1
    grown, counts = [block for block, some in zip(blocks, splits, strict=True) if some], splits[splits > 0]
    names = "split_feature", "decision_type", "left_child", "right_child"
    column, decisions, *sides = (_numbers(grown, name, counts, np.int64) for name in names)
    if (column < 0).any() or (column >= columns).any():
        raise ValueError(f"trees: expected columns 0 to {columns - 1} in split_feature, got others")
    thresholds = _numbers(grown, "threshold", counts, ends=True)
    children, tree = np.stack(sides, axis=1), np.repeat(np.arange(len(blocks)), splits)  # of a split
    _check_children(children, tree, splits)
    by_category = (decisions & BY_CATEGORY) > 0
    if (decisions & ~_KNOWN_BITS).any():
        raise ValueError("trees: expected decisions by numbers or categories, got others")
    there = np.bincount(tree[by_category], minlength=len(blocks))
    if (sets < 0).any() or (sets > splits).any() or ((sets > 0) != (there > 0)).any():
        raise ValueError("trees: expected num_cat to count decisions by categories, got others")
    of_splits = _numbers(grown, "internal_value", counts), column, thresholds, decisions, children
    cut = [np.split(some, splits.cumsum()[:-1]) for some in of_splits]
    none = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    of_sets = [
        _category_sets(block, some, way[(kind & BY_CATEGORY) > 0]) if some else none
        for block, some, way, kind in zip(blocks, sets.tolist(), cut[2], cut[3], strict=True)
    ]
    parts = zip(np.split(values, leaves.cumsum()[:-1]), *cut, *zip(*of_sets, strict=True), strict=True)
    return [Tree(*part) for part in parts]


def _category_sets(facts: dict[str, str], count: int, thresholds: Floats) -> tuple[Places, Places]:
    """Ends and words of the sets of categories that splits with these thresholds go by.

    Raises:
        ValueError: for decisions by sets that are not there.
    """
    ends: Places = _numbers([facts], "cat_boundaries", np.array([count + 1]), np.int64)
    words: Places = _numbers([facts], "cat_threshold", ends[-1:], np.int64)
    places = np.nan_to_num(thresholds)
    whole = ends[0] == 0 and (np.diff(ends) > 0).all() and (words >= 0).all() and (words < 1 << 32).all()
    if not whole or (places != places.round()).any() or places.min() < 0 or places.max() >= count:
        raise ValueError("trees: expected sets of categories that are there, got others")
    return ends, words


def _check_children(children: Places, tree: Places, splits: Places) -> None:
    """Raise ValueError for children of the splits of trees that are not there once each, or above their parents."""
    inner, first = children >= 0, (splits.cumsum() - splits)[tree, None]
    early = inner & (children + first <= np.arange(len(children))[:, None])
    beyond = np.where(inner, children, ~children - 1) >= splits[tree, None]
    leaf = ~children + first + tree[:, None] + len(children)  # a tree has a leaf more than splits
    times = np.bincount(np.where(inner, children + first, leaf).clip(min=0)[~beyond])
    if early.any() or beyond.any() or times.max(initial=0) > 1:
        raise ValueError("trees: expected each split and leaf below one earlier split, got others")
