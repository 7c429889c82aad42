"""A pair loss against learned vectors of classes."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.core import check_integer, check_matrices
from vicinal.losses.checks import check_reduction
from vicinal.losses.embedding import Loss, resolve_loss
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
        relation = self._relation(embeddings, labels)
        hyper = dict(self.hyper)
        if "embedding-lengths" in self.facts:
            hyper["lengths"] = self._lengths(embeddings)
        if "proxy-groups" in self.facts:
            hyper["per_class"] = self.per_class
        if self.normalize:
            embeddings, proxies = (nn.functional.normalize(each, dim=-1) for each in (embeddings, proxies))
        rows, columns = embeddings, proxies
        if "proxy-rows" in self.facts:
            rows, columns, relation = proxies, embeddings, relation.T
        return self.loss(self.similarity(rows, columns), relation, reduction=self.reduction, **hyper)

    def _relation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        if labels.shape == (len(embeddings), self.num_classes):
            relation = labels.to(self.proxies.dtype)
        elif labels.shape == (len(embeddings),) and not labels.is_floating_point():
            if not torch.compiler.is_compiling() and bool(((labels < 0) | (labels >= self.num_classes)).any()):
                raise ValueError(f"labels: expected classes 0 to {self.num_classes - 1}, got {labels.tolist()[:9]}")
            classes = torch.arange(self.num_classes, device=labels.device)
            relation = (labels[:, None] == classes).to(self.proxies.dtype)
        else:
            raise ValueError(
                f"labels: expected whole numbers [{len(embeddings)}] or [{len(embeddings)}, {self.num_classes}], got "
                f"{labels.dtype} of shape {tuple(labels.shape)}"
            )
        return relation.repeat_interleave(self.per_class, dim=1)

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
