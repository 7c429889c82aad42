"""What a fit leaves behind: a metric, a readout, and the rows that predictions are made from, as one value."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Generic, ParamSpec, Self, TypeVar

import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from vicinal.blockwise import policy
from vicinal.blockwise.blocks import query_rows
from vicinal.estimators.adaptation import Adaptation, Forecasts
from vicinal.estimators.bank import Bank
from vicinal.estimators.indexing import NearBank
from vicinal.estimators.label_codec import LabelCodec, NumberCodec
from vicinal.estimators.readout import LARGE, MOST, local_means, local_weights, surely_less
from vicinal.estimators.target_transform import TargetTransform
from vicinal.estimators.trials import Trial
from vicinal.heads.admissible import of_queries_in
from vicinal.heads.folds import FoldMembers
from vicinal.heads.intervals import weighted_quantile
from vicinal.heads.kinds import adjusts, weighs_locally
from vicinal.heads.kriging import KrigingWeights
from vicinal.training import NeighborNetwork
from vicinal.training.error import error_of
from vicinal.training.history import TrainingHistory
from vicinal.training.likelihood import TableKernel
from vicinal.training.rows import spread

T = TypeVar("T")
P = ParamSpec("P")

SCORES = 1 << 22
"""Scores or weights held at a time while many queries are looked up, explained or calibrated."""


@dataclass
class Computed:
    """What was computed of a model's rows, and holds until they change.

    Attributes:
        state: of the rows and the readout it was computed of.
        folds: models of the members that leave out each fold, over the rows of the others.
        left_out: predictions of rows spread over the bank, each from all others, and where they stand.
        answers: of functions that are asked :func:`once`, by their name and what they were asked for.
    """

    state: tuple[object, ...]
    folds: dict[int, Any] = field(default_factory=dict)
    left_out: tuple[Tensor, Bank, Tensor] | None = None
    answers: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: what is as large as the bank is computed again."""
        return vars(self) | {"folds": {}}


def once(answer: Callable[P, T]) -> Callable[P, T]:
    """A function of a fitted model, or of an estimator that has one, whose answers are kept until its rows change."""

    @wraps(answer)
    def answer_once(*arguments: P.args, **named: P.kwargs) -> T:
        model: Any = arguments[0]
        key = answer.__module__, answer.__qualname__, *arguments[1:], *named.items()
        answers = (model if isinstance(model, FittedModel) else model.fitted_).computed.answers  # of rows as they are
        if key not in answers:
            answers[key] = answer(*arguments, **named)
        return answers[key]

    return answer_once


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A metric with its readout, over the rows of a bank: predictions, weights and honest errors are functions of it.

    It is a value: another codec, readout or bank makes another one. Banks alone change in place, as they may be large;
    what was computed of their rows as they were is then computed again (:attr:`computed`).

    Attributes:
        codec: between labels and what the head takes and gives.
        network: encoder, projector and head.
        bank: the rows that predictions are made from: all of them.
        held_out: the rows that were held out of training; none where members are folds.
        metric: "network", "kernel", "trees" or "trees and kernel", the mean of both.
        history: error curves of training; a single point for a kernel.
        members: how many projectors and heads there are side by side.
        folds: how many folds the members leave out; None where rows were held out.
        fold_heads: by which rows are read out of fold, where readouts were chosen for each; None: the head.
        near: a kriging head over its index; None without one.
        learned: the kernel as its likelihood has it, which that of more rows may begin with; None for other metrics.
        few: a kernel read out by few rows, while this is not, for a mean with trees; None after the fit.
        weight_unit: the weight that ``fit`` got which counts as one row.
        optimism: by what the errors of rows that the metric was learned from are too low, see :meth:`error_of_all`.
        adaptation: to rows that differ from those of the fit; None: there was none.
        forecasts: how far off later rows were in fits to earlier ones, of each target; () without times.
        trials: what the fit has tried, this model first.
    """

    codec: LabelCodec
    network: NeighborNetwork
    bank: Bank
    held_out: Bank
    metric: str
    history: TrainingHistory
    members: int = 1
    folds: int | None = None
    fold_heads: Sequence[nn.Module] | None = None
    near: NearBank | None = None
    learned: TableKernel | None = None
    few: "FittedModel | None" = None
    weight_unit: float = 1.0
    optimism: float = 1.0
    adaptation: Adaptation | None = None
    forecasts: tuple[Forecasts, ...] = ()
    trials: tuple[Trial, ...] = ()
    _computed: list[Computed] = field(default_factory=list, init=False, repr=False)

    def with_head(self, head: nn.Module) -> Self:
        """The same metric with another readout."""
        network = NeighborNetwork(self.network.encoder, self.network.projector, head)
        near = None if self.near is None else self.near.read_by(head)
        return replace(self, network=network.eval(), near=near)

    def with_facts(self, **facts: Any) -> Self:
        """The same model with another history, or other trials, and all that was computed of its rows."""
        model = copy.copy(self)
        for name, value in facts.items():
            object.__setattr__(model, name, value)
        return model

    def chosen_over(self, *others: Self) -> Self:
        """The same model, with what the others have tried behind what it has."""
        return self.with_facts(trials=tuple(trial for one in (self, *others) for trial in one.trials))

    def of_target(self, place: int) -> Self:
        """This model for one of several targets."""
        if not isinstance(self.codec, NumberCodec):
            raise TypeError(f"codec: expected numbers, got {type(self.codec).__name__}")
        head, (low, high) = self.network.head, self.codec.label_ends()
        one = self.with_head(head.of_target(place, float(low[place]), float(high[place]))) if adjusts(head) else self
        return replace(
            one,
            codec=self.codec.of_target(place, uses_bank=self.uses_bank),
            bank=self.bank.of_target(place),
            held_out=self.held_out.of_target(place),
            forecasts=self.forecasts[place : place + 1],
        )

    @property
    def computed(self) -> Computed:
        """What was computed of the rows as they are; nothing, once they have changed, whoever did it."""
        # models share banks, which change in place: what was computed is known by its rows, and by no mark that each
        # who changes them would have to clear
        state = self.bank.state, self.held_out.state, self.network.head
        if not self._computed or self._computed[0].state != state:
            self._computed[:] = [Computed(state)]
        return self._computed[0]

    @property
    def uses_bank(self) -> bool:
        """Whether the head predicts from rows, and is no plain layer."""
        return bool(self.network.head.uses_bank)

    @property
    def readout(self) -> str:
        """How predictions are read out: "attention", "rows", "comparables" or "dense"."""
        head = self.network.head
        if not weighs_locally(head):
            return "attention"
        if not head.convex:
            return "dense"
        return "comparables" if adjusts(head) else "rows"

    # Labels and predictions.

    def bank_labels(self) -> Tensor:
        """Labels of the bank as the head takes them: numbers ``[N]``, or classes one-hot ``[N, K]``."""
        return self.codec.as_predicted(self.bank.labels)

    @once
    def usual(self) -> Tensor:
        """What all rows predict with equal weights, on the scale of the transform: a number, or shares ``[K]``."""
        labels, mass = self.bank.labels, self.bank.mass
        if self.codec.kind == "classes" and labels.ndim == 1:
            count = labels.long().bincount(mass, minlength=len(self.codec.classes))
        else:
            count = mass @ (labels if self.codec.kind == "classes" else self.codec.transform.forward(labels))
        return count / mass.sum()

    def read_out_by(self, transform: TargetTransform) -> Self:
        """The same weights of rows, read out by another transform."""
        return replace(self, codec=replace(self.codec, transform=transform))

    def summed(self, local: KrigingWeights) -> Tensor:
        """The head's prediction ``[b]`` or ``[b, T]`` from the weights of a few rows each."""
        transform = self.codec.transform
        if not transform.by_rows:
            return local.mean(self.bank_labels())
        weights, values = self.weighted_values(local)
        if transform.level is not None:
            return weighted_quantile(weights, values, transform.level)
        labels = transform.base.inverse(values.flatten()).reshape(values.shape)
        return (weights * transform.forward(labels)).sum(dim=1)

    def weighted_values(self, local: KrigingWeights) -> tuple[Tensor, Tensor]:
        """Weights ``[b, k]`` that sum to 1 and adjusted labels ``[b, k]`` of a few rows, on the scale of the fit."""
        base = self.codec.transform.base
        labels = base.forward(self.bank.labels)
        local = local.without_slack(labels)
        return local.weights, base.within(self.bank.labels).clamped(local.values(labels))

    def summed_over_all(self, weights: Tensor) -> Tensor:
        """The head's prediction ``[b]`` or ``[b, K]`` from weights ``[b, N]`` of all rows."""
        labels, level = self.bank_labels().to(weights), self.codec.transform.level
        return weights @ labels if level is None else weighted_quantile(weights, labels, level)

    def limited_transform(self) -> TargetTransform:
        """The scale of the fit, whose predictions keep near the labels of the bank as they are now."""
        transform = self.codec.transform
        return transform.base.within(self.bank.labels) if self.codec.kind == "numbers" else transform

    def on_label_scale(self, prediction: Tensor) -> Tensor:
        """Predictions of the head, within their limits, on the scale of the transform, on which intervals are made."""
        return self.limited_transform().clamped(self.codec.on_scale(prediction, uses_bank=self.uses_bank))

    def in_label_units(self, prediction: Tensor) -> Tensor:
        """Predictions of the head in the units of the labels; for classes probabilities."""
        values = self.limited_transform().inverse(self.on_label_scale(prediction))
        return values if self.adaptation is None else self.adaptation.reweighed(values)

    def answer(self, queries: Tensor, query_identity: Mapping[str, Any]) -> Tensor:
        """Predictions ``[b]`` or ``[b, K]``, from the rows that the index finds if there is one."""
        if self.near is not None:
            prediction = self.summed(self.near.local_weights(queries, **query_identity))
        else:
            prediction = self.predict_embedded(queries, self.bank.identity(**query_identity))
        check_finite("predictions", prediction)
        return prediction

    def local_parts(
        self, queries: Tensor, query_identity: Mapping[str, Any], step: int
    ) -> Iterator[tuple[Tensor, KrigingWeights]]:
        """Queries, some at a time, with the few rows that make their predictions; of a kriging readout.

        Raises:
            TypeError: if the model has another readout.
        """
        head = self.network.head
        if not weighs_locally(head):
            raise TypeError(f"readout: expected a kriging head, got {type(head).__name__}")
        if self.near is not None:
            yield queries, self.near.local_weights(queries, **query_identity)
            return
        for part, identity in self.query_blocks(queries, self.bank.identity(**query_identity), step):
            yield part, local_weights(head, self.bank, part, identity)

    def predict_embedded(self, queries: Tensor, identity: Mapping[str, Tensor | None]) -> Tensor:
        """The head's prediction ``[b]`` or ``[b, K]`` in the bank's own label units."""
        head = self.network.head
        if weighs_locally(head):
            blocks, labels = self.query_blocks(queries, identity, policy().batch_queries), self.bank_labels()
            if not self.codec.transform.by_rows:
                return torch.cat([local_means(head, self.bank, labels, *block) for block in blocks])
            return torch.cat([self.summed(local_weights(head, self.bank, *block)) for block in blocks])
        if self.codec.transform.level is not None:
            blocks = self.query_blocks(queries, identity)
            return torch.cat([self.summed_over_all(self.bank_weights(*block)) for block in blocks])
        return self.network.predict(queries, self.bank.vectors, self.bank_labels(), **identity)

    def bank_weights(self, queries: Tensor, identity: Mapping[str, Tensor | None]) -> Tensor:
        """Weights ``[b, N]`` of the bank's rows for embedded queries ``[b, d]``."""
        head = self.network.head
        if weighs_locally(head) and head.by_one_inverse(len(self.bank)):
            return local_weights(head, self.bank, queries, identity).weights
        with torch.no_grad():
            weights: Tensor = head.weights(queries, self.bank.vectors, **identity)  # type: ignore[operator]
        return weights

    def query_blocks(
        self, queries: Tensor, identity: Mapping[str, Tensor | None], step: int | None = None
    ) -> Iterator[tuple[Tensor, dict[str, Tensor | None]]]:
        """Queries with their share of ``identity``, ``step`` at a time; None: so many that their weights fit."""
        step = query_rows(SCORES, len(self.bank)) if step is None else step
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            yield queries[part], of_queries_in(part, identity)

    # Honest predictions: of rows held out, out of fold, or each from all others.

    def fold_members(self) -> FoldMembers:
        """The members of the fitted head by the folds that they leave out.

        Raises:
            ValueError: if rows were held out in place of folds.
        """
        if self.folds is None:
            raise ValueError(
                "validation_fraction: expected a model fitted with 0, whose members are folds, got one that held rows "
                "out, and so has no predictions out of fold"
            )
        if self.codec.transform.level is not None:
            raise ValueError(
                "quantile: expected a model that held rows out, got one whose members are folds, which have the mean "
                "out of fold and no quantile; ask for errors and intervals without one"
            )
        return FoldMembers(self.network.head, self.members, self.folds, self.fold_heads)

    def fold_positions(self, most: int | None = None) -> Tensor:
        """Positions ``[n]`` of the rows that a fold leaves out, ``most`` of them spread evenly; None: all."""
        folds = self.bank.folds
        if folds is None:
            return torch.zeros(0, dtype=torch.int64)
        positions = (folds >= 0).nonzero()[:, 0]  # rows that were added later are in no fold
        return positions if most is None else positions[spread(len(positions), most)]

    def of_fold(self, fold: int) -> Self:
        """The members that leave out a fold, over the rows of the others: a model that has seen no label of that fold.

        So what any model says, its predictions and its ranges, is said out of fold as well.
        """
        folds = self.computed.folds
        if fold in folds:
            return folds[fold]
        members, bank = self.fold_members(), self.bank
        others = (~bank.in_fold(fold)).nonzero()[:, 0].numpy()
        rows = bank.take(others, members.columns(fold, bank.vectors[others]), cells=False)
        # an index finds rows of the fold, too, so the view has none
        view = replace(self.with_head(members.part(fold)), bank=rows, near=None, folds=None, fold_heads=None)
        if len(bank) < LARGE:  # together the views of all folds are nearly as large as the bank
            folds[fold] = view
        return view

    @torch.no_grad()
    def out_of_fold(self, positions: Tensor) -> Tensor:
        """Predictions ``[n]`` or ``[n, K]`` of bank rows, in the head's units, by members that left them out."""
        members, bank = self.fold_members(), self.bank
        prediction = self.bank_labels()[:0]
        for fold in range(members.folds):
            at = bank.in_fold(fold, positions).nonzero()[:, 0]
            if len(at):
                rows, view = positions[at], self.of_fold(fold)
                queries = members.columns(fold, bank.vectors[rows].double())
                some = view.predict_embedded(queries, view.bank.identity(**bank.who(rows)))
                prediction = prediction if len(prediction) else some.new_empty(len(positions), *some.shape[1:])
                prediction[at] = some
        return prediction

    @torch.no_grad()
    def honest_predictions(self) -> tuple[Tensor, Bank, Tensor]:
        """Predictions of the fitted head for rows held out, or out of fold: of which bank, and where they stand.

        A cross-fitted metric has embedded all rows of the bank as if it had not seen their labels.
        """
        bank = self.bank
        if self.folds is not None:
            at = self.fold_positions(4 * MOST)
            return self.out_of_fold(at), bank, at
        return self.all_left_out() if self.network.cross_fitted else self.held_out_predictions()

    @once
    def held_out_predictions(self) -> tuple[Tensor, Bank, Tensor]:
        """Predictions of rows held out, 1,024 at most, of which bank, and where they stand."""
        return self.left_out(self.held_out, spread(len(self.held_out), MOST))

    @torch.no_grad()
    def left_out(self, rows: Bank, at: Tensor) -> tuple[Tensor, Bank, Tensor]:
        """Predictions of rows at these places of a bank, each from all others, the bank, and the places."""
        return self.predict_embedded(rows.vectors[at].double(), self.bank.identity(**rows.who(at))), rows, at

    @property
    @once
    def honest_errors(self) -> tuple[Tensor, Tensor]:
        """Errors ``[b]`` of these predictions, as training sees labels, and the weights ``[b]`` of their rows."""
        return self._errors_of(*self.honest_predictions())

    def honest_error(self) -> float:
        """Their weighted mean: readouts are chosen by it, and kernels against networks."""
        return weighted_mean(*self.honest_errors)

    @torch.no_grad()
    def held_out_errors(self) -> tuple[Tensor, Tensor]:
        """The same of the rows held out, also where others were left out by folds: different metrics are compared."""
        if not self.network.cross_fitted:
            return self.honest_errors
        return self._errors_of(*self.held_out_predictions())

    def surely_below(self, other: Self, share: float = 0.0, sure: float = 1.0, *, of_all: bool = False) -> bool:
        """Whether errors of the rows held out are :func:`surely_less` than those of another model.

        With ``of_all`` errors of rows that are each predicted from all others, see :meth:`error_of_all`.
        """
        if not of_all:
            (errors, mass), (others, _) = self.held_out_errors(), other.held_out_errors()
            return surely_less(errors, others, mass, share, sure)
        (errors, mass), (others, _) = self.errors_of_all(), other.errors_of_all()
        return surely_less(self.optimism * errors, other.optimism * others, mass, share, sure)

    def all_left_out(self) -> tuple[Tensor, Bank, Tensor]:
        """Predictions of rows spread over the bank, each from all others, the bank, and where they stand in it."""
        computed = self.computed
        if computed.left_out is None:
            computed.left_out = self.left_out(self.bank, spread(len(self.bank), MOST))
        return computed.left_out

    def errors_of_all(self) -> tuple[Tensor, Tensor]:
        """Errors ``[b]`` of these predictions, and the weights of the rows."""
        return self._errors_of(*self.all_left_out())

    def error_of_all(self) -> float:
        """Their mean, as training has errors.

        Where a metric has learned from the labels of these rows it is told higher, by ``optimism``.
        """
        return self.optimism * weighted_mean(*self.errors_of_all())

    def error_in_label_units(self, prediction: Tensor, rows: Bank, at: Tensor) -> float:
        """Mean squared error of labels on [0, 1] of the head's predictions for rows at these places of a bank."""
        (low, high), both = self.codec.ends, (self.in_label_units(prediction), rows.labels[at])
        said, truth = ((values - low) / (high - low) for values in both)
        return weighted_mean(error_of(said, truth.to(said), numbers=True).double(), rows.mass[at])

    def trial(self, seconds: float, tune: str) -> Trial:
        """What a leaderboard tells of this model, whose fit took so many seconds."""
        classes = self.codec.kind == "classes"
        by_folds, out_of_fold, held_out = self.folds is not None, None, None
        if by_folds or self.metric != "network":
            out_of_fold = self._shown_error(*(self.honest_predictions() if by_folds else self.all_left_out()))
            out_of_fold *= self.optimism if classes else math.sqrt(self.optimism)
        if len(self.held_out):
            held_out = self._shown_error(*self.held_out_predictions())
        errors = {"out_of_fold": out_of_fold, "held_out": held_out, "constant": self._constant_error()}
        return Trial(
            metric=self.metric,  # type: ignore[arg-type]  # one of those names
            readout=self.readout if self.uses_bank else "none",  # type: ignore[arg-type]
            target_transform=self.codec.transform.base.name,
            tune=tune,
            measure="log_loss" if classes else "rmse",
            seconds=seconds,
            **{name: None if error is None or not math.isfinite(error) else error for name, error in errors.items()},
        )

    def _shown_error(self, prediction: Tensor, rows: Bank, at: Tensor) -> float:
        """Error of the head's predictions for rows at these places of a bank, as a leaderboard has it."""
        if self.codec.kind == "numbers":
            return self._label_unit() * math.sqrt(self.error_in_label_units(prediction, rows, at))
        return weighted_mean(*self._errors_of(prediction, rows, at))

    def _errors_of(self, prediction: Tensor, rows: Bank, at: Tensor) -> tuple[Tensor, Tensor]:
        """Errors ``[b]`` of predictions, as training has them, and the weights ``[b]`` of their rows in a bank."""
        truth = self.codec.as_predicted(rows.labels[at]).to(prediction)
        return self.codec.errors(prediction, truth).double(), rows.mass[at]

    def _constant_error(self) -> float:
        """The same of the mean label, or of the shares of classes, for all rows of the bank."""
        if self.codec.kind == "classes":
            shares = self.usual().double()[None]
            return float(error_of(shares, shares, multilabel=self.codec.multilabel))
        low, high = self.codec.ends
        labels, mass = (self.bank.labels - low) / (high - low), self.bank.mass / self.bank.mass.sum()
        mean = torch.einsum("n,n...->...", mass, labels)
        return self._label_unit() * math.sqrt(weighted_mean(error_of(mean, labels, numbers=True), mass))

    def _label_unit(self) -> float:
        """The range of labels of one number a row; 1 of several, each of which is told in its own."""
        low, high = self.codec.ends if self.codec.targets is None else (0.0, 1.0)
        return float(high - low)


class Unfitted:
    """What stands in the place of ``fitted_`` until a fit sets it."""

    def __get__(self, estimator: Any, owner: type) -> Any:
        if estimator is None:
            return self  # of the class
        raise NotFittedError(f"{owner.__name__}: expected a fitted one, got one that is not fitted yet; call fit")


class Part(Generic[T]):
    """An attribute of an estimator that is a part of its fitted model, as scikit-learn names what a fit has left.

    It is there once the estimator is fitted; to set it makes another fitted model, with that part.

    Args:
        name: of the part.
        of_codec: whether it is one of the codec.
    """

    def __init__(self, name: str, *, of_codec: bool = False) -> None:
        self.name, self.of_codec = name, of_codec

    def __get__(self, estimator: Any, owner: type) -> T:
        if estimator is None:
            return self  # type: ignore[return-value]  # of the class
        fitted = estimator.fitted_
        part: T = getattr(fitted.codec if self.of_codec else fitted, self.name)
        if self.name == "classes" and not len(fitted.codec.classes):
            raise AttributeError(f"{owner.__name__}: expected one of classes, got one of numbers")
        return part

    def __set__(self, estimator: Any, value: T) -> None:
        fitted, part = estimator.fitted_, {self.name: value}
        part = {"codec": replace(fitted.codec, **part)} if self.of_codec else part
        estimator.fitted_ = replace(fitted, **part)


class BankPart(Part[Bank]):
    """A bank of the fitted model, which tells labels in the words of the model that is asked for it.

    Models that differ in their labels alone share a bank, so that it cannot know them by itself.
    """

    def __get__(self, estimator: Any, owner: type) -> Bank:
        bank = super().__get__(estimator, owner)
        if estimator is not None:
            bank.codec = estimator.fitted_.codec
        return bank


def weighted_mean(errors: Tensor, mass: Tensor) -> float:
    """Of errors ``[b]`` by weights ``[b]``."""
    return float((errors * mass).sum() / mass.sum())


def check_finite(what: str, values: Tensor) -> None:
    """Raise ValueError if some of ``values [n, ...]`` are not finite, by weights or numbers in X that are too large."""
    bad = ~values.isfinite().unsqueeze(-1).flatten(1).all(dim=1)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise ValueError(f"X: expected finite {what} by this model, got NaN or infinity for the row at {row}")
