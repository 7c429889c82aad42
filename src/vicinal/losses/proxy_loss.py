"""A pair loss against learned vectors of classes."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.blockwise.blocks import block_rows
from vicinal.blockwise.row_blocks import equal_codes
from vicinal.core.checks import check_between, check_integer, check_matrices
from vicinal.core.gathering import gather_rows
from vicinal.losses.contract import PairLoss, check_reduction
from vicinal.losses.embedding import Loss, has_batch_stats, name_of, resolve_loss, with_best
from vicinal.losses.honesty import with_nan_of
from vicinal.losses.proxy import REACH, SCALE, log_sum_within
from vicinal.losses.streaming import UNCUT, ScoreBlocks, blocked_loss
from vicinal.miners.iqr_filter import check_reach
from vicinal.similarity.base import resolve_similarity


class ProxyLoss(nn.Module):
    """A pair loss of embeddings against proxies, which are parameters: pass them to the optimizer.

    Args:
        loss: a registered name or ``f(scores, relation, weight)``; any pair loss will do.
        num_classes: C >= 2.
        dim: width of the embeddings.
        per_class: proxies of each class.
        similarity: a registered name or a module ``sim(queries, bank) -> scores``.
        normalize: scale embeddings and proxies to length 1 first.
        reduction: "mean", "sum", "none" or "mean_nonzero".
        gather: train with the batches of all processes as one, in the order of their ranks: value and gradient are
            those of one process with the whole batch. Data-parallel training averages the gradients of the processes,
            which gives the same without ``gather`` for a mean over rows and batches of equal size. You need ``gather``
            where a proxy looks at the whole batch ("proxy_anchor", "unpg"), batches differ in size, or the loss is a
            sum.
        hyper: settings of the loss.

    Attributes:
        proxies: ``[C * per_class, dim]``, those of one class side by side.

    >>> criterion = ProxyLoss("arcface", num_classes=3, dim=4)
    >>> criterion(torch.ones(2, 4), torch.tensor([0, 2])).shape
    torch.Size([])
    """

    def __init__(
        self,
        loss: str | Loss,
        num_classes: int,
        dim: int,
        *,
        per_class: int = 1,
        similarity: str | nn.Module = "cosine",
        normalize: bool = False,
        reduction: str = "mean",
        gather: bool = False,
        **hyper: Any,
    ) -> None:
        super().__init__()
        self.loss, self.facts = resolve_loss(loss)
        self.num_classes = check_integer("num_classes", num_classes, 2)
        self.per_class = check_integer("per_class", per_class)
        self.similarity = resolve_similarity(similarity)
        self.normalize, self.reduction = normalize, check_reduction(reduction)
        self.hyper = with_best(self.loss, self.similarity, hyper)
        self.gather = gather
        self.proxies = nn.Parameter(torch.randn(num_classes * per_class, check_integer("dim", dim)) / math.sqrt(dim))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The loss.

        Args:
            embeddings: ``[b, dim]``.
            labels: classes 0 to C - 1 as whole numbers ``[b]``, or 0/1 (or shares) of several classes ``[b, C]``.

        Returns:
            A number; for the reduction "none" ``[b]`` (of all processes with ``gather``), or one a proxy for losses
            whose rows are proxies.
        """
        proxies: Tensor = self.proxies
        check_matrices(embeddings, proxies)
        if self.gather:
            embeddings, labels = gather_rows(embeddings), gather_rows(labels)
        relation = self._relation(embeddings, labels)
        hyper = dict(self.hyper)
        if "proxy-groups" in self.facts:
            hyper["per_class"] = self.per_class
        lengths = self._lengths(embeddings)
        if self.normalize:
            embeddings, proxies = (nn.functional.normalize(each, dim=-1) for each in (embeddings, proxies))
        rows, columns = (proxies, embeddings) if "proxy-rows" in self.facts else (embeddings, proxies)
        size = self._block_rows(rows, columns)
        tensors: tuple[Tensor, ...] = lengths
        settings: Callable[..., dict[str, Tensor]] = _lengths_of
        if "batch-scores" in self.facts:
            tensors, settings = (self._negatives(embeddings, labels, hyper, size),), lambda _, all: {"negatives": all}
        if not isinstance(self.loss, PairLoss):
            every = slice(0, len(rows))
            further = {"reduction": self.reduction, **hyper, **settings(every, *tensors)}
            value: Tensor = self.loss(self.similarity(rows, columns), relation(every), **further)
            return with_nan_of(value, rows, columns, labels)
        blocks = ScoreBlocks(self.similarity, rows, columns, relation, None, masks=labels.ndim == 1, size=size)
        value = blocked_loss(self.loss, blocks, self.reduction, hyper, row_settings=settings, setting_tensors=tensors)
        return with_nan_of(value, rows, columns, labels)

    def _block_rows(self, rows: Tensor, columns: Tensor) -> int:
        """Rows of a block; all of them where settings are tensors, or a similarity is learned."""
        separable = "row-separable" in self.facts or has_batch_stats(self.loss)
        if not separable or self._tuned() or torch.compiler.is_compiling():
            return max(1, len(rows))
        return block_rows(len(rows), len(columns), rows.device, uncut=UNCUT)

    def _tuned(self) -> bool:
        tuned = any(each.requires_grad for each in self.similarity.parameters())
        return tuned or any(isinstance(each, Tensor) for each in self.hyper.values())

    def _negatives(self, rows: Tensor, labels: Tensor, hyper: dict[str, Any], size: int) -> Tensor:
        """Scores of the unrelated pairs of the batch; for several blocks of rows one score that weighs as much."""
        with torch.autocast(rows.device.type, enabled=False):
            negatives: Tensor = batch_negatives(self.similarity(rows, rows), _shared(labels))
            if self._tuned() or size >= len(rows):
                return negatives
            scale, reach = hyper.get("scale", SCALE), check_reach(hyper.get("reach", REACH))
            hyper["reach"] = math.inf  # heeded below
            mass: Tensor = log_sum_within(negatives, reach, check_between("scale", scale, 0, math.inf)) / scale
            return mass[None]

    def _relation(self, embeddings: Tensor, labels: Tensor) -> Callable[[slice], Tensor]:
        """Rows of the relation: of embeddings with proxies, or of proxies with embeddings where these are the rows."""
        shape, across = (len(embeddings), self.num_classes), "proxy-rows" in self.facts
        like = embeddings.new_zeros((), dtype=torch.promote_types(self.proxies.dtype, torch.float32))
        if labels.shape == shape:
            matrix = labels.to(like.dtype).repeat_interleave(self.per_class, dim=1)
            matrix = matrix.T.contiguous() if across else matrix
            return lambda part: matrix[part]
        if labels.shape != shape[:1] or labels.is_floating_point():
            raise ValueError(
                f"labels: expected whole numbers [{len(embeddings)}] or [{len(embeddings)}, {self.num_classes}], got "
                f"{labels.dtype} of shape {tuple(labels.shape)}"
            )
        if not torch.compiler.is_compiling() and bool(((labels < 0) | (labels >= self.num_classes)).any()):
            raise ValueError(f"labels: expected classes 0 to {self.num_classes - 1}, got {labels.tolist()[:9]}")
        if across:
            classes = torch.arange(len(self.proxies), device=labels.device) // self.per_class
            return lambda part: equal_codes(classes[part].to(like.dtype), labels.to(like.dtype), like.dtype)
        column = labels[:, None].long() * self.per_class + torch.arange(self.per_class, device=labels.device)
        return lambda part: like.new_zeros(len(column[part]), len(self.proxies)).scatter_(1, column[part], 1.0)

    def _lengths(self, embeddings: Tensor) -> tuple[Tensor, ...]:
        """``[b, 1]`` lengths of the embeddings, and ``[1, C]`` of the proxies, as far as the loss wants them."""
        if "embedding-lengths" not in self.facts:
            return ()
        wide = torch.promote_types(embeddings.dtype, torch.float32)
        lengths: Tensor = torch.linalg.vector_norm(embeddings.to(wide), dim=-1, keepdim=True)
        if "proxy-lengths" not in self.facts:
            return (lengths,)
        return lengths, torch.linalg.vector_norm(self.proxies.to(wide), dim=-1)[None]

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        return f"{name_of(self.loss)}, num_classes={self.num_classes}, per_class={self.per_class}"


def _lengths_of(part: slice, *lengths: Tensor) -> dict[str, Tensor]:
    """Setting of a block of rows: lengths of its embeddings, times those of the proxies if these are given."""
    return {"lengths": math.prod(lengths[1:], start=lengths[0][part])} if lengths else {}


def _shared(labels: Tensor) -> Tensor:
    """Boolean ``[b, b]``: rows of one class, or with a class in common."""
    if labels.ndim == 1:
        return labels[:, None] == labels
    known = labels.float()
    return known @ known.T > 0


def batch_negatives(scores: Tensor, related: Tensor) -> Tensor:
    """The scores of the unrelated pairs of a batch, each once: above the diagonal, -inf elsewhere.

    Args:
        scores: ``[b, b]``.
        related: boolean ``[b, b]``.

    >>> batch_negatives(torch.tensor([[1.0, 0.2], [0.2, 1.0]]), torch.eye(2) > 0)
    tensor([[  -inf, 0.2000],
            [  -inf,   -inf]])
    """
    place = torch.arange(len(related), device=related.device)
    return scores.masked_fill((place[:, None] >= place).logical_or_(related), -torch.inf)
