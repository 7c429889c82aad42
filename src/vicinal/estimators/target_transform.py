"""The scale that labels are learned or read out on: their own, logarithms, normal scores, a link; of classes scores."""

import math
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from vicinal.core import short
from vicinal.core.checks import check_between
from vicinal.core.untrusted import Saved
from vicinal.heads.intervals import weighted_quantile
from vicinal.links import Curve, grows_exponentially, parse

Array = np.ndarray[Any, Any]

KNOTS = 512
"""Labels between which normal scores are straight lines, at most."""

DOUBT = 0.01
"""Rows more that are of any class alike, as which what a row of a fit may not have shown is reckoned."""

_BEYOND = {"none": 0.5, "log": 0.25}
"""How far predictions may lie beyond the labels, in ranges of the labels or of their logarithms."""

_Positive = Annotated[float, Field(gt=0, lt=float("inf"))]

_SAID = {
    "log": "labels are learned as logarithms, so a prediction is a weighted geometric mean of its neighbors' "
    "labels{times}",
    "rank": "labels are learned as normal scores of their ranks, and a prediction is the label whose score is the "
    "weighted mean of its neighbors' scores",
    "softmax": "the score of a class is the sum of the weights of its rows, where a negative one counts against it, "
    "and of the trend by columns, if there is one; probabilities are the softmax of {slope:.3g} x score + a constant "
    "of the class{shared}",
    "power": "the score of a class is the share of the weight that its rows have; probabilities are proportional to "
    "(score + {floor:.3g}) ^ {slope:.3g} x a constant of the class{shared}",
    "link": "a prediction has under the link h the weighted mean of h of its neighbors' labels, with h = {link} of a "
    "label less {center:.4g}, over {spread:.4g}{capped}",
    "level": "a prediction is the label that {level:.3g} of the weight of its neighbors' labels does not exceed",
    "constant": "a prediction is the weighted mean of its neighbors' labels, and {constant:.4g}",
}


class TargetTransform(Saved):
    r"""A rising function $g$ of labels: a head predicts $\hat y = g^{-1}(\sum_j w_j g(y_j))$.

    - "none": $g(y) = y$, and the prediction is a weighted mean. Weights below 0 can lead beyond the labels: predictions
      keep to their range and half of it to either side.
    - "log": $g(y) = \ln y$ of labels above 0, and it is a weighted geometric mean, $\prod_j y_j^{w_j}$. Weights below 0
      can lead far beyond the labels, and their exponential much farther: predictions keep to the range of the labels
      and a quarter of it, on the logarithmic scale, to either side. Its errors, even on that scale, leave it below the
      mean of the labels; e to the power of a ``constant`` that is added makes up for it.
    - "rank": $g$ takes the label of mean rank $r$ of $n$ training labels to the normal score $\Phi^{-1}((r - 1/2) / n)$
      and is a straight line between ``KNOTS`` of them, at most; beyond the lowest and highest label it is constant.

    - "softmax", of classes by a kernel: $g(y) = y$ for one-hot labels, and scores $s = \sum_j w_j y_j$, whose weights
      may be below 0, become probabilities $p_k \propto e^{a s_k + b_k}$ with slope and biases that were calibrated on
      rows which had no part in their scores. A class that was added later has the bias 0.
    - "link": $g(y) = h((y - c) / u)$ for a link h, c the median and u the spread of the labels: the prediction of least
      expected matching loss (proposition 1 of Selective Matching Losses). It is read out, not learned: weights and
      adjustments of labels are those of the scale ``inner``.

    - "power", of classes by trees: scores are shares of rows, or of these moved by a trend, and nearly probabilities:
      $p_k \propto e^{b_k} (\max(s_k, 0) + \epsilon)^a$, calibrated in the same way.

    Of either, all classes share $\delta = 0.01 / n$ alike, n rows of the fit: $(1 - \delta) p_k + \delta / K$. Few rows
    whose scores separate the classes do not tell that one is out of the question.

    Attributes:
        name: "none", "log", "rank", "softmax", "power" or "link".
        ends: the lowest and highest label of each target, see :meth:`within`; empty: predictions are not limited.
        labels: of "rank" the knots of each target, rising.
        scores: their normal scores.
        slope: a of "softmax" and "power", > 0.
        biases: b of these, of each class.
        floor: $\epsilon$ of "power", > 0.
        doubt: $\delta$ of these; 0 of models from before there was one.
        link: h, as :func:`vicinal.links.parse` reads it.
        center: c, of "link".
        spread: u, of "link".
        cap: the scores outside of which h goes on straight; None: nowhere.
        level: of labels as they are, the quantile that is predicted; None: their mean.
        constant: what is added to that mean.
        inner: the scale that a model of "link" was fitted on; None: "none".

    >>> log = TargetTransform(name="log")
    >>> weights, labels = torch.tensor([0.5, 0.5]), torch.tensor([2.0, 8.0])
    >>> log.inverse(weights @ log.forward(labels))
    tensor(4.)
    >>> rank = TargetTransform.fitted("rank", torch.tensor([1.0, 2.0, 2.0, 50.0]))
    >>> [round(score, 3) for score in rank.forward(torch.tensor([1.0, 2.0, 50.0, 90.0])).tolist()]
    [-1.15, 0.0, 1.15, 1.15]
    """

    name: Literal["none", "log", "rank", "softmax", "power", "link"] = "none"
    ends: list[tuple[_Positive, _Positive]] = Field(default_factory=list, max_length=1 << 16)
    labels: list[list[float]] = Field(default_factory=list, max_length=1 << 16)
    scores: list[list[float]] = Field(default_factory=list, max_length=1 << 16)
    slope: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    biases: list[float] = Field(default_factory=list, max_length=1 << 20)
    floor: Annotated[float, Field(gt=0, le=1)] = 1e-3
    doubt: Annotated[float, Field(ge=0, lt=1)] = 0.0
    link: Annotated[str, Field(max_length=1000)] = ""
    center: float = 0.0
    spread: _Positive = 1.0
    cap: tuple[float, float] | None = None
    level: Annotated[float, Field(ge=0, le=1)] | None = None
    constant: float = 0.0
    inner: "TargetTransform | None" = None

    @model_validator(mode="after")
    def _rise(self) -> Self:
        pairs = list(zip(self.labels, self.scores, strict=False))
        if len(self.labels) != len(self.scores) or (self.name == "rank") != bool(pairs):
            raise ValueError("knots of another transform")
        if (self.name in ("softmax", "power")) != bool(self.biases):
            raise ValueError("biases of another transform")
        if (self.ends and self.name != "log") or any(low > high for low, high in self.ends):
            raise ValueError("ends of another transform")
        if (self.name == "link") != bool(self.link) or (
            self.inner is not None and self.inner.name in ("link", "softmax")
        ):
            raise ValueError("a link of another transform")
        if self.link:
            _rising(self.link, self.cap)
        for labels, scores in pairs:
            steps = [np.diff(ends) for ends in (labels, scores)]
            if not 2 <= len(labels) == len(scores) <= KNOTS or min(step.min() for step in steps) <= 0:
                raise ValueError("knots that do not rise")
        return self

    @classmethod
    def fitted(cls, name: str, labels: Tensor) -> Self:
        """The transform of this name for training labels ``[n]`` or ``[n, T]``, which differ."""
        if name == "log":
            return cls(name="log").widened(labels)
        if name != "rank":
            return cls.model_validate({"name": name})
        from scipy.stats import norm  # slow to import, and needed only when a model is fitted

        knots = []
        for column in labels.reshape(len(labels), -1).double().numpy().T:
            values, counts = np.unique(column, return_counts=True)
            scores = norm.ppf((counts.cumsum() - counts / 2) / len(column))
            some = np.unique(np.linspace(0, len(values) - 1, min(KNOTS, len(values))).round().astype(int))
            knots.append((values[some].tolist(), scores[some].tolist()))
        return cls(name="rank", labels=[one for one, _ in knots], scores=[one for _, one in knots])

    @classmethod
    def of_link(
        cls, link: str, cap: float | None, labels: Tensor, mass: Tensor, before: Self, *, unit: bool = True
    ) -> Self:
        """The transform of a link over these labels.

        Args:
            link: as :func:`vicinal.links.parse` reads it.
            cap: how many spreads from the median a link that grows exponentially goes on straight; None: nowhere.
            labels: ``[n]``, in their own units.
            mass: how many rows each counts as ``[n]``.
            before: the scale that the model was fitted on.
            unit: whether h takes labels less their median, over their spread (half the distance from the 16 % to the
                84 % quantile, a standard deviation of normal ones); else labels as they are.

        Raises:
            ValueError: for a link that does not rise strictly, or has no value where predictions may be.
        """
        low, middle, high = (float(weighted_quantile(mass[None], labels, level)) for level in (0.16, 0.5, 0.84))
        spread = (high - low) / 2 or float(labels.std(unbiased=False)) or 1.0
        center, scale = (middle, spread) if unit else (0.0, 1.0)
        ends: tuple[float, float] | None = None
        curve = _rising(link, None)
        if cap is not None:
            check_between("cap", cap, 0, float("inf"))
            reach = (middle - cap * spread - center) / scale, (middle + cap * spread - center) / scale
            ends = reach if grows_exponentially(curve, *reach) else None
        least, most = (float(end) for end in (labels.min(), labels.max()))
        limits = [(end - center) / scale for end in (1.5 * least - 0.5 * most, 1.5 * most - 0.5 * least)]
        if not bool(_rising(link, ends)(torch.tensor(limits, dtype=torch.float64)).isfinite().all()):
            raise ValueError(
                f"link: expected one with values from {limits[0]:.4g} to {limits[1]:.4g}, where "
                f"{'labels less their median, over their spread,' if unit else 'labels'} may be predicted, got "
                f"{short(link)}; shift or scale it, as in 'log(shift={np.floor(limits[0]) - 1:g})', or cap it"
            )
        return cls(name="link", link=link, center=center, spread=scale, cap=ends, inner=before.base)

    @property
    def base(self) -> "TargetTransform":
        """The scale that a model was fitted on, whose mean is read out."""
        if self.name == "link":
            return self.inner or PLAIN
        return self.model_copy(update={"level": None, "constant": 0.0})

    @property
    def by_rows(self) -> bool:
        """Whether it is no mean of labels that is read out, so that adjusted labels count one by one."""
        return self.name == "link" or self.level is not None

    @property
    def sentence(self) -> str:
        """What a prediction is, as a clause; "" of "none"."""
        added = "constant" if self.constant and self.name == "none" else self.name
        form = "level" if self.level is not None else added
        times = f", times {math.exp(self.constant):.4g}" if self.constant else ""
        known = dict(
            self,
            times=times,
            shared=f"; of these, 1 in {1 / self.doubt:,.0f} is shared by all classes alike" if self.doubt else "",
            capped="" if self.cap is None else ", straight beyond {:.4g} and {:.4g}".format(*self.cap),
        )
        return _SAID.get(form, "").format(**known)

    def widened(self, labels: Tensor) -> Self:
        """The transform with these labels ``[n]`` or ``[n, T]`` within the ends of "log"; another stays as it is."""
        return self if self.name != "log" or len(labels) == 0 else self._with_ends(labels, self.ends)

    def _with_ends(self, labels: Tensor, before: list[tuple[float, float]]) -> Self:
        columns = labels.reshape(len(labels), -1).double()
        ends = list(zip(columns.amin(dim=0).tolist(), columns.amax(dim=0).tolist(), strict=True))
        both = [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(before or ends, ends, strict=True)]
        return self.model_copy(update={"ends": both})

    def without(self, gone: Array, left: Array) -> Self:
        """The transform without knots and ends at labels that are forgotten.

        Args:
            gone: their labels ``[m, T]``, also earlier ones.
            left: all other labels ``[n, T]``, n >= 1.

        >>> rank = TargetTransform.fitted("rank", torch.tensor([1.0, 2.0, 2.0, 50.0]))
        >>> rank.without(np.array([[50.0], [2.0]]), np.array([[1.0], [2.0]])).labels
        [[1.0, 2.0]]
        """
        if self.inner is not None:
            return self.model_copy(update={"inner": self.inner.without(gone, left)})
        if self.name == "log":
            return self.model_copy(update={"ends": []}).widened(torch.from_numpy(left)) if self.ends else self
        labels, scores = [], []
        for place, knots in enumerate(zip(self.labels, self.scores, strict=True)):
            stays = ~np.isin(knots[0], np.setdiff1d(gone[:, place], left[:, place]))
            one = np.array(knots)[:, stays]
            if stays.sum() < 2:  # a line needs two ends: all labels that are left are one
                low = left[:, place].min()
                one = np.array([[low, low + max(1.0, abs(low))], [0.0, 1.0]])
            labels.append(one[0].tolist())
            scores.append(one[1].tolist())
        return self.model_copy(update={"labels": labels, "scores": scores})

    def within(self, labels: Tensor) -> Self:
        """The transform whose predictions are limited by these labels ``[N]`` or ``[N, T]``, those of the bank now."""
        return self._with_ends(labels, []) if self.name in _BEYOND and len(labels) else self

    def limits(self) -> tuple[Tensor, Tensor] | None:
        """The least and the most that is predicted of each target ``[T]``, on this scale; None: there is no such limit.

        >>> TargetTransform().within(torch.tensor([1.0, 3.0])).limits()
        (tensor([0.], dtype=torch.float64), tensor([4.], dtype=torch.float64))
        """
        if self.name == "rank":
            ends = torch.tensor([(knots[0], knots[-1]) for knots in self.scores], dtype=torch.float64)
            return ends[:, 0], ends[:, 1]
        if not self.ends:
            return None
        low, high = self.forward(torch.tensor(self.ends, dtype=torch.float64)).unbind(dim=1)
        slack = _BEYOND[self.name] * (high - low)
        return low - slack, high + slack

    def of_target(self, place: int) -> Self:
        """The transform of one of several targets."""
        parts = {name: getattr(self, name)[place : place + 1] for name in ("ends", "labels", "scores")}
        return self.model_copy(update=parts)

    def forward(self, labels: Tensor) -> Tensor:
        """Labels ``[n]``, or of several targets ``[n, T]``, on this scale."""
        if self.name == "log":
            return labels.log()
        if self.name == "link":
            return _rising(self.link, self.cap)((labels.double() - self.center) / self.spread)
        return _through(labels, self.labels, self.scores) if self.name == "rank" else labels

    def inverse(self, values: Tensor) -> Tensor:
        """Labels of values on this scale ``[n]`` or ``[n, T]``; probabilities of scores ``[n, K]``."""
        if self.name in ("softmax", "power"):
            values = values if self.name == "softmax" else (values.double().clamp(min=0) + self.floor).log()
            biases = torch.zeros(values.shape[1], dtype=torch.float64)
            biases[: len(self.biases)] = torch.tensor(self.biases, dtype=torch.float64)
            odds = torch.addcmul(biases, torch.tensor(self.slope, dtype=torch.float64), values.double())
            return torch.lerp(odds.softmax(dim=1), torch.full_like(odds, 1 / odds.shape[1]), self.doubt)
        if self.name == "rank":
            return _through(values, self.scores, self.labels)
        if self.name == "link":
            return self.center + self.spread * _rising(self.link, self.cap).inverse(values.double())
        values = self.clamped(values)
        return values.exp() if self.name == "log" else values

    def clamped(self, values: Tensor) -> Tensor:
        """Values ``[n]`` or ``[n, T]`` on this scale within what is predicted."""
        limits = self.limits()
        if limits is None:
            return values
        shape = () if values.ndim == 1 else (-1,)  # far beyond the labels a sum of weights of either sign says nothing
        return values.clamp(*(limit.reshape(shape).to(values) for limit in limits))


PLAIN = TargetTransform()
"""Labels as they are."""


@lru_cache(maxsize=64)
def _rising(link: str, cap: tuple[float, float] | None) -> Curve:
    """The link as it is read out: h has an inverse."""
    curve = parse(link)
    if not (curve.is_monotone and curve.is_invertible):
        raise ValueError(
            f"link: expected one that rises strictly, as a prediction is the inverse of a mean of its values, got "
            f"{short(link)}; add a share of the identity, as in '{link} + 0.1*identity'"
        )
    return curve if cap is None else curve.cap(*cap)


def _through(values: Tensor, places: list[list[float]], heights: list[list[float]]) -> Tensor:
    """Straight lines between the knots of each target, constant beyond them."""
    columns = values.detach().double().reshape(len(values), -1).numpy().T
    ends = [np.interp(*known) for known in zip(columns, places, heights, strict=True)]
    return torch.from_numpy(np.stack(ends, axis=1)).reshape(values.shape).to(values)


def check_positive(values: Any, name: str) -> None:
    """Raise ValueError, which names them, if some of the labels ``[n]`` have no logarithm."""
    wrong = np.flatnonzero(np.asarray(values) <= 0)
    if len(wrong):
        value = np.asarray(values)[wrong[0]]
        raise ValueError(
            f"{name}: expected labels above 0, as their logarithms are learned, got {short(float(value))} in row "
            f"{wrong[0]}; a model with target_transform='rank' or 'none' takes any"
        )
