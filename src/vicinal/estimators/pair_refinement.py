"""What match weights leave out: pairs that learn from each other's probabilities, as columns are not independent."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from vicinal.estimators.pair_features import MISSING
from vicinal.estimators.pair_scorers import BoostedPairs, boosting_settings
from vicinal.linkage.columns import Floats, Ids
from vicinal.linkage.competition import Competition

ROUNDS, TREES, LEAVES, RATE = 6, 60, 8, 0.1
"""Times that pairs are learned from, trees each time, leaves of a tree, and the share of a tree that is added."""

LINES = 2 / 3
"""Weight of the linear model beside the trees."""

LEARNED = 100_000
"""Pairs that are learned from, at most."""

LABEL = 5.0
"""Weight of a pair that was labelled."""

_SEEN = 1e-4
"""Weight of a pair in the second derivatives from which on it counts there."""

_STEADY = 1e-4
"""Length of the slope of the loss from which on nothing changes."""


class Refinement:
    """Two models of log odds, a linear one of a pair by itself, and boosted trees that know its rivals, too.

    Both learn from probabilities as soft labels: each pair is a match with its probability and none with the rest. What
    they say is put back into the competition of pairs, and learned from again. Until the last round trees never say
    what they were fitted to: each half of the pairs is told by trees of the other.

    Attributes:
        alone: which features are of a pair by itself, bool ``[F]``.
        state: center, scale and weights of the linear model.
        forest: the trees.
    """

    def __init__(self, alone: Ids, state: dict[str, Floats], forest: BoostedPairs) -> None:
        self.alone, self.state, self.forest = alone, state, forest

    def log_odds(self, features: Floats) -> Floats:
        """Of each pair by itself, among the candidates: ``[n]``."""
        linear = _standard(features[:, self.alone], self.state) @ self.state["weights"] + self.state["start"][0]
        return _together(linear, self.forest.log_odds(features))

    @classmethod
    def learn(
        cls,
        features: Floats,
        alone: Ids,
        chances: Floats,
        competition: Competition,
        labels: tuple[Ids, Floats],
        half: Ids,
        seed: int,
    ) -> "Refinement":
        """The models of pairs ``[n, F]`` from their first probabilities, whose number of matches stays.

        Args:
            features: of the candidates.
            alone: which of them are of a pair by itself.
            chances: probabilities ``[n]`` to start from.
            competition: of the same pairs.
            labels: places ``[m]`` of pairs that were labelled, and 0 or 1 of each; they stay so.
            half: 0 or 1 of each pair, ``[n]``.
            seed: of the trees.
        """
        state = _scales(features[:, alone])
        standard, place, counts = _distinct(_standard(features[:, alone], state))  # many are empty in the same pairs
        trees = _Trees(features, half, seed)
        matches = float(chances.sum())  # of the match weights: pairs that learn from one another would find ever more
        weights = np.ones(len(chances))
        weights[labels[0]] = LABEL
        point, penalty = np.zeros(len(counts) + 1), np.append(1 / counts, 0.0)
        for turn in range(ROUNDS):
            targets = chances.copy()
            targets[labels[0]] = labels[1]
            point = _linear(standard, targets, weights, penalty, point)
            by_lines = standard @ point[:-1] + point[-1]
            if turn < ROUNDS - 1:
                by_trees = trees.across(targets, weights)
            else:
                forest = trees.grown(2, targets, weights)
                by_trees = forest.log_odds(features)
            chances = competition.chances(_together(by_lines, by_trees), matches)
        return cls(alone, state | {"weights": (point[:-1] / counts)[place], "start": point[-1:]}, forest)


class _Trees:
    """LightGBM with soft labels, of columns that are put into bins once."""

    def __init__(self, features: Floats, half: Ids, seed: int) -> None:
        import lightgbm  # slow to import

        self.settings = boosting_settings(
            seed, objective="cross_entropy", num_leaves=LEAVES, learning_rate=RATE, min_data_in_leaf=20
        )
        self.features = features
        every = np.ones(len(half), dtype=bool)
        self.parts = [part if part.any() else every for part in (half == 1, half == 0, every)]
        self.sets = [
            lightgbm.Dataset(features[part], np.zeros(int(part.sum())), params=self.settings).construct()
            for part in self.parts
        ]

    def grown(self, number: int, targets: Floats, weights: Floats) -> BoostedPairs:
        """Trees of one half or the other, 2: of all pairs."""
        import lightgbm

        data, part = self.sets[number], self.parts[number]
        data.set_label(targets[part])
        data.set_weight(weights[part])
        return BoostedPairs(lightgbm.train(self.settings, data, TREES))

    def across(self, targets: Floats, weights: Floats) -> Floats:
        """Log odds of each half by trees of the other; 0 where there is no other half."""
        log_odds = np.zeros(len(targets))
        for number in (0, 1):
            rest = ~self.parts[number]
            if rest.any():
                log_odds[rest] = self.grown(number, targets, weights).log_odds(self.features[rest])
        return log_odds


def _together(lines: Floats, trees: Floats) -> Floats:
    return np.asarray(LINES * lines + (1 - LINES) * trees)


def _scales(features: Floats) -> dict[str, Floats]:
    shown = np.where(features == MISSING, 0.0, features)
    return {"center": shown.mean(axis=0), "scale": np.maximum(shown.std(axis=0), 1e-9)}


def _standard(features: Floats, state: dict[str, Floats]) -> Floats:
    """Features of mean 0 and deviation 1, and beside them which cells are empty."""
    missing = features == MISSING
    shown = (np.where(missing, 0.0, features) - state["center"]) / state["scale"]
    return np.concatenate([shown, missing.astype(np.float64)], axis=1)


def _distinct(columns: Floats) -> tuple[Floats, Ids, Floats]:
    """Columns ``[n, F]`` without copies, the place of each among them ``[F]``, and how many each stands for."""
    places = dict[bytes, int]()
    place = np.array([places.setdefault(column.tobytes(), len(places)) for column in columns.T])
    first = np.unique(place, return_index=True)[1]
    return columns[:, first], place, np.bincount(place).astype(np.float64)


def _linear(standard: Floats, targets: Floats, weights: Floats, penalty: Floats, start: Floats) -> Floats:
    r"""Logistic regression of soft labels with a penalty of $\sum_i p_i w_i^2 / 2$, by Newton's method.

    Only pairs whose weight in the second derivatives is above 1e-4 count there: nearly all candidates are surely none.

    Args:
        standard: features ``[n, F]``.
        targets: probabilities ``[n]``.
        weights: of the pairs, ``[n]``.
        penalty: of weights and intercept ``[F + 1]``; of the sum of k equal weights 1 / k.
        start: weights and intercept to start from.
    """
    columns = np.column_stack([standard, np.ones(len(standard))])

    def loss(point: Floats) -> tuple[float, Floats]:
        odds = columns @ point
        value = weights @ (np.logaddexp(0, odds) - targets * odds) + penalty @ point**2 / 2
        return float(value), columns.T @ (weights * (expit(odds) - targets)) + penalty * point

    def curvature(point: Floats) -> Floats:
        chances = expit(columns @ point)
        curving = weights * chances * (1 - chances)
        some = columns[curving > _SEEN]
        return np.asarray((some.T * curving[curving > _SEEN]) @ some + np.diag(penalty + _SEEN))

    solved = minimize(loss, start, jac=True, hess=curvature, method="trust-exact", options={"gtol": _STEADY})
    return np.asarray(solved.x)
