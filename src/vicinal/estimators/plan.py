"""A plan of how pretrained encoders are tuned: what it holds, and how it is made out of times that were measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from vicinal.core import short
from vicinal.core.untrusted import read_settings, saved_settings
from vicinal.settings import BaseTraining

EPOCHS = 6
"""Most epochs of a plan; more gained nothing on validation rows of the sets that it was tried on."""

FEWEST_EPOCHS = 2
"""Fewest epochs, for which rows are left out before epochs are."""

FEWEST_ROWS = 256
"""Fewer rows than this tune nothing."""

ENCODER_LEARNING_RATE = 1e-4
"""Of the highest layer, with few epochs at the end of which it has fallen to 0."""


TRAINED = ("batch_size", "learning_rate", "weight_decay", "precision")
"""Settings of training that are those of an estimator, but for the precision, which a probe may choose."""

_Training = saved_settings(BaseTraining, TRAINED, required=False)


class TuningPlan(_Training):  # type: ignore[misc, valid-type]  # it is made of settings
    """What of pretrained encoders is trained, on how many rows, and how: with a seed, all that a model depends on.

    Learning rates rise over the first tenth of the steps and then fall to 0; the epoch with the lowest validation error
    is kept.

    Attributes:
        version: of the file.
        tune: "none", "all", "last-N" or "lora".
        epochs: passes over the rows.
        rows: labelled rows that are trained on; the bank holds all rows.
        batch_size: rows of a step.
        learning_rate: of everything that starts from random weights.
        encoder_learning_rate: of the highest layer.
        layer_decay: factor on the learning rate from each layer to the one below, in (0, 1].
        weight_decay: decoupled.
        precision: of the steps.
        seconds: expected duration.

    >>> TuningPlan(tune="last-2", epochs=6, rows=2000, seconds=90.0).sentence()
    'plan: tune last-2 for 6 epochs of 2000 rows in float32, about 1.5 minutes'
    """

    version: Literal[1] = 1
    tune: str = Field(pattern=r"^(none|all|lora|last-[1-9]\d{0,3})$")
    epochs: PositiveInt
    rows: Annotated[int, Field(ge=2)]
    encoder_learning_rate: Annotated[float, Field(gt=0, le=1e6)] = ENCODER_LEARNING_RATE
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    seconds: Annotated[float, Field(ge=0)] = 0.0

    def training(self) -> dict[str, Any]:
        """The fields of :class:`vicinal.training.TrainingSettings` that the plan sets."""
        fixed = {name: getattr(self, name) for name in (*TRAINED, "encoder_learning_rate", "layer_decay")}
        return fixed | {"max_epochs": self.epochs, "patience": self.epochs, "schedule": "linear"}

    def sentence(self) -> str:
        """What a person reads before it starts."""
        if self.tune == "none":
            return "plan: the time is too short to tune; the encoder stays as published"
        what = "all layers" if self.tune == "all" else self.tune
        number = {"bf16-mixed": "bfloat16", "16-mixed": "float16", "64-true": "float64"}.get(self.precision, "float32")
        minutes = f", about {self.seconds / 60:.1f} minutes" if self.seconds else ""
        return f"plan: tune {what} for {self.epochs} epochs of {self.rows} rows in {number}{minutes}"


def read_plan(plan: Any) -> TuningPlan | None:
    """A plan, or the one in the JSON file that is named.

    Raises:
        ValueError: if there is none.
    """
    if plan is None or isinstance(plan, TuningPlan):
        return plan
    if not isinstance(plan, str | Path):
        raise TypeError(f"plan: expected a TuningPlan, the name of its file or None, got {short(plan)}")
    return read_settings(Path(plan), TuningPlan, "a plan", newest=1)


@dataclass(frozen=True)
class Timing:
    """What a probe has found of one way to tune.

    Attributes:
        tune: what is trained.
        precision: of the steps.
        epoch: seconds of an epoch for each row that is trained on.
        once: seconds before the first epoch for each row.
    """

    tune: str
    precision: str
    epoch: float
    once: float = 0.0


def choose_plan(timings: Sequence[Timing], rows: int, seconds: float, **settings: Any) -> TuningPlan:
    """The first way that has time for two epochs of all rows, with at most six; else the last, on fewer rows.

    Args:
        timings: from what is trained most to what is trained least.
        rows: to train on.
        seconds: that there are.
        **settings: of the plan.

    >>> ways = [Timing("all", "32-true", 0.1), Timing("last-2", "32-true", 0.02)]
    >>> [choose_plan(ways, 1000, seconds).tune for seconds in (500, 150, 20, 1)]
    ['all', 'last-2', 'last-2', 'none']
    >>> choose_plan(ways, 1000, 500).epochs, choose_plan(ways, 1000, 20).rows
    (5, 500)
    """
    for way in timings:
        epochs = min(EPOCHS, int((seconds - way.once * rows) / (way.epoch * rows)))
        if epochs >= FEWEST_EPOCHS:
            expected = rows * (way.once + epochs * way.epoch)
            return _plan(way, epochs, rows, expected, settings)
    way = timings[-1]
    some = int(seconds / (way.once + FEWEST_EPOCHS * way.epoch))
    if some < FEWEST_ROWS:
        return TuningPlan(tune="none", epochs=1, rows=rows, **settings)
    return _plan(way, FEWEST_EPOCHS, some, seconds, settings)


def _plan(way: Timing, epochs: int, rows: int, seconds: float, settings: dict[str, Any]) -> TuningPlan:
    settings = {"tune": way.tune, "precision": way.precision, "seconds": round(seconds, 1), **settings}
    return TuningPlan(epochs=epochs, rows=rows, **settings)
