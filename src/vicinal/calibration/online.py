"""Radii that keep their coverage while the data drift: scale-free gradient descent, and its adaptive ensemble.

Both process one score after another. Before each one their ``radius`` gives the interval, prediction +- radius; then
they get the score (the distance of the label from the prediction) and adjust the radius.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from vicinal.core.checks import check_between, check_integer, check_number


def _pinball(score: float, radius: float, alpha: float) -> float:
    return max((1 - alpha) * (score - radius), alpha * (radius - score))


def _checked_score(score: object) -> float:
    value = check_number("score", score)
    if value < 0:
        raise ValueError(f"score: expected a distance of at least 0, got {score!r}")
    return value


@dataclass
class ScaleFreeOGD:
    r"""Online gradient descent on the pinball loss whose steps need no learning rate.

    With $\alpha = 1 -$ ``coverage`` and $g_t = \alpha - 1[s_t > q_t]$ (0 if equal): $q_{t+1} = [q_t - \frac{D}{\sqrt 3}
    g_t / \sqrt{\sum_{i \le t} g_i^2}]_+$. Orabona and Pal 2018, as in Bhatnagar et al. 2023 (arXiv:2302.07869).

    Args:
        coverage: share of scores that should fall within the radius, between 0 and 1.
        scale: D, the largest score to be expected; sqrt(3) times the largest calibration score is usual.
        radius: the radius to start from.

    >>> online = ScaleFreeOGD(coverage=0.5, scale=math.sqrt(3))
    >>> online.update(2.0)
    >>> online.radius
    1.0
    """

    coverage: float = 0.9
    scale: float = 1.0
    radius: float = 0.0
    squares: float = 0.0

    def __post_init__(self) -> None:
        check_between("coverage", self.coverage, 0, 1)
        check_between("scale", self.scale, 0, math.inf)
        check_between("radius", self.radius, 0, math.inf, closed=True)
        check_between("squares", self.squares, 0, math.inf, closed=True)

    def update(self, score: float) -> None:
        """Learn from the score that the present radius should have covered."""
        score = _checked_score(score)
        alpha = 1 - self.coverage
        if score == self.radius:
            return
        slope = -(1 - alpha) if score > self.radius else alpha
        self.squares += slope**2
        self.radius = max(0.0, self.radius - self.scale / math.sqrt(3) / math.sqrt(self.squares) * slope)

    def state_dict(self) -> dict[str, Any]:
        """Everything that :meth:`load_state_dict` needs, as plain numbers (fit for JSON)."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where ``state_dict`` was called."""
        vars(self).update(vars(ScaleFreeOGD(**state)))


@dataclass
class _Expert:
    """One learner of the ensemble: born at a time, alive for some steps, weighed by what it has won."""

    born: int
    lifetime: int
    learner: ScaleFreeOGD
    age: int = 0
    won: float = 0.0
    wagered: float = 0.0

    def __post_init__(self) -> None:
        check_integer("born", self.born), check_integer("lifetime", self.lifetime), check_integer("age", self.age, 0)
        check_number("won", self.won), check_number("wagered", self.wagered)

    @property
    def weight(self) -> float:
        return self.won / self.age * (1 + self.wagered) if self.age else 0.0


@dataclass
class StronglyAdaptive:
    """SAOCP: an ensemble of :class:`ScaleFreeOGD`, one started at each time, so that some are always young.

    At time t an expert is started that lives ``lifetime`` times the largest power of two that divides t; the radius is
    the mean over the experts, weighted by coin betting on which lose less than the ensemble. O(log t) experts are
    alive. Bhatnagar et al., *Improved Online Conformal Prediction via Strongly Adaptive Online Learning*, ICML 2023
    (arXiv:2302.07869).

    Args:
        coverage: share of scores that should fall within the radius, between 0 and 1.
        scale: D, the largest score to be expected.
        lifetime: shortest life of an expert, in steps, at least 1.
        threshold: an expert whose weight is at most this counts as having none. Above 0 by default: otherwise rounding
            would decide whether a weight of 1e-17 counts.

    >>> online = StronglyAdaptive(coverage=0.9, scale=10.0)
    >>> for score in [1.0, 2.0, 3.0]:
    ...     online.update(score)
    >>> online.radius > 0
    True
    """

    coverage: float = 0.9
    scale: float = 1.0
    lifetime: int = 8
    threshold: float = 1e-12
    time: int = 0
    experts: list[_Expert] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_between("coverage", self.coverage, 0, 1)
        check_between("scale", self.scale, 0, math.inf)
        check_integer("lifetime", self.lifetime)
        check_between("threshold", self.threshold, 0, math.inf, closed=True)
        check_integer("time", self.time, 0)

    @property
    def radius(self) -> float:
        """The radius to use for the next prediction."""
        return sum(share * expert.learner.radius for share, expert in zip(self._shares(), self.experts, strict=True))

    def update(self, score: float) -> None:
        """Learn from the score that the present radius should have covered."""
        score = _checked_score(score)
        start = self.radius
        self.time += 1
        self.experts = [expert for expert in self.experts if expert.age <= expert.lifetime]
        life = self.lifetime * (self.time & -self.time)
        self.experts.append(_Expert(self.time, life, ScaleFreeOGD(self.coverage, self.scale, start)))
        alpha = 1 - self.coverage
        loss = _pinball(score, self.radius, alpha)
        for expert in self.experts:
            weight = expert.weight
            gain = (loss - _pinball(score, expert.learner.radius, alpha)) / self.scale / max(alpha, 1 - alpha)
            gain = min(max(gain, -1.0 if weight > self.threshold else 0.0), 1.0)
            expert.won += gain
            expert.wagered += gain * weight
            expert.age += 1
            expert.learner.update(score)

    def _shares(self) -> list[float]:
        prior = [1 / (e.born**2 * (1 + math.floor(math.log2(e.born)))) for e in self.experts]
        total = sum(prior)
        prior = [value / total for value in prior]
        shares = [p * e.weight if e.weight > self.threshold else 0.0 for p, e in zip(prior, self.experts, strict=True)]
        total = sum(shares)
        return [value / total for value in shares] if total > 0 else prior

    def state_dict(self) -> dict[str, Any]:
        """Everything that :meth:`load_state_dict` needs, as plain numbers, lists and dictionaries (fit for JSON)."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where ``state_dict`` was called."""
        experts = [_Expert(**{**e, "learner": ScaleFreeOGD(**e["learner"])}) for e in state["experts"]]
        vars(self).update(vars(StronglyAdaptive(**{**state, "experts": experts})))


def online_radii(online: ScaleFreeOGD | StronglyAdaptive, scores: Iterable[float]) -> list[float]:
    """The radius held before each of ``scores``, with ``online`` learning from every one in turn."""
    radii = []
    for score in scores:
        radii.append(online.radius)
        online.update(score)
    return radii
