"""How differently a model treats the groups of an attribute, with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vicinal.core import check_choice
from vicinal.core.checks import short_text

_ENTRIES = 2_000_000

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class GroupPart:
    """A group: its rows, the rate of its predictions with 95 % interval, the rate of its labels, and its error."""

    group: str
    rows: int
    rate: float
    low: float
    high: float
    labels: float
    error: float


@dataclass(frozen=True)
class GroupGap:
    """By how much a rate of predictions differs between groups.

    Attributes:
        attribute: the attribute that makes the groups.
        rate: "positive", "true_positive", "false_positive", "accuracy", or for numbers "mean".
        label: the class whose rate it is, for several classes the one with the largest gap; "" for numbers.
        gap: the highest rate minus the lowest.
        low: lower end of its 95 % interval, for these two groups; below 0 if the gap may be chance.
        high: upper end.
        between: the groups with the highest and the lowest rate.
        probabilities: the same gap, of probabilities in place of decisions; for numbers the gap itself.
        parts: the groups.
    """

    attribute: str
    rate: str
    label: str
    gap: float
    low: float
    high: float
    between: tuple[str, str]
    probabilities: float
    parts: Sequence[GroupPart]

    @property
    def sentence(self) -> str:
        """The gap in words."""
        named = {"mean": "the mean prediction", "accuracy": f"the share right on {self.label}"}
        named |= {"positive": f"the share predicted {self.label}"}
        named |= {"true_positive": f"the share of {self.label} that is predicted so"}
        named |= {"false_positive": f"the share of others that is predicted {self.label}"}
        first, last = self.between
        if self.gap == 0:
            return f"By {self.attribute}, {named[self.rate]} is {self.parts[0].rate:.3g} in all groups."
        return (
            f"By {self.attribute}, {named[self.rate]} differs by {self.gap:.3g} between {first} and {last} "
            f"(95 % interval {self.low:.3g} to {self.high:.3g})."
        )


def group_gap(
    predicted: NDArray[Any],
    truth: NDArray[Any],
    groups: NDArray[Any],
    *,
    names: Sequence[str] | None = None,
    attribute: str = "group",
    classes: Sequence[Any] | None = None,
    rate: str = "positive",
    seed: int = 0,
    resamples: int = 2000,
) -> GroupGap:
    r"""By how much a rate of decisions differs between groups of rows, with an interval by bootstrap within groups.

    Rates are those of :func:`vicinal.losses.group_rates`, of decisions, that is, of the most probable class. The
    bootstrap treats rows as independent.

    Args:
        predicted: numbers ``[n]``, or probabilities ``[n, K]``.
        truth: numbers, or classes ``[n]``.
        groups: ``[n]``; with ``names``, positions in it.
        names: of the groups, in their order.
        attribute: name of the attribute that makes the groups.
        classes: the K classes; None for numbers. Of two, the second is the positive one.
        rate: "positive", "true_positive", "false_positive" or "accuracy"; for numbers it is their mean.
        seed: of the bootstrap.
        resamples: number of bootstrap samples.

    >>> group_gap(np.array([1.0, 3.0, 5.0, 5.0]), np.array([1.0, 3.0, 5.0, 6.0]), np.array(["f", "f", "m", "m"])).gap
    3.0
    """
    codes = groups
    if names is None:
        values, codes = np.unique(groups, return_inverse=True)
        names = [str(name) for name in values]
    if classes is None:
        above, below, label = predicted.astype(float), np.ones(len(truth)), ""
        soft, real, error = above, truth.astype(float), (predicted - truth) ** 2
        rate = "mean"
    else:
        check_choice("rate", rate, ("positive", "true_positive", "false_positive", "accuracy"))
        error = (np.asarray(classes)[predicted.argmax(1)] != truth).astype(float)
        places = [1] if len(classes) == 2 else range(len(classes))
        ways = [_rows_of(predicted, truth, classes, place, rate) for place in places]
        place = int(np.argmax([_widest(above, below, codes) for above, _, below, _ in ways]))
        (above, soft, below, real), label = ways[place], str(classes[places[place]])
    rates, known = _rates(above, below, codes), _counted(below, codes)
    if known.sum() < 2:
        raise ValueError(
            f"fair: expected rows that count in two groups of {short_text(attribute)}, got {known.sum()} such groups"
        )
    at = np.flatnonzero(known)
    first, last = int(at[rates[at].argmax()]), int(at[::-1][rates[at][::-1].argmin()])
    drawn = _resampled(above, below, codes, seed, resamples)
    low, high = np.nanpercentile(drawn[:, first] - drawn[:, last], (2.5, 97.5))
    ends = np.nanpercentile(np.where(known, drawn, 0.0), (2.5, 97.5), axis=0)
    labels, errors = _rates(real, below, codes), _rates(error, np.ones(len(error)), codes)
    parts = [
        GroupPart(names[g], int((codes == g).sum()), rates[g], ends[0, g], ends[1, g], labels[g], errors[g])
        for g in at.tolist()
    ]
    between = (names[first], names[last])
    gap, of_chances = rates[first] - rates[last], np.ptp(_rates(soft, below, codes)[at])
    return GroupGap(attribute, rate, label, float(gap), float(low), float(high), between, float(of_chances), parts)


def _rows_of(
    chances: NDArray[Any], truth: NDArray[Any], classes: Sequence[Any], place: int, rate: str
) -> tuple[NDArray[Any], ...]:
    """Numerators by decisions and by probabilities, the denominator, and the numerator of the labels, ``[n]`` each."""
    said, chance, real = (chances.argmax(1) == place).astype(float), chances[:, place], (truth == classes[place]) * 1.0
    if rate == "accuracy":
        right = (said == real).astype(float)
        return right, real * chance + (1 - real) * (1 - chance), np.ones(len(real)), np.ones(len(real))
    counted = {"positive": np.ones(len(real)), "true_positive": real, "false_positive": 1 - real}[rate]
    return said * counted, chance * counted, counted, real * counted


def _rates(above: NDArray[Any], below: NDArray[Any], codes: Codes) -> NDArray[np.float64]:
    total = np.bincount(codes, below)
    return np.asarray(np.bincount(codes, above) / np.where(total > 0, total, np.nan))


def _counted(below: NDArray[Any], codes: Codes) -> NDArray[np.bool_]:
    return np.asarray(np.bincount(codes, below) > 0)


def _widest(above: NDArray[Any], below: NDArray[Any], codes: Codes) -> float:
    """The gap of rates, -1 where fewer than two groups have rows that count."""
    counted = _rates(above, below, codes)[_counted(below, codes)]
    return float(np.ptp(counted)) if len(counted) > 1 else -1.0


def _resampled(
    above: NDArray[Any], below: NDArray[Any], codes: Codes, seed: int, resamples: int
) -> NDArray[np.float64]:
    """Rates of rows that are drawn again from each group, ``[resamples, groups]``; of no row NaN."""
    random, rates = np.random.default_rng(seed), np.full((resamples, int(codes.max()) + 1), np.nan)
    for group in np.unique(codes).tolist():
        rows = np.flatnonzero(codes == group)
        step = max(1, _ENTRIES // len(rows))
        for start in range(0, resamples, step):
            at = rows[random.integers(len(rows), size=(min(step, resamples - start), len(rows)))]
            total = below[at].sum(1)
            rates[start : start + step, group] = above[at].sum(1) / np.where(total > 0, total, np.nan)
    return rates
