"""Which labels are probably wrong: a mixture of labels that fit their predictions, and of labels of other rows."""

from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

Floats = NDArray[np.float64]

MOST_WRONG = 0.2
"""Largest share of wrong labels; a table that seems to have more has errors of another kind."""

MANY, CLEAR = 0.1, 0.5
"""A share of wrong numbers above which each must add so much to the log likelihood: noisy tables seem to have many."""

WIDER = 6.0
"""Times the errors of rows that are hard to predict are as wide as others', at most; beyond that labels are wrong."""

_FREEDOM = (2.5, 4.0, 8.0, 30.0)
"""Degrees of freedom of Student's t that are tried."""

_GRID, _WINDOW = 512, 30


class WrongLabels(NamedTuple):
    r"""Which of ``n`` labels are probably wrong.

    Attributes:
        ratio: ``[n]``, $\log f_1 - \log f_0$: larger = more suspicious.
        chance: ``[n]``, probability that the label is wrong; all 0 if the table has no clear sign of wrong labels.
        share: estimated share of wrong labels; 0 without such a sign.
    """

    ratio: Floats
    chance: Floats
    share: float

    @property
    def worth(self) -> int:
        """Number of labels that are more probably wrong than right: those worth checking."""
        return int((self.chance >= 0.5).sum())

    @property
    def expected(self) -> float:
        """Expected number of wrong labels among those worth checking."""
        return float(self.chance[self.chance >= 0.5].sum())


def wrong_labels(labels: ArrayLike, expected: ArrayLike) -> WrongLabels:
    r"""Probability that each number is wrong, from predictions that did not use it.

    A right label differs from its prediction by $e_i = y_i - \hat y_i$ with density $f_0(e_i)$: Student's t around the
    median error, with a scale for each side times the running median of $|e|$ along $\hat y$. A wrong label is that of
    another row: $f_1(y_i)$, the density of all labels, whatever the prediction. With the share $\pi \le 0.2$ of wrong
    labels, of largest likelihood,

    $$P_i = \frac{\pi f_1(y_i)}{\pi f_1(y_i) + (1 - \pi) f_0(e_i)}.$$

    If the mixture is not clearly better than $f_0$ alone (twice the gain in log likelihood at most $2 \log n$), if
    errors of two widths (one at most six times the other) explain the labels better, or if $\pi > 0.1$ and the gain is
    below $\pi n / 2$, there is no sign of wrong labels, and every $P_i$ is 0.

    Args:
        labels: ``[n]``.
        expected: ``[n]``.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=400)
    >>> labels = truth + 0.1 * rng.normal(size=400)
    >>> wrong_labels(labels, truth).worth
    0
    >>> labels[:10] = rng.normal(size=10)
    >>> found = wrong_labels(labels, truth)
    >>> found.worth, bool((found.chance[10:] < 0.5).all())
    (7, True)
    """
    y, guess = (np.asarray(values, dtype=np.float64) for values in (labels, expected))
    if y.shape != guess.shape or y.ndim != 1:
        raise ValueError(f"expected: expected the shape of the labels {y.shape}, got {guess.shape}")
    error = y - guess
    error = error - np.median(error) if len(error) else error
    if len(y) < _WINDOW or y.min() == y.max() or np.abs(error).max() < 1e-12:
        return WrongLabels(np.abs(error), np.zeros(len(y)), 0.0)
    scale = _running_scale(error, guess)
    scaled, other = error / scale, np.log(_density(y)) + np.log(scale)
    starts = [float(np.log(np.median(np.abs(scaled[side])) + 1e-6)) for side in (scaled > 0, scaled <= 0) if side.any()]
    starts = (starts * 2)[:2]

    def right(at: Floats, freedom: float) -> Floats:
        above, below = np.exp(at[:2])
        sides = np.where(scaled > 0, above, below)
        return np.asarray(stats.t.logpdf(scaled / sides, freedom) + np.log(2 / (above + below)))

    def of_two_widths(at: Floats, freedom: float) -> Floats:
        share, wider = MOST_WRONG * special.expit(at[2]), np.log(WIDER) * special.expit(at[3:])
        wide = np.log(share + 1e-300) + right(at[:2] + wider, freedom)
        return np.asarray(np.logaddexp(wide, np.log1p(-share) + right(at[:2], freedom)))

    mixture, (alone, both), freedoms = _mixture(right, other, [(freedom, starts) for freedom in _FREEDOM])
    # Rows that are hard to predict are far from their predictions as wrong ones are, but spread around them.
    hard = (_least(of_two_widths, [*starts, -1.0, 1.0, 1.0], each).fun for each in freedoms)
    is_noisy = mixture.share > MANY and alone - both < CLEAR * mixture.share * len(y)
    if is_noisy or (mixture.share and min(hard) < both):
        return WrongLabels(mixture.ratio, np.zeros(len(y)), 0.0)
    return mixture


def wrong_classes(places: ArrayLike, probabilities: ArrayLike) -> WrongLabels:
    r"""The same for classes: probability that row $i$ does not have its class $k_i$.

    A right label is class $k$ with probability $q_{ik} \propto p_{ik}^{1/T}$, where $T$ of largest likelihood corrects
    predictions that are too sure; a wrong one with $f_1(k)$, the share of the class. With the share $\pi$ of labels
    that were drawn anew,

    $$P_i = \frac{\pi f_1(k_i) (1 - q_{i k_i})}{\pi f_1(k_i) + (1 - \pi) q_{i k_i}}.$$

    Args:
        places: ``[n]``, numbers of the classes.
        probabilities: ``[n, K]``, predictions that did not use the labels.

    >>> rng = np.random.default_rng(0)
    >>> chance = rng.beta(0.2, 0.2, size=400)
    >>> places = (rng.random(400) < chance).astype(int)
    >>> wrong_classes(places, np.column_stack([1 - chance, chance])).worth
    0
    >>> surest = np.argsort(-np.abs(chance - 0.5))[:12]
    >>> places[surest] = 1 - places[surest]
    >>> wrong_classes(places, np.column_stack([1 - chance, chance])).worth
    15
    """
    at, chances = np.asarray(places, dtype=np.int64), np.asarray(probabilities, dtype=np.float64)
    logs, rows = np.log(np.clip(chances, 1e-9, 1.0)), np.arange(len(at))
    if len(at) < 2:
        return WrongLabels(np.zeros(len(at)), np.zeros(len(at)), 0.0)
    shares = np.bincount(at, minlength=chances.shape[1]) / len(at)

    def right(values: Floats, _: float) -> Floats:
        sharp = logs * np.exp(np.clip(values[0], -3, 3))
        return np.asarray(sharp[rows, at] - special.logsumexp(sharp, axis=1))

    mixture = _mixture(right, np.log(shares[at]), [(1.0, [0.0])])[0]
    chance = mixture.chance * (1 - np.exp(np.log(shares[at]) - mixture.ratio))
    return WrongLabels(mixture.ratio, chance, mixture.share)


def _least(log_density: Any, start: list[float], freedom: float) -> Any:
    """The parameters of largest likelihood from ``start``, and the negative logarithm of that as ``fun``."""
    return optimize.minimize(lambda at: -log_density(at, freedom).sum(), start, method="L-BFGS-B")


def _mixture(
    right: Any, other: Floats, starts: list[tuple[float, list[float]]]
) -> tuple[WrongLabels, tuple[float, float], set[float]]:
    """The mixture of largest likelihood of ``right(parameters, freedom)`` and ``other``, beside ``right`` alone.

    Then the negative log likelihoods of ``right`` alone and of the mixture, and the degrees of freedom of both.
    """

    def parts(at: Floats, freedom: float) -> tuple[Floats, Floats]:
        share = MOST_WRONG * special.expit(at[-1])
        return np.log(share + 1e-300) + other, np.log1p(-share) + right(at[:-1], freedom)

    alone = both = (np.inf, 0.0, np.zeros(1))
    for freedom, start in starts:
        one = _least(right, start, freedom)
        two = _least(lambda at, f: np.logaddexp(*parts(at, f)), [*one.x, -1.0], freedom)
        alone = min(alone, (one.fun, freedom, one.x), key=itemgetter(0))
        both = min(both, (two.fun, freedom, two.x), key=itemgetter(0))
    share, freedoms = MOST_WRONG * special.expit(both[2][-1]), {alone[1], both[1]}
    is_clear = 2 * (alone[0] - both[0]) > 2 * np.log(len(other)) and share < 0.95 * MOST_WRONG
    if not is_clear:
        unclear = WrongLabels(other - right(alone[2], alone[1]), np.zeros(len(other)), 0.0)
        return unclear, (alone[0], both[0]), freedoms
    wrong, fitting = parts(both[2], both[1])
    ratio, chance = other - right(both[2][:-1], both[1]), np.exp(wrong - np.logaddexp(wrong, fitting))
    return WrongLabels(ratio, chance, float(share)), (alone[0], both[0]), freedoms


def _running_scale(error: Floats, guess: Floats) -> Floats:
    """Median of ``|error|`` among the tenth of the rows with the nearest predictions, at least .3 of that of all."""
    order, rows = np.argsort(guess, kind="stable"), len(error)
    sizes, width = np.abs(error)[order], max(_WINDOW, rows // 10)
    starts = np.clip(np.arange(rows) - width // 2, 0, rows - width)
    medians = np.median(np.lib.stride_tricks.sliding_window_view(sizes, width), axis=1)[starts]
    scale = np.empty(rows)
    scale[order] = medians
    return np.maximum(scale, max(0.3 * float(np.median(sizes)), 1e-12))


def _density(values: Floats) -> Floats:
    """Gaussian kernel density of ``values`` at themselves, on a grid."""
    spread = float(values.std())
    low, high = float(values.min()), float(values.max())
    width = max(1.06 * spread * len(values) ** -0.2, 2 * (high - low) / _GRID)
    edges = np.linspace(low - 3 * width, high + 3 * width, _GRID + 1)
    middles, step = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    kernel = np.exp(-0.5 * ((middles - middles[_GRID // 2]) / width) ** 2)
    smooth = np.convolve(np.histogram(values, edges)[0], kernel / kernel.sum(), "same")
    return np.asarray(np.interp(values, middles, smooth / smooth.sum() / step)) + 1e-300
