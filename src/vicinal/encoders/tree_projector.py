"""From the columns of a table to what each of them adds to boosted trees, in units of the labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.encoders.tree_columns import TreeColumns
from vicinal.encoders.tree_text import Tree, read_trees, written

_ROWS = 4096
"""Rows whose leaves are looked up together."""


class TreeProjector(nn.Module):
    r"""What each column adds to boosted trees, with the sum over columns in front: $[\sum_c x_c,\ x_1 \dots x_f]$.

    The way of a row through a tree adds to each column the sum of (value of the child - value of the parent) over the
    splits by that column, so that all of them sum to the leaf. Two rows are near if their columns add alike: in units
    of the label, whatever the units of the columns, and columns that say nothing do not count. As a metric it equals
    the values of tree SHAP (arXiv:1802.03888), at a thirtieth of the time.

    Several models of folds stand side by side: a row that they were trained on is embedded by the one that left it out,
    and any other row by the mean of all. Of several targets the sums come first, then the columns of each.

    Args:
        texts: of each fold the model of each target, as LightGBM writes it.
        reader: makes the f columns that they read.

    Attributes:
        trend: how many of the last entries are columns of one target: f.
        targets: T.
        dim: T + T f.
        base: what all rows get, the mean over folds ``[T]``.
        unit: units of the labels in one unit of the entries ``[T]``: 1.

    Raises:
        ValueError: for texts that are no such models.
    """

    linear = 0
    cross_fitted = True

    def __init__(self, texts: Sequence[Sequence[str]], reader: TreeColumns) -> None:
        super().__init__()
        self.reader, self.names, self.trend = reader, reader.names, len(reader.names)
        self.folds, self.targets = len(texts), len(texts[0]) if texts else 0
        if not self.targets or {len(fold) for fold in texts} != {self.targets}:
            raise ValueError(f"texts: expected a model of each target for each fold, got {self.folds} folds")
        trees = [[read_trees(text, self.trend) for text in fold] for fold in texts]
        self.texts = [[written(some, self.trend) for some in fold] for fold in trees]
        self.leaves = [[_Leaves(some, self.trend) for some in fold] for fold in trees]
        self.dim = self.targets * (1 + self.trend)
        starts = [[some.start for some in fold] for fold in self.leaves]
        self.base = torch.tensor(starts, dtype=torch.float64).mean(dim=0)
        self.unit = torch.ones(self.targets, dtype=torch.float64)
        self._boosters: list[list[Any]] = []

    def forward(self, columns: Tensor, folds: Tensor | None = None) -> Tensor:
        """``[b, dim]``, float64, of ``columns [b, f]``.

        Args:
            columns: as ``reader`` makes them.
            folds: ``[b]``, the fold whose model alone is asked; -1: all of them. None: all, for every row.
        """
        rows = columns.double().numpy()
        entries = torch.zeros(len(rows), self.targets, self.trend, dtype=torch.float64)
        for fold in range(self.folds):
            share = torch.full((len(rows),), 1 / self.folds, dtype=torch.float64)
            share = share if folds is None else torch.where(folds < 0, share, (folds == fold).double())
            at = share.nonzero()[:, 0]
            for target in range(self.targets if len(at) else 0):
                entries[at, target] += share[at, None] * self._of(fold, target, rows[at.numpy()])
        return torch.cat([entries.sum(dim=2), entries.flatten(1)], dim=1)

    def _of(self, fold: int, target: int, rows: np.ndarray) -> Tensor:
        """What each column of rows ``[b, f]`` adds in one model ``[b, f]``."""
        booster, added = self._booster(fold, target), self.leaves[fold][target].added
        blocks = []
        for start in range(0, len(rows), _ROWS):
            leaves = booster.predict(rows[start : start + _ROWS], pred_leaf=True, num_threads=torch.get_num_threads())
            blocks.append(_summed(np.asarray(leaves).reshape(-1, len(added)), added))
        return torch.from_numpy(np.concatenate(blocks))

    def _booster(self, fold: int, target: int) -> Any:
        import lightgbm  # half a second, which only this metric needs

        if not self._boosters:
            self._boosters = [[lightgbm.Booster(model_str=text) for text in texts] for texts in self.texts]
        return self._boosters[fold][target]

    def extra_repr(self) -> str:
        """Counts, for ``print``."""
        return f"folds={self.folds}, targets={self.targets}, columns={self.trend}"

    def __getstate__(self) -> dict[str, Any]:
        """Without what only LightGBM can copy; it is made again from the texts."""
        return {**vars(self), "_boosters": []}


class _Leaves:
    """The leaves of all trees of a model: what each adds, for each tree ``[leaves, f]``."""

    def __init__(self, trees: list[Tree], columns: int) -> None:
        self.added = [tree.added(columns) for tree in trees]
        self.start = sum(tree.start for tree in trees)


def _summed(leaves: np.ndarray, added: list[np.ndarray]) -> np.ndarray:
    """What each column adds ``[b, f]`` in the ``leaves [b, trees]``; a tree at a time, whose leaves the cache holds."""
    total = np.zeros((len(leaves), added[0].shape[1]))
    for of_tree, places in zip(added, np.ascontiguousarray(leaves.T), strict=True):
        total += of_tree.take(places, axis=0)
    return total
