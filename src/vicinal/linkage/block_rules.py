"""Which rules find the candidates of large tables: chosen by what they find of likely matches, and at what cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from vicinal.core.threads import in_threads
from vicinal.linkage.block_keys import Cells, Part, PartsRule, Rule, TokensRule, parts_of
from vicinal.linkage.columns import CodedColumn, Ids

MOST_RULES = 32
"""Rules, at the most: each is a bit of what is said of a pair."""

_TEXTS = 3
"""Columns of texts whose words are looked for by themselves, beside those of all columns."""

_ROWS, _OTHERS = 1 << 13, 1 << 16
"""Rows of the left and of the right table that rules are judged by, at the most."""

_PARTS = 3
"""Parts of a rule."""

_COLUMNS, _TRIALS = 12, 2000
"""Columns that parts are taken from, those that tell most rows apart, and combinations of a size that are tried."""

_BLOCK = 50
"""Right rows of one key beyond which a left row gets none by it, while rules are chosen."""

_LOST = 0.01
"""Share of the rows with larger blocks from which on a rule is tried with one part more."""

_LEAST_GAIN = 5e-4
"""Share of the likely matches that a rule has to add."""

_EACH = 0.3
"""What a rule costs beside its pairs: as many pairs for each row."""

_LIKELY = (0.3, 1.0)
"""Chance that a cell of a match is equal: drawn for each match, as some are typed with care and others are not."""

_HALVES = 0.35
"""Chance that the start of a cell that differs is the same, and that the end is."""

_LIFT, _SEEN = 3.0, 100.0
"""Two columns go together if pairs of rows agree in both so many times as often as by chance, and that is seen."""

_TOGETHER = 0.1
"""Share of the likely matches in which all columns that go together differ, as of somebody who has moved."""

_ENOUGH = 0.97
"""Share of the likely matches below which runs of letters are looked for, too."""


@dataclass(frozen=True)
class _Trial:
    """What a rule would do.

    Attributes:
        cost: pairs for each left row.
        covered: which likely matches it finds, ``[m]``.
        lost: share of the rows that it is about whose blocks are too large.
    """

    cost: float
    covered: Ids
    lost: float


class _Sample:
    """Rows of both tables, and how likely matches of the left ones would agree."""

    def __init__(self, cells: Cells, *, single: bool) -> None:
        random = np.random.default_rng(0)
        self.cells, self.single = cells, single
        rows, others = (cells.rows(side) for side in (0, 1))
        self.left = np.sort(random.permutation(rows)[:_ROWS])
        self.right = np.sort(random.permutation(others)[:_OTHERS])
        self.scale = others / max(1, len(self.right))
        self.care = random.uniform(*_LIKELY, len(self.left))
        self.random = random
        self.agrees: dict[Part, Ids] = {}

    def telling(self, columns: Sequence[CodedColumn]) -> list[CodedColumn]:
        """The columns that tell most rows apart: the share of filled cells times the bits of a cell, in their order."""
        bits = {}
        for column in columns:
            filled = float((column.sides[1][self.right] >= 0).sum())
            pairs = max(1.0, filled * (filled - 1))
            bits[column.name] = filled * np.log2(pairs / max(1.0, self._collisions(column.name)))
        best = sorted(bits, key=lambda name: -bits[name])[:_COLUMNS]
        return [column for column in columns if column.name in best]

    def groups(self, columns: Sequence[CodedColumn]) -> list[set[str]]:
        """Columns that go together, such as street, suburb and postcode."""
        count, groups = len(self.right), [{column.name} for column in columns]
        alone = {column.name: self._collisions(column.name) for column in columns}
        for one, other in combinations(alone, 2):
            by_chance = alone[one] * alone[other] / max(1, count * (count - 1))
            if by_chance >= _SEEN and self._collisions(one, other) >= _LIFT * by_chance:
                both = [group for group in groups if one in group or other in group]
                groups = [group for group in groups if group not in both] + [set().union(*both)]
        return [group for group in groups if len(group) > 1]

    def _collisions(self, *names: str) -> float:
        """Pairs of right rows that agree in columns, each twice."""
        keys = np.sort(PartsRule(tuple(map(Part, names))).keys(self.cells, 1, self.right)[0])
        sizes = np.diff(np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1], [True]])))
        return float((sizes * (sizes - 1.0)).sum()) if len(keys) else 0.0

    def draw(self, column: CodedColumn, parts: Sequence[Part], changed: Mapping[str, Ids]) -> None:
        """Whether parts of a column agree in each likely match: a text of many words is equal as a whole less often."""
        words = np.mean([1 + value.count(" ") for value in column.values[:1000]]) if column.values else 1
        equal = self.random.random(len(self.left)) < self.care ** max(1, words / 2)
        half = self.random.random(len(self.left))
        if column.name in changed:
            equal, half = equal & ~changed[column.name], np.where(changed[column.name], 0.5, half)
        halves = {"whole": equal, "start": equal | (half < _HALVES), "end": equal | (half > 1 - _HALVES)}
        self.agrees.update({part: halves[part.which] for part in parts})

    def trial(self, rule: Rule) -> _Trial:
        """What a rule would do; pairs of tokens agree if both do."""
        index = np.sort(rule.keys(self.cells, 1, self.right)[0])
        keys, rows = rule.keys(self.cells, 0, self.left)
        sizes = self.scale * (np.searchsorted(index, keys, side="right") - np.searchsorted(index, keys))
        within = sizes <= _BLOCK
        if isinstance(rule, PartsRule):
            agrees = np.logical_and.reduce([self.agrees[part][rows] for part in rule.parts])
        else:
            agrees = self.random.random(len(rows)) < self.care[rows] ** 2
        covered = np.zeros(len(self.left), dtype=bool)
        covered[rows[within & agrees]] = True
        cost = float(sizes[within].sum()) / max(1, len(self.left))
        if self.single:  # a row is in its block, and each pair is there twice
            cost = max(0.0, cost - len(rows) / max(1, len(self.left))) / 2
        return _Trial(cost, covered, 1 - float(within.mean()) if len(within) else 1.0)


def choose_rules(cells: Cells, most: float, *, single: bool) -> list[Rule]:
    """Rules that together find most of the likely matches and give about ``most`` pairs for each left row.

    A likely match is a left row and its copy, of which each cell is equal with a chance that is drawn for the match.
    Rules are added by the share of the matches that they alone find over the pairs that they give.

    Args:
        cells: of both tables.
        most: pairs for each left row.
        single: whether both tables are one.
    """
    sample = _Sample(cells, single=single)
    columns = [column for column in cells.columns.values() if len(column.values) > 1]
    texts = [column.name for column in columns if column.kind != "number"]
    trials: dict[Rule, _Trial] = {}
    long = [column.name for column in columns if column.kind == "text"]
    groups = [*([name] for name in long[:_TEXTS] if len(long) > 1), *([texts] if long else [])]
    first: list[Rule] = [TokensRule.of("words", cells, names, single=single) for names in groups]
    _try_parts(sample, columns, trials)
    trials.update({rule: sample.trial(rule) for rule in first})
    if not trials:
        return []
    chosen, covered = _greedy(trials, first, most)
    if covered < _ENOUGH and texts:
        first.append(TokensRule.of("letters", cells, texts, single=single))
        trials[first[-1]] = sample.trial(first[-1])
        chosen, _ = _greedy(trials, first, most)
    return chosen


def _try_parts(sample: _Sample, columns: Sequence[CodedColumn], trials: dict[Rule, _Trial]) -> None:
    """Single parts, and two and three together where fewer give too large blocks."""
    parts: list[Part] = []
    columns = sample.telling(columns)
    changed: dict[str, Ids] = {}
    for group in sample.groups(columns):
        changed.update(dict.fromkeys(group, sample.random.random(len(sample.left)) < _TOGETHER))
    for column in columns:
        parts += (of := parts_of(column))
        sample.draw(column, of, changed)
    place = {part: number for number, part in enumerate(parts)}
    tried: dict[tuple[Part, ...], _Trial] = {}
    frontier: list[tuple[Part, ...]] = [(part,) for part in parts]
    for size in range(1, _PARTS + 1):
        tried.update(zip(frontier, in_threads(lambda each: sample.trial(PartsRule(each)), frontier), strict=True))
        crowded = [each for each in frontier if tried[each].lost > _LOST]
        frontier = [
            (*each, part)
            for each in crowded
            for part in parts[place[each[-1]] + 1 :]
            if part.column not in {other.column for other in each}
        ]
        lost = {
            each: [tried[some].lost if some in tried else 0.0 for some in combinations(each, size)] for each in frontier
        }
        frontier = [each for each in frontier if min(lost[each]) > _LOST]
        frontier = sorted(frontier, key=lambda each: sum(lost[each]))[:_TRIALS]
    trials.update({PartsRule(each): trial for each, trial in tried.items()})


def _greedy(trials: dict[Rule, _Trial], first: Sequence[Rule], most: float) -> tuple[list[Rule], float]:
    """The rules in the order in which they are added, and the share of the likely matches that they find.

    The ``first`` ones have half of all pairs, if they need them: what is too much is taken off by smaller blocks.
    """
    pool, chosen = dict(trials), list(first)
    started = [pool.pop(rule) for rule in first]
    covered = np.zeros(len(next(iter(trials.values())).covered), dtype=bool)
    for trial in started:
        covered |= trial.covered
    cost = min(most / 2, sum(trial.cost for trial in started))
    while pool and len(chosen) < MOST_RULES:
        gains = {rule: float((trial.covered & ~covered).mean()) for rule, trial in pool.items()}
        best = max(pool, key=lambda rule: gains[rule] / (pool[rule].cost + _EACH))
        trial = pool.pop(best)
        if gains[best] < _LEAST_GAIN:
            break
        if chosen and cost + trial.cost > most:
            continue
        chosen.append(best)
        covered |= trial.covered
        cost += trial.cost
    return chosen, float(covered.mean())
