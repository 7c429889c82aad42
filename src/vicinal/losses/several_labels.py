"""Losses of class scores for several labels a row, each label for itself: margins of two classes."""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from vicinal.core import check_choice
from vicinal.core.checks import check_between, check_number
from vicinal.losses.class_contract import ClassScores, bounded_exp, class_loss

ENSLOSS_CODE = "values of the code of arXiv:2409.00908, value and gradient in float64"


def _margins(rows: ClassScores, sign: int = 1) -> Tensor:
    """Scores of labels that hold, and minus those of labels that do not, times ``sign``, ``[b, K]``."""
    return rows.target.new_tensor(-sign).add(rows.target, alpha=2 * sign) * rows.scores


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


_class_loss = functools.partial(class_loss, family="several labels")


@_class_loss(
    "margin_surrogate", "several-labels", paper="arXiv:2409.00908", verified=f"{ENSLOSS_CODE}; numpy in float64"
)
def margin_surrogate(rows: ClassScores, *, form: Form = "logistic") -> Tensor:
    r"""Each label by itself as a question of two classes, by one of many functions of the margin.

    $\overline{\phi((2 t_k - 1)\, s_k)}$ over the classes; $\phi(m) = 1 - m$ up to 1, and beyond: "hinge" 0,
    "exp_hinge" $-e^{1 - m}$, "log_hinge" $-\log m$, "inverse_hinge" $1/m - 1$, "inverse_log_hinge" $e/\log(m + e - 1) -
    e$, "sqrt_hinge" $-2\sqrt{m - 1}$.

    Three others have one formula everywhere: "exp" $e^{-m}$ (beyond $e^{60}$ a straight line), "logistic" $\log(1 +
    e^{-m})$, "focal" $\sigma(-m)^2 \log(1 + e^{-m})$. A label that is a share between 0 and 1 has a margin nearer to 0.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        form: one of the above.

    >>> margin_surrogate(torch.tensor([[2.0, 0.0]]), torch.tensor([[1, 0]]), form="inverse_hinge")
    tensor(0.2500)
    """
    against = _margins(rows, -1)
    if check_choice("form", form, get_args(Form)) == "exp":
        return rows.mean(bounded_exp(against))
    if form == "hinge":
        return rows.mean(torch.maximum(1 + against, torch.zeros_like(against)))
    if form in ("logistic", "focal"):
        value = nn.functional.softplus(against)
        return rows.mean(value if form == "logistic" else torch.sigmoid(against).square() * value)
    margin = -against
    beyond = margin > 1
    safe = torch.where(beyond, margin, 2.0)  # both branches are differentiated
    return rows.mean(torch.where(beyond, _BEYOND[form](safe), 1 - margin))


@_class_loss("ensloss", "several-labels", "stopped-gradient", "random", paper="arXiv:2409.00908", verified=ENSLOSS_CODE)
def ensloss(
    rows: ClassScores,
    *,
    shape: float | None = None,
    draws: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""A loss of margins that is drawn anew each time: only its slopes are, calibrated ones (EnsLoss).

    $\overline{g_k m_k}$, $m_k = (2 t_k - 1)\, s_k$, with constants g as slopes: $g = \max(-B^{-1}_\lambda(n), -1)$ of
    normal draws n, with B the Box-Cox transform; the lowest slope goes to the lowest margin. Where m > 1, g is divided
    by m. Then 1e-6 is subtracted.

    All slopes are below 0, at least about -1, and do not fall up to m = 1; equal margins get theirs in any order. The
    value itself means nothing; only its gradient counts.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        shape: $\lambda$; None: drawn from -1 to 1 each time (the paper keeps one for ten epochs).
        draws: normal numbers, as many as there are margins; None: drawn.
        generator: of the draws; None: torch's.

    >>> ensloss(torch.tensor([[2.0]]), torch.tensor([[1]]), shape=0.0, draws=torch.tensor([-1.0]))
    tensor(-0.3679)
    """
    with torch.no_grad():
        flat = _margins(rows)
        flat = flat.flatten() if rows.valid is None else flat[rows.valid]
        if draws is not None and draws.numel() != len(flat):
            raise ValueError(f"draws: expected a number for each of {len(flat)} margins, got {draws.numel()}")
        if draws is None:
            n = torch.randn(len(flat), generator=generator, dtype=flat.dtype, device=flat.device)
        else:
            n = draws.detach().reshape(-1).to(flat.dtype, copy=True)
        if shape is None:
            shape = float(torch.rand((), generator=generator, device=flat.device)) * 2 - 1
        power = check_number("shape", shape)
        slopes = n.exp_() if power == 0 else n.mul_(power).add_(1).clamp_(min=0).pow_(1 / power)
        slopes = slopes.neg_().clamp_(min=-1).sort().values
        order = flat.argsort()
        flat[order] = slopes / flat[order].clamp(min=1) - 1e-6
        if rows.valid is not None:
            flat = torch.zeros_like(rows.scores).masked_scatter_(rows.valid, flat)
        slope = flat.view_as(rows.scores).mul_(rows.target.mul(2).sub_(1))
    return rows.mean(slope * rows.scores)


def _correlated(labels: Tensor, hyper: dict[str, Any]) -> dict[str, Any]:
    """The correlation of the labels of a batch, where none is given."""
    return hyper if hyper.get("correlation") is not None else {**hyper, "correlation": label_phi(labels)}


@_class_loss(
    "label_correlation",
    "several-labels",
    paper="Improving Arabic Multi-Label Emotion Classification using Stacked Embeddings and Hybrid Loss Function",
    verified="numpy in float64; reconstructed: of the paper only the parts are certain, not their formulas",
    of_batch=_correlated,
)
def label_correlation(
    rows: ClassScores, *, correlation: Tensor | None = None, class_weight: Tensor | None = None, factor: float = 0.1
) -> Tensor:
    r"""Cross-entropy of each label, and probabilities of labels that go together alike.

    $\overline{w_l\, BCE(t_l, q_l)} + \lambda \frac{\sum R^+_{lm} (q_l - q_m)^2 + R^-_{lm} (q_l + q_m - 1)^2}{\sum
    |R_{lm}|}$, $q = \sigma(s)$; R is the correlation of labels l and m, without its diagonal.

    Reconstructed: of the paper's hybrid loss only the three parts are certain. The third is "supcon" with the
    relation :func:`vicinal.relation.shared_labels`, added as a loss of embeddings.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        correlation: R, ``[K, K]``, such as :func:`label_phi` of the training labels; None: of this batch.
        class_weight: w, ``[K]``, >= 0, such as one less the share of each; None: all 1.
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
    if correlation is None or correlation.shape != (size, size):
        raise ValueError(f"correlation: expected [{size}, {size}], got {getattr(correlation, 'shape', None)}")
    relation = correlation.to(terms.dtype).clone().fill_diagonal_(0)
    counts = torch.ones_like(terms[:1]) if rows.valid is None else rows.valid.to(terms.dtype)
    sure = torch.sigmoid(rows.scores)
    apart, mass = _apart(sure * counts, counts, relation)
    return rows.mean(terms) + factor * apart / torch.where(mass > 0, mass, 1.0)


def _apart(q: Tensor, counts: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
    r"""$\sum R^+_{lm} (q_l - q_m)^2 + R^-_{lm} (q_l + q_m - 1)^2$ of each row over classes that count; $\sum |R_{lm}|$.

    The products of both sums are one, $-2 q^\top R q$; what is left needs sums of the relation alone.
    """
    parts = (part for sign in (-1, 1) for part in [(sign * relation).clamp_(min=0)])
    lows, highs = (counts @ part + counts @ part.T for part in parts)
    alone = (q.square() * highs + ((q - 0.5).square() - q) * lows * counts).sum(-1)
    apart = alone - 2 * ((q @ relation) * q).sum(-1) + (lows * counts).sum(-1) / 4
    return apart, ((lows + highs) * counts).sum(-1) / 2


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
