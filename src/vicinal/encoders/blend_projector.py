"""Two metrics of columns side by side, trees and a kernel, for a readout that blends them."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from vicinal.encoders.kernel_projector import KernelProjector, TrendProjector
from vicinal.encoders.stacked_projector import StackedProjector
from vicinal.encoders.table import TableEncoder
from vicinal.encoders.tree_columns import LinearColumns


class BlendColumns:
    """What trees read of a table, and behind it what a kernel reads, its encoded rows.

    Args:
        reader: of the trees.
    """

    def __init__(self, reader: LinearColumns) -> None:
        self.reader, self.width = reader, len(reader.names) + len(reader.further)

    def prepare(self, encoder: TableEncoder, frame: pd.DataFrame, inputs: Any = None) -> Any:
        """See :meth:`TreeColumns.prepare`."""
        return self.reader.prepare(encoder, frame, inputs)

    def __call__(self, encoder: TableEncoder, batch: Any) -> Tensor:
        """``[b, width + p]``, float64, of a batch of prepared columns."""
        encoder.eval()
        return torch.cat([self.reader(encoder, batch), encoder(batch).double()], dim=1)


class BlendProjector(nn.Module):
    """The vectors of two projectors side by side; a row of the fit is embedded by the folds that left it out.

    Args:
        trees: fitted.
        kernel: fitted, with a trend of the same folds and targets, or without one.
        trended: whether each of them is read out by its trend.

    Raises:
        ValueError: for projectors of other folds or targets.

    Attributes:
        widths: entries of each.
        names: the column of the table that each entry of the trends that are read comes from.
    """

    linear = 0
    cross_fitted = True

    def __init__(
        self, trees: StackedProjector, kernel: TrendProjector | KernelProjector, trended: Sequence[bool] = (True, True)
    ) -> None:
        super().__init__()
        if isinstance(kernel, TrendProjector) and (trees.folds, trees.targets) != (kernel.folds, kernel.targets):
            raise ValueError(
                f"kernel: expected {trees.folds} folds and {trees.targets} targets as the trees have, got "
                f"{kernel.folds} and {kernel.targets}"
            )
        self.trees, self.kernel, self.reader = trees, kernel, BlendColumns(trees.reader)
        self.folds, self.targets = trees.folds, trees.targets
        self.widths = [trees.dim, kernel.dim]
        self.dim = sum(self.widths)
        of_kernel = kernel.names if isinstance(kernel, TrendProjector) else []
        self.names = [*trees.names] * trended[0] + of_kernel * trended[1]

    @property
    def texts(self) -> list[list[str]]:
        """See :attr:`StackedProjector.texts`."""
        return self.trees.texts

    def forward(self, columns: Tensor, folds: Tensor | None = None) -> Tensor:
        """``[b, dim]``, float64, of what :class:`BlendColumns` reads; ``folds [b]`` as of trees."""
        of_trees, encoded = columns[:, : self.reader.width], columns[:, self.reader.width :]
        known = (encoded, folds) if isinstance(self.kernel, TrendProjector) else (encoded,)
        return torch.cat([self.trees(of_trees, folds), self.kernel(*known)], dim=1)
