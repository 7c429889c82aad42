"""Several heads side by side: each reads its own part of the embeddings, and their mean is the prediction.

Over a large bank, the highest weights of the mean and its quantiles are found without a matrix of weights.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vicinal.blockwise.attention import Attended
from vicinal.blockwise.blocks import policy
from vicinal.blockwise.distances import distances
from vicinal.blockwise.nearest import lowest_rows
from vicinal.blockwise.quantiles import attended_quantiles
from vicinal.blockwise.resolution import Resolution
from vicinal.core.checks import check_between, check_integer, check_labels, check_matrices
from vicinal.heads.admissible import Identity, check_bank_weight, check_some, warn_of_own_bank
from vicinal.heads.nona import NONA, heaviest, mean_label
from vicinal.index.pairs import pair_score
from vicinal.masks import SoftStep, softmax
from vicinal.masks.softstep import parameters_from_logits
from vicinal.similarity.base import resolution_of
from vicinal.similarity.distances import NegativeL2, NegativeSquaredL2

_FEWEST = 32
"""Queries that are predicted at a time, at least."""

_FIRST = 64
"""Rows of each member that the highest of the mean are looked for among at first."""


class Ensemble(nn.Module):
    r"""$\hat y_i = \frac{1}{M} \sum_m \hat y_i^m$, with head m on columns $md$ to $(m + 1)d$ of the embeddings.

    For neighbor heads this is one set of weights, $p_{ij} = \frac{1}{M} \sum_m p_{ij}^m$, which sum to 1, so an
    explanation reads like that of a single head. Train each member on its own error (:meth:`each`), not on the error of
    the mean: members that only fit together do not average their mistakes away.

    Args:
        heads: at least one, all of the same kind (:class:`NONA` or :class:`Dense`), for embeddings of width d.

    Raises:
        ValueError: if there are no heads, or if some use the bank and others do not.

    >>> from vicinal.heads import NONA
    >>> head = Ensemble([NONA(), NONA("squared_l2")])
    >>> bank, labels = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([0.0, 1.0])
    >>> head(torch.tensor([[0.0, 1.0]]), bank, labels)
    tensor([0.5000])
    """

    def __init__(self, heads: Sequence[nn.Module]) -> None:
        super().__init__()
        if not heads:
            raise ValueError("heads: expected at least one head, got none")
        if len({bool(head.uses_bank) for head in heads}) > 1:
            raise ValueError("heads: expected all to use the bank or none, got some of both")
        self.heads = nn.ModuleList(heads)

    @property
    def uses_bank(self) -> bool:
        """Whether the members do."""
        return bool(self.heads[0].uses_bank)

    @property
    def can_stream(self) -> bool:
        """Whether all members stream large banks, so that memory does not grow with the bank."""
        return all(getattr(head, "can_stream", False) for head in self.heads)

    def queries_at_once(self, rows: int) -> int:
        """How many queries to predict at a time from a bank of ``rows`` rows.

        For members with the same sparse map, small blocks are faster, since their scores then stay in memory.
        """
        head, most = self.heads[0], policy().batch_queries
        at_hand = (policy().streamed_entries - 1) // max(1, rows)
        sparse = isinstance(head, NONA) and head.simplex is not softmax and bool(alike_members(list(self.heads)))
        return min(most, at_hand) if sparse and at_hand >= _FEWEST else most

    def columns(self, embeddings: Tensor, name: str) -> tuple[Tensor, ...]:
        """``[b, d]`` of each member."""
        if embeddings.ndim != 2 or embeddings.shape[1] % len(self.heads):
            raise ValueError(
                f"{name}: expected [rows, d * {len(self.heads)}], d columns for each member, "
                f"got {tuple(embeddings.shape)}"
            )
        return embeddings.chunk(len(self.heads), dim=1)

    def _warn_of_own_bank(self, queries: Tensor, bank: Tensor, identity: dict[str, Tensor | None]) -> None:
        """Once for all members, which see views of the same rows."""
        if self.uses_bank:
            warn_of_own_bank(self, queries, bank, *Identity(**identity)[:4])

    def each(self, queries: Tensor, bank: Tensor, labels: Tensor, **identity: Tensor | None) -> Tensor:
        """Prediction of each member, along the last dimension: ``[b, M]``, or ``[b, T, M]``.

        Args:
            queries: ``[b, M * d]``.
            bank: ``[N, M * d]``.
            labels: as the heads take them.
            identity: ids, groups and weights, as the heads take them.
        """
        self._warn_of_own_bank(queries, bank, identity)
        parts = list(zip(self.heads, self.columns(queries, "queries"), self.columns(bank, "bank"), strict=True))
        alike = alike_members(list(self.heads))
        weight = identity.get("bank_weight")
        if alike and not alike[0].streams(queries, bank, weight):
            check_matrices(queries, bank)
            check_labels(labels, bank.shape[0])
            check_bank_weight(weight, len(bank))
            allowed = Identity(**identity).allowed(len(queries), len(bank))
            check_some(allowed, len(bank))
            whole = None if allowed is None else allowed.repeat(len(alike), 1)
            both = [part for _, part, _ in parts], [rows for _, _, rows in parts]
            return mean_label(stacked_weights(alike, *both, whole, weight), labels).movedim(0, -1)
        return torch.stack([head(part, rows, labels, **identity) for head, part, rows in parts], dim=-1)

    def forward(self, queries: Tensor, bank: Tensor, labels: Tensor, **identity: Tensor | None) -> Tensor:
        """Mean of the members' predictions, ``[b]`` or ``[b, T]``: see :meth:`each`."""
        return self.each(queries, bank, labels, **identity).mean(dim=-1)

    def weights(self, queries: Tensor, bank: Tensor, **identity: Tensor | None) -> Tensor:
        """Mean of the members' weights ``[b, N]``, rows sum to 1: see :meth:`NONA.weights`."""
        self._warn_of_own_bank(queries, bank, identity)
        parts = zip(self.heads, self.columns(queries, "queries"), self.columns(bank, "bank"), strict=True)
        total = torch.zeros((), dtype=queries.dtype, device=queries.device)
        for head, part, rows in parts:  # one at a time: a row of weights may be long
            total = total + head.weights(part, rows, **identity)  # type: ignore[operator]
        return total / len(self.heads)

    @torch.no_grad()
    def top_weights(self, queries: Tensor, bank: Tensor, k: int, **identity: Tensor | None) -> tuple[Tensor, Tensor]:
        """The ``k`` bank rows of highest mean weight: see :meth:`NONA.top_weights`.

        The mean of all members is needed before rows can be ranked, so this holds ``[b, N]`` weights.
        """
        return heaviest(self.weights(queries, bank, **identity), k)


def alike_members(heads: Sequence[nn.Module]) -> list[NONA]:
    """The members as one kind of head with weights of its own each, or none if they are not alike.

    They are if they differ in nothing but what their masks have learned.
    """
    members = [head for head in heads if type(head) is NONA and head.can_stream]  # a subclass may weigh otherwise
    kinds = {(repr(head.similarity), repr(head.mask), head.simplex, head.chunk_size) for head in members}
    learned = any(True for head in members for _ in head.similarity.parameters())
    return members if len(members) == len(heads) > 1 and len(kinds) == 1 and not learned else []


def stacked_weights(
    members: list[NONA],
    queries: list[Tensor],
    bank: list[Tensor],
    allowed: Tensor | None,
    bank_weight: Tensor | None = None,
) -> Tensor:
    """Weights ``[M, b, N]`` of members that are alike, as one head of M times as many queries has them.

    So a step of training costs the operations of one member, on longer tensors.

    Args:
        members: see :func:`alike_members`.
        queries: of each member, ``[b, d]``.
        bank: of each member, ``[N, d]``.
        allowed: ``[M * b, N]``, which rows each query of each member may attend to, at least one; None: all.
        bank_weight: ``[N]`` or None.
    """
    count, rows = len(members), (len(queries[0]), len(bank[0]))
    scores, resolution = _stacked_scores(members, queries, bank)
    masks = [(head.mask, part) for head, part in zip(members, queries, strict=True) if isinstance(head.mask, SoftStep)]
    logits = [mask.step_logits(part).expand(rows[0], 3) for mask, part in masks]
    weights = members[0].weights_of_scores(
        scores,
        resolution,
        allowed,
        parameters_from_logits(torch.cat(logits), masks[0][0].eps) if masks else None,
        torch.cat(queries),
        bank_weight,
    )
    return weights.reshape(count, *rows)


def _stacked_scores(members: list[NONA], queries: list[Tensor], bank: list[Tensor]) -> tuple[Tensor, Resolution]:
    """Scores ``[M * b, N]`` of members that are alike, and their resolution."""
    similarity, dtype = members[0].similarity, queries[0].dtype
    euclidean = type(similarity) in (NegativeL2, NegativeSquaredL2) and not torch.compiler.is_compiling()
    if euclidean and dtype == bank[0].dtype and dtype.itemsize >= 4:
        with torch.autocast(queries[0].device.type, enabled=False):
            scores = -distances(torch.stack(queries), torch.stack(bank), rooted=type(similarity) is NegativeL2)
        return scores.flatten(0, 1), resolution_of(similarity, torch.cat(queries).detach(), scores.new_zeros(()))
    scored = [head.scores(part, rows) for head, part, rows in zip(members, queries, bank, strict=True)]
    resolutions = [resolution for _, resolution in scored]

    def joined(parts: list[Tensor | float]) -> Tensor | float:
        tensors = [torch.as_tensor(part, dtype=scored[0][0].dtype).expand(len(queries[0]), 1) for part in parts]
        return torch.cat(tensors) if any(isinstance(part, Tensor) for part in parts) else parts[0]

    fixed, rooted = joined([one.fixed for one in resolutions]), joined([one.rooted for one in resolutions])
    resolution = Resolution(fixed, rooted, resolutions[0].share, resolutions[0].eps)
    return torch.cat([scores for scores, _ in scored]), resolution


@torch.no_grad()
def ensemble_top_weights(
    head: Ensemble,
    queries: Tensor,
    bank: Tensor,
    k: int,
    **identity: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The ``k`` highest mean weights of each query and their bank rows; what :meth:`Ensemble.top_weights` gives.

    Each member gives its nearest rows, and all members the weights of these. A row that none of them gave has at most
    the mean of the last weights given; until the k-th is as high as that, more are asked for.

    Args:
        head: members are NONA, of similarities l1, l2, squared_l2, cosine, dot or scaled_dot.
        queries: ``[b, M * d]``.
        bank: ``[N, M * d]``.
        k: >= 1; all bank rows if there are fewer.
        identity: ids and groups, as :class:`vicinal.heads.NONA` takes them.

    Returns:
        weights ``[b, k]``, descending, and positions in the bank ``[b, k]``, -1 where the weight is 0.
    """
    check_matrices(queries, bank)
    k, width = min(check_integer("k", k), len(bank)), max(_FIRST, 2 * check_integer("k", k))
    parts = _attended(head, queries, bank, identity)
    while True:
        width = min(width, len(bank))
        nearest = [lowest_rows(part.attention.scores, part.attention.exclusion, width) for part in parts]
        weights = [part.weights_of(one.values) for part, one in zip(parts, nearest, strict=True)]
        unseen = torch.stack([each[:, -1] for each in weights]).mean(dim=0)  # [b], no row outside has more
        positions, first = _union([one.positions.masked_fill(one.values == torch.inf, -1) for one in nearest])
        total = weights[0].new_zeros(positions.shape)
        for member, part, one, each in zip(head.heads, parts, nearest, weights, strict=True):
            total += _weights_at(member, part, one.positions, each, positions)
        total.masked_fill_(~first, 0.0)
        best = (total / len(parts)).topk(min(k, total.shape[1]), dim=1)
        if width == len(bank) or bool((best.values[:, -1] >= unseen).all()):
            break
        width *= 4
    at = positions.gather(1, best.indices).masked_fill(best.values == 0, -1)
    return best.values, at


@torch.no_grad()
def label_quantiles(
    head: NONA | Ensemble,
    queries: Tensor,
    bank: Tensor,
    labels: Tensor,
    levels: Sequence[float],
    **identity: Tensor | None,
) -> Tensor:
    r"""For each query and level, the smallest label $v$ with $\sum_{j: y_j \le v} p_{ij} \ge$ level.

    The same as :func:`vicinal.heads.intervals.weighted_quantile` of the head's weights, with memory that grows with the
    bank by 16 bytes a row only. It takes two passes more than a prediction: one finds the run of labels in which each
    quantile lies, the other the weights in that run.

    Args:
        head: whose mask and simplex map are of this library.
        queries: ``[b, d]``.
        bank: ``[N, d]``.
        labels: ``[N]``, floating.
        levels: L numbers from 0 to 1.
        identity: ids and groups, as :class:`vicinal.heads.NONA` takes them.

    Returns:
        ``[b, L]``, each a label of the bank.

    >>> bank, labels = torch.tensor([[0.0], [0.1], [9.0]]), torch.tensor([3.0, 1.0, 2.0])
    >>> label_quantiles(NONA(), torch.zeros(1, 1), bank, labels, [0.1, 0.9])
    tensor([[1., 3.]])
    """
    check_matrices(queries, bank)
    check_labels(labels, bank.shape[0])
    levels = [check_between("levels", level, 0, 1, closed=True) for level in levels]
    if not len(queries):
        return labels.new_zeros(0, len(levels))
    return attended_quantiles(_attended(head, queries, bank, identity), len(queries), labels, levels)


def _attended(
    head: NONA | Ensemble, queries: Tensor, bank: Tensor, identity: dict[str, Tensor | None]
) -> list[Attended]:
    """What each member attends to, evaluated."""
    who = Identity(**identity)
    if isinstance(head, NONA):
        return [head.evaluated(head.attention(queries, bank, who), queries)]
    attended = []
    for member, part, rows in zip(
        head.heads, head.columns(queries, "queries"), head.columns(bank, "bank"), strict=True
    ):
        if not isinstance(member, NONA):
            raise ValueError(f"heads: expected members that use the bank, got {type(member).__name__}")
        attended.append(member.evaluated(member.attention(part, rows, who), part))
    return attended


def _union(lists: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Positions ``[b, m]`` of all lists, sorted, and which of them stand there for the first time and are >= 0."""
    ranked = torch.cat(lists, dim=1).sort(dim=1).values
    first = ranked >= 0
    first[:, 1:] &= ranked[:, 1:] != ranked[:, :-1]
    return ranked, first


def _weights_at(member: nn.Module, part: Attended, listed: Tensor, weights: Tensor, positions: Tensor) -> Tensor:
    """The member's weights ``[b, m]`` of the rows at ``positions``: those it listed, others computed."""
    order = listed.sort(dim=1)
    slot = torch.searchsorted(order.values, positions.contiguous()).clamp_(max=listed.shape[1] - 1)
    known = order.values.gather(1, slot) == positions
    mine = weights.gather(1, order.indices).gather(1, slot)
    if part.attention.k is not None:
        return torch.where(known, mine, 0.0)  # what it keeps is listed
    similarity, scores = member.similarity, part.attention.scores
    score = pair_score(similarity) if isinstance(similarity, nn.Module) else None
    if score is None:
        raise ValueError(f"similarity: expected one of this library, got {similarity!r}")
    lines = torch.arange(len(positions), device=positions.device).repeat_interleave(positions.shape[1])
    rows = scores.bank[positions.clamp(min=0).flatten()].to(scores.dtype)
    cost = -score(scores.queries[lines], rows).reshape(positions.shape)
    values = cost.square() if scores.rooted else cost
    return torch.where(known, mine, part.weights_of(values))
