"""NONA, nearness of neighbors attention: a prediction is a weighted mean of the labels of real rows."""

from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vicinal.blockwise.attention import Attended, Attention, settled
from vicinal.blockwise.blocks import attention_sizes, block_rows, policy, row_slices
from vicinal.blockwise.exclusion import Exclusion
from vicinal.blockwise.nearest import lowest_rows
from vicinal.blockwise.resolution import Resolution, lengths
from vicinal.blockwise.scores import BlockScores
from vicinal.blockwise.step_weights import s2_weights
from vicinal.blockwise.thresholds import Simplex
from vicinal.core import register
from vicinal.core.checks import check_integer, check_labels, check_matrices
from vicinal.heads.admissible import (
    Identity,
    IdentityArguments,
    admissible,
    check_bank_weight,
    check_some,
    warn_of_own_bank,
)
from vicinal.masks import SoftStep, TopK, entmax15, softmax, sparsemax
from vicinal.masks.simplex import SimplexMap, of_repeated, resolve_simplex
from vicinal.masks.softstep import StepParameters
from vicinal.similarity.base import resolution_of, resolve_similarity
from vicinal.similarity.factors import factors, relative_scores, score_kernel

_SIMPLEX: dict[Any, Simplex] = {softmax: "softmax", sparsemax: "sparsemax", entmax15: "entmax15"}
"""Simplex maps that can be read a block of the bank at a time, by their names."""


def simplex_name(simplex: SimplexMap) -> Simplex | None:
    """The name of a simplex map that can be streamed, or None."""
    return _SIMPLEX.get(simplex)


@register(
    "head",
    "nona",
    "convex-hull",
    "permutation-invariant",
    paper="NONA, sections 3.1-3.2",
    verified="values of the paper's code, gradients against central differences",
)
class NONA(nn.Module):
    r"""$\hat y_i = \sum_j p_{ij} y_j$ with $p_i = \mathrm{simplex}_j(s_{ij} + \ln S(n_{ij}))$ over admissible rows.

    Args:
        similarity: a registered name ("l2", "l1", "cosine", "dot", "scaled_dot", "squared_l2") or a module
            ``sim(queries, bank) -> scores``.
        mask: a module ``mask(scores, queries, weight) -> log_mask``, as :class:`vicinal.masks.SoftStep`, or None.
        simplex: a registered name ("softmax", "sparsemax", "entmax15") or a callable ``map(scores) -> weights``.
        chunk_size: bank rows per block, to stream every prediction in such blocks. None: predictions of 262,144 scores
            or more are streamed in blocks that stay in cache; smaller ones are not, nor are those with your own mask or
            simplex map.

    A streamed prediction takes memory that does not grow with the bank. One pass over the bank finds the range of each
    row of scores, a second adds up masked weights and labels. Sparse simplex maps close in on their threshold, pass by
    pass, until few rows can still have weight: a few passes for most banks, ten at worst. Its gradient, which can be
    taken once, is that of the dense head, computed again for a few queries at a time; it takes the memory of several
    matrices of the bank's size.

    A query never attends to a bank row with its own id or of its own group. If a batch is its own bank and neither ids
    nor groups are given, the head warns once (:class:`vicinal.core.identity.IdentityWarning`). The prediction lies in
    the convex hull of the labels, so it needs no clipping.

    A bank row of weight w (``bank_weight``) stands for w equal rows, and gets the weight that these would have together
    (see :func:`vicinal.masks.simplex.of_repeated`): for softmax $p_j \propto w_j e^{s_j} S(n_j)$. That is exact for all
    three maps, without a mask or with SoftStep, whose unit scores do not depend on how often a row occurs; TopK keeps k
    rows whatever they weigh. Predictions with such weights are not streamed; they hold ``[b, N]``.

    >>> head = NONA()
    >>> bank, labels = torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([0.0, 1.0, 5.0])
    >>> head(torch.tensor([[0.5]]), bank, labels)
    tensor([0.5008])
    >>> head.weights(bank, bank, query_ids=torch.arange(3), bank_ids=torch.arange(3))[0]
    tensor([0.0000e+00, 9.9966e-01, 3.3535e-04])
    """

    uses_bank = True

    def __init__(
        self,
        similarity: str | nn.Module = "l2",
        mask: nn.Module | None = None,
        simplex: str | SimplexMap = "softmax",
        chunk_size: int | None = None,
    ) -> None:
        super().__init__()
        self.similarity = resolve_similarity(similarity)
        if not (mask is None or isinstance(mask, nn.Module)):
            raise TypeError(f"mask: expected a module such as SoftStep(dim), or None, got {mask!r}")
        self.mask = mask
        self.simplex = resolve_simplex(simplex)
        self.chunk_size = None if chunk_size is None else check_integer("chunk_size", chunk_size)
        if chunk_size is not None and not self.can_stream:
            raise ValueError(
                f"chunk_size: expected None for a mask or simplex map of your own, which must see whole rows, got "
                f"{chunk_size}"
            )

    @property
    def can_stream(self) -> bool:
        """Whether predictions over large banks are streamed, so that memory does not grow with the bank.

        They are with masks and simplex maps of this package; others see whole rows.

        >>> NONA(mask=TopK(3)).can_stream, NONA(mask=nn.Identity()).can_stream
        (True, False)
        """
        known = self.mask is None or type(self.mask) in (SoftStep, TopK)
        return known and simplex_name(self.simplex) is not None

    def streams(self, queries: Tensor, bank: Tensor, bank_weight: Tensor | None = None) -> bool:
        """Whether the prediction of these queries from this bank is streamed."""
        if bank_weight is not None:
            return False
        if self.chunk_size is not None:
            return True
        return self.can_stream and queries.shape[0] * bank.shape[0] >= policy().streamed_entries

    def weights(
        self,
        queries: Tensor,
        bank: Tensor,
        **identity: Unpack[IdentityArguments],
    ) -> Tensor:
        """Weight of each bank row in the prediction of each query.

        Args:
            queries: ``[b, d]``.
            bank: ``[N, d]``.
            identity: integers ``query_ids [b]`` together with ``bank_ids [N]``, and ``query_groups`` with
                ``bank_groups``; ``bank_weight [N]``, > 0: how many equal rows each bank row counts as.

        Returns:
            ``[b, N]``, >= 0, rows sum to 1, 0 where not admissible.

        Raises:
            ValueError: if a query has no admissible bank row, or shapes do not agree.
        """
        who = Identity(**identity)
        check_matrices(queries, bank)
        warn_of_own_bank(self, queries, bank, *who[:4])
        allowed = who.allowed(len(queries), len(bank))
        check_some(allowed, len(bank))
        check_bank_weight(who.bank_weight, len(bank))
        scores, resolution = self.scores(queries, bank)
        numbers = self.mask.step_parameters(queries) if isinstance(self.mask, SoftStep) else None
        return self.weights_of_scores(scores, resolution, allowed, numbers, queries, who.bank_weight)

    def weights_of_scores(
        self,
        scores: Tensor,
        resolution: Resolution,
        allowed: Tensor | None,
        numbers: StepParameters | None,
        queries: Tensor,
        bank_weight: Tensor | None = None,
    ) -> Tensor:
        """Weights ``[b, N]`` from scores that are already computed.

        Args:
            scores: ``[b, N]``, as :meth:`scores` returns them.
            resolution: likewise.
            allowed: ``[b, N]``, which rows are admissible; None: all.
            numbers: the parameters of each query's SoftStep, if the mask is one.
            queries: ``[b, d]``, for masks of other packages.
            bank_weight: ``[N]`` or None.
        """
        simplex = simplex_name(self.simplex)
        if simplex is not None and numbers is not None and bank_weight is None and self._has_short_way(scores, numbers):
            by_query = (value.expand(len(scores), 1) for value in (numbers.b0, numbers.odds))
            return s2_weights(simplex, scores, resolution, allowed, *by_query)
        masked = settled(scores, resolution, allowed) if self.can_stream else scores
        weight = None if allowed is None else allowed.to(scores.dtype)
        if isinstance(self.mask, SoftStep) and numbers is not None:
            masked = masked + self.mask.of_numbers(scores, numbers, weight, resolution)
        elif self.mask is not None:
            known = (resolution,) if isinstance(self.mask, TopK) else ()
            masked = masked + self.mask(scores, queries, weight, *known)
        if allowed is not None:
            masked = masked.masked_fill(~allowed, -torch.inf)
        return self.simplex(masked) if bank_weight is None else of_repeated(self.simplex, masked, bank_weight)

    def _has_short_way(self, scores: Tensor, numbers: StepParameters) -> bool:
        """Whether no gradient is asked for, and the step is one whose weights have a shorter formula without one."""
        short = type(self.mask) is SoftStep and self.mask.form[:2] == ("s2", "admissible")
        learned = any(one.requires_grad for one in (scores, numbers.b0, numbers.odds))
        return short and not (learned and torch.is_grad_enabled()) and not torch.compiler.is_compiling()

    def scores(self, queries: Tensor, bank: Tensor) -> tuple[Tensor, Resolution]:
        """Scores ``[b, N]``, shifted by a constant per query where that changes no weight, and their resolution."""
        scores: Tensor = (
            relative_scores(self.similarity, queries, bank) if self.can_stream else self.similarity(queries, bank)
        )
        of = factors(self.similarity)
        longest = scores.new_zeros(())
        if of is not None and of.shifts and len(bank):
            longest = lengths(bank.to(scores.dtype)).amax()
        return scores, resolution_of(self.similarity, queries.detach().to(scores.dtype), longest)

    @torch.no_grad()
    def top_weights(
        self,
        queries: Tensor,
        bank: Tensor,
        k: int,
        **identity: Unpack[IdentityArguments],
    ) -> tuple[Tensor, Tensor]:
        """The ``k`` bank rows of highest weight in the prediction of each query; without gradient.

        Args:
            queries: ``[b, d]``.
            bank: ``[N, d]``.
            k: >= 1; all bank rows if there are fewer.
            identity: see :meth:`weights`.

        Returns:
            weights ``[b, k]``, descending, and positions in the bank ``[b, k]``, -1 where the weight is 0.

        >>> NONA().top_weights(torch.zeros(1, 1), torch.tensor([[2.0], [0.0], [1.0]]), 2)
        (tensor([[0.6652, 0.2447]]), tensor([[1, 2]]))
        """
        who = Identity(**identity)
        check_matrices(queries, bank)
        warn_of_own_bank(self, queries, bank, *who[:4])
        check_integer("k", k)
        if self.streams(queries, bank, who.bank_weight) and len(queries):
            attention = self.attention(queries, bank, who)
            nearest = lowest_rows(attention.scores, attention.exclusion, min(k, len(bank)))
            weights = self.evaluated(attention, queries).weights_of(nearest.values)
            return weights, nearest.positions.masked_fill(weights == 0, -1)
        return heaviest(self.weights(queries, bank, **identity), k)

    def forward(
        self,
        queries: Tensor,
        bank: Tensor,
        labels: Tensor,
        **identity: Unpack[IdentityArguments],
    ) -> Tensor:
        """Weighted mean of the labels.

        Args:
            queries: ``[b, d]``.
            bank: ``[N, d]``.
            labels: ``[N]``, or ``[N, T]`` for several targets or one-hot classes (rows of the result are then
                probabilities); floating.
            identity: see :meth:`weights`.

        Returns:
            ``[b]`` or ``[b, T]``.
        """
        who = Identity(**identity)
        check_matrices(queries, bank)
        check_labels(labels, bank.shape[0])
        warn_of_own_bank(self, queries, bank, *who[:4])
        if self.streams(queries, bank, who.bank_weight):
            return self._streamed(queries, bank, labels, who)
        return mean_label(self.weights(queries, bank, **identity), labels)

    def _streamed(self, queries: Tensor, bank: Tensor, labels: Tensor, identity: Identity) -> Tensor:
        attention = self.attention(queries, bank, identity)
        dtype = torch.promote_types(attention.scores.dtype, labels.dtype)
        if queries.shape[0] == 0:
            return queries.new_zeros(0, *labels.shape[1:], dtype=dtype)
        step = _StreamedStep(attention, self, identity, dtype)
        parameters = [value for value in self.parameters() if value.requires_grad]
        return _Streamed.apply(step, queries, bank, labels, *parameters)  # type: ignore[no-untyped-call]

    def attention(self, queries: Tensor, bank: Tensor, identity: Identity) -> Attention:
        """What queries attend to in a bank that is read by blocks, with memory that does not grow with it.

        Raises:
            ValueError: if mask or simplex map must see whole rows, or the bank is empty.
        """
        simplex, mask = simplex_name(self.simplex), self.mask
        if simplex is None or not self.can_stream:
            raise ValueError(
                f"head: expected a mask and a simplex map of this library for a bank that is read by blocks, got "
                f"{type(mask).__name__} and {self.simplex!r}"
            )
        if isinstance(mask, SoftStep) and queries.shape[1] != mask.dim:
            raise ValueError(f"queries: expected {(len(queries), mask.dim)}, got {tuple(queries.shape)}")
        keys = identity.keys(len(queries), len(bank))
        if len(bank) == 0:
            raise ValueError("bank: expected at least one row, got an empty bank")
        chunk, tile = attention_sizes(len(queries), queries.shape[1], queries.device)
        if self.chunk_size is not None:
            chunk = min(self.chunk_size, len(bank))
        with torch.no_grad():
            scores = BlockScores(score_kernel(self.similarity), queries.detach(), bank.detach(), chunk, tile)
        form = mask.form if isinstance(mask, SoftStep) else None
        return Attention(scores, Exclusion(keys), simplex, form, mask.k if isinstance(mask, TopK) else None)

    @torch.no_grad()
    def evaluated(self, attention: Attention, queries: Tensor, labels: Tensor | None = None) -> Attended:
        """The :meth:`attention` to these queries, evaluated on ``labels [N, T]`` or without any."""
        scores, numbers = attention.scores, None
        if labels is None:
            labels = scores.bank.new_zeros(len(scores.bank), 0, dtype=scores.dtype)
        with torch.autocast(queries.device.type, enabled=False):
            if isinstance(self.mask, SoftStep):
                learned = [value.expand(len(queries), 1) for value in self.mask.step_parameters(queries)]
                numbers = torch.cat(learned, dim=1).to(scores.dtype)  # a0, b0, t, t / (1 - t)
            return attention.evaluate(labels, numbers)


def mean_label(weights: Tensor, labels: Tensor) -> Tensor:
    """Means ``[..., b]`` or ``[..., b, T]`` of labels ``[N]`` or ``[N, T]`` by weights ``[..., b, N]``."""
    dtype = torch.promote_types(weights.dtype, labels.dtype)
    with torch.autocast(weights.device.type, enabled=False):
        return weights.to(dtype) @ labels.to(dtype)


def heaviest(weights: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` highest of weights ``[b, N]``, all if there are fewer, and their places, -1 where the weight is 0."""
    best = weights.topk(min(check_integer("k", k), weights.shape[1]), dim=-1)
    return best.values, best.indices.masked_fill(best.values == 0, -1)


class _StreamedStep(NamedTuple):
    """What a streamed prediction is made of: the streamed ``attention``, and the dense ``head`` for its gradient."""

    attention: Attention
    head: NONA
    identity: Identity
    dtype: torch.dtype

    def predict(self, queries: Tensor, labels: Tensor) -> Tensor:
        """``[b]`` or ``[b, T]`` by blocks of the bank."""
        columns = labels.to(self.dtype).reshape(len(labels), -1)  # [N, T]
        mean = self.head.evaluated(self.attention, queries, columns).sums.mean().to(self.dtype)
        return mean.reshape(len(queries), *labels.shape[1:])

    def formula(self, part: slice, queries: Tensor, bank: Tensor, labels: Tensor) -> Tensor:
        """The same for the ``queries`` of a slice, from their weights ``[r, N]``, differentiable."""
        of = self.identity
        query_ids, query_groups = (None if key is None else key[part] for key in (of.query_ids, of.query_groups))
        allowed = admissible((len(queries), len(bank)), query_ids, of.bank_ids, query_groups, of.bank_groups)
        wide = self.attention.scores.dtype
        scores, resolution = self.head.scores(queries.to(wide), bank.to(wide))
        numbers = self.head.mask.step_parameters(queries) if isinstance(self.head.mask, SoftStep) else None
        weights = self.head.weights_of_scores(scores, resolution, allowed, numbers, queries)
        return weights.to(self.dtype) @ labels.to(self.dtype)


class _Streamed(torch.autograd.Function):
    """Prediction by blocks of the bank; the backward pass computes the dense formula again, by blocks of queries.

    That is a checkpoint whose first run is the streamed one, which is faster and has no weights to throw away. It saves
    its inputs as a function does, so that one which was overwritten before the backward pass is noticed.
    """

    @staticmethod
    def forward(
        ctx: Any, step: _StreamedStep, queries: Tensor, bank: Tensor, labels: Tensor, *parameters: Tensor
    ) -> Tensor:
        ctx.step = step
        ctx.save_for_backward(queries, bank, labels, *parameters)
        return step.predict(queries, labels)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, bank, labels, *parameters = ctx.saved_tensors
        needed, wide = ctx.needs_input_grad[1:], ctx.step.attention.scores.dtype
        totals = [
            torch.zeros_like(each, dtype=torch.promote_types(each.dtype, wide)) if want else None
            for each, want in zip((queries, bank, labels, *parameters), needed, strict=True)
        ]
        # Each block of queries reads the whole bank several times, so it has not many fewer scores than that has rows.
        most, least = policy().attention_entries, max(1, bank.shape[1] // 4)
        rows = block_rows(len(queries), len(bank), queries.device, entries=most, least=least)
        for part in row_slices(len(queries), rows):
            sides = (queries[part], bank, labels)
            leaves = [side.detach().requires_grad_(want) for side, want in zip(sides, needed, strict=False)]
            with torch.enable_grad(), torch.autocast(queries.device.type, enabled=False):
                prediction = ctx.step.formula(part, *leaves)
            learned = [leaf for leaf, want in zip((*leaves, *parameters), needed, strict=True) if want]
            slopes = iter(torch.autograd.grad(prediction, learned, gradient[part], allow_unused=True))
            for number, total in enumerate(totals):
                slope = None if total is None else next(slopes)
                if total is not None and slope is not None:
                    (total[part] if number == 0 else total).add_(slope)
        dtypes = [each.dtype for each in (queries, bank, labels, *parameters)]
        return None, *(each if each is None else each.to(dtype) for each, dtype in zip(totals, dtypes, strict=True))
