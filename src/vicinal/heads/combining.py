"""Where what one process has found in its part of the bank meets what the others have found in theirs."""

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from vicinal.heads.attending import Sums
    from vicinal.heads.extremes import Range


class Combine:
    """One process that holds the whole bank: nothing to combine. See :mod:`vicinal.heads.sharded` for several."""

    alone = True

    def rows(self, own: int) -> int:
        """Rows of the whole bank."""
        return own

    def center(self, sample: Tensor) -> Tensor:
        """Mean ``[d]`` of sampled bank rows ``[m, d]``."""
        return sample.mean(dim=0)

    def range(self, found: "Range") -> None:
        """Widen the range of each row, in place."""

    def nearest(self, values: Tensor, k: int) -> Tensor:
        """The ``k`` lowest values of each row, ascending, from the lowest ``[b, <= k]`` of this process."""
        return values

    def nearest_rows(self, values: Tensor, positions: Tensor, k: int, offset: int) -> tuple[Tensor, Tensor]:
        """The same with the ``positions`` of the rows, to which ``offset`` is added."""
        return values, positions + offset

    def online(self, best: Tensor, sums: "Sums") -> Tensor:
        """Lowest costs ``[b, 1]``; the ``sums``, which are relative to those of this process, follow in place."""
        return best

    def sums(self, sums: "Sums") -> None:
        """Add up sums, in place."""

    def add(self, *values: Tensor) -> list[Tensor]:
        """The sum of each of the ``values``."""
        return list(values)

    def most(self, value: Tensor) -> Tensor:
        """The largest of a ``value`` of each process."""
        return value

    def mean(self, gradient: Tensor) -> Tensor:
        """Mean of a gradient."""
        return gradient


ALONE = Combine()
