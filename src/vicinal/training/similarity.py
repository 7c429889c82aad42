"""Training of a similarity by losses of embeddings, validated by the embeddings of held-out rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.samplers import BatchSampler
from vicinal.training.added import AddedLosses
from vicinal.training.module import NeighborModule
from vicinal.training.network import NeighborNetwork
from vicinal.training.rows import Rows
from vicinal.training.settings import TrainingSettings


@dataclass(frozen=True)
class SimilarityGoal:
    """The losses and the validation error of embeddings.

    Attributes:
        criteria: factor and criterion of each loss, ``criterion(embeddings, labels, ids=, groups=)`` or a
            :class:`vicinal.losses.ProxyLoss`.
        judge: maps embeddings and labels of all held-out rows to an error, for early stopping.
        batches: sampler of batches; None: :class:`RowBatches`, in random order.
    """

    criteria: Sequence[tuple[float, nn.Module]]
    judge: Callable[[Tensor, Tensor], float]
    batches: BatchSampler | None = None


class SimilarityModule(NeighborModule):
    """Trains encoder and projector by losses of the embeddings of a batch; nothing is predicted.

    Args:
        network: the network to train; its head is not used.
        train_rows: labels as the losses take them: classes, several classes ``[n, C]``, or numbers.
        settings: see :class:`NeighborModule`.
        goal: losses and validation error.
    """

    def __init__(
        self, network: NeighborNetwork, train_rows: Rows, settings: TrainingSettings, goal: SimilarityGoal
    ) -> None:
        super().__init__(network, train_rows, settings)
        self.losses, self.judge = AddedLosses(goal.criteria), goal.judge
        self._parts: list[tuple[Tensor, Tensor]] = []

    def training_step(self, batch: dict[str, Any], batch_index: int) -> Tensor:
        """The weighted sum of the losses."""
        embeddings, labels = self.network.embed(batch["inputs"]), batch["labels"]
        total = self.losses.summed(embeddings, labels, batch["ids"], batch.get("groups"))
        self.tell("train_error", total, len(labels))
        return total

    def on_validation_epoch_start(self) -> None:
        """Forget earlier embeddings."""
        self._parts = []

    def validation_step(self, batch: dict[str, Any], batch_index: int) -> None:
        """Embed a batch of held-out rows."""
        self._parts.append((self.network.embed(batch["inputs"]), batch["labels"]))

    def on_validation_epoch_end(self) -> None:
        """Tell the validation error of all held-out rows."""
        embeddings, labels = (torch.cat(parts) for parts in zip(*self._parts, strict=True))
        self._parts = []
        self.tell("validation_error", self.judge(embeddings, labels))
