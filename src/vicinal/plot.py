"""Pictures of models, predictions and pairs: each takes what a user has in hand and returns a matplotlib figure.

``figure.savefig("file.svg")`` writes it; a notebook shows it. With ``ax=`` a picture is drawn into axes of yours, and
their figure is returned. matplotlib is imported by the first picture.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from vicinal.core import short
from vicinal.core.checks import check_integer
from vicinal.estimators.banked import BankedEstimator
from vicinal.estimators.calibrating import rows_that_calibrate
from vicinal.estimators.explanation import Explanation
from vicinal.estimators.inputs import EmbeddedRows
from vicinal.estimators.neighbors import NeighborClassifier, NeighborRegressor
from vicinal.estimators.pair_explanation import PairExplanation
from vicinal.evaluation.audit import coverage_curve
from vicinal.heads.kinds import member_heads
from vicinal.masks import SoftStep
from vicinal.report import figures
from vicinal.report.tables import importance_rows
from vicinal.report.text import number, one_line, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = np.ndarray[Any, Any]

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Coverages of the curve of intervals."""

__all__ = [
    "bank_map",
    "calibration",
    "importance",
    "learning_curve",
    "mask",
    "match_weights",
    "predicted_and_observed",
    "reasons",
]


def reasons(explanation: Explanation, *, columns: int = 4, ax: Any = None) -> "Figure":
    """What made a prediction: the trend by columns, then how far each comparable pulls the prediction away from it.

    Args:
        explanation: of one row, as ``model.explain(X)[0]``.
        columns: of the trend that are shown one by one.
        ax: axes to draw into.

    >>> from vicinal.estimators import Neighbor
    >>> one = Neighbor(7, 0.75, 280.0, 210.0, {}, "row 7")
    >>> figure = reasons(Explanation(260.0, 260.0, (one,), 0.25, 50.0, 9, usual=150.0))
    >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
    ['all rows alike', 'row 7', '9 other rows', 'predicted']
    """
    if not isinstance(explanation, Explanation):
        raise TypeError(f"explanation: expected one of model.explain(X), such as the first, got {short(explanation)}")
    steps = [(_with_cell(name, explanation.query), value) for name, value in explanation.steps(columns)]
    predicted, chance = explanation.prediction, explanation.probability
    name, total = "prediction", "predicted"
    if chance is not None:
        shares = explanation.plain and abs(explanation.total - chance) < 1e-6
        name = f"{'probability' if shares else 'score'} of {one_line(predicted, 24)}"
        total = f"{one_line(predicted, 24)}: {percent(chance)}"
    elif not explanation.plain:
        scale = "as a logarithm" if explanation.transform == "log" else f"on the scale {explanation.transform}"
        name, total = f"prediction {scale}", f"predicted {number(predicted)}"
    return figures.waterfall(steps, total, name, cut=True, axes=ax)


def _with_cell(step: str, query: Mapping[str, Any]) -> str:
    """A step of the trend with the cell that it is of."""
    from vicinal.report.notebook import cell_of

    column = step.removeprefix("trend: ")
    cell = cell_of(query[column]) if column != step and column in query else ""
    return f"{step} {cell}" if isinstance(cell, str) and cell else step


def match_weights(pair: PairExplanation, *, ax: Any = None) -> "Figure":
    """Why two rows match or not: the match weight of each column in bits, from the odds before any was compared.

    Args:
        pair: as ``matcher.explain(pairs)[0]``.
        ax: axes to draw into.
    """
    if not isinstance(pair, PairExplanation):
        raise TypeError(f"pair: expected one of matcher.explain(pairs), such as the first, got {short(pair)}")
    known = [(name, value) for name, value in pair.steps() if not np.isnan(value)]
    if not known:
        raise ValueError("pair: expected match weights of columns, got none")
    total = f"match: {percent(pair.probability)}"
    return figures.waterfall(known, total, "match weight in bits, log2 of the odds", axes=ax)


def importance(model: BankedEstimator, *, ax: Any = None) -> "Figure":
    """How much each column matters to the model as a whole: ``model.importance()`` as bars."""
    return figures.column_shares(importance_rows(model.importance()), ax)


def predicted_and_observed(
    model: BankedEstimator,
    X: Any = None,
    y: Any = None,
    *,
    coverage: float = 0.9,
    ids: Any = None,
    groups: Any = None,
    ax: Any = None,
) -> "Figure":
    """Predictions over the truth, with their intervals; of classes how often each is predicted for each.

    Args:
        model: fitted, of one target.
        X: rows; None: those that calibrate the model, held out or each predicted without its label.
        y: their labels.
        coverage: of the intervals; none are drawn where too few rows calibrate.
        ids: ids of the rows.
        groups: groups of the rows.
        ax: axes to draw into.

    Raises:
        ValueError: for rows without labels, several targets, or a model that predicts nothing.
    """
    rows, truth, known = _measured_rows(model, X, y, ids, groups)
    if isinstance(model, NeighborClassifier):
        return figures.confusion_matrix(_chances(model, rows, known), truth, _names(model), axes=ax)
    values = rows if known is None else model.predict(rows, **known)
    intervals = None
    if known is not None and isinstance(model, NeighborRegressor) and model.calibrates(coverage):
        intervals = model.predict_interval(rows, coverage, **known)
    return figures.predicted_vs_true(values, truth, _target(model), intervals, ax)


def calibration(
    model: BankedEstimator, X: Any = None, y: Any = None, *, ids: Any = None, groups: Any = None, ax: Any = None
) -> "Figure":
    """Whether probabilities hold: how often the predicted class is right; of numbers, how often intervals have them.

    Args:
        model: fitted, of one target.
        X: rows; None: as for :func:`predicted_and_observed`, but not of numbers, whose intervals are fitted to these.
        y: their labels.
        ids: ids of the rows.
        groups: groups of the rows.
        ax: axes to draw into.

    Raises:
        ValueError: as there, and for a model of numbers without rows.
    """
    if isinstance(model, NeighborClassifier):
        rows, truth, known = _measured_rows(model, X, y, ids, groups)
        return figures.reliability(_chances(model, rows, known), truth, _names(model), axes=ax)
    if X is None:
        raise ValueError(
            "X: expected rows with labels that the model was not fitted on, as its intervals are fitted to cover those "
            "of the fit, got None"
        )
    rows, truth, known = _measured_rows(model, X, y, ids, groups)
    levels = [level for level in LEVELS if model.calibrates(level)]
    bounds = model.predict_intervals(rows, levels, **(known or {}))
    curve = coverage_curve(truth.astype(float), bounds, parts=1)
    return figures.coverage([one["coverage"] for one in curve], [one["covered"] for one in curve], axes=ax)


def bank_map(model: BankedEstimator, *, ax: Any = None) -> "Figure":
    """The rows of the bank where they vary most, colored by label: rows that are near predict one another."""
    check_is_fitted(model, "bank_")
    labels = model.bank_.labels.numpy()
    if model.fitted_.codec.kind == "classes":
        labels = figures.most_frequent(_names(model), labels)
    elif labels.ndim == 2:
        raise _several()
    return figures.embedding_map(model.bank_.vectors.numpy(), labels, _target(model), axes=ax)


def learning_curve(model: BankedEstimator, *, ax: Any = None) -> "Figure":
    """Errors of the training of a network by epoch, with the epoch that was kept.

    Raises:
        ValueError: for a kernel or trees, which have no epochs.
    """
    check_is_fitted(model, "bank_")
    if model.metric_ != "network":
        raise ValueError(f"model: expected metric='network', which is trained in epochs, got {model.metric_!r}")
    history = model.history_
    error = "error" if not hasattr(model, "predict") else "log_loss" if hasattr(model, "classes_") else "mse"
    lines = {f"train_{error}": history.train_error, f"validation_{error}": history.validation_error}
    return figures.learning_curves(lines, ax)


def mask(model: Any, queries: Any = None, *, ax: Any = None) -> "Figure":
    """How much of each row a SoftStep mask lets through, by its nearness to the query.

    Args:
        model: a fitted model of a network read out by attention; or a head or a mask of yours.
        queries: embeddings ``[b, d]``, for a head or a mask whose parameters depend on the query.
        ax: axes to draw into.

    Raises:
        ValueError: where there is no such mask.
    """
    curves: Any = None
    if isinstance(model, BankedEstimator):
        check_is_fitted(model, "bank_")
        curves = mask_curves(model)
    elif isinstance(step := getattr(model, "mask", model), SoftStep):
        if queries is None and step.parameters_from != "global":
            raise ValueError("queries: expected embeddings [b, d], as the mask depends on the query, got None")
        some = torch.zeros(1, 1) if queries is None else torch.as_tensor(queries)
        curves = _curves_of(step, some)
    if curves is None:
        raise ValueError(
            f"model: expected a SoftStep mask, which a network read out by attention has, got {short(model)} without "
            "one; fit with metric='network', readout='attention', mask='s2'"
        )
    grid, each = curves
    return figures.mask_curves(grid, each, ax)


def mask_curves(model: BankedEstimator, queries: int = 200) -> tuple[Array, list[tuple[str, Array]]] | None:
    """Learned masks (of the first member) over held-out rows: those that reject least, median and most; or None."""
    heads = member_heads(model.network_.head)
    step = getattr(heads[0], "mask", None)
    if not isinstance(step, SoftStep):
        return None
    rows = model.calibration_ if len(model.calibration_) else model.bank_
    return _curves_of(step, rows.vectors[: check_integer("queries", queries)].double().chunk(len(heads), dim=1)[0])


@torch.no_grad()
def _curves_of(step: SoftStep, queries: torch.Tensor) -> tuple[Array, list[tuple[str, Array]]]:
    """Curves of a mask for some queries: those that reject least, median and most."""
    grid = torch.linspace(0, 1, 201, dtype=torch.float64)
    curves = step.curve(grid, queries)
    if step.parameters_from == "global":
        return grid.numpy(), [("all rows", curves[0].numpy())]
    order = curves.mean(dim=1).argsort(descending=True)
    picked = {"rejects least": order[0], "median": order[len(order) // 2], "rejects most": order[-1]}
    return grid.numpy(), [(label, curves[int(place)].numpy()) for label, place in picked.items()]


def _measured_rows(model: Any, x: Any, y: Any, ids: Any, groups: Any) -> tuple[Any, Array, dict[str, Any] | None]:
    """Rows with their labels, and who they are; or their predictions out of fold, with their labels, and None."""
    check_is_fitted(model, "bank_")
    if not hasattr(model, "predict"):
        raise ValueError("model: expected one that predicts labels, got one of a similarity")
    if getattr(model, "targets_", None) is not None:
        raise _several()
    if getattr(model, "multilabel_", False):  # before y, whose rows may differ in length
        raise ValueError("model: expected one class a row, got several; vicinal evaluate draws each class")
    if (x is None) != (y is None):
        raise ValueError(f"y: expected the labels of X, and both or neither, got {'none' if y is None else 'no X'}")
    if x is not None:
        return x, np.asarray(y), {"ids": ids, "groups": groups}
    if model.folds_ is not None:
        names, predictions = model.out_of_fold_predictions()
        return predictions, np.asarray(model.labels_of(names)), None
    bank, at, who, _ = rows_that_calibrate(model.fitted_)
    truth = np.asarray(model.fitted_.codec.written(bank.labels[at].numpy()))
    return EmbeddedRows(bank.store.rows_at(at), bank.vectors[at].double()), truth, dict(who)


def _chances(model: NeighborClassifier, rows: Any, known: dict[str, Any] | None) -> Array:
    """Probabilities of one class a row ``[n, K]``."""
    return rows if known is None else model.predict_proba(rows, **known)


def _names(model: BankedEstimator) -> list[str]:
    return [str(name) for name in model.classes_]


def _target(model: BankedEstimator) -> str:
    return str(getattr(model, "notes_", {}).get("target") or "target")


def _several() -> ValueError:
    return ValueError("model: expected one target, got several; take model.of_target(name)")
