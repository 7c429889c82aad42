"""From an estimator's ``loss`` to what it is trained by; read when it is fitted, as a saved model predicts without."""

import copy
from typing import Any

import torch
from torch import nn

from vicinal.core import entries, short
from vicinal.estimators.label_codec import LabelCodec
from vicinal.losses import CRPS, ClassLoss, EmbeddingLoss, LossFromPML, ProxyLoss, RegularizerLoss, parse
from vicinal.losses.spec import LossText, Term, check_label_kind, check_term, read_loss
from vicinal.ranks import list_places
from vicinal.training import Teacher
from vicinal.training.added import AddedLosses
from vicinal.training.error import MeanError, class_scores
from vicinal.training.fairness import FairTerm


class InLabelUnits(nn.Module):
    """A loss of labels in their own units, for predictions and labels that training has scaled to [0, 1]."""

    def __init__(self, loss: nn.Module, low: float, high: float) -> None:
        super().__init__()
        self.loss, self.low, self.high = loss, low, high

    def forward(self, prediction: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """``[]`` from ``[b]`` and ``[b]``."""
        width = self.high - self.low
        return self.loss(self.low + width * prediction, self.low + width * labels)


class OfLists(InLabelUnits):
    """A loss of lists, for rows of several queries, whose labels training has scaled to [0, 1]."""

    of_lists = True

    def forward(self, prediction: torch.Tensor, labels: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """``[]`` from ``[b]``, ``[b]`` and the query of each row ``[b]``."""
        places, valid = list_places(queries)
        scores, grades = (self.low + (self.high - self.low) * one[places] for one in (prediction, labels))
        apart = grades.masked_fill(~valid, -torch.inf).amax(1) > grades.masked_fill(~valid, torch.inf).amin(1)
        return self.loss(scores, grades, valid=valid & apart[:, None])  # one grade has no order


class OfProbabilities(nn.Module):
    """A loss of class scores, for predicted probabilities: their logarithms are the scores, or their log odds."""

    def __init__(self, loss: ClassLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, prediction: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """``[]`` from probabilities ``[b, K]`` and one-hot labels ``[b, K]``."""
        return self.loss(class_scores(prediction, odds="several-labels" in self.loss.facts), labels)


def make_criterion(settings: dict[str, Any], codec: LabelCodec, *, by_row: bool = False) -> nn.Module | None:
    """What ``loss`` names: None for the default, text as ``vicinal.losses.parse`` reads it, or a module.

    Args:
        settings: the estimator's parameters.
        codec: of the labels: a loss sees numbers on the scale of its transform, of classes probabilities and one-hot
            labels ``[b, K]``.
        by_row: give the loss of each row, of which the mean is taken by weights.
    """
    loss = settings["loss"]
    if isinstance(loss, str):
        main = read_loss(loss).main
        loss = None if main is None else parse(main)
    if loss is None or _is_of_embeddings(loss):
        several, numbers = codec.multilabel, codec.targets is not None
        default = MeanError(multilabel=several, numbers=numbers, reduction="none" if by_row else "mean")
        return default if several or numbers or by_row else None
    if not isinstance(loss, nn.Module):
        raise TypeError(f"loss: expected None, text such as 'matching:sigmoid', or a module, got {short(loss)}")
    if getattr(loss, "of_lists", False):
        if by_row:
            raise ValueError(f"loss: expected one of single rows for rows of different weights, got {short(loss)}")
        return OfLists(copy.deepcopy(loss), *(codec.label_ends() or (0.0, 1.0)))
    loss = _by_row(loss) if by_row else loss
    if isinstance(loss, CRPS):
        return copy.deepcopy(loss)
    if isinstance(loss, ClassLoss):
        return OfProbabilities(copy.deepcopy(loss))
    ends = codec.label_ends()
    return loss if ends is None else InLabelUnits(copy.deepcopy(loss), *ends)


def check_on_labels(name: Any, loss: nn.Module | None) -> None:
    """Raise ValueError if a loss is infinite, or flat, all over the labels, so that nothing can be learned by it."""
    if not isinstance(loss, InLabelUnits) or isinstance(loss, OfLists):
        return
    loss = copy.deepcopy(loss)  # a module of the user's may count its calls
    low, high = (torch.as_tensor(end, dtype=torch.float32) for end in (loss.low, loss.high))
    at = torch.cartesian_prod(*[torch.tensor([0.001, 0.5, 0.999])] * 2)  # just inside: a loss may end at the ends
    prediction, labels = (each.reshape(-1, *[1] * low.ndim).expand(-1, *low.shape).clone() for each in at.T)
    value = loss(prediction.requires_grad_(), labels).sum()
    if not value.requires_grad:
        return
    slope = torch.autograd.grad(value, prediction)[0]
    where = f"on labels from {float(low.min()):g} to {float(high.max()):g}"
    advice = "shift and scale its curve to where the labels lie, as matching:sinh(shift=20, scale=0.1) does"
    if not bool(value.isfinite() & slope.isfinite().all()):
        raise ValueError(f"loss: expected finite values {where}, got infinite ones of {short(name)}; {advice}")
    if not bool(slope.any()):
        raise ValueError(f"loss: expected one that changes {where}, got {short(name)}, which is flat there; {advice}")


def _by_row(loss: nn.Module) -> nn.Module:
    """A copy of a loss that gives that of each row."""
    settings = [name for name in ("reduction", "reduce_rows_by") if isinstance(getattr(loss, name, None), str)]
    if not settings:
        raise ValueError(
            "loss: expected one with a setting reduction, which may be 'none', for rows of different weights, got "
            f"{short(loss)}"
        )
    loss = copy.deepcopy(loss)
    vars(loss).update(dict.fromkeys(settings, "none"))
    return loss


def make_targets(
    criterion: nn.Module | None, scaled: torch.Tensor, train: torch.Tensor, loss: Any, codec: LabelCodec
) -> torch.Tensor:
    """What training sees in place of labels: their steps ``[n, K]`` for CRPS, whose knots are training labels.

    Labels that are trained on are mixed with what a :class:`vicinal.training.Teacher` says of them.
    """
    if isinstance(loss, Teacher):
        scaled = scaled.clone()
        scaled[train] = loss.blend(scaled, codec.label_ends(), codec.transform.forward)[train]
    if not isinstance(criterion, CRPS):
        return scaled.float()
    return criterion.fit(scaled[train].float()).steps(scaled.float())


def _is_of_embeddings(loss: Any) -> bool:
    return isinstance(loss, EmbeddingLoss | ProxyLoss | RegularizerLoss | LossFromPML | Teacher)


def check_loss(loss: Any, kind: str, head: str = "nona", *, multilabel: bool = False) -> None:
    """Check, before anything is trained, that ``loss`` exists and takes labels that are "numbers" or "classes".

    Raises:
        TypeError: for anything but None, text and modules.
        ValueError: naming a loss, link or setting that does not exist, or the losses for such labels.
    """
    if isinstance(loss, str):
        written = read_loss(loss)
        for term in written.terms:
            check_term(term, kind, several=multilabel)
        if written.main is not None:
            _check_prediction(parse(written.main), kind, head, alone=not written.terms, multilabel=multilabel)
    elif isinstance(loss, CRPS | ClassLoss) or hasattr(loss, "needs") or hasattr(loss, "of_lists"):
        _check_prediction(loss, kind, head, alone=True, multilabel=multilabel)
    elif isinstance(loss, RegularizerLoss):
        check_term(Term(loss.name), kind, several=multilabel)
    elif isinstance(loss, LossFromPML):
        check_label_kind(type(loss.loss).__name__, (), kind)
    elif isinstance(loss, EmbeddingLoss | ProxyLoss):
        if getattr(loss, "relation", None) is None:
            check_label_kind(getattr(loss.loss, "__name__", "a function"), loss.facts, kind)
    elif not (loss is None or isinstance(loss, nn.Module)):
        raise TypeError(
            f"loss: expected None, text such as 'supcon' or 'matching:sigmoid', or a module, got {short(loss)}"
        )


def _check_prediction(loss: nn.Module, kind: str, head: str, *, alone: bool, multilabel: bool) -> None:
    if isinstance(needs := getattr(loss, "needs", None), str):
        raise ValueError(
            f"loss: expected one of predictions and labels, got {type(loss).__name__}, which needs {needs}; call it in "
            "a training loop of your own"
        )
    if getattr(loss, "of_lists", False) and kind != "numbers":
        raise ValueError(
            f"loss: expected one for classes, got {type(loss).__name__}, which ranks grades in queries; say "
            "NeighborRegressor().fit(X, y, queries=...), or --query COLUMN"
        )
    if isinstance(loss, ClassLoss) and kind != "classes":
        raise ValueError(f"loss: expected one for numbers, got {loss.loss.__name__}, which is for classes")
    if multilabel and isinstance(loss, ClassLoss) and "several-labels" not in loss.facts:
        names = ", ".join(one.name for one in entries("class_loss") if "several-labels" in one.facts)
        raise ValueError(
            f"loss: expected one for several classes a row ({names}), got {loss.loss.__name__}, which is for one"
        )
    if not isinstance(loss, CRPS):
        return
    if kind != "numbers":
        raise ValueError("loss: expected one for classes, got crps, which is for numbers")
    if head != "nona":
        raise ValueError(f"loss: expected a head of neighbors for crps, got head={short(head)}; it has no distribution")
    if not alone:
        raise ValueError("loss: expected crps alone, got losses of embeddings added to it; leave one out")


def is_of_lists(loss: Any) -> bool:
    """Whether a loss compares the rows of a query with one another, so that queries must be known."""
    if isinstance(loss, str):
        main = read_loss(loss).main
        loss = None if main is None else parse(main)
    return bool(getattr(loss, "of_lists", False))


def predicts_by_default(loss: Any) -> bool:
    """Whether predictions are trained by the default error, whatever is added to it."""
    return loss is None or _is_of_embeddings(loss) or (isinstance(loss, str) and read_loss(loss).main is None)


def adds_losses(loss: Any) -> bool:
    """Whether there are losses of embeddings in it."""
    return _is_of_embeddings(loss) or (isinstance(loss, str) and bool(read_loss(loss).terms))


def make_added(settings: dict[str, Any], codec: LabelCodec) -> AddedLosses | None:
    """The losses of embeddings in ``loss``, or None; labels are those of :func:`make_criterion`."""
    loss = settings["loss"]
    written = read_loss(loss) if isinstance(loss, str) else LossText(None, ())
    dim = settings["hidden"][-1] * settings["members"]
    criteria = [(term.weight, term.make(num_classes=len(codec.classes) or None, dim=dim)) for term in written.terms]
    if _is_of_embeddings(loss):
        criterion = copy.deepcopy(loss)
        if isinstance(criterion, EmbeddingLoss):
            criterion.gather = False  # what it is called with is gathered already
        criteria = [(1.0, criterion)]
    ends = codec.label_ends() or (0.0, 1.0)
    return AddedLosses(criteria, *ends, multilabel=codec.multilabel) if criteria else None


def make_fair(settings: dict[str, Any], codec: LabelCodec, groups: torch.Tensor | None = None) -> FairTerm | None:
    """The term of ``fair``, or None; ``groups [n]`` are those of all rows of the fit."""
    if groups is None:
        return None
    if isinstance(settings["loss"], CRPS) or settings["loss"] == "crps":
        raise ValueError("fair: expected a loss of predictions, got crps, which is of whole distributions")
    chosen = {"weight": settings["fair_weight"], "rate": settings["fair_rate"], "multilabel": codec.multilabel}
    return FairTerm(groups, **chosen, numbers=codec.kind == "numbers")
