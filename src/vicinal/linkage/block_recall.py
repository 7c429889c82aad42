"""What share of the matches are candidates, estimated from those that are: no label is needed, and no other pair."""

from collections.abc import Sequence

import numpy as np

from vicinal.linkage.block_keys import Cells, Part, PartsRule, Rule
from vicinal.linkage.columns import Floats, Ids

_FEWEST = 20.0
"""Matches from which on their share is estimated."""

_MOST, _DRAWN = 50_000, 1 << 15
"""Matches that are looked at, and matches that are drawn from the model, at the most."""

_ROUNDS, _LAST = 100, 20
"""Rounds of the EM, and those of the end whose estimates are averaged."""

_COLUMNS = 4
"""Columns from which on there are two classes of matches: fewer do not tell them apart."""

_CARE = (0.5, 1.5)
"""How often columns agree in the two classes at the start, of how often they do in all."""


def estimated_recall(cells: Cells, rules: Sequence[Rule], pairs: Ids, bits: Ids, probability: Floats) -> float:
    r"""Estimated share of the matches that are among the candidates.

    Matches are of two classes, and within one their columns agree independently of one another:
    $P(x) = \sum_c \pi_c \prod_j \theta_{cj}(x_j)$, where $x_j$ says which parts of column j agree. Candidates are the
    matches that at least one rule finds. The model is fitted to them as to a truncated sample: in each round of the EM
    $N (1 - r) / r$ matches that no rule finds are added as the model draws them, where r is the share of its draws
    that a rule finds. That r is the estimate; of two rules of one column each it is that of Lincoln and Petersen.

    Args:
        cells: of both tables.
        rules: by which candidates were found.
        pairs: candidates ``[n, 2]``.
        bits: which rules found each, uint32 ``[n]``.
        probability: that each is a match, ``[n]``.

    Returns:
        A share from 0 to 1; NaN of fewer than two rules or 20 expected matches, which say nothing.
    """
    if len(rules) < 2 or float(probability.sum()) < _FEWEST:
        return float("nan")
    random = np.random.default_rng(0)
    some = np.flatnonzero(probability > 0)
    some = some[random.permutation(len(some))[:_MOST]]
    columns = _columns(rules)
    states = np.stack([_states(cells, each, rules, pairs[some], bits[some]) for each in columns], axis=1)
    hits = np.stack([(bits[some] >> np.uint32(number)) & 1 for number in range(len(rules))]) == 1
    agree = _agreeing(columns, rules, states)
    weights = probability[some]
    chances = ((hits & agree) @ weights + 1) / (agree @ weights + 1)  # less than 1 where blocks are too large
    return _fitted(columns, rules, states, weights, chances, random)


_Column = tuple[Part, ...] | int
"""The parts of a column that rules are about, or the number of a rule of tokens."""


def _columns(rules: Sequence[Rule]) -> list[_Column]:
    """What agrees or does not, each independently of the others."""
    parts: dict[str, dict[Part, None]] = {}
    for rule in rules:
        for part in rule.parts if isinstance(rule, PartsRule) else ():
            parts.setdefault(part.column, {})[part] = None
    tokens = [number for number, rule in enumerate(rules) if not isinstance(rule, PartsRule)]
    return [*map(tuple, parts.values()), *tokens]


def _states(cells: Cells, column: _Column, rules: Sequence[Rule], pairs: Ids, bits: Ids) -> Ids:
    """Which parts of a column agree in each pair: bit p is that of part p."""
    if isinstance(column, int):
        return ((bits >> np.uint32(column)) & 1).astype(np.int64)
    states = np.zeros(len(pairs), dtype=np.int64)
    for number, part in enumerate(column):
        left, right = (cells.hashes(part, side, pairs[:, side]) for side in (0, 1))
        states |= ((left == right) & (left != 0)).astype(np.int64) << number
    return states


def _agreeing(columns: Sequence[_Column], rules: Sequence[Rule], states: Ids) -> Ids:
    """Whether all that each rule asks for agrees, ``[rules, n]``."""
    place = {
        part: (j, bit) for j, each in enumerate(columns) if isinstance(each, tuple) for bit, part in enumerate(each)
    }
    agree = np.ones((len(rules), len(states)), dtype=bool)
    for number, rule in enumerate(rules):
        if isinstance(rule, PartsRule):
            for j, bit in (place[part] for part in rule.parts):
                agree[number] &= (states[:, j] >> bit) & 1 == 1
        else:
            agree[number] = states[:, columns.index(number)] == 1
    return agree


def _fitted(
    columns: Sequence[_Column],
    rules: Sequence[Rule],
    states: Ids,
    weights: Floats,
    chances: Floats,
    random: np.random.Generator,
) -> float:
    """The EM of :func:`estimated_recall`."""
    patterns, place = np.unique(states, axis=0, return_inverse=True)
    counts = np.asarray(np.bincount(place.ravel(), weights=weights), dtype=np.float64)
    sizes = [2 if isinstance(each, int) else 1 << len(each) for each in columns]
    care = _CARE if len(columns) >= _COLUMNS else (1.0,)
    shares = np.full(len(care), 1 / len(care))
    tables = [_start(patterns[:, j], counts, size, care) for j, size in enumerate(sizes)]
    recalls = []
    for _ in range(_ROUNDS):
        logs = np.log(shares) + sum(np.log(table[:, patterns[:, j]]).T for j, table in enumerate(tables))
        belief = np.exp(logs - logs.max(axis=1, keepdims=True))
        belief *= (counts / belief.sum(axis=1))[:, None]
        of = random.choice(len(shares), _DRAWN, p=shares)
        up_to = (np.cumsum(table, axis=1)[of, :-1] for table in tables)
        drawn = np.stack([(random.random(_DRAWN)[:, None] > each).sum(axis=1) for each in up_to], axis=1)
        hit = _agreeing(columns, rules, drawn) & (random.random((len(rules), _DRAWN)) < chances[:, None])
        missed = ~hit.any(axis=0)
        recall = max(1 / _DRAWN, 1 - float(missed.mean()))
        recalls.append(recall)
        each = counts.sum() * (1 - recall) / recall / max(1, int(missed.sum()))
        lost, of = drawn[missed], of[missed]
        shares = belief.sum(axis=0) + each * np.bincount(of, minlength=len(shares))
        for j, size in enumerate(sizes):
            known = np.stack([np.bincount(patterns[:, j], weights=part, minlength=size) for part in belief.T])
            added = np.bincount(of * size + lost[:, j], minlength=len(shares) * size).reshape(len(shares), size)
            table = known + each * added + 1e-3
            tables[j] = table / table.sum(axis=1, keepdims=True)
        shares = (shares + 1e-3) / (shares + 1e-3).sum()
    return float(np.mean(recalls[-_LAST:]))


def _start(states: Ids, counts: Floats, size: int, care: Sequence[float]) -> Floats:
    """Probabilities of the states of a column in each class: where all agrees, more or less often than in all."""
    overall = (np.bincount(states, weights=counts, minlength=size) + 1) / (counts.sum() + size)
    table = np.tile(overall, (len(care), 1))
    top = np.minimum(np.array(care) * overall[-1], (1 + overall[-1]) / 2)
    table[:, :-1] *= ((1 - top) / (1 - overall[-1]))[:, None]
    table[:, -1] = top
    return table
