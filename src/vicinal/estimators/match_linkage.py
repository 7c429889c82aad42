"""Probabilities of matches without labels, or with few: match weights of columns, competition of pairs, refinement."""

import zlib
from functools import partial
from typing import Any

import numpy as np

from vicinal.core import counted, listed
from vicinal.estimators.match_clusters import drawn_wedges
from vicinal.estimators.match_model import MOST, LinkageModel, places_of
from vicinal.estimators.match_tables import Log, MatchedTables
from vicinal.estimators.pair_refinement import LEARNED, Refinement
from vicinal.index.lexical import codes
from vicinal.linkage.columns import CodedColumn, Floats, Ids, Kind
from vicinal.linkage.competition import Competition
from vicinal.linkage.fellegi_sunter import Estimate, MatchWeights, Patterns, estimate

RANDOM_PAIRS = 200_000
"""Random pairs that u is measured on, or all of fewer."""

FEWEST = 20
"""Expected matches below which nothing is learned beyond the weights of columns."""

_NAMED = 0.6
"""Share of the expected matches that pairs with a probability of one half or more make, below which there is no sign of
matches, unless learning again from these pairs finds one."""

_AGAIN, _STEADY = 4, 0.1
"""Times that is learned again from named pairs where weights expect more matches, at most, and the change of their
number below which it is steady."""

_CLEAR = 0.005
"""Expected wrong decisions, as a share of the expected matches, below which nothing is learned beyond the weights: on
seven tuning sets of which that is so F1 is as good or better without, by up to .0008, and it takes a fraction of the
time."""

_SURE = 0.9
"""The same share, below which the model is not sure of itself."""

_TOO_MANY = 1.02
"""Expected matches over the most there can be, from which on u of random pairs is not believed."""

_FOLLOWS = 0.5
"""Share of the pairs with one column equal, of which the rest speaks against a match, that have another one equal, too,
from which on that follows from the first."""

_DRAWN = 2000
"""Pairs with an equal column that tell which others follow from it."""

_CODED = 0.02
"""Share of the texts that have words with digits, below which these are compared in the columns of such words alone."""

_OPEN, _WEDGES = 0.5, 2000
"""Open wedges a link, from which on links of one table are no copies, and how many are looked at. With copies there are
0 to .1 on ten sets, among models of cars, irises and cars with texts, which are merely alike, 1.4 to 3."""

_ONE = 0.95
"""Share of the links that would be none without a column, from which on it decides alone; where fewer than
:data:`FEWEST` matches are expected, or links of one table are more different than equal, that is no sign of matches: of
800 addresses without a copy 83 pairs were linked else."""

_WEIGHED = 300_000
"""Candidates of large tables that match weights are estimated from, at most, before all of them correct it."""

_JUDGED = 50_000
"""Links by which it is judged what a column decides, at most."""

_DISTINCT, _SEVERAL = 0.8, 5
"""Different codes for each filled cell, from which on rows have codes of their own, and links that tell whether these
agree: with more of them different than not, told probabilities were too high by .06 to .99 on three of three sets."""

_OFTEN = 0.05
"""Further partners of a row that has one by labels, from which on they count: of abt-buy, which has .012, odds are too
sure of themselves for so small a prior, and F1 falls by .004."""

_CHECKED, FEW = 20, 200
"""Labels from which on probabilities count as checked, and below which no scorer is learned from them: they are learned
from as the estimates are, and beside them."""


class Linkage(LinkageModel):
    """The model of matches of two tables, and how it is fitted to all candidates."""

    # Fitting.

    def fit(self, tables: MatchedTables, labels: tuple[Ids, Floats], seed: int, log: Log) -> list[str]:
        """Estimate the model; gives what it knows about itself in sentences.

        Args:
            tables: both.
            labels: things ``[m, 2]`` that were labelled, and 0 or 1 of each.
            seed: of random pairs and trees.
            log: gets a line.
        """
        log("estimating match weights")
        weighed = "weighed", self.links, self.n_candidates, seed  # which no label changes
        state, notes, chances = tables.once(weighed, lambda: self._weighed(tables, seed))
        vars(self).update(state)
        self.again = self._further_partners(tables, *labels)
        tables.forget("scored")
        pairs = tables.pairs_both_ways(self.n_candidates)
        is_enough = self.expected(tables) >= FEWEST and not tables.is_large
        if is_enough and not self._are_clear(tables, pairs, chances, labels):
            log("learning from probable pairs")
            self._refine(tables, pairs, chances, labels, seed)
        has_sign = self._doubt(tables, labels) and (len(labels[1]) >= FEW or self._are_named(tables))
        if not has_sign and self.refinement is not None:
            self._look_again(tables, pairs, labels, seed)
        same = self._are_equal(self._candidate_levels(tables))
        learned = self.refinement is not None and len(labels[1]) > 0  # so that labels are why there is no sign
        if not self.has_sign and not tables.is_single and same.any() and not learned:  # too few for an even start
            before = dict(vars(self))
            self.refinement, self.among = None, False
            self._take(estimate(*self._inputs(tables, seed), start=same.astype(np.float64)), tables)
            has_sign = self._doubt(tables, labels)
            named = self.candidates(tables)[2] >= 0.5
            if not has_sign or same[named].mean() < _SURE:  # they are no more than what they started from
                vars(self).update(before)
                tables.forget("scored")
        return notes + self._sentences(tables, labels)

    def _weighed(self, tables: MatchedTables, seed: int) -> tuple[dict[str, Any], list[str], Floats]:
        """The model with its match weights, sentences, and the probabilities of the candidates."""
        self.kinds, notes = _kinds(tables.coded())
        self.has_media = bool(tables.columns.media)
        texts = [text for column in tables.coded(self.kinds) if column.kind == "text" for text in column.values]
        self.has_digits = sum(map(bool, map(codes, texts))) >= _CODED * len(texts)  # else years would count twice
        inputs = self._inputs(tables, seed, _WEIGHED)
        fitted = estimate(*inputs, second=True)
        self.follows = self._following(tables, fitted.weights, seed)
        notes += [f"{name}: counts only where {other} differs" for name, other in self.follows.items()]
        if self.follows:
            fitted = estimate(*self._inputs(tables, seed, _WEIGHED), second=True)
        fitted = self._of_all(fitted, tables, seed)
        most = self.competition(tables, tables.pairs_both_ways(self.n_candidates)).most
        if not tables.is_single and fitted.matches > _TOO_MANY * most:
            notes.append(
                f"beside random pairs {fitted.matches:.0f} pairs would match, more than there can be: they are weighed "
                "beside the other candidates"
            )
            self.among = True
            fitted = self._of_all(estimate(*self._inputs(tables, seed, _WEIGHED), among=True), tables, seed)
        self._take(fitted, tables)
        return dict(vars(self)), notes, np.zeros(0) if tables.is_large else fitted.chances

    def _further_partners(self, tables: MatchedTables, pairs: Ids, labels: Floats) -> tuple[float, float]:
        """For each row that labels match: further rows that they match it with, where that is often."""
        matches, sides = pairs[labels >= 0.5], self.competition(tables, pairs).sides
        more = [len(matches) / max(1, len(np.unique(rows))) - 1 for rows in matches.T]
        left, right = (min(more[side], 1.0) if side in sides and more[side] >= _OFTEN else 0.0 for side in (0, 1))
        return left, right

    def _of_all(self, fitted: Estimate, tables: MatchedTables, seed: int) -> Estimate:
        """What an estimate from some candidates comes to with all of them."""
        count, every = len(fitted.chances), len(tables.pairs_both_ways(self.n_candidates))
        if count == every:
            return fitted
        start = fitted.weights, fitted.matches * every / count
        return estimate(*self._inputs(tables, seed), among=self.among, start=start)

    def _inputs(
        self, tables: MatchedTables, seed: int, most: int | None = None
    ) -> tuple[Patterns, Floats, list[Floats], Competition]:
        """What match weights are estimated from: patterns and rarity of candidates, u, and their competition.

        Of large tables with more candidates than ``most``: those of some left rows.
        """
        pairs, levels, share = tables.pairs_both_ways(self.n_candidates), self._candidate_levels(tables), 1.0
        if most is not None and tables.is_large and len(pairs) > most:
            some = np.flatnonzero(pairs[:, 0] % -(-len(pairs) // most) == 0)
            share, levels, pairs = _share(pairs, some), levels[some], pairs[some]
        patterns = Patterns.of(levels, [len(names) for names in self.level_names.values()])
        rarity = sum(self._rarities(tables, pairs, levels), np.zeros(len(pairs)))
        return patterns, rarity, self._random_shares(tables, seed), self.competition(tables, pairs, share)

    def _take(self, fitted: Estimate, tables: MatchedTables) -> None:
        self.weights, self.rate = fitted.weights, fitted.matches / min(tables.counts)
        tables.forget("scored")

    def _following(self, tables: MatchedTables, weights: MatchWeights, seed: int) -> dict[str, str]:
        """Columns that are equal wherever another one is, also in pairs that do not match.

        Of a match both are equal as all is. Rows of one of two tables do not match; of a single table only those
        pairs count whose other columns speak against a match.
        """
        random, coded, follows = np.random.default_rng(seed), tables.coded(self.kinds), dict[str, str]()
        by_chance = [u[-1] for u in weights.u]
        candidates = tables.pairs_both_ways(self.n_candidates)
        for one, column in enumerate(coded):
            if column.kind == "text":  # rows of one title are one thing, or nearly
                continue
            if tables.is_single and not tables.is_large:
                left, right = column.sides[0][candidates].T
                pairs = [candidates[(left == right) & (left >= 0)]]
            else:
                sides = column.sides[: 2 - tables.is_single]
                pairs = [_equal_pairs(side, _DRAWN, random) for side in sides]
            parts = weights.by_column(self.compared(tables, pairs[0])) if tables.is_single else None
            for other, follower in enumerate(coded):
                if one == other or by_chance[one] >= by_chance[other] or {follower.name, column.name} & {*follows}:
                    continue
                equal = [np.zeros(0, dtype=bool)]
                for each, side in zip(pairs, follower.sides, strict=False):
                    left, right = side[each].T
                    some = (left >= 0) & (right >= 0)
                    if parts is not None:
                        some &= parts.sum(axis=1) - parts[:, one] - parts[:, other] < 0
                    equal.append((left == right)[some])
                share = np.concatenate(equal).mean() if sum(map(len, equal)) >= FEWEST else 0.0
                if share > _FOLLOWS and share > 10 * by_chance[other]:
                    follows[follower.name] = column.name
        return follows

    def _are_equal(self, levels: Ids) -> Ids:
        """Which pairs are equal in all cells that both have, ``[n]``."""
        tops = np.array([len(names) - 1 for names in self.level_names.values()])
        return np.asarray(((levels == tops) | (levels == 0)).all(axis=1) & (levels == tops).any(axis=1))

    def _are_clear(self, tables: MatchedTables, pairs: Ids, chances: Floats, labels: tuple[Ids, Floats]) -> bool:
        """Whether the weights leave next to nothing open, and no label is against them."""
        places = places_of(tables, pairs, labels[0])
        known = np.where(places >= 0, chances[places] if len(chances) else 0.0, 0.0)
        wrong = float(np.minimum(chances, 1 - chances).sum())
        return wrong < _CLEAR * float(chances.sum()) and bool(((known >= 0.5) == (labels[1] >= 0.5)).all())

    def _refine(
        self, tables: MatchedTables, pairs: Ids, chances: Floats, labels: tuple[Ids, Floats], seed: int
    ) -> None:
        """Learn what the weights leave out; of many candidates, from those of some left rows and of labelled pairs."""
        places = places_of(tables, pairs, labels[0])
        known, step = places >= 0, -(-len(pairs) // LEARNED)
        some = np.flatnonzero(_marks(tables, 0)[pairs[:, 0]] % step == 0)
        some = np.union1d(some, places[known])
        competition = self.competition(tables, pairs[some], _share(pairs, some))
        is_whole = len(some) == len(pairs)
        make = partial(self.features, tables, pairs[some])
        features = tables.once(("features", self.n_candidates), make) if is_whole else make()
        labelled = np.searchsorted(some, places[known]), labels[1][known]
        half = (_marks(tables, 0)[pairs[some, 0]] + _marks(tables, 1)[pairs[some, 1]]) % 2
        refined = Refinement.learn(features, self.alone(tables), chances[some], competition, labelled, half, seed)
        self.refinement = refined
        tables.forget("scored")
        if is_whole:
            tables.once(("scored", "log odds"), lambda: refined.log_odds(features))

    def _look_again(self, tables: MatchedTables, pairs: Ids, labels: tuple[Ids, Floats], seed: int) -> None:
        """Where weights expect more matches than are named: learn again, from the named pairs, of so many matches.

        They are fewer each time, and none in the end, or pairs that the match weights speak against, where nothing
        matches: all stays as it was then.
        """
        before, last = dict(vars(self)), np.inf
        for _ in range(_AGAIN):
            named = (self._scored(tables)[2] >= 0.5).astype(np.float64)
            self.rate = float(named.sum()) / min(tables.counts)
            if self.expected(tables) < FEWEST / 2 or last - named.sum() < _STEADY * last:
                break
            last = named.sum()
            self._refine(tables, pairs, named, labels, seed)
        if self.expected(tables) >= FEWEST / 2 and self._doubt(tables, labels):
            self.is_sure &= len(labels[1]) >= _CHECKED
            at = pairs[self._scored(tables)[2] >= 0.5]
            if len(at) and np.median(self.ratios(tables, at)) + self.start(tables) > 0:
                return
        vars(self).update(before)
        tables.forget("scored")

    def _doubt(self, tables: MatchedTables, labels: tuple[Ids, Floats]) -> bool:
        """Whether the probabilities name the matches that they expect: whether anything is linked."""
        checked = len(labels[1]) >= _CHECKED
        self.is_sure = checked or (self._are_named(tables, _SURE) and not self.among)
        self.has_sign = checked or self._are_named(tables)
        if not checked and max(self._alone_deciding(tables).values(), default=0) > _ONE:
            self.has_sign &= self._scored(tables)[2].sum() >= FEWEST and self._are_alike(tables)
        self.has_sign &= checked or self._closes(tables)
        return self.has_sign

    def _are_named(self, tables: MatchedTables, share: float = _NAMED) -> bool:
        """Whether candidates that match rather than not make this share of the matches that are expected."""
        chances = self._scored(tables)[2]
        return bool(chances.sum() >= 1 and chances[chances >= 0.5].sum() >= share * chances.sum())

    def _named(self, tables: MatchedTables) -> tuple[Ids, Floats]:
        """The candidates ``[n, 2]`` that match rather than not, and their probabilities."""
        pairs, _, chances = self.candidates(tables)
        return pairs[chances >= 0.5], chances[chances >= 0.5]

    def _are_alike(self, tables: MatchedTables) -> bool:
        """Whether the model is sure, and most links of one table are more equal than different.

        Addresses that share a number, or titles that share rare words, need be no copies.
        """
        if not self.is_sure or not tables.is_single:
            return self.is_sure
        levels = self.levels(tables, self._named(tables)[0])
        tops = np.array([len(names) - 2 for names in self.level_names.values()])
        filled = np.maximum((levels > 0).sum(axis=1), 1)
        grades = np.where(levels > 0, (levels - 1) / tops, 0.0).sum(axis=1) / filled
        return bool(np.median(grades) >= 0.5)

    def _closes(self, tables: MatchedTables) -> bool:
        """Whether rows of one table that are linked to the same row are one thing, too, by their own log odds."""
        if not tables.is_single:
            return True
        named = np.sort(self._named(tables)[0], axis=1)
        ends, count = drawn_wedges(named, _WEDGES)
        if not count:
            return True
        codes = np.int64(1 << 32) * ends[:, 0] + ends[:, 1]
        are_linked = np.isin(codes, np.int64(1 << 32) * named[:, 0] + named[:, 1])
        are_open = ~are_linked & (self.log_odds(tables, ends) <= 0)
        return float(are_open.mean()) * count < _OPEN * len(named)

    def _alone_deciding(self, tables: MatchedTables) -> dict[str, float]:
        """The share of the links, but for equal rows, that would be none without a column."""
        at, chances = (part[:: len(part) // _JUDGED + 1] for part in self._named(tables))
        links = ~self._are_equal(self.levels(tables, at))
        if not links.any():
            return {}
        start, bits, _ = self.weighed(tables, at[links], chances[links])
        total = (start + bits.sum(axis=1))[:, None]
        alone = ((total - bits < 0) & (total > 0)).mean(axis=0)
        return dict(zip(self.level_names, alone.tolist(), strict=True))

    def _told_apart(self, tables: MatchedTables) -> dict[str, float]:
        """Columns of codes of which most rows have one of their own, and most links two that differ; and their share.

        The weights of such links are those of true ones, but for this column: other editions of a book, say.
        """
        levels, apart = self.levels(tables, self._named(tables)[0][:_JUDGED]), dict[str, float]()
        for place, column in enumerate(tables.coded(self.kinds)):
            differs = levels[levels[:, place] > 0, place] == 1
            counts = [np.bincount(side[side >= 0]) for side in column.sides]
            distinct = min(np.count_nonzero(each) / max(1, each.sum()) for each in counts)
            is_key = column.kind == "code" and len(differs) >= _SEVERAL and distinct >= _DISTINCT
            if is_key and differs.mean() > 0.5:
                apart[column.name] = float(differs.mean())
        return apart

    def _sentences(self, tables: MatchedTables, labels: tuple[Ids, Floats]) -> list[str]:
        count = self.candidates(tables)[2].sum()  # of pairs that links may name, as beside them
        checked = counted(len(labels[1]), "label") if len(labels[1]) else "no labels"
        notes = [f"{count:.0f} matches are expected, by estimated probabilities and {checked}"]
        notes += [
            f"by the labels rows of the {table.name} table match {1 + more:.2f} others on average: {self.links} links "
            f"one of them, {links} all"
            for table, more, links in zip(tables.tables, self.again, ("one-to-many", "many-to-many"), strict=False)
            if more
        ]
        linked = "only equal rows are" if tables.is_single else "none is"
        if not self.has_sign and not self._closes(tables):
            return [f"no sign of duplicates: rows that resemble one row do not resemble each other; {linked} linked"]
        if not self.has_sign:
            return [f"no sign of matches: no pair stands out, so {linked} linked; label pairs of the review"]
        if self.expected(tables) < FEWEST:
            notes.append(f"fewer than {FEWEST} matches are expected: the weights of columns are uncertain")
        if not self.is_sure:
            notes.append(
                f"unsure: many pairs are neither matches nor none, so no probability above {MOST} is told; label "
                f"{_CHECKED} pairs of the review"
            )
        notes += [
            f"unsure by {name}: nearly each row has one of its own, and {100 * share:.0f} % of the links differ in it; "
            "unless it is given anew in each table, they are other things of the same kind"
            for name, share in self._told_apart(tables).items()
        ]
        decisive = {name: share for name, share in self._alone_deciding(tables).items() if share > _ONE}
        return notes + [
            f"{name}: this column alone decides {100 * share:.0f} % of the links; if it is a key that was copied, or a "
            "number given anew in each table, leave it out"
            for name, share in decisive.items()
            if len(decisive) == 1  # of two that are needed neither decides alone
        ]

    def _random_shares(self, tables: MatchedTables, seed: int) -> list[Floats]:
        """u: the share of each level among random pairs; of equal cells by how frequent values are."""
        rows = tables.counts
        levels = self._unfollowed(tables.once(("levels", "random"), lambda: self._random_levels(tables, seed)))
        equal = [column.equal_by_chance for column in tables.coded(self.kinds)]
        shares = []
        for place, names in enumerate(self.level_names.values()):
            share = np.bincount(levels[:, place], minlength=len(names)) + 0.5
            share[0] = 0
            if place < len(equal):
                share[-1] = 0
                share *= (1 - equal[place]) / share.sum()
                share[-1] = max(equal[place], 1 / (rows[0] * rows[1]))
            shares.append(share / share.sum())
        return shares

    def _random_levels(self, tables: MatchedTables, seed: int) -> Ids:
        """Levels of random pairs, whatever follows from what."""
        rows = tables.counts
        if rows[0] * rows[1] <= RANDOM_PAIRS:  # all pairs are
            at = np.stack(np.divmod(np.arange(rows[0] * rows[1]), rows[1]), axis=1)
        else:
            random = np.random.default_rng(seed)
            at = np.stack([random.integers(0, count, RANDOM_PAIRS) for count in rows], axis=1)
            if not tables.is_large:  # the order of rows does not matter
                orders = [np.argsort(_marks(tables, side), kind="stable") for side in (0, 1)]
                at = np.stack([order[part] for order, part in zip(orders, at.T, strict=True)], axis=1)
        return self.compared(tables, at[at[:, 0] != at[:, 1]] if tables.is_single else at)


def _equal_pairs(codes: Ids, count: int, random: np.random.Generator) -> Ids:
    """Pairs ``[n, 2]`` of rows drawn from all that have the same code in a column, each once, about so many."""
    counts = np.bincount(codes + 1)
    by_value, starts = np.argsort(codes, kind="stable"), np.cumsum(counts) - counts
    counts[0] = 0  # of empty cells
    chances = np.maximum(counts[codes + 1] - 1, 0)
    if not count or not chances.any():
        return np.zeros((0, 2), dtype=np.int64)
    one = random.choice(len(codes), count, p=chances / chances.sum())
    other = by_value[starts[codes[one] + 1] + random.integers(counts[codes[one] + 1])]
    pairs = np.unique(np.sort(np.stack([one, other], axis=1), axis=1), axis=0)
    return np.asarray(pairs[pairs[:, 0] != pairs[:, 1]])


def _share(pairs: Ids, some: Ids) -> float:
    """Of the left rows of pairs, those that some have."""
    some_rows, rows = (1 + np.count_nonzero(np.diff(left)) for left in (pairs[some, 0], pairs[:, 0]))  # which rise
    return some_rows / rows


def _marks(tables: MatchedTables, side: int) -> Ids:
    """A whole number of each thing of a side by what its cells say, ``[n]``: no order of rows or columns matters."""

    def make() -> Ids:
        columns = tables.coded()
        total = np.zeros(len(tables.tables[-side].first), dtype=np.int64)
        for column in columns:
            marks = np.array([*(zlib.crc32(f"{column.name}\0{value}".encode()) for value in column.values), 0])
            total += marks[column.sides[side]]
        return total if columns else np.arange(len(total))

    return tables.once(("marks", side), make)


def _kinds(columns: list[CodedColumn]) -> tuple[dict[str, Kind], list[str]]:
    """The kinds of columns that say something, and a sentence about the others."""
    flat = [column.name for column in columns if len(column.values) < 2]
    kinds = {column.name: column.kind for column in columns if column.name not in flat}
    keys = [column.name for column in columns if column.name in kinds and _is_key(column)]
    notes = [f"left out, as one value or none stands in all rows: {listed(flat, 100)}"] if flat else []
    if keys:
        notes.append(f"different in each row of both tables: {listed(keys, 100)}; drop what each table numbers anew")
    return kinds, notes


def _is_key(column: CodedColumn) -> bool:
    """Whether no value stands twice in a table, half are in both and have a digit: no telephones."""
    digits = sum(any(map(str.isdigit, value)) for value in column.values)
    if column.form == "telephone" or 2 * digits < len(column.values):
        return False
    sides = [side[side >= 0] for side in column.sides]
    if column.sides[0] is column.sides[1] or not all(len(side) and len(np.unique(side)) == len(side) for side in sides):
        return False
    return 2 * len(np.intersect1d(sides[0], sides[1])) >= min(map(len, sides))
