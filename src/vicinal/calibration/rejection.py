"""Answer or abstain: learning when a fixed predictor is to be trusted, and what abstaining buys."""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from vicinal.calibration.checks import Floats, check_vector
from vicinal.calibration.relevance import precision_threshold
from vicinal.core import Reduction, check_choice
from vicinal.core.checks import check_between

SURROGATES = ("logistic", "exponential")


def rejection_loss(
    scores: Tensor, correct: Tensor, *, cost: float, surrogate: str = "logistic", reduction: Reduction = "mean"
) -> Tensor:
    r"""Convex loss of a rejector's scores r: the fixed predictor's answer is accepted where r > 0.

    $(1-c)\,[\mathrm{wrong}]\,\Phi(-r) + c\,[\mathrm{correct}]\,\Phi(r)$ with $\Phi(t) = \log(1+e^{-t})$ or $e^{-t}$: a
    surrogate of "an accepted wrong answer costs 1, a rejection costs c". Its best score is positive exactly where
    P(correct) > 1 - c: with p = P(correct) the expected loss is lowest where $(1-c)(1-p)\,\Phi'(-r) = c\,p\,\Phi'(r)$,
    that is, at $r = \log \frac{c\,p}{(1-c)(1-p)}$ for the logistic surrogate and at half of that for the exponential
    one. After Mohri et al., *Learning to Reject with a Fixed Predictor*, ICLR 2024 (arXiv:2301.09044).

    Args:
        scores: ``[b]``, r.
        correct: ``[b]``, bool: whether the predictor was right.
        cost: c, between 0 and 1; 0 would reject everything, 1 accept everything.
        surrogate: "logistic" or "exponential".
        reduction: "mean", "sum" or "none".

    >>> rejection_loss(torch.zeros(2), torch.tensor([True, False]), cost=0.5)
    tensor(0.3466)
    """
    check_between("cost", cost, 0, 1)
    check_choice("surrogate", surrogate, SURROGATES)
    check_choice("reduction", reduction, ("mean", "sum", "none"))
    if scores.ndim != 1 or not scores.is_floating_point():
        raise ValueError(f"scores: expected floating numbers [b], got {scores.dtype} {tuple(scores.shape)}")
    if correct.dtype != torch.bool or correct.shape != scores.shape:
        raise ValueError(
            f"correct: expected bool of shape {tuple(scores.shape)}, got {correct.dtype} {tuple(correct.shape)}; "
            "compare predictions with labels (prediction == label)"
        )
    away = torch.where(correct, scores, -scores)
    price = torch.where(correct, scores.new_tensor(cost), scores.new_tensor(1 - cost))
    losses = price * (F.softplus(-away) if surrogate == "logistic" else torch.exp(-away))
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


def selective_curve(scores: ArrayLike, errors: ArrayLike) -> tuple[Floats, Floats]:
    """Share of rows answered and mean error among them, as the threshold on ``scores`` falls: two vectors ``[n]``.

    Args:
        scores: ``[n]``, larger = answered earlier. Rows with equal scores are answered together: each of their entries
            has the share and error of the whole group.
        errors: ``[n]``, 0/1 or any loss.

    >>> coverage, error = selective_curve([3.0, 2.0, 1.0], [0.0, 0.0, 1.0])
    >>> coverage.round(2).tolist(), error.round(2).tolist()
    ([0.33, 0.67, 1.0], [0.0, 0.0, 0.33])
    """
    trust = check_vector("scores", scores)
    losses = check_vector("errors", errors, size=len(trust))
    if not len(trust):
        raise ValueError("scores: expected at least one row, got none")
    order = np.argsort(-trust, kind="stable")
    last = np.searchsorted(-trust[order], -trust[order], side="right")  # rows answered down to this score
    return last / len(trust), np.cumsum(losses[order])[last - 1] / last


def area_under_selective_curve(scores: ArrayLike, errors: ArrayLike) -> float:
    """AURC: mean of the selective error over all shares answered; lower is better, the mean error if scores are random.

    >>> round(area_under_selective_curve([3.0, 2.0, 1.0], [0.0, 0.0, 1.0]), 4)
    0.1111
    """
    return float(selective_curve(scores, errors)[1].mean())


def answering_threshold(scores: ArrayLike, errors: ArrayLike, abstain: float, *, level: float = 0.1) -> float:
    """The lowest score from which answers are wrong at most at the rate ``abstain``, but for a chance of ``level``.

    It is :func:`vicinal.calibration.precision_threshold` of right answers: Clopper-Pearson bounds in a fixed sequence,
    the procedure "learn then test" (Angelopoulos et al., arXiv:2110.01052).

    Args:
        scores: probabilities of the answers ``[n]``, of rows that are exchangeable with new ones.
        errors: 0 or 1, ``[n]``: whether the answer is wrong.
        abstain: between 0 and 1.
        level: chance that the promise fails, between 0 and 1.

    Raises:
        ValueError: if no threshold keeps the promise; the message says which rate can be promised.

    >>> scores = np.linspace(1, 0, 200)
    >>> round(answering_threshold(scores, scores < 0.3, 0.1), 2)
    0.26
    """
    check_between("abstain", abstain, 0, 1)
    trust, right = check_vector("scores", scores), 1 - check_vector("errors", errors)
    for rate in [abstain, *(rate for rate in np.arange(1, 100) / 100 if rate > abstain)]:
        try:
            threshold = precision_threshold(trust, right, 1 - rate, level=level)
        except ValueError:
            continue
        if rate == abstain:
            return threshold
        break
    else:
        rate = 1.0
    raise ValueError(
        f"abstain: expected at least {rate:g}, the lowest error rate that {len(right)} held-out rows can promise with "
        f"{100 * (1 - level):g} % confidence, got {abstain:g}; ask for more, or let more rows calibrate"
    )
