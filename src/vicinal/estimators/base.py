"""What the neighbor estimators share: parameters, fitting, and the head on embedded queries."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from vicinal.blockwise import policy, query_rows
from vicinal.core import ExtrapolationWarning, short, warn_caller
from vicinal.core.identity import canonical_ids, warn_of_identity
from vicinal.core.seeding import seeded, usual_settings
from vicinal.data import LeakWarning, TableForm, leaking_columns
from vicinal.encoders import EmbeddingCache, Kind, TableEncoder, TableInputs, build_table_encoder
from vicinal.estimators.bank import Bank, embedded, fill_bank
from vicinal.estimators.encoder_choice import EncoderChoice, choose_encoders
from vicinal.estimators.fold_readout import FoldRows, readouts_by_fold
from vicinal.estimators.indexing import (
    NearBank,
    SavedNear,
    drop_indexes,
    fill_indexes,
    load_near,
    start_indexes,
    storage_of,
)
from vicinal.estimators.inputs import (
    EmbeddedRows,
    HeldOut,
    Ids,
    LabelledRows,
    as_frame,
    as_table,
    check_rows,
    fair_groups,
    form_of,
    hold_out,
    kinds_of,
    make_folds,
    warn_of_unseen,
)
from vicinal.estimators.journal import Changes
from vicinal.estimators.kernel_metric import (
    PATIENCE,
    WHOLE,
    check_kernel_kinds,
    fit_class_network,
    fit_kernel_network,
    kernel_neighbors,
    make_kernel_network,
    may_be_kernel,
)
from vicinal.estimators.network import (
    check_settings,
    embedding_width,
    make_kriging,
    make_network,
    training_settings,
)
from vicinal.estimators.plan import TuningPlan
from vicinal.estimators.readout import COMPARED, MOST, Choice, Tried, choose_kriging, local_weights, tried_out_of_fold
from vicinal.estimators.target_transform import PLAIN, TargetTransform
from vicinal.heads import FoldMembers, Kriging
from vicinal.index import Index, NeighborBank
from vicinal.similarity import resolve_similarity
from vicinal.training import NeighborNetwork, Rows, RowSubset, TrainingHistory, error_of
from vicinal.training.rows import spread
from vicinal.training.settings import encoding_device

SCORES = 1 << 22
"""Scores or weights held at a time while many queries are looked up, explained or calibrated."""


_MANY = 64
"""Rows from which on it pays to run encoders on a GPU."""

_CURVE = 256
"""Rows trained on whose error the history of a kernel tells, at most."""

FITTED = ("network_", "bank_", "calibration_", "folds_", "fold_heads_", "history_", "metric_", "target_transform_")
"""What a fit leaves behind."""

LONE_GROUPS = (
    "groups: expected some rows to share one, got another for every row, so nothing is kept together; "
    "give what rows have in common (a patient, a house), or leave groups out"
)
"""What is said of groups such as a copy of the ids."""


class NeighborEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of :class:`NeighborRegressor` and :class:`NeighborClassifier`; see there for the parameters."""

    network_: NeighborNetwork
    bank_: Bank
    calibration_: Bank
    history_: TrainingHistory
    kinds_: dict[str, Kind]
    notes_: dict[str, Any]
    folds_: int | None = None
    fold_heads_: list[torch.nn.Module] | None = None  # by which rows are read out of fold, where readouts were chosen
    encoder_choices_: Sequence[EncoderChoice] = ()
    metric_: str = "network"
    multilabel_: bool = False
    targets_: Sequence[str] | None = None
    plan_: TuningPlan | None = None
    target_transform_: TargetTransform = PLAIN
    form_: TableForm = TableForm()
    changes_: Changes = Changes()
    weight_unit_: float = 1.0
    _near_head: NearBank | None = None
    _near_saved: SavedNear | None = None
    _known_errors: dict[torch.nn.Module, tuple[Tensor, Tensor]] | None = None  # of the heads of a fit, while it lasts

    def __init__(
        self,
        *,
        head: str = "nona",
        metric: str = "auto",
        similarity: str = "l2",
        mask: str | None = "s2",
        mask_parameters: str = "pointwise",
        mask_extent: str = "admissible",
        simplex: str = "auto",
        readout: str = "auto",
        max_neighbors: int | None = None,
        target_transform: str = "none",
        loss: Any = None,
        fair: str | None = None,
        fair_weight: float | None = None,
        fair_rate: str = "positive",
        n_neighbors: int = 5,
        index: str | None = None,
        index_tolerance: float = 1e-3,
        columns: Mapping[str, Kind] | None = None,
        form: TableForm | None = None,
        encoders: Mapping[str, str] | None = None,
        tune: str = "none",
        minutes: float = 10.0,
        plan: Any = None,
        hidden: tuple[int, ...] = (200, 25),
        members: int = 8,
        final_tanh: bool = False,
        dropout: float = 0.2,
        max_epochs: int = 200,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        encoder_learning_rate: float = 2e-5,
        weight_decay: float = 0.0,
        patience: int = 10,
        validation_fraction: float = 0.15,
        precision: str = "32-true",
        accelerator: str = "auto",
        devices: int | str = 1,
        logger: str | None = None,
        progress: bool = False,
        root: str | Path | None = None,
        cache_dir: str | Path | None = None,
        checkpoint_dir: str | Path | None = None,
        random_state: Any = 0,
    ) -> None:
        self.head = head
        self.metric = metric
        self.similarity = similarity
        self.mask = mask
        self.mask_parameters = mask_parameters
        self.mask_extent = mask_extent
        self.simplex = simplex
        self.readout = readout
        self.max_neighbors = max_neighbors
        self.target_transform = target_transform
        self.loss = loss
        self.fair = fair
        self.fair_weight = fair_weight
        self.fair_rate = fair_rate
        self.n_neighbors = n_neighbors
        self.index = index
        self.index_tolerance = index_tolerance
        self.columns = columns
        self.form = form
        self.encoders = encoders
        self.tune = tune
        self.minutes = minutes
        self.plan = plan
        self.hidden = hidden
        self.members = members
        self.final_tanh = final_tanh
        self.dropout = dropout
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.encoder_learning_rate = encoder_learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.precision = precision
        self.accelerator = accelerator
        self.devices = devices
        self.logger = logger
        self.progress = progress
        self.root = root
        self.cache_dir = cache_dir
        self.checkpoint_dir = checkpoint_dir
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn should know: X may be sparse; it is made dense."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: the index of a loaded model is read first, so that the folder is needed no more."""
        if hasattr(self, "bank_"):
            self.near_bank()
        state: dict[str, Any] = super().__getstate__()
        return state

    # What the two tasks define.

    def _take_labels(self, y: Any, rows: int) -> Ids:
        """Checked labels: values ``[n]``, places of classes ``[n]``, or of several classes a row 0 and 1 ``[n, K]``."""
        raise TypeError(f"estimator: expected NeighborRegressor or NeighborClassifier, got {type(self).__name__}")

    def _fit_labels(self, y: Any, rows: int) -> Ids:
        """As :meth:`_take_labels`, for the rows that are fitted on."""
        return self._take_labels(y, rows)

    def _scaled(self, labels: Tensor, train_labels: Tensor) -> Tensor:
        """Labels as training sees them: on [0, 1] by the range of the training rows, or one-hot."""
        raise TypeError(f"estimator: expected NeighborRegressor or NeighborClassifier, got {type(self).__name__}")

    def _label_ends(self) -> tuple[Any, Any] | None:
        """What training has scaled to 0 and 1, on the scale of the transform; None of classes."""
        return None

    def _start(self, scaled: Tensor, weights: Tensor | None) -> Tensor:
        """Where the bias of a dense head starts, by weights ``[n]`` of mean 1."""
        raise TypeError(f"estimator: expected NeighborRegressor or NeighborClassifier, got {type(self).__name__}")

    # Fitting.

    def _fit(self, x: Any, y: Any, ids: Any, groups: Any, validation: Any, weights: Ids | None = None) -> Self:
        self._check_settings()
        x = as_table("X", x)
        frame = as_frame(self, x, reset=True)
        self.form_ = form_of(frame, x, self.form, self.columns)
        frame = self.form_.read(frame)
        labels = self._fit_labels(y, len(frame))
        check_rows(len(frame))
        kind = "classes" if hasattr(self, "classes_") else "numbers"
        self._check_loss(kind)
        own_ids = canonical_ids("ids", range(len(frame)) if ids is None else ids, len(frame), distinct=True)
        own_groups = None if groups is None else canonical_ids("groups", groups, len(frame))
        if own_groups is not None and len(set(own_groups.tolist())) == len(frame):
            warn_of_identity(LONE_GROUPS)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        classes = None if kind == "numbers" else np.unique(labels, axis=0, return_inverse=True)[1].reshape(-1)
        self.kinds_ = kinds_of(frame, x, self.columns)
        if isinstance(x, pd.DataFrame):
            for each in list(labels.reshape(len(labels), -1).T) if classes is None else [classes]:
                for leak in leaking_columns(frame, self.kinds_, each, classes=classes is not None, groups=own_groups):
                    warn_caller(leak.python, LeakWarning)
        with seeded(seed):
            cache = EmbeddingCache(self.cache_dir)
            self._choose_encoders(frame, labels, classes, own_groups, validation, seed, cache)
            encoder = build_table_encoder(self.kinds_, encoders=self.named_encoders(), tune=self.tune, cache=cache)
            held_out = self._held_out(encoder, len(frame), validation, own_groups, classes, seed)
            values = torch.from_numpy(labels.astype(np.float64))
            self.weight_unit_ = 1.0 if weights is None else float(weights.mean())
            even = weights is None or bool((weights == weights[0]).all())
            relative = None if even or weights is None else weights / self.weight_unit_
            attribute = None if self.fair is None else fair_groups(x, self.fair)
            rows = LabelledRows(frame, values, own_ids, own_groups, held_out, relative, attribute)
            self._train(rows, seed, encoder)
        return self

    def _check_settings(self) -> None:
        """Check parameters, before anything is done."""
        check_settings(self.get_params(deep=False), classes=isinstance(self, ClassifierMixin))

    def _check_loss(self, kind: str) -> None:
        """Check that the loss is there and takes labels of this kind."""
        from vicinal.estimators.loss import check_loss  # the losses take a while to import; only training needs them

        check_loss(self.loss, kind, self.head, multilabel=self.multilabel_)

    def _check_weighted(self) -> None:
        """Check that all settings know rows of different weights.

        Raises:
            ValueError: for an index, a loss of embeddings, or one that does not say what each row adds.
        """
        from vicinal.estimators.loss import make_added, make_criterion

        if self.index is not None:
            raise ValueError(f"index: expected None for rows of different weights, got {short(self.index)}")
        settings = self.get_params(deep=False)
        make_criterion(settings, (0.0, 1.0), by_row=True)
        if make_added(settings, (0.0, 1.0), 2) is not None:
            raise ValueError(
                f"loss: expected an error of predictions for rows of different weights, got {short(self.loss)}, which "
                "compares embeddings"
            )

    def _choose_encoders(
        self,
        frame: pd.DataFrame,
        labels: Ids,
        classes: Ids | None,
        groups: Ids | None,
        validation: Any,
        seed: int,
        cache: EmbeddingCache,
    ) -> None:
        """Choose encoders that were not named, by the rows that are trained on; where members are folds none is."""
        self.encoder_choices_ = []
        if validation is None and self.validation_fraction == 0:
            return
        train = hold_out(len(frame), validation, self.validation_fraction, groups, classes, seed).train
        self.encoder_choices_ = choose_encoders(
            frame.iloc[train],
            self.kinds_,
            labels[train],
            self.encoders,
            cache,
            classes=classes is not None and labels.ndim == 1,
            groups=None if groups is None else groups[train],
            root=None if self.root is None else Path(self.root),
            seed=seed,
        )

    def named_encoders(self) -> dict[str, str]:
        """Encoders by column or kind: those of the parameter, and those that the fit chose."""
        return {**(self.encoders or {}), **{choice.column: choice.encoder for choice in self.encoder_choices_}}

    def _train(self, rows: LabelledRows, seed: int, encoder: TableEncoder) -> None:
        """Fit the metric that is asked for, or both, and keep what predicts the rows held out best."""
        self.changes_, self._known_errors = Changes(), {}
        encoder.fit(rows.frame.iloc[rows.held_out.train])
        settings, frozen = self.get_params(deep=False), encoder.untrained if hasattr(self, "classes_") else None
        tried = self.metric == "auto" and not self.multilabel_
        if tried and may_be_kernel(settings, self.kinds_, encoder.dim, frozen=frozen):
            with seeded():
                indexes = self._train_kernel(rows, seed, copy.deepcopy(encoder))
            kernel, error = {name: getattr(self, name) for name in FITTED}, self._honest_error()
            each = self._honest_errors()[0]
            self._start_scale()
            others = self._train_network(rows, seed, encoder)
            if (1 - PATIENCE) * error <= self._honest_error() or (frozen is not None and not self._surely_below(each)):
                self.__dict__ |= kernel
            else:
                indexes, others = others, indexes
            drop_indexes(others)
        else:
            indexes = (self._train_kernel if self.metric == "kernel" else self._train_network)(rows, seed, encoder)
        self._take_indexes(indexes)
        self._known_errors = None

    def _take_indexes(self, indexes: list[Index]) -> None:
        """Fill the indexes of a head that was trained, and predict by them."""
        self._near_head, self._near_saved = None, None
        if indexes:
            head, store, tolerance = self.network_.head, self.bank_.store, self.index_tolerance
            fill_indexes(indexes, head, store)
            self._near_head = NearBank(head, store, indexes, self._class_count(), tolerance)

    def _train_network(
        self, rows: LabelledRows, seed: int, encoder: TableEncoder, epochs: int | None = None
    ) -> list[Index]:
        """Train encoder, projector and head, and fill the bank; gives the indexes of the head, empty.

        With ``epochs`` it goes on from the fitted weights, for so many at most.
        """
        from vicinal.estimators.loss import make_added, make_criterion, make_fair, make_targets
        from vicinal.training.fit import train  # Lightning takes seconds to import; a saved model predicts without it

        held_out = rows.held_out
        train_rows = torch.from_numpy(held_out.train)
        inputs = self._prepare(encoder, rows.frame)
        scaled = self._scaled(rows.labels, rows.labels[train_rows])
        settings = self.get_params(deep=False)
        weights = None if rows.weights is None else torch.from_numpy(rows.weights)
        mass = None if weights is None else weights[train_rows] / weights[train_rows].mean()
        start, multilabel, numbers = self._start(scaled[train_rows], mass), self.multilabel_, self.targets_ is not None
        network = make_network(settings, encoder, encoder.dim, start, multilabel=multilabel, numbers=numbers)
        by = training_settings(settings, seed)
        if epochs is not None:
            network.start_at(self.network_)
            by = replace(by, max_epochs=epochs, folder=None)
        width = embedding_width(network)
        stores = NeighborBank(width, storage=storage_of(self.index)), NeighborBank(width)
        kriging = make_kriging(settings) if self.readout != "auto" or self._may_choose() else None
        head = network.head if kriging is None else kriging
        indexes = [] if self.index is None else start_indexes(self.index, head, stores[0], self.index_tolerance)
        codes, folds = rows.group_codes(), None if held_out.folds is None else torch.from_numpy(held_out.folds)
        label_range, classes = self._label_ends(), getattr(self, "classes_", None)
        criterion = make_criterion(
            settings, label_range, multilabel=multilabel, numbers=numbers, by_row=weights is not None
        )
        targets = make_targets(criterion, scaled, train_rows, self.loss, label_range, self.target_transform_)
        parts = []
        for at in (train_rows, torch.from_numpy(held_out.validation)):
            known, of_folds = (None if values is None else values[at] for values in (codes, folds))
            mass = None if weights is None or not len(at) else (weights[at] / weights[at].mean()).float()
            parts.append(Rows(RowSubset(inputs, at), targets[at], at, known, of_folds, mass))
        added = make_added(settings, label_range, None if classes is None else len(classes), multilabel=multilabel)
        validation = parts[1] if folds is None else None
        fair = make_fair(settings, rows.attribute, numbers=classes is None, multilabel=multilabel)
        self.history_ = train(network, parts[0], validation, by, criterion, added, fair=fair)
        network.projector.double()
        network.head.double()
        self.folds_, self.metric_ = None if held_out.folds is None else int(held_out.folds.max()) + 1, "network"
        self.fold_heads_ = None
        self._fill_banks(stores, network, inputs, rows)
        if kriging is not None and not self._choose_readout(kriging) and indexes:
            drop_indexes(indexes)
            indexes = start_indexes(str(self.index), network.head, stores[0], self.index_tolerance)
        return indexes

    def _fill_banks(
        self,
        stores: tuple[NeighborBank, NeighborBank],
        network: NeighborNetwork,
        inputs: TableInputs,
        rows: LabelledRows,
    ) -> None:
        """Take a trained network; all rows stand in the first bank, those held out in the second, too."""
        self.network_ = network.eval()
        everything = np.arange(len(rows.frame))  # rows held out, too: an id keeps each from its own label
        for positions, store in zip((everything, rows.held_out.validation), stores, strict=True):
            device = self._device(len(positions))
            fill_bank(store, network, RowSubset(inputs, torch.from_numpy(positions)), rows, positions, device)
        self.bank_, self.calibration_ = (Bank.over(store) for store in stores)

    def _may_choose(self) -> bool:
        """Whether "auto" may read out by kriging, which goes by distances and is chosen by the default error.

        Not for classes: few rows give most classes probability 0, and a log-loss on the rows held out seldom shows it.
        """
        from vicinal.estimators.loss import predicts_by_default

        return (
            not hasattr(self, "classes_")
            and self.fair is None
            and self.similarity in ("l2", "squared_l2")
            and predicts_by_default(self.loss)
        )

    def _choose_readout(self, kriging: Kriging) -> bool:
        """Read predictions out by kriging, or by the trained head where that is better and ``readout`` lets choose.

        Returns:
            whether kriging was taken.
        """
        network, attention = self.network_, self.network_.head
        compared = self.readout == "auto" and len(self.bank_) <= COMPARED
        error = self._honest_error() if compared else torch.inf
        (network.head, optimism), tried = self._chosen(kriging)
        if compared and error < optimism * self._honest_error():
            network.head = attention
        bank = self.bank_
        if tried is not None and bank.folds is not None:
            others = bank.store.group_codes, bank.weights, self.targets_ is not None
            rows = FoldRows(bank.vectors, self.bank_labels(), bank.folds, *others)
            members = FoldMembers(kriging, self.members, self.fold_members().folds)
            self.fold_heads_ = readouts_by_fold(members, attention if compared else None, tried, rows)
        return network.head is not attention

    @torch.no_grad()
    def _honest(self) -> tuple[Tensor, Bank, Tensor]:
        """Predictions of the fitted head for rows held out, or out of fold: of which bank, and where they stand."""
        bank, labels, codes = self.bank_, self.bank_labels(), self.bank_.store.group_codes
        if bank.folds is not None:
            at = spread(len(bank), 4 * MOST)
            who = {"query_groups": None if codes is None else codes[at], "bank_groups": codes}
            who |= {} if bank.weights is None else {"bank_weight": bank.weights}
            queries, of_queries = bank.vectors[at].double(), bank.folds[at]
            prediction = self.fold_members().out_of_fold(queries, of_queries, bank.vectors, labels, bank.folds, **who)
            return prediction, bank, at
        rows, at = self.calibration_, spread(len(self.calibration_), MOST)
        groups = rows.groups[at.numpy()] if codes is not None and rows.groups is not None else None
        identity = bank.identity(ids=rows.ids[at.numpy()], groups=groups)
        return self.predict_embedded(rows.vectors[at].double(), identity), rows, at

    def _honest_error(self) -> float:
        """Mean error of these predictions, as training sees labels: kriging is chosen by it."""
        return _weighted_mean(*self._honest_errors())

    def _honest_errors(self) -> tuple[Tensor, Tensor]:
        """Those errors ``[b]``, and the weights ``[b]`` of their rows."""
        known, head = self._known_errors, self.network_.head
        if known is not None and head in known:
            return known[head]
        prediction, rows, at = self._honest()
        errors = self._errors(prediction, self._as_predicted(rows.labels[at]).to(prediction)).double()
        both = errors, torch.ones_like(errors) if rows.weights is None else rows.weights[at].to(errors)
        if known is not None:
            known[head] = both
        return both

    def _surely_below(self, others: Tensor) -> bool:
        """Whether errors on the rows held out are below ``others [b]`` by more than the standard error of that."""
        errors, mass = self._honest_errors()
        gains, share = others - errors, mass / mass.sum()
        gain = (gains * share).sum()
        spread_of_rows = ((gains - gain) * share).square().sum() * len(gains) / max(1, len(gains) - 1)
        return bool(gain > spread_of_rows.sqrt())

    def _errors(self, prediction: Tensor, truth: Tensor) -> Tensor:
        """Of each row ``[b]``, as training sees labels."""
        prediction = self._as_trained(prediction)
        return error_of(prediction, truth, multilabel=self.multilabel_, numbers=self.targets_ is not None)

    def _mean_error(self, prediction: Tensor, truth: Tensor, weights: Tensor | None, at: Tensor) -> float:
        """Mean of the errors of rows at positions ``at [b]``, by ``weights [n]`` of all rows if there are any."""
        errors = self._errors(prediction, truth)
        return _weighted_mean(errors, torch.ones_like(errors) if weights is None else weights[at].to(errors))

    def fold_members(self) -> FoldMembers:
        """The members of the fitted head by the folds that they leave out.

        Raises:
            ValueError: if rows were held out in place of folds.
        """
        if self.folds_ is None:
            raise ValueError(
                "validation_fraction: expected a model fitted with 0, whose members are folds, got one that held rows "
                "out, and so has no predictions out of fold"
            )
        return FoldMembers(self.network_.head, self.members, self.folds_, self.fold_heads_)

    def _held_out(
        self, encoder: TableEncoder, rows: int, validation: Any, groups: Ids | None, classes: Ids | None, seed: int
    ) -> HeldOut:
        """The rows that are held out, or the folds of the members."""
        if validation is not None or self.validation_fraction != 0:
            return hold_out(rows, validation, self.validation_fraction, groups, classes, seed)
        self.check_folds(encoder)
        return make_folds(rows, self.members, groups, classes, seed)

    def check_folds(self, encoder: TableEncoder) -> None:
        """Check that members can be folds: each has weights of its own, and nothing that all share learns from labels.

        Raises:
            ValueError: naming what is shared.
        """
        from vicinal.estimators.loss import make_added, make_criterion
        from vicinal.training.processes import processes_of

        settings = self.get_params(deep=False)
        criterion = make_criterion(settings, (0.0, 1.0))
        for shared, reason in (
            (self.metric == "kernel", "metric='kernel', which has no members"),
            (self.members < 2, "members=1"),
            (not encoder.frozen, "an encoder that is trained, as all members share it"),
            (make_added(settings, (0.0, 1.0), 2) is not None, "losses of embeddings, which all members share"),
            (
                criterion is not None and any(weight.requires_grad for weight in criterion.parameters()),
                "a loss with weights of its own, which all members share",
            ),
            (processes_of(training_settings(settings, 0)).count > 1, "several processes"),
        ):
            if shared:
                raise ValueError(f"validation_fraction: expected a share above 0 for {reason}, got 0")

    def _train_kernel(self, rows: LabelledRows, seed: int, encoder: TableEncoder) -> list[Index]:
        """The same for ``metric="kernel"``, whose likelihood is of the rows that are not held out."""
        classes = self._class_count()
        check_kernel_kinds(self.kinds_, None if classes is None else encoder)
        for part in encoder.encoders:
            if not part.frozen:  # vectors of empty sets stay as they are
                part.hold()
        held_out, train = rows.held_out, torch.from_numpy(rows.held_out.train)
        scaled = self._scaled(rows.labels, rows.labels[train])
        k = self.max_neighbors or kernel_neighbors(len(rows.frame))
        settings = self.get_params(deep=False) | {"metric": "kernel", "max_neighbors": k}
        whole = WHOLE if classes is not None and self.max_neighbors is None and self.index is None else 0
        network = make_kernel_network(settings, encoder, classes=classes is not None, whole_up_to=whole)
        width = embedding_width(network)
        stores = NeighborBank(width, storage=storage_of(self.index)), NeighborBank(width)
        indexes = [] if self.index is None else start_indexes(self.index, network.head, stores[0], self.index_tolerance)
        inputs, codes = self._prepare(encoder, rows.frame), rows.group_codes()
        known = None if codes is None else codes[train]
        weights = None if rows.weights is None else torch.from_numpy(rows.weights)[train]
        if classes is None:
            labels = self.target_transform_.forward(rows.labels[train])
            fit_kernel_network(network, RowSubset(inputs, train), labels, known, seed, weights)
        else:
            fit_class_network(network, RowSubset(inputs, train), scaled[train], known, seed, weights)
        self._fill_banks(stores, network, inputs, rows)
        self.metric_, self.folds_, self.fold_heads_ = "kernel", None, None
        self._calibrate_scores()
        unit = self._label_unit() ** 2
        some = held_out.train[spread(len(held_out.train), _CURVE).numpy()]
        self.history_ = TrainingHistory([self._error_at(some)], [self._honest_error() / unit])
        return indexes

    def _start_scale(self) -> None:
        """Forget the scale that a kernel found for its scores."""

    def _calibrate_scores(self) -> None:
        """Find the scale of scores of classes, from rows of the bank that are each predicted from the others."""

    def _left_out(self, positions: Ids) -> tuple[Tensor, Bank, Tensor]:
        """Predictions of some of these rows of the bank, each from all others: of which bank, and where they stand."""
        some = positions[spread(len(positions), MOST).numpy()]
        at, bank = torch.from_numpy(some), self.bank_
        groups = None if bank.groups is None else bank.groups[some]
        queries = bank.vectors[at].double()
        return self.predict_embedded(queries, bank.identity(bank.ids[some], groups)), bank, at

    def _error_at(self, positions: Ids) -> float:
        """Mean error, as training sees labels, of these predictions."""
        predicted, bank, at = self._left_out(positions)
        labels, unit = self.bank_labels(), self._label_unit()
        return self._mean_error(predicted / unit, labels[at] / unit, bank.weights, at)

    def _label_unit(self) -> float:
        """What labels of the bank are divided by where training sees them; those of several targets are scaled."""
        low, high = (self._label_ends() if self.targets_ is None else None) or (0.0, 1.0)
        return float(high - low)

    def _chosen(self, kriging: Kriging) -> tuple[Choice, Tried | None]:
        """The kriging head with the scale and noise that predict the rows held out, or out of fold, best.

        With folds also what it was chosen by.
        """
        if self.folds_ is not None:
            members, bank = FoldMembers(kriging, self.members, self.folds_), self.bank_
            codes = bank.store.group_codes
            numbers = self.targets_ is not None
            rows_of_bank = bank.vectors, self.bank_labels(), bank.folds, codes
            tried = tried_out_of_fold(members, *rows_of_bank, numbers=numbers, weights=bank.weights)
            return tried.choice(), tried
        rows, groups = self.calibration_, self.calibration_.groups
        identity = self.bank_.identity(
            ids=rows.ids, groups=groups if self.bank_.store.group_codes is not None else None
        )
        truth, labels = (self._as_predicted(bank.labels) for bank in (rows, self.bank_))
        banks = rows.vectors, truth, self.bank_.vectors, labels
        numbers = self.targets_ is not None
        return choose_kriging(kriging, *banks, identity, numbers=numbers, mass=rows.weights), None

    def _class_count(self) -> int | None:
        classes = getattr(self, "classes_", None)
        return None if classes is None else len(classes)

    def near_bank(self) -> NearBank | None:
        """The head over its index, or None without; a saved one in a database is opened when it is first asked for."""
        if self._near_saved is not None and self.index is not None:
            store, classes = self.bank_.store, self._class_count()
            head, tolerance = self.network_.head, self.index_tolerance
            self._near_head = load_near(self.index, self._near_saved, head, store, classes, tolerance)
            self._near_saved = None
        return self._near_head

    def attach_saved_index(self, saved: SavedNear) -> None:
        """Take the index of a saved model, which is read when it is first asked for."""
        self._near_saved = saved

    def _prepare(self, encoder: TableEncoder, frame: pd.DataFrame) -> TableInputs:
        """Prepared rows, those of frozen networks run once (and kept in ``cache_dir`` if there is one)."""
        inputs = encoder.prepare(frame, None if self.root is None else Path(self.root))
        store = None if self.cache_dir is None else EmbeddingCache(self.cache_dir)
        return encoder.cache(inputs, store=store, device=self._device(len(frame)))

    def _device(self, rows: int) -> torch.device:
        """Where encoders run for so many rows: few are done before weights have come to a GPU."""
        return encoding_device(self.accelerator if rows >= _MANY else "cpu")

    @property
    def table_encoder(self) -> TableEncoder:
        """The encoder of the table's columns."""
        encoder = self.network_.encoder
        if not isinstance(encoder, TableEncoder):
            raise TypeError(f"encoder: expected a TableEncoder, got {type(encoder).__name__}")
        return encoder

    def _embed(self, x: Any, dtype: torch.dtype = torch.float64) -> tuple[pd.DataFrame, Tensor]:
        """The table of ``x`` and its embeddings ``[n, d]``."""
        rows = self._embedded_rows(x, dtype)
        return rows.frame, rows.vectors

    def _embedded_rows(self, x: Any, dtype: torch.dtype = torch.float64) -> EmbeddedRows:
        """The same, with how far cells lie beyond the fit."""
        check_is_fitted(self, "bank_")
        if isinstance(x, EmbeddedRows):
            return replace(x, vectors=x.vectors.to(dtype))
        frame = self.form_.read(as_frame(self, x, reset=False))
        warn_of_unseen(self.table_encoder.unseen(frame), len(frame))
        inputs = self._prepare(self.table_encoder, frame)
        vectors = embedded(self.network_, inputs, dtype, self._device(len(frame)))
        _check_finite("embeddings", vectors)
        return EmbeddedRows(frame, vectors, self.table_encoder.excess(inputs))

    @usual_settings()
    def query_rows(self, X: Any, ids: Any = None) -> EmbeddedRows:
        """Rows as predictions, intervals and explanations take them in the place of X: embedded once for all of these.

        An :class:`ExtrapolationWarning` says how many of them lie far beyond the rows of the fit, and in which columns;
        an :class:`IdentityWarning` how many equal rows of the bank, so that they are their own neighbors.

        Args:
            X: rows.
            ids: theirs; with ids no row is its own neighbor, and none is looked for.
        """
        rows = self._embedded_rows(X)
        if isinstance(X, EmbeddedRows):
            return rows
        if rows.excess:
            warn_caller(f"X: expected rows like those of the fit, but {rows.sentence()}", ExtrapolationWarning)
        if ids is None and self.network_.head.uses_bank:
            rows = replace(rows, own_rows=self.bank_.equal_rows(rows.vectors))
            if rows.own_rows:
                warn_of_identity(
                    f"ids: expected those of the rows, as {rows.own_sentence()}; give ids=, to fit as well"
                )
        return rows

    @usual_settings()
    def embed(self, X: Any) -> np.ndarray[Any, Any]:
        """Embeddings of the rows ``[n, d]``, float64."""
        return self._embed(X)[1].numpy()

    def identity_of(self, rows: int, ids: Any, groups: Any) -> dict[str, Any]:
        """Ids and groups of queries ``[n]``, checked: groups only of a model that was fitted with groups."""
        if groups is not None and self.bank_.store.group_codes is None:
            raise ValueError("groups: expected none, as the model was fitted without groups, got some")
        return {
            "ids": None if ids is None else canonical_ids("ids", ids, rows),
            "groups": None if groups is None else canonical_ids("groups", groups, rows),
        }

    def _prediction_identity(self, rows: int, ids: Any, groups: Any) -> dict[str, Any]:
        """The same for a prediction, with a warning of missing groups."""
        query_identity = self.identity_of(rows, ids, groups)
        if groups is None and self.bank_.store.group_codes is not None and self.network_.head.uses_bank:
            warn_of_identity(
                "groups: expected those of the rows, as the model was fitted with groups, got none, so a row may be "
                "predicted from its own group; give groups=, with new names for rows of new groups"
            )
        return query_identity

    def _answer(self, queries: Tensor, query_identity: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Predictions ``[b]`` or ``[b, K]``, and ``[b]`` how far each may be from that over the whole bank."""
        near = self.near_bank()
        if near is not None:
            approximation = near.predict(queries, **query_identity)
            prediction, error = approximation.prediction, approximation.error
        else:
            prediction = self.predict_embedded(queries, self.bank_.identity(**query_identity))
            error = torch.zeros(len(queries), dtype=torch.float64)
        _check_finite("predictions", prediction)
        return prediction, error

    def predict_embedded(self, queries: Tensor, identity: Mapping[str, Tensor | None]) -> Tensor:
        """The head's prediction ``[b]`` or ``[b, K]`` in the bank's own label units."""
        head = self.network_.head
        if isinstance(head, Kriging):
            blocks, labels = self.query_blocks(queries, identity, policy().batch_queries), self.bank_labels()
            return torch.cat([local_weights(head, self.bank_, *block).mean(labels) for block in blocks])
        return self.network_.predict(queries, self.bank_.vectors, self.bank_labels(), **identity)

    def bank_labels(self) -> Tensor:
        """Labels of the bank as the head takes them: numbers ``[N]``, or classes one-hot ``[N, K]``."""
        return self._as_predicted(self.bank_.labels)

    def limited_transform(self) -> TargetTransform:
        """The transform of the labels, whose predictions keep near the labels of the bank as they are now."""
        return self.target_transform_

    def in_label_units(self, prediction: Tensor) -> Tensor:
        """Predictions of the head in the units of the labels; for classes probabilities."""
        return prediction

    def _as_trained(self, prediction: Tensor) -> Tensor:
        """Predictions of the head as errors are measured while a model is fitted: numbers on their scale."""
        return prediction

    def on_label_scale(self, prediction: Tensor) -> Tensor:
        """Predictions of the head on the scale of the transform, on which intervals are made."""
        return prediction

    def _as_predicted(self, labels: Tensor) -> Tensor:
        """Labels as the head takes them."""
        return labels

    def fitted_similarity(self) -> torch.nn.Module:
        """The similarity of the fitted head; for one without, that of the parameter.

        A kriging readout goes by distances: squared ones where the parameter says so.
        """
        head = self.network_.head
        if isinstance(head, Kriging):
            return resolve_similarity("squared_l2" if self.similarity == "squared_l2" else "l2")
        return resolve_similarity(getattr(head, "similarity", self.similarity))

    @property
    def readout_(self) -> str:
        """How predictions are read out: "attention", "kriging" or "signed_kriging", whichever was fitted."""
        head = self.network_.head
        if not isinstance(head, Kriging):
            return "attention"
        return "kriging" if head.convex else "signed_kriging"

    def check_neighbor_head(self, name: str) -> None:
        """Raise ValueError, which begins with ``name``, if the head predicts without neighbors."""
        if not self.network_.head.uses_bank:
            raise ValueError(
                f"{name}: expected head='nona', got head={short(self.head)}, which has no neighbors to show"
            )

    def bank_weights(self, queries: Tensor, identity: Mapping[str, Tensor | None]) -> Tensor:
        """Weights ``[b, N]`` of the bank's rows for embedded queries ``[b, d]``."""
        head = self.network_.head
        if isinstance(head, Kriging) and head.by_one_inverse(len(self.bank_)):
            return local_weights(head, self.bank_, queries, identity).weights
        with torch.no_grad():
            weights: Tensor = head.weights(queries, self.bank_.vectors, **identity)  # type: ignore[operator]
        return weights

    def query_blocks(
        self, queries: Tensor, identity: Mapping[str, Tensor | None], step: int | None = None
    ) -> Iterator[tuple[Tensor, dict[str, Tensor | None]]]:
        """Queries with their share of ``identity``, ``step`` at a time; None: so many that their weights fit."""
        step = query_rows(SCORES, len(self.bank_)) if step is None else step
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            part_identity = {n: v if v is None or n.startswith("bank") else v[part] for n, v in identity.items()}
            yield queries[part], part_identity


def _weighted_mean(errors: Tensor, mass: Tensor) -> float:
    """Of errors ``[b]`` by weights ``[b]``."""
    return float((errors * mass).sum() / mass.sum())


def _check_finite(what: str, values: Tensor) -> None:
    """Raise ValueError if some of ``values [n, ...]`` are not finite, by weights or numbers in X that are too large."""
    bad = ~values.isfinite().reshape(len(values), -1).all(dim=1)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(f"X: expected finite {what} by this model, got NaN or infinity for the row at {row}")
