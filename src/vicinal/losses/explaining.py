"""Which pairs of a batch a loss sees."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vicinal.losses.embedding import EmbeddingLoss


@dataclass(frozen=True)
class BatchReport:
    """What :func:`explain_batch` found; ``print`` it.

    Attributes:
        loss: the value of the loss.
        pairs: all pairs that could count, without the rows' own selves.
        related: of those, how many are related.
        mined: how many of them a miner left.
        pulled: pairs whose score the loss wants higher.
        pushed: pairs whose score the loss wants lower.
        lonely: rows without a related column, which many losses leave out.
        strongest: (row, column, score, relation, slope of the loss), the largest slopes first.
    """

    loss: float
    pairs: int
    related: int
    mined: int
    pulled: int
    pushed: int
    lonely: tuple[int, ...]
    strongest: tuple[tuple[int, int, float, float, float], ...]

    def __str__(self) -> str:
        lines = [
            f"loss {self.loss:.6g}",
            f"{self.pairs} pairs: {self.related} related, {self.pairs - self.related} not; {self.mined} left to count",
            f"{self.pulled} are pulled together, {self.pushed} pushed apart",
            f"{len(self.lonely)} rows have no related column" + (f": {list(self.lonely[:9])}" if self.lonely else ""),
        ]
        for row, column, score, relation, slope in self.strongest:
            way = "together" if slope < 0 else "apart"
            lines.append(f"  {row} - {column}: score {score:.4f}, relation {relation:g}, {way} by {abs(slope):.3g}")
        return "\n".join(lines)


def explain_batch(
    criterion: EmbeddingLoss, embeddings: Tensor, labels: Tensor, *, ids: Tensor | None = None, most: int = 5
) -> BatchReport:
    """Which pairs a loss sees in a batch, and in which direction it moves them.

    Args:
        criterion: the loss; it and its bank are left as they are.
        embeddings: ``[b, d]``.
        labels: ``[b]`` or ``[b, C]``.
        ids: whole numbers ``[b]``.
        most: how many of the strongest pairs to name.

    >>> report = explain_batch(EmbeddingLoss("triplet"), torch.eye(2)[[0, 0, 1]], torch.tensor([0, 0, 1]))
    >>> print(report)
    loss 0
    6 pairs: 2 related, 4 not; 6 left to count
    0 are pulled together, 0 pushed apart
    1 rows have no related column: [2]
    """
    with torch.no_grad():
        queries, columns = criterion.sides(embeddings, labels, ids=ids)
        scores, relation, weight = criterion.pairs(queries, columns)
        kept = torch.ones_like(scores) if weight is None else weight
        some = queries.ids[:, None] != columns.ids if queries.ids is not None and columns.ids is not None else kept > 0
    leaf = scores.detach().requires_grad_()
    reduction = "sum" if criterion.reduction == "none" else criterion.reduction
    with torch.enable_grad():
        value = criterion.loss(leaf, relation, weight, reduction=reduction, **criterion.hyper)
        slope = torch.autograd.grad(value, leaf)[0]
    places = slope.abs().flatten().topk(min(most, slope.numel())).indices.tolist()
    strongest = [
        (at // slope.shape[1], at % slope.shape[1], *(float(m.flatten()[at]) for m in (scores, relation, slope)))
        for at in places
        if slope.flatten()[at] != 0
    ]
    related = (relation > 0) & some
    return BatchReport(
        loss=float(value.detach()),
        pairs=int(some.sum()),
        related=int(related.sum()),
        mined=int((kept > 0).sum()),
        pulled=int((slope < 0).sum()),
        pushed=int((slope > 0).sum()),
        lonely=tuple(torch.nonzero(~related.any(-1)).flatten().tolist()),
        strongest=tuple(strongest),
    )
