"""The loss that makes nearest neighbors and hash buckets good blocks: two radii, one for each side."""

import math

from vicinal.core import check_between
from vicinal.losses.contract import NUMPY, pair_loss
from vicinal.losses.pairs import Pairs
from vicinal.losses.parts import Part


@pair_loss("nlsh", "row-separable", "soft-relation", paper="arXiv:2401.18064", verified=NUMPY)
def nlsh(pairs: Pairs, *, radius: float = 0.5, factor: float = 2.0) -> tuple[Part, Part]:
    r"""Related pairs within a radius, unrelated ones beyond a multiple of it (neural locality-sensitive hashing).

    $[D_{ip} - R]_+$ for related and $[cR - D_{in}]_+$ for unrelated pairs, with $D = -s$, the distance.

    The paper's loss of a triplet, $\max(R, D_{ip}) - \min(cR, D_{in})$, is the sum of the two plus the constant
    $R(1 - c)$, its least value; without it 0 is the least. Made for negative distances, such as those of hash outputs.
    Where all related pairs are within R and all unrelated ones beyond cR, :func:`vicinal.miners.bucket_pairs` and the
    nearest neighbors find the related pairs.

    Args:
        pairs: scores, relation and weight.
        radius: R > 0, in units of the distance.
        factor: c >= 1; between R and cR neither side is pulled.

    >>> import torch
    >>> nlsh(torch.tensor([[-0.75, -0.75]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.5000)
    """
    check_between("radius", radius, 0, math.inf)
    check_between("factor", factor, 1, math.inf, closed=True)
    near = pairs.terms((-pairs.scores - radius).relu(), pairs.positive)
    return near, pairs.terms((factor * radius + pairs.scores).relu(), pairs.negative)
