"""Fits of a metric and its readout to labelled rows: of a network by its error, of a kernel by its likelihood."""

import copy
import functools
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core.checks import warn_caller
from vicinal.core.progress import ending_in, time_left
from vicinal.core.seeding import seeded
from vicinal.encoders import EmbeddingCache, TableEncoder
from vicinal.encoders.table import TableInputs
from vicinal.encoders.tree_columns import LinearColumns, TreeColumns
from vicinal.estimators.bank import filled_bank
from vicinal.estimators.blending import NOWHERE, blended, blended_classes, may_blend, may_share
from vicinal.estimators.comparables import MANY, SHARE, with_fewest_rows
from vicinal.estimators.fitted import FittedModel, weighted_mean
from vicinal.estimators.fold_readout import readouts_by_fold, tried_unseen
from vicinal.estimators.indexing import check_index, with_near
from vicinal.estimators.inputs import Draw, LabelledRows, make_folds
from vicinal.estimators.kernel_metric import (
    HOPELESS,
    PATIENCE,
    WHOLE,
    fit_class_network,
    fit_kernel_network,
    is_untrained,
    is_wide,
    kernel_neighbors,
    kernel_optimism,
    line_network,
    make_kernel_network,
    may_be_kernel,
    own_lengths,
    trend_network,
)
from vicinal.estimators.label_codec import LabelCodec
from vicinal.estimators.metric_choice import metrics_to_try
from vicinal.estimators.network import activation_of, make_kriging, make_network, training_settings
from vicinal.estimators.readout import COMPARED, SURELY, surely_less
from vicinal.estimators.target_transform import DOUBT, PLAIN, TargetTransform
from vicinal.estimators.tree_metric import boosted_network, trend_head
from vicinal.heads import Kriging
from vicinal.training import NeighborNetwork, Rows
from vicinal.training.class_kernel import calibrate_scores
from vicinal.training.error import error_of
from vicinal.training.history import TrainingHistory
from vicinal.training.likelihood import FIRST_ROWS, MOST_ROWS, QUIET, TableKernel
from vicinal.training.rows import RowInputs, RowSubset, spread
from vicinal.training.settings import encoding_device
from vicinal.training.trees import FOLDS

_logger = logging.getLogger(__name__)

_MANY = 64
"""Rows from which on it pays to run encoders on a GPU."""

_CALIBRATED = 4096
"""Rows that the scale of scores of classes is calibrated on, at most."""

_FLOORS = (1e-4, 1e-3, 3e-3, 1e-2, 3e-2)
"""What may be added to shares of classes before their power is taken."""

GONE = 100.0
"""Ranges beyond what it counts as from which on a number of a row that is added is a gap."""

CLEAR = 1.05
"""Times the least error of kernels of few rows from which on one on another scale of labels learns from no more: of 64
draws of 17 tables 11 lay between this and 1.1, and more rows chose another scale in none."""

PROBED = 60
"""Rows that read out a kernel of the fewest rows over many, which tells on which scale labels are predicted better."""

SURE = 2.0
"""By how much the log-likelihood of a row must be higher with logarithms of labels for that to be sure."""

Settings = dict[str, Any]


@dataclass(frozen=True, eq=False)
class FitJob:
    """What a model is fitted to.

    Attributes:
        rows: with their labels, and which of them are held out.
        codec: of the labels, fitted.
        encoder: of the table.
        settings: the estimator's parameters.
        seed: of training, and of the rows that a likelihood is of.
        reach: the error, as training sees labels, that makes training a network worth it.
    """

    rows: LabelledRows
    codec: LabelCodec
    encoder: TableEncoder
    settings: Settings
    seed: int
    reach: float = math.inf

    @property
    def seen(self) -> pd.DataFrame:
        """The rows that are trained on."""
        return self.rows.frame.iloc[self.rows.held_out.train]

    def fit_encoder(self) -> None:
        """Fit the encoder to the rows that are trained on.

        Those held out are in the bank, too: a label far out beside a cell that is cut would mislead the others.
        """
        self.encoder.fit(self.seen).widen(self.rows.frame)

    def folded(self) -> "FitJob":
        """The same with folds, those of trees and of the trend of a kernel: whole groups, or classes spread evenly."""
        rows, codec = self.rows, self.codec
        codes = codec.as_predicted(rows.labels).argmax(dim=1).numpy() if codec.kind == "classes" else None
        folds = make_folds(Draw(len(rows), self.seed, rows.groups, codes), FOLDS).folds
        return replace(self, rows=replace(rows, held_out=replace(rows.held_out, folds=folds)))

    def copied(self) -> "FitJob":
        """The same with an encoder of its own, which a fit may change."""
        return replace(self, encoder=self.encoder.copied())


def _timed(fit: Callable[..., FittedModel]) -> Callable[..., FittedModel]:
    """A fit whose model says how well it predicts and how long it took."""

    @functools.wraps(fit)
    def timed(job: FitJob, *more: Any, **further: Any) -> FittedModel:
        begin = time.perf_counter()
        model = fit(job, *more, **further)
        trial = model.trial(time.perf_counter() - begin, job.settings["tune"])
        _logger.info("%s", trial)
        return model.with_facts(trials=(trial,))

    return timed


def device_of(settings: Settings, rows: int) -> torch.device:
    """Where encoders run for so many rows: few are done before weights have come to a GPU."""
    return encoding_device(settings["accelerator"] if rows >= _MANY else "cpu")


def prepared(
    settings: Settings,
    encoder: TableEncoder,
    frame: pd.DataFrame,
    reader: TreeColumns | None = None,
    *,
    gone: float = 0.0,
) -> TableInputs:
    """Prepared rows, those of frozen networks run once (and kept in ``cache_dir`` if there is one).

    Args:
        settings: the estimator's parameters.
        encoder: of the table, fitted.
        frame: the rows.
        reader: of a metric that reads columns in its own way.
        gone: ranges beyond what it counts as from which on a number is a gap, as at an end of its column it would pull
            at slopes: 0 in rows of a fit, whose ends leave out wild ones alone; ``GONE`` in rows that are added, which
            may go on; infinite in queries.
    """
    root, cache_dir = settings["root"], settings["cache_dir"]
    inputs = encoder.prepare(frame, None if root is None else Path(root)).without_wild(gone)
    store = None if cache_dir is None else EmbeddingCache(cache_dir)
    inputs = encoder.cache(inputs, store=store, device=device_of(settings, len(frame)))
    return inputs if reader is None else reader.prepare(encoder, frame, inputs)


def fit_on_scale(job: FitJob) -> FittedModel:
    """What :func:`fit_best` gives, of numbers on the scale that ``target_transform`` names or lets choose.

    "auto" takes what a kernel predicts all rows better by, each from the others: "none" or "log"; "none" where there is
    no kernel. The rows held out are too few to tell, and a network has seen the others. See
    :func:`_scale_of_less_error`.
    """
    labels, settings = job.rows.labels, job.settings
    train = labels[torch.from_numpy(job.rows.held_out.train)]
    plain = replace(job.codec, transform=PLAIN).fitted(train)  # raises where labels do not differ
    if plain.kind == "classes":
        return fit_best(replace(job, codec=plain))

    def on(name: str, labels: Tensor) -> LabelCodec:
        return replace(plain, transform=TargetTransform.fitted(name, labels))

    name, kernel = settings["target_transform"], None
    if name == "auto":
        name = "none"
        kernels = settings["metric"] == "auto" and may_be_kernel(settings)
        if (kernels or settings["metric"] == "kernel") and bool((labels > 0).all()):
            part = job.copied()  # a tuned encoder, which no kernel reads, would stand in memory twice
            part.fit_encoder()
            part.encoder.settle(job.seen)  # once for both

            def fitted(name: str, most: int, start: TableKernel | None = None) -> FittedModel:
                with seeded(), ending_in(time_left() / 4):  # of a limit, so that trees have the rest
                    return fit_kernel(replace(part.copied(), codec=on(name, labels)), most, start, few=False)

            tried = {one: fitted(one, FIRST_ROWS[0]) for one in ("none", "log")}
            name, lead = _scale_of_less_error(tried)
            if len(train) > FIRST_ROWS[0] and time_left() > 0:
                more = [name] if lead > CLEAR else [*tried]
                tried |= {one: fitted(one, FIRST_ROWS[-1], tried[one].learned) for one in more}
                name = name if lead > CLEAR else _scale_of_less_error(tried)[0]
            kernel = tried.pop(name).chosen_over(*tried.values())
    scale = on(name, train)
    model = fit_best(replace(job, codec=replace(scale, transform=scale.transform.widened(labels))), kernel)
    return _with_mean(model) if settings["target_transform"] == "auto" else model


def _with_mean(model: FittedModel) -> FittedModel:
    r"""A model of logarithms whose predictions of rows left out sum to as much as their labels; another as it is.

    Errors that are even on logarithms make $e^{\sum_j w_j \ln y_j}$ the middle of the labels, which lies below their
    mean, of least squared error: it is taken times a constant (Duan, 1983, doi:10.1080/01621459.1983.10478017) that is
    three standard errors from 1, as the few largest labels make these too small.
    """
    codec = model.codec
    if codec.transform.name != "log" or codec.targets is not None or model.metric == "network":
        return model
    said, bank, at = model.all_left_out()
    labels, said = (each.double() * bank.mass[at] for each in (bank.labels[at], model.in_label_units(said)))
    times = float(labels.sum() / said.sum())
    doubt = float((labels - times * said).square().sum().sqrt())  # one label far off is no reason to move all others
    if not abs(float((labels - said).sum())) > 3 * doubt:
        return model
    transform = codec.transform.model_copy(update={"constant": math.log(times)})
    model = model.with_facts(codec=replace(codec, transform=transform))
    first, *others = model.trials
    return model.with_facts(trials=(model.trial(first.seconds or 0.0, first.tune), *others))


def _scale_of_less_error(tried: Mapping[str, FittedModel]) -> tuple[str, float]:
    r"""The scale of less squared error of labels, or "log" where these are surely more likely; the other's over its.

    Of labels over orders of magnitude the few largest make up the squared error, and luck with these decides. All rows
    count in the likelihood of normal errors on a scale g (Box and Cox, 1964), per row
    $-\tfrac12 \log \overline{(g(y) - \hat g)^2} + \overline{\log g'(y)}$.
    """
    left_out = {name: each.all_left_out() for name, each in tried.items()}
    likely = {}
    for name, (said, bank, at) in left_out.items():
        labels, mass = bank.labels[at].double(), bank.mass[at]
        transform = tried[name].codec.transform
        errors = error_of(said.double(), transform.forward(labels), numbers=True)
        log_slope = -labels.log() if name == "log" else torch.zeros_like(labels)
        likely[name] = weighted_mean(log_slope.reshape(len(at), -1).mean(dim=1), mass)
        likely[name] -= math.log(max(weighted_mean(errors, mass), 1e-300)) / 2
    units = {name: each.error_in_label_units(*left_out[name]) for name, each in tried.items()}
    sure = tried["none"].codec.targets is None and likely["log"] > likely["none"] + SURE
    name, other = ("log", "none") if sure or units["log"] < units["none"] else ("none", "log")
    return name, units[other] / max(units[name], 1e-300)


def fit_best(job: FitJob, kernel: FittedModel | None = None) -> FittedModel:
    """The metric that is asked for, or of both what predicts the rows held out best.

    Args:
        job: whose encoder is not fitted yet.
        kernel: one of the likelihood of few rows that was fitted already.
    """
    encoder, codec, settings = job.encoder, job.codec, job.settings
    job.fit_encoder()
    wide, untrained = (any(map(of, encoder.encoders)) for of in (is_wide, is_untrained))
    if settings["metric"] == "kernel":
        if untrained and codec.kind == "classes":
            warn_caller(
                "metric: expected 'auto' or 'network' for classes of images or sounds whose encoder nothing has "
                "trained, got 'kernel', which does not train it either; or name a pretrained one by encoders"
            )
        return _whole_kernel(job, kernel)
    if settings["metric"] == "trees":
        return fit_trees(job)
    tried = metrics_to_try(
        settings,
        encoder.kinds,
        job.rows.labels.numpy(),
        job.rows.groups,
        classes=codec.kind == "classes",
        several=codec.multilabel,
        rows=len(job.rows),
        wide=wide,
        untrained=untrained,
    )
    kernels, trees = "kernel" in tried, "trees" in tried
    settled = job
    if trees or kernels:  # once for all that train no encoder
        settled = job.copied()
        settled.encoder.settle(job.seen)
    with seeded():
        first = None
        if trees:
            first = _trees_or_kernel(settled, kernel) if kernels else fit_trees(settled.copied())
        elif kernels:
            first = _whole_kernel(settled, kernel)
    if first is not None and ("network" not in tried or time_left() <= 0):
        return first
    least = math.inf if first is None else weighted_mean(*first.held_out_errors())
    network = fit_network(job, reach=min(job.reach, HOPELESS * least / codec.unit() ** 2))
    if first is None:
        return network
    # few rows are held out: a network must gain a share, and more than luck explains, or of texts, images and vectors
    # signed weights of all rows must, as 30 rows of a network can be read
    readable = wide and first.few is not None and network.readout == "rows"
    if (not first.surely_below(network, SHARE, SURELY)) if readable else network.surely_below(first, PATIENCE):
        first, network = network, first
    return first.chosen_over(network)


def _trees_or_kernel(job: FitJob, kernel: FittedModel | None) -> FittedModel:
    """Trees, a kernel or the mean of both; of classes both or a kernel, trees alone where there may not be both.

    Of classes trees, their readout and its scale are chosen by the same rows, which tell too little of their error.
    The kernel is of the likelihood of all its rows only if that of fewer has less error than trees, or trees have so
    little that each row more may say much: of 1,000 rows it then had 21 times their error, of 2,000 a fifth.
    """
    first = kernel
    if first is None:
        with ending_in(time_left() / 4):  # of a limit, so that trees have the rest
            first = fit_kernel(job.copied(), FIRST_ROWS[-1], few=False)
    one = job.codec.kind == "numbers" and job.codec.targets is None  # of several each has its own unit
    trees = fit_trees(job.copied(), HOPELESS * first.error_of_all() if one else math.inf)
    if job.codec.kind == "classes":
        if not may_blend(job.settings):
            tried = [trees, first] if trees.surely_below(first, of_all=True) else [first, trees]
        else:
            both = blended_classes(_in_log_odds(trees, job), first, job.settings)
            tried = [both, first, trees] if both.error_of_all() < first.error_of_all() else [first, both, trees]
        return tried[0].chosen_over(*tried[1:])
    variance = float(job.codec.transform.forward(job.rows.labels).var())
    quiet = one and trees.error_of_all() < QUIET * variance
    if quiet or first.error_of_all() < trees.error_of_all():
        first = _whole_kernel(job, first)
    elif may_share(trees, first):
        first = _of_few_rows(first, job)
    tried = [trees, first] if trees.error_of_all() <= first.error_of_all() else [first, trees]
    mean = blended(trees, first, job.settings)
    tried = tried if mean is None else [mean, *tried]
    return tried[0].chosen_over(*tried[1:])


def _whole_kernel(job: FitJob, first: FittedModel | None) -> FittedModel:
    """The kernel of the likelihood of all its rows, which one of fewer may begin."""
    if first is None:
        return fit_kernel(job.copied())
    if time_left() <= 0 or len(job.rows.held_out.train) <= FIRST_ROWS[-1]:
        return _of_few_rows(first, job)
    return fit_kernel(job.copied(), MOST_ROWS, first.learned).chosen_over(first)


def _of_few_rows(kernel: FittedModel, job: FitJob) -> FittedModel:
    """A kernel that was fitted without its readout of few rows, with it."""
    begin, (first, *others) = time.perf_counter(), kernel.trials
    model = _with_trend(kernel, job, prepared(job.settings, job.encoder, job.rows.frame))
    trial = model.trial((first.seconds or 0.0) + time.perf_counter() - begin, job.settings["tune"])
    return _with_errors(model).with_facts(trials=(trial, *others))


def _in_log_odds(trees: FittedModel, job: FitJob) -> FittedModel:
    """The same trees of classes, whose columns add to log-odds and not to probabilities, read out by these alone."""
    projector: Any = copy.copy(trees.network.projector)
    projector.probabilities = False
    network = NeighborNetwork(trees.network.encoder, projector, trees.network.head)
    head = trend_head(network).with_rows(1).with_kernel(*NOWHERE)
    network.head, head.log_odds = head, True
    inputs = prepared(job.settings, job.encoder, job.rows.frame, projector.reader)
    held_out = replace(job.rows.held_out, folds=torch.as_tensor(trees.bank.folds).numpy())
    return with_banks(network, inputs, replace(job, rows=replace(job.rows, held_out=held_out)), trees.history, "trees")


def with_index(model: FittedModel, settings: Settings) -> FittedModel:
    """The model that predicts from the rows that its index finds; the same if the settings name none."""
    if settings["index"] is None:
        return model
    near = with_near(settings["index"], model.network.head, model.bank.store)
    return replace(model, near=near)


@_timed
def fit_network(
    job: FitJob, start: NeighborNetwork | None = None, epochs: int = 0, reach: float = math.inf
) -> FittedModel:
    """Train encoder, projector and head, and fill the bank.

    With ``start`` it begins at the weights of that, for so many epochs. ``reach`` is the error that makes training
    worth it, as training sees labels.
    """
    from vicinal.estimators.loss import check_on_labels, make_added, make_criterion, make_fair, make_targets
    from vicinal.estimators.loss_readout import with_loss_readout
    from vicinal.training.fit import cannot_reach, train  # Lightning is slow to import, and no saved model needs it

    rows, codec, settings = job.rows, job.codec, job.settings
    held_out = rows.held_out
    train_rows = torch.from_numpy(held_out.train)
    gone = 0.0 if start is None else GONE  # rows were added since the encoder was fitted, and queries may be like them
    inputs = prepared(settings, job.encoder, rows.frame, gone=gone)
    scaled = codec.scaled(rows.labels)
    begin = codec.start(scaled[train_rows], rows.mass_of(train_rows))
    activation = activation_of(codec.classes.tolist(), multilabel=codec.multilabel)
    network = make_network(settings, job.encoder, begin, activation)
    by = training_settings(settings, job.seed)
    if start is not None:
        network.start_at(start)
        by = replace(by, max_epochs=epochs, folder=None)
    kriging = make_kriging(settings) if settings["readout"] != "auto" or _may_choose(codec, settings) else None
    check_index(settings["index"], network.width)
    folds = None if held_out.folds is None else torch.from_numpy(held_out.folds)
    criterion = make_criterion(settings, codec, by_row=rows.weighted)
    check_on_labels(settings["loss"], criterion)
    targets = make_targets(criterion, scaled, train_rows, settings["loss"], codec)
    every = Rows(inputs, targets, torch.arange(len(rows)), rows.group_codes(), folds)
    places = train_rows, torch.from_numpy(held_out.validation)
    parts = [replace(every.take(at), weights=rows.mass_of(at, torch.float32)) for at in places]
    added, fair = make_added(settings, codec), make_fair(settings, codec, rows.attribute)
    validation = parts[1] if folds is None else None
    history = train(network, parts[0], validation, by, criterion, added, fair=fair, reach=reach)
    network.projector.double()
    network.head.double()
    model = with_banks(network, inputs, job, history)
    hopeless = cannot_reach(reach, history.validation_error, by.planned)
    if kriging is not None and not hopeless:  # else another model is taken
        model = _with_readout(model, kriging, settings)
    return with_loss_readout(model, settings)


def with_banks(
    network: NeighborNetwork, inputs: RowInputs, job: FitJob, history: TrainingHistory, metric: str = "network"
) -> FittedModel:
    """The model of a trained network; all rows stand in the first bank, those held out in the second, too."""
    network.eval()
    rows, settings = job.rows, job.settings
    everything = np.arange(len(rows))  # rows held out, too: an id keeps each from its own label
    bank, held_out = (
        filled_bank(network, RowSubset(inputs, torch.from_numpy(at)), rows, at, device_of(settings, len(at)))
        for at in (everything, rows.held_out.validation)
    )
    folds = None if rows.held_out.folds is None or metric != "network" else int(rows.held_out.folds.max()) + 1
    members = settings.get("members", 1)
    return FittedModel(job.codec, network, bank, held_out, metric, history, members, folds)


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
    """Read predictions out by few rows, or by the trained head where ``readout`` lets it and it is surely better.

    Attention is over all rows, so that no person can read it. An index serves kriging alone.
    """
    compared = settings["readout"] == "auto" and settings["index"] is None and len(model.bank) <= COMPARED
    tried = tried_unseen(model, kriging)
    head = tried.choice()
    chosen = model.with_head(head)
    if compared:
        # where labels are noise each row more takes a share of it away; folds choose between 30 rows and all
        more = MANY if settings["max_neighbors"] is None and model.folds is None else ()
        some = (model.with_head(one) for one in (head, *map(head.with_rows, more)))
        errors, mass = model.honest_errors
        chosen = next((one for one in some if not surely_less(errors, one.honest_errors[0], mass, SHARE)), model)
    if model.folds is None:
        return chosen
    return replace(chosen, fold_heads=readouts_by_fold(model, tried, compared=compared))


@_timed
def fit_kernel(
    job: FitJob, most: int = MOST_ROWS, start: TableKernel | None = None, *, few: bool = True
) -> FittedModel:
    """Learn a kernel, by the likelihood of the rows that are not held out, and fill the bank.

    Of classes that of least log-loss, which has one length for all columns, or that of the likelihood of one-hot
    labels, with a length for each, where its log-loss is lower by more than so many lengths explain.

    Args:
        job: whose encoder is fitted.
        most: how many rows the likelihood is of, at most.
        start: see :func:`vicinal.training.likelihood.fit_kernel`.
        few: whether few rows and a trend are tried as its readout, which a kernel that is not taken does not need.
    """
    encoder, settings = job.encoder, job.settings
    encoder.settle(job.seen)
    inputs = prepared(settings, encoder, job.rows.frame)
    if job.codec.kind != "classes":
        model = _learned_kernel(job, inputs, most, start)
        return _with_errors(_with_trend(model, job, inputs) if few else model)
    model = _learned_kernel(job, inputs, by_loss=True)
    if own_lengths(encoder) and may_be_kernel(settings) and time_left() > 0:
        likely = _learned_kernel(job, inputs, FIRST_ROWS[0])
        model = likely if likely.error_of_all() < model.error_of_all() else model
    return _with_errors(model)


def _learned_kernel(
    job: FitJob, inputs: RowInputs, most: int = MOST_ROWS, start: TableKernel | None = None, *, by_loss: bool = False
) -> FittedModel:
    """A kernel that was learned by the likelihood, or by the log-loss of classes, of prepared rows."""
    rows, codec, encoder, settings = job.rows, job.codec, job.encoder, job.settings
    classes = codec.kind == "classes"
    train, index = torch.from_numpy(rows.held_out.train), settings["index"]
    probe = not classes and most <= FIRST_ROWS[0] and len(rows) > WHOLE  # two of which tell the scale of labels
    k = settings["max_neighbors"] or (PROBED if probe else kernel_neighbors(len(rows), classes=classes))
    by = settings | {"metric": "kernel", "max_neighbors": k}
    may = classes or settings["readout"] != "rows"  # of numbers these are few
    whole = WHOLE if may and settings["max_neighbors"] is None and index is None else 0
    network = make_kernel_network(by, encoder, classes=by_loss, whole_up_to=whole)
    check_index(index, network.width)
    codes = rows.group_codes()
    known = None if codes is None else codes[train]
    labels = codec.scaled(rows.labels) if classes else codec.transform.forward(rows.labels)
    learning, learned = (network, RowSubset(inputs, train), labels[train], known), None
    options: dict[str, Any] = {"seed": job.seed, "weights": rows.weights_of(train)}
    if by_loss:
        fit_class_network(*learning, **options)
    else:
        options |= {"most": most, "start": start, "steps": not classes and len(rows) <= WHOLE}
        learned = fit_kernel_network(*learning, **options)
    model = with_banks(network, inputs, job, TrainingHistory([], []), "kernel")
    model = _with_scale(model) if classes else model
    if learned is not None:
        loss = model.error_of_all() if classes else None
        optimism = kernel_optimism(network, min(most, len(train)), loss)
        model = model.with_facts(learned=learned, optimism=optimism)
    return model


def _with_errors(model: FittedModel) -> FittedModel:
    """The model of a kernel with its errors as its history."""
    unit = model.codec.unit() ** 2
    history = TrainingHistory([weighted_mean(*model.errors_of_all()) / unit], [model.honest_error() / unit])
    return model.with_facts(history=history)


def _with_trend(model: FittedModel, job: FitJob, inputs: RowInputs) -> FittedModel:
    """The model of a kernel read out by few rows and its trend; as it is, by signed weights, where that is better."""
    settings = job.settings
    few_groups = job.rows.grouped and len(set(job.rows.clusters.tolist())) < FOLDS
    if model.learned is None or settings["readout"] not in ("auto", "comparables") or few_groups:
        return model
    # the trend adjusts the labels of the rows that it was fitted to, so each row is embedded by the trend of the folds
    # without it
    job = job.folded()
    at, folds = spread(len(job.rows), MOST_ROWS), torch.from_numpy(np.asarray(job.rows.held_out.folds))
    if len({*folds[at].tolist()}) <= int(folds.max()):  # a few large groups
        return model
    parts = RowSubset(inputs, at), model.codec.as_predicted(job.rows.labels)[at], folds[at]

    def read_out(network: NeighborNetwork) -> FittedModel:
        few = replace(with_banks(network, inputs, job, model.history, "kernel"), learned=model.learned)
        return with_fewest_rows(few, trend_head(network), settings["readout"], settings["max_neighbors"])

    mass = model.bank.mass[at]
    few = read_out(trend_network(model.network, *parts, mass, float(model.learned.log_amplitude.exp())))
    line, error = line_network(model.network, *parts, mass)
    if error < few.error_of_all() and (other := read_out(line)).surely_below(few, SHARE, SURELY, of_all=True):
        few = other
    # a prediction of few rows can be read: it is taken unless many of either sign are better by more than a hundredth
    if settings["readout"] == "comparables" or few.error_of_all() <= (1 + SHARE) * model.error_of_all():
        return few
    return model.with_facts(few=few)


@_timed
def fit_trees(job: FitJob, reach: float = math.inf) -> FittedModel:
    """Boost trees by folds of all rows; each row of the bank is embedded by the trees that left it out.

    Those that cannot come to the error ``reach`` are few, and read out as they are.
    """
    job = job.folded()
    rows, codec, encoder, settings = job.rows, job.codec, job.encoder, job.settings
    encoder.settle(job.seen)
    classes, labels = codec.kind == "classes", codec.as_predicted(rows.labels)
    reader = LinearColumns(encoder)
    check_index(settings["index"], labels[:1].numel() * (1 + len(set(reader.names))))
    inputs = prepared(settings, encoder, rows.frame, reader)
    reader.fit(encoder, inputs.select(torch.from_numpy(rows.held_out.train)))
    boosting: Any = {"classes": classes, "weights": rows.weights_of(torch.arange(len(labels))), "seed": job.seed}
    boosting["reach"] = reach
    network, error = boosted_network(
        encoder, reader, inputs, labels, torch.from_numpy(np.asarray(rows.held_out.folds)), **boosting
    )
    model = with_banks(network, inputs, job, TrainingHistory([], []), "trees")
    if error <= reach:
        model = with_fewest_rows(model, trend_head(network), settings["readout"], settings["max_neighbors"])
    model = _with_scale(model) if classes else model
    unit = codec.unit() ** 2
    return model.with_facts(history=TrainingHistory([error / unit], [model.honest_error() / unit]))


def _with_scale(model: FittedModel) -> FittedModel:
    """The model with the scale of scores of classes, from rows that are each predicted from the others."""
    scores, bank, at = model.left_out(model.bank, spread(len(model.bank), _CALIBRATED))
    known = model.bank_labels()[at], bank.mass[at]
    if model.metric == "kernel" and not model.network.projector.linear:
        fitted, scale = calibrate_scores(scores, *known), dict[str, Any](name="softmax")
    else:
        shares = scores.double().clamp(min=0)
        each = {floor: calibrate_scores((shares + floor).log(), *known) for floor in _FLOORS}
        floor = min(each, key=lambda one: each[one].loss)
        fitted, scale = each[floor], dict[str, Any](name="power", floor=floor)
    scale |= {"slope": fitted.slope, "biases": fitted.biases.tolist(), "doubt": DOUBT / len(model.bank)}
    scaled = replace(model, codec=replace(model.codec, transform=TargetTransform.model_validate(scale)))
    scaled.computed.left_out = scores, bank, at  # no scale changes what the others say
    return scaled
