"""Sets of classes that hold the true one as often as promised: LAC, APS and RAPS."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vicinal.calibration.checks import Floats, check_classes, check_probabilities
from vicinal.calibration.split import conformal_quantile
from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer

METHODS = ("lac", "aps", "raps")


def class_scores(
    probabilities: ArrayLike,
    *,
    method: str = "lac",
    uniform: ArrayLike | None = None,
    penalty: float = 0.01,
    allowed: int = 5,
) -> Floats:
    r"""How strange each class would be as the answer, ``[n, C]``; a set holds the classes below a threshold.

    - ``lac``: $1 - p_c$ (Sadinle et al. 2019, arXiv:1609.00451): smallest sets on average.
    - ``aps``: $\sum_{k: p_k > p_c} p_k + u\, p_c$ (Romano et al. 2020, arXiv:2006.02544): coverage is more even over
      easy and hard rows. u is 1 without ``uniform`` (a little too wide).
    - ``raps``: aps + ``penalty`` * [rank_c - ``allowed``]_+ with ranks from 1 (Angelopoulos et al. 2021,
      arXiv:2009.14193): no long tails of classes.

    Args:
        probabilities: ``[n, C]``, rows sum to 1.
        method: one of "lac", "aps", "raps".
        uniform: ``[n]`` draws from [0, 1] for aps and raps; exact rather than conservative coverage.
        penalty: price of each class in a set beyond ``allowed``, >= 0.
        allowed: number of classes in a set that cost nothing, >= 0.

    >>> class_scores([[0.5, 0.3, 0.2]], method="aps").tolist()
    [[0.5, 0.8, 1.0]]
    """
    check_choice("method", method, METHODS)
    check_between("penalty", penalty, 0, float("inf"), closed=True)
    check_integer("allowed", allowed, 0)
    shares = check_probabilities("probabilities", probabilities)
    if method == "lac":
        return np.asarray(1 - shares, dtype=np.float64)
    order = np.argsort(-shares, axis=1, kind="stable")
    sorted_shares = np.take_along_axis(shares, order, 1)
    draws = np.ones(len(shares)) if uniform is None else np.asarray(uniform, dtype=np.float64)
    if draws.shape != (len(shares),) or (draws < 0).any() or (draws > 1).any():
        raise ValueError(f"uniform: expected {len(shares)} numbers from 0 to 1, got shape {draws.shape}")
    strange = np.cumsum(sorted_shares, axis=1) - (1 - draws)[:, None] * sorted_shares
    if method == "raps":
        strange = strange + penalty * np.maximum(np.arange(1, shares.shape[1] + 1) - allowed, 0)
    scores = np.empty_like(strange)
    np.put_along_axis(scores, order, strange, 1)
    return scores.round(12)


class ConformalClasses:
    """Sets of classes from probabilities, calibrated by split conformal prediction.

    Args:
        method: "lac", "aps" or "raps", see :func:`class_scores`.
        coverage: share of rows whose set holds the true class, between 0 and 1.
        penalty: of raps, see :func:`class_scores`.
        allowed: of raps, see :func:`class_scores`.
        seed: with a seed aps and raps draw u at random, and cover exactly; without one, they cover a little more.

    >>> rng = np.random.default_rng(0)
    >>> shares = rng.dirichlet(np.ones(3), 1000)
    >>> labels = np.array([rng.choice(3, p=p) for p in shares])
    >>> sets = ConformalClasses("lac", coverage=0.8).fit(shares[:500], labels[:500]).predict(shares[500:])
    >>> bool(abs(sets[np.arange(500), labels[500:]].mean() - 0.8) < 0.06)
    True
    """

    def __init__(
        self,
        method: str = "lac",
        *,
        coverage: float = 0.9,
        penalty: float = 0.01,
        allowed: int = 5,
        seed: int | None = None,
    ) -> None:
        self.method = check_choice("method", method, METHODS)
        self.coverage = check_between("coverage", coverage, 0, 1)
        self.penalty, self.allowed, self.seed = penalty, allowed, seed
        self.threshold: float | None = None

    def fit(
        self,
        probabilities: ArrayLike,
        labels: ArrayLike,
        weights: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> "ConformalClasses":
        """Set the threshold from rows ``[n, C]`` that the model was not trained on, and their classes ``[n]``.

        With ``weights [n]`` or ``groups [n]`` it is another quantile, see
        :func:`vicinal.calibration.conformal_quantile`.
        """
        shares = check_probabilities("probabilities", probabilities)
        classes = check_classes("labels", labels, shares.shape[1], size=len(shares))
        scores = self._scores(shares, "fit")[np.arange(len(shares)), classes]
        self.threshold = conformal_quantile(scores, self.coverage, weights=weights, groups=groups)
        return self

    def predict(self, probabilities: ArrayLike) -> NDArray[np.bool_]:
        """``[n, C]``, true for the classes of each row's set. Without a seed the likeliest class is always in it."""
        if self.threshold is None:
            raise ValueError("predict: expected a fitted ConformalClasses, got one without a threshold; call fit first")
        shares = check_probabilities("probabilities", probabilities)
        sets = self._scores(shares, "predict") <= self.threshold
        if self.seed is None and self.method != "lac":
            sets[np.arange(len(sets)), shares.argmax(1)] = True
        return sets

    def _scores(self, shares: Floats, part: str) -> Floats:
        uniform = None
        if self.seed is not None and self.method != "lac":
            uniform = np.random.default_rng([self.seed, part == "fit"]).random(len(shares))
        return class_scores(shares, method=self.method, uniform=uniform, penalty=self.penalty, allowed=self.allowed)
