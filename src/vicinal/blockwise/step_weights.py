"""Weights of scores held in memory, by S2 and a simplex map: what predictions from banks of some 1,000 rows spend.

They take a seventh of the time of the formula of tensors that autograd follows. On a CPU, filling by a mask takes
several times as long as adding 0 or -inf, so the formulas add.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from vicinal.blockwise.attention import tied
from vicinal.blockwise.blocks import Buffers, block_rows, row_slices
from vicinal.blockwise.resolution import Resolution
from vicinal.blockwise.softstep import S2Rows, unit_width
from vicinal.blockwise.thresholds import Simplex, find_threshold, response, simplex_weights


def mapped(simplex: Simplex, scores: Tensor) -> Tensor:
    """Weights of ``scores [b, N]``, which are overwritten; a row of only -inf gets weights 0.

    >>> mapped("entmax15", torch.tensor([[1.0, 1.0, -9.0]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    best = scores.amax(dim=-1, keepdim=True)
    closed = best == -torch.inf
    relative = scores.sub_(best.masked_fill_(closed, 0.0))
    if bool(closed.any()):
        relative.masked_fill_(closed, 0.0)
    if simplex == "softmax":
        weights = relative.softmax(dim=-1)
    else:
        memory = Buffers()

        def visit() -> Iterator[tuple[slice, Tensor]]:
            yield slice(None), memory.like("scores", relative).copy_(relative)

        weights = simplex_weights(simplex, relative, find_threshold(simplex, visit, len(relative), relative))
    return weights.masked_fill_(closed, 0.0) if bool(closed.any()) else weights


def scores_gradient(simplex: Simplex, weights: Tensor, gradient: Tensor) -> Tensor:
    """Gradient of the scores ``[..., N]`` from that of their ``weights``."""
    slope = response(simplex, weights)
    pull = gradient * slope
    total = slope.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(slope.dtype).tiny)
    return pull - slope * (pull.sum(dim=-1, keepdim=True) / total)


def s2_weights(
    simplex: Simplex, scores: Tensor, resolution: Resolution, allowed: Tensor | None, b: Tensor, odds: Tensor
) -> Tensor:
    """Weights ``[b, N]`` of scores by S2 over the admissible rows, then ``simplex``; without a gradient.

    Args:
        simplex: "softmax", "sparsemax" or "entmax15".
        scores: ``[b, N]``, finite.
        resolution: of the scores.
        allowed: ``[b, N]``, which rows are admissible, at least one of each query; None: all.
        b: ``[b, 1]``, of the step.
        odds: ``[b, 1]``, t / (1 - t).
    """
    blocks = []
    for part in row_slices(len(scores), block_rows(len(scores), scores.shape[1], scores.device)):
        barred = None if allowed is None else allowed[part].to(scores.dtype).log_()
        blocks.append(_weights(simplex, scores[part], resolution.rows(part), barred, b[part], odds[part]))
    return torch.cat(blocks)


def _weights(
    simplex: Simplex, scores: Tensor, resolution: Resolution, barred: Tensor | None, b: Tensor, odds: Tensor
) -> Tensor:
    """The weights of a block; ``barred [b, N]`` is 0, or -inf where a row is not admissible."""
    upper, lower = (scores, scores) if barred is None else (scores + barred, scores - barred)
    high, low = upper.amax(dim=-1, keepdim=True), lower.amin(dim=-1, keepdim=True)
    zone, equal = resolution.of(low, high), tied(resolution.of(high))
    gap = torch.sub(scores, high).div_(unit_width(high - low, zone, inset=True)).clamp_(-1, 0)
    total = S2Rows(b, odds).log(gap, Buffers()).add_(upper)
    if bool((equal > 0).any()):  # scores this near to the best count as equal to it
        total.sub_((upper - high + equal).clamp_(min=0))
    return mapped(simplex, total)
