"""What a blocking costs and what it misses."""

from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.core.checks import check_integer


class BlockingQuality(NamedTuple):
    """How good the candidates of a blocking are.

    Attributes:
        recall: share of the related pairs that are candidates; NaN where there are none.
        precision: share of the candidates that are related; NaN where there are none.
        ratio: number of candidates over the number of all pairs of the two tables.
    """

    recall: float
    precision: float
    ratio: float


def blocking_quality(pairs: Tensor, related: Tensor, rows: int, bank_rows: int | None = None) -> BlockingQuality:
    r"""Recall, precision and size of candidate pairs, from lists of pairs; no matrix of all pairs is made.

    Args:
        pairs: whole numbers ``[P, 2]``, positions of rows and bank rows, such as of
            :func:`vicinal.miners.bucket_pairs` or ``miners.nearest(...).nonzero()``. A pair listed twice counts once.
        related: whole numbers ``[Q, 2]``, likewise, what is truly related.
        rows: n, of the first table.
        bank_rows: N, of the other; None: pairs within one table, n (n - 1) / 2, where (i, j) is (j, i).

    Raises:
        TypeError, ValueError: for anything but such pairs.

    >>> blocking_quality(torch.tensor([[0, 1], [1, 2]]), torch.tensor([[2, 1], [0, 2]]), 4)
    BlockingQuality(recall=0.5, precision=0.5, ratio=0.3333333333333333)
    """
    check_integer("rows", rows)
    width = rows if bank_rows is None else check_integer("bank_rows", bank_rows)
    places = []
    for name, value in (("pairs", pairs), ("related", related)):
        if value.is_floating_point() or value.dtype == torch.bool:
            raise TypeError(f"{name}: expected whole numbers, got {value.dtype}")
        if value.ndim != 2 or value.shape[1] != 2:
            raise ValueError(f"{name}: expected [P, 2], a row and a bank row a pair, got shape {tuple(value.shape)}")
        if bool(((value < 0) | (value >= value.new_tensor([rows, width]))).any()):
            raise ValueError(f"{name}: expected positions below {rows} and {width}, got others")
        links = value
        if bank_rows is None:
            links = value.sort(dim=1).values
            links = links[links[:, 0] < links[:, 1]]
        place: Tensor = (links[:, 0] * width + links[:, 1]).unique()  # type: ignore[no-untyped-call]
        places.append(place)
    candidates, true = places
    both = int(torch.isin(candidates, true).sum())
    every = rows * (rows - 1) // 2 if bank_rows is None else rows * width

    def share(number: int, of: int) -> float:
        return number / of if of else float("nan")

    return BlockingQuality(share(both, len(true)), share(both, len(candidates)), share(len(candidates), every))
