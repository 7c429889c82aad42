"""Columns that give the target away, or that name what rows have in common: reported, never dropped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import lgamma, log
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vicinal.core.checks import short_text
from vicinal.encoders.kinds import ID_NAME
from vicinal.encoders.numeric import to_numbers

RANKS = 0.99
"""Rank correlation with the target (Spearman's) from which a column ranks it almost perfectly."""

BINS = (0.95, 0.999)
"""The same for a target cut into a few bins: rank correlation, and share of concordant minus discordant pairs."""

ERRORS, VARIANCE = 0.98, 0.99
"""Share of the errors of predicting the most common class, and of the variance, that a column alone removes."""

FEWEST = 20
"""Fewer rows than this tell nothing: among many columns one may fit by chance."""

CHANCE = 1e-4
"""How likely a column in a random order may separate the classes: of one row it would have to be the first or last."""

_MOST = 2000
"""Most rows that are ranked."""

_READ = ("number", "category", "text")


class LeakWarning(UserWarning):
    """A column should be checked before a model is trusted; see :class:`ColumnLeak`."""


@dataclass(frozen=True)
class ColumnLeak:
    """A column that should be checked before a model is trusted.

    Attributes:
        column: its name.
        form: "target" (it gives the target away), "group" (it names what rows have in common), "name" (its name
            suggests that), or "copy" (it is a copy of the given groups).
        seen: what was found, as a clause.
        grouped: whether the rows have groups already, beside which there are no others.
    """

    column: str
    form: Literal["target", "group", "name", "copy"]
    seen: str
    grouped: bool = False

    @property
    def sentence(self) -> str:
        """What was found, and what to do on the command line."""
        plain = short_text(self.column)
        name = plain if plain.replace("_", "").replace("-", "").isalnum() else f'"{plain}"'
        return f"{self.seen}: {self._advice(f'say --group {name}', f'say --drop {name}')}"

    @property
    def python(self) -> str:
        """The same for Python users."""
        return f"{self.seen}: {self._advice('give it as groups', 'leave it out')}"

    def _advice(self, group: str, drop: str) -> str:
        if self.form == "target":
            return f"if it is made from the target, or known only after it, {drop}"
        if self.form == "copy":
            return drop
        also = "" if self.grouped else f"{group}, else "  # of groups that would be refused
        return f"if it names what rows have in common (a patient, a house), {also}{drop}"


def leaking_columns(
    frame: pd.DataFrame,
    kinds: Mapping[str, str],
    target: Sequence[Any] | NDArray[Any],
    *,
    classes: bool,
    groups: Sequence[Any] | NDArray[Any] | None = None,
) -> list[ColumnLeak]:
    """Columns that alone rank or separate the target almost perfectly, or that look like a group key.

    This finds a rounded copy of the target, its rank, its value in another currency, the name of its class or a
    measurement made after it was known; also the key of a patient whose rows share one target. It also finds a column
    that honestly predicts so well: nothing is dropped, the user decides. Thresholds were set on the toy sets of
    scikit-learn and on real tables: the best honest column among them has a rank correlation of 0.94 with the target,
    and removes 94 % of the errors (petal length and width of irises).

    Args:
        frame: the feature columns ``[n, columns]``.
        kinds: of the columns that are used; only numbers, categories and texts are checked.
        target: numbers or class names ``[n]``.
        classes: whether the target is a class.
        groups: ``[n]``; a category or text that is a copy of these is reported too.

    >>> frame = pd.DataFrame({"dollars": [1.1 * i for i in range(30)], "rooms": [1, 2, 3] * 10})
    >>> [leak.column for leak in leaking_columns(frame, dict.fromkeys(frame, "number"), range(30), classes=False)]
    ['dollars']
    """
    if len(frame) < FEWEST:
        return []
    labels = pd.factorize(np.asarray(target))[0] if classes else np.asarray(target, dtype=np.float64)
    grouped = None if groups is None else pd.factorize(np.asarray(groups))[0]
    leaks = []
    for name, column in frame.items():
        kind, called = kinds.get(str(name)), str(name)
        if kind not in _READ:
            continue
        leak = None
        if kind == "number":
            levels, leak = _look_at_numbers(called, to_numbers(column, called), labels, classes=classes)
        else:
            levels = _levels(column)
        leak = leak or _level_leak(called, levels, labels, classes=classes)
        if leak is None and grouped is not None and kind != "number":
            leak = _group_copy(called, levels, grouped)
        if leak is None and grouped is None and not pd.api.types.is_float_dtype(column.dtype):
            leak = _named_key(called, levels)
        if leak is not None:
            leaks.append(replace(leak, grouped=grouped is not None))
    return leaks


def _look_at_numbers(
    name: str, numbers: NDArray[Any], labels: NDArray[Any], *, classes: bool
) -> tuple[NDArray[Any], ColumnLeak | None]:
    """The levels of a column of numbers (see :func:`_levels`), and whether it ranks or separates the target."""
    known = np.flatnonzero(~np.isnan(numbers))
    levels = np.full(len(numbers), -1)
    values, levels[known] = np.unique(numbers[known], return_inverse=True)
    if len(known) < max(FEWEST, len(numbers) // 2) or len(values) < 2:
        return levels, None
    if len(known) > _MOST:
        known = np.sort(np.random.default_rng(0).choice(known, _MOST, replace=False))
    clause = (_separates if classes else _ranks)(levels[known], labels[known])
    if not clause:
        return levels, None
    return levels, ColumnLeak(name, "target", f"{short_text(name)} alone {clause}")


def _ranks(levels: NDArray[Any], labels: NDArray[Any]) -> str:
    """A clause if numbers, by their order, rank the target; else ""."""
    ranks = [pd.Series(values).rank() for values in (levels, labels)]
    correlation = float(np.nan_to_num(ranks[0].corr(ranks[1])))
    if abs(correlation) >= RANKS or (abs(correlation) >= BINS[0] and abs(concordance(levels, labels)) >= BINS[1]):
        return f"ranks the target almost perfectly (rank correlation {correlation:.3f})"
    return ""


def concordance(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Goodman and Kruskal's gamma: the share of concordant minus discordant pairs, among pairs that differ in both.

    >>> concordance(np.array([1, 1, 2, 2]), np.array([1, 2, 3, 4]))
    1.0
    """
    pairs = len(one) * (len(one) - 1) / 2
    ties, others = _tied_pairs(one), _tied_pairs(other)
    both = _tied_pairs(np.stack([one, other], axis=1))
    apart = pairs - ties - others + both
    if apart <= 0:
        return 0.0
    from scipy.stats import kendalltau  # slow to import, and needed only when a model is fitted

    return float(kendalltau(one, other).statistic * np.sqrt((pairs - ties) * (pairs - others)) / apart)


def _tied_pairs(values: NDArray[Any]) -> float:
    counts = np.unique(values, axis=0, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1) / 2).sum())


def _separates(levels: NDArray[Any], labels: NDArray[Any]) -> str:
    """A clause if each class is one interval of numbers, by their order; else ""."""
    counts = np.unique(labels, return_counts=True)[1]
    count = len(counts)
    order = np.lexsort((labels, levels))
    turns = int((np.diff(labels[order]) != 0).sum())  # of the kindest order of ties
    base = 1 - counts.max() / len(labels)
    # count! orders of the classes, out of all orders of the rows
    chance = lgamma(count + 1) + sum(lgamma(one + 1) for one in counts) - lgamma(len(labels) + 1)
    if chance > log(CHANCE):
        return ""
    if turns > count - 1 + 4 * (1 - ERRORS) * base * len(labels):
        return ""
    from sklearn.tree import DecisionTreeClassifier  # slow to import, and needed only when a model is fitted

    tree = DecisionTreeClassifier(max_leaf_nodes=count, random_state=0).fit(levels[:, None], labels)
    right = float(tree.score(levels[:, None], labels))
    if 1 - (1 - right) / base < ERRORS:
        return ""
    return (
        f"separates the classes almost perfectly ({right:.1%} of the rows, by {count - 1} threshold{'s'[: count > 2]})"
    )


def _level_leak(name: str, levels: NDArray[Any], labels: NDArray[Any], *, classes: bool) -> ColumnLeak | None:
    """A column whose values, where they repeat, stand for one target each."""
    counts = np.bincount(levels[levels >= 0], minlength=1)
    again = (levels >= 0) & (counts[levels] > 1)
    rows, repeated = int(again.sum()), int((counts > 1).sum())
    if repeated < 2 or rows < max(FEWEST, len(levels) // 2, 2 * repeated):
        return None
    share = (_class_share if classes else _number_share)(levels[again], labels[again])
    if share < (ERRORS if classes else VARIANCE):
        return None
    if classes and repeated <= 2 * len(np.unique(labels)):
        return ColumnLeak(name, "target", f"{short_text(name)} alone tells the class of almost every row")
    clause = f"rows of one {short_text(name)} have the same {'class' if classes else 'target'}"
    return ColumnLeak(name, "group", f"{clause} ({repeated} values, {rows} rows)")


def _class_share(levels: NDArray[Any], labels: NDArray[Any]) -> float:
    """Share of the errors of the most common class that go if a row gets the class of the others of its level."""
    table = np.zeros((int(levels.max()) + 1, int(labels.max()) + 1))
    np.add.at(table, (levels, labels), 1)
    others = table[levels]
    others[np.arange(len(labels)), labels] -= 1
    errors = float((others.argmax(axis=1) != labels).mean())
    base = 1 - np.bincount(labels).max() / len(labels)
    return 1 - errors / base if base > 0 else 0.0


def _number_share(levels: NDArray[Any], labels: NDArray[Any]) -> float:
    """Share of the variance that goes if a row gets the mean of the others of its level."""
    counts, sums = np.bincount(levels), np.bincount(levels, weights=labels)
    expected = (sums[levels] - labels) / (counts[levels] - 1)
    spread = float(((labels - labels.mean()) ** 2).sum())
    return 1 - float(((labels - expected) ** 2).sum()) / spread if spread > 0 else 0.0


def _group_copy(name: str, levels: NDArray[Any], groups: NDArray[Any]) -> ColumnLeak | None:
    """A column that is a copy of the groups."""
    known = levels >= 0
    pairs = np.unique(np.stack([levels[known], groups[known]], axis=1), axis=0)
    number = len(np.unique(groups))
    if number < 5 or known.mean() < 0.99 or abs(len(pairs) - number) > number // 100:
        return None
    if abs(len(np.unique(pairs[:, 0])) - number) > number // 100:
        return None
    return ColumnLeak(name, "copy", f"{short_text(name)} names the groups over again, which is no help with new groups")


def _named_key(name: str, levels: NDArray[Any]) -> ColumnLeak | None:
    """A column with the name of a key, whose values repeat."""
    if not ID_NAME.search(name):
        return None
    number = len(np.unique(levels[levels >= 0]))
    if number < 10 or 2 * number > len(levels):
        return None
    return ColumnLeak(
        name, "name", f"{short_text(name)} looks like a key by its name ({number} values, {len(levels)} rows)"
    )


def _levels(column: "pd.Series[Any]") -> NDArray[Any]:
    """Levels of a category or text: a number for each different cell ``[n]``, -1 for missing ones."""
    try:
        return pd.factorize(column)[0]
    except TypeError:  # lists and the like, which no encoder of these kinds takes
        return np.full(len(column), -1)
