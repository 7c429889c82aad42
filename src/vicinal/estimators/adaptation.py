"""What a model knows of rows that differ from those of its fit: later ones, other classes, or a density ratio."""

import math
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from vicinal.calibration.density_ratio import DensityRatio, density_ratio, effective_rows
from vicinal.calibration.label_shift import likely_class_weights
from vicinal.calibration.split import conformal_quantile
from vicinal.core.untrusted import Saved

FEWEST_NEW = 30
"""New rows, at least."""

FEWEST_EFFECTIVE = 20
"""Rows of equal weight that the weighted calibrating rows must be worth, at least."""

WIDEST = 2.0
"""Widths that the widest of several forecasts may ask for, over that of all together."""

Floats = np.ndarray[Any, np.dtype[np.float64]]
_Positive = Annotated[float, Field(ge=0)]


class Forecasts(Saved):
    """What fits to earlier rows said of later ones, a quarter of all rows each.

    Attributes:
        until: the time, or seconds since 1970, up to which new rows are as far ahead as those of the forecasts.
        misses: of numbers, for each of these fits, rising: how many times half the width of its 90 % interval a label
            lies from the middle.
        said: of classes: the probabilities of each row ``[n, K]``.
        labels: of classes: which of them each row has ``[n]``.
    """

    until: float
    misses: list[Annotated[list[_Positive], Field(min_length=1, max_length=1 << 12)]] = Field(
        default_factory=list, max_length=16
    )
    said: list[list[_Positive]] = Field(default_factory=list, max_length=1 << 16)
    labels: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list, max_length=1 << 16)

    def __len__(self) -> int:
        return len(self.labels) + sum(map(len, self.misses))

    def radius(self, coverage: float) -> float:
        """Width of intervals of this coverage, over that of the 90 % intervals of a fit that knows nothing of time.

        Rows of one forecast err together (a level that has moved stays), so that the widest of them is taken; at most
        ``WIDEST`` times the quantile of all rows, as the first is of few rows, and may be far off.
        """
        each = [one[min(len(one), math.ceil((len(one) + 1) * coverage - 1e-9)) - 1] for one in self.misses]
        return min(max(each), WIDEST * conformal_quantile(np.concatenate(self.misses), coverage))

    def of_classes(self, count: int) -> tuple[Tensor, Tensor]:
        """Probabilities ``[n, count]``, 0 of classes that came later, and labels ``[n]``."""
        said = torch.tensor(self.said, dtype=torch.float64)
        return torch.nn.functional.pad(said, (0, count - said.shape[1])), torch.tensor(self.labels)


class Adaptation(Saved):
    """How a model was adapted to other rows.

    Attributes:
        rows: number of these rows.
        class_weights: how much more frequent each class is among them; empty: classes count as in the fit.
        center: of the density ratio of what the model says of a row; empty without one. See
            :class:`vicinal.calibration.DensityRatio`, also for the next three.
        scale: likewise.
        slope: likewise.
        offset: likewise.
        misses: of labelled new rows, how many times half the width of their 90 % interval they lie from its middle.
    """

    rows: Annotated[int, Field(ge=FEWEST_NEW)]
    class_weights: list[_Positive] = Field(default_factory=list, max_length=1 << 20)
    center: list[float] = Field(default_factory=list, max_length=1 << 20)
    scale: list[Annotated[float, Field(gt=0)]] = Field(default_factory=list, max_length=1 << 20)
    slope: list[float] = Field(default_factory=list, max_length=1 << 20)
    offset: float = 0.0
    misses: list[_Positive] = Field(default_factory=list, max_length=1 << 20)

    def _weights_of(self, count: int) -> Tensor:
        """Of the first classes ``[count]``: 1 of those that came after the adaptation."""
        return torch.tensor([*self.class_weights, *[1.0] * count][:count], dtype=torch.float64)

    def reweighed(self, probabilities: Tensor) -> Tensor:
        r"""Probabilities ``[n, K]`` for the new frequencies of classes: $p_k w_k / \sum_l p_l w_l$."""
        if not self.class_weights:
            return probabilities
        mass = probabilities.double().clamp(min=1e-12) * self._weights_of(probabilities.shape[1])
        return mass / mass.sum(dim=1, keepdim=True).clamp(min=1e-300)

    def lowers_log_loss(self, probabilities: Tensor, labels: Tensor) -> bool:
        """Whether the weights of classes lower the log-loss of rows ``[n, K]`` that are weighted by them."""
        weights, at = self.calibrating_weights(probabilities, labels), torch.arange(len(labels))
        both = (probabilities, self.reweighed(probabilities))
        before, after = (-(one[at, labels.long()].clamp(min=1e-9).log() @ weights) for one in both)
        return bool(after < before)

    def calibrating_weights(self, features: Tensor, labels: Tensor) -> Tensor:
        """Weights ``[n]`` of calibrating rows by what the model says of them ``[n, p]`` and by their labels ``[n]``."""
        if self.class_weights:
            return self._weights_of(int(labels.max()) + 1)[labels.long()]
        center, scale, slope = (np.array(part) for part in (self.center, self.scale, self.slope))
        ratio = DensityRatio(center, scale, slope, self.offset)
        return torch.from_numpy(ratio.weights(features[:, : len(self.center)].numpy()))


def class_adaptation(calibrating: Tensor, new: Tensor) -> Adaptation:
    """The weights of classes from predictions ``[n, K]`` of calibrating rows and ``[m, K]`` of new ones."""
    return Adaptation(rows=len(new), class_weights=likely_class_weights(calibrating.numpy(), new.numpy()).tolist())


def ratio_adaptation(calibrating: Tensor, new: Tensor) -> Adaptation:
    """The density ratio from what the model says of calibrating rows ``[n, p]`` and of new ones ``[m, p]``."""
    ratio = density_ratio(calibrating.numpy(), new.numpy())
    parts = {name: getattr(ratio, name).tolist() for name in ("center", "scale", "slope")}
    return Adaptation(rows=len(new), offset=ratio.offset, **parts)


def check_effective(weights: Tensor) -> float:
    """The effective number of calibrating rows; raises ValueError where it is too small."""
    count = effective_rows(weights.numpy())
    if count < FEWEST_EFFECTIVE:
        raise ValueError(
            f"X: expected new rows like at least {FEWEST_EFFECTIVE} of the rows that calibrate, got rows like "
            f"{count:.1f} of {len(weights)}; label some of the new rows, and add them or fit anew"
        )
    return count
