"""Checkpoints of a training run: the best weights, and all that the next epoch depends on."""

import json
import logging
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from vicinal.core import replaced_file

_logger = logging.getLogger(__name__)

BEST, LAST = "best.ckpt", "last.ckpt"
_STATES, _STOPPED = "generators", "stopped"

Generator = torch.Generator | np.random.Generator | random.Random


class WholeCheckpoints(TorchCheckpointIO):
    """Writes checkpoints whole or not at all."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write ``checkpoint`` to ``path``, past the buffer of Lightning, which takes the memory of all of it."""
        with replaced_file(path) as aside:
            torch.save(checkpoint, aside)


class GoOn(Callback):
    """Keeps in the checkpoints what Lightning does not: random-number states, and whether training had ended.

    Weights, optimizer, scaler of mixed precision, early stopping and the number of the epoch are kept by Lightning; the
    order of rows follows from seed and epoch. With these a run that goes on after an epoch is, on one thread, bit by
    bit the run that was never stopped.
    """

    def __init__(self) -> None:
        self.stopped = False

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the states of all processes."""
        states: list[Any] = [random_states(pl_module)]
        if trainer.world_size > 1:
            states *= trainer.world_size
            torch.distributed.all_gather_object(states, random_states(pl_module))
        checkpoint[_STATES], checkpoint[_STOPPED] = states, bool(trainer.should_stop)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Take them up."""
        states = checkpoint[_STATES]
        set_random_states(pl_module, states[trainer.global_rank % len(states)])
        self.stopped = checkpoint[_STOPPED]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Train no further if training had ended."""
        trainer.should_stop = trainer.should_stop or self.stopped


def last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint to go on from, if there is one that can be read; what cannot is removed and said."""
    if not (folder / LAST).is_file():
        return None
    for name in (LAST, BEST):
        try:
            checkpoint = torch.load(folder / name, map_location="cpu", weights_only=True)
            if not {_STATES, _STOPPED} <= checkpoint.keys():
                raise ValueError("it is of an older version")
        except Exception as wrong:  # whatever the reason it cannot be read, the run starts anew
            _logger.warning("%s cannot be read (%s); training starts from the beginning", name, wrong)
            (folder / LAST).unlink(missing_ok=True)
            return None
    return folder / LAST


def random_states(module: nn.Module) -> dict[str, Any]:
    """The states of Python's, numpy's and torch's random numbers, and of the generators that ``module`` holds.

    >>> before = random_states(nn.Identity())
    >>> drawn = random.random(), np.random.rand(), torch.rand(())
    >>> set_random_states(nn.Identity(), before)
    >>> drawn == (random.random(), np.random.rand(), torch.rand(()))
    True
    """
    states = {
        "python": _state_of(random),
        "numpy": _as_text(np.random.get_state(legacy=False)),  # noqa: NPY002  # what a user's loss may draw from
        "torch": torch.get_rng_state(),
        "held": [_state_of(generator) for generator in _generators(module)],
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_states(module: nn.Module, states: dict[str, Any]) -> None:
    """Go back to what :func:`random_states` gave."""
    _set_state_of(random, states["python"])
    np.random.set_state(json.loads(states["numpy"]))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    for generator, state in zip(_generators(module), states["held"], strict=True):
        _set_state_of(generator, state)
    if "cuda" in states and torch.cuda.device_count() == len(states["cuda"]):
        torch.cuda.set_rng_state_all(states["cuda"])
    if "mps" in states and torch.backends.mps.is_available():
        torch.mps.set_rng_state(states["mps"])


def _generators(module: nn.Module) -> Iterator[Generator]:
    """Generators that modules have as attributes, or among the settings that they keep."""
    for part in module.modules():
        for value in vars(part).values():
            inner = value.keywords if isinstance(value, partial) else value
            for candidate in inner.values() if isinstance(inner, dict) else (inner,):
                if isinstance(candidate, Generator):
                    yield candidate


def _state_of(generator: Any) -> Any:
    """A state as what a checkpoint may hold, tensors and plain values: those that are not torch's are text of JSON."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    of_numpy = isinstance(generator, np.random.Generator)
    return _as_text(generator.bit_generator.state if of_numpy else generator.getstate())


def _set_state_of(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = json.loads(state)
    else:
        version, numbers, gauss = json.loads(state)
        generator.setstate((version, tuple(numbers), gauss))


def _as_text(state: Any) -> str:
    return json.dumps(state, default=lambda numbers: numbers.tolist())  # of arrays and numbers of numpy
