"""What members that are folds say of the rows that each leaves out: honest predictions, intervals and errors."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.calibration import cross_conformal_interval, range_scores
from vicinal.estimators.attention import error_size, head_range, inward, range_features
from vicinal.estimators.fitted import FittedModel
from vicinal.heads.folds import FoldMembers
from vicinal.heads.kinds import weighs_locally
from vicinal.training.rows import spread

MOST = 4096
"""Rows that calibrate intervals, at most, spread evenly over the bank; more would hardly move their ends."""


def fold_positions(model: FittedModel, most: int | None = None) -> Tensor:
    """Positions ``[n]`` of the bank's rows that a fold leaves out, ``most`` of them spread evenly; None: all."""
    folds = model.bank.folds
    if folds is None:
        return torch.zeros(0, dtype=torch.int64)
    positions = (folds >= 0).nonzero()[:, 0]
    return positions if most is None else positions[spread(len(positions), most)]


@torch.no_grad()
def out_of_fold(model: FittedModel, positions: Tensor) -> Tensor:
    """Predictions ``[n]`` or ``[n, K]`` of bank rows, in the head's units, by the members that leave out their folds.

    Args:
        model: whose members are folds.
        positions: ``[n]``, of rows that a fold leaves out.
    """
    bank, members = model.bank, model.fold_members()
    folds, vectors, labels = _folds(model), bank.vectors, model.bank_labels()
    prediction: Tensor | None = None
    for fold in sorted(set(folds[positions].tolist())):
        at = (folds[positions] == fold).nonzero()[:, 0]
        rows_of_fold = positions[at]
        blocks = model.query_blocks(vectors[rows_of_fold].double(), _identity(model, rows_of_fold))
        some = torch.cat([members.predict(fold, part, vectors, labels, folds, **known) for part, known in blocks])
        prediction = some.new_empty(len(positions), *some.shape[1:]) if prediction is None else prediction
        prediction[at] = some
    return labels[:0] if prediction is None else prediction


@torch.no_grad()
def fold_predictions(
    model: FittedModel,
    queries: Tensor,
    identity: Mapping[str, Tensor | None],
    members: FoldMembers | None = None,
) -> Tensor:
    """Predictions ``[b, F]`` or ``[b, F, K]`` of embedded queries, in the head's units, by the members of each fold.

    Args:
        model: whose members are folds.
        queries: ``[b, M * d]``.
        identity: as heads take it.
        members: with other heads than those of the model.
    """
    members = model.fold_members() if members is None else members
    vectors, labels, folds = model.bank.vectors, model.bank_labels(), _folds(model)
    blocks = []
    for part, known in model.query_blocks(queries, identity):
        each = [members.predict(fold, part, vectors, labels, folds, **known) for fold in range(members.folds)]
        blocks.append(torch.stack(each, dim=1))
    return torch.cat(blocks) if blocks else labels.new_zeros(0, members.folds, *labels.shape[1:])


def ensemble_share(model: FittedModel) -> float:
    """The squared error of all members together as a share of that of the members that never saw a row; at most 1.

    See :meth:`vicinal.estimators.NeighborRegressor.out_of_fold_error`.
    """
    positions = fold_positions(model, MOST)
    if not len(positions):
        return 1.0
    unseen = model.in_label_units(out_of_fold(model, positions)).double()
    error = (unseen - model.bank.labels[positions].double()).square()
    disagreement, members = torch.zeros_like(error), model.fold_members()
    for fold in range(members.folds):  # all members as those that leave the row out read it: one readout is told of
        at = (_folds(model)[positions] == fold).nonzero()[:, 0]
        alike = FoldMembers(members.heads[fold], members.members, members.folds)
        queries, who = model.bank.vectors[positions[at]].double(), _identity(model, positions[at])
        each = fold_predictions(model, queries, who, alike)  # [b, F] or [b, F, T]
        said = torch.stack([model.in_label_units(one).double() for one in each.unbind(dim=1)])
        disagreement[at] = said.var(dim=0, unbiased=False)
    mass = model.bank.mass[positions].reshape(-1, *[1] * (error.ndim - 1))
    total = float((error * mass).sum())
    return max(0.0, 1 - float((disagreement * mass).sum()) / total) if total > 0 else 1.0


def cross_intervals(
    model: FittedModel, queries: Tensor, identity: Mapping[str, Tensor | None], coverage: float
) -> Tensor:
    """CV+ intervals ``[b, 2]`` of embedded queries: see :func:`vicinal.calibration.cross_conformal_interval`.

    Args:
        model: a regressor whose members are folds.
        queries: ``[b, M * d]``.
        identity: as heads take it.
        coverage: between 0 and 1.

    Returns:
        on the scale of the transform.
    """
    positions, folds = fold_positions(model, MOST), _folds(model)
    codes = folds[positions]
    truth, *left_out = torch.empty(4, len(positions), dtype=torch.float64)
    ranges = []
    for fold in range(model.fold_members().folds):
        at = (codes == fold).nonzero()[:, 0]
        rows_of_fold, who = positions[at], _identity(model, positions[at])
        parts = _fold_range(model, fold, model.bank.vectors[rows_of_fold].double(), who, coverage)
        for all_rows, part in zip(left_out, parts, strict=True):
            all_rows[at] = part.to(all_rows)
        truth[at] = model.codec.transform.base.forward(model.bank.labels[rows_of_fold])
        ranges.append(_fold_range(model, fold, queries, identity, coverage))
    low, high, unit = left_out
    size = error_size(truth, low, high, unit)
    scores = range_scores(truth.numpy(), low.numpy(), high.numpy()) / (unit.numpy() * size.left_out)
    lows, highs = (torch.stack(parts, dim=1).numpy() for parts in zip(*(one[:2] for one in ranges), strict=True))
    units = np.stack([one[2].numpy() * size(range_features(*one)) for one in ranges], axis=1)  # [b, F]
    weights = None if model.bank.weights is None else model.bank.weights[positions].numpy()
    own_groups = model.bank.store.group_codes
    known = {"weights": weights, "groups": None if own_groups is None else own_groups[positions].numpy()}
    ends = cross_conformal_interval(lows, highs, scores, codes.numpy(), coverage, unit=units, **known)
    return torch.from_numpy(ends)


@torch.no_grad()
def _fold_range(
    model: FittedModel, fold: int, queries: Tensor, identity: Mapping[str, Tensor | None], coverage: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The uncalibrated range of each query ``[b]`` by the members of a fold, and in which unit its margin counts."""
    bank, members = model.bank, model.fold_members()
    rows, labels, known = members.bank(fold, bank.vectors, model.bank_labels(), _folds(model), dict(identity))
    head, parts = members.part(fold), model.query_blocks(members.columns(fold, queries), known)
    blocks = [_block_range(model, head, part, rows, labels, some, coverage) for part, some in parts]
    if not blocks:
        return (torch.zeros(0, dtype=torch.float64),) * 3
    low, high, unit = (torch.cat(ends) for ends in zip(*blocks, strict=True))
    return low, high, unit


def _block_range(
    model: FittedModel,
    head: nn.Module,
    queries: Tensor,
    bank: Tensor,
    labels: Tensor,
    identity: dict[str, Tensor | None],
    coverage: float,
) -> tuple[Tensor, Tensor, Tensor]:
    if weighs_locally(head):
        local = head.local_weights(queries, bank, **identity)
        prediction = model.on_label_scale(local.mean(labels))
        return prediction, prediction, local.variance.clamp(min=0).sqrt()
    prediction = model.on_label_scale(head(queries, bank, labels, **identity)).double()
    unit = torch.ones_like(prediction)
    if not head.uses_bank:
        return prediction, prediction, unit
    low, high = head_range(head, queries, bank, labels, coverage, identity).double().unbind(dim=1)
    if model.codec.transform.name == "link":  # which rises, so that the ends are the same labels
        low, high = model.on_label_scale(low), model.on_label_scale(high)
    return *inward(model, prediction, low, high), unit


def _folds(model: FittedModel) -> Tensor:
    folds = model.bank.folds
    if folds is None:
        raise ValueError("folds: expected a model whose members are folds, got one that holds rows out")
    return folds


def _identity(model: FittedModel, positions: Tensor) -> dict[str, Tensor | None]:
    """Who bank rows are, so that none is predicted from its own group, also of rows that were added later."""
    groups, weights = model.bank.store.group_codes, model.bank.weights
    known = {
        "query_ids": positions,
        "bank_ids": torch.arange(len(model.bank)),
        "query_groups": None if groups is None else groups[positions],
        "bank_groups": groups,
    }
    return known if weights is None else known | {"bank_weight": weights}
