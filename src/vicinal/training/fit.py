"""One training run: Lightning's trainer with early stopping, the best checkpoint restored, and resuming."""

import math
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch import Tensor, nn

from vicinal.core import replaced_file
from vicinal.core.freeing import large_blocks_apart
from vicinal.core.progress import report, time_left
from vicinal.core.seeding import seeded
from vicinal.core.threads import all_threads, one_thread
from vicinal.encoders import ColumnEncoder, PretrainedEncoder, TableEncoder
from vicinal.encoders.table import TableInputs
from vicinal.training.added import AddedLosses
from vicinal.training.checkpoints import BEST, LAST, GoOn, WholeCheckpoints, last_checkpoint
from vicinal.training.fold_epochs import FoldEpochs
from vicinal.training.history import TrainingHistory
from vicinal.training.module import NeighborModule
from vicinal.training.network import NeighborNetwork
from vicinal.training.processes import Processes, SpawnedOrStarted, errors_of_processes, processes_of, share_weights
from vicinal.training.quiet import quiet
from vicinal.training.rows import RowInputs, Rows, RowSubset, loader
from vicinal.training.settings import TrainingSettings, make_logger
from vicinal.training.similarity import SimilarityGoal, SimilarityModule

STOPPING_ROWS = 1024
"""Validation rows that the epoch is chosen by, at most."""

STOPPING_BANK = 8192
"""Training rows that predict them, at most."""


_TRIED = 200
"""Steps before which no training is given up: the first ones tell little of what follows."""


def cannot_reach(error: float, errors: Sequence[float], planned: int | None = None) -> bool:
    """Whether as many epochs again, each as good as the last three were on average, would not come down to ``error``.

    Curves flatten, so that this is more than they would gain. Where a plan has so many epochs, two of them tell, and
    those that are left gain as learning rates fall, which sum to the square of what is left.

    >>> cannot_reach(0.1, [2.0, 1.5, 1.2, 1.1]), cannot_reach(0.1, [2.0, 1.5, 1.0, 0.9])
    (False, False)
    >>> cannot_reach(0.1, [1.4, 1.3, 1.2, 1.1])
    True
    >>> cannot_reach(0.1, [1.4, 0.9], 6), cannot_reach(0.1, [1.4, 1.0], 6)  # 16/9 of what the second has gained
    (False, True)
    """
    if len(errors) < (4 if planned is None else 2):
        return False
    known, count = errors[-4:], len(errors)
    steps = len(known) - 1
    share = count / steps
    if planned is not None:
        share = (planned - count) ** 2 / ((planned - count + steps) ** 2 - (planned - count) ** 2)
    return min(errors) - share * max(0.0, known[0] - known[-1]) > error


class _Record(Checkpoint):
    """Keeps the two error curves and the best weights, and says when training ends.

    Curves are part of the checkpoints, so a resumed run has them whole. Lightning's own callbacks for this and its
    means over batches take a tenth to a fifth of a small fit's time.

    Args:
        history: what is written.
        patience: epochs without a lower validation error after which training ends.
        reach: see :func:`train`.
        planned: epochs of a plan; None: there is none.
        folder: where checkpoints are left; None: the best weights stay in ``best``.
    """

    def __init__(
        self, history: TrainingHistory, patience: int, reach: float, planned: int | None, folder: Path | None
    ) -> None:
        self.history, self.patience, self.folder = history, patience, folder
        self.reach, self.planned = reach, planned
        self.best: dict[str, Tensor] = {}
        self._begun = 0.0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        done = len(self.history.train_error) + (batch_idx + 1) / max(1, int(trainer.num_training_batches))
        self._report(done, trainer)

    def _report(self, done: float, trainer: Trainer) -> None:
        """Tell how far training is, and how far it will come if nothing gets better."""
        errors, most = self.history.validation_error, trainer.max_epochs or 1
        if not errors:
            report("training", done, None, f"epoch 1 of at most {most}")
            return
        last = min(most, errors.index(min(errors)) + 1 + self.patience)
        report("training", done, last, f"epochs (max. {most}), error {errors[-1]:.3g}")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begun = time.perf_counter()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for optimizer in trainer.optimizers:
            optimizer.state.clear()  # moments, which a circle holds, are twice the weights

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        means = cast(NeighborModule, pl_module).means()
        if trainer.loggers:
            pl_module.log_dict(means)
        self.history.train_error.append(means["train_error"])
        self.history.validation_error.append(means["validation_error"])
        self.history.seconds.append(time.perf_counter() - self._begun)
        errors = self.history.validation_error
        waited = len(errors) - 1 - errors.index(min(errors))
        trainer.should_stop |= time_left() <= 0 or waited >= self.patience or not math.isfinite(errors[-1])
        tried = self.planned is not None or trainer.global_step >= _TRIED
        trainer.should_stop |= tried and cannot_reach(self.reach, errors, self.planned)
        self._keep(trainer, pl_module, best=waited == 0)

    def _keep(self, trainer: Trainer, pl_module: LightningModule, *, best: bool) -> None:
        """Keep the weights of this epoch where they are the best, and in the folder all that a run needs to go on."""
        if self.folder is not None:
            trainer.save_checkpoint(self.folder / (BEST if best else LAST))
            if best and trainer.is_global_zero:
                with replaced_file(self.folder / LAST) as aside:
                    shutil.copyfile(self.folder / BEST, aside)
        elif best:
            checkpoint = {"state_dict": pl_module.state_dict()}
            pl_module.on_save_checkpoint(checkpoint)
            self.best = {name: value.detach().clone() for name, value in checkpoint["state_dict"].items()}

    def take_best(self, module: nn.Module) -> None:
        """Give ``module`` the best weights; what the optimizer holds is left in the file."""
        if self.folder is not None:
            self.best = torch.load(self.folder / BEST, map_location="cpu", weights_only=True, mmap=True)["state_dict"]
        module.load_state_dict(self.best, strict=False)
        self.best = {}

    def state_dict(self) -> dict[str, Any]:
        return vars(self.history) | {"best_epoch": 0}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history.train_error = list(state_dict["train_error"])
        self.history.validation_error = list(state_dict["validation_error"])
        self.history.seconds = list(state_dict.get("seconds", []))
        self.history.resumed_at = len(self.history.train_error)

    def take(self, checkpoint: Path) -> None:
        """Read the curves from the last checkpoint of processes that have ended."""
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)["callbacks"][self.state_key]
        self.load_state_dict(state)
        self.history.resumed_at = state["resumed_at"]


def train(
    network: NeighborNetwork,
    train_rows: Rows,
    validation_rows: Rows | None,
    settings: TrainingSettings,
    criterion: nn.Module | None = None,
    added: AddedLosses | None = None,
    goal: SimilarityGoal | None = None,
    fair: nn.Module | None = None,
    reach: float = math.inf,
) -> TrainingHistory:
    """Train ``network`` in place, to the weights with the lowest validation error.

    A run with ``settings.folder`` set leaves a checkpoint there after each epoch and goes on from it if it is called
    again with the same rows and settings (the caller sees to that); an epoch that was not finished starts anew. On one
    thread the weights are then, bit by bit, those of a run that was never stopped. Validation rows are read after each
    epoch; no other row is. Of many, 1,024 validation rows against 8,192 training rows, spread evenly over their order,
    decide when to stop, so that this does not take longer than the epoch.

    Args:
        network: what is trained; comes back in evaluation mode, on the CPU.
        train_rows: at least 2. With folds, members are trained as folds: each leaves out the rows of its fold, and
            comes back as it was at the epoch at which the rows of the other folds had the least error.
        validation_rows: at least 1; None where ``train_rows`` have folds, whose rows are all validated on.
        settings: see :class:`TrainingSettings`.
        criterion: see :class:`NeighborModule`.
        added: see there.
        goal: what embeddings are trained by where nothing is predicted; all validation rows are read then.
        fair: see :class:`NeighborModule`; not for rows with folds.
        reach: the validation error that makes training worth it; what :func:`cannot_reach` it is trained no longer.

    Returns:
        The error curves.

    Raises:
        KeyboardInterrupt: if the user stops the run; checkpoints stay.
        ValueError: for folds and validation rows, or neither, or folds in several processes; for more processes than
            rows of a batch, or parts that cannot be sent to spawned processes.
        RuntimeError: if another process does not answer for ``settings.timeout`` seconds.
    """
    history = TrainingHistory()
    processes = processes_of(settings)
    validation_rows = _validation_rows(train_rows, validation_rows, processes)
    lists = bool(getattr(criterion, "of_lists", False))
    if lists and processes.count > 1:
        raise ValueError(f"devices: expected one process for a loss of lists, got {processes.count}")
    validation_rows = validation_rows if goal else validation_rows.spread(STOPPING_ROWS, whole=lists)
    folds = []
    if validation_rows.folds is not None:
        folds = [FoldEpochs(validation_rows.folds.bincount(validation_rows.weights))]
    with ExitStack() as stack:
        stack.enter_context(seeded(settings.seed))  # before what sets warnings and threads of the process
        stack.enter_context(quiet())
        stack.enter_context(_threads_for(network))
        train_rows, validation_rows = _with_states(network.encoder, train_rows, validation_rows)
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="vicinal-"))
        folder = Path(scratch) if settings.folder is None else settings.folder
        network.train()  # Lightning keeps the mode it finds
        if goal is None:
            module = NeighborModule(network, train_rows.spread(STOPPING_BANK), settings, criterion, added, fair)
        else:
            module = SimilarityModule(network, train_rows, settings, goal)
        going_on = settings.folder is not None or processes.count > 1
        record = _Record(history, settings.patience, reach, settings.planned, folder if going_on else None)
        trainer = _trainer(settings, processes, folder, [*folds, *([GoOn()] if going_on else []), record])
        known: Any = {"processes": processes.count, "lists": lists}
        loaders = (
            loader(train_rows, settings.batch_size, settings.seed, goal.batches if goal else None, **known),
            loader(validation_rows, 256, None, **known),
        )
        try:
            with errors_of_processes():
                trainer.fit(module, *loaders, ckpt_path=last_checkpoint(folder), weights_only=True)
        except SystemExit as stopped:  # what Lightning makes of Ctrl-C
            raise KeyboardInterrupt from stopped
        if processes.count > 1 and not processes.started:
            record.take(folder / LAST)
        module.cpu()
        if trainer.is_global_zero:  # others may not see the folder
            record.take_best(module)
            history.best_epoch = history.validation_error.index(min(history.validation_error))
            for each in folds:
                each.restore(network)
        if processes.started:
            history.best_epoch = share_weights(network, history.best_epoch)
    network.eval().zero_grad()
    return history


def _validation_rows(train_rows: Rows, validation_rows: Rows | None, processes: Processes) -> Rows:
    """These, or where members are folds the training rows, those of a fold together, so that a batch is of few folds.

    Raises:
        ValueError: for both or neither, or folds in several processes.
    """
    if (train_rows.folds is None) == (validation_rows is None):
        got = "neither" if validation_rows is None else "both"
        raise ValueError(f"validation_rows: expected these or folds of the training rows, got {got}")
    if train_rows.folds is not None and processes.count > 1:
        raise ValueError("devices: expected one process to train members as folds, got more; hold rows out")
    if validation_rows is not None or train_rows.folds is None:
        return validation_rows or train_rows
    return train_rows.take(train_rows.folds.argsort(stable=True))


def _with_states(encoder: nn.Module, train_rows: Rows, validation_rows: Rows) -> tuple[Rows, Rows]:
    """The rows with what the frozen layers of encoders that are tuned in part make of them, computed once."""
    whole = train_rows.inputs.inputs if isinstance(train_rows.inputs, RowSubset) else None
    if not isinstance(encoder, TableEncoder) or not isinstance(whole, TableInputs):
        return train_rows, validation_rows
    seen = encoder.keep_states(whole)

    def with_states(inputs: RowInputs) -> RowInputs:
        if isinstance(inputs, RowSubset):
            return RowSubset(with_states(inputs.inputs), inputs.positions)
        return seen if inputs is whole else inputs

    first, second = (replace(rows, inputs=with_states(rows.inputs)) for rows in (train_rows, validation_rows))
    return first, second


def _trainer(settings: TrainingSettings, processes: Processes, folder: Path, callbacks: list[Callback]) -> Trainer:
    """Lightning's trainer for ``settings``."""
    return Trainer(
        accelerator=settings.accelerator,
        devices=processes.devices,
        num_nodes=processes.nodes,
        strategy="auto" if processes.count == 1 else SpawnedOrStarted(processes, settings.timeout),
        use_distributed_sampler=False,
        precision=settings.precision,  # type: ignore[arg-type]  # checked by TrainingSettings
        max_epochs=settings.max_epochs,
        logger=make_logger(settings, folder),
        callbacks=callbacks,
        plugins=[WholeCheckpoints()],
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
    )


@contextmanager
def _threads_for(network: NeighborNetwork) -> Iterator[None]:
    """One thread where a step is too small to share.

    The demo, which trains on n-grams twice, took 22 s of processor time with one thread, and 284 s with two on a
    busy machine.
    Networks that train on images, sounds or transformers keep torch's setting, and where these are pretrained no memory
    that was freed.
    """
    parts = [part for part in network.encoder.modules() if isinstance(part, ColumnEncoder)]  # those of elements, too
    large = any(not part.frozen and part.kind in ("image", "audio") for part in parts)
    tuned = any(not part.frozen and isinstance(part, PretrainedEncoder) for part in parts)
    with large_blocks_apart() if tuned else nullcontext(), all_threads() if tuned or large else one_thread():
        yield
