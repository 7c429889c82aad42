"""From an estimator's settings to the parts of its network."""

from collections.abc import Sized
from dataclasses import fields
from typing import Any

import torch
from torch import nn

from vicinal.core import check_choice, entries, short
from vicinal.core.checks import check_between, check_integer, check_number
from vicinal.encoders import MemberProjectors, PrincipalProjector, TableEncoder
from vicinal.encoders.pretrained import check_tune
from vicinal.estimators.plan import read_plan
from vicinal.heads import NONA, Dense, Ensemble, Kriging
from vicinal.heads.dense import Activation
from vicinal.masks import RankStep, RejectingStep, SoftStep, TopK
from vicinal.settings import LARGEST_SIZE, NeighborSettings
from vicinal.similarity.base import resolve_similarity
from vicinal.training import NeighborNetwork, TrainingSettings
from vicinal.training.settings import check_values

NEIGHBORS = 30
"""Rows that a kriging readout of a network looks at where ``max_neighbors`` is None."""

PAPER_EPS = 1e-12
"""What keeps the numbers of SoftStep inside (0, 1) in the paper's public code, which ``mask_extent="all"`` follows."""


def make_mask(settings: dict[str, Any], dim: int) -> nn.Module | None:
    """The mask that ``mask`` names: None, a step by its name, "topk" (with ``n_neighbors``), or a module."""
    mask = settings["mask"]
    if mask is None or isinstance(mask, nn.Module):
        return mask
    if mask == "topk":
        return TopK(settings["n_neighbors"])
    family, _, kind = mask.partition("-")
    options = settings["mask_parameters"], settings["mask_extent"]
    if kind == "reject":
        return RejectingStep(dim, *options)
    step = (RankStep if kind == "ranks" else SoftStep)(dim, family, *options)
    step.eps = PAPER_EPS if kind == "" and step.extent == "all" else step.eps
    return step


def make_head(settings: dict[str, Any], dim: int, start: torch.Tensor, activation: Activation = "none") -> nn.Module:
    """The head that ``head`` names, or ``members`` of them side by side.

    Args:
        settings: the estimator's parameters.
        dim: width of the embeddings of one member.
        start: where the bias of a dense head starts: see :meth:`vicinal.estimators.label_codec.LabelCodec.start`.
        activation: of a dense head, "none" of numbers.
    """
    members = check_integer("members", settings["members"])
    heads = [_one_head(settings, dim, start, activation) for _ in range(members)]
    return heads[0] if members == 1 else Ensemble(heads)


def check_readout(settings: dict[str, Any], *, classes: bool = False) -> None:
    """Check the settings of how predictions are read out of the trained metric.

    Args:
        settings: the estimator's parameters.
        classes: whether classes are predicted.

    Raises:
        ValueError: naming a setting that the readout does not go with.
    """
    readout, metric = settings["readout"], settings["metric"]
    if settings["index"] is not None and settings["head"] != "nona":
        raise ValueError(
            f"index: expected None for head={short(settings['head'])}, which looks at no bank, got "
            f"{short(settings['index'])}"
        )
    if metric in ("kernel", "trees"):
        _check_untrained(settings, metric)
    if readout == "comparables" and (metric == "network" or (classes and metric == "kernel")):
        got = f"metric={metric!r}" + (" of classes" if classes else "")
        raise ValueError(
            f"readout: expected 'attention' or 'rows' for {got}, got 'comparables', which has no trend there"
        )
    if readout == "attention":
        if settings["max_neighbors"] is not None:
            raise ValueError(
                "max_neighbors: expected None for readout='attention', which weighs all rows, got "
                f"{settings['max_neighbors']}; say readout='rows'"
            )
        return
    if classes and readout == "dense" and settings["metric"] != "kernel":
        raise ValueError(
            "readout: expected 'attention' or 'rows' for classes, got 'dense', whose weights below 0 are "
            "no probabilities; metric='kernel' makes some of them"
        )
    if settings["head"] != "nona" and readout != "auto":
        raise ValueError(f"readout: expected 'attention' for head={short(settings['head'])}, got {short(readout)}")


def _check_untrained(settings: dict[str, Any], metric: str) -> None:
    """Raise ValueError for settings that do not go with a metric that no gradient of predictions trains."""
    if settings["readout"] == "attention":
        most = "'dense' or 'rows'" if metric == "kernel" else "'comparables' or 'rows'"
        raise ValueError(
            f"readout: expected {most} for metric={metric!r}, got 'attention', as attention needs a trained network; "
            f"say readout={most.split()[0]}, or 'rows' for a weighted mean of labels as they are"
        )
    if metric == "trees" and settings["readout"] == "dense":
        raise ValueError(
            "readout: expected 'comparables' or 'rows' for metric='trees', got 'dense', which a kernel has"
        )
    if settings["head"] != "nona":
        raise ValueError(f"head: expected 'nona' for metric={metric!r}, got {short(settings['head'])}")
    if settings["loss"] is not None:
        loss = short(settings["loss"])
        raise ValueError(f"loss: expected None for metric={metric!r}, which has its own, got {loss}")


def make_kriging(settings: dict[str, Any], linear: int = 0, whole_up_to: int = 0) -> Kriging | None:
    """The kriging head that ``readout`` names or may choose, without its scale and noise; None for "attention"."""
    if settings["readout"] == "attention" or settings["head"] != "nona":
        return None
    signed = settings["readout"] == "dense"
    signed = signed or (settings["metric"] == "kernel" and settings["readout"] in ("auto", "comparables"))
    k = settings["max_neighbors"] or NEIGHBORS
    return Kriging(k, convex=not signed, linear=linear, whole_up_to=whole_up_to)


def activation_of(classes: Sized | None, *, multilabel: bool) -> Activation:
    """Of a dense head that predicts these classes, several a row if ``multilabel``; None or no class: of numbers."""
    return "none" if not classes else "sigmoid" if multilabel else "softmax"


def _one_head(settings: dict[str, Any], dim: int, start: torch.Tensor, activation: Activation) -> nn.Module:
    if settings["head"] != "nona":
        return Dense(dim, len(start) if start.ndim else None, activation, bias=start)
    simplex = settings["simplex"]
    if simplex == "auto":
        simplex = "entmax15" if activation == "none" else "softmax"
    return NONA(settings["similarity"], make_mask(settings, dim), simplex)


def make_network(
    settings: dict[str, Any], encoder: TableEncoder, start: torch.Tensor, activation: Activation
) -> NeighborNetwork:
    """Encoder, projector and head; random weights come from torch's current generator."""
    sizes = layer_sizes(settings["hidden"])
    dropout = check_number("dropout", settings["dropout"])
    members = check_integer("members", settings["members"])
    tanh, rank = settings["final_tanh"], settings.get("rank")
    projector = MemberProjectors(encoder.dim, sizes, dropout, members=members, final_tanh=tanh, rank=rank)
    return NeighborNetwork(encoder, projector, make_head(settings, sizes[-1], start, activation))


def similarity_network(encoder: TableEncoder, dim: int) -> NeighborNetwork:
    """Encoder, a linear map to ``dim`` numbers that is not started yet, and a head that compares by cosine."""
    return NeighborNetwork(encoder, PrincipalProjector(encoder.dim, dim), NONA("cosine", None, "softmax"))


def check_settings(settings: dict[str, Any], *, classes: bool = False) -> None:
    """Check what of an estimator's parameters can be checked without data, so that nothing is done before it is said.

    Args:
        settings: the estimator's parameters.
        classes: whether classes are predicted.

    Raises:
        TypeError: naming the parameter of another type than is expected.
        ValueError: naming the parameter that is none of its choices or out of its range.
    """
    training_settings(settings, 0)
    check_values(settings, NeighborSettings)
    if isinstance(settings["random_state"], int):
        check_integer("random_state", settings["random_state"], 0, 2**32 - 1)
    check_readout(settings, classes=classes)
    if classes and (name := settings["target_transform"]) not in ("none", "auto"):
        raise ValueError(f"target_transform: expected 'none' for classes, which are no numbers, got {short(name)}")
    if isinstance(settings["simplex"], str):
        check_choice("simplex", settings["simplex"], ["auto", *(entry.name for entry in entries("simplex"))])
    resolve_similarity(settings["similarity"])
    _check_fair(settings, classes=classes)
    check_tune(settings["tune"], auto=True)
    read_plan(settings["plan"])
    if settings["dropout"] != 0:
        check_between("dropout", settings["dropout"], 0, 1)
    layer_sizes(settings["hidden"])


def _check_fair(settings: dict[str, Any], *, classes: bool) -> None:
    """Raise ValueError for settings of ``fair`` that are wrong, or that train nothing by a gradient of predictions."""
    if settings["fair"] is None:
        return
    if not isinstance(settings["fair"], str):
        raise TypeError(f"fair: expected the name of a column, got {short(settings['fair'])}")
    if settings["metric"] in ("kernel", "trees"):
        got = short(settings["metric"])
        raise ValueError(f"fair: expected metric='network', got {got}, which no gradient of predictions trains")
    if settings["readout"] not in ("auto", "attention"):
        raise ValueError(
            f"fair: expected readout='attention', whose predictions are trained, got {short(settings['readout'])}"
        )
    if settings["validation_fraction"] == 0:
        raise ValueError("fair: expected validation_fraction above 0, got 0; members that are folds are trained apart")
    if settings["fair_rate"] != "positive" and not classes:
        got = short(settings["fair_rate"])
        raise ValueError(f"fair_rate: expected 'positive' for numbers, which have no rates, got {got}")


def layer_sizes(hidden: Any) -> tuple[int, ...]:
    """Sizes of the projector's layers, checked."""
    if not isinstance(hidden, tuple | list) or not hidden:
        raise ValueError(f"hidden: expected the sizes of at least one layer, as (200, 25), got {short(hidden)}")
    return tuple(check_integer("hidden", size, high=LARGEST_SIZE) for size in hidden)


def training_settings(settings: dict[str, Any], seed: int) -> TrainingSettings:
    """The part of an estimator's parameters that training reads."""
    chosen = {one.name: settings[one.name] for one in fields(TrainingSettings) if one.name in settings}
    plan = None if settings["tune"] in ("none", "auto") else read_plan(settings.get("plan"))
    chosen |= {} if plan is None else plan.training()
    return TrainingSettings(**chosen, seed=seed, folder=settings["checkpoint_dir"])
