"""What tells pairs that match from those that do not: gradient boosting, and which labelled pairs a pair resembles."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from vicinal.encoders.tree_text import read_trees, written
from vicinal.linkage.columns import Floats, Ids

ROUNDS, DEPTH, RATE = 300, 4, 0.05
"""Trees, splits from root to leaf at most, and the share of each tree that is added."""


def boosting_settings(seed: int, **others: Any) -> dict[str, Any]:
    """Settings of LightGBM for trees of pairs, all of whose cells are numbers."""
    shared = {"max_depth": DEPTH, "max_bin": 63, "lambda_l2": 1.0, "use_missing": False, "seed": seed}
    return {**shared, "deterministic": True, "num_threads": 1, "verbosity": -1, **others}


class BoostedPairs:
    """Gradient boosting of shallow trees (LightGBM): pairs are as alike as the share of trees with both in one leaf.

    Args:
        booster: the model of log odds.
    """

    def __init__(self, booster: Any) -> None:
        self.booster = booster

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
        return cls(lightgbm.train(settings, lightgbm.Dataset(features, matches), ROUNDS))

    def leaves(self, features: Floats) -> Ids:
        """The leaf of each pair in each tree, ``[n, trees]``."""
        if not len(features):  # LightGBM divides by their number
            return np.zeros((0, self.booster.num_trees()), dtype=np.int32)
        return np.asarray(self.booster.predict(features, pred_leaf=True, num_threads=1))

    def log_odds(self, features: Floats) -> Floats:
        """Log odds ``[n]`` that each pair matches."""
        return np.asarray(self.booster.predict(features, raw_score=True, num_threads=1))

    def chances(self, features: Floats) -> Floats:
        """Probability ``[n]`` that each pair matches."""
        return np.asarray(expit(self.log_odds(features)))

    def likeness(self, features: Floats, known: Floats) -> Floats:
        """How alike pairs ``[n, F]`` are to labelled ones ``[m, F]`` in the eyes of the scorer: ``[n, m]``."""
        theirs = self.leaves(known)
        return np.stack([(theirs == leaves).mean(axis=1) for leaves in self.leaves(features)])

    def save(self, path: Path) -> None:
        """Write the trees to a file, as a text."""
        path.write_text(self.booster.model_to_string(), encoding="utf-8")

    @classmethod
    def load(cls, path: Path, features: int) -> "BoostedPairs":
        """The scorer saved at ``path``, of pairs of so many features; its trees are checked and written anew.

        Raises:
            ValueError: for trees that are none.
        """
        import lightgbm

        trees = read_trees(path.read_text(encoding="utf-8", errors="replace"), features)
        return cls(lightgbm.Booster(model_str=written(trees, features)))
