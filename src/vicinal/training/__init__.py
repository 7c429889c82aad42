"""Training: a network of encoder, projector and head, and the Lightning module that fits it."""

import importlib as _importlib
import typing as _typing

from vicinal.training.network import NeighborNetwork
from vicinal.training.perturbation import AdversarialSteps
from vicinal.training.rows import Rows
from vicinal.training.settings import TrainingSettings
from vicinal.training.surrogate import SurrogateSteps, surrogate
from vicinal.training.teacher import Teacher

if _typing.TYPE_CHECKING:
    from vicinal.training.fit import train
    from vicinal.training.module import NeighborModule

_OF_TRAINING = {"AddedLosses": "added", "NeighborModule": "module", "train": "fit"}
"""Names that need Lightning or the losses, by file: a saved model predicts without them, and starts sooner."""

__all__ = [
    "AdversarialSteps",
    "NeighborModule",
    "NeighborNetwork",
    "Rows",
    "SurrogateSteps",
    "Teacher",
    "TrainingSettings",
    "surrogate",
    "train",
]


def __getattr__(name: str) -> _typing.Any:
    if name in _OF_TRAINING:
        return getattr(_importlib.import_module(f"vicinal.training.{_OF_TRAINING[name]}"), name)
    raise AttributeError(f"module 'vicinal.training' has no attribute {name!r}")
