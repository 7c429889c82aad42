"""From an estimator's settings to the parts of its network."""

import copy
from typing import Any

import torch
from torch import nn

from vicinal.core import check_choice, check_integer, check_number, entries
from vicinal.encoders import Projector
from vicinal.heads import NONA, Dense
from vicinal.losses import parse
from vicinal.masks import SoftStep, TopK
from vicinal.training import NeighborNetwork, TrainingSettings

MASKS = ("s1", "s2", "topk")


def make_mask(settings: dict[str, Any], dim: int) -> nn.Module | None:
    """The mask that ``mask`` names: None, "s1" or "s2" (SoftStep), "topk" (with ``n_neighbors``), or a module."""
    mask = settings["mask"]
    if mask is None or isinstance(mask, nn.Module):
        return mask
    check_choice("mask", mask, MASKS)
    if mask == "topk":
        return TopK(settings["n_neighbors"])
    return SoftStep(dim, mask, settings["mask_parameters"], settings["mask_extent"])


def make_head(settings: dict[str, Any], dim: int, start: torch.Tensor) -> nn.Module:
    """The head that ``head`` names.

    Args:
        settings: the estimator's parameters.
        dim: width of the embeddings.
        start: mean label ``[]``, or log of the class shares ``[K]``: where the bias of a dense head starts.
    """
    check_choice("head", settings["head"], [found.name for found in entries("head")])
    if settings["head"] == "nona":
        head: nn.Module = NONA(settings["similarity"], make_mask(settings, dim), settings["simplex"])
        return head
    if start.ndim == 0:
        return Dense(dim, bias=start)
    return Dense(dim, outputs=len(start), activation="softmax", bias=start)


class InLabelUnits(nn.Module):
    """A loss of labels in their own units, for predictions and labels that training has scaled to [0, 1]."""

    def __init__(self, loss: nn.Module, low: float, high: float) -> None:
        super().__init__()
        self.loss, self.low, self.high = loss, low, high

    def forward(self, prediction: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """``[]`` from ``[b]`` and ``[b]``."""
        width = self.high - self.low
        value: torch.Tensor = self.loss(self.low + width * prediction, self.low + width * labels)
        return value


def make_criterion(settings: dict[str, Any], label_range: tuple[float, float] | None) -> nn.Module | None:
    """What ``loss`` names: None for the default, text as ``vicinal.losses.parse`` reads it, or a module.

    Args:
        settings: the estimator's parameters.
        label_range: lowest and highest training label of a regression; its loss sees labels in their own units. None
            for classes: the loss sees probabilities and one-hot labels ``[b, K]``.
    """
    loss = settings["loss"]
    if loss is None:
        return None
    if isinstance(loss, str):
        loss = parse(loss)
    if not isinstance(loss, nn.Module):
        raise TypeError(f"loss: expected None, text such as 'matching:sigmoid', or a module, got {loss!r}")
    return loss if label_range is None else InLabelUnits(copy.deepcopy(loss), *label_range)


def make_network(settings: dict[str, Any], encoder: nn.Module, dim: int, start: torch.Tensor) -> NeighborNetwork:
    """Encoder (``dim`` wide), projector and head; random weights come from torch's current generator."""
    hidden = settings["hidden"]
    if not isinstance(hidden, tuple | list) or not hidden:
        raise ValueError(f"hidden: expected the sizes of at least one layer, as (200, 25), got {hidden!r}")
    sizes = tuple(check_integer("hidden", size) for size in hidden)
    projector = Projector(dim, sizes, dropout=check_number("dropout", settings["dropout"]))
    return NeighborNetwork(encoder, projector, make_head(settings, sizes[-1], start))


def training_settings(settings: dict[str, Any], seed: int) -> TrainingSettings:
    """The part of an estimator's parameters that training reads."""
    names = (
        "max_epochs",
        "batch_size",
        "learning_rate",
        "encoder_learning_rate",
        "weight_decay",
        "patience",
        "precision",
        "accelerator",
        "logger",
        "progress",
    )
    return TrainingSettings(**{name: settings[name] for name in names}, seed=seed, folder=settings["checkpoint_dir"])
