"""Probabilities of pairs by match weights of columns, by what is refined beyond them, and by competition."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd

from vicinal.core.threads import in_threads
from vicinal.estimators.match_rows import CODED
from vicinal.estimators.match_tables import MatchedTables
from vicinal.estimators.pair_refinement import Refinement
from vicinal.linkage.columns import CodedColumn, Floats, Ids, Kind
from vicinal.linkage.competition import Competition
from vicinal.linkage.fellegi_sunter import MatchWeights, Patterns
from vicinal.linkage.levels import LEVELS, comparison_levels, cosine_levels

DIGITS = "words with digits"
"""What the words with digits of both rows have in common, wherever they stand; a column beside those of texts."""

VECTORS = "vectors"
"""How near the vectors of images, sounds and rows of numbers are; a column beside the others."""


MOST = 0.9
"""The highest probability that a model tells that is not sure of itself."""


@dataclass
class LinkageModel:
    """The model of matches of two tables.

    Attributes:
        links: see :class:`vicinal.estimators.RowMatcher`.
        n_candidates: of each row, from either side.
        kinds: of the columns that are compared, by name.
        weights: m and u of their comparison levels.
        rate: expected matches for each row of the smaller table.
        among: whether u is of candidates, not of random pairs.
        again: how often labelled matches give a row another partner, of the left table and of the right one.
        is_sure: whether probabilities above .9 are told.
        has_sign: whether anything is linked.
        has_digits: whether texts have words with digits, beside columns of nothing else.
        has_media: whether vectors of images, sounds or numbers are compared.
        follows: columns that say nothing where another one is equal, and that other one: the city of equal addresses.
        refinement: what was learned beyond the weights; None: nothing.
    """

    links: str
    n_candidates: int
    kinds: dict[str, Kind] = field(default_factory=dict)
    weights: MatchWeights = field(default_factory=lambda: MatchWeights([[]], [], np.ones(1)))
    rate: float = 0.0
    among: bool = False
    again: tuple[float, float] = (0.0, 0.0)
    is_sure: bool = True
    has_sign: bool = True
    has_digits: bool = True
    has_media: bool = False
    follows: dict[str, str] = field(default_factory=dict)
    refinement: Refinement | None = None

    # Pairs by columns.

    @property
    def level_names(self) -> dict[str, tuple[str, ...]]:
        """What the comparison levels of each column are called, in the order of the columns of levels."""
        names = {name: LEVELS[kind] for name, kind in self.kinds.items()}
        names |= {DIGITS: LEVELS["digits"]} if self.has_digits and "text" in self.kinds.values() else {}
        return names | ({VECTORS: LEVELS["vectors"]} if self.has_media else {})

    def levels(self, tables: MatchedTables, at: Ids) -> Ids:
        """The comparison level of pairs of things in each column, int8 ``[n, C]``; 0 also where a column follows."""
        return self._unfollowed(self.compared(tables, at))

    def compared(self, tables: MatchedTables, at: Ids) -> Ids:
        """Levels of pairs whatever follows from what."""
        levels = np.zeros((len(at), len(self.level_names)), dtype=np.int8)

        def of_column(column: CodedColumn) -> None:
            cosines = tables.term_cosines((column.name, "words"), at)[0] if column.kind == "text" else None
            levels[:, list(self.kinds).index(column.name)] = comparison_levels(column, at, cosines)

        in_threads(of_column, tables.coded(self.kinds), len(at))
        names = list(self.level_names)
        if DIGITS in names:
            cosines, filled = tables.term_cosines((CODED, "codes"), at)
            levels[:, names.index(DIGITS)] = np.where(filled, cosine_levels("digits", cosines), 0)
        if VECTORS in names:
            levels[:, names.index(VECTORS)] = cosine_levels("vectors", tables.vector_cosines(at))
        return levels

    def _unfollowed(self, levels: Ids) -> Ids:
        """Levels of pairs, without those of columns that follow from an equal one."""
        names, levels = list(self.kinds), levels.copy() if self.follows else levels
        for follower, name in self.follows.items():
            equal = levels[:, names.index(name)] == len(LEVELS[self.kinds[name]]) - 1
            levels[equal, names.index(follower)] = 0
        return levels

    def _candidate_levels(self, tables: MatchedTables) -> Ids:
        """Those of all candidates."""
        pairs = tables.pairs_both_ways(self.n_candidates)
        settings = self.n_candidates, self.kinds, self.has_digits
        make = partial(tables.cached, "levels", settings, lambda: self.compared(tables, pairs))
        return self._unfollowed(tables.once(("levels", self.n_candidates), make))

    def _rarities(self, tables: MatchedTables, at: Ids, levels: Ids) -> Iterator[Floats]:
        """What equal cells of pairs add, as their values are rare, ``[n]`` of each column."""
        for place, column in enumerate(tables.coded(self.kinds)):
            of_left = column.rarity[column.sides[0]]  # pairs stand in the order of their left rows, values do not
            yield np.where(levels[:, place] == len(LEVELS[column.kind]) - 1, of_left[at[:, 0]], 0.0)

    def match_weights(self) -> pd.DataFrame:
        """See :meth:`vicinal.estimators.RowMatcher.match_weights`."""
        rows = []
        for place, (name, names) in enumerate(self.level_names.items()):
            parts = zip(self.weights.shares, self.weights.m, strict=True)
            m = sum(share * of_class[place] for share, of_class in parts)
            u = self.weights.u[place]
            ratios = np.log2(np.maximum(m, 1e-12) / np.maximum(u, 1e-12))
            rows += [(name, *level) for level in zip(names, m, u, ratios, strict=True)][1:]
        return pd.DataFrame(rows, columns=["column", "level", "m", "u", "weight"])

    # Probabilities.

    def competition(self, tables: MatchedTables, pairs: Ids, share: float = 1.0) -> Competition:
        """Of pairs of things; see :class:`Competition`."""
        return Competition.of(
            pairs, tables.counts, self.links, is_single=tables.is_single, share=share, again=self.again
        )

    def expected(self, tables: MatchedTables) -> float:
        """Number of matches that are expected."""
        return self.rate * min(tables.counts)

    def alone(self, tables: MatchedTables) -> Ids:
        """Which features are of a pair by itself."""
        alone = ["above the best other" not in name for name in tables.features.names]
        return np.array(alone + [True] * len(self.level_names))

    def features(self, tables: MatchedTables, at: Ids) -> Floats:
        """Likenesses and levels of pairs, ``[n, F]``; in one table neither row is the left one."""
        features = tables.pair_features(at)
        if tables.is_single:  # how far a pair is ahead of the others of its left row, and of its right row
            names = tables.features.names
            for left, name in enumerate(names):
                if name.endswith("above the best other of the left"):
                    features[:, [left, left + 1]] = np.sort(features[:, [left, left + 1]], axis=1)
        return np.concatenate([features, self.levels(tables, at).astype(np.float64)], axis=1)

    def ratios(self, tables: MatchedTables, at: Ids, levels: Ids | None = None) -> Floats:
        """Log ratios of pairs by the weights of columns, ``[n]``; each pattern of levels is weighed once."""
        levels = self.levels(tables, at) if levels is None else levels
        patterns = Patterns.of(levels, [len(names) for names in self.level_names.values()])
        ratios = self.weights.ratios(patterns.levels)[patterns.place]
        return np.asarray(sum(self._rarities(tables, at, levels), ratios))

    def start(self, tables: MatchedTables) -> float:
        """Log of the prior odds."""
        matches = max(self.expected(tables), 1e-3)
        if self.among:
            every = float(len(tables.pairs_both_ways(self.n_candidates)))
        else:
            every = self.competition(tables, np.zeros((0, 2), dtype=np.int64)).possible
        return float(np.log(matches / max(every - matches, 1.0)))

    def log_odds(self, tables: MatchedTables, at: Ids, levels: Ids | None = None, start: float | None = None) -> Floats:
        """Of pairs by themselves, without the competition of others, ``[n]``; ``start``: of larger tables."""
        if self.refinement is None:
            return self.ratios(tables, at, levels) + (self.start(tables) if start is None else start)
        return self.refinement.log_odds(self.features(tables, at))

    def candidates(self, tables: MatchedTables) -> tuple[Ids, Floats, Floats]:
        """All candidates as things ``[n, 2]``, their log odds by themselves, and their probabilities."""
        pairs, log_odds, chances = self._scored(tables)
        return pairs, log_odds, self.as_told(chances)

    def _scored(self, tables: MatchedTables) -> tuple[Ids, Floats, Floats]:
        """:meth:`candidates`, with probabilities as they are."""

        def make() -> tuple[Ids, Floats, Floats]:
            pairs = tables.pairs_both_ways(self.n_candidates)
            levels = None if self.refinement is not None else self._candidate_levels(tables)
            log_odds = tables.once(("scored", "log odds"), lambda: self.log_odds(tables, pairs, levels))
            return pairs, log_odds, self.competition(tables, pairs).chances(log_odds, self.expected(tables))

        return tables.once(("scored", "linkage"), make)

    def as_told(self, chances: Floats) -> Floats:
        """Probabilities ``[n]`` as far as the model is sure of itself."""
        return chances if self.is_sure else np.where(chances > 0.5, 0.5 + (chances - 0.5) * 2 * (MOST - 0.5), chances)

    def chances(self, tables: MatchedTables, at: Ids) -> Floats:
        """Probabilities that things match, ``[n]``; of no candidates beside those of their rows."""
        pairs, log_odds, known = self.candidates(tables)
        places = places_of(tables, pairs, at)
        chances = np.where(places >= 0, known[places] if len(known) else 0.0, 0.0)
        other = places < 0
        if other.any():
            theirs = self.log_odds(tables, at[other])
            competition = self.competition(tables, pairs)
            outside = competition.outside(at[other], theirs, log_odds, self.expected(tables))
            chances[other] = self.as_told(outside)
        return chances

    def weighed(self, tables: MatchedTables, at: Ids, chances: Floats) -> tuple[float, Floats, Floats]:
        """What adds up to the log2 odds of pairs: those of the prior, each column ``[n, C]``, and the rest ``[n]``.

        The rest is what is learned from probable pairs and the competition of pairs.
        """
        levels = self.levels(tables, at)
        bits = self.weights.by_column(levels)
        for place, rarity in enumerate(self._rarities(tables, at, levels)):
            bits[:, place] += rarity
        bits /= np.log(2)
        start = self.start(tables) / np.log(2)
        chances = np.clip(chances, 1e-12, 1 - 1e-12)
        return start, bits, np.log2(chances / (1 - chances)) - start - bits.sum(axis=1)


def places_of(tables: MatchedTables, pairs: Ids, at: Ids) -> Ids:
    """Where pairs ``[n, 2]`` stand among sorted ones, ``[n]``; -1 where they do not."""
    width = len(tables.right.first)
    keys, others = (each[:, 0] * width + each[:, 1] for each in (pairs, at))
    places = np.minimum(np.searchsorted(keys, others), max(len(keys) - 1, 0))
    return np.where(keys[places] == others, places, -1) if len(keys) else np.full(len(at), -1)
