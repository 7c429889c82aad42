"""Boosted trees of numbers or classes, by folds: each row has a model that has not seen its label."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal.core.progress import ending_in, report, time_left
from vicinal.core.threads import all_threads
from vicinal.encoders.tree_text import class_texts

FOLDS = 5
"""Models side by side; each leaves out a fifth of the rows."""

LEAVES = (8, 31, 127)
"""Leaves of a tree that are tried: the first two, and each next one while it is better."""

CLASS_LEAVES = (4, 16, 64)
"""The same of classes, which a linear model is weighed with and small trees often do for."""

SMALL = (3, 1)
"""Rows of a leaf that are tried where labels are quiet, which larger leaves blur: the second if the first is better."""

_LITTLE = 0.75
"""Share of the error ``reach`` above which trees of two numbers of leaves have too little part in a mean for more."""

QUIET = 0.2
"""Share of the variance of the labels below which errors are quiet; of classes none are."""

FEW = 10_000
"""Rows up to which these are tried: of more, leaves of 20 rows blur little, and smaller ones take minutes."""

MANY, CHOOSING = 4000, 2
"""Rows from which on leaves are chosen by the errors of so many folds; the others are boosted with what is chosen.

On 1,353 rows two folds took leaves with 14 % more error than those that five take.
"""

ROUNDS = 2000
"""Trees of a model, at most."""

PATIENCE = 30
"""Trees without less error in a fold after which there are no more."""

_FIRST_TREES = 64
"""Trees whose errors tell whether more are worth it; so do those of each time twice as many."""

_LARGE = 10_000
"""Rows from which on trees of numbers and of two classes learn at twice the rate, and are half as many."""

_MOST_STEPS, _MOST_TREES, _FEWEST_ROUNDS = 60_000_000, 3000, 20
"""Rows times trees of all classes, where there are three and more, and these trees, at most, but for so many of each
class: minutes of a processor."""

_BLURRED = 10
"""Classes from more of which on trees read 63 levels of a number."""

_SHARED = 1 << 18
"""Cells from which on threads share the work; of fewer each would wait for the others most of the time."""

_Part = tuple[np.ndarray, np.ndarray]
"""The rows that a fold learns from, and those that it leaves out."""


def boosted_folds(
    columns: Tensor,
    labels: Tensor,
    folds: Tensor,
    *,
    categories: Sequence[int] = (),
    weights: Tensor | None = None,
    seed: int = 0,
    classes: bool = False,
    reach: float = math.inf,
) -> tuple[list[list[str]], float]:
    """LightGBM by squared error of each target, or by log-loss of classes, once for each fold of the rows left out.

    All folds have trees of the same number of leaves, of the same least number of rows in a leaf, and the same number
    of trees: those of least error of the rows left out, which for so few choices tells little of any single label.

    Args:
        columns: ``[n, f]``, NaN for a gap.
        labels: ``[n]`` or ``[n, T]``; one-hot ``[n, K]`` of classes.
        folds: ``[n]``, from 0 on.
        categories: columns that are places of categories.
        weights: how many rows each counts as ``[n]``; None: one.
        seed: of what LightGBM draws.
        classes: whether the labels are classes.
        reach: the error above which trees are of no use: those that will not come to it are few, and of the fewest
            leaves.

    Returns:
        of each fold the model of each target, as LightGBM writes it, and the mean error of the rows by the models that
        have not seen them, the mean over targets. Models of classes are their log-odds, of two classes those of the
        second alone.
    """
    known = columns.double().numpy(), folds.numpy(), list(categories)
    mass = None if weights is None else weights.double().numpy()
    if classes:
        some = _Target(labels.argmax(dim=1).numpy(), *known, mass, seed, classes=labels.shape[1]).best()
        return [class_texts(text, columns.shape[1], labels.shape[1]) for text in some.texts()], some.error
    targets = labels.reshape(len(labels), -1).double().numpy()
    each = [_Target(target, *known, mass, seed, reach=reach).best() for target in targets.T]
    texts = [list(fold) for fold in zip(*(one.texts() for one in each), strict=True)]
    return texts, float(np.mean([one.error for one in each]))


@dataclass(frozen=True)
class _Tried:
    """Models of one number of leaves by fold, with their mean error after each tree, leaves, and least rows of one."""

    models: list[Any]
    errors: list[float]
    leaves: int
    smallest: int

    @property
    def error(self) -> float:
        """The least."""
        return min(self.errors)

    @property
    def rounds(self) -> int:
        """Trees of the least error."""
        return self.errors.index(self.error) + 1

    def texts(self) -> list[str]:
        """Of the trees of least error, as LightGBM writes them."""
        return [model.model_to_string(num_iteration=self.rounds) for model in self.models]

    def joined(self, others: "_Tried", most: int) -> "_Tried":
        """With the models of other folds, all boosted on until their mean error is as long at its least as one's is."""
        counts, trees = [len(side.models) for side in (self, others)], max(len(self.errors), len(others.errors))
        while True:
            both = [side.up_to(trees) for side in (self, others)]
            least = min(len(errors) for errors in both)
            mean = np.average([errors[:least] for errors in both], axis=0, weights=counts).tolist()
            whole = replace(self, models=[*self.models, *others.models], errors=mean)
            if least < trees or trees >= min(most, whole.rounds + PATIENCE):
                return whole
            trees += 1

    def up_to(self, trees: int) -> list[float]:
        """Errors of so many trees, boosted now if they are not there and there is time."""
        while len(self.errors) < trees and time_left() > 0:
            for model in self.models:
                model.update()
            self.errors.append(float(np.mean([model.eval_valid()[0][2] for model in self.models])))
        return self.errors


@all_threads()
def _threads() -> int:
    return torch.get_num_threads()


class _Target:
    """The folds of one target, or of classes, prepared."""

    def __init__(
        self,
        labels: np.ndarray,
        rows: np.ndarray,
        folds: np.ndarray,
        categories: list[int],
        mass: Any,
        seed: int,
        *,
        classes: int = 0,
        reach: float = math.inf,
    ) -> None:
        import lightgbm  # only training needs it

        self.count, self.reach = len(rows), reach
        self.smallest = 5 if len(rows) < 500 else 10 if len(rows) <= 2000 else 20
        self.variance = 0.0 if classes else float(np.cov(labels, aweights=mass, ddof=0))
        large = len(rows) >= _LARGE
        several = classes > 2
        self.rounds = ROUNDS // (4 if several else 2 if large else 1)
        if several:
            self.rounds = min(self.rounds, max(_FEWEST_ROUNDS, min(_MOST_TREES, _MOST_STEPS // len(rows)) // classes))
        self.leaves = CLASS_LEAVES if classes else LEAVES
        self.metric = "l2" if not classes else "binary_logloss" if classes == 2 else "multi_logloss"
        self.settings = {
            "objective": "regression" if not classes else "binary" if classes == 2 else "multiclass",
            "num_class": classes if classes > 2 else 1,
            "metric": self.metric,
            "learning_rate": 0.2 if several else 0.1 if large else 0.05,
            # a leaf of a class that few rows have would else step by the rate over its share, with 100 classes by 10,
            # and the first tree be the last; with a penalty the rate may be higher
            "lambda_l2": 1.0 if several else 0.0,
            "max_bin": 63 if classes > _BLURRED else 255,  # a third less time; of few classes up to a fifth more loss
            "feature_pre_filter": False,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1 if rows.size < _SHARED else _threads(),
            "seed": seed % (1 << 31),
            "verbosity": -1,
        }
        self.data = lightgbm.Dataset(
            rows, labels, weight=mass, categorical_feature=categories, params=self.settings, free_raw_data=False
        )
        self.parts = [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(folds.max() + 1)]

    def best(self) -> _Tried:
        """All folds, with the number of leaves, and of least rows in one, of least error."""
        if self.count < MANY or len(self.parts) <= CHOOSING:
            return self._chosen(self.parts)
        with ending_in(time_left() / 2):  # of a limit, so that all folds have the rest
            some = self._chosen(self.parts[:CHOOSING])
        most = len(some.errors) if self._cannot_reach(some.errors, self.reach) else self.rounds
        return some.joined(self._boosted(some.leaves, some.smallest, self.parts[CHOOSING:], self.reach), most)

    def _chosen(self, parts: list[_Part]) -> _Tried:
        best = self._boosted(self.leaves[0], self.smallest, parts, self.reach)
        if self._cannot_reach(best.errors, self.reach):
            return best
        for before, leaves in itertools.pairwise(self.leaves):
            if best.leaves != before:
                break
            other = self._boosted(leaves, self.smallest, parts, best.error, slowing=True)
            best = min(best, other, key=lambda one: one.error)
            if best.error > _LITTLE * self.reach:
                return best
        quiet = best.error < QUIET * self.variance and self.count <= FEW
        for smallest in SMALL if quiet else ():
            other = self._boosted(best.leaves, smallest, parts, best.error)
            if other.error >= best.error:
                break
            best = other
        return best

    def _cannot_reach(self, errors: Sequence[float], reach: float, *, slowing: bool = False) -> bool:
        """Whether all the trees there may be will not bring these errors down to ``reach``, so far the least of others.

        Later trees gain less: from twice as many trees errors fall by no larger share than from the last doubling. With
        ``slowing`` each doubling gains less than the one before by as much as the last did: of 53 splits it gave up no
        number of leaves that had less error in the end, in two thirds of the time.
        """
        count = len(errors)
        if count < _FIRST_TREES or count & (count - 1):
            return False
        early, middle, last = (max(errors[at - 1], 1e-300) for at in (count // 4, count // 2, count))
        before, gain = math.log(middle / early), math.log(last / middle)
        share = gain / before if slowing and gain <= 0 and before < gain else 1.0
        doublings = math.log2(self.rounds / count)
        steps = doublings if share == 1 else share * (1 - share**doublings) / (1 - share)
        return last * math.exp(gain * steps) > reach

    def _boosted(
        self, leaves: int, smallest: int, parts: list[_Part], reach: float, *, slowing: bool = False
    ) -> _Tried:
        import lightgbm

        errors = list[float]()  # those that cv gives end at the least

        def tell(state: Any) -> None:
            errors.append(state.evaluation_result_list[0][2])
            report("trees", state.iteration + 1, self.rounds, f"trees of {leaves} leaves (or fewer)")
            if time_left() <= 0 or self._cannot_reach(errors, reach, slowing=slowing):
                raise lightgbm.callback.EarlyStopException(state.iteration, state.evaluation_result_list)

        stop: list[Any] = [lightgbm.early_stopping(PATIENCE, verbose=False), tell]
        settings = self.settings | {"num_leaves": leaves, "min_data_in_leaf": smallest}
        known: Any = {"folds": parts, "callbacks": stop, "return_cvbooster": True}
        result: Any = lightgbm.cv(settings, self.data, self.rounds, **known)
        return _Tried(result["cvbooster"].boosters, errors, leaves, smallest)
