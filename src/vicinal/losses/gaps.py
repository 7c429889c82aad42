"""Histograms of the gaps of each row, for all its related columns at once, by sorting the row."""

from typing import Any

import torch
from torch import Tensor

from vicinal.losses.positives import related_columns
from vicinal.losses.rowwise import block_rows, parts
from vicinal.losses.sorting import sort_rows

Histogram = tuple[Tensor, Tensor, Tensor]
"""Counts by edge ``[b, bins + 1]``, sums of gaps by bin ``[b, bins]``, and how many gaps are not 0 ``[b]``."""

Sorted = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""Of a block: order of the columns, their weights in it ``[r, N]``; weights and places of the related ones ``[r, P]``;
how many columns lie below each edge ``[r, P, bins + 1]``; weight of the gaps by bin ``[r, P, bins]``."""

_HELD = 1 << 17
"""Scores of a block on a CPU; of larger ones the memory that steps free is given back, and asked for again."""


def _slices(scores: Tensor) -> list[slice]:
    """Blocks of rows that stay in the caches of a core."""
    if not scores.numel():
        return []
    size = block_rows(len(scores), scores.shape[1], scores.device)
    if scores.device.type == "cpu":
        size = min(size, max(32, _HELD // scores.shape[1]))
    return parts(len(scores), size)


def _places(rising: Tensor, own: Tensor, span: float, bins: int) -> tuple[Tensor, Tensor]:
    """Edges ``[bins + 1]``, and how many sorted columns lie below each beside a related column ``[r, P, bins + 1]``."""
    edges = torch.arange(bins + 1, dtype=own.dtype, device=own.device) * (2 * span / bins) - span
    above = own[:, :, None] + edges
    last = above[..., -1]
    above[..., -1] = last.nextafter(torch.full_like(last, torch.inf))  # a gap of just the span is in the last bin
    return edges, torch.searchsorted(rising, above.flatten(1)).view(above.shape)


def _prefix(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., N values of each row ``[b, N + 1]``, in float64: they cancel."""
    sums = torch.empty(len(values), values.shape[1] + 1, dtype=torch.float64, device=values.device)
    sums[:, 0] = 0
    torch.cumsum(values, -1, dtype=torch.float64, out=sums[:, 1:])
    return sums


def _taken(sums: Tensor, place: Tensor) -> Tensor:
    return sums.gather(1, place.flatten(1)).view(place.shape)


def _of_block(
    scores: Tensor, negative: Tensor, positive: Tensor, span: float, bins: int, *, counting: bool
) -> tuple[Histogram, Sorted]:
    weight, column = related_columns(positive)
    own = scores.gather(1, column)
    rising, order = sort_rows(scores)
    among = negative.gather(1, order)
    mass, total = _prefix(among), _prefix(among * rising)
    edges, place = _places(rising, own, span, bins)
    below = _taken(mass, place)
    number = below.diff(dim=-1)  # [r, P, bins]
    gaps = _taken(total, place).diff(dim=-1) - own[:, :, None] * number
    upper = (gaps - edges[:-1] * number) * (bins / (2 * span))
    counts = torch.nn.functional.pad(number - upper, (0, 1)) + torch.nn.functional.pad(upper, (1, 0))
    under, over = below[..., 0], mass[:, -1:] - below[..., -1]  # gaps beyond the span count as the span
    counts[..., 0] += under
    counts[..., -1] += over
    gaps[..., 0] -= span * under
    gaps[..., -1] += span * over
    apart = mass[:, -1:].expand_as(own)
    if counting:
        ends = [_taken(mass, torch.searchsorted(rising, own, right=right)) for right in (True, False)]
        apart = apart - (ends[0] - ends[1])
    counts, gaps = ((weight[..., None] * each).sum(1).to(scores.dtype) for each in (counts, gaps))
    nonzero = (weight * apart).sum(1).to(scores.dtype)
    return (counts, gaps, nonzero), (order, among, weight, column, place, number.to(scores.dtype))


def _slope_of_block(of_bin: Tensor, sorted_: Sorted, out: Tensor) -> None:
    """Write the slope by the scores ``[r, N]``, given that by a gap in each bin ``[r, bins]``."""
    order, among, weight, column, place, number = sorted_
    each = weight[..., None] * of_bin[:, None]  # [r, P, bins]
    jumps = torch.nn.functional.pad(each, (1, 1)).diff(dim=-1).flatten(1)
    steps = among.new_zeros(len(among), among.shape[1] + 1).scatter_add_(1, place.flatten(1), jumps)
    out.scatter_(1, order, steps.cumsum(-1)[:, :-1].mul_(among))
    out.scatter_add_(1, column, -(each * number).sum(-1))


def _histograms(
    scores: Tensor, negative: Tensor, positive: Tensor, span: float, bins: int, *, counting: bool
) -> Histogram:
    made = [
        _of_block(scores[part], negative[part], positive[part], span, bins, counting=counting)[0]
        for part in _slices(scores)
    ]
    return _joined(made, scores, bins)


def _joined(made: list[Histogram], scores: Tensor, bins: int) -> Histogram:
    if not made:
        return _like(scores.new_zeros, scores, bins)
    counts, gaps, nonzero = (torch.cat(each) for each in zip(*made, strict=True))
    return counts, gaps, nonzero


def _like(make: Any, scores: Tensor, bins: int) -> Histogram:
    return make(len(scores), bins + 1), make(len(scores), bins), make(len(scores))


def _slopes(of_bin: Tensor, scores: Tensor, negative: Tensor, positive: Tensor, span: float, bins: int) -> Tensor:
    """As :func:`_slope_of_block`, of all rows, which are sorted again."""
    slope = torch.zeros_like(scores)
    for part in _slices(scores):
        own = _of_block(scores[part], negative[part], positive[part], span, bins, counting=False)[1]
        _slope_of_block(of_bin[part], own, slope[part])
    return slope


class _GapHistograms(torch.autograd.Function):
    """In eager: the order of the columns is kept for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, negative: Tensor, positive: Tensor, span: float, bins: int, *counting: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        made = []
        kept: list[Tensor] = []
        for part in _slices(scores):
            found, own = _of_block(scores[part], negative[part], positive[part], span, bins, counting=counting[0])
            made.append(found)
            kept += own if ctx.needs_input_grad[0] else ()
        ctx.save_for_backward(*kept)
        ctx.slices, ctx.shape, ctx.span, ctx.bins = _slices(scores), scores.shape, span, bins
        joined = _joined(made, scores, bins)
        ctx.mark_non_differentiable(joined[2])
        return joined

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        of_bin = _of_bin(slopes, ctx.span, ctx.bins)
        slope = of_bin.new_zeros(ctx.shape)
        for at, part in enumerate(ctx.slices):
            order, among, weight, column, place, number = ctx.saved_tensors[6 * at : 6 * at + 6]
            _slope_of_block(of_bin[part], (order, among, weight, column, place, number), slope[part])
        return slope, None, None, None, None, None


def _of_bin(slopes: tuple[Tensor, ...], span: float, bins: int) -> Tensor:
    return slopes[0].diff(dim=-1) * (bins / (2 * span)) + slopes[1]


def _keep(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Histogram) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.span, ctx.bins = inputs[3:]
    ctx.mark_non_differentiable(output[2])


def _back(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
    of_bin = _of_bin(slopes, ctx.span, ctx.bins)
    return _slope_node(of_bin, *ctx.saved_tensors, ctx.span, ctx.bins), None, None, None, None


_node = torch.library.custom_op("vicinal::gap_histograms", _histograms, mutates_args=())
_node.register_fake(lambda scores, negative, positive, span, bins, *, counting: _like(scores.new_empty, scores, bins))
_node.register_autograd(_back, setup_context=_keep)
_slope_node = torch.library.custom_op("vicinal::gap_slopes", _slopes, mutates_args=())
_slope_node.register_fake(lambda of_bin, scores, *_: torch.empty_like(scores))


def gap_histograms(
    scores: Tensor, negative: Tensor, positive: Tensor, span: float, bins: int, *, counting: bool = True
) -> Histogram:
    r"""Of each row, over its pairs of a related column p and another n: the gaps $s_n - s_p$, clamped to the span.

    Each gap is shared between the two edges around it, by nearness; its sum goes to the bin that it lies in. A row is
    sorted once, and a bin is a difference of prefix sums. One node of a compiled graph; gradient of ``scores`` alone.

    Args:
        scores: ``[b, N]``.
        negative: weights of n ``[b, N]``, >= 0.
        positive: weights of p ``[b, N]``, >= 0.
        span: > 0.
        bins: number of bins between -span and span.
        counting: whether gaps that are 0 are told apart from others in the third; else it counts all.

    >>> counts, gaps, nonzero = gap_histograms(torch.tensor([[1.0, 0.0]]), *torch.eye(2)[[1, 0], None], 2.0, 4)
    >>> counts, gaps, nonzero  # one gap, of -1: at the second of five edges
    (tensor([[0., 1., 0., 0., 0.]]), tensor([[ 0., -1.,  0.,  0.]]), tensor([1.]))
    """
    if torch.compiler.is_compiling():
        counts, gaps, nonzero = _node(scores, negative, positive, span, bins, counting=counting)
        return counts, gaps, nonzero
    found: Histogram = _GapHistograms.apply(scores, negative, positive, span, bins, counting)  # type: ignore[no-untyped-call]
    return found
