"""How the rows of a fitted model change: added, relabelled, forgotten. Nothing is trained.

A bank may be large, so it changes in place, and what else follows from its rows makes another model: the codec of the
labels. So each change first checks all that may be wrong, then changes the bank, and gives the model last; who gets an
error in its place has the model that there was.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from vicinal.core import listed
from vicinal.core.identity import canonical_ids, shown
from vicinal.core.seeding import usual_settings
from vicinal.data import TableForm
from vicinal.encoders import TableEncoder
from vicinal.estimators.bank import check_known
from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.forgetting import forget_cells, rescale
from vicinal.estimators.inputs import Ids
from vicinal.estimators.label_codec import LabelCodec
from vicinal.estimators.readout import predicted_over
from vicinal.heads.kinds import adjusts
from vicinal.training.rows import spread

WEIGHTS = (1.0, 3.0, 10.0, 30.0)
"""As how many rows of the fit an added row may count."""

WEIGHED = 400
"""Added rows that the choice is made on, at most."""

_CHECKED = 8
"""Rows that are predicted after a change of the bank, at most, and as many of those that changed."""


def with_rows(
    model: FittedModel,
    frame: pd.DataFrame,
    vectors: Tensor,
    y: Any,
    ids: Any = None,
    groups: Any = None,
    weights: Ids | None = None,
    *,
    new_classes: bool,
) -> tuple[FittedModel, Ids]:
    """The model with more rows, whose embeddings are known, and their ids; see :meth:`NeighborRegressor.add`."""
    bank, codec = model.bank, model.codec.growing(y, len(frame), uses_bank=model.uses_bank, new_classes=new_classes)
    # weights of 1 are as those of all others, unless these have some
    even = weights is None or bool((weights / model.weight_unit == 1).all())
    mass = None if weights is None or even else weights / model.weight_unit
    labels = torch.from_numpy(codec.take(y, len(frame)).astype(np.float64))
    names = canonical_ids("ids", next_ids(model, len(frame)) if ids is None else ids, len(frame), distinct=True)
    new_groups = None if groups is None else canonical_ids("groups", groups, len(frame))
    held_out = names[model.held_out.has(names) & ~bank.has(names)]  # of a model saved before 0.2
    if len(held_out):
        raise ValueError(
            f"ids: expected ids of new rows, got {shown(held_out)}, held out for intervals; "
            "forget it first, or give it another id"
        )
    keys = bank.add(names, vectors, labels, frame, new_groups, mass)
    if model.near is not None:
        try:
            model.near.add(keys, vectors)
        except BaseException:
            bank.remove(names)
            raise
    return replace(model, codec=codec), names


def removed(model: FittedModel, ids: Ids) -> None:
    """Take rows out of bank, index and the rows held out."""
    keys = model.bank.remove(ids)
    model.held_out.remove(ids)
    if model.near is not None:
        model.near.remove(keys)


def with_labels(model: FittedModel, ids: Ids, y: Any) -> FittedModel:
    """The model whose rows ``ids``, each once, have other labels; see :meth:`NeighborRegressor.relabel`."""
    check_known(model.bank, model.held_out, ids)
    codec = model.codec.growing(y, len(ids), uses_bank=model.uses_bank)
    labels = torch.from_numpy(np.array(codec.take(y, len(ids)), dtype=np.float64))
    for bank in (model.bank, model.held_out):
        there = bank.has(ids)
        bank.relabel(ids[there], labels[torch.from_numpy(there)])
    return replace(model, codec=codec)


def without_rows(
    model: FittedModel, encoder: TableEncoder, gone: Ids, former: Sequence[Any], form: TableForm
) -> FittedModel:
    """The model without rows of these ids, what it holds of them and their ``former`` labels; see ``forgetting``."""
    banks = model.bank, model.held_out
    tables = [bank for bank in banks if bank.store.columns is not None]
    cells = [bank.store.rows_at(bank.store.positions(gone[bank.has(gone)])) for bank in tables]
    labels = [*labels_of(model, gone), *former]
    removed(model, gone)
    forget_cells(encoder, cells, [bank.rows for bank in tables if len(bank)], form)
    before, left = model.codec, [bank.labels for bank in banks if len(bank)]
    # an end of the labels, or a class, that only these rows had would tell of them
    codec, places = before.without(labels, left), before.kept_places(left)
    if places is not None:
        for bank in filter(len, banks):
            bank.relabel(bank.ids, torch.from_numpy(np.searchsorted(places, bank.labels.numpy())))
    head = model.network.head
    # such a head gives shares of the range of the labels, which a forgotten row may have been an end of
    if codec.kind == "numbers" and ((adjusts(head) and codec.targets is not None) or not head.uses_bank):
        old, new = (_label_ends(one) for one in (before, codec))
        width = new[1] - new[0]
        rescale(head, (old[1] - old[0]) / width, (old[0] - new[0]) / width)
    return replace(model, codec=codec)


def _label_ends(codec: LabelCodec) -> tuple[Tensor, Tensor]:
    """What a head without a bank has been trained to call 0 and 1, ``[T]`` each."""
    low, high = (torch.as_tensor(end).double().reshape(-1) for end in codec.label_ends() or (0.0, 1.0))
    return low, high


def labels_of(model: FittedModel, ids: Iterable[Any]) -> list[Any]:
    """The labels of rows, as users give them: see :meth:`NeighborRegressor.labels_of`."""
    names = canonical_ids("ids", ids)
    check_known(model.bank, model.held_out, names)
    here, there = (bank.store.positions(names) for bank in (model.bank, model.held_out))
    labels = model.bank.labels[here]
    if (here < 0).any():
        labels[here < 0] = model.held_out.labels[there[here < 0]]
    values = model.codec.written(labels.numpy()) if len(names) else []
    return list(values.tolist()) if isinstance(values, np.ndarray) else list(values)


def next_ids(model: FittedModel, rows: int) -> Ids:
    """The ids ``[n]`` that new rows get which come with none: whole numbers above the highest in use.

    Raises:
        ValueError: if the model was fitted with ids that are texts.
    """
    used = np.concatenate([model.bank.ids, model.held_out.ids])
    if used.dtype != np.int64:
        raise ValueError("ids: expected one for each row, as the model was fitted with ids, got none")
    return np.arange(int(used.max()) + 1, int(used.max()) + 1 + rows)


@usual_settings()
@torch.no_grad()
def check_predicts(model: FittedModel, ids: Any) -> None:
    """Check that rows can still be predicted, now that the rows ``ids`` were added or relabelled.

    A number far from all others can bring distances, or sums of labels, beyond what floats hold; every later
    prediction would fail then, and nobody would know by what.

    Raises:
        ValueError: if those rows, or some that were there before, cannot be predicted.
    """
    if not model.codec.predicts or not model.uses_bank:
        return
    bank, names = model.bank, canonical_ids("ids", ids)
    changed = bank.store.positions(names)
    changed = changed[changed >= 0]
    positions = torch.cat([changed[spread(len(changed), _CHECKED)], spread(len(bank), _CHECKED)])
    try:
        said = model.answer(bank.vectors[positions].double(), {"ids": None, "groups": None})
        fine = bool(model.in_label_units(said).isfinite().all())
    except (ValueError, RuntimeError, ArithmeticError):  # torch and numpy differ in what they say of it
        fine = False
    if not fine:
        raise ValueError(
            f"ids: expected rows with which others can be predicted, got {listed(names.tolist())}, with which "
            "predictions are not finite; correct their numbers or labels, or leave them out"
        )


@torch.no_grad()
def weights_for(model: FittedModel, vectors: Tensor, y: Any, groups: Any = None) -> Ids:
    """How much rows should count that are to be added ``[n]``, all the same, in the units of the fit.

    As 1, 3, 10 or 30 rows of the fit: with which of these the new rows are predicted best from the bank and one
    another, each without itself and its group, by at most 400 of them. It is 1 unless another is better by more than a
    standard error of the difference.
    """
    bank, count = model.bank, len(vectors)
    values = torch.from_numpy(np.array(model.codec.take(y, count), dtype=np.float64))
    labels, at = model.codec.as_predicted(values), spread(count, WEIGHED)
    keys = torch.arange(len(bank) + count)
    identity: dict[str, Any] = {"query_ids": keys[len(bank) + at], "bank_ids": keys}
    if groups is not None and bank.grouped:
        names = [*map(str, bank.clusters.tolist()), *map(str, canonical_ids("groups", groups, count).tolist())]
        codes = torch.from_numpy(np.unique(names, return_inverse=True)[1])
        identity |= {"query_groups": codes[len(bank) + at], "bank_groups": codes}
    rows = vectors[at].double(), torch.cat([bank.vectors, vectors]), torch.cat([model.bank_labels(), labels])
    errors = []
    for weight in WEIGHTS:
        identity["bank_weight"] = torch.cat([bank.mass, torch.full((count,), weight).double()])
        said = predicted_over(model.network, *rows, identity)
        errors.append(model.codec.errors(said, labels[at]).double())
    best = int(torch.stack(errors).mean(dim=1).argmin())
    gain = errors[0] - errors[best]
    sure = len(gain) > 1 and float(gain.mean()) > float(gain.std()) / len(gain) ** 0.5
    return np.full(count, (WEIGHTS[best] if sure else 1.0) * model.weight_unit)
