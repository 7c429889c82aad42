"""Settings of training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer, check_number
from vicinal.settings import BaseTraining

LOGGERS = {
    "csv": "CSVLogger",
    "tensorboard": "TensorBoardLogger",
    "wandb": "WandbLogger",
    "mlflow": "MLFlowLogger",
}
"""Loggers by name, with their classes of ``lightning.pytorch.loggers``."""


@dataclass(kw_only=True)
class TrainingSettings(BaseTraining):
    """Settings of one training run, checked when made.

    Attributes:
        max_epochs: most passes over the training rows, >= 1.
        batch_size: rows of a step, >= 2; a batch is its own bank, so this is also the number of neighbors plus one. The
            batches of an epoch have nearly this size; none is much smaller.
        learning_rate: of AdamW, for everything that starts from random weights.
        encoder_learning_rate: of AdamW, for pretrained encoders that are tuned.
        weight_decay: of AdamW (decoupled), >= 0.
        layer_decay: factor of a tuned encoder's learning rate from each layer to the one below, in [0, 1].
        schedule: "constant", or "linear": all learning rates rise over the first tenth of the steps, then fall to 0 at
            the end of ``max_epochs``.
        patience: epochs without a better validation error before training stops, >= 1.
        seed: of the order of rows and of dropout.
        precision: as Lightning names it: "32-true", "bf16-mixed", "16-mixed", "64-true".
        accelerator: as Lightning names it: "auto", "cpu", "gpu", "cuda", "mps"; one that this computer has.
        devices: how many processes train together, each on its own device (or all on the CPU). They share the
            ``batch_size`` rows of a step, and the result is that of one process, up to rounding and dropout. "auto":
            those that torchrun has started, else one for each GPU, else 1. More than one are spawned, so a script must
            train under ``if __name__ == "__main__":``, unless torchrun started it.
        timeout: seconds that a process waits for another before it fails, > 0.
        logger: None, or one of "csv", "tensorboard", "wandb", "mlflow".
        folder: for checkpoints, from which a killed run resumes; None: no checkpoints are left.

    Raises:
        ValueError: for a setting out of its range; the message names it.

    >>> TrainingSettings(batch_size=1)
    Traceback (most recent call last):
    ValueError: batch_size: expected a whole number of at least 2, got 1
    """

    batch_size: int = 32
    layer_decay: float = 1.0
    schedule: str = "constant"
    seed: int = 0
    devices: int | str = 1
    timeout: float = 1800.0
    folder: Path | None = field(default=None, compare=False)

    @property
    def planned(self) -> int | None:
        """Epochs at whose end learning rates are 0; None where they are constant, and patience ends training."""
        return None if self.schedule == "constant" else self.max_epochs

    def __post_init__(self) -> None:
        check_values(vars(self), BaseTraining)
        check_integer("seed", self.seed, low=0)
        if not 0 < check_number("layer_decay", self.layer_decay) <= 1:  # 0 would leave lower layers as they are
            raise ValueError(f"layer_decay: expected a number above 0 and at most 1, got {self.layer_decay}")
        check_choice("schedule", self.schedule, ("constant", "linear"))
        check_accelerator(self.accelerator)
        check_between("timeout", self.timeout, 0, float("inf"))
        if isinstance(self.devices, str):
            check_choice("devices", self.devices, ("auto",))
        else:
            check_integer("devices", self.devices)
        if self.logger is not None:
            check_choice("logger", self.logger, LOGGERS)


def check_values(values: Mapping[str, Any], kind: type) -> None:
    """Check the numbers and choices among ``values`` by what the settings of this kind may be; None where it may be.

    Raises:
        TypeError: naming a setting that is no number.
        ValueError: naming a setting that is out of its range, or none of its choices.

    >>> check_values({"patience": 0}, BaseTraining)
    Traceback (most recent call last):
    ValueError: patience: expected a whole number of at least 1, got 0
    """
    for one in (one for one in fields(kind) if one.name in values):
        limits, choices, value = one.metadata.get("limits"), one.metadata.get("choices"), values[one.name]
        if choices and (one.type is str or not (value is None or callable(value))):  # or a module of the user's
            check_choice(one.name, value, choices)
        if limits is None or (value is None and one.default is None):
            continue
        if one.type in (int, int | None):
            check_integer(one.name, value, int(limits.low), None if limits.high is None else int(limits.high))
        else:
            high = math.inf if limits.high is None else limits.high
            check_between(one.name, value, limits.low, high, closed=limits.closed)


def check_accelerator(name: object) -> str:
    """Return ``name`` if this computer has the accelerator; else raise ValueError.

    >>> check_accelerator("cpu")
    'cpu'
    """
    there = {"auto": True, "cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    there["gpu"] = there["cuda"] or there["mps"]
    known = check_choice("accelerator", name, sorted(there))
    if not there[known]:
        usable = " or ".join(repr(one) for one in sorted(there) if there[one])
        raise ValueError(f"accelerator: expected one that this computer has ({usable}), got {known!r}")
    return known


def encoding_device(accelerator: str) -> torch.device:
    """Where encoders run for ``accelerator``: on a CUDA GPU if there is one and it may be used, else on the processor.

    GPUs of Apple's machines are left to training, as embeddings are float64 behind the encoder.

    >>> encoding_device("cpu")
    device(type='cpu')
    """
    may_use = accelerator in ("auto", "gpu", "cuda")
    return torch.device("cuda" if may_use and torch.cuda.is_available() else "cpu")


def make_logger(settings: TrainingSettings, folder: Path) -> Any:
    """The Lightning logger that ``settings`` names, writing under ``folder``; False for none.

    Raises:
        ValueError: if the package behind it is not installed.
    """
    if settings.logger is None:
        return False
    from lightning.pytorch import loggers

    logger_class = getattr(loggers, LOGGERS[settings.logger])
    try:
        return logger_class(save_dir=str(folder))
    except ModuleNotFoundError as missing:
        raise ValueError(f"logger: expected the package behind {settings.logger!r}, got {missing}") from missing
