"""Wide parts of a table's encoded rows, such as those of texts, reduced to their leading principal components."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_integer

FLAT, FAINT = 1e-13, 1e-10
"""A direction counts as constant below ``FLAT`` times the largest number of its part, or ``FAINT`` times the first."""


class Components(nn.Module):
    r"""A linear map of each wide part x of a row to $V^\top (x - m) / s_1$; the other parts pass as they are.

    m is the mean of the training rows, V their ``min(most, width)`` directions of largest variance, and $s_1$ the
    standard deviation along the first (divided by n): later components stay as much smaller as they are. The entry of
    largest size of each direction is positive. Directions in which the training rows do not differ are zeros, as are
    all of a constant part, and those beyond n - 1.

    Args:
        widths: width of each part of the rows, in their order.
        plain: whether each part passes as it is.
        most: at most how many components a part is reduced to, or a number for each part.
        shared: whether the entries of each part have one length in a kernel, as components have; None: no others.

    Attributes:
        dim: width of its output.

    Raises:
        ValueError: for widths that are not positive, or flags of another number of parts.

    >>> rows = torch.tensor([[7.0, 1.0, 2.0], [8.0, -1.0, -2.0]])
    >>> components = Components([1, 2], [True, False], most=1).fit(rows)
    >>> components(rows)
    tensor([[ 7.,  1.],
            [ 8., -1.]], dtype=torch.float64)
    """

    def __init__(
        self,
        widths: Sequence[int],
        plain: Sequence[bool],
        most: int | Sequence[int] = 30,
        shared: Sequence[bool] | None = None,
    ) -> None:
        super().__init__()
        self.widths = [check_integer("widths", width) for width in widths]
        self.plain = list(plain)
        if not len(self.plain) == len(self.widths) > 0:
            raise ValueError(f"plain: expected one flag for each of 1 or more parts, got {len(plain)} of {len(widths)}")
        self.shared = [not one for one in plain] if shared is None else list(shared)
        each = [check_integer("most", one) for one in ([most] * len(widths) if isinstance(most, int) else most)]
        parts = zip(self.widths, self.plain, each, strict=True)
        self.sizes = [width if passes else min(width, count) for width, passes, count in parts]
        self.dim = sum(self.sizes)
        for part, (width, size) in enumerate(zip(self.widths, self.sizes, strict=True)):
            if not self.plain[part]:
                self.register_buffer(f"mean{part}", torch.zeros(width, dtype=torch.float64))
                self.register_buffer(f"basis{part}", torch.zeros(width, size, dtype=torch.float64))

    @torch.no_grad()
    def fit(self, features: Tensor) -> Self:
        """Take means and directions from training rows ``[n, sum(widths)]``; gives itself.

        Raises:
            ValueError: for no rows, rows of another width, or numbers that are not finite.
        """
        self._check(features)
        if not len(features) or not features.isfinite().all():
            got = "others" if len(features) else "no rows"
            raise ValueError(f"features: expected finite numbers of at least one row, got {got}; fit on training rows")
        for part, rows in enumerate(torch.split(features.double(), self.widths, dim=1)):
            if not self.plain[part]:
                mean, basis = _principal(rows, self.sizes[part])
                self.get_buffer(f"mean{part}").copy_(mean)
                self.get_buffer(f"basis{part}").copy_(basis)
        return self

    def forward(self, features: Tensor) -> Tensor:
        """``[b, dim]`` from ``[b, sum(widths)]``, in float64.

        Raises:
            ValueError: for rows of another width.
        """
        self._check(features)
        parts = [
            rows if self.plain[part] else (rows - self.get_buffer(f"mean{part}")) @ self.get_buffer(f"basis{part}")
            for part, rows in enumerate(torch.split(features.double(), self.widths, dim=1))
        ]
        return torch.cat(parts, dim=1)

    def together(self) -> list[bool]:
        """Whether each entry of the output shares the length of its part ``[dim]``."""
        return [one for one, size in zip(self.shared, self.sizes, strict=True) for _ in range(size)]

    def parts(self) -> list[int]:
        """Numbers ``[dim]`` of the entries of the output from 0 on: those that share a length have the same."""
        numbers, count = list[int](), 0
        for shared, size in zip(self.shared, self.sizes, strict=True):
            numbers += [count] * size if shared else range(count, count + size)
            count += 1 if shared else size
        return numbers

    def _check(self, features: Tensor) -> None:
        if features.ndim != 2 or features.shape[1] != sum(self.widths):
            raise ValueError(f"features: expected [n, {sum(self.widths)}], got {tuple(features.shape)}")

    def extra_repr(self) -> str:
        """Widths, for ``print``."""
        return f"widths={self.widths}, dim={self.dim}"


def _principal(rows: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Mean ``[w]`` of rows ``[n, w]``, and ``[w, size]`` leading directions over the deviation along the first."""
    largest = rows.abs().max().clamp(min=1e-300)  # keeps the squares of huge numbers finite
    scaled = rows / largest
    mean = scaled.mean(dim=0)
    basis = torch.zeros(rows.shape[1], size, dtype=torch.float64, device=rows.device)
    triangle = scaled - mean
    if len(rows) > rows.shape[1]:
        triangle = torch.linalg.qr(triangle, mode="r").R  # of the same directions and lengths, and smaller
    _, lengths, directions = torch.linalg.svd(triangle, full_matrices=False)
    spread = lengths / len(rows) ** 0.5
    some = int((spread > (FAINT * spread[0]).clamp(min=FLAT)).sum().clamp(max=min(size, len(rows) - 1)))
    if some and spread[0] * largest > 1e-300:  # below, the factor would be infinite
        known = directions[:some].T  # [w, some]
        heights = known.abs()
        highest = (heights > (1 - 1e-9) * heights.amax(dim=0)).int().argmax(dim=0)  # the first of equal ones
        signs = known.gather(0, highest[None]).sign()
        basis[:, :some] = known * signs / (spread[0] * largest)
    return mean * largest, basis
