"""From the columns of a table to what each of them adds to boosted trees, in units of the labels."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.encoders.tree_columns import TreeColumns
from vicinal.encoders.tree_sums import TreeSums
from vicinal.encoders.tree_text import read_trees, written

_ROWS = 8192
"""Rows that are looked up together."""


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
        trees = [read_trees(text, self.trend) for fold in texts for text in fold]
        self._models = trees
        self.trees = TreeSums(trees, self.trend)
        self.dim = self.targets * (1 + self.trend)
        starts = torch.tensor([sum(tree.start for tree in model) for model in trees], dtype=torch.float64)
        self.base = starts.view(self.folds, self.targets).mean(dim=0)
        self.unit = torch.ones(self.targets, dtype=torch.float64)

    @property
    def texts(self) -> list[list[str]]:
        """Of each fold the model of each target, written anew from what was read."""
        each = [written(trees, self.trend) for trees in self._models]
        return [each[start : start + self.targets] for start in range(0, len(each), self.targets)]

    def forward(self, columns: Tensor, folds: Tensor | None = None) -> Tensor:
        """``[b, dim]``, float64, of ``columns [b, f]``.

        Args:
            columns: as ``reader`` makes them.
            folds: ``[b]``, the fold whose model alone is asked; -1: all of them. None: all, for every row.
        """
        rows, codes = columns.double().numpy(), torch.full((len(columns),), -1) if folds is None else folds
        entries = torch.zeros(len(rows), self.targets, self.trend, dtype=torch.float64)
        for start in range(0, len(rows), _ROWS):
            block = slice(start, start + _ROWS)
            places, to = self.trees.places(rows[block]), entries[block]
            for fold in range(self.folds):
                share = torch.where(codes[block] < 0, 1 / self.folds, (codes[block] == fold).double())
                at = share.nonzero()[:, 0]
                some = places if len(at) == len(to) else places.of(at.numpy())
                for target in range(self.targets if len(at) else 0):
                    added = torch.from_numpy(self.trees.sums(fold * self.targets + target, some))
                    to[at, target] += share[at, None] * added
        return torch.cat([entries.sum(dim=2), entries.flatten(1)], dim=1)

    def extra_repr(self) -> str:
        """Counts, for ``print``."""
        return f"folds={self.folds}, targets={self.targets}, columns={self.trend}"
