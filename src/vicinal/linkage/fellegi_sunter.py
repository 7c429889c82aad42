r"""Match weights without labels: the model of Fellegi and Sunter (1969), by expectation maximization.

A pair has a comparison level in each column. Among matches level l of column c has probability $m_{cl}$, among random
pairs $u_{cl}$; columns count as independent in each class, so that a pair's log ratio is
$\sum_c \log (m_{cl} / u_{cl})$, and its log odds are that and the prior's. u is measured on random pairs, m is what
makes the probabilities that follow from it, with the competition of pairs for rows, reproduce m (Winkler, 1988). Where
values are equal, log u / f is added: f is how frequent the value is (term frequency).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.special import logsumexp
from sklearn.isotonic import isotonic_regression

from vicinal.linkage.columns import Floats, Ids
from vicinal.linkage.competition import Competition, Free, pair_chances
from vicinal.linkage.levels import EMPTY

ROUNDS = 60
_STEADY = 1e-3
"""Relative change of the number of matches from which on nothing changes."""

_FEWEST = 10
"""Rounds at least."""

_SHARE = 0.3
"""Of the smaller table that matches at the start."""

_CLEAN = 0.02
"""Of the random pairs of a level so many are no matches, at least."""

_SECOND, _APART = 0.1, 0.3
"""Share of the second class of matches at the start, and the part in the leading direction of differences from which on
a column differs in it."""


@dataclass(frozen=True)
class Patterns:
    """Pairs by their comparison levels; those of equal levels are one pattern, which is computed with once.

    Attributes:
        levels: int8 ``[P, C]``.
        place: the pattern of each pair, ``[n]``.
        sizes: number of levels of each column.
    """

    levels: Ids
    place: Ids
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, levels: Ids, sizes: Sequence[int]) -> "Patterns":
        """The patterns of pairs ``[n, C]``.

        >>> patterns = Patterns.of(np.array([[1, 2], [0, 1], [1, 2]]), [3, 3])
        >>> patterns.levels.tolist(), patterns.counts().tolist()
        ([[0, 1], [1, 2]], [1.0, 2.0])
        """
        number = np.zeros(len(levels), dtype=np.int64)
        for column, size in enumerate(sizes):
            number = number * size + levels[:, column]
            if size and number.max(initial=0) > 1 << 55:  # numbers of patterns so far, before they overflow
                number = np.unique(number, return_inverse=True)[1].ravel()
        place, known = pd.factorize(number)  # faster than sorting, but in the order in which they come
        rising, pair = np.argsort(known), np.empty(len(known), dtype=np.int64)
        pair[place] = np.arange(len(place))
        return cls(levels[pair[rising]], np.argsort(rising)[place], tuple(sizes))

    def counts(self, weights: Floats | None = None) -> Floats:
        """Sum of the weights (None: 1 each) of the pairs of each pattern."""
        return np.bincount(self.place, weights=weights, minlength=len(self.levels)).astype(np.float64)

    def shares(self, counts: Floats, prior: Sequence[Floats]) -> list[Floats]:
        """The share of each level among filled cells, with one pair more that is as ``prior`` says."""
        shares = []
        for column, start in enumerate(prior):
            count = np.bincount(self.levels[:, column], weights=counts, minlength=len(start)) + start
            count[EMPTY] = 0
            shares.append(count / count.sum())
        return shares


@dataclass(frozen=True)
class MatchWeights:
    """The probabilities of comparison levels.

    Attributes:
        m: among the matches of each class, by column, ``[levels]``; that of an empty cell is 0.
        u: among random pairs.
        shares: of the classes of matches, ``[K]``.
    """

    m: list[list[Floats]]
    u: list[Floats]
    shares: Floats

    @cached_property
    def weights(self) -> list[list[Floats]]:
        """Logs of m / u by class, column and level, never falling from a level to the next; 0 of empty cells."""
        return [[_weights(m, u) for m, u in zip(of_class, self.u, strict=True)] for of_class in self.m]

    def by_class(self, levels: Ids) -> Floats:
        """Log ratios of patterns ``[P, C]`` in each class of matches, with its share: ``[K, P]``."""
        rows = []
        for share, weights in zip(self.shares, self.weights, strict=True):
            start = np.full(len(levels), np.log(share))
            rows.append(sum((weight[levels[:, column]] for column, weight in enumerate(weights)), start))
        return np.stack(rows)

    def ratios(self, levels: Ids) -> Floats:
        """Log ratios ``[P]`` of patterns.

        >>> m, u = np.array([0, 0.2, 0.8]), np.array([0, 0.9, 0.1])
        >>> MatchWeights([[m]], [u], np.ones(1)).ratios(np.array([[0], [1], [2]])).round(2).tolist()
        [0.0, -1.5, 2.08]
        """
        return np.asarray(logsumexp(self.by_class(levels), axis=0))

    def by_column(self, levels: Ids) -> Floats:
        """What each column adds to the log ratio of patterns, ``[P, C]``: the mean of the classes by their chances.

        With several classes the sum differs from the ratio by what is left of their shares.
        """
        by_class = self.by_class(levels)
        chances = np.exp(by_class - logsumexp(by_class, axis=0))
        parts = np.zeros(levels.shape)
        for chance, weights in zip(chances, self.weights, strict=True):
            for column, weight in enumerate(weights):
                parts[:, column] += chance * weight[levels[:, column]]
        return parts


def _weights(m: Floats, u: Floats) -> Floats:
    """Logs of the likeliest ratios that never fall: adjacent levels that would are one, of the sums of m and u.

    So a level that nobody has seen says no more than its neighbors do.
    """
    seen = np.maximum(u[1:], 1e-12)
    ratios = isotonic_regression(np.maximum(m[1:], 1e-12) / seen, sample_weight=seen)
    return np.concatenate([[0.0], np.log(ratios)])


@dataclass(frozen=True)
class Estimate:
    """What expectation maximization came to.

    Attributes:
        weights: m, u and the classes.
        log_odds: of the pairs, each by itself, ``[n]``.
        chances: that they match, ``[n]``.
        matches: expected number of matches.
    """

    weights: MatchWeights
    log_odds: Floats
    chances: Floats
    matches: float


def estimate(
    patterns: Patterns,
    rarity: Floats,
    u: Sequence[Floats],
    competition: Competition,
    *,
    among: bool = False,
    second: bool = False,
    start: Floats | tuple[MatchWeights, float] | None = None,
) -> Estimate:
    """Find m by expectation maximization from a start at which higher levels are likelier.

    Args:
        patterns: of the candidates.
        rarity: what is added to the log ratio of each, as its equal values are rare, ``[n]``.
        u: among random pairs, by column.
        competition: the prior.
        among: measure u among the candidates, beside m, in place of random pairs.
        second: try a second class of matches, whose cells differ together (persons who moved).
        start: probabilities ``[n]`` to start from, or what a part of the pairs came to, and the number of matches to go
            on with; None: a third of the smaller table matches, at higher levels rather.

    >>> pairs = np.stack(np.divmod(np.arange(400), 20), axis=1)  # all of two tables of twenty rows
    >>> levels = np.where(pairs[:, :1] == pairs[:, 1:], 2, 1) * np.ones((1, 3), dtype=int)  # three columns tell them
    >>> competition = Competition.of(pairs, (20, 20), "one-to-one", is_single=False)
    >>> fitted = estimate(Patterns.of(levels, [3] * 3), np.zeros(400), [np.array([0, 0.95, 0.05])] * 3, competition)
    >>> round(fitted.matches), bool(((fitted.chances > 0.5) == (levels[:, 0] == 2)).all())
    (20, True)
    """
    u = patterns.shares(patterns.counts(), u) if among else list(u)
    if isinstance(start, tuple):
        return _maximized(patterns, rarity, start[0], u, competition, start[1], among=among, least=1)
    m, matches = [_ramp(size) for size in patterns.sizes], _SHARE * competition.share * min(competition.rows)
    if start is not None:
        m, matches = patterns.shares(patterns.counts(start), m), float(start.sum())
        u = _without_matches(u, [m], np.ones(1), matches / max(competition.possible, 1.0)) if not among else u
    fitted = _maximized(patterns, rarity, MatchWeights([m], u, np.ones(1)), u, competition, matches, among=among)
    apart = _differing_together(patterns, fitted) if second and patterns.sizes else np.zeros(0, dtype=int)
    if len(apart) < 2:
        return fitted
    m = [each.copy() for each in fitted.weights.m[0]]
    for column in apart:
        m[column] = m[column] * 0.1
        m[column][1] += 0.9
    both = MatchWeights([fitted.weights.m[0], m], fitted.weights.u, np.array([1 - _SECOND, _SECOND]))
    return _maximized(patterns, rarity, both, u, competition, fitted.matches, among=among)


def _maximized(
    patterns: Patterns,
    rarity: Floats,
    weights: MatchWeights,
    total: Sequence[Floats],
    competition: Competition,
    matches: float,
    *,
    among: bool,
    least: int = _FEWEST,
) -> Estimate:
    """Expectation and maximization in turn, until the number of matches is steady; ``total``: u with the matches.

    It is no sooner steady than after ``least`` rounds.
    """
    every, prior = patterns.counts(), [_ramp(size) for size in patterns.sizes]
    some = float(min(matches, 1e-3))
    free: Free | None = None
    for turn in range(ROUNDS):
        by_class = weights.by_class(patterns.levels)
        ratios = np.asarray(logsumexp(by_class, axis=0))
        among_all = max(len(rarity) - matches, 1.0) if among else max(competition.possible - matches, 1.0)
        log_odds = ratios[patterns.place] + rarity + np.log(matches / among_all)
        odds, free = competition.messages(log_odds, matches, free)
        chances = pair_chances(odds, free)
        before, matches = matches, max(float(chances.sum()), some)
        counts = patterns.counts(chances)
        parts = np.exp(by_class - ratios) * counts
        shares = np.maximum(parts.sum(axis=1), 1e-9) / max(float(parts.sum()), 1e-9)
        m = [patterns.shares(part, prior) for part in parts]
        if among:
            u = patterns.shares(np.maximum(every - counts, 0), total)
        else:
            u = _without_matches(total, m, shares, matches / max(competition.possible, 1.0))
        weights = MatchWeights(m, u, shares / shares.sum())
        if turn >= least and abs(matches - before) < _STEADY * before:
            break
    return Estimate(weights, log_odds, chances, matches)


def _without_matches(total: Sequence[Floats], m: list[list[Floats]], shares: Floats, part: float) -> list[Floats]:
    """The u of pairs that do not match, of the shares of levels among all pairs, of which a ``part`` matches."""
    part = min(part, 0.5)
    cleaned = []
    for column, share in enumerate(total):
        matched = sum(weight * of_class[column] for weight, of_class in zip(shares, m, strict=True))
        rest = np.maximum(share - part * matched, _CLEAN * share)
        cleaned.append(rest / rest.sum())
    return cleaned


def _ramp(size: int) -> Floats:
    """Squares of the levels, the highest three times: m where nothing is known."""
    levels = np.arange(size, dtype=np.float64) ** 2
    levels[-1] *= 3
    return np.asarray(levels / levels.sum())


def _differing_together(patterns: Patterns, fitted: Estimate) -> Ids:
    """Columns that agree or differ together among matches, by the leading direction of their covariance."""
    weights = patterns.counts(fitted.chances)
    differs = (patterns.levels == 1).astype(np.float64)
    share = weights / max(weights.sum(), 1e-9)
    centered = differs - share @ differs
    covariance = (centered * share[:, None]).T @ centered
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-6))
    values, vectors = np.linalg.eigh(covariance / scale / scale[:, None])
    leading = vectors[:, -1] * np.sign(vectors[:, -1].sum())
    return np.flatnonzero(leading > _APART) if values[-1] > 1.2 else np.zeros(0, dtype=int)
