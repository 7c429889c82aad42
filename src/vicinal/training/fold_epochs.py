"""The best epoch of each member, where members are folds: chosen by the error on the other folds only."""

import math
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from vicinal.encoders import MemberProjectors
from vicinal.heads import Ensemble
from vicinal.heads.kinds import has_members
from vicinal.training.module import NeighborModule
from vicinal.training.network import NeighborNetwork


class FoldEpochs(Callback):
    """Keeps each member as of the epoch with the least error on the rows of all folds except its own.

    So a member's predictions for the rows that it leaves out are out of fold: it was not trained on them, and its epoch
    was not chosen by them. (All rows together decide when the run ends.) The kept weights are part of the checkpoints.

    Args:
        counts: number of rows of each fold ``[F]``, or the sum of their weights.

    Attributes:
        epochs: the epoch ``[F]`` of each fold's members.
    """

    def __init__(self, counts: Tensor) -> None:
        self.counts = counts.double()
        self.least = [math.inf] * len(counts)
        self.epochs = [0] * len(counts)
        self.states: dict[str, dict[str, Any]] = {}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the members for which this epoch is the best so far."""
        if not isinstance(pl_module, NeighborModule) or pl_module.fold_members is None:
            raise TypeError("folds: expected a module that trains members as folds")
        sums = torch.tensor(pl_module.fold_errors, dtype=torch.float64) * self.counts
        others = (sums.sum() - sums) / (self.counts.sum() - self.counts)
        for fold, error in enumerate(others.tolist()):
            if error < self.least[fold]:
                self.least[fold], self.epochs[fold] = error, trainer.current_epoch
                for member in range(fold, pl_module.fold_members.members, pl_module.fold_members.folds):
                    self.states[str(member)] = member_state(pl_module.network, member)

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed run needs."""
        return {"least": self.least, "epochs": self.epochs, "states": self.states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of an interrupted run."""
        self.least, self.epochs = list(state_dict["least"]), list(state_dict["epochs"])
        self.states = dict(state_dict["states"])

    def restore(self, network: NeighborNetwork) -> None:
        """Load the weights of each member's best epoch."""
        for member, state in self.states.items():
            load_member_state(network, int(member), state)


def member_state(network: NeighborNetwork, member: int) -> dict[str, dict[str, Tensor]]:
    """A copy of one member's weights, in the projector and in the head."""
    projector, head = _parts(network)
    weights = {name: value.detach().cpu().clone() for name, value in head.heads[member].state_dict().items()}
    projection = {name: value.cpu() for name, value in projector.member_state(member).items()}
    return {"projector": projection, "head": weights}


def load_member_state(network: NeighborNetwork, member: int, state: dict[str, dict[str, Tensor]]) -> None:
    """Load the weights that :func:`member_state` returned into a member."""
    projector, head = _parts(network)
    projector.load_member_state(member, state["projector"])
    head.heads[member].load_state_dict(state["head"])


def _parts(network: NeighborNetwork) -> tuple[MemberProjectors, Ensemble]:
    projector, head = network.projector, network.head
    if not isinstance(projector, MemberProjectors) or not has_members(head):
        raise TypeError("folds: expected a network of members")
    return projector, head
