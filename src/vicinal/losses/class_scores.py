"""Losses of the scores of classes for one class a row: cross-entropy and what lies around it."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vicinal.core.checks import check_between, check_integer
from vicinal.losses.class_contract import ClassScores, bounded_exp, check_row_numbers, class_loss
from vicinal.losses.ranges import NonNegative, Positive

CLASSES: dict[str, Any] = {"family": "class scores"}
LDR_CODE = "values of the code of arXiv:2112.14869, value and gradient in float64"
LDR_PAPER = "arXiv:2112.14869"


def _comp_sum(loss: Tensor, tau: float) -> Tensor:
    """Phi of ``loss = log(1 + u)``."""
    power = 1 - check_between("tau", tau, 0, math.inf, closed=True)
    x = power * loss
    if abs(power) < 1e-6:
        return loss * (1 + x / 2)
    return torch.where(x > 1, bounded_exp(x) - 1, x.clamp(max=1).expm1()) / power


@class_loss(
    "comp_sum", "score-shift-invariant", **CLASSES, paper="arXiv:2304.07288", verified=f"numpy in float64; {LDR_CODE}"
)
def comp_sum(rows: ClassScores, *, tau: float = 1.0, rho: float = 1.0) -> Tensor:
    r"""The comp-sum family: from a sum of exponentials over cross-entropy to the mean absolute error.

    $\Phi^\tau(u) = \frac{(1 + u)^{1 - \tau} - 1}{1 - \tau}$, $u = \sum_{k \ne y} e^{(s_k - s_y)/\rho}$; for $\tau = 1$
    $\log(1 + u)$. With $\rho = 1$, $1 + u = 1/p_y$.

    $\tau = 0$ is the sum of exponentials (beyond $e^{60}$ a straight line), 1 cross-entropy, $1 + q$ the generalized
    cross-entropy $(1 - p_y^q)/q$, 2 is $1 - p_y$. With $\rho = 1$ the gradient is that of cross-entropy times
    $p_y^{\tau - 1}$: for $\tau > 1$, rows that look mislabelled count less.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        tau: >= 0.
        rho: > 0, divides the scores.

    >>> comp_sum(torch.zeros(1, 4), torch.tensor([0]), tau=2.0)
    tensor(0.7500)
    """
    scaled = rows.scores if check_between("rho", rho, 0, math.inf) == 1 else rows.scores / rho  # without another matrix
    return _comp_sum(rows.cross_entropy(scaled), tau)


@class_loss(
    "smooth_adversarial",
    "score-shift-invariant",
    "perturbed-scores",
    **CLASSES,
    paper="arXiv:2304.07288",
    verified="numpy in float64; reconstructed from memory of the paper",
)
def smooth_adversarial(
    rows: ClassScores, *, perturbed: Tensor, tau: float = 1.0, rho: float = 1.0, nu: NonNegative = 1.0
) -> Tensor:
    r"""The comp-sum loss, and how far the gaps of the scores move with the inputs.

    $\Phi^\tau + \nu\, \|\Delta(x') - \Delta(x)\|_2$ with $\Delta_k = s_y - s_k$ and perturbed inputs $x'$.

    Reconstructed from memory of the paper; details may differ. :func:`worst_inputs` finds x'.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        perturbed: ``[b, K]``, the scores of the perturbed inputs.
        tau: as in :func:`comp_sum`.
        rho: likewise.
        nu: >= 0, in the order of 1 to 10.

    >>> scores = torch.tensor([[1.0, 0.0]])
    >>> smooth_adversarial(scores, torch.tensor([0]), perturbed=scores - torch.eye(2)[:1])
    tensor(1.3133)
    """
    value = _comp_sum(rows.cross_entropy(rows.scores / check_between("rho", rho, 0, math.inf)), tau)
    if perturbed.ndim != 2 or perturbed.shape[1] != rows.scores.shape[1]:
        raise ValueError(f"perturbed: expected the shape of the scores, got {tuple(perturbed.shape)}")
    moved = rows.hidden(perturbed.to(rows.scores.dtype)[rows.row] - rows.scores, 0.0)
    distance: Tensor = torch.linalg.vector_norm(rows.hidden(moved - rows.of_target(moved)[:, None], 0.0), dim=-1)
    return value + nu * distance


def worst_inputs(
    network: Callable[[Tensor], Tensor],
    inputs: Tensor,
    target: Tensor,
    *,
    radius: float,
    steps: int = 10,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Inputs within ``radius`` of the given ones, in each number, that move the gaps of the scores most.

    Takes n steps of $2.5\,\gamma / n$ along the sign of the gradient, projected back into the box each time, from a
    random start.

    Args:
        network: from inputs to scores ``[b, K]``.
        inputs: ``[b, ...]``.
        target: classes ``[b]``.
        radius: $\gamma \ge 0$.
        steps: n >= 1.
        generator: of the start.

    Returns:
        Of the shape of ``inputs``, without gradient.

    >>> worst_inputs(lambda x: x, torch.zeros(1, 2), torch.tensor([0]), radius=0.5).abs()
    tensor([[0.5000, 0.5000]])
    """
    check_between("radius", radius, 0, math.inf, closed=True), check_integer("steps", steps)
    inputs = inputs.detach()
    with torch.no_grad():
        scores = network(inputs)
    start = torch.rand(inputs.shape, generator=generator, dtype=inputs.dtype, device=inputs.device) * 2 - 1
    offset = radius * start
    for _ in range(steps):
        offset.requires_grad_()
        with torch.enable_grad():
            moved = network(inputs + offset) - scores
            gaps = (moved - moved.gather(1, target[:, None])).square().sum()
            (slope,) = torch.autograd.grad(gaps, offset)
        offset = (offset.detach() + 2.5 * radius / steps * slope.sign()).clamp(-radius, radius)
    return inputs + offset


@class_loss(
    "z_loss",
    "score-shift-invariant",
    "score-scale-invariant",
    **CLASSES,
    paper="arXiv:1604.08859",
    verified="numpy in float64",
)
def z_loss(rows: ClassScores, *, sharpness: Positive = 1.0, location: float = 0.0) -> Tensor:
    r"""The standardized score of the class above a place, softly: neither a shift nor a scale of the scores helps.

    $\frac1a \log(1 + e^{a (b - z_y)})$, $z = (s - \mu)/\sigma$ with mean and deviation over the classes of the row.

    A row whose scores are all equal has z = 0, and its gradient is taken with $\sigma = 1$.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        sharpness: a > 0; for large ones it is $[b - z_y]_+$.
        location: b, the z to reach; z is at most $\sqrt{K - 1}$.

    >>> z_loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.3133)
    """
    centered = rows.hidden(rows.scores - rows.mean(rows.scores)[:, None], 0.0)
    top = centered.detach().abs().amax(-1, keepdim=True)
    centered = centered / torch.where(top > 0, top, 1.0)  # squares of large scores would overflow
    variance = rows.mean(centered.square())
    z = rows.of_target(centered) * torch.where(variance > 0, variance, 1.0).rsqrt()
    return nn.functional.softplus(sharpness * (location - z)) / sharpness


def _rescaled(rows: ClassScores) -> Tensor:
    """Softplus of the scores over its mean in the row, as in the program of the LDR losses."""
    positive = nn.functional.softplus(rows.scores)
    mean = rows.mean(positive)[:, None]
    return positive / torch.where(mean > 0, mean, 1.0)


def _log_mean_exp(rows: ClassScores, gaps: Tensor, temperature: Tensor | float) -> Tensor:
    if isinstance(temperature, Tensor):
        gaps = gaps / temperature[:, None]
    elif temperature != 1:
        gaps = gaps / temperature
    return temperature * (gaps.logsumexp(-1) - rows.count.log())


@class_loss("ldr_kl", **CLASSES, paper=LDR_PAPER, verified=LDR_CODE)
def ldr_kl(
    rows: ClassScores, *, temperature: float = 1.0, margin: NonNegative = 2.0, normalize: bool = False
) -> Tensor:
    r"""The worst case over distributions of wrong labels, held near the uniform one by a divergence (LDR-KL).

    $\lambda \log \frac1K \sum_k e^{(s_k - s_y + c\,[k \ne y])/\lambda}$.

    With $\lambda = 0$ it is the hinge of Crammer and Singer, the largest gap; at infinity the mean gap; at 1 with
    margin 0 cross-entropy minus log K.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        temperature: $\lambda \ge 0$, infinity too.
        margin: c >= 0.
        normalize: first replace the scores by their softplus divided by its mean in the row, as the paper's code does.

    >>> ldr_kl(torch.zeros(1, 4), torch.tensor([0]), temperature=0.0, margin=1.0)
    tensor(1.)
    """
    gaps = rows.gaps(margin, _rescaled(rows) if normalize else None)
    if temperature == math.inf:
        return rows.mean(gaps)
    if check_between("temperature", temperature, 0, math.inf, closed=True) == 0:
        return gaps.max(-1).values
    return _log_mean_exp(rows, gaps, temperature)


@class_loss(
    "ldr_k",
    "score-shift-invariant",
    **CLASSES,
    paper=LDR_PAPER,
    verified="numpy in float64; reconstructed from memory of the paper",
)
def ldr_k(rows: ClassScores, *, k: int = 2, margin: NonNegative = 1.0) -> Tensor:
    r"""The worst case over distributions of wrong labels with at most 1/k on each: a hinge of the top k.

    $\frac1k \sum$ of the k largest $s_j - s_y + c\,[j \ne y]$, the target's 0 among them.

    Reconstructed from memory of the paper; details may differ. With k = 1 it is the hinge of Crammer and Singer, with k
    = K the mean.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        k: at least 1; more than K counts as K.
        margin: c >= 0.

    >>> ldr_k(torch.tensor([[0.0, 1.0, -3.0]]), torch.tensor([0]), k=2)
    tensor(1.)
    """
    most = min(check_integer("k", k), rows.scores.shape[1])
    top = rows.gaps(margin).topk(most, dim=-1).values
    counted = torch.arange(most, device=top.device) < rows.count[:, None]
    return torch.where(counted, top, 0.0).sum(-1) / counted.sum(-1)


@class_loss("aldr_kl", "stopped-gradient", **CLASSES, paper=LDR_PAPER, verified=LDR_CODE)
def aldr_kl(
    rows: ClassScores,
    *,
    temperatures: Tensor | None = None,
    temperature: float = 1.0,
    margin: NonNegative = 2.0,
    alpha: float = 2.0,
    normalize: bool = True,
) -> Tensor:
    r"""LDR-KL with a temperature for each row: the lower, the surer the row's prediction (ALDR-KL).

    $\mathrm{LDR}_{\lambda_i} - \frac{\alpha \log K}{2 \lambda_0} (\lambda_i - \lambda_0)^2$ with
    $\lambda_i = \lambda_0 - \frac{\lambda_0}{\alpha \log K} KL(p_i \| \tfrac1K)$.

    $p = \mathrm{softmax}(s/\lambda)$ at the previous temperatures, plus 1e-5. Temperatures pass no gradient and lie
    between $\lambda_0 (1 - 1/\alpha)$ and $\lambda_0$. :class:`ALDRKL` remembers them by row.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        temperatures: ``[b]``, the previous ones; None: ``temperature`` for all.
        temperature: $\lambda_0 > 0$.
        margin: c >= 0.
        alpha: > 1; a large one fixes the temperatures at $\lambda_0$.
        normalize: as in :func:`ldr_kl`.

    >>> aldr_kl(torch.zeros(1, 4), torch.tensor([0]))  # of a uniform prediction
    tensor(1.7564)
    """
    scores = _rescaled(rows) if normalize else rows.scores
    before = None if temperatures is None else temperatures.to(scores.dtype)[rows.row]
    after = _temperatures(rows, scores, before, temperature, alpha)
    pull = alpha * rows.count.log() / (2 * temperature)
    return _log_mean_exp(rows, rows.gaps(margin, scores), after) - pull * (after - temperature).square()


@torch.no_grad()
def _temperatures(rows: ClassScores, scores: Tensor, before: Tensor | None, temperature: float, alpha: float) -> Tensor:
    check_between("temperature", temperature, 0, math.inf), check_between("alpha", alpha, 1, math.inf)
    logits = scores / (temperature if before is None else before[:, None])
    p = rows.hidden(rows.hidden(logits, -torch.inf).softmax(-1).add_(1e-5), 0.0)
    p = p.div_(p.sum(-1, keepdim=True))
    most = rows.count.log()
    divergence = (p.clamp(min=1e-30).log_() * p).sum(-1) + most
    return temperature * (1 - divergence / torch.where(most > 0, alpha * most, 1.0))


class ALDRKL(nn.Module):
    """:func:`aldr_kl` of rows that come again, each with the temperature of its last time.

    Args:
        rows: number of training rows; ids run from 0.
        temperature: as in :func:`aldr_kl`, and the start of all.
        margin: likewise.
        alpha: likewise.
        normalize: likewise.

    Attributes:
        temperatures: ``[rows]``, a buffer that checkpoints keep.

    >>> loss = ALDRKL(3)
    >>> value = loss(torch.tensor([[5.0, 0.0]]), torch.tensor([0]), torch.tensor([1]))
    >>> loss.temperatures
    tensor([1.0000, 0.8405, 1.0000])
    """

    def __init__(
        self, rows: int, *, temperature: float = 1.0, margin: float = 2.0, alpha: float = 2.0, normalize: bool = True
    ) -> None:
        super().__init__()
        self.settings = {"temperature": temperature, "margin": margin, "alpha": alpha, "normalize": normalize}
        self.temperatures: Tensor = nn.Buffer(torch.full((check_integer("rows", rows),), float(temperature)))

    def forward(self, scores: Tensor, target: Tensor, ids: Tensor, *, reduction: str = "mean") -> Tensor:
        """The loss of ``scores [b, K]`` with classes ``[b]`` of the rows ``ids [b]``, whose temperatures it updates.

        Raises:
            ValueError: for an id that is out of range, or twice in a batch.
        """
        check_row_numbers(ids, len(scores), len(self.temperatures))
        before = self.temperatures[ids].to(torch.promote_types(scores.dtype, torch.float32))
        value = aldr_kl(scores, target, temperatures=before, reduction=reduction, **self.settings)
        if self.training:
            wide = scores.detach().to(before.dtype)
            rows = ClassScores(wide, target, None, torch.arange(len(ids), device=ids.device))
            wide = _rescaled(rows) if self.settings["normalize"] else wide
            after = _temperatures(rows, wide, before, self.settings["temperature"], self.settings["alpha"])
            self.temperatures[ids] = after.to(self.temperatures.dtype)
        return value


@class_loss("truncated_gce", "score-shift-invariant", **CLASSES, paper="arXiv:1805.07836", verified=LDR_CODE)
def truncated_gce(rows: ClassScores, *, q: float = 0.7, cutoff: float = 0.3) -> Tensor:
    r"""Generalized cross-entropy that leaves rows below a probability alone.

    $(1 - \max(p_y, k)^q)/q$; without the cutoff it is :func:`comp_sum` with $\tau = 1 + q$.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        q: in (0, 1].
        cutoff: k in (0, 1).

    >>> truncated_gce(torch.zeros(1, 4), torch.tensor([0]), q=1.0)
    tensor(0.7000)
    """
    check_between("q", q, 0, 1 + 1e-12), check_between("cutoff", cutoff, 0, 1)
    return -(-q * rows.cross_entropy(rows.scores).clamp(max=-math.log(cutoff))).expm1() / q


@class_loss("js_loss", "score-shift-invariant", **CLASSES, paper="arXiv:2105.04522", verified=LDR_CODE)
def js_loss(rows: ClassScores, *, share: float = 0.5) -> Tensor:
    r"""Jensen-Shannon divergence of label and prediction, scaled between cross-entropy and absolute error.

    $\frac{\pi\, KL(e_y \| m) + (1 - \pi)\, KL(p \| m)}{-(1 - \pi) \log(1 - \pi)}$, $m = \pi e_y + (1 - \pi) p$.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        share: $\pi$ in (0, 1).

    >>> js_loss(torch.tensor([[0.0, -100.0]]), torch.tensor([1]))
    tensor(2.)
    """
    rest = 1 - check_between("share", share, 0, 1)
    loss = rows.cross_entropy(rows.scores)
    p = (-loss).exp()
    log_mixed = (share + rest * p).log()
    of_prediction = p * (-loss - log_mixed) - (1 - p) * math.log(rest)
    return (-share * log_mixed + rest * of_prediction) / (-rest * math.log(rest))


@class_loss("symmetric_ce", "score-shift-invariant", **CLASSES, paper="arXiv:1908.06112", verified=LDR_CODE)
def symmetric_ce(
    rows: ClassScores, *, alpha: NonNegative = 0.5, beta: NonNegative = 0.5, scale: NonNegative = 4.0
) -> Tensor:
    r"""Cross-entropy, and that of the label under the prediction, which noise in the labels moves less.

    $-\alpha \log p_y + \beta A (1 - p_y)$, where -A stands for log 0.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        alpha: >= 0.
        beta: >= 0.
        scale: A >= 0.

    >>> symmetric_ce(torch.zeros(1, 4), torch.tensor([0]))
    tensor(2.1931)
    """
    loss = rows.cross_entropy(rows.scores)
    return alpha * loss - beta * scale * (-loss).expm1()


Passive = Literal["none", "agce", "aul", "rce"]


@class_loss("normalized_ce", "score-shift-invariant", **CLASSES, paper="arXiv:2106.03110", verified=LDR_CODE)
def normalized_ce(rows: ClassScores, *, passive: Passive = "agce", a: float = 3.0, q: float = 1.5) -> Tensor:
    r"""Cross-entropy over its sum for all labels, which bounds it, plus a bounded loss of the other classes.

    $\frac{\log p_y}{\sum_k \log p_k}$ plus "agce" $\frac{(a + 1)^q - (a + p_y)^q}{q}$, "aul" $\frac{(a - p_y)^q - (a -
    1)^q}{q}$, or "rce" $\log(10^4) \sum_{k \ne y} p_k$.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        passive: what is added, or "none".
        a: > 0 for "agce", > 1 for "aul" (6 in its paper).
        q: > 0.

    >>> normalized_ce(torch.zeros(1, 4), torch.tensor([0]), passive="none")
    tensor(0.2500)
    """
    check_between("q", q, 0, math.inf), check_between("a", a, 1.0 if passive == "aul" else 0.0, math.inf)
    logs = rows.hidden(rows.scores, -torch.inf).log_softmax(-1)
    total, loss = -rows.hidden(logs, 0.0).sum(-1), -rows.of_target(logs)
    value, p = loss / torch.where(total > 0, total, 1.0), (-loss).exp()
    if passive == "agce":
        value = value + ((a + 1) ** q - (a + p).pow(q)) / q
    elif passive == "aul":
        value = value + ((a - p).pow(q) - (a - 1) ** q) / q
    elif passive == "rce":
        others = logs.exp().clamp(1e-7, 1.0).scatter(1, rows.target[:, None], 0.0)
        value = value + math.log(1e4) * rows.hidden(others, 0.0).sum(-1)
    return value


@class_loss("weston_watkins", "score-shift-invariant", **CLASSES, paper="Weston and Watkins 1999", verified=LDR_CODE)
def weston_watkins(rows: ClassScores, *, margin: float = 1.0) -> Tensor:
    r"""A hinge for each wrong class.

    $\frac1K \sum_{k \ne y} [c + s_k - s_y]_+$, over all K classes.

    Args:
        rows: ``scores``, ``target``, ``weight``, ``valid`` and ``reduction``; see :class:`ClassLoss`.
        margin: c >= 0.

    >>> weston_watkins(torch.zeros(1, 4), torch.tensor([0]))
    tensor(0.7500)
    """
    return rows.mean(rows.gaps(check_between("margin", margin, 0, math.inf, closed=True)).relu())
