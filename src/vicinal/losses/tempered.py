"""Logistic losses with temperatures, kin of matching losses: bounded, and with heavy tails, against wrong labels."""

import math
from typing import Any

import torch
from torch import Tensor

from vicinal.core.checks import check_between
from vicinal.losses.class_contract import ClassScores, class_loss

_KIN: dict[str, Any] = {"family": "tempered", "verified": "numpy in float64"}
_STEPS = 40


@class_loss("tempered", "score-shift-invariant", **_KIN, paper="arXiv:1705.07210")
def tempered(rows: ClassScores, *, t1: float = 0.8, t2: float = 1.2) -> Tensor:
    r"""Two-temperature logistic loss: how much the loss of one row may grow, and how heavy the tails of a softmax are.

    $-\log_{t_1} p_y$ with $p_k = \exp_{t_2}(s_k - \lambda)$, where $\lambda$ makes them sum to 1,
    $\log_t x = \frac{x^{1-t} - 1}{1 - t}$ and $\exp_t x = [1 + (1 - t)\,x]_+^{1/(1-t)}$.

    With $t_1 = t_2 = 1$ cross-entropy. $t_1 < 1$ bounds a row's loss by $1/(1 - t_1)$; $t_2 > 1$ lets a score that is
    far too low keep some probability. Quasi-convex in the scores. Amid, Warmuth and Srinivasan 2019.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        t1: in [0, 2], 1 at most for a bounded loss.
        t2: at least 1.

    >>> tempered(torch.zeros(1, 4), torch.tensor([0]), t1=0.0)  # 1 - p
    tensor(0.7500)
    """
    return _negative_log(rows.of_target(_log_tempered_softmax(rows, t2)), t1)


@class_loss("bi_tempered", "score-shift-invariant", **_KIN, paper="arXiv:1906.03361")
def bi_tempered(rows: ClassScores, *, t1: float = 0.8, t2: float = 1.2) -> Tensor:
    r"""Bi-tempered logistic loss: the Bregman divergence of label and tempered softmax, so a proper loss.

    $-\log_{t_1} p_y - \frac{1}{2 - t_1}\bigl(1 - \sum_k p_k^{2 - t_1}\bigr)$ with the p of :func:`tempered`.

    With $t_1 = t_2$ it is the matching loss of the tempered softmax, whose gradient is p minus the label. Amid,
    Warmuth, Anil and Koren 2019.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        t1: in [0, 2), 1 at most for a bounded loss.
        t2: at least 1.

    >>> bi_tempered(torch.zeros(1, 4), torch.tensor([0]), t1=0.0)  # (1 - p)^2 / 2 and the squares of the others
    tensor(0.3750)
    """
    check_between("t1", t1, 0, 2 - 1e-6, closed=True)
    logs = _log_tempered_softmax(rows, t2)
    rest = 1 - rows.hidden(((2 - t1) * logs).exp(), 0.0).sum(-1)
    return _negative_log(rows.of_target(logs), t1) - rest / (2 - t1)


def _negative_log(logs: Tensor, t1: float) -> Tensor:
    """The tempered logarithm of probabilities that are given by their logarithm, with a minus."""
    power = 1 - check_between("t1", t1, 0, 2, closed=True)
    return -logs if abs(power) < 1e-6 else -(power * logs).expm1() / power


def _log_tempered_softmax(rows: ClassScores, t2: float) -> Tensor:
    """Logarithms ``[r, K]`` of the tempered softmax.

    The normalizer is found by Newton's method on the sum of the exp_t to the power 1 - t, which is concave in it and
    rises: from below each step stays below. One more step gives it its gradient.
    """
    heavy = check_between("t2", t2, 1, math.inf, closed=True) - 1
    if heavy < 1e-6:
        return rows.hidden(rows.scores, -torch.inf).log_softmax(-1)
    top = rows.hidden(rows.scores.detach(), -torch.inf).amax(-1, keepdim=True)
    gaps = rows.hidden(top - rows.scores, 0.0)  # >= 0

    def powers(shift: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of exp_t and of its slope."""
        logs = -torch.log1p(heavy * (gaps + shift)) / heavy
        sums = [rows.hidden((power * logs).exp(), 0.0).sum(-1, keepdim=True) for power in (1.0, t2)]
        return sums[0], sums[1]

    shift, near = torch.zeros_like(top), 4 * torch.finfo(top.dtype).eps
    with torch.no_grad():
        for _ in range(_STEPS):
            total, slope = powers(shift)
            step = total * (1 - total.pow(-heavy)) / (heavy * slope) * total.pow(heavy)
            shift = shift + step
            if bool((step.abs() <= near * (1 + shift)).all()):
                break
        _, slope = powers(shift)
    total, _ = powers(shift)
    shift = shift + (total - 1) / slope
    return -torch.log1p(heavy * (gaps + shift)) / heavy
