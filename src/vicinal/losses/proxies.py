"""A pair loss against learned vectors of classes."""

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from vicinal.core import check_integer, check_matrices
from vicinal.losses.checks import check_reduction
from vicinal.losses.contract import PairLoss
from vicinal.losses.resolving import Loss, resolve_loss
from vicinal.losses.rowwise import block_rows
from vicinal.losses.streamed import Columns, Stream, equal_codes, streamed_loss
from vicinal.losses.unified import batch_negatives
from vicinal.similarity import resolve_similarity


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
        **hyper: Any,
    ) -> None:
        super().__init__()
        self.loss, self.facts = resolve_loss(loss)
        self.num_classes, self.per_class = (
            check_integer("num_classes", num_classes, 2),
            check_integer("per_class", per_class),
        )
        self.similarity = resolve_similarity(similarity)
        self.normalize, self.reduction, self.hyper = normalize, check_reduction(reduction), hyper
        self.proxies = nn.Parameter(torch.randn(num_classes * per_class, check_integer("dim", dim)) / math.sqrt(dim))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The loss.

        Args:
            embeddings: ``[b, dim]``.
            labels: classes 0 to C - 1 as whole numbers ``[b]``, or 0/1 (or shares) of several classes ``[b, C]``.

        Returns:
            A number; for the reduction "none" ``[b]``, or one a proxy for losses whose rows are proxies.
        """
        proxies: Tensor = self.proxies
        check_matrices(embeddings, proxies)
        hyper = dict(self.hyper)
        if "embedding-lengths" in self.facts:
            hyper["lengths"] = self._lengths(embeddings)
        if "proxy-groups" in self.facts:
            hyper["per_class"] = self.per_class
        if self.normalize:
            embeddings, proxies = (nn.functional.normalize(each, dim=-1) for each in (embeddings, proxies))
        relation = self._relation(embeddings, labels)
        if "batch-scores" in self.facts:
            hyper["negatives"] = batch_negatives(self.similarity(embeddings, embeddings), _shared(labels))
        rows, columns = embeddings, proxies
        if "proxy-rows" in self.facts:
            rows, columns = proxies, embeddings
        if "of_pairs" not in getattr(self.loss, "__dict__", {}):
            every = relation(slice(0, len(rows)))
            return self.loss(self.similarity(rows, columns), every, reduction=self.reduction, **hyper)
        of = Columns(relation, None, masks=labels.ndim == 1)
        size, loss = self._block_rows(rows, columns, hyper), cast(PairLoss, self.loss)
        return streamed_loss(Stream(loss, self.similarity, rows, columns, of, size, self.reduction, hyper))

    def _block_rows(self, rows: Tensor, columns: Tensor, hyper: dict[str, Any]) -> int:
        """Rows of a block; all of them where settings are tensors, or a similarity is learned."""
        tuned = any(each.requires_grad for each in self.similarity.parameters())
        apart = "row-separable" in self.facts or getattr(self.loss, "across", None) is not None
        if tuned or not apart or torch.compiler.is_compiling() or any(isinstance(v, Tensor) for v in hyper.values()):
            return max(1, len(rows))
        return block_rows(len(rows), len(columns), rows.device)

    def _relation(self, embeddings: Tensor, labels: Tensor) -> Callable[[slice], Tensor]:
        """Rows of the relation: of embeddings with proxies, or of proxies with embeddings where these are the rows."""
        shape, across = (len(embeddings), self.num_classes), "proxy-rows" in self.facts
        like = embeddings.new_zeros((), dtype=torch.promote_types(self.proxies.dtype, torch.float32))
        if labels.shape == shape:
            given = labels.to(like.dtype).repeat_interleave(self.per_class, dim=1)
            given = given.T.contiguous() if across else given
            return lambda part: given[part]
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

    def _lengths(self, embeddings: Tensor) -> Tensor:
        """``[b, 1]`` lengths of the embeddings, or ``[b, C]`` times those of the proxies where the loss wants both."""
        wide = torch.promote_types(embeddings.dtype, torch.float32)
        lengths: Tensor = torch.linalg.vector_norm(embeddings.to(wide), dim=-1, keepdim=True)
        if "proxy-lengths" not in self.facts:
            return lengths
        of_proxies: Tensor = torch.linalg.vector_norm(self.proxies.to(wide), dim=-1)
        return lengths * of_proxies

    def extra_repr(self) -> str:
        """Settings, for ``repr``."""
        name = getattr(self.loss, "__name__", type(self.loss).__name__)
        return f"{name}, num_classes={self.num_classes}, per_class={self.per_class}"


def _shared(labels: Tensor) -> Tensor:
    """Boolean ``[b, b]``: rows of one class, or with a class in common."""
    if labels.ndim == 1:
        return labels[:, None] == labels
    known = labels.float()
    return known @ known.T > 0
