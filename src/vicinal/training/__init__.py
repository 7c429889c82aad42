"""Training: a network of encoder, projector and head, and the Lightning module that fits it."""

import typing as _typing

from vicinal.exports import export_imported as _export_imported
from vicinal.training.network import NeighborNetwork as NeighborNetwork
from vicinal.training.perturbation import AdversarialSteps as AdversarialSteps
from vicinal.training.rows import Rows as Rows
from vicinal.training.settings import TrainingSettings as TrainingSettings
from vicinal.training.surrogate import SurrogateSteps as SurrogateSteps
from vicinal.training.surrogate import surrogate as surrogate
from vicinal.training.teacher import Teacher as Teacher

if _typing.TYPE_CHECKING:
    from vicinal.training.fit import train as train
    from vicinal.training.module import NeighborModule as NeighborModule

_LATER = {"NeighborModule": "module", "train": "fit"}
"""Names that need Lightning, by file: a saved model predicts without it, and starts sooner."""

_export_imported(__name__, _LATER)
