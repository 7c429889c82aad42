"""What the neighbor estimators share: parameters, fitting, and the head on embedded queries."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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

from vicinal.core import ExtrapolationWarning, listed, short
from vicinal.core.checks import CellWarning, warn_caller
from vicinal.core.identity import canonical_ids, warn_of_identity
from vicinal.core.seeding import seeded, usual_settings
from vicinal.data import LeakWarning, TableForm, leaking_columns
from vicinal.encoders import EmbeddingCache, Kind, TableEncoder, build_table_encoder
from vicinal.encoders.table import TableInputs
from vicinal.estimators.bank import embedded
from vicinal.estimators.encoder_choice import EncoderChoice, choose_encoders
from vicinal.estimators.fitted import BankPart, FittedModel, Part, Unfitted, check_finite
from vicinal.estimators.fitting import FitJob, device_of, fit_on_scale, prepared, with_index
from vicinal.estimators.inputs import (
    Draw,
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
from vicinal.estimators.label_codec import LabelCodec, NumberCodec
from vicinal.estimators.labels import warn_of_order
from vicinal.estimators.network import check_settings, training_settings
from vicinal.estimators.plan import TuningPlan
from vicinal.estimators.presets import settings_of
from vicinal.estimators.target_transform import TargetTransform
from vicinal.heads.kinds import weighs_locally
from vicinal.settings import NeighborSettings
from vicinal.similarity.base import resolve_similarity
from vicinal.training import NeighborNetwork
from vicinal.training.history import TrainingHistory
from vicinal.training.rows import spread

LONE_GROUPS = (
    "groups: expected some rows to share one, got another for every row, so nothing is kept together; "
    "give what rows have in common (a patient, a house), or leave groups out"
)
"""What is said of groups such as a copy of the ids."""


_COMPARED = 256
"""Rows that are looked for in the bank of a metric of folds, at most."""

_FEWEST_LISTS = 3
"""Lists that a loss of lists needs: two that learn from each other, and one held out."""

OF_COMMANDS = frozenset(
    {
        "add_embedded",
        "apply_change",
        "by_task",
        "check_folds",
        "check_neighbor_head",
        "check_trains_on",
        "embedded_rows",
        "fitted_similarity",
        "get_metadata_routing",
        "given_weights",
        "held_out_error",
        "honest_error",
        "identity_of",
        "named_encoders",
        "query_rows",
        "reach",
        "shift_of",
        "start_",
        "trained_by",
        "weighted_rows",
    }
)
"""Methods that commands and folders call, and nobody else: a list of what a model can do is shorter without them."""


@contextmanager
def unchanged_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Inside, an estimator is fitted; if that ends with an error, the fit before it is there as it was."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        estimator.__dict__ = before
        raise


class NeighborEstimator(BaseEstimator, NeighborSettings):  # type: ignore[misc]  # scikit-learn has no types
    """Base of :class:`NeighborRegressor` and :class:`NeighborClassifier`; see there for the parameters."""

    columns: Mapping[str, Kind] | None
    form: TableForm | None
    fitted_: FittedModel = Unfitted()  # type: ignore[assignment]  # until a fit sets it
    network_ = Part[NeighborNetwork]("network")
    bank_ = BankPart("bank")
    calibration_ = BankPart("held_out")
    history_ = Part[TrainingHistory]("history")
    folds_ = Part[int | None]("folds")
    fold_heads_ = Part[Sequence[torch.nn.Module] | None]("fold_heads")
    metric_ = Part[str]("metric")
    readout_ = Part[str]("readout")
    weight_unit_ = Part[float]("weight_unit")
    classes_ = Part[Ids]("classes", of_codec=True)
    multilabel_ = Part[bool]("multilabel", of_codec=True)
    targets_ = Part[Sequence[str] | None]("targets", of_codec=True)
    target_transform_ = Part[TargetTransform]("transform", of_codec=True)
    kinds_: dict[str, Kind]
    notes_: dict[str, Any]
    encoder_choices_: Sequence[EncoderChoice] = ()
    plan_: TuningPlan | None = None
    reach: float = math.inf  # the error that makes training worth it, where there is a model already
    form_: TableForm = TableForm()
    changes_: Changes = Changes()

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn should know: X may be sparse; it is made dense."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __dir__(self) -> list[str]:
        """What a user calls, and what a fit has left; parameters are listed by ``get_params()``."""
        fitted, shown = hasattr(self, "fitted_"), {"set_params"}
        for name in {name for one in (*type(self).__mro__, self) for name in vars(one)}:
            computed = isinstance(getattr(type(self), name, None), property)  # a look at it might take seconds
            if not name.startswith(("_", "set_")) and (fitted if computed else hasattr(self, name)):
                shown.add(name)
        return sorted(shown - OF_COMMANDS - set(self.get_params(deep=False)))

    # What the tasks define.

    def _codec_of(self, y: Any, rows: int) -> tuple[LabelCodec, Ids]:
        """The codec of the labels of a fit, not fitted yet, and these as a bank keeps them."""
        raise TypeError(f"estimator: expected NeighborRegressor or NeighborClassifier, got {type(self).__name__}")

    # Fitting.

    def _fit(
        self, x: Any, y: Any, ids: Any = None, groups: Any = None, validation: Any = None, weights: Ids | None = None
    ) -> Self:
        self._check_settings()
        x = as_table("X", x)
        warn_of_order(x, y)
        frame = as_frame(self, x, reset=True)
        self.form_ = form_of(frame, x, self.form, self.columns)
        frame = self.form_.read(frame)
        codec, labels = self._codec_of(y, len(frame))
        check_rows(len(frame))
        own_ids = canonical_ids("ids", range(len(frame)) if ids is None else ids, len(frame), distinct=True)
        own_groups = None if groups is None else canonical_ids("groups", groups, len(frame))
        number = len(set([] if own_groups is None else own_groups.tolist()))
        if number == len(frame):
            warn_of_identity(LONE_GROUPS)
        unit = 1.0 if weights is None else float(weights.mean())
        relative = None if weights is None or (weights == weights[0]).all() else weights / unit
        self._check_loss(codec, number, weighted=relative is not None)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        numbers, targets = codec.kind == "numbers", list(labels.reshape(len(labels), -1).T)
        targets = targets if numbers else [np.unique(labels, axis=0, return_inverse=True)[1].reshape(-1)]
        self.kinds_ = kinds_of(frame, x, self.columns)
        if isinstance(x, pd.DataFrame):
            for each in targets:
                for leak in leaking_columns(frame, self.kinds_, each, classes=not numbers, groups=own_groups):
                    warn_caller(leak.python, LeakWarning)
        with seeded(seed):
            cache = EmbeddingCache(self.cache_dir)
            draw = Draw(len(frame), seed, own_groups, None if numbers else targets[0], validation)
            self.kinds_ = self._kinds_of_training(frame, draw)
            self._choose_encoders(frame, labels, draw, cache)
            encoder = build_table_encoder(
                self.kinds_, encoders=self.named_encoders(), tune=settings_of(self)["tune"], cache=cache
            )
            held_out = self._held_out(encoder, draw)
            values = torch.from_numpy(labels.astype(np.float64))
            attribute = None if self.fair is None else fair_groups(x, self.fair)
            rows = LabelledRows(frame, values, own_ids, own_groups, held_out, relative, attribute)
            self.changes_ = Changes()
            self.fitted_ = self._train(rows, codec, seed, encoder).with_facts(weight_unit=unit)
        if isinstance(name := getattr(y, "name", None), str) and name:
            self.notes_ = getattr(self, "notes_", {}) | {"target": name}
        return self

    def _kinds_of_training(self, frame: pd.DataFrame, draw: Draw) -> dict[str, Kind]:
        """The kinds of the columns that have a cell in the rows to train on; others are named in a warning."""
        if draw.validation is None and self.validation_fraction == 0:
            return self.kinds_
        train = frame.iloc[hold_out(draw, self.validation_fraction).train]
        empty = [name for name in self.kinds_ if not train[name].notna().any()]
        if empty and len(empty) < len(self.kinds_):
            warn_caller(f"X: left out as it is missing in all rows to train on: {listed(empty, 80)}", CellWarning)
            return {name: kind for name, kind in self.kinds_.items() if name not in empty}
        return self.kinds_

    def _check_settings(self) -> None:
        """Check parameters, before anything is done."""
        check_settings(settings_of(self), classes=isinstance(self, ClassifierMixin))

    def _check_loss(self, codec: LabelCodec, lists: int, *, weighted: bool) -> None:
        """Check that the loss is there, and takes such labels, so many lists, which are groups, and weights of rows."""
        # the losses take a while to import; only training needs them
        from vicinal.estimators.loss import adds_losses, check_loss, is_of_lists, make_criterion

        settings = settings_of(self)
        loss = settings["loss"]
        check_loss(loss, codec.kind, settings["head"], multilabel=codec.multilabel)
        if is_of_lists(loss) and lists < _FEWEST_LISTS:
            raise ValueError(
                f"queries: expected at least {_FEWEST_LISTS} for {short(loss)}, which orders the rows of each, "
                f"got {lists or 'none'}; say fit(X, y, queries=...), or --query COLUMN"
            )
        if weighted:
            make_criterion(settings, codec, by_row=True)
            if adds_losses(loss):
                raise ValueError(
                    f"loss: expected an error of predictions for rows of different weights, got {short(loss)}, which "
                    "compares embeddings"
                )

    def _choose_encoders(self, frame: pd.DataFrame, labels: Ids, draw: Draw, cache: EmbeddingCache) -> None:
        """Choose encoders that were not named, by the rows that are trained on; where members are folds none is."""
        self.encoder_choices_ = []
        if draw.validation is None and self.validation_fraction == 0:
            return
        train = hold_out(draw, self.validation_fraction).train
        self.encoder_choices_ = choose_encoders(
            frame.iloc[train],
            self.kinds_,
            labels[train],
            self.encoders,
            cache,
            classes=draw.by_class and labels.ndim == 1,
            groups=draw.clusters[train] if draw.grouped else None,
            root=None if self.root is None else Path(self.root),
            seed=draw.seed,
        )

    def named_encoders(self) -> dict[str, str]:
        """Encoders by column or kind: those of the parameter, and those that the fit chose."""
        return {**(self.encoders or {}), **{choice.column: choice.encoder for choice in self.encoder_choices_}}

    def _train(self, rows: LabelledRows, codec: LabelCodec, seed: int, encoder: TableEncoder) -> FittedModel:
        """Fit the metric that is asked for, or both, and keep what predicts the rows held out best."""
        settings = settings_of(self)
        model = fit_on_scale(FitJob(rows, codec, encoder, settings, seed, self.reach))
        return with_index(model.with_facts(few=None), settings)

    def _held_out(self, encoder: TableEncoder, draw: Draw) -> HeldOut:
        """The rows that are held out, or the folds of the members."""
        if draw.validation is not None or self.validation_fraction != 0:
            return hold_out(draw, self.validation_fraction)
        self.check_folds(encoder)
        return make_folds(draw, settings_of(self)["members"])

    def check_folds(self, encoder: TableEncoder) -> None:
        """Check that members can be folds: each has weights of its own, and nothing that all share learns from labels.

        Raises:
            ValueError: naming what is shared.
        """
        from vicinal.estimators.loss import adds_losses, is_of_lists, make_criterion
        from vicinal.training.processes import processes_of

        settings = settings_of(self)
        criterion = make_criterion(settings, NumberCodec())
        for shared, reason in (
            (settings["metric"] in ("kernel", "trees"), f"metric={settings['metric']!r}, which has no members"),
            (settings["members"] < 2, "members=1"),
            (is_of_lists(settings["loss"]), "a loss of lists"),
            (not encoder.frozen, "an encoder that is trained, as all members share it"),
            (adds_losses(settings["loss"]), "losses of embeddings, which all members share"),
            (
                criterion is not None and any(weight.requires_grad for weight in criterion.parameters()),
                "a loss with weights of its own, which all members share",
            ),
            (processes_of(training_settings(settings, 0)).count > 1, "several processes"),
        ):
            if shared:
                raise ValueError(f"validation_fraction: expected a share above 0 for {reason}, got 0")

    def _prepare(self, encoder: TableEncoder, frame: pd.DataFrame, gone: float = math.inf) -> TableInputs:
        """Prepared rows, those of frozen networks run once; ``gone`` as :func:`prepared` has it."""
        reader = getattr(self.network_.projector, "reader", None) if hasattr(self, "fitted_") else None
        return prepared(settings_of(self), encoder, frame, reader, gone=gone)

    @property
    def table_encoder(self) -> TableEncoder:
        """The encoder of the table's columns."""
        encoder = self.network_.encoder
        if not isinstance(encoder, TableEncoder):
            raise TypeError(f"encoder: expected a TableEncoder, got {type(encoder).__name__}")
        return encoder

    def _embedded(
        self, x: Any, ids: Any = None, groups: Any = None, dtype: torch.dtype = torch.float64, gone: float = math.inf
    ) -> EmbeddedRows:
        """Rows, embedded, and how far cells lie beyond the fit; rows that are known by the fold that left them out."""
        check_is_fitted(self, "bank_")
        if isinstance(x, EmbeddedRows):
            return replace(x, vectors=x.vectors.to(dtype))
        frame = self.form_.read(as_frame(self, x, reset=False))
        warn_of_unseen(self.table_encoder.unseen(frame), len(frame))
        inputs = self._prepare(self.table_encoder, frame, gone)
        device, folds = device_of(settings_of(self), len(frame)), self._folds_of(len(frame), ids, groups)
        vectors = embedded(self.network_, inputs, dtype, device, folds)
        check_finite("embeddings", vectors)
        return EmbeddedRows(frame, vectors, self.table_encoder.excess(inputs))

    def _folds_of(self, rows: int, ids: Any, groups: Any) -> Tensor | None:
        """The folds ``[n]`` that left out rows of the bank, or rows of their groups; -1 of others; None: no folds."""
        bank, folds = self.bank_, self.bank_.folds
        if not self.network_.cross_fitted or folds is None:
            return None
        who, known = self.identity_of(rows, ids, groups), torch.full((rows,), -1)
        codes, keys = bank.codes_of(who["groups"]), bank.keys_of(who["ids"])
        if codes is not None and bank.store.group_codes is not None:
            of_groups = {code: fold for code, fold in zip(bank.store.group_codes.tolist(), folds.tolist(), strict=True)}
            known = torch.tensor([of_groups.get(code, -1) for code in codes.tolist()])
        return known if keys is None else torch.where(keys >= 0, folds[keys.clamp(min=0)], known)

    @usual_settings()
    def query_rows(self, X: Any, ids: Any = None, groups: Any = None, *, look: bool = True) -> EmbeddedRows:
        """Rows as predictions, intervals and explanations take them in the place of X: embedded once for all of these.

        An :class:`ExtrapolationWarning` says how many of them lie far beyond the rows of the fit, and in which columns;
        an :class:`IdentityWarning` how many equal rows of the bank, so that they are their own neighbors.

        Args:
            X: rows.
            ids: theirs; with ids no row is its own neighbor, and none is looked for.
            groups: theirs.
            look: whether to look for such rows.
        """
        rows = self._embedded(X, ids, groups)
        if isinstance(X, EmbeddedRows):
            return rows
        if rows.excess:
            warn_caller(f"X: expected rows like those of the fit, but {rows.sentence()}", ExtrapolationWarning)
        if look and ids is None and self.network_.head.uses_bank:
            rows = replace(rows, own_rows=self._own_rows(rows))
            if rows.own_rows:
                warn_of_identity(
                    f"ids: expected those of the rows, as {rows.own_sentence()}; give ids=, to fit as well"
                )
        return rows

    def _own_rows(self, rows: EmbeddedRows) -> int:
        """How many rows equal rows of the bank; of a metric of folds some rows stand for all."""
        if not self.network_.cross_fitted or self.bank_.folds is None:
            return self.bank_.equal_rows(rows.vectors)
        some = rows.frame.iloc[spread(len(rows.frame), _COMPARED).numpy()]
        inputs, equal = self._prepare(self.table_encoder, some), 0
        for fold in range(int(self.bank_.folds.max()) + 1):
            equal += self.bank_.equal_rows(embedded(self.network_, inputs, folds=torch.full((len(some),), fold)))
        return round(min(equal, len(some)) * len(rows.frame) / len(some))

    @usual_settings()
    def embed(self, X: Any) -> np.ndarray[Any, Any]:
        """Embeddings of the rows ``[n, d]``, float64."""
        return self._embedded(X).vectors.numpy()

    def identity_of(self, rows: int, ids: Any = None, groups: Any = None) -> dict[str, Any]:
        """Ids and groups of queries ``[n]``, checked: groups only of a model that was fitted with groups."""
        if groups is not None and not self.bank_.grouped:
            raise ValueError("groups: expected none, as the model was fitted without groups, got some")
        each = {"ids": ids, "groups": groups}
        return {name: None if one is None else canonical_ids(name, one, rows) for name, one in each.items()}

    def _queries(self, x: Any, ids: Any = None, groups: Any = None) -> tuple[Tensor, dict[str, Any], EmbeddedRows]:
        """Of rows to predict the embeddings, ids and groups, and the rows; with a warning of missing groups."""
        rows = self.query_rows(x, ids, groups)
        query_identity = self.identity_of(len(rows.vectors), ids, groups)
        if groups is None and self.bank_.grouped and self.network_.head.uses_bank:
            warn_of_identity(
                "groups: expected those of the rows, as the model was fitted with groups, got none, so a row may be "
                "predicted from its own group; give groups=, with new names for rows of new groups"
            )
        return rows.vectors, query_identity, rows

    def fitted_similarity(self) -> torch.nn.Module:
        """The similarity of the fitted head; for one without, that of the parameter.

        A kriging readout goes by distances: squared ones where the parameter says so.
        """
        head, similarity = self.network_.head, settings_of(self).get("similarity", self.similarity)
        if weighs_locally(head):
            return resolve_similarity("squared_l2" if similarity == "squared_l2" else "l2")
        return resolve_similarity(getattr(head, "similarity", similarity))

    def check_neighbor_head(self, name: str) -> None:
        """Raise ValueError, which begins with ``name``, if the head predicts without neighbors."""
        if not self.network_.head.uses_bank:
            raise ValueError(
                f"{name}: expected head='nona', got head={short(self.head)}, which has no neighbors to show"
            )
