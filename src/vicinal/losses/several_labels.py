"""Losses of class scores for several labels a row, each label for itself: margins of two classes."""

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_between, check_choice
from vicinal.core.checks import check_number
from vicinal.losses.class_contract import ClassScores, bounded_exp, class_loss

ENSLOSS_CODE = "values of the code of arXiv:2409.00908, value and gradient in float64"


def _margins(rows: ClassScores) -> Tensor:
    """Scores of labels that hold, less those that do not, ``[b, K]``."""
    return (2 * rows.target - 1) * rows.scores


Form = Literal[
    "hinge", "exp", "exp_hinge", "log_hinge", "inverse_hinge", "inverse_log_hinge", "sqrt_hinge", "focal", "logistic"
]

_BEYOND: dict[str, Callable[[Tensor], Tensor]] = {
    "exp_hinge": lambda m: -(1 - m).exp(),
    "log_hinge": lambda m: -m.log(),
    "inverse_hinge": lambda m: 1 / m - 1,
    "inverse_log_hinge": lambda m: math.e / (m + math.e - 1).log() - math.e,
    "sqrt_hinge": lambda m: -2 * (m - 1).sqrt(),
}
"""What goes on from a margin of 1, where the loss 1 - m ends."""


@class_loss(
    "margin_surrogate",
    "several-labels",
    family="several labels",
    paper="arXiv:2409.00908",
    verified=f"{ENSLOSS_CODE}; numpy in float64",
)
def margin_surrogate(rows: ClassScores, *, form: Form = "logistic") -> Tensor:
    r"""Each label by itself as a question of two classes, by one of many functions of the margin.

    $\overline{\phi((2 t_k - 1)\, s_k)}$ over the classes; $\phi(m) = 1 - m$ up to 1, and beyond: "hinge" 0,
    "exp_hinge" $-e^{1 - m}$, "log_hinge" $-\log m$, "inverse_hinge" $1/m - 1$, "inverse_log_hinge" $e/\log(m + e - 1) -
    e$, "sqrt_hinge" $-2\sqrt{m - 1}$.

    Or everywhere "exp" $e^{-m}$ (beyond $e^{60}$ a straight line), "logistic" $\log(1 + e^{-m})$, "focal"
    $\sigma(-m)^2 \log(1 + e^{-m})$. A share of a label moves its margin to 0.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        form: one of the above.

    >>> margin_surrogate(torch.tensor([[2.0, 0.0]]), torch.tensor([[1, 0]]), form="inverse_hinge")
    tensor(0.2500)
    """
    margin = _margins(rows)
    if check_choice("form", form, get_args(Form)) == "exp":
        return rows.mean(bounded_exp(-margin))
    if form == "hinge":
        return rows.mean(torch.maximum(1 - margin, torch.zeros_like(margin)))
    if form in ("logistic", "focal"):
        value = nn.functional.softplus(-margin)
        return rows.mean(value if form == "logistic" else torch.sigmoid(-margin).square() * value)
    beyond = margin > 1
    safe = torch.where(beyond, margin, 2.0)  # both branches are differentiated
    return rows.mean(torch.where(beyond, _BEYOND[form](safe), 1 - margin))


@class_loss(
    "ensloss",
    "several-labels",
    "stopped-gradient",
    "random",
    family="several labels",
    paper="arXiv:2409.00908",
    verified=ENSLOSS_CODE,
)
def ensloss(
    rows: ClassScores,
    *,
    shape: float | None = None,
    draws: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""A loss of margins that is drawn anew each time: only its slopes are, calibrated ones (EnsLoss).

    $\overline{g_k m_k}$, $m_k = (2 t_k - 1)\, s_k$, with constants g as slopes: $g = \max(-B^{-1}_\lambda(n), -1)$ of
    normal draws n by the inverse of Box and Cox, the lowest to the lowest margin, over m where m > 1, less 1e-6.

    All slopes lie from -1 to below 0 and do not fall up to m = 1. The value itself says nothing.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        shape: $\lambda$; None: drawn from -1 to 1 each time (the paper keeps one for ten epochs).
        draws: normal numbers, as many as there are margins; None: drawn.
        generator: of the draws; None: torch's.

    >>> ensloss(torch.tensor([[2.0]]), torch.tensor([[1]]), shape=0.0, draws=torch.tensor([-1.0]))
    tensor(-0.3679)
    """
    margins = _margins(rows)
    valid = torch.ones_like(margins, dtype=torch.bool) if rows.valid is None else rows.valid
    flat = margins.detach()[valid]
    if draws is None:
        draws = torch.randn(len(flat), generator=generator, dtype=flat.dtype, device=flat.device)
    if draws.numel() != len(flat):
        raise ValueError(f"draws: expected a number for each of {len(flat)} margins, got {draws.numel()}")
    if shape is None:
        shape = float(torch.rand((), generator=generator, device=flat.device)) * 2 - 1
    n = draws.reshape(-1).to(flat.dtype)
    power = check_number("shape", shape)
    rise = n.exp() if power == 0 else (1 + power * n).clamp(min=0) ** (1 / power)
    slopes = torch.empty_like(flat)
    slopes[flat.argsort(stable=True)] = (-rise).clamp(min=-1).sort().values
    slopes = torch.where(flat > 1, slopes / flat.clamp(min=1), slopes) - 1e-6
    return rows.mean(torch.zeros_like(margins).masked_scatter(valid, slopes) * margins)


@class_loss(
    "label_correlation",
    "several-labels",
    family="several labels",
    paper="Improving Arabic Multi-Label Emotion Classification using Stacked Embeddings and Hybrid Loss Function",
    verified="numpy in float64; reconstructed: of the paper only the parts are certain, not their formulas",
)
def label_correlation(
    rows: ClassScores, *, correlation: Tensor | None = None, class_weight: Tensor | None = None, factor: float = 0.1
) -> Tensor:
    r"""Cross-entropy of each label, and probabilities of labels that go together alike.

    $\overline{w_l\, BCE(t_l, q_l)} + \lambda \frac{\sum R^+_{lm} (q_l - q_m)^2 + R^-_{lm} (q_l + q_m - 1)^2}{\sum
    |R_{lm}|}$, $q = \sigma(s)$; R is the correlation of labels l and m, without its diagonal.

    Reconstructed: of the hybrid loss of the paper only its three parts are certain. The third is "supcon" with the
    relation :func:`vicinal.relation.shared_labels`, added as a loss of embeddings.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        correlation: R, ``[K, K]``, such as :func:`label_phi` of the training labels; None: of this batch.
        class_weight: w, ``[K]``, >= 0, such as :func:`label_weights`; None: all 1.
        factor: $\lambda \ge 0$.

    >>> label_correlation(torch.tensor([[2.0, 2.0], [-2.0, 2.0]]), torch.tensor([[1, 1], [0, 0]]))
    tensor(0.6559)
    """
    check_between("factor", factor, 0, math.inf, closed=True)
    size = rows.scores.shape[1]
    terms = nn.functional.binary_cross_entropy_with_logits(rows.scores, rows.target, reduction="none")
    if class_weight is not None:
        if class_weight.shape != (size,):
            raise ValueError(f"class_weight: expected [{size}], got {tuple(class_weight.shape)}")
        terms = terms * class_weight.to(terms.dtype)
    relation = label_phi(rows.target) if correlation is None else correlation.to(terms.dtype)
    if relation.shape != (size, size):
        raise ValueError(f"correlation: expected [{size}, {size}], got {tuple(relation.shape)}")
    relation = relation - relation.diagonal().diag()
    counts = torch.ones_like(terms[:1]) if rows.valid is None else rows.valid.to(terms.dtype)
    sure = torch.sigmoid(rows.scores)
    mass = (counts @ relation.abs() * counts).sum(-1)
    return rows.mean(terms) + factor * _apart(sure * counts, counts, relation) / torch.where(mass > 0, mass, 1.0)


def _apart(q: Tensor, counts: Tensor, relation: Tensor) -> Tensor:
    r"""$\sum R^+_{lm} (q_l - q_m)^2 + R^-_{lm} (q_l + q_m - 1)^2$ of each row over the classes that count.

    The products of both sums are one, $-2 q^\top R q$; what is left needs sums of the relation alone.
    """
    low, high = (part + part.T for part in (-relation.clamp(max=0), relation.clamp(min=0)))
    lows, highs = counts @ low, counts @ high
    alone = (q.square() * highs + ((q - 0.5).square() - q) * lows * counts).sum(-1)
    return alone - 2 * ((q @ relation) * q).sum(-1) + (lows * counts).sum(-1) / 4


def label_phi(labels: Tensor) -> Tensor:
    """How labels go together: the phi coefficient of each two, 0 for a label that all rows have, or none.

    Args:
        labels: ``[n, K]`` of 0 and 1.

    >>> label_phi(torch.tensor([[1, 1, 0], [0, 0, 1], [1, 1, 0]]))
    tensor([[ 1.0000,  1.0000, -1.0000],
            [ 1.0000,  1.0000, -1.0000],
            [-1.0000, -1.0000,  1.0000]])
    """
    shares = labels.detach().to(torch.promote_types(labels.dtype, torch.float32))
    centered = shares - shares.mean(dim=0)
    length = torch.linalg.vector_norm(centered, dim=0)
    return centered.T @ centered / torch.where(length > 0, torch.outer(length, length), 1.0)


def label_weights(labels: Tensor) -> Tensor:
    r"""Weights of labels by how rare they are, $n / (K n_l)$; 0 for a label that no row has.

    Args:
        labels: ``[n, K]`` of 0 and 1.

    >>> label_weights(torch.tensor([[1, 0], [1, 1]]))
    tensor([0.5000, 1.0000])
    """
    shares = labels.to(torch.promote_types(labels.dtype, torch.float32))
    count = shares.sum(dim=0)
    return torch.where(count > 0, len(shares) / (shares.shape[1] * torch.where(count > 0, count, 1.0)), 0.0)
