"""Fits of a metric and its readout to labelled rows: of a network by its error, of a kernel by its likelihood."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core.seeding import seeded
from vicinal.encoders import EmbeddingCache, TableEncoder
from vicinal.encoders.table import TableInputs
from vicinal.estimators.bank import Bank, fill_bank
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.fold_readout import FoldRows, readouts_by_fold
from vicinal.estimators.indexing import NearBank, drop_indexes, fill_indexes, start_indexes
from vicinal.estimators.inputs import LabelledRows
from vicinal.estimators.kernel_metric import (
    PATIENCE,
    WHOLE,
    check_kernel,
    fit_class_network,
    fit_kernel_network,
    kernel_neighbors,
    make_kernel_network,
    may_be_kernel,
)
from vicinal.estimators.label_codec import LabelCodec
from vicinal.estimators.network import embedding_width, make_kriging, make_network, training_settings
from vicinal.estimators.readout import COMPARED, Choice, Tried, choose_kriging, tried_out_of_fold
from vicinal.estimators.target_transform import PLAIN, TargetTransform
from vicinal.heads import Kriging
from vicinal.heads.folds import FoldMembers
from vicinal.index import Index, NeighborBank
from vicinal.training import NeighborNetwork, Rows
from vicinal.training.class_kernel import calibrate_scores
from vicinal.training.history import TrainingHistory
from vicinal.training.rows import RowInputs, RowSubset, spread
from vicinal.training.settings import encoding_device

_MANY = 64
"""Rows from which on it pays to run encoders on a GPU."""

_CURVE = 256
"""Rows trained on whose error the history of a kernel tells, at most."""

Settings = dict[str, Any]

Fit = tuple[FittedModel, list[Index]]
"""A model, and the indexes of its head, which are empty until it is taken."""


def device_of(settings: Settings, rows: int) -> torch.device:
    """Where encoders run for so many rows: few are done before weights have come to a GPU."""
    return encoding_device(settings["accelerator"] if rows >= _MANY else "cpu")


def prepared(settings: Settings, encoder: TableEncoder, frame: pd.DataFrame) -> TableInputs:
    """Prepared rows, those of frozen networks run once (and kept in ``cache_dir`` if there is one)."""
    root, cache_dir = settings["root"], settings["cache_dir"]
    inputs = encoder.prepare(frame, None if root is None else Path(root))
    store = None if cache_dir is None else EmbeddingCache(cache_dir)
    return encoder.cache(inputs, store=store, device=device_of(settings, len(frame)))


def fit_on_scale(
    rows: LabelledRows,
    codec: LabelCodec,
    encoder: TableEncoder,
    settings: Settings,
    seed: int,
) -> FittedModel:
    """What :func:`fit_best` gives, of numbers on the scale that ``target_transform`` names or lets choose.

    "auto" takes what a kernel predicts all rows better by, each from the others: "none" or "log"; "none" where there is
    no kernel. The rows held out are too few to tell, and a network has seen the others.
    """
    train = rows.labels[torch.from_numpy(rows.held_out.train)]
    plain = replace(codec, transform=PLAIN).fitted(train)  # raises where labels do not differ
    if codec.kind == "classes":
        return fit_best(rows, plain, encoder, settings, seed)

    def on(name: str, labels: Tensor) -> LabelCodec:
        return replace(plain, transform=TargetTransform.fitted(name, labels))

    name, kernel = settings["target_transform"], None
    if name == "auto":
        name, part = "none", copy.deepcopy(encoder).fit(rows.frame.iloc[rows.held_out.train])
        kernels = settings["metric"] == "auto" and may_be_kernel(settings, part.kinds, part.dim)
        if settings["index"] is None and (kernels or settings["metric"] == "kernel") and bool((rows.labels > 0).all()):
            tried = {}
            for one in ("none", "log"):
                with seeded():
                    tried[one] = fit_kernel(rows, on(one, rows.labels), copy.deepcopy(part), settings, seed)[0]
            name = min(tried, key=lambda one: tried[one].error_in_label_units())
            kernel = tried[name]
    scale = on(name, train)
    return fit_best(
        rows, replace(scale, transform=scale.transform.widened(rows.labels)), encoder, settings, seed, kernel
    )


def fit_best(
    rows: LabelledRows,
    codec: LabelCodec,
    encoder: TableEncoder,
    settings: Settings,
    seed: int,
    kernel: FittedModel | None = None,
) -> FittedModel:
    """The metric that is asked for, or of both what predicts the rows held out best, over its index if it has one.

    Args:
        rows: what is fitted to.
        codec: of their labels, fitted.
        encoder: of the table, not fitted yet.
        settings: the estimator's parameters.
        seed: of training.
        kernel: one that was fitted already, without an index.
    """
    encoder.fit(rows.frame.iloc[rows.held_out.train])
    frozen = encoder.untrained if codec.kind == "classes" else None

    def kernel_of(part: TableEncoder) -> Fit:
        return (kernel, []) if kernel is not None else fit_kernel(rows, codec, part, settings, seed)

    if settings["metric"] == "kernel":
        return with_index(*kernel_of(encoder), settings)
    both = settings["metric"] == "auto" and not codec.multilabel
    if not (both and may_be_kernel(settings, encoder.kinds, encoder.dim, frozen=frozen)):
        return with_index(*fit_network(rows, codec, encoder, settings, seed), settings)
    with seeded():
        first, indexes = kernel_of(copy.deepcopy(encoder))
    network, others = fit_network(rows, codec, encoder, settings, seed)
    # few rows are held out: a network must gain a share, and of classes more than luck explains
    better = network.honest_error() < (1 - PATIENCE) * first.honest_error()
    if better and (frozen is None or network.surely_below(first)):
        first, indexes, others = network, others, indexes
    drop_indexes(others)
    return with_index(first, indexes, settings)


def with_index(model: FittedModel, indexes: list[Index], settings: Settings) -> FittedModel:
    """The model that predicts by the indexes of its head, which are filled; without any, the same."""
    if not indexes:
        return model
    head, store = model.network.head, model.bank.store
    fill_indexes(indexes, head, store)
    return replace(model, near=NearBank(head, store, indexes, model.codec.class_count, settings["index_tolerance"]))


def fit_network(
    rows: LabelledRows,
    codec: LabelCodec,
    encoder: TableEncoder,
    settings: Settings,
    seed: int,
    start: NeighborNetwork | None = None,
    epochs: int = 0,
) -> Fit:
    """Train encoder, projector and head, and fill the bank; with ``start`` from its weights, for so many epochs."""
    from vicinal.estimators.loss import make_added, make_criterion, make_fair, make_targets
    from vicinal.training.fit import train  # Lightning takes seconds to import; a saved model predicts without it

    held_out, index = rows.held_out, settings["index"]
    train_rows = torch.from_numpy(held_out.train)
    inputs = prepared(settings, encoder, rows.frame)
    scaled = codec.scaled(rows.labels)
    weights = None if rows.weights is None else torch.from_numpy(rows.weights)
    mass = None if weights is None else weights[train_rows] / weights[train_rows].mean()
    kind = {"multilabel": codec.multilabel, "numbers": codec.targets is not None}
    begin = codec.start(scaled[train_rows], mass)
    network = make_network(settings, encoder, encoder.dim, begin, **kind)
    by = training_settings(settings, seed)
    if start is not None:
        network.start_at(start)
        by = replace(by, max_epochs=epochs, folder=None)
    width = embedding_width(network)
    stores = NeighborBank(width), NeighborBank(width)
    kriging = make_kriging(settings) if settings["readout"] != "auto" or _may_choose(codec, settings) else None
    head = network.head if kriging is None else kriging
    indexes = [] if index is None else start_indexes(index, head, stores[0], settings["index_tolerance"])
    codes, folds = rows.group_codes(), None if held_out.folds is None else torch.from_numpy(held_out.folds)
    ends = codec.label_ends()
    criterion = make_criterion(settings, ends, **kind, by_row=weights is not None)
    targets = make_targets(criterion, scaled, train_rows, settings["loss"], ends, codec.transform)
    parts = []
    for at in (train_rows, torch.from_numpy(held_out.validation)):
        known, of_folds = (None if values is None else values[at] for values in (codes, folds))
        mass = None if weights is None or not len(at) else (weights[at] / weights[at].mean()).float()
        parts.append(Rows(RowSubset(inputs, at), targets[at], at, known, of_folds, mass))
    added = make_added(settings, ends, codec.class_count, multilabel=codec.multilabel)
    fair = make_fair(settings, rows.attribute, numbers=codec.kind == "numbers", multilabel=codec.multilabel)
    history = train(network, parts[0], parts[1] if folds is None else None, by, criterion, added, fair=fair)
    network.projector.double()
    network.head.double()
    model = fill_banks(stores, network, inputs, rows, codec, history, settings)
    if kriging is not None:
        model = _with_readout(model, kriging, settings)
        if model.network.head is network.head and indexes:
            drop_indexes(indexes)
            indexes = start_indexes(str(index), network.head, stores[0], settings["index_tolerance"])
    return model, indexes


def fill_banks(
    stores: tuple[NeighborBank, NeighborBank],
    network: NeighborNetwork,
    inputs: RowInputs,
    rows: LabelledRows,
    codec: LabelCodec,
    history: TrainingHistory,
    settings: Settings,
    metric: str = "network",
) -> FittedModel:
    """The model of a trained network; all rows stand in the first bank, those held out in the second, too."""
    network.eval()
    everything = np.arange(len(rows.frame))  # rows held out, too: an id keeps each from its own label
    for positions, store in zip((everything, rows.held_out.validation), stores, strict=True):
        device = device_of(settings, len(positions))
        fill_bank(store, network, RowSubset(inputs, torch.from_numpy(positions)), rows, positions, device)
    bank, held_out = (Bank.over(store) for store in stores)
    folds = None if rows.held_out.folds is None or metric == "kernel" else int(rows.held_out.folds.max()) + 1
    members = settings.get("members", 1)
    return FittedModel(codec, network, bank, held_out, metric, history, members, folds)


def _may_choose(codec: LabelCodec, settings: Settings) -> bool:
    """Whether "auto" may read out by kriging, which goes by distances and is chosen by the default error.

    Not for classes: few rows give most classes probability 0, and a log-loss on the rows held out seldom shows it.
    """
    from vicinal.estimators.loss import predicts_by_default

    return (
        codec.kind == "numbers"
        and settings["fair"] is None
        and settings["similarity"] in ("l2", "squared_l2")
        and predicts_by_default(settings["loss"])
    )


def _with_readout(model: FittedModel, kriging: Kriging, settings: Settings) -> FittedModel:
    """Read predictions out by kriging, or by the trained head where that is better and ``readout`` lets choose."""
    compared = settings["readout"] == "auto" and len(model.bank) <= COMPARED
    (head, optimism), tried = _chosen(model, kriging)
    chosen = model.with_head(head)
    if compared and model.honest_error() < optimism * chosen.honest_error():
        chosen = model
    bank = model.bank
    if tried is None or bank.folds is None:
        return chosen
    others = bank.store.group_codes, bank.mass, model.codec.targets is not None
    rows = FoldRows(bank.vectors, model.bank_labels(), bank.folds, *others)
    members = FoldMembers(kriging, model.members, model.fold_members().folds)
    heads = readouts_by_fold(members, model.network.head if compared else None, tried, rows)
    return replace(chosen, fold_heads=heads)


def _chosen(model: FittedModel, kriging: Kriging) -> tuple[Choice, Tried | None]:
    """The kriging head with the scale and noise that predict the rows held out, or out of fold, best.

    With folds also what it was chosen by.
    """
    bank, numbers = model.bank, model.codec.targets is not None
    if model.folds is not None:
        members = FoldMembers(kriging, model.members, model.folds)
        rows_of_bank = bank.vectors, model.bank_labels(), bank.folds, bank.store.group_codes
        tried = tried_out_of_fold(members, *rows_of_bank, numbers=numbers, mass=bank.mass)
        return tried.choice(), tried
    rows = model.held_out
    identity = bank.identity(ids=rows.ids, groups=rows.groups)
    truth, labels = (model.codec.as_predicted(one.labels) for one in (rows, bank))
    banks = rows.vectors, truth, bank.vectors, labels
    return choose_kriging(kriging, *banks, identity, numbers=numbers, mass=rows.mass), None


def fit_kernel(
    rows: LabelledRows,
    codec: LabelCodec,
    encoder: TableEncoder,
    settings: Settings,
    seed: int,
) -> Fit:
    """Learn a kernel, by the likelihood of the rows that are not held out, and fill the bank."""
    classes = codec.kind == "classes"
    check_kernel(encoder, classes=classes)
    for part in encoder.encoders:
        if not part.frozen:  # vectors of empty sets stay as they are
            part.hold()
    train, index = torch.from_numpy(rows.held_out.train), settings["index"]
    k = settings["max_neighbors"] or kernel_neighbors(len(rows.frame))
    by = settings | {"metric": "kernel", "max_neighbors": k}
    whole = WHOLE if classes and settings["max_neighbors"] is None and index is None else 0
    network = make_kernel_network(by, encoder, classes=classes, whole_up_to=whole)
    width = embedding_width(network)
    stores = NeighborBank(width), NeighborBank(width)
    indexes = [] if index is None else start_indexes(index, network.head, stores[0], settings["index_tolerance"])
    inputs, codes = prepared(settings, encoder, rows.frame), rows.group_codes()
    known = None if codes is None else codes[train]
    weights = None if rows.weights is None else torch.from_numpy(rows.weights)[train]
    labels = codec.scaled(rows.labels) if classes else codec.transform.forward(rows.labels)
    learn = fit_class_network if classes else fit_kernel_network
    learn(network, RowSubset(inputs, train), labels[train], known, seed, weights)
    model = fill_banks(stores, network, inputs, rows, codec, TrainingHistory([], []), settings, "kernel")
    model = replace(model, codec=_with_scale(model)) if classes else model
    some = rows.held_out.train[spread(len(rows.held_out.train), _CURVE).numpy()]
    history = TrainingHistory([model.error_at(some)], [model.honest_error() / model.codec.unit() ** 2])
    return replace(model, history=history), indexes


def _with_scale(model: FittedModel) -> LabelCodec:
    """The codec with the scale of a kernel's scores of classes, from rows that are each predicted from the others."""
    scores, at = model.left_out(np.arange(len(model.bank)))
    fitted = calibrate_scores(scores, model.bank_labels()[at], model.bank.mass[at])
    scale = {"name": "softmax", "slope": fitted.slope, "biases": fitted.biases.tolist()}
    return replace(model.codec, transform=TargetTransform.model_validate(scale))
