"""The kriging readout of a trained metric: how its scale and noise are chosen, on rows held out."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from vicinal.estimators.bank import Bank
from vicinal.heads import Kriging
from vicinal.heads.admissible import Identity
from vicinal.heads.kinds import blends, weighs_locally
from vicinal.heads.kriging import KrigingWeights, neighborhoods, solve_each
from vicinal.heads.whole_bank import WholeBank
from vicinal.training import NeighborNetwork
from vicinal.training.error import error_of

SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Lengths of the kernel that are tried, in median distances between rows of the bank."""

NOISES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Noises that are tried."""

USUAL = 1.0, 0.3
"""Scale and noise of few rows unless others are surely better: those of the least error of 120 rows held out had 1 %
more error on others, on 24 splits of frozen vectors."""

SURELY = 2.0
"""Standard errors by which another choice must predict better than the usual one, or all rows than few."""

MOST = 1024
"""Rows held out that the choice is made on, and between which the median distance is taken; out of fold four times."""

LARGE = 1 << 15
"""Rows from which on a bank is read a block at a time; the weights of fewer are held for some queries at a time."""

COMPARED = 1 << 13
"""Rows up to which attention, which reads them all for each member, is compared with kriging, one search for all."""


class Tried(NamedTuple):
    """What candidates said of rows held out, or of all rows by the members that leave out their folds.

    Attributes:
        heads: the candidates.
        error: of each for each row ``[T, n]``.
        codes: the fold ``[n]`` of each row; 0 of rows held out.
    """

    heads: Sequence[Kriging]
    error: Tensor
    codes: Tensor

    def without(self, fold: int) -> "Tried":
        """The same of the rows of other folds."""
        others = self.codes != fold
        return Tried(self.heads, self.error[:, others], self.codes[others])

    def choice(self) -> Kriging:
        """The usual one, the first, unless others are surely better: then the one of least error of these.

        Few rows are held out, and the luckiest of 35 is seldom the best. Signed weights go by error alone.
        """
        total = self.error.sum(dim=1)
        if self.heads[0].convex:
            sure = [surely_less(one, self.error[0], torch.ones_like(one)) for one in self.error]
            total = total.masked_fill(~torch.tensor([True, *sure[1:]]), torch.inf)
        return self.heads[int(total.argmin())].eval()


@torch.no_grad()
def local_weights(head: Kriging, bank: Bank, queries: Tensor, identity: Mapping[str, Tensor | None]) -> KrigingWeights:
    """The weights of the bank's rows for embedded queries ``[b, d]``, with what the bank holds prepared.

    Of equally near rows those of lower keys go first, so that it changes nothing where rows stand in the bank.
    """
    each = [_weights(one, bank, vectors, some, identity) for one, vectors, some in _each(head, bank, queries)]
    return head.mean_of(*each) if blends(head) else each[0]


@torch.no_grad()
def local_means(
    head: Kriging, bank: Bank, labels: Tensor, queries: Tensor, identity: Mapping[str, Tensor | None]
) -> Tensor:
    """Predictions ``[b]`` or ``[b, T]`` by these weights; of two heads without the weights of both in one matrix."""
    means = list[Tensor]()
    for one, vectors, some in _each(head, bank, queries):
        if one.by_one_inverse(len(bank)):
            means.append(bank.whole(one, vectors).means_of(some, labels, Identity(**identity)))
        else:
            means.append(_weights(one, bank, vectors, some, identity).mean(labels))
    return torch.lerp(means[1], means[0], head.share) if blends(head) else means[0]


def _each(head: Kriging, bank: Bank, queries: Tensor) -> list[tuple[Kriging, Tensor, Tensor]]:
    """Each head of a mean, or the head alone, with what it reads of the bank and of queries."""
    if not blends(head):
        return [(head, bank.vectors, queries)]
    return list(zip(head.members(), head.parts(bank.vectors), head.parts(queries), strict=True))


def _weights(
    head: Kriging, bank: Bank, vectors: Tensor, queries: Tensor, identity: Mapping[str, Tensor | None]
) -> KrigingWeights:
    """The same of a head that reads ``vectors [N, d]``, those of the bank or a part of them."""
    if head.by_one_inverse(len(bank)):
        return bank.whole(head, vectors).weights_of(queries, Identity(**identity))
    prepared = bank.prepared() if vectors.shape[1] == bank.vectors.shape[1] else None
    positions = head.nearest(queries, vectors, Identity(**identity), prepared, bank.store.keys)
    return head.weights_of(queries, vectors, positions, identity.get("bank_weight"))


@torch.no_grad()
def predicted_over(
    network: NeighborNetwork, queries: Tensor, bank: Tensor, labels: Tensor, identity: Mapping[str, Tensor | None]
) -> Tensor:
    """Predictions ``[b]`` or ``[b, K]`` of a network over rows ``bank [N, d]`` that no bank holds."""
    head = network.head
    if weighs_locally(head) and head.by_one_inverse(len(bank)):
        whole = WholeBank(head, bank, identity.get("bank_weight"))
        return whole.means_of(queries, labels, Identity(**identity))
    return network.predict(queries, bank, labels, **identity)


def surely_less(errors: Tensor, others: Tensor, mass: Tensor, share: float = 0.0, sure: float = SURELY) -> bool:
    """Whether errors ``[b]`` of rows are less than others by more than a share, and so many standard errors of that."""
    unit = torch.maximum(errors, others).amax().clamp(min=torch.finfo(errors.dtype).tiny)  # squares would underflow
    errors, others, mass = errors / unit, others / unit, mass / mass.sum()
    gains = others - errors
    gain = (gains * mass).sum()
    spread_of_rows = ((gains - gain) * mass).square().sum() * len(gains) / max(1, len(gains) - 1)
    return bool(gain > torch.maximum(sure * spread_of_rows.sqrt(), share * (others * mass).sum()))


def candidates(head: Kriging, bank: Tensor) -> list[Kriging]:
    """Heads of all scales and noises that are tried, the usual ones first; scales in median distances of the bank."""
    sample = bank[:: max(1, -(-len(bank) // MOST))].double()
    unit = float(torch.pdist(sample).median()) if len(sample) > 1 else 1.0
    unit = unit if unit > 0 else 1.0
    places = sorted(product(SCALES, NOISES), key=lambda place: place != USUAL)
    return [head.with_kernel(scale * unit, noise) for scale, noise in places]


@torch.no_grad()
def errors_of(
    tried: Sequence[nn.Module],
    queries: Tensor,
    truth: Tensor,
    bank: Tensor,
    labels: Tensor,
    identity: Mapping[str, Tensor | None],
    mass: Tensor,
    *,
    numbers: bool,
    strongest: int = 1,
    positions: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Of each of ``tried``, for queries ``[n, d]`` from the rows of ``bank [N, d]``: error and share of a few rows.

    Each query counts by its ``mass [n]``, and is predicted from its nearest rows, at ``positions [n, k]`` if known.

    Returns:
        errors ``[T, n]``, and weights of the ``strongest`` rows ``[T, n]``.
    """
    heads = [one for one in tried if weighs_locally(one)]
    queries, truth = queries.double(), truth.double()
    positions = heads[0].nearest(queries, bank, Identity(**identity)) if positions is None else positions
    error, shares = torch.zeros(2, len(heads), len(queries), dtype=torch.float64)
    mass = mass.double()
    scale = torch.stack([one.log_scale for one in heads]).amin().exp()
    for some in neighborhoods(queries, bank, positions, scale, bank_weight=identity.get("bank_weight")):
        for number, (weights, variance) in enumerate(solve_each(heads, *some[1:])):
            local = KrigingWeights(weights, positions[some.part], variance)
            prediction = heads[number].with_trend(local, queries[some.part], bank).mean(labels)
            error[number, some.part] = error_of(prediction, truth[some.part], numbers=numbers) * mass[some.part]
            shares[number, some.part] = weights.topk(min(strongest, weights.shape[1]), dim=1).values.sum(dim=1)
    shares *= mass
    return error, shares
