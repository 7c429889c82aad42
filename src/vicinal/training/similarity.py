"""Training for what is alike: losses of the embeddings alone, judged by what is near on rows held out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.losses import ProxyLoss
from vicinal.samplers import BatchSampler
from vicinal.training.module import NeighborModule
from vicinal.training.network import NeighborNetwork
from vicinal.training.rows import Rows
from vicinal.training.settings import TrainingSettings


@dataclass(frozen=True)
class SimilarityGoal:
    """What embeddings are trained and judged by.

    Attributes:
        criteria: factor and criterion of each loss, ``criterion(embeddings, labels, ids=, groups=)`` or a
            :class:`vicinal.losses.ProxyLoss`.
        judge: from embeddings and labels of all rows held out to an error, which training stops by.
        batches: which rows meet; None: all rows at random.
    """

    criteria: Sequence[tuple[float, nn.Module]]
    judge: Callable[[Tensor, Tensor], float]
    batches: BatchSampler | None = None


class SimilarityModule(NeighborModule):
    """Trains encoder and projector by losses of the embeddings of a batch; nothing is predicted.

    Args:
        network: what is trained; its head is not used.
        train_rows: labels as the losses take them: classes, several classes ``[n, C]``, or numbers.
        settings: see :class:`NeighborModule`.
        goal: what by.
    """

    def __init__(
        self, network: NeighborNetwork, train_rows: Rows, settings: TrainingSettings, goal: SimilarityGoal
    ) -> None:
        super().__init__(network, train_rows, settings)
        self.weights, self.judge = [weight for weight, _ in goal.criteria], goal.judge
        self.criteria = nn.ModuleList([criterion for _, criterion in goal.criteria])
        self._parts: list[tuple[Tensor, Tensor]] = []

    def training_step(self, batch: dict[str, Any], batch_index: int) -> Tensor:
        """The sum of the losses."""
        embeddings, labels = self.network.embed(batch["inputs"]), batch["labels"]
        total = embeddings.new_zeros((), dtype=torch.promote_types(embeddings.dtype, torch.float32))
        for weight, criterion in zip(self.weights, self.criteria, strict=True):
            proxies = isinstance(criterion, ProxyLoss)
            identity = {} if proxies else {"ids": batch["ids"], "groups": batch.get("groups")}
            total = total + weight * criterion(embeddings, labels, **identity)
        self.log("train_error", total, on_step=False, on_epoch=True, batch_size=len(labels), prog_bar=True)
        return total

    def on_validation_epoch_start(self) -> None:
        """Nothing is embedded before."""
        self._parts = []

    def validation_step(self, batch: dict[str, Any], batch_index: int) -> None:
        """Embed some of the rows held out."""
        self._parts.append((self.network.embed(batch["inputs"]), batch["labels"]))

    def on_validation_epoch_end(self) -> None:
        """Judge all of them."""
        embeddings, labels = (torch.cat(parts) for parts in zip(*self._parts, strict=True))
        self._parts = []
        self.log("validation_error", self.judge(embeddings, labels), prog_bar=True)
