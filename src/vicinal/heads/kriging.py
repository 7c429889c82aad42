"""Kriging over the nearest rows: weights of real rows that are solved for given each other."""

import copy
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self, Unpack

import torch
from torch import Tensor, nn

from vicinal.blockwise.blocks import policy, row_slices
from vicinal.blockwise.exclusion import Exclusion, check_some_row
from vicinal.blockwise.nearest import NearestRows
from vicinal.blockwise.topk import Nearest
from vicinal.core import register
from vicinal.core.checks import check_between, check_integer, check_labels, check_matrices
from vicinal.heads.admissible import Identity, IdentityArguments, check_bank_weight, warn_of_own_bank
from vicinal.heads.kriging_weights import kriging_weights, weights_with_slack
from vicinal.similarity.base import resolve_similarity

_LEAST = 1e-6
"""Noise that is always added: without any, equal rows would have no one solution."""

_NO_WEIGHT = 1e-6
"""Weight of all rows together below which none of them counts more than another."""

_FAR = 1e8
"""Squared distance, in squared lengths, from which differences of squares lose what tells near rows apart."""

_MOST_TIES = 1024
"""Rows that are looked at for those of lowest rank among equally near ones; of trees thousands may be alike."""


class KrigingWeights(NamedTuple):
    """The rows that some predictions are made of, and their weights.

    Attributes:
        weights: ``[b, k]``, of the nearest rows, nearest first; they sum to 1.
        positions: ``[b, k]``, their positions in the bank; -1 where a query has fewer admissible rows (weight 0).
        variance: ``[b]``, of the prediction, noise included, in units in which the kernel has variance 1.
        trend: what a trend says of the queries ``[b]`` or ``[b, T]``, which has the weight that is missing to 1, see
            :class:`vicinal.heads.comparables.Comparables`; None: there is none.
        moves: what it adds to the label of each row ``[b, k]`` or ``[b, k, T]``.
        shares: of two heads what the first has of the weight of each row, and last of that of the trend ``[b, k + 1]``,
            see :class:`vicinal.heads.blend.Blend`; None: there is one head.
        later: what a trend says of each class that came after it ``[b]``; None: 0.
    """

    weights: Tensor
    positions: Tensor
    variance: Tensor
    trend: Tensor | None = None
    moves: Tensor | None = None
    shares: Tensor | None = None
    later: Tensor | None = None

    def values(self, labels: Tensor) -> Tensor:
        """Adjusted labels ``[b, k]`` or ``[b, k, T]`` of the rows, from the bank's ``[N]`` or ``[N, T]``, float64."""
        near = labels[self.positions.clamp(min=0)].double()
        return near if self.moves is None else near + _widened(self.moves, near, 2)

    def mean(self, labels: Tensor) -> Tensor:
        """Weighted mean ``[b]`` or ``[b, T]`` of adjusted labels, and of the trend by what is missing to 1.

        Raises:
            ValueError: for labels of other targets than those of the trend.
        """
        mean = torch.einsum("bk,bk...->b...", self.weights, self.values(labels))
        if self.trend is None:
            return mean
        slack = 1 - self.weights.sum(dim=1)
        wide = _widened(torch.einsum("b,b...->b...", slack, self.trend), mean, 1)
        if self.later is not None:
            wide[:, self.trend.shape[1] :] = (slack * self.later)[:, None]
        return mean + wide

    def without_slack(self, labels: Tensor) -> "KrigingWeights":
        """The same mean by weights that sum to 1: the trend's share moves all adjusted labels alike; of one target.

        A trend has one value, but labels spread about it, so what depends on their spread is read from the rows
        alone. Where no row has weight all count alike.
        """
        if self.trend is None or self.moves is None:
            return self
        total, there = self.weights.sum(dim=1, keepdim=True), self.positions >= 0
        even = there / there.sum(dim=1, keepdim=True)
        weights = torch.where(total > _NO_WEIGHT, self.weights / total.clamp(min=_NO_WEIGHT), even)
        apart = self.mean(labels) - (weights * self.values(labels)).sum(dim=1)
        return self._replace(weights=weights, moves=self.moves + apart[:, None])

    def strongest(self, k: int) -> "KrigingWeights":
        """The ``k`` rows of largest absolute weight; positions are -1 where the weight is 0."""
        order = self.weights.abs().argsort(dim=1, descending=True, stable=True)[:, :k]
        best, moves, shares = self.weights.gather(1, order), self.moves, self.shares
        if moves is not None:
            wide = order.reshape(*order.shape, *[1] * (moves.ndim - 2)).expand(*order.shape, *moves.shape[2:])
            moves = moves.gather(1, wide)
        if shares is not None:
            shares = torch.cat([shares.gather(1, order), shares[:, -1:]], dim=1)
        positions = self.positions.gather(1, order).masked_fill(best == 0, -1)
        return KrigingWeights(best, positions, self.variance, self.trend, moves, shares, self.later)

    def largest(self, k: int) -> tuple[Tensor, Tensor]:
        """Weights ``[b, k]`` and positions of :meth:`strongest`."""
        return self.strongest(k)[:2]


def _widened(values: Tensor, like: Tensor, rows: int) -> Tensor:
    """Values, of ``rows`` dimensions and one of targets, in the shape of ``like``: 0 for classes that came later."""
    each, wide = (one if one.ndim > rows else one[..., None] for one in (values, like))
    known, width = each.shape[-1], wide.shape[-1]
    if width < known:
        raise ValueError(f"labels: expected {known} numbers a row as the trend has them, got {width}")
    return nn.functional.pad(each, (0, width - known)).reshape(like.shape)


class Neighborhoods(NamedTuple):
    """Some queries among their nearest rows.

    Attributes:
        part: which queries.
        near: squared distances of queries to rows ``[b, k]``.
        between: of the rows to each other ``[b, k, k]``.
        known: which rows there are ``[b, k]``.
        products: inner products ``[b, k, k]`` of what the rows are apart from the query in their last entries, which
            are then left out of the distances; None: there are no such entries.
        weight: how many equal rows each of the rows counts as ``[b, k]``; None: one.
    """

    part: slice
    near: Tensor
    between: Tensor
    known: Tensor
    products: Tensor | None = None
    weight: Tensor | None = None


def neighborhoods(
    queries: Tensor,
    bank: Tensor,
    positions: Tensor,
    scale: Tensor,
    linear: int = 0,
    bank_weight: Tensor | None = None,
) -> Iterator[Neighborhoods]:
    """Squared distances, in float64, among queries ``[b, d]`` and the rows at ``positions [b, k]``; -1 for none.

    As many queries at a time as fit the block policy. Products give all distances between rows but where a query is
    very far from them: there each is computed by itself.

    Args:
        queries: ``[b, d]``.
        bank: ``[N, d]``.
        positions: ``[b, k]``.
        scale: the least length of the kernels that read them.
        linear: how many of the last entries enter by inner products and not by distances.
        bank_weight: ``[N]`` or None.
    """
    width = positions.shape[1] * max(queries.shape[1], positions.shape[1])
    for part in row_slices(len(queries), max(1, policy().block_entries // max(1, width))):
        at = positions[part]
        apart = bank[at.clamp(min=0)].double() - queries[part].double()[:, None]  # [b, k, d]
        line = apart[..., apart.shape[-1] - linear :]
        apart = apart[..., : apart.shape[-1] - linear]
        near = apart.square().sum(dim=-1)
        between = torch.baddbmm(near[:, :, None] + near[:, None, :], apart, apart.mT, alpha=-2)
        far = near.detach().amax(dim=1) > _FAR * scale.square()
        if bool(far.any()):
            exact = torch.cdist(apart[far], apart[far], compute_mode="donot_use_mm_for_euclid_dist").square()
            between = between.index_put((far,), exact)
        weight = None if bank_weight is None else bank_weight.double()[at.clamp(min=0)]
        yield Neighborhoods(part, near, between, at >= 0, line @ line.mT if linear else None, weight)


@register(
    "head",
    "kriging",
    "common-shift-invariant",
    "rotation-invariant",
    "hard-rejection",
    "convex-hull",
    "permutation-invariant",
    "learned",
    paper="arXiv:2104.14581 (local kriging), arXiv:1910.09383 (non-negative kernel regression)",
    verified="numpy active-set reference, residual 1e-10; gradients against central differences",
)
class Kriging(nn.Module):
    r"""$\hat y = \sum_j w_j y_j$ over the k nearest rows, with weights that know how near these are to each other.

    .. math::
        w = \arg\min_w \tfrac12 w^\top (C + \lambda I) w - w^\top c
        \quad\text{with}\quad \sum_j w_j = 1,\ w \ge 0

    where $C_{jl} = \kappa(\|x_j - x_l\|)$ and $c_j = \kappa(\|q - x_j\|)$ with the Matern kernel $\kappa(d) = (1 +
    \sqrt 3 d/\ell) e^{-\sqrt 3 d/\ell}$. Attention weighs each row by its own nearness; here near copies share one
    weight, and a row hidden behind another gets none, so that few rows make the whole prediction. A prediction costs
    one search and one k by k problem, whatever the size of the bank, and rows that are added or forgotten take effect
    at once.

    Weights are not negative by default, so the prediction lies in the convex hull of the labels, one-hot labels give
    probabilities, and no clipping is needed. The signed form (``convex=False``) is ordinary kriging: it reaches beyond
    the labels of the neighbors.

    The gradient flows to queries, bank and labels, and to the scale and the noise. Which rows are the k nearest, and
    which have weight 0, counts as fixed.

    With ``linear`` the kernel is $\kappa(\|u - u'\|) + v^\top v'$ for embeddings $[u, v]$ whose last ``linear`` entries
    are v: a trend between the rows beside their nearness. Since weights sum to 1, its origin does not matter; it is put
    at the query. The k rows are the nearest by Euclidean distance of $[u, v]$.

    A bank row of weight w (``bank_weight``) has noise $\lambda / w$, exactly as w equal rows of noise $\lambda$ would
    have together if all of them were among the k nearest (where each copy would take a place).

    Args:
        k: how many nearest rows are used, >= 1; at most that many have weight.
        scale: length, in units of the embeddings, at which the kernel has fallen to about a half; > 0, learned.
        noise: lambda >= 0 (1e-6 is added), learned: near 0 the rows around the query have all the weight, and a
            prediction at a row is its label; towards infinity all k weights are 1/k.
        convex: allow no negative weights.
        linear: how many of the last entries of the embeddings enter the kernel by their inner product.
        whole_up_to: in a bank of at most this many rows, use all of them instead of k. Where weights may be negative,
            one inverse then serves all queries: :class:`vicinal.heads.whole_bank.WholeBank`.

    References:
        The signed form in fixed metrics: nearest-neighbor Gaussian processes and MuyGPs (arXiv:2104.14581).
        Non-negative weights, but without the noise and the sum of 1: non-negative kernel regression, NNK
        (arXiv:1910.09383).

    >>> bank, labels = torch.tensor([[0.0], [0.0], [1.0]]), torch.tensor([0.0, 0.0, 1.0])
    >>> head = Kriging(k=3, noise=1e-6)
    >>> head(torch.tensor([[0.5]]), bank, labels).detach()  # the two equal rows share one weight
    tensor([0.5000])
    """

    uses_bank = True
    can_stream = True
    slack = False
    """Whether weights may sum to less than 1."""

    def __init__(
        self,
        k: int = 32,
        *,
        scale: float = 1.0,
        noise: float = 0.3,
        convex: bool = True,
        linear: int = 0,
        whole_up_to: int = 0,
    ) -> None:
        super().__init__()
        self.k, self.convex = check_integer("k", k), bool(convex)
        self.whole_up_to = check_integer("whole_up_to", whole_up_to, 0)
        self.linear = check_integer("linear", linear, 0)
        scale = check_between("scale", scale, 0, math.inf)
        noise = check_between("noise", noise, 0, math.inf, closed=True)
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale), dtype=torch.float64))
        self.log_noise = nn.Parameter(torch.tensor(math.log(max(noise, _LEAST)), dtype=torch.float64))
        self.similarity = resolve_similarity("l2")

    def extra_repr(self) -> str:
        """The settings, as they are now."""
        scale, noise = self.log_scale.exp().item(), self.log_noise.exp().item()
        names = ("linear", "whole_up_to")
        rest = "".join(f", {name}={getattr(self, name)}" for name in names if getattr(self, name))
        return f"k={self.k}, scale={scale:.4g}, noise={noise:.4g}, convex={self.convex}{rest}"

    def with_kernel(self, scale: float, noise: float) -> Self:
        """The same head with another length and noise."""
        head = copy.deepcopy(self)
        with torch.no_grad():
            head.log_scale.fill_(math.log(scale))
            head.log_noise.fill_(math.log(max(noise, _LEAST)))
        return head

    def with_rows(self, k: int) -> Self:
        """The same head over so many rows at most, whatever the bank."""
        head = copy.deepcopy(self)
        head.k = check_integer("k", k)
        head.whole_up_to = min(head.whole_up_to, k)
        return head

    def with_trend(self, local: KrigingWeights, queries: Tensor, bank: Tensor) -> KrigingWeights:
        """Weights of queries ``[b, d]`` over rows of ``bank [N, d]`` with what a trend adds; here there is none."""
        return local

    def looked_at(self, rows: int) -> int:
        """How many rows are used of a bank of ``rows`` rows."""
        return rows if rows <= self.whole_up_to else min(self.k, rows)

    def by_one_inverse(self, rows: int) -> bool:
        """Whether one inverse serves all queries: all ``rows`` of the bank are used, and weights may be negative."""
        return not self.convex and rows <= self.whole_up_to

    def noise(self) -> Tensor:
        """What is added to the kernel of a row with itself."""
        return self.log_noise.double().exp() + _LEAST

    def covariance(self, squared: Tensor) -> Tensor:
        """The kernel of squared distances, of any shape."""
        distance = (squared.clamp(min=1e-30) * (3 * (-2 * self.log_scale.double()).exp())).sqrt()
        falling = (-distance).exp()
        return torch.addcmul(falling, distance, falling)

    @torch.no_grad()
    def nearest(
        self,
        queries: Tensor,
        bank: Tensor,
        identity: Identity,
        prepared: NearestRows | None = None,
        ranks: Tensor | None = None,
    ) -> Tensor:
        """Positions ``[b, k]`` of the nearest admissible rows, nearest first; -1 where there are no more.

        Args:
            queries: ``[b, d]``.
            bank: ``[N, d]``.
            identity: ids and groups of queries and bank.
            prepared: the search structure of this bank, if there is one; None: it is computed.
            ranks: integers ``[N]``; among equally near rows the lower rank goes first, so that the order of the bank
                does not matter; None: the earlier position goes first.

        Raises:
            ValueError: if a query has no admissible row.
        """
        keys = identity.keys(len(queries), len(bank))
        if len(bank) == 0:
            raise ValueError("bank: expected at least one row, got an empty bank")
        if len(queries) == 0:
            return torch.zeros(0, self.looked_at(len(bank)), dtype=torch.int64, device=bank.device)
        known, k = NearestRows(bank.detach()) if prepared is None else prepared, self.looked_at(len(bank))
        queries, bank = queries.detach(), bank.detach()
        best = known.search(queries, bank, k + (ranks is not None), Exclusion(keys))
        check_some_row(best.values[:, 0])
        if ranks is not None:
            best = _by_rank(best, k, queries, bank, keys, known, ranks)
        return best.positions.masked_fill(best.values == torch.inf, -1)

    def solve(
        self,
        near: Tensor,
        between: Tensor,
        known: Tensor | None = None,
        products: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Weights ``[b, k]`` and variances ``[b]`` of queries over their own rows.

        Args:
            near: squared distances of queries to rows ``[b, k]``.
            between: squared distances of the rows to each other ``[b, k, k]``.
            known: boolean ``[b, k]``, which of the rows exist, at least one for each query; None: all.
            products: ``[b, k, k]``, the linear part of the kernel between the rows, its origin at the query; None: 0.
            weight: ``[b, k]``, > 0, how many equal rows each row counts as: its noise is divided by it.
        """
        return next(solve_each([self], near, between, known, products, weight))

    def system(
        self, near: Tensor, between: Tensor, products: Tensor | None = None, weight: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The matrix ``[b, k, k]`` and vector ``[b, k]`` of :func:`kriging_weights`; see :meth:`solve`."""
        noise = self.noise()
        matrix = self.covariance(between.double())
        matrix = matrix if products is None else matrix + products.double()
        matrix.diagonal(dim1=1, dim2=2).add_(noise if weight is None else noise / weight)
        return matrix, self.covariance(near.double())

    def weights_of(
        self, queries: Tensor, bank: Tensor, positions: Tensor, bank_weight: Tensor | None = None
    ) -> KrigingWeights:
        """Weights of queries ``[b, d]`` over the bank rows at ``positions [b, k]``, such as an index has found.

        A position is -1 where a query has fewer rows; each query needs at least one. See :meth:`local_weights`.
        """
        with torch.autocast(queries.device.type, enabled=False):
            scale = self.log_scale.detach().exp()
            near = neighborhoods(queries, bank, positions, scale, self.linear, bank_weight)
            solved = [self.solve(*some[1:]) for some in near]
        weights, variances = zip(*solved, strict=True)
        return self.with_trend(KrigingWeights(torch.cat(weights), positions, torch.cat(variances)), queries, bank)

    @torch.no_grad()
    def means_of_first(
        self,
        counts: Sequence[int],
        queries: Tensor,
        bank: Tensor,
        labels: Tensor,
        positions: Tensor,
        bank_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Predictions ``[c, b]`` or ``[c, b, T]`` by signed weights of so many of the first rows at ``positions``.

        One factor $M = L L^\top$ serves all counts, as that of the first rows is a corner of it. With $u, v, z = L^{-1}
        (c, 1, Y)$ and sums over the first rows $\hat y = \sum u z - \mu \sum v z$, $\mu = (\sum u v - 1) / \sum v^2$.
        """
        scale, means = self.log_scale.exp(), []
        known = labels.double().reshape(len(labels), -1)
        for some in neighborhoods(queries, bank, positions, scale, self.linear, bank_weight):
            matrix, vector = self.system(some.near, some.between, some.products, some.weight)
            there = some.known.to(vector)
            matrix = matrix * there[:, :, None] * there[:, None, :] + torch.diag_embed(1 - there)
            sides = torch.cat([torch.stack([vector, there], dim=2), known[positions[some.part]]], dim=2)
            sides *= there[:, :, None]
            solved = torch.linalg.solve_triangular(
                torch.linalg.cholesky_ex(matrix).L, sides, upper=False
            )  # [b, k, 2 + T]
            of_vector, of_ones = ((solved[:, :, [one]] * solved[:, :, 1:]).cumsum(dim=1) for one in (0, 1))
            multiplier = (of_vector[:, :, :1] - 1) / of_ones[:, :, :1]
            means.append((of_vector - multiplier * of_ones)[:, [count - 1 for count in counts], 1:])
        return torch.cat(means).movedim(1, 0).reshape(len(counts), -1, *labels.shape[1:])

    def local_weights(
        self,
        queries: Tensor,
        bank: Tensor,
        **identity: Unpack[IdentityArguments],
    ) -> KrigingWeights:
        """The k nearest rows of each query and their weights: all that a prediction is made of.

        Args:
            queries: ``[b, d]``.
            bank: ``[N, d]``.
            identity: integers ``query_ids [b]`` together with ``bank_ids [N]``: a query never attends to a row with its
                own id; ``query_groups`` with ``bank_groups``: nor to a row of its own group; ``bank_weight [N]``, > 0:
                how many equal rows each bank row counts as.

        Returns:
            float64, differentiable.

        Raises:
            ValueError: if a query has no admissible bank row, or shapes do not agree.
        """
        who = Identity(**identity)
        check_matrices(queries, bank)
        warn_of_own_bank(self, queries, bank, *who[:4])
        check_bank_weight(who.bank_weight, len(bank))
        return self.weights_of(queries, bank, self.nearest(queries, bank, who), who.bank_weight)

    def forward(self, queries: Tensor, bank: Tensor, labels: Tensor, **identity: Unpack[IdentityArguments]) -> Tensor:
        """Weighted mean of the labels.

        Args:
            queries: ``[b, d]``.
            bank: ``[N, d]``.
            labels: ``[N]``, or ``[N, T]`` for several targets or one-hot classes; floating.
            identity: ids, groups and weights: see :meth:`local_weights`.

        Returns:
            ``[b]`` or ``[b, T]``.
        """
        check_matrices(queries, bank)
        check_labels(labels, bank.shape[0])
        prediction = self.local_weights(queries, bank, **identity).mean(labels)
        return prediction.to(torch.promote_types(torch.promote_types(queries.dtype, bank.dtype), labels.dtype))

    def weights(self, queries: Tensor, bank: Tensor, **identity: Unpack[IdentityArguments]) -> Tensor:
        """Weight of each bank row ``[b, N]``, 0 for all but k: see :meth:`local_weights`, which gives only those."""
        weights, positions = self.local_weights(queries, bank, **identity)[:2]
        known = positions >= 0
        dense = weights.new_zeros(len(queries), bank.shape[0])
        dense = dense.scatter_add(1, positions.clamp(min=0), weights * known)
        return dense.to(torch.promote_types(queries.dtype, bank.dtype))

    @torch.no_grad()
    def top_weights(
        self, queries: Tensor, bank: Tensor, k: int, **identity: Unpack[IdentityArguments]
    ) -> tuple[Tensor, Tensor]:
        """The ``k`` bank rows of largest absolute weight: weights ``[b, k]`` and positions, -1 where that is 0."""
        return self.local_weights(queries, bank, **identity).largest(check_integer("k", k))


def solve_each(
    heads: Sequence[Kriging],
    near: Tensor,
    between: Tensor,
    known: Tensor | None = None,
    products: Tensor | None = None,
    weight: Tensor | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """:meth:`Kriging.solve` of each of ``heads``, all convex or none, as many at a time as fit the block policy."""
    count = len(near)
    together = max(1, policy().block_entries // max(1, between.numel()))
    for first in range(0, len(heads), together):
        some = heads[first : first + together]
        systems = [head.system(near, between, products, weight) for head in some]
        matrix, vector = systems[0] if len(some) == 1 else map(torch.cat, zip(*systems, strict=True))
        allowed = known if known is None or len(some) == 1 else known.repeat(len(some), 1)
        solve = weights_with_slack if some[0].slack else kriging_weights
        weights = solve(matrix, vector, allowed, convex=some[0].convex)[0]  # [heads * b, k]
        covered = (weights * vector).sum(dim=1)
        spread = ((matrix @ weights[:, :, None])[:, :, 0] * weights).sum(dim=1)
        for head, *parts in zip(some, *(torch.split(each, count) for each in (weights, covered, spread)), strict=True):
            yield parts[0], 1 + head.noise() - 2 * parts[1] + parts[2]


def _by_rank(
    best: Nearest,
    k: int,
    queries: Tensor,
    bank: Tensor,
    keys: list[tuple[Tensor, Tensor]],
    prepared: NearestRows,
    ranks: Tensor,
) -> Nearest:
    """The ``k`` nearest rows by distance, then rank, from the ``k + 1`` nearest; looks on where more are as near.

    Up to 1,024 rows: where more are as near as each other, those of the first positions are taken.
    """
    k = min(k, best.values.shape[1])
    chosen, cut = _first(best, k, ranks), best.values[:, k - 1]
    open_rows = ((best.values[:, -1] == cut) & (cut < torch.inf)).nonzero()[:, 0]
    width = best.values.shape[1]
    most = min(len(bank), max(_MOST_TIES, 2 * k))
    while len(open_rows) and k < width < most:
        width = min(2 * width, most)
        part = Exclusion([(of_queries[open_rows], of_bank) for of_queries, of_bank in keys])
        wide = prepared.search(queries[open_rows], bank, width, part)
        first = _first(wide, k, ranks)
        chosen.values[open_rows], chosen.positions[open_rows] = first.values, first.positions
        open_rows = open_rows[wide.values[:, -1] == cut[open_rows]]
    return chosen


def _first(nearest: Nearest, k: int, ranks: Tensor) -> Nearest:
    """The first ``k`` rows by distance, then rank."""
    order = ranks[nearest.positions.clamp(min=0)].argsort(dim=1, stable=True)
    order = order.gather(1, nearest.values.gather(1, order).argsort(dim=1, stable=True))[:, :k]
    return Nearest(nearest.values.gather(1, order), nearest.positions.gather(1, order))
