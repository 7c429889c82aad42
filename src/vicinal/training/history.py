"""The record of a training run."""

from dataclasses import dataclass, field


@dataclass
class TrainingHistory:
    """Error curves and times of a training run.

    Attributes:
        train_error: mean error over each epoch's batches, on [0, 1]-scaled labels (log-loss for classes).
        validation_error: error on the validation rows at the end of each epoch.
        best_epoch: position of the epoch whose weights were kept.
        resumed_at: epoch at which an interrupted run was resumed, or None.
        seconds: duration of each epoch, with its validation.
    """

    train_error: list[float] = field(default_factory=list)
    validation_error: list[float] = field(default_factory=list)
    best_epoch: int = 0
    resumed_at: int | None = None
    seconds: list[float] = field(default_factory=list, compare=False)
