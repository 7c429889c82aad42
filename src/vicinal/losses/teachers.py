"""Losses of scores and a teacher's scores, ``f(scores, teacher_scores, weight=None, *, reduction="mean")``.

No gradient passes to a teacher. A model's own earlier predictions, which :class:`PredictionMemory` keeps, can be a
teacher too.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vicinal.blockwise import policy
from vicinal.blockwise.blocks import row_slices
from vicinal.core import check_choice, register
from vicinal.core.checks import check_between, check_integer, check_number, check_tensor
from vicinal.losses.class_contract import check_row_numbers
from vicinal.losses.contract import PAPER_CODE, check_reduction, reduce, take_settings
from vicinal.losses.ranges import Count, Positive, Share
from vicinal.transport import sinkhorn


def _both(scores: Tensor, teacher_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float32 or wider, the teacher's without gradient."""
    for name, value in (("scores", scores), ("teacher_scores", teacher_scores)):
        if check_tensor(name, value).ndim != 2 or not value.is_floating_point():
            raise ValueError(f"{name}: expected floating numbers [b, K], got {value.dtype} {tuple(value.shape)}")
    if scores.shape != teacher_scores.shape or not scores.shape[1]:
        raise ValueError(
            f"teacher_scores: expected the shape of the scores, {tuple(scores.shape)}, got "
            f"{tuple(teacher_scores.shape)}"
        )
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return scores.to(dtype), teacher_scores.detach().to(dtype)


Formula = Callable[..., Tensor]


def teacher_loss(name: str, *facts: str, paper: str, verified: str) -> Callable[[Formula], Formula]:
    """Make and register ``f(scores, teacher_scores, weight=None, *, reduction="mean", **settings)`` from its formula.

    The formula is ``(student, taught, **settings) -> [b]``, the values of rows of both scores ``[b, K]`` in float32 or
    wider. Of the function ``weight [b]`` is >= 0, and ``reduction`` "mean", "sum", "none" or "mean_nonzero".

    Args:
        name: how users name it.
        facts: what it declares.
        paper: where it comes from.
        verified: what it was checked against.
    """

    def make(formula: Formula) -> Formula:
        @functools.wraps(formula)
        def loss(
            scores: Tensor,
            teacher_scores: Tensor,
            weight: Tensor | None = None,
            *,
            reduction: str = "mean",
            **hyper: Any,
        ) -> Tensor:
            check_reduction(reduction), check_settings(hyper)
            both = _both(scores, teacher_scores)
            with torch.autocast(scores.device.type, enabled=False):
                return reduce(formula(*both, **hyper), weight, None, reduction)

        check_settings = take_settings(loss, formula, 2)
        return register("teacher_loss", name, *facts, family="teachers", paper=paper, verified=verified)(loss)

    return make


@teacher_loss(
    "kl_top",
    "score-shift-invariant",
    paper="arXiv:2501.13987",
    verified="numpy in float64; reconstructed from memory of the paper; without k the paper's code of arXiv:2205.14083",
)
def kl_top(student: Tensor, taught: Tensor, *, k: int | None = None, temperature: Positive = 1.0) -> Tensor:
    r"""Divergence from the teacher's probabilities, over its k highest classes alone (KL-Top).

    $T^2\, KL(q \| p)$, q and p the softmax of the scores of teacher and student over T among the teacher's k highest.

    Reconstructed from memory of the paper; details may differ. Without k it is the usual distillation. The factor $T^2$
    keeps the size of the gradient the same at any temperature. Scores of other classes have no gradient, so add a loss
    of all classes if they matter.

    Args:
        student: ``scores``, ``weight`` and ``reduction``; see :func:`teacher_loss`.
        taught: ``teacher_scores``.
        k: 1 to K, among equal scores the first; None: all.
        temperature: T > 0.

    >>> kl_top(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, -9.0]]), k=2)
    tensor(0.1109)
    """
    if k is not None and check_integer("k", k, 1, student.shape[1]) < student.shape[1]:
        top = _highest(taught, k)
        student, taught = student.gather(1, top), taught.gather(1, top)
    if temperature != 1:
        student, taught = student / temperature, taught / temperature
    student, taught = student.log_softmax(-1), taught.log_softmax(-1)
    return temperature**2 * (taught.exp() * (taught - student)).sum(-1)


def _highest(scores: Tensor, k: int) -> Tensor:
    """Places of the k highest of each row, of equal ones the first."""
    top = scores.topk(k + 1, dim=1)
    if bool((top.values[:, -2] == top.values[:, -1]).any()):
        return scores.argsort(dim=1, descending=True, stable=True)[:, :k]
    return top.indices[:, :k]


@teacher_loss(
    "ranknet", "score-shift-invariant", paper="arXiv:2404.06912", verified="numpy in float64, from the paper's code"
)
def ranknet(student: Tensor, taught: Tensor, *, duplicates: Tensor | None = None) -> Tensor:
    r"""Columns in the order of the teacher, pair by pair, and of duplicates only one is good (RankNet).

    $\mathrm{mean}_{t_j > t_k} \log(1 + e^{-(s_j - s_k)})$ over the pairs of a row that the teacher tells apart.

    Among duplicates the column with the highest score gets the best of their targets, the others 0, or less if a target
    is less: a repetition is worth nothing. Rows with all targets equal give 0.

    Args:
        student: ``scores`` s, ``weight`` and ``reduction``; see :func:`teacher_loss`.
        taught: ``teacher_scores`` t: grades or scores; for a ranking, n + 1 minus the rank, so 1 for the last.
        duplicates: int ``[b, n]``: columns of a row with the same number, >= 0, are duplicates; a column with a
            negative number has none.

    >>> ranknet(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0]]), duplicates=torch.tensor([[4, 4, -1]]))
    tensor(0.2201)
    """
    size = max(1, policy().block_entries // student.shape[1] ** 2)  # all pairs of columns of a block are looked at
    slices = row_slices(len(student), size)
    if duplicates is not None:
        _check_duplicates(duplicates, student)
        taught = torch.cat([_one_of_each(student[r].detach(), taught[r], duplicates[r]) for r in slices])
    spoiled = taught.isnan().any(dim=1)  # it is before nothing, and nothing is before it
    values = torch.cat([checkpoint(_ranknet, student[r], taught[r], use_reentrant=False) for r in slices])
    return values.masked_fill(spoiled, torch.nan)


def _check_duplicates(duplicates: Tensor, scores: Tensor) -> None:
    if duplicates.shape != scores.shape or duplicates.is_floating_point() or duplicates.is_complex():
        raise ValueError(
            f"duplicates: expected integers {tuple(scores.shape)}, got {duplicates.dtype} {tuple(duplicates.shape)}"
        )


def _one_of_each(scores: Tensor, taught: Tensor, duplicates: Tensor) -> Tensor:
    """The teacher's scores with the best of duplicates at the one of highest score, of equal ones the first."""
    least = taught.amin(dim=1, keepdim=True).clamp(max=0)
    order = scores.argsort(dim=1, descending=True, stable=True)
    ranked, targets = duplicates.gather(1, order), taught.gather(1, order)
    same = (ranked[:, :, None] == ranked[:, None]) & (ranked >= 0)[:, None]  # [b, n, n], symmetric
    best = torch.where(same, targets[:, None], -torch.inf).amax(dim=2)
    repeats = same.tril(-1).any(dim=2)
    renewed = torch.where(repeats, least, torch.where(ranked >= 0, best, targets))
    return torch.empty_like(taught).scatter(1, order, renewed)


def _ranknet(scores: Tensor, taught: Tensor) -> Tensor:
    """RankNet of each row, ``[r]``."""
    ahead = taught[:, :, None] > taught[:, None]  # [r, n, n]: j before k
    costs = nn.functional.softplus(scores[:, None] - scores[:, :, None])
    return torch.where(ahead, costs, 0.0).sum(dim=(1, 2)) / ahead.sum(dim=(1, 2)).clamp(min=1)


@teacher_loss("ar2", "score-shift-invariant", paper="arXiv:2110.03611", verified=PAPER_CODE)
def ar2(
    student: Tensor,
    taught: Tensor,
    *,
    balance: Share = 0.5,
    temperature: Positive = 1.0,
    divisor: Positive = 1.0,
    floor: Share = 0.0,
) -> Tensor:
    r"""A retriever against a ranker: to agree with it, and to find what it cannot tell from the related column.

    $\lambda \sum_j \log \sigma(g_0 - g_j) \log p_j - (1 - \lambda) \sum_j \mathrm{softmax}(g/T)_j \log p_j$ with $p =
    \mathrm{softmax}(s/c)$ and the ranker's scores g; column 0 is the related one.

    The second half alone is "supcon" with the relation $\mathrm{softmax}(g/T)$. The ranker itself trains by
    cross-entropy. The paper's code sums the first half over rows and takes the mean of the second.

    Args:
        student: ``scores`` s of the related column 0 and of others, ``weight`` and ``reduction``; see
            :func:`teacher_loss`.
        taught: ``teacher_scores`` g.
        balance: $\lambda$ in [0, 1].
        temperature: T > 0.
        divisor: c > 0, such as the root of the width of the embeddings.
        floor: from 0 to 1, added to probabilities before a logarithm (1e-7 in the paper's code); 0 is safe here.

    >>> ar2(torch.zeros(1, 2), torch.zeros(1, 2), balance=0.0)
    tensor(0.6931)
    """
    logs, ahead = (student / divisor).log_softmax(-1), nn.functional.logsigmoid(taught[:, :1] - taught)
    if floor:
        logs, ahead = (logs.exp() + floor).log(), (ahead.exp() + floor).log()
    agreed = -((taught / temperature).softmax(-1) * logs).sum(-1)
    return balance * (ahead * logs).sum(-1) + (1 - balance) * agreed


@teacher_loss("sinkhorn_distillation", paper="arXiv:2402.17110", verified=PAPER_CODE)
def sinkhorn_distillation(
    student: Tensor,
    taught: Tensor,
    *,
    temperature: Positive = 2.0,
    softness: Positive = 0.1,
    steps: Count = 20,
    debiased: bool = False,
) -> Tensor:
    r"""The cost of moving the rows' predictions to those of a teacher, whichever row they are of.

    $\sum_{ij} P_{ij} M_{ij}$, $M_{ij} = \|\mathrm{softmax}(s_i/T) - \mathrm{softmax}(g_j/T)\|_1$, where P is the plan
    between rows and columns of mass 1, by Sinkhorn's iterations at $\epsilon$.

    The value of a row is its share of the sum. It is not 0 for equal scores: ``debiased`` subtracts half the cost of
    each side against itself. The paper adds 0.0008 times the sum to cross-entropy and divergence.

    Args:
        student: ``scores``, ``weight`` of the values (all rows are in the plan) and ``reduction``; see
            :func:`teacher_loss`.
        taught: ``teacher_scores``.
        temperature: T > 0.
        softness: $\epsilon > 0$; towards 0 the plan is the best assignment.
        steps: number of iterations, each over rows and then columns.
        debiased: see above.

    >>> sinkhorn_distillation(torch.tensor([[0.0, 0.0]]), torch.tensor([[100.0, 0.0]]))
    tensor(1.)
    """
    student, taught = ((each / temperature).softmax(-1) for each in (student, taught))
    rows = _moved(student, taught, softness, steps)
    if debiased:
        rows = rows - (_moved(student, student, softness, steps) + _moved(taught, taught, softness, steps)) / 2
    return rows


def _moved(one: Tensor, other: Tensor, softness: float, steps: int) -> Tensor:
    """What each row costs, ``[b]``."""
    if not len(one):
        return one.sum(-1)
    costs = torch.cdist(one, other, p=1)
    mass = torch.ones_like(costs[0])
    plan = sinkhorn(-costs.mT, mass, mass, temperature=softness, steps=steps, tolerance=0.0).mT
    return (plan * costs).sum(-1)


@teacher_loss(
    "mixed_labels",
    "score-shift-invariant",
    paper="arXiv:2006.12000",
    verified="numpy in float64; the paper's code, read",
)
def mixed_labels(student: Tensor, taught: Tensor, *, target: Tensor, share: Share = 0.8) -> Tensor:
    r"""Cross-entropy to labels that are in part a prediction, a teacher's or the model's of an epoch ago (PS-KD).

    $-\sum_k \tilde y_k \log \mathrm{softmax}(s)_k$, $\tilde y = (1 - \alpha)\, e_y + \alpha\, \mathrm{softmax}(g)$.

    :class:`SelfDistillation` keeps the memory and lets $\alpha$ grow.

    Args:
        student: ``scores``, ``weight`` and ``reduction``; see :func:`teacher_loss`.
        taught: ``teacher_scores`` g; where a row is NaN the teacher says nothing, and the label counts in full.
        target: y, classes ``[b]``.
        share: $\alpha$ in [0, 1].

    >>> mixed_labels(torch.zeros(1, 2), torch.tensor([[9.0, 0.0]]), target=torch.tensor([1]))
    tensor(0.6931)
    """
    if target.shape != student.shape[:1] or target.is_floating_point():
        raise ValueError(f"target: expected classes [{len(student)}], got {target.dtype} {tuple(target.shape)}")
    if len(target) and not 0 <= int(target.min()) <= int(target.max()) < student.shape[1]:
        raise ValueError(f"target: expected classes 0 to {student.shape[1] - 1}, got others")
    column, silent = target[:, None], taught.amax(-1).isnan()
    soft = taught.softmax(-1)
    if bool(silent.any()):
        soft[silent] = nn.functional.one_hot(column[silent, 0], soft.shape[1]).to(soft.dtype)
    labels = soft.mul_(share).scatter_add_(1, column, torch.full_like(soft[:, :1], 1 - share))
    return -(labels * student.log_softmax(-1)).sum(-1)


@register(
    "teacher_loss",
    "member_diversity",
    "score-shift-invariant",
    family="teachers",
    paper="arXiv:2105.14275",
    verified="numpy in float64; the paper's code, read",
)
def member_diversity(
    scores: Tensor, teacher_scores: Tensor, weight: Tensor | None = None, *, strength: float = 1.0
) -> Tensor:
    r"""A member of an ensemble that predicts otherwise than the members before it, on rows that need no labels.

    $\log \sum_j e^{-\frac{\lambda}{K} \overline{\|p_i - q_{ji}\|^2}}$ over earlier members j, p and q their softmax.

    Add it to cross-entropy. It is the log of their number where all are equal, and less by up to $2 \lambda / K$
    elsewhere.

    Args:
        scores: ``[b, K]``, of the member that trains.
        teacher_scores: ``[b, K]`` of one earlier member, or ``[m, b, K]``.
        weight: >= 0, ``[b]``, of the rows in the mean.
        strength: $\lambda \ge 0$.

    >>> member_diversity(torch.tensor([[99.0, 0.0]]), torch.tensor([[[0.0, 99.0]], [[99.0, 0.0]]]))
    tensor(0.3133)
    """
    check_between("strength", strength, 0, math.inf, closed=True)
    before = teacher_scores if check_tensor("teacher_scores", teacher_scores).ndim == 3 else teacher_scores[None]
    if not len(before):
        raise ValueError("teacher_scores: expected at least one earlier member, got none")
    with torch.autocast(scores.device.type, enabled=False):
        gaps = []
        for each in before:
            student, earlier = _both(scores, each)
            gap = (student.softmax(-1) - earlier.softmax(-1)).square().sum(-1)
            gaps.append(reduce(gap, weight, None, "mean"))
        return (-strength / scores.shape[1] * torch.stack(gaps)).logsumexp(0)


class PredictionMemory(nn.Module):
    """What a model said of each row some epochs ago.

    Args:
        rows: how many there are, numbered from 0.
        classes: K, scores of a row.
        lag: how many epochs ago.
        dtype: of the memory; half precision usually suffices.

    Attributes:
        memory: ``[lag, rows, K]``, a buffer that checkpoints keep; NaN where there is no prediction yet.

    >>> memory = PredictionMemory(3, 2)
    >>> memory.exchange(torch.tensor([1]), torch.tensor([[5.0, 6.0]]), epoch=0)
    tensor([[nan, nan]])
    >>> memory.exchange(torch.tensor([1]), torch.tensor([[7.0, 8.0]]), epoch=1)
    tensor([[5., 6.]])
    """

    def __init__(self, rows: int, classes: int, *, lag: int = 1, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        size = (check_integer("lag", lag), check_integer("rows", rows), check_integer("classes", classes))
        self.memory: Tensor = nn.Buffer(torch.full(size, torch.nan, dtype=dtype))

    @torch.no_grad()
    def exchange(self, ids: Tensor, scores: Tensor, epoch: int) -> Tensor:
        """What was said of the rows ``ids [b]`` ``lag`` epochs before ``epoch``; keeps ``scores [b, K]`` in its place.

        Raises:
            ValueError: for an id that is out of range, or twice in a batch, or scores of other classes.
        """
        lag, rows, classes = self.memory.shape
        check_row_numbers(ids, len(scores), rows)
        if scores.shape != (len(ids), classes):
            raise ValueError(f"scores: expected [{len(ids)}, {classes}], got {tuple(scores.shape)}")
        slot = self.memory[check_integer("epoch", epoch, 0) % lag]
        past = slot[ids].to(scores.dtype)
        if self.training:
            slot[ids] = scores.detach().to(slot.dtype)
        return past


class SelfDistillation(nn.Module):
    r""":func:`mixed_labels` with what the model said an epoch ago, in a share that grows: $\alpha_t = \alpha\, t/T$.

    Args:
        rows: how many there are, numbered from 0.
        classes: K.
        epochs: T, the number of epochs.
        share: $\alpha$ in [0, 1], of the last epoch.

    >>> loss = SelfDistillation(3, 2, epochs=10)
    >>> loss(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([2]), epoch=0)
    tensor(0.6931)
    """

    def __init__(self, rows: int, classes: int, epochs: int, *, share: float = 0.8) -> None:
        super().__init__()
        self.epochs, self.share = check_integer("epochs", epochs), check_between("share", share, 0, 1, closed=True)
        self.past = PredictionMemory(rows, classes)

    def forward(self, scores: Tensor, target: Tensor, ids: Tensor, *, epoch: int, reduction: str = "mean") -> Tensor:
        """The loss of ``scores [b, K]`` with classes ``[b]`` of the rows ``ids [b]`` in ``epoch``, from 0."""
        past = self.past.exchange(ids, scores, epoch)
        share = self.share * min(1.0, (epoch + 1) / self.epochs)
        return mixed_labels(scores, past, target=target, share=share, reduction=reduction)


class TrajectoryLoss(nn.Module):
    r"""Predictions that do not sharpen faster than they did some epochs ago: flat minima for no extra pass (SAF).

    $c\, T^2\, KL(\mathrm{softmax}(s_{\text{past}}/T) \| \mathrm{softmax}(s/T))$ from an epoch on, of rows with a past.
    Du et al., *Sharpness-Aware Training for Free*, arXiv:2205.14083. With a teacher that is a moving average of the
    model (MESA) it is :func:`kl_top` of its scores, times 0.3.

    Args:
        rows: how many there are, numbered from 0.
        classes: K.
        lag: how many epochs ago.
        start: the first epoch that counts.
        temperature: T > 0.
        factor: $c \ge 0$.

    >>> loss = TrajectoryLoss(3, 2, lag=1, start=1)
    >>> loss(torch.tensor([[5.0, 0.0]]), torch.tensor([0]), epoch=0)
    tensor(0.)
    >>> loss(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), epoch=1)
    tensor(0.4438)
    """

    def __init__(
        self,
        rows: int,
        classes: int,
        *,
        lag: int = 3,
        start: int = 5,
        temperature: float = 5.0,
        factor: float = 0.16,
    ) -> None:
        super().__init__()
        self.temperature = check_between("temperature", temperature, 0, math.inf)
        self.start, self.factor = (
            check_integer("start", start, 0),
            check_between("factor", factor, 0, math.inf, closed=True),
        )
        self.past = PredictionMemory(rows, classes, lag=lag)

    def forward(self, scores: Tensor, ids: Tensor, *, epoch: int) -> Tensor:
        """The loss of ``scores [b, K]`` of the rows ``ids [b]`` in ``epoch``, a mean over rows that have a past."""
        past = self.past.exchange(ids, scores, epoch)
        known = ~past.isnan().any(-1)
        if epoch < self.start:
            known = torch.zeros_like(known)
        return self.factor * kl_top(scores, torch.where(known[:, None], past, 0.0), known, temperature=self.temperature)


Scaling = Literal["minmax", "z"]


def teacher_ensemble(
    teacher_scores: Sequence[Tensor],
    weights: Sequence[float] | None = None,
    *,
    scaling: Scaling = "minmax",
    scale: float = 1.0,
) -> Tensor:
    r"""One teacher of several that score on scales of their own: $c \sum_t w_t\, \mathrm{norm}(g_t)$, a row at a time.

    As for IDF-aware sparse retrievers, arXiv:2411.04403; distill from it with :func:`kl_top`.

    Args:
        teacher_scores: of each teacher ``[b, n]``.
        weights: w; None: 1/t each.
        scaling: "minmax" to [0, 1], or "z" to mean 0 and deviation 1, of each row.
        scale: c > 0.

    Returns:
        ``[b, n]``; a teacher whose scores of a row are all equal adds 0 there.

    >>> teacher_ensemble([torch.tensor([[1.0, 3.0]]), torch.tensor([[70.0, 20.0]])], [0.75, 0.25])
    tensor([[0.2500, 0.7500]])
    """
    check_choice("scaling", scaling, get_args(Scaling)), check_between("scale", scale, 0, math.inf)
    if not teacher_scores:
        raise ValueError("teacher_scores: expected those of at least one teacher, got none")
    shares = [1 / len(teacher_scores)] * len(teacher_scores) if weights is None else weights
    if len(shares) != len(teacher_scores):
        raise ValueError(f"weights: expected one a teacher, {len(teacher_scores)}, got {len(shares)}")
    total = torch.zeros(())
    for share, scores in zip(shares, teacher_scores, strict=True):
        _, wide = _both(scores, teacher_scores[0].to(scores.dtype))
        wide = scores.detach().to(wide.dtype)
        if scaling == "minmax":
            centered = wide - wide.amin(-1, keepdim=True)
            width = centered.amax(-1, keepdim=True)
        else:
            centered = wide - wide.mean(-1, keepdim=True)
            width = centered.square().mean(-1, keepdim=True).sqrt()
        total = total + check_number("weights", share) * scale * centered / torch.where(width > 0, width, 1.0)
    return total
