"""What to show at all: a threshold that keeps a promised precision, and scores that mean the same for every query."""

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, Self

import numpy as np
import scipy  # loads its parts when they are used
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from vicinal.calibration.checks import Floats, Integers, check_vector
from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_integer
from vicinal.core.seeding import seeded

_STEP, _DOUBT = 1.01, 2.0
"""Factor from one count of accepted pairs to the next that is tested; times more wrong pairs than the scores expect, at
which the first test most likely passes."""

_POINTS = 4096
"""Points of a Latin hypercube."""

TOGETHER = 30
"""Rows of a class that weigh as much in its threshold as all classes together do."""

_FEWEST, _MANY = 20, 1_000_000
"""Accepted pairs of which a share of wrong ones says something, and nearly all."""


def precision_threshold(
    scores: ArrayLike, related: ArrayLike, precision: float, *, level: float = 0.05, others: int | None = None
) -> float:
    r"""The lowest threshold whose accepted pairs are right with at least ``precision``, but for a chance of ``level``.

    Fixed-sequence testing: thresholds are tested from strict to lax, in an order that the labels do not decide, each by
    the lower Clopper-Pearson bound $B^{-1}(\alpha; n-k, k+1)$ of n accepted pairs of which k are wrong; the last one
    before the first failure is taken. The sequence starts at the count where, judging by the scores alone, the test is
    most likely to pass: at the very top a single wrong pair would end it. Taking the lowest threshold that passes a
    test of its own would break the guarantee far more often. The guarantee holds for pairs drawn like these, and the
    scores must not have been trained on them.

    It is one of the share among all that could be drawn: where that is .97, 150 pairs fall short of .95 once in twelve
    times. That of m ``others`` themselves is Fisher's exact test: were just more of them wrong than is promised, k or
    fewer of all wrong ones would be among the n with a chance of at most $\alpha$.

    Args:
        scores: probabilities ``[n]``.
        related: 0 or 1, ``[n]``: whether the pair is right.
        precision: between 0 and 1.
        level: chance that the guarantee fails, between 0 and 1.
        others: number of other pairs that ``precision`` of are right; None: it is of all that could be drawn.

    Raises:
        ValueError: if no threshold can be guaranteed; the message says how many more pairs like these would do.

    >>> scores = np.linspace(1, 0, 200)
    >>> round(precision_threshold(scores, scores > 0.3, 0.9), 2)
    0.26
    """
    check_between("precision", precision, 0, 1)
    check_between("level", level, 0, 1)
    values = check_vector("scores", scores)
    truth = check_vector("related", related, size=len(values))
    if len(values) == 0 or values.min() < 0 or values.max() > 1:
        raise ValueError(f"scores: expected probabilities [n] with n >= 1, got {len(values)} numbers")
    order = np.argsort(-values, kind="stable")
    ranked, wrong = values[order], np.cumsum(1 - truth[order])
    ends = np.flatnonzero(np.append(ranked[1:] < ranked[:-1], True)) + 1  # equal scores are accepted together
    steps = np.ceil(_STEP ** np.arange(int(math.log(ends[-1]) / math.log(_STEP)) + 1))
    counts = np.unique(ends[np.searchsorted(ends, steps)])  # no group of equal scores is cut
    most = partial(_most_wrong, precision=precision, level=level, others=others)
    most_wrong = most(counts)
    likely = scipy.stats.poisson.cdf(most_wrong, _DOUBT * np.cumsum(1 - ranked)[counts - 1]).round(3)
    begin = int(likely.argmax())
    passed = int(np.append(wrong[counts - 1][begin:] <= most_wrong[begin:], False).argmin())  # before the first failure
    if passed == 0:
        raise ValueError(_missing(wrong, ends, precision, most))
    return float(ranked[counts[begin + passed - 1] - 1])


def _most_wrong(counts: Integers, precision: float, level: float, others: int | None) -> Integers:
    """The most wrong ones among so many accepted pairs that pass the test, ``[c]``; -1 where not even none does."""
    broken = math.floor((1 - precision) * (others or 0) + 1e-9) + 1
    low, high = np.full(len(counts), -1), counts.copy()
    while (low < high).any():
        wrong = (low + high + 1) // 2
        if others is None:
            chance = scipy.stats.binom.cdf(wrong, counts, 1 - precision)
        else:
            chance = scipy.stats.hypergeom.cdf(wrong, counts + others, wrong + broken, counts)
        passes = chance <= level
        low, high = np.where(passes, wrong, low), np.where(passes, high, wrong - 1)
    return low


def stratified_share(
    sizes: ArrayLike, trials: ArrayLike, hits: ArrayLike, *, level: float = 0.05
) -> tuple[float, float, float]:
    r"""Share of right ones in a whole whose parts were sampled unevenly, with an interval of it.

    With $w_h$ the share of part h in the whole, the estimate is $\sum_h w_h k_h / n_h$. Each part has Jeffreys'
    posterior $\mathrm{Beta}(k_h + 1/2, n_h - k_h + 1/2)$; the interval holds the middle $1 - \alpha$ of
    $\sum_h w_h p_h$ over a Latin hypercube of 4096 points with a fixed seed. For one part it is Jeffreys' interval.

    Args:
        sizes: number of members of each part, ``[h]``, with at least one member in all.
        trials: how many of them were looked at, n, ``[h]``.
        hits: how many of these are right, k, ``[h]``.
        level: chance that the interval does not hold the share.

    Returns:
        The estimate, NaN if nothing was looked at in a part that has members; the lower and the upper end.

    >>> [round(value, 3) for value in stratified_share([900, 100], [20, 10], [20, 5])]
    [0.95, 0.842, 0.971]
    """
    check_between("level", level, 0, 1)
    members, seen, right = check_vector("sizes", sizes), check_vector("trials", trials), check_vector("hits", hits)
    if members.sum() <= 0 or not len(members) == len(seen) == len(right) or (right > seen).any() or (right < 0).any():
        raise ValueError(
            f"hits: expected counts [h] from 0 to those of trials [h], of sizes [h] that sum to 1 or more, got "
            f"{right.tolist()[:9]} of {seen.tolist()[:9]} of {members.tolist()[:9]}"
        )
    weights, random = members / members.sum(), np.random.default_rng(0)
    ranks = random.permuted(np.tile((np.arange(_POINTS) + 0.5) / _POINTS, (len(members), 1)), axis=1)
    shares = weights @ scipy.stats.beta.ppf(ranks, right[:, None] + 0.5, (seen - right)[:, None] + 0.5)
    low, high = np.quantile(shares, [level / 2, 1 - level / 2], method="hazen")
    if (seen[weights > 0] == 0).any():
        return math.nan, float(low), float(high)
    share = float(weights @ (right / np.maximum(seen, 1)))
    return share, min(share, float(low)), max(share, float(high))


def _missing(wrong: Floats, ends: Integers, precision: float, most: Callable[[Integers], Integers]) -> str:
    """What to say where nothing can be promised: how many pairs like these would do, if any number does."""
    shares = wrong[ends - 1] / ends
    said = ends >= min(_FEWEST, (len(wrong) - int(wrong[-1]) + 1) // 2)
    clean = said & (shares < most(np.array([_MANY]))[0] / _MANY * 0.8)  # nearer to it no number of pairs is sure
    rows = len(wrong)
    if clean.any():
        more = count = int(ends[clean][-1])
        share = float(shares[clean][-1])
        while most(np.array([more]))[0] < math.ceil(share * more):
            more = math.ceil(more * 1.02) + 1
        if more > count:
            return (
                f"precision: expected labelled pairs that can show {precision:g}, got {rows} to choose a threshold by; "
                f"some {math.ceil(rows * more / count) - rows} more like them would do, or ask for less"
            )
        return (
            f"precision: expected labelled pairs that can show {precision:g} from the threshold on that their scores "
            f"make likeliest, got {rows} that cannot; ask for less or give more pairs"
        )
    return (
        f"precision: expected right pairs at the top, as a promise of {precision:g} needs, got at most "
        f"{1 - float(shares[said].min()):.3f} that are of {rows} labelled ones; ask for less or give more pairs"
    )


Form = Literal["linear", "power", "root"]


class RelevanceFilter(nn.Module):
    r"""Probability that a row is relevant, rising in its score, with settings that come from the query.

    $\sigma(a\,g(c) + b)$ with $g(c)$ = c (linear), $\sqrt{c_+}$ (root) or $c_+^p$ (power), $c_+ = \max(c, 0) +
    10^{-6}$; a and p > 0 and b are outputs of a small network of the query. So the order of a query's rows stays, while
    one threshold on the probability cuts each list where it should end, though scores of different queries are not
    comparable. The families are the paper's; the exact form is our reconstruction.

    Args:
        dim: width of the queries.
        form: "linear", "power" or "root".
        hidden: width of the network.
        seed: of its weights.

    Attributes:
        threshold: the probability from which a row is shown; :meth:`choose` sets it.

    Paper: *Relevance Filtering for Embedding-based Retrieval*, CIKM 2024 (arXiv:2408.04887).

    >>> queries, cosines = torch.eye(2).repeat(50, 1), torch.linspace(-1, 1, 100)
    >>> relevant = cosines > 0.5 * queries[:, 0]  # the first query asks for more
    >>> filter = RelevanceFilter(2).fit(queries, cosines, relevant)
    >>> (filter(torch.eye(2), torch.tensor([0.25, 0.25])) > 0.5).tolist()
    [False, True]
    """

    def __init__(self, dim: int, form: Form = "linear", *, hidden: int = 16, seed: int = 0) -> None:
        super().__init__()
        self.form, self.threshold = check_choice("form", form, ("linear", "power", "root")), 0.5
        with seeded(seed):
            self.settings = nn.Sequential(
                nn.Linear(check_integer("dim", dim), check_integer("hidden", hidden)), nn.Tanh(), nn.Linear(hidden, 3)
            )

    def logits(self, queries: Tensor, scores: Tensor) -> Tensor:
        """Log odds of relevance ``[n]`` or ``[n, k]`` of queries ``[n, d]`` and scores of that shape.

        Raises:
            ValueError: for scores that are not finite, or whose number of rows is not that of the queries.
        """
        if len(scores) != len(queries) or not bool(scores.isfinite().all()):
            raise ValueError(f"scores: expected finite numbers of {len(queries)} queries, got {tuple(scores.shape)}")
        slope, power, shift = self.settings(queries).movedim(-1, 0).view(3, -1, *[1] * (scores.ndim - 1))
        risen = scores
        if self.form != "linear":
            exponent = nn.functional.softplus(power) if self.form == "power" else 0.5
            risen = (scores.clamp(min=0) + 1e-6) ** exponent
        return nn.functional.softplus(slope) * risen + shift

    def forward(self, queries: Tensor, scores: Tensor) -> Tensor:
        """Probabilities of relevance, of the shape of ``scores``; see :meth:`logits`."""
        return self.logits(queries, scores).sigmoid()

    def fit(self, queries: Tensor, scores: Tensor, relevant: Tensor, *, decay: float = 1e-4, steps: int = 200) -> Self:
        """Fit to judged pairs by binary cross entropy (L-BFGS on all of them).

        Args:
            queries: of each pair, ``[n, d]``.
            scores: ``[n]``.
            relevant: bool ``[n]``; some true and some false.
            decay: weight decay: this times half the squared weights is added to the mean loss.
            steps: most steps of the optimizer.
        """
        if relevant.dtype != torch.bool or relevant.shape != scores.shape or scores.ndim != 1:
            raise ValueError(
                f"relevant: expected bool {tuple(scores.shape)}, got {relevant.dtype} {tuple(relevant.shape)}"
            )
        if not (relevant.any() and (~relevant).any()):
            raise ValueError("relevant: expected pairs that are and pairs that are not, got one kind")
        weights = list(self.parameters())
        optimizer = torch.optim.LBFGS(weights, max_iter=check_integer("steps", steps), line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            logits = self.logits(queries, scores)
            error = nn.functional.binary_cross_entropy_with_logits(logits, relevant.to(logits))
            error = error + decay / 2 * torch.stack([weight.square().sum() for weight in weights]).sum()
            error.backward()  # type: ignore[no-untyped-call]
            return error

        optimizer.step(loss)  # type: ignore[no-untyped-call]
        return self

    def choose(self, queries: Tensor, scores: Tensor, relevant: Tensor, *, precision: float | None = None) -> Self:
        """Set the threshold by pairs that were not fitted to: for the best F1, or a promised precision.

        Args:
            queries: as for :meth:`fit`.
            scores: likewise.
            relevant: likewise.
            precision: see :func:`precision_threshold`.
        """
        with torch.no_grad():
            chances = self(queries, scores).double().cpu().numpy()
        truth = relevant.cpu().numpy()
        best = best_f1(chances, truth) if precision is None else precision_threshold(chances, truth, precision)
        self.threshold = best
        return self

    @torch.no_grad()
    def shown(self, queries: Tensor, scores: Tensor, *, least: int = 0) -> Tensor:
        """Which of the rows ``[b, k]`` of each query are shown, bool: those above the threshold.

        Args:
            queries: ``[b, d]``.
            scores: ``[b, k]``, descending.
            least: number of rows that are always shown for each query.
        """
        chosen: Tensor = self(queries, scores) >= self.threshold
        chosen[:, : check_integer("least", least, 0)] = True
        return chosen


def best_f1(scores: ArrayLike, related: ArrayLike) -> float:
    """The threshold (accepted from there on) of highest F1; halfway to the next score below, or to 0.

    >>> best_f1([0.9, 0.8, 0.3, 0.1], [1, 1, 0, 0])
    0.55
    """
    values = check_vector("scores", scores)
    truth = check_vector("related", related, size=len(values))
    if not truth.sum() > 0:
        raise ValueError("related: expected at least one pair that is, got none")
    return _f1_threshold(values, truth, np.ones(len(values)))


def f1_thresholds(probabilities: Floats, labels: Floats, weights: Floats | None = None) -> Floats:
    r"""The probability from which on a class is predicted, ``[K]``: by the highest F1 on some labelled rows.

    $(n_k t_k + c t) / (n_k + c)$ with $c$ = ``TOGETHER``, the best threshold $t_k$ for class k, which $n_k$ rows have,
    and the best one $t$ for all labels together; 0.5 without labels. This shrinkage is there because a few rows choose
    almost at random. Best means the highest $F_1 = 2 |P \cap T| / (|P| + |T|)$ of predicted labels P and true labels T;
    a threshold lies halfway to the next lower probability, and the highest of equally good ones is taken.

    Args:
        probabilities: ``[n, K]``.
        labels: 0 or 1, ``[n, K]``.
        weights: ``[n]``, how many rows each counts as; None: one.

    Raises:
        ValueError: for probabilities and labels of different shapes.

    >>> chances, labels = np.array([[0.9], [0.4], [0.2], [0.1]] * 10), np.array([[1], [1], [0], [0]] * 10)
    >>> f1_thresholds(chances, labels).round(6).tolist()
    [0.3]
    """
    if probabilities.ndim != 2 or probabilities.shape != labels.shape:
        raise ValueError(f"labels: expected [n, K] as the probabilities, got {labels.shape}, {probabilities.shape}")
    mass = np.ones(len(labels)) if weights is None else weights
    every = probabilities.reshape(-1), labels.reshape(-1), mass.repeat(labels.shape[1])
    together = _f1_threshold(*every) if labels.any() else 0.5
    rows = mass @ labels
    each = [
        _f1_threshold(chances, of_class, mass) if there else together
        for chances, of_class, there in zip(probabilities.T, labels.T, rows > 0, strict=True)
    ]
    return np.asarray((rows * each + TOGETHER * together) / (rows + TOGETHER))


def _f1_threshold(chances: Floats, labels: Floats, mass: Floats) -> float:
    order = np.argsort(-chances, kind="stable")
    ranked, hits, taken = chances[order], (labels * mass)[order].cumsum(), mass[order].cumsum()
    ends = np.flatnonzero(np.append(ranked[1:] < ranked[:-1], True))  # the last of equal probabilities
    best = ends[np.argmax(2 * hits[ends] / (taken[ends] + hits[-1]))]
    below = ranked[best + 1] if best + 1 < len(ranked) else 0.0
    return float((ranked[best] + below) / 2)
