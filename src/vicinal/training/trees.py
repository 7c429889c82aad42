"""Boosted trees for the numbers of a table, by folds: each row has a model that has not seen its label."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal.core.progress import report

FOLDS = 5
"""Models side by side; each leaves out a fifth of the rows."""

LEAVES = (8, 31, 127)
"""Leaves of a tree that are tried: the first two, and each next one while it is better."""

ROUNDS = 2000
"""Trees of a model, at most."""

PATIENCE = 30
"""Trees without less error in a fold after which there are no more."""

_LARGE = 50_000
"""Rows from which on trees learn at twice the rate."""

_SHARED = 1 << 18
"""Cells from which on threads share the work; of fewer each would wait for the others most of the time."""


def boosted_folds(
    columns: Tensor,
    labels: Tensor,
    folds: Tensor,
    *,
    categories: Sequence[int] = (),
    weights: Tensor | None = None,
    seed: int = 0,
) -> tuple[list[list[str]], float]:
    """LightGBM by squared error, once for each fold of the rows that are left out and each target.

    All folds have trees of the same number of leaves and the same number of trees: those of least error of the rows
    left out, which for so few choices tells little of any single label.

    Args:
        columns: ``[n, f]``, NaN for a gap.
        labels: ``[n]`` or ``[n, T]``.
        folds: ``[n]``, from 0 on.
        categories: columns that are places of categories.
        weights: how many rows each counts as ``[n]``; None: one.
        seed: of what LightGBM draws.

    Returns:
        of each fold the model of each target, as LightGBM writes it, and the mean squared error of the rows by the
        models that have not seen them, the mean over targets.
    """
    targets = labels.reshape(len(labels), -1).double().numpy()
    rows, mass = columns.double().numpy(), None if weights is None else weights.double().numpy()
    each = [_Target(rows, target, folds.numpy(), list(categories), mass, seed).best() for target in targets.T]
    texts = [list(fold) for fold in zip(*(one.texts() for one in each), strict=True)]
    return texts, float(np.mean([one.error for one in each]))


@dataclass(frozen=True)
class _Tried:
    """Models of one number of leaves by fold, their error, leaves and trees."""

    models: list[Any]
    error: float
    leaves: int
    rounds: int

    def texts(self) -> list[str]:
        """Of the trees of least error, as LightGBM writes them."""
        return [model.model_to_string(num_iteration=self.rounds) for model in self.models]


class _Target:
    """The folds of one target, prepared."""

    def __init__(
        self, rows: np.ndarray, labels: np.ndarray, folds: np.ndarray, categories: list[int], mass: Any, seed: int
    ) -> None:
        import lightgbm  # only training needs it

        smallest = 5 if len(rows) < 500 else 10 if len(rows) <= 2000 else 20
        self.settings = {
            "objective": "regression",
            "metric": "l2",
            "learning_rate": 0.05 if len(rows) < _LARGE else 0.1,
            "min_data_in_leaf": smallest,
            "feature_pre_filter": False,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1 if rows.size < _SHARED else torch.get_num_threads(),
            "seed": seed % (1 << 31),
            "verbosity": -1,
        }
        self.data = lightgbm.Dataset(
            rows, labels, weight=mass, categorical_feature=categories, params=self.settings, free_raw_data=False
        )
        self.parts = [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(folds.max() + 1)]

    def best(self) -> _Tried:
        """The number of leaves of least error."""
        best = min((self._boosted(leaves) for leaves in LEAVES[:2]), key=lambda one: one.error)
        for leaves in LEAVES[2:]:
            if best.leaves != LEAVES[LEAVES.index(leaves) - 1]:
                break
            best = min(best, self._boosted(leaves), key=lambda one: one.error)
        return best

    def _boosted(self, leaves: int) -> _Tried:
        import lightgbm

        def tell(state: Any) -> None:
            report("trees", state.iteration + 1, ROUNDS, f"trees of {leaves} leaves, of which there may be fewer")

        stop: list[Any] = [lightgbm.early_stopping(PATIENCE, verbose=False), tell]
        settings = self.settings | {"num_leaves": leaves}
        known: Any = {"folds": self.parts, "callbacks": stop, "return_cvbooster": True}
        result: Any = lightgbm.cv(settings, self.data, ROUNDS, **known)
        errors = result["valid l2-mean"]
        rounds = int(np.argmin(errors)) + 1
        return _Tried(result["cvbooster"].boosters, float(errors[rounds - 1]), leaves, rounds)
