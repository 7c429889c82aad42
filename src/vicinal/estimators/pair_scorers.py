"""What tells pairs that match from those that do not: gradient boosting, and which labelled pairs a pair resembles."""

from pathlib import Path
from typing import Any

import numpy as np

from vicinal.core.threads import pieces
from vicinal.encoders.tree_sums import TreeSums
from vicinal.encoders.tree_text import read_trees, written
from vicinal.linkage.columns import Floats, Ids

ROUNDS, DEPTH, RATE = 300, 4, 0.05
"""Trees, splits from root to leaf at most, and the share of each tree that is added."""

LARGEST = 1 << 26
"""Bytes of a saved scorer, at most."""

_BLOCK = 1 << 14
"""Pairs that are scored at a time, so that their numbers stay in a cache."""


def boosting_settings(seed: int, **others: Any) -> dict[str, Any]:
    """Settings of LightGBM for trees of pairs, all of whose cells are numbers."""
    shared = {"max_depth": DEPTH, "max_bin": 63, "lambda_l2": 1.0, "use_missing": False, "seed": seed}
    return {**shared, "deterministic": True, "num_threads": 1, "verbosity": -1, **others}


class BoostedPairs:
    """Gradient boosting of shallow trees (LightGBM), kept as their text, which is checked before anything runs it.

    Two pairs are as alike as the share of trees that put them in one leaf.

    Args:
        text: as LightGBM writes it.
        features: of a pair, F.

    Raises:
        ValueError: for a text of no such trees.
    """

    def __init__(self, text: str, features: int) -> None:
        self.trees, self.features = read_trees(text, features), features
        self._sums = TreeSums([self.trees], features)

    @classmethod
    def fit(cls, features: Floats, matches: Ids, seed: int) -> "BoostedPairs":
        """Learn from pairs ``[n, F]`` and 0/1 ``[n]``, each tree from half of them and each split from few features."""
        import lightgbm  # slow to import

        settings = boosting_settings(
            seed,
            objective="binary",
            num_leaves=1 << DEPTH,
            learning_rate=RATE,
            bagging_fraction=0.5,
            bagging_freq=1,
            feature_fraction_bynode=features.shape[1] ** -0.5,
            min_data_in_leaf=max(1, min(5, len(matches) // 20)),
            min_sum_hessian_in_leaf=0.1,
        )
        booster = lightgbm.train(settings, lightgbm.Dataset(features, matches), ROUNDS)
        return cls(booster.model_to_string(), features.shape[1])

    def leaves(self, features: Floats) -> Ids:
        """The leaf of each pair in each tree, ``[n, trees]``."""
        return np.asarray(self._sums.leaves_of(0, self._sums.places(features)).T)

    def log_odds(self, features: Floats) -> Floats:
        """Log odds ``[n]`` that each pair matches."""
        odds = np.zeros(len(features))
        for part in pieces(len(features), _BLOCK):
            for tree, leaves in zip(self.trees, self.leaves(features[part]).T, strict=True):
                odds[part] += tree.values.take(leaves)
        return odds

    def chances(self, features: Floats) -> Floats:
        """Probability ``[n]`` that each pair matches."""
        return np.asarray(1 / (1 + np.exp(-self.log_odds(features))))

    def likeness(self, features: Floats, known: Floats) -> Floats:
        """How alike pairs ``[n, F]`` are to labelled ones ``[m, F]`` in the eyes of the scorer: ``[n, m]``."""
        theirs = self.leaves(known)
        return np.stack([(theirs == leaves).mean(axis=1) for leaves in self.leaves(features)])

    def save(self, path: Path) -> None:
        """Write the trees to a file."""
        path.write_text(written(self.trees, self.features), encoding="utf-8")

    @classmethod
    def load(cls, path: Path, features: int) -> "BoostedPairs":
        """The scorer saved at ``path``, of pairs of so many features."""
        return cls(path.read_text(encoding="utf-8", errors="replace"), features)
