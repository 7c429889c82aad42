"""Pairs compete: where a row has one partner at most, a probable pair makes the others of its rows improbable."""

from dataclasses import dataclass

import numpy as np

from vicinal.linkage.columns import Floats, Ids

Free = tuple[Floats, Floats]
"""How free the left and the right row of each pair are for it."""

_ROUNDS, _AGAIN = 15, 4
"""Rounds of messages, and of those that start from others."""

_LEAST = 0.03
"""Share of a table that counts as without a partner, at least: as few as are left over by all others are hardly known,
and would be linked with whatever is left over. On five tuning sets .02 to .05 are as good, .01 is worse by .003."""

_NOTHING, _MANY = 1e-5, 1 << 18
"""Odds that offer nothing to a row, where there are more pairs than so many."""

_FAR = 100.0
"""Log odds are at most this."""

_MOST = 0.999
"""Share of the offers of a row from which on one pair makes nearly all of them: a difference would lose the others."""


def _offered(offers: Floats, again: float) -> Floats:
    """What pairs offer to a row, so that sums of them tell how free it is; see :func:`freedom`."""
    return np.asarray(np.log1p(again * offers) / again if again else offers)


def _free(offered: Floats, again: float) -> Floats:
    """How free rows are beside such a sum of offers."""
    if again == 0:
        return np.asarray(1 / (1 + offered))
    return np.asarray(1 / (np.exp(-again * offered) - np.expm1(-again * offered) / again))


def freedom(offers: Floats, rows: Ids, again: float = 0.0) -> Floats:
    r"""$1 / (1 + \sum_{e' \neq e} o_{e'})$ over the other pairs e' of the same row: how free that row is for a pair e.

    Where a row that has a partner has another one with odds of ``again`` to those of the first, it is
    $P / (1 + (P - 1) / a)$ of $P = \prod_{e' \neq e} (1 + a o_{e'})$; 1 where a is 1.

    >>> freedom(np.array([1.0, 3.0, 2.0]), np.array([0, 0, 1])).tolist()
    [0.25, 0.5, 1.0]
    >>> freedom(np.array([1.0, 3.0, 2.0]), np.array([0, 0, 1]), again=0.5).tolist()
    [0.625, 0.75, 1.0]
    """
    offers = _offered(offers, again)
    total = np.bincount(rows, weights=offers)[rows]
    others, most = total - offers, np.flatnonzero(offers > _MOST * total)
    rest = offers.copy()
    rest[most] = 0
    others[most] = np.bincount(rows, weights=rest)[rows[most]]
    return _free(others, again)


def pair_chances(odds: Floats, free: Free) -> Floats:
    """Probabilities ``[n]`` of pairs, see :meth:`Competition.messages`.

    >>> pair_chances(np.array([3.0]), (np.array([0.5]), np.array([1.0]))).tolist()
    [0.6]
    """
    odds = odds * free[0] * free[1]
    return np.asarray(odds / (1 + odds))


LINKS = ("one-to-one", "one-to-many", "many-to-many", "many")


def partners(links: str) -> tuple[int | None, int | None]:
    """How many right rows a left row may be linked to, and how many left rows a right one; None: any number.

    Args:
        links: "one-to-one", "one-to-many", "many-to-many" (or "many"), or "1:3" for at most three right rows of a left
            one, each of which has no other.

    Raises:
        ValueError: for anything else.

    >>> partners("one-to-one"), partners("one-to-many"), partners("many"), partners("1:3")
    ((1, 1), (None, 1), (None, None), (3, 1))
    """
    if links in LINKS:
        left = 1 if links == "one-to-one" else None
        return left, None if links.startswith("many") else 1
    one, _, most = str(links).partition(":")
    if one != "1" or not (most.isascii() and most.isdigit()) or not int(most[:9]) > 0 or len(most) > 9:
        raise ValueError(
            f"links: expected {', '.join(map(repr, LINKS[:3]))}, or '1:3' for at most three right rows of a left one, "
            f"got {links!r}"
        )
    return int(most), 1


@dataclass(frozen=True)
class Competition:
    r"""The prior of pairs, and which of them exclude each other.

    Of matchings of M pairs between $n_L$ and $n_R$ rows each pair has prior odds
    $M / ((n_L - M) (n_R - M))$ against both of its rows being without a partner; within one table, and on a side where
    a row may have any number of partners, nothing is excluded.

    Attributes:
        pairs: candidates ``[n, 2]``.
        rows: number of rows of either table.
        again: odds that a left row has another partner, to those of its first, and a right row; 0: it has one at most,
            1: any number.
        is_single: whether both tables are one.
        share: of the left rows whose pairs are there, drawn whatever they match.
    """

    pairs: Ids
    rows: tuple[int, int]
    again: tuple[float, float]
    is_single: bool
    share: float = 1.0

    @classmethod
    def of(
        cls,
        pairs: Ids,
        rows: tuple[int, int],
        links: str,
        *,
        is_single: bool,
        share: float = 1.0,
        again: tuple[float, float] = (0.0, 0.0),
    ) -> "Competition":
        """Of ``links``: see :func:`partners`; that a left row has several partners at most is not known here."""
        left, right = (None, None) if is_single else partners(links)
        return cls(pairs, rows, (again[0] if left == 1 else 1.0, again[1] if right else 1.0), is_single, share)

    @property
    def sides(self) -> list[int]:
        """The sides on which pairs compete: 0 for left rows, 1 for right ones."""
        return [side for side in (0, 1) if self.again[side] < 1]

    @property
    def most(self) -> float:
        """The number of matches that cannot be exceeded."""
        some = [self.rows[side] for side in self.sides]
        return self.share * min(some) if some else float(len(self.pairs))

    @property
    def possible(self) -> float:
        """Number of all pairs of rows, of those left ones."""
        left, right = self.rows
        return self.share * (left * (left - 1) / 2 if self.is_single else left * right)

    def crowding(self, matches: float) -> float:
        """Log of how much more the prior odds are as the rows that are taken have left the field."""
        matches = matches / self.share
        return float(sum(-np.log(max(1 - matches / self.rows[side], _LEAST)) for side in self.sides))

    def chances(self, log_odds: Floats, matches: float) -> Floats:
        """Probabilities ``[n]`` of pairs of such odds, each taken by itself, of which so many match.

        Belief propagation: what a pair offers to a row is its odds, as far as its other row is free. Exact where the
        graph of candidates is a tree.

        >>> rivals = Competition.of(np.array([[0, 0], [0, 1]]), (2, 2), "one-to-one", is_single=False)
        >>> rivals.chances(np.log([3.0, 1.0]), 0.0).round(2).tolist()
        [0.6, 0.2]
        """
        return pair_chances(*self.messages(log_odds, matches))

    def messages(self, log_odds: Floats, matches: float, start: Free | None = None) -> tuple[Floats, Free]:
        """Odds of pairs by themselves, and how free their left and right rows are for them, ``[n]`` each.

        Fewer rounds do from a ``start``: how free they were when odds were much the same.
        Rounds are damped by geometric means: the first messages, of free rows, would outweigh large odds else. Of many
        pairs those of odds below 1e-5, and those that are the only others of their rows, are left out.
        """
        odds = np.asarray(np.exp(np.clip(log_odds + self.crowding(matches), -_FAR, _FAR)))
        strong = np.arange(len(odds))
        if len(odds) > _MANY:
            strong = np.flatnonzero(odds > _NOTHING)
            strong = strong[np.any([np.bincount(rows)[rows] > 1 for rows in self.pairs[strong].T], axis=0)]
        offers, pairs = odds[strong], self.pairs[strong]
        free = [np.ones(len(strong)) if start is None else start[side][strong] for side in (0, 1)]
        for _ in range((_ROUNDS if start is None else _AGAIN) if self.sides else 0):
            for side in self.sides:
                new = freedom(offers * free[1 - side], pairs[:, side], self.again[side])
                free[side] = np.sqrt(free[side] * new)
        if len(strong) == len(odds):
            return odds, (free[0], free[1])
        every = [np.ones(len(odds)), np.ones(len(odds))]
        weak = np.flatnonzero(odds <= _NOTHING)
        for side in self.sides:
            every[side][strong] = free[side]
        for side in self.sides:
            every[side][weak] = self._left_free(side, odds * every[1 - side])[self.pairs[weak, side]]
        return odds, (every[0], every[1])

    def room(self, log_odds: Floats, matches: float) -> list[Floats]:
        """How free each row of either side is for one more pair, beside all of these with such odds."""
        odds, free = self.messages(log_odds, matches)
        return [self._left_free(side, odds * free[1 - side]) for side in (0, 1)]

    def _left_free(self, side: int, offers: Floats) -> Floats:
        offered = _offered(offers, self.again[side])
        total = np.bincount(self.pairs[:, side], weights=offered, minlength=self.rows[side])
        return _free(total.astype(np.float64), self.again[side])

    def outside(self, pairs: Ids, pair_odds: Floats, log_odds: Floats, matches: float) -> Floats:
        """Probabilities ``[m]`` of other pairs ``[m, 2]`` beside the candidates of such odds."""
        theirs = np.exp(np.clip(pair_odds + self.crowding(matches), -_FAR, _FAR))
        left, right = self.room(log_odds, matches)
        theirs = theirs * left[pairs[:, 0]] * right[pairs[:, 1]]
        return np.asarray(theirs / (1 + theirs))
