"""The readout of a metric with a trend: the fewest rows, with or without the trend, that do nearly as well."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vicinal.estimators.fitted import FittedModel
from vicinal.estimators.readout import errors_of
from vicinal.heads import Comparables, Kriging
from vicinal.heads.admissible import Identity
from vicinal.heads.kinds import adjusts
from vicinal.training.error import error_of
from vicinal.training.rows import spread

SHARE = 0.01
"""By how much the error of a simpler readout may be above the least."""

HANDICAP = 0.05
"""By how much the error of a readout without a trend is told higher where readouts are compared."""

FAR = 1.3
"""Times the least error above which a readout is given up: its other scales and noises, and fewer rows, gain less."""

CLOSE = SHARE
"""By how much it may be above where that gives rows more weight: much noise would leave all to the trend."""

USUAL = (10, 30)
"""Rows that may make a prediction."""

MANY = (60, 120)
"""Rows that may do so where labels are mostly noise, of which each row more takes its share away."""

MORE = 0.04
"""By what share of the error 120 rows may be better than 30, of which noise alone takes (1/30 - 1/120) of itself."""

NOISY = 0.5
"""Share of the variance of the labels from which on errors are mostly noise."""

SCALES = (0.5, 1.0, 2.0, 4.0)
"""Lengths of the kernel that are tried, in median distances between rows of the bank."""

NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Noises that are tried; with a trend, much noise leaves most of the prediction to it."""

FEWEST, MOST, MOST_OF_CLASSES = 400, 2000, 1500
"""Rows that the choice is made on, each predicted from all others: a tenth of those of numbers, between the first two,
as of noisy labels few tell scales and noises apart only by luck; of classes, of which some are rare, the third."""

FIRST = 10
"""Rows whose weight is compared."""

LEAST_WEIGHT = 0.1
"""Mean weight of these rows below which a readout with a trend is none: the trend alone explains by no row."""

Place = tuple[int, int]
"""Of a length in ``SCALES``, and a noise in ``NOISES``."""

START = [(length, noise) for length in (0, 2) for noise in (1, 3, 5)]
"""Places that are tried first."""


@dataclass(frozen=True)
class Candidate:
    """A readout with its scale and noise.

    Attributes:
        head: with them.
        place: of scale and noise in the tables.
        error: mean over the rows that the choice is made on.
        weight: of the ten rows of highest weight in a prediction, the mean.
    """

    head: Kriging
    place: Place
    error: float
    weight: float


def with_fewest_rows(model: FittedModel, trend: Comparables, wished: str, rows: int | None) -> FittedModel:
    """The model with the readout that is asked for, or that of fewest rows whose error is within 1 % of the least.

    A readout without the trend must have 5 % less error than with it: on the rows of the choice it often seems as good
    by chance, and on other rows it had 5 % more. Errors are squared, also those of shares of
    classes, whose scores are no probabilities yet.

    Args:
        model: with any head; each row of its bank is embedded as if its label had not been seen.
        trend: a head with the trend.
        wished: "rows", "comparables", or "auto" for either, of classes for the latter.
        rows: how many rows make a prediction, at most; None: to be chosen.
    """
    each: dict[str, list[Kriging]] = {"rows": [Kriging()], "comparables": [trend]}
    # of classes a mean of few one-hot rows rules most of them out
    heads = each.get(wished, [trend] if model.codec.kind == "classes" else [Kriging(), trend])
    compared = _Compared(model)
    usual = [compared.best(heads[-1].with_rows(rows or USUAL[1]), START)]
    for head in heads[:-1]:
        usual.insert(0, compared.best(head.with_rows(rows or USUAL[1]), START, FAR * usual[0].error))
    tried = usual
    if rows is None:
        counts = MANY if min(one.error for one in usual) > NOISY * compared.variance() else ()
        near = [one for one in usual if _cost(one) <= FAR * min(map(_cost, usual))]
        fewer = [compared.best(one.head.with_rows(USUAL[0]), [one.place]) for one in near]
        may = [one for one in usual if (1 - MORE) * _cost(one) <= (1 + SHARE) * min(map(_cost, usual))]
        more = [[compared.at(one.head.with_rows(k), [one.place])[0] for one in may] for k in counts]
        tried = [*fewer, *usual, *(one for some in more for one in some)]
    some = [one for one in tried if one.weight >= LEAST_WEIGHT] or tried[-1:]
    chosen = next(one for one in some if _cost(one) <= (1 + SHARE) * min(map(_cost, some)))
    return model.with_head(chosen.head.eval())


def noise_sentence(model: FittedModel) -> str:
    """That labels are mostly noise, where a prediction is therefore of many rows; "" elsewhere."""
    rows, trial = getattr(model.network.head, "k", 0), next(iter(model.trials), None)
    if (
        model.codec.kind != "numbers"
        or rows not in MANY
        or trial is None
        or not trial.out_of_fold
        or not trial.constant
    ):
        return ""
    share = (trial.out_of_fold / trial.constant) ** 2
    said = f"out of fold, errors have {100 * min(share, 1):.0f} % of their variance"
    return f"Labels are mostly noise here ({said}): up to {rows} rows share each prediction." if share > NOISY else ""


def _cost(one: Candidate) -> float:
    """The error that a readout is compared by."""
    return one.error * (1 if adjusts(one.head) else 1 + HANDICAP)


class _Compared:
    """Errors of readouts of a model on some rows of its bank, each predicted from all others.

    Of trees from those of other folds. One model embeds all rows of a fold, so that they share its faults, which the
    labels of some then mend for the others; new rows have the mean of all models, and no such faults.
    """

    def __init__(self, model: FittedModel) -> None:
        self.model, self.bank, self.labels = model, model.bank, model.bank_labels().double()
        count = min(max(FEWEST, len(self.bank) // 10), MOST)
        self.some = spread(len(self.bank), MOST_OF_CLASSES if model.codec.kind == "classes" else count)
        self.mass = self.bank.mass[self.some]
        self.identity = self.bank.identity(**self.bank.who(self.some))
        # of numbers: folds are whole groups
        if model.metric == "trees" and model.codec.kind == "numbers" and self.bank.folds is not None:
            self.identity |= {"query_groups": self.bank.folds[self.some], "bank_groups": self.bank.folds}
        self.nearest: dict[int, torch.Tensor] = {}  # by how many: the same whatever the scale, noise and trend
        self.unit = float(torch.pdist(self.bank.vectors[spread(len(self.bank), 1024)].double()).median()) or 1.0

    def variance(self) -> float:
        """Mean error of the mean label."""
        truth = self.labels[self.some]
        mean = torch.einsum("n,n...->...", self.mass / self.mass.sum(), truth)
        return float((error_of(mean, truth, numbers=True) * self.mass).sum() / self.mass.sum())

    def best(self, head: Kriging, start: list[Place], reach: float = math.inf) -> Candidate:
        """The scale and noise of least error, or of nearly as little with more weight on few rows.

        The neighbors of the best so far are tried until none is better, or none of the first has an error of at
        most ``reach``.
        """
        known: dict[Place, Candidate] = {}
        todo = start
        while todo:
            known |= {one.place: one for one in self.at(head, todo)}
            least = min(known.values(), key=lambda one: one.error)
            i, j = least.place
            near = [(i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]
            inside = [(a, b) for a, b in near if 0 <= a < len(SCALES) and 0 <= b < len(NOISES)]
            todo = [place for place in inside if place not in known and least.error <= reach]
        close = [one for one in known.values() if one.error <= (1 + CLOSE) * least.error]
        return max(close, key=lambda one: one.weight)

    def at(self, head: Kriging, places: list[Place]) -> list[Candidate]:
        """The head with each scale and noise."""
        heads = [head.with_kernel(SCALES[i] * self.unit, NOISES[j]) for i, j in places]
        each = zip(places, heads, *self._errors(heads), strict=True)
        return [Candidate(one, place, *values) for place, one, *values in each]

    def _errors(self, heads: Sequence[Kriging]) -> tuple[list[float], list[float]]:
        bank, at = self.bank, self.some
        queries, count = bank.vectors[at].double(), heads[0].looked_at(len(bank))
        if count not in self.nearest:
            self.nearest[count] = heads[0].nearest(queries, bank.vectors, Identity(**self.identity), bank.prepared())
        rows = queries, self.labels[at], bank.vectors, self.labels, self.identity, self.mass
        both = errors_of(heads, *rows, numbers=True, strongest=FIRST, positions=self.nearest[count])
        error, weight = (values.sum(dim=1) / self.mass.sum() for values in both)
        return error.tolist(), weight.tolist()
