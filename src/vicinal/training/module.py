"""The Lightning module: a batch is its own bank in training; the training rows are the bank in validation."""

from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from vicinal.core.gathering import gather_rows, process_rank
from vicinal.encoders import PretrainedEncoder
from vicinal.heads.admissible import Identity, of_queries_in, own_bank
from vicinal.heads.folds import FoldMembers
from vicinal.heads.kinds import has_members
from vicinal.training.added import AddedLosses
from vicinal.training.error import MeanError, weighted_mean
from vicinal.training.network import NeighborNetwork
from vicinal.training.normalizing import separate, synchronize
from vicinal.training.processes import part_of
from vicinal.training.rows import RowInputs, Rows, RowSubset
from vicinal.training.settings import TrainingSettings


class NeighborModule(LightningModule):
    """Trains a :class:`NeighborNetwork` on rows against one another.

    In a training step the batch is its own bank; ids keep a row from attending to itself, groups from attending to its
    group. Rows without any neighbor in the batch are left out of the loss. In validation the bank is the training
    rows, which are embedded again each time.

    Rows with folds train members as folds (see :class:`vicinal.heads.folds.FoldMembers`): each member is trained on the
    rows of the other folds, and validated on those of its own fold, with the whole bank except that fold.

    Several processes train as one: each embeds and predicts its part of a batch, against the whole batch. Embeddings,
    predictions and labels are gathered, with gradients, so that all processes have the same loss, and the mean of their
    gradients is that of a single process. Batch norms take their statistics over all processes.

    Args:
        network: the network to train.
        train_rows: the bank of validation.
        settings: learning rates, their schedule, weight decay and the seed are read here.
        criterion: ``criterion(prediction, labels) -> []``, the error of training and early stopping; None:
            :class:`MeanError`. If rows have weights, it must return the error of each row ``[b]``.
        added: losses of the embeddings, added in training steps only; or None.
        fair: a term of the predictions, ``fair(prediction, labels, ids) -> []``, added to the criterion; or None.
    """

    def __init__(
        self,
        network: NeighborNetwork,
        train_rows: Rows,
        settings: TrainingSettings,
        criterion: nn.Module | None = None,
        added: AddedLosses | None = None,
        fair: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        by_row = "none" if train_rows.weighted else "mean"
        self.criterion = MeanError(reduction=by_row) if criterion is None else criterion
        self.added, self.fair = added, fair
        self.settings = settings
        self._train_rows = train_rows
        self._bank: Tensor | None = None
        self.fold_members: FoldMembers | None = None
        if train_rows.folds is not None and has_members(network.head):
            self.fold_members = FoldMembers(network.head, len(network.head.heads), int(train_rows.folds.max()) + 1)
        self.fold_errors: list[float] = []
        self._left_out: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self._sums: dict[str, tuple[Tensor | float, int]] = {}
        self.together = False  # whether other processes train with this one
        self.strict_loading = False  # frozen pretrained weights are not in the checkpoints

    def training_step(self, batch: dict[str, Any], batch_index: int) -> Tensor:
        """Loss of one batch, each row predicted from the others."""
        local, ids, groups = self._embedded(batch), batch["ids"], batch.get("groups")
        labels = batch["labels"].to(local.dtype)
        if self.fold_members is not None:
            return self._folds_step(self.fold_members, local, labels, batch)
        embeddings, all_labels, all_ids = self._all(local), self._all(labels), self._all(ids)
        all_groups, weight = (None if one is None else self._all(one) for one in (groups, batch.get("weights")))
        who = own_bank(all_ids, all_groups, weight)
        allowed = who.allowed(len(all_ids), len(all_ids))
        active = torch.ones_like(all_ids, dtype=torch.bool) if allowed is None else allowed.any(dim=-1)
        # 0 with a graph: a batch in which no row has a neighbor still takes a step, as the other processes do
        loss = embeddings.sum() * 0.0
        if bool(active.any()):
            prediction = self._predicted(local, embeddings, all_labels, who, active)
            counted, lists = (None if one is None else one[active] for one in (weight, all_groups))
            loss = loss + self._error(prediction, all_labels[active], counted, lists)
            loss = loss + self._unfairness(prediction, all_labels[active], all_ids[active])
        self.tell("train_error", loss, int(active.sum()))
        if self.added is not None:
            added = self.added(embeddings, all_labels, all_ids, all_groups)
            self.tell("train_added", added, len(all_ids))
            loss = loss + added
        return loss + self._every_parameter() if self.together else loss

    def _folds_step(self, members: FoldMembers, embeddings: Tensor, labels: Tensor, batch: dict[str, Any]) -> Tensor:
        """The mean of the members' losses, each of the rows that it does not leave out."""
        weight = batch.get("weights")
        who = own_bank(batch["ids"], batch.get("groups"), weight)
        prediction, valid = members.training_predictions(embeddings, labels, batch["folds"], **who.by_name())
        each = zip(prediction.unbind(-1), valid.unbind(-1), strict=True)
        losses = [
            self._error(one[mine], labels[mine], None if weight is None else weight[mine])
            for one, mine in each
            if bool(mine.any())
        ]
        loss = embeddings.sum() * 0.0 + (torch.stack(losses).mean() if losses else 0.0)
        self.tell("train_error", loss, int(valid.any(dim=-1).sum()))
        return loss

    def tell(self, name: str, value: Tensor | float, rows: int = 1) -> None:
        """Count ``value`` into a mean over the rows of this epoch, as Lightning's ``log`` does in more time."""
        value = torch.as_tensor(value).detach()
        value = value if value.dtype == torch.float64 else value.float()
        total, count = self._sums.get(name, (0.0, 0))
        self._sums[name] = total + value * rows, count + rows

    def means(self) -> dict[str, float]:
        """The means of what was told in this epoch, which ends."""
        sums, self._sums = self._sums, {}
        return {name: float(torch.as_tensor(total) / count) for name, (total, count) in sums.items()}

    def _embedded(self, batch: dict[str, Any]) -> Tensor:
        """Embeddings of this process' rows; if they are gathered, in at least float32, so that gradients add up."""
        embeddings = self.network.embed(batch["inputs"])
        wide = torch.promote_types(embeddings.dtype, torch.float32)
        return embeddings.to(wide) if self.together else embeddings

    def _every_parameter(self) -> Tensor:
        """0, with gradient 0 for every parameter: processes wait for the gradients of all, also of unused ones."""
        return torch.stack([p.flatten()[:1].sum() for p in self.parameters() if p.requires_grad]).sum() * 0.0

    def _all(self, rows: Tensor) -> Tensor:
        """The rows of all processes."""
        return gather_rows(rows) if self.together else rows

    def _predicted(
        self,
        local: Tensor,
        embeddings: Tensor,
        labels: Tensor,
        who: Identity,
        active: Tensor,
    ) -> Tensor:
        """Predictions of all rows that are ``active [b]``, one at least, each by the process that has embedded the row.

        ``local`` are the embeddings of this process, all else is of all processes.
        """
        start = 0  # where the rows of this process begin among those of all
        if self.together:
            start = int(gather_rows(torch.tensor([len(local)], device=local.device))[: process_rank()].sum())
        mine = active[start : start + len(local)]
        queries, places = local[mine], torch.arange(len(active), device=active.device)[start : start + len(local)][mine]
        if len(queries) == 0:  # all processes have to do the same, so this one asks for somebody else, and tells nobody
            places = active.nonzero()[:1, 0]
            queries = embeddings[places]
        predict = getattr(self.network.head, "each", self.network.head)  # members are trained each by its own error
        prediction: Tensor = predict(queries, embeddings, labels, **of_queries_in(places, who.by_name()))
        return self._all(prediction[: int(mine.sum())])

    def _error(self, prediction: Tensor, labels: Tensor, weight: Tensor | None, groups: Tensor | None = None) -> Tensor:
        """The criterion, by ``weight [b]``; of members ``[b, M]`` or ``[b, K, M]`` the mean of theirs.

        A loss of lists also gets the groups ``[b]``, which are its lists.
        """
        if prediction.ndim > labels.ndim:
            return torch.stack([self._error(one, labels, weight, groups) for one in prediction.unbind(-1)]).mean()
        if getattr(self.criterion, "of_lists", False):
            return self.criterion(prediction, labels, groups)
        error = self.criterion(prediction, labels)
        return error if weight is None else weighted_mean(error, weight)

    def _unfairness(self, prediction: Tensor, labels: Tensor, ids: Tensor) -> Tensor | float:
        """The term of fairness; of members the mean of theirs."""
        if self.fair is None:
            return 0.0
        if prediction.ndim > labels.ndim:
            return torch.stack([self.fair(one, labels, ids) for one in prediction.unbind(-1)]).mean()
        return self.fair(prediction, labels, ids)

    def setup(self, stage: str) -> None:
        """With several processes, synchronize batch norms and seed each process."""
        self.together = self.trainer.world_size > 1
        if self.together:
            synchronize(self.network)
            torch.manual_seed(self.settings.seed + process_rank())

    def teardown(self, stage: str) -> None:
        """Undo :meth:`setup`."""
        if self.together:
            separate(self.network)
        self.together = False

    def on_validation_epoch_start(self) -> None:
        """Embed the training rows, which are the bank of the validation rows; each process embeds a part."""
        inputs: RowInputs = self._train_rows.inputs
        if self.together:
            inputs = RowSubset(inputs, part_of(torch.arange(len(inputs))))
        self._bank = self._all(self.network.embed_all(inputs, self.device))
        self._left_out = []

    def validation_step(self, batch: dict[str, Any], batch_index: int) -> None:
        """Error of validation rows against the bank of training rows."""
        rows, bank = self._train_rows, self._bank
        if bank is None:
            raise RuntimeError("bank: expected on_validation_epoch_start to have run")
        groups = batch.get("groups")
        identity = {"query_ids": batch["ids"], "query_groups": groups} | rows.as_bank(bank.device)
        weight = batch.get("weights")
        queries, bank_labels = self.network.embed(batch["inputs"]), rows.labels.to(bank)
        if self.fold_members is not None and rows.folds is not None:
            folds, bank_folds = batch["folds"], rows.folds.to(bank.device)
            prediction = self.fold_members.out_of_fold(queries, folds, bank, bank_labels, bank_folds, **identity)
            counted = torch.ones_like(folds) if weight is None else weight
            self._left_out.append((prediction, batch["labels"].to(prediction), folds, counted))
            return
        prediction = self.network.predict(queries, bank, bank_labels, **identity)
        prediction, labels = self._all(prediction), self._all(batch["labels"].to(prediction))
        error = self._error(prediction, labels, None if weight is None else self._all(weight), groups)
        error = error + self._unfairness(prediction, labels, self._all(batch["ids"]))
        self.tell("validation_error", error, len(prediction))

    def on_validation_epoch_end(self) -> None:
        """With folds: the error on each fold's rows by its own members, and the mean over all rows."""
        if not self._left_out:
            return
        prediction, labels, folds, weight = (torch.cat(parts) for parts in zip(*self._left_out, strict=True))
        self._left_out = []
        weighted = weight.is_floating_point()
        counts = folds.bincount(weight if weighted else None)
        self.fold_errors = []
        for fold in range(len(counts)):
            at = folds == fold
            mine = weight[at] / weight[at].mean() if weighted else None
            self.fold_errors.append(float(self._error(prediction[at], labels[at], mine)))
        error = (torch.tensor(self.fold_errors) * counts.cpu()).sum() / counts.cpu().sum()
        self.tell("validation_error", error)

    def configure_optimizers(self) -> Any:
        """AdamW, with a learning rate for each layer of pretrained encoders and one for the rest."""
        settings = self.settings
        layers = [part.by_layer() for part in self.network.encoder.modules() if isinstance(part, PretrainedEncoder)]
        groups = [
            {"params": weights, "lr": settings.encoder_learning_rate * settings.layer_decay**depth}
            for part in layers
            for depth, weights in enumerate(part)
        ]
        known = {id(weight) for group in groups for weight in group["params"]}  # type: ignore[attr-defined]
        fresh = [p for p in self.parameters() if p.requires_grad and id(p) not in known]
        optimizer = torch.optim.AdamW(
            [{"params": fresh, "lr": settings.learning_rate}, *groups], weight_decay=settings.weight_decay, fused=True
        )
        if settings.schedule == "constant":
            return optimizer
        steps = int(self.trainer.estimated_stepping_batches)
        rise = max(1, steps // 10)
        factor = partial(_rise_and_fall, rise, steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.LambdaLR(optimizer, factor), "interval": "step"},
        }

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Leave out the weights of frozen pretrained encoders, which do not change and may be large."""
        networks = [part for part in self.network.encoder.modules() if isinstance(part, PretrainedEncoder)]
        frozen = {id(p) for part in networks for p in part.parameters() if not p.requires_grad}
        names = {name for name, p in self.named_parameters() if id(p) in frozen}
        state = checkpoint["state_dict"]
        checkpoint["state_dict"] = {name: value for name, value in state.items() if name not in names}


def _rise_and_fall(rise: int, steps: int, step: int) -> float:
    """The factor of the learning rate at a step, of ``steps`` of which the first ``rise`` warm up.

    >>> [_rise_and_fall(2, 6, step) for step in range(6)]
    [0.5, 1.0, 0.8, 0.6, 0.4, 0.2]
    """
    return min((step + 1) / rise, (steps - step) / (steps - rise + 1))
