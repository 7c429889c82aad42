"""Vectors of ids that are as wide as their frequency deserves: dimensions are weighed while training, then cut."""

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer, check_tensor
from vicinal.encoders.id_tables import check_ids


class SelectedIdTable(nn.Module):
    r"""Learned vectors of ids, weighed by dimension and by block of ids of like frequency: $\alpha_{b(i)} \odot T_i$.

    Train ``selection`` on different rows than the other parameters, alternating steps, so that a dimension that only
    helps to memorize loses its weight; :meth:`even_gradients` before each of its steps keeps rare ids from being left
    behind. A ridge on ``table``, and weights clamped to [0, 1], keep the two from undoing each other. Then
    :meth:`folded` cuts the dimensions with the smallest weights, block by block, and leaves a plain table.

    Args:
        counts: how often each id occurs, ``[size]``, >= 0.
        dim: width of the vectors.
        blocks: number of blocks, with equally many ids each, the most frequent ids first.

    Paper: arXiv:2006.04466; the layer is that of its authors' AutoSrh, arXiv:2208.08004.

    >>> table = SelectedIdTable(torch.tensor([9, 1, 5, 2]), 3, blocks=2)
    >>> with torch.no_grad():
    ...     _ = table.selection[1, 1:].fill_(0.1)  # ids 3 and 1, which are rare
    >>> small = table.folded(8)
    >>> small.widths(), small.parameter_count(), bool((small(torch.tensor([0])) == table(torch.tensor([0]))).all())
    ([3, 1], 8, True)
    """

    def __init__(self, counts: Tensor, dim: int, *, blocks: int = 8) -> None:
        super().__init__()
        if check_tensor("counts", counts).ndim != 1 or not len(counts) or not bool((counts >= 0).all()):
            raise ValueError(f"counts: expected numbers of at least 0, one an id, got {tuple(counts.shape)} or below")
        self.dim = check_integer("dim", dim)
        check_integer("blocks", blocks, 1, len(counts))
        order = counts.argsort(descending=True, stable=True)
        block = torch.empty_like(order)
        for number, some in enumerate(order.tensor_split(blocks)):
            block[some] = number
        self.block: Tensor = nn.Buffer(block)
        self.table = nn.Parameter(torch.randn(len(counts), dim) / dim**0.5)
        self.selection = nn.Parameter(torch.ones(blocks, dim))

    def forward(self, ids: Tensor) -> Tensor:
        """``[..., dim]`` of whole numbers ``[...]``."""
        check_ids(ids, len(self.table))
        return self.selection[self.block[ids]] * self.table[ids]

    @torch.no_grad()
    def even_gradients(self) -> None:
        """Scale the gradient of each block's weights to length 1, as rare ids send less; 0 stays 0."""
        if self.selection.grad is not None:
            self.selection.grad /= self.selection.grad.norm(dim=1, keepdim=True).clamp(min=1e-12)

    @torch.no_grad()
    def folded(self, budget: int) -> "FoldedIdTable":
        """A table of at most ``budget`` numbers: of all weights of blocks and dimensions those of least size are cut.

        Raises:
            ValueError: for a budget above the size of the table or too small for any vector, or weights that are not
                finite.
        """
        check_integer("budget", budget, 1, self.table.numel())
        if not bool(self.selection.isfinite().all()):
            raise ValueError("selection: expected finite weights, got nan or inf; train with a lower rate")
        sizes = torch.bincount(self.block, minlength=len(self.selection))
        order = self.selection.abs().flatten().argsort(descending=True, stable=True)
        fits = sizes[order // self.dim].cumsum(0) <= budget
        if not bool(fits.any()):
            raise ValueError(f"budget: expected at least {int(sizes[order[0] // self.dim])}, one a row, got {budget}")
        stays = torch.zeros(self.selection.numel(), dtype=torch.bool, device=order.device)
        stays[order[fits]] = True
        stays = stays.reshape(self.selection.shape)
        whole = self.selection[self.block] * self.table
        return FoldedIdTable(whole[stays[self.block]], stays, self.block)


class FoldedIdTable(nn.Module):
    """Vectors of ids that have some dimensions by block, and 0 in the others; see :class:`SelectedIdTable`.

    Args:
        values: the dimensions that each id has, one id after another.
        stays: boolean ``[blocks, dim]``, which dimensions a block has.
        block: of each id, ``[size]``.
    """

    def __init__(self, values: Tensor, stays: Tensor, block: Tensor) -> None:
        super().__init__()
        self.values = nn.Parameter(values)
        self.stays: Tensor = nn.Buffer(stays)
        self.block: Tensor = nn.Buffer(block)
        widths = stays.sum(1)[block]
        self.start: Tensor = nn.Buffer(widths.cumsum(0) - widths, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """``[..., dim]`` of whole numbers ``[...]``."""
        check_ids(ids, len(self.block))
        there = self.stays[self.block[ids]]
        place = self.start[ids][..., None] + there.cumsum(-1) - 1
        return torch.where(there, self.values[torch.where(there, place, 0)], 0.0)

    def widths(self) -> list[int]:
        """Dimensions of each block, the most frequent ids first."""
        return [int(each) for each in self.stays.sum(1)]

    def parameter_count(self) -> int:
        """How many numbers are learned."""
        return self.values.numel()
