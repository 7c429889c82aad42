"""The network of a saved model: how its weights and trees are written, and read after they were checked."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vicinal.core.folders import check_sums
from vicinal.core.untrusted import check_inside, read_tensors, tensor_header
from vicinal.encoders import TableEncoder
from vicinal.encoders.blend_projector import BlendProjector
from vicinal.encoders.stacked_projector import StackedProjector
from vicinal.encoders.tree_columns import LinearColumns, TreeColumns
from vicinal.encoders.tree_projector import TreeProjector
from vicinal.estimators.base import NeighborEstimator
from vicinal.estimators.kernel_metric import empty_trend_network, make_kernel_network
from vicinal.estimators.network import NEIGHBORS, activation_of, make_kriging, make_network, similarity_network
from vicinal.estimators.saved_config import SavedConfig, check_encoder_columns
from vicinal.heads import Comparables, Kriging
from vicinal.heads.blend import Blend
from vicinal.heads.kinds import blends, weighs_locally
from vicinal.training import NeighborNetwork

_FORMER_NEIGHBORS = 128
"""Rows that a kernel is read out by in folders that do not say it."""

_LARGEST_TREES = 1 << 28
"""Bytes of the trees of a fold, at most."""


def read_network(path: Path, config: SavedConfig) -> tuple[NeighborNetwork, torch.nn.Module]:
    """The network of a model: first without memory, to compare the file with it, then with the weights of the file.

    Returns:
        the network, and the attention by which some folds are read.
    """
    encoder = TableEncoder.from_config(config.encoder.model_dump(), empty=True)
    check_encoder_columns(encoder, config)
    network, attention = _empty_network(path, config, encoder)
    parts = {"projector": network.projector.double(), "head": network.head.double()}
    if config.reads_by_kriging and None in (config.fold_readouts or ()):
        parts["attention"] = attention.double()
    template = {f"encoder.{name}": value for name, value in encoder.trained_state().items()}
    for part, module in parts.items():
        template |= {f"{part}.{name}": value for name, value in module.state_dict().items()}
    state = read_tensors(path, template)
    for part in ("encoder", *parts):
        weights = {name.removeprefix(f"{part}."): value for name, value in state.items() if name.startswith(f"{part}.")}
        if part == "encoder":
            encoder.load_trained_state(weights)
        else:
            parts[part].load_state_dict(weights, assign=True)
    network.eval()
    return network, attention.eval() if "attention" in parts else network.head


def fold_readouts(model: NeighborEstimator) -> list[tuple[float, float] | None] | None:
    """Of the readout of each fold the logarithms of scale and noise, None for attention; None: that of the model."""
    heads = model.fold_heads_
    if heads is None:
        return None
    return [(one.log_scale.item(), one.log_noise.item()) if weighs_locally(one) else None for one in heads]


def fold_heads(config: SavedConfig, attention: torch.nn.Module) -> list[torch.nn.Module] | None:
    """The heads of which :func:`fold_readouts` tells."""
    if config.fold_readouts is None:
        return None
    settings, heads = config.parameters.model_dump() | {"metric": config.fitted_metric}, list[torch.nn.Module]()
    for each in config.fold_readouts:
        head = None if each is None else make_kriging(settings)
        if head is not None and each is not None:
            with torch.no_grad():
                head.double().log_scale.fill_(each[0])
                head.log_noise.fill_(each[1])
        heads.append(attention if head is None else head.eval())
    return heads


def _empty_network(path: Path, config: SavedConfig, encoder: TableEncoder) -> tuple[NeighborNetwork, torch.nn.Module]:
    """The network of a model without memory for its weights, and its attention if it is read out by kriging."""
    settings = config.parameters.model_dump() | {"metric": config.fitted_metric, "rank": config.rank}
    former = _FORMER_NEIGHBORS if config.fitted_metric == "kernel" else None
    settings["max_neighbors"] = config.neighbors or settings["max_neighbors"] or former
    settings["whole_up_to"] = config.whole_up_to
    if config.task == "similarity":
        width = (tensor_header(path).get("projector.weight") or ((0,),))[0][-1]
        with torch.device("meta"):
            network = similarity_network(encoder, max(1, min(width, settings["dim"])))
            return network, network.head
    if config.fitted_metric in ("trees", "trees and kernel"):
        trees = _tree_projector(path, config, encoder)
        with torch.device("meta"):
            if config.fitted_metric == "trees":
                return NeighborNetwork(encoder, trees, _local_head(config, settings, trees)), torch.nn.Identity()
            return _empty_blend(path, config, encoder, settings, trees), torch.nn.Identity()
    if config.fitted_metric == "kernel":
        with torch.device("meta"):
            by_loss = config.transform.name == "softmax"
            network = _empty_kernel(path, config, encoder, settings, config.cross_fits, by_loss=by_loss)
            if config.cross_fits is not None:
                network.head = _local_head(config, settings, network.projector)
            return network, network.head
    gain = tensor_header(path).get("projector.gain")
    if gain is None or gain[0][:1] != (config.parameters.members,):  # before that many members are made
        raise ValueError(f"{path.name}: expected the weights of {config.parameters.members} members, got others")
    outputs = config.classes or config.targets
    start = torch.zeros(()) if outputs is None else torch.zeros(len(outputs))
    with torch.device("meta"):
        network = make_network(settings, encoder, start, activation_of(config.classes, multilabel=config.multilabel))
        attention = network.head
        if config.reads_by_kriging:
            network.head = make_kriging(settings) or network.head
    return network, attention


def _empty_kernel(
    path: Path,
    config: SavedConfig,
    encoder: TableEncoder,
    settings: dict[str, Any],
    folds: int | None,
    *,
    by_loss: bool,
) -> NeighborNetwork:
    """The network of a kernel, with a trend of so many folds; its head is that of all rows.

    ``by_loss``: whether it is of classes, and was learned by their log-loss.
    """
    names = [name for name in tensor_header(path) if name.startswith("projector.") and ".trees." not in name]
    known: dict[str, Any] = {"whole_up_to": settings["whole_up_to"], "classes": by_loss}
    known["share_lengths"] = any(name.endswith(".scale") for name in names)
    known["steps"] = any(name.endswith(".steps.edges") for name in names)
    network = make_kernel_network(settings | {"metric": "kernel"}, encoder, **known)
    return network if folds is None else empty_trend_network(network, folds, len(config.targets or "1"))


def _empty_blend(
    path: Path, config: SavedConfig, encoder: TableEncoder, settings: dict[str, Any], trees: torch.nn.Module
) -> NeighborNetwork:
    """The network of the mean of trees and a kernel."""
    if not isinstance(trees, StackedProjector) or config.blend is None:
        raise ValueError("config.json: expected what a mean of trees and a kernel is made of, got less")
    first, second = config.blend
    settings = settings | {"max_neighbors": second.neighbors, "whole_up_to": second.whole_up_to}
    folds, by_loss = None if second.whole_up_to else config.cross_fits, bool(config.classes) and not second.line
    kernel = _empty_kernel(path, config, encoder, settings, folds, by_loss=by_loss)
    part: Any = kernel.projector
    head: Any = _head(first.neighbors, first.trend, trees.trend, trees.targets)
    head.log_odds = bool(config.classes)
    other: Any = kernel.head
    if not second.whole_up_to:
        other = _head(second.neighbors, second.trend, part.trend, trees.targets)
    projector = BlendProjector(trees, part, [one.trend is not None for one in config.blend])
    return NeighborNetwork(encoder, projector, Blend([head, other], projector.widths))


def blended_readouts(head: torch.nn.Module) -> list[dict[str, bool | int | None]] | None:
    """What ``config.json`` says of the heads of a mean; None of any other head."""
    if not blends(head):
        return None
    trends = [getattr(one, "trend", None) for one in head.members()]
    each = zip(head.members(), trends, strict=True)
    return [
        {"neighbors": one.k, "trend": trend, "whole_up_to": one.whole_up_to, "line": one.linear > 0}
        for one, trend in each
    ]


def _local_head(config: SavedConfig, settings: dict[str, Any], projector: torch.nn.Module) -> Kriging:
    """The head of a metric without a network, its weights not loaded yet."""
    return _head(settings["max_neighbors"] or NEIGHBORS, config.trend, projector.trend, _outputs(config))  # type: ignore[arg-type]


def _head(k: int, trend: int | None, columns: int, targets: int) -> Kriging:
    """The same of so many rows, with a trend of the columns of a projector or without."""
    if trend not in (None, columns):
        raise ValueError(f"config.json: expected a trend of {columns} columns, got {trend}")
    return Kriging(k) if trend is None else Comparables(k, trend=trend, targets=targets)


def _outputs(config: SavedConfig) -> int:
    """How many numbers a trend says of a row: those of the targets, or of the classes that the fit had."""
    return len(config.transform.biases or config.targets or "1")


def _tree_projector(path: Path, config: SavedConfig, encoder: TableEncoder) -> TreeProjector | StackedProjector:
    """The projector of trees, its weights not loaded yet; a folder from before linear models were there has none."""
    texts, outputs = _read_trees(path.parent, config), _outputs(config)
    if config.fitted_metric == "trees" and "projector.slopes" not in tensor_header(path):
        return TreeProjector(texts, TreeColumns(encoder))
    projector = StackedProjector(texts, LinearColumns(encoder), outputs, classes=bool(config.classes))
    projector.probabilities &= config.fitted_metric == "trees"
    return projector


def tree_files(projector: torch.nn.Module) -> dict[str, str]:
    """The texts of trees by the names of their files: fold, then target."""
    texts = getattr(projector, "texts", [])
    return {f"trees-{i}-{j}.txt": text for i, fold in enumerate(texts) for j, text in enumerate(fold)}


def _read_trees(folder: Path, config: SavedConfig) -> list[list[str]]:
    """The texts of :func:`tree_files`, of a size that can be read.

    Raises:
        ValueError: for a file that is not there, was changed or is too large.
    """
    outputs, texts = _outputs(config), list[list[str]]()
    targets = range(1 if config.classes and outputs == 2 else outputs)
    for fold in range(config.cross_fits or 0):
        names = [f"trees-{fold}-{target}.txt" for target in targets]
        check_inside(folder, *names)
        check_sums(folder, tuple(names), largest=_LARGEST_TREES)
        texts.append([(folder / name).read_text(encoding="utf-8") for name in names])
    return texts


def network_weights(model: NeighborEstimator) -> dict[str, Tensor]:
    """What the file of weights holds: by the name of the part."""
    network = model.network_
    state = {f"encoder.{name}": value for name, value in model.table_encoder.trained_state().items()}
    for part in ("projector", "head"):
        for name, value in getattr(network, part).state_dict().items():
            state[f"{part}.{name}"] = value
    others = [one for one in model.fold_heads_ or () if not weighs_locally(one)]
    if others and weighs_locally(network.head):
        state |= {f"attention.{name}": value for name, value in others[0].state_dict().items()}
    return {name: value.detach().contiguous().clone() for name, value in state.items()}
