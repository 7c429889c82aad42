"""Soft labels for the most certain rows, by partial transport to clusters of about even size."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from vicinal.blockwise.blocks import policy, row_slices
from vicinal.core import register
from vicinal.core.checks import check_between, check_integer, check_tensor
from vicinal.transport.sinkhorn import check_plan_scores


@register("clustering", "partial_assignment", paper="arXiv:2404.03446", verified="values of the paper's code")
@torch.no_grad()
def partial_assignment(
    logits: Tensor,
    share: float,
    *,
    similarity: Tensor | None = None,
    strength: float = 0.5,
    temperature: float = 0.1,
    evenness: float = 1.0,
    rounds: int = 10,
    steps: int = 1000,
    tolerance: float = 1e-6,
) -> Tensor:
    r"""Soft labels for a share of the rows, the most certain ones, with clusters of about even size.

    $\min_Q \langle Q, C \rangle + \gamma \, \mathrm{KL}(Q^\top 1, \tfrac{\rho}{k} 1) - \epsilon H(Q)$ with
    $C = -\log \mathrm{softmax}$ of the logits, $Q 1 \le 1/n$ and $1^\top Q 1 = \rho$ (PPOT); the rest of each row goes
    to a column of cost 0. With S, the ``similarity`` of rows, similar rows get similar labels (SP2OT): the problem is
    solved several times with the linear bound $C - \lambda (S + S^\top) Q$ as costs. Rows are read block by block, and
    only the result is stored.

    To use them as labels: $-\sum_{ik} q_{ik} \log p_{ik} / n$. Let the share rise during training, for example as
    $\rho_0 + (1 - \rho_0) e^{-5 (1 - t)^2}$ for t from 0 to 1.

    Args:
        logits: ``[n, k]``, k >= 2, finite.
        share: $\rho$, above 0 and at most 1, of the mass of all rows.
        similarity: S ``[n, n]``, dense or sparse; None: PPOT.
        strength: $\lambda \ge 0$, of the similarity.
        temperature: $\epsilon > 0$.
        evenness: $\gamma \ge 0$; infinity makes all columns equal, 0 leaves them free.
        rounds: how often the bound is solved, with ``similarity``.
        steps: of Sinkhorn, at most, for each bound.
        tolerance: stop when no logarithm of a column's factor changes by more.

    Returns:
        n Q, ``[n, k]``, rows sum to at most 1; no gradient.

    Raises:
        ValueError: for a share or temperature out of range, or shapes that do not fit.

    >>> partial_assignment(torch.tensor([[4.0, 0.0], [0.0, 4.0], [0.1, 0.0]]), 0.5).round(decimals=2)
    tensor([[0.7..., 0.0...],
            [0.0..., 0.7...],
            [0.0..., 0.0...]])
    """
    if check_tensor("logits", logits).ndim != 2 or logits.shape[1] < 2:
        raise ValueError(f"logits: expected [n, k] with k of at least 2, got {tuple(logits.shape)}")
    check_between("share", share, 0, math.inf)
    check_between("share", share, 0, 1, closed=True)
    check_between("temperature", temperature, 0, math.inf)
    relaxed = 1.0 if evenness == math.inf else check_between("evenness", evenness, 0, math.inf, closed=True)
    relaxed = relaxed if evenness == math.inf else relaxed / (relaxed + temperature)
    check_integer("steps", steps)
    parts = row_slices(len(logits), max(1, policy().block_entries // logits.shape[1]))
    totals = torch.cat([check_plan_scores(logits[part], "logits").logsumexp(1) for part in parts])

    def scores(part: slice, pull: Tensor | None = None) -> Tensor:
        block = (logits[part] - totals[part, None]).div_(temperature)
        return block if pull is None else block.add_(pull[part])

    g, g_free = torch.zeros_like(totals[:1]).repeat(logits.shape[1]), 0.0 if share < 1 else -math.inf
    problem = _Problem(parts, logits.shape[1], share, relaxed, steps, tolerance)
    if similarity is None:
        return problem.solved(scores, g, g_free)[0]
    both = _check_similarity(similarity, totals)
    check_between("strength", strength, 0, math.inf, closed=True)
    factor = strength / temperature / len(logits)  # a plan times n is what is returned
    plan = torch.full_like(logits, share / logits.shape[1], dtype=totals.dtype)
    for _ in range(check_integer("rounds", rounds)):
        plan, g, g_free = problem.solved(partial(scores, pull=factor * (both @ plan)), g, g_free)
    return plan


def _check_similarity(similarity: Tensor, totals: Tensor) -> Tensor:
    """S and its transpose, added."""
    if similarity.shape != (len(totals), len(totals)):
        raise ValueError(f"similarity: expected {(len(totals), len(totals))}, got {tuple(similarity.shape)}")
    values = similarity.coalesce().values() if similarity.is_sparse else similarity
    if not bool(values.isfinite().all()):
        raise ValueError("similarity: expected finite numbers, got nan or inf")
    return (similarity + similarity.T).to(totals.dtype)


class _Problem(NamedTuple):
    """What all bounds share; ``parts`` are the blocks of rows."""

    parts: list[slice]
    columns: int
    share: float
    relaxed: float
    steps: int
    tolerance: float

    def solved(self, scores: Callable[[slice], Tensor], g: Tensor, g_free: float) -> tuple[Tensor, Tensor, float]:
        """The plan times n, and the logarithms g of column factors, by Sinkhorn's steps over blocks of ``scores``."""
        rows = self.parts[-1].stop
        target = math.log(self.share / self.columns)
        free = math.log1p(-self.share) if self.share < 1 else -math.inf  # of the column that takes what is left
        for _ in range(self.steps):
            mass, log_totals = torch.zeros_like(g), []
            for part in self.parts:
                shares, log_total = _block(scores(part), g, g_free)
                mass += shares.sum(0) / rows
                log_totals.append(log_total)
            log_sums = mass.log() - g  # of what the factor of a column is divided by
            if not bool((mass > 0).all()):  # no mass is left to see: the largest term of it
                pairs = zip(self.parts, log_totals, strict=True)
                leads = [(scores(part) - log_total[:, None]).amax(0) for part, log_total in pairs]
                log_sums = torch.where(mass > 0, log_sums, torch.stack(leads).amax(0) - math.log(rows))
            new = self.relaxed * (target - log_sums)
            moved = float((new - g).abs().max())
            g = new
            if self.share < 1:
                left = float((g_free - torch.cat(log_totals)).logsumexp(0))
                new_free = free - left + math.log(rows) + g_free
                moved, g_free = max(moved, abs(new_free - g_free)), new_free
            if moved <= self.tolerance:
                break
        plan = g.new_empty(rows, self.columns)
        for part in self.parts:
            plan[part] = _block(scores(part), g, g_free)[0]
        return plan, g, g_free


def _block(scores: Tensor, g: Tensor, g_free: float) -> tuple[Tensor, Tensor]:
    """Shares of the columns in each row, beside the free column, and the logarithm of their denominator."""
    logits = scores + g
    log_total = torch.logaddexp(logits.logsumexp(1), torch.full_like(logits[:, 0], g_free))
    return logits.sub_(log_total[:, None]).exp_(), log_total
