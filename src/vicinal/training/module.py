"""The Lightning module: a batch is its own bank while training, the training rows are the bank in validation."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from vicinal.encoders import PretrainedEncoder
from vicinal.heads import admissible
from vicinal.training.network import NeighborNetwork
from vicinal.training.rows import Rows
from vicinal.training.settings import TrainingSettings

_FLOOR = 1e-4
"""Mass given to every class in the log-loss, so that a class without neighbors costs much but not infinitely much."""


def error_of(prediction: Tensor, labels: Tensor) -> Tensor:
    r"""Error of each row ``[b]``: squared for labels ``[b]``, log-loss for one-hot labels ``[b, K]``.

    The log-loss is $-\sum_k y_k \ln(\delta + (1 - K\delta) p_k)$ with $\delta = 10^{-4}$: finite for a class that no
    neighbor has.

    >>> error_of(torch.tensor([0.5]), torch.tensor([1.0]))
    tensor([0.2500])
    """
    if labels.ndim == 1:
        return (prediction - labels).square()
    mass = _FLOOR + (1 - labels.shape[1] * _FLOOR) * prediction
    return -(labels * mass.log()).sum(dim=-1)


class MeanError(nn.Module):
    """The default criterion: mean of :func:`error_of` over rows."""

    def forward(self, prediction: Tensor, labels: Tensor) -> Tensor:
        """``[]`` from ``[b]`` and ``[b]``, or from ``[b, K]`` and one-hot ``[b, K]``."""
        return error_of(prediction, labels).mean()


class NeighborModule(LightningModule):
    """Trains a :class:`NeighborNetwork` on rows against one another.

    In a training step the batch is its own bank; ids keep a row from seeing itself, groups from seeing its group.
    Rows of a batch that have nobody to attend to are left out of the loss. In validation the bank is the training
    rows, embedded anew each time.

    Args:
        network: what is trained.
        train_rows: the bank of validation.
        settings: learning rates and weight decay are read here.
        criterion: ``criterion(prediction, labels) -> []``, what is trained and stopped by; None: :class:`MeanError`.
    """

    def __init__(
        self,
        network: NeighborNetwork,
        train_rows: Rows,
        settings: TrainingSettings,
        criterion: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.criterion = MeanError() if criterion is None else criterion
        self.settings = settings
        self._train_rows = train_rows
        self._bank: Tensor | None = None
        self.strict_loading = False  # frozen pretrained weights are not in the checkpoints

    def training_step(self, batch: dict[str, Any], batch_index: int) -> Tensor:
        """Loss of one batch, each row predicted from the others."""
        embeddings = self.network.embed(batch["inputs"])
        labels = batch["labels"].to(embeddings.dtype)
        ids, groups = batch["ids"], batch.get("groups")
        allowed = admissible((len(ids), len(ids)), ids, ids, groups, groups)
        active = torch.ones_like(ids, dtype=torch.bool) if allowed is None else allowed.any(dim=-1)
        loss = embeddings.sum() * 0.0
        if bool(active.any()):
            prediction = self.network.head(
                embeddings[active],
                embeddings,
                labels,
                query_ids=ids[active],
                bank_ids=ids,
                query_groups=None if groups is None else groups[active],
                bank_groups=groups,
            )
            loss = loss + self.criterion(prediction, labels[active])
        self.log("train_error", loss, on_step=False, on_epoch=True, batch_size=int(active.sum()), prog_bar=True)
        return loss

    def on_validation_epoch_start(self) -> None:
        """Embed the training rows anew: they are the neighbors of the validation rows."""
        self._bank = self.network.embed_all(self._train_rows.inputs, self.device)

    def validation_step(self, batch: dict[str, Any], batch_index: int) -> None:
        """Error of validation rows against the bank of training rows."""
        rows, bank = self._train_rows, self._bank
        if bank is None:
            raise RuntimeError("bank: expected on_validation_epoch_start to have run")
        groups = batch.get("groups")
        prediction = self.network.predict(
            self.network.embed(batch["inputs"]),
            bank,
            rows.labels.to(bank),
            query_ids=batch["ids"],
            bank_ids=rows.ids.to(bank.device),
            query_groups=groups,
            bank_groups=None if rows.groups is None else rows.groups.to(bank.device),
        )
        error = self.criterion(prediction, batch["labels"].to(prediction))
        self.log("validation_error", error, on_epoch=True, batch_size=len(prediction), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW with one learning rate for pretrained weights and one for the rest."""
        pretrained = [p for p in _pretrained_parameters(self.network.encoder) if p.requires_grad]
        known = {id(p) for p in pretrained}
        fresh = [p for p in self.parameters() if p.requires_grad and id(p) not in known]
        groups = [{"params": fresh, "lr": self.settings.learning_rate}]
        if pretrained:
            groups.append({"params": pretrained, "lr": self.settings.encoder_learning_rate})
        return torch.optim.AdamW(groups, weight_decay=self.settings.weight_decay)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leave the weights of frozen pretrained encoders out: they do not change and may be large."""
        frozen = {id(p) for p in _pretrained_parameters(self.network.encoder) if not p.requires_grad}
        names = {name for name, p in self.named_parameters() if id(p) in frozen}
        state = checkpoint["state_dict"]
        checkpoint["state_dict"] = {name: value for name, value in state.items() if name not in names}


def _pretrained_parameters(encoder: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [
        parameter
        for module in encoder.modules()
        if isinstance(module, PretrainedEncoder)
        for parameter in module.parameters()
    ]
